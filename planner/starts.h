/* starts.h - where the search begins: sets of decisions, most promising first by what no schedule
 * of each can be faster than, and the set that needs the least of the device.
 *
 * A `pool` shares the work among threads (NULL: the caller alone); what comes out is the same. */
#ifndef COH_PLANNER_STARTS_H
#define COH_PLANNER_STARTS_H

#include "base/pool.h"
#include "planner/plan.h"

/* Ranges of a split parameter's rows, and slices of a product, when memory is scarce. */
enum { COH_ROW_PASSES_MOST = 1024, COH_SLICES_MOST = 1024 };

/* A set to begin with, and what no schedule of it can be faster than. */
typedef struct coh_start {
    coh_decisions decisions;
    uint64_t bound_ns;
} coh_start;

/* Chunks that stand somewhere between steps: of smaller ones there are more than a search can
 * place in seconds. */
enum { COH_STARTS_SURVIVORS = 8192 };

enum { COH_STARTS_CHOICES = 5, COH_STARTS_ROW_CHOICES = 3 };
enum { COH_STARTS_MOST = COH_STARTS_CHOICES * 2 * COH_STARTS_ROW_CHOICES };

/* How many of the first blocks to recompute: the choices that the options leave, fewest first, into
 * choices[COH_STARTS_CHOICES]. Returns how many there are. */
int coh_starts_choices(const coh_plan *plan, int32_t *choices);

/* The largest power of two of at most 1/128 of the budget, from 256 KiB to 256 MiB: about a hundred
 * chunks at once are enough for a choice of victims, and more lines cost planning time. Of a model
 * that is many times the budget more, up to 1/32; where the program would be too long (effort.h),
 * up to 1/16. Fails: as coh_effort_of. */
coh_status coh_starts_chunk(const coh_plan *plan, uint64_t *out_bytes);

/* The decisions that need the fewest device bytes, and in plan->smallest_device_bytes how many:
 * with these --chunk, --recompute and pins no schedule of ours is below. Fails: COH_ERR_MEMORY. */
coh_status coh_starts_smallest(coh_plan *plan, coh_pool *pool, coh_decisions *out_decisions);

/* Every way to recompute, with caches or not, that fits in so many slices; most promising first,
 * into starts[COH_STARTS_MOST]. Fails: COH_ERR_MEMORY. */
coh_status coh_starts_list(const coh_plan *plan, coh_pool *pool, int slices, coh_start *starts,
                           int *out_count);

/* What no set is known to be faster than: that of the most promising start, of whose updates none,
 * some or all may run in the host tier. Fails: COH_ERR_MEMORY. */
coh_status coh_starts_least_bound(const coh_plan *plan, coh_pool *pool, const coh_start *starts,
                                  int count, uint64_t *out_bound_ns);

#endif
