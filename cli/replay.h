/* replay.h - rebuilds a job from a plan file, without data or weights, for commands that analyse a
 * plan.
 *
 *     plan -o, train, Plan.write (Python) ──> plan.json, its note ──> replay ──> simulate, explain
 *
 * The note has the plan's model, batch and budget; the planner rebuilds and verifies the plan. */
#ifndef COH_CLI_REPLAY_H
#define COH_CLI_REPLAY_H

#include "cli/job.h"

/* Writes the note for plan files of -o and of a run's folder: model, geometry, budget, profile,
 * limit of disk writes. */
coh_status cli_replay_note(const cli_job *job, cli_line *out_note);

typedef struct cli_plan_note {
    int64_t batch, micro_batch, sequence, steps, threads;
    int32_t microbatch_count; /* per step */
    double clip;
    uint64_t device_bytes, disk_write_limit; /* disk_write_limit: per day; 0: none */
    char profile[CLI_PATH_BYTES];            /* as given; "": none */
} cli_plan_note;

/* Reads the note of the plan at `path`, opened as `file`. Fails: COH_ERR_CORRUPT: there is no note,
 * or it is not ours; COH_ERR_MEMORY. */
coh_status cli_replay_read_note(const char *path, const coh_plan_file *file,
                                cli_plan_note *out_note, coh_model *out_model);

/* A replayed job; its options and facts live as long as it does. */
typedef struct cli_replay {
    cli_options options;
    char profile[CLI_PATH_BYTES]; /* the plan's profile, as given */
    coh_plan_file file;
    cli_job job;
} cli_replay;

/* Replays the file options->operand, priced by --profile, or by the profile that it was made with.
 * Fails: COH_ERR_CORRUPT: it has no note, or is incomplete; COH_ERR_FULL: it needs more than the
 * profile, or --device-memory, --host-memory, provide; COH_ERR_ARGUMENT. After success the caller
 * closes it. */
coh_status cli_replay_open(const cli_options *options, cli_replay *out_replay);
void cli_replay_close(cli_replay *replay);

#endif
