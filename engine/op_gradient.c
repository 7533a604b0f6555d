/* Finite differences of one port along a random direction d. With y the outputs and r their random
 * gradients, sum(r_j dy_j/dd) must be sum(g_i d_i): two numbers, whatever the port's size. Each
 * output's slope is extrapolated from four steps (Richardson), and the pair of steps that agrees
 * best also gives its error; outputs without agreement have a kink within the step and get r_j = 0.
 * A wrong sum is bisected over the elements to the one that is wrong. Next: op_gradient.h. */
#include "engine/op_gradient.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/rng.h"

enum { STEPS = 4, DIRECTIONS = 2 };
/* Powers of two, so that values of 13 binary places are moved exactly. Each is a quarter of the one
 * before: the error of a difference falls by 16. */
static const double steps[STEPS] = { 0x1p-4, 0x1p-6, 0x1p-8, 0x1p-10 };

/* Largest error of an output's slope, relative to the slopes' root mean square. */
#define KINK 0.02
/* Error of a sum: what its outputs' errors explain, and rounding of the kind's own sums. */
#define ERRORS   5.0
#define ROUNDING 2e-3

typedef struct job {
    coh_trial *trial;
    const coh_trial_way *way;
    coh_trial_buffer *port;
    const coh_trial_buffer *gradient;
    int64_t inputs, outputs; /* elements */
    float *start, *direction;
    double *slopes[STEPS], *bends[STEPS];   /* by outputs; a bend: the sides' slopes' difference */
    double *middle, *best, *error, *weight; /* middle: outputs at the start */
    double *memory;
    char *kept; /* output gradients, to be put back */
} job;

/* ---- memory ---- */

static int64_t output_count(const coh_trial *trial)
{
    int64_t count = 0;
    for (int i = 0; i < COH_PORT_MAX; i++) {
        const coh_trial_buffer *b = &trial->buffer[COH_TRIAL_OUTPUT][i];
        if (b->data != NULL && b->shape.dtype == COH_DTYPE_F32)
            count += coh_trial_count(b);
    }
    return count;
}

static coh_status begin(job *j)
{
    j->inputs = coh_trial_count(j->port);
    j->outputs = output_count(j->trial);
    const size_t n = (size_t)j->inputs, m = (size_t)j->outputs;
    COH_TRY(COH_ALLOC((2 * STEPS + 4) * m + n, &j->memory)); /* two floats take one double */
    double *at = j->memory;
    for (int k = 0; k < STEPS; k++, at += 2 * m) {
        j->slopes[k] = at;
        j->bends[k] = at + m;
    }
    j->middle = at;
    j->best = at + m;
    j->error = at + 2 * m;
    j->weight = at + 3 * m;
    j->start = (float *)(void *)(at + 4 * m);
    j->direction = j->start + n;
    memcpy(j->start, j->port->values, n * sizeof(float));
    return COH_OK;
}

/* ---- slopes of outputs ---- */

static coh_status outputs_at(job *j, const float *direction, double step)
{
    float *values = (float *)(void *)j->port->values;
    for (int64_t i = 0; i < j->inputs; i++)
        values[i] = j->start[i] + (float)step * direction[i];
    const coh_status status = coh_trial_forward(j->trial, j->way);
    memcpy(j->port->values, j->start, (size_t)j->inputs * sizeof(float));
    return status;
}

/* Adds factor times the outputs of the last forward. */
static void add_outputs(const job *j, double factor, double *sums)
{
    for (int i = 0, at = 0; i < COH_PORT_MAX; i++) {
        const coh_trial_buffer *b = &j->trial->buffer[COH_TRIAL_OUTPUT][i];
        if (b->data == NULL || b->shape.dtype != COH_DTYPE_F32)
            continue;
        const float *y = (const float *)(const void *)b->values;
        for (int64_t e = 0; e < coh_trial_count(b); e++, at++)
            sums[at] += factor * (double)y[e];
    }
}

static coh_status differences(job *j, const float *direction, int step, double *slopes,
                              double *bends)
{
    for (int64_t i = 0; i < j->outputs; i++) {
        slopes[i] = 0;
        bends[i] = -2.0 * j->middle[i] / steps[step];
    }
    for (int side = -1; side <= 1; side += 2) {
        COH_TRY(outputs_at(j, direction, side * steps[step]));
        add_outputs(j, side * 0.5 / steps[step], slopes);
        add_outputs(j, 1.0 / steps[step], bends);
    }
    return COH_OK;
}

static coh_status find_middle(job *j)
{
    memset(j->middle, 0, (size_t)j->outputs * sizeof(double));
    COH_TRY(outputs_at(j, j->direction, 0.0));
    add_outputs(j, 1.0, j->middle);
    return COH_OK;
}

/* Finds each output's slope and its error: the disagreement of two steps, rounding of the outputs,
 * and a bend that does not shrink with the step as a curve's does, which is a kink. */
static coh_status find_slopes(job *j, const float *direction)
{
    for (int k = 0; k < STEPS; k++)
        COH_TRY(differences(j, direction, k, j->slopes[k], j->bends[k]));
    for (int64_t i = 0; i < j->outputs; i++) {
        j->error[i] = INFINITY;
        for (int k = 0; k + 1 < STEPS; k++) {
            const double next = j->slopes[k + 1][i];
            const double slope = (16.0 * next - j->slopes[k][i]) / 15.0;
            const double noise = fabs(j->middle[i]) * 0x1p-23 / steps[k + 1];
            const double kink = fabs(j->bends[k + 1][i]) - fabs(j->bends[k][i]) / 4.0;
            const double error = fabs(slope - next) + noise + fmax(kink, 0.0);
            if (error < j->error[i]) {
                j->error[i] = error;
                j->best[i] = slope;
            }
        }
    }
    return COH_OK;
}

/* Sets the weights: the output's gradient, or 0 where forward has a kink. Returns how many are not
 * 0. */
static int64_t weigh(job *j)
{
    double squares = 0;
    int64_t used = 0;
    for (int64_t i = 0; i < j->outputs; i++)
        squares += isfinite(j->error[i]) ? j->best[i] * j->best[i] : 0.0;
    const double most = KINK * sqrt(squares / (double)j->outputs) + DBL_MIN;
    for (int i = 0, at = 0; i < COH_PORT_MAX; i++) {
        const coh_trial_buffer *y = &j->trial->buffer[COH_TRIAL_OUTPUT][i];
        const coh_trial_buffer *dy = &j->trial->buffer[COH_TRIAL_OUTPUT_GRAD][i];
        if (y->data == NULL || y->shape.dtype != COH_DTYPE_F32)
            continue;
        float *gradient = (float *)(void *)dy->values;
        for (int64_t e = 0; e < coh_trial_count(y); e++, at++) {
            const int is_smooth = j->error[at] <= most || j->best[at] == 0;
            j->weight[at] = !is_smooth ? 0.0 : gradient != NULL ? (double)gradient[e] : 1.0;
            if (gradient != NULL && !is_smooth)
                gradient[e] = 0.0f;
            used += is_smooth;
        }
    }
    return used;
}

/* ---- sums ---- */

typedef struct sums {
    double by_differences, returned; /* sum(r_j y'_j), sum(g_i d_i) */
    double error, size;
} sums;

static float gradient_at(const job *j, int64_t i)
{
    return ((const float *)(const void *)j->gradient->data)[i];
}

static sums sum_up(const job *j)
{
    sums s = { 0 };
    double errors = 0, slopes = 0, products = 0;
    for (int64_t i = 0; i < j->outputs; i++) {
        const double part = j->weight[i] * j->best[i];
        if (j->weight[i] == 0)
            continue;
        s.by_differences += part;
        slopes += part * part;
        errors += j->weight[i] * j->weight[i] * j->error[i] * j->error[i];
    }
    for (int64_t i = 0; i < j->inputs; i++) {
        const double part = (double)gradient_at(j, i) * (double)j->direction[i];
        s.returned += part;
        products += part * part;
    }
    s.error = sqrt(errors);
    s.size = fmax(sqrt(slopes), sqrt(products));
    return s;
}

static int agree(const sums *s, double a, double b)
{
    return fabs(a - b) <= ERRORS * s->error + ROUNDING * s->size;
}

static const char *cause_of(const job *j, const sums *s, int64_t element)
{
    int has_any = 0;
    for (int64_t i = 0; i < j->inputs && !has_any; i++)
        has_any = gradient_at(j, i) != 0.0f;
    if (!has_any)
        return "the gradient is not computed: it is zero everywhere";
    if (agree(s, s->returned, -s->by_differences))
        return "the sign";
    if (agree(s, s->returned, 2.0 * s->by_differences))
        return "a factor 2: a term counted twice";
    if (agree(s, 2.0 * s->returned, s->by_differences))
        return "a factor 1/2: a term forgotten";
    if (gradient_at(j, element) == 0.0f)
        return "this element gets no gradient: a loop begins late or ends early, or a term of the "
               "derivative is forgotten";
    return "a term of the derivative is forgotten or wrong";
}

/* ---- the element that is wrong ---- */

/* Sum of r_j y'_j with the direction limited to elements [from, to), by one step. */
static coh_status part_by_differences(job *j, int64_t from, int64_t to, float *direction,
                                      double *out_sum)
{
    memset(direction, 0, (size_t)j->inputs * sizeof(float));
    memcpy(direction + from, j->direction + from, (size_t)(to - from) * sizeof(float));
    COH_TRY(differences(j, direction, 1, j->slopes[0], j->bends[0]));
    *out_sum = 0;
    for (int64_t i = 0; i < j->outputs; i++)
        *out_sum += j->weight[i] * j->slopes[0][i];
    return COH_OK;
}

static double part_returned(const job *j, int64_t from, int64_t to)
{
    double sum = 0;
    for (int64_t i = from; i < to; i++)
        sum += (double)gradient_at(j, i) * (double)j->direction[i];
    return sum;
}

static coh_status bisect(job *j, float *direction, int64_t *out_element)
{
    int64_t from = 0, to = j->inputs;
    double whole;
    COH_TRY(part_by_differences(j, from, to, direction, &whole));
    while (to - from > 1) {
        const int64_t middle = from + (to - from) / 2;
        double first;
        COH_TRY(part_by_differences(j, from, middle, direction, &first));
        const double first_off = fabs(part_returned(j, from, middle) - first);
        const double second_off = fabs(part_returned(j, middle, to) - (whole - first));
        if (first_off >= second_off) {
            to = middle;
            whole = first;
        } else {
            from = middle;
            whole -= first;
        }
    }
    *out_element = from;
    return COH_OK;
}

/* Fills in the place of the wrong element. Backward's results are kept, since only forward runs. */
static coh_status locate(job *j, const sums *s, coh_op_slope *slope)
{
    float *direction;
    int64_t element = 0;
    COH_TRY(COH_ALLOC((size_t)j->inputs, &direction));
    coh_status status = bisect(j, direction, &element);
    memset(direction, 0, (size_t)j->inputs * sizeof(float));
    direction[element] = 1.0f;
    if (status == COH_OK)
        status = find_slopes(j, direction);
    double sum = 0;
    for (int64_t i = 0; i < j->outputs; i++)
        sum += j->weight[i] != 0 ? j->weight[i] * j->best[i] : 0.0;
    slope->is_wrong = 1;
    slope->place.element = element;
    slope->place.expected = sum;
    slope->place.got = (double)gradient_at(j, element);
    slope->cause = cause_of(j, s, element);
    coh_free(direction);
    return status;
}

/* ---- the comparison ---- */

static void keep_gradients(job *j, int puts_back)
{
    char *at = j->kept;
    for (int i = 0; i < COH_PORT_MAX; i++) {
        coh_trial_buffer *b = &j->trial->buffer[COH_TRIAL_OUTPUT_GRAD][i];
        if (b->data == NULL)
            continue;
        memcpy(puts_back ? b->values : at, puts_back ? at : b->values, b->bytes);
        at += b->bytes;
    }
}

static coh_status compare(job *j, uint64_t seed, coh_op_slope *slope)
{
    for (int64_t i = 0; i < j->inputs; i++)
        j->direction[i] =
            (float)(rint(coh_rng_normal(seed, 500, (uint64_t)i) * 8.0) / 8.0); /* exact steps */
    COH_TRY(find_middle(j));
    COH_TRY(find_slopes(j, j->direction));
    const int64_t used = weigh(j);
    if (used == 0)
        return COH_OK;
    COH_TRY(coh_trial_forward(j->trial, j->way));
    COH_TRY(coh_trial_backward(j->trial, j->way));
    const sums s = sum_up(j);
    slope->is_compared = 1;
    if (!agree(&s, s.returned, s.by_differences))
        COH_TRY(locate(j, &s, slope));
    return COH_OK;
}

coh_status coh_op_gradient_check(coh_trial *trial, const coh_trial_way *way, coh_trial_role role,
                                 int port, uint64_t seed, coh_op_slope *out_slope)
{
    const coh_trial_role gradient =
        role == COH_TRIAL_INPUT ? COH_TRIAL_INPUT_GRAD : COH_TRIAL_PARAMETER_GRAD;
    job j = { .trial = trial,
              .way = way,
              .port = &trial->buffer[role][port],
              .gradient = &trial->buffer[gradient][port] };
    *out_slope =
        (coh_op_slope){ .place = { .phase = COH_PHASE_BACKWARD, .role = gradient, .port = port } };
    coh_status status = begin(&j);
    size_t bytes = 1;
    for (int i = 0; i < COH_PORT_MAX; i++)
        bytes += trial->buffer[COH_TRIAL_OUTPUT_GRAD][i].bytes;
    if (status == COH_OK)
        status = coh_alloc(bytes, 1, (void **)&j.kept);
    for (int i = 0; status == COH_OK && i < DIRECTIONS && !out_slope->is_wrong; i++) {
        keep_gradients(&j, 0);
        status = compare(&j, seed + (uint64_t)i, out_slope);
        keep_gradients(&j, 1);
    }
    coh_free(j.memory);
    coh_free(j.kept);
    return status;
}
