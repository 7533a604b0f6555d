/* Hashes grains with XXH3 on the pool as they arrive, in any order, and folds the table of grain
 * hashes in tensor order at the end. Next: logical_hash.h. */
#include "engine/logical_hash.h"

#include <assert.h>
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
#include "kernels/kernels.h"

/* Grain hashes are folded, and tensors written, in the byte order of memory. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are little-endian, so is memory");

struct coh_logical_hash {
    coh_logical_table table; /* our copy */
    uint64_t *grain_begin;   /* of each tensor in a row; [tensor_count]: grains in a row */
    uint64_t *grains;        /* row after row */
    uint8_t *arrived;        /* of each grain */
    coh_pool *pool;
};

static uint64_t grains_of(uint64_t elements)
{
    return elements / COH_GRAIN_ELEMENTS + (elements % COH_GRAIN_ELEMENTS != 0);
}

static uint64_t entry_count(const coh_logical_hash *hash)
{
    return hash->grain_begin[hash->table.tensor_count] * (1 + (uint64_t)hash->table.stream_count);
}

coh_status coh_logical_hash_create(const coh_logical_table *table, coh_pool *pool,
                                   coh_logical_hash **out_hash)
{
    coh_status status = COH_OK;
    coh_logical_hash *hash = NULL;
    uint64_t entries;
    *out_hash = NULL;
    COH_TRY_GOTO(status, COH_ALLOC(1, &hash), done);
    COH_TRY_GOTO(status, coh_logical_table_copy(table, &hash->table), done);
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
                               1 + (uint64_t)hash->table.stream_count, &entries),
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
    coh_logical_table_free(&hash->table);
    coh_free(hash->grain_begin);
    coh_free(hash->grains);
    coh_free(hash->arrived);
    coh_free(hash);
}

void coh_logical_hash_begin(coh_logical_hash *hash)
{
    memset(hash->grains, 0, entry_count(hash) * sizeof(*hash->grains));
    memset(hash->arrived, 0, entry_count(hash));
}

uint64_t coh_grain_hash(const void *data, uint64_t bytes)
{
    return XXH3_64bits(data, bytes);
}

/* Returns the place of a tensor's first grain in a row. */
static uint64_t entry_of(const coh_logical_hash *hash, int row, uint32_t tensor)
{
    return (uint64_t)row * hash->grain_begin[hash->table.tensor_count] + hash->grain_begin[tensor];
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
    if (tensor >= hash->table.tensor_count ||
        (*out_row = coh_logical_row(&hash->table.tensors[tensor], part)) < 0)
        return coh_fail(COH_ERR_INTERNAL, "hash: no tensor %" PRIu32 " part %d", tensor, part);
    const coh_logical_tensor *facts = &hash->table.tensors[tensor];
    const char *what = coh_logical_stream(&hash->table, *out_row)->name;
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
    const coh_state_stream *stream = coh_logical_stream(&hash->table, row);
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
    for (uint32_t i = 0; i < hash->table.tensor_count; i++) {
        const coh_logical_tensor *tensor = &hash->table.tensors[i];
        uint64_t grain_count = grains_of(tensor->elements);
        total = fold_facts(tensor, total);
        for (int part = 0; part <= tensor->stream_count; part++) {
            int row = coh_logical_row(tensor, part);
            uint64_t entry = entry_of(hash, row, i);
            const uint8_t *gap = memchr(hash->arrived + entry, 0, grain_count);
            if (gap)
                return coh_fail(COH_ERR_INTERNAL,
                                "hash: %s of %s, grain %td of %" PRIu64 " never came",
                                coh_logical_stream(&hash->table, row)->name, tensor->name,
                                gap - (hash->arrived + entry), grain_count);
            total = XXH3_64bits_withSeed(hash->grains + entry, grain_count * sizeof(*hash->grains),
                                         total);
        }
    }
    *out_total = XXH3_64bits_withSeed(&applied_count, sizeof(applied_count), total);
    return COH_OK;
}

const coh_logical_table *coh_logical_hash_table(const coh_logical_hash *hash)
{
    return &hash->table;
}

const uint64_t *coh_logical_hash_rows(const coh_logical_hash *hash, uint64_t *out_bytes)
{
    *out_bytes = entry_count(hash) * sizeof(*hash->grains);
    return hash->grains;
}

/* Checks that a row has no entries for a tensor that lacks its stream. */
static coh_status gap_check(const coh_logical_hash *hash, int row, uint32_t tensor)
{
    const coh_logical_tensor *facts = &hash->table.tensors[tensor];
    const uint64_t *grains = &hash->grains[entry_of(hash, row, tensor)];
    if (coh_logical_part(facts, row) >= 0)
        return COH_OK;
    for (uint64_t g = 0; g < grains_of(facts->elements); g++)
        if (grains[g] != 0)
            return coh_fail(COH_ERR_CORRUPT, "grain %" PRIu64 " of %s, %s, has a hash but no data",
                            g, coh_logical_stream(&hash->table, row)->name, facts->name);
    return COH_OK;
}

coh_status coh_logical_hash_take(coh_logical_hash *hash, const uint64_t *rows)
{
    coh_logical_hash_begin(hash);
    memcpy(hash->grains, rows, entry_count(hash) * sizeof(*hash->grains));
    memset(hash->arrived, 1, entry_count(hash));
    for (int row = 1; row <= hash->table.stream_count; row++)
        for (uint32_t i = 0; i < hash->table.tensor_count; i++)
            COH_TRY(gap_check(hash, row, i));
    return COH_OK;
}

uint64_t coh_logical_hash_grain(const coh_logical_hash *hash, int part, uint32_t tensor,
                                uint64_t grain)
{
    assert(tensor < hash->table.tensor_count);
    int row = coh_logical_row(&hash->table.tensors[tensor], part);
    assert(row >= 0);
    return hash->grains[entry_of(hash, row, tensor) + grain];
}
