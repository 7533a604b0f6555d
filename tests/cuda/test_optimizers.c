/* Updates of adamw8, adamw8sr, lion and sgd on CUDA compared with the host's: the same bits of
 * every parameter and state over three steps, for grains that are whole, short, or misaligned.
 * test_optimizer.c has adamw's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "base/half.h"
#include "kernels/optimizer.h"
#include "tests/cuda/twins.h"

enum { GRAIN = COH_GRAIN_ELEMENTS, ELEMENTS = GRAIN + 4096, STEPS = 3 };

/* A whole grain and a short one, padding, one element, padding, a short grain; each in its own
 * group. */
static const coh_grain_run aligned[] = {
    { .first = 0,
      .element = 0,
      .count = GRAIN + 77,
      .partial_begin = 3,
      .rate_factor = 1,
      .decay = 0.1f },
    { .first = 2, .element = GRAIN + 128, .count = 1, .partial_begin = 9, .rate_factor = 0.3f },
    { .first = 3,
      .element = GRAIN + 1024,
      .count = 1023,
      .partial_begin = 10,
      .rate_factor = 7,
      .decay = 0.7f },
};

/* The last tensor begins at an odd element: only states without blocks allow that. */
static const coh_grain_run odd[] = {
    { .first = 0, .element = 0, .count = GRAIN + 77, .partial_begin = 3, .rate_factor = 1 },
    { .first = 2,
      .element = GRAIN + 1027,
      .count = 1023,
      .partial_begin = 10,
      .rate_factor = 7,
      .decay = 0.7f },
};

typedef struct steps_call {
    coh_update update; /* of the first step */
    const void *grads[STEPS];
    const coh_cells *cells[STEPS];
} steps_call;

static void run_steps(void *queue, const void *argument)
{
    const steps_call *call = argument;
    for (int step = 0; step < STEPS; step++) {
        coh_update update = call->update;
        update.grad = call->grads[step];
        update.cells = call->cells[step];
        coh_kernel_update(queue, &update);
    }
}

/* Gradients with all sizes, zeros, and in the last step a NaN and infinities. */
static void *gradient(coh_dtype dtype, int step)
{
    void *grad = coh_twins_random(dtype, ELEMENTS, 0, (uint64_t)(10 + step));
    for (int i = 0; i < ELEMENTS; i++) {
        float value = (float)coh_twins_value(dtype, grad, i);
        if (i / 512 % 4 == 1)
            value = ldexpf(value, i % 97 - 60);
        if (i / 512 % 4 == 2 || (i / 512 % 4 == 3 && i % 61 != step))
            value = 0;
        if (step == STEPS - 1 && (i == 700 || i == GRAIN + 1100))
            value = NAN;
        if (step == STEPS - 1 && (i == 3000 || i == GRAIN + 1500))
            value = -INFINITY;
        if (dtype == COH_DTYPE_BF16)
            ((uint16_t *)grad)[i] = coh_bf16_of_f32(value);
        else
            ((float *)grad)[i] = value;
    }
    return grad;
}

/* form: 0 f32, 1 bf16, 2 bf16 with an f32 gradient. */
static void check_update(const char *name, const float *hyperparameters, int form,
                         coh_chunk_grains grains)
{
    const coh_optimizer *optimizer = coh_optimizer_find(name);
    const coh_dtype dtype = form == 0 ? COH_DTYPE_F32 : COH_DTYPE_BF16;
    const coh_dtype grad_dtype = form == 1 ? COH_DTYPE_BF16 : COH_DTYPE_F32;
    assert_non_null(optimizer);
    steps_call call = { .update = { .optimizer = optimizer,
                                    .dtype = dtype,
                                    .f32_grads = form == 2,
                                    .grains = grains,
                                    .work = coh_twins_random(dtype, ELEMENTS, 0, 1),
                                    .low = dtype == COH_DTYPE_BF16 && !optimizer->rounds_work
                                               ? coh_twins_random(dtype, ELEMENTS, 0, 3)
                                               : NULL,
                                    .hyperparameters = hyperparameters,
                                    .scalar_begin = 1 } };
    coh_twins_case one = { .name = name,
                           .run = run_steps,
                           .call = &call,
                           .outputs = { { dtype, ELEMENTS, call.update.work } } };
    int outputs = 1;
    for (int32_t i = 0; i < optimizer->stream_count; i++) {
        const size_t bytes = coh_state_bytes(&optimizer->streams[i], ELEMENTS);
        call.update.states[i] = coh_twins_zeros(bytes);
        one.outputs[outputs++] =
            (coh_twins_output){ optimizer->streams[i].is_f32 ? COH_DTYPE_F32 : COH_DTYPE_I32,
                                (int64_t)bytes / 4, call.update.states[i] };
    }
    if (call.update.low != NULL)
        one.outputs[outputs] = (coh_twins_output){ dtype, ELEMENTS, call.update.low };
    for (int step = 0; step < STEPS; step++) {
        const coh_cells cells = { .update_rate = 1e-2f,
                                  .update_scale = 0.7f,
                                  .update_random = { .seed = 5, .step = 12 + (uint64_t)step },
                                  .update_scalars = { 9, 0.1f * (float)(1 + step),
                                                      0.05f * (float)(1 + step) } };
        call.cells[step] = coh_twins_copy(&cells, sizeof(cells));
        call.grads[step] = gradient(grad_dtype, step);
    }
    coh_twins_check(&one);
    coh_twins_release();
}

static void check_forms(const char *name, const float *hyperparameters, int has_blocks)
{
    for (int form = 0; form < 3; form++) {
        check_update(name, hyperparameters, form, (coh_chunk_grains){ aligned, 3 });
        if (!has_blocks)
            check_update(name, hyperparameters, form, (coh_chunk_grains){ odd, 2 });
    }
}

static void lion_has_the_hosts_bits(void **state)
{
    static const float numbers[COH_OPTIMIZER_NUMBERS] = { 0.9f, 0.99f };
    (void)state;
    check_forms("lion", numbers, 0);
}

static void sgd_has_the_hosts_bits(void **state)
{
    static const float plain[COH_OPTIMIZER_NUMBERS] = { 0.9f, 0 };
    static const float nesterov[COH_OPTIMIZER_NUMBERS] = { 0.9f, 1 };
    (void)state;
    check_forms("sgd", plain, 0);
    check_forms("sgd", nesterov, 0);
}

static void adamw8_has_the_hosts_bits(void **state)
{
    static const float numbers[COH_OPTIMIZER_NUMBERS] = { 0.9f, 0.95f, 1e-8f };
    (void)state;
    check_forms("adamw8", numbers, 1);
    check_forms("adamw8sr", numbers, 1);
}

int coh_twins_optimizers(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lion_has_the_hosts_bits),
        cmocka_unit_test(sgd_has_the_hosts_bits),
        cmocka_unit_test(adamw8_has_the_hosts_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
