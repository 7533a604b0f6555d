/* Writes the note of a plan file, and rebuilds a job from it. The one idea: the note has everything
 * that the planner needs besides the file, so a plan is verified, not trusted. Next: planner/ reads
 * the file; cmd_simulate.c and cmd_explain.c use the job. */
#include "cli/replay.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/artefact.h"
#include "cli/budget.h"
#include "cli/topology.h"

enum { NOTE_VERSION = 1 };

/* ---- writing ---- */

coh_status cli_replay_note(const cli_job *job, cli_line *out_note)
{
    char model[COH_MODEL_JSON_BYTES];
    const cli_recipe *recipe = &job->recipe;
    CLI_TRY(coh_model_to_json(&job->model, model, sizeof(model)));
    cli_line_clear(out_note);
    cli_line_add_json(
        out_note,
        "{'version': %d, 'batch': %" PRId64 ", 'micro_batch': %" PRId64 ", 'sequence': %" PRId64
        ", 'steps': %" PRIu64 ", 'clip': %.17g, 'threads': %d, 'device_memory_bytes': '%" PRIu64
        "', 'profile': %s",
        NOTE_VERSION, recipe->batch, recipe->micro_batch, recipe->sequence, recipe->steps,
        recipe->clip, (int)job->plan_options.thread_count, job->plan_options.device_memory_bytes,
        job->options->profile ? job->options->profile : "");
    if (cli_given(job->options, CLI_FLAG_DISK_WRITE_LIMIT))
        cli_line_add_json(out_note, "'disk_write_limit': '%" PRIu64 "'",
                          job->options->disk_write_limit);
    if (job->model.dropout > 0)
        cli_line_add_json(out_note, "'dropout': %.17g", job->model.dropout);
    if (job->model.lora_dropout > 0)
        cli_line_add_json(out_note, "'lora_dropout': %.17g", job->model.lora_dropout);
    if (job->model.frozen_nf4)
        cli_line_add_json(out_note, "'frozen_nf4': true");
    if (job->model.separate_documents)
        cli_line_add_json(out_note, "'separate_documents': true");
    cli_line_add(out_note, ", \"model\": %s}", model);
    if (out_note->cut)
        return cli_fail(COH_ERR_ARGUMENT, "the model's description is too long for a plan file");
    return COH_OK;
}

/* ---- reading ---- */

static coh_status corrupt(const char *path, const char *what)
{
    return cli_fail(COH_ERR_CORRUPT, "%s: its note %s: plan again with cohobate plan -o", path,
                    what);
}

/* Parses a number that has only digits. */
static int read_bytes(const char *text, uint64_t *out_bytes)
{
    errno = 0;
    *out_bytes = strtoull(text, NULL, 10);
    return text[0] && text[strspn(text, "0123456789")] == '\0' && errno == 0;
}

static int is_share(double dropout)
{
    return dropout >= 0 && dropout < 1;
}

static coh_status read_members(const char *path, json_t *root, cli_plan_note *out,
                               coh_model *out_model)
{
    json_error_t error;
    const char *device = NULL, *profile = NULL, *limit = "0";
    json_t *model = NULL;
    json_int_t version = 0, batch = 0, micro = 0, sequence = 0, steps = 0, threads = 0;
    double dropout = 0, lora_dropout = 0;
    int frozen_nf4 = 0, separate_documents = 0;
    if (json_unpack_ex(
            root, &error, JSON_STRICT,
            "{s:I, s:I, s:I, s:I, s:I, s:F, s:I, s:s, s:s, s?s, s?F, s?F, s?b, s?b, s:o}",
            "version", &version, "batch", &batch, "micro_batch", &micro, "sequence", &sequence,
            "steps", &steps, "clip", &out->clip, "threads", &threads, "device_memory_bytes",
            &device, "profile", &profile, "disk_write_limit", &limit, "dropout", &dropout,
            "lora_dropout", &lora_dropout, "frozen_nf4", &frozen_nf4, "separate_documents",
            &separate_documents, "model", &model) != 0)
        return corrupt(path, error.text);
    if (version != NOTE_VERSION)
        return corrupt(path, "is of another version");
    if (!read_bytes(device, &out->device_bytes) || !read_bytes(limit, &out->disk_write_limit) ||
        batch < 1 || batch > 1 << 20 || micro < 1 || batch % micro != 0 || sequence < 1 ||
        sequence > 1 << 24 || steps < 1 || threads < 1 || threads > 1024 || !is_share(dropout) ||
        !is_share(lora_dropout))
        return corrupt(path, "has a number out of its range");
    *out = (cli_plan_note){ .batch = batch,
                            .micro_batch = micro,
                            .microbatch_count = (int32_t)(batch / micro),
                            .sequence = sequence,
                            .steps = steps,
                            .threads = threads,
                            .clip = out->clip,
                            .device_bytes = out->device_bytes,
                            .disk_write_limit = out->disk_write_limit };
    snprintf(out->profile, sizeof(out->profile), "%s", profile);
    char *text = json_dumps(model, JSON_COMPACT);
    if (!text)
        return cli_fail(COH_ERR_MEMORY, "no memory to read %s", path);
    coh_status status = coh_model_from_json(text, out_model);
    free(text);
    out_model->dropout = dropout;
    out_model->lora_dropout = lora_dropout;
    out_model->frozen_nf4 = frozen_nf4;
    out_model->separate_documents = separate_documents;
    return status == COH_OK ? COH_OK : cli_blame(status, "%s", path);
}

coh_status cli_replay_read_note(const char *path, const coh_plan_file *file, cli_plan_note *out,
                                coh_model *out_model)
{
    json_error_t error;
    if (!file->note[0])
        return cli_fail(COH_ERR_CORRUPT,
                        "%s does not say which model it is for: write one with cohobate plan -o",
                        path);
    json_t *root = json_loads(file->note, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return corrupt(path, error.text);
    coh_status status = read_members(path, root, out, out_model);
    json_decref(root);
    return status;
}

/* ---- the job ---- */

/* Chooses the memory: flags; else that of the profile if it differs from the plan's; else the
 * budget of the plan. */
static coh_status set_budgets(const cli_replay *replay, const cli_plan_note *said,
                              int is_other_profile, coh_plan_options *plan_options)
{
    const cli_options *options = &replay->options;
    coh_profile_summary facts = { .struct_bytes = sizeof(facts) };
    if (is_other_profile)
        CLI_TRY(coh_profile_summarize(replay->job.profile, &facts));
    cli_budget_plan_options(options, replay->job.profile, COH_PLAN_TRAIN, plan_options);
    if (!cli_given(options, CLI_FLAG_DEVICE_MEMORY))
        plan_options->device_memory_bytes =
            facts.device_bytes > 0 ? facts.device_bytes : said->device_bytes;
    plan_options->disk_write_bytes_per_day = 0; /* other times, the same plan */
    if (!is_other_profile && !cli_given(options, CLI_FLAG_HOST_MEMORY))
        plan_options->host_memory_bytes = 0; /* the file has it */
    plan_options->thread_count = (int32_t)said->threads;
    if (cli_given(options, CLI_FLAG_THREADS))
        plan_options->thread_count = (int32_t)options->threads;
    plan_options->microbatch_count =
        said->microbatch_count / coh_fold_shape_replicas(&replay->file.ranks);
    plan_options->deferred_update = replay->file.deferred_update;
    plan_options->speculates = replay->file.speculates;
    plan_options->sweep_order = COH_SWEEP_AUTO; /* the file has it */
    plan_options->f32_gradients = replay->file.f32_gradients;
    plan_options->replicas = replay->file.replicas;
    plan_options->ranks = replay->file.ranks;
    plan_options->pair_ranks = replay->file.pair_ranks;
    plan_options->node_ranks = replay->file.node_ranks;
    plan_options->wires = replay->file.wires;
    plan_options->reduce = replay->file.reduce;
    memcpy(plan_options->optimizer, replay->file.optimizer, sizeof(plan_options->optimizer));
    plan_options->optimizer_choices = replay->file.optimizer_choices;
    plan_options->optimizer_choice_count = replay->file.optimizer_choice_count;
    return COH_OK;
}

static coh_status rebuild(cli_replay *replay, const cli_plan_note *said, int is_other_profile)
{
    cli_job *job = &replay->job;
    CLI_TRY(cli_budget_check(&replay->options));
    CLI_TRY(cli_budget_open_profile(&replay->options, &job->profile));
    CLI_TRY(cli_calibration_open(&replay->options, &job->profile, &job->calibration));
    job->on_gpu = cli_budget_is_gpu(job->profile);
    CLI_TRY(set_budgets(replay, said, is_other_profile, &job->plan_options));
    CLI_TRY(cli_topology_check(job->profile, &job->plan_options));
    job->model.atomics = replay->file.atomics;
    CLI_TRY(coh_model_train_graph(&job->model, said->micro_batch, said->sequence, &job->graph));
    CLI_TRY(coh_plan_read(job->graph, &job->plan_options, replay->options.operand, &job->plan));
    job->summary = (coh_plan_summary){ .struct_bytes = sizeof(job->summary) };
    CLI_TRY(coh_plan_summarize(job->plan, &job->summary));
    cli_topology_say_unmeasured(&replay->options, job->plan, &job->summary);
    if (is_other_profile)
        CLI_TRY(cli_budget_check_disk(job->profile, replay->options.operand, &job->summary));
    job->plan_options.host_memory_bytes = replay->file.host_memory_bytes;
    job->plan_options.emulate_host = !replay->file.is_gpu;
    job->plan_options.disk_bytes = replay->file.disk_bytes;
    job->plan_options.sweep_order = job->summary.sweep_order;
    memcpy(job->plan_options.rank_pattern, job->summary.rank_pattern,
           sizeof(job->plan_options.rank_pattern));
    job->plan_options.disk_write_bytes_per_day = replay->options.disk_write_limit;
    return COH_OK;
}

/* A GPU's plan made without --profile has its datasheet; its note names it. */
static void name_profile(const cli_plan_note *said, cli_replay *replay)
{
    const char *name = said->profile;
    if (!name[0] && replay->file.is_gpu)
        name = replay->file.profile_name;
    snprintf(replay->profile, sizeof(replay->profile), "%s", name);
}

/* Prints a note if the step's price is not the one in the file. The price is compared, since a
 * profile's hash leaves out its calibration. */
static void say_other_times(const cli_replay *replay)
{
    const uint64_t step_ns = replay->job.summary.step_ns;
    if (step_ns != replay->file.step_ns)
        cli_note_choice(
            "note: %s was made for %s a step; by today's profile and calibration a step takes "
            "%s (--calibration FILE, or none, chooses another calibration)",
            replay->options.operand, cli_time((double)replay->file.step_ns * 1e-9).at,
            cli_time((double)step_ns * 1e-9).at);
}

/* Prints a note if the prices are a what-if, which has no calibration: the step in the file may
 * have had one. */
static void say_uncalibrated(const cli_replay *replay)
{
    if (replay->file.is_gpu || cli_calibration_is_off(&replay->options) ||
        !cli_budget_is_what_if(&replay->options, replay->job.profile))
        return;
    cli_note_choice(
        "note: --profile %s has no calibration by this machine's runs: compare with the "
        "same command without --profile, with --calibration none",
        replay->options.profile);
}

coh_status cli_replay_open(const cli_options *options, cli_replay *out_replay)
{
    cli_plan_note said = { 0 };
    coh_status status;
    *out_replay = (cli_replay){ .options = *options };
    cli_job *job = &out_replay->job;
    job->options = &out_replay->options;
    job->made = &out_replay->file;
    CLI_TRY_GOTO(status,
                 cli_artefact_refuse_run(options->operand,
                                         options->command == CLI_EXPLAIN ? "explain" : "simulate"),
                 fail);
    out_replay->file = (coh_plan_file){ .struct_bytes = sizeof(out_replay->file) };
    CLI_TRY_GOTO(status, coh_plan_file_read(options->operand, &out_replay->file), fail);
    CLI_TRY_GOTO(status,
                 cli_replay_read_note(options->operand, &out_replay->file, &said, &job->model),
                 fail);
    job->recipe =
        (cli_recipe){ .batch = said.batch,
                      .micro_batch = said.micro_batch,
                      .sequence = said.sequence,
                      .steps = (uint64_t)said.steps,
                      .clip = said.clip,
                      .clips_by_previous = said.clip > 0 && !out_replay->file.deferred_update,
                      .speculates = (uint64_t)out_replay->file.speculates,
                      .dropout = job->model.dropout,
                      .lora_dropout = job->model.lora_dropout,
                      .frozen_nf4 = (uint64_t)job->model.frozen_nf4 };
    job->made_device_bytes = said.device_bytes;
    const int is_other_profile = options->profile != NULL;
    name_profile(&said, out_replay);
    if (!is_other_profile && out_replay->profile[0])
        out_replay->options.profile = out_replay->profile;
    if (said.disk_write_limit > 0) {
        out_replay->options.disk_write_limit = said.disk_write_limit;
        out_replay->options.given[CLI_FLAG_DISK_WRITE_LIMIT] = 1;
    }
    if (!cli_given(options, CLI_FLAG_THREADS)) {
        out_replay->options.threads = said.threads;
        out_replay->options.given[CLI_FLAG_THREADS] = 1;
    }
    CLI_TRY_GOTO(status, rebuild(out_replay, &said, is_other_profile), fail);
    if (is_other_profile)
        say_uncalibrated(out_replay);
    else
        say_other_times(out_replay);
    return COH_OK;
fail:
    cli_job_close(job);
    return status;
}

void cli_replay_close(cli_replay *replay)
{
    cli_job_close(&replay->job);
}
