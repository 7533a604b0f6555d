#include "kernels/cpu/isa/isa.h"

#include <math.h>

#include "kernels/cpu/isa/lanes.h"

/* Two registers' worth of floats become doubles at a time; sixteen double lanes as for floats. */
typedef double vector_double __attribute__((vector_size(COH_VECTOR_FLOATS * 4)));
typedef float vector_half __attribute__((vector_size(COH_VECTOR_FLOATS * 2)));
#define DOUBLE_VECTORS (COH_LANES / (COH_VECTOR_FLOATS / 2))

LANES_INLINE void take_squares(vector_double *sums, const float *x)
{
    for (int k = 0; k < DOUBLE_VECTORS; k++) {
        vector_half half;
        memcpy(&half, x + k * (COH_VECTOR_FLOATS / 2), sizeof(half));
        vector_double wide = __builtin_convertvector(half, vector_double);
        sums[k] += wide * wide;
    }
}

double ROW(square_sum)(const float *x, int64_t count)
{
    vector_double sums[DOUBLE_VECTORS] = { 0 };
    int64_t i = 0;
    for (; i + COH_LANES <= count; i += COH_LANES)
        take_squares(sums, x + i);
    if (i < count) {
        float padded[COH_LANES] = { 0 };
        memcpy(padded, x + i, (size_t)(count - i) * sizeof(float));
        take_squares(sums, padded);
    }
    double folded[COH_LANES];
    memcpy(folded, sums, sizeof(folded));
    for (int half = COH_LANES / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++)
            folded[j] += folded[j + half];
    return folded[0];
}

float ROW(dot)(const float *a, const float *b, int64_t count)
{
    lanes sum = lanes_all(0.0f);
    int64_t i = 0;
    for (; i + COH_LANES <= count; i += COH_LANES)
        sum = lanes_add(sum, lanes_multiply(lanes_load(a + i), lanes_load(b + i)));
    if (i < count)
        sum = lanes_add(sum, lanes_multiply(lanes_load_part(a + i, count - i, 0.0f),
                                            lanes_load_part(b + i, count - i, 0.0f)));
    return lanes_sum(sum);
}

/* ---- layer norm ---- */

static float row_mean(const float *x, int64_t C)
{
    lanes sum = lanes_all(0.0f);
    int64_t i = 0;
    for (; i + COH_LANES <= C; i += COH_LANES)
        sum = lanes_add(sum, lanes_load(x + i));
    if (i < C)
        sum = lanes_add(sum, lanes_load_part(x + i, C - i, 0.0f));
    return lanes_sum(sum) / (float)C;
}

/* Around the mean, not E[x^2] - mean^2, which cancels. */
static float row_variance(const float *x, int64_t C, float mean)
{
    lanes sum = lanes_all(0.0f);
    const lanes means = lanes_all(mean);
    int64_t i = 0;
    for (; i + COH_LANES <= C; i += COH_LANES) {
        lanes away = lanes_subtract(lanes_load(x + i), means);
        sum = lanes_add(sum, lanes_multiply(away, away));
    }
    if (i < C) {
        lanes away = lanes_subtract(lanes_load_part(x + i, C - i, mean), means);
        sum = lanes_add(sum, lanes_multiply(away, away));
    }
    return lanes_sum(sum) / (float)C;
}

void ROW(norm)(float *y, const float *x, const float *weight, const float *bias, int64_t C,
               float epsilon, float *out_mean, float *out_rstd)
{
    float mean = row_mean(x, C);
    float rstd = 1.0f / sqrtf(row_variance(x, C, mean) + epsilon);
    for (int64_t i = 0; i < C; i++)
        y[i] = (x[i] - mean) * rstd * weight[i] + bias[i];
    *out_mean = mean;
    *out_rstd = rstd;
}

/* With n = (x - mean) rstd and g = dy weight: dx = rstd (g - mean(g) - n mean(g n)). */
typedef struct norm_sums {
    lanes g, gn;
} norm_sums;

LANES_INLINE void norm_take(norm_sums *sums, const coh_norm_row *row, int64_t i, int64_t count)
{
    lanes dy = lanes_load_part(row->dy + i, count, 0.0f);
    lanes n = lanes_multiply(
        lanes_subtract(lanes_load_part(row->x + i, count, row->mean), lanes_all(row->mean)),
        lanes_all(row->rstd));
    lanes g = lanes_multiply(dy, lanes_load_part(row->weight + i, count, 0.0f));
    sums->g = lanes_add(sums->g, g);
    sums->gn = lanes_add(sums->gn, lanes_multiply(g, n));
    lanes_store_part(
        row->dweight + i, count,
        lanes_add(lanes_load_part(row->dweight + i, count, 0.0f), lanes_multiply(dy, n)));
    lanes_store_part(row->dbias + i, count,
                     lanes_add(lanes_load_part(row->dbias + i, count, 0.0f), dy));
}

void ROW(norm_backward)(const coh_norm_row *row)
{
    const int64_t C = row->C;
    const float mean = row->mean, rstd = row->rstd;
    norm_sums sums = { lanes_all(0.0f), lanes_all(0.0f) };
    int64_t i = 0;
    for (; i + COH_LANES <= C; i += COH_LANES)
        norm_take(&sums, row, i, COH_LANES);
    if (i < C)
        norm_take(&sums, row, i, C - i);
    if (row->dx == NULL)
        return;
    const float mean_g = lanes_sum(sums.g) / (float)C, mean_gn = lanes_sum(sums.gn) / (float)C;
    const float *x = row->x, *dy = row->dy, *weight = row->weight;
    float *dx = row->dx;
    if (row->adds)
        for (i = 0; i < C; i++)
            dx[i] += rstd * (dy[i] * weight[i] - mean_g - (x[i] - mean) * rstd * mean_gn);
    else
        for (i = 0; i < C; i++)
            dx[i] = rstd * (dy[i] * weight[i] - mean_g - (x[i] - mean) * rstd * mean_gn);
}
