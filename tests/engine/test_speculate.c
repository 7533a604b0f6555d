/* Steps that speculate and do not end well: broken numbers, a kind that fails, saves between
 * clipped steps. The oracle is an engine that clips exactly, in memory, with the same steps. */
#include "tests/engine/engine_bench.h"

#include <stdio.h>

#include "tests/text/folder.h"

#define CLIP 0.002f /* below every norm of the model */

static const coh_checkpoint_note note = { .struct_bytes = sizeof(note), .json = "{}" };

/* Begins a run on a disk whose plan speculates. */
static void begin_speculating(run *r)
{
    run_prepare(r, &placements[2], 1);
    coh_plan_options options = r->plan->options;
    coh_plan *plan = NULL;
    options.speculates = 1;
    assert_int_equal(coh_plan_open(graph, &options, &plan), COH_OK);
    plan->decisions = r->plan->decisions;
    if (coh_plan_finish(plan) != COH_OK)
        fail_msg("no plan: %s", coh_last_error());
    coh_plan_destroy(r->plan);
    r->plan = plan;
    r->options.poison = 1;
    run_create(r);
    assert_int_equal(coh_engine_init(r->engine, 42), COH_OK);
}

static void begin(run *r, int speculates)
{
    if (speculates)
        begin_speculating(r);
    else
        run_begin(r, &placements[0], 1);
}

static void submit(run *r, uint64_t step, uint64_t seed)
{
    coh_step_input in = step_input(step, CLIP);
    in.seed = seed;
    assert_int_equal(coh_engine_submit(r->engine, &in), COH_OK);
}

/* Runs two steps, one whose numbers break with another in flight, and the two steps again. Returns
 * the hash. */
static uint64_t run_past_broken_numbers(int speculates)
{
    run r;
    coh_step_result result = { .struct_bytes = sizeof(result) }, later = result;
    char sentence[256];
    begin(&r, speculates);
    for (uint64_t step = 0; step < 2; step++) {
        run_step(&r, step, CLIP, &result);
        assert_int_equal(result.ran_twice, speculates);
    }
    submit(&r, 2, SMALL_BROKEN_SEED);
    submit(&r, 3, 3);
    assert_int_equal(coh_engine_wait(r.engine, &result), COH_OK);
    assert_int_equal(result.finite, 0);
    assert_int_equal(result.applied_count, 2);
    assert_int_equal(result.ran_twice, 0);
    assert_int_equal(coh_engine_wait(r.engine, &later), COH_OK);
    assert_int_equal(later.finite, 1);
    coh_step_input broken = step_input(2, CLIP);
    broken.seed = SMALL_BROKEN_SEED;
    assert_int_equal(coh_engine_scan(r.engine, &broken, result.applied_count, sentence), COH_OK);
    assert_non_null(strstr(sentence, "layer2"));
    for (uint64_t step = 2; step < 4; step++) {
        run_step(&r, step, CLIP, &result);
        assert_int_equal(result.applied_count, step + 1);
    }
    const uint64_t hash = run_hash(&r);
    run_end(&r);
    return hash;
}

static void a_broken_step_leaves_nothing(void **state)
{
    (void)state;
    assert_true(run_past_broken_numbers(1) == run_past_broken_numbers(0));
}

/* A kind fails in a step, with another one submitted after it. Returns the hash. */
static uint64_t run_past_a_failure(int speculates)
{
    run r;
    coh_step_result result = { .struct_bytes = sizeof(result) };
    begin(&r, speculates);
    run_step(&r, 0, CLIP, &result);
    submit(&r, 1, SMALL_FAILING_SEED);
    submit(&r, 1, 1);
    assert_int_equal(coh_engine_wait(r.engine, &result), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "layer2"));
    assert_int_equal(coh_engine_wait(r.engine, &result), COH_OK);
    assert_int_equal(result.applied_count, 2);
    run_step(&r, 2, CLIP, &result);
    const uint64_t hash = run_hash(&r);
    run_end(&r);
    return hash;
}

static void a_kind_that_fails_leaves_nothing(void **state)
{
    (void)state;
    assert_true(run_past_a_failure(1) == run_past_a_failure(0));
}

/* As above, but the step in flight behind the failure is taken back, too. `again`: both steps are
 * then made. Returns the hash. */
static uint64_t undo_a_failure(int speculates, int again)
{
    run r;
    coh_step_result result = { .struct_bytes = sizeof(result) };
    begin(&r, speculates);
    assert_int_equal(coh_engine_undo(r.engine), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "there is none to go back to"));
    run_step(&r, 0, CLIP, &result);
    submit(&r, 1, SMALL_FAILING_SEED);
    submit(&r, 2, 2);
    assert_int_equal(coh_engine_wait(r.engine, &result), COH_ERR_ARGUMENT);
    assert_int_equal(coh_engine_undo(r.engine), COH_ERR_ARGUMENT); /* a step is under way */
    assert_int_equal(coh_engine_wait(r.engine, &result), COH_OK);
    assert_int_equal(coh_engine_undo(r.engine), COH_OK);
    for (uint64_t step = 1; again && step < 3; step++)
        run_step(&r, step, CLIP, &result);
    const uint64_t hash = run_hash(&r);
    run_end(&r);
    return hash;
}

static uint64_t after_steps(uint64_t steps)
{
    run r;
    begin(&r, 0);
    const uint64_t hash = train(&r, steps, CLIP);
    run_end(&r);
    return hash;
}

static void a_step_behind_a_failure_is_taken_back(void **state)
{
    (void)state;
    for (int speculates = 0; speculates < 2; speculates++) {
        assert_true(undo_a_failure(speculates, 0) == after_steps(1));
        assert_true(undo_a_failure(speculates, 1) == after_steps(3));
    }
}

/* Each run saves after two steps; the other continues from there. */
static void a_save_between_clipped_steps_goes_on_either_way(void **state)
{
    (void)state;
    static int count;
    uint64_t hashes[2];
    for (int from = 0; from < 2; from++) {
        char name[32];
        run r, other;
        coh_load_facts loaded = { .struct_bytes = sizeof(loaded) };
        coh_step_result result = { .struct_bytes = sizeof(result) };
        snprintf(name, sizeof(name), "speculate-%d", count++);
        begin(&r, from);
        (void)train(&r, 2, CLIP);
        assert_int_equal(coh_engine_save(r.engine, folder_file(name), &note), COH_OK);
        begin(&other, !from);
        assert_int_equal(coh_engine_load(other.engine, folder_file(name), &loaded), COH_OK);
        assert_int_equal(loaded.numeric_changed, 0);
        run_step(&other, 2, CLIP, &result);
        run_step(&r, 2, CLIP, &result);
        hashes[from] = run_hash(&other);
        assert_true(run_hash(&r) == hashes[from]);
        run_end(&r);
        run_end(&other);
    }
    assert_true(hashes[0] == hashes[1]);
}

/* No gradient outlives a step, and only the newest step can be taken back. */
static void what_is_gone_is_refused(void **state)
{
    (void)state;
    run r;
    coh_step_result result = { .struct_bytes = sizeof(result) };
    char sentence[256];
    begin(&r, 1);
    run_step(&r, 0, CLIP, &result);
    assert_int_equal(coh_engine_fetch(r.engine, (coh_parameter){ 0 }, COH_FETCH_GRADIENT, values),
                     COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "speculates 0"));
    submit(&r, 1, SMALL_BROKEN_SEED);
    submit(&r, 2, 2);
    assert_int_equal(coh_engine_wait(r.engine, &result), COH_OK);
    assert_int_equal(coh_engine_wait(r.engine, &result), COH_OK);
    (void)run_hash(&r);
    const coh_step_input in = step_input(1, CLIP);
    assert_int_equal(coh_engine_scan(r.engine, &in, 1, sentence), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "no step can be taken back"));
    run_end(&r);
}

static int begin_group(void **state)
{
    return folder_create(state) != 0 || create_graph_f32(state) != 0;
}

static int begin_group_bf16(void **state)
{
    return folder_create(state) != 0 || create_graph_bf16(state) != 0;
}

static int end_group(void **state)
{
    return destroy_graph(state) != 0 || folder_remove(state) != 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_broken_step_leaves_nothing),
        cmocka_unit_test(a_kind_that_fails_leaves_nothing),
        cmocka_unit_test(a_step_behind_a_failure_is_taken_back),
        cmocka_unit_test(a_save_between_clipped_steps_goes_on_either_way),
        cmocka_unit_test(what_is_gone_is_refused),
    };
    return cmocka_run_group_tests_name("f32", tests, begin_group, end_group) +
           cmocka_run_group_tests_name("bf16", tests, begin_group_bf16, end_group);
}
