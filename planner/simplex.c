/* Solves a linear programme by the primal simplex method on a condensed tableau (Dantzig 1951):
 * one column per nonbasic variable. The idea: while pivots gain, the column of the steepest gain
 * enters; when they no longer do, Bland's rule (1977), which cannot cycle, replaces it. Interface:
 * simplex.h. */
#include "planner/simplex.h"

#include "base/alloc.h"

/* Coefficients below this are zero: entries of a table are near 1. */
#define TINY 1e-11

/* Pivots in a row without gain before Bland's rule, and pivots in all, per row and column. */
enum { STALLED = 64, PIVOTS = 20 };

typedef struct tableau {
    double *table;
    int rows, columns;
    int *row_variable, *column_variable; /* below `columns`: an x; from there on: a slack */
} tableau;

static double *at(const tableau *t, int row, int column)
{
    return &t->table[(size_t)row * (size_t)(t->columns + 1) + (size_t)column];
}

/* Returns the column that enters; -1: the solution is a maximum. */
static int entering(const tableau *t, int is_stalled)
{
    int found = -1;
    for (int column = 0; column < t->columns; column++) {
        const double gain = -*at(t, t->rows, column);
        if (gain <= TINY)
            continue;
        if (found < 0 || (is_stalled ? t->column_variable[column] < t->column_variable[found]
                                     : gain > -*at(t, t->rows, found)))
            found = column;
    }
    return found;
}

/* Returns the row that bounds the column first; -1: none does. */
static int leaving(const tableau *t, int column)
{
    int found = -1;
    double least = 0;
    for (int row = 0; row < t->rows; row++) {
        const double by = *at(t, row, column);
        if (by <= TINY)
            continue;
        const double ratio = *at(t, row, t->columns) / by;
        if (found < 0 || ratio < least ||
            (ratio == least && t->row_variable[row] < t->row_variable[found])) {
            found = row;
            least = ratio;
        }
    }
    return found;
}

static void pivot(tableau *t, int row, int column)
{
    const double by = 1 / *at(t, row, column);
    double *pivot_row = at(t, row, 0);
    for (int c = 0; c <= t->columns; c++)
        pivot_row[c] *= by;
    for (int r = 0; r <= t->rows; r++) {
        double *other = at(t, r, 0);
        const double factor = other[column];
        if (r == row || factor == 0)
            continue;
        for (int c = 0; c <= t->columns; c++)
            other[c] -= factor * pivot_row[c];
        other[column] = -factor * by;
    }
    pivot_row[column] = by;
    const int variable = t->row_variable[row];
    t->row_variable[row] = t->column_variable[column];
    t->column_variable[column] = variable;
}

/* Returns 1 if it ends at a maximum. */
static int run(tableau *t)
{
    int stalled = 0;
    for (int left = PIVOTS * (t->rows + t->columns); left > 0; left--) {
        const double before = *at(t, t->rows, t->columns);
        const int column = entering(t, stalled > STALLED);
        const int row = column < 0 ? -1 : leaving(t, column);
        if (row < 0)
            return column < 0;
        pivot(t, row, column);
        stalled = *at(t, t->rows, t->columns) > before ? 0 : stalled + 1;
    }
    return 0;
}

coh_status coh_simplex_maximise(double *table, int rows, int columns, double *out_x,
                                double *out_value, int *out_is_most)
{
    tableau t = { .table = table, .rows = rows, .columns = columns };
    coh_status status = COH_OK;
    COH_TRY_GOTO(status, COH_ALLOC(rows, &t.row_variable), done);
    COH_TRY_GOTO(status, COH_ALLOC(columns, &t.column_variable), done);
    for (int column = 0; column < columns; column++) {
        t.column_variable[column] = column;
        out_x[column] = 0;
    }
    for (int row = 0; row < rows; row++)
        t.row_variable[row] = columns + row;
    *out_is_most = run(&t);
    for (int row = 0; row < rows; row++)
        if (t.row_variable[row] < columns)
            out_x[t.row_variable[row]] = *at(&t, row, columns);
    *out_value = *at(&t, rows, columns);
done:
    coh_free(t.row_variable);
    coh_free(t.column_variable);
    return status;
}
