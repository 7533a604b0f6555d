/* Compares the simplex with every corner of small programmes: each corner is where as many rows or
 * axes as there are variables meet, and the best of those that break no row is the maximum. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/rng.h"
#include "planner/simplex.h"

enum { X = 3, ROWS = 6, PLANES = ROWS + X, WIDTH = X + 1, CASES = 3000 };

static double draw(uint64_t seed, uint64_t *n, int64_t least, int64_t most)
{
    return (double)(least + (int64_t)coh_rng_below(5, seed, (*n)++, (uint64_t)(most - least + 1)));
}

/* Solves X equations by elimination with the largest pivot; returns 0 if they have no one
 * solution. */
static int solve(double planes[X][WIDTH], double *x)
{
    for (int i = 0; i < X; i++) {
        int pivot = i;
        for (int r = i + 1; r < X; r++)
            if (planes[r][i] * planes[r][i] > planes[pivot][i] * planes[pivot][i])
                pivot = r;
        if (planes[pivot][i] * planes[pivot][i] < 1e-12)
            return 0;
        for (int c = 0; c < WIDTH; c++) {
            const double kept = planes[i][c];
            planes[i][c] = planes[pivot][c];
            planes[pivot][c] = kept;
        }
        for (int r = 0; r < X; r++)
            for (int c = WIDTH - 1; r != i && c >= i; c--)
                planes[r][c] -= planes[r][i] / planes[i][i] * planes[i][c];
    }
    for (int i = 0; i < X; i++)
        x[i] = planes[i][X] / planes[i][i];
    return 1;
}

/* Returns the value of a corner, or -1 if it breaks a row. Values of corners are not negative. */
static double value_of(double all[PLANES][WIDTH], const double *gain, const double *x)
{
    double value = 0;
    for (int row = 0; row < PLANES; row++) {
        double sum = 0;
        for (int i = 0; i < X; i++)
            sum += all[row][i] * x[i];
        if (sum > all[row][X] + 1e-9)
            return -1;
    }
    for (int i = 0; i < X; i++)
        value += gain[i] * x[i];
    return value;
}

static double best_corner(double all[PLANES][WIDTH], const double *gain)
{
    double best = 0; /* x = 0 breaks no row */
    for (int a = 0; a < PLANES; a++)
        for (int b = a + 1; b < PLANES; b++)
            for (int c = b + 1; c < PLANES; c++) {
                const int rows[X] = { a, b, c };
                double planes[X][WIDTH], x[X];
                for (int i = 0; i < X; i++)
                    for (int k = 0; k < WIDTH; k++)
                        planes[i][k] = all[rows[i]][k];
                if (!solve(planes, x))
                    continue;
                const double value = value_of(all, gain, x);
                best = value > best ? value : best;
            }
    return best;
}

static void the_simplex_finds_the_best_corner(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < CASES; seed++) {
        double all[PLANES][WIDTH] = { { 0 } }, table[(ROWS + 1) * WIDTH], gain[X], x[X], value = 0;
        uint64_t n = 0;
        int is_most = 0;
        for (int row = 0; row < ROWS; row++)
            for (int c = 0; c < WIDTH; c++) /* small whole numbers meet in degenerate corners */
                all[row][c] = c == X ? draw(seed, &n, 0, 4) : draw(seed, &n, row < X ? 0 : -2, 3);
        for (int i = 0; i < X; i++) {
            all[i][i] += 1; /* bounds every variable */
            all[ROWS + i][i] = -1;
            gain[i] = draw(seed, &n, -1, 3);
        }
        for (int row = 0; row < ROWS; row++)
            for (int c = 0; c < WIDTH; c++)
                table[row * WIDTH + c] = all[row][c];
        for (int i = 0; i < X; i++)
            table[ROWS * WIDTH + i] = -gain[i];
        table[ROWS * WIDTH + X] = 0;
        assert_int_equal(coh_simplex_maximise(table, ROWS, X, x, &value, &is_most), COH_OK);
        const double best = best_corner(all, gain);
        if (!is_most || !(value - best < 1e-9 && best - value < 1e-9))
            fail_msg("seed %d: %g, the best corner is %g", (int)seed, value, best);
        if (!(value_of(all, gain, x) > value - 1e-9))
            fail_msg("seed %d: the solution breaks a row or has another value", (int)seed);
    }
}

static void a_programme_without_a_maximum_is_told(void **state)
{
    (void)state;
    double table[] = { -1, 1, /* -x <= 1 */ -1, 0 }, x = 0, value = 0;
    int is_most = 1;
    assert_int_equal(coh_simplex_maximise(table, 1, 1, &x, &value, &is_most), COH_OK);
    assert_int_equal(is_most, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_simplex_finds_the_best_corner),
        cmocka_unit_test(a_programme_without_a_maximum_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
