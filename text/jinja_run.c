/* Runs a template's tree: evaluates expressions and carries out statements. The one idea: what a
 * macro or a block of {% set %} writes goes to the end of the output, as all text does, and is then
 * cut off as a string, so that it keeps the origins of its bytes. */
#include "text/jinja_tree.h"

typedef coh_jinja_value value;
typedef coh_jinja_node node;
typedef coh_jinja_run runner;
typedef coh_jinja_scope scope;
typedef coh_jinja_arguments arguments;

static coh_status eval(runner *run, const node *n, value *out);
static coh_status run_all(runner *run, const node *first);
static coh_status run_block(runner *run, const node *first);

/* ---- variables ---- */

/* Begins a block with variables of its own. */
static coh_status push_scope(runner *run, scope *parent)
{
    void *memory;
    COH_TRY(coh_jinja_take(run, 1, sizeof(scope), &memory));
    run->scope = memory;
    *run->scope = (scope){ .parent = parent };
    return COH_OK;
}

static const value *find_variable(const runner *run, uint32_t name)
{
    for (const scope *s = run->scope; s; s = s->parent)
        for (size_t i = 0; i < s->count; i++)
            if (s->names[i] == name)
                return &s->values[i];
    return run->variables[name].kind == COH_JINJA_MISSING ? NULL : &run->variables[name];
}

static coh_status grow_scope(runner *run, scope *s)
{
    const size_t capacity = s->capacity ? 2 * s->capacity : 8;
    void *names, *values;
    COH_TRY(coh_jinja_take(run, capacity, sizeof(*s->names), &names));
    COH_TRY(coh_jinja_take(run, capacity, sizeof(*s->values), &values));
    if (s->count) {
        memcpy(names, s->names, s->count * sizeof(*s->names));
        memcpy(values, s->values, s->count * sizeof(*s->values));
    }
    s->names = names;
    s->values = values;
    s->capacity = capacity;
    return COH_OK;
}

/* Sets a variable of the innermost block. */
static coh_status set_variable(runner *run, uint32_t name, const value *v)
{
    scope *s = run->scope;
    if (!s) {
        run->variables[name] = *v;
        return COH_OK;
    }
    for (size_t i = 0; i < s->count; i++) {
        if (s->names[i] == name) {
            s->values[i] = *v;
            return COH_OK;
        }
    }
    if (s->count == s->capacity)
        COH_TRY(grow_scope(run, s));
    s->names[s->count] = name;
    s->values[s->count++] = *v;
    return COH_OK;
}

static coh_status set_member(runner *run, const node *target, const value *v)
{
    const value *space = find_variable(run, (uint32_t)target->index);
    if (!space || space->kind != COH_JINJA_NAMESPACE)
        return coh_jinja_fail(run, "\"%.*s\" of something that is not a namespace is set",
                              COH_JINJA_SHOWN(&target->value));
    return coh_jinja_dict_set(run, space->dict, &target->value, v);
}

static coh_status assign(runner *run, const node *target, const value *v)
{
    if (target->kind == COH_JINJA_N_NAME)
        return set_variable(run, (uint32_t)target->index, v);
    if (target->kind == COH_JINJA_N_MEMBER)
        return set_member(run, target, v);
    coh_jinja_list list;
    COH_TRY(coh_jinja_items(run, v, &list));
    if (list.count != target->count)
        return coh_jinja_fail(run, "%u variables are set to %zu values", target->count, list.count);
    const node *item = target->list;
    for (size_t i = 0; i < list.count; i++, item = item->next)
        COH_TRY(assign(run, item, &list.items[i]));
    return COH_OK;
}

/* ---- calls ---- */

static coh_status eval_arguments(runner *run, const node *n, arguments *out)
{
    void *values, *names;
    *out = (arguments){ 0 };
    if (n->count == 0)
        return COH_OK;
    COH_TRY(coh_jinja_take(run, n->count, sizeof(*out->values), &values));
    COH_TRY(coh_jinja_take(run, n->count, sizeof(*out->names), &names));
    *out = (arguments){ values, names, n->count };
    size_t i = 0;
    for (const node *at = n->list; at; at = at->next, i++) {
        const int has_name = at->kind == COH_JINJA_N_KEYWORD;
        out->names[i] = has_name ? &at->value : NULL;
        COH_TRY(eval(run, has_name ? at->first : at, &out->values[i]));
    }
    return COH_OK;
}

/* Counts the arguments for parameter number `at`; *out is the last one. */
static size_t find_argument(const arguments *all, const node *parameter, size_t at,
                            const value **out)
{
    const value *own = &parameter->value;
    size_t found = 0;
    for (size_t i = 0; i < all->count; i++) {
        const value *name = all->names[i];
        if (name ? name->count == own->count && memcmp(name->bytes, own->bytes, own->count) == 0
                 : at == i) {
            *out = &all->values[i];
            found++;
        }
    }
    return found;
}

/* Sets the parameters of a macro as variables of the block just begun. */
static coh_status bind_arguments(runner *run, const node *macro, const arguments *all)
{
    size_t at = 0, used = 0;
    for (const node *parameter = macro->first; parameter; parameter = parameter->next, at++) {
        value v = coh_jinja_undefined(&parameter->value);
        const value *given = &v;
        const size_t found = find_argument(all, parameter, at, &given);
        if (found > 1)
            return coh_jinja_fail(run, "the macro \"%.*s\" gets an argument twice",
                                  COH_JINJA_SHOWN(&macro->value));
        if (!found && parameter->first)
            COH_TRY(eval(run, parameter->first, &v));
        COH_TRY(set_variable(run, (uint32_t)parameter->index, given));
        used += found;
    }
    return used == all->count
               ? COH_OK
               : coh_jinja_fail(run, "the macro \"%.*s\" gets an argument that it does not have",
                                COH_JINJA_SHOWN(&macro->value));
}

static coh_status call_macro(runner *run, const coh_jinja_macro *macro, const arguments *all,
                             value *out)
{
    scope *caller = run->scope;
    const size_t begin = run->out->count;
    COH_TRY(push_scope(run, macro->scope));
    COH_TRY(bind_arguments(run, macro->node, all));
    COH_TRY(run_all(run, macro->node->list));
    run->scope = caller;
    return coh_jinja_cut(run, begin, out);
}

static coh_status call(runner *run, const value *callee, const arguments *all, value *out)
{
    if (callee->kind == COH_JINJA_METHOD)
        return coh_jinja_apply(run, (int)callee->index, callee->receiver, all, out);
    if (callee->kind == COH_JINJA_FUNCTION || callee->is_clock)
        return coh_jinja_apply(run, (int)callee->index, NULL, all, out);
    if (callee->kind == COH_JINJA_MACRO)
        return call_macro(run, callee->macro, all, out);
    if (callee->kind != COH_JINJA_UNDEFINED)
        return coh_jinja_fail(run, "a %s cannot be called", coh_jinja_type(callee));
    return coh_jinja_fail(run, "\"%.*s\" is undefined, so it cannot be called",
                          COH_JINJA_SHOWN(callee));
}

static coh_status eval_call(runner *run, const node *n, value *out)
{
    value callee;
    arguments all;
    COH_TRY(eval(run, n->first, &callee));
    COH_TRY(eval_arguments(run, n, &all));
    run->line = n->line;
    return call(run, &callee, &all, out);
}

static coh_status eval_applied(runner *run, const node *n, value *out)
{
    value in;
    arguments all;
    COH_TRY(eval(run, n->first, &in));
    COH_TRY(eval_arguments(run, n, &all));
    run->line = n->line;
    if (n->index < 0)
        return coh_jinja_fail(run, "the %s \"%.*s\" is not known here",
                              n->kind == COH_JINJA_N_FILTER ? "filter" : "test",
                              COH_JINJA_SHOWN(&n->value));
    return coh_jinja_apply(run, n->index, &in, &all, out);
}

/* ---- expressions ---- */

static coh_status eval_name(const runner *run, const node *n, value *out)
{
    const value *found = find_variable(run, (uint32_t)n->index);
    *out = found ? *found : coh_jinja_undefined(&n->value);
    return COH_OK;
}

static coh_status eval_list(runner *run, const node *n, value *out)
{
    COH_TRY(coh_jinja_list_make(run, COH_JINJA_LIST, n->count, out));
    size_t i = 0;
    for (const node *item = n->list; item; item = item->next)
        COH_TRY(eval(run, item, &out->list->items[i++]));
    return COH_OK;
}

static coh_status eval_dict(runner *run, const node *n, value *out)
{
    COH_TRY(coh_jinja_dict_make(run, COH_JINJA_DICT, n->count / 2, out));
    for (const node *key = n->list; key; key = key->next->next) {
        value k, v;
        COH_TRY(eval(run, key, &k));
        COH_TRY(eval(run, key->next, &v));
        COH_TRY(coh_jinja_dict_set(run, out->dict, &k, &v));
    }
    return COH_OK;
}

/* first op second, or first [second]. */
static coh_status eval_pair(runner *run, const node *n, value *out)
{
    value left, right;
    int is = 0;
    COH_TRY(eval(run, n->first, &left));
    COH_TRY(eval(run, n->second, &right));
    run->line = n->line;
    if (n->kind == COH_JINJA_N_BINARY)
        return coh_jinja_binary(run, n->op, &left, &right, out);
    if (n->kind == COH_JINJA_N_ITEM)
        return n->op ? coh_jinja_attribute(run, &left, &right, 0, out)
                     : coh_jinja_item(run, &left, &right, out);
    COH_TRY(n->op == COH_JINJA_OP('i', 'n') ? coh_jinja_contains(run, &right, &left, &is)
                                            : coh_jinja_compare(run, n->op, &left, &right, &is));
    *out = coh_jinja_bool(is);
    return COH_OK;
}

static coh_status eval_slice(runner *run, const node *n, value *out)
{
    value of, ends[3];
    int i = 0;
    COH_TRY(eval(run, n->first, &of));
    for (const node *end = n->list; end; end = end->next)
        COH_TRY(eval(run, end, &ends[i++]));
    run->line = n->line;
    return coh_jinja_slice(run, &of, ends, out);
}

/* Adds up a list. Strings in a row are joined once: if is_joining, those so far lie at the end of
 * the output. */
static coh_status eval_sum(runner *run, const node *n, value *sum)
{
    const size_t begin = run->out->count;
    int is_joining = 0;
    COH_TRY(eval(run, n->list, sum));
    for (const node *item = n->list->next; item; item = item->next) {
        value right, left = *sum;
        COH_TRY(eval(run, item, &right));
        run->line = item->line;
        if (left.kind == COH_JINJA_STRING && right.kind == COH_JINJA_STRING) {
            if (!is_joining)
                COH_TRY(coh_jinja_put(run, &left));
            COH_TRY(coh_jinja_put(run, &right));
            is_joining = 1;
            continue;
        }
        if (is_joining)
            COH_TRY(coh_jinja_cut(run, begin, &left));
        is_joining = 0;
        COH_TRY(coh_jinja_binary(run, '+', &left, &right, sum));
    }
    return is_joining ? coh_jinja_cut(run, begin, sum) : COH_OK;
}

static coh_status eval_concat(runner *run, const node *n, value *out)
{
    const size_t begin = run->out->count;
    for (const node *part = n->list; part; part = part->next) {
        value v;
        COH_TRY(eval(run, part, &v));
        run->line = n->line;
        COH_TRY(coh_jinja_put_str(run, &v));
    }
    return coh_jinja_cut(run, begin, out);
}

/* "and" and "or" give one of their operands. */
static coh_status eval_junction(runner *run, const node *n, value *out)
{
    COH_TRY(eval(run, n->first, out));
    if (coh_jinja_is_true(out) == (n->kind == COH_JINJA_N_AND))
        return eval(run, n->second, out);
    return COH_OK;
}

static coh_status eval_not(runner *run, const node *n, value *out)
{
    value v;
    COH_TRY(eval(run, n->first, &v));
    *out = coh_jinja_bool(!coh_jinja_is_true(&v));
    return COH_OK;
}

static coh_status eval_choice(runner *run, const node *n, value *out)
{
    value test;
    COH_TRY(eval(run, n->first, &test));
    if (coh_jinja_is_true(&test))
        return eval(run, n->second, out);
    if (n->third)
        return eval(run, n->third, out);
    const value name = coh_jinja_text_value("an if without else");
    *out = coh_jinja_undefined(&name);
    return COH_OK;
}

/* What the statements write, as a string. */
static coh_status eval_capture(runner *run, const node *n, value *out)
{
    const size_t begin = run->out->count;
    COH_TRY(run_block(run, n->list));
    return coh_jinja_cut(run, begin, out);
}

static coh_status eval_unknown(runner *run, const node *n, value *out)
{
    (void)out;
    run->line = n->line;
    return coh_jinja_fail(run, "%.*s is not known here", COH_JINJA_SHOWN(&n->value));
}

static coh_status eval_kind(runner *run, const node *n, value *out)
{
    static coh_status (*const evals[])(runner *, const node *, value *) = {
        [COH_JINJA_N_LIST] = eval_list,       [COH_JINJA_N_TUPLE] = eval_list,
        [COH_JINJA_N_DICT] = eval_dict,       [COH_JINJA_N_ITEM] = eval_pair,
        [COH_JINJA_N_SLICE] = eval_slice,     [COH_JINJA_N_CALL] = eval_call,
        [COH_JINJA_N_FILTER] = eval_applied,  [COH_JINJA_N_TEST] = eval_applied,
        [COH_JINJA_N_NOT] = eval_not,         [COH_JINJA_N_BINARY] = eval_pair,
        [COH_JINJA_N_SUM] = eval_sum,         [COH_JINJA_N_CONCAT] = eval_concat,
        [COH_JINJA_N_COMPARE] = eval_pair,    [COH_JINJA_N_AND] = eval_junction,
        [COH_JINJA_N_OR] = eval_junction,     [COH_JINJA_N_CHOICE] = eval_choice,
        [COH_JINJA_N_CAPTURE] = eval_capture, [COH_JINJA_N_UNKNOWN] = eval_unknown,
    };
    return evals[n->kind](run, n, out);
}

static coh_status eval(runner *run, const node *n, value *out)
{
    if (n->kind == COH_JINJA_N_CONSTANT) {
        *out = n->value;
        return COH_OK;
    }
    if (n->kind == COH_JINJA_N_NAME)
        return eval_name(run, n, out);
    COH_TRY(coh_jinja_enter(run));
    COH_TRY(eval_kind(run, n, out));
    run->depth--;
    return COH_OK;
}

/* ---- statements ---- */

/* Marks what was written since `begin`, if it is in {% generation %}. */
static void mark(const runner *run, size_t begin)
{
    for (size_t i = begin; run->answering && i < run->out->count; i++)
        run->out->origins[i] |= run->answering;
}

static coh_status run_text(runner *run, const node *n)
{
    const size_t begin = run->out->count;
    COH_TRY(coh_jinja_put(run, &n->value));
    mark(run, begin);
    return COH_OK;
}

static coh_status run_print(runner *run, const node *n)
{
    const size_t begin = run->out->count;
    value v;
    COH_TRY(eval(run, n->first, &v));
    run->line = n->line;
    if (n->op && v.kind != COH_JINJA_STRING)
        return coh_jinja_fail(run, "a filter block writes a %s", coh_jinja_type(&v));
    COH_TRY(coh_jinja_put_str(run, &v));
    mark(run, begin);
    return COH_OK;
}

static coh_status run_if(runner *run, const node *n)
{
    for (const node *branch = n->list; branch; branch = branch->next) {
        value test = coh_jinja_bool(1);
        if (branch->first)
            COH_TRY(eval(run, branch->first, &test));
        if (coh_jinja_is_true(&test))
            return run_all(run, branch->list);
    }
    return COH_OK;
}

/* Statements with variables of their own. */
static coh_status run_block(runner *run, const node *first)
{
    scope *outer = run->scope;
    COH_TRY(push_scope(run, outer));
    COH_TRY(run_all(run, first));
    run->scope = outer;
    return COH_OK;
}

/* Keeps the items for which the loop's filter is true. */
static coh_status filter_items(runner *run, const node *n, coh_jinja_list *list)
{
    value kept, test;
    size_t count = 0;
    COH_TRY(coh_jinja_list_make(run, COH_JINJA_LIST, list->count, &kept));
    for (size_t i = 0; i < list->count; i++) {
        run->scope->count = 0;
        COH_TRY(assign(run, n->first, &list->items[i]));
        COH_TRY(eval(run, n->third, &test));
        if (coh_jinja_is_true(&test))
            kept.list->items[count++] = list->items[i];
    }
    *list = (coh_jinja_list){ count, kept.list->items };
    return COH_OK;
}

static coh_status run_iterations(runner *run, const node *n, coh_jinja_loop *loop)
{
    const value self = { .kind = COH_JINJA_LOOP, .loop = loop };
    for (; loop->index < loop->list.count; loop->index++) {
        COH_TRY(coh_jinja_spend(run, 1));
        run->scope->count = 0;
        run->line = n->line;
        COH_TRY(set_variable(run, COH_JINJA_NAME_OF_LOOP, &self));
        COH_TRY(assign(run, n->first, &loop->list.items[loop->index]));
        COH_TRY(run_all(run, n->list));
        const coh_jinja_flow flow = run->flow;
        run->flow = COH_JINJA_GO_ON;
        if (flow == COH_JINJA_BREAK)
            break;
    }
    return COH_OK;
}

static coh_status run_for(runner *run, const node *n)
{
    scope *outer = run->scope;
    value over;
    void *memory;
    COH_TRY(eval(run, n->second, &over));
    run->line = n->line;
    COH_TRY(coh_jinja_take(run, 1, sizeof(coh_jinja_loop), &memory));
    coh_jinja_loop *loop = memory;
    loop->index = 0;
    COH_TRY(coh_jinja_items(run, &over, &loop->list));
    COH_TRY(push_scope(run, outer));
    if (n->third)
        COH_TRY(filter_items(run, n, &loop->list));
    COH_TRY(run_iterations(run, n, loop));
    run->scope = outer;
    return COH_OK;
}

static coh_status run_jump(runner *run, const node *n)
{
    run->flow = (coh_jinja_flow)n->op;
    return COH_OK;
}

static coh_status run_set(runner *run, const node *n)
{
    value v;
    COH_TRY(eval(run, n->second, &v));
    run->line = n->line;
    return assign(run, n->first, &v);
}

static coh_status run_macro(runner *run, const node *n)
{
    void *memory;
    COH_TRY(coh_jinja_take(run, 1, sizeof(coh_jinja_macro), &memory));
    *(coh_jinja_macro *)memory = (coh_jinja_macro){ n, run->scope };
    const value macro = { .kind = COH_JINJA_MACRO, .macro = memory };
    return set_variable(run, (uint32_t)n->index, &macro);
}

static coh_status run_generation(runner *run, const node *n)
{
    const uint16_t outer = run->answering;
    run->answering = COH_JINJA_ANSWER;
    COH_TRY(run_block(run, n->list));
    run->answering = outer;
    return COH_OK;
}

static coh_status run_statement(runner *run, const node *n)
{
    static coh_status (*const runs[])(runner *, const node *) = {
        [COH_JINJA_N_TEXT] = run_text,   [COH_JINJA_N_PRINT] = run_print,
        [COH_JINJA_N_IF] = run_if,       [COH_JINJA_N_FOR] = run_for,
        [COH_JINJA_N_JUMP] = run_jump,   [COH_JINJA_N_SET] = run_set,
        [COH_JINJA_N_MACRO] = run_macro, [COH_JINJA_N_GENERATION] = run_generation,
    };
    return runs[n->kind](run, n);
}

/* Ends early if a statement leaves a loop. */
static coh_status run_all(runner *run, const node *first)
{
    COH_TRY(coh_jinja_enter(run));
    for (const node *n = first; n && run->flow == COH_JINJA_GO_ON; n = n->next) {
        run->line = n->line;
        COH_TRY(coh_jinja_spend(run, 1));
        COH_TRY(run_statement(run, n));
    }
    run->depth--;
    return COH_OK;
}

coh_status coh_jinja_run_program(coh_jinja_run *run)
{
    return run_all(run, run->program->body->list);
}
