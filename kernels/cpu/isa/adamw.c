/* AdamW for one range of elements: f32 parameters, and bf16 parameters whose master is split in
 * two. Compiled once per instruction set; all give the same bits. Next: kernels/kernels.h
 * (coh_adamw). */
#include "kernels/cpu/isa/isa.h"

#include "kernels/cpu/isa/lanes.h"

/* Sixteen elements in registers; the f32 and the split parameter differ only in how they are
 * stored. */
typedef struct adamw_part {
    lanes work, grad, m, v;
} adamw_part;

/* Values shared by all elements. */
typedef struct adamw_factors {
    lanes rate, scale, beta1, beta2, rest1, rest2, bias1, bias2, epsilon, decay;
} adamw_factors;

LANES_INLINE adamw_factors factors_of(const coh_adamw *step)
{
    return (adamw_factors){ .rate = lanes_all(step->rate),
                            .scale = lanes_all(step->scale),
                            .beta1 = lanes_all(step->beta1),
                            .beta2 = lanes_all(step->beta2),
                            .rest1 = lanes_all(1.0f - step->beta1),
                            .rest2 = lanes_all(1.0f - step->beta2),
                            .bias1 = lanes_all(step->bias1),
                            .bias2 = lanes_all(step->bias2),
                            .epsilon = lanes_all(step->epsilon),
                            .decay = lanes_all(step->decay) };
}

LANES_INLINE void update(const adamw_factors *s, adamw_part *p)
{
    const lanes g = lanes_multiply(s->scale, p->grad);
    p->m = lanes_add(lanes_multiply(s->beta1, p->m), lanes_multiply(s->rest1, g));
    p->v =
        lanes_add(lanes_multiply(s->beta2, p->v), lanes_multiply(s->rest2, lanes_multiply(g, g)));
    const lanes root = lanes_root(lanes_divide(p->v, s->bias2));
    const lanes direction = lanes_divide(lanes_divide(p->m, s->bias1), lanes_add(root, s->epsilon));
    p->work = lanes_subtract(
        p->work, lanes_multiply(s->rate, lanes_add(direction, lanes_multiply(s->decay, p->work))));
}

LANES_INLINE void update_float(const adamw_factors *s, float *work, const float *grad, float *m,
                               float *v)
{
    adamw_part p = { lanes_load(work), lanes_load(grad), lanes_load(m), lanes_load(v) };
    update(s, &p);
    lanes_store(work, p.work);
    lanes_store(m, p.m);
    lanes_store(v, p.v);
}

void ROW(adamw)(const coh_adamw *step, float *work, const float *grad, float *m, float *v,
                int64_t count)
{
    const adamw_factors factors = factors_of(step);
    int64_t i = 0;
    for (; i + COH_LANES <= count; i += COH_LANES)
        update_float(&factors, work + i, grad + i, m + i, v + i);
    if (i < count) {
        const int64_t rest = count - i;
        adamw_part p = { lanes_load_part(work + i, rest, 0.0f),
                         lanes_load_part(grad + i, rest, 0.0f), lanes_load_part(m + i, rest, 0.0f),
                         lanes_load_part(v + i, rest, 0.0f) };
        update(&factors, &p);
        lanes_store_part(work + i, rest, p.work);
        lanes_store_part(m + i, rest, p.m);
        lanes_store_part(v + i, rest, p.v);
    }
}

/* Updates a split parameter. Its gradient is bf16 or, with `grad_is_f32`, f32. The flag is a
 * constant in both callers, so that the compiler removes the branch. */
LANES_INLINE void update_split(const adamw_factors *s, uint16_t *work, uint16_t *low,
                               const void *grad, int grad_is_f32, float *m, float *v)
{
    adamw_part p = { lanes_join(work, low), grad_is_f32 ? lanes_load(grad) : lanes_widen(grad),
                     lanes_load(m), lanes_load(v) };
    update(s, &p);
    lanes_split(work, low, p.work);
    lanes_store(m, p.m);
    lanes_store(v, p.v);
}

LANES_INLINE void split_row(const coh_adamw *step, uint16_t *work, uint16_t *low, const void *grad,
                            int grad_is_f32, float *m, float *v, int64_t count)
{
    const adamw_factors factors = factors_of(step);
    const int64_t grad_bytes = grad_is_f32 ? sizeof(float) : sizeof(uint16_t);
    int64_t i = 0;
    for (; i + COH_LANES <= count; i += COH_LANES)
        update_split(&factors, work + i, low + i, (const char *)grad + i * grad_bytes, grad_is_f32,
                     m + i, v + i);
    if (i < count) {
        const size_t half = (size_t)(count - i) * sizeof(uint16_t), whole = 2 * half;
        uint16_t halves[2][COH_LANES] = { 0 };
        float wholes[3][COH_LANES] = { 0 };
        memcpy(halves[0], work + i, half);
        memcpy(halves[1], low + i, half);
        memcpy(wholes[0], m + i, whole);
        memcpy(wholes[1], v + i, whole);
        memcpy(wholes[2], (const char *)grad + i * grad_bytes, grad_is_f32 ? whole : half);
        update_split(&factors, halves[0], halves[1], wholes[2], grad_is_f32, wholes[0], wholes[1]);
        memcpy(work + i, halves[0], half);
        memcpy(low + i, halves[1], half);
        memcpy(m + i, wholes[0], whole);
        memcpy(v + i, wholes[1], whole);
    }
}

void ROW(adamw_split)(const coh_adamw *step, uint16_t *work, uint16_t *low, const uint16_t *grad,
                      float *m, float *v, int64_t count)
{
    split_row(step, work, low, grad, 0, m, v, count);
}

void ROW(adamw_wide)(const coh_adamw *step, uint16_t *work, uint16_t *low, const float *grad,
                     float *m, float *v, int64_t count)
{
    split_row(step, work, low, grad, 1, m, v, count);
}

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
