/* Locks of files: a fresh file that is this process's own, and a file that processes hold in turn.
 * Read file_lock.h first. */
#include "base/file_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file_ops.h"

/* How often a file is opened until it still has its name when it is locked: each further time,
 * another process removed it in between. Waiting processes are not served in order, so one of them
 * may lose to this many holds of others. */
enum { NAME_TRIES = 100, WAIT_TRIES = 10000 };

/* Writers of one path at a time. */
enum { PARTIALS_MOST = 100 };

/* Between two looks at a lock that another process holds. */
#define NAP_NS 1000000

/* Removes the file if no process holds it; returns 1 if the name is free then. */
static int remove_rest(const char *path)
{
    struct stat facts;
    const int fd = open(path, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT;
    int is_free = 0;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode))
        is_free = !coh_file_is_named(fd, path) || unlink(path) == 0;
    (void)close(fd);
    return is_free;
}

/* Locks a file that was just created. Returns 0 if another process takes it for a rest. */
static int hold(int fd, const char *path)
{
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return 0;
    return coh_file_is_named(fd, path);
}

int coh_file_lock_fresh(const char *path)
{
    for (int i = 0; i < NAME_TRIES; i++) {
        const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST)
            return -errno;
        if (fd >= 0 && hold(fd, path))
            return fd;
        if (fd >= 0)
            (void)close(fd);
        else if (!remove_rest(path))
            return -EEXIST;
    }
    return -EEXIST;
}

int coh_file_lock_partial(const char *path, char *partial, size_t bytes)
{
    int fd = -EEXIST;
    for (int i = 0; i < PARTIALS_MOST && fd == -EEXIST; i++) {
        const int length = i == 0 ? snprintf(partial, bytes, "%s.partial", path)
                                  : snprintf(partial, bytes, "%s.partial-%d", path, i);
        fd = (size_t)length < bytes ? coh_file_lock_fresh(partial) : -ENAMETOOLONG;
    }
    return fd;
}

int coh_file_lock_close_copy(int fd)
{
    const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    return copy >= 0 && close(copy) != 0 ? -errno : 0;
}

/* Locks the file, up to a time: the system has no such call. Returns 0 or -errno. */
static int wait_for(int fd, uint64_t end_ns)
{
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return -errno;
        if (coh_clock_ns() >= end_ns)
            return -ETIMEDOUT;
        (void)nanosleep(&(struct timespec){ .tv_nsec = NAP_NS }, NULL);
    }
    return 0;
}

int coh_file_lock_wait(const char *path, uint64_t most_ns)
{
    const uint64_t end_ns = coh_clock_ns() + most_ns;
    int error = -EAGAIN;
    for (int i = 0; i < WAIT_TRIES && error == -EAGAIN; i++) {
        const int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
        if (fd < 0)
            return -errno;
        error = wait_for(fd, end_ns);
        if (error == 0 && coh_file_is_named(fd, path))
            return fd;
        if (error != 0 && error != -ETIMEDOUT)
            (void)unlink(path);
        (void)close(fd);
        error = error == 0 ? -EAGAIN : error;
    }
    return error;
}

void coh_file_lock_end(int fd, const char *path)
{
    if (fd < 0)
        return;
    (void)unlink(path);
    (void)flock(fd, LOCK_UN); /* a child that was forked meanwhile keeps the descriptor open */
    (void)close(fd);
}
