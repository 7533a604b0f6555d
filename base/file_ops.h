/* file_ops.h - the file operations of a save, one by one, so that a test can break each of them.
 *
 * The one idea: a save must survive a crash between any two operations. So every operation that
 * changes the disk passes through this table and gets a number, from 1. coh_file_ops_init reads
 * these environment variables once:
 *
 *     COH_TEST_EXIT_AT=<n>          _exit(86) instead of operation n; for a write, after half of it
 *     COH_TEST_FAIL_AT=<n>[:errno]  operation n fails with that number (default 5, EIO), once
 *     COH_TEST_FAIL_AT=<n>:short    if operation n is a write, it moves only half of its bytes
 *     COH_TEST_SIGNAL_AT=<n>[:number]    the process gets that signal (default 15, SIGTERM) before
 *                                   operation n, once
 *     COH_TEST_POWER_CUT_AT=<n>[:seed]   the power fails instead of operation n: unflushed data is
 *                                   dropped or torn (base/power_cut.h), then _exit(86); here n
 *                                   counts all operations of the process
 *
 * Operations that only undo (unlink, rmdir, close after a failure) are counted, too.
 *
 * Every call returns 0 (or a descriptor) or -errno, and allocates nothing. Names have at most
 * PATH_MAX bytes. Threads: one at a time per struct. */
#ifndef COH_BASE_FILE_OPS_H
#define COH_BASE_FILE_OPS_H

#include <stdint.h>

#include "base/power_cut.h"

#define COH_FILE_OPS_EXIT_CODE 86

typedef struct coh_file_ops {
    uint64_t count;     /* operations so far */
    uint64_t exit_at;   /* 0: never */
    uint64_t fail_at;   /* 0: never */
    int fail_errno;     /* 0: a short write */
    uint64_t signal_at; /* 0: never */
    int signal_number;
    coh_power_cut *power_cut; /* NULL: no power cut is planned */
} coh_file_ops;

/* Zeroes *ops and reads the environment. Malformed variables are ignored. */
void coh_file_ops_init(coh_file_ops *ops);

int coh_file_mkdir(coh_file_ops *ops, const char *path);
/* Creates a file for writing; refuses an existing one. */
int coh_file_create(coh_file_ops *ops, const char *path);
/* Reserves space for [0, bytes), so that later writes cannot meet a full disk. 0 bytes: does
 * nothing. */
int coh_file_reserve(coh_file_ops *ops, int fd, uint64_t bytes);
/* Writes all bytes, in as many pieces as the system needs; each piece is one operation. */
int coh_file_write(coh_file_ops *ops, int fd, const void *data, uint64_t bytes, uint64_t offset);
/* Asks the system to start writing back these bytes, so that sync finds little left and they do not
 * fill the page cache. A hint: cannot fail, is not counted. */
void coh_file_write_back(int fd, uint64_t bytes, uint64_t offset);
int coh_file_sync(coh_file_ops *ops, int fd);
/* Flushes a folder's entries. Succeeds if the file system does not support it (EINVAL). */
int coh_file_sync_folder(coh_file_ops *ops, const char *path);
/* Flushes the parent folder of `path`, which makes a name durable. */
int coh_file_sync_parent(coh_file_ops *ops, const char *path);
/* Writes the parent folder of `path`, of PATH_MAX bytes; "." if it has none. Not counted. */
void coh_file_parent(const char *path, char *out_folder);
/* Closes; the descriptor is closed even on failure. Accepts -1. */
int coh_file_close(coh_file_ops *ops, int fd);
/* Refuses an existing target with -EEXIST. */
int coh_file_rename(coh_file_ops *ops, const char *from, const char *to);
int coh_file_unlink(coh_file_ops *ops, const char *path);
/* Deletes `name` in the open folder `folder_fd`, which may have been renamed since; `path` is its
 * name at creation. */
int coh_file_unlink_at(coh_file_ops *ops, int folder_fd, const char *name, const char *path);
int coh_file_rmdir(coh_file_ops *ops, const char *path);
int coh_file_rmdir_at(coh_file_ops *ops, int folder_fd, const char *name, const char *path);

#endif
