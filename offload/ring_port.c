/* One port of the io_uring store: cuts requests into pieces, keeps the ring full, continues short
 * transfers, and hashes while the disk works. Read ring_port.h first for slots and pieces. */
#include "offload/ring_port.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"

/* A transfer that the kernel refuses with "try again" becomes an error after this many tries. */
#define RETRIES_MOST 10000u

/* ---- pieces ---- */

static int find_buffer(const coh_ring_port *port, const unsigned char *memory, size_t *bytes)
{
    for (uint32_t i = 0; port->arenas != NULL && i < *port->arena_count; i++) {
        const coh_ring_arena *arena = &port->arenas[i];
        if (memory < arena->base || memory >= arena->base + arena->bytes)
            continue;
        uint64_t at = (uint64_t)(memory - arena->base);
        uint64_t left = COH_RING_BUFFER_BYTES - at % COH_RING_BUFFER_BYTES;
        if (left < *bytes) /* a piece ends where its registered buffer ends */
            *bytes = (size_t)left;
        return arena->first_buffer + (int)(at / COH_RING_BUFFER_BYTES);
    }
    return -1;
}

/* Returns the oldest request with bytes to hand out, or port_depth. */
static uint32_t find_work(const coh_ring_port *port)
{
    uint32_t depth = port->store->config.port_depth, oldest = depth;
    for (uint32_t i = 0; i < depth; i++) {
        const coh_ring_slot *slot = &port->slots[i];
        if (slot->state == COH_RING_ACTIVE && slot->error == COH_STORE_NO_ERROR &&
            slot->next_bytes < slot->request.bytes &&
            (oldest == depth || slot->sequence < port->slots[oldest].sequence))
            oldest = i;
    }
    return oldest;
}

static void hand_out(coh_ring_port *port)
{
    while (port->unused_count > 0) {
        uint32_t index = find_work(port);
        if (index == port->store->config.port_depth)
            return;
        coh_ring_slot *slot = &port->slots[index];
        size_t left = slot->request.bytes - slot->next_bytes;
        size_t bytes = left < COH_STORE_PIECE_BYTES ? left : COH_STORE_PIECE_BYTES;
        unsigned char *memory = (unsigned char *)slot->request.memory + slot->next_bytes;
        int buffer = find_buffer(port, memory, &bytes);
        uint32_t number = port->unused[--port->unused_count];
        port->pieces[number] =
            (coh_ring_piece){ .slot = index,
                              .bytes = (uint32_t)bytes,
                              .buffer = buffer,
                              .memory = memory,
                              .file_offset = slot->request.file_offset + slot->next_bytes };
        slot->next_bytes += bytes;
        slot->piece_count++;
        port->waiting[port->waiting_count++] = number;
    }
}

static void prepare(coh_ring_port *port, struct io_uring_sqe *sqe, uint32_t number)
{
    const coh_ring_piece *piece = &port->pieces[number];
    int reads = port->port == COH_STORE_READS;
    if (piece->buffer >= 0 && reads)
        io_uring_prep_read_fixed(sqe, port->file, piece->memory, piece->bytes, piece->file_offset,
                                 piece->buffer);
    else if (piece->buffer >= 0)
        io_uring_prep_write_fixed(sqe, port->file, piece->memory, piece->bytes, piece->file_offset,
                                  piece->buffer);
    else if (reads)
        io_uring_prep_read(sqe, port->file, piece->memory, piece->bytes, piece->file_offset);
    else
        io_uring_prep_write(sqe, port->file, piece->memory, piece->bytes, piece->file_offset);
    if (port->file_fixed)
        io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
    io_uring_sqe_set_data64(sqe, number);
}

/* Sends the waiting pieces. If the kernel is short of room (EAGAIN, EBUSY), the entries stay queued
 * for a later call, after a transfer has finished. */
static coh_status send_waiting(coh_ring_port *port)
{
    hand_out(port);
    while (port->waiting_count > 0) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(&port->ring);
        if (sqe == NULL)
            break;
        prepare(port, sqe, port->waiting[--port->waiting_count]);
        port->in_kernel_count++;
    }
    while (io_uring_sq_ready(&port->ring) > 0) {
        int sent = io_uring_submit(&port->ring);
        if (sent == -EINTR)
            continue;
        if (sent == -EAGAIN || sent == -EBUSY || sent == 0)
            return COH_OK;
        if (sent < 0)
            return coh_fail(COH_ERR_IO, "submitting to io_uring failed: %s",
                            coh_store_error_text(-sent));
    }
    return COH_OK;
}

/* Finishes a piece, with or without an error. */
static void end_piece(coh_ring_port *port, uint32_t number, int error)
{
    coh_ring_slot *slot = &port->slots[port->pieces[number].slot];
    port->unused[port->unused_count++] = number;
    slot->piece_count--;
    if (error != COH_STORE_NO_ERROR && slot->error == COH_STORE_NO_ERROR)
        slot->error = error;
    int handed_out = slot->next_bytes == slot->request.bytes || slot->error != COH_STORE_NO_ERROR;
    if (slot->piece_count > 0 || !handed_out)
        return;
    slot->state = COH_RING_DONE;
    port->active_count--;
    port->done_count++;
}

static void take_result(coh_ring_port *port, uint32_t number, int result)
{
    coh_ring_piece *piece = &port->pieces[number];
    int again = result == -EAGAIN || result == -EINTR || result == -EBUSY;
    port->in_kernel_count--;
    if (result == 0 || (result < 0 && !again)) {
        end_piece(port, number, -result);
        return;
    }
    if (result > 0) {
        /* A partial block is transferred again: O_DIRECT continues only at block borders. */
        uint32_t moved = (uint32_t)result;
        if (moved < piece->bytes)
            moved -= moved % COH_PAGE_BYTES;
        again = moved == 0;
        piece->bytes -= moved;
        piece->memory += moved;
        piece->file_offset += moved;
    }
    if (piece->bytes == 0)
        end_piece(port, number, COH_STORE_NO_ERROR);
    else if (again && ++piece->retry_count > RETRIES_MOST)
        end_piece(port, number, result < 0 ? -result : EIO);
    else
        port->waiting[port->waiting_count++] = number;
}

static void harvest(coh_ring_port *port)
{
    struct io_uring_cqe *cqe;
    while (io_uring_peek_cqe(&port->ring, &cqe) == 0 && cqe != NULL) {
        uint32_t number = (uint32_t)io_uring_cqe_get_data64(cqe);
        int result = cqe->res;
        io_uring_cqe_seen(&port->ring, cqe);
        take_result(port, number, result);
    }
}

/* ---- the lane's side ---- */

coh_status coh_ring_port_submit(coh_ring_port *port, const coh_store_request *request)
{
    uint32_t depth = port->store->config.port_depth, i = 0;
    COH_TRY(coh_store_base_allow(port->store, request));
    while (i < depth && port->slots[i].state != COH_RING_FREE)
        i++;
    if (i == depth)
        return coh_fail(COH_ERR_INTERNAL, "more than %" PRIu32 " requests in flight on one port",
                        depth);
    port->slots[i] = (coh_ring_slot){
        .request = *request,
        .checksum = port->port == COH_STORE_WRITES ? coh_checksum_of(request) : 0,
        .sequence = port->sequence++,
        .error = COH_STORE_NO_ERROR,
        .state = COH_RING_ACTIVE,
    };
    port->active_count++;
    harvest(port);
    return send_waiting(port);
}

static uint32_t hand_over(coh_ring_port *port, coh_store_completion *completions, uint32_t most,
                          int *failed)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < port->store->config.port_depth && port->done_count > 0 && count < most;
         i++) {
        coh_ring_slot *slot = &port->slots[i];
        if (slot->state != COH_RING_DONE)
            continue;
        slot->state = COH_RING_FREE;
        port->done_count--;
        coh_status status = coh_store_base_finish(port->store, port->port, &slot->request,
                                                  slot->checksum, slot->error);
        if (status != COH_OK && !(*failed)++)
            coh_error_save(port->text);
        completions[count++] =
            (coh_store_completion){ .number = slot->request.number, .status = status };
    }
    return count;
}

coh_status coh_ring_port_reap(coh_ring_port *port, coh_store_completion *completions,
                              uint32_t least, uint32_t most, uint32_t *out_count)
{
    coh_status status = COH_OK;
    uint32_t count = 0;
    int failed = 0;
    *out_count = 0;
    for (;;) {
        harvest(port);
        COH_TRY_GOTO(status, send_waiting(port), done); /* keep the disk busy while hashing */
        count += hand_over(port, completions + count, most - count, &failed);
        if (count >= least || count == most || port->active_count + port->done_count == 0)
            break;
        if (port->done_count > 0)
            continue;
        struct io_uring_cqe *cqe;
        int waited = port->in_kernel_count > io_uring_sq_ready(&port->ring)
                         ? io_uring_wait_cqe(&port->ring, &cqe)
                         : 0; /* nothing in flight: the kernel was short of room, send again */
        if (waited < 0 && waited != -EINTR && waited != -EAGAIN)
            COH_TRY_GOTO(status,
                         coh_fail(COH_ERR_IO, "waiting for io_uring failed: %s",
                                  coh_store_error_text(-waited)),
                         done);
    }
    if (failed)
        coh_error_restore(port->text);
done:
    *out_count = count;
    return status;
}

/* ---- init and fini ---- */

coh_status coh_ring_port_init(coh_ring_port *port, coh_store *store, coh_store_port which, int fd,
                              uint32_t queue_depth)
{
    port->store = store;
    port->port = which;
    port->piece_count = queue_depth;
    COH_TRY(COH_ALLOC(store->config.port_depth, &port->slots));
    COH_TRY(COH_ALLOC(queue_depth, &port->pieces));
    COH_TRY(COH_ALLOC(queue_depth, &port->waiting));
    COH_TRY(COH_ALLOC(queue_depth, &port->unused));
    for (uint32_t i = 0; i < queue_depth; i++)
        port->unused[i] = i;
    port->unused_count = queue_depth;
    int denied = io_uring_queue_init(queue_depth, &port->ring, 0);
    if (denied < 0)
        return coh_fail(COH_ERR_DEVICE, "io_uring is denied here (%s)",
                        coh_store_error_text(-denied));
    port->ring_is_open = 1;
    port->file_fixed = io_uring_register_files(&port->ring, &fd, 1) == 0;
    port->file = port->file_fixed ? 0 : fd;
    return COH_OK;
}

void coh_ring_port_fini(coh_ring_port *port)
{
    if (port->ring_is_open) {
        /* Closing the ring does not wait, and the kernel would write into memory that is soon
         * unmapped. */
        while (port->in_kernel_count > io_uring_sq_ready(&port->ring)) {
            struct io_uring_cqe *cqe;
            int waited = io_uring_wait_cqe(&port->ring, &cqe);
            if (waited == -EINTR || waited == -EAGAIN)
                continue;
            if (waited < 0)
                break;
            io_uring_cqe_seen(&port->ring, cqe);
            port->in_kernel_count--;
        }
        io_uring_queue_exit(&port->ring);
    }
    coh_free(port->unused);
    coh_free(port->waiting);
    coh_free(port->pieces);
    coh_free(port->slots);
    memset(port, 0, sizeof(*port));
}
