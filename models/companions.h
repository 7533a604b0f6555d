/* companions.h - the files that go along with an exported model: those of its tokenizer, how text
 * is generated with it, and under which terms it may be used. */
#ifndef COH_MODELS_COMPANIONS_H
#define COH_MODELS_COMPANIONS_H

#include "models/folder_place.h"

/* Kinds of them, to be or-ed: adapters have a tokenizer, and generate as their model does. */
typedef enum coh_companions {
    COH_COMPANIONS_TOKENIZER = 1,  /* its chat templates too */
    COH_COMPANIONS_GENERATION = 2, /* generation_config.json */
    COH_COMPANIONS_NOTICES = 4,    /* LICENSE*, LICENCE*, NOTICE* in any case; README.md */
} coh_companions;

/* Copies those of the kinds `which` that the folder `from` has into `place`; `from` may also be the
 * file of a tokenizer, of any name, which is called as its kind is. NULL: none. Fails: COH_ERR_IO,
 * COH_ERR_CORRUPT (neither a folder nor a file), COH_ERR_ARGUMENT (a path is too long). */
coh_status coh_companions_copy(coh_folder_place *place, const char *from, unsigned which);

/* Bytes of disk that they take, to whole pages. Fails: as copying does. */
coh_status coh_companions_bytes(const char *from, unsigned which, uint64_t *out_bytes);

#endif
