/* The links of the emulated far tier: copies by the device's own lanes. */
#include "base/alloc.h"
#include "base/clock.h"
#include "engine/measure.h"
#include "memory/device.h"

enum { DIRECTIONS = 2, DEPTHS = 3 };
static const coh_lane lanes[DIRECTIONS] = { COH_LANE_H2D, COH_LANE_D2H };
static const uint32_t depths[DEPTHS] = { 1, 2, 4 };

/* A latency is that of copies that are over at once. */
#define SMALL_BYTES  4096u
#define SMALL_COPIES 256
/* Copies one by one: of the size of chunks. */
#define SINGLE_SMALL_BYTES ((uint64_t)64 << 10)
#define SINGLE_LARGE_BYTES ((uint64_t)1 << 20)

typedef struct direction {
    coh_links *links;
    coh_lane lane;
    coh_queue *queue;
    coh_counter counter; /* copies that are through: the queue raises it */
    int counter_is_made;
    uint64_t submitted, counted; /* copies */
    uint64_t copy_bytes;
    uint32_t depth;
} direction;

struct coh_links {
    coh_device *device;
    char *arenas[COH_TIER_COUNT];
    uint64_t bytes; /* of each */
    direction directions[DIRECTIONS];
};

static void submit(direction *d)
{
    const coh_links *links = d->links;
    const uint64_t places = links->bytes / 2 / d->copy_bytes;
    const uint64_t half = d->lane == COH_LANE_H2D ? 0 : links->bytes / 2;
    const uint64_t at = half + d->submitted % places * d->copy_bytes;
    char *device = links->arenas[COH_TIER_DEVICE] + at, *host = links->arenas[COH_TIER_HOST] + at;
    const int to_device = d->lane == COH_LANE_H2D;
    coh_device_host.copy(d->queue, to_device ? device : host, to_device ? host : device,
                         (size_t)d->copy_bytes);
    coh_device_host.signal(d->queue, &d->counter, ++d->submitted);
}

static void count(direction *d, double *done)
{
    const uint64_t through = coh_counter_read(&d->counter);
    *done += (double)(through - d->counted) * (double)d->copy_bytes;
    d->counted = through;
}

static coh_status turn(void *context, double *done)
{
    direction *d = context;
    while (d->submitted - d->counted < d->depth)
        submit(d);
    (void)coh_counter_wait(&d->counter, d->submitted - d->depth + 1);
    count(d, done);
    return COH_OK;
}

static coh_status rest(void *context, double *done)
{
    direction *d = context;
    (void)coh_counter_wait(&d->counter, d->submitted);
    count(d, done);
    return COH_OK;
}

/* One copy, alone. */
static coh_status single(direction *d, uint64_t bytes)
{
    const uint64_t copy_bytes = d->copy_bytes;
    double done = 0;
    d->copy_bytes = bytes;
    submit(d);
    d->copy_bytes = copy_bytes;
    return rest(d, &done);
}

static coh_status single_small(void *context)
{
    return single(context, SINGLE_SMALL_BYTES);
}

static coh_status single_large(void *context)
{
    return single(context, SINGLE_LARGE_BYTES);
}

/* ---- life ---- */

static coh_status open_direction(coh_links *links, int index)
{
    direction *d = &links->directions[index];
    *d = (direction){
        .links = links, .lane = lanes[index], .copy_bytes = links->bytes / 8, .depth = depths[0]
    };
    COH_TRY(coh_counter_init(&d->counter));
    d->counter_is_made = 1;
    return coh_device_host.queue_create(links->device, d->lane, &d->queue);
}

static coh_status open_all(coh_measure *m, coh_links *links)
{
    const coh_device_config config = { .thread_count = m->options->thread_count };
    static const coh_tier tiers[] = { COH_TIER_DEVICE, COH_TIER_HOST };
    COH_TRY(coh_device_host.create(&config, &links->device));
    for (int i = 0; i < 2; i++) {
        void *base;
        COH_TRY(coh_device_host.arena_create(links->device, tiers[i], links->bytes, &base));
        links->arenas[tiers[i]] = base;
    }
    for (int i = 0; i < DIRECTIONS; i++) {
        COH_TRY(open_direction(links, i));
        m->loads[lanes[i]] =
            (coh_load){ .turn = turn, .rest = rest, .context = &links->directions[i] };
        m->singles[lanes[i]][COH_SINGLE_SMALL] = (coh_single){ .transfer = single_small,
                                                               .context = &links->directions[i],
                                                               .bytes = SINGLE_SMALL_BYTES };
        m->singles[lanes[i]][COH_SINGLE_LARGE] = (coh_single){ .transfer = single_large,
                                                               .context = &links->directions[i],
                                                               .bytes = SINGLE_LARGE_BYTES };
    }
    return COH_OK;
}

coh_status coh_links_open(coh_measure *m, coh_links **out_links)
{
    coh_links *links;
    *out_links = NULL;
    COH_TRY(COH_ALLOC(1, &links));
    links->bytes = m->effort.link_bytes;
    coh_status status = open_all(m, links);
    if (status == COH_OK)
        *out_links = links;
    else
        coh_links_close(m, links);
    return status;
}

void coh_links_close(coh_measure *m, coh_links *links)
{
    if (links == NULL)
        return;
    for (int i = 0; i < DIRECTIONS; i++) {
        direction *d = &links->directions[i];
        coh_device_host.queue_destroy(d->queue);
        if (d->counter_is_made)
            coh_counter_fini(&d->counter);
        m->loads[lanes[i]] = (coh_load){ 0 };
    }
    if (links->device != NULL) {
        coh_device_host.arena_destroy(links->device, COH_TIER_HOST);
        coh_device_host.arena_destroy(links->device, COH_TIER_DEVICE);
    }
    coh_device_host.destroy(links->device);
    coh_free(links);
}

/* ---- figures ---- */

/* One small copy after the other. */
static coh_status measure_latency(const coh_measure *m, direction *d, coh_figure *out_figure)
{
    const uint64_t copy_bytes = d->copy_bytes;
    coh_samples samples;
    double done = 0;
    d->copy_bytes = SMALL_BYTES;
    d->depth = 1;
    coh_samples_begin(&samples);
    while (coh_samples_go_on(&samples, &m->effort)) {
        const uint64_t begin = coh_clock_ns();
        for (int i = 0; i < SMALL_COPIES; i++)
            COH_TRY(turn(d, &done));
        coh_samples_add(&samples, (double)(coh_clock_ns() - begin) / SMALL_COPIES);
    }
    d->copy_bytes = copy_bytes;
    *out_figure = coh_samples_figure(&samples);
    return COH_OK;
}

static coh_status measure_direction(const coh_measure *m, direction *d)
{
    coh_link_profile *link = &m->profile->link[d->lane];
    const coh_load *load = &m->loads[d->lane];
    coh_figure rates[DEPTHS];
    COH_TRY(measure_latency(m, d, &link->latency_ns));
    for (int i = 0; i < DEPTHS; i++) {
        d->depth = depths[i];
        COH_TRY(coh_samples_of_rate(load, &m->effort, &rates[i]));
    }
    const uint32_t chosen = coh_depth_choose(depths, rates, DEPTHS);
    for (int i = 0; i < DEPTHS; i++)
        if (depths[i] == chosen)
            link->bytes_per_s = rates[i];
    link->depth = d->depth = chosen;
    return COH_OK;
}

coh_status coh_measure_links(coh_measure *m, coh_links *links)
{
    const uint32_t deepest = depths[DEPTHS - 1];
    for (int i = 0; i < DIRECTIONS; i++) {
        direction *d = &links->directions[i];
        coh_measure_begin(m, "copies on %s", coh_lane_name(lanes[i]));
        if (m->profile->link[lanes[i]].bytes_per_s.p50 > 0)
            d->depth = m->profile->link[lanes[i]].depth;
        else
            COH_TRY(measure_direction(m, d));
        if (d->depth < 1 || d->depth > deepest)
            d->depth = deepest;
    }
    return COH_OK;
}

uint32_t coh_depth_choose(const uint32_t *all, const coh_figure *rates, uint32_t depth_count)
{
    double best = 0;
    uint32_t i = 0;
    for (uint32_t d = 0; d < depth_count; d++)
        best = rates[d].p50 > best ? rates[d].p50 : best;
    while (i + 1 < depth_count && rates[i].p50 < 0.95 * best)
        i++;
    return all[i];
}
