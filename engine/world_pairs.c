/* Finds the pairs of a world from what each rank's device is linked with. Read comm/near.h
 * first. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "coh_config.h"
#include "comm/near.h"
#include "comm/world.h"
#include "engine/device_find.h"
#include "memory/topology.h"

#ifdef COH_HAVE_CUDA
#include "memory/cuda_facts.h"

_Static_assert(COH_NVML_LINKS_MOST <= COH_NEAR_LINKS_MOST, "a rank has room for its GPU's links");
_Static_assert(COH_NVML_ADDRESS_BYTES == COH_NEAR_ADDRESS_BYTES, "addresses are copied");

static coh_status describe_gpu(int index, coh_near *out_near)
{
    coh_cuda_place place;
    COH_TRY(coh_cuda_place_read(index, &place));
    out_near->memory_node = place.near_node;
    out_near->link_count = place.links.count;
    memcpy(out_near->address, place.address, sizeof(place.address));
    memcpy(out_near->links, place.links.at, sizeof(place.links.at));
    return COH_OK;
}
#endif

static coh_status describe(const char *device, coh_near *out_near)
{
    coh_engine_device found;
    memset(out_near, 0, sizeof(*out_near));
    COH_TRY(coh_device_find(device, &found));
#ifdef COH_HAVE_CUDA
    if (found.kernels != NULL)
        return describe_gpu(found.index, out_near);
#endif
    out_near->memory_node = coh_node_of_thread();
    return COH_OK;
}

coh_status coh_world_find_pairs(coh_world *world, const char *device, int32_t *out_pair_ranks)
{
    coh_near own, *all;
    COH_NEED(world);
    COH_NEED(out_pair_ranks);
    *out_pair_ranks = 1;
    COH_TRY(coh_transport_end(world->transport, describe(device, &own)));
    COH_TRY(COH_ALLOC(world->transport->rank_count, &all));
    const coh_status status = coh_transport_gather(world->transport, &own, sizeof(own), all);
    if (status == COH_OK)
        *out_pair_ranks = coh_near_pair_ranks(all, world->transport->rank_count,
                                              world->levels.rank_count[COH_LEVEL_NODE]);
    coh_free(all);
    return status;
}
