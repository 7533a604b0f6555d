/* lines.h - reads the objects of a file one by one: JSON lines, an object each, or one JSON array
 * of objects, or in a *.json objects on several lines each.
 *
 *     coh_lines_open -> coh_lines_next ... until *out_object is NULL -> coh_lines_close
 *
 * Memory is bounded by the longest line, or element of the array, and its object. Lines end with \n
 * or \r\n; blank lines and an initial byte order mark are skipped. A file whose first character is
 * "[" is an array. A *.json whose first line does not end its object holds objects as jq prints
 * them, one behind the other.
 *
 * Threads may read the lines of a file in parts (coh_lines_part). A part begins anywhere: its first
 * line is the first that begins there or behind, and its last one ends where the next part's
 * begins.
 * Line numbers are known by counting the lines before, which is done only for a message.
 *
 *     file     {"text": "a"}\n{"text": "b"}\n{"text": "c"}\n
 *     parts    |             .      |        .      |              two lines, one, none
 *
 * Python's extensions of JSON are accepted: NaN and Infinity, numbers beyond a double, and escapes
 * of lone surrogates (half a character, replaced by U+FFFD). */
#ifndef COH_TEXT_LINES_H
#define COH_TEXT_LINES_H

#include <jansson.h>

#include "text/lists.h"

/* Open a text for reading; read more of it behind the first *count bytes, until the file ends or
 * `room` bytes are there. Fail: COH_ERR_IO. */
coh_status coh_file_open_text(const char *path, int *out_fd);
coh_status coh_file_read_more(int fd, const char *path, uint8_t *bytes, size_t room, size_t *count);

/* Longer than any reasonable line; bounds memory for a file without line ends. */
#define COH_LINE_BYTES_MAX (256u << 20)

typedef struct coh_lines {
    int fd;
    const char *path; /* the caller's, for messages */
    uint8_t *bytes;
    size_t capacity, begin, end; /* [begin, end) was read but not returned yet */
    size_t most_bytes;           /* COH_LINE_BYTES_MAX; less in tests */
    int is_at_end;
    coh_byte_list mended;    /* the current line, if it was mended */
    uint64_t replaced_count; /* lone surrogates that became U+FFFD */
    uint64_t number;         /* of the last returned line, or of the element's first, from 1 */
    uint64_t offset;         /* of `bytes` in the file */
    uint64_t first, limit;   /* of a part: where its first line begins, and the next part */
    int is_relative;         /* `number` does not count the lines before the part */
    int has_earlier;         /* if it does: one of them is not blank */
    int has_no_place;        /* messages get none unless is_lost: nobody reads them */
    int is_array;            /* objects are elements, on any number of lines */
    int is_bare;             /* of an array: it is without brackets and commas */
    uint64_t element_count;  /* of an array: elements begun */
    uint64_t inner_ends;     /* of an array: line ends in the last element */
    int is_lost;             /* after a failure: where the next line or element begins is unknown */
    int is_value;            /* after another failure: the line is JSON, but no object */
} coh_lines;

/* Is it a file of JSON lines by its name: *.jsonl, *.ndjson, or a *.jl that begins with an object
 * (other ones are sources of Julia)? */
int coh_lines_is_named(const char *path);
/* Does the name have this ending, in letters of any case? */
int coh_lines_has_ending(const char *name, const char *ending);
/* Is the file a JSON array whose first element is an object? 0 also if it cannot be read. */
int coh_lines_is_array(const char *path);
/* Does the file begin with an object? 0 also if it cannot be read. */
int coh_lines_is_object(const char *path);

/* Can the file be read in parts? Not arrays and the like; 0 also if it cannot be read. */
int coh_lines_are_lines(const char *path);

/* Fails: COH_ERR_IO. */
coh_status coh_lines_open(const char *path, coh_lines *out_lines);
void coh_lines_close(coh_lines *lines); /* accepts a zeroed struct */

/* Reads only lines that begin in bytes [begin, end) of a file of lines: call it before the first
 * line is read. */
void coh_lines_part(coh_lines *lines, uint64_t begin, uint64_t end);
/* Makes `number` count from the beginning of the file. Fails: COH_ERR_IO. */
coh_status coh_lines_count(coh_lines *lines);

/* Reads the object of the next line or element, which the caller releases with json_decref; NULL at
 * the end of the file. Fails: COH_ERR_CORRUPT with path and line (invalid JSON, not an object, too
 * long; unless is_lost, the next call reads the next one), COH_ERR_IO. */
coh_status coh_lines_next(coh_lines *lines, json_t **out_object);

/* Fails with COH_ERR_CORRUPT and "<path>:<line>: " before the message, which is given as to
 * coh_fail. */
#define coh_lines_fail(lines, ...)                                                                 \
    ((void)coh_fail(COH_ERR_CORRUPT, __VA_ARGS__), coh_lines_place(lines))
/* Puts the place before the current error message. Returns COH_ERR_CORRUPT, or fails as
 * coh_lines_count. */
coh_status coh_lines_place(coh_lines *lines);

#endif
