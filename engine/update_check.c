/* Runs updates on guarded copies, one at a time: once over the whole range, then over its halves.
 * The halves' results are copied back: they are those of the whole. Next: update_check.h. */
#include "engine/update_check.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/float_mode.h"
#include "engine/op_trial.h"

/* Buffers of an update; stream i is STREAMS + i. */
enum { WORK, LOW, GRAD, STREAMS, BUFFERS = STREAMS + COH_OPTIMIZER_STREAMS };

/* The first half ends on a cache line, as every range of a run begins on one. */
enum { HALF_ALIGN = 16 };

/* The buffers that a call has, by ascending addresses. */
typedef struct copies {
    int32_t buffer[BUFFERS];
    void *original[BUFFERS];
    coh_guarded guarded[BUFFERS];
    size_t count;
    char *end; /* of their rooms */
} copies;

/* ---- memory ---- */

/* Returns the bytes of `count` elements of a buffer, in f32 where it may be f32. */
static size_t bytes_most(const coh_optimizer *optimizer, int32_t buffer, uint64_t count)
{
    if (buffer < STREAMS)
        return (size_t)count * (buffer == LOW ? sizeof(uint16_t) : sizeof(float));
    return (size_t)coh_state_bytes(&optimizer->streams[buffer - STREAMS], count);
}

coh_status coh_update_check_init(const coh_layout *layout, coh_update_check *out_check)
{
    size_t most_room = 0, most_bytes = 0;
    *out_check = (coh_update_check){ 0 };
    for (int32_t i = 0; i < layout->optimizer_count; i++) {
        const coh_optimizer *optimizer = layout->optimizers[i];
        size_t room = 0, bytes = 0;
        for (int32_t b = 0; b < STREAMS + optimizer->stream_count; b++) {
            const size_t own = bytes_most(optimizer, b, COH_GRAIN_ELEMENTS);
            room += coh_guard_room(own);
            bytes += own;
        }
        most_room = room > most_room ? room : most_room;
        most_bytes = bytes > most_bytes ? bytes : most_bytes;
    }
    if (pthread_mutex_init(&out_check->mutex, NULL) != 0)
        return coh_fail(COH_ERR_MEMORY, "the system gives no mutex");
    out_check->mutex_is_made = 1;
    COH_TRY(COH_ALLOC(most_bytes, &out_check->whole));
    return coh_guarded_memory_init(coh_guard_room_all(most_room), &out_check->memory);
}

void coh_update_check_fini(coh_update_check *check)
{
    coh_guarded_memory_fini(&check->memory);
    coh_free(check->whole);
    if (check->mutex_is_made)
        pthread_mutex_destroy(&check->mutex);
    *check = (coh_update_check){ 0 };
}

/* ---- copies ---- */

static size_t bytes_of(const coh_optimizer *optimizer, const coh_update_call *call, int32_t buffer,
                       int64_t count)
{
    if (buffer == WORK)
        return (size_t)coh_dtype_array_bytes(call->work_dtype, (uint64_t)count);
    if (buffer == GRAD)
        return (size_t)coh_dtype_array_bytes(call->grad_dtype, (uint64_t)count);
    return bytes_most(optimizer, buffer, (uint64_t)count);
}

/* Places a copy of `original`, unless it is NULL, and returns the copy. */
static void *place(copies *all, int32_t buffer, const void *original, size_t bytes)
{
    const size_t i = all->count;
    if (original == NULL)
        return NULL;
    all->buffer[i] = buffer;
    all->original[i] = (void *)(uintptr_t)original;
    all->end = coh_guard_place(all->end, bytes, COH_TRIAL_SMALL_BYTE, &all->guarded[i]);
    all->count++;
    return all->guarded[i].data;
}

/* Places copies of the buffers of `call`, and passes them to it. */
static void place_all(coh_update_check *check, const coh_optimizer *optimizer,
                      coh_update_call *call, copies *all)
{
    const int64_t count = call->count;
    all->count = 0;
    all->end = check->memory.data + COH_GUARD_MARGIN;
    call->work = place(all, WORK, call->work, bytes_of(optimizer, call, WORK, count));
    call->low = place(all, LOW, call->low, bytes_of(optimizer, call, LOW, count));
    call->grad = place(all, GRAD, call->grad, bytes_of(optimizer, call, GRAD, count));
    for (int32_t i = 0; i < optimizer->stream_count; i++)
        call->states[i] =
            place(all, STREAMS + i, call->states[i], bytes_of(optimizer, call, STREAMS + i, count));
    coh_guard_add_margins(all->guarded, all->count);
    for (size_t i = 0; i < all->count; i++)
        coh_guard_fill(&all->guarded[i]);
}

static void copy_in(const copies *all)
{
    for (size_t i = 0; i < all->count; i++)
        memcpy(all->guarded[i].data, all->original[i], all->guarded[i].bytes);
}

static void copy_out(const copies *all)
{
    for (size_t i = 0; i < all->count; i++)
        if (all->buffer[i] != GRAD)
            memcpy(all->original[i], all->guarded[i].data, all->guarded[i].bytes);
}

/* ---- ranges ---- */

/* Returns the part of a range of copies from element `begin`, which begins a block, to `end`. */
static coh_update_call part_of(const coh_optimizer *optimizer, const coh_update_call *whole,
                               int64_t begin, int64_t end)
{
    coh_update_call part = *whole;
    part.count = end - begin;
    part.first += (uint64_t)begin;
    part.work = (char *)whole->work + bytes_of(optimizer, whole, WORK, begin);
    part.low = whole->low != NULL ? whole->low + begin : NULL;
    part.grad = (const char *)whole->grad + bytes_of(optimizer, whole, GRAD, begin);
    for (int32_t i = 0; i < optimizer->stream_count; i++)
        part.states[i] = (char *)whole->states[i] + bytes_of(optimizer, whole, STREAMS + i, begin);
    return part;
}

/* Returns where a range is cut into halves, or its end if it is too short. */
static int64_t half_of(const coh_optimizer *optimizer, int64_t count)
{
    int64_t align = HALF_ALIGN;
    for (int32_t i = 0; i < optimizer->stream_count; i++)
        if (optimizer->streams[i].elements_per_block > align)
            align = optimizer->streams[i].elements_per_block;
    const int64_t half = (count / 2 + align - 1) / align * align;
    return half < count ? half : count;
}

static void run_update(const coh_optimizer *optimizer, const coh_update_call *call)
{
    optimizer->update(call);
    coh_float_mode_restore();
}

/* ---- findings ---- */

static int find(coh_update_finding *finding, coh_update_fault fault, const copies *all,
                size_t index, int64_t offset)
{
    finding->fault = fault;
    finding->buffer = all->buffer[index];
    finding->has_bytes = (int64_t)all->guarded[index].bytes;
    finding->offset = offset;
    return 1;
}

/* Returns the first byte in which two equally long buffers differ, or -1. */
static int64_t difference(const char *a, const char *b, size_t bytes)
{
    int64_t i = 0;
    if (memcmp(a, b, bytes) == 0)
        return -1;
    while (a[i] == b[i])
        i++;
    return i;
}

/* Looks for a write that is not allowed. */
static int find_write(const copies *all, coh_update_finding *finding)
{
    size_t index;
    int64_t offset;
    if (coh_guard_find(all->guarded, all->count, &index, &offset))
        return find(finding, COH_UPDATE_FAULT_WRITES_OUTSIDE, all, index, offset);
    for (index = 0; index < all->count; index++) {
        const coh_guarded *g = &all->guarded[index];
        offset =
            all->buffer[index] == GRAD ? difference(g->data, all->original[index], g->bytes) : -1;
        if (offset >= 0)
            return find(finding, COH_UPDATE_FAULT_WRITES_GRAD, all, index, offset);
    }
    return 0;
}

static void keep_whole(const copies *all, char *whole)
{
    for (size_t i = 0; i < all->count; whole += all->guarded[i++].bytes)
        memcpy(whole, all->guarded[i].data, all->guarded[i].bytes);
}

static int find_difference(const copies *all, const char *whole, coh_update_finding *finding)
{
    for (size_t i = 0; i < all->count; whole += all->guarded[i++].bytes) {
        const int64_t offset = difference(all->guarded[i].data, whole, all->guarded[i].bytes);
        if (offset >= 0)
            return find(finding, COH_UPDATE_FAULT_OF_RANGE, all, i, offset);
    }
    return 0;
}

/* Returns 1 after a finding. */
static int run_on_copies(coh_update_check *check, const coh_optimizer *optimizer,
                         const coh_update_call *call, const copies *all)
{
    const int64_t half = half_of(optimizer, call->count);
    copy_in(all);
    run_update(optimizer, call);
    if (find_write(all, &check->finding))
        return 1;
    if (half == call->count)
        return 0;
    keep_whole(all, check->whole);
    copy_in(all);
    const coh_update_call first = part_of(optimizer, call, 0, half);
    const coh_update_call second = part_of(optimizer, call, half, call->count);
    run_update(optimizer, &first);
    run_update(optimizer, &second);
    return find_write(all, &check->finding) || find_difference(all, check->whole, &check->finding);
}

void coh_update_check_run(void *context, const coh_optimizer *optimizer,
                          const coh_update_call *call)
{
    coh_update_check *check = context;
    coh_update_call copied = *call;
    copies all;
    pthread_mutex_lock(&check->mutex);
    if (check->finding.fault == COH_UPDATE_FAULT_NONE) {
        place_all(check, optimizer, &copied, &all);
        check->finding.optimizer = optimizer;
        check->finding.count = call->count;
        check->finding.first = call->first;
        if (!run_on_copies(check, optimizer, &copied, &all))
            copy_out(&all);
    }
    pthread_mutex_unlock(&check->mutex);
}

/* ---- the sentence ---- */

/* Returns the name of the trained parameter that has this element of all parameters. */
static const char *parameter_at(const coh_plan *plan, uint64_t element)
{
    const coh_layout *layout = &plan->layout;
    const uint64_t grain = element / COH_GRAIN_ELEMENTS;
    for (uint32_t i = 0; i < layout->parameter_count; i++) {
        const coh_parameter_layout *parameter = &layout->parameters[i];
        if (!parameter->frozen && grain >= parameter->partial_begin &&
            grain - parameter->partial_begin < parameter->grain_count)
            return plan->graph->parameters[parameter->parameter].name;
    }
    return "?";
}

static void name_buffer(const coh_update_finding *finding, char out_name[64])
{
    static const char *const names[] = { "work", "low", "grad" };
    if (finding->buffer < STREAMS)
        snprintf(out_name, 64, "%s", names[finding->buffer]);
    else
        snprintf(out_name, 64, "stream '%s'",
                 finding->optimizer->streams[finding->buffer - STREAMS].name);
}

coh_status coh_update_check_result(coh_update_check *check, const coh_plan *plan)
{
    char buffer[64];
    pthread_mutex_lock(&check->mutex);
    const coh_update_finding finding = check->finding;
    pthread_mutex_unlock(&check->mutex);
    if (finding.fault == COH_UPDATE_FAULT_NONE)
        return COH_OK;
    name_buffer(&finding, buffer);
    const char *const parameter = parameter_at(plan, finding.first);
    if (finding.fault == COH_UPDATE_FAULT_WRITES_OUTSIDE)
        return coh_fail(COH_ERR_ARGUMENT,
                        "optimizer '%s', update of %" PRId64 " elements of '%s': writes outside"
                        " its buffers: %s, byte %" PRId64 ", where it has %" PRId64
                        " bytes. Usual cause: bytes_per_block or elements_per_block of the"
                        " stream, or an index that runs too far",
                        finding.optimizer->name, finding.count, parameter, buffer, finding.offset,
                        finding.has_bytes);
    if (finding.fault == COH_UPDATE_FAULT_WRITES_GRAD)
        return coh_fail(COH_ERR_ARGUMENT,
                        "optimizer '%s', update of %" PRId64 " elements of '%s': writes to grad,"
                        " byte %" PRId64 ", which it may only read",
                        finding.optimizer->name, finding.count, parameter, finding.offset);
    return coh_fail(COH_ERR_ARGUMENT,
                    "optimizer '%s', update of %" PRId64 " elements of '%s': %s, byte %" PRId64
                    ", has other bits if the range is updated as two halves: compute each element"
                    " from the same element of its streams, or from its block, alone",
                    finding.optimizer->name, finding.count, parameter, buffer, finding.offset);
}
