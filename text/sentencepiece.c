/* Reads tokenizer.model: SentencePiece's byte pair encoding (Kudo and Richardson 2018), as used by
 * Llama 2 and Mistral.
 *
 * The file has no merges: two adjacent symbols merge if together they spell a piece, the piece with
 * the highest score first. Therefore each way to cut a piece into two pieces or single characters
 * becomes a merge, ranked by the piece's score. Fields are those of sentencepiece_model.proto.
 * Next: bpe.c. */
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "text/characters.h"
#include "text/tokenizer_files.h"

#define SPACE_MARK "\xe2\x96\x81" /* U+2581 */

/* A piece is cut at each of its characters; the trainer's own limit is 16 of them. */
#define PIECE_BYTES_MAX 1024

typedef enum piece_type {
    PIECE_NORMAL = 1,
    PIECE_UNKNOWN = 2,
    PIECE_CONTROL = 3,
    PIECE_USER_DEFINED = 4,
    PIECE_UNUSED = 5,
    PIECE_BYTE = 6,
} piece_type;

typedef struct piece {
    coh_slice name;
    float score;
    piece_type type;
    int32_t rank; /* by score, the highest first; equal scores share a rank */
} piece;

typedef struct model_reader {
    const char *path;
    coh_pipeline *pipeline;
    piece *pieces;
    size_t count, capacity;
    coh_slice begin_name, end_name, unknown_text;
    uint64_t kind; /* trainer_spec.model_type */
    int has_bytes, has_suffix_spaces, has_prefix, removes_spaces, escapes_spaces;
    size_t map_bytes, back_map_bytes;
    int32_t unknown_count;
} model_reader;

/* ---- protobuf ---- */

/* Walks the fields of one message strictly: every field must have a number, a current type, and all
 * the bytes it declares. Supports wire types 0, 1, 2 and 5 of
 * https://protobuf.dev/programming-guides/encoding. */
typedef struct message {
    const uint8_t *at, *end;
    const char *error; /* the error at `at`; NULL: none so far */
} message;

typedef enum field_type {
    FIELD_VARINT = 0,
    FIELD_64 = 1,
    FIELD_BYTES = 2,
    FIELD_32 = 5,
} field_type;

typedef struct field {
    uint32_t number;
    field_type type;
    uint64_t value;  /* of types varint, 64 and 32 */
    coh_slice bytes; /* of type bytes */
} field;

static message message_of(coh_slice bytes)
{
    const uint8_t *begin = (const uint8_t *)bytes.bytes;
    return (message){ .at = begin, .end = begin + bytes.count };
}

static int fail(message *m, const char *error)
{
    m->error = error;
    return 0;
}

/* Seven bits per byte, lowest first; at most 64 bits. */
static int read_varint(message *m, uint64_t *out_value)
{
    *out_value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        if (m->at == m->end)
            return fail(m, "it ends within a number");
        uint8_t byte = *m->at++;
        if (shift == 63 && byte > 1)
            break;
        *out_value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return 1;
    }
    return fail(m, "a number has more than 64 bits");
}

static int read_fixed(message *m, int byte_count, uint64_t *out_value)
{
    *out_value = 0;
    if (m->end - m->at < byte_count)
        return fail(m, "it ends within a number");
    for (int i = 0; i < byte_count; i++)
        *out_value |= (uint64_t)m->at[i] << (8 * i);
    m->at += byte_count;
    return 1;
}

/* Returns 0 at the end of the message or at an error. */
static int next_field(message *m, field *out_field)
{
    uint64_t key, length;
    *out_field = (field){ 0 };
    if (m->error || m->at == m->end || !read_varint(m, &key))
        return 0;
    if (key >> 3 == 0 || key >> 3 > 0x1fffffff)
        return fail(m, "a field has a number that no field may have");
    out_field->number = (uint32_t)(key >> 3);
    out_field->type = (field_type)(key & 7);
    switch (key & 7) {
    case FIELD_VARINT:
        return read_varint(m, &out_field->value);
    case FIELD_64:
        return read_fixed(m, 8, &out_field->value);
    case FIELD_32:
        return read_fixed(m, 4, &out_field->value);
    case FIELD_BYTES:
        if (!read_varint(m, &length))
            return 0;
        if (length > (uint64_t)(m->end - m->at))
            return fail(m, "a field is longer than what is left");
        out_field->bytes = (coh_slice){ (const char *)m->at, (size_t)length };
        m->at += length;
        return 1;
    default:
        return fail(m, "a field is of a type that does not exist");
    }
}

/* ---- the messages of a model ---- */

static coh_status refuse(const model_reader *r, const char *what)
{
    return coh_fail(COH_ERR_CORRUPT, "%s: %s", r->path, what);
}

static coh_status refuse_message(const model_reader *r, const message *m)
{
    return coh_fail(COH_ERR_CORRUPT,
                    "%s is not a SentencePiece model: %s (Llama 3 calls another format so: use its "
                    "tokenizer.json)",
                    r->path, m->error);
}

static coh_status read_piece(model_reader *r, coh_slice bytes)
{
    message m = message_of(bytes);
    field f;
    piece new = { .type = PIECE_NORMAL };
    while (next_field(&m, &f)) {
        if (f.number == 1 && f.type == FIELD_BYTES) {
            new.name = f.bytes;
        } else if (f.number == 2 && f.type == FIELD_32) {
            uint32_t bits = (uint32_t)f.value;
            memcpy(&new.score, &bits, sizeof(bits));
        } else if (f.number == 3 && f.type == FIELD_VARINT) {
            new.type = f.value <= PIECE_BYTE ? (piece_type)f.value : (piece_type)0;
        } else {
            return coh_fail(COH_ERR_CORRUPT,
                            "%s: piece %zu has field %" PRIu32 ", which is not known", r->path,
                            r->count, f.number);
        }
    }
    if (m.error)
        return refuse_message(r, &m);
    const uint8_t *name = (const uint8_t *)new.name.bytes;
    if (new.name.count == 0 || new.name.count > PIECE_BYTES_MAX ||
        coh_valid_stretch(name, new.name.count) != new.name.count)
        return coh_fail(COH_ERR_CORRUPT, "%s: piece %zu is not a text of 1 to %d bytes of UTF-8",
                        r->path, r->count, PIECE_BYTES_MAX);
    if (new.type == 0 || new.type == PIECE_UNUSED || isnan(new.score))
        return coh_fail(
            COH_ERR_CORRUPT, "%s: piece %zu (\"%.*s\") has a type or score that is not supported",
            r->path, r->count, (int)(new.name.count < 60 ? new.name.count : 60), new.name.bytes);
    if (r->count >= INT32_MAX / 2)
        return refuse(r, "it has more than 2^30 pieces");
    COH_TRY(COH_GROW(&r->pieces, &r->capacity, r->count + 1));
    r->pieces[r->count++] = new;
    return COH_OK;
}

/* Fields that concern only training are skipped. */
static coh_status read_trainer(model_reader *r, coh_slice bytes)
{
    message m = message_of(bytes);
    field f;
    while (next_field(&m, &f)) {
        int is_number = f.type == FIELD_VARINT;
        int is_text = f.type == FIELD_BYTES;
        if (f.number == 3 && is_number)
            r->kind = f.value;
        else if (f.number == 24 && is_number)
            r->has_suffix_spaces = f.value != 0;
        else if (f.number == 35 && is_number)
            r->has_bytes = f.value != 0;
        else if (f.number == 44 && is_text)
            r->unknown_text = f.bytes;
        else if (f.number == 46 && is_text && f.bytes.count)
            r->begin_name = f.bytes;
        else if (f.number == 47 && is_text && f.bytes.count)
            r->end_name = f.bytes;
    }
    return m.error ? refuse_message(r, &m) : COH_OK;
}

static coh_status read_normalizer(model_reader *r, coh_slice bytes, int is_back)
{
    message m = message_of(bytes);
    field f;
    while (next_field(&m, &f)) {
        if (f.number == 2 && f.type == FIELD_BYTES)
            *(is_back ? &r->back_map_bytes : &r->map_bytes) = f.bytes.count;
        else if (f.number == 3 && f.type == FIELD_VARINT && !is_back)
            r->has_prefix = f.value != 0;
        else if (f.number == 4 && f.type == FIELD_VARINT && !is_back)
            r->removes_spaces = f.value != 0;
        else if (f.number == 5 && f.type == FIELD_VARINT && !is_back)
            r->escapes_spaces = f.value != 0;
        else if (f.number < 1 || f.number > 6)
            return coh_fail(COH_ERR_CORRUPT,
                            "%s: normalizer_spec has field %" PRIu32 ", which is not known",
                            r->path, f.number);
    }
    return m.error ? refuse_message(r, &m) : COH_OK;
}

static coh_status read_model(model_reader *r, const char *bytes, size_t count)
{
    message m = message_of((coh_slice){ bytes, count });
    field f;
    while (next_field(&m, &f)) {
        if (f.type != FIELD_BYTES || f.number > 5)
            return coh_fail(COH_ERR_CORRUPT,
                            "%s is not a SentencePiece model: field %" PRIu32 " is not known "
                            "(Llama 3 calls another format so: use its tokenizer.json)",
                            r->path, f.number);
        if (f.number == 1)
            COH_TRY(read_piece(r, f.bytes));
        if (f.number == 2)
            COH_TRY(read_trainer(r, f.bytes));
        if (f.number == 3 || f.number == 5) /* 4 is a separate test */
            COH_TRY(read_normalizer(r, f.bytes, f.number == 5));
    }
    return m.error ? refuse_message(r, &m) : COH_OK;
}

static coh_status check_options(const model_reader *r)
{
    if (r->count == 0)
        return refuse(r, "it has no pieces, so it is no SentencePiece model");
    if (r->kind != 2)
        return refuse(r, "trainer_spec.model_type is not BPE, the only one that is supported");
    if (!r->has_bytes)
        return refuse(r, "trainer_spec.byte_fallback is off: text that the pieces cannot spell "
                         "would be lost, which is not supported");
    if (r->has_suffix_spaces)
        return refuse(r, "trainer_spec.treat_whitespace_as_suffix is on, which is not supported");
    if (r->map_bytes || r->back_map_bytes)
        return refuse(r, "it has a table of characters to replace (normalizer_spec or "
                         "denormalizer_spec.precompiled_charsmap), which is not supported");
    if (r->removes_spaces)
        return refuse(r, "normalizer_spec.remove_extra_whitespaces is on, which is not supported");
    if (!r->escapes_spaces)
        return refuse(r, "normalizer_spec.escape_whitespaces is off, which is not supported");
    return COH_OK;
}

/* ---- tokens ---- */

/* Decodes a piece; marks become spaces in `room`, which has PIECE_BYTES_MAX. */
static coh_status decode_piece(model_reader *r, size_t id, char *room, coh_slice *out_text)
{
    const piece *p = &r->pieces[id];
    *out_text = (coh_slice){ room, 0 };
    switch (p->type) {
    case PIECE_CONTROL:
    case PIECE_UNUSED:
        return COH_OK;
    case PIECE_UNKNOWN:
        *out_text = r->unknown_text;
        return r->unknown_count++ ? refuse(r, "it has two pieces for what is unknown") : COH_OK;
    case PIECE_BYTE: {
        int byte = coh_tokenizer_byte_of(p->name);
        char name[8];
        snprintf(name, sizeof(name), "<0x%02X>", (unsigned)byte & 0xff);
        if (byte < 0 || memcmp(name, p->name.bytes, p->name.count) != 0)
            return coh_fail(COH_ERR_CORRUPT, "%s: piece %zu is a byte, but not called like one",
                            r->path, id);
        room[0] = (char)byte;
        out_text->count = 1;
        return COH_OK;
    }
    case PIECE_NORMAL:
    case PIECE_USER_DEFINED:
        break;
    }
    for (size_t at = 0; at < p->name.count;) {
        int is_mark = p->name.count - at >= 3 && memcmp(p->name.bytes + at, SPACE_MARK, 3) == 0;
        room[out_text->count++] = is_mark ? ' ' : p->name.bytes[at];
        at += is_mark ? 3 : 1;
    }
    return COH_OK;
}

static coh_status fill_tokens(model_reader *r)
{
    coh_token_table *names = &r->pipeline->names;
    char room[PIECE_BYTES_MAX];
    coh_slice text;
    for (size_t id = 0; id < r->count; id++) {
        COH_TRY(decode_piece(r, id, room, &text));
        COH_TRY(coh_token_table_add(names, r->pieces[id].name));
        COH_TRY(coh_token_table_add(&r->pipeline->texts, text));
    }
    if (r->unknown_count == 0)
        return refuse(r, "it has no piece for what is unknown");
    COH_TRY(coh_token_table_index(names));
    for (size_t id = 0; id < r->count; id++) {
        const coh_slice name = r->pieces[id].name;
        int32_t found = coh_token_table_find(names, name.bytes, name.count);
        if ((size_t)found != id)
            return coh_fail(COH_ERR_CORRUPT, "%s: pieces %" PRId32 " and %zu are the same", r->path,
                            found, id);
    }
    return COH_OK;
}

/* ---- merges ---- */

/* Descending order. No score is NaN. */
static int compare_scores(const void *a, const void *b)
{
    float left = *(const float *)a, right = *(const float *)b;
    return (left < right) - (left > right);
}

static coh_status rank_pieces(model_reader *r)
{
    float *scores;
    COH_TRY(COH_ALLOC(r->count, &scores));
    for (size_t id = 0; id < r->count; id++)
        scores[id] = r->pieces[id].score;
    qsort(scores, r->count, sizeof(*scores), compare_scores);
    size_t distinct = 0;
    for (size_t i = 0; i < r->count; i++) {
        if (i == 0 || scores[i] != scores[distinct - 1])
            scores[distinct++] = scores[i];
    }
    for (size_t id = 0; id < r->count; id++) {
        const float *found =
            bsearch(&r->pieces[id].score, scores, distinct, sizeof(*scores), compare_scores);
        r->pieces[id].rank = (int32_t)(found - scores);
    }
    coh_free(scores);
    return COH_OK;
}

/* The symbol of a part of a piece: a normal piece, or a character that is not a piece; -1: neither.
 * Such characters get new symbol numbers when they first occur. */
static coh_status symbol_of(model_reader *r, coh_slice part, int32_t *out_symbol)
{
    coh_bpe *model = r->pipeline->model;
    *out_symbol = coh_token_table_find(&r->pipeline->names, part.bytes, part.count);
    if (*out_symbol >= 0) {
        if (r->pieces[*out_symbol].type != PIECE_NORMAL)
            *out_symbol = -1;
        return COH_OK;
    }
    const uint8_t *text = (const uint8_t *)part.bytes;
    if (coh_utf8_character(text, part.count) != part.count)
        return COH_OK;
    uint32_t value = coh_utf8_value(text, part.count);
    *out_symbol = coh_bpe_find(&model->characters, value)->id;
    if (*out_symbol >= 0)
        return COH_OK;
    *out_symbol = model->first_unnamed + (int32_t)model->unnamed_count;
    COH_TRY(COH_GROW(&model->unnamed, &model->unnamed_capacity, model->unnamed_count + 1));
    model->unnamed[model->unnamed_count++] = value;
    return coh_bpe_add(&model->characters, value, 0, *out_symbol);
}

/* Adds the merges of a piece. */
static coh_status cut_piece(model_reader *r, int32_t id)
{
    coh_slice name = r->pieces[id].name;
    for (size_t at = 1; at < name.count; at++) {
        int32_t left = -1, right = -1;
        if ((name.bytes[at] & 0xc0) == 0x80)
            continue;
        COH_TRY(symbol_of(r, (coh_slice){ name.bytes, at }, &left));
        COH_TRY(symbol_of(r, (coh_slice){ name.bytes + at, name.count - at }, &right));
        if (left >= 0 && right >= 0)
            COH_TRY(coh_bpe_add(&r->pipeline->model->merges, coh_bpe_pair(left, right),
                                r->pieces[id].rank, id));
    }
    return COH_OK;
}

static coh_status fill_characters(model_reader *r)
{
    coh_bpe *model = r->pipeline->model;
    model->first_unnamed = (int32_t)r->count;
    for (size_t id = 0; id < r->count; id++) {
        const piece *p = &r->pieces[id];
        const uint8_t *name = (const uint8_t *)p->name.bytes;
        if (coh_utf8_character(name, p->name.count) != p->name.count)
            continue;
        if (p->type == PIECE_CONTROL || p->type == PIECE_UNKNOWN)
            return coh_fail(COH_ERR_CORRUPT,
                            "%s: piece %zu is no text, but is called by one character, which text "
                            "has",
                            r->path, id);
        if (p->type == PIECE_NORMAL)
            COH_TRY(coh_bpe_add(&model->characters, coh_utf8_value(name, p->name.count), 0,
                                (int32_t)id));
    }
    return COH_OK;
}

static coh_status fill_merges(model_reader *r)
{
    COH_TRY(rank_pieces(r));
    for (size_t id = 0; id < r->count; id++)
        if (r->pieces[id].type == PIECE_NORMAL)
            COH_TRY(cut_piece(r, (int32_t)id));
    return COH_OK;
}

/* ---- whole file ---- */

/* User-defined pieces are found in the text before any merging. */
static coh_status fill_user_defined(model_reader *r)
{
    for (size_t id = 0; id < r->count; id++) {
        if (r->pieces[id].type == PIECE_USER_DEFINED)
            COH_TRY(coh_added_add(&r->pipeline->normalized_added, r->path, r->pieces[id].name,
                                  (coh_added_kind){ .id = (int32_t)id }));
    }
    return COH_OK;
}

static coh_status fill_normalizer(model_reader *r)
{
    static const coh_slice nothing = { 0 }, space = { " ", 1 }, mark = { SPACE_MARK, 3 };
    coh_normalizer *normalizer = &r->pipeline->normalizer;
    if (r->has_prefix) {
        COH_TRY(coh_normalizer_add_step(normalizer, nothing, mark));
        r->pipeline->decode_begin = COH_BEGIN_SENTENCEPIECE;
        COH_TRY(coh_byte_list_add(&r->pipeline->decode_mark, SPACE_MARK, 3));
    }
    return coh_normalizer_add_step(normalizer, space, mark);
}

static int32_t find_control(const model_reader *r, coh_slice name)
{
    int32_t id = coh_token_table_find(&r->pipeline->names, name.bytes, name.count);
    return id >= 0 && r->pieces[id].type == PIECE_CONTROL ? id : -1;
}

static uint64_t identity_of(const model_reader *r)
{
    coh_identity identity;
    coh_identity_begin(&identity, "cohobate sentencepiece 1");
    coh_identity_add_tokens(&identity, &r->pipeline->names);
    for (size_t id = 0; id < r->count; id++) {
        coh_identity_add_u32(&identity, (uint32_t)r->pieces[id].type);
        coh_identity_add_u32(&identity, (uint32_t)r->pieces[id].rank);
    }
    coh_identity_add_u32(&identity, (uint32_t)r->has_prefix);
    return coh_identity_end(&identity);
}

static coh_status read_all(model_reader *r, const char *bytes, size_t count,
                           coh_tokenizer *tokenizer)
{
    COH_TRY(read_model(r, bytes, count));
    COH_TRY(check_options(r));
    COH_TRY(coh_tokenizer_begin_pipeline(tokenizer, &r->pipeline));
    COH_TRY(fill_tokens(r));
    COH_TRY(coh_tokenizer_find_byte_tokens(r->path, r->pipeline));
    for (int byte = 0; byte < 256; byte++) {
        if (r->pieces[r->pipeline->model->byte_id[byte]].type != PIECE_BYTE)
            return refuse(r, "a piece is called like a byte but is none");
    }
    COH_TRY(fill_characters(r));
    COH_TRY(fill_merges(r));
    COH_TRY(fill_user_defined(r));
    COH_TRY(fill_normalizer(r));
    tokenizer->begin_of_text = find_control(r, r->begin_name);
    tokenizer->end_of_text = find_control(r, r->end_name);
    if (tokenizer->begin_of_text >= 0) /* like Llama's own program */
        COH_TRY(coh_id_list_add(&tokenizer->before, tokenizer->begin_of_text));
    tokenizer->identity = identity_of(r);
    return coh_tokenizer_finish_pipeline(tokenizer);
}

coh_status coh_tokenizer_read_sentencepiece(const char *path, const char *model, size_t model_bytes,
                                            coh_tokenizer *tokenizer)
{
    model_reader reader = { .path = path,
                            .begin_name = { "<s>", 3 },
                            .end_name = { "</s>", 4 },
                            .unknown_text = { " \xe2\x81\x87 ", 5 }, /* U+2047 */
                            .kind = 1,
                            .has_prefix = 1,
                            .removes_spaces = 1,
                            .escapes_spaces = 1 };
    coh_status status = read_all(&reader, model, model_bytes, tokenizer);
    coh_free(reader.pieces);
    return status;
}
