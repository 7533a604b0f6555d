/* fold_shape.h - in which order the contributions of R replicas are added.
 *
 * The one idea: f32 addition is not associative, so the order is part of the numbers. It is a list
 * of factors, innermost first, and not the number of ranks. Each factor is folded in index order:
 *
 *     2x2x2     ((c0 + c1) + (c2 + c3)) + ((c4 + c5) + (c6 + c7))
 *     4x2       (((c0 + c1) + c2) + c3) + (((c4 + c5) + c6) + c7)
 *     8         ((((((c0 + c1) + c2) + c3) + c4) + c5) + c6) + c7
 *
 * A run on fewer ranks gives the same bits if each rank holds whole inner factors: with 2x2x2, a
 * rank of 4 adds its two contributions, and the ranks fold the rest, 2x2. The kernel is
 * kernels/fold.h.
 *
 * Everything here is pure. Threads: any. */
#ifndef COH_MEMORY_FOLD_SHAPE_H
#define COH_MEMORY_FOLD_SHAPE_H

#include <stddef.h>
#include <stdint.h>

#include "base/check.h"

/* As many as there are levels of links, and one more within a rank. Products are limited as ranks
 * are (mesh.h). */
enum { COH_FOLD_FACTORS_MOST = 4, COH_FOLD_TEXT_BYTES = 48 };

typedef struct coh_fold_shape {
    int32_t factors[COH_FOLD_FACTORS_MOST]; /* innermost first, each at least 1 */
    int32_t factor_count;                   /* 0: one contribution */
} coh_fold_shape;

/* Reads "2x2x2". Fails: COH_ERR_ARGUMENT. */
coh_status coh_fold_shape_read(const char *text, coh_fold_shape *out_shape);

/* Writes the same text; "1" if there are no factors. Returns `text`, of COH_FOLD_TEXT_BYTES. */
const char *coh_fold_shape_write(const coh_fold_shape *shape, char *text);

/* Returns the number of contributions, the product of the factors. */
int32_t coh_fold_shape_count(const coh_fold_shape *shape);

/* Divides the fold between rank_count ranks: *out_inner is the fold of one rank's contributions,
 * *out_outer the fold of all ranks' results.
 * Fails: COH_ERR_ARGUMENT if a rank would not hold whole inner factors, with the numbers of ranks
 * that would. */
coh_status coh_fold_shape_divide(const coh_fold_shape *shape, int32_t rank_count,
                                 coh_fold_shape *out_inner, coh_fold_shape *out_outer);

#endif
