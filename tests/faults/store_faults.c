/* A store between the test and a real store: it numbers the requests, decides the fault of each
 * from seed and number, and finds the request again in the transfer of its first piece. Read
 * store_faults.h first, then offload/store_threads.h. */
#include "tests/faults/store_faults.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/bytes.h"
#include "base/rng.h"
#include "offload/store_threads.h"

/* Requests in flight on one port; the tests' lanes have far fewer. */
enum { SLOTS = 64 };

/* Fault of one operation; all zero: none. */
typedef struct fault {
    int fail_errno;    /* the operation fails with this and transfers nothing */
    int cut_short;     /* its first transfer stops half-way */
    int flips;         /* one bit is flipped, chosen by `flip_random` */
    int late;          /* completes after all others in flight */
    uint32_t delay_us; /* before its first transfer */
    uint64_t flip_random;
    uint64_t order; /* with reorder: smaller completes first */
} fault;

typedef enum slot_state { SLOT_FREE, SLOT_ACTIVE, SLOT_DONE } slot_state;

typedef struct slot {
    coh_store_request request;
    fault fault;
    int is_begun; /* its first transfer was asked for */
    slot_state state;
    uint64_t finished; /* order of completion */
    coh_status status; /* of a done one */
    char text[COH_ERROR_TEXT_BYTES];
} slot;

typedef struct port {
    /* guards the slots: a lane makes them active, done and free, the store's threads look for the
     * active one that they transfer */
    pthread_mutex_t lock;
    slot slots[SLOTS];
    uint64_t finished;
} port;

static const store_fault_plan no_faults = {
    .fail_at = -1, .short_at = -1, .flip_at = -1, .late_at = -1
};
/* Set by a test, also under lanes that wait; read by lanes. */
static pthread_mutex_t plan_lock = PTHREAD_MUTEX_INITIALIZER;
static store_fault_plan shared_plan = {
    .fail_at = -1, .short_at = -1, .flip_at = -1, .late_at = -1
};
/* Lane threads add, the test reads. */
static _Atomic uint64_t operation_count;
static _Atomic int fault_was_hit;
static int is_open;
static coh_threads_transfer real_transfer;
static port ports[COH_STORE_PORT_COUNT] = { { .lock = PTHREAD_MUTEX_INITIALIZER },
                                            { .lock = PTHREAD_MUTEX_INITIALIZER } };

void store_fault_plan_set(const store_fault_plan *wanted)
{
    pthread_mutex_lock(&plan_lock);
    shared_plan = wanted != NULL ? *wanted : no_faults;
    pthread_mutex_unlock(&plan_lock);
    atomic_store(&operation_count, 0);
    atomic_store(&fault_was_hit, 0);
}

static store_fault_plan plan_now(void)
{
    pthread_mutex_lock(&plan_lock);
    const store_fault_plan plan = shared_plan;
    pthread_mutex_unlock(&plan_lock);
    return plan;
}

uint64_t store_fault_operations(void)
{
    return atomic_load(&operation_count);
}

int store_fault_was_hit(void)
{
    return atomic_load(&fault_was_hit);
}

static fault take_fault(void)
{
    const store_fault_plan plan = plan_now();
    uint64_t number = atomic_fetch_add(&operation_count, 1);
    int64_t n = (int64_t)number;
    fault taken = { 0 };
    if (n == plan.fail_at)
        taken.fail_errno = plan.fail_errno != 0 ? plan.fail_errno : EIO;
    taken.cut_short = n == plan.short_at;
    taken.flips = n == plan.flip_at;
    taken.late = n == plan.late_at;
    taken.flip_random = coh_rng_u64(plan.seed, 0, number);
    if (plan.delay_most_us > 0)
        taken.delay_us =
            (uint32_t)coh_rng_below(plan.seed, 1, number, (uint64_t)plan.delay_most_us + 1);
    taken.order = plan.reorder ? coh_rng_u64(plan.seed, 2, number) : 0;
    return taken;
}

/* ---- under the store's threads: the first transfer of a request ---- */

/* Returns the fault of the request that begins with this transfer; of others: none. */
static fault find_fault(coh_store_port which, const void *memory, uint64_t file_offset)
{
    port *of = &ports[which];
    fault found = { 0 };
    pthread_mutex_lock(&of->lock);
    for (int i = 0; i < SLOTS; i++) {
        slot *s = &of->slots[i];
        if (s->state == SLOT_ACTIVE && !s->is_begun && s->request.memory == memory &&
            s->request.file_offset == file_offset) {
            s->is_begun = 1;
            found = s->fault;
            break;
        }
    }
    pthread_mutex_unlock(&of->lock);
    return found;
}

static void delay(uint32_t microseconds)
{
    struct timespec span = { .tv_sec = microseconds / 1000000,
                             .tv_nsec = (long)(microseconds % 1000000) * 1000 };
    while (nanosleep(&span, &span) != 0 && errno == EINTR) {
    }
}

/* Flips a bit of the `bytes` that were moved. Of a read: in the memory that it filled. Of a write:
 * in the file; the caller's memory stays unchanged. */
static int flip(coh_threads_store *store, coh_store_port which, unsigned char *memory, size_t bytes,
                uint64_t file_offset, uint64_t random)
{
    static _Alignas(COH_PAGE_BYTES) unsigned char page[COH_PAGE_BYTES];
    size_t bit = (size_t)(random % (bytes * 8));
    unsigned char mask = (unsigned char)(1u << (bit % 8));
    atomic_store(&fault_was_hit, 1);
    if (which == COH_STORE_READS) {
        memory[bit / 8] ^= mask;
        return 0;
    }
    size_t block = bit / 8 / COH_PAGE_BYTES * COH_PAGE_BYTES;
    memcpy(page, memory + block, COH_PAGE_BYTES);
    page[bit / 8 - block] ^= mask;
    return real_transfer(store, which, page, COH_PAGE_BYTES, file_offset + block) == COH_PAGE_BYTES
               ? 0
               : -1;
}

static ssize_t faulty_transfer(coh_threads_store *store, coh_store_port which, void *memory,
                               size_t bytes, uint64_t file_offset)
{
    const fault planned = find_fault(which, memory, file_offset);
    if (planned.delay_us > 0)
        delay(planned.delay_us);
    if (planned.fail_errno != 0) {
        atomic_store(&fault_was_hit, 1);
        errno = planned.fail_errno;
        return -1;
    }
    if (planned.cut_short) {
        atomic_store(&fault_was_hit, 1);
        bytes = bytes / 2 / COH_PAGE_BYTES * COH_PAGE_BYTES;
        if (bytes == 0) { /* one block cannot be halved: interrupted before its first byte */
            errno = EINTR;
            return -1;
        }
    }
    ssize_t moved = real_transfer(store, which, memory, bytes, file_offset);
    if (moved > 0 && planned.flips &&
        flip(store, which, memory, (size_t)moved, file_offset, planned.flip_random) != 0)
        return -1;
    return moved;
}

/* ---- the lane's side ---- */

static coh_status faulty_submit(coh_store *store, coh_store_port which,
                                const coh_store_request *request)
{
    port *of = &ports[which];
    uint64_t i = 0;
    pthread_mutex_lock(&of->lock);
    while (i < SLOTS && of->slots[i].state != SLOT_FREE)
        i++;
    if (i == SLOTS) {
        fprintf(stderr, "store_faults.c: more than %d requests in flight\n", SLOTS);
        abort();
    }
    slot *s = &of->slots[i];
    s->request = *request;
    s->fault = take_fault();
    s->is_begun = 0;
    s->state = SLOT_ACTIVE;
    pthread_mutex_unlock(&of->lock);
    coh_store_request inner = *request;
    inner.number = i;
    coh_status status = coh_threads_submit(store, which, &inner);
    if (status != COH_OK) {
        pthread_mutex_lock(&of->lock);
        s->state = SLOT_FREE;
        pthread_mutex_unlock(&of->lock);
    }
    return status;
}

/* Takes one completion from the store, with its sentence. Returns 0 if there is none. */
static int collect(coh_store *store, coh_store_port which, uint32_t least)
{
    port *of = &ports[which];
    coh_store_completion one;
    uint32_t count = 0;
    if (coh_threads_reap(store, which, &one, least, 1, &count) != COH_OK || count == 0)
        return 0;
    slot *s = &of->slots[one.number];
    pthread_mutex_lock(&of->lock);
    s->state = SLOT_DONE;
    s->finished = of->finished++;
    s->status = one.status;
    coh_error_save(s->text);
    pthread_mutex_unlock(&of->lock);
    return 1;
}

/* Returns the done request to hand out next: in order of completion, or in the plan's random order.
 * A late request comes only when it is the last one in flight. */
static slot *choose_done(port *of)
{
    const store_fault_plan plan = plan_now();
    slot *chosen = NULL, *late = NULL;
    int in_flight = 0;
    for (int i = 0; i < SLOTS; i++) {
        slot *s = &of->slots[i];
        in_flight += s->state != SLOT_FREE;
        if (s->state != SLOT_DONE)
            continue;
        if (s->fault.late)
            late = s;
        else if (chosen == NULL || (plan.reorder ? s->fault.order < chosen->fault.order
                                                 : s->finished < chosen->finished))
            chosen = s;
    }
    if (late != NULL)
        atomic_store(&fault_was_hit, 1);
    return chosen != NULL ? chosen : in_flight == 1 ? late : NULL;
}

static int is_any_active(const port *of)
{
    for (int i = 0; i < SLOTS; i++)
        if (of->slots[i].state == SLOT_ACTIVE)
            return 1;
    return 0;
}

static coh_status faulty_reap(coh_store *store, coh_store_port which,
                              coh_store_completion *completions, uint32_t least, uint32_t most,
                              uint32_t *out_count)
{
    port *of = &ports[which];
    const slot *failed = NULL;
    uint32_t count = 0;
    while (count < most) {
        while (collect(store, which, 0)) {
        }
        slot *next = choose_done(of);
        if (next == NULL) {
            if (count >= least || !is_any_active(of))
                break;
            collect(store, which, 1);
            continue;
        }
        completions[count++] =
            (coh_store_completion){ .number = next->request.number, .status = next->status };
        if (next->status != COH_OK && failed == NULL)
            failed = next;
        pthread_mutex_lock(&of->lock);
        next->state = SLOT_FREE;
        pthread_mutex_unlock(&of->lock);
    }
    if (failed != NULL)
        coh_error_restore(failed->text);
    *out_count = count;
    return COH_OK;
}

/* ---- the tables ---- */

static coh_status faulty_open(const coh_store_ops *real, const coh_store_config *config,
                              coh_store **out_store)
{
    if (is_open) {
        fprintf(stderr, "store_faults.c: two stores with faults are open\n");
        abort();
    }
    COH_TRY(real->open(config, out_store));
    coh_threads_store *threads = (coh_threads_store *)*out_store;
    real_transfer = threads->transfer;
    threads->transfer = faulty_transfer; /* no thread has anything to transfer yet */
    atomic_store(&operation_count, 0);
    atomic_store(&fault_was_hit, 0);
    is_open = 1;
    return COH_OK;
}

static coh_status open_mem(const coh_store_config *config, coh_store **out_store)
{
    return faulty_open(&coh_store_mem, config, out_store);
}

static coh_status open_posix(const coh_store_config *config, coh_store **out_store)
{
    return faulty_open(&coh_store_posix, config, out_store);
}

static void forget_slots(void)
{
    for (int p = 0; p < COH_STORE_PORT_COUNT; p++)
        for (int i = 0; i < SLOTS; i++)
            ports[p].slots[i].state = SLOT_FREE;
    is_open = 0;
}

static void close_mem(coh_store *store)
{
    coh_store_mem.close(store);
    if (store != NULL)
        forget_slots();
}

static void close_posix(coh_store *store)
{
    coh_store_posix.close(store);
    if (store != NULL)
        forget_slots();
}

const coh_store_ops store_faulty_mem = {
    .struct_bytes = sizeof(coh_store_ops),
    .name = "faulty mem",
    .open = open_mem,
    .close = close_mem,
    .facts = coh_store_base_facts,
    .register_arena = coh_threads_register_arena,
    .submit = faulty_submit,
    .reap = faulty_reap,
};

const coh_store_ops store_faulty_posix = {
    .struct_bytes = sizeof(coh_store_ops),
    .name = "faulty posix",
    .open = open_posix,
    .close = close_posix,
    .facts = coh_store_base_facts,
    .register_arena = coh_threads_register_arena,
    .submit = faulty_submit,
    .reap = faulty_reap,
};
