/* space.h - asked before the first step: is there room for everything the run will write, and is the
 * folder ours?
 *
 * A run that finds a full disk at its first checkpoint has lost hours. So all that will be written is
 * listed with its folder; folders on one file system are added up, since they share its room. */
#ifndef COH_OFFLOAD_SPACE_H
#define COH_OFFLOAD_SPACE_H

#include <stdint.h>

#include "base/check.h"

typedef struct coh_space_item {
    const char *folder; /* need not exist yet: its nearest parent counts */
    const char *what;   /* "working store", "two checkpoints" */
    uint64_t bytes;
} coh_space_item;

#define COH_SPACE_ITEMS_MOST 16

/* Fails: COH_ERR_FULL, with the file system's folder, the bytes needed there item by item, and those
 * free for this user; COH_ERR_IO when a folder's file system cannot be asked; COH_ERR_ARGUMENT.
 * Reserves nothing: what the working store needs is reserved when it opens. */
coh_status coh_space_check(const coh_space_item *items, uint32_t item_count);

/* Bytes free for this user where `folder` is or would be. */
coh_status coh_space_free_bytes(const char *folder, uint64_t *out_bytes);

/* ---- one run per folder ---- */

typedef struct coh_run_lock {
    int fd; /* -1: not held */
} coh_run_lock;

/* Locks the existing `folder` for this process by its file "lock", which holds our process number. The
 * lock dies with the process, however that ends; the file stays.
 * Fails: COH_ERR_ARGUMENT when another run holds it, naming its process; COH_ERR_IO. out_lock->fd is
 * -1 then. */
coh_status coh_run_lock_take(const char *folder, coh_run_lock *out_lock);
void coh_run_lock_release(coh_run_lock *lock); /* nothing if not held */

#endif
