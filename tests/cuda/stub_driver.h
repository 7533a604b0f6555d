/* stub_driver.h - a CUDA driver that executes on host memory: one GPU with lazy streams.
 *
 * The one idea: enqueued commands are deferred. The test chooses which stream proceeds, among those
 * whose first command may run, so every order that events and words allow can be tried. An order
 * that device_cuda.c must forbid but does not gives other results.
 *
 *     stream 1   copy | write | record          any order of the heads, but
 *     stream 2   wait event | kernel | write    wait: not before that record
 *
 * It imitates on purpose:
 *   - a wait for an event is for its last record before the call, whatever is recorded later; for
 *     an event that was never recorded it is no wait;
 *   - words compare as int64_t(word - value) >= 0;
 *   - calls without the GPU's context or with another, with addresses outside of allocations, or on
 *     freed objects fail; a failure while executing is sticky: all later calls return it;
 *   - a call that enqueues more than the driver can hold waits until there is room, and every other
 *     call waits for it (coh_stub_set_depth);
 *   - a captured stream collects what is enqueued for a graph; events, words and queries invalidate
 *     its capture, and unless it is relaxed so do allocations and modules; a launched graph
 *     enqueues its commands in order, and takes the room of one;
 *   - a call that frees or destroys does so even if it is made to fail.
 * Kernels are replaced by host functions (twins), found by their symbol.
 *
 * There is one stub per process. Threads: any; commands execute one at a time. */
#ifndef COH_TESTS_CUDA_STUB_DRIVER_H
#define COH_TESTS_CUDA_STUB_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "memory/cuda_driver.h"

extern const coh_cuda_driver coh_stub_driver;

typedef enum coh_stub_call {
#define COH_STUB_CALL(name) COH_STUB_##name,
    COH_CUDA_DRIVER_LIST(COH_STUB_CALL)
#undef COH_STUB_CALL
        COH_STUB_CALL_COUNT
} coh_stub_call;

/* Sets the number of GPUs, 1 after a reset: they are one GPU by several numbers and addresses, with
 * one context and one memory. */
void coh_stub_set_gpu_count(int count);
/* Sets which of the machine's GPUs this process sees as its first; 0 after a reset. */
void coh_stub_set_first_gpu(int number);
/* 1: all GPUs have one address. */
void coh_stub_share_gpus(int do_share);
/* Sets the GPU's name, before anything asks for it; borrowed. */
void coh_stub_name_device(const char *name);
/* Resets to the state of a new process: `memory_bytes` free on the GPU, no failure planned, counts
 * at 0. Asserts that nothing is alive. */
void coh_stub_reset(size_t memory_bytes);
/* Sets the memory that a context, each loaded module, and other programs take from now on. A reset
 * sets all to 0. */
void coh_stub_take_memory(size_t context_bytes, size_t module_bytes, size_t other_bytes);

/* Sets the CUDA version of the driver. */
void coh_stub_set_cuda_version(int version);

/* Sets the memory node nearest to the GPU; -1, as after a reset: the driver does not know it. */
void coh_stub_set_near_node(int node);

/* Sets the GPU memory that an executable graph takes; a reset sets it to 0. */
void coh_stub_set_graph_bytes(size_t bytes);

/* Sets the GPU's clock: `rate` times coh_clock_ns, plus `from_ns`. A reset sets it to that of the
 * host. */
void coh_stub_set_clock(double rate, int64_t from_ns);

/* Returns how many objects are alive: contexts, memory, registered ranges, streams, events,
 * modules, graphs. */
uint64_t coh_stub_live_count(void);
/* Returns the most bytes of page-locked memory at a time since the reset. */
size_t coh_stub_most_host_bytes(void);
const char *coh_stub_call_name(coh_stub_call call);
uint64_t coh_stub_call_count(coh_stub_call call);
/* Makes the n-th call from now (1: the next) of that function return `result`; n 0: none. */
void coh_stub_fail_nth(coh_stub_call call, uint64_t n, CUresult result);
/* As coh_stub_fail_nth; in addition, the GPU is broken from that call on (coh_stub_break). */
void coh_stub_break_nth(coh_stub_call call, uint64_t n, CUresult result);
int coh_stub_fault_was_hit(void);
/* Makes the n-th call from now (1: the next) of cuStreamWaitEvent or cuStreamWaitValue64 succeed
 * without enqueueing its wait; n 0: none. */
void coh_stub_skip_nth_wait(coh_stub_call call, uint64_t n);
/* Breaks the GPU: nothing executes any more, and every call returns `result`. */
void coh_stub_break(CUresult result);

/* Bytes that copies took from GPU memory since the reset. */
uint64_t coh_stub_fetched_bytes(void);

/* Limits the commands of all streams that the driver holds; 0: no limit. */
void coh_stub_set_depth(size_t commands);
typedef struct coh_stub_fullness {
    uint64_t full_count, held_count; /* calls that waited for room; that waited for such a call */
    size_t most_pending;             /* commands at once */
} coh_stub_fullness;
coh_stub_fullness coh_stub_how_full(void);

/* Makes the next cuStreamQuery wait until its stream is captured, at most 100 ms, before it
 * proceeds. */
void coh_stub_hold_query(void);
/* Returns 1 while that query waits or proceeds. */
int coh_stub_query_is_held(void);

/* This thread's current context, NULL: none; and a context that is not the GPU's primary one. */
CUcontext coh_stub_current(void);
CUcontext coh_stub_callers_context(void);

/* ---- commands of the tests ---- */

/* A twin; receives a copy of the kernel's argument bytes. */
typedef void (*coh_stub_work)(const void *arguments);
#define COH_STUB_ARGUMENT_BYTES 2048

/* Replaces the kernel `symbol` in modules loaded from now on. */
void coh_stub_set_twin(const char *symbol, coh_stub_work work, size_t argument_bytes);
/* Replacement for kernels without a twin: runs `symbol` with its grid; NULL: nothing runs. `run`
 * receives a copy of the launch. */
typedef struct coh_stub_launch {
    const char *symbol;
    unsigned x, y, z, threads, shared_bytes;
    _Alignas(16) unsigned char arguments[COH_STUB_ARGUMENT_BYTES - 64];
} coh_stub_launch;
typedef struct coh_stub_kernels {
    size_t (*argument_bytes)(const char *symbol); /* 0: no such kernel */
    void (*run)(const coh_stub_launch *launch);
} coh_stub_kernels;
void coh_stub_set_kernels(const coh_stub_kernels *kernels);
/* Enqueues work as if it were a kernel, for twins of whole kernel functions. */
void coh_stub_enqueue(CUstream stream, coh_stub_work work, const void *arguments, size_t bytes);

/* ---- executing ---- */

/* Returns the number of commands not yet executed, in all streams. */
size_t coh_stub_pending_count(void);
/* Lists streams (in order of creation) whose first command may run now; at most `most`. */
size_t coh_stub_ready(int *out_streams, size_t most);
/* Returns 1 if the first command of some stream waits for a word. */
int coh_stub_awaits_word(void);
/* Executes that stream's first command, if it may run. */
void coh_stub_run(int stream);

/* Starts a thread that executes, choosing streams by `seed`, until it is stopped. */
void coh_stub_start(uint64_t seed);
void coh_stub_stop(void);

#endif
