/* temporary.h - fresh files and folders for a test, below $TMPDIR or else in /tmp, so that two runs
 * in one tree do not meet. The test removes them. A working store lies in the tree instead: its
 * file has no name, and /tmp may be in memory. */
#ifndef COH_TESTS_TEMPORARY_H
#define COH_TESTS_TEMPORARY_H

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Puts what is made later into memory, for thousands of files: a flush of a real disk takes
 * milliseconds. Where $TMPDIR is set it decides. */
static inline void temporary_in_memory(void)
{
    if (access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 0);
}

/* Writes the template of a fresh name to `path` of `bytes` bytes. */
static inline int temporary_template(char *path, size_t bytes, const char *stem)
{
    const char *parent = getenv("TMPDIR");
    const int length =
        snprintf(path, bytes, "%s/cohobate-%s-XXXXXX", parent ? parent : "/tmp", stem);
    if (length >= 0 && (size_t)length < bytes)
        return 0;
    errno = ENAMETOOLONG;
    return -1;
}

/* Makes an empty folder and writes its path; returns 0, or -1 with errno set. */
static inline int temporary_folder(char *path, size_t bytes, const char *stem)
{
    return temporary_template(path, bytes, stem) == 0 && mkdtemp(path) ? 0 : -1;
}

/* Makes an empty file and writes its path; returns 0, or -1 with errno set. */
static inline int temporary_file(char *path, size_t bytes, const char *stem)
{
    const int fd = temporary_template(path, bytes, stem) == 0 ? mkstemp(path) : -1;
    return fd >= 0 ? close(fd) : -1;
}

static inline int temporary_remove_entry(const char *path, const struct stat *facts, int type,
                                         struct FTW *place)
{
    (void)facts;
    (void)type;
    (void)place;
    return remove(path);
}

/* Removes a folder with all that is in it; returns 0, or -1 with errno set. */
static inline int temporary_remove(const char *path)
{
    return nftw(path, temporary_remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

#endif
