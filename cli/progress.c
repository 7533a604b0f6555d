/* Formats the line of progress. The one idea: its parts are in order of importance. If they do not
 * fit, they are shortened; then the first one that does not fit ends the line. Lines of prose are
 * wrapped here, too. Next: report.c and cmd_watch.c, which print progress. */
#include "cli/progress.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { COLUMNS_USUAL = 80, COLUMNS_LEAST = 40, PARTS = 5, PART_BYTES = 128, LABEL = 8 };

size_t cli_terminal_columns(int descriptor)
{
    struct winsize size;
    return ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col
                                                                        : COLUMNS_USUAL;
}

/* Returns COLUMNS of the environment; 0: none, or not a positive number. */
static int columns_given(void)
{
    const char *text = getenv("COLUMNS");
    char *end = NULL;
    const long columns = text ? strtol(text, &end, 10) : 0;
    return columns > 0 && columns < INT_MAX && *end == '\0' ? (int)columns : 0;
}

int cli_prose_columns(int descriptor, int usual)
{
    struct winsize size;
    int columns = usual;
    const int given = columns_given();
    if (given > 0)
        columns = given;
    else if (ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        columns = size.ws_col;
    return columns < COLUMNS_LEAST ? COLUMNS_LEAST : columns;
}

/* ---- lines of prose ---- */

static size_t is_character(char byte)
{
    return ((unsigned char)byte & 0xc0) != 0x80; /* not a later byte of one in UTF-8 */
}

/* Returns the length of the words that fit in `columns`, or of the first if it does not. The blanks
 * of the first `label` bytes separate no words. */
static size_t words_that_fit(const char *text, size_t length, size_t label, size_t columns)
{
    size_t fitting = 0, wide = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] == ' ' && i > label && (wide <= columns || fitting == 0))
            fitting = i;
        wide += is_character(text[i]);
        if (wide > columns && fitting > 0)
            return fitting;
    }
    return length;
}

static size_t characters_that_fit(const char *text, size_t length, size_t columns)
{
    size_t fitting = 0;
    for (size_t wide = 0; fitting < length; fitting++) {
        wide += is_character(text[fitting]);
        if (wide > columns)
            break;
    }
    return fitting;
}

void cli_prose_wrap(const char *text, size_t columns, int cuts_words, cli_line *line)
{
    size_t indent = 0;
    while (*text) {
        const size_t length = strcspn(text, "\n"), room = columns - indent;
        size_t fitting = words_that_fit(text, length, LABEL - indent, room);
        if (cuts_words && characters_that_fit(text, length, room) < fitting)
            fitting = characters_that_fit(text, length, room);
        cli_line_add(line, "%*s%.*s\n", (int)indent, "", (int)fitting, text);
        indent = fitting < length ? LABEL : 0;
        text += fitting + (text[fitting] == ' ' || text[fitting] == '\n');
    }
}

/* A text that was too long for its buffer has no end of line. */
static coh_status write_plain(int descriptor, const char *text)
{
    const size_t length = strlen(text);
    CLI_TRY(cli_write(descriptor, text, length));
    return length == 0 || text[length - 1] == '\n' ? COH_OK : cli_write(descriptor, "\n", 1);
}

coh_status cli_prose_write(int descriptor, const char *text)
{
    cli_line line, wrapped;
    if (!isatty(descriptor))
        return write_plain(descriptor, text);
    const size_t columns = (size_t)cli_prose_columns(descriptor, COLUMNS_USUAL);
    while (*text) {
        const size_t length = strcspn(text, "\n");
        cli_line_clear(&line);
        cli_line_clear(&wrapped);
        cli_line_add(&line, "%.*s\n", (int)length, text);
        cli_prose_wrap(line.text, columns, 0, &wrapped);
        CLI_TRY(cli_write(descriptor, wrapped.text, wrapped.used));
        text += length + (text[length] == '\n');
    }
    return COH_OK;
}

/* ---- what takes its time ---- */

#define LATER_MOST_S 600.0

/* The thread that prints lines until `ends`. */
static struct {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int is_started, ends; /* `ends` under the lock */
    double first_s;
    char subject[128];
} lines = { .lock = PTHREAD_MUTEX_INITIALIZER };

double cli_progress_next(double at_s)
{
    return at_s + (2 * at_s < LATER_MOST_S ? 2 * at_s : LATER_MOST_S);
}

/* A time of the monotonic clock. */
static struct timespec time_of(double seconds)
{
    const double whole = floor(seconds);
    return (struct timespec){ .tv_sec = (time_t)whole, .tv_nsec = (long)((seconds - whole) * 1e9) };
}

static void *print_lines(void *unused)
{
    const double begin_s = cli_seconds_now();
    double next_s = lines.first_s;
    (void)unused;
    pthread_mutex_lock(&lines.lock);
    while (!lines.ends) {
        const struct timespec next = time_of(begin_s + next_s);
        if (pthread_cond_timedwait(&lines.changed, &lines.lock, &next) != ETIMEDOUT || lines.ends)
            continue;
        cli_note("%s: %s so far", lines.subject, cli_time(cli_seconds_now() - begin_s).at);
        next_s = cli_progress_next(next_s > 0 ? next_s : LATER_MOST_S);
    }
    pthread_mutex_unlock(&lines.lock);
    return NULL;
}

/* Without the thread there are no lines, which is no reason to fail. It takes no signals: those
 * that stop a run belong to the thread that runs it. */
static void start_lines(double first_s)
{
    pthread_condattr_t monotonic;
    sigset_t all, before;
    lines.ends = 0;
    lines.first_s = first_s;
    if (pthread_condattr_init(&monotonic) != 0)
        return;
    const int is_made = pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC) == 0 &&
                        pthread_cond_init(&lines.changed, &monotonic) == 0;
    pthread_condattr_destroy(&monotonic);
    if (!is_made)
        return;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    lines.is_started = pthread_create(&lines.thread, NULL, print_lines, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (lines.is_started)
        (void)pthread_setname_np(lines.thread, "coh-progress");
    else
        pthread_cond_destroy(&lines.changed);
}

static void end_lines(void)
{
    if (!lines.is_started)
        return;
    pthread_mutex_lock(&lines.lock);
    lines.ends = 1;
    pthread_cond_signal(&lines.changed);
    pthread_mutex_unlock(&lines.lock);
    pthread_join(lines.thread, NULL);
    pthread_cond_destroy(&lines.changed);
    lines.is_started = 0;
}

void cli_progress_begin(const char *what, const char *of, double first_s)
{
    snprintf(lines.subject, sizeof(lines.subject), "%s %s", what, of);
    /* a line that is wrapped could not be removed */
    const size_t columns = cli_terminal_columns(STDERR_FILENO) - 1;
    if (isatty(STDERR_FILENO))
        (void)cli_write(STDERR_FILENO, lines.subject, strnlen(lines.subject, columns));
    else
        start_lines(first_s);
}

void cli_progress_end(void)
{
    end_lines();
    if (isatty(STDERR_FILENO))
        (void)cli_write(STDERR_FILENO, "\r\x1b[K", 4);
}

/* ---- the line of a run ---- */

/* Adds a part, after two spaces if it is not the first, and returns 1; 0 if it does not fit. */
static int add_part(const char *part, size_t begin, size_t columns, cli_line *line)
{
    const size_t gap = line->used > begin ? 2 : 0;
    if (columns > 0 && line->used - begin + gap + strlen(part) > columns)
        return 0;
    cli_line_add(line, "%*s%s", (int)gap, "", part);
    return 1;
}

static void step_part(const cli_progress *p, char part[PART_BYTES])
{
    if (p->last_step > 0)
        snprintf(part, PART_BYTES, "step %" PRIu64 "/%" PRIu64, p->step, p->last_step);
    else
        snprintf(part, PART_BYTES, "step %" PRIu64, p->step);
}

static void loss_part(const cli_progress *p, char part[PART_BYTES])
{
    if (isfinite(p->loss))
        snprintf(part, PART_BYTES, "loss %.4f", p->loss);
    else
        snprintf(part, PART_BYTES, "loss not finite");
}

/* Below one percent in all there is nothing to name. */
static void waits_part(const cli_progress *p, int is_short, char part[PART_BYTES])
{
    int most = 0;
    double sum = 0;
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        sum += p->waits[lane];
        most = p->waits[lane] > p->waits[most] ? lane : most;
    }
    if (!(sum >= 0.01))
        snprintf(part, PART_BYTES, "no waits");
    else
        snprintf(part, PART_BYTES, is_short ? "%.0f %% %s" : "waits %.0f %% for %s",
                 100 * p->waits[most], coh_lane_name((coh_lane)most));
}

/* Fills the parts without the memory, and returns their number. */
static int fill_parts(const cli_progress *p, int is_short, char parts[PARTS][PART_BYTES])
{
    int count = 0;
    step_part(p, parts[count++]);
    loss_part(p, parts[count++]);
    if (isfinite(p->tokens_per_s))
        snprintf(parts[count++], PART_BYTES, "%.*f %s", p->tokens_per_s < 100 ? 1 : 0,
                 p->tokens_per_s, is_short ? "tok/s" : "tokens/s");
    if (p->left_s > 0 && isfinite(p->left_s))
        snprintf(parts[count++], PART_BYTES, "%s left%s", cli_time(p->left_s).at,
                 p->is_predicted && !is_short ? " (predicted)" : "");
    waits_part(p, is_short, parts[count++]);
    return count;
}

void cli_progress_add(const cli_progress *p, size_t columns, cli_line *line)
{
    const size_t begin = line->used;
    char parts[PARTS + COH_TIER_COUNT][PART_BYTES];
    size_t sum = 0;
    int count = fill_parts(p, 0, parts);
    for (int i = 0; i < count; i++)
        sum += strlen(parts[i]) + (i > 0 ? 2 : 0);
    if (columns > 0 && sum > columns)
        count = fill_parts(p, 1, parts);
    for (int tier = 0; tier < COH_TIER_COUNT; tier++)
        if (p->peak_bytes[tier] > 0)
            snprintf(parts[count++], PART_BYTES, "%s %s", coh_tier_name((coh_tier)tier),
                     cli_size(p->peak_bytes[tier]).at);
    for (int i = 0; i < count && add_part(parts[i], begin, columns, line); i++)
        ;
}

/* ---- a loss over windows ---- */

#define REWRITE_S 0.1

void cli_scoring_begin(const char *what, cli_scoring *out_scoring)
{
    const double now = cli_seconds_now();
    const int terminal = isatty(STDERR_FILENO);
    *out_scoring = (cli_scoring){
        .what = what, .terminal = terminal, .begun = now, .shown = terminal ? NAN : now
    };
}

void cli_scoring_show(cli_scoring *scoring, double now, uint64_t done, uint64_t total,
                      int64_t counted, double loss)
{
    char parts[4][PART_BYTES];
    int count = 0;
    cli_line line;
    const double passed_s = now - scoring->begun;
    if (now - scoring->shown < (scoring->terminal ? REWRITE_S : CLI_PROGRESS_PLAIN_S))
        return;
    snprintf(parts[count++], PART_BYTES, "%.40s, window %" PRIu64 "/%" PRIu64, scoring->what, done,
             total);
    if (isfinite(loss))
        snprintf(parts[count++], PART_BYTES, "loss %.4f", loss);
    if (passed_s > 0 && done > 0) {
        const double rate = (double)counted / passed_s;
        snprintf(parts[count++], PART_BYTES, "%.*f tokens/s", rate < 100 ? 1 : 0, rate);
        if (done < total)
            snprintf(parts[count++], PART_BYTES, "%s left",
                     cli_time(passed_s / (double)done * (double)(total - done)).at);
    }
    cli_line_clear(&line);
    if (scoring->terminal)
        cli_line_add(&line, "\r");
    /* The last column stays free: some terminals wrap when it is written. */
    const size_t begin = line.used;
    const size_t columns = scoring->terminal ? cli_terminal_columns(STDERR_FILENO) - 1 : 0;
    for (int i = 0; i < count && add_part(parts[i], begin, columns, &line); i++)
        ;
    cli_line_add(&line, scoring->terminal ? "\033[K" : "\n");
    (void)cli_write(STDERR_FILENO, line.text, line.used);
    scoring->shown = now;
}

void cli_scoring_end(cli_scoring *scoring)
{
    if (scoring->terminal && isfinite(scoring->shown))
        (void)cli_write(STDERR_FILENO, "\r\033[K", 4);
    scoring->shown = NAN;
}
