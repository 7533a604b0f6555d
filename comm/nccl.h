/* nccl.h - the transport of ranks on GPUs: messages between their memories, by NCCL.
 *
 * The one idea: NCCL moves only lines. Meetings, and the end of the world, are those of the world's
 * own transport ("the host's": threads or MPI), which also brings NCCL's id to all ranks.
 *
 *     lane comm0   communicator 0   | pack | group: send, recv, send, recv | unpack, fold |
 *     lane comm1   communicator 1        | group: send, recv |
 *                  on the streams of the lanes' queues, next to compute
 *
 * Each lane has its own communicator and stream, so that an exchange between nodes delays
 * none within a node. start enqueues the sends and receives of a line as one group, which NCCL runs
 * as one kernel; what the lane's thread enqueues before and after it (packing, folding) is ordered
 * with it by the stream. wait ends when everything is done that was enqueued on the line's lane
 * before the call, so a line needs one wait in all. It sleeps between two looks, for 1/16 of the
 * time that it has waited, 20 us to 1 ms.
 *
 * A line may be a collective (link_plan.h): ncclAllGather, or ncclReduceScatter of floats, which
 * adds in NCCL's order. Each group of ranks that has some gets another communicator, on the stream
 * of its lane; a group of all ranks uses the lane's.
 *
 * NCCL's rules:
 *   - it matches the messages of two ranks in the order in which they are enqueued. So all ranks
 *     start the lines of a lane in one order. Programs do; bind compares the lines of all ranks.
 *   - two communicators may wait for one another's kernels if only one of them fits on a GPU. So
 *     each takes at most COH_NCCL_BLOCKS_MOST blocks: both fit, next to each other and compute.
 *   - memory of a first message between two ranks must not be allocated in a step, when
 *     streams wait for one another. So bind sends a few bytes between all pairs that have lines,
 *     which overwrites the beginning of what those lines receive. It also makes the first
 *     collective of each kind, group and length once, which overwrites all that it receives: NCCL
 *     chooses an algorithm by these, and allocates for each.
 *   - it refuses two ranks on one GPU, and bind does, with both ranks in the sentence.
 *
 * Failures: communicators do not block, so that a thread that waits for NCCL notices that the world
 * has stopped. unbind then aborts them, which ends their kernels. Else unbind is a meeting of all
 * ranks: what a rank has sent may lie in memory of its communicator until it is received.
 *
 * The transport is closed by itself, before that of the world. Threads: as transport.h says; start
 * and wait by the thread that enqueues on the lane's queue. */
#ifndef COH_COMM_NCCL_H
#define COH_COMM_NCCL_H

#include "comm/transport.h"
#include "memory/device.h"

struct coh_nccl_calls;

/* Blocks of a communicator's kernels: half of what the smallest GPUs with NVLink have. */
enum { COH_NCCL_BLOCKS_MOST = 16 };

typedef struct coh_nccl_options {
    coh_transport *host;                /* of the world; outlives this */
    const struct coh_nccl_calls *calls; /* copied; NULL: open the machine's */
    /* By lane of the link plan: where its lines are enqueued; NULL: the lane has no lines. They
     * outlive the binding. */
    coh_queue *queues[COH_LINK_LANES];
} coh_nccl_options;

/* Opens this rank's end. Calls no other rank: bind does. Fails: COH_ERR_MEMORY; as
 * coh_nccl_calls_open; COH_ERR_ARGUMENT if the environment leaves streams too few channels. */
coh_status coh_nccl_open(const coh_nccl_options *options, coh_transport **out_transport);

#endif
