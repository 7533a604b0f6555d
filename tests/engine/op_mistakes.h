/* op_mistakes.h - kinds with one planted mistake each, and right ones, for the check of a kind
 * (cohobate/op_check.h). */
#ifndef COH_TESTS_ENGINE_OP_MISTAKES_H
#define COH_TESTS_ENGINE_OP_MISTAKES_H

#include "cohobate/op_check.h"

typedef struct op_mistake {
    const char *what;   /* "the sign of a gradient" */
    coh_op_fault fault; /* that must be named */
    const char *port;   /* that the finding must name; NULL: any */
    const char *says;   /* in the sentence; NULL: anything */
    const coh_op_kind *kind;
    coh_shape input;
} op_mistake;

/* Mistake `index`; NULL beyond the last. The kinds behave so until the next call. */
const op_mistake *op_mistake_at(int index);

/* A right kind of this file: with stiff functions, kinks, row ranges or threads. NULL beyond the
 * last. */
const coh_op_kind *op_right_kind_at(int index, coh_shape *out_input);

#endif
