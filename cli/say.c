/* Formats and writes messages without allocation. The one idea: a cli_line is a fixed buffer that
 * remembers whether text was cut off. Next: report.c, screen.c, the main users. */
#include "cli/say.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int says_nothing;
static int has_printed; /* anything to standard output */

void cli_say_nothing(int is_silent)
{
    says_nothing = is_silent;
}

void cli_line_clear(cli_line *line)
{
    line->used = 0;
    line->cut = 0;
    line->flushed = '\0';
    line->text[0] = '\0';
}

static void add_list(cli_line *line, const char *format, va_list arguments)
{
    const size_t room = sizeof(line->text) - line->used;
    const int wanted = vsnprintf(line->text + line->used, room, format, arguments);
    line->cut |= wanted < 0 || (size_t)wanted >= room;
    line->used = line->cut ? sizeof(line->text) - 1 : line->used + (size_t)wanted;
    line->text[line->used] = '\0';
}

void cli_line_add(cli_line *line, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    add_list(line, format, arguments);
    va_end(arguments);
}

void cli_line_add_word(cli_line *line, const char *text)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_/.,:=@%+-";
    if (text[0] && text[strspn(text, plain)] == '\0') {
        cli_line_add(line, "%s", text);
        return;
    }
    cli_line_add(line, "'");
    for (const char *c = text; *c; c++)
        cli_line_add(line, *c == '\'' ? "'\\''" : "%c", *c);
    cli_line_add(line, "'");
}

/* The length of a character by its first byte; 0: no character begins so. */
static size_t announced(unsigned char first)
{
    if (first < 0x80)
        return 1;
    if (first < 0xc2 || first > 0xf4)
        return 0;
    return first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

/* The second byte excludes overlong forms, surrogates and code points above U+10FFFF. */
static int may_follow(unsigned char first, unsigned char second)
{
    const unsigned char least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    const unsigned char most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    return second >= least && second <= most;
}

/* Returns the length of the character at text[0..left), or of the bytes that one U+FFFD
 * replaces. */
static size_t character(const unsigned char *text, size_t left, int *out_is_whole)
{
    const size_t length = announced(text[0]);
    size_t count = 1;
    while (count < length && count < left &&
           (count == 1 ? may_follow(text[0], text[1]) : (text[count] & 0xc0) == 0x80))
        count++;
    *out_is_whole = count == length;
    return count;
}

size_t cli_json_character(const char *text, size_t left, cli_text *out_form)
{
    const unsigned char *c = (const unsigned char *)text;
    int is_whole;
    const size_t length = character(c, left, &is_whole);
    if (!is_whole)
        snprintf(out_form->at, sizeof(out_form->at), "\\ufffd");
    else if (*c == '"' || *c == '\\')
        snprintf(out_form->at, sizeof(out_form->at), "\\%c", *c);
    else if (*c < 0x20 || *c == 0x7f)
        snprintf(out_form->at, sizeof(out_form->at), "\\u%04x", *c);
    else
        snprintf(out_form->at, sizeof(out_form->at), "%.*s", (int)length, text);
    return length;
}

static void add_string(cli_line *line, const char *text)
{
    cli_text form;
    if (!text) {
        cli_line_add(line, "null");
        return;
    }
    cli_line_add(line, "\"");
    for (size_t left = strlen(text), length; left > 0; left -= length, text += length) {
        length = cli_json_character(text, left, &form);
        cli_line_add(line, "%s", form.at);
    }
    cli_line_add(line, "\"");
}

/* Adds the value of one conversion, "%s" or "%.9f". */
static void add_value(cli_line *line, const char *conversion, va_list *arguments)
{
    const char type = conversion[strlen(conversion) - 1];
    if (type == 's') {
        add_string(line, va_arg(*arguments, const char *));
    } else if (type == 'i') {
        cli_line_add(line, va_arg(*arguments, int) ? "true" : "false");
    } else if (strchr("efg", type)) {
        const double number = va_arg(*arguments, double);
        cli_line_add(line, isfinite(number) ? conversion : "null", number);
    } else if (strchr(conversion, 'l')) {
        const uint64_t number = va_arg(*arguments, uint64_t);
        cli_line_add(line, conversion, number);
    } else {
        const int number = va_arg(*arguments, int);
        cli_line_add(line, conversion, number);
    }
}

void cli_line_add_json(cli_line *line, const char *format, ...)
{
    va_list arguments;
    const char before = line->used ? line->text[line->used - 1] : line->flushed;
    if (before && !strchr("{[ ", before) && !strchr("]}", *format))
        cli_line_add(line, ", ");
    va_start(arguments, format);
    for (const char *at = format; *at; at++) {
        char conversion[16];
        if (*at == '%') {
            const size_t length = 2 + strspn(at + 1, "0123456789.l");
            snprintf(conversion, sizeof(conversion), "%.*s", (int)length, at);
            add_value(line, conversion, &arguments);
            at += length - 1;
        } else {
            cli_line_add(line, "%c", *at == '\'' ? '"' : *at);
        }
    }
    va_end(arguments);
}

void cli_line_add_json_tiers(cli_line *line, const char *key, const uint64_t *bytes)
{
    cli_line_add_json(line, "%s: {", key);
    for (int tier = 0; tier < COH_TIER_COUNT; tier++)
        cli_line_add_json(line, "%s: %" PRIu64, coh_tier_name(tier), bytes[tier]);
    cli_line_add_json(line, "}");
}

void cli_line_flush(cli_line *line)
{
    const char last = line->used ? line->text[line->used - 1] : line->flushed;
    has_printed |= line->used > 0;
    if (!says_nothing)
        (void)fwrite(line->text, 1, line->used, stdout);
    cli_line_clear(line);
    line->flushed = last;
}

coh_status cli_line_write(cli_line *line, int descriptor)
{
    const char last = line->used ? line->text[line->used - 1] : line->flushed;
    const coh_status status = cli_write(descriptor, line->text, line->used);
    cli_line_clear(line);
    line->flushed = last;
    return status;
}

coh_status cli_fail_lost(int error)
{
    return cli_fail(COH_ERR_IO, "the output could not be written%s%s: %s", error != 0 ? ": " : "",
                    error != 0 ? strerror(error) : "",
                    error == EFBIG ? "raise the limit of file sizes (ulimit -f)"
                                   : "send it where there is room");
}

const char *cli_open_remedy(int error)
{
    return error == EMFILE ? "raise the limit of open files (ulimit -n)"
                           : "see to its rights, or give another";
}

void cli_send(void)
{
    has_printed = 1;
    (void)fflush(stdout);
}

int cli_has_printed(void)
{
    return has_printed;
}

/* An earlier write may have failed with nothing left for fflush to report: stdio keeps that there
 * was an error, but not its reason. One more byte then asks the system for the reason again (a
 * write of none reports no full disk). If the reason is gone, it ends the damaged line. */
coh_status cli_flush(void)
{
    if (fflush(stdout) != 0)
        return cli_fail_lost(errno);
    if (!ferror(stdout))
        return COH_OK;
    CLI_TRY(cli_write(STDOUT_FILENO, "\n", 1));
    return cli_fail_lost(0);
}

coh_status cli_write(int descriptor, const void *bytes, size_t byte_count)
{
    const char *next = bytes;
    has_printed |= descriptor == STDOUT_FILENO && byte_count > 0;
    if (says_nothing && (descriptor == STDOUT_FILENO || descriptor == STDERR_FILENO))
        return COH_OK;
    while (byte_count > 0) {
        ssize_t written = write(descriptor, next, byte_count);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return cli_fail_lost(errno);
        next += written;
        byte_count -= (size_t)written;
    }
    return COH_OK;
}

coh_status cli_blame(coh_status status, const char *format, ...)
{
    cli_line line;
    char why[1024];
    va_list arguments;
    snprintf(why, sizeof(why), "%s", coh_last_error());
    cli_line_clear(&line);
    va_start(arguments, format);
    add_list(&line, format, arguments);
    va_end(arguments);
    return cli_fail(status, "%s: %s", line.text, why);
}

/* Sets the line to a text and a newline. */
static void fill_line(cli_line *line, const char *format, va_list arguments)
{
    cli_line_clear(line);
    add_list(line, format, arguments);
    line->used -= line->used == sizeof(line->text) - 1;
    line->text[line->used++] = '\n';
}

void cli_note(const char *format, ...)
{
    cli_line line;
    va_list arguments;
    va_start(arguments, format);
    fill_line(&line, format, arguments);
    va_end(arguments);
    (void)cli_write(STDERR_FILENO, line.text, line.used);
}

static int drops_choices;

int cli_choices_drop(int drops)
{
    const int before = drops_choices;
    drops_choices = drops;
    return before;
}

/* Was this line printed before? Rows of a table are planned one after the other, and share most
 * notes. Lines that find no room are printed again. */
static int was_said(const cli_line *line)
{
    static cli_line said;
    if (said.used > 0 && strstr(said.text, line->text))
        return 1;
    if (said.used + line->used < sizeof(said.text))
        cli_line_add(&said, "%s", line->text);
    return 0;
}

/* Sets the line to a text and a newline. Returns 0 if it is not to be printed. */
static int fill_new(cli_line *line, const char *format, va_list arguments)
{
    if (drops_choices)
        return 0;
    fill_line(line, format, arguments);
    line->text[line->used < sizeof(line->text) ? line->used : sizeof(line->text) - 1] = '\0';
    return !was_said(line);
}

void cli_note_once(const char *format, ...)
{
    cli_line line;
    va_list arguments;
    va_start(arguments, format);
    const int is_new = fill_new(&line, format, arguments);
    va_end(arguments);
    if (is_new)
        (void)cli_write(STDERR_FILENO, line.text, line.used);
}

static int holds;
static cli_line held;

void cli_note_choice(const char *format, ...)
{
    cli_line line;
    va_list arguments;
    va_start(arguments, format);
    const int is_new = fill_new(&line, format, arguments);
    va_end(arguments);
    if (!is_new)
        return;
    if (held.used + line.used >= sizeof(held.text)) { /* then at once is better than never */
        (void)cli_write(STDERR_FILENO, held.text, held.used);
        cli_line_clear(&held);
    }
    if (holds)
        cli_line_add(&held, "%.*s", (int)line.used, line.text);
    else
        (void)cli_write(STDERR_FILENO, line.text, line.used);
}

void cli_choices_hold(void)
{
    holds = 1;
}

void cli_choices_release(void)
{
    (void)cli_write(STDERR_FILENO, held.text, held.used);
    cli_line_clear(&held);
    holds = 0;
}

void cli_print(const char *format, ...)
{
    cli_line line;
    va_list arguments;
    va_start(arguments, format);
    fill_line(&line, format, arguments);
    va_end(arguments);
    has_printed = 1;
    if (!says_nothing)
        (void)fwrite(line.text, 1, line.used, stdout);
}

/* ---- values ---- */

cli_text cli_loss(double loss)
{
    cli_text text = { "not finite" };
    if (isfinite(loss))
        snprintf(text.at, sizeof(text.at), "%.4f", loss);
    return text;
}

cli_text cli_size(uint64_t bytes)
{
    cli_text text;
    (void)coh_size_format(bytes, text.at, sizeof(text.at));
    return text;
}

const char *cli_tier_name(int tier, int is_gpu)
{
    return tier == COH_TIER_HOST && !is_gpu ? "emulated host" : coh_tier_name(tier);
}

cli_text cli_count(uint64_t count, const char *noun)
{
    cli_text text;
    snprintf(text.at, sizeof(text.at), "%" PRIu64 " %s%s", count, noun, count == 1 ? "" : "s");
    return text;
}

cli_text cli_every(uint64_t count, const char *noun)
{
    cli_text text = cli_count(count, noun);
    if (count == 1)
        snprintf(text.at, sizeof(text.at), "%s", noun);
    return text;
}

cli_text cli_size_whole(uint64_t bytes)
{
    static const struct {
        const char *name;
        uint64_t bytes;
    } units[] = { { "TB", 1000000000000 }, { "GiB", (uint64_t)1 << 30 },
                  { "GB", 1000000000 },    { "MiB", (uint64_t)1 << 20 },
                  { "MB", 1000000 },       { "KiB", (uint64_t)1 << 10 },
                  { "kB", 1000 },          { "B", 1 } };
    cli_text text;
    size_t unit = 0;
    while (bytes % units[unit].bytes != 0)
        unit++;
    snprintf(text.at, sizeof(text.at), "%" PRIu64 "%s", bytes / units[unit].bytes,
             units[unit].name);
    return text;
}

cli_text cli_size_enough(uint64_t bytes)
{
    cli_text text;
    (void)coh_size_round_up(bytes, text.at, sizeof(text.at));
    return text;
}

cli_text cli_daily_enough(uint64_t bytes)
{
    cli_text text;
    (void)coh_daily_round_up(bytes, text.at, sizeof(text.at));
    return text;
}

cli_text cli_time(double seconds)
{
    cli_text text;
    (void)cli_duration(seconds, text.at);
    return text;
}

const char *cli_duration(double seconds, char *text)
{
    enum { TEXT_BYTES = 32, DAY_S = 86400, YEAR_S = 365 * DAY_S };
    if (!(seconds >= 0))
        seconds = 0;
    if (seconds < 1)
        snprintf(text, TEXT_BYTES, seconds < 0.1 ? "%.3g ms" : "%.0f ms", seconds * 1e3);
    else if (seconds < 60)
        snprintf(text, TEXT_BYTES, "%.1f s", seconds);
    else if (seconds < 3600)
        snprintf(text, TEXT_BYTES, "%d min %02d s", (int)(seconds / 60), (int)seconds % 60);
    else if (seconds < 2 * DAY_S)
        snprintf(text, TEXT_BYTES, "%d h %02d min", (int)(seconds / 3600),
                 (int)(seconds / 60) % 60);
    else if (seconds < 2 * YEAR_S)
        snprintf(text, TEXT_BYTES, "%.1f days", seconds / DAY_S);
    else
        snprintf(text, TEXT_BYTES, "%.1f years", seconds / YEAR_S);
    return text;
}

static cli_text rate_text(double number, int digits)
{
    cli_text text;
    snprintf(text.at, sizeof(text.at), "%.*g", digits, number);
    if (number == 0 || !(fabs(number) < 0.01))
        return text;
    snprintf(text.at, sizeof(text.at), "%.*e", digits - 1, number); /* "6.00000e-04" */
    char *exponent = strchr(text.at, 'e'), *end = exponent;
    const int power = atoi(exponent + 1);
    while (end[-1] == '0')
        end--;
    end -= end[-1] == '.';
    snprintf(end, sizeof(text.at) - (size_t)(end - text.at), "e%d", power);
    return text;
}

/* Does the text read back as the number? A float in a double need only be the same float, and a
 * product (a lowest rate of a tenth of 6e-4) may be off by the rounding of its last bit. */
static int restores(const cli_text *text, double number)
{
    const double read = strtod(text->at, NULL);
    if ((double)(float)number == number)
        return (float)read == (float)number;
    return fabs(read - number) <= fabs(number) * DBL_EPSILON;
}

cli_text cli_rate(double number)
{
    int digits = 6;
    cli_text text = rate_text(number, digits);
    while (isfinite(number) && digits < DBL_DECIMAL_DIG && !restores(&text, number))
        text = rate_text(number, ++digits);
    return text;
}

cli_text cli_rate_short(double number)
{
    return rate_text(number, 6);
}

double cli_seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}
