/* attention_checks.h - requirements on any implementation of attention, checked against naive loops
 * in double: for kernels emulated on the host (test_attention.c), and those of a GPU and cuDNN
 * (gpu_check_attention.c).
 *
 * For cmocka: a violated requirement fails the running test. */
#ifndef COH_TESTS_CUDA_ATTENTION_CHECKS_H
#define COH_TESTS_CUDA_ATTENTION_CHECKS_H

#include <stddef.h>

typedef struct attention_bench {
    /* two queues that must give the same bits: another order of threads, or the same queue twice */
    void *queues[2];
    int atomics;  /* 1: kinds that may add by atomics, whose bits may differ */
    int is_brief; /* 1: shapes have at most one whole block of queries and a remainder */
    void (*finish)(void *queue); /* waits for a queue's kernels; NULL: they are synchronous */
    /* Makes whole pages visible to the queues' kernels, and ends that before they are freed; NULL:
     * kernels reach all memory. */
    void (*share)(void *memory, size_t bytes);
    void (*unshare)(void *memory);
} attention_bench;

struct attention_shape;

/* Checks one shape (attention_cases.h), forward and backward, on both queues; then all shapes. */
void attention_check_shape(const attention_bench *bench, const struct attention_shape *shape);
void attention_check_shapes(const attention_bench *bench);
/* Checks that gradients are added to existing values: for one shape, for all. */
void attention_check_added(const attention_bench *bench, const struct attention_shape *shape);
void attention_check_adding(const attention_bench *bench);
/* Checks that y may overwrite q, and dq may overwrite dy, and that each gradient may be omitted.
 * Results must agree within the naive loop's bounds. For one shape with shared heads, for all. */
void attention_check_place(const attention_bench *bench, const struct attention_shape *shape);
void attention_check_places(const attention_bench *bench);
/* Checks that row i of whole sequences equals a decoder's step i, with the same keys and values. */
void attention_check_decoder(const attention_bench *bench);

#endif
