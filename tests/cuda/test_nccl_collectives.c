/* Collectives of NCCL's double over ranks on the stub driver's GPUs: in meshes of 4 to 8 ranks a
 * REDUCE is within a bound of the sum in double, equal on all ranks once it is gathered, and added
 * in the double's order, not in ours; a GATHER brings every byte. Windows whose parts differ are
 * left to links, and each call of NCCL that fails ends all ranks with one sentence. */
#include "tests/comm/ranks.h"

#include <math.h>
#include <stdlib.h>

#include "base/half.h"
#include "base/rng.h"
#include "comm/exchange.h"
#include "comm/threads.h"
#include "tests/cuda/fake_nccl.h"
#include "tests/cuda/stub_driver.h"
#include "tests/length.h"

enum { PART = 700, MOST = RANKS_MOST * PART, ROUNDS = 2, EXCHANGES = 2 };

/* All ranks reduce and gather a window over each axis of a mesh, the inner one on lane 0. */
typedef struct setting {
    coh_mesh mesh;
    int is_apart; /* 1: the sum is not made in its place */
    float found[EXCHANGES][RANKS_MOST][MOST];
} setting;

static float contribution(int exchange, int32_t rank, int round, int64_t i)
{
    const uint64_t at = (uint64_t)((round * EXCHANGES + exchange) * MOST + i);
    const float sizes[] = { 1e-6f, 1.0f, 1e5f, 3e7f };
    return (float)coh_rng_normal(7, (uint64_t)rank, at) *
           sizes[coh_rng_below(8, (uint64_t)rank, at, 4)];
}

/* ---- one rank ---- */

typedef struct room {
    coh_link_plan plan;
    coh_exchange exchanges[EXCHANGES];
    uint32_t reduces[EXCHANGES], gathers[EXCHANGES];
    float contributions[EXCHANGES][MOST], windows[EXCHANGES][MOST];
} room;

/* Returns where the sum of this rank's part goes. */
static float *sum_of(const setting *s, room *r, int number)
{
    const coh_exchange *of = &r->exchanges[number];
    float *window = s->is_apart ? r->windows[number] : r->contributions[number];
    return window + coh_mesh_group_index(of->mesh, of->axes, of->rank) * PART;
}

static coh_status list(const setting *s, int32_t rank, room *r)
{
    for (int i = 0; i < EXCHANGES; i++) {
        const coh_axis_set axes = 1u << i;
        const size_t bytes = PART * sizeof(float);
        int are_added[2] = { 0, 0 };
        r->exchanges[i] = (coh_exchange){ &s->mesh, axes, rank, bytes,
                                          bytes * (size_t)coh_mesh_group_size(&s->mesh, axes) };
        r->plan.lane = (uint8_t)i;
        COH_TRY(coh_exchange_reduce_collective(&r->plan, &r->exchanges[i], r->contributions[i],
                                               sum_of(s, r, i), &r->reduces[i], &are_added[0]));
        COH_TRY(coh_exchange_gather_collective(&r->plan, &r->exchanges[i],
                                               s->is_apart ? r->windows[i] : r->contributions[i],
                                               &r->gathers[i], &are_added[1]));
        if (!are_added[0] || !are_added[1])
            return coh_fail(COH_ERR_INTERNAL, "a collective is left out");
    }
    return COH_OK;
}

/* Both exchanges are under way at once. */
static coh_status run_round(setting *s, coh_transport *transport, room *r, int round)
{
    for (int i = 0; i < EXCHANGES; i++)
        for (int64_t k = 0; k < MOST; k++) {
            r->contributions[i][k] = contribution(i, transport->rank, round, k);
            r->windows[i][k] = 0;
        }
    for (int i = 0; i < EXCHANGES; i++)
        COH_TRY(coh_transport_start(transport, r->reduces[i]));
    for (int i = 0; i < EXCHANGES; i++) {
        COH_TRY(coh_transport_wait(transport, r->reduces[i]));
        COH_TRY(coh_transport_start(transport, r->gathers[i]));
    }
    for (int i = 0; i < EXCHANGES; i++) {
        COH_TRY(coh_transport_wait(transport, r->gathers[i]));
        memcpy(s->found[i][transport->rank], s->is_apart ? r->windows[i] : r->contributions[i],
               sizeof(s->found[i][transport->rank]));
    }
    return coh_transport_gather(transport, NULL, 0, NULL);
}

static coh_status exchange_all(coh_transport *transport, void *argument)
{
    setting *s = argument;
    room *r = calloc(1, sizeof(*r));
    coh_status status = list(s, transport->rank, r);
    if (status == COH_OK)
        status = coh_transport_bind(transport, &r->plan);
    for (int round = 0; round < ROUNDS && status == COH_OK; round++)
        status = run_round(s, transport, r, round);
    coh_transport_close(transport);
    coh_link_plan_fini(&r->plan);
    free(r);
    return status;
}

/* ---- the oracle ---- */

typedef struct oracle {
    double sum, magnitude;
    float of_library, of_ours; /* added from the last member on; from the first */
} oracle;

static oracle oracle_of(const setting *s, int number, int32_t rank, int64_t i)
{
    const coh_axis_set axes = 1u << number;
    const int32_t size = coh_mesh_group_size(&s->mesh, axes);
    oracle o = { 0 };
    for (int32_t k = 0; k < size; k++) {
        const float up =
            contribution(number, coh_mesh_group_member(&s->mesh, axes, rank, k), ROUNDS - 1, i);
        const float down = contribution(
            number, coh_mesh_group_member(&s->mesh, axes, rank, size - 1 - k), ROUNDS - 1, i);
        volatile float ours = k == 0 ? up : o.of_ours + up;
        volatile float library = k == 0 ? down : o.of_library + down;
        o.of_ours = ours;
        o.of_library = library;
        o.sum += (double)up;
        o.magnitude += fabs((double)up);
    }
    return o;
}

/* Compares all windows, and adds how many values have other bits than our order gives. */
static void expect_sums(const setting *s, int64_t *differing_count)
{
    for (int number = 0; number < EXCHANGES; number++) {
        const int32_t size = coh_mesh_group_size(&s->mesh, 1u << number);
        for (int32_t rank = 0; rank < coh_mesh_rank_count(&s->mesh); rank++)
            for (int64_t i = 0; i < size * PART; i++) {
                const oracle o = oracle_of(s, number, rank, i);
                const float found = s->found[number][rank][i];
                const double bound = (size - 1) * ldexp(1, -23) * o.magnitude;
                if (!(fabs((double)found - o.sum) <= bound))
                    fail_msg("rank %d, element %d: %a, in double %a", (int)rank, (int)i,
                             (double)found, o.sum);
                if (coh_f32_bits(found) != coh_f32_bits(o.of_library))
                    fail_msg("rank %d, element %d: %a, the library's order gives %a", (int)rank,
                             (int)i, (double)found, (double)o.of_library);
                *differing_count += coh_f32_bits(found) != coh_f32_bits(o.of_ours);
            }
    }
}

/* ---- settings ---- */

static void mesh_of(int32_t inner, int32_t outer, setting *s)
{
    const coh_axis both[] = { { "inner", inner }, { "outer", outer } };
    const coh_levels levels = { { 1, 1, inner * outer, inner * outer } };
    assert_int_equal(coh_mesh_init(&s->mesh, both, 2, &levels), COH_OK);
}

static const int32_t meshes[][2] = { { 2, 2 }, { 3, 2 }, { 2, 4 }, { 4, 2 } };

static void sums_are_the_librarys_and_equal_on_all_ranks(void **state)
{
    (void)state;
    for (size_t number = 0; number < sizeof(meshes) / sizeof(meshes[0]); number++)
        for (int is_apart = 0; is_apart < 2; is_apart++) {
            ranks_end ends[RANKS_MOST];
            setting *s = calloc(1, sizeof(*s));
            int64_t differing_count = 0;
            const int32_t count = meshes[number][0] * meshes[number][1];
            assert_non_null(s);
            mesh_of(meshes[number][0], meshes[number][1], s);
            s->is_apart = is_apart;
            fake_nccl_reset();
            ranks_run(count, exchange_all, s, ends);
            ranks_expect(count, ends, COH_OK, "");
            expect_sums(s, &differing_count);
            assert_true(count == 4 || differing_count > 0); /* two are added alike in any order */
            assert_int_equal(fake_nccl_live_count(), 0);
            free(s);
        }
}

/* Communicators of groups are made, used and ended by calls that may fail. */
static void each_call_of_nccl_that_fails_ends_all_ranks_with_one_sentence(void **state)
{
    (void)state;
    for (int call = 0; call < FAKE_NCCL_CALL_COUNT; call++)
        for (uint64_t n = 1;; n += n < 4 || !test_is_brief() ? 1 : 7) {
            ranks_end ends[RANKS_MOST];
            setting *s = calloc(1, sizeof(*s));
            assert_non_null(s);
            mesh_of(2, 2, s);
            fake_nccl_reset();
            fake_nccl_fail_nth((fake_nccl_call)call, n);
            ranks_run(4, exchange_all, s, ends);
            const int was_hit = fake_nccl_fault_was_hit();
            fake_nccl_fail_nth((fake_nccl_call)call, 0);
            free(s);
            assert_int_equal(fake_nccl_live_count(), 0);
            const int ends_well = ends[0].status == COH_OK;
            ranks_expect(4, ends, ends_well ? COH_OK : COH_ERR_DEVICE,
                         ends_well ? "" : "made to fail");
            if (ends_well && (!was_hit || call == FAKE_NCCL_ASYNC_ERROR))
                break;
        }
}

/* A window of parts that differ has no collective, but its group is named. */
static void a_window_whose_parts_differ_is_left_to_links(void **state)
{
    (void)state;
    setting s;
    coh_link_plan plan = { 0 };
    float window[MOST] = { 0 };
    const size_t part = PART * sizeof(float);
    mesh_of(4, 2, &s);
    for (size_t window_bytes = 4 * part - 256; window_bytes <= 4 * part; window_bytes += 128) {
        const coh_exchange exchange = { &s.mesh, 1, 3, part, window_bytes };
        uint32_t line;
        int is_added = -1;
        const size_t before = plan.line_count;
        assert_int_equal(
            coh_exchange_reduce_collective(&plan, &exchange, window, window, &line, &is_added),
            COH_OK);
        assert_int_equal(is_added, window_bytes == 4 * part);
        assert_int_equal(plan.line_count - before, (size_t)is_added);
        assert_int_equal(plan.group_count, 1);
    }
    assert_int_equal(plan.groups[0].count, 4);
    assert_int_equal(plan.groups[0].index, 3);
    coh_link_plan_fini(&plan);
}

/* Rank 1 reduces a shorter window than the others. */
static coh_status bind_apart(coh_transport *transport, void *argument)
{
    const setting *s = argument;
    static float window[MOST];
    coh_link_plan plan = { 0 };
    uint32_t line;
    int is_added;
    const size_t part = (PART - (size_t)(transport->rank == 1)) * sizeof(float);
    const coh_exchange exchange = { &s->mesh, 3, transport->rank, part, 4 * part };
    coh_status status = coh_exchange_gather_collective(&plan, &exchange, window, &line, &is_added);
    if (status == COH_OK)
        status = coh_transport_bind(transport, &plan);
    coh_transport_close(transport);
    coh_link_plan_fini(&plan);
    return status;
}

static void collectives_that_differ_are_refused_before_any_is_made(void **state)
{
    (void)state;
    ranks_end ends[RANKS_MOST];
    setting s;
    mesh_of(2, 2, &s);
    fake_nccl_reset();
    ranks_run(4, bind_apart, &s, ends);
    ranks_expect(4, ends, COH_ERR_ARGUMENT, "does not list the same messages");
    assert_int_equal(fake_nccl_count(FAKE_NCCL_ALL_GATHER), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_the_librarys_and_equal_on_all_ranks),
        cmocka_unit_test(each_call_of_nccl_that_fails_ends_all_ranks_with_one_sentence),
        cmocka_unit_test(a_window_whose_parts_differ_is_left_to_links),
        cmocka_unit_test(collectives_that_differ_are_refused_before_any_is_made),
    };
    return cmocka_run_group_tests(tests, ranks_set_up, ranks_tear_down);
}
