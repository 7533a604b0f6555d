/* Weights in 4 bits: codes against a search of all 16 values in double, the documented bound,
 * blocks at the ends of what floats hold, numbers that are quantised again; and products of such
 * weights against those of plain weights that hold the same numbers, bit for bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "base/pool.h"
#include "base/rng.h"
#include "cohobate/kinds.h"
#include "kernels/nf4.h"
#include "tests/reference/call.h"

enum { BLOCK = COH_NF4_BLOCK, BYTES = COH_NF4_BLOCK_BYTES, BLOCKS = 700, COUNT = BLOCK * BLOCKS };

static const double values[16] = COH_NF4_VALUES;
static float x[COUNT], y[COUNT];
static uint8_t packed[BYTES * BLOCKS], again[BYTES * BLOCKS];

static int code_at(int block, int element)
{
    const uint8_t pair = packed[block * BYTES + 2 + element / 2];
    return element % 2 ? pair >> 4 : pair & 15;
}

static double scale_at(int block)
{
    uint16_t bits;
    memcpy(&bits, packed + (size_t)block * BYTES, sizeof(bits));
    return (double)coh_f32_of_bf16(bits);
}

/* Normal numbers with another deviation in each block, and one that stands out in some. */
static void fill(void)
{
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)(coh_rng_normal(1, 2, (uint64_t)i) * ldexp(1, i / BLOCK % 60 - 40));
    for (int b = 0; b < BLOCKS; b += 7)
        x[b * BLOCK + b % BLOCK] *= -30;
}

static void codes_are_the_nearest(void **state)
{
    (void)state;
    fill();
    coh_nf4_quantise(packed, x, COUNT);
    coh_nf4_dequantise(y, packed, COUNT);
    for (int b = 0; b < BLOCKS; b++) {
        double most = 0;
        for (int i = 0; i < BLOCK; i++)
            most = fmax(most, fabs((double)x[b * BLOCK + i]));
        const double scale = scale_at(b);
        assert_true(scale == (double)coh_f32_of_bf16(coh_bf16_of_f32((float)most)));
        for (int i = 0; i < BLOCK; i++) {
            const double of = (double)x[b * BLOCK + i], number = (double)y[b * BLOCK + i];
            const int code = code_at(b, i);
            for (int other = 0; other < 16; other++) /* but for the rounding of the quotient */
                assert_true(fabs(of - values[code] * scale) <=
                            fabs(of - values[other] * scale) + 1e-6 * scale);
            assert_true(fabs(number - values[code] * scale) <= 0x1p-8 * fabs(number));
            assert_true(fabs(number - of) <= 0.152 * scale + 0x1p-8 * fabs(of));
        }
    }
}

/* Numbers that were opened keep their bytes, and are exact in bf16. */
static void numbers_are_kept(void **state)
{
    (void)state;
    fill();
    assert_false(coh_nf4_holds(x, COUNT));
    coh_nf4_quantise(packed, x, COUNT);
    coh_nf4_dequantise(y, packed, COUNT);
    coh_nf4_quantise(again, y, COUNT);
    assert_memory_equal(packed, again, sizeof(packed));
    assert_true(coh_nf4_holds(y, COUNT));
    for (int i = 0; i < COUNT; i++)
        assert_true(coh_f32_of_bf16(coh_bf16_of_f32(y[i])) == y[i]);
    y[COUNT - 1] += y[COUNT - 1] == 0 ? 1e-3f : y[COUNT - 1] / 64;
    assert_false(coh_nf4_holds(y, COUNT));
}

static void blocks_at_the_ends_of_floats(void **state)
{
    (void)state;
    static const float sizes[] = { 0,       1e-45f, 1e-40f,  0x1.fffffep-111f, 0x1p-110f,
                                   0x1p-9f, 1,      3.4e38f, INFINITY };
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        for (int i = 0; i < BLOCK; i++)
            x[i] = i == 5 ? -sizes[s] : i == 6 ? sizes[s] / 3 : 0;
        coh_nf4_quantise(packed, x, BLOCK);
        coh_nf4_dequantise(y, packed, BLOCK);
        for (int i = 0; i < BLOCK; i++)
            assert_true(isfinite(y[i]) && (x[i] != 0 || y[i] == 0));
        if (sizes[s] < 0x1p-110f)
            assert_int_equal(scale_at(0), 0);
        coh_nf4_quantise(again, y, BLOCK);
        assert_memory_equal(packed, again, BYTES);
    }
}

static void a_queue_gives_the_same_numbers(void **state)
{
    (void)state;
    static uint16_t halves[COUNT];
    static float wide[COUNT];
    coh_pool *pool;
    fill();
    coh_nf4_quantise(packed, x, COUNT);
    coh_nf4_dequantise(y, packed, COUNT);
    assert_int_equal(coh_pool_create(2, &pool), COH_OK);
    for (int threads = 1; threads <= 2; threads++) {
        void *queue = threads > 1 ? pool : NULL;
        coh_kernel_nf4(queue, &(coh_nf4_weight){ COH_DTYPE_BF16, COUNT, packed, halves });
        coh_kernel_nf4(queue, &(coh_nf4_weight){ COH_DTYPE_F32, COUNT, packed, wide });
        assert_memory_equal(wide, y, sizeof(y));
        for (int i = 0; i < COUNT; i++)
            assert_true(coh_f32_of_bf16(halves[i]) == y[i]);
    }
    coh_pool_destroy(pool);
}

/* ---- products ---- */

static const coh_op_kind *const kinds[] = { &coh_kind_linear, &coh_kind_linear_residual,
                                            &coh_kind_linear_gelu, &coh_kind_linear_relu };

/* Gives `plain` the numbers of the weight of `of`, and its other operands. */
static void copy_operands(coh_case *plain, const coh_case *of)
{
    const coh_nf4_weight weight = { plain->call.parameter[0].shape.dtype,
                                    coh_shape_elements(&of->call.parameter[0].shape),
                                    of->call.parameter[0].data, plain->call.parameter[0].data };
    coh_kernel_nf4(NULL, &weight);
    for (int i = 0; i < 2; i++) {
        plain->call.parameter_grad[i] = (coh_view){ 0 }; /* frozen */
    }
}

static void same(const char *what, const coh_view *a, const coh_view *b)
{
    if (a->data != NULL &&
        memcmp(a->data, b->data,
               (size_t)coh_shape_elements(&a->shape) * coh_dtype_bytes(a->shape.dtype)) != 0)
        fail_msg("%s differs", what);
}

/* Of rows of 128 a weight is whole; of 8192 it has blocks, 1024 rows each. */
static void check_products(const coh_op_kind *kind, coh_dtype dtype, int64_t inputs,
                           int64_t outputs, int64_t blocks)
{
    const coh_linear_attributes stored = { outputs, 1, 0.02f, COH_DTYPE_NF4, 0 };
    const coh_linear_attributes as_x = { outputs, 1, 0.02f, 0, 0 };
    const coh_shape shapes[] = { { .dtype = dtype, .rank = 2, .dim = { 5, inputs } },
                                 { .dtype = dtype, .rank = 2, .dim = { 5, outputs } } };
    coh_case one, plain;
    coh_case_create(&one, kind, &stored, shapes, 3);
    coh_case_create(&plain, kind, &as_x, shapes, 3);
    assert_int_equal(one.facts.parameter[0].shape.dtype, COH_DTYPE_NF4);
    assert_int_equal(one.facts.parameter[0].row_block, plain.facts.parameter[0].row_block);
    one.call.parameter_grad[1] = (coh_view){ 0 };
    copy_operands(&plain, &one);
    for (int adds = 0; adds < 2; adds++) {
        one.call.input_grad_adds = plain.call.input_grad_adds = adds ? 3 : 0;
        assert_int_equal(blocks > 0 ? coh_case_forward_ranges(&one, NULL, blocks)
                                    : coh_case_forward(&one, NULL),
                         COH_OK);
        assert_int_equal(coh_case_forward(&plain, NULL), COH_OK);
        same("y", &plain.call.output[0], &one.call.output[0]);
        assert_int_equal(blocks > 0 ? coh_case_backward_ranges(&one, NULL, blocks)
                                    : coh_case_backward(&one, NULL),
                         COH_OK);
        assert_int_equal(coh_case_backward(&plain, NULL), COH_OK);
        for (int i = 0; i < kind->input_count; i++)
            same("dx", &plain.call.input_grad[i], &one.call.input_grad[i]);
    }
    coh_case_destroy(&plain);
    coh_case_destroy(&one);
}

static void products_have_the_bits_of_a_plain_weight(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
        for (int dtype = COH_DTYPE_F32; dtype <= COH_DTYPE_BF16; dtype++) {
            check_products(kinds[k], (coh_dtype)dtype, 128, 33, 0);
            check_products(kinds[k], (coh_dtype)dtype, 384, 100, 0);
            if (k == 1 || dtype == COH_DTYPE_BF16) {
                check_products(kinds[k], (coh_dtype)dtype, 8192, 2060, 0);
                check_products(kinds[k], (coh_dtype)dtype, 8192, 2060, 1);
            }
        }
}

static void rows_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    const coh_linear_attributes stored = { 4, 0, 0.02f, COH_DTYPE_NF4, 0 },
                                other = { 4, 0, 0.02f, 7, 0 };
    const coh_shape x_64 = { .dtype = COH_DTYPE_F32, .rank = 2, .dim = { 3, 64 } };
    coh_op_facts facts = { 0 };
    assert_int_equal(coh_kind_linear.infer(&stored, &x_64, &facts), COH_ERR_SHAPE);
    assert_non_null(strstr(coh_last_error(), "rows of 64 elements: a multiple of 128"));
    assert_int_equal(coh_kind_linear.infer(&other, &x_64, &facts), COH_ERR_SHAPE);
    assert_non_null(strstr(coh_last_error(), "stored as dtype 7"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_are_the_nearest),
        cmocka_unit_test(numbers_are_kept),
        cmocka_unit_test(blocks_at_the_ends_of_floats),
        cmocka_unit_test(a_queue_gives_the_same_numbers),
        cmocka_unit_test(products_have_the_bits_of_a_plain_weight),
        cmocka_unit_test(rows_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
