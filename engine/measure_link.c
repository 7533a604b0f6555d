/* Measures the links between device and host tier by copies on the device's own lanes. On the host
 * device these are the links of the emulated far tier. Next: measure.h, measure_bed.h. */
#include <inttypes.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "cohobate/machine.h"
#include "engine/measure.h"

enum { DIRECTIONS = 2, DEPTHS = 3 };
static const coh_lane lanes[DIRECTIONS] = { COH_LANE_H2D, COH_LANE_D2H };
static const uint32_t depths[DEPTHS] = { 1, 2, 4 };

/* Latency is measured with copies whose transfer time is negligible. */
#define SMALL_BYTES  4096u
#define SMALL_COPIES 256
/* Sizes of single copies: those of chunks. */
#define SINGLE_SMALL_BYTES ((uint64_t)64 << 10)
#define SINGLE_LARGE_BYTES ((uint64_t)1 << 20)

typedef struct direction {
    struct coh_links *links;
    coh_lane_load load; /* copies of copy_bytes each */
    uint64_t copy_bytes;
} direction;

typedef struct coh_links {
    coh_bed *bed;
    char *arenas[COH_TIER_COUNT];
    uint64_t bytes; /* of each */
    direction directions[DIRECTIONS];
} coh_links;

static void set_copy_bytes(direction *d, uint64_t bytes)
{
    d->copy_bytes = bytes;
    d->load.amount = (double)bytes;
}

/* Copies in separate halves of the arenas for each direction. */
static coh_status enqueue_copy(void *context)
{
    const direction *d = context;
    const coh_links *links = d->links;
    const coh_lane lane = d->load.lane;
    const uint64_t places = links->bytes / 2 / d->copy_bytes;
    const uint64_t half = lane == COH_LANE_H2D ? 0 : links->bytes / 2;
    const uint64_t at = half + links->bed->signalled[lane] % places * d->copy_bytes;
    char *device = links->arenas[COH_TIER_DEVICE] + at, *host = links->arenas[COH_TIER_HOST] + at;
    const int to_device = lane == COH_LANE_H2D;
    links->bed->what->ops->copy(links->bed->queues[lane], to_device ? device : host,
                                to_device ? host : device, (size_t)d->copy_bytes);
    return COH_OK;
}

/* Runs one copy by itself. */
static coh_status single(direction *d, uint64_t bytes)
{
    const uint64_t copy_bytes = d->copy_bytes;
    double done = 0;
    set_copy_bytes(d, bytes);
    coh_status status = coh_lane_load_submit(&d->load);
    set_copy_bytes(d, copy_bytes);
    return status == COH_OK ? coh_lane_load_rest(&d->load, &done) : status;
}

static coh_status single_small(void *context)
{
    return single(context, SINGLE_SMALL_BYTES);
}

static coh_status single_large(void *context)
{
    return single(context, SINGLE_LARGE_BYTES);
}

/* ---- open and close ---- */

static void open_direction(coh_measure *m, coh_links *links, int index)
{
    direction *d = &links->directions[index];
    const coh_lane lane = lanes[index];
    *d = (direction){ .links = links,
                      .load = { .bed = links->bed,
                                .lane = lane,
                                .enqueue = enqueue_copy,
                                .context = d,
                                .depth = depths[0] } };
    set_copy_bytes(d, links->bytes / 8);
    m->loads[lane] =
        (coh_load){ .turn = coh_lane_load_turn, .rest = coh_lane_load_rest, .context = &d->load };
    m->singles[lane][COH_SINGLE_SMALL] =
        (coh_single){ .transfer = single_small, .context = d, .bytes = SINGLE_SMALL_BYTES };
    m->singles[lane][COH_SINGLE_LARGE] =
        (coh_single){ .transfer = single_large, .context = d, .bytes = SINGLE_LARGE_BYTES };
}

static void tell_pinning(const coh_measure *m, uint64_t bytes)
{
    coh_arena_facts facts;
    char size[32];
    m->bed->what->ops->arena_facts(m->bed->device, COH_TIER_HOST, &facts);
    coh_measure_say(m, "%s of pinned memory: %.3f s per GiB to touch it first, %.3f s to pin it",
                    coh_size_format(bytes, size, sizeof(size)),
                    (double)facts.touch_ns * 1e-9 / (double)bytes * 0x1p30,
                    (double)facts.pin_ns * 1e-9 / (double)bytes * 0x1p30);
}

static coh_status open_links(coh_measure *m)
{
    COH_TRY(COH_ALLOC(1, &m->links));
    coh_links *links = m->links;
    links->bed = m->bed;
    links->bytes = m->effort.link_bytes;
    COH_TRY(coh_bed_open_tiers(m->bed, links->bytes, links->bytes, links->arenas));
    if (!m->bed->is_host)
        tell_pinning(m, links->bytes);
    for (int i = 0; i < DIRECTIONS; i++)
        open_direction(m, links, i);
    return COH_OK;
}

void coh_links_close(coh_measure *m)
{
    if (m->links != NULL)
        coh_bed_close_tiers(m->links->bed);
    coh_free(m->links);
}

/* ---- figures ---- */

/* Copies and waits for the end in the fastest way. On a GPU that is finishing the stream, since
 * lanes wait for one another there without the host. */
static coh_status copy_once(direction *d)
{
    const coh_bed *bed = d->links->bed;
    double done = 0;
    if (bed->is_host)
        return coh_lane_load_turn(&d->load, &done);
    COH_TRY(enqueue_copy(d));
    bed->what->ops->finish(bed->queues[d->load.lane]);
    return bed->what->ops->failure(bed->device);
}

/* Small copies, one after the other. */
static coh_status copy_small(void *context)
{
    for (int i = 0; i < SMALL_COPIES; i++)
        COH_TRY(copy_once(context));
    return COH_OK;
}

static coh_status measure_direction(coh_measure *m, direction *d)
{
    const coh_lane lane = d->load.lane;
    const uint64_t copy_bytes = d->copy_bytes;
    coh_figure rates[DEPTHS];
    set_copy_bytes(d, SMALL_BYTES);
    COH_TRY(coh_measure_time(m, copy_small, d, SMALL_COPIES, &m->profile->link[lane].latency_ns));
    set_copy_bytes(d, copy_bytes);
    return coh_measure_depths(m, lane, depths, DEPTHS, &d->load.depth, rates);
}

/* Reports the rates of both directions, alone and together, by the size of copies; a profile has
 * only one rate. */
static coh_status tell_sizes(const coh_measure *m, coh_links *links)
{
    direction *up = &links->directions[0], *down = &links->directions[1];
    const coh_load *loads[DIRECTIONS] = { &m->loads[lanes[0]], &m->loads[lanes[1]] };
    const uint64_t most = up->copy_bytes;
    for (uint64_t bytes = SINGLE_SMALL_BYTES; bytes <= most; bytes *= 8) {
        double alone[DIRECTIONS], together[DIRECTIONS];
        char size[32];
        set_copy_bytes(up, bytes);
        set_copy_bytes(down, bytes);
        for (int i = 0; i < DIRECTIONS; i++)
            COH_TRY(coh_load_rate(loads[i], m->effort.window_ns, &alone[i]));
        COH_TRY(
            coh_load_rates(loads[0], loads[1], m->effort.window_ns, &together[0], &together[1]));
        coh_measure_say(m,
                        "copies of %s: %.1f GB/s to the device, %.1f GB/s from it, %.1f and %.1f "
                        "GB/s at once",
                        coh_size_format(bytes, size, sizeof(size)), alone[0] * 1e-9,
                        alone[1] * 1e-9, together[0] * 1e-9, together[1] * 1e-9);
    }
    set_copy_bytes(up, most);
    set_copy_bytes(down, most);
    return COH_OK;
}

coh_status coh_measure_links(coh_measure *m)
{
    int is_new = 0;
    COH_TRY(open_links(m));
    for (int i = 0; i < DIRECTIONS; i++) {
        direction *d = &m->links->directions[i];
        coh_measure_begin(m, "copies on %s", coh_lane_name(lanes[i]));
        if (coh_measure_knows_link(m, lanes[i], depths[DEPTHS - 1], &d->load.depth))
            continue;
        is_new = 1;
        COH_TRY(measure_direction(m, d));
    }
    return is_new && !m->bed->is_host ? tell_sizes(m, m->links) : COH_OK;
}
