/* Row loops for copies, sums, gelu and the check for finite values, sixteen elements at a time.
 * Compiled once per instruction set and element type. Next: kernels/cpu/rows.h for each loop's
 * meaning, element.h, gelu.h. */
#include "kernels/cpu/isa/element.h"

#include "kernels/cpu/isa/gelu.h"

int ROW(all_finite)(const void *row, int64_t count)
{
    const element *x = row;
    uint32_t broken = 0;
    for (int64_t i = 0; i < count; i++) {
#if COH_ELEMENT_IS_BF16
        const uint32_t bits = (uint32_t)x[i] << 16;
#else
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof(bits));
#endif
        broken |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return broken == 0;
}

LANES_INLINE void sum_part(element *to, const element *a, const element *b, int64_t count)
{
    elements_give(to, count,
                  lanes_add(elements_take(a, count, 0.0f), elements_take(b, count, 0.0f)));
}

void ROW(sum)(void *out, const void *left, const void *right, int64_t count)
{
    element *to = out;
    const element *a = left, *b = right;
    int64_t i = 0;
    for (; i + COH_LANES <= count; i += COH_LANES)
        sum_part(to + i, a + i, b + i, COH_LANES);
    if (i < count)
        sum_part(to + i, a + i, b + i, count - i);
}

void ROW(add)(void *to, const void *from, int64_t count)
{
    ROW(sum)(to, to, from, count);
}

LANES_INLINE void add_scaled_part(float *total, const element *from, lanes factor, int64_t count)
{
    lanes sum = count == COH_LANES ? lanes_load(total) : lanes_load_part(total, count, 0.0f);
    sum = lanes_add(sum, lanes_multiply(factor, elements_take(from, count, 0.0f)));
    if (count == COH_LANES)
        lanes_store(total, sum);
    else
        lanes_store_part(total, count, sum);
}

void ROW(add_scaled)(float *total, const void *row, float factor, int64_t count)
{
    const element *from = row;
    const lanes factors = lanes_all(factor);
    int64_t i = 0;
    for (; i + COH_LANES <= count; i += COH_LANES)
        add_scaled_part(total + i, from + i, factors, COH_LANES);
    if (i < count)
        add_scaled_part(total + i, from + i, factors, count - i);
}

void ROW(gather)(float *total, const void *row, int64_t count)
{
    const element *from = row;
    int64_t i = 0;
    for (; i + COH_LANES <= count; i += COH_LANES)
        lanes_store(total + i, lanes_add(lanes_load(total + i), elements_load(from + i)));
    if (i < count) {
        const int64_t rest = count - i;
        lanes_store_part(total + i, rest,
                         lanes_add(lanes_load_part(total + i, rest, 0.0f),
                                   elements_load_part(from + i, rest, 0.0f)));
    }
}

void ROW(put)(void *row, const float *total, int64_t count, int adds)
{
    element *to = row;
    int64_t i = 0;
    for (; i + COH_LANES <= count; i += COH_LANES) {
        const lanes sum = lanes_load(total + i);
        elements_store(to + i, adds ? lanes_add(elements_load(to + i), sum) : sum);
    }
    if (i < count) {
        const int64_t rest = count - i;
        lanes sum = lanes_load_part(total + i, rest, 0.0f);
        if (adds)
            sum = lanes_add(elements_load_part(to + i, rest, 0.0f), sum);
        elements_store_part(to + i, rest, sum);
    }
}

void ROW(gelu)(void *out, const void *row, int64_t count)
{
    element *y = out;
    const element *x = row;
    int64_t i = 0;
    for (; i + COH_LANES <= count; i += COH_LANES)
        elements_store(y + i, gelu(elements_load(x + i)));
    if (i < count)
        elements_store_part(y + i, count - i, gelu(elements_load_part(x + i, count - i, 0.0f)));
}

LANES_INLINE void gelu_backward_part(element *dx, const element *dy, const element *x,
                                     int64_t count, int adds)
{
    lanes slope =
        lanes_multiply(elements_take(dy, count, 0.0f), gelu_slope(elements_take(x, count, 0.0f)));
    if (adds)
        slope = lanes_add(elements_take(dx, count, 0.0f), slope);
    elements_give(dx, count, slope);
}

void ROW(gelu_backward)(void *out, const void *gradient, const void *row, int64_t count, int adds)
{
    element *dx = out;
    const element *dy = gradient, *x = row;
    int64_t i = 0;
    for (; i + COH_LANES <= count; i += COH_LANES)
        gelu_backward_part(dx + i, dy + i, x + i, COH_LANES, adds);
    if (i < count)
        gelu_backward_part(dx + i, dy + i, x + i, count - i, adds);
}

LANES_INLINE void gelu_gradient_part(element *dh, const element *dy, const element *h, float *sums,
                                     int64_t count)
{
    const lanes value =
        lanes_multiply(elements_take(dy, count, 0.0f), gelu_slope(elements_take(h, count, 0.0f)));
    elements_give(dh, count, value);
    if (count == COH_LANES)
        lanes_store(sums, lanes_add(lanes_load(sums), value));
    else
        lanes_store_part(sums, count, lanes_add(lanes_load_part(sums, count, 0.0f), value));
}

void ROW(gelu_gradient)(void *out, const void *gradient, const void *row, float *sums,
                        int64_t count)
{
    element *dh = out;
    const element *dy = gradient, *h = row;
    int64_t i = 0;
    for (; i + COH_LANES <= count; i += COH_LANES)
        gelu_gradient_part(dh + i, dy + i, h + i, sums + i, COH_LANES);
    if (i < count)
        gelu_gradient_part(dh + i, dy + i, h + i, sums + i, count - i);
}
