/* The compute time that transfers cost. Cores copy, hash and submit. If all cores compute, each
 * transfer interrupts some product: for a fixed time per transfer, plus a time per byte. Two lanes
 * that never pause say little about it, because a step's transfers come one by one:
 *
 *    compute    |#####  ####  #######  ####  ##|       products, in whole
 *    transfer   | [r]    [r]    [r]    [r]     |       one, then a pause
 *
 * Compute is measured alone and with transfers, in turns; its loss per transfer is found at two
 * sizes. Next: measure.h. */
#include <math.h>
#include <time.h>

#include "base/clock.h"
#include "base/thread.h"
#include "engine/measure.h"

enum { PAUSE_NS = 300000 };

typedef struct sparse {
    const coh_single *single;
    uint64_t count, spent_ns; /* transfers so far, and the time they took */
    int is_brief;
} sparse;

static coh_status turn(void *context, double *done)
{
    sparse *s = context;
    if (!s->is_brief)
        coh_thread_be_brief(); /* as lanes do; the thread ends with the measurement */
    s->is_brief = 1;
    nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
    const uint64_t begin = coh_clock_ns();
    COH_TRY(s->single->transfer(s->single->context));
    s->spent_ns += coh_clock_ns() - begin;
    s->count++;
    *done += 1;
    return COH_OK;
}

/* For one size: measures the ns that compute loses per transfer, and the ratio of a transfer's time
 * alone to its time during compute. */
static coh_status measure_size(const coh_measure *m, const coh_single *single, double *out_lost_ns,
                               double *out_part)
{
    const coh_load *compute = &m->loads[COH_LANE_COMPUTE];
    const uint64_t window_ns = 4 * m->effort.window_ns;
    coh_samples lost, part;
    coh_samples_begin(&lost);
    coh_samples_begin(&part);
    while (coh_samples_go_on(&lost, &m->effort)) {
        sparse alone = { .single = single, .is_brief = 1 }, beside = { .single = single };
        const coh_load alone_load = { .turn = turn, .context = &alone };
        const coh_load beside_load = { .turn = turn, .context = &beside };
        double compute_alone, compute_beside, transfers;
        COH_TRY(coh_load_rate(compute, window_ns, &compute_alone));
        COH_TRY(coh_load_rates(compute, &beside_load, window_ns, &compute_beside, &transfers));
        COH_TRY(coh_load_rate(&alone_load, window_ns / 4, &(double){ 0 }));
        if (!(compute_alone > 0 && transfers > 0 && alone.count > 0 && beside.spent_ns > 0))
            continue;
        coh_samples_add(&lost, (1 - compute_beside / compute_alone) / transfers * 1e9);
        coh_samples_add(&part, (double)alone.spent_ns / (double)alone.count * (double)beside.count /
                                   (double)beside.spent_ns);
    }
    *out_lost_ns = coh_samples_figure(&lost).p50;
    *out_part = coh_samples_figure(&part).p50;
    return COH_OK;
}

void coh_interference_fit(const double lost_ns[COH_SINGLES], const double bytes[COH_SINGLES],
                          coh_link_profile *link)
{
    const double small = fmax(lost_ns[COH_SINGLE_SMALL], 0);
    const double large = fmax(lost_ns[COH_SINGLE_LARGE], small);
    link->interference_ns_per_byte =
        (large - small) / (bytes[COH_SINGLE_LARGE] - bytes[COH_SINGLE_SMALL]);
    link->interference_ns =
        fmax(small - link->interference_ns_per_byte * bytes[COH_SINGLE_SMALL], 0);
}

coh_status coh_measure_interference(coh_measure *m, coh_lane lane)
{
    const coh_single *singles = m->singles[lane];
    double lost_ns[COH_SINGLES], part[COH_SINGLES], bytes[COH_SINGLES];
    for (int i = 0; i < COH_SINGLES; i++) {
        bytes[i] = (double)singles[i].bytes;
        COH_TRY(measure_size(m, &singles[i], &lost_ns[i], &part[i]));
        if (singles[i].end != NULL)
            COH_TRY(singles[i].end(singles[i].context));
    }
    coh_interference_fit(lost_ns, bytes, &m->profile->link[lane]);
    /* Interference describes the loss of compute; this describes that of the transfer. */
    m->profile->contention[COH_LANE_COMPUTE][lane] = 1;
    m->profile->contention[lane][COH_LANE_COMPUTE] =
        fmin(fmax(part[COH_SINGLE_LARGE], COH_PROFILE_PART_LEAST), 1);
    return COH_OK;
}
