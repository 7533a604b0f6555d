/* The error text of each thread, in thread-local storage, and the checks of numbers. Every text is
 * made printable before it is kept. Read check.h first. */
#include "base/check.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/refusal.h"
#include "base/utf8.h"
#include "coh_config.h"
#include "cohobate/cohobate.h"

static _Thread_local char error_text[COH_ERROR_TEXT_BYTES];

const char *coh_last_error(void)
{
    return error_text;
}

void coh_text_make_printable(char *text)
{
    const size_t length = strlen(text);
    for (size_t i = 0; i < length;) {
        size_t bytes = coh_utf8_character((const uint8_t *)text + i, length - i);
        if (bytes == 0 || coh_utf8_control(text + i))
            memset(text + i, '?', bytes ? bytes : 1);
        i += bytes ? bytes : 1;
    }
}

/* Formats to a local buffer first, because the arguments may point into the present text. */
static void set_error(const char *format, va_list arguments)
{
    char text[COH_ERROR_TEXT_BYTES];
    vsnprintf(text, sizeof(text), format ? format : "a kind failed and gave no sentence",
              arguments);
    coh_text_make_printable(text);
    memcpy(error_text, text, strlen(text) + 1);
    coh_refusal_clear();
}

/* In parentheses, because the name is also a macro. */
coh_status(coh_fail)(coh_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    set_error(format, arguments);
    va_end(arguments);
    return status;
}

coh_status coh_fail_prefix(coh_status status, const char *format, ...)
{
    char rest[COH_ERROR_TEXT_BYTES];
    memcpy(rest, error_text, sizeof(rest));
    va_list arguments;
    va_start(arguments, format);
    int written = vsnprintf(error_text, sizeof(error_text), format, arguments);
    va_end(arguments);
    size_t used = written < 0 ? 0 : (size_t)written;
    if (used < sizeof(error_text) - 1)
        snprintf(error_text + used, sizeof(error_text) - used, ": %.*s",
                 (int)(sizeof(error_text) - used), rest);
    coh_text_make_printable(error_text);
    if (status != COH_ERR_FULL && status != COH_ERR_ARGUMENT)
        coh_refusal_clear();
    return status;
}

coh_status coh_kind_fail(coh_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    set_error(format, arguments);
    va_end(arguments);
    return status;
}

coh_status coh_check_path(const char *function, const char *what, const char *path)
{
    if (path == NULL || path[0] != '\0')
        return COH_OK;
    return coh_fail(COH_ERR_ARGUMENT,
                    "%s: '%s' is empty: give a path, \".\" for the current folder", function, what);
}

coh_status coh_check_number(const char *what, double value, double least, double most)
{
    if (value >= least && value <= most && !isinf(value))
        return COH_OK;
    return coh_fail(COH_ERR_ARGUMENT, "%s is %g: a number from %g to %g is possible", what, value,
                    least, most);
}

coh_status coh_check_integer(const char *what, int64_t value, int64_t least, int64_t most)
{
    if (value >= least && value <= most)
        return COH_OK;
    return coh_fail(COH_ERR_ARGUMENT, "%s is %" PRId64 ": %" PRId64 " to %" PRId64 " is possible",
                    what, value, least, most);
}

coh_status coh_check_status(coh_status status, const char *function)
{
    if ((int)status > COH_OK && (int)status <= COH_ERR_INTERNAL && error_text[0] == '\0')
        return coh_fail(status, "%s fails and gives no reason (coh_kind_fail)", function);
    if ((int)status >= COH_OK && (int)status <= COH_ERR_INTERNAL)
        return status;
    return coh_fail(COH_ERR_ARGUMENT, "%s returned %d, which is no status", function, (int)status);
}

void coh_error_clear(void)
{
    error_text[0] = '\0';
    coh_refusal_clear();
}

void coh_error_save(char *text)
{
    memcpy(text, error_text, sizeof(error_text));
}

void coh_error_restore(const char *text)
{
    memcpy(error_text, text, sizeof(error_text));
    coh_refusal_clear();
}

int coh_status_exit_code(coh_status status)
{
    switch (status) {
    case COH_OK:
        return 0;
    case COH_ERR_ARGUMENT:
    case COH_ERR_SHAPE:
        return 2;
    case COH_ERR_FULL:
        return 3;
    case COH_ERR_CORRUPT:
        return 4;
    case COH_ERR_IO:
    case COH_ERR_DEVICE:
        return 5;
    case COH_ERR_STOPPED:
        return 75;
    case COH_ERR_MEMORY:
    case COH_ERR_NUMBER:
    case COH_ERR_INTERNAL:
        return 1;
    }
    return 1;
}

const char *coh_status_name(coh_status status)
{
    static const char *const names[] = { "COH_OK",          "COH_ERR_ARGUMENT", "COH_ERR_SHAPE",
                                         "COH_ERR_MEMORY",  "COH_ERR_FULL",     "COH_ERR_IO",
                                         "COH_ERR_CORRUPT", "COH_ERR_DEVICE",   "COH_ERR_NUMBER",
                                         "COH_ERR_STOPPED", "COH_ERR_INTERNAL" };
    return (unsigned)status < sizeof(names) / sizeof(names[0]) ? names[status] : "unknown status";
}

const char *coh_version(void)
{
    return COH_VERSION;
}
