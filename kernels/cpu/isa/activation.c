/* Row loops of relu and swiglu and of their gradients, sixteen elements at a time. Compiled once
 * per instruction set and element type. Next: kernels/cpu/rows.h for each loop's meaning; gelu is
 * in elementwise.c. */
#include "kernels/cpu/isa/element.h"

#include "kernels/cpu/isa/relu.h"
#include "kernels/cpu/isa/swiglu.h"

/* ---- relu ---- */

void ROW(relu)(void *out, const void *row, int64_t count)
{
    element *y = out;
    const element *x = row;
    int64_t i = 0;
    for (; i + COH_LANES <= count; i += COH_LANES)
        elements_store(y + i, relu(elements_load(x + i)));
    if (i < count)
        elements_store_part(y + i, count - i, relu(elements_load_part(x + i, count - i, 0.0f)));
}

LANES_INLINE void relu_backward_part(element *dx, const element *dy, const element *y,
                                     int64_t count, int adds)
{
    lanes gradient = relu_keep(elements_take(dy, count, 0.0f), elements_take(y, count, 0.0f));
    if (adds)
        gradient = lanes_add(elements_take(dx, count, 0.0f), gradient);
    elements_give(dx, count, gradient);
}

void ROW(relu_backward)(void *out, const void *gradient, const void *row, int64_t count, int adds)
{
    element *dx = out;
    const element *dy = gradient, *y = row;
    int64_t i = 0;
    for (; i + COH_LANES <= count; i += COH_LANES)
        relu_backward_part(dx + i, dy + i, y + i, COH_LANES, adds);
    if (i < count)
        relu_backward_part(dx + i, dy + i, y + i, count - i, adds);
}

LANES_INLINE void relu_gradient_part(element *dh, const element *dy, const element *y, float *sums,
                                     int64_t count)
{
    const lanes value = relu_keep(elements_take(dy, count, 0.0f), elements_take(y, count, 0.0f));
    elements_give(dh, count, value);
    if (count == COH_LANES)
        lanes_store(sums, lanes_add(lanes_load(sums), value));
    else
        lanes_store_part(sums, count, lanes_add(lanes_load_part(sums, count, 0.0f), value));
}

void ROW(relu_gradient)(void *out, const void *gradient, const void *row, float *sums,
                        int64_t count)
{
    element *dh = out;
    const element *dy = gradient, *y = row;
    int64_t i = 0;
    for (; i + COH_LANES <= count; i += COH_LANES)
        relu_gradient_part(dh + i, dy + i, y + i, sums + i, COH_LANES);
    if (i < count)
        relu_gradient_part(dh + i, dy + i, y + i, sums + i, count - i);
}

/* ---- swiglu ---- */

LANES_INLINE void swiglu_part(element *y, const element *gate, const element *up, int64_t count)
{
    lanes x = elements_take(gate, count, 0.0f);
    const lanes other = elements_take(up, count, 0.0f);
    for (int k = 0; k < COH_VECTORS; k++)
        x.part[k] = x.part[k] * swish_of(x.part[k]).gate * other.part[k];
    elements_give(y, count, x);
}

void ROW(swiglu)(void *out, const void *gates, const void *ups, int64_t count)
{
    element *y = out;
    const element *gate = gates, *up = ups;
    int64_t i = 0;
    for (; i + COH_LANES <= count; i += COH_LANES)
        swiglu_part(y + i, gate + i, up + i, COH_LANES);
    if (i < count)
        swiglu_part(y + i, gate + i, up + i, count - i);
}

LANES_INLINE void give_gradient(void *to, int64_t i, int64_t count, lanes value, int adds)
{
    element *at = (element *)to + i;
    elements_give(at, count, adds ? lanes_add(elements_take(at, count, 0.0f), value) : value);
}

LANES_INLINE void swiglu_backward_part(const coh_swiglu_row *row, int64_t i, int64_t count)
{
    const lanes dy = elements_take((const element *)row->dy + i, count, 0.0f);
    const lanes gate = elements_take((const element *)row->gate + i, count, 0.0f);
    const lanes up = elements_take((const element *)row->up + i, count, 0.0f);
    lanes dgate, dup;
    for (int k = 0; k < COH_VECTORS; k++) {
        const swish s = swish_of(gate.part[k]);
        dgate.part[k] = dy.part[k] * up.part[k] * swish_slope(s);
        dup.part[k] = dy.part[k] * (gate.part[k] * s.gate);
    }
    if (row->dgate != NULL)
        give_gradient(row->dgate, i, count, dgate, row->dgate_adds);
    if (row->dup != NULL)
        give_gradient(row->dup, i, count, dup, row->dup_adds);
}

void ROW(swiglu_backward)(const coh_swiglu_row *row)
{
    int64_t i = 0;
    for (; i + COH_LANES <= row->count; i += COH_LANES)
        swiglu_backward_part(row, i, COH_LANES);
    if (i < row->count)
        swiglu_backward_part(row, i, row->count - i);
}
