/* The rank pattern "auto" against all patterns by hand: its plan is about as fast as the fastest of
 * them, and it is refused as the one that lacks least. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <inttypes.h>

#include "base/file_text.h"
#include "planner/plan_file.h"
#include "planner/rank_choice.h"
#include "tests/length.h"
#include "tests/planner/toy_graph.h"

#define MIB ((uint64_t)1 << 20)

static const char *const patterns[] = {
    "replicate", "zero1", "zero2", "zero3", "levels", "zeropp"
};
enum { PATTERNS = sizeof(patterns) / sizeof(patterns[0]) };

/* A plan by one pattern, or why there is none. */
typedef struct made {
    coh_status status;
    coh_plan_summary summary;
    coh_refusal refusal;
} made;

static coh_graph *graph_of(int layers, int64_t rows)
{
    const toy_options toy = { .layers = layers, .width = 256, .vocabulary = 512, .rows = rows };
    coh_graph *graph = NULL;
    assert_int_equal(toy_graph_make(&toy, &graph), COH_OK);
    return graph;
}

static coh_plan_options options_of(const char *pattern, uint64_t device_bytes, uint64_t disk_bytes)
{
    coh_plan_options options;
    coh_plan_options_init(&options);
    options.ranks = (coh_fold_shape){ { 2, 2 } };
    options.pair_ranks = options.node_ranks = 2;
    options.device_memory_bytes = device_bytes;
    options.disk_bytes = disk_bytes;
    snprintf(options.rank_pattern, sizeof(options.rank_pattern), "%s", pattern);
    return options;
}

/* Plans; *out_plan is NULL if it is refused. */
static made make(const coh_graph *graph, const coh_plan_options *options, coh_plan **out_plan)
{
    made m = { .summary.struct_bytes = sizeof(m.summary),
               .refusal.struct_bytes = sizeof(m.refusal) };
    m.status = coh_plan_create(graph, options, out_plan);
    if (m.status == COH_OK)
        assert_int_equal(coh_plan_summarize(*out_plan, &m.summary), COH_OK);
    else
        assert_int_equal(coh_last_refusal(&m.refusal), 1);
    return m;
}

static made make_by(const coh_graph *graph, const char *pattern, uint64_t device_bytes,
                    uint64_t disk_bytes)
{
    const coh_plan_options options = options_of(pattern, device_bytes, disk_bytes);
    coh_plan *plan = NULL;
    const made m = make(graph, &options, &plan);
    coh_plan_destroy(plan);
    return m;
}

/* Returns the fastest plan by hand, or the refusal that lacks least. */
static made best_by_hand(const coh_graph *graph, uint64_t device_bytes, uint64_t disk_bytes)
{
    made best = { .status = COH_ERR_INTERNAL };
    for (int i = 0; i < PATTERNS; i++) {
        const made m = make_by(graph, patterns[i], device_bytes, disk_bytes);
        const int is_better =
            m.status == COH_OK
                ? best.status != COH_OK || m.summary.step_ns < best.summary.step_ns
                : best.status == COH_ERR_INTERNAL ||
                      (best.status != COH_OK && m.refusal.short_bytes < best.refusal.short_bytes);
        if (is_better)
            best = m;
    }
    return best;
}

/* The plan that is chosen is the one by hand, which a short run under a sanitizer does not make
 * again; its file gives it again, to ranks that know no more than "auto". */
static void check_is_by_hand(const coh_graph *graph, const coh_plan_options *options,
                             const coh_plan *plan, const coh_plan_summary *chosen)
{
    coh_plan_options by_hand = *options;
    coh_plan *again = NULL;
    coh_text text = { 0 };
    if (!test_is_brief()) {
        memcpy(by_hand.rank_pattern, chosen->rank_pattern, sizeof(by_hand.rank_pattern));
        assert_int_equal(make(graph, &by_hand, &again).summary.program_hash, chosen->program_hash);
        coh_plan_destroy(again);
    }
    assert_int_equal(coh_plan_to_text(plan, "", &text), COH_OK);
    assert_int_equal(coh_plan_parse(graph, options, "shared", text.data, &again), COH_OK);
    coh_plan_summary summary = { .struct_bytes = sizeof(summary) };
    assert_int_equal(coh_plan_summarize(again, &summary), COH_OK);
    assert_int_equal(summary.program_hash, chosen->program_hash);
    assert_string_equal(summary.rank_pattern, chosen->rank_pattern);
    coh_plan_destroy(again);
    coh_text_fini(&text);
}

/* Compares what "auto" has chosen with all patterns at this budget. */
static void compare_by_hand(const coh_graph *graph, const made *chosen, uint64_t device_bytes,
                            uint64_t disk_bytes)
{
    const made by_hand = best_by_hand(graph, device_bytes, disk_bytes);
    assert_int_equal(chosen->status, by_hand.status);
    if (chosen->status != COH_OK)
        assert_int_equal(chosen->refusal.short_bytes, by_hand.refusal.short_bytes);
    else if (chosen->summary.step_ns > by_hand.summary.step_ns + by_hand.summary.step_ns / 50)
        fail_msg("%" PRIu64 " bytes: %s takes %" PRIu64 " ns, by hand %s %" PRIu64, device_bytes,
                 chosen->summary.rank_pattern, chosen->summary.step_ns,
                 by_hand.summary.rank_pattern, by_hand.summary.step_ns);
}

/* A short run under a sanitizer compares nothing: "auto" tries all patterns by the same code. */
static void check_choice(const coh_graph *graph, uint64_t device_bytes, uint64_t disk_bytes)
{
    const coh_plan_options options = options_of("auto", device_bytes, disk_bytes);
    coh_plan *plan = NULL;
    const made chosen = make(graph, &options, &plan);
    if (!test_is_brief())
        compare_by_hand(graph, &chosen, device_bytes, disk_bytes);
    if (plan == NULL)
        return;
    check_is_by_hand(graph, &options, plan, &chosen.summary);
    coh_plan_destroy(plan);
}

static void the_fastest_pattern_is_chosen(void **state)
{
    (void)state;
    for (int many = 0; many < 2 - test_is_short(); many++) {
        coh_graph *graph = graph_of(many ? 8 : 2, many ? 16 : 400);
        uint64_t most = 0, least = 0;
        const coh_plan_options replicated = options_of("replicate", UINT64_MAX, 0);
        const coh_plan_options parted = options_of("zero3", UINT64_MAX, 0);
        assert_int_equal(coh_plan_in_memory_bytes(graph, &replicated, &most), COH_OK);
        assert_int_equal(coh_plan_in_memory_bytes(graph, &parted, &least), COH_OK);
        assert_true(least < most);
        const int stride = test_is_short() ? 2 : 1;
        /* too little to more than enough; under a sanitizer enough */
        for (int i = test_is_brief() ? 6 : 0; i <= 6; i += stride)
            check_choice(graph, least + (most - least) * (uint64_t)i / 5 - (i == 0) * MIB, 0);
        check_choice(graph, least / 2, 64 * MIB);
        coh_graph_destroy(graph);
    }
}

static void one_rank_has_no_pattern(void **state)
{
    (void)state;
    coh_graph *graph = graph_of(2, 16);
    coh_plan_options options = options_of("auto", UINT64_MAX, 0);
    coh_plan *plan = NULL;
    options.ranks = (coh_fold_shape){ 0 };
    options.pair_ranks = options.node_ranks = 0;
    const made chosen = make(graph, &options, &plan);
    assert_int_equal(chosen.status, COH_OK);
    assert_string_equal(chosen.summary.rank_pattern, "");
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

/* Where ranks exchange chunk by chunk, fewer and larger ones may be faster. */
static void in_memory_no_larger_chunk_is_much_faster(void **state)
{
    (void)state;
    const toy_options toy = { .layers = 3, .width = 2048, .vocabulary = 512, .rows = 16 };
    coh_graph *graph = NULL;
    int compared = 0;
    assert_int_equal(toy_graph_make(&toy, &graph), COH_OK);
    for (int i = 0; i < PATTERNS; i += test_is_brief() ? 3 : 1) {
        coh_plan_options options = options_of(patterns[i], UINT64_MAX, 0);
        coh_plan *plan = NULL;
        const made chosen = make(graph, &options, &plan);
        coh_plan_destroy(plan);
        assert_int_equal(chosen.status, COH_OK);
        options.chunk_bytes = 4 * chosen.summary.chunk_bytes;
        const made larger = make(graph, &options, &plan);
        coh_plan_destroy(plan);
        compared += larger.status == COH_OK;
        if (larger.status == COH_OK &&
            chosen.summary.step_ns > larger.summary.step_ns + larger.summary.step_ns / 100)
            fail_msg("%s: chunks of %" PRIu64 " MiB take %" PRIu64
                     " ns, four times larger %" PRIu64,
                     patterns[i], chosen.summary.chunk_bytes / MIB, chosen.summary.step_ns,
                     larger.summary.step_ns);
    }
    assert_true(compared > 0);
    coh_graph_destroy(graph);
}

static void numbers_before_a_plan_are_those_of_the_least_pattern(void **state)
{
    (void)state;
    coh_graph *graph = graph_of(4, 16);
    const coh_plan_options chosen = options_of("auto", MIB, 64 * MIB);
    uint64_t bytes = 0, ns = 0, least_bytes = UINT64_MAX, least_ns = UINT64_MAX;
    for (int i = 0; i < PATTERNS; i++) {
        const coh_plan_options each = options_of(patterns[i], MIB, 64 * MIB);
        assert_int_equal(coh_plan_in_memory_bytes(graph, &each, &bytes), COH_OK);
        assert_int_equal(coh_plan_least_ns(graph, &each, &ns), COH_OK);
        least_bytes = bytes < least_bytes ? bytes : least_bytes;
        least_ns = ns > 0 && ns < least_ns ? ns : least_ns; /* 0: it does not fit */
    }
    assert_int_equal(coh_plan_in_memory_bytes(graph, &chosen, &bytes), COH_OK);
    assert_int_equal(coh_plan_least_ns(graph, &chosen, &ns), COH_OK);
    assert_int_equal(bytes, least_bytes);
    assert_int_equal(ns, least_ns);
    coh_graph_destroy(graph);
}

/* "levels" with all ranks in one node and no pairs is zero1 by another name, "zeropp" is zero3. */
static void patterns_that_divide_the_same_are_tried_once(void **state)
{
    (void)state;
    const char *names[COH_RANK_PATTERNS_MOST];
    coh_plan_options options = options_of("auto", UINT64_MAX, 0);
    assert_int_equal(coh_rank_choices(&options, names), PATTERNS);
    options.pair_ranks = 1;
    options.node_ranks = 4;
    assert_int_equal(coh_rank_choices(&options, names), PATTERNS - 2);
    for (int i = 0; i < PATTERNS - 2; i++)
        assert_string_equal(names[i], patterns[i]);
    snprintf(options.rank_pattern, sizeof(options.rank_pattern), "1/2/4");
    assert_int_equal(coh_rank_choices(&options, names), 1);
    assert_string_equal(names[0], "1/2/4");
}

/* A chunk of fewer grains than ranks would be padded to one grain for each: only what is left at
 * the end of a parameter, or of its rows, may be. */
static void chunks_have_as_many_grains_for_each_rank(void **state)
{
    (void)state;
    enum { SHARERS = 5 };
    const uint64_t grain_bytes = COH_GRAIN_ELEMENTS * sizeof(float);
    const toy_options toy = { .layers = 2, .width = 1024, .vocabulary = 512, .rows = 16 };
    coh_graph *graph = NULL;
    coh_plan_options options = options_of("zero3", UINT64_MAX, 0);
    coh_plan *plan = NULL;
    uint64_t even_bytes = 0, padded_bytes = 0;
    assert_int_equal(toy_graph_make(&toy, &graph), COH_OK);
    options.ranks = (coh_fold_shape){ { SHARERS } };
    options.pair_ranks = options.node_ranks = 0;
    options.chunk_bytes = 3 * grain_bytes;
    assert_int_equal(make(graph, &options, &plan).status, COH_OK);
    const coh_layout *layout = &plan->layout;
    for (uint32_t i = 0; i < layout->chunk_count; i++) {
        const coh_chunk *chunk = &layout->chunks[i];
        if (chunk->is_divided && layout->objects[chunk->object].stream == COH_STREAM_WORK)
            *(chunk->bytes % (SHARERS * grain_bytes) ? &padded_bytes : &even_bytes) += chunk->bytes;
    }
    assert_true(even_bytes > padded_bytes);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

static void ways_to_add_have_names(void **state)
{
    (void)state;
    assert_string_equal(coh_reduce_name(COH_REDUCE_EXACT), "exact");
    assert_string_equal(coh_reduce_name(COH_REDUCE_LIBRARY), "library");
    assert_string_equal(coh_reduce_name(COH_REDUCE_COUNT), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fastest_pattern_is_chosen),
        cmocka_unit_test(in_memory_no_larger_chunk_is_much_faster),
        cmocka_unit_test(one_rank_has_no_pattern),
        cmocka_unit_test(numbers_before_a_plan_are_those_of_the_least_pattern),
        cmocka_unit_test(patterns_that_divide_the_same_are_tried_once),
        cmocka_unit_test(chunks_have_as_many_grains_for_each_rank),
        cmocka_unit_test(ways_to_add_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
