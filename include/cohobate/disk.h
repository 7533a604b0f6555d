/* disk.h - the folders of the working store: several drives work as one, in parallel.
 *
 * The store is one range of bytes, cut into units of up to 2 MiB. Each unit lies in one folder, and
 * the units of a folder are spread evenly over the range. A chunk of up to one unit lies in one or
 * two folders; with n equal drives, a chunk of n units or more is read from all of them at once:
 *
 *     bytes of the store   | A | A | B | A | A | B | A | ...      A is twice as fast as B
 *
 * A folder's share of the units follows its rate. Shares never change the results of a run.
 *
 *     coh_disks_check ──> coh_disks_measure ──> coh_disks_share ──> coh_engine_options.disks
 *     different folders   rates                 is there room?
 * Threads: any; nothing is kept between calls. */
#ifndef COHOBATE_DISK_H
#define COHOBATE_DISK_H

#include <stdint.h>

#include "cohobate/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Most folders of one store. */
#define COH_DISKS_MOST 8
/* Limits of several folders count in whole units of this size. */
#define COH_DISK_UNIT_BYTES ((uint64_t)2 << 20)
/* Written and read in each folder to measure it. A smaller store is not worth it. */
#define COH_DISK_WORTH_BYTES ((uint64_t)64 << 20)

/* A folder of the working store. */
typedef struct coh_disk {
    const char *folder; /* an existing one */
    uint64_t bytes;     /* limit of this folder's part; UINT64_MAX: none */
    double bytes_per_s; /* of reads and writes in turn. 0: unknown; then all shares are equal */
} coh_disk;

/* Checks a list of folders, and counts their file systems: folders on one file system share a
 * drive, so they are not faster than one of them. File systems that share a pool count as one.
 * Fails: COH_ERR_ARGUMENT: no folder or more than COH_DISKS_MOST, one that does not exist or
 * occurs twice, a rate that is negative or not finite. */
COH_API coh_status coh_disks_check(const coh_disk *disks, uint32_t disk_count,
                                   uint32_t *out_file_system_count);

/* Measures the rate of each folder's drive, one after the other: writes and reads an unnamed file
 * of 64 MiB in each. Leaves all rates 0 if a limit allows less than that.
 * Time: about 0.1 s per drive. Fails: COH_ERR_FULL, COH_ERR_IO naming the folder. */
COH_API coh_status coh_disks_measure(coh_disk *disks, uint32_t disk_count);

/* Divides a store of `bytes` among the folders: in proportion to their rates, up to their limits.
 * Writes disk_count numbers whose sum is `bytes`.
 * Fails: COH_ERR_FULL if the limits do not allow that many; COH_ERR_ARGUMENT as coh_disks_check. */
COH_API coh_status coh_disks_share(const coh_disk *disks, uint32_t disk_count, uint64_t bytes,
                                   uint64_t *out_bytes);

#ifdef __cplusplus
}
#endif
#endif
