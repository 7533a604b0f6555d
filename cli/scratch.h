/* scratch.h - creates a folder under TMPDIR for temporary token files.
 *
 * The folder is locked (flock) by its process; the kernel releases the lock when the process dies.
 * The next command of the same user therefore recognises and removes folders of killed processes.
 * Locked folders, those of other users, and other files with similar names stay. On a file system
 * without locks only a process's own folder is removed. */
#ifndef COH_CLI_SCRATCH_H
#define COH_CLI_SCRATCH_H

#include "cli/say.h"

typedef struct cli_scratch {
    char path[CLI_PATH_BYTES / 2];
    int lock_fd; /* -1: there is none */
} cli_scratch;

/* Removes folders of killed processes, then makes a new one for files "data.tokens*" and
 * "validation.tokens*". Fails: COH_ERR_IO. */
coh_status cli_scratch_create(cli_scratch *out_scratch);

/* Removes the folder with the files of these names in it. */
void cli_scratch_destroy(cli_scratch *scratch);

#endif
