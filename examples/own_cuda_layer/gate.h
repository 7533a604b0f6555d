/* gate.h - the existing layer, for the CPU and for a GPU: y = x * sigmoid(gate[c] * x + shift[c]),
 * for rows of `width` numbers. Backward overwrites dx, dgate and dshift. */
#ifndef GATE_H
#define GATE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

void gate_forward(float *y, const float *x, const float *gate, const float *shift, int64_t rows,
                  int64_t width);
void gate_backward(float *dx, float *dgate, float *dshift, const float *dy, const float *x,
                   const float *gate, const float *shift, int64_t rows, int64_t width);

/* The same, enqueued on a stream (cudaStream_t). Return NULL, or CUDA's text of a failure. */
const char *gate_forward_cuda(float *y, const float *x, const float *gate, const float *shift,
                              int64_t rows, int64_t width, void *stream);
const char *gate_backward_cuda(float *dx, float *dgate, float *dshift, const float *dy,
                               const float *x, const float *gate, const float *shift, int64_t rows,
                               int64_t width, void *stream);
/* Loads the kernels, which the first launch would do otherwise. */
const char *gate_load_cuda(void);

#ifdef __cplusplus
}
#endif
#endif
