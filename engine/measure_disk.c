/* Measures the drive behind the disk folder through the working store: chunks of one piece, `depth`
 * of them in flight. The scratch file's first half is for reads, the second for writes, followed by
 * a page of each for latencies. Next: measure.h, offload/store.h.
 *
 *    | chunks that are read | chunks that are written | page | page | */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "cohobate/machine.h"
#include "cohobate/run.h"
#include "engine/measure.h"
#include "offload/store_load.h"

enum { PORTS = 2, DEPTHS = 7 };
static const coh_lane lanes[PORTS] = { COH_LANE_READ, COH_LANE_WRITE };
static const coh_store_port ports[PORTS] = { COH_STORE_READS, COH_STORE_WRITES };
static const char *const names[PORTS] = { "reads", "writes" };
static const uint32_t depths[DEPTHS] = { 1, 2, 4, 8, 16, 32, 64 };

typedef struct coh_drive {
    const coh_store_ops *ops;
    coh_store *store;
    coh_arena *arena;
    coh_store_load loads[PORTS], pages[PORTS];
    coh_store_load chunks[PORTS]; /* as loads, one at a time */
} coh_drive;

/* ---- loads ---- */

/* Calls `move`, and counts the bytes that it retired. */
static coh_status counted(coh_status (*move)(coh_store_load *load), coh_store_load *load,
                          double *done)
{
    const uint64_t before = load->retired;
    COH_TRY(move(load));
    *done += (double)(load->retired - before) * (double)load->chunk_bytes;
    return COH_OK;
}

static coh_status turn(void *context, double *done)
{
    return counted(coh_store_load_turn, context, done);
}

static coh_status rest(void *context, double *done)
{
    return counted(coh_store_load_rest, context, done);
}

static coh_status single(void *context)
{
    coh_store_load *load = context;
    COH_TRY(coh_store_load_turn(load));
    return coh_store_load_rest(load);
}

static coh_single single_of(coh_store_load *load)
{
    return (coh_single){ .transfer = single, .context = load, .bytes = load->chunk_bytes };
}

/* ---- open and close ---- */

/* Writes everything that reads will use, once, by the port for writes. */
static coh_status fill(coh_drive *drive, const coh_measure_effort *effort)
{
    coh_store_load all[] = { drive->loads[0], drive->loads[1], drive->pages[0], drive->pages[1] };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        all[i].port = COH_STORE_WRITES;
        all[i].depth = i < PORTS ? effort->deepest : 1;
        while (all[i].submitted < all[i].chunk_count)
            COH_TRY(coh_store_load_turn(&all[i]));
        COH_TRY(coh_store_load_rest(&all[i]));
    }
    return COH_OK;
}

static void place_loads(coh_drive *drive, const coh_measure_effort *effort, uint32_t half)
{
    const uint64_t chunk = effort->disk_chunk_bytes;
    for (int i = 0; i < PORTS; i++) {
        drive->loads[i] = (coh_store_load){
            .ops = drive->ops,
            .store = drive->store,
            .port = ports[i],
            .memory = (unsigned char *)coh_arena_base(drive->arena) +
                      (uint64_t)i * effort->deepest * chunk,
            .chunk_bytes = (size_t)chunk,
            .file_begin = (uint64_t)i * half * chunk,
            .chunk_begin = (uint32_t)i * half,
            .chunk_count = half,
            .depth = 1,
        };
        drive->chunks[i] = drive->pages[i] = drive->loads[i];
        drive->pages[i].chunk_bytes = COH_PAGE_BYTES;
        drive->pages[i].file_begin = PORTS * half * chunk + (uint64_t)i * COH_PAGE_BYTES;
        drive->pages[i].chunk_begin = PORTS * half + (uint32_t)i;
        drive->pages[i].chunk_count = 1;
    }
}

static coh_status refuse_size(uint64_t least_bytes, uint64_t bytes)
{
    char least[32], allowed[32];
    return coh_fail(COH_ERR_FULL,
                    "measuring a drive takes a scratch file of %s, and %s are allowed: allow that",
                    coh_size_format(least_bytes, least, sizeof(least)),
                    coh_size_format(bytes, allowed, sizeof(allowed)));
}

static coh_status check_room(const coh_disk *disks, uint32_t disk_count, uint64_t bytes)
{
    coh_space_item items[COH_DISKS_MOST];
    uint64_t shares[COH_DISKS_MOST];
    COH_TRY(coh_disks_share(disks, disk_count, bytes, shares));
    for (uint32_t i = 0; i < disk_count; i++)
        items[i] = (coh_space_item){ .folder = disks[i].folder,
                                     .what = "scratch file to measure the drive with",
                                     .bytes = shares[i] };
    return coh_space_check(items, disk_count);
}

/* Measures each of several drives by itself. A drive that has less than half the rate of another is
 * worth a sentence: it adds little. */
static coh_status measure_each(coh_measure *m, coh_disk *disks, uint32_t disk_count)
{
    uint32_t best = 0;
    if (disk_count < 2)
        return COH_OK;
    COH_TRY(coh_disks_measure(disks, disk_count));
    for (uint32_t i = 1; i < disk_count; i++)
        best = disks[i].bytes_per_s > disks[best].bytes_per_s ? i : best;
    for (uint32_t i = 0; i < disk_count && disks[i].bytes_per_s > 0; i++)
        coh_measure_say(m, "%s alone: %.2f GB/s of reads and writes in turn%s", disks[i].folder,
                        disks[i].bytes_per_s * 1e-9,
                        2 * disks[i].bytes_per_s < disks[best].bytes_per_s
                            ? ", a slow one: it gets a small share"
                            : "");
    return COH_OK;
}

static coh_status open_store(coh_measure *m, coh_drive *drive)
{
    const uint32_t disk_count = m->options->disk_count;
    coh_disk disks[COH_DISKS_MOST];
    const coh_measure_effort *effort = &m->effort;
    const uint64_t chunk = effort->disk_chunk_bytes;
    const uint64_t pages = PORTS * COH_PAGE_BYTES;
    uint64_t bytes = effort->disk_bytes + pages;
    const uint64_t memory_bytes = PORTS * effort->deepest * chunk;
    coh_store_facts facts;
    if (bytes > m->options->disk_bytes)
        bytes = m->options->disk_bytes;
    const uint32_t half = (uint32_t)((bytes > pages ? bytes - pages : 0) / chunk / PORTS);
    if (half < effort->deepest)
        return refuse_size(PORTS * effort->deepest * chunk + pages, bytes);
    memcpy(disks, m->options->disks, disk_count * sizeof(disks[0]));
    const coh_store_config config = { .disks = disks,
                                      .disk_count = disk_count,
                                      .bytes = PORTS * half * chunk + pages,
                                      .chunk_count = PORTS * (half + 1),
                                      .port_depth = effort->deepest };
    COH_TRY(measure_each(m, disks, disk_count));
    COH_TRY(check_room(disks, disk_count, config.bytes));
    COH_TRY(coh_arena_create(memory_bytes, "memory to measure a drive with", COH_TIER_DEVICE, NULL,
                             m->options->thread_count, &drive->arena));
    COH_TRY(coh_store_open(&config, NULL, &drive->ops, &drive->store));
    COH_TRY(drive->ops->register_arena(drive->store, coh_arena_base(drive->arena),
                                       (size_t)memory_bytes));
    COH_TRY(drive->ops->facts(drive->store, &facts));
    if (facts.reason != NULL)
        coh_measure_say(m, "the drive is measured through %s: %s", facts.backend, facts.reason);
    place_loads(drive, effort, half);
    return fill(drive, effort);
}

static coh_status open_drive(coh_measure *m)
{
    COH_TRY(COH_ALLOC(1, &m->drive));
    coh_drive *drive = m->drive;
    COH_TRY(open_store(m, drive));
    for (int i = 0; i < PORTS; i++) {
        m->loads[lanes[i]] = (coh_load){ .turn = turn, .rest = rest, .context = &drive->loads[i] };
        m->singles[lanes[i]][COH_SINGLE_SMALL] = single_of(&drive->pages[i]);
        m->singles[lanes[i]][COH_SINGLE_LARGE] = single_of(&drive->chunks[i]);
    }
    return COH_OK;
}

void coh_drive_close(coh_measure *m)
{
    coh_drive *drive = m->drive;
    if (drive == NULL)
        return;
    if (drive->store != NULL)
        drive->ops->close(drive->store);
    coh_arena_destroy(drive->arena);
    coh_free(drive);
}

/* ---- figures ---- */

/* Reports the rates at all depths; a profile keeps only the chosen depth. */
static void tell_depths(const coh_measure *m, const coh_drive *drive, int port,
                        const coh_figure *rates, uint32_t depth_count)
{
    char size[32], instruction[32 * DEPTHS] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < depth_count && used < sizeof(instruction); i++)
        used += (size_t)snprintf(instruction + used, sizeof(instruction) - used,
                                 "%s%.2f%s with %" PRIu32, i > 0 ? ", " : "", rates[i].p50 * 1e-9,
                                 i > 0 ? "" : " GB/s", depths[i]);
    coh_measure_say(m, "%s of %s on the drive: %s at a time", names[port],
                    coh_size_format(drive->loads[port].chunk_bytes, size, sizeof(size)),
                    instruction);
}

static coh_status measure_port(coh_measure *m, coh_drive *drive, int port)
{
    coh_figure rates[DEPTHS];
    uint32_t depth_count = 0;
    while (depth_count < DEPTHS && depths[depth_count] <= m->effort.deepest)
        depth_count++;
    COH_TRY(coh_measure_time(m, single, &drive->pages[port], 1,
                             &m->profile->link[lanes[port]].latency_ns));
    COH_TRY(
        coh_measure_depths(m, lanes[port], depths, depth_count, &drive->loads[port].depth, rates));
    tell_depths(m, drive, port, rates, depth_count);
    return COH_OK;
}

/* Writes enough bytes to fill a drive's cache; the last third of them gives the sustained rate. */
static coh_status measure_sustained(coh_measure *m, coh_drive *drive)
{
    coh_link_profile *link = &m->profile->link[COH_LANE_WRITE];
    coh_store_load *load = &drive->loads[1];
    const uint64_t begin = load->retired;
    const uint64_t chunks = m->effort.sustained_bytes / load->chunk_bytes;
    coh_samples samples;
    double rate;
    coh_samples_begin(&samples);
    while (load->retired - begin < chunks) {
        COH_TRY(coh_load_rate(&m->loads[COH_LANE_WRITE], m->effort.window_ns, &rate));
        if (load->retired - begin > chunks / 3 * 2)
            coh_samples_add(&samples, rate);
    }
    link->sustained_bytes_per_s = coh_samples_figure(&samples);
    return COH_OK;
}

coh_status coh_measure_drive(coh_measure *m)
{
    coh_measure_begin(m, "a scratch file in %s%s", m->options->disks[0].folder,
                      m->options->disk_count > 1 ? " and the other folders" : "");
    COH_TRY(open_drive(m));
    for (int i = 0; i < PORTS; i++) {
        coh_measure_begin(m, "%s of the drive", names[i]);
        if (!coh_measure_knows_link(m, lanes[i], m->effort.deepest, &m->drive->loads[i].depth))
            COH_TRY(measure_port(m, m->drive, i));
    }
    coh_measure_begin(m, "writes that a drive sustains");
    if (m->effort.sustained_bytes > 0 &&
        !(m->profile->link[COH_LANE_WRITE].sustained_bytes_per_s.p50 > 0))
        return measure_sustained(m, m->drive);
    return COH_OK;
}
