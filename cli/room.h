/* room.h - the drive space of a training run. train checks it before it reads or makes anything;
 * plan asks the same question and prints the answer.
 *
 *     cli_room_folder ──> cli_room_find ──────────────> cli_room_check
 *     where it is kept    store, checkpoints, records,  is there room, and if not:
 *                         tokens                        which flag would do */
#ifndef COH_CLI_ROOM_H
#define COH_CLI_ROOM_H

#include "cli/disks.h"
#include "cli/job.h"
#include "cli/run_folder.h"

/* Chooses the path of the run's folder: --save, else the folder of the checkpoint that it resumes
 * from, else a new name; "": nothing is kept. Makes nothing. Fails: COH_ERR_ARGUMENT, COH_ERR_IO.
 */
coh_status cli_room_folder(const cli_job *job, char out_path[CLI_PATH_BYTES]);

/* Adds up what the run writes, into *out_room, which points into `folder`: the run's, open or only
 * looked at. With --epochs, before the data is counted, it is the least: one save. Fails: as the
 * library. */
coh_status cli_room_find(const cli_job *job, cli_run_folder *folder, cli_room *out_room);

/* Checks that it fits: on the drives, and in memory what lies on a file system in memory. The
 * refusal names the flags that need less. If the store alone is in the way and a smaller one has a
 * plan, that is named, too, which takes a quick plan. Fails: COH_ERR_FULL, COH_ERR_IO. */
coh_status cli_room_check(const cli_job *job, const cli_disks *disks, const cli_room *room);

/* Is the folder on a file system in memory (tmpfs, ramfs)? */
int cli_room_is_in_memory(const char *folder);

/* As train would check now. Makes and changes nothing; folders without a given limit count as what
 * they have free, since their shares are not measured. Fails: as above. */
coh_status cli_room_check_plan(const cli_job *job);

#endif
