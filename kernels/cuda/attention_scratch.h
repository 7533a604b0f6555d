/* attention_scratch.h - sizes and partition of the scratch of attention's backward pass and of a
 * decoder's step on CUDA. They are functions of shapes alone and compile with or without CUDA,
 * because a plan for a GPU may be made on a machine without one. The backward pass is cut so that
 * its scratch stays small:
 *
 *    [ delta [B,H,T], floats | for cuDNN: dy of a cut's sequences, then its workspace ]
 *
 * cuDNN without atomics keeps whole squares of weights, 2 B H T T bytes. So it is given some
 * sequences, or some heads of one, at a time: as many as stay below COH_CUDNN_SCRATCH_WANTED. If
 * their queries do not fill a GPU, it is given as many as do, or as stay below
 * COH_CUDNN_SCRATCH_MOST. Our own kernels, whose scratch is delta, run all rows in two cases. One:
 * the heads that share one head of keys do not stay below that limit (four sharing heads from 9,100
 * tokens on, single heads from 18,500). Two: no cut falls on the boundaries that cuDNN needs (an
 * odd number of heads by an odd number of tokens).
 *
 * With atomics (coh_attention's `atomics`) cuDNN is given everything at once, whatever the rows:
 *
 *    [ delta | for cuDNN: sums of dq [B,H,T,D], floats | its workspace ] */
#ifndef COH_KERNELS_CUDA_ATTENTION_SCRATCH_H
#define COH_KERNELS_CUDA_ATTENTION_SCRATCH_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"

#define COH_CUDNN_SCRATCH_WANTED ((int64_t)64 << 20)
#define COH_CUDNN_SCRATCH_MOST   ((int64_t)640 << 20)
/* Most bytes of a plan's workspace in addition to its squares. */
#define COH_CUDNN_SCRATCH_REST 4096
/* Queries, of all heads, that fill a GPU: eight blocks of 128 for each of 132 multiprocessors. A
 * plan ends with blocks of few rows, in which multiprocessors idle. With two blocks, and at most
 * 256 MiB, four backward passes on an H200 had 0.60 to 0.82 of the rate of the whole shape at once;
 * so they have 0.90 to 1.00. */
#define COH_CUDNN_QUERIES_WANTED ((int64_t)8 * 132 * 128)

/* Sequences and heads of keys in one plan: divisors of B and G. 0, 0: none. */
typedef struct coh_cudnn_cut {
    int64_t B, G;
} coh_cudnn_cut;

/* Returns the bytes of squares in tiles of 128 rows and, if heads share keys, of dk and dv of each
 * head. */
static inline int64_t coh_cudnn_square_bytes(int64_t B, int64_t T, int64_t H, int64_t G, int64_t D)
{
    const int64_t rows = (T + 127) / 128 * 128;
    return 2 * B * H * rows * rows + (H > G ? 4 * B * H * T * D : 0);
}

/* Upper bound of a plan's workspace. tests/cuda/test_cudnn_graphs.c compares it with cuDNN. */
static inline int64_t coh_cudnn_plan_bytes(int64_t B, int64_t T, int64_t H, int64_t G, int64_t D)
{
    return coh_cudnn_square_bytes(B, T, H, G, D) + COH_CUDNN_SCRATCH_REST;
}

/* Returns how many of `of` units go into a plan; a unit has `bytes` bytes of squares and `queries`
 * queries. The result is a divisor of `of`, or 0 if even the smallest is too large. Each plan's
 * part of an array with one float per query begins on a 16-byte boundary, as cuDNN is told. */
static inline int64_t coh_cudnn_units(int64_t of, int64_t bytes, int64_t queries)
{
    int64_t units = 0;
    for (int64_t next = 1; next <= of && next * bytes <= COH_CUDNN_SCRATCH_MOST; next++) {
        const int is_whole = of % next == 0 && (next == of || next * queries % 4 == 0);
        if (is_whole && (next * bytes <= COH_CUDNN_SCRATCH_WANTED ||
                         units * queries < COH_CUDNN_QUERIES_WANTED))
            units = next;
    }
    return units;
}

static inline coh_cudnn_cut coh_cudnn_cut_of(int64_t B, int64_t T, int64_t H, int64_t G, int64_t D)
{
    const int64_t group = coh_cudnn_square_bytes(1, T, H / G, 1, D);
    const int64_t groups = coh_cudnn_units(G, group, H / G * T);
    if (groups < G) /* a sequence's queries are a multiple of 4, too */
        return (coh_cudnn_cut){ groups > 0, groups };
    return (coh_cudnn_cut){ coh_cudnn_units(B, G * group, H * T), G };
}

/* Widths of heads that cuDNN takes: multiples of the first, up to the second. */
#define COH_CUDNN_HEAD_WIDTH_UNIT 8
#define COH_CUDNN_HEAD_WIDTH_MOST 256

/* Returns whether cuDNN may take heads of this shape. Its notes say that it has no backward of one
 * token. It may still refuse: before sm_90 there is no backward of heads above 128. */
static inline int coh_cudnn_takes_heads(coh_dtype dtype, int64_t T, int64_t D)
{
    return dtype == COH_DTYPE_BF16 && T > 1 && D % COH_CUDNN_HEAD_WIDTH_UNIT == 0 &&
           D <= COH_CUDNN_HEAD_WIDTH_MOST;
}

/* Rounds up a part of scratch: parts begin on 256-byte boundaries. */
static inline size_t coh_attention_scratch_part(int64_t bytes)
{
    return ((size_t)bytes + 255) / 256 * 256;
}

/* Returns bytes, a multiple of 256. */
static inline size_t coh_cuda_attention_scratch_bytes(coh_dtype dtype, int64_t B, int64_t T,
                                                      int64_t H, int64_t G, int64_t D)
{
    size_t bytes = coh_attention_scratch_part(4 * B * H * T);
    const coh_cudnn_cut cut = coh_cudnn_cut_of(B, T, H, G, D);
    if (coh_cudnn_takes_heads(dtype, T, D) && cut.B > 0) {
        const int64_t heads = cut.G * (H / G);
        bytes += coh_attention_scratch_part(2 * cut.B * T * H * D);
        bytes += coh_attention_scratch_part(coh_cudnn_plan_bytes(cut.B, T, heads, cut.G, D));
    }
    return bytes;
}

/* ---- by atomics ---- */

/* Returns the bytes of a plan's own scratch. Before sm_90 cuDNN adds up in sums of its own, of rows
 * by eights; if heads share keys, there are also dk and dv of each head.
 * tests/cuda/test_cudnn_graphs.c compares it with cuDNN. */
static inline int64_t coh_cudnn_atomic_plan_bytes(int64_t B, int64_t T, int64_t H, int64_t G,
                                                  int64_t D)
{
    const int64_t rows = (T + 7) / 8 * 8;
    return 4 * B * H * rows * D + (H > G ? 4 * B * H * T * D : 0) + COH_CUDNN_SCRATCH_REST;
}

/* coh_cuda_attention_scratch_bytes with atomics. */
static inline size_t coh_cuda_attention_atomic_bytes(coh_dtype dtype, int64_t B, int64_t T,
                                                     int64_t H, int64_t G, int64_t D)
{
    size_t bytes = coh_attention_scratch_part(4 * B * H * T);
    if (coh_cudnn_takes_heads(dtype, T, D)) {
        bytes += coh_attention_scratch_part(4 * B * H * T * D);
        bytes += coh_attention_scratch_part(coh_cudnn_atomic_plan_bytes(B, T, H, G, D));
    }
    return bytes;
}

/* ---- a step of a decoder ---- */

/* Keys of a head per block, so that one head of a long row keeps several multiprocessors busy. If a
 * cache has room for more, each part writes a maximum, a sum and D sums of values. */
#define COH_CUDA_DECODE_KEYS 256

/* T rows of queries are T times the blocks, so their parts are T times as long. */
static inline int64_t coh_cuda_decode_part_keys(int64_t T)
{
    return COH_CUDA_DECODE_KEYS * T;
}

static inline int64_t coh_cuda_decode_parts(int64_t positions, int64_t T)
{
    const int64_t keys = coh_cuda_decode_part_keys(T);
    return (positions + keys - 1) / keys;
}

/* heads: of one row of queries of all sequences. As much as one row needs alone, at least, since a
 * step of one row may run in the memory of a longer one. */
static inline size_t coh_cuda_decode_bytes(int64_t heads, int64_t T, int64_t D, int64_t positions)
{
    const int64_t parts = coh_cuda_decode_parts(positions, T);
    const int64_t alone = coh_cuda_decode_parts(positions, 1);
    const int64_t most = parts > 1 && T * parts > alone ? T * parts : alone > 1 ? alone : 0;
    return (size_t)(heads * most * (D + 2)) * sizeof(float);
}

#endif
