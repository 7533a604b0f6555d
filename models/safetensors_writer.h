/* safetensors_writer.h - internals of the file writer that the folder writer uses. */
#ifndef COH_MODELS_SAFETENSORS_WRITER_H
#define COH_MODELS_SAFETENSORS_WRITER_H

#include "base/file_ops.h"
#include "models/safetensors.h"

/* As coh_safetensors_writer_create, with the file operations of a caller who writes several files,
 * so that all operations share one count. `ops` must outlive the writer. */
coh_status coh_safetensors_writer_begin(coh_file_ops *ops, const char *path,
                                        const coh_safetensors_tensor *tensors, size_t count,
                                        const coh_safetensors_pair *metadata, size_t metadata_count,
                                        coh_safetensors_writer **out_writer);

/* As coh_safetensors_folder_writer_create, likewise; `ops` NULL: the writer creates its own. */
coh_status coh_safetensors_folder_writer_begin(coh_file_ops *ops, const char *folder,
                                               const coh_safetensors_tensor *tensors, size_t count,
                                               const coh_safetensors_pair *metadata,
                                               size_t metadata_count,
                                               coh_safetensors_folder_writer **out_writer);

/* Bytes of disk that the files of such a folder take, in whole pages: data, headers, index. Fails:
 * COH_ERR_ARGUMENT, COH_ERR_FULL, as writing them does; COH_ERR_MEMORY. */
coh_status coh_safetensors_folder_bytes(const coh_safetensors_tensor *tensors, size_t count,
                                        const coh_safetensors_pair *metadata, size_t metadata_count,
                                        uint64_t *out_bytes);

/* Bytes of data that are still missing. */
uint64_t coh_safetensors_writer_missing(const coh_safetensors_writer *writer);

/* The halves of publish. After `rename` the file has its final name, but destroy still removes it.
 * Call coh_safetensors_writer_keep after flushing the folder; destroy then leaves the file. */
coh_status coh_safetensors_writer_rename(coh_safetensors_writer *writer);
void coh_safetensors_writer_keep(coh_safetensors_writer *writer);

/* Creates a new file with a unique name next to `path`; the name has PATH_MAX bytes, "" on
 * failure. */
coh_status coh_safetensors_temporary_create(coh_file_ops *ops, const char *path, char *out_name,
                                            int *out_fd);

/* coh_file_sync_folder with an error message. */
coh_status coh_safetensors_folder_flush(coh_file_ops *ops, const char *folder);

/* Fails with "<what> <path> failed: <why>: <remedy>" for a file operation's -errno:
 * COH_ERR_ARGUMENT if the name is taken, else COH_ERR_IO. */
coh_status coh_safetensors_operation_fail(int error, const char *what, const char *path);

#endif
