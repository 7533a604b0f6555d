/* Checks tables of tensors and state streams, hashes grains with XXH3 on the pool as they
 * arrive, in any order, and folds the table of grain hashes in tensor order at the end. Next:
 * logical_hash.h. */
#include "engine/logical_hash.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "coh_config.h"
#ifdef COH_HAVE_XXH_DISPATCH
#include <xxh_x86dispatch.h> /* widest registers, same values */
#else
#include <xxhash.h>
#endif

#include "base/alloc.h"
#include "base/bytes.h"
#include "kernels/kernels.h"

/* Grain hashes are folded, and tensors written, in the byte order of memory. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are little-endian, so is memory");

/* ---- tables ---- */

enum { BLOCK_BYTES_MOST = 4096, BLOCK_ELEMENTS_MOST = 1024 };

int coh_logical_is_name(const char *name)
{
    const size_t length = strlen(name);
    return length > 0 && length < COH_OPTIMIZER_NAME_BYTES &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == length;
}

const coh_state_stream *coh_logical_stream(const coh_logical_table *table, int row)
{
    static const coh_state_stream work = { "work", sizeof(float), 1, 1 };
    return row == 0 ? &work : &table->streams[row - 1];
}

int coh_logical_row(const coh_logical_tensor *tensor, int part)
{
    if (part < 0 || part > tensor->stream_count)
        return -1;
    return part == COH_PART_WORK ? 0 : 1 + tensor->streams[part - 1];
}

int coh_logical_part(const coh_logical_tensor *tensor, int row)
{
    for (int part = 0; part <= tensor->stream_count; part++)
        if (coh_logical_row(tensor, part) == row)
            return part;
    return -1;
}

static coh_status stream_check(const coh_logical_table *table, int32_t index)
{
    const coh_state_stream *stream = &table->streams[index];
    const uint32_t elements = stream->elements_per_block;
    if (!stream->name || !coh_logical_is_name(stream->name))
        return coh_fail(COH_ERR_ARGUMENT,
                        "stream %" PRId32 ": its name is not 1 to %d of a-z, 0-9 and _", index,
                        COH_OPTIMIZER_NAME_BYTES - 1);
    if (stream->bytes_per_block < 1 || stream->bytes_per_block > BLOCK_BYTES_MOST)
        return coh_fail(COH_ERR_ARGUMENT, "stream %s: blocks of %" PRIu32 " bytes, not of 1 to %d",
                        stream->name, stream->bytes_per_block, BLOCK_BYTES_MOST);
    if (elements < 1 || elements > BLOCK_ELEMENTS_MOST || (elements & (elements - 1)) != 0)
        return coh_fail(COH_ERR_ARGUMENT,
                        "stream %s: blocks of %" PRIu32
                        " elements, not of a power of two from 1 to %d",
                        stream->name, elements, BLOCK_ELEMENTS_MOST);
    if (stream->is_f32 && stream->bytes_per_block % sizeof(float) != 0)
        return coh_fail(COH_ERR_ARGUMENT, "stream %s: a block of %" PRIu32 " bytes is not f32",
                        stream->name, stream->bytes_per_block);
    for (int32_t i = 0; i < index; i++)
        if (strcmp(stream->name, table->streams[i].name) == 0)
            return coh_fail(COH_ERR_ARGUMENT, "stream %s is there twice", stream->name);
    if (strcmp(stream->name, "work") == 0 || strcmp(stream->name, "hashes") == 0 ||
        strcmp(stream->name, "manifest") == 0)
        return coh_fail(COH_ERR_ARGUMENT, "stream %s: another file of a checkpoint has the name",
                        stream->name);
    return COH_OK;
}

static coh_status shape_check(const coh_logical_tensor *tensor)
{
    if (!tensor->name || tensor->shape.dtype != COH_DTYPE_F32 || tensor->shape.rank < 1 ||
        tensor->shape.rank > COH_RANK_MAX)
        return coh_fail(COH_ERR_ARGUMENT, "tensor %s: not a named f32 tensor of 1 to %d dimensions",
                        tensor->name ? tensor->name : "(none)", COH_RANK_MAX);
    uint64_t elements = 1;
    for (int i = 0; i < tensor->shape.rank; i++) {
        if (tensor->shape.dim[i] < 1)
            return coh_fail(COH_ERR_ARGUMENT, "tensor %s: dimension %d is %" PRId64, tensor->name,
                            i, tensor->shape.dim[i]);
        COH_TRY(coh_bytes_mul(elements, (uint64_t)tensor->shape.dim[i], &elements));
    }
    if (elements != tensor->elements)
        return coh_fail(COH_ERR_ARGUMENT,
                        "tensor %s: %" PRIu64 " elements are given, its shape has %" PRIu64,
                        tensor->name, tensor->elements, elements);
    return COH_OK;
}

static coh_status part_check(const coh_logical_table *table, const coh_logical_tensor *tensor,
                             int part)
{
    const int32_t index = part == COH_PART_WORK ? -1 : tensor->streams[part - 1];
    if (part != COH_PART_WORK && (index < 0 || index >= table->stream_count))
        return coh_fail(COH_ERR_ARGUMENT, "tensor %s: stream %" PRId32 " of %" PRId32, tensor->name,
                        index, table->stream_count);
    const int row = coh_logical_row(tensor, part);
    const coh_state_stream *stream = coh_logical_stream(table, row);
    if (coh_logical_part(tensor, row) != part)
        return coh_fail(COH_ERR_ARGUMENT, "tensor %s has stream %s twice", tensor->name,
                        stream->name);
    uint64_t bytes, blocks = tensor->elements / stream->elements_per_block +
                             (tensor->elements % stream->elements_per_block != 0);
    if (coh_bytes_mul(blocks, stream->bytes_per_block, &bytes) != COH_OK || bytes > INT64_MAX)
        return coh_fail(COH_ERR_FULL, "%s of tensor %s: larger than a file can be", stream->name,
                        tensor->name);
    return COH_OK;
}

static coh_status tensor_check(const coh_logical_table *table, const coh_logical_tensor *tensor)
{
    COH_TRY(shape_check(tensor));
    if (tensor->optimizer && !coh_logical_is_name(tensor->optimizer))
        return coh_fail(COH_ERR_ARGUMENT,
                        "tensor %s: the name of its optimizer is not 1 to %d of a-z, 0-9 and _",
                        tensor->name, COH_OPTIMIZER_NAME_BYTES - 1);
    const int32_t most = tensor->optimizer ? COH_OPTIMIZER_STREAMS : 0;
    if (tensor->stream_count < 0 || tensor->stream_count > most)
        return coh_fail(COH_ERR_ARGUMENT,
                        "tensor %s: %" PRId32 " streams, at most %" PRId32 " with %s", tensor->name,
                        tensor->stream_count, most,
                        tensor->optimizer ? "an optimizer" : "no optimizer");
    for (int part = 0; part <= tensor->stream_count; part++)
        COH_TRY(part_check(table, tensor, part));
    return COH_OK;
}

static coh_status usage_check(const coh_logical_table *table, int row)
{
    for (uint32_t i = 0; i < table->tensor_count; i++)
        if (coh_logical_part(&table->tensors[i], row) >= 0)
            return COH_OK;
    return coh_fail(COH_ERR_ARGUMENT, "no tensor has stream %s",
                    coh_logical_stream(table, row)->name);
}

coh_status coh_logical_table_check(const coh_logical_table *table)
{
    if (table->stream_count < 0 || table->stream_count > COH_LOGICAL_STREAMS)
        return coh_fail(COH_ERR_ARGUMENT, "%" PRId32 " streams, not 0 to %d", table->stream_count,
                        COH_LOGICAL_STREAMS);
    for (int32_t i = 0; i < table->stream_count; i++)
        COH_TRY(stream_check(table, i));
    for (uint32_t i = 0; i < table->tensor_count; i++)
        COH_TRY(tensor_check(table, &table->tensors[i]));
    for (int row = 1; row <= table->stream_count; row++)
        COH_TRY(usage_check(table, row));
    return COH_OK;
}

/* ---- hashes ---- */

struct coh_logical_hash {
    const coh_logical_table *table;
    uint64_t *grain_begin; /* of each tensor in a row; [tensor_count]: grains in a row */
    uint64_t *grains;      /* row after row */
    uint8_t *arrived;      /* of each grain */
    coh_pool *pool;
};

static uint64_t grains_of(uint64_t elements)
{
    return elements / COH_GRAIN_ELEMENTS + (elements % COH_GRAIN_ELEMENTS != 0);
}

static uint64_t entry_count(const coh_logical_hash *hash)
{
    return hash->grain_begin[hash->table->tensor_count] * (1 + (uint64_t)hash->table->stream_count);
}

coh_status coh_logical_hash_create(const coh_logical_table *table, coh_pool *pool,
                                   coh_logical_hash **out_hash)
{
    coh_status status = COH_OK;
    coh_logical_hash *hash = NULL;
    uint64_t entries;
    *out_hash = NULL;
    COH_TRY(coh_logical_table_check(table));
    COH_TRY(COH_ALLOC(1, &hash));
    hash->table = table;
    COH_TRY_GOTO(status, COH_ALLOC((size_t)table->tensor_count + 1, &hash->grain_begin), done);
    hash->pool = pool;
    (void)XXH3_64bits("", 0); /* selects its code, before the pool's threads do */
    for (uint32_t i = 0; i < table->tensor_count; i++)
        COH_TRY_GOTO(status,
                     coh_bytes_add(hash->grain_begin[i], grains_of(table->tensors[i].elements),
                                   &hash->grain_begin[i + 1]),
                     done);
    COH_TRY_GOTO(status,
                 coh_bytes_mul(hash->grain_begin[table->tensor_count],
                               1 + (uint64_t)hash->table->stream_count, &entries),
                 done);
    COH_TRY_GOTO(status, COH_ALLOC(entries, &hash->grains), done);
    COH_TRY_GOTO(status, COH_ALLOC(entries, &hash->arrived), done);
    *out_hash = hash;
    hash = NULL;
done:
    coh_logical_hash_destroy(hash);
    return status;
}

void coh_logical_hash_destroy(coh_logical_hash *hash)
{
    if (!hash)
        return;
    coh_free(hash->grain_begin);
    coh_free(hash->grains);
    coh_free(hash->arrived);
    coh_free(hash);
}

/* Returns the place of a tensor's first grain in a row. */
static uint64_t entry_of(const coh_logical_hash *hash, int row, uint32_t tensor)
{
    return (uint64_t)row * hash->grain_begin[hash->table->tensor_count] + hash->grain_begin[tensor];
}

void coh_logical_hash_begin(coh_logical_hash *hash)
{
    memset(hash->grains, 0, entry_count(hash) * sizeof(*hash->grains));
    memset(hash->arrived, 0, entry_count(hash));
}

/* Forgets the grains of one part of a tensor. */
static void forget_part(coh_logical_hash *hash, uint32_t tensor, int part)
{
    const coh_logical_tensor *facts = &hash->table->tensors[tensor];
    const uint64_t entry = entry_of(hash, coh_logical_row(facts, part), tensor);
    const uint64_t count = grains_of(facts->elements);
    memset(&hash->grains[entry], 0, count * sizeof(*hash->grains));
    memset(&hash->arrived[entry], 0, count);
}

void coh_logical_hash_begin_trained(coh_logical_hash *hash)
{
    for (uint32_t i = 0; i < hash->table->tensor_count; i++) {
        const coh_logical_tensor *tensor = &hash->table->tensors[i];
        for (int part = 0; part <= tensor->stream_count && tensor->optimizer != NULL; part++)
            forget_part(hash, i, part);
    }
}

void coh_logical_hash_copy_work(coh_logical_hash *hash, uint32_t tensor,
                                const coh_logical_hash *source, uint32_t source_tensor)
{
    const uint64_t count = grains_of(hash->table->tensors[tensor].elements);
    const uint64_t entry = entry_of(hash, 0, tensor);
    memcpy(&hash->grains[entry], &source->grains[entry_of(source, 0, source_tensor)],
           count * sizeof(*hash->grains));
    memset(&hash->arrived[entry], 1, count);
}

uint64_t coh_grain_hash(const void *data, uint64_t bytes)
{
    return XXH3_64bits(data, bytes);
}

/* The grains of a put; each grain is one piece for the pool. */
typedef struct put_job {
    const char *data;
    uint64_t count;
    const coh_state_stream *stream;
    uint64_t *grains;           /* receives their hashes */
    int looks;                  /* 1: look for broken values */
    _Atomic uint64_t first_bad; /* lowest grain with a broken value; pieces lower it */
} put_job;

static int is_finite(const void *data, uint64_t bytes)
{
    return coh_kernel_all_finite(COH_DTYPE_F32, data, (int64_t)(bytes / sizeof(float)));
}

static void put_piece(void *argument, int64_t index)
{
    put_job *job = argument;
    uint64_t begin = (uint64_t)index * COH_GRAIN_ELEMENTS, left = job->count - begin;
    uint64_t bytes =
        coh_state_bytes(job->stream, left < COH_GRAIN_ELEMENTS ? left : COH_GRAIN_ELEMENTS);
    const char *data = job->data + coh_state_bytes(job->stream, begin);
    job->grains[index] = coh_grain_hash(data, bytes);
    if (!job->looks || is_finite(data, bytes))
        return;
    uint64_t lowest = atomic_load(&job->first_bad);
    while ((uint64_t)index < lowest &&
           !atomic_compare_exchange_weak(&job->first_bad, &lowest, (uint64_t)index))
        continue;
}

/* Returns the first element of the first block with a NaN or infinite value, from grain `grain` on;
 * the count if there is none. */
static uint64_t first_broken(const put_job *job, uint64_t grain)
{
    const coh_state_stream *stream = job->stream;
    uint64_t i = grain * COH_GRAIN_ELEMENTS;
    while (i < job->count &&
           is_finite(job->data + coh_state_bytes(stream, i), stream->bytes_per_block))
        i += stream->elements_per_block;
    return i < job->count ? i : job->count; /* the last grain may be short */
}

/* Marks the grains of a put as arrived. */
static coh_status expect_grains(coh_logical_hash *hash, int part, uint32_t tensor,
                                uint64_t element_begin, uint64_t count, int *out_row)
{
    if (tensor >= hash->table->tensor_count ||
        (*out_row = coh_logical_row(&hash->table->tensors[tensor], part)) < 0)
        return coh_fail(COH_ERR_INTERNAL, "hash: no tensor %" PRIu32 " part %d", tensor, part);
    const coh_logical_tensor *facts = &hash->table->tensors[tensor];
    const char *what = coh_logical_stream(hash->table, *out_row)->name;
    uint64_t end = element_begin + count;
    if (count == 0 || end < count || end > facts->elements ||
        element_begin % COH_GRAIN_ELEMENTS != 0 ||
        (end % COH_GRAIN_ELEMENTS != 0 && end != facts->elements))
        return coh_fail(COH_ERR_INTERNAL,
                        "hash: %s of %s has no whole grains [%" PRIu64 ", %" PRIu64 ")", what,
                        facts->name, element_begin, end);
    uint64_t first = element_begin / COH_GRAIN_ELEMENTS;
    uint8_t *arrived = &hash->arrived[entry_of(hash, *out_row, tensor) + first];
    for (uint64_t grain = 0; grain < grains_of(count); grain++) {
        if (arrived[grain])
            return coh_fail(COH_ERR_INTERNAL, "hash: %s of %s, grain %" PRIu64 " came twice", what,
                            facts->name, first + grain);
        arrived[grain] = 1;
    }
    return COH_OK;
}

coh_status coh_logical_hash_put(coh_logical_hash *hash, int part, uint32_t tensor,
                                uint64_t element_begin, uint64_t count, const void *data,
                                uint64_t *out_broken)
{
    int row;
    COH_TRY(expect_grains(hash, part, tensor, element_begin, count, &row));
    const coh_state_stream *stream = coh_logical_stream(hash->table, row);
    put_job job = {
        .data = data,
        .count = count,
        .stream = stream,
        .grains = &hash->grains[entry_of(hash, row, tensor) + element_begin / COH_GRAIN_ELEMENTS],
        .looks = out_broken != NULL && stream->is_f32,
        .first_bad = grains_of(count)
    };
    coh_pool_run(hash->pool, (int64_t)grains_of(count), put_piece, &job);
    if (out_broken != NULL)
        *out_broken = first_broken(&job, atomic_load(&job.first_bad));
    return COH_OK;
}

static uint64_t fold_facts(const coh_logical_tensor *tensor, uint64_t total)
{
    int64_t shape[COH_RANK_MAX + 2] = { tensor->optimizer != NULL, tensor->shape.rank };
    for (int i = 0; i < tensor->shape.rank; i++)
        shape[i + 2] = tensor->shape.dim[i];
    total = XXH3_64bits_withSeed(tensor->name, strlen(tensor->name), total);
    return XXH3_64bits_withSeed(shape, sizeof(shape), total);
}

coh_status coh_logical_hash_finish(const coh_logical_hash *hash, uint64_t applied_count,
                                   uint64_t *out_total)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < hash->table->tensor_count; i++) {
        const coh_logical_tensor *tensor = &hash->table->tensors[i];
        uint64_t grain_count = grains_of(tensor->elements);
        total = fold_facts(tensor, total);
        for (int part = 0; part <= tensor->stream_count; part++) {
            int row = coh_logical_row(tensor, part);
            uint64_t entry = entry_of(hash, row, i);
            const uint8_t *gap = memchr(hash->arrived + entry, 0, grain_count);
            if (gap)
                return coh_fail(COH_ERR_INTERNAL,
                                "hash: %s of %s, grain %td of %" PRIu64 " never came",
                                coh_logical_stream(hash->table, row)->name, tensor->name,
                                gap - (hash->arrived + entry), grain_count);
            total = XXH3_64bits_withSeed(hash->grains + entry, grain_count * sizeof(*hash->grains),
                                         total);
        }
    }
    *out_total = XXH3_64bits_withSeed(&applied_count, sizeof(applied_count), total);
    return COH_OK;
}

uint64_t *coh_logical_hash_rows(coh_logical_hash *hash, uint64_t *out_bytes)
{
    *out_bytes = entry_count(hash) * sizeof(*hash->grains);
    return hash->grains;
}

/* Checks that a row has no entries for a tensor that lacks its stream. */
static coh_status gap_check(const coh_logical_hash *hash, int row, uint32_t tensor)
{
    const coh_logical_tensor *facts = &hash->table->tensors[tensor];
    const uint64_t *grains = &hash->grains[entry_of(hash, row, tensor)];
    if (coh_logical_part(facts, row) >= 0)
        return COH_OK;
    for (uint64_t g = 0; g < grains_of(facts->elements); g++)
        if (grains[g] != 0)
            return coh_fail(COH_ERR_CORRUPT, "grain %" PRIu64 " of %s, %s, has a hash but no data",
                            g, coh_logical_stream(hash->table, row)->name, facts->name);
    return COH_OK;
}

coh_status coh_logical_hash_take(coh_logical_hash *hash)
{
    memset(hash->arrived, 1, entry_count(hash));
    for (int row = 1; row <= hash->table->stream_count; row++)
        for (uint32_t i = 0; i < hash->table->tensor_count; i++)
            COH_TRY(gap_check(hash, row, i));
    return COH_OK;
}

uint64_t coh_logical_hash_grain(const coh_logical_hash *hash, int row, uint32_t tensor,
                                uint64_t grain)
{
    return hash->grains[entry_of(hash, row, tensor) + grain];
}
