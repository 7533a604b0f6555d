/* Computes the learning rate of a step. The one idea: a pure function of the step's number, so a
 * resumed run needs no state. Next: cohobate/training_note.h, the
 * curve. */
#include "cohobate/training_note.h"

#include <math.h>

double coh_schedule_rate(const coh_schedule *schedule, uint64_t step)
{
    if (schedule == NULL)
        return 0;
    if (step < schedule->warmup_steps)
        return schedule->highest * (double)(step + 1) / (double)schedule->warmup_steps;
    if (step + 1 >= schedule->schedule_steps)
        return schedule->lowest;
    double span = (double)(schedule->schedule_steps - schedule->warmup_steps);
    double passed = (double)(step + 1 - schedule->warmup_steps) / span;
    return schedule->lowest + 0.5 * (schedule->highest - schedule->lowest) *
                                  (1.0 + cos(3.14159265358979323846 * passed));
}
