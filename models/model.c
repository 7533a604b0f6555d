/* Functions of cohobate/models.h for a model of any family. The one idea: each looks up the
 * family's table and calls it. Next: family.h. */
#include "models/adapters.h"
#include "models/family.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

coh_model_size coh_model_size_get(const coh_model *model)
{
    if (model == NULL)
        return (coh_model_size){ 0 };
    const coh_family_table *family = model ? coh_family_of(model) : NULL;
    return family ? family->size(coh_family_config(model)) : (coh_model_size){ 0 };
}

void coh_model_dtype_set(coh_model *model, coh_dtype dtype)
{
    if (model == NULL)
        return;
    const coh_family_table *family = model ? coh_family_of(model) : NULL;
    if (family)
        memcpy((char *)&model->gpt2 + family->dtype_offset, &dtype, sizeof(dtype));
}

const char *coh_model_type_name(const coh_model *model)
{
    if (model == NULL)
        return "";
    const coh_family_table *family = coh_family_of(model);
    if (!family)
        return "";
    const int type = family->type_of ? family->type_of(coh_family_config(model)) : 0;
    return type >= 0 && type < family->type_count ? family->types[type].name : "";
}

static coh_status check_model(const coh_model *model, const coh_family_table **out_family)
{
    *out_family = coh_family_of(model);
    if (!*out_family)
        return coh_fail(COH_ERR_ARGUMENT, "a model of family %d is not known", (int)model->family);
    COH_TRY((*out_family)->check(coh_family_config(model)));
    if (!(model->dropout >= 0 && model->dropout < 1))
        return coh_fail(COH_ERR_ARGUMENT, "a dropout of %g: from 0 to below 1 is possible",
                        model->dropout);
    return coh_adapters_check(model);
}

coh_status coh_model_train_graph(const coh_model *model, int64_t sequences, int64_t tokens,
                                 coh_graph **out_graph)
{
    const coh_family_table *family;
    if (!model || !out_graph)
        return coh_fail(COH_ERR_ARGUMENT, "a graph needs a model and a place for itself");
    *out_graph = NULL;
    COH_TRY(check_model(model, &family));
    const coh_model_size size = coh_model_size_get(model);
    COH_TRY(coh_family_check_tokens(&size, tokens));
    return coh_builder_train(family->body, model, sequences, tokens, out_graph);
}

coh_status coh_model_logits_graph(const coh_model *model, int64_t sequences, int64_t tokens,
                                  coh_graph **out_graph, coh_tensor *out_logits)
{
    const coh_family_table *family;
    if (!model || !out_graph || !out_logits)
        return coh_fail(COH_ERR_ARGUMENT,
                        "a graph with logits needs a model and places for itself and its logits");
    *out_graph = NULL;
    COH_TRY(check_model(model, &family));
    const coh_model_size size = coh_model_size_get(model);
    COH_TRY(coh_family_check_tokens(&size, tokens));
    return coh_builder_logits(family->body, model, sequences, tokens, out_graph, out_logits);
}

coh_status coh_model_decode_graph(const coh_model *model, int64_t tokens, coh_graph **out_graph,
                                  coh_tensor *out_logits)
{
    const coh_family_table *family;
    if (!model || !out_graph || !out_logits)
        return coh_fail(COH_ERR_ARGUMENT,
                        "a decoder needs a model and places for itself and its logits");
    *out_graph = NULL;
    COH_TRY(check_model(model, &family));
    const coh_model_size size = coh_model_size_get(model);
    COH_TRY(coh_family_check_tokens(&size, tokens));
    return coh_builder_decode(family->body, model, tokens, out_graph, out_logits);
}

/* ---- common checks ---- */

coh_status coh_family_check_size(const char *who, const coh_model_size *size)
{
    if (size->layers < 1 || size->heads < 1 || size->channels < 1 || size->positions < 1 ||
        size->vocabulary < 1)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%s needs layers, heads, channels, positions and vocabulary of at least 1, "
                        "not %" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 " and %" PRId64,
                        who, size->layers, size->heads, size->channels, size->positions,
                        size->vocabulary);
    if (size->layers > COH_LAYERS_MOST)
        return coh_fail(COH_ERR_ARGUMENT, "%" PRId64 " layers are more than the %d allowed",
                        size->layers, COH_LAYERS_MOST);
    if (size->channels > INT32_MAX || size->vocabulary > INT32_MAX || size->heads > INT32_MAX)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%" PRId64 " channels, %" PRId64 " heads or a vocabulary of %" PRId64
                        " exceed %d",
                        size->channels, size->heads, size->vocabulary, INT32_MAX);
    if (size->dtype != COH_DTYPE_F32 && size->dtype != COH_DTYPE_BF16)
        return coh_fail(COH_ERR_ARGUMENT, "%s is computed in f32 or bf16, not in dtype %d", who,
                        (int)size->dtype);
    return COH_OK;
}

coh_status coh_family_check_heads(const coh_model_size *size, const char *channels_name,
                                  const char *heads_name)
{
    char width_name[80];
    if (size->channels % size->heads != 0)
        return coh_fail(COH_ERR_SHAPE,
                        "\"%s\" %" PRId64 " does not divide into \"%s\" %" PRId64
                        ": choose a multiple",
                        channels_name, size->channels, heads_name, size->heads);
    snprintf(width_name, sizeof(width_name), "\"%s\" / \"%s\"", channels_name, heads_name);
    return coh_family_check_head_width(width_name, size->channels / size->heads);
}

coh_status coh_family_check_head_width(const char *name, int64_t width)
{
    if (width <= COH_HEAD_WIDTH_MOST)
        return COH_OK;
    return coh_fail(COH_ERR_SHAPE,
                    "%s is %" PRId64
                    " channels a head, and heads of at most %d are computed: choose more heads, or "
                    "narrower ones",
                    name, width, COH_HEAD_WIDTH_MOST);
}

coh_status coh_family_check_epsilon(const char *name, float epsilon)
{
    if (epsilon > 0.0f && epsilon < 1.0f)
        return COH_OK;
    return coh_fail(COH_ERR_ARGUMENT, "\"%s\" is %g, and must be above 0 and below 1", name,
                    (double)epsilon);
}

coh_status coh_family_check_tokens(const coh_model_size *size, int64_t tokens)
{
    if (tokens < 1 || tokens > size->positions)
        return coh_fail(COH_ERR_SHAPE,
                        "%" PRId64 " tokens do not fit the model's %" PRId64
                        " positions: choose 1..%" PRId64,
                        tokens, size->positions, size->positions);
    return COH_OK;
}
