/* rank_pattern.h - what each of several ranks keeps of the training state.
 *
 * The one idea: a pattern is three numbers, over how many neighbouring ranks weights, gradients and
 * optimizer states are divided. With 8 ranks, 4 of a node and 2 of a pair:
 *
 *     pattern      weights  gradients  states     text
 *     replicate          1          1       1     1/1/1
 *     zero1              1          1       8     1/1/8
 *     zero2              1          8       8     1/8/8
 *     zero3              8          8       8     8/8/8
 *     levels             2          4       8     2/4/8
 *     zeropp             8          8       8     8/8/8/4: and a copy over 4
 *
 * A stream that is divided over n ranks has n parts, one on each of n neighbours; the next n ranks
 * have the same parts. So what is divided over a pair moves over the links of a pair alone:
 *
 *     weights over 2, before each use:    0 <-> 1    2 <-> 3    4 <-> 5    6 <-> 7
 *
 * Patterns do not affect bits, unless numbers are rounded on their way between ranks (wire.h).
 * docs/ranks.md has the bytes of each. zero1 to zero3 are the stages of Rajbhandari et al. (2020);
 * dividing each stream over links of another speed is that of MiCS (Zhang et al., 2022) and of
 * ZeRO++ (Wang et al., 2023). Threads: any. */
#ifndef COHOBATE_RANK_PATTERN_H
#define COHOBATE_RANK_PATTERN_H

#include <stdint.h>

#include "cohobate/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of a pattern's name or numbers, with the end; the most patterns of a process. */
enum { COH_RANK_PATTERN_BYTES = 32, COH_RANK_PATTERNS_MOST = 32 };

/* The pattern of coh_plan_options that leaves the choice to the planner: of all that are listed,
 * the one with the fastest plan. */
#define COH_RANK_PATTERN_AUTO "auto"

/* Over how many neighbouring ranks a stream is divided; 1: each rank has all of it. Each number
 * divides the next. Parameters of fewer grains (16 Ki elements) than `state` are not divided. */
typedef struct coh_rank_parts {
    int32_t work; /* weights, in the dtype of compute: gathered for each use */
    int32_t grad; /* the sum of the gradients, until its update */
    /* Optimizer states. A rank updates this part of the weights, and receives from the others what
     * it keeps of them beyond it. */
    int32_t state;
} coh_rank_parts;

/* A pattern may have a fourth number, below that of weights. A forward then leaves a copy of the
 * weights that is divided over that many neighbours; recomputation and backward gather them from
 * it, over shorter links. It is the secondary partition of ZeRO++ (hpZ). */

/* How many ranks a pair, a node and the world have. */
typedef struct coh_rank_levels {
    int32_t pair, node, world;
} coh_rank_levels;

/* A pattern with a name. */
typedef struct coh_rank_pattern {
    uint32_t struct_bytes;
    const char *name; /* a-z, 0-9 and _, beginning with a letter; at most 31 bytes */

    /* Returns the numbers; called on any thread, and must not call the library. */
    coh_rank_parts (*parts)(const coh_rank_levels *levels);
    /* Returns over how many ranks the copy of the weights is divided: a divisor of `work`; `work`
     * or 1: no copy. NULL: likewise. */
    int32_t (*copy)(const coh_rank_levels *levels);
} coh_rank_pattern;

/* Adds a pattern to the process's list, for coh_plan_options and pins to name. It is copied; its
 * name must live as long as the process. Adding the same name and function again does nothing.
 * Fails: COH_ERR_ARGUMENT: the name is not allowed or is another pattern's, the list is full. */
COH_API coh_status coh_rank_pattern_register(const coh_rank_pattern *pattern);

/* Returns the pattern of this name, or NULL. */
COH_API const coh_rank_pattern *coh_rank_pattern_find(const char *name);
/* Returns the number of patterns. */
COH_API int32_t coh_rank_pattern_count(void);
/* Returns pattern `index` from 0, the library's own first; NULL past the last. */
COH_API const coh_rank_pattern *coh_rank_pattern_at(int32_t index);

/* Finds the numbers of a pattern, given by name or as "2/4/8" or "8/8/8/4"; "" is replicate.
 * Fails: COH_ERR_ARGUMENT: there is no such pattern, or its numbers do not divide one another and
 * the world. */
COH_API coh_status coh_rank_parts_find(const char *pattern, const coh_rank_levels *levels,
                                       coh_rank_parts *out_parts);
/* Finds over how many ranks the copy of the weights is divided; 0: there is none.
 * Fails: likewise. */
COH_API coh_status coh_rank_copy_find(const char *pattern, const coh_rank_levels *levels,
                                      int32_t *out_ranks);

#ifdef __cplusplus
}
#endif
#endif
