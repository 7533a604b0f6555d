/* Formats numbers for people: three or four digits and a unit. Next: text.c and page.c print
 * them. */
#include "report/format.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cohobate/cohobate.h"

static report_text missing(void)
{
    return (report_text){ "-" };
}

/* Prints `value` divided by the largest unit that it reaches. */
static report_text scaled(double value, const double *units, const char *const *names)
{
    report_text text;
    int unit = 0;
    while (units[unit + 1] > 0 && fabs(value) < units[unit] * 0.9995)
        unit++;
    const double part = value / units[unit];
    snprintf(text.at, sizeof(text.at), "%.*f%s",
             fabs(part) >= 99.95   ? 0
             : fabs(part) >= 9.995 ? 1
                                   : 2,
             part, names[unit]);
    return text;
}

report_text report_time(double seconds)
{
    static const double units[] = { 1, 1e-3, 1e-6, 1e-9, 0 };
    static const char *const names[] = { " s", " ms", " µs", " ns" };
    report_text text;
    if (!isfinite(seconds))
        return missing();
    if (seconds == 0)
        return (report_text){ "0 s" };
    if (seconds < 1000)
        return scaled(seconds, units, names);
    if (seconds < 100 * 3600.0)
        snprintf(text.at, sizeof(text.at), "%.0f h %02.0f min", floor(seconds / 3600),
                 floor(fmod(seconds, 3600) / 60));
    else
        snprintf(text.at, sizeof(text.at), "%.1f days", seconds / 86400);
    return text;
}

report_text report_size(double bytes)
{
    report_text text;
    if (!isfinite(bytes) || bytes < 0 || bytes >= 0x1p63)
        return missing();
    coh_size_format((uint64_t)bytes, text.at, sizeof(text.at));
    return text;
}

report_text report_rate(double bytes_per_s)
{
    static const double units[] = { 1e9, 1e6, 1e3, 1, 0 };
    static const char *const names[] = { " GB/s", " MB/s", " kB/s", " B/s" };
    return isfinite(bytes_per_s) ? scaled(bytes_per_s, units, names) : missing();
}

report_text report_written(double bytes)
{
    static const double units[] = { 1e15, 1e12, 1e9, 1e6, 1e3, 1, 0 };
    static const char *const names[] = { " PB", " TB", " GB", " MB", " kB", " B" };
    return isfinite(bytes) ? scaled(bytes, units, names) : missing();
}

const char *report_limit(const char *name)
{
    return strcmp(name, "phase") == 0 ? "transfer phase" : name;
}

report_text report_count(double number)
{
    static const double units[] = { 1e12, 1e9, 1e6, 1e3, 1, 0 };
    static const char *const names[] = { " T", " G", " M", " k", "" };
    report_text text;
    if (!isfinite(number))
        return missing();
    if (fabs(number) >= 1e4)
        return scaled(number, units, names);
    snprintf(text.at, sizeof(text.at), "%.10g",
             number == floor(number) ? number : round(number * 10) / 10);
    return text;
}

report_text report_percent(double share)
{
    report_text text;
    if (!isfinite(share))
        return missing();
    snprintf(text.at, sizeof(text.at), "%.1f %%", 100 * share);
    return text;
}

report_text report_change(double share)
{
    report_text text;
    if (!isfinite(share))
        return missing();
    snprintf(text.at, sizeof(text.at), "%+.1f %%", 100 * share);
    return text;
}

report_text report_real(double number)
{
    report_text text;
    if (!isfinite(number))
        return missing();
    snprintf(text.at, sizeof(text.at), "%.4g", number);
    return text;
}
