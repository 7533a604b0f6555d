/* fuzz_tokenizer.h - the common part of both targets: a file is refused with a message, or it
 * encodes a text, gives the same ids in blocks, and decodes them. The file's own bytes are also
 * encoded, so that its tokens occur. */
#ifndef COH_TESTS_FUZZ_TOKENIZER_H
#define COH_TESTS_FUZZ_TOKENIZER_H

#include <string.h>

#include "text/tokenizer_files.h"

typedef coh_status (*fuzz_reader)(const char *path, const char *text, size_t text_bytes,
                                  coh_tokenizer *tokenizer);

static inline void fuzz_expect(int is_true)
{
    if (!is_true)
        abort();
}

static inline void fuzz_encode(coh_tokenizer *tokenizer, const char *text, size_t text_bytes)
{
    int32_t *ids;
    size_t count, decoded_bytes, consumed;
    char *decoded;
    /* A pattern may give up on a text; no other failure is allowed. */
    coh_status status = coh_tokenizer_encode(tokenizer, text, text_bytes, &ids, &count);
    fuzz_expect(status == COH_OK || status == COH_ERR_CORRUPT);
    if (status != COH_OK)
        return;
    for (size_t i = 0; i < count; i++)
        fuzz_expect(ids[i] >= 0 && ids[i] < coh_tokenizer_vocabulary(tokenizer));
    fuzz_expect(coh_tokenizer_decode(tokenizer, ids, count, &decoded, &decoded_bytes) == COH_OK);
    coh_text_free(decoded);

    coh_id_list list = { 0 };
    size_t begin = 0;
    for (size_t end = 7; text_bytes > 0; end += 7) {
        int is_last = end >= text_bytes;
        const coh_text_block block = { (const uint8_t *)text + begin,
                                       (is_last ? text_bytes : end) - begin, end == 7, is_last };
        status = coh_pipeline_encode(tokenizer->pipeline, &block, &list, &consumed);
        if (status != COH_OK || is_last)
            break;
        begin += consumed;
    }
    if (status == COH_OK) {
        fuzz_expect(list.count == count);
        fuzz_expect(count == 0 || memcmp(list.ids, ids, count * sizeof(*ids)) == 0);
    }
    coh_free(list.ids);
    coh_text_free(ids);
}

static inline void fuzz_tokenizer(fuzz_reader reader, const uint8_t *bytes, size_t count)
{
    static const char text[] =
        "Hello  world 123 \xc3\xa9 e\xcc\x81 \xff <s> \xf0\x9f\x98\x80\n\n x";
    coh_tokenizer *tokenizer;
    char *copy;
    if (COH_ALLOC(1, &tokenizer) != COH_OK || COH_ALLOC(count + 1, &copy) != COH_OK)
        return;
    tokenizer->begin_of_text = tokenizer->end_of_text = -1;
    if (count)
        memcpy(copy, bytes, count);
    coh_status status = reader("fuzzed", copy, count, tokenizer);
    fuzz_expect(status == COH_OK || status == COH_ERR_CORRUPT);
    if (status == COH_OK) {
        fuzz_encode(tokenizer, text, sizeof(text) - 1);
        fuzz_encode(tokenizer, copy, count < 2000 ? count : 2000);
    } else {
        fuzz_expect(strstr(coh_last_error(), "fuzzed") != NULL);
    }
    coh_free(copy);
    coh_tokenizer_close(tokenizer);
}

#endif
