/* guard.h - bytes before and behind a buffer, which nothing may write: a change shows a write
 * outside. For single calls (op_trial.c) and for those of a whole run (call_check.c). */
#ifndef COH_ENGINE_GUARD_H
#define COH_ENGINE_GUARD_H

#include <stdint.h>
#include <string.h>

enum { COH_GUARD_BYTES = 256, COH_GUARD_ALIGN = 64 };

/* Returns the room of a buffer with its two guards. */
static inline size_t coh_guard_room(size_t bytes)
{
    return (bytes + 2 * COH_GUARD_BYTES + COH_GUARD_ALIGN - 1) / COH_GUARD_ALIGN * COH_GUARD_ALIGN;
}

static inline void coh_guard_set(char *data, size_t bytes, int byte)
{
    memset(data - COH_GUARD_BYTES, byte, COH_GUARD_BYTES);
    memset(data + bytes, byte, COH_GUARD_BYTES);
}

/* Returns 1 if a guard's byte changed, and the offset of the first one behind the buffer, else
 * before it, from the buffer's begin. */
static inline int coh_guard_changed(const char *data, size_t bytes, int byte, int64_t *out_offset)
{
    for (int64_t i = 0; i < COH_GUARD_BYTES; i++)
        if ((unsigned char)data[(int64_t)bytes + i] != byte) {
            *out_offset = (int64_t)bytes + i;
            return 1;
        }
    for (int64_t i = -COH_GUARD_BYTES; i < 0; i++)
        if ((unsigned char)data[i] != byte) {
            *out_offset = i;
            return 1;
        }
    return 0;
}

#endif
