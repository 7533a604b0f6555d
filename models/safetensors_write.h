/* safetensors_write.h - writes a model's safetensors files into a folder that is in the making
 * (folder_place.h), which exists completely or not at all.
 *
 *     create -> add... -> finish -> destroy, then coh_folder_place_publish
 *
 * If all tensors are in file 0: <base>.safetensors; else <base>-00001-of-0000N.safetensors and so
 * on, and <base>.safetensors.index.json, laid out as `transformers` writes it. Shards are written
 * one after the other, each flushed when it is full. */
#ifndef COH_MODELS_SAFETENSORS_WRITE_H
#define COH_MODELS_SAFETENSORS_WRITE_H

#include "models/folder_place.h"
#include "models/safetensors.h"

/* Assigns tensors to shards in order: a new shard begins if the next tensor would raise the data
 * above shard_bytes, so only a single tensor larger than that makes a larger shard. 0: all in one.
 * Sets `file` of each tensor and returns the number of shards, at least 1. */
uint32_t coh_safetensors_shard(coh_safetensors_tensor *tensors, size_t count, uint64_t shard_bytes);

/* Memory: 256 KiB, and one header while it is built. A test can make every file operation fail
 * (base/file_ops.h). */
typedef struct coh_safetensors_writer coh_safetensors_writer;

/* `list` is sorted by `file`, which counts from 0 without gaps (coh_safetensors_shard); each file
 * gets the metadata. The headers are byte for byte as the reference writes them: the only blanks
 * pad them to a multiple of 8. Place and list must live until destroy. Fails: COH_ERR_ARGUMENT (a
 * name, dtype or shape that the reader would refuse), COH_ERR_FULL (no room, or sizes beyond 64
 * bits), COH_ERR_IO, COH_ERR_MEMORY. */
coh_status coh_safetensors_writer_create(coh_folder_place *place, const char *base,
                                         const coh_safetensors_list *list,
                                         coh_safetensors_writer **out_writer);

/* Appends the next bytes of the data, in pieces of any size, also across shards. Fails:
 * COH_ERR_ARGUMENT (more than the headers declare), COH_ERR_IO; as create if a shard begins. After
 * a failure only destroy may be called. */
coh_status coh_safetensors_writer_add(coh_safetensors_writer *writer, const void *data,
                                      size_t bytes);

/* Writes and flushes the rest, and the index. Fails: COH_ERR_ARGUMENT (data are missing), and as
 * add. */
coh_status coh_safetensors_writer_finish(coh_safetensors_writer *writer);

void coh_safetensors_writer_destroy(coh_safetensors_writer *writer); /* accepts NULL */

/* Bytes of disk that these files take, in whole pages: data, headers, index. Fails: as create. */
coh_status coh_safetensors_disk_bytes(const coh_safetensors_list *list, const char *base,
                                      uint64_t *out_bytes);

#endif
