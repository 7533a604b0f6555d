/* The whole life of a model (graph, plan, engine, init, step, hash, save, load, destroy) with one
 * failing allocation: it ends with COH_ERR_MEMORY and a message, leaks nothing (ASan checks), and a
 * failed allocation never changes the results.
 *
 *     test_allocations            two operators, every allocation (in short one in thirteen)
 *     test_allocations nano N     the preset gpt2-nano, N allocations picked by a seeded draw */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "tests/faults/alloc_faults.h"
#include "tests/faults/fault_model.h"
#include "tests/length.h"
#include "tests/temporary.h"

enum {
    LIFE_SECONDS = 240, /* nano's, on a machine with ten other processes */
    SHORT_STRIDE = 13,
};

static fault_model_size size = FAULT_TWO_OPERATORS;
static uint64_t draw_count; /* 0: all */
static uint64_t device_bytes;
static uint64_t expected_hash;
static char folder[256], path[320];

/* The calls of one life, to report where failures occurred. */
typedef enum call {
    CALL_GRAPH,
    CALL_PLAN,
    CALL_CREATE,
    CALL_INIT,
    CALL_STEP,
    CALL_HASH,
    CALL_SAVE,
    CALL_LOAD,
    CALL_HASH_AGAIN,
    CALL_COUNT
} call;

static const char *const call_names[CALL_COUNT] = { "graph", "plan", "engine", "init", "step",
                                                    "hash",  "save", "load",   "hash" };

typedef struct life {
    coh_graph *graph;
    coh_plan *plan;
    coh_engine *engine;
    uint64_t hash, loaded_hash;
} life;

static coh_status live_call(life *self, call which)
{
    const coh_step_input input = fault_step_input(0);
    const coh_checkpoint_note note = { .struct_bytes = sizeof(note), .step = 1, .json = "{}" };
    coh_plan_options plan_options;
    coh_engine_options options;
    coh_step_result result = { .struct_bytes = sizeof(result) };
    fault_plan_options(device_bytes, &plan_options);
    fault_engine_options("posix", &options);
    switch (which) {
    case CALL_GRAPH:
        return fault_graph(size, &self->graph);
    case CALL_PLAN:
        return coh_plan_create(self->graph, &plan_options, &self->plan);
    case CALL_CREATE:
        return coh_engine_create(self->plan, &options, &self->engine);
    case CALL_INIT:
        return coh_engine_init(self->engine, FAULT_SEED);
    case CALL_STEP:
        return coh_engine_step(self->engine, &input, &result);
    case CALL_HASH:
        return coh_engine_hash(self->engine, &self->hash);
    case CALL_SAVE:
        return coh_engine_save(self->engine, path, &note);
    case CALL_LOAD:
        return coh_engine_load(self->engine, path, NULL);
    case CALL_HASH_AGAIN:
        return coh_engine_hash(self->engine, &self->loaded_hash);
    case CALL_COUNT:
        break;
    }
    return COH_OK;
}

/* *out_call: the call that failed, or CALL_COUNT. Checks hashes; frees everything. */
static coh_status live(call *out_call)
{
    life self = { 0 };
    coh_status status = COH_OK;
    int which = 0;
    while (which < CALL_COUNT && status == COH_OK)
        status = live_call(&self, (call)which++);
    *out_call = status == COH_OK ? CALL_COUNT : (call)(which - 1);
    if (status != COH_OK)
        fault_check_sentence(coh_last_error());
    if (expected_hash == 0)
        expected_hash = self.hash;
    assert_true(self.hash == 0 || self.hash == expected_hash);
    assert_true(self.loaded_hash == 0 || self.loaded_hash == expected_hash);
    fault_destroy(self.engine);
    coh_plan_destroy(self.plan);
    coh_graph_destroy(self.graph);
    (void)temporary_remove(path);
    return status;
}

static int set_up(void **state)
{
    (void)state;
    coh_graph *graph;
    call where;
    fault_watchdog(LIFE_SECONDS, "set-up");
    fault_make_folder(folder, sizeof(folder));
    snprintf(path, sizeof(path), "%s/save", folder);
    assert_int_equal(fault_graph(size, &graph), COH_OK);
    device_bytes = fault_smallest_bytes(graph);
    coh_graph_destroy(graph);
    assert_int_equal(live(&where), COH_OK);
    return expected_hash == 0;
}

static int tear_down(void **state)
{
    (void)state;
    (void)temporary_remove(folder);
    return 0;
}

/* Fails allocation n of a life. Returns 0 if the life has fewer. *out_where: the call it occurred
 * in. */
static int fail_one(uint64_t n, uint64_t *hit_count, call *out_where)
{
    char name[64];
    call where;
    snprintf(name, sizeof(name), "allocation %" PRIu64, n);
    fault_watchdog(LIFE_SECONDS, name);
    alloc_fail_nth(n);
    coh_status status = live(&where);
    int was_hit = alloc_fault_was_hit();
    alloc_fail_nth(0);
    if (!was_hit) {
        assert_int_equal(status, COH_OK);
        return 0;
    }
    if (status != COH_ERR_MEMORY)
        fail_msg("allocation %d: %s in '%s': %s", (int)n, coh_status_name(status),
                 where < CALL_COUNT ? call_names[where] : "-", coh_last_error());
    assert_int_equal(coh_status_exit_code(status), 1);
    hit_count[where]++;
    *out_where = where;
    return 1;
}

static void print_sites(const uint64_t *hit_count)
{
    uint64_t total = 0;
    for (int i = 0; i < CALL_COUNT; i++)
        total += hit_count[i];
    printf("%" PRIu64 " sites hit (", total);
    const char *comma = "";
    for (int i = 0; i < CALL_COUNT; i++)
        if (hit_count[i] > 0) {
            printf("%s%" PRIu64 " in %s", comma, hit_count[i], call_names[i]);
            comma = ", ";
        }
    printf(")\n");
}

/* Fails every allocation except some of the search's, which builds many schedules in the same way:
 * these at growing distances, until the first allocation after the search is found. From the last
 * distance before it on, fails every one. */
static void fail_each(uint64_t *hit_count)
{
    const uint64_t least = test_is_short() ? SHORT_STRIDE : 1;
    uint64_t n = 1, stride = least;
    int searches = 1;
    call where = CALL_COUNT;
    for (;;) {
        int was_hit = fail_one(n, hit_count, &where);
        if (searches && stride > least && (!was_hit || where != CALL_PLAN)) {
            n -= stride - least;
            searches = 0;
            continue;
        }
        if (!was_hit)
            return;
        stride = searches && where == CALL_PLAN ? least + least * n / 64 : least;
        n += stride;
    }
}

static void every_failing_allocation_is_told_and_leaves_nothing(void **state)
{
    (void)state;
    uint64_t hit_count[CALL_COUNT] = { 0 };
    call where;
    uint64_t before = alloc_count();
    assert_int_equal(live(&where), COH_OK);
    uint64_t allocation_count = alloc_count() - before;
    assert_true(allocation_count > 100);
    if (draw_count == 0)
        fail_each(hit_count);
    static const call hit_calls[] = { CALL_GRAPH, CALL_PLAN, CALL_CREATE, CALL_LOAD };
    for (size_t i = 0; draw_count == 0 && i < sizeof(hit_calls) / sizeof(hit_calls[0]); i++)
        assert_true(hit_count[hit_calls[i]] > 0);
    for (uint64_t i = 0; i < draw_count; i++)
        assert_true(fail_one(1 + coh_rng_below(5, 0, i, allocation_count), hit_count, &where));
    printf("figure: %s: %" PRIu64 " allocations in one life, ",
           size == FAULT_NANO ? "gpt2-nano" : "two operators", allocation_count);
    print_sites(hit_count);
}

int main(int argument_count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_failing_allocation_is_told_and_leaves_nothing),
    };
    if (argument_count > 2) {
        size = FAULT_NANO;
        draw_count = strtoull(arguments[2], NULL, 10);
    }
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
