/* Opens, runs and closes templates: the implementation of jinja.h. The parts, in the order of their
 * work: jinja_tokens.c, jinja_parse.c and jinja_expressions.c make the tree; jinja_run.c evaluates
 * it with jinja_builtins.c; jinja_values.c and jinja_strings.c are below all of them. */
#include "base/utf8.h"
#include "text/jinja_tree.h"

typedef coh_jinja_value value;
typedef coh_jinja_run runner;

/* ---- names ---- */

static size_t hash_of(const char *name, size_t bytes)
{
    return bytes ? (bytes * 31 + (uint8_t)name[0] * 7 + (uint8_t)name[bytes - 1]) %
                       COH_JINJA_NAME_LISTS
                 : 0;
}

coh_status coh_jinja_name(coh_jinja *program, const char *name, size_t bytes, int32_t *out_index)
{
    int32_t *first = &program->first[hash_of(name, bytes)];
    for (*out_index = *first; *out_index >= 0; *out_index = program->following[*out_index]) {
        const value *at = &program->names[*out_index];
        if (at->count == bytes && memcmp(at->bytes, name, bytes) == 0)
            return COH_OK;
    }
    const size_t count = program->name_count;
    if (count == COH_JINJA_NAMES_MAX)
        return coh_fail(COH_ERR_CORRUPT, "%s: more than %d names of variables", program->where,
                        COH_JINJA_NAMES_MAX);
    COH_TRY(COH_GROW(&program->names, &program->name_capacity, count + 1));
    COH_TRY(COH_GROW(&program->following, &program->following_capacity, count + 1));
    program->names[count] = coh_jinja_bytes(name, bytes, COH_JINJA_OWN);
    program->following[count] = *first;
    *out_index = *first = (int32_t)count;
    program->name_count++;
    return COH_OK;
}

/* The first names are those of variables that every template has. */
enum { LOOP = COH_JINJA_NAME_OF_LOOP, MESSAGES, ASKS, TOOLS, DOCUMENTS, BEGIN, END, GIVEN_COUNT };

static coh_status name_given(coh_jinja *program)
{
    static const char *const names[GIVEN_COUNT] = {
        [LOOP] = "loop",     [MESSAGES] = "messages",   [ASKS] = "add_generation_prompt",
        [TOOLS] = "tools",   [DOCUMENTS] = "documents", [BEGIN] = "bos_token",
        [END] = "eos_token",
    };
    int32_t index;
    for (int i = 0; i < GIVEN_COUNT; i++)
        COH_TRY(coh_jinja_name(program, names[i], strlen(names[i]), &index));
    return COH_OK;
}

/* ---- open and close ---- */

/* Copies the text with line ends as Jinja has them, and without the last one. */
static coh_status copy_text(coh_jinja *program, const char *text, size_t *out_bytes)
{
    const size_t bytes = strlen(text);
    char *copy;
    size_t count = 0;
    COH_TRY(coh_alloc(bytes + 1, 1, (void **)&copy));
    program->text = copy;
    for (size_t i = 0; i < bytes; i++) {
        const int is_return = text[i] == '\r';
        copy[count++] = (char)(is_return ? '\n' : text[i]);
        i += is_return && text[i + 1] == '\n';
    }
    count -= count > 0 && copy[count - 1] == '\n';
    copy[count] = '\0';
    *out_bytes = count;
    return COH_OK;
}

/* Gives the functions that every template may call their names. One has a result that would not be
 * the same every day: it is undefined, and can be called all the same. */
static coh_status set_functions(coh_jinja *program)
{
    COH_TRY(COH_ALLOC(program->name_count, &program->variables));
    for (size_t i = 0; i < program->name_count; i++) {
        const value *name = &program->names[i];
        const int index = coh_jinja_find_builtin(COH_JINJA_GLOBAL, NULL, name);
        value *v = &program->variables[i];
        if (index < 0)
            continue;
        *v = coh_jinja_undefined(name);
        v->index = (uint32_t)index;
        v->is_clock = coh_jinja_is(name, "strftime_now");
        if (!v->is_clock)
            v->kind = COH_JINJA_FUNCTION;
    }
    return COH_OK;
}

static coh_status open_text(coh_jinja *program, const char *where, const char *text)
{
    size_t bytes;
    memset(program->first, 0xff, sizeof(program->first));
    COH_TRY(coh_alloc_text(where, &program->where));
    COH_TRY(copy_text(program, text, &bytes));
    const size_t valid = coh_utf8_stretch((const uint8_t *)program->text, bytes);
    if (valid < bytes)
        return coh_fail(COH_ERR_CORRUPT, "%s: byte %zu is not UTF-8", program->where, valid);
    COH_TRY(name_given(program));
    COH_TRY(coh_jinja_parse(program, bytes));
    return set_functions(program);
}

coh_status coh_jinja_open(const char *where, const char *text, coh_jinja **out_template)
{
    *out_template = NULL;
    coh_jinja *program;
    COH_TRY(COH_ALLOC(1, &program));
    const coh_status status = open_text(program, where, text);
    if (status == COH_OK)
        *out_template = program;
    else
        coh_jinja_close(program);
    return status;
}

void coh_jinja_close(coh_jinja *program)
{
    if (!program)
        return;
    coh_jinja_arena_fini(&program->arena);
    coh_jinja_arena_fini(&program->run.arena);
    coh_free(program->run.variables);
    coh_free(program->variables);
    coh_free(program->names);
    coh_free(program->following);
    coh_free(program->text);
    coh_free(program->where);
    coh_free(program);
}

int coh_jinja_marks_answers(const coh_jinja *program)
{
    return program->marks_answers;
}

/* ---- render ---- */

static coh_status make_messages(runner *run, const coh_jinja_input *input, value *out)
{
    static const char *const roles[] = { "system", "user", "assistant" };
    const value role_key = coh_jinja_text_value("role"), key = coh_jinja_text_value("content");
    COH_TRY(coh_jinja_list_make(run, COH_JINJA_LIST, input->message_count, out));
    for (size_t i = 0; i < input->message_count; i++) {
        const coh_chat_turn *turn = &input->messages[i];
        const value role = coh_jinja_text_value(roles[turn->role]);
        const value content = coh_jinja_bytes(turn->text_bytes ? turn->text : "", turn->text_bytes,
                                              (uint16_t)(i + 1));
        value *message = &out->list->items[i];
        COH_TRY(coh_jinja_dict_make(run, COH_JINJA_DICT, 2, message));
        COH_TRY(coh_jinja_dict_set(run, message->dict, &role_key, &role));
        COH_TRY(coh_jinja_dict_set(run, message->dict, &key, &content));
    }
    return COH_OK;
}

static coh_status give_all(const coh_jinja_input *input, runner *run)
{
    const coh_slice begin = input->bos_token, end = input->eos_token;
    value *variables = run->variables;
    variables[ASKS] = coh_jinja_bool(input->add_generation_prompt);
    variables[TOOLS] = variables[DOCUMENTS] = coh_jinja_none();
    if (begin.bytes)
        variables[BEGIN] = coh_jinja_bytes(begin.bytes, begin.count, COH_JINJA_OWN);
    if (end.bytes)
        variables[END] = coh_jinja_bytes(end.bytes, end.count, COH_JINJA_OWN);
    return make_messages(run, input, &variables[MESSAGES]);
}

coh_status coh_jinja_render(coh_jinja *program, const coh_jinja_input *input, coh_jinja_text *out)
{
    runner *run = &program->run;
    value *variables = run->variables;
    out->count = 0;
    if (!variables)
        COH_TRY(COH_ALLOC(program->name_count, &variables));
    memcpy(variables, program->variables, program->name_count * sizeof(*variables));
    coh_jinja_arena_fini(&run->arena);
    *run = (runner){ .program = program,
                     .where = program->where,
                     .line = 1,
                     .steps_max = COH_JINJA_STEPS_MAX +
                                  (uint64_t)input->message_count * COH_JINJA_MESSAGE_STEPS,
                     .variables = variables,
                     .out = out };
    if (input->message_count > COH_JINJA_MESSAGES_MAX)
        return coh_jinja_fail(run, "a conversation of more than %d messages",
                              COH_JINJA_MESSAGES_MAX);
    COH_TRY(give_all(input, run));
    return coh_jinja_run_program(run);
}

void coh_jinja_text_free(coh_jinja_text *text)
{
    coh_free(text->bytes);
    coh_free(text->origins);
    *text = (coh_jinja_text){ 0 };
}
