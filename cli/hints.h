/* hints.h - what other options of a run would bring: lines of a plan's screen.
 *
 * Every figure is of a plan that was made, by the quick search; a hint without one has no figure.
 */
#ifndef COH_CLI_HINTS_H
#define COH_CLI_HINTS_H

#include "cli/job.h"

enum { CLI_HINTS_MOST = 7 };

/* One change of the options. */
typedef struct cli_hint {
    const char *label; /* "states", "both", "clip", "order", "tokens", "batch" or "try" */
    char text[320];    /* the line, without its label */
} cli_hint;

typedef struct cli_hints {
    int count;
    cli_hint at[CLI_HINTS_MOST];
} cli_hints;

/* Makes up to six more plans, each as `plan --search quick` makes it, and finds those that are
 * worth a change. Nothing is planned for a plan of a file, or a step of more than 30,000
 * instructions, for which one hint names what to try. */
void cli_hints_find(const cli_job *job, cli_hints *out_hints);

/* The flag of 8-bit moments for the job's dtype: "--state lean" or "--optimizer adamw8". */
const char *cli_lean_flag(const cli_job *job);
/* May it have them: are its states AdamW's, and chosen by nobody else? Then plans with them. */
int cli_lean_is_free(const cli_job *job);
void cli_lean_take(coh_plan_options *options);
/* Likewise of clipping by the norm of the step before: do updates wait for the norm, and did no
 * flag ask for that? */
int cli_clip_previous_is_free(const cli_job *job);
void cli_clip_previous_take(coh_plan_options *options);

#endif
