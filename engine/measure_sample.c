/* Collects samples until there are enough or their time is spent, and reduces them to a median with
 * its spread. Next: measure.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/measure.h"

void coh_samples_begin(coh_samples *samples)
{
    *samples = (coh_samples){ .begin_ns = coh_clock_ns() };
}

int coh_samples_go_on(const coh_samples *samples, const coh_effort *effort)
{
    if (samples->count < effort->samples_least)
        return 1;
    return samples->count < effort->samples_most &&
           coh_clock_ns() - samples->begin_ns < effort->budget_ns;
}

void coh_samples_add(coh_samples *samples, double value)
{
    if (samples->count < COH_SAMPLES_MOST)
        samples->values[samples->count++] = value;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

coh_figure coh_samples_figure(const coh_samples *samples)
{
    double sorted[COH_SAMPLES_MOST];
    uint32_t last = samples->count - 1;
    if (samples->count == 0)
        return (coh_figure){ 0 };
    memcpy(sorted, samples->values, samples->count * sizeof(*sorted));
    qsort(sorted, samples->count, sizeof(*sorted), compare);
    return (coh_figure){ .p10 = sorted[last / 10],
                         .p50 = (sorted[last / 2] + sorted[last - last / 2]) / 2,
                         .p90 = sorted[last - last / 10],
                         .samples = samples->count };
}

coh_figure coh_figure_joined(const coh_figure *a, const coh_figure *b)
{
    const double count = (double)a->samples + (double)b->samples;
    if (b->samples == 0)
        return *a;
    const double part = b->samples / count;
    return (coh_figure){ .p10 = a->p10 + part * (b->p10 - a->p10),
                         .p50 = a->p50 + part * (b->p50 - a->p50),
                         .p90 = a->p90 + part * (b->p90 - a->p90),
                         .samples = (uint32_t)fmin(count, UINT32_MAX) };
}

coh_status coh_samples_of_rate(const coh_load *load, const coh_effort *effort,
                               coh_figure *out_figure)
{
    coh_samples samples;
    double rate;
    COH_TRY(coh_load_rate(load, 0, &rate));
    coh_samples_begin(&samples);
    while (coh_samples_go_on(&samples, effort)) {
        COH_TRY(coh_load_rate(load, effort->window_ns, &rate));
        coh_samples_add(&samples, rate);
    }
    *out_figure = coh_samples_figure(&samples);
    return COH_OK;
}
