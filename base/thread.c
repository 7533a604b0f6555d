/* Threads with a stack large enough for kernels, and with short scheduler slices on request. Read
 * thread.h first. */
#include "base/thread.h"

#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/float_mode.h"

/* Blocks what a thread of the library leaves to the program's own threads. A fault belongs to the
 * thread that made it: if it were blocked, no handler of the program would see it. */
static void block_signals(sigset_t *out_before)
{
    static const int faults[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS };
    sigset_t blocked;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, out_before);
}

int coh_thread_start(pthread_t *out_thread, void *(*body)(void *), void *argument)
{
    pthread_attr_t attributes;
    int error = pthread_attr_init(&attributes);
    if (error != 0)
        return error;
    error = pthread_attr_setstacksize(&attributes, COH_THREAD_STACK_BYTES);
    if (error == 0) {
        sigset_t before;
        fenv_t mode;
        block_signals(
            &before); /* a new thread has its creator's mask, and its floating-point mode */
        coh_float_mode_begin(&mode);
        error = pthread_create(out_thread, &attributes, body, argument);
        coh_float_mode_end(&mode);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    (void)pthread_attr_destroy(&attributes);
    return error;
}

/* The argument of sched_getattr and sched_setattr (sched_setattr(2)), which glibc does not
 * declare. */
typedef struct scheduling {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period; /* runtime: an ordinary thread's slice, in ns */
} scheduling;

void coh_thread_be_brief(void)
{
    scheduling now = { .size = sizeof(now) };
    if (syscall(SYS_sched_getattr, 0, &now, sizeof(now), 0) != 0)
        return;
    now.runtime = 100000;
    (void)syscall(SYS_sched_setattr, 0, &now, 0);
}

typedef struct errand {
    coh_status (*body)(void *);
    void *argument;
    coh_status status;
    char why[COH_ERROR_TEXT_BYTES];
} errand;

static void *errand_main(void *argument)
{
    errand *e = argument;
    e->status = e->body(e->argument);
    coh_error_save(e->why);
    return NULL;
}

coh_status coh_thread_run(const char *name, coh_status (*body)(void *), void *argument)
{
    errand e = { .body = body, .argument = argument };
    pthread_t thread;
    int error = coh_thread_start(&thread, errand_main, &e);
    if (error != 0)
        return coh_fail(COH_ERR_MEMORY, "no thread %s: %s: see to ulimit -u", name,
                        strerror(error));
    (void)pthread_setname_np(thread, name);
    pthread_join(thread, NULL);
    if (e.status != COH_OK)
        coh_error_restore(e.why);
    return e.status;
}
