/* Structs of callers that were compiled with an older or a newer header. Read struct_bytes.h first;
 * the sizes are copied with memcpy, because only the first member is known of both. */
#include "base/struct_bytes.h"

#include <stdint.h>
#include <string.h>

/* No struct of ours will be larger: such a number is no size. */
enum { BYTES_MOST = 1 << 20 };

/* A struct that is larger than this was never as small as a pointer. Such a size is sizeof of the
 * pointer to the struct: accepting it would ignore all members. */
enum { LARGE_BYTES = 16 };

static uint32_t bytes_of(const void *given)
{
    uint32_t bytes;
    memcpy(&bytes, given, sizeof(bytes));
    return bytes;
}

static int is_zero(const unsigned char *begin, const unsigned char *end)
{
    while (begin < end && *begin == 0)
        begin++;
    return begin == end;
}

coh_status coh_struct_check(const char *type, const void *given, size_t known_bytes,
                            size_t alignment)
{
    const uint32_t bytes = bytes_of(given);
    const unsigned char *begin = given;
    const size_t least = known_bytes > LARGE_BYTES ? sizeof(void *) + 1 : 2 * sizeof(uint32_t);
    /* Members are aligned, so that a size that is no multiple of their alignment is none. */
    if (bytes < least || bytes % alignment != 0 || bytes > BYTES_MOST)
        return coh_fail(COH_ERR_ARGUMENT,
                        "a %s has a struct_bytes of %u: set it to sizeof(%s), and the members "
                        "that are not used to 0",
                        type, bytes, type);
    if (bytes > known_bytes && !is_zero(begin + known_bytes, begin + bytes))
        return coh_fail(COH_ERR_ARGUMENT,
                        "a %s of %u bytes has members set that this library does not have, which "
                        "knows %zu bytes: leave them 0, or use a newer library",
                        type, bytes, known_bytes);
    return COH_OK;
}

void coh_struct_read(const void *given, void *known, size_t known_bytes)
{
    const uint32_t bytes = bytes_of(given), own = (uint32_t)known_bytes;
    memcpy(known, given, bytes < known_bytes ? bytes : known_bytes);
    memcpy(known, &own, sizeof(own));
}

void coh_struct_write(const void *known, size_t known_bytes, void *out)
{
    const uint32_t bytes = bytes_of(out);
    memcpy((unsigned char *)out + sizeof(bytes), (const unsigned char *)known + sizeof(bytes),
           (bytes < known_bytes ? bytes : known_bytes) - sizeof(bytes));
}

void coh_struct_init(const void *defaults, size_t known_bytes, void *out, size_t bytes)
{
    const uint32_t struct_bytes = (uint32_t)bytes;
    if (out == NULL || bytes < sizeof(struct_bytes))
        return;
    memset(out, 0, bytes);
    memcpy(out, defaults, bytes < known_bytes ? bytes : known_bytes);
    memcpy(out, &struct_bytes, sizeof(struct_bytes));
}
