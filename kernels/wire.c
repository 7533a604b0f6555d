/* Packs and unpacks, in pieces that fit the caches. Read wire.h first. */
#include "kernels/wire.h"

#include <assert.h>
#include <string.h>

#include "base/half.h"
#include "kernels/quantise.h"
#include "kernels/table.h"

_Static_assert(COH_WIRE_BLOCK == COH_QUANTISE_BLOCK, "int8 is kernels/quantise.h's");

/* Elements of a piece, on the stack. */
enum { PIECE = 32 * COH_WIRE_BLOCK, HALF_BLOCK = COH_WIRE_BLOCK / 2 };

#define INFINITY_BITS 0x7f800000u
#define NAN_BITS      0x7fc00000u
#define LEVELS        7.0f
/* Added to a small float, it rounds it to an integer, ties to even, in the sum's lowest bits. */
#define WHOLE_SHIFT 0x1.8p23f

/* ---- f32 in between ---- */

/* Returns elements [at, at + count) as f32, in `room` if they are others. */
static const float *widen(coh_dtype dtype, const void *from, int64_t at, int64_t count, float *room)
{
    if (dtype == COH_DTYPE_F32)
        return (const float *)from + at;
    const uint16_t *halves = (const uint16_t *)from + at;
    for (int64_t i = 0; i < count; i++)
        room[i] = coh_f32_of_bf16(halves[i]);
    return room;
}

/* Returns where f32 elements [at, at + count) are to be written; narrow() then stores them. */
static float *place_for(coh_dtype dtype, void *to, int64_t at, float *room)
{
    return dtype == COH_DTYPE_F32 ? (float *)to + at : room;
}

static void narrow(coh_dtype dtype, void *to, int64_t at, int64_t count, const float *from)
{
    if (dtype == COH_DTYPE_F32)
        return;
    uint16_t *halves = (uint16_t *)to + at;
    for (int64_t i = 0; i < count; i++)
        halves[i] = coh_bf16_of_f32(from[i]);
}

/* ---- blocks of int4 ---- */

static float pack_block4(const float *x, int64_t count, uint8_t *codes)
{
    float block[COH_WIRE_BLOCK] = { 0 };
    uint8_t whole[COH_WIRE_BLOCK];
    uint32_t largest = 0;
    memcpy(block, x, (size_t)count * sizeof(*x));
    for (int i = 0; i < COH_WIRE_BLOCK; i++) {
        const uint32_t size = coh_f32_bits(block[i]) & 0x7fffffffu;
        largest = size > largest ? size : largest;
    }
    if (largest >= INFINITY_BITS || largest == 0) {
        memset(codes, 0, HALF_BLOCK);
        return largest == 0 ? 0 : coh_f32_of_bits(NAN_BITS);
    }
    const float scale = coh_f32_of_bits(largest);
    for (int i = 0; i < COH_WIRE_BLOCK; i++)
        whole[i] = (uint8_t)(coh_f32_bits(block[i] / scale * LEVELS + WHOLE_SHIFT) & 15u);
    for (int i = 0; i < HALF_BLOCK; i++)
        codes[i] = (uint8_t)(whole[i] | whole[HALF_BLOCK + i] << 4);
    return scale;
}

static void unpack_block4(float *y, int64_t count, const uint8_t *codes, float scale)
{
    float block[COH_WIRE_BLOCK];
    for (int i = 0; i < HALF_BLOCK; i++) {
        const int low = (codes[i] & 15) ^ 8, high = (codes[i] >> 4) ^ 8;
        block[i] = (float)(low - 8) / LEVELS * scale;
        block[HALF_BLOCK + i] = (float)(high - 8) / LEVELS * scale;
    }
    memcpy(y, block, (size_t)count * sizeof(*y));
}

/* ---- pieces ---- */

/* Codes and scales of packed elements. */
typedef struct packed_parts {
    float *scales;
    uint8_t *codes;
} packed_parts;

static packed_parts parts_of(void *packed, int64_t count)
{
    const int64_t blocks = (count + COH_WIRE_BLOCK - 1) / COH_WIRE_BLOCK;
    return (packed_parts){ packed, (uint8_t *)packed + (size_t)blocks * sizeof(float) };
}

static int64_t piece_at(int64_t at, int64_t count)
{
    return count - at < PIECE ? count - at : PIECE;
}

static void pack_piece(coh_wire wire, const packed_parts *parts, int64_t at, int64_t count,
                       const float *x)
{
    float *scales = parts->scales + at / COH_WIRE_BLOCK;
    if (wire == COH_WIRE_INT8) {
        const coh_quantise quantise = {
            .count = count, .x = x, .codes = (int8_t *)parts->codes + at, .scales = scales
        };
        coh_cpu_quantise(NULL, &quantise);
        return;
    }
    for (int64_t i = 0; i < count; i += COH_WIRE_BLOCK)
        *scales++ = pack_block4(x + i, count - i < COH_WIRE_BLOCK ? count - i : COH_WIRE_BLOCK,
                                parts->codes + (at + i) / 2);
}

static void unpack_piece(coh_wire wire, const packed_parts *parts, int64_t at, int64_t count,
                         float *y)
{
    const float *scales = parts->scales + at / COH_WIRE_BLOCK;
    if (wire == COH_WIRE_INT8) {
        const coh_dequantise dequantise = {
            .count = count, .codes = (const int8_t *)parts->codes + at, .scales = scales, .y = y
        };
        coh_cpu_dequantise(NULL, &dequantise);
        return;
    }
    for (int64_t i = 0; i < count; i += COH_WIRE_BLOCK)
        unpack_block4(y + i, count - i < COH_WIRE_BLOCK ? count - i : COH_WIRE_BLOCK,
                      parts->codes + (at + i) / 2, *scales++);
}

void coh_cpu_wire_pack(void *queue, const coh_wire_call *call)
{
    float room[PIECE];
    const packed_parts parts = parts_of(call->packed, call->count);
    (void)queue;
    assert(call->wire != COH_WIRE_STORED);
    for (int64_t at = 0; at < call->count; at += PIECE) {
        const int64_t piece = piece_at(at, call->count);
        const float *x = widen(call->dtype, call->elements, at, piece, room);
        if (call->wire == COH_WIRE_BF16)
            narrow(COH_DTYPE_BF16, call->packed, at, piece, x);
        else
            pack_piece(call->wire, &parts, at, piece, x);
    }
}

void coh_cpu_wire_unpack(void *queue, const coh_wire_call *call)
{
    float room[PIECE];
    const packed_parts parts = parts_of(call->packed, call->count);
    (void)queue;
    assert(call->wire != COH_WIRE_STORED);
    for (int64_t at = 0; at < call->count; at += PIECE) {
        const int64_t piece = piece_at(at, call->count);
        float *y = place_for(call->dtype, call->elements, at, room);
        if (call->wire == COH_WIRE_BF16)
            (void)widen(COH_DTYPE_BF16, call->packed, at, piece, y);
        else
            unpack_piece(call->wire, &parts, at, piece, y);
        narrow(call->dtype, call->elements, at, piece, y);
    }
}
