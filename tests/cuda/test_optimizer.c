/* FEED, NORM, CLIP, UPDATE and SETTLE on CUDA compared with the host's: the same bits of every
 * partial, cell, parameter and state, for grains that are whole, short, or misaligned. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "base/rng.h"
#include "kernels/optimizer.h"
#include "tests/cuda/twins.h"

/* beta1, beta2 and epsilon of most cases. */
static const float numbers[] = { 0.9f, 0.95f, 1e-8f };

enum { GRAIN = COH_GRAIN_ELEMENTS, ELEMENTS = GRAIN + 4096, PARTIALS = 20, MICROBATCHES = 12 };

static const coh_dtype dtypes[] = { COH_DTYPE_F32, COH_DTYPE_BF16 };

/* A whole grain and a short one, padding, one element, padding, a misaligned tensor; each in its
 * own group. */
static const coh_grain_run runs[] = {
    { .first = 0,
      .element = 0,
      .count = GRAIN + 77,
      .partial_begin = 3,
      .rate_factor = 1,
      .decay = 0.1f },
    { .first = 2, .element = GRAIN + 100, .count = 1, .partial_begin = 9, .rate_factor = 0.3f },
    { .first = 3,
      .element = GRAIN + 1027,
      .count = 1023,
      .partial_begin = 10,
      .rate_factor = 7,
      .decay = 0.7f },
};
static const coh_chunk_grains grains = { runs, 3 };

static void run_square_sums(void *queue, const void *call)
{
    coh_kernel_square_sums(queue, call);
}

static void partials_have_the_hosts_bits(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        coh_square_sums call = { .dtype = dtypes[d],
                                 .grains = grains,
                                 .grad = coh_twins_random(dtypes[d], ELEMENTS, 0, 1),
                                 .partials = coh_twins_zeros(PARTIALS * sizeof(double)) };
        coh_twins_check(
            &(coh_twins_case){ .name = "square sums",
                               .run = run_square_sums,
                               .call = &call,
                               .outputs = { { COH_DTYPE_F32, 2 * PARTIALS, call.partials } } });
        coh_twins_release();
    }
}

static void run_update(void *queue, const void *call)
{
    coh_kernel_update(queue, call);
}

static void *squares(int64_t count)
{
    float *v = coh_twins_random(COH_DTYPE_F32, count, 0, 9);
    for (int64_t i = 0; i < count; i++)
        v[i] *= v[i];
    return v;
}

static void updates_have_the_hosts_bits(void **state)
{
    (void)state;
    static const coh_cells cells = { .update_rate = 1e-3f,
                                     .update_scale = 0.7f,
                                     .update_scalars = { 9, 9, 0.271f, 0.0297f } };
    for (int d = 0; d < 3; d++) /* the last: bf16 with an f32 gradient */
        for (int has_partials = 0; has_partials < 2; has_partials++) {
            const coh_dtype dtype = dtypes[d > 0], grad_dtype = dtypes[d % 2];
            double *partials = coh_twins_zeros(PARTIALS * sizeof(double));
            coh_update call = {
                .optimizer = coh_optimizer_find("adamw"),
                .dtype = dtype,
                .f32_grads = d == 2,
                .grains = grains,
                .work = coh_twins_random(dtype, ELEMENTS, 0, 1),
                .grad = coh_twins_random(grad_dtype, ELEMENTS, 0, 2),
                .low = dtype == COH_DTYPE_BF16 ? coh_twins_random(dtype, ELEMENTS, 0, 3) : NULL,
                .states = { coh_twins_random(COH_DTYPE_F32, ELEMENTS, 0, 4), squares(ELEMENTS) },
                .partials = has_partials ? partials : NULL,
                .cells = coh_twins_copy(&cells, sizeof(cells)),
                .hyperparameters = numbers,
                .scalar_begin = 2
            };
            coh_twins_check(
                &(coh_twins_case){ .name = "update",
                                   .run = run_update,
                                   .call = &call,
                                   .outputs = { { dtype, ELEMENTS, call.work },
                                                { COH_DTYPE_F32, ELEMENTS, call.states[0] },
                                                { COH_DTYPE_F32, ELEMENTS, call.states[1] },
                                                { COH_DTYPE_F32, 2 * PARTIALS, partials },
                                                { dtype, ELEMENTS, call.low } } });
            coh_twins_release();
        }
}

/* A step of zero: each lower half is joined and split off again, also one of half a unit. */
static void halves_of_a_master_come_back(void **state)
{
    (void)state;
    static const coh_cells cells = { .update_scalars = { 1, 1 } };
    static const float epsilon_of_1[] = { 0, 0, 1 };
    const size_t bytes = ELEMENTS * sizeof(uint16_t);
    uint16_t *low = coh_twins_zeros(bytes);
    for (int i = 0; i < ELEMENTS; i++)
        low[i] = (uint16_t)(i % 2 == 0 ? 0x8000 + i : 0x7fff - i);
    const coh_update call = { .optimizer = coh_optimizer_find("adamw"),
                              .dtype = COH_DTYPE_BF16,
                              .grains = grains,
                              .work = coh_twins_random(COH_DTYPE_BF16, ELEMENTS, 0, 1),
                              .grad = coh_twins_random(COH_DTYPE_BF16, ELEMENTS, 0, 2),
                              .low = low,
                              .states = { coh_twins_random(COH_DTYPE_F32, ELEMENTS, 0, 4),
                                          squares(ELEMENTS) },
                              .cells = coh_twins_copy(&cells, sizeof(cells)),
                              .hyperparameters = epsilon_of_1 };
    const void *work_before = coh_twins_copy(call.work, bytes);
    const void *low_before = coh_twins_copy(low, bytes);
    coh_twins_enqueue(run_update, &call, 0, NULL);
    assert_memory_equal(call.work, work_before, bytes);
    assert_memory_equal(low, low_before, bytes);
    coh_twins_release();
}

/* An update whose predicate is 0 changes nothing. */
static void a_masked_update_writes_nothing(void **state)
{
    (void)state;
    static const int32_t is_masked;
    static const coh_cells cells = { .update_rate = 1,
                                     .update_scale = 1,
                                     .update_scalars = { 1, 1 } };
    const coh_update call = { .optimizer = coh_optimizer_find("adamw"),
                              .dtype = COH_DTYPE_F32,
                              .grains = grains,
                              .work = coh_twins_random(COH_DTYPE_F32, ELEMENTS, 0, 1),
                              .grad = coh_twins_random(COH_DTYPE_F32, ELEMENTS, 0, 2),
                              .states = { coh_twins_random(COH_DTYPE_F32, ELEMENTS, 0, 3),
                                          squares(ELEMENTS) },
                              .cells = coh_twins_copy(&cells, sizeof(cells)),
                              .hyperparameters = numbers };
    const size_t bytes = ELEMENTS * sizeof(float);
    void *const tensors[] = { call.work, call.states[0], call.states[1] };
    void *before[3];
    for (int i = 0; i < 3; i++)
        before[i] = memcpy(coh_twins_zeros(bytes), tensors[i], bytes);
    const coh_twins_line line = { .predicate = coh_twins_copy(&is_masked, sizeof(is_masked)) };
    coh_twins_enqueue(run_update, &call, 0, &line);
    for (int i = 0; i < 3; i++)
        assert_memory_equal(tensors[i], before[i], bytes);
    coh_twins_release();
}

/* ---- a step: FEED, CLIP, SETTLE ---- */

typedef struct step_call {
    coh_feed feed;
    coh_clip clip;
} step_call;

static void run_step(void *queue, const void *argument)
{
    const step_call *call = argument;
    coh_kernel_feed(queue, &call->feed);
    coh_kernel_clip(queue, &call->clip);
}

static void run_settle(void *queue, const void *call)
{
    coh_kernel_settle(queue, (coh_cells *)(uintptr_t)call);
}

/* `how`: 0 below the clip, 1 above it, 2 an infinite partial, 3 neither losses nor partials. */
static void check_step(int how, int defers)
{
    enum { COUNT = 5000, TOKENS = 37 };
    coh_cells *cells = coh_twins_zeros(sizeof(*cells));
    coh_clip_record *record = coh_twins_zeros(sizeof(*record));
    double *partials = coh_twins_zeros(COUNT * sizeof(double));
    int32_t *tokens = coh_twins_random(COH_DTYPE_F32, TOKENS, 0, 1);
    int32_t *inputs = coh_twins_poisoned(COH_DTYPE_F32, TOKENS, 1);
    const coh_update_scalars scalars = { .count = 3, .base = { 0.9f, 0.999f, 0.25f } };
    const coh_feed_input input = { inputs, tokens, TOKENS * sizeof(int32_t) };
    const coh_feed_values values = { .random = { .seed = 5, .step = 12 },
                                     .learning_rate = 3e-4f,
                                     .clip = how == 1 ? 0.5f : 1e6f,
                                     .loss_factor = 2.0f };
    for (uint64_t i = 0; i < COUNT; i++)
        partials[i] = ldexp(coh_rng_uniform(6, (uint64_t)(2 * how + defers), i), (int)(i % 7));
    partials[4000] = how == 2 ? INFINITY : 1.0;
    cells->applied_count = 11;
    cells->previous_norm = how == 1 ? 3.0 : 0.25; /* above the clip, or below it */
    const step_call call = {
        .feed = { .cells = cells,
                  .values = coh_twins_copy(&values, sizeof(values)),
                  .inputs = &input,
                  .input_count = 1,
                  .latches = !defers,
                  .scalars = scalars },
        .clip = { .cells = cells,
                  .partials = how == 3 ? NULL : partials,
                  .partial_count = COUNT,
                  .losses =
                      how == 3 ? NULL : coh_twins_random(COH_DTYPE_F32, MICROBATCHES * 16, 0, 2),
                  .loss_stride = 16,
                  .microbatch_count = MICROBATCHES,
                  .fold = how == 1 ? (coh_fold_shape){ { 3, 2 } } : (coh_fold_shape){ { 0 } },
                  .defers = defers,
                  .record = record,
                  .scalars = scalars },
    };
    coh_twins_case one = { .name = "step",
                           .run = run_step,
                           .call = &call,
                           .outputs = { { COH_DTYPE_I32, sizeof(*cells) / 4, cells },
                                        { COH_DTYPE_I32, sizeof(*record) / 4, record },
                                        { COH_DTYPE_I32, TOKENS, inputs } } };
    coh_twins_check(&one);
    cells->pending = 1;
    one.run = run_settle;
    one.call = cells;
    coh_twins_check(&one);
    coh_twins_release();
}

static void cells_and_records_have_the_hosts_bits(void **state)
{
    (void)state;
    for (int how = 0; how < 4; how++)
        for (int defers = 0; defers < 2; defers++)
            check_step(how, defers);
}

int coh_twins_optimizer(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(partials_have_the_hosts_bits),
        cmocka_unit_test(updates_have_the_hosts_bits),
        cmocka_unit_test(halves_of_a_master_come_back),
        cmocka_unit_test(a_masked_update_writes_nothing),
        cmocka_unit_test(cells_and_records_have_the_hosts_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
