/* rank_end.h - the transport that a test gives to a rank that is a thread (ranks_threads.c): the
 * world's own (ranks_host.c), or one over it (tests/cuda/ranks_nccl.c). Each of the two files also
 * has ranks_set_up and ranks_tear_down. */
#ifndef COH_TESTS_COMM_RANK_END_H
#define COH_TESTS_COMM_RANK_END_H

#include "tests/comm/ranks.h"

/* Opens the rank's transport over the world's `host`. *out_kept is for rank_end_close. */
coh_transport *rank_end_open(coh_transport *host, int32_t rank, void **out_kept);
/* Closes what is left after the body has closed its transport. */
void rank_end_close(void *kept);

#endif
