/* Reads JSON lines, or an array's elements, through one buffer. The one idea: the unread rest moves
 * to the front before more is read, and the buffer grows only while a single line or element fills
 * it. Next: token_jsonl.c, the caller. */
#include "text/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

#include "base/c_locale.h"
#include "base/file_ops.h"
#include "base/json.h"

#define BLOCK_BYTES  (1u << 20)
#define BEHIND_BYTES 16384u /* read at a time of a line that ends behind its part */

coh_status coh_file_open_text(const char *path, int *out_fd)
{
    *out_fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (*out_fd < 0)
        return coh_fail(COH_ERR_IO, "cannot open %s: %s: %s", path, strerror(errno),
                        coh_file_open_remedy(-errno, "see to its rights, or leave it out"));
    return COH_OK;
}

static coh_status fail_read(const char *path)
{
    return coh_fail(COH_ERR_IO, "reading %s failed: %s: copy it elsewhere, or leave it out", path,
                    strerror(errno));
}

coh_status coh_file_read_more(int fd, const char *path, uint8_t *bytes, size_t room, size_t *count)
{
    while (*count < room) {
        ssize_t got = read(fd, bytes + *count, room - *count);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fail_read(path);
        if (got == 0)
            break;
        *count += (size_t)got;
    }
    return COH_OK;
}

coh_status coh_lines_open(const char *path, coh_lines *out_lines)
{
    *out_lines = (coh_lines){ .path = path, .most_bytes = COH_LINE_BYTES_MAX, .limit = UINT64_MAX };
    return coh_file_open_text(path, &out_lines->fd);
}

void coh_lines_close(coh_lines *lines)
{
    if (lines->path && lines->fd >= 0)
        close(lines->fd);
    coh_free(lines->bytes);
    coh_free(lines->mended.bytes);
    *lines = (coh_lines){ 0 };
}

coh_status coh_lines_place(coh_lines *lines)
{
    if (lines->has_no_place && !lines->is_lost)
        return COH_ERR_CORRUPT;
    COH_TRY(coh_lines_count(lines));
    return coh_fail_prefix(COH_ERR_CORRUPT, "%s:%" PRIu64, lines->path, lines->number);
}

static int is_white(char sign)
{
    return sign == ' ' || sign == '\t' || sign == '\r' || sign == '\n';
}

/* Returns how much more is read: to the end of the buffer, and of a part not far behind its end. */
static size_t bytes_to_read(const coh_lines *lines)
{
    const uint64_t at = lines->offset + lines->end, room = lines->capacity - lines->end;
    const uint64_t wanted = at < lines->limit ? lines->limit - at : BEHIND_BYTES;
    return (size_t)(wanted < room ? wanted : room);
}

/* Reads more of the file, at most to the end of the buffer. */
static coh_status read_more(coh_lines *lines)
{
    if (lines->begin > 0) {
        lines->offset += lines->begin;
        lines->end -= lines->begin;
        memmove(lines->bytes, lines->bytes + lines->begin, lines->end);
        lines->begin = 0;
    }
    if (lines->end == lines->capacity)
        COH_TRY(COH_GROW(&lines->bytes, &lines->capacity,
                         lines->capacity ? lines->capacity + 1 : BLOCK_BYTES));
    const size_t room = lines->end + bytes_to_read(lines);
    COH_TRY(coh_file_read_more(lines->fd, lines->path, lines->bytes, room, &lines->end));
    lines->is_at_end = lines->end < room;
    return COH_OK;
}

/* ---- parts ---- */

void coh_lines_part(coh_lines *lines, uint64_t begin, uint64_t end)
{
    lines->first = begin;
    lines->limit = end;
}

/* Finds the first line of a part: behind the first line end from the byte before the part on. */
static coh_status find_first(coh_lines *lines)
{
    const uint8_t *found = NULL;
    lines->offset = lines->first - 1;
    lines->is_relative = 1;
    if (lseek(lines->fd, (off_t)lines->offset, SEEK_SET) < 0)
        return fail_read(lines->path);
    while (!found && !lines->is_at_end && lines->offset + lines->begin < lines->limit) {
        COH_TRY(read_more(lines));
        if (lines->end > 0)
            found = memchr(lines->bytes, '\n', lines->end);
        lines->begin = found ? (size_t)(found - lines->bytes) + 1 : lines->end;
    }
    lines->first = lines->offset + lines->begin;
    return COH_OK;
}

coh_status coh_lines_count(coh_lines *lines)
{
    uint8_t bytes[16384];
    if (!lines->is_relative)
        return COH_OK;
    for (uint64_t at = 0; at < lines->first;) {
        const uint64_t left = lines->first - at;
        const ssize_t got =
            pread(lines->fd, bytes, left < sizeof(bytes) ? left : sizeof(bytes), (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fail_read(lines->path);
        if (got == 0)
            return coh_fail(COH_ERR_IO,
                            "%s became shorter while it was read: give the command again",
                            lines->path);
        for (ssize_t i = 0; i < got; i++) {
            lines->number += bytes[i] == '\n';
            lines->has_earlier |= !is_white((char)bytes[i]);
        }
        at += (uint64_t)got;
    }
    lines->is_relative = 0;
    return COH_OK;
}

/* ---- lines ---- */

/* Finds the next line without its end; *out_has 0: there are no more lines. */
static coh_status next_line(coh_lines *lines, coh_slice *out_line, int *out_has)
{
    size_t looked = 0; /* bytes from `begin` on without a line end */
    const uint8_t *found = NULL;
    *out_has = 0;
    if (lines->offset + lines->begin >= lines->limit)
        return COH_OK;
    while (!found && !(lines->is_at_end && looked == lines->end - lines->begin)) {
        size_t there = lines->end - lines->begin;
        if (there > looked)
            found = memchr(lines->bytes + lines->begin + looked, '\n', there - looked);
        looked = there;
        size_t count = found ? (size_t)(found - lines->bytes) - lines->begin : there;
        if (count > lines->most_bytes) {
            lines->number++;
            return coh_lines_fail(lines,
                                  "the line has more than %zu MiB: split it, or give the file as "
                                  "text",
                                  lines->most_bytes >> 20);
        }
        if (!found && !lines->is_at_end)
            COH_TRY(read_more(lines));
    }
    size_t count = found ? (size_t)(found - lines->bytes) - lines->begin : looked;
    *out_line = (coh_slice){ (const char *)lines->bytes + lines->begin, count };
    *out_has = found || count > 0;
    lines->begin += count + (found ? 1 : 0);
    lines->number++;
    if (lines->number == 1 && !lines->is_relative && count >= 3 &&
        memcmp(out_line->bytes, "\xef\xbb\xbf", 3) == 0)
        *out_line = (coh_slice){ out_line->bytes + 3, count - 3 };
    return COH_OK;
}

static int is_blank(coh_slice line)
{
    for (size_t i = 0; i < line.count; i++)
        if (!is_white(line.bytes[i]))
            return 0;
    return 1;
}

/* ---- an array ---- */

/* UTF-16 has a mark of the order of its bytes, or a NUL next to its first sign. */
static int is_utf16(const uint8_t *bytes, size_t count)
{
    if (count < 2)
        return 0;
    const int first = bytes[0], second = bytes[1];
    if (first == 0 || second == 0)
        return first + second == '{' || first + second == '[';
    return (first == 0xff && second == 0xfe) || (first == 0xfe && second == 0xff);
}

/* Returns the index of the first byte that is no white space. */
static size_t skip_begin(const uint8_t *bytes, size_t count)
{
    size_t at = count >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    while (at < count && is_white((char)bytes[at]))
        at++;
    return at;
}

/* Finds the first two signs of a file that are no white space; NUL: there is none, or the file
 * cannot be read. */
static void read_signs(const char *path, char out_signs[2])
{
    uint8_t head[512];
    size_t count = 0;
    int fd;
    out_signs[0] = out_signs[1] = '\0';
    if (coh_file_open_text(path, &fd) != COH_OK)
        return;
    const coh_status status = coh_file_read_more(fd, path, head, sizeof(head), &count);
    close(fd);
    size_t at = skip_begin(head, count);
    for (int i = 0; i < 2 && status == COH_OK && at < count; i++) {
        out_signs[i] = (char)head[at++];
        while (at < count && is_white((char)head[at]))
            at++;
    }
}

int coh_lines_is_array(const char *path)
{
    char signs[2];
    read_signs(path, signs);
    return signs[0] == '[' && signs[1] == '{';
}

int coh_lines_is_object(const char *path)
{
    char signs[2];
    read_signs(path, signs);
    return signs[0] == '{';
}

int coh_lines_has_ending(const char *name, const char *ending)
{
    const size_t count = strlen(name), ending_count = strlen(ending);
    return count >= ending_count && strcasecmp(name + count - ending_count, ending) == 0;
}

int coh_lines_is_named(const char *path)
{
    return coh_lines_has_ending(path, ".jsonl") || coh_lines_has_ending(path, ".ndjson") ||
           (coh_lines_has_ending(path, ".jl") && coh_lines_is_object(path));
}

/* Skips white space, counting lines, up to the next byte; *out_sign 0: there is none. */
static coh_status skip_white(coh_lines *lines, char *out_sign)
{
    for (;;) {
        for (; lines->begin < lines->end; lines->begin++) {
            *out_sign = (char)lines->bytes[lines->begin];
            if (!is_white(*out_sign))
                return COH_OK;
            lines->number += *out_sign == '\n';
        }
        *out_sign = '\0';
        if (lines->is_at_end)
            return COH_OK;
        COH_TRY(read_more(lines));
    }
}

/* Counts open brackets outside of strings. */
typedef struct nesting {
    int depth, is_string, is_escaped;
} nesting;

static void nest(nesting *at, char sign)
{
    if (at->is_string && (at->is_escaped || sign == '\\'))
        at->is_escaped = !at->is_escaped;
    else if (sign == '"')
        at->is_string = !at->is_string;
    else if (!at->is_string)
        at->depth += (sign == '{' || sign == '[') - (sign == '}' || sign == ']');
}

/* Finds the end of the element that begins with "{": the bracket that closes it. */
static coh_status end_element(coh_lines *lines, coh_slice *out_element)
{
    size_t looked = 0; /* bytes from `begin` on */
    nesting at = { 0 };
    do {
        if (looked > lines->most_bytes)
            return coh_lines_fail(lines,
                                  "the object has more than %zu MiB: split it, or give the file as "
                                  "text",
                                  lines->most_bytes >> 20);
        if (looked == lines->end - lines->begin) {
            if (lines->is_at_end)
                return coh_lines_fail(lines, "the object does not end: mend the file, which may be "
                                             "cut off");
            COH_TRY(read_more(lines));
            continue;
        }
        const char sign = (char)lines->bytes[lines->begin + looked++];
        lines->inner_ends += sign == '\n';
        nest(&at, sign);
    } while (at.depth > 0);
    *out_element = (coh_slice){ (const char *)lines->bytes + lines->begin, looked };
    lines->begin += looked;
    return COH_OK;
}

/* Finds the next element without brackets and commas. */
static coh_status next_bare(coh_lines *lines, char sign, coh_slice *out_element, int *out_has)
{
    if (lines->begin == lines->end)
        return COH_OK;
    if (sign != '{')
        return coh_lines_fail(lines,
                              "an object is expected here, as the file begins with one: mend it, "
                              "or give the file as text under another name");
    lines->element_count++;
    *out_has = 1;
    return end_element(lines, out_element);
}

/* Finds the next element; *out_has 0: the array and the file end. */
static coh_status next_element(coh_lines *lines, coh_slice *out_element, int *out_has)
{
    char sign;
    lines->number += lines->inner_ends;
    lines->inner_ends = 0;
    *out_has = 0;
    COH_TRY(skip_white(lines, &sign));
    if (lines->is_bare)
        return next_bare(lines, sign, out_element, out_has);
    const int is_separated = sign == ',' && lines->element_count > 0;
    if (is_separated) {
        lines->begin++;
        COH_TRY(skip_white(lines, &sign));
    }
    if (sign == ']' && !is_separated) {
        lines->begin++;
        COH_TRY(skip_white(lines, &sign));
        if (sign == '\0' && lines->begin == lines->end)
            return COH_OK;
        return coh_lines_fail(lines, "the array ends, and more text is behind it: remove the text, "
                                     "or write one object per line");
    }
    if (lines->begin == lines->end)
        return coh_lines_fail(lines, "the array does not end: mend the file, which may be cut off");
    if (lines->element_count > 0 && !is_separated)
        return coh_lines_fail(lines, "no comma before element %" PRIu64 " of the array: add one",
                              lines->element_count + 1);
    lines->element_count++;
    if (sign != '{')
        return coh_lines_fail(lines,
                              "element %" PRIu64 " of the array is not a JSON object: write "
                              "{\"text\": ...}, or give the file as text under another name",
                              lines->element_count);
    *out_has = 1;
    return end_element(lines, out_element);
}

/* Does the object that begins at `at` go on behind the end of its line? */
static int is_on_lines(const coh_lines *lines, size_t at)
{
    nesting depth = { 0 };
    while (at < lines->end && lines->bytes[at] != '\n')
        nest(&depth, (char)lines->bytes[at++]);
    return at < lines->end && depth.depth > 0;
}

/* Looks at the first character of the file. White space before it is at most the first block. */
static coh_status find_layout(coh_lines *lines)
{
    COH_TRY(read_more(lines));
    if (is_utf16(lines->bytes, lines->end))
        return coh_fail(COH_ERR_CORRUPT,
                        "%s is in UTF-16, and JSON is read in UTF-8: convert it with iconv -f "
                        "UTF-16 -t UTF-8",
                        lines->path);
    const size_t at = skip_begin(lines->bytes, lines->end);
    lines->is_bare = at < lines->end && lines->bytes[at] == '{' &&
                     coh_lines_has_ending(lines->path, ".json") && is_on_lines(lines, at);
    lines->is_array = lines->is_bare || (at < lines->end && lines->bytes[at] == '[');
    if (lines->is_array) {
        lines->number = 1;
        for (size_t i = 0; i < at; i++)
            lines->number += lines->bytes[i] == '\n';
        lines->begin = lines->is_bare ? at : at + 1;
    }
    return COH_OK;
}

int coh_lines_are_lines(const char *path)
{
    coh_lines lines;
    int are_lines = 0;
    if (coh_lines_open(path, &lines) == COH_OK)
        are_lines = find_layout(&lines) == COH_OK && !lines.is_array;
    coh_lines_close(&lines);
    return are_lines;
}

/* ---- Python's JSON ---- */

/* NaN and Infinity become null, numbers beyond a double become 0 (numbers are not used), and the
 * escape of half a character becomes that of U+FFFD. */

/* The value of a surrogate if text[0..count) begins with its escape; else 0. */
static unsigned surrogate_at(const char *text, size_t count)
{
    char digits[5] = { 0 };
    if (count < 6 || text[0] != '\\' || text[1] != 'u')
        return 0;
    memcpy(digits, text + 2, 4);
    if (strspn(digits, "0123456789abcdefABCDEF") != 4)
        return 0;
    unsigned value = (unsigned)strtoul(digits, NULL, 16);
    return value >= 0xd800 && value <= 0xdfff ? value : 0;
}

/* Copies or mends an escape inside a string; *out_used is its length. */
static coh_status mend_escape(const char *text, size_t count, coh_byte_list *out, size_t *out_used,
                              uint64_t *replaced_count)
{
    unsigned value = surrogate_at(text, count);
    *out_used = count < 2 ? count : 2;
    if (value == 0)
        return coh_byte_list_add(out, text, *out_used);
    unsigned next = surrogate_at(text + 6, count - 6);
    *out_used = 6;
    if (value < 0xdc00 && next >= 0xdc00) {
        *out_used = 12;
        return coh_byte_list_add(out, text, 12);
    }
    (*replaced_count)++;
    return coh_byte_list_add(out, "\\ufffd", 6);
}

/* Copies or mends a word of letters, digits and signs outside of strings. */
static coh_status mend_word(const char *text, size_t count, coh_byte_list *out)
{
    char word[64], *end;
    if ((count == 3 && memcmp(text, "NaN", 3) == 0) ||
        (count == 8 && memcmp(text, "Infinity", 8) == 0) ||
        (count == 9 && memcmp(text, "-Infinity", 9) == 0))
        return coh_byte_list_add(out, "null", 4);
    if (count < sizeof(word)) { /* a longer word is copied */
        memcpy(word, text, count);
        word[count] = '\0';
        if (strspn(word, "0123456789+-.eE") == count && isinf(coh_number_read(word, &end)) && !*end)
            return coh_byte_list_add(out, "0", 1);
    }
    return coh_byte_list_add(out, text, count);
}

static int is_word(char sign)
{
    return (sign >= '0' && sign <= '9') || (sign >= 'a' && sign <= 'z') ||
           (sign >= 'A' && sign <= 'Z') || sign == '+' || sign == '-' || sign == '.';
}

/* Rewrites a line that only Python's json accepts as valid JSON in `out`; other invalid lines stay
 * invalid. */
static coh_status mend_line(coh_slice line, coh_byte_list *out, uint64_t *replaced_count)
{
    int is_string = 0;
    uint64_t replaced = 0;
    out->count = 0;
    for (size_t at = 0, used; at < line.count; at += used) {
        const char *text = line.bytes + at;
        size_t rest = line.count - at;
        used = 1;
        if (is_string && *text == '\\') {
            COH_TRY(mend_escape(text, rest, out, &used, &replaced));
            continue;
        }
        if (!is_string && is_word(*text)) {
            while (used < rest && is_word(text[used]))
                used++;
            COH_TRY(mend_word(text, used, out));
            continue;
        }
        is_string ^= *text == '"';
        COH_TRY(coh_byte_list_add(out, text, 1));
    }
    *replaced_count += replaced;
    return COH_OK;
}

/* ---- objects ---- */

/* Makes jansson's message printable: it quotes the text, which may hold anything. */
static void print_only(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            *text = '?';
}

/* Reads integers as reals: numbers are not used, so one too large for an integer is not an
 * error. */
static json_t *parse(coh_slice line, json_error_t *error)
{
    return coh_json_decode(line.bytes, line.count,
                           JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL,
                           error);
}

coh_status coh_lines_next(coh_lines *lines, json_t **out_object)
{
    coh_slice line = { 0 };
    int has = 0;
    *out_object = NULL;
    lines->is_lost = 1;
    lines->is_value = 0;
    if (lines->capacity == 0)
        COH_TRY(lines->first > 0 ? find_first(lines) : find_layout(lines));
    do {
        COH_TRY(lines->is_array ? next_element(lines, &line, &has) : next_line(lines, &line, &has));
        if (!has)
            return COH_OK;
    } while (is_blank(line));
    lines->is_lost = 0;
    json_error_t error;
    json_t *object = parse(line, &error);
    if (!object && json_error_code(&error) != json_error_out_of_memory) {
        json_error_t ignored;
        COH_TRY(mend_line(line, &lines->mended, &lines->replaced_count));
        object =
            parse((coh_slice){ (const char *)lines->mended.bytes, lines->mended.count }, &ignored);
    }
    if (!object && json_error_code(&error) == json_error_out_of_memory) {
        COH_TRY(coh_lines_count(lines));
        return coh_fail(COH_ERR_MEMORY, "out of memory while reading line %" PRIu64 " of %s",
                        lines->number, lines->path);
    }
    if (!object) {
        print_only(error.text);
        const int goes_on =
            !lines->is_array && json_error_code(&error) == json_error_premature_end_of_input;
        return coh_lines_fail(lines, "no JSON at byte %d (%s): mend the %s, or remove it%s",
                              error.position, error.text, lines->is_array ? "object" : "line",
                              goes_on ? "; an object ends on the line on which it begins, unless "
                                        "all are one array ([...])"
                                      : "");
    }
    lines->is_value = !json_is_object(object);
    if (lines->is_value) {
        json_decref(object);
        return coh_lines_fail(lines, "not a JSON object: write {\"text\": ...}, or give the file "
                                     "as text under another name");
    }
    *out_object = object;
    return COH_OK;
}
