/* Norms, embedding, positions and rope on CUDA compared with the host's: both element types, rows
 * aligned to 16 bytes or not, short rows of which a block has many, and rows too long for
 * registers. */
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
#include "tests/length.h"

static const coh_dtype dtypes[] = { COH_DTYPE_F32, COH_DTYPE_BF16 };

/* Bounds the error of sums of n products of normal numbers in another order: sqrt(n) roundings of
 * numbers of the sum's size, in total about n 2^-24. */
static double sum_error(int64_t n)
{
    return (double)(n + 64) * 0x1p-22;
}

/* ---- norms ---- */

static void run_norm(void *queue, const void *call)
{
    coh_kernel_norm(queue, call);
}

static void run_norm_backward(void *queue, const void *call)
{
    coh_kernel_norm_backward(queue, call);
}

/* One row per warp; one that fills no pack; several warps; more than a block's threads hold; and
 * (f32) more than registers can sum. */
static const int64_t norm_shapes[][2] = { { 9, 32 },   { 5, 37 },   { 3, 1000 },
                                          { 2, 1601 }, { 2, 3600 }, { 1, 17000 } };
enum { NORM_SHAPES = 6 };

static void norms_are_the_hosts(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++)
        for (int s = 0; s < NORM_SHAPES; s++)
            for (int is_rms = 0; is_rms < 2; is_rms++) {
                const coh_dtype dtype = dtypes[d];
                const int64_t N = norm_shapes[s][0], C = norm_shapes[s][1];
                float *mean = is_rms ? NULL : coh_twins_poisoned(COH_DTYPE_F32, N, 0);
                coh_norm call = { .N = N,
                                  .C = C,
                                  .dtype = dtype,
                                  .epsilon = 1e-5f,
                                  .offset = is_rms ? 0.5f : -0.0f,
                                  .x = coh_twins_random(dtype, N * C, s == 2, 1),
                                  .weight = coh_twins_random(dtype, C, 0, 2),
                                  .bias = is_rms ? NULL : coh_twins_random(dtype, C, 0, 3),
                                  .y = coh_twins_poisoned(dtype, N * C, 0),
                                  .mean = mean,
                                  .rstd = coh_twins_poisoned(COH_DTYPE_F32, N, 0) };
                coh_twins_check(&(coh_twins_case){ .name = is_rms ? "rms norm" : "layer norm",
                                                   .run = run_norm,
                                                   .call = &call,
                                                   .outputs = { { dtype, N * C, call.y },
                                                                { COH_DTYPE_F32, N, call.rstd },
                                                                { COH_DTYPE_F32, N, mean } },
                                                   .units = 2,
                                                   .absolute = 0x1p-19 });
                coh_twins_release();
            }
}

/* Computes the statistics that forward leaves. */
static void take_statistics(coh_norm *norm)
{
    coh_norm forward = *norm;
    forward.y = coh_twins_poisoned(norm->dtype, norm->N * norm->C, 0);
    forward.bias = norm->weight;
    coh_kernel_norm(NULL, &forward);
}

/* `how`: 0 all, 1 added to existing values, 2 dx in place of dy, 3 no dx, 4 only dx, 5 no
 * dweight. */
static void check_norm_backward(coh_dtype dtype, int64_t N, int64_t C, int is_rms, int how)
{
    const int64_t partials = coh_cuda_norm_partials(N, C) > coh_kernel_norm_partials(N, C)
                                 ? coh_cuda_norm_partials(N, C)
                                 : coh_kernel_norm_partials(N, C);
    coh_norm call = { .N = N,
                      .C = C,
                      .dtype = dtype,
                      .epsilon = 1e-5f,
                      .offset = is_rms ? 0.5f : -0.0f,
                      .x = coh_twins_random(dtype, N * C, 0, 1),
                      .weight = coh_twins_random(dtype, C, 0, 2),
                      .mean = is_rms ? NULL : coh_twins_poisoned(COH_DTYPE_F32, N, 0),
                      .rstd = coh_twins_poisoned(COH_DTYPE_F32, N, 0),
                      .dx_adds = how == 1,
                      .dweight_adds = how == 1,
                      .dbias_adds = how == 1,
                      .partials = coh_twins_poisoned(COH_DTYPE_F32, partials, 0) };
    void *dx = coh_twins_random(dtype, N * C, 0, 4), *dweight = coh_twins_random(dtype, C, 0, 5);
    void *dbias = coh_twins_random(dtype, C, 0, 6);
    call.dy = how == 2 ? dx : coh_twins_random(dtype, N * C, 0, 7);
    call.dx = how == 3 ? NULL : dx;
    call.dweight = how >= 4 ? NULL : dweight;
    call.dbias = how == 4 || is_rms ? NULL : dbias;
    take_statistics(&call);
    coh_twins_check(&(coh_twins_case){
        .name = is_rms ? "rms norm backward" : "layer norm backward",
        .run = run_norm_backward,
        .call = &call,
        .outputs = { { dtype, N * C, dx }, { dtype, C, dweight }, { dtype, C, dbias } },
        .units = 2,
        .absolute = sum_error(N) + 0x1p-18,
    });
    coh_twins_release();
}

static void gradients_of_norms_are_the_hosts(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++)
        for (int s = 0; s + (d ? 2 : 1) < NORM_SHAPES; s++)
            for (int is_rms = 0; is_rms < 2; is_rms++)
                for (int how = 0; how < (s < 2 ? 6 : 1); how++)
                    check_norm_backward(dtypes[d], norm_shapes[s][0], norm_shapes[s][1], is_rms,
                                        how);
}

/* More rows than are copied ahead; none copied ahead; rows that end within a pack; sums in shared
 * memory; more than shared memory holds. `repeats`: another case covers the same code; short runs
 * omit it, since thousands of columns take long to emulate. */
static void gradients_of_wide_norms_are_the_hosts(void **state)
{
    (void)state;
    static const struct {
        coh_dtype dtype;
        int64_t N, C;
        int is_rms, how, repeats;
    } cases[] = {
        { COH_DTYPE_F32, 10, 3700, 0, 0 },  { COH_DTYPE_F32, 2, 4096, 1, 1, .repeats = 1 },
        { COH_DTYPE_F32, 2, 8001, 0, 2 },   { COH_DTYPE_F32, 1, 12288, 1, 3 },
        { COH_DTYPE_F32, 1, 12290, 0, 1 },  { COH_DTYPE_BF16, 9, 4104, 0, 1 },
        { COH_DTYPE_BF16, 2, 8192, 0, 1 },  { COH_DTYPE_BF16, 1, 8192, 1, 4, .repeats = 1 },
        { COH_DTYPE_BF16, 2, 9217, 1, 0 },  { COH_DTYPE_BF16, 1, 12288, 0, 2, .repeats = 1 },
        { COH_DTYPE_BF16, 2, 12300, 0, 0 },
    };
    for (int i = 0; i < 11; i++)
        if (!cases[i].repeats || !test_is_short())
            check_norm_backward(cases[i].dtype, cases[i].N, cases[i].C, cases[i].is_rms,
                                cases[i].how);
}

/* Blocks of eight rows with a short last one; rows next to one another in a block. */
static void partial_sums_of_norms_are_folded(void **state)
{
    (void)state;
    check_norm_backward(COH_DTYPE_BF16, 77, 40, 0, 0);
    check_norm_backward(COH_DTYPE_F32, 77, 40, 0, 1);
    check_norm_backward(COH_DTYPE_BF16, 3000, 8, 1, 0);
}

/* ---- embedding ---- */

typedef struct lookup {
    coh_embedding embedding;
    void *to;
    const void *from;
    int adds;
} lookup;

static void run_embedding(void *queue, const void *call)
{
    const lookup *l = call;
    coh_kernel_embedding(queue, &l->embedding, l->to, l->from);
}

static void run_embedding_backward(void *queue, const void *call)
{
    const lookup *l = call;
    coh_kernel_embedding_backward(queue, &l->embedding, l->to, l->from, l->adds);
}

/* Makes tokens: one of them occurs `heavy` times in a hundred, the others anywhere in the
 * vocabulary. */
static int32_t *make_tokens(int64_t N, int32_t vocabulary, int heavy)
{
    int32_t *tokens = coh_twins_zeros((size_t)N * sizeof(int32_t));
    uint32_t state = 12345;
    for (int64_t n = 0; n < N; n++) {
        state = state * 1664525u + 1013904223u;
        tokens[n] = (state >> 8) % 100 < (uint32_t)heavy ? vocabulary / 2
                                                         : (int32_t)((state >> 9) % vocabulary);
    }
    return tokens;
}

enum { VOCABULARY = 60, BEGIN = 10, END = 55 };

/* `is_rare`: no token occurs more than 32 times, so sums have the host's order. */
static void check_lookups(coh_dtype dtype, int64_t N, int64_t C, const int32_t *tokens, int is_rare,
                          int adds)
{
    lookup call = { .embedding = { .N = N,
                                   .C = C,
                                   .row_begin = BEGIN,
                                   .row_end = END,
                                   .tokens = tokens,
                                   .dtype = dtype,
                                   .has_padding = adds,
                                   .padding = 20 },
                    .adds = adds };
    call.from = coh_twins_random(dtype, (END - BEGIN) * C, 0, 1);
    call.to = coh_twins_random(dtype, N * C, 0, 2);
    coh_twins_check(&(coh_twins_case){ .name = "embedding",
                                       .run = run_embedding,
                                       .call = &call,
                                       .outputs = { { dtype, N * C, call.to } } });
    call.from = coh_twins_random(dtype, N * C, 0, 3);
    call.to = coh_twins_random(dtype, (END - BEGIN) * C, 0, 4);
    call.embedding.order = coh_twins_poisoned(COH_DTYPE_F32, coh_cuda_embedding_order(N), 0);
    coh_twins_check(&(coh_twins_case){ .name = "embedding backward",
                                       .run = run_embedding_backward,
                                       .call = &call,
                                       .outputs = { { dtype, (END - BEGIN) * C, call.to } },
                                       .units = is_rare ? 0 : 2,
                                       .absolute = is_rare ? 0 : sum_error(N) });
    coh_twins_release();
}

static void check_embedding(coh_dtype dtype, int64_t N, int64_t C, int heavy, int adds)
{
    check_lookups(dtype, N, C, make_tokens(N, VOCABULARY, heavy), heavy == 0, adds);
}

static void embeddings_are_the_hosts(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++)
        for (int adds = 0; adds < 2; adds++) {
            check_embedding(dtypes[d], 1, 8, 0, adds);
            check_embedding(dtypes[d], 150, 264, 0, adds);
            check_embedding(dtypes[d], 150, 37, 0, adds);
            check_embedding(dtypes[d], 300, 264, 60, adds);
            check_embedding(dtypes[d], 300, 37, 100, adds);
        }
}

/* One warp sums the first two rows, a block sums the third: each exactly once. */
static void rows_of_31_32_and_33_tokens_are_the_hosts(void **state)
{
    (void)state;
    enum { COUNT = 31 + 32 + 33 };
    for (int d = 0; d < 2; d++) {
        int32_t *tokens = coh_twins_zeros(COUNT * sizeof(int32_t));
        for (int n = 0; n < COUNT; n++)
            tokens[n] = BEGIN + (n < 93 ? n % 3 : n == 93 ? 1 : 2);
        check_lookups(dtypes[d], COUNT, 16, tokens, 0, 1);
    }
}

/* Five tiles of keys are merged three times, and the last run has no partner. */
static void keys_of_many_tokens_are_merged(void **state)
{
    (void)state;
    check_embedding(COH_DTYPE_BF16, 4 * 2048 + 100, 8, 20, 0);
}

/* ---- position ---- */

static void run_position(void *queue, const void *call)
{
    coh_kernel_position(queue, call);
}

static void run_position_backward(void *queue, const void *call)
{
    coh_kernel_position_backward(queue, call);
}

static void positions_are_the_hosts(void **state)
{
    (void)state;
    static const int32_t third = 3;
    for (int d = 0; d < 2; d++)
        for (int how = 0; how < 4; how++) {
            const coh_dtype dtype = dtypes[d];
            const int64_t B = 11, T = 5, C = how & 1 ? 13 : 24, rows = 9;
            coh_position call = { .dtype = dtype,
                                  .B = B,
                                  .T = T,
                                  .C = C,
                                  .rows = rows,
                                  .x = coh_twins_random(dtype, B * T * C, 0, 1),
                                  .weight = coh_twins_random(dtype, rows * C, 0, 2),
                                  .y = coh_twins_poisoned(dtype, B * T * C, 0),
                                  .position =
                                      how & 2 ? coh_twins_copy(&third, sizeof(third)) : NULL };
            coh_twins_check(&(coh_twins_case){ .name = "position",
                                               .run = run_position,
                                               .call = &call,
                                               .outputs = { { dtype, B * T * C, call.y } } });
            coh_position_gradient gradient = {
                .dtype = dtype,
                .B = B,
                .T = T,
                .C = C,
                .rows = rows,
                .offset = 2,
                .dy = call.x,
                .dweight = coh_twins_random(dtype, rows * C, 0, 3),
                .adds = how & 2,
            };
            coh_twins_check(
                &(coh_twins_case){ .name = "position backward",
                                   .run = run_position_backward,
                                   .call = &gradient,
                                   .outputs = { { dtype, rows * C, gradient.dweight } } });
            coh_twins_release();
        }
}

/* ---- rope ---- */

static void run_rope(void *queue, const void *call)
{
    coh_kernel_rope(queue, call);
}

static void turns_are_the_hosts(void **state)
{
    (void)state;
    static const int32_t far = 100000;
    static float frequencies[64];
    for (int c = 0; c < 64; c++)
        frequencies[c] = (float)pow(10000.0, -c / 64.0);
    for (int d = 0; d < 2; d++)
        for (int how = 0; how < 16; how++) {
            const coh_dtype dtype = dtypes[d];
            const int64_t B = 2, T = 7, H = 3, D = how & 1 ? 10 : 48;
            const int64_t wide = H * D + (how & 8 ? how & 2 ? 5 : 16 : 0), count = B * T * wide;
            coh_rope call = { .B = B,
                              .T = T,
                              .H = H,
                              .D = D,
                              .x_stride = how & 4 ? wide : H * D,
                              .y_stride = wide,
                              .magnitude = how & 8 ? 1.375f : 1.0f,
                              .position = how & 4 ? coh_twins_copy(&far, sizeof(far)) : NULL,
                              .dtype = dtype,
                              .frequencies = frequencies,
                              .y = coh_twins_random(dtype, count, 0, 1),
                              .turns_back = how & 2,
                              .adds = (how & 7) == 2 };
            call.x = how == 4 ? call.y : coh_twins_random(dtype, count, 0, 2);
            coh_twins_check(&(coh_twins_case){ .name = "rope",
                                               .run = run_rope,
                                               .call = &call,
                                               .outputs = { { dtype, count, call.y } },
                                               .units = 2,
                                               .absolute = 0x1p-21 });
            coh_twins_release();
        }
}

int coh_twins_rows(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_are_the_hosts),
        cmocka_unit_test(gradients_of_norms_are_the_hosts),
        cmocka_unit_test(gradients_of_wide_norms_are_the_hosts),
        cmocka_unit_test(partial_sums_of_norms_are_folded),
        cmocka_unit_test(embeddings_are_the_hosts),
        cmocka_unit_test(rows_of_31_32_and_33_tokens_are_the_hosts),
        cmocka_unit_test(keys_of_many_tokens_are_merged),
        cmocka_unit_test(positions_are_the_hosts),
        cmocka_unit_test(turns_are_the_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
