/* stripe.h - the map from a byte of the working store to its home: a folder's file and an offset.
 *
 * The one idea: units are dealt to the folders by a rule that keeps every folder within one unit of
 * its share in every prefix of the store (the quota method: Balinski and Young, "The Quota Method
 * of Apportionment", American Mathematical Monthly 82, 1975). So shares are exact, and each run of
 * units is spread over all drives. Read cohobate/disk.h first. */
#ifndef COH_OFFLOAD_STRIPE_H
#define COH_OFFLOAD_STRIPE_H

#include <stddef.h>

#include "cohobate/disk.h"

typedef struct coh_home {
    uint32_t disk, unit; /* number of the unit in that folder's file */
} coh_home;

typedef struct coh_stripe {
    uint64_t unit_bytes; /* a power of two from a page to COH_DISK_UNIT_BYTES; of one folder: all */
    uint64_t disk_bytes[COH_DISKS_MOST]; /* sizes of the files; their sum is that of the store */
    coh_home *homes;                     /* by unit; NULL: there is one folder */
} coh_stripe;

/* Makes the map of a store of `bytes`, whole pages.
 * Fails: COH_ERR_FULL if the folders' limits do not allow that many, COH_ERR_MEMORY. */
coh_status coh_stripe_init(coh_stripe *stripe, const coh_disk *disks, uint32_t disk_count,
                           uint64_t bytes);
void coh_stripe_fini(coh_stripe *stripe); /* accepts a zeroed struct */

/* Returns the folder that holds the byte at `offset`, and its offset in that folder's file. Lowers
 * *bytes (NULL: none) to what follows there without a gap. */
uint32_t coh_stripe_find(const coh_stripe *stripe, uint64_t offset, size_t *bytes,
                         uint64_t *out_offset);

#endif
