/* Opens a training run: resolves profile, model, weights, recipe, graph and plan. The one idea:
 * train and plan open the same job, so the plan that is printed is the one that runs. The library
 * makes the choices of the plan that the budget permits (cohobate/plan_batch.h). Next: recipe.c
 * makes the recipe, budget.c the budget. */
#include "cli/job.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/adapters.h"
#include "cli/agree.h"
#include "cli/artefact.h"
#include "cli/budget.h"
#include "cli/dtype.h"
#include "cli/input.h"
#include "cli/lacks.h"
#include "cli/launch.h"
#include "cli/progress.h"
#include "cli/replay.h"
#include "cli/settle.h"
#include "cli/shares.h"
#include "cli/topology.h"
#include "cli/train.h"
#include "cli/validation.h"
#include "cli/watch.h"

/* ---- the trained part ---- */

/* Applies --freeze and --lora, and finds whether they freeze parameters that the checkpoint's run
 * trained. */
static coh_status set_adapters(cli_job *job)
{
    const coh_adapters *before = &job->adapters_before, *now = &job->model.adapters;
    job->adapters_before = job->model.adapters;
    CLI_TRY(cli_adapters_select(job->options, &job->model));
    CLI_TRY(cli_weights_open_adapters(job->options, &job->model, &job->weights));
    job->freezes_anew = now->rank != before->rank || strcmp(now->freeze, before->freeze) != 0;
    return COH_OK;
}

/* Has the tensor a number whose lower 16 bits are not 0? */
static coh_status find_longer(cli_weights *weights, const coh_model_tensor *tensor, int *out_found)
{
    enum { PIECE = 16384 };
    float values[PIECE];
    const uint64_t elements =
        (uint64_t)tensor->dim[0] * (uint64_t)(tensor->rank > 1 ? tensor->dim[1] : 1);
    for (uint64_t begin = 0; begin < elements && !*out_found; begin += PIECE) {
        const uint64_t count = elements - begin < PIECE ? elements - begin : PIECE;
        CLI_TRY(cli_weights_numbers(weights, tensor->name, begin, count, values));
        for (uint64_t i = 0; i < count; i++) {
            uint32_t bits;
            memcpy(&bits, &values[i], sizeof(bits));
            *out_found |= (bits & 0xffff) != 0;
        }
    }
    return COH_OK;
}

static coh_status look_at_stored(const coh_model *model, const cli_weights *weights, int64_t index,
                                 int *out_is_rounded)
{
    coh_folder_tensor found = { .dtype = coh_model_tensor_stored(model, index, model->stored) };
    if (weights->folder)
        CLI_TRY(coh_folder_tensor_at(weights->folder, index, &found));
    *out_is_rounded = found.dtype != COH_DTYPE_BF16;
    return COH_OK;
}

/* Would bf16 change a number of a frozen parameter? Frozen parameters have no optimizer states, and
 * so no stored low half: the rounding would be permanent. For a folder the dtypes of the frozen
 * tensors decide (from its files if they are open, else from config.json). A checkpoint, which
 * holds f32, is read until one number is not representable in bf16; tensors that its run held in
 * bf16, known from its dtype `trained` and its frozen parameters, are not read. */
static coh_status find_rounded(cli_job *job, coh_dtype trained, int *out_is_rounded)
{
    const coh_model *model = &job->model;
    cli_weights *weights = &job->weights;
    coh_model was = *model;
    coh_model_tensor tensor;
    was.adapters = job->adapters_before;
    *out_is_rounded = 0;
    if (model->adapters.rank == 0 && !model->adapters.freeze[0])
        return COH_OK; /* nothing is frozen */
    if (!model->folder[0] && !weights->checkpoint)
        return COH_OK; /* initialised by this run, in bf16 */
    for (int64_t i = 0; i < coh_model_tensor_count(model) && !*out_is_rounded; i++) {
        if (!coh_model_is_frozen(model, i))
            continue;
        CLI_TRY(coh_model_tensor_at(model, i, &tensor));
        if (!weights->checkpoint)
            CLI_TRY(look_at_stored(model, weights, i, out_is_rounded));
        else if (trained != COH_DTYPE_BF16 || !coh_model_is_frozen(&was, i))
            CLI_TRY(find_longer(weights, &tensor, out_is_rounded));
    }
    return COH_OK;
}

/* ---- the recipe ---- */

static int is_text(const char *flag, const char *path)
{
    int is = 0;
    if (!path || !path[0] || strcmp(path, "none") == 0)
        return 0;
    return cli_data_is_text(flag, path, &is) == COH_OK && is; /* opening reports other failures */
}

/* Opens the tokenizer of a resumed run. The run's own data is tokenized, so it continues without a
 * tokenizer that is gone, unless it is to read other text. */
static coh_status open_run_tokenizer(cli_job *job)
{
    const cli_options *options = job->options;
    const cli_recipe *recipe = &job->recipe;
    const char *validation = options->validation ? options->validation : recipe->validation;
    if (cli_given(options, CLI_FLAG_TOKENIZER) ||
        !cli_recipe_tokenizer_is_gone(recipe->tokenizer) || is_text("data", options->data) ||
        is_text("validation", validation))
        return cli_recipe_open_tokenizer(recipe, options, &job->tokenizer);
    cli_note_choice(
        "note: the tokenizer of the run, %s, no longer exists: the run continues "
        "without it, since its data is tokenized; other commands need it (--tokenizer PATH)",
        recipe->tokenizer);
    return COH_OK;
}

/* Is the folder of --save another one than the run's? A rank above 0 saves nothing. */
static int saves_elsewhere(const cli_job *job)
{
    char above[CLI_PATH_BYTES + 8];
    struct stat named, own;
    const cli_launch *launch = job->options->launch;
    const char *save = launch && launch->rank > 0 ? NULL : job->options->save;
    snprintf(above, sizeof(above), "%s/..", job->weights.facts.path);
    return save && (stat(save, &named) != 0 || stat(above, &own) != 0 ||
                    named.st_dev != own.st_dev || named.st_ino != own.st_ino);
}

/* Does the command ask for nothing but the rest of the run? `noted`: its recipe without flags. */
static int asks_for_the_rest(const cli_job *job, cli_recipe *noted)
{
    const cli_options *options = job->options;
    cli_line before, now;
    noted->keep = job->recipe.keep; /* of checkpoints, which change no step */
    return cli_recipe_to_note(noted, &job->model, &before) == COH_OK &&
           cli_recipe_to_note(&job->recipe, &job->model, &now) == COH_OK &&
           strcmp(before.text, now.text) == 0 && !options->data && !options->validation &&
           !options->reset_optimizer && !saves_elsewhere(job);
}

/* Finds out what is left of a run that has reached its last step, or that --stop-after-worse has
 * ended: nothing; the validation of that step, which a stop has left out; or the steps that a flag
 * adds. Refuses settings that would have no effect. */
static coh_status find_rest(cli_job *job, cli_recipe *noted)
{
    const cli_options *options = job->options;
    const cli_recipe *recipe = &job->recipe;
    const int trains = options->command == CLI_TRAIN;
    const int is_over = job->first_step >= recipe->steps && !cli_given(options, CLI_FLAG_EPOCHS);
    cli_validations last;
    cli_validations_from_note(job->weights.facts.note_json, noted->validation_hash, 0, &last);
    const int is_early = trains && last.has_ended && !options->validation &&
                         recipe->stop_after_worse == noted->stop_after_worse;
    if (!(is_over || is_early) ||
        (trains && last.is_due && job->first_step == recipe->steps && !options->validation))
        return COH_OK;
    job->is_done = trains && asks_for_the_rest(job, noted);
    job->ended_early = is_early;
    if (job->is_done)
        return COH_OK;
    if (!is_over)
        return cli_fail(COH_ERR_ARGUMENT,
                        "%s is where --stop-after-worse %" PRIu64
                        " ended the run: give a larger one to go on",
                        job->weights.facts.path, recipe->stop_after_worse);
    return cli_fail(COH_ERR_ARGUMENT,
                    "%s is at step %" PRIu64 " already, and the run is to end at step %" PRIu64
                    ": give --steps %" PRIu64 " or more to go on",
                    job->weights.facts.path, job->first_step, recipe->steps, job->first_step + 1);
}

static coh_status resume_recipe(cli_job *job)
{
    const cli_options *options = job->options;
    if (options->operand)
        return cli_fail(COH_ERR_ARGUMENT,
                        "the model comes from the checkpoint with --resume: leave '%s' out",
                        options->operand);
    if (options->from_scratch)
        return cli_fail(COH_ERR_ARGUMENT, "--from-scratch begins a run, and --resume continues "
                                          "one: leave one of them out");
    coh_status status = cli_weights_open_checkpoint(options->resume, &job->weights);
    if (status == COH_ERR_CORRUPT)
        CLI_TRY(cli_weights_check_not_in_use(options->resume));
    if (status == COH_ERR_CORRUPT)
        CLI_TRY(cli_watch_check_saved(options->resume));
    CLI_TRY(status);
    CLI_TRY(cli_recipe_of_resumed(&job->weights.facts, &job->recipe));
    job->resumed = 1;
    job->first_step = job->weights.facts.step;
    status = coh_model_resolve(job->weights.facts.path, 0, &job->model);
    if (status != COH_OK)
        CLI_TRY(cli_weights_check_not_in_use(options->resume)); /* its run may have removed it */
    CLI_TRY(status);
    cli_recipe noted = job->recipe;
    CLI_TRY(cli_recipe_override(&job->recipe, options, job->first_step));
    CLI_TRY(find_rest(job, &noted));
    if (job->is_done)
        return COH_OK;
    if (options->command == CLI_TRAIN && !options->plan_file)
        cli_recipe_say_budget(job->weights.facts.path, options);
    CLI_TRY(open_run_tokenizer(job));
    CLI_TRY(cli_weights_check_vocabulary(&job->model, job->tokenizer));
    const coh_dtype trained = coh_model_size_get(&job->model).dtype,
                    dtype = cli_dtype_keep(options, trained);
    coh_model_dtype_set(&job->model, dtype);
    job->adapters_before = job->model.adapters;
    int is_rounded = 0;
    if (dtype != trained && dtype == COH_DTYPE_BF16)
        CLI_TRY(find_rounded(job, trained, &is_rounded));
    if (is_rounded)
        cli_note_choice("note: what is frozen is rounded to bf16, also in checkpoints and exports");
    if (dtype != trained)
        cli_note_choice("dtype %s -> %s: other rounding, the run will not continue bit for bit",
                        cli_dtype_name(trained), cli_dtype_name(dtype));
    return COH_OK;
}

/* Returns 1 if the run begins with weights that were trained before. */
static int is_pretrained(const cli_job *job)
{
    return !job->options->from_scratch && (job->model.folder[0] || job->model.checkpoint[0]);
}

/* Prints a note if the run begins with weights of which the optimizer keeps no f32 master. */
static void say_no_master(const cli_job *job, coh_dtype dtype)
{
    const coh_optimizer *optimizer = coh_optimizer_find(job->recipe.optimizer);
    if (dtype == COH_DTYPE_BF16 && optimizer != NULL && optimizer->rounds_work &&
        is_pretrained(job))
        cli_note_choice(
            "note: what is not bf16 is rounded to it, also in checkpoints and exports; --state"
            " lean keeps every bit");
}

/* Chooses --dtype; else a checkpoint's dtype, or the machine's fastest, unless that would round
 * frozen parameters. A model of an extension is f32, since most layers of one's own are. */
static coh_status choose_dtype(cli_job *job)
{
    int is_rounded = 0;
    const cli_options *options = job->options;
    const coh_dtype trained = coh_model_size_get(&job->model).dtype;
    const int is_kept = job->model.checkpoint[0] || job->model.family == COH_FAMILY_OWN;
    coh_dtype dtype = is_kept       ? cli_dtype_keep(options, trained)
                      : job->on_gpu ? cli_dtype_keep(options, COH_DTYPE_BF16)
                                    : cli_dtype_choose(options);
    if (dtype == COH_DTYPE_BF16)
        CLI_TRY(find_rounded(job, trained, &is_rounded));
    if (is_rounded && job->recipe.frozen_nf4) {
        cli_note_choice("note: norms, tables and the head, which are frozen, are rounded to bf16; "
                        "--dtype f32 keeps them");
    } else if (is_rounded) {
        if (cli_given(options, CLI_FLAG_DTYPE)) {
            cli_note_choice(
                "note: what is frozen is rounded to bf16, also in checkpoints and exports;"
                " --dtype f32 keeps every bit");
        } else {
            dtype = COH_DTYPE_F32;
            cli_note_choice(
                "note: in f32, since bf16 would round what is frozen; --dtype bf16 takes half"
                " the memory and rounds");
        }
    }
    say_no_master(job, dtype);
    coh_model_dtype_set(&job->model, dtype);
    return COH_OK;
}

/* Checks that --from-scratch has an effect, and contradicts no other flag. */
static coh_status check_from_scratch(const cli_job *job)
{
    const cli_options *options = job->options;
    if (!options->from_scratch)
        return COH_OK;
    if (job->model.checkpoint[0])
        return cli_fail(COH_ERR_ARGUMENT,
                        "--from-scratch is for a folder with a config.json, and %s is a checkpoint:"
                        " give the preset or folder that it began with",
                        options->operand);
    if (!job->model.folder[0])
        return cli_fail(COH_ERR_ARGUMENT,
                        "--from-scratch is for a folder with a config.json, and %s begins with "
                        "first values anyway: leave it out",
                        options->operand);
    if (options->lora || options->freeze || options->adapter)
        return cli_fail(COH_ERR_ARGUMENT,
                        "--%s keeps trained weights, and --from-scratch begins "
                        "without any: leave one of them out",
                        options->lora     ? "lora"
                        : options->freeze ? "freeze"
                                          : "adapter");
    return COH_OK;
}

/* Opens the weights if needed. A plan needs no weights, config.json is enough. But if something is
 * frozen, its stored dtype decides the run's dtype, for plan as for train. */
static coh_status open_weights(cli_job *job)
{
    const coh_model *model = &job->model;
    const int is_any_frozen = model->adapters.rank > 0 || model->adapters.freeze[0];
    const int has_tensors = model->folder[0] && cli_input_has_tensors(model->folder);
    const int trains = job->options->command == CLI_TRAIN;
    if (!is_pretrained(job) ||
        !(trains || (is_any_frozen && (model->checkpoint[0] || has_tensors))))
        return COH_OK;
    if (model->folder[0] && !has_tensors)
        return cli_fail(COH_ERR_CORRUPT,
                        "%s holds no weights (model.safetensors, or shards and their index; "
                        "docs/models.md makes them of .bin files): add them, or train its "
                        "config.json from first values with --from-scratch",
                        model->folder);
    return cli_weights_open(&job->model, &job->weights);
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

/* Resolves the model, whose table has at least as many rows as the tokenizer has ids. */
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
    coh_model preset;
    const int is_named = coh_model_preset(options->operand, 0, &preset) == COH_OK;
    const int64_t rows = !given ? choose_vocabulary(job) : is_named ? options->vocabulary : 0;
    CLI_TRY(cli_weights_blame_going(options->operand,
                                    coh_model_resolve(options->operand, rows, &job->model)));
    const int64_t own = coh_model_size_get(&job->model).vocabulary;
    if (given && own != options->vocabulary)
        return cli_fail(COH_ERR_ARGUMENT,
                        "%s keeps the %" PRId64 " rows of its token table, so --vocabulary %" PRId64
                        " cannot change them: leave --vocabulary out",
                        options->operand, own, options->vocabulary);
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
    CLI_TRY(check_from_scratch(job));
    cli_recipe_keep_noted(&job->recipe, options);
    const int64_t positions = coh_model_size_get(&job->model).positions;
    if (!cli_given(options, CLI_FLAG_SEQUENCE) && job->recipe.sequence > positions)
        job->recipe.sequence = positions;
    if (job->model.folder[0])
        cli_recipe_keep_path(job->model.folder, job->recipe.base);
    else if (job->recipe.base[0] && job->model.adapters.rank == 0) /* all weights were trained */
        job->recipe.base_trained = 1;
    cli_recipe_set_rate(&job->recipe, options, is_pretrained(job), job->model.adapters.rank > 0);
    if (!cli_given(options, CLI_FLAG_EPOCHS)) /* with --epochs the data determines the steps */
        CLI_TRY(cli_recipe_set_steps(&job->recipe, options, (uint64_t)options->steps));
    CLI_TRY(set_adapters(job));
    CLI_TRY(open_weights(job));
    if (is_pretrained(job))
        cli_recipe_set_trained(&job->recipe, job->weights.checkpoint ? &job->weights.facts : NULL,
                               positions);
    CLI_TRY(choose_dtype(job));
    cli_weights_say(&job->model);
    if (job->tokenizer)
        cli_weights_say_other_tokenizer(&job->weights, &job->model, options, job->tokenizer);
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

/* How a folder's model gets more positions: rotary ones are computed, and only config.json bounds
 * them, unless some layers have a window. Learned ones have a row each. */
static const char *more_positions(const coh_model *model, int64_t positions)
{
    const coh_llama_config *llama = &model->llama;
    const int is_llama = model->family == COH_FAMILY_LLAMA && llama->positions == positions;
    if (!model->folder[0] || !(is_llama || model->family == COH_FAMILY_GEMMA))
        return "";
    if (is_llama && llama->rope.scaling == COH_ROPE_YARN)
        return ", or raise max_position_embeddings in its config.json, whose yarn must then have "
               "original_max_position_embeddings";
    return ", or raise max_position_embeddings in its config.json";
}

static coh_status check_sequence(const cli_job *job)
{
    const int64_t positions = coh_model_size_get(&job->model).positions;
    if (job->recipe.sequence <= positions)
        return COH_OK;
    return cli_fail(
        COH_ERR_ARGUMENT,
        "--sequence %" PRId64 " is longer than the %" PRId64 " positions of %s: lower it%s",
        job->recipe.sequence, positions, job->model.name, more_positions(&job->model, positions));
}

int32_t cli_job_rank_count(const cli_job *job)
{
    return coh_fold_shape_replicas(&job->ranks);
}

int64_t cli_job_rank_batch(const cli_job *job)
{
    return job->recipe.batch / cli_job_rank_count(job);
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
    if (out_job->is_done)
        return COH_OK;
    CLI_TRY_GOTO(status, cli_job_share(out_job), fail);
    CLI_TRY_GOTO(status, check_sequence(out_job), fail);
    CLI_TRY_GOTO(status, check_gradients(out_job), fail);
    CLI_TRY_GOTO(status, cli_settle_documents(out_job), fail);
    CLI_TRY_GOTO(status, cli_settle_atomics(out_job), fail);
    CLI_TRY_GOTO(status, cli_settle_frozen_dtype(out_job), fail);
    CLI_TRY_GOTO(status, cli_settle_dropout(out_job), fail);
    if (options->command == CLI_PLAN)
        CLI_TRY_GOTO(status, cli_epochs_take_named(out_job), fail);
    CLI_TRY_GOTO(status, check_groups(out_job), fail);
    return COH_OK;
fail:
    cli_job_close(out_job);
    return status;
}

/* ---- the plan: no flag is read here ---- */

coh_sweep_order cli_job_order(const cli_job *job)
{
    if (job->budget.may_choose_order)
        return COH_SWEEP_AUTO;
    if (job->recipe.by_layers)
        return COH_SWEEP_LAYER;
    return job->budget.keeps_order ? COH_SWEEP_MICROBATCH : COH_SWEEP_SAME_BITS;
}

/* Joins budget and recipe. */
static void set_plan_options(cli_job *job)
{
    const cli_recipe *recipe = &job->recipe;
    coh_plan_options *o = &job->plan_options;
    *o = job->budget.options;
    o->microbatch_count = (int32_t)(cli_job_rank_batch(job) / recipe->micro_batch);
    o->sweep_order = cli_job_order(job);
    o->f32_gradients = (int32_t)recipe->f32_gradients;
    o->replicas = job->rank_replicas;
    o->ranks = job->ranks;
    o->wires = job->wires;
    o->reduce = job->options->reduce;
    snprintf(o->rank_pattern, sizeof(o->rank_pattern), "%s",
             job->options->pattern != NULL ? job->options->pattern
             : cli_job_rank_count(job) > 1 ? COH_RANK_PATTERN_AUTO
                                           : "");
    cli_topology_sizes(job->options, job->profile, o);
    o->deferred_update = cli_recipe_defers(recipe);
    o->speculates = recipe->speculates && o->deferred_update;
    snprintf(o->optimizer, sizeof(o->optimizer), "%s", recipe->optimizer);
    o->optimizer_choices = recipe->optimizer_for.at;
    o->optimizer_choice_count = (int32_t)recipe->optimizer_for.count;
    o->earlier = job->earlier;
    o->earlier_count = job->earlier_count;
}

static coh_status make_graph(void *context, int64_t microbatch, coh_graph **out_graph)
{
    const cli_job *job = context;
    return coh_model_train_graph(&job->model, microbatch, job->recipe.sequence, out_graph);
}

/* Refuses a plan of another number of trained parameters, with both models' names, and one of
 * another batch by its flags. A plan of another program has no note of them, and is checked when it
 * is read. */
static coh_status check_planned_note(const cli_job *job, const coh_plan_file *file)
{
    const cli_recipe *recipe = &job->recipe;
    const char *path = job->budget.plan_file;
    cli_plan_note note;
    coh_model model;
    const coh_status status = cli_replay_read_note(path, file, &note, &model);
    if (status != COH_OK)
        return status == COH_ERR_CORRUPT ? COH_OK : status;
    const uint64_t planned = coh_model_trained_count(&model);
    const uint64_t trained = coh_model_trained_count(&job->model);
    if (planned > 0 && trained > 0 && planned != trained)
        return cli_fail(COH_ERR_ARGUMENT,
                        "the plan %s is for %s with %" PRIu64
                        " trained parameters, this run trains %" PRIu64
                        " of %s: give the model and the adapters of the plan, or plan again",
                        path, model.name, planned, trained, job->model.name);
    if (note.batch == recipe->batch && note.sequence == recipe->sequence)
        return COH_OK;
    return cli_fail(COH_ERR_ARGUMENT,
                    "the plan %s is for --batch %" PRId64 " --sequence %" PRId64
                    ", this run has --batch %" PRId64 " --sequence %" PRId64
                    ": give those of the plan, or plan again",
                    path, note.batch, note.sequence, recipe->batch, recipe->sequence);
}

/* A plan made for a smaller micro-batch than the default, since nothing larger fitted its budget,
 * is used with that micro-batch. */
static coh_status use_planned_micro_batch(cli_job *job, const coh_plan_file *file)
{
    cli_recipe *recipe = &job->recipe;
    const int64_t count = (int64_t)file->microbatch_count * coh_fold_shape_replicas(&file->ranks);
    if (count < 1 || recipe->batch % count != 0 || recipe->batch / count == recipe->micro_batch)
        return COH_OK; /* a plan for another batch is refused when it is read */
    cli_note_choice("micro-batch %" PRId64 " -> %" PRId64 ": that of the plan; other rounding",
                    recipe->micro_batch, recipe->batch / count);
    recipe->micro_batch = recipe->batch / count;
    return COH_OK;
}

static coh_status replay(cli_job *job)
{
    coh_plan_file file = { .struct_bytes = sizeof(file) };
    CLI_TRY(coh_plan_check_budgets(&job->budget.options));
    CLI_TRY(cli_budget_plan_file(&job->budget, &file));
    CLI_TRY(check_planned_note(job, &file));
    if (job->budget.takes_planned_micro_batch)
        CLI_TRY(use_planned_micro_batch(job, &file));
    CLI_TRY(make_graph(job, job->recipe.micro_batch, &job->graph));
    set_plan_options(job);
    CLI_TRY(
        cli_topology_take_planned(job->options, job->budget.plan_file, &file, &job->plan_options));
    return cli_budget_replay(&job->budget, job->graph, &job->plan_options, &job->plan);
}

static void say_micro_batch(int64_t wanted, int64_t chosen, uint64_t wanted_ns, uint64_t step_ns)
{
    if (chosen == wanted)
        return;
    if (wanted_ns > 0)
        cli_note_choice("micro-batch %" PRId64 " -> %" PRId64
                        ": other rounding; the step is predicted to take %.2f of its time",
                        wanted, chosen, (double)step_ns / (double)wanted_ns);
    else
        cli_note_choice("micro-batch %" PRId64 " -> %" PRId64
                        ": other rounding; nothing larger fits this budget",
                        wanted, chosen);
}

/* The micro-batch is part of the numeric plan, so neither a budget nor a price changes it, unless
 * --micro-batch auto permits that. */
static coh_status plan_batch(cli_job *job)
{
    const coh_batch batch = { .struct_bytes = sizeof(batch),
                              .may_change = job->budget.may_change_micro_batch,
                              .make_graph = make_graph,
                              .context = job,
                              .batch = cli_job_rank_batch(job),
                              .microbatch = job->recipe.micro_batch };
    const int64_t wanted = job->recipe.micro_batch;
    coh_batch_plan made = { .struct_bytes = sizeof(made) };
    set_plan_options(job);
    cli_progress_begin("planning", job->model.name, CLI_PROGRESS_FIRST_S);
    const coh_status status =
        cli_lacks_name(job, &batch, coh_batch_plan_create(&batch, &job->plan_options, &made));
    cli_progress_end();
    CLI_TRY(status);
    job->graph = made.graph;
    job->plan = made.plan;
    job->recipe.micro_batch = made.microbatch;
    say_micro_batch(wanted, made.microbatch, made.wanted_step_ns, made.chosen_step_ns);
    return COH_OK;
}

/* Prints a note if the profile has measured some kinds of the graph, but not all. A datasheet has
 * measured none, which other lines report. */
static void note_unmeasured(const cli_job *job)
{
    const int32_t count = job->summary.unmeasured_operators;
    const int32_t all = coh_graph_operator_count(job->graph);
    if (count > 0 && count < all)
        cli_note_choice("note: the profile has no measurement of %s: the times of %" PRId32
                        " of %" PRId32
                        " operators are estimates; cohobate profile %s -o FILE measures them",
                        job->summary.unmeasured_kind, count, all, job->model.name);
}

/* A rank above 0: takes rank 0's plan, whatever its own flags and memory would choose. */
static coh_status take_shared_plan(cli_job *job)
{
    cli_budget *budget = &job->budget;
    const char *text;
    CLI_TRY(cli_launch_share_plan(job->options->launch, NULL, NULL, &text));
    budget->plan_file = "plan.json of rank 0";
    budget->plan_text = text;
    budget->may_choose_order = !budget->keeps_order;
    budget->takes_planned_micro_batch = 1;
    if (!cli_given(job->options, CLI_FLAG_DEVICE_MEMORY))
        budget->options.device_memory_bytes = UINT64_MAX; /* cli_budget_check_memory follows */
    const coh_status status = replay(job);
    budget->plan_text = NULL; /* the text is gone with the next one that is shared */
    return status;
}

/* Rank 0: gives its plan to the others. */
static coh_status share_plan(const cli_job *job)
{
    cli_line note;
    const char *text;
    CLI_TRY(cli_replay_note(job, &note));
    return cli_launch_share_plan(job->options->launch, job->plan, note.text, &text);
}

/* Sets job->plan, graph and summary, and the recipe's micro-batch and sweep order if they may be
 * chosen, with a note on standard error. */
static coh_status make_plan(cli_job *job)
{
    const cli_launch *launch = job->options->launch;
    const int is_shared = launch != NULL && launch->rank > 0;
    const int is_replayed = is_shared || job->budget.plan_file != NULL;
    CLI_TRY(is_shared ? take_shared_plan(job) : is_replayed ? replay(job) : plan_batch(job));
    job->summary = (coh_plan_summary){ .struct_bytes = sizeof(job->summary) };
    CLI_TRY(coh_plan_summarize(job->plan, &job->summary));
    if (!is_replayed) {
        job->plan_options.microbatch_count =
            (int32_t)(cli_job_rank_batch(job) / job->recipe.micro_batch);
        job->plan_options.disk_bytes = job->summary.disk_limit_bytes;
    }
    job->plan_options.sweep_order = job->summary.sweep_order;
    memcpy(job->plan_options.rank_pattern, job->summary.rank_pattern,
           sizeof(job->plan_options.rank_pattern));
    if (!job->summary.order_keeps_bits)
        cli_recipe_set_order(&job->recipe, job->summary.sweep_order);
    note_unmeasured(job);
    cli_topology_say_unmeasured(job->options, job->plan, &job->summary);
    return launch != NULL && !is_shared ? share_plan(job) : COH_OK;
}

/* ---- opening ---- */

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
    if (out_job->is_done)
        return COH_OK;
    out_job->earlier = earlier;
    out_job->earlier_count = earlier_count;
    coh_status status = cli_budget_use_kernels(out_job->recipe.kernels, !options->kernels,
                                               coh_model_size_get(&out_job->model).dtype);
    set_budget(out_job);
    if (status == COH_OK)
        status = cli_agree(out_job);
    if (status == COH_OK)
        status = make_plan(out_job);
    if (status == COH_OK && out_job->budget.is_run_here)
        status = cli_budget_check_memory(options, out_job->on_gpu, &out_job->summary);
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

/* ---- the drive ---- */

#define DAY_NS 86400e9

/* Bytes per day of uninterrupted training, of all ranks. */
static double written_per_day(const cli_job *job)
{
    const double bytes = job->summary.disk_bytes_written * cli_job_rank_count(job);
    return job->summary.step_ns > 0 ? bytes * DAY_NS / (double)job->summary.step_ns : 0;
}

int cli_job_wears(const cli_job *job)
{
    const double run_s = cli_job_predicted_seconds(job, job->recipe.steps - job->first_step);
    return job->plan_options.disk_write_bytes_per_day == 0 &&
           written_per_day(job) * (run_s < 86400 ? run_s / 86400 : 1) > CLI_WRITES_ASKED_FOR;
}

coh_status cli_job_check_writes(const cli_job *job)
{
    const double day = written_per_day(job);
    if (!cli_job_wears(job))
        return COH_OK;
    return cli_fail(COH_ERR_ARGUMENT,
                    "this run would write %.1f TB to the drive in a day, which wears it out: allow "
                    "it with --disk-write-limit %.0fTB/day, or bound it with less",
                    day * 1e-12, day * 1e-12 + 1);
}

coh_status cli_job_rehearse(cli_job *job)
{
    if (job->options->rehearse == 0)
        return COH_OK;
    job->rehearsal.struct_bytes = sizeof(job->rehearsal);
    return coh_engine_rehearse(job->plan, (int32_t)job->options->rehearse, &job->rehearsal);
}
