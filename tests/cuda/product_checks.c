#include "tests/cuda/product_checks.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "base/rng.h"
#include "kernels/kernels.h"

/* ---- failures: in every program with these checks ---- */

void gpu_fail(gpu_check *check, const char *format, ...)
{
    va_list arguments;
    if (check->failure[0] != '\0')
        return;
    va_start(arguments, format);
    vsnprintf(check->failure, sizeof(check->failure), format, arguments);
    va_end(arguments);
}

int gpu_failed(const gpu_check *check)
{
    return check->failure[0] != '\0';
}

/* ---- operands ---- */

typedef struct matrix {
    coh_dtype dtype;
    int64_t rows, columns, stride;
    size_t bytes;
    float *values; /* the device's values, widened */
    void *host;    /* as stored */
    char *device;
} matrix;

/* Makes a matrix; rows are `gap` elements apart and begin `shift` elements after a boundary of 256
 * bytes. */
static matrix make(gpu_check *check, coh_dtype dtype, int64_t rows, int64_t columns, int64_t gap,
                   int64_t shift, uint64_t stream)
{
    const size_t element = coh_dtype_bytes(dtype);
    matrix x = { .dtype = dtype, .rows = rows, .columns = columns, .stride = columns + gap };
    const int64_t count = rows * x.stride;
    x.bytes = (size_t)count * element;
    x.values = calloc((size_t)count, sizeof(float));
    x.host = malloc(x.bytes);
    char *place = gpu_take(check, x.bytes + (size_t)shift * element);
    if (x.values == NULL || x.host == NULL || place == NULL) {
        gpu_fail(check, "no memory for an operand");
        return x;
    }
    x.device = place + (size_t)shift * element;
    for (int64_t i = 0; i < count; i++) {
        float value = (float)coh_rng_normal(17, stream, (uint64_t)i);
        if (dtype == COH_DTYPE_BF16)
            ((uint16_t *)x.host)[i] = coh_bf16_of_f32(value);
        else
            ((float *)x.host)[i] = value;
        x.values[i] = dtype == COH_DTYPE_BF16 ? coh_f32_of_bf16(coh_bf16_of_f32(value)) : value;
    }
    gpu_put(check, x.device, x.host, x.bytes);
    return x;
}

static void drop(matrix *x)
{
    free(x->values);
    free(x->host);
}

static double get(const matrix *x, int64_t row, int64_t column)
{
    return (double)x->values[row * x->stride + column];
}

/* Reads a matrix back from the device. */
static void fetch(gpu_check *check, matrix *x)
{
    gpu_get(check, x->host, x->device, x->bytes);
    coh_half_convert(x->dtype, x->host, COH_DTYPE_F32, x->values, x->rows * x->stride);
}

typedef struct trial {
    coh_matmul_layout layout;
    coh_dtype dtype, c_dtype;
    int64_t rows, columns, depth, gap, shift;
    int adds, bias, residual; /* residual 2: in place */
    int activated;            /* 1: in addition to c, 2: in place of c */
    coh_activation activation;
} trial;

typedef struct operands {
    matrix a, b, bias, residual, c, activated, before;
} operands;

static operands make_all(gpu_check *check, const trial *t)
{
    const int a_down = t->layout == COH_MATMUL_TN, b_down = t->layout != COH_MATMUL_NT;
    return (operands){
        .a = make(check, t->dtype, a_down ? t->depth : t->rows, a_down ? t->rows : t->depth, t->gap,
                  t->shift, 1),
        .b = make(check, t->dtype, b_down ? t->depth : t->columns, b_down ? t->columns : t->depth,
                  t->gap, t->shift, 2),
        .bias = make(check, t->dtype, 1, t->columns, 0, t->shift, 3),
        .residual = make(check, t->dtype, t->rows, t->columns, t->gap, t->shift, 4),
        .c = make(check, t->c_dtype, t->rows, t->columns, t->gap, t->shift, 5),
        .activated = make(check, t->c_dtype, t->rows, t->columns, t->gap, t->shift, 6),
        .before = make(check, t->c_dtype, t->rows, t->columns, t->gap, t->shift, 5),
    };
}

static void drop_all(operands *o)
{
    matrix *all[] = { &o->a, &o->b, &o->bias, &o->residual, &o->c, &o->activated, &o->before };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        drop(all[i]);
}

static coh_matmul matmul_of(const trial *t, const operands *o)
{
    return (coh_matmul){
        .layout = t->layout,
        .dtype = t->dtype,
        .c_dtype = t->c_dtype,
        .rows = t->rows,
        .columns = t->columns,
        .depth = t->depth,
        .a = o->a.device,
        .b = o->b.device,
        .c = o->c.device,
        .a_stride = o->a.stride,
        .b_stride = o->b.stride,
        .c_stride = o->c.stride,
        .bias = t->bias ? o->bias.device : NULL,
        .residual = t->residual == 2   ? o->c.device
                    : t->residual == 1 ? o->residual.device
                                       : NULL,
        .activated = t->activated == 2   ? o->c.device
                     : t->activated == 1 ? o->activated.device
                                         : NULL,
        .activation = t->activation,
        .adds = t->adds,
    };
}

static void enqueue(void *queue, void *context)
{
    coh_kernel_matmul(queue, context);
}

/* Sets c before a run: the sum's initial values, or NaN; the activated output: NaN. */
static void poison(gpu_check *check, const trial *t, operands *o)
{
    memset(o->activated.host, 0xff, o->activated.bytes);
    gpu_put(check, o->activated.device, o->activated.host, o->activated.bytes);
    if (t->adds || t->residual == 2)
        memcpy(o->c.host, o->before.host, o->c.bytes);
    else
        memset(o->c.host, 0xff, o->c.bytes);
    gpu_put(check, o->c.device, o->c.host, o->c.bytes);
}

static void complain(gpu_check *check, const trial *t, const char *what, int64_t i, int64_t j,
                     double is, double should)
{
    enum { LINES_MOST = 20 };
    if (check->wrong_forms++ >= LINES_MOST)
        return;
    printf("layout %d, type %d to %d, %lld x %lld x %lld, gap %lld, shift %lld, adds %d, bias "
           "%d, residual %d, activated %d by %d: %s[%lld,%lld] is %g, should be %g\n",
           (int)t->layout, (int)t->dtype, (int)t->c_dtype, (long long)t->rows,
           (long long)t->columns, (long long)t->depth, (long long)t->gap, (long long)t->shift,
           t->adds, t->bias, t->residual, t->activated, (int)t->activation, what, (long long)i,
           (long long)j, is, should);
}

/* Returns the relative error of storing: half a unit in the last place for bf16; for f32 it is one
 * of the sums' roundings. */
static double storing(coh_dtype dtype)
{
    return dtype == COH_DTYPE_BF16 ? 0x1p-8 : 0x1p-22;
}

static double activation(const trial *t, double x)
{
    if (t->activation == COH_ACTIVATION_RELU)
        return x > 0.0 ? x : 0.0;
    return 0.5 * x * (1.0 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}

/* An element of c: the product, what it is added to, the bias, their sum, and the sum of all
 * magnitudes. */
typedef struct exact {
    double product, first, bias, sum, size;
} exact;

static exact exact_of(const trial *t, const operands *o, int64_t i, int64_t j)
{
    const matrix *begin = t->adds || t->residual == 2 ? &o->before : &o->residual;
    exact x = { 0 };
    for (int64_t k = 0; k < t->depth; k++) {
        const double term = (t->layout == COH_MATMUL_TN ? get(&o->a, k, i) : get(&o->a, i, k)) *
                            (t->layout == COH_MATMUL_NT ? get(&o->b, j, k) : get(&o->b, k, j));
        x.product += term;
        x.size += fabs(term);
    }
    if (t->adds || t->residual)
        x.first = get(begin, i, j);
    if (t->bias && !t->adds)
        x.bias = get(&o->bias, 0, j);
    x.sum = x.product + x.first + x.bias;
    x.size += fabs(x.first) + fabs(x.bias);
    return x;
}

/* Returns the rounding that a library may do between additions: some algorithms of cuBLASLt 13.1 on
 * an H200 rounded the product, or the product and one of the two that are added to it, to the type
 * of c first. */
static double between(const trial *t, const exact *x)
{
    if (t->c_dtype != COH_DTYPE_BF16 || (!t->adds && !t->residual && !t->bias))
        return 0.0;
    return storing(t->c_dtype) *
           (fabs(x->product) + fabs(x->product + x->first) + fabs(x->product + x->bias));
}

/* The bound of c before an activation. A product of two numbers of either type is exact or has one
 * rounding. Tensor cores truncate sums, so each of depth + 4 additions loses up to 2^-23 of the
 * summed magnitudes (Fasi et al. 2021, section 3). */
static double bound_of(gpu_check *check, const trial *t, const exact *x, double got)
{
    const double sums = 0x1p-23 * (double)(t->depth + 4) * x->size;
    const double bound = sums + storing(t->c_dtype) * fabs(x->sum);
    if (!check->rounds_products)
        return bound;
    check->rounded_elements += t->activated != 2 && fabs(got - x->sum) > bound;
    return bound + between(t, x);
}

static void check_c(gpu_check *check, const trial *t, const operands *o, int64_t i, int64_t j)
{
    const exact x = exact_of(t, o, i, j);
    const double got = get(&o->c, i, j), bound = bound_of(check, t, &x, got);
    const double should = t->activated == 2 ? activation(t, x.sum) : x.sum;
    /* either activation has a slope of at most 1.13 */
    const double slack = t->activated == 2 ? 1.13 * bound + storing(t->c_dtype) * fabs(should) +
                                                 0x1p-18 * (1.0 + fabs(x.sum))
                                           : bound;
    if (!(fabs(got - should) <= slack))
        complain(check, t, "c", i, j, got, should);
}

/* Checks the activation of the values that c stores, not of unrounded ones. */
static void check_activated(gpu_check *check, const trial *t, const operands *o, int64_t i,
                            int64_t j)
{
    const double x = get(&o->c, i, j), is = get(&o->activated, i, j), should = activation(t, x);
    const double bound = t->activation == COH_ACTIVATION_RELU
                             ? 0.0
                             : storing(t->c_dtype) * fabs(should) + 0x1p-20 * (1.0 + fabs(x));
    if (!(fabs(is - should) <= bound))
        complain(check, t, "activated", i, j, is, should);
}

static int gaps_are_as_before(const trial *t, const operands *o, const void *first)
{
    const size_t element = coh_dtype_bytes(t->c_dtype);
    for (int64_t i = 0; i < t->rows; i++) {
        const size_t at = (size_t)(i * o->c.stride + t->columns) * element;
        if (memcmp((const char *)o->c.host + at, (const char *)first + at,
                   (size_t)t->gap * element) != 0)
            return 0;
    }
    return 1;
}

/* Runs twice and compares the bits. */
static void run_twice(gpu_check *check, const trial *t, operands *o)
{
    coh_matmul m = matmul_of(t, o);
    char *before = malloc(2 * o->c.bytes), *first = before + o->c.bytes;
    if (before == NULL) {
        gpu_fail(check, "no memory for two copies");
        return;
    }
    const int wrong_forms = check->wrong_forms;
    for (int run = 0; run < 2 && !gpu_failed(check) && check->wrong_forms == wrong_forms; run++) {
        poison(check, t, o);
        memcpy(before, o->c.host, o->c.bytes);
        gpu_run(check, enqueue, &m, NULL);
        fetch(check, &o->c);
        fetch(check, &o->activated);
        if (!gpu_failed(check) && !gaps_are_as_before(t, o, before))
            complain(check, t, "between rows", 0, 0, NAN, 0.0);
        if (run == 0)
            memcpy(first, o->c.host, o->c.bytes);
        else if (memcmp(first, o->c.host, o->c.bytes) != 0)
            complain(check, t, "run twice, other bits", 0, 0, NAN, 0.0);
    }
    free(before);
}

static void run(gpu_check *check, const trial *t)
{
    const size_t used_bytes = check->used_bytes;
    const int wrong_forms = check->wrong_forms;
    const int64_t rounded_elements = check->rounded_elements;
    if (gpu_failed(check))
        return;
    operands o = make_all(check, t);
    if (!gpu_failed(check))
        run_twice(check, t, &o);
    for (int64_t i = 0; i < t->rows && check->wrong_forms == wrong_forms; i++)
        for (int64_t j = 0; j < t->columns && check->wrong_forms == wrong_forms; j++) {
            check_c(check, t, &o, i, j);
            if (t->activated == 1)
                check_activated(check, t, &o, i, j);
        }
    check->rounded_forms += check->rounded_elements > rounded_elements;
    drop_all(&o);
    check->used_bytes = used_bytes;
}

static const trial endings[] = {
    { .adds = 0 },
    { .adds = 1 },
    { .bias = 1 },
    { .residual = 1 },
    { .residual = 2, .bias = 1 },
    { .activated = 2, .activation = COH_ACTIVATION_RELU },
    { .bias = 1, .activated = 2, .activation = COH_ACTIVATION_RELU },
    { .bias = 1, .residual = 1, .activated = 1, .activation = COH_ACTIVATION_RELU },
    { .bias = 1, .activated = 1, .activation = COH_ACTIVATION_GELU },
    { .bias = 1, .activated = 2, .activation = COH_ACTIVATION_GELU },
};

void product_check_shapes(gpu_check *check, const int64_t (*shapes)[3], size_t count)
{
    static const coh_dtype types[][2] = { { COH_DTYPE_F32, COH_DTYPE_F32 },
                                          { COH_DTYPE_BF16, COH_DTYPE_BF16 },
                                          { COH_DTYPE_BF16, COH_DTYPE_F32 } };
    static const int64_t places[][2] = { { 0, 0 }, { 8, 0 }, { 3, 0 }, { 0, 1 } }; /* gap, shift */
    for (size_t s = 0; s < count; s++)
        for (int layout = COH_MATMUL_NT; layout <= COH_MATMUL_TN; layout++)
            for (int type = 0; type < 3; type++)
                for (size_t n = 0; n < sizeof(endings) / sizeof(endings[0]); n++) {
                    if (endings[n].residual == 2 && types[type][0] != types[type][1])
                        continue; /* a residual has the operands' type */
                    const size_t place = (s + (size_t)layout + (size_t)type + n) % 4;
                    trial t = endings[n];
                    t.layout = (coh_matmul_layout)layout;
                    t.dtype = types[type][0];
                    t.c_dtype = types[type][1];
                    t.rows = shapes[s][0];
                    t.columns = shapes[s][1];
                    t.depth = shapes[s][2];
                    t.gap = places[place][0];
                    t.shift = places[place][1];
                    run(check, &t);
                }
}
