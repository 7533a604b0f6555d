/* plan_file.h - the parsed content of a plan.json, and the plan rebuilt from it. Shared by reading
 * and writing, rebuilding, and the fuzz target. */
#ifndef COH_PLANNER_PLAN_FILE_H
#define COH_PLANNER_PLAN_FILE_H

#include "planner/plan.h"

/* Raise it with every change of the planner that may write another program for the same
 * decisions, or other words for the same program. */
#define COH_PLAN_BUILDER_VERSION 16

/* One operator of the file; the texts are owned if the file was read. */
typedef struct coh_plan_words {
    const char *name, *activations, *parameters, *states, *pattern;
} coh_plan_words;

typedef struct coh_plan_text {
    coh_plan_options options;
    coh_decisions decisions;
    uint64_t numeric_fingerprint, program_hash;
    uint64_t peak_bytes[COH_TIER_COUNT]; /* predicted, like the next three */
    uint64_t step_ns, bound_ns, smallest_device_bytes;
    uint32_t instruction_count;
    uint64_t slots_hash, profile_hash;
    uint32_t depths[COH_LANE_COUNT]; /* instructions in flight on each link; 0: not given */
    char note[COH_PLAN_NOTE_BYTES];
    char profile_name[64];
    int32_t device_kind; /* coh_device_kind */
    int32_t atomics;     /* 1: some kind may add by atomics on a GPU */
    int32_t builder;
    int32_t names_kernels; /* 1: options.kernel_path is that of the file; older files have none */
    coh_pin *pins;         /* what options.pins points to */
    coh_optimizer_choice *optimizer_choices; /* likewise */
    coh_plan_words *operators;
    uint32_t operator_count;
    const coh_plan *plan; /* that is written; NULL after reading */
} coh_plan_text;

/* Parses the text; `text` ends with a NUL beyond `bytes`. On success call coh_plan_text_fini later.
 * Fails: COH_ERR_CORRUPT, COH_ERR_MEMORY. */
coh_status coh_plan_text_parse(const char *text, size_t bytes, coh_plan_text *out_file);
void coh_plan_text_fini(coh_plan_text *file);

/* Adds plan.json to `text`, with a note. Fails: as coh_plan_write_noted, but COH_ERR_IO. */
coh_status coh_plan_to_text(const coh_plan *plan, const char *note, coh_text *text);

/* Adds one slot to the hash over all slots, which starts from 0. */
uint64_t coh_plan_fold_slot(uint64_t hash, uint64_t chunk, uint64_t tier, uint64_t offset);

/* Rebuilds and verifies the plan of a file, and compares it with each member of the file; `path`
 * names the file in messages. Fails: as coh_plan_read; *out_plan may then be an unfinished plan,
 * which the caller owns, or NULL. */
coh_status coh_plan_rebuild(const coh_graph *graph, const coh_plan_options *options,
                            const char *path, const coh_plan_text *file, coh_plan **out_plan);

#endif
