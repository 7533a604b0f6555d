/* Parses expressions by recursive descent, with functions in the order of Jinja's parser. Unlike
 * Python's operators, a filter binds more tightly than any of them. */
#include <stdio.h>

#include "text/characters.h"
#include "text/jinja_parser.h"

coh_status coh_jinja_parse_name(parser *p, node **out)
{
    if (p->now.kind != COH_JINJA_T_NAME)
        return unexpected(p, "a name");
    if (p->macros && (at_word(p, "varargs") || at_word(p, "kwargs")))
        return REFUSE(p, "the variable \"%.*s\" of macros is not known here", (int)p->now.bytes,
                      p->now.begin);
    COH_TRY(make(p, COH_JINJA_N_NAME, p->now.line, out));
    (*out)->value = token_text(&p->now);
    COH_TRY(coh_jinja_name(p->program, p->now.begin, p->now.bytes, &(*out)->index));
    return advance(p);
}

/* ---- literals ---- */

/* Reads the hexadecimal digits of \x, \u or \U; *at moves behind them. */
static coh_status decode_number(parser *p, const char **at, const char *end, int digits,
                                uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < digits; i++, ++*at) {
        const int digit = *at < end ? coh_hex_digit((uint8_t) * *at) : -1;
        if (digit < 0)
            return REFUSE(p, "an escape in a string has fewer than %d digits", digits);
        *out = *out << 4 | (uint32_t)digit;
    }
    if (*out > 0x10ffff || (*out >= 0xd800 && *out < 0xe000))
        return REFUSE(p, "an escape in a string is not a valid code point");
    return COH_OK;
}

/* Decodes the escape at *at, behind its backslash. *out_bytes is at most 4. */
static coh_status decode_escape(parser *p, const char **at, const char *end, char out[4],
                                size_t *out_bytes)
{
    static const char letters[] = "\\'\"abfnrtv", values[] = "\\'\"\a\b\f\n\r\t\v";
    const char letter = *(*at)++;
    const char *found = letter ? strchr(letters, letter) : NULL;
    uint32_t value = 0;
    *out_bytes = 1;
    if (letter == '\n') {
        *out_bytes = 0;
        return COH_OK;
    }
    if (found) {
        out[0] = values[found - letters];
        return COH_OK;
    }
    if (letter == 'N' || (letter >= '0' && letter <= '7') || (uint8_t)letter >= 0x80)
        return REFUSE(p, "the escape \\%.*s in a string is not known here",
                      (int)coh_utf8_character((const uint8_t *)*at - 1, (size_t)(end - *at) + 1),
                      *at - 1);
    if (letter != 'x' && letter != 'u' && letter != 'U') {
        out[0] = '\\';
        out[1] = letter;
        *out_bytes = 2;
        return COH_OK;
    }
    COH_TRY(decode_number(p, at, end, letter == 'x' ? 2 : letter == 'u' ? 4 : 8, &value));
    *out_bytes = coh_utf8_write(value, (uint8_t *)out);
    return COH_OK;
}

/* Decodes the literal into `text`, which has room for it: no escape is shorter than its meaning. */
static coh_status decode(parser *p, const coh_jinja_token *t, char *text, size_t *bytes)
{
    for (const char *at = t->begin, *end = at + t->bytes; at < end;) {
        char escape[4];
        size_t count;
        if (*at != '\\') {
            text[(*bytes)++] = *at++;
            continue;
        }
        at++;
        COH_TRY(decode_escape(p, &at, end, escape, &count));
        memcpy(text + *bytes, escape, count);
        *bytes += count;
    }
    return COH_OK;
}

/* Literals next to each other are one string. */
static coh_status parse_string(parser *p, node **out)
{
    coh_jinja_value string = { .kind = COH_JINJA_STRING, .bytes = (const uint8_t *)"" };
    COH_TRY(make_constant(p, string, out));
    while (p->now.kind == COH_JINJA_T_STRING) {
        void *memory;
        size_t bytes = string.count;
        COH_TRY(take_memory(p, bytes + p->now.bytes + 1, &memory));
        memcpy(memory, string.bytes, bytes);
        COH_TRY(decode(p, &p->now, memory, &bytes));
        string.bytes = memory;
        string.count = bytes;
        COH_TRY(advance(p));
    }
    (*out)->value = string;
    return COH_OK;
}

static coh_status parse_number(parser *p, node **out)
{
    const coh_jinja_value text = token_text(&p->now);
    coh_jinja_value value = coh_jinja_whole(0);
    if (!coh_jinja_read_whole(&text, &value.whole))
        return REFUSE(p, "the number %.*s is beyond 64 bits", (int)text.count, p->now.begin);
    COH_TRY(make_constant(p, value, out));
    return advance(p);
}

/* ---- expressions ---- */

static coh_status parse_list(parser *p, node **out)
{
    node *item, *tail = NULL;
    COH_TRY(make(p, COH_JINJA_N_LIST, p->now.line, out));
    COH_TRY(expect_sign(p, "["));
    while (!at_sign(p, "]")) {
        if (tail)
            COH_TRY(expect_sign(p, ","));
        if (at_sign(p, "]"))
            break;
        COH_TRY(coh_jinja_parse_expression(p, 1, &item));
        COH_TRY(append(p, *out, &tail, item));
    }
    return advance(p);
}

static coh_status parse_dict(parser *p, node **out)
{
    node *item, *tail = NULL;
    COH_TRY(make(p, COH_JINJA_N_DICT, p->now.line, out));
    COH_TRY(expect_sign(p, "{"));
    while (!at_sign(p, "}")) {
        if (tail)
            COH_TRY(expect_sign(p, ","));
        if (at_sign(p, "}"))
            break;
        COH_TRY(coh_jinja_parse_expression(p, 1, &item));
        COH_TRY(append(p, *out, &tail, item));
        COH_TRY(expect_sign(p, ":"));
        COH_TRY(coh_jinja_parse_expression(p, 1, &item));
        COH_TRY(append(p, *out, &tail, item));
    }
    return advance(p);
}

/* A name, or a constant that is written as one. */
static coh_status parse_word(parser *p, int has_members, node **out)
{
    const int is_true = at_word(p, "true") || at_word(p, "True");
    if (is_true || at_word(p, "false") || at_word(p, "False")) {
        COH_TRY(make_constant(p, coh_jinja_bool(is_true), out));
        return advance(p);
    }
    if (at_word(p, "none") || at_word(p, "None")) {
        COH_TRY(make_constant(p, coh_jinja_none(), out));
        return advance(p);
    }
    COH_TRY(coh_jinja_parse_name(p, out));
    if (!has_members || !at_sign(p, "."))
        return COH_OK;
    COH_TRY(advance(p));
    if (p->now.kind != COH_JINJA_T_NAME)
        return unexpected(p, "a name");
    (*out)->kind = COH_JINJA_N_MEMBER;
    (*out)->value = token_text(&p->now);
    return advance(p);
}

coh_status coh_jinja_parse_primary(parser *p, int has_members, node **out)
{
    if (p->now.kind == COH_JINJA_T_NAME)
        return parse_word(p, has_members, out);
    if (p->now.kind == COH_JINJA_T_STRING)
        return parse_string(p, out);
    if (p->now.kind == COH_JINJA_T_WHOLE)
        return parse_number(p, out);
    COH_TRY(enter(p));
    if (at_sign(p, "(")) {
        COH_TRY(advance(p));
        COH_TRY(
            coh_jinja_parse_tuple(p, (tuple_form){ .has_choice = 1, .is_in_brackets = 1 }, out));
        COH_TRY(expect_sign(p, ")"));
    } else if (at_sign(p, "[")) {
        COH_TRY(parse_list(p, out));
    } else if (at_sign(p, "{")) {
        COH_TRY(parse_dict(p, out));
    } else {
        return unexpected(p, "an expression");
    }
    p->depth--;
    return COH_OK;
}

static int is_tuple_end(const parser *p, const char *word)
{
    return p->now.kind == COH_JINJA_T_PRINT_END || p->now.kind == COH_JINJA_T_BLOCK_END ||
           at_sign(p, ")") || (word && at_word(p, word));
}

coh_status coh_jinja_parse_tuple(parser *p, tuple_form form, node **out)
{
    node *tuple, *item, *tail = NULL;
    int is_tuple = 0;
    COH_TRY(make(p, COH_JINJA_N_TUPLE, p->now.line, &tuple));
    for (;;) {
        if (tail)
            COH_TRY(expect_sign(p, ","));
        if (is_tuple_end(p, form.end))
            break;
        COH_TRY(form.is_simple ? coh_jinja_parse_primary(p, form.has_members, &item)
                               : coh_jinja_parse_expression(p, form.has_choice, &item));
        COH_TRY(append(p, tuple, &tail, item));
        if (!at_sign(p, ","))
            break;
        is_tuple = 1;
    }
    if (!is_tuple && !tail && !form.is_in_brackets)
        return unexpected(p, "an expression");
    *out = is_tuple || !tail ? tuple : tail;
    return COH_OK;
}

/* An end of a slice: none if it is left out. */
static coh_status parse_slice_end(parser *p, node *slice, node **tail, int is_given)
{
    node *end;
    if (is_given)
        COH_TRY(coh_jinja_parse_expression(p, 1, &end));
    else
        COH_TRY(make_constant(p, coh_jinja_none(), &end));
    return append(p, slice, tail, end);
}

/* [a:b:c] behind `of`, whose first end was parsed if it is there. */
static coh_status parse_slice(parser *p, node *of, node *begin, node **out)
{
    node *tail = NULL;
    COH_TRY(make_of(p, COH_JINJA_N_SLICE, p->now.line, of, NULL, out));
    if (begin)
        COH_TRY(append(p, *out, &tail, begin));
    else
        COH_TRY(parse_slice_end(p, *out, &tail, 0));
    COH_TRY(expect_sign(p, ":"));
    COH_TRY(parse_slice_end(p, *out, &tail, !at_sign(p, ":") && !at_sign(p, "]")));
    int has_step;
    COH_TRY(take_sign(p, ":", &has_step));
    COH_TRY(parse_slice_end(p, *out, &tail, has_step && !at_sign(p, "]")));
    return expect_sign(p, "]");
}

static coh_status parse_subscript(parser *p, node *of, node **out)
{
    const uint32_t line = p->now.line;
    node *key = NULL;
    COH_TRY(enter(p));
    COH_TRY(expect_sign(p, "["));
    if (!at_sign(p, ":"))
        COH_TRY(coh_jinja_parse_expression(p, 1, &key));
    p->depth--;
    if (at_sign(p, ":"))
        return parse_slice(p, of, key, out);
    COH_TRY(make_of(p, COH_JINJA_N_ITEM, line, of, key, out));
    return expect_sign(p, "]");
}

static coh_status parse_attribute(parser *p, node *of, node **out)
{
    const uint32_t line = p->now.line;
    COH_TRY(expect_sign(p, "."));
    if (p->now.kind == COH_JINJA_T_WHOLE) {
        node *key;
        COH_TRY(parse_number(p, &key));
        return make_of(p, COH_JINJA_N_ITEM, line, of, key, out);
    }
    if (p->now.kind != COH_JINJA_T_NAME)
        return unexpected(p, "a name");
    COH_TRY(make_of(p, COH_JINJA_N_ATTRIBUTE, line, of, NULL, out));
    (*out)->value = token_text(&p->now);
    return advance(p);
}

static coh_status parse_argument(parser *p, int *has_keyword, node **out)
{
    const coh_jinja_token name = p->now;
    if (at_sign(p, "*") || at_sign(p, "**")) {
        COH_TRY(make(p, COH_JINJA_N_SPREAD, name.line, out));
        COH_TRY(advance(p));
        return coh_jinja_parse_expression(p, 1, &(*out)->first);
    }
    if (name.kind != COH_JINJA_T_NAME || !token_is(&p->ahead, COH_JINJA_T_SIGN, "=")) {
        if (*has_keyword)
            return REFUSE(p, "an argument without a name follows one with a name");
        return coh_jinja_parse_expression(p, 1, out);
    }
    node *value;
    *has_keyword = 1;
    COH_TRY(advance(p));
    COH_TRY(advance(p));
    COH_TRY(coh_jinja_parse_expression(p, 1, &value));
    COH_TRY(make_of(p, COH_JINJA_N_KEYWORD, name.line, value, NULL, out));
    (*out)->value = token_text(&name);
    return COH_OK;
}

/* Reads (a, b, c=d) into the list of `call`. */
static coh_status parse_arguments(parser *p, node *call)
{
    node *argument, *tail = NULL;
    int has_keyword = 0;
    COH_TRY(enter(p));
    COH_TRY(expect_sign(p, "("));
    while (!at_sign(p, ")")) {
        if (tail)
            COH_TRY(expect_sign(p, ","));
        if (tail && at_sign(p, ")"))
            break;
        COH_TRY(parse_argument(p, &has_keyword, &argument));
        COH_TRY(append(p, call, &tail, argument));
    }
    p->depth--;
    return advance(p);
}

static coh_status parse_call(parser *p, node *of, node **out)
{
    COH_TRY(make_of(p, COH_JINJA_N_CALL, p->now.line, of, NULL, out));
    return parse_arguments(p, *out);
}

static coh_status parse_postfix(parser *p, node **n)
{
    for (;;) {
        if (at_sign(p, "."))
            COH_TRY(parse_attribute(p, *n, n));
        else if (at_sign(p, "["))
            COH_TRY(parse_subscript(p, *n, n));
        else if (at_sign(p, "("))
            COH_TRY(parse_call(p, *n, n));
        else
            return COH_OK;
    }
}

/* The name of a filter or a test. One that is not known is refused when it is called. */
static coh_status parse_callee(parser *p, coh_jinja_node_kind kind, node *of, node **out)
{
    if (p->now.kind != COH_JINJA_T_NAME)
        return unexpected(p, "a name");
    COH_TRY(make_of(p, kind, p->now.line, of, NULL, out));
    (*out)->value = token_text(&p->now);
    (*out)->index = kind == COH_JINJA_N_FILTER ? coh_jinja_filter_index(p->now.begin, p->now.bytes)
                                               : coh_jinja_test_index(p->now.begin, p->now.bytes);
    return advance(p);
}

/* A filter whose "|" was read. */
coh_status coh_jinja_parse_filter(parser *p, node *of, node **out)
{
    COH_TRY(parse_callee(p, COH_JINJA_N_FILTER, of, out));
    return at_sign(p, "(") ? parse_arguments(p, *out) : COH_OK;
}

static coh_status parse_test(parser *p, node *of, node **out)
{
    int is_not;
    node *test = NULL;
    const uint32_t line = p->now.line;
    COH_TRY(expect_word(p, "is"));
    COH_TRY(take_word(p, "not", &is_not));
    COH_TRY(parse_callee(p, COH_JINJA_N_TEST, of, &test));
    if (at_sign(p, "("))
        COH_TRY(parse_arguments(p, test));
    *out = test;
    return is_not ? make_of(p, COH_JINJA_N_NOT, line, test, NULL, out) : COH_OK;
}

static coh_status parse_unary(parser *p, int has_filters, node **out)
{
    const uint32_t line = p->now.line;
    if (at_sign(p, "-") || at_sign(p, "+")) {
        const uint16_t sign = (uint8_t)*p->now.begin;
        node *operand;
        COH_TRY(enter(p));
        COH_TRY(advance(p));
        COH_TRY(parse_unary(p, 0, &operand));
        COH_TRY(make_of(p, COH_JINJA_N_SIGN, line, operand, NULL, out));
        (*out)->op = sign;
        p->depth--;
    } else {
        COH_TRY(coh_jinja_parse_primary(p, 0, out));
    }
    COH_TRY(parse_postfix(p, out));
    while (has_filters) {
        if (at_sign(p, "|")) {
            COH_TRY(advance(p));
            COH_TRY(coh_jinja_parse_filter(p, *out, out));
        } else if (at_word(p, "is")) {
            COH_TRY(parse_test(p, *out, out));
        } else {
            return COH_OK;
        }
    }
    return COH_OK;
}

/* Operators of one precedence. Between the two is "~". Not all of them are known when they run, so
 * the place of "**" does not count. */
static const char *const operators[][5] = { { "*", "/", "//", "%", "**" }, { "+", "-" } };
enum { PRODUCT, SUM };

static int at_operator(const parser *p, int level)
{
    for (int i = 0; i < 5 && operators[level][i]; i++)
        if (at_sign(p, operators[level][i]))
            return 1;
    return 0;
}

static uint16_t operator_of(const coh_jinja_token *t)
{
    return t->bytes == 2 ? COH_JINJA_OP(t->begin[0], t->begin[1]) : (uint8_t)t->begin[0];
}

static coh_status parse_concat(parser *p, node **out);

static coh_status parse_math(parser *p, int level, node **out)
{
    node *right;
    COH_TRY(level == PRODUCT ? parse_unary(p, 1, out) : parse_concat(p, out));
    while (at_operator(p, level)) {
        const coh_jinja_token sign = p->now;
        COH_TRY(advance(p));
        COH_TRY(level == PRODUCT ? parse_unary(p, 1, &right) : parse_concat(p, &right));
        COH_TRY(make_of(p, COH_JINJA_N_BINARY, sign.line, *out, right, out));
        (*out)->op = operator_of(&sign);
    }
    return COH_OK;
}

static coh_status parse_concat(parser *p, node **out)
{
    node *operand, *concat, *tail = NULL;
    COH_TRY(parse_math(p, PRODUCT, out));
    if (!at_sign(p, "~"))
        return COH_OK;
    COH_TRY(make(p, COH_JINJA_N_CONCAT, p->now.line, &concat));
    COH_TRY(append(p, concat, &tail, *out));
    while (at_sign(p, "~")) {
        COH_TRY(advance(p));
        COH_TRY(parse_math(p, PRODUCT, &operand));
        COH_TRY(append(p, concat, &tail, operand));
    }
    *out = concat;
    return COH_OK;
}

/* Moves behind an operator of comparison; *op is 0 if there is none. */
static coh_status take_comparison(parser *p, uint16_t *op)
{
    static const char *const signs[] = { "==", "!=", "<", ">", "<=", ">=" };
    *op = 0;
    for (size_t i = 0; i < sizeof(signs) / sizeof(signs[0]); i++)
        if (at_sign(p, signs[i]))
            *op = operator_of(&p->now);
    if (at_word(p, "in"))
        *op = COH_JINJA_OP_IN;
    if (at_word(p, "not") && token_is(&p->ahead, COH_JINJA_T_NAME, "in")) {
        *op = COH_JINJA_OP_NOT_IN;
        COH_TRY(advance(p));
    }
    return *op ? advance(p) : COH_OK;
}

static coh_status parse_comparison(parser *p, node **out)
{
    const uint32_t line = p->now.line;
    uint16_t op, again;
    node *right;
    COH_TRY(parse_math(p, SUM, out));
    COH_TRY(take_comparison(p, &op));
    if (!op)
        return COH_OK;
    COH_TRY(parse_math(p, SUM, &right));
    COH_TRY(make_of(p, COH_JINJA_N_COMPARE, line, *out, right, out));
    (*out)->op = op;
    COH_TRY(take_comparison(p, &again));
    return again ? REFUSE(p, "chained comparisons are not known here: use \"and\"") : COH_OK;
}

static coh_status parse_not(parser *p, node **out)
{
    const uint32_t line = p->now.line;
    node *operand;
    if (!at_word(p, "not"))
        return parse_comparison(p, out);
    COH_TRY(enter(p));
    COH_TRY(advance(p));
    COH_TRY(parse_not(p, &operand));
    p->depth--;
    return make_of(p, COH_JINJA_N_NOT, line, operand, NULL, out);
}

static coh_status parse_and(parser *p, node **out)
{
    node *right;
    COH_TRY(parse_not(p, out));
    while (at_word(p, "and")) {
        const uint32_t line = p->now.line;
        COH_TRY(advance(p));
        COH_TRY(parse_not(p, &right));
        COH_TRY(make_of(p, COH_JINJA_N_AND, line, *out, right, out));
    }
    return COH_OK;
}

static coh_status parse_or(parser *p, node **out)
{
    node *right;
    COH_TRY(parse_and(p, out));
    while (at_word(p, "or")) {
        const uint32_t line = p->now.line;
        COH_TRY(advance(p));
        COH_TRY(parse_and(p, &right));
        COH_TRY(make_of(p, COH_JINJA_N_OR, line, *out, right, out));
    }
    return COH_OK;
}

coh_status coh_jinja_parse_expression(parser *p, int has_choice, node **out)
{
    int is_if, is_else;
    node *test, *otherwise;
    COH_TRY(enter(p));
    COH_TRY(parse_or(p, out));
    while (has_choice) {
        const uint32_t line = p->now.line;
        COH_TRY(take_word(p, "if", &is_if));
        if (!is_if)
            break;
        otherwise = NULL;
        COH_TRY(parse_or(p, &test));
        COH_TRY(take_word(p, "else", &is_else));
        if (is_else)
            COH_TRY(coh_jinja_parse_expression(p, 1, &otherwise));
        COH_TRY(make_of(p, COH_JINJA_N_CHOICE, line, test, *out, out));
        (*out)->third = otherwise;
        COH_TRY(grow(p, *out, otherwise));
    }
    p->depth--;
    return COH_OK;
}
