/* product_checks.h - coh_matmul against sums in double, whoever multiplies: cuBLASLt or product.cu
 * on a GPU (gpu_check_matmul.c), both on a device that is emulated (test_matmul.c). */
#ifndef COH_TESTS_CUDA_PRODUCT_CHECKS_H
#define COH_TESTS_CUDA_PRODUCT_CHECKS_H

#include "tests/cuda/gpu_check.h"

/* Every layout, type and ending of products of these shapes (rows, columns, depth), of random
 * operands on boundaries and beside them; up to the first failure of `check`. */
void product_check_shapes(gpu_check *check, const int64_t (*shapes)[3], size_t count);

#endif
