/* models.h - known models as graphs, and one function that resolves a user's MODEL argument.
 *
 * A model is a family and its configuration. Configurations come from presets, from the notes of
 * checkpoints, or from the config.json of a Hugging Face folder:
 *
 *     model_type   gpt2    opt    llama mistral qwen2 qwen3 phi3   gemma2 gemma3_text
 *     family       GPT2    OPT    LLAMA                            GEMMA
 *
 * Types of one family differ in fields, hardly in the graph.
 *
 * Every field of config.json that changes what is computed is either honoured or refused by name
 * (docs/models.md has the table). Parameters have Hugging Face's names.
 *
 * Members of every configuration: `layers`; `heads` of attention, each of `head_width` channels;
 * `channels` of a token; `positions`, the longest sequence; `vocabulary`, the rows of the token
 * table; `dtype` of parameters and activations; `init_std` of new weights; `rmsnorm_epsilon`, as
 * coh_kind_rmsnorm has it; `untied`, 1: the head does not share the token table.
 * Threads: any. A model is plain data of its caller; a graph belongs to the thread that builds
 * it. */
#ifndef COHOBATE_MODELS_H
#define COHOBATE_MODELS_H

#include "cohobate/kinds.h"

#ifdef __cplusplus
extern "C" {
#endif

/* GPT-2 family: pre-norm, learned positions, tanh GELU. */
typedef struct coh_gpt2_config {
    int64_t layers, heads, channels, positions, vocabulary;
    float layernorm_epsilon; /* 1e-5 */
    coh_dtype dtype;  /* of parameters and activations: f32 (0, as presets have it) or bf16 */
    int64_t inner;    /* width between the two linears of a layer; 0: 4 channels */
    int32_t untied;   /* 1: the head has its own table; 0: it shares the tokens' */
    int32_t reserved; /* 0 */
} coh_gpt2_config;

/* OPT: learned positions from row 2 on, ReLU, epsilon 1e-5. */
typedef struct coh_opt_config {
    int64_t layers, heads, channels, positions, vocabulary;
    int64_t inner; /* width between the two linears of a layer */
    /* Width of the token table. If it is not `channels`, a linear maps one to the other, and
     * another maps back before the head (350M). */
    int64_t embedding;
    int64_t padding; /* id whose row is not trained by lookups; -1: none */
    coh_dtype dtype;
    float init_std;
    /* 1: each branch begins with its norm; 0: each sum ends with its norm (350M) */
    int32_t norm_before;
    int32_t last_norm; /* 1: a norm after the last layer; only with norm_before */
    int32_t biases;    /* 1: linears have biases */
    int32_t untied;
} coh_opt_config;

/* The model_type that a configuration is written as. PLAIN is "llama"; MISTRAL, QWEN2 and the
 * others are named as in config.json. */
typedef enum coh_llama_type {
    COH_LLAMA_PLAIN,
    COH_LLAMA_MISTRAL,
    COH_LLAMA_QWEN2,
    COH_LLAMA_QWEN3, /* with a norm of each head of queries and keys */
    COH_LLAMA_PHI3   /* with one linear for queries, keys and values, and one for gate and up */
} coh_llama_type;

/* Llama: RMSNorm, rotary positions, grouped heads, SwiGLU. */
typedef struct coh_llama_config {
    int64_t layers, heads, channels, positions, vocabulary;
    int64_t kv_heads;   /* heads of keys and values: a divisor of `heads` */
    int64_t head_width; /* usually channels / heads */
    int64_t inner;      /* of the gated layer */
    int64_t padding;    /* id whose row is not trained by lookups; -1: none */
    /* Positions that a query attends to, itself included; 0: all. It has no effect on shorter
     * sequences. Qwen's, which only some layers have, is not computed: longer ones are refused. */
    int64_t window;
    coh_rope_attributes rope; /* `heads` 0, here and below */
    float rmsnorm_epsilon;
    coh_dtype dtype;
    float init_std;
    int32_t type;                              /* a coh_llama_type */
    int32_t qkv_biases, output_bias, mlp_bias; /* of those linears */
    int32_t untied;
} coh_llama_config;

/* Gemma 2 (COH_GEMMA_2) and Gemma 3 (COH_GEMMA_3). */
typedef enum coh_gemma_type { COH_GEMMA_2, COH_GEMMA_3 } coh_gemma_type;

/* Gemma 2, and the text model of Gemma 3: norms before and after each branch, GeGLU, local and
 * global layers. */
typedef struct coh_gemma_config {
    int64_t layers, heads, channels, positions, vocabulary;
    int64_t kv_heads; /* heads of keys and values: a divisor of `heads` */
    int64_t head_width;
    int64_t inner;   /* of the gated layer */
    int64_t padding; /* id whose row is not trained by lookups; -1: none */
    int64_t window;  /* positions that a query of a local layer attends to, itself included */
    int64_t pattern; /* every pattern-th layer is global; 0: none is */
    int64_t scalar;  /* scores are multiplied by its inverse root */
    coh_rope_attributes rope;   /* of global layers; unscaled in Gemma 2 */
    double local_theta;         /* of the unscaled rope of local layers; in Gemma 2, rope.theta */
    float score_cap, logit_cap; /* soft caps of scores (Gemma 2) and logits; 0: none */
    float rmsnorm_epsilon;
    coh_dtype dtype;
    float init_std;
    int32_t type; /* a coh_gemma_type */
    int32_t untied;
} coh_gemma_config;

/* room for the name of an extension, with its end */
#define COH_EXTENSION_NAME_BYTES 48

/* A model of an extension (extension.h). `model` and `extension` are names, `revision`: the
 * extension's. */
typedef struct coh_own_config {
    int64_t layers, heads, channels, positions, vocabulary;
    coh_dtype dtype;
    uint32_t revision;
    char model[COH_EXTENSION_NAME_BYTES], extension[COH_EXTENSION_NAME_BYTES];
} coh_own_config;

/* Families of models with one graph each: GPT2, OPT, LLAMA, GEMMA; OWN, whose graphs an extension
 * builds. */
typedef enum coh_family {
    COH_FAMILY_GPT2,
    COH_FAMILY_OPT,
    COH_FAMILY_LLAMA,
    COH_FAMILY_GEMMA,
    COH_FAMILY_OWN
} coh_family;
/* number of families */
#define COH_FAMILY_COUNT 5

/* The parameters that are trained, and their adapters. All zero: all parameters, no adapters.
 *
 * Patterns are shell globs separated by commas. A glob matches an operator if it matches its whole
 * name, or the part after one of the name's dots: "q_proj,v_proj", "attn.c_proj", "h.0.*". An
 * operator's name is the name of its parameters without the last component.
 *
 * A frozen operator's parameters have no gradient and no states, and are never written back. An
 * adapter (LoRA, Hu et al. 2021) is added to a linear operator; if there are adapters, everything
 * else is frozen:
 *
 *     y = x Wᵀ + b  +  (alpha / rank) (x Aᵀ) Bᵀ
 *
 * If coh_model has a lora_dropout, training graphs compute A of dropout(x), drawn for each adapter.
 *
 * A [rank, inputs] is "<operator>.lora_A.weight" and starts uniform in ±1/sqrt(inputs); B [outputs,
 * rank] is "<operator>.lora_B.weight" and starts at zero, so that training starts from the
 * unchanged model. Both have weight decay, as in PEFT.
 *
 * Operators of `also` (PEFT's modules_to_save) are trained in full next to adapters, except those
 * that `freeze` matches, too. None of them may have an adapter. */
typedef struct coh_adapters {
    char freeze[COH_PATTERN_BYTES];  /* operators that are frozen; may include adapters' own */
    char targets[COH_PATTERN_BYTES]; /* linear operators that get an adapter */
    int32_t rank;                    /* 0: no adapters */
    float alpha;
    char also[COH_PATTERN_BYTES]; /* operators that are trained in full next to adapters */
} coh_adapters;

/* The model that a MODEL argument resolved to. Plain data: may be copied freely. `family` says
 * which of `gpt2`, `opt`, `llama`, `gemma` and `own` is valid; `adapters` is set by
 * coh_model_adapters_set. */
typedef struct coh_model {
    char name[128]; /* preset or folder name, for run folders */
    coh_family family;
    coh_dtype stored; /* dtype of the tensors in `folder`, by its config.json: f32, bf16 or f16 */
    __extension__ union { /* by family; C99 has no anonymous unions but as an extension */
        coh_gpt2_config gpt2;
        coh_opt_config opt;
        coh_llama_config llama;
        coh_gemma_config gemma;
        coh_own_config own;
    };
    coh_adapters adapters;
    char checkpoint[4096]; /* checkpoint to load parameters from; "": none */
    char folder[4096];     /* Hugging Face folder to load parameters from; "": none */
    /* Members of config.json that do not affect the computation (ids of special tokens, dropouts,
     * ...) as JSON without the braces: kept to be written back. */
    char extras[2048];
    /* dtypes of the tensors in `folder`, if they are not all `stored`: one letter each (f32 'f',
     * bf16 'b', f16 'h'), by coh_model_tensor_at's index. "": they are, or nothing is known. */
    char dtypes[2048];
    /* "__metadata__" of its files, as JSON without the braces: kept to be written back, too. */
    char metadata[1024];
    /* Remarks for the user about what was read, one per line; "": none. All fit: there are at most
     * six of less than 340 bytes each, or the one of a checkpoint. */
    char notes[2048];
    /* Dropout probability in training graphs, wherever the family has dropout (docs/models.md): 0
     * to below 1; models are read with 0. It belongs to a run, so no model's note has it. */
    double dropout;
    /* 1: training graphs on a GPU use the attention kinds whose bits vary from run to run
     * (kinds.h), except with attention dropout, which has no such kinds. Models are read with 0; it
     * belongs to a run, as dropout does. */
    int32_t atomics;
    /* 1: training graphs store the frozen weights of linears in NF4 (coh_linear_attributes), those
     * whose rows are multiples of COH_NF4_ROW_UNIT: 4.25 bits an element in place of 16 or 32. The
     * head and the token table are as before. Models are read with 0; it belongs to a run, as
     * dropout does: a checkpoint has the numbers, which are exact in bf16, so other graphs of it
     * need not know. */
    int32_t frozen_nf4;
    /* 1: graphs of training, logits and losses have a third input, "positions", i32 [sequences,
     * tokens]: the position of each token in its document (coh_kind_attention_documents). A token
     * attends over its own document, and learned positions begin again with each. Models are read
     * with 0; it belongs to a run's data. It takes no kinds with atomics. */
    int32_t separate_documents;
    /* Dropout probability of the input of each adapter's A in training graphs (PEFT's
     * lora_dropout): 0 to below 1; above 0 only with adapters. It belongs to a run, as dropout
     * does: models are read with 0, and coh_adapters_open sets that of the folder. */
    double lora_dropout;
} coh_model;

/* Creates a model by name: gpt2-nano (6 layers, 6 heads, 384 wide), or a published one: gpt2,
 * gpt2-medium, gpt2-large, gpt2-xl; opt-125m, -350m, -1.3b, -2.7b, -6.7b, -13b, -30b, -66b;
 * llama-2-7b, -13b, -70b; llama-3.1-8b, -70b; llama-3.2-1b, -3b; qwen2.5-0.5b, -1.5b, -3b, -7b,
 * -14b, -32b; qwen3-0.6b, -1.7b, -4b, -8b, -14b, -32b; mistral-7b (version 0.3), mistral-small-24b;
 * phi-3-medium; gemma-2-9b, -27b; gemma-3-4b, -27b (text). Only sizes, no weights: its parameters
 * are new, in f32. `vocabulary` 0: as published (gpt2-nano: GPT-2's 50257), else that many (257
 * for bytes + end of text). No id is padding, because only a tokenizer defines padding. Models
 * of registered extensions (extension.h) are found, too.
 * Fails: COH_ERR_ARGUMENT listing the names. */
COH_API coh_status coh_model_preset(const char *name, int64_t vocabulary, coh_model *out_model);
/* Returns preset name `index`, from 0; NULL after the last. Extensions' models are not listed. */
COH_API const char *coh_model_preset_name(int32_t index);
/* As coh_model_preset, for GPT-2's presets. Fails: COH_ERR_ARGUMENT, also for other families'
 * names. */
COH_API coh_status coh_gpt2_preset(const char *name, int64_t vocabulary,
                                   coh_gpt2_config *out_config);

/* Resolves a MODEL argument. `what` is a preset's name, or the path of a checkpoint, a run folder
 * or a Hugging Face folder (one with a config.json). `vocabulary` is as for presets; a folder's own
 * must be at least as large, because a table may have more rows than a tokenizer has ids.
 * Fails: COH_ERR_ARGUMENT naming what was tried, or for a folder that holds both a config.json and
 * a run's checkpoints; COH_ERR_CORRUPT; COH_ERR_IO. */
COH_API coh_status coh_model_resolve(const char *what, int64_t vocabulary, coh_model *out_model);

/* Sizes that every family has. */
typedef struct coh_model_size {
    int64_t layers, heads, channels, vocabulary;
    int64_t positions; /* most tokens in a sequence */
    coh_dtype dtype;
} coh_model_size;
/* Returns the sizes of a resolved or read model; all zero if its family is unknown. */
COH_API coh_model_size coh_model_size_get(const coh_model *model);
/* Sets the dtype of parameters and activations: f32 or bf16. The library's default is f32 for a
 * preset, and for a folder bf16 if it is stored in bf16, else f32, on every machine. The program's
 * default for a new run is another one: bf16 on a GPU and wherever coh_machine_bf16_is_fast
 * (machine.h), unless that would round frozen parameters. So call this to have the program's
 * memory, speed and numbers. */
COH_API void coh_model_dtype_set(coh_model *model, coh_dtype dtype);
/* Returns config.json's model_type, as listed at the top. Static storage. */
COH_API const char *coh_model_type_name(const coh_model *model);

/* Builds the training graph for micro-batches of `sequences` x `tokens`, with inputs "tokens" and
 * "targets", and "positions" for separate documents. Each layer is a block; weights are [outputs,
 * inputs]. The loss is f32 in either dtype.
 * Initialisation: GPT-2 normal 0.02, positions 0.01, residual projections 0.02 / sqrt(2 layers)
 * (Radford et al. 2019); the others normal init_std; biases zero, norms one.
 * Owns: the caller destroys the graph, here and below.
 * Fails: COH_ERR_ARGUMENT or COH_ERR_SHAPE naming the field. */
COH_API coh_status coh_model_train_graph(const coh_model *model, int64_t sequences, int64_t tokens,
                                         coh_graph **out_graph);

/* Builds the training graph with the logits of all positions as an additional output: *out_logits
 * [sequences, tokens, V], f32, for plans of COH_PLAN_INFER. The output takes 4 * sequences * tokens
 * * V bytes of the device. The loss has the same bits as without it. Fails: as above. */
COH_API coh_status coh_model_logits_graph(const coh_model *model, int64_t sequences, int64_t tokens,
                                          coh_graph **out_graph, coh_tensor *out_logits);

/* Builds the training graph with the loss of each token as an additional output: *out_losses
 * [sequences, tokens], f32, 0 where a target is -1; for plans of COH_PLAN_INFER on the host device.
 * Takes the memory of the logits. The loss has the same bits as without it. Fails: as above. */
COH_API coh_status coh_model_token_losses_graph(const coh_model *model, int64_t sequences,
                                                int64_t tokens, coh_graph **out_graph,
                                                coh_tensor *out_losses);

/* Builds one step of a decoder for one sequence of at most `tokens`: inputs "token" and "position",
 * i32 [1,1] and [1]; output *out_logits [1,1,V], f32; keys and values are states. Parameters have
 * the same names as in the training graph. Fails: as coh_model_train_graph. */
COH_API coh_status coh_model_decode_graph(const coh_model *model, int64_t tokens,
                                          coh_graph **out_graph, coh_tensor *out_logits);

/* As coh_model_decode_graph, but a step takes a chunk of `rows` consecutive tokens of a prompt, so
 * that a model that streams is read once a chunk (chunked prefill). "token" is i32 [1,rows],
 * "position" that of the first row, *out_logits those after the last row. A chunk with fewer tokens
 * is padded with any ids: steps never see the keys of padding that later steps overwrite, and rows
 * from `tokens` on are not stored. The graph of one row is a small graph of all others
 * (coh_engine_options.small_graph): plan the graph of a chunk, and run single tokens with that of
 * one row. Fails: as coh_model_train_graph; COH_ERR_SHAPE: more rows than the model has
 * positions. */
COH_API coh_status coh_model_prefill_graph(const coh_model *model, int64_t tokens, int64_t rows,
                                           coh_graph **out_graph, coh_tensor *out_logits);

/* As coh_model_train_graph, from a GPT-2 configuration. */
COH_API coh_status coh_gpt2_train_graph(const coh_gpt2_config *config, int64_t sequences,
                                        int64_t tokens, coh_graph **out_graph);
/* As coh_model_decode_graph, from a GPT-2 configuration. */
COH_API coh_status coh_gpt2_decode_graph(const coh_gpt2_config *config, int64_t tokens,
                                         coh_graph **out_graph, coh_tensor *out_logits);

/* ---- freezing and adapters ---- */

/* Sets what is trained. Targets "" selects PEFT's defaults for the family: c_attn of GPT-2, q_proj
 * and v_proj of the others; for Phi-3, where PEFT has none, qkv_proj; alpha 0 selects PEFT's 8.
 * Fails: COH_ERR_ARGUMENT, with the model unchanged: a pattern matches nothing, or a target matches
 * no linear operator (the text lists the names to choose from); an operator of `also` has an
 * adapter; or nothing is left to train. */
COH_API coh_status coh_model_adapters_set(coh_model *model, const coh_adapters *adapters);

/* Returns 1 if the model's adapters leave tensor `index` (coh_model_tensor_at) frozen. */
COH_API int coh_model_is_frozen(const coh_model *model, int64_t index);
/* Returns the number of trained elements: of operators that are not frozen, and of adapters. */
COH_API uint64_t coh_model_trained_count(const coh_model *model);

/* A linear operator with an adapter; they are numbered in the graph's order. A is [rank, `inputs`],
 * B [`outputs`, rank]. */
typedef struct coh_model_adapter {
    char name[96];   /* of the operator: A is "<name>.lora_A.weight", B "<name>.lora_B.weight" */
    char module[96]; /* its name in `transformers` */
    int64_t inputs, outputs;
    int64_t elements;   /* of A and B */
    int32_t transposed; /* 1: its weight is published as [inputs, outputs] */
} coh_model_adapter;
/* Returns the elements of all adapters together. */
COH_API uint64_t coh_model_adapter_elements(const coh_model *model);
/* Returns 1 if a parameter of that name belongs to an adapter. Folders and checkpoints of the plain
 * model have no such names. */
COH_API int coh_model_is_adapter_name(const char *parameter);
/* Returns 1 if a parameter of the model belongs to an adapter, or is trained next to adapters: a
 * folder of adapters holds these parameters, and no others. */
COH_API int coh_model_is_adapted(const coh_model *model, const char *parameter);
/* Returns the number of linear operators with an adapter. */
COH_API int64_t coh_model_adapter_count(const coh_model *model);
/* Reads adapter `index`. Fails: COH_ERR_ARGUMENT if there is none. */
COH_API coh_status coh_model_adapter_at(const coh_model *model, int64_t index,
                                        coh_model_adapter *out_adapter);

/* ---- notes of checkpoints ---- */

#define COH_MODEL_JSON_BYTES 8448 /* every model's JSON fits */

/* Writes the model as a JSON object for a checkpoint's note: family, name, dtype ("f32" or "bf16"),
 * configuration, and how its folder stored it. Allocates nothing.
 * Fails: COH_ERR_ARGUMENT if text_bytes is too small. */
COH_API coh_status coh_model_to_json(const coh_model *model, char *text, size_t text_bytes);
/* Reads the model back from such JSON, of earlier versions, too. Fails: COH_ERR_CORRUPT with the
 * member; COH_ERR_ARGUMENT if its extension is not registered. */
COH_API coh_status coh_model_from_json(const char *json, coh_model *out_model);

/* ---- config.json ---- */

/* Reads the text of a config.json: family, configuration, stored dtype, extras and notes. The model
 * computes in bf16 if it is stored in bf16, else in f32. Its name is the model_type.
 * Fails: COH_ERR_CORRUPT with the member's name: malformed, or not supported by our graphs. */
COH_API coh_status coh_model_from_config(const char *json, coh_model *out_model);

/* Writes the text of a config.json that `transformers` reads as this model with tensors of dtype
 * `stored`: members in alphabetical order, indented by two spaces per level. Owns: the caller frees
 * *out_text with coh_model_text_free. Fails: COH_ERR_MEMORY. */
COH_API coh_status coh_model_to_config(const coh_model *model, coh_dtype stored, char **out_text);
/* Frees the text of coh_model_to_config. Accepts NULL. */
COH_API void coh_model_text_free(char *text);

/* ---- tensors of a folder ---- */

/* One parameter: its name in our graphs, and its name and layout in a folder. */
typedef struct coh_model_tensor {
    char name[96]; /* in graphs and checkpoints */
    /* as `transformers` writes it; coh_model_name_find knows all spellings it reads */
    char published[96];
    int32_t rank;             /* 1 or 2 */
    int64_t dim[2];           /* in our layout */
    int64_t published_dim[2]; /* in the folder; reversed if `transposed` */
    int32_t transposed;       /* published as [inputs, outputs] (GPT-2's linears) */
    int32_t linear;           /* 1: weight of a linear operator, which may have an adapter */
} coh_model_tensor;

/* Returns the number of parameters in the model's graphs, adapters not included. */
COH_API int64_t coh_model_tensor_count(const coh_model *model);
/* Reads parameter `index`, in the graphs' order. Fails: COH_ERR_ARGUMENT if there is none. */
COH_API coh_status coh_model_tensor_at(const coh_model *model, int64_t index,
                                       coh_model_tensor *out_tensor);

/* Returns the dtype that tensor `index` has in the model's folder, if its tensors differ; else
 * `otherwise`. */
COH_API coh_dtype coh_model_tensor_stored(const coh_model *model, int64_t index,
                                          coh_dtype otherwise);

/* Meaning of a tensor name found in a folder. */
typedef enum coh_model_name {
    COH_MODEL_NAME_UNKNOWN,   /* not of this model */
    COH_MODEL_NAME_PARAMETER, /* a parameter, with the usual prefix or without it */
    COH_MODEL_NAME_TIED,      /* a head tied to the token table: skipped if it equals the table */
    COH_MODEL_NAME_BUFFER     /* a constant that old files hold (masks, frequencies): skipped */
} coh_model_name;
/* Classifies a name. *out_index (may be NULL) is an index for coh_model_tensor_at: the parameter's,
 * or the table's for a tied head; -1 otherwise. */
COH_API coh_model_name coh_model_name_find(const coh_model *model, const char *published,
                                           int64_t *out_index);

#ifdef __cplusplus
}
#endif
#endif
