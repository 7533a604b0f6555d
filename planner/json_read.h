/* json_read.h - the planner's own files (plan.json, profiles): JSON in one canonical form, parsed
 * strictly. The last member is the seal: a hash of every byte before it.
 *
 * A message names the faulty member; the caller that opened the file prefixes the path. */
#ifndef COH_PLANNER_JSON_READ_H
#define COH_PLANNER_JSON_READ_H

#include <jansson.h>

#include "base/file_text.h"

/* Reads one member; the message says which one is missing, has the wrong type or is out of range.
 * Fails: COH_ERR_CORRUPT. If `object` is missing, so is its member. */
coh_status coh_json_get_integer(const json_t *object, const char *key, int64_t least, int64_t most,
                                int64_t *out_value);
/* From 0 to `most`. */
coh_status coh_json_get_int(const json_t *object, const char *key, int64_t most,
                            int32_t *out_value);
/* Reads 64 bits in quotes, in base 10 or 16: a JSON number is not exact above 2^53. */
coh_status coh_json_get_quoted(const json_t *object, const char *key, int base,
                               uint64_t *out_value);
/* Reads a finite number from `least` to `most`. */
coh_status coh_json_get_real(const json_t *object, const char *key, double least, double most,
                             double *out_value);
/* Reads at most room - 1 bytes without control characters. */
coh_status coh_json_get_text(const json_t *object, const char *key, char *out_text, size_t room);
/* Reads the index of a text in `names`, which ends with NULL. */
coh_status coh_json_get_choice(const json_t *object, const char *key, const char *const *names,
                               int32_t *out_index);

/* Checks that `object` is a JSON object and has only members in `known`, which ends with NULL: a
 * misspelt member must not count as absent. Fails: COH_ERR_CORRUPT; `where` begins the message. */
coh_status coh_json_only_known(const json_t *object, const char *where, const char *const *known);

/* Checks the first members of every such file. Fails: COH_ERR_CORRUPT if the file is not a `what`
 * ("plan") or has another version. */
coh_status coh_json_check_format(const json_t *root, const char *what, const char *format,
                                 int version);

/* Parses the text of a whole file. Fails: COH_ERR_CORRUPT with the line, COH_ERR_MEMORY. */
coh_status coh_json_parse_sealed(const char *text, size_t bytes, json_t **out_root);
/* Checks the seal against the bytes before it. Call it last: any other error is more informative.
 * `remedy` ends the message. Fails: COH_ERR_CORRUPT. */
coh_status coh_json_check_seal(const json_t *root, const char *text, size_t bytes,
                               const char *remedy);
/* Appends the seal and the closing bracket. Fails: COH_ERR_MEMORY. */
coh_status coh_json_add_seal(coh_text *text);

#endif
