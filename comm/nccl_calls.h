/* nccl_calls.h - NCCL as a table of functions: all that the library knows of it.
 *
 * The one idea: nothing of NCCL is linked, and its header is not needed to build. libnccl.so.2 is
 * opened when several ranks train on GPUs (memory/cuda_library.h has the places), and a test can
 * supply its own table. The types below are those of nccl.h since 2.18; test_nccl_types.c compares
 * them with the header where there is one.
 *
 * Functions return a result: 0, COH_NCCL_IN_PROGRESS, or an error. Threads: a communicator is used
 * by one thread at a time. */
#ifndef COH_COMM_NCCL_CALLS_H
#define COH_COMM_NCCL_CALLS_H

#include <limits.h>
#include <stddef.h>

#include <cuda.h>

#include "base/check.h"

enum { COH_NCCL_SUCCESS = 0, COH_NCCL_IN_PROGRESS = 7 };
enum { COH_NCCL_BYTE = 0, COH_NCCL_FLOAT = 7 }; /* ncclInt8, ncclFloat32 */
enum { COH_NCCL_SUM = 0 };

typedef struct coh_nccl_id {
    char bytes[128];
} coh_nccl_id;

/* The members of ncclConfig_t that 2.18 has; later versions read no more of a struct of this
 * version, and take their defaults for the others. */
typedef struct coh_nccl_config {
    size_t struct_bytes;
    unsigned int magic, version;
    int blocking, cluster_size, blocks_least, blocks_most;
    const char *network;
    int shares_split;
} coh_nccl_config;

#define COH_NCCL_CONFIG_MAGIC   0xcafebeefu
#define COH_NCCL_CONFIG_VERSION 21800u
#define COH_NCCL_CONFIG_DEFAULT INT_MIN

typedef struct coh_nccl_communicator coh_nccl_communicator;

/* In the order of coh_nccl_functions. */
typedef struct coh_nccl_calls {
    int (*ncclGetUniqueId)(coh_nccl_id *out_id);
    int (*ncclCommInitRankConfig)(coh_nccl_communicator **out, int rank_count, coh_nccl_id id,
                                  int rank, coh_nccl_config *config);
    int (*ncclCommGetAsyncError)(coh_nccl_communicator *communicator, int *out_result);
    int (*ncclCommFinalize)(coh_nccl_communicator *communicator);
    int (*ncclCommDestroy)(coh_nccl_communicator *communicator);
    int (*ncclCommAbort)(coh_nccl_communicator *communicator);
    int (*ncclGroupStart)(void);
    int (*ncclGroupEnd)(void);
    int (*ncclSend)(const void *from, size_t count, int type, int peer,
                    coh_nccl_communicator *communicator, CUstream stream);
    int (*ncclRecv)(void *to, size_t count, int type, int peer, coh_nccl_communicator *communicator,
                    CUstream stream);
    /* `count`: of one rank's part */
    int (*ncclAllGather)(const void *from, void *to, size_t count, int type,
                         coh_nccl_communicator *communicator, CUstream stream);
    int (*ncclReduceScatter)(const void *from, void *to, size_t count, int type, int operation,
                             coh_nccl_communicator *communicator, CUstream stream);
    const char *(*ncclGetErrorString)(int result);
    const char *(*ncclGetLastError)(coh_nccl_communicator *communicator);
} coh_nccl_calls;

/* Opens the machine's NCCL, which stays open until the process ends, and fills the table.
 * Fails: COH_ERR_DEVICE if there is none, or one before 2.18; COH_ERR_IO, COH_ERR_CORRUPT as
 * coh_cuda_library_open and bind. */
coh_status coh_nccl_calls_open(coh_nccl_calls *out_calls);

#endif
