/* Applies a tokenizer's normalization to the parts of a segment. The one idea: NFC keeps a tail
 * that more text may change; the later steps work character by character. Next: nfc.c, and
 * pipeline.c for the caller. */
#include "text/normalize.h"

void coh_normalizer_fini(coh_normalizer *normalizer)
{
    for (size_t i = 0; i < normalizer->step_count && !normalizer->is_fork; i++) {
        coh_free(normalizer->steps[i].from.bytes);
        coh_free(normalizer->steps[i].to.bytes);
    }
    if (!normalizer->is_fork)
        coh_free(normalizer->steps);
    coh_free(normalizer->tail.bytes);
    coh_free(normalizer->scratch[0].bytes);
    coh_free(normalizer->scratch[1].bytes);
    coh_nfc_destroy(normalizer->nfc);
    *normalizer = (coh_normalizer){ 0 };
}

coh_status coh_normalizer_fork(const coh_normalizer *normalizer, coh_normalizer *out_fork)
{
    *out_fork = (coh_normalizer){ .steps = normalizer->steps,
                                  .step_count = normalizer->step_count,
                                  .is_fork = 1 };
    return normalizer->nfc ? coh_nfc_copy(normalizer->nfc, &out_fork->nfc) : COH_OK;
}

coh_status coh_normalizer_add_step(coh_normalizer *normalizer, coh_slice from, coh_slice to)
{
    COH_TRY(COH_GROW(&normalizer->steps, &normalizer->step_capacity, normalizer->step_count + 1));
    coh_normalize_step *step = &normalizer->steps[normalizer->step_count++];
    COH_TRY(coh_byte_list_add(&step->from, from.bytes, from.count));
    return coh_byte_list_add(&step->to, to.bytes, to.count);
}

void coh_normalizer_restart(coh_normalizer *normalizer)
{
    normalizer->tail.count = 0;
    normalizer->is_begun = 0;
}

static coh_status replace(const coh_normalize_step *step, const uint8_t *text, size_t byte_count,
                          coh_byte_list *out)
{
    const uint8_t *from = step->from.bytes;
    size_t from_bytes = step->from.count, at = 0;
    while (at < byte_count) {
        const uint8_t *found = memmem(text + at, byte_count - at, from, from_bytes);
        size_t end = found ? (size_t)(found - text) : byte_count;
        COH_TRY(coh_byte_list_add(out, text + at, end - at));
        if (found)
            COH_TRY(coh_byte_list_add(out, step->to.bytes, step->to.count));
        at = found ? end + from_bytes : end;
    }
    return COH_OK;
}

static coh_status run_steps(coh_normalizer *normalizer, const uint8_t *text, size_t byte_count,
                            coh_byte_list *out)
{
    if (byte_count == 0)
        return COH_OK;
    for (size_t i = 0; i < normalizer->step_count; i++) {
        const coh_normalize_step *step = &normalizer->steps[i];
        int is_last = i + 1 == normalizer->step_count;
        coh_byte_list *to = is_last ? out : &normalizer->scratch[i & 1];
        if (!is_last)
            to->count = 0;
        if (step->from.count) {
            COH_TRY(replace(step, text, byte_count, to));
        } else {
            if (!normalizer->is_begun)
                COH_TRY(coh_byte_list_add(to, step->to.bytes, step->to.count));
            COH_TRY(coh_byte_list_add(to, text, byte_count));
        }
        text = to->bytes;
        byte_count = to->count;
    }
    normalizer->is_begun = 1;
    return normalizer->step_count ? COH_OK : coh_byte_list_add(out, text, byte_count);
}

coh_status coh_normalizer_append(coh_normalizer *normalizer, const uint8_t *text, size_t byte_count,
                                 int is_open, coh_byte_list *out)
{
    if (!normalizer->nfc)
        return run_steps(normalizer, text, byte_count, out);
    coh_byte_list *tail = &normalizer->tail, *composed = &normalizer->scratch[1];
    size_t consumed;
    if (tail->count) {
        COH_TRY(coh_byte_list_add(tail, text, byte_count));
        text = tail->bytes;
        byte_count = tail->count;
    }
    if (normalizer->step_count == 0)
        composed = out;
    else
        composed->count = 0;
    COH_TRY(coh_nfc_append(normalizer->nfc, text, byte_count, is_open, composed, &consumed));
    if (tail->count)
        coh_byte_list_drop(tail, consumed);
    else
        COH_TRY(coh_byte_list_add(tail, text + consumed, byte_count - consumed));
    if (normalizer->step_count == 0)
        return COH_OK;
    return run_steps(normalizer, composed->bytes, composed->count, out);
}

coh_status coh_normalizer_apply(coh_normalizer *normalizer, coh_slice text, coh_byte_list *out)
{
    coh_status status =
        coh_normalizer_append(normalizer, (const uint8_t *)text.bytes, text.count, 0, out);
    coh_normalizer_restart(normalizer);
    return status;
}
