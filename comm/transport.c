/* The calls of a transport: each goes through the table, and a failure stops the world. Read
 * transport.h first. */
#include "comm/transport.h"

#include <inttypes.h>

static const char *const meeting_names[] = {
    [COH_MEETING_BIND] = "bind", [COH_MEETING_GATHER] = "gather", [COH_MEETING_SHARE] = "share"
};

coh_status coh_meeting_compare(const coh_meeting *own, const coh_meeting *other, int32_t other_rank)
{
    if (own->kind == other->kind && own->bytes == other->bytes)
        return COH_OK;
    return coh_fail(COH_ERR_ARGUMENT,
                    "it calls %s with %zu bytes while rank %" PRId32
                    " calls %s with %zu: all ranks must make the same calls",
                    meeting_names[own->kind], own->bytes, other_rank, meeting_names[other->kind],
                    other->bytes);
}

coh_status coh_transport_end(coh_transport *transport, coh_status status)
{
    char sentence[COH_ERROR_TEXT_BYTES];
    if (status == COH_OK)
        return COH_OK;
    coh_error_save(sentence);
    return coh_transport_stop(transport, status, sentence);
}

/* Refuses collectives where the transport has none: it would leave their lines empty. */
static coh_status check_collectives(const coh_transport *transport, const coh_link_plan *plan)
{
    if (plan->collective_count == 0 || transport->ops->has_collectives)
        return COH_OK;
    return coh_fail(
        COH_ERR_ARGUMENT,
        "the transport %s has no collectives, and the plan has %zu: list their messages "
        "as links",
        transport->ops->name, plan->collective_count);
}

coh_status coh_transport_bind(coh_transport *transport, const coh_link_plan *plan)
{
    COH_TRY(coh_transport_end(transport, check_collectives(transport, plan)));
    return coh_transport_end(transport, transport->ops->bind(transport, plan));
}

coh_status coh_transport_start(coh_transport *transport, uint32_t line)
{
    return coh_transport_end(transport, transport->ops->start(transport, line));
}

coh_status coh_transport_test(coh_transport *transport, uint32_t line, int *out_is_done)
{
    return coh_transport_end(transport, transport->ops->test(transport, line, out_is_done));
}

coh_status coh_transport_wait(coh_transport *transport, uint32_t line)
{
    return coh_transport_end(transport, transport->ops->wait(transport, line));
}

coh_status coh_transport_gather(coh_transport *transport, const void *record, size_t bytes,
                                void *out_records)
{
    return coh_transport_end(transport,
                             transport->ops->gather(transport, record, bytes, out_records));
}

coh_status coh_transport_share(coh_transport *transport, void *bytes, size_t count)
{
    return coh_transport_end(transport, transport->ops->share(transport, bytes, count));
}

coh_status coh_transport_stop(coh_transport *transport, coh_status status, const char *sentence)
{
    return transport->ops->stop(transport, status, sentence);
}

coh_status coh_transport_look(coh_transport *transport)
{
    return transport->ops->look(transport);
}

int coh_transport_unbind(coh_transport *transport)
{
    return transport->ops->unbind == NULL || transport->ops->unbind(transport);
}

void coh_transport_close(coh_transport *transport)
{
    if (transport != NULL)
        transport->ops->close(transport);
}
