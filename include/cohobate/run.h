/* run.h - checks before the first step: is there disk space for everything the run will write, and
 * is the folder free for this run?
 *
 *     coh_run_lock_take ──> coh_space_check ──> coh_space_hold_take ──> steps, saves
 *     one run per folder    would it fit?       reserve the space       coh_space_hold_keep: each
 *                                                                       save uses a part of it
 *
 * A run that meets a full disk at its first checkpoint has lost hours. So the caller lists
 * everything that will be written, with its folder; folders on one file system, or on several that
 * share one pool (subvolumes of btrfs, datasets of ZFS, a container's overlay next to a volume of
 * its drive), are added up, because they share its space. Space that is needed hours later is
 * reserved at once, so that no other program takes it.
 *
 * Nothing here allocates memory. Threads: one at a time per struct. */
#ifndef COHOBATE_RUN_H
#define COHOBATE_RUN_H

#include <stdint.h>

#include "cohobate/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- room ---- */

/* Something that will be written, of `bytes` and, with its folders, of `files`. */
typedef struct coh_space_item {
    const char *folder; /* may not exist yet: its nearest existing parent counts */
    const char *what;   /* for the error text: "working store", "3 checkpoints" */
    uint64_t bytes;
    uint64_t files; /* 0: few enough not to be counted */
} coh_space_item;

/* Most items of one check. */
#define COH_SPACE_ITEMS_MOST 16

/* Checks that all items fit together. Reserves nothing.
 * Fails: COH_ERR_FULL with the file system's folder, the bytes or files needed there item by item,
 * and those free for this user; COH_ERR_IO if a folder's file system cannot be queried;
 * COH_ERR_ARGUMENT. */
COH_API coh_status coh_space_check(const coh_space_item *items, uint32_t item_count);

/* Returns the bytes free for this user on the file system where `folder` is or would be; UINT64_MAX
 * if the file system does not report its size.
 * Fails: COH_ERR_IO if the file system cannot be queried. */
COH_API coh_status coh_space_free_bytes(const char *folder, uint64_t *out_bytes);

/* Reserved disk blocks that are not used yet. They belong to an unlinked file, so the system frees
 * them when the process ends, however it ends. */
typedef struct coh_space_hold {
    int fd;         /* -1: nothing is reserved */
    uint64_t bytes; /* reserved */
} coh_space_hold;

/* Reserves `bytes` on the file system of the existing `folder`. The file is called reserve.partial
 * for a moment, and one that a killed process left is removed, so the folder must belong to this
 * run. A file system that cannot reserve is no failure: nothing is reserved, and coh_space_check is
 * the only protection. Fails: COH_ERR_FULL, COH_ERR_IO; nothing is reserved then. */
COH_API coh_status coh_space_hold_take(const char *folder, uint64_t bytes,
                                       coh_space_hold *out_hold);
/* Frees all but `bytes` of the reservation. Does nothing if less is reserved. */
COH_API void coh_space_hold_keep(coh_space_hold *hold, uint64_t bytes);
/* Frees the reservation. Does nothing if there is none. */
COH_API void coh_space_hold_release(coh_space_hold *hold);

/* Makes the name of the new file or folder `path` survive a power cut, by flushing its parent
 * folder; without that, flushed contents can be lost with their name. A parent folder that we may
 * not open, or whose file system cannot flush folders, is left as it is. Fails: COH_ERR_IO. */
COH_API coh_status coh_name_flush(const char *path);

/* Creates a temporary file for the later file `path`, and opens it for writing. It is locked until
 * *out_fd is closed, and called <path>.partial, or <path>.partial-1 and so on while another writer
 * has that. What a killed writer left under such a name is removed. Writes the name to `out_name`
 * of `name_bytes`. The caller renames the file to `path` or removes it, and closes it after that.
 * Fails: COH_ERR_IO. */
COH_API coh_status coh_partial_open(const char *path, char *out_name, uint32_t name_bytes,
                                    int32_t *out_fd);

/* ---- one run per folder ---- */

/* A lock on a run's folder. */
typedef struct coh_run_lock {
    int fd; /* -1: not held */
} coh_run_lock;

/* Locks the existing `folder` for this process, with the file "lock" in it, which holds the process
 * number. The lock ends with the process, however that ends; the file stays.
 * Fails: COH_ERR_ARGUMENT if another run holds the lock, naming its process; COH_ERR_CORRUPT if
 * "lock" is no regular file (links are not followed) or holds more than a number, and stays as it
 * is; COH_ERR_IO, also on a file system without file locks. out_lock->fd is -1 then. */
COH_API coh_status coh_run_lock_take(const char *folder, coh_run_lock *out_lock);
/* Finds out whether a run holds the lock of `folder` and, if so, the number of its process (0: not
 * known). Leaves the lock as it is: a run may begin or end at any time.
 * Fails: COH_ERR_IO, COH_ERR_ARGUMENT. */
COH_API coh_status coh_run_lock_holder(const char *folder, int32_t *out_is_held,
                                       int64_t *out_process);
/* Releases the lock. Does nothing if it is not held. */
COH_API void coh_run_lock_release(coh_run_lock *lock);

#ifdef __cplusplus
}
#endif
#endif
