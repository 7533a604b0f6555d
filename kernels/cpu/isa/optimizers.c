/* The steps of the optimizers whose states are f32, for one range of elements. Compiled once per
 * instruction set; all give the same bits. Next: update.h for the walk, kernels/optimizers.c for
 * the tables. */
#include "kernels/cpu/isa/isa.h"

#include "kernels/cpu/isa/update.h"

void ROW(adamw)(const coh_update_call *call)
{
    const adamw_factors factors = adamw_factors_of(call);
    update_walk(call, 2, &factors, adamw_step);
}

/* ---- lion: Chen, Liang, Huang, Real, Wang et al. 2023 ("Symbolic discovery of optimization
 * algorithms"), program 1 ---- */

typedef struct lion_factors {
    lanes rate, scale, beta1, beta2, rest1, rest2, decay;
} lion_factors;

/* 1, -1, or x itself if it is zero or NaN. */
LANES_INLINE lanes sign_of(lanes x)
{
    const vector one = vector_all(1.0f);
    for (int k = 0; k < COH_VECTORS; k++) {
        const vector a = x.part[k];
        x.part[k] = vector_select((vector_bits)(a > 0.0f), one,
                                  vector_select((vector_bits)(a < 0.0f), -one, a));
    }
    return x;
}

LANES_INLINE void lion_step(const void *factors, update_part *p)
{
    const lion_factors *s = factors;
    const lanes g = lanes_multiply(s->scale, p->grad);
    const lanes c = lanes_add(lanes_multiply(s->beta1, p->first), lanes_multiply(s->rest1, g));
    p->first = lanes_add(lanes_multiply(s->beta2, p->first), lanes_multiply(s->rest2, g));
    p->work = lanes_subtract(
        p->work, lanes_multiply(s->rate, lanes_add(sign_of(c), lanes_multiply(s->decay, p->work))));
}

void ROW(lion)(const coh_update_call *call)
{
    const float beta1 = call->hyperparameters[0], beta2 = call->hyperparameters[1];
    const lion_factors factors = { .rate = lanes_all(call->rate),
                                   .scale = lanes_all(call->scale),
                                   .beta1 = lanes_all(beta1),
                                   .beta2 = lanes_all(beta2),
                                   .rest1 = lanes_all(1.0f - beta1),
                                   .rest2 = lanes_all(1.0f - beta2),
                                   .decay = lanes_all(call->decay) };
    update_walk(call, 1, &factors, lion_step);
}

/* ---- sgd: as torch.optim.SGD of PyTorch with dampening 0, where the decay is part of the
 * gradient. Nesterov's form is after Sutskever, Martens, Dahl and Hinton 2013 ---- */

typedef struct sgd_factors {
    lanes rate, scale, momentum, decay;
} sgd_factors;

/* Adds the gradient to the momentum, and returns the gradient with the decay. */
LANES_INLINE lanes sgd_gather(const sgd_factors *s, update_part *p)
{
    const lanes g = lanes_add(lanes_multiply(s->scale, p->grad), lanes_multiply(s->decay, p->work));
    p->first = lanes_add(lanes_multiply(s->momentum, p->first), g);
    return g;
}

LANES_INLINE void sgd_step(const void *factors, update_part *p)
{
    const sgd_factors *s = factors;
    sgd_gather(s, p);
    p->work = lanes_subtract(p->work, lanes_multiply(s->rate, p->first));
}

LANES_INLINE void nesterov_step(const void *factors, update_part *p)
{
    const sgd_factors *s = factors;
    const lanes g = sgd_gather(s, p);
    const lanes direction = lanes_add(g, lanes_multiply(s->momentum, p->first));
    p->work = lanes_subtract(p->work, lanes_multiply(s->rate, direction));
}

void ROW(sgd)(const coh_update_call *call)
{
    const sgd_factors factors = { .rate = lanes_all(call->rate),
                                  .scale = lanes_all(call->scale),
                                  .momentum = lanes_all(call->hyperparameters[0]),
                                  .decay = lanes_all(call->decay) };
    if (call->hyperparameters[1] >= 0.5f)
        update_walk(call, 1, &factors, nesterov_step);
    else
        update_walk(call, 1, &factors, sgd_step);
}
