/* AdamW whose moments are stored as one byte each: opens a block's moments in f32, updates its
 * elements as adamw does, and stores the new moments as codes again. Compiled once per instruction
 * set; all give the same bits. Next: kernels/quantise.h for the codes. */
#include "kernels/cpu/isa/isa.h"
#include "kernels/quantise.h"

#include "kernels/cpu/isa/philox.h"
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

/* Returns the bits of the larger numbers without signs: they have the order of the floats. */
LANES_INLINE vector_bits larger_bits(vector_bits a, vector_bits b)
{
    const vector_bits is_larger = (vector_bits)((vector_ints)a > (vector_ints)b);
    return (vector_bits)vector_select(is_larger, (vector)a, (vector)b);
}

LANES_INLINE uint32_t largest_bits_of(vector_bits a)
{
    uint32_t most = 0;
    for (int j = 0; j < COH_VECTOR_FLOATS; j++)
        most = a[j] > most ? a[j] : most;
    return most;
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
    const vector_bits is_normal = (vector_bits)((vector_ints)code >= COH_MOMENT_V_NORMAL);
    return vector_select(is_normal, (vector)(grown - (1u << 23)),
                         (vector)grown - (vector)bits_all(lowest));
}

/* `half` is added at the upper end of the bits that are dropped. */
LANES_INLINE vector_bits close_v(vector v, vector_bits half, uint32_t lowest)
{
    const vector low = (vector)bits_all(lowest);
    const vector_bits is_normal = (vector_bits)((vector_ints)v >= (int32_t)lowest);
    const vector_bits place = (vector_bits)vector_select(is_normal, v, v + low) - lowest +
                              (is_normal & (1u << 23)) + (half << 3 | 4u);
    const vector_bits code = place >> COH_MOMENT_V_DROPPED;
    return code | ((vector_bits)(code == 0u) & (vector_bits)((vector_bits)v != 0u) & 1u);
}

/* Returns the bits of the unit of m's codes, a power of two: the root of v to within a factor of 2,
 * or 2^-64 for 0. */
LANES_INLINE vector_bits m_unit(vector v)
{
    return (((vector_bits)v >> 23) + 127u) >> 1 << 23;
}

/* ---- blocks ---- */

typedef struct block_codes {
    uint8_t *m, *v;
    float *m_scale, *v_scale;
} block_codes;

typedef struct block_moments {
    float m[COH_QUANTISE_BLOCK], v[COH_QUANTISE_BLOCK];
} __attribute__((aligned(64))) block_moments;

LANES_INLINE vector vector_load_at(const float *from)
{
    vector x;
    memcpy(&x, from, sizeof(x));
    return x;
}

LANES_INLINE void vector_store_at(float *to, vector x)
{
    memcpy(to, &x, sizeof(x));
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

LANES_INLINE void open_block(block_moments *to, const block_codes *from)
{
    uint32_t v_scale;
    memcpy(&v_scale, from->v_scale, sizeof(v_scale));
    const uint32_t lowest = v_lowest(v_scale);
    const vector_bits nan = bits_all(isnan(*from->v_scale) ? COH_MOMENT_NAN : 0);
    const vector level = vector_all(*from->m_scale * (1.0f / COH_MOMENT_M_LEVELS));
    for (int j = 0; j < COH_QUANTISE_BLOCK; j += COH_VECTOR_FLOATS) {
        const vector v = open_v(load_codes(from->v + j), lowest);
        const vector_bits code = load_codes(from->m + j), minus = (code & 0x80u) << 24;
        const vector size = __builtin_convertvector((vector_ints)(code & 0x7fu), vector);
        const vector m = size * level * (vector)m_unit(v);
        vector_store_at(to->v + j, (vector)((vector_bits)v | nan));
        vector_store_at(to->m + j, (vector)((vector_bits)m | minus));
    }
}

/* Stores v and replaces each m by m in its unit. Returns the bits of the largest of those. */
LANES_INLINE uint32_t close_v_block(const block_codes *to, block_moments *from,
                                    const uint32_t *halves)
{
    vector_bits most = bits_all(0), most_m = bits_all(0);
    for (int j = 0; j < COH_QUANTISE_BLOCK; j += COH_VECTOR_FLOATS)
        most = larger_bits((vector_bits)vector_load_at(from->v + j) & 0x7fffffffu, most);
    const uint32_t largest = largest_bits_of(most);
    const uint32_t scale = scale_for(largest, COH_MOMENT_V_DROPPED), lowest = v_lowest(scale);
    const vector_bits is_finite = bits_all(scale == COH_MOMENT_NAN ? 0 : 0xffffffffu);
    for (int j = 0; j < COH_QUANTISE_BLOCK; j += COH_VECTOR_FLOATS) {
        vector_bits half;
        memcpy(&half, halves + j, sizeof(half));
        const vector_bits code = close_v(vector_load_at(from->v + j), half, lowest) & is_finite;
        const vector_bits unit = m_unit(open_v(code, lowest));
        const vector m = vector_load_at(from->m + j) * (vector)((254u << 23) - unit);
        most_m = larger_bits((vector_bits)m & 0x7fffffffu, most_m);
        vector_store_at(from->m + j, m);
        store_codes(to->v + j, code);
    }
    memcpy(to->v_scale, &scale, sizeof(scale));
    return largest_bits_of(most_m);
}

/* Stores m, which is in its units; `most` has the bits of the largest one. */
LANES_INLINE void close_m_block(const block_codes *to, const block_moments *from, uint32_t most,
                                const uint32_t *halves)
{
    const uint32_t scale = scale_for(most, COH_MOMENT_M_DROPPED);
    memcpy(to->m_scale, &scale, sizeof(scale));
    if (most == 0 || scale == COH_MOMENT_NAN) {
        memset(to->m, 0, COH_QUANTISE_BLOCK);
        return;
    }
    const vector levels = vector_all(COH_MOMENT_M_LEVELS) * (vector)bits_all((254u << 23) - scale);
    for (int j = 0; j < COH_QUANTISE_BLOCK; j += COH_VECTOR_FLOATS) {
        vector_bits half;
        memcpy(&half, halves + j, sizeof(half));
        const vector_bits bits = (vector_bits)vector_load_at(from->m + j);
        const vector place = (vector)(bits & 0x7fffffffu) * levels;
        const vector draw = __builtin_convertvector((vector_ints)(2 * half + 1), vector);
        const vector_bits code =
            (vector_bits) __builtin_convertvector(place + draw * vector_all(0x1p-17f), vector_ints);
        store_codes(to->m + j, code | (bits >> 24 & 0x80u));
    }
}

/* ---- the update ---- */

/* The random halves of a block's elements (kernels/random.h). */
LANES_INLINE void draw_block(uint32_t halves[COH_RANDOM_HALVES], const coh_random *random,
                             uint64_t block)
{
    uint32_t words[COH_RANDOM_GROUP];
    FLOAT_ROW(random)(words, random, block, 1);
    for (int j = 0; j < COH_RANDOM_GROUP; j++) {
        halves[j] = words[j] & 0xffffu;
        halves[COH_RANDOM_GROUP + j] = words[j] >> 16;
    }
}

/* Updates a block with all its codes; `call` has its elements. */
static void update_block(coh_update_call *call, const adamw_factors *factors,
                         const coh_random *random, const block_codes *codes)
{
    uint32_t halves[COH_RANDOM_HALVES] __attribute__((aligned(64)));
    block_moments moments;
    draw_block(halves, random, call->first / COH_QUANTISE_BLOCK);
    open_block(&moments, codes);
    call->states[0] = moments.m;
    call->states[1] = moments.v;
    update_walk(call, 2, factors, adamw_step);
    const uint32_t most = close_v_block(codes, &moments, halves);
    close_m_block(codes, &moments, most, halves);
}

void ROW(adamw8)(const coh_update_call *call)
{
    const adamw_factors factors = adamw_factors_of(call);
    const coh_rounding rounding = { call->random, 0, COH_ROUNDING_OF_MOMENTS };
    const coh_random random = coh_random_of(call->random, 0, coh_rounding_microbatch(&rounding));
    const int64_t work_bytes = call->work_dtype == COH_DTYPE_BF16 ? 2 : 4;
    const int64_t grad_bytes = call->grad_dtype == COH_DTYPE_BF16 ? 2 : 4;
    for (int64_t at = 0; at < call->count; at += COH_QUANTISE_BLOCK) {
        const int64_t block = at / COH_QUANTISE_BLOCK, left = call->count - at;
        const block_codes codes = { .m = (uint8_t *)call->states[0] + at,
                                    .v = (uint8_t *)call->states[2] + at,
                                    .m_scale = (float *)call->states[1] + block,
                                    .v_scale = (float *)call->states[3] + block };
        coh_update_call part = *call;
        part.count = left < COH_QUANTISE_BLOCK ? left : COH_QUANTISE_BLOCK;
        part.first += (uint64_t)at;
        part.work = (char *)call->work + at * work_bytes;
        part.low = call->low == NULL ? NULL : call->low + at;
        part.grad = (const char *)call->grad + at * grad_bytes;
        if (left >= COH_QUANTISE_BLOCK) {
            update_block(&part, &factors, &random, &codes);
            continue;
        }
        uint8_t m[COH_QUANTISE_BLOCK] = { 0 }, v[COH_QUANTISE_BLOCK] = { 0 };
        memcpy(m, codes.m, (size_t)left);
        memcpy(v, codes.v, (size_t)left);
        update_block(&part, &factors, &random,
                     &(block_codes){ m, v, codes.m_scale, codes.v_scale });
        memcpy(codes.m, m, (size_t)left);
        memcpy(codes.v, v, (size_t)left);
    }
}
