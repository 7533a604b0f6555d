/* The loss of each token: against a softmax in double precision of the logits that the same weights
 * give, with masked targets, in memory and streamed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cohobate/cohobate.h"

enum { SEQUENCES = 2, TOKENS = 24, ROWS = SEQUENCES * TOKENS, VOCABULARY = 300 };

static int32_t tokens[ROWS], targets[ROWS];

static void must(coh_status status)
{
    if (status != COH_OK)
        fail_msg("%s", coh_last_error());
}

/* Runs one evaluation; returns the bytes of the output in a copy, and the loss. */
static float *evaluate(const coh_graph *graph, coh_tensor output, uint64_t memory_bytes,
                       size_t *out_bytes, double *out_loss, uint64_t *out_peak)
{
    coh_plan_options options;
    coh_engine_options engine_options;
    coh_plan *plan;
    coh_engine *engine;
    coh_plan_summary summary = { .struct_bytes = sizeof(summary) };
    const coh_step_input input = { .struct_bytes = sizeof(input), .inputs = { tokens, targets } };
    const void *data;
    coh_plan_options_init(&options);
    options.mode = COH_PLAN_INFER;
    options.device_memory_bytes = memory_bytes;
    options.disk_bytes = memory_bytes == UINT64_MAX ? 0 : UINT64_MAX;
    coh_engine_options_init(&engine_options);
    engine_options.store = "mem";
    engine_options.disk_folder = ".";
    must(coh_plan_create(graph, &options, &plan));
    must(coh_plan_summarize(plan, &summary));
    *out_peak = summary.peak_bytes[COH_TIER_DEVICE];
    must(coh_engine_create(plan, &engine_options, &engine));
    must(coh_engine_init(engine, 5));
    must(coh_engine_evaluate(engine, &input, out_loss));
    must(coh_engine_output(engine, output, &data, out_bytes));
    float *copy = malloc(*out_bytes);
    assert_non_null(copy);
    memcpy(copy, data, *out_bytes);
    coh_engine_destroy(engine);
    coh_plan_destroy(plan);
    return copy;
}

static double naive(const float *logits, int32_t target)
{
    double most = -INFINITY, sum = 0;
    if (target < 0)
        return 0;
    for (int v = 0; v < VOCABULARY; v++)
        most = fmax(most, (double)logits[v]);
    for (int v = 0; v < VOCABULARY; v++)
        sum += exp((double)logits[v] - most);
    return log(sum) + most - (double)logits[target];
}

static void check(const char *name)
{
    coh_model model;
    coh_graph *with_logits, *with_losses;
    coh_tensor logits_at, losses_at;
    size_t logit_bytes, bytes, streamed_bytes;
    double loss, own, streamed, sum = 0;
    uint64_t peak, ignored;
    must(coh_model_preset(name, VOCABULARY, &model));
    must(coh_model_logits_graph(&model, SEQUENCES, TOKENS, &with_logits, &logits_at));
    must(coh_model_token_losses_graph(&model, SEQUENCES, TOKENS, &with_losses, &losses_at));
    float *logits = evaluate(with_logits, logits_at, UINT64_MAX, &logit_bytes, &loss, &ignored);
    float *losses = evaluate(with_losses, losses_at, UINT64_MAX, &bytes, &own, &peak);
    float *far = evaluate(with_losses, losses_at, peak / 3, &streamed_bytes, &streamed, &ignored);
    assert_int_equal(logit_bytes, sizeof(float) * ROWS * VOCABULARY);
    assert_int_equal(bytes, sizeof(float) * ROWS);
    assert_memory_equal(losses, far, bytes);
    assert_true(own == loss && streamed == loss);
    for (int row = 0; row < ROWS; row++) {
        const double expected = naive(logits + row * VOCABULARY, targets[row]);
        assert_true(fabs((double)losses[row] - expected) <= 1e-6 * (1 + fabs(expected)));
        sum += (double)losses[row];
    }
    assert_true(fabs(sum / ROWS - loss) <= 1e-5);
    free(logits);
    free(losses);
    free(far);
    coh_graph_destroy(with_logits);
    coh_graph_destroy(with_losses);
}

static void losses_of_tokens_are_those_of_the_logits(void **state)
{
    (void)state;
    for (int i = 0; i < ROWS; i++) {
        tokens[i] = (i * 37 + 5) % VOCABULARY;
        targets[i] = i % 5 == 3 ? -1 : (i * 91 + 7) % VOCABULARY;
    }
    check("gpt2-nano");
}

static void targets_beyond_the_logits_are_refused(void **state)
{
    (void)state;
    const coh_shape inputs[] = { { COH_DTYPE_F32, 3, { 2, 3, 7 } },
                                 { COH_DTYPE_I32, 2, { 2, 4 } } };
    coh_op_facts facts = { 0 };
    assert_int_equal(coh_kind_token_losses.infer(NULL, inputs, &facts), COH_ERR_SHAPE);
    assert_non_null(strstr(coh_last_error(), "one target per row"));
    targets[3] = VOCABULARY;
    coh_model model;
    coh_graph *graph;
    coh_tensor at;
    coh_plan_options options;
    coh_engine_options engine_options;
    coh_plan *plan;
    coh_engine *engine;
    const coh_step_input input = { .struct_bytes = sizeof(input), .inputs = { tokens, targets } };
    must(coh_model_preset("gpt2-nano", VOCABULARY, &model));
    must(coh_model_token_losses_graph(&model, SEQUENCES, TOKENS, &graph, &at));
    coh_plan_options_init(&options);
    options.mode = COH_PLAN_INFER;
    coh_engine_options_init(&engine_options);
    must(coh_plan_create(graph, &options, &plan));
    must(coh_engine_create(plan, &engine_options, &engine));
    must(coh_engine_init(engine, 5));
    assert_int_equal(coh_engine_evaluate(engine, &input, NULL), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "targets"));
    coh_engine_destroy(engine);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_of_tokens_are_those_of_the_logits),
        cmocka_unit_test(targets_beyond_the_logits_are_refused),
    };
    return cmocka_run_group_tests_name("token_losses", tests, NULL, NULL);
}
