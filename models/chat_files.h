/* chat_files.h - the files by which other programs begin and end texts of a model that was trained
 * on conversations, or with another tokenizer: its chat template, and ids of special tokens. */
#ifndef COH_MODELS_CHAT_FILES_H
#define COH_MODELS_CHAT_FILES_H

#include "cohobate/folder.h"
#include "models/folder_place.h"

/* Replaces ids of special tokens in the model's members of config.json by `ids`, and drops those
 * that `ids` has not. A pad_token_id that the model computes with stays. Fails: COH_ERR_FULL,
 * COH_ERR_MEMORY. */
coh_status coh_chat_files_replace_ids(coh_model *model, const coh_text_ids *ids);

/* Writes chat_template.jinja if options->chat_template is not NULL, and generation_config.json if
 * options->end_of_turn or text_ids is not NULL: that of folder `from`, with these ids. Without such
 * a file text_ids writes none, and end_of_turn adds its id to those of the model's config.json.
 * `place` NULL: adds the bytes of disk that the files take, in whole pages, to *bytes.
 * Fails: COH_ERR_CORRUPT (a generation_config.json that is no object), COH_ERR_IO,
 * COH_ERR_MEMORY. */
coh_status coh_chat_files_write(coh_folder_place *place, const coh_model *model,
                                const coh_folder_write_options *options, const char *from,
                                uint64_t *bytes);

#endif
