/* 4-bit weights on the host. The one idea: a block has 16 numbers, which are computed once; its
 * elements are looked up. Next: kernels/nf4.h. */
#include "kernels/nf4.h"

#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "base/half.h"
#include "kernels/table.h"

enum { SCALE_BYTES = 2, BF16_LARGEST = 0x7f7f, BF16_INFINITY = 0x7f80 };

static const float values[COH_NF4_CODES] = COH_NF4_VALUES;

/* ---- to 4 bits ---- */

static uint16_t scale_of(const float x[COH_NF4_BLOCK])
{
    float most = 0;
    for (int i = 0; i < COH_NF4_BLOCK; i++)
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    const uint16_t scale = most < COH_NF4_LEAST_SCALE ? 0 : coh_bf16_of_f32(most);
    return scale == BF16_INFINITY ? BF16_LARGEST : scale;
}

/* Counts the middles between neighbouring values that lie below x. */
static uint8_t code_of(float x)
{
    uint8_t code = 0;
    for (int k = 1; k < COH_NF4_CODES; k++)
        code = (uint8_t)(code + (x > (values[k - 1] + values[k]) / 2));
    return code;
}

static void quantise_block(uint8_t packed[COH_NF4_BLOCK_BYTES], const float x[COH_NF4_BLOCK])
{
    uint8_t codes[COH_NF4_BLOCK];
    const uint16_t bits = scale_of(x);
    const float scale = bits == 0 ? 1.0f : coh_f32_of_bf16(bits);
    for (int i = 0; i < COH_NF4_BLOCK; i++)
        codes[i] = code_of(x[i] / scale);
    memcpy(packed, &bits, SCALE_BYTES);
    for (int i = 0; i < COH_NF4_BLOCK / 2; i++)
        packed[SCALE_BYTES + i] = (uint8_t)(codes[2 * i] | codes[2 * i + 1] << 4);
}

void coh_nf4_quantise(void *packed, const float *x, int64_t count)
{
    uint8_t *to = packed;
    for (int64_t at = 0; at < count; at += COH_NF4_BLOCK, to += COH_NF4_BLOCK_BYTES)
        quantise_block(to, x + at);
}

int coh_nf4_holds(const float *x, int64_t count)
{
    for (int64_t at = 0; at < count; at += COH_NF4_BLOCK) {
        uint8_t packed[COH_NF4_BLOCK_BYTES];
        float y[COH_NF4_BLOCK];
        quantise_block(packed, x + at);
        coh_nf4_dequantise(y, packed, COH_NF4_BLOCK);
        for (int i = 0; i < COH_NF4_BLOCK; i++)
            if (y[i] != x[at + i])
                return 0;
    }
    return 1;
}

/* ---- and back ---- */

static void numbers_of(const uint8_t packed[COH_NF4_BLOCK_BYTES], uint16_t numbers[COH_NF4_CODES])
{
    uint16_t scale;
    memcpy(&scale, packed, SCALE_BYTES);
    for (int k = 0; k < COH_NF4_CODES; k++)
        numbers[k] = coh_bf16_of_f32(values[k] * coh_f32_of_bf16(scale));
}

static void open_block(uint16_t y[COH_NF4_BLOCK], const uint8_t packed[COH_NF4_BLOCK_BYTES])
{
    uint16_t numbers[COH_NF4_CODES];
    numbers_of(packed, numbers);
    for (int i = 0; i < COH_NF4_BLOCK / 2; i++) {
        const uint8_t pair = packed[SCALE_BYTES + i];
        y[2 * i] = numbers[pair & 15];
        y[2 * i + 1] = numbers[pair >> 4];
    }
}

static void open_blocks(coh_dtype dtype, void *y, const void *packed, int64_t count)
{
    const uint8_t *from = packed;
    for (int64_t at = 0; at < count; at += COH_NF4_BLOCK, from += COH_NF4_BLOCK_BYTES) {
        uint16_t numbers[COH_NF4_BLOCK];
        if (dtype == COH_DTYPE_BF16) {
            open_block((uint16_t *)y + at, from);
            continue;
        }
        open_block(numbers, from);
        for (int i = 0; i < COH_NF4_BLOCK; i++)
            ((float *)y)[at + i] = coh_f32_of_bf16(numbers[i]);
    }
}

void coh_nf4_dequantise(float *y, const void *packed, int64_t count)
{
    open_blocks(COH_DTYPE_F32, y, packed, count);
}

static void open_grain(void *argument, int64_t index)
{
    const coh_nf4_weight *weight = argument;
    const int64_t begin = index * (int64_t)COH_GRAIN_ELEMENTS, left = weight->count - begin;
    open_blocks(weight->dtype, (char *)weight->y + (size_t)begin * coh_dtype_bytes(weight->dtype),
                (const char *)weight->packed +
                    coh_dtype_array_bytes(COH_DTYPE_NF4, (uint64_t)begin),
                left < (int64_t)COH_GRAIN_ELEMENTS ? left : (int64_t)COH_GRAIN_ELEMENTS);
}

void coh_cpu_nf4(void *queue, const coh_nf4_weight *weight)
{
    coh_nf4_weight job = *weight;
    coh_parallel(queue, (weight->count + COH_GRAIN_ELEMENTS - 1) / COH_GRAIN_ELEMENTS, open_grain,
                 &job);
}
