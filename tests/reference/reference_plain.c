/* Naive references of the kinds of any model: reshape, slice, concat, mean, softmax,
 * cross-entropy and mean squared error, by nested loops over indices. Next: reference.h. */
#include "tests/reference/reference.h"

#include <math.h>

#include "cohobate/kinds.h"

enum { COLUMNS_MOST = 1 << 16 };

/* Splits flat element `i` of a shape into its indices, and back. */
static void indices_of(const coh_shape *shape, int64_t i, int64_t index[COH_RANK_MAX])
{
    for (int32_t axis = shape->rank - 1; axis >= 0; axis--) {
        index[axis] = i % shape->dim[axis];
        i /= shape->dim[axis];
    }
}

static int64_t place_of(const coh_shape *shape, const int64_t index[COH_RANK_MAX])
{
    int64_t i = 0;
    for (int32_t axis = 0; axis < shape->rank; axis++)
        i = i * shape->dim[axis] + index[axis];
    return i;
}

static int32_t axis_of(const coh_shape *shape, int32_t axis)
{
    return axis < 0 ? axis + shape->rank : axis;
}

void coh_reference_reshape(coh_reference *r, int backward)
{
    for (int64_t i = 0; i < r->output.count; i++)
        if (backward)
            r->input_grad[0].value[i] = r->output_grad[i];
        else
            r->output.value[i] = r->input[0][i];
}

void coh_reference_slice(coh_reference *r, int backward)
{
    const coh_slice_attributes *a = r->of->attributes;
    const coh_shape *x = &r->of->call.input[0].shape, *y = &r->of->call.output[0].shape;
    for (int64_t i = 0; i < r->output.count; i++) {
        int64_t index[COH_RANK_MAX];
        indices_of(y, i, index);
        index[axis_of(x, a->axis)] += a->begin;
        if (backward)
            r->input_grad[0].value[place_of(x, index)] = r->output_grad[i];
        else
            r->output.value[i] = r->input[0][place_of(x, index)];
    }
}

void coh_reference_concat(coh_reference *r, int backward)
{
    const coh_axis_attributes *a = r->of->attributes;
    const coh_shape *y = &r->of->call.output[0].shape;
    for (int64_t i = 0; i < r->output.count; i++) {
        int64_t index[COH_RANK_MAX];
        indices_of(y, i, index);
        const coh_shape *x = &r->of->call.input[0].shape;
        const int32_t axis = axis_of(x, a->axis);
        const int port = index[axis] >= x->dim[axis];
        if (port)
            index[axis] -= x->dim[axis];
        const int64_t place = place_of(&r->of->call.input[port].shape, index);
        if (backward)
            r->input_grad[port].value[place] = r->output_grad[i];
        else
            r->output.value[i] = r->input[port][place];
    }
}

void coh_reference_mean(coh_reference *r, int backward)
{
    const coh_axis_attributes *a = r->of->attributes;
    const coh_shape *x = &r->of->call.input[0].shape;
    const int32_t at = axis_of(x, a->axis);
    coh_shape without = { .rank = x->rank - 1 };
    for (int32_t axis = 0, to = 0; axis < x->rank; axis++)
        if (axis != at)
            without.dim[to++] = x->dim[axis];
    const double n = (double)x->dim[at];
    for (int64_t i = 0; i < coh_shape_elements(x); i++) {
        int64_t index[COH_RANK_MAX];
        indices_of(x, i, index);
        for (int32_t axis = at; axis + 1 < x->rank; axis++)
            index[axis] = index[axis + 1];
        const int64_t place = place_of(&without, index);
        if (backward) {
            r->input_grad[0].value[i] = r->output_grad[place] / n;
            r->input_grad[0].bound[i] = 3.0 * COH_EPS * fabs(r->output_grad[place]) / n;
        } else {
            r->output.value[place] += r->input[0][i] / n;
            r->output.bound[place] += 2.0 * COH_EPS * fabs(r->input[0][i]) / n;
        }
    }
}

/* Writes the softmax of a row; returns the logarithm of the sum of its exponentials. */
static double softmax(const double *x, int64_t columns, double *p)
{
    double max = -INFINITY, sum = 0;
    for (int64_t c = 0; c < columns; c++)
        max = fmax(max, x[c]);
    for (int64_t c = 0; c < columns; c++)
        sum += p[c] = exp(x[c] - max);
    for (int64_t c = 0; c < columns; c++)
        p[c] /= sum;
    return max + log(sum);
}

/* Relative error of a probability: of the sum, and of the exponential of a rounded difference. */
static double relative(const double *x, int64_t columns)
{
    double most = 0;
    for (int64_t c = 0; c < columns; c++)
        most = fmax(most, fabs(x[c]));
    return COH_EPS * ((double)columns + 24.0 + 4.0 * most);
}

static void softmax_back(coh_reference *r, int64_t at, int64_t columns, const double *p)
{
    const double *dy = r->output_grad + at;
    const double error = relative(r->input[0] + at, columns) + r->store;
    double dot = 0, size = 0;
    for (int64_t c = 0; c < columns; c++) {
        dot += dy[c] * p[c];
        size += fabs(dy[c] * p[c]);
    }
    for (int64_t c = 0; c < columns; c++) {
        r->input_grad[0].value[at + c] = p[c] * (dy[c] - dot);
        r->input_grad[0].bound[at + c] =
            p[c] * (2.0 * error + 4.0 * COH_EPS) * (fabs(dy[c]) + size);
    }
}

void coh_reference_softmax(coh_reference *r, int backward)
{
    const coh_shape *shape = &r->of->call.input[0].shape;
    const int64_t columns = shape->dim[shape->rank - 1];
    double p[COLUMNS_MOST];
    for (int64_t at = 0; at < r->output.count; at += columns) {
        const double error = relative(r->input[0] + at, columns);
        softmax(r->input[0] + at, columns, p);
        if (backward)
            softmax_back(r, at, columns, p);
        for (int64_t c = 0; c < columns && !backward; c++) {
            r->output.value[at + c] = p[c];
            r->output.bound[at + c] = p[c] * error;
        }
    }
}

void coh_reference_cross_entropy(coh_reference *r, int backward)
{
    const coh_shape *shape = &r->of->call.input[0].shape;
    const int64_t columns = shape->dim[shape->rank - 1];
    const int64_t rows = coh_shape_elements(shape) / columns;
    const double scale = r->of->call.loss_scale / (double)rows;
    double p[COLUMNS_MOST];
    for (int64_t n = 0; n < rows; n++) {
        const double *x = r->input[0] + n * columns;
        const int32_t target = r->ids[1][n];
        const double log_sum = softmax(x, columns, p), error = relative(x, columns);
        if (target < 0)
            continue;
        if (!backward) {
            r->output.value[0] += (log_sum - x[target]) / (double)rows;
            r->output.bound[0] +=
                (error + 4.0 * COH_EPS * (fabs(log_sum) + fabs(x[target]))) / (double)rows;
        }
        for (int64_t c = 0; c < columns && backward; c++) {
            const double hit = c == target ? 1.0 : 0.0;
            r->input_grad[0].value[n * columns + c] = scale * (p[c] - hit);
            r->input_grad[0].bound[n * columns + c] =
                scale * (error * p[c] + 4.0 * COH_EPS * (p[c] + hit));
        }
    }
}

void coh_reference_mean_squared_error(coh_reference *r, int backward)
{
    const int64_t count = coh_shape_elements(&r->of->call.input[0].shape);
    const double scale = 2.0 * r->of->call.loss_scale / (double)count;
    for (int64_t i = 0; i < count; i++) {
        const double difference = r->input[0][i] - r->input[1][i];
        if (!backward) {
            r->output.value[0] += difference * difference / (double)count;
            r->output.bound[0] += 4.0 * COH_EPS * difference * difference / (double)count;
            continue;
        }
        r->input_grad[0].value[i] = scale * difference;
        r->input_grad[1].value[i] = -scale * difference;
        r->input_grad[0].bound[i] = r->input_grad[1].bound[i] =
            4.0 * COH_EPS * fabs(scale * difference);
    }
}
