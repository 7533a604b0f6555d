/* Enqueuing on a stream: copies, launches, signals and waits, each with a record for coh-retire.
 * Before enqueuing, it waits for room on the host, so that the driver never blocks. Read
 * device_cuda.h first; device_cuda_retire.c consumes the records. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/lanes.h"
#include "memory/device_cuda_state.h"

/* ---- failure ---- */

/* Returns the instruction being issued: the last NOTIFY record. */
static const coh_cuda_record *last_instruction(const coh_queue *queue)
{
    static const coh_cuda_record none;
    const uint64_t pushed = atomic_load_explicit(&queue->pushed, memory_order_relaxed);
    for (uint64_t back = 1; back <= pushed && back <= COH_CUDA_RING_COUNT; back++) {
        const coh_cuda_record *record = &queue->ring[(pushed - back) % COH_CUDA_RING_COUNT];
        if (record->kind == COH_CUDA_NOTIFY)
            return record;
    }
    return &none;
}

void coh_cuda_queue_fail(coh_cuda_queue *base, coh_status status)
{
    coh_queue *queue = (coh_queue *)(void *)base;
    if (status == COH_OK)
        return;
    if (base->is_recording) {
        if (queue->record_status == COH_OK)
            coh_error_save(queue->record_text);
        if (queue->record_status == COH_OK)
            queue->record_status = status;
        return;
    }
    const coh_cuda_record *instruction = last_instruction(queue);
    coh_fail_prefix(status, "lane %s", coh_lane_name(base->lane));
    coh_cuda_device_fail(base->device, status, instruction->number, instruction->index);
}

/* Returns 1 for CUDA_SUCCESS; else records the failure. */
static int check(coh_queue *queue, CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return 1;
    coh_cuda_queue_fail(&queue->base, coh_cuda_check(queue->base.driver, result, "%s", what));
    return 0;
}

/* ---- progress, records ---- */

/* Makes the stream write its progress, unless no command was enqueued since the last write. Returns
 * 0 on failure. */
static int cover(coh_queue *queue)
{
    const coh_device *device = queue->base.device;
    if (!queue->is_dirty)
        return 1;
    const uint64_t place = queue->written + 1;
    const CUdeviceptr word =
        coh_cuda_word_address(device, &device->words->progress[queue->base.lane]);
    if (!check(queue,
               device->driver->cuStreamWriteValue64(queue->base.stream, word, place,
                                                    CU_STREAM_WRITE_VALUE_DEFAULT),
               "cuStreamWriteValue64"))
        return 0;
    queue->written = place;
    queue->is_dirty = 0;
    queue->covered = ++queue->issued;
    return 1;
}

/* Waits for room for a record. Returns 0 if the queue is closed. All records that coh-retire has
 * passed can be taken, except the last if it is a begin: its event has no word behind it yet. */
static int make_place(coh_queue *queue)
{
    const uint64_t count = atomic_load_explicit(&queue->pushed, memory_order_relaxed);
    if (count - coh_counter_read(&queue->popped) >= COH_CUDA_RING_COUNT &&
        !coh_counter_wait(&queue->popped, count - COH_CUDA_RING_COUNT / 2))
        return 0;
    if (queue->base.device->config.times_exactly &&
        count - atomic_load_explicit(&queue->taken, memory_order_acquire) >= COH_CUDA_RING_COUNT)
        coh_cuda_queue_take_times(queue);
    return 1;
}

/* Appends a record for coh-retire, after everything that the last word covers. Waits for room. */
static void push(coh_queue *queue, const coh_cuda_record *record)
{
    const uint64_t count = atomic_load_explicit(&queue->pushed, memory_order_relaxed);
    if (!make_place(queue))
        return;
    coh_cuda_record *to = &queue->ring[count % COH_CUDA_RING_COUNT];
    *to = *record;
    to->place = queue->written;
    to->commands = queue->recorded = queue->covered;
    atomic_store_explicit(&queue->pushed, count + 1, memory_order_release);
    coh_counter_add(&queue->base.device->pushed);
}

/* Records the event of the next record, after everything enqueued so far. Returns 0 on failure. */
static int record_event(coh_queue *queue)
{
    if (!make_place(queue))
        return 0;
    const uint64_t count = atomic_load_explicit(&queue->pushed, memory_order_relaxed);
    CUevent event = queue->events[count % COH_CUDA_RING_COUNT];
    if (!check(queue, queue->base.driver->cuEventRecord(event, queue->base.stream),
               "cuEventRecord"))
        return 0;
    queue->newest_event = event;
    queue->issued++;
    return 1;
}

/* With times_exactly: gives the next record an event, which the next word covers. Returns 0 on
 * failure. */
static int time_place(coh_queue *queue, coh_cuda_record *record)
{
    if (!queue->base.device->config.times_exactly)
        return 1;
    record->event_place = queue->written + 1;
    return record_event(queue);
}

/* Notes that work was enqueued. */
static void note_work(coh_queue *queue)
{
    queue->is_dirty = 1;
    queue->newest_event = NULL;
}

/* ---- room ---- */

/* Waits until coh-retire has passed the first record by which at least `commands` are done, or all
 * records. */
static int wait_until_over(coh_queue *queue, uint64_t commands)
{
    const uint64_t pushed = atomic_load_explicit(&queue->pushed, memory_order_relaxed);
    uint64_t i = coh_counter_read(&queue->popped);
    while (i < pushed && queue->ring[i % COH_CUDA_RING_COUNT].commands < commands)
        i++;
    return coh_counter_wait(&queue->popped, i < pushed ? i + 1 : pushed);
}

/* Waits for room for `count` more commands, at most a quarter of the limit; returns 1 if there is
 * room. When the queue is full, waits until half of the commands are done. An instruction with many
 * commands records its progress in between. */
static int make_room(coh_queue *queue, uint32_t count)
{
    const uint64_t most =
        queue->base.lane == COH_LANE_COMPUTE ? COH_CUDA_AHEAD_COMPUTE : COH_CUDA_AHEAD_COPIES;
    if (queue->base.is_recording) /* nothing is enqueued */
        return 1;
    if (queue->issued - queue->recorded >= most / 4) {
        queue->is_dirty = 1;
        if (!cover(queue))
            return 0;
        push(queue, &(coh_cuda_record){ .kind = COH_CUDA_PASS });
    }
    while (queue->issued + count - atomic_load_explicit(&queue->over, memory_order_acquire) > most)
        if (!wait_until_over(queue, queue->issued + count - most / 2))
            return 0;
    return 1;
}

static int admit(coh_cuda_queue *base, uint32_t count)
{
    coh_queue *queue = (coh_queue *)(void *)base;
    if (coh_cuda_is_closed(base->device) || !make_room(queue, count))
        return 0;
    queue->issued += base->is_recording ? 0 : count;
    return 1;
}

/* Commands that one of the calls below enqueues in addition to those it admits. */
enum { COMMANDS_OF_A_CALL = 4 };

/* Begins a call: returns 1 if the queue takes commands; the driver's calls are then in its context
 * until coh_cuda_leave, because the caller's thread may have another context. */
static int begin(coh_queue *queue)
{
    coh_device *device = queue->base.device;
    if (coh_cuda_is_closed(device))
        return 0;
    const coh_status status = coh_cuda_enter(device);
    if (status != COH_OK) {
        coh_cuda_queue_fail(&queue->base, status);
        return 0;
    }
    if (make_room(queue, COMMANDS_OF_A_CALL))
        return 1;
    coh_cuda_leave(device);
    return 0;
}

/* ---- commands ---- */

void coh_cuda_queue_copy(coh_queue *queue, void *to, const void *from, size_t bytes)
{
    if (!begin(queue))
        return;
    int is_right = 1;
    for (size_t done = 0; done < bytes && is_right;) {
        char *target = (char *)to + done;
        const char *source = (const char *)from + done;
        const size_t piece = coh_cuda_copy_bytes(queue->base.device, target, source, bytes - done);
        is_right = admit(&queue->base, 1) &&
                   check(queue,
                         queue->base.driver->cuMemcpyAsync((CUdeviceptr)(uintptr_t)target,
                                                           (CUdeviceptr)(uintptr_t)source, piece,
                                                           queue->base.stream),
                         "cuMemcpyAsync");
        note_work(queue);
        done += piece;
    }
    coh_cuda_leave(queue->base.device);
}

void coh_cuda_queue_finish(coh_queue *queue)
{
    if (!begin(queue))
        return;
    (void)check(queue, queue->base.driver->cuStreamSynchronize(queue->base.stream),
                "cuStreamSynchronize");
    coh_cuda_leave(queue->base.device);
}

void coh_cuda_queue_launch(coh_queue *queue, coh_device_work work, void *context, uint64_t number,
                           uint32_t index, const int32_t *predicate)
{
    if (!begin(queue))
        return;
    queue->base.instruction_index = index;
    queue->base.predicate = predicate;
    queue->base.predicate_is_taken = 0;
    work(context, number, index);
    if (!queue->base.is_recording)
        note_work(queue);
    queue->base.predicate = NULL;
    if (predicate != NULL && !queue->base.predicate_is_taken)
        coh_cuda_queue_fail(&queue->base,
                            coh_fail(COH_ERR_INTERNAL,
                                     "an instruction has a predicate, and none of the "
                                     "kernels it launched looks at it"));
    coh_cuda_leave(queue->base.device);
}

void coh_cuda_queue_replay(coh_queue *queue, const coh_recording *recording)
{
    if (!begin(queue))
        return;
    if (admit(&queue->base, recording->commands) &&
        check(queue, queue->base.driver->cuGraphLaunch(recording->graph, queue->base.stream),
              "cuGraphLaunch"))
        note_work(queue);
    coh_cuda_leave(queue->base.device);
}

coh_status coh_cuda_queue_rehearse(coh_queue *queue, coh_device_work work, void *context,
                                   uint64_t number, uint32_t index)
{
    if (begin(queue)) {
        const uint64_t issued = queue->issued;
        queue->base.is_rehearsing = 1;
        work(context, number, index);
        queue->base.is_rehearsing = 0;
        if (queue->issued > issued)
            (void)check(queue, queue->base.driver->cuStreamSynchronize(queue->base.stream),
                        "cuStreamSynchronize");
        coh_cuda_leave(queue->base.device);
    }
    return coh_cuda_device_failure(queue->base.device);
}

void coh_cuda_queue_notify(coh_queue *queue, coh_device_work work, coh_device_timed timed,
                           void *context, uint64_t number, uint32_t index)
{
    coh_cuda_record record = { .kind = COH_CUDA_NOTIFY,
                               .work = work,
                               .timed = timed,
                               .target = context,
                               .number = number,
                               .index = index };
    const int takes_event = timed != NULL && queue->base.device->config.times_exactly;
    const int calls_driver = queue->is_dirty || takes_event;
    if (calls_driver ? !begin(queue) : coh_cuda_is_closed(queue->base.device))
        return;
    if ((!takes_event || time_place(queue, &record)) && cover(queue))
        push(queue, &record);
    if (calls_driver)
        coh_cuda_leave(queue->base.device);
}

/* Returns 1 if `counter` is the one that this queue signals; the first call sets it. */
static int take_counter(coh_queue *queue, coh_counter *counter)
{
    if (queue->counter == NULL)
        queue->counter = counter;
    if (queue->counter == counter)
        return 1;
    coh_cuda_queue_fail(&queue->base,
                        coh_fail(COH_ERR_INTERNAL, "a queue of a GPU signals one counter only"));
    return 0;
}

static void enqueue_signal(coh_queue *queue, coh_counter *counter, uint64_t value)
{
    if (!take_counter(queue, counter) || !cover(queue) ||
        (queue->newest_event == NULL && !record_event(queue)))
        return;
    queue->signals[queue->signal_count++ % COH_CUDA_RING_COUNT] =
        (coh_cuda_signal){ .value = value, .event = queue->newest_event };
    push(queue, &(coh_cuda_record){ .kind = COH_CUDA_SIGNAL, .target = counter, .number = value });
}

void coh_cuda_queue_signal(coh_queue *queue, coh_counter *counter, uint64_t value)
{
    const coh_device *device = queue->base.device;
    const int calls_driver = queue->is_dirty || queue->newest_event == NULL;
    if (calls_driver ? !begin(queue) : coh_cuda_is_closed(device))
        return;
    enqueue_signal(queue, counter, value);
    if (calls_driver)
        coh_cuda_leave(device);
    if (device->config.lockstep)
        (void)coh_counter_wait(&queue->popped,
                               atomic_load_explicit(&queue->pushed, memory_order_relaxed));
}

/* ---- waits ---- */

static coh_queue *signaller(const coh_device *device, const coh_counter *counter)
{
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        coh_queue *queue = atomic_load_explicit(&device->queues[lane], memory_order_acquire);
        if (queue != NULL && queue->counter == counter)
            return queue;
    }
    return NULL;
}

/* Returns the event of the first signal of at least `value`; NULL: there was none. Signals that are
 * no longer kept were retired, so no instruction waits for them. */
static CUevent find_event(const coh_queue *queue, uint64_t value)
{
    uint64_t end = queue->signal_count;
    uint64_t low = end > COH_CUDA_RING_COUNT ? end - COH_CUDA_RING_COUNT : 0, high = end;
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (queue->signals[middle % COH_CUDA_RING_COUNT].value >= value)
            high = middle;
        else
            low = middle + 1;
    }
    return low == end ? NULL : queue->signals[low % COH_CUDA_RING_COUNT].event;
}

/* Appends a record of a wait: coh-retire then waits for the counter, too, and measures the time. */
static void note_wait(coh_queue *queue, coh_counter *counter, uint64_t value,
                      _Atomic uint64_t *stall_ns)
{
    coh_cuda_record record = { .kind = COH_CUDA_WAIT,
                               .target = counter,
                               .number = value,
                               .stall_ns = stall_ns,
                               .begin_ns = stall_ns != NULL ? coh_clock_ns() : 0 };
    note_work(queue);
    queue->issued++;
    if (stall_ns == NULL || (time_place(queue, &record) && cover(queue)))
        push(queue, &record);
}

static void enqueue_wait(coh_queue *queue, coh_counter *counter, uint64_t value,
                         _Atomic uint64_t *stall_ns)
{
    const coh_queue *other = signaller(queue->base.device, counter);
    if (other == queue)
        return; /* a stream executes in order */
    CUevent event = other != NULL ? find_event(other, value) : NULL;
    if (event == NULL) {
        coh_cuda_queue_fail(&queue->base,
                            coh_fail(COH_ERR_INTERNAL,
                                     "it is to wait for %llu of lane %s, which nobody has "
                                     "signalled yet: a wait is enqueued after its signal",
                                     (unsigned long long)value,
                                     other != NULL ? coh_lane_name(other->base.lane) : "?"));
        return;
    }
    if (check(
            queue,
            queue->base.driver->cuStreamWaitEvent(queue->base.stream, event, CU_EVENT_WAIT_DEFAULT),
            "cuStreamWaitEvent"))
        note_wait(queue, counter, value, stall_ns);
}

void coh_cuda_queue_wait(coh_queue *queue, coh_counter *counter, uint64_t value,
                         _Atomic uint64_t *stall_ns)
{
    if (coh_counter_read(counter) >= value || !begin(queue))
        return;
    enqueue_wait(queue, counter, value, stall_ns);
    coh_cuda_leave(queue->base.device);
}

static void enqueue_wait_host(coh_queue *queue, coh_counter *counter, uint64_t value,
                              _Atomic uint64_t *stall_ns)
{
    const coh_device *device = queue->base.device;
    uint32_t i = 0;
    while (i < device->watched_count && device->watched[i] != counter)
        i++;
    if (i == device->watched_count) {
        coh_cuda_queue_fail(&queue->base, coh_fail(COH_ERR_INTERNAL,
                                                   "it is to wait for a host lane whose counter "
                                                   "the device does not watch"));
        return;
    }
    const CUdeviceptr mirror = coh_cuda_word_address(device, &device->words->mirror[i]);
    if (check(queue,
              device->driver->cuStreamWaitValue64(queue->base.stream, mirror, value,
                                                  CU_STREAM_WAIT_VALUE_GEQ),
              "cuStreamWaitValue64"))
        note_wait(queue, counter, value, stall_ns);
}

void coh_cuda_queue_wait_host(coh_queue *queue, coh_counter *counter, uint64_t value,
                              _Atomic uint64_t *stall_ns)
{
    if (coh_counter_read(counter) >= value || !begin(queue))
        return;
    enqueue_wait_host(queue, counter, value, stall_ns);
    coh_cuda_leave(queue->base.device);
}

/* ---- creation and destruction ---- */

static coh_status take_workspace(coh_queue *queue, size_t bytes)
{
    const coh_device *device = queue->base.device;
    const uint64_t offset = device->config.workspace_offset;
    if (bytes == 0)
        return COH_OK;
    if (offset > device->arena_bytes || bytes > device->arena_bytes - offset)
        return coh_fail(COH_ERR_INTERNAL,
                        "kernels want %zu bytes of workspace at %" PRIu64 " of a device arena of "
                        "%" PRIu64,
                        bytes, offset, device->arena_bytes);
    queue->base.workspace = (void *)(uintptr_t)(device->arena + offset);
    queue->base.workspace_bytes = bytes;
    return COH_OK;
}

/* Returns 1 for lanes that run kernels. */
static int computes(coh_lane lane)
{
    return lane == COH_LANE_COMPUTE || coh_lane_is_comm(lane);
}

static coh_status fill_queue(coh_queue *queue)
{
    const coh_device *device = queue->base.device;
    const coh_cuda_driver *driver = device->driver;
    const coh_device_kernels *kernels = device->config.kernels;
    const unsigned flags =
        device->config.times_exactly ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING;
    COH_TRY(coh_cuda_check(driver,
                           driver->cuStreamCreate(&queue->base.stream, CU_STREAM_NON_BLOCKING),
                           "cuStreamCreate for lane %s", coh_lane_name(queue->base.lane)));
    for (; queue->event_count < COH_CUDA_RING_COUNT; queue->event_count++)
        COH_TRY(coh_cuda_check(driver,
                               driver->cuEventCreate(&queue->events[queue->event_count], flags),
                               "cuEventCreate for lane %s", coh_lane_name(queue->base.lane)));
    if (kernels == NULL || !computes(queue->base.lane))
        return COH_OK;
    if (queue->base.lane == COH_LANE_COMPUTE)
        COH_TRY(take_workspace(queue, kernels->workspace_bytes));
    COH_TRY(kernels->open(queue));
    queue->kernels_are_open = 1;
    queue->base.head.kernels = kernels->table;
    return COH_OK;
}

static void empty_queue(coh_queue *queue)
{
    const coh_device *device = queue->base.device;
    const coh_cuda_driver *driver = device->driver;
    if (queue->base.stream != NULL)
        (void)driver->cuStreamSynchronize(queue->base.stream);
    coh_cuda_drop_recordings(queue);
    if (queue->kernels_are_open)
        device->config.kernels->close(queue);
    while (queue->event_count > 0)
        (void)driver->cuEventDestroy(queue->events[--queue->event_count]);
    if (queue->base.stream != NULL)
        (void)driver->cuStreamDestroy(queue->base.stream);
}

coh_status coh_cuda_queue_create(coh_device *device, coh_lane lane, coh_queue **out_queue)
{
    *out_queue = NULL;
    coh_status status = COH_OK;
    coh_queue *queue;
    COH_TRY(coh_cuda_device_failure(device));
    if (coh_cuda_is_closed(device))
        return coh_fail(COH_ERR_STOPPED, "no lane %s: the GPU was closed while it was at work",
                        coh_lane_name(lane));
    if (atomic_load(&device->queues[lane]) != NULL)
        return coh_fail(COH_ERR_ARGUMENT, "a GPU has one lane %s", coh_lane_name(lane));
    COH_TRY(COH_ALLOC(1, &queue));
    queue->base = (coh_cuda_queue){ .driver = device->driver,
                                    .device = device,
                                    .lane = lane,
                                    .admit = admit,
                                    .log = device->config.log,
                                    .log_context = device->config.log_context,
                                    .multiprocessor_count = device->multiprocessor_count };
    atomic_store(&device->words->progress[lane].value, 0);
    COH_TRY_GOTO(status, coh_counter_init(&queue->popped), free_queue);
    COH_TRY_GOTO(status, coh_cuda_enter(device), fini_popped);
    status = fill_queue(queue);
    if (status != COH_OK)
        empty_queue(queue);
    coh_cuda_leave(device);
    if (status == COH_OK) {
        atomic_store_explicit(&device->queues[lane], queue, memory_order_release);
        *out_queue = queue;
        return COH_OK;
    }
fini_popped:
    coh_counter_fini(&queue->popped);
free_queue:
    coh_free(queue);
    return status;
}

void coh_cuda_queue_close(coh_queue *queue)
{
    coh_cuda_device_close(queue->base.device);
}

void coh_cuda_queue_destroy(coh_queue *queue)
{
    if (queue == NULL)
        return;
    coh_device *device = queue->base.device;
    if (coh_cuda_queue_is_pending(queue))
        coh_cuda_device_close(device);
    coh_cuda_watch_forget(device, queue->base.lane);
    coh_cuda_retire_pass(device);
    int is_inside = coh_cuda_enter(device) == COH_OK;
    empty_queue(queue);
    if (is_inside)
        coh_cuda_leave(device);
    coh_counter_fini(&queue->popped);
    coh_free(queue);
}
