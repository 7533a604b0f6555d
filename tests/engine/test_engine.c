/* The results of the public engine on real plans, compared with plain loops and between
 * placements. */
#include <stdlib.h>
#include <unistd.h>

#include "cohobate/checkpoint.h"
#include "cohobate/models.h"
#include "tests/engine/engine_bench.h"
#include "tests/length.h"
#include "tests/temporary.h"

/* The thread sanitizer finds a race by the ordering of two accesses, rarely by their timing. */
#if defined(__SANITIZE_THREAD__)
#define SEES_RACES 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SEES_RACES 1
#endif
#endif
#ifdef SEES_RACES
enum { DELAY_SEEDS = 1 };
#else
enum { DELAY_SEEDS = 3 };
#endif

static small_oracle oracle;

/* Checks that every element agrees within a few float roundings of that magnitude. */
static void check_close(const float *found, const float *expected, double scale)
{
    for (int i = 0; i < SMALL_ELEMENTS; i++) {
        double difference = fabs((double)found[i] - (double)expected[i]);
        if (!(difference <= scale * (fabs((double)expected[i]) + 1e-3)))
            fail_msg("element %d: %.9g, expected %.9g", i, (double)found[i], (double)expected[i]);
    }
}

/* Starts the oracle from the engine's present state. */
static void oracle_begin(run *r)
{
    memset(&oracle, 0, sizeof(oracle));
    oracle.dtype = model_dtype;
    for (int l = 0; l < SMALL_LAYERS; l++) {
        fetch_into(r, 2 * l, COH_FETCH_VALUE, oracle.w[l]);
        fetch_into(r, 2 * l + 1, COH_FETCH_VALUE, oracle.b[l]);
        oracle.rate_factor[l][0] = oracle.rate_factor[l][1] = 1;
        oracle.decay[l][0] = (double)r->options.weight_decay;
    }
}

static void steps_equal_plain_loops(int deferred, float clip,
                                    const coh_hyperparameter_value *numbers, uint32_t number_count)
{
    run r;
    run_prepare(&r, &placements[2], deferred);
    r.options.hyperparameters = numbers;
    r.options.hyperparameter_count = number_count;
    run_create(&r);
    assert_int_equal(coh_engine_init(r.engine, 42), COH_OK);
    oracle_begin(&r);
    oracle.clips_by_previous = !deferred;
    assert_true(oracle.b[SMALL_LAYERS - 1][7] == 1.0f);
    for (uint64_t step = 0; step < 3; step++) {
        coh_step_result result = { .struct_bytes = sizeof(result) };
        run_step(&r, step, clip, &result);
        small_oracle_step(&oracle, &r.options, input, 0.01 + 0.002 * (double)step, (double)clip);
        assert_true(fabs(result.loss - oracle.loss) <= 1e-6 * oracle.loss);
        assert_true(fabs(result.grad_norm - oracle.norm) <= 1e-5 * oracle.norm);
        assert_int_equal(result.applied_count, step + 1);
        assert_int_equal(result.finite, 1);
    }
    /* Adam divides by sqrt(v): rounding of a tiny gradient may change a step by a fraction of the
     * rate. */
    for (int l = 0; l < SMALL_LAYERS; l++) {
        fetch_into(&r, 2 * l, COH_FETCH_VALUE, values);
        check_close(values, oracle.w[l], 2e-3);
        fetch_state_into(&r, 2 * l + 1, "m", values);
        check_close(values, oracle.bm[l], 1e-4);
        fetch_state_into(&r, 2 * l, "v", values);
        check_close(values, oracle.wv[l], 1e-4);
    }
    run_end(&r);
}

static void clipped_deferred_steps_equal_plain_loops(void **state)
{
    (void)state;
    steps_equal_plain_loops(1, 0.002f, NULL, 0);
}

static void updates_in_backward_equal_plain_loops(void **state)
{
    (void)state;
    steps_equal_plain_loops(0, 0, NULL, 0);
}

/* The first step is not clipped, each later one by the norm of the step before. */
static void clipping_by_the_previous_norm_equals_plain_loops(void **state)
{
    (void)state;
    steps_equal_plain_loops(0, 0.002f, NULL, 0);
}

/* The epsilon is large enough to change every step; of two values of one number the last counts. */
static void hyperparameters_that_differ_from_the_defaults_reach_every_update(void **state)
{
    (void)state;
    static const coh_hyperparameter_value numbers[] = {
        { NULL, "beta1", 0.5f },
        { "adamw", "beta1", 0.75f },
        { NULL, "beta2", 0.875f },
        { "adamw", "epsilon", 0.01f },
    };
    steps_equal_plain_loops(1, 0.002f, numbers, 4);
    steps_equal_plain_loops(0, 0, numbers, 4);
}

static void a_state_that_no_parameter_has_is_not_fetched(void **state)
{
    (void)state;
    run r;
    const coh_parameter first = { 0 };
    run_begin(&r, &placements[0], 1);
    static const char *const unknown[] = { "u", "", "work", "low", "grad", "mm" };
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
        assert_int_equal(coh_engine_fetch_state(r.engine, first, unknown[i], values),
                         COH_ERR_ARGUMENT);
        assert_true(coh_last_error()[0] != '\0');
    }
    assert_int_equal(coh_engine_fetch_state(r.engine, first, NULL, values), COH_ERR_ARGUMENT);
    assert_int_equal(coh_engine_fetch_state(r.engine, first, "m", NULL), COH_ERR_ARGUMENT);
    assert_int_equal(coh_engine_fetch_state(r.engine, (coh_parameter){ -1 }, "m", values),
                     COH_ERR_ARGUMENT);
    assert_int_equal(
        coh_engine_fetch_state(r.engine, (coh_parameter){ 2 * SMALL_LAYERS }, "m", values),
        COH_ERR_ARGUMENT);
    fetch_state_into(&r, 0, "m", values);
    run_end(&r);
    coh_graph *own = graph;
    assert_int_equal(small_model_create_frozen(model_dtype, 1, &graph), COH_OK);
    run_begin(&r, &placements[0], 1);
    assert_int_equal(coh_engine_fetch_state(r.engine, (coh_parameter){ 2 }, "m", values),
                     COH_ERR_ARGUMENT);
    fetch_state_into(&r, 0, "m", values);
    run_end(&r);
    coh_graph_destroy(graph);
    graph = own;
}

static void a_gradient_is_fetched_as_the_body_left_it(void **state)
{
    (void)state;
    run r;
    run_begin(&r, &placements[2], 1);
    oracle_begin(&r);
    coh_step_result result = { .struct_bytes = sizeof(result) };
    run_step(&r, 0, 0, &result);
    small_oracle_step(&oracle, &r.options, input, 0.01, 0);
    fetch_into(&r, 2, COH_FETCH_GRADIENT, values);
    for (int i = 0; i < SMALL_ELEMENTS; i++)
        assert_true(fabs((double)values[i] - oracle.gw[1][i]) <=
                    1e-5 * fabs(oracle.gw[1][i]) + 1e-9);
    run_end(&r);
}

/* ---- parameter groups ---- */

static const coh_parameter_group groups[] = {
    { "*.bias", COH_GROUP_SETS_DECAY, NAN, 2.0f }, /* fields that are not set are not read */
    { "layer1", COH_GROUP_SETS_RATE, 3.0f, NAN },
    { "layer0.weight, layer3.*", COH_GROUP_SETS_RATE | COH_GROUP_SETS_DECAY, 0.25f, 0 },
    { "layer3.bias", COH_GROUP_SETS_RATE, 2.0f, NAN }, /* the last match counts */
    { "layer2.bias", COH_GROUP_SETS_RATE, 0, NAN },
};
enum { GROUP_COUNT = sizeof(groups) / sizeof(groups[0]) };

static void run_begin_grouped(run *r, const placement *p, int deferred,
                              const coh_parameter_group *given, uint32_t count)
{
    run_prepare(r, p, deferred);
    r->options.groups = given;
    r->options.group_count = count;
    run_create(r);
    assert_int_equal(coh_engine_init(r->engine, 42), COH_OK);
}

/* With updates in backward no gradient is kept. The remedy that the refusal names, deferred
 * updates, keeps them and the bits. */
static void the_refusal_of_a_gradient_names_the_plan_that_keeps_it(void **state)
{
    (void)state;
    uint64_t hashes[2];
    for (int deferred = 0; deferred < 2; deferred++) {
        run r;
        run_begin(&r, &placements[0], deferred);
        hashes[deferred] = train(&r, 3, 0);
        const coh_status status =
            coh_engine_fetch(r.engine, (coh_parameter){ 0 }, COH_FETCH_GRADIENT, values);
        assert_int_equal(status, deferred ? COH_OK : COH_ERR_ARGUMENT);
        if (!deferred)
            assert_non_null(strstr(coh_last_error(), "make the plan with deferred_update 1"));
        run_end(&r);
    }
    assert_int_equal(hashes[0], hashes[1]);
}

static void each_group_has_its_own_rate_and_decay(void **state)
{
    (void)state;
    static const double rates[SMALL_LAYERS][2] = { { 0.25, 1 }, { 3, 3 }, { 1, 0 }, { 0.25, 2 } };
    static const double decays[SMALL_LAYERS][2] = { { 0, 2 }, { 0.1, 2 }, { 0.1, 2 }, { 0, 0 } };
    for (int deferred = 0; deferred < 2; deferred++) {
        const float clip = deferred ? 0.002f : 0;
        run r;
        run_begin_grouped(&r, &placements[2], deferred, groups, GROUP_COUNT);
        oracle_begin(&r);
        memcpy(oracle.rate_factor, rates, sizeof(rates));
        memcpy(oracle.decay, decays, sizeof(decays));
        for (uint64_t step = 0; step < 3; step++) {
            coh_step_result result = { .struct_bytes = sizeof(result) };
            run_step(&r, step, clip, &result);
            small_oracle_step(&oracle, &r.options, input, 0.01 + 0.002 * (double)step,
                              (double)clip);
        }
        for (int l = 0; l < SMALL_LAYERS; l++) { /* the bound of steps_equal_plain_loops */
            fetch_into(&r, 2 * l, COH_FETCH_VALUE, values);
            check_close(values, oracle.w[l], 2e-3);
            fetch_into(&r, 2 * l + 1, COH_FETCH_VALUE, values);
            check_close(values, oracle.b[l], 2e-3);
        }
        assert_true(oracle.b[2][7] == 1.0f && oracle.b[1][7] != 1.0f);
        run_end(&r);
    }
}

static void groups_keep_the_bits_of_every_placement(void **state)
{
    (void)state;
    /* the defaults, written out as groups */
    static const coh_parameter_group same[] = {
        { "*", COH_GROUP_SETS_RATE, 1.0f, 0 },
        { "weight", COH_GROUP_SETS_DECAY, 0, 0.1f },
    };
    for (int deferred = 0; deferred < 2; deferred++) {
        const float clip = deferred ? 0.002f : 0;
        uint64_t expected[3];
        for (int p = 0; p < PLACEMENT_COUNT; p += 2) {
            if (test_is_brief() && p > 0 && p / 2 % 2 != deferred)
                continue;
            uint64_t hash[3];
            for (int g = 0; g < 3; g++) {
                run r;
                run_begin_grouped(&r, &placements[p], deferred, g == 1 ? same : groups,
                                  g == 0   ? 0
                                  : g == 1 ? 2
                                           : GROUP_COUNT);
                hash[g] = train(&r, 3, clip);
                run_end(&r);
            }
            assert_true(hash[0] == hash[1] && hash[0] != hash[2]);
            if (p == 0)
                memcpy(expected, hash, sizeof(hash));
            else
                assert_memory_equal(hash, expected, sizeof(hash));
        }
    }
}

static void a_group_that_is_wrong_is_refused_by_name(void **state)
{
    (void)state;
    static char long_pattern[COH_PATTERN_BYTES + 1];
    memset(long_pattern, 'a', COH_PATTERN_BYTES);
    const coh_parameter_group wrong[] = {
        { "layer9", COH_GROUP_SETS_RATE, 1, 0 },
        { "layer1", 0, 1, 0 },
        { "layer1", 8, 1, 0 },
        { "layer1", COH_GROUP_SETS_RATE, NAN, 0 },
        { "layer1", COH_GROUP_SETS_RATE, -1, 0 },
        { "layer1", COH_GROUP_SETS_RATE, INFINITY, 0 },
        { "layer1", COH_GROUP_SETS_DECAY, 1, -1 },
        { "layer1", COH_GROUP_SETS_DECAY, 1, NAN },
        { NULL, COH_GROUP_SETS_RATE, 1, 0 },
        { long_pattern, COH_GROUP_SETS_RATE, 1, 0 },
        { "", COH_GROUP_SETS_RATE, 1, 0 },
        { " ,", COH_GROUP_SETS_RATE, 1, 0 },
    };
    uint32_t count = 0;
    uint64_t elements = 0;
    run r;
    run_prepare(&r, &placements[0], 1);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        const coh_parameter_group two[] = { groups[0], wrong[i] };
        r.options.groups = two;
        r.options.group_count = 2;
        assert_int_equal(coh_engine_create(r.plan, &r.options, &r.engine), COH_ERR_ARGUMENT);
        assert_null(r.engine);
        assert_non_null(strstr(coh_last_error(), "parameter group"));
    }
    r.options.groups = NULL;
    assert_int_equal(coh_engine_create(r.plan, &r.options, &r.engine), COH_ERR_ARGUMENT);
    coh_plan_destroy(r.plan);
    assert_int_equal(coh_parameter_group_count(graph, "layer1, layer2.bias", &count, &elements),
                     COH_OK);
    assert_true(count == 3 && elements == 3 * SMALL_ELEMENTS);
    assert_int_equal(coh_parameter_group_count(NULL, "layer1", NULL, NULL), COH_ERR_ARGUMENT);
    coh_graph *frozen;
    assert_int_equal(small_model_create_frozen(model_dtype, 1, &frozen), COH_OK);
    assert_int_equal(coh_parameter_group_count(frozen, "layer1", NULL, NULL), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "not trained"));
    coh_graph_destroy(frozen);
}

/* ---- loss factor ---- */

static void a_loss_factor_multiplies_the_loss_and_every_gradient(void **state)
{
    (void)state;
    static float plain[SMALL_ELEMENTS];
    const float factors[] = { 0, 1, 4, 3.7f };
    for (size_t f = 0; f < sizeof(factors) / sizeof(factors[0]); f++) {
        coh_step_result result = { .struct_bytes = sizeof(result) },
                        scaled = { .struct_bytes = sizeof(scaled) };
        double evaluated = 0, evaluated_scaled = 0;
        const double factor = factors[f] > 0 ? (double)factors[f] : 1;
        run r;
        run_begin(&r, &placements[3], 1);
        coh_step_input in = step_input(1, 0);
        in.learning_rate = 0;
        assert_int_equal(coh_engine_step(r.engine, &in, &result), COH_OK);
        fetch_into(&r, 2, COH_FETCH_GRADIENT, plain);
        assert_int_equal(coh_engine_evaluate(r.engine, &in, &evaluated), COH_OK);
        in.loss_factor = factors[f];
        assert_int_equal(coh_engine_step(r.engine, &in, &scaled), COH_OK);
        fetch_into(&r, 2, COH_FETCH_GRADIENT, values);
        assert_int_equal(coh_engine_evaluate(r.engine, &in, &evaluated_scaled), COH_OK);
        /* f32: loss_scale is rounded twice. bf16: in either run at most 5 values between loss and
         * gradient are stored, each within a relative 2^-9: 10 * 2^-9 < 2^-5. */
        const double bound = model_dtype == COH_DTYPE_F32 ? 1e-6 : 0x1p-5;
        assert_true(fabs(scaled.loss - factor * result.loss) <= 1e-6 * scaled.loss);
        assert_true(fabs(evaluated_scaled - factor * evaluated) <= 1e-12 * evaluated_scaled);
        assert_true(fabs(scaled.grad_norm - factor * result.grad_norm) <= bound * scaled.grad_norm);
        double largest = 0; /* the gradients of two micro-batches may cancel */
        for (int i = 0; i < SMALL_ELEMENTS; i++)
            largest = fmax(largest, factor * fabs((double)plain[i]));
        for (int i = 0; i < SMALL_ELEMENTS; i++) {
            const double expected = factor * (double)plain[i];
            if (!(fabs((double)values[i] - expected) <= bound * largest))
                fail_msg("factor %g, element %d: %.9g, expected %.9g", factor, i, (double)values[i],
                         expected);
        }
        run_end(&r);
    }
}

static void a_loss_factor_that_is_no_positive_number_is_refused(void **state)
{
    (void)state;
    run r;
    run_begin(&r, &placements[0], 1);
    coh_step_input in = step_input(0, 0);
    coh_step_result result = { .struct_bytes = sizeof(result) };
    const float refused[] = { -1, NAN, INFINITY };
    for (int i = 0; i < 3; i++) {
        in.loss_factor = refused[i];
        assert_int_equal(coh_engine_step(r.engine, &in, &result), COH_ERR_ARGUMENT);
        assert_int_equal(coh_engine_evaluate(r.engine, &in, NULL), COH_ERR_ARGUMENT);
    }
    run_end(&r);
}

/* ---- bits ---- */

static void placement_changes_no_bit(void **state)
{
    (void)state;
    for (int deferred = 0; deferred < 2; deferred++) {
        uint64_t expected = 0, in_memory_program = 0;
        for (int p = 0; p < PLACEMENT_COUNT; p++) {
            if (test_is_brief() && p > 0 && p % 2 != deferred)
                continue;
            run r;
            run_begin(&r, &placements[p], deferred);
            uint64_t hash = train(&r, 4, deferred ? 0.002f : 0);
            if (p == 0) {
                expected = hash;
                in_memory_program = r.plan->program_hash;
            } else if (placements[p].device_percent > 0) {
                assert_true(r.plan->program_hash != in_memory_program);
            }
            if (hash != expected)
                fail_msg("%s, deferred %d: another hash", placements[p].name, deferred);
            run_end(&r);
        }
    }
}

static void delays_and_poison_change_no_bit(void **state)
{
    (void)state;
    run r;
    run_begin(&r, &placements[0], 1);
    uint64_t expected = train(&r, 3, 0.002f);
    run_end(&r);
    const uint64_t seed_count = test_is_short() ? 1 : DELAY_SEEDS;
    for (int p = 2; p < PLACEMENT_COUNT; p += 1 + test_is_brief())
        for (uint64_t seed = 1; seed <= seed_count; seed++) {
            run_prepare(&r, &placements[p], 1);
            r.options.poison = 1;
            r.options.delay_seed = seed;
            r.options.delay_most_us = 100;
            run_create(&r);
            assert_int_equal(coh_engine_init(r.engine, 42), COH_OK);
            if (train(&r, 3, 0.002f) != expected)
                fail_msg("%s, seed %d: another hash", placements[p].name, (int)seed);
            run_end(&r);
        }
}

static void two_steps_under_way_give_the_same_bits(void **state)
{
    (void)state;
    run r;
    run_begin(&r, &placements[2], 1);
    uint64_t expected = train(&r, 5, 0.002f);
    assert_int_equal(coh_engine_init(r.engine, 42), COH_OK);
    coh_step_result result = { .struct_bytes = sizeof(result) };
    for (uint64_t step = 0; step < 5; step++) {
        const coh_step_input in = step_input(step, 0.002f);
        assert_int_equal(coh_engine_submit(r.engine, &in), COH_OK);
        if (step > 0) {
            assert_int_equal(coh_engine_wait(r.engine, &result), COH_OK);
            assert_int_equal(result.step, step - 1);
        }
    }
    uint64_t hash;
    assert_int_equal(coh_engine_hash(r.engine, &hash), COH_ERR_ARGUMENT); /* one is in flight */
    assert_int_equal(coh_engine_wait(r.engine, &result), COH_OK);
    assert_int_equal(coh_engine_wait(r.engine, &result), COH_ERR_ARGUMENT);
    assert_true(run_hash(&r) == expected);
    run_end(&r);
}

static void drains_and_evaluations_between_steps_change_no_bit(void **state)
{
    (void)state;
    run r;
    run_begin(&r, &placements[2], 1);
    uint64_t expected = train(&r, 4, 0.002f);
    assert_int_equal(coh_engine_init(r.engine, 42), COH_OK);
    coh_step_result result = { .struct_bytes = sizeof(result) };
    for (uint64_t step = 0; step < 4; step++) {
        run_step(&r, step, 0.002f, &result);
        double loss = 0;
        if (step == 1)
            assert_int_equal(coh_engine_drain(r.engine), COH_OK);
        const coh_step_input in = step_input(step, 0);
        if (step == 2) {
            assert_int_equal(coh_engine_evaluate(r.engine, &in, &loss), COH_OK);
            assert_true(loss > 0 && isfinite(loss));
        }
    }
    assert_true(run_hash(&r) == expected);
    run_end(&r);
}

static void evaluation_equals_the_plain_loss(void **state)
{
    (void)state;
    run r;
    run_begin(&r, &placements[2], 1);
    const coh_step_input in = step_input(9, 0);
    double loss = 0, expected = 0;
    assert_int_equal(coh_engine_evaluate(r.engine, &in, &loss), COH_OK);
    oracle_begin(&r);
    for (int e = 0; e < SMALL_ELEMENTS; e++) {
        double x = (double)input[e];
        for (int l = 0; l < SMALL_LAYERS; l++)
            x = small_oracle_kept(
                model_dtype, (double)(float)(x * small_oracle_work(model_dtype, oracle.w[l][e])) +
                                 small_oracle_work(model_dtype, oracle.b[l][e]));
        expected += x * x / (2.0 * SMALL_ELEMENTS);
    }
    assert_true(fabs(loss - expected) <= 1e-6 * expected);
    run_end(&r);
}

/* The calls of `progress` and their last numbers, by operation. */
typedef struct told {
    int calls[COH_OPERATION_PUT + 1];
    uint64_t done[COH_OPERATION_PUT + 1], total;
} told;

static void note_progress(void *context, coh_operation operation, uint64_t done, uint64_t total)
{
    told *t = context;
    assert_in_range(operation, COH_OPERATION_INIT, COH_OPERATION_PUT);
    const int is_next = done > t->done[operation] || t->done[operation] == total;
    assert_true(is_next && done <= total);
    t->calls[operation]++;
    t->done[operation] = done;
    t->total = total;
}

static void save_and_load(coh_engine *engine)
{
    char path[256];
    const coh_checkpoint_note note = { .struct_bytes = sizeof(note), .json = "{}" };
    assert_int_equal(temporary_folder(path, sizeof(path), "progress"), 0);
    assert_int_equal(rmdir(path), 0); /* a save makes its folder */
    assert_int_equal(coh_engine_save(engine, path, &note), COH_OK);
    assert_int_equal(coh_engine_load(engine, path, NULL), COH_OK);
    assert_int_equal(coh_checkpoint_remove(path), COH_OK);
}

static void progress_is_told_to_the_end_in_every_placement(void **state)
{
    (void)state;
    const uint64_t total = (uint64_t)SMALL_LAYERS * 2 * SMALL_ELEMENTS; /* weights and biases */
    for (int i = 0; i < PLACEMENT_COUNT; i++) {
        run r;
        told t = { 0 };
        uint64_t hash;
        run_prepare(&r, &placements[i], 1);
        r.options.progress = note_progress;
        r.options.progress_context = &t;
        run_create(&r);
        assert_int_equal(coh_engine_init(r.engine, 42), COH_OK);
        assert_int_equal(coh_engine_hash(r.engine, &hash), COH_OK);
        fetch_into(&r, 0, COH_FETCH_VALUE, values);
        assert_int_equal(coh_engine_put(r.engine, (coh_parameter){ 0 }, 0, SMALL_ELEMENTS, values),
                         COH_OK);
        save_and_load(r.engine);
        assert_int_equal(t.total, total);
        for (int operation = 0; operation <= COH_OPERATION_PUT; operation++) {
            assert_int_equal(t.done[operation], total);
            assert_in_range(t.calls[operation], 1, 101);
        }
        run_end(&r);
    }
}

static coh_status give_zeros(void *context, coh_parameter parameter, const char *name,
                             uint64_t element_begin, uint64_t count, float *pieces)
{
    (void)parameter;
    (void)name;
    (void)element_begin;
    memset(pieces, 0, count * sizeof(float));
    *(uint64_t *)context += count;
    return COH_OK;
}

static void expect_given(void *given_count, coh_operation operation, uint64_t done, uint64_t total)
{
    (void)operation;
    assert_true(done <= *(uint64_t *)given_count && done <= total);
}

static void progress_counts_values_that_were_given(void **state)
{
    (void)state;
    for (int i = 0; i < PLACEMENT_COUNT; i++) {
        run r;
        uint64_t given_count = 0;
        run_prepare(&r, &placements[i], 1);
        r.options.progress = expect_given;
        r.options.progress_context = &given_count;
        run_create(&r);
        assert_int_equal(coh_engine_init_from(r.engine, 42, give_zeros, &given_count), COH_OK);
        assert_int_equal(given_count, (uint64_t)SMALL_LAYERS * 2 * SMALL_ELEMENTS);
        run_end(&r);
    }
}

/* ---- a range of a parameter is written ---- */

enum { WRITTEN = 2, WRITTEN_BEGIN = 12345, WRITTEN_END = 23456 }; /* of layer 1's weight */

static float written_value(uint64_t element)
{
    return 0.125f + (float)element * 0x1p-30f; /* more bits than bf16 has */
}

static coh_status write_range(void *context, coh_parameter parameter, const char *name,
                              uint64_t element_begin, uint64_t count, float *pieces)
{
    (void)context;
    (void)name;
    for (uint64_t i = element_begin; i < element_begin + count; i++)
        if (parameter.index == WRITTEN && i >= WRITTEN_BEGIN && i < WRITTEN_END)
            pieces[i - element_begin] = written_value(i);
    return COH_OK;
}

static void write_by_a_checkpoint(run *r)
{
    char path[256];
    const coh_checkpoint_note note = { .struct_bytes = sizeof(note), .step = 2, .json = "{}" };
    coh_load_facts facts = { .struct_bytes = sizeof(facts) };
    assert_int_equal(temporary_folder(path, sizeof(path), "written"), 0);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(coh_engine_save(r->engine, path, &note), COH_OK);
    assert_int_equal(coh_engine_load_from(r->engine, path, write_range, NULL, &facts), COH_OK);
    assert_int_equal(coh_checkpoint_remove(path), COH_OK);
    assert_int_equal(facts.step, 2);
}

static void write_by_a_put(run *r)
{
    static float range[WRITTEN_END - WRITTEN_BEGIN];
    for (uint64_t i = WRITTEN_BEGIN; i < WRITTEN_END; i++)
        range[i - WRITTEN_BEGIN] = written_value(i);
    assert_int_equal(coh_engine_put(r->engine, (coh_parameter){ WRITTEN }, WRITTEN_BEGIN,
                                    WRITTEN_END - WRITTEN_BEGIN, range),
                     COH_OK);
}

/* Trains two steps, writes the range between two steps, checks every value, and trains on. */
static uint64_t hash_after_write(const placement *p, void (*write)(run *r))
{
    run r;
    static float before[SMALL_ELEMENTS], moments[SMALL_ELEMENTS];
    coh_step_result result = { .struct_bytes = sizeof(result) };
    uint64_t hash;
    run_begin(&r, p, 1);
    run_step(&r, 0, 1, &result);
    run_step(&r, 1, 1, &result);
    fetch_into(&r, WRITTEN, COH_FETCH_VALUE, before);
    fetch_state_into(&r, WRITTEN, "m", moments);
    write(&r);
    fetch_into(&r, WRITTEN, COH_FETCH_VALUE, values);
    for (uint64_t i = 0; i < SMALL_ELEMENTS; i++)
        assert_true(values[i] ==
                    (i >= WRITTEN_BEGIN && i < WRITTEN_END ? written_value(i) : before[i]));
    fetch_state_into(&r, WRITTEN, "m", values);
    assert_memory_equal(values, moments, sizeof(moments));
    run_step(&r, 2, 1, &result);
    assert_int_equal(coh_engine_hash(r.engine, &hash), COH_OK);
    run_end(&r);
    return hash;
}

static void a_range_of_a_parameter_is_written_in_every_placement(void **state)
{
    (void)state;
    const uint64_t hash = hash_after_write(&placements[0], write_by_a_checkpoint);
    for (int i = 0; i < PLACEMENT_COUNT; i++) {
        /* a sanitizer sees each placement once */
        if (i > 0 && (!test_is_brief() || i % 2 == 0))
            assert_int_equal(hash_after_write(&placements[i], write_by_a_checkpoint), hash);
        if (!test_is_brief() || i % 2 == 1)
            assert_int_equal(hash_after_write(&placements[i], write_by_a_put), hash);
    }
}

/* An update that is still pending when the range is written is made first; with updates in
 * backward there is none. */
static void a_write_follows_the_update_of_the_last_step(void **state)
{
    (void)state;
    for (int deferred = 0; deferred < 2; deferred++) {
        uint64_t hashes[2];
        for (int by_put = 0; by_put < 2; by_put++) {
            run r;
            coh_step_result result = { .struct_bytes = sizeof(result) };
            run_begin(&r, &placements[PLACEMENT_COUNT - 1], deferred);
            run_step(&r, 0, deferred ? 1 : 0, &result);
            (by_put ? write_by_a_put : write_by_a_checkpoint)(&r);
            run_step(&r, 1, deferred ? 1 : 0, &result);
            assert_int_equal(coh_engine_hash(r.engine, &hashes[by_put]), COH_OK);
            run_end(&r);
        }
        assert_int_equal(hashes[0], hashes[1]);
    }
}

/* Writes the range into initial values, while they are made or afterwards; returns the hash. */
static uint64_t hash_of_initial_values(const placement *p, int mode, int by_put)
{
    run r;
    coh_plan_options options;
    coh_plan_options_init(&options);
    options.mode = mode;
    options.microbatch_count = mode == COH_PLAN_TRAIN ? SMALL_MICROBATCHES : 1;
    options.chunk_bytes = p->chunk_bytes;
    options.search = test_search();
    uint64_t whole;
    assert_int_equal(coh_plan_in_memory_bytes(graph, &options, &whole), COH_OK);
    if (p->device_percent > 0)
        options.device_memory_bytes = whole * 85 / 100;
    options.emulate_host = 1;
    options.host_memory_bytes = p->host_bytes;
    options.disk_bytes = p->disk_bytes;
    r = (run){ 0 };
    if (coh_plan_create(graph, &options, &r.plan) != COH_OK)
        fail_msg("%s: %s", p->name, coh_last_error());
    coh_engine_options_init(&r.options);
    r.options.disk_folder = ".";
    r.options.store = "mem";
    run_create(&r);
    if (by_put) {
        assert_int_equal(coh_engine_init(r.engine, 42), COH_OK);
        write_by_a_put(&r);
    } else {
        assert_int_equal(coh_engine_init_from(r.engine, 42, write_range, NULL), COH_OK);
    }
    const coh_step_input in = step_input(0, 0);
    double loss;
    assert_int_equal(coh_engine_evaluate(r.engine, &in, &loss), COH_OK);
    const uint64_t hash = run_hash(&r);
    run_end(&r);
    return hash;
}

/* No update ever writes a frozen parameter again, so every copy of it has to be written at once. */
static void a_parameter_that_is_not_trained_is_written_in_every_placement(void **state)
{
    (void)state;
    coh_graph *own = graph;
    const coh_plan_mode modes[] = { COH_PLAN_TRAIN, COH_PLAN_INFER };
    assert_int_equal(small_model_create_frozen(model_dtype, 1, &graph), COH_OK);
    for (int m = 0; m < 2; m++)
        for (int i = 0; i < PLACEMENT_COUNT; i++) {
            if (test_is_brief() && i % 2 != m)
                continue;
            assert_int_equal(hash_of_initial_values(&placements[i], modes[m], 1),
                             hash_of_initial_values(&placements[0], modes[m], 0));
        }
    coh_graph_destroy(graph);
    graph = own;
}

/* A refused write leaves every value as it was. */
static void a_write_that_does_not_fit_or_is_not_finite_is_refused(void **state)
{
    (void)state;
    const struct {
        uint64_t begin, count;
        float last;
        coh_status status;
        const char *words;
    } refused[] = {
        { 0, SMALL_ELEMENTS + 1, 0, COH_ERR_ARGUMENT, "40001 values from element 0 on" },
        { SMALL_ELEMENTS, 1, 0, COH_ERR_ARGUMENT, "has 40000 elements" },
        { UINT64_MAX, 2, 0, COH_ERR_ARGUMENT, "do not fit into parameter" },
        { 7, 3, NAN, COH_ERR_NUMBER, "element 9 of parameter" },
        { 0, 1, -INFINITY, COH_ERR_NUMBER, "element 0 of parameter" },
    };
    run r;
    uint64_t before, after;
    run_begin(&r, &placements[PLACEMENT_COUNT - 1], 1);
    assert_int_equal(coh_engine_hash(r.engine, &before), COH_OK);
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        memset(values, 0, sizeof(values));
        if (refused[i].count <= SMALL_ELEMENTS)
            values[refused[i].count - 1] = refused[i].last;
        assert_int_equal(coh_engine_put(r.engine, (coh_parameter){ WRITTEN }, refused[i].begin,
                                        refused[i].count, values),
                         refused[i].status);
        assert_non_null(strstr(coh_last_error(), refused[i].words));
    }
    assert_int_equal(
        coh_engine_put(r.engine, (coh_parameter){ WRITTEN }, SMALL_ELEMENTS, 0, values), COH_OK);
    assert_int_equal(coh_engine_hash(r.engine, &after), COH_OK);
    assert_int_equal(before, after);
    run_end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clipped_deferred_steps_equal_plain_loops),
        cmocka_unit_test(updates_in_backward_equal_plain_loops),
        cmocka_unit_test(clipping_by_the_previous_norm_equals_plain_loops),
        cmocka_unit_test(hyperparameters_that_differ_from_the_defaults_reach_every_update),
        cmocka_unit_test(a_state_that_no_parameter_has_is_not_fetched),
        cmocka_unit_test(a_gradient_is_fetched_as_the_body_left_it),
        cmocka_unit_test(the_refusal_of_a_gradient_names_the_plan_that_keeps_it),
        cmocka_unit_test(each_group_has_its_own_rate_and_decay),
        cmocka_unit_test(groups_keep_the_bits_of_every_placement),
        cmocka_unit_test(a_group_that_is_wrong_is_refused_by_name),
        cmocka_unit_test(a_loss_factor_multiplies_the_loss_and_every_gradient),
        cmocka_unit_test(a_loss_factor_that_is_no_positive_number_is_refused),
        cmocka_unit_test(placement_changes_no_bit),
        cmocka_unit_test(delays_and_poison_change_no_bit),
        cmocka_unit_test(two_steps_under_way_give_the_same_bits),
        cmocka_unit_test(drains_and_evaluations_between_steps_change_no_bit),
        cmocka_unit_test(evaluation_equals_the_plain_loss),
        cmocka_unit_test(progress_is_told_to_the_end_in_every_placement),
        cmocka_unit_test(progress_counts_values_that_were_given),
        cmocka_unit_test(a_range_of_a_parameter_is_written_in_every_placement),
        cmocka_unit_test(a_write_follows_the_update_of_the_last_step),
        cmocka_unit_test(a_parameter_that_is_not_trained_is_written_in_every_placement),
        cmocka_unit_test(a_write_that_does_not_fit_or_is_not_finite_is_refused),
    };
    return run_in_each_dtype(tests);
}
