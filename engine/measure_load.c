/* Measures the rate of one load, or of two at once on two threads. A rate includes the rest: work
 * still in flight after the window is waited for and counted. Next: measure_load.h. */
#include "engine/measure_load.h"

#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"

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
