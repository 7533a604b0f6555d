/* Runs the steps of training. The one idea: at most two steps are in flight, and saves, validations
 * and stops happen at quiet points, when none is. Next: train.h for the drawing, engine/ for a
 * step. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/launch.h"
#include "cli/stop.h"
#include "cli/train.h"

/* Training names a wait for an earlier save from here on. */
#define SAVE_WAIT_NAMED_S 1.0

static coh_step_input input_of(const cli_run *run, uint64_t step)
{
    const cli_recipe *recipe = &run->job.recipe;
    int64_t places = recipe->batch * recipe->sequence, counted = run->counted[step % CLI_BATCHES];
    const cli_batch *batch = &run->batches[step % CLI_BATCHES];
    coh_step_input input = { .struct_bytes = sizeof(input),
                             .step = step,
                             .seed = recipe->seed,
                             .learning_rate = (float)cli_recipe_rate(recipe, step),
                             .clip = (float)recipe->clip,
                             .inputs = { batch->tokens, batch->targets, batch->positions },
                             .loss_factor = 1.0f };
    /* A step whose tokens are all masked has loss 0 and changes no weight. */
    if (counted == 0)
        input.learning_rate = 0;
    else if (counted < places)
        input.loss_factor = (float)((double)places / (double)counted);
    return input;
}

/* ---- work of all ranks ---- */

/* A step, of which each rank trains its share of the sequences. */
typedef struct step_work {
    coh_step_input input;
    int64_t rank_ids;                  /* of a rank's sequences */
    uint64_t applied_count;            /* of scan */
    char (*sentences)[CLI_SCAN_BYTES]; /* of scan, by rank */
    coh_step_result result;            /* of await: of the run's own engine */
    const coh_engine *own_engine;      /* of await */
} step_work;

static step_work work_of(const cli_run *run, uint64_t step)
{
    return (step_work){ .input = input_of(run, step),
                        .rank_ids = cli_job_rank_batch(&run->job) * run->job.recipe.sequence,
                        .result = { .struct_bytes = sizeof(coh_step_result) },
                        .own_engine = run->engine };
}

static coh_step_input input_of_rank(const step_work *work, int32_t rank)
{
    coh_step_input input = work->input;
    for (int i = 0; i < 3 && input.inputs[i] != NULL; i++) /* of cli_batch */
        input.inputs[i] = (const int32_t *)input.inputs[i] + rank * work->rank_ids;
    return input;
}

static coh_status submit(void *context, coh_engine *engine, int32_t rank)
{
    const coh_step_input input = input_of_rank(context, rank);
    return coh_engine_submit(engine, &input);
}

static coh_status await(void *context, coh_engine *engine, int32_t rank)
{
    coh_step_result other = { .struct_bytes = sizeof(other) };
    step_work *work = context;
    (void)rank;
    return coh_engine_wait(engine, engine == work->own_engine ? &work->result : &other);
}

static coh_status scan(void *context, coh_engine *engine, int32_t rank)
{
    const step_work *work = context;
    const coh_step_input input = input_of_rank(work, rank);
    return coh_engine_scan(engine, &input, work->applied_count, work->sentences[rank]);
}

/* Notes whether `status` is a failure that is not the engine's, after which the last step can still
 * be saved. Not between processes: a file that one of them cannot read leaves the others in a step,
 * so a save would not be collective. Returns `status`. */
static coh_status outside_engine(cli_run *run, coh_status status)
{
    run->failed_outside = status != COH_OK && run->options->launch == NULL;
    return status;
}

static coh_status submit_next(cli_run *run)
{
    const cli_recipe *recipe = &run->job.recipe;
    uint64_t step = run->submitted_steps;
    const cli_batch *batch = &run->batches[step % CLI_BATCHES];
    const coh_status filled =
        cli_data_fill(&run->data, recipe->seed, cli_recipe_window(recipe, step), recipe->batch,
                      recipe->sequence, batch);
    CLI_TRY(outside_engine(run, filled));
    run->counted[step % CLI_BATCHES] =
        cli_data_counted(batch->targets, recipe->batch * recipe->sequence);
    step_work work = work_of(run, step);
    CLI_TRY(cli_ranks_run(run->ranks, submit, &work));
    run->submitted_steps++;
    return COH_OK;
}

/* ---- quiet points ---- */

/* Called between the micro-batches of a validation, which may take minutes. */
static coh_status check_stop(void *context, const int32_t *targets, int64_t count)
{
    (void)context;
    (void)targets;
    (void)count;
    return cli_stop_check("while the run was validated");
}

/* A validation may take minutes, too. On a terminal its line comes below that of the steps. */
static void show_validation(void *context, uint64_t done, uint64_t total, int64_t counted,
                            double loss)
{
    cli_run *run = context;
    cli_report_break(&run->report);
    cli_scoring_show(&run->scoring, cli_seconds_now(), done, total, counted, loss);
}

/* One micro-batch of a validation that all ranks take part in. */
typedef struct evaluation {
    const coh_engine *own_engine;
    const coh_step_input *input;
    double loss; /* of the own engine */
} evaluation;

static coh_status evaluate_one(void *context, coh_engine *engine, int32_t rank)
{
    double other;
    evaluation *work = context;
    (void)rank;
    return coh_engine_evaluate(engine, work->input,
                               engine == work->own_engine ? &work->loss : &other);
}

static coh_status evaluate_together(void *context, const coh_step_input *input, double *out_loss)
{
    const cli_run *run = context;
    evaluation work = { .own_engine = run->engine, .input = input };
    CLI_TRY(cli_ranks_run(run->ranks, evaluate_one, &work));
    *out_loss = work.loss;
    return COH_OK;
}

/* Returns 1 if no rank can evaluate alone, since each has a part of the weights. */
static int validates_together(const cli_run *run)
{
    return run->job.summary.rank_parts.work > 1;
}

/* Computes the loss of the validation text over all windows, or over --validation-windows of them.
 * A stop interrupts it, unless all ranks take part: they would have to learn of it. */
static coh_status validate(cli_run *run, int is_of_all)
{
    cli_score_result result;
    const uint64_t some = run->validations.some_windows, total = run->score.total;
    run->score.after = validates_together(run) ? NULL : check_stop;
    run->score.evaluate = validates_together(run) ? evaluate_together : NULL;
    run->score.passed = show_validation;
    run->score.context = run;
    is_of_all = is_of_all || some == 0;
    cli_scoring_begin("validation", &run->scoring);
    const coh_status status =
        cli_score_run(&run->score, run->engine, is_of_all ? total : some, &result);
    cli_scoring_end(&run->scoring);
    if (status == COH_ERR_STOPPED) {
        run->stopped = 1; /* also at the last step: its validation is still to be made */
        cli_report_break(&run->report);
        cli_note("step %" PRIu64 "  no validation loss: stopped on request%s", run->done_steps,
                 run->folder.path[0] ? "; the resumed run takes it first" : "");
        return COH_OK;
    }
    CLI_TRY(outside_engine(run, status)); /* after a failure of the engine, it refuses to save */
    if (result.counted == 0) {
        cli_note("warning: nothing counts in the %s for validation: no loss is taken",
                 cli_count(result.window_count, "window").at);
        return COH_OK;
    }
    cli_validations_take(&run->validations, run->done_steps, result.loss, result.window_count,
                         is_of_all);
    cli_report_validation(&run->report, run->done_steps, result.loss, result.window_count, total);
    return COH_OK;
}

/* At a stop, a failure or the last step unsaved work would be lost; only before may a save fail. */
static int save_matters(const cli_run *run)
{
    return run->stopped || run->ended || run->failed_outside ||
           run->done_steps == run->job.recipe.steps;
}

/* A failed save leaves nothing behind and the older checkpoint intact, so a full disk costs one
 * checkpoint, not the run. */
static void note_failed_save(cli_run *run, uint64_t step)
{
    cli_report_break(&run->report);
    if (run->folder.step_count > 0)
        cli_note("warning: nothing was saved after step %" PRIu64
                 ": %s; the run continues, step-%" PRIu64 " stays the last checkpoint",
                 step, coh_last_error(), run->folder.steps[run->folder.step_count - 1]);
    else
        cli_note("warning: nothing was saved after step %" PRIu64
                 ": %s; the run continues, and has no checkpoint yet",
                 step, coh_last_error());
}

/* Is it a failure that a later save may not meet? COH_ERR_ARGUMENT: something that the run did not
 * write has the checkpoint's name. */
static int is_of_one_save(coh_status status)
{
    return status == COH_ERR_IO || status == COH_ERR_ARGUMENT;
}

/* If the engine failed rather than the save, it refuses to drain. */
static coh_status bear_failed_save(cli_run *run, coh_status status)
{
    if (save_matters(run) || !is_of_one_save(status))
        return status;
    CLI_TRY(coh_engine_drain(run->engine));
    note_failed_save(run, run->done_steps);
    return COH_OK;
}

/* `loss`: of the validation at that step; there may have been another since. */
static void take_checkpoint(cli_run *run, uint64_t step, double loss)
{
    run->saved_step = step;
    cli_stop_kept();
    cli_run_folder_saved(&run->folder, step, loss);
}

/* Waits for the save that is under way, if there is one. */
static coh_status finish_save(cli_run *run)
{
    const uint64_t step = run->saving_step;
    if (step == UINT64_MAX)
        return COH_OK;
    run->saving_step = UINT64_MAX;
    const coh_status status = coh_engine_save_wait(run->engine);
    if (status == COH_OK)
        take_checkpoint(run, step, run->saving_loss);
    else if (is_of_one_save(status))
        note_failed_save(run, step);
    else
        return status;
    return COH_OK;
}

/* Finishes a save whose files are durable. */
static coh_status poll_save(cli_run *run)
{
    int is_done = 0;
    if (run->saving_step == UINT64_MAX)
        return COH_OK;
    CLI_TRY(coh_engine_save_is_done(run->engine, &is_done));
    return is_done ? finish_save(run) : COH_OK;
}

/* Finishes the earlier save before the next one begins, and reports if training waits for it. */
static coh_status wait_for_save(cli_run *run)
{
    const uint64_t step = run->saving_step;
    const double begin_s = cli_seconds_now();
    CLI_TRY(finish_save(run));
    const double seconds = cli_seconds_now() - begin_s;
    if (step == UINT64_MAX || seconds < SAVE_WAIT_NAMED_S || save_matters(run))
        return COH_OK;
    cli_report_break(&run->report);
    cli_note("step %" PRIu64 "  training waited %s until step-%" PRIu64
             " was on the drive: save less often (--save-every)",
             run->done_steps, cli_time(seconds).at, step);
    return COH_OK;
}

/* A save that all ranks take part in. */
typedef struct save_work {
    const char *path;
    const coh_checkpoint_note *note;
    int is_last;
} save_work;

static coh_status save_together(void *context, coh_engine *engine, int32_t rank)
{
    const save_work *work = context;
    (void)rank;
    return work->is_last ? coh_engine_save(engine, work->path, work->note)
                         : coh_engine_save_begin(engine, work->path, work->note);
}

/* Makes the note of the checkpoint of this step. */
static void make_step_note(cli_run *run)
{
    run->note.used = run->note_bytes;
    run->validations.has_ended = run->ended;
    if (run->validation.file)
        cli_validations_add_note(&run->validations, run->done_steps, &run->note);
}

/* The step that a resumed run begins with is saved already. Its checkpoint learns of the validation
 * that was made since; without it, the next resume would make it again. */
static coh_status note_validation(cli_run *run)
{
    char path[CLI_PATH_BYTES];
    make_step_note(run);
    CLI_TRY(cli_run_folder_step_path(&run->folder, run->done_steps, path));
    if (coh_checkpoint_note_set(path, run->note.text) != COH_OK)
        cli_note("warning: the validation of step %" PRIu64 " is not in its checkpoint: %s",
                 run->done_steps, coh_last_error());
    cli_run_folder_judge(&run->folder, run->done_steps,
                         cli_validations_loss_at(&run->validations, run->done_steps));
    return COH_OK;
}

/* Saves at a quiet point. Before the end the next steps run while the drive takes the files. */
static coh_status save(cli_run *run)
{
    char path[CLI_PATH_BYTES];
    make_step_note(run);
    const coh_checkpoint_note note = { .struct_bytes = sizeof(note),
                                       .step = run->done_steps,
                                       .json = run->note.text };
    CLI_TRY(cli_run_folder_step_path(&run->folder, run->done_steps, path));
    cli_train_look_at_data(run);
    cli_run_folder_make_room(&run->folder);
    const int is_last = save_matters(run);
    save_work work = { path, &note, is_last };
    const coh_status status = cli_ranks_run(run->ranks, save_together, &work);
    if (status != COH_OK)
        return bear_failed_save(run, status);
    const double loss = cli_validations_loss_at(&run->validations, run->done_steps);
    if (is_last) {
        take_checkpoint(run, run->done_steps, loss);
    } else {
        run->saving_step = run->done_steps;
        run->saving_loss = loss;
    }
    return COH_OK;
}

static int falls_on(uint64_t step, uint64_t every)
{
    return every > 0 && step % every == 0;
}

static int save_due(const cli_run *run, uint64_t step)
{
    return step == run->job.recipe.steps || falls_on(step, run->job.recipe.save_every);
}

static int validation_due(const cli_run *run, uint64_t step)
{
    return run->validation.file &&
           (save_due(run, step) || falls_on(step, run->job.recipe.validation_every));
}

/* --stop-after-worse: were the last validations, including this step's, no better? */
static int is_worse_for_long(const cli_run *run)
{
    const uint64_t most = run->job.recipe.stop_after_worse;
    return most > 0 && run->validations.worse_in_row >= most;
}

/* Sets *decision to rank 0's. Only it has the run folder, so all that validate together ask. */
static coh_status ask_first(cli_run *run, int32_t *decision)
{
    int32_t decided[COH_WORLD_RANKS_MOST] = { *decision };
    if (!validates_together(run))
        return COH_OK;
    CLI_TRY(cli_ranks_gather(run->ranks, decided, sizeof(decided[0])));
    *decision = decided[0];
    return COH_OK;
}

/* Returns the lowest loss of a checkpoint, also of one whose save is still under way. */
static double lowest_kept(const cli_run *run)
{
    const double saving = run->saving_step == UINT64_MAX ? INFINITY : run->saving_loss;
    return fmin(run->folder.best_loss, saving); /* without a loss it is NaN, which fmin ignores */
}

/* May this step, which has just been validated, be the best checkpoint? Losses over some windows
 * are compared only with one another. */
static int may_be_best(const cli_run *run)
{
    const cli_validations *validations = &run->validations;
    if (!run->folder.keeps_best || run->stopped || validations->step != run->done_steps)
        return 0;
    return validations->is_of_all ? validations->loss < lowest_kept(run)
                                  : validations->worse_in_row == 0;
}

/* --keep-best: decides whether a step that is not due for a save is saved as the best so far. */
static coh_status judge_best(cli_run *run, int *saves)
{
    const int is_of_all = run->validations.is_of_all;
    int32_t is_candidate = !*saves && may_be_best(run);
    CLI_TRY(ask_first(run, &is_candidate));
    if (!is_candidate)
        return COH_OK;
    if (!is_of_all) { /* checkpoints are compared by their losses over all windows */
        CLI_TRY(validate(run, 1));
        is_candidate = run->validations.is_of_all && may_be_best(run);
        run->validations.worse_in_row = 0; /* the step was better over some */
    }
    *saves |= is_candidate;
    return COH_OK;
}

/* Validates, and decides whether the run ends and whether it saves. If it is stopped meanwhile, all
 * of it is still due: the resumed run must count a validation once. */
static coh_status validate_and_judge(cli_run *run, int *saves)
{
    const cli_validations before = run->validations;
    const uint64_t step = run->done_steps;
    CLI_TRY(validate(run, *saves));
    int32_t ends = !run->stopped && is_worse_for_long(run) && step < run->job.recipe.steps;
    CLI_TRY(ask_first(run, &ends)); /* its folder may know a lower loss */
    run->ended = ends;
    if (run->ended && !run->validations.is_of_all) {
        const int is_first = isinf(run->validations.best);
        *saves = 1; /* over all windows it may be the best: the run then continues */
        CLI_TRY(validate(run, 1));
        run->ended = !run->stopped && (is_first || is_worse_for_long(run));
    }
    CLI_TRY(judge_best(run, saves));
    if (run->stopped)
        run->validations = before;
    return COH_OK;
}

/* Takes rank 0's decisions after its validation. */
static coh_status follow_first(cli_run *run, int *saves)
{
    int32_t decided[COH_WORLD_RANKS_MOST] = { 0 };
    enum { STOPPED = 1, ENDED = 2, SAVES = 4 };
    if (cli_ranks_is_first(run->ranks))
        decided[0] = (run->stopped ? STOPPED : 0) | (run->ended ? ENDED : 0) | (*saves ? SAVES : 0);
    CLI_TRY(cli_ranks_gather(run->ranks, decided, sizeof(decided[0])));
    run->stopped = decided[0] & STOPPED;
    run->ended = (decided[0] & ENDED) != 0;
    *saves = (decided[0] & SAVES) != 0;
    return COH_OK;
}

/* Returns 1 if rank 0 is to save: there is a folder, and this step is not in it yet. */
static int will_save(const cli_run *run, int is_due)
{
    return (is_due || run->stopped || run->ended) && run->folder.path[0] != '\0' &&
           run->saved_step != run->done_steps;
}

/* Work of all ranks: what is still to be done of the last step they may have to do together. */
static coh_status drain(void *context, coh_engine *engine, int32_t rank)
{
    (void)context;
    (void)rank;
    return coh_engine_drain(engine);
}

/* The other ranks of a save: rank 0 writes. */
static coh_status take_part_in_save(cli_run *run)
{
    const coh_checkpoint_note note = { .struct_bytes = sizeof(note) };
    save_work work = { "", &note, 1 };
    return cli_ranks_run(run->ranks, save_together, &work);
}

static coh_status quiet_point(cli_run *run)
{
    const uint64_t step = run->done_steps;
    const int is_first = cli_ranks_is_first(run->ranks);
    int saves = save_due(run, step);
    run->validations.is_due |= validation_due(run, step);
    CLI_TRY(cli_ranks_run(run->ranks, drain, NULL));
    if ((is_first || validates_together(run)) && run->validations.is_due && !run->stopped)
        CLI_TRY(validate_and_judge(run, &saves));
    run->validations.is_due &= run->stopped;
    if (is_first && (saves || run->stopped || run->ended)) {
        CLI_TRY(wait_for_save(run));
        saves = will_save(run, saves);
    }
    if (is_first && run->folder.path[0] && run->saved_step == step)
        CLI_TRY(note_validation(run));
    CLI_TRY(follow_first(run, &saves));
    if (saves) {
        CLI_TRY(is_first ? save(run) : take_part_in_save(run));
        CLI_TRY(cli_ranks_meet(run->ranks));
    }
    cli_report_skip_time(&run->report);
    return COH_OK;
}

/* ---- a step without finite numbers ---- */

/* Returns the sentence of the first rank that found where a number broke, else that of rank 0. */
static const char *first_finding(const cli_run *run)
{
    for (int32_t rank = 0; rank < cli_ranks_count(run->ranks); rank++)
        if (strncmp(run->scan_sentences[rank], "first ", 6) == 0)
            return run->scan_sentences[rank];
    return run->scan_sentences[0];
}

/* The run has failed on all ranks alike. Rank 0 prints it: it knows the checkpoints. */
static coh_status fail_together(cli_run *run)
{
    return cli_ranks_is_first(run->ranks) ? COH_OK : coh_world_barrier(run->options->launch->world);
}

/* Handles step `result->step`, which was not applied (docs/architecture.md, "a broken number"):
 * undoes the step after it, runs it again checking every value, prints where it broke, continues
 * with the next batch. */
static coh_status skip_step(cli_run *run, const coh_step_result *result)
{
    const char *mode = run->job.recipe.clip > 0 ? "--clip-mode previous" : "--clip 0";
    if (!cli_recipe_defers(&run->job.recipe)) {
        CLI_TRY(fail_together(run));
        CLI_TRY(finish_save(run));
        if (run->saved_step == UINT64_MAX)
            return cli_fail(COH_ERR_NUMBER,
                            "step %" PRIu64 " gave numbers that are not finite, and with %s they"
                            " have gone into the weights: start again with a lower --lr or with"
                            " --clip 1 --clip-mode exact",
                            result->step + 1, mode);
        return cli_fail(COH_ERR_NUMBER,
                        "step %" PRIu64 " gave numbers that are not finite, and with %s they"
                        " have gone into the weights: resume from the last checkpoint,"
                        " %s/step-%" PRIu64,
                        result->step + 1, mode, run->folder.path, run->saved_step);
    }
    step_work work = work_of(run, result->step);
    work.applied_count = result->applied_count;
    work.sentences = run->scan_sentences;
    if (run->submitted_steps > run->done_steps) {
        CLI_TRY(cli_ranks_run(run->ranks, await, &work));
        run->submitted_steps--;
    }
    CLI_TRY(cli_ranks_run(run->ranks, scan, &work));
    CLI_TRY(cli_ranks_gather(run->ranks, run->scan_sentences, CLI_SCAN_BYTES));
    const char *sentence = first_finding(run);
    cli_report_break(&run->report);
    cli_note("warning: step %" PRIu64 " is left out: %s", result->step + 1, sentence);
    if (++run->skipped_in_row < CLI_SKIPPED_MOST)
        return COH_OK;
    CLI_TRY(fail_together(run));
    (void)finish_save(run); /* which may be the only checkpoint */
    const int has_one = run->saved_step != UINT64_MAX;
    return outside_engine(
        run,
        cli_fail(COH_ERR_NUMBER,
                 "%d steps in a row gave numbers that are not finite (the last: %s): lower --lr%s",
                 CLI_SKIPPED_MOST, sentence, has_one ? "; the last checkpoint is whole" : ""));
}

/* ---- the loop ---- */

/* May another step be submitted: before the end and not across a quiet point? All ranks decide
 * alike, since a stop comes with a step's result. */
static int may_submit(const cli_run *run)
{
    uint64_t submitted = run->submitted_steps;
    if (submitted >= run->job.recipe.steps || submitted - run->done_steps >= 2 ||
        run->is_stop_asked)
        return 0;
    return submitted == run->done_steps ||
           !(save_due(run, submitted) || validation_due(run, submitted));
}

/* A step has failed. If a kind of the user failed in it, the engine is whole and goes back to the
 * state before it, which can be saved. Not with several ranks: their engines end (engine.h).
 * Returns `status`. */
static coh_status go_back(cli_run *run, coh_status status)
{
    char why[1024];
    coh_step_result later = { .struct_bytes = sizeof(later) };
    if (run->options->launch != NULL || cli_ranks_count(run->ranks) > 1)
        return status;
    snprintf(why, sizeof(why), "%s", coh_last_error());
    if (--run->submitted_steps > run->done_steps) {
        (void)coh_engine_wait(run->engine, &later);
        run->submitted_steps--;
    }
    run->failed_outside = coh_engine_undo(run->engine) == COH_OK;
    return cli_fail(status, "%s", why);
}

/* Waits for the oldest step in flight, and records it. */
static coh_status finish_step(cli_run *run)
{
    step_work work = { .result = { .struct_bytes = sizeof(coh_step_result) },
                       .own_engine = run->engine };
    const coh_step_result *result = &work.result;
    cli_step_health health;
    const coh_status status = cli_ranks_run(run->ranks, await, &work);
    if (status != COH_OK)
        return go_back(run, status);
    run->done_steps++;
    run->is_stop_asked |= result->is_stop_asked;
    cli_record_step(&run->record, run->engine, result, &health);
    run->report.learned_tokens = run->counted[result->step % CLI_BATCHES];
    cli_report_step(&run->report, result, cli_recipe_rate(&run->job.recipe, result->step), &health);
    if (!result->finite)
        return skip_step(run, result);
    run->skipped_in_row = 0;
    return COH_OK;
}

static coh_status run_steps(cli_run *run)
{
    if (run->validations.is_due) /* of the step that the resumed run begins with */
        CLI_TRY(quiet_point(run));
    while (run->done_steps < run->job.recipe.steps && !run->stopped && !run->ended) {
        while (may_submit(run))
            CLI_TRY(submit_next(run));
        CLI_TRY(finish_step(run));
        CLI_TRY(poll_save(run));
        if (run->submitted_steps > run->done_steps)
            continue;
        run->stopped = run->is_stop_asked && run->done_steps < run->job.recipe.steps;
        CLI_TRY(quiet_point(run));
    }
    return COH_OK;
}

/* Weights after steps without finite numbers may be of no use: next to an older checkpoint, which a
 * resumed run would remove for them, they are not saved. */
static int may_save_last(const cli_run *run, coh_status status)
{
    return run->failed_outside && run->folder.path[0] &&
           (status != COH_ERR_NUMBER || run->folder.step_count == 0);
}

/* Saves the last step of a run that failed outside the engine. Older checkpoints stay. */
static coh_status save_after_failure(cli_run *run)
{
    while (run->submitted_steps > run->done_steps)
        CLI_TRY(finish_step(run));
    if (run->done_steps == run->job.first_step || run->saved_step == run->done_steps)
        return COH_OK;
    CLI_TRY(cli_ranks_run(run->ranks, drain, NULL));
    run->folder.keep_count = run->folder.step_count + 1;
    return save(run);
}

coh_status cli_train_loop(cli_run *run)
{
    char why[1024];
    run->saving_step = UINT64_MAX;
    cli_report_start(&run->report);
    coh_status status = cli_ranks_meet(run->ranks); /* all have loaded what they begin with */
    if (status == COH_OK)
        status = run_steps(run);
    if (status == COH_OK)
        return finish_save(run);
    snprintf(why, sizeof(why), "%s", coh_last_error());
    (void)finish_save(run); /* the checkpoint is whole, whatever failed */
    run->failed_outside = may_save_last(run, status);
    if (run->failed_outside && save_after_failure(run) != COH_OK) {
        cli_report_break(&run->report);
        cli_note("warning: step %" PRIu64 " could not be saved: %s", run->done_steps,
                 coh_last_error());
    }
    (void)cli_fail(status, "%s", why);
    return cli_ranks_is_first(run->ranks) ? cli_train_failed(run, status) : status;
}
