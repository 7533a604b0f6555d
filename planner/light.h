/* light.h - operators that run again in backward although their block is kept: those that cost
 * little next to the bytes of their outputs. Norms and products of elements always do; attention
 * over few tokens does next to its block.
 *
 *     forward    x -> norm -> y -> linear -> z
 *     kept       x, y               z       y is as large as x
 *     light      x                  z       backward of the linear reads y: norm runs again just
 *                                           before it
 *
 * An operator is light if it computes few operations for each byte that it writes (enum coh_light:
 * how few), and everything that it reads is held for backward anyway or is the output of a light
 * operator. */
#ifndef COH_PLANNER_LIGHT_H
#define COH_PLANNER_LIGHT_H

#include "planner/layout.h"

/* Finds the light operators of all blocks without pins on their activations, and fills
 * map->again_at. `level`: enum coh_light. Needs the map of a layout. Fails: COH_ERR_MEMORY, and as
 * coh_pins_blocks. */
coh_status coh_light_find(const coh_graph *graph, const coh_plan_options *options, int level,
                          coh_object_map *map);

#endif
