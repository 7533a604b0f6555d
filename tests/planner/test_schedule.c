/* Plans of toy graphs. The verifier, which shares no code with the scheduler, has already checked
 * every program here. These tests check what it cannot: budgets kept to the byte, a sharp smallest
 * budget, the same plan from the same input, and files that rebuild the plan. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file_text.h"
#include "base/rng.h"
#include "planner/fingerprint.h"
#include "planner/plan.h"
#include "tests/faults/alloc_faults.h"
#include "tests/length.h"
#include "tests/planner/toy_graph.h"
#include "tests/temporary.h"

#define PAGE ((uint64_t)4096)

static coh_plan_options plan_options(int microbatches, int deferred)
{
    coh_plan_options options;
    memset(&options, 0, sizeof(options));
    options.struct_bytes = sizeof(options);
    options.device_memory_bytes = UINT64_MAX;
    options.thread_count = 2;
    options.microbatch_count = microbatches;
    options.deferred_update = deferred;
    snprintf(options.kernel_path, sizeof(options.kernel_path), "toy");
    return options;
}

static coh_graph *make_graph(const toy_options *options)
{
    coh_graph *graph = NULL;
    if (toy_graph_make(options, &graph) != COH_OK)
        fail_msg("%s", coh_last_error());
    return graph;
}

static coh_plan *make_plan(const coh_graph *graph, const coh_plan_options *options)
{
    coh_plan *plan = NULL;
    if (coh_plan_create(graph, options, &plan) != COH_OK)
        fail_msg("%s", coh_last_error());
    return plan;
}

static uint64_t in_memory(const coh_graph *graph, const coh_plan_options *options)
{
    uint64_t bytes = 0;
    if (coh_plan_in_memory_bytes(graph, options, &bytes) != COH_OK)
        fail_msg("%s", coh_last_error());
    return bytes;
}

/* Random graphs, batches, budgets and tiers; the seed of a failing case is printed. */
static void random_settings_give_verified_plans_within_budget(void **state)
{
    (void)state;
    const uint64_t seed_count = test_is_brief() ? 4 : test_is_short() ? 15 : 60;
    for (uint64_t seed = 0; seed < seed_count; seed++) {
        uint64_t n = 0;
#define DRAW(bound) coh_rng_below(20, seed, n++, bound)
        toy_options toy = { .layers = 1 + (int)DRAW(4) };
        toy.width = 16 * (1 + (int64_t)DRAW(16));
        toy.width += (int64_t)DRAW(3);
        toy.vocabulary = 50 + (int64_t)DRAW(3000);
        toy.rows = 1 + (int64_t)DRAW(400);
        toy.is_tied = (int)DRAW(2);
        toy.overwrites = (int)DRAW(2);
        toy.freezes = (int)DRAW(2);
        toy.extras = (int)DRAW(2);
        toy.caches = seed % 3 != 0;
        toy.dtype = seed % 2 ? COH_DTYPE_BF16 : COH_DTYPE_F32;
        coh_graph *graph = make_graph(&toy);
        int microbatches = 1 + (int)DRAW(3);
        coh_plan_options options = plan_options(microbatches, (int)DRAW(2));
        options.recompute = (coh_recompute)DRAW(3);
        options.chunk_bytes = DRAW(2) ? 0 : (uint64_t)65536 << DRAW(5);
        uint64_t memory = in_memory(graph, &options);
        uint64_t tiers = 1 + DRAW(3);
        options.disk_bytes = tiers & 1 ? UINT64_MAX : 0;
        options.emulate_host = 1;
        options.host_memory_bytes = tiers == 2 ? 4 * memory : tiers == 3 ? memory / 3 + 600000 : 0;
        options.device_memory_bytes = memory / 10 * (1 + DRAW(10));
        if (options.host_memory_bytes > 0 && options.chunk_bytes > (uint64_t)1 << 18)
            options.chunk_bytes = (uint64_t)1 << 18;
        coh_plan *plan = NULL;
        coh_status status = coh_plan_create(graph, &options, &plan);
        if (status != COH_OK && status != COH_ERR_FULL)
            fail_msg("seed %llu: %s", (unsigned long long)seed, coh_last_error());
        if (status == COH_OK) {
            assert_true(plan->layout.arena_bytes[COH_TIER_DEVICE] <= options.device_memory_bytes);
            assert_true(plan->layout.arena_bytes[COH_TIER_HOST] <= options.host_memory_bytes);
            assert_true(plan->layout.arena_bytes[COH_TIER_DEVICE] >=
                        (plan->decisions.in_memory ? 0 : plan->layout.pinned_bytes));
        } else if (!strstr(coh_last_error(), "raise")) {
            fail_msg("seed %llu refused without a remedy: %s", (unsigned long long)seed,
                     coh_last_error());
        }
        coh_plan_destroy(plan);
        coh_graph_destroy(graph);
    }
}

/* The bytes of the largest instruction are a lower bound for every schedule. Ours reaches it, so
 * one page less must be refused as impossible. */
static void the_smallest_budget_plans_and_one_page_less_is_refused(void **state)
{
    (void)state;
    for (int tiers = 1; tiers <= 3; tiers++)
        for (int deferred = 0; deferred < 2; deferred++) {
            if (test_is_brief() && deferred != tiers % 2)
                continue;
            toy_options toy = {
                .layers = 3, .width = 120, .vocabulary = 900, .rows = 200, .is_tied = 1
            };
            coh_graph *graph = make_graph(&toy);
            coh_plan_options options = plan_options(2, deferred);
            options.disk_bytes = tiers & 1 ? UINT64_MAX : 0;
            options.emulate_host = 1;
            options.host_memory_bytes = tiers == 2   ? (uint64_t)1 << 30
                                        : tiers == 3 ? (uint64_t)1 << 20
                                                     : 0;
            options.device_memory_bytes = in_memory(graph, &options) / 2;
            coh_plan *plan = make_plan(graph, &options);
            options.device_memory_bytes = plan->smallest_device_bytes;
            coh_plan_destroy(plan);
            plan = make_plan(graph, &options);
            assert_int_equal(plan->layout.arena_bytes[COH_TIER_DEVICE],
                             options.device_memory_bytes);
            coh_plan_destroy(plan);
            options.device_memory_bytes -= PAGE;
            assert_int_equal(coh_plan_create(graph, &options, &plan), COH_ERR_FULL);
            assert_non_null(strstr(coh_last_error(), "proven"));
            assert_null(plan);
            coh_graph_destroy(graph);
        }
}

/* Every budget between the smallest one and that of the in-memory plan has a plan. */
static void every_budget_above_the_smallest_plans(void **state)
{
    (void)state;
    toy_options toy = { .layers = 2, .width = 64, .vocabulary = 700, .rows = 300, .is_tied = 1 };
    coh_graph *graph = make_graph(&toy);
    coh_plan_options options = plan_options(1, 1);
    options.disk_bytes = UINT64_MAX;
    uint64_t memory = in_memory(graph, &options);
    options.device_memory_bytes = memory / 2;
    coh_plan *plan = make_plan(graph, &options);
    uint64_t smallest = plan->smallest_device_bytes;
    coh_plan_destroy(plan);
    const uint64_t stride = (test_is_brief() ? 186 : test_is_short() ? 31 : 7) * PAGE;
    for (uint64_t budget = smallest; budget <= memory + PAGE; budget += stride) {
        options.device_memory_bytes = budget;
        plan = make_plan(graph, &options);
        assert_true(plan->layout.arena_bytes[COH_TIER_DEVICE] <= budget);
        coh_plan_destroy(plan);
    }
    coh_graph_destroy(graph);
}

static void the_same_input_gives_the_same_plan(void **state)
{
    (void)state;
    toy_options toy = { .layers = 3, .width = 128, .vocabulary = 1500, .rows = 128, .is_tied = 1 };
    uint64_t hashes[2];
    if (test_is_brief()) /* such plans are in other tests */
        return;
    for (int i = 0; i < 2; i++) {
        coh_graph *graph = make_graph(&toy);
        coh_plan_options options = plan_options(2, 1);
        options.disk_bytes = UINT64_MAX;
        options.device_memory_bytes = in_memory(graph, &options) / 4;
        coh_plan *plan = make_plan(graph, &options);
        hashes[i] = plan->program_hash;
        coh_plan_destroy(plan);
        coh_graph_destroy(graph);
    }
    assert_int_equal(hashes[0], hashes[1]);
}

/* Placement does not change results: budgets, chunks, tiers and threads leave the fingerprint
 * alone; micro-batches and clipping change it. */
static void the_fingerprint_follows_numbers_and_not_placement(void **state)
{
    (void)state;
    toy_options toy = { .layers = 2, .width = 96, .vocabulary = 400, .rows = 64, .is_tied = 1 };
    coh_graph *graph = make_graph(&toy);
    coh_plan_options options = plan_options(2, 1);
    coh_plan *plan = make_plan(graph, &options);
    uint64_t fingerprint = plan->numeric_fingerprint, program = plan->program_hash;
    options.device_memory_bytes = plan->layout.arena_bytes[COH_TIER_DEVICE] / 3;
    coh_plan_destroy(plan);
    options.disk_bytes = UINT64_MAX;
    options.chunk_bytes = 65536;
    options.thread_count = 1;
    options.recompute = COH_RECOMPUTE_ALL;
    plan = make_plan(graph, &options);
    assert_int_equal(plan->numeric_fingerprint, fingerprint);
    assert_int_not_equal(plan->program_hash, program);
    coh_plan_destroy(plan);
    options.microbatch_count = 1;
    plan = make_plan(graph, &options);
    assert_int_not_equal(plan->numeric_fingerprint, fingerprint);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

/* Whether weights travel as int8 and are divided is part of the numbers, however it is given. */
static void with_wires_the_fingerprint_follows_what_a_pair_divides(void **state)
{
    (void)state;
    static const struct {
        const char *pattern;
        coh_wire weights;
        int is_another; /* in pairs of 2 and nodes of 4 */
    } rows[] = { { "levels", COH_WIRE_INT8, 1 },
                 { "levels", COH_WIRE_STORED, 0 },
                 { "zero3", COH_WIRE_INT8, 0 },
                 { "zeropp", COH_WIRE_INT8, 0 } };
    toy_options toy = { .layers = 1, .width = 96, .vocabulary = 400, .rows = 64 };
    coh_graph *graph = make_graph(&toy);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        coh_plan_options options = plan_options(2, 1);
        options.ranks = (coh_fold_shape){ { 2, 2, 2 } };
        options.wires.weights = rows[i].weights;
        snprintf(options.rank_pattern, sizeof(options.rank_pattern), "%s", rows[i].pattern);
        const uint64_t alone = coh_numeric_fingerprint(graph, &options);
        options.node_ranks = 4;
        assert_int_equal(coh_numeric_fingerprint(graph, &options), alone);
        options.pair_ranks = 2;
        assert_int_equal(coh_numeric_fingerprint(graph, &options) != alone, rows[i].is_another);
    }
    coh_graph_destroy(graph);
}

/* In NCCL's order results depend on the number of ranks and on what they divide. */
static void with_sums_of_nccl_the_fingerprint_follows_the_ranks(void **state)
{
    (void)state;
    toy_options toy = { .layers = 1, .width = 96, .vocabulary = 400, .rows = 64 };
    coh_graph *graph = make_graph(&toy);
    const coh_fold_shape shapes[2][2] = { { { { 1 } }, { { 2, 2 } } }, { { { 2 } }, { { 2 } } } };
    uint64_t hashes[2][2][2]; /* by reduce, ranks, pattern */
    for (int reduce = 0; reduce < 2; reduce++)
        for (int ranks = 0; ranks < 2; ranks++)
            for (int pattern = 0; pattern < 2; pattern++) {
                coh_plan_options options = plan_options(ranks == 0 ? 1 : 2, 1);
                options.replicas = shapes[ranks][0];
                options.ranks = shapes[ranks][1];
                options.reduce = reduce;
                snprintf(options.rank_pattern, sizeof(options.rank_pattern), "%s",
                         pattern == 0 ? "zero1" : "zero3");
                hashes[reduce][ranks][pattern] = coh_numeric_fingerprint(graph, &options);
            }
    for (int i = 1; i < 4; i++) {
        assert_true(hashes[0][i / 2][i % 2] == hashes[0][0][0]);
        assert_true(hashes[1][i / 2][i % 2] != hashes[1][0][0]);
    }
    assert_true(hashes[1][0][0] != hashes[0][0][0]);
    coh_graph_destroy(graph);
}

static int count_caches(const coh_program *program)
{
    int count = 0;
    for (uint32_t i = 0; i < program->operand_count; i++)
        count += program->operands[i].role == COH_ROLE_CACHE;
    return count;
}

/* The optional cache is placement: kept where there is room and it saves time, never at the
 * smallest budget or where no backward follows; the numeric plan does not contain it. */
static void a_cache_is_kept_where_there_is_room(void **state)
{
    (void)state;
    toy_options toy = {
        .layers = 2, .width = 64, .vocabulary = 900, .rows = 300, .is_tied = 1, .caches = 1
    };
    coh_graph *graph = make_graph(&toy);
    coh_plan_options options = plan_options(2, 1);
    options.recompute = COH_RECOMPUTE_NONE;
    coh_plan *with = make_plan(graph, &options);
    coh_plan_summary summary = { .struct_bytes = sizeof(summary) };
    assert_int_equal(coh_plan_summarize(with, &summary), COH_OK);
    assert_int_equal(summary.caches, 3); /* two layers and the loss */
    /* backward of a micro-batch is one instruction, so two micro-batches give 2 x 2 operands
     * each */
    assert_int_equal(count_caches(&with->programs[COH_PROGRAM_BODY]), 3 * 2 * 2);
    assert_int_equal(count_caches(&with->programs[COH_PROGRAM_EVALUATE]), 0);
    options.disk_bytes = UINT64_MAX;
    options.device_memory_bytes = with->layout.arena_bytes[COH_TIER_DEVICE] / 2;
    coh_plan *plan = make_plan(graph, &options);
    options.device_memory_bytes = plan->smallest_device_bytes;
    coh_plan_destroy(plan);
    plan = make_plan(graph, &options);
    assert_int_equal(plan->decisions.cache, 0);
    assert_int_equal(count_caches(&plan->programs[COH_PROGRAM_BODY]), 0);
    assert_int_equal(plan->numeric_fingerprint, with->numeric_fingerprint);
    coh_plan_destroy(plan);
    options.disk_bytes = 0;
    options.device_memory_bytes = with->layout.arena_bytes[COH_TIER_DEVICE] - PAGE;
    plan = make_plan(graph, &options);
    assert_int_equal(plan->decisions.cache, 0);
    assert_true(plan->simulations[COH_PROGRAM_BODY].period_ns >
                with->simulations[COH_PROGRAM_BODY].period_ns);
    coh_plan_destroy(plan);
    coh_plan_destroy(with);
    coh_graph_destroy(graph);
}

/* A recomputed block runs forward twice and keeps no cache; operators outside of it do. */
static void a_recomputed_block_has_no_cache(void **state)
{
    (void)state;
    toy_options toy = { .layers = 2, .width = 64, .vocabulary = 900, .rows = 300, .caches = 1 };
    coh_graph *graph = make_graph(&toy);
    coh_plan_options options = plan_options(1, 1);
    options.recompute = COH_RECOMPUTE_ALL;
    coh_plan *plan = make_plan(graph, &options);
    coh_plan_summary summary = { .struct_bytes = sizeof(summary) };
    assert_int_equal(coh_plan_summarize(plan, &summary), COH_OK);
    assert_int_equal(summary.caches, 1);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

static coh_status infer_mixed(const void *attributes, const coh_shape *inputs, coh_op_facts *out)
{
    out->output[0] = inputs[0];
    for (int i = 0; i < 2; i++)
        out->parameter[i] = (coh_parameter_facts){ .name = i == 0 ? "a" : "b",
                                                   .shape = { COH_DTYPE_F32, 1, { 8 } } };
    out->parameter[1].shape.dtype = *(const coh_dtype *)attributes;
    return COH_OK;
}

static coh_status run_nothing(const coh_call *call)
{
    (void)call;
    return COH_OK;
}

static void parameters_of_one_operator_have_one_dtype(void **state)
{
    (void)state;
    static const struct {
        coh_dtype dtype;
        coh_status status;
        const char *word;
    } cases[] = { { COH_DTYPE_F32, COH_OK, "" },
                  { COH_DTYPE_BF16, COH_ERR_SHAPE, "differ in dtype" },
                  { COH_DTYPE_F16, COH_ERR_SHAPE, "neither f32 nor bf16" } };
    const coh_op_kind kind = { .struct_bytes = sizeof(kind),
                               .abi_version = COH_KIND_ABI,
                               .name = "toy.mixed",
                               .input_count = 1,
                               .output_count = 1,
                               .parameter_count = 2,
                               .infer = infer_mixed,
                               .devices = { [COH_DEVICE_HOST] = { .forward = run_nothing } } };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        coh_graph *graph = NULL;
        coh_tensor x, y;
        const coh_shape shape = { COH_DTYPE_F32, 1, { 8 } };
        const coh_op_args args = { .name = "mixed",
                                   .attributes = &cases[i].dtype,
                                   .attribute_bytes = sizeof(cases[i].dtype),
                                   .inputs = &x,
                                   .block = -1 };
        assert_int_equal(coh_graph_create(&graph), COH_OK);
        assert_int_equal(coh_graph_input(graph, "x", &shape, &x), COH_OK);
        assert_int_equal(coh_graph_op(graph, &kind, &args, &y, NULL), cases[i].status);
        if (cases[i].status != COH_OK)
            assert_non_null(strstr(coh_last_error(), cases[i].word));
        coh_graph_destroy(graph);
    }
}

/* The refusal of an older planner's file names its version and what to do. */
static void an_older_plan_file_is_refused_by_its_version(void **state)
{
    (void)state;
    char path[256];
    assert_int_equal(temporary_file(path, sizeof(path), "plan"), 0);
    static const char old[] = "{\"format\": \"cohobate plan\", \"version\": 2}\n";
    assert_int_equal(coh_file_write_whole(path, old, sizeof(old) - 1), COH_OK);
    assert_int_equal(coh_plan_check_file(path), COH_ERR_CORRUPT);
    assert_non_null(strstr(coh_last_error(), "plan format version 2, this program reads 5"));
    unlink(path);
}

static void a_plan_file_rebuilds_its_plan_in_its_peak_and_not_in_a_page_less(void **state)
{
    (void)state;
    char path[256];
    assert_int_equal(temporary_file(path, sizeof(path), "plan"), 0);
    toy_options toy = { .layers = 3,
                        .width = 128,
                        .vocabulary = 1500,
                        .rows = 128,
                        .is_tied = 1,
                        .caches = 1,
                        .dtype = COH_DTYPE_BF16 };
    coh_graph *graph = make_graph(&toy);
    coh_plan_options options = plan_options(2, 1);
    options.disk_bytes = UINT64_MAX;
    options.device_memory_bytes = in_memory(graph, &options) / 4;
    coh_plan *plan = make_plan(graph, &options), *again = NULL;
    assert_int_equal(coh_plan_write(plan, path), COH_OK);
    assert_int_equal(coh_plan_check_file(path), COH_OK);
    options.device_memory_bytes = plan->layout.arena_bytes[COH_TIER_DEVICE];
    if (coh_plan_read(graph, &options, path, &again) != COH_OK)
        fail_msg("%s", coh_last_error());
    assert_int_equal(again->program_hash, plan->program_hash);
    coh_plan_destroy(again);
    options.device_memory_bytes -= PAGE;
    assert_int_equal(coh_plan_read(graph, &options, path, &again), COH_ERR_FULL);
    options.device_memory_bytes += PAGE;
    options.microbatch_count = 1;
    assert_int_equal(coh_plan_read(graph, &options, path, &again), COH_ERR_ARGUMENT);
    options.microbatch_count = 2;
    toy.width = 104; /* another model */
    coh_graph *other = make_graph(&toy);
    options.device_memory_bytes = UINT64_MAX;
    assert_int_not_equal(coh_plan_read(other, &options, path, &again), COH_OK);
    coh_graph_destroy(other);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
    unlink(path);
}

/* Each instruction of a plan file is removed or damaged in turn; the file is never accepted as a
 * plan of this run. */
static void an_edited_plan_file_is_refused(void **state)
{
    (void)state;
    char path[256];
    assert_int_equal(temporary_file(path, sizeof(path), "plan"), 0);
    toy_options toy = { .layers = 2, .width = 64, .vocabulary = 700, .rows = 300, .is_tied = 1 };
    coh_graph *graph = make_graph(&toy);
    coh_plan_options options = plan_options(1, 1);
    options.disk_bytes = UINT64_MAX;
    options.device_memory_bytes = in_memory(graph, &options) / 2;
    coh_plan *plan = make_plan(graph, &options), *again = NULL;
    char *text = NULL;
    size_t bytes = 0, tried = 0;
    assert_int_equal(coh_plan_write(plan, path), COH_OK);
    assert_int_equal(coh_file_read_whole(path, 1 << 20, &text, &bytes), COH_OK);
    size_t predictions = (size_t)(strstr(text, "\"predictions\"") - text);
    size_t slots = (size_t)(strstr(text, "\"slots\"") - text);
    for (size_t i = 0; i < bytes; i += test_is_brief() ? 17 : test_is_short() ? 13 : 3) {
        int in_numbers = text[i] >= '0' && text[i] <= '9' && (i < predictions || i > slots);
        int in_names = text[i] >= 'a' && text[i] <= 'z' && i < predictions;
        if (!in_numbers && !in_names)
            continue;
        char before = text[i];
        text[i] = before == '7' ? '3' : before == 'x' ? 'y' : in_numbers ? '7' : 'x';
        assert_int_equal(coh_file_write_whole(path, text, bytes), COH_OK);
        if (coh_plan_read(graph, &options, path, &again) == COH_OK) {
            /* some decisions give the same program and thus the same plan */
            if (again->program_hash != plan->program_hash || i > slots)
                fail_msg("byte %zu '%c' -> '%c' was accepted", i, before, text[i]);
            coh_plan_destroy(again);
        } else {
            tried++;
        }
        text[i] = before;
    }
    assert_true(tried > 20);
    print_message("%zu edits refused\n", tried);
    coh_free(text);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
    unlink(path);
}

/* Predictions belong to the plan: another profile gives other times, but the same peak. */
static void predictions_that_are_not_the_programs_are_refused(void **state)
{
    (void)state;
    char path[256];
    assert_int_equal(temporary_file(path, sizeof(path), "plan"), 0);
    toy_options toy = { .layers = 2, .width = 64, .vocabulary = 700, .rows = 300, .is_tied = 1 };
    coh_graph *graph = make_graph(&toy);
    coh_plan_options options = plan_options(1, 1);
    coh_plan *plan = make_plan(graph, &options), *again = NULL;
    uint64_t *const figures[] = { &plan->simulations[COH_PROGRAM_BODY].period_ns,
                                  &plan->layout.arena_bytes[COH_TIER_DEVICE] };
    for (int i = 0; i < 2; i++) {
        *figures[i] -= 4096;
        assert_int_equal(coh_plan_write(plan, path), COH_OK);
        *figures[i] += 4096;
        assert_int_equal(coh_plan_read(graph, &options, path, &again), COH_ERR_CORRUPT);
        assert_non_null(strstr(coh_last_error(), "predictions"));
    }
    plan->simulations[COH_PROGRAM_BODY].period_ns += 4096; /* of a slower machine */
    plan->profile.instruction_ns = coh_figure_of(plan->profile.instruction_ns.p50 * 2);
    assert_int_equal(coh_plan_write(plan, path), COH_OK);
    if (coh_plan_read(graph, &options, path, &again) != COH_OK)
        fail_msg("%s", coh_last_error());
    assert_int_equal(again->smallest_device_bytes, 0); /* nothing was searched */
    coh_plan_destroy(again);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
    unlink(path);
}

/* Every allocation fails once: each gives a clean refusal and keeps nothing. */
static void a_failing_allocation_is_a_clean_refusal(void **state)
{
    (void)state;
    toy_options toy = { .layers = 1, .width = 64, .vocabulary = 300, .rows = 9, .is_tied = 1 };
    coh_graph *graph = make_graph(&toy);
    coh_plan_options options = plan_options(1, 1);
    options.disk_bytes = UINT64_MAX;
    options.device_memory_bytes = in_memory(graph, &options) / 4 * 3;
    uint64_t sites = 0;
    for (uint64_t n = 1;; n += 1 + n / (test_is_brief() ? 2 : 8)) {
        coh_plan *plan = NULL;
        alloc_fail_nth(n);
        coh_status status = coh_plan_create(graph, &options, &plan);
        int hit = alloc_fault_was_hit();
        alloc_fail_nth(0);
        coh_plan_destroy(plan);
        if (!hit) {
            assert_int_equal(status, COH_OK);
            break;
        }
        sites++;
        assert_int_equal(status, COH_ERR_MEMORY);
        assert_null(plan);
    }
    print_message("%llu allocations failed in turn\n", (unsigned long long)sites);
    coh_graph_destroy(graph);
}

/* A tier whose links have no measured rate cannot be priced; treating it as free would be wrong. */
static void tiers_that_the_profile_knows_no_links_to_are_refused(void **state)
{
    (void)state;
    static const struct {
        coh_lane lane;
        const char *says;
    } cases[] = { { COH_LANE_READ, "disk-read=" },
                  { COH_LANE_WRITE, "disk-write=" },
                  { COH_LANE_H2D, "pcie=" },
                  { COH_LANE_D2H, "pcie=" } };
    const toy_options toy = { .layers = 1, .width = 16, .vocabulary = 50, .rows = 4 };
    coh_graph *graph = make_graph(&toy);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int is_disk = cases[i].lane == COH_LANE_READ || cases[i].lane == COH_LANE_WRITE;
        coh_plan_options options = plan_options(1, 1);
        coh_profile profile;
        coh_plan *plan = NULL;
        coh_profile_builtin(2, 1, 0, &profile);
        options.profile = &profile;
        profile.link[cases[i].lane] = (coh_link_profile){ 0 };
        coh_plan_destroy(make_plan(graph, &options)); /* in memory the rate is not needed */
        options.disk_bytes = is_disk ? UINT64_MAX : 0;
        options.emulate_host = 1;
        options.host_memory_bytes = is_disk ? 0 : (uint64_t)1 << 30;
        assert_int_equal(coh_plan_create(graph, &options, &plan), COH_ERR_ARGUMENT);
        assert_null(plan);
        assert_non_null(strstr(coh_last_error(), cases[i].says));
        options.disk_bytes = is_disk ? 0 : UINT64_MAX; /* nor with the other tier */
        options.emulate_host = 1;
        options.host_memory_bytes = is_disk ? (uint64_t)1 << 30 : 0;
        coh_plan_destroy(make_plan(graph, &options));
    }
    coh_graph_destroy(graph);
}

/* With a GPU, the rate of its own memory is no price for updates on the host. */
static void a_gpu_whose_host_has_no_rate_gets_no_host_tier(void **state)
{
    (void)state;
    const toy_options toy = { .layers = 1, .width = 16, .vocabulary = 50, .rows = 4 };
    coh_graph *graph = make_graph(&toy);
    coh_plan_options options = plan_options(1, 1);
    coh_profile profile;
    coh_plan *plan = NULL;
    coh_profile_builtin(2, 1, 0, &profile);
    profile.device_kind = COH_DEVICE_CUDA;
    options.profile = &profile;
    coh_plan_destroy(make_plan(graph, &options)); /* in memory the rate is not needed */
    options.emulate_host = 1;
    options.host_memory_bytes = (uint64_t)1 << 30;
    assert_int_equal(coh_plan_create(graph, &options, &plan), COH_ERR_ARGUMENT);
    assert_null(plan);
    assert_non_null(strstr(coh_last_error(), "host-memory-rate="));
    coh_figure *const either[] = { &profile.host_memory_bytes_per_s,
                                   &profile.host_update_bytes_per_s };
    for (int i = 0; i < 2; i++) {
        *either[i] = coh_figure_of(50e9);
        coh_plan_destroy(make_plan(graph, &options));
        *either[i] = (coh_figure){ 0 };
    }
    coh_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_settings_give_verified_plans_within_budget),
        cmocka_unit_test(the_smallest_budget_plans_and_one_page_less_is_refused),
        cmocka_unit_test(every_budget_above_the_smallest_plans),
        cmocka_unit_test(the_same_input_gives_the_same_plan),
        cmocka_unit_test(the_fingerprint_follows_numbers_and_not_placement),
        cmocka_unit_test(with_wires_the_fingerprint_follows_what_a_pair_divides),
        cmocka_unit_test(with_sums_of_nccl_the_fingerprint_follows_the_ranks),
        cmocka_unit_test(a_plan_file_rebuilds_its_plan_in_its_peak_and_not_in_a_page_less),
        cmocka_unit_test(a_cache_is_kept_where_there_is_room),
        cmocka_unit_test(a_recomputed_block_has_no_cache),
        cmocka_unit_test(parameters_of_one_operator_have_one_dtype),
        cmocka_unit_test(an_older_plan_file_is_refused_by_its_version),
        cmocka_unit_test(an_edited_plan_file_is_refused),
        cmocka_unit_test(predictions_that_are_not_the_programs_are_refused),
        cmocka_unit_test(a_failing_allocation_is_a_clean_refusal),
        cmocka_unit_test(a_gpu_whose_host_has_no_rate_gets_no_host_tier),
        cmocka_unit_test(tiers_that_the_profile_knows_no_links_to_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
