/* With a GPU: measures the bandwidth of the processor's memory with all threads, and the bytes per
 * second of an update, which the host lane also runs on all threads. Next: measure.h. */
#include <string.h>

#include "base/alloc.h"
#include "cohobate/optimizer.h"
#include "engine/measure.h"
#include "kernels/kernels.h"
#include "memory/topology.h"

/* Least size of each array of an update, and of the data of a pass. The four arrays together are
 * larger than the last-level cache: of a processor with 300 MiB of cache a run measured 273 GB/s of
 * updates with 48 MiB each, which memory cannot feed. */
#define ARRAY_LEAST ((uint64_t)48 << 20)
enum { WORK, GRAD, M, V, ARRAYS };
/* An update runs over a few pieces per turn: work, m and v read and written, the gradient read. */
enum {
    PIECE_ELEMENTS = 1 << 16,
    TURN_PIECES = 64,
    TURN_BYTES = 7 * TURN_PIECES * PIECE_ELEMENTS * (int)sizeof(float)
};

typedef struct coh_host_side {
    coh_pool *pool;
    coh_cold cold;
    uint64_t array_bytes; /* a multiple of a turn's part of it */
    uint64_t next;        /* next element to update */
} coh_host_side;

static float *array(const coh_host_side *side, int index)
{
    return (float *)(void *)(side->cold.base + (uint64_t)index * side->array_bytes);
}

static uint64_t elements_of(const coh_host_side *side)
{
    return side->array_bytes / sizeof(float);
}

uint64_t coh_measure_cache_bytes(void)
{
    coh_topology topology;
    return coh_topology_read(&topology) == COH_OK ? topology.all_cache_bytes : 0;
}

/* Two thirds of the cache, so that all arrays take more than twice its size. */
static uint64_t array_bytes(void)
{
    const uint64_t turn = (uint64_t)TURN_PIECES * PIECE_ELEMENTS * sizeof(float);
    const uint64_t wanted = coh_measure_cache_bytes() / 3 * 2;
    return wanted < ARRAY_LEAST ? ARRAY_LEAST : (wanted + turn - 1) / turn * turn;
}

static coh_status pass(void *context, double *done)
{
    const coh_host_side *side = context;
    coh_kernel_pass(side->pool, COH_DTYPE_F32, array(side, GRAD + 1), array(side, WORK),
                    (int64_t)(2 * side->array_bytes / sizeof(float)), 0);
    *done += 4.0 * (double)side->array_bytes;
    return COH_OK;
}

static void update_piece(void *argument, int64_t index)
{
    const coh_host_side *side = argument;
    static const float hyperparameters[] = { 0.9f, 0.95f, 1e-8f }, scalars[] = { 0.5f, 0.5f };
    const uint64_t at = (side->next + (uint64_t)index * PIECE_ELEMENTS) % elements_of(side);
    coh_optimizer_find(COH_OPTIMIZER_DEFAULT)
        ->update(&(coh_update_call){ .count = PIECE_ELEMENTS,
                                     .rate = 1e-4f,
                                     .scale = 1,
                                     .decay = 0.1f,
                                     .hyperparameters = hyperparameters,
                                     .scalars = scalars,
                                     .work = array(side, WORK) + at,
                                     .grad = array(side, GRAD) + at,
                                     .states = { array(side, M) + at, array(side, V) + at } });
}

static coh_status update(void *context, double *done)
{
    coh_host_side *side = context;
    coh_pool_run(side->pool, TURN_PIECES, update_piece, side);
    side->next = (side->next + TURN_PIECES * PIECE_ELEMENTS) % elements_of(side);
    *done += TURN_BYTES;
    return COH_OK;
}

coh_status coh_measure_host_side(coh_measure *m)
{
    coh_profile *profile = m->profile;
    COH_TRY(COH_ALLOC(1, &m->host_side));
    coh_host_side *side = m->host_side;
    side->pool = m->pool;
    side->array_bytes = array_bytes();
    COH_TRY(coh_cold_open(&m->host, ARRAYS * side->array_bytes, &side->cold));
    COH_TRY(coh_cold_fill(&side->cold, 1));
    m->loads[COH_LANE_HOST] = (coh_load){ .turn = update, .context = side };
    const coh_load streaming = { .turn = pass, .context = side };
    coh_measure_begin(m, "memory of the host");
    COH_TRY(coh_measure_rate(m, &streaming, &profile->host_memory_bytes_per_s));
    coh_measure_begin(m, "updates on the host");
    return coh_measure_rate(m, &m->loads[COH_LANE_HOST], &profile->host_update_bytes_per_s);
}

void coh_host_side_close(coh_measure *m)
{
    if (m->host_side != NULL)
        coh_cold_close(&m->host_side->cold);
    coh_free(m->host_side);
}
