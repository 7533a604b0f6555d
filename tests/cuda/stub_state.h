/* stub_state.h - the inside of the stub driver, shared by its files: stub_driver.c has most calls;
 * stub_kernels.c and stub_graphs.c those of kernels and graphs; stub_streams.c commands and their
 * execution. Everything is guarded by coh_stub.mutex. */
#ifndef COH_TESTS_CUDA_STUB_STATE_H
#define COH_TESTS_CUDA_STUB_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "tests/cuda/stub_driver.h"

enum { STUB_STREAMS_MOST = 64, STUB_RANGES_MOST = 1024, STUB_TWINS_MOST = 64 };

typedef enum stub_command_kind {
    STUB_COPY,
    STUB_FILL,
    STUB_WORK,
    STUB_WRITE,
    STUB_WAIT_VALUE,
    STUB_RECORD,
    STUB_WAIT_EVENT
} stub_command_kind;

typedef struct stub_command {
    stub_command_kind kind;
    void *to;
    const void *from;
    size_t bytes;   /* of a copy or fill, or of arguments */
    uint64_t value; /* of a word or fill; the record to wait for */
    CUevent event;
    coh_stub_work work;
    int is_inner; /* belongs to a graph and is not its first */
    _Alignas(16) unsigned char arguments[COH_STUB_ARGUMENT_BYTES];
} stub_command;

/* The commands [begin, end); in a stream, those pending. */
typedef struct stub_commands {
    stub_command *all;
    size_t begin, end, capacity;
} stub_commands;

struct CUgraph_st {
    stub_commands commands;
    int is_strict;  /* its capture forbids uncapturable calls in the whole process */
    int is_invalid; /* a forbidden call was made */
};

struct CUgraphExec_st {
    stub_commands commands;
    size_t bytes; /* of GPU memory */
};

struct CUstream_st {
    int number;
    int is_busy; /* its first command is executing, without the mutex */
    stub_commands commands;
    size_t inner_count; /* number of inner commands */
    CUgraph capture;    /* receives what is enqueued; NULL: it is executed */
};

struct CUevent_st {
    uint64_t recorded, completed; /* records: enqueued, executed */
    uint64_t at_ns;               /* GPU's clock at the last executed record */
    int is_timed;
    CUevent next; /* next destroyed event */
};

struct CUmod_st {
    int function_count;
    struct CUfunc_st *functions[128];
};

struct CUfunc_st {
    coh_stub_work work;    /* NULL: no twin */
    const char *of_kernel; /* its symbol, if `kernels` run it */
    size_t argument_bytes;
    unsigned shared_bytes; /* requested dynamic shared memory */
};

/* State of the query to be held: none, awaited, arrived. */
typedef enum stub_hold { STUB_NOT_HELD, STUB_TO_BE_HELD, STUB_HELD } stub_hold;

typedef enum stub_memory { STUB_DEVICE, STUB_HOST, STUB_REGISTERED } stub_memory;

typedef struct stub_range {
    stub_memory memory;
    char *base; /* NULL: free entry */
    size_t bytes;
} stub_range;

typedef struct stub_state {
    pthread_mutex_t mutex;
    const char *device_name; /* NULL: "stub" */
    int near_node;           /* -1: not known */
    int gpu_count;           /* 0: 1 */
    int gpus_are_one;
    int first_gpu; /* of the machine, that this process sees */
    size_t memory_bytes, used_bytes;
    size_t host_bytes, host_most_bytes; /* page-locked, and the most of it since the reset */
    uint64_t fetched_bytes;             /* taken from GPU memory by copies */
    size_t context_bytes, module_bytes; /* taken by the context and by each module */
    int retain_count;                   /* of the only context */
    uint64_t live_count;
    CUresult broken;
    uint64_t call_counts[COH_STUB_CALL_COUNT];
    coh_stub_call fail_call;
    uint64_t fail_in; /* calls until the planned failure; 0: none */
    CUresult fail_result;
    int fault_was_hit, fault_breaks;
    coh_stub_call skip_call;
    uint64_t skip_in;   /* waits until the skipped one; 0: none */
    size_t graph_bytes; /* taken by an executable graph */
    double clock_rate;  /* of the GPU's clock, per nanosecond of the host */
    int64_t clock_from_ns;
    CUevent destroyed; /* kept until a reset, since streams may still wait for them */
    CUstream streams[STUB_STREAMS_MOST];
    int stream_count; /* streams ever created */
    stub_range ranges[STUB_RANGES_MOST];
    struct stub_twin {
        const char *symbol;
        coh_stub_work work;
        size_t argument_bytes;
    } twins[STUB_TWINS_MOST];
    int twin_count;
    const coh_stub_kernels *kernels; /* NULL: only twins */
    size_t depth;                    /* most commands that the driver holds; 0: no limit */
    int is_full;                     /* a call waits for room, and every other call waits for it */
    uint64_t full_count, held_count; /* calls that waited for room; that waited for such a call */
    size_t most_pending;
    _Atomic stub_hold query_hold;
    pthread_t thread;
    int thread_is_started;
    _Atomic int thread_stops;
    uint64_t seed;
} stub_state;

extern stub_state coh_stub;

/* Begin and end of every call. The first takes the mutex; CUDA_SUCCESS: proceed. `needs`: a current
 * context is required. */
CUresult coh_stub_begin(coh_stub_call call, int needs);
CUresult coh_stub_end(CUresult result);
#define STUB_BEGIN(name)                                                                           \
    CUresult result = coh_stub_begin(COH_STUB_##name, 1);                                          \
    if (result != CUDA_SUCCESS)                                                                    \
    return coh_stub_end(result)

/* stub_kernels.c, stub_graphs.c */
#define STUB_DECLARE(name) __typeof__(name) stub_##name;
STUB_DECLARE(cuModuleLoadData)
STUB_DECLARE(cuModuleUnload)
STUB_DECLARE(cuModuleGetFunction)
STUB_DECLARE(cuFuncLoad)
STUB_DECLARE(cuFuncSetAttribute)
STUB_DECLARE(cuLaunchKernel)
STUB_DECLARE(cuStreamBeginCapture)
STUB_DECLARE(cuStreamEndCapture)
STUB_DECLARE(cuGraphGetNodes)
STUB_DECLARE(cuGraphDestroy)
STUB_DECLARE(cuGraphInstantiateWithFlags)
STUB_DECLARE(cuGraphUpload)
STUB_DECLARE(cuGraphLaunch)
STUB_DECLARE(cuGraphExecDestroy)
#undef STUB_DECLARE
/* Returns 1 if the stream is being captured, which the present call has invalidated. */
int coh_stub_ends_capture(CUstream stream);
/* Before and after a query. The first returns 1 for the held query, once the stream is captured or
 * the time is over. */
int coh_stub_begin_hold(const struct CUstream_st *stream);
void coh_stub_end_hold(int is_held);
/* Drops a capture when its stream is destroyed. */
void coh_stub_drop_capture(CUstream stream);
/* Returns 1 if some stream is captured strictly, which this uncapturable call has invalidated. */
int coh_stub_ends_strict_capture(void);

/* Sets bytes as memset does. Of a range of 1 MiB or more, such as an arena, a short run under the
 * thread sanitizer checks a byte of every 256: checking all took most of the time of some tests. */
void coh_stub_fill(void *to, int value, size_t bytes);

/* In stub_streams.c; the mutex is held. */
void coh_stub_append(stub_commands *to, const stub_command *command);
/* Appends to the stream, or to the graph that captures it. May wait for room, without the mutex. */
void coh_stub_push(CUstream stream, const stub_command *command);
/* Appends all commands of a graph. */
void coh_stub_push_all(CUstream stream, const stub_commands *group);
/* Waits while another call waits for room. */
void coh_stub_stand_back(void);
int coh_stub_head_is_ready(const struct CUstream_st *stream);
void coh_stub_execute_head(CUstream stream);
/* Executes until the stream is empty; executes other streams where this one waits for them. Of a
 * broken GPU it only waits until no work runs. */
CUresult coh_stub_finish(CUstream stream);
/* Returns 1 if [address, address + bytes) lies inside one range of memory that streams reach. */
int coh_stub_reaches(const void *address, size_t bytes);
/* Returns 1 if part of it does. */
int coh_stub_touches(const void *address, size_t bytes);
/* Returns 1 if it is GPU memory. */
int coh_stub_is_device(const void *address);

#endif
