/* comm_rounds.h - exchanges that all ranks make together, to measure the links between them.
 *
 *     level   groups, of 8 ranks in pairs of 2 and nodes of 4
 *     pair    0 1 | 2 3 | 4 5 | 6 7
 *     node    0 1 2 3 | 4 5 6 7
 *     world   0 4 | 1 5 | 2 6 | 3 7      the ranks at one place of each node
 *
 * A round is one GATHER of each group of a level; all groups exchange at once, as in a step. The
 * messages lie in main memory, or on GPUs, which NCCL connects (comm/nccl.h). Set-up only:
 * allocates; a transport is bound once, so no engine can use the world of rounds in main memory
 * afterwards. Threads: as transport.h says. */
#ifndef COH_ENGINE_COMM_ROUNDS_H
#define COH_ENGINE_COMM_ROUNDS_H

#include "comm/exchange.h"
#include "comm/world.h"
#include "planner/profile.h"

/* Bytes that a rank receives in a round: for latency, in the sizes of single transfers (those of
 * small and large chunks), for the rate. */
typedef enum coh_round_size {
    COH_ROUND_TINY,
    COH_ROUND_SMALL,
    COH_ROUND_LARGE,
    COH_ROUND_BULK,
    COH_ROUND_SIZES
} coh_round_size;

/* What carries the rounds, and where their messages lie. Zeroed: the world's own transport, and
 * memory that is allocated. */
typedef struct coh_rounds_place {
    coh_transport *transport;
    char *base; /* of coh_level_rounds_bytes of a GPU's memory */
} coh_rounds_place;

/* The rounds of one level. */
typedef struct coh_rounds {
    coh_world *world;
    coh_transport *transport;
    int32_t members; /* of a group; 1: the level has no links of its own */
    coh_exchange exchanges[COH_ROUND_SIZES];
    char *windows[COH_ROUND_SIZES];
    uint32_t lines[COH_ROUND_SIZES];
} coh_rounds;

typedef struct coh_level_rounds {
    coh_rounds_place place;
    uint64_t used_bytes; /* of the place's memory */
    coh_mesh mesh;       /* axes: the ranks of a pair, the pairs of a node, the nodes */
    coh_rounds of[COH_LEVEL_COUNT];
    coh_link_plan plan;
} coh_level_rounds;

/* Returns the memory that the messages of any world take at most. */
uint64_t coh_level_rounds_bytes(void);

/* Makes the rounds of all levels, and binds them. `out_rounds` must outlive them. Close them also
 * after a failure. Fails: COH_ERR_MEMORY; as the transport's calls. */
coh_status coh_level_rounds_open(coh_world *world, const coh_rounds_place *place,
                                 coh_level_rounds *out_rounds);
/* Ends the rounds: a meeting of all ranks. `status` is what they ended with, and stops the world if
 * it is a failure. Returns the world's status. */
coh_status coh_level_rounds_close(coh_level_rounds *rounds, coh_world *world, coh_status status);

/* Returns the bytes that a rank receives in a round. */
uint64_t coh_round_bytes(const coh_rounds *rounds, coh_round_size size);
/* Makes one round. */
coh_status coh_round_run(const coh_rounds *rounds, coh_round_size size);
/* Measures latency and rate in samples of about a window each, as many on each rank: a meeting of
 * all ranks. The rate is that of single rounds, as a step's exchanges come one after the other. */
coh_status coh_rounds_measure(const coh_rounds *rounds, uint64_t window_ns, uint32_t sample_count,
                              coh_link_profile *out_link);

#endif
