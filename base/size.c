/* Parses and prints sizes with units (coh_size_parse, coh_size_format in cohobate/machine.h). Uses
 * only integers: a size is exact or refused. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/bytes.h"
#include "base/check.h"
#include "cohobate/machine.h"

__extension__ typedef unsigned __int128 wide;

typedef struct unit {
    const char *name;
    uint64_t bytes;
} unit;

static const unit units[] = {
    { "B", 1 },
    { "KB", 1000 },
    { "MB", 1000000 },
    { "GB", 1000000000 },
    { "TB", 1000000000000 },
    { "KiB", (uint64_t)1 << 10 },
    { "MiB", (uint64_t)1 << 20 },
    { "GiB", (uint64_t)1 << 30 },
    { "TiB", (uint64_t)1 << 40 },
};

/* Returns the bytes of a unit. "kB" is the standard spelling; a lower-case b would mean bits. */
static uint64_t unit_bytes(const char *name)
{
    size_t length = strlen(name);
    if (length == 0 || name[length - 1] != 'B')
        return 0;
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
        if (strcasecmp(name, units[i].name) == 0)
            return units[i].bytes;
    return 0;
}

/* Reads digits at *text as a number and moves *text past them. Returns their count, -1 beyond 64
 * bits. */
static int digits_read(const char **text, uint64_t *out_value)
{
    int count = 0;
    uint64_t value = 0;
    for (; **text >= '0' && **text <= '9'; (*text)++, count++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(**text - '0'), &value))
            return -1;
    *out_value = value;
    return count;
}

/* Returns unit_count * 0.fraction, rounded down. Digits after the 18th are less than a byte of a
 * TiB. */
static uint64_t fraction_bytes(const char *digits, int count, uint64_t unit_count)
{
    uint64_t fraction = 0, scale = 1;
    for (int i = 0; i < count && i < 18; i++) {
        fraction = fraction * 10 + (uint64_t)(digits[i] - '0');
        scale *= 10;
    }
    return (uint64_t)((wide)fraction * unit_count / scale);
}

static coh_status refuse_overflow(const char *text)
{
    return coh_fail(COH_ERR_ARGUMENT, "'%.40s' is more than 64 bits can count", text);
}

coh_status coh_size_parse(const char *text, uint64_t *out_bytes)
{
    COH_NEED(out_bytes);
    *out_bytes = 0;
    if (text == NULL)
        return coh_fail(COH_ERR_ARGUMENT, "no size given: write one as 64MiB or 40GB");

    const char *at = text;
    uint64_t whole = 0, bytes = 0;
    int digit_count = digits_read(&at, &whole);
    if (digit_count < 0)
        return refuse_overflow(text);
    const char *fraction = *at == '.' ? at + 1 : at;
    int fraction_digits = *at == '.' ? (int)strspn(fraction, "0123456789") : 0;
    if (digit_count == 0 || (*at == '.' && fraction_digits == 0))
        return coh_fail(COH_ERR_ARGUMENT, "'%.40s' is not a size: write one as 64MiB or 40GB",
                        text);
    at = fraction + fraction_digits;
    if (*at == '\0')
        return coh_fail(COH_ERR_ARGUMENT,
                        "'%.40s' has no unit: write %.40sMB (10^6 bytes), %.40sMiB (2^20 bytes) or "
                        "another of B KB KiB MB MiB GB GiB TB TiB",
                        text, text, text);
    uint64_t one = unit_bytes(*at == ' ' ? at + 1 : at);
    if (one == 0)
        return coh_fail(
            COH_ERR_ARGUMENT,
            "'%.40s' ends in '%.40s', which is no unit: use B KB KiB MB MiB GB GiB TB TiB "
            "(GB = 10^9, GiB = 2^30)",
            text, at);
    if (__builtin_mul_overflow(whole, one, &bytes) ||
        __builtin_add_overflow(bytes, fraction_bytes(fraction, fraction_digits, one), &bytes))
        return refuse_overflow(text);
    *out_bytes = bytes;
    return COH_OK;
}

const char *coh_size_format(uint64_t bytes, char *text, size_t text_bytes)
{
    if (text == NULL)
        return "";
    static const char *const names[] = { "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    if (text_bytes == 0)
        return text;
    if (bytes < 1024) {
        snprintf(text, text_bytes, "%" PRIu64 " B", bytes);
        return text;
    }
    /* Rounds to hundredths; a value that rounds up to 1024 uses the next unit. */
    size_t unit_index = 0;
    uint64_t hundredths = 0;
    for (;; unit_index++) {
        unsigned shift = 10 * ((unsigned)unit_index + 1);
        wide scaled = (wide)bytes * 100 + ((uint64_t)1 << (shift - 1));
        hundredths = (uint64_t)(scaled >> shift);
        if (hundredths < 1024 * 100 || unit_index + 1 == sizeof(names) / sizeof(names[0]))
            break;
    }
    snprintf(text, text_bytes, "%" PRIu64 ".%02u %s", hundredths / 100,
             (unsigned)(hundredths % 100), names[unit_index]);
    return text;
}

/* The value in the largest unit, with three to five digits: at least `bytes`, or at most. */
static void round_to_unit(uint64_t bytes, int is_up, char *text, size_t text_bytes)
{
    static const char *const names[] = { "TiB", "GiB", "MiB", "KiB" };
    size_t unit_index = 0;
    unsigned shift = 40;
    for (; bytes >> shift == 0 && shift > 10; shift -= 10)
        unit_index++;
    const uint64_t whole = bytes >> shift, one = (uint64_t)1 << shift;
    int digits = whole < 10 ? 3 : whole < 100 ? 2 : 1;
    const uint64_t scale = digits == 3 ? 1000 : digits == 2 ? 100 : 10;
    uint64_t value = (uint64_t)(((wide)bytes * scale + (is_up ? one - 1 : 0)) >> shift);
    if (whole == 0 || (((wide)value << shift) / scale) >> 64 != 0) {
        snprintf(text, text_bytes, "%" PRIu64 "B", bytes);
        return;
    }
    uint64_t fraction = value % scale;
    while (digits > 0 && fraction % 10 == 0) {
        fraction /= 10;
        digits--;
    }
    if (digits == 0)
        snprintf(text, text_bytes, "%" PRIu64 "%s", value / scale, names[unit_index]);
    else
        snprintf(text, text_bytes, "%" PRIu64 ".%0*" PRIu64 "%s", value / scale, digits, fraction,
                 names[unit_index]);
}

/* A text that is cut may be another size, so a short buffer gets "". */
static const char *round_whole(uint64_t bytes, int is_up, char *text, size_t text_bytes)
{
    char whole[COH_SIZE_TEXT_BYTES];
    if (text == NULL || text_bytes == 0)
        return "";
    round_to_unit(bytes, is_up, whole, sizeof(whole));
    snprintf(text, text_bytes, "%s", strlen(whole) < text_bytes ? whole : "");
    return text;
}

const char *coh_size_round_up(uint64_t bytes, char *text, size_t text_bytes)
{
    return round_whole(bytes, 1, text, text_bytes);
}

/* Whole GB, below 100 GB whole MB. */
static uint64_t daily_step(uint64_t bytes)
{
    return bytes >= UINT64_C(100000000000) ? 1000000000 : 1000000;
}

uint64_t coh_daily_enough(uint64_t bytes)
{
    const uint64_t step = daily_step(bytes), part = bytes % step;
    return part == 0 || bytes - part > UINT64_MAX - step ? bytes : bytes - part + step;
}

const char *coh_daily_round_up(uint64_t bytes, char *text, size_t text_bytes)
{
    static const char *const names[] = { "MB", "GB", "TB" };
    char whole[COH_SIZE_TEXT_BYTES], part[8] = "";
    if (text == NULL || text_bytes == 0)
        return "";
    const uint64_t step = daily_step(bytes), enough = coh_daily_enough(bytes);
    uint64_t count = enough / step, thousandths = 0;
    size_t name = step == 1000000000;
    int digits = 3;
    if (count >= 1000 && name + 1 < sizeof(names) / sizeof(names[0])) {
        thousandths = count % 1000;
        count /= 1000;
        name++;
    }
    for (; thousandths > 0 && thousandths % 10 == 0; digits--)
        thousandths /= 10;
    if (thousandths > 0)
        snprintf(part, sizeof(part), ".%0*d", digits, (int)thousandths);
    if (enough % step > 0) /* rounded up it would exceed 64 bits */
        snprintf(whole, sizeof(whole), "%" PRIu64 "B/day", bytes);
    else
        snprintf(whole, sizeof(whole), "%" PRIu64 "%s%s/day", count, part, names[name]);
    snprintf(text, text_bytes, "%s", strlen(whole) < text_bytes ? whole : "");
    return text;
}

const char *coh_size_round_down(uint64_t bytes, char *text, size_t text_bytes)
{
    return round_whole(bytes, 0, text, text_bytes);
}
