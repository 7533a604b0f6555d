#include "cli/sample.h"

#include <math.h>

/* SplitMix64 (Steele, Lea, Flood 2014) as a function of (seed, counter). */
static double uniform(uint64_t seed, uint64_t counter)
{
    uint64_t x = seed + (counter + 1) * 0x9e3779b97f4a7c15u;
    for (int round = 0; round < 2; round++) {
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
        x ^= x >> 31;
    }
    return (double)(x >> 11) * 0x1p-53;
}

/* Does `a` come before `b`? By logit, then by lower id. */
static int before(const float *logits, int32_t a, int32_t b)
{
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
}

/* Restores the heap below `at`: the root is the id that comes last. */
static void sift_down(const float *logits, int32_t *heap, int64_t count, int64_t at)
{
    for (;;) {
        int64_t last = at;
        for (int64_t child = 2 * at + 1; child <= 2 * at + 2 && child < count; child++)
            if (before(logits, heap[last], heap[child]))
                last = child;
        if (last == at)
            return;
        int32_t moved = heap[at];
        heap[at] = heap[last];
        heap[last] = moved;
        at = last;
    }
}

/* The `keep` ids that come first, in heap[0..keep), in an order that depends on the logits alone:
 * a heap of the best so far, whose root is the first to go. */
static void select_best(const float *logits, int64_t vocabulary, int64_t keep, int32_t *heap)
{
    for (int64_t id = 0; id < keep; id++)
        heap[id] = (int32_t)id;
    for (int64_t at = keep / 2; at-- > 0;)
        sift_down(logits, heap, keep, at);
    for (int64_t id = keep; id < vocabulary; id++)
        if (before(logits, (int32_t)id, heap[0])) {
            heap[0] = (int32_t)id;
            sift_down(logits, heap, keep, 0);
        }
}

int32_t cli_sample(const cli_sampler *sampler, const float *logits, int64_t vocabulary,
                   uint64_t drawn_count, int32_t *order)
{
    int64_t keep = sampler->top_k > 0 && sampler->top_k < vocabulary ? sampler->top_k : vocabulary;
    int32_t best = 0;
    for (int64_t id = 1; id < vocabulary; id++)
        if (before(logits, (int32_t)id, best))
            best = (int32_t)id;
    if (sampler->temperature <= 0)
        return best;
    if (keep < vocabulary)
        select_best(logits, vocabulary, keep, order);
    else
        for (int64_t id = 0; id < vocabulary; id++)
            order[id] = (int32_t)id;

    double sum = 0;
    for (int64_t i = 0; i < keep; i++)
        sum += exp(((double)logits[order[i]] - logits[best]) / sampler->temperature);
    double left = uniform(sampler->seed, drawn_count) * sum;
    for (int64_t i = 0; i < keep; i++) {
        left -= exp(((double)logits[order[i]] - logits[best]) / sampler->temperature);
        if (left < 0)
            return order[i];
    }
    return best; /* rounding left a crumb */
}
