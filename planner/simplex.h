/* simplex.h - solve a small dense linear programme.
 *
 *     maximise c x  subject to  A x <= b, x >= 0,  with b >= 0
 *
 *     table    row 0 .. rows - 1:   A | b
 *              row `rows`:         -c | 0
 *
 * Since b >= 0, x = 0 is a solution to start from. The pivots depend only on the table, so every
 * machine takes the same ones. */
#ifndef COH_PLANNER_SIMPLEX_H
#define COH_PLANNER_SIMPLEX_H

#include "base/check.h"

/* Overwrites table[(rows + 1) * (columns + 1)]. out_x has `columns` elements. *out_is_most: 1 if
 * the solution is a maximum; 0 if the programme has none, or the pivots did not suffice. Fails:
 * COH_ERR_MEMORY. */
coh_status coh_simplex_maximise(double *table, int rows, int columns, double *out_x,
                                double *out_value, int *out_is_most);

#endif
