/* fuzz_sealed.h - a file that ends with the hash of its text, which a fuzzer cannot find: an input
 * is read as it is, then with the correct end. */
#ifndef COH_TESTS_FUZZ_SEALED_H
#define COH_TESTS_FUZZ_SEALED_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Aborts on a violated guarantee. */
static inline void check(int holds)
{
    if (!holds)
        abort();
}

/* Reads a text with a NUL after its end, as from coh_file_read_whole. */
static inline void read_both(const uint8_t *data, size_t size,
                             void (*read)(const char *text, size_t bytes))
{
    coh_text text = { 0 };
    check(coh_text_add(&text, "%*s", (int)size, "") == COH_OK);
    if (size)
        memcpy(text.data, data, size);
    read(text.data, size);
    check(coh_json_seal(&text) == COH_OK);
    read(text.data, text.bytes);
    coh_text_fini(&text);
}

#endif
