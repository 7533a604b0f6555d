/* Measures the links between ranks, which all measure together: latency and rate of exchanges
 * within a pair, within a node and between nodes, and what those of the lanes comm0 and comm1 cost
 * compute. The figures are rank 0's. Next to compute, rank 0 ends the rounds by a word in its part,
 * which goes round with each exchange. Between GPUs, whose messages the processor does not read,
 * this is not measured. Next: measure.h, comm_rounds.h. */
#include "coh_config.h"
#include "engine/comm_rounds.h"
#include "engine/measure.h"

#ifdef COH_HAVE_NCCL
#include "comm/nccl.h"
#endif

/* The exchanges of a level, next to compute. */
typedef struct beside {
    coh_measure *m;
    const coh_rounds *rounds;
    coh_lane lane;
    int is_over; /* rank 0's word was 0 */
    struct single_round {
        struct beside *of;
        coh_round_size size;
    } singles[COH_SINGLES];
} beside;

/* The same between GPUs. */
typedef struct gpu_place {
    coh_rounds_place place;
    coh_queue *queues[COH_LINK_LANES];
    uint64_t used_before; /* of the bed's arena */
} gpu_place;

/* ---- next to compute ---- */

/* Rank 0's word is the beginning of its part, which is the first of the window. */
static uint64_t *word_of(const struct single_round *single)
{
    return (uint64_t *)(void *)single->of->rounds->windows[single->size];
}

/* Rank 0: one round, and more to come. */
static coh_status transfer(void *context)
{
    const struct single_round *single = context;
    *word_of(single) = 1;
    return coh_round_run(single->of->rounds, single->size);
}

/* Rank 0: the last round of a size. */
static coh_status end_transfers(void *context)
{
    const struct single_round *single = context;
    *word_of(single) = 0;
    return coh_round_run(single->of->rounds, single->size);
}

/* Another rank's side of a round; none once rank 0 has ended them. */
static coh_status keep_company(void *context, double *done)
{
    const struct single_round *single = context;
    if (single->of->is_over)
        return COH_OK;
    COH_TRY(coh_round_run(single->of->rounds, single->size));
    single->of->is_over = *word_of(single) == 0;
    *done += 1;
    return COH_OK;
}

/* Computes during the rounds of one size until rank 0 ends them, as the ranks of a step do. */
static coh_status accompany(beside *b, struct single_round *single)
{
    const coh_load load = { .turn = keep_company, .context = single };
    double ignored, rate;
    for (b->is_over = 0; !b->is_over;)
        COH_TRY(coh_load_rates(&b->m->loads[COH_LANE_COMPUTE], &load, b->m->effort.window_ns, &rate,
                               &ignored));
    return COH_OK;
}

/* Rank 0's word reaches the ranks of its own group alone. */
static coh_status measure_beside(beside *b)
{
    const coh_exchange *exchange = &b->rounds->exchanges[COH_ROUND_SMALL];
    if (coh_mesh_group_member(exchange->mesh, exchange->axes, exchange->rank, 0) != 0)
        return COH_OK;
    for (int i = 0; i < COH_SINGLES; i++) {
        b->singles[i] = (struct single_round){ b, COH_ROUND_SMALL + i };
        b->m->singles[b->lane][i] =
            (coh_single){ .transfer = transfer,
                          .end = end_transfers,
                          .context = &b->singles[i],
                          .bytes = coh_round_bytes(b->rounds, COH_ROUND_SMALL + i) };
    }
    if (exchange->rank == 0)
        return coh_measure_interference(b->m, b->lane);
    for (int i = 0; i < COH_SINGLES; i++)
        COH_TRY(accompany(b, &b->singles[i]));
    return COH_OK;
}

/* ---- the levels ---- */

static coh_status measure_level(coh_measure *m, const coh_rounds *rounds, const char *name,
                                int link)
{
    coh_measure_begin(m, "exchanges %s", name);
    if (rounds->members == 1)
        return COH_OK;
    return coh_rounds_measure(rounds, m->effort.window_ns, m->effort.samples_least,
                              &m->profile->link[link]);
}

static coh_status measure_lane(coh_measure *m, const coh_rounds *rounds, const char *name,
                               coh_lane lane)
{
    beside b = { .m = m, .rounds = rounds, .lane = lane };
    COH_TRY(measure_level(m, rounds, name, (int)lane));
    if (rounds->members == 1)
        return COH_OK;
    if (m->bed->is_host)
        COH_TRY(measure_beside(&b));
    return coh_world_barrier(rounds->world);
}

/* A pair's exchanges go by comm0, too, so what they cost compute is known by that lane. */
static coh_status measure_levels(coh_measure *m, const coh_level_rounds *all)
{
    const int32_t pair = all->of[COH_LEVEL_PAIR].members;
    m->profile->pair_ranks = pair > 1 ? pair : 0;
    m->profile->link[COH_LINK_PAIR] = (coh_link_profile){ 0 };
    COH_TRY(measure_level(m, &all->of[COH_LEVEL_PAIR], "within a pair", COH_LINK_PAIR));
    COH_TRY(measure_lane(m, &all->of[COH_LEVEL_NODE], "within a node", COH_LANE_COMM0));
    return measure_lane(m, &all->of[COH_LEVEL_WORLD], "between nodes", COH_LANE_COMM1);
}

/* ---- where the messages lie ---- */

/* Opens NCCL between the ranks' GPUs, with memory of the bed. */
#ifdef COH_HAVE_NCCL
static coh_status open_gpus(const coh_measure *m, gpu_place *out)
{
    static const coh_lane lanes[COH_LINK_LANES] = { COH_LANE_COMM0, COH_LANE_COMM1 };
    coh_nccl_options options = { .host = m->options->world->transport,
                                 .calls = m->bed->what->nccl };
    COH_TRY(coh_bed_part(m->bed, coh_level_rounds_bytes(), &out->place.base));
    for (int i = 0; i < COH_LINK_LANES; i++) {
        COH_TRY(m->bed->what->ops->queue_create(m->bed->device, lanes[i], &out->queues[i]));
        options.queues[i] = out->queues[i];
    }
    return coh_nccl_open(&options, &out->place.transport);
}
#else
static coh_status open_gpus(const coh_measure *m, gpu_place *out)
{
    (void)m;
    (void)out;
    return coh_fail(COH_ERR_DEVICE, "this program was built without NCCL, which connects GPUs: "
                                    "build it where CUDA is (docs/building.md), or measure the "
                                    "host");
}
#endif

static void close_gpus(const coh_measure *m, gpu_place *place)
{
    coh_transport_close(place->place.transport);
    for (int i = 0; i < COH_LINK_LANES; i++)
        if (place->queues[i] != NULL)
            m->bed->what->ops->queue_destroy(place->queues[i]);
    m->bed->used = place->used_before;
}

static coh_status measure_on(coh_measure *m, const coh_rounds_place *place)
{
    coh_level_rounds all;
    coh_status status = coh_level_rounds_open(m->options->world, place, &all);
    if (status == COH_OK)
        status = measure_levels(m, &all);
    return coh_level_rounds_close(&all, m->options->world, status);
}

coh_status coh_measure_comms(coh_measure *m)
{
    const coh_rounds_place main_memory = { 0 };
    if (m->options->world == NULL || coh_world_size(m->options->world) == 1)
        return COH_OK;
    if (m->bed->is_host)
        return measure_on(m, &main_memory);
    gpu_place gpus = { .used_before = m->bed->used };
    coh_status status = coh_transport_end(m->options->world->transport, open_gpus(m, &gpus));
    if (status == COH_OK)
        status = measure_on(m, &gpus.place);
    close_gpus(m, &gpus);
    return status;
}
