/* run_folder.h - the folder that a run keeps its checkpoints in.
 *
 *     run-gpt2-nano-20250131-120000/
 *         lock           held (flock) while a run writes here
 *         data.tokens    the text as tokens, if it was not a token file already
 *         plan.json      what the run was planned to do
 *         step-100/      checkpoints: <kept> newest, and with --keep-best the best
 *         best           a link to the best
 *
 * Room for the checkpoints to come is held from before the first step (cohobate/run.h) and given
 * back a checkpoint at a time, as saves need it.
 *
 * The list of checkpoints is read once, at open; later it is kept here, so that saving and pruning
 * in the middle of a run neither list folders nor allocate. */
#ifndef COH_CLI_RUN_FOLDER_H
#define COH_CLI_RUN_FOLDER_H

#include "cli/say.h"

enum { CLI_CHECKPOINTS_MOST = 4096 };

typedef struct cli_run_folder {
    char path[CLI_PATH_BYTES];  /* absolute; "": nothing is kept */
    char given[CLI_PATH_BYTES]; /* the path as it was given */
    int is_made;                /* the folder was not there */
    coh_run_lock lock;
    coh_space_hold room;       /* for checkpoints not yet written */
    uint64_t checkpoint_bytes; /* of one, in `room` */
    int piece_is_out;          /* one checkpoint's room was given back, and no save has used it */
    int64_t keep_count;
    uint64_t first_step; /* that the run begins at */
    int step_count;
    uint64_t steps[CLI_CHECKPOINTS_MOST]; /* of the checkpoints here, rising */
    int keeps_best; /* the checkpoint of best_step is not removed; set at open by a link `best` */
    uint64_t best_step;   /* UINT64_MAX: none yet */
    uint64_t linked_step; /* that the link `best` names, not removed either; UINT64_MAX: none */
    double best_loss;     /* of validation; INFINITY: none to compare with */
} cli_run_folder;

/* "run-<model>-<date>-<time>" in the working folder, with a number behind it if that is taken. */
coh_status cli_run_folder_name(const char *model, char *out_path);

/* Makes the folder if it is not there (its parent must be), locks it, lists its checkpoints.
 * `first_step`: the step the run begins at; checkpoints of later steps are refused, since the run
 * would write them again; but where that is above 0, those that are damaged are renamed to
 * step-<n>.broken, and that is said. `data`: what the run reads, NULL if that is not known.
 * Fails: COH_ERR_ARGUMENT (in use, holds later checkpoints, or files of those names that no run
 * wrote, or a config.json: a Hugging Face model's), COH_ERR_IO, COH_ERR_CORRUPT (a later one is of
 * a newer version). */
coh_status cli_run_folder_open(const char *path, const char *data, int64_t keep_count,
                               uint64_t first_step, cli_run_folder *out_folder);
/* What cli_run_folder_open will make of a path: absolute, without links as far as it is there, into
 * `out_path` of CLI_PATH_BYTES, cut where it is longer. */
void cli_run_folder_absolute(const char *path, char *out_path);
/* Makes it one that is not open: nothing is kept. */
void cli_run_folder_clear(cli_run_folder *folder);
void cli_run_folder_close(cli_run_folder *folder); /* accepts one that is not open */
/* In place of closing it, also where opening it failed: a run that was refused before its first
 * step leaves no folder that it made. What was there before stays, and what others put there since.
 * The files that the run had open there are closed by now. */
void cli_run_folder_undo(cli_run_folder *folder);

/* Checkpoints for which room must still be found when `save_count` saves (>= 1) are to come:
 * keep_count + 1 are there at once, the new one next to the old, and the best where that is kept;
 * or as many as ever will be, at least two; less those that are here. */
uint64_t cli_run_folder_room_count(const cli_run_folder *folder, uint64_t save_count);

/* Holds room for `count` checkpoints of `checkpoint_bytes`. Fails: COH_ERR_FULL, COH_ERR_IO. */
coh_status cli_run_folder_hold(cli_run_folder *folder, uint64_t count, uint64_t checkpoint_bytes);

/* Before a save: one checkpoint's room is given back, unless that of a failed save still is. */
void cli_run_folder_make_room(cli_run_folder *folder);

/* "<path>/step-<step>" into `out_path` of CLI_PATH_BYTES. */
coh_status cli_run_folder_step_path(const cli_run_folder *folder, uint64_t step, char *out_path);

/* With keeps_best: finds the best of the checkpoints that are here by their notes, where these are
 * of validation text `validation_hash`, and mends the link. Where none is, the checkpoint that the
 * link names is kept until there is a better one. */
void cli_run_folder_find_best(cli_run_folder *folder, uint64_t validation_hash);

/* Notes a new checkpoint of validation loss `loss` (NaN: not known) and removes the oldest above
 * keep_count, except the best. Allocates nothing. Reports a checkpoint that cannot be removed once
 * and leaves it. */
void cli_run_folder_saved(cli_run_folder *folder, uint64_t step, double loss);

#endif
