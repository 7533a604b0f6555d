/* chat_files.h - the files by which other programs talk to a model that was trained on
 * conversations: its chat template, and the id that ends its answers. */
#ifndef COH_MODELS_CHAT_FILES_H
#define COH_MODELS_CHAT_FILES_H

#include "cohobate/folder.h"
#include "models/folder_place.h"

/* Writes chat_template.jinja if options->chat_template is not NULL. If options->end_of_turn is not
 * NULL, writes generation_config.json: that of folder `from`, if any, with this id among those
 * of eos_token_id; without such a file the ids of the model's config.json stay.
 * `place` NULL: adds the bytes of disk that the files take, in whole pages, to *bytes.
 * Fails: COH_ERR_CORRUPT (a generation_config.json that is no object), COH_ERR_IO,
 * COH_ERR_MEMORY. */
coh_status coh_chat_files_write(coh_folder_place *place, const coh_model *model,
                                const coh_folder_write_options *options, const char *from,
                                uint64_t *bytes);

#endif
