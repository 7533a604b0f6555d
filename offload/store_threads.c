/* Threads that make a store's transfers: each takes the oldest request's next piece under the
 * port's lock, moves it without the lock, and returns the result. Read store_threads.h first. */
#include "offload/store_threads.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/thread.h"

typedef struct piece {
    coh_threads_slot *slot;
    unsigned char *memory;
    uint64_t file_offset;
    size_t bytes;
} piece;

/* ---- transferring one piece, without the lock ---- */

/* Moves the whole piece: continues a short transfer, repeats an interrupted one. Returns an errno,
 * 0 if the file ended, or COH_STORE_NO_ERROR. */
static int move(coh_threads_port *port, const piece *work)
{
    size_t done = 0;
    while (done < work->bytes) {
        size_t bytes = work->bytes - done;
        ssize_t moved = port->store->transfer(port->store, port->port, work->memory + done, bytes,
                                              work->file_offset + done);
        if (moved < 0 && errno != EINTR && errno != EAGAIN)
            return errno;
        if (moved == 0)
            return 0;
        if (moved >
            0) /* a partial block is transferred again: O_DIRECT continues only at block borders */
            done += (size_t)moved - ((size_t)moved < bytes ? (size_t)moved % COH_PAGE_BYTES : 0);
    }
    return COH_STORE_NO_ERROR;
}

/* ---- handing pieces out, under the lock ---- */

/* Returns the oldest request with bytes to hand out. A failed request hands out no more. */
static coh_threads_slot *find_work(coh_threads_port *port)
{
    coh_threads_slot *oldest = NULL;
    for (uint32_t i = 0; i < port->store->base.config.port_depth; i++) {
        coh_threads_slot *slot = &port->slots[i];
        if (slot->state == COH_SLOT_ACTIVE && slot->error == COH_STORE_NO_ERROR &&
            slot->next_bytes < slot->request.bytes &&
            (oldest == NULL || slot->sequence < oldest->sequence))
            oldest = slot;
    }
    return oldest;
}

static piece take(coh_threads_slot *slot)
{
    size_t left = slot->request.bytes - slot->next_bytes;
    piece work = { .slot = slot,
                   .memory = (unsigned char *)slot->request.memory + slot->next_bytes,
                   .file_offset = slot->request.file_offset + slot->next_bytes,
                   .bytes = left < COH_STORE_PIECE_BYTES ? left : COH_STORE_PIECE_BYTES };
    slot->next_bytes += work.bytes;
    slot->piece_count++;
    return work;
}

static void give_back(coh_threads_port *port, coh_threads_slot *slot, int error)
{
    slot->piece_count--;
    if (error != COH_STORE_NO_ERROR && slot->error == COH_STORE_NO_ERROR)
        slot->error = error;
    int handed_out = slot->next_bytes == slot->request.bytes || slot->error != COH_STORE_NO_ERROR;
    if (slot->piece_count > 0 || !handed_out)
        return;
    slot->state = COH_SLOT_DONE;
    slot->finished = port->finished++;
    port->active_count--;
    port->done_count++;
    pthread_cond_signal(&port->done);
}

static void *run_thread(void *argument)
{
    coh_threads_port *port = argument;
    pthread_mutex_lock(&port->lock);
    for (;;) {
        coh_threads_slot *slot = find_work(port);
        if (slot != NULL) {
            piece work = take(slot);
            pthread_mutex_unlock(&port->lock);
            int error = move(port, &work);
            pthread_mutex_lock(&port->lock);
            give_back(port, slot, error);
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
    coh_threads_store *threads = (coh_threads_store *)store;
    coh_threads_port *port = &threads->ports[which];
    COH_TRY(coh_store_base_allow(store, request));
    uint64_t checksum = which == COH_STORE_WRITES ? coh_checksum_of(request) : 0;
    pthread_mutex_lock(&port->lock);
    uint32_t i = 0;
    while (i < store->config.port_depth && port->slots[i].state != COH_SLOT_FREE)
        i++;
    if (i < store->config.port_depth) {
        port->slots[i] = (coh_threads_slot){ .request = *request,
                                             .checksum = checksum,
                                             .sequence = port->sequence++,
                                             .error = COH_STORE_NO_ERROR,
                                             .state = COH_SLOT_ACTIVE };
        port->active_count++;
        pthread_cond_broadcast(&port->work);
    }
    pthread_mutex_unlock(&port->lock);
    if (i == store->config.port_depth)
        return coh_fail(COH_ERR_INTERNAL, "more than %" PRIu32 " requests in flight on one port",
                        store->config.port_depth);
    return COH_OK;
}

/* Returns the done request to complete next: in order of completion. */
static coh_threads_slot *choose_done(coh_threads_port *port)
{
    coh_threads_slot *chosen = NULL;
    if (port->done_count == 0)
        return NULL;
    for (uint32_t i = 0; i < port->store->base.config.port_depth; i++) {
        coh_threads_slot *slot = &port->slots[i];
        if (slot->state == COH_SLOT_DONE && (chosen == NULL || slot->finished < chosen->finished))
            chosen = slot;
    }
    return chosen;
}

coh_status coh_threads_reap(coh_store *store, coh_store_port which,
                            coh_store_completion *completions, uint32_t least, uint32_t most,
                            uint32_t *out_count)
{
    coh_threads_store *threads = (coh_threads_store *)store;
    coh_threads_port *port = &threads->ports[which];
    uint32_t count = 0;
    int failed = 0;
    pthread_mutex_lock(&port->lock);
    while (count < most) {
        coh_threads_slot *slot = choose_done(port);
        if (slot == NULL) {
            if (count >= least || port->active_count == 0)
                break;
            pthread_cond_wait(&port->done, &port->lock);
            continue;
        }
        coh_threads_slot ended = *slot;
        slot->state = COH_SLOT_FREE;
        port->done_count--;
        pthread_mutex_unlock(&port->lock);
        coh_status status =
            coh_store_base_finish(store, which, &ended.request, ended.checksum, ended.error);
        if (status != COH_OK && !failed++)
            coh_error_save(port->text);
        completions[count++] =
            (coh_store_completion){ .number = ended.request.number, .status = status };
        pthread_mutex_lock(&port->lock);
    }
    pthread_mutex_unlock(&port->lock);
    if (failed)
        coh_error_restore(port->text);
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

/* ---- start and stop ---- */

static coh_status start_port(coh_threads_store *store, coh_store_port which, uint32_t thread_count)
{
    coh_threads_port *port = &store->ports[which];
    COH_TRY(COH_ALLOC(store->base.config.port_depth, &port->slots));
    port->port = which;
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
    coh_free(port->slots);
    *port = (coh_threads_port){ 0 };
}

coh_status coh_threads_start(coh_threads_store *store, uint32_t thread_count,
                             coh_threads_transfer transfer)
{
    coh_status status = COH_OK;
    assert(thread_count >= 1 && thread_count <= COH_THREADS_MOST);
    store->transfer = transfer;
    COH_TRY_GOTO(status, start_port(store, COH_STORE_READS, thread_count), failed);
    COH_TRY_GOTO(status, start_port(store, COH_STORE_WRITES, thread_count), failed);
    return COH_OK;
failed:
    coh_threads_stop(store);
    return status;
}

void coh_threads_stop(coh_threads_store *store)
{
    stop_port(&store->ports[COH_STORE_WRITES]);
    stop_port(&store->ports[COH_STORE_READS]);
}
