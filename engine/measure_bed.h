/* measure_bed.h - the test bed of all measurements: a device, its memory, and how work is timed.
 *
 * The one idea: a measurement defines the work; the bed defines how the work reaches the device and
 * when the clock is read, as in a step of that device.
 *
 *   the processor   | clock | work | clock |                        the caller works, with the pool
 *   a GPU           | clock | work work work ... work | finish | clock |      work is enqueued, and
 *                                                          launched while earlier work is computed
 *
 * Memory of the processor is an arena for each use. Memory of a GPU is parts of one arena, taken
 * and given back like a stack.
 *
 * Threads: one measures; a second one may keep another lane busy (coh_lane_load). A mutex (`door`)
 * serialises their enqueues. */
#ifndef COH_ENGINE_MEASURE_BED_H
#define COH_ENGINE_MEASURE_BED_H

#include <pthread.h>

#include "base/pool.h"
#include "cohobate/measure.h"
#include "engine/engine_state.h"
#include "memory/cells.h"

/* Some work of the compute lane; `index` is the caller's. It passes `bed->queue` to kernels. */
typedef coh_status (*coh_bed_work)(void *context, uint64_t index);

typedef struct coh_bed {
    const coh_engine_device *what;
    coh_pool *pool;
    int32_t thread_count;
    void (*log)(void *context, const char *sentence); /* may be NULL */
    void *log_context;
    int is_host;            /* 1: the pool computes; `device` has only its tiers */
    uint64_t batch_ns;      /* not on the host: duration of calls timed together */
    void *queue;            /* passed to kernels */
    coh_cells constants;    /* as an update reads them */
    const coh_cells *cells; /* the same, in the device's memory */

    coh_device *device;
    coh_device_facts facts; /* not on the host */
    coh_queue *queues[COH_LANE_COUNT];
    char *base; /* of the device tier; `used` bytes are taken. Not on the host */
    uint64_t bytes, used, tiers_begin;

    /* Counters of work in flight, per lane; a failing device closes them. Only the lane's thread
     * counts. */
    coh_counter counters[COH_LANE_COUNT];
    int counter_count;
    uint64_t signalled[COH_LANE_COUNT], counted[COH_LANE_COUNT];
    pthread_mutex_t door; /* held to enqueue */
    int door_is_made;
} coh_bed;

/* Opens the device. The host has no device kernels here, so nothing is opened for it. `what` and
 * `pool` must outlive the bed. Of the options only threads and log are used. Call coh_bed_close
 * even after a failure. Fails: COH_ERR_DEVICE, COH_ERR_MEMORY. */
coh_status coh_bed_open(const coh_engine_device *what, coh_pool *pool,
                        const coh_measure_options *options, coh_bed *bed);
void coh_bed_close(coh_bed *bed); /* accepts a zeroed one */

/* ---- memory ---- */

/* Not on the host: opens the arena, with `bytes` for measurements, and the lanes. Fails:
 * COH_ERR_MEMORY with the size that would fit, COH_ERR_DEVICE. */
coh_status coh_bed_take(coh_bed *bed, uint64_t bytes);
/* Returns the bytes that may be taken now. */
uint64_t coh_bed_room(const coh_bed *bed);
/* Takes a part of the arena; give it back by setting `used` to its former value. Fails:
 * COH_ERR_MEMORY. */
coh_status coh_bed_part(coh_bed *bed, uint64_t bytes, char **out_base);

/* Opens device and host tier of these sizes and the lanes between them, until they are closed.
 * Close them even after a failure. Fails: COH_ERR_MEMORY, COH_ERR_DEVICE. */
coh_status coh_bed_open_tiers(coh_bed *bed, uint64_t device_bytes, uint64_t host_bytes,
                              char *out_bases[COH_TIER_COUNT]);
void coh_bed_close_tiers(coh_bed *bed); /* does nothing if none is open */

/* ---- timing ---- */

/* Not on the host: prepares what the first call of `work` would have to make, and enqueues nothing
 * (coh_device_ops.rehearse). Fails: with the work's failure or the device's. */
coh_status coh_bed_rehearse(const coh_bed *bed, coh_bed_work work, void *context);
/* Prepares what the first call of `work` would have to make, calls it once, and sets how many calls
 * to time together: 1 on the host. Fails: with the work's failure or the device's. */
coh_status coh_bed_warm(const coh_bed *bed, coh_bed_work work, void *context, uint32_t *out_count);
/* Measures the seconds per call of `count` calls, with indices from `first` on. Fails: with the
 * work's failure or the device's. */
coh_status coh_bed_time(const coh_bed *bed, coh_bed_work work, void *context, uint64_t first,
                        uint32_t count, double *out_seconds);

/* ---- lanes kept busy ---- */

/* Keeps a lane busy. A load belongs to the thread that calls its turn; between two measurements it
 * rests. */
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

/* Units under way on a lane of the device; at most one load per lane at a time. */
typedef struct coh_lane_load {
    coh_bed *bed;
    coh_lane lane;
    coh_status (*enqueue)(void *context); /* one unit */
    void *context;
    double amount;  /* of a unit */
    uint32_t depth; /* units under way, >= 1 */
} coh_lane_load;

/* The turn and rest of such a load. Fail: with enqueue's failure or the device's. */
coh_status coh_lane_load_turn(void *load, double *done);
coh_status coh_lane_load_rest(void *load, double *done);
/* Enqueues one unit. */
coh_status coh_lane_load_submit(coh_lane_load *load);

/* A load that keeps the compute lane busy with one kind of work. */
typedef struct coh_work_load {
    coh_lane_load lane;
    coh_bed_work work;
    void *context;
    uint32_t repeat; /* calls per unit */
} coh_work_load;

/* `amount` is the work of one call. On the host nothing is called. Fails: as coh_bed_warm. */
coh_status coh_work_load_init(coh_bed *bed, coh_bed_work work, void *context, double amount,
                              coh_work_load *out_load);
coh_load coh_work_load_of(coh_work_load *load);

#endif
