/* adapters.h - selects the trained part of a model: patterns name the operators to freeze and the
 * linear operators that get an adapter (formula: cohobate/models.h), and those that are trained in
 * full next to adapters.
 *
 * The one idea: a pattern matches an operator by name alone. Graphs, tensor tables and adapter
 * files call the same functions here and therefore agree. */
#ifndef COH_MODELS_ADAPTERS_H
#define COH_MODELS_ADAPTERS_H

#include <jansson.h>

#include "cohobate/models.h"
#include "models/config.h"

/* Suffixes of an operator's name that name the two operators of its adapter. */
#define COH_ADAPTER_A "lora_A"
#define COH_ADAPTER_B "lora_B"

/* An entry of the metadata of a folder's tensors: over which weights they were trained. */
#define COH_ADAPTERS_FROZEN "cohobate.frozen_dtype"
#define COH_ADAPTERS_NF4    "nf4"

/* Lists all adapters of the model, as coh_model_adapter_at does; release with coh_free. Fails:
 * COH_ERR_MEMORY. */
coh_status coh_adapters_list(const coh_model *model, coh_model_adapter **out_adapters,
                             size_t *out_count);

/* Writes "<op>.<part>.weight", the parameter name of one adapter operator. */
void coh_adapter_parameter_name(const char *op, const char *part, char *out_name,
                                size_t name_bytes);

/* An operator that has parameters. */
typedef struct coh_operator {
    char name[96];
    char module[96];   /* its name in `transformers` */
    const char *place; /* its name within the layer; the whole name outside of layers */
    int64_t layer;     /* -1: outside of layers */
    int64_t inputs, outputs;
    int64_t elements; /* in all its parameters */
    int32_t linear;
    int32_t transposed; /* published files store its weight as [inputs, outputs] */
} coh_operator;

/* Reads the operator whose first tensor is *index (start with 0) and advances *index to the next
 * operator's first tensor. Returns 0 at the end. `place` points into *out_operator. */
int coh_operator_next(const coh_model *model, int64_t *index, coh_operator *out_operator);

/* Is the operator frozen? Is it linear and gets an adapter? Is it trained in full next to adapters?
 * `adapters` NULL: no to all. */
int coh_adapters_freeze(const coh_adapters *adapters, const char *name);
int coh_adapters_target(const coh_adapters *adapters, const char *name);
int coh_adapters_also(const coh_adapters *adapters, const char *name);

/* Checks that every pattern matches an operator and that something is left to train. Fails:
 * COH_ERR_ARGUMENT, listing the names that exist. */
coh_status coh_adapters_check(const coh_model *model);

/* PEFT's lora_alpha by default. */
#define COH_ADAPTER_ALPHA 8.0f

/* Writes patterns that match exactly the linears that are chosen, in few letters: layers of the
 * same linears share a glob, as "1[2-9].*[qv]_proj,2?.*[qv]_proj". `is_chosen` has the index of the
 * operator's first tensor. Fails: COH_ERR_CORRUPT: it found none below COH_PATTERN_BYTES;
 * COH_ERR_MEMORY. */
coh_status coh_adapters_cover(const coh_model *model,
                              int (*is_chosen)(const void *context, int64_t index),
                              const void *context, char out_targets[COH_PATTERN_BYTES]);

/* Appends `, "adapters": {...}`, a member of a model's JSON; nothing if no adapters or frozen
 * operators are set. */
void coh_adapters_to_text(const coh_adapters *adapters, coh_text *text);
/* Reads them back; `value` NULL: none are set. Does not check patterns against a model. Fails:
 * COH_ERR_CORRUPT. */
coh_status coh_adapters_from_json(json_t *value, coh_adapters *out_adapters);

#endif
