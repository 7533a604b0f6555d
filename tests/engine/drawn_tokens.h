/* drawn_tokens.h - random ids, the same in each run, for the tokens and targets of a model. */
#ifndef COH_TESTS_ENGINE_DRAWN_TOKENS_H
#define COH_TESTS_ENGINE_DRAWN_TOKENS_H

#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"

/* Draws `count` tokens and as many targets, each below `vocabulary`. */
static inline void draw_tokens(int32_t *tokens, int32_t *targets, size_t count, uint64_t vocabulary)
{
    for (uint64_t i = 0; i < count; i++) {
        tokens[i] = (int32_t)coh_rng_below(5, 1, i, vocabulary);
        targets[i] = (int32_t)coh_rng_below(5, 2, i, vocabulary);
    }
}

#endif
