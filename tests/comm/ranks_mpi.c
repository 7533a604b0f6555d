/* Ranks that are processes: this one is one of them. A second transport, into which no fault is
 * put, brings the ends of all ranks to all. Read ranks.h first. */
#include "tests/comm/ranks.h"

#include <stdio.h>

#include "comm/launcher.h"
#include "comm/mpi_transport.h"
#include "tests/faults/mpi_faults.h"

static coh_mpi mpi;
static coh_transport *report;

static int report_failure(const char *what)
{
    (void)fprintf(stderr, "%s: %s\n", what, coh_last_error());
    return 1;
}

int ranks_set_up(void **state)
{
    const coh_mpi_calls *calls;
    (void)state;
    if (coh_launcher_open_mpi(&calls) != COH_OK || coh_mpi_start(calls, &mpi) != COH_OK)
        return report_failure("MPI does not start");
    if (coh_mpi_open(&mpi, &report) != COH_OK)
        return report_failure("the ranks are not connected");
    if (report->rank != 0 && freopen("/dev/null", "w", stdout) == NULL) /* rank 0 prints */
        return report_failure("no /dev/null");
    mpi.calls = mpi_faults_put(mpi.calls);
    transport_faults_number(report->rank, report->rank_count);
    return 0;
}

int ranks_tear_down(void **state)
{
    (void)state;
    if (report == NULL)
        return 1;
    const coh_status status = coh_transport_gather(report, NULL, 0, NULL);
    coh_transport_close(report);
    coh_mpi_end(&mpi);
    return status != COH_OK;
}

int ranks_can(int32_t rank_count)
{
    return rank_count == report->rank_count;
}

int32_t ranks_pick(int32_t wanted)
{
    (void)wanted;
    return report->rank_count;
}

int ranks_are_here(int32_t rank)
{
    return rank == report->rank;
}

int ranks_any(int is_so)
{
    int all[RANKS_MOST], found = 0;
    assert_int_equal(coh_transport_gather(report, &is_so, sizeof(is_so), all), COH_OK);
    for (int32_t i = 0; i < report->rank_count; i++)
        found |= all[i];
    return found;
}

void ranks_run(int32_t rank_count, ranks_body *body, void *argument, ranks_end *ends)
{
    coh_transport *transport;
    assert_int_equal(rank_count, report->rank_count);
    assert_int_equal(coh_mpi_open(&mpi, &transport), COH_OK);
    transport_faults_put(transport);
    const ranks_end own = ranks_run_one(transport, body, argument);
    assert_int_equal(coh_transport_gather(report, &own, sizeof(own), ends), COH_OK);
    assert_false(ranks_any(mpi.is_abandoned)); /* all have left it in time */
}
