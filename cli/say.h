/* say.h - prints messages: formats text into existing buffers and writes it with write(2).
 *
 * Nothing here allocates, so a training step may use it: snprintf into a fixed line, then one
 * write. Only commands that do not train use stdio.
 *
 * A failing function of this program sets the error message like the library (cli_fail) and returns
 * the status; only main prints the message, once. */
#ifndef COH_CLI_SAY_H
#define COH_CLI_SAY_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "cohobate/cohobate.h"

#define cli_fail coh_kind_fail

#define CLI_TRY(call)                                                                              \
    do {                                                                                           \
        coh_status cli_try_status_ = (call);                                                       \
        if (cli_try_status_ != COH_OK)                                                             \
            return cli_try_status_;                                                                \
    } while (0)

#define CLI_TRY_GOTO(status, call, label)                                                          \
    do {                                                                                           \
        (status) = (call);                                                                         \
        if ((status) != COH_OK)                                                                    \
            goto label;                                                                            \
    } while (0)

enum { CLI_PATH_BYTES = 4096, CLI_LINE_BYTES = 12288 };

/* Text in a buffer of fixed size. Text that does not fit is cut off and `cut` is set. */
typedef struct cli_line {
    size_t used;
    int cut;
    char flushed; /* the last byte that cli_line_flush printed; 0: none */
    char text[CLI_LINE_BYTES];
} cli_line;

void cli_line_clear(cli_line *line);
void cli_line_add(cli_line *line, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Adds `text` as one word of a shell command, quoted if necessary. */
void cli_line_add_word(cli_line *line, const char *text);

/* Adds JSON, printf-like, after a comma if a value is before it:
 *
 *     cli_line_add_json(&line, "{'path': %s, 'step': %" PRIu64 ", 'valid': %i}", ...);
 *
 * In `format` ' stands for ". %s is a text, quoted and escaped (U+FFFD in place of bytes that are
 * not UTF-8), or null for NULL; %i is true or false. A real number that is not finite becomes null;
 * "%.17g" reads back as the same bits. Whole numbers are int, or have 64 bits. */
void cli_line_add_json(cli_line *line, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Adds bytes [COH_TIER_COUNT] as an object: "key": {"device": ..., "host": ..., "disk": ...}. */
void cli_line_add_json_tiers(cli_line *line, const char *key, const uint64_t *bytes);
/* Prints the text so far to stdio's standard output, and continues with an empty buffer: for JSON
 * of any length. */
void cli_line_flush(cli_line *line);
/* Likewise to `descriptor`. Fails: as cli_fail_lost. */
coh_status cli_line_write(cli_line *line, int descriptor);

/* Fails with COH_ERR_IO: a result was not written, with the system's reason; `error` is an errno, 0
 * if it is unknown. All commands say it by this. */
coh_status cli_fail_lost(int error);

/* Writes all bytes to `descriptor`, repeating short writes. Fails: as cli_fail_lost. */
coh_status cli_write(int descriptor, const void *bytes, size_t byte_count);

/* Returns what to do about a file that cannot be opened; `error` is an errno. */
const char *cli_open_remedy(int error);

/* Puts the cause, usually a flag, before the current error message. Returns `status`. */
coh_status cli_blame(coh_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Print one line and a newline: cli_note to standard error, at once; cli_print to stdio's standard
 * output, which main flushes (cli_flush). */
void cli_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
void cli_print(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Flushes stdio's standard output. Fails: as cli_fail_lost, also if an earlier write failed. */
coh_status cli_flush(void);
/* Flushes it while a command runs. cli_flush reports errors. */
void cli_send(void);

/* Returns 1 if cli_print, cli_line_flush, cli_write or cli_send has sent anything to standard
 * output. */
int cli_has_printed(void);

/* As cli_note, but not if the same text was printed by it or by cli_note_choice before: plans that
 * are made for the rows of a table share most notes. */
void cli_note_once(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* 1: cli_note_once and cli_note_choice print nothing, as while a report plans a run again: its
 * choices are past. Returns the earlier value, to be set again. */
int cli_choices_drop(int drops);

/* Prints a choice of a run, as cli_note, once the run is accepted: between cli_choices_hold and
 * cli_choices_release these lines are kept, and printed by release. A run that is refused never
 * releases them, so nothing about it is printed but the refusal. Each text once, as by
 * cli_note_once. */
void cli_note_choice(const char *format, ...) __attribute__((format(printf, 1, 2)));
void cli_choices_hold(void);
void cli_choices_release(void);

/* A formatted value, for an argument of printf: cli_size(bytes).at */
typedef struct cli_text {
    char at[32];
} cli_text;

/* Sets *out_form to the character at text[0..left) inside a JSON string, escaped if necessary, and
 * returns its length. Bytes that are not UTF-8 become U+FFFD as with Python's errors="replace": one
 * for the longest prefix of a character, at least one byte. */
size_t cli_json_character(const char *text, size_t left, cli_text *out_form);

/* "3.1416", or "not finite". */
cli_text cli_loss(double loss);

/* "1.50 GiB": coh_size_format. */
cli_text cli_size(uint64_t bytes);

/* "1 step", "2 steps": for nouns whose plural ends in s. */
cli_text cli_count(uint64_t count, const char *noun);
/* "step", "2 steps", after "every". */
cli_text cli_every(uint64_t count, const char *noun);

/* "device", "host" or "disk"; without a GPU the host tier is "emulated host". */
const char *cli_tier_name(int tier, int is_gpu);

/* "512MiB", "3GB": the exact value, in the largest unit that divides it. */
cli_text cli_size_whole(uint64_t bytes);

/* "161.1GiB": at least `bytes`, to be typed: coh_size_round_up. */
cli_text cli_size_enough(uint64_t bytes);

/* "2.731TB/day": at least `bytes` in a day, to be typed: coh_daily_round_up. */
cli_text cli_daily_enough(uint64_t bytes);

/* "12.4 s", "3 min 20 s", "5 h 12 min", and from two days on "3.5 days", "2.1 years". */
cli_text cli_time(double seconds);

/* "6e-4", "0.05", "1.23456789e-3": a rate or a factor as on the command line, in the fewest digits
 * that give it back; the short form has at most six. */
cli_text cli_rate(double number);
cli_text cli_rate_short(double number);

/* As cli_time; returns `text` (at least 32 bytes). */
const char *cli_duration(double seconds, char *text);

double cli_seconds_now(void); /* monotonic */

/* 1: this process prints nothing from here on, since another one prints the same. */
void cli_say_nothing(int is_silent);

#endif
