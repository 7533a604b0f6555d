#include "cli/job.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/adapters.h"
#include "cli/artefact.h"
#include "cli/budget.h"
#include "cli/dtype.h"
#include "cli/epochs.h"
#include "cli/frozen.h"
#include "cli/input.h"
#include "cli/writes.h"

static int is_any_frozen(const coh_model *model)
{
    return model->adapters.rank > 0 || model->adapters.freeze[0];
}

/* --freeze and --lora; what a checkpoint's run froze as well, is not frozen anew. */
static coh_status set_adapters(cli_job *job)
{
    const coh_adapters *before = &job->adapters_before, *now = &job->model.adapters;
    job->adapters_before = job->model.adapters;
    CLI_TRY(cli_adapters_set(job->options, &job->model));
    job->freezes_anew = now->rank != before->rank || strcmp(now->freeze, before->freeze) != 0;
    return COH_OK;
}

static coh_status resume_recipe(cli_job *job)
{
    const cli_options *options = job->options;
    if (options->operand)
        return cli_fail(COH_ERR_ARGUMENT,
                        "the model comes from the checkpoint with --resume: leave '%s' out",
                        options->operand);
    coh_status status = cli_weights_open_checkpoint(options->resume, &job->weights);
    if (status == COH_ERR_CORRUPT)
        CLI_TRY(cli_weights_check_not_in_use(options->resume));
    CLI_TRY(status);
    CLI_TRY(cli_recipe_from_note(job->weights.facts.note_json, &job->recipe));
    CLI_TRY(cli_recipe_override(&job->recipe, options));
    job->resumed = 1;
    job->first_step = job->weights.facts.step;
    if (job->first_step >= job->recipe.steps)
        return cli_fail(COH_ERR_ARGUMENT,
                        "%s is at step %" PRIu64 " already, and the run is to end at step %" PRIu64
                        ": give --steps %" PRIu64 " or more to go on",
                        job->weights.facts.path, job->first_step, job->recipe.steps,
                        job->first_step + 1);
    CLI_TRY(cli_recipe_open_tokenizer(&job->recipe, options, &job->tokenizer));
    CLI_TRY(coh_model_resolve(job->weights.facts.path, 0, &job->model));
    CLI_TRY(cli_weights_check_vocabulary(&job->model, job->tokenizer));
    const coh_dtype trained = coh_model_size_get(&job->model).dtype,
                    dtype = cli_dtype_keep(options, trained);
    coh_model_dtype_set(&job->model, dtype);
    job->adapters_before = job->model.adapters;
    if (dtype != trained && dtype == COH_DTYPE_BF16 && is_any_frozen(&job->model)) {
        int is_rounded;
        CLI_TRY(cli_frozen_is_rounded(&job->model, &job->weights, trained, &job->adapters_before,
                                      &is_rounded));
        if (is_rounded)
            cli_note("note: what is frozen is rounded to bf16, also in checkpoints and exports");
    }
    if (dtype != trained)
        cli_note("dtype %s -> %s: other rounding, the run will not continue bit for bit",
                 cli_dtype_name(trained), cli_dtype_name(dtype));
    return COH_OK;
}

/* Other ids than the weights were trained on are a choice, and hardly ever meant. */
static void say_other_tokenizer(const cli_job *job)
{
    cli_recipe noted;
    if (job->weights.checkpoint &&
        cli_recipe_from_note(job->weights.facts.note_json, &noted) == COH_OK &&
        noted.tokenizer_identity != job->recipe.tokenizer_identity)
        cli_note(
            "note: the checkpoint was trained with another tokenizer (%s), whose ids mean other"
            " text",
            noted.tokenizer);
}

/* --dtype; else what a checkpoint was trained in, or the machine computes fastest, unless that
 * rounds what is to stay as it is. */
static coh_status choose_dtype(cli_job *job)
{
    int is_rounded = 0;
    const cli_options *options = job->options;
    const coh_dtype trained = coh_model_size_get(&job->model).dtype;
    coh_dtype dtype = job->model.checkpoint[0] ? cli_dtype_keep(options, trained)
                      : job->on_gpu            ? cli_dtype_keep(options, COH_DTYPE_BF16)
                                               : cli_dtype_choose(options);
    if (dtype == COH_DTYPE_BF16 && is_any_frozen(&job->model))
        CLI_TRY(cli_frozen_is_rounded(&job->model, &job->weights, trained, &job->adapters_before,
                                      &is_rounded));
    if (is_rounded) {
        if (cli_given(options, CLI_FLAG_DTYPE)) {
            cli_note("note: what is frozen is rounded to bf16, also in checkpoints and exports;"
                     " --dtype f32 keeps every bit");
        } else {
            dtype = COH_DTYPE_F32;
            cli_note("note: in f32, since bf16 would round what is frozen; --dtype bf16 takes half"
                     " the memory and rounds");
        }
    }
    coh_model_dtype_set(&job->model, dtype);
    return COH_OK;
}

/* A plan needs no weights, a config.json is enough; but where something is frozen, how that is
 * stored decides the dtype, and it decides alike for plan and train. */
static coh_status open_weights(cli_job *job)
{
    const coh_model *model = &job->model;
    const int are_there =
        model->checkpoint[0] || (model->folder[0] && cli_input_has_tensors(model->folder));
    if (job->options->command == CLI_TRAIN || (is_any_frozen(model) && are_there))
        return cli_weights_open(&job->model, &job->weights);
    return COH_OK;
}

/* How many rows the table has where --vocabulary says nothing: as many as the tokenizer has ids.
 * The published models beside GPT-2's keep their own as well, so that their sizes are those
 * published; a model that is there has what it has, and may lack rows for ids that were added. */
static int64_t choose_vocabulary(const cli_job *job)
{
    const int64_t ids = coh_tokenizer_vocabulary(job->tokenizer);
    coh_model model;
    if (coh_model_preset(job->options->operand, 0, &model) != COH_OK)
        return coh_tokenizer_own_vocabulary(job->tokenizer);
    if (model.family == COH_FAMILY_GPT2)
        return ids;
    const int64_t own = coh_model_size_get(&model).vocabulary;
    return own > ids ? own : ids;
}

/* The model, and how many rows its table has, which is at least what the tokenizer needs. */
static coh_status resolve_model(cli_job *job)
{
    const cli_options *options = job->options;
    const int64_t ids = coh_tokenizer_vocabulary(job->tokenizer);
    const int given = cli_given(options, CLI_FLAG_VOCABULARY);
    if (given && options->vocabulary < ids)
        return cli_fail(COH_ERR_ARGUMENT,
                        "--vocabulary %" PRId64 " is below the tokenizer's %" PRId64
                        ": give at least that",
                        options->vocabulary, ids);
    CLI_TRY(coh_model_resolve(options->operand,
                              given ? options->vocabulary : choose_vocabulary(job), &job->model));
    return cli_weights_check_vocabulary(&job->model, job->tokenizer);
}

static coh_status fresh_recipe(cli_job *job)
{
    const cli_options *options = job->options;
    CLI_TRY(cli_recipe_from_options(options, &job->recipe));
    CLI_TRY(coh_tokenizer_open(job->recipe.tokenizer, &job->tokenizer));
    job->recipe.tokenizer_identity = coh_tokenizer_identity(job->tokenizer);
    CLI_TRY(resolve_model(job));
    const int64_t positions = coh_model_size_get(&job->model).positions;
    if (!cli_given(options, CLI_FLAG_SEQUENCE) && job->recipe.sequence > positions)
        job->recipe.sequence = positions;
    cli_recipe_keep_path(job->model.folder, job->recipe.base);
    CLI_TRY(set_adapters(job));
    CLI_TRY(open_weights(job));
    CLI_TRY(choose_dtype(job));
    cli_weights_say(&job->model);
    say_other_tokenizer(job);
    return COH_OK;
}

static coh_status check_gradients(const cli_job *job)
{
    if (!cli_given(job->options, CLI_FLAG_GRADIENTS) || job->options->gradients == COH_DTYPE_F32 ||
        coh_model_size_get(&job->model).dtype == COH_DTYPE_BF16)
        return COH_OK;
    return cli_fail(COH_ERR_ARGUMENT, "--gradients bf16 is of weights in bf16, and these are f32:"
                                      " leave it out, or add --dtype bf16");
}

static coh_status check_sequence(const cli_job *job)
{
    const int64_t positions = coh_model_size_get(&job->model).positions;
    if (job->recipe.sequence <= positions)
        return COH_OK;
    return cli_fail(COH_ERR_ARGUMENT,
                    "--sequence %" PRId64 " is longer than the %" PRId64
                    " positions of %s: lower it",
                    job->recipe.sequence, positions, job->model.name);
}

/* ---- the plan, and the micro-batch it is for ---- */

static void drop_plan(cli_job *job)
{
    coh_plan_destroy(job->plan);
    coh_graph_destroy(job->graph);
    job->plan = NULL;
    job->graph = NULL;
}

/* Can the profile price a disk? The built-in one can. */
static int knows_drive(const cli_job *job, coh_profile_summary *facts)
{
    *facts = (coh_profile_summary){ 0 };
    if (!job->profile)
        return 1;
    return coh_profile_summarize(job->profile, facts) == COH_OK && facts->read_bytes_per_s > 0 &&
           facts->write_bytes_per_s > 0;
}

/* A GPU whose host memory is too small has a drive as well: 1 if there is one, not yet in use. */
static int take_profile_disk(cli_job *job)
{
    coh_profile_summary facts;
    if (!job->on_gpu || cli_budget_on_gpu(job->options) || job->plan_options.disk_bytes > 0 ||
        job->options->plan_file || !knows_drive(job, &facts))
        return 0;
    job->plan_options.disk_bytes = facts.disk_bytes;
    return facts.disk_bytes > 0;
}

/* That of the recipe; any, where the plan is to say which. */
static coh_sweep_order order_of(const cli_job *job)
{
    int is_given = cli_given(job->options, CLI_FLAG_SWEEP_ORDER);
    if (!job->is_order_chosen &&
        (is_given ? job->options->sweep_order == COH_SWEEP_AUTO : job->options->plan_file != NULL))
        return COH_SWEEP_AUTO;
    return job->recipe.by_layers ? COH_SWEEP_LAYER : COH_SWEEP_MICROBATCH;
}

/* Those of a plan with the recipe's micro-batch. */
static void set_plan_options(cli_job *job)
{
    const cli_recipe *recipe = &job->recipe;
    cli_budget_plan_options(job->options, job->profile, COH_PLAN_TRAIN, &job->plan_options);
    job->plan_options.microbatch_count = (int32_t)(recipe->batch / recipe->micro_batch);
    job->plan_options.sweep_order = order_of(job);
    job->plan_options.f32_gradients = (int32_t)recipe->f32_gradients;
    job->plan_options.uncalibrated = job->uncalibrated;
    job->plan_options.deferred_update = recipe->clip > 0;
    job->plan_options.wear_bytes = job->wear_bytes;
    job->plan_options.pins = job->pins;
    job->plan_options.pin_count = job->pin_count;
    job->plan_options.earlier = job->earlier;
    job->plan_options.earlier_count = job->earlier_count;
}

/* `any_disk`: as if --disk were given, without a limit. */
static coh_status make_plan(cli_job *job, int any_disk)
{
    const cli_recipe *recipe = &job->recipe;
    drop_plan(job);
    CLI_TRY(coh_model_train_graph(&job->model, recipe->micro_batch, recipe->sequence, &job->graph));
    set_plan_options(job);
    if (any_disk)
        job->plan_options.disk_bytes = UINT64_MAX;
    coh_status status = cli_budget_plan(job->options, job->graph, &job->plan_options, &job->plan);
    if (status == COH_ERR_FULL && take_profile_disk(job))
        status = cli_budget_plan(job->options, job->graph, &job->plan_options, &job->plan);
    CLI_TRY(status);
    CLI_TRY(coh_plan_summarize(job->plan, &job->summary));
    job->plan_options.sweep_order = job->summary.sweep_order;
    cli_recipe_set_order(&job->recipe, job->summary.sweep_order);
    return COH_OK;
}

/* The next divisor of the batch above or below; 0 if there is none. */
static int64_t next_divisor(int64_t batch, int64_t from, int direction)
{
    for (int64_t next = from + direction; next >= 1 && next <= batch; next += direction)
        if (batch % next == 0)
            return next;
    return 0;
}

/* A step that another micro-batch is taken for takes at most this part of the time. */
#define SHORTER 0.97

/* What plans with that micro-batch are hardly faster than, whatever drive there is. */
static coh_status least_step(cli_job *job, int64_t micro_batch, uint64_t *out_ns)
{
    const coh_plan_options kept = job->plan_options;
    const int64_t kept_micro_batch = job->recipe.micro_batch;
    coh_graph *graph = NULL;
    CLI_TRY(coh_model_train_graph(&job->model, micro_batch, job->recipe.sequence, &graph));
    job->recipe.micro_batch = micro_batch;
    set_plan_options(job);
    (void)take_profile_disk(job); /* more room is never slower */
    const coh_status status = coh_plan_least_ns(graph, &job->plan_options, out_ns);
    job->recipe.micro_batch = kept_micro_batch;
    job->plan_options = kept;
    coh_graph_destroy(graph);
    return status;
}

/* Goes over the divisors of the batch above the present one, or if the first of them is no faster
 * below it, for as long as the predicted step gets shorter. Other bits for less than predictions
 * are apart from what is measured are a bad bargain. */
static coh_status plan_faster(cli_job *job)
{
    cli_recipe *recipe = &job->recipe;
    const int64_t wanted = recipe->micro_batch;
    const uint64_t wanted_ns = job->summary.step_ns;
    int64_t best = wanted;
    uint64_t best_ns = wanted_ns;
    for (int direction = 1; direction >= -1 && best == wanted; direction -= 2) {
        int64_t next;
        while ((next = next_divisor(recipe->batch, best, direction)) > 0) {
            uint64_t least_ns;
            CLI_TRY(least_step(job, next, &least_ns));
            if (least_ns >= best_ns)
                break; /* not worth a plan */
            recipe->micro_batch = next;
            coh_status status = make_plan(job, 0);
            if (status == COH_ERR_FULL)
                break;
            CLI_TRY(status);
            if (job->summary.step_ns >= best_ns)
                break;
            best = next;
            best_ns = job->summary.step_ns;
        }
    }
    if ((double)best_ns > SHORTER * (double)wanted_ns)
        best = wanted;
    if (recipe->micro_batch == best)
        return COH_OK;
    recipe->micro_batch = best;
    return make_plan(job, 0);
}

/* Goes down the divisors of the batch until one fits: COH_OK. COH_ERR_FULL: none does, and the
 * sentence is that of the smallest. */
static coh_status plan_smaller(cli_job *job, int any_disk)
{
    coh_status status = COH_ERR_FULL;
    cli_recipe *recipe = &job->recipe;
    while (status == COH_ERR_FULL && recipe->micro_batch > 1) {
        recipe->micro_batch = next_divisor(recipe->batch, recipe->micro_batch, -1);
        status = make_plan(job, any_disk);
    }
    return status;
}

/* No micro-batch that may be taken fits: the change that costs least is looked for and named. */
static coh_status refuse(cli_job *job, int64_t wanted, int may_lower)
{
    char why[1024], bytes[32];
    coh_profile_summary facts;
    const cli_options *options = job->options;
    coh_status status = COH_ERR_FULL;
    snprintf(why, sizeof(why), "%s", coh_last_error());
    if (!may_lower && wanted > 1) {
        status = plan_smaller(job, 0);
        if (status == COH_OK)
            return cli_fail(COH_ERR_FULL, "%s; or give --micro-batch %" PRId64 ": other rounding",
                            why, job->recipe.micro_batch);
    } else if (wanted > 1) {
        snprintf(why, sizeof(why), "no micro-batch from %" PRId64 " down to 1 fits; with 1: %s",
                 wanted, coh_last_error());
    }
    if (status != COH_ERR_FULL)
        return status;
    if (job->on_gpu) {
        CLI_TRY(coh_profile_summarize(job->profile, &facts));
        return cli_fail(COH_ERR_FULL,
                        "%s (of --profile %s, whose entries device-memory,"
                        " host-memory and disk can be replaced)",
                        why, options->profile ? options->profile : facts.name);
    }
    if (options->disk_folder[0] || options->emulate_host_bytes)
        return cli_fail(COH_ERR_FULL, "%s", why);
    if (!knows_drive(job, &facts))
        return cli_fail(COH_ERR_FULL,
                        "%s; a disk may help, and --profile %s knows no drive: cohobate profile"
                        " --disk DIR -o FILE adds it",
                        why, options->profile);
    job->recipe.micro_batch = wanted;
    status = make_plan(job, 1);
    if (status == COH_ERR_FULL && may_lower)
        status = plan_smaller(job, 1);
    if (status == COH_ERR_FULL) { /* the sentence is copied: cli_fail writes where it stands */
        snprintf(why, sizeof(why), "%s", coh_last_error());
        return cli_fail(COH_ERR_FULL, "also with --disk DIR, which is needed: %s", why);
    }
    CLI_TRY(status);
    return cli_fail(
        COH_ERR_FULL, "%s; the smallest change: --disk DIR:%s, where micro-batch %" PRId64 " fits",
        why, cli_size_whole(job->summary.peak_bytes[2], bytes), job->recipe.micro_batch);
}

/* A plan that was written for less than the default, since nothing larger fitted its budget, is
 * taken as it is. */
static coh_status use_planned_micro_batch(cli_job *job)
{
    cli_recipe *recipe = &job->recipe;
    coh_plan_file file;
    CLI_TRY(coh_plan_file_read(job->options->plan_file, &file));
    const int64_t count = file.microbatch_count;
    if (count < 1 || recipe->batch % count != 0 || recipe->batch / count == recipe->micro_batch)
        return COH_OK; /* where it is for another batch, reading it says so */
    cli_note("micro-batch %" PRId64 " -> %" PRId64 ": that of the plan; other rounding",
             recipe->micro_batch, recipe->batch / count);
    recipe->micro_batch = recipe->batch / count;
    return COH_OK;
}

/* The micro-batch is part of the numeric plan, so neither a budget nor a price changes it, unless
 * --micro-batch auto says that they may. */
static coh_status choose_plan(cli_job *job)
{
    int64_t wanted = job->recipe.micro_batch;
    const int may_change = cli_micro_batch_is_auto(job->options);
    cli_budget_plan_options(job->options, job->profile, COH_PLAN_TRAIN, &job->plan_options);
    CLI_TRY(coh_plan_check_budgets(&job->plan_options)); /* no smaller micro-batch helps */
    if (job->options->plan_file && !job->resumed && job->options->micro_batch == 0)
        CLI_TRY(use_planned_micro_batch(job));
    coh_status status = make_plan(job, 0);
    if (job->options->plan_file)
        return status;
    const int fits = status == COH_OK;
    const uint64_t wanted_ns = fits ? job->summary.step_ns : 0;
    if (fits && may_change)
        status = plan_faster(job);
    else if (status == COH_ERR_FULL && may_change && wanted > 1)
        status = plan_smaller(job, 0);
    if (status == COH_ERR_FULL)
        return refuse(job, wanted, may_change);
    CLI_TRY(status);
    if (fits && job->recipe.micro_batch != wanted)
        cli_note("micro-batch %" PRId64 " -> %" PRId64
                 ": other rounding; the step is predicted to take %.2f of its time",
                 wanted, job->recipe.micro_batch, (double)job->summary.step_ns / (double)wanted_ns);
    else if (job->recipe.micro_batch != wanted)
        cli_note("micro-batch %" PRId64 " -> %" PRId64
                 ": other rounding; nothing larger fits this budget",
                 wanted, job->recipe.micro_batch);
    return COH_OK;
}

/* ---- what the drive is written ---- */

/* No plan writes so little. The limit that would do is of the step by which bound_writes would hold
 * a plan to it, `step_ns`; it is named where it does. */
static coh_status refuse_writes(cli_job *job, double before, double step_ns)
{
    CLI_TRY(coh_plan_least_written(job->graph, &job->plan_options, &job->wear_bytes));
    const double least = (double)job->wear_bytes * CLI_DAY_NS / step_ns;
    if (least == 0 || least >= before)
        return cli_writes_refuse(job->options, before, before);
    const coh_status status = make_plan(job, 0);
    if (status != COH_OK && status != COH_ERR_FULL)
        return status;
    return cli_writes_refuse(job->options, before, status == COH_OK ? least : 0);
}

/* --disk-write-limit is of a day, the planner's limit of a step: how many steps a day has, the plan
 * says. A plan that writes less may be faster, so it is asked again. */
static coh_status bound_writes(cli_job *job)
{
    enum { TRIES = 4 };
    const cli_options *options = job->options;
    const double limit = (double)options->disk_write_limit;
    char allowed[32];
    if (!cli_given(options, CLI_FLAG_DISK_WRITE_LIMIT))
        return COH_OK;
    for (int i = 0; i < TRIES && cli_writes_per_day(job) > limit; i++) {
        const double before = cli_writes_per_day(job), step_ns = (double)job->summary.step_ns;
        job->wear_bytes = (uint64_t)(limit * step_ns / CLI_DAY_NS);
        if (options->plan_file)
            return cli_writes_refuse(options, before, 0);
        coh_status status = job->wear_bytes > 0 ? make_plan(job, 0) : COH_ERR_FULL;
        if (status == COH_ERR_FULL)
            return refuse_writes(job, before, step_ns);
        CLI_TRY(status);
    }
    if (cli_writes_per_day(job) <= limit)
        return COH_OK;
    return cli_fail(COH_ERR_FULL,
                    "no plan was found that writes at most %s to the drive a day"
                    " (--disk-write-limit): raise it, or give more --device-memory",
                    coh_size_format(options->disk_write_limit, allowed, sizeof(allowed)));
}

/* What bits depend on is chosen as if no run had found anything; the plan with that is then made by
 * what runs found. */
static coh_status plan_by_runs(cli_job *job)
{
    const cli_options *options = job->options;
    const int by_time = cli_micro_batch_is_auto(options) || order_of(job) == COH_SWEEP_AUTO;
    job->uncalibrated = job->calibration.runs > 0 && by_time && !options->plan_file;
    CLI_TRY(choose_plan(job));
    CLI_TRY(bound_writes(job));
    if (!job->uncalibrated)
        return COH_OK;
    job->uncalibrated = 0;
    job->is_order_chosen = 1;
    job->wear_bytes = 0;
    CLI_TRY(make_plan(job, 0));
    return bound_writes(job);
}

coh_status cli_job_open_unplanned(const cli_options *options, cli_job *out_job)
{
    coh_status status;
    *out_job = (cli_job){ .options = options };
    CLI_TRY_GOTO(status, cli_budget_check(options), fail);
    CLI_TRY_GOTO(status, cli_budget_open_profile(options, &out_job->profile), fail);
    CLI_TRY_GOTO(status, cli_budget_open_pins(options, &out_job->pins, &out_job->pin_count), fail);
    out_job->on_gpu = cli_budget_is_gpu(out_job->profile) || cli_budget_on_gpu(options);
    CLI_TRY_GOTO(status, cli_calibration_open(options, &out_job->profile, &out_job->calibration),
                 fail);
    CLI_TRY_GOTO(status, options->resume ? resume_recipe(out_job) : fresh_recipe(out_job), fail);
    CLI_TRY_GOTO(status, check_sequence(out_job), fail);
    CLI_TRY_GOTO(status, check_gradients(out_job), fail);
    if (options->command == CLI_PLAN)
        CLI_TRY_GOTO(status, cli_epochs_take_named(out_job), fail);
    out_job->model.dropout = out_job->recipe.dropout;
    return COH_OK;
fail:
    cli_job_close(out_job);
    return status;
}

/* In f32. */
static uint64_t largest_chunk(const cli_job *job)
{
    const uint64_t all = sizeof(float) * job->summary.parameter_count;
    return job->summary.chunk_bytes < all ? job->summary.chunk_bytes : all;
}

/* The engine would fail where it takes its arenas: what is there now, a plan for it can be asked
 * for. */
static coh_status check_memory(const cli_job *job)
{
    const uint64_t device = job->on_gpu ? 0 : job->summary.peak_bytes[0];
    const uint64_t host = job->summary.peak_bytes[1], most = coh_machine_most_bytes();
    const uint64_t stages = job->on_gpu ? cli_budget_stage_bytes(largest_chunk(job)) : 0;
    char taken[32], there[32], staged[32];
    if (device + stages <= most && host <= most - device - stages)
        return COH_OK;
    if (job->on_gpu)
        return cli_fail(COH_ERR_FULL,
                        "host memory: the plan takes %s of this machine's memory, and its chunks "
                        "%s on their way; %s may be taken now: %" PRIu64
                        " bytes short; give --host-memory %" PRIu64 "B",
                        coh_size_format(host, taken, sizeof(taken)),
                        coh_size_format(stages, staged, sizeof(staged)),
                        coh_size_format(most, there, sizeof(there)), host + stages - most,
                        most > stages ? most - stages : 0);
    return cli_fail(COH_ERR_FULL,
                    "device memory: the plan takes %s of this machine's memory, and %s may be taken"
                    " now (MemAvailable, the cgroup's limit and RLIMIT_AS): %" PRIu64
                    " bytes short; give --device-memory %" PRIu64 "B%s",
                    coh_size_format(device + host, taken, sizeof(taken)),
                    coh_size_format(most, there, sizeof(there)), device + host - most,
                    most > host ? most - host : most,
                    most > host ? "" : " and less --emulate-host");
}

coh_status cli_job_open(const cli_options *options, cli_job *out_job)
{
    return cli_job_open_beside(options, NULL, 0, out_job);
}

coh_status cli_job_open_beside(const cli_options *options, const coh_plan *const *earlier,
                               int32_t earlier_count, cli_job *out_job)
{
    CLI_TRY(cli_job_open_unplanned(options, out_job));
    out_job->earlier = earlier;
    out_job->earlier_count = earlier_count;
    coh_status status = cli_budget_use_kernels(out_job->recipe.kernels, !options->kernels,
                                               coh_model_size_get(&out_job->model).dtype);
    if (status == COH_OK)
        status = plan_by_runs(out_job);
    if (status == COH_OK && options->command == CLI_TRAIN)
        status = check_memory(out_job);
    out_job->earlier = out_job->plan_options.earlier = NULL;
    out_job->earlier_count = out_job->plan_options.earlier_count = 0;
    if (status != COH_OK)
        cli_job_close(out_job);
    return status;
}

void cli_job_close(cli_job *job)
{
    drop_plan(job);
    coh_profile_destroy(job->profile);
    job->profile = NULL;
    free(job->pins);
    job->pins = NULL;
    cli_weights_close(&job->weights);
    coh_tokenizer_close(job->tokenizer);
    job->tokenizer = NULL;
}

uint64_t cli_job_emulated_bytes(const cli_job *job)
{
    return job->on_gpu ? 0 : job->plan_options.emulate_host_bytes;
}

double cli_job_predicted_seconds(const cli_job *job, uint64_t step_count)
{
    return ((double)job->summary.step_ns * (double)step_count + (double)job->summary.drain_ns) *
           1e-9;
}
