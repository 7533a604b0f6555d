/* call.h - one operator built from plain arrays: what a test needs to run a kind without a graph.
 *
 *     coh_case one;
 *     coh_case_create(&one, &coh_kind_linear, &attributes, shapes, seed);   random inputs
 *     coh_case_forward(&one, queue);   coh_case_backward(&one, queue);
 *     ... one.call.output[0].data, one.call.input_grad[0].data ...
 *     coh_case_destroy(&one);
 *
 * As strict as the engine: backward gets only what backward_reads names, scratch and everything
 * that must be written holds NaN before each call. Stops the test program when the kind refuses. */
#ifndef COH_TESTS_REFERENCE_CALL_H
#define COH_TESTS_REFERENCE_CALL_H

#include "cohobate/model.h"

typedef struct coh_case {
    const coh_op_kind *kind;
    const void *attributes; /* the caller's; must live as long */
    coh_op_facts facts;
    coh_call call; /* all data pointers set; those of frozen gradients may be nulled by the test */
    void *cache;   /* call.cache is NULL unless the test sets it to this */
    void *blocks[64]; /* whole pages each */
    size_t block_bytes[64];
    int block_count;
} coh_case;

/* inputs: kind->input_count shapes. f32 and bf16 values are normal; i32 values are 0 until the test
 * writes them; parameters normal, states 0. Kinds that draw random numbers draw always the same. */
void coh_case_create(coh_case *out_case, const coh_op_kind *kind, const void *attributes,
                     const coh_shape *inputs, uint64_t seed);
void coh_case_destroy(coh_case *one);

/* Gradients of bf16 parameters become f32 where the kind can do so; returns how many. Before a
 * reference is made of the case. */
int coh_case_widen(coh_case *one);

/* The gradient of a loss is multiplied by so much: at the begin by 1. */
void coh_case_scale_loss(coh_case *one, float loss_scale);

/* All that the pointers of the call name, cells as well, may be read and written, or not at all:
 * who does it then stops the program. */
void coh_case_lock(coh_case *one);
void coh_case_unlock(coh_case *one);

/* Uniform ids in [0, bound) for an i32 input. */
void coh_case_ids(coh_case *one, int input, int32_t bound, uint64_t seed);

coh_status coh_case_forward(coh_case *one, void *queue);
/* Gradients named in the adds masks keep what they hold, the others are poisoned first. */
coh_status coh_case_backward(coh_case *one, void *queue);

/* The same, in calls for ranges of rows of the split parameter: `blocks_per_call` blocks each. */
coh_status coh_case_forward_ranges(coh_case *one, void *queue, int64_t blocks_per_call);
coh_status coh_case_backward_ranges(coh_case *one, void *queue, int64_t blocks_per_call);

/* Tensors of the case: every output, then every gradient that backward gives. Calls `visit` with a
 * name, the data and their bytes. */
void coh_case_results(coh_case *one,
                      void (*visit)(void *context, const char *name, const void *data,
                                    size_t bytes),
                      void *context);

/* Fills with NaN. */
void coh_poison(void *data, size_t bytes);

#endif
