/* engine_bench.h - an engine on a plan of the small model, under placements that must not change a
 * bit.
 *
 * For test_engine*.c, whose tests run once per dtype of the model (run_in_each_dtype). */
#ifndef COH_TESTS_ENGINE_ENGINE_BENCH_H
#define COH_TESTS_ENGINE_ENGINE_BENCH_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "planner/plan.h"
#include "planner/plan_make.h"
#include "tests/engine/small_model.h"
#include "tests/length.h"
#include "tests/search_length.h"

static coh_graph *graph, *group_graph;
static coh_dtype model_dtype; /* dtype of the graph */
static float input[SMALL_MICROBATCHES * SMALL_ELEMENTS];
static float stored_input[SMALL_MICROBATCHES * SMALL_ELEMENTS]; /* in the graph's dtype */
static float values[SMALL_ELEMENTS] __attribute__((unused));

/* Options that must not change a bit. */
typedef struct placement {
    const char *name;
    uint64_t device_percent; /* percent of the in-memory bytes; 0: unlimited */
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

/* Decisions found for the group's graph: a search takes longer than a few steps, so it runs
 * once. */
static struct {
    int is_known;
    coh_decisions decisions;
} chosen[PLACEMENT_COUNT][2];

static inline coh_status make_plan(const coh_plan_options *options, const placement *p,
                                   int deferred, coh_plan **out_plan)
{
    if (graph != group_graph) /* and p may be outside of the table */
        return coh_plan_create(graph, options, out_plan);
    const ptrdiff_t index = p - placements;
    if (chosen[index][deferred].is_known) {
        coh_status status = coh_plan_open(graph, options, out_plan);
        if (status != COH_OK)
            return status;
        (*out_plan)->decisions = chosen[index][deferred].decisions;
        return coh_plan_finish(*out_plan);
    }
    coh_status status = coh_plan_create(graph, options, out_plan);
    if (status == COH_OK) {
        chosen[index][deferred].decisions = (*out_plan)->decisions;
        chosen[index][deferred].is_known = 1;
    }
    return status;
}

static inline coh_status plan_for(const placement *p, int deferred, coh_plan **out_plan)
{
    coh_plan_options options;
    coh_plan_options_init(&options);
    options.search = test_search();
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
    options.emulate_host = 1;
    options.host_memory_bytes = p->host_bytes;
    options.disk_bytes = p->disk_bytes;
    return make_plan(&options, p, deferred, out_plan);
}

static inline void run_prepare(run *r, const placement *p, int deferred)
{
    *r = (run){ 0 };
    if (plan_for(p, deferred, &r->plan) != COH_OK)
        fail_msg("%s: no plan: %s", p->name, coh_last_error());
    coh_engine_options_init(&r->options);
    r->options.thread_count = p->thread_count;
    r->options.disk_folder = ".";
    r->options.store = "mem";
}

static inline void run_create(run *r)
{
    if (coh_engine_create(r->plan, &r->options, &r->engine) != COH_OK)
        fail_msg("no engine: %s", coh_last_error());
}

static inline void run_begin(run *r, const placement *p, int deferred)
{
    run_prepare(r, p, deferred);
    run_create(r);
    assert_int_equal(coh_engine_init(r->engine, 42), COH_OK);
}

static inline void run_end(run *r)
{
    coh_engine_destroy(r->engine);
    coh_plan_destroy(r->plan);
}

static inline coh_step_input step_input(uint64_t step, float clip)
{
    small_model_input(model_dtype, step, input, stored_input);
    return (coh_step_input){ .struct_bytes = sizeof(coh_step_input),
                             .step = step,
                             .seed = step,
                             .learning_rate = 0.01f + 0.002f * (float)step,
                             .clip = clip,
                             .inputs = { stored_input } };
}

static inline void run_step(run *r, uint64_t step, float clip, coh_step_result *result)
{
    const coh_step_input in = step_input(step, clip);
    if (coh_engine_step(r->engine, &in, result) != COH_OK)
        fail_msg("step %d: %s", (int)step, coh_last_error());
}

static inline uint64_t run_hash(run *r)
{
    uint64_t hash = 0;
    if (coh_engine_hash(r->engine, &hash) != COH_OK)
        fail_msg("no hash: %s", coh_last_error());
    return hash;
}

/* Returns the hash after `count` steps from seed 42. */
static inline uint64_t train(run *r, uint64_t count, float clip)
{
    coh_step_result result = { .struct_bytes = sizeof(result) };
    for (uint64_t step = 0; step < count; step++)
        run_step(r, step, clip, &result);
    return run_hash(r);
}

static inline void fetch_into(run *r, int parameter, coh_fetch what, float *data)
{
    if (coh_engine_fetch(r->engine, (coh_parameter){ parameter }, what, data) != COH_OK)
        fail_msg("no values: %s", coh_last_error());
}

static inline void fetch_state_into(run *r, int parameter, const char *stream, void *data)
{
    if (coh_engine_fetch_state(r->engine, (coh_parameter){ parameter }, stream, data) != COH_OK)
        fail_msg("no %s: %s", stream, coh_last_error());
}

static inline int create_group_graph(coh_dtype dtype)
{
    model_dtype = dtype;
    memset(chosen, 0, sizeof(chosen));
    const coh_status status = small_model_create(dtype, &graph);
    group_graph = graph;
    return status != COH_OK;
}

static inline int create_graph_f32(void **state)
{
    (void)state;
    return create_group_graph(COH_DTYPE_F32);
}

static inline int create_graph_bf16(void **state)
{
    (void)state;
    return create_group_graph(COH_DTYPE_BF16);
}

static inline int destroy_graph(void **state)
{
    (void)state;
    coh_graph_destroy(graph);
    graph = group_graph = NULL;
    return 0;
}

/* Evaluates to the exit status of a test program. */
/* Races do not depend on the dtype: they are looked for in one. */
#define run_in_each_dtype(tests)                                                                   \
    ((test_seeks_races()                                                                           \
          ? 0                                                                                      \
          : cmocka_run_group_tests_name("f32", tests, create_graph_f32, destroy_graph)) +          \
     cmocka_run_group_tests_name("bf16", tests, create_graph_bf16, destroy_graph))

#endif
