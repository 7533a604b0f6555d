/* A table between the transport and MPI. Read mpi_faults.h first. */
#include "tests/faults/mpi_faults.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

enum { INJECTED = -77 };

static const coh_mpi_calls *real;
static coh_mpi_calls faulty;
static pthread_t failing_thread;
static mpi_fault failing;
static _Atomic int64_t left = -1; /* calls until the one that fails; below 0: none */
static _Atomic int was_hit;
static _Thread_local uint32_t delay_ms;

void mpi_fail_nth(mpi_fault call, int64_t n)
{
    failing_thread = pthread_self();
    failing = call;
    if (n >= 0)
        atomic_store(&was_hit, 0);
    atomic_store(&left, n);
}

int mpi_fault_was_hit(void)
{
    return atomic_load(&was_hit);
}

void mpi_faults_cut(int32_t bytes)
{
    faulty.message_bytes_most = bytes > 0 ? bytes : real->message_bytes_most;
}

static int must_fail(mpi_fault call)
{
    if (atomic_load(&left) < 0 || call != failing ||
        !pthread_equal(pthread_self(), failing_thread) || atomic_fetch_sub(&left, 1) != 0)
        return 0;
    atomic_store(&was_hit, 1);
    return 1;
}

static void describe(int code, char *out_text, int text_bytes)
{
    if (code == INJECTED)
        (void)snprintf(out_text, (size_t)text_bytes, "injected");
    else
        real->describe(code, out_text, text_bytes);
}

void mpi_delay_posts(uint32_t ms)
{
    delay_ms = ms;
}

static int post(const coh_mpi_message *message, void *out_request)
{
    if (delay_ms > 0)
        (void)nanosleep(&(struct timespec){ .tv_nsec = delay_ms * 1000000L }, NULL);
    return must_fail(MPI_FAULT_POST) ? INJECTED : real->post(message, out_request);
}

static int prepare(const coh_mpi_message *message, void *out_request)
{
    return must_fail(MPI_FAULT_PREPARE) ? INJECTED : real->prepare(message, out_request);
}

static int start_all(int32_t count, void *requests)
{
    return must_fail(MPI_FAULT_START) ? INJECTED : real->start_all(count, requests);
}

static int test_all(int32_t count, void *requests, int *out_are_done)
{
    return must_fail(MPI_FAULT_TEST) ? INJECTED : real->test_all(count, requests, out_are_done);
}

const coh_mpi_calls *mpi_faults_put(const coh_mpi_calls *calls)
{
    real = calls;
    faulty = *calls;
    faulty.describe = describe;
    faulty.post = post;
    faulty.prepare = prepare;
    faulty.start_all = start_all;
    faulty.test_all = test_all;
    return &faulty;
}
