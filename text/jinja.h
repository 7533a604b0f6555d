/* jinja.h - runs chat templates. A chat template is a program in the template language Jinja that
 * writes a conversation out as one text; transformers runs it in apply_chat_template. This is the
 * part of the language that published templates use for messages of a role and a content.
 *
 *   {{ bos_token }}{% for m in messages %}{{ '<|' + m.role + '|>' + m.content | trim }}{% endfor %}
 *
 *   statements   if, for (with "if"), set (also a block), macro, filter, break, continue,
 *                generation
 *   values       strings, integers, booleans, none, lists, mappings, namespaces
 *   operators    + - * // % ~ == != < > <= >= in, and, or, not, if-else, a[b], a.b, a[b:c], [::-1]
 *   filters      capitalize, count, d, default, dictsort, first, int, join, last, length, list,
 *                lower, map, rejectattr, replace, selectattr, string, trim, upper
 *   tests        ==, !=, boolean, defined, eq, equalto, false, in, integer, iterable, mapping, ne,
 *                none, number, sequence, string, true, undefined
 *   methods      strip, lstrip, rstrip, split, startswith, endswith, replace, lower, upper, title,
 *                capitalize; get of a mapping
 *   functions    namespace, raise_exception, range, strftime_now
 *
 * Anything else is refused with its line: fractions, and printing or comparing lists and mappings,
 * too.
 *
 * Each byte of the result knows its origin: the template itself, or the content of a message. A
 * string's bytes keep theirs when it is cut, joined, stripped or replaced in, so that the caller
 * finds what the assistant said wherever the template put it.
 *
 * Threads: one at a time for each template. A run is bounded (steps, depth, bytes), whatever the
 * template says. */
#ifndef COH_TEXT_JINJA_H
#define COH_TEXT_JINJA_H

#include "cohobate/text.h"
#include "text/lists.h"

typedef struct coh_jinja coh_jinja;

enum {
    COH_JINJA_OWN = 0,         /* origin: the template; i + 1: the content of message i */
    COH_JINJA_ANSWER = 0x8000, /* or-ed to an origin: written inside of {% generation %} */
    COH_JINJA_MESSAGES_MAX = 0x7ffe,
};

/* A conversation, and variables that transformers sets. Tools and documents are none. strftime_now
 * is undefined for a template that asks, and gives 26 July 2024 if it is called: a run depends on
 * no clock. */
typedef struct coh_jinja_input {
    const coh_chat_turn *messages;
    size_t message_count;
    int add_generation_prompt;
    coh_slice bos_token, eos_token; /* bytes NULL: undefined */
} coh_jinja_input;

/* A text and the origin of each byte; zero before the first use. Release with
 * coh_jinja_text_free. */
typedef struct coh_jinja_text {
    uint8_t *bytes;
    uint16_t *origins;
    size_t count, capacity;
} coh_jinja_text;

/* Parses a template. `where` begins messages of what it refuses: "WHERE:LINE: ...".
 * Fails: COH_ERR_CORRUPT (a syntax error, a statement that is not known here), COH_ERR_MEMORY. */
coh_status coh_jinja_open(const char *where, const char *text, coh_jinja **out_template);
/* Accepts NULL. */
void coh_jinja_close(coh_jinja *template_program);
/* Has it a block {% generation %}? */
int coh_jinja_marks_answers(const coh_jinja *template_program);

/* Runs the template; *out is overwritten, its memory used again. A filter, test or method that is
 * not known here is refused only when it is reached: most templates have some for tools.
 * Fails: COH_ERR_CORRUPT (the template raises an exception, whose text is in the message; a member
 * of an undefined variable, a value of the wrong type, a run that is too long), COH_ERR_MEMORY.
 * Messages end with the place: "... (WHERE:LINE)". */
coh_status coh_jinja_render(coh_jinja *template_program, const coh_jinja_input *input,
                            coh_jinja_text *out);
void coh_jinja_text_free(coh_jinja_text *text);

#endif
