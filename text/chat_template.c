/* Writes conversations with a chat template. The one idea: the text is cut at special tokens,
 * between which it is encoded as the tokenizer would encode the whole; an id counts if its bytes
 * overlap an answer. Next: jinja.h runs templates; chat.c is the caller. */
#include "text/chat_template.h"

#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_text.h"
#include "text/jinja.h"
#include "text/json_fields.h"

#define TEMPLATE_BYTES_MAX (4u << 20)

/* Part of a text; an answer's, of which message. */
typedef struct range {
    size_t begin, end;
    size_t message;
} range;

typedef struct range_list {
    range *ranges;
    size_t count, capacity;
} range_list;

struct coh_chat_template {
    coh_tokenizer *tokenizer;
    coh_jinja *program;
    int32_t begin_of_text, end_of_text; /* bos_token and eos_token; -1: not defined */
    coh_added *own_tokens;              /* these two, if the tokenizer finds no tokens in texts */

    /* Learned from a question and its answer (chat_template.h). */
    coh_byte_list header, lead, tail;
    char *answer_prefix;
    int32_t end_of_turn;
    coh_id_list written; /* special tokens of the template */

    coh_jinja_text text; /* of the current conversation */
    range_list answers;
    coh_jinja_text filled; /* likewise, with a letter for each answer without a byte */
    coh_chat_turn *turns;
    size_t turn_capacity;
    coh_id_list ids, part_ids; /* of the current piece */
    size_t *id_ends;           /* in its bytes */
    size_t id_end_capacity;
};

/* ---- pieces ---- */

/* How a template writes a token. One without a spelling (of bytes) gets one. */
static coh_slice name_of(const coh_tokenizer *tokenizer, int32_t id)
{
    static const char unspelled[] = "<|endoftext|>";
    if (id < 0)
        return (coh_slice){ NULL, 0 };
    const coh_slice name = coh_token_table_at(&tokenizer->pipeline->names, id);
    return name.count > 0 ? name : (coh_slice){ unspelled, sizeof(unspelled) - 1 };
}

static int is_own(const coh_jinja_text *text, size_t at)
{
    return (text->origins[at] & ~COH_JINJA_ANSWER) == COH_JINJA_OWN;
}

/* Appends the ids of `text` as it is cut behind token `after` (-1: at the begin of a text), without
 * that token. If the tokenizer does not find its special tokens in a text (SentencePiece), `text`
 * is encoded alone. */
static coh_status encode_behind(coh_tokenizer *tokenizer, int32_t after, coh_slice text,
                                coh_id_list *ids)
{
    coh_slice spelling = { NULL, 0 };
    coh_byte_list whole = { 0 };
    const size_t first = ids->count;
    if (after >= 0)
        COH_TRY(coh_tokenizer_piece(tokenizer, after, &spelling.bytes, &spelling.count));
    if (spelling.count == 0)
        return coh_tokenizer_encode_whole(tokenizer, text, ids);
    coh_status status = coh_byte_list_add(&whole, spelling.bytes, spelling.count);
    if (status == COH_OK)
        status = coh_byte_list_add(&whole, text.bytes, text.count);
    if (status == COH_OK)
        status = coh_tokenizer_encode_whole(
            tokenizer, (coh_slice){ (const char *)whole.bytes, whole.count }, ids);
    if (status == COH_OK && ids->count > first && ids->ids[first] == after) {
        ids->count--;
        memmove(ids->ids + first, ids->ids + first + 1, (ids->count - first) * sizeof(*ids->ids));
    } else if (status == COH_OK) {
        ids->count = first;
        status = coh_tokenizer_encode_whole(tokenizer, text, ids);
    }
    coh_free(whole.bytes);
    return status;
}

static coh_status put(coh_id_list *ids, coh_byte_list *counts, const int32_t *from, size_t count,
                      int is_answer)
{
    COH_TRY(coh_id_list_add_all(ids, from, count));
    COH_TRY(COH_GROW(&counts->bytes, &counts->capacity, counts->count + count));
    if (count)
        memset(counts->bytes + counts->count, is_answer, count);
    counts->count += count;
    return COH_OK;
}

/* How many ids of the piece end before `end` of its bytes. *out_is_cut: the next one begins before
 * it. */
static coh_status count_before(coh_chat_template *t, int32_t after, coh_slice piece, size_t end,
                               size_t *out_count, int *out_is_cut)
{
    size_t count = 0;
    t->part_ids.count = 0;
    COH_TRY(encode_behind(t->tokenizer, after, (coh_slice){ piece.bytes, end }, &t->part_ids));
    while (count < t->part_ids.count && count < t->ids.count &&
           t->part_ids.ids[count] == t->ids.ids[count])
        count++;
    *out_count = count;
    *out_is_cut = count < t->part_ids.count && count < t->ids.count;
    return COH_OK;
}

/* Finds where the piece's ids end in its bytes; *out_is_known 0: their texts are not its bytes
 * (SentencePiece puts a blank before a text, normalizers change it). */
static coh_status find_ends(coh_chat_template *t, coh_slice piece, int *out_is_known)
{
    const coh_token_table *texts = &t->tokenizer->pipeline->texts;
    size_t end = 0;
    *out_is_known = 0;
    COH_TRY(COH_GROW(&t->id_ends, &t->id_end_capacity, t->ids.count));
    for (size_t i = 0; i < t->ids.count; i++) {
        const coh_slice text = coh_token_table_at(texts, t->ids.ids[i]);
        if (text.count > piece.count - end || text.count == 0 ||
            memcmp(text.bytes, piece.bytes + end, text.count) != 0)
            return COH_OK;
        t->id_ends[i] = end += text.count;
    }
    *out_is_known = end == piece.count;
    return COH_OK;
}

/* Finds which ids of the piece overlap an answer, by their ends: from *id on, where the answer
 * before it ended. */
static range overlap_by_ends(const coh_chat_template *t, range answer, size_t *id)
{
    range found;
    while (*id < t->ids.count && t->id_ends[*id] <= answer.begin)
        ++*id;
    found = (range){ .begin = *id };
    while (*id < t->ids.count && (*id == 0 ? 0 : t->id_ends[*id - 1]) < answer.end)
        ++*id;
    found.end = *id;
    *id -= *id > found.begin; /* the next answer may begin in the same token */
    return found;
}

/* Likewise, by the ids of the text before the answer and up to its end. A token across a border
 * belongs to it. */
static coh_status overlap_by_parts(coh_chat_template *t, int32_t after, coh_slice piece,
                                   range answer, range *out)
{
    int is_cut = 0;
    *out = (range){ .begin = 0, .end = t->ids.count };
    if (answer.begin > 0)
        COH_TRY(count_before(t, after, piece, answer.begin, &out->begin, &is_cut));
    if (answer.end < piece.count) {
        COH_TRY(count_before(t, after, piece, answer.end, &out->end, &is_cut));
        out->end += (size_t)is_cut;
    }
    return COH_OK;
}

/* Encodes text[at.begin, at.end), which follows token `after`. */
static coh_status encode_piece(coh_chat_template *t, int32_t after, range at, coh_id_list *ids,
                               coh_byte_list *counts)
{
    const coh_slice piece = { (const char *)t->text.bytes + at.begin, at.end - at.begin };
    const size_t first = counts->count;
    size_t id = 0;
    int has_ends;
    t->ids.count = 0;
    COH_TRY(encode_behind(t->tokenizer, after, piece, &t->ids));
    COH_TRY(put(ids, counts, t->ids.ids, t->ids.count, 0));
    COH_TRY(find_ends(t, piece, &has_ends));
    for (size_t i = 0; i < t->answers.count; i++) {
        range answer = t->answers.ranges[i], found;
        if (answer.end <= at.begin || answer.begin >= at.end)
            continue;
        answer.begin = answer.begin > at.begin ? answer.begin - at.begin : 0;
        answer.end = answer.end < at.end ? answer.end - at.begin : piece.count;
        if (has_ends)
            found = overlap_by_ends(t, answer, &id);
        else
            COH_TRY(overlap_by_parts(t, after, piece, answer, &found));
        if (found.end > found.begin)
            memset(counts->bytes + first + found.begin, 1, found.end - found.begin);
    }
    return COH_OK;
}

/* Finds the next special token from `from` on. Those of a tokenizer that finds none in texts are
 * tokens only where the template writes them. */
static coh_status find_token(const coh_chat_template *t, size_t from, coh_added_match *match)
{
    const coh_added *added = t->tokenizer->pipeline->raw_added;
    coh_added_search search = { .text = t->text.bytes, .byte_count = t->text.count, .begin = from };
    for (;;) {
        COH_TRY(coh_added_find(added ? added : t->own_tokens, &search, match));
        if (!match->is_found || added || is_own(&t->text, match->begin))
            return COH_OK;
        search.begin = match->end;
    }
}

/* Does a special token overlap an answer? White space that goes with it does not matter. */
static int is_answer(const coh_chat_template *t, const coh_added_match *match)
{
    const coh_slice name = name_of(t->tokenizer, match->id);
    size_t begin = match->begin, end;
    while (begin + name.count < match->end &&
           memcmp(t->text.bytes + begin, name.bytes, name.count) != 0)
        begin++;
    end = begin + name.count < match->end ? begin + name.count : match->end;
    for (size_t i = 0; i < t->answers.count; i++)
        if (begin < t->answers.ranges[i].end && end > t->answers.ranges[i].begin)
            return 1;
    return 0;
}

/* Encodes the whole text. */
static coh_status encode_text(coh_chat_template *t, coh_id_list *ids, coh_byte_list *counts)
{
    int32_t after = -1;
    for (size_t at = 0; at < t->text.count;) {
        coh_added_match match;
        COH_TRY(find_token(t, at, &match));
        const size_t end = match.is_found ? match.begin : t->text.count;
        if (end > at)
            COH_TRY(encode_piece(t, after, (range){ .begin = at, .end = end }, ids, counts));
        if (!match.is_found)
            break;
        COH_TRY(put(ids, counts, &match.id, 1, is_answer(t, &match)));
        after = match.id;
        at = match.end;
    }
    return COH_OK;
}

/* ---- the text ---- */

static coh_status render(coh_chat_template *t, const coh_chat_turn *messages, size_t count,
                         int add_generation_prompt, coh_jinja_text *out)
{
    const coh_jinja_input input = {
        .messages = messages,
        .message_count = count,
        .add_generation_prompt = add_generation_prompt,
        .bos_token = name_of(t->tokenizer, t->begin_of_text),
        .eos_token = name_of(t->tokenizer, t->end_of_text),
    };
    return coh_jinja_render(t->program, &input, out);
}

/* ---- answers ---- */

static coh_status add_answer(range_list *list, range answer)
{
    COH_TRY(COH_GROW(&list->ranges, &list->capacity, list->count + 1));
    list->ranges[list->count++] = answer;
    return COH_OK;
}

/* Is the byte of an assistant's content? */
static int is_said(const coh_jinja_text *text, size_t at, const coh_chat_turn *messages)
{
    const int origin = text->origins[at] & ~COH_JINJA_ANSWER;
    return origin != COH_JINJA_OWN && messages[origin - 1].role == COH_CHAT_ASSISTANT;
}

/* The begin of the answer whose content begins at `content`: behind the last header in the
 * template's text before it. */
static size_t begin_of_answer(const coh_chat_template *t, size_t content)
{
    const size_t header = t->header.count, lead = t->lead.count;
    size_t gap = content;
    while (gap > 0 && is_own(&t->text, gap - 1))
        gap--;
    for (size_t at = content; header > 0 && at >= gap + header; at--)
        if (memcmp(t->text.bytes + at - header, t->header.bytes, header) == 0)
            return at;
    if (lead > 0 && content >= gap + lead &&
        memcmp(t->text.bytes + content - lead, t->lead.bytes, lead) == 0)
        return content - lead;
    return content;
}

/* The end of the answer whose content ends at `content_end`: behind the token that ends answers, if
 * the template writes it before the next content; else behind the tail. */
static coh_status end_of_answer(const coh_chat_template *t, size_t content_end, size_t *out_end)
{
    const size_t tail = t->tail.count, room = t->text.count - content_end;
    coh_added_match match = { .end = content_end };
    size_t gap_end = content_end;
    while (gap_end < t->text.count && is_own(&t->text, gap_end))
        gap_end++;
    while (t->end_of_turn >= 0) {
        COH_TRY(find_token(t, match.end, &match));
        if (!match.is_found || match.begin >= gap_end)
            break;
        *out_end = match.end;
        if (match.id == t->end_of_turn)
            return COH_OK;
    }
    *out_end = content_end;
    if (tail > 0 && room >= tail && memcmp(t->text.bytes + content_end, t->tail.bytes, tail) == 0)
        *out_end += tail;
    return COH_OK;
}

/* The message whose content is in a part; SIZE_MAX: none's is. */
static size_t message_of(const coh_jinja_text *text, size_t begin, size_t end)
{
    while (begin < end && is_own(text, begin))
        begin++;
    return begin < end ? (size_t)(text->origins[begin] & ~COH_JINJA_ANSWER) - 1 : SIZE_MAX;
}

/* Text that the template marked. A part without a content is of the message behind the last one
 * that has some. */
static coh_status find_marked(coh_chat_template *t)
{
    const coh_jinja_text *text = &t->text;
    size_t next = 0;
    for (size_t begin = 0, end; begin < text->count; begin = end) {
        for (end = begin; end < text->count && text->origins[end] & COH_JINJA_ANSWER; end++)
            ;
        const size_t message = message_of(text, begin, end > begin ? end : begin + 1);
        if (end > begin)
            COH_TRY(add_answer(&t->answers,
                               (range){ begin, end, message != SIZE_MAX ? message : next }));
        else
            end++;
        next = message != SIZE_MAX ? message + 1 : next;
    }
    return COH_OK;
}

/* Finds what the assistant says: each stretch of a message's content, with text of the template
 * inside, header and tail. */
static coh_status find_answers(coh_chat_template *t, const coh_chat_turn *messages)
{
    const coh_jinja_text *text = &t->text;
    t->answers.count = 0;
    if (coh_jinja_marks_answers(t->program))
        return find_marked(t);
    for (size_t begin = 0, end; begin < text->count; begin = end) {
        end = begin + 1;
        if (!is_said(text, begin, messages))
            continue;
        for (size_t at = end; at < text->count; at++) {
            if (text->origins[at] == text->origins[begin])
                end = at + 1;
            else if (!is_own(text, at))
                break;
        }
        range answer = { .begin = begin_of_answer(t, begin),
                         .message = message_of(text, begin, end) };
        COH_TRY(end_of_answer(t, end, &answer.end));
        COH_TRY(add_answer(&t->answers, answer));
    }
    return COH_OK;
}

/* Copies the messages to t->turns, with a letter for each answer that has no byte in the text.
 * Returns how many those are. */
static size_t fill_empty(coh_chat_template *t, const coh_chat_turn *messages, size_t count)
{
    size_t filled = 0;
    for (size_t i = 0; i < count; i++)
        t->turns[i] = messages[i];
    for (size_t at = 0; at < t->text.count; at++)
        if (!is_own(&t->text, at))
            t->turns[(t->text.origins[at] & ~COH_JINJA_ANSWER) - 1].text = NULL; /* seen */
    for (size_t i = 0; i < count; i++) {
        const int is_empty = t->turns[i].text && messages[i].role == COH_CHAT_ASSISTANT;
        t->turns[i] = is_empty ? (coh_chat_turn){ COH_CHAT_ASSISTANT, "x", 1 } : messages[i];
        filled += (size_t)is_empty;
    }
    return filled;
}

/* Moves the answers from t->filled to t->text. Returns 0 if the texts differ in more than the
 * letters of answers. */
static int drop_letters(coh_chat_template *t, const coh_chat_turn *messages)
{
    const coh_jinja_text *filled = &t->filled, *text = &t->text;
    size_t to = 0, answer = 0;
    for (size_t at = 0; at <= filled->count; at++) {
        range *next = answer < t->answers.count ? &t->answers.ranges[answer] : NULL;
        if (next && at == next->end) {
            next->end = to;
            answer++;
            next = answer < t->answers.count ? next + 1 : NULL;
        }
        if (next && at == next->begin)
            next->begin = to;
        if (at == filled->count)
            break;
        const int origin = filled->origins[at] & ~COH_JINJA_ANSWER;
        if (origin != COH_JINJA_OWN && t->turns[origin - 1].text != messages[origin - 1].text)
            continue;
        if (to == text->count || text->bytes[to++] != filled->bytes[at])
            return 0;
    }
    return to == text->count;
}

static void swap_texts(coh_chat_template *t)
{
    const coh_jinja_text text = t->text;
    t->text = t->filled;
    t->filled = text;
}

/* Finds the answers, also those without a byte, whose end counts: the template writes the
 * conversation again with a letter in their place. */
static coh_status find_all_answers(coh_chat_template *t, const coh_chat_turn *messages,
                                   size_t count)
{
    COH_TRY(COH_GROW(&t->turns, &t->turn_capacity, count));
    if (coh_jinja_marks_answers(t->program) || fill_empty(t, messages, count) == 0)
        return find_answers(t, messages);
    if (render(t, t->turns, count, 0, &t->filled) != COH_OK) /* it looks at contents */
        return find_answers(t, messages);
    swap_texts(t);
    const coh_status status = find_answers(t, t->turns);
    swap_texts(t);
    COH_TRY(status);
    return drop_letters(t, messages) ? COH_OK : find_answers(t, messages);
}

/* ---- what a question and its answer show ---- */

/* The length of the common begin of two texts. */
static size_t common(const coh_jinja_text *a, const coh_jinja_text *b)
{
    size_t count = 0;
    while (count < a->count && count < b->count && a->bytes[count] == b->bytes[count])
        count++;
    return count;
}

typedef struct probes {
    coh_jinja_text question, prompt; /* the template's text of the answer is in t->text */
} probes;

/* Takes the header and the lead from text[gap, content), which lies between a question and its
 * answer. */
static coh_status learn_begin(coh_chat_template *t, const probes *p, size_t gap, size_t content)
{
    const coh_jinja_text *text = &t->text, *prompt = &p->prompt;
    const size_t opened = common(prompt, &p->question);
    size_t begin = content, header;
    if (common(prompt, text) == prompt->count && prompt->count >= gap && prompt->count <= content)
        begin = prompt->count;
    /* Text of the prompt alone names the assistant's turn; where a prompt adds none, the end of the
     * question does. */
    header = begin == prompt->count && opened < begin && opened > gap ? opened : gap;
    COH_TRY(coh_byte_list_add(&t->header, text->bytes + header, begin - header));
    return coh_byte_list_add(&t->lead, text->bytes + begin, content - begin);
}

static coh_status learn_end(coh_chat_template *t, size_t content_end)
{
    coh_added_match match;
    COH_TRY(find_token(t, content_end, &match));
    if (match.is_found)
        t->end_of_turn = match.id;
    const size_t end = match.is_found ? match.begin : t->text.count;
    return coh_byte_list_add(&t->tail, t->text.bytes + content_end, end - content_end);
}

static coh_status learn_written(coh_chat_template *t)
{
    coh_added_match match = { .end = 0 };
    for (;;) {
        COH_TRY(find_token(t, match.end, &match));
        if (!match.is_found)
            return COH_OK;
        if (is_own(&t->text, match.begin))
            COH_TRY(coh_id_list_add(&t->written, match.id));
    }
}

static coh_status learn_prefix(coh_chat_template *t)
{
    size_t blanks = 0;
    while (blanks < t->lead.count && t->lead.bytes[blanks] == ' ')
        blanks++;
    COH_TRY(COH_ALLOC(blanks + 1, &t->answer_prefix));
    if (blanks == t->lead.count)
        memset(t->answer_prefix, ' ', blanks);
    return COH_OK;
}

static coh_status learn_from(coh_chat_template *t, const char *where, probes *p)
{
    static const coh_chat_turn turns[] = { { COH_CHAT_USER, "Hi", 2 },
                                           { COH_CHAT_ASSISTANT, "Yes", 3 } };
    size_t question_end = 0, begin = SIZE_MAX, end = 0;
    COH_TRY(render(t, turns, 1, 0, &p->question));
    COH_TRY(render(t, turns, 1, 1, &p->prompt));
    COH_TRY(render(t, turns, 2, 0, &t->text));
    for (size_t i = 0; i < t->text.count; i++) {
        if (is_said(&t->text, i, turns)) {
            begin = begin < i ? begin : i;
            end = i + 1;
        } else if (!is_own(&t->text, i) && begin == SIZE_MAX) {
            question_end = i + 1;
        }
    }
    if (begin == SIZE_MAX)
        return coh_fail(COH_ERR_CORRUPT,
                        "%.300s: the answer to a question is not in the text that it writes",
                        where);
    COH_TRY(learn_begin(t, p, question_end, begin));
    COH_TRY(learn_end(t, end));
    COH_TRY(learn_written(t));
    return learn_prefix(t);
}

static coh_status learn(coh_chat_template *t, const char *where)
{
    probes p = { 0 };
    const coh_status status = learn_from(t, where, &p);
    coh_jinja_text_free(&p.question);
    coh_jinja_text_free(&p.prompt);
    return status;
}

/* ---- the file ---- */

/* Of several templates by name, as an object or a list, that for conversations without tools. */
static const json_t *default_template(const json_t *all)
{
    const json_t *found = json_object_get(all, "default"); /* NULL: none, or a list */
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *entry = json_array_get(all, i);
        const char *name = json_string_value(json_object_get(entry, "name"));
        if (name && strcmp(name, "default") == 0)
            found = json_object_get(entry, "template");
    }
    return found;
}

static coh_status template_of_config(const char *path, const json_t *root, char **out_template)
{
    if (!json_is_object(root))
        return coh_fail(COH_ERR_CORRUPT, "%s: expected an object", path);
    const json_t *value = json_object_get(root, "chat_template");
    if (!value || json_is_null(value))
        return COH_OK;
    if (!json_is_string(value))
        value = default_template(value);
    if (!json_is_string(value))
        return coh_fail(COH_ERR_CORRUPT,
                        "%.300s: chat_template is neither a text nor a set of named templates with "
                        "one of the name \"default\"",
                        path);
    return coh_alloc_text(json_string_value(value), out_template);
}

static coh_status read_config(const char *path, char **out_template)
{
    json_t *root;
    coh_status status = coh_json_read_text(path, TEMPLATE_BYTES_MAX, &root);
    if (status == COH_OK)
        status = template_of_config(path, root, out_template);
    json_decref(root);
    return status;
}

coh_status coh_chat_template_read(const char *folder, char *out_path, char **out_template)
{
    struct stat facts;
    size_t folder_bytes = strlen(folder), text_bytes;
    *out_template = NULL;
    if (stat(folder, &facts) == 0 && !S_ISDIR(facts.st_mode)) { /* a file: use its folder */
        const char *slash = strrchr(folder, '/');
        folder_bytes = slash ? (size_t)(slash - folder) : 1;
        folder = slash ? folder : ".";
    }
    if (snprintf(out_path, PATH_MAX, "%.*s/tokenizer_config.json", (int)folder_bytes, folder) >=
        PATH_MAX)
        return coh_fail(COH_ERR_ARGUMENT, "a tokenizer's path of %zu bytes is too long",
                        folder_bytes);
    snprintf(out_path, PATH_MAX, "%.*s/chat_template.jinja", (int)folder_bytes, folder);
    if (access(out_path, F_OK) == 0)
        return coh_file_read_whole(out_path, TEMPLATE_BYTES_MAX, out_template, &text_bytes);
    snprintf(out_path, PATH_MAX, "%.*s/tokenizer_config.json", (int)folder_bytes, folder);
    return access(out_path, F_OK) == 0 ? read_config(out_path, out_template) : COH_OK;
}

/* ---- its life ---- */

/* Lets special tokens be found that the tokenizer does not find in texts. */
static coh_status find_own_tokens(coh_chat_template *t)
{
    const int32_t ids[] = { t->begin_of_text, t->end_of_text };
    for (int i = 0; i < 2 && !t->tokenizer->pipeline->raw_added; i++)
        if (ids[i] >= 0 && (i == 0 || ids[1] != ids[0]))
            COH_TRY(coh_added_add(&t->own_tokens, "chat template", name_of(t->tokenizer, ids[i]),
                                  (coh_added_kind){ .id = ids[i] }));
    return COH_OK;
}

static coh_status open_program(coh_chat_template *t, const char *where, const char *text)
{
    COH_TRY(find_own_tokens(t));
    COH_TRY(coh_jinja_open(where, text, &t->program));
    return learn(t, where);
}

coh_status coh_chat_template_create(coh_tokenizer *tokenizer, const char *where, const char *text,
                                    int32_t begin_of_text, coh_chat_template **out_template)
{
    coh_chat_template *t;
    *out_template = NULL;
    COH_TRY(COH_ALLOC(1, &t));
    t->tokenizer = tokenizer;
    t->begin_of_text = tokenizer->begin_of_text >= 0 ? tokenizer->begin_of_text : begin_of_text;
    t->end_of_text = tokenizer->end_of_text;
    t->end_of_turn = -1;
    const coh_status status = open_program(t, where, text);
    if (status != COH_OK)
        coh_chat_template_close(t);
    else
        *out_template = t;
    return status;
}

void coh_chat_template_close(coh_chat_template *t)
{
    if (!t)
        return;
    coh_jinja_close(t->program);
    coh_added_destroy(t->own_tokens);
    coh_jinja_text_free(&t->text);
    coh_jinja_text_free(&t->filled);
    coh_free(t->turns);
    coh_free(t->header.bytes);
    coh_free(t->lead.bytes);
    coh_free(t->tail.bytes);
    coh_free(t->answer_prefix);
    coh_free(t->written.ids);
    coh_free(t->answers.ranges);
    coh_free(t->ids.ids);
    coh_free(t->part_ids.ids);
    coh_free(t->id_ends);
    coh_free(t);
}

/* ---- its use ---- */

/* Drops the answers of messages that are not to be learned. Text that a template marks behind the
 * last content is of no message (find_marked), and goes with the last one. */
static void drop_unlearned(coh_chat_template *t, const uint8_t *learns, size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < t->answers.count; i++) {
        const size_t message = t->answers.ranges[i].message;
        if (learns[message < count ? message : count - 1])
            t->answers.ranges[kept++] = t->answers.ranges[i];
    }
    t->answers.count = kept;
}

coh_status coh_chat_template_encode(coh_chat_template *t, const coh_chat_turn *messages,
                                    size_t count, const uint8_t *learns, coh_id_list *ids,
                                    coh_byte_list *counts)
{
    COH_TRY(render(t, messages, count, 0, &t->text));
    COH_TRY(find_all_answers(t, messages, count));
    if (learns)
        drop_unlearned(t, learns, count);
    return encode_text(t, ids, counts);
}

coh_status coh_chat_template_prompt(coh_chat_template *t, const coh_chat_turn *messages,
                                    size_t count, coh_id_list *ids)
{
    coh_byte_list counts = { 0 };
    t->answers.count = 0;
    coh_status status = render(t, messages, count, 1, &t->text);
    if (status == COH_OK)
        status = encode_text(t, ids, &counts);
    coh_free(counts.bytes);
    return status;
}

int32_t coh_chat_template_end_of_turn(const coh_chat_template *t)
{
    return t->end_of_turn;
}

const char *coh_chat_template_answer_prefix(const coh_chat_template *t)
{
    return t->answer_prefix;
}

int coh_chat_template_writes(const coh_chat_template *t, int32_t id)
{
    for (size_t i = 0; i < t->written.count; i++)
        if (t->written.ids[i] == id)
            return 1;
    return 0;
}
