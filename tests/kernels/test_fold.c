/* The fold of contributions, compared bit for bit with a recursive sum of single floats: in all
 * shapes and types, on every instruction set, for any number of threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "base/fold_shape.h"
#include "base/half.h"
#include "base/pool.h"
#include "base/rng.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/fold.h"
#include "kernels/kernels.h"

enum { ROWS = 12, MOST = 2 * COH_GRAIN_ELEMENTS + 77, SHAPES = 10, COUNTS = 10 };

static const char *const shapes[SHAPES] = { "1",     "2",   "3",   "8",     "2x2",
                                            "2x2x2", "4x2", "2x4", "3x2x2", "2x3x2" };
/* Around the sixteen lanes, the kernel's buffer and the grains. */
static const int64_t counts[COUNTS] = {
    1, 15, 16, 17, 511, 512, 513, COH_GRAIN_ELEMENTS, COH_GRAIN_ELEMENTS + 1, MOST
};

static float floats[ROWS][MOST];
static uint16_t halves[ROWS][MOST];
static float found[MOST], expected[MOST];

/* Every 13th place has a value that additions treat in a special way, others sizes that make the
 * order visible. */
static void fill(void)
{
    static const float special[] = { -0.0f,    0.0f,     1e-45f, -1e-40f, 3.4e38f,
                                     -3.4e38f, INFINITY, NAN,    1.0f,    -1.0f };
    for (int row = 0; row < ROWS; row++)
        for (int64_t i = 0; i < MOST; i++) {
            const uint64_t at = (uint64_t)i;
            float value = (float)(coh_rng_normal(7, (uint64_t)row, at) *
                                  pow(10.0, (double)coh_rng_below(8, (uint64_t)row, at, 7)));
            if (i % 13 == 0)
                value = special[coh_rng_below(9, (uint64_t)row, at, 10)];
            if (i % 26 == 0)
                value = -0.0f; /* in all rows: their sum is -0 */
            floats[row][i] = value;
            halves[row][i] = coh_bf16_of_f32(value);
        }
}

static float contribution(coh_dtype dtype, int32_t row, int64_t i)
{
    return dtype == COH_DTYPE_F32 ? floats[row][i] : coh_f32_of_bf16(halves[row][i]);
}

/* Adds what the first `factor_count` factors describe, from row *next on. */
static float naive_sum(const coh_fold_shape *shape, int factor_count, coh_dtype dtype, int64_t i,
                       int32_t *next)
{
    if (factor_count == 0)
        return contribution(dtype, (*next)++, i);
    float sum = naive_sum(shape, factor_count - 1, dtype, i, next);
    for (int32_t k = 1; k < shape->factors[factor_count - 1]; k++) {
        volatile float total = sum + naive_sum(shape, factor_count - 1, dtype, i, next);
        sum = total;
    }
    return sum;
}

static float rounded(coh_dtype dtype, float value)
{
    return dtype == COH_DTYPE_F32 ? value : coh_f32_of_bf16(coh_bf16_of_f32(value));
}

static coh_fold_call call_of(const char *shape, coh_dtype dtype, coh_dtype to_dtype, int64_t count,
                             const void **rows)
{
    coh_fold_call call = {
        .contributions = rows, .to = found, .dtype = dtype, .to_dtype = to_dtype, .count = count
    };
    assert_int_equal(coh_fold_shape_parse(shape, &call.shape), COH_OK);
    assert_true(coh_fold_shape_replicas(&call.shape) <= ROWS);
    for (int row = 0; row < ROWS; row++)
        rows[row] = dtype == COH_DTYPE_F32 ? (const void *)floats[row] : halves[row];
    return call;
}

static void expect(const coh_fold_call *call)
{
    for (int64_t i = 0; i < call->count; i++) {
        int32_t next = 0;
        expected[i] =
            rounded(call->to_dtype, naive_sum(&call->shape, coh_fold_factor_count(&call->shape),
                                              call->dtype, i, &next));
    }
}

static void compare(const void *tensor, coh_dtype dtype, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const float value = dtype == COH_DTYPE_F32 ? ((const float *)tensor)[i]
                                                   : coh_f32_of_bf16(((const uint16_t *)tensor)[i]);
        if (coh_f32_bits(value) != coh_f32_bits(expected[i]) &&
            !(isnan(value) && isnan(expected[i])))
            fail_msg("element %lld of %lld: %a, expected %a", (long long)i, (long long)count,
                     (double)value, (double)expected[i]);
    }
}

static void every_shape_and_type_adds_as_written(void **state)
{
    (void)state;
    static const coh_dtype dtypes[] = { COH_DTYPE_F32, COH_DTYPE_BF16 };
    for (int shape = 0; shape < SHAPES; shape++)
        for (int types = 0; types < 4; types++)
            for (int n = 0; n < COUNTS; n++) {
                const void *rows[ROWS];
                const coh_fold_call call =
                    call_of(shapes[shape], dtypes[types % 2], dtypes[types / 2], counts[n], rows);
                expect(&call);
                memset(found, 0x5a, sizeof(found));
                coh_kernel_fold(NULL, &call);
                compare(found, call.to_dtype, call.count);
            }
}

static void every_instruction_set_gives_the_same_bits(void **state)
{
    (void)state;
    static const char *const isa_names[] = { "plain", "avx2", "avx512" };
    static const coh_dtype dtypes[] = { COH_DTYPE_F32, COH_DTYPE_BF16 };
    int compared = 0;
    for (int isa = 0; isa < 3; isa++)
        for (int type = 0; type < 2; type++) {
            const coh_rows *loops = coh_rows_of(isa_names[isa], dtypes[type]);
            for (int shape = 0; shape < SHAPES && loops != NULL; shape++) {
                const void *rows[ROWS];
                coh_fold_call call =
                    call_of(shapes[shape], dtypes[type], COH_DTYPE_F32, 1009, rows);
                expect(&call);
                loops->fold(found, rows, 0, &call.shape, call.count);
                compare(found, COH_DTYPE_F32, call.count);
                loops->fold(found, rows, 13, &call.shape, call.count - 13); /* unaligned */
                memmove(expected, expected + 13, (size_t)(call.count - 13) * sizeof(*expected));
                compare(found, COH_DTYPE_F32, call.count - 13);
                compared++;
            }
        }
    assert_true(compared >= 2 * SHAPES);
}

static void threads_change_no_bit_and_squares_are_of_what_is_stored(void **state)
{
    (void)state;
    static const coh_dtype dtypes[] = { COH_DTYPE_F32, COH_DTYPE_BF16 };
    coh_pool *pool;
    assert_int_equal(coh_pool_create(3, &pool), COH_OK);
    for (int type = 0; type < 2; type++) {
        const void *rows[ROWS];
        double squares[4] = { -1, -1, -1, -1 };
        coh_fold_call call = call_of("2x2x2", COH_DTYPE_BF16, dtypes[type], MOST, rows);
        call.square_sums = squares;
        expect(&call);
        coh_kernel_fold(pool, &call);
        compare(found, call.to_dtype, MOST);
        for (int64_t grain = 0; grain < 3; grain++) {
            const int64_t begin = grain * COH_GRAIN_ELEMENTS;
            const int64_t count = grain < 2 ? COH_GRAIN_ELEMENTS : MOST - begin;
            const double sum = coh_kernel_square_sum(
                call.to_dtype, coh_element_const(call.to_dtype, found, begin), count);
            assert_memory_equal(&squares[grain], &sum, sizeof(sum));
        }
        assert_true(squares[3] == -1);
    }
    coh_pool_destroy(pool);
}

static void the_sum_may_replace_any_contribution(void **state)
{
    (void)state;
    for (int row = 0; row < 4; row++) {
        const void *rows[ROWS];
        coh_fold_call call = call_of("2x2", COH_DTYPE_F32, COH_DTYPE_F32, MOST, rows);
        expect(&call);
        memcpy(found, floats[row], sizeof(found));
        rows[row] = found;
        coh_kernel_fold(NULL, &call);
        compare(found, COH_DTYPE_F32, MOST);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_shape_and_type_adds_as_written),
        cmocka_unit_test(every_instruction_set_gives_the_same_bits),
        cmocka_unit_test(threads_change_no_bit_and_squares_are_of_what_is_stored),
        cmocka_unit_test(the_sum_may_replace_any_contribution),
    };
    fill();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
