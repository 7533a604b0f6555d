/* run.h - asked before the first step: is there room for everything the run will write, and is the
 * folder ours?
 *
 *     coh_run_lock_take ──> coh_space_check ──> coh_space_hold_take ──> steps, saves
 *     one run a folder      would it fit?       now it is ours          coh_space_hold_keep: each
 *                                                                       save takes a piece of it
 *
 * A run that finds a full disk at its first checkpoint has lost hours. So all that will be written
 * is listed with its folder; folders on one file system are added up, since they share its room.
 * What is written hours later is held until then, so that nobody else can take it.
 *
 * Nothing here allocates. Threads: one at a time per struct. */
#ifndef COHOBATE_RUN_H
#define COHOBATE_RUN_H

#include <stdint.h>

#include "cohobate/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- room ---- */

typedef struct coh_space_item {
    const char *folder; /* need not exist yet: its nearest parent counts */
    const char *what;   /* "working store", "3 checkpoints" */
    uint64_t bytes;
} coh_space_item;

#define COH_SPACE_ITEMS_MOST 16

/* Fails: COH_ERR_FULL, with the file system's folder, the bytes needed there item by item, and
 * those free for this user; COH_ERR_IO when a folder's file system cannot be asked;
 * COH_ERR_ARGUMENT. Reserves nothing. */
COH_API coh_status coh_space_check(const coh_space_item *items, uint32_t item_count);

/* Bytes free for this user where `folder` is or would be. */
COH_API coh_status coh_space_free_bytes(const char *folder, uint64_t *out_bytes);

/* Blocks of a file system that are ours and not yet used: those of a file that has lost its name,
 * so they go back when the process ends, however it ends. */
typedef struct coh_space_hold {
    int fd;         /* -1: nothing is held */
    uint64_t bytes; /* held */
} coh_space_hold;

/* Holds `bytes` on the file system of the existing `folder`. The file is called reserve.partial for
 * a moment; what a killed process left of that name is removed, so the folder must be ours.
 * Where the file system cannot reserve, nothing is held and that is no failure: coh_space_check is
 * all there is then. Fails: COH_ERR_FULL, COH_ERR_IO; nothing is held then. */
COH_API coh_status coh_space_hold_take(const char *folder, uint64_t bytes,
                                       coh_space_hold *out_hold);
/* Gives back all but `bytes`; does nothing where less is held. */
COH_API void coh_space_hold_keep(coh_space_hold *hold, uint64_t bytes);
/* Gives the room back. Does nothing if none is held. */
COH_API void coh_space_hold_release(coh_space_hold *hold);

/* Makes the name of the new file or folder `path` survive a power cut: what is in it is no safer
 * than that. A folder above it that we may not open, or a file system that has no notion of it, is
 * left as it is. Fails: COH_ERR_IO. */
COH_API coh_status coh_name_flush(const char *path);

/* ---- one run per folder ---- */

typedef struct coh_run_lock {
    int fd; /* -1: not held */
} coh_run_lock;

/* Locks the existing `folder` for this process by its file "lock", which holds our process number.
 * The lock dies with the process, however that ends; the file stays.
 * Fails: COH_ERR_ARGUMENT when another run holds it, naming its process; COH_ERR_IO. out_lock->fd
 * is -1 then. */
COH_API coh_status coh_run_lock_take(const char *folder, coh_run_lock *out_lock);
/* Does nothing if it is not held. */
COH_API void coh_run_lock_release(coh_run_lock *lock);

#ifdef __cplusplus
}
#endif
#endif
