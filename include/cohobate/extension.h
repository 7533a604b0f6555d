/* extension.h - kinds, optimizers, rank patterns and models of yours as one table, which a shared
 * object exports.
 *
 *     static coh_status build(coh_own_graph *to) { ... coh_graph_op(to->graph, &gate_kind, ...); }
 *     static const coh_own_model tiny = { .struct_bytes = sizeof(tiny), .name = "mine-tiny",
 *                                         .size = { 2, 4, 64, 256, 128 }, .build = build };
 *     COH_EXTENSION(.name = "mine", .revision = 1, .model_count = 1, .models = { &tiny });
 *
 *     cc -shared -fPIC mine.c $(pkg-config --cflags cohobate) -lm -o libmine.so
 *     cohobate train mine-tiny --kinds ./libmine.so --data corpus.txt
 *
 * The one idea: a model of an extension is a model like gpt2-nano, found by its name. So every
 * command that takes a MODEL takes it, and a checkpoint's note holds it by the names of model and
 * extension and by the extension's revision. A checkpoint never names a file to load: code runs
 * only if the user gives it.
 * Threads: any. */
#ifndef COHOBATE_EXTENSION_H
#define COHOBATE_EXTENSION_H

#include "cohobate/models.h"
#include "cohobate/optimizer.h"
#include "cohobate/rank_pattern.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    COH_EXTENSION_PARTS = 16, /* limit of kinds, of optimizers and of models of one extension */
    COH_EXTENSION_MODELS = 64 /* limit of models of all extensions of a process */
};

/* The name of the function by which a shared object gives its extension: coh_extension_function. */
#define COH_EXTENSION_SYMBOL "cohobate_extension"

/* One model of yours. The struct and its texts must live as long as the process. */
typedef struct coh_own_model coh_own_model;

/* The graph that a model's `build` completes. */
typedef struct coh_own_graph {
    uint32_t struct_bytes;      /* set by the library */
    const coh_own_model *model; /* whose `build` is called: several models may share one */
    /* as in the table, but vocabulary and dtype (f32 or bf16) are those of the run */
    coh_model_size size;
    double dropout;             /* the run's probability: 0 to below 1 */
    coh_graph *graph;           /* has the inputs; to be completed with coh_graph_op */
    coh_tensor tokens, targets; /* i32 [sequences, tokens]; a target of -1 does not count */
    coh_tensor loss;            /* set by build: output 0 of a kind with is_loss */
    /* Set by build, or left as it is: [sequences, tokens, vocabulary], from which the loss is
     * computed. Needed for logits and token losses only, and checked there. In f32; a bf16 model
     * whose logits are bf16 has token losses, but its logits cannot be read. */
    coh_tensor logits;
} coh_own_graph;

struct coh_own_model {
    uint32_t struct_bytes;
    const char *name; /* a-z, 0-9, '-', '_' and '.'; no preset's name */
    /* At least 1 each; `vocabulary` is that of a run without a tokenizer; `dtype` is not used. */
    coh_model_size size;
    /* Adds the operators from tokens to loss. Called once for each graph, and more often while a
     * plan is made; equal arguments must give equal graphs. The names of parameters must not
     * depend on batch or sequence, since checkpoints know parameters by name.
     * Fails: with a sentence (coh_kind_fail); the graph is then destroyed by the library. */
    coh_status (*build)(coh_own_graph *to);
    const void *context; /* yours */
};

/* An extension. Its texts, and what it points to, must live as long as the process. Members may be
 * added at the end. The first kind_count of `kinds`, optimizer_count of `optimizers`,
 * model_count of `models` and rank_pattern_count of `rank_patterns` are used; kinds are listed for
 * `cohobate check-kind LIBRARY:KIND`, and a model may use others. */
typedef struct coh_extension {
    uint32_t struct_bytes; /* sizeof(coh_extension); set by COH_EXTENSION */
    uint32_t kind_abi;     /* COH_KIND_ABI; set by COH_EXTENSION */
    const char *name;      /* as a model's name; of less than COH_EXTENSION_NAME_BYTES bytes */
    /* Raise it when a model of the same name gets other parameters or computes something else. A
     * checkpoint of another revision is refused. */
    uint32_t revision;
    int32_t kind_count, optimizer_count, model_count; /* 0 to COH_EXTENSION_PARTS each */
    const coh_op_kind *kinds[COH_EXTENSION_PARTS];
    const coh_optimizer *optimizers[COH_EXTENSION_PARTS];
    const coh_own_model *models[COH_EXTENSION_PARTS];
    int32_t rank_pattern_count; /* 0 to COH_EXTENSION_PARTS */
    const coh_rank_pattern *rank_patterns[COH_EXTENSION_PARTS];
} coh_extension;

/* The type of the function that a shared object exports as COH_EXTENSION_SYMBOL. */
typedef const coh_extension *coh_extension_function(void);

/* Defines that function; the arguments are members of coh_extension. Once in a shared object, in
 * C. */
#define COH_EXTENSION(...)                                                                         \
    __attribute__((visibility("default"))) coh_extension_function cohobate_extension;              \
    const coh_extension *cohobate_extension(void)                                                  \
    {                                                                                              \
        static const coh_extension extension = { .struct_bytes = sizeof(coh_extension),            \
                                                 .kind_abi = COH_KIND_ABI,                         \
                                                 __VA_ARGS__ };                                    \
        return &extension;                                                                         \
    }                                                                                              \
    typedef int coh_extension_needs_a_semicolon

/* Makes an extension's optimizers, rank patterns and models known to the process, all or none of
 * the models;
 * coh_model_preset finds models then. Registering the same extension again does nothing.
 * Fails: COH_ERR_ARGUMENT: a name, count or size is not allowed, a name is taken, or the extension
 * was compiled for another COH_KIND_ABI. */
COH_API coh_status coh_extension_register(const coh_extension *extension);

#ifdef __cplusplus
}
#endif
#endif
