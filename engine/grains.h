/* grains.h - the grains of every chunk of trained parameters, looked up once. NORM and UPDATE pass
 * them to the kernels (kernels/optimizer.h). */
#ifndef COH_ENGINE_GRAINS_H
#define COH_ENGINE_GRAINS_H

#include "engine/parameter_groups.h"
#include "engine/segments.h"
#include "kernels/optimizer.h"

/* Finds the runs of trained parameters in bytes [object_offset, object_offset + bytes) of the WORK
 * or GRAD of group `group`; at most COH_GRAIN_RUNS_MOST. `rules` are indexed by the layout's
 * parameters; NULL: the default rules. Returns the number of runs. */
int32_t coh_grain_runs_of(const coh_layout *layout, int32_t group, uint64_t object_offset,
                          uint64_t bytes, const coh_parameter_rule *rules, coh_grain_run *out_runs);

typedef struct coh_grain_table {
    coh_chunk_grains
        *chunks; /* by chunk of the layout; empty except for WORK and GRAD, and their parts */
    coh_grain_run *runs;
} coh_grain_table;

/* The grains of a divided chunk are those of the part that `rank` updates, and their elements count
 * from the part's begin. `rules` as above; they are read before the call returns.
 * Fails: COH_ERR_MEMORY. */
coh_status coh_grain_table_init(const coh_layout *layout, int32_t rank,
                                const coh_parameter_rule *rules, coh_grain_table *out_table);
void coh_grain_table_fini(coh_grain_table *table); /* accepts a zeroed struct */

#endif
