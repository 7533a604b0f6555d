/* alloc.h - the library's small allocations. All of them go through here, so that a test can count
 * them and make the n-th one fail. Large memory comes from arenas (memory/arena.h). */
#ifndef COH_BASE_ALLOC_H
#define COH_BASE_ALLOC_H

#include <stddef.h>
#include <stdint.h>

#include "base/check.h"

/* Allocates zeroed memory for `count` elements. 0 elements give a valid pointer. Free with
 * coh_free.
 * Fails: COH_ERR_MEMORY with the bytes requested; *out_memory is then NULL. */
coh_status coh_alloc(size_t count, size_t element_bytes, void **out_memory);

/* Grows *memory to at least `needed` elements (by doubling; new bytes zeroed). *capacity counts
 * elements. On failure nothing changes. */
coh_status coh_alloc_grow(void **memory, size_t *capacity, size_t needed, size_t element_bytes);

/* Copies `text`; free the copy with coh_free. */
coh_status coh_alloc_text(const char *text, char **out_copy);

void coh_free(void *memory); /* accepts NULL */

/* For tests: makes the n-th allocation from now (1 is the next) fail; 0 switches this off. */
void coh_alloc_fail_nth(uint64_t n);
/* Return the number of allocations by this process so far, and whether the planned failure
 * happened. */
uint64_t coh_alloc_count(void);
int coh_alloc_fault_was_hit(void);

/* Typed versions of coh_alloc and coh_alloc_grow: COH_ALLOC(count, &pointer). */
#define COH_ALLOC(count, out_pointer)                                                              \
    coh_alloc((size_t)(count), sizeof(**(out_pointer)), (void **)(out_pointer))
#define COH_GROW(pointer, capacity, needed)                                                        \
    coh_alloc_grow((void **)(pointer), (capacity), (size_t)(needed), sizeof(**(pointer)))

#endif
