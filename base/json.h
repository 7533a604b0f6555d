/* json.h - JSON files: one reader, one writer, and tables of fields that both follow.
 *
 *     static const coh_json_field link_fields[] = {
 *         { "depth", COH_JSON_WHOLE, COH_JSON_AT(link, depth), .least = 1, .most = 64 },
 *         { "name", COH_JSON_TEXT, COH_JSON_AT(link, name) },
 *         { 0 },
 *     };
 *
 * The table is the format: the writer writes the rows in order, the reader reads them in order, and
 * refuses a missing, misspelt or wrong member with its place in the file:
 *
 *     entry links.h2d.depth: expected a whole number 1..64, found "4"
 *
 * The caller that opened the file puts its path before the message. */
#ifndef COH_BASE_JSON_H
#define COH_BASE_JSON_H

#include <jansson.h>

#include "base/file_text.h"

/* ---- reading ---- */

/* The text being read: given to the functions of fields. */
typedef struct coh_json_source {
    int version;  /* of the format */
    void *object; /* the struct of the whole file */
} coh_json_source;

/* A value and its place: a member of an object, an entry of a list, or the file (no `above`). */
typedef struct coh_json_place {
    const coh_json_source *source;
    const struct coh_json_place *above;
    const char *key; /* NULL: entry `index` of a list */
    size_t index;
    json_t *value; /* NULL: missing */
} coh_json_place;

coh_json_place coh_json_member(const coh_json_place *object, const char *key);
coh_json_place coh_json_item(const coh_json_place *list, size_t index);

/* Return COH_ERR_CORRUPT with a text that names the place. `expected` adds what was found there. */
coh_status coh_json_fail(const coh_json_place *at, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
coh_status coh_json_expected(const coh_json_place *at, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* json_loadb with numbers as in the C locale: jansson cannot read them where the locale's point has
 * more than one byte. The caller's `flags` and *error are jansson's. */
json_t *coh_json_decode(const char *text, size_t bytes, size_t flags, json_error_t *error);

/* Parses a text; a member that is there twice is an error. Lists and objects may nest 2,048 deep,
 * the limit of jansson. Release the root with json_decref.
 * Fails: COH_ERR_CORRUPT with the line, COH_ERR_MEMORY. */
coh_status coh_json_load(const char *text, size_t bytes, json_t **out_root);
/* Likewise; if the text has an integer beyond 64 bits, all numbers become reals. */
coh_status coh_json_load_any(const char *text, size_t bytes, json_t **out_root);

/* Read one value. Fail: COH_ERR_CORRUPT. */
coh_status coh_json_whole(const coh_json_place *at, double least, double most, int64_t *out_value);
coh_status coh_json_real(const coh_json_place *at, double least, double most, double *out_value);
/* Reads a text without control characters, of at most `bytes_most` bytes. */
coh_status coh_json_string(const coh_json_place *at, size_t bytes_most, const char **out_text);
coh_status coh_json_flag(const coh_json_place *at, int32_t *out_flag);
/* Reads exactly 16 * count lower-case hexadecimal digits in quotes. */
coh_status coh_json_hex(const coh_json_place *at, size_t count, uint64_t *out_words);
/* Checks the type, and the number of entries. */
coh_status coh_json_list(const coh_json_place *at, double least, double most, size_t *out_count);

/* ---- writing ---- */

typedef enum coh_json_layout {
    COH_JSON_INLINE,       /* all on one line */
    COH_JSON_LINES,        /* each entry, and the closing bracket, on a separate line */
    COH_JSON_LINES_IF_ANY, /* likewise, and [] if there is none: of an array field */
    COH_JSON_ITEMS         /* each entry on a separate line; the bracket follows the last one */
} coh_json_layout;

enum { COH_JSON_LEVELS = 8 };

/* Writes into `text`; set `text` and zero the rest. After a failure, calls do nothing. */
typedef struct coh_json_writer {
    coh_text *text;
    const void *object; /* the struct of the whole file, for the functions of fields */
    coh_status status;  /* the first failure */
    int level, broken;  /* open brackets, and how many of them have a line for each entry */
    struct {
        char bracket;
        int8_t layout, has_entry;
    } open[COH_JSON_LEVELS];
} coh_json_writer;

/* Begin and end an object '{' or a list '['. `key` is NULL for an entry of a list, and the file. */
void coh_json_begin(coh_json_writer *writer, const char *key, char bracket, coh_json_layout layout);
void coh_json_end(coh_json_writer *writer);

void coh_json_put_text(coh_json_writer *writer, const char *key, const char *value); /* or NULL */
void coh_json_put_real(coh_json_writer *writer, const char *key, double value);
/* Writes a value in the form of printf: a whole number, or a text that needs no escapes. */
void coh_json_put(coh_json_writer *writer, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- tables of fields ---- */

typedef enum coh_json_kind {
    COH_JSON_WHOLE,   /* an integer of 1, 2, 4 or 8 bytes, from `least` to `most` */
    COH_JSON_LIMIT,   /* a uint64_t; null is UINT64_MAX */
    COH_JSON_DECIMAL, /* a uint64_t in quotes: a JSON number is not exact above 2^53 */
    COH_JSON_HEX,     /* uint64_t, each 16 digits in one text */
    COH_JSON_REAL,    /* a finite double, from `least` to `most` */
    COH_JSON_FLAG,    /* an int32_t: true or false */
    COH_JSON_TEXT,    /* a char array: without control characters */
    COH_JSON_STRING,  /* a char *, made by coh_alloc; `most`: bytes, 0: any; null if `is_null` */
    COH_JSON_CHOICE,  /* an integer: the index of a text in `names`, which ends with NULL */
    COH_JSON_OBJECT,  /* a struct of `fields` */
    COH_JSON_ARRAY,   /* a pointer to structs of `fields`, made by coh_alloc, and their count */
    COH_JSON_MAP,     /* an array of structs of `fields`: an object with those that are set */
    COH_JSON_OWN      /* `read` and `write` do it; they get the struct that the table is of */
} coh_json_kind;

typedef enum coh_json_rule {
    COH_JSON_NEEDED,
    COH_JSON_MAY_LACK,   /* it keeps its value if the file lacks it */
    COH_JSON_UNLESS_ZERO /* it may lack, and is not written if it is 0, "" or `otherwise` */
} coh_json_rule;

typedef struct coh_json_field {
    const char *name; /* NULL ends a table */
    coh_json_kind kind;
    size_t offset, bytes; /* of the member */
    coh_json_rule rule;
    coh_json_layout layout; /* of an object or an array */
    int since, until;       /* versions of the format that have it; 0: all */
    int is_null;            /* a text may be null */
    int decimals;           /* of a number; 0: the fewest digits that restore it */
    double least, most;     /* of a number, or of the entries of an array */
    double otherwise;       /* a real number that is not written */
    const char *const *names;
    const struct coh_json_field *fields;
    size_t item_bytes, count_offset; /* of an array: its structs, and its 4-byte count */
    /* Of a map: the name of struct `index`, NULL: none; and whether the struct is written. */
    const char *(*name_of)(int index);
    int (*is_set)(const void *item);
    /* Is the member written? NULL: by its rule. */
    int (*is_written)(const void *object);
    /* Checks an object or an entry of an array or a map after it was read; NULL: nothing. */
    coh_status (*check)(const coh_json_place *at, void *object);
    coh_status (*read)(const struct coh_json_field *field, const coh_json_place *at, void *object);
    void (*write)(const struct coh_json_field *field, coh_json_writer *writer, const void *object);
} coh_json_field;

#define COH_JSON_AT(type, member)                                                                  \
    .offset = offsetof(type, member), .bytes = sizeof(((type *)0)->member)
#define COH_JSON_AT_ARRAY(type, member, count)                                                     \
    COH_JSON_AT(type, member), .count_offset = offsetof(type, count),                              \
                               .item_bytes = sizeof(*((type *)0)->member)

/* Reads all fields of an object, and nothing else may be in it. Fails: COH_ERR_CORRUPT,
 * COH_ERR_MEMORY; the owner of `object` then releases it. */
coh_status coh_json_read(const coh_json_field *fields, const coh_json_place *at, void *object);
/* Writes the fields as members of the object that was begun last. */
void coh_json_write(const coh_json_field *fields, coh_json_writer *writer, const void *object);

/* ---- files ---- */

/* A file: {"format": ..., "version": ..., the fields, "file_hash": ...}. */
typedef struct coh_json_file {
    const char *what; /* "profile": in messages */
    const char *format;
    int version;
    const coh_json_field *fields;
    const char *remedy; /* of a file that was edited or damaged; NULL: it has no hash */
    /* May a file lack the hash? NULL: no. */
    int (*may_lack_hash)(const void *object);
} coh_json_file;

/* Reads a whole file's text into a zeroed struct; the hash last, since any other message is more
 * informative. `text` ends with a NUL beyond `bytes`. Fails: as coh_json_read. */
coh_status coh_json_file_parse(const coh_json_file *file, const char *text, size_t bytes,
                               void *object);
/* Reads a file of at most `most` bytes; a message begins with its path. Fails: also COH_ERR_IO. */
coh_status coh_json_file_read(const coh_json_file *file, const char *path, uint64_t most,
                              void *object);
/* Appends the text of the file. Fails: COH_ERR_MEMORY. */
coh_status coh_json_file_add(const coh_json_file *file, const void *object, coh_text *text);
/* Writes it whole or not at all.
 * Fails: also COH_ERR_ARGUMENT if the file there has another format. */
coh_status coh_json_file_write(const coh_json_file *file, const void *object, const char *path);
/* The hash that the text of the file would end with. Fails: COH_ERR_MEMORY. */
coh_status coh_json_file_hash(const coh_json_file *file, const void *object, uint64_t *out_hash);
/* Appends hash and closing bracket to a text. Fails: COH_ERR_MEMORY. */
coh_status coh_json_seal(coh_text *text);

#endif
