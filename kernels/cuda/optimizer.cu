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
#include "kernels/cuda/update.cuh"

/* ---- NORM ----
 *
 * The host sums a grain in pieces of 1,024 elements. It keeps sixteen sums of a piece, element i in
 * sum i % 16, folds them as a tree (kernels/cpu/isa/sums.c) and adds the pieces in order. So half a
 * warp takes a piece, with one sum per lane, and a block takes a grain: a chunk has few grains, and
 * one thread after the other would wait for a thousand additions. In a round half a warp reads 32
 * or 64 neighbouring bytes. The square of a float is exact in double, so a fused addition rounds no
 * differently. */
template <typename T> COH_DEVICE void square_sums(const coh_cuda_square_sums_arguments &a)
{
    __shared__ double pieces[COH_CUDA_SQUARE_PIECES];
    const grain one = grain_at(a.grains, blockIdx.x);
    const int lane = (int)threadIdx.x % COH_CUDA_SQUARE_LANES;
    const int piece = (int)threadIdx.x / COH_CUDA_SQUARE_LANES;
    const int begin = piece * COH_CUDA_SQUARE_PIECE;
    const int end = min(begin + COH_CUDA_SQUARE_PIECE, one.count);
    const T *x = (const T *)a.grad + one.element;
    double sum = 0.0;
#pragma unroll 32
    for (int i = begin + lane; i < end; i += COH_CUDA_SQUARE_LANES) {
        const double wide = (double)coh_take<T, 1>(x + i).x[0];
        sum = fma(wide, wide, sum);
    }
#pragma unroll
    for (int apart = COH_CUDA_SQUARE_LANES / 2; apart > 0; apart /= 2)
        sum += __shfl_down_sync(COH_ALL_LANES, sum, apart);
    if (lane == 0)
        pieces[piece] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        double total = 0.0;
        for (int i = 0; i < COH_CUDA_SQUARE_PIECES; i++)
            total += pieces[i]; /* 0 beyond the grain's end */
        a.partials[one.partial] = total;
    }
}
COH_KERNELS(square_sums, coh_cuda_square_sums_arguments, COH_CUDA_SQUARE_THREADS, 4)

/* ---- UPDATE ---- */

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

/* Updates W elements from `at` on. */
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
        if constexpr (sizeof(T) == 2)
            work.x[i] = join_master<W>(high, low, i);
        float s[S::states];
#pragma unroll
        for (int k = 0; k < S::states; k++)
            s[k] = states[k].x[i];
        step(work.x[i], grad.x[i], s);
#pragma unroll
        for (int k = 0; k < S::states; k++)
            states[k].x[i] = s[k];
        if constexpr (sizeof(T) == 2)
            split_master<W>(new_high, new_low, i, work.x[i]);
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

COH_DEVICE float clip_factor(float clip, double norm)
{
    return clip > 0 && norm > (double)clip ? (float)((double)clip / norm) : 1.0f;
}

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
    const double norm = a.values->norm_is_known ? a.values->norm : cells->previous_norm;
    if (a.latches)
        latch_update(cells, a.scalars, cells->applied_count + 1, clip_factor(cells->clip, norm));
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

/* As on the host (kernels/cpu/optimizer.c). */
COH_DEVICE double losses_mean(const coh_clip &a)
{
    int64_t own[COH_FOLD_FACTORS], each = a.microbatch_count;
    double all = 0.0;
    for (int f = 0; f < COH_FOLD_FACTORS; f++)
        each /= own[f] = a.fold.factors[f] > 1 ? a.fold.factors[f] : 1;
    const float *loss = a.losses;
    for (int64_t node = 0; loss != nullptr && node < own[2]; node++) {
        double of_node = 0.0;
        for (int64_t pair = 0; pair < own[1]; pair++) {
            double of_pair = 0.0;
            for (int64_t replica = 0; replica < own[0]; replica++) {
                double sum = 0.0;
                for (int64_t i = 0; i < each; i++, loss += a.loss_stride)
                    sum += *loss;
                of_pair += sum;
            }
            of_node += of_pair;
        }
        all += of_node;
    }
    return all / (double)a.microbatch_count;
}

COH_KERNEL_OF(coh_cells_clip, COH_CLIP_SUMS, 1, const __grid_constant__ coh_clip a)
{
    const double folded = a.partials != nullptr ? fold_partials(a.partials, a.partial_count) : 0.0;
    coh_cells *cells = a.cells;
    if (threadIdx.x > 0)
        return;
    const double loss = losses_mean(a) * (double)cells->loss_factor;
    const double norm = sqrt(folded);
    cells->finite = isfinite(loss) && isfinite(norm);
    if (cells->finite)
        cells->applied_count++;
    if (isfinite(norm))
        cells->previous_norm = norm;
    if (a.defers) {
        cells->pending = cells->finite;
        latch_update(cells, a.scalars, cells->applied_count, clip_factor(cells->clip, norm));
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
