/* libFuzzer target: SentencePiece's tokenizer.model. An accepted file must encode and decode
 * anything.
 *
 * A model needs a piece for every byte, which a fuzzer cannot find: if the input begins with 0xff,
 * which no message does, that byte is replaced by these pieces and the specs of a Llama 2 model. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/fuzz/fuzz_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

/* Writes <unk> and 256 bytes; model_type BPE, byte_fallback; no spaces removed. */
static size_t first_pieces(uint8_t *out)
{
    static const char unknown[] = "\x0a\x09\x0a\x05<unk>\x18\x02";
    static const char specs[] = "\x12\x05\x18\x02\x98\x02\x01\x1a\x02\x20";
    size_t count = sizeof(unknown) - 1;
    memcpy(out, unknown, count);
    for (unsigned byte = 0; byte < 256; byte++) {
        char name[8];
        snprintf(name, sizeof(name), "<0x%02X>", byte);
        static const uint8_t before[] = { 0x0a, 0x0a, 0x0a, 0x06 }, after[] = { 0x18, 0x06 };
        memcpy(out + count, before, sizeof(before));
        memcpy(out + count + 4, name, 6);
        memcpy(out + count + 10, after, sizeof(after));
        count += 12;
    }
    memcpy(out + count, specs, sizeof(specs)); /* including its last byte, 0 */
    return count + sizeof(specs);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    uint8_t pieces[4096];
    if (count == 0 || bytes[0] != 0xff) {
        fuzz_tokenizer(coh_tokenizer_read_sentencepiece, bytes, count);
        return 0;
    }
    size_t before = first_pieces(pieces);
    uint8_t *whole = malloc(before + count);
    if (!whole)
        return 0;
    memcpy(whole, pieces, before);
    memcpy(whole + before, bytes + 1, count - 1);
    fuzz_tokenizer(coh_tokenizer_read_sentencepiece, whole, before + count - 1);
    free(whole);
    return 0;
}
