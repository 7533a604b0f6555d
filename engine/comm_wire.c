/* Lists what an exchange packs and unpacks, and does it. The idea: the line of a packed exchange is
 * that of the same exchange with smaller parts. Read comm_wire.h first. */
#include "engine/comm_wire.h"

#include "base/alloc.h"
#include "kernels/wire.h"

static int32_t member_count(const coh_exchange *exchange)
{
    return coh_mesh_group_size(exchange->mesh, exchange->axes);
}

static int32_t own_index(const coh_exchange *exchange)
{
    return coh_mesh_group_index(exchange->mesh, exchange->axes, exchange->rank);
}

static int64_t count_of(const coh_exchange *exchange, const coh_comm_call *comm, int32_t index)
{
    return (int64_t)(coh_exchange_part_bytes(exchange, index) / coh_dtype_bytes(comm->dtype));
}

/* An exchange of the packed parts. */
static coh_exchange packed_of(const coh_exchange *exchange, const coh_comm_call *comm)
{
    coh_exchange packed = *exchange;
    packed.part_bytes = (size_t)coh_sent_bytes(comm->wire, comm->dtype, exchange->part_bytes);
    packed.window_bytes = 0;
    for (int32_t i = 0; i < member_count(exchange); i++)
        packed.window_bytes +=
            (size_t)coh_sent_bytes(comm->wire, comm->dtype, coh_exchange_part_bytes(exchange, i));
    return packed;
}

static coh_status begin(coh_comm_line *line, const coh_exchange *exchange,
                        const coh_comm_call *comm)
{
    line->wire = comm->wire;
    line->dtype = comm->dtype;
    COH_TRY(COH_ALLOC(member_count(exchange), &line->packed));
    return COH_ALLOC(member_count(exchange), &line->unpacked);
}

static void add(coh_wire_piece *pieces, int32_t *count, const void *elements, const void *on_wire,
                int64_t elements_count)
{
    if (elements_count > 0)
        pieces[(*count)++] = (coh_wire_piece){ (char *)elements, (char *)on_wire, elements_count };
}

coh_status coh_comm_wire_reduce(coh_comm_line *line, coh_link_plan *plan,
                                const coh_exchange *exchange, const coh_comm_call *comm,
                                char *contribution, char *wire)
{
    const coh_wire_room room = coh_wire_room_of(exchange->mesh, comm, 1);
    const coh_exchange packed = packed_of(exchange, comm);
    const int32_t own = own_index(exchange);
    char *const sent = wire + room.sent_at, *const arrived = wire + room.arrived_at;
    const void **slices = NULL; /* as they arrive */
    COH_TRY(begin(line, exchange, comm));
    COH_TRY(COH_ALLOC(member_count(exchange), &slices));
    coh_exchange_slices(&packed, sent, arrived, slices);
    for (int32_t i = 0; i < member_count(exchange); i++) {
        add(line->packed, &line->packed_count, contribution + (size_t)i * exchange->part_bytes,
            sent + (size_t)i * packed.part_bytes, count_of(exchange, comm, i));
        add(line->unpacked, &line->unpacked_count, line->slices[i], slices[i],
            count_of(exchange, comm, own));
    }
    coh_free(slices);
    return coh_exchange_reduce(plan, &packed, sent, arrived, &line->line);
}

coh_status coh_comm_wire_gather(coh_comm_line *line, coh_link_plan *plan,
                                const coh_exchange *exchange, const coh_comm_call *comm,
                                char *window, const char *own, char *wire)
{
    const coh_exchange packed = packed_of(exchange, comm);
    const int32_t index = own_index(exchange);
    COH_TRY(begin(line, exchange, comm));
    add(line->packed, &line->packed_count, own, wire + (size_t)index * packed.part_bytes,
        count_of(exchange, comm, index));
    for (int32_t i = 0; i < member_count(exchange); i++)
        add(line->unpacked, &line->unpacked_count, window + (size_t)i * exchange->part_bytes,
            wire + (size_t)i * packed.part_bytes, count_of(exchange, comm, i));
    return coh_exchange_gather(plan, &packed, wire, &line->line);
}

void coh_comm_wire_pack(const coh_comm_line *line, void *queue)
{
    for (int32_t i = 0; i < line->packed_count; i++)
        coh_kernel_wire_pack(queue, &(coh_wire_call){ .wire = line->wire,
                                                      .dtype = line->dtype,
                                                      .count = line->packed[i].count,
                                                      .elements = line->packed[i].elements,
                                                      .packed = line->packed[i].on_wire });
}

void coh_comm_wire_unpack(const coh_comm_line *line, void *queue)
{
    for (int32_t i = 0; i < line->unpacked_count; i++)
        coh_kernel_wire_unpack(queue, &(coh_wire_call){ .wire = line->wire,
                                                        .dtype = line->dtype,
                                                        .count = line->unpacked[i].count,
                                                        .elements = line->unpacked[i].elements,
                                                        .packed = line->unpacked[i].on_wire });
}

void coh_comm_line_fini(coh_comm_line *line)
{
    coh_free(line->slices);
    coh_free(line->packed);
    coh_free(line->unpacked);
    *line = (coh_comm_line){ 0 };
}
