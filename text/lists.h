/* lists.h - growing lists of ids and of bytes. A zeroed list is empty; release the array with
 * coh_free. */
#ifndef COH_TEXT_LISTS_H
#define COH_TEXT_LISTS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/alloc.h"

typedef struct coh_id_list {
    int32_t *ids;
    size_t count, capacity;
} coh_id_list;

static inline coh_status coh_id_list_add(coh_id_list *list, int32_t id)
{
    COH_TRY(COH_GROW(&list->ids, &list->capacity, list->count + 1));
    list->ids[list->count++] = id;
    return COH_OK;
}

static inline coh_status coh_id_list_add_all(coh_id_list *list, const int32_t *ids, size_t count)
{
    COH_TRY(COH_GROW(&list->ids, &list->capacity, list->count + count));
    if (count)
        memcpy(list->ids + list->count, ids, count * sizeof(*ids));
    list->count += count;
    return COH_OK;
}

typedef struct coh_byte_list {
    uint8_t *bytes;
    size_t count, capacity;
} coh_byte_list;

/* `bytes` may not lie in the list itself. */
static inline coh_status coh_byte_list_add(coh_byte_list *list, const void *bytes, size_t count)
{
    COH_TRY(COH_GROW(&list->bytes, &list->capacity, list->count + count));
    if (count)
        memcpy(list->bytes + list->count, bytes, count);
    list->count += count;
    return COH_OK;
}

/* Removes the first `count` bytes. */
static inline void coh_byte_list_drop(coh_byte_list *list, size_t count)
{
    list->count -= count;
    if (list->count)
        memmove(list->bytes, list->bytes + count, list->count);
}

/* Bytes owned by someone else. */
typedef struct coh_slice {
    const char *bytes; /* NULL: none */
    size_t count;
} coh_slice;

#endif
