/* Builds finished programs from decisions: lowers every kind of program, places the device
 * level, then the host level on the device's moves, and assembles instructions and waits. The
 * idea: the body sets the boundary map and the peak, and all other programs fit within them. The
 * steps are listed in schedule.h. */
#include "planner/schedule.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/refusal.h"
#include "planner/holes.h"
#include "planner/lower_ahead.h"
#include "planner/lower_late.h"
#include "planner/move_order.h"
#include "planner/pattern.h"
#include "planner/schedule_builder.h"
#include "planner/waits.h"

static int has_host(const coh_builder *b)
{
    return !b->decisions->in_memory && b->options->host_memory_bytes > 0;
}

static int has_disk(const coh_builder *b)
{
    return !b->decisions->in_memory && b->options->disk_bytes > 0;
}

static int is_gpu(const coh_builder *b)
{
    return b->profile->device_kind != COH_DEVICE_HOST;
}

static int starts_empty(const coh_draft *d)
{
    return d->lowered.kind == COH_PROGRAM_INIT || d->lowered.kind == COH_PROGRAM_IMPORT;
}

coh_sequence coh_draft_sequence(const coh_draft *d)
{
    return (coh_sequence){ .step_count = (uint32_t)d->lowered.instruction_count,
                           .starts_empty = starts_empty(d),
                           .lowered = &d->lowered,
                           .operand_begin = d->operand_begin,
                           .operands = d->lowered.operands };
}

static coh_sequence outer_sequence(const coh_draft *d)
{
    return (coh_sequence){ .step_count = d->outer.count,
                           .starts_empty = starts_empty(d),
                           .operand_begin = d->outer.operand_begin,
                           .operands = d->outer.operands,
                           .operand_version = d->outer.versions };
}

coh_status coh_builder_lower(coh_builder *b, coh_program_kind kind, int32_t microbatches,
                             coh_draft *d)
{
    coh_plan_options options = *b->options;
    options.microbatch_count = microbatches;
    COH_TRY(coh_lower(b->graph, &options, b->layout, &b->map, &b->recompute,
                      coh_decided_host_updates(b->decisions, has_host(b)), kind, &d->lowered));
    COH_TRY(coh_lower_ahead(b->layout, b->decisions->lead, &d->lowered));
    if (!coh_plan_defers(&options))
        COH_TRY(coh_lower_late(b->layout, b->decisions->late, &d->lowered));
    d->is_wanted = d->lowered.instruction_count > 0;
    COH_TRY(COH_ALLOC(d->lowered.instruction_count + 1, &d->operand_begin));
    for (size_t i = 0; i < d->lowered.instruction_count; i++)
        d->operand_begin[i + 1] = d->operand_begin[i] + d->lowered.instructions[i].operand_count;
    return COH_OK;
}

/* Returns the body from which the boundary maps are made. They depend on how a body begins and
 * ends. If micro-batches run one after another, a body of the first, one in between and the last
 * begins and ends alike, and takes a fraction of the time. Without the one in between, states that
 * are needed at the end compete with weights at the begin. */
static coh_draft *brief_body(coh_builder *b)
{
    return b->brief.is_wanted ? &b->brief : &b->drafts[COH_PROGRAM_BODY];
}

static coh_status lower_brief_body(coh_builder *b)
{
    enum { FEW = 3 }; /* the first, one in between, the last */
    const int has_far = has_host(b) || has_disk(b);
    if (!has_far || b->options->sweep_order != COH_SWEEP_MICROBATCH ||
        coh_fold_replicas(&b->options->replicas) > 1 || coh_builder_microbatches(b) <= FEW)
        return COH_OK;
    return coh_builder_lower(b, COH_PROGRAM_BODY, FEW, &b->brief);
}

/* Marks the chunks of survivors that are not pinned, except those that only a nearer tier
 * holds. */
static void mark_survivors(const coh_builder *b, const uint8_t *held_nearer, uint8_t *marks)
{
    const coh_layout *layout = b->layout;
    for (uint32_t chunk = 0; chunk < layout->chunk_count; chunk++) {
        const coh_object *object = &layout->objects[layout->chunks[chunk].object];
        const int is_held_nearer = held_nearer != NULL && held_nearer[chunk];
        marks[chunk] =
            object->survives && !object->pinned && (!is_held_nearer || b->keeps_far[chunk]);
    }
}

/* Rounds a tier's size down to pages; one without a limit keeps none (UINT64_MAX). */
static uint64_t whole_pages(uint64_t bytes)
{
    return bytes < coh_bytes_whole_pages(UINT64_MAX) ? coh_bytes_whole_pages(bytes) : UINT64_MAX;
}

coh_level coh_builder_device_level(const coh_builder *b)
{
    return (coh_level){ .layout = b->layout,
                        .tier = COH_TIER_DEVICE,
                        .base_bytes = b->layout->pinned_bytes,
                        .capacity = b->decisions->in_memory
                                        ? UINT64_MAX
                                        : whole_pages(b->decisions->device_bytes),
                        .graph = b->graph,
                        .has_far = has_host(b) || has_disk(b),
                        .keeps_far = b->keeps_far,
                        .home_offset = b->device_homes.offset,
                        .floor_bytes = b->device_homes.end_bytes,
                        .rules = b->pins.device_rules,
                        .tie_break = b->decisions->tie_break,
                        .patient = b->decisions->patient,
                        .boundary = b->decisions->boundary,
                        .horizon = (uint32_t)b->decisions->horizon };
}

/* Without a drive, parameters that are not trained need no copy in the host tier if the device
 * holds them between programs and the body never evicts them. */
static void drop_far_copies(coh_builder *b)
{
    const coh_residency *body = &b->drafts[COH_PROGRAM_BODY].device;
    uint8_t *keeps_far = b->keeps_far;
    for (uint32_t i = 0; i < b->layout->resident_count; i++)
        keeps_far[b->layout->residents[i].chunk] = 0;
    for (size_t i = 0; i < body->move_count; i++)
        keeps_far[body->moves[i].chunk] =
            (uint8_t)coh_chunk_is_read_only(b->layout, body->moves[i].chunk);
}

/* Closes the holes that all programs placed so far have in common in a tier. Homes, which give all
 * places where no tier is farther out, leave none. */
static coh_status close_holes(coh_builder *b, const coh_level *level, int is_host)
{
    coh_residency *runs[COH_PROGRAM_KIND_COUNT];
    for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT; kind++)
        runs[kind] = is_host ? &b->drafts[kind].host : &b->drafts[kind].device;
    return level->has_far ? coh_holes_close(level, runs, COH_PROGRAM_KIND_COUNT,
                                            b->layout->residents, b->layout->resident_count)
                          : COH_OK;
}

/* Places every program in one tier: the body first, the others within its peak, so that the body's
 * peak is the peak of the run whichever programs run. A program that does not fit there gets the
 * tier's whole capacity. */
static coh_status run_level(coh_builder *b, const coh_level *level,
                            coh_sequence (*sequence_of)(const coh_draft *), int is_host)
{
    coh_draft *body = &b->drafts[COH_PROGRAM_BODY];
    coh_residency *bodys = is_host ? &body->host : &body->device;
    const coh_sequence next = sequence_of(body);
    const coh_resident *residents = b->layout->residents;
    uint32_t resident_count = b->layout->resident_count;
    COH_TRY(coh_residency_run(level, &next, &next, residents, resident_count, bodys));
    if (!is_host && !has_disk(b))
        drop_far_copies(b);
    if (!is_host && has_host(b) && has_disk(b) && b->brief.is_wanted) {
        const coh_sequence brief = coh_draft_sequence(&b->brief);
        COH_TRY(
            coh_residency_run(level, &brief, &brief, residents, resident_count, &b->brief.device));
    }
    COH_TRY(close_holes(b, level, is_host));
    coh_level within = *level;
    if (level->has_far) /* otherwise homes give the places, also beyond the body's peak */
        within.capacity = bodys->peak_bytes;
    for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT; kind++) {
        coh_draft *d = &b->drafts[kind];
        coh_residency *out = is_host ? &d->host : &d->device;
        if (!d->is_wanted || d == body)
            continue;
        coh_sequence sequence = sequence_of(d);
        coh_status status =
            coh_residency_run(&within, &sequence, &next, residents, resident_count, out);
        if (status == COH_ERR_FULL)
            status = coh_residency_run(level, &sequence, &next, residents, resident_count, out);
        COH_TRY(status);
    }
    return close_holes(b, level, is_host);
}

/* All moves over a link take this part of all steps, or of a half of them. */
static const double link_part = 0.25, half_part = 0.5;

/* Orders the moves of a level. With a host tier and a drive fetches run in the order of need,
 * unless it is decided otherwise. */
static coh_status order_level(const coh_builder *b, const coh_step_clock *clock, int is_host,
                              coh_residency *residency)
{
    const int early = b->decisions->early, has_both = has_host(b) && has_disk(b);
    const int is_ordered =
        !has_both || (early != COH_EARLY_NONE && (early == COH_EARLY_READS) == is_host);
    const double part = has_both && early == COH_EARLY_HALF ? half_part : link_part;
    if (is_ordered)
        COH_TRY(coh_fetch_order(b->layout, clock, part, residency));
    return coh_store_order(b->layout, clock, link_part, residency);
}

/* Orders a program's moves into and out of one level. */
static coh_status order_moves(const coh_builder *b, coh_draft *d, int is_host)
{
    coh_step_clock clock = { 0 }, outer = { 0 };
    coh_status status = COH_OK;
    COH_TRY_GOTO(status, coh_step_clock_make(&d->lowered, &clock), done);
    if (!is_host) {
        status = order_level(b, &clock, 0, &d->device);
        goto done;
    }
    COH_TRY_GOTO(status, coh_step_clock_outer(&clock, &d->outer, &outer), done);
    status = order_level(b, &outer, 1, &d->host);
done:
    coh_step_clock_fini(&clock);
    coh_step_clock_fini(&outer);
    return status;
}

/* Orders the moves of every program, and of the brief body's device level. */
static coh_status order_all(coh_builder *b, int is_host)
{
    for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT; kind++)
        if (b->drafts[kind].is_wanted)
            COH_TRY(order_moves(b, &b->drafts[kind], is_host));
    return b->brief.device.move_count > 0 && !is_host ? order_moves(b, &b->brief, 0) : COH_OK;
}

static coh_status place_device(coh_builder *b)
{
    COH_TRY(COH_ALLOC(b->layout->chunk_count, &b->keeps_far));
    for (uint32_t chunk = 0; chunk < b->layout->chunk_count; chunk++)
        b->keeps_far[chunk] = (uint8_t)coh_chunk_is_read_only(b->layout, chunk);
    coh_level level = coh_builder_device_level(b);
    if (!level.has_far) {
        uint8_t *marks = NULL;
        COH_TRY(COH_ALLOC(b->layout->chunk_count, &b->device_homes.offset));
        COH_TRY(COH_ALLOC(b->layout->chunk_count, &marks));
        mark_survivors(b, NULL, marks);
        level.floor_bytes =
            coh_homes_assign(b->layout, marks, level.base_bytes, b->device_homes.offset);
        coh_free(marks);
        level.rules = NULL;
        level.home_offset = b->device_homes.offset;
    }
    coh_sequence body = coh_draft_sequence(brief_body(b));
    int is_only = 0;
    COH_TRY(coh_residency_boundary(&level, &body, &b->layout->residents, &b->layout->resident_count,
                                   &b->resident_capacity, &is_only));
    b->layout->has_only_map = is_only && b->hold_bytes == 0;
    COH_TRY(run_level(b, &level, coh_draft_sequence, 0));
    return level.has_far ? order_all(b, 0) : COH_OK;
}

/* ---- the host level ---- */

static coh_assembly assembly_of(const coh_builder *b, coh_draft *d)
{
    return (coh_assembly){ .layout = b->layout,
                           .lowered = &d->lowered,
                           .operand_begin = d->operand_begin,
                           .device = &d->device,
                           .host = has_host(b) ? &d->host : NULL };
}

/* Refuses a far tier of `room` bytes; a larger one would do. */
static coh_status refuse_tier(coh_builder *b, coh_tier tier, uint64_t room, uint64_t bytes)
{
    coh_refusal refusal = coh_refusal_bytes(COH_REFUSAL_FAR_TIER, tier, room, bytes);
    b->short_of = tier;
    b->short_bytes = bytes;
    refusal.is_gpu = is_gpu(b);
    refusal.microbatch_count = b->options->microbatch_count;
    coh_refusal_raise(&refusal, tier, bytes);
    if (tier == COH_TIER_HOST)
        coh_refusal_add(&refusal, COH_CHANGE_ADD_DISK, 0);
    return coh_refuse(&refusal);
}

/* Fixes what fits beside the window: weights, which forward and backward read, before states; if
 * all have places, then waiting gradients. Other chunks use the home of an absent gradient. */
static coh_status fix_host(coh_builder *b)
{
    const uint64_t room =
        b->options->host_memory_bytes / 64 * (uint64_t)(64 - b->decisions->host_window);
    const coh_outer_list *outer = &b->drafts[COH_PROGRAM_BODY].outer;
    const uint32_t chunks = b->layout->chunk_count;
    const uint8_t *rules = b->pins.host_rules;
    uint8_t *is_used = NULL;
    if (b->decisions->host_window == 0)
        return COH_OK;
    if (b->host_homes.offset == NULL) {
        COH_TRY(COH_ALLOC(chunks, &b->host_homes.offset));
        for (uint32_t chunk = 0; chunk < chunks; chunk++)
            b->host_homes.offset[chunk] = COH_NO_HOME;
    }
    COH_TRY(COH_ALLOC(chunks, &b->host_homes.list));
    COH_TRY(COH_ALLOC(chunks, &is_used));
    for (uint32_t i = 0; i < outer->operand_begin[outer->count]; i++) {
        const coh_lowered_operand *operand = &outer->operands[i];
        const coh_object *object = &b->layout->objects[operand->object];
        for (uint32_t chunk = object->chunk_begin + operand->touch_begin;
             chunk < object->chunk_begin + operand->touch_end; chunk++)
            is_used[chunk] = object->survives && !object->pinned &&
                             (rules == NULL || !(rules[chunk] & COH_CHUNK_AWAY));
    }
    coh_homes_spread(b->layout, is_used, COH_STREAM_WORK, room, &b->host_homes);
    if (coh_homes_spread(b->layout, is_used, COH_STREAM_STATE, room, &b->host_homes))
        coh_homes_spread(b->layout, is_used, COH_STREAM_GRAD, room, &b->host_homes);
    coh_free(is_used);
    return COH_OK;
}

/* Makes the boundary map and places every program. */
static coh_status fill_host(coh_builder *b, const coh_level *level)
{
    coh_sequence body = outer_sequence(brief_body(b));
    int unused;
    COH_TRY(coh_residency_boundary(level, &body, &b->layout->residents, &b->layout->resident_count,
                                   &b->resident_capacity, &unused));
    return run_level(b, level, outer_sequence, 1);
}

/* Marks, of the chunks that only pass while the body runs, as many as fit beside the marked ones:
 * an even share of all, so that the others pass at all times of the body. Returns 1 if any does. */
static int mark_passing(const coh_builder *b, uint64_t room, uint8_t *marks)
{
    enum { MARKED = 1, PASSES = 2 };
    const coh_layout *layout = b->layout;
    const coh_residency *body = &b->drafts[COH_PROGRAM_BODY].device;
    uint64_t bytes[PASSES + 1] = { 0 };
    double due = 0;
    for (size_t i = 0; i < body->move_count; i++)
        if (!marks[body->moves[i].chunk])
            marks[body->moves[i].chunk] = PASSES;
    for (uint32_t chunk = 0; chunk < layout->chunk_count; chunk++)
        bytes[marks[chunk]] += layout->chunks[chunk].bytes;
    const double left = bytes[MARKED] < room ? (double)(room - bytes[MARKED]) : 0;
    const double share = left < (double)bytes[PASSES] ? left / (double)bytes[PASSES] : 1;
    for (uint32_t chunk = 0; chunk < layout->chunk_count; chunk++) {
        if (marks[chunk] != PASSES)
            continue;
        due += share * (double)layout->chunks[chunk].bytes;
        marks[chunk] = due >= (double)layout->chunks[chunk].bytes;
        due -= marks[chunk] ? (double)layout->chunks[chunk].bytes : 0;
    }
    return left > 0;
}

/* Places every program with homes for the marked chunks; the others take the homes of absent
 * chunks, or the lowest free place above all homes. *out_peak: the bytes that would do. */
static coh_status share_host(coh_builder *b, coh_level *level, const uint8_t *marks,
                             uint64_t *out_peak)
{
    level->floor_bytes = coh_homes_share(b->layout, marks, &b->host_homes);
    level->home_chunks = b->host_homes.list;
    level->home_count = b->host_homes.list_count;
    level->capacity = UINT64_MAX;
    COH_TRY(fill_host(b, level));
    *out_peak = 0;
    for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT; kind++)
        if (b->drafts[kind].host.peak_bytes > *out_peak)
            *out_peak = b->drafts[kind].host.peak_bytes;
    return COH_OK;
}

/* Places the host tier without a drive. Each chunk that lies there between programs has a home. So
 * has each chunk that some program moves, if all homes fit; if not, as many of those that the body
 * moves as fit beside a part that is left for the others: a small part, a larger one, all. In the
 * last way no place depends on the tier's size: a tier of its peak would do. */
static coh_status place_without_drive(coh_builder *b, coh_level *level, uint8_t *marks)
{
    static const uint64_t left_parts[] = { 64, 16, 1 };
    const uint64_t room = level->capacity;
    const uint32_t resident_count = b->layout->resident_count;
    uint64_t peak = 0;
    mark_survivors(b, b->held_nearer, marks);
    for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT; kind++)
        for (size_t i = 0; i < b->drafts[kind].device.move_count; i++)
            marks[b->drafts[kind].device.moves[i].chunk] = 1;
    const uint64_t all_bytes = coh_homes_assign(b->layout, marks, 0, b->host_homes.offset);
    if (all_bytes <= room)
        return fill_host(b, level);
    for (size_t i = 0; i < sizeof(left_parts) / sizeof(left_parts[0]); i++) {
        b->layout->resident_count = resident_count;
        mark_survivors(b, b->held_nearer, marks);
        const int is_shared = mark_passing(b, room - room / left_parts[i], marks);
        if (!is_shared && i + 1 < sizeof(left_parts) / sizeof(left_parts[0]))
            continue; /* the last way is the same */
        COH_TRY(share_host(b, level, marks, &peak));
        if (peak <= room)
            return COH_OK;
        for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT; kind++)
            coh_residency_fini(&b->drafts[kind].host);
    }
    return refuse_tier(b, COH_TIER_HOST, room, peak < all_bytes ? peak : all_bytes);
}

static coh_status place_host(coh_builder *b)
{
    COH_TRY(COH_ALLOC(b->layout->chunk_count, &b->held_nearer));
    for (uint32_t i = 0; i < b->layout->resident_count; i++)
        b->held_nearer[b->layout->residents[i].chunk] = 1;
    for (uint32_t i = 0; i < b->layout->object_count; i++)
        if (b->layout->objects[i].pinned) /* has one chunk */
            b->held_nearer[b->layout->objects[i].chunk_begin] = 1;
    for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT; kind++) {
        const coh_assembly assembly = assembly_of(b, &b->drafts[kind]);
        if (b->drafts[kind].is_wanted)
            COH_TRY(coh_outer_list_make(&assembly, &b->drafts[kind].outer));
    }
    if (has_disk(b))
        COH_TRY(fix_host(b));
    if (has_disk(b) && b->brief.is_wanted) {
        const coh_assembly assembly = assembly_of(b, &b->brief);
        COH_TRY(coh_outer_list_make(&assembly, &b->brief.outer));
    }
    coh_level level = { .layout = b->layout,
                        .tier = COH_TIER_HOST,
                        .capacity = whole_pages(b->options->host_memory_bytes),
                        .graph = b->graph,
                        .is_gpu = is_gpu(b),
                        .has_far = has_disk(b),
                        .held_nearer = b->held_nearer,
                        .keeps_far = b->keeps_far,
                        .home_offset = b->host_homes.offset,
                        .home_chunks = b->host_homes.list,
                        .home_count = b->host_homes.list_count,
                        .floor_bytes = b->host_homes.end_bytes,
                        .rules = b->pins.host_rules,
                        .tie_break = COH_TIE_LOWEST,
                        .horizon = (uint32_t)b->decisions->horizon };
    if (has_disk(b)) {
        COH_TRY(fill_host(b, &level));
        return order_all(b, 1);
    }
    uint8_t *marks = NULL;
    const uint32_t chunks = b->layout->chunk_count;
    COH_TRY(COH_ALLOC(chunks, &b->host_homes.offset));
    COH_TRY(COH_ALLOC(chunks, &b->host_homes.list));
    COH_TRY(COH_ALLOC(chunks, &marks));
    level.home_offset = b->host_homes.offset;
    level.rules = NULL;
    const coh_status status = place_without_drive(b, &level, marks);
    coh_free(marks);
    return status;
}

/* ---- final tables ---- */

/* Assigns a place in the working store to every chunk that survives or is ever written out; two,
 * one after the other, to those that a body must not overwrite. */
static coh_status assign_file_offsets(coh_builder *b)
{
    uint8_t *moves = NULL;
    COH_TRY(COH_ALLOC(b->layout->chunk_count, &moves));
    for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT; kind++) {
        const coh_residency *residency =
            has_host(b) ? &b->drafts[kind].host : &b->drafts[kind].device;
        for (size_t i = 0; i < residency->move_count; i++)
            moves[residency->moves[i].chunk] = 1;
    }
    uint64_t offset = 0;
    for (uint32_t chunk = 0; chunk < b->layout->chunk_count; chunk++) {
        const coh_object *object = &b->layout->objects[b->layout->chunks[chunk].object];
        if (!moves[chunk] && (!object->survives || object->pinned))
            continue;
        b->layout->chunks[chunk].file_offset = offset;
        offset += b->layout->chunks[chunk].bytes;
        if (!coh_chunk_keeps_old(b->layout, chunk))
            continue;
        b->layout->chunks[chunk].odd_offset = offset;
        offset += b->layout->chunks[chunk].bytes;
    }
    coh_free(moves);
    b->layout->file_bytes = offset;
    return offset <= b->options->disk_bytes
               ? COH_OK
               : refuse_tier(b, COH_TIER_DISK, b->options->disk_bytes, offset);
}

static coh_access_matrix access_matrix(const coh_builder *b)
{
    coh_access_matrix m = { 0 };
    uint8_t device = 1u << COH_TIER_DEVICE, host = 1u << COH_TIER_HOST, disk = 1u << COH_TIER_DISK;
    uint8_t beside_disk = has_host(b) ? host : device;
    m.reads[COH_LANE_COMPUTE] = m.writes[COH_LANE_COMPUTE] = device;
    m.reads[COH_LANE_H2D] = m.writes[COH_LANE_D2H] = has_host(b) ? host : 0;
    m.writes[COH_LANE_H2D] = m.reads[COH_LANE_D2H] = has_host(b) ? device : 0;
    m.reads[COH_LANE_HOST] = m.writes[COH_LANE_HOST] = has_host(b) ? host : 0;
    m.reads[COH_LANE_READ] = m.writes[COH_LANE_WRITE] = has_disk(b) ? disk : 0;
    m.writes[COH_LANE_READ] = m.reads[COH_LANE_WRITE] = has_disk(b) ? beside_disk : 0;
    if (coh_layout_rank_count(b->layout) > 1)
        for (int lane = COH_LANE_COMM0; lane <= COH_LANE_COMM1; lane++)
            m.reads[lane] = m.writes[lane] = device;
    return m;
}

/* Releases the tables; accepts a released draft. */
static void fini_draft(coh_draft *d)
{
    coh_lowered_fini(&d->lowered);
    coh_free(d->operand_begin);
    d->operand_begin = NULL;
    coh_residency_fini(&d->device);
    coh_residency_fini(&d->host);
    coh_outer_list_fini(&d->outer);
}

static coh_status finish(coh_builder *b, coh_program *programs)
{
    coh_layout *layout = b->layout;
    fini_draft(&b->brief); /* only the boundary maps are made from it */
    for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT; kind++)
        coh_outer_list_fini(&b->drafts[kind].outer);
    if (has_disk(b))
        COH_TRY(assign_file_offsets(b));
    layout->access = access_matrix(b);
    for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT; kind++) {
        coh_draft *d = &b->drafts[kind];
        coh_program *program = &programs[kind];
        if (!d->is_wanted)
            continue;
        const coh_assembly assembly = assembly_of(b, d);
        const coh_pattern_scene scene = { b->graph, layout, &b->map };
        COH_TRY(coh_assemble(&assembly, program));
        fini_draft(d); /* before the waits, whose tables are as large */
        COH_TRY(coh_pattern_check(&scene, program));
        for (int lane = 0; lane < COH_LANE_COUNT; lane++) /* ranks exchange one window at a time */
            program->lane_depth[lane] = b->profile->link[lane].depth && lane < COH_LANE_COMM0
                                            ? b->profile->link[lane].depth
                                            : 1;
        program->peak_bytes[COH_TIER_DISK] = layout->file_bytes;
        for (int tier = 0; tier < COH_TIER_COUNT; tier++)
            if (program->peak_bytes[tier] > layout->arena_bytes[tier])
                layout->arena_bytes[tier] = program->peak_bytes[tier];
        COH_TRY(coh_waits_derive(layout, program));
    }
    return COH_OK;
}

void coh_builder_fini(coh_builder *b)
{
    for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT; kind++)
        fini_draft(&b->drafts[kind]);
    fini_draft(&b->brief);
    coh_object_map_fini(&b->map);
    coh_free(b->device_homes.offset);
    coh_free(b->host_homes.offset);
    coh_free(b->host_homes.list);
    coh_free(b->held_nearer);
    coh_free(b->keeps_far);
    coh_pin_map_fini(&b->pins);
}

coh_status coh_builder_take_pins(coh_builder *b)
{
    const uint32_t chunks = b->layout->chunk_count;
    b->recompute = b->decisions->recompute;
    if (b->options->pin_count == 0 && b->decisions->resident == 0 && !b->layout->keeps_old)
        return COH_OK;
    COH_TRY(coh_pin_map_make(b->graph, b->options, b->decisions->resident, b->layout, &b->map,
                             &b->pins));
    coh_pin_map_blocks(&b->pins, b->graph, &b->recompute);
    if (b->pins.on_device != NULL && (has_host(b) || has_disk(b))) {
        COH_TRY(COH_ALLOC(chunks, &b->device_homes.offset));
        b->device_homes.end_bytes = coh_homes_assign(
            b->layout, b->pins.on_device, b->layout->pinned_bytes, b->device_homes.offset);
    }
    if (b->pins.on_host != NULL && has_host(b) && has_disk(b)) {
        COH_TRY(COH_ALLOC(chunks, &b->host_homes.offset));
        b->host_homes.end_bytes =
            coh_homes_assign(b->layout, b->pins.on_host, 0, b->host_homes.offset);
    }
    return COH_OK;
}

/* Pins parameters and states of the first groups to the device, whole objects up to `hold_bytes`,
 * because a host tier without a drive is too small for them. Leaves out objects that the host lane
 * updates, and objects that pins send away. */
static coh_status hold_on_device(coh_builder *b)
{
    const coh_layout *layout = b->layout;
    const coh_lowered *body = &b->drafts[COH_PROGRAM_BODY].lowered;
    uint8_t *is_far = NULL; /* by object */
    uint64_t bytes = 0;
    if (b->hold_bytes == 0)
        return COH_OK;
    if (b->pins.on_device == NULL) {
        COH_TRY(COH_ALLOC(layout->chunk_count, &b->pins.on_device));
        COH_TRY(COH_ALLOC(layout->chunk_count, &b->device_homes.offset));
    }
    COH_TRY(COH_ALLOC(layout->object_count, &is_far));
    for (size_t i = 0; i < body->operand_count; i++)
        is_far[body->operands[i].object] |= body->operands[i].is_far;
    for (uint32_t i = 0; i < layout->object_count && bytes < b->hold_bytes; i++) {
        const coh_object *object = &layout->objects[i];
        const int is_sent_away =
            b->pins.device_rules != NULL && b->pins.device_rules[object->chunk_begin] != 0;
        if (is_far[i] || is_sent_away || object->pinned || !object->survives ||
            object->stream == COH_STREAM_GRAD)
            continue;
        memset(b->pins.on_device + object->chunk_begin, 1, object->chunk_count);
        bytes += object->bytes;
    }
    b->device_homes.end_bytes =
        coh_homes_assign(layout, b->pins.on_device, layout->pinned_bytes, b->device_homes.offset);
    coh_free(is_far);
    return COH_OK;
}

static uint64_t count_survivors(const coh_layout *layout)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < layout->object_count; i++)
        if (layout->objects[i].survives && !layout->objects[i].pinned)
            bytes += layout->objects[i].bytes;
    return bytes;
}

static coh_status build(coh_builder *b, int all, coh_program *programs)
{
    COH_TRY(coh_layout_build(b->graph, b->options, b->decisions, b->layout, &b->map));
    b->layout->keeps_old = has_disk(b) && coh_plan_speculates(b->options);
    b->survivor_bytes = count_survivors(b->layout);
    COH_TRY(coh_builder_take_pins(b));
    for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT; kind++)
        if (all || kind == COH_PROGRAM_BODY)
            COH_TRY(coh_builder_lower(b, (coh_program_kind)kind, coh_builder_microbatches(b),
                                      &b->drafts[kind]));
    COH_TRY(lower_brief_body(b));
    COH_TRY(hold_on_device(b));
    COH_TRY(place_device(b));
    if (has_host(b))
        COH_TRY(place_host(b));
    return finish(b, programs);
}

static coh_status build_and_release(coh_builder *b, int all, coh_program *programs)
{
    memset(programs, 0, COH_PROGRAM_KIND_COUNT * sizeof(*programs));
    *b->layout = (coh_layout){ 0 };
    const coh_status status = build(b, all, programs);
    coh_builder_fini(b);
    for (int kind = 0; status != COH_OK && kind < COH_PROGRAM_KIND_COUNT; kind++)
        coh_program_fini(&programs[kind]);
    if (status != COH_OK) {
        coh_layout_fini(b->layout);
        b->layout->arena_bytes[b->short_of] = b->short_bytes;
    }
    return status;
}

/* Returns the device bytes to hold at a further attempt (1, 2 or 3): a quarter, half or three
 * quarters, beginning with the least that takes the survivors beyond the host tier. */
static uint64_t held_bytes(const coh_builder *b, uint64_t survivor_bytes, uint64_t attempt)
{
    const uint64_t room = b->options->host_memory_bytes, quarter = b->decisions->device_bytes / 4;
    uint64_t first = 1;
    while (first < 3 && survivor_bytes > room && quarter * first < survivor_bytes - room)
        first++;
    return quarter * (1 + (first + attempt - 2) % 3);
}

/* If the host tier is too small, builds again with a part of the device held. The parts do not
 * depend on the tier's size: the least size of them all would do. */
coh_status coh_schedule_build(const coh_graph *graph, const coh_plan_options *options,
                              const coh_profile *profile, const coh_decisions *decisions,
                              int32_t microbatches, int all, coh_layout *out_layout,
                              coh_program *out_programs)
{
    enum { ATTEMPTS = 4 };
    coh_refusal refusal = { .struct_bytes = sizeof(refusal) };
    uint64_t least_bytes = UINT64_MAX, survivor_bytes = 0;
    if (decisions->in_memory && coh_plan_speculates(options))
        return coh_fail(COH_ERR_INTERNAL, "in memory a step that speculates cannot be taken back");
    for (uint64_t attempt = 0; attempt < ATTEMPTS; attempt++) {
        coh_builder b = { .graph = graph,
                          .options = options,
                          .profile = profile,
                          .decisions = decisions,
                          .layout = out_layout,
                          .written_microbatches = microbatches };
        if (attempt > 0)
            b.hold_bytes = held_bytes(&b, survivor_bytes, attempt);
        const coh_status status = build_and_release(&b, all, out_programs);
        if (status != COH_ERR_FULL || (attempt == 0 && b.short_of != COH_TIER_HOST))
            return status;
        survivor_bytes = b.survivor_bytes;
        if (b.short_bytes > 0 && b.short_bytes < least_bytes) {
            least_bytes = b.short_bytes;
            (void)coh_last_refusal(&refusal);
        }
    }
    *out_layout = (coh_layout){ .arena_bytes[COH_TIER_HOST] = least_bytes };
    return coh_refuse(&refusal);
}
