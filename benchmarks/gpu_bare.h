/* gpu_bare.h - cuBLASLt called directly: the reference for coh_kernel_matmul's use of the library,
 * and for the highest rate of products on this GPU.
 *
 *     COH_TRY(gpu_bare_open(&turns, &bare));
 *     COH_TRY(gpu_bare_roof(&bare, "gpu_x", COH_DTYPE_BF16, divisor, &flops_per_s));
 *     COH_TRY(gpu_bare_describe(&bare, &matmul, GPU_BARE_PLAIN, &product));
 *     gpu_side side = { gpu_bare_enqueue, &product };
 *
 * Descriptors are made beforehand, and an enqueue is one cublasLtMatmul. The heuristic is asked
 * without the restrictions of products.h, to show their cost. The workspace is that of the turns'
 * queue, so the two never run at the same time. */
#ifndef COH_BENCHMARKS_GPU_BARE_H
#define COH_BENCHMARKS_GPU_BARE_H

#include "benchmarks/gpu_turns.h"
#include "kernels/cuda/cublaslt.h"
#include "kernels/kernels.h"

enum { GPU_BARE_CANDIDATES = 8 };

typedef struct gpu_bare {
    gpu_turns *turns;
    coh_cublaslt *library;
    cublasLtHandle_t handle;
} gpu_bare;

/* The epilogue of a product. */
typedef enum gpu_bare_ending {
    /* neither bias nor activation, even if the coh_matmul asks for them */
    GPU_BARE_PLAIN,
    /* c gets the sums with bias, `activated` their gelu: training keeps both */
    GPU_BARE_BIAS_GELU,
} gpu_bare_ending;

/* gpu_bare_describe sets all members except the first. */
typedef struct gpu_bare_product {
    int choice; /* index of the algorithm; 0: the heuristic's first */
    const gpu_bare *bare;
    coh_matmul matmul;
    gpu_bare_ending ending;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, c; /* the project's operands; the library's A is b (products.h) */
    cublasLtMatmulAlgo_t algorithms[GPU_BARE_CANDIDATES];
    int count;             /* 0: the library has no algorithm for the product */
    cublasStatus_t status; /* first failure of all enqueues so far */
} gpu_bare_product;

/* Errors: COH_ERR_DEVICE if there is no cuBLASLt; gpu_bare_close frees what was made. */
coh_status gpu_bare_open(gpu_turns *turns, gpu_bare *out_bare);
void gpu_bare_close(gpu_bare *bare);

/* Describes a product. matmul's operands have one type; its residual is ignored. Errors:
 * COH_ERR_DEVICE; gpu_bare_forget frees what was made. */
coh_status gpu_bare_describe(const gpu_bare *bare, const coh_matmul *matmul, gpu_bare_ending ending,
                             gpu_bare_product *out_product);
void gpu_bare_forget(gpu_bare_product *product);

/* Work of a gpu_side; the context is the product, which must have an algorithm. */
void gpu_bare_enqueue(void *product, uint64_t number, uint32_t index);
/* Returns the failure of enqueues: COH_ERR_DEVICE. */
coh_status gpu_bare_failure(const gpu_bare_product *product);

/* Measures the FLOP/s of the fastest of some large cubes of random numbers, each with the fastest
 * of the heuristic's candidates, and prints it as a row of benchmark `name`. The cubes are in the
 * turns' arena from its begin, as many as fit, and overwrite its contents. Errors: as
 * gpu_bare_describe; COH_ERR_DEVICE if none fits or runs. */
coh_status gpu_bare_roof(gpu_bare *bare, const char *name, coh_dtype dtype, int64_t divisor,
                         double *out_flops_per_s);

#endif
