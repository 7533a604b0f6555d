/* Makes the boundary map: the chunks that a tier holds between programs, and their offsets. The
 * idea: run two bodies freely and keep the chunks that the second one reads before their eviction;
 * then settle the offsets and fill the rest. The kinds of maps are listed in residency.h. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "planner/residency_state.h"

/* Rounds after which most offsets no longer change. */
enum { SETTLING_ROUNDS = 2 };

/* The caller's list; the entries of this level begin at `first`. */
typedef struct boundary {
    coh_resident **residents;
    uint32_t *count;
    size_t *capacity;
    uint32_t first;
} boundary;

static int is_home(const coh_level *level, uint32_t chunk)
{
    return level->home_offset != NULL && level->home_offset[chunk] != COH_NO_HOME;
}

static int is_away(const coh_level *level, uint32_t chunk)
{
    return level->rules != NULL && (level->rules[chunk] & COH_CHUNK_AWAY) != 0;
}

static coh_status append(const boundary *b, uint32_t chunk, coh_tier tier, uint64_t offset)
{
    COH_TRY(COH_GROW(b->residents, b->capacity, *b->count + 1));
    (*b->residents)[(*b->count)++] =
        (coh_resident){ .chunk = chunk, .tier = (uint8_t)tier, .offset = offset };
    return COH_OK;
}

/* Without a far tier, adds all survivors at their homes; with one, those pinned there. */
static coh_status keep_survivors(const coh_level *level, const boundary *b)
{
    const coh_layout *layout = level->layout;
    for (uint32_t chunk = 0; chunk < layout->chunk_count; chunk++) {
        const coh_object *object = &layout->objects[layout->chunks[chunk].object];
        if (object->survives && !object->pinned && is_home(level, chunk) &&
            (level->held_nearer == NULL || !level->held_nearer[chunk] || level->keeps_far[chunk]))
            COH_TRY(append(b, chunk, level->tier, level->home_offset[chunk]));
    }
    return COH_OK;
}

/* ---- a free run of two bodies ---- */

/* What a body does with a chunk. A read farther out changes nothing here. */
enum { USE_ANY = 1, USE_READS_FIRST = 2, USE_UPDATES_LAST = 4 };

/* Records by chunk what the body does with it. */
static void note_uses(const coh_level *level, const coh_sequence *body, uint8_t *uses)
{
    for (uint32_t i = 0; i < body->operand_begin[body->step_count]; i++) {
        const coh_lowered_operand *operand = &body->operands[i];
        const uint32_t first = level->layout->objects[operand->object].chunk_begin;
        const int reads_here = !operand->is_far && operand->access != COH_ACCESS_WRITE;
        if (operand->is_far && operand->access == COH_ACCESS_READ)
            continue;
        for (uint32_t c = first + operand->touch_begin; c < first + operand->touch_end; c++) {
            const int begin = uses[c] == 0 && reads_here ? USE_READS_FIRST : 0;
            uses[c] = (uint8_t)((uses[c] & ~USE_UPDATES_LAST) | begin | USE_ANY |
                                (operand->is_far ? USE_UPDATES_LAST : 0));
        }
    }
}

/* Marks the chunks that the second of two bodies may read before their eviction: it reads them
 * first, and the first body leaves them here: it does not end with an update farther out. Returns 1
 * if a run is needed: there are any, or content that has to stay may leave no room for a step. */
static int mark_hopes(const coh_level *level, const coh_sequence *body, uint8_t *marks)
{
    const coh_runner r = { .level = level, .layout = level->layout };
    int some = 0;
    note_uses(level, body, marks);
    for (uint32_t chunk = 0; chunk < level->layout->chunk_count; chunk++) {
        marks[chunk] = marks[chunk] == (USE_ANY | USE_READS_FIRST) &&
                       coh_runner_holds_between(&r, chunk) && !is_home(level, chunk) &&
                       !is_away(level, chunk);
        some |= marks[chunk] || (level->rules != NULL && level->rules[chunk] & COH_CHUNK_STAYS);
    }
    return some;
}

/* Records the chunks that the tier holds between the two bodies. Of a late map, a changed one is in
 * it, though the second body may evict it before it reads it. */
static void take_snapshot(coh_runner *r, const uint8_t *hopes, uint64_t *offsets)
{
    for (int32_t i = r->map.first; i >= 0; i = r->map.segments[i].next) {
        const coh_segment *s = &r->map.segments[i];
        if (s->chunk < 0 || s->extent == COH_NO_EXTENT || !hopes[s->chunk])
            continue;
        const int is_late = r->level->boundary == COH_BOUNDARY_LATE &&
                            r->far_version[s->chunk] != r->version[s->chunk];
        r->snapshot[s->chunk] = is_late ? SNAPSHOT_HIT : SNAPSHOT_OPEN;
        r->open_count += !is_late;
        offsets[s->chunk] = s->offset;
    }
}

/* Movers of the level above name versions, which start from 0 in each run: changed chunks stay
 * changed, clean ones stay clean. */
static void restart_versions(coh_runner *r)
{
    for (uint32_t c = 0; r->sequence->operand_version != NULL && c < r->layout->chunk_count; c++) {
        int is_clean = r->far_version[c] == r->version[c];
        r->version[c] = 0;
        r->far_version[c] = is_clean ? 0 : -1;
    }
}

static coh_status run_twice(coh_runner *r, const uint8_t *hopes, uint64_t *offsets)
{
    COH_TRY(coh_runner_begin(r));
    for (uint32_t i = 0; i < r->layout->chunk_count; i++) /* all survivors can be fetched */
        r->far_version[i] = r->layout->objects[r->layout->chunks[i].object].survives ? 0 : -1;
    for (uint32_t i = 0; i < r->sequence->step_count; i++, r->step++)
        COH_TRY(coh_runner_step(r, i));
    take_snapshot(r, hopes, offsets);
    coh_next_use_cross(&r->next);
    coh_vacancy_renew_all(&r->vacancy);
    restart_versions(r);
    r->step++;
    for (uint32_t i = 0; i < r->sequence->step_count && r->open_count > 0; i++, r->step++)
        COH_TRY(coh_runner_step(r, i));
    return COH_OK;
}

/* Adds the chunks that the second body reads before their eviction, at their places between the
 * two. */
static coh_status find_hits(const coh_level *level, const coh_sequence *body, const uint8_t *hopes,
                            const boundary *b)
{
    coh_runner r = { 0 };
    uint64_t *offsets = NULL;
    uint32_t chunks = level->layout->chunk_count;
    coh_status status = COH_OK;
    COH_TRY_GOTO(status, coh_runner_open(&r, level, body, body, NULL), done);
    COH_TRY_GOTO(status, COH_ALLOC(chunks, &r.snapshot), done);
    COH_TRY_GOTO(status, COH_ALLOC(chunks, &offsets), done);
    COH_TRY_GOTO(status, run_twice(&r, hopes, offsets), done);
    for (uint32_t chunk = 0; chunk < chunks; chunk++)
        if (r.snapshot[chunk] == SNAPSHOT_HIT)
            COH_TRY_GOTO(status, append(b, chunk, level->tier, offsets[chunk]), done);
done:
    coh_free(offsets);
    coh_runner_close(&r);
    return status;
}

/* ---- settling ---- */

/* Runs the body from the map and updates each entry's offset to its place just before the end: an
 * entry present at another offset then need not be written out and read back. Absent entries are
 * dropped. */
static coh_status settle(const coh_level *level, const coh_sequence *body, const boundary *b,
                         int *out_changes)
{
    coh_runner r = { .residents = *b->residents, .resident_count = *b->count };
    coh_status status = COH_OK;
    COH_TRY_GOTO(status, coh_runner_open(&r, level, body, body, NULL), done);
    COH_TRY_GOTO(status, coh_runner_begin(&r), done);
    for (r.step = 0; r.step < body->step_count; r.step++)
        COH_TRY_GOTO(status, coh_runner_step(&r, r.step), done);
    uint32_t kept = b->first;
    for (uint32_t i = b->first; i < *b->count; i++) {
        coh_resident entry = (*b->residents)[i];
        int32_t segment = r.map.segment_of_chunk[entry.chunk];
        int is_there = segment >= 0 && r.map.segments[segment].extent != COH_NO_EXTENT;
        if (!is_there && !is_home(level, entry.chunk)) {
            *out_changes = 1;
            continue;
        }
        if (is_there && entry.offset != r.map.segments[segment].offset) {
            *out_changes = 1;
            entry.offset = r.map.segments[segment].offset;
        }
        (*b->residents)[kept++] = entry;
    }
    *b->count = kept;
done:
    coh_runner_close(&r);
    return status;
}

/* ---- filling up ---- */

static int compare_offsets(const void *x, const void *y)
{
    uint64_t a = ((const coh_resident *)x)->offset, b = ((const coh_resident *)y)->offset;
    return a < b ? -1 : a > b;
}

/* Finds the lowest gap of `bytes` between the list's entries, which are sorted by offset; returns 0
 * if there is none. *out_index: the entry above the gap. */
static int find_gap(const coh_level *level, const boundary *b, uint64_t bytes, uint64_t *out_offset,
                    uint32_t *out_index)
{
    const coh_resident *sorted = *b->residents;
    uint64_t offset =
        level->floor_bytes > level->base_bytes ? level->floor_bytes : level->base_bytes;
    uint32_t i = b->first;
    for (; i < *b->count; i++) {
        if (sorted[i].offset < offset)
            continue; /* pinned */
        if (offset + bytes <= sorted[i].offset)
            break;
        offset = sorted[i].offset + level->layout->chunks[sorted[i].chunk].bytes;
    }
    *out_offset = offset;
    *out_index = i;
    return offset + bytes <= level->capacity;
}

/* Inserts the chunks [begin, end), one after another from `offset` on, before entry `index`. */
static coh_status insert_chunks(const coh_level *level, const boundary *b, uint32_t index,
                                uint32_t begin, uint32_t end, uint64_t offset)
{
    COH_TRY(COH_GROW(b->residents, b->capacity, *b->count + (end - begin)));
    coh_resident *at = *b->residents + index;
    memmove(at + (end - begin), at, (*b->count - index) * sizeof(*at));
    *b->count += end - begin;
    for (uint32_t chunk = begin; chunk < end; chunk++, at++) {
        *at = (coh_resident){ .chunk = chunk, .tier = (uint8_t)level->tier, .offset = offset };
        offset += level->layout->chunks[chunk].bytes;
    }
    return COH_OK;
}

/* Returns 1 if an operand's window may be added to the map: it survives, is read, and no chunk of
 * it is in the map or excluded. `is_entry`: by chunk. */
static int may_add(const coh_level *level, const coh_lowered_operand *operand,
                   const uint8_t *is_entry)
{
    const coh_object *object = &level->layout->objects[operand->object];
    if (object->pinned || !object->survives || operand->access == COH_ACCESS_WRITE)
        return 0;
    for (uint32_t chunk = object->chunk_begin + operand->window_begin;
         chunk < object->chunk_begin + operand->window_end; chunk++)
        if (is_entry[chunk] || is_away(level, chunk) ||
            (level->held_nearer != NULL && level->held_nearer[chunk]))
            return 0;
    return 1;
}

/* Adds an operand's window to the map; *out_fits is 0 if there is no space. */
static coh_status add_window(const coh_level *level, const coh_lowered_operand *operand,
                             const boundary *b, uint8_t *is_entry, int *out_fits)
{
    const coh_object *object = &level->layout->objects[operand->object];
    const uint32_t begin = object->chunk_begin + operand->window_begin;
    const uint32_t end = object->chunk_begin + operand->window_end;
    uint64_t bytes = 0, offset = 0;
    uint32_t index = 0;
    for (uint32_t chunk = begin; chunk < end; chunk++)
        bytes += level->layout->chunks[chunk].bytes;
    *out_fits = find_gap(level, b, bytes, &offset, &index);
    if (!*out_fits)
        return COH_OK;
    memset(is_entry + begin, 1, end - begin);
    return insert_chunks(level, b, index, begin, end, offset);
}

/* Excludes chunks needed farther out: a copy here would count as the only valid one between
 * programs. */
static void mark_far(const coh_level *level, const coh_lowered_operand *operand, uint8_t *is_entry)
{
    uint32_t first = level->layout->objects[operand->object].chunk_begin;
    for (uint32_t k = operand->touch_begin; operand->is_far && k < operand->touch_end; k++)
        is_entry[first + k] = 1;
}

/* Marks the chunks that are in the map or excluded; all others are unmarked. */
static void mark_entries(const coh_level *level, const coh_sequence *body, const boundary *b,
                         uint8_t *is_entry)
{
    memset(is_entry, 0, level->layout->chunk_count);
    for (uint32_t i = b->first; i < *b->count; i++)
        is_entry[(*b->residents)[i].chunk] = 1;
    for (uint32_t i = 0; i < body->operand_begin[body->step_count]; i++)
        mark_far(level, &body->operands[i], is_entry);
}

/* Returns 1 if some window may be added to the map. */
static int may_fill(const coh_level *level, const coh_sequence *body, const boundary *b,
                    uint8_t *is_entry)
{
    mark_entries(level, body, b, is_entry);
    for (uint32_t i = 0; i < body->operand_begin[body->step_count]; i++)
        if (may_add(level, &body->operands[i], is_entry))
            return 1;
    return 0;
}

/* Fills the free space of the map. At the end of a body activations are dead and their space is
 * unused: the chunks that the next body needs first are fetched into it, in that order, while the
 * last instructions still compute. */
static coh_status fill_up(const coh_level *level, const coh_sequence *body, const boundary *b,
                          uint8_t *is_entry)
{
    int fits = 1;
    mark_entries(level, body, b, is_entry);
    if (*b->count > b->first)
        qsort(*b->residents + b->first, *b->count - b->first, sizeof(coh_resident),
              compare_offsets);
    for (uint32_t i = 0; fits && i < body->operand_begin[body->step_count]; i++)
        if (may_add(level, &body->operands[i], is_entry))
            COH_TRY(add_window(level, &body->operands[i], b, is_entry, &fits));
    return COH_OK;
}

static int compare_chunks(const void *x, const void *y)
{
    uint32_t a = ((const coh_resident *)x)->chunk, b = ((const coh_resident *)y)->chunk;
    return a < b ? -1 : a > b;
}

/* Makes the map of a level with a far tier. `marks`: by chunk, unmarked. If nothing can stay but
 * chunks at their homes, whose offsets do not settle, all kinds of maps are the same. */
static coh_status make_map(const coh_level *level, const coh_sequence *body, const boundary *b,
                           uint8_t *marks, int *out_is_only)
{
    const int is_full = level->boundary == COH_BOUNDARY_FULL;
    const int is_hopeful = mark_hopes(level, body, marks);
    if (is_hopeful && level->boundary != COH_BOUNDARY_WANTED)
        COH_TRY(find_hits(level, body, marks, b));
    COH_TRY(keep_survivors(level, b));
    *out_is_only = !is_hopeful && !may_fill(level, body, b, marks);
    int changes = is_hopeful && level->boundary != COH_BOUNDARY_FREE &&
                  level->boundary != COH_BOUNDARY_WANTED &&
                  *b->count > b->first; /* an empty map has no offsets to settle */
    for (int round = 0; changes && round < SETTLING_ROUNDS; round++) {
        changes = 0;
        COH_TRY(settle(level, body, b, &changes));
    }
    if (!*out_is_only && (level->boundary == COH_BOUNDARY_WANTED || is_full))
        COH_TRY(fill_up(level, body, b, marks));
    return COH_OK;
}

coh_status coh_residency_boundary(const coh_level *level, const coh_sequence *body,
                                  coh_resident **residents, uint32_t *resident_count,
                                  size_t *resident_capacity, int *out_is_only)
{
    const boundary b = { residents, resident_count, resident_capacity, *resident_count };
    uint8_t *marks = NULL;
    *out_is_only = 1;
    if (!level->has_far)
        return keep_survivors(level, &b);
    COH_TRY(COH_ALLOC(level->layout->chunk_count, &marks));
    const coh_status status = make_map(level, body, &b, marks, out_is_only);
    coh_free(marks);
    if (status == COH_OK && *resident_count > b.first)
        qsort(*residents + b.first, *resident_count - b.first, sizeof(coh_resident),
              compare_chunks);
    return status;
}
