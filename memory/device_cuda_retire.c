/* The thread coh-retire: polls the words that streams write, and does the host side of finished
 * records. It never calls the driver (except for names of errors): such a call may block until
 * streams proceed, and streams may wait for what coh-retire does next (device_cuda.h). Under
 * lockstep a notify may call the driver, because the enqueuing thread waits for coh-retire then. */
#include <sys/prctl.h>

#include "base/nap.h"
#include "base/thread.h"
#include "memory/device_cuda_state.h"

/* Polls before the first sleep: some 20 us, as long as small kernels take. */
#define LOOK_COUNT   256
#define NAP_LEAST_NS 50000

/* Handles a wait record. Returns 0 if its counter is not reached yet. */
static int pass_wait(const coh_queue *queue, const coh_cuda_record *record)
{
    const coh_counter *counter = record->target;
    if (coh_counter_read(counter) < record->number)
        return 0;
    if (record->stall_ns != NULL && record->event_place == 0) {
        /* The stream was stalled since the previous commands finished, or since the wait was
         * enqueued, whichever is later. */
        uint64_t begin_ns =
            queue->passed_ns > record->begin_ns ? queue->passed_ns : record->begin_ns;
        uint64_t now_ns = coh_clock_ns();
        if (now_ns > begin_ns)
            atomic_fetch_add_explicit(record->stall_ns, now_ns - begin_ns, memory_order_relaxed);
    }
    return 1;
}

/* Handles one record. Returns 0 if it is not finished; the queue then stays at it. */
static int pass_record(coh_queue *queue, const coh_cuda_record *record)
{
    switch (record->kind) {
    case COH_CUDA_NOTIFY:
        record->work(record->target, record->number, record->index);
        if (record->timed != NULL && record->event_place == 0)
            record->timed(record->target, record->number, record->index, coh_clock_ns());
        return 1;
    case COH_CUDA_SIGNAL:
        coh_counter_raise(record->target, record->number);
        return 1;
    case COH_CUDA_WAIT:
        return pass_wait(queue, record);
    case COH_CUDA_PASS:
        return 1;
    }
    return 0;
}

/* Returns the first unfinished instruction of the queue; number 0: none. */
static const coh_cuda_record *first_instruction(const coh_queue *queue)
{
    static const coh_cuda_record none;
    const uint64_t pushed = atomic_load_explicit(&queue->pushed, memory_order_acquire);
    for (uint64_t i = coh_counter_read(&queue->popped); i < pushed; i++) {
        const coh_cuda_record *record = &queue->ring[i % COH_CUDA_RING_COUNT];
        if (record->kind == COH_CUDA_NOTIFY)
            return record;
    }
    return &none;
}

/* Returns 1 if kernels found no error in the work done so far. An error belongs to the first
 * unfinished run, because the end of that run was not announced yet. */
static int is_sound(coh_queue *queue)
{
    const coh_device_kernels *kernels = queue->base.device->config.kernels;
    uint32_t index = 0;
    if (!queue->kernels_are_open || kernels->look == NULL)
        return 1;
    const coh_status status = kernels->look(queue, &index);
    if (status == COH_OK)
        return 1;
    coh_fail_prefix(status, "lane %s", coh_lane_name(queue->base.lane));
    coh_cuda_device_fail(queue->base.device, status, first_instruction(queue)->number, index);
    return 0;
}

/* Handles all records that the queue's progress allows. Returns whether there were any. */
static int pass_queue(coh_queue *queue)
{
    const coh_device *device = queue->base.device;
    const uint64_t progress = atomic_load_explicit(&device->words->progress[queue->base.lane].value,
                                                   memory_order_acquire);
    const uint64_t pushed = atomic_load_explicit(&queue->pushed, memory_order_acquire);
    const uint64_t begin = coh_counter_read(&queue->popped);
    uint64_t popped = begin;
    if (!is_sound(queue))
        return 0;
    for (; popped < pushed && !coh_cuda_is_closed(device); popped++) {
        const coh_cuda_record *record = &queue->ring[popped % COH_CUDA_RING_COUNT];
        /* Before a signal, so that take_times gives the times of what was signalled. */
        atomic_store_explicit(&queue->passed, popped, memory_order_release);
        if (record->place > progress || !pass_record(queue, record))
            break;
        if (record->place > queue->passed_place) {
            queue->passed_place = record->place;
            queue->passed_ns = coh_clock_ns();
        }
    }
    if (popped == begin)
        return 0;
    atomic_store_explicit(&queue->passed, popped, memory_order_release);
    atomic_store_explicit(&queue->over, queue->ring[(popped - 1) % COH_CUDA_RING_COUNT].commands,
                          memory_order_release);
    coh_counter_raise(&queue->popped, popped);
    return 1;
}

/* Reports a broken stream, which never writes its word. With a broken context every stream reports
 * an error; the text names the compute lane's instruction, if there is one, because errors arise
 * there. */
static void tell_broken(coh_device *device)
{
    const uint64_t broken = atomic_load_explicit(&device->broken, memory_order_acquire);
    if (broken == 0)
        return;
    const int lane = (int)(broken % 256);
    const coh_queue *queue = atomic_load(&device->queues[lane]);
    if (queue == NULL || coh_cuda_is_closed(device))
        return;
    const coh_cuda_record *instruction = first_instruction(queue);
    coh_cuda_device_fail(device,
                         coh_cuda_check(device->driver, (CUresult)(broken / 256),
                                        "GPU %d (%s) broke off while lane %s was at work",
                                        device->config.index, device->name,
                                        coh_lane_name((coh_lane)lane)),
                         instruction->number, instruction->index);
}

/* Polls every queue once. */
static void make_pass(coh_device *device, int *out_moved, int *out_pending)
{
    *out_moved = *out_pending = 0;
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        coh_queue *queue = atomic_load_explicit(&device->queues[lane], memory_order_acquire);
        if (queue == NULL)
            continue;
        *out_moved |= pass_queue(queue);
        *out_pending |= coh_cuda_queue_is_pending(queue);
    }
    *out_pending &= !coh_cuda_is_closed(device);
}

/* Waits between two polls that found nothing; `count`: such polls since begin_ns. */
static void rest(uint64_t count, uint64_t begin_ns)
{
    if (count >= LOOK_COUNT)
        coh_nap(begin_ns, NAP_LEAST_NS);
}

void *coh_cuda_retire_main(void *argument)
{
    coh_device *device = argument;
    pthread_setname_np(pthread_self(), "coh-retire");
    coh_thread_be_brief();
    (void)prctl(PR_SET_TIMERSLACK, 1000UL);
    uint64_t idle_count = 0, idle_ns = 0;
    for (;;) {
        const uint64_t seen = coh_counter_read(&device->pushed);
        const uint64_t asked = atomic_load(&device->pass_asked);
        int moved, pending;
        make_pass(device, &moved, &pending);
        tell_broken(device);
        coh_counter_raise(&device->pass_made, asked);
        if (coh_counter_is_closed(&device->pushed))
            return NULL;
        if (moved)
            idle_count = 0;
        else if (pending) {
            idle_ns = idle_count == 0 ? coh_clock_ns() : idle_ns;
            rest(idle_count++, idle_ns);
        } else if (!coh_counter_wait(&device->pushed, seen + 1))
            return NULL;
    }
}

void coh_cuda_retire_pass(coh_device *device)
{
    const uint64_t number = atomic_fetch_add(&device->pass_asked, 1) + 1;
    coh_counter_add(&device->pushed);
    (void)coh_counter_wait(&device->pass_made, number);
}
