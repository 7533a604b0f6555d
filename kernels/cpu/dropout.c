/* Dropout on the host: each grain makes its random words in scratch, a few groups at a time, and
 * applies them at once. Next: kernels/random.h for the numbers of words, isa/drop.c. */
#include "kernels/table.h"

#include "base/bytes.h"
#include "cohobate/model.h"
#include "kernels/cpu/dispatch.h"

/* Words are made in scratch that fits the first-level cache, 2 KiB at a time. */
#define DROP_GROUPS   8
#define DROP_ELEMENTS (DROP_GROUPS * COH_RANDOM_GROUP)

typedef struct drop_job {
    const coh_dropout *d;
    coh_random random; /* if any element is dropped */
} drop_job;

/* Each piece is one grain. It may begin within a group of words, if the tensor is a part of another
 * one. Words before the piece's first element are then skipped. */
static void drop_grain(void *argument, int64_t index)
{
    const drop_job *job = argument;
    const coh_dropout *d = job->d;
    const coh_rows *rows = coh_rows_for(d->dtype);
    const int64_t begin = index * COH_GRAIN_ELEMENTS;
    const int64_t end =
        begin + COH_GRAIN_ELEMENTS < d->count ? begin + COH_GRAIN_ELEMENTS : d->count;
    uint32_t words[DROP_ELEMENTS] = { 0 };
    for (int64_t at = begin, count; at < end; at += count) {
        const uint64_t number = d->first + (uint64_t)at;
        const int64_t skipped = (int64_t)(number % COH_RANDOM_GROUP);
        count = end - at < DROP_ELEMENTS - skipped ? end - at : DROP_ELEMENTS - skipped;
        if (d->drop.threshold > 0)
            rows->random(words, &job->random, number / COH_RANDOM_GROUP,
                         (skipped + count + COH_RANDOM_GROUP - 1) / COH_RANDOM_GROUP);
        const void *base = d->adds ? d->y : d->residual;
        rows->drop(&(coh_drop_row){
            .to = coh_element(d->dtype, d->y, at),
            .from = coh_element_const(d->dtype, d->x, at),
            .base = base == NULL ? NULL : coh_element_const(d->dtype, base, at),
            .words = words + skipped,
            .threshold = d->drop.threshold,
            .scale = d->drop.scale,
            .count = count,
        });
    }
}

void coh_cpu_dropout(void *queue, const coh_dropout *dropout)
{
    const coh_drop *drop = &dropout->drop;
    drop_job job = { .d = dropout };
    if (drop->threshold > 0)
        job.random = coh_random_of(drop->cell, drop->operator_index, drop->microbatch);
    coh_parallel(queue, (dropout->count + COH_GRAIN_ELEMENTS - 1) / COH_GRAIN_ELEMENTS, drop_grain,
                 &job);
}
