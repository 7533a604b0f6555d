/* store_load.h - keeps one port of a store as busy as a lane does, for measuring: `depth` chunks in
 * flight, and a new one whenever the oldest has finished. It must have written what it reads. */
#ifndef COH_OFFLOAD_STORE_LOAD_H
#define COH_OFFLOAD_STORE_LOAD_H

#include "offload/store.h"

enum { COH_STORE_LOAD_DEPTH_MOST = 64 };

typedef struct coh_store_load {
    const coh_store_ops *ops;
    coh_store *store;
    coh_store_port port;
    unsigned char *memory; /* `depth` chunks, inside a registered arena */
    size_t chunk_bytes;
    /* The chunks to cycle through: chunk_begin is at file_begin, the others follow. */
    uint64_t file_begin;
    uint32_t chunk_begin, chunk_count;
    uint32_t depth;              /* at most COH_STORE_LOAD_DEPTH_MOST */
    uint64_t submitted, retired; /* chunks so far; start at 0 */
    uint8_t is_done[COH_STORE_LOAD_DEPTH_MOST];
} coh_store_load;

/* Submits until `depth` chunks are in flight, then waits until at least one has finished. Fails:
 * with the store's failure. */
coh_status coh_store_load_turn(coh_store_load *load);
/* Waits until nothing is in flight. Another depth or thread may then continue. Fails likewise. */
coh_status coh_store_load_rest(coh_store_load *load);

#endif
