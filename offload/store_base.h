/* store_base.h - the common part of every store: its config, the requests in flight on a port, the
 * choice of a backend, and the unnamed files that two backends use.
 *
 * A store's struct begins with a struct coh_store, which store.h only declares. Read store.h
 * first. */
#ifndef COH_OFFLOAD_STORE_BASE_H
#define COH_OFFLOAD_STORE_BASE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "offload/checksum.h"
#include "offload/store.h"
#include "offload/stripe.h"

#define COH_STORE_REASON_BYTES 512

/* Size of the pieces into which a request is cut, so that one chunk keeps several transfers in
 * flight. 2 MiB: smaller pieces were slower at the same bytes in flight, larger ones not faster
 * (benchmarks/store.c). */
#define COH_STORE_PIECE_BYTES ((size_t)2 << 20)

/* The read rate is measured at open, for this long; a smaller file would measure a cache. */
#define COH_STORE_MEASURED_LEAST COH_DISK_WORTH_BYTES
#define COH_STORE_MEASURE_NS     UINT64_C(50000000)

struct coh_store {
    coh_store_config config; /* disks: our copy */
    coh_disk disks[COH_DISKS_MOST];
    char *folders[COH_DISKS_MOST];
    coh_stripe stripe;
    int fds[COH_DISKS_MOST]; /* of the unnamed files; -1: none */
    coh_store_facts facts;   /* without retry_count */
    _Atomic uint64_t retry_count;
    coh_checksum_table *checksums;
    char reason[COH_STORE_REASON_BYTES]; /* facts.reason points here after the first sentence */
};

/* Checks the config and initialises the common part. On failure nothing is held.
 * Fails: COH_ERR_ARGUMENT (bytes is not a positive multiple of a page, port_depth is 0 or above
 * 1024, more than COH_DISKS_MOST folders), COH_ERR_FULL (limits of folders), COH_ERR_MEMORY. */
coh_status coh_store_base_init(coh_store *base, const coh_store_config *config,
                               const char *backend);
/* Closes the unnamed files, too. `base` has been initialised, or its init has failed. */
void coh_store_base_fini(coh_store *base);

/* Appends a sentence to facts.reason, after "; " if there is one already. */
void coh_store_base_say(coh_store *base, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Implements `facts` for every table. */
coh_status coh_store_base_facts(const coh_store *store, coh_store_facts *out_facts);

/* Checks a request against the contract: inside the file, page aligned, a known chunk. Otherwise it
 * is our bug.
 * Fails: COH_ERR_INTERNAL. */
coh_status coh_store_base_allow(const coh_store *base, const coh_store_request *request);

/* Returns the system's text for an errno; never NULL, allocates nothing (strerror may). */
const char *coh_store_error_text(int error);

/* coh_store_open with the list of backends, the best one first: opens the first one that works. A
 * backend without functions was not built; a backend that fails with COH_ERR_DEVICE is denied on
 * this machine. Both are reported in facts.reason of the backend that opens. Any other failure is
 * final: a full disk is full on every backend. Fails: COH_ERR_DEVICE if all are denied; else with
 * that other failure. */
coh_status coh_store_open_first(const coh_store_config *config,
                                const coh_store_ops *const *backends, uint32_t backend_count,
                                const coh_store_ops **out_ops, coh_store **out_store);

/* ---- the requests in flight on a port ---- */

#define COH_STORE_NO_ERROR (-1)

typedef enum coh_slot_state { COH_SLOT_FREE, COH_SLOT_ACTIVE, COH_SLOT_DONE } coh_slot_state;

/* A request on its way free -> active -> done -> free. It hands out pieces from its front. */
typedef struct coh_store_slot {
    coh_store_request request;
    uint64_t checksum;     /* of a write */
    uint64_t sequence;     /* order of submission; of a done slot: order of completion */
    size_t next_bytes;     /* handed out so far */
    uint32_t piece_count;  /* handed out, not returned */
    int error;             /* an errno, 0: the file ended; COH_STORE_NO_ERROR: none yet */
    uint64_t error_offset; /* of the piece with the error */
    coh_slot_state state;
} coh_store_slot;

/* Counts a transfer that is repeated or continued. Any thread. */
static inline void coh_store_count_retry(coh_store *store)
{
    atomic_fetch_add_explicit(&store->retry_count, 1, memory_order_relaxed);
}

/* If several threads use the slots of a port, its owner locks around each call but the last. */
typedef struct coh_store_slots {
    coh_store *store;
    coh_store_port port;
    coh_store_slot *all; /* config.port_depth */
    uint64_t sequence;
    uint32_t active_count, done_count;
    char text[COH_ERROR_TEXT_BYTES]; /* of the first failed completion of a reap */
} coh_store_slots;

/* Fails: COH_ERR_MEMORY. */
coh_status coh_store_slots_init(coh_store_slots *slots, coh_store *store, coh_store_port port);
void coh_store_slots_fini(coh_store_slots *slots); /* accepts a zeroed struct */

/* Adds a request; `checksum` is that of a write's bytes. Fails: COH_ERR_INTERNAL if all slots are
 * taken. */
coh_status coh_store_slots_add(coh_store_slots *slots, const coh_store_request *request,
                               uint64_t checksum);
/* Returns the oldest slot in `state`, or NULL. An active one has bytes to hand out and no error. */
coh_store_slot *coh_store_slots_oldest(const coh_store_slots *slots, coh_slot_state state);
/* Takes the next piece of an active slot: at most COH_STORE_PIECE_BYTES of memory, in one
 * folder's file. Returns its offset in the request. */
size_t coh_store_slots_take(coh_store_slots *slots, coh_store_slot *slot, size_t *out_bytes);
/* Returns a piece of a slot, which was transferred at `file_offset`. After the last piece, or the
 * last one under way after an error, the slot is done: returns 1. */
int coh_store_slots_return(coh_store_slots *slots, coh_store_slot *slot, int error,
                           uint64_t file_offset);
/* Frees a done slot, and returns a copy of it. */
coh_store_slot coh_store_slots_free(coh_store_slots *slots, coh_store_slot *slot);

/* Ends a request by the copy of its slot: records a write, checks a read. Keeps the text of the
 * first failure; *failed counts the failures of a reap. Called by the lane's thread. */
coh_store_completion coh_store_slots_finish(coh_store_slots *slots, const coh_store_slot *ended,
                                            int *failed);

/* ---- the unnamed files ---- */

/* Makes the files of base->stripe in their folders: unnamed from the start (O_TMPFILE, or created
 * and unlinked at once), with all blocks allocated and written once, all folders in parallel. Sets
 * base->fds, facts.direct and facts.write_bytes_per_s, and reports if O_DIRECT is not used.
 * Fails: COH_ERR_FULL with bytes wanted and free; COH_ERR_IO; COH_ERR_MEMORY; each names the
 * folder. */
coh_status coh_store_files_open(coh_store *base);

#endif
