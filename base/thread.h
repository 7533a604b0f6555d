/* thread.h - starting a thread that may run kernels.
 *
 * The one idea: kernels keep their tiles on the stack (1.9 MiB in a product of bf16 whose depth is
 * cut: what is packed of a and b, and the sums), and a thread's stack is whatever `ulimit -s` said
 * when the process began, unless it is asked for. So it is asked for, and the library multiplies
 * matrices on such threads only. */
#ifndef COH_BASE_THREAD_H
#define COH_BASE_THREAD_H

#include <pthread.h>
#include <stddef.h>

#include "base/check.h"

/* Address space; only what is touched becomes memory. */
#define COH_THREAD_STACK_BYTES ((size_t)8 << 20)

/* Starts body(argument) on a thread with such a stack. Owns: the caller joins it. Returns 0 or an
 * errno (EAGAIN: no more threads or address space), like pthread_create. */
int coh_thread_start(pthread_t *out_thread, void *(*body)(void *), void *argument);

/* The calling thread runs briefly and often, beside others that compute: asks the scheduler for
 * slices of 100 us, so that it gets a core soon after it wakes and gives it back soon. Linux 6.12
 * and later take it from anybody; elsewhere nothing changes. */
void coh_thread_be_brief(void);

/* Runs body(argument) on such a thread, called `name`, and waits for it: for callers whose own
 * stack is not known. Fails: COH_ERR_MEMORY when no thread is to be had; else what `body` returns,
 * with its sentence. */
coh_status coh_thread_run(const char *name, coh_status (*body)(void *), void *argument);

#endif
