/* The io_uring store: one ring per port; it starts no thread. A lane's thread submits whole
 * chunks; the kernel transfers several pieces at once, without copies: O_DIRECT moves bytes
 * between disk and arena. A port cuts requests into pieces, keeps its ring full, continues short
 * transfers, and hashes while the disk works. Registered arenas save the kernel from pinning
 * pages for every transfer. Read store.h first, then store_uring.h for slots and pieces. */
#include "coh_config.h"

#include "offload/store_base.h"

#ifdef COH_HAVE_URING

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "offload/store_uring.h"

/* With pieces of 2 MiB, 32 MiB in flight: reads got faster up to there, and a deeper queue only
 * delays the other port (benchmarks/store.c; 8 x 512 KiB read 1.4 GB/s and wrote 3.3, this 2.2 and
 * 4.9). Not measured at open: on a shared disk, 20 ms per depth gave a random choice. */
#define DEFAULT_DEPTH 16u
#define DEPTH_MOST    128u /* of all drives together; each adds DEFAULT_DEPTH */

/* A transfer that the kernel refuses with "try again" becomes an error after this many tries. */
#define RETRIES_MOST 10000u

/* All arenas together, in buffers of 1 GiB: what Linux registers at most since 5.13 (16 TiB), and
 * before. Larger arenas stay unregistered. */
#define BUFFERS_MOST        16384
#define BUFFERS_MOST_BEFORE 1024

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

static void hand_out(coh_ring_port *port)
{
    while (port->unused_count > 0) {
        coh_store_slot *slot = coh_store_slots_oldest(&port->slots, COH_SLOT_ACTIVE);
        if (slot == NULL)
            return;
        size_t bytes;
        const size_t at = coh_store_slots_take(&port->slots, slot, &bytes);
        const size_t taken = bytes;
        unsigned char *memory = (unsigned char *)slot->request.memory + at;
        int buffer = find_buffer(port, memory, &bytes);
        slot->next_bytes -= taken - bytes;
        uint32_t number = port->unused[--port->unused_count];
        port->pieces[number] = (coh_ring_piece){ .slot = slot,
                                                 .bytes = (uint32_t)bytes,
                                                 .buffer = buffer,
                                                 .memory = memory,
                                                 .file_offset = slot->request.file_offset + at };
        port->waiting[port->waiting_count++] = number;
    }
}

static void prepare(coh_ring_port *port, struct io_uring_sqe *sqe, uint32_t number)
{
    const coh_ring_piece *piece = &port->pieces[number];
    const coh_store *store = port->slots.store;
    int reads = port->slots.port == COH_STORE_READS;
    uint64_t offset;
    const uint32_t disk = coh_stripe_find(&store->stripe, piece->file_offset, NULL, &offset);
    const int file = port->files_fixed ? (int)disk : store->fds[disk];
    if (piece->buffer >= 0 && reads)
        io_uring_prep_read_fixed(sqe, file, piece->memory, piece->bytes, offset, piece->buffer);
    else if (piece->buffer >= 0)
        io_uring_prep_write_fixed(sqe, file, piece->memory, piece->bytes, offset, piece->buffer);
    else if (reads)
        io_uring_prep_read(sqe, file, piece->memory, piece->bytes, offset);
    else
        io_uring_prep_write(sqe, file, piece->memory, piece->bytes, offset);
    if (port->files_fixed)
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
    port->unused[port->unused_count++] = number;
    const coh_ring_piece *piece = &port->pieces[number];
    (void)coh_store_slots_return(&port->slots, piece->slot, error, piece->file_offset);
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
    else {
        coh_store_count_retry(port->slots.store);
        port->waiting[port->waiting_count++] = number;
    }
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
    COH_TRY(coh_store_base_allow(port->slots.store, request));
    COH_TRY(
        coh_store_slots_add(&port->slots, request,
                            port->slots.port == COH_STORE_WRITES ? coh_checksum_of(request) : 0));
    harvest(port);
    return send_waiting(port);
}

static uint32_t hand_over(coh_ring_port *port, coh_store_completion *completions, uint32_t most,
                          int *failed)
{
    uint32_t count = 0;
    while (port->slots.done_count > 0 && count < most) {
        const coh_store_slot ended =
            coh_store_slots_free(&port->slots, coh_store_slots_oldest(&port->slots, COH_SLOT_DONE));
        completions[count++] = coh_store_slots_finish(&port->slots, &ended, failed);
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
        if (count >= least || count == most ||
            port->slots.active_count + port->slots.done_count == 0)
            break;
        if (port->slots.done_count > 0)
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
        coh_error_restore(port->slots.text);
done:
    *out_count = count;
    return status;
}

/* ---- a port: init and fini ---- */

coh_status coh_ring_port_init(coh_ring_port *port, coh_store *store, coh_store_port which,
                              uint32_t queue_depth)
{
    COH_TRY(coh_store_slots_init(&port->slots, store, which));
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
    port->files_fixed =
        io_uring_register_files(&port->ring, store->fds, store->config.disk_count) == 0;
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
    coh_store_slots_fini(&port->slots);
    memset(port, 0, sizeof(*port));
}

/* ---- does a ring work ---- */

static const char tried[] = "bytes";

/* Transfers the bytes of `memory` and the beginning of the file. Returns 0 or -errno. */
static int try_transfer(struct io_uring *ring, int fd, char memory[sizeof(tried)], int reads)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
    struct io_uring_cqe *cqe;
    int code;
    if (sqe == NULL)
        return -EBUSY;
    if (reads)
        io_uring_prep_read(sqe, fd, memory, sizeof(tried), 0);
    else
        io_uring_prep_write(sqe, fd, memory, sizeof(tried), 0);
    do
        code = io_uring_submit(ring);
    while (code == -EINTR || code == -EAGAIN);
    if (code < 0)
        return code;
    do
        code = io_uring_wait_cqe(ring, &cqe);
    while (code == -EINTR || code == -EAGAIN);
    if (code < 0)
        return code;
    code = cqe->res;
    io_uring_cqe_seen(ring, cqe);
    if (code < 0)
        return code == -EINVAL ? -EOPNOTSUPP : code;
    return code == (int)sizeof(tried) ? 0 : -EIO;
}

int coh_ring_try(struct io_uring *ring)
{
    char sent[sizeof(tried)], received[sizeof(tried)] = "";
    const int fd = memfd_create("cohobate-ring", MFD_CLOEXEC);
    if (fd < 0)
        return -errno;
    memcpy(sent, tried, sizeof(tried));
    int code = try_transfer(ring, fd, sent, 0);
    if (code == 0)
        code = try_transfer(ring, fd, received, 1);
    (void)close(fd);
    return code == 0 && memcmp(received, tried, sizeof(tried)) != 0 ? -EIO : code;
}

/* ---- measuring the rate ---- */

typedef struct uring_store {
    coh_store base;
    coh_ring_port ports[COH_STORE_PORT_COUNT];
    coh_ring_arena arenas[COH_RING_ARENAS_MOST];
    uint32_t arena_count;
    int unregistered; /* 1: refused once, do not try again */
    struct iovec buffers[BUFFERS_MOST];
} uring_store;

/* Queues one read of the measurement. Reads cycle through the file, all into the same memory, whose
 * contents are not used. */
static void put_read(struct io_uring *ring, const coh_store *store, void *memory,
                     uint64_t *next_offset)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
    size_t bytes = COH_STORE_PIECE_BYTES;
    uint64_t offset;
    if (*next_offset + COH_STORE_PIECE_BYTES > store->config.bytes)
        *next_offset = 0;
    const uint32_t disk = coh_stripe_find(&store->stripe, *next_offset, &bytes, &offset);
    io_uring_prep_read(sqe, store->fds[disk], memory, (unsigned)bytes, offset);
    *next_offset += bytes;
}

/* Measures bytes per second of reads with `depth` in flight; 0 if one fails. */
static double measure_rate(struct io_uring *ring, const uring_store *uring, void *memory,
                           uint32_t depth)
{
    uint64_t next_offset = 0;
    uint64_t begin_ns = coh_clock_ns(), end_ns = begin_ns, moved = 0;
    uint32_t in_flight = 0;
    int failed = 0;
    for (; in_flight < depth; in_flight++)
        put_read(ring, &uring->base, memory, &next_offset);
    while (in_flight > 0) {
        struct io_uring_cqe *cqe;
        int sent = io_uring_submit_and_wait(ring, 1);
        if (sent < 0 && sent != -EINTR && sent != -EAGAIN && sent != -EBUSY)
            return 0;
        while (io_uring_peek_cqe(ring, &cqe) == 0 && cqe != NULL) {
            failed |= cqe->res <= 0;
            moved += cqe->res > 0 ? (uint64_t)cqe->res : 0;
            io_uring_cqe_seen(ring, cqe);
            end_ns = coh_clock_ns();
            if (!failed && end_ns - begin_ns < COH_STORE_MEASURE_NS)
                put_read(ring, &uring->base, memory, &next_offset);
            else
                in_flight--;
        }
    }
    return failed || end_ns == begin_ns ? 0 : (double)moved * 1e9 / (double)(end_ns - begin_ns);
}

/* Sets facts.read_bytes_per_s. If it cannot measure, that is not an error. */
static void measure(uring_store *uring, uint32_t depth)
{
    struct io_uring ring;
    if (uring->base.config.bytes < COH_STORE_MEASURED_LEAST ||
        io_uring_queue_init(depth, &ring, 0) < 0)
        return;
    void *memory = mmap(NULL, COH_STORE_PIECE_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory != MAP_FAILED)
        uring->base.facts.read_bytes_per_s = (uint64_t)measure_rate(&ring, uring, memory, depth);
    io_uring_queue_exit(&ring); /* before unmapping the memory it may still write to */
    if (memory != MAP_FAILED)
        (void)munmap(memory, COH_STORE_PIECE_BYTES);
}

/* ---- the store ---- */

static void uring_close(coh_store *store)
{
    if (store == NULL)
        return;
    uring_store *uring = (uring_store *)store;
    coh_ring_port_fini(&uring->ports[COH_STORE_WRITES]);
    coh_ring_port_fini(&uring->ports[COH_STORE_READS]);
    coh_store_base_fini(store);
    coh_free(uring);
}

/* Checks whether rings are denied or do not work, before the file is made and written. */
static coh_status probe(void)
{
    struct io_uring ring;
    int denied = io_uring_queue_init(2, &ring, 0);
    if (denied == 0) {
        denied = coh_ring_try(&ring);
        io_uring_queue_exit(&ring);
    }
    if (denied == -EOPNOTSUPP)
        return coh_fail(COH_ERR_DEVICE,
                        "io_uring lacks reads and writes here, which need Linux 5.6");
    return denied == 0 ? COH_OK
                       : coh_fail(COH_ERR_DEVICE, "io_uring is denied here (%s)",
                                  coh_store_error_text(-denied));
}

static coh_status uring_open(const coh_store_config *config, coh_store **out_store)
{
    coh_status status = COH_OK;
    uring_store *uring;
    *out_store = NULL;
    COH_TRY(probe());
    COH_TRY(COH_ALLOC(1, &uring));
    coh_store *base = &uring->base;
    COH_TRY_GOTO(status, coh_store_base_init(base, config, "io_uring"), failed);
    COH_TRY_GOTO(status, coh_store_files_open(base), failed);
    uint32_t depth =
        config->queue_depth == 0 ? DEFAULT_DEPTH * config->disk_count : config->queue_depth;
    if (depth > DEPTH_MOST)
        depth = DEPTH_MOST;
    measure(uring, depth);
    for (int port = 0; port < COH_STORE_PORT_COUNT; port++)
        COH_TRY_GOTO(status,
                     coh_ring_port_init(&uring->ports[port], base, (coh_store_port)port, depth),
                     failed);
    base->facts.queue_depth = depth;
    *out_store = base;
    return COH_OK;
failed:
    uring_close(base);
    return status;
}

static void leave_unregistered(uring_store *uring)
{
    for (int port = 0; port < COH_STORE_PORT_COUNT; port++) {
        if (uring->ports[port].arenas != NULL)
            (void)io_uring_unregister_buffers(&uring->ports[port].ring);
        uring->ports[port].arenas = NULL;
    }
    uring->unregistered = 1;
    uring->base.facts.backend = "io_uring";
}

/* Returns how many buffers an arena is registered in. */
static uint64_t count_buffers(const coh_ring_arena *arena)
{
    return arena->bytes / COH_RING_BUFFER_BYTES + (arena->bytes % COH_RING_BUFFER_BYTES != 0);
}

static void refuse_too_many(uring_store *uring, unsigned most)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < uring->arena_count; i++)
        count += count_buffers(&uring->arenas[i]);
    leave_unregistered(uring);
    coh_store_base_say(&uring->base,
                       "the arenas need %" PRIu64 " buffers of 1 GiB, and io_uring registers at "
                       "most %u: every transfer pins its pages again",
                       count, most);
}

/* Linux refuses with ENOMEM beyond the limit of locked memory, with EINVAL for too many buffers. */
static void bear_refusal(uring_store *uring, unsigned buffer_count, int error)
{
    if (error == EINVAL && buffer_count > BUFFERS_MOST_BEFORE) {
        refuse_too_many(uring, BUFFERS_MOST_BEFORE);
        return;
    }
    leave_unregistered(uring);
    coh_store_base_say(&uring->base,
                       "the arenas could not be registered with io_uring (%s): every transfer pins "
                       "its pages again%s",
                       coh_store_error_text(error),
                       error == ENOMEM ? "; raising the memlock limit (ulimit -l) avoids that"
                                       : "");
}

/* Cuts an arena into buffers from `buffer_count` on. */
static unsigned cut_arena(uring_store *uring, coh_ring_arena *arena, unsigned buffer_count)
{
    arena->first_buffer = (int)buffer_count;
    for (uint64_t at = 0; at < arena->bytes; at += COH_RING_BUFFER_BYTES) {
        const uint64_t left = arena->bytes - at;
        uring->buffers[buffer_count++] = (struct iovec){
            .iov_base = arena->base + at,
            .iov_len = left < COH_RING_BUFFER_BYTES ? left : COH_RING_BUFFER_BYTES,
        };
    }
    return buffer_count;
}

/* All buffers of a ring are registered in one call, so the second arena registers the first
 * again. */
static coh_status uring_register_arena(coh_store *store, void *base, size_t bytes)
{
    uring_store *uring = (uring_store *)store;
    if (uring->unregistered)
        return COH_OK;
    if (uring->arena_count == COH_RING_ARENAS_MOST)
        return coh_fail(COH_ERR_INTERNAL, "a store takes %d arenas", COH_RING_ARENAS_MOST);
    uring->arenas[uring->arena_count++] = (coh_ring_arena){ .base = base, .bytes = bytes };
    unsigned buffer_count = 0;
    for (uint32_t i = 0; i < uring->arena_count; i++) {
        if (buffer_count + count_buffers(&uring->arenas[i]) > BUFFERS_MOST) {
            refuse_too_many(uring, BUFFERS_MOST);
            return COH_OK;
        }
        buffer_count = cut_arena(uring, &uring->arenas[i], buffer_count);
    }
    for (int i = 0; i < COH_STORE_PORT_COUNT; i++) {
        coh_ring_port *port = &uring->ports[i];
        if (port->arenas != NULL)
            (void)io_uring_unregister_buffers(&port->ring);
        port->arenas = NULL;
        int refused = io_uring_register_buffers(&port->ring, uring->buffers, buffer_count);
        if (refused < 0) {
            bear_refusal(uring, buffer_count, -refused);
            return COH_OK;
        }
        port->arenas = uring->arenas;
        port->arena_count = &uring->arena_count;
    }
    uring->base.facts.backend = "io_uring fixed";
    return COH_OK;
}

static coh_status uring_submit(coh_store *store, coh_store_port port,
                               const coh_store_request *request)
{
    return coh_ring_port_submit(&((uring_store *)store)->ports[port], request);
}

static coh_status uring_reap(coh_store *store, coh_store_port port,
                             coh_store_completion *completions, uint32_t least, uint32_t most,
                             uint32_t *out_count)
{
    return coh_ring_port_reap(&((uring_store *)store)->ports[port], completions, least, most,
                              out_count);
}

const coh_store_ops coh_store_uring = {
    .struct_bytes = sizeof(coh_store_ops),
    .name = "uring",
    .open = uring_open,
    .close = uring_close,
    .facts = coh_store_base_facts,
    .register_arena = uring_register_arena,
    .submit = uring_submit,
    .reap = uring_reap,
};

#else

const coh_store_ops coh_store_uring = { .struct_bytes = sizeof(coh_store_ops), .name = "uring" };

#endif
