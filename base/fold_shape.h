/* fold_shape.h (internal) - arithmetic of a checked fold shape (cohobate/fold_shape.h): its
 * factors are above 1, those not used are 0 and last.
 *
 * A replica's number is written in the factors as digits, the innermost first: of shape 2x3,
 * replica 5 is 1 + 2 * 2. A *node* of factor f is all replicas that differ only in the digits up to
 * f; its members are nodes of the factor below. */
#ifndef COH_BASE_FOLD_SHAPE_H
#define COH_BASE_FOLD_SHAPE_H

#include "cohobate/fold_shape.h"

/* Makes a shape whose factors are above 1, those not used 0 and last. Fails: COH_ERR_ARGUMENT. */
coh_status coh_fold_shape_check(const coh_fold_shape *shape, coh_fold_shape *out_checked);

/* Joins two checked shapes: the replicas of a rank, and ranks. The opposite of divide.
 * Fails: COH_ERR_ARGUMENT if the result has too many factors or replicas. */
coh_status coh_fold_shape_join(const coh_fold_shape *inner, const coh_fold_shape *outer,
                               coh_fold_shape *out_shape);

static inline int32_t coh_fold_factor_count(const coh_fold_shape *shape)
{
    int32_t count = 0;
    while (count < COH_FOLD_FACTORS && shape->factors[count] > 1)
        count++;
    return count;
}

/* Returns the replicas of a member of factor `factor`; with the number of factors, all. */
static inline int32_t coh_fold_unit(const coh_fold_shape *shape, int32_t factor)
{
    int32_t unit = 1;
    for (int32_t f = 0; f < factor; f++)
        unit *= shape->factors[f];
    return unit;
}

static inline int32_t coh_fold_replicas(const coh_fold_shape *shape)
{
    return coh_fold_unit(shape, coh_fold_factor_count(shape));
}

static inline int32_t coh_fold_digit(const coh_fold_shape *shape, int32_t replica, int32_t factor)
{
    return replica / coh_fold_unit(shape, factor) % shape->factors[factor];
}

#endif
