/* measure_load.h - keeps a lane busy, and measures its rate alone and next to another lane.
 *
 * Threads: a load belongs to the thread that calls its turn; between two measurements it rests. */
#ifndef COH_ENGINE_MEASURE_LOAD_H
#define COH_ENGINE_MEASURE_LOAD_H

#include <stdint.h>

#include "base/check.h"

typedef struct coh_load {
    /* Does some work and adds the amount finished meanwhile to *done, in bytes or flops. May leave
     * as much in flight as the lane would. NULL: there is no such load. */
    coh_status (*turn)(void *context, double *done);
    /* Waits for the work in flight and adds it to *done; NULL: none is ever in flight. */
    coh_status (*rest)(void *context, double *done);
    void *context;
} coh_load;

/* Measures units per second over about `window_ns`, at least one turn. */
coh_status coh_load_rate(const coh_load *load, uint64_t window_ns, double *out_rate);
/* Measures both rates at once: `other` runs on a separate thread as long as `load` is measured. */
coh_status coh_load_rates(const coh_load *load, const coh_load *other, uint64_t window_ns,
                          double *out_rate, double *out_other_rate);

#endif
