/* folder_place.h - a new folder that is there whole or not at all:
 *
 *     begin (mkdir FOLDER.partial-...) -> files, each flushed -> publish (flush, rename, flush the
 *     parent) -> end
 *
 * Until publish, all is under a temporary name beside `path`; end removes what is not published. An
 * existing path is refused. Every file operation can be made to fail (base/file_ops.h).
 *
 * The temporary folder is locked (flock) while it is written. So begin can tell, and removes, the
 * ones of the same path whose process was killed; one that is being written stays. */
#ifndef COH_MODELS_FOLDER_PLACE_H
#define COH_MODELS_FOLDER_PLACE_H

#include <limits.h>
#include <stddef.h>

#include "base/check.h"
#include "base/file_ops.h"

typedef struct coh_folder_place {
    coh_file_ops ops;
    char path[PATH_MAX], partial[PATH_MAX]; /* partial: "" until it is there, and once it is not */
    int lock_fd;                            /* of the temporary folder; open while that is there */
} coh_folder_place;

/* Fails: COH_ERR_ARGUMENT (`path` exists, or cannot be a folder's), COH_ERR_IO. `place` may be
 * ended then. */
coh_status coh_folder_place_begin(coh_folder_place *place, const char *path);

/* The path of a file in it, of PATH_MAX bytes. Fails: COH_ERR_ARGUMENT when it is too long. */
coh_status coh_folder_place_path(const coh_folder_place *place, const char *name, char *out_path);

/* A new file; its path goes to `out_path`, PATH_MAX bytes. Fails: COH_ERR_ARGUMENT, COH_ERR_IO. */
coh_status coh_folder_place_create(coh_folder_place *place, const char *name, char *out_path,
                                   int *out_fd);

/* A folder `name` in it, for files "name/..."; flush once they are there. Fails: as create does. */
coh_status coh_folder_place_below(coh_folder_place *place, const char *name);
coh_status coh_folder_place_flush(coh_folder_place *place, const char *name);

/* Flushes it and closes it, whatever comes; `error` (0, -errno) is that of what came before. */
coh_status coh_folder_place_close(coh_folder_place *place, int fd, int error, const char *path);

/* A file of these bytes. */
coh_status coh_folder_place_file(coh_folder_place *place, const char *name, const char *data,
                                 size_t bytes);

/* Fails: COH_ERR_ARGUMENT (`path` has come to exist), COH_ERR_IO; end then takes back what may not
 * outlive a power cut. */
coh_status coh_folder_place_publish(coh_folder_place *place);

void coh_folder_place_end(coh_folder_place *place); /* accepts a zeroed one */

#endif
