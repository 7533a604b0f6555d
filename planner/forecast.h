/* forecast.h - what is said of a finished program's time beside its one prediction: how much of it
 * is contention, how sure the durations make it, and how full each tier is when. */
#ifndef COH_PLANNER_FORECAST_H
#define COH_PLANNER_FORECAST_H

#include "planner/price.h"
#include "planner/simulate.h"

typedef struct coh_forecast {
    uint64_t alone_ns;     /* no lane slows another */
    uint64_t contended_ns; /* every lane slows every other all the time */
    /* p50: the fluid prediction, with every duration at its median. p10 and p90: as much less and
     * more as the tenths of walks with drawn durations are of those walks' median, so that p10 <=
     * p50 <= p90; without a spread in the profile all three are equal. */
    uint64_t p10_ns, p50_ns, p90_ns;
} coh_forecast;

/* Deterministic: same program, same profile, same numbers. Fails: COH_ERR_MEMORY. */
coh_status coh_forecast_make(const coh_layout *layout, const coh_program *program,
                             const coh_pricer *pricer, coh_forecast *out_forecast);

/* Bytes occupied in each tier while a settled body runs: `count` equal parts of its period, the
 * most in each; tier after tier, COH_TIER_COUNT * count numbers. Fails: COH_ERR_MEMORY. */
coh_status coh_forecast_memory(const coh_layout *layout, const coh_program *body,
                               const coh_pricer *pricer, uint32_t count, uint64_t *out_bytes);

/* Bytes in each tier by what they are of, at the moment of a settled body at which the tier is
 * fullest. Fails: COH_ERR_MEMORY. */
coh_status coh_forecast_fullest(const coh_layout *layout, const coh_program *body,
                                const coh_pricer *pricer,
                                uint64_t out_bytes[COH_TIER_COUNT][COH_STREAM_COUNT]);

#endif
