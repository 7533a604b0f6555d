/* attention_checks.h - what attention must do whoever computes it, as claims against naive loops in
 * double: kernels emulated on the host (test_attention.c), those of a GPU and cuDNN
 * (gpu_check_attention.c). For cmocka: a claim that does not hold fails the running test. */
#ifndef COH_TESTS_CUDA_ATTENTION_CHECKS_H
#define COH_TESTS_CUDA_ATTENTION_CHECKS_H

#include <stddef.h>

typedef struct attention_bench {
    /* both make the same bits: other orders of threads, or the same once more */
    void *queues[2];
    int atomics;  /* 1: kinds that may add by them, whose bits need not be the same */
    int is_brief; /* 1: every shape with one whole block of queries and a rest at most */
    void (*finish)(void *queue); /* waits for a queue's kernels; NULL: they are done at once */
    /* Memory that the queues' kernels are to see, whole pages, and before it is freed; NULL: they
     * see all. */
    void (*share)(void *memory, size_t bytes);
    void (*unshare)(void *memory);
} attention_bench;

struct attention_shape;

/* One shape (attention_cases.h), forward and backward, on both queues; then every one. */
void attention_check_shape(const attention_bench *bench, const struct attention_shape *shape);
void attention_check_shapes(const attention_bench *bench);
/* Gradients are added to what is there: of one shape, of every one. */
void attention_check_added(const attention_bench *bench, const struct attention_shape *shape);
void attention_check_adding(const attention_bench *bench);
/* y may stand where q did, and dq where dy did; each gradient may be left out. Compared with
 * itself within bounds of the naive loop. Of one shape whose heads are shared, of every one. */
void attention_check_place(const attention_bench *bench, const struct attention_shape *shape);
void attention_check_places(const attention_bench *bench);
/* Row i of whole sequences is what a decoder's step i makes, and it keeps its keys and values. */
void attention_check_decoder(const attention_bench *bench);

#endif
