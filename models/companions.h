/* companions.h - the files that go along with an exported model: those of its tokenizer, and how
 * text is generated with it. */
#ifndef COH_MODELS_COMPANIONS_H
#define COH_MODELS_COMPANIONS_H

#include "models/folder_place.h"

/* Which: adapters have a tokenizer, and generate as their model does. */
typedef enum coh_companions {
    COH_COMPANIONS_ALL,
    COH_COMPANIONS_TOKENIZER,
} coh_companions;

/* Copies those that the folder `from` has into `place`; `from` may also be the file of a tokenizer,
 * of any name, which is called as its kind is. NULL: none. Fails: COH_ERR_IO, COH_ERR_CORRUPT
 * (neither a folder nor a file), COH_ERR_ARGUMENT (a path is too long). */
coh_status coh_companions_copy(coh_folder_place *place, const char *from, coh_companions which);

/* Bytes of disk that they take, to whole pages. Fails: as copying does. */
coh_status coh_companions_bytes(const char *from, coh_companions which, uint64_t *out_bytes);

#endif
