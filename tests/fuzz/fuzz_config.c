/* libFuzzer target: config.json. An accepted file is written, as a file and as a note, and read
 * again: the model must be the same, and its tensors must be found by their names. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cohobate/models.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Aborts on a violated guarantee. */
static void check(int holds)
{
    if (!holds)
        abort();
}

static void compare(const coh_model *left, const coh_model *right)
{
    const coh_model_size a = coh_model_size_get(left), b = coh_model_size_get(right);
    check(left->family == right->family && left->stored == right->stored);
    check(a.layers == b.layers && a.heads == b.heads && a.channels == b.channels);
    check(a.vocabulary == b.vocabulary && a.positions == b.positions && a.dtype == b.dtype);
    check(coh_model_tensor_count(left) == coh_model_tensor_count(right));
    check(strcmp(coh_model_type_name(left), coh_model_type_name(right)) == 0);
}

static void file_check(const coh_model *model)
{
    coh_model back;
    char *text, *again;
    check(coh_model_to_config(model, model->stored, &text) == COH_OK);
    check(coh_model_from_config(text, &back) == COH_OK);
    compare(model, &back);
    check(coh_model_to_config(&back, back.stored, &again) == COH_OK);
    check(strcmp(text, again) == 0);
    coh_model_text_free(text);
    coh_model_text_free(again);
}

static void note_check(const coh_model *model)
{
    coh_model back;
    char json[COH_MODEL_JSON_BYTES];
    check(coh_model_to_json(model, json, sizeof(json)) == COH_OK);
    check(coh_model_from_json(json, &back) == COH_OK);
    compare(model, &back);
    check(strcmp(model->extras, back.extras) == 0);
}

static void tensors_check(const coh_model *model)
{
    const int64_t count = coh_model_tensor_count(model);
    check(count > 0);
    for (int64_t i = 0; i < count; i += count / 64 + 1) {
        coh_model_tensor tensor;
        int64_t index;
        check(coh_model_tensor_at(model, i, &tensor) == COH_OK);
        check(coh_model_name_find(model, tensor.published, &index) == COH_MODEL_NAME_PARAMETER);
        check(index == i);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text;
    coh_model model;
    if (coh_alloc(size + 1, 1, (void **)&text) != COH_OK)
        abort();
    if (size)
        memcpy(text, data, size);
    const coh_status status = coh_model_from_config(text, &model);
    coh_free(text);
    check(status == COH_OK || (status == COH_ERR_CORRUPT && coh_last_error()[0] != '\0'));
    if (status != COH_OK)
        return 0;
    file_check(&model);
    note_check(&model);
    tensors_check(&model);
    return 0;
}
