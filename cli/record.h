/* record.h - writes run.json (what runs) and trace.bin (the last steps instruction by
 * instruction, and slow ones) in a run's folder. report.h writes steps.jsonl.
 *
 *     trace.bin   | tables | --record slots: the last steps | 8 slots: slow steps |
 *
 * A step that takes more than 1.5 times the median of the steps before goes to a slow slot, in
 * place of the least slow one there. A step is in one slot only. If a file cannot be written, a
 * warning is printed once and the run continues. Nothing here allocates after cli_record_open. */
#ifndef COH_CLI_RECORD_H
#define COH_CLI_RECORD_H

#include "cli/job.h"
#include "cli/report.h"

enum { CLI_SLOW_STEPS = 8, CLI_MEDIAN_STEPS = 63, CLI_MEDIAN_LEAST = 8 };

typedef struct cli_record {
    coh_trace_file *file;                 /* NULL: no trace is written (any more) */
    uint32_t kept;                        /* slots of the ring */
    uint64_t put_count;                   /* steps put into the ring */
    uint64_t slow_ns[CLI_SLOW_STEPS];     /* by slow slot; 0: empty */
    uint64_t recent_ns[CLI_MEDIAN_STEPS]; /* by step_count modulo CLI_MEDIAN_STEPS */
    uint64_t step_count;
} cli_record;

/* An upper bound of the bytes that run.json, trace.bin and steps.jsonl take in a folder. Fails: as
 * coh_plan_trace. */
coh_status cli_record_bytes(const cli_job *job, uint64_t *out_bytes);

/* Writes the text of a run.json. `facts` NULL: of a plan. Fails: COH_ERR_IO. */
coh_status cli_record_write_run(const cli_job *job, const coh_trace *trace,
                                const coh_engine_facts *facts, int descriptor);
/* Writes run.json and begins trace.bin in `folder`; --record none leaves trace.bin out. Fails:
 * COH_ERR_MEMORY; a file that cannot be written is a warning. */
coh_status cli_record_open(const cli_job *job, const coh_engine *engine,
                           const coh_engine_facts *facts, const char *folder,
                           cli_record *out_record);
/* Adds a finished step, and reads its health. */
void cli_record_step(cli_record *record, coh_engine *engine, const coh_step_result *result,
                     cli_step_health *out_health);
/* Adds to run.json how the run ended: "finished", "early" (--stop-after-worse), "stopped" or
 * "failed", after `step` steps, and its last sentence ("": none). A run.json that cannot be written
 * stays as it is. Keeps the error message. */
void cli_record_end(const char *folder, const char *how, uint64_t step, const char *sentence);
void cli_record_close(cli_record *record); /* accepts a zeroed one */

#endif
