/* A wide network whose weights do not fit in one piece: in slices, pinned, with and without
 * recomputed blocks, it ends with the bits of the run in memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "cohobate/kinds.h"
#include "planner/plan_make.h"
#include "planner/schedule.h"
#include "tests/claims/trial.h"
#include "tests/search_length.h"

/* 4096 x 2048 is cut into blocks of 2048 rows, 2048 x 4096 into blocks of 1024. */
enum { STEPS = 3, WIDTH = 2048, HIDDEN = 4096, VOCABULARY = 61, TOKENS = 4 };

static const trial_manner plain = { 0 };
static const trial_manner disturbed = {
    .overlapped = 1, .poison = 1, .delay_seed = 5, .delay_most_us = 100
};
static const trial_numbers clipped = { "clipped", 2, 0.5f };
static const trial_numbers unclipped = { "updates in backward", 1, 0 };
static const trial_placement in_memory = { "in memory", 0, 0, 0, 0, 2, COH_RECOMPUTE_AUTO, 0 };

static void add(coh_graph *graph, const coh_op_kind *kind, const char *name, int32_t block,
                const void *attributes, size_t bytes, const coh_tensor *inputs, coh_tensor *out)
{
    const coh_op_args args = { .name = name,
                               .attributes = attributes,
                               .attribute_bytes = bytes,
                               .inputs = inputs,
                               .block = block };
    if (coh_graph_op(graph, kind, &args, out, NULL) != COH_OK)
        fail_msg("%s", coh_last_error());
}

/* tokens -> x; x + wide(gelu(wide(x))); loss. */
static coh_graph *make_graph(coh_dtype dtype)
{
    coh_graph *graph = NULL;
    coh_tensor tokens, targets, x, hidden, loss, inputs[2];
    const coh_shape ids = { .dtype = COH_DTYPE_I32, .rank = 2, .dim = { 1, TOKENS } };
    const coh_embedding_attributes table = { VOCABULARY, WIDTH, 0.5f, dtype };
    const coh_linear_attributes up = { HIDDEN, 1, 0.02f }, down = { WIDTH, 1, 0.02f };
    const coh_classifier_attributes head = { VOCABULARY, 0.02f, 0 };
    assert_int_equal(coh_graph_create(&graph), COH_OK);
    assert_int_equal(coh_graph_input(graph, "tokens", &ids, &tokens), COH_OK);
    assert_int_equal(coh_graph_input(graph, "targets", &ids, &targets), COH_OK);
    add(graph, &coh_kind_embedding, "table", -1, &table, sizeof(table), &tokens, &x);
    add(graph, &coh_kind_linear_gelu, "up", 0, &up, sizeof(up), &x, &hidden);
    inputs[0] = hidden;
    inputs[1] = x;
    add(graph, &coh_kind_linear_residual, "down", 0, &down, sizeof(down), inputs, &x);
    inputs[0] = x;
    inputs[1] = targets;
    add(graph, &coh_kind_classifier, "head", -1, &head, sizeof(head), inputs, &loss);
    assert_int_equal(coh_graph_loss(graph, loss), COH_OK);
    return graph;
}

static void check_sliced(const coh_plan *plan, int is_sliced)
{
    for (int32_t i = 0; i < coh_plan_operator_count(plan); i++) {
        coh_plan_operator op = { .struct_bytes = sizeof(op) };
        assert_int_equal(coh_plan_operator_at(plan, i, &op), COH_OK);
        if (strcmp(op.name, "up") == 0 || strcmp(op.name, "down") == 0)
            assert_string_equal(op.pattern, is_sliced ? "slice x2" : "replicate");
    }
}

/* Returns the least bytes of any schedule with whole weights. */
static uint64_t whole_bound(const coh_graph *graph, const trial_numbers *numbers)
{
    const coh_decisions decisions = {
        .chunk_bytes = 1 << 16, .row_passes = 1024, .slices = 1, .patterns = coh_pattern_choose(1)
    };
    coh_plan_options options;
    uint64_t bytes = 0;
    coh_plan_options_init(&options);
    options.search = test_search();
    options.disk_bytes = UINT64_MAX;
    options.microbatch_count = numbers->microbatch_count;
    options.deferred_update = numbers->clip > 0;
    assert_int_equal(coh_schedule_bound(graph, &options, &decisions, &bytes, NULL), COH_OK);
    return bytes;
}

static void check(const trial_numbers *numbers, coh_dtype dtype)
{
    static const trial_placement far[] = {
        { "smallest, disk", TRIAL_PERCENT_SMALLEST, 0, 1, 0, 2, COH_RECOMPUTE_NONE, 0 },
        { "smallest, emulated host, recomputed", TRIAL_PERCENT_SMALLEST, 400, 0, 1 << 20, 1,
          COH_RECOMPUTE_ALL, 0 },
        { "60 %, disk", 60, 0, 1, 0, 2, COH_RECOMPUTE_AUTO, 0 },
    };
    trial_subject subject = { .sequences = 1, .tokens = TOKENS, .dtype = dtype };
    trial_outcome reference;
    subject.graph = make_graph(dtype);
    subject.config.vocabulary = VOCABULARY;
    const uint64_t whole = whole_bound(subject.graph, numbers);
    trial_run(&subject, numbers, &in_memory, &plain, STEPS, &reference);
    for (size_t i = 0; i < sizeof(far) / sizeof(far[0]); i++) {
        const int is_smallest = far[i].device_percent == TRIAL_PERCENT_SMALLEST;
        trial_outcome found;
        trial t;
        trial_plan(&t, &subject, numbers, &far[i]);
        check_sliced(t.plan, is_smallest);
        if (is_smallest)
            assert_true(t.summary.peak_bytes[0] < whole * 3 / 4);
        trial_run_plan(&t, &disturbed, STEPS, &found);
        trial_check_equal(far[i].name, &found, &reference);
        trial_close(&t);
    }
    trial_subject_close(&subject);
}

static void slices_change_no_bit_in_f32(void **state)
{
    (void)state;
    check(&clipped, COH_DTYPE_F32);
}

static void slices_change_no_bit_in_bf16(void **state)
{
    (void)state;
    check(&unclipped, COH_DTYPE_BF16);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(slices_change_no_bit_in_f32),
                                        cmocka_unit_test(slices_change_no_bit_in_bf16) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
