/* world.h - what a public handle of a world (cohobate/world.h) holds, for the engine, which binds
 * its lines to the transport. */
#ifndef COH_COMM_WORLD_H
#define COH_COMM_WORLD_H

#include "cohobate/world.h"
#include "comm/mpi_transport.h"
#include "memory/mesh.h"

struct coh_world {
    coh_transport *transport; /* owned */
    coh_mpi mpi;              /* of processes; calls: NULL for threads */
    coh_levels levels;
    char *text; /* shared last; owned */
};

enum { COH_HOST_BYTES = 256 };

/* Finds the place of each rank from the names of the ranks' hosts: a node is a host, and pairs are
 * cut from a node's ranks. */
void coh_world_places(char (*hosts)[COH_HOST_BYTES], int32_t rank_count, int32_t pair_ranks,
                      coh_place *out_places);

#endif
