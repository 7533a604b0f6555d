/* byte_tokenizer.h - the byte tokenizer, open while the tests of a file run. */
#ifndef COH_TESTS_TEXT_BYTE_TOKENIZER_H
#define COH_TESTS_TEXT_BYTE_TOKENIZER_H

#include "cohobate/text.h"

static coh_tokenizer *byte_tokenizer;

static inline int open_bytes(void **state)
{
    (void)state;
    return coh_tokenizer_open("bytes", &byte_tokenizer) != COH_OK;
}

static inline int close_bytes(void **state)
{
    (void)state;
    coh_tokenizer_close(byte_tokenizer);
    return 0;
}

#endif
