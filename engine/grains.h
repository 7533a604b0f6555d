/* grains.h - the grains of every chunk of trained parameters, looked up once: what NORM and UPDATE
 * give to the kernels (kernels/optimizer.h). */
#ifndef COH_ENGINE_GRAINS_H
#define COH_ENGINE_GRAINS_H

#include "engine/parameter_groups.h"
#include "engine/segments.h"
#include "kernels/optimizer.h"

/* Bytes [object_offset, object_offset + bytes) of the WORK or GRAD of group `group`: the runs of
 * what is trained there, of which there are at most COH_GRAIN_RUNS_MOST. `rules` are by parameter
 * of the layout; NULL: the default ones. Returns how many. */
int32_t coh_grain_runs_of(const coh_layout *layout, int32_t group, uint64_t object_offset,
                          uint64_t bytes, const coh_parameter_rule *rules, coh_grain_run *out_runs);

typedef struct coh_grain_table {
    coh_chunk_grains *chunks; /* by chunk of the layout; empty but for those of WORK and GRAD */
    coh_grain_run *runs;
} coh_grain_table;

/* `rules` as above; read before the call returns. Fails: COH_ERR_MEMORY. */
coh_status coh_grain_table_init(const coh_layout *layout, const coh_parameter_rule *rules,
                                coh_grain_table *out_table);
void coh_grain_table_fini(coh_grain_table *table); /* accepts a zeroed struct */

#endif
