/* The life of an engine apart from its steps: checkpoints, first values, non-finite numbers,
 * figures, faults. */
#include "tests/engine/engine_bench.h"
#include "tests/faults/store_faults.h"
#include "tests/length.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/rng.h"
#include "engine/engine_state.h"
#include "planner/verify.h"
#include "tests/faults/alloc_faults.h"
#include "tests/text/folder.h"

/* ---- checkpoints ---- */

static const char *const files[] = { "work.bin", "m.bin", "v.bin", "hashes.bin", "manifest.json" };
enum { FILE_COUNT = sizeof(files) / sizeof(files[0]) };

static void remove_checkpoint(const char *path)
{
    assert_int_equal(coh_checkpoint_remove(path), COH_OK);
}

/* The predicted size, except the room for the note and names, matches the pages on disk. */
static void check_save_bytes(const run *r, const char *path)
{
    char name[256];
    struct stat facts;
    uint64_t found = 4096, bound; /* the folder */
    for (size_t i = 0; i < FILE_COUNT; i++) {
        snprintf(name, sizeof(name), "%s/%s", path, files[i]);
        assert_int_equal(stat(name, &facts), 0);
        found += ((uint64_t)facts.st_size + 4095) / 4096 * 4096;
    }
    assert_int_equal(coh_engine_save_bytes(r->plan, &bound), COH_OK);
    assert_true(bound >= found);
    assert_true(bound <= found + (72 << 10));
}

static void resumed_under_another_placement_gives_the_same_bits(void **state)
{
    (void)state;
    const char *path = folder_file("save");
    run r;
    run_begin(&r, &placements[2], 1);
    uint64_t expected = train(&r, 5, 0.002f);
    assert_int_equal(coh_engine_init(r.engine, 42), COH_OK);
    uint64_t half = train(&r, 2, 0.002f);
    const coh_checkpoint_note note = { .struct_bytes = sizeof(note),
                                       .step = 2,
                                       .json = "{\"who\":\"test\"}" };
    assert_int_equal(coh_engine_save(r.engine, path, &note), COH_OK);
    assert_int_equal(coh_engine_save(r.engine, path, &note), COH_ERR_ARGUMENT); /* it exists */
    check_save_bytes(&r, path);
    run_end(&r);
    for (int p = 0; p < PLACEMENT_COUNT; p++) {
        coh_load_facts loaded = { .struct_bytes = sizeof(loaded), .numeric_changed = -1 };
        run_prepare(&r, &placements[p], 1);
        run_create(&r);
        if (coh_engine_load(r.engine, path, &loaded) != COH_OK)
            fail_msg("%s: %s", placements[p].name, coh_last_error());
        assert_int_equal(loaded.numeric_changed, 0);
        assert_int_equal(loaded.step, 2);
        assert_true(run_hash(&r) == half);
        coh_step_result result = { .struct_bytes = sizeof(result) };
        for (uint64_t step = 2; step < 5; step++)
            run_step(&r, step, 0.002f, &result);
        assert_int_equal(result.applied_count, 5);
        assert_true(run_hash(&r) == expected);
        run_end(&r);
    }
    remove_checkpoint(path);
    assert_int_equal(folder_count(), 0);
}

/* ---- across dtypes ---- */

enum { PARAMETERS = 2 * SMALL_LAYERS, PARTS = 3 };
static float kept[PARAMETERS][PARTS][SMALL_ELEMENTS];

/* Part 0 of a parameter is its values; 1 and 2 are its moments. */
static void fetch_part(run *r, int parameter, int part, float *data)
{
    static const char *const streams[PARTS] = { NULL, "m", "v" };
    if (part == 0)
        fetch_into(r, parameter, COH_FETCH_VALUE, data);
    else
        fetch_state_into(r, parameter, streams[part], data);
}

static void keep_all(run *r)
{
    for (int i = 0; i < PARAMETERS; i++)
        for (int part = 0; part < PARTS; part++)
            fetch_part(r, i, part, kept[i][part]);
}

static void check_all_kept(run *r)
{
    for (int i = 0; i < PARAMETERS; i++)
        for (int part = 0; part < PARTS; part++) {
            fetch_part(r, i, part, values);
            assert_memory_equal(values, kept[i][part], sizeof(values));
        }
}

/* Replaces the group's graph by a plan of `other` and loads the checkpoint. */
static void run_load_in(run *r, coh_graph *other, const placement *p, const char *path,
                        int *out_changed)
{
    coh_graph *own = graph;
    graph = other;
    run_prepare(r, p, 1);
    graph = own;
    run_create(r);
    coh_load_facts loaded = { .struct_bytes = sizeof(loaded) };
    if (coh_engine_load(r->engine, path, &loaded) != COH_OK)
        fail_msg("no load: %s", coh_last_error());
    if (out_changed != NULL)
        *out_changed = loaded.numeric_changed;
}

static void a_checkpoint_holds_every_bit_for_the_other_dtype(void **state)
{
    (void)state;
    const char *path = folder_file("save"), *back = folder_file("back");
    coh_graph *other = NULL;
    assert_int_equal(
        small_model_create(model_dtype == COH_DTYPE_F32 ? COH_DTYPE_BF16 : COH_DTYPE_F32, &other),
        COH_OK);
    run r;
    int changed = -1;
    const coh_checkpoint_note note = { .struct_bytes = sizeof(note), .step = 2, .json = "{}" };
    run_begin(&r, &placements[2], 1);
    uint64_t hash = train(&r, 2, 0.002f);
    keep_all(&r);
    assert_int_equal(coh_engine_save(r.engine, path, &note), COH_OK);
    run_end(&r);
    run_load_in(&r, other, &placements[4], path, &changed);
    assert_int_equal(changed, 1); /* reported, since other bits follow */
    check_all_kept(&r);
    assert_true(run_hash(&r) == hash);
    assert_int_equal(coh_engine_save(r.engine, back, &note), COH_OK);
    run_end(&r);
    run_load_in(&r, graph, &placements[1], back, &changed);
    check_all_kept(&r);
    assert_true(run_hash(&r) == hash);
    run_end(&r);
    coh_graph_destroy(other);
    remove_checkpoint(path);
    remove_checkpoint(back);
    assert_int_equal(folder_count(), 0);
}

/* A frozen bf16 parameter has no low half: it is the part of the master that compute reads. */
static void a_frozen_parameter_takes_what_its_dtype_holds_of_a_checkpoint(void **state)
{
    (void)state;
    enum { FROZEN = 1 };
    const char *path = folder_file("save");
    coh_graph *partly = NULL;
    assert_int_equal(small_model_create_frozen(model_dtype, FROZEN, &partly), COH_OK);
    run r;
    const coh_checkpoint_note note = { .struct_bytes = sizeof(note), .step = 2, .json = "{}" };
    run_begin(&r, &placements[2], 1);
    train(&r, 2, 0.002f);
    keep_all(&r);
    assert_int_equal(coh_engine_save(r.engine, path, &note), COH_OK);
    run_end(&r);
    run_load_in(&r, partly, &placements[2], path, NULL);
    for (int round = 0; round < 2; round++) { /* as loaded, then after a save and another load */
        for (int i = 0; i < PARAMETERS; i++) {
            fetch_into(&r, i, COH_FETCH_VALUE, values);
            for (int e = 0; e < SMALL_ELEMENTS; e++)
                assert_true((double)values[e] ==
                            (i / 2 == FROZEN ? small_oracle_work(model_dtype, kept[i][0][e])
                                             : (double)kept[i][0][e]));
        }
        remove_checkpoint(path);
        if (round == 0) {
            assert_int_equal(coh_engine_save(r.engine, path, &note), COH_OK);
            assert_int_equal(coh_engine_load(r.engine, path, NULL), COH_OK);
        }
    }
    run_end(&r);
    coh_graph_destroy(partly);
    assert_int_equal(folder_count(), 0);
}

/* A visitor gets both halves or none: half a master is not a number. */
static void an_instruction_that_visits_half_a_master_is_refused(void **state)
{
    (void)state;
    if (model_dtype != COH_DTYPE_BF16)
        return;
    run r;
    run_prepare(&r, &placements[2], 1);
    coh_program *program = &r.plan->programs[COH_PROGRAM_SAVE];
    coh_instruction *save = program->instructions;
    while (save->opcode != COH_OP_SAVE || save->operand_count < 2)
        save++;
    save->operand_count = 1;
    const coh_verify_options any = { .budget_bytes = { UINT64_MAX, UINT64_MAX, UINT64_MAX } };
    assert_int_not_equal(coh_verify(&r.plan->layout, program, &any, NULL), COH_OK);
    run_end(&r);
}

static void an_engine_without_values_refuses_to_run(void **state)
{
    (void)state;
    run r;
    run_prepare(&r, &placements[0], 1);
    run_create(&r);
    const coh_step_input in = step_input(0, 0);
    coh_step_result result = { .struct_bytes = sizeof(result) };
    uint64_t hash;
    assert_int_equal(coh_engine_step(r.engine, &in, &result), COH_ERR_ARGUMENT);
    assert_int_equal(coh_engine_hash(r.engine, &hash), COH_ERR_ARGUMENT);
    assert_int_equal(coh_engine_load(r.engine, "no/such/place", NULL), COH_ERR_IO);
    assert_int_equal(coh_engine_init(r.engine, 1), COH_OK);
    assert_int_equal(coh_engine_step(r.engine, &in, &result), COH_OK);
    run_end(&r);
}

/* ---- first values from a file ---- */

/* A weight's first values depend on its own random stream and the elements' positions in it, not on
 * chunks. */
static void first_values_are_a_function_of_seed_parameter_and_element(void **state)
{
    (void)state;
    for (int p = 0; p < PLACEMENT_COUNT; p++) {
        run r;
        run_begin(&r, &placements[p], 1);
        fetch_into(&r, 4, COH_FETCH_VALUE, values);
        for (uint64_t i = 0; i < SMALL_ELEMENTS; i++)
            assert_true(values[i] == (float)(0.5 * coh_rng_normal(42, 4, i)));
        run_end(&r);
    }
}

static coh_status third_bias(void *context, coh_parameter parameter, const char *name,
                             uint64_t element_begin, uint64_t count, float *out_values)
{
    *(uint64_t *)context += count;
    if (parameter.index != 5)
        return COH_OK;
    if (strcmp(name, "layer2.bias") != 0)
        return coh_kind_fail(COH_ERR_INTERNAL, "parameter 5 is called %s", name);
    for (uint64_t i = 0; i < count; i++)
        out_values[i] = (float)(element_begin + i);
    return COH_OK;
}

static coh_status fail_wordless(void *context, coh_parameter parameter, const char *name,
                                uint64_t element_begin, uint64_t count, float *out_values)
{
    (void)parameter, (void)name, (void)element_begin, (void)count, (void)out_values;
    return *(const coh_status *)context;
}

static coh_status give_nan(void *context, coh_parameter parameter, const char *name,
                           uint64_t element_begin, uint64_t count, float *out_values)
{
    (void)context, (void)name, (void)element_begin;
    if (parameter.index == 5)
        out_values[count - 1] = NAN;
    return COH_OK;
}

static coh_status take_wordless(void *context, coh_parameter parameter, const char *name,
                                uint64_t element_begin, uint64_t count, const float *found)
{
    (void)parameter, (void)name, (void)element_begin, (void)count, (void)found;
    return *(const coh_status *)context;
}

/* A failure without a text does not show the text of an earlier one. */
static void what_the_caller_gives_is_checked_and_a_failure_has_a_reason(void **state)
{
    (void)state;
    run r;
    run_begin(&r, &placements[2], 1);
    coh_status fails = COH_ERR_IO;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(coh_engine_init_from(r.engine, 42, fail_wordless, &fails), COH_ERR_IO);
        assert_non_null(strstr(coh_last_error(), "the source of first values fails and gives no"));
        assert_null(strstr(strstr(coh_last_error(), "fails and") + 1, "fails and"));
    }
    assert_int_equal(coh_engine_init_from(r.engine, 42, give_nan, NULL), COH_ERR_NUMBER);
    assert_non_null(strstr(coh_last_error(), "of parameter 'layer2.bias' is nan"));
    assert_int_equal(coh_engine_init(r.engine, 42), COH_OK);
    assert_int_equal(coh_engine_fetch_all(r.engine, COH_FETCH_VALUE, take_wordless, &fails),
                     COH_ERR_IO);
    assert_non_null(strstr(coh_last_error(), "the sink fails and gives no reason"));
    run_end(&r);
}

static void first_values_may_come_from_a_source(void **state)
{
    (void)state;
    run r;
    run_begin(&r, &placements[2], 1);
    static float untouched[SMALL_ELEMENTS];
    fetch_into(&r, 4, COH_FETCH_VALUE, untouched);
    uint64_t seen = 0;
    assert_int_equal(coh_engine_init_from(r.engine, 42, third_bias, &seen), COH_OK);
    assert_int_equal(seen, (uint64_t)2 * SMALL_LAYERS * SMALL_ELEMENTS);
    fetch_into(&r, 5, COH_FETCH_VALUE, values);
    for (int i = 0; i < SMALL_ELEMENTS; i++)
        assert_true(values[i] == (float)i);
    fetch_into(&r, 4, COH_FETCH_VALUE, values);
    assert_memory_equal(values, untouched, sizeof(values));
    run_end(&r);
}

/* ---- all parameters in one pass ---- */

typedef struct gathered {
    float values[2 * SMALL_LAYERS][SMALL_ELEMENTS];
    uint64_t seen;
    uint64_t fails_after; /* elements; 0: never */
} gathered;

static coh_status gather(void *context, coh_parameter parameter, const char *name,
                         uint64_t element_begin, uint64_t count, const float *found)
{
    gathered *all = context;
    if (all->fails_after > 0 && all->seen >= all->fails_after)
        return coh_kind_fail(COH_ERR_IO, "no room for %s", name);
    memcpy(&all->values[parameter.index][element_begin], found, count * sizeof(float));
    all->seen += count;
    return COH_OK;
}

static void all_values_and_gradients_come_in_one_pass(void **state)
{
    (void)state;
    static gathered all;
    const uint64_t elements = (uint64_t)2 * SMALL_LAYERS * SMALL_ELEMENTS;
    for (int p = 0; p < PLACEMENT_COUNT; p++) {
        run r;
        run_begin(&r, &placements[p], 1);
        const uint64_t hash = train(&r, 2, 0.002f);
        for (int what = COH_FETCH_GRADIENT; what >= COH_FETCH_VALUE; what--) {
            all = (gathered){ .seen = 0 };
            assert_int_equal(coh_engine_fetch_all(r.engine, (coh_fetch)what, gather, &all), COH_OK);
            assert_int_equal(all.seen, elements);
            for (int i = 0; i < 2 * SMALL_LAYERS; i++) {
                fetch_into(&r, i, (coh_fetch)what, values);
                assert_memory_equal(all.values[i], values, sizeof(values));
            }
        }
        all = (gathered){ .fails_after = SMALL_ELEMENTS };
        assert_int_equal(coh_engine_fetch_all(r.engine, COH_FETCH_VALUE, gather, &all), COH_ERR_IO);
        assert_non_null(strstr(coh_last_error(), "no room for layer"));
        uint64_t again = 0;
        assert_int_equal(coh_engine_hash(r.engine, &again), COH_OK);
        assert_true(again == hash);
        run_end(&r);
    }
}

static void run_evaluate(run *r)
{
    const coh_step_input in = step_input(9, 0);
    double loss;
    if (coh_engine_evaluate(r->engine, &in, &loss) != COH_OK)
        fail_msg("evaluate: %s", coh_last_error());
}

static void run_put(run *r)
{
    static const float one = 1;
    if (coh_engine_put(r->engine, (coh_parameter){ 2 }, 5, 1, &one) != COH_OK)
        fail_msg("put: %s", coh_last_error());
}

static void run_drain(run *r)
{
    if (coh_engine_drain(r->engine) != COH_OK)
        fail_msg("drain: %s", coh_last_error());
}

static void run_values(run *r)
{
    fetch_into(r, 1, COH_FETCH_VALUE, values);
}

static void run_hash_only(run *r)
{
    (void)run_hash(r);
}

static void run_init(run *r)
{
    assert_int_equal(coh_engine_init(r->engine, 42), COH_OK);
}

static void run_save(run *r)
{
    const coh_checkpoint_note note = { sizeof(note), 1, "{}" };
    if (coh_engine_save(r->engine, folder_file("gradient"), &note) != COH_OK)
        fail_msg("save: %s", coh_last_error());
}

static void run_load(run *r)
{
    if (coh_engine_load(r->engine, folder_file("gradient"), NULL) != COH_OK)
        fail_msg("load: %s", coh_last_error());
}

static void check_gradients(run *r, float expected[2 * SMALL_LAYERS][SMALL_ELEMENTS])
{
    for (int i = 0; i < 2 * SMALL_LAYERS; i++) {
        fetch_into(r, i, COH_FETCH_GRADIENT, values);
        assert_memory_equal(values, expected[i], sizeof(values));
    }
}

/* As coh_engine_fetch says. Gradients of an earlier step would be others. */
static void gradients_are_kept_until_the_next_step_init_or_load(void **state)
{
    (void)state;
    static void (*const keep[])(run *) = { run_drain,     run_values, run_evaluate,
                                           run_hash_only, run_put,    run_save };
    static void (*const clear[])(run *) = { run_init, run_load };
    static float expected[2 * SMALL_LAYERS][SMALL_ELEMENTS];
    static float zeros[2 * SMALL_LAYERS][SMALL_ELEMENTS];
    for (int p = 0; p < PLACEMENT_COUNT; p++) {
        run r;
        coh_step_result result = { .struct_bytes = sizeof(result) };
        run_begin(&r, &placements[p], 1);
        check_gradients(&r, zeros);
        for (size_t i = 0; i < sizeof(clear) / sizeof(clear[0]); i++) {
            run_step(&r, 0, 0.002f, &result);
            run_step(&r, 1, 0.002f, &result);
            for (int k = 0; k < 2 * SMALL_LAYERS; k++)
                fetch_into(&r, k, COH_FETCH_GRADIENT, expected[k]);
            assert_memory_not_equal(expected[0], zeros[0], sizeof(zeros[0]));
            for (size_t call = 0; call < sizeof(keep) / sizeof(keep[0]) - i; call++) {
                keep[call](&r);
                check_gradients(&r, expected);
            }
            clear[i](&r);
            check_gradients(&r, zeros);
        }
        remove_checkpoint(folder_file("gradient"));
        run_end(&r);
    }
}

/* ---- non-finite numbers ---- */

static void a_step_that_is_not_finite_changes_nothing_and_is_named(void **state)
{
    (void)state;
    run r;
    run_begin(&r, &placements[2], 1);
    uint64_t expected = train(&r, 4, 0.002f);
    assert_int_equal(coh_engine_init(r.engine, 42), COH_OK);
    coh_step_result result = { .struct_bytes = sizeof(result) };
    for (uint64_t step = 0; step < 2; step++)
        run_step(&r, step, 0.002f, &result);
    /* Submits the broken step, and one more on the same parameters before the host detects it. */
    coh_step_input broken = step_input(2, 0.002f);
    broken.seed = SMALL_BROKEN_SEED;
    assert_int_equal(coh_engine_submit(r.engine, &broken), COH_OK);
    const coh_step_input next = step_input(3, 0.002f);
    assert_int_equal(coh_engine_submit(r.engine, &next), COH_OK);
    assert_int_equal(coh_engine_wait(r.engine, &result), COH_OK);
    assert_int_equal(result.finite, 0);
    assert_int_equal(result.applied_count, 2);
    coh_step_result later = { .struct_bytes = sizeof(later) };
    assert_int_equal(coh_engine_wait(r.engine, &later), COH_OK);
    char sentence[256];
    broken = step_input(2, 0.002f);
    broken.seed = SMALL_BROKEN_SEED;
    assert_int_equal(coh_engine_scan(r.engine, &broken, result.applied_count, sentence), COH_OK);
    assert_non_null(strstr(sentence, "layer2"));
    assert_non_null(strstr(sentence, "FORWARD"));
    /* Neither the broken step nor the discarded one has changed anything. */
    run_step(&r, 2, 0.002f, &result);
    assert_int_equal(result.applied_count, 3);
    run_step(&r, 3, 0.002f, &result);
    assert_true(run_hash(&r) == expected);
    run_end(&r);
}

/* Refused scans change nothing: the hash is that of the same steps without them. */
static void only_a_broken_step_is_scanned(void **state)
{
    (void)state;
    char sentence[256];
    run r;
    coh_step_result result = { .struct_bytes = sizeof(result) };
    const coh_step_input first = step_input(0, 0.002f), last = step_input(3, 0.002f);
    coh_step_input broken = step_input(1, 0.002f);
    broken.seed = SMALL_BROKEN_SEED;
    for (int scans = 0; scans < 2; scans++) {
        static uint64_t hash;
        run_begin(&r, &placements[0], 1);
        run_step(&r, 0, 0.002f, &result);
        if (scans) {
            assert_int_equal(coh_engine_scan(r.engine, &first, result.applied_count, sentence),
                             COH_ERR_ARGUMENT);
            assert_non_null(strstr(coh_last_error(), "there is none to go back to"));
        }
        assert_int_equal(coh_engine_step(r.engine, &broken, &result), COH_OK);
        assert_int_equal(result.finite, 0);
        if (scans) {
            assert_int_equal(coh_engine_scan(r.engine, &broken, 999, sentence), COH_ERR_ARGUMENT);
            assert_non_null(strstr(coh_last_error(), "another applied_count"));
        }
        run_step(&r, 2, 0.002f, &result);
        const uint64_t between = run_hash(&r); /* makes the update */
        if (scans) {
            assert_int_equal(coh_engine_scan(r.engine, &broken, 1, sentence), COH_ERR_ARGUMENT);
            assert_non_null(strstr(coh_last_error(), "has been made"));
            assert_true(run_hash(&r) == between);
        }
        assert_int_equal(coh_engine_step(r.engine, &last, &result), COH_OK);
        if (scans)
            assert_int_equal(coh_engine_scan(r.engine, &broken, 1, sentence), COH_ERR_ARGUMENT);
        if (scans)
            assert_true(run_hash(&r) == hash);
        else
            hash = run_hash(&r);
        run_end(&r);
    }
}

static void a_broken_number_is_never_saved(void **state)
{
    (void)state;
    const char *path = folder_file("save");
    run r;
    run_begin(&r, &placements[2], 0);
    coh_step_input broken = step_input(0, 0);
    broken.seed = SMALL_BROKEN_SEED;
    coh_step_result result = { .struct_bytes = sizeof(result) };
    assert_int_equal(coh_engine_step(r.engine, &broken, &result), COH_OK);
    assert_int_equal(result.finite, 0);
    char sentence[256];
    assert_int_equal(coh_engine_scan(r.engine, &broken, 0, sentence), COH_ERR_ARGUMENT);
    const coh_checkpoint_note note = { .struct_bytes = sizeof(note), .step = 1, .json = "{}" };
    assert_int_equal(coh_engine_save(r.engine, path, &note), COH_ERR_NUMBER);
    assert_int_not_equal(access(path, F_OK), 0);
    /* A failed save does not end the engine. */
    assert_int_equal(coh_engine_init(r.engine, 42), COH_OK);
    assert_int_equal(coh_engine_save(r.engine, path, &note), COH_OK);
    remove_checkpoint(path);
    assert_int_equal(folder_count(), 0);
    run_end(&r);
}

/* ---- figures and faults ---- */

static void counted_peak_and_links_are_those_of_the_plan(void **state)
{
    (void)state;
    for (int p = 0; p < PLACEMENT_COUNT; p++) {
        run r;
        run_begin(&r, &placements[p], 1);
        coh_step_result result = { .struct_bytes = sizeof(result) };
        for (uint64_t step = 0; step < 3; step++)
            run_step(&r, step, 0, &result);
        run_hash(&r);
        run_step(&r, 3, 0, &result); /* a settled body, from its quiet point to CLIP */
        const coh_program *body = &r.plan->programs[COH_PROGRAM_BODY];
        uint64_t moved[COH_LANE_COUNT] = { 0 };
        for (uint32_t i = 0; i < body->instruction_count; i++)
            moved[body->instructions[i].lane] += body->instructions[i].bytes;
        for (int tier = 0; tier < COH_TIER_DISK; tier++)
            assert_int_equal(result.peak_bytes[tier], r.plan->layout.arena_bytes[tier]);
        for (int lane = COH_LANE_H2D; lane <= COH_LANE_WRITE; lane++)
            assert_true((result.link_bytes[lane] > 0) == (moved[lane] > 0));
        run_end(&r);
    }
}

static void nothing_is_allocated_from_the_second_step_on(void **state)
{
    (void)state;
    run r;
    run_begin(&r, &placements[5], 1);
    coh_step_result result = { .struct_bytes = sizeof(result) };
    run_step(&r, 0, 0.002f, &result);
    uint64_t before = alloc_count();
    for (uint64_t step = 1; step < 4; step++) {
        run_step(&r, step, 0.002f, &result);
        run_hash(&r);
        const coh_step_input in = step_input(step, 0);
        assert_int_equal(coh_engine_evaluate(r.engine, &in, NULL), COH_OK);
    }
    assert_int_equal(alloc_count(), before);
    run_end(&r);
}

/* Fails requests at a stride; short runs use a longer one. */
static void store_faults_end_the_run_with_a_sentence(void **state)
{
    (void)state;
    int hit_count = 0;
    run r;
    const coh_engine_device device = { .ops = &coh_device_host, .store_ops = &store_faulty_posix };
    run_prepare(&r, &placements[2], 1);
    for (int64_t n = 0;; n += test_is_short() ? 2 * 23 : 23) {
        const store_fault_plan faults = {
            .seed = 1, .fail_at = n, .short_at = -1, .flip_at = -1, .late_at = -1, .fail_errno = EIO
        };
        store_fault_plan_set(&faults);
        coh_status status = coh_engine_create_on(r.plan, &r.options, &device, &r.engine);
        if (status == COH_OK)
            status = coh_engine_init(r.engine, 42);
        coh_step_result result = { .struct_bytes = sizeof(result) };
        for (uint64_t step = 0; status == COH_OK && step < 2; step++) {
            const coh_step_input in = step_input(step, 0);
            status = coh_engine_step(r.engine, &in, &result);
        }
        uint64_t hash;
        if (status == COH_OK)
            status = coh_engine_hash(r.engine, &hash);
        int was_hit = store_fault_was_hit();
        store_fault_plan_set(NULL);
        hit_count += was_hit;
        assert_int_equal(status, was_hit ? COH_ERR_IO : COH_OK);
        if (was_hit && r.engine != NULL) {
            assert_true(coh_last_error()[0] != '\0');
            const coh_step_input in = step_input(0, 0);
            assert_int_equal(coh_engine_step(r.engine, &in, &result), COH_ERR_IO);
        }
        coh_engine_destroy(r.engine);
        r.engine = NULL;
        if (!was_hit)
            break;
    }
    run_end(&r);
    assert_true(hit_count > 3);
}

static coh_status train_once(run *r)
{
    coh_step_result result = { .struct_bytes = sizeof(result) };
    uint64_t hash;
    coh_status status = coh_engine_create(r->plan, &r->options, &r->engine);
    if (status == COH_OK)
        status = coh_engine_init(r->engine, 42);
    const coh_step_input in = step_input(0, 0.002f);
    if (status == COH_OK)
        status = coh_engine_step(r->engine, &in, &result);
    return status == COH_OK ? coh_engine_hash(r->engine, &hash) : status;
}

/* Short runs fail one in seven. */
static void every_failing_allocation_is_told_and_leaves_nothing(void **state)
{
    (void)state;
    run r;
    run_prepare(&r, &placements[5], 1);
    for (uint64_t n = 1;; n += test_is_brief() ? 21 : test_is_short() ? 7 : 1) {
        alloc_fail_nth(n);
        coh_status status = train_once(&r);
        int was_hit = alloc_fault_was_hit();
        alloc_fail_nth(0);
        assert_int_equal(status, was_hit ? COH_ERR_MEMORY : COH_OK);
        assert_true(was_hit || r.engine != NULL);
        coh_engine_destroy(r.engine);
        r.engine = NULL;
        if (!was_hit)
            break;
    }
    run_end(&r);
}

/* Checkpoints lie in a temporary folder, which is removed also where a test fails. */
#define in_folder(test) cmocka_unit_test_setup_teardown(test, folder_create, folder_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        in_folder(resumed_under_another_placement_gives_the_same_bits),
        in_folder(a_checkpoint_holds_every_bit_for_the_other_dtype),
        in_folder(a_frozen_parameter_takes_what_its_dtype_holds_of_a_checkpoint),
        cmocka_unit_test(an_instruction_that_visits_half_a_master_is_refused),
        cmocka_unit_test(an_engine_without_values_refuses_to_run),
        cmocka_unit_test(first_values_are_a_function_of_seed_parameter_and_element),
        cmocka_unit_test(first_values_may_come_from_a_source),
        cmocka_unit_test(what_the_caller_gives_is_checked_and_a_failure_has_a_reason),
        cmocka_unit_test(all_values_and_gradients_come_in_one_pass),
        in_folder(gradients_are_kept_until_the_next_step_init_or_load),
        cmocka_unit_test(a_step_that_is_not_finite_changes_nothing_and_is_named),
        in_folder(only_a_broken_step_is_scanned),
        in_folder(a_broken_number_is_never_saved),
        cmocka_unit_test(counted_peak_and_links_are_those_of_the_plan),
        cmocka_unit_test(nothing_is_allocated_from_the_second_step_on),
        cmocka_unit_test(every_failing_allocation_is_told_and_leaves_nothing),
        cmocka_unit_test(store_faults_end_the_run_with_a_sentence),
    };
    return run_in_each_dtype(tests);
}
