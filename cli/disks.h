/* disks.h - the folders of --disk: several drives that share the working store. Shared by all
 * commands with a disk tier. Next: cohobate/disk.h. */
#ifndef COH_CLI_DISKS_H
#define COH_CLI_DISKS_H

#include "cli/options.h"

/* The folders as the library takes them; `of` points into the options. */
typedef struct cli_disks {
    coh_disk of[COH_DISKS_MOST];
    uint32_t count;
} cli_disks;

/* What a command will write to drives. */
typedef struct cli_room {
    uint64_t store_bytes;      /* the working stores of this machine's ranks */
    const char *run_folder;    /* holds checkpoints and records; NULL: nothing is kept */
    uint64_t checkpoint_count; /* of checkpoint_bytes together */
    uint64_t checkpoint_bytes, record_bytes;
    uint64_t each_bytes;      /* what one checkpoint fewer frees */
    const char *token_folder; /* the text becomes a token file there; NULL: none does */
    uint64_t token_bytes;     /* of that file, estimated */
} cli_room;

void cli_disks_list(const cli_options *options, cli_disks *out_disks);

/* Adds each folder after the text `before`, and its limit, if it has one, after `up_to` (NULL: no
 * limits). */
void cli_disks_add(const cli_options *options, const char *before, const char *up_to,
                   cli_line *line);

/* Refuses a folder that is given twice; prints a note if folders share a file system. Sets
 * drive_count: each file system counts as a drive. Fails: COH_ERR_ARGUMENT. */
coh_status cli_disks_check(cli_options *options);

/* Names of items in a refusal of space. */
#define CLI_STORE_ITEM      "the working store"
#define CLI_CHECKPOINT_ITEM "checkpoint"

/* Checks that everything fits, summed per file system. Fails: COH_ERR_FULL with the folder and the
 * missing bytes. */
coh_status cli_disks_preflight(const cli_disks *disks, const cli_room *room);

/* Measures the drives if there are several and the store is worth it, once. A folder without room
 * for that is left to cli_disks_preflight, which knows its share. Fails: COH_ERR_FULL, COH_ERR_IO.
 */
coh_status cli_disks_measure(cli_disks *disks, uint64_t store_bytes);

/* Adds a line for each of several folders: its part of the store, its rate, and its part of the
 * bytes written a day (0: none). */
coh_status cli_disks_describe(const cli_disks *disks, uint64_t store_bytes, double written_per_day,
                              cli_line *line);

#endif
