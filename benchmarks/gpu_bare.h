/* gpu_bare.h - cuBLASLt with nothing of ours around it: the measure of what coh_kernel_matmul makes
 * of the library, and of what this GPU multiplies at most.
 *
 *     COH_TRY(gpu_bare_open(&turns, &bare));
 *     COH_TRY(gpu_bare_roof(&bare, "gpu_x", COH_DTYPE_BF16, divisor, &flops_per_s));
 *     COH_TRY(gpu_bare_describe(&bare, &matmul, GPU_BARE_PLAIN, &product));
 *     gpu_side side = { gpu_bare_enqueue, &product };
 *
 * Descriptors are made beforehand, and an enqueue is one cublasLtMatmul. The heuristic is asked
 * without the restrictions that products.h puts on it, so that what those cost shows. Its workspace
 * is that of the turns' queue: nothing of both is under way at once. */
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

/* What a product ends with. */
typedef enum gpu_bare_ending {
    /* neither bias nor activation, whatever the coh_matmul asks for */
    GPU_BARE_PLAIN,
    /* c gets the sums with bias, `activated` gelu of them: training keeps both */
    GPU_BARE_BIAS_GELU,
} gpu_bare_ending;

/* All but the first are gpu_bare_describe's to set. */
typedef struct gpu_bare_product {
    int choice; /* of the algorithms; 0: the heuristic's first */
    const gpu_bare *bare;
    coh_matmul matmul;
    gpu_bare_ending ending;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, c; /* ours; the library's A is b (products.h) */
    cublasLtMatmulAlgo_t algorithms[GPU_BARE_CANDIDATES];
    int count;             /* 0: the library has no algorithm for it */
    cublasStatus_t status; /* of all enqueues so far: the first failure */
} gpu_bare_product;

/* Fails: COH_ERR_DEVICE where there is no cuBLASLt; gpu_bare_close takes back what was made. */
coh_status gpu_bare_open(gpu_turns *turns, gpu_bare *out_bare);
void gpu_bare_close(gpu_bare *bare);

/* matmul's operands are of one type; its residual is not looked at. Fails: COH_ERR_DEVICE;
 * gpu_bare_forget takes back what was made. */
coh_status gpu_bare_describe(const gpu_bare *bare, const coh_matmul *matmul, gpu_bare_ending ending,
                             gpu_bare_product *out_product);
void gpu_bare_forget(gpu_bare_product *product);

/* Work of a gpu_side, whose context is the product, which has an algorithm. */
void gpu_bare_enqueue(void *product, uint64_t number, uint32_t index);
/* What enqueues failed with: COH_ERR_DEVICE. */
coh_status gpu_bare_failure(const gpu_bare_product *product);

/* FLOP/s of the fastest of some large cubes, of random numbers, each by the fastest of the
 * heuristic's candidates; a row of benchmark `name` says so. They stand in the turns' arena from
 * its begin on, as many as fit; what was there is gone.
 * Fails: as gpu_bare_describe; COH_ERR_DEVICE where none fits or runs. */
coh_status gpu_bare_roof(gpu_bare *bare, const char *name, coh_dtype dtype, int64_t divisor,
                         double *out_flops_per_s);

#endif
