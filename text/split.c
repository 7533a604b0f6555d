/* GPT-2's split pattern through PCRE2, compiled to machine code where the system allows it. */
#include "text/split.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/alloc.h"
#include "base/check.h"

#define SPACE                                                                                      \
    "\\x{09}-\\x{0d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}"           \
    "\\x{202f}\\x{205f}\\x{3000}"

static const char pattern[] = "'s|'t|'re|'ve|'m|'ll|'d"
                              "| ?\\p{L}+"
                              "| ?\\p{N}+"
                              "| ?[^" SPACE "\\p{L}\\p{N}]+"
                              "|[" SPACE "]+(?![^" SPACE "])"
                              "|[" SPACE "]+";

struct coh_split {
    pcre2_general_context *context;
    pcre2_code *code;
    pcre2_match_data *match;
};

static void *take(size_t bytes, void *unused)
{
    (void)unused;
    void *memory;
    return coh_alloc(bytes, 1, &memory) == COH_OK ? memory : NULL;
}

static void release(void *memory, void *unused)
{
    (void)unused;
    coh_free(memory);
}

/* The sentence of a PCRE2 error number. */
static coh_status split_fail(int number)
{
    PCRE2_UCHAR text[160];
    if (number == PCRE2_ERROR_NOMEMORY || number == PCRE2_ERROR_HEAPLIMIT)
        return coh_fail(COH_ERR_MEMORY, "out of memory while splitting text into words");
    if (pcre2_get_error_message(number, text, sizeof(text)) < 0)
        text[0] = '\0';
    return coh_fail(COH_ERR_INTERNAL, "splitting text into words failed: PCRE2 error %d, %s",
                    number, (const char *)text);
}

coh_status coh_split_create(coh_split **out_split)
{
    *out_split = NULL;
    coh_split *split;
    COH_TRY(COH_ALLOC(1, &split));
    pcre2_compile_context *compile = NULL;
    coh_status status = COH_OK;

    split->context = pcre2_general_context_create(take, release, NULL);
    if (split->context)
        compile = pcre2_compile_context_create(split->context);
    if (!compile) {
        status = split_fail(PCRE2_ERROR_NOMEMORY);
        goto done;
    }
    int number;
    PCRE2_SIZE offset;
    split->code = pcre2_compile((PCRE2_SPTR)pattern, sizeof(pattern) - 1,
                                PCRE2_UTF | PCRE2_ANCHORED, &number, &offset, compile);
    if (!split->code) {
        status = split_fail(number == PCRE2_ERROR_HEAP_FAILED ? PCRE2_ERROR_NOMEMORY : number);
        goto done;
    }
    /* Refused where executable memory is: the interpreter finds the same pieces, slower. */
    (void)pcre2_jit_compile(split->code, PCRE2_JIT_COMPLETE);
    split->match = pcre2_match_data_create_from_pattern(split->code, split->context);
    if (!split->match)
        status = split_fail(PCRE2_ERROR_NOMEMORY);
done:
    pcre2_compile_context_free(compile);
    if (status != COH_OK)
        coh_split_destroy(split);
    else
        *out_split = split;
    return status;
}

void coh_split_destroy(coh_split *split)
{
    if (!split)
        return;
    pcre2_match_data_free(split->match);
    pcre2_code_free(split->code);
    pcre2_general_context_free(split->context);
    coh_free(split);
}

coh_status coh_split_next(coh_split *split, const uint8_t *text, size_t byte_count, size_t begin,
                          size_t *out_end)
{
    /* Without the check of its own, which would walk the rest of the text for every piece. */
    int found =
        pcre2_match(split->code, text, byte_count, begin, PCRE2_NO_UTF_CHECK, split->match, NULL);
    if (found < 1)
        return split_fail(found);
    *out_end = pcre2_get_ovector_pointer(split->match)[1];
    return COH_OK;
}
