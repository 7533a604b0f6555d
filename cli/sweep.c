/* Parses the points of a --sweep. The one idea: a point is text again ("device-memory=8GB"), so a
 * sweep is a list of what-ifs. Next: variants.c plans each point. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/variants.h"

/* A value of an entry: bytes, bytes per second, or a factor. */
typedef struct value {
    double number;
    int is_factor, is_rate;
} value;

static coh_status refuse(const char *text, const char *why)
{
    return cli_fail(COH_ERR_ARGUMENT,
                    "--sweep %.100s: %s: for example --sweep device-memory=8GB:40GB, with :4GB for "
                    "steps of that or :9 for 9 points",
                    text, why);
}

static int read_factor(const char *text, value *out_value)
{
    char *end = NULL;
    double number = strtod(text, &end);
    if (end == text || strcmp(end, "x") != 0 || !(number > 0 && number <= 1e6))
        return 0;
    *out_value = (value){ .number = number, .is_factor = 1 };
    return 1;
}

static int read_value(const char *text, value *out_value)
{
    char copy[48];
    uint64_t bytes = 0;
    size_t length = strlen(text);
    if (read_factor(text, out_value))
        return 1;
    const int is_rate = length > 2 && strcmp(text + length - 2, "/s") == 0;
    length -= is_rate ? 2 : 0;
    if (length >= sizeof(copy))
        return 0;
    memcpy(copy, text, length);
    copy[length] = '\0';
    if (coh_size_parse(copy, &bytes) != COH_OK || bytes == 0)
        return 0;
    *out_value = (value){ .number = (double)bytes, .is_rate = is_rate };
    return 1;
}

static int read_count(const char *text, int *out_count)
{
    char *end = NULL;
    errno = 0;
    long count = strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno || count < 2 || count > CLI_SWEEP_POINTS)
        return 0;
    *out_count = (int)count;
    return 1;
}

/* Writes the value in the largest unit that divides it. */
static void write_point(const char *entry, double number, const value *like, char *out_text,
                        size_t bytes)
{
    if (like->is_factor) {
        snprintf(out_text, bytes, "%.24s=%.6gx", entry, number);
        return;
    }
    snprintf(out_text, bytes, "%.24s=%s%s", entry, cli_size_whole((uint64_t)number).at,
             like->is_rate ? "/s" : "");
}

/* Parses "8GB", "40GB"; *out_rest is the text after them, or NULL. */
static coh_status read_range(const char *text, char *range, value *out_from, value *out_to,
                             const char **out_rest)
{
    char *colon = strchr(range, ':');
    char *rest = colon ? strchr(colon + 1, ':') : NULL;
    if (!colon)
        return refuse(text, "it has no FROM:TO");
    *colon = '\0';
    if (rest)
        *rest = '\0';
    if (!read_value(range, out_from) || !read_value(colon + 1, out_to))
        return refuse(text, "FROM and TO are sizes with their unit, rates or factors");
    if (out_from->is_factor != out_to->is_factor || out_from->is_rate != out_to->is_rate)
        return refuse(text, "FROM and TO are not of one kind");
    if (!(out_from->number < out_to->number))
        return refuse(text, "FROM is not below TO, so it has no points");
    *out_rest = rest ? rest + 1 : NULL;
    return COH_OK;
}

coh_status cli_sweep_read(const char *text, cli_sweep *out_sweep)
{
    char copy[128], *equals;
    const char *rest = NULL;
    value from = { 0 }, to = { 0 }, step = { 0 };
    int count = CLI_SWEEP_POINTS_USUAL;
    if (strlen(text) >= sizeof(copy))
        return refuse(text, "it is too long");
    snprintf(copy, sizeof(copy), "%s", text);
    equals = strchr(copy, '=');
    if (!equals || equals == copy)
        return refuse(text, "it names no entry");
    *equals = '\0';
    if (coh_profile_check_entry(copy) != COH_OK)
        return cli_blame(COH_ERR_ARGUMENT, "--sweep %.100s", text);
    CLI_TRY(read_range(text, equals + 1, &from, &to, &rest));
    double by = (to.number - from.number) / (count - 1);
    if (rest && read_count(rest, &count)) {
        by = (to.number - from.number) / (count - 1);
    } else if (rest) {
        if (!read_value(rest, &step) || step.is_factor != from.is_factor ||
            step.is_rate != from.is_rate)
            return refuse(text, "after the second colon comes a step of the same kind, or from 2 "
                                "to 64 points");
        by = step.number;
        if (floor((to.number - from.number) / by) >= CLI_SWEEP_POINTS)
            return refuse(text, "it has more than 64 points");
        count = (int)floor((to.number - from.number) / by + 1e-9) + 1;
    }
    out_sweep->count = count;
    for (int i = 0; i < count; i++)
        write_point(copy, from.number + i * by, &from, out_sweep->entries[i],
                    sizeof(out_sweep->entries[i]));
    return COH_OK;
}
