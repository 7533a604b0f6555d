/* kernel_list.h - every kernel of the fatbins, once.
 *
 * COH_CUDA_KERNEL(enum name, symbol, file): COH_CUDA_<enum name> in launch.h, an extern "C"
 * __global__ function of that symbol in kernels/cuda/<file>.cu. No include guard: define
 * COH_CUDA_KERNEL, then include. */
COH_CUDA_KERNEL(SCALE_F32, "coh_scale_f32", "elementwise")
COH_CUDA_KERNEL(SCALE_BF16, "coh_scale_bf16", "elementwise")
