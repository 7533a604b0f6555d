/* known_numbers.h - a small model whose every number is a function of its parameter's name and its
 * place, and adapters of it that are written to a folder. Functions that fail end the test. */
#ifndef COH_TESTS_MODELS_KNOWN_NUMBERS_H
#define COH_TESTS_MODELS_KNOWN_NUMBERS_H

#include "tests/models/recorded.h"

#include "base/rng.h"
#include "cohobate/adapters.h"
#include "tests/text/folder.h"

static inline coh_model made_model(const char *config, const coh_adapters *adapters)
{
    coh_model model;
    if (coh_model_from_config(config, &model) != COH_OK ||
        coh_model_adapters_set(&model, adapters) != COH_OK)
        fail_msg("%s", coh_last_error());
    return model;
}

#define GPT2                                                                                       \
    "{\"model_type\": \"gpt2\", \"vocab_size\": 37, \"n_positions\": 19, \"n_embd\": 12, "         \
    "\"n_layer\": 2, \"n_head\": 3, \"n_inner\": 21}"
#define LLAMA                                                                                      \
    "{\"model_type\": \"llama\", \"vocab_size\": 37, \"hidden_size\": 24, "                        \
    "\"intermediate_size\": 20, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "            \
    "\"num_key_value_heads\": 2, \"max_position_embeddings\": 19}"

/* Returns element `at` of parameter `name`. */
static inline float number_of(const char *name, uint64_t at)
{
    uint64_t seed = 5;
    for (const char *c = name; *c; c++)
        seed = seed * 31 + (unsigned char)*c;
    return (float)coh_rng_normal(seed, 0, at);
}

typedef struct source {
    const char *fails_at; /* NULL, or the parameter whose read fails */
    const char *odd_in;   /* NULL, or the parameter with value `odd` at element `odd_at` */
    uint64_t odd_at;
    float odd;
    int calls;
} source;

static inline coh_status numbers(void *context, const char *name, uint64_t begin, uint64_t count,
                                 float *values)
{
    source *s = context;
    s->calls++;
    if (s->fails_at && strcmp(s->fails_at, name) == 0)
        return coh_kind_fail(COH_ERR_IO, "%s cannot be read", name);
    for (uint64_t i = 0; i < count; i++)
        values[i] = s->odd_in && begin + i == s->odd_at && strcmp(s->odd_in, name) == 0
                        ? s->odd
                        : number_of(name, begin + i);
    return COH_OK;
}

static inline json_t *read_json(const char *path)
{
    json_error_t error;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        fail_msg("%s: %s", path, error.text);
    return root;
}

/* Checks that the member is an array of these names, up to a NULL, or null where there are none. */
static inline void assert_names(const json_t *config, const char *key, const char *const expected[])
{
    const json_t *found = json_object_get(config, key);
    size_t count = 0;
    for (; expected[count]; count++)
        assert_string_equal(json_string_value(json_array_get(found, count)), expected[count]);
    assert_int_equal(json_array_size(found), count);
    assert_int_equal(json_is_null(found), count == 0);
}

static inline void write_to(const char *path, const coh_model *model, coh_dtype dtype,
                            const char *base)
{
    source from = { 0 };
    const coh_adapters_write_options options = { .struct_bytes = sizeof(options),
                                                 .dtype = dtype,
                                                 .base = base };
    if (coh_adapters_write(model, &options, path, numbers, &from) != COH_OK)
        fail_msg("%s", coh_last_error());
}

#endif
