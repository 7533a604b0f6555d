/* Divides the working store among folders: shares by rate and limit, the map from units to folders,
 * and the measurement of a drive, which opens a small store in its folder. Read cohobate/disk.h and
 * stripe.h first. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "cohobate/machine.h"
#include "cohobate/terms.h"
#include "offload/file_system.h"
#include "offload/store_base.h"

/* A smaller store has smaller units, so that each folder gets its share of it. */
#define UNITS_LEAST 32u

/* Numbers of units fit in 32 bits, and the map of this store takes 4 GiB. */
#define STORE_BYTES_MOST ((uint64_t)1 << 50)

/* Less than the share of a unit that a folder can be short of, and more than doubles are rounded
 * by. */
#define CREDIT_LEAST 1e-6

/* ---- shares ---- */

static uint64_t unit_bytes_of(uint32_t disk_count, uint64_t bytes)
{
    uint64_t unit = COH_DISK_UNIT_BYTES;
    while (unit > COH_PAGE_BYTES && bytes / unit < (uint64_t)UNITS_LEAST * disk_count)
        unit /= 2;
    return unit;
}

static coh_status refuse_limits(uint64_t bytes, uint64_t allowed)
{
    char needs[32], allows[32];
    return coh_fail(COH_ERR_FULL,
                    "the working store needs %s, and its folders take at most %s together: raise "
                    "the limit of one, or add a folder with %s",
                    coh_size_format(bytes, needs, sizeof(needs)),
                    coh_size_format(allowed, allows, sizeof(allows)),
                    coh_term_text(COH_TERM_A_DISK));
}

/* Computes how many units each folder should have, as real numbers: in proportion to the rates,
 * except for folders whose limit is lower. Fails: COH_ERR_FULL. */
static coh_status share_units(const coh_disk *disks, uint32_t disk_count, uint64_t unit_bytes,
                              uint64_t unit_count, double *out_units)
{
    int is_measured = 1, is_full[COH_DISKS_MOST] = { 0 }, found = 1;
    double left = (double)unit_count, allowed = 0, most[COH_DISKS_MOST];
    for (uint32_t i = 0; i < disk_count; i++) {
        const uint64_t units = disks[i].bytes / unit_bytes;
        most[i] = (double)units;
        is_measured &= disks[i].bytes_per_s > 0;
        allowed += most[i];
    }
    if (allowed < left)
        return refuse_limits(unit_count * unit_bytes, (uint64_t)allowed * unit_bytes);
    while (found) {
        double weight = 0;
        found = 0;
        for (uint32_t i = 0; i < disk_count; i++)
            weight += is_full[i] ? 0 : is_measured ? disks[i].bytes_per_s : 1;
        for (uint32_t i = 0; i < disk_count && !found; i++) {
            if (is_full[i])
                continue;
            out_units[i] = left * (is_measured ? disks[i].bytes_per_s : 1) / weight;
            if (out_units[i] <= most[i])
                continue;
            out_units[i] = most[i];
            left -= most[i];
            is_full[i] = found = 1;
        }
    }
    return COH_OK;
}

/* Returns the folder of unit `number`: among those that are behind their share, the one whose next
 * unit is due first. */
static uint32_t choose(const double *units, const uint64_t *counts, uint32_t disk_count,
                       uint64_t number, uint64_t unit_count)
{
    const double part = (double)(number + 1) / (double)unit_count;
    uint32_t chosen = 0;
    double due = INFINITY;
    for (uint32_t i = 0; i < disk_count; i++) {
        const double next = (double)(counts[i] + 1) / units[i];
        if (units[i] * part - (double)counts[i] > CREDIT_LEAST && next < due) {
            chosen = i;
            due = next;
        }
    }
    return chosen;
}

coh_status coh_stripe_init(coh_stripe *stripe, const coh_disk *disks, uint32_t disk_count,
                           uint64_t bytes)
{
    double units[COH_DISKS_MOST];
    uint64_t counts[COH_DISKS_MOST] = { 0 };
    uint32_t disk = 0;
    *stripe = (coh_stripe){ .unit_bytes = bytes, .disk_bytes = { bytes } };
    if (disk_count <= 1)
        return disk_count == 0 || disks[0].bytes >= bytes ? COH_OK
                                                          : refuse_limits(bytes, disks[0].bytes);
    if (bytes > STORE_BYTES_MOST)
        return coh_fail(COH_ERR_ARGUMENT,
                        "a working store of %" PRIu64 " bytes in %" PRIu32
                        " folders: at most %" PRIu64,
                        bytes, disk_count, STORE_BYTES_MOST);
    const uint64_t unit_bytes = unit_bytes_of(disk_count, bytes);
    const uint64_t unit_count = (bytes + unit_bytes - 1) / unit_bytes;
    COH_TRY(share_units(disks, disk_count, unit_bytes, unit_count, units));
    COH_TRY(COH_ALLOC(unit_count, &stripe->homes));
    stripe->unit_bytes = unit_bytes;
    for (uint64_t number = 0; number < unit_count; number++) {
        disk = choose(units, counts, disk_count, number, unit_count);
        stripe->homes[number] = (coh_home){ .disk = disk, .unit = (uint32_t)counts[disk]++ };
    }
    for (uint32_t i = 0; i < disk_count; i++)
        stripe->disk_bytes[i] = counts[i] * unit_bytes;
    stripe->disk_bytes[disk] -= unit_count * unit_bytes - bytes; /* the last unit may be shorter */
    return COH_OK;
}

void coh_stripe_fini(coh_stripe *stripe)
{
    coh_free(stripe->homes);
    *stripe = (coh_stripe){ 0 };
}

uint32_t coh_stripe_find(const coh_stripe *stripe, uint64_t offset, size_t *bytes,
                         uint64_t *out_offset)
{
    if (stripe->homes == NULL) {
        *out_offset = offset;
        return 0;
    }
    const uint64_t at = offset % stripe->unit_bytes;
    const coh_home *home = &stripe->homes[offset / stripe->unit_bytes];
    if (bytes != NULL && *bytes > stripe->unit_bytes - at)
        *bytes = (size_t)(stripe->unit_bytes - at);
    *out_offset = home->unit * stripe->unit_bytes + at;
    return home->disk;
}

/* ---- the public functions ---- */

static coh_status check_disk(const coh_disk *disks, uint32_t at, struct stat *facts)
{
    const coh_disk *disk = &disks[at];
    COH_NEED(disk->folder);
    COH_TRY(coh_check_path("coh_disks_check", "folder", disk->folder));
    COH_TRY(coh_check_number("bytes_per_s", disk->bytes_per_s, 0, DBL_MAX));
    if (stat(disk->folder, &facts[at]) != 0 || !S_ISDIR(facts[at].st_mode))
        return coh_fail(COH_ERR_ARGUMENT, "%s is not a folder: name an existing one", disk->folder);
    for (uint32_t i = 0; i < at; i++)
        if (facts[i].st_dev == facts[at].st_dev && facts[i].st_ino == facts[at].st_ino)
            return coh_fail(COH_ERR_ARGUMENT, "%s and %s are one folder: name each folder once",
                            disks[i].folder, disk->folder);
    return COH_OK;
}

coh_status coh_disks_check(const coh_disk *disks, uint32_t disk_count,
                           uint32_t *out_file_system_count)
{
    struct stat facts[COH_DISKS_MOST];
    COH_NEED(disks);
    COH_NEED(out_file_system_count);
    *out_file_system_count = 0;
    COH_TRY(coh_check_integer("disk_count", disk_count, 1, COH_DISKS_MOST));
    for (uint32_t i = 0; i < disk_count; i++) {
        COH_TRY(check_disk(disks, i, facts));
        uint32_t first = 0;
        while (first < i && facts[first].st_dev != facts[i].st_dev &&
               !coh_space_is_shared(disks[first].folder, disks[i].folder))
            first++;
        *out_file_system_count += first == i;
    }
    return COH_OK;
}

/* Returns the bytes per second of as many reads as writes, one after the other; 0: unknown. */
static coh_status measure_disk(const coh_disk *disk, double *out_bytes_per_s)
{
    const coh_disk whole = { .folder = disk->folder, .bytes = UINT64_MAX };
    const coh_store_config config = { .disks = &whole,
                                      .disk_count = 1,
                                      .bytes = COH_STORE_MEASURED_LEAST,
                                      .chunk_count = 1,
                                      .port_depth = 1 };
    const coh_store_ops *ops;
    coh_store *store;
    coh_store_facts facts;
    COH_TRY(coh_store_open(&config, NULL, &ops, &store));
    const coh_status status = ops->facts(store, &facts);
    ops->close(store);
    COH_TRY(status);
    if (facts.read_bytes_per_s > 0 && facts.write_bytes_per_s > 0)
        *out_bytes_per_s =
            2 / (1 / (double)facts.read_bytes_per_s + 1 / (double)facts.write_bytes_per_s);
    return COH_OK;
}

coh_status coh_disks_measure(coh_disk *disks, uint32_t disk_count)
{
    uint32_t file_system_count;
    COH_TRY(coh_disks_check(disks, disk_count, &file_system_count));
    for (uint32_t i = 0; i < disk_count; i++)
        disks[i].bytes_per_s = 0;
    for (uint32_t i = 0; i < disk_count; i++)
        if (disks[i].bytes < COH_STORE_MEASURED_LEAST)
            return COH_OK;
    for (uint32_t i = 0; i < disk_count; i++)
        COH_TRY(measure_disk(&disks[i], &disks[i].bytes_per_s));
    return COH_OK;
}

coh_status coh_disks_share(const coh_disk *disks, uint32_t disk_count, uint64_t bytes,
                           uint64_t *out_bytes)
{
    uint32_t file_system_count;
    coh_stripe stripe;
    COH_NEED(out_bytes);
    COH_TRY(coh_disks_check(disks, disk_count, &file_system_count));
    const coh_status status = coh_stripe_init(&stripe, disks, disk_count, bytes);
    for (uint32_t i = 0; i < disk_count && status == COH_OK; i++)
        out_bytes[i] = stripe.disk_bytes[i];
    coh_stripe_fini(&stripe);
    return status;
}
