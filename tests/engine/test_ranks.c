/* Ranks that train together over threads, against their twin: one rank that makes the same replicas
 * (test_replicas.c compares that one with a plain recursion). Losses, norms and the hash of all
 * values and states are the twin's, bit for bit, in every place. Every failure ends all ranks with
 * one sentence. The graph is a GPT-2 with a tied table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fold_shape.h"
#include "base/thread.h"
#include "cohobate/engine.h"
#include "cohobate/models.h"
#include "comm/world.h"
#include "planner/plan_make.h"
#include "tests/engine/drawn_tokens.h"
#include "tests/engine/must.h"
#include "tests/faults/alloc_faults.h"
#include "tests/faults/transport_faults.h"
#include "tests/length.h"
#include "tests/search_length.h"
#include "tests/temporary.h"

enum { TOKENS = 37, VOCABULARY = 300, MICROBATCHES_MOST = 16, RANKS_MOST = 8, STEPS = 3 };
enum { CHANNELS = 64, CHANNELS_OF_PARTS = 128 };
enum { TIMEOUTS_A_SECOND = 10 };

static int32_t tokens[MICROBATCHES_MOST * TOKENS], targets[MICROBATCHES_MOST * TOKENS];

static int draw_inputs(void **state)
{
    (void)state;
    draw_tokens(tokens, targets, MICROBATCHES_MOST * TOKENS, VOCABULARY);
    return 0;
}

/* ---- a run ---- */

typedef enum place { IN_MEMORY, DISK, HOST } place;

/* A numeric plan, `count` micro-batches for each of the shape's replicas, and where it runs. */
typedef struct setting {
    const char *shape;
    int count;
    coh_dtype dtype;
    coh_sweep_order order;
    int deferred;
    float clip;
    int ranks; /* 1: the twin */
    int node_ranks;
    place where;
    uint64_t delay_seed;
    int broken_rank; /* its table is out of range in step 1; -1: none */
    int world_is_faulty;
    uint64_t failing_allocation; /* of those that the ranks make; 0: none */
    int asks_stop;               /* 1 + the rank that asks for a stop during step 1; 0: none */
    int hangs; /* 1 + the rank that comes too late to step 1, with a timeout; 0: none */
    /* ZERO1 to ZERO3: that pattern, and a model whose weights have a grain for each rank. */
    coh_rank_pattern pattern;
    /* Folders of checkpoints: loaded in place of the first values, saved at the end; NULL: none. */
    const char *loads, *saves;
    int cannot_save; /* 1: something else is in the place of `saves` */
} setting;

static coh_graph *make_graph(const setting *s)
{
    const coh_gpt2_config config = { .layers = 2,
                                     .heads = 2,
                                     .channels = s->pattern ? CHANNELS_OF_PARTS : CHANNELS,
                                     .positions = 48,
                                     .vocabulary = VOCABULARY,
                                     .layernorm_epsilon = 1e-5f,
                                     .dtype = s->dtype };
    coh_graph *graph = NULL;
    must(coh_gpt2_train_graph(&config, 1, TOKENS, &graph), "graph");
    return graph;
}

static coh_plan_options options_of(const setting *s)
{
    coh_plan_options options;
    coh_fold_shape all;
    coh_plan_options_init(&options);
    must(coh_fold_shape_parse(s->shape, &all), "shape");
    must(coh_fold_shape_divide(&all, s->ranks, &options.replicas, &options.ranks), "ranks");
    if (s->ranks == 1)
        options.replicas = all;
    options.node_ranks = s->node_ranks;
    options.microbatch_count = s->count * coh_fold_shape_replicas(&options.replicas);
    options.search = test_search();
    options.sweep_order = s->order;
    options.deferred_update = s->deferred;
    options.f32_gradients = s->dtype == COH_DTYPE_BF16;
    options.chunk_bytes = s->pattern ? 5 << 16 : 1 << 16; /* parts of unequal length */
    options.rank_pattern = s->ranks > 1 ? s->pattern : COH_RANK_REPLICATE;
    return options;
}

/* Plans; outside memory with a quarter of the bytes in memory, or the least if that is more. */
static coh_plan *plan_of(const coh_graph *graph, const setting *s)
{
    coh_plan_options options = options_of(s);
    uint64_t whole = 0;
    coh_plan *plan = NULL;
    if (s->where != IN_MEMORY) {
        must(coh_plan_in_memory_bytes(graph, &options, &whole), "in memory");
        options.device_memory_bytes = whole / 4;
        options.disk_bytes = s->where == DISK ? UINT64_MAX : 0;
        options.emulate_host = 1;
        options.host_memory_bytes = s->where == DISK ? 0 : 4 * whole;
    }
    must(coh_plan_create(graph, &options, &plan), "plan");
    assert_int_equal(plan->decisions.in_memory, s->where == IN_MEMORY);
    return plan;
}

/* What a rank ends with. */
typedef struct end {
    coh_status status;
    char sentence[COH_ERROR_TEXT_BYTES];
    coh_step_result results[STEPS];
    uint64_t hash;
    uint64_t allocations; /* of all ranks in the last step; of rank 0 */
    coh_status cannot_save;
} end;

typedef struct rank_run {
    const setting *s;
    const coh_plan *plan;
    coh_world *world; /* NULL: the twin */
    pthread_t thread;
    end end;
} rank_run;

static coh_status meet(const rank_run *run)
{
    return run->world != NULL ? coh_world_barrier(run->world) : COH_OK;
}

/* Exchanges a row of the table, which the step after it does not update, with `row`. */
static coh_status exchange_row(coh_engine *engine, float row[CHANNELS])
{
    static _Thread_local float table[VOCABULARY * CHANNELS];
    const coh_parameter wte = { 0 };
    COH_TRY(coh_engine_fetch(engine, wte, COH_FETCH_VALUE, table));
    COH_TRY(coh_engine_put(engine, wte, 0, CHANNELS, row));
    memcpy(row, table, CHANNELS * sizeof(*row));
    return COH_OK;
}

static coh_status run_steps(rank_run *run, coh_engine *engine)
{
    const int32_t rank = run->world != NULL ? coh_world_rank(run->world) : 0;
    const size_t first = (size_t)rank * run->plan->layout.microbatch_count * TOKENS;
    float row[CHANNELS];
    for (int i = 0; i < CHANNELS; i++)
        row[i] = 3e38f;
    if (run->s->loads != NULL)
        COH_TRY(coh_engine_load(engine, run->s->loads, NULL));
    else
        COH_TRY(coh_engine_init(engine, 3));
    for (uint64_t step = 0; step < STEPS; step++) {
        const coh_step_input input = { .struct_bytes = sizeof(input),
                                       .step = step,
                                       .seed = 1,
                                       .learning_rate = 1e-2f,
                                       .clip = run->s->clip,
                                       .loss_factor = 1.0f,
                                       .inputs = { tokens + first, targets + first } };
        run->end.results[step] = (coh_step_result){ .struct_bytes = sizeof(coh_step_result) };
        const int breaks = step == 1 && run->s->broken_rank == rank;
        if (breaks)
            COH_TRY(exchange_row(engine, row));
        if (step == STEPS - 1)
            COH_TRY(meet(run));
        const uint64_t allocations = alloc_count();
        if (step == 1 && run->s->hangs == rank + 1)
            usleep(20 * 1000 * 1000 / TIMEOUTS_A_SECOND);
        COH_TRY(coh_engine_submit(engine, &input));
        if (step == 1 && run->s->asks_stop == rank + 1)
            coh_engine_ask_stop(engine);
        COH_TRY(coh_engine_wait(engine, &run->end.results[step]));
        if (step == STEPS - 1)
            COH_TRY(meet(run));
        run->end.allocations = alloc_count() - allocations;
        if (breaks)
            COH_TRY(exchange_row(engine, row));
    }
    COH_TRY(meet(run)); /* a hash allocates */
    COH_TRY(coh_engine_hash(engine, &run->end.hash));
    const coh_checkpoint_note note = { .struct_bytes = sizeof(note), .step = STEPS };
    if (run->s->saves == NULL)
        return COH_OK;
    const coh_status saved = coh_engine_save(engine, run->s->saves, &note);
    if (!run->s->cannot_save)
        return saved;
    run->end.cannot_save = saved; /* the ranks are still in step */
    return coh_engine_hash(engine, &run->end.hash);
}

static coh_status run_rank(rank_run *run)
{
    coh_engine_options options;
    coh_engine *engine = NULL;
    coh_engine_options_init(&options);
    options.poison = 1;
    options.store = "mem";
    options.disk_folder = ".";
    options.delay_seed = run->s->delay_seed;
    options.delay_most_us = 300;
    options.world = run->world;
    options.rank_timeout_s = run->s->hangs ? 1.0 / TIMEOUTS_A_SECOND : 0;
    coh_status status = coh_engine_create(run->plan, &options, &engine);
    if (status == COH_OK)
        status = run_steps(run, engine);
    if (status != COH_OK)
        coh_error_save(run->end.sentence);
    if (status != COH_OK && run->world != NULL)
        (void)coh_world_stop(run->world, status, run->end.sentence);
    if (run->world != NULL)
        status = coh_world_barrier(run->world);
    if (status != COH_OK)
        coh_error_save(run->end.sentence);
    coh_engine_destroy(engine);
    return status;
}

static void *run_thread(void *argument)
{
    rank_run *run = argument;
    run->end.status = run_rank(run);
    return NULL;
}

/* Runs the setting, each rank on a thread of its own. */
static void run_setting(const setting *s, end ends[RANKS_MOST])
{
    coh_graph *graph = make_graph(s);
    coh_plan *plan = plan_of(graph, s);
    coh_world *worlds[RANKS_MOST] = { NULL };
    rank_run runs[RANKS_MOST];
    const coh_world_options options = { .struct_bytes = sizeof(options),
                                        .rank_count = s->ranks,
                                        .node_ranks = s->node_ranks };
    if (s->ranks > 1)
        must(coh_world_open_threads(&options, worlds), "world");
    for (int i = 0; i < s->ranks; i++) {
        runs[i] = (rank_run){ .s = s, .plan = plan, .world = worlds[i] };
        if (s->world_is_faulty)
            transport_faults_put(worlds[i]->transport);
    }
    alloc_fail_nth(s->failing_allocation);
    for (int i = 0; i < s->ranks; i++)
        assert_int_equal(coh_thread_start(&runs[i].thread, run_thread, &runs[i]), 0);
    for (int i = 0; i < s->ranks; i++)
        assert_int_equal(pthread_join(runs[i].thread, NULL), 0);
    alloc_fail_nth(0);
    for (int i = 0; i < s->ranks; i++) {
        ends[i] = runs[i].end;
        coh_world_close(worlds[i]);
    }
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

static setting with_ranks(setting s, int ranks)
{
    s.ranks = ranks;
    return s;
}

/* Compares all ranks with the twin. */
static void expect_twin(const setting *s, const end *twin)
{
    end ends[RANKS_MOST];
    run_setting(s, ends);
    for (int i = 0; i < s->ranks; i++) {
        if (ends[i].status != COH_OK)
            fail_msg("%s on %d ranks, rank %d: %s", s->shape, s->ranks, i, ends[i].sentence);
        for (int step = 0; step < STEPS; step++) {
            const coh_step_result *a = &ends[i].results[step], *b = &twin->results[step];
            if (memcmp(&a->loss, &b->loss, sizeof(a->loss)) != 0 ||
                memcmp(&a->grad_norm, &b->grad_norm, sizeof(a->grad_norm)) != 0 ||
                a->finite != b->finite || a->applied_count != b->applied_count)
                fail_msg("%s on %d ranks, rank %d, step %d: loss %a, norm %a, the twin has %a, %a",
                         s->shape, s->ranks, i, step, a->loss, a->grad_norm, b->loss, b->grad_norm);
        }
        if (ends[i].hash != twin->hash)
            fail_msg("%s on %d ranks, rank %d: another hash than the twin", s->shape, s->ranks, i);
    }
}

static end twin_of(setting s)
{
    end twin[RANKS_MOST];
    s.ranks = 1;
    s.node_ranks = 0;
    s.where = IN_MEMORY;
    s.delay_seed = 0;
    run_setting(&s, twin);
    must(twin[0].status, twin[0].sentence);
    return twin[0];
}

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
    for (int ranks = test_seeks_races() ? 8 : 2; ranks <= 8; ranks *= 2) {
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
        if (test_is_brief() && i % 3 != 1) /* 8 ranks, bf16, a shape of 3 */
            continue;
        const end twin = twin_of(settings[i]);
        expect_twin(&settings[i], &twin);
    }
}

/* ---- parts of states ---- */

/* Returns the bytes of the states of all groups, and those of divided chunks. */
static uint64_t state_bytes(const coh_plan *plan, uint64_t *out_divided)
{
    const coh_layout *layout = &plan->layout;
    uint64_t bytes = 0;
    *out_divided = 0;
    for (uint32_t i = 0; i < layout->chunk_count; i++)
        if (layout->objects[layout->chunks[i].object].stream == COH_STREAM_STATE) {
            bytes += layout->chunks[i].bytes;
            *out_divided += layout->chunks[i].is_divided ? layout->chunks[i].bytes : 0;
        }
    return bytes;
}

static const setting parts[] = {
    { "2x2", 1, COH_DTYPE_F32, COH_SWEEP_MICROBATCH, 1, 0.5f, 2, 0, IN_MEMORY, 1, -1,
      .pattern = COH_RANK_ZERO1 },
    { "2x2", 1, COH_DTYPE_BF16, COH_SWEEP_MICROBATCH, 1, 0.5f, 4, 2, DISK, 0, -1,
      .pattern = COH_RANK_ZERO3 },
    { "3", 2, COH_DTYPE_F32, COH_SWEEP_LAYER, 0, 0, 3, 0, HOST, 2, -1, .pattern = COH_RANK_ZERO1 },
    { "2x2", 2, COH_DTYPE_F32, COH_SWEEP_MICROBATCH, 1, 0.5f, 4, 0, HOST, 0, -1,
      .pattern = COH_RANK_ZERO2 },
    { "2x2", 1, COH_DTYPE_BF16, COH_SWEEP_MICROBATCH, 0, 0, 2, 1, IN_MEMORY, 3, -1,
      .pattern = COH_RANK_ZERO2 },
    { "4", 1, COH_DTYPE_F32, COH_SWEEP_MICROBATCH, 0, 0, 4, 0, DISK, 0, -1,
      .pattern = COH_RANK_ZERO3 },
    { "3", 2, COH_DTYPE_F32, COH_SWEEP_LAYER, 1, 0.5f, 3, 0, IN_MEMORY, 0, -1,
      .pattern = COH_RANK_ZERO3 },
    { "2x2x2", 1, COH_DTYPE_BF16, COH_SWEEP_MICROBATCH, 1, 0, 4, 2, HOST, 4, -1,
      .pattern = COH_RANK_ZERO2 },
    { "2x2", 1, COH_DTYPE_BF16, COH_SWEEP_MICROBATCH, 1, 0.5f, 4, 2, DISK, 0, -1,
      .pattern = COH_RANK_ZERO1 },
};
enum { PARTS = sizeof(parts) / sizeof(parts[0]) };

static void ranks_with_parts_of_the_states_give_the_twins_bits(void **state)
{
    (void)state;
    for (int i = 0; i < PARTS; i++) {
        if (test_is_brief() && i % 3 != 1) /* bf16 from a drive and in memory */
            continue;
        const end twin = twin_of(parts[i]);
        expect_twin(&parts[i], &twin);
    }
}

/* With p ranks a rank's part of a chunk is at most a grain longer than 1/p of it. */
static void a_rank_has_its_part_of_the_states_alone(void **state)
{
    (void)state;
    for (int i = 0; i < PARTS; i++) {
        setting whole = parts[i];
        uint64_t divided, none;
        coh_graph *graph = make_graph(&whole);
        coh_plan *plan = plan_of(graph, &parts[i]), *twin = NULL;
        whole.ranks = 1;
        whole.node_ranks = 0;
        whole.where = IN_MEMORY;
        twin = plan_of(graph, &whole);
        const uint64_t part = state_bytes(plan, &divided), all = state_bytes(twin, &none);
        assert_int_equal(none, 0);
        assert_true(divided > 0);
        assert_true(part < all * 7 / 10);
        coh_plan_destroy(plan);
        coh_plan_destroy(twin);
        coh_graph_destroy(graph);
    }
}

/* A save of any layout is loaded by any other, and goes on with the bits of an unbroken run. */
static void what_parts_save_any_number_of_ranks_loads(void **state)
{
    (void)state;
    static const char *const folders[] = { "parts-0", "parts-1" };
    const setting *const kinds[] = { &parts[1], &parts[3] };
    for (int i = 0; i < 2; i++) {
        if (test_is_brief() && i > 0)
            continue;
        setting first = *kinds[i], second = *kinds[i], twin = *kinds[i];
        end expected[RANKS_MOST];
        for (int f = 0; f < 2; f++)
            (void)temporary_remove(folders[f]);
        twin.ranks = 1;
        twin.node_ranks = 0;
        twin.where = IN_MEMORY;
        twin.saves = folders[0];
        run_setting(&twin, expected);
        must(expected[0].status, expected[0].sentence);
        first.saves = folders[1];
        expect_twin(&first, &expected[0]);

        twin.loads = folders[1]; /* of four ranks, on one */
        twin.saves = NULL;
        run_setting(&twin, expected);
        must(expected[0].status, expected[0].sentence);
        second.loads = folders[0]; /* of one rank, on two */
        second.ranks = 2;
        second.node_ranks = 0;
        expect_twin(&second, &expected[0]);
        for (int f = 0; f < 2; f++)
            (void)temporary_remove(folders[f]);
    }
}

static void a_save_that_rank_0_cannot_write_keeps_the_ranks_in_step(void **state)
{
    (void)state;
    setting s = parts[3];
    end ends[RANKS_MOST];
    s.saves = ".";
    s.cannot_save = 1;
    run_setting(&s, ends);
    for (int i = 0; i < s.ranks; i++) {
        must(ends[i].status, ends[i].sentence);
        assert_int_equal(ends[i].cannot_save != COH_OK, i == 0);
        assert_true(ends[i].hash == ends[0].hash);
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
            for (int step = 0; step < STEPS; step++)
                assert_int_equal(ends[i].results[step].finite, step != 1);
            assert_int_equal(ends[i].results[2].applied_count, twin.results[2].applied_count);
            assert_true(ends[i].hash == twin.hash);
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

/* The rank sleeps for twenty timeouts. The others wait in step 1, or have not waited long enough in an
 * earlier one: the test does not depend on how fast they are. */
static void a_rank_that_hangs_ends_all_with_what_the_others_wait_for(void **state)
{
    (void)state;
    for (int pattern = COH_RANK_REPLICATE; pattern <= COH_RANK_ZERO3; pattern += COH_RANK_ZERO3) {
        setting s = with_ranks(plain, 4);
        end ends[RANKS_MOST];
        s.hangs = 3;
        s.node_ranks = 2;
        s.pattern = (coh_rank_pattern)pattern;
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
    static const setting settings[] = {
        { "2x2x2", 2, COH_DTYPE_F32, COH_SWEEP_MICROBATCH, 1, 0.5f, 4, 2, DISK, 0, -1, 0 },
        { "2x2", 1, COH_DTYPE_F32, COH_SWEEP_MICROBATCH, 1, 0.5f, 4, 0, HOST, 0, -1,
          .pattern = COH_RANK_ZERO1 },
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
    coh_plan_options options = options_of(&s);
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
    const coh_plan_options options = options_of(&s);
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
    coh_plan_options options = options_of(&s);
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
    assert_non_null(strstr(coh_last_error(), "nodes of 0 ranks"));
    options.ranks = (coh_fold_shape){ { 2 } };
    assert_int_equal(coh_plan_read(graph, &options, path, &again), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "is for ranks 2x2: give the same"));
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
          .pattern = COH_RANK_ZERO1 },
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
        cmocka_unit_test(ranks_with_parts_of_the_states_give_the_twins_bits),
        cmocka_unit_test(a_rank_has_its_part_of_the_states_alone),
        cmocka_unit_test(what_parts_save_any_number_of_ranks_loads),
        cmocka_unit_test(a_save_that_rank_0_cannot_write_keeps_the_ranks_in_step),
        cmocka_unit_test(a_stop_that_one_rank_asks_for_is_known_to_all_after_the_same_step),
        cmocka_unit_test(a_broken_number_on_one_rank_masks_the_update_on_all),
        cmocka_unit_test(each_call_that_fails_ends_all_ranks_with_one_sentence),
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
