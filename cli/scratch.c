/* Creates and removes temporary folders. The one idea: a locked folder has a living owner; an
 * unlocked one of this user is a leftover and is removed. Next: data.c, the caller. */
#include "cli/scratch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_BEGINS "cohobate-tokens-"
enum { NAME_DRAWN = 6 }; /* number of characters that mkdtemp chooses */

/* Two commands that start together may each take the other's new folder for a leftover. */
enum { TRIES = 100 };

static const char *parent(void)
{
    const char *named = getenv("TMPDIR");
    return named && named[0] ? named : "/tmp";
}

/* Opens and locks the folder; -1: another process holds it, or it no longer exists. `is_ours`: just
 * made by this process, so it is held without a lock if the file system has none. */
static int hold(const char *path, int is_ours)
{
    struct stat held, there;
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -1;
    int is_held = flock(fd, LOCK_EX | LOCK_NB) == 0 || (is_ours && errno != EWOULDBLOCK);
    is_held &= fstat(fd, &held) == 0 && lstat(path, &there) == 0 && held.st_dev == there.st_dev &&
               held.st_ino == there.st_ino && held.st_uid == geteuid();
    if (is_held)
        return fd;
    close(fd);
    return -1;
}

static int begins_with(const char *text, const char *beginning)
{
    return strncmp(text, beginning, strlen(beginning)) == 0;
}

/* Removes our files. Any other file in it keeps the folder. */
static void remove_held(const char *path, int fd)
{
    struct dirent *entry;
    const int listed = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = listed < 0 ? NULL : fdopendir(listed);
    while (folder && (entry = readdir(folder)))
        if (begins_with(entry->d_name, "data.tokens") ||
            begins_with(entry->d_name, "validation.tokens"))
            (void)unlinkat(fd, entry->d_name, 0);
    if (folder)
        closedir(folder);
    else if (listed >= 0)
        close(listed);
    (void)rmdir(path);
}

static void remove_rests(void)
{
    char path[CLI_PATH_BYTES];
    struct dirent *entry;
    DIR *folder = opendir(parent());
    while (folder && (entry = readdir(folder))) {
        if (!begins_with(entry->d_name, NAME_BEGINS) ||
            strlen(entry->d_name) != strlen(NAME_BEGINS) + NAME_DRAWN ||
            snprintf(path, sizeof(path), "%s/%s", parent(), entry->d_name) >= (int)sizeof(path))
            continue;
        const int fd = hold(path, 0);
        if (fd < 0)
            continue;
        remove_held(path, fd);
        close(fd);
    }
    if (folder)
        closedir(folder);
}

coh_status cli_scratch_create(cli_scratch *out_scratch)
{
    out_scratch->lock_fd = -1;
    remove_rests();
    for (int i = 0; i < TRIES && out_scratch->lock_fd < 0; i++) {
        if (snprintf(out_scratch->path, sizeof(out_scratch->path), "%s/" NAME_BEGINS "XXXXXX",
                     parent()) >= (int)sizeof(out_scratch->path))
            return cli_fail(COH_ERR_ARGUMENT, "TMPDIR is a path of %zu bytes: set a shorter one",
                            strlen(parent()));
        if (!mkdtemp(out_scratch->path))
            break;
        out_scratch->lock_fd = hold(out_scratch->path, 1);
        if (out_scratch->lock_fd < 0)
            (void)rmdir(out_scratch->path);
    }
    if (out_scratch->lock_fd >= 0)
        return COH_OK;
    return cli_fail(COH_ERR_IO,
                    "cannot make the folder %s for the tokens: %s: set TMPDIR to a folder that can "
                    "be written to, or run cohobate tokenize first",
                    out_scratch->path, strerror(errno));
}

void cli_scratch_destroy(cli_scratch *scratch)
{
    if (scratch->lock_fd < 0)
        return;
    remove_held(scratch->path, scratch->lock_fd);
    close(scratch->lock_fd);
    scratch->lock_fd = -1;
}
