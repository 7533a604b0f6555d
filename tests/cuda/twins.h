/* twins.h - compares a CUDA kernel with the host's of the same name: the same call with the host's
 * queue and with a CUDA queue, on the same tensors, with outputs full of NaN before.
 *
 *     run(NULL, call)      the host's
 *     run(queue, call)     CUDA's, twice: the same bits
 *
 * The queue depends on the program: twins_emulated.c emulates launches (emulate.h), with the
 * threads of a block in forward and backward order; twins_gpu.c has gpu-check's stream, which
 * reaches the tensors in pinned memory. The host's kernels are tested with oracles
 * (tests/kernels), and kinds are compared with those oracles (test_kinds.c). */
#ifndef COH_TESTS_CUDA_TWINS_H
#define COH_TESTS_CUDA_TWINS_H

#include <stddef.h>
#include <stdint.h>

#include "cohobate/model.h"

/* Allocates bytes that both sides reach, aligned to 64, until coh_twins_release. */
void *coh_twins_memory(size_t bytes);
void *coh_twins_zeros(size_t bytes);
void *coh_twins_copy(const void *from, size_t bytes);
void coh_twins_release(void);

/* Makes whole pages of the caller reachable for the queue, until they are unshared. */
void coh_twins_share(void *memory, size_t bytes);
void coh_twins_unshare(void *memory);

/* Allocates `count` elements that begin `shift` elements after a boundary of 64 bytes: normal
 * numbers of random stream `stream`, or bytes of 0xff. */
void *coh_twins_random(coh_dtype dtype, int64_t count, int64_t shift, uint64_t stream);
void *coh_twins_poisoned(coh_dtype dtype, int64_t count, int64_t shift);

double coh_twins_value(coh_dtype dtype, const void *tensor, int64_t index);

/* An output of a call, which run() writes; restored to its initial content before each run. */
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
    coh_twins_output outputs[COH_TWINS_OUTPUTS]; /* end at the first without data */
    /* The outputs have the host's bits, or differ by at most `units` of the last place of the
     * larger number plus `absolute`. */
    double units, absolute;
} coh_twins_case;

/* Fails the running test if outputs differ by more; names case, output and element. */
void coh_twins_check(const coh_twins_case *one);

/* Properties that kernels ask of the queue, in addition to launching. */
typedef struct coh_twins_line {
    const int32_t *predicate;
    struct coh_cuda_index_checks *checks; /* of the emulated queue */
    int has_own_products; /* 0: the host's kernels multiply, as always where GPUs are emulated */
} coh_twins_line;

/* Runs a call on CUDA for the `turn`-th time and waits for it. line NULL: the defaults. */
void coh_twins_enqueue(void (*run)(void *queue, const void *call), const void *call, int turn,
                       const coh_twins_line *line);

/* Waits until all that runs on CUDA is done. */
void coh_twins_wait(void);
/* Whether a library multiplies: it may round a product to bf16 before it adds to it. */
int coh_twins_has_library(void);

/* The groups of tests; each returns the number of failures. */
int coh_twins_elementwise(void);
int coh_twins_rows(void);
int coh_twins_classifier(void);
int coh_twins_losses(void);
int coh_twins_optimizer(void);
int coh_twins_optimizers(void);
int coh_twins_wires(void);
int coh_twins_kinds(void);

#endif
