/* Assigns fixed places in a tier to chunks: all marked ones in order, the same with gradients last,
 * or an even share of a stream. Pure functions of the layout. Read homes.h first; schedule.c calls
 * them. */
#include "planner/homes.h"

static int stream_of(const coh_layout *layout, uint32_t chunk)
{
    return layout->objects[layout->chunks[chunk].object].stream;
}

uint64_t coh_homes_assign(const coh_layout *layout, const uint8_t *is_marked, uint64_t offset,
                          uint64_t *homes)
{
    for (uint32_t chunk = 0; chunk < layout->chunk_count; chunk++) {
        homes[chunk] = is_marked[chunk] ? offset : COH_NO_HOME;
        offset += is_marked[chunk] ? layout->chunks[chunk].bytes : 0;
    }
    return offset;
}

uint64_t coh_homes_share(const coh_layout *layout, const uint8_t *is_marked, coh_homes *homes)
{
    uint64_t offset = 0;
    homes->list_count = 0;
    for (int is_grad = 0; is_grad < 2; is_grad++)
        for (uint32_t chunk = 0; chunk < layout->chunk_count; chunk++) {
            if ((stream_of(layout, chunk) == COH_STREAM_GRAD) != is_grad)
                continue;
            homes->offset[chunk] = is_marked[chunk] ? offset : COH_NO_HOME;
            offset += is_marked[chunk] ? layout->chunks[chunk].bytes : 0;
            if (is_marked[chunk])
                homes->list[homes->list_count++] = chunk;
        }
    return offset;
}

static int may_have_home(const coh_layout *layout, const uint8_t *is_used, int stream,
                         const coh_homes *homes, uint32_t chunk)
{
    return is_used[chunk] && homes->offset[chunk] == COH_NO_HOME &&
           stream_of(layout, chunk) == stream;
}

int coh_homes_spread(const coh_layout *layout, const uint8_t *is_used, int stream, uint64_t room,
                     coh_homes *homes)
{
    uint64_t used_bytes = 0;
    double due = 0;
    for (uint32_t chunk = 0; chunk < layout->chunk_count; chunk++)
        if (may_have_home(layout, is_used, stream, homes, chunk))
            used_bytes += layout->chunks[chunk].bytes;
    const uint64_t left = homes->end_bytes < room ? room - homes->end_bytes : 0;
    const double share = left < used_bytes ? (double)left / (double)used_bytes : 1;
    for (uint32_t i = 0; i < layout->chunk_count; i++) {
        const uint32_t chunk = stream == COH_STREAM_GRAD ? layout->chunk_count - 1 - i : i;
        const double bytes = (double)layout->chunks[chunk].bytes;
        if (!may_have_home(layout, is_used, stream, homes, chunk))
            continue;
        due += share * bytes;
        if (due < bytes)
            continue;
        due -= bytes;
        homes->offset[chunk] = homes->end_bytes;
        homes->end_bytes += layout->chunks[chunk].bytes;
        if (stream == COH_STREAM_GRAD)
            homes->list[homes->list_count++] = chunk;
    }
    return left >= used_bytes;
}
