/* schedule.h - computes the learning rate of a step, a pure function of the step's number.
 *
 *   rate |      ___
 *        |    /     \__
 *        |  /          \__
 *        |/               \______  lowest
 *        +------------------------- step
 *         warm-up   cosine   schedule_steps
 *
 * Linear warm-up, then half a cosine (Loshchilov and Hutter 2017), then flat. The rate does not
 * depend on where a run stops, so a resumed run has the rates of an uninterrupted one. */
#ifndef COH_CLI_SCHEDULE_H
#define COH_CLI_SCHEDULE_H

#include <stdint.h>

typedef struct cli_schedule {
    double highest, lowest;
    uint64_t warmup_steps, schedule_steps;
} cli_schedule;

/* The rate of step `step`, counted from 0. Step warmup_steps - 1 has `highest`; step schedule_steps
 * - 1 and all later ones have `lowest` (if the schedule outlasts the warm-up). */
double cli_schedule_rate(const cli_schedule *schedule, uint64_t step);

#endif
