/* cuda_runtime.h - stands for CUDA's header of this name when a user's .cu file is compiled as C++
 * for the stub driver's GPU (launches.py has rewritten its launches).
 *
 * A launch enqueues one command; when the stub executes it, the kernel runs once for each thread of
 * the grid, one after the other. Kernels that share memory or synchronise are not possible. */
#ifndef COH_TESTS_CUDA_RUNTIME_H
#define COH_TESTS_CUDA_RUNTIME_H

#include <math.h>
#include <stddef.h>
#include <tuple>

#define __global__ static

typedef void *cudaStream_t;
enum cudaError_t { cudaSuccess };
struct cudaFuncAttributes {
    int unused;
};
struct played_index {
    unsigned x, y, z;
};

static thread_local played_index gridDim, blockDim, blockIdx, threadIdx;

extern "C" void coh_stub_enqueue(void *stream, void (*work)(const void *arguments),
                                 const void *arguments, size_t bytes);
/* Counts kernels that a rehearsal loaded, for the test. */
extern "C" int played_load_count;

inline cudaError_t cudaGetLastError()
{
    return cudaSuccess;
}

inline const char *cudaGetErrorString(cudaError_t)
{
    return "no error";
}

inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *, const void *)
{
    played_load_count++;
    return cudaSuccess;
}

template <class... Parameters> struct played_job {
    unsigned grid, block;
    void (*kernel)(Parameters...);
    std::tuple<Parameters...> arguments;

    static void run(const void *bytes)
    {
        const played_job &job = *static_cast<const played_job *>(bytes);
        gridDim = { job.grid, 1, 1 };
        blockDim = { job.block, 1, 1 };
        for (unsigned i = 0; i < job.grid; i++)
            for (unsigned k = 0; k < job.block; k++) {
                blockIdx = { i, 0, 0 };
                threadIdx = { k, 0, 0 };
                std::apply(job.kernel, job.arguments);
            }
    }
};

/* kernel<<<grid, block, shared_bytes, stream>>>(arguments...) */
template <class... Parameters, class... Arguments>
void played_launch(unsigned grid, unsigned block, size_t, cudaStream_t stream,
                   void (*kernel)(Parameters...), Arguments... arguments)
{
    const played_job<Parameters...> job = { grid, block, kernel,
                                            std::tuple<Parameters...>(arguments...) };
    coh_stub_enqueue(stream, played_job<Parameters...>::run, &job, sizeof(job));
}

#endif
