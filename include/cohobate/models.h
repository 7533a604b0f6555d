/* models.h - known models as graphs, and the one resolver for what a user may call a model.
 *
 * A model is a family and its configuration. Configurations come from presets, from the notes of
 * checkpoints, or from the config.json of a Hugging Face folder:
 *
 *     model_type   gpt2    opt    llama mistral qwen2
 *     family       GPT2    OPT    LLAMA (they differ in fields, not in the graph)
 *
 * Every field of a config.json that changes what is computed is honoured, or refused by its name
 * (docs/models.md has the table). Parameters are called as Hugging Face calls them. */
#ifndef COHOBATE_MODELS_H
#define COHOBATE_MODELS_H

#include "cohobate/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* GPT-2's family: pre-norm, learned positions, tanh GELU. */
typedef struct coh_gpt2_config {
    int64_t layers, heads, channels, positions, vocabulary;
    float layernorm_epsilon; /* 1e-5 */
    coh_dtype dtype;  /* of parameters and activations: f32 (0, as presets have it) or bf16 */
    int64_t inner;    /* width between the two linears of a layer; 0: 4 channels */
    int32_t untied;   /* 1: the head has a table of its own, 0: that of the tokens */
    int32_t reserved; /* 0 */
} coh_gpt2_config;

/* OPT's: learned positions from row 2 on, ReLU, epsilon 1e-5. */
typedef struct coh_opt_config {
    int64_t layers, heads, channels, positions, vocabulary;
    int64_t inner; /* width between the two linears of a layer */
    /* of the token table; where that is not `channels`, a linear leads from one to the other, and
     * one back before the head (350M) */
    int64_t embedding;
    int64_t padding; /* the id whose row no lookup trains; -1: none */
    coh_dtype dtype;
    float init_std;
    int32_t norm_before; /* 1: each branch begins with its norm; 0: each sum ends with it (350M) */
    int32_t last_norm;   /* a norm behind the last layer: only with norm_before */
    int32_t biases;      /* linears have them */
    int32_t untied;
} coh_opt_config;

/* How turns are slowed for sequences longer than those trained on: coh_kind_rope's. */
typedef struct coh_llama_rope {
    double theta;    /* 1e4 */
    int32_t scaling; /* a coh_rope_scaling; what it does not use is 0 */
    float factor, low_frequency, high_frequency;
    int64_t original_positions;
} coh_llama_rope;

/* Which model_type a configuration is written as. */
typedef enum coh_llama_type { COH_LLAMA_PLAIN, COH_LLAMA_MISTRAL, COH_LLAMA_QWEN2 } coh_llama_type;

/* Llama's: RMSNorm, rotary positions, grouped heads, SwiGLU. */
typedef struct coh_llama_config {
    int64_t layers, heads, channels, positions, vocabulary;
    int64_t kv_heads;   /* heads of keys and values: a divisor of `heads` */
    int64_t head_width; /* channels / heads where nothing else is said */
    int64_t inner;      /* of the gated layer */
    int64_t padding;    /* the id whose row no lookup trains; -1: none */
    /* positions that a query sees, itself included; 0: all. It changes nothing in shorter
     * sequences, so longer ones are refused. */
    int64_t window;
    coh_llama_rope rope;
    float rmsnorm_epsilon;
    coh_dtype dtype;
    float init_std;
    int32_t type;                              /* a coh_llama_type */
    int32_t qkv_biases, output_bias, mlp_bias; /* of those linears */
    int32_t untied;
} coh_llama_config;

typedef enum coh_family { COH_FAMILY_GPT2, COH_FAMILY_OPT, COH_FAMILY_LLAMA } coh_family;
#define COH_FAMILY_COUNT 3

#define COH_PATTERN_BYTES 256

/* What is trained of a model. All zero: everything, and nothing beside it.
 *
 * Patterns are shell globs separated by commas. One stands for an operator if it matches its whole
 * name, or what follows one of the name's dots: "q_proj,v_proj", "attn.c_proj", "h.0.*". An
 * operator is called as its parameters are, without their last component.
 *
 * A frozen operator's parameters have no gradient and no states, and are never written back. An
 * adapter (LoRA, Hu et al. 2021) stands beside a linear operator; where there are adapters, all
 * else is frozen:
 *
 *     y = x Wᵀ + b  +  (alpha / rank) (x Aᵀ) Bᵀ
 *
 * A [rank, inputs] is "<operator>.lora_A.weight" and begins uniform in ±1/sqrt(inputs); B [outputs,
 * rank] is "<operator>.lora_B.weight" and begins zero, so that training begins with the model as
 * it is. Both decay, as PEFT's do. */
typedef struct coh_adapters {
    char freeze[COH_PATTERN_BYTES]; /* operators that are frozen; adapters' own may be among them */
    char targets[COH_PATTERN_BYTES]; /* linear operators that get an adapter */
    int32_t rank;                    /* 0: no adapters */
    float alpha;
} coh_adapters;

/* What a MODEL argument resolved to. Plain data: copy it as you like. */
typedef struct coh_model {
    char name[128]; /* preset or folder name, for run folders */
    coh_family family;
    coh_dtype stored; /* of the tensors in `folder`, as its config.json says: f32, bf16 or f16 */
    union {           /* by family */
        coh_gpt2_config gpt2;
        coh_opt_config opt;
        coh_llama_config llama;
    };
    coh_adapters adapters;
    char checkpoint[4096]; /* "" but for a checkpoint: where parameters come from */
    char folder[4096];     /* "" but for a Hugging Face folder: likewise */
    /* Members of config.json without a part in what is computed (ids of special tokens, dropouts,
     * ...) as JSON without the braces: kept to be written back. */
    char extras[2048];
    /* How the tensors in `folder` are stored where they are not all `stored`: a letter each (f32
     * 'f', bf16 'b', f16 'h'), by coh_model_tensor_at's index; "": all are, or nothing is known. */
    char dtypes[2048];
    /* "__metadata__" of its files, as JSON without the braces: likewise kept. */
    char metadata[1024];
    /* What the user should be told of what was read, a line each; "": nothing. All fit: there are
     * six at most, each below 340 bytes, or the one of a checkpoint. */
    char notes[2048];
    /* Share of activations that training graphs drop wherever the family does (docs/models.md), 0
     * to below 1; 0, as models are read: none. No note of a model has it: it is a run's. */
    double dropout;
    /* 1: training graphs have attention's kinds of other bits each time on a GPU (kinds.h), but for
     * those with dropout, which have none. 0, as models are read; a run's, as dropout is. */
    int32_t atomics;
} coh_model;

/* A model by a name: gpt2-nano (6 layers, 6 heads, 384 wide), and those that were published: gpt2,
 * gpt2-medium, gpt2-large, gpt2-xl; opt-125m, -350m, -1.3b, -2.7b, -6.7b, -13b, -30b, -66b;
 * llama-2-7b, -13b, -70b; llama-3.1-8b, -70b. Sizes only, no numbers: its parameters are new ones,
 * in f32. `vocabulary` 0: as published (gpt2-nano: GPT-2's 50257), else that many (257 for bytes +
 * end of text). No id is padding, which is a tokenizer's to say.
 * Fails: COH_ERR_ARGUMENT listing the names. */
COH_API coh_status coh_model_preset(const char *name, int64_t vocabulary, coh_model *out_model);
/* Their names, from 0 on; NULL behind the last. */
COH_API const char *coh_model_preset_name(int32_t index);
/* One of GPT-2's. Fails: COH_ERR_ARGUMENT, also for those of other families. */
COH_API coh_status coh_gpt2_preset(const char *name, int64_t vocabulary,
                                   coh_gpt2_config *out_config);

/* `what`: a preset's name, or the path of a checkpoint, a run folder or a Hugging Face folder (one
 * with a config.json). `vocabulary` as for presets; of a folder, its own must be at least that:
 * a table may have more rows than a tokenizer has ids.
 * Fails: COH_ERR_ARGUMENT naming what was tried, or for a folder that holds a config.json and a
 * run's checkpoints; COH_ERR_CORRUPT; COH_ERR_IO. */
COH_API coh_status coh_model_resolve(const char *what, int64_t vocabulary, coh_model *out_model);

/* What every family has. */
typedef struct coh_model_size {
    int64_t layers, heads, channels, vocabulary;
    int64_t positions; /* the most tokens of a sequence */
    coh_dtype dtype;
} coh_model_size;
/* Of a model as resolved or read; all zero where its family is not known. */
COH_API coh_model_size coh_model_size_get(const coh_model *model);
/* The dtype of parameters and activations: f32 or bf16. */
COH_API void coh_model_dtype_set(coh_model *model, coh_dtype dtype);
/* "gpt2", "opt", "llama", "mistral" or "qwen2": config.json's model_type. */
COH_API const char *coh_model_type_name(const coh_model *model);

/* Training graph for micro-batches of `sequences` x `tokens`: inputs "tokens" and "targets".
 * Each layer is a block; weights are [outputs, inputs]. The loss is f32 in either dtype.
 * Initialisation: GPT-2 normal 0.02, positions 0.01, residual projections 0.02 / sqrt(2 layers)
 * (Radford et al. 2019); the others normal init_std; biases zero, norms one.
 * Fails: COH_ERR_ARGUMENT or COH_ERR_SHAPE naming the field. */
COH_API coh_status coh_model_train_graph(const coh_model *model, int64_t sequences, int64_t tokens,
                                         coh_graph **out_graph);

/* The training graph with the logits of all positions as an output next to the loss: *out_logits
 * [sequences, tokens, V], f32, for plans of COH_PLAN_INFER. The output takes 4 * sequences * tokens
 * * V bytes of the device. The loss has the bits it has without the output. Fails: as above. */
COH_API coh_status coh_model_logits_graph(const coh_model *model, int64_t sequences, int64_t tokens,
                                          coh_graph **out_graph, coh_tensor *out_logits);

/* One position of a decoder for one sequence of at most `tokens`: inputs "token" and "position",
 * i32 [1,1] and [1]; output *out_logits [1,1,V], f32; keys and values are states.
 * Same parameter names. */
COH_API coh_status coh_model_decode_graph(const coh_model *model, int64_t tokens,
                                          coh_graph **out_graph, coh_tensor *out_logits);

/* coh_model_train_graph for a GPT-2's configuration alone. */
COH_API coh_status coh_gpt2_train_graph(const coh_gpt2_config *config, int64_t sequences,
                                        int64_t tokens, coh_graph **out_graph);
/* coh_model_decode_graph for a GPT-2's configuration alone. */
COH_API coh_status coh_gpt2_decode_graph(const coh_gpt2_config *config, int64_t tokens,
                                         coh_graph **out_graph, coh_tensor *out_logits);

/* ---- freezing and adapters ---- */

/* Sets what is trained. Targets "" are PEFT's for the family: c_attn of GPT-2, q_proj and v_proj of
 * the others; alpha 0 is PEFT's 8. Fails: COH_ERR_ARGUMENT, the model being as before: a pattern
 * that stands for nothing, or a target for no linear operator, with the names to choose from;
 * nothing left to train. */
COH_API coh_status coh_model_adapters_set(coh_model *model, const coh_adapters *adapters);

/* Does tensor `index` (coh_model_tensor_at) stay as it is, by what the model's adapters say? */
COH_API int coh_model_is_frozen(const coh_model *model, int64_t index);
/* How many single numbers are trained: of operators that are not frozen and of adapters. */
COH_API uint64_t coh_model_trained_count(const coh_model *model);

/* The linear operators that carry an adapter, in the graphs' order. */
typedef struct coh_model_adapter {
    char name[96];   /* of the operator: A is "<name>.lora_A.weight", B "<name>.lora_B.weight" */
    char module[96]; /* as `transformers` calls it */
    int64_t inputs, outputs;
    int64_t elements;   /* of A and B */
    int32_t transposed; /* its weight is published as [inputs, outputs] */
} coh_model_adapter;
/* Of all together. */
COH_API uint64_t coh_model_adapter_elements(const coh_model *model);
/* Is a parameter of that name an adapter's? No folder or checkpoint of the model without has it. */
COH_API int coh_model_is_adapter_name(const char *parameter);
/* How many linears of the model carry an adapter. */
COH_API int64_t coh_model_adapter_count(const coh_model *model);
/* By index. Fails: COH_ERR_ARGUMENT when there is none. */
COH_API coh_status coh_model_adapter_at(const coh_model *model, int64_t index,
                                        coh_model_adapter *out_adapter);

/* ---- notes of checkpoints ---- */

#define COH_MODEL_JSON_BYTES 8448 /* every model's JSON fits */

/* The model as a JSON object for a checkpoint's note: family, name, dtype ("f32" or "bf16"),
 * configuration, and how its folder stored it. Allocates nothing. Fails: COH_ERR_ARGUMENT when
 * text_bytes are too few. */
COH_API coh_status coh_model_to_json(const coh_model *model, char *text, size_t text_bytes);
/* And back; also what earlier versions wrote. Fails: COH_ERR_CORRUPT naming the member that is
 * wrong. */
COH_API coh_status coh_model_from_json(const char *json, coh_model *out_model);

/* ---- config.json ---- */

/* Reads the text of a config.json: family, configuration, stored dtype, extras and notes; computes
 * in bf16 where it stores bf16, else in f32. The name is the model_type.
 * Fails: COH_ERR_CORRUPT with the member's name: malformed, or what no graph of ours computes. */
COH_API coh_status coh_model_from_config(const char *json, coh_model *out_model);

/* The text of a config.json that `transformers` reads as this model, its tensors being of dtype
 * `stored`: members in order of their names, two blanks a level. Release with
 * coh_model_text_free. Fails: COH_ERR_MEMORY. */
COH_API coh_status coh_model_to_config(const coh_model *model, coh_dtype stored, char **out_text);
/* Releases what coh_model_to_config gave. Accepts NULL. */
COH_API void coh_model_text_free(char *text);

/* ---- tensors of a folder ---- */

/* One parameter, by the name our graphs give it and as a folder holds it. */
typedef struct coh_model_tensor {
    char name[96];      /* in graphs and checkpoints */
    char published[96]; /* as `transformers` writes it; name_find knows the spellings it reads */
    int32_t rank;
    int64_t dim[2];           /* ours */
    int64_t published_dim[2]; /* the other way round where `transposed` */
    int32_t transposed;       /* published as [inputs, outputs] (GPT-2's linears) */
    int32_t linear;           /* the weight of a linear operator, which may carry an adapter */
} coh_model_tensor;

/* How many parameters the graphs of this model have, those of adapters aside. */
COH_API int64_t coh_model_tensor_count(const coh_model *model);
/* By index, in the graphs' order. Fails: COH_ERR_ARGUMENT when there is none. */
COH_API coh_status coh_model_tensor_at(const coh_model *model, int64_t index,
                                       coh_model_tensor *out_tensor);

/* The dtype that tensor `index` had in the folder the model came from, where its tensors differ;
 * else `otherwise`. */
COH_API coh_dtype coh_model_tensor_stored(const coh_model *model, int64_t index,
                                          coh_dtype otherwise);

/* What a name found in a folder stands for. */
typedef enum coh_model_name {
    COH_MODEL_NAME_UNKNOWN,   /* nothing of this model */
    COH_MODEL_NAME_PARAMETER, /* a parameter, with the usual prefix or without it */
    COH_MODEL_NAME_TIED,      /* a head that is the token table once more: left out if it is */
    COH_MODEL_NAME_BUFFER     /* a constant that old files hold (masks, frequencies): left out */
} coh_model_name;
/* *out_index (may be NULL) is that of coh_model_tensor_at: the parameter's, or the table's for a
 * tied head; -1 otherwise. */
COH_API coh_model_name coh_model_name_find(const coh_model *model, const char *published,
                                           int64_t *out_index);

#ifdef __cplusplus
}
#endif
#endif
