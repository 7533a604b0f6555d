/* folder_place.h - creates a folder atomically: it exists completely or not at all.
 *
 *     begin (mkdir FOLDER.partial-...) -> files, each flushed -> publish (flush, rename, flush the
 *     parent) -> end
 *
 * Until publish, everything is under a temporary name next to `path`; end removes it if it is not
 * published. An existing path is refused. A test can make every file operation fail
 * (base/file_ops.h).
 *
 * The temporary folder is locked (flock) while it is written. begin removes unlocked temporary
 * folders of the same path, left by killed processes; a locked one is still being written and
 * stays. */
#ifndef COH_MODELS_FOLDER_PLACE_H
#define COH_MODELS_FOLDER_PLACE_H

#include <limits.h>
#include <stddef.h>

#include "base/check.h"
#include "base/file_ops.h"

typedef struct coh_folder_place {
    coh_file_ops ops;
    char path[PATH_MAX], partial[PATH_MAX]; /* partial: "" while it does not exist */
    int lock_fd;                            /* of the temporary folder; open while it exists */
} coh_folder_place;

/* Creates the temporary folder. Fails: COH_ERR_ARGUMENT (`path` exists, or cannot be a folder's),
 * COH_ERR_IO. `place` may be ended after a failure. */
coh_status coh_folder_place_begin(coh_folder_place *place, const char *path);

/* Creates a file; its path goes to `out_path`, PATH_MAX bytes. Fails: COH_ERR_ARGUMENT,
 * COH_ERR_IO. */
coh_status coh_folder_place_create(coh_folder_place *place, const char *name, char *out_path,
                                   int *out_fd);

/* Creates a subfolder `name` for files "name/..."; flush it after writing them. Fails: as create
 * does. */
coh_status coh_folder_place_below(coh_folder_place *place, const char *name);
coh_status coh_folder_place_flush(coh_folder_place *place, const char *name);

/* Flushes and closes `fd`, always closing it; `error` (0, -errno) is an earlier error to report. */
coh_status coh_folder_place_close(coh_folder_place *place, int fd, int error, const char *path);

/* Writes a file of these bytes. */
coh_status coh_folder_place_file(coh_folder_place *place, const char *name, const char *data,
                                 size_t bytes);

/* Renames the folder to `path` and flushes. Fails: COH_ERR_ARGUMENT (`path` exists now),
 * COH_ERR_IO; if the rename could not be flushed, end removes the folder again. */
coh_status coh_folder_place_publish(coh_folder_place *place);

/* Fails with "<what> <path> failed: <why>: <remedy>" for a file operation's -errno:
 * COH_ERR_ARGUMENT if the name is taken, else COH_ERR_IO. */
coh_status coh_folder_place_fail(int error, const char *what, const char *path);

void coh_folder_place_end(coh_folder_place *place); /* accepts a zeroed one */

#endif
