/* A decoder that takes a prompt in chunks, and single tokens by its small graph: the logits are
 * those of a decoder of single tokens, the bits those of any placement. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "cohobate/models.h"
#include "tests/engine/must.h"
#include "tests/search_length.h"

enum { VOCABULARY = 300, WINDOW = 21, POSITIONS = 24 };

static coh_model model_of(coh_dtype dtype, int64_t layers)
{
    return (coh_model){ .family = COH_FAMILY_GPT2,
                        .gpt2 = { .layers = layers,
                                  .heads = 2,
                                  .channels = 64,
                                  .positions = POSITIONS,
                                  .vocabulary = VOCABULARY,
                                  .layernorm_epsilon = 1e-5f,
                                  .dtype = dtype } };
}

typedef struct placement {
    int percent; /* of the bytes in memory */
    int32_t poison, check_calls;
    uint64_t delay_seed;
} placement;

typedef struct decoder {
    coh_graph *graph, *small;
    coh_tensor logits;
    coh_plan *plan;
    coh_engine *engine;
    int64_t rows;
    float after[WINDOW][VOCABULARY]; /* after a prompt of that many tokens and one more */
} decoder;

static int32_t ids[WINDOW + POSITIONS]; /* with padding */

static uint64_t bytes_in_memory(const coh_graph *graph, const coh_plan_options *options)
{
    coh_plan *plan;
    coh_plan_summary summary = { .struct_bytes = sizeof(summary) };
    must(coh_plan_create(graph, options, &plan), "a plan in memory");
    must(coh_plan_summarize(plan, &summary), "its summary");
    coh_plan_destroy(plan);
    return summary.peak_bytes[COH_TIER_DEVICE];
}

static void start_engine(decoder *d, const placement *at)
{
    coh_plan_options options;
    coh_engine_options engine_options;
    coh_plan_options_init(&options);
    options.search = test_search();
    options.mode = COH_PLAN_INFER;
    options.deferred_update = 0;
    if (at->percent < 100) {
        options.device_memory_bytes =
            bytes_in_memory(d->graph, &options) * (uint64_t)at->percent / 100;
        options.disk_bytes = UINT64_MAX;
    }
    must(coh_plan_create(d->graph, &options, &d->plan), "a plan");
    coh_engine_options_init(&engine_options);
    engine_options.store = "mem";
    engine_options.disk_folder = "/";
    engine_options.poison = at->poison;
    engine_options.check_calls = at->check_calls;
    engine_options.delay_seed = at->delay_seed;
    engine_options.delay_most_us = 20;
    engine_options.small_graph = d->small;
    must(coh_engine_create(d->plan, &engine_options, &d->engine), "an engine");
    must(coh_engine_init(d->engine, 7), "first values");
}

/* rows 0: a decoder of single tokens, without a small graph */
static void open_decoder(decoder *d, const coh_model *model, int64_t rows, const placement *at)
{
    *d = (decoder){ .rows = rows };
    if (rows == 0) {
        must(coh_model_decode_graph(model, WINDOW, &d->graph, &d->logits), "a decoder");
    } else {
        must(coh_model_prefill_graph(model, WINDOW, rows, &d->graph, &d->logits), "chunks");
        must(coh_model_prefill_graph(model, WINDOW, 1, &d->small, &d->logits), "single tokens");
    }
    start_engine(d, at);
}

static void close_decoder(decoder *d)
{
    coh_engine_destroy(d->engine);
    coh_plan_destroy(d->plan);
    coh_graph_destroy(d->small);
    coh_graph_destroy(d->graph);
}

static const float *feed(const decoder *d, const coh_graph *graph, int32_t position)
{
    const coh_step_input input = { .struct_bytes = sizeof(input),
                                   .inputs = { &ids[position], &position },
                                   .graph = graph };
    const void *data;
    size_t bytes;
    must(coh_engine_evaluate(d->engine, &input, NULL), "a step");
    must(coh_engine_output(d->engine, d->logits, &data, &bytes), "its logits");
    assert_int_equal(bytes, VOCABULARY * sizeof(float));
    return data;
}

/* Reads prompts of every length, each over the keys and values that the one before has left. */
static void read_prompts(decoder *d)
{
    for (int32_t count = 0; count < WINDOW; count++) {
        for (int32_t at = 0; at < count && d->rows > 0; at += (int32_t)d->rows)
            feed(d, NULL, at);
        memcpy(d->after[count], feed(d, d->small, count), sizeof(d->after[count]));
    }
}

static int begin(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++)
        ids[i] = (int32_t)coh_rng_below(5, 1, i, VOCABULARY);
    return 0;
}

static void prompts_in_chunks_have_the_logits_of_single_tokens(void **state)
{
    static decoder single, chunked;
    static const int64_t rows[] = { 1, 2, 5, WINDOW - 1, WINDOW, POSITIONS };
    const coh_model model = model_of(COH_DTYPE_F32, 2);
    (void)state;
    open_decoder(&single, &model, 0, &(placement){ 100 });
    read_prompts(&single);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        open_decoder(&chunked, &model, rows[i], &(placement){ 100 });
        read_prompts(&chunked);
        for (int count = 0; count < WINDOW; count++)
            for (int v = 0; v < VOCABULARY; v++) {
                const double a = (double)single.after[count][v],
                             b = (double)chunked.after[count][v];
                if (!(fabs(a - b) <= 1e-5))
                    fail_msg("%d rows, after %d tokens: logit %d is %g, should be %g", (int)rows[i],
                             count, v, b, a);
            }
        /* the first token is a step of the small graph alone: as a decoder of single tokens */
        assert_memory_equal(single.after[0], chunked.after[0], sizeof(single.after[0]));
        close_decoder(&chunked);
    }
    close_decoder(&single);
}

static void placements_change_no_bit(void **state)
{
    static const placement others[] = { { 45, .poison = 1 },
                                        { 45, .delay_seed = 3 },
                                        { 100, .check_calls = 1 } };
    static decoder expected, found;
    (void)state;
    for (int i = 0; i < 6; i++) {
        const coh_model model = model_of(i % 2 ? COH_DTYPE_BF16 : COH_DTYPE_F32, 2);
        open_decoder(&expected, &model, 5, &(placement){ 100 });
        read_prompts(&expected);
        open_decoder(&found, &model, 5, &others[i / 2]);
        read_prompts(&found);
        assert_memory_equal(expected.after, found.after, sizeof(expected.after));
        close_decoder(&found);
        close_decoder(&expected);
    }
}

static void refused(const coh_plan *plan, const coh_graph *small, const char *says)
{
    coh_engine_options options;
    coh_engine *engine;
    coh_engine_options_init(&options);
    options.small_graph = small;
    assert_int_equal(coh_engine_create(plan, &options, &engine), COH_ERR_ARGUMENT);
    if (strstr(coh_last_error(), says) == NULL)
        fail_msg("'%s' does not say '%s'", coh_last_error(), says);
}

static void graphs_that_do_not_fit_are_refused(void **state)
{
    static decoder d;
    const coh_model model = model_of(COH_DTYPE_F32, 2), other = model_of(COH_DTYPE_F32, 3);
    coh_graph *graph;
    coh_tensor logits;
    (void)state;
    open_decoder(&d, &model, 5, &(placement){ 100 });
    must(coh_model_prefill_graph(&model, WINDOW, 6, &graph, &logits), "more rows");
    refused(d.plan, graph, "is larger than the plan's");
    coh_graph_destroy(graph);
    must(coh_model_prefill_graph(&model, WINDOW - 1, 1, &graph, &logits), "fewer positions");
    refused(d.plan, graph, "other states");
    coh_graph_destroy(graph);
    must(coh_model_decode_graph(&model, WINDOW, &graph, &logits), "no slice");
    refused(d.plan, graph, "operators");
    coh_graph_destroy(graph);
    must(coh_model_prefill_graph(&other, WINDOW, 1, &graph, &logits), "another model");
    refused(d.plan, graph, "operators");
    coh_graph_destroy(graph);
    const coh_model wide = model_of(COH_DTYPE_BF16, 2);
    must(coh_model_prefill_graph(&wide, WINDOW, 1, &graph, &logits), "another dtype");
    refused(d.plan, graph, "is not the plan's");

    int32_t position = 0;
    const coh_step_input input = { .struct_bytes = sizeof(input),
                                   .inputs = { ids, &position },
                                   .graph = graph };
    assert_int_equal(coh_engine_evaluate(d.engine, &input, NULL), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "small graph"));
    coh_graph_destroy(graph);
    close_decoder(&d);
}

static void training_takes_none(void **state)
{
    const coh_model model = model_of(COH_DTYPE_F32, 2);
    coh_graph *graph;
    coh_plan *plan;
    coh_engine *engine;
    coh_plan_options options;
    coh_engine_options engine_options;
    coh_step_result result = { .struct_bytes = sizeof(result) };
    (void)state;
    must(coh_model_train_graph(&model, 1, 4, &graph), "a graph");
    coh_plan_options_init(&options);
    options.search = test_search();
    must(coh_plan_create(graph, &options, &plan), "a plan");
    refused(plan, graph, "COH_PLAN_INFER");
    coh_engine_options_init(&engine_options);
    must(coh_engine_create(plan, &engine_options, &engine), "an engine");
    must(coh_engine_init(engine, 1), "first values");
    const coh_step_input input = { .struct_bytes = sizeof(input),
                                   .inputs = { ids, ids },
                                   .graph = graph };
    assert_int_equal(coh_engine_step(engine, &input, &result), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "the plan's graph"));
    coh_engine_destroy(engine);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_in_chunks_have_the_logits_of_single_tokens),
        cmocka_unit_test(placements_change_no_bit),
        cmocka_unit_test(graphs_that_do_not_fit_are_refused),
        cmocka_unit_test(training_takes_none),
    };
    return cmocka_run_group_tests(tests, begin, NULL);
}
