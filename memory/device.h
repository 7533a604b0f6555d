/* device.h - the few things a device must do so that a step program can run on it.
 *
 * The one idea: a lane is a queue on which work is done in order, and counters say how far it is.
 * What the host device does with threads and what a GPU does with streams and events is the same
 * table; nothing else in the tree asks which it is.
 *
 *   step thread:   issue c1   issue c2 ...    issues all device lanes, in the program's order
 *   compute:           [ c1 ][ c2 ]           retired[compute] = 0 1 2
 *   read thread:   [ r1 .............. ]      its own; waits until retired[compute] >= n
 *
 * A trap of streams and events: to wait for an event that was not yet recorded is not to wait at
 * all. So `wait` may only name a value whose `signal` was already enqueued, which holds because one
 * step thread issues all device lanes in the program's order. What a host thread will raise (a disk
 * lane's counter) is waited for by `wait_host`.
 *
 * The host device: the device tier is ordinary memory (the RAM budget), each queue is a thread
 * coh-compute, coh-h2d, coh-d2h with a ring of commands. With an emulated far tier the copies
 * between the two arenas are real, and can be throttled to the rate of a link.
 *
 * A device of streams (memory/device_cuda.h) has one more thread, coh-retire: it sees how far each
 * stream is, and does what `notify` and `signal` ask for on the host, in the queue's order.
 *
 * Threads: enqueuing belongs to the step thread. Nothing is allocated after queue_create. */
#ifndef COH_MEMORY_DEVICE_H
#define COH_MEMORY_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include "base/check.h"
#include "memory/arena.h"
#include "memory/counter.h"
#include "memory/ledger.h"
#include "memory/tier.h"

typedef struct coh_device coh_device;
typedef struct coh_queue coh_queue;

struct coh_cuda_driver;
struct coh_kernel_table;

/* The kernels of a device, for queues of the compute lane. */
typedef struct coh_device_kernels {
    const struct coh_kernel_table *table; /* what such a queue begins with (base/queue_head.h) */
    size_t workspace_bytes; /* of the device's arena, from config.workspace_offset on */
    /* What they need beside the queue: called once it is made, and before it is unmade. */
    coh_status (*open)(void *queue);
    void (*close)(void *queue);
    /* What kernels found to be wrong, once, with the index of the line whose kernel it was; COH_OK:
     * nothing. Asked behind what is done and before anybody is told of it, by the thread that tells
     * (on a GPU coh-retire), so that no step ends well with it. NULL: they find nothing. */
    coh_status (*look)(void *queue, uint32_t *out_index);
} coh_device_kernels;

/* A device failed behind its callers' backs. `status` with its sentence as this thread's last
 * error; `number` and `index` are those of a line that was under way (0, 0: none was). Called once,
 * by the thread that found it. It closes the counters that others wait for; it may close queues. */
typedef void (*coh_device_failed)(void *context, coh_status status, uint64_t number,
                                  uint32_t index);

typedef struct coh_device_config {
    int index;
    int thread_count;   /* that touch the arenas at start */
    coh_ledger *ledger; /* gets the arenas' reservations; must outlive the device. May be NULL */
    double link_bytes_per_s; /* throttle of h2d and d2h, each; 0: memory speed. Host device only */

    /* The rest is for devices that are not the host. */
    const coh_device_kernels *kernels; /* NULL: nothing computes */
    uint64_t workspace_offset;         /* in the device tier, of what kernels keep for themselves */
    coh_device_failed failed;          /* NULL: nobody is told */
    void *failed_context;
    /* Gets sentences for people, such as what a library does not take; the thread that makes a
     * queue, rehearses or enqueues calls it. NULL: nobody listens. */
    void (*log)(void *context, const char *sentence);
    void *log_context;
    /* 1: `signal` returns when its counter was raised (or the queue was closed), so what `notify`
     * does with an arena (poison) is over before the next line is enqueued. */
    int lockstep;
    const struct coh_cuda_driver *driver; /* NULL: the machine's */
} coh_device_config;

typedef struct coh_device_facts {
    char name[64];
    size_t alignment;     /* of what stands in an arena */
    int host_addressable; /* the host may read and write the device tier's arena */
    /* What the device tier's arena could have had as the device was made, less what is kept back
     * for kernels and libraries; 0: it is the machine's memory. */
    uint64_t memory_bytes;
    int records; /* 1: record_begin, record_end and replay are there, and to be used */
} coh_device_facts;

/* A device's own memory as it is now. All are bytes. */
typedef struct coh_device_overhead {
    /* Taken before this device made anything there: by its context, and by other programs. */
    uint64_t context_bytes;
    /* Taken since, beside the arena: by kernels' code, streams, libraries, recordings (and other
     * programs). */
    uint64_t library_bytes;
    uint64_t free_bytes, total_bytes;
} coh_device_overhead;

/* Launches that a queue keeps, to be enqueued again and again as one command. The queue's own. */
typedef struct coh_recording coh_recording;

/* Work that a queue does: `index` and `number` are the caller's. */
typedef void (*coh_device_work)(void *context, uint64_t number, uint32_t index);

typedef struct coh_device_ops {
    uint32_t struct_bytes;
    const char *name; /* "host", "cuda" */

    /* Fails: COH_ERR_DEVICE, COH_ERR_MEMORY. */
    coh_status (*create)(const coh_device_config *config, coh_device **out_device);
    void (*destroy)(coh_device *device); /* accepts NULL; queues and arenas are gone by then */
    void (*facts)(const coh_device *device, coh_device_facts *out_facts);

    /* One arena per tier (device, host), zeroed and touched here, once.
     * Fails: COH_ERR_MEMORY with bytes asked and what would fit. */
    coh_status (*arena_create)(coh_device *device, coh_tier tier, uint64_t bytes, void **out_base);
    void (*arena_destroy)(coh_device *device, coh_tier tier);
    /* How a tier's arena came out; zeroes where there is none. */
    void (*arena_facts)(const coh_device *device, coh_tier tier, coh_arena_facts *out_facts);
    /* What the device's memory holds beside the arena. Any thread. NULL where the device tier is
     * the machine's memory. Fails: COH_ERR_DEVICE. */
    coh_status (*overhead)(coh_device *device, coh_device_overhead *out_overhead);

    /* The device tier's bytes, from the host: set, copied in, copied out. They return when it is
     * done. At a quiet point, or under `lockstep` from a notify. Any thread.
     * Fails: COH_ERR_DEVICE. */
    coh_status (*fill)(coh_device *device, void *to, int byte, size_t bytes);
    coh_status (*put)(coh_device *device, void *to, const void *from, size_t bytes);
    coh_status (*get)(coh_device *device, void *to, const void *from, size_t bytes);

    /* Zeroed memory of the host that this device's kernels read and write by the same address, for
     * what goes between the two without a copy. At start; given back before the device is.
     * Fails: COH_ERR_MEMORY, COH_ERR_DEVICE. */
    coh_status (*share)(coh_device *device, size_t bytes, void **out);
    void (*unshare)(coh_device *device, void *shared); /* accepts NULL */

    /* `counter` is one that wait_host may name. Before it is raised; it outlives the device, which
     * is destroyed when nobody raises it. Fails: COH_ERR_FULL. */
    coh_status (*watch)(coh_device *device, coh_counter *counter);

    /* COH_OK, or the first failure, its sentence made this thread's last error. Any thread. */
    coh_status (*failure)(coh_device *device);

    /* A lane of this device: compute, h2d or d2h, each at most once.
     * Fails: COH_ERR_MEMORY, COH_ERR_DEVICE. */
    coh_status (*queue_create)(coh_device *device, coh_lane lane, coh_queue **out_queue);
    /* Drops what is enqueued: the command that runs ends, no later one begins. Any thread. Where
     * what was enqueued cannot be taken back (streams), no later notify runs, no counter is raised,
     * and the commands run off without waiting for anything: all queues of the device are closed
     * with it, and what stands in its arenas is then of no use. */
    void (*queue_close)(coh_queue *queue);
    /* Closes what is not done, and joins. Nobody enqueues on the device meanwhile. Counters that
     * its commands wait for must be closed. Accepts NULL. */
    void (*queue_destroy)(coh_queue *queue);

    /* All of these enqueue and return; done in the queue's order. When the queue is full they wait
     * for room. On a closed queue they do nothing: whoever closed it knows why. */

    void (*copy)(coh_queue *queue, void *to, const void *from, size_t bytes);
    /* Returns once all that was enqueued here is done; notifies may still be under way. On a closed
     * queue it may return before. */
    void (*finish)(coh_queue *queue);
    /* Work of this lane. On the host device `work` runs on the queue's thread; else it runs at
     * once, on the caller's, and enqueues kernels. `predicate` is read on the device when the
     * command's turn has come; 0: skip. NULL: always. */
    void (*launch)(coh_queue *queue, coh_device_work work, void *context, uint64_t number,
                   uint32_t index, const int32_t *predicate);
    /* Has `work` done as if it were launched, at once and on the caller's thread, for what the
     * first launch would have to load, plan or allocate: that is made now, and little else is
     * enqueued. Done when it returns; what `work` writes is of no use then. Once for each line,
     * before the first launch and before anything in the arenas counts. The host device has nothing
     * to make, and does not call it. Fails: the device's failure. */
    coh_status (*rehearse)(coh_queue *queue, coh_device_work work, void *context, uint64_t number,
                           uint32_t index);
    /* Between these two `launch` enqueues nothing: what the work would have enqueued becomes a
     * recording, which lives as long as the queue. Nothing else is asked of the queue meanwhile,
     * and nothing is under way. What is recorded has its arguments from then: it may name cells,
     * and no value that changes. *out_recording NULL: so little that launching is as good.
     * Fails: with what failed; nothing is then recorded, and lines can be launched as before. */
    coh_status (*record_begin)(coh_queue *queue);
    coh_status (*record_end)(coh_queue *queue, coh_recording **out_recording);
    /* Enqueues all of it, in its order. */
    void (*replay)(coh_queue *queue, const coh_recording *recording);
    /* Bookkeeping on the host at this place in the queue's order; always runs. */
    void (*notify)(coh_queue *queue, coh_device_work work, void *context, uint64_t number,
                   uint32_t index);
    /* Raises `counter` when its turn has come; for one queue always the same counter. */
    void (*signal)(coh_queue *queue, coh_counter *counter, uint64_t value);
    /* `stall_ns` (may be NULL): gets added the time that the queue stood still here. */
    void (*wait)(coh_queue *queue, coh_counter *counter, uint64_t value,
                 _Atomic uint64_t *stall_ns);
    void (*wait_host)(coh_queue *queue, coh_counter *counter, uint64_t value,
                      _Atomic uint64_t *stall_ns);
} coh_device_ops;

extern const coh_device_ops coh_device_host;

#endif
