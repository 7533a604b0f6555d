/* The table of all kernels on CUDA, made from the list in kernels/table.h, so that a missing
 * function fails to link. Next: table.h, kernels/table.h. */
#include "kernels/cuda/table.h"

#define CUDA_FIELD(name, parameters, arguments) .name = coh_cuda_##name,
const coh_kernel_table coh_kernel_table_cuda = { .check_indices = coh_cuda_check_indices,
                                                 COH_KERNEL_LIST(CUDA_FIELD) };
