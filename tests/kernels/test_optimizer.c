/* FEED, NORM, CLIP, UPDATE as jobs, compared with loops in double: which elements of a chunk they
 * reach, which partials and cells they write. (test_adamw.c tests AdamW itself.) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/pool.h"
#include "base/rng.h"
#include "kernels/kernels.h"
#include "kernels/optimizer.h"

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
    const double g = grad * (double)c->update_scale;
    const double m = (1.0 - (double)update->beta1) * g / (double)c->update_bias1;
    const double v = (1.0 - (double)update->beta2) * g * g / (double)c->update_bias2;
    const double decay = (double)run->decay * work;
    const double rate = (double)c->update_rate * (double)run->rate_factor;
    return work - rate * (m / (sqrt(v) + (double)update->epsilon) + decay);
}

static void an_update_reaches_what_is_trained_and_no_padding(void **state)
{
    (void)state;
    double partials[PARTIALS] = { 0 };
    float *work = random_floats(2), *before = random_floats(2), *grad = random_floats(3);
    static float m[ELEMENTS], v[ELEMENTS];
    memset(m, 0, sizeof(m));
    memset(v, 0, sizeof(v));
    const coh_cells cells = {
        .update_rate = 0.25f, .update_scale = 0.5f, .update_bias1 = 0.125f, .update_bias2 = 0.0625f
    };
    const coh_update update = { .grains = grains,
                                .work = work,
                                .grad = grad,
                                .m = m,
                                .v = v,
                                .partials = partials,
                                .cells = &cells,
                                .beta1 = 0.875f,
                                .beta2 = 0.9375f,
                                .epsilon = 0x1p-20f };
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
        coh_cells cells = { .applied_count = 1, .update_rate = -1.0f };
        const coh_feed feed = { .cells = &cells,
                                .values = &values,
                                .inputs = inputs,
                                .input_count = 2,
                                .latches = latches,
                                .beta1 = 0.5f,
                                .beta2 = 0.75f };
        coh_kernel_feed(pool, &feed);
        assert_memory_equal(to, from, sizeof(to));
        assert_true(cells.random.seed == 5 && cells.random.step == 6);
        assert_true(cells.learning_rate == 0.5f && cells.clip == 2.0f && cells.loss_factor == 1.5f);
        assert_true(cells.update_rate == (latches ? 0.5f : -1.0f));
        assert_true(cells.update_scale == (latches ? 1.0f : 0.0f));
        assert_true(cells.update_bias1 == (latches ? 0.75f : 0.0f)); /* 1 - 0.5^2 */
        assert_true(cells.update_bias2 == (latches ? 0.4375f : 0.0f));
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
                            .applied_count = 10 };
        coh_clip_record record = { 0 };
        const coh_clip clip = { .cells = &cells,
                                .partials = partials,
                                .partial_count = 5,
                                .losses = losses,
                                .loss_stride = LOSS_STRIDE,
                                .microbatch_count = MICROBATCHES,
                                .defers = 1,
                                .beta1 = 0.5f,
                                .beta2 = 0.5f,
                                .record = &record };
        coh_kernel_clip(pool, &clip);
        assert_true(cells.update_scale == cases[i].scale && cells.update_rate == 0.5f);
        assert_true(cells.finite == cases[i].finite && cells.pending == cases[i].finite);
        assert_true(cells.applied_count == (cases[i].finite ? 11u : 10u));
        assert_true(record.step == 6 && record.loss == 4.0 && record.finite == cases[i].finite);
        assert_true(record.applied_count == cells.applied_count);
        assert_true(!cases[i].finite || record.grad_norm == 8.0);
        coh_kernel_settle(pool, &cells);
        assert_int_equal(cells.pending, 0);
    }
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
        cmocka_unit_test(a_feed_copies_and_latches_for_updates_before_the_clip),
        cmocka_unit_test(a_clip_scales_to_the_norm_and_counts_what_is_finite),
        cmocka_unit_test(the_norm_is_of_all_partials),
    };
    return cmocka_run_group_tests(tests, make_pool, drop_pool);
}
