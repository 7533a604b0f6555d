/* The check of a kind (cohobate/op_check.h) on a GPU: the library's kinds pass, with guards around
 * every buffer, NaN in what they must not read, their gradients compared with differences, and
 * recorded into a CUDA graph. Kinds with atomics are left out, because their bits vary. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "tests/cuda/gpu_check.h"
#include "tests/engine/op_shapes.h"
#include "tests/length.h"

/* An emulated GPU takes some seconds for a larger shape. */
enum { ELEMENTS_MOST = 1000 };
/* Each check opens the GPU: one of this many shapes is checked, and all with a weight in NF4. */
enum { STRIDE = 5, PACKED_LEAST = 2 };

static void take(void *context, const coh_op_finding *finding)
{
    snprintf(context, 1024, "%s", finding->sentence);
}

static int is_left_out(const shape_case *one)
{
    return one->is_large || one->kind->atomics ||
           one->kind->devices[COH_DEVICE_CUDA].forward == NULL ||
           (test_is_short() && coh_shape_elements(&one->inputs[0]) > ELEMENTS_MOST);
}

static void kinds_of_the_library_pass(void **state)
{
    (void)state;
    int compared = 0, cases = 0, packed = 0;
    for (int index = 0; index < SHAPE_CASES; index++) {
        const shape_case *from = shape_case_at(index);
        char sentence[1024] = "";
        coh_case one;
        coh_shape inputs[4];
        coh_op_report report = { .struct_bytes = sizeof(report) };
        coh_op_check_options options = {
            .struct_bytes = sizeof(options), .found = take, .context = sentence, .device = "cuda:0"
        };
        if (is_left_out(from) || (index % STRIDE != 0 && !op_shape_is_packed(from)))
            continue;
        op_shape_create(&one, index, inputs, &options);
        if (coh_op_check(from->kind, &options, &report) != COH_OK)
            fail_msg("%s: %s", from->why, coh_last_error());
        if (report.finding_count > 0)
            fail_msg("%s: %s", from->why, sentence);
        compared += report.gradient_count > 0;
        packed += op_shape_is_packed(from) && report.gradient_count > 0;
        cases++;
        coh_case_destroy(&one);
    }
    printf("%d operators, %d with gradients, %d of those with a weight in nf4\n", cases, compared,
           packed);
    assert_true(cases >= 10 && compared >= cases / 4 && packed >= PACKED_LEAST);
}

int gpu_check_operators(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_of_the_library_pass),
    };
    return cmocka_run_group_tests_name("operators", tests, NULL, NULL);
}
