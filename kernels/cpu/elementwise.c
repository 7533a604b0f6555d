/* Functions of single elements on the host: copies, sums, activations, swiglu, scale and the
 * gradients before an activation. Each cuts its tensor into grains and calls a row loop for each.
 * Next: rows.h. */
#include "kernels/table.h"

#include <string.h>

#include "base/bytes.h"
#include "cohobate/model.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/smaller.h"

/* Each piece is one grain: 64 KiB of each operand, a few microseconds of work. */

typedef struct pass {
    coh_activation activation;
    coh_dtype dtype;
    void *to;
    const void *from, *x;
    int64_t count;
    int adds;
} pass;

static int64_t grain_count(int64_t count)
{
    return (count + COH_GRAIN_ELEMENTS - 1) / COH_GRAIN_ELEMENTS;
}

static int64_t grain_elements(int64_t count, int64_t index)
{
    const int64_t rest = count - index * COH_GRAIN_ELEMENTS;
    return rest < COH_GRAIN_ELEMENTS ? rest : COH_GRAIN_ELEMENTS;
}

static void pass_grain(void *argument, int64_t index)
{
    const pass *job = argument;
    const int64_t begin = index * COH_GRAIN_ELEMENTS, count = grain_elements(job->count, index);
    void *to = coh_element(job->dtype, job->to, begin);
    const void *from = coh_element_const(job->dtype, job->from, begin);
    if (job->adds)
        coh_rows_for(job->dtype)->add(to, from, count);
    else
        memcpy(to, from, (size_t)count * coh_dtype_bytes(job->dtype));
}

void coh_cpu_pass(void *queue, coh_dtype dtype, void *to, const void *from, int64_t count, int adds)
{
    if (to == from)
        return;
    pass job = { .dtype = dtype, .to = to, .from = from, .count = count, .adds = adds };
    coh_parallel(queue, grain_count(count), pass_grain, &job);
}

static void round_grain(void *argument, int64_t index)
{
    const pass *job = argument;
    const int64_t begin = index * COH_GRAIN_ELEMENTS;
    coh_rows_for(job->dtype)
        ->put(coh_element(job->dtype, job->to, begin), (const float *)job->from + begin,
              grain_elements(job->count, index), job->adds);
}

void coh_cpu_round(void *queue, coh_dtype dtype, void *to, const float *from, int64_t count,
                   int adds)
{
    pass job = { .dtype = dtype, .to = to, .from = from, .count = count, .adds = adds };
    coh_parallel(queue, grain_count(count), round_grain, &job);
}

static void activate_grain(void *argument, int64_t index)
{
    const pass *job = argument;
    const coh_rows *rows = coh_rows_for(job->dtype);
    const int64_t begin = index * COH_GRAIN_ELEMENTS;
    (job->activation == COH_ACTIVATION_RELU ? rows->relu : rows->gelu)(
        coh_element(job->dtype, job->to, begin), coh_element_const(job->dtype, job->x, begin),
        grain_elements(job->count, index));
}

void coh_cpu_activate(void *queue, coh_activation activation, coh_dtype dtype, void *y,
                      const void *x, int64_t count)
{
    pass job = { .activation = activation, .dtype = dtype, .to = y, .x = x, .count = count };
    coh_parallel(queue, grain_count(count), activate_grain, &job);
}

static void activate_backward_grain(void *argument, int64_t index)
{
    const pass *job = argument;
    const coh_rows *rows = coh_rows_for(job->dtype);
    const int64_t begin = index * COH_GRAIN_ELEMENTS;
    (job->activation == COH_ACTIVATION_RELU ? rows->relu_backward : rows->gelu_backward)(
        coh_element(job->dtype, job->to, begin), coh_element_const(job->dtype, job->from, begin),
        coh_element_const(job->dtype, job->x, begin), grain_elements(job->count, index), job->adds);
}

void coh_cpu_activate_backward(void *queue, coh_activation activation, coh_dtype dtype, void *dx,
                               const void *dy, const void *of, int64_t count, int adds)
{
    pass job = { .activation = activation,
                 .dtype = dtype,
                 .to = dx,
                 .from = dy,
                 .x = of,
                 .count = count,
                 .adds = adds };
    coh_parallel(queue, grain_count(count), activate_backward_grain, &job);
}

/* ---- scale: its tensors are small (an adapter's rank), so it reuses other loops ---- */

#define SCALE_ELEMENTS 512

static void scale_grain(void *argument, int64_t index)
{
    const coh_scale *s = argument;
    const int64_t begin = index * COH_GRAIN_ELEMENTS, end = begin + grain_elements(s->count, index);
    const coh_rows *rows = coh_rows_for(s->dtype);
    for (int64_t at = begin; at < end; at += SCALE_ELEMENTS) {
        const int64_t count = end - at < SCALE_ELEMENTS ? end - at : SCALE_ELEMENTS;
        float total[SCALE_ELEMENTS] = { 0 };
        rows->add_scaled(total, coh_element_const(s->dtype, s->x, at), s->factor, count);
        rows->put(coh_element(s->dtype, s->y, at), total, count, s->adds);
    }
}

void coh_cpu_scale(void *queue, const coh_scale *scale)
{
    coh_parallel(queue, grain_count(scale->count), scale_grain, (void *)scale);
}

/* ---- soft cap ---- */

static void soft_cap_row(void *argument, int64_t index)
{
    const coh_soft_cap *c = argument;
    float *x = c->x + index * c->stride;
    coh_rows_get()->soft_cap(x, x, c->columns, c->cap);
}

void coh_cpu_soft_cap(void *queue, const coh_soft_cap *soft_cap)
{
    coh_parallel(queue, soft_cap->rows, soft_cap_row, (void *)soft_cap);
}

/* ---- swiglu ---- */

/* Splits a grain where rows of gate end: the elements of y from *begin on whose gates are
 * contiguous, and the place of the first gate. Returns 0 at the grain's end. */
typedef struct swiglu_part {
    int64_t begin, end, count, place;
} swiglu_part;

static swiglu_part swiglu_grain_of(const coh_swiglu *s, int64_t index)
{
    const int64_t begin = index * COH_GRAIN_ELEMENTS;
    return (swiglu_part){ .begin = begin, .end = begin + grain_elements(s->count, index) };
}

static int swiglu_next(const coh_swiglu *s, swiglu_part *part)
{
    part->begin += part->count;
    const int64_t row = s->columns > 0 ? part->begin / s->columns : 0;
    part->place = part->begin + row * s->columns;
    part->count = part->end - part->begin;
    if (s->columns > 0)
        part->count = smaller(part->count, (row + 1) * s->columns - part->begin);
    return part->count > 0;
}

static void swiglu_grain(void *argument, int64_t index)
{
    const coh_swiglu *s = argument;
    const coh_rows *rows = coh_rows_for(s->dtype);
    for (swiglu_part part = swiglu_grain_of(s, index); swiglu_next(s, &part);)
        (s->gelu ? rows->geglu : rows->swiglu)(coh_element(s->dtype, s->y, part.begin),
                                               coh_element_const(s->dtype, s->gate, part.place),
                                               coh_element_const(s->dtype, s->up, part.place),
                                               part.count);
}

void coh_cpu_swiglu(void *queue, const coh_swiglu *swiglu)
{
    coh_parallel(queue, grain_count(swiglu->count), swiglu_grain, (void *)swiglu);
}

static void swiglu_backward_grain(void *argument, int64_t index)
{
    const coh_swiglu *s = argument;
    const coh_rows *rows = coh_rows_for(s->dtype);
    for (swiglu_part part = swiglu_grain_of(s, index); swiglu_next(s, &part);) {
        const coh_swiglu_row row = {
            .dy = coh_element_const(s->dtype, s->dy, part.begin),
            .gate = coh_element_const(s->dtype, s->gate, part.place),
            .up = coh_element_const(s->dtype, s->up, part.place),
            .dgate = s->dgate == NULL ? NULL : coh_element(s->dtype, s->dgate, part.place),
            .dup = s->dup == NULL ? NULL : coh_element(s->dtype, s->dup, part.place),
            .count = part.count,
            .dgate_adds = s->dgate_adds,
            .dup_adds = s->dup_adds,
        };
        (s->gelu ? rows->geglu_backward : rows->swiglu_backward)(&row);
    }
}

void coh_cpu_swiglu_backward(void *queue, const coh_swiglu *swiglu)
{
    coh_parallel(queue, grain_count(swiglu->count), swiglu_backward_grain, (void *)swiglu);
}

/* ---- the gradient before an activation, with its column sums ---- */

/* Memory-bound: dy and h (or y) are read and dh is written once, and dh is added to its column sums
 * while it is in registers. A piece is GRADIENT_ROWS rows of up to GRADIENT_COLUMNS columns, whose
 * sums stay in the first-level cache. Pieces are whole rows, because strips of 1024 columns took
 * 1.4 times as long. Blocks of rows are folded in order. */
#define GRADIENT_ROWS    16
#define GRADIENT_COLUMNS 4096
#define FOLD_COLUMNS     256

static int64_t parts(int64_t length, int64_t part)
{
    return (length + part - 1) / part;
}

static int64_t part_length(int64_t length, int64_t part, int64_t index)
{
    const int64_t rest = length - index * part;
    return rest < part ? rest : part;
}

int64_t coh_kernel_activation_partials(int64_t N, int64_t O)
{
    return parts(N, GRADIENT_ROWS) * O;
}

static void gradient_block(void *argument, int64_t index)
{
    const coh_activation_gradient *g = argument;
    const int64_t strips = parts(g->O, GRADIENT_COLUMNS);
    const int64_t block = index / strips, strip = index % strips;
    const int64_t column = strip * GRADIENT_COLUMNS, row = block * GRADIENT_ROWS;
    const int64_t width = part_length(g->O, GRADIENT_COLUMNS, strip);
    const coh_rows *rows = coh_rows_for(g->dtype);
    coh_row_gelu_gradient *run =
        g->activation == COH_ACTIVATION_RELU ? rows->relu_gradient : rows->gelu_gradient;
    float *sums = g->partials + block * g->O + column;
    memset(sums, 0, (size_t)width * sizeof(float));
    for (int64_t n = row; n < row + part_length(g->N, GRADIENT_ROWS, block); n++) {
        const int64_t at = n * g->O + column;
        run(coh_element(g->dtype, g->dh, at), coh_element_const(g->dtype, g->dy, at),
            coh_element_const(g->dtype, g->of, at), sums, width);
    }
}

static void fold_gradient(void *argument, int64_t index)
{
    const coh_activation_gradient *g = argument;
    const int64_t column = index * FOLD_COLUMNS;
    const int64_t width = part_length(g->O, FOLD_COLUMNS, index);
    float total[FOLD_COLUMNS] = { 0 };
    for (int64_t block = 0; block < parts(g->N, GRADIENT_ROWS); block++)
        coh_rows_get()->add(total, g->partials + block * g->O + column, width);
    const coh_dtype dtype = coh_grad_dtype(g->dtype, g->f32_grads);
    coh_rows_for(dtype)->put(coh_element(dtype, g->sums, column), total, width, g->sums_adds);
}

void coh_cpu_activation_gradient(void *queue, const coh_activation_gradient *gradient)
{
    const int64_t strips = parts(gradient->O, GRADIENT_COLUMNS);
    coh_parallel(queue, parts(gradient->N, GRADIENT_ROWS) * strips, gradient_block,
                 (void *)gradient);
    if (gradient->sums != NULL)
        coh_parallel(queue, parts(gradient->O, FOLD_COLUMNS), fold_gradient, (void *)gradient);
}
