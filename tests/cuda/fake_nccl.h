/* fake_nccl.h - NCCL on the streams of the stub driver.
 *
 * The one idea: a message is two words and two copies. A send copies its bytes to a slot that all
 * ranks map, and raises one word. A receive waits for it, copies, and raises the other word, for
 * which the stream of a long send waits:
 *
 *     sender's stream     copy | write posted = k |              | wait taken >= k
 *     receiver's stream          wait posted >= k | copy | write taken = k
 *
 * A collective is a message to and from each other rank. A sum adds the last rank's part first, the
 * first rank's last: the reverse of our order (comm/exchange.h), so that a test can
 * see whose sum it has.
 *
 * So messages of two ranks match in the order in which they are enqueued, and an order that NCCL
 * forbids waits for ever. A world is a file in memory, so its ranks may be processes.
 *
 * It imitates on purpose: communicators that do not block are in progress until all ranks have
 * come; a group is in progress for some looks, and only then enqueues; a short message is sent
 * before it is received; finalize waits for no rank; an abort ends what waits in the streams.
 *
 * It aborts the test at: messages of different sizes, or of different collectives; two groups at
 * once; a communicator that is used while it is in progress, after its end, by two threads at once
 * or on two streams; and one that is destroyed before its peers have received. Threads: any. */
#ifndef COH_TESTS_CUDA_FAKE_NCCL_H
#define COH_TESTS_CUDA_FAKE_NCCL_H

#include <stdint.h>

#include "comm/nccl_calls.h"

extern const coh_nccl_calls fake_nccl;

typedef enum fake_nccl_call {
    FAKE_NCCL_ID,
    FAKE_NCCL_INIT,
    FAKE_NCCL_ASYNC_ERROR,
    FAKE_NCCL_FINALIZE,
    FAKE_NCCL_GROUP_START,
    FAKE_NCCL_GROUP_END,
    FAKE_NCCL_SEND,
    FAKE_NCCL_RECEIVE,
    FAKE_NCCL_ALL_GATHER,
    FAKE_NCCL_REDUCE_SCATTER,
    FAKE_NCCL_CALL_COUNT
} fake_nccl_call;

/* Makes the n-th call of a function from now (1: the next), of all ranks, fail; n 0: none. */
void fake_nccl_fail_nth(fake_nccl_call call, uint64_t n);
int fake_nccl_fault_was_hit(void);
const char *fake_nccl_call_name(fake_nccl_call call);

/* Returns how many calls of a function all ranks have made since the last reset. */
uint64_t fake_nccl_count(fake_nccl_call call);

/* Forgets all worlds, counts and failures. No communicator may be alive. */
void fake_nccl_reset(void);
/* Returns the number of communicators that are alive. */
int fake_nccl_live_count(void);

#endif
