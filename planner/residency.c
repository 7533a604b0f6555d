/* Runs a sequence of steps through one tier: places the windows of each step, evicts and fetches,
 * and records moves and extents. The idea: decisions are made step by step with the next use of
 * every chunk known. Places are chosen in residency_choose.c, the boundary map is made in
 * residency_boundary.c; the rule is in residency.h. */
#include "planner/residency.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/refusal.h"
#include "planner/effort.h"
#include "planner/graph.h"
#include "planner/lower.h"
#include "planner/residency_state.h"

/* Merge free neighbours every this many steps: merging walks the whole map. */
enum { SETTLE_STEPS = 8 };

/* A chunk that a pin sends away is evicted if it will not be used for this many steps: the time to
 * leave and return, or neighbouring instructions would wait. */
enum { IDLE_STEPS = 8 };

/* Frees the segment of a chunk. Content that was changed here and written out is still read by its
 * STORE, at the earliest after its last producer; how much later is not known yet. */
static void release(coh_runner *r, int32_t segment)
{
    coh_segment *s = &r->map.segments[segment];
    if (r->far_version[s->chunk] >= 0 && r->last_write[s->chunk] > s->last_moved)
        s->last_moved = r->last_write[s->chunk];
    coh_vacancy_release(&r->vacancy, (uint32_t)s->chunk, s->offset, s->bytes);
    coh_arena_map_release(&r->map, segment);
}

static coh_status add_extent(coh_runner *r, uint32_t chunk, uint64_t offset, uint32_t *out_extent)
{
    coh_residency *out = r->out;
    *out_extent = 0;
    if (out == NULL)
        return COH_OK;
    COH_TRY(coh_effort_check_count(out->extent_count + 1, COH_UNIT_EXTENTS));
    COH_TRY(COH_EXTEND(&out->extents, &out->extent_capacity, out->extent_count + 1));
    uint64_t bytes = coh_runner_chunk(r, chunk)->bytes;
    out->extents[out->extent_count] = (coh_extent){
        .offset = offset, .bytes = bytes, .chunk = chunk, .tier = (uint8_t)r->level->tier
    };
    if (offset + bytes > out->peak_bytes)
        out->peak_bytes = offset + bytes;
    *out_extent = (uint32_t)out->extent_count++;
    return COH_OK;
}

static coh_status add_move(coh_runner *r, uint32_t chunk, uint32_t extent, int32_t step, int is_out)
{
    coh_residency *out = r->out;
    if (out == NULL)
        return COH_OK;
    COH_TRY(COH_EXTEND(&out->moves, &out->move_capacity, out->move_count + 1));
    out->moves[out->move_count++] = (coh_move){ .chunk = chunk,
                                                .extent = extent,
                                                .version = r->version[chunk],
                                                .step = step,
                                                .is_out = (uint8_t)is_out };
    out->extents[extent].use_count++;
    return COH_OK;
}

/* Writes the chunk's content out after the step, at the latest before the present one, which may
 * take its place. */
static coh_status store(coh_runner *r, uint32_t chunk, uint32_t extent, int32_t step)
{
    const int32_t now = (int32_t)r->step;
    r->far_step[chunk] = step;
    r->far_version[chunk] = r->version[chunk];
    COH_TRY(add_move(r, chunk, extent, step, 1));
    if (r->out != NULL)
        r->out->moves[r->out->move_count - 1].latest = now - 1 > step ? now - 1 : step;
    return COH_OK;
}

/* Fetches the content of a segment for the present step. Its place is free after the last use of
 * anything that lay there. */
static coh_status fetch(coh_runner *r, const coh_segment *segment)
{
    const uint32_t chunk = (uint32_t)segment->chunk;
    const int32_t step = (int32_t)r->step, made = r->far_step[chunk];
    const int32_t last = segment->last_use > made ? segment->last_use : made;
    assert(last < step);
    COH_TRY(add_move(r, chunk, segment->extent, step, 0));
    if (r->out != NULL)
        r->out->moves[r->out->move_count - 1].earliest = last + 1;
    return COH_OK;
}

static void snapshot_lost(coh_runner *r, uint32_t chunk)
{
    if (r->snapshot == NULL || r->snapshot[chunk] != SNAPSHOT_OPEN)
        return;
    r->snapshot[chunk] = SNAPSHOT_GONE;
    r->open_count--;
}

/* Evicts the content of a segment: writes it out if it is needed and changed. */
static coh_status evict(coh_runner *r, int32_t segment)
{
    coh_segment *s = &r->map.segments[segment];
    uint32_t chunk = (uint32_t)s->chunk;
    if (s->extent != COH_NO_EXTENT && coh_next_use_is_needed(&r->next, chunk) &&
        r->far_version[chunk] != r->version[chunk])
        COH_TRY(store(r, chunk, s->extent, r->last_write[chunk]));
    snapshot_lost(r, chunk);
    release(r, segment);
    return COH_OK;
}

/* ---- placing the windows of a step ---- */

/* Returns 1 if the window is resident in one piece. */
static int stands(const coh_runner *r, const coh_lowered_operand *operand)
{
    uint32_t window_first = coh_runner_first_chunk(r, operand) + operand->window_begin;
    int32_t first = r->map.segment_of_chunk[window_first];
    if (first < 0)
        return 0;
    uint64_t base = r->map.segments[first].offset;
    for (uint32_t i = operand->window_begin; i < operand->window_end; i++) {
        uint32_t chunk = coh_runner_first_chunk(r, operand) + i;
        int32_t segment = r->map.segment_of_chunk[chunk];
        if (segment < 0 ||
            r->map.segments[segment].offset != base + coh_runner_chunk(r, chunk)->object_offset -
                                                   coh_runner_chunk(r, window_first)->object_offset)
            return 0;
    }
    return 1;
}

static void pin(coh_runner *r, const coh_lowered_operand *operand)
{
    for (uint32_t i = operand->window_begin; i < operand->window_end; i++)
        r->map.segments[r->map.segment_of_chunk[coh_runner_first_chunk(r, operand) + i]].pin_step =
            r->step;
}

/* Reserves a segment at a free place for a chunk that has none. */
static coh_status reserve(coh_runner *r, uint32_t chunk, uint64_t offset)
{
    const uint64_t bytes = coh_runner_chunk(r, chunk)->bytes;
    COH_TRY(coh_arena_map_take(&r->map, chunk, offset, bytes));
    coh_vacancy_take(&r->vacancy, chunk, offset, bytes);
    coh_arena_map_set_next_use(&r->map, r->map.segment_of_chunk[chunk],
                               coh_next_use_step(&r->next, chunk));
    return COH_OK;
}

/* Evicts what lies at `offset` and reserves a segment for each chunk of the window that has none
 * there. */
static coh_status take_place(coh_runner *r, const coh_lowered_operand *operand, uint64_t offset)
{
    uint64_t bytes = coh_runner_window_bytes(r, operand);
    uint32_t window_first = coh_runner_first_chunk(r, operand) + operand->window_begin;
    uint32_t window_last = coh_runner_first_chunk(r, operand) + operand->window_end - 1;
    uint64_t origin = coh_runner_chunk(r, window_first)->object_offset;
    for (uint32_t chunk = window_first; chunk <= window_last; chunk++) {
        int32_t segment = r->map.segment_of_chunk[chunk];
        if (segment >= 0 && r->map.segments[segment].offset !=
                                offset + coh_runner_chunk(r, chunk)->object_offset - origin)
            COH_TRY(evict(r, segment));
    }
    for (int32_t i = coh_arena_map_at(&r->map, offset); i >= 0;) {
        int32_t next = r->map.segments[i].next;
        const coh_segment *s = &r->map.segments[i];
        int is_own = s->chunk >= 0 && (uint32_t)s->chunk >= window_first &&
                     (uint32_t)s->chunk <= window_last;
        if (s->offset >= offset + bytes)
            break;
        if (s->chunk >= 0 && !is_own && s->offset + s->bytes > offset)
            COH_TRY(evict(r, i));
        i = next;
    }
    for (uint32_t chunk = window_first; chunk <= window_last; chunk++)
        if (r->map.segment_of_chunk[chunk] < 0)
            COH_TRY(reserve(r, chunk, offset + coh_runner_chunk(r, chunk)->object_offset - origin));
    return COH_OK;
}

/* Places one window; *out_placed is 0 if there is no space besides what this step already holds. */
static coh_status place_window(coh_runner *r, const coh_lowered_operand *operand, int *out_placed)
{
    *out_placed = 1;
    if (coh_is_pinned_here(r->level, operand))
        return COH_OK;
    if (!stands(r, operand)) {
        uint64_t offset = 0;
        uint32_t window_first = coh_runner_first_chunk(r, operand) + operand->window_begin;
        if (coh_level_has_home(r->level, window_first))
            offset = r->level->home_offset[window_first];
        else
            *out_placed = coh_residency_choose(r, operand, &offset);
        if (*out_placed)
            COH_TRY(take_place(r, operand, offset));
        r->last_begin = offset;
        r->last_end = offset + coh_runner_window_bytes(r, operand);
    }
    if (*out_placed)
        pin(r, operand);
    return COH_OK;
}

/* ---- in place ---- */

/* Operands of a step that have a bit in coh_runner.takers; the others take no place. */
enum { TAKERS_MOST = 64 };

static int takes_place(const coh_runner *r, uint32_t i)
{
    return i < TAKERS_MOST && (r->takers >> i & 1) != 0;
}

static void find_takers(coh_runner *r, const coh_lowered_operand *operands, uint32_t count)
{
    r->takers = 0;
    for (uint32_t i = 0; i < count && i < TAKERS_MOST; i++)
        if (coh_level_takes(r->level, operands, &operands[i]))
            r->takers |= UINT64_C(1) << i;
}

/* Gives the place of operand `taken`, which the step reads for the last time, to `operand`. */
static coh_status take_over(coh_runner *r, const coh_lowered_operand *taken,
                            const coh_lowered_operand *operand)
{
    const uint32_t from = coh_runner_first_chunk(r, taken), to = coh_runner_first_chunk(r, operand);
    for (uint32_t i = operand->window_begin; i < operand->window_end; i++) {
        const int32_t segment = r->map.segment_of_chunk[from + i];
        const uint64_t offset = r->map.segments[segment].offset;
        r->map.segments[segment].last_use = (int32_t)r->step;
        release(r, segment);
        COH_TRY(reserve(r, to + i, offset));
    }
    pin(r, operand);
    return COH_OK;
}

/* The bytes of the window of operand begin + i; 0: it is far, or takes another one's place. The
 * first ones are listed, since they are compared again for each size. */
enum { LISTED_WINDOWS = 16 };
static uint64_t window_bytes(const coh_runner *r, const coh_lowered_operand *operands, uint32_t i,
                             const uint64_t *listed)
{
    if (i < LISTED_WINDOWS && listed != NULL)
        return listed[i];
    return operands[i].is_far || takes_place(r, i) ? 0 : coh_runner_window_bytes(r, &operands[i]);
}

/* Places all windows of the step's operands [begin, end): resident ones first, then the largest
 * first. */
static coh_status place_step(coh_runner *r, uint32_t begin, uint32_t end, int *out_placed)
{
    const coh_lowered_operand *operands = &r->sequence->operands[begin];
    const uint32_t count = end - begin;
    uint64_t listed[LISTED_WINDOWS];
    find_takers(r, operands, count);
    for (uint32_t i = 0; i < count && i < LISTED_WINDOWS; i++)
        listed[i] = window_bytes(r, operands, i, NULL);
    *out_placed = 1;
    for (uint32_t i = 0; i < count; i++)
        if (!operands[i].is_far && !coh_is_pinned_here(r->level, &operands[i]) &&
            stands(r, &operands[i]))
            pin(r, &operands[i]);
    uint64_t ceiling = UINT64_MAX;
    for (;;) {
        uint64_t largest = 0;
        for (uint32_t i = 0; i < count; i++) {
            const uint64_t bytes = window_bytes(r, operands, i, listed);
            if (bytes < ceiling && bytes > largest)
                largest = bytes;
        }
        if (largest == 0)
            return COH_OK;
        for (uint32_t i = 0; i < count; i++) {
            if (window_bytes(r, operands, i, listed) != largest)
                continue;
            COH_TRY(place_window(r, &operands[i], out_placed));
            if (!*out_placed)
                return COH_OK;
        }
        ceiling = largest;
    }
}

/* Evicts every chunk that no pin holds. */
static coh_status evict_all(coh_runner *r)
{
    for (int32_t i = r->map.first; i >= 0;) {
        int32_t next = r->map.segments[i].next, chunk = r->map.segments[i].chunk;
        if (chunk >= 0 && !coh_level_has_home(r->level, (uint32_t)chunk) &&
            !(coh_level_has_rule(r->level, (uint32_t)chunk, COH_CHUNK_STAYS) &&
              coh_next_use_is_needed(&r->next, (uint32_t)chunk)))
            COH_TRY(evict(r, i));
        i = next;
    }
    coh_arena_map_settle(&r->map, INT64_MAX);
    return COH_OK;
}

/* ---- content ---- */

static coh_status pinned_extent(coh_runner *r, uint32_t chunk, uint32_t *out_extent)
{
    *out_extent = 0;
    if (r->out == NULL)
        return COH_OK;
    if (r->pinned_extent[chunk] == COH_NO_EXTENT) {
        COH_TRY(add_extent(r, chunk,
                           r->layout->objects[coh_runner_chunk(r, chunk)->object].pinned_offset,
                           &r->pinned_extent[chunk]));
        r->out->extents[r->pinned_extent[chunk]].at_begin = 1;
        r->out->extents[r->pinned_extent[chunk]].at_end = 1;
    }
    *out_extent = r->pinned_extent[chunk];
    return COH_OK;
}

/* Makes the chunk's bytes present: fetches them, unless they are overwritten whole. */
static coh_status acquire(coh_runner *r, uint32_t chunk, int reads, uint32_t *out_extent)
{
    coh_segment *s = &r->map.segments[r->map.segment_of_chunk[chunk]];
    if (s->extent == COH_NO_EXTENT) {
        COH_TRY(add_extent(r, chunk, s->offset, &s->extent));
        if (reads) {
            if (r->far_version[chunk] != r->version[chunk])
                return coh_fail(COH_ERR_INTERNAL,
                                "step %u reads chunk %u version %d, which is nowhere", r->step,
                                chunk, r->version[chunk]);
            COH_TRY(fetch(r, s));
        }
    } else if (r->snapshot != NULL && r->snapshot[chunk] == SNAPSHOT_OPEN) {
        r->snapshot[chunk] = reads ? SNAPSHOT_HIT : SNAPSHOT_GONE;
        r->open_count--;
    }
    *out_extent = s->extent;
    return COH_OK;
}

/* Adds the extent (COH_NO_EXTENT: farther out) and version of the next touch of the newest
 * placing. */
static coh_status add_touch(coh_runner *r, uint32_t chunk, uint32_t extent)
{
    coh_residency *out = r->out;
    if (out == NULL)
        return COH_OK;
    COH_TRY(coh_effort_check_count(out->touch_count + 1, COH_UNIT_CHUNK_USES));
    COH_TRY(COH_EXTEND(&out->touch_extents, &out->touch_extent_capacity, out->touch_count + 1));
    COH_TRY(COH_EXTEND(&out->touch_versions, &out->touch_version_capacity, out->touch_count + 1));
    out->touch_extents[out->touch_count] = extent;
    out->touch_versions[out->touch_count++] = r->version[chunk];
    if (extent != COH_NO_EXTENT)
        out->extents[extent].use_count++;
    return COH_OK;
}

static coh_status touch_chunk(coh_runner *r, const coh_lowered_operand *operand, uint32_t chunk,
                              int32_t given_version)
{
    int reads = (operand->access & COH_ACCESS_READ) != 0;
    int writes = (operand->access & COH_ACCESS_WRITE) != 0;
    uint32_t extent = COH_NO_EXTENT;
    if (coh_is_pinned_here(r->level, operand))
        COH_TRY(pinned_extent(r, chunk, &extent));
    else
        COH_TRY(acquire(r, chunk, reads, &extent));
    if (given_version >= 0)
        r->version[chunk] = given_version;
    COH_TRY(add_touch(r, chunk, extent));
    if (writes) {
        /* a mover keeps the version that it is given */
        r->version[chunk] += given_version < 0 || reads;
        r->last_write[chunk] = (int32_t)r->step;
        r->far_version[chunk] = -1;
    }
    return COH_OK;
}

/* Returns the step after which changed content leaves for an instruction of the host lane: its last
 * producer, or of a pinned object the step before the last producer of any operand. FEED writes the
 * cells when a step begins, and their copy in the host tier is read until the updates of the step
 * before have ended. A STORE over it waits for them, and the activations of a forward would wait
 * behind it. */
static int32_t leaves_after(const coh_runner *r, const coh_lowered_operand *operand, uint32_t chunk,
                            uint32_t local_step)
{
    const coh_sequence *sequence = r->sequence;
    int32_t step = r->last_write[chunk];
    for (uint32_t i = sequence->operand_begin[local_step];
         coh_is_pinned_here(r->level, operand) && i < sequence->operand_begin[local_step + 1];
         i++) {
        const coh_lowered_operand *other = &sequence->operands[i];
        const int32_t made = r->last_write[coh_runner_first_chunk(r, other) + other->touch_begin];
        step = made - 1 > step ? made - 1 : step;
    }
    return step;
}

/* An instruction of the host lane reads, or reads and writes, the chunk in the next tier out.
 * Content changed here is written there first; a write makes the copy here stale. */
static coh_status touch_far(coh_runner *r, const coh_lowered_operand *operand, uint32_t chunk,
                            uint32_t local_step)
{
    int32_t segment = coh_is_pinned_here(r->level, operand) ? -1 : r->map.segment_of_chunk[chunk];
    uint32_t extent = segment >= 0 ? r->map.segments[segment].extent : COH_NO_EXTENT;
    if (coh_is_pinned_here(r->level, operand))
        COH_TRY(pinned_extent(r, chunk, &extent));
    if (r->far_version[chunk] != r->version[chunk]) {
        if (extent == COH_NO_EXTENT)
            return coh_fail(COH_ERR_INTERNAL, "step %u wants chunk %u version %d, which is nowhere",
                            r->step, chunk, r->version[chunk]);
        COH_TRY(store(r, chunk, extent, leaves_after(r, operand, chunk, local_step)));
    }
    COH_TRY(add_touch(r, chunk, COH_NO_EXTENT));
    if (!(operand->access & COH_ACCESS_WRITE))
        return COH_OK;
    r->far_version[chunk] = ++r->version[chunk];
    r->far_step[chunk] = (int32_t)r->step;
    snapshot_lost(r, chunk);
    if (segment >= 0)
        release(r, segment);
    return COH_OK;
}

/* Begins the placing of the next operand. */
static coh_status add_placing(coh_runner *r)
{
    coh_residency *out = r->out;
    if (out == NULL)
        return COH_OK;
    COH_TRY(COH_EXTEND(&out->placings, &out->placing_capacity, out->placing_count + 1));
    out->placings[out->placing_count++] =
        (coh_placing){ .touch_begin = (uint32_t)out->touch_count };
    return COH_OK;
}

/* Ends the newest placing: its first touch gives its offset. */
static void end_placing(coh_runner *r)
{
    coh_residency *out = r->out;
    if (out == NULL)
        return;
    coh_placing *placing = &out->placings[out->placing_count - 1];
    placing->offset = out->extents[out->touch_extents[placing->touch_begin]].offset;
}

static coh_status touch_step(coh_runner *r, uint32_t local_step)
{
    const coh_sequence *sequence = r->sequence;
    const uint32_t begin = sequence->operand_begin[local_step];
    for (uint32_t i = begin; i < sequence->operand_begin[local_step + 1]; i++) {
        const coh_lowered_operand *operand = &sequence->operands[i];
        int32_t given = sequence->operand_version != NULL ? sequence->operand_version[i] : -1;
        if (takes_place(r, i - begin))
            COH_TRY(take_over(r, &sequence->operands[begin + operand->takes - 1], operand));
        COH_TRY(add_placing(r));
        for (uint32_t k = operand->touch_begin; k < operand->touch_end; k++) {
            uint32_t chunk = coh_runner_first_chunk(r, operand) + k;
            COH_TRY(operand->is_far ? touch_far(r, operand, chunk, local_step)
                                    : touch_chunk(r, operand, chunk, given));
        }
        if (!operand->is_far)
            end_placing(r);
    }
    return COH_OK;
}

/* After a step: records the uses, frees dead content, and evicts idle chunks that pins send
 * away. */
static coh_status leave_step(coh_runner *r, uint32_t local_step)
{
    const coh_sequence *sequence = r->sequence;
    coh_next_use_advance(&r->next, r->step, sequence, local_step, r->layout);
    for (uint32_t i = sequence->operand_begin[local_step];
         i < sequence->operand_begin[local_step + 1]; i++) {
        const coh_lowered_operand *operand = &sequence->operands[i];
        if (coh_is_pinned_here(r->level, operand))
            continue;
        for (uint32_t k = operand->touch_begin; k < operand->touch_end; k++) {
            uint32_t chunk = coh_runner_first_chunk(r, operand) + k;
            int32_t segment = r->map.segment_of_chunk[chunk];
            if (segment < 0) {
                coh_vacancy_renew(&r->vacancy, chunk);
                continue;
            }
            r->map.segments[segment].last_use = (int32_t)r->step;
            if (!r->is_compute)
                r->map.segments[segment].last_moved = (int32_t)r->step;
            coh_arena_map_set_next_use(&r->map, segment, coh_next_use_step(&r->next, chunk));
            if (!coh_next_use_is_needed(&r->next, chunk)) {
                snapshot_lost(r, chunk);
                release(r, segment);
            } else if (coh_level_has_rule(r->level, chunk, COH_CHUNK_LEAVES) &&
                       r->map.segments[segment].next_use > r->step + IDLE_STEPS) {
                COH_TRY(evict(r, segment));
            }
        }
    }
    if (!r->is_fixed && r->step % SETTLE_STEPS == 0)
        coh_arena_map_settle(&r->map, (int64_t)r->step - 2 * (int64_t)r->level->horizon);
    return COH_OK;
}

static coh_status refuse_step(const coh_runner *r, uint32_t step)
{
    const coh_lowered *lowered = r->sequence->lowered;
    const int32_t op = lowered != NULL ? coh_lowered_operator(lowered, step) : -1;
    coh_refusal refusal = coh_refusal_make(COH_REFUSAL_WINDOW);
    refusal.tier = r->level->tier;
    refusal.is_gpu = r->level->is_gpu;
    refusal.given_bytes = r->level->capacity;
    if (op >= 0)
        snprintf(refusal.operator_name, sizeof(refusal.operator_name), "%s",
                 r->level->graph->ops[op].name);
    coh_refusal_raise(&refusal, r->level->tier, 0);
    coh_refusal_add(&refusal, COH_CHANGE_LOWER_CHUNK, 0);
    return coh_refuse(&refusal);
}

coh_status coh_runner_step(coh_runner *r, uint32_t local_step)
{
    const coh_sequence *sequence = r->sequence;
    uint32_t begin = sequence->operand_begin[local_step],
             end = sequence->operand_begin[local_step + 1];
    int placed = 0;
    r->is_compute =
        sequence->lowered != NULL && sequence->lowered->instructions[local_step].comm == 0;
    COH_TRY(place_step(r, begin, end, &placed));
    if (!placed && r->level->has_far) {
        /* A window that returned to its boundary place may have split the free space. */
        COH_TRY(evict_all(r));
        r->packs = 1;
        COH_TRY(place_step(r, begin, end, &placed));
        r->packs = 0;
    }
    if (!placed)
        return refuse_step(r, local_step);
    COH_TRY(touch_step(r, local_step));
    return leave_step(r, local_step);
}

/* ---- begin and end ---- */

int coh_runner_holds_between(const coh_runner *r, uint32_t chunk)
{
    const coh_object *object = &r->layout->objects[coh_runner_chunk(r, chunk)->object];
    return object->survives && !object->pinned &&
           !(r->level->held_nearer != NULL && r->level->held_nearer[chunk]);
}

/* Returns 1 if a copy exists farther out between programs, in addition to any nearer copy. */
static int stays_far(const coh_runner *r, uint32_t chunk)
{
    return r->level->has_far && r->level->keeps_far[chunk];
}

coh_status coh_runner_begin(coh_runner *r)
{
    for (uint32_t chunk = 0; chunk < r->layout->chunk_count; chunk++) {
        int is_far = coh_runner_holds_between(r, chunk) && r->level->has_far;
        r->boundary_offset[chunk] = UINT64_MAX;
        r->far_version[chunk] = is_far || stays_far(r, chunk) ? 0 : -1;
        r->last_write[chunk] = r->far_step[chunk] = -1;
        r->pinned_extent[chunk] = COH_NO_EXTENT;
    }
    for (uint32_t i = 0; i < r->resident_count; i++) {
        const coh_resident *resident = &r->residents[i];
        if (resident->tier != r->level->tier)
            continue;
        r->boundary_offset[resident->chunk] = resident->offset;
        if (!stays_far(r, resident->chunk))
            r->far_version[resident->chunk] = -1;
        if (r->sequence->starts_empty && !coh_next_use_is_needed(&r->next, resident->chunk))
            continue; /* overwritten before it is read */
        COH_TRY(reserve(r, resident->chunk, resident->offset));
        coh_segment *s = &r->map.segments[r->map.segment_of_chunk[resident->chunk]];
        COH_TRY(add_extent(r, resident->chunk, resident->offset, &s->extent));
        if (r->out != NULL)
            r->out->extents[s->extent].at_begin = 1;
    }
    return COH_OK;
}

/* Restores the boundary map: first evicts chunks that lie elsewhere. */
static coh_status end_run(coh_runner *r)
{
    for (int32_t i = r->map.first; i >= 0;) {
        int32_t next = r->map.segments[i].next;
        const coh_segment *s = &r->map.segments[i];
        if (s->chunk >= 0 && r->boundary_offset[s->chunk] != s->offset)
            COH_TRY(evict(r, i));
        i = next;
    }
    for (uint32_t i = 0; i < r->resident_count; i++) {
        const coh_resident *resident = &r->residents[i];
        if (resident->tier != r->level->tier)
            continue;
        if (r->map.segment_of_chunk[resident->chunk] < 0)
            COH_TRY(reserve(r, resident->chunk, resident->offset));
        uint32_t extent = COH_NO_EXTENT;
        COH_TRY(acquire(r, resident->chunk, 1, &extent));
        r->out->extents[extent].at_end = 1;
        if (stays_far(r, resident->chunk) &&
            r->far_version[resident->chunk] != r->version[resident->chunk])
            COH_TRY(store(r, resident->chunk, extent, r->last_write[resident->chunk]));
    }
    return COH_OK;
}

static coh_status refuse_room(const coh_level *level, coh_refusal_reason reason, uint64_t given,
                              uint64_t needed)
{
    coh_refusal refusal = coh_refusal_bytes(reason, level->tier, given, needed);
    refusal.is_gpu = level->is_gpu;
    refusal.is_least = 1;
    coh_refusal_raise(&refusal, level->tier, needed);
    refusal.changes[0].is_least = 1;
    if (reason == COH_REFUSAL_PINS)
        coh_refusal_add(&refusal, COH_CHANGE_DROP_PIN, 0);
    return coh_refuse(&refusal);
}

/* Makes room in the lists whose length the sequence gives: they are the longest, and would move
 * many times if they grew. */
static coh_status reserve_lists(const coh_sequence *sequence, coh_residency *out)
{
    const uint32_t count = sequence->operand_begin[sequence->step_count];
    size_t touches = 0;
    for (uint32_t i = 0; i < count; i++)
        touches += sequence->operands[i].touch_end - sequence->operands[i].touch_begin;
    COH_TRY(COH_EXTEND(&out->placings, &out->placing_capacity, count));
    COH_TRY(COH_EXTEND(&out->touch_extents, &out->touch_extent_capacity, touches));
    return COH_EXTEND(&out->touch_versions, &out->touch_version_capacity, touches);
}

/* Returns 1 if each window that is placed has a home. */
static int is_fixed(const coh_runner *r)
{
    const coh_sequence *sequence = r->sequence;
    if (r->level->home_offset == NULL)
        return 0;
    for (uint32_t i = 0; i < sequence->operand_begin[sequence->step_count]; i++) {
        const coh_lowered_operand *operand = &sequence->operands[i];
        if (!operand->is_far && !coh_is_pinned_here(r->level, operand) &&
            !coh_level_has_home(r->level,
                                coh_runner_first_chunk(r, operand) + operand->window_begin))
            return 0;
    }
    return 1;
}

coh_status coh_runner_open(coh_runner *r, const coh_level *level, const coh_sequence *sequence,
                           const coh_sequence *next, coh_residency *out)
{
    size_t chunks = level->layout->chunk_count;
    r->level = level;
    r->layout = level->layout;
    r->sequence = sequence;
    r->is_fixed = is_fixed(r);
    r->out = out;
    if (out != NULL) {
        *out = (coh_residency){ .peak_bytes = level->base_bytes };
        COH_TRY(reserve_lists(sequence, out));
    }
    COH_TRY(COH_ALLOC(chunks, &r->version));
    COH_TRY(COH_ALLOC(chunks, &r->far_version));
    COH_TRY(COH_ALLOC(chunks, &r->last_write));
    COH_TRY(COH_ALLOC(chunks, &r->far_step));
    COH_TRY(COH_ALLOC(chunks, &r->pinned_extent));
    COH_TRY(COH_ALLOC(chunks, &r->boundary_offset));
    uint64_t capacity = level->capacity == UINT64_MAX ? (uint64_t)1 << 60 : level->capacity;
    if (capacity < level->base_bytes)
        return refuse_room(level, COH_REFUSAL_FIXED, capacity, level->base_bytes);
    if (level->has_far && capacity < level->floor_bytes)
        return refuse_room(level, COH_REFUSAL_PINS, capacity, level->floor_bytes);
    uint64_t all_bytes = 0;
    for (uint32_t i = 0; i < level->layout->object_count; i++)
        all_bytes += level->layout->objects[i].bytes;
    COH_TRY(coh_arena_map_init(&r->map, level->base_bytes, capacity, all_bytes, (uint32_t)chunks));
    COH_TRY(coh_next_use_init(&r->next, level, sequence, next));
    return coh_vacancy_init(&r->vacancy, level, &r->next);
}

void coh_runner_close(coh_runner *r)
{
    coh_free(r->version);
    coh_free(r->far_version);
    coh_free(r->last_write);
    coh_free(r->far_step);
    coh_free(r->pinned_extent);
    coh_free(r->boundary_offset);
    coh_free(r->snapshot);
    coh_arena_map_fini(&r->map);
    coh_next_use_fini(&r->next);
    coh_vacancy_fini(&r->vacancy);
}

/* The lists of a long program lie next to its tables; half of a list may be unused. */
static void fit_lists(coh_residency *out)
{
    COH_FIT(&out->extents, &out->extent_capacity, out->extent_count);
    COH_FIT(&out->moves, &out->move_capacity, out->move_count);
    COH_FIT(&out->placings, &out->placing_capacity, out->placing_count);
    COH_FIT(&out->touch_extents, &out->touch_extent_capacity, out->touch_count);
    COH_FIT(&out->touch_versions, &out->touch_version_capacity, out->touch_count);
}

coh_status coh_residency_run(const coh_level *level, const coh_sequence *sequence,
                             const coh_sequence *next, const coh_resident *residents,
                             uint32_t resident_count, coh_residency *out_residency)
{
    coh_runner r = { .residents = residents, .resident_count = resident_count };
    coh_status status = COH_OK;
    COH_TRY_GOTO(status, coh_runner_open(&r, level, sequence, next, out_residency), done);
    COH_TRY_GOTO(status, coh_runner_begin(&r), done);
    for (r.step = 0; r.step < sequence->step_count; r.step++)
        COH_TRY_GOTO(status, coh_runner_step(&r, r.step), done);
    COH_TRY_GOTO(status, end_run(&r), done);
    fit_lists(out_residency);
done:
    coh_runner_close(&r);
    if (status != COH_OK)
        coh_residency_fini(out_residency);
    return status;
}

void coh_residency_fini(coh_residency *residency)
{
    coh_free(residency->extents);
    coh_free(residency->moves);
    coh_free(residency->placings);
    coh_free(residency->touch_extents);
    coh_free(residency->touch_versions);
    *residency = (coh_residency){ 0 };
}
