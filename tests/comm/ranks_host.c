/* Ranks that are threads, with the transport of threads alone. Read rank_end.h first. */
#include "tests/comm/rank_end.h"

int ranks_set_up(void **state)
{
    (void)state;
    return 0;
}

int ranks_tear_down(void **state)
{
    (void)state;
    return 0;
}

coh_transport *rank_end_open(coh_transport *host, int32_t rank, void **out_kept)
{
    (void)rank;
    *out_kept = NULL;
    return host;
}

void rank_end_close(void *kept)
{
    (void)kept;
}
