/* tokenizer_json.h - the parts of tokenizer.json, each read from its object into a pipeline. An
 * unknown part or field is refused by name.
 *
 *     { "added_tokens": [..], "normalizer": {..}, "pre_tokenizer": {..}, "model": {..},
 *       "post_processor": {..}, "decoder": {..} } */
#ifndef COH_TEXT_TOKENIZER_JSON_H
#define COH_TEXT_TOKENIZER_JSON_H

#include "text/json_fields.h"
#include "text/tokenizer_files.h"

/* `part` may be null if the file may omit it. */
coh_status coh_json_read_normalizer(const char *path, const json_t *part, coh_pipeline *pipeline);
/* Also sets is_byte_level. */
coh_status coh_json_read_pre_tokenizer(const char *path, const json_t *part,
                                       coh_pipeline *pipeline);
/* Reads the model's merges; call it when is_byte_level is known. `names` holds all tokens;
 * is_own[id] marks those of the model. */
coh_status coh_json_read_model(const char *path, const json_t *part, const uint8_t *is_own,
                               coh_pipeline *pipeline);
/* Fills `texts` with decoded tokens. spelled[id] replaces the name: the normalized form of some
 * added tokens (NULL bytes: use the name). */
coh_status coh_json_read_decoder(const char *path, const json_t *part, const coh_slice *spelled,
                                 coh_pipeline *pipeline);

#endif
