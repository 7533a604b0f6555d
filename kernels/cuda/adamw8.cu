/* adamw8.cu - the update of AdamW with moments in one byte (kernels/quantise.h). Next: update.cuh;
 * optimizer.c launches it.
 *
 * The bits are the host's, as in optimizer.cu: contraction is off for this file.
 *
 * A warp takes a block of 128 elements, four per lane. It takes two blocks at a time, because the
 * halves of a block come from sixteen Philox blocks, of which each lane makes one. Its words reach
 * the lanes that need them through shared memory. 16 bytes an element move. A bf16 work without low
 * half (adamw8sr) is rounded by a second draw; 10 bytes move.
 *
 * Instructions bound it: some hundred an element. So the four elements of a lane take the three
 * quotients and the root of AdamW without a branch, if all of them are of usual size. */
#include "kernels/cuda/philox.cuh"
#include "kernels/cuda/update.cuh"
#include "kernels/quantise.h"

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
    return __reduce_max_sync(COH_ALL_LANES, most);
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
    const uint32_t kept = to.v_scale == COH_MOMENT_NAN ? 0 : 0xffu; /* no branches */
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t code = close_v(v[i], halves[i], lowest) & kept;
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

/* Returns a lane's halves of its four words: half lane / 16 of each. */
COH_DEVICE coh_four halves_of(const uint32_t *words)
{
    const int lane = threadIdx.x % COH_WARP;
    coh_four halves = *(const coh_four *)(words + lane % 16 * 4);
#pragma unroll
    for (int i = 0; i < 4; i++)
        halves.word[i] = halves.word[i] >> (lane / 16 * 16) & 0xffffu;
    return halves;
}

/* ---- the direction of AdamW, m / bias1 / (sqrt(v / bias2) + epsilon) ----
 *
 * Quotients and roots are rounded to nearest, by the corrections that nvcc's own have: each
 * residual is exact, so that the last one leads to the nearest number (Markstein 1990). Results,
 * residuals and denominators must be normal numbers; the sizes below ensure it. Others take the
 * operators. */

/* Improves a quotient x / b, an ulp or two off, by `inverse`, 1 / b. */
COH_DEVICE float corrected(float quotient, float x, float b, float inverse)
{
    return fmaf(fmaf(-b, quotient, x), inverse, quotient);
}

COH_DEVICE float quotient_by(float x, float b, float inverse)
{
    return corrected(corrected(x * inverse, x, b, inverse), x, b, inverse);
}

COH_DEVICE float usual_quotient(float x, float b)
{
    const float near = coh_reciprocal(b);
    return quotient_by(x, b, fmaf(near, fmaf(-b, near, 1.0f), near));
}

COH_DEVICE float usual_root(float x)
{
    const float inverse = coh_inverse_root(x), root = x * inverse;
    return fmaf(fmaf(-root, root, x), 0.5f * inverse, root);
}

/* Is x, not negative, in [2^least, 2^most)? */
COH_DEVICE bool is_within(float x, int least, int most)
{
    return __float_as_uint(x) - (uint32_t)(127 + least) * (1u << 23) <
           (uint32_t)(most - least) * (1u << 23);
}

struct coh_directions {
    float bias1, bias2, inverse1, inverse2, epsilon;
    bool are_usual;

    __device__ coh_directions(const coh_adamw_step &step)
        : bias1(step.bias1), bias2(step.bias2), inverse1(1.0f / step.bias1),
          inverse2(1.0f / step.bias2), epsilon(step.epsilon),
          are_usual(is_within(bias1, -24, 1) && is_within(bias2, -24, 1) && epsilon >= 0.0f &&
                    epsilon < 1024.0f)
    {
    }

    /* Four elements; `to` may be m. */
    __device__ void operator()(const float *m, const float *v, float *to) const
    {
        bool usual = are_usual;
#pragma unroll
        for (int i = 0; i < 4; i++)
            usual = usual && is_within(fabsf(m[i]), -100, 40) && is_within(v[i], -100, 10);
        if (usual) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float root = usual_root(quotient_by(v[i], bias2, inverse2));
                to[i] = usual_quotient(quotient_by(m[i], bias1, inverse1), root + epsilon);
            }
            return;
        }
        float a = m[0], b = v[0];
#pragma unroll 1
        for (int i = 0; i < 4; i++) { /* one copy of the operators' code */
            const float direction = a / bias1 / (sqrtf(b / bias2) + epsilon);
#pragma unroll
            for (int k = 0; k < 4; k++) {
                to[k] = k == i ? direction : to[k];
                a = k == i + 1 ? m[k] : a;
                b = k == i + 1 ? v[k] : b;
            }
        }
    }
};

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

/* A lane's four elements of a block, as stored. */
template <typename T> struct coh_block_part {
    int64_t at;
    int rest; /* how many of them exist */
    uint32_t m_codes, v_codes, m_scale, v_scale;
    coh_raw<float, 4> grad; /* bf16: two words */
    coh_raw<T, 4> high;
    coh_raw<coh_half, 4> low;
};

/* Loads a block, of which `left` elements from `at` on exist; WHOLE: all, in packed tensors. */
template <typename T, int WHOLE>
COH_DEVICE coh_block_part<T> fetch_block(const coh_cuda_update_arguments &a, int64_t at,
                                         int64_t left)
{
    const int lane = threadIdx.x % COH_WARP;
    const int64_t block = at / BLOCK, behind = left - 4 * lane;
    coh_block_part<T> part = {};
    part.at = at + 4 * lane;
    part.rest = WHOLE ? 4 : behind < 0 ? 0 : behind > 4 ? 4 : (int)behind;
    part.m_scale = __float_as_uint(((const float *)a.states[1])[block]);
    part.v_scale = __float_as_uint(((const float *)a.states[3])[block]);
    part.m_codes = take_codes((const uint8_t *)a.states[0] + part.at, part.rest, WHOLE);
    part.v_codes = take_codes((const uint8_t *)a.states[2] + part.at, part.rest, WHOLE);
    if (a.f32_grads || sizeof(T) == 4) {
        part.grad = coh_fetch_part<float, 4>((const float *)a.grad + part.at, part.rest, WHOLE);
    } else {
        const coh_raw<coh_half, 4> grad =
            coh_fetch_part<coh_half, 4>((const coh_half *)a.grad + part.at, part.rest, WHOLE);
        part.grad.word[0] = grad.word[0];
        part.grad.word[1] = grad.word[1];
    }
    part.high = coh_fetch_part<T, 4>((const T *)a.work + part.at, part.rest, WHOLE);
    if (sizeof(T) == 2 && a.low != nullptr)
        part.low = coh_fetch_part<coh_half, 4>(a.low + part.at, part.rest, WHOLE);
    return part;
}

template <typename T>
COH_DEVICE coh_floats<4> grad_of(const coh_cuda_update_arguments &a, const coh_block_part<T> &part)
{
    if (a.f32_grads || sizeof(T) == 4)
        return coh_open<float, 4>(part.grad);
    return coh_open<coh_half, 4>({ { part.grad.word[0], part.grad.word[1] } });
}

/* Opens a lane's moments and moves them to the gradient, as coh_adamw_step does. */
template <typename T>
COH_DEVICE void move_moments(const coh_cuda_update_arguments &a, const coh_adamw_step &step,
                             const coh_block_part<T> &part, float *m, float *v)
{
    const coh_floats<4> grad = grad_of<T>(a, part);
    const uint32_t lowest = v_lowest(part.v_scale);
    const uint32_t nan = (part.v_scale & 0x7fffffffu) > 0x7f800000u ? COH_MOMENT_NAN : 0;
    const float level = __uint_as_float(part.m_scale) * (1.0f / COH_MOMENT_M_LEVELS);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float old_v = open_v(part.v_codes >> 8 * i & 0xffu, lowest);
        const float old_m = open_m(part.m_codes >> 8 * i & 0xffu, level, old_v);
        const float g = step.scale * grad.x[i];
        m[i] = step.beta1 * old_m + step.rest1 * g;
        v[i] = step.beta2 * __uint_as_float(__float_as_uint(old_v) | nan) + step.rest2 * (g * g);
    }
}

/* Updates a block. `words` are for the moments, `drawn` for a work without low half. */
template <typename T, int WHOLE>
COH_DEVICE void update_block(const coh_cuda_update_arguments &a, const coh_adamw_step &step,
                             const coh_directions &directions, const coh_block_part<T> &part,
                             const uint32_t *words, const uint32_t *drawn)
{
    const bool has_low = sizeof(T) == 2 && a.low != nullptr;
    const int64_t at = part.at, block = at / BLOCK;
    const coh_four halves = halves_of(words);
    coh_raw<T, 4> new_high = {};
    coh_raw<coh_half, 4> new_low = {};
    coh_four draws = {};
    float m[4], v[4], direction[4];
    if (sizeof(T) == 2 && !has_low)
        draws = halves_of(drawn);
    move_moments<T>(a, step, part, m, v);
    directions(m, v, direction);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float work = open_work<T>(part.high, part.low, i);
        work = work - step.rate * (direction[i] + step.decay * work);
        if (sizeof(T) == 4 || has_low)
            close_work<T>(new_high, new_low, i, work);
        else
            new_high.word[i / 2] |= coh_bf16_at(__float_as_uint(work), draws.word[i])
                                    << 16 * (i % 2);
    }
    put_part<T>((T *)a.work + at, new_high, part.rest, WHOLE);
    if (has_low)
        put_part<coh_half>(a.low + at, new_low, part.rest, WHOLE);
    const coh_block_codes codes = close_block(m, v, halves.word);
    put_codes((uint8_t *)a.states[0] + at, codes.m, part.rest, WHOLE);
    put_codes((uint8_t *)a.states[2] + at, codes.v, part.rest, WHOLE);
    if (threadIdx.x % COH_WARP == 0) {
        ((float *)a.states[1])[block] = __uint_as_float(codes.m_scale);
        ((float *)a.states[3])[block] = __uint_as_float(codes.v_scale);
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

/* The draws of a warp: their streams, and shared memory for their words. */
struct coh_block_draws {
    coh_random moments, work;
    bool rounds_work;
    uint32_t *words, *drawn; /* of two groups */
};

/* Updates two blocks of a warp, or one, of which `left` elements from `at` on exist. The words are
 * made while the loads are in flight. */
template <typename T, int WHOLE>
COH_DEVICE void update_two(const coh_cuda_update_arguments &a, const coh_adamw_step &step,
                           const coh_directions &directions, const coh_block_draws &draws,
                           int64_t at, int left, uint64_t counter)
{
    const coh_block_part<T> one = fetch_block<T, WHOLE>(a, at, left);
    coh_block_part<T> two = {};
    if constexpr (WHOLE)
        two = fetch_block<T, 1>(a, at + BLOCK, BLOCK);
    __syncwarp(); /* the previous words have been read */
    draw_words(draws.words, draws.moments, counter);
    if (draws.rounds_work)
        draw_words(draws.drawn, draws.work, counter);
    __syncwarp();
    update_block<T, WHOLE>(a, step, directions, one, draws.words, draws.drawn);
    if constexpr (!WHOLE)
        if (left > BLOCK)
            two = fetch_block<T, 0>(a, at + BLOCK, left - BLOCK);
    if (WHOLE || left > BLOCK)
        update_block<T, WHOLE>(a, step, directions, two, draws.words + COH_RANDOM_GROUP,
                               draws.drawn + COH_RANDOM_GROUP);
}

/* A grain is the work of COH_CUDA_UPDATE_PARTS blocks of threads, as in update(). */
template <typename T> COH_DEVICE void adamw8(const coh_cuda_update_arguments &a)
{
    __shared__ coh_four words[WARPS][2 * COH_RANDOM_GROUP / 4];
    __shared__ coh_four drawn[WARPS][2 * COH_RANDOM_GROUP / 4];
    constexpr int part = COH_CUDA_GRAIN / COH_CUDA_UPDATE_PARTS;
    if (a.predicate != nullptr && *a.predicate == 0)
        return;
    const grain one = grain_at(a.grains, blockIdx.x / COH_CUDA_UPDATE_PARTS);
    const coh_adamw_step step(a, one);
    const coh_directions directions(step);
    const int lane = threadIdx.x % COH_WARP, warp = threadIdx.x / COH_WARP;
    coh_block_draws draws = {};
    draws.rounds_work = sizeof(T) == 2 && a.low == nullptr;
    draws.words = words[warp][0].word;
    draws.drawn = drawn[warp][0].word;
    draws.moments = stream_of(a, COH_ROUNDING_OF_MOMENTS);
    if (draws.rounds_work)
        draws.work = stream_of(a, COH_ROUNDING_OF_WORK);
    const int begin = blockIdx.x % COH_CUDA_UPDATE_PARTS * part, end = min(begin + part, one.count);
    const bool packed = a.packed && one.element % 4 == 0;
#pragma unroll 1
    for (int i = begin + 2 * BLOCK * warp; i < end; i += 2 * BLOCK * WARPS) {
        const uint64_t group = ((uint64_t)one.partial * COH_CUDA_GRAIN + i) / BLOCK + lane / GROUPS;
        const uint64_t counter = GROUPS * group + lane % GROUPS;
        const int64_t at = one.element + i;
        if (packed && end - i >= 2 * BLOCK)
            update_two<T, 1>(a, step, directions, draws, at, end - i, counter);
        else
            update_two<T, 0>(a, step, directions, draws, at, end - i, counter);
    }
}
COH_KERNELS(adamw8, coh_cuda_update_arguments, 256, 3)
