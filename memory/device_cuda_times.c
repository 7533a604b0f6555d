/* The times of places in a GPU's queues: events between commands, mapped to the host's clock.
 *
 *   queue   begin | event | word        notify, timed: the event's time, in the GPU's clock
 *   clock   wait for go | event | done  a pair: go is written, then the event runs, then done is
 *                                       seen; so the event's host time lies between the two
 *
 * A pair is as exact as half the time from go to done, some microseconds; the best of a few tries
 * counts. A pair is made when times are taken and the newest pair is PAIR_NS old. So the places
 * before it lie between two pairs, where the drift of the clocks cancels, and the later ones lie
 * outside, where it does not (memory/clock_map.h). The thread that takes times calls the driver, so
 * it may be any but coh-retire (device_cuda.h). */
#include <inttypes.h>

#include "base/clock.h"
#include "memory/device_cuda_state.h"

/* A new pair is made if the newest is this old. In that time a place outside of the pairs gets a
 * further error of at most 10 us (COH_CLOCK_DRIFT). A pair costs some 50 us of the thread that
 * takes times. */
#define PAIR_NS   50000000u
#define TRY_COUNT 4
/* Looks for `done` this long before the thread sleeps in the driver. */
#define LOOK_NS 100000u

/* ---- pairs ---- */

static coh_status enqueue_try(coh_device *device, CUevent event)
{
    const coh_cuda_driver *driver = device->driver;
    CUstream stream = device->clock.stream;
    COH_TRY(coh_cuda_check(
        driver,
        driver->cuStreamWaitValue64(stream, coh_cuda_word_address(device, &device->words->clock_go),
                                    device->clock.try_count, CU_STREAM_WAIT_VALUE_GEQ),
        "cuStreamWaitValue64 of the GPU's clock"));
    COH_TRY(coh_cuda_check(driver, driver->cuEventRecord(event, stream),
                           "cuEventRecord of the GPU's clock"));
    return coh_cuda_check(driver,
                          driver->cuStreamWriteValue64(
                              stream, coh_cuda_word_address(device, &device->words->clock_done),
                              device->clock.try_count, CU_STREAM_WRITE_VALUE_DEFAULT),
                          "cuStreamWriteValue64 of the GPU's clock");
}

/* Has the GPU record `event` between two readings of the host's clock. */
static coh_status try_pair(coh_device *device, CUevent event, coh_clock_pair *out_pair)
{
    coh_cuda_words *words = device->words;
    const uint64_t number = ++device->clock.try_count;
    const coh_status status = enqueue_try(device, event);
    const uint64_t begin_ns = coh_clock_ns();
    uint64_t end_ns = begin_ns;
    coh_word_lift(&words->clock_go.value, number); /* always: the stream waits for it */
    COH_TRY(status);
    while (atomic_load_explicit(&words->clock_done.value, memory_order_acquire) < number &&
           end_ns - begin_ns < LOOK_NS)
        end_ns = coh_clock_ns();
    if (atomic_load_explicit(&words->clock_done.value, memory_order_acquire) < number)
        COH_TRY(coh_cuda_check(device->driver,
                               device->driver->cuStreamSynchronize(device->clock.stream),
                               "cuStreamSynchronize of the GPU's clock"));
    end_ns = coh_clock_ns();
    *out_pair = (coh_clock_pair){ .host_ns = begin_ns + (end_ns - begin_ns) / 2,
                                  .error_ns = (end_ns - begin_ns + 1) / 2 };
    return COH_OK;
}

/* Reads the GPU's time of an event that has its time. */
static coh_status read_event(const coh_device *device, CUevent event, double *out_device_ns)
{
    const coh_cuda_clock *clock = &device->clock;
    const coh_clock_pair *newest = coh_clock_map_newest(&clock->map);
    float since_ms = 0; /* negative: the event is older */
    COH_TRY(coh_cuda_check(
        device->driver,
        device->driver->cuEventElapsedTime(&since_ms, clock->events[clock->newest], event),
        "cuEventElapsedTime"));
    *out_device_ns = newest->device_ns + (double)since_ms * 1e6;
    return COH_OK;
}

static coh_status make_pair(coh_device *device)
{
    coh_cuda_clock *clock = &device->clock;
    const int is_first = coh_clock_map_newest(&clock->map) == NULL;
    int best = (clock->newest + 1) % 3, other = (clock->newest + 2) % 3;
    coh_clock_pair pair, found;
    COH_TRY(try_pair(device, clock->events[best], &found));
    for (int i = 1; i < TRY_COUNT; i++) {
        COH_TRY(try_pair(device, clock->events[other], &pair));
        if (pair.error_ns >= found.error_ns)
            continue;
        found = pair;
        const int worse = best;
        best = other;
        other = worse;
    }
    found.device_ns = 0;
    if (!is_first)
        COH_TRY(read_event(device, clock->events[best], &found.device_ns));
    const uint64_t pair_count = clock->map.pair_count;
    coh_clock_map_add(&clock->map, &found);
    if (clock->map.pair_count > pair_count)
        clock->newest = best;
    return COH_OK;
}

/* The second pair is made at once: the places since the first one lie between the two. */
static int pair_is_due(const coh_clock_map *map)
{
    return map->pair_count < 2 || coh_clock_ns() - coh_clock_map_newest(map)->host_ns > PAIR_NS;
}

/* ---- taking ---- */

static void give_time(coh_queue *queue, const coh_cuda_record *record, uint64_t at_ns)
{
    const uint64_t before_ns = queue->timed_ns;
    const uint64_t passed_ns = at_ns > before_ns ? at_ns : before_ns;
    queue->timed_ns = passed_ns;
    if (record->kind == COH_CUDA_NOTIFY) {
        record->timed(record->target, record->number, record->index, passed_ns);
        return;
    }
    /* A wait: the stream was stalled since its previous place, or since the wait was enqueued,
     * whichever is later. */
    const uint64_t begin_ns = before_ns > record->begin_ns ? before_ns : record->begin_ns;
    if (passed_ns > begin_ns)
        atomic_fetch_add_explicit(record->stall_ns, passed_ns - begin_ns, memory_order_relaxed);
}

/* Takes all times that the GPU has. */
static coh_status take_times(coh_queue *queue)
{
    coh_device *device = queue->base.device;
    const uint64_t passed = atomic_load_explicit(&queue->passed, memory_order_acquire);
    const uint64_t progress = atomic_load_explicit(&device->words->progress[queue->base.lane].value,
                                                   memory_order_acquire);
    uint64_t taken = atomic_load_explicit(&queue->taken, memory_order_relaxed);
    if (taken < passed && pair_is_due(&device->clock.map))
        COH_TRY(make_pair(device));
    for (; taken < passed; taken++) {
        const coh_cuda_record *record = &queue->ring[taken % COH_CUDA_RING_COUNT];
        double device_ns;
        if (record->event_place > progress)
            break;
        if (record->event_place > 0) {
            COH_TRY(read_event(device, queue->events[taken % COH_CUDA_RING_COUNT], &device_ns));
            give_time(queue, record, coh_clock_map_host_ns(&device->clock.map, device_ns));
        }
        atomic_store_explicit(&queue->taken, taken + 1, memory_order_release);
    }
    return COH_OK;
}

/* Returns the instruction of the first record that is not taken. */
static coh_cuda_record untaken_instruction(const coh_queue *queue)
{
    const uint64_t passed = atomic_load_explicit(&queue->passed, memory_order_acquire);
    for (uint64_t i = atomic_load_explicit(&queue->taken, memory_order_relaxed); i < passed; i++)
        if (queue->ring[i % COH_CUDA_RING_COUNT].kind == COH_CUDA_NOTIFY)
            return queue->ring[i % COH_CUDA_RING_COUNT];
    return (coh_cuda_record){ .number = 0 };
}

void coh_cuda_queue_take_times(coh_queue *queue)
{
    coh_device *device = queue->base.device;
    if (!device->config.times_exactly || coh_cuda_is_closed(device))
        return;
    pthread_mutex_lock(&device->clock.mutex);
    coh_status status = coh_cuda_enter(device);
    if (status == COH_OK) {
        status = take_times(queue);
        coh_cuda_leave(device);
    }
    const coh_cuda_record instruction = untaken_instruction(queue);
    pthread_mutex_unlock(&device->clock.mutex);
    if (status == COH_OK)
        return;
    coh_fail_prefix(status, "lane %s, the times of its instructions",
                    coh_lane_name(queue->base.lane));
    coh_cuda_device_fail(device, status, instruction.number, instruction.index);
}

/* ---- creation and destruction ---- */

coh_status coh_cuda_clock_create(coh_device *device)
{
    const coh_cuda_driver *driver = device->driver;
    coh_cuda_clock *clock = &device->clock;
    if (pthread_mutex_init(&clock->mutex, NULL) != 0)
        return coh_fail(COH_ERR_MEMORY, "the system gives no mutex for a GPU's clock");
    clock->mutex_is_made = 1;
    COH_TRY(coh_cuda_check(driver, driver->cuStreamCreate(&clock->stream, CU_STREAM_NON_BLOCKING),
                           "cuStreamCreate of the GPU's clock"));
    for (int i = 0; i < 3; i++)
        COH_TRY(coh_cuda_check(driver, driver->cuEventCreate(&clock->events[i], CU_EVENT_DEFAULT),
                               "cuEventCreate of the GPU's clock"));
    return make_pair(device);
}

void coh_cuda_clock_destroy(coh_device *device)
{
    const coh_cuda_driver *driver = device->driver;
    coh_cuda_clock *clock = &device->clock;
    if (clock->stream != NULL) {
        (void)driver->cuStreamSynchronize(clock->stream);
        (void)driver->cuStreamDestroy(clock->stream);
    }
    for (int i = 0; i < 3; i++)
        if (clock->events[i] != NULL)
            (void)driver->cuEventDestroy(clock->events[i]);
    if (clock->mutex_is_made)
        pthread_mutex_destroy(&clock->mutex);
}
