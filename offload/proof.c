/* One record per chunk: the mark that a read must have. A mark mixes the XXH3 of the bytes with the
 * chunk's identity; the mixing is invertible, so a wrong mark can be traced to its origin. Read
 * proof.h first. */
#include "coh_config.h"

#include "offload/proof.h"

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
    _Atomic uint64_t mark, generation, file_offset, bytes;
    _Atomic uint64_t content_before; /* hash without identity, of the write before the last one */
} record;

struct coh_proof {
    uint32_t chunk_count;
    record *records;
};

/* The mix is one-to-one in the content, so the content can be recovered from a mark (see unmix). A
 * misplaced chunk is then recognised without hashing its bytes once per candidate. */
static uint64_t id_key(coh_chunk_id id)
{
    return coh_rng_mix(coh_rng_mix(id.chunk + UINT64_C(1)) ^ id.generation);
}

static uint64_t unmix(uint64_t mark, coh_chunk_id id)
{
    return mark ^ id_key(id);
}

coh_status coh_proof_create(uint32_t chunk_count, coh_proof **out_proof)
{
    coh_status status = COH_OK;
    coh_proof *proof;
    *out_proof = NULL;
    COH_TRY(COH_ALLOC(1, &proof));
    proof->chunk_count = chunk_count;
    (void)XXH3_64bits("", 0); /* selects its code at the first call: before there are two threads */
    COH_TRY_GOTO(status, COH_ALLOC(chunk_count, &proof->records), failed);
    *out_proof = proof;
    return COH_OK;
failed:
    coh_proof_destroy(proof);
    return status;
}

void coh_proof_destroy(coh_proof *proof)
{
    if (proof == NULL)
        return;
    coh_free(proof->records);
    coh_free(proof);
}

uint64_t coh_proof_mark(const coh_store_request *request)
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

static uint64_t content_of(const coh_proof *proof, uint32_t chunk)
{
    const record *kept = &proof->records[chunk];
    coh_chunk_id id = { .chunk = chunk, .generation = get(&kept->generation) };
    return unmix(get(&kept->mark), id);
}

void coh_proof_record(coh_proof *proof, const coh_store_request *request, uint64_t mark)
{
    record *kept = &proof->records[request->id.chunk];
    set(&kept->content_before, content_of(proof, request->id.chunk));
    set(&kept->mark, mark);
    set(&kept->generation, request->id.generation);
    set(&kept->file_offset, request->file_offset);
    set(&kept->bytes, request->bytes);
}

void coh_proof_forget(coh_proof *proof, const coh_store_request *request)
{
    set(&proof->records[request->id.chunk].bytes, 0);
}

/* Returns another chunk with this content, or chunk_count. */
static uint32_t find_owner(const coh_proof *proof, uint64_t content, uint64_t bytes)
{
    uint32_t chunk = 0;
    while (chunk < proof->chunk_count &&
           (get(&proof->records[chunk].bytes) != bytes || content_of(proof, chunk) != content))
        chunk++;
    return chunk;
}

static coh_status tell_wrong_bytes(const coh_proof *proof, const coh_store_request *request,
                                   uint64_t content)
{
    const record *kept = &proof->records[request->id.chunk];
    uint32_t owner = find_owner(proof, content, request->bytes);
    if (content == get(&kept->content_before))
        return coh_fail(COH_ERR_CORRUPT,
                        "chunk %" PRIu32 " at file offset %" PRIu64 " is stale: generation %" PRIu64
                        " was written, the disk gave what stood there before (a lost write)",
                        request->id.chunk, request->file_offset, request->id.generation);
    if (owner < proof->chunk_count)
        return coh_fail(COH_ERR_CORRUPT,
                        "chunk %" PRIu32 " at file offset %" PRIu64 ", generation %" PRIu64
                        ", is misplaced: the bytes read are those of chunk %" PRIu32
                        ", which belongs at %" PRIu64,
                        request->id.chunk, request->file_offset, request->id.generation, owner,
                        get(&proof->records[owner].file_offset));
    return coh_fail(COH_ERR_CORRUPT,
                    "chunk %" PRIu32 " at file offset %" PRIu64 ", generation %" PRIu64
                    ", %zu bytes, is torn or damaged: its checksum is %016" PRIx64
                    ", expected %016" PRIx64 "; check the disk and resume from the checkpoint",
                    request->id.chunk, request->file_offset, request->id.generation, request->bytes,
                    content, content_of(proof, request->id.chunk));
}

coh_status coh_proof_check(const coh_proof *proof, const coh_store_request *request)
{
    const record *kept = &proof->records[request->id.chunk];
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
    uint64_t mark = coh_proof_mark(request);
    if (mark != get(&kept->mark))
        return tell_wrong_bytes(proof, request, unmix(mark, request->id));
    return COH_OK;
}
