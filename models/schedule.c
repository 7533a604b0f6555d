/* Computes the learning rate of a step. The one idea: a pure function of the step's number, so a
 * resumed run needs no state. Next: cohobate/training_note.h, the
 * curves. */
#include "cohobate/training_note.h"

#include <math.h>

static const char *const names[COH_SCHEDULE_KIND_COUNT] = {
    [COH_SCHEDULE_COSINE] = "cosine",
    [COH_SCHEDULE_LINEAR] = "linear",
    [COH_SCHEDULE_CONSTANT] = "constant",
    [COH_SCHEDULE_WSD] = "wsd",
};

const char *coh_schedule_kind_name(coh_schedule_kind kind)
{
    return (unsigned)kind < COH_SCHEDULE_KIND_COUNT ? names[kind] : NULL;
}

/* The rate of a step of the warm-up. */
static double rising(const coh_schedule *schedule, uint64_t step)
{
    return schedule->highest * (double)(step + 1) / (double)schedule->warmup_steps;
}

double coh_schedule_rate(const coh_schedule *schedule, uint64_t step)
{
    if (schedule == NULL)
        return 0;
    if (step < schedule->warmup_steps)
        return rising(schedule, step);
    if (step + 1 >= schedule->schedule_steps)
        return schedule->lowest;
    double span = (double)(schedule->schedule_steps - schedule->warmup_steps);
    double passed = (double)(step + 1 - schedule->warmup_steps) / span;
    return schedule->lowest + 0.5 * (schedule->highest - schedule->lowest) *
                                  (1.0 + cos(3.14159265358979323846 * passed));
}

/* The rate of a step after the warm-up, of a line over the last `decay_steps`. */
static double falling(const coh_schedule *schedule, uint64_t decay_steps, uint64_t step)
{
    const uint64_t end = schedule->schedule_steps;
    if (step >= end)
        return schedule->lowest;
    const uint64_t left = end - 1 - step;
    if (left >= decay_steps)
        return schedule->highest;
    return schedule->lowest +
           (schedule->highest - schedule->lowest) * ((double)left / (double)decay_steps);
}

double coh_schedule_kind_rate(const coh_schedule *schedule, coh_schedule_kind kind,
                              uint64_t decay_steps, uint64_t step)
{
    if (schedule == NULL || coh_schedule_kind_name(kind) == NULL)
        return 0;
    if (kind == COH_SCHEDULE_COSINE)
        return coh_schedule_rate(schedule, step);
    if (step < schedule->warmup_steps)
        return rising(schedule, step);
    if (kind == COH_SCHEDULE_CONSTANT)
        return schedule->highest;
    const uint64_t most = schedule->schedule_steps > schedule->warmup_steps
                              ? schedule->schedule_steps - schedule->warmup_steps
                              : 0;
    const int is_short = kind == COH_SCHEDULE_WSD && decay_steps < most;
    return falling(schedule, is_short ? decay_steps : most, step);
}
