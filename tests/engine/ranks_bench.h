/* ranks_bench.h - runs of a GPT-2 with a tied table on ranks that are threads, and on their twin:
 * one rank that makes the same replicas. For test_ranks.c and test_rank_parts.c. */
#ifndef COH_TESTS_ENGINE_RANKS_BENCH_H
#define COH_TESTS_ENGINE_RANKS_BENCH_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fold_shape.h"
#include "base/thread.h"
#include "cohobate/engine.h"
#include "cohobate/models.h"
#include "comm/world.h"
#include "engine/device_find.h"
#include "engine/engine_state.h"
#include "engine/step_state.h"
#include "memory/library_workspace.h"
#include "planner/plan_make.h"
#include "tests/engine/drawn_tokens.h"
#include "tests/engine/must.h"
#include "tests/faults/alloc_faults.h"
#include "tests/faults/transport_faults.h"
#include "tests/length.h"
#include "tests/search_length.h"
#include "tests/temporary.h"

enum { TOKENS = 37, VOCABULARY = 300, MICROBATCHES_MOST = 16, RANKS_MOST = 8 };
enum { STEPS = 3, STEPS_MOST = 20 };
enum { CHANNELS = 64, CHANNELS_OF_4_PARTS = 128, CHANNELS_OF_8_PARTS = 192 };
enum { TIMEOUTS_A_SECOND = 10 };

/* The tokens of a micro-batch, TOKENS or fewer: a race does not depend on their number. */
static inline int32_t token_count(void)
{
    return test_seeks_races() ? 8 : TOKENS;
}

static int32_t tokens[MICROBATCHES_MOST * TOKENS], targets[MICROBATCHES_MOST * TOKENS];

static inline int draw_inputs(void **state)
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
    int differs; /* 1 + the rank with another number in step 1, the `differs_in`-th; 0: none */
    int differs_in;
    int hangs; /* 1 + the rank that comes too late to step 1, with a timeout; 0: none */
    /* A pattern of ranks: that, and a model whose weights have a grain for each rank. */
    const char *pattern, *pin;
    /* Folders of checkpoints: loaded in place of the first values, saved at the end; NULL: none. */
    const char *loads, *saves;
    int cannot_save; /* 1: something else is in the place of `saves` */
    int lead;        /* of the plan's decisions, if above 0 */
    coh_wires wires; /* of several ranks */
    uint64_t chunk_bytes;
    int keeps;          /* 1: no step, only the hash of what is loaded */
    int steps;          /* at most STEPS_MOST, those before `begins_at` included; 0: STEPS */
    uint64_t begins_at; /* the first step, of what is loaded */
    const coh_store_ops *store; /* of rank `store_rank`; NULL: the usual one */
    int store_rank;
    coh_reduce reduce; /* of several ranks */
    float *values;     /* room for rank 0's embedding at the end; NULL: none */
    /* Ranks, and the twin, that compute on GPUs of this profile, by this device with the index of
     * the rank; NULL: on the host. */
    const coh_profile *gpu;
    const coh_engine_device *device;
    int has_timeout; /* as with `hangs`; 1: no rank may exceed it */
} setting;

static inline coh_graph *make_graph(const setting *s)
{
    const coh_gpt2_config config = { .layers = 2,
                                     .heads = 2,
                                     .channels = !s->pattern ? CHANNELS
                                                 : strcmp(s->shape, "2x2x2") == 0
                                                     ? CHANNELS_OF_8_PARTS
                                                     : CHANNELS_OF_4_PARTS,
                                     .positions = 48,
                                     .vocabulary = VOCABULARY,
                                     .layernorm_epsilon = 1e-5f,
                                     .dtype = s->dtype };
    coh_graph *graph = NULL;
    must(coh_gpt2_train_graph(&config, 1, token_count(), &graph), "graph");
    return graph;
}

/* `pin` must outlive the plan's options. */
static inline coh_plan_options options_of(const setting *s, coh_pin *pin)
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
    if (s->ranks > 1 && s->pattern != NULL)
        snprintf(options.rank_pattern, sizeof(options.rank_pattern), "%s", s->pattern);
    if (s->chunk_bytes > 0)
        options.chunk_bytes = s->chunk_bytes;
    if (s->ranks > 1)
        options.wires = s->wires;
    options.reduce = s->ranks > 1 ? s->reduce : COH_REDUCE_EXACT;
    if (s->ranks > 1 && s->pin != NULL) {
        must(coh_pin_parse(s->pin, pin), "pin");
        options.pins = pin;
        options.pin_count = 1;
    }
    return options;
}

/* Returns a copy of the plan with another lead. */
static inline coh_plan *copy_with_lead(const coh_plan *plan, int lead)
{
    coh_plan *other = NULL;
    must(coh_plan_open(plan->graph, &plan->options, &other), "open");
    other->decisions = plan->decisions;
    other->decisions.lead = lead;
    must(coh_plan_finish(other), "lead");
    return other;
}

static inline coh_plan *with_lead(coh_plan *plan, int lead)
{
    coh_plan *other = copy_with_lead(plan, lead);
    coh_plan_destroy(plan);
    return other;
}

/* Plans; outside memory with a quarter of the bytes in memory, or the least if that is more. */
static inline coh_plan *plan_of(const coh_graph *graph, const setting *s)
{
    coh_pin pin;
    coh_plan_options options = options_of(s, &pin);
    uint64_t whole = 0;
    coh_plan *plan = NULL;
    options.profile = s->gpu;
    if (s->gpu != NULL && s->where == IN_MEMORY)
        options.device_memory_bytes = (uint64_t)1 << 30;
    if (s->where != IN_MEMORY) {
        must(coh_plan_in_memory_bytes(graph, &options, &whole), "in memory");
        const uint64_t fixed = s->gpu != NULL ? COH_CUDA_LIBRARY_BYTES : 0;
        options.device_memory_bytes = fixed + (whole - fixed) / 4;
        options.disk_bytes = s->where == DISK ? UINT64_MAX : 0;
        options.emulate_host = s->gpu == NULL;
        options.host_memory_bytes = s->where == HOST ? 4 * whole
                                    : s->gpu != NULL ? (whole - fixed) / 2
                                                     : 0;
    }
    must(coh_plan_create(graph, &options, &plan), "plan");
    assert_int_equal(plan->decisions.in_memory, s->where == IN_MEMORY);
    return s->lead > 0 && s->ranks > 1 ? with_lead(plan, s->lead) : plan;
}

/* The results of a rank. */
typedef struct end {
    coh_status status;
    char sentence[COH_ERROR_TEXT_BYTES];
    coh_step_result results[STEPS_MOST];
    uint64_t hash;
    uint64_t allocations; /* of all ranks in the last step; of rank 0 */
    /* Moved by each lane until all steps had ended. A step's own result counts from CLIP to CLIP,
     * so what ends at that time may be counted a step later. */
    uint64_t link_bytes[COH_LANE_COUNT];
    coh_status cannot_save;
    void *arena; /* the device tier's, which went with the engine */
} end;

typedef struct rank_run {
    const setting *s;
    const coh_plan *plan;
    coh_world *world; /* NULL: the twin */
    pthread_t thread;
    end end;
} rank_run;

static inline coh_status meet(const rank_run *run)
{
    return run->world != NULL ? coh_world_barrier(run->world) : COH_OK;
}

/* Exchanges a row of the table, which the step after it does not update, with `row`. */
static inline coh_status exchange_row(coh_engine *engine, float row[CHANNELS])
{
    static _Thread_local float table[VOCABULARY * CHANNELS];
    const coh_parameter wte = { 0 };
    COH_TRY(coh_engine_fetch(engine, wte, COH_FETCH_VALUE, table));
    COH_TRY(coh_engine_put(engine, wte, 0, CHANNELS, row));
    memcpy(row, table, CHANNELS * sizeof(*row));
    return COH_OK;
}

enum { STEP_NUMBERS = 5 }; /* that all ranks must have alike */

static inline void change_number(coh_step_input *input, int which)
{
    input->step += which == 0;
    input->seed += which == 1;
    input->learning_rate *= which == 2 ? 2 : 1;
    input->clip += which == 3 ? 0.5f : 0;
    input->loss_factor *= which == 4 ? 2 : 1;
}

static inline uint64_t steps_of(const setting *s)
{
    return s->steps > 0 ? (uint64_t)s->steps : STEPS;
}

/* Gives rank 0's embedding, which all ranks fetch. */
static inline coh_status fetch_values(const rank_run *run, coh_engine *engine, int32_t rank)
{
    static _Thread_local float table[VOCABULARY * CHANNELS_OF_8_PARTS];
    const coh_parameter wte = { 0 };
    if (run->s->values == NULL)
        return COH_OK;
    return coh_engine_fetch(engine, wte, COH_FETCH_VALUE, rank == 0 ? run->s->values : table);
}

static inline coh_status run_steps(rank_run *run, coh_engine *engine)
{
    const uint64_t last = steps_of(run->s) - 1;
    const int32_t rank = run->world != NULL ? coh_world_rank(run->world) : 0;
    const size_t first = (size_t)rank * run->plan->layout.microbatch_count * (size_t)token_count();
    float row[CHANNELS];
    for (int i = 0; i < CHANNELS; i++)
        row[i] = 3e38f;
    if (run->s->loads != NULL)
        COH_TRY(coh_engine_load(engine, run->s->loads, NULL));
    else
        COH_TRY(coh_engine_init(engine, 3));
    for (uint64_t step = run->s->begins_at; step <= last && !run->s->keeps; step++) {
        coh_step_input input = { .struct_bytes = sizeof(input),
                                 .step = step,
                                 .seed = 1,
                                 .learning_rate = 1e-2f,
                                 .clip = run->s->clip,
                                 .loss_factor = 1.0f,
                                 .inputs = { tokens + first, targets + first } };
        if (step == 1 && run->s->differs == rank + 1)
            change_number(&input, run->s->differs_in);
        run->end.results[step] = (coh_step_result){ .struct_bytes = sizeof(coh_step_result) };
        const int breaks = step == 1 && run->s->broken_rank == rank;
        if (breaks)
            COH_TRY(exchange_row(engine, row));
        if (step == last)
            COH_TRY(meet(run));
        const uint64_t allocations = alloc_count();
        if (step == 1 && run->s->hangs == rank + 1)
            usleep(20 * 1000 * 1000 / TIMEOUTS_A_SECOND);
        COH_TRY(coh_engine_submit(engine, &input));
        if (step == 1 && run->s->asks_stop == rank + 1)
            coh_engine_ask_stop(engine);
        COH_TRY(coh_engine_wait(engine, &run->end.results[step]));
        if (step == last)
            COH_TRY(meet(run));
        run->end.allocations = alloc_count() - allocations;
        if (breaks)
            COH_TRY(exchange_row(engine, row));
    }
    COH_TRY(coh_step_quiet(engine->step));
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        run->end.link_bytes[lane] = atomic_load(&engine->step->link_bytes[lane]);
    COH_TRY(meet(run)); /* a hash allocates */

    COH_TRY(coh_engine_hash(engine, &run->end.hash));
    COH_TRY(fetch_values(run, engine, rank));
    const coh_checkpoint_note note = { .struct_bytes = sizeof(note), .step = last + 1 };
    if (run->s->saves == NULL)
        return COH_OK;
    const coh_status saved = coh_engine_save(engine, run->s->saves, &note);
    if (!run->s->cannot_save)
        return saved;
    run->end.cannot_save = saved; /* the ranks are still in step */
    return coh_engine_hash(engine, &run->end.hash);
}

static inline coh_status create_engine(const rank_run *run, const coh_engine_options *options,
                                       coh_engine **out_engine)
{
    const int rank = run->world != NULL ? coh_world_rank(run->world) : 0;
    const int has_own_store = run->s->store != NULL && run->s->store_rank == rank;
    coh_engine_device device;
    if (run->s->device == NULL && !has_own_store)
        return coh_engine_create(run->plan, options, out_engine);
    if (run->s->device != NULL)
        device = *run->s->device;
    else
        COH_TRY(coh_device_find("host", &device));
    device.index = run->s->device != NULL ? rank : 0;
    if (has_own_store)
        device.store_ops = run->s->store;
    return coh_engine_create_on(run->plan, options, &device, out_engine);
}

static inline coh_status run_rank(rank_run *run)
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
    options.rank_timeout_s = run->s->hangs || run->s->has_timeout ? 1.0 / TIMEOUTS_A_SECOND : 0;
    coh_status status = create_engine(run, &options, &engine);
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
    run->end.arena = engine != NULL ? engine->step->arenas[COH_TIER_DEVICE] : NULL;
    coh_engine_destroy(engine);
    return status;
}

static inline void *run_thread(void *argument)
{
    rank_run *run = argument;
    run->end.status = run_rank(run);
    return NULL;
}

/* The setting without what its plan does not depend on. */
static inline setting of_plan(setting s)
{
    s.delay_seed = s.failing_allocation = s.begins_at = 0;
    s.broken_rank = s.world_is_faulty = s.asks_stop = s.differs = s.differs_in = s.hangs = 0;
    s.cannot_save = s.keeps = s.steps = s.store_rank = s.has_timeout = 0;
    s.loads = s.saves = NULL;
    s.store = NULL;
    s.values = NULL;
    s.device = NULL;
    return s;
}

/* Returns the setting's plan, which the next call may destroy: a test of many failures runs one
 * plan again and again. */
static inline const coh_plan *last_plan_of(const setting *s)
{
    static setting last;
    static coh_graph *graph;
    static coh_plan *plan;
    const setting wanted = of_plan(*s);
    if (plan != NULL && memcmp(&wanted, &last, sizeof(wanted)) == 0)
        return plan;
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
    plan = NULL; /* if the test fails in between */
    graph = NULL;
    graph = make_graph(s);
    plan = plan_of(graph, s);
    memcpy(&last, &wanted, sizeof(last));
    return plan;
}

/* Runs the setting, each rank on its own thread. */
static inline void run_setting(const setting *s, end ends[RANKS_MOST])
{
    const coh_plan *plan = last_plan_of(s);
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
}

static inline setting with_ranks(setting s, int ranks)
{
    s.ranks = ranks;
    return s;
}

/* Compares all ranks with the twin. */
static inline void expect_twin(const setting *s, const end *twin)
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

static inline end twin_of(setting s)
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

#endif
