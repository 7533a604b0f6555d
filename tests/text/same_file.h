/* same_file.h - compares a file made by one thread with one made by several: NAME-1 with NAME-N. */
#ifndef COH_TESTS_TEXT_SAME_FILE_H
#define COH_TESTS_TEXT_SAME_FILE_H

#include <stdio.h>
#include <stdlib.h>

#include "tests/text/folder.h"

static inline void assert_same_file(const char *name, int thread_count)
{
    char one[40], many[40];
    size_t one_bytes, many_bytes;
    snprintf(one, sizeof(one), "%s-1", name);
    snprintf(many, sizeof(many), "%s-%d", name, thread_count);
    char *expected = folder_read(folder_file(one), &one_bytes);
    char *bytes = folder_read(folder_file(many), &many_bytes);
    assert_int_equal(many_bytes, one_bytes);
    assert_memory_equal(bytes, expected, one_bytes);
    free(bytes);
    free(expected);
}

#endif
