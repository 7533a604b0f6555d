/* halves.h - the random words of a group, or the halves of a block of 128 elements
 * (kernels/random.h), in registers; and stochastic rounding to bf16 by them.
 *
 * Included only by the files that are compiled once per instruction set. */
#ifndef COH_KERNELS_CPU_ISA_HALVES_H
#define COH_KERNELS_CPU_ISA_HALVES_H

#include "kernels/cpu/isa/lanes.h"
#include "kernels/cpu/isa/philox.h"

/* A stream of halves (kernels/random.h), ready for its blocks. */
typedef struct block_stream {
    philox_keys keys;
    uint32_t high[2];
} block_stream;

LANES_INLINE block_stream block_stream_of(const coh_random *random)
{
    return (block_stream){ philox_keys_of(random->key), { random->high[0], random->high[1] } };
}

/* A group: its word 16 w + l is lane l of the registers words[..][w]. */
typedef struct block_halves {
    vector_bits words[COH_VECTORS][4];
} block_halves;

LANES_INLINE block_halves block_draw(const block_stream *stream, uint64_t group)
{
    block_halves halves;
    for (int k = 0; k < COH_VECTORS; k++) {
        /* sixteen counters begin at a multiple of sixteen, so no lane carries */
        const uint64_t counter = COH_LANES * group + (uint64_t)k * COH_VECTOR_FLOATS;
        vector_bits *x = halves.words[k];
        x[0] = bits_all((uint32_t)counter) + bits_order();
        x[1] = bits_all((uint32_t)(counter >> 32));
        x[2] = bits_all(stream->high[0]);
        x[3] = bits_all(stream->high[1]);
        philox_blocks(x, &stream->keys);
    }
    return halves;
}

/* Returns the halves of register k of the block's sixteen elements from 16 p on. */
LANES_INLINE vector_bits block_half(const block_halves *halves, int p, int k)
{
    const vector_bits words = halves->words[k][p % 4];
    return p < 4 ? words & 0xffffu : words >> 16;
}

/* x rounded to bf16 by its half, as kernels/quantise.h. The result is in the lower half of each
 * lane. */
LANES_INLINE vector_bits bits_round_by(vector_bits x, vector_bits half)
{
    const vector_bits size = x & 0x7fffffffu, infinity = bits_all(0x7f800000u);
    const vector_bits sum = size + half;
    const vector_bits is_past = (vector_bits)(sum >= infinity) & (vector_bits)(size < infinity);
    const vector_bits held = (~is_past & sum) | (is_past & 0x7f7f0000u); /* the largest bf16 */
    return vector_quiet((vector)x, held | (x & 0x80000000u)) >> 16;
}

/* Stores sixteen elements as bf16, rounded by the halves of those from 16 p on. */
LANES_INLINE void lanes_round_by(uint16_t *to, lanes a, const block_halves *halves, int p)
{
    for (int k = 0; k < COH_VECTORS; k++) {
        const vector_halves rounded =
            vector_narrow(bits_round_by((vector_bits)a.part[k], block_half(halves, p, k)));
        memcpy(to + k * COH_VECTOR_FLOATS, &rounded, sizeof(rounded));
    }
}

#endif
