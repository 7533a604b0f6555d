/* guard.h - memory for the buffers of a call, in which a write outside a buffer shows.
 *
 *     no access | margin | before | buffer | behind | before | buffer | behind | margin | no access
 *
 * The one idea: no byte between two buffers is without a known value, so a write that misses its
 * buffer changes a byte that nothing may change. A write beyond a margin ends the process, which is
 * better than a change of memory that belongs to something else. For single calls (op_trial.c) and
 * for those of a whole run (call_check.c). */
#ifndef COH_ENGINE_GUARD_H
#define COH_ENGINE_GUARD_H

#include <stddef.h>
#include <stdint.h>

#include "cohobate/status.h"

/* More bytes behind a buffer than before it, because most writes outside run on behind the end.
 * Two buffers are 128 KiB apart. */
enum {
    COH_GUARD_ALIGN = 64,
    COH_GUARD_BEFORE = 32 << 10,
    COH_GUARD_BEHIND = 96 << 10,
    COH_GUARD_MARGIN = 1 << 20
};

/* ---- the memory ---- */

/* Zeroed memory between pages without access. Zeroed: there is none. */
typedef struct coh_guarded_memory {
    char *data;
    size_t bytes;
    void *map;
    size_t map_bytes;
} coh_guarded_memory;

/* Fails: COH_ERR_MEMORY. */
coh_status coh_guarded_memory_init(size_t bytes, coh_guarded_memory *out_memory);
void coh_guarded_memory_fini(coh_guarded_memory *memory);

/* ---- the guards ---- */

/* A buffer, the sizes of its guards, and the byte that they hold. */
typedef struct coh_guarded {
    char *data;
    size_t bytes, before, behind;
    int byte;
} coh_guarded;

/* Returns the room of a buffer with its guards, and of buffers of `room` bytes with margins. */
static inline size_t coh_guard_room(size_t bytes)
{
    return COH_GUARD_BEFORE + (bytes + COH_GUARD_ALIGN - 1) / COH_GUARD_ALIGN * COH_GUARD_ALIGN +
           COH_GUARD_BEHIND;
}

static inline size_t coh_guard_room_all(size_t room)
{
    return room + (size_t)2 * COH_GUARD_MARGIN;
}

/* Places a buffer at `at`, and returns the end of its room. The guards hold `byte` after
 * coh_guard_fill. */
char *coh_guard_place(char *at, size_t bytes, int byte, coh_guarded *out_guarded);
/* Adds the margins to the guards of the first and of the last buffer. */
void coh_guard_add_margins(coh_guarded *list, size_t count);
void coh_guard_fill(const coh_guarded *guarded);

/* Looks at the guards of `list`, by ascending addresses. Returns 1 if one changed, with the buffer
 * that was probably left, and the offset of the nearest changed byte from that buffer's begin. A
 * write that runs on from a buffer's end into other buffers is that buffer's. */
int coh_guard_find(const coh_guarded *list, size_t count, size_t *out_index, int64_t *out_offset);

#endif
