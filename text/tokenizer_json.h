/* tokenizer_json.h - the parts of tokenizer.json, each read from its object into a pipeline. An
 * unknown part or field is refused by name.
 *
 *     { "added_tokens": [..], "normalizer": {..}, "pre_tokenizer": {..}, "model": {..},
 *       "post_processor": {..}, "decoder": {..} } */
#ifndef COH_TEXT_TOKENIZER_JSON_H
#define COH_TEXT_TOKENIZER_JSON_H

#include "text/json_fields.h"
#include "text/tokenizer_files.h"

/* Each reads one member of `root`, the object of file `path`. */
coh_status coh_json_read_normalizer(const char *path, const json_t *root, coh_tokenizer *tokenizer);
/* Also sets is_byte_level. */
coh_status coh_json_read_pre_tokenizer(const char *path, const json_t *root,
                                       coh_tokenizer *tokenizer);
/* Fills `before` and `after`; call it when the names are known, as the next one. */
coh_status coh_json_read_post_processor(const char *path, const json_t *root,
                                        coh_tokenizer *tokenizer);
/* Fills `texts` with decoded tokens. spelled[id] replaces the name: the normalized form of some
 * added tokens (NULL bytes: use the name). */
coh_status coh_json_read_decoder(const char *path, const json_t *root, const coh_slice *spelled,
                                 coh_tokenizer *tokenizer);

#endif
