/* report.h - prints the progress and the totals of a run: a JSON line per step (--log), curves
 * for TensorBoard, the line of progress (progress.h), and at the end where time and bytes went.
 *
 * Everything after cli_report_open goes through fixed buffers and write(2): no allocation, no
 * stdio. */
#ifndef COH_CLI_REPORT_H
#define COH_CLI_REPORT_H

#include "cli/say.h"
#include "cli/tensorboard.h"

enum { CLI_REPORT_RECENT = 16 };

/* A file that gets a JSON line per step. */
typedef struct cli_step_log {
    int descriptor; /* -1: none */
    const char *name;
} cli_step_log;

/* --log, and steps.jsonl of the run folder. */
enum { CLI_STEP_LOGS = 2 };

/* Facts of a step that its result does not hold. */
typedef struct cli_step_health {
    int is_slow;                 /* as coh_trace_step.is_slow */
    coh_trace_counters counters; /* UINT64_MAX: not known */
} cli_step_health;

/* A step, for the line of progress. `passed_s` is the time since the step before, without saves and
 * validations. */
typedef struct cli_recent_step {
    double passed_s, step_s, exposed_s[COH_LANE_COUNT];
} cli_recent_step;

typedef struct cli_report {
    cli_step_log logs[CLI_STEP_LOGS];
    cli_tensorboard board;
    int terminal; /* 1: one line, rewritten */
    int live_shown;
    double shown;                   /* when the line was printed last; NaN: not yet */
    uint64_t first_step, last_step; /* of this process: steps first_step + 1 .. last_step */
    int64_t tokens_per_step, learned_tokens;   /* the second: of the last step */
    int32_t rank_count;                        /* of this process: each has arenas */
    double started, last_moment;               /* monotonic seconds */
    cli_recent_step recent[CLI_REPORT_RECENT]; /* by step_count modulo CLI_REPORT_RECENT */
    double predicted_step_s;
    /* totals of this process */
    uint64_t step_count, skipped_count, twice_count; /* twice: coh_step_result.ran_twice */
    double exposed_s[COH_LANE_COUNT], step_s;
    uint64_t link_bytes[COH_LANE_COUNT], frozen_bytes[COH_LANE_COUNT], peak_bytes[COH_TIER_COUNT];
    double last_loss, last_validation; /* NaN: none */
    /* the step and the windows of last_validation */
    uint64_t validation_step, validation_windows, validation_windows_total;
} cli_report;

/* Opens `log_path` and steps.jsonl in `folder` for appending (NULL: no log; "": no folder). A run
 * from step 0 on writes a new steps.jsonl. In a resumed one, a line that a killed run left
 * unfinished is removed. Fails: COH_ERR_IO. */
coh_status cli_report_open(const char *log_path, const char *folder, uint64_t first_step,
                           uint64_t last_step, int64_t tokens_per_step, double predicted_step_s,
                           cli_report *out_report);
/* Also writes events for TensorBoard in `folder`. Fails: COH_ERR_IO. */
coh_status cli_report_open_board(cli_report *report, const char *folder);
/* Makes a report without logs, for cli_report_close. */
void cli_report_clear(cli_report *report);
void cli_report_close(cli_report *report);
/* After close: removes the event file of a run that ended before its first step. */
void cli_report_undo(const cli_report *report);

/* Starts the clock of the run; call it before the first submit. */
void cli_report_start(cli_report *report);

/* Reports a finished step: `result`, its learning rate and its health. If a log cannot be written
 * (a full disk), prints that once and stops writing it; the run continues. */
void cli_report_step(cli_report *report, const coh_step_result *result, double learning_rate,
                     const cli_step_health *health);

/* Reports a validation loss after `step` steps, over `windows` of the `total` windows of the
 * text. */
void cli_report_validation(cli_report *report, uint64_t step, double loss, uint64_t windows,
                           uint64_t total);

/* Excludes the time since the last step from step times; for saves and validations. */
void cli_report_skip_time(cli_report *report);

/* Ends the live line, so that a message can follow. */
void cli_report_break(cli_report *report);

/* Peak resident bytes of this process (VmHWM); 0 if the system does not say. */
uint64_t cli_report_process_peak(void);

/* Adds a line about GPU memory in addition to the arena; nothing on the host device. */
void cli_report_gpu(const coh_engine_facts *facts, cli_line *line);

/* Takes the peaks of all programs that have run: a step's result has none of a drain or a save
 * after it. */
void cli_report_peaks(cli_report *report, const coh_engine *engine);

/* Add where time and bytes went: as lines of text, or as members of a JSON object. */
void cli_report_totals(const cli_report *report, const coh_plan_summary *summary,
                       const coh_engine_facts *facts, cli_line *line);
void cli_report_totals_json(const cli_report *report, const coh_plan_summary *summary,
                            const coh_engine_facts *facts, cli_line *line);

/* Adds every byte of the tiers by purpose and owner, as a member of a JSON object. */
void cli_report_ledger_json(const coh_engine *engine, cli_line *line);

#endif
