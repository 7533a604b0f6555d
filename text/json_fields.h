/* json_fields.h - reads JSON objects of other programs strictly: an unknown field is refused by
 * name, since it may change ids. `where` names the file and object, and begins every message.
 *
 * The values are read by base/json. Its tables of fields do not fit: the type of a part decides
 * which fields it has, and the order of the parts what they do. */
#ifndef COH_TEXT_JSON_FIELDS_H
#define COH_TEXT_JSON_FIELDS_H

#include "base/json.h"
#include "text/lists.h"

/* "<path>: pre_tokenizer.pretokenizers[2]", truncated if too long. */
typedef struct coh_json_where {
    char text[480];
} coh_json_where;

coh_json_where coh_json_at(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Parses a whole file's text; if it holds an integer beyond 64 bits, all numbers become reals.
 * Fails: COH_ERR_CORRUPT with the line, COH_ERR_MEMORY. */
coh_status coh_json_parse(const char *path, const char *text, size_t text_bytes, json_t **out_root);

/* Likewise, of a file of at most `most` bytes. Fails: also COH_ERR_IO. */
coh_status coh_json_read_text(const char *path, uint64_t most, json_t **out_root);

/* Checks that `object` is an object with only fields of `known`, which blanks separate. Fails:
 * COH_ERR_CORRUPT. */
coh_status coh_json_check_fields(const char *where, const json_t *object, const char *known);
/* `is_absent` is the value if the field is missing or null; -1: the field is required. */
coh_status coh_field_flag(const char *where, const json_t *object, const char *key, int is_absent,
                          int *out_flag);
coh_status coh_json_text(const char *where, const json_t *object, const char *key,
                         coh_slice *out_text);
/* Reads an integer from 0 to `most`. */
coh_status coh_json_count(const char *where, const json_t *object, const char *key, int64_t most,
                          int64_t *out_count);
coh_status coh_json_array(const char *where, const json_t *object, const char *key,
                          json_t **out_array);
/* The "type" of a part; "" if it has none. The part must be an object. */
coh_status coh_json_type(const char *where, const json_t *object, const char **out_type);

#endif
