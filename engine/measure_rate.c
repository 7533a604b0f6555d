/* Rates and times as figures. A load keeps a lane busy: its rate alone, or of two lanes at once on
 * two threads, includes the rest, since work still in flight after the window is waited for and
 * counted. Samples are collected until there are enough or their time is spent, and reduced to a
 * median with its spread. Next: measure.h, measure_bed.h. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "engine/measure.h"

/* ---- loads ---- */

static double rate_of(double done, uint64_t ns)
{
    return done / ((double)(ns > 0 ? ns : 1) * 1e-9);
}

static coh_status rest(const coh_load *load, double *done)
{
    return load->rest != NULL ? load->rest(load->context, done) : COH_OK;
}

coh_status coh_load_rate(const coh_load *load, uint64_t window_ns, double *out_rate)
{
    const uint64_t begin = coh_clock_ns();
    double done = 0;
    coh_status status = COH_OK;
    do
        status = load->turn(load->context, &done);
    while (status == COH_OK && coh_clock_ns() - begin < window_ns);
    if (status == COH_OK)
        status = rest(load, &done);
    *out_rate = rate_of(done, coh_clock_ns() - begin);
    return status;
}

typedef struct companion {
    const coh_load *load;
    _Atomic int must_end; /* set by the measuring thread */
    double rate;
    coh_status status;
    char why[COH_ERROR_TEXT_BYTES];
} companion;

static void *keep_company(void *argument)
{
    companion *c = argument;
    const uint64_t begin = coh_clock_ns();
    double done = 0;
    do {
        c->status = c->load->turn(c->load->context, &done);
    } while (c->status == COH_OK && !c->must_end);
    if (c->status == COH_OK)
        c->status = rest(c->load, &done);
    c->rate = rate_of(done, coh_clock_ns() - begin);
    coh_error_save(c->why);
    return NULL;
}

coh_status coh_load_rates(const coh_load *load, const coh_load *other, uint64_t window_ns,
                          double *out_rate, double *out_other_rate)
{
    companion c = { .load = other };
    pthread_t thread;
    int error = coh_thread_start(&thread, keep_company, &c);
    if (error != 0)
        return coh_fail(COH_ERR_MEMORY, "no thread to measure on: %s: see to ulimit -u",
                        strerror(error));
    (void)pthread_setname_np(thread, "coh-beside");
    coh_status status = coh_load_rate(load, window_ns, out_rate);
    c.must_end = 1;
    pthread_join(thread, NULL);
    *out_other_rate = c.rate;
    if (status == COH_OK && c.status != COH_OK) {
        coh_error_restore(c.why);
        status = c.status;
    }
    return status;
}

/* ---- samples ---- */

void coh_samples_begin(coh_samples *samples)
{
    *samples = (coh_samples){ .begin_ns = coh_clock_ns() };
}

int coh_samples_go_on(const coh_samples *samples, const coh_measure_effort *effort)
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

/* ---- figures ---- */

coh_status coh_measure_rate(const coh_measure *m, const coh_load *load, coh_figure *figure)
{
    coh_samples samples;
    double rate;
    if (figure->p50 > 0)
        return COH_OK;
    COH_TRY(coh_load_rate(load, 0, &rate));
    coh_samples_begin(&samples);
    while (coh_samples_go_on(&samples, &m->effort)) {
        COH_TRY(coh_load_rate(load, m->effort.window_ns, &rate));
        coh_samples_add(&samples, rate);
    }
    *figure = coh_samples_figure(&samples);
    return COH_OK;
}

coh_status coh_measure_time(const coh_measure *m, coh_status (*call)(void *context), void *context,
                            uint32_t count, coh_figure *out_ns)
{
    coh_samples samples;
    coh_samples_begin(&samples);
    while (coh_samples_go_on(&samples, &m->effort)) {
        const uint64_t begin = coh_clock_ns();
        COH_TRY(call(context));
        coh_samples_add(&samples, (double)(coh_clock_ns() - begin) / count);
    }
    *out_ns = coh_samples_figure(&samples);
    return COH_OK;
}

coh_status coh_measure_work(const coh_measure *m, const coh_bed *bed, coh_bed_work prepare,
                            coh_bed_work work, void *context, coh_figure *out_seconds)
{
    coh_samples samples;
    uint32_t count;
    double seconds;
    if (prepare != NULL)
        COH_TRY(prepare(context, 0));
    COH_TRY(coh_bed_warm(bed, work, context, &count));
    coh_samples_begin(&samples);
    for (uint64_t index = 1; coh_samples_go_on(&samples, &m->effort); index += count) {
        if (prepare != NULL)
            COH_TRY(prepare(context, index));
        COH_TRY(coh_bed_time(bed, work, context, index, count, &seconds));
        coh_samples_add(&samples, seconds);
    }
    *out_seconds = coh_samples_figure(&samples);
    return COH_OK;
}

int coh_measure_knows_link(const coh_measure *m, coh_lane lane, uint32_t deepest, uint32_t *depth)
{
    const coh_link_profile *link = &m->profile->link[lane];
    if (!(link->bytes_per_s.p50 > 0))
        return 0;
    *depth = link->depth < 1 || link->depth > deepest ? deepest : link->depth;
    return 1;
}

coh_status coh_measure_depths(coh_measure *m, coh_lane lane, const uint32_t *depths, uint32_t count,
                              uint32_t *depth, coh_figure *rates)
{
    coh_link_profile *link = &m->profile->link[lane];
    double best = 0;
    uint32_t least = 0;
    for (uint32_t i = 0; i < count; i++) {
        *depth = depths[i];
        rates[i] = (coh_figure){ 0 };
        COH_TRY(coh_measure_rate(m, &m->loads[lane], &rates[i]));
        best = fmax(best, rates[i].p50);
    }
    while (least + 1 < count && rates[least].p50 < 0.95 * best)
        least++;
    link->depth = *depth = depths[least];
    link->bytes_per_s = rates[least];
    return COH_OK;
}
