/* fold_shape.h - in which order the gradients of replicas are added.
 *
 *     4      ((g0 + g1) + g2) + g3
 *     2x2    (g0 + g1) + (g2 + g3)          factors: replicas of a pair, pairs of a node, nodes
 *
 * The batch of a step is cut into R shares, one for each *replica*; R is the product of the
 * factors. Each share's gradient is made apart, and then they are added in f32: the members of each
 * factor in rising order, the first factor first. So ranks that hold whole inner factors each add
 * the same numbers in the same order as one rank that makes all shares. Read docs/numerics.md next.
 *
 * Threads: any. */
#ifndef COHOBATE_FOLD_SHAPE_H
#define COHOBATE_FOLD_SHAPE_H

#include <stdint.h>

#include "cohobate/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Most factors of a shape; most replicas; bytes of a shape's text with its end. */
enum { COH_FOLD_FACTORS = 3, COH_REPLICAS_MOST = 65536, COH_FOLD_TEXT_BYTES = 16 };

/* The factors, the innermost first. A factor of 0 or 1 changes nothing: all zero is one replica. */
typedef struct coh_fold_shape {
    int32_t factors[COH_FOLD_FACTORS];
} coh_fold_shape;

/* Parses "4" or "2x2x2"; factors of 1 are left out. Fails: COH_ERR_ARGUMENT: no such text, more
 * than COH_FOLD_FACTORS factors, more than COH_REPLICAS_MOST replicas. */
COH_API coh_status coh_fold_shape_parse(const char *text, coh_fold_shape *out_shape);
/* Writes "2x2x2" ("1": one replica) into `text`, of COH_FOLD_TEXT_BYTES bytes.
 * Fails: COH_ERR_ARGUMENT: a factor below 0, more than COH_REPLICAS_MOST replicas. */
COH_API coh_status coh_fold_shape_write(const coh_fold_shape *shape, char *text);

/* Divides a shape between ranks (coh_plan_options.ranks): *out_inner is the shape of the replicas
 * of each rank, *out_outer that of the ranks' sums.
 * Fails: COH_ERR_ARGUMENT if a rank would not hold whole inner factors, with the numbers of ranks
 * that would; as coh_fold_shape_write. */
COH_API coh_status coh_fold_shape_divide(const coh_fold_shape *shape, int32_t rank_count,
                                         coh_fold_shape *out_inner, coh_fold_shape *out_outer);

/* Returns the number of replicas; NULL, or a shape that cannot be written: 1. */
COH_API int32_t coh_fold_shape_replicas(const coh_fold_shape *shape);

#ifdef __cplusplus
}
#endif
#endif
