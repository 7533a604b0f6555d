/* scratch.h - a folder under TMPDIR for token files that nobody is to keep.
 *
 * Its owner holds it by a lock (flock), which the kernel takes back from a process that dies. So
 * the next command of the same user knows what a killed one left there, and removes it; a folder
 * that somebody holds stays, as does another user's and what only has a similar name. Where the
 * file system knows no locks nothing is removed but one's own. */
#ifndef COH_CLI_SCRATCH_H
#define COH_CLI_SCRATCH_H

#include "cli/say.h"

typedef struct cli_scratch {
    char path[CLI_PATH_BYTES / 2];
    int lock_fd; /* -1: there is none */
} cli_scratch;

/* Removes what killed processes left, then makes a new folder, for files "data.tokens*" and
 * "validation.tokens*". Fails: COH_ERR_IO. */
coh_status cli_scratch_create(cli_scratch *out_scratch);

/* The folder goes, with the files of those names in it. */
void cli_scratch_destroy(cli_scratch *scratch);

#endif
