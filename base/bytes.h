/* bytes.h - overflow-checked sizes, and the constants to which sizes are rounded. */
#ifndef COH_BASE_BYTES_H
#define COH_BASE_BYTES_H

#include <stddef.h>
#include <stdint.h>

#include "base/refusal.h"
#include "cohobate/model.h"

/* 4 KiB: the block of O_DIRECT on every drive tested, and the page. Slots, chunks in memory and
 * chunks in files begin and end at multiples of it. */
#define COH_PAGE_BYTES 4096u

/* 16 Ki elements: the unit of norm partials, hashes and RNG counters, counted from a tensor's
 * start. Chunks end at grain or tensor ends, so no partial result depends on chunking. */
#define COH_GRAIN_ELEMENTS 16384u

/* Returns the least number of elements whose bytes are whole pages and whole grains. Chunks and
 * ranges of rows end after a multiple of it. */
static inline uint64_t coh_dtype_unit(coh_dtype dtype)
{
    return dtype == COH_DTYPE_NF4 ? 8 * COH_GRAIN_ELEMENTS : COH_GRAIN_ELEMENTS;
}

/* Returns the bytes of the largest chunk of work of a dtype, if one of f32 has `chunk_bytes`. */
static inline uint64_t coh_dtype_chunk_bytes(coh_dtype dtype, uint64_t chunk_bytes)
{
    const uint64_t usual = chunk_bytes / sizeof(float), unit = coh_dtype_unit(dtype);
    return coh_dtype_array_bytes(dtype, dtype == COH_DTYPE_NF4 && usual < unit ? unit : usual);
}

/* Checked arithmetic. Fails: COH_ERR_FULL, a refusal with COH_REFUSAL_SIZE. */
static inline coh_status coh_bytes_mul(uint64_t a, uint64_t b, uint64_t *out_product)
{
    if (__builtin_mul_overflow(a, b, out_product))
        return coh_refuse_size();
    return COH_OK;
}

static inline coh_status coh_bytes_add(uint64_t a, uint64_t b, uint64_t *out_sum)
{
    if (__builtin_add_overflow(a, b, out_sum))
        return coh_refuse_size();
    return COH_OK;
}

/* The bytes of the text of coh_daily_round_up (cohobate/machine.h), once it is typed. If these
 * would exceed 64 bits, `bytes`. */
uint64_t coh_daily_enough(uint64_t bytes);

/* As coh_size_round_up (cohobate/machine.h), but at most `bytes`. Returns `text`. */
const char *coh_size_round_down(uint64_t bytes, char *text, size_t text_bytes);

/* Rounds up to a multiple of a power of two. Callers keep sizes below 2^62 (checked on input). */
static inline uint64_t coh_bytes_round_up(uint64_t bytes, uint64_t alignment)
{
    return (bytes + alignment - 1) & ~(alignment - 1);
}

static inline uint64_t coh_bytes_round_page(uint64_t bytes)
{
    return coh_bytes_round_up(bytes, COH_PAGE_BYTES);
}

/* Rounds down to whole pages. */
static inline uint64_t coh_bytes_whole_pages(uint64_t bytes)
{
    return bytes & ~(uint64_t)(COH_PAGE_BYTES - 1);
}

#endif
