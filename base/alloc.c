/* Counts every allocation, and fails the one that a test chose. calloc and the growth loop
 * refuse sizes that overflow. Read alloc.h first. */
#include "base/alloc.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static _Atomic uint64_t allocation_count;
static _Atomic uint64_t failing_allocation; /* 0: none */
static _Atomic int fault_was_hit;

/* Counts one allocation; returns 1 if it must fail. */
static int must_fail(void)
{
    uint64_t number = atomic_fetch_add(&allocation_count, 1) + 1;
    if (number != atomic_load(&failing_allocation))
        return 0;
    atomic_store(&fault_was_hit, 1);
    return 1;
}

coh_status coh_alloc(size_t count, size_t element_bytes, void **out_memory)
{
    *out_memory = NULL;
    void *memory =
        must_fail() ? NULL : calloc(count ? count : 1, element_bytes ? element_bytes : 1);
    if (memory == NULL)
        return coh_fail(COH_ERR_MEMORY, "out of memory for %zu x %zu bytes", count, element_bytes);
    *out_memory = memory;
    return COH_OK;
}

coh_status coh_alloc_grow(void **memory, size_t *capacity, size_t needed, size_t element_bytes)
{
    if (needed <= *capacity)
        return COH_OK;
    size_t grown_capacity = *capacity < 16 ? 16 : *capacity;
    while (grown_capacity < needed) {
        if (grown_capacity > SIZE_MAX / 2 / (element_bytes ? element_bytes : 1))
            return coh_fail(COH_ERR_MEMORY, "a table of %zu entries is too large", needed);
        grown_capacity *= 2;
    }
    void *grown = must_fail() ? NULL : realloc(*memory, grown_capacity * element_bytes);
    if (grown == NULL)
        return coh_fail(COH_ERR_MEMORY, "out of memory for %zu x %zu bytes", grown_capacity,
                        element_bytes);
    memset((char *)grown + *capacity * element_bytes, 0,
           (grown_capacity - *capacity) * element_bytes);
    *memory = grown;
    *capacity = grown_capacity;
    return COH_OK;
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

void coh_alloc_fail_nth(uint64_t n)
{
    atomic_store(&fault_was_hit, 0);
    atomic_store(&failing_allocation, n == 0 ? 0 : atomic_load(&allocation_count) + n);
}

uint64_t coh_alloc_count(void)
{
    return atomic_load(&allocation_count);
}

int coh_alloc_fault_was_hit(void)
{
    return atomic_load(&fault_was_hit);
}
