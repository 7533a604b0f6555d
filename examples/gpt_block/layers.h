/* layers.h - the existing code: layers of a GPT as plain functions, and a trainer that calls them.
 *
 * Tensors are contiguous f32: (B, T, C) is B sequences of T positions with C channels. Backward
 * functions add to the gradients that they are given, except gelu_backward and
 * crossentropy_backward, which overwrite them. Nothing here knows of Cohobate. */
#ifndef LAYERS_H
#define LAYERS_H

void encoder_forward(float *out, const int *inp, const float *wte, const float *wpe, int B, int T,
                     int C);
void encoder_backward(float *dwte, float *dwpe, const float *dout, const int *inp, int B, int T,
                      int C);

void layernorm_forward(float *out, float *mean, float *rstd, const float *inp, const float *weight,
                       const float *bias, int B, int T, int C);
void layernorm_backward(float *dinp, float *dweight, float *dbias, const float *dout,
                        const float *inp, const float *weight, const float *mean, const float *rstd,
                        int B, int T, int C);

/* weight is (OC, C); bias is (OC), or NULL. */
void matmul_forward(float *out, const float *inp, const float *weight, const float *bias, int B,
                    int T, int C, int OC);
void matmul_backward(float *dinp, float *dweight, float *dbias, const float *dout, const float *inp,
                     const float *weight, int B, int T, int C, int OC);

/* inp is (B, T, 3C): query, key, value. att is (B, NH, T, T). datt is scratch of the same size. */
void attention_forward(float *out, float *att, const float *inp, int B, int T, int C, int NH);
void attention_backward(float *dinp, float *datt, const float *dout, const float *inp,
                        const float *att, int B, int T, int C, int NH);

void gelu_forward(float *out, const float *inp, int N);
void gelu_backward(float *dinp, const float *inp, const float *dout, int N);

void residual_forward(float *out, const float *inp1, const float *inp2, int N);
void residual_backward(float *dinp1, float *dinp2, const float *dout, int N);

/* Returns the sum of -log(probability of the target) over (B, T). probs is (B, T, V). */
float crossentropy_forward(float *probs, const float *logits, const int *targets, int B, int T,
                           int V);
/* The gradient of `scale` times that sum. */
void crossentropy_backward(float *dlogits, const float *probs, const int *targets, float scale,
                           int B, int T, int V);

/* correction1 and correction2 are 1 - beta1^t and 1 - beta2^t in update t, counted from 1. */
void adamw_update(float *param, const float *grad, float *m, float *v, long count, float rate,
                  float beta1, float beta2, float epsilon, float decay, float correction1,
                  float correction2);

#endif
