/* Every element of every tensor is in exactly one segment, whatever the chunks and the dtype. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <inttypes.h>
#include <string.h>

#include "base/rng.h"
#include "engine/segments.h"

#define PAGE  ((uint64_t)COH_PAGE_BYTES)
#define GRAIN ((uint64_t)COH_GRAIN_ELEMENTS)

static const coh_dtype dtypes[] = { COH_DTYPE_F32, COH_DTYPE_BF16 };

/* Two groups; the second has a tensor of 2 grains + 5, one of 3 elements, one of exactly a
 * grain. */
static coh_parameter_layout parameters[4];
static coh_group_layout groups[2];
static const coh_layout layout = {
    .parameters = parameters, .parameter_count = 4, .groups = groups, .group_count = 2
};
static uint64_t grain_bytes, group_bytes; /* of the WORK stream */

static void lay_out(coh_dtype dtype)
{
    grain_bytes = GRAIN * coh_dtype_bytes(dtype);
    group_bytes = 3 * grain_bytes + 2 * PAGE;
    parameters[0] = (coh_parameter_layout){ .parameter = 3, .elements = 7 };
    parameters[1] = (coh_parameter_layout){ .group = 1, .elements = 2 * GRAIN + 5 };
    parameters[2] = (coh_parameter_layout){
        .parameter = 1, .group = 1, .offset = 2 * grain_bytes + PAGE, .elements = 3
    };
    parameters[3] = (coh_parameter_layout){
        .parameter = 2, .group = 1, .offset = 2 * grain_bytes + 2 * PAGE, .elements = GRAIN
    };
    groups[0] = (coh_group_layout){ .parameter_count = 1, .dtype = dtype };
    groups[1] = (coh_group_layout){ .parameter_begin = 1, .parameter_count = 3, .dtype = dtype };
}

static void a_chunk_gives_its_tensors_without_padding(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        coh_segments walk;
        coh_segment segment;
        lay_out(dtypes[d]);
        /* from the second tensor-grain to the end */
        coh_segments_begin(&walk, &layout, 1, grain_bytes, group_bytes - grain_bytes);
        const struct {
            uint32_t parameter;
            uint64_t begin, count, offset;
        } expected[] = { { 1, GRAIN, GRAIN + 5, 0 },
                         { 2, 0, 3, grain_bytes + PAGE },
                         { 3, 0, GRAIN, grain_bytes + 2 * PAGE } };
        for (size_t i = 0; i < 3; i++) {
            assert_int_equal(coh_segments_next(&walk, &segment), 1);
            assert_int_equal(segment.parameter, expected[i].parameter);
            assert_int_equal(segment.element_begin, expected[i].begin);
            assert_int_equal(segment.count, expected[i].count);
            char *begin = (char *)parameters;
            assert_ptr_equal(coh_element_at(begin, dtypes[d], segment.chunk_element),
                             begin + expected[i].offset);
        }
        assert_int_equal(coh_segments_next(&walk, &segment), 0);
        assert_int_equal(coh_segments_next(&walk, &segment), 0);
    }
}

static void grains_of_a_segment_count_the_short_one(void **state)
{
    (void)state;
    uint64_t first;
    coh_segment segment = { .element_begin = GRAIN, .count = GRAIN + 5 };
    assert_int_equal(coh_segment_grains(&segment, &first), 2);
    assert_int_equal(first, 1);
    segment.count = GRAIN;
    assert_int_equal(coh_segment_grains(&segment, &first), 1);
}

/* See coh_chunk in planner/program.h: n of m, n of v; or n of low, 2n of m, 2n of v. */
static void a_state_chunk_is_taken_apart_as_the_layout_says(void **state)
{
    (void)state;
    enum { N = 3 * 4096 };
    static char bytes[5 * N];
    coh_states f32 = coh_states_at(bytes, COH_DTYPE_F32, N);
    assert_null(f32.low);
    assert_ptr_equal(f32.m, bytes);
    assert_ptr_equal(f32.v, bytes + N);
    coh_states bf16 = coh_states_at(bytes, COH_DTYPE_BF16, N);
    assert_ptr_equal(bf16.low, bytes);
    assert_ptr_equal(bf16.m, bytes + N);
    assert_ptr_equal(bf16.v, bytes + 3 * N);
    coh_states none = coh_states_at(NULL, COH_DTYPE_BF16, N);
    assert_true(none.low == NULL && none.m == NULL && none.v == NULL);
}

/* Chunks that end at grain or tensor ends, drawn at random. */
static void any_chunks_cover_each_element_once(void **state)
{
    (void)state;
    static unsigned char seen[4][2 * GRAIN + 5];
    for (uint64_t seed = 0; seed < 100; seed++) {
        memset(seen, 0, sizeof(seen));
        lay_out(dtypes[seed % 2]);
        /* offsets where a chunk of group 1 may end */
        const uint64_t ends[] = { grain_bytes, 2 * grain_bytes, 2 * grain_bytes + PAGE,
                                  2 * grain_bytes + 2 * PAGE, group_bytes };
        uint64_t begin = 0;
        for (int i = 0; i < 5; i++) {
            if (i < 4 && coh_rng_below(seed, 0, (uint64_t)i, 2))
                continue;
            coh_segments walk;
            coh_segment segment;
            coh_segments_begin(&walk, &layout, 1, begin, ends[i] - begin);
            while (coh_segments_next(&walk, &segment)) {
                assert_int_equal(segment.element_begin % GRAIN, 0);
                for (uint64_t e = 0; e < segment.count; e++)
                    seen[segment.parameter][segment.element_begin + e]++;
            }
            begin = ends[i];
        }
        for (uint32_t p = 1; p < 4; p++)
            for (uint64_t e = 0; e < 2 * GRAIN + 5; e++)
                if (seen[p][e] != (e < parameters[p].elements))
                    fail_msg("seed %" PRIu64 " tensor %u element %" PRIu64, seed, p, e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chunk_gives_its_tensors_without_padding),
        cmocka_unit_test(grains_of_a_segment_count_the_short_one),
        cmocka_unit_test(a_state_chunk_is_taken_apart_as_the_layout_says),
        cmocka_unit_test(any_chunks_cover_each_element_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
