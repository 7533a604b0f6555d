/* GATHER and REDUCE over ranks: what each rank has at the end is compared bit for bit with a loop
 * over all contributions, in all meshes of 2, 4 and 8 ranks and fold shapes, with delays, with two
 * lines at once, and with each call of a transport failing once. */
#include "tests/comm/ranks.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "base/fold_shape.h"
#include "base/half.h"
#include "base/rng.h"
#include "comm/exchange.h"
#include "kernels/fold.h"
#include "tests/length.h"

enum { STEPS = 3, PART = 40, MOST = RANKS_MOST * PART };

typedef struct setting {
    coh_mesh mesh;
    coh_axis_set axes;
    coh_fold_shape shape; /* of the group */
    coh_dtype dtype;
    int32_t steps;
    /* The window of each rank after each step: all folded parts. */
    float found[RANKS_MOST][STEPS][MOST];
} setting;

/* The contribution of a rank in a step: of many sizes, so that the order of a sum shows. */
static float contribution(int32_t rank, int32_t step, int64_t i)
{
    const uint64_t at = (uint64_t)(step * MOST + i);
    const float sizes[] = { 1e-6f, 1.0f, 1e5f, 3e7f };
    return (float)coh_rng_normal(5, (uint64_t)rank, at) *
           sizes[coh_rng_below(6, (uint64_t)rank, at, 4)];
}

static float stored(coh_dtype dtype, float value)
{
    return dtype == COH_DTYPE_F32 ? value : coh_f32_of_bf16(coh_bf16_of_f32(value));
}

static void store(coh_dtype dtype, void *tensor, int64_t i, float value)
{
    if (dtype == COH_DTYPE_F32)
        ((float *)tensor)[i] = value;
    else
        ((uint16_t *)tensor)[i] = coh_bf16_of_f32(value);
}

static coh_exchange exchange_of(const setting *s, int32_t rank, size_t part_bytes)
{
    return (coh_exchange){ .mesh = &s->mesh,
                           .axes = s->axes,
                           .rank = rank,
                           .part_bytes = part_bytes,
                           .window_bytes =
                               part_bytes * (size_t)coh_mesh_group_size(&s->mesh, s->axes) };
}

/* ---- one rank ---- */

/* Two lines: REDUCE brings slices of the contribution together, GATHER makes the folded window. */
typedef struct lines {
    coh_link_plan plan;
    coh_exchange reduce, gather;
    uint32_t reduce_line, gather_line;
    unsigned char contribution[MOST * 4], received[MOST * 4];
    float window[MOST];
} lines;

static coh_status make_lines(const setting *s, int32_t rank, lines *made)
{
    made->reduce = exchange_of(s, rank, PART * coh_dtype_bytes(s->dtype));
    made->gather = exchange_of(s, rank, PART * sizeof(float));
    COH_TRY(coh_exchange_reduce(&made->plan, &made->reduce, made->contribution, made->received,
                                &made->reduce_line));
    return coh_exchange_gather(&made->plan, &made->gather, made->window, &made->gather_line);
}

/* The room for slices ends after p - 1 of them. */
static int is_room_kept(const lines *made, int32_t size)
{
    const size_t part_bytes = made->reduce.part_bytes, end = (size_t)(size - 1) * part_bytes;
    for (size_t i = end; i < end + part_bytes; i++)
        if (made->received[i] != 0)
            return 0;
    return 1;
}

static coh_status run_step(setting *s, coh_transport *transport, lines *made, int32_t step)
{
    const int32_t size = coh_mesh_group_size(&s->mesh, s->axes);
    const int32_t index = coh_mesh_group_index(&s->mesh, s->axes, transport->rank);
    const void *slices[RANKS_MOST];
    int is_done = 0;
    for (int64_t i = 0; i < size * PART; i++)
        store(s->dtype, made->contribution, i, contribution(transport->rank, step, i));
    COH_TRY(coh_transport_start(transport, made->reduce_line));
    COH_TRY(coh_transport_wait(transport, made->reduce_line));
    if (!is_room_kept(made, size))
        return coh_transport_stop(transport, COH_ERR_INTERNAL, "more than p - 1 slices");
    coh_exchange_slices(&made->reduce, made->contribution, made->received, slices);
    coh_kernel_fold(NULL, &(coh_fold_call){ .shape = s->shape,
                                            .contributions = slices,
                                            .to = made->window + index * PART,
                                            .dtype = s->dtype,
                                            .to_dtype = COH_DTYPE_F32,
                                            .count = PART });
    COH_TRY(coh_transport_start(transport, made->gather_line));
    COH_TRY(coh_transport_test(transport, made->gather_line, &is_done));
    if (!is_done)
        COH_TRY(coh_transport_wait(transport, made->gather_line));
    memcpy(s->found[transport->rank][step], made->window, (size_t)(size * PART) * sizeof(float));
    return COH_OK;
}

static coh_status all_reduce(coh_transport *transport, void *argument)
{
    setting *s = argument;
    lines *made = calloc(1, sizeof(*made));
    coh_status status = make_lines(s, transport->rank, made);
    if (status == COH_OK)
        status = coh_transport_bind(transport, &made->plan);
    for (int32_t step = 0; step < s->steps && status == COH_OK; step++)
        status = run_step(s, transport, made, step);
    if (status == COH_OK)
        status = coh_transport_gather(transport, NULL, 0, NULL);
    coh_transport_close(transport); /* before its memory goes */
    coh_link_plan_fini(&made->plan);
    free(made);
    return status;
}

/* ---- the oracle ---- */

static float naive_sum(const setting *s, int32_t rank, int32_t step, int64_t i, int factor_count,
                       int32_t *next)
{
    if (factor_count == 0) {
        const int32_t member = coh_mesh_group_member(&s->mesh, s->axes, rank, (*next)++);
        return stored(s->dtype, contribution(member, step, i));
    }
    float sum = naive_sum(s, rank, step, i, factor_count - 1, next);
    for (int32_t k = 1; k < s->shape.factors[factor_count - 1]; k++) {
        volatile float total = sum + naive_sum(s, rank, step, i, factor_count - 1, next);
        sum = total;
    }
    return sum;
}

/* Returns how many values of a rank have other bits than the oracle's. */
static int count_wrong(const setting *s, int32_t rank)
{
    const int32_t size = coh_mesh_group_size(&s->mesh, s->axes);
    int count = 0;
    for (int32_t step = 0; step < s->steps; step++)
        for (int64_t i = 0; i < size * PART; i++) {
            int32_t next = 0;
            const float sum = naive_sum(s, rank, step, i, coh_fold_factor_count(&s->shape), &next);
            count += coh_f32_bits(s->found[rank][step][i]) != coh_f32_bits(sum);
        }
    return count;
}

static void expect_sums(const setting *s)
{
    int wrong_count = 0;
    for (int32_t rank = 0; rank < coh_mesh_rank_count(&s->mesh); rank++)
        if (ranks_are_here(rank))
            wrong_count += count_wrong(s, rank);
    if (ranks_any(wrong_count > 0))
        fail_msg("%d values of the ranks here have wrong bits", wrong_count);
}

/* ---- settings ---- */

static setting setting_of(int32_t inner, int32_t outer, coh_axis_set axes, const char *shape,
                          coh_dtype dtype)
{
    const coh_axis both[] = { { "inner", inner }, { "outer", outer } };
    const coh_levels levels = { .rank_count = { 1, 1, inner * outer, inner * outer } };
    setting s = { .axes = axes, .dtype = dtype, .steps = STEPS };
    assert_int_equal(coh_mesh_init(&s.mesh, both, 2, &levels), COH_OK);
    assert_int_equal(coh_fold_shape_parse(shape, &s.shape), COH_OK);
    assert_int_equal(coh_fold_shape_replicas(&s.shape), coh_mesh_group_size(&s.mesh, axes));
    return s;
}

static void run(setting *s)
{
    ranks_end ends[RANKS_MOST];
    const int32_t count = coh_mesh_rank_count(&s->mesh);
    if (!ranks_can(count))
        return;
    memset(s->found, 0x5a, sizeof(s->found));
    ranks_run(count, all_reduce, s, ends);
    ranks_expect(count, ends, COH_OK, "");
    expect_sums(s);
}

static const struct {
    int32_t inner, outer;
    coh_axis_set axes;
    const char *shape;
} cases[] = {
    { 1, 1, 3, "1" },   { 2, 1, 3, "2" },   { 4, 1, 3, "4" },     { 2, 2, 3, "2x2" },
    { 2, 2, 1, "2" },   { 2, 2, 2, "2" },   { 2, 2, 0, "1" },     { 8, 1, 3, "8" },
    { 4, 2, 3, "4x2" }, { 2, 4, 3, "2x4" }, { 2, 4, 3, "2x2x2" }, { 4, 2, 1, "2x2" },
    { 2, 4, 2, "4" },   { 3, 2, 3, "3x2" }, { 5, 1, 1, "5" },
};
enum { CASES = sizeof(cases) / sizeof(cases[0]) };

static setting case_of(int number, coh_dtype dtype)
{
    return setting_of(cases[number].inner, cases[number].outer, cases[number].axes,
                      cases[number].shape, dtype);
}

static void every_mesh_and_shape_folds_as_one_loop(void **state)
{
    (void)state;
    static const coh_dtype dtypes[] = { COH_DTYPE_F32, COH_DTYPE_BF16 };
    for (int number = 0; number < CASES; number++)
        for (int type = 0; type < 2; type++) {
            setting s = case_of(number, dtypes[type]);
            run(&s);
        }
}

static void delays_change_no_bit(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= test_cases(20); seed++) {
        const transport_fault_plan plan = { .seed = seed, .fail_at = -1, .delay_most_us = 300 };
        setting s = case_of((int)(seed % CASES), COH_DTYPE_F32);
        transport_fault_plan_set(&plan);
        run(&s);
        transport_fault_plan_set(NULL);
    }
}

/* A rank that fails has not reached the last barrier, so that every rank must learn of it. */
static void each_call_that_fails_gives_all_ranks_one_sentence(void **state)
{
    (void)state;
    static const int numbers[] = { 1, 3, 10 }; /* 2, 4 and 8 ranks */
    for (int i = 0; i < 3; i++)
        for (int64_t n = 0;; n += test_seeks_races() ? 3 : 1) {
            const transport_fault_plan plan = { .seed = (uint64_t)n, .fail_at = n };
            setting s = case_of(numbers[i], COH_DTYPE_F32);
            const int32_t count = coh_mesh_rank_count(&s.mesh);
            if (!ranks_can(count))
                break;
            ranks_end ends[RANKS_MOST];
            s.steps = 2;
            transport_fault_plan_set(&plan);
            ranks_run(count, all_reduce, &s, ends);
            const int hit = ranks_any(transport_fault_was_hit());
            transport_fault_plan_set(NULL);
            if (!hit) {
                ranks_expect(count, ends, COH_OK, "");
                assert_true(n >= 6 * count);
                break;
            }
            char part[64];
            (void)snprintf(part, sizeof(part), ": injected: call %lld, ", (long long)n);
            ranks_expect(count, ends, COH_ERR_IO, part);
        }
}

/* ---- volumes ---- */

static void each_rank_receives_p_minus_1_parts(void **state)
{
    (void)state;
    for (int number = 0; number < CASES; number++) {
        const setting s = case_of(number, COH_DTYPE_F32);
        const int32_t size = coh_mesh_group_size(&s.mesh, s.axes);
        for (int32_t rank = 0; rank < coh_mesh_rank_count(&s.mesh); rank++) {
            lines *made = calloc(1, sizeof(*made));
            size_t sent[2] = { 0 }, received[2] = { 0 };
            assert_int_equal(make_lines(&s, rank, made), COH_OK);
            assert_int_equal(made->plan.line_count, 2);
            for (size_t line = 0; line < 2; line++)
                for (size_t i = coh_link_plan_first(&made->plan, line);
                     i < made->plan.line_ends[line]; i++) {
                    const coh_link *link = &made->plan.links[i];
                    *(link->from != NULL ? &sent[line] : &received[line]) += link->bytes;
                }
            for (size_t line = 0; line < 2; line++) {
                assert_int_equal(sent[line], (size_t)(size - 1) * PART * sizeof(float));
                assert_int_equal(received[line], sent[line]);
            }
            coh_link_plan_fini(&made->plan);
            free(made);
        }
    }
}

/* The bytes that one rank's plan sends to a peer, or receives from it. */
static size_t bytes_with(const coh_link_plan *plan, int32_t peer, int sends)
{
    size_t bytes = 0;
    for (size_t i = 0; i < plan->link_count; i++)
        if (plan->links[i].peer == peer && (plan->links[i].from != NULL) == sends)
            bytes += plan->links[i].bytes;
    return bytes;
}

/* Each byte of the window belongs to the member whose number is its place over the part's length:
 * the last parts are shorter, or empty. */
static void the_last_parts_of_a_window_end_with_it(void **state)
{
    (void)state;
    enum { WINDOW = 17, MEMBERS = 7 };
    static unsigned char window[MEMBERS * MEMBERS], received[MEMBERS * MEMBERS];
    const coh_axis axis = { .name = "data", .rank_count = MEMBERS };
    const coh_levels levels = { { 1, 1, MEMBERS, MEMBERS } };
    coh_mesh mesh;
    coh_link_plan plans[2][MEMBERS] = { { { 0 } } };
    assert_int_equal(coh_mesh_init(&mesh, &axis, 1, &levels), COH_OK);
    for (size_t part = 3; part <= MEMBERS; part++) {
        for (int32_t rank = 0; rank < MEMBERS; rank++) {
            const coh_exchange exchange = { &mesh, 1, rank, part, WINDOW };
            uint32_t line;
            assert_int_equal(
                coh_exchange_reduce(&plans[0][rank], &exchange, window, received, &line), COH_OK);
            assert_int_equal(coh_exchange_gather(&plans[1][rank], &exchange, window, &line),
                             COH_OK);
        }
        for (int32_t from = 0; from < MEMBERS; from++)
            for (int32_t to = 0; to < MEMBERS; to++) {
                size_t owned[2] = { 0 }; /* bytes of `to`, which reduces them; of `from` */
                for (size_t byte = 0; byte < WINDOW && from != to; byte++) {
                    owned[0] += byte / part == (size_t)to;
                    owned[1] += byte / part == (size_t)from;
                }
                for (int gathers = 0; gathers < 2; gathers++) {
                    assert_int_equal(bytes_with(&plans[gathers][from], to, 1), owned[gathers]);
                    assert_int_equal(bytes_with(&plans[gathers][to], from, 0), owned[gathers]);
                }
            }
        for (int i = 0; i < 2 * MEMBERS; i++)
            coh_link_plan_fini(&plans[i % 2][i / 2]);
    }
}

static void a_window_beyond_64_bits_is_refused(void **state)
{
    (void)state;
    const setting s = case_of(7, COH_DTYPE_F32);
    const coh_exchange exchange = { &s.mesh, s.axes, 0, SIZE_MAX / 4, SIZE_MAX };
    coh_link_plan plan = { 0 };
    uint32_t line;
    assert_int_equal(coh_exchange_gather(&plan, &exchange, NULL, &line), COH_ERR_FULL);
    assert_int_equal(coh_exchange_reduce(&plan, &exchange, NULL, NULL, &line), COH_ERR_FULL);
    coh_link_plan_fini(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mesh_and_shape_folds_as_one_loop),
        cmocka_unit_test(delays_change_no_bit),
        cmocka_unit_test(each_call_that_fails_gives_all_ranks_one_sentence),
        cmocka_unit_test(each_rank_receives_p_minus_1_parts),
        cmocka_unit_test(the_last_parts_of_a_window_end_with_it),
        cmocka_unit_test(a_window_beyond_64_bits_is_refused),
    };
    return cmocka_run_group_tests(tests, ranks_set_up, ranks_tear_down);
}
