/* fake_cublaslt.h - a cuBLASLt on the host: it knows the manual's words and nothing of ours.
 *
 * Descriptors hold what they were told. A product is computed at once, column-major, from them
 * alone: D = epilogue(alpha op(A) op(B) + beta C + bias along D's rows), every sum in double and
 * rounded to f32 once. So whoever gets the right matrix has set the right descriptors.
 *
 * Broken promises are counted in `broken`: an address less aligned than the heuristic was told, a
 * workspace that is smaller than the algorithm's, an object used after its end. */
#ifndef COH_TESTS_CUDA_FAKE_CUBLASLT_H
#define COH_TESTS_CUDA_FAKE_CUBLASLT_H

#include "kernels/cuda/cublaslt.h"

typedef struct fake_cublaslt {
    int64_t version;
    int refuses_bias;               /* the heuristic has nothing for an epilogue with a bias */
    int refuses_checks;             /* cublasLtMatmulAlgoCheck: no such algorithm */
    uint32_t reduction_scheme;      /* that every algorithm says to have */
    uint64_t check_workspace_bytes; /* what it says that an algorithm wants */
    int fail_nth;                   /* the n-th call that can fail from now on does; 0: none */
    int algorithm_count;            /* that the heuristic knows of; 0: one */
    int broken_algorithm;           /* its n-th from 1 on does not run; 0: all do */
    uint64_t cost_ns[8];            /* of a product by each */

    int live_objects, calls, heuristics, checks, products, broken;
    int was_hit;
    uint64_t now_ns; /* what all products took */
    /* what the last heuristic was told */
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

/* Back to the begin: nothing counted, nothing refused. */
void fake_lt_reset(void);

#endif
