/* mpi_faults.h - MPI's table with failures, and with short messages, so that a test finds the paths
 * of the transport that a healthy MPI never takes.
 *
 * Control messages do not fail, as they carry the news of a failure: only calls of the thread that
 * asked for a failure count, from then until it is hit or taken back. */
#ifndef COH_TESTS_FAULTS_MPI_FAULTS_H
#define COH_TESTS_FAULTS_MPI_FAULTS_H

#include "comm/mpi_calls.h"

typedef enum mpi_fault {
    MPI_FAULT_POST,
    MPI_FAULT_PREPARE,
    MPI_FAULT_START,
    MPI_FAULT_TEST,
    MPI_FAULTS
} mpi_fault;

/* Returns a table that calls `real`; one for all. */
const coh_mpi_calls *mpi_faults_put(const coh_mpi_calls *real);

/* Makes the n-th call of a kind, from 0, fail and do nothing. n = -1: takes it back. */
void mpi_fail_nth(mpi_fault call, int64_t n);

/* Returns whether the call that fails was made. */
int mpi_fault_was_hit(void);

/* Delays each message that this thread starts outside a line; 0: none. */
void mpi_delay_posts(uint32_t ms);

/* Sets the most bytes of a message, for transports that bind later; 0: MPI's own. */
void mpi_faults_cut(int32_t bytes);

#endif
