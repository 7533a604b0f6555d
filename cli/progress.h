/* progress.h - the line that shows how a run goes:
 *
 *     step 340/1000  loss 3.2145  1673 tokens/s  13 min 29 s left  waits 31 % for read
 *
 * train prints it while it runs, watch when its output is a pipe. On a terminal the line is
 * rewritten in place and never longer than the terminal is wide, since a wrapped line could not be
 * rewritten. Elsewhere there is a line at the first step and at most one in ten seconds. */
#ifndef COH_CLI_PROGRESS_H
#define COH_CLI_PROGRESS_H

#include "cli/say.h"

enum { CLI_PROGRESS_PLAIN_S = 10 };

typedef struct cli_progress {
    uint64_t step, last_step;     /* last_step 0: not known */
    double loss;                  /* not finite: the step was left out */
    double tokens_per_s;          /* NaN: not known yet */
    double left_s;                /* 0: none; NaN: not known */
    int is_predicted;             /* left_s is the plan's */
    double waits[COH_LANE_COUNT]; /* shares of the time, by the lane that compute waits for */
    uint64_t peak_bytes[COH_TIER_COUNT]; /* 0: not shown */
} cli_progress;

/* Adds the line without its end, in at most `columns` columns (0: any number), shorter if needed:
 *
 *     step 34000/100000  loss 3.2145  16730 tok/s  13 min 29 s left  31 % read */
void cli_progress_add(const cli_progress *progress, size_t columns, cli_line *line);

/* Show that something takes its time, which ends before the next begins. A terminal has "planning
 * gpt2-xl" until the end. Elsewhere a separate thread prints the line
 *
 *     planning gpt2-xl: 20.0 s so far
 *
 * once `first_s` have passed, and then rarely, so that the log of a batch system shows life.
 * Nothing is printed about what ends before. */
void cli_progress_begin(const char *what, const char *of, double first_s);
void cli_progress_end(void);

/* For planning: most plans take less, and print nothing. */
#define CLI_PROGRESS_FIRST_S 20.0

/* Shows how far a loss over the windows of a text is:
 *
 *     eval, window 64/977  loss 3.2145  1673 tokens/s  40.1 s left
 *
 * A terminal has the line from the first windows on, rewritten in place and removed at the end.
 * Elsewhere a line is printed every ten seconds, so that short texts print none. */
typedef struct cli_scoring {
    const char *what;
    int terminal;
    double begun, shown; /* times; shown NaN: not yet, on a terminal */
} cli_scoring;

void cli_scoring_begin(const char *what, cli_scoring *out_scoring);
/* Shows the line if it is due at `now` (cli_seconds_now): `done` of `total` windows are scored,
 * `counted` targets with the mean `loss`. Allocates nothing. */
void cli_scoring_show(cli_scoring *scoring, double now, uint64_t done, uint64_t total,
                      int64_t counted, double loss);
/* Removes the line from a terminal. */
void cli_scoring_end(cli_scoring *scoring);

/* The time of the next line after one at `at_s`: three times as late, at most ten minutes later. */
double cli_progress_next(double at_s);

/* The columns of the terminal `descriptor`; 80 if it does not say. */
size_t cli_terminal_columns(int descriptor);

/* Columns in which lines of prose are wrapped on `descriptor`: COLUMNS of the environment, which
 * watch(1) sets, or the terminal's width; at least 40. `usual`: if neither is known. */
int cli_prose_columns(int descriptor, int usual);
/* Adds lines of UTF-8, broken at blanks so that they have at most `columns` (40 or more). The
 * continuations are indented. A longer word is cut, or is whole on a longer line. */
void cli_prose_wrap(const char *text, size_t columns, int cuts_words, cli_line *line);
/* Writes lines, wrapped on a terminal. Words are whole, since paths are copied. */
coh_status cli_prose_write(int descriptor, const char *text);

#endif
