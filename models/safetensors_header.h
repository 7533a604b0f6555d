/* safetensors_header.h - converts the header of a safetensors file between text and lists (format:
 * safetensors.h).
 *
 * The one idea: strings are decoded in place. A JSON string is never shorter than its decoded form,
 * so names and metadata are stored in the header's own bytes. A header therefore costs its length
 * and its list of tensors, whatever it holds. */
#ifndef COH_MODELS_SAFETENSORS_HEADER_H
#define COH_MODELS_SAFETENSORS_HEADER_H

#include "base/file_text.h"
#include "models/safetensors.h"

typedef struct coh_safetensors_header {
    char *text;                      /* holds all strings */
    coh_safetensors_tensor *tensors; /* by offset */
    size_t count, capacity;
    coh_safetensors_pair *metadata; /* in the text's order; NULL: no "__metadata__" */
    size_t metadata_count, metadata_capacity;
} coh_safetensors_header;

/* Reads `text`, the `bytes` between the length and the data of data_bytes. Tensors' offsets count
 * from the start of the file. Takes ownership of `text` (coh_alloc), even on failure. `path` is for
 * the message. Fails: COH_ERR_CORRUPT, COH_ERR_MEMORY. Release with coh_safetensors_header_fini,
 * also after a failure. */
coh_status coh_safetensors_header_read(char *text, size_t bytes, uint64_t data_bytes,
                                       const char *path, coh_safetensors_header *out_header);
void coh_safetensors_header_fini(coh_safetensors_header *header); /* accepts a zeroed struct */

/* Writes the header of this list, padded and preceded by its length: everything before the data.
 * *out_data_bytes is the size of the data. Release *out_text with coh_text_fini, also after a
 * failure. Fails: COH_ERR_ARGUMENT naming the tensor, COH_ERR_FULL, COH_ERR_MEMORY. */
coh_status coh_safetensors_header_write(const coh_safetensors_list *list, coh_text *out_text,
                                        uint64_t *out_data_bytes);

/* ---- shared by reading and writing ---- */

/* Computes the bytes of a tensor's data from dtype and shape. Returns NULL, or a static text that
 * says why there is no such number. */
const char *coh_safetensors_measure(const coh_safetensors_tensor *tensor, uint64_t *out_bytes);

/* The static name of a dtype of the format; NULL if the format has no such dtype. */
const char *coh_safetensors_dtype_known(const char *name);

/* Returns NULL, or a static text that says why a tensor may not have this (UTF-8) name. */
const char *coh_safetensors_name_refused(const char *name);

/* Checks that a file may hold these names and shapes, and that no name occurs twice. Fails:
 * COH_ERR_ARGUMENT naming the tensor, COH_ERR_MEMORY. */
coh_status coh_safetensors_list_check(const coh_safetensors_tensor *tensors, size_t count);

/* Sorts the tensors by name; free the list with coh_free. *out_twice is a name that occurs twice,
 * or NULL. Fails: COH_ERR_MEMORY. */
coh_status coh_safetensors_by_name(const coh_safetensors_tensor *tensors, size_t count,
                                   const coh_safetensors_tensor ***out_by_name,
                                   const char **out_twice);

#endif
