/* sample.h - one token from logits: temperature, the k likeliest, a seeded draw. */
#ifndef COH_CLI_SAMPLE_H
#define COH_CLI_SAMPLE_H

#include <stdint.h>

typedef struct cli_sampler {
    double temperature; /* 0: the likeliest, the lower id of equals */
    int64_t top_k;      /* 0: all */
    uint64_t seed;
} cli_sampler;

/* The token after `drawn_count` others: a pure function of sampler, logits and count. `order` is
 * scratch of `vocabulary` ids. Ties are broken by the lower id. */
int32_t cli_sample(const cli_sampler *sampler, const float *logits, int64_t vocabulary,
                   uint64_t drawn_count, int32_t *order);

#endif
