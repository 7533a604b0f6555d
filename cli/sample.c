/* Samples a token from logits. The one idea: candidates are selected with heaps whose order depends
 * only on logits and ids, so the result is the same on every machine. Next: sample.h for the
 * formulas. */
#include "cli/sample.h"

#include <math.h>
#include <string.h>

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

/* Does `a` precede `b`? By logit, then by lower id. */
static int before(const float *logits, int32_t a, int32_t b)
{
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
}

/* Restores the heap below `at`. Its root is the last id in this order, or the first if
 * `is_first`. */
static void sift_down(const float *logits, int32_t *heap, int64_t count, int64_t at, int is_first)
{
    for (;;) {
        int64_t root = at;
        for (int64_t child = 2 * at + 1; child <= 2 * at + 2 && child < count; child++)
            if (before(logits, heap[is_first ? child : root], heap[is_first ? root : child]))
                root = child;
        if (root == at)
            return;
        int32_t moved = heap[at];
        heap[at] = heap[root];
        heap[root] = moved;
        at = root;
    }
}

static void make_heap(const float *logits, int32_t *heap, int64_t count, int is_first)
{
    for (int64_t at = count / 2; at-- > 0;)
        sift_down(logits, heap, count, at, is_first);
}

/* Selects the first `keep` ids into heap[0..keep), in an order that depends only on the logits: a
 * heap of the best so far, whose root is replaced next. */
static void select_best(const float *logits, int64_t vocabulary, int64_t keep, int32_t *heap)
{
    for (int64_t id = 0; id < keep; id++)
        heap[id] = (int32_t)id;
    make_heap(logits, heap, keep, 0);
    for (int64_t id = keep; id < vocabulary; id++)
        if (before(logits, (int32_t)id, heap[0])) {
            heap[0] = (int32_t)id;
            sift_down(logits, heap, keep, 0, 0);
        }
}

static int32_t likeliest(const float *logits, int64_t vocabulary)
{
    int32_t best = 0;
    for (int64_t id = 1; id < vocabulary; id++)
        if (before(logits, (int32_t)id, best))
            best = (int32_t)id;
    return best;
}

/* The weight of `id` relative to that of `best`, which has the largest logit. */
static double weight(const cli_sampler *sampler, const float *logits, int32_t id, int32_t best)
{
    return exp(((double)logits[id] - logits[best]) / sampler->temperature);
}

/* Pops ids off a heap, the most probable first, until their weights reach the share. Each is stored
 * where the heap ended. Returns their number, after moving them to the front. */
static int64_t keep_share(const cli_sampler *sampler, const float *logits, int32_t best,
                          int32_t *order, int64_t count)
{
    double sum = 0, reached = 0;
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++)
        sum += weight(sampler, logits, order[i], best);
    make_heap(logits, order, count, 1);
    while (kept < count && (kept == 0 || reached < sampler->top_p * sum)) {
        const int64_t last = count - 1 - kept;
        const int32_t id = order[0];
        order[0] = order[last];
        order[last] = id;
        sift_down(logits, order, last, 0, 1);
        reached += weight(sampler, logits, id, best);
        kept++;
    }
    memmove(order, order + count - kept, (size_t)kept * sizeof(*order));
    return kept;
}

static int64_t keep_likely(const cli_sampler *sampler, const float *logits, int32_t best,
                           int32_t *order, int64_t count)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++)
        if (weight(sampler, logits, order[i], best) >= sampler->min_p)
            order[kept++] = order[i];
    return kept;
}

void cli_sample_penalize(double penalty, const float *logits, int64_t vocabulary,
                         const int32_t *seen, size_t seen_count, float *out_logits)
{
    memcpy(out_logits, logits, (size_t)vocabulary * sizeof(*logits));
    for (size_t i = 0; penalty != 1 && i < seen_count; i++) {
        const int32_t id = seen[i];
        if (id >= 0 && id < vocabulary)
            out_logits[id] = (float)(logits[id] < 0 ? logits[id] * penalty : logits[id] / penalty);
    }
}

int64_t cli_sample_candidates(const cli_sampler *sampler, const float *logits, int64_t vocabulary,
                              int32_t *order)
{
    const int32_t best = likeliest(logits, vocabulary);
    int64_t count = sampler->top_k > 0 && sampler->top_k < vocabulary ? sampler->top_k : vocabulary;
    if (sampler->temperature <= 0) {
        order[0] = best;
        return 1;
    }
    if (count < vocabulary)
        select_best(logits, vocabulary, count, order);
    else
        for (int64_t id = 0; id < vocabulary; id++)
            order[id] = (int32_t)id;
    if (sampler->top_p < 1)
        count = keep_share(sampler, logits, best, order, count);
    if (sampler->min_p > 0)
        count = keep_likely(sampler, logits, best, order, count);
    return count;
}

int32_t cli_sample(const cli_sampler *sampler, const float *logits, int64_t vocabulary,
                   uint64_t drawn_count, int32_t *order)
{
    const int64_t count = cli_sample_candidates(sampler, logits, vocabulary, order);
    const int32_t best = likeliest(logits, vocabulary);
    if (count == 1)
        return best;
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += weight(sampler, logits, order[i], best);
    double left = uniform(sampler->seed, drawn_count) * sum;
    for (int64_t i = 0; i < count; i++) {
        left -= weight(sampler, logits, order[i], best);
        if (left < 0)
            return order[i];
    }
    return best; /* rounding left a remainder */
}
