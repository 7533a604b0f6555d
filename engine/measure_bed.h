/* measure_bed.h - where things are measured: a device, its memory, and how work on it is timed.
 *
 * The one idea: what is measured says what is to be done, the bed how that is put on the device and
 * when the clock is looked at, as a step of that device has it.
 *
 *   the processor   | clock | work | clock |                        the caller works, with the pool
 *   a GPU           | clock | work work work ... work | finish | clock |      work is enqueued, and
 *                                                          launching goes on while it is computed
 *
 * Memory of the processor is an arena for each use; of a GPU it is parts of one arena, taken and
 * given back like a stack.
 *
 * Threads: one measures; a second one may keep another lane busy (coh_lane_load): what both enqueue
 * goes through one door. */
#ifndef COH_ENGINE_MEASURE_BED_H
#define COH_ENGINE_MEASURE_BED_H

#include <pthread.h>

#include "base/pool.h"
#include "cohobate/measure.h"
#include "engine/engine_state.h"
#include "engine/measure_load.h"
#include "memory/cells.h"

/* Some work of the compute lane; `index` is the caller's. It gives `bed->queue` to kernels. */
typedef coh_status (*coh_bed_work)(void *context, uint64_t index);

typedef struct coh_bed {
    const coh_engine_device *what;
    coh_pool *pool;
    int32_t thread_count;
    void (*log)(void *context, const char *sentence); /* may be NULL */
    void *log_context;
    int is_host;            /* 1: the pool computes; `device` is there for its tiers alone */
    uint64_t batch_ns;      /* not on the host: as long as calls are timed at once */
    void *queue;            /* what kernels are given */
    coh_cells constants;    /* as an update reads them */
    const coh_cells *cells; /* the same, where the device has them */

    coh_device *device;
    coh_device_facts facts; /* not on the host */
    coh_queue *queues[COH_LANE_COUNT];
    char *base; /* of the device tier; used bytes are taken. Not on the host */
    uint64_t bytes, used, tiers_begin;

    /* Of what each lane has under way; a failing device closes them. The lane's thread counts. */
    coh_counter counters[COH_LANE_COUNT];
    int counter_count;
    uint64_t signalled[COH_LANE_COUNT], counted[COH_LANE_COUNT];
    pthread_mutex_t door; /* whoever enqueues */
    int door_is_made;
} coh_bed;

/* Opens the device; of the host, which has no kernels of its own there, nothing is opened. `what`
 * and `pool` must outlive the bed; of the options it takes the threads and the log. What failed is
 * to be closed all the same. Fails: COH_ERR_DEVICE, COH_ERR_MEMORY. */
coh_status coh_bed_open(const coh_engine_device *what, coh_pool *pool,
                        const coh_measure_options *options, coh_bed *bed);
void coh_bed_close(coh_bed *bed); /* accepts a zeroed one */

/* ---- memory ---- */

/* Not on the host: the arena, with so many bytes for what is measured, and the lanes.
 * Fails: COH_ERR_MEMORY with what would fit, COH_ERR_DEVICE. */
coh_status coh_bed_take(coh_bed *bed, uint64_t bytes);
/* Bytes that may be taken now. */
uint64_t coh_bed_room(const coh_bed *bed);
/* Part of the arena; given back by setting `used` to what it was. Fails: COH_ERR_MEMORY. */
coh_status coh_bed_part(coh_bed *bed, uint64_t bytes, char **out_base);

/* So many bytes of device and host tier, and the lanes between them, until they are closed.
 * Fails: COH_ERR_MEMORY, COH_ERR_DEVICE; they are to be closed all the same. */
coh_status coh_bed_open_tiers(coh_bed *bed, uint64_t device_bytes, uint64_t host_bytes,
                              char *out_bases[COH_TIER_COUNT]);
void coh_bed_close_tiers(coh_bed *bed); /* nothing was opened: does nothing */

/* ---- timing ---- */

/* Has ready what the first call of `work` would have to make, calls it once and says how many calls
 * are to be timed at once: 1 on the host. Fails: with the work's failure or the device's. */
coh_status coh_bed_warm(const coh_bed *bed, coh_bed_work work, void *context, uint32_t *out_count);
/* Seconds that one of `count` calls takes, which have the indices from `first` on. Fails: so. */
coh_status coh_bed_time(const coh_bed *bed, coh_bed_work work, void *context, uint64_t first,
                        uint32_t count, double *out_seconds);

/* ---- lanes kept busy ---- */

/* Units under way on a lane of the device; at most one load of a lane at a time. */
typedef struct coh_lane_load {
    coh_bed *bed;
    coh_lane lane;
    coh_status (*enqueue)(void *context); /* one unit */
    void *context;
    double amount;  /* of a unit */
    uint32_t depth; /* units under way, >= 1 */
} coh_lane_load;

/* The load's turn and rest (measure_load.h). Fail: with enqueue's failure or the device's. */
coh_status coh_lane_load_turn(void *load, double *done);
coh_status coh_lane_load_rest(void *load, double *done);
/* Enqueues one unit. */
coh_status coh_lane_load_submit(coh_lane_load *load);

/* The compute lane kept busy with one work. */
typedef struct coh_work_load {
    coh_lane_load lane;
    coh_bed_work work;
    void *context;
    uint32_t repeat; /* calls of a unit */
} coh_work_load;

/* `amount` is what one call does. On the host nothing is called. Fails: as coh_bed_warm. */
coh_status coh_work_load_init(coh_bed *bed, coh_bed_work work, void *context, double amount,
                              coh_work_load *out_load);
coh_load coh_work_load_of(coh_work_load *load);

#endif
