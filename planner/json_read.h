/* json_read.h - the planner's own files (plan.json, profiles): JSON in one canonical form, sealed
 * by the hash of every byte before its last member, read strictly.
 *
 * A reader names what is wrong by its member; who opened the file puts the path before it. */
#ifndef COH_PLANNER_JSON_READ_H
#define COH_PLANNER_JSON_READ_H

#include <jansson.h>

#include "base/file_text.h"

/* One member; the sentence says which is missing, of another type or out of its range. Fails:
 * COH_ERR_CORRUPT. A missing member of a missing object is that member missing. */
coh_status coh_json_get_integer(const json_t *object, const char *key, int64_t least, int64_t most,
                                int64_t *out_value);
/* From 0 to `most`. */
coh_status coh_json_get_int(const json_t *object, const char *key, int64_t most,
                            int32_t *out_value);
/* 64 bits in quotes, to base 10 or 16: a JSON number loses those above 2^53. */
coh_status coh_json_get_quoted(const json_t *object, const char *key, int base,
                               uint64_t *out_value);
/* A finite number from `least` to `most`. */
coh_status coh_json_get_real(const json_t *object, const char *key, double least, double most,
                             double *out_value);
/* At most room - 1 bytes, none of them a control character. */
coh_status coh_json_get_text(const json_t *object, const char *key, char *out_text, size_t room);
/* The place of a text among `names`, which NULL ends. */
coh_status coh_json_get_choice(const json_t *object, const char *key, const char *const *names,
                               int32_t *out_index);

/* `object` is one, and has no member that is not among `known`, which NULL ends: a misspelt one
 * must not pass as absent. Fails: COH_ERR_CORRUPT; `where` begins the sentence. */
coh_status coh_json_only_known(const json_t *object, const char *where, const char *const *known);

/* The begin of every such file. Fails: COH_ERR_CORRUPT: `what` ("plan") is not what it is, or it is
 * one of another version. */
coh_status coh_json_check_format(const json_t *root, const char *what, const char *format,
                                 int version);

/* Parses a whole file's text. Fails: COH_ERR_CORRUPT with the line, COH_ERR_MEMORY. */
coh_status coh_json_parse_sealed(const char *text, size_t bytes, json_t **out_root);
/* Does the seal name the bytes before it? Asked last: what else is wrong says more. `remedy` ends
 * the sentence. Fails: COH_ERR_CORRUPT. */
coh_status coh_json_check_seal(const json_t *root, const char *text, size_t bytes,
                               const char *remedy);
/* Appends the seal and the closing bracket. Fails: COH_ERR_MEMORY. */
coh_status coh_json_add_seal(coh_text *text);

#endif
