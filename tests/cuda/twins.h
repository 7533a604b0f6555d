/* twins.h - a kernel of CUDA against the host's of the same name: the same call with the host's
 * queue and with one of CUDA, on the same tensors, outputs full of NaN before.
 *
 *     run(NULL, call)      the host's
 *     run(queue, call)     CUDA's, twice: the same bits
 *
 * What the queue is differs by program: twins_emulated.c emulates launches (emulate.h), with the
 * threads of a block in one order and in the other; twins_gpu.c has gpu-check's stream, which
 * reaches the tensors in pinned memory. The host's kernels have oracles of their own
 * (tests/kernels), and kinds are compared with those (test_kinds.c). */
#ifndef COH_TESTS_CUDA_TWINS_H
#define COH_TESTS_CUDA_TWINS_H

#include <stddef.h>
#include <stdint.h>

#include "cohobate/model.h"

/* Bytes that both sides reach, on a boundary of 64, until coh_twins_release. */
void *coh_twins_memory(size_t bytes);
void *coh_twins_zeros(size_t bytes);
void *coh_twins_copy(const void *from, size_t bytes);
void coh_twins_release(void);

/* Whole pages of the caller's, which the queue is to reach too, until they are taken back. */
void coh_twins_share(void *memory, size_t bytes);
void coh_twins_unshare(void *memory);

/* `count` elements that begin `shift` elements after a boundary of 64 bytes: normal numbers of a
 * stream of their own, or bytes of 0xff. */
void *coh_twins_random(coh_dtype dtype, int64_t count, int64_t shift, uint64_t stream);
void *coh_twins_poisoned(coh_dtype dtype, int64_t count, int64_t shift);

double coh_twins_value(coh_dtype dtype, const void *tensor, int64_t index);

/* One output of a call, which run() writes: cleared to what it was before each run. */
typedef struct coh_twins_output {
    coh_dtype dtype;
    int64_t count;
    void *data;
} coh_twins_output;

#define COH_TWINS_OUTPUTS 8

typedef struct coh_twins_case {
    const char *name;
    void (*run)(void *queue, const void *call);
    const void *call;
    coh_twins_output outputs[COH_TWINS_OUTPUTS]; /* up to the first without data */
    /* The host's bits, or `units` of the last place of the larger number beside `absolute`. */
    double units, absolute;
} coh_twins_case;

/* Fails the running test where the outputs differ by more, naming case, output and element. */
void coh_twins_check(const coh_twins_case *one);

/* What kernels ask of the queue beside launches. */
typedef struct coh_twins_line {
    const int32_t *predicate;
    struct coh_cuda_index_checks *checks; /* of the emulated queue */
    int has_own_products; /* 0: the host's multiply, as they always do where GPUs are emulated */
} coh_twins_line;

/* Runs a call on CUDA and waits for it, for the `turn`-th time. line NULL: nothing is asked. */
void coh_twins_enqueue(void (*run)(void *queue, const void *call), const void *call, int turn,
                       const coh_twins_line *line);

/* The groups of tests: how many fail. */
int coh_twins_elementwise(void);
int coh_twins_rows(void);
int coh_twins_classifier(void);
int coh_twins_optimizer(void);
int coh_twins_quantise(void);
int coh_twins_kinds(void);

#endif
