/* pins.h - decisions made by hand: which operators and blocks they name, and their effect on the
 * chunks of a layout.
 *
 *   pins ──> by operator (one of parameters, one of activations) ──> by chunk ──> residency.h
 *
 * The weights of a parameter, and their rank pattern, take the pin of the operators that use it, an
 * activation takes the pin of its producer. */
#ifndef COH_PLANNER_PINS_H
#define COH_PLANNER_PINS_H

#include "planner/block_set.h"
#include "planner/layout.h"
#include "planner/residency.h"

/* Members are NULL if no pin applies. */
typedef struct coh_pin_map {
    uint8_t *on_device, *on_host;        /* by chunk: pinned there */
    uint8_t *device_rules, *host_rules;  /* by chunk: enum coh_chunk_rule */
    int32_t *of_parameters, *of_outputs; /* by operator: index of its pin, or -1 */
    int32_t *of_patterns;
    const coh_pin *pins;
} coh_pin_map;

/* Checks that every pin matches something, that no two conflict, and that `options` has the tiers
 * they ask for. Fails: COH_ERR_ARGUMENT with the pin, COH_ERR_MEMORY. */
coh_status coh_pins_check(const coh_graph *graph, const coh_plan_options *options);

/* Makes the map. `resident`: the weights of the first `resident` blocks are pinned to the device,
 * unless another pin applies. Fails: as coh_pins_check. */
coh_status coh_pin_map_make(const coh_graph *graph, const coh_plan_options *options,
                            int32_t resident, const coh_layout *layout,
                            const coh_object_map *objects, coh_pin_map *out_map);
void coh_pin_map_fini(coh_pin_map *map); /* accepts a zeroed struct */

/* Adds the blocks that are pinned as recomputed, and removes the blocks of which something is
 * pinned as kept or moved. */
void coh_pin_map_blocks(const coh_pin_map *map, const coh_graph *graph, coh_block_set *blocks);

/* As coh_pin_map_blocks, for the pins of `options`. Fails: as coh_pins_check. */
coh_status coh_pins_blocks(const coh_graph *graph, const coh_plan_options *options,
                           coh_block_set *blocks);

/* Finds the pin that keeps every plan from fitting the device: adds the pins one after another and
 * computes each time the bound below which no schedule exists. Fails: COH_ERR_FULL with the first
 * pin that exceeds the budget; COH_OK if none does, or if the step does not fit without pins
 * either. */
coh_status coh_pins_blame(const coh_graph *graph, const coh_plan_options *options,
                          const coh_decisions *smallest);

/* Parses the pins of a file. `text` ends with a NUL beyond `bytes`; free *out_pins with
 * coh_pins_free. Fails: COH_ERR_CORRUPT, COH_ERR_MEMORY. */
coh_status coh_pins_parse(const char *text, size_t bytes, coh_pin **out_pins, int32_t *out_count);

/* Returns 1 if a pin gives a rank pattern. */
int coh_pins_have_patterns(const coh_plan_options *options);
/* Finds by graph parameter the pin that gives its rank pattern; -1: none. Fails: as
 * coh_pins_check. */
coh_status coh_pins_patterns(const coh_graph *graph, const coh_plan_options *options,
                             int32_t *out_of_parameter);

/* Returns 1 if some pin moves something off the device: a step in memory does not satisfy it. */
int coh_pins_need_far(const coh_plan_options *options);

#endif
