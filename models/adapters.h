/* adapters.h - what is trained of a model: patterns of operators that are frozen, and of linear
 * operators that get an adapter (cohobate/models.h has the formula).
 *
 * The one idea: which operator a pattern means is decided by its name alone, so the graphs, the
 * tables of tensors and the files of adapters agree by asking the same functions. */
#ifndef COH_MODELS_ADAPTERS_H
#define COH_MODELS_ADAPTERS_H

#include <jansson.h>

#include "cohobate/models.h"
#include "models/config_text.h"

/* Behind an operator's name: the operators of its adapter. */
#define COH_ADAPTER_A "lora_A"
#define COH_ADAPTER_B "lora_B"

/* All of the model, as coh_model_adapter_at lists them; release with coh_free. Fails:
 * COH_ERR_MEMORY. */
coh_status coh_adapters_list(const coh_model *model, coh_model_adapter **out_adapters,
                             size_t *out_count);

/* "<op>.<part>.weight": the parameter of one of them. */
void coh_adapter_parameter_name(const char *op, const char *part, char *out_name,
                                size_t name_bytes);

/* An operator that has parameters of its own. */
typedef struct coh_operator {
    char name[96];
    char module[96];   /* as `transformers` calls it */
    const char *place; /* its name within the layer; the whole name outside of layers */
    int64_t layer;     /* -1: outside of layers */
    int64_t inputs, outputs;
    int64_t elements; /* of all its parameters */
    int32_t linear;
    int32_t transposed; /* its weight is published as [inputs, outputs] */
} coh_operator;

/* The operator whose first tensor is *index (0 to begin), and on to the next one's. 0: there is
 * none. `place` points into *out_operator. */
int coh_operator_next(const coh_model *model, int64_t *index, coh_operator *out_operator);

/* Is the operator frozen; does it, if it is linear, get an adapter? `adapters` NULL: no. */
int coh_adapters_freeze(const coh_adapters *adapters, const char *name);
int coh_adapters_target(const coh_adapters *adapters, const char *name);

/* Does every pattern stand for something, and is anything left to train? Fails: COH_ERR_ARGUMENT
 * with the names there are. */
coh_status coh_adapters_check(const coh_model *model);

/* In the JSON of a model: nothing where nothing is said, else `, "adapters": {...}`. */
void coh_adapters_to_text(const coh_adapters *adapters, coh_config_text *text);
/* `value` NULL: nothing is said. Fails: COH_ERR_CORRUPT. Checks no pattern against a model. */
coh_status coh_adapters_from_json(json_t *value, coh_adapters *out_adapters);

#endif
