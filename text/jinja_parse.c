/* Parses statements, and the text between them. Next: jinja_expressions.c for what they compute,
 * jinja_run.c for what they do. */
#include "text/jinja_parser.h"

static coh_status parse_statements(parser *p, const char *const *ends, node *of);

/* Reads the rest of a statement's begin, and its body up to one of `ends`, which NULL ends; that
 * word is then the current token. */
static coh_status parse_body(parser *p, const char *const *ends, node *of)
{
    int is_colon;
    COH_TRY(take(p, ":", &is_colon));
    COH_TRY(expect_code_end(p));
    return parse_statements(p, ends, of);
}

static coh_status check_target(parser *p, const node *target, int is_loop)
{
    if (target->kind == COH_JINJA_N_TUPLE) {
        for (const node *item = target->list; item; item = item->next)
            COH_TRY(check_target(p, item, is_loop));
        return COH_OK;
    }
    if (target->kind != COH_JINJA_N_NAME && target->kind != COH_JINJA_N_MEMBER)
        return REFUSE(p, "an assignment to something that is not a variable");
    if (is_loop && coh_jinja_is(&target->value, "loop"))
        return REFUSE(p, "the variable \"loop\" cannot be that of a loop");
    return COH_OK;
}

static coh_status parse_target(parser *p, int is_loop, node **out)
{
    const tuple_form form = { .is_simple = 1,
                              .has_members = !is_loop,
                              .end = is_loop ? "in" : NULL };
    COH_TRY(coh_jinja_parse_tuple(p, form, out));
    return check_target(p, *out, is_loop);
}

static coh_status parse_if(parser *p, node **out)
{
    static const char *const ends[] = { "elif", "else", "endif", NULL };
    static const char *const last[] = { "endif", NULL };
    node *branch, *test, *tail = NULL;
    COH_TRY(make(p, COH_JINJA_N_IF, p->now.line, out));
    do { /* at "if" or "elif" */
        COH_TRY(advance(p));
        COH_TRY(coh_jinja_parse_tuple(p, (tuple_form){ 0 }, &test));
        COH_TRY(make(p, COH_JINJA_N_BRANCH, test->line, &branch));
        branch->first = test;
        COH_TRY(parse_body(p, ends, branch));
        append(*out, &tail, branch);
    } while (is_at(p, "elif"));
    if (is_at(p, "else")) {
        COH_TRY(make(p, COH_JINJA_N_BRANCH, p->now.line, &branch));
        COH_TRY(advance(p));
        COH_TRY(parse_body(p, last, branch));
        append(*out, &tail, branch);
    }
    return advance(p);
}

static coh_status parse_for(parser *p, node **out)
{
    static const char *const ends[] = { "endfor", "else", NULL };
    int is_filtered;
    node *loop;
    COH_TRY(make(p, COH_JINJA_N_FOR, p->now.line, &loop));
    COH_TRY(advance(p));
    COH_TRY(parse_target(p, 1, &loop->first));
    COH_TRY(expect(p, "in"));
    COH_TRY(coh_jinja_parse_tuple(p, (tuple_form){ .end = "recursive" }, &loop->second));
    COH_TRY(take(p, "if", &is_filtered));
    if (is_filtered)
        COH_TRY(coh_jinja_parse_expression(p, 1, &loop->third));
    if (is_at(p, "recursive"))
        return REFUSE(p, "recursive loops are not known here");
    p->loops++;
    COH_TRY(parse_body(p, ends, loop));
    p->loops--;
    if (is_at(p, "else"))
        return REFUSE(p, "\"else\" of a loop is not known here");
    *out = loop;
    return advance(p);
}

/* A body whose text is captured: loops around it cannot be left from inside. */
static coh_status parse_own_body(parser *p, const char *end, node *of)
{
    const char *const ends[] = { end, NULL };
    const int loops = p->loops;
    p->loops = 0;
    COH_TRY(parse_body(p, ends, of));
    p->loops = loops;
    return advance(p);
}

/* Reads filters behind a block's begin, the first one without "|" if `is_inline`, and the block.
 * *out is what it writes, after the filters. */
static coh_status parse_captured(parser *p, int is_inline, const char *end, node **out)
{
    node *block;
    COH_TRY(make(p, COH_JINJA_N_CAPTURE, p->now.line, &block));
    *out = block;
    if (is_inline)
        COH_TRY(coh_jinja_parse_filter(p, *out, out));
    while (is_at(p, "|")) {
        COH_TRY(advance(p));
        COH_TRY(coh_jinja_parse_filter(p, *out, out));
    }
    return parse_own_body(p, end, block);
}

static coh_status parse_set(parser *p, node **out)
{
    node *set;
    int is_assign;
    COH_TRY(make(p, COH_JINJA_N_SET, p->now.line, &set));
    *out = set;
    COH_TRY(advance(p));
    COH_TRY(parse_target(p, 0, &set->first));
    COH_TRY(take(p, "=", &is_assign));
    return is_assign ? coh_jinja_parse_tuple(p, (tuple_form){ .has_choice = 1 }, &set->second)
                     : parse_captured(p, 0, "endset", &set->second);
}

static coh_status parse_filter_block(parser *p, node **out)
{
    COH_TRY(make(p, COH_JINJA_N_PRINT, p->now.line, out));
    (*out)->op = 1;
    COH_TRY(advance(p));
    return parse_captured(p, 1, "endfilter", &(*out)->first);
}

static coh_status parse_parameters(parser *p, node *macro)
{
    node *parameter, *name, **end = &macro->first;
    int has_default, had_default = 0;
    COH_TRY(expect(p, "("));
    while (!is_at(p, ")")) {
        if (end != &macro->first)
            COH_TRY(expect(p, ","));
        COH_TRY(coh_jinja_parse_name(p, &name));
        COH_TRY(check_target(p, name, 0));
        COH_TRY(make(p, COH_JINJA_N_PARAMETER, name->line, &parameter));
        parameter->index = name->index;
        parameter->value = name->value;
        COH_TRY(take(p, "=", &has_default));
        if (has_default)
            COH_TRY(coh_jinja_parse_expression(p, 1, &parameter->first));
        else if (had_default)
            return REFUSE(p, "a parameter without a default follows one with a default");
        if (coh_jinja_is(&name->value, "caller"))
            return REFUSE(p, "the parameter \"caller\" of a macro is not known here");
        had_default |= has_default;
        *end = parameter;
        end = &parameter->next;
    }
    return advance(p);
}

static coh_status parse_macro(parser *p, node **out)
{
    node *macro, *name;
    COH_TRY(make(p, COH_JINJA_N_MACRO, p->now.line, &macro));
    *out = macro;
    COH_TRY(advance(p));
    COH_TRY(coh_jinja_parse_name(p, &name));
    macro->index = name->index;
    macro->value = name->value;
    COH_TRY(parse_parameters(p, macro));
    return parse_own_body(p, "endmacro", macro);
}

/* Skips a block that is not known here. */
static coh_status parse_call_block(parser *p, node **out)
{
    node *block, *call;
    COH_TRY(make(p, COH_JINJA_N_PRINT, p->now.line, out));
    COH_TRY(make_unknown(p, "the statement \"call\"", &(*out)->first));
    COH_TRY(make(p, COH_JINJA_N_MACRO, p->now.line, &block));
    COH_TRY(advance(p));
    if (is_at(p, "("))
        COH_TRY(parse_parameters(p, block));
    COH_TRY(coh_jinja_parse_expression(p, 1, &call));
    return parse_own_body(p, "endcall", block);
}

static coh_status parse_generation(parser *p, node **out)
{
    COH_TRY(make(p, COH_JINJA_N_GENERATION, p->now.line, out));
    COH_TRY(advance(p));
    p->program->marks_answers = 1;
    return parse_own_body(p, "endgeneration", *out);
}

static coh_status parse_jump(parser *p, node **out)
{
    if (p->loops == 0)
        return REFUSE(p, "\"%.*s\" outside of a loop", (int)p->now.bytes, p->now.begin);
    COH_TRY(make(p, COH_JINJA_N_JUMP, p->now.line, out));
    (*out)->op = is_at(p, "break") ? COH_JINJA_BREAK : COH_JINJA_CONTINUE;
    return advance(p);
}

static coh_status parse_statement(parser *p, node **out)
{
    static const struct {
        const char *word;
        coh_status (*parse)(parser *p, node **out);
    } statements[] = {
        { "if", parse_if },
        { "for", parse_for },
        { "set", parse_set },
        { "macro", parse_macro },
        { "call", parse_call_block },
        { "filter", parse_filter_block },
        { "generation", parse_generation },
        { "break", parse_jump },
        { "continue", parse_jump },
    };
    if (p->now.kind != COH_JINJA_T_NAME)
        return unexpected(p, "a statement");
    for (size_t i = 0; i < sizeof(statements) / sizeof(statements[0]); i++)
        if (is_at(p, statements[i].word))
            return statements[i].parse(p, out);
    return REFUSE(p, "the statement \"%.*s\" is not known here", (int)p->now.bytes, p->now.begin);
}

static int at_any(const parser *p, const char *const *words)
{
    for (; *words; words++)
        if (is_at(p, *words))
            return 1;
    return 0;
}

static coh_status parse_print(parser *p, node **out)
{
    COH_TRY(make(p, COH_JINJA_N_PRINT, p->now.line, out));
    COH_TRY(advance(p));
    COH_TRY(coh_jinja_parse_tuple(p, (tuple_form){ .has_choice = 1 }, &(*out)->first));
    return p->now.kind == COH_JINJA_T_PRINT_END ? advance(p) : unexpected(p, "\"}}\"");
}

static coh_status parse_data(parser *p, node **out)
{
    COH_TRY(make(p, COH_JINJA_N_TEXT, p->now.line, out));
    (*out)->value = token_text(&p->now);
    return advance(p);
}

/* Reads statements into the list of `of`, up to one of `ends` or, without them, the end. */
static coh_status parse_statements(parser *p, const char *const *ends, node *of)
{
    node *statement, **end = &of->list;
    COH_TRY(enter(p));
    while (p->now.kind != COH_JINJA_T_END) {
        if (p->now.kind == COH_JINJA_T_DATA) {
            COH_TRY(parse_data(p, &statement));
        } else if (p->now.kind == COH_JINJA_T_PRINT_BEGIN) {
            COH_TRY(parse_print(p, &statement));
        } else {
            COH_TRY(advance(p));
            if (ends && at_any(p, ends))
                break;
            COH_TRY(parse_statement(p, &statement));
            COH_TRY(expect_code_end(p));
        }
        *end = statement;
        end = &statement->next;
    }
    p->depth--;
    if (ends && p->now.kind == COH_JINJA_T_END)
        return coh_jinja_refuse(p->program->where, of->line,
                                "the template ends before \"%s\" of what begins here", ends[0]);
    return COH_OK;
}

coh_status coh_jinja_parse(coh_jinja *program, size_t text_bytes)
{
    parser p = { .program = program };
    coh_jinja_lexer_init(&p.lexer, program->where, program->text, text_bytes);
    p.now.line = 1;
    COH_TRY(advance(&p));
    COH_TRY(advance(&p));
    COH_TRY(make(&p, COH_JINJA_N_BRANCH, 1, &program->body));
    return parse_statements(&p, NULL, program->body);
}
