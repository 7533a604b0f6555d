/* file_ops.h - the file operations of a save.
 *
 * The one idea: a save must survive a crash between any two operations. So every operation that
 * changes the disk is one call through a table of functions. The table is the system's; a test puts
 * another one in, in which operations fail, are cut short, or end the process
 * (tests/faults/file_faults.h). Operations that only undo (unlink, rmdir, close after a failure) go
 * through the table, too.
 *
 * Every call returns 0 (or a descriptor) or -errno, and allocates nothing. Names have at most
 * PATH_MAX bytes. Threads: one at a time per struct. */
#ifndef COH_BASE_FILE_OPS_H
#define COH_BASE_FILE_OPS_H

#include <stdint.h>

/* One attempt at each operation: returns 0, a descriptor or a number of bytes; or -errno. `state`
 * is what `begin` returned. */
typedef struct coh_file_calls {
    /* Called once per coh_file_ops; NULL: state is NULL. */
    void *(*begin)(void);
    int (*mkdir)(void *state, const char *path);
    int (*create)(void *state, const char *path);
    int (*reserve)(void *state, int fd, uint64_t bytes);
    int64_t (*write)(void *state, int fd, const void *data, uint64_t bytes, uint64_t offset);
    int (*sync)(void *state, int fd);
    int (*sync_folder)(void *state, const char *path);
    int (*close)(void *state, int fd);
    int (*rename)(void *state, const char *from, const char *to);
    int (*link)(void *state, const char *from, const char *to);
    int (*unlink_at)(void *state, int folder_fd, const char *name, const char *path);
    int (*rmdir_at)(void *state, int folder_fd, const char *name, const char *path);
} coh_file_calls;

extern const coh_file_calls coh_system_file_calls;

/* Makes every coh_file_ops_init from now on take this table; it must stay valid. Call it before any
 * thread that saves. */
void coh_file_calls_use(const coh_file_calls *calls);

typedef struct coh_file_ops {
    const coh_file_calls *calls;
    void *state;
} coh_file_ops;

void coh_file_ops_init(coh_file_ops *ops);

int coh_file_mkdir(coh_file_ops *ops, const char *path);
/* Creates a file for writing; refuses an existing one. */
int coh_file_create(coh_file_ops *ops, const char *path);
/* Reserves space for [0, bytes), so that later writes cannot meet a full disk. On a file system
 * that cannot reserve it only compares the free space, for each file by itself, and writes
 * nothing. 0 bytes: does nothing.
 * Repeated if a signal interrupts it, as is sync. */
int coh_file_reserve(coh_file_ops *ops, int fd, uint64_t bytes);
/* Writes all bytes, in as many pieces as the system needs; each piece is one operation. */
int coh_file_write(coh_file_ops *ops, int fd, const void *data, uint64_t bytes, uint64_t offset);
/* Asks the system to start writing back these bytes, so that sync finds little left and they do not
 * fill the page cache. A hint: cannot fail, is no operation of the table. */
void coh_file_write_back(int fd, uint64_t bytes, uint64_t offset);
int coh_file_sync(coh_file_ops *ops, int fd);
/* Flushes a folder's entries. Succeeds if the file system does not support it (EINVAL). */
int coh_file_sync_folder(coh_file_ops *ops, const char *path);
/* Flushes the parent folder of `path`, which makes a name durable. */
int coh_file_sync_parent(coh_file_ops *ops, const char *path);
/* Writes the parent folder of `path`, of PATH_MAX bytes; "." if it has none. */
void coh_file_parent(const char *path, char *out_folder);
/* Is `path` the name of the open file? Links are not followed. A file that was opened and then
 * locked may have lost its name in between, to no file or to another one. No operation of the
 * table. */
int coh_file_is_named(int fd, const char *path);
/* Closes; the descriptor is closed even on failure. Accepts -1. */
int coh_file_close(coh_file_ops *ops, int fd);
/* Refuses an existing target with -EEXIST. */
int coh_file_rename(coh_file_ops *ops, const char *from, const char *to);
/* Gives the file `from` the further name `to` (a hard link); a symbolic link is not followed. Fails
 * where the file system has no links, or the names are on two file systems. */
int coh_file_link(coh_file_ops *ops, const char *from, const char *to);
int coh_file_unlink(coh_file_ops *ops, const char *path);
/* Deletes `name` in the open folder `folder_fd`, which may have been renamed since; `path` is its
 * name at creation. */
int coh_file_unlink_at(coh_file_ops *ops, int folder_fd, const char *name, const char *path);
int coh_file_rmdir(coh_file_ops *ops, const char *path);
int coh_file_rmdir_at(coh_file_ops *ops, int folder_fd, const char *name, const char *path);

/* Returns what to do about a write that failed; `error` is -errno: "make room, or give another
 * place", for example. */
const char *coh_file_remedy(int error);
/* Returns what to do about a file that cannot be opened for reading: `otherwise`, unless too many
 * are open in the process. `error` is -errno. */
const char *coh_file_open_remedy(int error, const char *otherwise);

#endif
