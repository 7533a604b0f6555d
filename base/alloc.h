/* alloc.h - every small allocation of the library goes through here, so that a test can count them
 * and make the n-th one fail. Large memory comes from arenas (memory/arena.h). */
#ifndef COH_BASE_ALLOC_H
#define COH_BASE_ALLOC_H

#include <stddef.h>
#include <stdint.h>

#include "base/check.h"

/* Zeroed memory for count elements. 0 elements give a valid pointer. Fails: COH_ERR_MEMORY with the
 * bytes asked; *out is then NULL. Free with coh_free. */
coh_status coh_alloc(size_t count, size_t element_bytes, void **out_memory);

/* Grow *memory to hold at least `needed` elements (doubling; new bytes zeroed). *capacity counts
 * elements. On failure nothing changes. */
coh_status coh_alloc_grow(void **memory, size_t *capacity, size_t needed, size_t element_bytes);

/* A copy of `text`, to be freed with coh_free. */
coh_status coh_alloc_text(const char *text, char **out_copy);

void coh_free(void *memory); /* accepts NULL */

/* Tests: the n-th allocation from now (1 is the next) fails; 0 switches it off. */
void coh_alloc_fail_nth(uint64_t n);
/* Allocations made so far by this process; and whether the planned failure was hit. */
uint64_t coh_alloc_count(void);
int coh_alloc_fault_was_hit(void);

/* COH_ALLOC(count, &pointer): typed coh_alloc. */
#define COH_ALLOC(count, out_pointer)                                                              \
    coh_alloc((size_t)(count), sizeof(**(out_pointer)), (void **)(out_pointer))
#define COH_GROW(pointer, capacity, needed)                                                        \
    coh_alloc_grow((void **)(pointer), (capacity), (size_t)(needed), sizeof(**(pointer)))

#endif
