/* file_lock.h - files that one process has to itself, of many that run at the same time.
 *
 * The one idea: the holder of such a file has a lock on it (flock), which the system takes away
 * with the process. So a file without a lock is what a killed process left, and can be removed. A
 * file that was opened and then locked may have lost its name to another one in between: the name
 * is looked up again under the lock.
 *
 * Nothing here allocates. Threads: any; two threads of a process are kept apart as processes
 * are. */
#ifndef COH_BASE_FILE_LOCK_H
#define COH_BASE_FILE_LOCK_H

#include <stddef.h>
#include <stdint.h>

/* Creates the file `path` and locks it; returns its descriptor, for writing, or -errno. A file of
 * that name which a killed process left is removed first; -EEXIST: another process holds the file,
 * or nobody can tell (no file locks here, another user's file, no regular file). On a file system
 * without locks a new file is held without one. The caller gives the file another name or removes
 * it, then closes it. */
int coh_file_lock_fresh(const char *path);
/* As coh_file_lock_fresh, a temporary file for `path`: under the first of the names
 * "<path>.partial", "<path>.partial-1", ... that no other process holds. Writes the name to
 * `partial` of `bytes` bytes; -ENAMETOOLONG: it is too long. */
int coh_file_lock_partial(const char *path, char *partial, size_t bytes);
/* Asks for errors that some file systems only report when a file is closed. The file stays open,
 * since its lock must last until it has its name. Returns 0 or -errno. */
int coh_file_lock_close_copy(int fd);

/* Waits until this process holds the file `path`, which is made if it is not there; returns its
 * descriptor or -errno, for example of a file system without locks. -ETIMEDOUT: others have held it
 * for `most_ns`, so its holder may be suspended. */
int coh_file_lock_wait(const char *path, uint64_t most_ns);
/* Ends such a hold, and removes the file. Accepts an `fd` below 0. */
void coh_file_lock_end(int fd, const char *path);

#endif
