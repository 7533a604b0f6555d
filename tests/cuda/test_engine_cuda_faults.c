/* The state left when a GPU fails an engine, over the stub driver: one message with a place,
 * nothing left allocated, and complete checkpoints. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cohobate/checkpoint.h"
#include "engine/step_state.h"
#include "tests/cuda/engine_trial.h"
#include "tests/cuda/stub_driver.h"
#include "tests/length.h"
#include "tests/temporary.h"

static const trial_placement streamed = { "streamed", 45, 0, 0, 1, 1 };
static const trial_placement disk = { "streamed, disk", 45, TRIAL_MANY, 0, 1, 1 };

typedef struct trial {
    coh_graph *graph;
    coh_profile *profile;
    coh_plan *plan;
    coh_engine *engine;
} trial;

static void open_trial(trial *t, const trial_placement *p)
{
    *t = (trial){ .graph = trial_graph(COH_DTYPE_F32, 1) };
    assert_int_equal(coh_profile_read("a100-40g", &t->profile), COH_OK);
    t->plan = trial_plan(t->graph, t->profile, p);
}

static void close_trial(trial *t)
{
    coh_plan_destroy(t->plan);
    coh_profile_destroy(t->profile);
    coh_graph_destroy(t->graph);
}

/* Makes an engine with parameters, on a GPU that executes in the seed's order. */
static void make_engine(trial *t, uint64_t seed)
{
    coh_engine_options options;
    coh_engine_options_init(&options);
    options.disk_folder = ".";
    coh_stub_reset(TRIAL_GPU_BYTES);
    coh_stub_start(seed);
    if (coh_engine_create_on(t->plan, &options, &trial_gpu, &t->engine) != COH_OK)
        fail_msg("no engine: %s", coh_last_error());
    if (coh_engine_init(t->engine, 42) != COH_OK)
        fail_msg("no parameters: %s", coh_last_error());
}

static void drop_engine(trial *t)
{
    coh_engine_destroy(t->engine);
    coh_stub_stop();
    assert_int_equal(coh_stub_live_count(), 0);
}

static coh_status train(coh_engine *engine, uint64_t step)
{
    trial_ids ids;
    coh_step_result result = { .struct_bytes = sizeof(result) };
    const coh_step_input input = trial_input(engine->plan, step, &ids);
    return coh_engine_step(engine, &input, &result);
}

/* ---- a driver call fails during a step ---- */

/* Checks the message: what failed, at which operator or line, and for a copy, which chunk. If a GPU
 * breaks, the thread that watches its streams may report it first. */
static void check_sentence(coh_stub_call call, int breaks)
{
    const char *told = coh_last_error();
    const int is_seen = breaks && strstr(told, "broke off while lane ") != NULL;
    const int is_copy = strstr(told, "lane h2d") != NULL || strstr(told, "lane d2h") != NULL;
    if ((strstr(told, coh_stub_call_name(call)) == NULL && !is_seen) ||
        strchr(told, '\n') != NULL ||
        (strstr(told, "operator '") == NULL && strstr(told, "instruction ") == NULL) ||
        (is_copy && !is_seen &&
         (strstr(told, " of chunk ") == NULL || strstr(told, " of stream ") == NULL)))
        fail_msg("not what should be told of %s: %s", coh_stub_call_name(call), told);
}

/* Enqueues the whole step before any of it runs, so that it makes the same calls every time. */
static coh_status train_enqueued(coh_engine *engine, uint64_t step, uint64_t seed)
{
    trial_ids ids;
    coh_step_result result = { .struct_bytes = sizeof(result) };
    const coh_step_input input = trial_input(engine->plan, step, &ids);
    coh_counter *counters = engine->step->counters;
    coh_stub_stop();
    coh_status status = coh_engine_submit(engine, &input);
    if (status == COH_OK) /* or until a call fails */
        (void)coh_counter_wait(&counters[COH_COUNTER_ISSUED],
                               coh_counter_read(&counters[COH_COUNTER_SUBMITTED]));
    coh_stub_start(seed);
    if (status == COH_OK)
        status = coh_engine_wait(engine, &result);
    return status == COH_OK ? coh_step_quiet(engine->step) : status;
}

/* Returns 1 if a step makes that call n times. */
static int fail_in_a_step(trial *t, coh_stub_call call, uint64_t n, int breaks)
{
    make_engine(t, n);
    assert_int_equal(train(t->engine, 0), COH_OK);
    assert_int_equal(coh_step_quiet(t->engine->step), COH_OK);
    if (breaks)
        coh_stub_break_nth(call, n, CUDA_ERROR_ILLEGAL_ADDRESS);
    else
        coh_stub_fail_nth(call, n, CUDA_ERROR_ILLEGAL_ADDRESS);
    const coh_status status = train_enqueued(t->engine, 1, n);
    const int was_hit = coh_stub_fault_was_hit();
    assert_int_equal(status, was_hit ? COH_ERR_DEVICE : COH_OK);
    if (was_hit) {
        check_sentence(call, breaks);
        assert_int_equal(train(t->engine, 2), COH_ERR_DEVICE);
        check_sentence(call, breaks);
    }
    drop_engine(t);
    return was_hit;
}

/* Returns the next n to fail: n + 1; in short runs with growing steps, for sanitizers with larger
 * ones. */
static uint64_t next_call(uint64_t n)
{
    return n + 1 + (test_seeks_races() ? 12 : test_is_brief() ? 4 : test_is_short() ? 2 : 0) * n;
}

static void fail_each(const trial_placement *p, coh_stub_call call)
{
    trial t;
    uint64_t n = 1;
    open_trial(&t, p);
    for (; fail_in_a_step(&t, call, n, (int)(n % 2)); n = next_call(n))
        continue;
    print_message("%s: %s failed at each of its uses up to %d\n", p->name, coh_stub_call_name(call),
                  (int)n - 1);
    assert_true(n > 1);
    close_trial(&t);
}

static void whatever_call_of_a_step_fails_it_is_told_and_nothing_is_left(void **state)
{
    (void)state;
    static const coh_stub_call calls[] = {
        COH_STUB_cuMemcpyAsync,        COH_STUB_cuStreamWaitEvent, COH_STUB_cuStreamWaitValue64,
        COH_STUB_cuStreamWriteValue64, COH_STUB_cuEventRecord,     COH_STUB_cuGraphLaunch
    };
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i += test_seeks_races() ? 2 : 1)
        fail_each(&streamed, calls[i]);
    fail_each(&disk, COH_STUB_cuMemcpyAsync);
}

/* ---- checkpoints ---- */

typedef struct saved {
    char folder[256], older[320], newer[320];
    uint64_t hash; /* when `older` was saved */
} saved;

static void make_folder(saved *s)
{
    assert_int_equal(temporary_folder(s->folder, sizeof(s->folder), "faults"), 0);
    snprintf(s->older, sizeof(s->older), "%s/older", s->folder);
    snprintf(s->newer, sizeof(s->newer), "%s/newer", s->folder);
}

static void remove_folder(const saved *s)
{
    assert_int_equal(coh_checkpoint_remove(s->older), COH_OK);
    assert_int_equal(rmdir(s->folder), 0);
}

static int count_entries(const char *folder)
{
    DIR *open = opendir(folder);
    int count = 0;
    assert_non_null(open);
    for (const struct dirent *entry; (entry = readdir(open)) != NULL;)
        count += entry->d_name[0] != '.' || strlen(entry->d_name) > 2;
    closedir(open);
    return count;
}

/* Trains two steps and saves a checkpoint. */
static void train_and_save(trial *t, saved *s)
{
    const coh_checkpoint_note note = { .struct_bytes = sizeof(note), .step = 2, .json = "{}" };
    for (uint64_t step = 0; step < 2; step++)
        assert_int_equal(train(t->engine, step), COH_OK);
    assert_int_equal(coh_engine_save(t->engine, s->older, &note), COH_OK);
    assert_int_equal(coh_engine_hash(t->engine, &s->hash), COH_OK);
}

/* Loads it on the host device, which trains on from there. */
static void check_that_it_loads(const trial *t, const saved *s)
{
    coh_plan *plan = trial_plan(t->graph, NULL, &streamed);
    coh_engine_options options;
    coh_engine *engine;
    uint64_t hash;
    coh_engine_options_init(&options);
    assert_int_equal(count_entries(s->folder), 1);
    assert_int_equal(coh_engine_create_on(plan, &options, &trial_host, &engine), COH_OK);
    if (coh_engine_load(engine, s->older, NULL) != COH_OK)
        fail_msg("the checkpoint does not load: %s", coh_last_error());
    assert_int_equal(coh_engine_hash(engine, &hash), COH_OK);
    assert_true(hash == s->hash);
    assert_int_equal(train(engine, 2), COH_OK);
    coh_engine_destroy(engine);
    coh_plan_destroy(plan);
}

/* Makes a streamed engine with its older checkpoint in a new folder. */
static void open_saved(trial *t, saved *s, uint64_t seed)
{
    make_folder(s);
    open_trial(t, &streamed);
    make_engine(t, seed);
    train_and_save(t, s);
}

static void a_gpu_that_breaks_leaves_the_checkpoint_before_it(void **state)
{
    (void)state;
    const coh_checkpoint_note note = { .struct_bytes = sizeof(note), .step = 3, .json = "{}" };
    for (uint64_t n = 1; n < 40; n += test_is_brief() ? 34 : test_is_short() ? 17 : 1) {
        trial t;
        saved s;
        open_saved(&t, &s, n);
        coh_stub_break_nth(COH_STUB_cuEventRecord, n, CUDA_ERROR_ILLEGAL_ADDRESS);
        assert_int_equal(train(t.engine, 2), COH_ERR_DEVICE);
        assert_int_equal(coh_engine_save(t.engine, s.newer, &note), COH_ERR_DEVICE);
        drop_engine(&t);
        check_that_it_loads(&t, &s);
        close_trial(&t);
        remove_folder(&s);
    }
}

/* Returns 1 if a save makes that call n times. */
static int break_in_a_save(coh_stub_call call, uint64_t n)
{
    const coh_checkpoint_note note = { .struct_bytes = sizeof(note), .step = 3, .json = "{}" };
    trial t;
    saved s;
    open_saved(&t, &s, n);
    assert_int_equal(train(t.engine, 2), COH_OK);
    assert_int_equal(coh_step_quiet(t.engine->step), COH_OK);
    coh_stub_break_nth(call, n, CUDA_ERROR_ILLEGAL_ADDRESS);
    const coh_status status = coh_engine_save(t.engine, s.newer, &note);
    const int was_hit = coh_stub_fault_was_hit();
    if (was_hit)
        assert_int_equal(status, COH_ERR_DEVICE);
    else
        assert_int_equal(coh_checkpoint_remove(s.newer), COH_OK);
    drop_engine(&t);
    check_that_it_loads(&t, &s);
    close_trial(&t);
    remove_folder(&s);
    return was_hit;
}

static void a_gpu_that_breaks_in_a_save_leaves_the_older_checkpoint(void **state)
{
    (void)state;
    static const coh_stub_call calls[] = { COH_STUB_cuMemcpyAsync, COH_STUB_cuStreamSynchronize,
                                           COH_STUB_cuEventRecord };
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        uint64_t n = 1;
        while (break_in_a_save(calls[i], n))
            n = next_call(n);
        assert_true(n > 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whatever_call_of_a_step_fails_it_is_told_and_nothing_is_left),
        cmocka_unit_test(a_gpu_that_breaks_leaves_the_checkpoint_before_it),
        cmocka_unit_test(a_gpu_that_breaks_in_a_save_leaves_the_older_checkpoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
