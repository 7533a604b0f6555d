/* optimizer.cu - FEED, NORM, CLIP, UPDATE and SETTLE (kernels/optimizer.h). Next:
 * optimizer_arguments.h; optimizer.c launches them.
 *
 * The bits are the host's: contraction is off for this file, divisions and roots are rounded to
 * nearest, and sums of squares are in the host's order. Only pow may differ, in the last place of a
 * double that is then rounded to a float.
 *
 * Memory-bound: an AdamW update of a bf16 parameter moves 26 bytes (work, low, m, v both ways,
 * grad; with an f32 gradient 28), of an f32 one 28. A thread loads four elements at a time, so that
 * neighbouring threads load adjacent bytes for 2-byte and 4-byte elements alike. */
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

/* ---- NORM ----
 *
 * The host keeps sixteen sums of a grain, element i in sum i % 16, and folds them as a tree
 * (kernels/cpu/isa/sums.c). So half a warp takes a grain, with one sum per lane. In a round it
 * reads 32 or 64 neighbouring bytes. Up to 64 rounds are in flight, because a chunk has few grains:
 * one of 4 MiB in bf16 has 64 warps in all. The square of a float is exact in double, so a fused
 * addition rounds no differently. */
template <typename T> COH_DEVICE void square_sums(const coh_cuda_square_sums_arguments &a)
{
    const int64_t index = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / COH_CUDA_SQUARE_LANES;
    const int lane = threadIdx.x % COH_CUDA_SQUARE_LANES;
    grain one = {};
    if (index < a.grain_count) /* other threads only take part in the shuffles */
        one = grain_at(a.grains, index);
    const T *x = (const T *)a.grad + one.element;
    double sum = 0.0;
#pragma unroll 64
    for (int i = lane; i < one.count; i += COH_CUDA_SQUARE_LANES) {
        const double wide = (double)coh_take<T, 1>(x + i).x[0];
        sum = fma(wide, wide, sum);
    }
#pragma unroll
    for (int apart = COH_CUDA_SQUARE_LANES / 2; apart > 0; apart /= 2)
        sum += __shfl_down_sync(COH_ALL_LANES, sum, apart);
    if (lane == 0 && index < a.grain_count)
        a.partials[one.partial] = sum;
}
COH_KERNELS(square_sums, coh_cuda_square_sums_arguments, COH_CUDA_SQUARE_THREADS, 4)

/* ---- UPDATE ---- */

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

struct coh_lion_step {
    static constexpr int states = 1;
    float rate, scale, beta1, beta2, rest1, rest2, decay;

    __device__ coh_lion_step(const coh_cuda_update_arguments &a, const grain &one)
        : rate(a.cells->update_rate * one.rate_factor), scale(a.cells->update_scale),
          beta1(a.hyperparameters[0]), beta2(a.hyperparameters[1]), rest1(1.0f - beta1),
          rest2(1.0f - beta2), decay(one.decay)
    {
    }

    /* As kernels/cpu/isa/optimizers.c. */
    __device__ void operator()(float &work, float grad, float *s) const
    {
        const float g = scale * grad;
        const float c = beta1 * s[0] + rest1 * g;
        const float sign = c > 0.0f ? 1.0f : c < 0.0f ? -1.0f : c; /* NaN stays */
        s[0] = beta2 * s[0] + rest2 * g;
        work = work - rate * (sign + decay * work);
    }
};

struct coh_sgd_step {
    static constexpr int states = 1;
    float rate, scale, momentum, decay;
    bool nesterov;

    __device__ coh_sgd_step(const coh_cuda_update_arguments &a, const grain &one)
        : rate(a.cells->update_rate * one.rate_factor), scale(a.cells->update_scale),
          momentum(a.hyperparameters[0]), decay(one.decay), nesterov(a.hyperparameters[1] >= 0.5f)
    {
    }

    /* As kernels/cpu/isa/optimizers.c. */
    __device__ void operator()(float &work, float grad, float *s) const
    {
        const float g = scale * grad + decay * work;
        s[0] = momentum * s[0] + g;
        work = work - rate * (nesterov ? g + momentum * s[0] : s[0]);
    }
};

/* Updates W elements from `at` on. A bf16 parameter's master is its two halves (kernels.h). */
template <typename T, int W, typename S>
COH_DEVICE void update_part(const coh_cuda_update_arguments &a, const S &step, int64_t at)
{
    const coh_floats<W> grad = a.f32_grads ? coh_take<float, W>((const float *)a.grad + at)
                                           : coh_take<T, W>((const T *)a.grad + at);
    coh_floats<W> states[S::states], work;
#pragma unroll
    for (int k = 0; k < S::states; k++)
        states[k] = coh_take<float, W>((const float *)a.states[k] + at);
    const coh_raw<T, W> high = coh_fetch<T, W>((const T *)a.work + at);
    coh_raw<T, W> low = {}, new_high = {}, new_low = {};
    if constexpr (sizeof(T) == 4)
        work = coh_open<T, W>(high);
    else
        low = coh_fetch<T, W>(a.low + at);
#pragma unroll
    for (int i = 0; i < W; i++) {
        const int shift = 16 * (i % 2);
        if constexpr (sizeof(T) == 2) {
            const uint32_t rest = low.word[i / 2] >> shift & 0xffffu;
            const uint32_t upper = high.word[i / 2] >> shift << 16;
            work.x[i] = __uint_as_float(upper + (rest - ((rest & 0x8000u) << 1)));
        }
        float s[S::states];
#pragma unroll
        for (int k = 0; k < S::states; k++)
            s[k] = states[k].x[i];
        step(work.x[i], grad.x[i], s);
#pragma unroll
        for (int k = 0; k < S::states; k++)
            states[k].x[i] = s[k];
        if constexpr (sizeof(T) == 2) {
            uint32_t bits = __float_as_uint(work.x[i]);
            if ((bits & 0x7fffffffu) > 0x7f800000u) /* a GPU's NaN, rounded up, is -0 */
                bits = 0x7fc00000u;
            new_high.word[i / 2] |= (bits + 0x8000u) >> 16 << shift;
            new_low.word[i / 2] |= (bits & 0xffffu) << shift;
        }
    }
    if constexpr (sizeof(T) == 4) {
        coh_put<T, W>((T *)a.work + at, work);
    } else {
        coh_put_raw<T, W>((T *)a.work + at, new_high);
        coh_put_raw<T, W>(a.low + at, new_low);
    }
#pragma unroll
    for (int k = 0; k < S::states; k++)
        coh_put<float, W>((float *)a.states[k] + at, states[k]);
}

/* A grain is the work of COH_CUDA_UPDATE_PARTS blocks. */
template <typename T, typename S> COH_DEVICE void update(const coh_cuda_update_arguments &a)
{
    constexpr int W = 4, part = COH_CUDA_GRAIN / COH_CUDA_UPDATE_PARTS;
    if (a.predicate != nullptr && *a.predicate == 0)
        return;
    const grain one = grain_at(a.grains, blockIdx.x / COH_CUDA_UPDATE_PARTS);
    const S step(a, one);
    const int begin = blockIdx.x % COH_CUDA_UPDATE_PARTS * part, end = min(begin + part, one.count);
    int whole = begin;
    if (a.packed && one.element % W == 0 && end > begin)
        whole = begin + (end - begin) / W * W;
    for (int i = begin + (int)threadIdx.x * W; i < whole; i += blockDim.x * W)
        update_part<T, W, S>(a, step, one.element + i);
    for (int i = whole + (int)threadIdx.x; i < end; i += blockDim.x)
        update_part<T, 1, S>(a, step, one.element + i);
}

template <typename T> COH_DEVICE void adamw(const coh_cuda_update_arguments &a)
{
    update<T, coh_adamw_step>(a);
}
COH_KERNELS(adamw, coh_cuda_update_arguments, 256, 4)

template <typename T> COH_DEVICE void lion(const coh_cuda_update_arguments &a)
{
    update<T, coh_lion_step>(a);
}
COH_KERNELS(lion, coh_cuda_update_arguments, 256, 4)

template <typename T> COH_DEVICE void sgd(const coh_cuda_update_arguments &a)
{
    update<T, coh_sgd_step>(a);
}
COH_KERNELS(sgd, coh_cuda_update_arguments, 256, 4)

/* ---- FEED, CLIP, SETTLE: one thread; in CLIP its block folds the partials first ---- */

COH_DEVICE void latch_update(coh_cells *cells, const coh_update_scalars &scalars, uint64_t count,
                             float scale)
{
    cells->update_rate = cells->learning_rate;
    cells->update_scale = scale;
    cells->update_random = cells->random;
    for (int i = 0; i < scalars.count; i++)
        cells->update_scalars[i] = (float)(1.0 - pow((double)scalars.base[i], (double)count));
}

COH_KERNEL_OF(coh_cells_feed, 32, 1, const __grid_constant__ coh_cuda_feed_arguments a)
{
    coh_cells *cells = a.cells;
    if (threadIdx.x > 0)
        return;
    cells->random = a.values->random;
    cells->learning_rate = a.values->learning_rate;
    cells->clip = a.values->clip;
    cells->loss_factor = a.values->loss_factor;
    if (a.latches)
        latch_update(cells, a.scalars, cells->applied_count + 1, 1.0f);
}

/* Folds all partials with one sum per thread (COH_CLIP_SUMS); the result is in thread 0. */
COH_DEVICE double fold_partials(const double *partials, int64_t count)
{
    __shared__ double sums[COH_CLIP_SUMS];
    double sum = 0.0;
#pragma unroll 8
    for (int64_t i = threadIdx.x; i < count; i += COH_CLIP_SUMS)
        sum += partials[i];
    sums[threadIdx.x] = sum;
    for (unsigned half = COH_CLIP_SUMS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    return sums[0];
}

COH_KERNEL_OF(coh_cells_clip, COH_CLIP_SUMS, 1, const __grid_constant__ coh_clip a)
{
    const double folded = a.partials != nullptr ? fold_partials(a.partials, a.partial_count) : 0.0;
    coh_cells *cells = a.cells;
    if (threadIdx.x > 0)
        return;
    double losses = 0.0;
    for (int64_t i = 0; a.losses != nullptr && i < a.microbatch_count; i++)
        losses += a.losses[i * a.loss_stride];
    const double loss = losses / (double)a.microbatch_count * (double)cells->loss_factor;
    const double norm = sqrt(folded);
    float scale = 1.0f;
    if (cells->clip > 0 && norm > (double)cells->clip)
        scale = (float)((double)cells->clip / norm);
    cells->finite = isfinite(loss) && isfinite(norm);
    if (cells->finite)
        cells->applied_count++;
    if (a.defers) {
        cells->pending = cells->finite;
        latch_update(cells, a.scalars, cells->applied_count, scale);
    }
    a.record->step = cells->random.step;
    a.record->applied_count = cells->applied_count;
    a.record->loss = loss;
    a.record->grad_norm = norm;
    a.record->finite = cells->finite;
}

COH_KERNEL_OF(coh_cells_settle, 32, 1, const __grid_constant__ coh_cuda_settle_arguments a)
{
    if (threadIdx.x == 0)
        a.cells->pending = 0;
}
