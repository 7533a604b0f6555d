/* mpi_transport.h - the transport of ranks that are processes, over MPI.
 *
 * The one idea: each message of the link plan is a persistent request, made by bind and started
 * with its line. MPI allocates nothing when it is started (docs/ranks.md has the counts).
 *
 *     line 0   [send to 1] [receive from 1]        requests of one line lie together:
 *     line 1   [send to 1] [send to 2] ...         one MPI_Startall, one MPI_Testall
 *
 * A message of two ranks has its own tag, because lines are started in any order. A message
 * that is longer than MPI can count is sent in pieces, each with its own tag.
 *
 * A wait tests its line, and sleeps between two tests for 1/16 of the time that it has waited, 20
 * us to 1 ms: a thread that spins, as MPI's own waits do, takes its core from compute.
 *
 * Meetings are exchanges of pairs, piece by piece through two buffers of the transport. So no
 * message of a meeting that fails touches the caller's memory later.
 *
 * Next: mpi_calls.h (what is called of MPI), mpi_stop.h (how all ranks end together). */
#ifndef COH_COMM_MPI_TRANSPORT_H
#define COH_COMM_MPI_TRANSPORT_H

#include "comm/mpi_calls.h"
#include "comm/transport.h"

/* MPI in this process, from which transports are opened. */
typedef struct coh_mpi {
    const coh_mpi_calls *calls;
    int is_ours; /* to be ended here */
    /* A rank was left behind, so that ending MPI would wait for it: the launcher ends all ranks
     * when this process exits without it. */
    int is_abandoned;
} coh_mpi;

/* Starts MPI. Fails: COH_ERR_ARGUMENT if it has ended, because it starts once in a process;
 * COH_ERR_DEVICE if it lacks MPI_THREAD_MULTIPLE, or fails. */
coh_status coh_mpi_start(const coh_mpi_calls *calls, coh_mpi *out_mpi);

/* Ends MPI, together with all other ranks, after all transports are closed. */
void coh_mpi_end(coh_mpi *mpi);

/* Opens this rank's end of a world of all ranks. All ranks call it together. `mpi` must outlive it.
 * Fails: COH_ERR_DEVICE, COH_ERR_MEMORY; the other ranks may then wait until this process exits,
 * when their launcher ends them. */
coh_status coh_mpi_open(coh_mpi *mpi, coh_transport **out_transport);

#endif
