/* run_folder.h - manages the folder in which a run keeps its checkpoints.
 *
 *     run-gpt2-nano-20250131-120000/
 *         lock           held (flock) while a run writes here
 *         data.tokens    the text as tokens, if it was not a token file already
 *         .kept-tokens   only of a run that never began: which tokens it left (kept_tokens.h)
 *         tokenizer/     a copy of the tokenizer, if it is not "bytes"
 *         plan.json      what the run was planned to do
 *         run.json       what runs, on which machine (record.h)
 *         steps.jsonl    a line per step, as --log writes (report.h)
 *         trace.bin      the last steps and slow ones, instruction by instruction
 *         step-100/      checkpoints: <kept> newest, and with --keep-best the best
 *         best           a link to the best
 *
 * Disk space for future checkpoints is reserved before the first step (cohobate/run.h) and released
 * one checkpoint at a time, as saves need it. The file of frozen parameters, which the checkpoints
 * share by links, is counted once.
 *
 * The list of checkpoints is read once, when the folder is opened, and then kept in memory. Saving
 * and pruning during a run neither list folders nor allocate. */
#ifndef COH_CLI_RUN_FOLDER_H
#define COH_CLI_RUN_FOLDER_H

#include "cli/options.h"

enum { CLI_CHECKPOINTS_MOST = 4096 };

typedef struct cli_run_folder {
    char path[CLI_PATH_BYTES];  /* absolute; "": no checkpoints are kept */
    char given[CLI_PATH_BYTES]; /* the path as given */
    int is_made;                /* the folder was created */
    int is_new;                 /* the folder had no lock of a run: it was no run's */
    int has_empty_lock;         /* it had an empty one */
    coh_run_lock lock;
    coh_space_hold room;       /* for checkpoints not yet written */
    uint64_t checkpoint_bytes; /* of one, in `room` */
    uint64_t frozen_bytes;     /* in addition, of the first save: the later ones share them */
    int piece_is_out;          /* one checkpoint's space is released and no save has used it */
    int64_t keep_count;
    uint64_t first_step; /* at which the run begins */
    int step_count;
    uint64_t steps[CLI_CHECKPOINTS_MOST]; /* of the existing checkpoints, ascending */
    int keeps_best; /* the checkpoint of best_step is not removed; set at open by a link `best` */
    uint64_t best_step;   /* UINT64_MAX: none yet */
    uint64_t linked_step; /* the step that the link `best` names, kept, too; UINT64_MAX: none */
    double best_loss;     /* of validation; INFINITY: none to compare with */
    int keeps_tokens;     /* cli_run_folder_undo leaves the tokens, and the lock: it is a run's */
    int is_looked_at;     /* cli_run_folder_look: nothing in it is changed */
} cli_run_folder;

/* Writes "run-<model>-<date>-<time>", in the working folder, with a number appended if that
 * exists. */
coh_status cli_run_folder_name(const char *model, char *out_path);

/* Makes the folder if it does not exist (its parent must), locks it, lists its checkpoints. Without
 * --save and --resume it must not exist: another number is then taken.
 * `first_step`: the step at which the run begins; later checkpoints are refused, since the run
 * would write them again. If first_step is above 0, or no checkpoint is whole, damaged later ones
 * are renamed to step-<n>.broken (.broken.2 and so on), with a note. Notes tell of other files in a
 * folder that was no run's, and of the record of a run without a checkpoint, which this one
 * replaces. Fails:
 * COH_ERR_ARGUMENT (in use, has later checkpoints, or files of these names, or of unfinished ones,
 * that no run wrote, or a config.json of a Hugging Face model), COH_ERR_IO, COH_ERR_CORRUPT (a
 * later checkpoint has a newer version, or a file that would be replaced or written through is a
 * link). A failure leaves no lock in a folder that had none. */
coh_status cli_run_folder_open(const char *path, const cli_options *options, int64_t keep_count,
                               uint64_t first_step, cli_run_folder *out_folder);
/* Reads what a later cli_run_folder_open would find in `path`, for cli_run_folder_room_count and
 * _room_bytes: makes, locks and removes nothing. The folder may not exist. */
void cli_run_folder_look(const char *path, int64_t keep_count, cli_run_folder *out_folder);
/* Computes the path that cli_run_folder_open would use: absolute, links resolved in the part that
 * exists, into `out_path` of CLI_PATH_BYTES, truncated if it is longer. */
void cli_run_folder_absolute(const char *path, char *out_path);
/* Initialises the struct as not open: no checkpoints are kept. */
void cli_run_folder_clear(cli_run_folder *folder);
void cli_run_folder_close(cli_run_folder *folder); /* accepts one that is not open */
/* Call it instead of close, also after a failed open: removes the folder if a run refused before
 * its first step had created it. Existing files, and files added by others, stay; with keeps_tokens
 * the tokens, too. All files of the run in the folder must be closed. */
void cli_run_folder_undo(cli_run_folder *folder);

/* The number of checkpoints to reserve space for if `save_count` saves (>= 1) follow. At most
 * keep_count + 1 checkpoints exist at once (the new one next to the old ones), plus the best one if
 * it is kept; or as many as there will ever be: one of a run that saves only at its end, or where
 * it is stopped. Existing checkpoints are subtracted. */
uint64_t cli_run_folder_room_count(const cli_run_folder *folder, uint64_t save_count);

/* Returns the bytes of `count` checkpoints to come (UINT64_MAX: too many to count), each of
 * `checkpoint_bytes`, of which `frozen_bytes` are the file of frozen parameters. These count once;
 * not at all if the run goes on from checkpoint `loaded` (NULL: from none) and that has the file;
 * and for each checkpoint where the file system has no links. */
uint64_t cli_run_folder_room_bytes(cli_run_folder *folder, uint64_t count,
                                   uint64_t checkpoint_bytes, uint64_t frozen_bytes,
                                   const coh_checkpoint_facts *loaded);
/* Adds what each checkpoint takes, after a comma, and what the first one takes in addition. */
void cli_run_folder_add_bytes(const cli_run_folder *folder, int saves_once, cli_line *line);
/* Reserves that many bytes. Fails: COH_ERR_FULL, COH_ERR_IO. */
coh_status cli_run_folder_hold(cli_run_folder *folder, uint64_t bytes);

/* Checks that a save can open its files; without it each save of a run would fail. Fails:
 * COH_ERR_FULL with the limit of open files. */
coh_status cli_run_folder_check_descriptors(const cli_run_folder *folder);

/* Call it before a save: releases one checkpoint's space, unless that of a failed save is still
 * released. */
void cli_run_folder_make_room(cli_run_folder *folder);

/* Writes "<path>/step-<step>" to `out_path` of CLI_PATH_BYTES. */
coh_status cli_run_folder_step_path(const cli_run_folder *folder, uint64_t step, char *out_path);

/* With keeps_best: finds the best existing checkpoint by the notes that are of validation text
 * `validation_hash`, and repairs the link. If there is none, the checkpoint of the link is kept
 * until there is a better one. */
void cli_run_folder_find_best(cli_run_folder *folder, uint64_t validation_hash);

/* With keeps_best: makes checkpoint `step` the best if its validation loss `loss` (NaN: not known)
 * is the lowest. */
void cli_run_folder_judge(cli_run_folder *folder, uint64_t step, double loss);
/* Removes the oldest checkpoints above keep_count, except the best. Reports one that cannot be
 * removed once and leaves it. */
void cli_run_folder_prune(cli_run_folder *folder);

/* Notes a new checkpoint of validation loss `loss` (NaN: not known) and removes the oldest above
 * keep_count, except the best. Allocates nothing. Reports a checkpoint that cannot be removed once
 * and leaves it. */
void cli_run_folder_saved(cli_run_folder *folder, uint64_t step, double loss);

#endif
