/* cohobate train: everything before the first step and after the last. The one idea: whatever can
 * be checked early is checked before a file is created. Next: train_loop.c for the steps. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/agree.h"
#include "cli/budget.h"
#include "cli/commands.h"
#include "cli/drive.h"
#include "cli/dtype.h"
#include "cli/kept_tokens.h"
#include "cli/launch.h"
#include "cli/output.h"
#include "cli/plan_report.h"
#include "cli/replay.h"
#include "cli/room.h"
#include "cli/screen.h"
#include "cli/stop.h"
#include "cli/train.h"

/* ---- folder and buffers ---- */

/* Makes the note of all checkpoints, and checks that it has room for validation results. */
static coh_status make_note(const cli_recipe *recipe, cli_run *run)
{
    CLI_TRY(cli_recipe_to_note(recipe, &run->job.model, &run->note));
    run->note_bytes = run->note.used;
    if (run->note_bytes + CLI_VALIDATION_NOTE_BYTES < sizeof(run->note.text))
        return COH_OK;
    return cli_fail(COH_ERR_ARGUMENT,
                    "the paths of tokenizer and data are too long for a checkpoint's note (%d"
                    " bytes): use shorter ones",
                    CLI_LINE_BYTES - CLI_VALIDATION_NOTE_BYTES);
}

/* Makes the note early, before anything is created: long paths may not fit. */
static coh_status check_note(cli_run *run, const char *folder)
{
    cli_recipe recipe = run->job.recipe;
    char absolute[CLI_PATH_BYTES] = "";
    if (!folder[0])
        return COH_OK;
    cli_run_folder_absolute(folder, absolute);
    CLI_TRY(cli_train_name_data(run, absolute, &recipe));
    if (recipe.steps == 0) /* epochs are counted when the data is open */
        recipe.steps = recipe.schedule.schedule_steps = 1;
    return make_note(&recipe, run);
}

static coh_status open_folder(cli_run *run)
{
    char path[CLI_PATH_BYTES];
    run->saved_step = UINT64_MAX;
    CLI_TRY(cli_room_folder(&run->job, path));
    CLI_TRY(check_note(run, path));
    if (!path[0])
        return COH_OK;
    CLI_TRY(cli_run_folder_open(path, run->options, (int64_t)run->job.recipe.keep,
                                run->job.first_step, &run->folder));
    cli_kept_tokens_drop(run->folder.path, run->options);
    run->folder.keeps_best |= run->options->keep_best != 0;
    if (run->folder.step_count > 0)
        cli_stop_kept();
    if (run->job.resumed && run->folder.step_count > 0 &&
        run->folder.steps[run->folder.step_count - 1] == run->job.first_step)
        run->saved_step = run->job.first_step;
    return COH_OK;
}

/* Can there be validation? A resumed run has its text in the note. */
static int may_validate(const cli_options *options)
{
    if (options->validation)
        return strcmp(options->validation, "none") != 0;
    return options->resume || cli_given(options, CLI_FLAG_VALIDATION_SPLIT);
}

/* Refuses flags that need a validation loss in a run that has none. */
static coh_status check_validates(const cli_options *options, int validates)
{
    const int has_windows = cli_given(options, CLI_FLAG_VALIDATION_WINDOWS);
    const char *flag = options->keep_best          ? "keep-best"
                       : options->stop_after_worse ? "stop-after-worse"
                       : options->validation_every ? "validation-every"
                       : has_windows               ? "validation-windows"
                                                   : NULL;
    if (!validates && flag)
        return cli_fail(COH_ERR_ARGUMENT,
                        "--%s needs a validation loss, and there is no text to validate with: add"
                        " --validation FILE or --validation-split X, or leave it out",
                        flag);
    return COH_OK;
}

/* Refuses flags that need validations before the end in a run that has none. */
static coh_status check_intervals(const cli_options *options, uint64_t validation_every,
                                  uint64_t save_every)
{
    if (cli_given(options, CLI_FLAG_VALIDATION_WINDOWS) && validation_every == 0)
        return cli_fail(COH_ERR_ARGUMENT,
                        "--validation-windows is for the validations of --validation-every, since"
                        " those at saves take all windows: add it, or leave this out");
    if (options->stop_after_worse && validation_every == 0 && save_every == 0)
        return cli_fail(COH_ERR_ARGUMENT,
                        "--stop-after-worse compares validations, and there is only one, at the"
                        " end: add --validation-every N or --save-every N");
    return COH_OK;
}

static cli_batch batch_at(int32_t *ids, size_t count, size_t arrays)
{
    return (cli_batch){ ids, ids + count, arrays == 3 ? ids + 2 * count : NULL };
}

/* Allocates all buffers of the loop, which itself allocates nothing. */
static coh_status take_buffers(cli_run *run)
{
    const cli_recipe *recipe = &run->job.recipe;
    size_t batch_ids = (size_t)recipe->batch * (size_t)recipe->sequence;
    size_t micro_ids = (size_t)recipe->micro_batch * (size_t)recipe->sequence;
    const size_t arrays = run->job.model.separate_documents ? 3 : 2;
    /* for validation last */
    int32_t *ids = calloc(arrays * (CLI_BATCHES * batch_ids + micro_ids), sizeof(int32_t));
    if (!ids)
        return cli_fail(COH_ERR_MEMORY, "no memory for batches of %zu tokens: lower --batch",
                        batch_ids);
    run->scan_sentences =
        calloc((size_t)cli_job_rank_count(&run->job), sizeof(*run->scan_sentences));
    if (!run->scan_sentences) {
        free(ids);
        return cli_fail(COH_ERR_MEMORY, "no memory for the ranks' sentences");
    }
    for (int i = 0; i < CLI_BATCHES; i++)
        run->batches[i] = batch_at(ids + arrays * (size_t)i * batch_ids, batch_ids, arrays);
    run->score.micro_batch = recipe->micro_batch;
    run->score.batch = batch_at(ids + arrays * CLI_BATCHES * batch_ids, micro_ids, arrays);
    return COH_OK;
}

/* ---- engine ---- */

/* Is this the process that looks at the drives, of those on its machine? */
static int is_first_here(const cli_options *options)
{
    return options->launch == NULL || options->launch->rank % options->launch->local_count == 0;
}

/* Checks disk space before anything is read or created, so that a lack of space is found at once.
 * `holds`: all is known, and the space for later files is held. The working store reserves its
 * space when it opens. */
static coh_status find_room(cli_run *run, int holds)
{
    cli_room room;
    CLI_TRY(cli_room_find(&run->job, &run->folder, &room));
    if (run->disks.count == 0)
        cli_disks_list(run->options, &run->disks);
    if (!is_first_here(run->options))
        return COH_OK;
    CLI_TRY(cli_disks_measure(&run->disks, room.store_bytes));
    CLI_TRY(cli_room_check(&run->job, &run->disks, &room));
    return holds && run->folder.path[0] ? cli_run_folder_hold(&run->folder, room.checkpoint_bytes)
                                        : COH_OK;
}

static const char before_first_step[] = "before the first step: nothing was trained";

/* Reading a large model takes minutes, so this checks for a stop. */
static coh_status weights_source(void *weights, coh_parameter parameter, const char *name,
                                 uint64_t element_begin, uint64_t count, float *values)
{
    CLI_TRY(cli_stop_check(before_first_step));
    return cli_weights_source(weights, parameter, name, element_begin, count, values);
}

/* Work of each rank in turn, since they share the files of the weights. */
static coh_status load_parameters(void *context, coh_engine *engine, int32_t rank)
{
    cli_run *run = context;
    cli_job *job = &run->job;
    coh_load_facts loaded = { .struct_bytes = sizeof(loaded) };
    if (!cli_weights_are_there(&job->weights))
        return coh_engine_init(engine, job->recipe.seed);
    if (!job->resumed)
        return cli_weights_name_older(
            &job->weights, run->options->operand,
            coh_engine_init_from(engine, job->recipe.seed, weights_source, &job->weights));
    if (run->options->reset_optimizer)
        return coh_engine_load_weights(engine, job->weights.facts.path);
    CLI_TRY(coh_engine_load(engine, job->weights.facts.path, &loaded));
    if (loaded.numeric_changed && rank == 0)
        cli_note_choice(
            "numeric plan %016" PRIx64 " -> %016" PRIx64
            " (dtype, gradients, micro-batch or their number, sweep order, wire, reduce, kinds, "
            "optimizer or kernel path): other rounding, the run will not continue bit for bit",
            job->weights.facts.numeric_fingerprint, job->summary.numeric_fingerprint);
    return COH_OK;
}

/* If the newest checkpoint of the run is damaged, adds to the message how to go on from the one
 * before. A step is not set aside by itself: its numbers may still be worth something. */
static coh_status name_one_before(const cli_run *run, coh_status status)
{
    const cli_run_folder *folder = &run->folder;
    char sentence[1024];
    if (status != COH_ERR_CORRUPT || !run->job.resumed || folder->step_count < 2 ||
        folder->steps[folder->step_count - 1] != run->job.first_step)
        return status;
    snprintf(sentence, sizeof(sentence), "%s", coh_last_error());
    return cli_fail(status,
                    "%s; before it there is step-%" PRIu64 ": move %s/step-%" PRIu64
                    " out of the folder, and the same command continues from there",
                    sentence, folder->steps[folder->step_count - 2], folder->path,
                    run->job.first_step);
}

/* In a signal handler. */
static void ask_stop(void *engine)
{
    coh_engine_ask_stop(engine);
}

/* The engine asks while it writes the working store once, which may take minutes. */
static coh_status go_on(void *context)
{
    (void)context;
    return cli_stop_check(before_first_step);
}

/* A sentence of the engine, which may come while the drive is prepared. */
static void log_sentence(void *context, const char *sentence)
{
    cli_run *run = context;
    if (run->is_preparing) { /* never when other threads call this */
        cli_progress_end();
        run->is_preparing = 0;
    }
    cli_note("%s", sentence);
}

/* Creates the engines, and shows that the drive is prepared for them. */
static coh_status create_engines(cli_run *run, const coh_engine_options *engine_options)
{
    const cli_job *job = &run->job;
    run->is_preparing = job->summary.peak_bytes[COH_TIER_DISK] > 0;
    if (run->is_preparing)
        cli_progress_begin("preparing the drive for", job->model.name, CLI_PROGRESS_FIRST_S);
    const coh_status status = cli_ranks_open(job->plan, &job->plan_options, engine_options,
                                             cli_job_rank_count(job), &run->ranks);
    if (run->is_preparing)
        cli_progress_end();
    run->is_preparing = 0;
    return status;
}

/* How long a rank waits for the others. */
#define RANK_TIMEOUT_S 600.0

static coh_status open_engine(cli_run *run)
{
    const cli_recipe *recipe = &run->job.recipe;
    coh_engine_options engine_options = run->job.budget.engine_options;
    engine_options.weight_decay = (float)recipe->weight_decay;
    coh_parameter_group groups[CLI_GROUPS_MOST];
    engine_options.groups = groups;
    engine_options.group_count = cli_parameter_groups(recipe, groups);
    cli_hyperparameters numbers;
    cli_hyperparameters_of(recipe, &numbers);
    engine_options.hyperparameters = numbers.values;
    engine_options.hyperparameter_count = numbers.count;
    engine_options.disks = run->disks.of;
    engine_options.disk_count = run->disks.count;
    engine_options.world = run->options->launch ? run->options->launch->world : NULL;
    engine_options.rank_timeout_s = cli_given(run->options, CLI_FLAG_RANK_TIMEOUT)
                                        ? (double)run->options->rank_timeout
                                        : RANK_TIMEOUT_S;
    engine_options.record_steps = run->folder.path[0] ? (uint64_t)run->options->record : 0;
    if (!run->options->launch) /* else all stop after the first step, as one */
        engine_options.go_on = go_on;
    engine_options.log = log_sentence;
    engine_options.log_context = run;
    CLI_TRY(create_engines(run, &engine_options));
    run->engine = cli_ranks_engine(run->ranks);
    cli_stop_tell(ask_stop, run->engine);
    const coh_status status = cli_ranks_run_in_turn(run->ranks, load_parameters, run);
    if (status != COH_OK)
        return name_one_before(run, status);
    CLI_TRY(cli_weights_loaded(&run->job.weights));
    run->facts = (coh_engine_facts){ .struct_bytes = sizeof(run->facts) };
    return coh_engine_facts_get(run->engine, &run->facts);
}

/* Adds a rate; none if the store was too small to be probed. */
static void add_rate(const char *what, uint64_t bytes_per_s, cli_line *line)
{
    if (bytes_per_s > 0)
        cli_line_add(line, ", %s %s/s", what, cli_size(bytes_per_s).at);
    else
        cli_line_add(line, ", %s not measured", what);
}

static void describe_disk(const cli_run *run, cli_line *line)
{
    const coh_engine_facts *facts = &run->facts;
    const coh_plan_summary *summary = &run->job.summary;
    cli_line_add(line, "disk:   %s (%s)",
                 facts->store_direct ? "O_DIRECT, past the page cache"
                                     : "through the page cache, which is memory outside the budget",
                 facts->store_backend);
    add_rate("read", facts->store_read_bytes_per_s, line);
    add_rate("write", facts->store_write_bytes_per_s, line);
    cli_line_add(line, "\n");
    (void)cli_disks_describe(&run->disks, summary->peak_bytes[COH_TIER_DISK],
                             cli_speed_get(&run->job).written_per_day, line);
    cli_drive_add_slow(&run->job, facts, line);
}

/* Adds the flags that change no step, since the schedule is over. */
static void describe_useless_rates(const cli_job *job, cli_line *line)
{
    const coh_schedule *schedule = &job->recipe.schedule;
    const int has_lr = cli_given(job->options, CLI_FLAG_LR) && schedule->lowest < schedule->highest;
    const int has_warmup = cli_given(job->options, CLI_FLAG_WARMUP);
    if (job->first_step < schedule->schedule_steps || !(has_lr || has_warmup))
        return;
    if (has_lr)
        cli_line_add(line, "--lr %s is the rate of no step", cli_rate(schedule->highest).at);
    if (has_warmup)
        cli_line_add(line, "%s--warmup has no effect", has_lr ? ", and " : "");
    cli_line_add(line, ": ");
}

/* Adds the number of steps after the end of the schedule, with constant rate: a resumed run may
 * have them. */
static void describe_schedule(const cli_job *job, cli_line *line)
{
    const coh_schedule *schedule = &job->recipe.schedule;
    if (job->recipe.steps <= schedule->schedule_steps || !job->resumed ||
        job->recipe.schedule_kind == COH_SCHEDULE_CONSTANT)
        return;
    cli_line_add(line, "note:   ");
    describe_useless_rates(job, line);
    cli_line_add(line,
                 "the schedule ends at step %" PRIu64
                 ": later steps run at the learning rate %s, the lowest (--schedule-steps N "
                 "stretches it)\n",
                 schedule->schedule_steps, cli_rate(schedule->lowest).at);
}

/* Does --keep-best save at validations between other saves? */
static int saves_best(const cli_run *run)
{
    return run->folder.keeps_best && run->validation.file && run->job.recipe.validation_every > 0;
}

static void describe_keeping(const cli_run *run, cli_line *line)
{
    const int saves_once = run->job.recipe.save_every == 0 && !saves_best(run);
    cli_line_add(line, "keeps:  %s", run->folder.path[0] ? run->folder.path : "nothing");
    /* mpirun kills about a second after these signals, which may be before the save. */
    const char *killer =
        run->options->launch
            ? ", as by mpirun on SIGINT or SIGTERM; not on SIGUSR1, and later with Open MPI 4's "
              "--mca odls_base_sigkill_timeout 60"
            : "";
    if (run->folder.path[0] && run->job.recipe.save_every == 0)
        cli_line_add(line,
                     ", saved at the end or if stopped (--save-every N: also on the way, in case "
                     "of a kill%s)",
                     killer);
    else if (run->folder.path[0])
        cli_line_add(line, ", saved every %s (--save-every)",
                     cli_every(run->job.recipe.save_every, "step").at);
    if (run->folder.path[0] && saves_best(run))
        cli_line_add(line, " and at each validation loss below the lowest so far (--keep-best)");
    cli_run_folder_add_bytes(&run->folder, saves_once, line);
    cli_line_add(line, "\n");
}

static void describe_start(const cli_run *run)
{
    cli_line line;
    const coh_engine_facts *facts = &run->facts;
    cli_line_clear(&line);
    cli_screen_short(&run->job, &line);
    if (facts->store_direct >= 0)
        describe_disk(run, &line);
    for (int tier = 0; tier < COH_TIER_COUNT; tier++)
        if (facts->arena_node_count[tier] > 0)
            cli_line_add(
                &line, "%s %s %s, %s, on %d NUMA node%s%s, touched in %s",
                tier == COH_TIER_DEVICE ? "arenas:" : ",", cli_tier_name(tier, run->job.on_gpu),
                cli_size(facts->arena_bytes[tier]).at,
                facts->arena_huge_pages[tier] ? "huge pages asked for" : "small pages",
                facts->arena_node_count[tier], facts->arena_node_count[tier] == 1 ? "" : "s",
                facts->arena_is_near[tier] ? ", the GPU's" : "",
                cli_time((double)facts->arena_touch_ns[tier] * 1e-9).at);
    cli_line_add(&line, "\n");
    cli_line_add(&line, "kernel: %s; overhead outside the arenas %s\n", facts->kernel_path,
                 cli_size(facts->overhead_bytes).at);
    cli_report_gpu(facts, &line);
    if (run->job.resumed)
        cli_line_add(&line, "resume: %s, step %" PRIu64 "\n", run->job.weights.facts.path,
                     run->job.first_step);
    cli_train_describe_data(run, &line);
    describe_schedule(&run->job, &line);
    cli_parameter_groups_describe(&run->job.recipe, run->job.graph, &line);
    if (run->job.weights.is_folder)
        cli_line_add(&line, "start:  %s, %" PRId64 " tensors of %s\n", run->job.model.folder,
                     run->job.weights.folder_facts.tensor_count,
                     cli_dtype_name(run->job.model.stored));
    if (run->options->adapter)
        cli_line_add(&line, "start:  adapters of %s\n", run->options->adapter);
    if (run->options->from_scratch)
        cli_line_add(&line,
                     "start:  first values of seed %" PRIu64 ", as %s/config.json has them\n",
                     run->job.recipe.seed, run->job.model.folder);
    else if (!cli_weights_are_there(&run->job.weights) && run->job.model.adapters.rank == 0)
        cli_line_add(&line, "start:  first values of seed %" PRIu64 ", no trained weights\n",
                     run->job.recipe.seed);
    if (run->job.model.adapters.rank > 0 && !cli_weights_are_there(&run->job.weights))
        cli_line_add(&line,
                     "note:   the weights under the adapters are first values of seed %" PRIu64
                     ", not trained ones\n",
                     run->job.recipe.seed);
    cli_choices_release();
    describe_keeping(run, &line);
    (void)cli_prose_write(STDERR_FILENO, line.text);
}

/* ---- the end ---- */

static void add_result_json(const cli_run *run, uint64_t hash, cli_line *line)
{
    cli_line_add_json(
        line, "{'model': %s, 'dtype': %s, 'frozen_dtype': %s, 'emulated': %i", run->job.model.name,
        cli_dtype_name(coh_model_size_get(&run->job.model).dtype),
        cli_dtype_frozen(run->job.recipe.frozen_nf4), cli_job_emulated_bytes(&run->job) > 0);
    cli_train_add_saved_json(run, hash, line);
    cli_train_add_share_json(run, line);
    cli_report_totals_json(&run->report, &run->job.summary, &run->facts, line);
    cli_report_ledger_json(run->engine, line);
    cli_calibration_add_json(run->classes, run->class_count, line);
    cli_line_add(line, "}\n");
}

static void add_done(const cli_run *run, cli_line *line)
{
    const cli_report *report = &run->report;
    cli_line_add(line, "done:   step %" PRIu64 " of %" PRIu64, run->done_steps,
                 run->job.recipe.steps);
    if (report->step_count > 0) /* else only a validation was left */
        cli_line_add(line, ", loss %s", cli_loss(report->last_loss).at);
    if (run->validation.file && report->validation_windows > 0) {
        cli_line_add(line, ", validation loss %s over %" PRIu64 " of %s",
                     cli_loss(report->last_validation).at, report->validation_windows,
                     cli_count(report->validation_windows_total, "window").at);
        if (report->validation_step != run->done_steps)
            cli_line_add(line, " (of step %" PRIu64 ")", report->validation_step);
    }
    if (report->skipped_count)
        cli_line_add(line, ", %" PRIu64 " step%s left out", report->skipped_count,
                     report->skipped_count == 1 ? "" : "s");
    cli_train_add_share(run, line);
    cli_line_add(line, "\n");
}

static void add_result_text(const cli_run *run, uint64_t hash, cli_line *line)
{
    cli_report_totals(&run->report, &run->job.summary, &run->facts, line);
    if (cli_job_emulated_bytes(&run->job))
        cli_line_add(line, "note:   the host tier was EMULATED: times say nothing of a GPU\n");
    cli_train_add_saved(run, hash, line);
    add_done(run, line);
}

/* Work of all ranks. */
static coh_status hash_values(void *hashes, coh_engine *engine, int32_t rank)
{
    return coh_engine_hash(engine, &((uint64_t *)hashes)[rank]);
}

/* Computes the hash of the final values, which is the same on all ranks. */
static coh_status take_hash(cli_run *run, uint64_t *out_hash)
{
    uint64_t hashes[COH_WORLD_RANKS_MOST];
    CLI_TRY(cli_ranks_run(run->ranks, hash_values, hashes));
    CLI_TRY(cli_ranks_gather(run->ranks, hashes, sizeof(hashes[0])));
    *out_hash = hashes[0];
    for (int32_t rank = 1; rank < cli_ranks_count(run->ranks); rank++)
        if (hashes[rank] != hashes[0])
            return cli_fail(COH_ERR_INTERNAL,
                            "rank %d ends with hash %016" PRIx64 ", rank 0 with %016" PRIx64
                            " (please report this)",
                            (int)rank, hashes[rank], hashes[0]);
    return COH_OK;
}

/* Writes the result. A failure says where the run is saved. */
static coh_status write_result(const cli_run *run, const cli_line *line)
{
    char why[1024];
    const coh_status status = run->options->json ? cli_write(STDOUT_FILENO, line->text, line->used)
                                                 : cli_prose_write(STDOUT_FILENO, line->text);
    if (status == COH_OK || !run->folder.path[0] || run->saved_step != run->done_steps)
        return status;
    snprintf(why, sizeof(why), "%s", coh_last_error());
    return cli_fail(status, "%s; nothing of the run is lost, it is saved: %s/step-%" PRIu64, why,
                    run->folder.path, run->saved_step);
}

static coh_status finish(cli_run *run)
{
    uint64_t hash;
    cli_line line;
    cli_report_break(&run->report);
    cli_calibration_keep(run->options, &run->job.calibration, run->engine, run->classes,
                         &run->class_count);
    CLI_TRY(take_hash(run, &hash));
    cli_report_peaks(&run->report, run->engine);
    CLI_TRY(coh_engine_facts_get(run->engine, &run->facts)); /* with memory that libraries took */
    cli_line_clear(&line);
    if (run->options->json)
        add_result_json(run, hash, &line);
    else
        add_result_text(run, hash, &line);
    CLI_TRY(write_result(run, &line));
    return run->stopped ? cli_train_stopped(run) : COH_OK;
}

/* Records how the run ended, for its readers, while the folder is still locked. */
static void record_end(const cli_run *run, coh_status status)
{
    char sentence[1024] = "";
    const char *how = status == COH_ERR_STOPPED ? "stopped"
                      : status != COH_OK        ? "failed"
                      : run->ended              ? "early"
                                                : "finished";
    if (!run->has_begun || !run->folder.path[0])
        return;
    if (status != COH_OK && status != COH_ERR_STOPPED)
        snprintf(sentence, sizeof(sentence), "%s", coh_last_error());
    cli_record_end(run->folder.path, how, run->done_steps, sentence);
}

/* Closes files before their folder is removed: some file systems keep open files. */
static void close_run(cli_run *run)
{
    cli_report_close(&run->report);
    cli_record_close(&run->record);
    cli_stop_tell(NULL, NULL);
    cli_ranks_close(run->ranks);
    free(run->scan_sentences);
    free(run->batches[0].tokens);
    cli_data_close(&run->validation);
    cli_data_close(&run->data);
    if (run->has_begun) {
        cli_run_folder_close(&run->folder);
    } else {
        cli_report_undo(&run->report);
        cli_train_undo_data(run);
        cli_run_folder_undo(&run->folder);
    }
    cli_job_close(&run->job);
    free(run);
}

static coh_status write_plan(const cli_run *run)
{
    char path[CLI_PATH_BYTES + 16];
    cli_line note;
    if (!run->folder.path[0])
        return COH_OK;
    CLI_TRY(cli_replay_note(&run->job, &note));
    snprintf(path, sizeof(path), "%s/plan.json", run->folder.path);
    return coh_plan_write_noted(run->job.plan, note.text, path);
}

/* With --epochs the length of the run, and so all of the disk space it needs, is known only now. */
static coh_status take_epochs(cli_run *run)
{
    CLI_TRY(cli_epochs_take(&run->job, &run->data));
    CLI_TRY(cli_job_check_writes(&run->job));
    return find_room(run, 1);
}

/* Decides after opening the data whether and how the run validates. */
static coh_status prepare_validation(cli_run *run)
{
    const cli_options *options = run->options;
    const cli_recipe *recipe = &run->job.recipe;
    const uint64_t hash = recipe->validation_hash;
    if (!run->validation.file)
        return check_validates(options, 0);
    if (run->job.resumed)
        CLI_TRY(check_intervals(options, recipe->validation_every, recipe->save_every));
    const uint64_t some = recipe->validation_windows;
    const uint64_t kept = some < run->score.total ? some : 0;
    if (run->job.resumed)
        cli_validations_from_note(run->job.weights.facts.note_json, hash, kept, &run->validations);
    else
        cli_validations_clear(kept, &run->validations);
    if (run->folder.path[0])
        cli_run_folder_find_best(&run->folder, hash);
    /* The note of a step without validation has no best loss; earlier checkpoints may have one. */
    if (run->folder.best_loss < run->validations.best)
        run->validations.best = run->folder.best_loss;
    return COH_OK;
}

static coh_status run_all(cli_run *run)
{
    const cli_options *options = run->options;
    const int by_epochs = cli_given(options, CLI_FLAG_EPOCHS);
    CLI_TRY(cli_job_open(options, &run->job));
    if (run->job.is_done)
        return cli_train_end_done(run);
    if (!by_epochs)
        CLI_TRY(cli_job_check_writes(&run->job));
    CLI_TRY(
        cli_stop_install(0,
                         "\ncohobate train: stopped at once; the last checkpoint is whole; go on "
                         "with cohobate train --resume\n",
                         "\ncohobate train: stopped at once; nothing was saved yet: the same "
                         "command starts again\n"));
    CLI_TRY(open_folder(run));
    cli_train_say_at_once(run);
    CLI_TRY(find_room(run, !by_epochs)); /* before tokenizing, which may take minutes */
    CLI_TRY(cli_train_open_data(run));
    if (by_epochs)
        CLI_TRY(take_epochs(run));
    CLI_TRY(prepare_validation(run));
    CLI_TRY(make_note(&run->job.recipe, run));
    CLI_TRY(take_buffers(run));
    run->done_steps = run->submitted_steps = run->job.first_step;
    CLI_TRY(cli_report_open(options->log, run->folder.path, run->job.first_step,
                            run->job.recipe.steps, run->job.recipe.batch * run->job.recipe.sequence,
                            (double)run->job.summary.step_ns * 1e-9, &run->report));
    run->report.rank_count = options->launch ? 1 : cli_job_rank_count(&run->job);
    if (options->tensorboard)
        CLI_TRY(cli_report_open_board(&run->report, options->tensorboard));
    CLI_TRY(cli_agree(&run->job));
    CLI_TRY(open_engine(run));
    CLI_TRY(write_plan(run));
    CLI_TRY(cli_run_folder_check_descriptors(&run->folder));
    describe_start(run);
    if (!options->launch) /* else the others may have begun: all stop after the first step */
        CLI_TRY(cli_stop_check(before_first_step));
    if (run->folder.path[0])
        CLI_TRY(
            cli_record_open(&run->job, run->engine, &run->facts, run->folder.path, &run->record));
    run->has_begun = 1;
    if (options->launch)
        options->launch->has_begun = 1;
    cli_kept_tokens_forget(run->folder.path);
    if (run->folder.path[0])
        cli_recipe_keep_tokenizer(&run->job.recipe, run->folder.path);
    CLI_TRY(cli_train_loop(run));
    return finish(run);
}

/* A report is drawn from the run's folder. */
static coh_status check_report(const cli_options *options)
{
    report_form form;
    if (!options->report)
        return COH_OK;
    if (options->save && strcmp(options->save, "none") == 0)
        return cli_fail(COH_ERR_ARGUMENT,
                        "--report is drawn from the run's folder, and --save none "
                        "keeps nothing: leave one of them out");
    return cli_report_form("--report", options->report, &form);
}

/* Writes the report of a run that ended with `status`, or was stopped. */
static coh_status report_run_of(const char *folder, const char *path, coh_status status)
{
    char sentence[1024];
    if (status == COH_OK)
        return cli_report_folder(folder, path);
    if (status != COH_ERR_STOPPED || !folder[0])
        return status;
    snprintf(sentence, sizeof(sentence), "%s", coh_last_error());
    if (cli_report_folder(folder, path) != COH_OK)
        cli_note("warning: there is no report: %s", coh_last_error());
    return cli_fail(status, "%s", sentence); /* planning changes for the report set others */
}

/* Refuses flags of saves and validations that would have no effect. A resumed run's are checked
 * when its note is read. */
static coh_status check_saves(const cli_options *options)
{
    const char *flag = options->keep_best                  ? "keep-best"
                       : options->save_every > 0           ? "save-every"
                       : cli_given(options, CLI_FLAG_KEEP) ? "keep"
                                                           : NULL;
    CLI_TRY(check_validates(options, may_validate(options)));
    if (!options->resume)
        CLI_TRY(check_intervals(options, (uint64_t)options->validation_every,
                                (uint64_t)options->save_every));
    if (flag && cli_given(options, CLI_FLAG_SAVE) && strcmp(options->save, "none") == 0)
        return cli_fail(COH_ERR_ARGUMENT,
                        "--%s is for checkpoints, and --save none keeps nothing: leave one of them "
                        "out",
                        flag);
    if (!options->resume && options->keep_best && options->save_every == 0 &&
        options->validation_every == 0)
        return cli_fail(COH_ERR_ARGUMENT,
                        "--keep-best compares checkpoints, and there is only one, at the end: add"
                        " --validation-every N or --save-every N");
    return COH_OK;
}

coh_status cli_train(const cli_options *options)
{
    if (!options->data && !options->resume)
        return cli_fail(COH_ERR_ARGUMENT, "--data FILE|DIR is missing: the text to train on");
    CLI_TRY(check_saves(options));
    if (options->new_data && !(options->resume && options->data))
        return cli_fail(COH_ERR_ARGUMENT, "--new-data is for --resume with --data: add both, or"
                                          " leave it out");
    if (options->reset_optimizer && !options->resume)
        return cli_fail(COH_ERR_ARGUMENT, "--reset-optimizer is for --resume: add it, or leave "
                                          "--reset-optimizer out");
    CLI_TRY(cli_output_check(options));
    CLI_TRY(check_report(options));
    cli_run *run = calloc(1, sizeof(*run));
    if (!run)
        return cli_fail(COH_ERR_MEMORY, "no memory for the run's own tables");
    run->options = options;
    cli_run_folder_clear(&run->folder);
    cli_report_clear(&run->report);
    char folder[CLI_PATH_BYTES];
    coh_status status = run_all(run);
    snprintf(folder, sizeof(folder), "%s", run->folder.path);
    if (status != COH_OK && status != COH_ERR_STOPPED && !run->has_begun)
        cli_train_keep_data(run);
    record_end(run, status);
    if (run->ranks != NULL)
        cli_launch_stop(options->launch, status);
    close_run(run);
    return options->report ? report_run_of(folder, options->report, status) : status;
}
