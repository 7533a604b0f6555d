/* Causal attention on the host: selects the table of inner loops, and runs the pieces of forward
 * and backward on the pool. Next: attention.h for the cut, isa/attention_forward.c for the
 * loops. */
#include "kernels/cpu/attention.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cohobate/model.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/table.h"

/* y_i = sum_j p_ij v_j, p_ij = exp(s_ij - lse_i), s_ij = q_i . k_j / sqrt(D), j <= i.
 *
 *           keys 0      128     256
 *  queries 0 |\
 *            |##\                 a piece of forward: a block of queries of one head, passing over
 *        128 |####\               blocks of keys up to the diagonal
 *            |######\             a piece of backward: some blocks of keys of one head, each
 *        256 |#######|\           passing over the blocks of queries from the diagonal on
 *
 * So dk and dv of a block of keys are sums of one piece. dq of a query is a sum over pieces: each
 * piece writes its part to scratch and, if a head has several, they are folded in order. If there
 * are few heads, they are cut into parts so that many threads have work. If heads of queries share
 * a head of keys, each writes its dk and dv to scratch, and those are folded as well: pieces of a
 * whole group would be too few and would need more scratch for their dq. */

int64_t coh_kernel_attention_scratch(int64_t B, int64_t T, int64_t H, int64_t G, int64_t D)
{
    const coh_attention shape = { .B = B, .T = T, .H = H, .G = G, .D = D };
    const coh_attention_cut cut = coh_attention_cut_of(&shape);
    return B * H * cut.head_scratch;
}

const coh_attention_pieces *coh_attention_pieces_of(const char *isa, coh_dtype dtype)
{
    (void)dtype; /* on other processors one table serves both */
#if defined(__x86_64__)
    if (strcmp(isa, "avx512bf16") == 0)
        return dtype == COH_DTYPE_BF16 && coh_rows_of("avx512", dtype) != NULL &&
                       __builtin_cpu_supports("avx512bf16")
                   ? &coh_attention_avx512bf16
                   : NULL;
    if (strcmp(isa, "avx512") == 0)
        return coh_rows_of(isa, dtype) != NULL ? &coh_attention_avx512 : NULL;
    if (strcmp(isa, "avx2") == 0)
        return coh_rows_of(isa, dtype) != NULL ? &coh_attention_avx2 : NULL;
#endif
    return strcmp(isa, "plain") == 0 ? &coh_attention_plain : NULL;
}

typedef struct attention_run {
    const coh_attention *attention;
    coh_attention_piece *piece;
} attention_run;

static struct {
    pthread_once_t once;
    const coh_attention_pieces *f32, *bf16;
} chosen = { .once = PTHREAD_ONCE_INIT };

/* COH_PLAIN_MATMUL=1 applies to these products as well (dispatch.h). */
static void choose(void)
{
    const char *plain = getenv("COH_PLAIN_MATMUL"), *isa = coh_rows_get()->name;
    const int is_plain = plain != NULL && strcmp(plain, "1") == 0;
    chosen.f32 = coh_attention_pieces_of(is_plain ? "plain" : isa, COH_DTYPE_F32);
    chosen.bf16 = !is_plain && coh_kernels_bf16() == COH_BF16_HARDWARE
                      ? coh_attention_pieces_of("avx512bf16", COH_DTYPE_BF16)
                      : chosen.f32;
}

static const coh_attention_pieces *pieces_of(const coh_attention *attention)
{
    pthread_once(&chosen.once, choose);
    return attention->dtype == COH_DTYPE_BF16 ? chosen.bf16 : chosen.f32;
}

static void run_piece(void *argument, int64_t index)
{
    const attention_run *run = argument;
    run->piece(run->attention, index);
}

static void run_pieces(void *queue, const coh_attention *attention, coh_attention_piece *piece,
                       int64_t count)
{
    attention_run run = { attention, piece };
    coh_parallel(queue, count, run_piece, &run);
}

void coh_cpu_attention(void *queue, const coh_attention *attention)
{
    const coh_attention_cut cut = coh_attention_cut_of(attention);
    run_pieces(queue, attention, pieces_of(attention)->forward,
               attention->B * attention->H * cut.blocks);
}

void coh_cpu_attention_backward(void *queue, const coh_attention *attention)
{
    const coh_attention *a = attention;
    const coh_attention_cut cut = coh_attention_cut_of(a);
    const coh_attention_pieces *pieces = pieces_of(a);
    run_pieces(queue, a, pieces->backward, a->B * a->H * cut.parts);
    if (cut.parts > 1 && a->dq != NULL)
        run_pieces(queue, a, pieces->fold, a->B * a->H * cut.blocks);
    if (a->H > a->G && (a->dk != NULL || a->dv != NULL))
        run_pieces(queue, a, pieces->fold_group, a->B * a->G * cut.key_blocks);
}
