/* checkpoint_frozen.h - the file of frozen tensors, which the checkpoints of a run share.
 *
 *   step-100/frozen.bin ─┐
 *   step-200/frozen.bin ─┼─> one file, with as many names
 *   step-300/frozen.bin ─┘
 *
 * The one idea: no step changes frozen tensors, so a save gives the file of an earlier checkpoint a
 * further name (a hard link) instead of writing its bytes again. A checkpoint is whole by itself:
 * removing another one takes a name away, and copying it copies the bytes.
 *
 * A name may be of another file by now, or the file may have been changed. So what is linked is
 * compared with what is remembered of the file: its number, length and time of the last write.
 *
 * Next: checkpoint_writer.h. Nothing here allocates. Threads: one at a time. */
#ifndef COH_ENGINE_CHECKPOINT_FROZEN_H
#define COH_ENGINE_CHECKPOINT_FROZEN_H

#include <limits.h>
#include <sys/types.h>
#include <time.h>

#include "cohobate/checkpoint.h"
#include "engine/checkpoint_files.h"

/* A file of frozen tensors. */
typedef struct coh_frozen_file {
    char folder[PATH_MAX]; /* its checkpoint's; "": no file is known */
    dev_t device;
    ino_t number;
    off_t bytes;
    struct timespec written;
} coh_frozen_file;

/* Describes the open file `fd` of the checkpoint in `folder`; folder "" if that fails. */
void coh_frozen_file_see(int fd, const char *folder, coh_frozen_file *out_file);

/* Links the file as `path`, and opens it, for a flush: it may be a copy that was never flushed.
 * Returns a descriptor; -errno if it cannot be linked, and -ESTALE if the file is no longer the one
 * that was seen. No name is left then. */
int coh_frozen_file_link(const coh_frozen_file *file, coh_file_ops *ops, const char *path);

/* Returns 1 if all of the values are exact in bf16. */
int coh_frozen_is_bf16(const float *values, uint64_t count);

/* Describes the file of frozen tensors of an open checkpoint, and copies the hashes of its grains,
 * if it is the file that a checkpoint of the hash's table would have. Returns 1 then, else 0: the
 * checkpoint has no such file, or of other tensors, or of another dtype. checkpoint.c */
int coh_checkpoint_frozen_get(const coh_checkpoint *checkpoint, const coh_logical_table *table,
                              coh_logical_hash *hash, coh_frozen_file *out_file);

#endif
