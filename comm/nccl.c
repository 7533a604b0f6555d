/* The transport of ranks on GPUs: bind compares plans and makes communicators, start enqueues a
 * line as one group, wait looks at an event. Read nccl.h first. */
#include "comm/nccl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/nap.h"
#include "comm/nccl_calls.h"
#include "memory/device_cuda_state.h"

/* The shortest pause of a wait (base/nap.h). */
enum { NAP_LEAST_NS = 20000 };

/* Commands of a group, beyond the queue's own: the kernel, and events between NCCL's streams. */
enum { GROUP_COMMANDS = 16 };

/* Of the streams of an engine, and NCCL's. */
enum { CHANNELS_LEAST = 16 };

/* The content of a first message. */
enum { FIRST_BYTES = 16 };

typedef struct nccl_line {
    CUevent event;                    /* recorded by start, and again by wait */
    const coh_collective *collective; /* NULL: its links are enqueued */
    uint8_t lane;
    uint8_t is_active;
} nccl_line;

typedef struct endpoint {
    coh_transport base;
    coh_nccl_options options;
    coh_nccl_calls calls;
    coh_nccl_communicator *communicators[COH_LINK_LANES];
    coh_link_plan plan; /* a copy */
    nccl_line *lines;
    coh_nccl_communicator **of_groups; /* by group of the plan; NULL: its lane's */
    size_t event_count;
    int is_connected; /* all ranks are bound */
} endpoint;

static coh_cuda_queue *queue_of(const endpoint *self, int lane)
{
    return (coh_cuda_queue *)(void *)self->options.queues[lane];
}

/* Returns a queue of this rank; NULL: no lane has lines. */
static coh_cuda_queue *any_queue(const endpoint *self)
{
    return self->options.queues[0] != NULL ? queue_of(self, 0) : queue_of(self, 1);
}

static coh_nccl_communicator *communicator_of(const endpoint *self, const nccl_line *line)
{
    const uint32_t group = line->collective != NULL ? line->collective->group : 0;
    return line->collective != NULL && self->of_groups[group] != NULL
               ? self->of_groups[group]
               : self->communicators[line->lane];
}

/* ---- results ---- */

static coh_status failed(const endpoint *self, coh_nccl_communicator *communicator,
                         const char *what, int result)
{
    const coh_nccl_calls *calls = &self->calls;
    const char *meaning = calls->ncclGetErrorString(result);
    const char *details = calls->ncclGetLastError(communicator);
    return coh_fail(COH_ERR_DEVICE, "%s between GPUs: %s%s%s (NCCL_DEBUG=WARN prints more)", what,
                    meaning != NULL ? meaning : "an error of NCCL",
                    details != NULL && details[0] != '\0' ? ": " : "",
                    details != NULL ? details : "");
}

/* Returns the failure of a queue that takes no commands. */
static coh_status closed(const endpoint *self, const coh_cuda_queue *queue)
{
    COH_TRY(coh_cuda_device_failure(queue->device));
    COH_TRY(coh_transport_look(self->options.host));
    return coh_fail(COH_ERR_STOPPED, "the GPU was closed while it was at work");
}

/* Waits until what a call has begun is made, or the world stops. `result`: the call's. */
static coh_status complete(const endpoint *self, coh_nccl_communicator *communicator,
                           const char *what, int result)
{
    const coh_nccl_calls *calls = &self->calls;
    const uint64_t begin_ns = coh_clock_ns();
    while (result == COH_NCCL_IN_PROGRESS) {
        COH_TRY(coh_transport_look(self->options.host));
        int now = COH_NCCL_SUCCESS;
        const int asked = calls->ncclCommGetAsyncError(communicator, &now);
        result = asked != COH_NCCL_SUCCESS ? asked : now;
        if (result == COH_NCCL_IN_PROGRESS)
            coh_nap(begin_ns, NAP_LEAST_NS);
    }
    return result == COH_NCCL_SUCCESS ? COH_OK : failed(self, communicator, what, result);
}

/* ---- bind: plans ---- */

/* Two ranks must agree on these: the messages that one sends to the other. */
typedef struct digest {
    uint64_t sends, receives; /* to and from a peer */
} digest;

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

static void digest_plan(const coh_link_plan *plan, digest *by_peer)
{
    for (size_t line = 0; line < plan->line_count; line++)
        for (size_t i = coh_link_plan_first(plan, line); i < plan->line_ends[line]; i++) {
            const coh_link *link = &plan->links[i];
            uint64_t *hash =
                link->from != NULL ? &by_peer[link->peer].sends : &by_peer[link->peer].receives;
            *hash = mix(mix(mix(*hash, line + 1), plan->line_lanes[line]), link->bytes);
        }
}

static void mix_both(digest *of, uint64_t value)
{
    of->sends = mix(of->sends, value);
    of->receives = mix(of->receives, value);
}

/* All ranks must name as many groups, and two members of a group make the same collectives. */
static void digest_collectives(const coh_link_plan *plan, digest *by_peer, int32_t rank_count)
{
    for (int32_t peer = 0; peer < rank_count; peer++)
        mix_both(&by_peer[peer], plan->group_count);
    for (size_t i = 0; i < plan->collective_count; i++) {
        const coh_collective *c = &plan->collectives[i];
        const coh_link_group *group = &plan->groups[c->group];
        for (int32_t member = 0; member < group->count; member++) {
            digest *of = &by_peer[plan->members[group->first + (size_t)member]];
            mix_both(of, ((uint64_t)c->line << 2) + 2 * group->lane + (uint64_t)c->kind);
            mix_both(of, c->part_bytes);
        }
    }
}

static coh_status compare_digests(const endpoint *self, const digest *all)
{
    const int32_t count = self->base.rank_count, rank = self->base.rank;
    for (int32_t peer = 0; peer < count; peer++) {
        const digest *own = &all[(size_t)rank * (size_t)count + (size_t)peer];
        const digest *other = &all[(size_t)peer * (size_t)count + (size_t)rank];
        if (own->sends != other->receives || own->receives != other->sends)
            return coh_fail(COH_ERR_ARGUMENT,
                            "rank %" PRId32 " does not list the same messages between the two, in "
                            "the same lines: bind one plan on all ranks",
                            peer);
    }
    return COH_OK;
}

static coh_status compare_plans(const endpoint *self)
{
    const size_t count = (size_t)self->base.rank_count;
    digest *own = NULL, *all = NULL;
    coh_status status = COH_OK;
    COH_TRY_GOTO(status, COH_ALLOC(count, &own), done);
    COH_TRY_GOTO(status, COH_ALLOC(count * count, &all), done);
    digest_plan(&self->plan, own);
    digest_collectives(&self->plan, own, self->base.rank_count);
    COH_TRY_GOTO(status, coh_transport_gather(self->options.host, own, count * sizeof(*own), all),
                 done);
    status = compare_digests(self, all);
done:
    coh_free(own);
    coh_free(all);
    return status;
}

/* ---- bind: communicators ---- */

enum { ADDRESS_BYTES = 32 };

/* Where a rank's GPU is. */
typedef struct gpu_place {
    char host[64], address[ADDRESS_BYTES];
} gpu_place;

static coh_status check_places(const endpoint *self, const gpu_place *places)
{
    for (int32_t b = 1; b < self->base.rank_count; b++)
        for (int32_t a = 0; a < b; a++)
            if (memcmp(&places[a], &places[b], sizeof(gpu_place)) == 0)
                return coh_fail(COH_ERR_ARGUMENT,
                                "ranks %" PRId32 " and %" PRId32 " both compute on GPU %s of %s: "
                                "NCCL connects one rank a GPU; start fewer ranks",
                                a, b, places[a].address, places[a].host);
    return COH_OK;
}

/* Refuses two ranks on one GPU. */
static coh_status compare_places(const endpoint *self)
{
    gpu_place own, *all;
    const coh_cuda_queue *queue = any_queue(self);
    memset(&own, 0, sizeof(own));
    if (queue == NULL)
        return COH_OK;
    COH_TRY(coh_cuda_check(queue->driver,
                           queue->driver->cuDeviceGetPCIBusId(own.address, sizeof(own.address) - 1,
                                                              queue->device->gpu),
                           "cuDeviceGetPCIBusId"));
    (void)gethostname(own.host, sizeof(own.host) - 1);
    COH_TRY(COH_ALLOC(self->base.rank_count, &all));
    coh_status status = coh_transport_gather(self->options.host, &own, sizeof(own), all);
    if (status == COH_OK)
        status = check_places(self, all);
    coh_free(all);
    return status;
}

static coh_status make_id(const endpoint *self, coh_nccl_id *out_id)
{
    const int result = self->calls.ncclGetUniqueId(out_id);
    return result == COH_NCCL_SUCCESS ? COH_OK : failed(self, NULL, "ncclGetUniqueId", result);
}

/* All `count` ranks of an id make their communicator together. */
static coh_status connect(const endpoint *self, coh_nccl_id id, int32_t count, int32_t index,
                          coh_nccl_communicator **out_communicator)
{
    const coh_nccl_calls *calls = &self->calls;
    coh_nccl_config config = { .struct_bytes = sizeof(config),
                               .magic = COH_NCCL_CONFIG_MAGIC,
                               .version = COH_NCCL_CONFIG_VERSION,
                               .cluster_size = COH_NCCL_CONFIG_DEFAULT,
                               .blocks_least = COH_NCCL_CONFIG_DEFAULT,
                               .blocks_most = COH_NCCL_BLOCKS_MOST,
                               .shares_split = COH_NCCL_CONFIG_DEFAULT };
    const int result =
        calls->ncclCommInitRankConfig(out_communicator, (int)count, id, (int)index, &config);
    return complete(self, *out_communicator, "ncclCommInitRankConfig", result);
}

static coh_status connect_lane(endpoint *self, int lane)
{
    coh_nccl_id id = { { 0 } };
    if (self->base.rank == 0)
        COH_TRY(make_id(self, &id));
    COH_TRY(coh_transport_share(self->options.host, &id, sizeof(id)));
    return connect(self, id, self->base.rank_count, self->base.rank, &self->communicators[lane]);
}

/* Connects the rank's group, while other ranks connect theirs. The first member makes the id. */
static coh_status connect_group(endpoint *self, size_t number)
{
    const coh_link_group *group = &self->plan.groups[number];
    const int32_t *ranks = &self->plan.members[group->first];
    coh_nccl_id own = { { 0 } }, *all;
    if (group->index == 0)
        COH_TRY(make_id(self, &own));
    COH_TRY(COH_ALLOC(self->base.rank_count, &all));
    coh_status status = coh_transport_gather(self->options.host, &own, sizeof(own), all);
    if (status == COH_OK)
        status = connect(self, all[ranks[0]], group->count, group->index, &self->of_groups[number]);
    coh_free(all);
    return status;
}

/* Is the group all ranks in their order, as the communicator of a lane has them? */
static int is_world(const endpoint *self, const coh_link_group *group)
{
    int32_t same = 0;
    while (same < group->count && self->plan.members[group->first + (size_t)same] == same)
        same++;
    return same == self->base.rank_count;
}

/* Connects the groups of a lane, except the world: it has the lane's communicator. */
static coh_status connect_groups(endpoint *self, int lane)
{
    for (size_t i = 0; i < self->plan.group_count; i++)
        if (self->plan.groups[i].lane == lane && !is_world(self, &self->plan.groups[i]))
            COH_TRY(connect_group(self, i));
    return COH_OK;
}

/* ---- lines ---- */

/* Enqueues a message; `bytes_most`: of its beginning. */
static int enqueue(const endpoint *self, int lane, const coh_link *link, size_t bytes_most)
{
    const coh_nccl_calls *calls = &self->calls;
    const size_t bytes = link->bytes < bytes_most ? link->bytes : bytes_most;
    const CUstream stream = queue_of(self, lane)->stream;
    coh_nccl_communicator *communicator = self->communicators[lane];
    return link->from != NULL
               ? calls->ncclSend(link->from, bytes, COH_NCCL_BYTE, link->peer, communicator, stream)
               : calls->ncclRecv(link->to, bytes, COH_NCCL_BYTE, link->peer, communicator, stream);
}

/* Enqueues a group of messages: those of `links` that `wants` (NULL: all). */
static coh_status enqueue_group(const endpoint *self, int lane, const coh_link *links, size_t count,
                                const uint8_t *wants, size_t bytes_most)
{
    const coh_nccl_calls *calls = &self->calls;
    coh_nccl_communicator *communicator = self->communicators[lane];
    int result = calls->ncclGroupStart();
    if (result != COH_NCCL_SUCCESS)
        return failed(self, communicator, "ncclGroupStart", result);
    for (size_t i = 0; i < count && result == COH_NCCL_SUCCESS; i++)
        if (wants == NULL || wants[i])
            result = enqueue(self, lane, &links[i], bytes_most);
    /* A group is ended also after a failure: it belongs to the thread. */
    const int ended = calls->ncclGroupEnd();
    if (result != COH_NCCL_SUCCESS && result != COH_NCCL_IN_PROGRESS)
        return failed(self, communicator, "ncclSend or ncclRecv", result);
    return complete(self, communicator, "ncclGroupEnd", ended);
}

/* Enqueues a line that is one call of NCCL. */
static coh_status enqueue_collective(const endpoint *self, const nccl_line *line)
{
    const coh_nccl_calls *calls = &self->calls;
    const coh_collective *c = line->collective;
    const CUstream stream = queue_of(self, line->lane)->stream;
    coh_nccl_communicator *communicator = communicator_of(self, line);
    if (c->kind == COH_COLLECTIVE_GATHER)
        return complete(self, communicator, "ncclAllGather",
                        calls->ncclAllGather(c->from, c->to, c->part_bytes, COH_NCCL_BYTE,
                                             communicator, stream));
    return complete(self, communicator, "ncclReduceScatter",
                    calls->ncclReduceScatter(c->from, c->to, c->part_bytes / sizeof(float),
                                             COH_NCCL_FLOAT, COH_NCCL_SUM, communicator, stream));
}

static coh_status record(const endpoint *self, nccl_line *line)
{
    const coh_cuda_queue *queue = queue_of(self, line->lane);
    return coh_cuda_check(queue->driver, queue->driver->cuEventRecord(line->event, queue->stream),
                          "cuEventRecord");
}

static coh_status find_line(endpoint *self, uint32_t number, nccl_line **out_line)
{
    if (number >= self->plan.line_count)
        return coh_fail(COH_ERR_ARGUMENT, "there is no line %" PRIu32 ": %zu lines are bound",
                        number, self->plan.line_count);
    *out_line = &self->lines[number];
    return COH_OK;
}

static coh_status start_inside(endpoint *self, uint32_t number, nccl_line *line)
{
    const size_t first = coh_link_plan_first(&self->plan, number);
    const size_t count = self->plan.line_ends[number] - first;
    coh_cuda_queue *queue = queue_of(self, line->lane);
    if (!coh_cuda_queue_admit(queue, GROUP_COMMANDS))
        return closed(self, queue);
    if (line->collective != NULL)
        COH_TRY(enqueue_collective(self, line));
    else if (count > 0)
        COH_TRY(enqueue_group(self, line->lane, &self->plan.links[first], count, NULL, SIZE_MAX));
    return record(self, line);
}

static coh_status nccl_start(coh_transport *transport, uint32_t number)
{
    endpoint *self = (endpoint *)transport;
    nccl_line *line;
    COH_TRY(find_line(self, number, &line));
    COH_TRY(coh_transport_look(self->options.host));
    if (line->is_active)
        return coh_fail(COH_ERR_ARGUMENT, "line %" PRIu32 " is started again before it is done",
                        number);
    const coh_device *device = queue_of(self, line->lane)->device;
    COH_TRY(coh_cuda_enter(device));
    const coh_status status = start_inside(self, number, line);
    coh_cuda_leave(device);
    line->is_active = status == COH_OK;
    return status;
}

/* Looks once whether a line is done; else fails if it never will be. What ends after the world has
 * stopped may have been cut short by another rank's abort. */
static coh_status look_inside(const endpoint *self, const nccl_line *line, int *out_is_done)
{
    const coh_cuda_queue *queue = queue_of(self, line->lane);
    int now = COH_NCCL_SUCCESS;
    const CUresult found = queue->driver->cuEventQuery(line->event);
    *out_is_done = found == CUDA_SUCCESS;
    if (found != CUDA_SUCCESS && found != CUDA_ERROR_NOT_READY)
        return coh_cuda_check(queue->driver, found, "cuEventQuery");
    COH_TRY(coh_transport_look(self->options.host));
    if (*out_is_done)
        return COH_OK;
    coh_nccl_communicator *communicator = communicator_of(self, line);
    const int asked = self->calls.ncclCommGetAsyncError(communicator, &now);
    if (asked != COH_NCCL_SUCCESS || (now != COH_NCCL_SUCCESS && now != COH_NCCL_IN_PROGRESS))
        return failed(self, communicator, "an exchange", asked != COH_NCCL_SUCCESS ? asked : now);
    return COH_OK;
}

static coh_status look_at(const endpoint *self, nccl_line *line, int *out_is_done)
{
    const coh_device *device = queue_of(self, line->lane)->device;
    *out_is_done = 1;
    if (!line->is_active)
        return COH_OK;
    COH_TRY(coh_cuda_enter(device));
    const coh_status status = look_inside(self, line, out_is_done);
    coh_cuda_leave(device);
    if (status == COH_OK && *out_is_done)
        line->is_active = 0;
    return status;
}

static coh_status nccl_test(coh_transport *transport, uint32_t number, int *out_is_done)
{
    endpoint *self = (endpoint *)transport;
    nccl_line *line;
    COH_TRY(find_line(self, number, &line));
    return look_at(self, line, out_is_done);
}

/* Records the event behind all that was enqueued since. */
static coh_status record_again(const endpoint *self, nccl_line *line)
{
    coh_cuda_queue *queue = queue_of(self, line->lane);
    COH_TRY(coh_cuda_enter(queue->device));
    const coh_status status =
        coh_cuda_queue_admit(queue, 1) ? record(self, line) : closed(self, queue);
    coh_cuda_leave(queue->device);
    return status;
}

static coh_status nccl_wait(coh_transport *transport, uint32_t number)
{
    endpoint *self = (endpoint *)transport;
    const uint64_t begin_ns = coh_clock_ns();
    int is_done = 0;
    nccl_line *line;
    COH_TRY(find_line(self, number, &line));
    if (line->is_active)
        COH_TRY(record_again(self, line));
    for (;;) {
        COH_TRY(look_at(self, line, &is_done));
        if (is_done)
            return COH_OK;
        coh_nap(begin_ns, NAP_LEAST_NS);
    }
}

/* ---- bind ---- */

static coh_status copy_groups(endpoint *self, const coh_link_plan *plan)
{
    coh_link_plan *own = &self->plan;
    COH_TRY(COH_ALLOC(plan->collective_count, &own->collectives));
    COH_TRY(COH_ALLOC(plan->group_count, &own->groups));
    COH_TRY(COH_ALLOC(plan->member_count, &own->members));
    COH_TRY(COH_ALLOC(plan->group_count, &self->of_groups));
    own->collective_count = plan->collective_count;
    own->group_count = plan->group_count;
    own->member_count = plan->member_count;
    for (size_t i = 0; i < plan->member_count; i++)
        own->members[i] = plan->members[i];
    for (size_t i = 0; i < plan->group_count; i++)
        own->groups[i] = plan->groups[i];
    for (size_t i = 0; i < plan->collective_count; i++) {
        own->collectives[i] = plan->collectives[i];
        self->lines[plan->collectives[i].line].collective = &own->collectives[i];
    }
    return COH_OK;
}

static coh_status copy_plan(endpoint *self, const coh_link_plan *plan)
{
    coh_link_plan *own = &self->plan;
    COH_TRY(coh_link_plan_check(plan, self->base.rank, self->base.rank_count));
    COH_TRY(COH_ALLOC(plan->link_count, &own->links));
    COH_TRY(COH_ALLOC(plan->line_count, &own->line_ends));
    COH_TRY(COH_ALLOC(plan->line_count, &own->line_lanes));
    COH_TRY(COH_ALLOC(plan->line_count, &self->lines));
    if (plan->link_count > 0)
        memcpy(own->links, plan->links, plan->link_count * sizeof(*own->links));
    for (size_t i = 0; i < plan->line_count; i++) {
        const int lane = plan->line_lanes[i];
        if (lane >= COH_LINK_LANES || self->options.queues[lane] == NULL)
            return coh_fail(COH_ERR_INTERNAL, "line %zu is of lane %d, which has no queue", i,
                            lane);
        own->line_ends[i] = plan->line_ends[i];
        own->line_lanes[i] = self->lines[i].lane = (uint8_t)lane;
    }
    own->link_count = plan->link_count;
    own->line_count = plan->line_count;
    return copy_groups(self, plan);
}

static coh_status make_events(endpoint *self)
{
    for (; self->event_count < self->plan.line_count; self->event_count++) {
        nccl_line *line = &self->lines[self->event_count];
        const coh_cuda_driver *driver = queue_of(self, line->lane)->driver;
        COH_TRY(coh_cuda_check(driver, driver->cuEventCreate(&line->event, CU_EVENT_DISABLE_TIMING),
                               "cuEventCreate for a line between GPUs"));
    }
    return COH_OK;
}

/* Marks the first message to and from each peer on a lane. */
static void mark_first(const endpoint *self, int lane, uint8_t *seen, uint8_t *wants)
{
    const coh_link_plan *plan = &self->plan;
    for (size_t line = 0; line < plan->line_count; line++)
        for (size_t i = coh_link_plan_first(plan, line); i < plan->line_ends[line]; i++) {
            const coh_link *link = &plan->links[i];
            uint8_t *was = &seen[2 * link->peer + (link->from != NULL)];
            wants[i] = plan->line_lanes[line] == lane && !*was;
            *was |= wants[i];
        }
}

/* Is this the first collective of its kind, group and length? NCCL chooses algorithms by these. */
static int is_first_of_kind(const coh_link_plan *plan, size_t number)
{
    const coh_collective *c = &plan->collectives[number];
    for (size_t i = 0; i < number; i++) {
        const coh_collective *before = &plan->collectives[i];
        if (before->kind == c->kind && before->group == c->group &&
            before->part_bytes == c->part_bytes)
            return 0;
    }
    return 1;
}

/* Makes each collective of a lane once, so that NCCL allocates for it now. */
static coh_status greet_groups(const endpoint *self, int lane)
{
    for (size_t i = 0; i < self->plan.collective_count; i++) {
        const nccl_line *line = &self->lines[self->plan.collectives[i].line];
        if (line->lane == lane && is_first_of_kind(&self->plan, i))
            COH_TRY(enqueue_collective(self, line));
    }
    return COH_OK;
}

/* Sends the beginning of the first message between all pairs, so that they are connected. */
static coh_status greet(const endpoint *self, int lane)
{
    const coh_cuda_queue *queue = queue_of(self, lane);
    uint8_t *seen = NULL, *wants = NULL;
    coh_status status = COH_OK;
    COH_TRY_GOTO(status, COH_ALLOC(2 * self->base.rank_count, &seen), done);
    COH_TRY_GOTO(status, COH_ALLOC(self->plan.link_count, &wants), done);
    mark_first(self, lane, seen, wants);
    COH_TRY_GOTO(
        status,
        enqueue_group(self, lane, self->plan.links, self->plan.link_count, wants, FIRST_BYTES),
        done);
    COH_TRY_GOTO(status, greet_groups(self, lane), done);
    const uint64_t begin_ns = coh_clock_ns();
    CUresult found = queue->driver->cuStreamQuery(queue->stream);
    while (found == CUDA_ERROR_NOT_READY) {
        COH_TRY_GOTO(status, coh_transport_look(self->options.host), done);
        coh_nap(begin_ns, NAP_LEAST_NS);
        found = queue->driver->cuStreamQuery(queue->stream);
    }
    status = coh_cuda_check(queue->driver, found, "cuStreamQuery");
done:
    coh_free(seen);
    coh_free(wants);
    return status;
}

static coh_status connect_inside(endpoint *self)
{
    for (int lane = 0; lane < COH_LINK_LANES; lane++)
        if (self->options.queues[lane] != NULL) {
            COH_TRY(connect_lane(self, lane));
            COH_TRY(connect_groups(self, lane));
            COH_TRY(greet(self, lane));
        }
    return make_events(self);
}

static coh_status nccl_bind(coh_transport *transport, const coh_link_plan *plan)
{
    endpoint *self = (endpoint *)transport;
    if (self->lines != NULL)
        return coh_fail(COH_ERR_ARGUMENT, "a transport binds one link plan, and this one has one");
    COH_TRY(copy_plan(self, plan));
    COH_TRY(compare_plans(self));
    COH_TRY(compare_places(self));
    const coh_cuda_queue *queue = any_queue(self);
    if (queue != NULL) {
        COH_TRY(coh_cuda_enter(queue->device));
        const coh_status status = connect_inside(self);
        coh_cuda_leave(queue->device);
        COH_TRY(status);
    }
    COH_TRY(coh_transport_gather(self->options.host, NULL, 0, NULL)); /* all are connected */
    self->is_connected = queue != NULL;
    return COH_OK;
}

/* ---- what the host's transport does ---- */

static coh_status nccl_gather(coh_transport *transport, const void *record_of, size_t bytes,
                              void *out_records)
{
    return coh_transport_gather(((endpoint *)transport)->options.host, record_of, bytes,
                                out_records);
}

static coh_status nccl_share(coh_transport *transport, void *bytes, size_t count)
{
    return coh_transport_share(((endpoint *)transport)->options.host, bytes, count);
}

static coh_status nccl_stop(coh_transport *transport, coh_status status, const char *sentence)
{
    return coh_transport_stop(((endpoint *)transport)->options.host, status, sentence);
}

static coh_status nccl_look(coh_transport *transport)
{
    return coh_transport_look(((endpoint *)transport)->options.host);
}

/* ---- the end ---- */

/* Ends a communicator whose messages are all received. Returns 0 if that fails. */
static int finish(const endpoint *self, coh_nccl_communicator *communicator)
{
    const coh_nccl_calls *calls = &self->calls;
    const int result = calls->ncclCommFinalize(communicator);
    if (complete(self, communicator, "ncclCommFinalize", result) != COH_OK)
        return 0;
    (void)calls->ncclCommDestroy(communicator);
    return 1;
}

/* Ends the communicators of an array, those that were made. */
static void end_communicators(const endpoint *self, coh_nccl_communicator **all, size_t count,
                              int is_orderly)
{
    for (size_t i = 0; i < count; i++) {
        if (all[i] != NULL && (!is_orderly || !finish(self, all[i])))
            (void)self->calls.ncclCommAbort(all[i]);
        all[i] = NULL;
    }
}

/* Waits until all ranks have come as far, so that each has received what this one has sent: it may
 * still be in memory of this rank's communicator, and NCCL's finalize waits for no other rank.
 * Returns 0 if the world stops. */
static int have_all_ended(const endpoint *self)
{
    for (size_t i = 0; i < self->event_count; i++)
        if (self->lines[i].is_active)
            return 0;
    return coh_transport_gather(self->options.host, NULL, 0, NULL) == COH_OK;
}

static void disconnect_inside(endpoint *self)
{
    const int is_orderly = self->is_connected && have_all_ended(self);
    if (self->of_groups != NULL)
        end_communicators(self, self->of_groups, self->plan.group_count, is_orderly);
    end_communicators(self, self->communicators, COH_LINK_LANES, is_orderly);
    for (size_t i = 0; i < self->event_count; i++)
        (void)queue_of(self, self->lines[i].lane)->driver->cuEventDestroy(self->lines[i].event);
    self->event_count = 0;
    self->is_connected = 0;
}

static int nccl_unbind(coh_transport *transport)
{
    endpoint *self = (endpoint *)transport;
    const coh_cuda_queue *queue = any_queue(self);
    char text[COH_ERROR_TEXT_BYTES];
    coh_error_save(text);
    const int is_inside = queue != NULL && coh_cuda_enter(queue->device) == COH_OK;
    disconnect_inside(self);
    if (is_inside)
        coh_cuda_leave(queue->device);
    coh_error_restore(text);
    coh_link_plan_fini(&self->plan);
    coh_free(self->lines);
    coh_free(self->of_groups);
    self->lines = NULL;
    self->of_groups = NULL;
    for (int lane = 0; lane < COH_LINK_LANES; lane++)
        self->options.queues[lane] = NULL;
    return 1;
}

static void nccl_close(coh_transport *transport)
{
    (void)nccl_unbind(transport);
    coh_free(transport);
}

static const coh_transport_ops nccl_ops = {
    .name = "nccl",
    .has_collectives = 1,
    .bind = nccl_bind,
    .start = nccl_start,
    .test = nccl_test,
    .wait = nccl_wait,
    .gather = nccl_gather,
    .share = nccl_share,
    .stop = nccl_stop,
    .look = nccl_look,
    .unbind = nccl_unbind,
    .close = nccl_close,
};

/* Refuses too few channels. NCCL has its own streams; one that shares a channel with a stream
 * that waits for a word waits, too, and the word may need what is behind it. The driver's default
 * is 8. */
static coh_status check_channels(void)
{
    const char *channels = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    if (channels != NULL && atoi(channels) >= CHANNELS_LEAST)
        return COH_OK;
    return coh_fail(COH_ERR_ARGUMENT,
                    "CUDA_DEVICE_MAX_CONNECTIONS is %s, and streams that exchange between GPUs "
                    "need separate channels: set it to 32 before CUDA starts in this process",
                    channels != NULL ? channels : "not set");
}

coh_status coh_nccl_open(const coh_nccl_options *options, coh_transport **out_transport)
{
    endpoint *self;
    coh_nccl_calls calls;
    *out_transport = NULL;
    if (options->calls != NULL) {
        calls = *options->calls;
    } else {
        COH_TRY(check_channels());
        COH_TRY(coh_nccl_calls_open(&calls));
    }
    COH_TRY(COH_ALLOC(1, &self));
    self->base = (coh_transport){ .ops = &nccl_ops,
                                  .rank = options->host->rank,
                                  .rank_count = options->host->rank_count };
    self->options = *options;
    self->calls = calls;
    *out_transport = &self->base;
    return COH_OK;
}
