/* Training with a frozen model: placement changes no bit of it, frozen parameters are read but
 * never written, and what is not trained keeps its bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "planner/graph.h"
#include "tests/claims/trial.h"
#include "tests/length.h"

enum { STEPS = 4, H2D = 1, D2H = 2, READ = 3, WRITE = 4 };

static const trial_manner plain = { 0 };
static const trial_manner disturbed = {
    .overlapped = 1, .poison = 1, .delay_seed = 11, .delay_most_us = 100
};
static const trial_numbers clipped = { "clipped", 2, 0.5f };
static const trial_numbers unclipped = { "updates in backward", 1, 0 };
static const trial_placement in_memory = { "in memory", 0, 0, 0, 0, 2, COH_RECOMPUTE_AUTO, 0 };
static const trial_placement far[] = {
    { "half, disk", 50, 0, 1, 0, 2, COH_RECOMPUTE_AUTO, 0 },
    { "smallest, disk", TRIAL_PERCENT_SMALLEST, 0, 1, 0, 1, COH_RECOMPUTE_AUTO, 0 },
    { "half, emulated host", 50, 200, 0, 0, 3, COH_RECOMPUTE_ALL, 0 },
};

static const coh_gpt2_config config = { .layers = 4,
                                        .heads = 4,
                                        .channels = 64,
                                        .positions = 32,
                                        .vocabulary = 257,
                                        .layernorm_epsilon = 1e-5f };

/* A choice of trained parameters. */
typedef struct trained {
    const char *name;
    coh_adapters adapters;
} trained;

static const trained ways[] = {
    { "all", { .rank = 0 } },
    { "adapters of c_attn", { .rank = 4, .alpha = 8, .targets = "c_attn" } },
    { "adapters everywhere", { .rank = 3, .alpha = 1, .targets = "*" } },
    { "the last layer's", { .rank = 4, .alpha = 8, .targets = "h.3.*" } },
    { "two layers", { .freeze = "wte,wpe,h.0.*,h.1.*" } },
    { "norms", { .freeze = "wte,wpe,c_*" } },
    { "adapters and the table",
      { .rank = 4, .alpha = 8, .targets = "c_attn", .also = "wte,ln_f" } },
};
enum { WAYS = sizeof(ways) / sizeof(ways[0]) };

static trial_subject open_subject(const trained *way, coh_dtype dtype)
{
    coh_model model = { .name = "small", .gpt2 = config };
    trial_subject subject = {
        .sequences = 2, .tokens = 16, .vocabulary = 257, .dtype = dtype, .config = config
    };
    model.gpt2.dtype = dtype;
    if (coh_model_adapters_set(&model, &way->adapters) != COH_OK ||
        coh_model_train_graph(&model, subject.sequences, subject.tokens, &subject.graph) != COH_OK)
        fail_msg("%s: %s", way->name, coh_last_error());
    return subject;
}

/* In short runs each pair of choice and dtype is tested with one far tier, the next pair with
 * another. */
static int is_taken(size_t place, int index)
{
    const size_t place_count = sizeof(far) / sizeof(far[0]);
    return !test_is_short() || place == (size_t)index % place_count;
}

static const char *dtype_name(coh_dtype dtype)
{
    return dtype == COH_DTYPE_F32 ? "f32" : "bf16";
}

/* ---- bits ---- */

static void placement_changes_no_bit_of_what_is_trained(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * WAYS; i++) {
        const coh_dtype dtype = i % 2 ? COH_DTYPE_BF16 : COH_DTYPE_F32;
        const trial_numbers *numbers = i % 4 < 2 ? &clipped : &unclipped;
        trial_subject subject = open_subject(&ways[i / 2], dtype);
        trial_outcome expected, found;
        trial_run(&subject, numbers, &in_memory, &plain, STEPS, &expected);
        assert_true(expected.loss[STEPS - 1] != expected.loss[0]);
        for (size_t p = 0; p < sizeof(far) / sizeof(far[0]); p++) {
            char name[128];
            if (!is_taken(p, i))
                continue;
            snprintf(name, sizeof(name), "%s, %s, %s", ways[i / 2].name, dtype_name(dtype),
                     far[p].name);
            trial_run(&subject, numbers, &far[p], &disturbed, STEPS, &found);
            trial_check_equal(name, &found, &expected);
        }
        trial_subject_close(&subject);
    }
}

/* ---- bytes ---- */

static uint64_t bytes_of(const coh_graph *graph, int frozen)
{
    uint64_t bytes = 0;
    if (!graph) {
        fail_msg("there is no graph");
        return 0;
    }
    for (size_t i = 0; i < graph->parameter_count; i++) {
        const coh_shape *shape = &graph->parameters[i].facts.shape;
        if ((graph->parameters[i].frozen != 0) == frozen)
            bytes += (uint64_t)coh_shape_elements(shape) * coh_dtype_bytes(shape->dtype);
    }
    return bytes;
}

static void what_is_frozen_is_read_and_never_written(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * WAYS; i++) {
        const coh_dtype dtype = i % 2 ? COH_DTYPE_BF16 : COH_DTYPE_F32;
        if (test_is_short() && i % 2 == i / 2 % 2) /* each in one dtype, below in the other */
            continue;
        trial_subject subject = open_subject(&ways[i / 2], dtype);
        const uint64_t frozen_bytes = bytes_of(subject.graph, 1);
        for (size_t p = 0; p < sizeof(far) / sizeof(far[0]); p++) {
            trial t;
            trial_outcome out = { 0 };
            if (!is_taken(p, i + 1))
                continue;
            trial_open(&t, &subject, &clipped, &far[p], &plain);
            trial_steps(&t, 0, STEPS, &out);
            const uint64_t *frozen = out.last.frozen_bytes, *all = out.last.link_bytes;
            const int in = far[p].disk ? READ : H2D;
            assert_int_equal(frozen[WRITE], 0);
            assert_int_equal(frozen[D2H], 0);
            assert_true(frozen[in] <= all[in]);
            /* A budget for part of the model: the rest is read in every step. */
            if (frozen_bytes > out.summary.peak_bytes[0])
                assert_true(frozen[in] >= frozen_bytes - out.summary.peak_bytes[0]);
            if (i / 2 == 0)
                assert_int_equal(frozen[in], 0); /* all is trained and written */
            trial_close(&t);
        }
        trial_subject_close(&subject);
    }
}

/* Moves fewer bytes than a step that trains everything within the same budget; if there are few
 * activations and the adapters stay on the device, nothing is written. */
static void a_frozen_model_costs_reads_alone(void **state)
{
    (void)state;
    trial_subject whole = open_subject(&ways[0], COH_DTYPE_F32),
                  beside = open_subject(&ways[3], COH_DTYPE_F32);
    trial_outcome of_whole, of_beside;
    trial_placement place = { "one budget, disk", 40, 0, 1, 0, 1, COH_RECOMPUTE_AUTO, 0 };
    trial t;
    trial_plan(&t, &beside, &unclipped, &place);
    place.device_bytes = t.device_bytes;
    trial_close(&t);
    trial_plan(&t, &whole, &unclipped, &far[1]);
    if (place.device_bytes < t.summary.smallest_device_bytes)
        place.device_bytes = t.summary.smallest_device_bytes;
    trial_close(&t);
    trial_run(&whole, &unclipped, &place, &plain, STEPS, &of_whole);
    trial_run(&beside, &unclipped, &place, &plain, STEPS, &of_beside);
    print_message("%llu KiB of device: all trained read %llu KiB, write %llu KiB a step; the last "
                  "layer's adapters read %llu KiB, write %llu KiB\n",
                  (unsigned long long)place.device_bytes >> 10,
                  (unsigned long long)of_whole.last.link_bytes[READ] >> 10,
                  (unsigned long long)of_whole.last.link_bytes[WRITE] >> 10,
                  (unsigned long long)of_beside.last.link_bytes[READ] >> 10,
                  (unsigned long long)of_beside.last.link_bytes[WRITE] >> 10);
    assert_true(of_whole.last.link_bytes[WRITE] > 0);
    assert_true(of_beside.last.link_bytes[WRITE] < of_whole.last.link_bytes[WRITE]);
    assert_true(of_beside.last.link_bytes[READ] < of_whole.last.link_bytes[READ]);
    trial_subject_close(&whole);
    trial_subject_close(&beside);
}

/* ---- values ---- */

/* Fetches all frozen parameters, or all others, in order. */
static float *fetch_all(trial *t, int frozen, uint64_t *out_count)
{
    const coh_graph *graph = t->subject->graph;
    uint64_t count = 0;
    for (size_t i = 0; i < graph->parameter_count; i++)
        count += (uint64_t)coh_shape_elements(&graph->parameters[i].facts.shape);
    float *values = calloc(count, sizeof(*values));
    assert_non_null(values);
    *out_count = 0;
    for (size_t i = 0; i < graph->parameter_count; i++) {
        if ((graph->parameters[i].frozen != 0) != frozen)
            continue;
        assert_int_equal(coh_engine_fetch(t->engine, (coh_parameter){ (int32_t)i }, COH_FETCH_VALUE,
                                          values + *out_count),
                         COH_OK);
        *out_count += (uint64_t)coh_shape_elements(&graph->parameters[i].facts.shape);
    }
    return values;
}

static void frozen_values_keep_their_bits_and_all_others_move(void **state)
{
    (void)state;
    for (int i = 2; i < 2 * WAYS; i++) {
        if (test_is_short() && i % 2 != i / 2 % 2) /* each choice in one dtype */
            continue;
        trial_subject subject = open_subject(&ways[i / 2], i % 2 ? COH_DTYPE_BF16 : COH_DTYPE_F32);
        trial t;
        trial_outcome out = { 0 };
        uint64_t counts[2];
        trial_open(&t, &subject, &clipped, &far[1], &plain);
        float *frozen = fetch_all(&t, 1, &counts[0]), *moving = fetch_all(&t, 0, &counts[1]);
        trial_steps(&t, 0, STEPS, &out);
        float *frozen_after = fetch_all(&t, 1, &counts[0]), *moved = fetch_all(&t, 0, &counts[1]);
        assert_true(counts[0] > 0 && counts[1] > 0);
        assert_memory_equal(frozen, frozen_after, counts[0] * sizeof(float));
        uint64_t same = 0;
        for (uint64_t e = 0; e < counts[1]; e++)
            same += moved[e] == moving[e];
        if (same > counts[1] / 100)
            fail_msg("%s: %llu of %llu did not move", ways[i / 2].name, (unsigned long long)same,
                     (unsigned long long)counts[1]);
        free(frozen);
        free(moving);
        free(frozen_after);
        free(moved);
        trial_close(&t);
        trial_subject_close(&subject);
    }
}

/* Gives the same numbers for the same name, wherever it is in its graph; adapters keep their first
 * values. */
static coh_status by_name(void *context, coh_parameter parameter, const char *name, uint64_t begin,
                          uint64_t count, float *values)
{
    uint64_t seed = 3;
    (void)context;
    (void)parameter;
    if (coh_model_is_adapter_name(name))
        return COH_OK;
    for (const char *c = name; *c; c++)
        seed = seed * 31 + (unsigned char)*c;
    for (uint64_t i = 0; i < count; i++)
        values[i] = (float)(0.05 * coh_rng_normal(seed, 0, begin + i));
    return COH_OK;
}

static double first_loss(const trained *way, coh_dtype dtype)
{
    trial_subject subject = open_subject(way, dtype);
    trial t;
    trial_outcome out = { 0 };
    trial_plan(&t, &subject, &clipped, &in_memory);
    trial_engine(&t, &plain);
    assert_int_equal(coh_engine_init_from(t.engine, 1, by_name, NULL), COH_OK);
    trial_steps(&t, 0, 1, &out);
    trial_close(&t);
    trial_subject_close(&subject);
    return out.loss[0];
}

/* B is zero, so the adapter adds exactly zero. */
static void training_begins_with_the_model_as_it_is(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        const coh_dtype dtype = i ? COH_DTYPE_BF16 : COH_DTYPE_F32;
        const double expected = first_loss(&ways[0], dtype);
        for (int way = 1; way < WAYS; way++)
            if (first_loss(&ways[way], dtype) != expected)
                fail_msg("%s, %s: loss %.17g, without adapters %.17g", ways[way].name,
                         dtype_name(dtype), first_loss(&ways[way], dtype), expected);
    }
}

/* Fetches the token table, which is the head, too, after one step from by_name's values. */
static float *table_after_a_step(const coh_adapters *adapters, coh_dtype dtype, uint64_t *out_count)
{
    const trained way = { .name = "the table", .adapters = *adapters };
    trial_subject subject = open_subject(&way, dtype);
    trial t;
    trial_outcome out = { 0 };
    coh_parameter table;
    coh_graph_parameter_facts facts;
    trial_plan(&t, &subject, &unclipped, &in_memory);
    trial_engine(&t, &plain);
    assert_int_equal(coh_engine_init_from(t.engine, 1, by_name, NULL), COH_OK);
    trial_steps(&t, 0, 1, &out);
    assert_int_equal(coh_graph_parameter_find(subject.graph, "wte.weight", &table), COH_OK);
    assert_int_equal(coh_graph_parameter_at(subject.graph, table.index, &facts), COH_OK);
    *out_count = (uint64_t)coh_shape_elements(&facts.shape);
    float *values = malloc(*out_count * sizeof(*values));
    assert_non_null(values);
    assert_int_equal(coh_engine_fetch(t.engine, table, COH_FETCH_VALUE, values), COH_OK);
    trial_close(&t);
    trial_subject_close(&subject);
    return values;
}

/* B is zero, so the first gradient of the table, of lookup and head, is that without adapters. */
static void a_table_next_to_adapters_takes_its_own_first_step(void **state)
{
    (void)state;
    static const coh_adapters beside = { .rank = 4,
                                         .alpha = 8,
                                         .targets = "c_attn",
                                         .also = "wte" },
                              alone = { .freeze = "wpe,h.*,ln_f" };
    for (int i = 0; i < 2; i++) {
        const coh_dtype dtype = i ? COH_DTYPE_BF16 : COH_DTYPE_F32;
        uint64_t counts[2];
        float *found = table_after_a_step(&beside, dtype, &counts[0]),
              *expected = table_after_a_step(&alone, dtype, &counts[1]);
        assert_int_equal(counts[0], counts[1]);
        assert_memory_equal(found, expected, counts[0] * sizeof(float));
        free(found);
        free(expected);
    }
}

static void adapters_begin_as_pefts_do(void **state)
{
    (void)state;
    enum { RANK = 4, IN = 64, OUT = 192, LAYERS = 4 };
    trial_subject subject = open_subject(&ways[1], COH_DTYPE_F32);
    trial t;
    uint64_t count;
    double squares = 0;
    trial_open(&t, &subject, &clipped, &in_memory, &plain);
    float *values = fetch_all(&t, 0, &count);
    assert_int_equal(count, LAYERS * RANK * (IN + OUT));
    for (uint64_t i = 0; i < count; i++) {
        const double value = (double)values[i];
        if (i % (RANK * (IN + OUT)) >= RANK * IN)
            assert_true(values[i] == 0.0f); /* B */
        else
            assert_true(value >= -0.125 && value <= 0.125); /* A: 1 / sqrt(64) */
        squares += value * value;
    }
    /* the square of a uniform number in [-b, b] is b^2 / 3 on average; 0.3 b^2 is its spread */
    const double mean = squares / (LAYERS * RANK * IN) / (0.125 * 0.125);
    if (!(fabs(mean - 1.0 / 3.0) < 5 * 0.3 / sqrt(LAYERS * RANK * IN)))
        fail_msg("squares are %g of the largest on average", mean);
    free(values);
    trial_close(&t);
    trial_subject_close(&subject);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(placement_changes_no_bit_of_what_is_trained),
        cmocka_unit_test(what_is_frozen_is_read_and_never_written),
        cmocka_unit_test(a_frozen_model_costs_reads_alone),
        cmocka_unit_test(frozen_values_keep_their_bits_and_all_others_move),
        cmocka_unit_test(training_begins_with_the_model_as_it_is),
        cmocka_unit_test(a_table_next_to_adapters_takes_its_own_first_step),
        cmocka_unit_test(adapters_begin_as_pefts_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
