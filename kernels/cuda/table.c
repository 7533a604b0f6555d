#include "kernels/cuda/table.h"

#define CUDA_FIELD(name, parameters, arguments) .name = coh_cuda_##name,
const coh_kernel_table coh_kernel_table_cuda = { .check_indices = coh_cuda_check_indices,
                                                 COH_KERNEL_LIST(CUDA_FIELD) };
