/* Builds JSON and other texts in memory, writes them through a temporary file and a rename, and
 * reads whole files with a limit. Read file_text.h first. */
#include "base/file_text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/c_locale.h"
#include "base/file_lock.h"
#include "base/file_ops.h"

enum { PARTIAL_BYTES = 4096 };

coh_status coh_text_add_list(coh_text *text, const char *format, va_list arguments)
{
    va_list again;
    va_copy(again, arguments);
    const size_t needed = (size_t)vsnprintf(NULL, 0, format, arguments);
    coh_status status = COH_OK;
    if (text->is_fixed && text->bytes + needed + 1 > text->capacity) {
        text->bytes += needed;
        status =
            coh_fail(COH_ERR_FULL, "a text outgrew the %zu bytes set aside for it", text->capacity);
    } else if (!text->is_fixed) {
        status = COH_GROW(&text->data, &text->capacity, text->bytes + needed + 1);
    }
    if (status == COH_OK) {
        vsnprintf(text->data + text->bytes, needed + 1, format, again);
        text->bytes += needed;
    }
    va_end(again);
    return status;
}

coh_status coh_text_add(coh_text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    coh_status status = coh_text_add_list(text, format, arguments);
    va_end(arguments);
    return status;
}

coh_status coh_text_add_quoted(coh_text *text, const char *string)
{
    static const char letters[] = "\b\t\n\f\r\"\\", escapes[] = "btnfr\"\\";
    COH_TRY(coh_text_add(text, "\""));
    for (const char *at = string; *at;) {
        const char *plain = at;
        while ((unsigned char)*at >= 0x20 && *at != '"' && *at != '\\')
            at++;
        COH_TRY(coh_text_add(text, "%.*s", (int)(at - plain), plain));
        if (!*at)
            break;
        const char *letter = strchr(letters, *at);
        if (letter)
            COH_TRY(coh_text_add(text, "\\%c", escapes[letter - letters]));
        else
            COH_TRY(coh_text_add(text, "\\u%04x", (unsigned)(unsigned char)*at));
        at++;
    }
    return coh_text_add(text, "\"");
}

void coh_number_print(char text[COH_NUMBER_BYTES], double value)
{
    const coh_c_locale locale = coh_c_locale_enter();
    /* 5000 reads better than 5e+03 */
    int digits = value > -1e6 && value < 1e6 && value == (double)(long)value ? 6 : 1;
    do
        snprintf(text, COH_NUMBER_BYTES, "%.*g", digits, value);
    while (strtod(text, NULL) != value && ++digits <= 17);
    coh_c_locale_leave(locale);
}

void coh_number_print_fixed(char text[COH_NUMBER_BYTES], int decimals, double value)
{
    const coh_c_locale locale = coh_c_locale_enter();
    snprintf(text, COH_NUMBER_BYTES, "%.*f", decimals, value);
    coh_c_locale_leave(locale);
}

coh_status coh_text_add_number(coh_text *text, double value)
{
    char number[COH_NUMBER_BYTES];
    coh_number_print(number, value);
    return coh_text_add(text, "%s", number);
}

void coh_text_fini(coh_text *text)
{
    coh_free(text->data);
    *text = (coh_text){ 0 };
}

static coh_status write_all(int fd, const char *path, const char *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t wrote = write(fd, data + done, bytes - done);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0)
            return coh_fail(COH_ERR_IO, "cannot write %s: %s: %s", path, strerror(errno),
                            coh_file_remedy(-errno));
        done += (size_t)wrote;
    }
    int result;
    do
        result = fsync(fd);
    while (result != 0 && errno == EINTR);
    if (result != 0 && errno != EINVAL)
        return coh_fail(COH_ERR_IO, "cannot flush %s: %s", path, strerror(errno));
    return COH_OK;
}

/* Compares the first bytes of a regular file. */
static coh_status read_is_own(const char *path, const char *start, const char *within, int *out_own)
{
    char head[128];
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    const ssize_t got = fd < 0 ? -1 : read(fd, head, sizeof(head) - 1);
    const int reason = errno;
    if (fd >= 0)
        close(fd);
    if (got < 0)
        return coh_fail(COH_ERR_IO, "%s is there and cannot be read: %s: give another path", path,
                        strerror(reason));
    head[got] = '\0';
    *out_own = got == 0 || (strncmp(head, start, strlen(start)) == 0 &&
                            (within == NULL || strstr(head, within) != NULL));
    return COH_OK;
}

coh_status coh_file_check_own(const char *path, const char *start, const char *within,
                              const char *name)
{
    struct stat facts;
    int is_own = 0;
    if (stat(path, &facts) != 0 || S_ISDIR(facts.st_mode))
        return COH_OK;
    if (!S_ISREG(facts.st_mode))
        return coh_fail(COH_ERR_ARGUMENT, "%s is no regular file: give another path", path);
    COH_TRY(read_is_own(path, start, within, &is_own));
    return is_own ? COH_OK
                  : coh_fail(COH_ERR_ARGUMENT,
                             "%s is there already and is no %s: remove it, or give another path",
                             path, name);
}

coh_status coh_file_write_whole(const char *path, const char *data, size_t bytes)
{
    char partial[PARTIAL_BYTES];
    const int fd = coh_file_lock_partial(path, partial, sizeof(partial));
    if (fd < 0)
        return coh_fail(COH_ERR_IO,
                        "%s cannot be written: no file can be made in its folder: %s: give another",
                        path, strerror(-fd));
    coh_status status = write_all(fd, path, data, bytes);
    const int error = status == COH_OK ? coh_file_lock_close_copy(fd) : 0;
    if (error)
        status = coh_fail(COH_ERR_IO, "cannot close %s: %s", partial, strerror(-error));
    if (status == COH_OK && rename(partial, path) != 0)
        status =
            coh_fail(COH_ERR_IO, "%s cannot be replaced by the finished file: %s: give another",
                     path, strerror(errno));
    if (status != COH_OK)
        unlink(partial);
    (void)close(fd);
    if (status != COH_OK)
        return status;
    /* A folder that cannot be flushed is not an error, because the file can be made again. */
    coh_file_ops ops = { .calls = &coh_system_file_calls };
    (void)coh_file_sync_parent(&ops, path);
    return COH_OK;
}

static coh_status read_all(int fd, const char *path, uint64_t most, char **out_data,
                           size_t *out_bytes)
{
    struct stat facts;
    if (fstat(fd, &facts) != 0)
        return coh_fail(COH_ERR_IO, "cannot read %s: %s", path, strerror(errno));
    if (!S_ISREG(facts.st_mode))
        return coh_fail(COH_ERR_CORRUPT,
                        "%s is not a regular file: put one in its place, or take it away", path);
    if ((uint64_t)facts.st_size > most)
        return coh_fail(COH_ERR_CORRUPT,
                        "%s has %" PRIu64 " bytes, more than %" PRIu64 " make no sense here", path,
                        (uint64_t)facts.st_size, most);
    size_t bytes = (size_t)facts.st_size, done = 0;
    COH_TRY(coh_alloc(bytes + 1, 1, (void **)out_data));
    while (done < bytes) {
        ssize_t got = read(fd, *out_data + done, bytes - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return coh_fail(COH_ERR_IO, "cannot read %s: %s", path, strerror(errno));
        if (got == 0)
            return coh_fail(COH_ERR_IO, "%s shrank while it was read", path);
        done += (size_t)got;
    }
    *out_bytes = bytes;
    return coh_file_check_fetched(path, *out_data, bytes);
}

coh_status coh_file_check_fetched(const char *path, const char *head, size_t bytes)
{
    static const char pointer[] = "version https://git-lfs.github.com/";
    if (bytes < sizeof(pointer) - 1 || memcmp(head, pointer, sizeof(pointer) - 1) != 0)
        return COH_OK;
    return coh_fail(COH_ERR_CORRUPT,
                    "%.300s is a pointer of Git LFS in the place of the file: fetch the file by "
                    "git lfs pull in its folder",
                    path);
}

coh_status coh_file_read_whole(const char *path, uint64_t most, char **out_data, size_t *out_bytes)
{
    *out_data = NULL;
    *out_bytes = 0;
    /* O_NONBLOCK: opening a pipe must not block. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return coh_fail(COH_ERR_IO, "cannot open %s: %s", path, strerror(errno));
    coh_status status = read_all(fd, path, most, out_data, out_bytes);
    close(fd);
    if (status != COH_OK) {
        coh_free(*out_data);
        *out_data = NULL;
    }
    return status;
}
