/* The mem store: the file is memory of this process. For tests: the threads and checks of the posix
 * store, without a disk. Read store_threads.h next. */
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "memory/available.h"
#include "offload/store_threads.h"

/* Two per port, so that completions do come out of order. */
#define THREAD_COUNT 2u

typedef struct mem_store {
    coh_threads_store threads;
    unsigned char *bytes; /* NULL: not mapped */
} mem_store;

static ssize_t transfer(coh_threads_store *store, coh_store_port port, void *memory, size_t bytes,
                        uint64_t file_offset)
{
    unsigned char *there = ((mem_store *)store)->bytes + file_offset;
    if (port == COH_STORE_READS)
        memcpy(memory, there, bytes);
    else
        memcpy(there, memory, bytes);
    return (ssize_t)bytes;
}

static void mem_close(coh_store *store)
{
    if (store == NULL)
        return;
    mem_store *mem = (mem_store *)store;
    coh_threads_stop(&mem->threads);
    if (mem->bytes != NULL)
        (void)munmap(mem->bytes, store->config.bytes);
    coh_store_base_fini(store);
    coh_free(mem);
}

static coh_status map(mem_store *mem)
{
    uint64_t bytes = mem->threads.base.config.bytes;
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
    mem->bytes = mapped;
    return COH_OK;
}

static coh_status mem_open(const coh_store_config *config, coh_store **out_store)
{
    coh_status status = COH_OK;
    mem_store *mem;
    *out_store = NULL;
    COH_TRY(COH_ALLOC(1, &mem));
    coh_store *base = &mem->threads.base;
    COH_TRY_GOTO(status, coh_store_base_init(base, config, "mem"), failed);
    uint32_t thread_count = config->queue_depth == 0 ? THREAD_COUNT : config->queue_depth;
    if (thread_count > COH_THREADS_MOST)
        thread_count = COH_THREADS_MOST;
    COH_TRY_GOTO(status, map(mem), failed);
    COH_TRY_GOTO(status, coh_threads_start(&mem->threads, thread_count, transfer), failed);
    base->facts.queue_depth = mem->threads.ports[COH_STORE_READS].thread_count;
    *out_store = base;
    return COH_OK;
failed:
    mem_close(base);
    return status;
}

const coh_store_ops coh_store_mem = {
    .struct_bytes = sizeof(coh_store_ops),
    .name = "mem",
    .open = mem_open,
    .close = mem_close,
    .facts = coh_store_base_facts,
    .register_arena = coh_threads_register_arena,
    .submit = coh_threads_submit,
    .reap = coh_threads_reap,
};
