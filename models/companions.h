/* companions.h - copies the files that accompany an exported model: tokenizer, generation settings,
 * licence and notices. */
#ifndef COH_MODELS_COMPANIONS_H
#define COH_MODELS_COMPANIONS_H

#include "models/folder_place.h"

/* Kinds of files, to be or-ed. Adapters are exported with a tokenizer only; they generate with
 * their model's settings. */
typedef enum coh_companions {
    COH_COMPANIONS_TOKENIZER = 1,  /* with its named chat templates */
    COH_COMPANIONS_GENERATION = 2, /* generation_config.json */
    COH_COMPANIONS_NOTICES = 4,    /* LICENSE*, LICENCE*, NOTICE* in any case; README.md */
    COH_COMPANIONS_CONFIG = 8,     /* config.json, which may name the end of a text */
    COH_COMPANIONS_TEMPLATE = 16,  /* chat_template.jinja, chat_template.json */
} coh_companions;

/* Copies the files of kinds `which` from the folder `from` into `place`; `place` NULL: adds the
 * bytes of disk that the copies take, in whole pages, to *bytes. `from` may also be a tokenizer
 * file of any name; the copy gets the usual name of its kind. `from` NULL: nothing. Fails:
 * COH_ERR_IO, COH_ERR_CORRUPT (neither a folder nor a file), COH_ERR_ARGUMENT (a path is too
 * long). */
coh_status coh_companions_take(coh_folder_place *place, const char *from, unsigned which,
                               uint64_t *bytes);

#endif
