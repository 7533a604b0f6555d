/* AdamW whose moments are stored as one byte each: opens a block's moments in f32, updates its
 * elements as adamw does, and stores the new moments as codes again. Compiled once per instruction
 * set; all give the same bits. Next: kernels/quantise.h for the codes. */
#include "kernels/cpu/isa/isa.h"
#include "kernels/quantise.h"

#include "kernels/cpu/isa/halves.h"
#include "kernels/cpu/isa/update.h"

/* ---- codes (kernels/quantise.h) ---- */

/* Returns the bits of the scale of a block whose largest number, without its sign, has the bits
 * `most`. `dropped`: bits of its mantissa for which a code has no room. */
LANES_INLINE uint32_t scale_for(uint32_t most, int dropped)
{
    const uint32_t bits = (most + ((1u << dropped) - 1)) & 0xff800000u;
    if (most == 0 || bits < COH_MOMENT_LEAST_SCALE)
        return most == 0 ? 0 : COH_MOMENT_LEAST_SCALE;
    return bits < COH_MOMENT_TOO_LARGE ? bits : COH_MOMENT_NAN;
}

/* Returns the bits of the least normal number among v's codes. */
LANES_INLINE uint32_t v_lowest(uint32_t scale_bits)
{
    const uint32_t least = COH_MOMENT_LEAST_SCALE;
    return (scale_bits > least ? scale_bits : least) - ((COH_MOMENT_V_TOP - 1) << 23);
}

LANES_INLINE vector open_v(vector_bits code, uint32_t lowest)
{
    const vector_bits grown = (code << COH_MOMENT_V_DROPPED) + lowest; /* E is one too large */
    return vector_if_below(code, COH_MOMENT_V_NORMAL, (vector)grown - (vector)bits_all(lowest),
                           (vector)(grown - (1u << 23)));
}

/* `half` is added at the upper end of the bits that are dropped. v >= 0; the code of a NaN has no
 * meaning. */
LANES_INLINE vector_bits close_v(vector v, vector_bits half, uint32_t lowest)
{
    const vector_bits bits = (vector_bits)v;
    const vector small = v + (vector)bits_all(lowest); /* E is one too large */
    const vector_bits place =
        (vector_bits)vector_if_below(bits, lowest, small, (vector)(bits + (1u << 23)));
    const vector_bits code = (place - (lowest - 4u) + (half << 3)) >> COH_MOMENT_V_DROPPED;
    return bits_larger(code, bits_smaller(bits, bits_all(1)));
}

/* Returns the bits of the unit of m's codes, a power of two: the root of v to within a factor of 2,
 * or 2^-64 for 0. */
LANES_INLINE vector_bits m_unit(vector v)
{
    return ((vector_bits)v + (127u << 23)) >> 24 << 23;
}

LANES_INLINE vector open_m(vector_bits code, vector level, vector v)
{
    const vector size = __builtin_convertvector((vector_ints)(code & 0x7fu), vector);
    const vector m = size * level * (vector)m_unit(v);
    return (vector)((vector_bits)m | (code << 24 & 0x80000000u));
}

/* `m` is in its unit. */
LANES_INLINE vector_bits close_m(vector m, vector_bits half, vector levels)
{
    const vector_bits bits = (vector_bits)m;
    const vector place = (vector)(bits & 0x7fffffffu) * levels;
    const vector draw = __builtin_convertvector((vector_ints)(2 * half + 1), vector);
    return (vector_bits) __builtin_convertvector(place + draw * vector_all(0x1p-17f), vector_ints) |
           (bits >> 24 & 0x80u);
}

LANES_INLINE vector_bits load_codes(const uint8_t *from)
{
    vector_bytes narrow;
    memcpy(&narrow, from, sizeof(narrow));
    return vector_widen_bytes(narrow);
}

LANES_INLINE void store_codes(uint8_t *to, vector_bits codes)
{
    const vector_bytes narrow = vector_narrow_bytes(codes);
    memcpy(to, &narrow, sizeof(narrow));
}

/* ---- blocks ---- */

enum { PARTS = COH_QUANTISE_BLOCK / COH_LANES };

typedef struct block_codes {
    uint8_t *m, *v;
    float *m_scale, *v_scale;
} block_codes;

typedef struct block_moments {
    lanes m[PARTS], v[PARTS];
} block_moments;

/* How a block's work and gradient are stored. Its fields are constants where a block is updated, so
 * that the compiler removes the branches. */
typedef struct block_form {
    enum { WORK_F32, WORK_SPLIT, WORK_ROUNDED } work;
    int grad_is_f32;
} block_form;

/* Shared by the blocks of a call. */
typedef struct block_streams {
    adamw_factors factors;
    block_stream moments, work; /* work: of WORK_ROUNDED */
} block_streams;

LANES_INLINE void open_block(block_moments *to, const block_codes *from)
{
    uint32_t v_scale;
    memcpy(&v_scale, from->v_scale, sizeof(v_scale));
    const uint32_t lowest = v_lowest(v_scale);
    const vector_bits nan = bits_all(isnan(*from->v_scale) ? COH_MOMENT_NAN : 0);
    const vector level = vector_all(*from->m_scale * (1.0f / COH_MOMENT_M_LEVELS));
    for (int p = 0; p < PARTS; p++)
        for (int k = 0; k < COH_VECTORS; k++) {
            const int at = p * COH_LANES + k * COH_VECTOR_FLOATS;
            const vector v = open_v(load_codes(from->v + at), lowest);
            to->m[p].part[k] = open_m(load_codes(from->m + at), level, v);
            to->v[p].part[k] = (vector)((vector_bits)v | nan);
        }
}

/* Updates the work and the moments of a part. */
LANES_INLINE void step_part(const coh_update_call *call, block_form form,
                            const adamw_factors *factors, block_moments *moments,
                            const block_halves *draws, int p)
{
    const int64_t at = p * COH_LANES;
    update_part part = { .grad = update_load_grad(call, form.grad_is_f32, at),
                         .first = moments->m[p],
                         .second = moments->v[p] };
    part.work = form.work == WORK_ROUNDED ? lanes_widen((const uint16_t *)call->work + at)
                                          : update_load_work(call, form.work == WORK_SPLIT, at);
    adamw_step(factors, &part);
    if (form.work == WORK_ROUNDED)
        lanes_round_by((uint16_t *)call->work + at, part.work, draws, p);
    else
        update_store_work(call, form.work == WORK_SPLIT, at, part.work);
    moments->m[p] = part.first;
    moments->v[p] = part.second;
}

/* Returns the bits of the largest of a block's numbers, without signs. */
LANES_INLINE uint32_t largest_of(const lanes *x)
{
    vector_bits most = bits_all(0);
    for (int p = 0; p < PARTS; p++)
        for (int k = 0; k < COH_VECTORS; k++)
            most = bits_larger(most, (vector_bits)x[p].part[k] & 0x7fffffffu);
    return bits_largest(most);
}

/* Stores v and replaces each m by m in its unit. */
LANES_INLINE void close_v_block(const block_codes *to, block_moments *from,
                                const block_halves *halves)
{
    const uint32_t scale = scale_for(largest_of(from->v), COH_MOMENT_V_DROPPED);
    const uint32_t lowest = v_lowest(scale);
    const vector_bits is_finite = bits_all(scale == COH_MOMENT_NAN ? 0 : 0xffffffffu);
    for (int p = 0; p < PARTS; p++)
        for (int k = 0; k < COH_VECTORS; k++) {
            const vector_bits half = block_half(halves, p, k);
            const vector_bits code = close_v(from->v[p].part[k], half, lowest) & is_finite;
            const vector_bits unit = m_unit(open_v(code, lowest));
            from->m[p].part[k] *= (vector)((254u << 23) - unit);
            store_codes(to->v + p * COH_LANES + k * COH_VECTOR_FLOATS, code);
        }
    memcpy(to->v_scale, &scale, sizeof(scale));
}

/* Stores m, which is in its units. */
LANES_INLINE void close_m_block(const block_codes *to, const block_moments *from,
                                const block_halves *halves)
{
    const uint32_t most = largest_of(from->m), scale = scale_for(most, COH_MOMENT_M_DROPPED);
    memcpy(to->m_scale, &scale, sizeof(scale));
    if (most == 0 || scale == COH_MOMENT_NAN) {
        memset(to->m, 0, COH_QUANTISE_BLOCK);
        return;
    }
    const vector levels = vector_all(COH_MOMENT_M_LEVELS) * (vector)bits_all((254u << 23) - scale);
    for (int p = 0; p < PARTS; p++)
        for (int k = 0; k < COH_VECTORS; k++)
            store_codes(to->m + p * COH_LANES + k * COH_VECTOR_FLOATS,
                        close_m(from->m[p].part[k], block_half(halves, p, k), levels));
}

/* Updates a whole block; `call` has its elements. */
LANES_INLINE void update_block(const coh_update_call *call, block_form form,
                               const block_streams *streams, const block_codes *codes)
{
    const uint64_t number = call->first / COH_QUANTISE_BLOCK;
    const block_halves halves = block_draw(&streams->moments, number);
    block_halves draws;
    block_moments moments;
    if (form.work == WORK_ROUNDED)
        draws = block_draw(&streams->work, number);
    open_block(&moments, codes);
    for (int p = 0; p < PARTS; p++)
        step_part(call, form, &streams->factors, &moments, &draws, p);
    close_v_block(codes, &moments, &halves);
    close_m_block(codes, &moments, &halves);
}

/* The elements of a block that is not whole, followed by zeros. */
typedef struct block_rest {
    float work[COH_QUANTISE_BLOCK], grad[COH_QUANTISE_BLOCK];
    uint16_t low[COH_QUANTISE_BLOCK];
    uint8_t m[COH_QUANTISE_BLOCK], v[COH_QUANTISE_BLOCK];
} block_rest;

LANES_INLINE void update_rest_block(const coh_update_call *call, block_form form,
                                    const block_streams *streams, const block_codes *codes)
{
    const size_t count = (size_t)call->count;
    const size_t work_bytes = count * (form.work == WORK_F32 ? 4 : 2);
    block_rest rest = { 0 };
    coh_update_call part = *call;
    memcpy(rest.work, call->work, work_bytes);
    memcpy(rest.grad, call->grad, count * (form.grad_is_f32 ? 4 : 2));
    memcpy(rest.m, codes->m, count);
    memcpy(rest.v, codes->v, count);
    if (form.work == WORK_SPLIT)
        memcpy(rest.low, call->low, 2 * count);
    part.work = rest.work;
    part.grad = rest.grad;
    part.low = rest.low;
    update_block(&part, form, streams,
                 &(block_codes){ rest.m, rest.v, codes->m_scale, codes->v_scale });
    memcpy(call->work, rest.work, work_bytes);
    memcpy(codes->m, rest.m, count);
    memcpy(codes->v, rest.v, count);
    if (form.work == WORK_SPLIT)
        memcpy(call->low, rest.low, 2 * count);
}

LANES_INLINE void update_blocks(const coh_update_call *call, block_form form,
                                const block_streams *streams)
{
    coh_update_call part = *call;
    block_codes codes = { .m = call->states[0],
                          .v = call->states[2],
                          .m_scale = call->states[1],
                          .v_scale = call->states[3] };
    for (; part.count >= COH_QUANTISE_BLOCK; part.count -= COH_QUANTISE_BLOCK) {
        update_block(&part, form, streams, &codes);
        part.first += COH_QUANTISE_BLOCK;
        part.work = (char *)part.work + COH_QUANTISE_BLOCK * (form.work == WORK_F32 ? 4 : 2);
        part.grad = (const char *)part.grad + COH_QUANTISE_BLOCK * (form.grad_is_f32 ? 4 : 2);
        if (form.work == WORK_SPLIT)
            part.low += COH_QUANTISE_BLOCK;
        codes = (block_codes){ codes.m + COH_QUANTISE_BLOCK, codes.v + COH_QUANTISE_BLOCK,
                               codes.m_scale + 1, codes.v_scale + 1 };
    }
    if (part.count > 0)
        update_rest_block(&part, form, streams, &codes);
}

/* Returns the stream of a use of random halves in the updates of the call's step. */
static block_stream stream_of(const coh_update_call *call, int32_t use)
{
    const coh_rounding rounding = { call->random, 0, use };
    const coh_random random = coh_random_of(call->random, 0, coh_rounding_microbatch(&rounding));
    return block_stream_of(&random);
}

void ROW(adamw8)(const coh_update_call *call)
{
    const int is_rounded = call->work_dtype == COH_DTYPE_BF16 && call->low == NULL;
    const block_streams streams = { .factors = adamw_factors_of(call),
                                    .moments = stream_of(call, COH_ROUNDING_OF_MOMENTS),
                                    .work = stream_of(call, COH_ROUNDING_OF_WORK) };
    if (call->work_dtype == COH_DTYPE_F32)
        update_blocks(call, (block_form){ WORK_F32, 1 }, &streams);
    else if (is_rounded && call->grad_dtype == COH_DTYPE_F32)
        update_blocks(call, (block_form){ WORK_ROUNDED, 1 }, &streams);
    else if (is_rounded)
        update_blocks(call, (block_form){ WORK_ROUNDED, 0 }, &streams);
    else if (call->grad_dtype == COH_DTYPE_F32)
        update_blocks(call, (block_form){ WORK_SPLIT, 1 }, &streams);
    else
        update_blocks(call, (block_form){ WORK_SPLIT, 0 }, &streams);
}
