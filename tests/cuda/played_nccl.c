/* The double of NCCL under NVIDIA's names, as a library for programs on the emulated GPU. */
#include "tests/cuda/fake_nccl.h"

int ncclGetVersion(int *version);
int ncclGetUniqueId(coh_nccl_id *out_id);
int ncclCommInitRankConfig(coh_nccl_communicator **out, int rank_count, coh_nccl_id id, int rank,
                           coh_nccl_config *config);
int ncclCommGetAsyncError(coh_nccl_communicator *communicator, int *out_result);
int ncclCommFinalize(coh_nccl_communicator *communicator);
int ncclCommDestroy(coh_nccl_communicator *communicator);
int ncclCommAbort(coh_nccl_communicator *communicator);
int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclSend(const void *from, size_t count, int type, int peer,
             coh_nccl_communicator *communicator, CUstream stream);
int ncclRecv(void *to, size_t count, int type, int peer, coh_nccl_communicator *communicator,
             CUstream stream);
int ncclAllGather(const void *from, void *to, size_t count, int type,
                  coh_nccl_communicator *communicator, CUstream stream);
int ncclReduceScatter(const void *from, void *to, size_t count, int type, int operation,
                      coh_nccl_communicator *communicator, CUstream stream);
const char *ncclGetErrorString(int result);
const char *ncclGetLastError(coh_nccl_communicator *communicator);

int ncclGetVersion(int *version)
{
    *version = 22809;
    return COH_NCCL_SUCCESS;
}

int ncclGetUniqueId(coh_nccl_id *out_id)
{
    return fake_nccl.ncclGetUniqueId(out_id);
}

int ncclCommInitRankConfig(coh_nccl_communicator **out, int rank_count, coh_nccl_id id, int rank,
                           coh_nccl_config *config)
{
    return fake_nccl.ncclCommInitRankConfig(out, rank_count, id, rank, config);
}

int ncclCommGetAsyncError(coh_nccl_communicator *communicator, int *out_result)
{
    return fake_nccl.ncclCommGetAsyncError(communicator, out_result);
}

int ncclCommFinalize(coh_nccl_communicator *communicator)
{
    return fake_nccl.ncclCommFinalize(communicator);
}

int ncclCommDestroy(coh_nccl_communicator *communicator)
{
    return fake_nccl.ncclCommDestroy(communicator);
}

int ncclCommAbort(coh_nccl_communicator *communicator)
{
    return fake_nccl.ncclCommAbort(communicator);
}

int ncclGroupStart(void)
{
    return fake_nccl.ncclGroupStart();
}

int ncclGroupEnd(void)
{
    return fake_nccl.ncclGroupEnd();
}

int ncclSend(const void *from, size_t count, int type, int peer,
             coh_nccl_communicator *communicator, CUstream stream)
{
    return fake_nccl.ncclSend(from, count, type, peer, communicator, stream);
}

int ncclRecv(void *to, size_t count, int type, int peer, coh_nccl_communicator *communicator,
             CUstream stream)
{
    return fake_nccl.ncclRecv(to, count, type, peer, communicator, stream);
}

int ncclAllGather(const void *from, void *to, size_t count, int type,
                  coh_nccl_communicator *communicator, CUstream stream)
{
    return fake_nccl.ncclAllGather(from, to, count, type, communicator, stream);
}

int ncclReduceScatter(const void *from, void *to, size_t count, int type, int operation,
                      coh_nccl_communicator *communicator, CUstream stream)
{
    return fake_nccl.ncclReduceScatter(from, to, count, type, operation, communicator, stream);
}

const char *ncclGetErrorString(int result)
{
    return fake_nccl.ncclGetErrorString(result);
}

const char *ncclGetLastError(coh_nccl_communicator *communicator)
{
    return fake_nccl.ncclGetLastError(communicator);
}
