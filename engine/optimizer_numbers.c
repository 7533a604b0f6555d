/* Resolves the hyperparameters of an engine's options against the tables of the plan's optimizers.
 * Next: optimizer_numbers.h, cohobate/optimizer.h. */
#include "engine/optimizer_numbers.h"

#include <math.h>
#include <string.h>

#include "base/check.h"

void coh_optimizer_numbers_default(const coh_optimizer *optimizer,
                                   coh_optimizer_numbers *out_numbers)
{
    *out_numbers = (coh_optimizer_numbers){ 0 };
    for (int32_t i = 0; i < optimizer->hyperparameter_count; i++)
        out_numbers->values[i] = optimizer->hyperparameters[i].initial;
}

static coh_status set_value(const coh_optimizer *optimizer, const coh_hyperparameter_value *value,
                            coh_optimizer_numbers *numbers, int *is_used)
{
    for (int32_t i = 0; i < optimizer->hyperparameter_count; i++) {
        const coh_hyperparameter *row = &optimizer->hyperparameters[i];
        if (strcmp(row->name, value->name) != 0)
            continue;
        if (!(value->value >= row->least && value->value <= row->most))
            return coh_fail(COH_ERR_ARGUMENT, "%s of optimizer %s is %.7g: give %.7g to %.7g",
                            row->name, optimizer->name, (double)value->value, (double)row->least,
                            (double)row->most);
        numbers->values[i] = value->value;
        *is_used = 1;
    }
    return COH_OK;
}

static coh_status apply(const coh_layout *layout, const coh_hyperparameter_value *value,
                        coh_optimizer_numbers *numbers)
{
    int is_used = 0;
    if (value->name == NULL)
        return coh_fail(COH_ERR_ARGUMENT, "a hyperparameter's name is NULL");
    for (int32_t i = 0; i < layout->optimizer_count; i++)
        if (value->optimizer == NULL || strcmp(value->optimizer, layout->optimizers[i]->name) == 0)
            COH_TRY(set_value(layout->optimizers[i], value, &numbers[i], &is_used));
    if (is_used || layout->optimizer_count == 0) /* a plan that does not train takes any */
        return COH_OK;
    if (value->optimizer != NULL)
        return coh_fail(COH_ERR_ARGUMENT, "this plan has no optimizer %s with a number %s",
                        value->optimizer, value->name);
    return coh_fail(COH_ERR_ARGUMENT, "no optimizer of this plan has a number %s", value->name);
}

coh_status coh_optimizer_numbers_make(const coh_layout *layout, const coh_engine_options *options,
                                      coh_optimizer_numbers out_numbers[COH_PLAN_OPTIMIZERS],
                                      coh_update_scalars *out_scalars)
{
    *out_scalars = (coh_update_scalars){ 0 };
    for (int32_t i = 0; i < layout->optimizer_count; i++)
        coh_optimizer_numbers_default(layout->optimizers[i], &out_numbers[i]);
    if (options->hyperparameter_count > 0 && options->hyperparameters == NULL)
        return coh_fail(COH_ERR_ARGUMENT, "%u hyperparameters at NULL: give their array",
                        options->hyperparameter_count);
    for (uint32_t i = 0; i < options->hyperparameter_count; i++)
        COH_TRY(apply(layout, &options->hyperparameters[i], out_numbers));
    for (int32_t i = 0; i < layout->optimizer_count; i++) {
        const coh_optimizer *optimizer = layout->optimizers[i];
        out_numbers[i].scalar_begin = out_scalars->count;
        for (int32_t k = 0; k < optimizer->scalar_count; k++)
            out_scalars->base[out_scalars->count++] = out_numbers[i].values[optimizer->scalars[k]];
    }
    return COH_OK;
}
