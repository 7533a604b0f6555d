/* One record per chunk: the checksum that a read must have. A checksum mixes the XXH3 of the bytes
 * with the chunk's identity; the mixing is invertible, so a wrong checksum can be traced to its
 * origin. Read checksum.h first. */
#include "coh_config.h"

#include "offload/checksum.h"

#include <inttypes.h>
#include <stdatomic.h>
#ifdef COH_HAVE_XXH_DISPATCH
#include <xxh_x86dispatch.h> /* equal values, with the widest registers available */
#else
#include <xxhash.h>
#endif

#include "base/alloc.h"
#include "base/rng.h"

/* bytes 0: no valid write yet. */
typedef struct record {
    _Atomic uint64_t checksum, generation, file_offset, bytes;
    _Atomic uint64_t content_before; /* hash without identity, of the write before the last one */
} record;

struct coh_checksum_table {
    uint32_t chunk_count;
    record *records;
};

/* The mix is one-to-one in the content, so the content can be recovered from a checksum (see
 * unmix). A misplaced chunk is then recognised without hashing its bytes once per candidate. */
static uint64_t id_key(coh_chunk_id id)
{
    return coh_rng_mix(coh_rng_mix(id.chunk + UINT64_C(1)) ^ id.generation);
}

static uint64_t unmix(uint64_t checksum, coh_chunk_id id)
{
    return checksum ^ id_key(id);
}

coh_status coh_checksum_table_create(uint32_t chunk_count, coh_checksum_table **out_table)
{
    coh_status status = COH_OK;
    coh_checksum_table *table;
    *out_table = NULL;
    COH_TRY(COH_ALLOC(1, &table));
    table->chunk_count = chunk_count;
    (void)XXH3_64bits("", 0); /* selects its code at the first call: before there are two threads */
    COH_TRY_GOTO(status, COH_ALLOC(chunk_count, &table->records), failed);
    *out_table = table;
    return COH_OK;
failed:
    coh_checksum_table_destroy(table);
    return status;
}

void coh_checksum_table_destroy(coh_checksum_table *table)
{
    if (table == NULL)
        return;
    coh_free(table->records);
    coh_free(table);
}

uint64_t coh_checksum_of(const coh_store_request *request)
{
    return XXH3_64bits(request->memory, request->bytes) ^ id_key(request->id);
}

static uint64_t get(const _Atomic uint64_t *field)
{
    return atomic_load_explicit(field, memory_order_relaxed);
}

static void set(_Atomic uint64_t *field, uint64_t value)
{
    atomic_store_explicit(field, value, memory_order_relaxed);
}

static uint64_t content_of(const coh_checksum_table *table, uint32_t chunk)
{
    const record *kept = &table->records[chunk];
    coh_chunk_id id = { .chunk = chunk, .generation = get(&kept->generation) };
    return unmix(get(&kept->checksum), id);
}

void coh_checksum_table_record(coh_checksum_table *table, const coh_store_request *request,
                               uint64_t checksum)
{
    record *kept = &table->records[request->id.chunk];
    set(&kept->content_before, content_of(table, request->id.chunk));
    set(&kept->checksum, checksum);
    set(&kept->generation, request->id.generation);
    set(&kept->file_offset, request->file_offset);
    set(&kept->bytes, request->bytes);
}

void coh_checksum_table_forget(coh_checksum_table *table, const coh_store_request *request)
{
    set(&table->records[request->id.chunk].bytes, 0);
}

/* Returns another chunk with this content, or chunk_count. */
static uint32_t find_owner(const coh_checksum_table *table, uint64_t content, uint64_t bytes)
{
    uint32_t chunk = 0;
    while (chunk < table->chunk_count &&
           (get(&table->records[chunk].bytes) != bytes || content_of(table, chunk) != content))
        chunk++;
    return chunk;
}

static coh_status tell_wrong_bytes(const coh_checksum_table *table,
                                   const coh_store_request *request, uint64_t content)
{
    const record *kept = &table->records[request->id.chunk];
    uint32_t owner = find_owner(table, content, request->bytes);
    if (content == get(&kept->content_before))
        return coh_fail(COH_ERR_CORRUPT,
                        "chunk %" PRIu32 " at file offset %" PRIu64 " is stale: generation %" PRIu64
                        " was written, the disk returned the bytes from before (a lost write)",
                        request->id.chunk, request->file_offset, request->id.generation);
    if (owner < table->chunk_count)
        return coh_fail(COH_ERR_CORRUPT,
                        "chunk %" PRIu32 " at file offset %" PRIu64 ", generation %" PRIu64
                        ", is misplaced: the bytes read are those of chunk %" PRIu32
                        ", which belongs at %" PRIu64,
                        request->id.chunk, request->file_offset, request->id.generation, owner,
                        get(&table->records[owner].file_offset));
    return coh_fail(COH_ERR_CORRUPT,
                    "chunk %" PRIu32 " at file offset %" PRIu64 ", generation %" PRIu64
                    ", %zu bytes, is torn or damaged: its checksum is %016" PRIx64
                    ", expected %016" PRIx64 "; check the disk and resume from the checkpoint",
                    request->id.chunk, request->file_offset, request->id.generation, request->bytes,
                    content, content_of(table, request->id.chunk));
}

coh_status coh_checksum_table_check(const coh_checksum_table *table,
                                    const coh_store_request *request)
{
    const record *kept = &table->records[request->id.chunk];
    uint64_t generation = get(&kept->generation);
    uint64_t bytes = get(&kept->bytes);
    if (bytes == 0)
        return coh_fail(COH_ERR_CORRUPT,
                        "chunk %" PRIu32 " at file offset %" PRIu64 ", generation %" PRIu64
                        ", was read but never written whole",
                        request->id.chunk, request->file_offset, request->id.generation);
    if (bytes != request->bytes)
        return coh_fail(COH_ERR_CORRUPT,
                        "chunk %" PRIu32 " at file offset %" PRIu64 ": %zu bytes read, %" PRIu64
                        " were written",
                        request->id.chunk, request->file_offset, request->bytes, bytes);
    if (generation != request->id.generation)
        return coh_fail(COH_ERR_CORRUPT,
                        "chunk %" PRIu32 " at file offset %" PRIu64 " is %s: generation %" PRIu64
                        " expected, the store holds %" PRIu64,
                        request->id.chunk, request->file_offset,
                        generation < request->id.generation ? "stale" : "too new",
                        request->id.generation, generation);
    if (get(&kept->file_offset) != request->file_offset)
        return coh_fail(COH_ERR_CORRUPT,
                        "chunk %" PRIu32 ", generation %" PRIu64 ", is misplaced: read at file "
                        "offset %" PRIu64 ", written at %" PRIu64,
                        request->id.chunk, request->id.generation, request->file_offset,
                        get(&kept->file_offset));
    uint64_t checksum = coh_checksum_of(request);
    if (checksum != get(&kept->checksum))
        return tell_wrong_bytes(table, request, unmix(checksum, request->id));
    return COH_OK;
}
