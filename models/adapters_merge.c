/* Computes W + (alpha / rank) B A for any range of W. The one idea: the factors of one operator at
 * a time are in memory, and B A is computed row by row, so no full matrix of the product is held.
 * Next: adapters.c lists the adapters, export.c is the caller. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/check.h"
#include "cohobate/adapters.h"
#include "models/adapters.h"

struct coh_merge {
    const coh_model *model;
    coh_number_source source;
    void *context;
    coh_model_adapter *adapters;
    size_t adapter_count;
    const coh_model_adapter *loaded; /* whose factors are in `down` and `up`; NULL: none */
    float *down;                     /* A [rank, inputs] */
    float *up;                       /* B [outputs, rank] */
    float *row;                      /* of B A */
};

static coh_status allocate(coh_merge *merge)
{
    size_t inputs = 0, outputs = 0, down, up;
    const size_t rank = (size_t)merge->model->adapters.rank;
    COH_TRY(coh_adapters_list(merge->model, &merge->adapters, &merge->adapter_count));
    for (size_t i = 0; i < merge->adapter_count; i++) {
        const coh_model_adapter *adapter = &merge->adapters[i];
        inputs = (size_t)adapter->inputs > inputs ? (size_t)adapter->inputs : inputs;
        outputs = (size_t)adapter->outputs > outputs ? (size_t)adapter->outputs : outputs;
    }
    COH_TRY(coh_bytes_mul(rank, inputs, &down));
    COH_TRY(coh_bytes_mul(rank, outputs, &up));
    COH_TRY(COH_ALLOC(down, &merge->down));
    COH_TRY(COH_ALLOC(up, &merge->up));
    return COH_ALLOC(inputs, &merge->row);
}

coh_status coh_merge_open(const coh_model *model, coh_number_source source, void *context,
                          coh_merge **out_merge)
{
    coh_merge *merge;
    if (!out_merge)
        return coh_fail(COH_ERR_ARGUMENT, "merging adapters needs a place for itself");
    *out_merge = NULL;
    if (!model || !source || coh_model_adapter_count(model) == 0)
        return coh_fail(COH_ERR_ARGUMENT, "merging needs a model with adapters and their numbers: "
                                          "this one has none to merge");
    COH_TRY(COH_ALLOC(1, &merge));
    *merge = (coh_merge){ .model = model, .source = source, .context = context };
    const coh_status status = allocate(merge);
    if (status != COH_OK)
        coh_merge_close(merge);
    else
        *out_merge = merge;
    return status;
}

void coh_merge_close(coh_merge *merge)
{
    if (!merge)
        return;
    coh_free(merge->row);
    coh_free(merge->up);
    coh_free(merge->down);
    coh_free(merge->adapters);
    coh_free(merge);
}

/* The adapter of the operator whose weight is `name`; NULL if it has none. */
static const coh_model_adapter *adapter_of(const coh_merge *merge, const char *name)
{
    const char *dot = strrchr(name, '.');
    if (!dot || strcmp(dot, ".weight") != 0)
        return NULL;
    const size_t length = (size_t)(dot - name);
    for (size_t i = 0; i < merge->adapter_count; i++) {
        const char *op = merge->adapters[i].name;
        if (strlen(op) == length && strncmp(op, name, length) == 0)
            return &merge->adapters[i];
    }
    return NULL;
}

static coh_status load(coh_merge *merge, const coh_model_adapter *adapter)
{
    const uint64_t rank = (uint64_t)merge->model->adapters.rank;
    char name[sizeof(adapter->name) + 24];
    if (merge->loaded == adapter)
        return COH_OK;
    merge->loaded = NULL;
    coh_adapter_parameter_name(adapter->name, COH_ADAPTER_A, name, sizeof(name));
    COH_TRY(merge->source(merge->context, name, 0, rank * (uint64_t)adapter->inputs, merge->down));
    coh_adapter_parameter_name(adapter->name, COH_ADAPTER_B, name, sizeof(name));
    COH_TRY(merge->source(merge->context, name, 0, rank * (uint64_t)adapter->outputs, merge->up));
    merge->loaded = adapter;
    return COH_OK;
}

/* Adds columns [begin, end) of row `output` of the product to `values`. */
static void add_row(coh_merge *merge, int64_t inputs, int64_t output, int64_t begin, int64_t end,
                    float *values)
{
    const coh_adapters *adapters = &merge->model->adapters;
    const int64_t rank = adapters->rank;
    const float factor = adapters->alpha / (float)rank;
    float *sum = merge->row;
    memset(sum, 0, (size_t)(end - begin) * sizeof(*sum));
    for (int64_t r = 0; r < rank; r++) {
        const float *down = merge->down + r * inputs + begin;
        const float up = merge->up[output * rank + r];
        for (int64_t i = 0; i < end - begin; i++)
            sum[i] += up * down[i];
    }
    for (int64_t i = 0; i < end - begin; i++)
        values[i] += factor * sum[i];
}

coh_status coh_merge_numbers(void *context, const char *name, uint64_t element_begin,
                             uint64_t count, float *values)
{
    COH_NEED(context);
    COH_NEED(name);
    COH_NEED(values);
    coh_merge *merge = context;
    if (count > UINT64_MAX / sizeof(*values) || element_begin > UINT64_MAX - count)
        return coh_fail(COH_ERR_ARGUMENT, "%s has no elements %" PRIu64 " to %" PRIu64, name,
                        element_begin, element_begin + count);
    COH_TRY(merge->source(merge->context, name, element_begin, count, values));
    const coh_model_adapter *adapter = adapter_of(merge, name);
    if (!adapter)
        return COH_OK;
    COH_TRY(load(merge, adapter));
    const uint64_t inputs = (uint64_t)adapter->inputs;
    for (uint64_t done = 0; done < count;) {
        const uint64_t at = element_begin + done, begin = at % inputs;
        const uint64_t left = count - done, row_left = inputs - begin;
        const uint64_t now = left < row_left ? left : row_left;
        if (at / inputs >= (uint64_t)adapter->outputs)
            return coh_fail(COH_ERR_ARGUMENT, "%s has no element %" PRIu64, name, at);
        add_row(merge, (int64_t)inputs, (int64_t)(at / inputs), (int64_t)begin,
                (int64_t)(begin + now), values + done);
        done += now;
    }
    return COH_OK;
}
