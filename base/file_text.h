/* file_text.h - whole texts: built up in memory, written to disk whole or not
 * at all, read whole. */
#ifndef COH_BASE_FILE_TEXT_H
#define COH_BASE_FILE_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "base/check.h"

/* A growing text; zero it to begin. `data` is NUL-terminated once something was added. */
typedef struct coh_text {
    char *data;
    size_t bytes, capacity;
} coh_text;

/* Appends, printf-like. Fails: COH_ERR_MEMORY. */
coh_status coh_text_add(coh_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Appends `string` as a JSON string: in quotes, with what must be escaped escaped, by a letter
 * where there is one (\n), which is how most writers of JSON do it. Fails: COH_ERR_MEMORY. */
coh_status coh_text_add_quoted(coh_text *text, const char *string);

/* A number in the fewest digits that bring this double back when they are read, with a point in
 * every locale. */
enum { COH_NUMBER_BYTES = 40 };
void coh_number_print(char text[COH_NUMBER_BYTES], double value);
/* Appends it. Fails: COH_ERR_MEMORY. */
coh_status coh_text_add_number(coh_text *text, double value);

void coh_text_fini(coh_text *text); /* accepts a zeroed struct */

/* Writes `path` through a temporary name beside it: flushed, renamed, folder flushed. An existing
 * file is replaced. Fails: COH_ERR_IO naming path and reason; nothing is left behind then. */
coh_status coh_file_write_whole(const char *path, const char *data, size_t bytes);

/* Reads a file of at most `most` bytes; NUL-terminated beyond *out_bytes; release with coh_free.
 * Fails: COH_ERR_IO, COH_ERR_CORRUPT (too large, or no regular file: a pipe is never waited for),
 * COH_ERR_MEMORY. */
coh_status coh_file_read_whole(const char *path, uint64_t most, char **out_data, size_t *out_bytes);

#endif
