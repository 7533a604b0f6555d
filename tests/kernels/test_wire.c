/* Wires: every element within the bound of cohobate/wire.h of what was packed, against a loop in
 * double; packing again what was unpacked changes nothing; NaNs, zeros, tiny and huge numbers,
 * short blocks; names and sizes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/half.h"
#include "base/rng.h"
#include "kernels/wire.h"

enum { MOST = 9000, GUARD = 64 };

static float x[MOST], y[MOST];
static uint16_t half_x[MOST], half_y[MOST];
static unsigned char packed[4 * MOST], again[4 * MOST];

/* Draws numbers of many sizes; a few blocks of zeros, of subnormals and of huge numbers. */
static void draw(uint64_t seed, int64_t count)
{
    static const float sizes[] = { 1, 1e-3f, 1e4f, 0, 1e-41f, 3e37f, 1, 1 };
    for (int64_t i = 0; i < count; i++) {
        const float size = sizes[coh_rng_below(seed, 1, (uint64_t)i / COH_WIRE_BLOCK, 8)];
        x[i] = (float)coh_rng_normal(seed, 2, (uint64_t)i) * size;
        half_x[i] = coh_bf16_of_f32(x[i]);
    }
}

static double value_of(coh_dtype dtype, const float *f32, const uint16_t *bf16, int64_t i)
{
    return dtype == COH_DTYPE_F32 ? (double)f32[i] : (double)coh_f32_of_bf16(bf16[i]);
}

/* Returns the largest |x| of an element's block. */
static double scale_of(coh_dtype dtype, int64_t i, int64_t count)
{
    const int64_t begin = i / COH_WIRE_BLOCK * COH_WIRE_BLOCK;
    double scale = 0;
    for (int64_t k = begin; k < begin + COH_WIRE_BLOCK && k < count; k++)
        scale = fmax(scale, fabs(value_of(dtype, x, half_x, k)));
    return scale;
}

/* Half the distance of two codes and a few roundings of floats; of what is stored as bf16 half a
 * unit in its last place besides. */
static double bound_of(coh_wire wire, coh_dtype dtype, int64_t i, int64_t count)
{
    const double value = fabs(value_of(dtype, x, half_x, i)), scale = scale_of(dtype, i, count);
    const double levels = wire == COH_WIRE_INT8 ? 127 : 7;
    if (wire == COH_WIRE_BF16)
        return dtype == COH_DTYPE_F32 ? value * 0x1p-8 + FLT_MIN : 0;
    const double stored = dtype == COH_DTYPE_BF16 ? scale * 0x1p-8 : 0;
    return scale / levels / 2 * (1 + 1e-5) + stored + 0x1p-133;
}

static void pack(coh_wire wire, coh_dtype dtype, int64_t count, void *to)
{
    const coh_wire_call call = { wire, dtype, count, dtype == COH_DTYPE_F32 ? (void *)x : half_x,
                                 to };
    coh_kernel_wire_pack(NULL, &call);
}

static void unpack(coh_wire wire, coh_dtype dtype, int64_t count, void *from, void *to)
{
    coh_kernel_wire_unpack(NULL, &(coh_wire_call){ wire, dtype, count, to, from });
}

static void check_way(coh_wire wire, coh_dtype dtype, int64_t count)
{
    const size_t bytes = (size_t)coh_wire_bytes(wire, (uint64_t)count);
    void *const to = dtype == COH_DTYPE_F32 ? (void *)y : half_y;
    memset(packed, 0xa5, sizeof(packed));
    pack(wire, dtype, count, packed);
    for (size_t i = bytes; i < bytes + GUARD; i++)
        assert_int_equal(packed[i], 0xa5);
    memset(y, 0x5a, sizeof(y));
    memset(half_y, 0x5a, sizeof(half_y));
    unpack(wire, dtype, count, packed, to);
    for (int64_t i = 0; i < count; i++) {
        const double error = fabs(value_of(dtype, y, half_y, i) - value_of(dtype, x, half_x, i));
        if (!(error <= bound_of(wire, dtype, i, count)))
            fail_msg("%s, dtype %d, %d elements: element %d of %g arrives as %g",
                     coh_wire_name(wire), (int)dtype, (int)count, (int)i,
                     value_of(dtype, x, half_x, i), value_of(dtype, y, half_y, i));
    }
    memset(again, 0xa5, sizeof(again));
    coh_kernel_wire_pack(NULL, &(coh_wire_call){ wire, dtype, count, to, again });
    assert_memory_equal(packed, again, bytes);
}

static void every_element_arrives_within_its_bound(void **state)
{
    (void)state;
    static const int64_t counts[] = { 1, 127, 128, 129, 4096, 4097, 8300, MOST };
    for (int wire = COH_WIRE_BF16; wire < COH_WIRE_COUNT; wire++)
        for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
            for (uint64_t seed = 0; seed < 3; seed++) {
                draw(seed, counts[c]);
                check_way((coh_wire)wire, COH_DTYPE_F32, counts[c]);
                check_way((coh_wire)wire, COH_DTYPE_BF16, counts[c]);
            }
}

/* All codes are used: what is evenly spaced arrives as it was. */
static void codes_arrive_exactly(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * COH_WIRE_BLOCK; i++)
        x[i] = (float)(i % 15 - 7) / 7.0f * 3.0f;
    pack(COH_WIRE_INT4, COH_DTYPE_F32, 2 * COH_WIRE_BLOCK, packed);
    unpack(COH_WIRE_INT4, COH_DTYPE_F32, 2 * COH_WIRE_BLOCK, packed, y);
    assert_memory_equal(x, y, 2 * COH_WIRE_BLOCK * sizeof(*x));
    for (int i = 0; i < 2 * COH_WIRE_BLOCK; i++)
        x[i] = (float)(i % 255 - 127) / 127.0f * 5.0f;
    pack(COH_WIRE_INT8, COH_DTYPE_F32, 2 * COH_WIRE_BLOCK, packed);
    unpack(COH_WIRE_INT8, COH_DTYPE_F32, 2 * COH_WIRE_BLOCK, packed, y);
    for (int i = 0; i < 2 * COH_WIRE_BLOCK; i++)
        assert_true(fabsf(x[i] - y[i]) <= 5e-6f);
}

/* One number that is not finite makes its block NaN, and no other. */
static void numbers_that_are_not_finite_arrive_as_nan(void **state)
{
    (void)state;
    static const float broken[] = { NAN, INFINITY, -INFINITY };
    for (int wire = COH_WIRE_INT8; wire < COH_WIRE_COUNT; wire++)
        for (int b = 0; b < 3; b++) {
            draw(9, 3 * COH_WIRE_BLOCK);
            x[COH_WIRE_BLOCK + 5] = broken[b];
            pack((coh_wire)wire, COH_DTYPE_F32, 3 * COH_WIRE_BLOCK, packed);
            unpack((coh_wire)wire, COH_DTYPE_F32, 3 * COH_WIRE_BLOCK, packed, y);
            for (int i = 0; i < 3 * COH_WIRE_BLOCK; i++)
                assert_int_equal(isnan(y[i]) != 0, i / COH_WIRE_BLOCK == 1);
        }
    x[0] = NAN;
    x[1] = -INFINITY;
    pack(COH_WIRE_BF16, COH_DTYPE_F32, 2, packed);
    unpack(COH_WIRE_BF16, COH_DTYPE_F32, 2, packed, y);
    assert_true(isnan(y[0]) && y[1] == -INFINITY);
}

static void sizes_are_those_of_the_table(void **state)
{
    (void)state;
    static const struct {
        coh_wire wire;
        uint64_t count, bytes;
    } rows[] = { { COH_WIRE_STORED, 1000, 0 },    { COH_WIRE_BF16, 32, 64 },
                 { COH_WIRE_BF16, 33, 128 },      { COH_WIRE_INT8, 128, 192 },
                 { COH_WIRE_INT8, 16384, 16896 }, { COH_WIRE_INT4, 16384, 8704 },
                 { COH_WIRE_INT4, 1, 128 },       { COH_WIRE_INT8, 0, 0 } };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(coh_wire_bytes(rows[i].wire, rows[i].count), rows[i].bytes);
}

static void texts_are_read_and_written(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        coh_wires wires;
    } rows[] = { { "int8", { COH_WIRE_INT8, COH_WIRE_INT8 } },
                 { "stored", { COH_WIRE_STORED, COH_WIRE_STORED } },
                 { "weights=int4", { COH_WIRE_INT4, COH_WIRE_STORED } },
                 { "gradients=bf16", { COH_WIRE_STORED, COH_WIRE_BF16 } },
                 { "gradients=int4,weights=int8", { COH_WIRE_INT8, COH_WIRE_INT4 } } };
    static const char *const bad[] = { "",
                                       "int",
                                       "int8,int4",
                                       "int8,",
                                       "weights",
                                       "weights=",
                                       "weights=int8,weights=int4",
                                       "weights=int8,",
                                       "=int8",
                                       "grad=int8" };
    char text[COH_WIRES_TEXT_BYTES];
    coh_wires wires;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(coh_wires_parse(rows[i].text, &wires), COH_OK);
        assert_memory_equal(&wires, &rows[i].wires, sizeof(wires));
        assert_int_equal(coh_wires_write(&wires, text), COH_OK);
        assert_int_equal(coh_wires_parse(text, &wires), COH_OK);
        assert_memory_equal(&wires, &rows[i].wires, sizeof(wires));
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(coh_wires_parse(bad[i], &wires), COH_ERR_ARGUMENT);
        assert_non_null(strstr(coh_last_error(), "is no wire"));
    }
    wires.weights = COH_WIRE_COUNT;
    assert_int_equal(coh_wires_write(&wires, text), COH_ERR_ARGUMENT);
    assert_string_equal(coh_wire_name(COH_WIRE_COUNT), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_arrives_within_its_bound),
        cmocka_unit_test(codes_arrive_exactly),
        cmocka_unit_test(numbers_that_are_not_finite_arrive_as_nan),
        cmocka_unit_test(sizes_are_those_of_the_table),
        cmocka_unit_test(texts_are_read_and_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
