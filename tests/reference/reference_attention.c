#include "tests/reference/reference.h"

#include <math.h>
#include <stdlib.h>

#include "cohobate/kinds.h"

/* One query of one head: probabilities over keys first..i, and the relative error that float may
 * have in them. */
typedef struct query {
    const double *q, *k, *v; /* q: its row; k, v: row 0 of the sequence */
    int64_t first, seen, D, stride;
    double scale, cap;
    double *p, *slope;  /* slope: of the cap, at each score */
    const double *kept; /* factor of p from dropout */
    double error;       /* relative, in eps */
    double store;       /* relative error of values kept in bf16 */
} query;

static void attend(query *one)
{
    double max = -INFINITY, sum = 0.0, size = 0.0;
    for (int64_t j = one->first; j < one->seen; j++) {
        double s = 0.0, terms = 0.0;
        for (int64_t d = 0; d < one->D; d++) {
            s += one->q[d] * one->k[j * one->stride + d];
            terms += fabs(one->q[d] * one->k[j * one->stride + d]);
        }
        one->p[j] = s * one->scale;
        one->slope[j] = 1.0;
        if (one->cap > 0) {
            const double tangent = tanh(one->p[j] / one->cap);
            one->p[j] = one->cap * tangent;
            one->slope[j] = 1.0 - tangent * tangent;
        }
        max = fmax(max, one->p[j]);
        size = fmax(size, terms * one->scale);
    }
    for (int64_t j = one->first; j < one->seen; j++) {
        one->p[j] = exp(one->p[j] - max);
        sum += one->p[j];
    }
    for (int64_t j = one->first; j < one->seen; j++)
        one->p[j] /= sum;
    /* a score is off by (D + 4) size eps, so is the log-sum-exp; the sum itself by seen eps */
    one->error = 2.0 * (double)(one->D + 8) * size + (double)one->seen + 24.0;
    /* a cap is off by 8 eps of itself, and its slope by twice the error of score / cap */
    if (one->cap > 0)
        one->error += 16.0 * one->cap + 4.0 * (double)(one->D + 8) * size / one->cap + 32.0;
}

static void forward_query(const query *one, double *y, double *bound)
{
    for (int64_t d = 0; d < one->D; d++) {
        double size = 0.0;
        for (int64_t j = one->first; j < one->seen; j++) {
            y[d] += one->kept[j] * one->p[j] * one->v[j * one->stride + d];
            size += one->kept[j] * one->p[j] * fabs(one->v[j * one->stride + d]);
        }
        /* p becomes an operand of the product: in bf16 it is rounded */
        bound[d] = (COH_EPS * (one->error + (double)one->seen + 8.0) + one->store) * size;
    }
}

typedef struct gradients {
    double *q, *k, *v, *q_bound, *k_bound, *v_bound; /* as in query */
} gradients;

static void backward_query(const query *one, int64_t T, const double *dy, const gradients *to)
{
    double mean = 0.0, mean_size = 0.0;
    double *dp = calloc((size_t)one->seen * 2, sizeof(double)), *dp_size = dp + one->seen;
    for (int64_t j = one->first; j < one->seen; j++) {
        for (int64_t d = 0; d < one->D; d++) {
            dp[j] += one->kept[j] * dy[d] * one->v[j * one->stride + d];
            dp_size[j] += one->kept[j] * fabs(dy[d] * one->v[j * one->stride + d]);
        }
        mean += one->p[j] * dp[j];
        mean_size += one->p[j] * dp_size[j];
    }
    for (int64_t j = one->first; j < one->seen; j++) {
        const double ds = one->scale * one->p[j] * (dp[j] - mean) * one->slope[j];
        const double size = one->scale * one->p[j] * (dp_size[j] + mean_size);
        /* in bf16 ds and p are rounded, and the mean is computed from y, where p was rounded and y
         * is: three times, plus a little for their products */
        const double error =
            COH_EPS * (2.0 * one->error + (double)(T + one->D) + 16.0) + 3.1 * one->store;
        for (int64_t d = 0; d < one->D; d++) {
            const int64_t at = j * one->stride + d;
            to->q[d] += ds * one->k[at];
            to->q_bound[d] += error * size * fabs(one->k[at]);
            to->k[at] += ds * one->q[d];
            to->k_bound[at] += error * size * fabs(one->q[d]);
            to->v[at] += one->kept[j] * one->p[j] * dy[d];
            to->v_bound[at] += error * one->kept[j] * one->p[j] * fabs(dy[d]);
        }
    }
    free(dp);
}

/* How q, k and v of one problem are stored: as parts of one tensor, or as three. Head h of q
 * attends over head h / group of k and v. */
typedef struct layout {
    int64_t B, T, H, group, D;
    int input[3]; /* input of q, k and v */
    int64_t begin[3], stride[3];
    double probability; /* of dropout */
    coh_attention_scores scores;
} layout;

/* Returns the first key that query i of sequence b sees. Documents are the last input, of any. */
static int64_t first_key(const coh_reference *r, const layout *at, int64_t b, int64_t i)
{
    const int32_t *positions = r->ids[r->of->kind->input_count - 1];
    const int64_t first =
        at->scores.window > 0 && at->scores.window <= i ? i + 1 - at->scores.window : 0;
    const int64_t begin = positions != NULL ? i - positions[b * at->T + i] : 0;
    return begin > first ? begin : first;
}

static void run_query(coh_reference *r, const layout *at, double *p, double *kept, int64_t b,
                      int64_t h, int64_t i, int backward)
{
    uint32_t stream[4];
    if (at->probability > 0)
        coh_reference_stream(&r->of->call, stream);
    for (int64_t j = 0; j <= i; j++)
        kept[j] =
            at->probability > 0
                ? coh_reference_kept(coh_reference_pair_word(stream, b * at->H + h, at->T, i, j),
                                     at->probability)
                : 1.0;
    const int64_t T = at->T, D = at->D;
    int64_t place[3]; /* of the head's row 0 */
    for (int part = 0; part < 3; part++)
        place[part] =
            b * T * at->stride[part] + at->begin[part] + (part == 0 ? h : h / at->group) * D;
    place[0] += i * at->stride[0];
    query one = { .q = r->input[at->input[0]] + place[0],
                  .k = r->input[at->input[1]] + place[1],
                  .v = r->input[at->input[2]] + place[2],
                  .first = first_key(r, at, b, i),
                  .seen = i + 1,
                  .D = D,
                  .stride = at->stride[1],
                  .scale = at->scores.scale > 0 ? at->scores.scale : 1.0 / sqrt((double)D),
                  .cap = at->scores.cap,
                  .p = p,
                  .slope = kept + T,
                  .kept = kept,
                  .store = r->store };
    const int64_t out = ((b * T + i) * at->H + h) * D;
    attend(&one);
    if (!backward) {
        forward_query(&one, r->output.value + out, r->output.bound + out);
        return;
    }
    const coh_array *grad[3];
    for (int part = 0; part < 3; part++)
        grad[part] = &r->input_grad[at->input[part]];
    const gradients to = { grad[0]->value + place[0], grad[1]->value + place[1],
                           grad[2]->value + place[2], grad[0]->bound + place[0],
                           grad[1]->bound + place[1], grad[2]->bound + place[2] };
    backward_query(&one, T * at->group, r->output_grad + out, &to);
}

static void run_all(coh_reference *r, const layout *at, int backward)
{
    double *p = calloc((size_t)at->T, 3 * sizeof(double));
    for (int64_t b = 0; b < at->B; b++)
        for (int64_t h = 0; h < at->H; h++)
            for (int64_t i = 0; i < at->T; i++)
                run_query(r, at, p, p + at->T, b, h, i, backward);
    free(p);
}

static void attend_side_by_side(coh_reference *r, int backward, double probability)
{
    const coh_attention_attributes *a = r->of->attributes;
    const int64_t *dim = r->of->call.input[0].shape.dim, C = dim[2] / 3;
    const layout at = { .B = dim[0],
                        .T = dim[1],
                        .H = a->heads,
                        .group = 1,
                        .D = C / a->heads,
                        .begin = { 0, C, 2 * C },
                        .stride = { 3 * C, 3 * C, 3 * C },
                        .probability = probability };
    run_all(r, &at, backward);
}

static void attend_grouped(coh_reference *r, int backward, double probability,
                           coh_attention_scores scores)
{
    const coh_attention_grouped_attributes *a = r->of->attributes; /* its heads */
    const int64_t *dim = r->of->call.input[0].shape.dim;
    const int64_t D = dim[2] / a->heads, wide = a->kv_heads * D;
    const layout at = { .B = dim[0],
                        .T = dim[1],
                        .H = a->heads,
                        .group = a->heads / a->kv_heads,
                        .D = D,
                        .input = { 0, 1, 2 },
                        .stride = { dim[2], wide, wide },
                        .probability = probability,
                        .scores = scores };
    run_all(r, &at, backward);
}

void coh_reference_attention(coh_reference *r, int backward)
{
    attend_side_by_side(r, backward, 0);
}

void coh_reference_attention_dropout(coh_reference *r, int backward)
{
    const coh_attention_dropout_attributes *a = r->of->attributes;
    attend_side_by_side(r, backward, a->probability);
}

void coh_reference_attention_grouped(coh_reference *r, int backward)
{
    const coh_attention_grouped_attributes *a = r->of->attributes;
    attend_grouped(r, backward, 0, a->scores);
}

void coh_reference_attention_grouped_dropout(coh_reference *r, int backward)
{
    const coh_attention_grouped_dropout_attributes *a = r->of->attributes;
    attend_grouped(r, backward, a->probability, a->scores);
}
