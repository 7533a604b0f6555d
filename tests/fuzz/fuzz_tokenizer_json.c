/* libFuzzer target: tokenizer.json. An accepted file must encode and decode anything.
 *
 * A file needs a token for every byte, which a fuzzer cannot find: they are added to the first
 * "vocab" that begins with "@@", as ids 0..255 in GPT-2's alphabet and from 256 to 511 as "<0x00>"
 * and so on. So seeds need only a few hundred bytes. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/fuzz/fuzz_tokenizer.h"
#include "text/characters.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

/* Writes the tokens of all bytes as members of a JSON object. */
static size_t byte_tokens(char text[16384])
{
    size_t count = 0;
    unsigned next = 256;
    for (unsigned byte = 0; byte < 256; byte++) {
        int is_printable =
            (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
        uint8_t name[4];
        size_t length = coh_utf8_write(is_printable ? byte : next++, name);
        const char *escape = byte == '"' || byte == '\\' ? "\\" : "";
        count += (size_t)sprintf(text + count, "%s\"%s%.*s\":%u,\"<0x%02X>\":%u", byte ? "," : "",
                                 escape, (int)length, (const char *)name, byte, byte, 256 + byte);
    }
    return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static char tokens[16384];
    size_t token_bytes = byte_tokens(tokens);
    const uint8_t *mark = count ? memmem(bytes, count, "@@", 2) : NULL;
    if (!mark) {
        fuzz_tokenizer(coh_tokenizer_read_json, bytes, count);
        return 0;
    }
    size_t before = (size_t)(mark - bytes);
    uint8_t *whole = malloc(count + token_bytes);
    if (!whole)
        return 0;
    memcpy(whole, bytes, before);
    memcpy(whole + before, tokens, token_bytes);
    memcpy(whole + before + token_bytes, mark + 2, count - before - 2);
    fuzz_tokenizer(coh_tokenizer_read_json, whole, count - 2 + token_bytes);
    free(whole);
    return 0;
}
