/* cohobate watch: shows a run while it trains. The one idea: look at the folder once a second, draw
 * what was found, end when the run has ended. Next: report/live.h for the folder, watch.h for the
 * screen, terminal.h. */
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/progress.h"
#include "cli/terminal.h"
#include "cli/watch.h"

enum { LOOK_MS = 1000 };

static double seconds_since_1970(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static cli_view view_of(const cli_options *options, int is_terminal)
{
    const char *no_colour = getenv("NO_COLOR");
    cli_view view = { .columns = 80, .rows = 24, .now = seconds_since_1970() };
    view.is_ascii = options->ascii || !cli_locale_is_utf8();
    view.has_colour = is_terminal && !(no_colour && no_colour[0]);
    if (is_terminal)
        cli_terminal_size(&view.columns, &view.rows);
    return view;
}

/* Looks until everything is read, without showing it. */
static coh_status look_at_all(report_live *live)
{
    int is_more = 1;
    while (is_more)
        CLI_TRY(report_live_look(live, &is_more));
    return COH_OK;
}

/* Prints how the run ended, on one line, since a line broken within its command could not be
 * copied. */
static coh_status print_end(const report_live *live)
{
    cli_line end;
    cli_line_clear(&end);
    cli_watch_add_end(live, &end);
    cli_line_add(&end, "\n");
    return cli_write(STDOUT_FILENO, end.text, end.used);
}

/* Prints the screen as lines that stay, and how the run ended. */
static coh_status print_last(const report_live *live, const cli_options *options, int is_terminal)
{
    cli_line screen;
    cli_view view = view_of(options, is_terminal);
    view.rows -= is_terminal ? 2 : 0; /* of the sentence and the shell */
    cli_line_clear(&screen);
    cli_watch_draw(live, &view, "", &screen);
    while (screen.used > 1 && screen.text[screen.used - 2] == '\n')
        screen.used--; /* one empty line, not two */
    CLI_TRY(cli_write(STDOUT_FILENO, screen.text, screen.used));
    return print_end(live);
}

/* ---- on a terminal ---- */

static coh_status show(const report_live *live, const cli_options *options,
                       const cli_terminal *terminal)
{
    cli_line screen, status;
    cli_view view = view_of(options, 1);
    view.has_keys = terminal->has_keys;
    cli_line_clear(&screen);
    cli_line_clear(&status);
    cli_watch_add_status(live, &view, &status);
    cli_watch_draw(live, &view, status.text, &screen);
    return cli_terminal_show(screen.text);
}

/* Draws until the run ends, q, or a signal that ends the process: *out_signal. */
static coh_status follow(report_live *live, const cli_options *options, cli_terminal *terminal,
                         int *out_signal)
{
    for (;;) {
        int is_more;
        CLI_TRY(report_live_look(live, &is_more));
        CLI_TRY(show(live, options, terminal));
        if (!live->is_going && !is_more)
            return COH_OK;
        const int key = cli_terminal_wait(terminal, is_more ? 0 : LOOK_MS);
        *out_signal = key < 0 ? -key : 0;
        if (key < 0 || key == 'q' || key == 'Q')
            return COH_OK;
    }
}

static coh_status watch_on_terminal(report_live *live, const cli_options *options)
{
    cli_terminal terminal;
    int number = 0;
    CLI_TRY(cli_terminal_take(&terminal));
    const coh_status status = follow(live, options, &terminal, &number);
    cli_terminal_give_back(&terminal);
    if (number > 0) { /* ends as any program does that it was sent to */
        (void)signal(number, SIG_DFL);
        (void)raise(number);
    }
    CLI_TRY(status);
    return print_last(live, options, 1);
}

/* ---- in a pipe ---- */

typedef struct printed {
    uint64_t line_count, validation_count, saved_step;
    double at; /* monotonic seconds; NaN: never */
} printed;

static coh_status print_step(const report_live *live, printed *was)
{
    const report_line *last = report_live_last(live);
    const double steps = live->run.facts.steps;
    report_pace pace;
    cli_line line;
    if (!last || was->line_count == live->line_count)
        return COH_OK;
    report_live_pace(live, &pace);
    cli_progress progress = { .step = last->step,
                              .last_step = steps > 0 ? (uint64_t)steps : 0,
                              .loss = last->loss,
                              .tokens_per_s = pace.tokens_per_s,
                              .left_s = live->is_going ? pace.left_s : NAN };
    memcpy(progress.waits, pace.waits, sizeof(progress.waits));
    was->line_count = live->line_count;
    was->at = cli_seconds_now();
    cli_line_clear(&line);
    cli_progress_add(&progress, 0, &line);
    cli_line_add(&line, "\n");
    return cli_write(STDOUT_FILENO, line.text, line.used);
}

/* Adds a validation and a save that are new, of steps from `first` to `last`. */
static void add_kept(const report_live *live, uint64_t first, uint64_t last, printed *was,
                     cli_line *line)
{
    const report_line *tested = &live->validation;
    if (was->validation_count != live->validation_count && tested->step >= first &&
        tested->step <= last) {
        cli_line_add(line, "step %u  validation loss %s over %.0f of %.0f windows\n", tested->step,
                     cli_loss(tested->loss).at, tested->windows, tested->windows_total);
        was->validation_count = live->validation_count;
    }
    if (was->saved_step != live->saved_step && live->saved_step >= first &&
        live->saved_step <= last) {
        cli_line_add(line, "step %" PRIu64 "  saved\n", live->saved_step);
        was->saved_step = live->saved_step;
    }
}

/* Prints what is new, in the order of steps. Of a resumed run, a checkpoint may be of a later
 * step than the lines that were read before it was found: it waits for the next look. */
static coh_status print_changes(const report_live *live, printed *was)
{
    const report_line *last = report_live_last(live);
    const uint64_t step = last ? last->step : 0;
    cli_line line;
    cli_line_clear(&line);
    if (step > 0)
        add_kept(live, 1, step - 1, was, &line);
    CLI_TRY(cli_line_write(&line, STDOUT_FILENO));
    if (!(cli_seconds_now() - was->at < CLI_PROGRESS_PLAIN_S) || !live->is_going)
        CLI_TRY(print_step(live, was));
    add_kept(live, step, live->is_going ? step : UINT64_MAX, was, &line);
    return cli_line_write(&line, STDOUT_FILENO);
}

static coh_status watch_in_pipe(report_live *live)
{
    printed was = { .at = NAN };
    for (;;) {
        CLI_TRY(look_at_all(live));
        CLI_TRY(print_changes(live, &was));
        if (!live->is_going)
            break;
        (void)poll(NULL, 0, LOOK_MS);
    }
    return print_end(live);
}

coh_status cli_watch(const cli_options *options)
{
    report_live *live = calloc(1, sizeof(*live));
    if (!live)
        return cli_fail(COH_ERR_MEMORY, "no memory for watching a run");
    coh_status status = report_live_open(options->operand, live);
    if (status == COH_OK && options->once) {
        status = look_at_all(live);
        if (status == COH_OK)
            status = print_last(live, options, cli_terminal_is_there());
    } else if (status == COH_OK && cli_terminal_is_there()) {
        status = watch_on_terminal(live, options);
    } else if (status == COH_OK) {
        status = watch_in_pipe(live);
    }
    report_live_close(live);
    free(live);
    return status;
}
