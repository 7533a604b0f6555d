/* Encodes and decodes for live_tokenizers.py. `run_tokenizer WHAT` reads texts, each after its byte
 * count. For each it writes the number of ids and the ids, then the byte count and the bytes of the
 * decoded text. Numbers are u32 in native byte order.
 *
 * `run_tokenizer WHAT facts TOKEN...` prints a line of JSON: the ids that begin and end a text,
 * those added before and after it, the ids of those tokens. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "cohobate/text.h"

static int put(const void *bytes, size_t unit, size_t count)
{
    uint32_t number = (uint32_t)count;
    return fwrite(&number, sizeof(number), 1, stdout) == 1 &&
           fwrite(bytes, unit, count, stdout) == count;
}

static int answer(coh_tokenizer *tokenizer, const char *text, size_t text_bytes)
{
    int32_t *ids = NULL;
    char *decoded = NULL;
    size_t count, decoded_bytes;
    int is_done = coh_tokenizer_encode(tokenizer, text, text_bytes, &ids, &count) == COH_OK &&
                  coh_tokenizer_decode(tokenizer, ids, count, &decoded, &decoded_bytes) == COH_OK;
    if (!is_done)
        fprintf(stderr, "%s\n", coh_last_error());
    is_done = is_done && put(ids, sizeof(*ids), count) && put(decoded, 1, decoded_bytes) &&
              fflush(stdout) == 0;
    coh_text_free(decoded);
    coh_text_free(ids);
    return is_done;
}

static void print_ids(const char *name, const int32_t *ids, size_t count)
{
    printf("\"%s\": [", name);
    for (size_t i = 0; i < count; i++)
        printf("%s%d", i ? ", " : "", (int)ids[i]);
    printf("]");
}

static void print_facts(const coh_tokenizer *tokenizer, char **tokens)
{
    const int32_t *before, *after;
    size_t before_count, after_count;
    coh_tokenizer_around(tokenizer, &before, &before_count, &after, &after_count);
    printf("{\"begin\": %d, \"end\": %d, ", (int)coh_tokenizer_begin_of_text(tokenizer),
           (int)coh_tokenizer_end_of_text(tokenizer));
    print_ids("before", before, before_count);
    printf(", ");
    print_ids("after", after, after_count);
    printf(", \"tokens\": [");
    for (int i = 0; tokens[i]; i++)
        printf("%s%d", i ? ", " : "", (int)coh_tokenizer_token_id(tokenizer, tokens[i]));
    printf("]}\n");
}

int main(int argument_count, char **arguments)
{
    coh_tokenizer *tokenizer = NULL;
    if (argument_count < 2 || coh_tokenizer_open(arguments[1], &tokenizer) != COH_OK) {
        fprintf(stderr, "%s\n", coh_last_error());
        return 1;
    }
    if (argument_count > 2) {
        print_facts(tokenizer, arguments + 3);
        coh_tokenizer_close(tokenizer);
        return 0;
    }
    int is_done = 1;
    uint32_t text_bytes;
    while (is_done && fread(&text_bytes, sizeof(text_bytes), 1, stdin) == 1) {
        char *text = malloc((size_t)text_bytes + 1);
        is_done = text && fread(text, 1, text_bytes, stdin) == text_bytes &&
                  answer(tokenizer, text, text_bytes);
        free(text);
    }
    coh_tokenizer_close(tokenizer);
    return is_done ? 0 : 1;
}
