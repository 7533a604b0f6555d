/* device_cuda_state.h - the internal state of coh_device_cuda, shared by its files:
 *
 *   device_cuda.c         context, words, arenas, failures: creation and destruction
 *   device_cuda_queue.c   enqueuing
 *   device_cuda_graph.c   recording
 *   device_cuda_retire.c  the thread coh-retire, which never calls the driver
 *   device_cuda_times.c   the GPU's clock, and the times of places in queues
 *   device_cuda_watch.c   the thread coh-watch, which asks the driver whether streams broke */
#ifndef COH_MEMORY_DEVICE_CUDA_STATE_H
#define COH_MEMORY_DEVICE_CUDA_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "memory/clock_map.h"
#include "memory/cuda_queue.h"
#include "memory/device_cuda.h"

/* Records that a queue holds, as many as the host device holds commands: the step thread runs some
 * hundred instructions ahead, then sleeps until half of them are done. */
#define COH_CUDA_RING_COUNT 1024u
/* Commands in flight at most on a compute queue, and on each of the two others: 896 in all. A
 * driver holds about 1,000; beyond that the enqueuing call blocks while holding the context's
 * lock. */
#define COH_CUDA_AHEAD_COMPUTE 512u
#define COH_CUDA_AHEAD_COPIES  192u
/* Largest number of commands that a graph counts as. Only the driver knows how many places a graph
 * takes in its queue, and a larger graph must still find room. */
#define COH_CUDA_GRAPH_COMMANDS (COH_CUDA_AHEAD_COMPUTE / 4)
/* Counters of host threads. */
#define COH_CUDA_WATCH_COUNT 16u
/* Above every value that is waited for. Not all ones, because a stream compares int64_t(word -
 * value) >= 0, and all ones would compare as below. */
#define COH_CUDA_RELEASED ((uint64_t)INT64_MAX)

/* A word of pinned memory, alone in its cache line. */
typedef struct coh_cuda_word {
    _Alignas(64) _Atomic uint64_t value;
} coh_cuda_word;

/* All words of a device: one page. */
typedef struct coh_cuda_words {
    coh_cuda_word progress[COH_LANE_COUNT]; /* the stream writes, coh-retire reads */
    coh_cuda_word mirror[COH_CUDA_WATCH_COUNT];
    coh_cuda_word clock_go, clock_done; /* device_cuda_times.c */
} coh_cuda_words;

typedef enum coh_cuda_record_kind {
    COH_CUDA_NOTIFY,
    COH_CUDA_SIGNAL,
    COH_CUDA_WAIT, /* the stream has waited; coh-retire waits for the counter, too */
    COH_CUDA_PASS  /* no action: marks commands as done, if an instruction has many */
} coh_cuda_record_kind;

/* The action of coh-retire when the queue's progress reaches `place`. */
typedef struct coh_cuda_record {
    coh_cuda_record_kind kind;
    uint32_t index;
    uint64_t number; /* argument of the work, or value of the counter */
    uint64_t place;
    uint64_t commands; /* the queue's commands that are done at that place */
    coh_device_work work;
    coh_device_timed timed; /* of a notify; NULL: it is not timed */
    void *target;           /* context, counter */
    _Atomic uint64_t *stall_ns;
    uint64_t begin_ns; /* of a wait that is timed: time at which it was enqueued */
    /* With times_exactly: progress by which the record's event has its time; 0: it has no event. */
    uint64_t event_place;
} coh_cuda_record;

struct coh_recording {
    CUgraphExec graph;
    uint32_t commands;   /* that it counts as: at most COH_CUDA_GRAPH_COMMANDS */
    coh_recording *next; /* in the list of its queue */
};

typedef struct coh_cuda_signal {
    uint64_t value;
    CUevent event;
} coh_cuda_signal;

/* The GPU's clock, with times_exactly. Guarded by the mutex; held while the driver is asked for
 * times. A wait under it is only for the clock's own stream, which has one event and no work, never
 * for a lane. */
typedef struct coh_cuda_clock {
    pthread_mutex_t mutex;
    int mutex_is_made;
    CUstream stream;
    CUevent events[3]; /* of the newest pair, of the best try so far, and of the present one */
    int newest;        /* index of the newest pair's event */
    uint64_t try_count;
    coh_clock_map map; /* device times count from the first pair */
} coh_cuda_clock;

struct coh_queue {
    coh_cuda_queue base; /* first member: kernels get a pointer to both */

    /* Used by the enqueuing thread only. */
    uint64_t written;     /* last progress whose write was enqueued */
    int is_dirty;         /* 1: work was enqueued since */
    uint64_t issued;      /* number of enqueued commands */
    uint64_t covered;     /* how many of them the last progress covers */
    uint64_t recorded;    /* how many of them the last record covers */
    int kernels_are_open; /* config.kernels; set before coh-retire sees the queue */
    coh_counter *counter; /* counter that this queue signals; NULL: none yet */
    uint64_t signal_count;
    coh_cuda_signal signals[COH_CUDA_RING_COUNT]; /* the last ones: number n is at [n % count] */
    CUevent events[COH_CUDA_RING_COUNT];          /* of the records in the ring */
    uint32_t event_count;                         /* events created so far */
    CUevent newest_event; /* recorded after all work that was enqueued; NULL: none was */
    coh_recording *recordings;
    uint64_t recorded_bytes;  /* GPU memory taken by recordings */
    coh_status record_status; /* while it records: the first failure */
    char record_text[COH_ERROR_TEXT_BYTES];

    /* Used by coh-retire only: when it saw progress reach passed_place. */
    uint64_t passed_place, passed_ns;

    /* coh-retire is done with records [0, passed), take_times with [0, taken): it raises taken,
     * holding the clock's mutex, and the enqueuing thread reuses records before it. */
    _Atomic uint64_t passed, taken;
    uint64_t timed_ns; /* latest time given; guarded by the clock's mutex */

    /* The enqueuing thread writes a record, then raises pushed (release); coh-retire reads it
     * (acquire), then raises popped. */
    _Atomic uint64_t pushed;
    _Atomic uint64_t over; /* commands done; coh-retire raises it before popped */
    coh_counter popped;
    coh_cuda_record ring[COH_CUDA_RING_COUNT];
};

struct coh_device {
    coh_device_config config;
    const coh_cuda_driver *driver;
    coh_cuda_driver *opened; /* NULL: the driver is the caller's */
    CUdevice gpu;
    CUcontext context; /* NULL: not retained */
    CUstream service;  /* fill, put, get */
    char name[64];
    int multiprocessor_count;
    uint64_t room_bytes;    /* largest possible arena at creation */
    uint64_t context_bytes; /* bytes in use at creation */
    int uses_graphs;
    struct coh_nvml *nvml; /* NULL: NVML is not there */
    coh_cuda_clock clock;

    CUdeviceptr arena; /* device tier; 0: none */
    uint64_t arena_bytes;
    int arena_is_counted;    /* 1: it is in the ledger */
    uint64_t arena_touch_ns; /* time of zeroing */
    coh_arena *host_arena;
    uint64_t pinned_bytes; /* of the host tier, from its start */
    uint64_t pin_ns;

    coh_cuda_words *words;
    CUdeviceptr words_address; /* the same memory, as streams address it */
    coh_counter *watched[COH_CUDA_WATCH_COUNT];
    uint32_t watched_count;

    pthread_t retirer;
    int retirer_is_started;
    _Atomic(coh_queue *) queues[COH_LANE_COUNT]; /* queue_create and destroy write */
    coh_counter pushed;          /* commands of all queues: coh-retire and coh-watch sleep here */
    _Atomic uint64_t pass_asked; /* queue_destroy adds, coh-retire reads */
    coh_counter pass_made;       /* coh-retire raises it to pass_asked as of the pass's start */
    _Atomic uint32_t is_closed;  /* any thread sets, all read */

    pthread_t watcher;
    int watcher_is_started, watch_is_made;
    /* Held while coh-watch looks at a queue: the queue is not destroyed and does not begin to
     * record. */
    pthread_mutex_t watch_mutex;
    pthread_cond_t watch_ends; /* `pushed` was closed */
    /* Set once by coh-watch: 256 times the CUresult, plus the lane. coh-retire reports it. */
    _Atomic uint64_t broken;

    pthread_mutex_t failure_mutex;
    coh_status failure; /* first one; under the mutex */
    char failure_text[COH_ERROR_TEXT_BYTES];
};

/* ---- device_cuda.c ---- */

/* Driver calls use the thread's current context; enter makes it the device's until leave. */
coh_status coh_cuda_enter(const coh_device *device);
void coh_cuda_leave(const coh_device *device);
/* Returns how many of `bytes` a single copy from `from` to `to` may cover. */
size_t coh_cuda_copy_bytes(const coh_device *device, const void *to, const void *from,
                           size_t bytes);
/* Records the device's failure, if it is the first: this thread's last error, at instruction
 * `number`, `index`. Calls config.failed and stops everything. */
void coh_cuda_device_fail(coh_device *device, coh_status status, uint64_t number, uint32_t index);
/* Returns COH_OK, or the first failure, with its text as this thread's last error. */
coh_status coh_cuda_device_failure(coh_device *device);
/* Closes the device: nothing is enqueued or notified any more, and everything that streams wait for
 * is released. */
void coh_cuda_device_close(coh_device *device);

static inline int coh_cuda_is_closed(const coh_device *device)
{
    return (int)atomic_load_explicit(&device->is_closed, memory_order_acquire);
}

/* Returns 1 if coh-retire has unfinished records. */
static inline int coh_cuda_queue_is_pending(const coh_queue *queue)
{
    return coh_counter_read(&queue->popped) <
           atomic_load_explicit(&queue->pushed, memory_order_acquire);
}

/* Returns the address at which streams see a word. */
static inline CUdeviceptr coh_cuda_word_address(const coh_device *device, const coh_cuda_word *word)
{
    return device->words_address + (CUdeviceptr)((const char *)word - (const char *)device->words);
}

/* ---- device_cuda_queue.c ---- */

coh_status coh_cuda_queue_create(coh_device *device, coh_lane lane, coh_queue **out_queue);
void coh_cuda_queue_close(coh_queue *queue);
void coh_cuda_queue_destroy(coh_queue *queue);
void coh_cuda_queue_copy(coh_queue *queue, void *to, const void *from, size_t bytes);
void coh_cuda_queue_finish(coh_queue *queue);
void coh_cuda_queue_launch(coh_queue *queue, coh_device_work work, void *context, uint64_t number,
                           uint32_t index, const int32_t *predicate);
coh_status coh_cuda_queue_rehearse(coh_queue *queue, coh_device_work work, void *context,
                                   uint64_t number, uint32_t index);
void coh_cuda_queue_notify(coh_queue *queue, coh_device_work work, coh_device_timed timed,
                           void *context, uint64_t number, uint32_t index);
void coh_cuda_queue_signal(coh_queue *queue, coh_counter *counter, uint64_t value);
void coh_cuda_queue_wait(coh_queue *queue, coh_counter *counter, uint64_t value,
                         _Atomic uint64_t *stall_ns);
void coh_cuda_queue_wait_host(coh_queue *queue, coh_counter *counter, uint64_t value,
                              _Atomic uint64_t *stall_ns);

void coh_cuda_queue_replay(coh_queue *queue, const coh_recording *recording);

/* ---- device_cuda_graph.c ---- */

/* Reports whether graphs are used: yes, unless COH_CUDA_GRAPHS=none. Fails: COH_ERR_ARGUMENT. */
coh_status coh_cuda_graphs_wanted(int *out_are_wanted);
coh_status coh_cuda_record_begin(coh_queue *queue);
coh_status coh_cuda_record_end(coh_queue *queue, coh_recording **out_recording);
/* Frees a queue's recordings when it is destroyed, in its context; none may be running. */
void coh_cuda_drop_recordings(coh_queue *queue);

/* ---- device_cuda_times.c ---- */

/* Create the clock with its first pair, in the device's context; destroy it, also after a create
 * that failed or was not called. Fails: COH_ERR_MEMORY, COH_ERR_DEVICE. */
coh_status coh_cuda_clock_create(coh_device *device);
void coh_cuda_clock_destroy(coh_device *device);
void coh_cuda_queue_take_times(coh_queue *queue);

/* ---- device_cuda_watch.c ---- */

/* Create what coh-watch needs and start it; stop it after `pushed` was closed. Stopping is allowed
 * if start failed or was not called. Fails: COH_ERR_MEMORY. */
coh_status coh_cuda_watch_start(coh_device *device);
void coh_cuda_watch_stop(coh_device *device);
/* Removes the queue from the device, so that coh-watch no longer looks at it. */
void coh_cuda_watch_forget(coh_device *device, coh_lane lane);

/* ---- device_cuda_retire.c ---- */

/* The thread coh-retire. */
void *coh_cuda_retire_main(void *device);
/* Returns after coh-retire has begun and finished a pass since the call, so that it no longer uses
 * what it saw before. Not to be called by coh-retire. */
void coh_cuda_retire_pass(coh_device *device);

#endif
