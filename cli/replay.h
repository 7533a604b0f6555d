/* replay.h - a plan file as a job again, without data or weights: for what asks of a plan what it
 * comes to.
 *
 *     plan -o, train ──> plan.json with a note ──> replay ──> simulate, explain
 *
 * The note says which model, batch and budget the plan is of; the planner rebuilds and verifies. */
#ifndef COH_CLI_REPLAY_H
#define COH_CLI_REPLAY_H

#include "cli/job.h"

/* The note that -o and a run's folder have: model, geometry, budget, profile, the limit
 * of what is written to the drive. */
coh_status cli_replay_note(const cli_job *job, cli_line *out_note);

typedef struct cli_plan_note {
    int64_t batch, micro_batch, sequence, steps, threads;
    int32_t microbatch_count; /* of a step */
    double clip;
    uint64_t device_bytes, disk_write_limit; /* a day; 0: none */
    char profile[CLI_PATH_BYTES];            /* as it was given; "": none was */
} cli_plan_note;

/* The note of options->operand, which `file` is read from.
 * Fails: COH_ERR_CORRUPT: there is none, or it is not of ours; COH_ERR_MEMORY. */
coh_status cli_replay_read_note(const cli_options *options, const coh_plan_file *file,
                                cli_plan_note *out_note, coh_model *out_model);

/* A replayed job; options and facts live as long as it. */
typedef struct cli_replay {
    cli_options options;
    char profile[CLI_PATH_BYTES]; /* the plan's own, as it was given */
    coh_plan_file file;
    cli_job job;
} cli_replay;

/* options->operand is the file. --profile prices it; without, the profile that it was made with.
 * Fails: COH_ERR_CORRUPT: it has no note, or is not whole; COH_ERR_FULL: it needs more than the
 * profile, or --device-memory, --host-memory, have; COH_ERR_ARGUMENT. The caller closes it where
 * it succeeds. */
coh_status cli_replay_open(const cli_options *options, cli_replay *out_replay);
void cli_replay_close(cli_replay *replay);

#endif
