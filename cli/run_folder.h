/* run_folder.h - the folder that a run keeps its checkpoints in.
 *
 *     run-gpt2-nano-20250131-120000/
 *         lock           held (flock) while a run writes here
 *         data.tokens    the text as tokens, if it was not a token file already
 *         plan.json      what the run was planned to do
 *         step-100/      checkpoints: <kept> newest
 *
 * The list of checkpoints is read once, at open; later it is kept here, so that saving and pruning in
 * the middle of a run neither list folders nor allocate. */
#ifndef COH_CLI_RUN_FOLDER_H
#define COH_CLI_RUN_FOLDER_H

#include "cli/say.h"

enum { CLI_CHECKPOINTS_MOST = 4096 };

typedef struct cli_run_folder {
    char path[CLI_PATH_BYTES]; /* absolute; "": nothing is kept */
    int lock_descriptor;       /* -1: not open */
    int64_t keep_count;
    int step_count;
    uint64_t steps[CLI_CHECKPOINTS_MOST]; /* of the checkpoints here, rising */
} cli_run_folder;

/* "run-<model>-<date>-<time>" in the working folder, with a number behind it if that is taken. */
coh_status cli_run_folder_name(const char *model, char *out_path);

/* Makes the folder (and its parents) if need be, locks it, lists its checkpoints. `first_step`: the step
 * the run begins at; checkpoints of later steps are refused, since the run would write them again;
 * but where that is above 0, those that are not whole are renamed to step-<n>.broken, and that is said.
 * Fails: COH_ERR_ARGUMENT (in use, or holds later checkpoints), COH_ERR_IO. */
coh_status cli_run_folder_open(const char *path, int64_t keep_count, uint64_t first_step,
                               cli_run_folder *out_folder);
void cli_run_folder_close(cli_run_folder *folder); /* accepts one that is not open */

/* "<path>/step-<step>" into `out_path` of CLI_PATH_BYTES. */
coh_status cli_run_folder_step_path(const cli_run_folder *folder, uint64_t step, char *out_path);

/* Notes a new checkpoint and removes the oldest above keep_count. Allocates nothing. A checkpoint that
 * cannot be removed is said once and left alone. */
void cli_run_folder_saved(cli_run_folder *folder, uint64_t step);

#endif
