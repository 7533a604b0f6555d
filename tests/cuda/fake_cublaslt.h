/* fake_cublaslt.h - a cuBLASLt on the host that follows the manual and knows nothing of this
 * project.
 *
 * A product is computed at once, column-major, from its descriptors alone: D = epilogue(alpha op(A)
 * op(B) + beta C + bias along D's rows), every sum in double and rounded to f32 once. A correct
 * matrix therefore proves correct descriptors.
 *
 * Violations are counted in `broken`: an address less aligned than the heuristic was asked for, a
 * workspace smaller than the algorithm's, an object used after its end. */
#ifndef COH_TESTS_CUDA_FAKE_CUBLASLT_H
#define COH_TESTS_CUDA_FAKE_CUBLASLT_H

#include "kernels/cuda/cublaslt.h"

typedef struct fake_cublaslt {
    int64_t version;
    int refuses_bias;               /* the heuristic has no algorithm with a bias epilogue */
    int refuses_checks;             /* cublasLtMatmulAlgoCheck finds no algorithm */
    uint32_t reduction_scheme;      /* of every algorithm */
    uint64_t check_workspace_bytes; /* workspace that it reports for an algorithm */
    int fail_nth;                   /* the n-th fallible call from now on fails; 0: none */
    int algorithm_count;            /* known to the heuristic; 0: one */
    int broken_algorithm;           /* from its n-th (n >= 1) on, none runs; 0: all do */
    uint64_t cost_ns[8];            /* duration of a product by each */

    int live_objects, calls, heuristics, checks, products, broken;
    int was_hit;
    uint64_t now_ns; /* duration of all products */
    /* arguments of the last heuristic */
    int most;
    uint64_t workspace_bytes;
    uint32_t reduction_mask, alignment[4];
    cublasComputeType_t compute_type;
    cudaDataType_t scale_type;
    uint32_t epilogue;
    /* of the last product */
    const cublasLtMatmulAlgo_t *algorithm;
    uint64_t algorithm_words[8];
    void *workspace, *stream;
} fake_cublaslt;

extern fake_cublaslt fake_lt;
extern const coh_cublaslt_functions fake_lt_functions;

/* Resets all counts and planned failures. */
void fake_lt_reset(void);

#endif
