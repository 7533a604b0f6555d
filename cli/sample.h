/* sample.h - chooses one token from logits: finds the candidates and draws one of them, seeded.
 *
 *     logits ─> repetition penalty ─> temperature ─> top-k ─> top-p ─> min-p ─> softmax ─> draw
 *
 * Formulas and their order are those of the logits processors of transformers. S is the set of ids
 * of the prompt and of the text so far, l a logit, T the temperature:
 *
 *     penalty r   l / r where l >= 0, l * r where l < 0, for each id of S, once
 *     top-k       the k largest of l / T
 *     top-p       of those, with p_i = softmax(l / T), the fewest largest whose sum reaches p
 *     min-p       of those, all whose p_i is at least m times the largest
 *
 * At temperature 0 only the penalty applies, and the largest logit is taken. Ties are broken by the
 * lower id everywhere; transformers keeps all ids that tie with the k-th. Any thread. */
#ifndef COH_CLI_SAMPLE_H
#define COH_CLI_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

typedef struct cli_sampler {
    double temperature; /* 0: the largest logit */
    int64_t top_k;      /* 0: all */
    double top_p;       /* 1: all; 0: the largest alone */
    double min_p;       /* 0: all; 1: only those equal to the largest */
    double penalty;     /* above 0; 1: none */
    uint64_t seed;
} cli_sampler;

/* Writes `logits` with the penalty applied for each id of `seen` to `out_logits`, of the same size.
 * Ids outside the vocabulary are ignored. */
void cli_sample_penalize(double penalty, const float *logits, int64_t vocabulary,
                         const int32_t *seen, size_t seen_count, float *out_logits);

/* Finds the candidates among penalized logits. Returns their number, at least 1; their ids are
 * order[0..count), which includes the most probable. `order` has room for `vocabulary` ids. */
int64_t cli_sample_candidates(const cli_sampler *sampler, const float *logits, int64_t vocabulary,
                              int32_t *order);

/* Draws the token after `drawn_count` others; the result depends only on sampler, penalized logits
 * and count. `order` as above. */
int32_t cli_sample(const cli_sampler *sampler, const float *logits, int64_t vocabulary,
                   uint64_t drawn_count, int32_t *order);

#endif
