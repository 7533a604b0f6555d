/* The types of comm/nccl_calls.h are those of NVIDIA's header: sizes, places and numbers, compared
 * by the compiler. Nothing of NCCL is called. */
#include <nccl.h>
#include <stdio.h>

#include "comm/nccl_calls.h"

_Static_assert(sizeof(coh_nccl_id) == sizeof(ncclUniqueId), "the id is passed by value");
_Static_assert((int)COH_NCCL_SUCCESS == (int)ncclSuccess &&
                   (int)COH_NCCL_IN_PROGRESS == (int)ncclInProgress &&
                   (int)COH_NCCL_BYTE == (int)ncclInt8 && (int)COH_NCCL_FLOAT == (int)ncclFloat32 &&
                   (int)COH_NCCL_SUM == (int)ncclSum,
               "numbers");
#define AT(ours, theirs)                                                                           \
    _Static_assert(offsetof(coh_nccl_config, ours) == offsetof(ncclConfig_t, theirs), #theirs)
AT(struct_bytes, size);
AT(magic, magic);
AT(version, version);
AT(blocking, blocking);
AT(cluster_size, cgaClusterSize);
AT(blocks_least, minCTAs);
AT(blocks_most, maxCTAs);
AT(network, netName);
AT(shares_split, splitShare);

int main(void)
{
    const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
    if (theirs.magic == COH_NCCL_CONFIG_MAGIC && theirs.minCTAs == COH_NCCL_CONFIG_DEFAULT &&
        NCCL_VERSION(2, 18, 0) == COH_NCCL_CONFIG_VERSION)
        return 0;
    fprintf(stderr, "another magic number, default or version\n");
    return 1;
}
