/* rope.cu - rotates pairs of channels by their position (coh_rope). Next: rope.c launches it.
 *
 * Memory-bound. Angles are floats as on the host; their sine and cosine are computed in double by
 * the host's series (kernels/cpu/isa/turns.c explains them), because sinf of large angles would
 * need local memory. A thread computes those of W channels of one token once, for all heads and
 * sequences in its part of the grid. */
#include "kernels/cuda/arguments.h"
#include "kernels/cuda/pack.cuh"

#define QUARTER_HIGH 0x1.921fb544p+0
#define QUARTER_LOW  0x1.0b4611a626331p-34
#define PER_QUARTER  0x1.45f306dc9c883p-1

COH_DEVICE double sine_within(double r, double square)
{
    double sum = 1.0 / 6227020800.0;
    sum = sum * square - 1.0 / 39916800.0;
    sum = sum * square + 1.0 / 362880.0;
    sum = sum * square - 1.0 / 5040.0;
    sum = sum * square + 1.0 / 120.0;
    sum = sum * square - 1.0 / 6.0;
    return r + r * square * sum;
}

COH_DEVICE double cosine_within(double square)
{
    double sum = -1.0 / 87178291200.0;
    sum = sum * square + 1.0 / 479001600.0;
    sum = sum * square - 1.0 / 3628800.0;
    sum = sum * square + 1.0 / 40320.0;
    sum = sum * square - 1.0 / 720.0;
    sum = sum * square + 1.0 / 24.0;
    return 1.0 - square / 2.0 + square * square * sum;
}

typedef struct turn {
    float cosine, sine;
} turn;

COH_DEVICE turn turn_of(float position, float frequency)
{
    const double angle = (double)(position * frequency), n = rint(angle * PER_QUARTER);
    const double r = (angle - n * QUARTER_HIGH) - n * QUARTER_LOW, square = r * r;
    const double sine = sine_within(r, square), cosine = cosine_within(square);
    const int quarter = (int)((int64_t)n & 3);
    const float s = (float)(quarter & 1 ? cosine : sine);
    const float c = (float)(quarter & 1 ? sine : cosine);
    return { (quarter + 1) & 2 ? -c : c, quarter & 2 ? -s : s };
}

/* Reads both halves before it writes either, because y may be x. */
template <typename T, int W>
COH_DEVICE void turn_head(const coh_cuda_rope_arguments &a, const T *x, T *y,
                          const coh_floats<W> &cosine, const coh_floats<W> &sine)
{
    const coh_floats<W> first = coh_take<T, W>(x);
    const coh_floats<W> second = coh_take<T, W>(x + a.D / 2);
    coh_floats<W> low, high;
#pragma unroll
    for (int i = 0; i < W; i++) {
        low.x[i] = first.x[i] * cosine.x[i] - second.x[i] * sine.x[i];
        high.x[i] = second.x[i] * cosine.x[i] + first.x[i] * sine.x[i];
    }
    coh_give<T, W>(y, low, a.adds);
    coh_give<T, W>(y + a.D / 2, high, a.adds);
}

template <typename T, int W> COH_DEVICE void turn_tokens(const coh_cuda_rope_arguments &a)
{
    const int64_t parts = a.D / 2 / W, begin = a.position != nullptr ? *a.position : 0;
    COH_EACH(unit, 0, a.T * parts, 1)
    {
        const int64_t t = unit / parts, c = unit % parts * W;
        coh_floats<W> cosine, sine;
#pragma unroll
        for (int i = 0; i < W; i++) {
            const turn one = turn_of((float)(begin + t), a.frequencies[c + i]);
            cosine.x[i] = one.cosine * a.magnitude;
            sine.x[i] = one.sine * (a.turns_back ? -a.magnitude : a.magnitude);
        }
        for (int64_t head = blockIdx.y; head < a.B * a.H; head += gridDim.y) {
            const int64_t row = head / a.H * a.T + t, at = head % a.H * a.D + c;
            turn_head<T, W>(a, (const T *)a.x + row * a.x_stride + at,
                            (T *)a.y + row * a.y_stride + at, cosine, sine);
        }
    }
}

template <typename T> COH_DEVICE void rope(const coh_cuda_rope_arguments &a)
{
    if (a.packed)
        turn_tokens<T, coh_pack<T>>(a);
    else
        turn_tokens<T, 1>(a);
}
COH_KERNELS(rope, coh_cuda_rope_arguments, 256, 3)
