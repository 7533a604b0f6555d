/* Small allocations. calloc and the growth loop refuse sizes that overflow. Read alloc.h first. */
#include "base/alloc.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* For a large table, calloc of jemalloc gives pages back to the kernel to have them zeroed: a call
 * that interrupts all threads, and page faults. Up to this size zeroing here takes less. */
#define ZEROED_HERE ((size_t)16 << 20)

static void *zeroed(size_t count, size_t element_bytes)
{
    if (count > ZEROED_HERE / element_bytes)
        return calloc(count, element_bytes);
    void *memory = malloc(count * element_bytes);
    if (memory != NULL)
        explicit_bzero(memory, count * element_bytes); /* gcc would make calloc of memset */
    return memory;
}

static const coh_alloc_calls system_calls = { .zeroed = zeroed, .resized = realloc };
static const coh_alloc_calls *calls_in_use = &system_calls;

void coh_alloc_calls_use(const coh_alloc_calls *calls)
{
    calls_in_use = calls;
}

coh_status coh_alloc(size_t count, size_t element_bytes, void **out_memory)
{
    *out_memory = NULL;
    void *memory = calls_in_use->zeroed(count ? count : 1, element_bytes ? element_bytes : 1);
    if (memory == NULL)
        return coh_fail(COH_ERR_MEMORY, "out of memory for %zu x %zu bytes", count, element_bytes);
    *out_memory = memory;
    return COH_OK;
}

coh_status coh_alloc_extend(void **memory, size_t *capacity, size_t needed, size_t element_bytes)
{
    if (needed <= *capacity)
        return COH_OK;
    size_t grown_capacity = *capacity < 16 ? 16 : *capacity;
    while (grown_capacity < needed) {
        if (grown_capacity > SIZE_MAX / 2 / (element_bytes ? element_bytes : 1))
            return coh_fail(COH_ERR_MEMORY, "a table of %zu entries is too large", needed);
        grown_capacity *= 2;
    }
    void *grown = calls_in_use->resized(*memory, grown_capacity * element_bytes);
    if (grown == NULL)
        return coh_fail(COH_ERR_MEMORY, "out of memory for %zu x %zu bytes", grown_capacity,
                        element_bytes);
    *memory = grown;
    *capacity = grown_capacity;
    return COH_OK;
}

coh_status coh_alloc_grow(void **memory, size_t *capacity, size_t needed, size_t element_bytes)
{
    const size_t before = *capacity;
    COH_TRY(coh_alloc_extend(memory, capacity, needed, element_bytes));
    if (*capacity > before)
        memset((char *)*memory + before * element_bytes, 0, (*capacity - before) * element_bytes);
    return COH_OK;
}

void coh_alloc_fit(void **memory, size_t *capacity, size_t count, size_t element_bytes)
{
    enum { WORTH_BYTES = 1 << 20 };
    if (count == 0 || (*capacity - count) * element_bytes < WORTH_BYTES)
        return;
    void *fitted = calls_in_use->resized(*memory, count * element_bytes);
    if (fitted == NULL)
        return;
    *memory = fitted;
    *capacity = count;
}

coh_status coh_alloc_text(const char *text, char **out_copy)
{
    size_t bytes = strlen(text) + 1;
    COH_TRY(coh_alloc(bytes, 1, (void **)out_copy));
    memcpy(*out_copy, text, bytes);
    return COH_OK;
}

void coh_free(void *memory)
{
    free(memory);
}
