/* The check of a kind: planted mistakes are found with the right fault, port and cause, and right
 * kinds pass: those of op_mistakes.c and all of the library, at every shape of their tests, with
 * several seeds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "cohobate/cohobate.h"
#include "tests/engine/op_mistakes.h"
#include "tests/engine/op_shapes.h"
#include "tests/engine/stray.h"
#include "tests/length.h"

typedef struct findings {
    int count;
    coh_op_fault fault; /* of the first */
    char port[64], sentence[1024];
} findings;

static void take(void *context, const coh_op_finding *finding)
{
    findings *all = context;
    assert_int_equal(finding->struct_bytes, sizeof(*finding));
    if (all->count++ > 0)
        return;
    all->fault = finding->fault;
    snprintf(all->port, sizeof(all->port), "%s", finding->port);
    snprintf(all->sentence, sizeof(all->sentence), "%s", finding->sentence);
}

static coh_op_check_options options_for(const coh_shape *inputs, findings *all)
{
    *all = (findings){ 0 };
    return (coh_op_check_options){ .struct_bytes = sizeof(coh_op_check_options),
                                   .inputs = inputs,
                                   .seed = 1,
                                   .found = take,
                                   .context = all };
}

static void every_planted_mistake_is_found_with_its_cause(void **state)
{
    (void)state;
    int count = 0, missed = 0;
    for (const op_mistake *mistake; (mistake = op_mistake_at(count)) != NULL; count++) {
        findings all;
        const coh_op_check_options options = options_for(&mistake->input, &all);
        coh_op_report report = { .struct_bytes = sizeof(report) };
        assert_int_equal(coh_op_check(mistake->kind, &options, &report), COH_OK);
        assert_int_equal(report.finding_count, all.count);
        const int is_right = all.count > 0 && all.fault == mistake->fault &&
                             (mistake->port == NULL || strcmp(mistake->port, all.port) == 0) &&
                             (mistake->says == NULL || strstr(all.sentence, mistake->says));
        printf("%s %s: %s\n", is_right ? "found " : "MISSED", mistake->what,
               all.count > 0 ? all.sentence : "nothing");
        missed += !is_right;
    }
    assert_true(count >= 30);
    assert_int_equal(missed, 0);
}

/* Returns 1 if gradients were compared. */
static int must_pass(const char *name, const coh_op_kind *kind, const coh_op_check_options *options,
                     const findings *all)
{
    coh_op_report report = { .struct_bytes = sizeof(report) };
    if (coh_op_check(kind, options, &report) != COH_OK)
        fail_msg("%s: %s", name, coh_last_error());
    if (report.finding_count > 0)
        fail_msg("%s, seed %d: %s", name, (int)options->seed, all->sentence);
    return report.gradient_count > 0;
}

static void right_kinds_pass(void **state)
{
    (void)state;
    coh_shape input;
    const coh_op_kind *kind;
    int compared = 0;
    /* The thread sanitizer makes comparing guards slow. */
    const uint64_t seeds = test_seeks_races() ? 5 : 20;
    for (int i = 0; (kind = op_right_kind_at(i, &input)) != NULL; i++)
        for (uint64_t seed = 0; seed < seeds; seed++) {
            findings all;
            coh_op_check_options options = options_for(&input, &all);
            options.seed = seed;
            compared += must_pass(kind->name, kind, &options, &all);
        }
    printf("right kinds of the test: compared %d times\n", compared);
    assert_true(compared >= 8 * (int)(seeds - 1));
}

static void all_kinds_of_the_library_pass(void **state)
{
    (void)state;
    int compared = 0, cases = 0, packed = 0;
    const int stride = test_seeks_races() ? 15 : test_is_brief() ? 5 : 1;
    for (int index = 0; index < SHAPE_CASES; index++) {
        const shape_case *from = shape_case_at(index);
        if ((from->is_large && test_is_brief()) ||
            (index % stride != 0 && !op_shape_is_packed(from)))
            continue;
        coh_case one;
        findings all;
        coh_shape inputs[4];
        coh_op_check_options options = options_for(inputs, &all);
        op_shape_create(&one, index, inputs, &options);
        const int has_gradients = must_pass(from->why, from->kind, &options, &all);
        compared += has_gradients;
        packed += has_gradients && op_shape_is_packed(from);
        cases++;
        coh_case_destroy(&one);
    }
    printf("right kinds of the library: %d shapes, %d with gradients\n", cases, compared);
    assert_true(compared >= cases / 3);
    assert_true(packed >= 4); /* each kind that has a weight in NF4, in f32 */
}

static void the_parts_of_one_tensor_may_be_used_alone(void **state)
{
    (void)state;
    const coh_rope_split_attributes attributes = { 2, { .heads = 4, .theta = 1e4 } };
    const coh_dtype dtypes[] = { COH_DTYPE_F32, COH_DTYPE_BF16 };
    for (int i = 0; i < 2; i++) {
        findings all;
        const coh_shape qkv = { dtypes[i], 3, { 2, 5, (4 + 2 * 2) * 6 } };
        coh_op_check_options options = options_for(&qkv, &all);
        options.attributes = &attributes;
        options.attribute_bytes = sizeof(attributes);
        assert_int_equal(must_pass("rope_split", &coh_kind_rope_split, &options, &all), i == 0);
    }
}

/* Runs the check of the stray kind with one write. */
static void check_stray(int64_t from, int64_t bytes, findings *all)
{
    const coh_shape row = F32(STRAY_ITEMS);
    const coh_op_check_options options = options_for(&row, all);
    coh_op_report report = { .struct_bytes = sizeof(report) };
    stray.from = from;
    stray.bytes = bytes;
    assert_int_equal(coh_op_check(&stray_kind, &options, &report), COH_OK);
    assert_int_equal(report.finding_count, all->count);
}

/* Up to the distances of guard.h, and with any length, the finding names the workspace. */
static void a_write_far_from_its_buffer_is_found(void **state)
{
    (void)state;
    static const int64_t behind[] = { 0, 252, 256, 512, 1024, 4096, 65536, 98240 };
    static const int64_t before[] = { 4, 256, 260, 4096, 32768 };
    static const int64_t lengths[] = { 4096, 128 << 10, 1 << 20 };
    char place[64];
    findings all;
    check_stray(0, STRAY_SCRATCH, &all);
    assert_int_equal(all.count, 0);
    for (size_t i = 0; i < sizeof(behind) / sizeof(behind[0]); i++) {
        check_stray(STRAY_SCRATCH + behind[i], 4, &all);
        snprintf(place, sizeof(place), ": workspace, element %" PRId64 ":", 64 + behind[i]);
        if (all.fault != COH_OP_FAULT_WRITES_OUTSIDE || strstr(all.sentence, place) == NULL)
            fail_msg("%" PRId64 " bytes behind: %s", behind[i], all.sentence);
        assert_int_equal(all.count, 1);
    }
    for (size_t i = 0; i < sizeof(before) / sizeof(before[0]); i++) {
        check_stray(-before[i], 4, &all);
        snprintf(place, sizeof(place), ": workspace, element %" PRId64 ":", 3 - before[i]);
        if (all.fault != COH_OP_FAULT_WRITES_OUTSIDE || strstr(all.sentence, place) == NULL)
            fail_msg("%" PRId64 " bytes before: %s", before[i], all.sentence);
    }
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        check_stray(STRAY_SCRATCH, lengths[i], &all);
        if (strstr(all.sentence, "outside its buffers: workspace, element 64:") == NULL)
            fail_msg("%" PRId64 " bytes: %s", lengths[i], all.sentence);
    }
}

/* Of other buffers' guards, or a crash. */
static void a_write_still_farther_is_found_too(void **state)
{
    (void)state;
    static const int64_t away[] = { 99 << 10, 127 << 10, -(127 << 10) };
    findings all;
    for (size_t i = 0; i < sizeof(away) / sizeof(away[0]); i++) {
        check_stray((away[i] > 0 ? STRAY_SCRATCH : 0) + away[i], 4, &all);
        assert_int_equal(all.fault, COH_OP_FAULT_WRITES_OUTSIDE);
    }
    check_stray((int64_t)64 << 20, 4, &all);
    assert_int_equal(all.fault, COH_OP_FAULT_CRASHED);
    check_stray(-((int64_t)64 << 20), 4, &all);
    assert_int_equal(all.fault, COH_OP_FAULT_CRASHED);
    assert_int_equal(all.count, 1);
}

/* Such a program cannot ask how a child ended. */
static void a_program_that_ignores_its_children_gets_the_same_findings(void **state)
{
    (void)state;
    const op_mistake *mistake;
    void (*before)(int) = signal(SIGCHLD, SIG_IGN);
    int crashes = 0;
    for (int i = 0; (mistake = op_mistake_at(i)) != NULL; i++) {
        findings all;
        const coh_op_check_options options = options_for(&mistake->input, &all);
        coh_op_report report = { .struct_bytes = sizeof(report) };
        if (mistake->fault != COH_OP_FAULT_CRASHED && mistake->fault != COH_OP_FAULT_SKIPS)
            continue;
        assert_int_equal(coh_op_check(mistake->kind, &options, &report), COH_OK);
        assert_int_equal(all.fault, mistake->fault);
        crashes++;
    }
    assert_int_equal(crashes, 3);
    signal(SIGCHLD, before);
}

static void wrong_options_are_refused(void **state)
{
    (void)state;
    const coh_shape input = F32(3, 5), zero = F32(3, 0), large = F32(1 << 14, 1 << 14);
    findings all;
    coh_op_check_options options = options_for(&input, &all);
    coh_op_report report = { .struct_bytes = sizeof(report) };
    options.in_process = 1;
    assert_int_equal(coh_op_check(&coh_kind_relu, &options, &report), COH_OK);
    assert_int_equal(report.gradient_count, 1);
    assert_int_equal(coh_op_check(NULL, &options, &report), COH_ERR_ARGUMENT);
    assert_int_equal(coh_op_check(&coh_kind_relu, NULL, &report), COH_ERR_ARGUMENT);
    options.thread_count = -1;
    assert_int_equal(coh_op_check(&coh_kind_relu, &options, &report), COH_ERR_ARGUMENT);
    options.thread_count = 1;
    options.inputs = NULL;
    assert_int_equal(coh_op_check(&coh_kind_relu, &options, &report), COH_ERR_ARGUMENT);
    options.inputs = &zero;
    assert_int_equal(coh_op_check(&coh_kind_relu, &options, &report), COH_ERR_SHAPE);
    options.inputs = &large;
    assert_int_equal(coh_op_check(&coh_kind_relu, &options, &report), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "smaller shapes"));
    for (int fault = -1; fault <= COH_OP_FAULT_COUNT; fault++)
        assert_true(strlen(coh_op_fault_name((coh_op_fault)fault)) > 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_planted_mistake_is_found_with_its_cause),
        cmocka_unit_test(right_kinds_pass),
        cmocka_unit_test(all_kinds_of_the_library_pass),
        cmocka_unit_test(the_parts_of_one_tensor_may_be_used_alone),
        cmocka_unit_test(a_write_far_from_its_buffer_is_found),
        cmocka_unit_test(a_write_still_farther_is_found_too),
        cmocka_unit_test(a_program_that_ignores_its_children_gets_the_same_findings),
        cmocka_unit_test(wrong_options_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
