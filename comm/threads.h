/* threads.h - the transport of ranks in one process. Next: threads.c. */
#ifndef COH_COMM_THREADS_H
#define COH_COMM_THREADS_H

#include "comm/transport.h"

/* Most ranks of a process: the threads of a pool have the same limit. */
enum { COH_THREADS_RANKS_MOST = 1024 };

extern const coh_transport_ops coh_transport_threads;

/* Opens a world of rank_count ranks. out_transports[r] is the end of rank r, for that rank's
 * threads; each is closed by itself. Fails: COH_ERR_ARGUMENT, COH_ERR_MEMORY. */
coh_status coh_threads_open(int32_t rank_count, coh_transport **out_transports);

#endif
