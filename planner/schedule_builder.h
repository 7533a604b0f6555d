/* schedule_builder.h - programs under construction, shared by schedule.c and schedule_bound.c. */
#ifndef COH_PLANNER_SCHEDULE_BUILDER_H
#define COH_PLANNER_SCHEDULE_BUILDER_H

#include "planner/assemble.h"
#include "planner/homes.h"
#include "planner/lower.h"
#include "planner/pins.h"
#include "planner/plan.h"
#include "planner/residency.h"

/* One program under construction. */
typedef struct coh_draft {
    coh_lowered lowered;
    uint32_t *operand_begin; /* of the lowered program as a sequence */
    coh_residency device;
    /* the device's moves and the host lane's instructions: the steps of the host level */
    coh_outer_list outer;
    coh_residency host;
    int is_wanted;
} coh_draft;

typedef struct coh_builder {
    const coh_graph *graph;
    const coh_plan_options *options;
    const coh_profile *profile;
    const coh_decisions *decisions;
    coh_layout *layout;
    coh_object_map map;
    coh_draft drafts[COH_PROGRAM_KIND_COUNT];
    coh_draft brief; /* a body of few micro-batches, if the body has more: see brief_body */
    size_t resident_capacity;
    coh_pin_map pins;
    coh_block_set recompute; /* of the decisions, modified by pins */
    coh_homes device_homes, host_homes;
    uint64_t hold_bytes; /* pinned to the device since the host tier is too small for them */
    uint64_t survivor_bytes;
    uint8_t *held_nearer;         /* host level: by chunk, in the device's boundary map */
    uint8_t *keeps_far;           /* see coh_level */
    int32_t written_microbatches; /* instructions are written for the first this many; 0: for all */
    /* if short_bytes > 0: the tier that is too small; that many bytes would do */
    coh_tier short_of;
    uint64_t short_bytes;
} coh_builder;

/* Returns the micro-batches for which instructions are written. */
static inline int32_t coh_builder_microbatches(const coh_builder *b)
{
    return b->written_microbatches > 0 ? b->written_microbatches : b->options->microbatch_count;
}

/* ---- schedule.c ---- */

/* Lowers one kind of program, of so many micro-batches, into *d. Needs the layout. */
coh_status coh_builder_lower(coh_builder *b, coh_program_kind kind, int32_t microbatches,
                             coh_draft *d);
/* Translates the pins to this layout's chunks; does nothing if everything stays in memory. */
coh_status coh_builder_take_pins(coh_builder *b);
/* The device as a level of residency.h. */
coh_level coh_builder_device_level(const coh_builder *b);
/* The lowered program as steps of the device level. */
coh_sequence coh_draft_sequence(const coh_draft *d);
/* Releases all but the layout; accepts a builder whose layout was never built. */
void coh_builder_fini(coh_builder *b);

#endif
