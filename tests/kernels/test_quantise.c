/* Stochastic rounding and blocks of bytes: each element compared with an independent reference and
 * in double; means; NaNs and infinities; the same bits in any pieces, with any number of threads
 * and on every instruction set. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "base/pool.h"
#include "base/rng.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/kernels.h"
#include "kernels/quantise.h"
#include "tests/reference/reference.h"

enum { MOST = 40000, BLOCK = COH_QUANTISE_BLOCK, BLOCKS_MOST = MOST / BLOCK + 1, DRAWS = 1 << 18 };

static const char *const isas[] = { "plain", "avx2", "avx512" };
static const coh_random_cell cell = { .seed = 0x123456789abcdefu, .step = 7 };
static const coh_rounding rounding = { &cell, 11, 2 };

static float x[DRAWS];
static uint16_t y[DRAWS];
static int8_t codes[DRAWS];
static float scales[DRAWS / BLOCK];
static uint32_t halves[DRAWS];

/* Draws the reference's halves of numbers first, first + 1, ... */
static void draw(const coh_rounding *of, uint64_t first, int64_t count)
{
    const coh_call call = { .random_cell = of->cell,
                            .operator_index = of->tensor,
                            .microbatch = -1 - of->use };
    uint32_t stream[4];
    coh_reference_stream(&call, stream);
    for (int64_t i = 0; i < count; i++)
        halves[i] = coh_reference_half(stream, first + (uint64_t)i);
}

/* Fills with bit patterns: numbers of all magnitudes. */
static void fill_patterns(int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        x[i] = coh_f32_of_bits((uint32_t)coh_rng_u64(1, 2, (uint64_t)i));
}

static void fill_normal(int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        x[i] = (float)coh_rng_normal(3, 4, (uint64_t)i);
}

static void round_all(uint64_t first, int64_t count)
{
    coh_cpu_stochastic_round(NULL, &(coh_stochastic_round){ count, first, rounding, x, y });
}

static void quantise_all(uint64_t first, int64_t count, int is_random)
{
    const coh_rounding how = { is_random ? &cell : NULL, rounding.tensor, rounding.use };
    coh_cpu_quantise(NULL, &(coh_quantise){ count, first, how, x, codes, scales });
}

/* ---- to bf16 ---- */

/* Rounds a finite number to the neighbour that the half selects, in double. */
static double rounded(double value, uint32_t half)
{
    int exponent = 0;
    (void)frexp(value, &exponent);
    const double gap = ldexp(1.0, (exponent - 1 < -126 ? -126 : exponent - 1) - 7);
    const double below = floor(fabs(value) / gap) * gap, share = (fabs(value) - below) / gap;
    const double size = share + half / 65536.0 >= 1.0 ? below + gap : below;
    return copysign(size > 0x1.fep127 ? 0x1.fep127 : size, value);
}

static void a_number_becomes_the_neighbour_that_its_half_says(void **state)
{
    (void)state;
    static const uint64_t firsts[] = { 0, 1, 77, 128, (uint64_t)1 << 38 };
    fill_patterns(MOST);
    for (int f = 0; f < 5; f++) {
        draw(&rounding, firsts[f], MOST);
        round_all(firsts[f], MOST);
        for (int64_t i = 0; i < MOST; i++) {
            const float got = coh_f32_of_bf16(y[i]);
            if (isnan(x[i])) {
                assert_int_equal(y[i], coh_f32_bits(x[i]) >> 16 | 0x40);
                continue;
            }
            const double expected = isinf(x[i]) ? (double)x[i] : rounded((double)x[i], halves[i]);
            assert_true((double)got == expected);
            assert_int_equal(signbit(got) != 0, signbit(x[i]) != 0);
        }
    }
}

/* Includes infinities, zeros, subnormals and NaNs. */
static void what_is_a_bf16_stays_as_it_is(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 65536; i++)
        x[i] = coh_f32_of_bits(i << 16);
    round_all(3, 65536);
    for (uint32_t i = 0; i < 65536; i++)
        assert_int_equal(y[i], isnan(x[i]) ? i | 0x40 : i);
}

static void nothing_finite_becomes_infinite(void **state)
{
    (void)state;
    for (int64_t i = 0; i < DRAWS; i++)
        x[i] = i % 2 == 0 ? FLT_MAX : -0x1.fe0002p127f;
    round_all(0, DRAWS);
    for (int64_t i = 0; i < DRAWS; i++)
        assert_int_equal(y[i], i % 2 == 0 ? 0x7f7f : 0xff7f);
}

/* The number rounded up is that of independent draws with probability p, within five standard
 * deviations, and so is the number of pairs at each pitch that are both up. `error`: of p. */
static void check_share(int64_t count, const char *is_up, double p, double error)
{
    static const int64_t pitches[] = { 1, 2, 16, 64, 128, 16384 };
    const double expected = (double)count * p;
    int64_t up = 0;
    for (int64_t i = 0; i < count; i++)
        up += is_up[i];
    assert_true(fabs((double)up - expected) <=
                5.0 * sqrt(expected * (1.0 - p)) + (double)count * error);
    for (int pitch = 0; pitch < 6; pitch++) {
        const int64_t pairs = count - pitches[pitch];
        const double q = p * p, n = (double)pairs;
        int64_t both = 0;
        for (int64_t i = 0; i < pairs; i++)
            both += is_up[i] && is_up[i + pitches[pitch]];
        /* pairs that share an element are not independent */
        const double deviation = sqrt(n * (q * (1.0 - q) + 2.0 * (p * q - q * q)));
        assert_true(fabs((double)both - n * q) <= 5.0 * deviation + 2.0 * n * error);
    }
}

static void rounding_has_the_number_as_its_mean(void **state)
{
    (void)state;
    static char is_up[DRAWS];
    static const uint32_t patterns[] = { 0x3f800001u, 0x3f804000u, 0x3f808000u, 0xbf80c000u,
                                         0x3f80ffffu, 0x00004000u, 0x7f7e8000u };
    for (int p = 0; p < 7; p++) {
        for (int64_t i = 0; i < DRAWS; i++)
            x[i] = coh_f32_of_bits(patterns[p]);
        round_all(0, DRAWS);
        for (int64_t i = 0; i < DRAWS; i++) {
            is_up[i] = (char)(y[i] - (patterns[p] >> 16));
            assert_in_range(is_up[i], 0, 1);
        }
        check_share(DRAWS, is_up, (patterns[p] & 0xffff) / 65536.0, 0.0);
    }
}

/* The chance that two roundings of halfway numbers agree in all of 1024 places is 2^-1024. */
static void step_seed_tensor_and_use_round_otherwise(void **state)
{
    (void)state;
    enum { COUNT = 1024, ROUNDINGS = 5 };
    static const coh_random_cell cells[] = { { 1, 1 }, { 2, 1 }, { 1, 2 } };
    const coh_rounding of[ROUNDINGS] = {
        { &cells[0], 1, 0 }, { &cells[1], 1, 0 }, { &cells[2], 1, 0 },
        { &cells[0], 2, 0 }, { &cells[0], 1, 1 },
    };
    static uint16_t all[ROUNDINGS][COUNT];
    for (int64_t i = 0; i < COUNT; i++)
        x[i] = coh_f32_of_bits(0x3f808000u);
    for (int r = 0; r < ROUNDINGS; r++) {
        coh_cpu_stochastic_round(NULL, &(coh_stochastic_round){ COUNT, 0, of[r], x, all[r] });
        for (int other = 0; other < r; other++)
            assert_memory_not_equal(all[r], all[other], sizeof(all[r]));
    }
}

/* ---- to bytes and back ---- */

static double largest_of(int64_t begin, int64_t end)
{
    double largest = 0.0;
    for (int64_t i = begin; i < end; i++)
        largest = fmax(largest, fabs((double)x[i]));
    return largest;
}

/* Compares code and value of each element with its position between -127 and 127, which two float
 * roundings move by less than 127 * 2^-22. */
static void check_codes(int64_t count, double most_off)
{
    static float back[MOST];
    coh_cpu_dequantise(NULL, &(coh_dequantise){ count, codes, scales, back });
    for (int64_t i = 0; i < count; i++) {
        const int64_t begin = i / BLOCK * BLOCK;
        const double scale = largest_of(begin, begin + BLOCK < count ? begin + BLOCK : count);
        const double place = scale > 0 ? 127.0 * x[i] / scale : 0.0;
        assert_true((double)scales[i / BLOCK] == scale);
        assert_true(fabs(codes[i] - place) <= most_off + 127.0 * 0x1p-22);
        if (fabs((double)x[i]) == scale)
            assert_true(back[i] == x[i]);
        const double error = scale * (most_off / 127.0 + 0x1p-21) + 0x1p-149;
        assert_true(fabs((double)back[i] - (double)x[i]) <= error);
    }
}

static void codes_are_the_nearest_or_next_to_the_place(void **state)
{
    (void)state;
    enum { COUNT = 20 * BLOCK + 37 };
    static const double sizes[] = { 1.0, 1e-30, 1e30, 0x1p-140, 0x1p-149 };
    for (int s = 0; s < 5; s++) {
        fill_normal(COUNT);
        for (int64_t i = 0; i < COUNT; i++)
            x[i] = (float)((double)x[i] * sizes[s]);
        x[5 * BLOCK + 1] = -FLT_MAX; /* an outlier affects only its own block */
        quantise_all(0, COUNT, 0);
        check_codes(COUNT, 0.5);
        quantise_all(0, COUNT, 1);
        check_codes(COUNT, 1.0);
    }
}

static void halves_between_codes_go_to_the_even_one(void **state)
{
    (void)state;
    for (int i = 0; i < 127; i++)
        x[i] = (i % 3 == 0 ? -1.0f : 1.0f) * ((float)i + 0.5f);
    x[127] = 127.0f;
    quantise_all(0, BLOCK, 0);
    for (int i = 0; i < 127; i++)
        assert_int_equal(codes[i], (i % 3 == 0 ? -1 : 1) * (i % 2 == 0 ? i : i + 1));
}

/* Also with stochastic rounding: a value that a code represents is not changed. */
static void codes_come_back(void **state)
{
    (void)state;
    enum { COUNT = 256 * BLOCK };
    for (int64_t i = 0; i < COUNT; i++) {
        codes[i] = (int8_t)(i % BLOCK == 0 ? 127 : (int)((i * 31 + i / BLOCK) % 255) - 127);
        scales[i / BLOCK] = ldexpf(1.0f, (int)(i / BLOCK) - 128);
    }
    static int8_t before[COUNT];
    static float before_scales[COUNT / BLOCK];
    memcpy(before, codes, sizeof(before));
    memcpy(before_scales, scales, sizeof(before_scales));
    coh_cpu_dequantise(NULL, &(coh_dequantise){ COUNT, codes, scales, x });
    for (int is_random = 0; is_random < 2; is_random++) {
        /* subnormal values are rounded when decoded: only whole scales are exact */
        const int64_t begin = 9 * BLOCK;
        quantise_all(0, COUNT, is_random);
        assert_memory_equal(codes + begin, before + begin, sizeof(before) - (size_t)begin);
        assert_memory_equal(scales, before_scales, sizeof(before_scales));
    }
    fill_normal(COUNT);
    quantise_all(0, COUNT, 1);
    memcpy(before, codes, sizeof(before));
    coh_cpu_dequantise(NULL, &(coh_dequantise){ COUNT, codes, scales, x });
    quantise_all(0, COUNT, 0);
    assert_memory_equal(codes, before, sizeof(before));
}

static void codes_have_the_place_as_their_mean(void **state)
{
    (void)state;
    static char is_up[DRAWS];
    static const float places[] = { 0.001f, 0.25f, 63.5f, 126.9f, -0.75f, -100.125f };
    for (int p = 0; p < 6; p++) {
        const int below = (int)floorf(places[p]);
        int64_t count = 0;
        for (int64_t i = 0; i < DRAWS; i++)
            x[i] = i % BLOCK == 0 ? 127.0f : places[p];
        quantise_all(0, DRAWS, 1);
        for (int64_t i = 0; i < DRAWS; i++) {
            if (i % BLOCK == 0) {
                assert_int_equal(codes[i], 127);
                continue;
            }
            is_up[count] = (char)(codes[i] - below);
            assert_in_range(is_up[count], 0, 1);
            count++;
        }
        /* 2^-17 from the halves, and two roundings */
        check_share(count, is_up, (double)places[p] - below, 0x1p-17 + 127.0 * 0x1p-23);
    }
}

static void a_block_that_is_not_finite_says_so_and_no_other(void **state)
{
    (void)state;
    enum { COUNT = 6 * BLOCK };
    static float back[COUNT];
    for (int is_random = 0; is_random < 2; is_random++) {
        fill_normal(COUNT);
        x[BLOCK + 3] = NAN;
        x[2 * BLOCK + 127] = INFINITY;
        x[3 * BLOCK] = -INFINITY;
        memset(x + 4 * BLOCK, 0, BLOCK * sizeof(*x));
        x[4 * BLOCK + 9] = -0.0f;
        quantise_all(0, COUNT, is_random);
        coh_cpu_dequantise(NULL, &(coh_dequantise){ COUNT, codes, scales, back });
        for (int64_t i = 0; i < COUNT; i++) {
            const int64_t block = i / BLOCK;
            const int is_finite = block == 0 || block > 3;
            assert_int_equal(isnan(back[i]) == 0, is_finite);
            assert_int_equal(isnan(scales[block]) == 0, is_finite);
            if (!is_finite || block == 4)
                assert_int_equal(codes[i], 0);
            if (block == 4)
                assert_true(back[i] == 0.0f && scales[4] == 0.0f);
        }
    }
}

/* ---- the same bits ---- */

static void pieces_have_the_bits_of_the_whole(void **state)
{
    (void)state;
    enum { COUNT = 5 * BLOCK + 17 };
    static uint16_t whole[COUNT];
    static int8_t whole_codes[COUNT];
    float whole_scales[6];
    const uint64_t first = 3 * BLOCK;
    fill_normal(COUNT);
    round_all(first, COUNT);
    memcpy(whole, y, sizeof(whole));
    quantise_all(first, COUNT, 1);
    memcpy(whole_codes, codes, sizeof(whole_codes));
    memcpy(whole_scales, scales, sizeof(whole_scales));
    for (int64_t begin = 0; begin < COUNT; begin += 23)
        for (int64_t count = 1; begin + count <= COUNT; count += 41) {
            coh_cpu_stochastic_round(NULL, &(coh_stochastic_round){ count, first + (uint64_t)begin,
                                                                    rounding, x + begin, y });
            assert_memory_equal(y, whole + begin, (size_t)count * sizeof(*y));
        }
    for (int64_t begin = 0; begin < COUNT; begin += BLOCK)
        for (int64_t end = begin + BLOCK; end < COUNT + BLOCK; end += BLOCK) {
            const int64_t count = (end < COUNT ? end : COUNT) - begin;
            const uint64_t number = first + (uint64_t)begin;
            coh_cpu_quantise(NULL,
                             &(coh_quantise){ count, number, rounding, x + begin, codes, scales });
            assert_memory_equal(codes, whole_codes + begin, (size_t)count);
            assert_memory_equal(scales, whole_scales + begin / BLOCK,
                                (size_t)((count + BLOCK - 1) / BLOCK) * sizeof(*scales));
        }
}

static void threads_change_no_bit(void **state)
{
    (void)state;
    static uint16_t here[MOST];
    static int8_t here_codes[MOST];
    static float here_scales[BLOCKS_MOST], here_back[MOST], back[MOST];
    fill_normal(MOST);
    round_all(5, MOST);
    quantise_all(0, MOST, 1);
    coh_cpu_dequantise(NULL, &(coh_dequantise){ MOST, codes, scales, here_back });
    memcpy(here, y, sizeof(here));
    memcpy(here_codes, codes, sizeof(here_codes));
    memcpy(here_scales, scales, sizeof(here_scales));
    for (int threads = 1; threads < 4; threads++) {
        coh_pool *pool;
        assert_int_equal(coh_pool_create(threads, &pool), COH_OK);
        memset(y, 0xff, sizeof(here));
        memset(codes, 0x55, sizeof(here_codes));
        memset(scales, 0xff, sizeof(here_scales));
        memset(back, 0xff, sizeof(back));
        coh_cpu_stochastic_round(pool, &(coh_stochastic_round){ MOST, 5, rounding, x, y });
        coh_cpu_quantise(pool, &(coh_quantise){ MOST, 0, rounding, x, codes, scales });
        coh_cpu_dequantise(pool, &(coh_dequantise){ MOST, codes, scales, back });
        assert_memory_equal(y, here, sizeof(here));
        assert_memory_equal(codes, here_codes, sizeof(here_codes));
        assert_memory_equal(scales, here_scales, sizeof(here_scales));
        assert_memory_equal(back, here_back, sizeof(here_back));
        coh_pool_destroy(pool);
    }
}

/* The results of one row function from one table, followed by guard elements. */
typedef struct row_results {
    uint16_t y[2 * BLOCK];
    int8_t codes[2 * BLOCK];
    float back[2 * BLOCK], scale;
} row_results;

static void run_rows(const coh_rows *rows, int64_t count, const uint32_t *drawn, row_results *out)
{
    memset(out, 0x55, sizeof(*out));
    if (drawn != NULL)
        rows->stochastic_round(out->y, x, drawn, count);
    out->scale = rows->quantise(out->codes, x, drawn, count);
    rows->dequantise(out->back, out->codes, out->scale, count);
}

static void instruction_sets_have_the_same_bits(void **state)
{
    (void)state;
    const coh_rows *plain = coh_rows_of("plain", COH_DTYPE_F32);
    draw(&rounding, 0, BLOCK);
    for (int isa = 1; isa < 3; isa++)
        for (int64_t count = 0; count <= BLOCK; count++)
            for (int how = 0; how < 6; how++) {
                static row_results expected, got;
                const coh_rows *rows = coh_rows_of(isas[isa], COH_DTYPE_F32);
                if (rows == NULL)
                    continue;
                if (how / 2 == 0)
                    fill_patterns(BLOCK);
                else
                    fill_normal(BLOCK);
                for (int64_t i = 0; how / 2 == 2 && i < BLOCK; i++)
                    x[i] *= 0x1p-140f;
                run_rows(plain, count, how % 2 == 0 ? halves : NULL, &expected);
                run_rows(rows, count, how % 2 == 0 ? halves : NULL, &got);
                assert_memory_equal(&got, &expected, sizeof(got));
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_number_becomes_the_neighbour_that_its_half_says),
        cmocka_unit_test(what_is_a_bf16_stays_as_it_is),
        cmocka_unit_test(nothing_finite_becomes_infinite),
        cmocka_unit_test(rounding_has_the_number_as_its_mean),
        cmocka_unit_test(step_seed_tensor_and_use_round_otherwise),
        cmocka_unit_test(codes_are_the_nearest_or_next_to_the_place),
        cmocka_unit_test(halves_between_codes_go_to_the_even_one),
        cmocka_unit_test(codes_come_back),
        cmocka_unit_test(codes_have_the_place_as_their_mean),
        cmocka_unit_test(a_block_that_is_not_finite_says_so_and_no_other),
        cmocka_unit_test(pieces_have_the_bits_of_the_whole),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(instruction_sets_have_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
