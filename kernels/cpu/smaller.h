/* smaller.h - the smaller of two counts: the rest of a row, a block, a tile. */
#ifndef COH_KERNELS_CPU_SMALLER_H
#define COH_KERNELS_CPU_SMALLER_H

#include <stdint.h>

static inline int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

#endif
