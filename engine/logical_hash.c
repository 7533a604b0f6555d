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

static const char *const part_name[COH_PART_COUNT] = { "work", "m", "v" };

struct coh_logical_hash {
    coh_logical_tensor *tensors;
    uint64_t *grain_begin; /* of each tensor in a row; [tensor_count]: grains in a row */
    uint32_t tensor_count;
    int has_states;
    uint64_t *grains; /* row of work, then m and v if there are states */
    uint8_t *arrived; /* of each grain */
    coh_pool *pool;
};

static uint64_t grains_of(uint64_t elements)
{
    return elements / COH_GRAIN_ELEMENTS + (elements % COH_GRAIN_ELEMENTS != 0);
}

static coh_status tensor_check(const coh_logical_tensor *tensor)
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
    uint64_t bytes;
    COH_TRY(coh_bytes_mul(elements, sizeof(float), &bytes));
    if (bytes > INT64_MAX)
        return coh_fail(COH_ERR_FULL, "tensor %s: larger than a file can be", tensor->name);
    if (elements != tensor->elements)
        return coh_fail(COH_ERR_ARGUMENT,
                        "tensor %s: %" PRIu64 " elements are said, its shape has %" PRIu64,
                        tensor->name, tensor->elements, elements);
    return COH_OK;
}

static coh_status tensors_copy(coh_logical_hash *hash, const coh_logical_tensor *tensors)
{
    for (uint32_t i = 0; i < hash->tensor_count; i++) {
        COH_TRY(tensor_check(&tensors[i]));
        hash->tensors[i] = tensors[i];
        hash->tensors[i].name = NULL;
        char *name = NULL;
        COH_TRY(coh_alloc_text(tensors[i].name, &name));
        hash->tensors[i].name = name;
        hash->has_states |= tensors[i].has_states != 0;
        COH_TRY(coh_bytes_add(hash->grain_begin[i], grains_of(tensors[i].elements),
                              &hash->grain_begin[i + 1]));
    }
    return COH_OK;
}

coh_status coh_logical_hash_create(const coh_logical_tensor *tensors, uint32_t tensor_count,
                                   coh_pool *pool, coh_logical_hash **out_hash)
{
    coh_status status = COH_OK;
    coh_logical_hash *hash = NULL;
    *out_hash = NULL;
    COH_TRY_GOTO(status, COH_ALLOC(1, &hash), done);
    COH_TRY_GOTO(status, COH_ALLOC(tensor_count, &hash->tensors), done);
    COH_TRY_GOTO(status, COH_ALLOC((size_t)tensor_count + 1, &hash->grain_begin), done);
    hash->tensor_count = tensor_count;
    hash->pool = pool;
    (void)XXH3_64bits("", 0); /* selects its code, before the pool's threads do */
    COH_TRY_GOTO(status, tensors_copy(hash, tensors), done);
    uint64_t entries;
    COH_TRY_GOTO(status,
                 coh_bytes_mul(hash->grain_begin[tensor_count], hash->has_states ? 3 : 1, &entries),
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
    for (uint32_t i = 0; hash->tensors && i < hash->tensor_count; i++)
        coh_free((char *)(uintptr_t)hash->tensors[i].name); /* our own copy */
    coh_free(hash->tensors);
    coh_free(hash->grain_begin);
    coh_free(hash->grains);
    coh_free(hash->arrived);
    coh_free(hash);
}

static uint64_t entry_count(const coh_logical_hash *hash)
{
    return hash->grain_begin[hash->tensor_count] * (hash->has_states ? 3 : 1);
}

void coh_logical_hash_begin(coh_logical_hash *hash)
{
    memset(hash->grains, 0, entry_count(hash) * sizeof(*hash->grains));
    memset(hash->arrived, 0, entry_count(hash));
}

uint64_t coh_grain_hash(const float *data, uint64_t count)
{
    return XXH3_64bits(data, count * sizeof(*data));
}

static uint64_t entry_of(const coh_logical_hash *hash, coh_part part, uint32_t tensor)
{
    return (uint64_t)part * hash->grain_begin[hash->tensor_count] + hash->grain_begin[tensor];
}

/* The grains of a put; each grain is one piece for the pool. */
typedef struct put_job {
    const float *data;
    uint64_t count;
    uint64_t *grains;           /* receives their hashes */
    int looks;                  /* 1: look for broken values */
    _Atomic uint64_t first_bad; /* lowest grain with a broken value; pieces lower it */
} put_job;

static void put_piece(void *argument, int64_t index)
{
    put_job *job = argument;
    uint64_t begin = (uint64_t)index * COH_GRAIN_ELEMENTS, left = job->count - begin;
    uint64_t count = left < COH_GRAIN_ELEMENTS ? left : COH_GRAIN_ELEMENTS;
    job->grains[index] = coh_grain_hash(job->data + begin, count);
    if (!job->looks || coh_kernel_all_finite(COH_DTYPE_F32, job->data + begin, (int64_t)count))
        return;
    uint64_t lowest = atomic_load(&job->first_bad);
    while ((uint64_t)index < lowest &&
           !atomic_compare_exchange_weak(&job->first_bad, &lowest, (uint64_t)index))
        continue;
}

/* Returns the index of the first NaN or infinite value from grain `grain` on; the count if there is
 * none. */
static uint64_t first_broken(const put_job *job, uint64_t grain)
{
    uint64_t i = grain * COH_GRAIN_ELEMENTS;
    while (i < job->count && coh_kernel_all_finite(COH_DTYPE_F32, &job->data[i], 1))
        i++;
    return i < job->count ? i : job->count; /* the last grain may be short */
}

/* Marks the grains of a put as arrived. */
static coh_status expect_grains(coh_logical_hash *hash, coh_part part, uint32_t tensor,
                                uint64_t element_begin, uint64_t count, uint64_t *out_entry)
{
    if (tensor >= hash->tensor_count || (unsigned)part >= COH_PART_COUNT)
        return coh_fail(COH_ERR_INTERNAL, "hash: no tensor %" PRIu32 " part %d", tensor, (int)part);
    const coh_logical_tensor *facts = &hash->tensors[tensor];
    uint64_t end = element_begin + count;
    if ((part != COH_PART_WORK && !facts->has_states) || count == 0 || end < count ||
        end > facts->elements || element_begin % COH_GRAIN_ELEMENTS != 0 ||
        (end % COH_GRAIN_ELEMENTS != 0 && end != facts->elements))
        return coh_fail(COH_ERR_INTERNAL,
                        "hash: %s of %s has no whole grains [%" PRIu64 ", %" PRIu64 ")",
                        part_name[part], facts->name, element_begin, end);
    *out_entry = entry_of(hash, part, tensor) + element_begin / COH_GRAIN_ELEMENTS;
    for (uint64_t grain = 0; grain < grains_of(count); grain++) {
        if (hash->arrived[*out_entry + grain])
            return coh_fail(COH_ERR_INTERNAL, "hash: %s of %s, grain %" PRIu64 " came twice",
                            part_name[part], facts->name,
                            element_begin / COH_GRAIN_ELEMENTS + grain);
        hash->arrived[*out_entry + grain] = 1;
    }
    return COH_OK;
}

coh_status coh_logical_hash_put(coh_logical_hash *hash, coh_part part, uint32_t tensor,
                                uint64_t element_begin, uint64_t count, const float *data,
                                uint64_t *out_broken)
{
    uint64_t entry;
    COH_TRY(expect_grains(hash, part, tensor, element_begin, count, &entry));
    put_job job = { .data = data,
                    .count = count,
                    .grains = hash->grains + entry,
                    .looks = out_broken != NULL,
                    .first_bad = grains_of(count) };
    coh_pool_run(hash->pool, (int64_t)grains_of(count), put_piece, &job);
    if (out_broken != NULL)
        *out_broken = first_broken(&job, atomic_load(&job.first_bad));
    return COH_OK;
}

static uint64_t fold_facts(const coh_logical_tensor *tensor, uint64_t total)
{
    int64_t shape[COH_RANK_MAX + 2] = { tensor->has_states != 0, tensor->shape.rank };
    for (int i = 0; i < tensor->shape.rank; i++)
        shape[i + 2] = tensor->shape.dim[i];
    total = XXH3_64bits_withSeed(tensor->name, strlen(tensor->name), total);
    return XXH3_64bits_withSeed(shape, sizeof(shape), total);
}

coh_status coh_logical_hash_finish(const coh_logical_hash *hash, uint64_t applied_count,
                                   uint64_t *out_total)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < hash->tensor_count; i++) {
        const coh_logical_tensor *tensor = &hash->tensors[i];
        uint64_t grain_count = grains_of(tensor->elements);
        total = fold_facts(tensor, total);
        for (int part = 0; part < (tensor->has_states ? COH_PART_COUNT : 1); part++) {
            uint64_t entry = entry_of(hash, (coh_part)part, i);
            const uint8_t *gap = memchr(hash->arrived + entry, 0, grain_count);
            if (gap)
                return coh_fail(
                    COH_ERR_INTERNAL, "hash: %s of %s, grain %td of %" PRIu64 " never came",
                    part_name[part], tensor->name, gap - (hash->arrived + entry), grain_count);
            total = XXH3_64bits_withSeed(hash->grains + entry, grain_count * sizeof(*hash->grains),
                                         total);
        }
    }
    *out_total = XXH3_64bits_withSeed(&applied_count, sizeof(applied_count), total);
    return COH_OK;
}

uint32_t coh_logical_hash_tensor_count(const coh_logical_hash *hash)
{
    return hash->tensor_count;
}

const coh_logical_tensor *coh_logical_hash_tensor(const coh_logical_hash *hash, uint32_t tensor)
{
    assert(tensor < hash->tensor_count);
    return &hash->tensors[tensor];
}

int coh_logical_hash_has_states(const coh_logical_hash *hash)
{
    return hash->has_states;
}

const uint64_t *coh_logical_hash_table(const coh_logical_hash *hash, uint64_t *out_bytes)
{
    *out_bytes = entry_count(hash) * sizeof(*hash->grains);
    return hash->grains;
}

coh_status coh_logical_hash_take(coh_logical_hash *hash, const uint64_t *table)
{
    coh_logical_hash_begin(hash);
    memcpy(hash->grains, table, entry_count(hash) * sizeof(*hash->grains));
    memset(hash->arrived, 1, entry_count(hash));
    for (uint32_t i = 0; hash->has_states && i < hash->tensor_count; i++) {
        if (hash->tensors[i].has_states)
            continue;
        for (int part = COH_PART_M; part <= COH_PART_V; part++) {
            uint64_t entry = entry_of(hash, (coh_part)part, i);
            for (uint64_t g = 0; g < grains_of(hash->tensors[i].elements); g++)
                if (hash->grains[entry + g] != 0)
                    return coh_fail(COH_ERR_CORRUPT,
                                    "grain %" PRIu64 " of %s, %s, has a hash but no data", g,
                                    part_name[part], hash->tensors[i].name);
        }
    }
    return COH_OK;
}

uint64_t coh_logical_hash_grain(const coh_logical_hash *hash, coh_part part, uint32_t tensor,
                                uint64_t grain)
{
    assert(tensor < hash->tensor_count);
    assert(part == COH_PART_WORK || hash->tensors[tensor].has_states);
    return hash->grains[entry_of(hash, part, tensor) + grain];
}
