/* refusal.h - how the library refuses: fills a coh_refusal step by step (cohobate/refusal.h).
 *
 *     coh_refusal refusal = coh_refusal_bytes(COH_REFUSAL_FAR_TIER, COH_TIER_DISK, given, needed);
 *     coh_refusal_raise(&refusal, COH_TIER_DISK, needed);
 *     return coh_refuse(&refusal);
 *
 * coh_fail and coh_kind_fail end a refusal (check.c); coh_fail_prefix keeps it. */
#ifndef COH_BASE_REFUSAL_H
#define COH_BASE_REFUSAL_H

#include "cohobate/refusal.h"
#include "cohobate/terms.h"

/* Begin a refusal with COH_ERR_FULL. `tier` -1: none. needed_bytes above given_bytes. */
coh_refusal coh_refusal_make(coh_refusal_reason reason);
coh_refusal coh_refusal_bytes(coh_refusal_reason reason, int tier, uint64_t given_bytes,
                              uint64_t needed_bytes);
/* Begins a refusal with LENGTH: `count` of at most `count_most`. */
coh_refusal coh_refusal_length(coh_refusal_unit unit, uint64_t count, uint64_t count_most);

/* Add a change after those that are there; beyond COH_REFUSAL_CHANGES none. */
void coh_refusal_add(coh_refusal *refusal, coh_change_kind kind, uint64_t bytes);
void coh_refusal_raise(coh_refusal *refusal, int tier, uint64_t bytes);
void coh_refusal_lower(coh_refusal *refusal, int tier, uint64_t bytes);

/* Refuses a number of bytes beyond 64 bits. */
coh_status coh_refuse_size(void);

/* Copies what a caller's struct has, in printable texts. Returns 0 if its size is that of no
 * refusal. */
int coh_refusal_copy(const coh_refusal *refusal, coh_refusal *out);

/* Makes the last failure no refusal. */
void coh_refusal_clear(void);

#endif
