/* Our own products, tile by tile, on every instruction set of this CPU: each layout, element type
 * and ending against a loop in double, at sizes around the edges of words, registers, panels,
 * blocks of depth and blocks of rows. */
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

#define EPS 0x1p-24 /* of a sum in f32, and of rounding to f32 */

static const char *const isas[] = { "plain", "avx2", "avx512", "avx512bf16" };

/* A matrix with a gap after each row, stored as `dtype`. */
typedef struct matrix {
    coh_dtype dtype;
    int64_t rows, columns, stride;
    void *data;
} matrix;

/* Nearest, ties to even, by the double that lies between two neighbours. */
static uint16_t to_bf16(float x)
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

static float from_bf16(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static float at(const matrix *m, int64_t i, int64_t j)
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
} problem;

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

/* c against the sum in double, each element; what lies in the gaps is as it was. */
static void check(const char *isa, const problem *p, const coh_tile *t, const matrix *residual)
{
    for (int64_t i = 0; i < p->rows; i++) {
        for (int64_t j = 0; j < p->columns; j++) {
            double sum = 0.0, size = 0.0;
            for (int64_t k = 0; k < p->depth; k++) {
                const double a = t->a_transposed ? at(&p->a, k, i) : at(&p->a, i, k);
                const double b = t->b_transposed ? at(&p->b, j, k) : at(&p->b, k, j);
                sum += a * b;
                size += fabs(a * b);
            }
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

/* What is activated is made of the c that was stored: the kernel of that name makes the same bits
 * from it. In place of c it has them too. */
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

static void every_tile_is_right_on_every_instruction_set(void **state)
{
    (void)state;
    static const struct {
        int64_t shape[3], gap;
    } cases[] = {
        { { 1, 1, 1 }, 0 },      { { 2, 3, 5 }, 0 },       { { 4, 34, 67 }, 3 },
        { { 3, 5, 1031 }, 0 },   { { 5, 33, 17 }, 0 },     { { 12, 32, 32 }, 0 },
        { { 13, 31, 33 }, 1 },   { { 24, 64, 512 }, 0 },   { { 25, 65, 511 }, 0 },
        { { 7, 40, 1030 }, 2 },  { { 6, 16, 1024 }, 0 },   /* rows half a way apart */
        { { 257, 17, 19 }, 0 },  { { 31, 259, 1100 }, 0 }, /* sums of bf16 aside, twice */
        { { 16, 48, 2048 }, 0 },
    };
    for (int isa = 0; isa < 4; isa++)
        for (int types = 0; types < 4; types++) {
            const coh_dtype dtype = types & 1 ? COH_DTYPE_BF16 : COH_DTYPE_F32;
            const coh_dtype c_dtype = types & 2 ? COH_DTYPE_BF16 : COH_DTYPE_F32;
            coh_panel_run *run = coh_panel_run_of(isas[isa], dtype);
            for (size_t s = 0; run != NULL && s < sizeof(cases) / sizeof(*cases); s++)
                for (int layout = 0; layout < 3; layout++) {
                    problem p = problem_make((coh_matmul_layout)layout, cases[s].shape, dtype,
                                             c_dtype, cases[s].gap);
                    if (cases[s].shape[0] * cases[s].shape[2] < 16000)
                        run_endings(isas[isa], run, &p);
                    run_activation(isas[isa], run, &p, COH_ACTIVATION_GELU);
                    run_activation(isas[isa], run, &p, COH_ACTIVATION_RELU);
                    problem_drop(&p);
                }
        }
}

/* Rows of a: infinity, NaN, what underflows, what overflows. The depth is odd and they begin their
 * rows: half a pair must not meet the next row. */
static void what_is_not_a_usual_number_comes_through(void **state)
{
    (void)state;
    enum { ROWS = 13, COLUMNS = 33, DEPTH = 7 };
    static const float special[ROWS] = { INFINITY, NAN, 0x1p-70f, 0x1p100f, 1.0f };
    static const int64_t shape[] = { ROWS, COLUMNS, DEPTH };
    for (int isa = 0; isa < 4; isa++)
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

/* What it does not take goes to the panels. */
static void run_onednn(const coh_tile *tile)
{
    if ((tile->dtype == COH_DTYPE_BF16 || tile->c_dtype == COH_DTYPE_F32) &&
        (tile->residual == NULL || tile->dtype == tile->c_dtype))
        assert_true(coh_onednn_run(tile));
    else
        coh_tile_run_by(COH_PRODUCT_ONEDNN, tile);
}

/* A kernel table may send any shape there. */
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

/* Fused and twice rounded sums differ, so plain's f32 stands alone; the product of two bf16 is
 * exact in f32, so there it does not. */
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

/* Above four rows the order of a sum depends on the depth alone. */
static void threads_and_tiles_change_no_bit(void **state)
{
    (void)state;
    static const int64_t shape[] = { 530, 803, 607 };
    static const int threads[] = { 1, 2, 3, 8 };
    for (int types = 0; types < 2; types++)
        for (int layout = 0; layout < 3; layout++) {
            const coh_dtype dtype = types ? COH_DTYPE_BF16 : COH_DTYPE_F32;
            problem p = problem_make((coh_matmul_layout)layout, shape, dtype, dtype, 0);
            matrix whole = make(dtype, shape[0], shape[1], 0, 9);
            coh_tile tile = tile_of(&p);
            tile.c = whole.data;
            coh_tile_run_by(COH_PRODUCT_PANELS, &tile);
            for (int n = 0; n < 4; n++) {
                coh_pool *pool;
                assert_int_equal(coh_pool_create(threads[n], &pool), COH_OK);
                const coh_matmul m = { .layout = p.layout,
                                       .rows = p.rows,
                                       .columns = p.columns,
                                       .depth = p.depth,
                                       .dtype = dtype,
                                       .c_dtype = dtype,
                                       .a = p.a.data,
                                       .b = p.b.data,
                                       .c = p.c.data,
                                       .a_stride = p.a.stride,
                                       .b_stride = p.b.stride,
                                       .c_stride = p.c.stride };
                fill(&p, NULL, 0xff);
                coh_kernel_matmul_by(pool, &m, COH_PRODUCT_PANELS);
                assert_memory_equal(p.c.data, whole.data,
                                    (size_t)(shape[0] * shape[1]) * (types ? 2 : 4));
                coh_pool_destroy(pool);
            }
            free(whole.data);
            problem_drop(&p);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tile_is_right_on_every_instruction_set),
        cmocka_unit_test(what_is_not_a_usual_number_comes_through),
        cmocka_unit_test(the_libraries_are_right_as_well),
        cmocka_unit_test(instruction_sets_agree_where_the_header_says_so),
        cmocka_unit_test(threads_and_tiles_change_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
