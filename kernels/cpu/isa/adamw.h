/* adamw.h - AdamW's step of sixteen elements (kernels/kernels.h, coh_adamw): for f32 moments and
 * for those of adamw8, which are f32 during the step.
 *
 * Included only by the files that are compiled once per instruction set. */
#ifndef COH_KERNELS_CPU_ISA_ADAMW_H
#define COH_KERNELS_CPU_ISA_ADAMW_H

#include "kernels/cpu/isa/update.h"

/* Values shared by all elements. */
typedef struct adamw_factors {
    lanes rate, scale, beta1, beta2, rest1, rest2, bias1, bias2, epsilon, decay;
} adamw_factors;

LANES_INLINE adamw_factors adamw_factors_of(const coh_adamw *step)
{
    return (adamw_factors){ .rate = lanes_all(step->rate),
                            .scale = lanes_all(step->scale),
                            .beta1 = lanes_all(step->beta1),
                            .beta2 = lanes_all(step->beta2),
                            .rest1 = lanes_all(1.0f - step->beta1),
                            .rest2 = lanes_all(1.0f - step->beta2),
                            .bias1 = lanes_all(step->bias1),
                            .bias2 = lanes_all(step->bias2),
                            .epsilon = lanes_all(step->epsilon),
                            .decay = lanes_all(step->decay) };
}

LANES_INLINE void adamw_step(const void *factors, update_part *p)
{
    const adamw_factors *s = factors;
    const lanes g = lanes_multiply(s->scale, p->grad);
    p->first = lanes_add(lanes_multiply(s->beta1, p->first), lanes_multiply(s->rest1, g));
    p->second = lanes_add(lanes_multiply(s->beta2, p->second),
                          lanes_multiply(s->rest2, lanes_multiply(g, g)));
    const lanes root = lanes_root(lanes_divide(p->second, s->bias2));
    const lanes direction =
        lanes_divide(lanes_divide(p->first, s->bias1), lanes_add(root, s->epsilon));
    p->work = lanes_subtract(
        p->work, lanes_multiply(s->rate, lanes_add(direction, lanes_multiply(s->decay, p->work))));
}

#endif
