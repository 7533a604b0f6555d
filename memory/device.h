/* device.h - the interface of a device: the operations that a step program needs to run on it.
 *
 * The one idea: a lane is a queue that executes work in order, and counters tell how far it is. The
 * host device implements it with threads, a GPU with streams and events, behind the same table. No
 * other code asks which device it is.
 *
 *   step thread:   issue c1   issue c2 ...    issues all device lanes, in the program's order
 *   compute:           [ c1 ][ c2 ]           retired[compute] = 0 1 2
 *   read thread:   [ r1 .............. ]      its own; waits until retired[compute] >= n
 *
 * A pitfall of streams and events: waiting for an event that is not yet recorded does not wait at
 * all. So `wait` may name only a value whose `signal` is already enqueued. This holds because one
 * step thread issues all device lanes in the program's order. For a value that a host thread will
 * raise (a disk lane's counter), use `wait_host`.
 *
 * The host device: the device tier is ordinary memory (the RAM budget), and each queue is a thread,
 * coh-compute, coh-h2d, coh-d2h, with a ring of commands. With an emulated far tier, the copies
 * between the two arenas are real and can be throttled to the rate of a link.
 *
 * A device of streams (memory/device_cuda.h) has one more thread, coh-retire. It follows each
 * stream's progress and does the host side of `notify` and `signal`, in the queue's order.
 *
 * Threads: only the step thread enqueues, except on the queues of comm lanes: their lane's thread.
 * Nothing is allocated after queue_create. */
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

/* The kernels of a device, for queues of the compute lane and of comm lanes. */
typedef struct coh_device_kernels {
    const struct coh_kernel_table *table; /* first member of such a queue (base/queue_head.h) */
    size_t workspace_bytes; /* in the device's arena, from config.workspace_offset on */
    /* Set up and tear down what kernels need in addition to the queue: called after the queue is
     * made, and before it is destroyed. */
    coh_status (*open)(void *queue);
    void (*close)(void *queue);
    /* Reports, once, an error that a kernel found, with the index of the kernel's instruction;
     * COH_OK: none. Called after work is done and before its completion is announced, by the
     * announcing thread (on a GPU coh-retire), so no step with an error ends well. NULL: kernels
     * find no errors. */
    coh_status (*look)(void *queue, uint32_t *out_index);
} coh_device_kernels;

/* Callback for an asynchronous failure of the device. `status` comes with its text as this thread's
 * last error; `number` and `index` are those of an instruction that was running (0, 0: none).
 * Called once, by the thread that found the failure. It closes the counters that others wait for,
 * and may close queues. */
typedef void (*coh_device_failed)(void *context, coh_status status, uint64_t number,
                                  uint32_t index);

typedef struct coh_device_config {
    int index;
    int thread_count; /* threads that touch the arenas at start */
    /* receives the arenas' reservations; must outlive the device. May be NULL */
    coh_ledger *ledger;
    double link_bytes_per_s; /* rate limit of h2d and of d2h; 0: memory speed. Host device only */
    /* Of a rehearsal (engine/phantom.h), on the host device: arenas are addresses that nothing may
     * touch, and the queues' threads are counted. Else NULL. */
    coh_awake *awake;

    /* The rest is for devices other than the host. */
    const coh_device_kernels *kernels; /* NULL: nothing computes */
    uint64_t workspace_offset;         /* in the device tier, of the kernels' workspace */
    coh_device_failed failed;          /* NULL: none */
    void *failed_context;
    /* Receives sentences for people, such as what a library does not support. Called by the thread
     * that makes a queue, rehearses or enqueues. NULL: none. */
    void (*log)(void *context, const char *sentence);
    void *log_context;
    /* 1: `signal` returns only when its counter was raised (or the queue was closed). So what
     * `notify` does to an arena (poison) is finished before the next instruction is enqueued. */
    int lockstep;
    /* 1: a place in a queue is timed by the device, at its own moment, and its time is given by
     * take_times; this costs the device an event per instruction. 0: by the thread that notifies,
     * when it notifies. */
    int times_exactly;
    const struct coh_cuda_driver *driver; /* NULL: open the machine's */
} coh_device_config;

typedef struct coh_device_facts {
    char name[64];
    size_t alignment;     /* of chunks in an arena */
    int host_addressable; /* 1: the host may read and write the device tier's arena */
    /* Largest possible arena of the device tier when the device was made, without the reserve for
     * kernels and libraries; 0: the device tier is the machine's memory. */
    uint64_t memory_bytes;
    int records; /* 1: record_begin, record_end and replay exist and should be used */
} coh_device_facts;

/* Present use of a device's own memory, in bytes. */
typedef struct coh_device_overhead {
    /* used before this device allocated anything: by its context and by other programs */
    uint64_t context_bytes;
    /* Used since, outside the arena: by kernels' code, streams, libraries, recordings (and other
     * programs). */
    uint64_t library_bytes;
    uint64_t free_bytes, total_bytes;
} coh_device_overhead;

/* Clock and power of a device; UINT64_MAX: not known. */
typedef struct coh_device_meter {
    uint64_t clock_hz, power_mw;
} coh_device_meter;

/* A recorded sequence of launches (a CUDA graph) that can be replayed as one command; owned by its
 * queue. */
typedef struct coh_recording coh_recording;

/* Work that a queue does; `index` and `number` are passed through. */
typedef void (*coh_device_work)(void *context, uint64_t number, uint32_t index);

/* Receives the time (coh_clock_ns) at which a queue passed a place; in the queue's order, never
 * before an earlier place of the queue. */
typedef void (*coh_device_timed)(void *context, uint64_t number, uint32_t index, uint64_t at_ns);

typedef struct coh_device_ops {
    uint32_t struct_bytes;
    const char *name; /* "host", "cuda" */

    /* Fails: COH_ERR_DEVICE, COH_ERR_MEMORY. */
    coh_status (*create)(const coh_device_config *config, coh_device **out_device);
    void (*destroy)(coh_device *device); /* accepts NULL; destroy queues and arenas before */
    void (*facts)(const coh_device *device, coh_device_facts *out_facts);

    /* Creates the arena of a tier (device, host), zeroed and touched; once per tier.
     * Fails: COH_ERR_MEMORY with bytes requested and what would fit. */
    coh_status (*arena_create)(coh_device *device, coh_tier tier, uint64_t bytes, void **out_base);
    void (*arena_destroy)(coh_device *device, coh_tier tier);
    /* Facts of a tier's arena; zeroes if there is none. */
    void (*arena_facts)(const coh_device *device, coh_tier tier, coh_arena_facts *out_facts);
    /* Use of the device's memory outside the arena. Any thread. NULL if the device tier is the
     * machine's memory. Fails: COH_ERR_DEVICE. */
    coh_status (*overhead)(coh_device *device, coh_device_overhead *out_overhead);
    /* Clock and power, at most a quarter of a second old. One thread at a time. NULL: not known. */
    void (*meter)(coh_device *device, coh_device_meter *out_meter);

    /* Access the device tier from the host: set, copy in, copy out. They return when done. Only
     * while no lane runs, or with `lockstep` from a notify. Any thread.
     * Fails: COH_ERR_DEVICE. */
    coh_status (*fill)(coh_device *device, void *to, int byte, size_t bytes);
    coh_status (*put)(coh_device *device, void *to, const void *from, size_t bytes);
    coh_status (*get)(coh_device *device, void *to, const void *from, size_t bytes);

    /* Allocates zeroed host memory that this device's kernels access at the same address, for data
     * shared without a copy. At start; must be freed before the device is destroyed.
     * Fails: COH_ERR_MEMORY, COH_ERR_DEVICE. */
    coh_status (*share)(coh_device *device, size_t bytes, void **out);
    void (*unshare)(coh_device *device, void *shared); /* accepts NULL */

    /* Registers a counter that wait_host may name, before it is first raised. The counter outlives
     * the device, and no thread may raise it while the device is destroyed. Fails: COH_ERR_FULL. */
    coh_status (*watch)(coh_device *device, coh_counter *counter);

    /* Returns COH_OK, or the first failure, with its text as this thread's last error. Any
     * thread. */
    coh_status (*failure)(coh_device *device);

    /* Creates a lane of this device: compute, h2d or d2h, each at most once. Devices other than the
     * host also have comm0 and comm1, for kernels without library workspace; nothing waits for
     * their signals on the device.
     * Fails: COH_ERR_MEMORY, COH_ERR_DEVICE. */
    coh_status (*queue_create)(coh_device *device, coh_lane lane, coh_queue **out_queue);
    /* Drops enqueued commands: the running one ends, no other begins. Any thread. If enqueued work
     * cannot be withdrawn (streams), no further notify runs and no counter is raised, and the
     * commands run to their end without waiting for anything. All queues of the device are closed
     * with it, and the contents of its arenas are garbage then. */
    void (*queue_close)(coh_queue *queue);
    /* Closes what is unfinished, and joins. No thread may enqueue on the device meanwhile. Counters
     * that its commands wait for must be closed before. Accepts NULL. */
    void (*queue_destroy)(coh_queue *queue);

    /* The following operations enqueue and return; they execute in the queue's order. If the queue
     * is full, they wait for room. On a closed queue they do nothing; the closing thread knows the
     * reason. */

    void (*copy)(coh_queue *queue, void *to, const void *from, size_t bytes);
    /* Waits until everything enqueued here is done; notifies may still be running. On a closed
     * queue it may return earlier. */
    void (*finish)(coh_queue *queue);
    /* Work of this lane. On the host device `work` runs on the queue's thread; on others it runs at
     * once on the calling thread, and enqueues kernels. `predicate` is read on the device when the
     * command's turn comes; 0: skip. NULL: always run. */
    void (*launch)(coh_queue *queue, coh_device_work work, void *context, uint64_t number,
                   uint32_t index, const int32_t *predicate);
    /* Prepares a later launch of `work`: runs it at once on the calling thread, so that whatever
     * the first launch would load, plan or allocate is made now, and little else is enqueued. Done
     * when it returns; what `work` writes is garbage. Call it once per instruction, before the
     * first launch and before anything in the arenas matters. The host device has nothing to
     * prepare and does not call `work`. Fails: the device's failure. */
    coh_status (*rehearse)(coh_queue *queue, coh_device_work work, void *context, uint64_t number,
                           uint32_t index);
    /* Between these two calls `launch` enqueues nothing: the work becomes part of a recording,
     * which lives as long as the queue. No other operation may be called on the queue meanwhile,
     * and nothing may be running. Arguments are fixed when recorded: they may name cells, but no
     * value that changes. *out_recording NULL: too little work to be worth a recording.
     * Fails: with the work's failure; nothing is recorded then, and instructions can be launched as
     * before. */
    coh_status (*record_begin)(coh_queue *queue);
    coh_status (*record_end)(coh_queue *queue, coh_recording **out_recording);
    /* Enqueues all recorded work, in its order. */
    void (*replay)(coh_queue *queue, const coh_recording *recording);
    /* Runs bookkeeping on the host at this place in the queue's order; always, even if work was
     * skipped. `timed` gets the time of the place: with times_exactly from take_times, else right
     * after `work`. NULL: it is not timed. */
    void (*notify)(coh_queue *queue, coh_device_work work, coh_device_timed timed, void *context,
                   uint64_t number, uint32_t index);
    /* Raises `counter` when its turn comes; a queue must always use the same counter. */
    void (*signal)(coh_queue *queue, coh_counter *counter, uint64_t value);
    /* Waits until `counter` has `value`. Adds the time that the queue was stalled here to
     * `stall_ns` (may be NULL); with times_exactly take_times adds it. */
    void (*wait)(coh_queue *queue, coh_counter *counter, uint64_t value,
                 _Atomic uint64_t *stall_ns);
    void (*wait_host)(coh_queue *queue, coh_counter *counter, uint64_t value,
                      _Atomic uint64_t *stall_ns);

    /* With times_exactly: gives the times of all places that the queue has passed before a signal
     * that the caller has seen, and of some later ones. Any thread; threads wait for one another.
     * NULL: the device times nothing by itself. A failure is the device's. */
    void (*take_times)(coh_queue *queue);

    /* As arena_destroy, but the memory stays mapped until the process ends, since other ranks may
     * still write to it. NULL: no other rank touches memory of this device. */
    void (*arena_abandon)(coh_device *device, coh_tier tier);
} coh_device_ops;

extern const coh_device_ops coh_device_host;

#endif
