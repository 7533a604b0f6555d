/* Numbers of 16 bits. Oracle: their values from sign, exponent and mantissa in double, where all of
 * them and all midpoints are exact. Rounding can only go wrong near a midpoint, so each midpoint is
 * tested together with the adjacent floats. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "base/half.h"
#include "base/rng.h"

typedef struct format {
    const char *name;
    coh_dtype dtype;
    int exponent_bits, mantissa_bits;
} format;

static const format formats[] = {
    { "f16", COH_DTYPE_F16, 5, 10 },
    { "bf16", COH_DTYPE_BF16, 8, 7 },
};

/* Returns the magnitude of the finite number with these bits; for the bits of infinity, the next
 * power of two. */
static double size_of(const format *f, uint32_t bits)
{
    int bias = (1 << (f->exponent_bits - 1)) - 1;
    int exponent = (int)(bits >> f->mantissa_bits);
    double mantissa = (double)(bits & ((1u << f->mantissa_bits) - 1)) / (1 << f->mantissa_bits);
    return exponent == 0 ? ldexp(mantissa, 1 - bias) : ldexp(1 + mantissa, exponent - bias);
}

static uint32_t infinity_of(const format *f)
{
    return ((1u << f->exponent_bits) - 1) << f->mantissa_bits;
}

static uint16_t narrow(const format *f, float value)
{
    return f->dtype == COH_DTYPE_F16 ? coh_f16_of_f32(value) : coh_bf16_of_f32(value);
}

static float widen(const format *f, uint16_t half)
{
    return f->dtype == COH_DTYPE_F16 ? coh_f32_of_f16(half) : coh_f32_of_bf16(half);
}

static void every_number_widens_to_its_value(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++)
        for (uint32_t bits = 0; bits < 0x10000; bits++) {
            const format *f = &formats[i];
            uint32_t size = bits & 0x7fff;
            float value = widen(f, (uint16_t)bits);
            assert_int_equal(signbit(value) != 0, bits >> 15);
            if (size < infinity_of(f))
                assert_true(fabs((double)value) == size_of(f, size));
            else if (size == infinity_of(f))
                assert_true(isinf(value));
            else
                assert_true(isnan(value));
            /* Converting back gives the same bits, with NaNs made quiet. */
            uint32_t quiet = size > infinity_of(f) ? 1u << (f->mantissa_bits - 1) : 0;
            assert_int_equal(narrow(f, value), bits | quiet);
        }
}

/* Tests `value` with both signs; `expected` has no sign. */
static void assert_narrows(const format *f, float value, uint32_t expected)
{
    if (narrow(f, value) != expected || narrow(f, -value) != (expected | 0x8000))
        fail_msg("%s of %a is 0x%04x, not 0x%04x", f->name, (double)value, narrow(f, value),
                 expected);
}

static void between_two_numbers_the_nearer_then_the_even_one_is_taken(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const format *f = &formats[i];
        for (uint32_t low = 0; low < infinity_of(f); low++) {
            double half_way = (size_of(f, low) + size_of(f, low + 1)) / 2;
            float middle = (float)half_way;
            assert_true((double)middle == half_way);
            assert_narrows(f, middle, low + (low & 1));
            assert_narrows(f, nextafterf(middle, 0.0f), low);
            assert_narrows(f, nextafterf(middle, INFINITY), low + 1);
        }
        assert_narrows(f, INFINITY, infinity_of(f));
        assert_narrows(f, 0x1.fffffep127f, infinity_of(f)); /* nearer to 2^128 in bf16, too */
        assert_narrows(f, 0x1p-149f, 0);
    }
}

static void any_number_goes_to_its_nearest(void **state)
{
    (void)state;
    enum { DRAWS = 200000, SEED = 5 };
    for (uint64_t i = 0; i < DRAWS; i++) {
        uint32_t bits = (uint32_t)coh_rng_u64(SEED, 0, i) & 0x7fffffff;
        float value = coh_f32_of_bits(bits);
        for (size_t k = 0; k < 2; k++) {
            const format *f = &formats[k];
            uint32_t got = narrow(f, value);
            if (isnan(value)) {
                assert_true(got > infinity_of(f) && got < 0x8000);
                continue;
            }
            assert_true(got <= infinity_of(f));
            double error = fabs(size_of(f, got) - (double)value);
            if (got > 0)
                assert_true(error <= fabs(size_of(f, got - 1) - (double)value));
            if (got < infinity_of(f))
                assert_true(error <= fabs(size_of(f, got + 1) - (double)value));
        }
    }
}

static void arrays_are_converted_between_all_three(void **state)
{
    (void)state;
    enum { COUNT = 1000 };
    static const coh_dtype dtypes[] = { COH_DTYPE_F32, COH_DTYPE_F16, COH_DTYPE_BF16 };
    static float source[COUNT], from[COUNT + 1], to[COUNT + 1];
    for (uint64_t i = 0; i < COUNT; i++)
        source[i] = (float)(coh_rng_normal(6, 0, i) * 300.0);
    for (int a = 0; a < 3; a++)
        for (int b = 0; b < 3; b++) {
            coh_half_convert(COH_DTYPE_F32, source, dtypes[a], from, COUNT);
            memset(to, 0x5a, sizeof(to));
            coh_half_convert(dtypes[a], from, dtypes[b], to, COUNT);
            for (size_t i = 0; i < COUNT; i++) {
                float value = source[i];
                value = a == 0 ? value : widen(&formats[a - 1], narrow(&formats[a - 1], value));
                if (b == 0)
                    assert_true(to[i] == value);
                else
                    assert_int_equal(((uint16_t *)to)[i], narrow(&formats[b - 1], value));
            }
            assert_int_equal(((uint8_t *)to)[COUNT * coh_dtype_bytes(dtypes[b])], 0x5a);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_widens_to_its_value),
        cmocka_unit_test(between_two_numbers_the_nearer_then_the_even_one_is_taken),
        cmocka_unit_test(any_number_goes_to_its_nearest),
        cmocka_unit_test(arrays_are_converted_between_all_three),
    };
    return cmocka_run_group_tests_name("half", tests, NULL, NULL);
}
