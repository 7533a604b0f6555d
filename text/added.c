/* Finds added tokens with a tree of bytes. The one idea: children of a node are siblings in a list,
 * since few tokens share a beginning and then differ; only the first byte has a table. Next:
 * pipeline.c, the caller. */
#include "text/added.h"

#include "text/characters.h"
#include "text/pattern.h"

typedef struct node {
    int32_t child, sibling; /* 0: none */
    int32_t kind;           /* of the token that ends here; -1: none */
    uint8_t byte;
} node;

struct coh_added {
    node *nodes; /* [0] is the root; its children are in `first` */
    size_t node_count, node_capacity;
    int32_t first[256];
    coh_added_kind *kinds;
    size_t kind_count, kind_capacity;
    int has_left_stripped, is_fork;
    coh_split *word_character; /* NULL unless a token is single_word */
};

void coh_added_destroy(coh_added *added)
{
    if (!added)
        return;
    coh_split_destroy(added->word_character);
    if (!added->is_fork) {
        coh_free(added->kinds);
        coh_free(added->nodes);
    }
    coh_free(added);
}

coh_status coh_added_fork(const coh_added *added, coh_added **out_added)
{
    *out_added = NULL;
    if (!added)
        return COH_OK;
    coh_added *fork;
    COH_TRY(COH_ALLOC(1, &fork));
    *fork = *added;
    fork->is_fork = 1;
    fork->word_character = NULL;
    coh_status status = COH_OK;
    if (added->word_character)
        status = coh_split_fork(added->word_character, &fork->word_character);
    if (status != COH_OK)
        coh_added_destroy(fork);
    else
        *out_added = fork;
    return status;
}

static int32_t find_child(const coh_added *added, int32_t at, uint8_t byte)
{
    if (at == 0)
        return added->first[byte];
    int32_t child = added->nodes[at].child;
    while (child && added->nodes[child].byte != byte)
        child = added->nodes[child].sibling;
    return child;
}

static coh_status step_or_grow(coh_added *added, const char *where, int32_t *at, uint8_t byte)
{
    int32_t child = find_child(added, *at, byte);
    if (!child) {
        if (added->node_count >= INT32_MAX)
            return coh_fail(COH_ERR_CORRUPT, "%s: the added tokens have more than 2^31 bytes",
                            where);
        COH_TRY(COH_GROW(&added->nodes, &added->node_capacity, added->node_count + 1));
        child = (int32_t)added->node_count++;
        added->nodes[child] = (node){ .kind = -1, .byte = byte };
        if (*at == 0) {
            added->first[byte] = child;
        } else {
            added->nodes[child].sibling = added->nodes[*at].child;
            added->nodes[*at].child = child;
        }
    }
    *at = child;
    return COH_OK;
}

static coh_status create(coh_added **out_added)
{
    COH_TRY(COH_ALLOC(1, out_added));
    COH_TRY(COH_GROW(&(*out_added)->nodes, &(*out_added)->node_capacity, 1));
    (*out_added)->node_count = 1;
    return COH_OK;
}

coh_status coh_added_add(coh_added **out_added, const char *where, coh_slice token,
                         coh_added_kind kind)
{
    int32_t at = 0;
    if (!*out_added)
        COH_TRY(create(out_added));
    coh_added *added = *out_added;
    for (size_t i = 0; i < token.count; i++)
        COH_TRY(step_or_grow(added, where, &at, (uint8_t)token.bytes[i]));
    if (added->nodes[at].kind >= 0)
        return coh_fail(COH_ERR_CORRUPT, "%s: token \"%.*s\" is added twice", where,
                        (int)(token.count < 100 ? token.count : 100), token.bytes);
    COH_TRY(COH_GROW(&added->kinds, &added->kind_capacity, added->kind_count + 1));
    added->kinds[added->kind_count] = kind;
    added->nodes[at].kind = (int32_t)added->kind_count++;
    added->has_left_stripped |= kind.is_left_stripped;
    if (kind.is_single_word && !added->word_character)
        return coh_split_create("the class of word characters", coh_pattern_word_character,
                                strlen(coh_pattern_word_character), COH_SPLIT_ISOLATED, 0,
                                &added->word_character);
    return COH_OK;
}

/* ---- the surroundings of a token ---- */

/* Does the character at text[begin..end) belong to a word? Invalid bytes do not. */
static coh_status is_word_character(const coh_added *added, const uint8_t *text, size_t begin,
                                    size_t end, int *out_is_word)
{
    *out_is_word = 0;
    size_t length = coh_utf8_character(text + begin, end - begin);
    if (length == 0)
        return COH_OK;
    return coh_split_is_match(added->word_character, text + begin, length, out_is_word);
}

coh_status coh_added_ends_with_word(const coh_added *added, const uint8_t *text, size_t byte_count,
                                    int *out_is_word)
{
    *out_is_word = 0;
    if (!added || !added->word_character || byte_count == 0)
        return COH_OK;
    return is_word_character(added, text, coh_utf8_previous(text, byte_count), byte_count,
                             out_is_word);
}

static size_t space_begin(const uint8_t *text, size_t begin, size_t end)
{
    while (end > begin) {
        size_t at = coh_utf8_previous(text, end);
        size_t length = at < begin ? 0 : coh_utf8_character(text + at, end - at);
        if (!length || !coh_is_white_space(coh_utf8_value(text + at, length)))
            break;
        end = at;
    }
    return end;
}

static size_t space_end(const uint8_t *text, size_t begin, size_t byte_count)
{
    while (begin < byte_count) {
        size_t length = coh_utf8_character(text + begin, byte_count - begin);
        if (!length || !coh_is_white_space(coh_utf8_value(text + begin, length)))
            break;
        begin += length;
    }
    return begin;
}

/* Does a letter or digit touch the match of a single_word token? */
static coh_status touches_word(const coh_added *added, const coh_added_search *search, size_t begin,
                               size_t end, int *out_touches)
{
    *out_touches = 0;
    if (begin > 0)
        COH_TRY(coh_added_ends_with_word(added, search->text, begin, out_touches));
    else
        *out_touches = search->is_after_word;
    if (!*out_touches && end < search->byte_count)
        COH_TRY(is_word_character(added, search->text, end, search->byte_count, out_touches));
    return COH_OK;
}

/* ---- finding ---- */

/* Finds the longest token at `at`; returns its kind or -1. *out_is_cut: more text could make it
 * longer, or complete one. */
static int32_t walk(const coh_added *added, const coh_added_search *search, size_t at,
                    size_t *out_end, int *out_is_cut)
{
    int32_t kind = -1, place = 0;
    *out_end = at;
    *out_is_cut = 0;
    while (at < search->byte_count) {
        place = find_child(added, place, search->text[at]);
        if (!place)
            return kind;
        at++;
        if (added->nodes[place].kind >= 0) {
            kind = added->nodes[place].kind;
            *out_end = at;
        }
    }
    *out_is_cut = search->is_open && added->nodes[place].child != 0;
    return kind;
}

coh_status coh_added_find(const coh_added *added, const coh_added_search *search,
                          coh_added_match *out_match)
{
    *out_match = (coh_added_match){ .settled = search->byte_count };
    if (!added)
        return COH_OK;
    size_t at = search->begin, end;
    while (at < search->byte_count) {
        if (!added->first[search->text[at]]) {
            at++;
            continue;
        }
        int is_cut, touches = 0;
        int32_t index = walk(added, search, at, &end, &is_cut);
        if (is_cut)
            break;
        if (index < 0) {
            at++;
            continue;
        }
        const coh_added_kind *kind = &added->kinds[index];
        size_t after =
            kind->is_right_stripped ? space_end(search->text, end, search->byte_count) : end;
        if (search->is_open && after == search->byte_count &&
            (kind->is_single_word || kind->is_right_stripped))
            break;
        if (kind->is_single_word)
            COH_TRY(touches_word(added, search, at, end, &touches));
        if (touches) { /* the search continues after the rejected match */
            at = end;
            continue;
        }
        size_t before = kind->is_left_stripped ? space_begin(search->text, search->begin, at) : at;
        *out_match = (coh_added_match){ 1, before, after, kind->id, before };
        return COH_OK;
    }
    out_match->settled = at;
    if (search->is_open && added->has_left_stripped)
        out_match->settled = space_begin(search->text, search->begin, at);
    return COH_OK;
}
