/* The project's products, tile by tile, on every instruction set of this CPU: each layout, element
 * type and epilogue compared with a loop in double, at sizes around the edges of words, registers,
 * panels, blocks of depth and blocks of rows. */
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

#define EPS 0x1p-24 /* of a sum in f32, and of rounding to f32 */

static const char *const isas[] = { "plain", "avx2", "avx512", "avx512bf16", "avx512amx" };
enum { ISAS = sizeof(isas) / sizeof(*isas) };

/* A matrix with a gap after each row, stored as `dtype`. */
typedef struct matrix {
    coh_dtype dtype;
    int64_t rows, columns, stride;
    void *data;
} matrix;

/* Rounds to nearest, ties to even, by the double that lies between two neighbours. */
TEST_ORACLE static uint16_t to_bf16(float x)
{
    uint32_t bits;
    float down, up;
    memcpy(&bits, &x, sizeof(bits));
    const uint32_t low = bits & 0xffff0000u, high = low + 0x10000u;
    memcpy(&down, &low, sizeof(down));
    memcpy(&up, &high, sizeof(up));
    const double middle = ((double)down + (double)up) / 2;
    const int goes_up = fabs((double)x) > fabs(middle) || ((double)x == middle && (low >> 16 & 1u));
    return (uint16_t)((goes_up ? high : low) >> 16);
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

TEST_ORACLE static float from_bf16(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

TEST_ORACLE static float at(const matrix *m, int64_t i, int64_t j)
{
    const int64_t index = i * m->stride + j;
    return m->dtype == COH_DTYPE_BF16 ? from_bf16(((uint16_t *)m->data)[index])
                                      : ((float *)m->data)[index];
}

static matrix make(coh_dtype dtype, int64_t rows, int64_t columns, int64_t gap, uint64_t stream)
{
    matrix m = { dtype, rows, columns, columns + gap, NULL };
    const int64_t count = rows * m.stride;
    m.data = malloc((size_t)count * 4);
    for (int64_t i = 0; i < count; i++) {
        const float x = (float)coh_rng_normal(17, stream, (uint64_t)i);
        if (dtype == COH_DTYPE_BF16)
            ((uint16_t *)m.data)[i] = to_bf16(x);
        else
            ((float *)m.data)[i] = x;
    }
    return m;
}

typedef struct problem {
    coh_matmul_layout layout;
    int64_t rows, columns, depth;
    coh_dtype dtype, c_dtype;
    matrix a, b, c, before, bias, residual, activated;
    double *sums, *sizes; /* for each element of op(a) op(b): the sum of its terms, and of their
                           * magnitudes */
} problem;

TEST_ORACLE static void sum_in_double(problem *p)
{
    const int a_transposed = p->layout == COH_MATMUL_TN, b_transposed = p->layout == COH_MATMUL_NT;
    p->sums = calloc((size_t)(p->rows * p->columns), sizeof(double));
    p->sizes = calloc((size_t)(p->rows * p->columns), sizeof(double));
    for (int64_t i = 0; i < p->rows; i++)
        for (int64_t j = 0; j < p->columns; j++)
            for (int64_t k = 0; k < p->depth; k++) {
                const double a = a_transposed ? at(&p->a, k, i) : at(&p->a, i, k);
                const double b = b_transposed ? at(&p->b, j, k) : at(&p->b, k, j);
                p->sums[i * p->columns + j] += a * b;
                p->sizes[i * p->columns + j] += fabs(a * b);
            }
}

static problem problem_make(coh_matmul_layout layout, const int64_t *shape, coh_dtype dtype,
                            coh_dtype c_dtype, int64_t gap)
{
    const int64_t M = shape[0], N = shape[1], K = shape[2];
    problem p = { layout, M, N, K, dtype, c_dtype };
    p.a = layout == COH_MATMUL_TN ? make(dtype, K, M, gap, 1) : make(dtype, M, K, gap, 1);
    p.b = layout == COH_MATMUL_NT ? make(dtype, N, K, gap, 2) : make(dtype, K, N, gap, 2);
    p.c = make(c_dtype, M, N, gap, 3);
    p.before = make(c_dtype, M, N, gap, 3);
    p.bias = make(dtype, 1, N, 0, 4);
    p.residual = make(dtype, M, N, gap, 5);
    p.activated = make(c_dtype, M, N, gap, 6);
    return p;
}

static void problem_drop(problem *p)
{
    matrix *all[] = { &p->a, &p->b, &p->c, &p->before, &p->bias, &p->residual, &p->activated };
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        free(all[i]->data);
    free(p->sums);
    free(p->sizes);
}

static coh_tile tile_of(const problem *p)
{
    return (coh_tile){ .rows = p->rows,
                       .columns = p->columns,
                       .depth = p->depth,
                       .dtype = p->dtype,
                       .c_dtype = p->c_dtype,
                       .a = p->a.data,
                       .b = p->b.data,
                       .a_stride = p->a.stride,
                       .b_stride = p->b.stride,
                       .c_stride = p->c.stride,
                       .a_transposed = p->layout == COH_MATMUL_TN,
                       .b_transposed = p->layout == COH_MATMUL_NT,
                       .c = p->c.data };
}

/* In short runs a sanitizer sees a third of a shape's types and layouts: each type, and each
 * layout. */
static int is_left_out(int types, int layout, int shape)
{
    return test_is_brief() && (types + layout + shape) % 3 != 0;
}

/* Compares each element of c with the sum in double; the gaps must be unchanged. */
TEST_ORACLE static void check(const char *isa, problem *p, const coh_tile *t,
                              const matrix *residual)
{
    if (p->sums == NULL)
        sum_in_double(p);
    for (int64_t i = 0; i < p->rows; i++) {
        for (int64_t j = 0; j < p->columns; j++) {
            double sum = p->sums[i * p->columns + j], size = p->sizes[i * p->columns + j];
            const double terms[] = { t->bias ? at(&p->bias, 0, j) : 0.0,
                                     residual ? at(residual, i, j) : 0.0,
                                     t->adds ? at(&p->before, i, j) : 0.0 };
            for (int n = 0; n < 3; n++) {
                sum += terms[n];
                size += fabs(terms[n]);
            }
            const double summing = EPS * (double)(p->depth + 5) * size;
            const double rounding =
                p->c_dtype == COH_DTYPE_BF16 ? (fabs(sum) + summing) * 0x1p-8 : 0.0;
            const double bound = summing + rounding;
            if (!(fabs((double)at(&p->c, i, j) - sum) <= bound))
                fail_msg("%s, layout %d, %lld x %lld x %lld, types %d %d: c[%lld,%lld] is %g, not "
                         "%g",
                         isa, (int)p->layout, (long long)p->rows, (long long)p->columns,
                         (long long)p->depth, (int)p->dtype, (int)p->c_dtype, (long long)i,
                         (long long)j, (double)at(&p->c, i, j), sum);
        }
        for (int64_t j = p->columns; j < p->c.stride; j++)
            assert_true(at(&p->c, i, j) == at(&p->before, i, j));
    }
}

static void fill(const problem *p, const matrix *from, int value)
{
    const size_t bytes = p->c_dtype == COH_DTYPE_BF16 ? 2 : 4;
    for (int64_t i = 0; i < p->rows; i++) {
        char *row = (char *)p->c.data + (size_t)(i * p->c.stride) * bytes;
        if (from == NULL)
            memset(row, value, (size_t)p->columns * bytes);
        else
            memcpy(row, (char *)from->data + (size_t)(i * p->c.stride) * bytes,
                   (size_t)p->columns * bytes);
    }
}

static void run_endings(const char *isa, coh_panel_run *run, problem *p)
{
    coh_tile t = tile_of(p);
    fill(p, NULL, 0xff); /* NaN: must not be read */
    run(&t);
    check(isa, p, &t, NULL);
    fill(p, &p->before, 0);
    t.adds = 1;
    run(&t);
    check(isa, p, &t, NULL);
    t.adds = 0;
    t.bias = p->bias.data;
    fill(p, NULL, 0xff);
    run(&t);
    check(isa, p, &t, NULL);
    t.residual = p->residual.data;
    run(&t);
    check(isa, p, &t, &p->residual);
    if (p->c_dtype == p->dtype) {
        t.bias = NULL;
        t.residual = p->c.data;
        fill(p, &p->residual, 0);
        run(&t);
        check(isa, p, &t, &p->residual);
    }
}

/* The activation is computed from the stored c, with the bits of the kernel of that name; also in
 * place of c. */
static void run_activation(const char *isa, coh_panel_run *run, problem *p,
                           coh_activation activation)
{
    const coh_rows *rows = coh_rows_of("plain", COH_DTYPE_F32);
    coh_tile t = tile_of(p);
    t.bias = p->bias.data;
    t.activated = p->activated.data;
    t.activation = activation;
    fill(p, NULL, 0xff);
    run(&t);
    check(isa, p, &t, NULL);
    for (int64_t i = 0; i < p->rows; i++)
        for (int64_t j = 0; j < p->columns; j++) {
            float x = at(&p->c, i, j), y;
            if (activation == COH_ACTIVATION_GELU)
                rows->gelu(&y, &x, 1);
            else
                y = fmaxf(x, 0.0f);
            const float should = p->c_dtype == COH_DTYPE_BF16 ? from_bf16(to_bf16(y)) : y;
            assert_true(at(&p->activated, i, j) == should);
        }
    t.activated = p->c.data;
    run(&t);
    for (int64_t i = 0; i < p->rows; i++)
        for (int64_t j = 0; j < p->columns; j++)
            assert_true(at(&p->activated, i, j) == at(&p->c, i, j));
}

/* In short runs a sanitizer sees every second case with one activation, and the others with the
 * other. */
static void run_activations(const char *isa, coh_panel_run *run, problem *p, int at)
{
    if (!test_is_brief() || at % 2 == 0)
        run_activation(isa, run, p, COH_ACTIVATION_GELU);
    if (!test_is_brief() || at % 2 == 1)
        run_activation(isa, run, p, COH_ACTIVATION_RELU);
}

static void every_tile_is_right_on_every_instruction_set(void **state)
{
    (void)state;
    static const struct {
        int64_t shape[3], gap;
    } cases[] = {
        { { 1, 1, 1 }, 0 },     { { 2, 3, 5 }, 0 },      { { 4, 34, 67 }, 3 },
        { { 3, 5, 1031 }, 0 },  { { 5, 33, 17 }, 0 },    { { 12, 32, 32 }, 0 },
        { { 13, 31, 33 }, 1 },  { { 24, 64, 512 }, 0 },  { { 25, 65, 511 }, 0 },
        { { 7, 40, 1030 }, 2 }, { { 6, 16, 1024 }, 0 },  /* row distances of one cache way */
        { { 257, 17, 19 }, 0 }, { { 31, 259, 110 }, 0 }, /* three groups of panels */
        { { 69, 48, 96 }, 0 },                           /* rows of whole tiles, and a remainder */
    };
    for (int isa = 0; isa < ISAS; isa++)
        for (int types = 0; types < 4; types++) {
            const coh_dtype dtype = types & 1 ? COH_DTYPE_BF16 : COH_DTYPE_F32;
            const coh_dtype c_dtype = types & 2 ? COH_DTYPE_BF16 : COH_DTYPE_F32;
            coh_panel_run *run = coh_panel_run_of(isas[isa], dtype);
            for (size_t s = 0; run != NULL && s < sizeof(cases) / sizeof(*cases); s++)
                for (int layout = 0; layout < 3; layout++) {
                    if (is_left_out(types, layout, (int)s))
                        continue;
                    problem p = problem_make((coh_matmul_layout)layout, cases[s].shape, dtype,
                                             c_dtype, cases[s].gap);
                    if (cases[s].shape[0] * cases[s].shape[2] < 16000)
                        run_endings(isas[isa], run, &p);
                    run_activations(isas[isa], run, &p, (int)s + isa);
                    problem_drop(&p);
                }
        }
}

/* Returns the depth of the deepest block: a word is one element, or a pair. */
static int64_t deepest_block(const char *isa)
{
    return COH_PANEL_WORDS * (coh_panel_run_of(isa, COH_DTYPE_F32) == NULL ? 2 : 1);
}

/* Between two blocks the sums are kept in c or separately. Bias, residual and c are added with the
 * first block; the activation is computed after the last. Columns: whole panels, and part of
 * one. */
static void sums_go_on_from_one_block_of_depth_to_the_next(void **state)
{
    (void)state;
    for (int isa = 0; isa < ISAS; isa++)
        for (int types = 0; types < 4; types++) {
            const coh_dtype dtype = types & 1 ? COH_DTYPE_BF16 : COH_DTYPE_F32;
            const coh_dtype c_dtype = types & 2 ? COH_DTYPE_BF16 : COH_DTYPE_F32;
            const int64_t most = deepest_block(isas[isa]);
            /* two blocks, the smaller not a whole number of words; three of whole words; of pairs,
             * with so many rows that a is packed in two parts and the last block of rows is
             * partial */
            const int64_t shapes[][3] = { { 14, 41, most + 1 },
                                          { 5, 72, 2 * most + 128 },
                                          { 183, 33, most + 1 } };
            coh_panel_run *run = coh_panel_run_of(isas[isa], dtype);
            const int count = coh_panel_run_of(isas[isa], COH_DTYPE_F32) == NULL ? 3 : 2;
            for (int s = 0; run != NULL && s < count; s++)
                for (int layout = 0; layout < 3; layout++) {
                    if (is_left_out(types, layout, s))
                        continue;
                    problem p = problem_make((coh_matmul_layout)layout, shapes[s], dtype, c_dtype,
                                             s == 1 ? 0 : 3);
                    run_endings(isas[isa], run, &p);
                    run_activations(isas[isa], run, &p, s + isa);
                    problem_drop(&p);
                }
        }
}

/* Rows of a begin with infinity, NaN, values that underflow or overflow. The depth is odd: half a
 * pair must not combine with the next row. */
static void what_is_not_a_usual_number_comes_through(void **state)
{
    (void)state;
    enum { ROWS = 13, COLUMNS = 33, DEPTH = 7 };
    static const float special[ROWS] = { INFINITY, NAN, 0x1p-70f, 0x1p100f, 1.0f };
    static const int64_t shape[] = { ROWS, COLUMNS, DEPTH };
    for (int isa = 0; isa < ISAS; isa++)
        for (int types = 0; types < 4; types++) {
            const coh_dtype dtype = types & 1 ? COH_DTYPE_BF16 : COH_DTYPE_F32;
            const coh_dtype c_dtype = types & 2 ? COH_DTYPE_BF16 : COH_DTYPE_F32;
            coh_panel_run *run = coh_panel_run_of(isas[isa], dtype);
            problem p = problem_make(COH_MATMUL_NN, shape, dtype, c_dtype, 0);
            for (int i = 0; i < ROWS * DEPTH; i++) {
                const float x = i % DEPTH == 0 ? special[i / DEPTH] : 0.0f;
                if (dtype == COH_DTYPE_BF16)
                    ((uint16_t *)p.a.data)[i] = x != x ? 0x7fc0 : (uint16_t)(bits_of(x) >> 16);
                else
                    ((float *)p.a.data)[i] = x;
            }
            for (int i = 0; i < COLUMNS * DEPTH; i++) {
                const float x = i / COLUMNS == 0 ? i % 2 ? 0x1p-70f : 0x1p100f : 0.0f;
                if (dtype == COH_DTYPE_BF16)
                    ((uint16_t *)p.b.data)[i] = (uint16_t)(bits_of(x) >> 16);
                else
                    ((float *)p.b.data)[i] = x;
            }
            const coh_tile tile = tile_of(&p);
            if (run != NULL)
                run(&tile);
            for (int j = 0; j < COLUMNS && run != NULL; j++) {
                const int small = j % 2;
                assert_true(at(&p.c, 0, j) == INFINITY);
                assert_true(isnan(at(&p.c, 1, j)));
                assert_true(small ? fabsf(at(&p.c, 2, j)) < 0x1p-126f : at(&p.c, 2, j) == 0x1p30f);
                assert_true(at(&p.c, 3, j) == (small ? 0x1p30f : INFINITY));
            }
            problem_drop(&p);
        }
}

static void run_openblas(const coh_tile *tile)
{
    coh_tile_run_by(COH_PRODUCT_OPENBLAS, tile);
}

/* oneDNN computes what it supports; panels compute the rest. */
static void run_onednn(const coh_tile *tile)
{
    if ((tile->dtype == COH_DTYPE_BF16 || tile->c_dtype == COH_DTYPE_F32) &&
        (tile->residual == NULL || tile->dtype == tile->c_dtype))
        assert_true(coh_onednn_run(tile));
    else
        coh_tile_run_by(COH_PRODUCT_ONEDNN, tile);
}

/* A kernel table may choose them for any shape. */
static void the_libraries_are_right_as_well(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {
        { 1, 1, 1 }, { 2, 3, 5 }, { 13, 31, 33 }, { 25, 65, 511 }, { 110, 100, 101 }
    };
    coh_openblas_start();
    for (int types = 0; types < 4; types++)
        for (int layout = 0; layout < 3; layout++)
            for (int n = 0; n < 5; n++) {
                if (is_left_out(types, layout, n))
                    continue;
                const coh_dtype dtype = types & 1 ? COH_DTYPE_BF16 : COH_DTYPE_F32;
                const coh_dtype c_dtype = types & 2 ? COH_DTYPE_BF16 : COH_DTYPE_F32;
                problem p =
                    problem_make((coh_matmul_layout)layout, shapes[n], dtype, c_dtype, n % 3);
                if (coh_product_available(COH_PRODUCT_OPENBLAS, dtype)) {
                    run_endings("openblas", run_openblas, &p);
                    run_activation("openblas", run_openblas, &p, COH_ACTIVATION_GELU);
                    run_activation("openblas", run_openblas, &p, COH_ACTIVATION_RELU);
                }
                if (coh_product_available(COH_PRODUCT_ONEDNN, dtype)) {
                    run_endings("onednn", run_onednn, &p);
                    run_activation("onednn", run_onednn, &p, COH_ACTIVATION_GELU);
                    run_activation("onednn", run_onednn, &p, COH_ACTIVATION_RELU);
                }
                problem_drop(&p);
            }
}

/* Fused sums differ from twice rounded ones, so plain's f32 differs from the others; the product of
 * two bf16 is exact in f32, so all agree there. */
static void instruction_sets_agree_where_the_header_says_so(void **state)
{
    (void)state;
    static const int64_t shape[] = { 29, 83, 1207 };
    for (int types = 0; types < 2; types++)
        for (int layout = 0; layout < 3; layout++) {
            const coh_dtype dtype = types ? COH_DTYPE_BF16 : COH_DTYPE_F32;
            problem first = problem_make((coh_matmul_layout)layout, shape, dtype, dtype, 0);
            const coh_tile first_tile = tile_of(&first);
            const int begin = dtype == COH_DTYPE_BF16 ? 0 : 1;
            if (coh_panel_run_of(isas[begin], dtype) != NULL)
                coh_panel_run_of(isas[begin], dtype)(&first_tile);
            for (int isa = begin + 1; isa < 3; isa++) {
                problem other = problem_make((coh_matmul_layout)layout, shape, dtype, dtype, 0);
                const coh_tile tile = tile_of(&other);
                if (coh_panel_run_of(isas[isa], dtype) != NULL) {
                    coh_panel_run_of(isas[isa], dtype)(&tile);
                    assert_memory_equal(other.c.data, first.c.data,
                                        (size_t)(shape[0] * shape[1]) * (types ? 2 : 4));
                }
                problem_drop(&other);
            }
            problem_drop(&first);
        }
}

static coh_matmul matmul_of(const problem *p)
{
    return (coh_matmul){ .layout = p->layout,
                         .rows = p->rows,
                         .columns = p->columns,
                         .depth = p->depth,
                         .dtype = p->dtype,
                         .c_dtype = p->c_dtype,
                         .a = p->a.data,
                         .b = p->b.data,
                         .c = p->c.data,
                         .a_stride = p->a.stride,
                         .b_stride = p->b.stride,
                         .c_stride = p->c.stride };
}

static const int threads[] = { 1, 2, 3, 8, 16, 32 };
enum { THREADS = sizeof(threads) / sizeof(threads[0]) };

/* Computes the product on every number of threads; each must give the bits in `c`. */
static void check_threads(problem *p, coh_pool *const *pools, coh_product product, const void *c)
{
    const size_t bytes = (size_t)(p->rows * p->columns) * (p->c_dtype == COH_DTYPE_BF16 ? 2 : 4);
    const coh_matmul m = matmul_of(p);
    /* short with a sanitizer: 2, 16 */
    for (int n = test_is_brief() ? 1 : 0; n < THREADS; n += test_is_brief() ? 3 : 1) {
        fill(p, NULL, 0xff);
        coh_cpu_matmul_by(pools[n], &m, product);
        if (memcmp(p->c.data, c, bytes) != 0)
            fail_msg("%s, layout %d, %lld x %lld x %lld, types %d %d: other bits on %d threads",
                     coh_product_name(product), (int)p->layout, (long long)p->rows,
                     (long long)p->columns, (long long)p->depth, (int)p->dtype, (int)p->c_dtype,
                     threads[n]);
    }
}

/* Above four rows the order of a sum depends only on the depth: one tile gives the same as many.
 * For bf16, the deep case keeps its sums separately: in two parts for the single tile, in one part
 * for each of many. */
static void tiles_change_no_bit(void **state)
{
    (void)state;
    /* Tiles are cut from rows and columns: a sanitizer needs no depth in the first. */
    const int64_t shapes[][3] = { { 530, 803, test_is_brief() ? 67 : 607 },
                                  { 1030, 100, 2 * COH_PANEL_WORDS + 28 } };
    coh_pool *pools[THREADS];
    for (int n = 0; n < THREADS; n++)
        assert_int_equal(coh_pool_create(threads[n], &pools[n]), COH_OK);
    for (int at = 0; at < 2 * 3 * 2; at++) {
        if (test_is_brief() && (at + at / 2 % 3 + at / 6) % 2 != 0) /* each layout in one dtype */
            continue;
        const coh_dtype dtype = at & 1 ? COH_DTYPE_BF16 : COH_DTYPE_F32;
        problem p = problem_make((coh_matmul_layout)(at / 2 % 3), shapes[at / 6], dtype, dtype, 0);
        matrix whole = make(dtype, p.rows, p.columns, 0, 9);
        coh_tile tile = tile_of(&p);
        tile.c = whole.data;
        coh_tile_run_by(COH_PRODUCT_PANELS, &tile);
        check_threads(&p, pools, COH_PRODUCT_PANELS, whole.data);
        free(whole.data);
        problem_drop(&p);
    }
    for (int n = 0; n < THREADS; n++)
        coh_pool_destroy(pools[n]);
}

/* Products with x weight^T of at most four rows sum in another order, and libraries in an order
 * that depends on the tile; both must not show where more threads get smaller tiles. Rows: as in a
 * layer, so that each number of threads has different tiles; one more than 64 of the smallest tiles
 * hold, so tiles are a row each; the same, with such a tile for two threads, too; so few that each
 * tile is one row. */
static void threads_change_no_bit_of_any_product(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {
        { 1040, 416, 300 }, { 1025, 384, 300 }, { 1025, 64, 300 }, { 3, 1000, 300 }
    };
    coh_pool *pools[THREADS];
    coh_openblas_start();
    for (int n = 0; n < THREADS; n++)
        assert_int_equal(coh_pool_create(threads[n], &pools[n]), COH_OK);
    for (int at = 0; at < 4 * 3 * 4; at++) {
        if (is_left_out(at % 4, at / 4 % 3, at / 12))
            continue;
        const coh_dtype dtype = at & 1 ? COH_DTYPE_BF16 : COH_DTYPE_F32;
        const coh_dtype c_dtype = at & 2 ? COH_DTYPE_BF16 : COH_DTYPE_F32;
        problem p =
            problem_make((coh_matmul_layout)(at / 4 % 3), shapes[at / 12], dtype, c_dtype, 0);
        matrix first = make(c_dtype, p.rows, p.columns, 0, 9);
        for (int product = COH_PRODUCT_PANELS; product < COH_PRODUCT_COUNT; product++) {
            coh_matmul m = matmul_of(&p);
            m.c = first.data;
            if (!coh_product_available((coh_product)product, dtype))
                continue;
            coh_cpu_matmul_by(NULL, &m, (coh_product)product);
            check_threads(&p, pools, (coh_product)product, first.data);
        }
        free(first.data);
        problem_drop(&p);
    }
    for (int n = 0; n < THREADS; n++)
        coh_pool_destroy(pools[n]);
}

static int64_t tiles_of(int64_t rows, int64_t columns, coh_product product, int thread_count)
{
    const coh_matmul m = {
        .layout = COH_MATMUL_NT, .rows = rows, .columns = columns, .depth = 768
    };
    return coh_matmul_tile_count(&m, product, thread_count);
}

/* The layers of GPT-2 124M on 2048 tokens. */
static void threads_have_tiles_to_work_on_and_libraries_keep_theirs(void **state)
{
    (void)state;
    static const int64_t widths[] = { 768, 2304, 3072 };
    static const int counts[] = { 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64 };
    /* tall ones, which pack b twice, or once */
    assert_int_equal(tiles_of(2048, 768, COH_PRODUCT_PANELS, 2), 12);
    assert_int_equal(tiles_of(2048, 2304, COH_PRODUCT_PANELS, 2), 18);
    for (int w = 0; w < 3; w++)
        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
            const int count = counts[i];
            const int64_t two = tiles_of(2048, widths[w], COH_PRODUCT_PANELS, 2);
            const int64_t tiles = tiles_of(2048, widths[w], COH_PRODUCT_PANELS, count);
            const int64_t turns = (tiles + count - 1) / count;
            if (count <= 2)
                assert_int_equal(tiles, two);
            if (!(8 * tiles >= 7 * turns * count))
                fail_msg("%lld tiles for %d threads", (long long)tiles, count);
            assert_int_equal(tiles_of(2048, widths[w], COH_PRODUCT_OPENBLAS, count),
                             tiles_of(2048, widths[w], COH_PRODUCT_OPENBLAS, 2));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tile_is_right_on_every_instruction_set),
        cmocka_unit_test(sums_go_on_from_one_block_of_depth_to_the_next),
        cmocka_unit_test(what_is_not_a_usual_number_comes_through),
        cmocka_unit_test(the_libraries_are_right_as_well),
        cmocka_unit_test(instruction_sets_agree_where_the_header_says_so),
        cmocka_unit_test(tiles_change_no_bit),
        cmocka_unit_test(threads_change_no_bit_of_any_product),
        cmocka_unit_test(threads_have_tiles_to_work_on_and_libraries_keep_theirs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
