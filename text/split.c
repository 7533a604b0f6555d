/* Cuts text with PCRE2 patterns, compiled to machine code if the system allows it. The one idea:
 * the cursor keeps a match found ahead, so that no text is searched twice. Next: pattern.c makes
 * the patterns, pipeline.c is the caller. */
#include "text/split.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/alloc.h"
#include "base/check.h"

/* For nested groups; pages are committed only when touched. */
#define JIT_STACK_LEAST_BYTES (32u << 10)
#define JIT_STACK_MOST_BYTES  (8u << 20)

const char coh_split_gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d"
                              "| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

struct coh_split {
    pcre2_general_context *context;
    pcre2_match_context *match_context;
    pcre2_jit_stack *jit_stack;
    pcre2_code *code;
    pcre2_match_data *match;
    int is_machine_code, is_fork;
    coh_split_behavior behavior;
    int is_inverted;
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

/* Fails with PCRE2's message for an error while matching. */
static coh_status split_fail(int number)
{
    PCRE2_UCHAR text[160];
    if (number == PCRE2_ERROR_NOMEMORY || number == PCRE2_ERROR_HEAPLIMIT)
        return coh_fail(COH_ERR_MEMORY, "out of memory while splitting text into words");
    if (number == PCRE2_ERROR_MATCHLIMIT || number == PCRE2_ERROR_DEPTHLIMIT)
        return coh_fail(COH_ERR_CORRUPT, "the tokenizer's split pattern tries more ways to match "
                                         "this text than is sensible: it is no usual pattern");
    if (pcre2_get_error_message(number, text, sizeof(text)) < 0)
        text[0] = '\0';
    return coh_fail(COH_ERR_INTERNAL, "splitting text into words failed: PCRE2 error %d, %s",
                    number, (const char *)text);
}

static coh_status compile(const char *where, const char *pattern, size_t pattern_bytes,
                          coh_split *split)
{
    pcre2_compile_context *context = pcre2_compile_context_create(split->context);
    if (!context)
        return split_fail(PCRE2_ERROR_NOMEMORY);
    int number;
    PCRE2_SIZE offset;
    split->code = pcre2_compile((PCRE2_SPTR)pattern, pattern_bytes,
                                PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C, &number, &offset, context);
    pcre2_compile_context_free(context);
    if (!split->code && (number == PCRE2_ERROR_NOMEMORY || number == PCRE2_ERROR_HEAP_FAILED))
        return split_fail(PCRE2_ERROR_NOMEMORY);
    if (!split->code) {
        PCRE2_UCHAR text[160] = "";
        pcre2_get_error_message(number, text, sizeof(text));
        return coh_fail(COH_ERR_CORRUPT, "%s is no regular expression: %s", where,
                        (const char *)text);
    }
    uint32_t may_be_empty = 0;
    pcre2_pattern_info(split->code, PCRE2_INFO_MATCHEMPTY, &may_be_empty);
    if (may_be_empty)
        return coh_fail(COH_ERR_CORRUPT, "%s matches where there is nothing, so it cuts nowhere",
                        where);
    /* Fails if executable memory is forbidden: the interpreter then finds the same pieces more
     * slowly. */
    split->is_machine_code =
        pcre2_jit_compile(split->code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD) == 0;
    return COH_OK;
}

/* Allocates the data that each matching thread needs. */
static coh_status prepare_matching(coh_split *split)
{
    split->match = pcre2_match_data_create_from_pattern(split->code, split->context);
    split->match_context = pcre2_match_context_create(split->context);
    if (!split->match || !split->match_context)
        return split_fail(PCRE2_ERROR_NOMEMORY);
    if (split->is_machine_code) {
        split->jit_stack =
            pcre2_jit_stack_create(JIT_STACK_LEAST_BYTES, JIT_STACK_MOST_BYTES, split->context);
        if (!split->jit_stack)
            return split_fail(PCRE2_ERROR_NOMEMORY);
        pcre2_jit_stack_assign(split->match_context, NULL, split->jit_stack);
    }
    return COH_OK;
}

coh_status coh_split_create(const char *where, const char *pattern, size_t pattern_bytes,
                            coh_split_behavior behavior, int is_inverted, coh_split **out_split)
{
    *out_split = NULL;
    coh_split *split;
    COH_TRY(COH_ALLOC(1, &split));
    split->behavior = behavior;
    split->is_inverted = is_inverted;
    coh_status status = COH_OK;
    split->context = pcre2_general_context_create(take, release, NULL);
    if (!split->context) {
        status = split_fail(PCRE2_ERROR_NOMEMORY);
        goto done;
    }
    COH_TRY_GOTO(status, compile(where, pattern, pattern_bytes, split), done);
    status = prepare_matching(split);
done:
    if (status != COH_OK)
        coh_split_destroy(split);
    else
        *out_split = split;
    return status;
}

coh_status coh_split_fork(const coh_split *split, coh_split **out_split)
{
    *out_split = NULL;
    coh_split *fork;
    COH_TRY(COH_ALLOC(1, &fork));
    *fork = (coh_split){ .code = split->code,
                         .is_machine_code = split->is_machine_code,
                         .is_fork = 1,
                         .behavior = split->behavior,
                         .is_inverted = split->is_inverted };
    fork->context = pcre2_general_context_create(take, release, NULL);
    coh_status status = fork->context ? prepare_matching(fork) : split_fail(PCRE2_ERROR_NOMEMORY);
    if (status != COH_OK)
        coh_split_destroy(fork);
    else
        *out_split = fork;
    return status;
}

void coh_split_destroy(coh_split *split)
{
    if (!split)
        return;
    pcre2_jit_stack_free(split->jit_stack);
    pcre2_match_context_free(split->match_context);
    pcre2_match_data_free(split->match);
    if (!split->is_fork)
        pcre2_code_free(split->code);
    pcre2_general_context_free(split->context);
    coh_free(split);
}

/* Searches from `begin` on; returns PCRE2's result: > 0, PCRE2_ERROR_NOMATCH or _PARTIAL, or an
 * error. */
static int search(coh_split *split, const uint8_t *text, size_t byte_count, size_t begin,
                  int is_open)
{
    /* Skips PCRE2's UTF check, which would scan the rest of the text for every piece. */
    uint32_t options = PCRE2_NO_UTF_CHECK | (is_open ? PCRE2_PARTIAL_HARD : 0);
    int found = PCRE2_ERROR_JIT_BADOPTION;
    if (split->is_machine_code)
        found = pcre2_jit_match(split->code, text, byte_count, begin, options, split->match,
                                split->match_context);
    if (found == PCRE2_ERROR_JIT_BADOPTION || found == PCRE2_ERROR_JIT_STACKLIMIT)
        found = pcre2_match(split->code, text, byte_count, begin, options | PCRE2_NO_JIT,
                            split->match, split->match_context);
    return found;
}

/* A match or the gap before one, taken from the cursor. */
typedef struct span {
    size_t end;
    int is_match, is_found;
} span;

static coh_status next_span(coh_split *split, const uint8_t *text, size_t byte_count, int is_open,
                            coh_split_cursor *cursor, span *out_span)
{
    *out_span = (span){ 0 };
    if (cursor->at == byte_count)
        return COH_OK;
    if (cursor->match_begin == cursor->match_end && !cursor->has_no_more) {
        int found = search(split, text, byte_count, cursor->at, is_open);
        if (found == PCRE2_ERROR_PARTIAL || (found == PCRE2_ERROR_NOMATCH && is_open))
            return COH_OK;
        if (found < 1 && found != PCRE2_ERROR_NOMATCH)
            return split_fail(found);
        cursor->has_no_more = found == PCRE2_ERROR_NOMATCH;
        if (!cursor->has_no_more) {
            const PCRE2_SIZE *range = pcre2_get_ovector_pointer(split->match);
            cursor->match_begin = range[0];
            cursor->match_end = range[1];
        }
    }
    out_span->is_found = 1;
    if (cursor->has_no_more) {
        out_span->end = byte_count;
    } else if (cursor->match_begin > cursor->at) {
        out_span->end = cursor->match_begin;
    } else {
        out_span->end = cursor->match_end;
        out_span->is_match = 1;
        cursor->match_begin = cursor->match_end;
    }
    out_span->is_match ^= split->is_inverted;
    cursor->at = out_span->end;
    return COH_OK;
}

/* Does a span belong to the same piece as the one before it? */
static int is_joined(coh_split_behavior behavior, const span *before, const span *next)
{
    switch (behavior) {
    case COH_SPLIT_REMOVED:
    case COH_SPLIT_ISOLATED:
        return 0;
    case COH_SPLIT_WITH_PREVIOUS:
        return next->is_match && !before->is_match;
    case COH_SPLIT_WITH_NEXT:
        return before->is_match && !next->is_match;
    case COH_SPLIT_CONTIGUOUS:
        return before->is_match == next->is_match;
    }
    return 0;
}

coh_status coh_split_next(coh_split *split, const uint8_t *text, size_t byte_count, int is_open,
                          coh_split_cursor *cursor, coh_piece *out_piece, int *out_found)
{
    const coh_split_cursor begin = *cursor;
    span last, next;
    *out_found = 0;
    COH_TRY(next_span(split, text, byte_count, is_open, cursor, &last));
    if (!last.is_found)
        return COH_OK;
    *out_found = 1;
    *out_piece = (coh_piece){ .begin = begin.at,
                              .end = last.end,
                              .is_removed = split->behavior == COH_SPLIT_REMOVED && last.is_match };
    if (split->behavior == COH_SPLIT_REMOVED || split->behavior == COH_SPLIT_ISOLATED)
        return COH_OK;
    for (int joined = 1; joined;) {
        coh_split_cursor before = *cursor;
        COH_TRY(next_span(split, text, byte_count, is_open, cursor, &next));
        if (!next.is_found && is_open) { /* the following text may belong to the piece */
            *cursor = begin;
            *out_found = 0;
            return COH_OK;
        }
        joined = next.is_found && is_joined(split->behavior, &last, &next);
        if (!joined) {
            /* Keeps a match found ahead, so that it is not searched again. */
            size_t end = before.at;
            if (next.is_found && cursor->match_begin == cursor->match_end && next.end > end &&
                (next.is_match ^ split->is_inverted)) {
                cursor->match_begin = end;
                cursor->match_end = next.end;
            }
            cursor->at = end;
            break;
        }
        out_piece->end = next.end;
        last = next;
        if (split->behavior != COH_SPLIT_CONTIGUOUS)
            break;
    }
    return COH_OK;
}

coh_status coh_split_is_match(coh_split *split, const uint8_t *text, size_t byte_count,
                              int *out_is_match)
{
    *out_is_match = 0;
    int found = search(split, text, byte_count, 0, 0);
    if (found < 1 && found != PCRE2_ERROR_NOMATCH)
        return split_fail(found);
    const PCRE2_SIZE *range = pcre2_get_ovector_pointer(split->match);
    *out_is_match = found > 0 && range[0] == 0 && range[1] == byte_count;
    return COH_OK;
}
