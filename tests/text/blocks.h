/* blocks.h - encodes a text block by block, as a file is read. */
#ifndef COH_TESTS_TEXT_BLOCKS_H
#define COH_TESTS_TEXT_BLOCKS_H

#include "text/tokenizer.h"

/* Encodes; each step adds `block_bytes` bytes to the remaining ones. */
static inline void encode_in_blocks(coh_tokenizer *tokenizer, const char *text, size_t text_bytes,
                                    size_t block_bytes, coh_id_list *out_list)
{
    size_t begin = 0, end = 0, consumed;
    for (int is_first = 1; end < text_bytes; is_first = 0) {
        end = end + block_bytes < text_bytes ? end + block_bytes : text_bytes;
        const coh_text_block block = { (const uint8_t *)text + begin, end - begin, is_first,
                                       end == text_bytes };
        assert_int_equal(coh_pipeline_encode(tokenizer->pipeline, &block, out_list, &consumed),
                         COH_OK);
        begin += consumed;
    }
    assert_int_equal(begin, text_bytes);
}

#endif
