/* Runs a tokenizer's pipeline: added tokens, normalization, cutting, byte pairs. The one idea: each
 * stage appends to the next one's buffer and keeps only text whose result may still change. Next:
 * pipeline.h for the drawing; added.c, normalize.c, split.c and bpe.c for the stages. */
#include "text/pipeline.h"

#include "text/characters.h"
#include "text/pattern.h"

/* ---- creation ---- */

void coh_pipeline_destroy(coh_pipeline *pipeline)
{
    coh_pipeline *p = pipeline;
    if (!p)
        return;
    coh_free(p->waiting.bytes);
    coh_free(p->normalized.bytes);
    coh_bpe_destroy(p->model);
    for (int i = 0; i < p->step_count; i++) {
        coh_split_destroy(p->steps[i].split);
        coh_free(p->steps[i].piece.bytes);
        if (!p->is_fork)
            coh_free(p->steps[i].mark.bytes);
    }
    coh_normalizer_fini(&p->normalizer);
    coh_added_destroy(p->normalized_added);
    coh_added_destroy(p->raw_added);
    if (!p->is_fork) {
        coh_free(p->decode_mark.bytes);
        coh_token_table_fini(&p->texts);
        coh_token_table_fini(&p->names);
    }
    coh_free(p);
}

static coh_status fill_fork(const coh_pipeline *from, coh_pipeline *p)
{
    for (; p->step_count < from->step_count; p->step_count++) {
        const coh_pipeline_step *step = &from->steps[p->step_count];
        coh_pipeline_step *own = &p->steps[p->step_count];
        *own = (coh_pipeline_step){ .mark = step->mark, .scheme = step->scheme };
        if (step->split)
            COH_TRY(coh_split_fork(step->split, &own->split));
    }
    p->normalizer = coh_normalizer_fork(&from->normalizer);
    COH_TRY(coh_added_fork(from->raw_added, &p->raw_added));
    COH_TRY(coh_added_fork(from->normalized_added, &p->normalized_added));
    if (from->model)
        COH_TRY(coh_bpe_fork(from->model, &p->model));
    COH_TRY(COH_GROW(&p->normalized.bytes, &p->normalized.capacity, 1));
    return COH_GROW(&p->waiting.bytes, &p->waiting.capacity, 1);
}

coh_status coh_pipeline_fork(const coh_pipeline *from, coh_pipeline **out_fork)
{
    coh_pipeline *p;
    *out_fork = NULL;
    COH_TRY(COH_ALLOC(1, &p));
    *p = (coh_pipeline){ .names = from->names,
                         .texts = from->texts,
                         .decode_begin = from->decode_begin,
                         .decode_mark = from->decode_mark,
                         .decode_strip_count = from->decode_strip_count,
                         .is_byte_level = from->is_byte_level,
                         .is_fork = 1 };
    coh_status status = fill_fork(from, p);
    if (status != COH_OK)
        coh_pipeline_destroy(p);
    else
        *out_fork = p;
    return status;
}

coh_status coh_pipeline_add_step(coh_pipeline *pipeline, const char *where,
                                 coh_pipeline_step **out_step)
{
    if (pipeline->step_count == COH_PIPELINE_STEP_MAX)
        return coh_fail(COH_ERR_CORRUPT, "%s: more than %d steps cut the text into words", where,
                        COH_PIPELINE_STEP_MAX);
    *out_step = &pipeline->steps[pipeline->step_count++];
    return COH_OK;
}

coh_status coh_pipeline_add_split(coh_pipeline *pipeline, const char *where, coh_slice pattern,
                                  coh_split_behavior behavior, int is_inverted)
{
    coh_byte_list translated = { 0 };
    coh_pipeline_step *step;
    coh_status status = coh_pattern_translate(where, pattern, &translated);
    if (status == COH_OK)
        status = coh_pipeline_add_step(pipeline, where, &step);
    if (status == COH_OK)
        status = coh_split_create(where, (const char *)translated.bytes, translated.count, behavior,
                                  is_inverted, &step->split);
    coh_free(translated.bytes);
    return status;
}

/* ---- pieces ---- */

static int begins_with(const uint8_t *text, size_t byte_count, const coh_byte_list *mark)
{
    return byte_count >= mark->count && memcmp(text, mark->bytes, mark->count) == 0;
}

/* Appends `text` with marks for its spaces, and one before it if the scheme requires it. */
static coh_status add_marked(const coh_pipeline *p, const coh_pipeline_step *step,
                             const uint8_t *text, size_t byte_count, int is_begin,
                             coh_byte_list *out)
{
    int is_marked = text[0] == ' ' || begins_with(text, byte_count, &step->mark);
    int is_wanted =
        step->scheme == COH_MARK_ALWAYS || (step->scheme == COH_MARK_FIRST && p->is_at_begin);
    if (is_begin && is_wanted && !is_marked)
        COH_TRY(coh_byte_list_add(out, step->mark.bytes, step->mark.count));
    for (size_t at = 0; at < byte_count;) {
        const uint8_t *space = memchr(text + at, ' ', byte_count - at);
        size_t end = space ? (size_t)(space - text) : byte_count;
        COH_TRY(coh_byte_list_add(out, text + at, end - at));
        if (space)
            COH_TRY(coh_byte_list_add(out, step->mark.bytes, step->mark.count));
        at = end + (space != NULL);
    }
    return COH_OK;
}

/* Passes valid text through the steps from `index` on. */
static coh_status run_steps(coh_pipeline *p, int index, const uint8_t *text, size_t byte_count,
                            int is_open, coh_id_list *list, size_t *out_consumed)
{
    if (index == p->step_count)
        return coh_bpe_encode(p->model, text, byte_count, is_open, list, out_consumed);
    coh_pipeline_step *step = &p->steps[index];
    size_t inner;
    if (!step->split) {
        *out_consumed = byte_count;
        step->piece.count = 0;
        COH_TRY(add_marked(p, step, text, byte_count, 1, &step->piece));
        return run_steps(p, index + 1, step->piece.bytes, step->piece.count, 0, list, &inner);
    }
    coh_split_cursor cursor = { 0 };
    for (;;) {
        coh_piece piece;
        int is_found;
        COH_TRY(coh_split_next(step->split, text, byte_count, is_open, &cursor, &piece, &is_found));
        if (!is_found)
            break;
        if (!piece.is_removed)
            COH_TRY(run_steps(p, index + 1, text + piece.begin, piece.end - piece.begin, 0, list,
                              &inner));
        p->is_at_begin = 0;
    }
    *out_consumed = cursor.at;
    return COH_OK;
}

/* Number of steps before the first cut; these see all text between two added tokens. */
static int leading_steps(const coh_pipeline *p)
{
    int count = 0;
    while (count < p->step_count && !p->steps[count].split)
        count++;
    return count;
}

static coh_status encode_waiting(coh_pipeline *p, int is_open, coh_id_list *list)
{
    const uint8_t *text = p->waiting.bytes;
    size_t byte_count = p->waiting.count, at = 0;
    int first_step = leading_steps(p);
    if (is_open && byte_count < p->retry_bytes)
        return COH_OK;
    while (at < byte_count) {
        size_t stretch = coh_valid_stretch(text + at, byte_count - at), consumed;
        if (stretch == 0) {
            COH_TRY(coh_id_list_add(list, p->model->byte_id[text[at++]]));
            p->is_at_begin = 0;
            continue;
        }
        int stays_open = is_open && at + stretch == byte_count;
        COH_TRY(run_steps(p, first_step, text + at, stretch, stays_open, list, &consumed));
        if (consumed)
            p->is_at_begin = 0;
        at += consumed;
        if (consumed < stretch)
            break;
    }
    coh_byte_list_drop(&p->waiting, at);
    p->retry_bytes = at ? 0 : 2 * byte_count;
    return COH_OK;
}

/* ---- segments ---- */

/* Adds the next part of the text between two added tokens; the last part if `is_open` is 0. */
static coh_status feed_pieces(coh_pipeline *p, const uint8_t *text, size_t byte_count, int is_open,
                              coh_id_list *list)
{
    int leading = leading_steps(p);
    if (byte_count) {
        for (int i = 0; i + 1 < leading; i++) {
            coh_byte_list *out = &p->steps[i].piece;
            out->count = 0;
            COH_TRY(add_marked(p, &p->steps[i], text, byte_count, !p->is_piece_begun, out));
            text = out->bytes;
            byte_count = out->count;
        }
        if (leading)
            COH_TRY(add_marked(p, &p->steps[leading - 1], text, byte_count, !p->is_piece_begun,
                               &p->waiting));
        else
            COH_TRY(coh_byte_list_add(&p->waiting, text, byte_count));
        p->is_piece_begun = 1;
    }
    COH_TRY(encode_waiting(p, is_open, list));
    if (!is_open) {
        p->is_piece_begun = 0;
        p->retry_bytes = 0;
    }
    return COH_OK;
}

/* Appends the ids of added tokens; text between them goes to `feed`. search->begin ends at the
 * first byte that more text could change; *is_after_word: a letter or digit ends before it. */
static coh_status feed_between(coh_pipeline *p, const coh_added *added, coh_added_search *search,
                               coh_status (*feed)(coh_pipeline *p, const uint8_t *text,
                                                  size_t byte_count, int is_open,
                                                  coh_id_list *list),
                               int *is_after_word, coh_id_list *list)
{
    coh_added_match match;
    search->is_after_word = *is_after_word;
    do {
        COH_TRY(coh_added_find(added, search, &match));
        size_t end = match.is_found ? match.begin : match.settled;
        COH_TRY(feed(p, search->text + search->begin, end - search->begin,
                     search->is_open && !match.is_found, list));
        search->begin = end;
        if (match.is_found) {
            p->is_at_begin = 0; /* for the text after it */
            COH_TRY(coh_id_list_add(list, match.id));
            search->begin = match.end;
        }
    } while (match.is_found);
    if (search->begin == 0)
        return COH_OK;
    return coh_added_ends_with_word(added, search->text, search->begin, is_after_word);
}

/* Adds the next part of the text between two added tokens of the raw text. */
static coh_status feed_segment(coh_pipeline *p, const uint8_t *text, size_t byte_count, int is_open,
                               coh_id_list *list)
{
    COH_TRY(coh_normalizer_append(&p->normalizer, text, byte_count, is_open, &p->normalized));
    coh_added_search search = { .text = p->normalized.bytes,
                                .byte_count = p->normalized.count,
                                .is_open = is_open };
    COH_TRY(feed_between(p, p->normalized_added, &search, feed_pieces, &p->is_after_normalized_word,
                         list));
    coh_byte_list_drop(&p->normalized, search.begin);
    if (!is_open) {
        coh_normalizer_restart(&p->normalizer);
        p->is_after_normalized_word = 0;
    }
    return COH_OK;
}

static void restart(coh_pipeline *p)
{
    coh_normalizer_restart(&p->normalizer);
    p->normalized.count = p->waiting.count = 0;
    p->retry_bytes = 0;
    p->is_at_begin = 1;
    p->is_piece_begun = p->is_after_word = p->is_after_normalized_word = 0;
}

static coh_status encode_bytes(const coh_text_block *block, coh_id_list *list, size_t *out_consumed)
{
    COH_TRY(COH_GROW(&list->ids, &list->capacity, list->count + block->byte_count));
    for (size_t i = 0; i < block->byte_count; i++)
        list->ids[list->count++] = block->text[i];
    *out_consumed = block->byte_count;
    return COH_OK;
}

coh_status coh_pipeline_encode(coh_pipeline *pipeline, const coh_text_block *block,
                               coh_id_list *list, size_t *out_consumed)
{
    coh_pipeline *p = pipeline;
    if (!p->model)
        return encode_bytes(block, list, out_consumed);
    if (block->is_first)
        restart(p);
    coh_added_search search = { .text = block->text,
                                .byte_count = block->byte_count,
                                .is_open = !block->is_last };
    if (search.is_open)
        search.byte_count = coh_utf8_complete(block->text, block->byte_count);
    COH_TRY(feed_between(p, p->raw_added, &search, feed_segment, &p->is_after_word, list));
    *out_consumed = search.begin;
    return COH_OK;
}

/* ---- decoding ---- */

/* Decodes a text's first token without marks. */
static coh_status decode_first_token(const coh_pipeline *p, int32_t id, coh_decode_place *place,
                                     coh_byte_list *out)
{
    const coh_byte_list *mark = &p->decode_mark;
    coh_slice name = coh_token_table_at(&p->names, id), text = coh_token_table_at(&p->texts, id);
    place->is_begun = name.count != 0; /* an id without a token is skipped */
    if (name.count == 0 || !memmem(name.bytes, name.count, mark->bytes, mark->count))
        return coh_byte_list_add(out, text.bytes, text.count);
    for (size_t at = 0; at < name.count;) {
        const char *found = memmem(name.bytes + at, name.count - at, mark->bytes, mark->count);
        size_t end = found ? (size_t)(found - name.bytes) : name.count;
        COH_TRY(coh_byte_list_add(out, name.bytes + at, end - at));
        at = found ? end + mark->count : end;
    }
    return COH_OK;
}

coh_status coh_pipeline_decode(const coh_pipeline *p, int32_t id, coh_decode_place *place,
                               coh_byte_list *out)
{
    const coh_byte_list *mark = &p->decode_mark;
    const coh_slice token = coh_token_table_at(&p->texts, id);
    const uint8_t *text = (const uint8_t *)token.bytes;
    size_t count = token.count;
    if (place->is_begun || p->decode_begin == COH_BEGIN_WHOLE)
        return coh_byte_list_add(out, text, count);
    switch (p->decode_begin) {
    case COH_BEGIN_WHOLE:
        break;
    case COH_BEGIN_STRIPPED:
        while (place->stripped_count < p->decode_strip_count && begins_with(text, count, mark)) {
            text += mark->count;
            count -= mark->count;
            place->stripped_count++;
        }
        place->is_begun = count > 0 || place->stripped_count == p->decode_strip_count;
        break;
    case COH_BEGIN_FIRST_TOKEN:
        return decode_first_token(p, id, place, out);
    case COH_BEGIN_SENTENCEPIECE: {
        coh_slice name = coh_token_table_at(&p->names, id);
        place->is_begun = count > 0;
        if (count > 0 && begins_with((const uint8_t *)name.bytes, name.count, mark)) {
            text++; /* the space decoded from the mark */
            count--;
        }
        break;
    }
    }
    return coh_byte_list_add(out, text, count);
}
