/* device_cuda.h - a GPU as a coh_device: queues are streams.
 *
 *   coh-step     copy, launch, wait, signal      enqueued at once, in the program's order
 *   compute      [ c1 ] w1 [ c2 ] w2             w: the stream writes how far it is
 *   h2d             [ l1 ] w1                       into a word of pinned memory
 *   coh-retire   looks at the words; runs notify, raises counters, in each queue's order
 *
 * Who waits for whom:
 *
 *   stream for stream   an event, recorded at `signal`, awaited at `wait`: the wait is enqueued
 *                       after the record, or it would be no wait at all. A value that nobody has
 *                       signalled yet is refused.
 *   stream for thread   the counter's mirror, a word in pinned memory, lifted by
 *                       coh_counter_raise (watch): cuStreamWaitValue64
 *   thread for stream   the counter, raised by coh-retire
 *
 * A word is written only where the stream has something that the last one does not cover: one per
 * line, one more per line that waits. coh-retire takes a queue's records in order and stops at a
 * wait whose counter is not there yet, so what it does for one line comes after all that it does
 * for those that the line waited for, whichever word it happened to see first.
 *
 * Lines whose arguments are the same in every step are recorded: a stream captures what they launch
 * into a graph, and from then on all of them are one call (COH_CUDA_GRAPHS=none: none are). Words,
 * events and waits stay outside of graphs, for their values change.
 *
 * A failing call, or a stream that breaks (coh-watch asks cuStreamQuery every 10 ms while something
 * is under way), is the device's failure: the first one is kept, config.failed is told, and all
 * that streams wait for is released so that they run empty.
 *
 * Why nothing stands still for ever. A driver holds some 1,000 commands; the next call that
 * enqueues waits inside until some have run, and with it every other thread that calls the driver.
 * So whoever enqueues waits on the host before that (at most 896 commands are under way), and who
 * streams wait for calls no driver: coh-retire reads words of memory, disk and host lanes raise
 * counters whose mirrors are words. Take the first line, in the program's order, that is not over.
 * What it waits for is over. If it is a host lane's, its thread goes on. If all of it is enqueued,
 * its stream goes on and coh-retire tells of it. If not, coh-step is at it, and waits for room
 * only: behind commands of earlier lines, which are over, or of this one, which run.
 *
 * coh-retire naps for up to 50 us at a time while commands are under way, and sleeps when there are
 * none: a counter rises up to 50 us late, and stall times are exact to that.
 *
 * The device tier is one allocation. The host tier is memory as on the host device
 * (memory/arena.h), on the memory node by the GPU where it fits, then registered with the driver in
 * pieces. */
#ifndef COH_MEMORY_DEVICE_CUDA_H
#define COH_MEMORY_DEVICE_CUDA_H

#include "memory/device.h"

/* Left on the GPU, beside the arena, for what the driver loads for kernels and libraries. An
 * estimate, made before anything is loaded; coh_device_ops.overhead says what they took. */
#define COH_CUDA_RESERVE_BYTES ((uint64_t)768 << 20)
/* Of these, what recordings (CUDA graphs) may take. */
#define COH_CUDA_GRAPH_BYTES ((uint64_t)256 << 20)
/* What a context takes before anything is allocated, with a margin. Both are subtracted from what
 * the driver lists wherever a GPU is planned for that nobody has opened, those of data/profiles
 * too. */
#define COH_CUDA_CONTEXT_BYTES ((uint64_t)640 << 20)
/* A piece of the host tier that is registered at once. A copy stays within one: the driver refuses
 * what spans two. */
#define COH_CUDA_PIN_BYTES ((uint64_t)256 << 20)

extern const coh_device_ops coh_device_cuda;

#endif
