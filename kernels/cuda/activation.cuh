/* activation.cuh - gelu, swish and their slopes, the soft cap: the formulas of
 * kernels/cpu/isa/gelu.h and swiglu.h, which explain the bounds and signs. Denominators are
 * below 1 + e^87, about 6e37, and so below 2^126. */
#ifndef COH_KERNELS_CUDA_ACTIVATION_CUH
#define COH_KERNELS_CUDA_ACTIVATION_CUH

#include "kernels/cuda/pack.cuh"

#define GELU_ROOT   0.7978845608028654f /* sqrt(2 / pi) */
#define GELU_CUBE   0.044715f
#define GELU_HOLD   9.98f
#define GELU_LINE   (-2.0f * GELU_ROOT * 1.4426950408889634f) /* of log2 of e^-2u */
#define SWIGLU_HOLD 87.0f

/* e^-2u, u = root (x + cube x^3) */
COH_DEVICE float coh_gelu_decay(float held)
{
    return coh_exp2(held * (GELU_LINE + GELU_LINE * GELU_CUBE * (held * held)));
}

COH_DEVICE float coh_gelu(float x)
{
    return x * coh_reciprocal(1.0f + coh_gelu_decay(coh_hold(x, GELU_HOLD)));
}

COH_DEVICE float coh_gelu_slope(float x)
{
    const float held = coh_hold(x, GELU_HOLD), decay = coh_gelu_decay(held);
    const float s = coh_reciprocal(1.0f + decay);
    const float twice_slope = 2.0f * GELU_ROOT + 6.0f * GELU_ROOT * GELU_CUBE * (held * held);
    return s + held * (s * (decay * s)) * twice_slope;
}

typedef struct coh_swish {
    float gate, slope; /* 1 / (1 + e^-x); slope of x gate */
} coh_swish;

COH_DEVICE coh_swish coh_swish_of(float x)
{
    const float held = coh_hold(x, SWIGLU_HOLD), decay = coh_exp(-held);
    const float gate = coh_reciprocal(1.0f + decay);
    return { gate, gate + held * (gate * (decay * gate)) };
}

/* gelu x, as x gate. */
COH_DEVICE coh_swish coh_gelu_gate_of(float x)
{
    const float decay = coh_gelu_decay(coh_hold(x, GELU_HOLD));
    return { coh_reciprocal(1.0f + decay), coh_gelu_slope(x) };
}

/* cap tanh(x / cap), with tanh u = 1 - 2 / (1 + e^2u), to 2^-21 cap; x itself if cap is 0. */
COH_DEVICE float coh_soft_cap(float x, float cap)
{
    return cap == 0.0f ? x
                       : cap - coh_quotient(2.0f * cap,
                                            1.0f + coh_exp(coh_hold(2.0f / cap * x, SWIGLU_HOLD)));
}

/* max(x, 0); NaN stays NaN. */
COH_DEVICE float coh_relu(float x)
{
    return 0.0f > x ? 0.0f : x;
}

#endif
