/* store_threads.h - a store whose transfers are made by a few threads: the posix store and the mem
 * store, which differ only in the transfer function and in what it transfers to.
 *
 *   lane      submit r1 (8 pieces)   submit r2       reap (sleeps until a request is done)
 *   coh-read-1   r1.0   r1.2   r1.5   r2.0 ...       a piece at a time, oldest request first
 *   coh-read-2   r1.1   r1.3 ...
 *
 * One lock per port, held only to take a piece and to return its result, never during a transfer.
 * The lane makes a slot active and free; the thread that finishes its last piece makes it done. The
 * lane's thread computes the hash, at submit for writes and at reap for reads.
 *
 * Tests include this file, too: they put a faulty transfer in place of a store's own. */
#ifndef COH_OFFLOAD_STORE_THREADS_H
#define COH_OFFLOAD_STORE_THREADS_H

#include <pthread.h>
#include <stdint.h>
#include <sys/types.h>

#include "offload/store_base.h"

typedef struct coh_threads_store coh_threads_store;

/* Transfers at most `bytes` at an offset of the store; as pread and pwrite: returns the bytes
 * moved, 0 at the end, -1 with errno. Called by several threads at once. */
typedef ssize_t (*coh_threads_transfer)(coh_threads_store *store, coh_store_port port, void *memory,
                                        size_t bytes, uint64_t file_offset);

#define COH_STORE_THREADS_MOST 32

typedef struct coh_threads_port {
    coh_threads_store *store;
    /* guards everything below; `work`: a piece is available or stop is set, `done`: a slot became
     * done */
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    coh_store_slots slots;
    int stop;
    pthread_t threads[COH_STORE_THREADS_MOST];
    uint32_t thread_count;
} coh_threads_port;

struct coh_threads_store {
    coh_store base;
    coh_threads_transfer transfer;
    coh_threads_port ports[COH_STORE_PORT_COUNT];
    unsigned char *bytes; /* of the mem store; NULL: none */
};

/* Implement `submit`, `reap` and `register_arena` of both tables. */
coh_status coh_threads_submit(coh_store *store, coh_store_port port,
                              const coh_store_request *request);
coh_status coh_threads_reap(coh_store *store, coh_store_port port,
                            coh_store_completion *completions, uint32_t least, uint32_t most,
                            uint32_t *out_count);
coh_status coh_threads_register_arena(coh_store *store, void *base, size_t bytes);

#endif
