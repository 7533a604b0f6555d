/* Finds out whether bf16 would round frozen parameters. The one idea: dtypes in a folder answer it
 * without reading numbers; a checkpoint, which holds f32, is read until the first such number.
 * Next: job.c, the caller. */
#include "cli/frozen.h"

#include <string.h>

/* Has the tensor a number whose lower 16 bits are not 0? */
static coh_status find_longer(cli_weights *weights, const coh_model_tensor *tensor, int *out_found)
{
    enum { PIECE = 16384 };
    float values[PIECE];
    const uint64_t elements =
        (uint64_t)tensor->dim[0] * (uint64_t)(tensor->rank > 1 ? tensor->dim[1] : 1);
    for (uint64_t begin = 0; begin < elements && !*out_found; begin += PIECE) {
        const uint64_t count = elements - begin < PIECE ? elements - begin : PIECE;
        CLI_TRY(cli_weights_numbers(weights, tensor->name, begin, count, values));
        for (uint64_t i = 0; i < count; i++) {
            uint32_t bits;
            memcpy(&bits, &values[i], sizeof(bits));
            *out_found |= (bits & 0xffff) != 0;
        }
    }
    return COH_OK;
}

static coh_status look_at_stored(const coh_model *model, const cli_weights *weights, int64_t index,
                                 int *out_is_rounded)
{
    coh_folder_tensor found = { .dtype = coh_model_tensor_stored(model, index, model->stored) };
    if (weights->folder)
        CLI_TRY(coh_folder_tensor_at(weights->folder, index, &found));
    *out_is_rounded = found.dtype != COH_DTYPE_BF16;
    return COH_OK;
}

coh_status cli_frozen_is_rounded(const coh_model *model, cli_weights *weights, coh_dtype trained,
                                 const coh_adapters *before, int *out_is_rounded)
{
    coh_model was = *model;
    coh_model_tensor tensor;
    was.adapters = *before;
    *out_is_rounded = 0;
    if (!model->folder[0] && !weights->checkpoint)
        return COH_OK; /* initialised by this run, in bf16 */
    for (int64_t i = 0; i < coh_model_tensor_count(model) && !*out_is_rounded; i++) {
        if (!coh_model_is_frozen(model, i))
            continue;
        CLI_TRY(coh_model_tensor_at(model, i, &tensor));
        if (!weights->checkpoint)
            CLI_TRY(look_at_stored(model, weights, i, out_is_rounded));
        else if (trained != COH_DTYPE_BF16 || !coh_model_is_frozen(&was, i))
            CLI_TRY(find_longer(weights, &tensor, out_is_rounded));
    }
    return COH_OK;
}
