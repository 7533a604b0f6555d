/* plan.h (internal) - the parts of a coh_plan. Built by planner/plan.c, read by engine/. */
#ifndef COH_PLANNER_PLAN_H
#define COH_PLANNER_PLAN_H

#include "cohobate/plan.h"
#include "cohobate/refusal.h"
#include "planner/block_set.h"
#include "planner/forecast.h"
#include "planner/graph.h"
#include "planner/pattern_choice.h"
#include "planner/price.h"
#include "planner/profile.h"
#include "planner/program.h"
#include "planner/simulate.h"

/* Which operators of kept blocks run again by themselves; planner/light.h. */
enum coh_light {
    COH_LIGHT_NONE,
    COH_LIGHT_ELEMENTS, /* norms and products of elements */
    COH_LIGHT_CHEAP, /* also those that compute little for a byte, next to their block: attention */
    COH_LIGHT_COUNT
};

/* With a host tier and a drive: the fetches that run as early as their places allow, as if all took
 * a quarter of the step, while the others run in the order of need (move_order.h). With one of
 * these tiers all do, whatever is decided. */
enum coh_early {
    COH_EARLY_NONE,
    COH_EARLY_READS, /* those into the host tier */
    COH_EARLY_LOADS, /* those into the device */
    COH_EARLY_HALF,  /* likewise, as if they took half of the step */
    COH_EARLY_COUNT
};

/* The placement decisions that a schedule is built from; the search varies them. */
typedef struct coh_decisions {
    uint64_t device_bytes; /* capacity the schedule was built for */
    uint64_t chunk_bytes;
    /* 1: no far tier, everything stays on the device; capacities are not used */
    int32_t in_memory;
    int32_t cache;      /* 1: operators outside recomputed blocks have their optional cache */
    int32_t row_passes; /* most ranges that a row-split parameter is taken in */
    /* likewise for kinds with column_slices, which are taken whole if they fit */
    int32_t slices;
    coh_pattern_choice patterns; /* of the parameter groups and the operators that use them */
    int32_t tie_break;           /* enum coh_tie_break, planner/residency.h */
    int32_t patient;             /* enum coh_patient, planner/residency.h */
    int32_t boundary;            /* enum coh_boundary, planner/residency.h */
    int32_t horizon; /* steps for which memory should have been unused before a fetch into it */
    /* With a host tier: the host lane updates the parameters of this many last blocks, and of what
     * follows the blocks, in place of the device. More than there are blocks: all. */
    int32_t host_updates;
    int32_t resident; /* the weights of this many first blocks stay on the device */
    /* With a host tier and a drive: this many 64ths of the host tier are a window through which the
     * rest is streamed; chunks in the other part never reach the drive. 0: it is all window. */
    int32_t host_window;
    int32_t lead; /* calls by which a GATHER comes early (lower_ahead.h) */
    /* Sixteenths of the host lane's updates that run after the others, in the order of next use
     * (lower_late.h). Deferred updates are in that order anyway. */
    int32_t late;
    int32_t light;           /* enum coh_light */
    int32_t early;           /* enum coh_early */
    coh_block_set recompute; /* these blocks are recomputed, the others kept or moved */
} coh_decisions;

/* Without a host tier the host lane updates nothing. */
static inline int32_t coh_decided_host_updates(const coh_decisions *decisions, int has_host)
{
    return has_host ? decisions->host_updates : 0;
}

/* Lower bounds of a settled body; planner/bounds.h. */
typedef struct coh_bounds {
    uint64_t ns[COH_PLAN_BOUND_COUNT];
    uint64_t most_ns; /* the largest */
    coh_plan_bound binding, runner_up;
    uint64_t least_bytes[COH_LANE_COUNT]; /* over each link */
} coh_bounds;

/* The decisions of a solution of the linear programme, rounded to whole blocks. */
typedef struct coh_least_set {
    int32_t recompute, host_updates;
    int32_t late; /* estimated: how late updates on the host lane run best */
} coh_least_set;

/* The least step over all decisions; planner/least_step.h. */
typedef struct coh_least_step {
    uint64_t ns; /* 0: no bound is known (a forward-only plan, no far tier) */
    /* the same if light operators may run again by themselves (light.h): the search turns to them
     * last, and no plan is below it */
    uint64_t light_ns;
    coh_least_set plain; /* no operator is light */
    /* By kind of light operators. `recompute` is -1: no solution is known; always for
     * COH_LIGHT_NONE. */
    coh_least_set light[COH_LIGHT_COUNT];
} coh_least_step;

/* How the body treats an operator. */
typedef struct coh_operator_note {
    char pattern[32];      /* "slice x4" */
    int32_t part_count;    /* row ranges of one call */
    uint8_t is_recomputed; /* in backward */
    uint8_t is_moved;      /* its outputs cross a link */
} coh_operator_note;

/* How the body treats an object of the layout. */
typedef struct coh_object_note {
    uint32_t resident_count[COH_TIER_COUNT]; /* of its chunks, between steps */
    uint8_t update_lane;                     /* of a work object; COH_LANE_COUNT: none */
} coh_object_note;

/* Returns the micro-batches of each replica. */
static inline int32_t coh_replica_microbatches(const coh_plan_options *options)
{
    return options->microbatch_count / coh_fold_replicas(&options->replicas);
}

/* Makes the mesh of the plan's ranks: an axis data0, data1, ... for each factor of options->ranks.
 * Fails: COH_ERR_ARGUMENT if pair_ranks, node_ranks and the factors do not nest. */
coh_status coh_plan_mesh(const coh_plan_options *options, coh_mesh *out_mesh);

/* Returns the options of a rank without its world. Lower bounds are of programs that are lowered
 * with them, on the layout of the rank: an exchange can only add bytes and time. */
static inline coh_plan_options coh_alone(const coh_plan_options *options)
{
    coh_plan_options alone = *options;
    alone.ranks = (coh_fold_shape){ 0 };
    alone.pair_ranks = alone.node_ranks = 0;
    return alone;
}

/* Returns 1 if a tier beyond the device may hold something. */
static inline int coh_plan_has_far(const coh_plan_options *options)
{
    return options->host_memory_bytes > 0 || options->disk_bytes > 0;
}

/* Returns 1 if what does not fit is planned again with the spare disk. */
static inline int coh_plan_has_spare(const coh_plan_options *options)
{
    return options->disk_bytes == 0 && options->spare_disk_bytes > 0 &&
           (options->profile == NULL || coh_profile_has_drive(options->profile));
}

/* Returns the options with at most `most` micro-batches for each replica. */
static inline coh_plan_options coh_few_microbatches(const coh_plan_options *options, int32_t most)
{
    coh_plan_options few = *options;
    if (coh_replica_microbatches(options) > most)
        few.microbatch_count = most * coh_fold_replicas(&options->replicas);
    return few;
}

/* Returns 1 if updates run in backward before the norm of their step is known, and a body can be
 * taken back (program.h: keeps_old). */
static inline int coh_plan_speculates(const coh_plan_options *options)
{
    return options->speculates && options->deferred_update && options->disk_bytes > 0;
}

/* Returns 1 if updates wait for the norm of their step, until the next body or a drain. */
static inline int coh_plan_defers(const coh_plan_options *options)
{
    return options->deferred_update && !coh_plan_speculates(options);
}

/* Returns 1 for a search that a user waits for: it improves what it finds first. */
static inline int coh_search_is_whole(coh_search search)
{
    return search == COH_SEARCH_USUAL || search == COH_SEARCH_THOROUGH;
}

/* How much of a plan is made. */
typedef enum coh_plan_depth {
    COH_PLAN_WHOLE,  /* all programs verified and simulated */
    COH_PLAN_PRICED, /* all programs built, the step simulated: for a comparison */
    COH_PLAN_FITS    /* all programs built; it can only be destroyed */
} coh_plan_depth;

struct coh_plan {
    const coh_graph *graph;
    coh_plan_options options;
    coh_pin *pins;                           /* what options.pins points to */
    coh_optimizer_choice *optimizer_choices; /* likewise */
    coh_operator_note *operator_notes; /* by operator and by object of the layout; NULL until */
    coh_object_note *object_notes;     /* coh_plan_finish */
    coh_profile profile;
    coh_pricer pricer; /* of graph and profile */
    coh_decisions decisions;
    coh_layout layout;
    coh_program programs[COH_PROGRAM_KIND_COUNT]; /* empty: no such program */
    coh_simulation simulations[COH_PROGRAM_KIND_COUNT];
    coh_forecast forecast; /* of the body */
    coh_bounds bounds;     /* of the decisions, within the options' limits */
    coh_least_step least;  /* of all decisions */
    uint64_t numeric_fingerprint;
    uint64_t program_hash;
    uint64_t smallest_device_bytes;
    int32_t smallest_is_proven;
    uint64_t survivor_bytes; /* of objects that exist between steps, except pinned ones */
    /* During the search. counts_all: programs other than the body also decide whether a set fits.
     * least_far_bytes: if no set fits for lack of the outermost tier, the least that would do
     * there, else 0. */
    int32_t counts_all;
    int32_t folded; /* micro-batches that sets are built with (fold.h); 0: all */
    int32_t never_folds;
    uint64_t chunk_bytes; /* of streamed sets: of the options, or of a further search; 0: any */
    coh_plan_depth depth; /* with FITS the search ends with the first set that fits */
    uint64_t least_far_bytes;
    coh_refusal far_refusal; /* of the schedule that needs these */
    /* If no set fits because of options.wear_bytes: the fewest bytes that a step wrote, else 0. */
    uint64_t least_worn_bytes;
    uint64_t search_effort; /* so far: coh_effort_sum of all that was built */
    uint64_t step_ns;       /* of the decisions, as the search has priced them */
    uint64_t rival_ns;      /* the step of the other sweep order's plan; 0: not known */
};

/* Returns 1 if nobody froze a parameter of the plan's layout and still no step changes it. */
int coh_plan_leaves_unused(const coh_plan *plan, const coh_parameter_layout *parameter);

#endif
