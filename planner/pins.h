/* pins.h - decisions made by hand: which operators and blocks they name, and what follows for the
 * chunks of a layout.
 *
 *   pins ──> by operator (one of parameters, one of activations) ──> by chunk ──> residency.h
 *
 * A parameter's weights take the pin of the operators that use it, an activation that of its
 * producer. */
#ifndef COH_PLANNER_PINS_H
#define COH_PLANNER_PINS_H

#include "planner/block_set.h"
#include "planner/layout.h"
#include "planner/residency.h"

/* NULL where no pin says so. */
typedef struct coh_pin_map {
    uint8_t *on_device, *on_host;        /* by chunk: pinned there */
    uint8_t *device_rules, *host_rules;  /* by chunk: enum coh_chunk_rule */
    int32_t *of_parameters, *of_outputs; /* by operator: index of its pin, or -1 */
    const coh_pin *pins;
} coh_pin_map;

/* Names all pins something, and does none contradict another or ask for a tier that `options` has
 * not? Fails: COH_ERR_ARGUMENT with the pin, COH_ERR_MEMORY. */
coh_status coh_pins_check(const coh_graph *graph, const coh_plan_options *options);

/* `resident`: weights of the first so many blocks are pinned to the device, where no pin of their
 * own says otherwise. Fails: as coh_pins_check. */
coh_status coh_pin_map_make(const coh_graph *graph, const coh_plan_options *options,
                            int32_t resident, const coh_layout *layout,
                            const coh_object_map *objects, coh_pin_map *out_map);
void coh_pin_map_fini(coh_pin_map *map); /* accepts a zeroed struct */

/* Adds the blocks that are to be recomputed, takes away those of which something is to be kept or
 * moved. */
void coh_pin_map_blocks(const coh_pin_map *map, const coh_graph *graph, coh_block_set *blocks);

/* The same for the pins of `options`. Fails: as coh_pins_check. */
coh_status coh_pins_blocks(const coh_graph *graph, const coh_plan_options *options,
                           coh_block_set *blocks);

/* Is a pin the reason that no plan fits the device? Adds them one after the other, each time at the
 * bound below which no schedule exists. Fails: COH_ERR_FULL with the first that goes beyond the
 * budget; COH_OK when none does, or the step does not fit without pins either. */
coh_status coh_pins_blame(const coh_graph *graph, const coh_plan_options *options,
                          const coh_decisions *smallest);

/* The pins of a file's text. `text` ends with a NUL beyond `bytes`; coh_pins_free is due. Fails:
 * COH_ERR_CORRUPT, COH_ERR_MEMORY. */
coh_status coh_pins_parse(const char *text, size_t bytes, coh_pin **out_pins, int32_t *out_count);

/* Do some ask that something leaves the device? Then a step in memory is not what was asked for. */
int coh_pins_need_far(const coh_plan_options *options);

#endif
