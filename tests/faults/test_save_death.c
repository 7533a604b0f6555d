/* A run dies during a save: the process ends, or the power fails and the disk loses what was not
 * flushed, at every file operation of two saves with the removal of an old checkpoint between them.
 * The run folder must always resume, from an older or the new checkpoint, and end with the results
 * of the undisturbed run.
 *
 *     test_save_death            two operators
 *     test_save_death frozen     one of them frozen: the first save links its tensor's file, the
 *                                second writes it again
 *     test_save_death gpt        two layers of GPT-2 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cohobate/checkpoint.h"
#include "tests/faults/fault_model.h"
#include "tests/faults/file_faults.h"
#include "tests/temporary.h"

enum { LAST_STEP = 4, RUN_SECONDS = 60 };

static fault_model_size size = FAULT_TWO_OPERATORS;
static int cut_seeds = 3;
static coh_graph *graph;
static coh_plan *plan;
static char base[256];
static char start[PATH_MAX], folder[PATH_MAX];
static uint64_t expected_hash[LAST_STEP + 1]; /* by number of steps */

static void create_engine(coh_engine **out_engine)
{
    coh_engine_options options;
    fault_engine_options("mem", &options);
    if (coh_engine_create(plan, &options, out_engine) != COH_OK)
        fail_msg("no engine: %s", coh_last_error());
}

static coh_status save_step(coh_engine *engine, const char *where, uint64_t step)
{
    char path[PATH_MAX + 32];
    const coh_checkpoint_note note = { .struct_bytes = sizeof(note), .step = step, .json = "{}" };
    snprintf(path, sizeof(path), "%s/step-%" PRIu64, where, step);
    return coh_engine_save(engine, path, &note);
}

static int set_up(void **state)
{
    (void)state;
    coh_plan_options options;
    coh_engine *engine;
    fault_watchdog(RUN_SECONDS, "set-up");
    fault_make_folder(base, sizeof(base));
    snprintf(start, sizeof(start), "%s/start", base);
    snprintf(folder, sizeof(folder), "%s/run", base);
    assert_int_equal(mkdir(start, 0777), 0);
    assert_int_equal(fault_graph(size, &graph), COH_OK);
    fault_plan_options(fault_smallest_bytes(graph), &options);
    assert_int_equal(coh_plan_create(graph, &options, &plan), COH_OK);
    create_engine(&engine);
    assert_int_equal(coh_engine_init(engine, FAULT_SEED), COH_OK);
    for (uint64_t step = 1; step <= LAST_STEP; step++) {
        assert_int_equal(fault_train(engine, step - 1, step, &expected_hash[step]), COH_OK);
        if (step == 1)
            assert_int_equal(save_step(engine, start, 1), COH_OK);
    }
    fault_destroy(engine);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
    (void)temporary_remove(base);
    return 0;
}

/* Makes a run folder with step-1 in it. */
static void begin_folder(void)
{
    static const char *const files[] = { "work.bin",   "m.bin",      "v.bin",
                                         "hashes.bin", "frozen.bin", "manifest.json" };
    char from[PATH_MAX + 32], to[PATH_MAX + 32];
    (void)temporary_remove(folder);
    assert_int_equal(mkdir(folder, 0777), 0);
    snprintf(to, sizeof(to), "%s/step-1", folder);
    assert_int_equal(mkdir(to, 0777), 0);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        if (size != FAULT_FROZEN && strcmp(files[i], "frozen.bin") == 0)
            continue;
        snprintf(from, sizeof(from), "%s/step-1/%s", start, files[i]);
        snprintf(to, sizeof(to), "%s/step-1/%s", folder, files[i]);
        assert_int_equal(link(from, to), 0);
    }
}

/* Gives an element of the frozen tensor the value that it has; then its file is not linked. */
static coh_status touch_frozen(coh_engine *engine)
{
    static float values[1 << 16];
    coh_parameter table;
    coh_status status =
        size == FAULT_FROZEN ? coh_graph_parameter_find(graph, "table.weight", &table) : COH_OK;
    if (status != COH_OK || size != FAULT_FROZEN)
        return status;
    status = coh_engine_fetch(engine, table, COH_FETCH_VALUE, values);
    return status == COH_OK ? coh_engine_put(engine, table, 0, 1, values) : status;
}

/* Returns 1 if two checkpoints of the run share the file of frozen tensors. */
static int is_shared(uint64_t a, uint64_t b)
{
    char name[PATH_MAX + 32];
    struct stat first, second;
    snprintf(name, sizeof(name), "%s/step-%" PRIu64 "/frozen.bin", folder, a);
    if (stat(name, &first) != 0)
        return 0;
    snprintf(name, sizeof(name), "%s/step-%" PRIu64 "/frozen.bin", folder, b);
    return stat(name, &second) == 0 && first.st_ino == second.st_ino;
}

/* Runs in a child from step-1 to step-3, saving each, or dies at operation n. *out_promised gets
 * the step of the last save that reported success. */
static int run_and_die(const char *variable, const char *value, uint64_t *out_promised)
{
    int result, promises[2];
    char promise;
    assert_int_equal(pipe(promises), 0);
    setenv(variable, value, 1);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char old[PATH_MAX + 32];
        uint64_t hash;
        coh_engine *engine;
        coh_status status;
        alarm(RUN_SECONDS); /* a child does not inherit the alarm */
        create_engine(&engine);
        snprintf(old, sizeof(old), "%s/step-1", folder);
        status = coh_engine_load(engine, old, NULL);
        for (uint64_t step = 2; step <= 3 && status == COH_OK; step++) {
            status = fault_train(engine, step - 1, step, &hash);
            if (status == COH_OK)
                status = save_step(engine, folder, step);
            promise = (char)step;
            if (status == COH_OK && write(promises[1], &promise, 1) != 1)
                _exit(2);
            if (status == COH_OK &&
                is_shared(step - 1, step) != (size == FAULT_FROZEN && step == 2))
                _exit(3);
            if (status == COH_OK && step == 2)
                status = coh_checkpoint_remove(old);
            if (status == COH_OK && step == 2)
                status = touch_frozen(engine);
        }
        fault_destroy(engine);
        _exit(status == COH_OK ? 0 : 1);
    }
    unsetenv(variable);
    close(promises[1]);
    *out_promised = 1;
    while (read(promises[0], &promise, 1) == 1)
        *out_promised = (uint64_t)promise;
    close(promises[0]);
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFEXITED(result));
    return WEXITSTATUS(result);
}

/* Checks that the folder's newest checkpoint is complete and belongs to the run. Returns its
 * step. */
static uint64_t check_newest(const char *where, char *out_path)
{
    coh_checkpoint *checkpoint;
    coh_checkpoint_facts facts = { .struct_bytes = sizeof(facts) };
    uint64_t hash = 0;
    if (coh_checkpoint_open(folder, &checkpoint) != COH_OK ||
        coh_checkpoint_check(checkpoint, &hash) != COH_OK)
        fail_msg("%s: %s", where, coh_last_error());
    assert_int_equal(coh_checkpoint_facts_get(checkpoint, &facts), COH_OK);
    snprintf(out_path, PATH_MAX, "%s", facts.path);
    uint64_t step = facts.step;
    coh_checkpoint_close(checkpoint);
    assert_true(step >= 1 && step <= 3);
    if (hash != expected_hash[step])
        fail_msg("%s: step %d has another hash", where, (int)step);
    return step;
}

static void resume(const char *where)
{
    char path[PATH_MAX];
    coh_engine *engine;
    uint64_t hash = 0;
    uint64_t step = check_newest(where, path);
    create_engine(&engine);
    if (coh_engine_load(engine, path, NULL) != COH_OK ||
        fault_train(engine, step, LAST_STEP, &hash) != COH_OK)
        fail_msg("%s: %s", where, coh_last_error());
    if (hash != expected_hash[LAST_STEP])
        fail_msg("%s: resumed from step %d, another end", where, (int)step);
    /* Remains of the dead save do not stop the next one. */
    if (step < 3)
        assert_int_equal(save_step(engine, folder, LAST_STEP), COH_OK);
    fault_destroy(engine);
}

/* Dies at every operation in turn; one in `resume_every` of these resumes and runs to the end. */
static void die_everywhere(const char *variable, const char *suffix, int resume_every)
{
    char value[32], where[96], path[PATH_MAX];
    int n, left[4] = { 0 };
    for (n = 1;; n++) {
        snprintf(value, sizeof(value), "%d%s", n, suffix);
        snprintf(where, sizeof(where), "%s=%s", variable, value);
        fault_watchdog(RUN_SECONDS, where);
        begin_folder();
        uint64_t promised;
        int code = run_and_die(variable, value, &promised);
        uint64_t found = check_newest(where, path);
        if (found < promised)
            fail_msg("%s: step %d was saved, step %d is left", where, (int)promised, (int)found);
        left[found]++;
        if (n % resume_every == 0 || code == 0)
            resume(where);
        if (code == 0)
            break;
        if (code != FILE_FAULTS_EXIT_CODE)
            fail_msg("%s: exit code %d", where, code);
    }
    printf("figure: %s=<n>%s: %d operations; step 1, 2, 3 left: %d, %d, %d times\n", variable,
           suffix, n - 1, left[1], left[2], left[3]);
    assert_true(n > 40 && left[1] > 15 && left[2] > 15 && left[3] >= 1);
}

static void death_at_any_operation_of_a_save_leaves_a_run_that_resumes(void **state)
{
    (void)state;
    die_everywhere("COH_TEST_EXIT_AT", "", 1);
}

static void a_power_cut_at_any_operation_leaves_a_run_that_resumes(void **state)
{
    (void)state;
    for (int seed = 0; seed < cut_seeds; seed++) { /* 0: everything that may be lost is lost */
        char suffix[16];
        snprintf(suffix, sizeof(suffix), ":%d", seed);
        die_everywhere("COH_TEST_POWER_CUT_AT", suffix, seed == 0 ? 1 : 5);
    }
}

int main(int argument_count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(death_at_any_operation_of_a_save_leaves_a_run_that_resumes),
        cmocka_unit_test(a_power_cut_at_any_operation_leaves_a_run_that_resumes),
    };
    if (argument_count > 1 && strcmp(arguments[1], "frozen") == 0) {
        size = FAULT_FROZEN;
    } else if (argument_count > 1) {
        size = FAULT_TINY_GPT;
        cut_seeds = 8;
    }
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
