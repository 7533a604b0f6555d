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
#include "kernels/cuda/philox.cuh"
#include "kernels/quantise.h"

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

/* ---- adamw8: moments in one byte (kernels/quantise.h) ----
 *
 * A warp takes a block of 128 elements, four per lane. It takes two blocks at a time, because the
 * halves of a block come from sixteen Philox blocks, of which each lane makes one. Its words reach
 * the lanes that need them through shared memory (as in quantise.cu). 16 bytes an element move. A
 * bf16 work without low half (adamw8sr) is rounded by a second draw; 10 bytes move. */

#define WARPS  (256 / COH_WARP)
#define BLOCK  COH_QUANTISE_BLOCK
#define GROUPS 16 /* Philox blocks of a group of halves */

/* As kernels/cpu/isa/adamw8.c, from here on. */
COH_DEVICE uint32_t scale_for(uint32_t most, int dropped)
{
    const uint32_t bits = (most + ((1u << dropped) - 1)) & 0xff800000u;
    if (most == 0 || bits < COH_MOMENT_LEAST_SCALE)
        return most == 0 ? 0 : COH_MOMENT_LEAST_SCALE;
    return bits < COH_MOMENT_TOO_LARGE ? bits : COH_MOMENT_NAN;
}

COH_DEVICE uint32_t v_lowest(uint32_t scale_bits)
{
    const uint32_t least = COH_MOMENT_LEAST_SCALE;
    return (scale_bits > least ? scale_bits : least) - ((COH_MOMENT_V_TOP - 1) << 23);
}

COH_DEVICE float open_v(uint32_t code, uint32_t lowest)
{
    const uint32_t grown = (code << COH_MOMENT_V_DROPPED) + lowest; /* E is one too large */
    return code >= COH_MOMENT_V_NORMAL ? __uint_as_float(grown - (1u << 23))
                                       : __uint_as_float(grown) - __uint_as_float(lowest);
}

COH_DEVICE uint32_t close_v(float v, uint32_t half, uint32_t lowest)
{
    const uint32_t bits = __float_as_uint(v);
    uint32_t place = bits - lowest + (1u << 23);
    if (bits < lowest)
        place = __float_as_uint(v + __uint_as_float(lowest)) - lowest;
    const uint32_t code = (place + (half << 3 | 4u)) >> COH_MOMENT_V_DROPPED;
    return code == 0 && bits != 0 ? 1 : code;
}

COH_DEVICE uint32_t m_unit(float v)
{
    return ((__float_as_uint(v) >> 23) + 127u) >> 1 << 23;
}

COH_DEVICE float open_m(uint32_t code, float level, float v)
{
    const float m = (float)(code & 0x7fu) * level * __uint_as_float(m_unit(v));
    return __uint_as_float(__float_as_uint(m) | (code & 0x80u) << 24);
}

COH_DEVICE uint32_t close_m(float m, uint32_t half, float levels)
{
    const uint32_t bits = __float_as_uint(m);
    const float place = __uint_as_float(bits & 0x7fffffffu) * levels;
    return (uint32_t)(int)(place + (float)(2 * half + 1) * 0x1p-17f) | (bits >> 24 & 0x80u);
}

/* Returns the bits of the largest of all lanes' numbers, four each, without signs. */
COH_DEVICE uint32_t largest_bits(const float *x)
{
    uint32_t most = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        most = max(most, __float_as_uint(x[i]) & 0x7fffffffu);
#pragma unroll
    for (int apart = COH_WARP / 2; apart > 0; apart /= 2)
        most = max(most, __shfl_xor_sync(COH_ALL_LANES, most, apart));
    return most;
}

/* Loads and stores a lane's four codes, of which `rest` exist. */
COH_DEVICE uint32_t take_codes(const uint8_t *from, int rest, bool whole)
{
    if (whole)
        return *(const uint32_t *)from;
    uint32_t codes = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (i < rest)
            codes |= (uint32_t)from[i] << 8 * i;
    return codes;
}

COH_DEVICE void put_codes(uint8_t *to, uint32_t codes, int rest, bool whole)
{
    if (whole) {
        *(uint32_t *)to = codes;
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (i < rest)
            to[i] = (uint8_t)(codes >> 8 * i);
}

/* Stores a lane's four elements, of which `rest` exist. */
template <typename T>
COH_DEVICE void put_part(T *to, const coh_raw<T, 4> &from, int rest, bool whole)
{
    if (whole) {
        coh_put_raw<T, 4>(to, from);
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (i < rest) {
            if constexpr (sizeof(T) == 4)
                to[i] = __uint_as_float(from.word[i]);
            else
                to[i] = (T)(from.word[i / 2] >> 16 * (i % 2));
        }
}

typedef struct coh_block_codes {
    uint32_t m, v;             /* four codes each */
    uint32_t m_scale, v_scale; /* bits */
} coh_block_codes;

/* Makes the codes of a block's moments: four per lane, zeros after the last. */
COH_DEVICE coh_block_codes close_block(float *m, const float *v, const uint32_t *halves)
{
    coh_block_codes to = {};
    to.v_scale = scale_for(largest_bits(v), COH_MOMENT_V_DROPPED);
    const uint32_t lowest = v_lowest(to.v_scale);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t code = to.v_scale == COH_MOMENT_NAN ? 0 : close_v(v[i], halves[i], lowest);
        m[i] *= __uint_as_float((254u << 23) - m_unit(open_v(code, lowest)));
        to.v |= code << 8 * i;
    }
    const uint32_t most = largest_bits(m);
    to.m_scale = scale_for(most, COH_MOMENT_M_DROPPED);
    const float levels = COH_MOMENT_M_LEVELS * __uint_as_float((254u << 23) - to.m_scale);
    if (most != 0 && to.m_scale != COH_MOMENT_NAN)
#pragma unroll
        for (int i = 0; i < 4; i++)
            to.m |= close_m(m[i], halves[i], levels) << 8 * i;
    return to;
}

/* Returns a lane's half of word i of its four: half lane / 16. */
COH_DEVICE uint32_t half_of(const uint32_t *words, int i)
{
    const int lane = threadIdx.x % COH_WARP;
    return words[lane % 16 * 4 + i] >> (lane / 16 * 16) & 0xffffu;
}

/* Opens and closes element i of a lane's work: an f32, or both halves of a master. */
template <typename T>
COH_DEVICE float open_work(const coh_raw<T, 4> &high, const coh_raw<coh_half, 4> &low, int i)
{
    if constexpr (sizeof(T) == 2)
        return join_master<4>(high, low, i);
    else
        return __uint_as_float(high.word[i]);
}

template <typename T>
COH_DEVICE void close_work(coh_raw<T, 4> &high, coh_raw<coh_half, 4> &low, int i, float work)
{
    if constexpr (sizeof(T) == 2)
        split_master<4>(high, low, i, work);
    else
        high.word[i] = __float_as_uint(work);
}

/* Updates a block, of which `left` elements from `at` on exist. `words` are for the moments,
 * `drawn` for a work without low half. */
template <typename T>
COH_DEVICE void update_block(const coh_cuda_update_arguments &a, const coh_adamw_step &step,
                             int64_t at, int64_t left, bool packed, const uint32_t *words,
                             const uint32_t *drawn)
{
    const bool has_low = sizeof(T) == 2 && a.low != nullptr;
    const int lane = threadIdx.x % COH_WARP;
    const int64_t behind = left - 4 * lane;
    const int rest = behind < 0 ? 0 : behind > 4 ? 4 : (int)behind;
    const bool whole = packed && rest == 4;
    const int64_t block = at / BLOCK;
    float *m_scale = (float *)a.states[1] + block, *v_scale = (float *)a.states[3] + block;
    const uint32_t m_bits = __float_as_uint(*m_scale), v_bits = __float_as_uint(*v_scale);
    at += 4 * lane;
    const uint32_t m_codes = take_codes((const uint8_t *)a.states[0] + at, rest, whole);
    const uint32_t v_codes = take_codes((const uint8_t *)a.states[2] + at, rest, whole);
    const coh_floats<4> grad =
        a.f32_grads || sizeof(T) == 4
            ? coh_open<float, 4>(coh_fetch_part<float, 4>((const float *)a.grad + at, rest, whole))
            : coh_open<T, 4>(coh_fetch_part<T, 4>((const T *)a.grad + at, rest, whole));
    const coh_raw<T, 4> high = coh_fetch_part<T, 4>((const T *)a.work + at, rest, whole);
    coh_raw<coh_half, 4> low = {};
    coh_raw<T, 4> new_high = {};
    coh_raw<coh_half, 4> new_low = {};
    if (has_low)
        low = coh_fetch_part<coh_half, 4>(a.low + at, rest, whole);
    const uint32_t lowest = v_lowest(v_bits);
    const uint32_t nan = (v_bits & 0x7fffffffu) > 0x7f800000u ? COH_MOMENT_NAN : 0;
    const float level = __uint_as_float(m_bits) * (1.0f / COH_MOMENT_M_LEVELS);
    float m[4], v[4];
    uint32_t halves[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        halves[i] = half_of(words, i);
        const float old_v = open_v(v_codes >> 8 * i & 0xffu, lowest);
        float s[2] = { open_m(m_codes >> 8 * i & 0xffu, level, old_v),
                       __uint_as_float(__float_as_uint(old_v) | nan) };
        float work = open_work<T>(high, low, i);
        step(work, grad.x[i], s);
        if (sizeof(T) == 4 || has_low)
            close_work<T>(new_high, new_low, i, work);
        else
            new_high.word[i / 2] |= coh_bf16_at(__float_as_uint(work), half_of(drawn, i))
                                    << 16 * (i % 2);
        m[i] = s[0];
        v[i] = s[1];
    }
    put_part<T>((T *)a.work + at, new_high, rest, whole);
    if (has_low)
        put_part<coh_half>(a.low + at, new_low, rest, whole);
    const coh_block_codes codes = close_block(m, v, halves);
    put_codes((uint8_t *)a.states[0] + at, codes.m, rest, whole);
    put_codes((uint8_t *)a.states[2] + at, codes.v, rest, whole);
    if (lane == 0) {
        *m_scale = __uint_as_float(codes.m_scale);
        *v_scale = __uint_as_float(codes.v_scale);
    }
}

COH_DEVICE coh_random stream_of(const coh_cuda_update_arguments &a, int use)
{
    return coh_random_stream(&a.cells->update_random, 0, (uint32_t)(-1 - use));
}

/* Makes a lane's Philox block of two groups. */
COH_DEVICE void draw_words(uint32_t *words, const coh_random &stream, uint64_t counter)
{
    const int lane = threadIdx.x % COH_WARP;
    uint32_t made[4] = { (uint32_t)counter, (uint32_t)(counter >> 32), stream.high[0],
                         stream.high[1] };
    coh_philox_block(made, stream.key[0], stream.key[1]);
#pragma unroll
    for (int w = 0; w < 4; w++)
        words[lane / GROUPS * COH_RANDOM_GROUP + GROUPS * w + lane % GROUPS] = made[w];
}

/* A grain is the work of COH_CUDA_UPDATE_PARTS blocks of threads, as in update(). */
template <typename T> COH_DEVICE void adamw8(const coh_cuda_update_arguments &a)
{
    __shared__ uint32_t words[WARPS][2 * COH_RANDOM_GROUP], drawn[WARPS][2 * COH_RANDOM_GROUP];
    constexpr int part = COH_CUDA_GRAIN / COH_CUDA_UPDATE_PARTS;
    if (a.predicate != nullptr && *a.predicate == 0)
        return;
    const grain one = grain_at(a.grains, blockIdx.x / COH_CUDA_UPDATE_PARTS);
    const coh_adamw_step step(a, one);
    const bool rounds_work = sizeof(T) == 2 && a.low == nullptr;
    const coh_random stream = stream_of(a, COH_ROUNDING_OF_MOMENTS);
    coh_random of_work = {};
    if (rounds_work)
        of_work = stream_of(a, COH_ROUNDING_OF_WORK);
    const int begin = blockIdx.x % COH_CUDA_UPDATE_PARTS * part, end = min(begin + part, one.count);
    const int lane = threadIdx.x % COH_WARP, warp = threadIdx.x / COH_WARP;
    const bool packed = a.packed && one.element % 4 == 0;
    for (int i = begin + 2 * BLOCK * warp; i < end; i += 2 * BLOCK * WARPS) {
        const uint64_t group = ((uint64_t)one.partial * COH_CUDA_GRAIN + i) / BLOCK + lane / GROUPS;
        const uint64_t counter = GROUPS * group + lane % GROUPS;
        __syncwarp(); /* the previous words have been read */
        draw_words(words[warp], stream, counter);
        if (rounds_work)
            draw_words(drawn[warp], of_work, counter);
        __syncwarp();
        update_block<T>(a, step, one.element + i, end - i, packed, words[warp], drawn[warp]);
        if (i + BLOCK < end)
            update_block<T>(a, step, one.element + i + BLOCK, end - i - BLOCK, packed,
                            words[warp] + COH_RANDOM_GROUP, drawn[warp] + COH_RANDOM_GROUP);
    }
}
COH_KERNELS(adamw8, coh_cuda_update_arguments, 256, 4)

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
