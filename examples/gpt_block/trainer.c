/* trainer.c - the existing code: buffers, forward, backward and update of a small GPT. */
#include "trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "layers.h"

/* ---- buffers ---- */

static long parameter_count(int parameter)
{
    static const long of_block[BLOCK] = { C, C, 3 * C * C, 3 * C, C * C,     C,
                                          C, C, 4 * C * C, 4 * C, 4 * C * C, C };
    if (parameter < BLOCKS)
        return parameter == WTE ? V * C : T * C;
    return parameter < PARAMETERS - 2 ? of_block[(parameter - BLOCKS) % BLOCK] : C;
}

/* Sets the buffers of one block from `at`, or only counts them (NULL). Returns their numbers. */
static long place(activations *a, float *at)
{
    enum { ROWS = B * T };
    struct {
        float **buffer;
        long count;
    } of[] = { { &a->ln1, ROWS * C },      { &a->mean1, ROWS },         { &a->rstd1, ROWS },
               { &a->qkv, ROWS * 3 * C },  { &a->att, B * NH * T * T }, { &a->atty, ROWS * C },
               { &a->proj, ROWS * C },     { &a->res2, ROWS * C },      { &a->ln2, ROWS * C },
               { &a->mean2, ROWS },        { &a->rstd2, ROWS },         { &a->fc, ROWS * 4 * C },
               { &a->gelu, ROWS * 4 * C }, { &a->fc2, ROWS * C },       { &a->res3, ROWS * C } };
    long count = 0;
    for (unsigned i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
        *of[i].buffer = at ? at + count : NULL;
        count += of[i].count;
    }
    return count;
}

/* Numbers that look random, in -1 to 1. */
static float noise(long i)
{
    unsigned x = (unsigned)i * 2654435761u;
    x = (x ^ x >> 15) * 2246822519u;
    return (float)(int)(x ^ x >> 13) / 2147483648.0f;
}

static void initialise(trainer *t)
{
    for (int p = 0; p < PARAMETERS; p++) {
        const int of_block = p >= BLOCKS && p < PARAMETERS - 2 ? (p - BLOCKS) % BLOCK : -1;
        const int is_scale = p == PARAMETERS - 2 || of_block == LN1W || of_block == LN2W;
        const int is_zero = p == PARAMETERS - 1 || of_block == LN1B || of_block == LN2B;
        for (long i = 0; i < t->count[p]; i++)
            t->param[p][i] = is_scale ? 1 : is_zero ? 0 : 0.05f * noise(p * 65537L + i);
    }
}

static float *numbers(long count)
{
    return calloc((size_t)count, sizeof(float));
}

int trainer_create(trainer *t)
{
    const long of_block = place(&t->act[0], NULL), rows = B * T;
    *t = (trainer){ 0 };
    for (int p = 0; p < PARAMETERS; p++)
        t->all_count += t->count[p] = parameter_count(p);
    t->dacts_count = L * of_block + 2 * rows * C + rows * V;
    t->all = numbers(4 * t->all_count);
    t->encoded = numbers(L * of_block + 2 * rows * C + 2 * rows + 2 * rows * V);
    t->dacts = numbers(t->dacts_count);
    if (!t->all || !t->encoded || !t->dacts)
        return 0;
    t->all_grads = t->all + t->all_count;
    float *at = t->all;
    for (int p = 0; p < PARAMETERS; at += t->count[p++]) {
        t->param[p] = at;
        t->grad[p] = at + t->all_count;
        t->m[p] = at + 2 * t->all_count;
        t->v[p] = at + 3 * t->all_count;
    }
    t->lnf = t->encoded + rows * C;
    t->meanf = t->lnf + rows * C;
    t->rstdf = t->meanf + rows;
    t->logits = t->rstdf + rows;
    t->probs = t->logits + rows * V;
    t->dencoded = t->dacts;
    t->dlnf = t->dencoded + rows * C;
    t->dlogits = t->dlnf + rows * C;
    for (int l = 0; l < L; l++) {
        place(&t->act[l], t->probs + rows * V + l * of_block);
        place(&t->dact[l], t->dlogits + rows * V + l * of_block);
    }
    initialise(t);
    return 1;
}

void trainer_destroy(trainer *t)
{
    free(t->all);
    free(t->encoded);
    free(t->dacts);
}

/* ---- a step ---- */

void make_batch(int step, int *tokens, int *targets)
{
    for (int i = 0; i < MICRO_BATCHES * B * T; i++) { /* the next id is 7 id + 3, modulo V */
        tokens[i] = i % T ? targets[i - 1] : (step * 31 + i) % V;
        targets[i] = (7 * tokens[i] + 3) % V;
    }
}

static float forward(trainer *t, const int *tokens, const int *targets)
{
    float *x = t->encoded;
    encoder_forward(x, tokens, t->param[WTE], t->param[WPE], B, T, C);
    for (int l = 0; l < L; l++) {
        activations *a = &t->act[l];
        float **p = t->param + BLOCKS + l * BLOCK;
        layernorm_forward(a->ln1, a->mean1, a->rstd1, x, p[LN1W], p[LN1B], B, T, C);
        matmul_forward(a->qkv, a->ln1, p[QKVW], p[QKVB], B, T, C, 3 * C);
        attention_forward(a->atty, a->att, a->qkv, B, T, C, NH);
        matmul_forward(a->proj, a->atty, p[PROJW], p[PROJB], B, T, C, C);
        residual_forward(a->res2, x, a->proj, B * T * C);
        layernorm_forward(a->ln2, a->mean2, a->rstd2, a->res2, p[LN2W], p[LN2B], B, T, C);
        matmul_forward(a->fc, a->ln2, p[FCW], p[FCB], B, T, C, 4 * C);
        gelu_forward(a->gelu, a->fc, B * T * 4 * C);
        matmul_forward(a->fc2, a->gelu, p[FC2W], p[FC2B], B, T, 4 * C, C);
        residual_forward(a->res3, a->res2, a->fc2, B * T * C);
        x = a->res3;
    }
    layernorm_forward(t->lnf, t->meanf, t->rstdf, x, t->param[PARAMETERS - 2],
                      t->param[PARAMETERS - 1], B, T, C);
    matmul_forward(t->logits, t->lnf, t->param[WTE], NULL, B, T, C, V);
    return crossentropy_forward(t->probs, t->logits, targets, B, T, V);
}

static void backward(trainer *t, const int *tokens, const int *targets, float scale)
{
    float **g = t->grad;
    memset(t->dacts, 0, (size_t)t->dacts_count * sizeof(float));
    crossentropy_backward(t->dlogits, t->probs, targets, scale, B, T, V);
    matmul_backward(t->dlnf, g[WTE], NULL, t->dlogits, t->lnf, t->param[WTE], B, T, C, V);
    layernorm_backward(t->dact[L - 1].res3, g[PARAMETERS - 2], g[PARAMETERS - 1], t->dlnf,
                       t->act[L - 1].res3, t->param[PARAMETERS - 2], t->meanf, t->rstdf, B, T, C);
    for (int l = L - 1; l >= 0; l--) {
        activations *a = &t->act[l], *d = &t->dact[l];
        float **p = t->param + BLOCKS + l * BLOCK, **dp = g + BLOCKS + l * BLOCK;
        const float *x = l ? t->act[l - 1].res3 : t->encoded;
        float *dx = l ? t->dact[l - 1].res3 : t->dencoded;
        residual_backward(d->res2, d->fc2, d->res3, B * T * C);
        matmul_backward(d->gelu, dp[FC2W], dp[FC2B], d->fc2, a->gelu, p[FC2W], B, T, 4 * C, C);
        gelu_backward(d->fc, a->fc, d->gelu, B * T * 4 * C);
        matmul_backward(d->ln2, dp[FCW], dp[FCB], d->fc, a->ln2, p[FCW], B, T, C, 4 * C);
        layernorm_backward(d->res2, dp[LN2W], dp[LN2B], d->ln2, a->res2, p[LN2W], a->mean2,
                           a->rstd2, B, T, C);
        residual_backward(dx, d->proj, d->res2, B * T * C);
        matmul_backward(d->atty, dp[PROJW], dp[PROJB], d->proj, a->atty, p[PROJW], B, T, C, C);
        attention_backward(d->qkv, d->att, d->atty, a->qkv, a->att, B, T, C, NH);
        matmul_backward(d->ln1, dp[QKVW], dp[QKVB], d->qkv, a->ln1, p[QKVW], B, T, C, 3 * C);
        layernorm_backward(dx, dp[LN1W], dp[LN1B], d->ln1, x, p[LN1W], a->mean1, a->rstd1, B, T, C);
    }
    encoder_backward(g[WTE], g[WPE], t->dencoded, tokens, B, T, C);
}

double trainer_step(trainer *t, int step)
{
    int tokens[MICRO_BATCHES * B * T], targets[MICRO_BATCHES * B * T];
    const float scale = 1.0f / MICRO_BATCHES / (B * T);
    const float correction1 = (float)(1 - pow((double)beta1, step + 1));
    const float correction2 = (float)(1 - pow((double)beta2, step + 1));
    double loss = 0;
    make_batch(step, tokens, targets);
    memset(t->all_grads, 0, (size_t)t->all_count * sizeof(float));
    for (int i = 0; i < MICRO_BATCHES; i++) {
        loss += (double)(forward(t, tokens + i * B * T, targets + i * B * T) / (B * T));
        backward(t, tokens + i * B * T, targets + i * B * T, scale);
    }
    for (int p = 0; p < PARAMETERS; p++)
        adamw_update(t->param[p], t->grad[p], t->m[p], t->v[p], t->count[p], rate, beta1, beta2,
                     epsilon, decay, correction1, correction2);
    return loss / MICRO_BATCHES;
}
