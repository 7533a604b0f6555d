#include "tests/reference/reference.h"

#include <math.h>

#include "cohobate/kinds.h"

static const double turn = 6.283185307179586;

/* The pair of channels that turns `turns` times over the original positions: YaRN's ramp goes from
 * that of high_frequency, rounded down, to that of low_frequency, rounded up. */
static double ramp_at(const coh_rope_attributes *a, int64_t c, int64_t D)
{
    double end[2];
    for (int i = 0; i < 2; i++) {
        const double turns = i == 0 ? a->high_frequency : a->low_frequency;
        const double rate = turns * turn / (double)a->original_positions; /* theta^(-2c / D) */
        end[i] = -log(rate) / log(a->theta) * (double)D / 2.0;
    }
    end[0] = floor(end[0]) > 0.0 ? floor(end[0]) : 0.0;
    end[1] = ceil(end[1]) < (double)(D - 1) ? ceil(end[1]) : (double)(D - 1);
    const double width = end[1] == end[0] ? 0.001 : end[1] - end[0];
    const double part = ((double)c - end[0]) / width;
    return part < 0.0 ? 0.0 : part > 1.0 ? 1.0 : part;
}

/* Follows the formats' own description, by wavelengths: in positions per turn. */
static double scaled(const coh_rope_attributes *a, double frequency, int64_t c, int64_t D)
{
    if (a->scaling == COH_ROPE_YARN) {
        const double part = ramp_at(a, c, D);
        return frequency / a->factor * part + frequency * (1.0 - part);
    }
    const double wave = turn / frequency, original = (double)a->original_positions;
    if (a->scaling == COH_ROPE_LINEAR)
        return frequency / a->factor;
    if (a->scaling == COH_ROPE_UNSCALED || wave < original / a->high_frequency)
        return frequency;
    if (wave > original / a->low_frequency)
        return frequency / a->factor;
    const double smooth =
        (original / wave - a->low_frequency) / (a->high_frequency - a->low_frequency);
    return (1.0 - smooth) * frequency / a->factor + smooth * frequency;
}

/* A pair's frequency and float's relative error: the exponent's rounding counts ln(theta) times,
 * that of the power and the quotient once, times the effect of the scaling. */
typedef struct pair {
    double frequency, error;
} pair;

static pair pair_at(const coh_rope_attributes *a, int64_t c, int64_t D)
{
    const double plain = pow(a->theta, -2.0 * (double)c / (double)D), step = 1e-6;
    const double value = scaled(a, plain, c, D);
    const double slope =
        (scaled(a, plain * (1.0 + step), c, D) - scaled(a, plain * (1.0 - step), c, D)) /
        (2.0 * step * value);
    return (pair){ value, COH_EPS * ((fabs(log(a->theta)) + 3.0) * fabs(slope) + 2.0) };
}

/* Rotates one row of heads by `place` times their frequencies; backward rotates back. */
static void turn_row(const coh_rope_attributes *a, int64_t D, double place, double sign,
                     const double *x, double *value, double *bound)
{
    const double size = a->scaling == COH_ROPE_YARN ? a->magnitude : 1.0;
    for (int64_t h = 0; h < a->heads; h++)
        for (int64_t c = 0; c < D / 2; c++) {
            const pair one = pair_at(a, c, D);
            const int64_t first = h * D + c, second = first + D / 2;
            const double angle = place * one.frequency;
            const double cosine = size * cos(angle), sine = size * sign * sin(angle);
            /* the angle is rounded once more; cosine, sine, their sizes, two products, a sum */
            const double error = size * (fabs(x[first]) + fabs(x[second])) *
                                 (fabs(angle) * (one.error + COH_EPS) + 5.0 * COH_EPS);
            value[first] = x[first] * cosine - x[second] * sine;
            value[second] = x[second] * cosine + x[first] * sine;
            bound[first] = bound[second] = error;
        }
}

void coh_reference_rope(coh_reference *r, int backward)
{
    const coh_rope_attributes *a = r->of->attributes;
    const int64_t *dim = r->of->call.input[0].shape.dim;
    const double *x = backward ? r->output_grad : r->input[0];
    const coh_array *to = backward ? &r->input_grad[0] : &r->output;
    for (int64_t n = 0; n < dim[0] * dim[1]; n++)
        turn_row(a, dim[2] / a->heads, (double)(n % dim[1]), backward ? -1.0 : 1.0, x + n * dim[2],
                 to->value + n * dim[2], to->bound + n * dim[2]);
}
