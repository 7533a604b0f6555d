/* How long a test may take. `meson test` requests short runs: every path, with fewer cases. `meson
 * test --setup everything`, and tests run by hand, run in full. A sanitizer looks for errors that
 * do not depend on values, and makes tests ten times slower, so it gets fewer random cases. */
#ifndef COH_TESTS_LENGTH_H
#define COH_TESTS_LENGTH_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* gcc defines a name for each sanitizer, clang has features. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TEST_IS_SANITIZED 1
#elif __has_feature(thread_sanitizer)
#define TEST_FINDS_RACES 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define TEST_IS_SANITIZED 1
#elif defined(__SANITIZE_THREAD__)
#define TEST_FINDS_RACES 1
#endif

#ifndef TEST_FINDS_RACES
#define TEST_FINDS_RACES 0
#endif
#ifndef TEST_IS_SANITIZED
#define TEST_IS_SANITIZED TEST_FINDS_RACES
#endif

/* For an oracle: its accesses to the test's own arrays need no sanitizer. */
#define TEST_ORACLE __attribute__((no_sanitize("address", "thread", "undefined")))

static inline int test_is_short(void)
{
    const char *length = getenv("COH_TEST_LENGTH");
    return length != NULL && strcmp(length, "short") == 0;
}

/* Returns 1 if there may be fewer values: a short run under a sanitizer. */
static inline int test_is_brief(void)
{
    return TEST_IS_SANITIZED && test_is_short();
}

/* Returns 1 if single-threaded parts may be tested less: a short run under the thread sanitizer. */
static inline int test_seeks_races(void)
{
    return TEST_FINDS_RACES && test_is_short();
}

/* Returns how many of `cases` random cases to try: all, or a tenth (at least 1) in a short run
 * under a sanitizer. */
static inline uint64_t test_cases(uint64_t cases)
{
    return test_is_brief() ? (cases + 9) / 10 : cases;
}

#endif
