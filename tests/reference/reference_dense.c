#include "tests/reference/reference.h"

#include <math.h>
#include <stdlib.h>

#include "cohobate/kinds.h"

static int64_t last_dim(const coh_view *view)
{
    return view->shape.dim[view->shape.rank - 1];
}

/* ---- linear, linear_residual: x [N,I], weight [O,I] ---- */

static void linear_forward(coh_reference *r, int64_t N, int64_t I, int64_t O)
{
    const double *x = r->input[0], *w = r->parameter[0], *bias = r->parameter[1];
    for (int64_t n = 0; n < N; n++)
        for (int64_t o = 0; o < O; o++) {
            double sum = 0.0, size = 0.0;
            for (int64_t i = 0; i < I; i++) {
                sum += x[n * I + i] * w[o * I + i];
                size += fabs(x[n * I + i] * w[o * I + i]);
            }
            const double first = bias ? bias[o] : 0.0;
            const double residual = r->input[1] ? r->input[1][n * O + o] : 0.0;
            size += fabs(first) + fabs(residual);
            r->output.value[n * O + o] = sum + first + residual;
            r->output.bound[n * O + o] =
                COH_EPS * (double)(I + 3) * size +
                r->rounds_products * (fabs(sum) + fabs(sum + first) + fabs(sum + residual));
        }
}

/* Does nothing if the gradient is not wanted. */
static void add_product(coh_array *to, int64_t at, double a, double b, double terms)
{
    if (to->count == 0)
        return;
    to->value[at] += a * b;
    to->bound[at] += COH_EPS * terms * fabs(a * b);
}

void coh_reference_linear(coh_reference *r, int backward)
{
    const int64_t I = last_dim(&r->of->call.input[0]), O = last_dim(&r->of->call.output[0]);
    const int64_t N = coh_shape_elements(&r->of->call.input[0].shape) / I;
    const double *x = r->input[0], *w = r->parameter[0], *dy = r->output_grad;
    if (!backward) {
        linear_forward(r, N, I, O);
        return;
    }
    for (int64_t n = 0; n < N; n++)
        for (int64_t o = 0; o < O; o++) {
            const double d = dy[n * O + o];
            for (int64_t i = 0; i < I; i++) {
                add_product(&r->input_grad[0], n * I + i, d, w[o * I + i], (double)(O + 2));
                add_product(&r->parameter_grad[0], o * I + i, d, x[n * I + i], (double)(N + 2));
            }
            if (r->parameter_grad[1].count > 0)
                add_product(&r->parameter_grad[1], o, d, 1.0, (double)(N + 2));
            if (r->input_grad[1].count > 0)
                r->input_grad[1].value[n * O + o] = d;
        }
}

/* ---- layer norm ---- */

typedef struct norm_row {
    double mean, rstd, mean_size; /* mean of |x| */
} norm_row;

static norm_row norm_facts(const double *x, int64_t C, double epsilon)
{
    norm_row row = { 0 };
    double variance = 0.0;
    for (int64_t c = 0; c < C; c++) {
        row.mean += x[c] / (double)C;
        row.mean_size += fabs(x[c]) / (double)C;
    }
    for (int64_t c = 0; c < C; c++)
        variance += (x[c] - row.mean) * (x[c] - row.mean) / (double)C;
    row.rstd = 1.0 / sqrt(variance + epsilon);
    return row;
}

static void norm_forward(coh_reference *r, const double *x, int64_t n, int64_t C, double epsilon)
{
    const norm_row row = norm_facts(x, C, epsilon);
    for (int64_t c = 0; c < C; c++) {
        const double w = r->parameter[0][c], b = r->parameter[1][c];
        const double normal = (x[c] - row.mean) * row.rstd;
        /* the mean is off by (C + 1) eps mean|x|, rstd by a relative (C + 8) eps */
        const double size = fabs(w) * (row.rstd * row.mean_size + fabs(normal)) + fabs(b);
        r->output.value[n * C + c] = normal * w + b;
        r->output.bound[n * C + c] = COH_EPS * (double)(C + 12) * size;
    }
}

static void norm_backward(coh_reference *r, const double *x, const double *dy, int64_t n, int64_t N,
                          int64_t C, double epsilon)
{
    const norm_row row = norm_facts(x, C, epsilon);
    const double shift = row.rstd * row.mean_size; /* change of a normal, per (C + 1) eps */
    double mean_g = 0.0, mean_gn = 0.0, size_g = 0.0, size_gn = 0.0;
    for (int64_t c = 0; c < C; c++) {
        const double g = dy[c] * r->parameter[0][c], normal = (x[c] - row.mean) * row.rstd;
        mean_g += g / (double)C;
        mean_gn += g * normal / (double)C;
        size_g += fabs(g) / (double)C;
        size_gn += fabs(g) * (fabs(normal) + shift) / (double)C;
    }
    for (int64_t c = 0; c < C; c++) {
        const double g = dy[c] * r->parameter[0][c], normal = (x[c] - row.mean) * row.rstd;
        const double size = fabs(g) + size_g + (fabs(normal) + shift) * size_gn;
        r->input_grad[0].value[n * C + c] = row.rstd * (g - mean_g - normal * mean_gn);
        r->input_grad[0].bound[n * C + c] = COH_EPS * (double)(3 * C + 30) * row.rstd * size;
        r->parameter_grad[0].value[c] += dy[c] * normal;
        r->parameter_grad[0].bound[c] +=
            COH_EPS * (double)(N + C + 12) * fabs(dy[c]) * (fabs(normal) + shift);
        add_product(&r->parameter_grad[1], c, dy[c], 1.0, (double)(N + 2));
    }
}

void coh_reference_layernorm(coh_reference *r, int backward)
{
    const coh_layernorm_attributes *a = r->of->attributes;
    const int64_t C = last_dim(&r->of->call.input[0]);
    const int64_t N = coh_shape_elements(&r->of->call.input[0].shape) / C;
    for (int64_t n = 0; n < N; n++) {
        const double *x = r->input[0] + n * C;
        if (backward)
            norm_backward(r, x, r->output_grad + n * C, n, N, C, a->epsilon);
        else
            norm_forward(r, x, n, C, a->epsilon);
    }
}

/* ---- norm by root mean square ---- */

static void rms_row(coh_reference *r, int64_t n, int64_t N, int64_t C, double epsilon,
                    double offset, int backward)
{
    const double *weight = r->parameter[0];
    const double *x = r->input[0] + n * C, *dy = r->output_grad + n * C;
    double square = 0.0, mean_gn = 0.0, size_gn = 0.0;
    for (int64_t c = 0; c < C; c++)
        square += x[c] * x[c] / (double)C;
    const double rstd = 1.0 / sqrt(square + epsilon); /* off by a relative (C + 8) eps */
    for (int64_t c = 0; c < C; c++) {
        mean_gn += dy[c] * (weight[c] + offset) * x[c] * rstd / (double)C;
        size_gn += fabs(dy[c] * (weight[c] + offset) * x[c] * rstd) / (double)C;
    }
    for (int64_t c = 0; c < C; c++) {
        const double normal = x[c] * rstd, w = weight[c] + offset;
        if (!backward) {
            r->output.value[n * C + c] = normal * w;
            r->output.bound[n * C + c] = COH_EPS * (double)(C + 12) * fabs(normal * w);
            continue;
        }
        const double size = fabs(dy[c] * w) + fabs(normal) * size_gn;
        r->input_grad[0].value[n * C + c] = rstd * (dy[c] * w - normal * mean_gn);
        r->input_grad[0].bound[n * C + c] = COH_EPS * (double)(3 * C + 30) * rstd * size;
        add_product(&r->parameter_grad[0], c, dy[c], normal, (double)(N + C + 12));
    }
}

void coh_reference_rmsnorm(coh_reference *r, int backward)
{
    const coh_rmsnorm_attributes *a = r->of->attributes;
    const int64_t C = last_dim(&r->of->call.input[0]) / (a->heads ? a->heads : 1);
    const int64_t N = coh_shape_elements(&r->of->call.input[0].shape) / C;
    for (int64_t n = 0; n < N; n++)
        rms_row(r, n, N, C, a->epsilon, a->from_one ? 1.0 : 0.0, backward);
}

/* ---- relu: nothing is rounded ---- */

void coh_reference_relu(coh_reference *r, int backward)
{
    const int64_t count = coh_shape_elements(&r->of->call.input[0].shape);
    for (int64_t i = 0; i < count; i++)
        if (!backward)
            r->output.value[i] = fmax(r->input[0][i], 0.0);
        else
            r->input_grad[0].value[i] = r->input[0][i] > 0.0 ? r->output_grad[i] : 0.0;
}

/* ---- scale ---- */

void coh_reference_scale(coh_reference *r, int backward)
{
    const coh_scale_attributes *a = r->of->attributes;
    const int64_t count = coh_shape_elements(&r->of->call.input[0].shape);
    const double *from = backward ? r->output_grad : r->input[0];
    coh_array *to = backward ? &r->input_grad[0] : &r->output;
    for (int64_t i = 0; i < count; i++) {
        to->value[i] = (double)a->factor * from[i];
        to->bound[i] = COH_EPS * fabs(to->value[i]) + 1e-36;
    }
}

/* ---- swiglu ---- */

/* An element of y, and where its gate and up are: in two inputs, or in the halves of a row. */
typedef struct swiglu_at {
    int64_t y, gate, up;
    int up_input;
} swiglu_at;

/* The exponential is off by 3 eps, the quotient s by 5; therefore 1 - s, which is e^-x s, by 8. */
static void swiglu_backward(coh_reference *r, const swiglu_at *at)
{
    const coh_array *dgate = &r->input_grad[0], *dup = &r->input_grad[at->up_input];
    const double x = r->input[0][at->gate], up = r->input[at->up_input][at->up];
    const double dy = r->output_grad[at->y];
    const double s = 1.0 / (1.0 + exp(-x)), rest = 1.0 / (1.0 + exp(x));
    dgate->value[at->gate] = dy * up * (s + x * s * rest);
    dgate->bound[at->gate] =
        COH_EPS * fabs(dy * up) * (8.0 * s + 20.0 * fabs(x) * s * rest) + 1e-36;
    dup->value[at->up] = dy * x * s;
    dup->bound[at->up] = COH_EPS * 8.0 * fabs(dy * x * s) + 1e-36;
}

static void swiglu(coh_reference *r, const swiglu_at *at, int backward)
{
    const double x = r->input[0][at->gate];
    const double y = x / (1.0 + exp(-x)) * r->input[at->up_input][at->up];
    if (backward) {
        swiglu_backward(r, at);
        return;
    }
    r->output.value[at->y] = y;
    r->output.bound[at->y] = COH_EPS * 8.0 * fabs(y) + 1e-36;
}

void coh_reference_swiglu(coh_reference *r, int backward)
{
    const int64_t count = coh_shape_elements(&r->of->call.input[0].shape);
    for (int64_t i = 0; i < count; i++)
        swiglu(r, &(swiglu_at){ i, i, i, 1 }, backward);
}

void coh_reference_swiglu_packed(coh_reference *r, int backward)
{
    const int64_t wide = last_dim(&r->of->call.input[0]), columns = wide / 2;
    const int64_t rows = coh_shape_elements(&r->of->call.input[0].shape) / wide;
    for (int64_t n = 0; n < rows; n++)
        for (int64_t c = 0; c < columns; c++) {
            const int64_t gate = n * wide + c;
            swiglu(r, &(swiglu_at){ n * columns + c, gate, gate + columns, 0 }, backward);
        }
}

/* ---- gelu ---- */

/* gelu or its slope at x, and the error that float may have. */
typedef struct gelu_value {
    double value, bound;
} gelu_value;

static gelu_value gelu_at(double x, int slope)
{
    const double root = sqrt(2.0 / acos(-1.0)), cube = 0.044715;
    const double u = root * (x + cube * x * x * x), t = tanh(u);
    /* (1 + t) / 2 and (1 - t) / 2 without cancellation */
    const double up = 1.0 / (1.0 + exp(-2.0 * u)), down = 1.0 / (1.0 + exp(2.0 * u));
    /* u is off by a relative 5 eps, so e^-2u by 10 |u| eps, the gate by that times `down` */
    const double gate_error = 8.0 + 12.0 * fabs(u);
    if (!slope)
        return (gelu_value){ 0.5 * x * (1.0 + t),
                             COH_EPS * gate_error * fabs(x * up) + 1e-15 * fabs(x) + 1e-36 };
    const double rise = root * (1.0 + 3.0 * cube * x * x);
    const double size = up + 2.0 * fabs(x) * up * down * rise;
    return (gelu_value){ 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * rise,
                         2.0 * COH_EPS * gate_error * size + 1e-15 * (1.0 + fabs(x)) };
}

/* gelu(gate) * up */
void coh_reference_geglu(coh_reference *r, int backward)
{
    const int64_t count = coh_shape_elements(&r->of->call.input[0].shape);
    for (int64_t i = 0; i < count; i++) {
        const double up = r->input[1][i];
        const gelu_value y = gelu_at(r->input[0][i], 0), slope = gelu_at(r->input[0][i], 1);
        if (!backward) {
            r->output.value[i] = y.value * up;
            r->output.bound[i] = (y.bound + COH_EPS * fabs(y.value)) * fabs(up) + 1e-36;
            continue;
        }
        const double dy = r->output_grad[i];
        r->input_grad[0].value[i] = dy * up * slope.value;
        r->input_grad[0].bound[i] =
            fabs(dy * up) * (slope.bound + 2.0 * COH_EPS * fabs(slope.value)) + 1e-36;
        r->input_grad[1].value[i] = dy * y.value;
        r->input_grad[1].bound[i] = fabs(dy) * (y.bound + COH_EPS * fabs(y.value)) + 1e-36;
    }
}

void coh_reference_gelu(coh_reference *r, int backward)
{
    const int64_t count = coh_shape_elements(&r->of->call.input[0].shape);
    for (int64_t i = 0; i < count; i++) {
        const gelu_value at = gelu_at(r->input[0][i], backward);
        if (!backward) {
            r->output.value[i] = at.value;
            r->output.bound[i] = at.bound;
            continue;
        }
        r->input_grad[0].value[i] = r->output_grad[i] * at.value;
        r->input_grad[0].bound[i] = fabs(r->output_grad[i]) * at.bound + 1e-36;
    }
}

/* ---- linear_gelu, linear_relu ---- */

/* The product h with float's error; `store` is its relative rounding before further use. */
typedef struct linear_sums {
    double *h, *error;
} linear_sums;

static linear_sums sums_before(coh_reference *r, int64_t N, int64_t I, int64_t O, double store)
{
    coh_array kept = r->output;
    linear_sums sums = { calloc((size_t)(N * O), sizeof(double)),
                         calloc((size_t)(N * O), sizeof(double)) };
    r->output.value = sums.h;
    r->output.bound = sums.error;
    linear_forward(r, N, I, O);
    r->output = kept;
    for (int64_t i = 0; i < N * O; i++)
        sums.error[i] += store * (fabs(sums.h[i]) + sums.error[i]);
    return sums;
}

/* Adds a product whose left factor has the error `error`. */
static void add_inexact(coh_array *to, int64_t at, double a, double error, double b, double terms)
{
    if (to->count == 0)
        return;
    add_product(to, at, a, b, terms);
    to->bound[at] += error * fabs(b);
}

/* Propagates the gradient `d` of h[at]. */
static void spread_gradient(coh_reference *r, int64_t at, double d, double error, int64_t I,
                            int64_t O, int64_t N)
{
    const int64_t n = at / O, o = at % O;
    const double *x = r->input[0], *w = r->parameter[0];
    if (r->parameter_grad[1].count > 0)
        add_inexact(&r->parameter_grad[1], o, d, error, 1.0, (double)(N + 2));
    error += r->store * (fabs(d) + error);
    for (int64_t i = 0; i < I; i++) {
        add_inexact(&r->input_grad[0], n * I + i, d, error, w[o * I + i], (double)(O + 2));
        add_inexact(&r->parameter_grad[0], o * I + i, d, error, x[n * I + i], (double)(N + 2));
    }
}

/* h's error is multiplied by gelu's steepest slope (below 1.13), or its largest second derivative
 * (below 0.8). */
void coh_reference_linear_gelu(coh_reference *r, int backward)
{
    const int64_t I = last_dim(&r->of->call.input[0]), O = last_dim(&r->of->call.output[0]);
    const int64_t N = coh_shape_elements(&r->of->call.input[0].shape) / I;
    const linear_sums sums = sums_before(r, N, I, O, r->store);
    for (int64_t at = 0; at < N * O; at++) {
        if (backward) {
            const gelu_value slope = gelu_at(sums.h[at], 1);
            const double dy = r->output_grad[at], d = dy * slope.value;
            const double error = fabs(dy) * (slope.bound + 0.8 * sums.error[at]);
            spread_gradient(r, at, d, error + COH_EPS * fabs(d) + 1e-36, I, O, N);
            continue;
        }
        const gelu_value y = gelu_at(sums.h[at], 0);
        r->output.value[at] = y.value;
        r->output.bound[at] = y.bound + 1.13 * sums.error[at];
    }
    free(sums.h);
    free(sums.error);
}

/* If h is nearer to 0 than its error, float may have the other sign. */
void coh_reference_linear_relu(coh_reference *r, int backward)
{
    const int64_t I = last_dim(&r->of->call.input[0]), O = last_dim(&r->of->call.output[0]);
    const int64_t N = coh_shape_elements(&r->of->call.input[0].shape) / I;
    const linear_sums sums = sums_before(r, N, I, O, 0.0);
    for (int64_t at = 0; at < N * O; at++) {
        const double h = sums.h[at];
        if (backward) {
            const double dy = r->output_grad[at];
            spread_gradient(r, at, h > 0.0 ? dy : 0.0, fabs(h) <= sums.error[at] ? fabs(dy) : 0.0,
                            I, O, N);
            continue;
        }
        r->output.value[at] = fmax(h, 0.0);
        r->output.bound[at] = sums.error[at];
    }
    free(sums.h);
    free(sums.error);
}

/* ---- embedding, position ---- */

void coh_reference_embedding(coh_reference *r, int backward)
{
    const coh_embedding_padded_attributes *a = r->of->attributes;
    const int64_t padding = r->of->kind == &coh_kind_embedding_padded ? a->padding : -1;
    const int64_t C = last_dim(&r->of->call.output[0]);
    const int64_t N = coh_shape_elements(&r->of->call.input[0].shape);
    for (int64_t n = 0; n < N; n++)
        for (int64_t c = 0; c < C; c++) {
            const int64_t at = r->ids[0][n] * C + c;
            if (backward && r->ids[0][n] == padding)
                continue;
            if (backward)
                add_product(&r->parameter_grad[0], at, r->output_grad[n * C + c], 1.0, (double)N);
            else
                r->output.value[n * C + c] = r->parameter[0][at];
        }
}

void coh_reference_position(coh_reference *r, int backward)
{
    const int64_t *dim = r->of->call.input[0].shape.dim;
    const coh_position_attributes *a = r->of->attributes;
    const int64_t B = dim[0], T = dim[1], C = dim[2];
    for (int64_t i = 0; i < B * T * C; i++) {
        const int64_t t = r->ids[1] != NULL ? r->ids[1][i / C] : i / C % T;
        const int64_t at = (t + a->offset) * C + i % C;
        if (!backward) {
            r->output.value[i] = r->input[0][i] + r->parameter[0][at];
            r->output.bound[i] = COH_EPS * fabs(r->output.value[i]);
        } else {
            r->input_grad[0].value[i] = r->output_grad[i];
            add_product(&r->parameter_grad[0], at, r->output_grad[i], 1.0,
                        (double)(r->ids[1] != NULL ? B * T : B) + 1.0);
        }
    }
}

/* ---- add ---- */

void coh_reference_add(coh_reference *r, int backward)
{
    const int64_t count = coh_shape_elements(&r->of->call.input[0].shape);
    for (int64_t i = 0; i < count && !backward; i++) {
        r->output.value[i] = r->input[0][i] + r->input[1][i];
        r->output.bound[i] = COH_EPS * fabs(r->output.value[i]);
    }
    for (int port = 0; port < 2 && backward; port++)
        for (int64_t i = 0; i < count; i++)
            r->input_grad[port].value[i] = r->output_grad[i];
}
