/* One call at a time: a call on an engine whose call is under way is refused at once, from a
 * callback, from another thread and from a kind's function, and leaves no trace. So is every call
 * from a forked process. An engine that failed says so in every later call. */
#include <fenv.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/engine/must.h"
#include "tests/temporary.h"

enum { ROWS = 8, COLUMNS = 4, PARAMETERS = 4 };

static char folder[256];
static const float x[ROWS * COLUMNS] = { 1, 2, 3 }, y[ROWS * COLUMNS] = { 1 };

/* ---- a model with a kind that calls the engine ---- */

static struct {
    coh_graph *graph;
    coh_plan *plan;
    coh_engine *engine;
} model;

static coh_status (*called_in_forward)(void); /* NULL: nothing */

static coh_status copy_forward(const coh_call *call)
{
    coh_status (*const called)(void) = called_in_forward;
    memcpy(call->output[0].data, call->input[0].data, sizeof(x));
    called_in_forward = NULL;
    return called != NULL ? called() : COH_OK;
}

static coh_status copy_backward(const coh_call *call)
{
    memcpy(call->input_grad[0].data, call->output_grad[0].data, sizeof(x));
    return COH_OK;
}

COH_LAYER(copy_kind, "entry.copy", 1, 0, copy_forward, copy_backward, .takes_bf16 = 0);

static void build(void)
{
    static const coh_linear_attributes same = { COLUMNS, 1, 0.2f };
    const coh_chain_link links[] = { COH_LINK(coh_kind_linear, same), COH_LINK_OF(copy_kind),
                                     COH_LINK(coh_kind_linear, same) };
    const coh_shape shape = { COH_DTYPE_F32, 2, { ROWS, COLUMNS } };
    coh_tensor input, compared[2], loss;
    must(coh_graph_create(&model.graph), "graph");
    must(coh_graph_input(model.graph, "x", &shape, &input), "input");
    must(coh_graph_input(model.graph, "target", &shape, &compared[1]), "target");
    must(coh_graph_chain(model.graph, input, links, 3, &compared[0]), "chain");
    const coh_op_args args = { .name = "loss", .inputs = compared, .block = -1 };
    must(coh_graph_op(model.graph, &coh_kind_mean_squared_error, &args, &loss, NULL), "loss");
    must(coh_graph_loss(model.graph, loss), "the loss");
}

static coh_progress progress; /* of the engines that open_model makes */

static void open_model(int deferred)
{
    coh_plan_options options;
    coh_engine_options engine_options;
    build();
    coh_plan_options_init(&options);
    options.deferred_update = deferred;
    coh_engine_options_init(&engine_options);
    engine_options.progress = progress;
    must(coh_plan_create(model.graph, &options, &model.plan), "plan");
    must(coh_engine_create(model.plan, &engine_options, &model.engine), "engine");
}

static void close_model(void)
{
    coh_engine_destroy(model.engine);
    coh_plan_destroy(model.plan);
    coh_graph_destroy(model.graph);
}

static coh_step_input input_of(uint64_t step)
{
    return (coh_step_input){ sizeof(coh_step_input), step, 1, 1e-3f, 0, { x, y }, 1.0f };
}

static coh_status step(void)
{
    const coh_step_input input = input_of(0);
    coh_step_result result = { .struct_bytes = sizeof(result) };
    return coh_engine_step(model.engine, &input, &result);
}

static uint64_t hash_after_a_step(void)
{
    uint64_t hash;
    must(coh_engine_init(model.engine, 1), "init");
    must(step(), "step");
    must(coh_engine_hash(model.engine, &hash), "hash");
    return hash;
}

/* ---- calls that must not begin while another one runs ---- */

static float data[64];

static coh_status no_values(void *context, coh_parameter parameter, const char *name,
                            uint64_t element_begin, uint64_t count, float *values)
{
    (void)context;
    (void)parameter;
    (void)name;
    (void)element_begin;
    (void)count;
    (void)values;
    return COH_OK;
}

static coh_status no_sink(void *context, coh_parameter parameter, const char *name,
                          uint64_t element_begin, uint64_t count, const float *values)
{
    (void)context;
    (void)parameter;
    (void)name;
    (void)element_begin;
    (void)count;
    (void)values;
    return COH_OK;
}

#define CALL(name, expression)                                                                     \
    static coh_status call_##name(void)                                                            \
    {                                                                                              \
        return expression;                                                                         \
    }
CALL(init, coh_engine_init(model.engine, 1))
CALL(init_from, coh_engine_init_from(model.engine, 1, no_values, NULL))
CALL(init_partly, coh_engine_init_partly(model.engine, 1, "*", no_values, NULL))
CALL(drain, coh_engine_drain(model.engine))
CALL(load, coh_engine_load(model.engine, "none", NULL))
CALL(load_from, coh_engine_load_from(model.engine, "none", no_values, NULL, NULL))
CALL(load_weights, coh_engine_load_weights(model.engine, "none"))
CALL(load_partly, coh_engine_load_partly(model.engine, 1, "*", "none"))
CALL(fetch, coh_engine_fetch(model.engine, (coh_parameter){ 0 }, COH_FETCH_VALUE, data))
CALL(fetch_all, coh_engine_fetch_all(model.engine, COH_FETCH_VALUE, no_sink, NULL))
CALL(fetch_state, coh_engine_fetch_state(model.engine, (coh_parameter){ 0 }, "m", data))
CALL(put, coh_engine_put(model.engine, (coh_parameter){ 0 }, 0, 1, data))
CALL(save_wait, coh_engine_save_wait(model.engine))

static coh_status call_submit(void)
{
    const coh_step_input input = input_of(0);
    return coh_engine_submit(model.engine, &input);
}

static coh_status call_wait(void)
{
    coh_step_result result = { .struct_bytes = sizeof(result) };
    return coh_engine_wait(model.engine, &result);
}

static coh_status call_wait_for(void)
{
    int is_done;
    return coh_engine_wait_for(model.engine, 0, &is_done);
}

static coh_status call_evaluate(void)
{
    const coh_step_input input = input_of(0);
    return coh_engine_evaluate(model.engine, &input, NULL);
}

static coh_status call_scan(void)
{
    const coh_step_input input = input_of(0);
    char sentence[256];
    return coh_engine_scan(model.engine, &input, 0, sentence);
}

static coh_status call_undo(void)
{
    return coh_engine_undo(model.engine);
}

static coh_status call_output(void)
{
    const void *found;
    size_t bytes;
    return coh_engine_output(model.engine, (coh_tensor){ 0 }, &found, &bytes);
}

static coh_status call_hash(void)
{
    uint64_t hash;
    return coh_engine_hash(model.engine, &hash);
}

static coh_status call_save(void)
{
    const coh_checkpoint_note note = { sizeof(note), 1, "{}" };
    return coh_engine_save(model.engine, "none", &note);
}

static coh_status call_save_begin(void)
{
    const coh_checkpoint_note note = { sizeof(note), 1, "{}" };
    return coh_engine_save_begin(model.engine, "none", &note);
}

static coh_status call_facts(void)
{
    coh_engine_facts facts = { .struct_bytes = sizeof(facts) };
    return coh_engine_facts_get(model.engine, &facts);
}

static coh_status call_classes(void)
{
    static coh_instruction_class classes[COH_INSTRUCTION_CLASSES_MOST];
    uint32_t count;
    return coh_engine_instruction_classes(model.engine, classes, &count);
}

static coh_status call_recorded(void)
{
    coh_trace_step found;
    return coh_engine_recorded(model.engine, 0, &found);
}

static coh_status call_calibrate(void)
{
    coh_calibration_class classes[COH_CALIBRATION_CLASSES_MOST];
    uint32_t count;
    return coh_engine_calibrate(model.engine, "none", classes, &count);
}

/* Destroys nothing, so every other case finds the engine. */
static coh_status call_destroy(void)
{
    (void)coh_kind_fail(COH_OK, "no sentence");
    coh_engine_destroy(model.engine);
    return COH_ERR_ARGUMENT;
}

static coh_status (*const calls[])(void) = {
    call_init,        call_init_from,   call_drain,        call_load,    call_load_from,
    call_init_partly, call_load_partly, call_load_weights, call_fetch,   call_fetch_all,
    call_fetch_state, call_put,         call_save_wait,    call_submit,  call_wait,
    call_evaluate,    call_scan,        call_undo,         call_output,  call_hash,
    call_save,        call_save_begin,  call_facts,        call_classes, call_recorded,
    call_calibrate,   call_destroy,     call_wait_for,     step,
};
enum { CALLS = sizeof(calls) / sizeof(calls[0]) };

static int refused; /* of CALLS */

/* Makes all of them, and those that any thread may make at any time. */
static void try_all(const char *words)
{
    coh_engine_ledger_row row;
    int is_done = 0;
    for (int i = 0; i < CALLS; i++) {
        const coh_status status = calls[i]();
        if (status == COH_ERR_ARGUMENT && strstr(coh_last_error(), words) != NULL)
            refused++;
        else
            fprintf(stderr, "call %d: %s: %s\n", i, coh_status_name(status), coh_last_error());
    }
    coh_engine_ask_stop(model.engine);
    refused += !coh_engine_ledger_row_at(model.engine, 0, &row); /* fails: a wrong count */
    refused += coh_engine_save_is_done(model.engine, &is_done) != COH_OK || !is_done;
}

/* ---- from callbacks ---- */

static int is_in_progress;

static void try_in_progress(void *context, coh_operation operation, uint64_t done, uint64_t total)
{
    (void)context;
    (void)operation;
    (void)done;
    (void)total;
    if (!is_in_progress)
        return;
    is_in_progress = 0;
    try_all("while coh_engine_hash runs");
}

static coh_status try_in_source(void *context, coh_parameter parameter, const char *name,
                                uint64_t element_begin, uint64_t count, float *values)
{
    (void)context;
    (void)name;
    (void)element_begin;
    (void)count;
    (void)values;
    if (parameter.index == 0)
        try_all("while coh_engine_init_from runs");
    return COH_OK;
}

static coh_status try_in_sink(void *context, coh_parameter parameter, const char *name,
                              uint64_t element_begin, uint64_t count, const float *values)
{
    (void)context;
    (void)name;
    (void)element_begin;
    (void)count;
    (void)values;
    if (parameter.index == 0)
        try_all("while coh_engine_fetch_all runs");
    return COH_OK;
}

static void callbacks_that_call_the_engine_are_refused(void **state)
{
    (void)state;
    uint64_t hash;
    progress = try_in_progress;
    open_model(1);
    progress = NULL;
    const uint64_t right = hash_after_a_step();

    refused = 0;
    is_in_progress = 1;
    must(coh_engine_hash(model.engine, &hash), "hash");
    assert_int_equal(refused, CALLS);
    assert_true(hash == right);

    refused = 0;
    must(coh_engine_init_from(model.engine, 1, try_in_source, NULL), "init");
    assert_int_equal(refused, CALLS);

    refused = 0;
    must(coh_engine_fetch_all(model.engine, COH_FETCH_VALUE, try_in_sink, NULL), "fetch");
    assert_int_equal(refused, CALLS);
    assert_true(hash_after_a_step() == right);
    close_model();
}

/* ---- the floating-point mode ---- */

/* Rounds up and, where that can be set, flushes subnormal numbers, as a program that is linked with
 * -ffast-math does. */
static void set_odd_mode(void)
{
    assert_int_equal(fesetround(FE_UPWARD), 0);
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);
#endif
}

static int is_in_odd_mode(void)
{
#if defined(__x86_64__)
    if ((__builtin_ia32_stmxcsr() & 0x8040) != 0x8040)
        return 0;
#endif
    return fegetround() == FE_UPWARD;
}

static coh_status leave_odd_mode(void)
{
    set_odd_mode();
    return COH_OK;
}

static void no_bit_depends_on_the_callers_floating_point_mode(void **state)
{
    (void)state;
    fenv_t before;
    open_model(1);
    const uint64_t right = hash_after_a_step();
    called_in_forward = leave_odd_mode; /* before products on other threads and this lane */
    assert_true(hash_after_a_step() == right);
    assert_null(called_in_forward);
    close_model();
    fegetenv(&before);
    set_odd_mode();
    open_model(1); /* its threads have the mode of this one, unless they get their own */
    const uint64_t found = hash_after_a_step();
    const int is_kept = is_in_odd_mode();
    close_model();
    fesetenv(&before);
    assert_true(is_kept);
    assert_true(found == right);
}

/* ---- from another thread ---- */

static sem_t is_running, may_end;

static coh_status wait_in_sink(void *context, coh_parameter parameter, const char *name,
                               uint64_t element_begin, uint64_t count, const float *values)
{
    (void)context;
    (void)name;
    (void)element_begin;
    (void)count;
    (void)values;
    if (parameter.index == 0) {
        sem_post(&is_running);
        sem_wait(&may_end);
    }
    return COH_OK;
}

static void *try_beside(void *argument)
{
    (void)argument;
    sem_wait(&is_running);
    try_all("while coh_engine_fetch_all runs");
    sem_post(&may_end);
    return NULL;
}

static void calls_of_two_threads_at_once_are_refused(void **state)
{
    (void)state;
    pthread_t thread;
    open_model(1);
    const uint64_t right = hash_after_a_step();
    refused = 0;
    assert_int_equal(sem_init(&is_running, 0, 0) | sem_init(&may_end, 0, 0), 0);
    assert_int_equal(pthread_create(&thread, NULL, try_beside, NULL), 0);
    must(coh_engine_fetch_all(model.engine, COH_FETCH_VALUE, wait_in_sink, NULL), "fetch");
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(refused, CALLS);
    assert_true(hash_after_a_step() == right);
    close_model();
    sem_destroy(&is_running);
    sem_destroy(&may_end);
}

/* ---- from a kind ---- */

static coh_status try_in_kind(void)
{
    try_all("inside a function of an operator kind");
    return COH_OK;
}

static void kinds_that_call_the_engine_are_refused(void **state)
{
    (void)state;
    open_model(1);
    const uint64_t right = hash_after_a_step();
    must(coh_engine_init(model.engine, 1), "init");
    refused = 0;
    called_in_forward = try_in_kind; /* no call is under way between submit and wait */
    must(call_submit(), "submit");
    must(call_wait(), "wait");
    assert_int_equal(refused, CALLS);
    refused = 0;
    called_in_forward = try_in_kind;
    must(step(), "step");
    assert_int_equal(refused, CALLS);
    assert_true(hash_after_a_step() == right);
    close_model();
}

/* ---- from a forked process ---- */

/* Makes every call in a child, which an alarm ends if one waits. Returns the child's exit code. */
static int try_in_child(void)
{
    int how = -1;
    const pid_t child = fork();
    if (child == 0) {
        coh_engine_ledger_row row;
        int is_done = 0, right;
        alarm(60);
        refused = 0;
        for (int i = 0; i < CALLS; i++)
            refused += calls[i]() == COH_ERR_ARGUMENT &&
                       strstr(coh_last_error(), "was called in a forked process") != NULL;
        right = refused == CALLS;
        right &= coh_engine_save_is_done(model.engine, &is_done) == COH_ERR_ARGUMENT;
        right &= !coh_engine_ledger_row_at(model.engine, 0, &row);
        right &= coh_engine_ledger(model.engine, NULL, 0) == 0;
        close_model(); /* as its exit handlers might */
        _exit(right ? 0 : 1);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &how, 0), child);
    return WIFEXITED(how) ? WEXITSTATUS(how) : -1;
}

static void a_forked_process_is_refused_and_ends(void **state)
{
    (void)state;
    open_model(1);
    const uint64_t right = hash_after_a_step();
    assert_int_equal(try_in_child(), 0);
    must(coh_engine_init(model.engine, 1), "init");
    must(call_submit(), "submit");
    assert_int_equal(try_in_child(), 0); /* while a step runs */
    must(call_wait(), "wait");
    assert_true(hash_after_a_step() == right);
    close_model();
}

/* ---- a wait with a limit ---- */

static sem_t has_begun, may_go_on;

static coh_status hold_up(void)
{
    sem_post(&has_begun);
    sem_wait(&may_go_on);
    return COH_OK;
}

static int is_done_within(uint32_t milliseconds)
{
    int is_done = -1;
    must(coh_engine_wait_for(model.engine, milliseconds, &is_done), "wait for");
    return is_done;
}

static void a_wait_with_a_limit_takes_nothing_of_the_step(void **state)
{
    (void)state;
    assert_int_equal(sem_init(&has_begun, 0, 0) | sem_init(&may_go_on, 0, 0), 0);
    open_model(1);
    const uint64_t right = hash_after_a_step();
    must(coh_engine_init(model.engine, 1), "init");
    assert_int_equal(call_wait_for(), COH_ERR_ARGUMENT); /* for no step */
    called_in_forward = hold_up;
    must(call_submit(), "submit");
    sem_wait(&has_begun);
    assert_false(is_done_within(0));
    assert_false(is_done_within(20));
    sem_post(&may_go_on);
    assert_true(is_done_within(UINT32_MAX));
    assert_true(is_done_within(0));
    must(call_wait(), "wait");
    uint64_t hash;
    must(coh_engine_hash(model.engine, &hash), "hash");
    assert_true(hash == right);
    close_model();
    sem_destroy(&has_begun);
    sem_destroy(&may_go_on);
}

/* ---- after a failure ---- */

static coh_status fail_on_request(void)
{
    return coh_kind_fail(COH_ERR_NUMBER, "forward fails on request");
}

static void a_dead_engine_says_so(void **state)
{
    (void)state;
    const char *const dead = "failed earlier and cannot go on (destroy it";
    open_model(0); /* with updates in backward a kind's failure ends the engine */
    must(coh_engine_init(model.engine, 1), "init");
    called_in_forward = fail_on_request;
    assert_int_equal(step(), COH_ERR_NUMBER);
    assert_null(strstr(coh_last_error(), dead));
    assert_non_null(strstr(coh_last_error(), "forward fails on request"));
    for (int i = 0; i < CALLS; i++) {
        coh_engine_facts facts = { .struct_bytes = sizeof(facts) };
        if (calls[i] == call_destroy || calls[i] == call_facts || calls[i] == call_save_wait ||
            calls[i] == call_calibrate)
            continue;
        assert_int_equal(calls[i](), COH_ERR_NUMBER);
        assert_non_null(strstr(coh_last_error(), dead));
        assert_non_null(strstr(coh_last_error(), "forward fails on request"));
        must(coh_engine_facts_get(model.engine, &facts), "facts");
    }
    close_model();
}

/* Found by the first of several calls: it tells of the failure as of a new one. */
static void a_failure_between_calls_is_new_to_the_first(void **state)
{
    (void)state;
    open_model(0);
    must(coh_engine_init(model.engine, 1), "init");
    called_in_forward = fail_on_request;
    must(call_submit(), "submit");
    assert_true(is_done_within(UINT32_MAX)); /* a wait would find it at once */
    assert_int_equal(call_wait(), COH_ERR_NUMBER);
    assert_null(strstr(coh_last_error(), "failed earlier"));
    assert_int_equal(call_wait(), COH_ERR_NUMBER);
    assert_non_null(strstr(coh_last_error(), "failed earlier"));
    close_model();
}

static int set_up(void **state)
{
    (void)state;
    return temporary_folder(folder, sizeof(folder), "entry") != 0 || chdir(folder) != 0;
}

static int tear_down(void **state)
{
    (void)state;
    return chdir("/") != 0 || rmdir(folder) != 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(callbacks_that_call_the_engine_are_refused),
        cmocka_unit_test(no_bit_depends_on_the_callers_floating_point_mode),
        cmocka_unit_test(calls_of_two_threads_at_once_are_refused),
        cmocka_unit_test(kinds_that_call_the_engine_are_refused),
        cmocka_unit_test(a_forked_process_is_refused_and_ends),
        cmocka_unit_test(a_wait_with_a_limit_takes_nothing_of_the_step),
        cmocka_unit_test(a_dead_engine_says_so),
        cmocka_unit_test(a_failure_between_calls_is_new_to_the_first),
    };
    return cmocka_run_group_tests_name("entry", tests, set_up, tear_down);
}
