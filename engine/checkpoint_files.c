/* Names, offsets and removal of a checkpoint's files, for its writer and its reader. Next:
 * checkpoint_files.h. */
#include "engine/checkpoint_files.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "cohobate/checkpoint.h"

const char *coh_checkpoint_file_name(coh_checkpoint_file file)
{
    switch (file) {
    case COH_FILE_WORK:
        return "work.bin";
    case COH_FILE_M:
        return "m.bin";
    case COH_FILE_V:
        return "v.bin";
    case COH_FILE_HASHES:
        return "hashes.bin";
    case COH_FILE_MANIFEST:
        return "manifest.json";
    case COH_FILE_COUNT:
        break;
    }
    return "?";
}

uint64_t coh_manifest_hash(const char *text, size_t bytes)
{
    return XXH3_64bits(text, bytes);
}

coh_status coh_checkpoint_offsets(const coh_logical_tensor *tensors, uint32_t tensor_count,
                                  coh_part part, uint64_t *offsets, uint64_t *out_bytes)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < tensor_count; i++) {
        if (offsets)
            offsets[i] = total;
        if (part != COH_PART_WORK && !tensors[i].has_states)
            continue;
        uint64_t bytes;
        COH_TRY(coh_bytes_mul(tensors[i].elements, sizeof(float), &bytes));
        COH_TRY(coh_bytes_add(total, bytes, &total));
    }
    if (total > INT64_MAX)
        return coh_fail(COH_ERR_FULL, "a checkpoint's %s would be larger than a file can be",
                        coh_checkpoint_file_name((coh_checkpoint_file)part));
    *out_bytes = total;
    return COH_OK;
}

int coh_checkpoint_unlink(coh_file_ops *ops, const char *path)
{
    char name[PATH_MAX];
    int first_error = 0;
    for (int file = COH_FILE_COUNT - 1; file >= 0; file--) {
        int length = snprintf(name, sizeof(name), "%s/%s", path,
                              coh_checkpoint_file_name((coh_checkpoint_file)file));
        if (length < 0 || (size_t)length >= sizeof(name))
            return -ENAMETOOLONG;
        int error = coh_file_unlink(ops, name);
        if (error && error != -ENOENT && !first_error)
            first_error = error;
    }
    int error = coh_file_rmdir(ops, path);
    if (first_error)
        return first_error;
    return error == -ENOENT ? 0 : error == -EEXIST ? -ENOTEMPTY : error;
}

coh_status coh_file_fail(int error, const char *what, const char *path)
{
    const char *reason = strerrordesc_np(-error); /* strerror may allocate */
    return coh_fail(COH_ERR_IO, "cannot %s %s: %s", what, path, reason ? reason : "unknown error");
}

coh_status coh_checkpoint_remove(const char *path)
{
    COH_NEED(path);
    coh_file_ops ops;
    coh_file_ops_init(&ops);
    int error = coh_checkpoint_unlink(&ops, path);
    return error ? coh_file_fail(error, "remove checkpoint", path) : COH_OK;
}
