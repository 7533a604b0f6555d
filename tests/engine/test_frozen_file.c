/* The checkpoints of a run share one file of frozen tensors, and only if its values are the
 * engine's. Whatever is shared, a checkpoint has the numbers and the hash of the engine: those of a
 * version 2 checkpoint, which is written here without that file, as earlier versions wrote it. */
#include "tests/engine/engine_bench.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_ops.h"
#include "cohobate/checkpoint.h"
#include "engine/engine_state.h"
#include "tests/engine/checkpoint_fixture.h"
#include "tests/faults/file_faults.h"

#define CLIP 0.002f

enum { FROZEN = 1 };

static char folder[PATH_MAX];
static coh_graph *partly; /* layer FROZEN is frozen */

/* The name of a file of checkpoint step-<step>, or of its folder: file "". */
static const char *in_step(int step, const char *file)
{
    static char names[4][PATH_MAX + 64];
    static int next;
    char *name = names[next++ % 4];
    snprintf(name, sizeof(names[0]), "%s/step-%d%s%s", folder, step, file[0] ? "/" : "", file);
    return name;
}

static struct stat frozen_of(int step)
{
    struct stat facts;
    if (stat(in_step(step, "frozen.bin"), &facts) != 0)
        fail_msg("step-%d has no frozen.bin", step);
    return facts;
}

static int is_shared(int a, int b)
{
    return frozen_of(a).st_ino == frozen_of(b).st_ino;
}

static int set_up(void **state)
{
    (void)state;
    unsetenv("COH_TEST_FAIL_AT");
    temporary_in_memory();
    fixture_folder(folder);
    assert_int_equal(small_model_create_frozen(model_dtype, FROZEN, &partly), COH_OK);
    graph = partly;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unsetenv("COH_TEST_FAIL_AT");
    graph = group_graph;
    coh_graph_destroy(partly);
    (void)temporary_remove(folder);
    return 0;
}

static coh_status save_step(const run *r, int step)
{
    const coh_checkpoint_note note = { .struct_bytes = sizeof(note), .step = (uint64_t)step };
    return coh_engine_save(r->engine, in_step(step, ""), &note);
}

static void save(const run *r, int step)
{
    if (save_step(r, step) != COH_OK)
        fail_msg("step %d: %s", step, coh_last_error());
}

static void load(const run *r, int step)
{
    if (coh_engine_load(r->engine, in_step(step, ""), NULL) != COH_OK)
        fail_msg("step %d: %s", step, coh_last_error());
}

static void train_on(run *r, uint64_t from, uint64_t to)
{
    coh_step_result result = { .struct_bytes = sizeof(result) };
    for (uint64_t step = from; step < to; step++)
        run_step(r, step, CLIP, &result);
}

static coh_checkpoint *open_step(int step)
{
    coh_checkpoint *checkpoint;
    if (coh_checkpoint_open(in_step(step, ""), &checkpoint) != COH_OK)
        fail_msg("step %d: %s", step, coh_last_error());
    return checkpoint;
}

/* Compares every number of a checkpoint, and its hash, with the engine. */
static void check_step(run *r, int step)
{
    static float found[SMALL_ELEMENTS], expected[SMALL_ELEMENTS];
    static const char *const states[] = { "m", "v" };
    coh_checkpoint *checkpoint = open_step(step);
    uint64_t hash = 0;
    if (coh_checkpoint_check(checkpoint, &hash) != COH_OK)
        fail_msg("step %d: %s", step, coh_last_error());
    assert_true(hash == run_hash(r));
    for (int32_t i = 0; i < 2 * SMALL_LAYERS; i++) {
        coh_checkpoint_tensor tensor;
        coh_parameter parameter;
        assert_int_equal(coh_checkpoint_tensor_at(checkpoint, i, &tensor), COH_OK);
        assert_int_equal(coh_graph_parameter_find(graph, tensor.name, &parameter), COH_OK);
        assert_int_equal(tensor.optimizer == NULL, parameter.index / 2 == FROZEN);
        for (int s = 0; s <= tensor.stream_count; s++) {
            assert_int_equal(coh_checkpoint_read(checkpoint, i, s == 0 ? 0 : tensor.streams[s - 1],
                                                 0, SMALL_ELEMENTS, found),
                             COH_OK);
            if (s == 0)
                fetch_into(r, parameter.index, COH_FETCH_VALUE, expected);
            else
                fetch_state_into(r, parameter.index, states[s - 1], expected);
            assert_memory_equal(found, expected, sizeof(found));
        }
    }
    coh_checkpoint_close(checkpoint);
}

/* Saves as earlier versions did: all work in one file. */
static void save_version_2(run *r, int step)
{
    static float all[SMALL_ELEMENTS];
    static const char *const states[] = { "m", "v" };
    coh_logical_table table = r->engine->table;
    coh_checkpoint_writer *writer;
    coh_cells cells;
    assert_int_equal(table.frozen,
                     model_dtype == COH_DTYPE_BF16 ? COH_FROZEN_BF16 : COH_FROZEN_F32);
    table.frozen = COH_FROZEN_IN_WORK;
    assert_int_equal(coh_checkpoint_writer_create(&table, NULL, &writer), COH_OK);
    assert_int_equal(coh_checkpoint_writer_begin(writer, in_step(step, ""), NULL), COH_OK);
    for (uint32_t i = 0; i < table.tensor_count; i++)
        for (int part = 0; part <= table.tensors[i].stream_count; part++) {
            coh_parameter parameter;
            assert_int_equal(coh_graph_parameter_find(graph, table.tensors[i].name, &parameter),
                             COH_OK);
            if (part == 0)
                fetch_into(r, parameter.index, COH_FETCH_VALUE, all);
            else
                fetch_state_into(r, parameter.index, states[part - 1], all);
            assert_int_equal(coh_checkpoint_writer_put(writer, part, i, 0, SMALL_ELEMENTS, all),
                             COH_OK);
        }
    assert_int_equal(coh_step_get_cells(r->engine->step, &cells), COH_OK);
    const coh_checkpoint_seal seal = { .step = (uint64_t)step,
                                       .applied_count = cells.applied_count,
                                       .numeric_fingerprint = r->plan->numeric_fingerprint };
    uint64_t hash;
    assert_int_equal(coh_checkpoint_writer_finish(writer, &seal, &hash), COH_OK);
    assert_true(hash == run_hash(r));
    coh_checkpoint_writer_destroy(writer);
    assert_int_not_equal(access(in_step(step, "frozen.bin"), F_OK), 0);
}

/* ---- sharing ---- */

static void the_saves_of_a_run_and_of_its_continuation_share_one_file(void **state)
{
    (void)state;
    const off_t bytes = 2 * SMALL_ELEMENTS * (model_dtype == COH_DTYPE_BF16 ? 2 : 4);
    for (int p = 0; p < PLACEMENT_COUNT; p++) {
        run r, again;
        run_begin(&r, &placements[p], 1);
        train_on(&r, 0, 1);
        save(&r, 1);
        check_step(&r, 1);
        train_on(&r, 1, 2);
        save(&r, 2);
        check_step(&r, 2);
        assert_true(is_shared(1, 2));
        assert_int_equal(frozen_of(2).st_nlink, 2);
        assert_int_equal(frozen_of(2).st_size, bytes);
        run_end(&r);
        assert_int_equal(coh_checkpoint_remove(in_step(1, "")), COH_OK);
        assert_int_equal(frozen_of(2).st_nlink, 1);
        run_prepare(&again, &placements[(p + 1) % PLACEMENT_COUNT], 1);
        run_create(&again);
        load(&again, 2);
        check_step(&again, 2);
        train_on(&again, 2, 3);
        save(&again, 3);
        check_step(&again, 3);
        assert_true(is_shared(2, 3));
        run_end(&again);
        assert_int_equal(coh_checkpoint_remove(in_step(2, "")), COH_OK);
        assert_int_equal(coh_checkpoint_remove(in_step(3, "")), COH_OK);
    }
}

static void a_version_2_checkpoint_goes_on_to_the_same_bits(void **state)
{
    (void)state;
    run r;
    run_begin(&r, &placements[2], 1);
    train_on(&r, 0, 2);
    save(&r, 2);
    save_version_2(&r, 12);
    train_on(&r, 2, 4);
    const uint64_t expected = run_hash(&r);
    load(&r, 12);
    check_step(&r, 12);
    check_step(&r, 2);
    train_on(&r, 2, 4);
    assert_true(run_hash(&r) == expected);
    save(&r, 4); /* it has no file to share */
    check_step(&r, 4);
    save(&r, 5);
    assert_false(is_shared(2, 4));
    assert_true(is_shared(4, 5));
    run_end(&r);
}

static void the_bytes_of_a_shared_file_are_those_of_the_plan(void **state)
{
    (void)state;
    run r;
    uint64_t whole, shared, found = 4096;
    static const char *const files[] = { "work.bin", "m.bin", "v.bin", "hashes.bin",
                                         "manifest.json" };
    run_begin(&r, &placements[0], 1);
    save(&r, 1);
    assert_int_equal(coh_engine_save_bytes(r.plan, &whole), COH_OK);
    assert_int_equal(coh_engine_save_frozen_bytes(r.plan, &shared), COH_OK);
    assert_int_equal(shared, (frozen_of(1).st_size + 4095) / 4096 * 4096);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        struct stat facts;
        assert_int_equal(stat(in_step(1, files[i]), &facts), 0);
        found += ((uint64_t)facts.st_size + 4095) / 4096 * 4096;
    }
    assert_true(whole - shared >= found && whole - shared <= found + (72 << 10));
    coh_checkpoint *checkpoint = open_step(1);
    coh_checkpoint_facts facts = { .struct_bytes = sizeof(facts) };
    assert_int_equal(coh_checkpoint_facts_get(checkpoint, &facts), COH_OK);
    assert_int_equal(facts.frozen_bytes, frozen_of(1).st_size);
    coh_checkpoint_close(checkpoint);
    run_end(&r);
}

/* ---- values that changed ---- */

/* A source that gives back what the checkpoint has. */
static coh_status keep_values(void *context, coh_parameter parameter, const char *name,
                              uint64_t element_begin, uint64_t count, float *data)
{
    (void)context, (void)parameter, (void)name, (void)element_begin, (void)count, (void)data;
    return COH_OK;
}

static void values_that_may_have_changed_are_written_again(void **state)
{
    (void)state;
    run r;
    const float changed = 0.5f;
    run_begin(&r, &placements[2], 1);
    save(&r, 1);
    assert_int_equal(coh_engine_put(r.engine, (coh_parameter){ 0 }, 3, 1, &changed), COH_OK);
    save(&r, 2); /* a trained one */
    assert_true(is_shared(1, 2));
    assert_int_equal(coh_engine_put(r.engine, (coh_parameter){ 2 * FROZEN }, 3, 1, &changed),
                     COH_OK);
    save(&r, 3);
    assert_false(is_shared(2, 3));
    check_step(&r, 3);
    assert_int_equal(coh_engine_init(r.engine, 43), COH_OK);
    save(&r, 4);
    assert_false(is_shared(3, 4));
    check_step(&r, 4);
    load(&r, 1); /* which later saves share then, and not the newest */
    save(&r, 5);
    assert_true(is_shared(1, 5));
    check_step(&r, 5);
    assert_int_equal(coh_engine_load_weights(r.engine, in_step(3, "")), COH_OK);
    save(&r, 6);
    assert_true(is_shared(3, 6));
    check_step(&r, 6);
    assert_int_equal(coh_engine_load_from(r.engine, in_step(3, ""), keep_values, NULL, NULL),
                     COH_OK);
    save(&r, 7);
    assert_false(is_shared(3, 7));
    check_step(&r, 7);
    run_end(&r);
}

static void a_value_that_changes_during_a_save_is_written_by_the_next_one(void **state)
{
    (void)state;
    run r;
    const float changed = 0.5f;
    const coh_checkpoint_note note = { .struct_bytes = sizeof(note) };
    run_begin(&r, &placements[0], 1);
    const uint64_t before = run_hash(&r);
    assert_int_equal(coh_engine_save_begin(r.engine, in_step(1, ""), &note), COH_OK);
    assert_int_equal(coh_engine_put(r.engine, (coh_parameter){ 2 * FROZEN + 1 }, 0, 1, &changed),
                     COH_OK);
    assert_int_equal(coh_engine_save_wait(r.engine), COH_OK);
    save(&r, 2);
    assert_false(is_shared(1, 2));
    check_step(&r, 2);
    assert_int_equal(coh_engine_save_begin(r.engine, in_step(3, ""), &note), COH_OK);
    load(&r, 1);
    assert_int_equal(coh_engine_save_wait(r.engine), COH_OK);
    assert_true(run_hash(&r) == before);
    save(&r, 4);
    assert_true(is_shared(2, 3));
    assert_false(is_shared(3, 4));
    check_step(&r, 4);
    run_end(&r);
}

/* A bf16 plan rounds what an f32 run saved. */
static void values_of_another_dtype_are_written_again(void **state)
{
    (void)state;
    run r, other;
    run_begin(&r, &placements[0], 1);
    save(&r, 1);
    run_end(&r);
    coh_graph *before = graph;
    const coh_dtype dtype = model_dtype;
    model_dtype = dtype == COH_DTYPE_BF16 ? COH_DTYPE_F32 : COH_DTYPE_BF16;
    assert_int_equal(small_model_create_frozen(model_dtype, FROZEN, &graph), COH_OK);
    run_prepare(&other, &placements[0], 1);
    run_create(&other);
    load(&other, 1);
    save(&other, 2);
    assert_false(is_shared(1, 2));
    check_step(&other, 2);
    run_end(&other);
    coh_graph_destroy(graph);
    graph = before;
    model_dtype = dtype;
}

/* ---- files that cannot be shared ---- */

static coh_file_calls calls;
static int link_error; /* 0: links are made */

static int trial_link(void *state, const char *from, const char *to)
{
    return link_error != 0 ? link_error : file_faults_calls.link(state, from, to);
}

static ino_t broken_file; /* the next flush of this file fails */

static int trial_sync(void *state, int fd)
{
    struct stat facts;
    if (fstat(fd, &facts) != 0 || facts.st_ino != broken_file)
        return file_faults_calls.sync(state, fd);
    broken_file = 0;
    return -EIO;
}

static char told[512];
static int told_count;

static void hear(void *context, const char *sentence)
{
    (void)context;
    snprintf(told, sizeof(told), "%s", sentence);
    told_count++;
}

static void where_links_fail_the_file_is_written_and_the_log_says_why_once(void **state)
{
    (void)state;
    static const int errors[] = { -EXDEV, -EPERM, -EMLINK, -EOPNOTSUPP, -EACCES };
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        run r;
        told_count = 0;
        run_prepare(&r, &placements[0], 1);
        r.options.log = hear;
        run_create(&r);
        assert_int_equal(coh_engine_init(r.engine, 42), COH_OK);
        for (int step = 1; step <= 3; step++) {
            link_error = errors[i];
            save(&r, step);
            link_error = 0;
            check_step(&r, step);
            assert_int_equal(frozen_of(step).st_nlink, 1);
            assert_int_equal(told_count, step > 1);
        }
        assert_non_null(strstr(told, "frozen.bin"));
        assert_non_null(strstr(told, strerror(-errors[i])));
        save(&r, 4); /* they are tried again */
        assert_true(is_shared(3, 4));
        run_end(&r);
        for (int step = 1; step <= 4; step++)
            assert_int_equal(coh_checkpoint_remove(in_step(step, "")), COH_OK);
    }
}

static void a_removed_or_renamed_checkpoint_shares_nothing(void **state)
{
    (void)state;
    run r;
    run_begin(&r, &placements[2], 1);
    save(&r, 1);
    assert_int_equal(coh_checkpoint_remove(in_step(1, "")), COH_OK);
    save(&r, 2);
    check_step(&r, 2);
    assert_int_equal(rename(in_step(2, ""), in_step(9, "")), 0);
    save(&r, 3);
    check_step(&r, 3);
    assert_int_equal(frozen_of(3).st_nlink, 1);
    run_end(&r);
}

/* Flips a bit of a file; its time of change is a second later, as that of a later write. */
static void flip(const char *path, off_t at)
{
    struct stat facts;
    unsigned char byte;
    const int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &facts), 0);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 4;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    struct timespec times[2] = { facts.st_atim, facts.st_mtim };
    times[1].tv_sec++;
    assert_int_equal(futimens(fd, times), 0);
    close(fd);
}

/* Puts a copy in the place of a file, as when a folder is restored. */
static void replace(const char *path)
{
    char command[4 * PATH_MAX + 200];
    snprintf(command, sizeof(command), "cp -p %.4000s %.4000s.copy && mv %.4000s.copy %.4000s",
             path, path, path, path);
    assert_int_equal(system(command), 0);
}

static void a_file_that_is_no_longer_the_one_that_was_saved_is_not_shared(void **state)
{
    (void)state;
    run r;
    told_count = 0;
    run_prepare(&r, &placements[0], 1);
    r.options.log = hear;
    run_create(&r);
    assert_int_equal(coh_engine_init(r.engine, 42), COH_OK);
    save(&r, 1);
    flip(in_step(1, "frozen.bin"), 100);
    save(&r, 2);
    assert_int_equal(frozen_of(2).st_nlink, 1);
    check_step(&r, 2);
    assert_int_equal(told_count, 1);
    assert_non_null(strstr(told, "another file has its name"));
    replace(in_step(2, "frozen.bin"));
    save(&r, 3);
    assert_int_equal(frozen_of(3).st_nlink, 1);
    check_step(&r, 3);
    assert_int_equal(unlink(in_step(3, "frozen.bin")), 0);
    assert_int_equal(symlink(in_step(2, "frozen.bin"), in_step(3, "frozen.bin")), 0);
    save(&r, 4);
    check_step(&r, 4);
    assert_int_equal(unlink(in_step(4, "frozen.bin")), 0);
    assert_int_equal(mkfifo(in_step(4, "frozen.bin"), 0666), 0);
    save(&r, 5);
    check_step(&r, 5);
    run_end(&r);
}

static void damage_of_a_shared_file_is_found_in_every_checkpoint_that_has_it(void **state)
{
    (void)state;
    run r;
    run_begin(&r, &placements[0], 1);
    for (int step = 1; step <= 3; step++)
        save(&r, step);
    flip(in_step(2, "frozen.bin"), frozen_of(2).st_size - 1);
    for (int step = 1; step <= 3; step++) {
        coh_checkpoint *checkpoint = open_step(step);
        assert_int_equal(coh_checkpoint_check(checkpoint, NULL), COH_ERR_CORRUPT);
        assert_non_null(strstr(coh_last_error(), "frozen.bin, tensor layer1"));
        coh_checkpoint_close(checkpoint);
    }
    save(&r, 4);
    check_step(&r, 4);
    run_end(&r);
}

/* ---- failures ---- */

/* Loads step-1 and saves step-2, whose operation `n` fails. */
static coh_status fail_at(int n, run *r)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", n);
    run_prepare(r, &placements[0], 1);
    setenv("COH_TEST_FAIL_AT", text, 1);
    run_create(r);
    unsetenv("COH_TEST_FAIL_AT");
    load(r, 1);
    return save_step(r, 2);
}

static void only_the_link_may_fail_without_the_save(void **state)
{
    (void)state;
    run r;
    int written = 0, forgotten = 0;
    run_begin(&r, &placements[0], 1);
    save(&r, 1);
    run_end(&r);
    for (int n = 1, is_past = 0; !is_past; n++) {
        char partial[PATH_MAX + 96];
        snprintf(partial, sizeof(partial), "%s.partial", in_step(2, ""));
        const coh_status status = fail_at(n, &r);
        assert_int_not_equal(access(partial, F_OK), 0);
        if (status == COH_OK) {
            check_step(&r, 2);
            is_past = is_shared(1, 2);
            written += !is_past;
        } else {
            assert_int_equal(status, COH_ERR_IO);
            assert_int_not_equal(access(in_step(2, ""), F_OK), 0);
            assert_int_equal(frozen_of(1).st_nlink, 1);
            save(&r, 2); /* what it knew is not lost, except after the flush of the file itself */
            forgotten += !is_shared(1, 2);
            check_step(&r, 2);
        }
        check_step(&r, 1);
        run_end(&r);
        assert_int_equal(coh_checkpoint_remove(in_step(2, "")), COH_OK);
        assert_true(n < 100);
    }
    assert_int_equal(written, 1);
    assert_int_equal(forgotten, 1);
}

/* The system reports lost pages once: a later flush of the same file would succeed. */
static void a_file_whose_flush_failed_is_not_shared_again(void **state)
{
    (void)state;
    run r;
    run_begin(&r, &placements[0], 1);
    save(&r, 1);
    run_end(&r);
    run_prepare(&r, &placements[0], 1);
    run_create(&r);
    load(&r, 1);
    broken_file = frozen_of(1).st_ino;
    assert_int_equal(save_step(&r, 2), COH_ERR_IO);
    assert_non_null(strstr(coh_last_error(), "frozen.bin"));
    assert_int_equal(broken_file, 0);
    save(&r, 2);
    assert_false(is_shared(1, 2));
    check_step(&r, 2);
    save(&r, 3);
    assert_true(is_shared(2, 3));
    check_step(&r, 3);
    run_end(&r);
}

static void a_save_that_fails_after_writing_the_file_shares_nothing(void **state)
{
    (void)state;
    run r;
    char text[16];
    for (int n = 1; n < 40; n += 3) {
        snprintf(text, sizeof(text), "%d", n);
        run_prepare(&r, &placements[0], 1);
        setenv("COH_TEST_FAIL_AT", text, 1);
        run_create(&r);
        unsetenv("COH_TEST_FAIL_AT");
        assert_int_equal(coh_engine_init(r.engine, 42), COH_OK);
        if (save_step(&r, 1) == COH_OK)
            assert_int_equal(coh_checkpoint_remove(in_step(1, "")), COH_OK);
        save(&r, 2);
        check_step(&r, 2);
        assert_int_equal(frozen_of(2).st_nlink, 1);
        run_end(&r);
        assert_int_equal(coh_checkpoint_remove(in_step(2, "")), COH_OK);
    }
}

/* ---- the reader is strict ---- */

static char *read_manifest(int step, size_t *out_bytes)
{
    struct stat facts;
    const int fd = open(in_step(step, "manifest.json"), O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &facts), 0);
    char *text = malloc((size_t)facts.st_size + 1);
    assert_int_equal(read(fd, text, (size_t)facts.st_size), facts.st_size);
    text[facts.st_size] = '\0';
    close(fd);
    char *seal = strstr(text, ",\n  \"manifest_hash\"");
    assert_non_null(seal);
    *seal = '\0';
    *out_bytes = (size_t)(seal - text);
    return text;
}

/* Writes the manifest with `from` replaced by `to`, everywhere, and a seal that fits. */
static void write_edited(int step, const char *text, const char *from, const char *to)
{
    char *edited = calloc(1, 4 * strlen(text) + 1);
    const char *at = text, *found;
    assert_non_null(strstr(text, from));
    while ((found = strstr(at, from)) != NULL) {
        strncat(edited, at, (size_t)(found - at));
        strcat(edited, to);
        at = found + strlen(from);
    }
    strcat(edited, at);
    fixture_seal_manifest(in_step(step, ""), edited, strlen(edited));
    free(edited);
}

static void a_manifest_of_version_3_that_no_save_writes_is_refused(void **state)
{
    (void)state;
    const int is_bf16 = model_dtype == COH_DTYPE_BF16;
    const char *dtype = is_bf16 ? "\"frozen\": \"bf16\"" : "\"frozen\": \"f32\"";
    const struct {
        const char *from, *to, *says;
    } cases[] = {
        { dtype, "\"frozen\": \"f16\"", "expected \"f32\" or \"bf16\"" },
        { dtype, "\"frozen\": null", "expected \"f32\" or \"bf16\"" },
        { dtype, is_bf16 ? "\"frozen\": \"f32\"" : "\"frozen\": \"bf16\"", "frozen.bin" },
        { "\"frozen\": ", "\"other\": ", "other" },
        { "\"version\": 3", "\"version\": 2", "frozen" },
        { "\"version\": 3", "\"version\": 4", "use a newer release" },
        { "\"optimizer\": null, \"streams\": []",
          "\"optimizer\": \"adamw\", \"streams\": [\"m\", \"v\"]",
          "every tensor has an optimizer" },
        { "\"frozen.bin\": ", "\"freeze.bin\": ", "frozen.bin" },
    };
    run r;
    size_t bytes;
    coh_checkpoint *checkpoint;
    run_begin(&r, &placements[0], 1);
    save(&r, 1);
    run_end(&r);
    char *text = read_manifest(1, &bytes);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        write_edited(1, text, cases[i].from, cases[i].to);
        assert_int_equal(coh_checkpoint_open(in_step(1, ""), &checkpoint), COH_ERR_CORRUPT);
        if (strstr(coh_last_error(), cases[i].says) == NULL)
            fail_msg("%s -> %s: %s", cases[i].from, cases[i].to, coh_last_error());
    }
    char *member = strstr(text, dtype), *rest = member + strlen(dtype) + 1;
    assert_non_null(member);
    memmove(member, rest + strspn(rest, " \n"), strlen(rest + strspn(rest, " \n")) + 1);
    fixture_seal_manifest(in_step(1, ""), text, strlen(text));
    assert_int_equal(coh_checkpoint_open(in_step(1, ""), &checkpoint), COH_ERR_CORRUPT);
    assert_non_null(strstr(coh_last_error(), "frozen: expected"));
    free(text);
}

static void a_missing_or_cut_file_of_frozen_tensors_is_damage(void **state)
{
    (void)state;
    run r;
    coh_checkpoint *checkpoint;
    int32_t is_damaged;
    run_begin(&r, &placements[0], 1);
    save(&r, 1);
    run_end(&r);
    assert_int_equal(truncate(in_step(1, "frozen.bin"), frozen_of(1).st_size - 1), 0);
    assert_int_equal(coh_checkpoint_damage(in_step(1, ""), &is_damaged), COH_OK);
    assert_true(is_damaged);
    assert_int_equal(unlink(in_step(1, "frozen.bin")), 0);
    assert_int_equal(coh_checkpoint_open(in_step(1, ""), &checkpoint), COH_ERR_CORRUPT);
    assert_non_null(strstr(coh_last_error(), "frozen.bin is missing"));
}

#define IN_FOLDER(claim) cmocka_unit_test_setup_teardown(claim, set_up, tear_down)

int main(void)
{
    calls = file_faults_calls;
    calls.link = trial_link;
    calls.sync = trial_sync;
    coh_file_calls_use(&calls);
    const struct CMUnitTest tests[] = {
        IN_FOLDER(the_saves_of_a_run_and_of_its_continuation_share_one_file),
        IN_FOLDER(a_version_2_checkpoint_goes_on_to_the_same_bits),
        IN_FOLDER(the_bytes_of_a_shared_file_are_those_of_the_plan),
        IN_FOLDER(values_that_may_have_changed_are_written_again),
        IN_FOLDER(a_value_that_changes_during_a_save_is_written_by_the_next_one),
        IN_FOLDER(values_of_another_dtype_are_written_again),
        IN_FOLDER(where_links_fail_the_file_is_written_and_the_log_says_why_once),
        IN_FOLDER(a_removed_or_renamed_checkpoint_shares_nothing),
        IN_FOLDER(a_file_that_is_no_longer_the_one_that_was_saved_is_not_shared),
        IN_FOLDER(damage_of_a_shared_file_is_found_in_every_checkpoint_that_has_it),
        IN_FOLDER(only_the_link_may_fail_without_the_save),
        IN_FOLDER(a_file_whose_flush_failed_is_not_shared_again),
        IN_FOLDER(a_save_that_fails_after_writing_the_file_shares_nothing),
        IN_FOLDER(a_manifest_of_version_3_that_no_save_writes_is_refused),
        IN_FOLDER(a_missing_or_cut_file_of_frozen_tensors_is_damage),
    };
    return run_in_each_dtype(tests);
}
