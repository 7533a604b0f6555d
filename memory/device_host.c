/* The host device: queues are threads, arenas are memory, a copy is memcpy. The step thread pushes
 * commands into a queue's ring; the queue's thread executes them in order. Read device.h first. */
#include "memory/device.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/thread.h"
#include "memory/arena.h"

/* Commands that a queue holds. The step thread runs about 200 instructions ahead, then sleeps until
 * half of them are done. Waking it for each one would cost a wake-up per instruction (15 us, with
 * kernels of 10 us: benchmarks/lines). */
#define RING_COUNT 1024u
/* A throttled copy sleeps in pieces of this length, so that it notices a failure elsewhere. */
#define NAP_MOST_NS 5000000u

typedef enum command_kind {
    COMMAND_COPY,
    COMMAND_LAUNCH,
    COMMAND_NOTIFY,
    COMMAND_SIGNAL,
    COMMAND_WAIT
} command_kind;

typedef struct command {
    command_kind kind;
    uint32_t index;
    uint64_t number; /* argument of the work, value of a counter, or bytes of a copy */
    coh_device_work work;
    coh_device_timed timed;
    void *target; /* context, counter, or destination */
    const void *source;
    const int32_t *predicate;
    _Atomic uint64_t *stall_ns;
} command;

struct coh_queue {
    coh_device *device;
    coh_lane lane;
    pthread_t thread;
    coh_counter pushed, popped;
    uint64_t pushed_count; /* step thread only */
    /* Used by the queue's thread only: when the throttled link has finished all copies so far, and
     * by how much the last sleep overran, because a real link does not oversleep. */
    uint64_t link_free_ns, overslept_ns;
    command ring[RING_COUNT];
};

struct coh_device {
    coh_device_config config;
    coh_arena *arenas[COH_TIER_COUNT];
    void *reserved[COH_TIER_COUNT]; /* in place of an arena, with config.awake */
    uint64_t reserved_bytes[COH_TIER_COUNT];
};

static coh_status device_create(const coh_device_config *config, coh_device **out_device)
{
    *out_device = NULL;
    coh_device *device;
    COH_TRY(COH_ALLOC(1, &device));
    device->config = *config;
    *out_device = device;
    return COH_OK;
}

static void device_destroy(coh_device *device)
{
    if (device == NULL)
        return;
    for (int tier = 0; tier < COH_TIER_COUNT; tier++)
        coh_arena_destroy(device->arenas[tier]);
    coh_free(device);
}

static void device_facts(const coh_device *device, coh_device_facts *out_facts)
{
    (void)device;
    *out_facts =
        (coh_device_facts){ .name = "host", .alignment = COH_PAGE_BYTES, .host_addressable = 1 };
}

/* Reserves addresses without memory. */
static coh_status reserve(coh_device *device, coh_tier tier, uint64_t bytes, void **out_base)
{
    void *base = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return coh_fail(COH_ERR_MEMORY,
                        "the system refused %" PRIu64 " bytes of addresses (%s): raise the limit "
                        "of virtual memory",
                        bytes, strerror(errno));
    device->reserved_bytes[tier] = bytes;
    device->reserved[tier] = *out_base = base;
    return COH_OK;
}

static coh_status device_arena_create(coh_device *device, coh_tier tier, uint64_t bytes,
                                      void **out_base)
{
    *out_base = NULL;
    if (device->config.awake != NULL)
        return reserve(device, tier, bytes, out_base);
    const char *name = tier == COH_TIER_DEVICE ? "device arena" : "emulated host arena";
    COH_TRY(coh_arena_create(bytes, name, tier, device->config.ledger, device->config.thread_count,
                             &device->arenas[tier]));
    *out_base = coh_arena_base(device->arenas[tier]);
    return COH_OK;
}

static void device_arena_destroy(coh_device *device, coh_tier tier)
{
    coh_arena_destroy(device->arenas[tier]);
    device->arenas[tier] = NULL;
    if (device->reserved[tier] != NULL)
        (void)munmap(device->reserved[tier], device->reserved_bytes[tier]);
    device->reserved[tier] = NULL;
}

static void device_arena_abandon(coh_device *device, coh_tier tier)
{
    coh_arena_abandon(device->arenas[tier]);
    device->arenas[tier] = NULL;
}

static void device_arena_facts(const coh_device *device, coh_tier tier, coh_arena_facts *out_facts)
{
    *out_facts = (coh_arena_facts){ 0 };
    if (device->arenas[tier] != NULL)
        coh_arena_read_facts(device->arenas[tier], out_facts);
}

static coh_status device_fill(coh_device *device, void *to, int byte, size_t bytes)
{
    (void)device;
    memset(to, byte, bytes);
    return COH_OK;
}

/* Copies in and out are the same here. */
static coh_status device_copy(coh_device *device, void *to, const void *from, size_t bytes)
{
    (void)device;
    memcpy(to, from, bytes);
    return COH_OK;
}

static coh_status device_share(coh_device *device, size_t bytes, void **out)
{
    (void)device;
    return coh_alloc(bytes, 1, out);
}

static void device_unshare(coh_device *device, void *shared)
{
    (void)device;
    coh_free(shared);
}

/* Queues are threads and read the counter itself. */
static coh_status device_watch(coh_device *device, coh_counter *counter)
{
    (void)device;
    (void)counter;
    return COH_OK;
}

static coh_status device_failure(coh_device *device)
{
    (void)device;
    return COH_OK;
}

/* ---- the queue's thread ---- */

/* Waits as the link would: it serves copies one after the other at its rate, so this copy ends when
 * all so far have. */
static void throttle(coh_queue *queue, uint64_t begin_ns, size_t bytes)
{
    double rate = queue->device->config.link_bytes_per_s;
    if (!(rate > 0))
        return;
    if (queue->link_free_ns + queue->overslept_ns < begin_ns)
        queue->link_free_ns = begin_ns - queue->overslept_ns;
    queue->link_free_ns += (uint64_t)((double)bytes / rate * 1e9);
    queue->overslept_ns = 0;
    for (int napped = 0;; napped = 1) {
        uint64_t now = coh_clock_ns();
        if (coh_counter_is_closed(&queue->pushed))
            return;
        if (now >= queue->link_free_ns) {
            queue->overslept_ns = napped ? now - queue->link_free_ns : 0;
            return;
        }
        uint64_t left = queue->link_free_ns - now;
        uint64_t nap = left < NAP_MOST_NS ? left : NAP_MOST_NS;
        nanosleep(&(struct timespec){ .tv_nsec = (long)nap }, NULL);
    }
}

/* Returns 1 when the counter has `value`, 0 if it was closed; adds the waiting time to stall_ns. */
static int wait_measured(coh_counter *counter, uint64_t value, _Atomic uint64_t *stall_ns)
{
    if (coh_counter_is_closed(counter))
        return 0;
    if (coh_counter_read(counter) >= value)
        return 1;
    uint64_t begin_ns = coh_clock_ns();
    int reached = coh_counter_wait(counter, value);
    if (stall_ns != NULL)
        atomic_fetch_add_explicit(stall_ns, coh_clock_ns() - begin_ns, memory_order_relaxed);
    return reached;
}

/* Executes one command. Returns 0 to stop the thread. */
static int execute(coh_queue *queue, const command *c)
{
    switch (c->kind) {
    case COMMAND_COPY: {
        uint64_t begin_ns = coh_clock_ns();
        memcpy(c->target, c->source, (size_t)c->number);
        throttle(queue, begin_ns, (size_t)c->number);
        return 1;
    }
    case COMMAND_LAUNCH:
        if (c->predicate == NULL || *c->predicate != 0)
            c->work(c->target, c->number, c->index);
        return 1;
    case COMMAND_NOTIFY:
        c->work(c->target, c->number, c->index);
        if (c->timed != NULL)
            c->timed(c->target, c->number, c->index, coh_clock_ns());
        return 1;
    case COMMAND_SIGNAL:
        coh_counter_raise(c->target, c->number);
        return 1;
    case COMMAND_WAIT:
        return wait_measured(c->target, c->number, c->stall_ns);
    }
    return 0;
}

static void *queue_main(void *argument)
{
    coh_queue *queue = argument;
    char name[16];
    snprintf(name, sizeof(name), "coh-%s", coh_lane_name(queue->lane));
    pthread_setname_np(pthread_self(), name);
    if (queue->lane != COH_LANE_COMPUTE)
        coh_thread_be_brief();
    if (queue->device->config.link_bytes_per_s > 0)
        (void)prctl(PR_SET_TIMERSLACK, 1000UL); /* 1 us instead of 50, so that sleeps end on time */
    for (uint64_t count = 0; coh_counter_wait(&queue->pushed, count + 1); count++) {
        if (!execute(queue, &queue->ring[count % RING_COUNT]))
            break;
        coh_counter_raise(&queue->popped, count + 1);
    }
    return NULL;
}

static coh_status queue_create(coh_device *device, coh_lane lane, coh_queue **out_queue)
{
    *out_queue = NULL;
    coh_status status = COH_OK;
    coh_queue *queue;
    COH_TRY(COH_ALLOC(1, &queue));
    queue->device = device;
    queue->lane = lane;
    COH_TRY_GOTO(status, coh_counter_init(&queue->pushed), free_queue);
    COH_TRY_GOTO(status, coh_counter_init(&queue->popped), fini_pushed);
    coh_counter_set_awake(&queue->pushed, device->config.awake);
    coh_counter_set_awake(&queue->popped, device->config.awake);
    coh_awake_add(device->config.awake, 1);
    int error = coh_thread_start(&queue->thread, queue_main, queue);
    if (error == 0) {
        *out_queue = queue;
        return COH_OK;
    }
    status =
        coh_fail(COH_ERR_MEMORY, "no thread for lane %s: %s", coh_lane_name(lane), strerror(error));
    coh_counter_fini(&queue->popped);
fini_pushed:
    coh_counter_fini(&queue->pushed);
free_queue:
    coh_free(queue);
    return status;
}

static void queue_close(coh_queue *queue)
{
    coh_counter_close(&queue->pushed);
    coh_counter_close(&queue->popped);
}

static void queue_destroy(coh_queue *queue)
{
    if (queue == NULL)
        return;
    queue_close(queue);
    pthread_join(queue->thread, NULL);
    coh_counter_fini(&queue->popped);
    coh_counter_fini(&queue->pushed);
    coh_free(queue);
}

/* ---- enqueuing ---- */

static void push(coh_queue *queue, const command *c)
{
    uint64_t count = queue->pushed_count;
    if (count - coh_counter_read(&queue->popped) >= RING_COUNT &&
        !coh_counter_wait(&queue->popped, count - RING_COUNT / 2))
        return;
    queue->ring[count % RING_COUNT] = *c;
    queue->pushed_count = count + 1;
    coh_counter_raise(&queue->pushed, count + 1);
}

static void queue_copy(coh_queue *queue, void *to, const void *from, size_t bytes)
{
    push(queue, &(command){ .kind = COMMAND_COPY, .target = to, .source = from, .number = bytes });
}

static void queue_finish(coh_queue *queue)
{
    (void)coh_counter_wait(&queue->popped, queue->pushed_count);
}

/* Kernels of the host need no preparation. */
static coh_status queue_rehearse(coh_queue *queue, coh_device_work work, void *context,
                                 uint64_t number, uint32_t index)
{
    (void)queue;
    (void)work;
    (void)context;
    (void)number;
    (void)index;
    return COH_OK;
}

static void queue_launch(coh_queue *queue, coh_device_work work, void *context, uint64_t number,
                         uint32_t index, const int32_t *predicate)
{
    push(queue, &(command){ .kind = COMMAND_LAUNCH,
                            .work = work,
                            .target = context,
                            .number = number,
                            .index = index,
                            .predicate = predicate });
}

static void queue_notify(coh_queue *queue, coh_device_work work, coh_device_timed timed,
                         void *context, uint64_t number, uint32_t index)
{
    push(queue, &(command){ .kind = COMMAND_NOTIFY,
                            .work = work,
                            .timed = timed,
                            .target = context,
                            .number = number,
                            .index = index });
}

static void queue_signal(coh_queue *queue, coh_counter *counter, uint64_t value)
{
    push(queue, &(command){ .kind = COMMAND_SIGNAL, .target = counter, .number = value });
}

/* Threads wait for threads: a queue and a host lane are the same here. */
static void queue_wait(coh_queue *queue, coh_counter *counter, uint64_t value,
                       _Atomic uint64_t *stall_ns)
{
    push(queue,
         &(command){
             .kind = COMMAND_WAIT, .target = counter, .number = value, .stall_ns = stall_ns });
}

const coh_device_ops coh_device_host = {
    .struct_bytes = sizeof(coh_device_ops),
    .name = "host",
    .create = device_create,
    .destroy = device_destroy,
    .facts = device_facts,
    .arena_create = device_arena_create,
    .arena_destroy = device_arena_destroy,
    .arena_facts = device_arena_facts,
    .fill = device_fill,
    .put = device_copy,
    .get = device_copy,
    .share = device_share,
    .unshare = device_unshare,
    .watch = device_watch,
    .failure = device_failure,
    .queue_create = queue_create,
    .queue_close = queue_close,
    .queue_destroy = queue_destroy,
    .copy = queue_copy,
    .finish = queue_finish,
    .launch = queue_launch,
    .rehearse = queue_rehearse,
    .notify = queue_notify,
    .signal = queue_signal,
    .wait = queue_wait,
    .wait_host = queue_wait,
    .arena_abandon = device_arena_abandon,
};
