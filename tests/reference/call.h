/* call.h - one operator built from plain arrays: for tests that run a kind without a graph.
 *
 *     coh_case one;
 *     coh_case_create(&one, &coh_kind_linear, &attributes, shapes, seed);   random inputs
 *     coh_case_forward(&one, queue);   coh_case_backward(&one, queue);
 *     ... one.call.output[0].data, one.call.input_grad[0].data ...
 *     coh_case_destroy(&one);
 *
 * As strict as the engine: backward gets only what backward_reads names; scratch and all outputs
 * hold NaN before each call. Stops the test program if the kind refuses. */
#ifndef COH_TESTS_REFERENCE_CALL_H
#define COH_TESTS_REFERENCE_CALL_H

#include "cohobate/model.h"

typedef struct coh_case {
    const coh_op_kind *kind;
    const void *attributes; /* owned by the caller; must outlive the case */
    coh_op_facts facts;
    coh_call call; /* all data pointers set; those of frozen gradients may be nulled by the test */
    void *cache;   /* call.cache is NULL unless the test sets it to this */
    void *blocks[64]; /* whole pages each */
    size_t block_bytes[64];
    int block_count;
    uint64_t seed; /* of the random values */
    /* Waits until the queue has done what was enqueued; called before the workspace is poisoned for
     * the next range. NULL: calls are done when they return. */
    void (*wait)(void);
} coh_case;

/* inputs: kind->input_count shapes. f32 and bf16 values are normal numbers; i32 values are 0 until
 * the test sets them; parameters are normal numbers, states 0. Kinds that draw random numbers
 * always draw the same ones. */
void coh_case_create(coh_case *out_case, const coh_op_kind *kind, const void *attributes,
                     const coh_shape *inputs, uint64_t seed);
void coh_case_destroy(coh_case *one);

/* Makes gradients of bf16 parameters f32 where the kind supports it; returns how many. Call before
 * a reference is made of the case. */
int coh_case_widen(coh_case *one);

/* Sets the factor of the loss's gradient; initially 1. */
void coh_case_scale_loss(coh_case *one, float loss_scale);

/* Makes all memory that the call points to, including cells, accessible or not; a forbidden access
 * stops the program. */
void coh_case_lock(coh_case *one);
void coh_case_unlock(coh_case *one);

/* Sets uniform ids in [0, bound) for an i32 input, or positions in documents of `bound` tokens on
 * average. */
void coh_case_ids(coh_case *one, int input, int32_t bound, uint64_t seed);

coh_status coh_case_forward(coh_case *one, void *queue);
/* Gradients named in the adds masks keep their contents; the others are poisoned first. */
coh_status coh_case_backward(coh_case *one, void *queue);

/* Run as calls for ranges of rows of the split parameter, `blocks_per_call` blocks each. */
coh_status coh_case_forward_ranges(coh_case *one, void *queue, int64_t blocks_per_call);
coh_status coh_case_backward_ranges(coh_case *one, void *queue, int64_t blocks_per_call);

/* Calls `visit` for every output, then every gradient of backward, with name, data and bytes. */
void coh_case_results(coh_case *one,
                      void (*visit)(void *context, const char *name, const void *data,
                                    size_t bytes),
                      void *context);

/* Fills with NaN. */
void coh_poison(void *data, size_t bytes);

#endif
