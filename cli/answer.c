/* Collects a model's answer and finds stop strings in it. The one idea: after each byte the end of
 * the text is compared with all stop strings, so borders of tokens do not matter. Next:
 * cmd_generate.c, the caller. */
#include "cli/answer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/say.h"

/* ---- stop strings ---- */

static int ends_with(const cli_answer *answer, const char *text, size_t length)
{
    return length <= answer->count &&
           memcmp(answer->bytes + answer->count - length, text, length) == 0;
}

/* The longest stop string completed by the last byte; NULL: none. */
static const char *completed(const cli_answer *answer)
{
    const char *longest = NULL;
    for (const char *const *stop = answer->stops; stop && *stop; stop++)
        if (ends_with(answer, *stop, strlen(*stop)) &&
            (!longest || strlen(*stop) > strlen(longest)))
            longest = *stop;
    return longest;
}

size_t cli_answer_certain(const cli_answer *answer)
{
    size_t longest = 0;
    if (answer->stopped_by)
        return answer->count;
    for (const char *const *stop = answer->stops; stop && *stop; stop++)
        for (size_t length = strlen(*stop) - 1; length > longest; length--)
            if (ends_with(answer, *stop, length))
                longest = length;
    return answer->count - longest;
}

/* ---- text ---- */

static coh_status grow(cli_answer *answer, size_t more)
{
    if (answer->count + more <= answer->capacity)
        return COH_OK;
    const size_t capacity = 2 * (answer->count + more) + 256;
    char *bytes = realloc(answer->bytes, capacity);
    if (!bytes)
        return cli_fail(COH_ERR_MEMORY, "no memory for a text of %zu bytes", capacity);
    answer->bytes = bytes;
    answer->capacity = capacity;
    return COH_OK;
}

coh_status cli_answer_add(cli_answer *answer, const char *bytes, size_t count)
{
    CLI_TRY(grow(answer, count));
    for (size_t i = 0; i < count && !answer->stopped_by; i++) {
        const int is_first = answer->added_count++ == 0;
        if (is_first && answer->prefix && answer->prefix[0] && bytes[i] == answer->prefix[0])
            continue;
        answer->bytes[answer->count++] = bytes[i];
        answer->stopped_by = completed(answer);
        if (answer->stopped_by)
            answer->count -= strlen(answer->stopped_by);
    }
    return COH_OK;
}

void cli_answer_clear(cli_answer *answer)
{
    answer->count = answer->added_count = 0;
    answer->stopped_by = NULL;
}

void cli_answer_free(cli_answer *answer)
{
    free(answer->bytes);
    *answer = (cli_answer){ 0 };
}

/* ---- JSON ---- */

void cli_print_json_text(const char *bytes, size_t count)
{
    cli_text form;
    putchar('"');
    for (size_t length; count > 0; count -= length, bytes += length) {
        length = cli_json_character(bytes, count, &form);
        fputs(form.at, stdout);
    }
    putchar('"');
}
