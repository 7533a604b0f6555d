/* recorded.h - the files in fixtures/: what `transformers` wrote for tiny models of every family
 * (record_families.py), and what must be refused (record_verdicts.py). FIXTURES is their folder. */
#ifndef COH_TESTS_MODELS_RECORDED_H
#define COH_TESTS_MODELS_RECORDED_H

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "cohobate/models.h"

static const char *const recorded_files[] = { "families-4.46.json", "families-5.23.json" };
enum { RECORDED_FILES = 2 };

static inline json_t *recorded_load(const char *folder, const char *name)
{
    char path[PATH_MAX];
    json_error_t error;
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    json_t *root = json_load_file(path, 0, &error);
    if (!root)
        fail_msg("%s: %s", path, error.text);
    return root;
}

static inline const char *recorded_text(const json_t *of, const char *name)
{
    const char *text = json_string_value(json_object_get(of, name));
    assert_non_null(text);
    return text;
}

/* Returns the model of a config.json, which must be accepted. */
static inline coh_model recorded_model(const json_t *config)
{
    coh_model model;
    char *text = json_dumps(config, 0);
    assert_non_null(text);
    if (coh_model_from_config(text, &model) != COH_OK)
        fail_msg("%s: %s", text, coh_last_error());
    free(text);
    return model;
}

/* Calls `check` with every recorded case and its model in f32. */
static inline void recorded_each(void (*check)(const json_t *one, const coh_model *model))
{
    for (int f = 0; f < RECORDED_FILES; f++) {
        size_t i;
        json_t *one, *root = recorded_load(FIXTURES, recorded_files[f]);
        assert_true(json_array_size(json_object_get(root, "cases")) >= 19);
        json_array_foreach(json_object_get(root, "cases"), i, one)
        {
            coh_model model = recorded_model(json_object_get(one, "config"));
            check(one, &model);
        }
        json_decref(root);
    }
}

/* Compares all of a model, of any family: what a note must restore. */
static inline void assert_same_model(const coh_model *left, const coh_model *right)
{
    assert_string_equal(left->name, right->name);
    assert_int_equal(left->family, right->family);
    assert_int_equal(left->stored, right->stored);
    assert_string_equal(left->extras, right->extras);
    assert_string_equal(left->dtypes, right->dtypes);
    assert_string_equal(left->metadata, right->metadata);
    assert_memory_equal(&left->adapters, &right->adapters, sizeof(left->adapters));
    switch (left->family) {
    case COH_FAMILY_GPT2:
        assert_memory_equal(&left->gpt2, &right->gpt2, sizeof(left->gpt2));
        break;
    case COH_FAMILY_OPT:
        assert_memory_equal(&left->opt, &right->opt, sizeof(left->opt));
        break;
    case COH_FAMILY_LLAMA:
        assert_memory_equal(&left->llama, &right->llama, sizeof(left->llama));
        break;
    case COH_FAMILY_GEMMA:
        assert_memory_equal(&left->gemma, &right->gemma, sizeof(left->gemma));
        break;
    case COH_FAMILY_OWN:
        assert_memory_equal(&left->own, &right->own, sizeof(left->own));
        break;
    }
}

#endif
