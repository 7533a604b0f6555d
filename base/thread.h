/* thread.h - starts threads that may run kernels.
 *
 * The one idea: kernels keep tiles on the stack (1.9 MiB in a bf16 product that is cut along its
 * depth: the packed parts of a and b, and the sums). A thread's default stack is the `ulimit -s` of
 * the process's start. So the library requests a stack size, and multiplies matrices only on such
 * threads. */
#ifndef COH_BASE_THREAD_H
#define COH_BASE_THREAD_H

#include <pthread.h>
#include <stddef.h>

#include "base/check.h"

/* Address space; only touched pages become memory. */
#define COH_THREAD_STACK_BYTES ((size_t)8 << 20)

/* Starts body(argument) on a thread with such a stack, in the floating-point mode of float_mode.h.
 * The thread blocks all signals except those of its own faults: a program may wait for signals with
 * sigwait or a signalfd. Owns: the caller joins it. Returns 0 or an errno (EAGAIN: no more threads
 * or address space), as pthread_create does. */
int coh_thread_start(pthread_t *out_thread, void *(*body)(void *), void *argument);

/* For a thread that runs briefly and often, next to computing threads: asks the scheduler for
 * slices of 100 us, so that the thread gets a core soon after it wakes and frees it soon. Needs no
 * privilege on Linux 6.12 and later; has no effect elsewhere. */
void coh_thread_be_brief(void);

/* Runs body(argument) on such a thread, called `name`, and waits for it: for callers whose own
 * stack size is unknown.
 * Fails: COH_ERR_MEMORY if no thread can be created; else with the status and text of `body`. */
coh_status coh_thread_run(const char *name, coh_status (*body)(void *), void *argument);

#endif
