/* product.cu - c [rows, columns] (= or +=) op(a) op(b), with bias and residual in the sum:
 * coh_matmul without a library. It is used if cuBLASLt is missing or refuses the form. Next:
 * matmul.c launches it.
 *
 * Compute-bound if there are many tiles. A block computes a tile of c and walks through the depth;
 * the next step's data is loaded from memory to registers while it multiplies. An operand lies in
 * shared memory as it does in memory: along the depth, or across it.
 *
 *    layout   a           b            one step of the walk
 *    NT       along       along
 *    NN       along       across       bf16: 32 of the depth, by mma.m16n8k16
 *    TN       across      across       f32:  16 of it, one product and sum after the other
 *
 * Every sum runs through the depth from begin to end in one thread's register. The order follows
 * from the depth alone, and two launches give the same bits. Elements after the end of a row or a
 * column count as zeros. */
#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/arguments.h"
#include "kernels/cuda/pack.cuh"

/* An operand as a tile's loads see it: elements (row, depth) of a, (column, depth) of b. */
template <typename T> struct operand {
    const T *data;
    int64_t stride, count, depth; /* count: rows of a, columns of b */
    int packed;
};

/* Loads COH_PACK consecutive elements, with zeros after `left` of them. */
template <typename T>
COH_DEVICE coh_raw<T, coh_pack<T>> fetch_left(const T *from, int64_t left, int packed)
{
    return coh_fetch_part_again<T, coh_pack<T>>(from, left, packed && left >= coh_pack<T>);
}

/* Loads pack `index` of the tile that begins at (first, k). ALONG: packs lie along the depth. */
template <typename T, int LENGTH, int DEPTH, int ALONG>
COH_DEVICE coh_raw<T, coh_pack<T>> fetch_pack(const operand<T> &x, int64_t first, int64_t k,
                                              int index)
{
    constexpr int W = coh_pack<T>, in_a_row = (ALONG ? DEPTH : LENGTH) / W;
    const int64_t row = (ALONG ? first : k) + index / in_a_row;
    const int64_t at = (ALONG ? k : first) + index % in_a_row * W;
    if (row >= (ALONG ? x.count : x.depth))
        return {};
    return fetch_left<T>(x.data + row * x.stride + at, (ALONG ? x.depth : x.count) - at, x.packed);
}

/* Finishes a sum and stores it. */
COH_DEVICE void finish(const coh_cuda_product_arguments &p, int64_t row, int64_t column, float sum,
                       int is_bf16)
{
    if (row >= p.rows || column >= p.columns)
        return;
    const int64_t at = row * p.c_stride + column;
    const int c_is_bf16 = p.c_is_bf16;
    if (p.adds) {
        sum += c_is_bf16 ? coh_float_of(((const coh_half *)p.c)[at]) : ((const float *)p.c)[at];
    } else {
        if (p.bias != nullptr)
            sum += is_bf16 ? coh_float_of(((const coh_half *)p.bias)[column])
                           : ((const float *)p.bias)[column];
        if (p.residual != nullptr)
            sum += is_bf16 ? coh_float_of(((const coh_half *)p.residual)[at])
                           : ((const float *)p.residual)[at];
    }
    if (c_is_bf16)
        ((coh_half *)p.c)[at] = coh_bf16_of(sum);
    else
        ((float *)p.c)[at] = sum;
}

/* Tiles of one column of tiles follow one another, so that blocks that run together share b. */
template <int ROWS, int COLUMNS>
COH_DEVICE void tile_place(const coh_cuda_product_arguments &p, int64_t *row, int64_t *column)
{
    const int64_t row_tiles = (p.rows + ROWS - 1) / ROWS;
    *row = blockIdx.x % row_tiles * ROWS;
    *column = blockIdx.x / row_tiles * COLUMNS;
}

/* ---- bf16 ----
 *
 * Eight warps, two by four, each take 64 x 32 of a tile of 128 x 128. Rows of a tile in shared
 * memory are padded by 16 bytes, so that the eight rows that ldmatrix reads at once lie in eight
 * different banks of 16 bytes. */
#define HALF_TILE  COH_CUDA_PRODUCT_TILE_BF16
#define HALF_DEPTH 32
#define HALF_WARPS 8
#define HALF_PACKS (HALF_TILE * HALF_DEPTH / 8 / (HALF_WARPS * COH_WARP)) /* per thread */
#define HALF_ALONG (HALF_DEPTH + 8)
#define HALF_WIDE  (HALF_TILE + 8)
#define HALF_BYTES (HALF_TILE * HALF_ALONG * 2) /* 10240; across: 32 x 136 x 2 = 8704 */

struct half_packs {
    coh_raw<coh_half, 8> pack[HALF_PACKS];
};

template <int ALONG>
COH_DEVICE half_packs fetch_half(const operand<coh_half> &x, int64_t first, int64_t k)
{
    half_packs packs;
#pragma unroll
    for (int i = 0; i < HALF_PACKS; i++)
        packs.pack[i] = fetch_pack<coh_half, HALF_TILE, HALF_DEPTH, ALONG>(
            x, first, k, threadIdx.x + i * HALF_WARPS * COH_WARP);
    return packs;
}

template <int ALONG> COH_DEVICE void store_half(coh_half *tile, const half_packs &packs)
{
    constexpr int in_a_row = (ALONG ? HALF_DEPTH : HALF_TILE) / 8;
    constexpr int pitch = ALONG ? HALF_ALONG : HALF_WIDE;
#pragma unroll
    for (int i = 0; i < HALF_PACKS; i++) {
        const int index = threadIdx.x + i * HALF_WARPS * COH_WARP;
        const uint32_t *word = packs.pack[i].word;
        *(coh_four *)(tile + index / in_a_row * pitch +
                      index % in_a_row * 8) = { { word[0], word[1], word[2], word[3] } };
    }
}

/* Loads four 8 x 8 pieces of an operand from (first, k). The flag says in which direction the
 * second piece is further; the third is 8 further in the other direction. */
template <int ALONG>
COH_DEVICE void pieces(uint32_t to[4], const coh_half *tile, int first, int k,
                       int second_is_further_in_depth)
{
    const int lane = threadIdx.x % COH_WARP, piece = lane / 8;
    const int in_depth = second_is_further_in_depth ? piece % 2 : piece / 2;
    const int in_length = second_is_further_in_depth ? piece / 2 : piece % 2;
    if constexpr (ALONG)
        coh_ldmatrix(to, tile + (first + in_length * 8 + lane % 8) * HALF_ALONG + k + in_depth * 8);
    else
        coh_ldmatrix_transposed(to, tile + (k + in_depth * 8 + lane % 8) * HALF_WIDE + first +
                                        in_length * 8);
}

struct half_sums {
    float c[4][4][4]; /* 16 rows, 8 columns, place in the fragment */
};

template <int A_ALONG, int B_ALONG>
COH_DEVICE void multiply_half(half_sums &sums, const coh_half *a_tile, const coh_half *b_tile)
{
    const int warp = threadIdx.x / COH_WARP, row = warp / 4 * 64, column = warp % 4 * 32;
#pragma unroll
    for (int k = 0; k < HALF_DEPTH; k += 16) {
        uint32_t b[2][4];
#pragma unroll
        for (int j = 0; j < 2; j++)
            pieces<B_ALONG>(b[j], b_tile, column + j * 16, k, 1);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t a[4];
            pieces<A_ALONG>(a, a_tile, row + i * 16, k, 0);
#pragma unroll
            for (int j = 0; j < 4; j++)
                coh_mma(sums.c[i][j], a, b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
        }
    }
}

COH_DEVICE void finish_half(const coh_cuda_product_arguments &p, const half_sums &sums, int64_t row,
                            int64_t column)
{
    const int warp = threadIdx.x / COH_WARP, lane = threadIdx.x % COH_WARP;
    row += warp / 4 * 64 + lane / 4;
    column += warp % 4 * 32 + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int n = 0; n < 4; n++)
                finish(p, row + i * 16 + n / 2 * 8, column + j * 8 + n % 2, sums.c[i][j][n], 1);
}

template <int A_ALONG, int B_ALONG>
COH_DEVICE void product_half(const coh_cuda_product_arguments &p)
{
    __shared__ coh_four tiles[2][2][HALF_BYTES / sizeof(coh_four)];
    const operand<coh_half> a = { (const coh_half *)p.a, p.a_stride, p.rows, p.depth, p.a_packed };
    const operand<coh_half> b = { (const coh_half *)p.b, p.b_stride, p.columns, p.depth,
                                  p.b_packed };
    int64_t row, column;
    half_sums sums = {};
    tile_place<HALF_TILE, HALF_TILE>(p, &row, &column);
    half_packs next_a = fetch_half<A_ALONG>(a, row, 0), next_b = fetch_half<B_ALONG>(b, column, 0);
    int turn = 0;
    for (int64_t k = 0; k < p.depth; k += HALF_DEPTH, turn ^= 1) {
        coh_half *a_tile = (coh_half *)tiles[turn][0], *b_tile = (coh_half *)tiles[turn][1];
        store_half<A_ALONG>(a_tile, next_a);
        store_half<B_ALONG>(b_tile, next_b);
        __syncthreads(); /* the other buffers are read until here */
        if (k + HALF_DEPTH < p.depth) {
            next_a = fetch_half<A_ALONG>(a, row, k + HALF_DEPTH);
            next_b = fetch_half<B_ALONG>(b, column, k + HALF_DEPTH);
        }
        multiply_half<A_ALONG, B_ALONG>(sums, a_tile, b_tile);
    }
    finish_half(p, sums, row, column);
}

/* ---- f32 ----
 *
 * 256 threads each take 4 x 4 of a tile of 64 x 64. Both operands lie across the depth in shared
 * memory, so that four rows, or columns, are one load. */
#define FLOAT_TILE    COH_CUDA_PRODUCT_TILE_F32
#define FLOAT_DEPTH   16
#define FLOAT_THREADS 256
#define FLOAT_WIDE    (FLOAT_TILE + 4)

template <int ALONG> COH_DEVICE void store_float(float *tile, const coh_raw<float, 4> &pack)
{
    constexpr int in_a_row = (ALONG ? FLOAT_DEPTH : FLOAT_TILE) / 4;
    const int row = threadIdx.x / in_a_row, at = threadIdx.x % in_a_row * 4;
    if constexpr (ALONG) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            tile[(at + i) * FLOAT_WIDE + row] = __uint_as_float(pack.word[i]);
    } else {
        *(coh_four *)(tile + row * FLOAT_WIDE +
                      at) = { { pack.word[0], pack.word[1], pack.word[2], pack.word[3] } };
    }
}

COH_DEVICE coh_floats<4> four_of(const float *from)
{
    const coh_four four = *(const coh_four *)from;
    return { { __uint_as_float(four.word[0]), __uint_as_float(four.word[1]),
               __uint_as_float(four.word[2]), __uint_as_float(four.word[3]) } };
}

COH_DEVICE void multiply_float(float sums[4][4], const float *a_tile, const float *b_tile)
{
#pragma unroll
    for (int k = 0; k < FLOAT_DEPTH; k++) {
        const coh_floats<4> a = four_of(a_tile + k * FLOAT_WIDE + threadIdx.x / 16 * 4);
        const coh_floats<4> b = four_of(b_tile + k * FLOAT_WIDE + threadIdx.x % 16 * 4);
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                sums[i][j] += a.x[i] * b.x[j];
    }
}

template <int A_ALONG, int B_ALONG>
COH_DEVICE void product_float(const coh_cuda_product_arguments &p)
{
    __shared__ coh_four tiles[2][2][FLOAT_DEPTH * FLOAT_WIDE / 4];
    const operand<float> a = { (const float *)p.a, p.a_stride, p.rows, p.depth, p.a_packed };
    const operand<float> b = { (const float *)p.b, p.b_stride, p.columns, p.depth, p.b_packed };
    int64_t row, column;
    float sums[4][4] = {};
    tile_place<FLOAT_TILE, FLOAT_TILE>(p, &row, &column);
    const int index = threadIdx.x;
    auto next_a = fetch_pack<float, FLOAT_TILE, FLOAT_DEPTH, A_ALONG>(a, row, 0, index);
    auto next_b = fetch_pack<float, FLOAT_TILE, FLOAT_DEPTH, B_ALONG>(b, column, 0, index);
    int turn = 0;
    for (int64_t k = 0; k < p.depth; k += FLOAT_DEPTH, turn ^= 1) {
        float *a_tile = (float *)tiles[turn][0], *b_tile = (float *)tiles[turn][1];
        store_float<A_ALONG>(a_tile, next_a);
        store_float<B_ALONG>(b_tile, next_b);
        __syncthreads();
        if (k + FLOAT_DEPTH < p.depth) {
            const int64_t next = k + FLOAT_DEPTH;
            next_a = fetch_pack<float, FLOAT_TILE, FLOAT_DEPTH, A_ALONG>(a, row, next, index);
            next_b = fetch_pack<float, FLOAT_TILE, FLOAT_DEPTH, B_ALONG>(b, column, next, index);
        }
        multiply_float(sums, a_tile, b_tile);
    }
    row += index / 16 * 4;
    column += index % 16 * 4;
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            finish(p, row + i, column + j, sums[i][j], 0);
}

#define PRODUCT_KERNELS(layout, a_along, b_along)                                                  \
    COH_KERNEL_OF(coh_product_##layout##_bf16, HALF_WARPS *COH_WARP, 1,                            \
                  const __grid_constant__ coh_cuda_product_arguments p)                            \
    {                                                                                              \
        product_half<a_along, b_along>(p);                                                         \
    }                                                                                              \
    COH_KERNEL_OF(coh_product_##layout##_f32, FLOAT_THREADS, 2,                                    \
                  const __grid_constant__ coh_cuda_product_arguments p)                            \
    {                                                                                              \
        product_float<a_along, b_along>(p);                                                        \
    }

PRODUCT_KERNELS(nt, 1, 1)
PRODUCT_KERNELS(nn, 1, 0)
PRODUCT_KERNELS(tn, 0, 0)

/* ---- activation of c ----
 *
 * activated = gelu or relu of c if its rows are not contiguous, with the same bits as the functions
 * of elementwise.cu. Memory-bound. A block takes a row, and then the next one that no block has. */
template <typename T, int W>
COH_DEVICE void activate_part(const coh_cuda_activate_arguments &a, const T *from, T *to,
                              int64_t begin, int64_t end)
{
    for (int64_t i = begin + threadIdx.x * W; i < end; i += (int64_t)blockDim.x * W) {
        coh_floats<W> y = coh_take<T, W>(from + i);
#pragma unroll
        for (int n = 0; n < W; n++)
            y.x[n] = a.is_relu ? coh_relu(y.x[n]) : coh_gelu(y.x[n]);
        coh_put<T, W>(to + i, y);
    }
}

template <typename T> COH_DEVICE void activate_rows(const coh_cuda_activate_arguments &a)
{
    const int64_t whole = a.packed ? a.columns - a.columns % coh_pack<T> : 0;
    for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
        const T *from = (const T *)a.x + row * a.stride;
        T *to = (T *)a.y + row * a.stride;
        activate_part<T, coh_pack<T>>(a, from, to, 0, whole);
        activate_part<T, 1>(a, from, to, whole, a.columns);
    }
}
COH_KERNELS(activate_rows, coh_cuda_activate_arguments, 256, 8)
