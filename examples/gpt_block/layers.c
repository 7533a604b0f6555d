/* layers.c - the existing code: layers of a GPT as plain loops. */
#include "layers.h"

#include <math.h>
#include <stddef.h>

void encoder_forward(float *out, const int *inp, const float *wte, const float *wpe, int B, int T,
                     int C)
{
    for (int row = 0; row < B * T; row++)
        for (int c = 0; c < C; c++)
            out[row * C + c] = wte[inp[row] * C + c] + wpe[row % T * C + c];
}

void encoder_backward(float *dwte, float *dwpe, const float *dout, const int *inp, int B, int T,
                      int C)
{
    for (int row = 0; row < B * T; row++)
        for (int c = 0; c < C; c++) {
            dwte[inp[row] * C + c] += dout[row * C + c];
            dwpe[row % T * C + c] += dout[row * C + c];
        }
}

void layernorm_forward(float *out, float *mean, float *rstd, const float *inp, const float *weight,
                       const float *bias, int B, int T, int C)
{
    for (int row = 0; row < B * T; row++) {
        const float *x = inp + row * C;
        float sum = 0, squares = 0;
        for (int c = 0; c < C; c++)
            sum += x[c];
        mean[row] = sum / (float)C;
        for (int c = 0; c < C; c++)
            squares += (x[c] - mean[row]) * (x[c] - mean[row]);
        rstd[row] = 1.0f / sqrtf(squares / (float)C + 1e-5f);
        for (int c = 0; c < C; c++)
            out[row * C + c] = (x[c] - mean[row]) * rstd[row] * weight[c] + bias[c];
    }
}

void layernorm_backward(float *dinp, float *dweight, float *dbias, const float *dout,
                        const float *inp, const float *weight, const float *mean, const float *rstd,
                        int B, int T, int C)
{
    for (int row = 0; row < B * T; row++) {
        const float *x = inp + row * C, *dy = dout + row * C;
        float sum = 0, projected = 0;
        for (int c = 0; c < C; c++) {
            const float normal = (x[c] - mean[row]) * rstd[row];
            dweight[c] += normal * dy[c];
            dbias[c] += dy[c];
            sum += weight[c] * dy[c];
            projected += weight[c] * dy[c] * normal;
        }
        for (int c = 0; c < C; c++) {
            const float normal = (x[c] - mean[row]) * rstd[row];
            dinp[row * C + c] +=
                (weight[c] * dy[c] - sum / (float)C - normal * projected / (float)C) * rstd[row];
        }
    }
}

void matmul_forward(float *out, const float *inp, const float *weight, const float *bias, int B,
                    int T, int C, int OC)
{
    for (int row = 0; row < B * T; row++)
        for (int o = 0; o < OC; o++) {
            float sum = bias != NULL ? bias[o] : 0;
            for (int c = 0; c < C; c++)
                sum += inp[row * C + c] * weight[o * C + c];
            out[row * OC + o] = sum;
        }
}

void matmul_backward(float *dinp, float *dweight, float *dbias, const float *dout, const float *inp,
                     const float *weight, int B, int T, int C, int OC)
{
    for (int row = 0; row < B * T; row++)
        for (int o = 0; o < OC; o++) {
            const float dy = dout[row * OC + o];
            if (dbias != NULL)
                dbias[o] += dy;
            for (int c = 0; c < C; c++) {
                dinp[row * C + c] += weight[o * C + c] * dy;
                dweight[o * C + c] += inp[row * C + c] * dy;
            }
        }
}

/* Position t of one head: weights of positions 0 to t, and their mean of values. */
static void attend(float *out, float *att, const float *inp, int t, int C, int head_size)
{
    const float *query = inp + t * 3 * C;
    float most = -INFINITY, sum = 0;
    for (int s = 0; s <= t; s++) {
        const float *key = inp + s * 3 * C + C;
        att[s] = 0;
        for (int i = 0; i < head_size; i++)
            att[s] += query[i] * key[i] / sqrtf((float)head_size);
        most = att[s] > most ? att[s] : most;
    }
    for (int s = 0; s <= t; s++)
        sum += att[s] = expf(att[s] - most);
    for (int i = 0; i < head_size; i++)
        out[i] = 0;
    for (int s = 0; s <= t; s++) {
        att[s] /= sum;
        for (int i = 0; i < head_size; i++)
            out[i] += att[s] * inp[s * 3 * C + 2 * C + i];
    }
}

void attention_forward(float *out, float *att, const float *inp, int B, int T, int C, int NH)
{
    for (int b = 0; b < B; b++)
        for (int h = 0; h < NH; h++)
            for (int t = 0; t < T; t++) {
                float *weights = att + ((b * NH + h) * T + t) * T;
                for (int s = t + 1; s < T; s++)
                    weights[s] = 0;
                attend(out + (b * T + t) * C + h * (C / NH), weights,
                       inp + b * T * 3 * C + h * (C / NH), t, C, C / NH);
            }
}

/* The gradient of `attend`. */
static void attend_back(float *dinp, float *datt, const float *dout, const float *inp,
                        const float *att, int t, int C, int head_size)
{
    const float root = sqrtf((float)head_size);
    float sum = 0;
    for (int s = 0; s <= t; s++) {
        datt[s] = 0;
        for (int i = 0; i < head_size; i++) {
            datt[s] += dout[i] * inp[s * 3 * C + 2 * C + i];
            dinp[s * 3 * C + 2 * C + i] += att[s] * dout[i];
        }
        sum += datt[s] * att[s];
    }
    for (int s = 0; s <= t; s++) {
        const float dscore = att[s] * (datt[s] - sum) / root;
        for (int i = 0; i < head_size; i++) {
            dinp[t * 3 * C + i] += dscore * inp[s * 3 * C + C + i];
            dinp[s * 3 * C + C + i] += dscore * inp[t * 3 * C + i];
        }
    }
}

void attention_backward(float *dinp, float *datt, const float *dout, const float *inp,
                        const float *att, int B, int T, int C, int NH)
{
    for (int b = 0; b < B; b++)
        for (int h = 0; h < NH; h++)
            for (int t = 0; t < T; t++) {
                const int row = ((b * NH + h) * T + t) * T, at = b * T * 3 * C + h * (C / NH);
                attend_back(dinp + at, datt + row, dout + (b * T + t) * C + h * (C / NH), inp + at,
                            att + row, t, C, C / NH);
            }
}

static const float gelu_scale = 0.7978845608f; /* sqrt(2 / pi) */

void gelu_forward(float *out, const float *inp, int N)
{
    for (int i = 0; i < N; i++)
        out[i] = 0.5f * inp[i] *
                 (1.0f + tanhf(gelu_scale * (inp[i] + 0.044715f * inp[i] * inp[i] * inp[i])));
}

void gelu_backward(float *dinp, const float *inp, const float *dout, int N)
{
    for (int i = 0; i < N; i++) {
        const float x = inp[i], inner = gelu_scale * (x + 0.044715f * x * x * x);
        const float bent = tanhf(inner), slope = 1.0f - bent * bent;
        dinp[i] = dout[i] * (0.5f * (1.0f + bent) +
                             0.5f * x * slope * gelu_scale * (1.0f + 3.0f * 0.044715f * x * x));
    }
}

void residual_forward(float *out, const float *inp1, const float *inp2, int N)
{
    for (int i = 0; i < N; i++)
        out[i] = inp1[i] + inp2[i];
}

void residual_backward(float *dinp1, float *dinp2, const float *dout, int N)
{
    for (int i = 0; i < N; i++) {
        dinp1[i] += dout[i];
        dinp2[i] += dout[i];
    }
}

float crossentropy_forward(float *probs, const float *logits, const int *targets, int B, int T,
                           int V)
{
    float loss = 0;
    for (int row = 0; row < B * T; row++) {
        float most = -INFINITY, sum = 0;
        for (int v = 0; v < V; v++)
            most = logits[row * V + v] > most ? logits[row * V + v] : most;
        for (int v = 0; v < V; v++)
            sum += probs[row * V + v] = expf(logits[row * V + v] - most);
        for (int v = 0; v < V; v++)
            probs[row * V + v] /= sum;
        loss -= logf(probs[row * V + targets[row]]);
    }
    return loss;
}

void crossentropy_backward(float *dlogits, const float *probs, const int *targets, float scale,
                           int B, int T, int V)
{
    for (int row = 0; row < B * T; row++)
        for (int v = 0; v < V; v++)
            dlogits[row * V + v] = scale * (probs[row * V + v] - (v == targets[row] ? 1.0f : 0));
}

void adamw_update(float *param, const float *grad, float *m, float *v, long count, float rate,
                  float beta1, float beta2, float epsilon, float decay, float correction1,
                  float correction2)
{
    for (long i = 0; i < count; i++) {
        m[i] = beta1 * m[i] + (1.0f - beta1) * grad[i];
        v[i] = beta2 * v[i] + (1.0f - beta2) * grad[i] * grad[i];
        param[i] -=
            rate * (m[i] / correction1 / (sqrtf(v[i] / correction2) + epsilon) + decay * param[i]);
    }
}
