/* Parses expressions by recursive descent, with functions in the order of Jinja's parser. Unlike
 * Python's operators, a filter binds more tightly than any of them. */
#include <stdio.h>

#include "text/characters.h"
#include "text/jinja_parser.h"

coh_status coh_jinja_parse_name(parser *p, node **out)
{
    if (p->now.kind != COH_JINJA_T_NAME)
        return unexpected(p, "a name");
    if (is_at(p, "varargs") || is_at(p, "kwargs"))
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

/* A list or, with pairs, a mapping. */
static coh_status parse_items(parser *p, int has_pairs, node **out)
{
    const char *end = has_pairs ? "}" : "]";
    node *item, *tail = NULL;
    COH_TRY(make(p, has_pairs ? COH_JINJA_N_DICT : COH_JINJA_N_LIST, p->now.line, out));
    COH_TRY(advance(p));
    while (!is_at(p, end)) {
        if (tail)
            COH_TRY(expect(p, ","));
        if (is_at(p, end))
            break;
        COH_TRY(coh_jinja_parse_expression(p, 1, &item));
        append(*out, &tail, item);
        if (!has_pairs)
            continue;
        COH_TRY(expect(p, ":"));
        COH_TRY(coh_jinja_parse_expression(p, 1, &item));
        append(*out, &tail, item);
    }
    return advance(p);
}

/* A name, or a constant that is written as one. */
static coh_status parse_word(parser *p, int has_members, node **out)
{
    const int is_true = is_at(p, "true") || is_at(p, "True");
    if (is_true || is_at(p, "false") || is_at(p, "False")) {
        COH_TRY(make_constant(p, coh_jinja_bool(is_true), out));
        return advance(p);
    }
    if (is_at(p, "none") || is_at(p, "None")) {
        COH_TRY(make_constant(p, coh_jinja_none(), out));
        return advance(p);
    }
    COH_TRY(coh_jinja_parse_name(p, out));
    if (!has_members || !is_at(p, "."))
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
    if (is_at(p, "(")) {
        COH_TRY(advance(p));
        COH_TRY(
            coh_jinja_parse_tuple(p, (tuple_form){ .has_choice = 1, .is_in_brackets = 1 }, out));
        COH_TRY(expect(p, ")"));
    } else if (is_at(p, "[") || is_at(p, "{")) {
        COH_TRY(parse_items(p, is_at(p, "{"), out));
    } else {
        return unexpected(p, "an expression");
    }
    p->depth--;
    return COH_OK;
}

static int is_tuple_end(const parser *p, const char *word)
{
    return p->now.kind == COH_JINJA_T_PRINT_END || p->now.kind == COH_JINJA_T_BLOCK_END ||
           is_at(p, ")") || (word && is_at(p, word));
}

coh_status coh_jinja_parse_tuple(parser *p, tuple_form form, node **out)
{
    node *tuple, *item, *tail = NULL;
    int is_tuple = 0;
    COH_TRY(make(p, COH_JINJA_N_TUPLE, p->now.line, &tuple));
    for (;;) {
        if (tail)
            COH_TRY(expect(p, ","));
        if (is_tuple_end(p, form.end))
            break;
        COH_TRY(form.is_simple ? coh_jinja_parse_primary(p, form.has_members, &item)
                               : coh_jinja_parse_expression(p, form.has_choice, &item));
        append(tuple, &tail, item);
        if (!is_at(p, ","))
            break;
        is_tuple = 1;
    }
    if (!is_tuple && !tail && !form.is_in_brackets)
        return unexpected(p, "an expression");
    *out = is_tuple || !tail ? tuple : tail;
    return COH_OK;
}

/* [key] or [a:b:c] behind `of`; an end that is left out is none. */
static coh_status parse_subscript(parser *p, node *of, node **out)
{
    node *end, *tail = NULL;
    int is_slice = 0;
    COH_TRY(make_of(p, COH_JINJA_N_SLICE, p->now.line, of, NULL, out));
    COH_TRY(enter(p));
    COH_TRY(expect(p, "["));
    for (int i = 0, goes_on = 1; i < 3; i++) {
        if (goes_on && !is_at(p, ":") && !(is_slice && is_at(p, "]")))
            COH_TRY(coh_jinja_parse_expression(p, 1, &end));
        else
            COH_TRY(make_constant(p, coh_jinja_none(), &end));
        append(*out, &tail, end);
        if (i < 2 && goes_on)
            COH_TRY(take(p, ":", &goes_on));
        is_slice |= i < 2 && goes_on;
    }
    p->depth--;
    if (!is_slice) {
        (*out)->kind = COH_JINJA_N_ITEM;
        (*out)->second = (*out)->list;
    }
    return expect(p, "]");
}

static coh_status parse_attribute(parser *p, node *of, node **out)
{
    const uint32_t line = p->now.line;
    node *key;
    COH_TRY(expect(p, "."));
    const int is_name = p->now.kind == COH_JINJA_T_NAME;
    if (p->now.kind == COH_JINJA_T_WHOLE) {
        COH_TRY(parse_number(p, &key));
    } else if (is_name) {
        COH_TRY(make_constant(p, token_text(&p->now), &key));
        COH_TRY(advance(p));
    } else {
        return unexpected(p, "a name");
    }
    COH_TRY(make_of(p, COH_JINJA_N_ITEM, line, of, key, out));
    (*out)->op = (uint16_t)is_name;
    return COH_OK;
}

static coh_status parse_argument(parser *p, int *has_keyword, node **out)
{
    const coh_jinja_token name = p->now;
    if (is_at(p, "*") || is_at(p, "**")) {
        COH_TRY(make_unknown(p, "an argument by * or **", out));
        COH_TRY(advance(p));
        return coh_jinja_parse_expression(p, 1, &(*out)->first);
    }
    if (name.kind != COH_JINJA_T_NAME || !token_is(&p->ahead, "=")) {
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
    COH_TRY(expect(p, "("));
    while (!is_at(p, ")")) {
        if (tail)
            COH_TRY(expect(p, ","));
        if (tail && is_at(p, ")"))
            break;
        COH_TRY(parse_argument(p, &has_keyword, &argument));
        append(call, &tail, argument);
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
        if (is_at(p, "."))
            COH_TRY(parse_attribute(p, *n, n));
        else if (is_at(p, "["))
            COH_TRY(parse_subscript(p, *n, n));
        else if (is_at(p, "("))
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
    (*out)->index = coh_jinja_find_builtin(
        kind == COH_JINJA_N_FILTER ? COH_JINJA_FILTER : COH_JINJA_TEST, NULL, &(*out)->value);
    return advance(p);
}

/* A filter whose "|" was read. */
coh_status coh_jinja_parse_filter(parser *p, node *of, node **out)
{
    COH_TRY(parse_callee(p, COH_JINJA_N_FILTER, of, out));
    return is_at(p, "(") ? parse_arguments(p, *out) : COH_OK;
}

static coh_status parse_test(parser *p, node *of, node **out)
{
    int is_not;
    node *test = NULL;
    const uint32_t line = p->now.line;
    COH_TRY(expect(p, "is"));
    COH_TRY(take(p, "not", &is_not));
    COH_TRY(parse_callee(p, COH_JINJA_N_TEST, of, &test));
    if (is_at(p, "("))
        COH_TRY(parse_arguments(p, test));
    *out = test;
    return is_not ? make_of(p, COH_JINJA_N_NOT, line, test, NULL, out) : COH_OK;
}

static coh_status parse_unary(parser *p, int has_filters, node **out)
{
    const uint32_t line = p->now.line;
    if (is_at(p, "-") || is_at(p, "+")) {
        const uint16_t sign = (uint8_t)*p->now.begin;
        node *operand, *zero;
        COH_TRY(make_constant(p, coh_jinja_whole(0), &zero));
        COH_TRY(enter(p));
        COH_TRY(advance(p));
        COH_TRY(parse_unary(p, 0, &operand));
        COH_TRY(make_of(p, COH_JINJA_N_BINARY, line, zero, operand, out));
        (*out)->op = sign;
        p->depth--;
    } else {
        COH_TRY(coh_jinja_parse_primary(p, 0, out));
    }
    COH_TRY(parse_postfix(p, out));
    while (has_filters) {
        if (is_at(p, "|")) {
            COH_TRY(advance(p));
            COH_TRY(coh_jinja_parse_filter(p, *out, out));
        } else if (is_at(p, "is")) {
            COH_TRY(parse_test(p, *out, out));
        } else {
            return COH_OK;
        }
    }
    return COH_OK;
}

/* ---- operators ---- */

/* From the loosest to the tightest. */
typedef enum level { OR, AND, NOT, COMPARISON, SUM, CONCAT, PRODUCT, UNARY } level;

typedef struct operation {
    level level;
    coh_jinja_node_kind kind;
    const char *signs[8];
} operation;

/* The operators at the current token, if one of them is there with this precedence; else NULL. Not
 * all are known when they run, so the place of "**" does not count. */
static const operation *operation_at(const parser *p, level l)
{
    static const operation operations[] = {
        { OR, COH_JINJA_N_OR, { "or" } },
        { AND, COH_JINJA_N_AND, { "and" } },
        { COMPARISON, COH_JINJA_N_COMPARE, { "==", "!=", "<", ">", "<=", ">=", "in" } },
        { SUM, COH_JINJA_N_SUM, { "+" } },
        { SUM, COH_JINJA_N_BINARY, { "-" } },
        { CONCAT, COH_JINJA_N_CONCAT, { "~" } },
        { PRODUCT, COH_JINJA_N_BINARY, { "*", "/", "//", "%", "**" } },
    };
    const int is_not_in = is_at(p, "not") && token_is(&p->ahead, "in");
    const coh_jinja_token *t = is_not_in ? &p->ahead : &p->now;
    for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++)
        for (const char *const *sign = operations[i].signs; *sign; sign++)
            if (operations[i].level == l && token_is(t, *sign))
                return &operations[i];
    return NULL;
}

/* Makes *out op right. Sums and concatenations in a row are one list. */
static coh_status join(parser *p, const operation *o, const coh_jinja_token *sign, node *right,
                       node **out)
{
    node *left = *out;
    if (o->kind != COH_JINJA_N_SUM && o->kind != COH_JINJA_N_CONCAT) {
        COH_TRY(make_of(p, o->kind, sign->line, left, right, out));
        (*out)->op = sign->bytes == 2 ? COH_JINJA_OP(sign->begin[0], sign->begin[1])
                                      : (uint8_t)sign->begin[0];
        return COH_OK;
    }
    if (left->kind != o->kind) {
        COH_TRY(make(p, o->kind, sign->line, out));
        append(*out, &(*out)->second, left);
    }
    append(*out, &(*out)->second, right);
    return COH_OK;
}

static coh_status parse_operation(parser *p, level l, node **out);

static coh_status parse_not(parser *p, node **out)
{
    const uint32_t line = p->now.line;
    node *operand;
    COH_TRY(enter(p));
    COH_TRY(advance(p));
    COH_TRY(parse_operation(p, NOT, &operand));
    p->depth--;
    return make_of(p, COH_JINJA_N_NOT, line, operand, NULL, out);
}

static coh_status parse_operation(parser *p, level l, node **out)
{
    const operation *o;
    node *right;
    if (l == UNARY)
        return parse_unary(p, 1, out);
    if (l == NOT && is_at(p, "not"))
        return parse_not(p, out);
    COH_TRY(parse_operation(p, l + 1, out));
    while ((o = operation_at(p, l))) {
        const int is_not = is_at(p, "not");
        if (is_not)
            COH_TRY(advance(p));
        const coh_jinja_token sign = p->now;
        COH_TRY(advance(p));
        COH_TRY(parse_operation(p, l + 1, &right));
        COH_TRY(join(p, o, &sign, right, out));
        if (is_not)
            COH_TRY(make_of(p, COH_JINJA_N_NOT, sign.line, *out, NULL, out));
        if (l == COMPARISON && operation_at(p, l))
            return REFUSE(p, "chained comparisons are not known here: use \"and\"");
    }
    return COH_OK;
}

coh_status coh_jinja_parse_expression(parser *p, int has_choice, node **out)
{
    int is_if, is_else;
    node *test, *otherwise;
    COH_TRY(enter(p));
    COH_TRY(parse_operation(p, OR, out));
    while (has_choice) {
        const uint32_t line = p->now.line;
        COH_TRY(take(p, "if", &is_if));
        if (!is_if)
            break;
        otherwise = NULL;
        COH_TRY(parse_operation(p, OR, &test));
        COH_TRY(take(p, "else", &is_else));
        if (is_else)
            COH_TRY(coh_jinja_parse_expression(p, 1, &otherwise));
        COH_TRY(make_of(p, COH_JINJA_N_CHOICE, line, test, *out, out));
        (*out)->third = otherwise;
    }
    p->depth--;
    return COH_OK;
}
