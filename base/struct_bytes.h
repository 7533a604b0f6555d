/* struct_bytes.h - public structs that may grow: their first member is `uint32_t struct_bytes`, the
 * size that the caller was compiled with.
 *
 *     a newer caller's   | struct_bytes | known to both | newer |    newer must be 0, else refused
 *     the library's      | struct_bytes | known to both |
 *     an older caller's  | struct_bytes | known to  |                the rest has its defaults
 *
 * One rule for all of them, those that the library fills included (cohobate/cohobate.h). */
#ifndef COH_BASE_STRUCT_BYTES_H
#define COH_BASE_STRUCT_BYTES_H

#include <stddef.h>

#include "base/check.h"

/* A member that is added begins at a multiple of its struct's alignment, since the padding behind
 * the last one is not 0 in older callers. */

/* Checks the size of `given`, a `type` of known_bytes here. A size is a multiple of the type's
 * alignment, and of a type above 16 bytes more than that of a pointer. Fails: COH_ERR_ARGUMENT. */
coh_status coh_struct_check(const char *type, const void *given, size_t known_bytes,
                            size_t alignment);

/* Copies the members that `given` has over the defaults in `known`; its struct_bytes becomes
 * known_bytes. */
void coh_struct_read(const void *given, void *known, size_t known_bytes);

/* Copies as much of `known` as the caller's struct holds, except struct_bytes. */
void coh_struct_write(const void *known, size_t known_bytes, void *out);

/* Fills a caller's struct of `bytes` bytes with defaults, as far as it holds them; members that are
 * unknown here become 0. Its struct_bytes becomes `bytes`. Does nothing for NULL, or if there is no
 * room for struct_bytes. */
void coh_struct_init(const void *defaults, size_t known_bytes, void *out, size_t bytes);

/* Refuses NULL and a wrong size: COH_NEED_STRUCT(coh_plan_summary, out_summary). */
#define COH_NEED_STRUCT(type, pointer)                                                             \
    do {                                                                                           \
        COH_NEED(pointer);                                                                         \
        COH_TRY(coh_struct_check(#type, (pointer), sizeof(type), _Alignof(type)));                 \
    } while (0)

/* Fills a caller's struct with a value of the same type. */
#define COH_STRUCT_FILL(value, out) coh_struct_write(&(value), sizeof(value), (out))

#endif
