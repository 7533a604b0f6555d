/* Row loops of layer norm and RMS norm, forward and backward, one row at a time in sixteen lanes.
 * Compiled once per instruction set and element type. Next: kernels/cpu/rows.h; kernels/cpu/norm.c
 * runs the rows. */
#include "kernels/cpu/isa/element.h"

#include <math.h>

static float row_mean(const element *x, int64_t C)
{
    lanes sum = lanes_all(0.0f);
    int64_t i = 0;
    for (; i + COH_LANES <= C; i += COH_LANES)
        sum = lanes_add(sum, elements_load(x + i));
    if (i < C)
        sum = lanes_add(sum, elements_load_part(x + i, C - i, 0.0f));
    return lanes_sum(sum) / (float)C;
}

/* Sums squares around the mean, because E[x^2] - mean^2 cancels. */
static float row_variance(const element *x, int64_t C, float mean)
{
    lanes sum = lanes_all(0.0f);
    const lanes means = lanes_all(mean);
    int64_t i = 0;
    for (; i + COH_LANES <= C; i += COH_LANES) {
        lanes away = lanes_subtract(elements_load(x + i), means);
        sum = lanes_add(sum, lanes_multiply(away, away));
    }
    if (i < C) {
        lanes away = lanes_subtract(elements_load_part(x + i, C - i, mean), means);
        sum = lanes_add(sum, lanes_multiply(away, away));
    }
    return lanes_sum(sum) / (float)C;
}

/* (x - mean) * rstd; the lanes beyond the row are 0. */
LANES_INLINE lanes normal(const element *x, int64_t count, float mean, float rstd)
{
    return lanes_multiply(lanes_subtract(elements_take(x, count, mean), lanes_all(mean)),
                          lanes_all(rstd));
}

LANES_INLINE void norm_part(element *y, const element *x, const element *weight,
                            const element *bias, int64_t count, float mean, float rstd)
{
    lanes scaled = lanes_multiply(normal(x, count, mean, rstd), elements_take(weight, count, 0.0f));
    elements_give(y, count, lanes_add(scaled, elements_take(bias, count, 0.0f)));
}

void ROW(norm)(void *out, const void *row, const void *weights, const void *biases, int64_t C,
               float epsilon, float *out_mean, float *out_rstd)
{
    element *y = out;
    const element *x = row, *weight = weights, *bias = biases;
    const float mean = row_mean(x, C);
    const float rstd = 1.0f / sqrtf(row_variance(x, C, mean) + epsilon);
    int64_t i = 0;
    for (; i + COH_LANES <= C; i += COH_LANES)
        norm_part(y + i, x + i, weight + i, bias + i, COH_LANES, mean, rstd);
    if (i < C)
        norm_part(y + i, x + i, weight + i, bias + i, C - i, mean, rstd);
    *out_mean = mean;
    *out_rstd = rstd;
}

/* With n = (x - mean) rstd and g = dy weight: dx = rstd (g - mean(g) - n mean(g n)). */
typedef struct norm_sums {
    lanes g, gn;
} norm_sums;

LANES_INLINE void add_to(float *total, int64_t count, lanes a)
{
    if (count == COH_LANES)
        lanes_store(total, lanes_add(lanes_load(total), a));
    else
        lanes_store_part(total, count, lanes_add(lanes_load_part(total, count, 0.0f), a));
}

LANES_INLINE void take_part(norm_sums *sums, const coh_norm_row *row, int64_t i, int64_t count)
{
    const element *dy_row = row->dy, *x = row->x, *weight = row->weight;
    lanes dy = elements_take(dy_row + i, count, 0.0f);
    lanes n = normal(x + i, count, row->mean, row->rstd);
    lanes g = lanes_multiply(dy, elements_take(weight + i, count, 0.0f));
    sums->g = lanes_add(sums->g, g);
    sums->gn = lanes_add(sums->gn, lanes_multiply(g, n));
    add_to(row->dweight + i, count, lanes_multiply(dy, n));
    add_to(row->dbias + i, count, dy);
}

LANES_INLINE void give_part(const coh_norm_row *row, int64_t i, int64_t count, lanes mean_g,
                            lanes mean_gn)
{
    element *dx = (element *)row->dx + i;
    const element *dy = (const element *)row->dy + i, *x = (const element *)row->x + i;
    const element *weight = (const element *)row->weight + i;
    lanes g = lanes_multiply(elements_take(dy, count, 0.0f), elements_take(weight, count, 0.0f));
    lanes n = normal(x, count, row->mean, row->rstd);
    lanes value = lanes_multiply(lanes_all(row->rstd), lanes_subtract(lanes_subtract(g, mean_g),
                                                                      lanes_multiply(n, mean_gn)));
    elements_give(dx, count, row->adds ? lanes_add(elements_take(dx, count, 0.0f), value) : value);
}

void ROW(norm_backward)(const coh_norm_row *row)
{
    const int64_t C = row->C;
    norm_sums sums = { lanes_all(0.0f), lanes_all(0.0f) };
    int64_t i = 0;
    for (; i + COH_LANES <= C; i += COH_LANES)
        take_part(&sums, row, i, COH_LANES);
    if (i < C)
        take_part(&sums, row, i, C - i);
    if (row->dx == NULL)
        return;
    const lanes mean_g = lanes_all(lanes_sum(sums.g) / (float)C);
    const lanes mean_gn = lanes_all(lanes_sum(sums.gn) / (float)C);
    for (i = 0; i + COH_LANES <= C; i += COH_LANES)
        give_part(row, i, COH_LANES, mean_g, mean_gn);
    if (i < C)
        give_part(row, i, C - i, mean_g, mean_gn);
}

/* ---- RMS norm ---- */

static float row_square_mean(const element *x, int64_t C)
{
    lanes sum = lanes_all(0.0f);
    int64_t i = 0;
    for (; i + COH_LANES <= C; i += COH_LANES) {
        const lanes here = elements_load(x + i);
        sum = lanes_add(sum, lanes_multiply(here, here));
    }
    if (i < C) {
        const lanes here = elements_load_part(x + i, C - i, 0.0f);
        sum = lanes_add(sum, lanes_multiply(here, here));
    }
    return lanes_sum(sum) / (float)C;
}

LANES_INLINE void rms_part(element *y, const element *x, const element *weight, int64_t count,
                           lanes rstd)
{
    const lanes n = lanes_multiply(elements_take(x, count, 0.0f), rstd);
    elements_give(y, count, lanes_multiply(n, elements_take(weight, count, 0.0f)));
}

void ROW(rms)(void *out, const void *row, const void *weights, int64_t C, float epsilon,
              float *out_rstd)
{
    element *y = out;
    const element *x = row, *weight = weights;
    const float rstd = 1.0f / sqrtf(row_square_mean(x, C) + epsilon);
    const lanes factor = lanes_all(rstd);
    int64_t i = 0;
    for (; i + COH_LANES <= C; i += COH_LANES)
        rms_part(y + i, x + i, weight + i, COH_LANES, factor);
    if (i < C)
        rms_part(y + i, x + i, weight + i, C - i, factor);
    *out_rstd = rstd;
}

/* With n = x rstd and g = dy weight: dx = rstd (g - n mean(g n)). */
LANES_INLINE void rms_take_part(lanes *sum, const coh_norm_row *row, int64_t i, int64_t count)
{
    const lanes dy = elements_take((const element *)row->dy + i, count, 0.0f);
    const lanes weight = elements_take((const element *)row->weight + i, count, 0.0f);
    const lanes n = lanes_multiply(elements_take((const element *)row->x + i, count, 0.0f),
                                   lanes_all(row->rstd));
    *sum = lanes_add(*sum, lanes_multiply(lanes_multiply(dy, weight), n));
    add_to(row->dweight + i, count, lanes_multiply(dy, n));
}

LANES_INLINE void rms_give_part(const coh_norm_row *row, int64_t i, int64_t count, lanes mean_gn)
{
    element *dx = (element *)row->dx + i;
    const lanes dy = elements_take((const element *)row->dy + i, count, 0.0f);
    const lanes weight = elements_take((const element *)row->weight + i, count, 0.0f);
    const lanes rstd = lanes_all(row->rstd);
    const lanes n = lanes_multiply(elements_take((const element *)row->x + i, count, 0.0f), rstd);
    const lanes value = lanes_multiply(
        rstd, lanes_subtract(lanes_multiply(dy, weight), lanes_multiply(n, mean_gn)));
    elements_give(dx, count, row->adds ? lanes_add(elements_take(dx, count, 0.0f), value) : value);
}

void ROW(rms_backward)(const coh_norm_row *row)
{
    const int64_t C = row->C;
    lanes sum = lanes_all(0.0f);
    int64_t i = 0;
    for (; i + COH_LANES <= C; i += COH_LANES)
        rms_take_part(&sum, row, i, COH_LANES);
    if (i < C)
        rms_take_part(&sum, row, i, C - i);
    if (row->dx == NULL)
        return;
    const lanes mean_gn = lanes_all(lanes_sum(sum) / (float)C);
    for (i = 0; i + COH_LANES <= C; i += COH_LANES)
        rms_give_part(row, i, COH_LANES, mean_gn);
    if (i < C)
        rms_give_part(row, i, C - i, mean_gn);
}
