/* Opens a model for forward passes, plans and starts it. The one idea: generate and eval differ
 * only in the graph, which the caller makes between open and plan. Next: weights.c, budget.c. */
#include "cli/inference.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/artefact.h"
#include "cli/budget.h"
#include "cli/disks.h"
#include "cli/dtype.h"
#include "cli/progress.h"

enum { LOOKS_MOST = 100 }; /* at a run that saves meanwhile */

/* Sets the length that the model was trained for, which limits the sequence: of a run at most
 * `tokens`, else all positions. */
static void set_trained(cli_inference *inference, int64_t tokens)
{
    const int64_t positions = coh_model_size_get(&inference->model).positions;
    inference->trained_tokens = tokens < positions ? tokens : positions;
    if (inference->recipe.sequence > inference->trained_tokens)
        inference->recipe.sequence = inference->trained_tokens;
}

static coh_status open_checkpoint(cli_inference *inference)
{
    const cli_options *options = inference->options;
    cli_recipe *recipe = &inference->recipe;
    CLI_TRY(cli_weights_open_checkpoint(options->operand, &inference->weights));
    CLI_TRY(cli_recipe_of_checkpoint(&inference->weights.facts, options, recipe));
    CLI_TRY(coh_model_resolve(inference->weights.facts.path, 0, &inference->model));
    CLI_TRY(cli_weights_open_adapters(options, &inference->model, &inference->weights));
    cli_recipe_set_tokenizer(recipe, options);
    set_trained(inference, recipe->steps > 0 ? cli_recipe_trained(recipe) : INT64_MAX);
    CLI_TRY(cli_recipe_open_tokenizer(recipe, options, &inference->tokenizer));
    return cli_weights_check_vocabulary(&inference->model, inference->tokenizer);
}

static coh_status open_folder(cli_inference *inference)
{
    const cli_options *options = inference->options;
    cli_recipe *recipe = &inference->recipe;
    cli_options without = *options; /* a micro-batch of eval need not divide a batch */
    without.micro_batch = 0;
    CLI_TRY(cli_recipe_from_options(&without, recipe));
    CLI_TRY(cli_recipe_open_named(recipe->tokenizer, &inference->tokenizer));
    CLI_TRY(cli_weights_resolve(options->operand, 0, &inference->model));
    CLI_TRY(cli_weights_check_vocabulary(&inference->model, inference->tokenizer));
    CLI_TRY(cli_weights_open_adapters(options, &inference->model, &inference->weights));
    CLI_TRY(cli_weights_open(&inference->model, &inference->weights));
    if (inference->tokenizer)
        cli_weights_say_other_tokenizer(&inference->weights, &inference->model, options,
                                        inference->tokenizer);
    set_trained(inference, INT64_MAX);
    return COH_OK;
}

/* A run that goes on may remove the checkpoint between two looks at it. */
static int is_removed(const cli_inference *inference)
{
    const char *path = inference->weights.facts.path;
    return inference->weights.checkpoint && access(path, F_OK) != 0 &&
           strcmp(path, inference->options->operand) != 0;
}

static coh_status open_parts(cli_inference *inference)
{
    const cli_options *options = inference->options;
    CLI_TRY(cli_budget_check(options));
    CLI_TRY(cli_artefact_is_folder(options->operand) ? open_folder(inference)
                                                     : open_checkpoint(inference));
    coh_model_dtype_set(&inference->model,
                        cli_dtype_keep(options, coh_model_size_get(&inference->model).dtype));
    return cli_budget_use_kernels(options->kernels ? options->kernels : inference->recipe.kernels,
                                  !options->kernels, coh_model_size_get(&inference->model).dtype);
}

coh_status cli_inference_open(const cli_options *options, cli_inference *out_inference)
{
    coh_status status = COH_ERR_INTERNAL;
    for (int i = 0, is_again = 1; i < LOOKS_MOST && is_again; i++) {
        *out_inference = (cli_inference){ .options = options };
        status = open_parts(out_inference);
        is_again = status != COH_OK && is_removed(out_inference);
        if (status != COH_OK)
            cli_inference_close(out_inference);
    }
    return status;
}

void cli_inference_close(cli_inference *inference)
{
    coh_engine_destroy(inference->engine);
    coh_plan_destroy(inference->plan);
    coh_profile_destroy(inference->profile);
    coh_graph_destroy(inference->graph);
    coh_graph_destroy(inference->small_graph);
    coh_tokenizer_close(inference->tokenizer);
    cli_weights_close(&inference->weights);
    *inference = (cli_inference){ 0 };
}

static void describe(const cli_inference *inference)
{
    cli_line line;
    cli_line_clear(&line);
    if (inference->weights.is_folder)
        cli_line_add(&line, "%s", inference->model.folder);
    else
        cli_line_add(&line, "%s, step %" PRIu64, inference->weights.facts.path,
                     inference->weights.facts.step);
    cli_line_add(&line, ", in %s: peak",
                 cli_dtype_name(coh_model_size_get(&inference->model).dtype));
    for (int tier = 0; tier < COH_TIER_COUNT; tier++)
        if (inference->summary.peak_bytes[tier])
            cli_line_add(&line, "%s %s%s %s", tier ? "," : "",
                         tier == COH_TIER_HOST && inference->profile == NULL ? "EMULATED " : "",
                         coh_tier_name(tier), cli_size(inference->summary.peak_bytes[tier]).at);
    cli_note("%s (predicted)", line.text);
}

coh_status cli_inference_plan(cli_inference *inference)
{
    coh_plan_options plan_options;
    coh_profile_destroy(inference->profile); /* of an earlier plan that did not fit */
    CLI_TRY(cli_budget_open_profile(inference->options, &inference->profile));
    cli_budget_plan_options(inference->options, inference->profile, COH_PLAN_INFER, &plan_options);
    plan_options.deferred_update = 0;
    plan_options.disk_write_bytes_per_day = 0;
    cli_progress_begin("planning", inference->model.name, CLI_PROGRESS_FIRST_S);
    const coh_status status = coh_plan_create(inference->graph, &plan_options, &inference->plan);
    cli_progress_end();
    CLI_TRY(status);
    inference->summary = (coh_plan_summary){ .struct_bytes = sizeof(inference->summary) };
    return coh_plan_summarize(inference->plan, &inference->summary);
}

/* Loads a checkpoint. One that was removed since gives way to the newest of its run: a later step
 * of the same model, to which the plan applies as well. */
static coh_status load_checkpoint(cli_inference *inference)
{
    cli_weights *weights = &inference->weights;
    coh_status status = coh_engine_load(inference->engine, weights->facts.path, NULL);
    for (int i = 0; i < LOOKS_MOST && status != COH_OK && is_removed(inference); i++) {
        cli_weights_close(weights);
        CLI_TRY(cli_weights_open_checkpoint(inference->options->operand, weights));
        cli_note("note: the run goes on and has removed that checkpoint: the newest is taken, %s",
                 weights->facts.path);
        status = coh_engine_load(inference->engine, weights->facts.path, NULL);
    }
    return status;
}

coh_status cli_inference_start(cli_inference *inference)
{
    coh_engine_options engine_options;
    const cli_options *options = inference->options;
    const uint64_t store_bytes = inference->summary.peak_bytes[COH_TIER_DISK];
    cli_disks disks;
    CLI_TRY(cli_budget_check_memory(options, cli_budget_on_gpu(options), &inference->summary));
    describe(inference);
    cli_disks_list(options, &disks);
    CLI_TRY(cli_disks_measure(&disks, store_bytes));
    CLI_TRY(cli_disks_preflight(&disks, &(cli_room){ .store_bytes = store_bytes }));
    cli_budget_engine_options(options, &engine_options);
    engine_options.disks = disks.of;
    engine_options.disk_count = disks.count;
    engine_options.small_graph = inference->small_graph;
    CLI_TRY(coh_engine_create(inference->plan, &engine_options, &inference->engine));
    cli_weights *weights = &inference->weights;
    CLI_TRY(cli_weights_name_older(
        weights, options->operand,
        weights->is_folder || weights->adapters
            ? coh_engine_init_from(inference->engine, 0, cli_weights_source, weights)
            : load_checkpoint(inference)));
    return cli_weights_loaded(weights);
}
