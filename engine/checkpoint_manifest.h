/* checkpoint_manifest.h - manifest.json as plain data: writes it, and parses it or says why it
 * cannot.
 *
 * The parser is strict: every member must be present once, and no other may be; numbers are in
 * range; sizes do not overflow and agree with the shapes. So it is safe to allocate from a parsed
 * manifest once the sizes on disk have been compared with file_bytes.
 *
 * Version 1 had a member "states" per tensor instead of "optimizer" and "streams". True means
 * AdamW with f32 streams m and v; all files are the same. */
#ifndef COH_ENGINE_CHECKPOINT_MANIFEST_H
#define COH_ENGINE_CHECKPOINT_MANIFEST_H

#include "base/file_text.h"
#include "engine/checkpoint_files.h"

typedef struct coh_manifest {
    uint64_t step, applied_count, grain_elements;
    uint64_t numeric_fingerprint, hash;
    double grad_norm;        /* of the last step, if the next one needs it; else 0 */
    coh_logical_table table; /* owned; passes its check, and each stream is of some tensor */
    uint64_t parameter_count;
    uint64_t file_bytes[COH_FILE_MANIFEST];
    const char *note_json; /* owned; the same object as saved; spacing may differ */
    int is_newer;          /* a newer version: none of its members was read */
} coh_manifest;

/* Writes a manifest, which may borrow what it points to, as the whole text of the file. Allocates
 * nothing if `text` is fixed. Fails: COH_ERR_FULL. */
coh_status coh_manifest_add_text(const coh_manifest *manifest, coh_text *text);

/* Fails: COH_ERR_CORRUPT, also for a newer version (the error text names it, and is_newer is set);
 * COH_ERR_MEMORY. After a failure coh_manifest_fini is not needed. */
coh_status coh_manifest_parse(const char *text, size_t bytes, coh_manifest *out_manifest);
void coh_manifest_fini(coh_manifest *manifest); /* accepts a zeroed struct */

#endif
