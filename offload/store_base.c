/* Common parts of all stores: checking the config and the requests, facts, error texts, and the end
 * of a request, where a write is recorded and a read is checked (checksum.h). Read store_base.h
 * first. */
#include "offload/store_base.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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
    coh_status status = COH_OK;
    base->config = *config;
    base->config.folder = NULL;
    COH_TRY_GOTO(status, coh_checksum_table_create(config->chunk_count, &base->checksums), failed);
    if (config->folder != NULL) {
        COH_TRY_GOTO(status, coh_alloc_text(config->folder, &base->folder), failed);
        base->config.folder = base->folder;
    }
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
    coh_free(base->folder);
    base->checksums = NULL;
    base->folder = NULL;
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

coh_status coh_store_base_tell(const coh_store *base, coh_store_port port,
                               const coh_store_request *request, int error)
{
    const char *verb = port == COH_STORE_READS ? "reading" : "writing";
    const char *folder = base->config.folder != NULL ? base->config.folder : "memory";
    return coh_fail(COH_ERR_IO,
                    "%s chunk %" PRIu32 ", %zu bytes at file offset %" PRIu64
                    " of the working store in %s failed: %s",
                    verb, request->id.chunk, request->bytes, request->file_offset, folder,
                    error == 0 ? "the file ended" : coh_store_error_text(error));
}

coh_status coh_store_base_finish(coh_store *base, coh_store_port port,
                                 const coh_store_request *request, uint64_t checksum, int error)
{
    if (error != COH_STORE_NO_ERROR) {
        if (port == COH_STORE_WRITES)
            coh_checksum_table_forget(base->checksums, request);
        return coh_store_base_tell(base, port, request, error);
    }
    if (port == COH_STORE_READS)
        return coh_checksum_table_check(base->checksums, request);
    coh_checksum_table_record(base->checksums, request, checksum);
    return COH_OK;
}
