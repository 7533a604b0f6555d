/* toy_graph.h - graphs with every awkward feature, for planner tests: tied tables taken by ranges
 * of rows, kinds that cannot add, inputs used twice, saved objects, workspaces, frozen parameters.
 * The kinds only infer shapes: nothing here computes. */
#ifndef COH_TESTS_PLANNER_TOY_GRAPH_H
#define COH_TESTS_PLANNER_TOY_GRAPH_H

#include "cohobate/plan.h"

typedef struct toy_options {
    int layers;
    int64_t width, vocabulary, rows; /* rows: items per micro-batch */
    int is_tied;
    int overwrites;  /* 1: kinds that cannot add gradients */
    int freezes;     /* 1: the first layer's weight is frozen */
    int caches;      /* 1: the loss, and each mix, has a cache */
    coh_dtype dtype; /* of activations and parameters */
    int slices;      /* 1: the mixes may come in slices of 64 columns */
    int atomics;     /* 1: the mixes may add by atomics on a GPU */
    int holds;       /* 1: what precedes a mix keeps its inputs, so that it is light (light.h) */
    int in_place;    /* 1: the joins may work in place */
    int extras;      /* 1: a shared parameter between two plain ones; a branch without a loss */
} toy_options;

coh_status toy_graph_make(const toy_options *options, coh_graph **out_graph);

#endif
