/* ranks.h - runs one function on a thread for each rank of a world of threads, with transports that
 * can fail and delay, and collects what each rank ends with. */
#ifndef COH_TESTS_COMM_RANKS_H
#define COH_TESTS_COMM_RANKS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <string.h>

#include "base/thread.h"
#include "comm/threads.h"
#include "tests/faults/transport_faults.h"

enum { RANKS_MOST = 8 };

/* The function must not assert: cmocka's jumps work on the test's own thread only. */
typedef coh_status ranks_body(coh_transport *transport, void *argument);

typedef struct ranks_end {
    coh_status status;
    char sentence[COH_ERROR_TEXT_BYTES];
} ranks_end;

typedef struct ranks_thread {
    pthread_t thread;
    coh_transport *transport;
    ranks_body *body;
    void *argument;
    ranks_end end;
} ranks_thread;

static inline void *ranks_run_one(void *argument)
{
    ranks_thread *one = argument;
    one->end.status = one->body(one->transport, one->argument);
    if (one->end.status != COH_OK)
        coh_error_save(one->end.sentence);
    return NULL;
}

/* Runs the body on each rank. The body closes its transport before it frees the memory of its
 * lines. */
static inline void ranks_run(int32_t rank_count, ranks_body *body, void *argument, ranks_end *ends)
{
    coh_transport *transports[RANKS_MOST];
    ranks_thread threads[RANKS_MOST];
    assert_int_equal(coh_threads_open(rank_count, transports), COH_OK);
    for (int32_t i = 0; i < rank_count; i++) {
        threads[i] =
            (ranks_thread){ .transport = transports[i], .body = body, .argument = argument };
        transport_faults_put(transports[i]);
    }
    for (int32_t i = 0; i < rank_count; i++)
        assert_int_equal(coh_thread_start(&threads[i].thread, ranks_run_one, &threads[i]), 0);
    for (int32_t i = 0; i < rank_count; i++) {
        assert_int_equal(pthread_join(threads[i].thread, NULL), 0);
        ends[i] = threads[i].end;
    }
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
