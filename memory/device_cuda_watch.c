/* The thread coh-watch: while work is in flight, asks the driver every 10 ms whether a stream
 * broke.
 *
 * It is a separate thread because the query can block while another call is inside the driver, such
 * as coh-step's. Only three callers wait for coh-watch or its mutex: those that destroy a queue,
 * destroy the device, or begin to record, and nothing is enqueued then. Read device_cuda.h
 * first. */
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "base/clock.h"
#include "base/thread.h"
#include "memory/device_cuda_state.h"

#define QUERY_NS 10000000u

/* The functions below hold the mutex. */

static int is_pending(const coh_device *device)
{
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        const coh_queue *queue = atomic_load(&device->queues[lane]);
        if (queue != NULL && coh_cuda_queue_is_pending(queue))
            return !coh_cuda_is_closed(device);
    }
    return 0;
}

/* Returns 1 if a stream broke; coh-retire then reports it. */
static int query_streams(coh_device *device)
{
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        const coh_queue *queue = atomic_load(&device->queues[lane]);
        if (queue == NULL || !coh_cuda_queue_is_pending(queue))
            continue;
        const CUresult result = device->driver->cuStreamQuery(queue->base.stream);
        if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY)
            continue;
        atomic_store_explicit(&device->broken, 256 * (uint64_t)result + (uint64_t)lane,
                              memory_order_release);
        return 1;
    }
    return 0;
}

/* Sleeps until the next query is due, or the device ends. */
static void rest(coh_device *device)
{
    const uint64_t end_ns = coh_clock_ns() + QUERY_NS;
    const struct timespec end = { .tv_sec = (time_t)(end_ns / 1000000000u),
                                  .tv_nsec = (long)(end_ns % 1000000000u) };
    while (!coh_counter_is_closed(&device->pushed) && coh_clock_ns() < end_ns)
        (void)pthread_cond_timedwait(&device->watch_ends, &device->watch_mutex, &end);
}

/* Returns 0 if there is nothing left to watch. */
static int watch_once(coh_device *device, int *out_pending)
{
    int is_broken = 0;
    pthread_mutex_lock(&device->watch_mutex);
    *out_pending = is_pending(device);
    if (*out_pending) {
        rest(device);
        is_broken = !coh_counter_is_closed(&device->pushed) && query_streams(device);
    }
    pthread_mutex_unlock(&device->watch_mutex);
    return !is_broken && !coh_counter_is_closed(&device->pushed);
}

static void *watch_main(void *argument)
{
    coh_device *device = argument;
    pthread_setname_np(pthread_self(), "coh-watch");
    const coh_status status = coh_cuda_enter(device);
    if (status != COH_OK) {
        /* recording the failure goes through the queues */
        pthread_mutex_lock(&device->watch_mutex);
        coh_cuda_device_fail(device, status, 0, 0);
        pthread_mutex_unlock(&device->watch_mutex);
        return NULL;
    }
    for (;;) {
        const uint64_t seen = coh_counter_read(&device->pushed);
        int pending;
        if (!watch_once(device, &pending) ||
            (!pending && !coh_counter_wait(&device->pushed, seen + 1)))
            break;
    }
    coh_cuda_leave(device);
    return NULL;
}

/* Uses the clock of coh_clock_ns. */
static int make_condition(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    if (pthread_condattr_init(&attributes) != 0)
        return 0;
    const int is_made = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0 &&
                        pthread_cond_init(condition, &attributes) == 0;
    pthread_condattr_destroy(&attributes);
    return is_made;
}

coh_status coh_cuda_watch_start(coh_device *device)
{
    if (pthread_mutex_init(&device->watch_mutex, NULL) != 0)
        return coh_fail(COH_ERR_MEMORY, "the system gives no mutex for a GPU");
    if (!make_condition(&device->watch_ends)) {
        pthread_mutex_destroy(&device->watch_mutex);
        return coh_fail(COH_ERR_MEMORY, "the system gives no condition variable for a GPU");
    }
    device->watch_is_made = 1;
    const int error = coh_thread_start(&device->watcher, watch_main, device);
    if (error != 0)
        return coh_fail(COH_ERR_MEMORY, "no thread to watch a GPU: %s", strerror(error));
    device->watcher_is_started = 1;
    return COH_OK;
}

void coh_cuda_watch_stop(coh_device *device)
{
    if (device->watcher_is_started) {
        pthread_mutex_lock(&device->watch_mutex);
        pthread_cond_signal(&device->watch_ends);
        pthread_mutex_unlock(&device->watch_mutex);
        pthread_join(device->watcher, NULL);
    }
    if (device->watch_is_made) {
        pthread_cond_destroy(&device->watch_ends);
        pthread_mutex_destroy(&device->watch_mutex);
    }
}

void coh_cuda_watch_forget(coh_device *device, coh_lane lane)
{
    pthread_mutex_lock(&device->watch_mutex);
    atomic_store(&device->queues[lane], NULL);
    pthread_mutex_unlock(&device->watch_mutex);
}
