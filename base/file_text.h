/* file_text.h - texts as a whole: built up in memory, written to disk completely or not at all,
 * read at once. */
#ifndef COH_BASE_FILE_TEXT_H
#define COH_BASE_FILE_TEXT_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"

/* A growing text; zero it before use. `data` is NUL-terminated once something was added.
 * `is_fixed`: the caller's `data` of `capacity` bytes, so that nothing is allocated; `bytes` also
 * counts what did not fit. */
typedef struct coh_text {
    char *data;
    size_t bytes, capacity;
    int is_fixed;
} coh_text;

/* Appends, printf-like. Fails: COH_ERR_MEMORY; COH_ERR_FULL if a fixed text is too long. */
coh_status coh_text_add(coh_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
coh_status coh_text_add_list(coh_text *text, const char *format, va_list arguments)
    __attribute__((format(printf, 2, 0)));

/* Appends `string` as a JSON string: quoted and escaped, with a letter where JSON has one (\n), as
 * most JSON writers do. Fails: COH_ERR_MEMORY. */
coh_status coh_text_add_quoted(coh_text *text, const char *string);

/* Prints a number in the fewest digits that restore this double when read, with a point in every
 * locale. */
enum { COH_NUMBER_BYTES = 40 };
void coh_number_print(char text[COH_NUMBER_BYTES], double value);
/* As coh_number_print, with this many decimals; for numbers below 1e30. */
void coh_number_print_fixed(char text[COH_NUMBER_BYTES], int decimals, double value);
/* Appends such a number. Fails: COH_ERR_MEMORY. */
coh_status coh_text_add_number(coh_text *text, double value);

void coh_text_fini(coh_text *text); /* accepts a zeroed struct; not for a fixed text */

/* Writes file `path` atomically: to a temporary name in the same folder, flushed and renamed, and
 * the folder flushed. Replaces an existing file. Each of several writers at the same time has a
 * temporary file of its own (`<path>.partial`, `<path>.partial-1`, ...), and the last one to rename
 * it wins. The next writer removes what a killed one left.
 * Fails: COH_ERR_IO naming path and reason; nothing is left behind then. */
coh_status coh_file_write_whole(const char *path, const char *data, size_t bytes);

/* May the file `path` be replaced? It may if nothing is there, if it is empty, or if it begins with
 * `start`, and has the text `within` among its first bytes (NULL: any): then it is a `name` that
 * the library wrote. A folder is left to the writer, whose error names it.
 * Fails: COH_ERR_ARGUMENT: another file, a device or a pipe; COH_ERR_IO. */
coh_status coh_file_check_own(const char *path, const char *start, const char *within,
                              const char *name);

/* Checks that a file, whose first `bytes` are `head`, is not the text that Git LFS leaves in the
 * place of a file that it has not fetched. Fails: COH_ERR_CORRUPT, with the remedy. */
coh_status coh_file_check_fetched(const char *path, const char *head, size_t bytes);

/* Reads a file of at most `most` bytes into *out_data, with a NUL after *out_bytes. Owns: the
 * caller frees *out_data with coh_free.
 * Fails: COH_ERR_IO, COH_ERR_CORRUPT (too large, or not a regular file: never waits for a pipe; a
 * pointer of Git LFS), COH_ERR_MEMORY. */
coh_status coh_file_read_whole(const char *path, uint64_t most, char **out_data, size_t *out_bytes);

#endif
