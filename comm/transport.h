/* transport.h - how bytes get from rank to rank.
 *
 * The one idea: all messages are known before the first (link_plan.h). A transport binds the plan
 * once and prepares each message: it matches the two sides, or makes a persistent request. Then a
 * line is only started and tested. Neither allocates, takes a lock of the whole world or makes a
 * text.
 *
 *     open ──> bind(plan) ──> start(line), test(line) or wait(line), ... ──> unbind ──> close
 *
 * A message moves once both sides have started its lines, whatever their threads do then: waiting
 * for one line never needs the progress of another. A send may be done before it is received. A
 * line that is done on a rank may be started again there; the n-th start meets the peer's n-th. A
 * transport may demand in addition that all ranks start the lines of a lane (link_plan.h) in one
 * order, as programs do: nccl.h does.
 *
 * Failures stop the world: a call that fails on one rank stops all ranks, with that rank's number
 * and sentence. Each later call on each rank fails with the same status and sentence; only the end
 * of a line (or meeting) that was already complete is still reported. So no rank waits for one that
 * has given up, and all report one reason.
 *
 * Threads: a line belongs to one thread at a time; different lines may be started and tested by
 * different threads (the two comm lanes). bind, unbind, gather, share and close are called by one
 * thread; stop by any.
 *
 * A transport is a table of functions: threads.h has the one of ranks in one process,
 * mpi_transport.h that of ranks which are processes, nccl.h one whose messages lie on GPUs. The
 * functions coh_transport_* below are what the rest of the library calls. */
#ifndef COH_COMM_TRANSPORT_H
#define COH_COMM_TRANSPORT_H

#include "comm/link_plan.h"

typedef struct coh_transport coh_transport; /* one rank's end */

/* The functions of a transport; coh_transport_* describes each. They need not stop the world when
 * they fail. */
typedef struct coh_transport_ops {
    const char *name;    /* "threads", "mpi", "nccl" */
    int has_collectives; /* of link plans; 0: bind refuses them */
    coh_status (*bind)(coh_transport *transport, const coh_link_plan *plan);
    coh_status (*start)(coh_transport *transport, uint32_t line);
    coh_status (*test)(coh_transport *transport, uint32_t line, int *out_is_done);
    coh_status (*wait)(coh_transport *transport, uint32_t line);
    coh_status (*gather)(coh_transport *transport, const void *record, size_t bytes,
                         void *out_records);
    coh_status (*share)(coh_transport *transport, void *bytes, size_t count);
    coh_status (*stop)(coh_transport *transport, coh_status status, const char *sentence);
    coh_status (*look)(coh_transport *transport);
    int (*unbind)(coh_transport *transport); /* NULL: other ranks cannot touch its memory */
    void (*close)(coh_transport *transport);
} coh_transport_ops;

/* The beginning of every transport's own struct. */
struct coh_transport {
    const coh_transport_ops *ops;
    int32_t rank, rank_count;
};

/* ---- for transports ---- */

/* A call that all ranks make together. */
typedef enum coh_meeting_kind {
    COH_MEETING_BIND,
    COH_MEETING_GATHER,
    COH_MEETING_SHARE
} coh_meeting_kind;

typedef struct coh_meeting {
    coh_meeting_kind kind;
    size_t bytes; /* of a record, or shared */
} coh_meeting;

/* Refuses calls of two ranks that differ. Fails: COH_ERR_ARGUMENT with both. */
coh_status coh_meeting_compare(const coh_meeting *own, const coh_meeting *other,
                               int32_t other_rank);

/* The sentence of all ranks if one closes too early. */
#define COH_TRANSPORT_LEFT                                                                         \
    "it has left the world: let all ranks meet in a barrier before they close it"

/* ---- for the rest of the library ---- */

/* Binds the plan, once, on all ranks together. Waits for the others. The transport copies what it
 * needs; the memory of the messages must stay valid until unbind or close.
 * Fails: COH_ERR_ARGUMENT naming ranks, lines and bytes of a message that has no other side or
 * another size there, or a second bind, or collectives on a transport without them;
 * COH_ERR_MEMORY. */
coh_status coh_transport_bind(coh_transport *transport, const coh_link_plan *plan);

/* Starts all messages of a line. From here until the line is done, its sends must not be written
 * and its receives not be read. Never waits for another rank, but may copy bytes.
 * Fails: COH_ERR_ARGUMENT: no such line, or started before it was done. */
coh_status coh_transport_start(coh_transport *transport, uint32_t line);

/* Says whether a line is done: received bytes are there, sent ones may be written again. A line
 * that was never started is done. Returns at once. */
coh_status coh_transport_test(coh_transport *transport, uint32_t line, int *out_is_done);

/* Sleeps until a line is done. */
coh_status coh_transport_wait(coh_transport *transport, uint32_t line);

/* ---- meetings: all ranks make the same calls in the same order; each waits for all ---- */

/* Gathers a record of `bytes` from each rank, in rank order, to all. 0 bytes: a barrier.
 * Fails: COH_ERR_ARGUMENT if the ranks' calls or sizes differ. */
coh_status coh_transport_gather(coh_transport *transport, const void *record, size_t bytes,
                                void *out_records);

/* Copies `count` bytes of rank 0 to all. Fails: as gather. */
coh_status coh_transport_share(coh_transport *transport, void *bytes, size_t count);

/* ---- the end ---- */

/* Stops all ranks with a failure and "rank <this>: <sentence>"; the first stop wins. Returns the
 * status that the world has stopped with, and sets its sentence as this thread's error text. */
coh_status coh_transport_stop(coh_transport *transport, coh_status status, const char *sentence);

/* Returns COH_OK, or the failure with which the world has stopped, with its sentence as this
 * thread's error text. Any thread. */
coh_status coh_transport_look(coh_transport *transport);

/* Ends work of this rank's own on which the others wait: stops all ranks if `status`, which a
 * function of this thread has returned, is a failure. Returns as coh_transport_stop, or COH_OK. */
coh_status coh_transport_end(coh_transport *transport, coh_status status);

/* Ends this rank's lines: no line may be started any more. If one is not done, stop the world
 * first. No other thread of this rank may be in a call. Accepts a transport without lines, and
 * being called again.
 * Returns 1 if no other rank touches the memory of its messages from now on. Returns 0 if a rank
 * did not come to end them, after a failure and some seconds: the memory must stay mapped until the
 * process ends. */
int coh_transport_unbind(coh_transport *transport);

/* Ends this rank's part. Call it after the rank's last line and, if nothing failed, after a last
 * gather (a barrier), because a rank that closes stops the others. No other thread of this rank may
 * be in a call. Afterwards no other rank touches this rank's memory, except where unbind returned
 * 0. Between processes it waits until all others close, after a failure for some seconds at most.
 * Accepts NULL. */
void coh_transport_close(coh_transport *transport);

#endif
