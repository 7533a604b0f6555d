/* world.h - what a public handle of a world (cohobate/world.h) holds, for the engine, which binds
 * its lines to the transport. */
#ifndef COH_COMM_WORLD_H
#define COH_COMM_WORLD_H

#include "cohobate/world.h"
#include "comm/transport.h"
#include "memory/mesh.h"

struct coh_world {
    coh_transport *transport; /* owned */
    coh_levels levels;
    char *text; /* shared last; owned */
};

#endif
