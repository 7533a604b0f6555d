/* trainer.h - the existing code: a GPT of these layers, and its training loop. */
#ifndef TRAINER_H
#define TRAINER_H

enum {
    B = 2,             /* sequences of a micro-batch */
    T = 16,            /* positions */
    C = 64,            /* channels */
    NH = 4,            /* heads */
    L = 4,             /* blocks */
    V = 61,            /* vocabulary */
    MICRO_BATCHES = 2, /* of a step */
    STEPS = 50
};

/* Parameters in the order of `trainer.param`: wte, wpe, then for each block those of BLOCK, then
 * the last norm's weight and bias. The output layer's weight is wte. */
enum { WTE, WPE, BLOCKS };
enum { LN1W, LN1B, QKVW, QKVB, PROJW, PROJB, LN2W, LN2B, FCW, FCB, FC2W, FC2B, BLOCK };
enum { PARAMETERS = BLOCKS + L * BLOCK + 2 };

/* The numbers of AdamW. */
static const float rate = 1e-3f, beta1 = 0.9f, beta2 = 0.95f, epsilon = 1e-8f, decay = 0.1f;

typedef struct activations {
    float *ln1, *mean1, *rstd1, *qkv, *att, *atty, *proj, *res2;
    float *ln2, *mean2, *rstd2, *fc, *gelu, *fc2, *res3;
} activations;

typedef struct trainer {
    long count[PARAMETERS]; /* numbers of each parameter */
    float *param[PARAMETERS], *grad[PARAMETERS], *m[PARAMETERS], *v[PARAMETERS];
    float *all, *all_grads; /* the first two rows as one array each */
    long all_count;
    activations act[L], dact[L];
    float *encoded, *lnf, *meanf, *rstdf, *logits, *probs;
    float *dencoded, *dlnf, *dlogits;
    float *dacts; /* gradients of activations as one array */
    long dacts_count;
} trainer;

/* Fills a new trainer with random weights. Returns 0 if there is no memory. */
int trainer_create(trainer *t);
void trainer_destroy(trainer *t);
/* Makes the tokens and targets of a step, [MICRO_BATCHES][B][T]. */
void make_batch(int step, int *tokens, int *targets);
/* One step of all micro-batches; returns the mean loss. */
double trainer_step(trainer *t, int step);

#endif
