#include "tests/reference/reference.h"

#include <math.h>
#include <stdlib.h>

#include "cohobate/kinds.h"

typedef struct item {
    double *p;          /* probabilities over the vocabulary */
    double *slope;      /* of the cap, at each logit */
    double log_sum;     /* log of the sum of exp(logit) */
    double logit;       /* of the target */
    double error;       /* of any logit, absolute, in eps */
    double slope_error; /* likewise */
} item;

static item probabilities(const coh_reference *r, int64_t n, int64_t C, int64_t V, double *p)
{
    const double *x = r->input[0] + n * C;
    const double cap = ((const coh_classifier_attributes *)r->of->attributes)->cap;
    item one = { .p = p, .slope = p + V };
    double max = -INFINITY, sum = 0.0;
    for (int64_t v = 0; v < V; v++) {
        const double *w = r->parameter[0] + v * C;
        double logit = 0.0, size = 0.0;
        for (int64_t c = 0; c < C; c++) {
            logit += x[c] * w[c];
            size += fabs(x[c] * w[c]);
        }
        const double tangent = cap > 0 ? tanh(logit / cap) : 0.0;
        p[v] = cap > 0 ? cap * tangent : logit;
        one.slope[v] = 1.0 - tangent * tangent;
        max = fmax(max, p[v]);
        const double sum_error = (double)(C + 6) * size;
        one.error =
            fmax(one.error, sum_error + r->store / COH_EPS * (fabs(logit) + COH_EPS * sum_error));
    }
    one.slope_error = cap > 0 ? 2.0 * one.error / cap + 32.0 : 0.0;
    one.error += 16.0 * cap; /* a cap is off by 8 eps of itself */
    one.logit = r->ids[1][n] >= 0 ? p[r->ids[1][n]] : 0.0;
    for (int64_t v = 0; v < V; v++) {
        p[v] = exp(p[v] - max);
        sum += p[v];
    }
    for (int64_t v = 0; v < V; v++)
        p[v] /= sum;
    one.log_sum = max + log(sum);
    return one;
}

static void backward_item(coh_reference *r, const item *one, int64_t n, int64_t N, int64_t C,
                          int64_t V)
{
    const double scale = r->of->call.loss_scale / (double)N;
    const double relative = expm1(2.0 * COH_EPS * one->error) / COH_EPS + (double)V + 24.0;
    for (int64_t v = 0; v < V; v++) {
        const double hit = r->ids[1][n] == v ? 1.0 : 0.0;
        const double d = scale * (one->p[v] - hit) * one->slope[v];
        double d_error = scale * COH_EPS * (relative * one->p[v] + 3.0 * hit);
        d_error += scale * fabs(one->p[v] - hit) * COH_EPS * one->slope_error;
        d_error += r->store * (fabs(d) + d_error);
        for (int64_t c = 0; c < C; c++) {
            const double w = r->parameter[0][v * C + c], x = r->input[0][n * C + c];
            r->input_grad[0].value[n * C + c] += d * w;
            r->input_grad[0].bound[n * C + c] +=
                fabs(w) * (d_error + COH_EPS * (double)(V + 4) * fabs(d));
            r->parameter_grad[0].value[v * C + c] += d * x;
            r->parameter_grad[0].bound[v * C + c] +=
                fabs(x) * (d_error + COH_EPS * (double)(N + 4) * fabs(d));
        }
    }
}

void coh_reference_classifier(coh_reference *r, int backward)
{
    const coh_classifier_attributes *a = r->of->attributes;
    const int64_t *dim = r->of->call.input[0].shape.dim;
    const int64_t N = dim[0] * dim[1], C = dim[2], V = a->vocabulary;
    double *p = calloc((size_t)V, 2 * sizeof(double));
    for (int64_t n = 0; n < N; n++) {
        if (r->ids[1][n] < 0)
            continue;
        const item one = probabilities(r, n, C, V, p);
        if (backward) {
            backward_item(r, &one, n, N, C, V);
        } else {
            const double size = 2.0 * one.error + (double)V + 24.0 + 4.0 * fabs(one.log_sum) +
                                4.0 * fabs(one.logit);
            r->output.value[0] += (one.log_sum - one.logit) / (double)N;
            r->output.bound[0] += COH_EPS * size / (double)N;
        }
    }
    free(p);
}
