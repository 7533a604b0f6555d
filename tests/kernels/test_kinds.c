/* Every kind, at every shape of shapes.h, compared with the naive double-precision reference.
 * Promises of the tables are tested by coh_op_check (tests/engine/test_op_check.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/pool.h"
#include "tests/kernels/shapes.h"
#include "tests/length.h"
#include "tests/reference/reference.h"

static coh_pool *pool;

static int make_pool(void **state)
{
    (void)state;
    return coh_pool_create(2, &pool) == COH_OK ? 0 : -1;
}

static int drop_pool(void **state)
{
    (void)state;
    coh_pool_destroy(pool);
    return 0;
}

static void must_agree(int index, const char *what, const coh_array *expected, const coh_view *got,
                       const double *before)
{
    if (expected->count > 0 && !coh_reference_agrees(what, expected, got, before))
        fail_msg("%s, %s", shape_case_at(index)->why, index < SHAPE_COUNT ? "f32" : "bf16");
}

/* In short runs a sanitizer sees the large cases in one or two tests only, and in most other tests
 * each shape in one of the two dtypes. */
static int is_left_out(int index)
{
    const int in_bf16 = index >= SHAPE_COUNT;
    return test_is_brief() &&
           (shape_case_at(index)->is_large || index % SHAPE_COUNT % 2 != in_bf16);
}

static int next_case(int index)
{
    do
        index++;
    while (index < SHAPE_CASES && is_left_out(index));
    return index;
}

/* Gradients of inputs, then of parameters. */
enum { INPUTS = COH_REFERENCE_INPUTS, GRADIENTS = INPUTS + 2 };

static coh_view *gradient_at(coh_case *one, int i)
{
    return i < INPUTS ? &one->call.input_grad[i] : &one->call.parameter_grad[i - INPUTS];
}

static void check_gradients(int index, coh_case *one, const coh_reference *r,
                            double *const before[GRADIENTS])
{
    static const char *const names[GRADIENTS] = { "dinput 0", "dinput 1",     "dinput 2",
                                                  "dinput 3", "dparameter 0", "dparameter 1" };
    for (int i = 0; i < GRADIENTS; i++) {
        const coh_array *expected = i < INPUTS ? &r->input_grad[i] : &r->parameter_grad[i - INPUTS];
        must_agree(index, names[i], expected, gradient_at(one, i), before ? before[i] : NULL);
    }
}

static void forward_and_backward_agree_with_double_precision(void **state)
{
    (void)state;
    for (int index = 0; index < SHAPE_CASES;
         index = test_seeks_races() ? SHAPE_CASES : index + 1) { /* one thread's values */
        coh_case one;
        coh_reference r;
        shape_case_create(&one, index, 5);
        coh_case_scale_loss(&one, 0.125f);
        coh_reference_create(&r, &one);
        coh_reference_forward(&r);
        coh_reference_backward(&r);
        assert_int_equal(coh_case_forward(&one, pool), COH_OK);
        must_agree(index, "output", &r.output, &one.call.output[0], NULL);
        assert_int_equal(coh_case_backward(&one, pool), COH_OK);
        check_gradients(index, &one, &r, NULL);
        coh_reference_destroy(&r);
        coh_case_destroy(&one);
    }
}

static void every_gradient_can_be_added_to(void **state)
{
    (void)state;
    for (int index = 0; index < SHAPE_CASES; index = next_case(index)) {
        const coh_op_kind *kind = shape_case_at(index)->kind;
        coh_case one;
        coh_reference r;
        shape_case_create(&one, index, 6);
        coh_reference_create(&r, &one);
        coh_reference_backward(&r);
        assert_int_equal(coh_case_forward(&one, pool), COH_OK);
        assert_int_equal(coh_case_backward(&one, pool), COH_OK);
        one.call.input_grad_adds = kind->can_add_grad.inputs;
        one.call.parameter_grad_adds = kind->can_add_grad.parameters;
        double *before[GRADIENTS];
        for (int i = 0; i < GRADIENTS; i++)
            before[i] = coh_doubles_of(gradient_at(&one, i));
        assert_int_equal(coh_case_backward(&one, pool), COH_OK);
        check_gradients(index, &one, &r, before);
        for (int i = 0; i < GRADIENTS; i++)
            free(before[i]);
        coh_reference_destroy(&r);
        coh_case_destroy(&one);
    }
}

/* They are written and added to without rounding to bf16, also in ranges of rows. */
static void gradients_of_parameters_may_be_f32(void **state)
{
    (void)state;
    int widened = 0;
    for (int index = SHAPE_COUNT; index < SHAPE_CASES; index++) {
        if (test_is_brief() && shape_case_at(index)->is_large)
            continue;
        coh_case one;
        coh_reference r;
        double *before[GRADIENTS] = { 0 };
        shape_case_create(&one, index, 6);
        const int count = coh_case_widen(&one);
        coh_reference_create(&r, &one);
        coh_reference_backward(&r);
        for (int in_ranges = 0; count > 0 && in_ranges < 2; in_ranges++) {
            if (in_ranges && one.facts.parameter[0].row_block == 0)
                continue;
            one.call.parameter_grad_adds = 0;
            for (int adds = 0; adds < 2; adds++) {
                for (int i = INPUTS; adds && i < GRADIENTS; i++)
                    before[i] = coh_doubles_of(gradient_at(&one, i));
                if (adds)
                    one.call.parameter_grad_adds = one.kind->can_add_grad.parameters;
                assert_int_equal(coh_case_forward(&one, pool), COH_OK);
                assert_int_equal(in_ranges ? coh_case_backward_ranges(&one, pool, 1)
                                           : coh_case_backward(&one, pool),
                                 COH_OK);
                check_gradients(index, &one, &r, adds ? before : NULL);
            }
            for (int i = INPUTS; i < GRADIENTS; i++)
                free(before[i]);
        }
        widened += count;
        coh_reference_destroy(&r);
        coh_case_destroy(&one);
    }
    assert_true(widened >= 30);
}

/* ---- bits ---- */

static void hash_bytes(void *context, const char *name, const void *data, size_t count)
{
    uint64_t *hash = context;
    (void)name;
    const unsigned char *bytes = data;
    for (size_t i = 0; i < count; i++)
        *hash = (*hash ^ bytes[i]) * 0x100000001b3u;
}

static uint64_t hash_results(coh_case *one)
{
    uint64_t hash = 0xcbf29ce484222325u;
    coh_case_results(one, hash_bytes, &hash);
    return hash;
}

static uint64_t whole_hash(coh_case *one, void *queue)
{
    assert_int_equal(coh_case_forward(one, queue), COH_OK);
    assert_int_equal(coh_case_backward(one, queue), COH_OK);
    return hash_results(one);
}

static void the_number_of_threads_changes_no_bit(void **state)
{
    (void)state;
    for (int threads = test_is_brief() ? 3 : 1; threads <= 3; threads++) {
        coh_pool *other;
        assert_int_equal(coh_pool_create(threads, &other), COH_OK);
        for (int index = 0; index < SHAPE_CASES; index += test_seeks_races() ? 3 : 1) {
            coh_case one;
            shape_case_create(&one, index, 7);
            const uint64_t alone = whole_hash(&one, NULL);
            assert_int_equal(whole_hash(&one, other), alone);
            coh_case_destroy(&one);
        }
        coh_pool_destroy(other);
    }
}

static void ranges_of_rows_change_no_bit(void **state)
{
    (void)state;
    int split_cases = 0;
    for (int index = 0; index < SHAPE_CASES; index = next_case(index)) {
        if (shape_case_at(index)->kind->row_split_parameters == 0)
            continue;
        coh_case one;
        shape_case_create(&one, index, 8);
        if (one.facts.parameter[0].row_block == 0) { /* too small to be split */
            coh_case_destroy(&one);
            continue;
        }
        for (uint32_t adds = 0; adds < 2; adds++) {
            one.call.input_grad_adds = one.call.parameter_grad_adds = 0;
            uint64_t whole = whole_hash(&one, pool);
            if (adds) { /* the second backward adds to the first */
                one.call.input_grad_adds = one.call.parameter_grad_adds = 1;
                assert_int_equal(coh_case_backward(&one, pool), COH_OK);
                whole = hash_results(&one);
            }
            for (int64_t blocks = 1; blocks <= 3; blocks += test_is_brief() ? 2 : 1) {
                assert_int_equal(coh_case_forward_ranges(&one, pool, blocks), COH_OK);
                one.call.input_grad_adds = one.call.parameter_grad_adds = 0;
                assert_int_equal(coh_case_backward_ranges(&one, pool, blocks), COH_OK);
                if (adds) {
                    one.call.input_grad_adds = one.call.parameter_grad_adds = 1;
                    assert_int_equal(coh_case_backward_ranges(&one, pool, blocks), COH_OK);
                }
                assert_int_equal(hash_results(&one), whole);
                split_cases++;
            }
        }
        coh_case_destroy(&one);
    }
    assert_true(split_cases > 0);
}

static void a_cache_changes_no_bit(void **state)
{
    (void)state;
    int cached_cases = 0;
    for (int index = 0; index < SHAPE_CASES; index = next_case(index)) {
        coh_case one;
        shape_case_create(&one, index, 12);
        if (one.cache != NULL) {
            const uint64_t without = whole_hash(&one, pool);
            one.call.cache = one.cache;
            assert_int_equal(whole_hash(&one, pool), without);
            assert_int_equal(coh_case_forward_ranges(&one, pool, 1), COH_OK);
            assert_int_equal(coh_case_backward_ranges(&one, pool, 1), COH_OK);
            assert_int_equal(hash_results(&one), without);
            cached_cases++;
        }
        coh_case_destroy(&one);
    }
    assert_true(cached_cases >= (test_is_brief() ? 2 : 8));
}

/* Copies `width` channels, starting at `begin`, of rows of `wide`. */
static void take_part(void *to, const void *from, int64_t rows, int64_t wide, int64_t begin,
                      int64_t width, size_t element_bytes)
{
    for (int64_t n = 0; n < rows; n++)
        memcpy((char *)to + (size_t)(n * width) * element_bytes,
               (const char *)from + (size_t)(n * wide + begin) * element_bytes,
               (size_t)width * element_bytes);
}

static void three_tensors_have_the_bits_of_one(void **state)
{
    (void)state;
    enum { B = 2, T = 167, H = 3, D = 20, C = H * D, ROWS = B * T };
    const coh_attention_attributes heads = { H };
    const coh_attention_grouped_attributes grouped = { H, H };
    for (int dtype = 0; dtype < 2; dtype++) {
        coh_shape one_shape[] = { F32(B, T, 3 * C) };
        coh_shape shapes[] = { F32(B, T, C), F32(B, T, C), F32(B, T, C) };
        one_shape[0].dtype = dtype ? COH_DTYPE_BF16 : COH_DTYPE_F32;
        shapes[0].dtype = shapes[1].dtype = shapes[2].dtype = one_shape[0].dtype;
        const size_t element_bytes = coh_dtype_bytes(shapes[0].dtype);
        static float part[ROWS * C];
        coh_case one, three;
        coh_case_create(&one, &coh_kind_attention, &heads, one_shape, 31);
        coh_case_create(&three, &coh_kind_attention_grouped, &grouped, shapes, 31);
        for (int i = 0; i < 3; i++)
            take_part(three.call.input[i].data, one.call.input[0].data, ROWS, 3 * C, i * C, C,
                      element_bytes);
        whole_hash(&one, pool);
        whole_hash(&three, pool);
        assert_memory_equal(one.call.output[0].data, three.call.output[0].data,
                            ROWS * C * element_bytes);
        for (int i = 0; i < 3; i++) {
            take_part(part, one.call.input_grad[0].data, ROWS, 3 * C, i * C, C, element_bytes);
            assert_memory_equal(part, three.call.input_grad[i].data, ROWS * C * element_bytes);
        }
        coh_case_destroy(&one);
        coh_case_destroy(&three);
    }
}

/* Forward; backward cuts keys into other parts. */
static void a_row_of_one_document_is_as_without_documents(void **state)
{
    (void)state;
    enum { B = 2, T = 299, H = 3, D = 17 };
    const coh_attention_attributes heads = { H };
    for (int dtype = 0; dtype < 2; dtype++) {
        coh_shape shapes[] = { F32(B, T, 3 * H * D), I32(B, T) };
        shapes[0].dtype = dtype ? COH_DTYPE_BF16 : COH_DTYPE_F32;
        coh_case plain, marked;
        coh_case_create(&plain, &coh_kind_attention, &heads, shapes, 29);
        coh_case_create(&marked, &coh_kind_attention_documents, &heads, shapes, 29);
        for (int i = 0; i < B * T; i++)
            ((int32_t *)marked.call.input[1].data)[i] = i % T;
        assert_int_equal(coh_case_forward(&plain, pool), COH_OK);
        assert_int_equal(coh_case_forward(&marked, pool), COH_OK);
        assert_memory_equal(plain.call.output[0].data, marked.call.output[0].data,
                            B * T * H * D * coh_dtype_bytes(shapes[0].dtype));
        assert_memory_equal(plain.call.saved, marked.call.saved, B * T * H * sizeof(float));
        coh_case_destroy(&plain);
        coh_case_destroy(&marked);
    }
}

/* Fills an array with a part of each row of a tensor. */
static void part_of(void *to, const coh_view *of, int64_t begin, int64_t width)
{
    take_part(to, of->data, of->shape.dim[0] * of->shape.dim[1], of->shape.dim[2], begin, width,
              coh_dtype_bytes(of->shape.dtype));
}

/* Runs rope on one part of qkv and expects the same bits in the split's output and gradient. */
static void check_part(coh_case *split, const coh_rope_attributes *rope, int port, int64_t begin)
{
    static float part[8192], gradient[8192];
    const coh_shape shape = split->facts.output[port];
    const int64_t width = shape.dim[2];
    const size_t bytes =
        (size_t)coh_shape_elements(&shape) * coh_dtype_bytes(split->facts.output[0].dtype);
    coh_rope_attributes heads = *rope;
    heads.heads = port == 0 ? rope->heads : 2;
    coh_case one;
    assert_true(bytes <= sizeof(part));
    coh_case_create(&one, &coh_kind_rope, &heads, &shape, 3);
    part_of(part, &split->call.input[0], begin, width);
    part_of(gradient, &split->call.input_grad[0], begin, width);
    memcpy(one.call.input[0].data, part, bytes);
    memcpy(one.call.output_grad[0].data, split->call.output_grad[port].data, bytes);
    assert_int_equal(coh_case_forward(&one, pool), COH_OK);
    assert_int_equal(coh_case_backward(&one, pool), COH_OK);
    if (port < 2)
        assert_memory_equal(one.call.output[0].data, split->call.output[port].data, bytes);
    else
        assert_memory_equal(part, split->call.output[port].data, bytes);
    assert_memory_equal(port < 2 ? one.call.input_grad[0].data : split->call.output_grad[2].data,
                        gradient, bytes);
    coh_case_destroy(&one);
}

static void q_and_k_of_one_tensor_are_turned_and_v_is_copied(void **state)
{
    (void)state;
    enum { B = 2, T = 11, H = 6, G = 2, D = 14 };
    const coh_rope_split_attributes a = {
        G, { H, 10000.0, COH_ROPE_YARN, 4.0f, 1.0f, 32.0f, 64, 1.14f }
    };
    for (int dtype = 0; dtype < 2; dtype++) {
        coh_shape shape = F32(B, T, (H + 2 * G) * D);
        shape.dtype = dtype ? COH_DTYPE_BF16 : COH_DTYPE_F32;
        coh_case split;
        coh_case_create(&split, &coh_kind_rope_split, &a, &shape, 31);
        assert_int_equal(coh_case_forward(&split, pool), COH_OK);
        assert_int_equal(coh_case_backward(&split, pool), COH_OK);
        check_part(&split, &a.rope, 0, 0);
        check_part(&split, &a.rope, 1, (int64_t)H * D);
        check_part(&split, &a.rope, 2, (int64_t)(H + G) * D);
        split.call.input_grad_adds = 1;
        double *before = coh_doubles_of(&split.call.input_grad[0]);
        assert_int_equal(coh_case_backward(&split, pool), COH_OK);
        double *twice = coh_doubles_of(&split.call.input_grad[0]);
        for (int64_t i = 0; i < coh_shape_elements(&shape); i++)
            assert_true(twice[i] == 2 * before[i]);
        free(before);
        free(twice);
        coh_case_destroy(&split);
    }
}

static void the_classifier_never_takes_logits_of_all_tokens_and_words(void **state)
{
    (void)state;
    const coh_classifier_attributes a = { .vocabulary = 50257 };
    const coh_shape inputs[] = { F32(16, 1024, 768), I32(16, 1024) };
    coh_op_facts facts = { 0 };
    assert_int_equal(coh_kind_classifier.infer(&a, inputs, &facts), COH_OK);
    assert_true(facts.workspace_bytes[COH_PHASE_FORWARD] <= 4u << 20);
    assert_true(facts.workspace_bytes[COH_PHASE_BACKWARD] <= 4u << 20);
    assert_int_equal(facts.parameter[0].row_block * 768 * 4 % 4096, 0);
    assert_int_equal(facts.saved_bytes, 16 * 1024 * 12);
    const coh_shape halves[] = { BF16(16, 1024, 768), I32(16, 1024) };
    facts = (coh_op_facts){ 0 };
    assert_int_equal(coh_kind_classifier.infer(&a, halves, &facts), COH_OK);
    assert_true(facts.workspace_bytes[COH_PHASE_FORWARD] <= 4u << 20);
    assert_true(facts.workspace_bytes[COH_PHASE_BACKWARD] <= 7u << 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_of_one_document_is_as_without_documents),
        cmocka_unit_test(forward_and_backward_agree_with_double_precision),
        cmocka_unit_test(every_gradient_can_be_added_to),
        cmocka_unit_test(gradients_of_parameters_may_be_f32),
        cmocka_unit_test(the_number_of_threads_changes_no_bit),
        cmocka_unit_test(ranges_of_rows_change_no_bit),
        cmocka_unit_test(a_cache_changes_no_bit),
        cmocka_unit_test(three_tensors_have_the_bits_of_one),
        cmocka_unit_test(q_and_k_of_one_tensor_are_turned_and_v_is_copied),
        cmocka_unit_test(the_classifier_never_takes_logits_of_all_tokens_and_words),
    };
    return cmocka_run_group_tests(tests, make_pool, drop_pool);
}
