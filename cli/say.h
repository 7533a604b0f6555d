/* say.h - how the program talks: text into buffers that exist already, out by write(2).
 *
 * Nothing here allocates, so a training step may use it: snprintf into a fixed line, one write.
 * Stdio is left to the commands that run no training.
 *
 * A failing function of this program sets the sentence like the library does (cli_fail) and passes
 * the status up; only main prints it, once. */
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

/* Text that grows in storage it carries. What does not fit is cut and `cut` set. */
typedef struct cli_line {
    size_t used;
    int cut;
    char text[CLI_LINE_BYTES];
} cli_line;

void cli_line_clear(cli_line *line);
void cli_line_add(cli_line *line, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* "text" in quotes, escaped as JSON has it; bytes above 0x7e pass through. */
void cli_line_add_json_string(cli_line *line, const char *text);
/* `text` as one word of a command that is pasted into a shell: in quotes where it must be. */
void cli_line_add_word(cli_line *line, const char *text);
/* A double that reads back as the same bits; NaN and infinity become null. */
void cli_line_add_json_number(cli_line *line, double number);

/* All bytes to `descriptor`, whatever short writes. Fails: COH_ERR_IO with errno's text. */
coh_status cli_write(int descriptor, const void *bytes, size_t byte_count);

/* Puts what is to blame, a flag as a rule, before the sentence that is there. Returns `status`. */
coh_status cli_blame(coh_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* One line to standard error, at once / to stdio's standard output, which main flushes and asks
 * whether anything was lost; a newline is added. */
void cli_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
void cli_print(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* "12.4 s", "3 min 20 s", "5 h 12 min", from two on "3.5 days", "2.1 years". Returns `text` (at
 * least 32 bytes). */
const char *cli_duration(double seconds, char *text);

/* "512MiB", "3GB": all of it, in the largest unit that it is a whole number of. Returns `text` (at
 * least 32 bytes). */
const char *cli_size_whole(uint64_t bytes, char *text);

/* "6e-4", "0.05", "1": a rate or a factor to six digits, as it is given on the command line.
 * Returns `text` (at least 32 bytes). */
const char *cli_rate(double number, char *text);

double cli_seconds_now(void); /* monotonic */

/* The names of plan lanes and tiers, in order (plan.h). */
extern const char *const cli_lane_names[COH_PLAN_LANES];
extern const char *const cli_tier_names[COH_PLAN_TIERS];

#endif
