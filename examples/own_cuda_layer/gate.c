/* gate.c - the existing layer on the CPU. */
#include "gate.h"

#include <math.h>

void gate_forward(float *y, const float *x, const float *gate, const float *shift, int64_t rows,
                  int64_t width)
{
    for (int64_t i = 0; i < rows * width; i++) {
        const int64_t c = i % width;
        y[i] = x[i] / (1.0f + expf(-(gate[c] * x[i] + shift[c])));
    }
}

void gate_backward(float *dx, float *dgate, float *dshift, const float *dy, const float *x,
                   const float *gate, const float *shift, int64_t rows, int64_t width)
{
    for (int64_t c = 0; c < width; c++) {
        float gate_sum = 0, shift_sum = 0;
        for (int64_t i = c; i < rows * width; i += width) {
            const float s = 1.0f / (1.0f + expf(-(gate[c] * x[i] + shift[c])));
            const float ds = dy[i] * x[i] * s * (1.0f - s);
            dx[i] = dy[i] * s + ds * gate[c];
            gate_sum += ds * x[i];
            shift_sum += ds;
        }
        dgate[c] = gate_sum;
        dshift[c] = shift_sum;
    }
}
