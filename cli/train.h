/* train.h - the state of a run, shared by cmd_train.c (start and end) and train_loop.c (the steps).
 *
 *     submit 1 | submit 2 | wait 1 | submit 3 | wait 2 | ... | wait n | save | submit n+1 ...
 *
 * At most two steps are in flight, so the transfers of one overlap the end of the other; at a save,
 * a validation or a stop none is. */
#ifndef COH_CLI_TRAIN_H
#define COH_CLI_TRAIN_H

#include "cli/data.h"
#include "cli/disks.h"
#include "cli/job.h"
#include "cli/progress.h"
#include "cli/ranks.h"
#include "cli/record.h"
#include "cli/report.h"
#include "cli/run_folder.h"
#include "cli/score.h"
#include "cli/validation.h"

enum {
    CLI_BATCHES = 3,       /* two in flight, and the one being waited for */
    CLI_SKIPPED_MOST = 10, /* consecutive steps without a finite number */
    CLI_SCAN_BYTES = 512   /* of coh_engine_scan's sentence, with room to spare */
};

/* What tells that a file was changed. */
typedef struct cli_file_mark {
    int is_there;
    uint64_t bytes, inode;
    int64_t seconds, nanoseconds; /* of its modification */
} cli_file_mark;

typedef struct cli_run {
    const cli_options *options;
    cli_job job;
    cli_run_folder folder;
    cli_data data, validation;
    cli_disks disks;
    cli_ranks *ranks;
    coh_engine *engine; /* rank 0's */
    coh_engine_facts facts;
    cli_report report;
    cli_record record;
    cli_line note;     /* stored in every checkpoint of this run */
    size_t note_bytes; /* of it without validation results, which are added at each save */
    cli_score score;   /* of the validation text */
    cli_scoring scoring;
    cli_validations validations;
    cli_batch batches[CLI_BATCHES];       /* by step modulo CLI_BATCHES */
    int64_t counted[CLI_BATCHES];         /* number of counted targets in each */
    uint64_t done_steps, submitted_steps; /* counted from the start of the run */
    uint64_t saved_step;                  /* UINT64_MAX: none in this folder yet */
    uint64_t saving_step; /* of a save that continues during the steps; UINT64_MAX: none */
    double saving_loss;   /* of validation at that step; NaN: not known */
    coh_calibration_class classes[COH_CALIBRATION_CLASSES_MOST]; /* of this run's lines */
    uint32_t class_count;
    int skipped_in_row;
    char (*scan_sentences)[CLI_SCAN_BYTES]; /* by rank */
    cli_file_mark data_mark;                /* of the data when they were opened */
    int data_is_other;                      /* they were changed since: said once */
    int data_is_text;                       /* not ids that were made before */
    int tokens_are_new; /* the data was text, and became a token file of the run folder */
    int is_preparing;   /* the engines are being created, and a terminal has a line that says so */
    int has_begun;      /* reached the first step; an earlier failure leaves no folder behind */
    int is_stop_asked;  /* by a signal to any rank: a step's result has it */
    int stopped;        /* on request, after `done_steps` steps */
    int ended;          /* by --stop-after-worse, after `done_steps` steps */
    /* not in the engine: reading data, a kind of the user, or too many steps without numbers */
    int failed_outside;
} cli_run;

/* The settings that turn the text of a run into ids. Points into the job. */
cli_data_source cli_train_data_source(const cli_job *job);

/* Sets the recipe's steps and schedule from --epochs, if given, and prints their origin:
 *
 *     steps = windows of the data x epochs / sequences of a step, rounded up
 *
 * A resumed run counts from where its data, or its batch, began, and its schedule stays.
 *
 * `data` is open and holds at least one window: train tokenizes text first. From then on the run is
 * the same as with --steps. Fails: COH_ERR_ARGUMENT (flags that contradict the schedule, more steps
 * than a run may have). */
coh_status cli_epochs_take(cli_job *job, const cli_data *data);

/* As cli_epochs_take; opens --data only for counting. Fails: COH_ERR_ARGUMENT, also if there is no
 * data or it is text; as cli_data_open does. */
coh_status cli_epochs_take_named(cli_job *job);

/* Opens the run's training and validation data: run_data.c. */
coh_status cli_train_open_data(cli_run *run);

/* Warns once if the data file was changed, replaced or removed since it was opened. */
void cli_train_look_at_data(cli_run *run);

/* Adds the lines about the data at the start of a run: its length, and the share read. */
void cli_train_describe_data(const cli_run *run, cli_line *line);
/* Adds to the line of the end ", 0.41 % of the data read". */
void cli_train_add_share(const cli_run *run, cli_line *line);
/* Adds 'data_tokens', 'data_learned' (of them), 'data_sequences', and 'data_passes': how often they
 * have been read. */
void cli_train_add_share_json(const cli_run *run, cli_line *line);

/* For a run that fails before its first step, although its text is tokenized: sets
 * folder.keeps_tokens if that took a while, and prints how to train on the tokens. */
void cli_train_keep_data(cli_run *run);

/* For a run that ends before its first step: removes the token files that it made in the run
 * folder, which may have been there before, unless they are kept. The data must be closed. */
void cli_train_undo_data(cli_run *run);

/* Sets the paths for data and validation in *recipe, as the note of the run in folder `folder`
 * (absolute) will have them; before the data is opened. Fails: as examining the data does. */
coh_status cli_train_name_data(const cli_run *run, const char *folder, cli_recipe *recipe);

/* Runs steps until the last one, --stop-after-worse or a signal; saves and validates during the run
 * and at the end. Allocates nothing. A failed save during the run is a warning; at the end or at a
 * stop it is a failure. Fails: as the engine does; COH_ERR_NUMBER; as reading the data does. The
 * newest checkpoint stays intact; cli_train_failed says when the error text names it. After a
 * failure that is not the engine's, a run of one process saves its last step first. */
coh_status cli_train_loop(cli_run *run);

/* ---- the end: train_rest.c ---- */

/* Adds where the run is saved, its best checkpoint, why it ended early, and the hash. */
void cli_train_add_saved(const cli_run *run, uint64_t hash, cli_line *line);
void cli_train_add_saved_json(const cli_run *run, uint64_t hash, cli_line *line);
/* Ends a resumed run whose job is done: cleans its folder, prints the result. Fails: as opening the
 * folder does. */
coh_status cli_train_end_done(cli_run *run);

/* ---- the last sentence of a run that did not end: go_on.c ---- */

/* Fails with COH_ERR_STOPPED and the command that continues. */
coh_status cli_train_stopped(const cli_run *run);
/* Puts that command into the message of a second signal, once the run has its folder. Once in a
 * process. */
void cli_train_say_at_once(const cli_run *run);

/* Adds to the error text of a failed run which steps are lost, which checkpoint remains and how to
 * go on from it; only for failures of a drive, a device or memory and damaged files, which another
 * try may not meet, and those outside the engine, in a run that keeps checkpoints. Ranks of a
 * launcher print the first failure instead. Call it on rank 0. Returns `status`. */
coh_status cli_train_failed(const cli_run *run, coh_status status);

#endif
