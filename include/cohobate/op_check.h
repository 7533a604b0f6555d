/* op_check.h - runs one operator of a kind alone and explains what is wrong with it.
 *
 *     coh_op_check_options options = { .struct_bytes = sizeof(options), .inputs = shapes,
 *                                      .found = print };
 *     coh_op_check(&my_kind, &options, &report);      finding_count 0: nothing found
 *
 * The one idea: an engine moves memory between calls, so a mistake in a kind shows as wrong numbers
 * in some budgets only. The check makes the same calls with guarded memory whose every byte it
 * knows, changes one thing at a time, and compares bits: a difference names the mistake.
 *
 *     stage       changed                                       finds
 *     calls       guards and copies around every buffer         writes outside or to inputs
 *     repeat      nothing                                       random or uninitialised values
 *     contents    NaN in scratch, guards, undeclared ports      reads of what was not declared
 *     evaluation  a kind with draws gets no random_cell,        outputs that need random words,
 *                 one without gets one                          draws that is not set
 *     places      addresses, other calls between, threads,      state between calls, races
 *                 micro-batch
 *     promises    adds, skips, unused outputs, f32 gradients,   can_add_grad and others that fail
 *                 in place, ranges, loss_scale
 *     recording   on a GPU: a replayed CUDA graph               waits, work on other streams
 *     gradients   inputs and parameters, by a small step        wrong derivatives
 *
 * Buffers are 128 KiB apart. A write less than 128 KiB before or behind its buffer is found, and so
 * is one of any length that begins at the buffer's end. The finding names that buffer up to 96 KiB
 * behind it and 32 KiB before it, else the next one. A write farther away is found if it hits a
 * port that the phase only reads, or addresses without memory (a crash).
 *
 * A stage that finds something ends the check, because its mistake would cause later findings.
 * Gradients are compared with central differences along random directions: f32 results, differences
 * and sums in double, a few calls of forward per port whatever its size. Outputs where forward is
 * not smooth (a kink within the step) are left out. Kinds in bf16 get the other stages only.
 *
 * A function that never returns makes the check wait for ever: it has no time limit, since only the
 * kind's author knows how long a call may take. `found` is called after the last stage.
 *
 * With `device` "cuda:0" the kind's functions for CUDA run. The same memory, guards included, is
 * then on the GPU during each call. Threads are not compared there.
 * Threads: any; one check per thread at a time. On the host the kind runs in a child process, on
 * its only thread and on the check's pool. */
#ifndef COHOBATE_OP_CHECK_H
#define COHOBATE_OP_CHECK_H

#include "cohobate/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The faults of a kind, in the order of the stages. */
typedef enum coh_op_fault {
    COH_OP_FAULT_DECLARATION,      /* a graph refuses the kind; the sentence says why */
    COH_OP_FAULT_FAILED,           /* a call returned a failure */
    COH_OP_FAULT_CRASHED,          /* a call ended its process */
    COH_OP_FAULT_WRITES_OUTSIDE,   /* before the first or behind the last byte of a buffer */
    COH_OP_FAULT_WRITES_INPUT,     /* to a port that the phase only reads; attributes; a cell */
    COH_OP_FAULT_VARIES,           /* equal calls, different bits */
    COH_OP_FAULT_NOT_WRITTEN,      /* an element of an output or gradient stays as it was */
    COH_OP_FAULT_READS_UNWRITTEN,  /* contents that no phase wrote: scratch, saved, an output */
    COH_OP_FAULT_READS_OUTSIDE,    /* bytes before or behind a buffer */
    COH_OP_FAULT_READS_UNDECLARED, /* a port that backward_reads does not name */
    COH_OP_FAULT_NOT_FINITE,       /* NaN or infinity from normal numbers */
    COH_OP_FAULT_ADDRESSES,        /* other addresses, other bits */
    COH_OP_FAULT_KEEPS_STATE,      /* a call depends on other calls before it */
    COH_OP_FAULT_THREADS,          /* another number of threads, other bits */
    COH_OP_FAULT_MICROBATCH,       /* the micro-batch's number changes bits */
    COH_OP_FAULT_ADDS,             /* can_add_grad: the gradient is not added */
    COH_OP_FAULT_SKIPS,            /* can_skip_grad: a gradient left out changes another */
    COH_OP_FAULT_IN_PLACE,         /* a declared pair that shares memory changes bits */
    COH_OP_FAULT_ROWS,             /* ranges of rows change bits */
    COH_OP_FAULT_LOSS_SCALE,       /* gradients of a loss that are not in proportion to it */
    COH_OP_FAULT_CACHE,            /* the cache changes bits */
    COH_OP_FAULT_GRADIENT,         /* not the derivative of forward */
    COH_OP_FAULT_RECORDING,        /* on a GPU: no CUDA graph can be made of the call */
    COH_OP_FAULT_WIDENS,           /* can_widen_grad: wrong in f32 */
    COH_OP_FAULT_UNUSED_OUTPUT,    /* NULL for an output's gradient does not count as zero */
    COH_OP_FAULT_RANDOM_WORDS,     /* uses coh_random_words although random_cell is NULL */
    COH_OP_FAULT_DRAWS,            /* looks at random_cell, and the kind does not set draws */
    COH_OP_FAULT_COUNT
} coh_op_fault;

/* One finding. Texts live until `found` returns. */
typedef struct coh_op_finding {
    uint32_t struct_bytes; /* set by the library */
    coh_op_fault fault;    /* see above */
    coh_phase phase;       /* in forward or in backward */
    const char *port;      /* "input_grad 0", "attributes"; "" if the finding has none */
    int64_t element;       /* of the port; negative: before it; INT64_MIN: none */
    double expected, got;  /* the two values of that element */
    const char *sentence;  /* all of it, with the usual cause */
} coh_op_finding;

/* The operator that is checked, and options. */
typedef struct coh_op_check_options {
    uint32_t struct_bytes;
    const void *attributes;  /* of the operator; copied */
    size_t attribute_bytes;  /* their size */
    const coh_shape *inputs; /* input_count shapes; some thousands of elements are enough */
    uint64_t seed;           /* of the random values */
    int32_t thread_count;    /* compared with one thread; 0: 3 */
    /* Inputs and parameters whose gradient is not the derivative on purpose: an embedding whose
     * padding is not trained, a straight-through estimator. */
    coh_port_mask other_gradients;
    /* 0: the calls run in a child process, so that a crash becomes a finding. 1: in this process,
     * for a debugger; always on a GPU, because CUDA does not survive a fork. */
    int32_t in_process;
    /* Called in the caller's thread for every finding. NULL: they are counted only. */
    void (*found)(void *context, const coh_op_finding *finding);
    void *context;      /* passed to `found` */
    const char *device; /* NULL or "host"; "cuda:0": that GPU */
} coh_op_check_options;

/* The result of a check. */
typedef struct coh_op_report {
    uint32_t struct_bytes;
    int32_t finding_count;  /* calls of `found` */
    int32_t gradient_count; /* inputs and parameters whose gradients were compared */
} coh_op_report;

/* Checks one operator of `kind`. Float inputs are normal numbers, integers are
 * within the ranges that infer declares (0 if it declares none). A parameter in NF4 is frozen.
 * Fails: COH_ERR_ARGUMENT (options; more than 256 MiB of tensors; a kind without functions for the
 * device), COH_ERR_MEMORY, COH_ERR_DEVICE (no such GPU, or it failed during the check, perhaps by a
 * kernel of the kind). A kind with mistakes is no failure: the report counts the findings. */
COH_API coh_status coh_op_check(const coh_op_kind *kind, const coh_op_check_options *options,
                                coh_op_report *out_report);

/* Returns a fault's name, such as "writes outside its buffers". Never NULL. */
COH_API const char *coh_op_fault_name(coh_op_fault fault);

#ifdef __cplusplus
}
#endif
#endif
