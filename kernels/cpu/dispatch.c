/* Selects the table of inner loops for this processor, once, and calls it for the functions that
 * work on one thread and any range of elements. Next: dispatch.h; rows.h for the loops. */
#include "kernels/cpu/dispatch.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Written once, by choose(), before any thread reads it. */
static struct {
    pthread_once_t once;
    const coh_rows *rows, *bf16_rows;
} chosen = { .once = PTHREAD_ONCE_INIT };

const coh_rows *coh_rows_of(const char *name, coh_dtype dtype)
{
    const int is_bf16 = dtype == COH_DTYPE_BF16;
    if (strcmp(name, "plain") == 0)
        return is_bf16 ? &coh_rows_plain_bf16 : &coh_rows_plain_f32;
#if defined(__x86_64__)
    if (strcmp(name, "avx2") == 0 && __builtin_cpu_supports("avx2") &&
        __builtin_cpu_supports("fma"))
        return is_bf16 ? &coh_rows_avx2_bf16 : &coh_rows_avx2_f32;
    if (strcmp(name, "avx512") == 0 && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq"))
        return is_bf16 ? &coh_rows_avx512_bf16 : &coh_rows_avx512_f32;
#endif
    return NULL;
}

static const coh_rows *choose_rows(void)
{
    static const char *const names[] = { "avx512", "avx2", "plain" };
    const char *highest = getenv("COH_ISA");
    size_t first = 0;
    for (size_t i = 0; highest != NULL && i < 3; i++)
        if (strcmp(highest, names[i]) == 0)
            first = i;
    for (size_t i = first; i < 3; i++)
        if (coh_rows_of(names[i], COH_DTYPE_F32) != NULL)
            return coh_rows_of(names[i], COH_DTYPE_F32);
    return &coh_rows_plain_f32;
}

static void choose(void)
{
    chosen.rows = choose_rows();
    chosen.bf16_rows = coh_rows_of(chosen.rows->name, COH_DTYPE_BF16);
    const char *highest = getenv("COH_ISA");
    coh_products_start(chosen.rows->name, highest != NULL ? highest : "");
}

void coh_kernels_start(void)
{
    pthread_once(&chosen.once, choose);
}

const coh_rows *coh_rows_for(coh_dtype dtype)
{
    coh_kernels_start();
    return dtype == COH_DTYPE_BF16 ? chosen.bf16_rows : chosen.rows;
}

const coh_rows *coh_rows_get(void)
{
    return coh_rows_for(COH_DTYPE_F32);
}

void coh_kernel_join(float *master, const uint16_t *high, const uint16_t *low, int64_t count)
{
    coh_rows_get()->join(master, high, low, count);
}

void coh_kernel_split(uint16_t *high, uint16_t *low, const float *master, int64_t count)
{
    coh_rows_get()->split(high, low, master, count);
}

void coh_kernel_normal(float *values, uint64_t seed, uint64_t stream, uint64_t first, int64_t count,
                       double scale)
{
    coh_rows_get()->normal(values, seed, stream, first, count, scale);
}

double coh_kernel_square_sum(coh_dtype dtype, const void *x, int64_t count)
{
    const coh_rows *rows = coh_rows_for(dtype);
    double total = 0;
    for (int64_t at = 0; at < count; at += COH_SQUARE_PIECE) {
        const int64_t left = count - at;
        total += rows->square_sum(coh_element_const(dtype, x, at),
                                  left < COH_SQUARE_PIECE ? left : COH_SQUARE_PIECE);
    }
    return total;
}

void coh_kernel_add(coh_dtype dtype, void *to, const void *from, int64_t count)
{
    coh_rows_for(dtype)->add(to, from, count);
}

int coh_kernel_all_finite(coh_dtype dtype, const void *x, int64_t count)
{
    return coh_rows_for(dtype)->all_finite(x, count);
}
