/* Starting, testing and waiting for lines allocates and maps nothing, on any thread: this program's
 * malloc and mmap replace the C library's and count all calls, those of MPI too. MPI may allocate
 * in the first rounds. */
#include "tests/comm/ranks.h"

#include <stdio.h>

#include "tests/length.h"

#if !TEST_IS_SANITIZED
#include "tests/allocation_calls.h"

enum { RANKS = 4, ROUNDS = 200, FIRST_ROUNDS = 20, BYTES = 5000 };

static unsigned char memory[RANKS][RANKS][BYTES]; /* [receiver][sender] */
static uint64_t before[RANKS], after[RANKS];      /* each rank writes, the test reads */

static coh_status add_line(coh_link_plan *plan, int32_t rank)
{
    uint32_t line;
    COH_TRY(coh_link_plan_begin(plan, &line));
    for (int32_t peer = 0; peer < RANKS; peer++)
        if (peer != rank) {
            COH_TRY(coh_link_plan_send(plan, peer, memory[rank][rank], BYTES));
            COH_TRY(coh_link_plan_receive(plan, peer, memory[rank][peer], BYTES));
        }
    return COH_OK;
}

static coh_status run_line(coh_transport *transport)
{
    int is_done = 0;
    COH_TRY(coh_transport_start(transport, 0));
    COH_TRY(coh_transport_test(transport, 0, &is_done));
    COH_TRY(coh_transport_wait(transport, 0));
    return coh_transport_gather(transport, NULL, 0, NULL);
}

static coh_status count_calls(coh_transport *transport, void *argument)
{
    (void)argument;
    coh_link_plan plan = { 0 };
    coh_status status = add_line(&plan, transport->rank);
    if (status == COH_OK)
        status = coh_transport_bind(transport, &plan);
    for (int round = 0; round < ROUNDS && status == COH_OK; round++) {
        status = run_line(transport);
        after[transport->rank] = atomic_load(&allocation_calls);
        if (round + 1 == FIRST_ROUNDS)
            before[transport->rank] = after[transport->rank];
    }
    if (status == COH_OK)
        status = coh_transport_gather(transport, NULL, 0, NULL);
    coh_link_plan_fini(&plan);
    coh_transport_close(transport);
    return status;
}

static void no_line_allocates(void **state)
{
    (void)state;
    ranks_end ends[RANKS_MOST];
    const uint64_t start = atomic_load(&allocation_calls);
    assert_true(allocation_calls_are_counted());
    ranks_run(RANKS, count_calls, NULL, ends);
    ranks_expect(RANKS, ends, COH_OK, "");
    int is_wrong = 0;
    for (int32_t rank = 0; rank < RANKS; rank++)
        if (ranks_are_here(rank))
            is_wrong |= before[rank] <= start || after[rank] != before[rank];
    assert_false(ranks_any(is_wrong));
}
#else
static void no_line_allocates(void **state)
{
    (void)state;
    skip(); /* the sanitizer has its own malloc */
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(no_line_allocates) };
    return cmocka_run_group_tests(tests, ranks_set_up, ranks_tear_down);
}
