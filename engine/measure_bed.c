/* Opens a device for measurements and times work on it: called directly on the host, in batches of
 * enqueued calls on a GPU. Next: measure_bed.h. */
#include "engine/measure_bed.h"

#include "base/bytes.h"
#include "base/clock.h"
#include "cohobate/machine.h"

/* Most calls that are enqueued between two readings of the clock. */
#define BATCH_MOST 1024
/* Units of the compute lane in flight: while one is computed, the next is enqueued. Together they
 * have fewer calls than a queue has room for, because a thread that waits for room holds the
 * mutex. */
#define COMPUTE_DEPTH 2
#define UNIT_MOST     100
#define PART_BYTES    ((uint64_t)1 << 20)

static const coh_lane lanes[] = { COH_LANE_H2D, COH_LANE_D2H };

/* ---- open and close ---- */

/* Wakes every thread that waits for a lane. */
static void take_failure(void *context, coh_status status, uint64_t number, uint32_t index)
{
    coh_bed *bed = context;
    (void)status;
    (void)number;
    (void)index;
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        coh_counter_close(&bed->counters[lane]);
}

static coh_status create_device(coh_bed *bed)
{
    const coh_device_config config = { .index = bed->what->index,
                                       .thread_count = bed->thread_count,
                                       .kernels = bed->what->kernels,
                                       .failed = take_failure,
                                       .failed_context = bed,
                                       .log = bed->log,
                                       .log_context = bed->log_context,
                                       .driver = bed->what->driver };
    return bed->what->ops->create(&config, &bed->device);
}

coh_status coh_bed_open(const coh_engine_device *what, coh_pool *pool,
                        const coh_measure_options *options, coh_bed *bed)
{
    *bed = (coh_bed){ .what = what,
                      .pool = pool,
                      .thread_count = options->thread_count,
                      .log = options->log,
                      .log_context = options->context,
                      .is_host = what->kernels == NULL,
                      .queue = pool,
                      .constants = { .update_rate = 1e-4f, .update_scale = 1, .loss_factor = 1 } };
    for (int i = 0; i < COH_CELL_SCALARS; i++)
        bed->constants.update_scalars[i] = 0.5f;
    bed->cells = &bed->constants;
    if (pthread_mutex_init(&bed->door, NULL) != 0)
        return coh_fail(COH_ERR_MEMORY, "the system gives no mutex to measure with");
    bed->door_is_made = 1;
    for (; bed->counter_count < COH_LANE_COUNT; bed->counter_count++)
        COH_TRY(coh_counter_init(&bed->counters[bed->counter_count]));
    if (bed->is_host)
        return COH_OK;
    COH_TRY(create_device(bed));
    what->ops->facts(bed->device, &bed->facts);
    return COH_OK;
}

static void destroy_queues(coh_bed *bed)
{
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        if (bed->queues[lane] != NULL)
            bed->what->ops->queue_destroy(bed->queues[lane]);
        bed->queues[lane] = NULL;
    }
}

/* After a failure, destroying the queues ends all work in flight. */
static void destroy_device(coh_bed *bed)
{
    destroy_queues(bed);
    if (bed->device == NULL)
        return;
    bed->what->ops->arena_destroy(bed->device, COH_TIER_HOST);
    bed->what->ops->arena_destroy(bed->device, COH_TIER_DEVICE);
    bed->what->ops->destroy(bed->device);
    bed->device = NULL;
}

void coh_bed_close(coh_bed *bed)
{
    destroy_device(bed);
    while (bed->counter_count > 0)
        coh_counter_fini(&bed->counters[--bed->counter_count]);
    if (bed->door_is_made)
        pthread_mutex_destroy(&bed->door);
    *bed = (coh_bed){ 0 };
}

/* ---- memory ---- */

coh_status coh_bed_take(coh_bed *bed, uint64_t bytes)
{
    const coh_device_ops *ops = bed->what->ops;
    const uint64_t workspace_bytes = coh_bytes_round_page(bed->what->kernels->workspace_bytes);
    void *base;
    bed->used = workspace_bytes + coh_bytes_round_page(sizeof(coh_cells));
    bed->bytes = bed->used + coh_bytes_round_page(bytes);
    COH_TRY(ops->arena_create(bed->device, COH_TIER_DEVICE, bed->bytes, &base));
    bed->base = base;
    void *cells = bed->base + workspace_bytes;
    COH_TRY(ops->put(bed->device, cells, &bed->constants, sizeof(bed->constants)));
    bed->cells = cells;
    COH_TRY(ops->queue_create(bed->device, COH_LANE_COMPUTE, &bed->queues[COH_LANE_COMPUTE]));
    for (int i = 0; i < 2; i++)
        COH_TRY(ops->queue_create(bed->device, lanes[i], &bed->queues[lanes[i]]));
    bed->queue = bed->queues[COH_LANE_COMPUTE];
    return COH_OK;
}

uint64_t coh_bed_room(const coh_bed *bed)
{
    if (bed->is_host)
        return coh_machine_free_bytes() / 2;
    return (bed->bytes - bed->used) / PART_BYTES * PART_BYTES;
}

coh_status coh_bed_part(coh_bed *bed, uint64_t bytes, char **out_base)
{
    if (bytes > bed->bytes - bed->used)
        return coh_fail(COH_ERR_MEMORY,
                        "%llu bytes of %s's memory are to be measured in, and %llu are left",
                        (unsigned long long)bytes, bed->facts.name,
                        (unsigned long long)(bed->bytes - bed->used));
    *out_base = bed->base + bed->used;
    bed->used += coh_bytes_round_page(bytes);
    return COH_OK;
}

/* Creates the host's device, only for the tiers. */
static coh_status open_host_tiers(coh_bed *bed, const uint64_t bytes[COH_TIER_DISK],
                                  char *out_bases[COH_TIER_COUNT])
{
    const coh_device_ops *ops = bed->what->ops;
    static const coh_tier tiers[] = { COH_TIER_DEVICE, COH_TIER_HOST };
    COH_TRY(create_device(bed));
    for (int i = 0; i < 2; i++) {
        void *base;
        COH_TRY(ops->arena_create(bed->device, tiers[i], bytes[tiers[i]], &base));
        out_bases[tiers[i]] = base;
    }
    for (int i = 0; i < 2; i++)
        COH_TRY(ops->queue_create(bed->device, lanes[i], &bed->queues[lanes[i]]));
    return COH_OK;
}

coh_status coh_bed_open_tiers(coh_bed *bed, uint64_t device_bytes, uint64_t host_bytes,
                              char *out_bases[COH_TIER_COUNT])
{
    const uint64_t bytes[COH_TIER_DISK] = {
        [COH_TIER_DEVICE] = device_bytes, [COH_TIER_HOST] = host_bytes
    };
    void *base;
    if (bed->is_host)
        return open_host_tiers(bed, bytes, out_bases);
    bed->tiers_begin = bed->used;
    COH_TRY(coh_bed_part(bed, device_bytes, &out_bases[COH_TIER_DEVICE]));
    COH_TRY(bed->what->ops->arena_create(bed->device, COH_TIER_HOST, host_bytes, &base));
    out_bases[COH_TIER_HOST] = base;
    return COH_OK;
}

void coh_bed_close_tiers(coh_bed *bed)
{
    if (bed->is_host) {
        destroy_device(bed);
    } else if (bed->tiers_begin > 0) {
        bed->used = bed->tiers_begin; /* pinned memory is freed with the device */
        bed->tiers_begin = 0;
    }
}

/* ---- enqueued work ---- */

typedef struct launch {
    coh_bed_work work;
    void *context;
    coh_status status; /* of the first failure */
} launch;

/* Runs immediately, in the calling thread. */
static void run_launch(void *context, uint64_t number, uint32_t index)
{
    launch *l = context;
    (void)index;
    if (l->status == COH_OK)
        l->status = l->work(l->context, number);
}

static coh_status enqueue_calls(const coh_bed *bed, coh_bed_work work, void *context,
                                uint64_t first, uint32_t count)
{
    launch l = { .work = work, .context = context };
    for (uint32_t i = 0; i < count && l.status == COH_OK; i++)
        bed->what->ops->launch(bed->queues[COH_LANE_COMPUTE], run_launch, &l, first + i, 0, NULL);
    return l.status;
}

static coh_status finish(const coh_bed *bed)
{
    bed->what->ops->finish(bed->queues[COH_LANE_COMPUTE]);
    return bed->what->ops->failure(bed->device);
}

/* ---- timing ---- */

coh_status coh_bed_time(const coh_bed *bed, coh_bed_work work, void *context, uint64_t first,
                        uint32_t count, double *out_seconds)
{
    coh_status status = COH_OK;
    const uint64_t begin = coh_clock_ns();
    if (bed->is_host)
        for (uint32_t i = 0; i < count && status == COH_OK; i++)
            status = work(context, first + i);
    else
        status = enqueue_calls(bed, work, context, first, count);
    if (!bed->is_host && status == COH_OK)
        status = finish(bed);
    *out_seconds = (double)(coh_clock_ns() - begin) * 1e-9 / count;
    return status;
}

coh_status coh_bed_rehearse(const coh_bed *bed, coh_bed_work work, void *context)
{
    launch l = { .work = work, .context = context };
    COH_TRY(bed->what->ops->rehearse(bed->queues[COH_LANE_COMPUTE], run_launch, &l, 0, 0));
    return l.status;
}

coh_status coh_bed_warm(const coh_bed *bed, coh_bed_work work, void *context, uint32_t *out_count)
{
    double seconds;
    *out_count = 1;
    if (bed->is_host)
        return work(context, 0);
    COH_TRY(coh_bed_rehearse(bed, work, context));
    COH_TRY(coh_bed_time(bed, work, context, 0, 1, &seconds));
    /* The first pass times one call and the round trip, the second times many. */
    for (int look = 0; look < 2; look++) {
        const double calls = (double)bed->batch_ns * 1e-9 / (seconds > 1e-9 ? seconds : 1e-9);
        *out_count = calls < 1 ? 1 : calls < BATCH_MOST ? (uint32_t)calls : BATCH_MOST;
        if (look == 0 && *out_count > 1)
            COH_TRY(coh_bed_time(bed, work, context, 0, *out_count, &seconds));
    }
    return COH_OK;
}

/* ---- lanes kept busy ---- */

static coh_status await(coh_bed *bed, coh_lane lane, uint64_t value)
{
    if (coh_counter_wait(&bed->counters[lane], value))
        return COH_OK;
    COH_TRY(bed->what->ops->failure(bed->device));
    return coh_fail(COH_ERR_STOPPED, "lane %s was closed while it was measured",
                    coh_lane_name(lane));
}

coh_status coh_lane_load_submit(coh_lane_load *load)
{
    coh_bed *bed = load->bed;
    if (!bed->is_host)
        pthread_mutex_lock(&bed->door);
    coh_status status = load->enqueue(load->context);
    if (status == COH_OK)
        bed->what->ops->signal(bed->queues[load->lane], &bed->counters[load->lane],
                               ++bed->signalled[load->lane]);
    if (!bed->is_host)
        pthread_mutex_unlock(&bed->door);
    return status;
}

static void count(const coh_lane_load *load, double *done)
{
    coh_bed *bed = load->bed;
    const uint64_t through = coh_counter_read(&bed->counters[load->lane]);
    *done += (double)(through - bed->counted[load->lane]) * load->amount;
    bed->counted[load->lane] = through;
}

coh_status coh_lane_load_turn(void *context, double *done)
{
    coh_lane_load *load = context;
    coh_bed *bed = load->bed;
    while (bed->signalled[load->lane] - bed->counted[load->lane] < load->depth)
        COH_TRY(coh_lane_load_submit(load));
    COH_TRY(await(bed, load->lane, bed->signalled[load->lane] - load->depth + 1));
    count(load, done);
    return COH_OK;
}

coh_status coh_lane_load_rest(void *context, double *done)
{
    coh_lane_load *load = context;
    COH_TRY(await(load->bed, load->lane, load->bed->signalled[load->lane]));
    count(load, done);
    return COH_OK;
}

static coh_status enqueue_work(void *context)
{
    const coh_work_load *load = context;
    return enqueue_calls(load->lane.bed, load->work, load->context, 0, load->repeat);
}

/* The host's kernels are done when they return. */
static coh_status turn_on_host(void *context, double *done)
{
    const coh_work_load *load = context;
    COH_TRY(load->work(load->context, 0));
    *done += load->lane.amount;
    return COH_OK;
}

coh_status coh_work_load_init(coh_bed *bed, coh_bed_work work, void *context, double amount,
                              coh_work_load *out_load)
{
    uint32_t repeat = 1;
    if (!bed->is_host)
        COH_TRY(coh_bed_warm(bed, work, context, &repeat));
    repeat = repeat < UNIT_MOST ? repeat : UNIT_MOST;
    *out_load = (coh_work_load){ .lane = { .bed = bed,
                                           .lane = COH_LANE_COMPUTE,
                                           .enqueue = enqueue_work,
                                           .context = out_load,
                                           .amount = amount * repeat,
                                           .depth = COMPUTE_DEPTH },
                                 .work = work,
                                 .context = context,
                                 .repeat = repeat };
    return COH_OK;
}

coh_load coh_work_load_of(coh_work_load *load)
{
    if (load->lane.bed->is_host)
        return (coh_load){ .turn = turn_on_host, .context = load };
    return (
        coh_load){ .turn = coh_lane_load_turn, .rest = coh_lane_load_rest, .context = &load->lane };
}
