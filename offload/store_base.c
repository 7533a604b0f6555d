/* Common parts of all stores: checking the config and the requests, facts, error texts, the
 * requests in flight up to their end, where a write is recorded and a read is checked
 * (checksum.h), and the choice of a backend: io_uring, else posix. Read store_base.h first. */
#include "offload/store_base.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/bytes.h"

/* More requests in flight per port are a mistake, not a plan. */
#define PORT_DEPTH_MOST 1024u

coh_status coh_store_base_init(coh_store *base, const coh_store_config *config, const char *backend)
{
    if (config->bytes == 0 || config->bytes % COH_PAGE_BYTES != 0 || config->bytes > INT64_MAX)
        return coh_fail(COH_ERR_ARGUMENT,
                        "a store of %" PRIu64 " bytes: it must be a positive multiple of %u",
                        config->bytes, COH_PAGE_BYTES);
    if (config->port_depth == 0 || config->port_depth > PORT_DEPTH_MOST)
        return coh_fail(COH_ERR_ARGUMENT, "a store with %" PRIu32 " requests per port: 1 to %u",
                        config->port_depth, PORT_DEPTH_MOST);
    if (config->disk_count > COH_DISKS_MOST)
        return coh_fail(COH_ERR_ARGUMENT, "a store in %" PRIu32 " folders: at most %d",
                        config->disk_count, COH_DISKS_MOST);
    coh_status status = COH_OK;
    base->config = *config;
    base->config.disks = base->disks;
    for (int i = 0; i < COH_DISKS_MOST; i++)
        base->fds[i] = -1;
    COH_TRY_GOTO(status, coh_checksum_table_create(config->chunk_count, &base->checksums), failed);
    for (uint32_t i = 0; i < config->disk_count; i++) {
        COH_TRY_GOTO(status, coh_alloc_text(config->disks[i].folder, &base->folders[i]), failed);
        base->disks[i] = config->disks[i];
        base->disks[i].folder = base->folders[i];
    }
    COH_TRY_GOTO(status,
                 coh_stripe_init(&base->stripe, base->disks, config->disk_count, config->bytes),
                 failed);
    base->facts = (coh_store_facts){ .block_bytes = COH_PAGE_BYTES,
                                     .queue_depth = config->queue_depth,
                                     .backend = backend };
    return COH_OK;
failed:
    coh_store_base_fini(base);
    return status;
}

void coh_store_base_fini(coh_store *base)
{
    coh_checksum_table_destroy(base->checksums);
    base->checksums = NULL;
    coh_stripe_fini(&base->stripe);
    for (uint32_t i = 0; i < base->config.disk_count; i++) {
        if (base->fds[i] >= 0) {
            /* A ring keeps its file open until the kernel has closed the ring, some time after this
             * process did. The space is free at once. */
            (void)ftruncate(base->fds[i], 0);
            (void)close(base->fds[i]);
        }
        base->fds[i] = -1;
        coh_free(base->folders[i]);
        base->folders[i] = NULL;
    }
}

void coh_store_base_say(coh_store *base, const char *format, ...)
{
    size_t used = strlen(base->reason);
    if (used > 0 && used + 3 < sizeof(base->reason)) {
        memcpy(base->reason + used, "; ", 3);
        used += 2;
    }
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(base->reason + used, sizeof(base->reason) - used, format, arguments);
    va_end(arguments);
    base->facts.reason = base->reason;
}

coh_status coh_store_base_facts(const coh_store *store, coh_store_facts *out_facts)
{
    *out_facts = store->facts;
    out_facts->retry_count = atomic_load_explicit(&store->retry_count, memory_order_relaxed);
    return COH_OK;
}

const char *coh_store_error_text(int error)
{
    const char *text = strerrordesc_np(error);
    return text != NULL ? text : "unknown error";
}

coh_status coh_store_base_allow(const coh_store *base, const coh_store_request *request)
{
    const coh_store_config *config = &base->config;
    int allowed =
        request->id.chunk < config->chunk_count && request->bytes > 0 &&
        request->bytes % COH_PAGE_BYTES == 0 && request->file_offset % COH_PAGE_BYTES == 0 &&
        (uintptr_t)request->memory % COH_PAGE_BYTES == 0 && request->bytes <= config->bytes &&
        request->file_offset <= config->bytes - request->bytes;
    if (!allowed)
        return coh_fail(COH_ERR_INTERNAL,
                        "chunk %" PRIu32 " of %" PRIu32 ", %zu bytes at file offset %" PRIu64
                        ", does not lie on pages inside the store of %" PRIu64 " bytes",
                        request->id.chunk, config->chunk_count, request->bytes,
                        request->file_offset, config->bytes);
    return COH_OK;
}

/* ---- requests in flight ---- */

coh_status coh_store_slots_init(coh_store_slots *slots, coh_store *store, coh_store_port port)
{
    *slots = (coh_store_slots){ .store = store, .port = port };
    return COH_ALLOC(store->config.port_depth, &slots->all);
}

void coh_store_slots_fini(coh_store_slots *slots)
{
    coh_free(slots->all);
    *slots = (coh_store_slots){ 0 };
}

coh_status coh_store_slots_add(coh_store_slots *slots, const coh_store_request *request,
                               uint64_t checksum)
{
    const uint32_t depth = slots->store->config.port_depth;
    uint32_t i = 0;
    while (i < depth && slots->all[i].state != COH_SLOT_FREE)
        i++;
    if (i == depth)
        return coh_fail(COH_ERR_INTERNAL, "more than %" PRIu32 " requests in flight on one port",
                        depth);
    slots->all[i] = (coh_store_slot){ .request = *request,
                                      .checksum = checksum,
                                      .sequence = slots->sequence++,
                                      .error = COH_STORE_NO_ERROR,
                                      .state = COH_SLOT_ACTIVE };
    slots->active_count++;
    return COH_OK;
}

static int has_work(const coh_store_slot *slot)
{
    return slot->error == COH_STORE_NO_ERROR && slot->next_bytes < slot->request.bytes;
}

coh_store_slot *coh_store_slots_oldest(const coh_store_slots *slots, coh_slot_state state)
{
    coh_store_slot *oldest = NULL;
    for (uint32_t i = 0; i < slots->store->config.port_depth; i++) {
        coh_store_slot *slot = &slots->all[i];
        if (slot->state == state && (state == COH_SLOT_DONE || has_work(slot)) &&
            (oldest == NULL || slot->sequence < oldest->sequence))
            oldest = slot;
    }
    return oldest;
}

size_t coh_store_slots_take(coh_store_slots *slots, coh_store_slot *slot, size_t *out_bytes)
{
    const size_t at = slot->next_bytes, left = slot->request.bytes - at;
    uint64_t offset;
    *out_bytes = left < COH_STORE_PIECE_BYTES ? left : COH_STORE_PIECE_BYTES;
    (void)coh_stripe_find(&slots->store->stripe, slot->request.file_offset + at, out_bytes,
                          &offset);
    slot->next_bytes += *out_bytes;
    slot->piece_count++;
    return at;
}

int coh_store_slots_return(coh_store_slots *slots, coh_store_slot *slot, int error,
                           uint64_t file_offset)
{
    slot->piece_count--;
    if (slot->error == COH_STORE_NO_ERROR) {
        slot->error = error;
        slot->error_offset = file_offset;
    }
    if (slot->piece_count > 0 || has_work(slot))
        return 0;
    slot->state = COH_SLOT_DONE;
    slot->sequence = slots->sequence++;
    slots->active_count--;
    slots->done_count++;
    return 1;
}

coh_store_slot coh_store_slots_free(coh_store_slots *slots, coh_store_slot *slot)
{
    slot->state = COH_SLOT_FREE;
    slots->done_count--;
    return *slot;
}

static const char *folder_at(const coh_store *base, uint64_t file_offset)
{
    uint64_t offset;
    const char *folder = base->folders[coh_stripe_find(&base->stripe, file_offset, NULL, &offset)];
    return folder != NULL ? folder : "memory";
}

/* Adds to the error text the folders that hold the chunk: its checksum covers all of its parts. */
static coh_status name_folders(const coh_store *base, const coh_store_request *request,
                               coh_status status)
{
    char list[COH_ERROR_TEXT_BYTES / 2] = "";
    const char *named[COH_DISKS_MOST];
    size_t used = 0;
    uint32_t count = 0;
    for (uint64_t at = 0; at < request->bytes && used < sizeof(list);) {
        size_t bytes = request->bytes - at;
        uint64_t offset;
        uint32_t i = 0;
        const char *folder = folder_at(base, request->file_offset + at);
        (void)coh_stripe_find(&base->stripe, request->file_offset + at, &bytes, &offset);
        at += bytes;
        while (i < count && named[i] != folder)
            i++;
        if (i < count)
            continue;
        named[count++] = folder;
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s", i > 0 ? " and " : "",
                                 folder);
    }
    return coh_fail_prefix(status, "the working store in %s", list);
}

static coh_status end_request(const coh_store *base, coh_store_port port,
                              const coh_store_slot *ended)
{
    const coh_store_request *request = &ended->request;
    const int reads = port == COH_STORE_READS;
    if (ended->error == COH_STORE_NO_ERROR && reads) {
        const coh_status status = coh_checksum_table_check(base->checksums, request);
        return status == COH_OK ? COH_OK : name_folders(base, request, status);
    }
    if (ended->error == COH_STORE_NO_ERROR) {
        coh_checksum_table_record(base->checksums, request, ended->checksum);
        return COH_OK;
    }
    if (!reads)
        coh_checksum_table_forget(base->checksums, request);
    return coh_fail(COH_ERR_IO,
                    "%s chunk %" PRIu32 ", %zu bytes at file offset %" PRIu64
                    " of the working store in %s failed: %s",
                    reads ? "reading" : "writing", request->id.chunk, request->bytes,
                    request->file_offset, folder_at(base, ended->error_offset),
                    ended->error == 0 ? "the file ended" : coh_store_error_text(ended->error));
}

coh_store_completion coh_store_slots_finish(coh_store_slots *slots, const coh_store_slot *ended,
                                            int *failed)
{
    const coh_status status = end_request(slots->store, slots->port, ended);
    if (status != COH_OK && !(*failed)++)
        coh_error_save(slots->text);
    return (coh_store_completion){ .number = ended->request.number, .status = status };
}

/* ---- the choice of a backend ---- */

coh_status coh_store_open_first(const coh_store_config *config,
                                const coh_store_ops *const *backends, uint32_t backend_count,
                                const coh_store_ops **out_ops, coh_store **out_store)
{
    char denied[COH_STORE_REASON_BYTES] = "";
    *out_ops = NULL;
    *out_store = NULL;
    for (uint32_t i = 0; i < backend_count; i++) {
        const coh_store_ops *backend = backends[i];
        coh_status status =
            backend->open != NULL
                ? backend->open(config, out_store)
                : coh_fail(COH_ERR_DEVICE, "%s was not built into this library", backend->name);
        if (status == COH_OK) {
            if (denied[0] != '\0')
                coh_store_base_say(*out_store, "%s, so the %s store is used", denied,
                                   backend->name);
            *out_ops = backend;
            return COH_OK;
        }
        if (status != COH_ERR_DEVICE)
            return status;
        snprintf(denied, sizeof(denied), "%.*s", (int)sizeof(denied) - 1, coh_last_error());
    }
    return coh_fail(COH_ERR_DEVICE, "no kind of working store can be had here: %s", denied);
}

coh_status coh_store_open(const coh_store_config *config, const coh_store_ops *wanted,
                          const coh_store_ops **out_ops, coh_store **out_store)
{
    static const coh_store_ops *const ladder[] = { &coh_store_uring, &coh_store_posix };
    if (wanted != NULL)
        return coh_store_open_first(config, &wanted, 1, out_ops, out_store);
    return coh_store_open_first(config, ladder, 2, out_ops, out_store);
}
