/* The default product, at shapes where tiles begin, end and leave remainders. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/pool.h"
#include "base/rng.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/panel.h"
#include "tests/length.h"

#define EPS 0x1p-24

typedef struct product {
    coh_matmul_layout layout;
    int64_t M, N, K;
    float *a, *b, *c, *before, *bias, *residual;
} product;

static float *normal(int64_t count, uint64_t stream)
{
    float *data = malloc((size_t)count * sizeof(float));
    for (int64_t i = 0; i < count; i++)
        data[i] = (float)coh_rng_normal(31, stream, (uint64_t)i);
    return data;
}

static product make(coh_matmul_layout layout, int64_t M, int64_t N, int64_t K)
{
    product p = { layout,
                  M,
                  N,
                  K,
                  normal(M * K, 1),
                  normal(N * K, 2),
                  normal(M * N, 3),
                  normal(M * N, 3),
                  normal(N, 4),
                  normal(M * N, 5) };
    return p;
}

static void drop(product *p)
{
    free(p->a);
    free(p->b);
    free(p->c);
    free(p->before);
    free(p->bias);
    free(p->residual);
}

TEST_ORACLE static double a_at(const product *p, int64_t i, int64_t k)
{
    return p->layout == COH_MATMUL_TN ? p->a[k * p->M + i] : p->a[i * p->K + k];
}

TEST_ORACLE static double b_at(const product *p, int64_t k, int64_t j)
{
    return p->layout == COH_MATMUL_NT ? p->b[j * p->K + k] : p->b[k * p->N + j];
}

/* Returns element [i,j] of the product, and the sum of its terms' magnitudes. */
TEST_ORACLE static double sum_at(const product *p, int64_t i, int64_t j, double *out_size)
{
    double sum = 0.0, size = 0.0;
    for (int64_t k = 0; k < p->K; k++) {
        const double term = a_at(p, i, k) * b_at(p, k, j);
        sum += term;
        size += fabs(term);
    }
    *out_size = size;
    return sum;
}

/* The sum begins with `first` [M,N] and `bias`; either may be NULL. */
static void check(const product *p, const float *first, const float *bias)
{
    for (int64_t i = 0; i < p->M; i++)
        for (int64_t j = 0; j < p->N; j++) {
            double size;
            const double sum = sum_at(p, i, j, &size);
            const double begin = (first ? first[i * p->N + j] : 0.0) + (bias ? bias[j] : 0.0);
            const double value = sum + begin;
            size += (first ? fabs(first[i * p->N + j]) : 0.0) + (bias ? fabs(bias[j]) : 0.0);
            const double error = fabs(p->c[i * p->N + j] - value);
            if (!(error <= EPS * (double)(p->K + 4) * size))
                fail_msg("layout %d, %lld x %lld x %lld: c[%lld,%lld] is %g, should be %g",
                         (int)p->layout, (long long)p->M, (long long)p->N, (long long)p->K,
                         (long long)i, (long long)j, (double)p->c[i * p->N + j], value);
        }
}

static coh_matmul matmul_of(const product *p)
{
    return (coh_matmul){ .layout = p->layout,
                         .rows = p->M,
                         .columns = p->N,
                         .depth = p->K,
                         .a = p->a,
                         .b = p->b,
                         .c = p->c,
                         .a_stride = p->layout == COH_MATMUL_TN ? p->M : p->K,
                         .b_stride = p->layout == COH_MATMUL_NT ? p->K : p->N,
                         .c_stride = p->N };
}

static void run_all(void *pool, coh_matmul_layout layout, int64_t M, int64_t N, int64_t K)
{
    product p = make(layout, M, N, K);
    coh_matmul m = matmul_of(&p);
    m.adds = 1;
    coh_kernel_matmul(pool, &m);
    check(&p, p.before, NULL);
    m.adds = 0;
    memset(p.c, 0xff, (size_t)(M * N) * sizeof(float)); /* NaN: must not be read */
    coh_kernel_matmul(pool, &m);
    check(&p, NULL, NULL);
    m.bias = p.bias;
    coh_kernel_matmul(pool, &m);
    check(&p, NULL, p.bias);
    m.residual = p.residual;
    coh_kernel_matmul(pool, &m);
    check(&p, p.residual, p.bias);
    m.bias = NULL;
    coh_kernel_matmul(pool, &m);
    check(&p, p.residual, NULL);
    memcpy(p.c, p.residual, (size_t)(M * N) * sizeof(float));
    m.residual = p.c; /* in place */
    coh_kernel_matmul(pool, &m);
    check(&p, p.residual, NULL);
    drop(&p);
}

static void every_layout_is_right_at_tile_edges_and_remainders(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {
        { 1, 1, 1 },
        { 2, 3, 5 },
        { 64, 96, 17 },
        { 65, 97, 16 },
        { 7, 521, 3 },
        { 521, 7, 131 },
        { 256, 384, 11 },
        { 331, 311, 13 },
        { 769, 770, 7 },
        { 193, 3089, 2 },
        { 1, 1031, 64 },
        { 1031, 1, 64 },
        { 5, 41, 2 * COH_PANEL_WORDS + 7 },
    };
    coh_pool *pool;
    assert_int_equal(coh_pool_create(2, &pool), COH_OK);
    for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++)
        for (int layout = 0; layout < 3; layout++)
            run_all(pool, (coh_matmul_layout)layout, shapes[s][0], shapes[s][1], shapes[s][2]);
    coh_pool_destroy(pool);
}

static void column_sums_are_right_and_can_be_added(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {
        { 1, 1 }, { 63, 129 }, { 64, 128 }, { 1009, 17 }, { 200, 401 }
    };
    for (size_t s = 0; s < 5; s++) {
        const int64_t rows = shapes[s][0], columns = shapes[s][1];
        float *x = normal(rows * columns, 7), *sums = normal(columns, 8),
              *before = normal(columns, 8);
        for (int adds = 1; adds >= 0; adds--) {
            coh_kernel_column_sum(
                NULL, &(coh_column_sum){
                          .sums = sums, .x = x, .rows = rows, .columns = columns, .adds = adds });
            for (int64_t j = 0; j < columns; j++) {
                double sum = adds ? before[j] : 0.0, size = fabs(sum);
                for (int64_t i = 0; i < rows; i++) {
                    sum += x[i * columns + j];
                    size += fabs(x[i * columns + j]);
                }
                /* sums of blocks of 64 rows, then over blocks */
                const double terms = 64.0 + (double)rows / 64.0 + 3.0;
                assert_true(fabs(sums[j] - sum) <= EPS * terms * size);
            }
        }
        free(x);
        free(sums);
        free(before);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layout_is_right_at_tile_edges_and_remainders),
        cmocka_unit_test(column_sums_are_right_and_can_be_added),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
