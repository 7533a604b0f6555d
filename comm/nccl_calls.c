/* Opens NCCL and fills its table. Read nccl_calls.h first. */
#include "comm/nccl_calls.h"

#include "memory/cuda_library.h"

static const char *const coh_nccl_functions[] = {
    "ncclGetUniqueId",    "ncclCommInitRankConfig", "ncclCommGetAsyncError",
    "ncclCommFinalize",   "ncclCommDestroy",        "ncclCommAbort",
    "ncclGroupStart",     "ncclGroupEnd",           "ncclSend",
    "ncclRecv",           "ncclAllGather",          "ncclReduceScatter",
    "ncclGetErrorString", "ncclGetLastError",
};
enum { FUNCTION_COUNT = sizeof(coh_nccl_functions) / sizeof(coh_nccl_functions[0]) };
_Static_assert(sizeof(coh_nccl_calls) == FUNCTION_COUNT * sizeof(void *), "a name for each");

coh_status coh_nccl_calls_open(coh_nccl_calls *out_calls)
{
    const coh_cuda_library_name *name = &coh_cuda_library_nccl;
    char path[COH_CUDA_LIBRARY_PATH_BYTES], version[COH_CUDA_VERSION_BYTES];
    void *library;
    COH_TRY(coh_cuda_library_open("", name, &library, path));
    COH_TRY(coh_cuda_library_accept(name, coh_cuda_library_version(library, name, version)));
    return coh_cuda_library_bind(library, name, coh_nccl_functions, FUNCTION_COUNT, out_calls);
}
