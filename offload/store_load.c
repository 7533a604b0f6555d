/* Submits chunks round and round, and retires them in order. Used by benchmarks and by the
 * measurement of a drive. Read store_load.h first. */
#include "offload/store_load.h"

static coh_status submit(coh_store_load *load)
{
    uint64_t number = load->submitted++;
    uint32_t chunk = (uint32_t)(number % load->chunk_count);
    const coh_store_request request = {
        .memory = load->memory + number % load->depth * load->chunk_bytes,
        .file_offset = load->file_begin + (uint64_t)chunk * load->chunk_bytes,
        .bytes = load->chunk_bytes,
        .id = { .chunk = load->chunk_begin + chunk },
        .number = number,
    };
    return load->ops->submit(load->store, load->port, &request);
}

static coh_status reap(coh_store_load *load)
{
    coh_store_completion completions[COH_STORE_LOAD_DEPTH_MOST];
    uint32_t count = 0;
    COH_TRY(load->ops->reap(load->store, load->port, completions, 1, load->depth, &count));
    for (uint32_t i = 0; i < count; i++) {
        if (completions[i].status != COH_OK)
            return completions[i].status;
        load->is_done[completions[i].number % load->depth] = 1;
    }
    while (load->retired < load->submitted && load->is_done[load->retired % load->depth])
        load->is_done[load->retired++ % load->depth] = 0;
    return COH_OK;
}

coh_status coh_store_load_turn(coh_store_load *load)
{
    while (load->submitted - load->retired < load->depth)
        COH_TRY(submit(load));
    return reap(load);
}

coh_status coh_store_load_rest(coh_store_load *load)
{
    while (load->retired < load->submitted)
        COH_TRY(reap(load));
    return COH_OK;
}
