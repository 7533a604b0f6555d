#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/budget.h"
#include "cli/commands.h"
#include "cli/data.h"
#include "cli/inference.h"
#include "cli/stop.h"

typedef struct evaluation {
    cli_inference inference;
    cli_data data;
    int64_t sequence, micro_batch;
    int32_t *tokens, *targets; /* one micro-batch */
    uint64_t window_count;
    int64_t counted; /* targets of all windows that count */
    double loss;     /* nats of each of them */
    double seconds;  /* of the windows alone */
} evaluation;

/* All windows, once each. What does not fill the last micro-batch is padded with targets of -1,
 * which count as zero loss. */
static coh_status run_windows(evaluation *run)
{
    size_t ids = (size_t)run->micro_batch * (size_t)run->sequence;
    double sum = 0;
    for (uint64_t first = 0; first < run->window_count; first += (uint64_t)run->micro_batch) {
        int64_t real = run->micro_batch;
        double loss;
        if (run->window_count - first < (uint64_t)real)
            real = (int64_t)(run->window_count - first);
        memset(run->tokens, 0, ids * sizeof(int32_t));
        memset(run->targets, 0xff, ids * sizeof(int32_t));
        CLI_TRY(
            cli_data_fill(&run->data, 0, first, real, run->sequence, run->tokens, run->targets));
        const coh_step_input input = { .inputs = { run->tokens, run->targets } };
        CLI_TRY(coh_engine_evaluate(run->inference.engine, &input, &loss));
        sum += loss * (double)ids;
        run->counted += cli_data_counted(run->targets, (int64_t)ids);
    }
    if (run->counted == 0)
        return cli_fail(COH_ERR_CORRUPT, "--data holds no token that counts (padding does not, nor "
                                         "what the assistant did not say): give other data");
    run->loss = sum / (double)run->counted;
    return COH_OK;
}

static coh_status plan_with(evaluation *run, int64_t micro_batch)
{
    cli_inference *inference = &run->inference;
    coh_graph_destroy(inference->graph);
    inference->graph = NULL;
    run->micro_batch = micro_batch;
    CLI_TRY(
        coh_model_train_graph(&inference->model, micro_batch, run->sequence, &inference->graph));
    return cli_inference_plan(inference);
}

/* The trained micro-batch, or half of it, and so on, until the budget holds it: the loss is the
 * same but for rounding. */
static coh_status choose_plan(evaluation *run)
{
    char why[1024];
    int64_t wanted = run->inference.recipe.micro_batch;
    coh_status status = plan_with(run, wanted);
    while (status == COH_ERR_FULL && run->micro_batch > 1)
        status = plan_with(run, run->micro_batch / 2);
    if (status == COH_ERR_FULL && wanted > 1) {
        snprintf(why, sizeof(why), "%s", coh_last_error());
        return cli_fail(status, "no micro-batch from %" PRId64 " down to 1 fits; with 1: %s",
                        wanted, why);
    }
    CLI_TRY(status);
    if (run->micro_batch != wanted)
        cli_note("micro-batch %" PRId64 " -> %" PRId64
                 ": other rounding; as trained it does not fit this budget",
                 wanted, run->micro_batch);
    return COH_OK;
}

static coh_status open_data(evaluation *run, int64_t vocabulary)
{
    const cli_options *options = run->inference.options;
    cli_data_form form;
    CLI_TRY(cli_data_form_from_options(options, &form));
    CLI_TRY(cli_data_check_id_bytes(options));
    const cli_data_source source = { .tokenizer = run->inference.tokenizer,
                                     .tokenizer_path = run->inference.recipe.tokenizer,
                                     .vocabulary = vocabulary,
                                     .sequence = run->sequence,
                                     .form = &form,
                                     .thread_count = cli_budget_thread_count(options),
                                     .is_form_given = cli_recipe_form_is_given(options) };
    /* Text is tokenized into a folder under TMPDIR, which goes before a stop does its work. */
    static const char at_once[] =
        "\ncohobate eval: stopped at once; a folder cohobate-tokens-* may be left under TMPDIR, "
        "and the next one removes it\n";
    CLI_TRY(cli_stop_install(0, at_once, at_once));
    CLI_TRY(cli_data_open(&source, "data", options->data, NULL, NULL, &run->data, NULL));
    cli_stop_uninstall();
    return cli_stop_check("before anything was measured");
}

static coh_status evaluate(evaluation *run)
{
    cli_inference *inference = &run->inference;
    const cli_options *options = inference->options;
    run->sequence =
        cli_given(options, CLI_FLAG_SEQUENCE) ? options->sequence : inference->recipe.sequence;
    const coh_model_size size = coh_model_size_get(&inference->model);
    if (run->sequence > size.positions) {
        cli_weights_say(&inference->model); /* a sliding window has fewer than config.json says */
        return cli_fail(COH_ERR_ARGUMENT,
                        "--sequence %" PRId64 " is longer than the model's %" PRId64
                        " positions: lower it",
                        run->sequence, size.positions);
    }
    CLI_TRY(open_data(run, size.vocabulary));
    CLI_TRY(cli_data_check_windows(&run->data, "data", options->data, run->sequence, 1));
    run->window_count = coh_token_file_window_count(run->data.file, run->sequence);
    CLI_TRY(choose_plan(run));
    size_t ids = (size_t)run->micro_batch * (size_t)run->sequence;
    run->tokens = calloc(2 * ids, sizeof(int32_t));
    if (!run->tokens)
        return cli_fail(COH_ERR_MEMORY, "no memory for a micro-batch of %zu tokens", ids);
    run->targets = run->tokens + ids;
    CLI_TRY(cli_inference_start(inference));
    run->seconds = cli_seconds_now();
    CLI_TRY(run_windows(run));
    run->seconds = cli_seconds_now() - run->seconds;
    return COH_OK;
}

static void print_result(const evaluation *run)
{
    int bytes = strcmp(run->inference.recipe.tokenizer, "bytes") == 0;
    uint64_t token_count = (uint64_t)run->counted;
    cli_line line;
    cli_line_clear(&line);
    if (run->inference.options->json) {
        cli_line_add(&line, "{\"loss\": ");
        cli_line_add_json_number(&line, run->loss);
        cli_line_add(&line, ", \"perplexity\": ");
        cli_line_add_json_number(&line, exp(run->loss));
        if (bytes) {
            cli_line_add(&line, ", \"bits_per_byte\": ");
            cli_line_add_json_number(&line, run->loss / log(2));
        }
        cli_line_add(&line, ", \"tokens_per_second\": ");
        cli_line_add_json_number(&line, (double)token_count / run->seconds);
        cli_line_add(&line, ", \"tokens\": %" PRIu64 ", \"step\": %" PRIu64 "}", token_count,
                     run->inference.weights.facts.step);
    } else {
        cli_line_add(&line, "loss %.6f nats, perplexity %.4f", run->loss, exp(run->loss));
        if (bytes)
            cli_line_add(&line, ", %.4f bits per byte", run->loss / log(2));
        cli_line_add(&line, " over %" PRIu64 " tokens, %.0f tokens/s", token_count,
                     (double)token_count / run->seconds);
    }
    cli_print("%s", line.text);
}

coh_status cli_eval(const cli_options *options)
{
    evaluation run = { 0 };
    if (!options->data)
        return cli_fail(COH_ERR_ARGUMENT, "--data FILE is missing: the text to measure on");
    CLI_TRY(cli_inference_open(options, &run.inference));
    coh_status status = evaluate(&run);
    if (status == COH_OK)
        print_result(&run);
    free(run.tokens);
    cli_data_close(&run.data);
    cli_inference_close(&run.inference);
    return status;
}
