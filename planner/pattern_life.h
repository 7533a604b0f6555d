/* pattern_life.h - the members of coh_pattern (pattern.h) that all patterns share: a group's life
 * from INIT to SAVE, whole on every rank or kept in parts. */
#ifndef COH_PLANNER_PATTERN_LIFE_H
#define COH_PLANNER_PATTERN_LIFE_H

#include "planner/pattern.h"

int32_t coh_life_owner(const coh_layout *layout, uint32_t chunk, uint32_t count);
coh_status coh_life_gather(coh_lower_writer *w, coh_opcode opcode, int32_t group, uint32_t begin,
                           uint32_t end);
coh_status coh_life_prepare(coh_lower_writer *w, int32_t group, uint32_t begin, uint32_t end);
coh_contribution coh_life_contribute(coh_lower_writer *w, int32_t parameter, uint32_t begin,
                                     uint32_t end);
coh_status coh_life_finish(coh_lower_writer *w, int32_t group, uint32_t begin, uint32_t end);
coh_status coh_life_complete(coh_lower_writer *w, int32_t group, uint32_t begin, uint32_t end);
coh_status coh_life_update(coh_lower_writer *w, int32_t group, uint32_t chunk);
coh_status coh_life_drain(coh_lower_writer *w, int32_t group);
coh_status coh_life_visit(coh_lower_writer *w, coh_opcode opcode, int32_t group);
uint64_t coh_life_volume(const coh_layout *layout, int32_t group, coh_program_kind kind,
                         coh_link_level level);

#endif
