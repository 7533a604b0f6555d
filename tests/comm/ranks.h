/* ranks.h - runs one function on each rank of a world, with transports that can fail and delay, and
 * collects what each rank ends with.
 *
 * The one idea: a test is written once, for ranks of every kind. Linked with ranks_threads.c its
 * ranks are threads of this process; with ranks_mpi.c this process is one of the ranks that mpirun
 * has started, and all run the same tests with the same seeds. What ranks end with is known to all,
 * so that all judge a test alike. */
#ifndef COH_TESTS_COMM_RANKS_H
#define COH_TESTS_COMM_RANKS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "comm/transport.h"
#include "tests/faults/transport_faults.h"

enum { RANKS_MOST = 8 };

/* The function must not assert: cmocka's jumps work on the test's own thread only. */
typedef coh_status ranks_body(coh_transport *transport, void *argument);

typedef struct ranks_end {
    coh_status status;
    char sentence[COH_ERROR_TEXT_BYTES];
} ranks_end;

/* A group's setup and teardown. */
int ranks_set_up(void **state);
int ranks_tear_down(void **state);

/* Can a world have that many ranks here? Processes: only as many as there are. */
int ranks_can(int32_t rank_count);
/* Returns the wanted number of ranks (2 to RANKS_MOST), or the one there is. */
int32_t ranks_pick(int32_t wanted);
/* Does this process run the rank? */
int ranks_are_here(int32_t rank);
/* Is it so in any process? */
int ranks_any(int is_so);

/* Runs the body on each rank. The body closes its transport before it frees the memory of its
 * lines. */
void ranks_run(int32_t rank_count, ranks_body *body, void *argument, ranks_end *ends);

/* Runs the body on one rank, as the function of its thread. */
static inline ranks_end ranks_run_one(coh_transport *transport, ranks_body *body, void *argument)
{
    ranks_end end = { .status = body(transport, argument) };
    if (end.status != COH_OK)
        coh_error_save(end.sentence);
    return end;
}

/* All ranks ended with one status and one sentence. */
static inline void ranks_expect(int32_t rank_count, const ranks_end *ends, coh_status status,
                                const char *part)
{
    for (int32_t i = 0; i < rank_count; i++) {
        if (ends[i].status != status || strcmp(ends[i].sentence, ends[0].sentence) != 0)
            fail_msg("rank %d ended with %s '%s', rank 0 with %s '%s', expected %s", i,
                     coh_status_name(ends[i].status), ends[i].sentence,
                     coh_status_name(ends[0].status), ends[0].sentence, coh_status_name(status));
        if (strstr(ends[i].sentence, part) == NULL)
            fail_msg("rank %d: '%s' lacks '%s'", i, ends[i].sentence, part);
    }
}

#endif
