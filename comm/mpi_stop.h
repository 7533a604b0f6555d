/* mpi_stop.h - how ranks that are processes end together: one failure for all, or one after another
 * at the end.
 *
 * The one idea: each rank has a thread, coh-ranks, that receives control messages whatever the
 * rank's other threads do. Rank 0's thread decides which failure was first.
 *
 *     rank 3 fails   ── REQUEST ──> rank 0's thread ── VERDICT ──> all: stopped, with one sentence
 *
 *     close          LEAVE to all, wait for all others' LEAVE:   no rank starts messages any more
 *                    cancel own receives
 *                    GONE to all, wait for all others' GONE:     no memory of this rank is touched
 *
 * In a world that has stopped, unbind does this, and close has nothing left to do: the memory of
 * messages may be unmapped between the two.
 *
 * The thread looks for a message every 5 ms. As a call of MPI moves all messages of its process, it
 * also moves those of a rank that computes: slowly, but without a call of that rank.
 *
 * LEAVE counts the meetings that its sender has completed. So a rank that is in a later meeting
 * knows that it would wait forever, and one in an earlier meeting that it will not. MPI matches the
 * messages of two ranks in their order, so what was sent before LEAVE has arrived with it.
 *
 * A rank that does not come within 4 s of a failure is left behind: unbind says so, and close waits
 * for it once more. If it gives up, too, MPI is not ended, which makes the launcher end all ranks
 * when this process exits.
 *
 * Threads: any, except where a function says otherwise. */
#ifndef COH_COMM_MPI_STOP_H
#define COH_COMM_MPI_STOP_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/check.h"
#include "comm/mpi_calls.h"

/* The tag of control messages; others are above. */
enum { COH_MPI_TAG_CONTROL = 0 };

/* How long ranks wait for one that does not come after a failure. */
#define COH_MPI_PATIENCE_NS UINT64_C(4000000000)

typedef struct coh_mpi_control {
    int32_t kind, status, rank;
    uint32_t meeting_count; /* of LEAVE */
    char sentence[COH_ERROR_TEXT_BYTES];
} coh_mpi_control;

/* A message under way: MPI may use it until it is done, or until the world is closed. */
typedef struct coh_mpi_delivery {
    _Alignas(COH_MPI_REQUEST_BYTES_MOST) unsigned char request[COH_MPI_REQUEST_BYTES_MOST];
    coh_mpi_control control;
    _Atomic int is_used;
} coh_mpi_delivery;

/* Messages under way at once, and those given up. */
enum { COH_MPI_DELIVERIES = 16 };

/* Whether the others have been told something; a failed call told some of them at most. */
typedef enum coh_mpi_told { COH_MPI_NOT_TOLD, COH_MPI_TOLD, COH_MPI_CANNOT_TELL } coh_mpi_told;

typedef struct coh_mpi_stop {
    const coh_mpi_calls *calls;
    coh_mpi_communicator communicator;
    int32_t rank, rank_count;
    pthread_t thread;
    coh_mpi_control received; /* of the thread */
    coh_mpi_delivery deliveries[COH_MPI_DELIVERIES];
    _Alignas(COH_MPI_REQUEST_BYTES_MOST) unsigned char request[COH_MPI_REQUEST_BYTES_MOST];
    pthread_mutex_t lock;   /* of the first stop */
    _Atomic int is_stopped; /* set under the lock (release), read by all (acquire) */
    coh_mpi_control why;    /* does not change once is_stopped is set */
    /* The thread adds (release), others read (acquire). */
    _Atomic int32_t left_count, gone_count;
    _Atomic int32_t left_rank;      /* with left_meetings; -1: none */
    _Atomic uint32_t left_meetings; /* the fewest that a rank had completed when it left */
    _Atomic int is_broken;          /* the thread sets it: MPI has failed there */
    /* The closing thread sets them: look more often; end, whoever has not come. */
    _Atomic int is_leaving, is_closed;
    coh_mpi_told told_leave, told_gone; /* of the closing thread */
} coh_mpi_stop;

/* Fills in a zeroed struct and starts the thread. Fails: COH_ERR_MEMORY. */
coh_status coh_mpi_stop_open(coh_mpi_stop *stop, const coh_mpi_calls *calls,
                             coh_mpi_communicator communicator, const coh_mpi_facts *facts);

static inline int coh_mpi_is_stopped(const coh_mpi_stop *stop)
{
    return atomic_load_explicit(&stop->is_stopped, memory_order_acquire);
}

/* Sets the sentence of a stopped world as this thread's error text, and returns its status. */
coh_status coh_mpi_stopped(const coh_mpi_stop *stop);

/* Stops all ranks with "rank <by>: <sentence>", if no other stop was first. Waits for rank 0's
 * verdict, and returns as coh_mpi_stopped. */
coh_status coh_mpi_stop_all(coh_mpi_stop *stop, coh_status status, int32_t by,
                            const char *sentence);

/* Returns 1 if a call cannot be completed by the others any more: the world has stopped, or a rank
 * has left before its meeting number `meeting`. UINT32_MAX: any rank that has left counts. Read it
 * before the last look at the call's messages. */
int coh_mpi_is_over(const coh_mpi_stop *stop, uint32_t meeting);

/* Stops all for such a call, and returns as coh_mpi_stopped. */
coh_status coh_mpi_over(coh_mpi_stop *stop);

/* ---- close, by one thread ---- */

/* Tells all ranks that this one leaves, and waits until all have left. Returns 0 if a rank does not
 * come (only after a failure), or if MPI fails. Called again, it waits again, unless MPI failed. */
int coh_mpi_leave(coh_mpi_stop *stop, uint32_t meeting_count);

/* Waits until all ranks have called this. Returns 0 as coh_mpi_leave. */
int coh_mpi_be_gone(coh_mpi_stop *stop);

/* Ends the thread. */
void coh_mpi_stop_close(coh_mpi_stop *stop);

#endif
