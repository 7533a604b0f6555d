/* screen.h - a plan on one screen: does it fit, how fast, what limits it, what stands and moves
 * where. At most 40 lines of 100 columns, whatever the model; train prints it in short.
 *
 * Numbers are the library's (plan.h); here they are only divided and laid out. */
#ifndef COH_CLI_SCREEN_H
#define COH_CLI_SCREEN_H

#include "cli/job.h"

enum { CLI_SCREEN_COLUMNS = 100, CLI_SCREEN_LINES = 40 };

/* What a step and the run come to, by the prediction. */
typedef struct cli_speed {
    /* tenth and ninetieth percentile, by the spread of figures */
    double step_s, step_fast_s, step_slow_s;
    double tokens_per_s, tokens_fast_per_s, tokens_slow_per_s;
    double gap;   /* step over its lower bound, less one */
    double run_s; /* steps that are left, and the drain: no saves, no validation */
    double run_fast_s, run_slow_s;
    uint64_t steps_left;
    double written_per_day; /* bytes written to the drive in a day of training; 0: none */
    double endurance_bytes; /* of the profile's drive; 0: not known */
} cli_speed;

cli_speed cli_speed_get(const cli_job *job);

/* Which profile the times are by, and what they are worth: one line, "prices: ...". */
void cli_screen_prices(const cli_job *job, cli_line *line);

/* The whole screen (fails: COH_ERR_MEMORY; may plan again: cli/recompute.h) / at most 8 lines of
 * it. */
coh_status cli_screen(const cli_job *job, uint64_t in_memory_bytes, cli_line *line);
void cli_screen_short(const cli_job *job, cli_line *line);

/* Blocks, and operators outside of blocks, that follow one another and stand alike. */
typedef struct cli_group {
    char first[96], last[96];        /* names of operators; "" for blocks */
    int32_t first_block, last_block; /* -1: no blocks */
    int32_t count;                   /* of blocks, or of operators outside */
    int32_t operator_count;
    uint64_t parameter_bytes;
    char pattern[16], parameters[20], states[20], activations[24];
} cli_group;

enum { CLI_GROUPS = 8 };
/* At most CLI_GROUPS: where there would be more, blocks are put together wherever their parameters
 * and states stand, and in the end all that is left. Fails: COH_ERR_ARGUMENT. */
coh_status cli_groups(const coh_plan *plan, cli_group out_groups[CLI_GROUPS], int32_t *out_count);

/* The plan as one JSON object (docs/planning.md has the keys), to standard output. */
coh_status cli_plan_json(const cli_job *job, uint64_t in_memory_bytes);
/* One that does not fit, as an object: what is short, by how much, and what to do, as the sentence
 * of the failure says it, which stays as it is. */
void cli_refusal_json(const cli_options *options);

#endif
