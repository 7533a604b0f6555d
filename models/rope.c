/* Reads, checks and writes rotary embeddings. The one idea: every spelling becomes the attributes
 * of coh_kind_rope, so numbers that YaRN derives from other members are computed here. Next:
 * rope.h, cohobate/kinds.h for the formulas. */
#include "models/rope.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cohobate/kinds.h"

/* By coh_rope_scaling. */
static const char *const scaling_names[] = { "default", "linear", "llama3", "yarn" };

/* YaRN's, if config.json has none. */
#define BETA_FAST 32.0
#define BETA_SLOW 1.0

/* ---- checks ---- */

static coh_status check_bands(const coh_rope_attributes *rope)
{
    if (!(rope->low_frequency > 0) || !(rope->high_frequency > rope->low_frequency) ||
        rope->original_positions < 1)
        return coh_fail(COH_ERR_ARGUMENT,
                        "frequency factors %g and %g over %" PRId64
                        " positions: the first must be positive, the second above it",
                        (double)rope->low_frequency, (double)rope->high_frequency,
                        rope->original_positions);
    return COH_OK;
}

coh_status coh_rope_config_check(const coh_rope_attributes *rope, const char *theta_name,
                                 int64_t positions)
{
    if (!(rope->theta >= 1.0 && rope->theta <= COH_ROPE_THETA_MOST))
        return coh_fail(COH_ERR_ARGUMENT, "\"%s\" is %g, and must be from 1 to 2^100 (%g)",
                        theta_name, rope->theta, COH_ROPE_THETA_MOST);
    if (!isfinite(rope->factor) || !isfinite(rope->low_frequency) ||
        !isfinite(rope->high_frequency) || !isfinite(rope->magnitude))
        return coh_fail(COH_ERR_ARGUMENT,
                        "\"rope_scaling\" has a number that is not finite (factor %g, frequencies "
                        "%g and %g, magnitude %g): what a scaling does not use is 0",
                        (double)rope->factor, (double)rope->low_frequency,
                        (double)rope->high_frequency, (double)rope->magnitude);
    if (rope->scaling < COH_ROPE_UNSCALED || rope->scaling > COH_ROPE_YARN)
        return coh_fail(COH_ERR_ARGUMENT, "a scaling of turns %d is not known", (int)rope->scaling);
    if (rope->scaling == COH_ROPE_UNSCALED)
        return COH_OK;
    if (rope->scaling != COH_ROPE_LINEAR)
        COH_TRY(check_bands(rope));
    if (rope->scaling == COH_ROPE_YARN && (!(rope->theta > 1.0) || !(rope->magnitude > 0)))
        return coh_fail(COH_ERR_ARGUMENT,
                        "YaRN has \"rope_theta\" %g and \"attention_factor\" %g: the first must be "
                        "above 1, the second positive",
                        rope->theta, (double)rope->magnitude);
    if (!((double)rope->factor * 0x1p31 >= (double)positions))
        return coh_fail(COH_ERR_ARGUMENT,
                        "\"factor\" of the scaling of turns is %g, and must be at least %g for "
                        "%" PRId64 " positions",
                        (double)rope->factor, (double)positions * 0x1p-31, positions);
    return COH_OK;
}

/* ---- reading ---- */

/* Members of the RoPE object; those that a scaling does not use are ignored. */
static const char rope_members[] =
    "rope_type type rope_theta partial_rotary_factor factor low_freq_factor high_freq_factor "
    "original_max_position_embeddings attention_factor beta_fast beta_slow mscale mscale_all_dim "
    "truncate";

/* Members that other classes of transformers, or the code of published models, compute with. Any
 * other member is without effect in transformers. */
static const char refused_members[] =
    "short_factor long_factor short_mscale long_mscale attn_factor extrapolation_factor "
    "ext_factor mrope_section mrope_interleaved xdrope_section alpha beta ntk_alpha ntk_factor "
    "scaling_factor scale base theta rope_ratio rotary_dim rope_dim rotary_percent "
    "max_position_embeddings rope_local_base_freq llama_4_scaling_beta attn_temperature_tuning "
    "attn_scale floor_scale";

/* Finds the object that describes RoPE; NULL if there is none. */
static coh_status rope_object(const coh_rope_source *source, const json_t **out_object,
                              const char **out_name)
{
    static const char *const names[] = { "rope_scaling", "rope_parameters" };
    const json_t *const values[] = { source->scaling, source->parameters };
    *out_object = NULL;
    for (size_t i = 0; i < 2; i++) {
        const json_t *value = values[i];
        if (!value || json_is_null(value))
            continue;
        if (!json_is_object(value))
            return coh_config_refuse(names[i], value, "null or an object");
        if (*out_object && !json_equal((json_t *)*out_object, (json_t *)value))
            return coh_fail(COH_ERR_CORRUPT, "config.json: \"rope_scaling\" and "
                                             "\"rope_parameters\" both are there, and differ");
        *out_object = value;
        *out_name = names[i];
    }
    return COH_OK;
}

static coh_status check_members(coh_config_reader *reader, const json_t *object, const char *name)
{
    char whole[200];
    for (void *at = json_object_iter((json_t *)object); at;
         at = json_object_iter_next((json_t *)object, at)) {
        const char *member = json_object_iter_key(at);
        if (coh_config_is_word(member, rope_members))
            continue;
        if (coh_config_is_word(member, refused_members) ||
            json_is_object(json_object_iter_value(at))) /* parameters by type of layer */
            return coh_fail(COH_ERR_CORRUPT,
                            "config.json: \"%s\" has a member \"%.100s\", which is not computed",
                            name, member);
        snprintf(whole, sizeof(whole), "%s.%.150s", name, member);
        coh_config_unknown(reader, whole);
    }
    return COH_OK;
}

static coh_status read_theta(const json_t *root, const char *name, const json_t *object,
                             double *out_theta)
{
    const json_t *outside = json_object_get(root, name),
                 *inside = json_object_get(object, "rope_theta");
    if (outside && inside && json_number_value(outside) != json_number_value(inside))
        return coh_fail(COH_ERR_CORRUPT, "config.json: \"%s\" is there twice, as %g and as %g",
                        name, json_number_value(outside), json_number_value(inside));
    if (!outside && !inside)
        return COH_OK;
    return coh_config_positive(name, inside ? inside : outside, out_theta);
}

/* Checks that all channels are rotated; partial rotation is not supported. */
static coh_status check_whole(const json_t *object)
{
    const json_t *part = json_object_get(object, "partial_rotary_factor");
    if (!part || json_is_null(part) || (json_is_number(part) && json_number_value(part) == 1.0))
        return COH_OK;
    return coh_config_refuse("partial_rotary_factor", part, "1: nothing else is computed");
}

static coh_status read_scaling_name(const json_t *object, int scales, int32_t *out_scaling)
{
    const json_t *type = json_object_get(object, "rope_type"),
                 *old = json_object_get(object, "type");
    const json_t *value = type ? type : old;
    const char *name = value ? json_string_value(value) : scaling_names[COH_ROPE_UNSCALED];
    if (type && old && !json_equal(type, old))
        return coh_fail(COH_ERR_CORRUPT,
                        "config.json: \"rope_type\" and \"type\" both are there, and differ");
    for (int32_t i = COH_ROPE_UNSCALED; name && i <= (scales ? COH_ROPE_YARN : 0); i++)
        if (strcmp(name, scaling_names[i]) == 0) {
            *out_scaling = i;
            return COH_OK;
        }
    return coh_config_refuse("rope_type", value,
                             scales ? "default, linear, llama3 or yarn"
                                    : "default for this model type");
}

static coh_status read_factor(const json_t *object, const char *name, float *out_factor)
{
    double number;
    COH_TRY(coh_config_positive(name, json_object_get(object, name), &number));
    *out_factor = (float)number;
    return COH_OK;
}

/* The outer member takes precedence over the inner one; without either, the model's positions
 * apply. */
static coh_status read_original(const json_t *root, const json_t *object, int64_t positions,
                                coh_rope_attributes *rope)
{
    static const char name[] = "original_max_position_embeddings";
    const json_t *value = json_object_get(root, name);
    if (!value)
        value = json_object_get(object, name);
    rope->original_positions = positions;
    return value ? coh_config_count(name, value, INT32_MAX, &rope->original_positions) : COH_OK;
}

static coh_status read_llama3(const json_t *object, coh_rope_attributes *rope)
{
    COH_TRY(read_factor(object, "low_freq_factor", &rope->low_frequency));
    COH_TRY(read_factor(object, "high_freq_factor", &rope->high_frequency));
    if (!(rope->high_frequency > rope->low_frequency))
        return coh_config_refuse("high_freq_factor", json_object_get(object, "high_freq_factor"),
                                 "above low_freq_factor");
    return COH_OK;
}

/* Reads a number that null and 0 replace by a default, as `transformers` does. */
static coh_status read_maybe(const json_t *object, const char *name, double otherwise,
                             double *out_number)
{
    const json_t *value = json_object_get(object, name);
    *out_number = otherwise;
    if (!value || json_is_null(value) || (json_is_number(value) && json_number_value(value) == 0))
        return COH_OK;
    return coh_config_positive(name, value, out_number);
}

/* 1 + 0.1 ln(factor) weight (Peng et al. 2023, section 3.4); 1 without an extension. */
static double magnitude_of(double factor, double weight)
{
    return factor <= 1.0 ? 1.0 : 0.1 * weight * log(factor) + 1.0;
}

static coh_status read_yarn(const json_t *object, coh_rope_attributes *rope)
{
    const json_t *given = json_object_get(object, "attention_factor"),
                 *truncate = json_object_get(object, "truncate");
    double fast, slow, scale, all, number = magnitude_of((double)rope->factor, 1.0);
    if (truncate && !json_is_true(truncate))
        return coh_config_refuse("truncate", truncate, "true: nothing else is computed");
    COH_TRY(read_maybe(object, "beta_fast", BETA_FAST, &fast));
    COH_TRY(read_maybe(object, "beta_slow", BETA_SLOW, &slow));
    COH_TRY(read_maybe(object, "mscale", 0.0, &scale));
    COH_TRY(read_maybe(object, "mscale_all_dim", 0.0, &all));
    if (scale > 0 && all > 0)
        number =
            magnitude_of((double)rope->factor, scale) / magnitude_of((double)rope->factor, all);
    if (given && !json_is_null(given))
        COH_TRY(coh_config_positive("attention_factor", given, &number));
    rope->low_frequency = (float)slow;
    rope->high_frequency = (float)fast;
    rope->magnitude = (float)number;
    if (!(rope->high_frequency > rope->low_frequency))
        return coh_config_refuse("beta_fast", json_object_get(object, "beta_fast"),
                                 "above beta_slow");
    return COH_OK;
}

coh_status coh_rope_config_read(coh_config_reader *reader, const coh_rope_source *source,
                                int64_t positions, coh_rope_attributes *rope)
{
    const json_t *root = reader->root, *object;
    const char *name = NULL;
    COH_TRY(rope_object(source, &object, &name));
    COH_TRY(read_scaling_name(object, source->scales, &rope->scaling));
    COH_TRY(check_members(reader, object, name));
    COH_TRY(check_whole(root));
    COH_TRY(check_whole(object));
    COH_TRY(read_theta(root, source->theta_name, object, &rope->theta));
    if (rope->scaling == COH_ROPE_UNSCALED)
        return COH_OK;
    COH_TRY(read_factor(object, "factor", &rope->factor));
    if (rope->scaling == COH_ROPE_LINEAR)
        return COH_OK;
    COH_TRY(read_original(root, object, positions, rope));
    return rope->scaling == COH_ROPE_YARN ? read_yarn(object, rope) : read_llama3(object, rope);
}

/* ---- writing ---- */

/* Adds a number, unless it is the one that readers put in the place of a missing member. */
static void write_number(const char *name, float value, float otherwise, coh_text *text)
{
    if (value == otherwise)
        return;
    (void)coh_text_add(text, ", \"%s\": ", name);
    coh_config_text_add_float(text, value);
}

void coh_rope_config_write(const coh_rope_attributes *rope, const char *type_name, coh_text *text)
{
    (void)coh_text_add(text, ", \"rope_theta\": ");
    (void)coh_config_text_add_double(text, rope->theta);
    (void)coh_text_add(text, ", \"rope_scaling\": ");
    if (rope->scaling == COH_ROPE_UNSCALED) {
        (void)coh_text_add(text, "null");
        return;
    }
    (void)coh_text_add(text, "{\"%s\": \"%s\"", type_name, scaling_names[rope->scaling]);
    write_number("factor", rope->factor, 0, text);
    if (rope->scaling == COH_ROPE_YARN) {
        write_number("beta_slow", rope->low_frequency, (float)BETA_SLOW, text);
        write_number("beta_fast", rope->high_frequency, (float)BETA_FAST, text);
        write_number("attention_factor", rope->magnitude,
                     (float)magnitude_of((double)rope->factor, 1.0), text);
    } else if (rope->scaling == COH_ROPE_LLAMA3) {
        write_number("low_freq_factor", rope->low_frequency, 0, text);
        write_number("high_freq_factor", rope->high_frequency, 0, text);
    }
    if (rope->scaling != COH_ROPE_LINEAR)
        (void)coh_text_add(text, ", \"original_max_position_embeddings\": %" PRId64,
                           rope->original_positions);
    (void)coh_text_add(text, "}");
}
