/* fuzz_sealed.h - a file that ends with the hash of what stands before, which no fuzzer finds: an
 * input is read as it is, and then with the right end put to it. */
#ifndef COH_TESTS_FUZZ_SEALED_H
#define COH_TESTS_FUZZ_SEALED_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "planner/json_read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A promise that does not hold. */
static inline void check(int holds)
{
    if (!holds)
        abort();
}

/* A text with a NUL beyond its end, as coh_file_read_whole gives it. */
static inline void read_both(const uint8_t *data, size_t size,
                             void (*read)(const char *text, size_t bytes))
{
    coh_text text = { 0 };
    check(coh_text_add(&text, "%*s", (int)size, "") == COH_OK);
    if (size)
        memcpy(text.data, data, size);
    read(text.data, size);
    check(coh_json_add_seal(&text) == COH_OK);
    read(text.data, text.bytes);
    coh_text_fini(&text);
}

#endif
