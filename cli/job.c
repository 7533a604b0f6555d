/* Opens a training run: resolves profile, model, weights, recipe, graph and plan. The one idea:
 * train and plan open the same job, so the plan that is printed is the one that runs. Next:
 * job_plan.c makes the plan, recipe.c the recipe. */
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
#include "cli/job_plan.h"

static int is_any_frozen(const coh_model *model)
{
    return model->adapters.rank > 0 || model->adapters.freeze[0];
}

/* Applies --freeze and --lora, and finds whether they freeze parameters that the checkpoint's run
 * trained. */
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
    job->resumed = 1;
    job->first_step = job->weights.facts.step;
    CLI_TRY(cli_recipe_override(&job->recipe, options, job->first_step));
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

/* Prints a note if the tokenizer differs from that of the weights' training, which is rarely
 * intended. */
static void say_other_tokenizer(const cli_job *job)
{
    cli_recipe noted;
    if (job->weights.checkpoint &&
        cli_recipe_from_note(job->weights.facts.note_json, &noted) == COH_OK &&
        noted.tokenizer_identity != 0 && job->recipe.tokenizer_identity != 0 &&
        noted.tokenizer_identity != job->recipe.tokenizer_identity)
        cli_note(
            "note: the checkpoint was trained with another tokenizer (%s), whose ids mean other"
            " text",
            noted.tokenizer);
}

/* Chooses --dtype; else a checkpoint's dtype, or the machine's fastest, unless that would round
 * frozen parameters. */
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

/* Opens the weights if needed. A plan needs no weights, config.json is enough. But if something is
 * frozen, its stored dtype decides the run's dtype, for plan as for train. */
static coh_status open_weights(cli_job *job)
{
    const coh_model *model = &job->model;
    const int are_there =
        model->checkpoint[0] || (model->folder[0] && cli_input_has_tensors(model->folder));
    if (job->options->command == CLI_TRAIN || (is_any_frozen(model) && are_there))
        return cli_weights_open(&job->model, &job->weights);
    return COH_OK;
}

/* The number of rows of the token table without --vocabulary: the tokenizer's number of ids;
 * without a tokenizer, as in the model (0). Published models other than GPT-2 keep at least their
 * own rows, so that they have the published sizes. An existing model keeps its rows, and may lack
 * rows for added ids. */
static int64_t choose_vocabulary(const cli_job *job)
{
    coh_model model;
    if (!job->tokenizer)
        return 0;
    const int64_t ids = coh_tokenizer_vocabulary(job->tokenizer);
    if (coh_model_preset(job->options->operand, 0, &model) != COH_OK)
        return coh_tokenizer_own_vocabulary(job->tokenizer);
    if (model.family == COH_FAMILY_GPT2)
        return ids;
    const int64_t own = coh_model_size_get(&model).vocabulary;
    return own > ids ? own : ids;
}

/* Resolves the model and the number of rows of its table, at least as many as the tokenizer
 * needs. */
static coh_status resolve_model(cli_job *job)
{
    const cli_options *options = job->options;
    const int64_t ids = job->tokenizer ? coh_tokenizer_vocabulary(job->tokenizer) : 0;
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
    CLI_TRY(cli_recipe_open_named(job->recipe.tokenizer, &job->tokenizer));
    if (job->tokenizer)
        job->recipe.tokenizer_identity = coh_tokenizer_identity(job->tokenizer);
    CLI_TRY(resolve_model(job));
    const int64_t positions = coh_model_size_get(&job->model).positions;
    if (!cli_given(options, CLI_FLAG_SEQUENCE) && job->recipe.sequence > positions)
        job->recipe.sequence = positions;
    cli_recipe_keep_path(job->model.folder, job->recipe.base);
    cli_recipe_set_rate(&job->recipe, options, job->model.folder[0] || job->model.checkpoint[0]);
    if (!cli_given(options, CLI_FLAG_EPOCHS)) /* with --epochs the data determines the steps */
        CLI_TRY(cli_recipe_set_steps(&job->recipe, options, (uint64_t)options->steps));
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

/* Asks whether a GPU adds by atomics in attention with the heads of this run. Fails: with the limit
 * as text. */
static coh_status ask_for_atomics(const cli_job *job)
{
    const coh_model_size size = coh_model_size_get(&job->model);
    const coh_attention_attributes attributes = { .heads = size.heads };
    const coh_shape qkv = { .dtype = size.dtype,
                            .rank = 3,
                            .dim = { 1, job->recipe.sequence, 3 * size.channels } };
    if (size.heads <= 0 || size.channels < size.heads)
        return cli_fail(COH_ERR_SHAPE, "a model without heads");
    return coh_kind_attention_atomic.devices[COH_DEVICE_CUDA].accepts(&attributes, &qkv);
}

/* Refuses --atomics if no kind of the run can use atomics; a resumed run continues without them. */
static coh_status settle_atomics(cli_job *job)
{
    const char *of = NULL;
    char limit[256];
    if (!job->on_gpu)
        of = "a GPU";
    else if (coh_model_size_get(&job->model).dtype != COH_DTYPE_BF16)
        of = "weights in bf16";
    else if (job->recipe.dropout > 0)
        of = "attention without dropout";
    else if (ask_for_atomics(job) != COH_OK) {
        snprintf(limit, sizeof(limit), "attention on cuDNN (%s)", coh_last_error());
        of = limit;
    }
    const int is_given = cli_given(job->options, CLI_FLAG_ATOMICS);
    uint64_t are_on = is_given ? (uint64_t)job->options->atomics : job->recipe.atomics;
    if (are_on && of != NULL && is_given)
        return cli_fail(COH_ERR_ARGUMENT, "--atomics on is of %s: leave it out", of);
    if (are_on && of != NULL) {
        cli_note("atomics on -> off: they are of %s", of);
        are_on = 0;
    } else if (are_on != job->recipe.atomics) {
        cli_note("atomics %s -> %s: other rounding, the run will not continue bit for bit",
                 job->recipe.atomics ? "on" : "off", are_on ? "on" : "off");
    }
    job->recipe.atomics = are_on;
    job->model.atomics = (int32_t)are_on;
    return COH_OK;
}

/* Checks patterns of groups before planning, which may take minutes. */
static coh_status check_groups(const cli_job *job)
{
    const cli_recipe *recipe = &job->recipe;
    coh_graph *graph;
    CLI_TRY(cli_hyperparameters_check(recipe));
    if (recipe->lr_for.count + recipe->weight_decay_for.count == 0)
        return COH_OK;
    CLI_TRY(coh_model_train_graph(&job->model, recipe->micro_batch, recipe->sequence, &graph));
    const coh_status status = cli_parameter_groups_check(recipe, graph);
    coh_graph_destroy(graph);
    return status;
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
    CLI_TRY_GOTO(status, settle_atomics(out_job), fail);
    if (options->command == CLI_PLAN)
        CLI_TRY_GOTO(status, cli_epochs_take_named(out_job), fail);
    out_job->model.dropout = out_job->recipe.dropout;
    CLI_TRY_GOTO(status, check_groups(out_job), fail);
    return COH_OK;
fail:
    cli_job_close(out_job);
    return status;
}

/* Bytes in f32. */
static uint64_t largest_chunk(const cli_job *job)
{
    const uint64_t all = sizeof(float) * job->summary.parameter_count;
    return job->summary.chunk_bytes < all ? job->summary.chunk_bytes : all;
}

/* Checks the plan against free memory, since the engine would fail when it allocates its arenas.
 * The refusal names a budget for which a plan fits. */
static coh_status check_memory(const cli_job *job)
{
    const uint64_t device = job->on_gpu ? 0 : job->summary.peak_bytes[COH_TIER_DEVICE];
    const uint64_t host = job->summary.peak_bytes[COH_TIER_HOST], most = coh_machine_most_bytes();
    const uint64_t stages = job->on_gpu ? cli_budget_stage_bytes(largest_chunk(job)) : 0;
    const uint64_t other = job->on_gpu ? stages : host;
    const coh_tier budget_tier = job->on_gpu ? COH_TIER_HOST : COH_TIER_DEVICE;
    if (device + stages <= most && host <= most - device - stages)
        return COH_OK;
    const coh_refusal refusal = {
        .struct_bytes = sizeof(refusal),
        .status = COH_ERR_FULL,
        .reason = COH_REFUSAL_MACHINE,
        .tier = (int32_t)budget_tier,
        .is_gpu = job->on_gpu,
        .given_bytes = most,
        .needed_bytes = device + host + stages,
        .short_bytes = device + host + stages - most,
        .is_proven = 1,
        .change_count = 1,
        .changes = { { .kind = COH_CHANGE_LOWER,
                       .tier = most > other ? (int32_t)budget_tier : -1,
                       .bytes = most > other ? most - other : most } },
    };
    return coh_refuse(&refusal);
}

/* The last reading of flags before the plan. */
static void set_budget(cli_job *job)
{
    cli_budget_resolve(job->options, job->profile, &job->budget);
    job->budget.takes_planned_micro_batch &= !job->resumed;
    job->budget.options.pins = job->pins;
    job->budget.options.pin_count = job->pin_count;
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
    set_budget(out_job);
    if (status == COH_OK)
        status = cli_job_plan(out_job);
    if (status == COH_OK && out_job->budget.is_run_here)
        status = check_memory(out_job);
    out_job->earlier = out_job->plan_options.earlier = NULL;
    out_job->earlier_count = out_job->plan_options.earlier_count = 0;
    if (status != COH_OK)
        cli_job_close(out_job);
    return status;
}

void cli_job_close(cli_job *job)
{
    coh_plan_destroy(job->plan);
    coh_graph_destroy(job->graph);
    job->plan = NULL;
    job->graph = NULL;
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
    return job->on_gpu ? 0 : job->plan_options.host_memory_bytes;
}

double cli_job_predicted_seconds(const cli_job *job, uint64_t step_count)
{
    return ((double)job->summary.step_ns * (double)step_count + (double)job->summary.drain_ns) *
           1e-9;
}
