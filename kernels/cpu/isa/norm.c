/* Row loops of layer norm and RMS norm, forward and backward, one row at a time in sixteen lanes.
 * Compiled once per instruction set and element type. RMS norm is layer norm without mean and bias:
 * `is_rms` is a compile-time constant everywhere. Next: kernels/cpu/rows.h; kernels/cpu/norm.c runs
 * the rows. */
#include "kernels/cpu/isa/element.h"

#include <math.h>

LANES_INLINE float row_mean(const element *x, int64_t C)
{
    lanes sum = lanes_all(0.0f);
    EACH_LANES(i, n, C, sum = lanes_add(sum, elements_take(x + i, n, 0.0f)));
    return lanes_sum(sum) / (float)C;
}

/* x - mean; the lanes beyond the row are 0. */
LANES_INLINE lanes away(const element *x, int64_t count, float mean, int is_rms)
{
    return is_rms ? elements_take(x, count, 0.0f)
                  : lanes_subtract(elements_take(x, count, mean), lanes_all(mean));
}

LANES_INLINE lanes add_square(lanes sum, lanes x)
{
    return lanes_add(sum, lanes_multiply(x, x));
}

/* Sums squares around the mean, because E[x^2] - mean^2 cancels. */
LANES_INLINE float row_variance(const element *x, int64_t C, float mean, int is_rms)
{
    lanes sum = lanes_all(0.0f);
    EACH_LANES(i, n, C, sum = add_square(sum, away(x + i, n, mean, is_rms)));
    return lanes_sum(sum) / (float)C;
}

LANES_INLINE lanes normal(const element *x, int64_t count, float mean, float rstd, int is_rms)
{
    return lanes_multiply(away(x, count, mean, is_rms), lanes_all(rstd));
}

/* `offset` is of RMS norm. */
LANES_INLINE lanes weight_at(const element *weight, int64_t count, float offset, int is_rms)
{
    const lanes taken = elements_take(weight, count, 0.0f);
    return is_rms ? lanes_add(taken, lanes_all(offset)) : taken;
}

LANES_INLINE void norm_row(element *y, const element *x, const element *weight, const element *bias,
                           int64_t C, float mean, float rstd, float offset, int is_rms)
{
    EACH_LANES(i, n, C, {
        const lanes scaled = lanes_multiply(normal(x + i, n, mean, rstd, is_rms),
                                            weight_at(weight + i, n, offset, is_rms));
        elements_give(y + i, n,
                      is_rms ? scaled : lanes_add(scaled, elements_take(bias + i, n, 0.0f)));
    });
}

void ROW(norm)(void *y, const void *x, const void *weight, const void *bias, int64_t C,
               float epsilon, float *out_mean, float *out_rstd)
{
    const float mean = row_mean(x, C), rstd = 1.0f / sqrtf(row_variance(x, C, mean, 0) + epsilon);
    norm_row(y, x, weight, bias, C, mean, rstd, 0.0f, 0);
    *out_mean = mean;
    *out_rstd = rstd;
}

void ROW(rms)(void *y, const void *x, const void *weight, int64_t C, float epsilon, float offset,
              float *out_rstd)
{
    const float rstd = 1.0f / sqrtf(row_variance(x, C, 0.0f, 1) + epsilon);
    norm_row(y, x, weight, NULL, C, 0.0f, rstd, offset, 1);
    *out_rstd = rstd;
}

/* With n = (x - mean) rstd and g = dy weight: dx = rstd (g - mean(g) - n mean(g n)). RMS norm: n =
 * x rstd, and no mean(g). */
typedef struct norm_sums {
    lanes g, gn;
} norm_sums;

LANES_INLINE lanes normal_at(const coh_norm_row *row, int64_t i, int64_t count, int is_rms)
{
    return normal((const element *)row->x + i, count, row->mean, row->rstd, is_rms);
}

LANES_INLINE void take_part(norm_sums *sums, const coh_norm_row *row, int64_t i, int64_t count,
                            int is_rms)
{
    const lanes dy = elements_take((const element *)row->dy + i, count, 0.0f);
    const lanes g =
        lanes_multiply(dy, weight_at((const element *)row->weight + i, count, row->offset, is_rms));
    const lanes n = normal_at(row, i, count, is_rms);
    sums->gn = lanes_add(sums->gn, lanes_multiply(g, n));
    lanes_add_to(row->dweight + i, count, lanes_multiply(dy, n));
    if (!is_rms) {
        sums->g = lanes_add(sums->g, g);
        lanes_add_to(row->dbias + i, count, dy);
    }
}

LANES_INLINE void give_part(const coh_norm_row *row, int64_t i, int64_t count, lanes mean_g,
                            lanes mean_gn, int is_rms)
{
    const lanes g =
        lanes_multiply(elements_take((const element *)row->dy + i, count, 0.0f),
                       weight_at((const element *)row->weight + i, count, row->offset, is_rms));
    const lanes n = normal_at(row, i, count, is_rms);
    const lanes less =
        lanes_subtract(is_rms ? g : lanes_subtract(g, mean_g), lanes_multiply(n, mean_gn));
    elements_put((element *)row->dx + i, count, lanes_multiply(lanes_all(row->rstd), less),
                 row->adds);
}

LANES_INLINE void norm_back(const coh_norm_row *row, int is_rms)
{
    const int64_t C = row->C; /* which no store can change */
    norm_sums sums = { lanes_all(0.0f), lanes_all(0.0f) };
    EACH_LANES(i, n, C, take_part(&sums, row, i, n, is_rms));
    if (row->dx == NULL)
        return;
    const lanes mean_g = lanes_all(is_rms ? 0.0f : lanes_sum(sums.g) / (float)C);
    const lanes mean_gn = lanes_all(lanes_sum(sums.gn) / (float)C);
    EACH_LANES(i, n, C, give_part(row, i, n, mean_g, mean_gn, is_rms));
}

void ROW(norm_backward)(const coh_norm_row *row)
{
    norm_back(row, 0);
}

void ROW(rms_backward)(const coh_norm_row *row)
{
    norm_back(row, 1);
}
