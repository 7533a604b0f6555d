/* Functions of cohobate/models.h for a model of any family. The one idea: each looks up the
 * family's table and calls it. Next: family.h. */
#include "models/family.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

coh_model_size coh_family_size(const coh_family_table *family, const void *config)
{
    const coh_gpt2_config *c = config; /* or another with the same beginning */
    coh_model_size size = { .layers = c->layers,
                            .heads = c->heads,
                            .channels = c->channels,
                            .vocabulary = c->vocabulary,
                            .positions =
                                family->positions ? family->positions(config) : c->positions };
    memcpy(&size.dtype, (const char *)config + family->dtype_offset, sizeof(size.dtype));
    return size;
}

coh_model_size coh_model_size_get(const coh_model *model)
{
    const coh_family_table *family = model ? coh_family_of(model) : NULL;
    return family ? coh_family_size(family, coh_family_config(model)) : (coh_model_size){ 0 };
}

void coh_model_dtype_set(coh_model *model, coh_dtype dtype)
{
    const coh_family_table *family = model ? coh_family_of(model) : NULL;
    if (family)
        memcpy((char *)&model->gpt2 + family->dtype_offset, &dtype, sizeof(dtype));
}

const char *coh_model_type_name(const coh_model *model)
{
    const coh_family_table *family = model ? coh_family_of(model) : NULL;
    if (!family)
        return "";
    const int type = family->type_of ? family->type_of(coh_family_config(model)) : 0;
    return type >= 0 && type < family->type_count ? family->types[type].name : "";
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

static coh_status check_head_width(const char *name, int64_t width)
{
    if (width <= COH_HEAD_WIDTH_MOST)
        return COH_OK;
    return coh_fail(COH_ERR_SHAPE,
                    "%s is %" PRId64
                    " channels a head, and heads of at most %d are computed: choose more heads, or "
                    "narrower ones",
                    name, width, COH_HEAD_WIDTH_MOST);
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
    return check_head_width(width_name, size->channels / size->heads);
}

coh_status coh_family_check_grouped_heads(int64_t heads, int64_t kv_heads, int64_t width)
{
    static const char width_name[] =
        "\"head_dim\" (\"hidden_size\" / \"num_attention_heads\" where it is not there)";
    int64_t channels;
    if (kv_heads < 1 || heads % kv_heads != 0)
        return coh_fail(COH_ERR_SHAPE,
                        "\"num_key_value_heads\" is %" PRId64
                        ", and must be a divisor of \"num_attention_heads\" (%" PRId64 ")",
                        kv_heads, heads);
    if (width < 2 || width % 2 != 0)
        return coh_fail(COH_ERR_SHAPE, "%s is %" PRId64 ", and must be even", width_name, width);
    COH_TRY(check_head_width(width_name, width));
    if (__builtin_mul_overflow(heads, width, &channels) || channels > INT32_MAX)
        return coh_fail(COH_ERR_SHAPE, "%" PRId64 " heads of %" PRId64 " channels exceed %d", heads,
                        width, INT32_MAX);
    return COH_OK;
}

coh_status coh_family_check_init(int64_t vocabulary, int64_t padding, float init_std)
{
    if (padding < -1 || padding >= vocabulary)
        return coh_fail(COH_ERR_ARGUMENT,
                        "padding %" PRId64 " is no id of a vocabulary of %" PRId64 " (-1: none)",
                        padding, vocabulary);
    if (!(init_std > 0) || !isfinite(init_std))
        return coh_fail(COH_ERR_ARGUMENT, "init_std is %g, must be positive and finite",
                        (double)init_std);
    return COH_OK;
}

coh_status coh_family_check_epsilon(const char *name, float epsilon)
{
    if (epsilon > 0.0f && epsilon < 1.0f)
        return COH_OK;
    return coh_fail(COH_ERR_ARGUMENT, "\"%s\" is %g, and must be above 0 and below 1", name,
                    (double)epsilon);
}
