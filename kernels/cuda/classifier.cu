/* classifier.cu - softmax cross-entropy over tiles of logits (coh_classifier;
 * kernels/cpu/classifier.c has the drawing). Next: classifier.c, pack.cuh.
 *
 * Memory-bound: a tile is read once for maxima and sums, and read and written once when it becomes
 * its gradient. A token's row of a tile belongs to one warp, which holds a part of it at a time, at
 * most COH_CUDA_LOGIT_ROWS logits, in registers: one load serves the maximum and the sum (Milakov
 * and Gimelshein 2018, alg. 3). */
#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/row.cuh"

template <typename T> constexpr int HELD = COH_CUDA_LOGIT_ROWS / COH_WARP / coh_pack<T>;

/* Logits of this lane: part k begins at (32 k + lane) W. */
template <int W> COH_DEVICE int part_begin(int k)
{
    return coh_part_begin<W>(k, COH_WARP);
}

/* A token's running maximum and sum. */
typedef struct token_sums {
    float max, sum;
    int begins; /* nothing was folded yet */
} token_sums;

/* Folds a part of a token's logits. PLAIN: all of COH_CUDA_LOGIT_ROWS, packed and without a cap. */
template <typename T, int PLAIN>
COH_DEVICE void take_part(token_sums &of, const T *row, int rows, int packed, float cap)
{
    constexpr int W = coh_pack<T>;
    const float old_max = of.max;
    coh_raw<T, W> held[HELD<T>];
    float max = -INFINITY, sum = 0.0f;
#pragma unroll
    for (int k = 0; k < HELD<T>; k++) {
        const int at = part_begin<W>(k);
        held[k] = coh_fetch_part<T, W>(row + at, rows - at, PLAIN || (packed && at + W <= rows));
    }
#pragma unroll
    for (int k = 0; k < HELD<T>; k++) {
        const coh_floats<W> x = coh_open<T, W>(held[k]);
#pragma unroll
        for (int i = 0; i < W; i++)
            max = PLAIN || part_begin<W>(k) + i < rows ? fmaxf(max, x.x[i]) : max;
    }
    max = fmaxf(old_max, coh_soft_cap(coh_warp_largest(max), cap)); /* it rises with x */
#pragma unroll
    for (int k = 0; k < HELD<T>; k++) {
        const coh_floats<W> x = coh_open<T, W>(held[k]);
#pragma unroll
        for (int i = 0; i < W; i++)
            sum += PLAIN || part_begin<W>(k) + i < rows ? coh_exp(coh_soft_cap(x.x[i], cap) - max)
                                                        : 0.0f;
    }
    sum = coh_warp_sum(sum);
    if (!of.begins)
        sum += of.sum * coh_exp(old_max - max); /* if all were NaN, so is the sum */
    of = { max, sum, 0 };
}

/* Folds a token's logits of a tile into its maximum and sum, which start with the first tile. */
template <typename T> COH_DEVICE void classifier_take(const coh_cuda_logits_arguments &a)
{
    const int rows = (int)a.rows, part = COH_CUDA_LOGIT_ROWS;
    COH_EACH(thread, 0, a.tokens * COH_WARP, 1)
    {
        const int64_t n = thread / COH_WARP, target = a.targets[n] - a.v0;
        const int has_target = target >= 0 && target < rows;
        const T *row = (const T *)a.logits + n * a.stride;
        const float logit = has_target ? coh_take<T, 1>(row + target).x[0] : 0.0f;
        token_sums of = { a.v0 > 0 ? a.max[n] : -INFINITY, a.v0 > 0 ? a.sum[n] : 0.0f, a.v0 == 0 };
        for (int first = 0; first < rows; first += part)
            if (rows - first >= part && a.packed && a.cap == 0.0f)
                take_part<T, 1>(of, row + first, part, 1, 0.0f);
            else
                take_part<T, 0>(of, row + first, min(rows - first, part), a.packed, a.cap);
        if (threadIdx.x % COH_WARP == 0) {
            a.max[n] = of.max;
            a.sum[n] = of.sum;
            if (has_target)
                a.target_logit[n] = coh_soft_cap(logit, a.cap);
            else if (a.v0 == 0)
                a.target_logit[n] = 0.0f;
        }
    }
}
/* Four blocks leave too few registers; on sm_100 and newer three do, too. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
#define TAKE_BLOCKS 2
#else
#define TAKE_BLOCKS 3
#endif
COH_KERNELS(classifier_take, coh_cuda_logits_arguments, 256, TAKE_BLOCKS)

/* Turns a token's logits into (softmax - onehot) scale, in place or elsewhere: e^(x - max) factor,
 * less `scale` at the target, times the slope of the cap. Without a target (counts 0) it is zeros,
 * whatever the logits. */
typedef struct token_gradient {
    int64_t target; /* relative to the tile's rows; may be outside */
    float max, factor, scale, cap;
    int counts, adds;
} token_gradient;

template <typename T, int W>
COH_DEVICE void give_gradient(T *to, int at, const coh_raw<T, W> &logits, const token_gradient &g)
{
    coh_floats<W> x = coh_open<T, W>(logits);
#pragma unroll
    for (int i = 0; i < W; i++) {
        const float logit = coh_soft_cap(x.x[i], g.cap);
        const float p = coh_exp(logit - g.max) * g.factor;
        float d = at + i == g.target ? p - g.scale : p; /* rounded only once */
        if (g.cap != 0.0f)
            d *= 1.0f - logit / g.cap * (logit / g.cap);
        x.x[i] = g.counts ? d : 0.0f;
    }
    coh_give<T, W>(to + at, x, g.adds);
}

/* Each lane loads GRADIENT_PACKS packs before it stores any, so it waits for memory once. */
#define GRADIENT_PACKS 4
template <typename T> COH_DEVICE void classifier_gradient(const coh_cuda_logits_arguments &a)
{
    constexpr int W = coh_pack<T>;
    const float factor = a.loss_factor != nullptr ? *a.loss_factor : 1.0f;
    const float scale = a.share * factor / (float)a.N;
    const int rows = (int)a.rows, part = GRADIENT_PACKS * COH_WARP * W;
    const int parts = a.packed ? rows / part * part : 0, whole = a.packed ? rows / W * W : 0;
    COH_EACH(thread, 0, a.tokens * COH_WARP, 1)
    {
        const int64_t n = thread / COH_WARP;
        const int lane = threadIdx.x % COH_WARP;
        const token_gradient g = { a.targets[n] - a.v0, a.max[n], scale / a.sum[n], scale, a.cap,
                                   a.targets[n] >= 0,   a.adds };
        const T *row = (const T *)a.logits + n * a.stride;
        T *to = (T *)a.gradient + n * a.stride;
        for (int first = 0; first < parts; first += part) {
            coh_raw<T, W> held[GRADIENT_PACKS];
#pragma unroll
            for (int k = 0; k < GRADIENT_PACKS; k++)
                held[k] = coh_fetch<T, W>(row + first + part_begin<W>(k));
#pragma unroll
            for (int k = 0; k < GRADIENT_PACKS; k++)
                give_gradient<T, W>(to, first + part_begin<W>(k), held[k], g);
        }
        for (int at = parts + lane * W; at < whole; at += COH_WARP * W)
            give_gradient<T, W>(to, at, coh_fetch<T, W>(row + at), g);
        for (int at = whole + lane; at < rows; at += COH_WARP)
            give_gradient<T, 1>(to, at, coh_fetch<T, 1>(row + at), g);
    }
}
COH_KERNELS(classifier_gradient, coh_cuda_logits_arguments, 256, 4)

/* loss = 1/N sum_n (max_n + log sum_n - logit_n), in double: thread i takes tokens i,
 * i + 1024, ... */
COH_KERNEL_OF(coh_classifier_loss, COH_CUDA_LOSS_THREADS, 1,
              const __grid_constant__ coh_cuda_loss_arguments a)
{
    __shared__ double slots[COH_WARPS_MOST];
    double sum = 0.0;
    for (int64_t n = threadIdx.x; n < a.N; n += COH_CUDA_LOSS_THREADS)
        if (a.targets[n] >= 0)
            sum += (double)a.max[n] + log((double)a.sum[n]) - (double)a.target_logit[n];
    sum = coh_row_sum(sum, slots, COH_CUDA_LOSS_THREADS);
    if (threadIdx.x == 0)
        *a.loss = (float)(sum / (double)a.N);
}
