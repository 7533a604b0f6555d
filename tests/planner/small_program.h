/* small_program.h - programs small enough to time by hand, and random ones. Unit: a flop or a byte
 * lasts 1 ns. */
#ifndef COH_TESTS_PLANNER_SMALL_PROGRAM_H
#define COH_TESTS_PLANNER_SMALL_PROGRAM_H

#include "planner/simulate.h"

enum { INSTRUCTIONS_MOST = 200, WAITS_MOST = 600 };

typedef struct made {
    coh_program program;
    coh_instruction instructions[INSTRUCTIONS_MOST];
    coh_wait waits[WAITS_MOST];
} made;

void make(made *m, coh_program_kind kind);

/* Adds an instruction of `amount` flops (compute, host) or bytes (links). Returns its ordinal. */
uint32_t add(made *m, coh_lane lane, uint64_t amount);

/* Makes the last added instruction wait for this one. */
void wait_for(made *m, coh_lane lane, uint32_t ordinal, int carry);

/* A program of random instructions; each waits for up to three earlier ones. */
void make_random(made *m, uint64_t seed, coh_program_kind kind);

/* A body of 8 random instructions on three lanes, two of which wait for some instruction of the
 * run before. */
void make_random_body(made *m, uint64_t seed);

/* No lane slows another. */
coh_profile unit_profile(void);

/* READ and WRITE together get the rate each has alone. */
void share_drive(coh_profile *profile);

/* Writes each instruction's time without contention. */
void instruction_times(const made *m, uint64_t *out_ns);

coh_simulation run_as(const made *m, const coh_profile *profile, coh_contention contention,
                      uint64_t *times);
/* Simulates with fluid contention. */
coh_simulation run(const made *m, const coh_profile *profile, uint64_t *times);

/* The time below which no schedule of the program's work can be, and the lanes that set it: the
 * busiest lane; a link's slots, each occupied for latency and bytes; or two lanes that slow one
 * another. `beside` is COH_LANE_COUNT if one lane sets it alone. */
typedef struct lower_bound {
    uint64_t ns;
    coh_lane lane, beside;
} lower_bound;
lower_bound bound_of(const made *m, const coh_profile *profile);

#endif
