/* Every element of every tensor is in exactly one segment, whatever the chunks and the dtype. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <inttypes.h>
#include <string.h>

#include "base/rng.h"
#include "engine/segments.h"
#include "planner/optimizers.h"

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

/* ---- the rows of a chunk ---- */

enum { N = 3 * COH_PAGE_BYTES }; /* bytes of a chunk of work */

/* A row of a group, the bytes that it takes in a chunk of N bytes of work, and its offset. */
typedef struct expected_row {
    const char *name;
    uint8_t object;
    int part;
    uint64_t bytes, offset;
} expected_row;

static coh_group_layout group_of(const coh_optimizer *optimizer, coh_dtype dtype, int f32_gradients)
{
    coh_group_layout group = { .dtype = dtype,
                               .f32_gradients = f32_gradients,
                               .optimizer = optimizer != NULL ? 0 : -1 };
    coh_group_streams_make(&group, optimizer, 1);
    return group;
}

static void check_rows(const coh_group_layout *group, const expected_row *expected, int32_t count)
{
    assert_int_equal(group->stream_count, count);
    for (int32_t i = 0; i < count; i++) {
        const coh_group_stream *row = &group->streams[i];
        assert_string_equal(row->name, expected[i].name);
        assert_int_equal(row->object, expected[i].object);
        assert_int_equal(row->part, expected[i].part);
        assert_int_equal(coh_part_bytes(group, row, N), expected[i].bytes);
        assert_int_equal(coh_part_offset(group, row->object, i, N), expected[i].offset);
    }
}

static uint64_t chunk_bytes(const coh_group_layout *group, uint8_t object)
{
    return coh_group_chunk_bytes(group, object, N);
}

/* See coh_chunk in planner/program.h: n of m, n of v; or n of low, 2n of m, 2n of v. */
static void a_chunk_of_adamw_is_taken_apart_as_the_layout_says(void **state)
{
    (void)state;
    const coh_optimizer *adamw = coh_optimizer_find("adamw");
    for (int f32_gradients = 0; f32_gradients < 2; f32_gradients++) {
        const expected_row f32[] = { { "work", COH_STREAM_WORK, 0, N, 0 },
                                     { "grad", COH_STREAM_GRAD, -1, N, 0 },
                                     { "m", COH_STREAM_STATE, 1, N, 0 },
                                     { "v", COH_STREAM_STATE, 2, N, N } };
        coh_group_layout group = group_of(adamw, COH_DTYPE_F32, f32_gradients);
        check_rows(&group, f32, 4);
        assert_int_equal(chunk_bytes(&group, COH_STREAM_WORK), N);
        assert_int_equal(chunk_bytes(&group, COH_STREAM_GRAD), N);
        assert_int_equal(chunk_bytes(&group, COH_STREAM_STATE), 2 * N);
        const uint64_t grad_bytes = f32_gradients ? 2 * N : N;
        const expected_row bf16[] = { { "work", COH_STREAM_WORK, 0, N, 0 },
                                      { "grad", COH_STREAM_GRAD, -1, grad_bytes, 0 },
                                      { "low", COH_STREAM_STATE, -1, N, 0 },
                                      { "m", COH_STREAM_STATE, 1, 2 * N, N },
                                      { "v", COH_STREAM_STATE, 2, 2 * N, 3 * N } };
        group = group_of(adamw, COH_DTYPE_BF16, f32_gradients);
        check_rows(&group, bf16, 5);
        assert_int_equal(chunk_bytes(&group, COH_STREAM_WORK), N);
        assert_int_equal(chunk_bytes(&group, COH_STREAM_GRAD), grad_bytes);
        assert_int_equal(chunk_bytes(&group, COH_STREAM_STATE), 5 * N);
    }
}

/* 3072 elements in f32: 3072 bytes of codes; 24 scales of 4 bytes, rounded up to 128 bytes; 3
 * blocks of 5 bytes, rounded up to 64. In bf16 twice the elements, and the low halves before. */
static void rows_of_blocks_begin_at_aligned_offsets(void **state)
{
    (void)state;
    static const coh_optimizer codes = {
        .name = "codes",
        .stream_count = 3,
        .streams = { { "code", 1, 1, 0 }, { "scale", 4, 128, 1 }, { "block", 5, 1024, 0 } },
    };
    const expected_row f32[] = { { "work", COH_STREAM_WORK, 0, N, 0 },
                                 { "grad", COH_STREAM_GRAD, -1, N, 0 },
                                 { "code", COH_STREAM_STATE, 1, 3072, 0 },
                                 { "scale", COH_STREAM_STATE, 2, 128, 3072 },
                                 { "block", COH_STREAM_STATE, 3, 64, 3072 + 128 } };
    coh_group_layout group = group_of(&codes, COH_DTYPE_F32, 0);
    check_rows(&group, f32, 5);
    assert_int_equal(coh_part_offset(&group, COH_STREAM_STATE, 5, N), 3072 + 128 + 64);
    assert_int_equal(chunk_bytes(&group, COH_STREAM_STATE), COH_PAGE_BYTES);
    const expected_row bf16[] = { { "work", COH_STREAM_WORK, 0, N, 0 },
                                  { "grad", COH_STREAM_GRAD, -1, N, 0 },
                                  { "low", COH_STREAM_STATE, -1, N, 0 },
                                  { "code", COH_STREAM_STATE, 1, 6144, N },
                                  { "scale", COH_STREAM_STATE, 2, 192, N + 6144 },
                                  { "block", COH_STREAM_STATE, 3, 64, N + 6144 + 192 } };
    group = group_of(&codes, COH_DTYPE_BF16, 0);
    check_rows(&group, bf16, 6);
    assert_int_equal(chunk_bytes(&group, COH_STREAM_STATE), N + 2 * COH_PAGE_BYTES);
}

/* With rounds_work a bf16 chunk has no low halves; an f32 chunk never has any. */
static void a_work_that_is_rounded_has_no_low_halves(void **state)
{
    (void)state;
    for (int has_states = 0; has_states < 2; has_states++) {
        const coh_optimizer rounds = { .name = "rounds",
                                       .stream_count = has_states,
                                       .streams = { { "code", 1, 1, 0 } },
                                       .rounds_work = 1 };
        coh_optimizer keeps = rounds;
        keeps.rounds_work = 0;
        for (int d = 0; d < 2; d++) {
            const uint64_t elements = N / coh_dtype_bytes(dtypes[d]);
            const expected_row rows[] = { { "work", COH_STREAM_WORK, 0, N, 0 },
                                          { "grad", COH_STREAM_GRAD, -1, N, 0 },
                                          { "code", COH_STREAM_STATE, 1, elements, 0 } };
            const coh_group_layout group = group_of(&rounds, dtypes[d], 0);
            const coh_group_layout split = group_of(&keeps, dtypes[d], 0);
            check_rows(&group, rows, 2 + has_states);
            assert_int_equal(coh_group_splits_master(&group), 0);
            assert_int_equal(coh_group_splits_master(&split), dtypes[d] == COH_DTYPE_BF16);
        }
    }
}

static void a_chunk_without_states_takes_no_bytes_for_them(void **state)
{
    (void)state;
    static const coh_optimizer none = { .name = "none" };
    const expected_row rows[] = { { "work", COH_STREAM_WORK, 0, N, 0 },
                                  { "grad", COH_STREAM_GRAD, -1, N, 0 },
                                  { "low", COH_STREAM_STATE, -1, N, 0 } };
    coh_group_layout group = group_of(&none, COH_DTYPE_F32, 0);
    check_rows(&group, rows, 2);
    assert_int_equal(chunk_bytes(&group, COH_STREAM_STATE), 0);
    group = group_of(&none, COH_DTYPE_BF16, 0);
    check_rows(&group, rows, 3);
    assert_int_equal(chunk_bytes(&group, COH_STREAM_STATE), N);
    for (int d = 0; d < 2; d++) { /* not trained: nothing but the work */
        group = group_of(NULL, dtypes[d], 0);
        check_rows(&group, rows, 1);
        assert_int_equal(chunk_bytes(&group, COH_STREAM_GRAD), 0);
        assert_int_equal(chunk_bytes(&group, COH_STREAM_STATE), 0);
    }
}

/* Operators read the work, and nobody but the optimizer the rest. Gradients stay only for a
 * deferred update. */
static void a_row_says_who_reads_it_and_whether_it_stays(void **state)
{
    (void)state;
    for (int deferred = 0; deferred < 2; deferred++) {
        coh_group_layout group = { .dtype = COH_DTYPE_BF16 };
        coh_group_streams_make(&group, coh_optimizer_find("adamw"), deferred);
        for (int32_t i = 0; i < group.stream_count; i++) {
            const coh_group_stream *row = &group.streams[i];
            const int is_work = i == 0, is_grad = row->object == COH_STREAM_GRAD;
            assert_int_equal(row->survives, !is_grad || deferred);
            assert_int_equal(row->readers, is_work ? COH_READER_OPERATORS | COH_READER_OPTIMIZER
                                                   : COH_READER_OPTIMIZER);
        }
        coh_group_streams_make(&group, NULL, deferred);
        assert_int_equal(group.streams[0].readers, COH_READER_OPERATORS);
    }
}

/* ---- cover ---- */

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
        cmocka_unit_test(a_chunk_of_adamw_is_taken_apart_as_the_layout_says),
        cmocka_unit_test(rows_of_blocks_begin_at_aligned_offsets),
        cmocka_unit_test(a_work_that_is_rounded_has_no_low_halves),
        cmocka_unit_test(a_chunk_without_states_takes_no_bytes_for_them),
        cmocka_unit_test(a_row_says_who_reads_it_and_whether_it_stays),
        cmocka_unit_test(any_chunks_cover_each_element_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
