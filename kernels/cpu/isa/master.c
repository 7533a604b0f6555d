/* A bf16 parameter's master: joined from its halves and split into them. Compiled once per
 * instruction set; all give the same bits. Next: kernels/kernels.h (coh_kernel_join). */
#include "kernels/cpu/isa/isa.h"

#include "kernels/cpu/isa/lanes.h"

LANES_INLINE lanes join_part(const uint16_t *high, const uint16_t *low)
{
    return low == NULL ? lanes_widen(high) : lanes_join(high, low);
}

void ROW(join)(float *master, const uint16_t *high, const uint16_t *low, int64_t count)
{
    int64_t i = 0;
    for (; i + COH_LANES <= count; i += COH_LANES)
        lanes_store(master + i, join_part(high + i, low == NULL ? NULL : low + i));
    if (i < count) {
        const size_t bytes = (size_t)(count - i) * sizeof(uint16_t);
        uint16_t halves[2][COH_LANES] = { 0 };
        memcpy(halves[0], high + i, bytes);
        if (low != NULL)
            memcpy(halves[1], low + i, bytes);
        lanes_store_part(master + i, count - i,
                         join_part(halves[0], low == NULL ? NULL : halves[1]));
    }
}

void ROW(split)(uint16_t *high, uint16_t *low, const float *master, int64_t count)
{
    uint16_t unused[COH_LANES];
    int64_t i = 0;
    for (; i + COH_LANES <= count; i += COH_LANES)
        lanes_split(high + i, low == NULL ? unused : low + i, lanes_load(master + i));
    if (i < count) {
        const size_t bytes = (size_t)(count - i) * sizeof(uint16_t);
        uint16_t halves[2][COH_LANES];
        lanes_split(halves[0], halves[1], lanes_load_part(master + i, count - i, 0.0f));
        memcpy(high + i, halves[0], bytes);
        if (low != NULL)
            memcpy(low + i, halves[1], bytes);
    }
}
