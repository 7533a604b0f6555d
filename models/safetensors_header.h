/* safetensors_header.h - the header of a safetensors file as text and as lists (safetensors.h says
 * what it looks like).
 *
 * The one idea: strings are decoded where they stand. A JSON string is never shorter than what it
 * stands for, so names and metadata live in the header's own bytes, and a header costs its length
 * and its tensors, whatever it holds. */
#ifndef COH_MODELS_SAFETENSORS_HEADER_H
#define COH_MODELS_SAFETENSORS_HEADER_H

#include "base/file_text.h"
#include "models/safetensors.h"

typedef struct coh_safetensors_header {
    char *text;                      /* holds all strings */
    coh_safetensors_tensor *tensors; /* by offset */
    size_t count, capacity;
    coh_safetensors_pair
        *metadata; /* in the text's order; NULL: the header has no "__metadata__" */
    size_t metadata_count, metadata_capacity;
} coh_safetensors_header;

/* Reads `text`, the `bytes` between the length and the data, which have data_bytes; tensors'
 * offsets count from the begin of the file. Takes over `text` (coh_alloc), even on failure. `path`
 * is for the sentence. Fails: COH_ERR_CORRUPT, COH_ERR_MEMORY. Release with
 * coh_safetensors_header_fini, also after a failure. */
coh_status coh_safetensors_header_read(char *text, size_t bytes, uint64_t data_bytes,
                                       const char *path, coh_safetensors_header *out_header);
void coh_safetensors_header_fini(coh_safetensors_header *header); /* accepts a zeroed struct */

/* The header of these lists with its length before it, padded: all that precedes the data, of which
 * there are *out_data_bytes. Release *out_text with coh_text_fini, also after a failure.
 * Fails: COH_ERR_ARGUMENT naming the tensor, COH_ERR_FULL, COH_ERR_MEMORY. */
coh_status coh_safetensors_header_write(const coh_safetensors_tensor *tensors, size_t count,
                                        const coh_safetensors_pair *metadata, size_t metadata_count,
                                        coh_text *out_text, uint64_t *out_data_bytes);

/* ---- what reading and writing share ---- */

/* Bytes of a tensor's data by dtype and shape. NULL, or why there is no such number; a static
 * text. */
const char *coh_safetensors_measure(const coh_safetensors_tensor *tensor, uint64_t *out_bytes);

/* The static name of a dtype of the format, or NULL when it has none of that name. */
const char *coh_safetensors_dtype_known(const char *name);

/* NULL, or why a tensor may not have this name, which is UTF-8; a static text. */
const char *coh_safetensors_name_refused(const char *name);

/* Names and shapes that a file may hold, no name twice. Fails: COH_ERR_ARGUMENT naming the tensor,
 * COH_ERR_MEMORY. */
coh_status coh_safetensors_list_check(const coh_safetensors_tensor *tensors, size_t count);

/* The tensors by name, to be freed with coh_free. Fails: COH_ERR_MEMORY. *out_twice is a name that
 * stands there twice, or NULL. */
coh_status coh_safetensors_by_name(const coh_safetensors_tensor *tensors, size_t count,
                                   const coh_safetensors_tensor ***out_by_name,
                                   const char **out_twice);

#endif
