/* product_checks.h - compares any implementation of coh_matmul with sums in double: cuBLASLt or
 * product.cu on a GPU (gpu_check_matmul.c), both on an emulated device (test_matmul.c). */
#ifndef COH_TESTS_CUDA_PRODUCT_CHECKS_H
#define COH_TESTS_CUDA_PRODUCT_CHECKS_H

#include "tests/cuda/gpu_check.h"

/* Checks every layout, type and epilogue for these shapes (rows, columns, depth), with random
 * operands, aligned and misaligned, up to the first failure of `check`. Wrong forms are counted
 * in check->wrong_forms, and the first ones printed. */
void product_check_shapes(gpu_check *check, const int64_t (*shapes)[3], size_t count);

#endif
