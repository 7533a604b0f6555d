/* store_threads.h - a store whose transfers are made by a few threads: the posix and the mem store,
 * which differ only in the transfer function.
 *
 *   lane      submit r1 (8 pieces)   submit r2       reap (sleeps until a request is done)
 *   coh-read-1   r1.0   r1.2   r1.5   r2.0 ...       a piece at a time, oldest request first
 *   coh-read-2   r1.1   r1.3 ...
 *
 * One lock per port, held only to take a piece and to return its result, never during a transfer. A
 * slot (one per request in flight) goes free -> active -> done -> free. The lane makes it active
 * and free; the thread that finishes its last piece makes it done. The lane's thread computes the
 * hash, at submit for writes and at reap for reads.
 */
#ifndef COH_OFFLOAD_STORE_THREADS_H
#define COH_OFFLOAD_STORE_THREADS_H

#include <pthread.h>
#include <stdint.h>
#include <sys/types.h>

#include "offload/store_base.h"

typedef struct coh_threads_store coh_threads_store;

/* Transfers at most `bytes`; as pread and pwrite: returns the bytes moved, 0 at the end, -1 with
 * errno. Called by several threads at once. */
typedef ssize_t (*coh_threads_transfer)(coh_threads_store *store, coh_store_port port, void *memory,
                                        size_t bytes, uint64_t file_offset);

#define COH_THREADS_MOST 16

typedef enum coh_slot_state { COH_SLOT_FREE, COH_SLOT_ACTIVE, COH_SLOT_DONE } coh_slot_state;

typedef struct coh_threads_slot {
    coh_store_request request;
    uint64_t checksum;    /* of a write */
    uint64_t sequence;    /* of submission */
    uint64_t finished;    /* order of completion */
    size_t next_bytes;    /* handed out so far */
    uint32_t piece_count; /* handed out, not returned */
    int error;            /* first one; else COH_STORE_NO_ERROR */
    coh_slot_state state;
} coh_threads_slot;

typedef struct coh_threads_port {
    coh_threads_store *store;
    coh_store_port port;
    /* guards everything below; `work`: a piece is available or stop is set, `done`: a slot became
     * done */
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    coh_threads_slot *slots; /* config.port_depth */
    uint64_t sequence, finished;
    uint32_t active_count, done_count;
    int stop;
    pthread_t threads[COH_THREADS_MOST];
    uint32_t thread_count;
    /* of the first failed completion of a reap; used by the lane only */
    char text[COH_ERROR_TEXT_BYTES];
} coh_threads_port;

struct coh_threads_store {
    coh_store base;
    coh_threads_transfer transfer;
    coh_threads_port ports[COH_STORE_PORT_COUNT];
};

/* Starts thread_count (1 to COH_THREADS_MOST) threads per port on an initialised base.
 * Fails: COH_ERR_MEMORY, COH_ERR_DEVICE if no thread can be created; nothing runs then. */
coh_status coh_threads_start(coh_threads_store *store, uint32_t thread_count,
                             coh_threads_transfer transfer);
/* Waits for requests in flight and joins the threads. Does nothing on a store that was not
 * started. */
void coh_threads_stop(coh_threads_store *store);

/* Implement `submit`, `reap` and `register_arena` of both tables. */
coh_status coh_threads_submit(coh_store *store, coh_store_port port,
                              const coh_store_request *request);
coh_status coh_threads_reap(coh_store *store, coh_store_port port,
                            coh_store_completion *completions, uint32_t least, uint32_t most,
                            uint32_t *out_count);
coh_status coh_threads_register_arena(coh_store *store, void *base, size_t bytes);

#endif
