/* measure_load.h - a lane kept busy, how fast it goes alone, and beside another.
 *
 * Threads: a load belongs to the thread that turns it; between two measurements it rests. */
#ifndef COH_ENGINE_MEASURE_LOAD_H
#define COH_ENGINE_MEASURE_LOAD_H

#include <stdint.h>

#include "base/check.h"

typedef struct coh_load {
    /* Some work; adds to *done what ended meanwhile, in bytes or flops. May leave as much under way
     * as the lane would. NULL: there is no such load. */
    coh_status (*turn)(void *context, double *done);
    /* Lets what is under way end, and adds it; NULL: nothing ever is. */
    coh_status (*rest)(void *context, double *done);
    void *context;
} coh_load;

/* Units a second over about `window_ns`, at least one turn. */
coh_status coh_load_rate(const coh_load *load, uint64_t window_ns, double *out_rate);
/* The same of two at once: `other` on a thread of its own for as long as `load` is measured. */
coh_status coh_load_rates(const coh_load *load, const coh_load *other, uint64_t window_ns,
                          double *out_rate, double *out_other_rate);

#endif
