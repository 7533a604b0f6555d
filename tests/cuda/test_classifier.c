/* Softmax cross-entropy on CUDA compared with the host's: vocabularies that end within a tile,
 * ranges of rows in one call and in several, with and without logits kept from forward, tokens
 * without a target, more tokens than a chunk has, a step's loss factor, NaN logits. Both sides use
 * the host's products. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "kernels/cuda/scratch.h"
#include "kernels/kernels.h"
#include "tests/cuda/twins.h"

typedef struct shape {
    int64_t N, C, V;
} shape;

static const shape two_tiles = { 13, 8, COH_CUDA_CLASSIFIER_ROWS + 1024 + 61 };

static const coh_dtype dtypes[] = { COH_DTYPE_F32, COH_DTYPE_BF16 };
static const float loss_factor = 1.5f;

typedef struct classifier_call {
    coh_classifier classifier;
    void *dweight;
    int calls; /* to cover the rows */
} classifier_call;

/* Takes range `index` of the calls: whole blocks of rows. */
static void take_range(const classifier_call *call, coh_classifier *c, int index)
{
    const int64_t block = COH_CUDA_CLASSIFIER_ROWS;
    c->row_begin = index * block;
    c->row_end = index + 1 == call->calls ? c->V : (index + 1) * block;
    const size_t begin = (size_t)(c->row_begin * c->C) * coh_dtype_bytes(c->dtype);
    c->weight = (const char *)call->classifier.weight + begin;
    c->dweight = (char *)call->dweight + begin;
}

static void run_both(void *queue, const void *argument)
{
    const classifier_call *call = argument;
    coh_classifier c = call->classifier;
    for (int i = 0; i < call->calls; i++) {
        take_range(call, &c, i);
        coh_kernel_classifier(queue, &c);
    }
    for (int i = 0; i < call->calls; i++) {
        take_range(call, &c, i);
        coh_kernel_classifier_backward(queue, &c);
    }
}

/* Allocates elements of `bytes` in total, filled with NaN. */
static void *scratch(coh_dtype dtype, size_t bytes)
{
    const size_t element = coh_dtype_bytes(dtype);
    return coh_twins_poisoned(dtype, (int64_t)((bytes + element - 1) / element), 0);
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static classifier_call make_call(coh_dtype dtype, const shape *s, int calls, int adds,
                                 int is_cached)
{
    const int64_t N = s->N, C = s->C, V = s->V;
    int32_t *targets = coh_twins_zeros((size_t)N * sizeof(int32_t));
    for (int64_t n = 0; n < N; n++)
        targets[n] = n % 5 == 4 ? -1 : (int32_t)(n * 7919 % V);
    const size_t logits = coh_cuda_classifier_logit_bytes(dtype, N, V) +
                          coh_cuda_classifier_sum_bytes(dtype, N, C, V);
    const size_t host_logits =
        (size_t)coh_kernel_classifier_logits(dtype, N, V) * coh_dtype_bytes(dtype);
    const int64_t host_sums = coh_kernel_classifier_dweight_sums(dtype, N, C, V);
    return (classifier_call){
        .calls = calls,
        .dweight = coh_twins_random(dtype, V * C, 0, 1),
        .classifier = {
            .N = N,
            .C = C,
            .V = V,
            .dtype = dtype,
            .x = coh_twins_random(dtype, N * C, 0, 2),
            .weight = coh_twins_random(dtype, V * C, 0, 3),
            .targets = targets,
            .max = coh_twins_poisoned(COH_DTYPE_F32, N, 0),
            .sum = coh_twins_poisoned(COH_DTYPE_F32, N, 0),
            .target_logit = coh_twins_poisoned(COH_DTYPE_F32, N, 0),
            .logits = scratch(dtype, larger(logits, host_logits)),
            .cache = is_cached ? coh_twins_poisoned(dtype, N * coh_logit_stride(V), 0) : NULL,
            .loss = coh_twins_poisoned(COH_DTYPE_F32, 1, 0),
            .dx = coh_twins_random(dtype, N * C, 0, 4),
            .dx_adds = adds,
            .dweight_adds = adds,
            .dx_sum =
                dtype == COH_DTYPE_BF16 ? coh_twins_poisoned(COH_DTYPE_F32, N * C, 0) : NULL,
            .dweight_sum =
                host_sums > 0 ? coh_twins_poisoned(COH_DTYPE_F32, host_sums, 0) : NULL,
            .loss_share = 0.25f,
            .loss_factor = adds ? coh_twins_copy(&loss_factor, sizeof(loss_factor)) : NULL,
        },
    };
}

/* Gradients are sums of up to V (or N) products of probabilities, each of which may round the other
 * way in bf16: 2^-9 of at most loss_share loss_factor / N, times a normal number. */
static void check_call(const classifier_call *call)
{
    const coh_classifier *c = &call->classifier;
    const int64_t N = c->N;
    coh_twins_check(&(coh_twins_case){
        .name = "classifier",
        .run = run_both,
        .call = call,
        .outputs = { { COH_DTYPE_F32, 1, c->loss },
                     { c->dtype, N * c->C, c->dx },
                     { c->dtype, c->V * c->C, call->dweight },
                     { COH_DTYPE_F32, N, c->max },
                     { COH_DTYPE_F32, N, c->target_logit } },
        .units = 2,
        .absolute = c->dtype == COH_DTYPE_BF16 ? 0x1p-9 * 0.375 / (double)N * 4 : 0x1p-20,
    });
    coh_twins_release();
}

static void losses_and_gradients_are_the_hosts(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++)
        for (int how = 0; how < 16; how++) {
            classifier_call call =
                make_call(dtypes[d], &two_tiles, how & 1 ? 2 : 1, how & 2, how & 4);
            call.classifier.cap = how & 8 ? 1.5f : 0.0f;
            check_call(&call);
        }
}

/* In bf16 the sums of dweight then use their own scratch. */
static void tokens_beyond_a_chunk_are_the_hosts(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        const shape two_chunks = { coh_cuda_classifier_chunk(dtypes[d]) + 5, 8, 9 };
        const classifier_call call = make_call(dtypes[d], &two_chunks, 1, d, 0);
        assert_true((coh_cuda_classifier_sum_bytes(dtypes[d], two_chunks.N, 8, 9) > 0) ==
                    (dtypes[d] == COH_DTYPE_BF16));
        check_call(&call);
    }
}

/* A NaN in the inputs also shows in the gradients. */
static void nan_comes_through(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        const classifier_call call = make_call(dtypes[d], &two_tiles, 1, 0, 0);
        const coh_classifier *c = &call.classifier;
        const size_t row = (size_t)c->C * coh_dtype_bytes(c->dtype);
        memset((char *)(uintptr_t)c->x + 3 * row, 0xff, row);
        coh_twins_enqueue(run_both, &call, 0, NULL);
        assert_true(isnan(*c->loss));
        for (int64_t i = 0; i < c->C; i++) {
            assert_false(isnan(coh_twins_value(c->dtype, c->dx, 2 * c->C + i)));
            assert_true(isnan(coh_twins_value(c->dtype, c->dx, 3 * c->C + i)));
        }
        coh_twins_release();
    }
}

int coh_twins_classifier(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_and_gradients_are_the_hosts),
        cmocka_unit_test(tokens_beyond_a_chunk_are_the_hosts),
        cmocka_unit_test(nan_comes_through),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
