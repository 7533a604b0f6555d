/* initial.h - the starting points of the search: sets of decisions in the order of their lower
 * bounds, and the set that needs the least device memory.
 *
 * A `pool` shares the work among threads (NULL: only the calling thread); the result is the
 * same. */
#ifndef COH_PLANNER_INITIAL_H
#define COH_PLANNER_INITIAL_H

#include "base/pool.h"
#include "planner/plan.h"

/* The most row ranges of a split parameter, and slices of a product, when memory is scarce. */
enum { COH_ROW_PASSES_MOST = 1024, COH_SLICES_MOST = 1024 };

/* A set to start from, and the lower bound of its step time. */
typedef struct coh_initial_candidate {
    coh_decisions decisions;
    uint64_t bound_ns;
    uint64_t effort; /* coh_effort_sum */
} coh_initial_candidate;

/* The most chunks that exist between steps: with smaller chunks there are more than a search can
 * place in seconds. */
enum { COH_INITIAL_SURVIVORS = 8192 };

/* With more compute instructions, or more chunks touched by them, a program is long: few ways are
 * listed, and none is bounded. */
enum { COH_LONG_INSTRUCTIONS = 16384, COH_LONG_TOUCHES = 400000 };

enum { COH_INITIAL_CHOICES = 5, COH_INITIAL_HOST_CHOICES = 5, COH_INITIAL_ROW_CHOICES = 3 };
enum { COH_INITIAL_RESIDENTS = 2 };
enum {
    COH_INITIAL_WAYS =
        (COH_INITIAL_CHOICES + 1) * 2 * COH_INITIAL_HOST_CHOICES * COH_INITIAL_RESIDENTS
};
enum { COH_INITIAL_MOST = COH_INITIAL_WAYS * COH_INITIAL_ROW_CHOICES };

/* Lists how many of the first blocks to recompute: the choices that the options leave, fewest
 * first, into choices[COH_INITIAL_CHOICES]. Returns the number of choices. */
int coh_initial_choices(const coh_plan *plan, int32_t *choices);

/* Chooses the chunk size: the largest power of two of at most 1/128 of the budget, from 256 KiB
 * to 256 MiB. About a hundred chunks at once are enough for a choice of victims, and more
 * instructions cost planning time. For a model many times the budget it is up to 1/32; if the
 * program would be too long (effort.h), up to 1/16. A chunk takes at most 1/4 of a host tier before
 * a drive. Fails: as coh_effort_of. */
coh_status coh_initial_chunk(const coh_plan *plan, uint64_t *out_bytes);

/* Finds the decisions that need the fewest device bytes, and sets plan->smallest_device_bytes to
 * that number: with these --chunk, --recompute and pins, none of our schedules needs less. Fails:
 * COH_ERR_MEMORY. */
coh_status coh_initial_smallest(coh_plan *plan, coh_pool *pool, coh_decisions *out_decisions);

/* Computes the lower bound of start->decisions. If it is `enough_ns` or more, the result may be any
 * such number. Fails: COH_ERR_MEMORY. */
coh_status coh_initial_bound(const coh_plan *plan, uint64_t enough_ns,
                             coh_initial_candidate *start);

/* Lists every way to recompute, with and without caches, with a host tier with none, a quarter,
 * half or all of the updates there, and with a drive behind it with and without weights that stay
 * on the device, that fits in `slices` slices, into starts[COH_INITIAL_MOST]; first those near the
 * linear programme's solution, whose bound they all have. Fails: COH_ERR_MEMORY. */
coh_status coh_initial_list(const coh_plan *plan, coh_pool *pool, int slices,
                            coh_initial_candidate *starts, int *out_count);

/* Computes the bound of each start and sorts them, the least first. Takes about as long as building
 * all of their schedules; those of a long program stay as listed, and so do the last ones if the
 * first take long. From `enough_ns` on, bounds are as those of coh_initial_bound, so the order is
 * arbitrary; those without host updates, which a short step tries in any case, are exact. Fails:
 * COH_ERR_MEMORY. */
coh_status coh_initial_rank(const coh_plan *plan, coh_pool *pool, coh_initial_candidate *starts,
                            int count, uint64_t enough_ns);

/* Computes the least bound of the starts, or the first below `enough_ns` in their order. 0: there
 * are none. Fails: COH_ERR_MEMORY. */
coh_status coh_initial_least(const coh_plan *plan, coh_pool *pool, coh_initial_candidate *starts,
                             int count, uint64_t enough_ns, uint64_t *out_ns);

#endif
