/* The posix store: pread and pwrite by a few threads (store_threads.h). Runs everywhere; each piece
 * costs a system call and two passes through a lock (about 10 us, 2 % of a piece's time at 1
 * GB/s). */
#include <assert.h>
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "offload/store_threads.h"

/* Four transfers at once reach the rate of network and solid state disks within a few per cent;
 * more threads only help where io_uring would be better anyway. */
#define THREAD_COUNT 4u

/* A smaller file would measure the host's cache. */
#define MEASURED_BYTES_LEAST (UINT64_C(64) << 20)
#define MEASURE_NS           UINT64_C(50000000)

typedef struct posix_store {
    coh_threads_store threads;
    int fd;
} posix_store;

static ssize_t transfer(coh_threads_store *store, coh_store_port port, void *memory, size_t bytes,
                        uint64_t file_offset)
{
    int fd = ((posix_store *)store)->fd;
    return port == COH_STORE_READS ? pread(fd, memory, bytes, (off_t)file_offset)
                                   : pwrite(fd, memory, bytes, (off_t)file_offset);
}

/* Reads the beginning of the file for a short time, one transfer at a time, so the rate is a lower
 * bound. */
static void measure(posix_store *store)
{
    coh_store *base = &store->threads.base;
    uint64_t moved = 0, begin_ns = coh_clock_ns(), spent_ns = 0;
    if (base->config.bytes < MEASURED_BYTES_LEAST)
        return;
    void *buffer = mmap(NULL, COH_STORE_PIECE_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffer == MAP_FAILED)
        return;
    while (spent_ns < MEASURE_NS && moved < base->config.bytes) {
        ssize_t got = pread(store->fd, buffer, COH_STORE_PIECE_BYTES, (off_t)moved);
        if (got <= 0)
            break;
        moved += (uint64_t)got;
        spent_ns = coh_clock_ns() - begin_ns;
    }
    if (spent_ns > 0)
        base->facts.read_bytes_per_s = (uint64_t)((double)moved * 1e9 / (double)spent_ns);
    (void)munmap(buffer, COH_STORE_PIECE_BYTES);
}

static void posix_close(coh_store *store)
{
    if (store == NULL)
        return;
    posix_store *posix = (posix_store *)store;
    coh_threads_stop(&posix->threads);
    if (posix->fd >= 0)
        (void)close(posix->fd);
    coh_store_base_fini(store);
    coh_free(posix);
}

static coh_status posix_open(const coh_store_config *config, coh_store **out_store)
{
    coh_status status = COH_OK;
    posix_store *posix;
    *out_store = NULL;
    COH_TRY(COH_ALLOC(1, &posix));
    posix->fd = -1;
    coh_store *base = &posix->threads.base;
    COH_TRY_GOTO(status, coh_store_base_init(base, config, "posix"), failed);
    uint32_t thread_count = config->queue_depth == 0 ? THREAD_COUNT : config->queue_depth;
    if (thread_count > COH_THREADS_MOST)
        thread_count = COH_THREADS_MOST;
    COH_TRY_GOTO(status, coh_store_file_open(base, &posix->fd), failed);
    measure(posix);
    COH_TRY_GOTO(status, coh_threads_start(&posix->threads, thread_count, transfer), failed);
    base->facts.queue_depth = posix->threads.ports[COH_STORE_READS].thread_count;
    *out_store = base;
    return COH_OK;
failed:
    posix_close(base);
    return status;
}

const coh_store_ops coh_store_posix = {
    .struct_bytes = sizeof(coh_store_ops),
    .name = "posix",
    .open = posix_open,
    .close = posix_close,
    .facts = coh_store_base_facts,
    .register_arena = coh_threads_register_arena,
    .submit = coh_threads_submit,
    .reap = coh_threads_reap,
};
