/* report.h - what a run says while it runs and at its end: the JSON line a step (--log), the live
 * line of a terminal or plain lines of a pipe, and where time and bytes went.
 *
 * Everything after cli_report_open goes through fixed buffers and write(2): no
 * allocation, no stdio. */
#ifndef COH_CLI_REPORT_H
#define COH_CLI_REPORT_H

#include "cli/say.h"

enum { CLI_REPORT_RECENT = 16, CLI_REPORT_PLAIN_LINES = 25 };

typedef struct cli_report {
    int log_descriptor; /* -1: no --log */
    int terminal;       /* 1: one line, rewritten */
    int live_shown;
    uint64_t first_step, last_step; /* of this process: steps first_step + 1 .. last_step */
    uint64_t plain_every;
    int64_t tokens_per_step;
    double started, last_moment;      /* monotonic seconds */
    double recent[CLI_REPORT_RECENT]; /* moments of the last results, by step */
    double predicted_step_s;
    /* totals of this process */
    uint64_t step_count, skipped_count;
    double exposed_s[COH_PLAN_LANES], step_s;
    uint64_t link_bytes[COH_PLAN_LANES], frozen_bytes[COH_PLAN_LANES], peak_bytes[COH_PLAN_TIERS];
    double last_loss, last_validation; /* NaN: none */
    /* of last_validation */
    uint64_t validation_step, validation_windows, validation_windows_total;
} cli_report;

/* Opens `log_path` for appending (NULL: no log). Fails: COH_ERR_IO. */
coh_status cli_report_open(const char *log_path, uint64_t first_step, uint64_t last_step,
                           int64_t tokens_per_step, double predicted_step_s,
                           cli_report *out_report);
void cli_report_close(cli_report *report);

/* The clock of the run starts: call before the first submit. */
void cli_report_start(cli_report *report);

/* One step is done: `result`, with the rate it ran at. A log that cannot be written (a full disk)
 * is said once and ends; the run goes on. */
void cli_report_step(cli_report *report, const coh_step_result *result, double learning_rate);

/* A validation loss after `step` steps over `windows` of the `total` windows of the text. */
void cli_report_validation(cli_report *report, uint64_t step, double loss, uint64_t windows,
                           uint64_t total);

/* The time since the last step was not a step's: saves and validations. */
void cli_report_skip_time(cli_report *report);

/* Leaves the live line, so that a sentence can follow. */
void cli_report_break(cli_report *report);

/* Peak resident bytes of this process (VmHWM); 0 if the system does not say. */
uint64_t cli_report_process_peak(void);

/* What a GPU's memory holds beside the arena, as a line of text; nothing on the host device. */
void cli_report_gpu(const coh_engine_facts *facts, cli_line *line);

/* Where time and bytes went, as lines of text / as members of a JSON object. */
void cli_report_totals(const cli_report *report, const coh_plan_summary *summary,
                       const coh_engine_facts *facts, cli_line *line);
void cli_report_totals_json(const cli_report *report, const coh_plan_summary *summary,
                            const coh_engine_facts *facts, cli_line *line);

/* Every byte of the tiers by purpose and owner, as a member of a JSON object. */
void cli_report_ledger_json(const coh_engine *engine, cli_line *line);

#endif
