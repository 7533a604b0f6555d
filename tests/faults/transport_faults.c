/* A table between a test and a transport. Read transport_faults.h first. */
#include "tests/faults/transport_faults.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <time.h>

#include "base/rng.h"

/* Set by a test before its threads start. */
static transport_fault_plan plan = { .fail_at = -1 };
/* The ranks add, the test reads. */
static _Atomic uint64_t call_count;
static uint64_t first_number, number_step = 1;
/* Set when the table is put there, before the ranks call. */
static const coh_transport_ops *real;
static _Atomic int was_hit;

void transport_fault_plan_set(const transport_fault_plan *wanted)
{
    plan = wanted != NULL ? *wanted : (transport_fault_plan){ .fail_at = -1 };
    atomic_store(&call_count, 0);
    atomic_store(&was_hit, 0);
}

void transport_faults_number(int32_t process, int32_t process_count)
{
    first_number = (uint64_t)process;
    number_step = (uint64_t)process_count;
}

int transport_fault_was_hit(void)
{
    return atomic_load(&was_hit);
}

static void delay(uint64_t number)
{
    const uint64_t us = coh_rng_below(plan.seed, 0, number, (uint64_t)plan.delay_most_us + 1);
    struct timespec span = { .tv_nsec = (long)us * 1000 };
    while (us > 0 && nanosleep(&span, &span) != 0 && errno == EINTR) {
    }
}

static coh_status take(const char *name)
{
    const uint64_t number = first_number + number_step * atomic_fetch_add(&call_count, 1);
    delay(number);
    if ((int64_t)number != plan.fail_at)
        return COH_OK;
    atomic_store(&was_hit, 1);
    return coh_fail(COH_ERR_IO, "injected: call %" PRIu64 ", %s", number, name);
}

static coh_status faulty_bind(coh_transport *transport, const coh_link_plan *links)
{
    COH_TRY(take("bind"));
    return real->bind(transport, links);
}

static coh_status faulty_start(coh_transport *transport, uint32_t line)
{
    COH_TRY(take("start"));
    return real->start(transport, line);
}

static coh_status faulty_test(coh_transport *transport, uint32_t line, int *out_is_done)
{
    COH_TRY(take("test"));
    return real->test(transport, line, out_is_done);
}

static coh_status faulty_wait(coh_transport *transport, uint32_t line)
{
    COH_TRY(take("wait"));
    return real->wait(transport, line);
}

static coh_status faulty_gather(coh_transport *transport, const void *record, size_t bytes,
                                void *out_records)
{
    COH_TRY(take("gather"));
    return real->gather(transport, record, bytes, out_records);
}

static coh_status faulty_share(coh_transport *transport, void *bytes, size_t count)
{
    COH_TRY(take("share"));
    return real->share(transport, bytes, count);
}

static coh_status real_stop(coh_transport *transport, coh_status status, const char *sentence)
{
    return real->stop(transport, status, sentence);
}

static coh_status real_look(coh_transport *transport)
{
    return real->look(transport);
}

static int real_unbind(coh_transport *transport)
{
    return real->unbind(transport) && !plan.leaves_behind;
}

static void real_close(coh_transport *transport)
{
    real->close(transport);
}

void transport_faults_put(coh_transport *transport)
{
    static coh_transport_ops ops = {
        .name = "faulty",
        .bind = faulty_bind,
        .start = faulty_start,
        .test = faulty_test,
        .wait = faulty_wait,
        .gather = faulty_gather,
        .share = faulty_share,
        .stop = real_stop,
        .look = real_look,
        .unbind = real_unbind,
        .close = real_close,
    };
    real = transport->ops;
    ops.has_collectives = real->has_collectives;
    transport->ops = &ops;
}
