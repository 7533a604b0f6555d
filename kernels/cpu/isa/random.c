/* Random words in groups of 64: sixteen Philox blocks, one per lane, make the four rows of a group.
 * Compiled once per instruction set. Next: kernels/random.h for the order of words, halves.h. */
#include "kernels/cpu/isa/halves.h"
#include "kernels/cpu/isa/isa.h"

void FLOAT_ROW(random)(uint32_t *words, const coh_random *random, uint64_t group, int64_t groups)
{
    const block_stream stream = block_stream_of(random);
    for (int64_t g = 0; g < groups; g++) {
        const block_halves made = block_draw(&stream, group + (uint64_t)g);
        for (int k = 0; k < COH_VECTORS; k++)
            for (int w = 0; w < 4; w++)
                memcpy(words + g * COH_RANDOM_GROUP + w * COH_LANES + k * COH_VECTOR_FLOATS,
                       &made.words[k][w], sizeof(made.words[k][w]));
    }
}
