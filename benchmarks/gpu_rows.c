/* Compares the CUDA kernels that are passes over memory (gpu_passes.h), in both element types, with
 * the driver's copy of as many bytes between tensors of this GPU, which measures its memory
 * bandwidth. Only bytes that must be moved count, each operand once. Tensors have 2^27 elements,
 * several times the L2 cache, and random bits.
 *
 *     gpu_rows [C [ELEMENTS]]      rows of C elements, default 4096, in tensors of ELEMENTS; 77:
 *                                  there is no GPU */
#include <stdio.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "benchmarks/gpu_passes.h"
#include "benchmarks/gpu_turns.h"
#include "benchmarks/measure.h"
#include "kernels/cuda/attention_scratch.h"
#include "kernels/cuda/scratch.h"
#include "kernels/kernels.h"

enum { T_MOST = 2048, LEAST_COLUMNS = 1024 }; /* of passes with their own columns */
#define BOTH_SIGNS  0x80008000u
#define ELEMENTS    ((int64_t)1 << 27)
#define SMALL_BYTES ((size_t)256 << 20) /* for all tensors of other sizes than ELEMENTS */
#define GOAL        0.9                 /* of the copy */

static const coh_device_ops *const ops = &coh_device_cuda;

/* A pass, and its copy of as many bytes. */
typedef struct row {
    gpu_rows rows;
    const gpu_pass *pass;
    size_t bytes;
} row;

/* ---- runs ---- */

static void enqueue(void *context, uint64_t number, uint32_t index)
{
    row *r = context;
    (void)number;
    (void)index;
    r->pass->run(&r->rows);
}

/* Half of the bytes are read, half are written. */
static void enqueue_copy(void *context, uint64_t number, uint32_t index)
{
    const row *r = context;
    const size_t most = (size_t)r->rows.most * sizeof(float);
    (void)number;
    (void)index;
    for (size_t left = r->bytes / 2; left > 0;) {
        const size_t bytes = left < most ? left : most;
        ops->copy(r->rows.turns->queue, r->rows.of[GPU_ROWS_TENSORS - 1],
                  r->rows.of[GPU_ROWS_TENSORS - 2], bytes);
        left -= bytes;
    }
}

static size_t bytes_of(const gpu_pass *pass, const gpu_rows *t)
{
    const size_t type_bytes = coh_dtype_bytes(t->dtype);
    size_t element = (size_t)pass->of_type * type_bytes + (size_t)pass->floats * sizeof(float) +
                     (size_t)pass->bytes;
    if (t->dtype == COH_DTYPE_BF16)
        element += (size_t)pass->halves * sizeof(uint16_t);
    const uint64_t count = (uint64_t)(t->N * t->C);
    return (size_t)count * element +
           (size_t)pass->nf4 * (size_t)coh_dtype_array_bytes(COH_DTYPE_NF4, count) +
           (size_t)(t->T * t->C) * (size_t)pass->of_sequence * type_bytes;
}

/* Sets rows of `columns` columns. */
static void set_rows(gpu_rows *t, int64_t columns)
{
    t->C = columns;
    t->T = t->most / columns < T_MOST ? t->most / columns : T_MOST;
    t->N = t->most / columns / t->T * t->T;
}

static coh_status measure_pass(const gpu_rows *t, const gpu_pass *pass)
{
    char shape[64];
    double seconds[2][MEASURE_PAIRS];
    measure_result result;
    row r = { .rows = *t, .pass = pass };
    gpu_side sides[] = { { .work = enqueue, .context = &r },
                         { .work = enqueue_copy, .context = &r } };
    snprintf(shape, sizeof(shape), "%s %s", pass->name, t->dtype == COH_DTYPE_F32 ? "f32" : "bf16");
    if (pass->columns > t->most) {
        fprintf(stderr, "gpu_rows: %s: a row is longer than %lld elements\n", shape,
                (long long)t->most);
        return COH_OK;
    }
    if (pass->columns > 0)
        set_rows(&r.rows, pass->columns);
    r.bytes = bytes_of(pass, &r.rows);
    COH_TRY(gpu_turns_take(t->turns, sides, 2, seconds));
    measure_compare(seconds[0], seconds[1], &result);
    measure_print_aims("gpu_rows", shape, 1e-9 * (double)r.bytes, "GB", &result,
                       &(measure_aims){ .goal = GOAL });
    return COH_OK;
}

static coh_status measure_all(gpu_rows *t)
{
    static const coh_dtype dtypes[] = { COH_DTYPE_F32, COH_DTYPE_BF16 };
    for (int i = 0; i < 2; i++) {
        t->dtype = dtypes[i];
        for (int j = 0; j < gpu_pass_count; j++)
            if (gpu_passes[j].of_type > 0 || t->dtype == COH_DTYPE_BF16)
                COH_TRY(measure_pass(t, &gpu_passes[j]));
    }
    return COH_OK;
}

/* ---- memory ---- */

/* The free rest of the arena. */
typedef struct room {
    const gpu_turns *turns;
    uint64_t used_bytes;
} room;

static void *take(room *left, size_t bytes)
{
    void *memory = left->turns->arena + left->used_bytes;
    left->used_bytes += (bytes + 255) / 256 * 256;
    return left->used_bytes <= left->turns->arena_bytes ? memory : NULL;
}

/* Fills with numbers of about one hundredth in either type, of both signs, or positive for signs
 * 0. */
static coh_status fill(const gpu_rows *t, void *tensor, size_t bytes, uint32_t signs)
{
    enum { PIECE = 1 << 20 };
    static uint32_t words[PIECE];
    uint32_t state = 12345;
    for (size_t at = 0; at < bytes; at += sizeof(words)) {
        for (int i = 0; i < PIECE; i++) {
            state = state * 1664525u + 1013904223u;
            words[i] = 0x3c003c00u | (state & (signs | 0x03ff03ffu));
        }
        const size_t rest = bytes - at;
        COH_TRY(ops->put(t->turns->device, (char *)tensor + at, words,
                         rest < sizeof(words) ? rest : sizeof(words)));
    }
    return COH_OK;
}

/* Makes `count` ids below `below`, far apart from one another. */
static coh_status fill_ids(const gpu_rows *t, int32_t *to, int64_t count, int64_t below)
{
    const size_t bytes = (size_t)count * sizeof(int32_t);
    int32_t *ids = malloc(bytes);
    if (ids == NULL)
        return coh_fail(COH_ERR_MEMORY, "no memory for %zu bytes of ids", bytes);
    for (int64_t i = 0; i < count; i++)
        ids[i] = (int32_t)((uint32_t)i * 2654435761u % (uint32_t)below);
    const coh_status status = ops->put(t->turns->device, to, ids, bytes);
    free(ids);
    return status;
}

static coh_status fill_small(const gpu_rows *t, int64_t rows)
{
    static const coh_cells cells = { .update_rate = 1e-4f,
                                     .update_scale = 1.0f,
                                     .update_scalars = { 0.5f, 0.5f } };
    const int32_t last = (int32_t)(t->T - 1);
    COH_TRY(fill_ids(t, t->tokens, t->N, t->N));
    COH_TRY(fill_ids(t, t->common, t->N, (t->N + GPU_ROWS_COMMON - 1) / GPU_ROWS_COMMON));
    COH_TRY(fill_ids(t, t->targets, rows, LEAST_COLUMNS));
    COH_TRY(ops->put(t->turns->device, t->last, &last, sizeof(last)));
    COH_TRY(ops->put(t->turns->device, t->cells, &cells, sizeof(cells)));
    COH_TRY(fill(t, t->rstd, (size_t)rows * sizeof(float), 0));
    COH_TRY(fill(t, t->mean, (size_t)rows * sizeof(float), BOTH_SIGNS));
    return fill(t, t->weight, GPU_ROWS_WIDEST * sizeof(float), BOTH_SIGNS);
}

/* Returns the number of partial sums, in floats, of passes over rows of this many columns. */
static size_t partials_of(const gpu_rows *t, int64_t columns)
{
    const int64_t N = t->most / columns, norm = coh_cuda_norm_partials(N, columns),
                  activation = coh_kernel_activation_partials(N, columns);
    return (size_t)(norm > activation ? norm : activation);
}

static coh_status make(gpu_rows *t)
{
    const int64_t narrow = t->C < LEAST_COLUMNS ? t->C : LEAST_COLUMNS, rows = t->most / narrow;
    const int64_t wide = t->most < GPU_ROWS_WIDEST ? t->most : GPU_ROWS_WIDEST;
    const size_t partials[] = { partials_of(t, t->C), partials_of(t, wide) };
    const size_t tensor = (size_t)t->most * sizeof(float),
                 columns = sizeof(float) * GPU_ROWS_WIDEST;
    room arena = { .turns = t->turns };
    for (int i = 0; i < GPU_ROWS_TENSORS; i++) {
        t->of[i] = take(&arena, tensor);
        COH_TRY(fill(t, t->of[i], tensor, i == GPU_ROWS_SQUARES ? 0 : BOTH_SIGNS));
    }
    t->weight = take(&arena, columns);
    t->dweight = take(&arena, columns);
    t->dbias = take(&arena, columns);
    t->mean = take(&arena, (size_t)rows * sizeof(float));
    t->rstd = take(&arena, (size_t)rows * sizeof(float));
    t->target = take(&arena, (size_t)rows * sizeof(float));
    t->targets = take(&arena, (size_t)rows * sizeof(int32_t));
    t->tokens = take(&arena, (size_t)t->N * sizeof(int32_t));
    t->common = take(&arena, (size_t)t->N * sizeof(int32_t));
    t->order = take(&arena, (size_t)coh_cuda_embedding_order(t->N) * sizeof(int32_t));
    t->partials =
        take(&arena, (partials[0] > partials[1] ? partials[0] : partials[1]) * sizeof(float));
    t->scratch = take(&arena, coh_cuda_decode_bytes(t->N / t->T * (t->C / 128), 1, 128, t->T));
    t->last = take(&arena, sizeof(*t->last));
    t->cells = take(&arena, sizeof(*t->cells));
    t->squares = take(&arena, (size_t)(t->most / COH_GRAIN_ELEMENTS + 1) * sizeof(double));
    if (t->squares == NULL)
        return coh_fail(COH_ERR_FULL, "rows of %lld elements need more scratch than %zu bytes",
                        (long long)t->C, SMALL_BYTES);
    return fill_small(t, rows);
}

static coh_status run(gpu_rows *t)
{
    COH_TRY(gpu_turns_open(t->turns,
                           GPU_ROWS_TENSORS * (uint64_t)t->most * sizeof(float) + SMALL_BYTES));
    COH_TRY(make(t));
    return measure_all(t);
}

int main(int argc, char **argv)
{
    gpu_turns turns = { 0 };
    const int64_t columns = argc > 1 ? atoll(argv[1]) : 4096;
    gpu_rows t = { .turns = &turns, .most = argc > 2 ? atoll(argv[2]) : ELEMENTS };
    if (columns < 128 || columns % 128 != 0 || columns > GPU_ROWS_WIDEST || t.most < columns ||
        t.most > ELEMENTS) {
        fprintf(stderr,
                "gpu_rows: rows of a multiple of 128 elements, to %d, are measured, in tensors of "
                "one row to %lld elements\n",
                GPU_ROWS_WIDEST, (long long)ELEMENTS);
        return 2;
    }
    set_rows(&t, columns);
    const coh_status missing = gpu_passes_check();
    const coh_status status = missing != COH_OK ? missing : run(&t);
    if (status != COH_OK)
        fprintf(stderr, "gpu_rows: %s\n", coh_last_error());
    const int is_absent = missing == COH_OK && status != COH_OK && turns.device == NULL;
    gpu_turns_close(&turns);
    return is_absent ? MEASURE_ABSENT : status != COH_OK;
}
