/* The posix and the mem store: threads that make transfers. Each takes the oldest request's next
 * piece under the port's lock, moves it without the lock, and returns the result. The posix
 * store runs everywhere; each piece costs a system call and two passes through a lock (about 10
 * us, 2 % of a piece's time at 1 GB/s). The mem store is for tests: the same threads and checks
 * without a disk. Read store_threads.h first. */
#include "offload/store_threads.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/thread.h"
#include "memory/available.h"

/* ---- the threads ---- */

typedef struct piece {
    coh_store_slot *slot;
    unsigned char *memory;
    uint64_t file_offset;
    size_t bytes;
} piece;

/* Moves the whole piece, without the lock: continues a short transfer, repeats an interrupted one.
 * Returns an errno, 0 if the file ended, or COH_STORE_NO_ERROR. */
static int move(coh_threads_port *port, const piece *work)
{
    size_t done = 0;
    while (done < work->bytes) {
        size_t bytes = work->bytes - done;
        ssize_t moved = port->store->transfer(port->store, port->slots.port, work->memory + done,
                                              bytes, work->file_offset + done);
        if (moved < 0 && errno != EINTR && errno != EAGAIN)
            return errno;
        if (moved == 0)
            return 0;
        if (moved >
            0) /* a partial block is transferred again: O_DIRECT continues only at block borders */
            done += (size_t)moved - ((size_t)moved < bytes ? (size_t)moved % COH_PAGE_BYTES : 0);
        if (done < work->bytes)
            coh_store_count_retry(port->slots.store);
    }
    return COH_STORE_NO_ERROR;
}

static piece take(coh_store_slots *slots, coh_store_slot *slot)
{
    piece work = { .slot = slot };
    const size_t at = coh_store_slots_take(slots, slot, &work.bytes);
    work.memory = (unsigned char *)slot->request.memory + at;
    work.file_offset = slot->request.file_offset + at;
    return work;
}

static void *run_thread(void *argument)
{
    coh_threads_port *port = argument;
    pthread_mutex_lock(&port->lock);
    for (;;) {
        coh_store_slot *slot = coh_store_slots_oldest(&port->slots, COH_SLOT_ACTIVE);
        if (slot != NULL) {
            piece work = take(&port->slots, slot);
            pthread_mutex_unlock(&port->lock);
            int error = move(port, &work);
            pthread_mutex_lock(&port->lock);
            if (coh_store_slots_return(&port->slots, slot, error, work.file_offset))
                pthread_cond_signal(&port->done);
        } else if (port->stop)
            break;
        else
            pthread_cond_wait(&port->work, &port->lock);
    }
    pthread_mutex_unlock(&port->lock);
    return NULL;
}

/* ---- the lane's side ---- */

coh_status coh_threads_submit(coh_store *store, coh_store_port which,
                              const coh_store_request *request)
{
    coh_threads_port *port = &((coh_threads_store *)store)->ports[which];
    COH_TRY(coh_store_base_allow(store, request));
    const uint64_t checksum = which == COH_STORE_WRITES ? coh_checksum_of(request) : 0;
    pthread_mutex_lock(&port->lock);
    const coh_status status = coh_store_slots_add(&port->slots, request, checksum);
    if (status == COH_OK)
        pthread_cond_broadcast(&port->work);
    pthread_mutex_unlock(&port->lock);
    return status;
}

coh_status coh_threads_reap(coh_store *store, coh_store_port which,
                            coh_store_completion *completions, uint32_t least, uint32_t most,
                            uint32_t *out_count)
{
    coh_threads_port *port = &((coh_threads_store *)store)->ports[which];
    uint32_t count = 0;
    int failed = 0;
    pthread_mutex_lock(&port->lock);
    while (count < most) {
        coh_store_slot *slot = coh_store_slots_oldest(&port->slots, COH_SLOT_DONE);
        if (slot == NULL) {
            if (count >= least || port->slots.active_count == 0)
                break;
            pthread_cond_wait(&port->done, &port->lock);
            continue;
        }
        const coh_store_slot ended = coh_store_slots_free(&port->slots, slot);
        pthread_mutex_unlock(&port->lock);
        completions[count++] = coh_store_slots_finish(&port->slots, &ended, &failed);
        pthread_mutex_lock(&port->lock);
    }
    pthread_mutex_unlock(&port->lock);
    if (failed)
        coh_error_restore(port->slots.text);
    *out_count = count;
    return COH_OK;
}

coh_status coh_threads_register_arena(coh_store *store, void *base, size_t bytes)
{
    (void)store;
    (void)base;
    (void)bytes;
    return COH_OK;
}

/* ---- open and close ---- */

static coh_status start_port(coh_threads_store *store, coh_store_port which, uint32_t thread_count)
{
    coh_threads_port *port = &store->ports[which];
    COH_TRY(coh_store_slots_init(&port->slots, &store->base, which));
    pthread_mutex_init(&port->lock, NULL);
    pthread_cond_init(&port->work, NULL);
    pthread_cond_init(&port->done, NULL);
    port->store = store; /* from here on stop_port has a lock to destroy */
    while (port->thread_count < thread_count) {
        pthread_t *thread = &port->threads[port->thread_count];
        if (coh_thread_start(thread, run_thread, port) != 0)
            break;
        char name[16];
        snprintf(name, sizeof(name), "coh-%s-%u", which == COH_STORE_READS ? "read" : "write",
                 (port->thread_count + 1u) % 100u);
        (void)pthread_setname_np(*thread, name);
        port->thread_count++;
    }
    if (port->thread_count == 0)
        return coh_fail(COH_ERR_DEVICE, "no thread can be made for the working store: see to "
                                        "ulimit -u and -v");
    return COH_OK;
}

/* Waits for the requests in flight. */
static void stop_port(coh_threads_port *port)
{
    if (port->store != NULL) {
        pthread_mutex_lock(&port->lock);
        port->stop = 1;
        pthread_cond_broadcast(&port->work);
        pthread_mutex_unlock(&port->lock);
        for (uint32_t i = 0; i < port->thread_count; i++)
            (void)pthread_join(port->threads[i], NULL);
        pthread_cond_destroy(&port->done);
        pthread_cond_destroy(&port->work);
        pthread_mutex_destroy(&port->lock);
    }
    coh_store_slots_fini(&port->slots);
}

static void threads_close(coh_store *base)
{
    if (base == NULL)
        return;
    coh_threads_store *store = (coh_threads_store *)base;
    stop_port(&store->ports[COH_STORE_WRITES]);
    stop_port(&store->ports[COH_STORE_READS]);
    if (store->bytes != NULL)
        (void)munmap(store->bytes, base->config.bytes);
    coh_store_base_fini(base);
    coh_free(store);
}

/* `prepare` makes what `transfer` moves bytes to and from. */
static coh_status threads_open(const coh_store_config *config, const char *backend,
                               uint32_t thread_count,
                               coh_status (*prepare)(coh_threads_store *store),
                               coh_threads_transfer transfer, coh_store **out_store)
{
    coh_status status = COH_OK;
    coh_threads_store *store;
    *out_store = NULL;
    COH_TRY(COH_ALLOC(1, &store));
    store->transfer = transfer;
    if (config->queue_depth > 0)
        thread_count = config->queue_depth;
    if (thread_count > COH_STORE_THREADS_MOST)
        thread_count = COH_STORE_THREADS_MOST;
    COH_TRY_GOTO(status, coh_store_base_init(&store->base, config, backend), failed);
    COH_TRY_GOTO(status, prepare(store), failed);
    for (int port = 0; port < COH_STORE_PORT_COUNT; port++)
        COH_TRY_GOTO(status, start_port(store, (coh_store_port)port, thread_count), failed);
    store->base.facts.queue_depth = store->ports[COH_STORE_READS].thread_count;
    *out_store = &store->base;
    return COH_OK;
failed:
    threads_close(&store->base);
    return status;
}

/* ---- the posix store ---- */

/* Four transfers at once reach the rate of network and solid state disks within a few per cent;
 * more threads per drive only help where io_uring would be better anyway. */
#define POSIX_THREADS 4u

static ssize_t transfer_file(coh_threads_store *store, coh_store_port port, void *memory,
                             size_t bytes, uint64_t file_offset)
{
    uint64_t offset;
    const int fd =
        store->base.fds[coh_stripe_find(&store->base.stripe, file_offset, &bytes, &offset)];
    return port == COH_STORE_READS ? pread(fd, memory, bytes, (off_t)offset)
                                   : pwrite(fd, memory, bytes, (off_t)offset);
}

/* Reads the beginning of the file for a short time, one transfer at a time, so the rate is a lower
 * bound. */
static void measure(coh_threads_store *store)
{
    coh_store *base = &store->base;
    uint64_t moved = 0, begin_ns = coh_clock_ns(), spent_ns = 0;
    if (base->config.bytes < COH_STORE_MEASURED_LEAST)
        return;
    void *buffer = mmap(NULL, COH_STORE_PIECE_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffer == MAP_FAILED)
        return;
    while (spent_ns < COH_STORE_MEASURE_NS && moved < base->config.bytes) {
        ssize_t got = transfer_file(store, COH_STORE_READS, buffer, COH_STORE_PIECE_BYTES, moved);
        if (got <= 0)
            break;
        moved += (uint64_t)got;
        spent_ns = coh_clock_ns() - begin_ns;
    }
    if (spent_ns > 0)
        base->facts.read_bytes_per_s = (uint64_t)((double)moved * 1e9 / (double)spent_ns);
    (void)munmap(buffer, COH_STORE_PIECE_BYTES);
}

static coh_status make_file(coh_threads_store *store)
{
    COH_TRY(coh_store_files_open(&store->base));
    measure(store);
    return COH_OK;
}

static coh_status posix_open(const coh_store_config *config, coh_store **out_store)
{
    const uint32_t thread_count = POSIX_THREADS * (config->disk_count > 1 ? config->disk_count : 1);
    return threads_open(config, "posix", thread_count, make_file, transfer_file, out_store);
}

const coh_store_ops coh_store_posix = {
    .struct_bytes = sizeof(coh_store_ops),
    .name = "posix",
    .open = posix_open,
    .close = threads_close,
    .facts = coh_store_base_facts,
    .register_arena = coh_threads_register_arena,
    .submit = coh_threads_submit,
    .reap = coh_threads_reap,
};

/* ---- the mem store: the file is memory of this process ---- */

/* Two per port, so that completions do come out of order. */
#define MEM_THREADS 2u

static ssize_t transfer_memory(coh_threads_store *store, coh_store_port port, void *memory,
                               size_t bytes, uint64_t file_offset)
{
    unsigned char *there = store->bytes + file_offset;
    if (port == COH_STORE_READS)
        memcpy(memory, there, bytes);
    else
        memcpy(there, memory, bytes);
    return (ssize_t)bytes;
}

static coh_status map(coh_threads_store *store)
{
    uint64_t bytes = store->base.config.bytes;
    uint64_t available = coh_memory_available_bytes(NULL);
    if (bytes > available)
        return coh_fail(COH_ERR_FULL,
                        "a working store of %" PRIu64 " bytes in memory, %" PRIu64
                        " bytes are free",
                        bytes, available);
    void *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED)
        return coh_fail(COH_ERR_MEMORY, "no %" PRIu64 " bytes for a working store in memory",
                        bytes);
    store->bytes = mapped;
    return COH_OK;
}

static coh_status mem_open(const coh_store_config *config, coh_store **out_store)
{
    return threads_open(config, "mem", MEM_THREADS, map, transfer_memory, out_store);
}

const coh_store_ops coh_store_mem = {
    .struct_bytes = sizeof(coh_store_ops),
    .name = "mem",
    .open = mem_open,
    .close = threads_close,
    .facts = coh_store_base_facts,
    .register_arena = coh_threads_register_arena,
    .submit = coh_threads_submit,
    .reap = coh_threads_reap,
};
