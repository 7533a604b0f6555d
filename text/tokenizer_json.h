/* tokenizer_json.h - the parts of tokenizer.json, each read from its object into a pipeline. A part
 * or field that is not known is refused by name.
 *
 *     { "added_tokens": [..], "normalizer": {..}, "pre_tokenizer": {..}, "model": {..},
 *       "post_processor": {..}, "decoder": {..} }                                            */
#ifndef COH_TEXT_TOKENIZER_JSON_H
#define COH_TEXT_TOKENIZER_JSON_H

#include "text/json_fields.h"
#include "text/tokenizer_files.h"

/* `part` may be null where the file may leave the part out. */
coh_status coh_json_read_normalizer(const char *path, const json_t *part, coh_pipeline *pipeline);
/* Sets is_byte_level as well. */
coh_status coh_json_read_pre_tokenizer(const char *path, const json_t *part,
                                       coh_pipeline *pipeline);
/* After is_byte_level is known: the model's merges. `names` holds all tokens, and is_own[id] tells
 * those of the model. */
coh_status coh_json_read_model(const char *path, const json_t *part, const uint8_t *is_own,
                               coh_pipeline *pipeline);
/* Fills `texts` from tokens as they are decoded: names, but the normalized form of some added ones
 * (NULL bytes: the name). */
coh_status coh_json_read_decoder(const char *path, const json_t *part, const coh_slice *spelled,
                                 coh_pipeline *pipeline);

#endif
