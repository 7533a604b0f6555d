/* Formats and writes messages without allocation. The one idea: a cli_line is a fixed buffer that
 * remembers whether text was cut off. Next: report.c, screen.c, the main users. */
#include "cli/say.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void cli_line_clear(cli_line *line)
{
    line->used = 0;
    line->cut = 0;
    line->text[0] = '\0';
}

/* Accounts for what vsnprintf wrote to the `room` bytes at the line's end; `wanted` is its
 * result. */
static void take_up(cli_line *line, size_t room, int wanted)
{
    if (wanted < 0 || (size_t)wanted >= room) {
        line->cut = 1;
        line->used = sizeof(line->text) - 1;
        line->text[line->used] = '\0';
        return;
    }
    line->used += (size_t)wanted;
}

void cli_line_add(cli_line *line, const char *format, ...)
{
    va_list arguments;
    size_t room = sizeof(line->text) - line->used;
    va_start(arguments, format);
    take_up(line, room, vsnprintf(line->text + line->used, room, format, arguments));
    va_end(arguments);
}

void cli_line_add_json_string(cli_line *line, const char *text)
{
    cli_line_add(line, "\"");
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\')
            cli_line_add(line, "\\%c", *c);
        else if (*c < 0x20 || *c == 0x7f)
            cli_line_add(line, "\\u%04x", *c);
        else
            cli_line_add(line, "%c", *c);
    }
    cli_line_add(line, "\"");
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

void cli_line_add_json_number(cli_line *line, double number)
{
    if (isfinite(number))
        cli_line_add(line, "%.17g", number);
    else
        cli_line_add(line, "null");
}

coh_status cli_write(int descriptor, const void *bytes, size_t byte_count)
{
    const char *next = bytes;
    while (byte_count > 0) {
        ssize_t written = write(descriptor, next, byte_count);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return cli_fail(COH_ERR_IO,
                            "the output could not be written: %s: send it where there is room",
                            strerror(errno));
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
    take_up(&line, sizeof(line.text), vsnprintf(line.text, sizeof(line.text), format, arguments));
    va_end(arguments);
    return cli_fail(status, "%s: %s", line.text, why);
}

static void end_line(cli_line *line)
{
    if (line->used == sizeof(line->text) - 1)
        line->used--;
    line->text[line->used++] = '\n';
}

static void fill_line(cli_line *line, const char *format, va_list arguments)
{
    cli_line_clear(line);
    take_up(line, sizeof(line->text), vsnprintf(line->text, sizeof(line->text), format, arguments));
    end_line(line);
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

void cli_print(const char *format, ...)
{
    cli_line line;
    va_list arguments;
    va_start(arguments, format);
    fill_line(&line, format, arguments);
    va_end(arguments);
    (void)fwrite(line.text, 1, line.used, stdout);
}

const char *cli_size_whole(uint64_t bytes, char *text)
{
    static const struct {
        const char *name;
        uint64_t bytes;
    } units[] = { { "TB", 1000000000000 }, { "GiB", (uint64_t)1 << 30 },
                  { "GB", 1000000000 },    { "MiB", (uint64_t)1 << 20 },
                  { "MB", 1000000 },       { "KiB", (uint64_t)1 << 10 },
                  { "kB", 1000 },          { "B", 1 } };
    enum { TEXT_BYTES = 32 };
    size_t unit = 0;
    while (bytes % units[unit].bytes != 0)
        unit++;
    snprintf(text, TEXT_BYTES, "%" PRIu64 "%s", bytes / units[unit].bytes, units[unit].name);
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

const char *cli_rate(double number, char *text)
{
    enum { TEXT_BYTES = 32 };
    if (number == 0 || fabs(number) >= 0.01) {
        snprintf(text, TEXT_BYTES, "%g", number);
        return text;
    }
    snprintf(text, TEXT_BYTES, "%.5e", number); /* "6.00000e-04" */
    char *exponent = strchr(text, 'e');
    char *end = exponent;
    if (!exponent)
        return text; /* not a number */
    while (end[-1] == '0')
        end--;
    end -= end[-1] == '.';
    const int power = atoi(exponent + 1);
    snprintf(end, TEXT_BYTES - (size_t)(end - text), "e%d", power);
    return text;
}

double cli_seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}
