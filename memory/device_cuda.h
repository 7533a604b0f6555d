/* device_cuda.h - a GPU as a coh_device: queues are streams.
 *
 *   coh-step     copy, launch, wait, signal      enqueued at once, in the program's order
 *   compute      [ c1 ] w1 [ c2 ] w2             w: the stream writes its progress
 *   h2d             [ l1 ] w1                       into a word of pinned memory
 *   coh-retire   polls the words; runs notify, raises counters, in each queue's order
 *
 * How each side waits:
 *
 *   stream for stream   an event, recorded at `signal` and awaited at `wait`. The wait is enqueued
 *                       after the record, else it would not wait at all. A value that was not
 *                       signalled yet is refused.
 *   stream for thread   the counter's mirror, a word in pinned memory that coh_counter_raise lifts
 *                       (watch): cuStreamWaitValue64
 *   thread for stream   the counter, raised by coh-retire
 *
 * A word is written only if the stream has done work that the last word does not cover: one per
 * instruction, and one more per instruction that waits. coh-retire takes a queue's records in order
 * and stops at a wait whose counter is not reached yet. So its work for an instruction comes after
 * its work for the instructions waited for, whichever word it saw first.
 *
 * Instructions whose arguments are the same in every step are recorded: a stream captures their
 * launches into a CUDA graph, and from then on all of them are one call (COH_CUDA_GRAPHS=none: no
 * recording). Words, events and waits stay outside graphs, because their values change.
 *
 * A failing call, or a broken stream (coh-watch calls cuStreamQuery every 10 ms while work is
 * running), is the device's failure. The first failure is kept, config.failed is called, and
 * everything that streams wait for is released so that they drain.
 *
 * Why there is no deadlock. A driver holds about 1,000 commands; the next call that enqueues blocks
 * inside the driver until some have run, and blocks every other thread that calls the driver. So an
 * enqueuing thread waits on the host before that (at most 896 commands are in flight, and on each
 * comm lane those of an exchange), and the threads that streams wait for never call the driver:
 * coh-retire reads words in memory, and disk and host lanes raise counters whose mirrors are words.
 * Comm lanes do call the driver, whose calls block only when it is full. Now take the first
 * unfinished instruction in the program's order. Everything it waits for is finished. If it belongs
 * to a host lane, its thread proceeds. If it is enqueued completely, its stream proceeds and
 * coh-retire reports it. If not, coh-step is enqueuing it and waits only for room, behind commands
 * of earlier instructions, which are finished, or of this one, which run.
 *
 * coh-retire sleeps for up to 50 us at a time while commands are in flight, and until woken
 * otherwise. So a counter rises up to 50 us late, and so are the times of places in queues, unless
 * events time them (times_exactly, device_cuda_times.c).
 *
 * The device tier is one allocation. The host tier is memory as on the host device
 * (memory/arena.h), on the memory node nearest the GPU if it fits, then registered with the driver
 * in pieces. */
#ifndef COH_MEMORY_DEVICE_CUDA_H
#define COH_MEMORY_DEVICE_CUDA_H

#include "memory/device.h"

/* GPU memory kept free of the arena, for what the driver loads for kernels and libraries. An
 * estimate made before anything is loaded; coh_device_ops.overhead reports the actual use. */
#define COH_CUDA_RESERVE_BYTES ((uint64_t)768 << 20)
/* Part of the reserve that recordings (CUDA graphs) may take. */
#define COH_CUDA_GRAPH_BYTES ((uint64_t)256 << 20)
/* Memory of a context before anything is allocated, with a margin. When planning for a GPU that is
 * not open, or for one in data/profiles, this and the reserve are subtracted from the memory that
 * the driver lists. */
#define COH_CUDA_CONTEXT_BYTES ((uint64_t)640 << 20)
/* Size of the pieces in which the host tier is registered. A copy stays within one piece, because
 * the driver refuses a copy that spans two. */
#define COH_CUDA_PIN_BYTES ((uint64_t)256 << 20)

extern const coh_device_ops coh_device_cuda;

#endif
