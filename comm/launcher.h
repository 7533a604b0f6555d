/* launcher.h - has a launcher (mpirun, srun) started this process as one of several ranks, and
 * where is the module that connects them?
 *
 * The one idea: a launcher leaves variables in the environment of its processes. Without them the
 * library neither looks for MPI nor opens it. */
#ifndef COH_COMM_LAUNCHER_H
#define COH_COMM_LAUNCHER_H

#include <stdint.h>

#include "base/check.h"
#include "comm/mpi_calls.h"

typedef struct coh_launcher {
    const char *variable; /* that names it; NULL: no launcher has started this process */
    int32_t rank_count;   /* 1 without a launcher; 0: only MPI knows */
} coh_launcher;

/* Reads the environment. Fails: COH_ERR_ARGUMENT if a variable has no number of ranks. */
coh_status coh_launcher_find(coh_launcher *out_launcher);

/* Opens libcohobate-mpi.so: next to the library (or program) that contains this code, else where
 * the loader looks. It stays open until the process ends, as MPI cannot be unloaded.
 * Fails: COH_ERR_DEVICE with the loader's reason, if it is missing or of another version. */
coh_status coh_launcher_open_mpi(const coh_mpi_calls **out_calls);

#endif
