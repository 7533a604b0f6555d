/* Commands of the stub's streams, and their execution. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/rng.h"
#include "tests/cuda/stub_state.h"
#include "tests/length.h"

stub_state coh_stub = { .mutex = PTHREAD_MUTEX_INITIALIZER };

static void lock(void)
{
    pthread_mutex_lock(&coh_stub.mutex);
}

static void unlock(void)
{
    pthread_mutex_unlock(&coh_stub.mutex);
}

/* ---- commands ---- */

static size_t count_pending(void)
{
    size_t count = 0;
    for (int i = 0; i < coh_stub.stream_count; i++)
        if (coh_stub.streams[i] != NULL)
            count += coh_stub.streams[i]->commands.end - coh_stub.streams[i]->commands.begin;
    return count;
}

/* Counts the commands held; a graph counts as one. */
static size_t count_held(void)
{
    size_t count = count_pending();
    for (int i = 0; i < coh_stub.stream_count; i++)
        if (coh_stub.streams[i] != NULL)
            count -= coh_stub.streams[i]->inner_count;
    return count;
}

static void give_way(void)
{
    unlock();
    sched_yield();
    lock();
}

void coh_stub_stand_back(void)
{
    coh_stub.held_count += coh_stub.is_full != 0;
    while (coh_stub.is_full)
        give_way();
}

static void wait_for_room(void)
{
    if (coh_stub.depth == 0 || count_held() < coh_stub.depth)
        return;
    coh_stub.is_full = 1;
    coh_stub.full_count++;
    while (count_held() >= coh_stub.depth && coh_stub.broken == CUDA_SUCCESS)
        give_way();
    coh_stub.is_full = 0;
}

void coh_stub_append(stub_commands *to, const stub_command *command)
{
    if (to->begin == to->end)
        to->begin = to->end = 0;
    if (to->end == to->capacity) {
        to->capacity = to->capacity > 0 ? 2 * to->capacity : 64;
        to->all = realloc(to->all, to->capacity * sizeof(*to->all));
        if (to->all == NULL)
            abort();
    }
    to->all[to->end++] = *command;
}

void coh_stub_push(CUstream stream, const stub_command *command)
{
    if (stream->capture != NULL) {
        coh_stub_append(&stream->capture->commands, command);
        return;
    }
    wait_for_room();
    coh_stub_append(&stream->commands, command);
    const size_t held = count_held();
    if (held > coh_stub.most_pending)
        coh_stub.most_pending = held;
}

void coh_stub_push_all(CUstream stream, const stub_commands *group)
{
    for (size_t i = 0; i < group->end; i++) {
        stub_command command = group->all[i];
        command.is_inner = i > 0;
        if (i == 0)
            coh_stub_push(stream, &command);
        else
            coh_stub_append(&stream->commands, &command);
        stream->inner_count += i > 0;
    }
}

int coh_stub_reaches(const void *address, size_t bytes)
{
    const char *at = address;
    for (int i = 0; i < STUB_RANGES_MOST; i++) {
        const stub_range *range = &coh_stub.ranges[i];
        if (range->base != NULL && at >= range->base && bytes <= range->bytes &&
            (size_t)(at - range->base) <= range->bytes - bytes)
            return 1;
    }
    return 0;
}

int coh_stub_is_device(const void *address)
{
    const char *at = address;
    for (int i = 0; i < STUB_RANGES_MOST; i++) {
        const stub_range *range = &coh_stub.ranges[i];
        if (range->base != NULL && range->memory == STUB_DEVICE && at >= range->base &&
            at < range->base + range->bytes)
            return 1;
    }
    return 0;
}

int coh_stub_touches(const void *address, size_t bytes)
{
    const char *at = address;
    for (int i = 0; i < STUB_RANGES_MOST; i++) {
        const stub_range *range = &coh_stub.ranges[i];
        if (range->base != NULL && at < range->base + range->bytes && range->base < at + bytes)
            return 1;
    }
    return 0;
}

static uint64_t word_at(const void *address)
{
    return atomic_load_explicit((const _Atomic uint64_t *)address, memory_order_acquire);
}

int coh_stub_head_is_ready(const struct CUstream_st *stream)
{
    const stub_commands *commands = &stream->commands;
    if (commands->begin == commands->end || stream->is_busy || coh_stub.broken != CUDA_SUCCESS)
        return 0;
    const stub_command *c = &commands->all[commands->begin];
    if (c->kind == STUB_WAIT_VALUE)
        return (int64_t)(word_at(c->from) - c->value) >= 0;
    if (c->kind == STUB_WAIT_EVENT)
        return c->event->completed >= c->value;
    return 1;
}

static uint64_t gpu_clock_ns(void)
{
    const uint64_t now_ns = coh_clock_ns();
    return now_ns + (uint64_t)(int64_t)((coh_stub.clock_rate - 1) * (double)now_ns) +
           (uint64_t)coh_stub.clock_from_ns;
}

void coh_stub_set_clock(double rate, int64_t from_ns)
{
    lock();
    coh_stub.clock_rate = rate;
    coh_stub.clock_from_ns = from_ns;
    unlock();
}

/* Not a memset, which the thread sanitizer would check: the barrier keeps it a loop. */
TEST_ORACLE static void fill_unchecked(void *to, int value, size_t bytes)
{
    uint64_t *words = to;
    const uint64_t word = (uint64_t)(unsigned char)value * UINT64_C(0x0101010101010101);
    for (size_t i = 0; i < bytes / sizeof(word); i++) {
        words[i] = word;
        __asm__ volatile("" ::: "memory");
    }
}

void coh_stub_fill(void *to, int value, size_t bytes)
{
    enum { LARGE = 1 << 20, STRIDE = 256 };
    volatile char *at = to;
    if (!test_seeks_races() || bytes < LARGE || (uintptr_t)to % sizeof(uint64_t) != 0) {
        memset(to, value, bytes);
        return;
    }
    fill_unchecked(to, value, bytes);
    for (size_t i = 0; i < bytes; i += STRIDE)
        at[i] = (char)value;
    memset((char *)to + bytes - STRIDE, value, STRIDE);
}

/* Twins share scratch, and the emulation its threads: of all streams one works at a time. */
static pthread_mutex_t work_mutex = PTHREAD_MUTEX_INITIALIZER;

/* Releases the mutex while work runs: a twin may take long, or break the GPU. */
void coh_stub_execute_head(CUstream stream)
{
    stub_command c = stream->commands.all[stream->commands.begin];
    switch (c.kind) {
    case STUB_COPY:
        memcpy(c.to, c.from, c.bytes);
        break;
    case STUB_FILL:
        coh_stub_fill(c.to, (int)c.value, c.bytes);
        break;
    case STUB_WORK:
        stream->is_busy = 1;
        unlock();
        pthread_mutex_lock(&work_mutex);
        c.work(c.arguments);
        pthread_mutex_unlock(&work_mutex);
        lock();
        stream->is_busy = 0;
        break;
    case STUB_WRITE:
        atomic_store_explicit((_Atomic uint64_t *)c.to, c.value, memory_order_release);
        break;
    case STUB_RECORD:
        c.event->completed = c.value;
        c.event->at_ns = gpu_clock_ns();
        break;
    case STUB_WAIT_VALUE:
    case STUB_WAIT_EVENT:
        break;
    }
    stream->commands.begin++;
    stream->inner_count -= (size_t)c.is_inner;
}

uint64_t coh_stub_fetched_bytes(void)
{
    lock();
    const uint64_t bytes = coh_stub.fetched_bytes;
    unlock();
    return bytes;
}

void coh_stub_set_depth(size_t commands)
{
    lock();
    coh_stub.depth = commands;
    unlock();
}

coh_stub_fullness coh_stub_how_full(void)
{
    lock();
    const coh_stub_fullness found = { coh_stub.full_count, coh_stub.held_count,
                                      coh_stub.most_pending };
    unlock();
    return found;
}

void coh_stub_enqueue(CUstream stream, coh_stub_work work, const void *arguments, size_t bytes)
{
    stub_command c = { .kind = STUB_WORK, .work = work, .bytes = bytes };
    if (bytes > sizeof(c.arguments))
        abort();
    memcpy(c.arguments, arguments, bytes);
    lock();
    coh_stub_push(stream, &c);
    unlock();
}

/* ---- executing ---- */

size_t coh_stub_pending_count(void)
{
    lock();
    size_t count = count_pending();
    unlock();
    return count;
}

static size_t find_ready(int *out_streams, size_t most)
{
    size_t count = 0;
    for (int i = 0; i < coh_stub.stream_count && count < most; i++)
        if (coh_stub.streams[i] != NULL && coh_stub_head_is_ready(coh_stub.streams[i]))
            out_streams[count++] = i;
    return count;
}

size_t coh_stub_ready(int *out_streams, size_t most)
{
    lock();
    size_t count = find_ready(out_streams, most);
    unlock();
    return count;
}

int coh_stub_awaits_word(void)
{
    int awaits = 0;
    lock();
    for (int i = 0; i < coh_stub.stream_count; i++) {
        const stub_commands *c =
            coh_stub.streams[i] != NULL ? &coh_stub.streams[i]->commands : NULL;
        if (c != NULL && c->begin < c->end && c->all[c->begin].kind == STUB_WAIT_VALUE)
            awaits |= !coh_stub_head_is_ready(coh_stub.streams[i]);
    }
    unlock();
    return awaits;
}

static int is_any_busy(void)
{
    for (int i = 0; i < coh_stub.stream_count; i++)
        if (coh_stub.streams[i] != NULL && coh_stub.streams[i]->is_busy)
            return 1;
    return 0;
}

/* A thread with nothing to do leaves its core to other programs: after some turns it sleeps. */
static void rest(int *turns)
{
    enum { TURNS = 64, SLEEP_NS = 20000 };
    if (++*turns < TURNS)
        sched_yield();
    else
        nanosleep(&(struct timespec){ .tv_nsec = SLEEP_NS }, NULL);
}

static void rest_unlocked(int *turns)
{
    unlock();
    rest(turns);
    lock();
}

CUresult coh_stub_finish(CUstream stream)
{
    int turns = 0;
    while (stream->commands.begin < stream->commands.end && coh_stub.broken == CUDA_SUCCESS) {
        int ready[STUB_STREAMS_MOST];
        const size_t count = find_ready(ready, STUB_STREAMS_MOST);
        turns = count > 0 ? 0 : turns;
        if (coh_stub_head_is_ready(stream))
            coh_stub_execute_head(stream);
        else if (count > 0)
            coh_stub_execute_head(coh_stub.streams[ready[0]]);
        else
            rest_unlocked(&turns);
    }
    /* No kernel runs on a GPU that reports its fault: memory and streams may be freed. */
    while (coh_stub.broken != CUDA_SUCCESS && is_any_busy())
        rest_unlocked(&turns);
    return coh_stub.broken;
}

void coh_stub_run(int stream)
{
    lock();
    /* A thread that waits for its stream may have executed the command since the caller looked. */
    if (coh_stub_head_is_ready(coh_stub.streams[stream]))
        coh_stub_execute_head(coh_stub.streams[stream]);
    unlock();
}

static void *run_all(void *argument)
{
    int turns = 0;
    (void)argument;
    for (uint64_t i = 0; !atomic_load(&coh_stub.thread_stops); i++) {
        int ready[STUB_STREAMS_MOST];
        lock();
        size_t count = find_ready(ready, STUB_STREAMS_MOST);
        if (count > 0)
            coh_stub_execute_head(
                coh_stub.streams[ready[coh_rng_below(coh_stub.seed, 0, i, count)]]);
        unlock();
        turns = count > 0 ? 0 : turns;
        if (count == 0)
            rest(&turns);
    }
    return NULL;
}

void coh_stub_start(uint64_t seed)
{
    coh_stub.seed = seed;
    atomic_store(&coh_stub.thread_stops, 0);
    if (pthread_create(&coh_stub.thread, NULL, run_all, NULL) != 0)
        abort();
    coh_stub.thread_is_started = 1;
}

void coh_stub_stop(void)
{
    if (!coh_stub.thread_is_started)
        return;
    atomic_store(&coh_stub.thread_stops, 1);
    pthread_join(coh_stub.thread, NULL);
    coh_stub.thread_is_started = 0;
}

/* ---- allocated memory ---- */

void coh_stub_take_memory(size_t context_bytes, size_t module_bytes, size_t other_bytes)
{
    pthread_mutex_lock(&coh_stub.mutex);
    coh_stub.context_bytes = context_bytes;
    coh_stub.module_bytes = module_bytes;
    coh_stub.used_bytes += other_bytes;
    pthread_mutex_unlock(&coh_stub.mutex);
}
