/* Kinds with CUDA's kernels compared with naive loops in double (tests/reference): every shape of
 * tests/kernels/shapes.h, both element types, outputs and scratch full of NaN before, scratch of
 * exactly the size for CUDA, each run twice for the same bits. attention_checks.h covers
 * attention. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/index_check.h"
#include "tests/cuda/twins.h"
#include "tests/kernels/shapes.h"
#include "tests/reference/reference.h"

enum { INPUTS = COH_REFERENCE_INPUTS, GRADIENTS = INPUTS + 2, GUARD = 0x5a, GUARD_BYTES = 256 };

typedef struct checked {
    const char *why;
    coh_case one;
    coh_reference expected;
    void *workspace[COH_PHASE_COUNT];
    coh_cuda_index_note note;
    coh_cuda_index_checks checks;
} checked;

static int is_elsewhere(int index)
{
    const coh_op_kind *kind = shape_case_at(index)->kind;
    return kind->devices[COH_DEVICE_CUDA].forward == NULL ||
           strstr(kind->name, "attention") != NULL;
}

/* Shapes with more tokens than a chunk of the host's, but not of CUDA's: one test of them is
 * enough. */
static int is_for_the_host(int index)
{
    const shape_case *one = shape_case_at(index);
    return one->kind->is_loss && coh_shape_elements(&one->inputs[1]) > 1000;
}

static size_t workspace_bytes(const coh_case *one, coh_phase phase)
{
    coh_shape inputs[INPUTS];
    for (int i = 0; i < INPUTS; i++)
        inputs[i] = one->call.input[i].shape;
    const coh_kind_device *on = &one->kind->devices[COH_DEVICE_CUDA];
    return on->workspace != NULL ? on->workspace(one->attributes, inputs, phase)
                                 : one->facts.workspace_bytes[phase];
}

/* `widens`: gradients of bf16 parameters are f32. */
static void open_case_as(checked *c, int index, int widens)
{
    *c = (checked){ .why = shape_case_at(index)->why };
    coh_case *one = &c->one;
    shape_case_create(one, index, 8);
    one->wait = coh_twins_wait;
    coh_case_scale_loss(one, 0.125f);
    if (widens)
        coh_case_widen(one);
    coh_reference_create(&c->expected, one);
    if (coh_twins_has_library())
        c->expected.rounds_products = c->expected.store;
    coh_reference_forward(&c->expected);
    coh_reference_backward(&c->expected);
    for (int phase = 0; phase < COH_PHASE_COUNT; phase++) {
        const size_t bytes = workspace_bytes(one, (coh_phase)phase);
        one->facts.workspace_bytes[phase] = bytes;
        c->workspace[phase] = coh_twins_memory(bytes + GUARD_BYTES);
        memset((char *)c->workspace[phase] + bytes, GUARD, GUARD_BYTES);
    }
    for (int i = 0; i < one->block_count; i++)
        coh_twins_share(one->blocks[i], one->block_bytes[i]);
    c->checks.note = c->checks.there = &c->note;
}

static void open_case(checked *c, int index)
{
    open_case_as(c, index, 0);
}

static void close_case(checked *c)
{
    for (int phase = 0; phase < COH_PHASE_COUNT; phase++) {
        const unsigned char *guard = (const unsigned char *)c->workspace[phase];
        for (int i = 0; i < GUARD_BYTES; i++)
            if (guard[c->one.facts.workspace_bytes[phase] + (size_t)i] != GUARD)
                fail_msg("%s: phase %d writes behind its scratch", c->why, phase);
    }
    assert_int_equal(coh_cuda_index_checks_look(&c->checks), COH_OK);
    for (int i = 0; i < c->one.block_count; i++)
        coh_twins_unshare(c->one.blocks[i]);
    coh_reference_destroy(&c->expected);
    coh_case_destroy(&c->one);
    coh_twins_release();
}

/* ---- calls ---- */

typedef struct phase_call {
    checked *of;
    coh_phase phase;
    int in_ranges;
} phase_call;

static void run_phase(void *queue, const void *argument)
{
    const phase_call *call = argument;
    coh_case *one = &call->of->one;
    const int64_t blocks = one->kind->gpu_row_blocks > 1 ? one->kind->gpu_row_blocks : 1;
    coh_status status;
    one->call.workspace = call->of->workspace[call->phase];
    if (call->phase == COH_PHASE_FORWARD)
        status = call->in_ranges ? coh_case_forward_ranges(one, queue, blocks)
                                 : coh_case_forward(one, queue);
    else
        status = call->in_ranges ? coh_case_backward_ranges(one, queue, blocks)
                                 : coh_case_backward(one, queue);
    assert_int_equal(status, COH_OK);
}

static void run(checked *c, coh_phase phase, int turn, int in_ranges)
{
    const phase_call call = { c, phase, in_ranges };
    const coh_twins_line line = { .checks = &c->checks, .has_own_products = 1 };
    coh_twins_enqueue(run_phase, &call, turn, &line);
}

static void hash_bytes(void *context, const char *name, const void *data, size_t count)
{
    uint64_t *hash = context;
    (void)name;
    for (size_t i = 0; i < count; i++)
        *hash = (*hash ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
}

/* Runs forward and backward; returns the hash of the results. */
static uint64_t run_both(checked *c, int turn, int in_ranges)
{
    uint64_t hash = 0xcbf29ce484222325u;
    run(c, COH_PHASE_FORWARD, turn, in_ranges);
    run(c, COH_PHASE_BACKWARD, turn, in_ranges);
    coh_case_results(&c->one, hash_bytes, &hash);
    return hash;
}

/* ---- claims ---- */

static void must_agree(const checked *c, const char *what, const coh_array *expected,
                       const coh_view *got, const double *before)
{
    if (expected->count > 0 && !coh_reference_agrees(what, expected, got, before))
        fail_msg("%s, %s", c->why, c->expected.store > 0 ? "bf16" : "f32");
}

static coh_view *gradient_at(checked *c, int i)
{
    coh_call *call = &c->one.call;
    return i < INPUTS ? &call->input_grad[i] : &call->parameter_grad[i - INPUTS];
}

/* Checks the gradients of inputs, then of parameters. */
static void check_gradients(checked *c, double *const before[GRADIENTS])
{
    static const char *const names[GRADIENTS] = { "dinput 0", "dinput 1", "dinput 2",
                                                  "dparameter 0", "dparameter 1" };
    const coh_reference *r = &c->expected;
    for (int i = 0; i < GRADIENTS; i++)
        must_agree(c, names[i], i < INPUTS ? &r->input_grad[i] : &r->parameter_grad[i - INPUTS],
                   gradient_at(c, i), before != NULL ? before[i] : NULL);
}

static void kinds_are_the_naive_loops_twice_the_same(void **state)
{
    (void)state;
    for (int index = 0; index < SHAPE_CASES; index++) {
        checked c;
        if (is_elsewhere(index))
            continue;
        open_case(&c, index);
        const uint64_t hash = run_both(&c, 0, 0);
        must_agree(&c, "output", &c.expected.output, &c.one.call.output[0], NULL);
        check_gradients(&c, NULL);
        if (run_both(&c, 1, 0) != hash)
            fail_msg("%s: other bits the second time", c.why);
        close_case(&c);
    }
}

static void gradients_are_added_to_what_is_there(void **state)
{
    (void)state;
    for (int index = 0; index < SHAPE_CASES; index++) {
        const coh_op_kind *kind = shape_case_at(index)->kind;
        checked c;
        double *before[GRADIENTS];
        if (is_elsewhere(index) || is_for_the_host(index) ||
            (kind->can_add_grad.inputs | kind->can_add_grad.parameters) == 0)
            continue;
        open_case(&c, index);
        (void)run_both(&c, 1, 0);
        for (int i = 0; i < GRADIENTS; i++)
            before[i] = coh_doubles_of(gradient_at(&c, i));
        c.one.call.input_grad_adds = kind->can_add_grad.inputs;
        c.one.call.parameter_grad_adds = kind->can_add_grad.parameters;
        run(&c, COH_PHASE_FORWARD, 1, 0); /* backward may have overwritten forward's results */
        run(&c, COH_PHASE_BACKWARD, 1, 0);
        check_gradients(&c, before);
        for (int i = 0; i < GRADIENTS; i++)
            free(before[i]);
        close_case(&c);
    }
}

static void gradients_of_parameters_may_be_f32(void **state)
{
    (void)state;
    for (int index = SHAPE_COUNT; index < SHAPE_CASES; index++) {
        const coh_op_kind *kind = shape_case_at(index)->kind;
        checked c;
        double *before[GRADIENTS] = { 0 };
        if (kind->can_widen_grad == 0 || is_for_the_host(index))
            continue;
        open_case_as(&c, index, 1);
        (void)run_both(&c, 1, 0);
        check_gradients(&c, NULL);
        for (int i = INPUTS; i < GRADIENTS; i++)
            before[i] = coh_doubles_of(gradient_at(&c, i));
        c.one.call.parameter_grad_adds = kind->can_add_grad.parameters;
        run(&c, COH_PHASE_FORWARD, 1, 0);
        run(&c, COH_PHASE_BACKWARD, 1, 0);
        check_gradients(&c, before);
        for (int i = INPUTS; i < GRADIENTS; i++)
            free(before[i]);
        close_case(&c);
    }
}

/* Kinds sliced by columns are multiplied by a library, which may choose an algorithm by the
 * slice. */
static void ranges_of_rows_change_no_bit(void **state)
{
    (void)state;
    for (int index = 0; index < SHAPE_CASES; index++) {
        const coh_op_kind *kind = shape_case_at(index)->kind;
        checked c;
        if (kind->row_split_parameters == 0 || kind->column_slices || is_for_the_host(index))
            continue;
        open_case(&c, index);
        const uint64_t hash = run_both(&c, 1, 0);
        if (run_both(&c, 1, 1) != hash)
            fail_msg("%s: other bits in ranges", c.why);
        close_case(&c);
    }
}

int coh_twins_kinds(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_are_the_naive_loops_twice_the_same),
        cmocka_unit_test(gradients_are_added_to_what_is_there),
        cmocka_unit_test(gradients_of_parameters_may_be_f32),
        cmocka_unit_test(ranges_of_rows_change_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
