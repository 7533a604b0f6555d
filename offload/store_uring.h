/* store_uring.h - one io_uring and its requests: one port of the io_uring store. Tests drive a port
 * by itself.
 *
 *   slots   requests of the lane        r1 [....####]  r2 [........]     port_depth of them
 *   pieces  transfers inside the ring   r1.4 r1.5 r1.6 r1.7              queue_depth of them
 *
 * A slot hands out pieces from its front. A piece that was transferred only in part is sent again
 * with the rest. All of it belongs to one thread, the lane's, which submits, reaps and hashes;
 * there is no lock. */
#ifndef COH_OFFLOAD_STORE_URING_H
#define COH_OFFLOAD_STORE_URING_H

#include <liburing.h>
#include <stdint.h>

#include "offload/store_base.h"

/* Two arenas; each registered in pieces of at most 1 GiB (the kernel's limit for one buffer). */
#define COH_RING_BUFFER_BYTES (UINT64_C(1) << 30)
#define COH_RING_ARENAS_MOST  2

typedef struct coh_ring_arena {
    unsigned char *base;
    uint64_t bytes;
    int first_buffer; /* index of its first registered buffer */
} coh_ring_arena;

typedef struct coh_ring_piece {
    coh_store_slot *slot;
    uint32_t bytes; /* left to transfer */
    uint32_t retry_count;
    int buffer; /* registered buffer it lies in; -1: none */
    unsigned char *memory;
    uint64_t file_offset;
} coh_ring_piece;

typedef struct coh_ring_port {
    coh_store_slots slots;
    struct io_uring ring;
    int ring_is_open;
    int files_fixed; /* 1: the store's files are registered; their index is that of the folder */
    coh_ring_piece *pieces;
    uint32_t *waiting; /* a stack of pieces to send: new ones and repeated ones */
    uint32_t *unused;  /* a stack of free pieces */
    uint32_t waiting_count, unused_count, in_kernel_count;
    const coh_ring_arena *arenas; /* registered arenas; owned by the store */
    const uint32_t *arena_count;
} coh_ring_port;

/* Writes a few bytes to a file in memory and reads them back through the ring. Linux before 5.6
 * makes rings that lack these operations, and so do some sandboxes.
 * Returns 0 or -errno; -EOPNOTSUPP: the ring lacks them. */
int coh_ring_try(struct io_uring *ring);

/* Opens a ring of queue_depth entries on store->fds. On failure `fini` must still be called; it
 * frees what was made.
 * Fails: COH_ERR_DEVICE if the kernel denies it (the text says how), COH_ERR_MEMORY. */
coh_status coh_ring_port_init(coh_ring_port *port, coh_store *store, coh_store_port which,
                              uint32_t queue_depth);
/* Waits for transfers in the kernel and frees the port. Does nothing on a zeroed struct. */
void coh_ring_port_fini(coh_ring_port *port);

coh_status coh_ring_port_submit(coh_ring_port *port, const coh_store_request *request);
coh_status coh_ring_port_reap(coh_ring_port *port, coh_store_completion *completions,
                              uint32_t least, uint32_t most, uint32_t *out_count);

#endif
