/* The loss over counted targets, on a small GPT-2: compared with the positions one by one, and the
 * same however the batch is split into micro-batches. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "cohobate/engine.h"
#include "cohobate/models.h"
#include "planner/graph.h"

enum { BATCH = 4, TOKENS = 8, PLACES = BATCH * TOKENS, VOCABULARY = 40, VALUES_MOST = 4096 };

static const coh_gpt2_config config = { .layers = 2,
                                        .heads = 2,
                                        .channels = 16,
                                        .positions = TOKENS,
                                        .vocabulary = VOCABULARY,
                                        .layernorm_epsilon = 1e-5f };

static int32_t tokens[PLACES], targets[PLACES], one[PLACES];
static int64_t counted;

/* The first sequence has no counted target, the second a few, the last only counted ones. */
static int fill(void **state)
{
    (void)state;
    static const int percent[BATCH] = { 0, 20, 60, 100 };
    for (int i = 0; i < PLACES; i++) {
        tokens[i] = (int32_t)coh_rng_below(1, 0, (uint64_t)i, VOCABULARY);
        targets[i] = (int32_t)coh_rng_below(1, 1, (uint64_t)i, VOCABULARY);
        if ((int)coh_rng_below(1, 2, (uint64_t)i, 100) >= percent[i / TOKENS])
            targets[i] = -1;
        counted += targets[i] >= 0;
    }
    return counted < 10 || counted > PLACES - 10;
}

typedef struct run {
    coh_graph *graph;
    coh_plan *plan;
    coh_engine *engine;
} run;

static void run_begin(run *r, int micro_batch)
{
    coh_plan_options plan_options;
    coh_engine_options engine_options;
    coh_plan_options_init(&plan_options);
    plan_options.microbatch_count = BATCH / micro_batch;
    plan_options.deferred_update = 1;
    coh_engine_options_init(&engine_options);
    if (coh_gpt2_train_graph(&config, micro_batch, TOKENS, &r->graph) != COH_OK ||
        coh_plan_create(r->graph, &plan_options, &r->plan) != COH_OK ||
        coh_engine_create(r->plan, &engine_options, &r->engine) != COH_OK ||
        coh_engine_init(r->engine, 3) != COH_OK)
        fail_msg("%s", coh_last_error());
}

static void run_end(run *r)
{
    coh_engine_destroy(r->engine);
    coh_plan_destroy(r->plan);
    coh_graph_destroy(r->graph);
}

static coh_step_result step(run *r, const int32_t *step_targets, float factor)
{
    coh_step_result result = { .struct_bytes = sizeof(result) };
    const coh_step_input input = { .struct_bytes = sizeof(input),
                                   .inputs = { tokens, step_targets },
                                   .loss_factor = factor };
    if (coh_engine_step(r->engine, &input, &result) != COH_OK)
        fail_msg("%s", coh_last_error());
    return result;
}

static int parameter_count(const run *r)
{
    return (int)r->graph->parameter_count;
}

static int64_t fetch_gradient(run *r, int parameter, float *values)
{
    int64_t count = coh_shape_elements(&r->graph->parameters[parameter].facts.shape);
    assert_true(count <= VALUES_MOST);
    if (coh_engine_fetch(r->engine, (coh_parameter){ parameter }, COH_FETCH_GRADIENT, values) !=
        COH_OK)
        fail_msg("%s", coh_last_error());
    return count;
}

enum { PARAMETERS_MOST = 64 };
static double expected[PARAMETERS_MOST][VALUES_MOST];
static double expected_loss;

/* Computes the mean over counted positions of each one's own loss and gradient, in steps where no
 * other position counts; these are divided by the number of positions. */
static void place_by_place(void)
{
    static float values[VALUES_MOST];
    run r;
    run_begin(&r, BATCH);
    assert_true(parameter_count(&r) <= PARAMETERS_MOST);
    memset(expected, 0, sizeof(expected));
    expected_loss = 0;
    for (int place = 0; place < PLACES; place++) {
        if (targets[place] < 0)
            continue;
        memset(one, 0xff, sizeof(one));
        one[place] = targets[place];
        expected_loss += step(&r, one, 0).loss * PLACES / (double)counted;
        for (int p = 0; p < parameter_count(&r); p++) {
            int64_t count = fetch_gradient(&r, p, values);
            for (int64_t i = 0; i < count; i++)
                expected[p][i] += (double)values[i] * PLACES / (double)counted;
        }
    }
    run_end(&r);
}

static void loss_and_gradients_are_means_over_what_counts_in_any_micro_batches(void **state)
{
    (void)state;
    static float values[VALUES_MOST];
    place_by_place();
    for (int micro_batch = 1; micro_batch <= BATCH; micro_batch *= 2) {
        run r;
        run_begin(&r, micro_batch);
        coh_step_result result = step(&r, targets, (float)((double)PLACES / (double)counted));
        /* Sums of about 20 float losses, and products of float gradients through two layers. */
        assert_true(fabs(result.loss - expected_loss) <= 1e-6 * expected_loss);
        double error = 0, norm = 0;
        for (int p = 0; p < parameter_count(&r); p++) {
            int64_t count = fetch_gradient(&r, p, values);
            for (int64_t i = 0; i < count; i++) {
                error +=
                    ((double)values[i] - expected[p][i]) * ((double)values[i] - expected[p][i]);
                norm += expected[p][i] * expected[p][i];
            }
        }
        if (!(sqrt(error) <= 3e-6 * sqrt(norm)))
            fail_msg("micro-batch %d: gradients differ by %g of %g", micro_batch, sqrt(error),
                     sqrt(norm));
        assert_true(fabs(result.grad_norm - sqrt(norm)) <= 3e-6 * sqrt(norm));
        run_end(&r);
    }
}

static void a_step_in_which_nothing_counts_has_no_loss_and_no_gradient(void **state)
{
    (void)state;
    static float before[VALUES_MOST], after[VALUES_MOST];
    run r;
    memset(one, 0xff, sizeof(one));
    run_begin(&r, 2);
    (void)step(&r, targets, 0); /* makes the moments nonzero */
    assert_int_equal(coh_engine_fetch(r.engine, (coh_parameter){ 0 }, COH_FETCH_VALUE, before),
                     COH_OK);
    coh_step_result result = step(&r, one, 0);
    assert_true(result.loss == 0 && result.grad_norm == 0);
    assert_int_equal(result.finite, 1);
    assert_int_equal(coh_engine_fetch(r.engine, (coh_parameter){ 0 }, COH_FETCH_VALUE, after),
                     COH_OK);
    assert_memory_equal(before, after, sizeof(before)); /* step() uses rate 0 */
    run_end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loss_and_gradients_are_means_over_what_counts_in_any_micro_batches),
        cmocka_unit_test(a_step_in_which_nothing_counts_has_no_loss_and_no_gradient),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
