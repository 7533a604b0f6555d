/* Random words in groups of 64: sixteen Philox blocks, one per lane, make the four rows of a group.
 * Compiled once per instruction set. Next: kernels/random.h for the order of words, philox.h. */
#include "kernels/cpu/isa/isa.h"
#include "kernels/cpu/isa/lanes.h"
#include "kernels/cpu/isa/philox.h"

void FLOAT_ROW(random)(uint32_t *words, const coh_random *random, uint64_t group, int64_t groups)
{
    for (int64_t g = 0; g < groups; g++, group++)
        for (int k = 0; k < COH_VECTORS; k++) {
            /* sixteen counters begin at a multiple of sixteen, so no lane carries */
            const uint64_t counter = 16 * group + (uint64_t)k * COH_VECTOR_FLOATS;
            vector_bits x[4] = { bits_all((uint32_t)counter) + bits_order(),
                                 bits_all((uint32_t)(counter >> 32)), bits_all(random->high[0]),
                                 bits_all(random->high[1]) };
            philox_blocks(x, random->key);
            for (int w = 0; w < 4; w++)
                memcpy(words + g * COH_RANDOM_GROUP + w * COH_LANES + k * COH_VECTOR_FLOATS, &x[w],
                       sizeof(x[w]));
        }
}
