/* device_cuda_state.h - the inside of coh_device_cuda, shared by its files:
 *
 *   device_cuda.c         context, words, arenas, failures: made and unmade
 *   device_cuda_queue.c   what enqueues
 *   device_cuda_graph.c   what records
 *   device_cuda_retire.c  the thread coh-retire, which never calls the driver
 *   device_cuda_watch.c   the thread coh-watch, which asks the driver whether streams broke */
#ifndef COH_MEMORY_DEVICE_CUDA_STATE_H
#define COH_MEMORY_DEVICE_CUDA_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "memory/cuda_queue.h"
#include "memory/device_cuda.h"

/* Records a queue holds, as the commands of the host device: the step thread runs some hundred
 * lines ahead, then sleeps until half of them are done. */
#define COH_CUDA_RING_COUNT 1024u
/* Commands that may be under way on a compute queue and on each of the two others: 896 in all, for
 * a driver holds some 1,000 and then makes the call that enqueues wait, with the context's lock. */
#define COH_CUDA_AHEAD_COMPUTE 512u
#define COH_CUDA_AHEAD_COPIES  192u
/* What a graph counts for at most: how many commands of a driver's queue one takes is the driver's
 * to know, and a larger one must still find room. */
#define COH_CUDA_GRAPH_COMMANDS (COH_CUDA_AHEAD_COMPUTE / 4)
/* Counters of host threads. */
#define COH_CUDA_WATCH_COUNT 16u
/* Above every value that is waited for. A stream compares as int64_t(word - value) >= 0: all ones
 * would be below. */
#define COH_CUDA_RELEASED ((uint64_t)INT64_MAX)

/* A word of pinned memory, alone in its cache line. */
typedef struct coh_cuda_word {
    _Alignas(64) _Atomic uint64_t value;
} coh_cuda_word;

/* All words of a device: one page. */
typedef struct coh_cuda_words {
    coh_cuda_word progress[COH_LANE_COUNT]; /* the stream writes, coh-retire reads */
    coh_cuda_word mirror[COH_CUDA_WATCH_COUNT];
} coh_cuda_words;

typedef enum coh_cuda_record_kind {
    COH_CUDA_NOTIFY,
    COH_CUDA_SIGNAL,
    COH_CUDA_WAIT, /* the stream has waited; so does coh-retire, for the counter */
    COH_CUDA_PASS  /* nothing: says that commands are over, where a line has many */
} coh_cuda_record_kind;

/* What coh-retire does when the queue's progress has come to `place`. */
typedef struct coh_cuda_record {
    coh_cuda_record_kind kind;
    uint32_t index;
    uint64_t number; /* of work; value of a counter */
    uint64_t place;
    uint64_t commands; /* of the queue that are over at that place */
    coh_device_work work;
    void *target; /* context, counter */
    _Atomic uint64_t *stall_ns;
    uint64_t begin_ns; /* of a wait whose time is wanted: when it was enqueued */
} coh_cuda_record;

struct coh_recording {
    CUgraphExec graph;
    uint32_t commands;   /* that it counts for: COH_CUDA_GRAPH_COMMANDS at most */
    coh_recording *next; /* of its queue */
};

struct coh_queue {
    coh_cuda_queue base; /* first: what kernels are given points at both */

    /* The enqueuing thread's. */
    uint64_t written;     /* the last progress that was enqueued */
    int is_dirty;         /* something was enqueued since */
    uint64_t issued;      /* commands that were enqueued so far */
    uint64_t covered;     /* of them, those that the last progress covers */
    uint64_t recorded;    /* of them, those that the last record speaks of */
    int kernels_are_open; /* config.kernels; set before coh-retire sees the queue */
    coh_counter *counter; /* that this queue signals; NULL: none yet */
    uint64_t signal_count;
    CUevent events[COH_CUDA_RING_COUNT]; /* of the last signals: number n at [n % count] */
    uint64_t values[COH_CUDA_RING_COUNT];
    uint32_t event_count; /* that were made */
    coh_recording *recordings;
    uint64_t recorded_bytes;  /* that recordings took of the GPU's memory */
    coh_status record_status; /* while it records: the first failure */
    char record_text[COH_ERROR_TEXT_BYTES];

    /* coh-retire's: when it saw progress come to passed_place. */
    uint64_t passed_place, passed_ns;

    /* The enqueuing thread writes a record, then raises pushed (release); coh-retire reads it
     * (acquire), then raises popped. */
    _Atomic uint64_t pushed;
    _Atomic uint64_t over; /* commands; coh-retire raises it before popped */
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
    uint64_t room_bytes;    /* that an arena could have had at first */
    uint64_t context_bytes; /* that were taken then */
    int uses_graphs;

    CUdeviceptr arena; /* device tier; 0: none */
    uint64_t arena_bytes;
    int arena_is_counted;    /* in the ledger */
    uint64_t arena_touch_ns; /* what zeroing took */
    coh_arena *host_arena;
    uint64_t pinned_bytes; /* of the host tier, from its begin on */
    uint64_t pin_ns;

    coh_cuda_words *words;
    CUdeviceptr words_address; /* the same for streams */
    coh_counter *watched[COH_CUDA_WATCH_COUNT];
    uint32_t watched_count;

    pthread_t retirer;
    int retirer_is_started;
    _Atomic(coh_queue *) queues[COH_LANE_COUNT]; /* queue_create and destroy write */
    coh_counter pushed;          /* commands of all queues: coh-retire and coh-watch sleep here */
    _Atomic uint64_t pass_asked; /* queue_destroy adds, coh-retire reads */
    coh_counter pass_made;       /* coh-retire raises it to what was asked as a pass began */
    _Atomic uint32_t is_closed;  /* any thread sets, all read */

    pthread_t watcher;
    int watcher_is_started, watch_is_made;
    /* A queue that coh-watch looks at is not destroyed meanwhile, nor does it begin to record. */
    pthread_mutex_t watch_mutex;
    pthread_cond_t watch_ends; /* `pushed` was closed */
    /* What coh-watch found, once: 256 times the CUresult, and the lane. coh-retire tells of it. */
    _Atomic uint64_t broken;

    pthread_mutex_t failure_mutex;
    coh_status failure; /* first one; under the mutex */
    char failure_text[COH_ERROR_TEXT_BYTES];
};

/* ---- device_cuda.c ---- */

/* The driver's calls belong to the thread's current context: the device's between these two. */
coh_status coh_cuda_enter(const coh_device *device);
void coh_cuda_leave(const coh_device *device);
/* How many of `bytes` one copy may have that begins at `to` and `from`. */
size_t coh_cuda_copy_bytes(const coh_device *device, const void *to, const void *from,
                           size_t bytes);
/* The failure of the device, if it is the first: this thread's last error, at line `number`,
 * `index`. Tells config.failed, and stops everything. */
void coh_cuda_device_fail(coh_device *device, coh_status status, uint64_t number, uint32_t index);
/* COH_OK, or the first failure, its sentence made this thread's last error. */
coh_status coh_cuda_device_failure(coh_device *device);
/* From now on nothing is enqueued and nobody notified; all that streams wait for is released. */
void coh_cuda_device_close(coh_device *device);

static inline int coh_cuda_is_closed(const coh_device *device)
{
    return (int)atomic_load_explicit(&device->is_closed, memory_order_acquire);
}

/* Something that coh-retire has not done. */
static inline int coh_cuda_queue_is_pending(const coh_queue *queue)
{
    return coh_counter_read(&queue->popped) <
           atomic_load_explicit(&queue->pushed, memory_order_acquire);
}

/* Where streams find a word. */
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
void coh_cuda_queue_notify(coh_queue *queue, coh_device_work work, void *context, uint64_t number,
                           uint32_t index);
void coh_cuda_queue_signal(coh_queue *queue, coh_counter *counter, uint64_t value);
void coh_cuda_queue_wait(coh_queue *queue, coh_counter *counter, uint64_t value,
                         _Atomic uint64_t *stall_ns);
void coh_cuda_queue_wait_host(coh_queue *queue, coh_counter *counter, uint64_t value,
                              _Atomic uint64_t *stall_ns);

void coh_cuda_queue_replay(coh_queue *queue, const coh_recording *recording);

/* ---- device_cuda_graph.c ---- */

/* Whether graphs are used: unless COH_CUDA_GRAPHS=none. Fails: COH_ERR_ARGUMENT. */
coh_status coh_cuda_graphs_wanted(int *out_are_wanted);
coh_status coh_cuda_record_begin(coh_queue *queue);
coh_status coh_cuda_record_end(coh_queue *queue, coh_recording **out_recording);
/* As the queue is unmade, in its context: nothing of them is under way. */
void coh_cuda_drop_recordings(coh_queue *queue);

/* ---- device_cuda_watch.c ---- */

/* Makes what coh-watch needs, and starts it; stop also where start failed or was not called, after
 * `pushed` was closed. Fails: COH_ERR_MEMORY. */
coh_status coh_cuda_watch_start(coh_device *device);
void coh_cuda_watch_stop(coh_device *device);
/* The queue is none of the device's from now on, and coh-watch does not look at it. */
void coh_cuda_watch_forget(coh_device *device, coh_lane lane);

/* ---- device_cuda_retire.c ---- */

/* The thread coh-retire. */
void *coh_cuda_retire_main(void *device);
/* Returns once coh-retire no longer looks at what it saw before the call. Not for coh-retire. */
void coh_cuda_retire_pass(coh_device *device);

#endif
