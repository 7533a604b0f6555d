/* ledger.h - accounts for every byte by tier, purpose and owner, with its peak.
 *
 * Two books answer two questions:
 *
 *   reservations   "what do we hold of the machine?"  arenas, token buffers, tables
 *                  text keys, a mutex, cold path: set-up and tear-down only
 *   extents        "what is in the arena now?"         one chunk in one slot, by tier and stream
 *                  atomics only, hot path: every lane thread, every extent
 *
 *   arena |aaaa..bbbb|cccc|......|dddd|........|
 *          0         10   14     20   24          live = 18, end = 24 (padding, holes included)
 *
 * `end` is the size of the smallest sufficient arena; live is what the arena really contains. The
 * executor counts both, so that a plan's promised peak can be compared with the run's to the byte.
 *
 * Everything is preallocated at create. At destroy both books must be zero; any rest is a leak of
 * ours. */
#ifndef COH_MEMORY_LEDGER_H
#define COH_MEMORY_LEDGER_H

#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "memory/tier.h"

typedef struct coh_ledger coh_ledger;

#define COH_LEDGER_ENTRY_COUNT  256 /* different (tier, purpose, owner) */
#define COH_LEDGER_STREAM_COUNT 32  /* distinct streams of extents */
#define COH_LEDGER_NAME_BYTES   32  /* longer names are cut, also in keys */

coh_status coh_ledger_create(coh_ledger **out_ledger);
/* Asserts that coh_ledger_total_bytes is 0. Accepts NULL. */
void coh_ledger_destroy(coh_ledger *ledger);

/* ---- reservations (cold) ---- */

/* Adds `bytes` to (tier, purpose, owner); the names are copied. Equal keys share one entry. Any
 * thread. Fails: COH_ERR_FULL if COH_LEDGER_ENTRY_COUNT keys are in use; nothing is counted
 * then. */
coh_status coh_ledger_add(coh_ledger *ledger, coh_tier tier, const char *purpose, const char *owner,
                          uint64_t bytes);
/* Subtracts `bytes` from the same key. Asserts that they were added. The entry keeps its peak. */
void coh_ledger_remove(coh_ledger *ledger, coh_tier tier, const char *purpose, const char *owner,
                       uint64_t bytes);

/* ---- extents (hot: lock-free, allocation-free, any lane thread) ---- */

/* Count an extent in and out. `stream` indexes the caller's own list (coh_stream), below
 * COH_LEDGER_STREAM_COUNT. Enter before the extent's first use; leave after its last use, but
 * before the lane's counter rises. Then the live count never exceeds what is really there. A NULL
 * ledger is accepted and counts nothing. */
void coh_ledger_enter(coh_ledger *ledger, coh_tier tier, uint32_t stream, uint64_t offset,
                      uint64_t bytes);
void coh_ledger_leave(coh_ledger *ledger, coh_tier tier, uint32_t stream, uint64_t offset,
                      uint64_t bytes);

/* ---- reading ---- */

typedef struct coh_ledger_sums {
    uint64_t reserved_bytes, reserved_peak_bytes; /* of reservations */
    uint64_t live_bytes, live_peak_bytes;         /* of extents, all streams together */
    uint64_t end_peak_bytes; /* highest offset + bytes ever entered: the plan's peak */
} coh_ledger_sums;

/* Read the sums of a tier or of a stream. Exact while no lane is running; otherwise each figure is
 * right for some moment, but not all for the same one. */
void coh_ledger_read(const coh_ledger *ledger, coh_tier tier, coh_ledger_sums *out_sums);
void coh_ledger_read_stream(const coh_ledger *ledger, coh_tier tier, uint32_t stream,
                            uint64_t *out_live_bytes, uint64_t *out_live_peak_bytes);

/* Returns reserved plus live bytes over all tiers: 0 exactly when nothing is held. */
uint64_t coh_ledger_total_bytes(const coh_ledger *ledger);

/* A row of the ledger: one per reservation's key, per stream in use and per tier's highest end. */
typedef struct coh_ledger_row {
    coh_tier tier;
    char purpose[COH_LEDGER_NAME_BYTES], owner[COH_LEDGER_NAME_BYTES]; /* of extents: "extents" */
    uint64_t bytes, peak_bytes;
} coh_ledger_row;

/* Reads row `index`, from 0; returns 0 past the last. `stream_names` as below. Allocates
 * nothing. */
int coh_ledger_row_at(const coh_ledger *ledger, const char *const *stream_names,
                      uint32_t stream_count, uint32_t index, coh_ledger_row *out_row);

/* Prints the rows as text into buffer, one line each (always terminated, cut to fit).
 * `stream_names` (stream_count of them) may be NULL: then numbers are printed. Returns the bytes
 * that the whole text needs, terminator included. Allocates nothing. */
size_t coh_ledger_print(const coh_ledger *ledger, const char *const *stream_names,
                        uint32_t stream_count, char *buffer, size_t buffer_bytes);

#endif
