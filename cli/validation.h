/* validation.h - keeps the validation results of a run: the lowest losses, and the number of
 * consecutive validations that were no better. They determine the best checkpoint and an early end
 * of the run. They are stored in every checkpoint's note, so that a resumed run continues with
 * them:
 *
 *     "validated": {"loss": 2.31, "windows": 731, "best": 2.29, "best_of_some": null,
 *                   "some_windows": 0, "worse_in_row": 1}
 *
 * "loss" is that of the checkpoint itself over all windows; null: it was not validated. Losses over
 * different windows are not compared: validations over --validation-windows have a separate best.
 * A step that was stopped before its validation, or in it, has "due": true, and the resumed run
 * validates it first. One after which --stop-after-worse ended the run has "ended": true.
 * Notes of another validation text (another validation_hash) are ignored. */
#ifndef COH_CLI_VALIDATION_H
#define COH_CLI_VALIDATION_H

#include "cli/say.h"

enum { CLI_VALIDATION_NOTE_BYTES = 352 }; /* maximum size of the added text */

typedef struct cli_validations {
    double best, best_of_some; /* over all windows, over some_windows; INFINITY: none yet */
    uint64_t some_windows;     /* --validation-windows; 0: all validations use all windows */
    uint64_t worse_in_row;     /* validations since the last one that was the best of its kind */
    /* the last validation */
    double loss;                 /* NaN: none yet */
    uint64_t step, window_count; /* after this many steps, over this many windows */
    int is_of_all;               /* over all windows */
    /* of the step of a note */
    int is_due;    /* a stop came before its validation or in it */
    int has_ended; /* --stop-after-worse ended the run after it */
} cli_validations;

/* Resets the results to none. */
void cli_validations_clear(uint64_t some_windows, cli_validations *out_validations);

/* Records a validation after `step` steps. A loss that is not finite is never the best. */
void cli_validations_take(cli_validations *validations, uint64_t step, double loss,
                          uint64_t window_count, int is_of_all);

/* The loss of step `step` over all windows; NaN: unknown. */
double cli_validations_loss_at(const cli_validations *validations, uint64_t step);

/* Adds "validated" to a checkpoint's note (a JSON object) of step `step`. Allocates nothing. */
void cli_validations_add_note(const cli_validations *validations, uint64_t step, cli_line *note);

/* Continues from the note of a checkpoint whose validation text has hash `validation_hash`; starts
 * empty if the note is of another text, or too old. */
void cli_validations_from_note(const char *note_json, uint64_t validation_hash,
                               uint64_t some_windows, cli_validations *out_validations);

/* "loss" of a note of that validation text; NaN: none. */
double cli_validations_note_loss(const char *note_json, uint64_t validation_hash);

#endif
