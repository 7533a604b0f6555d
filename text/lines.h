/* lines.h - a file of JSON lines: each line an object, read one at a time.
 *
 *     coh_lines_open -> coh_lines_next ... until *out_object is NULL -> coh_lines_close
 *
 * Memory is the longest line and its object, whatever the file. Lines end with \n or \r\n; those
 * with nothing but white space are passed over, and so is a byte order mark at the begin.
 *
 * What Python's json reads and writes beyond JSON is read: NaN and Infinity, numbers that no double
 * holds, and escapes of lone surrogates (half a character: U+FFFD stands for it). */
#ifndef COH_TEXT_LINES_H
#define COH_TEXT_LINES_H

#include <jansson.h>

#include "text/lists.h"

/* Longer than any text that one line should hold; ends what a file without line ends would not. */
#define COH_LINE_BYTES_MAX (256u << 20)

typedef struct coh_lines {
    int fd;
    const char *path; /* the caller's, for sentences */
    uint8_t *bytes;
    size_t capacity, begin, end; /* what was read and not yet given out is [begin, end) */
    size_t most_bytes;           /* COH_LINE_BYTES_MAX; less in tests */
    int is_at_end;
    coh_byte_list mended;    /* the line at hand, where it had to be */
    uint64_t replaced_count; /* lone surrogates that became U+FFFD */
    uint64_t number;         /* of the line given out last, from 1 */
} coh_lines;

/* Fails: COH_ERR_IO. */
coh_status coh_lines_open(const char *path, coh_lines *out_lines);
void coh_lines_close(coh_lines *lines); /* accepts a zeroed struct */

/* The next line's object, for the caller to release with json_decref; NULL at the end of the file.
 * Fails: COH_ERR_CORRUPT with path and line (no JSON, no object, too long), COH_ERR_IO. */
coh_status coh_lines_next(coh_lines *lines, json_t **out_object);

/* Writes a line anew into `out` as JSON, where it is what Python's json takes; else it stays no
 * JSON (lines_mend.c). */
coh_status coh_lines_mend(coh_slice line, coh_byte_list *out, uint64_t *replaced_count);

/* COH_ERR_CORRUPT: "<path>:<line>: " and the sentence, given as to coh_fail. */
#define coh_lines_fail(lines, ...)                                                                 \
    ((void)coh_fail(COH_ERR_CORRUPT, __VA_ARGS__), coh_lines_place(lines))
/* Puts the place before the sentence that is there. */
coh_status coh_lines_place(const coh_lines *lines);

#endif
