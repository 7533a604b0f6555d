/* Many normal numbers at a time: each has the bits of the number drawn alone, on every instruction
 * set, wherever a run begins and ends. tests/base/test_rng.c tests the quality of the numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "base/rng.h"
#include "kernels/cpu/dispatch.h"

enum { SEED = 77, STREAM = 9, MOST = COH_GRAIN_ELEMENTS + 1 };

static const char *const isas[] = { "plain", "avx2", "avx512" };
static const double scales[] = { 1.0, (double)0.02f };
static float values[MOST + 1], singles[MOST];

static void assert_run(const coh_rows *rows, uint64_t first, int64_t count, double scale)
{
    for (int64_t i = 0; i < count; i++)
        singles[i] = (float)(coh_rng_normal(SEED, STREAM, first + (uint64_t)i) * scale);
    memset(values, 0x5a, sizeof(values));
    rows->normal(values, SEED, STREAM, first, count, scale);
    if (memcmp(values, singles, (size_t)count * sizeof(float)) != 0)
        fail_msg("%s, seed %d: %" PRId64 " from %" PRIu64 " on are others", rows->name, SEED, count,
                 first);
    assert_int_equal(((const unsigned char *)&values[count])[0], 0x5a);
}

static void many_at_a_time_are_those_drawn_alone(void **state)
{
    (void)state;
    /* 2^32 - 3: numbers pass 32 bits within a run */
    static const uint64_t firsts[] = { 0, 1, 2, 7, 16384, 16385, 4294967293, (uint64_t)1 << 41 };
    for (int isa = 0; isa < 3; isa++) {
        const coh_rows *rows = coh_rows_of(isas[isa], COH_DTYPE_F32);
        if (rows == NULL) {
            print_message("this CPU has no %s\n", isas[isa]);
            continue;
        }
        for (int f = 0; f < 8; f++)
            for (int s = 0; s < 2; s++) {
                for (int64_t count = 0; count < 70; count++)
                    assert_run(rows, firsts[f], count, scales[s]);
                for (int64_t count = MOST - 2; count <= MOST; count++)
                    assert_run(rows, firsts[f], count, scales[s]);
            }
    }
}

/* Rounding to float would hide how a fused multiplication changes the 53rd bit. So each number is
 * scaled to lie halfway between two floats, where a change of its last bit shows. */
static void not_a_bit_of_the_double_differs(void **state)
{
    (void)state;
    enum { COUNT = 256 };
    for (int isa = 0; isa < 3; isa++) {
        const coh_rows *rows = coh_rows_of(isas[isa], COH_DTYPE_F32);
        for (uint64_t i = 0; rows != NULL && i < COUNT; i++) {
            const double drawn = coh_rng_normal(SEED, STREAM, i);
            const float below = (float)drawn, above = nextafterf(below, INFINITY);
            assert_run(rows, 0, COUNT, ((double)below + (double)above) / 2 / drawn);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_at_a_time_are_those_drawn_alone),
        cmocka_unit_test(not_a_bit_of_the_double_differs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
