/* alloc.h - the library's small allocations. All of them go through here and through a table of
 * functions, so that a test can count them and make the n-th one fail
 * (tests/faults/alloc_faults.h). Large memory comes from arenas (memory/arena.h). */
#ifndef COH_BASE_ALLOC_H
#define COH_BASE_ALLOC_H

#include <stddef.h>

#include "base/check.h"

/* Allocates zeroed memory for `count` elements. 0 elements give a valid pointer. Free with
 * coh_free.
 * Fails: COH_ERR_MEMORY with the bytes requested; *out_memory is then NULL. */
coh_status coh_alloc(size_t count, size_t element_bytes, void **out_memory);

/* Grows *memory to at least `needed` elements (by doubling; new bytes zeroed). *capacity counts
 * elements. On failure nothing changes. */
coh_status coh_alloc_grow(void **memory, size_t *capacity, size_t needed, size_t element_bytes);

/* As coh_alloc_grow, but new bytes have no value: a long list whose elements are assigned whole
 * takes no page that it does not use. */
coh_status coh_alloc_extend(void **memory, size_t *capacity, size_t needed, size_t element_bytes);

/* Gives back what *memory has beyond `count` elements, if that is 1 MiB or more. *capacity is then
 * `count`. Never fails: without memory to move them, the elements stay. */
void coh_alloc_fit(void **memory, size_t *capacity, size_t count, size_t element_bytes);

/* Copies `text`; free the copy with coh_free. */
coh_status coh_alloc_text(const char *text, char **out_copy);

void coh_free(void *memory); /* accepts NULL */

/* As calloc and realloc. */
typedef struct coh_alloc_calls {
    void *(*zeroed)(size_t count, size_t element_bytes);
    void *(*resized)(void *memory, size_t bytes);
} coh_alloc_calls;

/* Replaces the C library's calls; the table must stay valid. Call it before any thread. */
void coh_alloc_calls_use(const coh_alloc_calls *calls);

/* Typed versions of coh_alloc, coh_alloc_grow, coh_alloc_extend and coh_alloc_fit: COH_ALLOC(count,
 * &pointer). */
#define COH_ALLOC(count, out_pointer)                                                              \
    coh_alloc((size_t)(count), sizeof(**(out_pointer)), (void **)(out_pointer))
#define COH_GROW(pointer, capacity, needed)                                                        \
    coh_alloc_grow((void **)(pointer), (capacity), (size_t)(needed), sizeof(**(pointer)))
#define COH_EXTEND(pointer, capacity, needed)                                                      \
    coh_alloc_extend((void **)(pointer), (capacity), (size_t)(needed), sizeof(**(pointer)))
#define COH_FIT(pointer, capacity, count)                                                          \
    coh_alloc_fit((void **)(pointer), (capacity), (size_t)(count), sizeof(**(pointer)))

#endif
