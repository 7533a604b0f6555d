/* cohobate generate: writes text that follows prompts, one prompt after the other on one engine.
 *
 * The decoder computes positions of one sequence at a time, so several prompts share the engine and
 * its weights, but not steps. A prompt is fed in chunks (chunked prefill), its last token and the
 * drawn ones are fed one by one. A model of an extension has no decoder: each token runs the whole
 * window, with id 0 behind the text. A prompt's text depends only on its ids, the flags and its
 * seed: prompt number i, from 0, draws with --seed + i. Keys and values of the previous prompt are
 * overwritten before they are read. Next: prompts.c, sample.c, answer.c. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/answer.h"
#include "cli/commands.h"
#include "cli/ends.h"
#include "cli/inference.h"
#include "cli/prompts.h"
#include "cli/sample.h"

/* The reason why a text ended. */
typedef enum ending { END_LENGTH, END_WINDOW, END_TOKEN, END_STOP } ending;

static const char *const ending_names[] = { "length", "window", "end", "stop" };

typedef struct text_run {
    cli_inference inference;
    cli_prompts prompts;
    cli_generation_config config;
    cli_sampler sampler; /* of the first prompt */
    coh_tensor logits;
    int64_t vocabulary; /* number of ids that may be drawn */
    uint8_t *ends;      /* of each of them: 1: it ends a text */
    int64_t window;     /* planned positions */
    int64_t chunk;      /* tokens of a step of the prompt; 1: no chunks */
    int32_t *order;     /* scratch of the sampler */
    float *penalized;   /* likewise */
    int32_t *seen;      /* `window` + `chunk` ids: the prompt, the drawn tokens, 0 */
    int32_t *targets;   /* of a model without a decoder: `window` times -1 */
    cli_answer answer;
} text_run;

static coh_status check_tokenizer(const cli_inference *inference)
{
    if (inference->tokenizer)
        return COH_OK;
    return cli_fail(COH_ERR_ARGUMENT,
                    "%s, and generate reads and writes text: give the tokenizer that its ids are "
                    "of as --tokenizer bytes|PATH",
                    cli_given(inference->options, CLI_FLAG_TOKENIZER)
                        ? "--tokenizer none reads ids only"
                        : "the run was trained on ids, with --tokenizer none");
}

/* ---- tokens ---- */

/* Feeds the tokens from `position` on by one step of `graph`. */
static coh_status feed(text_run *run, const coh_graph *graph, int32_t position)
{
    const coh_step_input input = { .struct_bytes = sizeof(input),
                                   .step = (uint64_t)position,
                                   .inputs = { &run->seen[position], &position },
                                   .graph = graph };
    return coh_engine_evaluate(run->inference.engine, &input, NULL);
}

/* Feeds one token; *out_logits are those of the next token. */
static coh_status decode_one(text_run *run, int32_t position, const float **out_logits)
{
    const void *data;
    size_t bytes;
    CLI_TRY(feed(run, run->inference.small_graph, position));
    CLI_TRY(coh_engine_output(run->inference.engine, run->logits, &data, &bytes));
    if (bytes < (size_t)coh_model_size_get(&run->inference.model).vocabulary * sizeof(float))
        return cli_fail(COH_ERR_INTERNAL, "the decoder gave %zu bytes of logits", bytes);
    *out_logits = data;
    return COH_OK;
}

/* Runs the whole window; *out_logits are those of the token after the first `count`. */
static coh_status run_window(text_run *run, size_t count, const float **out_logits)
{
    const coh_step_input input = { .struct_bytes = sizeof(input),
                                   .inputs = { run->seen, run->targets } };
    const size_t vocabulary = (size_t)coh_model_size_get(&run->inference.model).vocabulary;
    const void *data;
    size_t bytes;
    CLI_TRY(coh_engine_evaluate(run->inference.engine, &input, NULL));
    CLI_TRY(coh_engine_output(run->inference.engine, run->logits, &data, &bytes));
    if (bytes < count * vocabulary * sizeof(float))
        return cli_fail(COH_ERR_INTERNAL, "the model gave %zu bytes of logits", bytes);
    *out_logits = (const float *)data + (count - 1) * vocabulary;
    return COH_OK;
}

/* Feeds the tokens from *fed on; *out_logits are those of the token after the first `count`. A
 * chunk's rows from the last of these tokens on are padding, which later steps overwrite. */
static coh_status decode(text_run *run, size_t count, size_t *fed, const float **out_logits)
{
    if (run->targets)
        return run_window(run, count, out_logits);
    while (*fed + 2 < count && run->chunk > 1) {
        const size_t left = count - 1 - *fed, chunk = (size_t)run->chunk;
        CLI_TRY(feed(run, NULL, (int32_t)*fed));
        *fed += left < chunk ? left : chunk;
    }
    for (; *fed < count; ++*fed)
        CLI_TRY(decode_one(run, (int32_t)*fed, out_logits));
    return COH_OK;
}

static coh_status check_logits(const text_run *run, const float *logits)
{
    for (int64_t id = 0; id < run->vocabulary; id++)
        if (!isfinite(logits[id]))
            return cli_fail(COH_ERR_NUMBER,
                            "the model's logits are not finite: its numbers overflow, or its "
                            "weights are far out of range: give an earlier checkpoint, or --dtype "
                            "f32");
    return COH_OK;
}

/* Draws the token after `seen_count` others, of which `drawn_count` were drawn. Fails:
 * COH_ERR_NUMBER. */
static coh_status draw(text_run *run, const cli_sampler *sampler, const float *logits,
                       size_t seen_count, uint64_t drawn_count, int32_t *out_token)
{
    CLI_TRY(check_logits(run, logits));
    if (sampler->penalty != 1) {
        cli_sample_penalize(sampler->penalty, logits, run->vocabulary, run->seen, seen_count,
                            run->penalized);
        logits = run->penalized;
    }
    *out_token = cli_sample(sampler, logits, run->vocabulary, drawn_count, run->order);
    return COH_OK;
}

/* Prints bytes [*shown, certain) of the answer, unless it is for a JSON object. */
static coh_status show(const text_run *run, size_t certain, size_t *shown)
{
    const size_t from = *shown;
    *shown = certain;
    if (run->inference.options->json || certain == from)
        return COH_OK;
    return cli_write(STDOUT_FILENO, run->answer.bytes + from, certain - from);
}

static coh_status add_token(text_run *run, int32_t token, size_t *shown)
{
    const char *text;
    size_t bytes;
    CLI_TRY(coh_tokenizer_piece(run->inference.tokenizer, token, &text, &bytes));
    CLI_TRY(cli_answer_add(&run->answer, text, bytes));
    return show(run, cli_answer_certain(&run->answer), shown);
}

/* Feeds a prompt and draws the following tokens. */
static coh_status write_answer(text_run *run, const cli_prompt *prompt, const cli_sampler *sampler,
                               uint64_t *out_drawn, ending *out_ending)
{
    const size_t most = (size_t)run->inference.options->tokens;
    const size_t room = (size_t)coh_model_size_get(&run->inference.model).positions - prompt->count;
    size_t shown = 0, fed = 0;
    const float *logits = NULL;
    memset(run->seen, 0, (size_t)(run->window + run->chunk) * sizeof(*run->seen));
    memcpy(run->seen, prompt->ids, prompt->count * sizeof(*run->seen));
    cli_answer_clear(&run->answer);
    *out_drawn = 0;
    *out_ending = room < most ? END_WINDOW : END_LENGTH;
    for (size_t drawn = 0; drawn < (room < most ? room : most); drawn++) {
        const size_t count = prompt->count + drawn;
        CLI_TRY(decode(run, count, &fed, &logits));
        int32_t token;
        CLI_TRY(draw(run, sampler, logits, count, drawn, &token));
        if (run->ends[token]) {
            *out_ending = END_TOKEN;
            break;
        }
        run->seen[count] = token;
        *out_drawn = drawn + 1;
        CLI_TRY(add_token(run, token, &shown));
        if (run->answer.stopped_by) {
            *out_ending = END_STOP;
            break;
        }
    }
    return show(run, run->answer.count, &shown);
}

/* ---- output ---- */

static void print_json(const text_run *run, size_t index, const cli_sampler *sampler,
                       uint64_t drawn, ending end)
{
    const cli_answer *answer = &run->answer;
    printf("{\"index\": %zu, \"text\": ", index);
    cli_print_json_text(answer->count ? answer->bytes : "", answer->count);
    printf(", \"finish\": \"%s\", \"stop\": ", ending_names[end]);
    if (answer->stopped_by)
        cli_print_json_text(answer->stopped_by, strlen(answer->stopped_by));
    else
        printf("null");
    printf(", \"prompt_tokens\": %zu, \"tokens\": %" PRIu64 ", \"seed\": %" PRIu64 "}\n",
           run->prompts.list[index].count, drawn, sampler->seed);
    cli_send();
}

/* Prints a text prompt before its answer, as one text. */
static coh_status begin_text(const text_run *run, size_t index)
{
    const cli_prompt *prompt = &run->prompts.list[index];
    char header[80];
    if (run->inference.options->json)
        return COH_OK;
    if (run->prompts.count > 1) {
        const int length = snprintf(header, sizeof(header), "%s==> prompt %zu of %zu <==\n",
                                    index ? "\n" : "", index + 1, run->prompts.count);
        CLI_TRY(cli_write(STDOUT_FILENO, header, (size_t)length));
    }
    return prompt->text ? cli_write(STDOUT_FILENO, prompt->text, prompt->text_bytes) : COH_OK;
}

static coh_status write_one(text_run *run, size_t index)
{
    cli_sampler sampler = run->sampler;
    uint64_t drawn;
    ending end;
    sampler.seed += index;
    CLI_TRY(begin_text(run, index));
    CLI_TRY(write_answer(run, &run->prompts.list[index], &sampler, &drawn, &end));
    if (!run->inference.options->json)
        return cli_write(STDOUT_FILENO, "\n", 1);
    print_json(run, index, &sampler, drawn, end);
    return COH_OK;
}

/* ---- command ---- */

/* Chooses the longest window of all prompts. */
static void choose_window(text_run *run)
{
    const int64_t positions = coh_model_size_get(&run->inference.model).positions;
    for (size_t i = 0; i < run->prompts.count; i++) {
        const int64_t count = (int64_t)run->prompts.list[i].count;
        const int64_t wanted = count + run->inference.options->tokens;
        if (wanted > positions)
            cli_note("the window of %s ends the text after at most %s",
                     cli_count((uint64_t)positions, "position").at,
                     cli_count((uint64_t)(positions - count), "token").at);
        const int64_t window = wanted < positions ? wanted : positions;
        run->window = window > run->window ? window : run->window;
    }
    if (run->window > run->inference.trained_tokens)
        cli_note("note: trained on sequences of %" PRId64
                 " tokens, so later positions are untrained",
                 run->inference.trained_tokens);
}

static int has_decoder(const text_run *run)
{
    return run->inference.model.family != COH_FAMILY_OWN;
}

/* A prompt's last token is always fed alone, and two tokens are no chunk. */
static int has_chunks(const text_run *run)
{
    for (size_t i = 0; i < run->prompts.count; i++)
        if (run->prompts.list[i].count > 2)
            return 1;
    return 0;
}

/* Limits a chunk by the model alone, not by the window, which depends on the other prompts. */
static void choose_chunk(text_run *run)
{
    const int64_t positions = coh_model_size_get(&run->inference.model).positions;
    const int takes_chunks = has_decoder(run) && has_chunks(run);
    const int64_t wanted = takes_chunks ? run->inference.options->prefill_chunk : 1;
    run->chunk = wanted < positions ? wanted : positions;
}

static coh_status make_graph(text_run *run)
{
    cli_inference *of = &run->inference;
    if (!has_decoder(run))
        return coh_model_logits_graph(&of->model, 1, run->window, &of->graph, &run->logits);
    if (run->chunk == 1)
        return coh_model_decode_graph(&of->model, run->window, &of->graph, &run->logits);
    CLI_TRY(coh_model_prefill_graph(&of->model, run->window, 1, &of->small_graph, &run->logits));
    return coh_model_prefill_graph(&of->model, run->window, run->chunk, &of->graph, &run->logits);
}

/* A plan was refused. Names --prefill-chunk 1 if single tokens fit, which need less memory. */
static coh_status refuse_chunk(text_run *run)
{
    char refused[2048];
    snprintf(refused, sizeof(refused), "%s", coh_last_error());
    coh_graph_destroy(run->inference.graph);
    coh_graph_destroy(run->inference.small_graph);
    run->inference.graph = run->inference.small_graph = NULL;
    run->chunk = 1;
    CLI_TRY(make_graph(run));
    return cli_fail(COH_ERR_FULL, "%s%s", refused,
                    cli_inference_plan(&run->inference) == COH_OK
                        ? "; or give --prefill-chunk 1, which fits and reads prompts more slowly"
                        : "");
}

static coh_status make_plan(text_run *run)
{
    CLI_TRY(make_graph(run));
    const coh_status status = cli_inference_plan(&run->inference);
    return status == COH_ERR_FULL && run->chunk > 1 ? refuse_chunk(run) : status;
}

static coh_status no_memory(const text_run *run)
{
    return cli_fail(COH_ERR_MEMORY, "no memory for a table of %" PRId64 " ids", run->vocabulary);
}

/* Finds the ids that may be drawn, and those of them that end a text. */
static coh_status choose_ids(text_run *run)
{
    /* A vocabulary wider than the tokenizer's has unused rows, and added tokens may lack rows. */
    const int64_t rows = coh_model_size_get(&run->inference.model).vocabulary;
    const int64_t ids = coh_tokenizer_vocabulary(run->inference.tokenizer);
    run->vocabulary = ids < rows ? ids : rows;
    run->ends = calloc((size_t)run->vocabulary, sizeof(*run->ends));
    if (!run->ends)
        return no_memory(run);
    cli_ends_mark(&run->inference, &run->config, run->prompts.end_of_turn, run->vocabulary,
                  run->ends);
    return COH_OK;
}

static coh_status allocate(text_run *run)
{
    run->order = calloc((size_t)run->vocabulary, sizeof(*run->order));
    run->penalized = calloc((size_t)run->vocabulary, sizeof(*run->penalized));
    run->seen = calloc((size_t)(run->window + run->chunk), sizeof(*run->seen));
    if (!has_decoder(run))
        run->targets = malloc((size_t)run->window * sizeof(*run->targets));
    for (int64_t i = 0; run->targets && i < run->window; i++)
        run->targets[i] = -1;
    if (run->order && run->penalized && run->seen && (run->targets || has_decoder(run)))
        return COH_OK;
    return no_memory(run);
}

static coh_status generate(text_run *run)
{
    cli_inference *inference = &run->inference;
    CLI_TRY(check_tokenizer(inference));
    CLI_TRY(cli_prompts_open(inference, &run->prompts));
    cli_generation_config_open(inference, &run->config);
    CLI_TRY(choose_ids(run));
    cli_generation_config_sampler(&run->config, inference, &run->sampler);
    choose_window(run);
    choose_chunk(run);
    CLI_TRY(make_plan(run));
    CLI_TRY(cli_inference_start(inference));
    CLI_TRY(allocate(run));
    run->answer.stops = inference->options->stop;
    run->answer.prefix = coh_chat_answer_prefix(run->prompts.chat);
    for (size_t i = 0; i < run->prompts.count; i++)
        CLI_TRY(write_one(run, i));
    return COH_OK;
}

coh_status cli_generate(const cli_options *options)
{
    text_run run = { 0 };
    CLI_TRY(cli_prompts_check_flags(options));
    CLI_TRY(cli_inference_open(options, &run.inference));
    const coh_status status = generate(&run);
    cli_answer_free(&run.answer);
    free(run.seen);
    free(run.targets);
    free(run.penalized);
    free(run.order);
    free(run.ends);
    cli_generation_config_close(&run.config);
    cli_prompts_close(&run.prompts);
    cli_inference_close(&run.inference);
    return status;
}
