/* run.h - reads what a report is made of: a run's folder, or the trace of a plan.
 *
 *     run.json     facts: model, machine, command, predictions     report_facts
 *     steps.jsonl  one line per step                               report_row
 *     trace.bin    recorded steps, instruction by instruction      coh_trace
 *
 * A missing or damaged part is no failure: the report leaves out its sections and prints one
 * sentence about it. Numbers that are not known are NaN, texts "". */
#ifndef COH_REPORT_RUN_H
#define COH_REPORT_RUN_H

#include <jansson.h>
#include <stddef.h>

#include "cohobate/trace.h"

enum { REPORT_NOTES = 8, REPORT_NOTE_BYTES = 320 };

typedef struct report_facts {
    const char *model, *started, *version, *device, *cpu, *gpu, *dtype, *optimizer, *state;
    const char *profile, *plan_hash, *profile_hash, *limit;
    const json_t *fallbacks;             /* sentences; NULL: not known */
    const json_t *recipe;                /* the note of its checkpoints; NULL: not known */
    const json_t *disks;                 /* the folders of --disk; NULL: not known */
    const char *pattern, *wire, *reduce; /* "": of an earlier version */
    char *command;                       /* the arguments, joined */
    double seed, cores, memory_bytes, ranks, batch, micro_batch, sequence, tokens_per_step,
        parameters;
    double flops_per_step, peak_flops_per_s, predicted_step_s, predicted_in_memory_step_s, threads;
    double predicted_peak_bytes[COH_TIER_COUNT], budget_bytes[COH_TIER_COUNT];
    double least_link_bytes[COH_LANE_COUNT];
    int is_calibrated;                      /* -1: not known */
    double first_step, steps;               /* of the process: steps first_step + 1 .. steps */
    double endurance_bytes;                 /* that the drive may be written in its life */
    const char *ended_how, *ended_sentence; /* "finished", "early", "stopped", "failed"; "": it runs
                                             * or was killed */
    double ended_step;                      /* the last one that was done; NaN: not known */
} report_facts;

/* Are predictions by built-in constants, which are of no machine? `calibrated`: of predictions that
 * earlier runs calibrate, as that of the run's plan. */
int report_guesses(const report_facts *facts, int calibrated);

/* A line of steps.jsonl. */
typedef struct report_line {
    uint32_t step; /* counted from 1, as printed */
    int is_validation;
    double loss; /* of a validation: its loss */
    double norm, rate, seconds, tokens, windows, windows_total;
    double exposed_s[COH_LANE_COUNT], link_bytes[COH_LANE_COUNT]; /* 0: none */
    double peak_bytes[COH_TIER_COUNT];
    int is_skipped, is_slow;
    double throttled_s, store_retries; /* 0: none, or not known */
} report_line;

/* A step of steps.jsonl. */
typedef struct report_row {
    uint32_t step; /* counted from 1, as printed */
    float loss, norm, rate, seconds;
} report_row;

typedef struct report_validation {
    uint32_t step;
    float loss;
} report_validation;

typedef struct report_run {
    char *folder; /* as given; NULL: of a plan */
    json_t *json; /* run.json; facts point into it */
    report_facts facts;
    report_row *rows;
    size_t row_count, row_capacity;
    uint64_t line_count; /* of steps; a resumed run repeats some */
    report_validation *validations;
    size_t validation_count, validation_capacity;
    uint64_t skipped_count, bad_lines;
    double exposed_s[COH_LANE_COUNT], link_bytes[COH_LANE_COUNT]; /* sums over all lines */
    double peak_bytes[COH_TIER_COUNT];           /* the largest of the newest process's lines */
    const coh_trace *trace;                      /* NULL: there is none */
    coh_trace *own_trace;                        /* freed with the run */
    uint32_t lost_steps;                         /* of the trace */
    int is_trace_unreadable;                     /* 1: it exists, and is damaged */
    char notes[REPORT_NOTES][REPORT_NOTE_BYTES]; /* about missing parts */
    int note_count;
} report_run;

/* Reads a line, of `bytes` bytes. Returns 0 if it is none of a step or a validation. */
int report_line_read(const char *text, size_t bytes, report_line *out_line);

/* Reads a run's folder. Fails: COH_ERR_ARGUMENT: no such folder, or no run's; COH_ERR_CORRUPT:
 * run.json is malformed or of a newer version; COH_ERR_IO; COH_ERR_MEMORY. */
coh_status report_run_read(const char *folder, report_run *out_run);
/* Reads only its run.json. Fails: likewise. */
coh_status report_run_read_facts(const char *folder, report_run *out_run);
/* Fills a run from facts (the text of a run.json) and a plan's trace, which is borrowed. Fails:
 * COH_ERR_CORRUPT, COH_ERR_MEMORY. */
coh_status report_run_of_plan(const char *json, size_t bytes, const coh_trace *trace,
                              report_run *out_run);
/* Reads the step of a name that begins with "step-<n>", as those of checkpoints do. Returns what
 * follows the number ("": a checkpoint, ".partial": a save under way); NULL: it is no such name.
 * Steps are below 2^63, so a number of more than 18 digits is none. */
const char *report_step_of(const char *name, uint64_t *out_step);
/* Returns argument `index` of the run's command, 0 being the program; NULL: there is none. */
const char *report_run_argument(const report_run *run, size_t index);
/* Returns the name of the token file that the run made in its folder; NULL: none that it tells. */
const char *report_run_own_tokens(const report_run *run);
/* Returns sentence `index` about a slower way that the engine took; NULL: there are no more. */
const char *report_fallback(const report_run *run, size_t index);
void report_run_close(report_run *run); /* accepts a zeroed one */

/* Copies a text for a terminal or for JSON: control characters, and bytes that are not UTF-8,
 * become "?". A text that is too long is cut. */
void report_copy_printable(const char *text, char *out, size_t bytes);

/* Adds a sentence to the notes, printf-like; there is room for REPORT_NOTES. */
void report_note(report_run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
