/* Measures the links between ranks, which all measure together: latency and rate of exchanges on
 * the lanes comm0, within a node, and comm1, between nodes, and what they cost compute. The figures
 * are rank 0's. Rates are taken while all groups exchange, as in a step:
 *
 *     comm0   0 1 2 3 | 4 5 6 7       all ranks of a node
 *     comm1   0 4, 1 5, 2 6, 3 7      the ranks at one place of each node
 *
 * A round is one GATHER. Rank 0 decides how many there are: before a sample of a rate by its text;
 * next to compute by a word in its part, which goes round with each exchange. Next: measure.h,
 * comm/exchange.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "comm/exchange.h"
#include "comm/world.h"
#include "engine/measure.h"

/* Bytes that a rank receives in a round: for latency, in the sizes of single transfers (those of
 * small and large chunks), for the rate. */
enum { TINY, SMALL, LARGE, BULK, SIZES };
static const uint64_t round_bytes[SIZES] = {
    [TINY] = 64,
    [SMALL] = (uint64_t)64 << 10,
    [LARGE] = (uint64_t)1 << 20,
    [BULK] = (uint64_t)8 << 20,
};
enum { LANES = 2, ROUNDS_MOST = 1000 };

/* The exchanges of one lane. */
typedef struct comm_lane {
    coh_measure *m;
    coh_lane lane;
    coh_exchange exchanges[SIZES];
    char *windows[SIZES];
    uint32_t lines[SIZES];
    int32_t members; /* of the group; 1: there is no such lane */
    int has_first;   /* rank 0 is in the group: its word reaches this rank */
    int is_over;     /* rank 0's word was 0 */
    struct single_round {
        struct comm_lane *of;
        int size;
    } singles[COH_SINGLES];
} comm_lane;

typedef struct comms {
    coh_mesh mesh; /* axes: the ranks of a node, the nodes */
    comm_lane lanes[LANES];
    coh_link_plan plan;
} comms;

static coh_world *world_of(const comm_lane *of)
{
    return of->m->options->world;
}

/* ---- rounds ---- */

static coh_status round_of(const comm_lane *of, int size)
{
    coh_transport *transport = world_of(of)->transport;
    COH_TRY(coh_transport_start(transport, of->lines[size]));
    return coh_transport_wait(transport, of->lines[size]);
}

static coh_status rounds(const comm_lane *of, int size, int count)
{
    for (int i = 0; i < count; i++)
        COH_TRY(round_of(of, size));
    return COH_OK;
}

/* Gives all ranks rank 0's number. */
static coh_status agree(const comm_lane *of, int *count)
{
    char text[16];
    const char *shared;
    snprintf(text, sizeof(text), "%d", *count);
    COH_TRY(coh_world_share_text(world_of(of), text, &shared));
    *count = atoi(shared);
    return COH_OK;
}

/* ---- latency and rate ---- */

/* Measures the time of a round, in samples of about a window each. Ranks take as many samples. */
static coh_status measure_rounds(const comm_lane *of, int size, coh_figure *out_ns)
{
    const coh_measure_effort *effort = &of->m->effort;
    coh_samples samples;
    uint64_t begin = coh_clock_ns();
    int count = 1;
    COH_TRY(rounds(of, size, 2));
    const uint64_t one_ns = (coh_clock_ns() - begin) / 2 + 1;
    if (effort->window_ns / one_ns > 1)
        count = effort->window_ns / one_ns < ROUNDS_MOST ? (int)(effort->window_ns / one_ns)
                                                         : ROUNDS_MOST;
    COH_TRY(agree(of, &count));
    coh_samples_begin(&samples);
    for (uint32_t i = 0; i < effort->samples_least; i++) {
        COH_TRY(coh_world_barrier(world_of(of)));
        begin = coh_clock_ns();
        COH_TRY(rounds(of, size, count));
        coh_samples_add(&samples, (double)(coh_clock_ns() - begin) / count);
    }
    *out_ns = coh_samples_figure(&samples);
    return COH_OK;
}

/* The bytes that a rank receives in a round. */
static uint64_t received_bytes(const comm_lane *of, int size)
{
    return of->exchanges[size].part_bytes * ((uint64_t)of->members - 1);
}

/* A step's exchanges come one after the other, so the rate is that of single rounds of many
 * bytes. */
static coh_status measure_link(const comm_lane *of)
{
    coh_link_profile *link = &of->m->profile->link[of->lane];
    coh_figure ns;
    const double bytes = (double)received_bytes(of, BULK);
    *link = (coh_link_profile){ .depth = 1 };
    COH_TRY(measure_rounds(of, TINY, &link->latency_ns));
    COH_TRY(measure_rounds(of, BULK, &ns));
    link->bytes_per_s = (coh_figure){ .p10 = bytes / ns.p90 * 1e9,
                                      .p50 = bytes / ns.p50 * 1e9,
                                      .p90 = bytes / ns.p10 * 1e9,
                                      .samples = ns.samples };
    return COH_OK;
}

/* ---- next to compute ---- */

/* Rank 0's word is the beginning of its part, which is the first of the window. */
static uint64_t *word_of(const comm_lane *of, int size)
{
    return (uint64_t *)(void *)of->windows[size];
}

/* Rank 0: one round, and more to come. */
static coh_status transfer(void *context)
{
    const struct single_round *single = context;
    *word_of(single->of, single->size) = 1;
    return round_of(single->of, single->size);
}

/* Rank 0: the last round of a size. */
static coh_status end_transfers(void *context)
{
    const struct single_round *single = context;
    *word_of(single->of, single->size) = 0;
    return round_of(single->of, single->size);
}

/* Another rank's side of a round; none once rank 0 has ended them. */
static coh_status keep_company(void *context, double *done)
{
    const struct single_round *single = context;
    comm_lane *of = single->of;
    if (of->is_over)
        return COH_OK;
    COH_TRY(round_of(of, single->size));
    of->is_over = *word_of(of, single->size) == 0;
    *done += 1;
    return COH_OK;
}

/* Computes during the rounds of one size until rank 0 ends them, as the ranks of a step do. */
static coh_status accompany(comm_lane *of, struct single_round *single)
{
    const coh_load load = { .turn = keep_company, .context = single };
    double ignored, rate;
    for (of->is_over = 0; !of->is_over;)
        COH_TRY(coh_load_rates(&of->m->loads[COH_LANE_COMPUTE], &load, of->m->effort.window_ns,
                               &rate, &ignored));
    return COH_OK;
}

static coh_status measure_beside(comm_lane *of)
{
    if (!of->has_first)
        return COH_OK;
    for (int i = 0; i < COH_SINGLES; i++) {
        of->singles[i] = (struct single_round){ of, SMALL + i };
        of->m->singles[of->lane][i] = (coh_single){ .transfer = transfer,
                                                    .end = end_transfers,
                                                    .context = &of->singles[i],
                                                    .bytes = received_bytes(of, SMALL + i) };
    }
    if (coh_world_rank(world_of(of)) == 0)
        return coh_measure_interference(of->m, of->lane);
    for (int i = 0; i < COH_SINGLES; i++)
        COH_TRY(accompany(of, &of->singles[i]));
    return COH_OK;
}

/* ---- open and close ---- */

static coh_status add_round(comms *c, comm_lane *of, coh_axis_set axes, int size)
{
    const uint64_t others = (uint64_t)of->members - 1;
    const size_t part_bytes = (size_t)((round_bytes[size] / others + COH_PART_ALIGN - 1) /
                                       COH_PART_ALIGN * COH_PART_ALIGN);
    of->exchanges[size] = (coh_exchange){ .mesh = &c->mesh,
                                          .axes = axes,
                                          .rank = coh_world_rank(world_of(of)),
                                          .part_bytes = part_bytes,
                                          .window_bytes = part_bytes * (size_t)of->members };
    COH_TRY(COH_ALLOC(of->exchanges[size].window_bytes, &of->windows[size]));
    return coh_exchange_gather(&c->plan, &of->exchanges[size], of->windows[size], &of->lines[size]);
}

static coh_status open_lane(coh_measure *m, comms *c, int axis)
{
    comm_lane *of = &c->lanes[axis];
    const int32_t rank = coh_world_rank(m->options->world);
    *of = (comm_lane){ .m = m,
                       .lane = axis == 0 ? COH_LANE_COMM0 : COH_LANE_COMM1,
                       .members = coh_mesh_group_size(&c->mesh, 1u << axis) };
    of->has_first = coh_mesh_group_member(&c->mesh, 1u << axis, rank, 0) == 0;
    for (int size = 0; size < SIZES && of->members > 1; size++)
        COH_TRY(add_round(c, of, 1u << axis, size));
    return COH_OK;
}

static coh_status open_comms(coh_measure *m, comms *c)
{
    const coh_levels *levels = &m->options->world->levels;
    const int32_t node = levels->rank_count[COH_LEVEL_NODE];
    const coh_axis axes[] = { { "place", node },
                              { "node", levels->rank_count[COH_LEVEL_WORLD] / node } };
    COH_TRY(coh_mesh_init(&c->mesh, axes, LANES, levels));
    for (int axis = 0; axis < LANES; axis++)
        COH_TRY(open_lane(m, c, axis));
    return coh_transport_bind(m->options->world->transport, &c->plan);
}

/* `is_ours`: no other rank touches the windows any more. Otherwise they stay until the process
 * ends. */
static void close_comms(comms *c, int is_ours)
{
    for (int axis = 0; axis < LANES && is_ours; axis++)
        for (int size = 0; size < SIZES; size++)
            coh_free(c->lanes[axis].windows[size]);
    coh_link_plan_fini(&c->plan);
}

static coh_status measure_lane(comm_lane *of)
{
    coh_measure_begin(of->m, "exchanges on %s", coh_lane_name(of->lane));
    if (of->members == 1)
        return COH_OK;
    COH_TRY(measure_link(of));
    COH_TRY(measure_beside(of));
    return coh_world_barrier(world_of(of));
}

coh_status coh_measure_comms(coh_measure *m)
{
    comms c = { 0 };
    coh_status status = COH_OK;
    if (m->options->world == NULL || coh_world_size(m->options->world) == 1)
        return COH_OK;
    status = open_comms(m, &c);
    for (int axis = 0; axis < LANES && status == COH_OK; axis++)
        status = measure_lane(&c.lanes[axis]);
    status = coh_transport_end(m->options->world->transport, status);
    close_comms(&c, coh_transport_unbind(m->options->world->transport));
    return status;
}
