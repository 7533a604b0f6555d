/* How long a test may take. `meson test` asks for short runs: every path, fewer numbers of each.
 * `meson test --setup everything`, and a test that is called by hand, run in full. */
#ifndef COH_TESTS_LENGTH_H
#define COH_TESTS_LENGTH_H

#include <stdlib.h>
#include <string.h>

static inline int test_is_short(void)
{
    const char *length = getenv("COH_TEST_LENGTH");
    return length != NULL && strcmp(length, "short") == 0;
}

#endif
