/* watch.h - draws a run while it trains: the screen of cohobate watch, and the sentence at its end.
 *
 *     report_live (the run's folder) ──> cli_watch_draw ──> lines of text ──> terminal or pipe
 *
 * Every number is the folder's own. Next: report/live.h reads it, cmd_watch.c prints it. */
#ifndef COH_CLI_WATCH_H
#define COH_CLI_WATCH_H

#include "cli/say.h"
#include "report/live.h"

enum { CLI_WATCH_COLUMNS = 120, CLI_WATCH_ROWS = 28 }; /* the largest screen: it fits a cli_line */

typedef struct cli_view {
    int columns, rows;
    int is_ascii;
    int has_colour; /* escape codes for bold, dim and red */
    int has_keys;   /* q quits; else only signals do */
    double now;     /* seconds since 1970 */
} cli_view;

/* Adds the screen: at most `rows` lines of at most `columns` columns, each with its end. The last
 * one is `status`. */
void cli_watch_draw(const report_live *live, const cli_view *view, const char *status,
                    cli_line *line);

/* Adds the last line of a screen while the run continues. */
void cli_watch_add_status(const report_live *live, const cli_view *view, cli_line *line);

/* Adds one sentence or two, without an end: how the run ended, or that it continues. */
void cli_watch_add_end(const report_live *live, cli_line *line);

/* Fails with COH_ERR_CORRUPT, how the run in `folder` ended and the remedy, if it has no
 * checkpoint. Otherwise, or if it is no run's folder, returns COH_OK and keeps the last error's
 * text. */
coh_status cli_watch_check_saved(const char *folder);

#endif
