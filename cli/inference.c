#include "cli/inference.h"

#include <inttypes.h>
#include <stdio.h>

#include "cli/budget.h"
#include "cli/dtype.h"

static coh_status open_parts(cli_inference *inference)
{
    const cli_options *options = inference->options;
    CLI_TRY(cli_budget_check(options));
    CLI_TRY(coh_checkpoint_open(options->operand, &inference->checkpoint));
    CLI_TRY(coh_checkpoint_facts_get(inference->checkpoint, &inference->facts));
    CLI_TRY(cli_recipe_from_note(inference->facts.note_json, &inference->recipe));
    CLI_TRY(cli_budget_use_kernels(options->kernels ? options->kernels : inference->recipe.kernels,
                                   !options->kernels));
    CLI_TRY(coh_model_resolve(inference->facts.path, 0, &inference->model));
    inference->model.gpt2.dtype = cli_dtype_keep(options, inference->model.gpt2.dtype);
    const char *tokenizer =
        cli_given(options, CLI_FLAG_TOKENIZER) ? options->tokenizer : inference->recipe.tokenizer;
    CLI_TRY(coh_tokenizer_open(tokenizer, &inference->tokenizer));
    if (coh_tokenizer_identity(inference->tokenizer) == inference->recipe.tokenizer_identity)
        return COH_OK;
    return cli_fail(COH_ERR_CORRUPT,
                    "the tokenizer %s is not the one the checkpoint was trained with (%016" PRIx64
                    ", not %016" PRIx64 "): %s",
                    tokenizer, coh_tokenizer_identity(inference->tokenizer),
                    inference->recipe.tokenizer_identity,
                    cli_given(options, CLI_FLAG_TOKENIZER) ? "leave --tokenizer out"
                                                           : "give --tokenizer DIR");
}

coh_status cli_inference_open(const cli_options *options, cli_inference *out_inference)
{
    *out_inference = (cli_inference){ .options = options };
    coh_status status = open_parts(out_inference);
    if (status != COH_OK)
        cli_inference_close(out_inference);
    return status;
}

void cli_inference_close(cli_inference *inference)
{
    coh_engine_destroy(inference->engine);
    coh_plan_destroy(inference->plan);
    coh_graph_destroy(inference->graph);
    coh_tokenizer_close(inference->tokenizer);
    coh_checkpoint_close(inference->checkpoint);
    *inference = (cli_inference){ 0 };
}

static void describe(const cli_inference *inference)
{
    cli_line line;
    char bytes[32];
    cli_line_clear(&line);
    cli_line_add(&line, "%s, step %" PRIu64 ", in %s: peak", inference->facts.path,
                 inference->facts.step, cli_dtype_name(inference->model.gpt2.dtype));
    for (int tier = 0; tier < COH_PLAN_TIERS; tier++)
        if (inference->summary.peak_bytes[tier])
            cli_line_add(
                &line, "%s %s%s %s", tier ? "," : "", tier == 1 ? "EMULATED " : "",
                cli_tier_names[tier],
                coh_size_format(inference->summary.peak_bytes[tier], bytes, sizeof(bytes)));
    cli_note("%s (predicted)", line.text);
}

coh_status cli_inference_plan(cli_inference *inference)
{
    coh_plan_options plan_options;
    cli_budget_plan_options(inference->options, COH_PLAN_INFER, &plan_options);
    plan_options.deferred_update = 0;
    CLI_TRY(cli_budget_plan(inference->options, inference->graph, &plan_options, &inference->plan));
    return coh_plan_summarize(inference->plan, &inference->summary);
}

coh_status cli_inference_start(cli_inference *inference)
{
    coh_engine_options engine_options;
    const cli_options *options = inference->options;
    describe(inference);
    CLI_TRY(
        cli_budget_preflight(options->disk_folder, inference->summary.peak_bytes[2], NULL, 0, 0));
    cli_budget_engine_options(options, &engine_options);
    CLI_TRY(coh_engine_create(inference->plan, &engine_options, &inference->engine));
    return coh_engine_load(inference->engine, inference->facts.path, NULL);
}
