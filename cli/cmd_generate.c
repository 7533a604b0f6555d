#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/inference.h"
#include "cli/sample.h"

typedef struct text_run {
    cli_inference inference;
    coh_tensor logits;
    int32_t *ids; /* the prompt's */
    size_t prompt_count;
    int64_t window; /* positions planned for */
    int32_t *order;
} text_run;

/* An added token that the model has no row for; `before_count` ids are the tokenizer's. */
static coh_status refuse_token(const text_run *run, size_t at, size_t before_count, int64_t rows)
{
    const char *text;
    size_t bytes;
    CLI_TRY(coh_tokenizer_piece(run->inference.tokenizer, run->ids[at], &text, &bytes));
    const int shown = bytes < 100 ? (int)bytes : 100;
    if (at < before_count)
        return cli_fail(COH_ERR_CORRUPT,
                        "the tokenizer begins each text with \"%.*s\" (id %" PRId32
                        "), and the model has a vocabulary of %" PRId64
                        ": give the --tokenizer that it was trained with",
                        shown, text, run->ids[at], rows);
    return cli_fail(COH_ERR_CORRUPT,
                    "--prompt: token %zu is \"%.*s\" (id %" PRId32
                    "), and the model has a vocabulary of %" PRId64 ": leave it out",
                    at - before_count + 1, shown, text, run->ids[at], rows);
}

/* The prompt's ids behind those that the tokenizer puts before every text, which its models have
 * never seen a text without. */
static coh_status encode_prompt(text_run *run)
{
    const char *prompt = run->inference.options->prompt;
    const int32_t *before, *after;
    size_t before_count, after_count, count;
    int32_t *ids;
    coh_tokenizer_around(run->inference.tokenizer, &before, &before_count, &after, &after_count);
    CLI_TRY(coh_tokenizer_encode(run->inference.tokenizer, prompt, strlen(prompt), &ids, &count));
    run->prompt_count = before_count + count;
    run->ids = malloc((run->prompt_count + 1) * sizeof(*ids));
    for (size_t i = 0; run->ids && i < run->prompt_count; i++)
        run->ids[i] = i < before_count ? before[i] : ids[i - before_count];
    coh_text_free(ids);
    if (!run->ids)
        return cli_fail(COH_ERR_MEMORY, "no memory for a prompt of %zu tokens", run->prompt_count);
    if (count == 0)
        return cli_fail(COH_ERR_ARGUMENT, "--prompt is empty: give at least one character");
    const int64_t rows = coh_model_size_get(&run->inference.model).vocabulary;
    for (size_t i = 0; i < run->prompt_count; i++)
        if (run->ids[i] >= rows)
            return refuse_token(run, i, before_count, rows);
    return COH_OK;
}

static coh_status read_prompt(text_run *run)
{
    const cli_options *options = run->inference.options;
    int64_t positions = coh_model_size_get(&run->inference.model).positions;
    CLI_TRY(encode_prompt(run));
    if (run->prompt_count >= (uint64_t)positions)
        return cli_fail(COH_ERR_ARGUMENT,
                        "--prompt has %zu tokens, and the model's window is %" PRId64
                        " with room for one more: shorten it",
                        run->prompt_count, positions);
    run->window = (int64_t)run->prompt_count + options->tokens;
    if (run->window > positions) {
        cli_note("the window of %" PRId64 " positions ends the text after %" PRId64 " tokens",
                 positions, positions - (int64_t)run->prompt_count);
        run->window = positions;
    }
    if (run->window > run->inference.trained_tokens)
        cli_note("note: trained on sequences of %" PRId64 " tokens; positions beyond never were",
                 run->inference.trained_tokens);
    return COH_OK;
}

/* Feeds one token at one position; *out_logits are those of the token behind it. */
static coh_status decode_one(text_run *run, int32_t token, int32_t position,
                             const float **out_logits)
{
    const coh_step_input input = { .step = (uint64_t)position,
                                   .seed = 0,
                                   .inputs = { &token, &position } };
    const void *data;
    size_t bytes;
    double loss;
    CLI_TRY(coh_engine_evaluate(run->inference.engine, &input, &loss));
    CLI_TRY(coh_engine_output(run->inference.engine, run->logits, &data, &bytes));
    if (bytes < (size_t)coh_model_size_get(&run->inference.model).vocabulary * sizeof(float))
        return cli_fail(COH_ERR_INTERNAL, "the decoder gave %zu bytes of logits", bytes);
    *out_logits = data;
    return COH_OK;
}

static coh_status write_token(const text_run *run, int32_t token)
{
    const char *text;
    size_t bytes;
    CLI_TRY(coh_tokenizer_piece(run->inference.tokenizer, token, &text, &bytes));
    return cli_write(STDOUT_FILENO, text, bytes);
}

static coh_status write_text(text_run *run)
{
    const cli_options *options = run->inference.options;
    const cli_sampler sampler = { .temperature = options->temperature,
                                  .top_k = options->top_k,
                                  .seed = (uint64_t)options->seed };
    /* A vocabulary wider than the tokenizer's has rows that stand for nothing, and added tokens may
     * have none. */
    const int64_t rows = coh_model_size_get(&run->inference.model).vocabulary;
    const int64_t ids = coh_tokenizer_vocabulary(run->inference.tokenizer);
    const int64_t vocabulary = ids < rows ? ids : rows;
    int32_t end = coh_tokenizer_end_of_text(run->inference.tokenizer);
    int32_t token = run->ids[0];
    CLI_TRY(cli_write(STDOUT_FILENO, options->prompt, strlen(options->prompt)));
    for (int64_t position = 0; position < run->window; position++) {
        const float *logits = NULL;
        if (position < (int64_t)run->prompt_count)
            token = run->ids[position];
        CLI_TRY(decode_one(run, token, (int32_t)position, &logits));
        if (position + 1 < (int64_t)run->prompt_count)
            continue;
        if (position + 1 == run->window)
            break;
        token = cli_sample(&sampler, logits, vocabulary, (uint64_t)position + 1 - run->prompt_count,
                           run->order);
        if (token == end)
            break;
        CLI_TRY(write_token(run, token));
    }
    return cli_write(STDOUT_FILENO, "\n", 1);
}

static coh_status generate(text_run *run)
{
    CLI_TRY(read_prompt(run));
    const int64_t vocabulary = coh_model_size_get(&run->inference.model).vocabulary;
    CLI_TRY(coh_model_decode_graph(&run->inference.model, run->window, &run->inference.graph,
                                   &run->logits));
    CLI_TRY(cli_inference_plan(&run->inference));
    CLI_TRY(cli_inference_start(&run->inference));
    run->order = calloc((size_t)vocabulary, sizeof(int32_t));
    if (!run->order)
        return cli_fail(COH_ERR_MEMORY, "no memory for a table of %" PRId64 " ids", vocabulary);
    return write_text(run);
}

coh_status cli_generate(const cli_options *options)
{
    text_run run = { 0 };
    if (!options->prompt)
        return cli_fail(COH_ERR_ARGUMENT, "--prompt TEXT is missing: what the text begins with");
    CLI_TRY(cli_inference_open(options, &run.inference));
    coh_status status = generate(&run);
    free(run.order);
    free(run.ids);
    cli_inference_close(&run.inference);
    return status;
}
