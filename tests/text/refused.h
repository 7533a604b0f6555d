/* refused.h - changes a file and checks that it is refused. */
#ifndef COH_TESTS_TEXT_REFUSED_H
#define COH_TESTS_TEXT_REFUSED_H

#include "cohobate/text.h"
#include "tests/text/folder.h"

/* Returns a copy of `text` with the first `find` replaced. */
static inline char *changed(const char *text, size_t bytes, const char *find,
                            const char *replacement, size_t *out_bytes)
{
    const char *at = strstr(text, find);
    *out_bytes = 0;
    if (!at) {
        fail_msg("nothing to change: %s", find);
        return NULL;
    }
    size_t before = (size_t)(at - text), after = bytes - before - strlen(find);
    char *result = malloc(bytes + strlen(replacement) + 1);
    assert_non_null(result);
    if (!result)
        return NULL;
    memcpy(result, text, before);
    memcpy(result + before, replacement, strlen(replacement));
    memcpy(result + before + strlen(replacement), at + strlen(find), after);
    *out_bytes = before + strlen(replacement) + after;
    result[*out_bytes] = '\0';
    return result;
}

/* Checks for one message that contains `sentence`; `index` is the case's. */
static inline void assert_refused(const char *what, const char *sentence, size_t index)
{
    coh_tokenizer *tokenizer;
    coh_status status = coh_tokenizer_open(what, &tokenizer);
    if (status != COH_ERR_CORRUPT || tokenizer)
        fail_msg("case %zu (%s): status %d, %s", index, sentence, (int)status,
                 status ? coh_last_error() : "it was opened");
    if (!strstr(coh_last_error(), sentence))
        fail_msg("case %zu, not \"%s\": %s", index, sentence, coh_last_error());
    assert_null(strchr(coh_last_error(), '\n'));
}

#endif
