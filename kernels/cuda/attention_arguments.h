/* attention_arguments.h - the arguments of the attention kernels: one struct by value, the same for
 * C and CUDA. Letters, strides and meaning are those of coh_attention (kernels/kernels.h). */
#ifndef COH_KERNELS_CUDA_ATTENTION_ARGUMENTS_H
#define COH_KERNELS_CUDA_ATTENTION_ARGUMENTS_H

#include <stdint.h>

#include "cohobate/model.h"

enum {
    COH_ATTENTION_THREADS = 128,         /* of tile kernels: four warps of sixteen rows each */
    COH_ATTENTION_ROWS = 64,             /* of a block's tile of queries or keys */
    COH_ATTENTION_GENERAL_THREADS = 256, /* of general kernels */
    COH_ATTENTION_GENERAL_ROWS = 32,
    COH_ATTENTION_GENERAL_COLUMNS = 256, /* of dk and dv in one block */
    COH_ATTENTION_DELTA_ROWS = 8,        /* a warp each */
    COH_ATTENTION_DECODE_THREADS = 128,
};

/* Shared memory of tile kernels of width W, in rows of W + COH_ATTENTION_PAD bf16. Forward has two
 * tiles each of keys and values. If the queries fit into registers, they are loaded through that
 * memory first; otherwise they have a tile in addition. Backward has the two tiles of the block
 * and, once or twice, two tiles that it passes over, plus an lse, a delta and a first key per row
 * if the block owns keys. */
#define COH_ATTENTION_PAD               8
#define COH_ATTENTION_HOLDS(W)          ((W) <= 128)
#define COH_ATTENTION_FORWARD_KEYS(W)   (COH_ATTENTION_HOLDS(W) ? 64 : 32)
#define COH_ATTENTION_BACKWARD_ROWS(W)  ((W) <= 64 ? 64 : (W) <= 128 ? 32 : 16)
#define COH_ATTENTION_BACKWARD_SIDES(W) ((W) <= 128 ? 2 : 1)

typedef struct coh_attention_arguments {
    int64_t q_stride, kv_stride, first_head;
    int64_t rows; /* B T H: of delta */
    int32_t T, H, G, D;
    int32_t window; /* T: none */
    const int32_t *positions;
    const void *q, *k, *v;
    void *y;
    float *lse;
    const void *dy;
    float *delta; /* [B,H,T] sum of dy y over a head's row */
    void *dq, *dk, *dv;
    int32_t dq_adds, dk_adds, dv_adds;
    float scale;                         /* of scores */
    float cap;                           /* 0: none */
    float to_cap, from_cap, product_cap; /* scale / cap, 1 / cap, cap / scale */
    /* dropout of weights; the cell is in device memory */
    const coh_random_cell *random_cell;
    uint32_t operator_index, microbatch, drop_threshold;
    float drop_scale;
} coh_attention_arguments;

typedef struct coh_attention_decode_arguments {
    int64_t q_stride, kv_stride, positions;
    int64_t T;      /* queries of a sequence */
    int64_t window; /* positions: none */
    const int32_t *position;
    int32_t H, G, D;
    float scale, cap;
    const void *q, *k, *v;
    void *keys, *values, *y;
    int64_t part_keys; /* keys per block */
    int64_t parts;     /* scratch is for this many parts of a head; 1: no scratch */
    float *sums;       /* [heads of all queries, parts, D]: sums of values */
    float *facts;      /* [.., parts, 2]: maximum, and sum relative to it */
} coh_attention_decode_arguments;

#endif
