/* Writes and reads the note of a checkpoint. The one idea: one table of keys serves both, so a note
 * gives back what was written. Next: cohobate/training_note.h. */
#include "cohobate/training_note.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/struct_bytes.h"

/* Version 2 is version 1 with a schedule that programs of version 1 do not know, and would take for
 * a cosine. */
enum { NOTE_VERSION = 1, NOTE_VERSION_SCHEDULED = 2 };

/* ---- one row per key ---- */

typedef enum note_type {
    NOTE_AMOUNT,
    NOTE_SEED, /* any 64 bits: above INT64_MAX, which JSON's readers cannot hold, as a text */
    NOTE_REAL,
    NOTE_HEX,
    NOTE_PATH,
    NOTE_NAME,     /* of an optimizer, or "" */
    NOTE_FOLD,     /* the text of a fold shape */
    NOTE_SCHEDULE, /* the name of a coh_schedule_kind */
    NOTE_FORS,
    NOTE_OPTIMIZERS
} note_type;

typedef struct note_row {
    const char *key;
    note_type type;
    size_t offset;
    double least;
    int later; /* the key is missing in older notes of version 1: then 0 or empty */
} note_row;

#define LATER(key, type, field)                                                                    \
    {                                                                                              \
        key, type, offsetof(coh_training_note, field), 0, 1                                        \
    }
#define ROW(key, type, field, least)                                                               \
    {                                                                                              \
        key, type, offsetof(coh_training_note, field), least, 0                                    \
    }

static const note_row note_rows[] = {
    ROW("steps", NOTE_AMOUNT, steps, 1),
    ROW("schedule_steps", NOTE_AMOUNT, schedule.schedule_steps, 1),
    ROW("warmup_steps", NOTE_AMOUNT, schedule.warmup_steps, 0),
    ROW("lr", NOTE_REAL, schedule.highest, 0),
    ROW("min_lr", NOTE_REAL, schedule.lowest, 0),
    ROW("batch", NOTE_AMOUNT, batch, 1),
    ROW("micro_batch", NOTE_AMOUNT, micro_batch, 1),
    ROW("sequence", NOTE_AMOUNT, sequence, 1),
    ROW("beta1", NOTE_REAL, beta1, -1),
    ROW("beta2", NOTE_REAL, beta2, -1),
    ROW("weight_decay", NOTE_REAL, weight_decay, 0),
    ROW("clip", NOTE_REAL, clip, 0),
    ROW("seed", NOTE_SEED, seed, 0),
    ROW("tokenizer", NOTE_PATH, tokenizer, 0),
    ROW("tokenizer_identity", NOTE_HEX, tokenizer_identity, 0),
    ROW("data", NOTE_PATH, data, 0),
    ROW("data_hash", NOTE_HEX, data_hash, 0),
    ROW("data_first_step", NOTE_AMOUNT, data_first_step, 0),
    LATER("data_first_window", NOTE_AMOUNT, data_first_window),
    LATER("lr_for", NOTE_FORS, lr_for),
    LATER("weight_decay_for", NOTE_FORS, weight_decay_for),
    LATER("optimizer", NOTE_NAME, optimizer),
    LATER("optimizer_for", NOTE_OPTIMIZERS, optimizer_for),
    { "hyperparameters", NOTE_FORS, offsetof(coh_training_note, hyperparameters), -1e30, 1 },
    LATER("dropout", NOTE_REAL, dropout),
    LATER("kernels", NOTE_PATH, kernels),
    LATER("clips_by_previous", NOTE_AMOUNT, clips_by_previous),
    LATER("speculates", NOTE_AMOUNT, speculates),
    LATER("by_layers", NOTE_AMOUNT, by_layers),
    LATER("f32_gradients", NOTE_AMOUNT, f32_gradients),
    LATER("replicas", NOTE_FOLD, replicas),
    LATER("atomics", NOTE_AMOUNT, atomics),
    LATER("field", NOTE_PATH, form.field),
    LATER("chat", NOTE_AMOUNT, form.chat),
    LATER("chat_form", NOTE_AMOUNT, form.chat_form),
    LATER("aligned", NOTE_AMOUNT, form.aligned),
    LATER("validation_split", NOTE_REAL, form.validation_split),
    LATER("base", NOTE_PATH, base),
    LATER("id_bytes", NOTE_AMOUNT, form.id_bytes),
    LATER("validation", NOTE_PATH, validation),
    LATER("validation_hash", NOTE_HEX, validation_hash),
    LATER("validation_id_bytes", NOTE_AMOUNT, validation_id_bytes),
    LATER("save_every", NOTE_AMOUNT, save_every),
    LATER("keep", NOTE_AMOUNT, keep),
    LATER("validation_every", NOTE_AMOUNT, validation_every),
    LATER("validation_windows", NOTE_AMOUNT, validation_windows),
    LATER("stop_after_worse", NOTE_AMOUNT, stop_after_worse),
    LATER("schedule", NOTE_SCHEDULE, schedule_kind),
    LATER("decay_steps", NOTE_AMOUNT, decay_steps),
    LATER("frozen_nf4", NOTE_AMOUNT, frozen_nf4),
    LATER("trained_positions", NOTE_AMOUNT, trained_positions),
    LATER("skip_bad", NOTE_AMOUNT, skip_bad),
    LATER("lora_dropout", NOTE_REAL, lora_dropout),
    LATER("base_trained", NOTE_AMOUNT, base_trained),
    LATER("frozen_rounded", NOTE_AMOUNT, frozen_rounded),
};
enum { NOTE_ROW_COUNT = sizeof(note_rows) / sizeof(note_rows[0]) };

/* ---- defaults ---- */

void coh_training_note_init_sized(coh_training_note *out_note, size_t bytes)
{
    const coh_training_note defaults = {
        .steps = 100,
        .schedule = { .highest = 6e-4, .lowest = 6e-5, .warmup_steps = 10, .schedule_steps = 100 },
        .batch = 8,
        .micro_batch = 8,
        .sequence = 256,
        .beta1 = -1,
        .beta2 = -1,
        .weight_decay = 0.1,
        .clip = 1,
        .seed = 1,
        .tokenizer = "bytes"
    };
    coh_struct_init(&defaults, sizeof(defaults), out_note, bytes);
}

/* ---- reading ---- */

/* Reads [["PATTERN", X], ...]. */
static int read_fors(const json_t *value, double least, coh_pattern_numbers *out_list)
{
    size_t i;
    json_t *pair;
    *out_list = (coh_pattern_numbers){ 0 };
    if (!json_is_array(value) || json_array_size(value) > COH_NOTE_PATTERNS)
        return 0;
    json_array_foreach(value, i, pair)
    {
        coh_pattern_number *one = &out_list->at[out_list->count++];
        const char *pattern = json_string_value(json_array_get(pair, 0));
        const json_t *number = json_array_get(pair, 1);
        if (json_array_size(pair) != 2 || !pattern || strlen(pattern) >= sizeof(one->pattern) ||
            !json_is_number(number) || !(json_number_value(number) >= least))
            return 0;
        snprintf(one->pattern, sizeof(one->pattern), "%s", pattern);
        one->value = json_number_value(number);
    }
    return 1;
}

static int read_name(const json_t *value, char *out_text, size_t room)
{
    const char *text = json_string_value(value);
    if (text == NULL || json_string_length(value) >= room || strlen(text) >= room)
        return 0;
    snprintf(out_text, room, "%s", text);
    return 1;
}

/* Reads [["PATTERN", "NAME"], ...]. */
static int read_optimizers(const json_t *value, coh_pattern_optimizers *out_list)
{
    size_t i;
    json_t *pair;
    *out_list = (coh_pattern_optimizers){ 0 };
    if (!json_is_array(value) || json_array_size(value) > COH_NOTE_PATTERNS)
        return 0;
    json_array_foreach(value, i, pair)
    {
        coh_optimizer_choice *one = &out_list->at[out_list->count++];
        if (json_array_size(pair) != 2 ||
            !read_name(json_array_get(pair, 0), one->pattern, sizeof(one->pattern)) ||
            !read_name(json_array_get(pair, 1), one->optimizer, sizeof(one->optimizer)))
            return 0;
    }
    return 1;
}

static int read_seed(const json_t *value, uint64_t *out_seed)
{
    const char *text = json_string_value(value);
    if (json_is_integer(value) && json_integer_value(value) >= 0) {
        *out_seed = (uint64_t)json_integer_value(value);
        return 1;
    }
    if (text == NULL || *text == '\0' || strspn(text, "0123456789") != strlen(text))
        return 0;
    errno = 0;
    *out_seed = strtoull(text, NULL, 10);
    return errno == 0;
}

static int read_schedule(const json_t *value, uint64_t *out_kind)
{
    const char *text = json_string_value(value);
    for (int kind = 0; text && kind < COH_SCHEDULE_KIND_COUNT; kind++)
        if (strcmp(text, coh_schedule_kind_name((coh_schedule_kind)kind)) == 0) {
            *out_kind = (uint64_t)kind;
            return 1;
        }
    return 0;
}

static int read_value(const note_row *row, const json_t *value, void *field)
{
    switch (row->type) {
    case NOTE_AMOUNT:
        if (!json_is_integer(value) || (double)json_integer_value(value) < row->least)
            return 0;
        *(uint64_t *)field = (uint64_t)json_integer_value(value);
        return 1;
    case NOTE_SEED:
        return read_seed(value, field);
    case NOTE_REAL:
        if (!json_is_number(value) || !(json_number_value(value) >= row->least))
            return 0;
        *(double *)field = json_number_value(value);
        return 1;
    case NOTE_HEX: {
        char *end = NULL;
        if (!json_is_string(value) || json_string_length(value) != 16)
            return 0;
        *(uint64_t *)field = strtoull(json_string_value(value), &end, 16);
        return *end == '\0';
    }
    case NOTE_PATH:
        if (!json_is_string(value) || json_string_length(value) >= COH_PATH_BYTES)
            return 0;
        memcpy(field, json_string_value(value), json_string_length(value) + 1);
        return 1;
    case NOTE_NAME:
        return read_name(value, field, COH_OPTIMIZER_NAME_BYTES);
    case NOTE_FOLD:
        return json_is_string(value) &&
               coh_fold_shape_parse(json_string_value(value), field) == COH_OK;
    case NOTE_SCHEDULE:
        return read_schedule(value, field);
    case NOTE_FORS:
        return read_fors(value, row->least, field);
    case NOTE_OPTIMIZERS:
        return read_optimizers(value, field);
    }
    return 0;
}

static coh_status read_rows(const json_t *note, coh_training_note *out)
{
    for (int i = 0; i < NOTE_ROW_COUNT; i++) {
        const note_row *row = &note_rows[i];
        const json_t *value = json_object_get(note, row->key);
        if (!(row->later && !value) && !read_value(row, value, (char *)out + row->offset))
            return coh_fail(COH_ERR_CORRUPT,
                            "the checkpoint's note has no valid '%s': use another checkpoint",
                            row->key);
    }
    if (!json_object_get(note, "validation_id_bytes")) /* older notes had one value for both */
        out->validation_id_bytes = out->form.id_bytes;
    return COH_OK;
}

/* Is the batch whole micro-batches of every replica? */
static int divides_batch(const coh_training_note *note)
{
    const int64_t replicas = coh_fold_shape_replicas(&note->replicas);
    return note->batch % replicas == 0 && note->batch / replicas % note->micro_batch == 0;
}

static int has_rates_below_one(const coh_training_note *note)
{
    return note->beta1 < 1 && note->beta2 < 1 && note->dropout < 1 && note->lora_dropout < 1;
}

/* Has it the steps of a decay exactly if its schedule needs them? */
static int has_own_decay(const coh_training_note *note)
{
    return (note->schedule_kind == COH_SCHEDULE_WSD) == (note->decay_steps > 0);
}

/* Does the decay begin after the warm-up? A reader takes a note without it, for flags of a resumed
 * run to change. */
static int has_room_for_decay(const coh_training_note *note)
{
    const coh_schedule *schedule = &note->schedule;
    return note->schedule_kind != COH_SCHEDULE_WSD ||
           (note->decay_steps <= schedule->schedule_steps &&
            schedule->warmup_steps <= schedule->schedule_steps - note->decay_steps);
}

static coh_status check_together(const coh_training_note *note)
{
    if (!has_own_decay(note))
        return coh_fail(
            COH_ERR_CORRUPT,
            "the checkpoint's note contradicts itself (schedule %s, decay_steps %" PRIu64
            "): use another checkpoint",
            coh_schedule_kind_name((coh_schedule_kind)note->schedule_kind), note->decay_steps);
    if (divides_batch(note) && has_rates_below_one(note))
        return COH_OK;
    return coh_fail(COH_ERR_CORRUPT,
                    "the checkpoint's note contradicts itself (batch %" PRId64
                    ", micro-batch %" PRId64 "): use another checkpoint",
                    note->batch, note->micro_batch);
}

/* Is it a note of a version that this reader knows? */
static int is_known(const json_t *note)
{
    const char *format = json_string_value(json_object_get(note, "format"));
    const json_int_t version = json_integer_value(json_object_get(note, "version"));
    return format && strcmp(format, "cohobate-note") == 0 && version >= NOTE_VERSION &&
           version <= NOTE_VERSION_SCHEDULED;
}

coh_status coh_training_note_read(const char *json, coh_training_note *out_note)
{
    COH_NEED(json);
    COH_NEED_STRUCT(coh_training_note, out_note);
    coh_training_note *read = NULL; /* too large for a small stack */
    json_t *note = coh_json_decode(json, strlen(json), JSON_REJECT_DUPLICATES, NULL);
    coh_status status = COH_OK;
    if (!is_known(note))
        status = coh_fail(COH_ERR_CORRUPT,
                          "the checkpoint holds no training note of version %d or %d: neither this "
                          "program's train nor coh_training_note_write wrote it, so it cannot be "
                          "resumed",
                          NOTE_VERSION, NOTE_VERSION_SCHEDULED);
    if (status == COH_OK)
        status = COH_ALLOC(1, &read);
    if (status == COH_OK)
        status = read_rows(note, read);
    if (status == COH_OK)
        status = check_together(read);
    if (status == COH_OK)
        COH_STRUCT_FILL(*read, out_note);
    coh_free(read);
    json_decref(note);
    return status;
}

/* ---- writing ---- */

static void put_numbers(const coh_pattern_numbers *list, const char *key, coh_json_writer *writer)
{
    coh_json_begin(writer, key, '[', COH_JSON_INLINE);
    for (int64_t i = 0; i < list->count; i++) {
        coh_json_begin(writer, NULL, '[', COH_JSON_INLINE);
        coh_json_put_text(writer, NULL, list->at[i].pattern);
        coh_json_put_real(writer, NULL, list->at[i].value);
        coh_json_end(writer);
    }
    coh_json_end(writer);
}

static void put_optimizers(const coh_pattern_optimizers *list, const char *key,
                           coh_json_writer *writer)
{
    coh_json_begin(writer, key, '[', COH_JSON_INLINE);
    for (int64_t i = 0; i < list->count; i++) {
        coh_json_begin(writer, NULL, '[', COH_JSON_INLINE);
        coh_json_put_text(writer, NULL, list->at[i].pattern);
        coh_json_put_text(writer, NULL, list->at[i].optimizer);
        coh_json_end(writer);
    }
    coh_json_end(writer);
}

static void put_row(const note_row *row, const coh_training_note *note, coh_json_writer *writer)
{
    const void *field = (const char *)note + row->offset;
    char fold[COH_FOLD_TEXT_BYTES];
    switch (row->type) {
    case NOTE_AMOUNT:
        coh_json_put(writer, row->key, "%" PRIu64, *(const uint64_t *)field);
        break;
    case NOTE_SEED:
        coh_json_put(writer, row->key,
                     *(const uint64_t *)field > INT64_MAX ? "\"%" PRIu64 "\"" : "%" PRIu64,
                     *(const uint64_t *)field);
        break;
    case NOTE_REAL:
        coh_json_put_real(writer, row->key, *(const double *)field);
        break;
    case NOTE_HEX:
        coh_json_put(writer, row->key, "\"%016" PRIx64 "\"", *(const uint64_t *)field);
        break;
    case NOTE_PATH:
    case NOTE_NAME:
        coh_json_put_text(writer, row->key, field);
        break;
    case NOTE_FOLD:
        (void)coh_fold_shape_write(field, fold); /* it was checked */
        coh_json_put_text(writer, row->key, fold);
        break;
    case NOTE_SCHEDULE:
        coh_json_put_text(writer, row->key,
                          coh_schedule_kind_name((coh_schedule_kind) * (const uint64_t *)field));
        break;
    case NOTE_FORS:
        put_numbers(field, row->key, writer);
        break;
    case NOTE_OPTIMIZERS:
        put_optimizers(field, row->key, writer);
        break;
    }
}

/* Do text and terminator lie within the `room` bytes of their array? */
static coh_status check_text(const char *key, const char *text, size_t room)
{
    if (memchr(text, '\0', room) != NULL)
        return COH_OK;
    return coh_fail(COH_ERR_ARGUMENT,
                    "'%s' of the training note does not end within its %zu bytes: end it with a 0 "
                    "byte",
                    key, room);
}

static coh_status check_real(const note_row *row, double value)
{
    if (isfinite(value) && value >= row->least)
        return COH_OK;
    return coh_fail(COH_ERR_ARGUMENT,
                    "'%s' of the training note holds %g: give a finite number of at least %g",
                    row->key, value, row->least);
}

static coh_status check_count(const char *key, int64_t count)
{
    if (count >= 0 && count <= COH_NOTE_PATTERNS)
        return COH_OK;
    return coh_fail(COH_ERR_ARGUMENT,
                    "'%s' of the training note lists %" PRId64 " patterns: give 0 to %d", key,
                    count, COH_NOTE_PATTERNS);
}

static coh_status check_fors(const note_row *row, const coh_pattern_numbers *list)
{
    COH_TRY(check_count(row->key, list->count));
    for (int64_t i = 0; i < list->count; i++) {
        COH_TRY(check_text(row->key, list->at[i].pattern, COH_PATTERN_BYTES));
        COH_TRY(check_real(row, list->at[i].value));
    }
    return COH_OK;
}

static coh_status check_optimizers(const note_row *row, const coh_pattern_optimizers *list)
{
    COH_TRY(check_count(row->key, list->count));
    for (int64_t i = 0; i < list->count; i++) {
        COH_TRY(check_text(row->key, list->at[i].pattern, COH_PATTERN_BYTES));
        COH_TRY(check_text(row->key, list->at[i].optimizer, COH_OPTIMIZER_NAME_BYTES));
    }
    return COH_OK;
}

/* Refuses what no reader would take, in a sentence for the caller that fills in the note. */
static coh_status check_row(const note_row *row, const coh_training_note *note)
{
    const void *field = (const char *)note + row->offset;
    char fold[COH_FOLD_TEXT_BYTES];
    coh_status status;
    switch (row->type) {
    case NOTE_AMOUNT:
        if (*(const uint64_t *)field <= INT64_MAX && (double)*(const uint64_t *)field >= row->least)
            return COH_OK;
        return coh_fail(COH_ERR_ARGUMENT,
                        "'%s' of the training note is out of range: give a whole number from %g to "
                        "2^63 - 1",
                        row->key, row->least);
    case NOTE_SEED:
    case NOTE_HEX:
        return COH_OK;
    case NOTE_REAL:
        return check_real(row, *(const double *)field);
    case NOTE_PATH:
        return check_text(row->key, field, COH_PATH_BYTES);
    case NOTE_NAME:
        return check_text(row->key, field, COH_OPTIMIZER_NAME_BYTES);
    case NOTE_FOLD:
        status = coh_fold_shape_write(field, fold);
        return status == COH_OK ? COH_OK
                                : coh_fail_prefix(status, "'%s' of the training note", row->key);
    case NOTE_SCHEDULE:
        if (*(const uint64_t *)field < COH_SCHEDULE_KIND_COUNT)
            return COH_OK;
        return coh_fail(COH_ERR_ARGUMENT,
                        "'%s' of the training note is %" PRIu64
                        ", which is no coh_schedule_kind: give one",
                        row->key, *(const uint64_t *)field);
    case NOTE_FORS:
        return check_fors(row, field);
    case NOTE_OPTIMIZERS:
        return check_optimizers(row, field);
    }
    return COH_OK;
}

/* Likewise what a reader would call a contradiction. */
static coh_status check_numbers(const coh_training_note *note)
{
    if (!divides_batch(note))
        return coh_fail(COH_ERR_ARGUMENT,
                        "'batch' of the training note is %" PRId64
                        ", which is no multiple of micro_batch (%" PRId64
                        ") times the replicas (%" PRId64 "): change one of them",
                        note->batch, note->micro_batch,
                        (int64_t)coh_fold_shape_replicas(&note->replicas));
    if (!has_rates_below_one(note))
        return coh_fail(COH_ERR_ARGUMENT,
                        "'beta1', 'beta2', 'dropout' and 'lora_dropout' of the training note are "
                        "%g, %g, %g and %g: each must be below 1",
                        note->beta1, note->beta2, note->dropout, note->lora_dropout);
    if (!has_own_decay(note))
        return coh_fail(COH_ERR_ARGUMENT,
                        "'decay_steps' of the training note is %" PRIu64
                        " and its schedule %s: give 1 or more to wsd, and 0 to all others",
                        note->decay_steps,
                        coh_schedule_kind_name((coh_schedule_kind)note->schedule_kind));
    if (!has_room_for_decay(note))
        return coh_fail(COH_ERR_ARGUMENT,
                        "a warm-up of %" PRIu64 " steps and a decay of %" PRIu64
                        " are longer than the schedule of %" PRIu64
                        " in the training note: lower 'decay_steps' or 'warmup_steps', or raise "
                        "'schedule_steps'",
                        note->schedule.warmup_steps, note->decay_steps,
                        note->schedule.schedule_steps);
    return COH_OK;
}

static coh_status put_all(const coh_training_note *note, const char *model_json, coh_text *text)
{
    coh_json_writer writer = { .text = text };
    coh_json_begin(&writer, NULL, '{', COH_JSON_INLINE);
    coh_json_put_text(&writer, "format", "cohobate-note");
    coh_json_put(&writer, "version", "%d",
                 note->schedule_kind == COH_SCHEDULE_COSINE ? NOTE_VERSION
                                                            : NOTE_VERSION_SCHEDULED);
    coh_json_put(&writer, "model", "%s", model_json);
    for (int i = 0; i < NOTE_ROW_COUNT; i++)
        put_row(&note_rows[i], note, &writer);
    coh_json_end(&writer);
    return writer.status;
}

/* Reads back what was written, so that whatever a reader would refuse is refused now. */
static coh_status check_written(const char *text, coh_training_note *room)
{
    char sentence[COH_ERROR_TEXT_BYTES];
    json_t *parsed = coh_json_decode(text, strlen(text), 0, NULL);
    if (!parsed)
        return coh_fail(COH_ERR_ARGUMENT,
                        "the paths of model, tokenizer or data are not UTF-8, so no checkpoint "
                        "could name them: rename what is not");
    json_decref(parsed);
    room->struct_bytes = sizeof(*room);
    if (coh_training_note_read(text, room) == COH_OK)
        return COH_OK;
    coh_error_save(sentence);
    return coh_fail(COH_ERR_ARGUMENT, "this would be no valid note: %s", sentence);
}

static coh_status write_note(const coh_training_note *note, const coh_model *model,
                             coh_training_note *room, coh_text *text)
{
    char model_json[COH_MODEL_JSON_BYTES];
    for (int i = 0; i < NOTE_ROW_COUNT; i++)
        COH_TRY(check_row(&note_rows[i], note));
    COH_TRY(check_numbers(note));
    COH_TRY(coh_model_to_json(model, model_json, sizeof(model_json)));
    if (put_all(note, model_json, text) != COH_OK)
        return coh_fail(COH_ERR_ARGUMENT,
                        "paths and patterns are too long for a checkpoint's note (%zu bytes): use "
                        "shorter ones",
                        text->capacity);
    return check_written(text->data, room);
}

coh_status coh_training_note_write(const coh_training_note *note, const coh_model *model,
                                   char *text, size_t text_bytes)
{
    coh_text fixed = { .data = text, .capacity = text_bytes, .is_fixed = 1 };
    coh_training_note *known = NULL; /* two: too large for a small stack */
    COH_NEED_STRUCT(coh_training_note, note);
    COH_NEED(model);
    COH_NEED(text);
    COH_TRY(COH_ALLOC(2, &known));
    coh_training_note_init(known);
    coh_struct_read(note, known, sizeof(*known));
    const coh_status status = write_note(known, model, known + 1, &fixed);
    coh_free(known);
    return status;
}
