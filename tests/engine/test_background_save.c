/* A save that is finished during the next steps: it is of the step at which it began, one at a
 * time, absent until it is waited for, and a failing drive costs only it. The drive is held up by
 * file operations of the test's own, so no save ends before a step by chance. */
#include "tests/engine/engine_bench.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file_ops.h"
#include "cohobate/checkpoint.h"
#include "engine/engine_state.h"
#include "memory/counter.h"
#include "tests/temporary.h"

#define CLIP 0.002f

/* The drive: flushes wait until it is released, then return `sync_error`. */
static struct drive {
    coh_counter reached, released; /* a flush has begun; flushes may end */
    int sync_error;
} drive;

static int held_sync(void *state, int fd)
{
    if (coh_counter_read(&drive.reached) == 0)
        coh_counter_raise(&drive.reached, 1);
    (void)coh_counter_wait(&drive.released, 1);
    return drive.sync_error != 0 ? drive.sync_error : coh_system_file_calls.sync(state, fd);
}

static coh_file_calls held_calls;

typedef struct trial {
    char folder[256], path[320], other[320];
    run run;
} trial;

static void begin(trial *t, int sync_error)
{
    assert_int_equal(temporary_folder(t->folder, sizeof(t->folder), "saver"), 0);
    snprintf(t->path, sizeof(t->path), "%s/step-2", t->folder);
    snprintf(t->other, sizeof(t->other), "%s/step-4", t->folder);
    assert_int_equal(coh_counter_init(&drive.reached), COH_OK);
    assert_int_equal(coh_counter_init(&drive.released), COH_OK);
    drive.sync_error = sync_error;
    run_begin(&t->run, &placements[2], 1);
}

static void end(trial *t)
{
    coh_counter_fini(&drive.released);
    coh_counter_fini(&drive.reached);
    assert_int_equal(rmdir(t->folder), 0); /* nothing is left in it */
}

static coh_checkpoint_note note_of(uint64_t step)
{
    return (coh_checkpoint_note){ .struct_bytes = sizeof(coh_checkpoint_note), .step = step };
}

static void train_on(trial *t, uint64_t from, uint64_t to)
{
    coh_step_result result = { .struct_bytes = sizeof(result) };
    for (uint64_t step = from; step < to; step++)
        run_step(&t->run, step, CLIP, &result);
}

static int is_done(const trial *t)
{
    int done = -1;
    assert_int_equal(coh_engine_save_is_done(t->run.engine, &done), COH_OK);
    return done;
}

static void a_save_is_of_the_step_at_which_it_began(void **state)
{
    (void)state;
    trial t;
    coh_load_facts loaded = { .struct_bytes = sizeof(loaded), .numeric_changed = -1 };
    begin(&t, 0);
    const uint64_t saved = train(&t.run, 2, CLIP);
    const coh_checkpoint_note note = note_of(2), later = note_of(4);
    assert_true(is_done(&t));
    assert_int_equal(coh_engine_save_wait(t.run.engine), COH_OK);
    assert_int_equal(coh_engine_save_begin(t.run.engine, t.path, &note), COH_OK);
    assert_int_equal(coh_counter_wait(&drive.reached, 1), 1);
    train_on(&t, 2, 4);
    const uint64_t trained = run_hash(&t.run);
    assert_true(trained != saved);
    assert_false(is_done(&t));
    assert_int_not_equal(access(t.path, F_OK), 0);
    assert_int_equal(coh_engine_save(t.run.engine, t.other, &later), COH_ERR_ARGUMENT);
    assert_int_equal(coh_engine_save_begin(t.run.engine, t.other, &later), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "under way"));
    coh_counter_raise(&drive.released, 1);
    assert_int_equal(coh_engine_save_wait(t.run.engine), COH_OK);
    assert_true(is_done(&t));
    assert_true(run_hash(&t.run) == trained);
    assert_int_equal(coh_engine_load(t.run.engine, t.path, &loaded), COH_OK);
    assert_true(run_hash(&t.run) == saved);
    assert_int_equal(coh_checkpoint_remove(t.path), COH_OK);
    run_end(&t.run);
    end(&t);
}

static void an_engine_is_destroyed_when_its_save_is_whole(void **state)
{
    (void)state;
    trial t;
    uint64_t hash;
    coh_checkpoint *checkpoint;
    begin(&t, 0);
    const uint64_t saved = train(&t.run, 2, CLIP);
    const coh_checkpoint_note note = note_of(2);
    coh_counter_raise(&drive.released, 1);
    assert_int_equal(coh_engine_save_begin(t.run.engine, t.path, &note), COH_OK);
    run_end(&t.run);
    assert_int_equal(coh_checkpoint_open(t.path, &checkpoint), COH_OK);
    assert_int_equal(coh_checkpoint_check(checkpoint, &hash), COH_OK);
    assert_true(hash == saved);
    coh_checkpoint_close(checkpoint);
    assert_int_equal(coh_checkpoint_remove(t.path), COH_OK);
    end(&t);
}

static void a_drive_that_fails_costs_the_save_alone(void **state)
{
    (void)state;
    trial t;
    begin(&t, -EIO);
    (void)train(&t.run, 2, CLIP);
    const coh_checkpoint_note note = note_of(2);
    assert_int_equal(coh_engine_save_begin(t.run.engine, t.path, &note), COH_OK);
    train_on(&t, 2, 4);
    coh_counter_raise(&drive.released, 1);
    assert_int_equal(coh_engine_save_wait(t.run.engine), COH_ERR_IO);
    assert_non_null(strstr(coh_last_error(), t.path));
    assert_int_equal(coh_engine_save_wait(t.run.engine), COH_OK); /* the outcome is reported once */
    drive.sync_error = 0;
    const coh_checkpoint_note later = note_of(4);
    assert_int_equal(coh_engine_save(t.run.engine, t.other, &later), COH_OK);
    assert_int_equal(coh_checkpoint_remove(t.other), COH_OK);
    run_end(&t.run);
    end(&t);
}

static char told[1024];

static void hear(void *context, const char *sentence)
{
    (void)context;
    snprintf(told, sizeof(told), "%s", sentence);
}

static void a_save_that_fails_while_its_engine_is_destroyed_is_told(void **state)
{
    (void)state;
    trial t;
    begin(&t, -EIO);
    (void)train(&t.run, 2, CLIP);
    const coh_checkpoint_note note = note_of(2);
    t.run.engine->options.log = hear;
    told[0] = '\0';
    assert_int_equal(coh_engine_save_begin(t.run.engine, t.path, &note), COH_OK);
    coh_counter_raise(&drive.released, 1);
    run_end(&t.run);
    assert_non_null(strstr(told, "the save that was under way failed: "));
    assert_non_null(strstr(told, t.path));
    end(&t);
}

/* The second engine has other numbers, so a mixture of both would not have the hash. */
static void a_second_save_to_the_same_path_is_refused(void **state)
{
    (void)state;
    trial t;
    run second;
    uint64_t hash;
    coh_checkpoint *checkpoint;
    begin(&t, 0);
    run_begin(&second, &placements[0], 1);
    const uint64_t saved = train(&t.run, 2, CLIP);
    assert_true(train(&second, 3, CLIP) != saved);
    const coh_checkpoint_note note = note_of(2);
    assert_int_equal(coh_engine_save_begin(t.run.engine, t.path, &note), COH_OK);
    assert_int_equal(coh_counter_wait(&drive.reached, 1), 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(coh_engine_save(second.engine, t.path, &note), COH_ERR_ARGUMENT);
        assert_non_null(strstr(coh_last_error(), "another save to "));
    }
    coh_counter_raise(&drive.released, 1);
    assert_int_equal(coh_engine_save_wait(t.run.engine), COH_OK);
    assert_int_equal(coh_engine_save(second.engine, t.path, &note), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "exists already"));
    assert_int_equal(coh_checkpoint_open(t.path, &checkpoint), COH_OK);
    assert_int_equal(coh_checkpoint_check(checkpoint, &hash), COH_OK);
    assert_true(hash == saved);
    coh_checkpoint_close(checkpoint);
    assert_int_equal(coh_checkpoint_remove(t.path), COH_OK);
    assert_int_equal(coh_engine_save(second.engine, t.path, &note), COH_OK); /* and goes on */
    assert_int_equal(coh_checkpoint_remove(t.path), COH_OK);
    run_end(&second);
    run_end(&t.run);
    end(&t);
}

int main(void)
{
    held_calls = coh_system_file_calls;
    held_calls.sync = held_sync;
    coh_file_calls_use(&held_calls);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_save_is_of_the_step_at_which_it_began),
        cmocka_unit_test(an_engine_is_destroyed_when_its_save_is_whole),
        cmocka_unit_test(a_second_save_to_the_same_path_is_refused),
        cmocka_unit_test(a_drive_that_fails_costs_the_save_alone),
        cmocka_unit_test(a_save_that_fails_while_its_engine_is_destroyed_is_told),
    };
    return run_in_each_dtype(tests);
}
