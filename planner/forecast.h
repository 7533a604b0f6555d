/* forecast.h - further predictions for a finished program: how much of its time is contention, the
 * spread due to uncertain durations, and the occupancy of each tier over time. */
#ifndef COH_PLANNER_FORECAST_H
#define COH_PLANNER_FORECAST_H

#include "planner/price.h"
#include "planner/simulate.h"

typedef struct coh_forecast {
    uint64_t alone_ns;     /* no lane slows another */
    uint64_t contended_ns; /* each lane is always as slow as others make it */
    /* p50: the fluid prediction with every duration at its median. p10 and p90 relate to p50 as the
     * 10th and 90th percentiles of walks with random durations relate to the median of these walks,
     * so p10 <= p50 <= p90. Without a spread in the profile all three are equal. */
    uint64_t p10_ns, p50_ns, p90_ns;
} coh_forecast;

/* `period_ns`: of coh_simulate_priced, which makes the same walk; 0: not known. Deterministic: the
 * same program and profile give the same numbers. Fails: COH_ERR_MEMORY. */
coh_status coh_forecast_make(const coh_layout *layout, const coh_program *program,
                             const coh_pricer *pricer, uint64_t period_ns,
                             coh_forecast *out_forecast);

/* Computes the bytes occupied in each tier during a settled body: the maximum in each of `count`
 * equal parts of its period. Writes COH_TIER_COUNT * count numbers, tier after tier. Fails:
 * COH_ERR_MEMORY. */
coh_status coh_forecast_memory(const coh_layout *layout, const coh_program *body,
                               const coh_pricer *pricer, uint32_t count, uint64_t *out_bytes);

/* Computes the bytes in each tier by stream, at the moment of a settled body when the tier is
 * fullest. Fails: COH_ERR_MEMORY. */
coh_status coh_forecast_fullest(const coh_layout *layout, const coh_program *body,
                                const coh_pricer *pricer,
                                uint64_t out_bytes[COH_TIER_COUNT][COH_STREAM_COUNT]);

#endif
