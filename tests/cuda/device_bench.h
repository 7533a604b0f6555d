/* device_bench.h - a GPU's device with three lanes, and a pipeline to run on it:
 *
 *   h2d      load r: in[r] -> slot            waits for kernel r - 1, which read the slot
 *   compute  kernel r: out slot = f(slot)     waits for load r, and store r - 1, its reader
 *   d2h      store r: out slot -> out[r]      waits for kernel r
 *
 * Waits are numbered in order, so that a test can omit one. With bench_record the kernel is a
 * recording of two halves. */
#ifndef COH_TESTS_CUDA_DEVICE_BENCH_H
#define COH_TESTS_CUDA_DEVICE_BENCH_H

#include "memory/cuda_queue.h"
#include "memory/device_cuda.h"

enum { BENCH_LANES = 3, BENCH_NUMBERS = 64, BENCH_ROUNDS_MOST = 8 };
#define BENCH_ARENA_BYTES ((uint64_t)1 << 16)
#define BENCH_GPU_BYTES   (COH_CUDA_RESERVE_BYTES + ((uint64_t)1 << 20))

typedef struct bench_slots {
    uint32_t in[BENCH_ROUNDS_MOST][BENCH_NUMBERS], out[BENCH_ROUNDS_MOST][BENCH_NUMBERS];
} bench_slots;

/* The machine: the stub driver (device_bench_stub.c) or a GPU (gpu_check_device.c). */
typedef struct bench_machine {
    const struct coh_cuda_driver *driver; /* NULL: the machine's */
    const coh_device_kernels *kernels;    /* NULL: those of the test's config */
    /* Enqueues to[i] = turned(from[i]), entirely on the device. */
    void (*turn)(coh_queue *queue, uint32_t *to, const uint32_t *from, int count);
    uint32_t (*turned)(uint32_t x);
} bench_machine;
extern const bench_machine bench_here;

typedef struct bench {
    coh_device_config config;
    coh_device *device;
    coh_queue *queues[BENCH_LANES]; /* by coh_lane: compute, h2d, d2h */
    coh_counter counters[BENCH_LANES], host_counter;
    int counter_count;
    uint64_t signalled[BENCH_LANES];
    uint32_t *slot, *out_slot; /* device tier */
    bench_slots *host;         /* host tier */
    /* Arguments of config.failed, called by any thread; the counters are then closed. */
    int failed_count;
    coh_status failed_status;
    uint64_t failed_number;
    uint32_t failed_index;
    char failed_text[COH_ERROR_TEXT_BYTES];
    coh_recording *recording; /* NULL: the kernel is launched */
    int skipped_wait;         /* -1: none */
    int wait_count;           /* waits enqueued so far */
} bench;

/* Makes device, arenas and queues from `config` (NULL: a plain one), except its driver. Errors:
 * those of device, arenas and queues; bench_close then frees what was made. */
coh_status bench_open(bench *b, const coh_device_config *config);
void bench_close(bench *b);

/* Records the kernel; each round replays the recording. Call before the first round. */
coh_status bench_record(bench *b);
/* Enqueues `rounds` rounds and returns at once. in[] is generated from `seed`. */
void bench_enqueue(bench *b, int rounds, uint32_t seed);
/* Waits until everything enqueued has retired, then reports whether out[] is right. Errors: the
 * device's failure. */
coh_status bench_finish(bench *b, int rounds, int *out_is_right);

void bench_wait(bench *b, coh_lane lane, coh_lane other, uint64_t value);
void bench_signal(bench *b, coh_lane lane);

#endif
