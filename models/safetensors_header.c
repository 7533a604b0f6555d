/* Parses the header of a safetensors file. The one idea: a JSON parser for exactly the form that a
 * header has, which decodes strings in place. Next: safetensors_layout.c writes headers,
 * safetensors_read.c calls this. */
#include "models/safetensors_header.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/plural.h"
#include "base/utf8.h"

typedef struct scanner {
    char *begin, *at, *end;
    const char *path;
} scanner;

static coh_status refuse(const scanner *scan, const char *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Fails with the file, the position, the reason and a remedy; all refusals come here. */
static coh_status refuse(const scanner *scan, const char *at, const char *format, ...)
{
    char reason[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof(reason), format, arguments);
    va_end(arguments);
    return coh_fail(COH_ERR_CORRUPT,
                    "%.300s, header at byte %zu: %s: the file is damaged, fetch or write it again",
                    scan->path, (size_t)(at - scan->begin) + 8, reason);
}

static void blanks_skip(scanner *scan)
{
    while (scan->at < scan->end && strchr(" \t\n\r", *scan->at) && *scan->at)
        scan->at++;
}

/* Describes the next character for a message; `text` has at least 8 bytes. */
static const char *shown(const scanner *scan, char *text)
{
    if (scan->at == scan->end)
        return "the end";
    unsigned char letter = (unsigned char)*scan->at;
    snprintf(text, 8, letter > 0x20 && letter < 0x7f ? "'%c'" : "0x%02x", letter);
    return text;
}

/* Moves past `letter`, which must come next. */
static coh_status expect(scanner *scan, char letter)
{
    char text[8];
    blanks_skip(scan);
    if (scan->at == scan->end || *scan->at != letter)
        return refuse(scan, scan->at, "'%c' is missing before %s", letter, shown(scan, text));
    scan->at++;
    return COH_OK;
}

/* ---- strings ---- */

/* Reads four hexadecimal digits after \u; -1 if they are not. */
static int32_t hex_read(scanner *scan)
{
    int32_t value = 0;
    for (int i = 0; i < 4; i++, scan->at++) {
        char digit = scan->at < scan->end ? *scan->at : 0;
        int number = digit >= '0' && digit <= '9'   ? digit - '0'
                     : digit >= 'a' && digit <= 'f' ? digit - 'a' + 10
                     : digit >= 'A' && digit <= 'F' ? digit - 'A' + 10
                                                    : -1;
        if (number < 0)
            return -1;
        value = value * 16 + number;
    }
    return value;
}

static char *utf8_put(char *to, uint32_t code)
{
    if (code < 0x80) {
        *to++ = (char)code;
        return to;
    }
    int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const uint8_t leads[] = { 0, 0xc0, 0xe0, 0xf0 };
    *to++ = (char)(leads[more] | code >> (6 * more));
    while (more-- > 0)
        *to++ = (char)(0x80 | (code >> (6 * more) & 0x3f));
    return to;
}

/* Reads the code point after "\u"; joins a pair of surrogates. */
static coh_status code_read(scanner *scan, const char *begin, char **to)
{
    int32_t code = hex_read(scan);
    if (code >= 0xd800 && code < 0xdc00) {
        int32_t low = -1;
        if (scan->end - scan->at >= 2 && scan->at[0] == '\\' && scan->at[1] == 'u') {
            scan->at += 2;
            low = hex_read(scan);
        }
        code = low >= 0xdc00 && low < 0xe000 ? 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00)
                                             : 0xd800;
    }
    if (code < 0)
        return refuse(scan, begin, "\\u needs four hexadecimal digits");
    if (code >= 0xd800 && code < 0xe000)
        return refuse(scan, begin, "half of a surrogate pair is no character");
    if (code == 0)
        return refuse(scan, begin, "a string holds a NUL");
    *to = utf8_put(*to, (uint32_t)code);
    return COH_OK;
}

/* Decodes one escape, from its backslash on, to *to. */
static coh_status escape_read(scanner *scan, char **to)
{
    static const char letters[] = "btnfr\"\\/", values[] = "\b\t\n\f\r\"\\/";
    const char *begin = scan->at++;
    char letter = scan->at < scan->end ? *scan->at++ : 0;
    if (letter == 'u')
        return code_read(scan, begin, to);
    const char *found = letter ? strchr(letters, letter) : NULL;
    if (!found)
        return refuse(scan, begin, "a backslash escapes no character that JSON knows");
    *(*to)++ = values[found - letters];
    return COH_OK;
}

/* Decodes the next string in place; its terminating NUL overwrites its closing quote or a byte
 * before. */
static coh_status string_read(scanner *scan, char **out_string)
{
    char text[8];
    *out_string = NULL;
    blanks_skip(scan);
    if (scan->at == scan->end || *scan->at != '"')
        return refuse(scan, scan->at, "a string is missing before %s", shown(scan, text));
    char *begin = scan->at++;
    char *to = scan->at;
    *out_string = to;
    while (scan->at < scan->end && *scan->at != '"') {
        if ((unsigned char)*scan->at < 0x20)
            return refuse(scan, scan->at, "a string holds the control character %s",
                          shown(scan, text));
        if (*scan->at == '\\')
            COH_TRY(escape_read(scan, &to));
        else
            *to++ = *scan->at++;
    }
    if (scan->at == scan->end)
        return refuse(scan, begin, "a string has no end");
    scan->at++;
    *to = '\0';
    return COH_OK;
}

/* ---- numbers, lists, objects ---- */

static coh_status number_read(scanner *scan, uint64_t *out_number)
{
    char text[8];
    blanks_skip(scan);
    const char *begin = scan->at;
    uint64_t number = 0;
    for (; scan->at < scan->end && *scan->at >= '0' && *scan->at <= '9'; scan->at++)
        if (__builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, (uint64_t)(*scan->at - '0'), &number))
            return refuse(scan, begin, "a number is more than 64 bits can count");
    if (scan->at == begin)
        return refuse(scan, begin, "a whole number is missing before %s", shown(scan, text));
    if (*begin == '0' && scan->at - begin > 1)
        return refuse(scan, begin, "a number begins with a zero too many");
    if (scan->at < scan->end && (*scan->at == '.' || (*scan->at | 0x20) == 'e'))
        return refuse(scan, begin, "a number is not written as a whole one");
    *out_number = number;
    return COH_OK;
}

/* Moves past `letter` if it comes next. */
static int skip(scanner *scan, char letter)
{
    blanks_skip(scan);
    if (scan->at == scan->end || *scan->at != letter)
        return 0;
    scan->at++;
    return 1;
}

/* Reads "[" numbers "]", at most `most` of them; `what` names them in messages. */
static coh_status numbers_read(scanner *scan, const char *what, uint64_t *numbers, int32_t most,
                               int32_t *out_count)
{
    *out_count = 0;
    COH_TRY(expect(scan, '['));
    while (!skip(scan, ']')) {
        if (*out_count > 0)
            COH_TRY(expect(scan, ','));
        if (*out_count == most)
            return refuse(scan, scan->at, "%s more than %" PRId32 " numbers", what, most);
        COH_TRY(number_read(scan, &numbers[(*out_count)++]));
    }
    return COH_OK;
}

/* Called after "{" or a member: moves to the value of the next member and returns its key; or moves
 * past "}" and sets the key to NULL. */
static coh_status member_next(scanner *scan, int is_first, char **out_key)
{
    *out_key = NULL;
    if (skip(scan, '}'))
        return COH_OK;
    if (!is_first)
        COH_TRY(expect(scan, ','));
    COH_TRY(string_read(scan, out_key));
    return expect(scan, ':');
}

/* ---- members of a header ---- */

enum { HAS_DTYPE = 1, HAS_SHAPE = 2, HAS_OFFSETS = 4, HAS_ALL = 7 };

static coh_status dtype_read(scanner *scan, coh_safetensors_tensor *tensor)
{
    blanks_skip(scan);
    const char *begin = scan->at;
    char *name;
    COH_TRY(string_read(scan, &name));
    tensor->dtype = coh_safetensors_dtype_known(name);
    if (!tensor->dtype)
        return refuse(scan, begin, "tensor %.200s is of dtype \"%.40s\", which does not exist",
                      tensor->name, name);
    return COH_OK;
}

static coh_status shape_read(scanner *scan, coh_safetensors_tensor *tensor)
{
    uint64_t dim[COH_SAFETENSORS_RANK_MAX];
    const char *begin = scan->at;
    COH_TRY(numbers_read(scan, "a shape has", dim, COH_SAFETENSORS_RANK_MAX, &tensor->rank));
    for (int32_t d = 0; d < tensor->rank; d++) {
        if (dim[d] > INT64_MAX)
            return refuse(scan, begin, "tensor %.200s has more elements than 64 bits can count",
                          tensor->name);
        tensor->dim[d] = (int64_t)dim[d];
    }
    return COH_OK;
}

/* Sets `bytes`, and `offset` from the start of the data. */
static coh_status offsets_read(scanner *scan, coh_safetensors_tensor *tensor)
{
    uint64_t offsets[2];
    int32_t count;
    const char *begin = scan->at;
    COH_TRY(numbers_read(scan, "data_offsets have", offsets, 2, &count));
    if (count != 2)
        return refuse(scan, begin, "data_offsets of tensor %.200s are not two", tensor->name);
    if (offsets[1] < offsets[0])
        return refuse(scan, begin,
                      "tensor %.200s ends at %" PRIu64 ", before its begin at %" PRIu64,
                      tensor->name, offsets[1], offsets[0]);
    tensor->offset = offsets[0];
    tensor->bytes = offsets[1] - offsets[0];
    return COH_OK;
}

static coh_status member_read(scanner *scan, const char *key, unsigned *seen,
                              coh_safetensors_tensor *tensor)
{
    unsigned which = strcmp(key, "dtype") == 0          ? HAS_DTYPE
                     : strcmp(key, "shape") == 0        ? HAS_SHAPE
                     : strcmp(key, "data_offsets") == 0 ? HAS_OFFSETS
                                                        : 0;
    if (!which)
        return refuse(scan, key - 1, "tensor %.200s has a member \"%.40s\", which is not known",
                      tensor->name, key);
    if (*seen & which)
        return refuse(scan, key - 1, "tensor %.200s has \"%s\" twice", tensor->name, key);
    *seen |= which;
    return which == HAS_DTYPE   ? dtype_read(scan, tensor)
           : which == HAS_SHAPE ? shape_read(scan, tensor)
                                : offsets_read(scan, tensor);
}

static coh_status tensor_read(scanner *scan, const char *name, coh_safetensors_header *header)
{
    COH_TRY(COH_GROW(&header->tensors, &header->capacity, header->count + 1));
    coh_safetensors_tensor *tensor = &header->tensors[header->count++];
    *tensor = (coh_safetensors_tensor){ .name = name };
    const char *reason = coh_safetensors_name_refused(name);
    if (reason)
        return refuse(scan, name - 1, "a tensor's name \"%.40s\" %s", name, reason);
    COH_TRY(expect(scan, '{'));
    unsigned seen = 0;
    char *key;
    for (int is_first = 1;; is_first = 0) {
        COH_TRY(member_next(scan, is_first, &key));
        if (!key)
            break;
        COH_TRY(member_read(scan, key, &seen, tensor));
    }
    if (seen != HAS_ALL)
        return refuse(scan, name - 1, "tensor %.200s has no \"%s\"", name,
                      !(seen & HAS_DTYPE)   ? "dtype"
                      : !(seen & HAS_SHAPE) ? "shape"
                                            : "data_offsets");
    uint64_t bytes;
    reason = coh_safetensors_measure(tensor, &bytes);
    if (reason)
        return refuse(scan, name - 1, "tensor %.200s %s", name, reason);
    if (bytes != tensor->bytes)
        return refuse(scan, name - 1,
                      "tensor %.200s has %" PRIu64 " byte%s by its dtype and shape, %" PRIu64
                      " by its data_offsets",
                      name, bytes, COH_PLURAL_S(bytes), tensor->bytes);
    return COH_OK;
}

static coh_status metadata_read(scanner *scan, coh_safetensors_header *header)
{
    COH_TRY(expect(scan, '{'));
    /* Allocates, so that empty metadata differ from none. */
    COH_TRY(COH_GROW(&header->metadata, &header->metadata_capacity, 1));
    for (int is_first = 1;; is_first = 0) {
        char *key, *value;
        COH_TRY(member_next(scan, is_first, &key));
        if (!key)
            return COH_OK;
        COH_TRY(string_read(scan, &value));
        COH_TRY(
            COH_GROW(&header->metadata, &header->metadata_capacity, header->metadata_count + 1));
        header->metadata[header->metadata_count++] = (coh_safetensors_pair){ key, value };
    }
}

/* ---- checks of the whole ---- */

static int compare_keys(const void *left, const void *right)
{
    const coh_safetensors_pair *a = left, *b = right;
    return strcmp(a->key, b->key);
}

static int compare_places(const void *left, const void *right)
{
    const coh_safetensors_pair *a = left, *b = right;
    return (a->key > b->key) - (a->key < b->key); /* keys lie in the text in its order */
}

static coh_status twice_refuse(const scanner *scan, const char *what, const char *name)
{
    return refuse(scan, name - 1, "%s \"%.200s\" occurs twice", what, name);
}

static coh_status names_check(const scanner *scan, coh_safetensors_header *header)
{
    coh_safetensors_pair *metadata = header->metadata;
    size_t count = header->metadata_count;
    const char *twice = NULL;
    if (count > 1)
        qsort(metadata, count, sizeof(*metadata), compare_keys);
    for (size_t i = 1; i < count && !twice; i++)
        if (strcmp(metadata[i - 1].key, metadata[i].key) == 0)
            twice = metadata[i].key;
    if (twice)
        return twice_refuse(scan, "metadata", twice);
    if (count > 1)
        qsort(metadata, count, sizeof(*metadata), compare_places);

    const coh_safetensors_tensor **by_name;
    COH_TRY(coh_safetensors_by_name(header->tensors, header->count, &by_name, &twice));
    coh_free(by_name);
    return twice ? twice_refuse(scan, "tensor", twice) : COH_OK;
}

/* Tensors without bytes at the same offset are ordered as in the text. */
static int compare_offsets(const void *left, const void *right)
{
    const coh_safetensors_tensor *a = left, *b = right;
    if (a->offset != b->offset)
        return a->offset < b->offset ? -1 : 1;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? -1 : 1;
    return (a->name > b->name) - (a->name < b->name);
}

/* Checks that every byte of the data belongs to exactly one tensor, and makes offsets count from
 * the start of the file. */
static coh_status cover_check(const scanner *scan, uint64_t data_bytes,
                              coh_safetensors_header *header)
{
    if (header->count > 1)
        qsort(header->tensors, header->count, sizeof(*header->tensors), compare_offsets);
    uint64_t covered = 0, header_bytes = (uint64_t)(scan->end - scan->begin) + 8;
    for (size_t i = 0; i < header->count; i++) {
        coh_safetensors_tensor *tensor = &header->tensors[i];
        if (tensor->offset > covered)
            return refuse(scan, tensor->name - 1,
                          "no tensor covers bytes %" PRIu64 " to %" PRIu64
                          " of the data, before tensor %.200s",
                          covered, tensor->offset, tensor->name);
        if (tensor->offset < covered)
            return refuse(scan, tensor->name - 1,
                          "tensor %.200s begins at %" PRIu64 ", inside tensor %.200s", tensor->name,
                          tensor->offset, header->tensors[i - 1].name);
        covered += tensor->bytes; /* the tensor's end, which fits in 64 bits */
        tensor->offset += header_bytes;
    }
    if (covered != data_bytes)
        return refuse(scan, scan->end,
                      "the tensors have %" PRIu64 " bytes of data, the file has %" PRIu64, covered,
                      data_bytes);
    return COH_OK;
}

static coh_status header_scan(scanner *scan, coh_safetensors_header *header)
{
    size_t bytes = (size_t)(scan->end - scan->begin);
    size_t valid = coh_utf8_stretch((const uint8_t *)scan->begin, bytes);
    if (valid < bytes)
        return refuse(scan, scan->begin + valid, "the text is not UTF-8");
    if (bytes == 0 || *scan->begin != '{')
        return refuse(scan, scan->begin, "a header begins with '{'");
    scan->at++;
    int has_metadata = 0;
    for (int is_first = 1;; is_first = 0) {
        char *key;
        COH_TRY(member_next(scan, is_first, &key));
        if (!key)
            break;
        if (strcmp(key, "__metadata__") != 0) {
            COH_TRY(tensor_read(scan, key, header));
            continue;
        }
        if (has_metadata)
            return twice_refuse(scan, "member", key);
        has_metadata = 1;
        COH_TRY(metadata_read(scan, header));
    }
    blanks_skip(scan);
    if (scan->at < scan->end)
        return refuse(scan, scan->at, "something follows the header's closing '}'");
    return COH_OK;
}

coh_status coh_safetensors_header_read(char *text, size_t bytes, uint64_t data_bytes,
                                       const char *path, coh_safetensors_header *out_header)
{
    scanner scan = { .begin = text, .at = text, .end = text + bytes, .path = path };
    *out_header = (coh_safetensors_header){ .text = text };
    COH_TRY(header_scan(&scan, out_header));
    COH_TRY(names_check(&scan, out_header));
    return cover_check(&scan, data_bytes, out_header);
}

void coh_safetensors_header_fini(coh_safetensors_header *header)
{
    coh_free(header->text);
    coh_free(header->tensors);
    coh_free(header->metadata);
    *header = (coh_safetensors_header){ 0 };
}
