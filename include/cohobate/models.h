/* models.h - known models as graphs, and the one resolver for what a user may call a model. */
#ifndef COHOBATE_MODELS_H
#define COHOBATE_MODELS_H

#include "cohobate/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* GPT-2's family: pre-norm, learned positions, tanh GELU, tied embeddings. */
typedef struct coh_gpt2_config {
    int64_t layers, heads, channels, positions, vocabulary;
    float layernorm_epsilon; /* 1e-5 */
    coh_dtype dtype; /* of parameters and activations: f32 (0, as presets have it) or bf16 */
} coh_gpt2_config;

/* A preset by name: gpt2-nano (6 layers, 6 heads, 384 wide), gpt2, gpt2-medium, gpt2-large,
 * gpt2-xl. `vocabulary` 0: 50257, else that many (257 for bytes + end of text).
 * Fails: COH_ERR_ARGUMENT listing the names. */
COH_API coh_status coh_gpt2_preset(const char *name, int64_t vocabulary,
                                   coh_gpt2_config *out_config);

/* Training graph for micro-batches of `sequences` x `tokens`: inputs "tokens" and "targets".
 * Parameter names are Hugging Face's ("h.0.attn.c_attn.weight"), weights [outputs, inputs].
 * Initialisation: normal 0.02, positions 0.01, residual projections 0.02 / sqrt(2 layers) (Radford
 * et al. 2019), biases zero. Each layer is a block. The loss is f32 in either dtype. */
COH_API coh_status coh_gpt2_train_graph(const coh_gpt2_config *config, int64_t sequences,
                                        int64_t tokens, coh_graph **out_graph);

/* One position of a decoder for one sequence of at most `tokens`: inputs "token" and "position",
 * i32 [1,1] and [1]; output *out_logits [1,1,V], f32; keys and values are states.
 * Same parameter names. */
COH_API coh_status coh_gpt2_decode_graph(const coh_gpt2_config *config, int64_t tokens,
                                         coh_graph **out_graph, coh_tensor *out_logits);

/* What a MODEL argument resolved to. */
typedef struct coh_model {
    char name[128]; /* preset or folder name, for run folders */
    coh_gpt2_config gpt2;
    char checkpoint[4096]; /* "" for a preset: parameters come from initialisation */
} coh_model;

/* `what`: a preset's name, or the path of a checkpoint or run folder. `vocabulary` as for presets.
 * Fails: COH_ERR_ARGUMENT naming what was tried; COH_ERR_CORRUPT. */
COH_API coh_status coh_model_resolve(const char *what, int64_t vocabulary, coh_model *out_model);

/* The model as a JSON object for a checkpoint's note, its dtype as "f32" or "bf16" (one that says
 * nothing is read as f32). Fails: COH_ERR_ARGUMENT when text_bytes are
 * too few. */
COH_API coh_status coh_model_to_json(const coh_model *model, char *text, size_t text_bytes);
/* And back. Fails: COH_ERR_CORRUPT naming the member that is wrong. */
COH_API coh_status coh_model_from_json(const char *json, coh_model *out_model);

#ifdef __cplusplus
}
#endif
#endif
