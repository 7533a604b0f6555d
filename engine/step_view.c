/* The host's access to a device's memory: cells, losses, outputs and poison at quiet points; chunks
 * and results of instructions in between.
 *
 *   host_addressable    the arena itself
 *   else                get -> a buffer of the host -> put
 *
 * Nothing here is on the hot path: a step's own values go through memory shared with the device
 * (FEED, CLIP). */
#include <string.h>

#include "base/alloc.h"
#include "engine/step_state.h"
#include "kernels/kernels.h"

void *coh_step_pinned(coh_step *step, int32_t object)
{
    if (object < 0 || !step->layout->objects[object].pinned)
        return NULL;
    return (char *)step->arenas[COH_TIER_DEVICE] + step->layout->objects[object].pinned_offset;
}

/* ---- at quiet points ---- */

coh_status coh_step_get_cells(coh_step *step, coh_cells *out_cells)
{
    return step->device_ops->get(step->device, out_cells, coh_step_cells(step), sizeof(*out_cells));
}

coh_status coh_step_put_cells(coh_step *step, const coh_cells *cells)
{
    return step->device_ops->put(step->device, coh_step_cells(step), cells, sizeof(*cells));
}

coh_status coh_step_look(coh_step *step, int32_t object, const void **out_data)
{
    const void *data = coh_step_pinned(step, object);
    *out_data = step->look == NULL ? data : step->look;
    if (step->look == NULL || data == NULL)
        return COH_OK;
    return step->device_ops->get(step->device, step->look, data,
                                 (size_t)step->layout->objects[object].bytes);
}

coh_status coh_step_clear_pinned(coh_step *step)
{
    return coh_step_fill(step, COH_TIER_DEVICE, 0, 0, step->layout->pinned_bytes);
}

coh_status coh_step_first_loss(coh_step *step, double *out_loss)
{
    const void *losses = coh_step_pinned(step, step->layout->losses);
    float loss = 0;
    *out_loss = 0;
    if (losses == NULL)
        return COH_OK;
    COH_TRY(step->device_ops->get(step->device, &loss, losses, sizeof(loss)));
    *out_loss = loss;
    return COH_OK;
}

coh_status coh_step_fill(coh_step *step, coh_tier tier, uint64_t offset, int byte, uint64_t bytes)
{
    if (bytes == 0)
        return COH_OK;
    char *to = (char *)step->arenas[tier] + offset;
    if (tier == COH_TIER_DEVICE)
        return step->device_ops->fill(step->device, to, byte, (size_t)bytes);
    memset(to, byte, (size_t)bytes);
    return COH_OK;
}

/* ---- within an instruction ---- */

void coh_step_wait_for_device(coh_step *step)
{
    if (!step->host_addressable)
        step->device_ops->finish(step->queues[COH_LANE_COMPUTE]);
}

static int is_staged(const coh_step *step, coh_tier tier)
{
    return tier == COH_TIER_DEVICE && !step->host_addressable;
}

coh_status coh_step_bring(coh_step *step, coh_stage stage, coh_tier tier, void *data,
                          uint64_t bytes, void **out_data)
{
    *out_data = is_staged(step, tier) ? step->stages[stage] : data;
    if (*out_data == data)
        return COH_OK;
    return step->device_ops->get(step->device, *out_data, data, (size_t)bytes);
}

void *coh_step_bring_zeros(coh_step *step, coh_stage stage, coh_tier tier, void *data,
                           uint64_t bytes)
{
    return is_staged(step, tier) ? memset(step->stages[stage], 0, (size_t)bytes) : data;
}

coh_status coh_step_take_back(coh_step *step, coh_stage stage, coh_tier tier, void *data,
                              uint64_t bytes)
{
    if (!is_staged(step, tier))
        return COH_OK;
    return step->device_ops->put(step->device, data, step->stages[stage], (size_t)bytes);
}

coh_status coh_step_all_finite(coh_step *step, const coh_view *view, int *out_finite)
{
    const uint64_t element_bytes = coh_dtype_bytes(view->shape.dtype);
    const uint64_t count = (uint64_t)coh_shape_elements(&view->shape);
    const uint64_t most =
        is_staged(step, COH_TIER_DEVICE) ? COH_STAGE_BYTES / element_bytes : count;
    *out_finite = 1;
    for (uint64_t begin = 0; begin < count && *out_finite; begin += most) {
        const uint64_t left = count - begin, some = left < most ? left : most;
        void *values;
        COH_TRY(coh_step_bring(step, COH_STAGE_VALUES, COH_TIER_DEVICE,
                               (char *)view->data + begin * element_bytes, some * element_bytes,
                               &values));
        *out_finite = coh_kernel_all_finite(view->shape.dtype, values, (int64_t)some);
    }
    return COH_OK;
}

/* ---- buffers ---- */

coh_stage coh_stage_of(coh_stream stream)
{
    return stream == COH_STREAM_STATE      ? COH_STAGE_STATES
           : stream == COH_STREAM_GATHERED ? COH_STAGE_GATHERED
                                           : COH_STAGE_VALUES;
}

/* Returns the bytes of the largest chunk that an instruction copies through `stage`. Only chunks of
 * parameters are copied (coh_run_visit); a workspace or an activation may be much larger. */
static uint64_t stage_bytes(const coh_layout *layout, coh_stage stage)
{
    uint64_t bytes = stage == COH_STAGE_GATHERED ? 0 : COH_STAGE_BYTES;
    for (uint32_t i = 0; i < layout->chunk_count; i++) {
        const uint8_t stream = layout->objects[layout->chunks[i].object].stream;
        const int is_copied = coh_stream_is_of_group(stream) || stream == COH_STREAM_GATHERED;
        if (is_copied && coh_stage_of((coh_stream)stream) == stage &&
            layout->chunks[i].bytes > bytes)
            bytes = layout->chunks[i].bytes;
    }
    return bytes;
}

static uint64_t look_bytes(const coh_layout *layout)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < layout->object_count; i++)
        if (layout->objects[i].pinned && layout->objects[i].stream == COH_STREAM_OUTPUT &&
            layout->objects[i].bytes > bytes)
            bytes = layout->objects[i].bytes;
    return bytes;
}

coh_status coh_step_create_views(coh_step *step)
{
    coh_device_facts facts;
    step->device_ops->facts(step->device, &facts);
    step->host_addressable = facts.host_addressable;
    if (step->host_addressable)
        return COH_OK;
    for (int stage = 0; stage < COH_STAGE_COUNT; stage++) {
        const uint64_t bytes = stage_bytes(step->layout, (coh_stage)stage);
        if (bytes > 0)
            COH_TRY(step->device_ops->share(step->device, (size_t)bytes, &step->stages[stage]));
    }
    return coh_alloc(1, (size_t)look_bytes(step->layout), &step->look);
}

void coh_step_destroy_views(coh_step *step)
{
    for (int stage = 0; step->device != NULL && stage < COH_STAGE_COUNT; stage++)
        step->device_ops->unshare(step->device, step->stages[stage]);
    coh_free(step->look);
}
