/* screen.h - prints a plan on one screen: whether it fits, its speed and limit, where data is
 * stored and moves. At most 40 lines of 100 columns for any model; train prints a short form. On a
 * narrower terminal lines of prose have more lines; tables stay as wide as they are.
 *
 * The numbers are the library's (plan.h); this code only divides and formats them. */
#ifndef COH_CLI_SCREEN_H
#define COH_CLI_SCREEN_H

#include "cli/hints.h"
#include "cli/job.h"

enum { CLI_SCREEN_COLUMNS = 100, CLI_SCREEN_LINES = 40 };

/* Predicted times and amounts of a step and of the run. */
typedef struct cli_speed {
    /* tenth and ninetieth percentile, by the spread of figures */
    double step_s, step_fast_s, step_slow_s;
    double tokens_per_s, tokens_fast_per_s, tokens_slow_per_s;
    double gap;   /* step over the least of all decisions, less one */
    double run_s; /* remaining steps and the drain, without saves and validations */
    double run_fast_s, run_slow_s;
    uint64_t steps_left;
    double written_per_day; /* bytes written to the drive per day of training; 0: none */
    double endurance_bytes; /* of the profile's drive; 0: unknown */
    int asks_for_limit;     /* train takes such a run only with a --disk-write-limit */
} cli_speed;

cli_speed cli_speed_get(const cli_job *job);
cli_text cli_tokens_per_s(double rate);
/* Returns how many days of training the drive lasts; 0: unknown, or nothing is written. */
double cli_drive_days(const cli_speed *speed);

/* Returns the name or numbers of a plan's rank pattern, which live as long as the summary. */
const char *cli_rank_pattern(const coh_plan_summary *summary);

/* Returns the lane of links between ranks whose exchanges take longer than every bound of the plan,
 * since the bounds leave exchanges out; COH_LANE_COMPUTE if there is none. */
coh_lane cli_limiting_exchanges(const coh_plan_summary *summary);
/* Returns the name of that lane, or, without one, of the bound that binds. */
const char *cli_limit_name(const coh_plan_summary *summary);

/* Returns the ranks that compute on the cores of this process if they have more threads than there
 * are cores, and each was priced as if alone; else 0. */
int32_t cli_crowded_ranks(const cli_job *job);

/* Adds one line, "prices: ...": the profile behind the times, and how reliable it is. */
void cli_screen_prices(const cli_job *job, cli_line *line);
/* Adds "drive: ...": the bytes written in a step and a day, and how long the drive lasts; nothing
 * if nothing is written. */
void cli_screen_drive(const cli_options *options, const coh_plan_summary *summary,
                      const cli_speed *speed, cli_line *line);

/* Print the whole screen (fails: COH_ERR_MEMORY; may plan again: recompute.c), or at most 8
 * lines of it. `hints` (NULL: none) end the summary, above the tables; the last of them are left
 * out if there is no room for all. */
coh_status cli_screen(const cli_job *job, uint64_t in_memory_bytes, const cli_hints *hints,
                      cli_line *line);
void cli_screen_short(const cli_job *job, cli_line *line);
/* Adds lines, broken at `columns`; continuations are indented. */
void cli_screen_wrap(const char *text, int columns, cli_line *line);
/* The columns of a screen on standard output: 100, or fewer on a narrow terminal. */
int cli_screen_columns(void);

/* ---- recompute ---- */

typedef struct cli_recompute {
    double seconds; /* of a step's compute time; 0: no recompute */
    double of_forward, of_compute, of_step;
    int is_large;     /* of_forward is more than half */
    int is_asked_for; /* requested by --recompute or a pin */
    /* With this device memory and otherwise equal options, recompute is not large. 0: it is not
     * large now, it is requested, the GPU has too little memory to avoid it, or the step is too
     * long to plan again (20,000 lines). */
    uint64_t end_bytes;
    double end_of_forward; /* of that plan */
    int is_planned;        /* such a plan was made; else end_bytes keeps all on the device */
} cli_recompute;

/* Makes up to three plans if recompute is large and the job's plan was searched.
 * Fails: COH_ERR_MEMORY. */
coh_status cli_recompute_find(const cli_job *job, uint64_t in_memory_bytes,
                              cli_recompute *out_recompute);

/* "repeat: 97 % of the forward pass ..."; adds nothing if recompute is not large. */
void cli_recompute_add(const cli_recompute *recompute, cli_line *line);

/* ---- groups and JSON ---- */

/* Consecutive blocks, or operators outside of blocks, with equal placement. */
typedef struct cli_group {
    char first[96], last[96];        /* names of operators; "" for blocks */
    int32_t first_block, last_block; /* -1: no blocks */
    int32_t count;                   /* of blocks, or of operators outside */
    int32_t operator_count;
    uint64_t parameter_bytes;
    char pattern[COH_RANK_PATTERN_BYTES], parameters[20], states[20], activations[32];
} cli_group;

enum { CLI_GROUPS = 7, CLI_GROUPS_LEAST = 3 };
/* Groups them into at most `most` (CLI_GROUPS_LEAST to CLI_GROUPS). If there were more, groups of
 * blocks are merged regardless of where parameters and states are stored, and finally all remaining
 * ones. Fails: COH_ERR_ARGUMENT. */
coh_status cli_groups(const coh_plan *plan, int32_t most, cli_group out_groups[CLI_GROUPS],
                      int32_t *out_count);

/* Prints the plan as one JSON object (keys: docs/planning.md) to standard output. */
coh_status cli_plan_json(const cli_job *job, uint64_t in_memory_bytes);

#endif
