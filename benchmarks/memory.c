/* Compares the memory's bandwidth with passes over bytes: the C library's copy, ours (the kernel
 * that passes a gradient on) and the checksum of a chunk, against the roofs: non-temporal copies,
 * and reads. One thread, then all.
 *
 *     memory 2 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/pool.h"
#include "benchmarks/measure.h"
#include "kernels/kernels.h"
#include "offload/checksum.h"

enum { BYTES = 128 << 20, PIECE_BYTES = 1 << 20, CHUNK_BYTES = 8 << 20 };

typedef struct memory {
    coh_pool *pool;
    char *from, *to;
    _Atomic uint64_t sum;
} memory;

static void past_piece(void *argument, int64_t index)
{
    const memory *m = argument;
    measure_copy_past_caches(m->to + index * PIECE_BYTES, m->from + index * PIECE_BYTES,
                             PIECE_BYTES);
}

static void libc_piece(void *argument, int64_t index)
{
    const memory *m = argument;
    memcpy(m->to + index * PIECE_BYTES, m->from + index * PIECE_BYTES, PIECE_BYTES);
}

static void read_piece(void *argument, int64_t index)
{
    memory *m = argument;
    m->sum += measure_read(m->from + index * PIECE_BYTES, PIECE_BYTES);
}

static void checksum_piece(void *argument, int64_t index)
{
    memory *m = argument;
    coh_store_request request = { .memory = m->from + index * CHUNK_BYTES,
                                  .bytes = CHUNK_BYTES,
                                  .id = { .chunk = (uint32_t)index } };
    m->sum += coh_checksum_of(&request);
}

static void past(void *argument)
{
    coh_pool_run(((memory *)argument)->pool, BYTES / PIECE_BYTES, past_piece, argument);
}

static void libc(void *argument)
{
    coh_pool_run(((memory *)argument)->pool, BYTES / PIECE_BYTES, libc_piece, argument);
}

static void reads(void *argument)
{
    coh_pool_run(((memory *)argument)->pool, BYTES / PIECE_BYTES, read_piece, argument);
}

static void checksums(void *argument)
{
    coh_pool_run(((memory *)argument)->pool, BYTES / CHUNK_BYTES, checksum_piece, argument);
}

static void pass(void *argument)
{
    const memory *m = argument;
    coh_kernel_pass(m->pool, COH_DTYPE_F32, m->to, m->from, BYTES / (int64_t)sizeof(float), 0);
}

static int run(memory *m, int thread_count)
{
    static const struct {
        const char *name;
        void (*ours)(void *), (*roof)(void *);
        double times_bytes; /* 2 if read and written */
    } cases[] = { { "copy of libc", libc, past, 2 },
                  { "pass kernel", pass, past, 2 },
                  { "checksum", checksums, reads, 1 } };
    if (coh_pool_create(thread_count, &m->pool) != COH_OK)
        return 1;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char shape[64];
        measure_result result;
        measure_pairs(cases[i].ours, cases[i].roof, m, &result);
        snprintf(shape, sizeof(shape), "%s, %d thread%s", cases[i].name, thread_count,
                 thread_count == 1 ? "" : "s");
        measure_print("memory", shape, 1e-9 * BYTES * cases[i].times_bytes, "GB", &result);
    }
    coh_pool_destroy(m->pool);
    return 0;
}

int main(int argc, char **argv)
{
    memory m = { .from = aligned_alloc(4096, BYTES), .to = aligned_alloc(4096, BYTES) };
    int threads = argc > 1 ? atoi(argv[1]) : 2, status = m.from == NULL || m.to == NULL;
    if (status == 0) {
        memset(m.from, 0, BYTES); /* zero, since the pass handles numbers */
        memset(m.to, 0, BYTES);
        coh_kernels_start();
        status = run(&m, 1) || (threads > 1 && run(&m, threads));
    }
    free(m.from);
    free(m.to);
    return status;
}
