/* Keeps validation results and stores them in notes. The one idea: losses over all windows and over
 * some windows are compared separately. Next: train_loop.c, the caller. */
#include "cli/validation.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

void cli_validations_clear(uint64_t some_windows, cli_validations *out_validations)
{
    *out_validations = (cli_validations){
        .best = INFINITY, .best_of_some = INFINITY, .some_windows = some_windows, .loss = NAN
    };
}

void cli_validations_take(cli_validations *validations, uint64_t step, double loss,
                          uint64_t window_count, int is_of_all)
{
    double *best = is_of_all ? &validations->best : &validations->best_of_some;
    validations->loss = loss;
    validations->step = step;
    validations->window_count = window_count;
    validations->is_of_all = is_of_all;
    if (loss < *best) {
        *best = loss;
        validations->worse_in_row = 0;
    } else {
        validations->worse_in_row++;
    }
}

double cli_validations_loss_at(const cli_validations *validations, uint64_t step)
{
    return validations->step == step && validations->is_of_all ? validations->loss : NAN;
}

/* ---- notes ---- */

void cli_validations_add_note(const cli_validations *validations, uint64_t step, cli_line *note)
{
    const double loss = cli_validations_loss_at(validations, step);
    note->used--; /* removes the closing brace */
    cli_line_add_json(note,
                      "'validated': {'loss': %.17g, 'windows': %" PRIu64
                      ", 'best': %.17g, 'best_of_some': %.17g, 'some_windows': %" PRIu64
                      ", 'worse_in_row': %" PRIu64,
                      loss, isfinite(loss) ? validations->window_count : 0, validations->best,
                      validations->best_of_some, validations->some_windows,
                      validations->worse_in_row);
    if (validations->is_due)
        cli_line_add_json(note, "'due': true");
    if (validations->has_ended)
        cli_line_add_json(note, "'ended': true");
    cli_line_add_json(note, "}}");
}

/* Finds "validated" in a note of that validation text; NULL: there is none. Borrowed from
 * *out_note, which the caller releases. */
static const json_t *find_validated(const char *note_json, uint64_t validation_hash,
                                    json_t **out_note)
{
    *out_note = json_loads(note_json, 0, NULL);
    const char *hash = json_string_value(json_object_get(*out_note, "validation_hash"));
    if (!hash || strtoull(hash, NULL, 16) != validation_hash)
        return NULL;
    return json_object_get(*out_note, "validated");
}

static double number_or(const json_t *object, const char *key, double otherwise)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : otherwise;
}

void cli_validations_from_note(const char *note_json, uint64_t validation_hash,
                               uint64_t some_windows, cli_validations *out_validations)
{
    json_t *note;
    const json_t *found = find_validated(note_json, validation_hash, &note);
    cli_validations_clear(some_windows, out_validations);
    out_validations->best = number_or(found, "best", INFINITY);
    if (number_or(found, "some_windows", 0) == (double)some_windows)
        out_validations->best_of_some = number_or(found, "best_of_some", INFINITY);
    const double worse = number_or(found, "worse_in_row", 0);
    out_validations->worse_in_row = worse > 0 && worse < 1e18 ? (uint64_t)worse : 0;
    out_validations->is_due = json_is_true(json_object_get(found, "due"));
    out_validations->has_ended = json_is_true(json_object_get(found, "ended"));
    json_decref(note);
}

double cli_validations_note_loss(const char *note_json, uint64_t validation_hash)
{
    json_t *note;
    const double loss = number_or(find_validated(note_json, validation_hash, &note), "loss", NAN);
    json_decref(note);
    return loss;
}
