/* stub_driver.h - a CUDA driver that executes, on the host's memory: one GPU, whose streams are
 * lazy.
 *
 * The one idea: what a call enqueues is put off. Which stream goes on next is then chosen by the
 * test, among those whose first command may run, so every order that events and words allow can be
 * tried: an order that a device_cuda.c must forbid and does not shows as other results.
 *
 *     stream 1   copy | write | record          any order of the heads, but
 *     stream 2   wait event | kernel | write    wait: not before that record
 *
 * What it imitates on purpose:
 *   - to wait for an event that was never recorded is no wait; to wait for one is to wait for the
 *     record before the call, whatever is recorded later;
 *   - words compare as int64_t(word - value) >= 0;
 *   - calls in no or another context than the GPU's, with addresses outside of what was allocated,
 *     or on what was freed fail; a failure while executing is sticky: all later calls return it;
 *   - a call that enqueues what the driver cannot hold waits until there is room, and every other
 *     call with it (coh_stub_set_depth);
 *   - a stream that is captured keeps what is enqueued for a graph; events, words and questions end
 *     its capture, and unless that is relaxed so do allocations and modules; a graph that is
 *     launched enqueues its commands, in their order, and takes the room of one;
 *   - an unmaking call that is made to fail has unmade all the same.
 * Kernels are replaced by functions of the host (twins), found by their symbol.
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

/* What the GPU calls itself, before anything asks; borrowed. */
void coh_stub_name_device(const char *name);
/* As the process begins: `memory_bytes` free on the GPU, no failure planned, counts at 0. Asserts
 * that nothing is alive. */
void coh_stub_reset(size_t memory_bytes);
/* From now on a context takes so many bytes of that memory, and each module that is loaded; and
 * other programs so many. Nothing of each after a reset. */
void coh_stub_take_memory(size_t context_bytes, size_t module_bytes, size_t other_bytes);

/* Which CUDA the driver is for from now on. */
void coh_stub_set_cuda_version(int version);

/* Which memory node is by the GPU from now on; -1, as after a reset: the driver does not know. */
void coh_stub_set_near_node(int node);

/* What an executable graph takes of the GPU's memory from now on; a reset makes it none. */
void coh_stub_set_graph_bytes(size_t bytes);

/* What was made and not unmade: contexts, memory, registered ranges, streams, events, modules,
 * graphs. */
uint64_t coh_stub_live_count(void);
const char *coh_stub_call_name(coh_stub_call call);
uint64_t coh_stub_call_count(coh_stub_call call);
/* The n-th call from now (1: the next) of that function returns `result`; 0: none. */
void coh_stub_fail_nth(coh_stub_call call, uint64_t n, CUresult result);
/* Likewise, and from that call on the GPU is broken (coh_stub_break). */
void coh_stub_break_nth(coh_stub_call call, uint64_t n, CUresult result);
int coh_stub_fault_was_hit(void);
/* The n-th wait from now (1: the next) of cuStreamWaitEvent or cuStreamWaitValue64 is none: the
 * call succeeds and enqueues nothing. 0: all are. */
void coh_stub_skip_nth_wait(coh_stub_call call, uint64_t n);
/* The GPU breaks: nothing executes any more, and every call returns `result`. */
void coh_stub_break(CUresult result);

/* That copies were told to take from the GPU's memory, since the reset. */
uint64_t coh_stub_fetched_bytes(void);

/* From now on the driver holds that many commands of all streams; 0: any number. */
void coh_stub_set_depth(size_t commands);
typedef struct coh_stub_fullness {
    uint64_t full_count, held_count; /* calls that waited for room; for a call that did */
    size_t most_pending;             /* commands at once */
} coh_stub_fullness;
coh_stub_fullness coh_stub_how_full(void);

/* The next cuStreamQuery waits until its stream is captured, 100 ms at most, before it looks. */
void coh_stub_hold_query(void);
/* It waits, or looks. */
int coh_stub_query_is_held(void);

/* This thread's current context, NULL: none; and one that is not the GPU's primary one. */
CUcontext coh_stub_current(void);
CUcontext coh_stub_callers_context(void);

/* ---- commands of a test's own ---- */

/* A twin: gets a copy of the bytes that the kernel was launched with. */
typedef void (*coh_stub_work)(const void *arguments);
#define COH_STUB_ARGUMENT_BYTES 2048

/* Stands for the kernel `symbol` in modules that are loaded from now on. */
void coh_stub_set_twin(const char *symbol, coh_stub_work work, size_t argument_bytes);
/* Stand for kernels without a twin: what runs `symbol` with its grid, NULL: nothing. The call gets
 * a copy of the launch. */
typedef struct coh_stub_launch {
    const char *symbol;
    unsigned x, y, z, threads, shared_bytes;
    _Alignas(16) unsigned char arguments[COH_STUB_ARGUMENT_BYTES - 64];
} coh_stub_launch;
typedef struct coh_stub_kernels {
    size_t (*argument_bytes)(const char *symbol); /* 0: there is no such kernel */
    void (*run)(const coh_stub_launch *launch);
} coh_stub_kernels;
void coh_stub_set_kernels(const coh_stub_kernels *kernels);
/* Enqueues work as if it were a kernel: what a twin of a whole kernel function does. */
void coh_stub_enqueue(CUstream stream, coh_stub_work work, const void *arguments, size_t bytes);

/* ---- executing ---- */

/* Commands of all streams that were not executed. */
size_t coh_stub_pending_count(void);
/* Streams (numbered as they were made) whose first command may run now; at most `most`. */
size_t coh_stub_ready(int *out_streams, size_t most);
/* 1: the first command of some stream waits for a word. */
int coh_stub_awaits_word(void);
/* Executes the first command of that stream, if it may run. */
void coh_stub_run(int stream);

/* A thread that executes, the stream chosen by `seed`, until it is stopped. */
void coh_stub_start(uint64_t seed);
void coh_stub_stop(void);

#endif
