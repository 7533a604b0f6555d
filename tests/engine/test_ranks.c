/* Ranks that train together over threads, against their twin: one rank that makes the same replicas
 * (test_replicas.c compares that one with a plain recursion). Losses, norms and the hash of all
 * values and states are the twin's, bit for bit, in every place. Every failure ends all ranks with
 * one sentence. The graph is a GPT-2 with a tied table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sys/mman.h>

#include "tests/engine/ranks_bench.h"

/* ---- bits ---- */

static const setting plain = { .shape = "2x2x2",
                               .count = 1,
                               .order = COH_SWEEP_MICROBATCH,
                               .deferred = 1,
                               .clip = 0.5f,
                               .broken_rank = -1 };

static void any_number_of_ranks_gives_the_twins_bits(void **state)
{
    (void)state;
    const end twin = twin_of(plain);
    /* short with a sanitizer: 2 and 8, as other tests have 4 */
    for (int ranks = test_seeks_races() ? 8 : 2; ranks <= 8; ranks *= test_is_brief() ? 4 : 2) {
        const setting s = with_ranks(plain, ranks);
        expect_twin(&s, &twin);
    }
}

/* The gradient of one replica is not folded inside a rank with 8 ranks, that of four with 2. */
static void no_place_changes_a_bit(void **state)
{
    (void)state;
    static const setting settings[] = {
        { "2x2x2", 1, COH_DTYPE_F32, COH_SWEEP_MICROBATCH, 1, 0.5f, 4, 2, IN_MEMORY, 1, -1, 0 },
        { "2x2x2", 2, COH_DTYPE_F32, COH_SWEEP_MICROBATCH, 1, 0.5f, 8, 4, DISK, 0, -1, 0 },
        { "2x2x2", 2, COH_DTYPE_F32, COH_SWEEP_LAYER, 1, 0.5f, 2, 0, HOST, 2, -1, 0 },
        { "2x2", 2, COH_DTYPE_BF16, COH_SWEEP_MICROBATCH, 1, 0.5f, 2, 1, DISK, 3, -1, 0 },
        { "2x2", 1, COH_DTYPE_BF16, COH_SWEEP_MICROBATCH, 0, 0, 4, 0, HOST, 0, -1, 0 },
        { "2x2", 2, COH_DTYPE_F32, COH_SWEEP_MICROBATCH, 0, 0, 2, 0, DISK, 4, -1, 0 },
        { "4", 1, COH_DTYPE_F32, COH_SWEEP_MICROBATCH, 1, 0, 4, 2, IN_MEMORY, 0, -1, 0 },
        { "2x3", 1, COH_DTYPE_F32, COH_SWEEP_MICROBATCH, 1, 0.5f, 3, 0, IN_MEMORY, 5, -1, 0 },
        { "2x3", 2, COH_DTYPE_F32, COH_SWEEP_MICROBATCH, 1, 0.5f, 6, 0, DISK, 0, -1, 0 },
    };
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        /* 8 ranks, a shape of 3, and bf16 if it need not be fast */
        if (test_is_brief() && i % (test_seeks_races() ? 6 : 3) != 1)
            continue;
        const end twin = twin_of(settings[i]);
        expect_twin(&settings[i], &twin);
    }
}

/* The request may come too late for the losses of step 1, but then it does on all ranks. */
static void a_stop_that_one_rank_asks_for_is_known_to_all_after_the_same_step(void **state)
{
    (void)state;
    for (int asking = 0; asking <= 4; asking += 1 + test_is_brief()) {
        setting s = with_ranks(plain, asking == 0 ? 1 : 4); /* the only rank, then each of four */
        end ends[RANKS_MOST];
        s.asks_stop = asking == 0 ? 1 : asking;
        s.delay_seed = (uint64_t)asking;
        run_setting(&s, ends);
        for (int i = 0; i < s.ranks; i++) {
            must(ends[i].status, ends[i].sentence);
            assert_int_equal(ends[i].results[0].is_stop_asked, 0);
            assert_int_equal(ends[i].results[1].is_stop_asked, ends[0].results[1].is_stop_asked);
            assert_int_equal(ends[i].results[2].is_stop_asked, 1);
        }
    }
}

/* ---- failures ---- */

static void expect_one_sentence(const setting *s, const end *ends, const char *part)
{
    for (int i = 0; i < s->ranks; i++) {
        if (ends[i].status != ends[0].status || strcmp(ends[i].sentence, ends[0].sentence) != 0)
            fail_msg("rank %d ends with '%s', rank 0 with '%s'", i, ends[i].sentence,
                     ends[0].sentence);
        if (ends[i].status == COH_OK || strstr(ends[i].sentence, part) == NULL)
            fail_msg("rank %d: %s '%s' lacks '%s'", i, coh_status_name(ends[i].status),
                     ends[i].sentence, part);
    }
}

static void a_rank_that_is_given_other_numbers_is_refused(void **state)
{
    static const char *const parts[STEP_NUMBERS] = { "trains step 2 and rank 0 step 1",
                                                     "has seed 2", "has learning rate 0.0199999996",
                                                     "has clip 1.5", "has loss factor 2" };
    (void)state;
    for (int which = 0; which < STEP_NUMBERS; which++) {
        setting s = with_ranks(plain, 2);
        end ends[RANKS_MOST];
        s.differs = 2;
        s.differs_in = which;
        s.clip = 1;
        run_setting(&s, ends);
        expect_one_sentence(&s, ends, parts[which]);
    }
}

static void a_broken_number_on_one_rank_masks_the_update_on_all(void **state)
{
    (void)state;
    setting broken = plain;
    end ends[RANKS_MOST];
    broken.broken_rank = 0;
    const end twin = twin_of(broken);
    assert_int_equal(twin.results[1].finite, 0);
    broken.ranks = 4;
    for (broken.broken_rank = 0; broken.broken_rank < 4; broken.broken_rank += 3) {
        run_setting(&broken, ends);
        for (int i = 0; i < 4; i++) {
            must(ends[i].status, ends[i].sentence);
            for (int step = 0; step < STEPS; step++) {
                const coh_step_result *found = &ends[i].results[step];
                assert_int_equal(found->finite, step != 1);
                assert_true(step == 1 || (found->grad_norm == twin.results[step].grad_norm &&
                                          found->loss == twin.results[step].loss));
            }
            assert_int_equal(ends[i].results[2].applied_count, twin.results[2].applied_count);
            assert_true(ends[i].hash == twin.hash);
        }
    }
}

/* The calls of all ranks are counted together: every one in a full run, else the first ones, which
 * create the engines, and a sample. */
static void each_call_that_fails_ends_all_ranks_with_one_sentence(void **state)
{
    (void)state;
    setting s = with_ranks(plain, 4);
    end ends[RANKS_MOST];
    s.world_is_faulty = 1;
    const int64_t stride = test_seeks_races() ? 997 : test_is_short() ? 331 : 29;
    int64_t at = 0;
    for (int hit = 1; hit; at += at < 12 ? 1 : stride) {
        transport_fault_plan_set(&(transport_fault_plan){ .fail_at = at });
        run_setting(&s, ends);
        hit = transport_fault_was_hit();
        if (hit)
            expect_one_sentence(&s, ends, "injected");
        else
            for (int i = 0; i < s.ranks; i++)
                must(ends[i].status, ends[i].sentence);
    }
    assert_true(at > 200);
    transport_fault_plan_set(NULL);
}

/* Another process may still write there. */
static void memory_of_a_rank_that_another_one_did_not_leave_stays_mapped(void **state)
{
    (void)state;
    setting s = with_ranks(plain, 2);
    end ends[RANKS_MOST];
    s.world_is_faulty = 1;
    transport_fault_plan_set(&(transport_fault_plan){ .fail_at = -1, .leaves_behind = 1 });
    run_setting(&s, ends);
    transport_fault_plan_set(NULL);
    for (int i = 0; i < s.ranks; i++) {
        const size_t bytes = last_plan_of(&s)->layout.arena_bytes[COH_TIER_DEVICE];
        must(ends[i].status, ends[i].sentence);
        assert_int_equal(msync(ends[i].arena, bytes, MS_ASYNC), 0); /* all of it is mapped */
        assert_int_equal(munmap(ends[i].arena, bytes), 0);
    }
}

/* The rank sleeps for twenty timeouts. On a slow machine the others may have waited too long in an
 * earlier step already: the sentence is the same. */
static void a_rank_that_hangs_ends_all_with_what_the_others_wait_for(void **state)
{
    (void)state;
    static const char *const patterns[] = { NULL, "zero3" };
    for (int i = test_seeks_races(); i < 2; i++) {
        setting s = with_ranks(plain, 4);
        end ends[RANKS_MOST];
        s.hangs = 3;
        s.node_ranks = 2;
        s.pattern = patterns[i];
        run_setting(&s, ends);
        expect_one_sentence(&s, ends, "it has waited 0.1 s for the other rank");
        expect_one_sentence(&s, ends, "one of them hangs");
        assert_int_equal(ends[0].status, COH_ERR_DEVICE);
    }
}

/* Likewise each allocation: of an engine that is created, or of a hash. */
static void each_allocation_that_fails_ends_all_ranks_with_one_sentence(void **state)
{
    (void)state;
    setting s = with_ranks(plain, 2);
    end ends[RANKS_MOST];
    const uint64_t stride = test_is_short() ? 97 : 7;
    int failures = 0;
    for (s.failing_allocation = 1;; s.failing_allocation += stride) {
        run_setting(&s, ends);
        if (ends[0].status == COH_OK)
            break;
        expect_one_sentence(&s, ends, "rank ");
        failures++;
    }
    assert_true(failures > 3);
}

static void steps_of_ranks_allocate_nothing(void **state)
{
    (void)state;
    if (test_seeks_races()) /* a count, of runs that no_place_changes_a_bit has as well */
        return;
    static const setting settings[] = {
        { "2x2x2", 2, COH_DTYPE_F32, COH_SWEEP_MICROBATCH, 1, 0.5f, 4, 2, DISK, 0, -1, 0 },
        { "2x2", 1, COH_DTYPE_F32, COH_SWEEP_MICROBATCH, 1, 0.5f, 4, 0, HOST, 0, -1,
          .pattern = "zero1" },
    };
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        end ends[RANKS_MOST];
        run_setting(&settings[i], ends);
        must(ends[0].status, ends[0].sentence);
        assert_int_equal(ends[0].allocations, 0);
    }
}

static coh_status create_and_destroy(const coh_plan *plan, coh_world *world)
{
    coh_engine_options options;
    coh_engine *engine = NULL;
    coh_engine_options_init(&options);
    options.world = world;
    const coh_status status = coh_engine_create(plan, &options, &engine);
    coh_engine_destroy(engine);
    return status;
}

static void a_world_that_is_not_the_plans_is_refused(void **state)
{
    (void)state;
    setting s = with_ranks(plain, 2);
    coh_graph *graph = make_graph(&s);
    coh_plan *plan = plan_of(graph, &s);
    coh_world *worlds[4];
    assert_int_equal(create_and_destroy(plan, NULL), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "for 2 ranks and the engine's world has 1"));
    coh_world_options options = { .struct_bytes = sizeof(options), .rank_count = 4 };
    must(coh_world_open_threads(&options, worlds), "world");
    assert_int_equal(create_and_destroy(plan, worlds[1]), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "rank 1: the plan is for 2 ranks"));
    assert_int_equal(coh_world_barrier(worlds[0]), COH_ERR_ARGUMENT);
    for (int i = 0; i < 4; i++)
        coh_world_close(worlds[i]);
    options =
        (coh_world_options){ .struct_bytes = sizeof(options), .rank_count = 2, .node_ranks = 1 };
    must(coh_world_open_threads(&options, worlds), "world");
    assert_int_equal(create_and_destroy(plan, worlds[0]), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "nodes of 2 ranks, the world has 1"));
    for (int i = 0; i < 2; i++)
        coh_world_close(worlds[i]);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

/* Two ranks with a plan each: the second one has another number of micro-batches. */
static void ranks_with_different_plans_are_refused(void **state)
{
    (void)state;
    setting settings[] = { with_ranks(plain, 2), with_ranks(plain, 2) };
    coh_graph *graph = make_graph(&plain);
    coh_world *worlds[2];
    rank_run runs[2];
    end ends[2];
    const coh_world_options options = { .struct_bytes = sizeof(options), .rank_count = 2 };
    settings[1].count = 2;
    must(coh_world_open_threads(&options, worlds), "world");
    for (int i = 0; i < 2; i++)
        runs[i] = (rank_run){ .s = &settings[i],
                              .plan = plan_of(graph, &settings[i]),
                              .world = worlds[i] };
    for (int i = 0; i < 2; i++)
        assert_int_equal(coh_thread_start(&runs[i].thread, run_thread, &runs[i]), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(runs[i].thread, NULL), 0);
        ends[i] = runs[i].end;
        coh_plan_destroy((coh_plan *)runs[i].plan);
    }
    expect_one_sentence(&settings[0], ends, "rank 1 has program");
    for (int i = 0; i < 2; i++)
        coh_world_close(worlds[i]);
    coh_graph_destroy(graph);
}

/* ---- the plan ---- */

static coh_status try_options(const coh_graph *graph, const coh_plan_options *options)
{
    coh_plan *plan = NULL;
    const coh_status status = coh_plan_create(graph, options, &plan);
    coh_plan_destroy(plan);
    return status;
}

static void ranks_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    setting s = with_ranks(plain, 4);
    s.dtype = COH_DTYPE_BF16;
    coh_graph *graph = make_graph(&s);
    s.dtype = COH_DTYPE_F32;
    coh_plan_options options = options_of(&s, NULL);
    assert_int_equal(try_options(graph, &options), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "give gradients f32"));
    options.f32_gradients = 1;
    options.replicas = (coh_fold_shape){ { 2, 2 } };
    assert_int_equal(try_options(graph, &options), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "use at most 3 in all"));
    options.replicas = (coh_fold_shape){ { 0 } };
    options.node_ranks = 3;
    assert_int_equal(try_options(graph, &options), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "3 of a node, 4 in all"));
    options.node_ranks = 0;
    options.microbatch_count = 65536;
    assert_int_equal(try_options(graph, &options), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "4 ranks with 65536 micro-batches each"));
    coh_graph_destroy(graph);
}

static void a_shared_plan_is_the_plan(void **state)
{
    (void)state;
    const setting s = with_ranks(plain, 4);
    const coh_world_options alone = { .struct_bytes = sizeof(alone), .rank_count = 1 };
    coh_graph *graph = make_graph(&s);
    const coh_plan_options options = options_of(&s, NULL);
    coh_plan *plan = plan_of(graph, &s), *again = NULL;
    coh_plan_file file = { .struct_bytes = sizeof(file) };
    coh_world *world;
    const char *text;
    must(coh_world_open_threads(&alone, &world), "world");
    must(coh_world_share_plan(world, plan, "a note", &text), "share");
    must(coh_plan_file_parse(text, &file), "facts");
    assert_string_equal(file.note, "a note");
    assert_memory_equal(&file.ranks, &options.ranks, sizeof(file.ranks));
    must(coh_plan_parse(graph, &options, "the shared plan", text, &again), "rebuild");
    assert_true(again->program_hash == plan->program_hash);
    coh_plan_destroy(again);

    char *edited = strdup(text);
    edited[strlen(edited) / 2] ^= 1;
    assert_int_equal(coh_plan_file_parse(edited, &file), COH_ERR_CORRUPT);
    assert_int_equal(coh_plan_parse(graph, &options, "the shared plan", edited, &again),
                     COH_ERR_CORRUPT);
    assert_null(again);
    assert_memory_equal(coh_last_error(), "the shared plan: ", 17);
    free(edited);
    assert_int_equal(coh_world_share_plan(world, plan, "a\nnote", &text), COH_ERR_ARGUMENT);
    assert_int_equal(coh_world_barrier(world), COH_ERR_ARGUMENT); /* the others must not wait */
    coh_world_close(world);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

static void a_plan_file_keeps_the_ranks(void **state)
{
    (void)state;
    static const char path[] = "ranks-plan.json";
    const setting s = with_ranks(plain, 4);
    coh_graph *graph = make_graph(&s);
    coh_plan_options options = options_of(&s, NULL);
    coh_plan *plan = plan_of(graph, &s), *again = NULL;
    coh_plan_file file = { .struct_bytes = sizeof(file) };
    must(coh_plan_write(plan, path), "write");
    must(coh_plan_file_read(path, &file), "read");
    assert_memory_equal(&file.ranks, &options.ranks, sizeof(file.ranks));
    must(coh_plan_read(graph, &options, path, &again), "rebuild");
    assert_true(again->program_hash == plan->program_hash);
    coh_plan_destroy(again);
    options.node_ranks = 2;
    assert_int_equal(coh_plan_read(graph, &options, path, &again), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "nodes of 4 ranks"));
    options.ranks = (coh_fold_shape){ { 2 } };
    assert_int_equal(coh_plan_read(graph, &options, path, &again), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "is for 4 ranks, and 2 are given"));
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
    unlink(path);
}

/* A rehearsal needs no world: it checks versions, bytes and times of all lanes. */
static void a_plan_of_ranks_is_rehearsed(void **state)
{
    (void)state;
    static const setting settings[] = {
        { "2x2x2", 1, COH_DTYPE_F32, COH_SWEEP_MICROBATCH, 1, 0.5f, 4, 2, IN_MEMORY, 0, -1, 0 },
        { "2x2", 2, COH_DTYPE_BF16, COH_SWEEP_MICROBATCH, 0, 0, 4, 0, HOST, 0, -1, 0 },
        { "2x2", 1, COH_DTYPE_BF16, COH_SWEEP_MICROBATCH, 1, 0.5f, 4, 2, HOST, 0, -1,
          .pattern = "zero1" },
    };
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        coh_graph *graph = make_graph(&settings[i]);
        coh_plan *plan = plan_of(graph, &settings[i]);
        coh_rehearsal rehearsal = { .struct_bytes = sizeof(rehearsal) };
        must(coh_engine_rehearse(plan, 6, &rehearsal), "rehearse");
        assert_true(rehearsal.link_bytes[COH_LANE_COMM0] > 0);
        assert_int_equal(rehearsal.link_bytes[COH_LANE_COMM1] > 0, settings[i].node_ranks > 0);
        coh_plan_destroy(plan);
        coh_graph_destroy(graph);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_ranks_gives_the_twins_bits),
        cmocka_unit_test(no_place_changes_a_bit),
        cmocka_unit_test(a_stop_that_one_rank_asks_for_is_known_to_all_after_the_same_step),
        cmocka_unit_test(a_rank_that_is_given_other_numbers_is_refused),
        cmocka_unit_test(a_broken_number_on_one_rank_masks_the_update_on_all),
        cmocka_unit_test(each_call_that_fails_ends_all_ranks_with_one_sentence),
        cmocka_unit_test(memory_of_a_rank_that_another_one_did_not_leave_stays_mapped),
        cmocka_unit_test(a_rank_that_hangs_ends_all_with_what_the_others_wait_for),
        cmocka_unit_test(each_allocation_that_fails_ends_all_ranks_with_one_sentence),
        cmocka_unit_test(steps_of_ranks_allocate_nothing),
        cmocka_unit_test(a_world_that_is_not_the_plans_is_refused),
        cmocka_unit_test(ranks_with_different_plans_are_refused),
        cmocka_unit_test(ranks_that_do_not_fit_are_refused),
        cmocka_unit_test(a_shared_plan_is_the_plan),
        cmocka_unit_test(a_plan_file_keeps_the_ranks),
        cmocka_unit_test(a_plan_of_ranks_is_rehearsed),
    };
    return cmocka_run_group_tests(tests, draw_inputs, NULL);
}
