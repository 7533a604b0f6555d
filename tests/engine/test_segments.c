/* Every element of every tensor is in exactly one segment, whatever the chunks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <inttypes.h>
#include <string.h>

#include "base/rng.h"
#include "engine/segments.h"

#define PAGE        ((uint64_t)COH_PAGE_BYTES)
#define GRAIN       ((uint64_t)COH_GRAIN_ELEMENTS)
#define GRAIN_BYTES (4 * GRAIN)

/* Two groups; the second: a tensor of 2 grains + 5, one of 3 elements, one of a grain exactly. */
static coh_parameter_layout parameters[] = {
    { .parameter = 3, .group = 0, .offset = 0, .elements = 7 },
    { .parameter = 0, .group = 1, .offset = 0, .elements = 2 * GRAIN + 5 },
    { .parameter = 1, .group = 1, .offset = 2 * GRAIN_BYTES + PAGE, .elements = 3 },
    { .parameter = 2, .group = 1, .offset = 2 * GRAIN_BYTES + 2 * PAGE, .elements = GRAIN },
};
#define GROUP_BYTES (3 * GRAIN_BYTES + 2 * PAGE)
static coh_group_layout groups[] = {
    { .parameter_begin = 0, .parameter_count = 1 },
    { .parameter_begin = 1, .parameter_count = 3 },
};
static const coh_layout layout = {
    .parameters = parameters, .parameter_count = 4, .groups = groups, .group_count = 2
};

static char bytes[2 * GROUP_BYTES];

static void a_work_chunk_gives_its_tensors_without_padding(void **state)
{
    (void)state;
    coh_segments walk;
    coh_segment segment;
    /* from the second tensor-grain on to the end */
    coh_segments_begin(&walk, &layout, COH_STREAM_WORK, 1, GRAIN_BYTES, GROUP_BYTES - GRAIN_BYTES,
                       bytes);
    const struct {
        uint32_t parameter;
        uint64_t begin, count, offset;
    } expected[] = { { 1, GRAIN, GRAIN + 5, 0 },
                     { 2, 0, 3, GRAIN_BYTES + PAGE },
                     { 3, 0, GRAIN, GRAIN_BYTES + 2 * PAGE } };
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(coh_segments_next(&walk, &segment), 1);
        assert_int_equal(segment.parameter, expected[i].parameter);
        assert_int_equal(segment.part, COH_PART_WORK);
        assert_int_equal(segment.element_begin, expected[i].begin);
        assert_int_equal(segment.count, expected[i].count);
        assert_int_equal(segment.chunk_offset, expected[i].offset);
        assert_ptr_equal(segment.data, bytes + expected[i].offset);
    }
    assert_int_equal(coh_segments_next(&walk, &segment), 0);
    assert_int_equal(coh_segments_next(&walk, &segment), 0);
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

static void a_state_chunk_gives_m_then_v_of_the_same_range(void **state)
{
    (void)state;
    coh_segments walk;
    coh_segment segment, m[3];
    uint64_t n = GROUP_BYTES - GRAIN_BYTES;
    coh_segments_begin(&walk, &layout, COH_STREAM_STATE, 1, 2 * GRAIN_BYTES, 2 * n, bytes);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(coh_segments_next(&walk, &m[i]), 1);
        assert_int_equal(m[i].part, COH_PART_M);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(coh_segments_next(&walk, &segment), 1);
        assert_int_equal(segment.part, COH_PART_V);
        assert_int_equal(segment.parameter, m[i].parameter);
        assert_int_equal(segment.element_begin, m[i].element_begin);
        assert_int_equal(segment.count, m[i].count);
        assert_int_equal(segment.chunk_offset, m[i].chunk_offset);
        assert_ptr_equal(segment.data, (char *)m[i].data + n);
    }
    assert_int_equal(coh_segments_next(&walk, &segment), 0);
}

/* Chunks that end at grain or tensor ends, drawn at random. */
static void any_chunks_cover_each_element_once(void **state)
{
    (void)state;
    static unsigned char seen[4][COH_PART_COUNT][2 * GRAIN + 5];
    for (uint64_t seed = 0; seed < 50; seed++) {
        memset(seen, 0, sizeof(seen));
        /* places where a chunk of group 1 may end */
        const uint64_t ends[] = { GRAIN_BYTES, 2 * GRAIN_BYTES, 2 * GRAIN_BYTES + PAGE,
                                  2 * GRAIN_BYTES + 2 * PAGE, GROUP_BYTES };
        uint64_t begin = 0;
        for (int i = 0; i < 5; i++) {
            if (i < 4 && coh_rng_below(seed, 0, (uint64_t)i, 2))
                continue;
            for (int is_state = 0; is_state < 2; is_state++) {
                coh_segments walk;
                coh_segment segment;
                uint64_t factor = is_state ? 2 : 1;
                coh_segments_begin(&walk, &layout, is_state ? COH_STREAM_STATE : COH_STREAM_GRAD, 1,
                                   factor * begin, factor * (ends[i] - begin), NULL);
                while (coh_segments_next(&walk, &segment)) {
                    assert_null(segment.data);
                    assert_int_equal(segment.element_begin % GRAIN, 0);
                    for (uint64_t e = 0; e < segment.count; e++)
                        seen[segment.parameter][segment.part][segment.element_begin + e]++;
                }
            }
            begin = ends[i];
        }
        for (uint32_t p = 1; p < 4; p++)
            for (int part = 0; part < COH_PART_COUNT; part++)
                for (uint64_t e = 0; e < 2 * GRAIN + 5; e++)
                    if (seen[p][part][e] != (e < parameters[p].elements))
                        fail_msg("seed %" PRIu64 " tensor %u part %d element %" PRIu64, seed, p,
                                 part, e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_work_chunk_gives_its_tensors_without_padding),
        cmocka_unit_test(grains_of_a_segment_count_the_short_one),
        cmocka_unit_test(a_state_chunk_gives_m_then_v_of_the_same_range),
        cmocka_unit_test(any_chunks_cover_each_element_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
