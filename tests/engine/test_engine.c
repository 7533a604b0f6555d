/* The public engine on plans of the planner: tests/engine/small_model.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cohobate/checkpoint.h"
#include "offload/store.h"
#include "planner/plan.h"
#include "tests/engine/small_model.h"

static coh_graph *graph;
static float input[SMALL_MICROBATCHES * SMALL_ELEMENTS];
static float values[SMALL_ELEMENTS];
static small_oracle oracle;

/* Everything that must not change a bit. */
typedef struct placement {
    const char *name;
    uint64_t device_percent; /* of the in-memory bytes; 0: unlimited */
    uint64_t host_bytes, disk_bytes, chunk_bytes;
    int thread_count;
    coh_recompute recompute;
} placement;

#define MANY UINT64_MAX
static const placement placements[] = {
    { "in memory", 0, 0, 0, 0, 1, COH_RECOMPUTE_AUTO },
    { "in memory, two threads, small chunks", 0, 0, 0, 1 << 16, 2, COH_RECOMPUTE_AUTO },
    { "60 %, disk", 60, 0, MANY, 1 << 16, 1, COH_RECOMPUTE_AUTO },
    { "60 %, disk, recompute", 60, 0, MANY, 1 << 17, 2, COH_RECOMPUTE_ALL },
    { "60 %, emulated host", 60, (uint64_t)64 << 20, 0, 1 << 16, 1, COH_RECOMPUTE_AUTO },
    { "60 %, emulated host of little, disk", 60, 5 << 20, MANY, 1 << 16, 1, COH_RECOMPUTE_AUTO },
};
enum { PLACEMENT_COUNT = sizeof(placements) / sizeof(placements[0]) };

typedef struct run {
    coh_plan *plan;
    coh_engine *engine;
    coh_engine_options options;
} run;

static coh_status plan_for(const placement *p, int deferred, coh_plan **out_plan)
{
    coh_plan_options options;
    coh_plan_options_init(&options);
    options.microbatch_count = SMALL_MICROBATCHES;
    options.deferred_update = deferred;
    options.thread_count = p->thread_count;
    options.chunk_bytes = p->chunk_bytes;
    options.recompute = p->recompute;
    uint64_t whole = 0;
    coh_status status = coh_plan_in_memory_bytes(graph, &options, &whole);
    if (status != COH_OK)
        return status;
    if (p->device_percent > 0)
        options.device_memory_bytes = whole * p->device_percent / 100;
    options.emulate_host_bytes = p->host_bytes;
    options.disk_bytes = p->disk_bytes;
    return coh_plan_create(graph, &options, out_plan);
}

static void run_prepare(run *r, const placement *p, int deferred)
{
    *r = (run){ 0 };
    if (plan_for(p, deferred, &r->plan) != COH_OK)
        fail_msg("%s: no plan: %s", p->name, coh_last_error());
    coh_engine_options_init(&r->options);
    r->options.thread_count = p->thread_count;
    r->options.disk_folder = ".";
    r->options.store = "mem";
}

static void run_create(run *r)
{
    if (coh_engine_create(r->plan, &r->options, &r->engine) != COH_OK)
        fail_msg("no engine: %s", coh_last_error());
}

static void run_begin(run *r, const placement *p, int deferred)
{
    run_prepare(r, p, deferred);
    run_create(r);
    assert_int_equal(coh_engine_init(r->engine, 42), COH_OK);
}

static void run_end(run *r)
{
    coh_engine_destroy(r->engine);
    coh_plan_destroy(r->plan);
}

static coh_step_input step_input(uint64_t step, float clip)
{
    small_model_input(step, input);
    return (coh_step_input){ .step = step,
                             .seed = step,
                             .learning_rate = 0.01f + 0.002f * (float)step,
                             .clip = clip,
                             .inputs = { input } };
}

static void run_step(run *r, uint64_t step, float clip, coh_step_result *result)
{
    const coh_step_input in = step_input(step, clip);
    if (coh_engine_step(r->engine, &in, result) != COH_OK)
        fail_msg("step %d: %s", (int)step, coh_last_error());
}

static uint64_t run_hash(run *r)
{
    uint64_t hash = 0;
    if (coh_engine_hash(r->engine, &hash) != COH_OK)
        fail_msg("no hash: %s", coh_last_error());
    return hash;
}

/* The hash after `count` steps from seed 42. */
static uint64_t train(run *r, uint64_t count, float clip)
{
    coh_step_result result;
    for (uint64_t step = 0; step < count; step++)
        run_step(r, step, clip, &result);
    return run_hash(r);
}

/* ---- numbers ---- */

static void fetch_into(run *r, int parameter, coh_fetch what, float *data)
{
    if (coh_engine_fetch(r->engine, (coh_parameter){ parameter }, what, data) != COH_OK)
        fail_msg("no values: %s", coh_last_error());
}

/* |difference| of every element within a few roundings of float arithmetic of that size. */
static void check_close(const float *found, const float *expected, double scale)
{
    for (int i = 0; i < SMALL_ELEMENTS; i++) {
        double difference = fabs((double)found[i] - (double)expected[i]);
        if (!(difference <= scale * (fabs((double)expected[i]) + 1e-3)))
            fail_msg("element %d: %.9g, expected %.9g", i, (double)found[i], (double)expected[i]);
    }
}

static void steps_equal_plain_loops(int deferred, float clip)
{
    run r;
    run_begin(&r, &placements[2], deferred);
    memset(&oracle, 0, sizeof(oracle));
    for (int l = 0; l < SMALL_LAYERS; l++) {
        fetch_into(&r, 2 * l, COH_FETCH_VALUE, oracle.w[l]);
        fetch_into(&r, 2 * l + 1, COH_FETCH_VALUE, oracle.b[l]);
        assert_true(oracle.b[l][7] == 1.0f);
    }
    for (uint64_t step = 0; step < 3; step++) {
        coh_step_result result;
        run_step(&r, step, clip, &result);
        small_oracle_step(&oracle, &r.options, input, 0.01 + 0.002 * (double)step, (double)clip);
        assert_true(fabs(result.loss - oracle.loss) <= 1e-6 * oracle.loss);
        assert_true(fabs(result.grad_norm - oracle.norm) <= 1e-5 * oracle.norm);
        assert_int_equal(result.applied_count, step + 1);
        assert_int_equal(result.finite, 1);
    }
    /* Adam divides by sqrt(v): rounding of a tiny gradient may move a step by a part of the rate. */
    for (int l = 0; l < SMALL_LAYERS; l++) {
        fetch_into(&r, 2 * l, COH_FETCH_VALUE, values);
        check_close(values, oracle.w[l], 2e-3);
        fetch_into(&r, 2 * l + 1, COH_FETCH_M, values);
        check_close(values, oracle.bm[l], 1e-4);
        fetch_into(&r, 2 * l, COH_FETCH_V, values);
        check_close(values, oracle.wv[l], 1e-4);
    }
    run_end(&r);
}

static void clipped_deferred_steps_equal_plain_loops(void **state)
{
    (void)state;
    steps_equal_plain_loops(1, 0.002f);
}

static void updates_in_backward_equal_plain_loops(void **state)
{
    (void)state;
    steps_equal_plain_loops(0, 0);
}

static void a_gradient_is_fetched_as_the_body_left_it(void **state)
{
    (void)state;
    run r;
    run_begin(&r, &placements[2], 1);
    memset(&oracle, 0, sizeof(oracle));
    for (int l = 0; l < SMALL_LAYERS; l++) {
        fetch_into(&r, 2 * l, COH_FETCH_VALUE, oracle.w[l]);
        fetch_into(&r, 2 * l + 1, COH_FETCH_VALUE, oracle.b[l]);
    }
    coh_step_result result;
    run_step(&r, 0, 0, &result);
    small_oracle_step(&oracle, &r.options, input, 0.01, 0);
    fetch_into(&r, 2, COH_FETCH_GRADIENT, values);
    for (int i = 0; i < SMALL_ELEMENTS; i++)
        assert_true(fabs((double)values[i] - oracle.gw[1][i]) <=
                    1e-5 * fabs(oracle.gw[1][i]) + 1e-9);
    run_end(&r);
}

/* ---- bits ---- */

static void placement_changes_no_bit(void **state)
{
    (void)state;
    for (int deferred = 0; deferred < 2; deferred++) {
        uint64_t expected = 0, in_memory_program = 0;
        for (int p = 0; p < PLACEMENT_COUNT; p++) {
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
    for (int p = 2; p < PLACEMENT_COUNT; p++)
        for (uint64_t seed = 1; seed <= 3; seed++) {
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
    coh_step_result result;
    for (uint64_t step = 0; step < 5; step++) {
        const coh_step_input in = step_input(step, 0.002f);
        assert_int_equal(coh_engine_submit(r.engine, &in), COH_OK);
        if (step > 0) {
            assert_int_equal(coh_engine_wait(r.engine, &result), COH_OK);
            assert_int_equal(result.step, step - 1);
        }
    }
    uint64_t hash;
    assert_int_equal(coh_engine_hash(r.engine, &hash), COH_ERR_ARGUMENT); /* one is under way */
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
    coh_step_result result;
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
    for (int l = 0; l < SMALL_LAYERS; l++) {
        fetch_into(&r, 2 * l, COH_FETCH_VALUE, oracle.w[l]);
        fetch_into(&r, 2 * l + 1, COH_FETCH_VALUE, oracle.b[l]);
    }
    for (int e = 0; e < SMALL_ELEMENTS; e++) {
        double x = (double)input[e];
        for (int l = 0; l < SMALL_LAYERS; l++)
            x = x * (double)oracle.w[l][e] + (double)oracle.b[l][e];
        expected += x * x / (2.0 * SMALL_ELEMENTS);
    }
    assert_true(fabs(loss - expected) <= 1e-6 * expected);
    run_end(&r);
}

/* ---- checkpoints ---- */

static void remove_checkpoint(const char *path)
{
    static const char *const files[] = { "work.bin", "m.bin", "v.bin", "hashes.bin",
                                         "manifest.json" };
    char name[256];
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        snprintf(name, sizeof(name), "%s/%s", path, files[i]);
        unlink(name);
    }
    rmdir(path);
}

static void resumed_under_another_placement_gives_the_same_bits(void **state)
{
    (void)state;
    char folder[] = "test_engine_XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/save", folder);
    run r;
    run_begin(&r, &placements[2], 1);
    uint64_t expected = train(&r, 5, 0.002f);
    assert_int_equal(coh_engine_init(r.engine, 42), COH_OK);
    uint64_t half = train(&r, 2, 0.002f);
    const coh_checkpoint_note note = { .step = 2, .json = "{\"who\":\"test\"}" };
    assert_int_equal(coh_engine_save(r.engine, path, &note), COH_OK);
    assert_int_equal(coh_engine_save(r.engine, path, &note), COH_ERR_ARGUMENT); /* exists */
    run_end(&r);
    for (int p = 0; p < PLACEMENT_COUNT; p++) {
        int changed = -1;
        run_prepare(&r, &placements[p], 1);
        run_create(&r);
        if (coh_engine_load(r.engine, path, &changed) != COH_OK)
            fail_msg("%s: %s", placements[p].name, coh_last_error());
        assert_int_equal(changed, 0);
        assert_true(run_hash(&r) == half);
        coh_step_result result;
        for (uint64_t step = 2; step < 5; step++)
            run_step(&r, step, 0.002f, &result);
        assert_int_equal(result.applied_count, 5);
        assert_true(run_hash(&r) == expected);
        run_end(&r);
    }
    remove_checkpoint(path);
    rmdir(folder);
}

static void an_engine_without_values_refuses_to_run(void **state)
{
    (void)state;
    run r;
    run_prepare(&r, &placements[0], 1);
    run_create(&r);
    const coh_step_input in = step_input(0, 0);
    coh_step_result result;
    uint64_t hash;
    assert_int_equal(coh_engine_step(r.engine, &in, &result), COH_ERR_ARGUMENT);
    assert_int_equal(coh_engine_hash(r.engine, &hash), COH_ERR_ARGUMENT);
    assert_int_equal(coh_engine_load(r.engine, "no/such/place", NULL), COH_ERR_IO);
    assert_int_equal(coh_engine_init(r.engine, 1), COH_OK);
    assert_int_equal(coh_engine_step(r.engine, &in, &result), COH_OK);
    run_end(&r);
}

/* ---- first values from elsewhere ---- */

static coh_status third_bias(void *context, coh_parameter parameter, const char *name,
                             uint64_t element_begin, uint64_t count, float *out_values)
{
    *(uint64_t *)context += count;
    if (parameter.index != 5)
        return COH_OK;
    if (strcmp(name, "layer2.bias") != 0)
        return coh_kind_fail(COH_ERR_INTERNAL, "parameter 5 is called %s", name);
    for (uint64_t i = 0; i < count; i++)
        out_values[i] = (float)(element_begin + i);
    return COH_OK;
}

static void first_values_may_come_from_a_source(void **state)
{
    (void)state;
    run r;
    run_begin(&r, &placements[2], 1);
    static float untouched[SMALL_ELEMENTS];
    fetch_into(&r, 4, COH_FETCH_VALUE, untouched);
    uint64_t seen = 0;
    assert_int_equal(coh_engine_init_from(r.engine, 42, third_bias, &seen), COH_OK);
    assert_int_equal(seen, (uint64_t)2 * SMALL_LAYERS * SMALL_ELEMENTS);
    fetch_into(&r, 5, COH_FETCH_VALUE, values);
    for (int i = 0; i < SMALL_ELEMENTS; i++)
        assert_true(values[i] == (float)i);
    fetch_into(&r, 4, COH_FETCH_VALUE, values);
    assert_memory_equal(values, untouched, sizeof(values));
    run_end(&r);
}

/* ---- broken numbers ---- */

static void a_step_that_is_not_finite_changes_nothing_and_is_named(void **state)
{
    (void)state;
    run r;
    run_begin(&r, &placements[2], 1);
    uint64_t expected = train(&r, 4, 0.002f);
    assert_int_equal(coh_engine_init(r.engine, 42), COH_OK);
    coh_step_result result;
    for (uint64_t step = 0; step < 2; step++)
        run_step(&r, step, 0.002f, &result);
    /* The broken step, and one more on the same parameters before the host learns of it. */
    coh_step_input broken = step_input(2, 0.002f);
    broken.seed = SMALL_BROKEN_SEED;
    assert_int_equal(coh_engine_submit(r.engine, &broken), COH_OK);
    const coh_step_input next = step_input(3, 0.002f);
    assert_int_equal(coh_engine_submit(r.engine, &next), COH_OK);
    assert_int_equal(coh_engine_wait(r.engine, &result), COH_OK);
    assert_int_equal(result.finite, 0);
    assert_int_equal(result.applied_count, 2);
    coh_step_result later;
    assert_int_equal(coh_engine_wait(r.engine, &later), COH_OK);
    char sentence[256];
    broken = step_input(2, 0.002f);
    broken.seed = SMALL_BROKEN_SEED;
    assert_int_equal(coh_engine_scan(r.engine, &broken, result.applied_count, sentence), COH_OK);
    assert_non_null(strstr(sentence, "layer2"));
    assert_non_null(strstr(sentence, "FORWARD"));
    /* Neither the broken step nor the one taken back has left a trace. */
    run_step(&r, 2, 0.002f, &result);
    assert_int_equal(result.applied_count, 3);
    run_step(&r, 3, 0.002f, &result);
    assert_true(run_hash(&r) == expected);
    run_end(&r);
}

static void a_broken_number_is_never_saved(void **state)
{
    (void)state;
    char folder[] = "test_engine_XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/save", folder);
    run r;
    run_begin(&r, &placements[2], 0);
    coh_step_input broken = step_input(0, 0);
    broken.seed = SMALL_BROKEN_SEED;
    coh_step_result result;
    assert_int_equal(coh_engine_step(r.engine, &broken, &result), COH_OK);
    assert_int_equal(result.finite, 0);
    char sentence[256];
    assert_int_equal(coh_engine_scan(r.engine, &broken, 0, sentence), COH_ERR_ARGUMENT);
    const coh_checkpoint_note note = { .step = 1, .json = "{}" };
    assert_int_equal(coh_engine_save(r.engine, path, &note), COH_ERR_NUMBER);
    assert_int_not_equal(access(path, F_OK), 0);
    /* A save that fails does not end the engine. */
    assert_int_equal(coh_engine_init(r.engine, 42), COH_OK);
    assert_int_equal(coh_engine_save(r.engine, path, &note), COH_OK);
    remove_checkpoint(path);
    assert_int_equal(rmdir(folder), 0);
    run_end(&r);
}

/* ---- figures and faults ---- */

static void counted_peak_and_links_are_those_of_the_plan(void **state)
{
    (void)state;
    for (int p = 0; p < PLACEMENT_COUNT; p++) {
        run r;
        run_begin(&r, &placements[p], 1);
        coh_step_result result;
        for (uint64_t step = 0; step < 3; step++)
            run_step(&r, step, 0, &result);
        run_hash(&r);
        run_step(&r, 3, 0, &result); /* a settled body, from quiet to CLIP */
        const coh_program *body = &r.plan->programs[COH_PROGRAM_BODY];
        uint64_t moved[COH_LANE_COUNT] = { 0 };
        for (uint32_t i = 0; i < body->line_count; i++)
            moved[body->lines[i].lane] += body->lines[i].bytes;
        for (int tier = 0; tier < COH_TIER_DISK; tier++)
            assert_int_equal(result.peak_bytes[tier], r.plan->layout.arena_bytes[tier]);
        for (int lane = COH_LANE_H2D; lane <= COH_LANE_WRITE; lane++)
            assert_true((result.link_bytes[lane] > 0) == (moved[lane] > 0));
        run_end(&r);
    }
}

static void nothing_is_allocated_from_the_second_step_on(void **state)
{
    (void)state;
    run r;
    run_begin(&r, &placements[5], 1);
    coh_step_result result;
    run_step(&r, 0, 0.002f, &result);
    uint64_t before = coh_alloc_count();
    for (uint64_t step = 1; step < 4; step++) {
        run_step(&r, step, 0.002f, &result);
        run_hash(&r);
        const coh_step_input in = step_input(step, 0);
        assert_int_equal(coh_engine_evaluate(r.engine, &in, NULL), COH_OK);
    }
    assert_int_equal(coh_alloc_count(), before);
    run_end(&r);
}

static void store_faults_end_the_run_with_a_sentence(void **state)
{
    (void)state;
    int hit_count = 0;
    run r;
    run_prepare(&r, &placements[2], 1);
    for (int64_t n = 0;; n += 23) {
        const coh_fault_plan faults = {
            .seed = 1, .fail_at = n, .short_at = -1, .flip_at = -1, .late_at = -1, .fail_errno = EIO
        };
        coh_store_fault_plan(&faults);
        coh_status status = coh_engine_create(r.plan, &r.options, &r.engine);
        if (status == COH_OK)
            status = coh_engine_init(r.engine, 42);
        coh_step_result result;
        for (uint64_t step = 0; status == COH_OK && step < 2; step++) {
            const coh_step_input in = step_input(step, 0);
            status = coh_engine_step(r.engine, &in, &result);
        }
        uint64_t hash;
        if (status == COH_OK)
            status = coh_engine_hash(r.engine, &hash);
        int was_hit = coh_store_fault_was_hit();
        coh_store_fault_plan(NULL);
        hit_count += was_hit;
        assert_int_equal(status, was_hit ? COH_ERR_IO : COH_OK);
        if (was_hit && r.engine != NULL) {
            assert_true(coh_last_error()[0] != '\0');
            const coh_step_input in = step_input(0, 0);
            assert_int_equal(coh_engine_step(r.engine, &in, &result), COH_ERR_IO);
        }
        coh_engine_destroy(r.engine);
        r.engine = NULL;
        if (!was_hit)
            break;
    }
    run_end(&r);
    assert_true(hit_count > 3);
}

static coh_status train_once(run *r)
{
    coh_step_result result;
    uint64_t hash;
    coh_status status = coh_engine_create(r->plan, &r->options, &r->engine);
    if (status == COH_OK)
        status = coh_engine_init(r->engine, 42);
    const coh_step_input in = step_input(0, 0.002f);
    if (status == COH_OK)
        status = coh_engine_step(r->engine, &in, &result);
    return status == COH_OK ? coh_engine_hash(r->engine, &hash) : status;
}

static void every_failing_allocation_is_told_and_leaves_nothing(void **state)
{
    (void)state;
    run r;
    run_prepare(&r, &placements[5], 1);
    for (uint64_t n = 1;; n++) {
        coh_alloc_fail_nth(n);
        coh_status status = train_once(&r);
        int was_hit = coh_alloc_fault_was_hit();
        coh_alloc_fail_nth(0);
        assert_int_equal(status, was_hit ? COH_ERR_MEMORY : COH_OK);
        assert_true(was_hit || r.engine != NULL);
        coh_engine_destroy(r.engine);
        r.engine = NULL;
        if (!was_hit)
            break;
    }
    run_end(&r);
}

static int create_graph(void **state)
{
    (void)state;
    return small_model_create(&graph) != COH_OK;
}

static int destroy_graph(void **state)
{
    (void)state;
    coh_graph_destroy(graph);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clipped_deferred_steps_equal_plain_loops),
        cmocka_unit_test(updates_in_backward_equal_plain_loops),
        cmocka_unit_test(a_gradient_is_fetched_as_the_body_left_it),
        cmocka_unit_test(placement_changes_no_bit),
        cmocka_unit_test(delays_and_poison_change_no_bit),
        cmocka_unit_test(two_steps_under_way_give_the_same_bits),
        cmocka_unit_test(drains_and_evaluations_between_steps_change_no_bit),
        cmocka_unit_test(evaluation_equals_the_plain_loss),
        cmocka_unit_test(resumed_under_another_placement_gives_the_same_bits),
        cmocka_unit_test(an_engine_without_values_refuses_to_run),
        cmocka_unit_test(first_values_may_come_from_a_source),
        cmocka_unit_test(a_step_that_is_not_finite_changes_nothing_and_is_named),
        cmocka_unit_test(a_broken_number_is_never_saved),
        cmocka_unit_test(counted_peak_and_links_are_those_of_the_plan),
        cmocka_unit_test(nothing_is_allocated_from_the_second_step_on),
        cmocka_unit_test(every_failing_allocation_is_told_and_leaves_nothing),
        cmocka_unit_test(store_faults_end_the_run_with_a_sentence),
    };
    return cmocka_run_group_tests(tests, create_graph, destroy_graph);
}
