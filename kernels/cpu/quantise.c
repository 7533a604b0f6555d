/* Stochastic rounding and quantisation on the host: runs grains on the pool, with random halves
 * made per group. Next: kernels/quantise.h, isa/quantise.c for the loops. */
#include "kernels/quantise.h"

#include <assert.h>

#include "base/bytes.h"
#include "kernels/cpu/dispatch.h"

_Static_assert(COH_RANDOM_HALVES == COH_QUANTISE_BLOCK, "a block has the halves of one group");
_Static_assert(COH_GRAIN_ELEMENTS % COH_QUANTISE_BLOCK == 0, "grains are whole blocks");

static coh_random stream_of(const coh_rounding *rounding)
{
    if (rounding->cell == NULL)
        return (coh_random){ 0 };
    return coh_random_of(rounding->cell, rounding->tensor, coh_rounding_microbatch(rounding));
}

/* Makes the random halves of one group (kernels/random.h). */
static void make_halves(uint32_t halves[COH_RANDOM_HALVES], const coh_random *random,
                        uint64_t group)
{
    uint32_t words[COH_RANDOM_GROUP];
    coh_rows_get()->random(words, random, group, 1);
    for (int i = 0; i < COH_RANDOM_GROUP; i++) {
        halves[i] = words[i] & 0xffffu;
        halves[COH_RANDOM_GROUP + i] = words[i] >> 16;
    }
}

static int64_t grain_end(int64_t index, int64_t count)
{
    const int64_t end = (index + 1) * (int64_t)COH_GRAIN_ELEMENTS;
    return end < count ? end : count;
}

static int64_t grain_count(int64_t count)
{
    return (count + COH_GRAIN_ELEMENTS - 1) / COH_GRAIN_ELEMENTS;
}

/* ---- to bf16 ---- */

typedef struct round_job {
    const coh_stochastic_round *round;
    coh_random random;
} round_job;

/* A piece may begin within a group. */
static void round_grain(void *argument, int64_t index)
{
    const round_job *job = argument;
    const coh_stochastic_round *round = job->round;
    const int64_t end = grain_end(index, round->count);
    for (int64_t at = index * COH_GRAIN_ELEMENTS, count; at < end; at += count) {
        const uint64_t number = round->first + (uint64_t)at;
        const int64_t skipped = (int64_t)(number % COH_RANDOM_HALVES);
        uint32_t halves[COH_RANDOM_HALVES];
        count = end - at < COH_RANDOM_HALVES - skipped ? end - at : COH_RANDOM_HALVES - skipped;
        make_halves(halves, &job->random, number / COH_RANDOM_HALVES);
        coh_rows_get()->stochastic_round(round->y + at, round->x + at, halves + skipped, count);
    }
}

void coh_cpu_stochastic_round(void *queue, const coh_stochastic_round *round)
{
    assert(round->rounding.cell != NULL);
    round_job job = { round, stream_of(&round->rounding) };
    coh_parallel(queue, grain_count(round->count), round_grain, &job);
}

/* ---- to bytes ---- */

typedef struct quantise_job {
    const coh_quantise *quantise;
    coh_random random;
} quantise_job;

static void quantise_grain(void *argument, int64_t index)
{
    const quantise_job *job = argument;
    const coh_quantise *q = job->quantise;
    const int64_t end = grain_end(index, q->count);
    for (int64_t at = index * COH_GRAIN_ELEMENTS; at < end; at += COH_QUANTISE_BLOCK) {
        const int64_t count = end - at < COH_QUANTISE_BLOCK ? end - at : COH_QUANTISE_BLOCK;
        const uint32_t *drawn = NULL;
        uint32_t halves[COH_RANDOM_HALVES];
        if (q->rounding.cell != NULL) {
            make_halves(halves, &job->random, (q->first + (uint64_t)at) / COH_RANDOM_HALVES);
            drawn = halves;
        }
        q->scales[at / COH_QUANTISE_BLOCK] =
            coh_rows_get()->quantise(q->codes + at, q->x + at, drawn, count);
    }
}

void coh_cpu_quantise(void *queue, const coh_quantise *quantise)
{
    assert(quantise->first % COH_QUANTISE_BLOCK == 0);
    quantise_job job = { quantise, stream_of(&quantise->rounding) };
    coh_parallel(queue, grain_count(quantise->count), quantise_grain, &job);
}

/* ---- and back ---- */

static void dequantise_grain(void *argument, int64_t index)
{
    const coh_dequantise *d = argument;
    const int64_t end = grain_end(index, d->count);
    for (int64_t at = index * COH_GRAIN_ELEMENTS; at < end; at += COH_QUANTISE_BLOCK)
        coh_rows_get()->dequantise(d->y + at, d->codes + at, d->scales[at / COH_QUANTISE_BLOCK],
                                   end - at < COH_QUANTISE_BLOCK ? end - at : COH_QUANTISE_BLOCK);
}

void coh_cpu_dequantise(void *queue, const coh_dequantise *dequantise)
{
    coh_parallel(queue, grain_count(dequantise->count), dequantise_grain, (void *)dequantise);
}
