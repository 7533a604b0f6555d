/* check.h - reports failures with a text: the implementation of cohobate/status.h.
 *
 *     if (bytes > limit)
 *         return coh_fail(COH_ERR_FULL, "the plan needs %" PRIu64 " bytes ...", bytes);
 *     COH_TRY(inner());                        // returns at once
 *     COH_TRY_GOTO(status, inner(), done);     // where something must be released
 *
 * The innermost failure writes the text; callers pass the status on. Nothing here allocates. */
#ifndef COH_BASE_CHECK_H
#define COH_BASE_CHECK_H

#include <stdint.h>

#include "cohobate/status.h"

#define COH_ERROR_TEXT_BYTES 1024

/* Sets this thread's error text (cut at COH_ERROR_TEXT_BYTES - 1) and returns `status`. */
coh_status coh_fail(coh_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Shows compilers and clang-tidy which status is returned. Otherwise they assume that a failure
 * might be a success, and warn that variables set only on success may be unset. */
#define coh_fail(status, ...)                                                                      \
    __extension__({                                                                                \
        const coh_status coh_fail_status_ = (status);                                              \
        (void)coh_fail(coh_fail_status_, __VA_ARGS__);                                             \
        coh_fail_status_;                                                                          \
    })

/* Puts "<prefix>: " before this thread's error text, to add a place that the caller knows. Returns
 * `status`. */
coh_status coh_fail_prefix(coh_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Clears this thread's error text, before a function of the caller's: if it fails without a text,
 * that of an earlier failure is not taken for its own. */
void coh_error_clear(void);

/* Returns the status that a function of the caller's returned. One that is none becomes
 * COH_ERR_ARGUMENT, and a failure without a text gets one; both name the function. */
coh_status coh_check_status(coh_status status, const char *function);

/* Carry a failure from one thread to another: save copies this thread's text to `text`, a buffer of
 * COH_ERROR_TEXT_BYTES; restore sets it from there. */
void coh_error_save(char *text);
void coh_error_restore(const char *text);

/* Replaces control characters and invalid UTF-8 by '?'. Names in a text may come from a foreign
 * file and must not send commands to a terminal; a character cut in half is invalid, too. */
void coh_text_make_printable(char *text);

/* Refuses a NULL pointer passed to a public function; the text names both. */
#define COH_NEED(pointer)                                                                          \
    do {                                                                                           \
        if ((pointer) == NULL)                                                                     \
            return coh_fail(COH_ERR_ARGUMENT, "%s: '%s' is NULL", __func__, #pointer);             \
    } while (0)

/* Refuses an empty path that the argument or member `what` of a public function has: a name behind
 * it would lie in "/". NULL passes. Fails: COH_ERR_ARGUMENT. */
coh_status coh_check_path(const char *function, const char *what, const char *path);

/* Refuses NULL and an empty path. */
#define COH_NEED_PATH(path)                                                                        \
    do {                                                                                           \
        COH_NEED(path);                                                                            \
        COH_TRY(coh_check_path(__func__, #path, (path)));                                          \
    } while (0)

/* Refuse a number of a public struct that is not finite or outside least..most; `what` names it.
 * Fails: COH_ERR_ARGUMENT. */
coh_status coh_check_number(const char *what, double value, double least, double most);
coh_status coh_check_integer(const char *what, int64_t value, int64_t least, int64_t most);

#define COH_TRY(call)                                                                              \
    do {                                                                                           \
        coh_status coh_try_status_ = (call);                                                       \
        if (coh_try_status_ != COH_OK)                                                             \
            return coh_try_status_;                                                                \
    } while (0)

#define COH_TRY_GOTO(status, call, label)                                                          \
    do {                                                                                           \
        (status) = (call);                                                                         \
        if ((status) != COH_OK)                                                                    \
            goto label;                                                                            \
    } while (0)

#endif
