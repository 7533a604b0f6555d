/* Maps guarded memory, and tells which buffer a write has left: first the buffers with a change
 * right behind their end or right before their begin, since a far change may be any buffer's. Next:
 * guard.h. */
#include "engine/guard.h"

#include <string.h>
#include <sys/mman.h>

#include "base/bytes.h"
#include "base/check.h"

/* Addresses without memory on each side: more than a forgotten factor in an index of a small
 * operator goes astray. */
#define NO_ACCESS_BYTES ((size_t)256 << 20)

coh_status coh_guarded_memory_init(size_t bytes, coh_guarded_memory *out_memory)
{
    const size_t page_bytes = coh_bytes_round_page(bytes > 0 ? bytes : 1);
    const size_t map_bytes = page_bytes + 2 * NO_ACCESS_BYTES;
    *out_memory = (coh_guarded_memory){ 0 };
    void *map =
        mmap(NULL, map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return coh_fail(COH_ERR_MEMORY, "cannot map %zu bytes for guarded copies", map_bytes);
    char *data = (char *)map + NO_ACCESS_BYTES;
    if (mprotect(data, page_bytes, PROT_READ | PROT_WRITE) != 0) {
        munmap(map, map_bytes);
        return coh_fail(COH_ERR_MEMORY, "cannot take %zu bytes for guarded copies", page_bytes);
    }
    *out_memory = (coh_guarded_memory){ data, page_bytes, map, map_bytes };
    return COH_OK;
}

void coh_guarded_memory_fini(coh_guarded_memory *memory)
{
    if (memory->map != NULL)
        munmap(memory->map, memory->map_bytes);
    *memory = (coh_guarded_memory){ 0 };
}

char *coh_guard_place(char *at, size_t bytes, int byte, coh_guarded *out_guarded)
{
    const size_t room = coh_guard_room(bytes);
    *out_guarded = (coh_guarded){ .data = at + COH_GUARD_BEFORE,
                                  .bytes = bytes,
                                  .before = COH_GUARD_BEFORE,
                                  .behind = room - COH_GUARD_BEFORE - bytes,
                                  .byte = byte };
    return at + room;
}

void coh_guard_add_margins(coh_guarded *list, size_t count)
{
    if (count == 0)
        return;
    list[0].before += COH_GUARD_MARGIN;
    list[count - 1].behind += COH_GUARD_MARGIN;
}

void coh_guard_fill(const coh_guarded *guarded)
{
    memset(guarded->data - guarded->before, guarded->byte, guarded->before);
    memset(guarded->data + guarded->bytes, guarded->byte, guarded->behind);
}

/* ---- changes ---- */

static int holds(const char *data, size_t bytes, int byte)
{
    return (unsigned char)data[0] == byte && memcmp(data, data + 1, bytes - 1) == 0;
}

/* The nearest change behind a buffer, or before it. */
static int64_t change_behind(const coh_guarded *g)
{
    size_t i = g->bytes;
    while ((unsigned char)g->data[i] == g->byte)
        i++;
    return (int64_t)i;
}

static int64_t change_before(const coh_guarded *g)
{
    int64_t i = -1;
    while ((unsigned char)g->data[i] == g->byte)
        i--;
    return i;
}

/* Looks at so many bytes of the guards. Returns 1 and the offset of a change. */
static int find_behind(const coh_guarded *g, size_t bytes, int64_t *out_offset)
{
    if (holds(g->data + g->bytes, bytes, g->byte))
        return 0;
    *out_offset = change_behind(g);
    return 1;
}

static int find_before(const coh_guarded *g, size_t bytes, int64_t *out_offset)
{
    if (holds(g->data - bytes, bytes, g->byte))
        return 0;
    *out_offset = change_before(g);
    return 1;
}

int coh_guard_find(const coh_guarded *list, size_t count, size_t *out_index, int64_t *out_offset)
{
    size_t far = 0;
    while (far < count &&
           holds(list[far].data + list[far].bytes, list[far].behind, list[far].byte) &&
           holds(list[far].data - list[far].before, list[far].before, list[far].byte))
        far++;
    if (far == count)
        return 0;
    for (*out_index = 0; *out_index < count; ++*out_index)
        if (find_behind(&list[*out_index], COH_GUARD_ALIGN, out_offset))
            return 1;
    for (*out_index = count; (*out_index)-- > 0;)
        if (find_before(&list[*out_index], COH_GUARD_ALIGN, out_offset))
            return 1;
    *out_index = far;
    return find_behind(&list[far], list[far].behind, out_offset) ||
           find_before(&list[far], list[far].before, out_offset);
}
