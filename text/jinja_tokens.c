/* Cuts a template into tokens. The one idea: outside of code, text goes up to the next {{, {% or
 * {#, and the signs -, + and the settings trim_blocks and lstrip_blocks decide which white space
 * around code belongs to it. Follows Jinja's lexer. Next: jinja_parse.c. */
#include <stdarg.h>
#include <stdio.h>

#include "text/characters.h"
#include "text/jinja_tree.h"

typedef coh_jinja_lexer lexer;
typedef coh_jinja_token token;

coh_status coh_jinja_refuse(const char *where, uint32_t line, const char *format, ...)
{
    char text[COH_ERROR_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return coh_fail(COH_ERR_CORRUPT, "%s:%u: %s", where, line, text);
}

void coh_jinja_lexer_init(lexer *l, const char *where, const char *text, size_t bytes)
{
    *l = (lexer){ .where = where,
                  .at = text,
                  .end = text + bytes,
                  .line = 1,
                  .after_line_end = 1,
                  .code = COH_JINJA_T_END,
                  .pending = COH_JINJA_T_END };
}

/* ---- white space ---- */

static const char *skip_space(const char *at, const char *end)
{
    for (size_t bytes; (bytes = coh_jinja_space((const uint8_t *)at, (size_t)(end - at))) != 0;)
        at += bytes;
    return at;
}

/* Returns the end of begin..end without white space behind it. */
static const char *strip_end(const char *begin, const char *end)
{
    const coh_jinja_value text = coh_jinja_bytes(begin, (size_t)(end - begin), 0);
    return begin + coh_jinja_strip(&text, NULL, 0, 1).count;
}

/* Likewise, but only back to the begin of the line, if nothing else is on it. */
static const char *strip_line(const lexer *l, const char *begin, const char *end)
{
    const char *line = memrchr(begin, '\n', (size_t)(end - begin));
    if (!line && !l->after_line_end)
        return end;
    line = line ? line + 1 : begin;
    return skip_space(line, end) == end ? line : end;
}

/* Moves on to `at`. */
static void move(lexer *l, const char *at)
{
    if (at > l->at)
        l->after_line_end = at[-1] == '\n';
    for (const char *line; (line = memchr(l->at, '\n', (size_t)(at - l->at))); l->at = line + 1)
        l->line++;
    l->at = at;
}

/* A token at `begin`, to which the lexer has moved. */
static void emit(lexer *l, coh_jinja_token_kind kind, const char *begin, const char *end, token *t)
{
    *t = (token){ kind, l->line, begin, (size_t)(end - begin) };
}

/* ---- outside of code ---- */

/* The place behind "%}" or "#}" at `at`, with the sign and the white space that belong to it; NULL
 * if it is not there. */
static const char *skip_end(const char *at, const char *end, char sign, int takes_line,
                            int has_plus)
{
    const int minus = at < end && *at == '-', plus = has_plus && at < end && *at == '+';
    at += minus || plus;
    if (end - at < 2 || at[0] != sign || at[1] != '}')
        return NULL;
    at += 2;
    if (minus)
        return skip_space(at, end);
    return at + (!plus && takes_line && at < end && *at == '\n');
}

static int is_sign(const char *at, const char *end)
{
    return at < end && (*at == '-' || *at == '+');
}

/* Text before code that begins at `at`, as far as the code leaves it. */
static const char *strip_before(const lexer *l, const char *begin, const char *at)
{
    const char sign = is_sign(at + 2, l->end) ? at[2] : 0;
    if (sign == '-')
        return strip_end(begin, at);
    if (sign == '+' || at[1] == '{')
        return at;
    return strip_line(l, begin, at);
}

/* Skips the comment at which the lexer is. */
static coh_status skip_comment(lexer *l)
{
    const char *at = l->at + 2 + is_sign(l->at + 2, l->end);
    const char *found = memmem(at, (size_t)(l->end - at), "#}", 2);
    if (!found)
        return coh_jinja_refuse(l->where, l->line, "a comment \"{#\" without \"#}\"");
    if (found > at && is_sign(found - 1, l->end))
        found--;
    move(l, skip_end(found, l->end, '#', 1, 1));
    return COH_OK;
}

/* The next {{, {% or {#; NULL: none. */
static const char *find_code(const char *at, const char *end)
{
    for (; (at = memchr(at, '{', (size_t)(end - at))); at++)
        if (end - at >= 2 && (at[1] == '{' || at[1] == '%' || at[1] == '#'))
            return at;
    return NULL;
}

/* Reads text up to code, and moves into the code. Comments and text without bytes give T_DATA of 0
 * bytes. */
static coh_status next_text(lexer *l, token *t)
{
    const char *begin = l->at, *at = find_code(begin, l->end);
    if (begin == l->end) {
        emit(l, COH_JINJA_T_END, begin, begin, t);
        return COH_OK;
    }
    emit(l, COH_JINJA_T_DATA, begin, at ? strip_before(l, begin, at) : l->end, t);
    move(l, at ? at : l->end);
    if (!at)
        return COH_OK;
    if (at[1] == '#')
        return skip_comment(l);
    l->pending = at[1] == '{' ? COH_JINJA_T_PRINT_BEGIN : COH_JINJA_T_BLOCK_BEGIN;
    return COH_OK;
}

/* ---- code ---- */

static int is_digit(char sign)
{
    return sign >= '0' && sign <= '9';
}

static int is_name_sign(char sign)
{
    return is_digit(sign) || ((sign | 0x20) >= 'a' && (sign | 0x20) <= 'z') || sign == '_';
}

/* A point ends a number behind another point: a.0.1 names members. */
static coh_status next_number(lexer *l, token *t)
{
    const char *begin = l->at, *at = begin;
    while (at < l->end && is_digit(*at))
        at++;
    const char *behind = at;
    if (behind + 1 < l->end && *behind == '.' && is_digit(behind[1]) && begin[-1] != '.')
        behind++;
    while (behind < l->end && is_name_sign(*behind))
        behind++;
    if (behind > at || (*begin == '0' && at > begin + 1))
        return coh_jinja_refuse(l->where, l->line,
                                "the number \"%.*s\" is not known here, only decimal integers",
                                (int)(behind - begin < 80 ? behind - begin : 80), begin);
    emit(l, COH_JINJA_T_WHOLE, begin, at, t);
    move(l, at);
    return COH_OK;
}

static coh_status next_string(lexer *l, token *t)
{
    const char quote = *l->at, *begin = l->at + 1;
    for (const char *at = begin; at < l->end; at++) {
        if (*at == '\\')
            at++;
        else if (*at == quote) {
            emit(l, COH_JINJA_T_STRING, begin, at, t);
            move(l, at + 1);
            return COH_OK;
        }
    }
    return coh_jinja_refuse(l->where, l->line, "a string without its closing %c", quote);
}

static coh_status next_sign(lexer *l, token *t)
{
    static const char *const pairs[] = { "//", "**", "==", "!=", ">=", "<=" };
    const char *at = l->at;
    size_t bytes = 0;
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]) && l->end - at >= 2; i++)
        if (memcmp(at, pairs[i], 2) == 0)
            bytes = 2;
    if (bytes == 0 && *at && strchr("+-/*%~[](){}><=.:|,;", *at))
        bytes = 1;
    if (bytes == 0)
        return coh_jinja_refuse(l->where, l->line, "an unexpected character \"%.*s\"",
                                (int)coh_utf8_character((const uint8_t *)at, (size_t)(l->end - at)),
                                at);
    if (strchr("([{", *at))
        l->open++;
    else if (strchr(")]}", *at))
        l->open -= l->open > 0;
    emit(l, COH_JINJA_T_SIGN, at, at + bytes, t);
    move(l, at + bytes);
    return COH_OK;
}

static coh_status next_code(lexer *l, token *t)
{
    const char *at = skip_space(l->at, l->end), *behind = NULL;
    const int is_block = l->code == COH_JINJA_T_BLOCK_BEGIN;
    move(l, at);
    if (at == l->end) {
        emit(l, COH_JINJA_T_END, at, at, t);
        return COH_OK;
    }
    if (!l->open && (behind = skip_end(at, l->end, is_block ? '%' : '}', is_block, is_block))) {
        emit(l, is_block ? COH_JINJA_T_BLOCK_END : COH_JINJA_T_PRINT_END, at, behind, t);
        l->code = COH_JINJA_T_END;
    } else if (is_digit(*at)) {
        return next_number(l, t);
    } else if (is_name_sign(*at)) {
        for (behind = at; behind < l->end && is_name_sign(*behind);)
            behind++;
        emit(l, COH_JINJA_T_NAME, at, behind, t);
    } else if (*at == '\'' || *at == '"') {
        return next_string(l, t);
    } else {
        return next_sign(l, t);
    }
    move(l, at + t->bytes);
    return COH_OK;
}

coh_status coh_jinja_next(lexer *l, token *t)
{
    if (l->code != COH_JINJA_T_END)
        return next_code(l, t);
    if (l->pending == COH_JINJA_T_END)
        return next_text(l, t);
    const char *behind = l->at + 2 + is_sign(l->at + 2, l->end);
    emit(l, l->pending, l->at, behind, t);
    l->code = l->pending;
    l->pending = COH_JINJA_T_END;
    l->open = 0;
    move(l, behind);
    return COH_OK;
}
