/* FEED, NORM, CLIP, UPDATE as jobs, compared with loops in double: which elements of a chunk they
 * reach, which partials and cells they write, and what an optimizer's update is given.
 * (test_adamw.c tests AdamW itself.) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/pool.h"
#include "base/rng.h"
#include "kernels/kernels.h"
#include "kernels/optimizer.h"
#include "tests/reference/float_bits.h"

enum { GRAIN = COH_GRAIN_ELEMENTS, PARTIALS = 20, MICROBATCHES = 3, LOSS_STRIDE = 16 };

/* The end of a tensor with a short last grain, padding, a tensor of one element, padding, and two
 * grains of a third tensor. The partials of its first grains lie elsewhere, like those of earlier
 * tensors. */
static const coh_grain_run runs[] = {
    { .first = 0,
      .element = 0,
      .count = GRAIN + 77,
      .partial_begin = 3,
      .rate_factor = 1,
      .decay = 0.5f },
    { .first = 2, .element = 2 * GRAIN, .count = 1, .partial_begin = 9, .rate_factor = 0.5f },
    { .first = 3,
      .element = 2 * GRAIN + 2048,
      .count = 2 * GRAIN,
      .partial_begin = 10,
      .rate_factor = 2,
      .decay = 0.125f },
};
enum { RUNS = 3, ELEMENTS = 5 * GRAIN };

static const coh_chunk_grains grains = { runs, RUNS };

/* Returns the run of an element, or NULL for padding. */
static const coh_grain_run *run_of(int64_t element)
{
    for (int r = 0; r < RUNS; r++)
        if (element >= runs[r].element && element < runs[r].element + runs[r].count)
            return &runs[r];
    return NULL;
}

/* Returns the index of an element's partial, or -1. */
static int64_t partial_of(int64_t element)
{
    const coh_grain_run *run = run_of(element);
    return run ? run->partial_begin + (element - run->element) / GRAIN : -1;
}

static float *random_floats(uint64_t stream)
{
    float *values = malloc(ELEMENTS * sizeof(float));
    assert_non_null(values);
    for (uint64_t i = 0; i < ELEMENTS; i++)
        values[i] = (float)coh_rng_normal(31, stream, i);
    return values;
}

static void check_partials(const float *grad, const double *partials)
{
    double expected[PARTIALS] = { 0 };
    for (int64_t i = 0; i < ELEMENTS; i++)
        if (partial_of(i) >= 0)
            expected[partial_of(i)] += (double)grad[i] * (double)grad[i];
    for (int p = 0; p < PARTIALS; p++)
        assert_true(fabs(partials[p] - expected[p]) <= 0x1p-52 * GRAIN * expected[p]);
}

static coh_pool *pool;

static int make_pool(void **state)
{
    (void)state;
    return coh_pool_create(3, &pool) == COH_OK ? 0 : -1;
}

static int drop_pool(void **state)
{
    (void)state;
    coh_pool_destroy(pool);
    return 0;
}

static void a_norm_makes_one_partial_of_each_grain(void **state)
{
    (void)state;
    double partials[PARTIALS] = { 0 };
    float *grad = random_floats(1);
    const coh_square_sums sums = { .grains = grains, .grad = grad, .partials = partials };
    coh_kernel_square_sums(pool, &sums);
    check_partials(grad, partials);
    free(grad);
}

static void nothing_is_done_where_nothing_is_trained(void **state)
{
    (void)state;
    const coh_square_sums sums = { .grad = NULL };
    const coh_update update = { .work = NULL };
    coh_kernel_square_sums(pool, &sums);
    coh_kernel_update(pool, &update);
}

/* Computes the first step of AdamW: m = (1 - beta1) g, v = (1 - beta2) g^2, with the group's rate
 * and decay. */
static double updated(double work, double grad, const coh_update *update, const coh_grain_run *run)
{
    const coh_cells *c = update->cells;
    const float *beta = update->hyperparameters, *bias = &c->update_scalars[update->scalar_begin];
    const double g = grad * (double)c->update_scale;
    const double m = (1.0 - (double)beta[0]) * g / (double)bias[0];
    const double v = (1.0 - (double)beta[1]) * g * g / (double)bias[1];
    const double decay = (double)run->decay * work, epsilon = (double)update->hyperparameters[2];
    const double rate = (double)c->update_rate * (double)run->rate_factor;
    return work - rate * (m / (sqrt(v) + epsilon) + decay);
}

static void an_update_reaches_what_is_trained_and_no_padding(void **state)
{
    (void)state;
    double partials[PARTIALS] = { 0 };
    float *work = random_floats(2), *before = random_floats(2), *grad = random_floats(3);
    static float m[ELEMENTS], v[ELEMENTS];
    memset(m, 0, sizeof(m));
    memset(v, 0, sizeof(v));
    const coh_cells cells = { .update_rate = 0.25f,
                              .update_scale = 0.5f,
                              .update_scalars = { 9, 0.125f, 0.0625f } };
    static const float numbers[] = { 0.875f, 0.9375f, 0x1p-20f };
    const coh_update update = { .optimizer = coh_optimizer_find("adamw"),
                                .grains = grains,
                                .work = work,
                                .grad = grad,
                                .states = { m, v },
                                .partials = partials,
                                .cells = &cells,
                                .hyperparameters = numbers,
                                .scalar_begin = 1 };
    coh_kernel_update(pool, &update);
    for (int64_t i = 0; i < ELEMENTS; i++) {
        const int64_t partial = partial_of(i);
        const double expected =
            partial < 0 ? (double)before[i]
                        : updated((double)before[i], (double)grad[i], &update, run_of(i));
        /* at most |work| + rate (1 + |decay|), plus eight roundings */
        assert_true(fabs((double)work[i] - expected) <=
                    (partial < 0 ? 0.0 : 0x1p-20 * (fabs((double)before[i]) + 1.0)));
        assert_true((m[i] != 0.0f) == (partial >= 0));
    }
    check_partials(grad, partials);
    free(work);
    free(before);
    free(grad);
}

/* ---- an optimizer of blocks, which takes only f32 ---- */

enum { BLOCK = 4, BLOCKS = ELEMENTS / BLOCK, CALLS_MOST = 5 * GRAIN / 1024 + RUNS };

static coh_update_call calls[CALLS_MOST];
static atomic_int call_count;

/* SGD with momentum: returns the new work. */
static float element_update(const coh_update_call *call, float work, float grad, float *velocity)
{
    const float momentum = call->hyperparameters[0], unbiased = call->scalars[0];
    *velocity = momentum * *velocity + call->scale * grad;
    return work - call->rate * (*velocity / unbiased + call->decay * work);
}

/* A byte of a block depends on the byte before, and on number and new work of each element. */
static uint8_t byte_update(uint8_t before, uint64_t number, float work)
{
    return (uint8_t)(before * 5u + (bits_of(work) >> 9) + (uint32_t)number);
}

static void update_blocks(const coh_update_call *call)
{
    float *work = call->work, *velocity = call->states[0];
    const float *grad = call->grad;
    uint8_t *bytes = call->states[1];
    const int index = atomic_fetch_add(&call_count, 1);
    if (index < CALLS_MOST)
        calls[index] = *call;
    if (call->work_dtype != COH_DTYPE_F32 || call->grad_dtype != COH_DTYPE_F32)
        return; /* the test fails, since nothing is updated */
    for (int64_t i = 0; i < call->count; i++) {
        work[i] = element_update(call, work[i], grad[i], &velocity[i]);
        bytes[i / BLOCK] = byte_update(bytes[i / BLOCK], call->first + (uint64_t)i, work[i]);
    }
}

static const coh_optimizer blocks = {
    .struct_bytes = sizeof(blocks),
    .name = "blocks",
    .revision = 1,
    .stream_count = 2,
    .streams = { { "velocity", 4, 1, 1 }, { "byte", 1, BLOCK, 0 } },
    .hyperparameter_count = 1,
    .hyperparameters = { { "momentum", 0.75f, 0, 1 } },
    .scalar_count = 1,
    .scalars = { 0 },
    .update = update_blocks,
};

/* Halves of a master: `high` is its nearest bf16, and (high << 16) + low, with low signed, its
 * bits. */
static float joined(uint16_t high, uint16_t low)
{
    const uint32_t rest = low < 0x8000u ? low : low - 0x10000u;
    return float_of(((uint32_t)high << 16) + rest);
}

/* A chunk as the optimizer gets it, and as plain f32. */
typedef struct block_chunk {
    uint16_t high[ELEMENTS], low[ELEMENTS], half_grad[ELEMENTS];
    float work[ELEMENTS], grad[ELEMENTS], velocity[ELEMENTS];
    uint8_t bytes[BLOCKS];
} block_chunk;
static block_chunk given, plain;

/* Random values. `work` is the master of `high` and `low`; with `is_half_grad`, `grad` is that of
 * `half_grad`. */
static void draw_chunk(block_chunk *chunk, int is_half_grad)
{
    for (uint64_t i = 0; i < ELEMENTS; i++) {
        const uint32_t master = bits_of((float)coh_rng_normal(31, 4, i));
        const uint32_t grad = bits_of((float)coh_rng_normal(31, 5, i));
        chunk->high[i] = (uint16_t)((master + 0x8000u) >> 16);
        chunk->low[i] = (uint16_t)master;
        chunk->half_grad[i] = (uint16_t)(grad >> 16);
        chunk->work[i] = joined(chunk->high[i], chunk->low[i]);
        assert_true(bits_of(chunk->work[i]) == master);
        chunk->grad[i] = float_of(is_half_grad ? grad & 0xffff0000u : grad);
        chunk->velocity[i] = (float)coh_rng_normal(31, 6, i);
        chunk->bytes[i / BLOCK] = (uint8_t)(i * 7);
    }
}

/* Updates the plain f32 values element by element, and takes the halves of the result. */
static void update_plainly(const coh_update *update, block_chunk *chunk)
{
    coh_update_call one = { .scale = update->cells->update_scale,
                            .hyperparameters = update->hyperparameters,
                            .scalars = &update->cells->update_scalars[update->scalar_begin] };
    for (int64_t i = 0; i < ELEMENTS; i++) {
        const coh_grain_run *run = run_of(i);
        if (run == NULL)
            continue;
        const uint64_t number = (uint64_t)(run->partial_begin * GRAIN + i - run->element);
        one.rate = update->cells->update_rate * run->rate_factor;
        one.decay = run->decay;
        chunk->work[i] = element_update(&one, chunk->work[i], chunk->grad[i], &chunk->velocity[i]);
        chunk->bytes[i / BLOCK] = byte_update(chunk->bytes[i / BLOCK], number, chunk->work[i]);
        chunk->high[i] = (uint16_t)((bits_of(chunk->work[i]) + 0x8000u) >> 16);
        chunk->low[i] = (uint16_t)bits_of(chunk->work[i]);
    }
}

/* Checks that the calls reach each trained element once, and say which one it is. */
static void check_calls(const coh_update *update)
{
    static uint8_t seen[ELEMENTS];
    const coh_cells *cells = update->cells;
    memset(seen, 0, sizeof(seen));
    assert_true(call_count <= CALLS_MOST);
    for (int c = 0; c < call_count; c++) {
        const coh_update_call *call = &calls[c];
        const coh_grain_run *run = NULL;
        for (int r = 0; r < RUNS; r++)
            if (call->first >= (uint64_t)runs[r].partial_begin * GRAIN)
                run = &runs[r];
        assert_non_null(run);
        const int64_t element = run->element + (int64_t)call->first - run->partial_begin * GRAIN;
        assert_true(call->count > 0 && element + call->count <= run->element + run->count);
        assert_ptr_equal(call->states[0], given.velocity + element);
        assert_ptr_equal(call->states[1], given.bytes + element / BLOCK);
        assert_true(call->rate == cells->update_rate * run->rate_factor);
        assert_true(call->scale == cells->update_scale && call->decay == run->decay);
        assert_ptr_equal(call->hyperparameters, update->hyperparameters);
        assert_ptr_equal(call->scalars, &cells->update_scalars[update->scalar_begin]);
        assert_ptr_equal(call->random, &cells->update_random);
        assert_null(call->low);
        for (int64_t i = 0; i < call->count; i++)
            seen[element + i]++;
    }
    for (int64_t i = 0; i < ELEMENTS; i++)
        assert_int_equal(seen[i], run_of(i) != NULL);
}

static void check_blocks(coh_pool *on, coh_dtype dtype, int f32_grads)
{
    static const float numbers[] = { 0.75f };
    const int is_half = dtype == COH_DTYPE_BF16, is_half_grad = is_half && !f32_grads;
    const coh_cells cells = { .update_rate = 0.25f,
                              .update_scale = 0.5f,
                              .update_scalars = { 9, 9, 9, 0.625f } };
    double partials[PARTIALS] = { 0 };
    const coh_update update = { .optimizer = &blocks,
                                .dtype = dtype,
                                .f32_grads = f32_grads,
                                .grains = grains,
                                .work = is_half ? (void *)given.high : given.work,
                                .grad = is_half_grad ? (void *)given.half_grad : given.grad,
                                .low = is_half ? given.low : NULL,
                                .states = { given.velocity, given.bytes },
                                .partials = partials,
                                .cells = &cells,
                                .hyperparameters = numbers,
                                .scalar_begin = 3 };
    draw_chunk(&given, is_half_grad);
    plain = given;
    call_count = 0;
    coh_kernel_update(on, &update);
    update_plainly(&update, &plain);
    check_calls(&update);
    check_partials(given.grad, partials);
    if (is_half) {
        assert_memory_equal(given.high, plain.high, sizeof(given.high));
        assert_memory_equal(given.low, plain.low, sizeof(given.low));
    } else {
        assert_memory_equal(given.work, plain.work, sizeof(given.work));
    }
    assert_memory_equal(given.velocity, plain.velocity, sizeof(given.velocity));
    assert_memory_equal(given.bytes, plain.bytes, sizeof(given.bytes));
}

static void an_update_of_f32_alone_updates_the_joined_master(void **state)
{
    (void)state;
    coh_pool *one = NULL;
    assert_int_equal(coh_pool_create(1, &one), COH_OK);
    coh_pool *const pools[] = { one, pool };
    for (int p = 0; p < 2; p++) {
        check_blocks(pools[p], COH_DTYPE_F32, 0);
        check_blocks(pools[p], COH_DTYPE_BF16, 0);
        check_blocks(pools[p], COH_DTYPE_BF16, 1);
    }
    coh_pool_destroy(one);
}

/* An update that takes bf16 gets the two halves and the gradient as they are, a grain at a time. */
static void an_update_of_bf16_gets_what_is_stored(void **state)
{
    (void)state;
    static const float numbers[] = { 0 };
    static const coh_cells cells = { .update_rate = 1 };
    coh_optimizer halves = blocks;
    halves.takes_bf16 = 1;
    for (int f32_grads = 0; f32_grads < 2; f32_grads++) {
        const void *grad = f32_grads ? (void *)given.grad : given.half_grad;
        const coh_update update = { .optimizer = &halves,
                                    .dtype = COH_DTYPE_BF16,
                                    .f32_grads = f32_grads,
                                    .grains = grains,
                                    .work = given.high,
                                    .grad = grad,
                                    .low = given.low,
                                    .states = { given.velocity, given.bytes },
                                    .cells = &cells,
                                    .hyperparameters = numbers };
        call_count = 0;
        coh_kernel_update(pool, &update);
        assert_int_equal(call_count, 5); /* grains: a whole one and 77, 1, two whole ones */
        for (int c = 0; c < call_count; c++) {
            const coh_update_call *call = &calls[c];
            const ptrdiff_t element = (uint16_t *)call->work - given.high;
            assert_int_equal(call->work_dtype, COH_DTYPE_BF16);
            assert_int_equal(call->grad_dtype, f32_grads ? COH_DTYPE_F32 : COH_DTYPE_BF16);
            assert_ptr_equal(call->low, given.low + element);
            assert_ptr_equal(call->grad, (const char *)grad + element * (f32_grads ? 4 : 2));
            assert_ptr_equal(call->states[1], given.bytes + element / BLOCK);
            assert_int_equal(call->first, (uint64_t)partial_of(element) * GRAIN);
        }
    }
}

/* ---- cells ---- */

static void a_feed_copies_and_latches_for_updates_before_the_clip(void **state)
{
    (void)state;
    for (int latches = 0; latches < 2; latches++) {
        const int32_t from[2][2] = { { 1, 2 }, { 3, 4 } };
        int32_t to[2][2] = { { 0 } };
        const coh_feed_values values = {
            .random = { 5, 6 }, .learning_rate = 0.5f, .clip = 2.0f, .loss_factor = 1.5f
        };
        const coh_feed_input inputs[] = { { to[0], from[0], sizeof(to[0]) },
                                          { to[1], from[1], sizeof(to[1]) } };
        coh_cells cells = { .random = { 3, 4 },
                            .applied_count = 1,
                            .update_rate = -1.0f,
                            .update_random = { 1, 2 },
                            .update_scalars = { -1, -1, -1, -1 },
                            .previous_norm = 8 };
        const coh_feed feed = { .cells = &cells,
                                .values = &values,
                                .inputs = inputs,
                                .input_count = 2,
                                .latches = latches,
                                .scalars = { .count = 3, .base = { 0.5f, 0.75f, 0 } } };
        coh_kernel_feed(pool, &feed);
        assert_memory_equal(to, from, sizeof(to));
        assert_true(cells.random.seed == 5 && cells.random.step == 6);
        assert_true(cells.learning_rate == 0.5f && cells.clip == 2.0f && cells.loss_factor == 1.5f);
        assert_true(cells.update_rate == (latches ? 0.5f : -1.0f));
        assert_true(cells.update_scale == (latches ? 0.25f : 0.0f)); /* the clip / 8 */
        assert_true(cells.update_random.seed == (latches ? 5u : 1u));
        assert_true(cells.update_random.step == (latches ? 6u : 2u));
        const float latched[] = { 0.75f, 0.4375f, 1, -1 }; /* 1 - 0.5^2, ...; three are asked for */
        for (int i = 0; i < 4; i++)
            assert_true(cells.update_scalars[i] == (latches ? latched[i] : -1.0f));
        assert_true(cells.applied_count == 1);
    }
}

/* Partials whose sum is 64: the norm is 8. */
static void a_clip_scales_to_the_norm_and_counts_what_is_finite(void **state)
{
    (void)state;
    static const struct {
        float clip, scale;
        double more; /* one more partial */
        int finite;
    } cases[] = { { 0.0f, 1.0f, 0.0, 1 },
                  { 8.0f, 1.0f, 0.0, 1 },
                  { 2.0f, 0.25f, 0.0, 1 },
                  { 2.0f, 0.0f, (double)INFINITY, 0 },
                  { 2.0f, 1.0f, (double)NAN, 0 } };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const double partials[] = { 32.0, 0.0, 31.0, 1.0, cases[i].more };
        float losses[MICROBATCHES * LOSS_STRIDE] = { 0 };
        for (int b = 0; b < MICROBATCHES; b++)
            losses[b * LOSS_STRIDE] = (float)(b + 1);
        coh_cells cells = { .random = { 5, 6 },
                            .learning_rate = 0.5f,
                            .clip = cases[i].clip,
                            .loss_factor = 2.0f,
                            .pending = 7,
                            .applied_count = 10,
                            .update_random = { 1, 2 },
                            .update_scalars = { -1, -1, -1, -1 },
                            .previous_norm = 3 };
        coh_clip_record record = { 0 };
        const coh_clip clip = { .cells = &cells,
                                .partials = partials,
                                .partial_count = 5,
                                .losses = losses,
                                .loss_stride = LOSS_STRIDE,
                                .microbatch_count = MICROBATCHES,
                                .defers = 1,
                                .record = &record,
                                .scalars = { .count = 3, .base = { 0.5f, 0.25f, 0 } } };
        coh_kernel_clip(pool, &clip);
        assert_true(cells.update_scale == cases[i].scale && cells.update_rate == 0.5f);
        assert_true(cells.previous_norm == (isfinite(cases[i].more) ? 8 : 3));
        assert_true(cells.finite == cases[i].finite && cells.pending == cases[i].finite);
        assert_true(cells.applied_count == (cases[i].finite ? 11u : 10u));
        assert_true(cells.update_random.seed == 5 && cells.update_random.step == 6);
        const int updates = cases[i].finite ? 11 : 10;
        const float latched[] = { (float)(1 - ldexp(1, -updates)),
                                  (float)(1 - ldexp(1, -2 * updates)), 1, -1 };
        assert_memory_equal(cells.update_scalars, latched, sizeof(latched));
        assert_true(record.step == 6 && record.loss == 4.0 && record.finite == cases[i].finite);
        assert_true(record.applied_count == cells.applied_count);
        assert_true(!cases[i].finite || record.grad_norm == 8.0);
        coh_kernel_settle(pool, &cells);
        assert_int_equal(cells.pending, 0);
    }
}

/* Returns the sum of the node of `level` factors whose first micro-batch is *next. */
static double fold_losses(const coh_clip *clip, int level, int64_t each, int64_t *next)
{
    const int members = level > 0 ? clip->fold.factors[level - 1] : (int)each;
    double sum = 0;
    for (int member = 0; member < members; member++)
        sum += level > 0 ? fold_losses(clip, level - 1, each, next)
                         : (double)clip->losses[clip->loss_stride * (*next)++];
    return sum;
}

/* A loss of 1 and others of half its last place in double, which are lost alone and count together:
 * in shapes of 12 replicas of one micro-batch each, no two sums are alike. */
static void losses_are_added_in_the_fold_shape(void **state)
{
    (void)state;
    enum { REPLICAS = 12, MOST = 2 * REPLICAS };
    static const coh_fold_shape shapes[] = {
        { { 12 } }, { { 3, 4 } }, { { 4, 3 } }, { { 2, 3, 2 } }
    };
    static float losses[MOST * LOSS_STRIDE];
    double seen[4];
    for (uint64_t i = 0; i < MOST; i++)
        losses[i * LOSS_STRIDE] = i == 0 ? 1.0f : 0x1p-53f;
    for (int each = 1; each <= 2; each++) {
        for (int s = 0; s < 4; s++) {
            coh_cells cells = { .loss_factor = 1 };
            coh_clip_record record = { 0 };
            const coh_clip clip = { .cells = &cells,
                                    .losses = losses,
                                    .loss_stride = LOSS_STRIDE,
                                    .microbatch_count = (int64_t)each * REPLICAS,
                                    .fold = shapes[s],
                                    .record = &record };
            int64_t next = 0;
            int levels = 0;
            while (levels < COH_FOLD_FACTORS && shapes[s].factors[levels] > 0)
                levels++;
            const double sum = fold_losses(&clip, levels, each, &next);
            assert_int_equal(next, each * REPLICAS);
            coh_kernel_clip(pool, &clip);
            assert_true(record.loss == sum / (double)(each * REPLICAS));
            seen[s] = record.loss;
        }
        for (int s = 0; each == 1 && s < 4; s++)
            for (int other = 0; other < s; other++)
                assert_true(seen[s] != seen[other]);
    }
}

/* Updates made in backward were latched by FEED; this step's CLIP must leave their values. */
static void a_clip_that_does_not_defer_latches_nothing(void **state)
{
    (void)state;
    coh_cells cells = { .random = { 5, 6 },
                        .learning_rate = 0.5f,
                        .pending = 7,
                        .applied_count = 10,
                        .update_rate = 0.25f,
                        .update_scale = 1,
                        .update_random = { 1, 2 },
                        .update_scalars = { -1 } };
    coh_clip_record record = { 0 };
    coh_kernel_clip(pool, &(coh_clip){ .cells = &cells,
                                       .microbatch_count = 1,
                                       .record = &record,
                                       .scalars = { .count = 1, .base = { 0.5f } } });
    assert_true(cells.applied_count == 11 && cells.finite == 1 && cells.pending == 7);
    assert_true(cells.update_rate == 0.25f && cells.update_scale == 1);
    assert_true(cells.update_random.seed == 1 && cells.update_random.step == 2);
    assert_true(cells.update_scalars[0] == -1);
}

/* For integers, whose sum is exact in any order: each counted once. For others: within the error of
 * COH_CLIP_SUMS sums of 5 and a tree over them; a single sum of all would lose more. */
static void the_norm_is_of_all_partials(void **state)
{
    (void)state;
    enum { COUNT = 5 * COH_CLIP_SUMS - 3 };
    static double partials[COUNT];
    for (int is_whole = 0; is_whole < 2; is_whole++)
        for (int count = COUNT; count > 0; count -= 997) {
            long double expected = 0;
            for (int i = 0; i < count; i++) {
                partials[i] = is_whole ? i % 61 : coh_rng_uniform(24, 1, (uint64_t)i);
                expected += partials[i];
            }
            coh_cells cells = { 0 };
            coh_clip_record record;
            coh_kernel_clip(pool, &(coh_clip){ .cells = &cells,
                                               .partials = partials,
                                               .partial_count = count,
                                               .microbatch_count = 1,
                                               .record = &record });
            const double root = sqrt((double)expected);
            const double most = is_whole ? 0.0 : 0x1p-53 * root * (3.0 + (5 + 10) / 2.0);
            assert_true(fabs(record.grad_norm - root) <= most);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_norm_makes_one_partial_of_each_grain),
        cmocka_unit_test(nothing_is_done_where_nothing_is_trained),
        cmocka_unit_test(an_update_reaches_what_is_trained_and_no_padding),
        cmocka_unit_test(an_update_of_f32_alone_updates_the_joined_master),
        cmocka_unit_test(an_update_of_bf16_gets_what_is_stored),
        cmocka_unit_test(a_feed_copies_and_latches_for_updates_before_the_clip),
        cmocka_unit_test(a_clip_scales_to_the_norm_and_counts_what_is_finite),
        cmocka_unit_test(a_clip_that_does_not_defer_latches_nothing),
        cmocka_unit_test(losses_are_added_in_the_fold_shape),
        cmocka_unit_test(the_norm_is_of_all_partials),
    };
    return cmocka_run_group_tests(tests, make_pool, drop_pool);
}
