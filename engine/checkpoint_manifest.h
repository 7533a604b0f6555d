/* checkpoint_manifest.h - the text of manifest.json as plain data, or a sentence why not.
 *
 * Strict: every member must be there, no other may, none twice; numbers in range, sizes without
 * overflow and in agreement with the shapes. What parses is therefore safe to allocate from once
 * the sizes on disk have been compared with file_bytes. */
#ifndef COH_ENGINE_CHECKPOINT_MANIFEST_H
#define COH_ENGINE_CHECKPOINT_MANIFEST_H

#include "engine/checkpoint_files.h"

typedef struct coh_manifest {
    uint64_t step, applied_count;
    uint64_t numeric_fingerprint, hash;
    coh_logical_tensor *tensors; /* names are owned */
    uint32_t tensor_count;
    int part_count; /* 1 or COH_PART_COUNT */
    uint64_t parameter_count;
    uint64_t file_bytes[COH_FILE_MANIFEST];
    char *note_json; /* the same object as saved; spacing may differ */
    int is_newer;    /* of a newer version: nothing of it was read */
} coh_manifest;

/* Fails: COH_ERR_CORRUPT, also for a newer version (the sentence says so, and is_newer is set);
 * COH_ERR_MEMORY. What failed need not be ended. */
coh_status coh_manifest_parse(const char *text, size_t bytes, coh_manifest *out_manifest);
void coh_manifest_fini(coh_manifest *manifest); /* accepts a zeroed struct */

#endif
