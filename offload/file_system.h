/* file_system.h - finds out which folders share their free space.
 *
 * The one idea: st_dev is not enough. Subvolumes of btrfs, datasets of ZFS, and the overlay of a
 * container next to a volume of the same drive have a number each, and all report the free space of
 * one pool:
 *
 *     stat        statfs, mountinfo                  shares space with
 *     st_dev      (any type)                         every folder with this st_dev
 *     a new one   btrfs, source /dev/nvme0n1p2       each mount of that source
 *     a new one   zfs, source tank/home              each dataset of the pool "tank"
 *     a new one   overlay, source "overlay"          a file system with the same numbers of blocks,
 *                                                    free blocks, files and free files
 *
 * Two equal drives that were just formatted are not taken for one: btrfs and ZFS are compared by
 * their source, and an overlay always holds a container's files, which an empty drive does not.
 * Nothing here allocates. Threads: any. */
#ifndef COH_OFFLOAD_FILE_SYSTEM_H
#define COH_OFFLOAD_FILE_SYSTEM_H

#include <stdint.h>

#include "base/check.h"

typedef struct coh_file_system {
    uint64_t device; /* st_dev */
    uint64_t type;   /* f_type of statfs */
    uint64_t total_bytes, free_bytes, file_count, free_file_count;
    char source[256]; /* as mountinfo has it; "": unknown */
} coh_file_system;

/* Examines the file system of an existing path. Returns 0, or an errno. */
int coh_file_system_find(const char *path, coh_file_system *out_system);

/* Do two file systems, examined one right after the other, share their free space? */
int coh_file_system_is_shared(const coh_file_system *a, const coh_file_system *b);

/* Do the file systems of two existing paths share their free space? 0 if one cannot be examined. */
int coh_space_is_shared(const char *path, const char *other);

/* Finds the source of mount `id` in a file of the form of /proc/self/mountinfo; "" if it is not
 * there. Reads lines of any length; a source that is too long is cut. */
void coh_mount_source(const char *mountinfo, uint64_t id, char *out_source, uint32_t source_bytes);

#endif
