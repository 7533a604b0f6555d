/* update.cuh - shared by the kernels that update parameters: grains, the step of AdamW, and a bf16
 * parameter's master. Next: optimizer.cu, adamw8.cu. */
#ifndef COH_KERNELS_CUDA_UPDATE_CUH
#define COH_KERNELS_CUDA_UPDATE_CUH

#include "kernels/cuda/optimizer_arguments.h"
#include "kernels/cuda/pack.cuh"

typedef struct grain {
    int64_t element, partial;
    int count;
    float rate_factor, decay;
} grain;

COH_DEVICE grain grain_at(const coh_cuda_grains &grains, int64_t index)
{
    int r = grains.run_count - 1;
    while (index < grains.runs[r].first)
        r--;
    const coh_grain_run &run = grains.runs[r];
    const int64_t before = (index - run.first) * COH_CUDA_GRAIN, left = run.count - before;
    return { run.element + before, run.partial_begin + index - run.first,
             (int)(left < COH_CUDA_GRAIN ? left : COH_CUDA_GRAIN), run.rate_factor, run.decay };
}

/* An optimizer is a struct: its factors, from the arguments and the cells; `states`, the number of
 * its f32 state streams; and the update of one element, whose states are s[0], s[1], ... */
struct coh_adamw_step {
    static constexpr int states = 2;
    float rate, scale, beta1, beta2, rest1, rest2, bias1, bias2, epsilon, decay;

    __device__ coh_adamw_step(const coh_cuda_update_arguments &a, const grain &one)
        : rate(a.cells->update_rate * one.rate_factor), scale(a.cells->update_scale),
          beta1(a.hyperparameters[0]), beta2(a.hyperparameters[1]), rest1(1.0f - beta1),
          rest2(1.0f - beta2), bias1(a.cells->update_scalars[a.scalar_begin]),
          bias2(a.cells->update_scalars[a.scalar_begin + 1]), epsilon(a.hyperparameters[2]),
          decay(one.decay)
    {
    }

    /* As kernels/cpu/isa/optimizers.c. */
    __device__ void operator()(float &work, float grad, float *s) const
    {
        const float g = scale * grad;
        s[0] = beta1 * s[0] + rest1 * g;
        s[1] = beta2 * s[1] + rest2 * (g * g);
        const float root = sqrtf(s[1] / bias2);
        const float direction = s[0] / bias1 / (root + epsilon);
        work = work - rate * (direction + decay * work);
    }
};

/* Joins and splits element i of packed halves of a bf16 parameter's master (kernels.h). */
template <int W>
COH_DEVICE float join_master(const coh_raw<coh_half, W> &high, const coh_raw<coh_half, W> &low,
                             int i)
{
    const int shift = 16 * (i % 2);
    const uint32_t rest = low.word[i / 2] >> shift & 0xffffu;
    const uint32_t upper = high.word[i / 2] >> shift << 16;
    return __uint_as_float(upper + (rest - ((rest & 0x8000u) << 1)));
}

/* Both must be zero there. */
template <int W>
COH_DEVICE void split_master(coh_raw<coh_half, W> &high, coh_raw<coh_half, W> &low, int i,
                             float master)
{
    const int shift = 16 * (i % 2);
    uint32_t bits = __float_as_uint(master);
    if ((bits & 0x7fffffffu) > 0x7f800000u) /* a GPU's NaN, rounded up, is -0 */
        bits = 0x7fc00000u;
    high.word[i / 2] |= (bits + 0x8000u) >> 16 << shift;
    low.word[i / 2] |= (bits & 0xffffu) << shift;
}

#endif
