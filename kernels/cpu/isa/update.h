/* update.h - an optimizer's walk over its elements, sixteen at a time: loads master, gradient and
 * up to two f32 states, calls the optimizer's step on them, and stores the results; and AdamW's
 * step.
 *
 *    work   f32; or bf16 and its lower half (kernels.h, coh_kernel_join)
 *    grad   f32; or bf16 if work is
 *
 * So an optimizer with f32 states is one function over registers. Next: optimizers.c has all of
 * them.
 *
 * Included only by the files that are compiled once per instruction set. */
#ifndef COH_KERNELS_CPU_ISA_UPDATE_H
#define COH_KERNELS_CPU_ISA_UPDATE_H

#include "cohobate/optimizer.h"
#include "kernels/cpu/isa/lanes.h"

typedef struct update_part {
    lanes work, grad;    /* f32: the joined master, the widened gradient */
    lanes first, second; /* states */
} update_part;

/* Updates work and states of one part. `factors` has the values that all elements share. */
typedef void update_step(const void *factors, update_part *part);

/* How elements are stored. Its fields are constants where the walk is called, so that the compiler
 * removes the branches. */
typedef struct update_form {
    int is_split, grad_is_f32;
    int states; /* 1 or 2 */
} update_form;

LANES_INLINE lanes update_load_work(const coh_update_call *call, int is_split, int64_t at)
{
    return is_split ? lanes_join((const uint16_t *)call->work + at, call->low + at)
                    : lanes_load((const float *)call->work + at);
}

LANES_INLINE void update_store_work(const coh_update_call *call, int is_split, int64_t at, lanes a)
{
    if (is_split)
        lanes_split((uint16_t *)call->work + at, call->low + at, a);
    else
        lanes_store((float *)call->work + at, a);
}

LANES_INLINE lanes update_load_grad(const coh_update_call *call, int grad_is_f32, int64_t at)
{
    return grad_is_f32 ? lanes_load((const float *)call->grad + at)
                       : lanes_widen((const uint16_t *)call->grad + at);
}

LANES_INLINE void update_sixteen(const coh_update_call *call, update_form form, int64_t at,
                                 const void *factors, update_step *step)
{
    float *first = (float *)call->states[0] + at;
    float *second = form.states == 2 ? (float *)call->states[1] + at : NULL;
    update_part part = { .work = update_load_work(call, form.is_split, at),
                         .grad = update_load_grad(call, form.grad_is_f32, at),
                         .first = lanes_load(first) };
    if (form.states == 2)
        part.second = lanes_load(second);
    step(factors, &part);
    update_store_work(call, form.is_split, at, part.work);
    lanes_store(first, part.first);
    if (form.states == 2)
        lanes_store(second, part.second);
}

/* Copies the last `rest` < 16 elements from `at` on into sixteen, followed by zeros. */
typedef struct update_rest {
    float work[COH_LANES], grad[COH_LANES], states[2][COH_LANES];
    uint16_t low[COH_LANES];
} update_rest;

LANES_INLINE coh_update_call update_take_rest(const coh_update_call *call, update_form form,
                                              int64_t at, int64_t rest, update_rest *to)
{
    const size_t count = (size_t)rest, half = 2 * count, whole = 4 * count;
    coh_update_call part = { .work = to->work, .low = to->low, .grad = to->grad };
    memset(to, 0, sizeof(*to));
    if (form.is_split) {
        memcpy(to->work, (const uint16_t *)call->work + at, half);
        memcpy(to->low, call->low + at, half);
    } else {
        memcpy(to->work, (const float *)call->work + at, whole);
    }
    if (form.grad_is_f32)
        memcpy(to->grad, (const float *)call->grad + at, whole);
    else
        memcpy(to->grad, (const uint16_t *)call->grad + at, half);
    for (int k = 0; k < form.states; k++) {
        memcpy(to->states[k], (const float *)call->states[k] + at, whole);
        part.states[k] = to->states[k];
    }
    return part;
}

LANES_INLINE void update_give_rest(const coh_update_call *call, update_form form, int64_t at,
                                   int64_t rest, const update_rest *from)
{
    const size_t count = (size_t)rest, half = 2 * count, whole = 4 * count;
    if (form.is_split) {
        memcpy((uint16_t *)call->work + at, from->work, half);
        memcpy(call->low + at, from->low, half);
    } else {
        memcpy((float *)call->work + at, from->work, whole);
    }
    for (int k = 0; k < form.states; k++)
        memcpy((float *)call->states[k] + at, from->states[k], whole);
}

LANES_INLINE void update_all(const coh_update_call *to, update_form form, const void *factors,
                             update_step *step)
{
    /* A copy, which no store through a pointer can change. */
    const coh_update_call call = *to;
    int64_t at = 0;
    for (; at + COH_LANES <= call.count; at += COH_LANES)
        update_sixteen(&call, form, at, factors, step);
    if (at < call.count) {
        update_rest rest;
        const coh_update_call part = update_take_rest(&call, form, at, call.count - at, &rest);
        update_sixteen(&part, form, 0, factors, step);
        update_give_rest(&call, form, at, call.count - at, &rest);
    }
}

/* Runs a step on all elements of a call, whatever their form. */
LANES_INLINE void update_walk(const coh_update_call *call, int states, const void *factors,
                              update_step *step)
{
    if (call->work_dtype == COH_DTYPE_F32)
        update_all(call, (update_form){ 0, 1, states }, factors, step);
    else if (call->grad_dtype == COH_DTYPE_F32)
        update_all(call, (update_form){ 1, 1, states }, factors, step);
    else
        update_all(call, (update_form){ 1, 0, states }, factors, step);
}

/* ---- AdamW (Loshchilov and Hutter 2019, alg. 2, decoupled decay): of adamw, and of adamw8, whose
 * moments are f32 during the step ----
 *
 *   g = scale * grad;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
 *   work -= rate * (m / bias1 / (sqrt(v / bias2) + epsilon) + decay * work)
 * bias1 = 1 - beta1^t, bias2 = 1 - beta2^t at the t-th update, t from 1. */

/* Values shared by all elements. */
typedef struct adamw_factors {
    lanes rate, scale, beta1, beta2, rest1, rest2, bias1, bias2, epsilon, decay;
} adamw_factors;

LANES_INLINE adamw_factors adamw_factors_of(const coh_update_call *call)
{
    const float beta1 = call->hyperparameters[0], beta2 = call->hyperparameters[1];
    return (adamw_factors){ .rate = lanes_all(call->rate),
                            .scale = lanes_all(call->scale),
                            .beta1 = lanes_all(beta1),
                            .beta2 = lanes_all(beta2),
                            .rest1 = lanes_all(1.0f - beta1),
                            .rest2 = lanes_all(1.0f - beta2),
                            .bias1 = lanes_all(call->scalars[0]),
                            .bias2 = lanes_all(call->scalars[1]),
                            .epsilon = lanes_all(call->hyperparameters[2]),
                            .decay = lanes_all(call->decay) };
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
