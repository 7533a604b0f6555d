/* Makes and times exchanges of all ranks. The idea: rank 0 decides how many rounds a sample has,
 * and gives the number to all by a text, so that no rank waits for a round that another leaves out.
 * Read comm_rounds.h first. */
#include "engine/comm_rounds.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/measure.h"

enum { ROUNDS_MOST = 1000, AXES = 3 };

static const uint64_t sizes[COH_ROUND_SIZES] = { [COH_ROUND_TINY] = 64,
                                                 [COH_ROUND_SMALL] = (uint64_t)64 << 10,
                                                 [COH_ROUND_LARGE] = (uint64_t)1 << 20,
                                                 [COH_ROUND_BULK] = (uint64_t)8 << 20 };

/* The axes in which the ranks of a group differ, by level. */
static const coh_axis_set axes_of[COH_LEVEL_COUNT] = {
    [COH_LEVEL_PAIR] = 1, [COH_LEVEL_NODE] = 1 | 2, [COH_LEVEL_WORLD] = 4
};

/* ---- open and close ---- */

/* A window has a part more than the bytes that a rank receives: at most as many again. */
uint64_t coh_level_rounds_bytes(void)
{
    uint64_t bytes = 0;
    for (int size = 0; size < COH_ROUND_SIZES; size++)
        bytes += (COH_LEVEL_COUNT - COH_LEVEL_PAIR) *
                 (2 * sizes[size] + COH_PART_ALIGN * (uint64_t)COH_WORLD_RANKS_MOST);
    return bytes;
}

static coh_status take_window(coh_level_rounds *all, size_t bytes, char **out_window)
{
    if (all->place.base == NULL)
        return COH_ALLOC(bytes, out_window);
    *out_window = all->place.base + all->used_bytes;
    all->used_bytes += bytes;
    return COH_OK;
}

static coh_status add_round(coh_level_rounds *all, coh_rounds *rounds, coh_axis_set axes, int size)
{
    const uint64_t others = (uint64_t)rounds->members - 1;
    const size_t part_bytes =
        (size_t)((sizes[size] / others + COH_PART_ALIGN - 1) / COH_PART_ALIGN * COH_PART_ALIGN);
    rounds->exchanges[size] =
        (coh_exchange){ .mesh = &all->mesh,
                        .axes = axes,
                        .rank = coh_world_rank(rounds->world),
                        .part_bytes = part_bytes,
                        .window_bytes = part_bytes * (size_t)rounds->members };
    COH_TRY(take_window(all, rounds->exchanges[size].window_bytes, &rounds->windows[size]));
    return coh_exchange_gather(&all->plan, &rounds->exchanges[size], rounds->windows[size],
                               &rounds->lines[size]);
}

static coh_status open_level(coh_level_rounds *all, coh_world *world, int level)
{
    coh_rounds *rounds = &all->of[level];
    *rounds = (coh_rounds){ .world = world,
                            .transport = all->place.transport,
                            .members = coh_mesh_group_size(&all->mesh, axes_of[level]) };
    for (int size = 0; size < COH_ROUND_SIZES && rounds->members > 1; size++)
        COH_TRY(add_round(all, rounds, axes_of[level], size));
    return COH_OK;
}

coh_status coh_level_rounds_open(coh_world *world, const coh_rounds_place *place,
                                 coh_level_rounds *out_rounds)
{
    const int32_t *ranks = world->levels.rank_count;
    const coh_axis axes[AXES] = { { "place", ranks[COH_LEVEL_PAIR] },
                                  { "pair", ranks[COH_LEVEL_NODE] / ranks[COH_LEVEL_PAIR] },
                                  { "node", ranks[COH_LEVEL_WORLD] / ranks[COH_LEVEL_NODE] } };
    *out_rounds = (coh_level_rounds){ .place = *place };
    if (place->transport == NULL)
        out_rounds->place.transport = world->transport;
    COH_TRY(coh_mesh_init(&out_rounds->mesh, axes, AXES, &world->levels));
    for (int level = COH_LEVEL_PAIR; level < COH_LEVEL_COUNT; level++)
        COH_TRY(open_level(out_rounds, world, level));
    return coh_transport_bind(out_rounds->place.transport, &out_rounds->plan);
}

coh_status coh_level_rounds_close(coh_level_rounds *rounds, coh_world *world, coh_status status)
{
    coh_status ended = coh_transport_end(world->transport, status);
    if (ended == COH_OK) /* a rank that ends the world now would stop those in their last round */
        ended = coh_world_barrier(world);
    /* 0: another rank may touch the windows until the process ends */
    const int is_ours = coh_transport_unbind(rounds->place.transport);
    const int is_allocated = rounds->place.base == NULL;
    for (int level = 0; level < COH_LEVEL_COUNT && is_ours && is_allocated; level++)
        for (int size = 0; size < COH_ROUND_SIZES; size++)
            coh_free(rounds->of[level].windows[size]);
    coh_link_plan_fini(&rounds->plan);
    return ended;
}

/* ---- rounds ---- */

uint64_t coh_round_bytes(const coh_rounds *rounds, coh_round_size size)
{
    return rounds->exchanges[size].part_bytes * ((uint64_t)rounds->members - 1);
}

coh_status coh_round_run(const coh_rounds *rounds, coh_round_size size)
{
    COH_TRY(coh_transport_start(rounds->transport, rounds->lines[size]));
    return coh_transport_wait(rounds->transport, rounds->lines[size]);
}

static coh_status run_many(const coh_rounds *rounds, coh_round_size size, int count)
{
    for (int i = 0; i < count; i++)
        COH_TRY(coh_round_run(rounds, size));
    return COH_OK;
}

/* Gives all ranks rank 0's number. */
static coh_status agree(const coh_rounds *rounds, int *count)
{
    char text[16];
    const char *shared;
    snprintf(text, sizeof(text), "%d", *count);
    COH_TRY(coh_world_share_text(rounds->world, text, &shared));
    *count = atoi(shared);
    return COH_OK;
}

/* ---- latency and rate ---- */

static coh_status measure_round(const coh_rounds *rounds, coh_round_size size, uint64_t window_ns,
                                uint32_t sample_count, coh_figure *out_ns)
{
    coh_samples samples;
    uint64_t begin = coh_clock_ns();
    int count = 1;
    COH_TRY(run_many(rounds, size, 2));
    const uint64_t one_ns = (coh_clock_ns() - begin) / 2 + 1;
    if (window_ns / one_ns > 1)
        count = window_ns / one_ns < ROUNDS_MOST ? (int)(window_ns / one_ns) : ROUNDS_MOST;
    COH_TRY(agree(rounds, &count));
    coh_samples_begin(&samples);
    for (uint32_t i = 0; i < sample_count; i++) {
        COH_TRY(coh_world_barrier(rounds->world));
        begin = coh_clock_ns();
        COH_TRY(run_many(rounds, size, count));
        coh_samples_add(&samples, (double)(coh_clock_ns() - begin) / count);
    }
    *out_ns = coh_samples_figure(&samples);
    return COH_OK;
}

coh_status coh_rounds_measure(const coh_rounds *rounds, uint64_t window_ns, uint32_t sample_count,
                              coh_link_profile *out_link)
{
    coh_figure ns;
    const double bytes = (double)coh_round_bytes(rounds, COH_ROUND_BULK);
    *out_link = (coh_link_profile){ .depth = 1 };
    COH_TRY(measure_round(rounds, COH_ROUND_TINY, window_ns, sample_count, &out_link->latency_ns));
    COH_TRY(measure_round(rounds, COH_ROUND_BULK, window_ns, sample_count, &ns));
    out_link->bytes_per_s = (coh_figure){ .p10 = bytes / ns.p90 * 1e9,
                                          .p50 = bytes / ns.p50 * 1e9,
                                          .p90 = bytes / ns.p10 * 1e9,
                                          .samples = ns.samples };
    return COH_OK;
}
