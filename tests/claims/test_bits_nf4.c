/* Training over frozen weights in 4 bits: every loss, norm and hash is that of a run whose plain
 * weights hold the same numbers, under every placement; a checkpoint of one goes on as the
 * other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "kernels/nf4.h"
#include "planner/graph.h"
#include "tests/claims/trial.h"
#include "tests/length.h"

enum { STEPS = 4, READ = 3, WRITE = 4 };

static const trial_manner plain = { 0 };
static const trial_manner disturbed = {
    .overlapped = 1, .poison = 1, .delay_seed = 11, .delay_most_us = 100
};
static const trial_numbers numbers[] = { { "clipped", 2, 0.5f }, { "updates in backward", 1, 0 } };
static const trial_placement in_memory = { "in memory", 0, 0, 0, 0, 2, COH_RECOMPUTE_AUTO, 0 };
static const trial_placement far[] = {
    { "in memory", 0, 0, 0, 0, 2, COH_RECOMPUTE_AUTO, 0 },
    { "half, disk", 50, 0, 1, 0, 2, COH_RECOMPUTE_AUTO, 0 },
    { "smallest, disk", TRIAL_PERCENT_SMALLEST, 0, 1, 0, 1, COH_RECOMPUTE_AUTO, 0 },
    { "half, emulated host", 50, 200, 0, 0, 3, COH_RECOMPUTE_ALL, 0 },
};
enum { PLACES = sizeof(far) / sizeof(far[0]) };

/* The rows of fc2 are 640 long, those of the others 128; fc1's ReLU is in its product unless it has
 * an adapter. */
static const coh_opt_config config = { .layers = 3,
                                       .heads = 4,
                                       .channels = 128,
                                       .positions = 32,
                                       .vocabulary = 257,
                                       .inner = 640,
                                       .embedding = 128,
                                       .padding = -1,
                                       .init_std = 0.05f,
                                       .norm_before = 1,
                                       .last_norm = 1,
                                       .biases = 1 };

/* What is trained over the weights. */
static const coh_adapters ways[] = {
    { .rank = 4, .alpha = 8, .targets = "q_proj,v_proj" },
    { .rank = 3, .alpha = 6, .targets = "*" },
    { .freeze = "*_proj,fc1,fc2" },
};
enum { WAYS = sizeof(ways) / sizeof(ways[0]) };

static trial_subject open_subject(const coh_adapters *way, coh_dtype dtype, int is_packed)
{
    coh_model model = { .name = "small", .family = COH_FAMILY_OPT, .opt = config };
    trial_subject subject = { .sequences = 2, .tokens = 16, .vocabulary = 257, .dtype = dtype };
    model.opt.dtype = dtype;
    model.frozen_nf4 = is_packed;
    if (coh_model_adapters_set(&model, way) != COH_OK ||
        coh_model_train_graph(&model, subject.sequences, subject.tokens, &subject.graph) != COH_OK)
        fail_msg("%s", coh_last_error());
    return subject;
}

/* Gives weights that are stored in 4 bits the numbers that they will have, and all others normal
 * numbers. `context`: the packed graph. */
static coh_status numbers_of(void *context, coh_parameter parameter, const char *name,
                             uint64_t begin, uint64_t count, float *values)
{
    const coh_graph *packed = context;
    const coh_graph_parameter *of = &packed->parameters[parameter.index];
    uint64_t seed = 3;
    for (const char *c = name; *c; c++)
        seed = seed * 31 + (unsigned char)*c;
    for (uint64_t i = 0; i < count; i++)
        values[i] = (float)(0.05 * coh_rng_normal(seed, 0, begin + i));
    if (of->facts.shape.dtype != COH_DTYPE_NF4)
        return COH_OK;
    void *codes = malloc(coh_dtype_array_bytes(COH_DTYPE_NF4, count));
    assert_non_null(codes);
    coh_nf4_quantise(codes, values, (int64_t)count);
    coh_nf4_dequantise(values, codes, (int64_t)count);
    free(codes);
    return COH_OK;
}

static trial_outcome run(const trial_subject *subject, const trial_subject *packed,
                         const trial_numbers *which, const trial_placement *place,
                         const trial_manner *manner)
{
    trial t;
    trial_outcome out = { 0 };
    trial_plan(&t, subject, which, place);
    trial_engine(&t, manner);
    assert_int_equal(coh_engine_init_from(t.engine, 1, numbers_of, packed->graph), COH_OK);
    trial_steps(&t, 0, STEPS, &out);
    out.hash = trial_hash(&t);
    trial_check_peak(place->name, &out);
    trial_close(&t);
    return out;
}

static int count_packed(const coh_graph *graph)
{
    int count = 0;
    for (size_t i = 0; i < graph->parameter_count; i++)
        count += graph->parameters[i].facts.shape.dtype == COH_DTYPE_NF4;
    return count;
}

static void placement_and_storage_change_no_bit(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * WAYS; i++) {
        const coh_dtype dtype = i % 2 ? COH_DTYPE_BF16 : COH_DTYPE_F32;
        const trial_numbers *which = &numbers[i % 4 < 2];
        trial_subject packed = open_subject(&ways[i / 2], dtype, 1),
                      as_x = open_subject(&ways[i / 2], dtype, 0);
        trial_outcome expected = run(&as_x, &packed, which, &in_memory, &plain);
        assert_int_equal(count_packed(packed.graph), 6 * config.layers);
        assert_int_equal(count_packed(as_x.graph), 0);
        assert_true(expected.loss[STEPS - 1] != expected.loss[0]);
        for (int p = 0; p < PLACES; p++) {
            char name[64];
            if (test_is_short() && p != 0 && p != 1 + i % (PLACES - 1))
                continue;
            snprintf(name, sizeof(name), "way %d, dtype %d, %s", i / 2, (int)dtype, far[p].name);
            const trial_outcome found = run(&packed, &packed, which, &far[p], &disturbed);
            expected.summary.numeric_fingerprint = found.summary.numeric_fingerprint;
            trial_check_equal(name, &found, &expected);
            assert_true(found.summary.parameter_bytes * (dtype == COH_DTYPE_F32 ? 4 : 2) <
                        expected.summary.parameter_bytes);
            if (far[p].disk)
                assert_int_equal(found.last.frozen_bytes[WRITE], 0);
        }
        trial_subject_close(&as_x);
        trial_subject_close(&packed);
    }
}

/* Saves in one storage, goes on in the other. */
static void a_checkpoint_goes_on_in_either_storage(void **state)
{
    (void)state;
    for (int from_packed = 0; from_packed < 2; from_packed++) {
        trial_subject packed = open_subject(&ways[0], COH_DTYPE_BF16, 1),
                      as_x = open_subject(&ways[0], COH_DTYPE_BF16, 0);
        const trial_subject *from = from_packed ? &packed : &as_x,
                            *to = from_packed ? &as_x : &packed;
        const coh_checkpoint_note note = { .struct_bytes = sizeof(note), .step = 2, .json = "{}" };
        const trial_outcome expected = run(from, &packed, &numbers[0], &in_memory, &plain);
        trial_outcome out = { 0 };
        trial t;
        trial_plan(&t, from, &numbers[0], &in_memory);
        trial_engine(&t, &plain);
        assert_int_equal(coh_engine_init_from(t.engine, 1, numbers_of, packed.graph), COH_OK);
        trial_steps(&t, 0, 2, &out);
        assert_int_equal(coh_engine_save(t.engine, "saved", &note), COH_OK);
        trial_close(&t);
        trial_plan(&t, to, &numbers[0], &far[2]);
        trial_engine(&t, &plain);
        assert_int_equal(coh_engine_load(t.engine, "saved", NULL), COH_OK);
        trial_steps(&t, 2, 2, &out);
        assert_memory_equal(out.loss, expected.loss, STEPS * sizeof(*out.loss));
        assert_true(trial_hash(&t) == expected.hash);
        trial_close(&t);
        assert_int_equal(system("rm -r saved"), 0);
        trial_subject_close(&as_x);
        trial_subject_close(&packed);
    }
}

/* A part of a block cannot be put: its scale is that of all. */
static void values_are_put_by_whole_blocks(void **state)
{
    (void)state;
    enum { COUNT = 2 * COH_NF4_BLOCK };
    float before[128 * 128], after[128 * 128], values[COUNT];
    trial_subject packed = open_subject(&ways[0], COH_DTYPE_F32, 1);
    coh_parameter weight = { 0 };
    trial t;
    for (int i = 0; i < COUNT; i++)
        values[i] = i % 2 ? 1 : -1; /* as they are stored */
    trial_open(&t, &packed, &numbers[0], &in_memory, &plain);
    while (packed.graph->parameters[weight.index].facts.shape.dtype != COH_DTYPE_NF4)
        weight.index++; /* [128, 128] */
    assert_int_equal(coh_engine_fetch(t.engine, weight, COH_FETCH_VALUE, before), COH_OK);
    assert_int_equal(coh_engine_put(t.engine, weight, 5, 1, values), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "blocks of 64 elements: put whole ones"));
    assert_int_equal(coh_engine_put(t.engine, weight, 3 * COH_NF4_BLOCK, COUNT, values), COH_OK);
    assert_int_equal(coh_engine_fetch(t.engine, weight, COH_FETCH_VALUE, after), COH_OK);
    for (int i = 0; i < 128 * 128; i++) {
        const int at = i - 3 * COH_NF4_BLOCK;
        assert_true(after[i] == (at >= 0 && at < COUNT ? values[at] : before[i]));
    }
    trial_close(&t);
    trial_subject_close(&packed);
}

static void only_frozen_weights_are_stored_so(void **state)
{
    (void)state;
    const coh_linear_attributes linear = { .outputs = 8, .stored = COH_DTYPE_NF4 };
    const coh_shape shape = { .dtype = COH_DTYPE_F32, .rank = 2, .dim = { 2, 128 } };
    coh_graph *graph;
    coh_tensor x, y;
    assert_int_equal(coh_graph_create(&graph), COH_OK);
    assert_int_equal(coh_graph_input(graph, "x", &shape, &x), COH_OK);
    coh_op_args args = { .name = "linear",
                         .attributes = &linear,
                         .attribute_bytes = sizeof(linear),
                         .inputs = &x,
                         .block = -1 };
    assert_int_equal(coh_graph_op(graph, &coh_kind_linear, &args, &y, NULL), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "parameter 0 is nf4 and has no gradient: freeze it"));
    args.frozen_parameters = UINT32_MAX;
    assert_int_equal(coh_graph_op(graph, &coh_kind_linear, &args, &y, NULL), COH_OK);
    const coh_shape other = { .dtype = COH_DTYPE_NF4, .rank = 2, .dim = { 2, 128 } };
    assert_int_equal(coh_graph_input(graph, "z", &other, &x), COH_ERR_SHAPE);
    coh_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(placement_and_storage_change_no_bit),
        cmocka_unit_test(a_checkpoint_goes_on_in_either_storage),
        cmocka_unit_test(values_are_put_by_whole_blocks),
        cmocka_unit_test(only_frozen_weights_are_stored_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
