/* Where a window is placed, compared with a direct implementation of the rule: over random arenas,
 * every place that begins or ends at a segment's border is weighed separately. Also checks the
 * arena's lists against its segments. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "planner/residency_state.h"
#include "tests/length.h"
#include "tests/planner/draws.h"

enum { OBJECTS_MOST = 60, UNIT = 4096, STEP = 40, PASSES = 3 };
enum { CHANGES = 300, LONG_CHANGES = 1500 };
/* A scene of a long window: its object has so many chunks, the others so many each. */
enum { LONG = 300, OTHERS = 10, CHUNKS_MOST = LONG + OTHERS * OBJECTS_MOST };

typedef struct scene {
    coh_object objects[OBJECTS_MOST];
    coh_chunk chunks[CHUNKS_MOST];
    int32_t version[CHUNKS_MOST], far_version[CHUNKS_MOST], last_write[CHUNKS_MOST];
    uint64_t boundary_offset[CHUNKS_MOST];
    uint8_t rules[CHUNKS_MOST];
    coh_chunk_access accesses[CHUNKS_MOST]; /* one access per chunk: 0 reads, 1 writes */
    uint32_t cursor[CHUNKS_MOST], begin[CHUNKS_MOST + 1];
    uint64_t room;        /* the range of draws: an unlimited arena is longer */
    uint32_t first_drawn; /* chunks before it are never there */
    coh_layout layout;
    coh_level level;
    coh_runner runner;
} scene;

static void draw_layout(draws *d, scene *s)
{
    static const uint8_t streams[] = { COH_STREAM_WORK, COH_STREAM_ACTIVATION, COH_STREAM_STATE };
    s->layout = (coh_layout){ .objects = s->objects, .chunks = s->chunks };
    s->layout.object_count = (uint32_t)draw(d, 4, OBJECTS_MOST);
    for (uint32_t i = 0; i < s->layout.object_count; i++) {
        coh_object *object = &s->objects[i];
        *object = (coh_object){ .chunk_begin = s->layout.chunk_count,
                                .chunk_count = (uint32_t)draw(d, 1, 3),
                                .stream = streams[draw(d, 0, 2)] };
        for (uint32_t k = 0; k < object->chunk_count; k++) {
            coh_chunk *chunk = &s->chunks[s->layout.chunk_count++];
            *chunk = (coh_chunk){ .object = (int32_t)i,
                                  .object_offset = object->bytes,
                                  .bytes = (uint64_t)draw(d, 1, 4) * UNIT };
            object->bytes += chunk->bytes;
        }
    }
}

/* One object of many small chunks, and others that lie in small pieces. */
static void make_long_layout(scene *s)
{
    s->layout = (coh_layout){ .objects = s->objects, .chunks = s->chunks };
    s->layout.object_count = OBJECTS_MOST;
    s->first_drawn = LONG;
    for (uint32_t i = 0; i < OBJECTS_MOST; i++) {
        coh_object *object = &s->objects[i];
        *object = (coh_object){ .chunk_begin = s->layout.chunk_count,
                                .chunk_count = i == 0 ? LONG : OTHERS,
                                .stream = COH_STREAM_WORK };
        for (uint32_t k = 0; k < object->chunk_count; k++, object->bytes += UNIT)
            s->chunks[s->layout.chunk_count++] =
                (coh_chunk){ .object = (int32_t)i, .object_offset = object->bytes, .bytes = UNIT };
    }
}

/* ---- the arena ---- */

static int is_free(const coh_arena_map *map, uint64_t offset, uint64_t bytes)
{
    for (int32_t i = map->first; i >= 0; i = map->segments[i].next) {
        const coh_segment *s = &map->segments[i];
        if (s->chunk >= 0 && s->offset < offset + bytes && offset < s->offset + s->bytes)
            return 0;
    }
    return offset + bytes <= map->end;
}

static void draw_content(draws *d, coh_arena_map *map, int32_t index)
{
    coh_segment *segment = &map->segments[index];
    static const uint64_t far[] = { COH_NEVER, COH_NEVER - 1 };
    segment->extent = draw(d, 0, 9) == 0 ? COH_NO_EXTENT : 0;
    segment->last_use = draw(d, 0, 7) == 0 ? STEP : draw(d, 0, STEP / 2) * 2 - 1;
    segment->last_moved = draw(d, 0, 1) ? -1 : draw(d, 0, (int)segment->last_use + 1) - 1;
    coh_arena_map_set_next_use(
        map, index, draw(d, 0, 9) == 0 ? far[draw(d, 0, 1)] : (uint64_t)(STEP + draw(d, 1, 30)));
    segment->pin_step = draw(d, 0, 9) == 0 ? STEP : UINT32_MAX;
}

/* Settles, and compares with one walk over all segments that merges each free one with the free
 * ones after it. */
static void settle(coh_arena_map *map, int64_t step)
{
    enum { MOST = 2 * LONG_CHANGES + 2 };
    coh_segment expected[MOST];
    int count = 0, seen = 0;
    for (int32_t i = map->first; i >= 0; i = map->segments[i].next) {
        const coh_segment *s = &map->segments[i];
        coh_segment *before = count > 0 ? &expected[count - 1] : NULL;
        const int are_free = before != NULL && before->chunk < 0 && s->chunk < 0;
        assert_true(count < MOST);
        if (are_free && ((before->last_use <= step && s->last_use <= step) ||
                         before->last_use == s->last_use)) {
            before->bytes += s->bytes;
            before->last_use = s->last_use > before->last_use ? s->last_use : before->last_use;
            before->last_moved =
                s->last_moved > before->last_moved ? s->last_moved : before->last_moved;
        } else {
            expected[count++] = *s;
        }
    }
    coh_arena_map_settle(map, step);
    for (int32_t i = map->first; i >= 0; i = map->segments[i].next, seen++) {
        const coh_segment *s = &map->segments[i], *e = &expected[seen];
        assert_true(seen < count && s->offset == e->offset && s->bytes == e->bytes &&
                    s->chunk == e->chunk && s->last_use == e->last_use &&
                    s->last_moved == e->last_moved);
    }
    assert_int_equal(seen, count);
}

static void change(draws *d, scene *s)
{
    coh_arena_map *map = &s->runner.map;
    const uint32_t chunk = (uint32_t)draw(d, (int)s->first_drawn, (int)s->layout.chunk_count - 1);
    const int32_t segment = map->segment_of_chunk[chunk];
    const uint64_t offset = map->begin + (uint64_t)draw(d, 0, (int)(s->room / UNIT) - 1) * UNIT;
    if (segment >= 0 && draw(d, 0, 2) == 0) {
        coh_arena_map_release(map, segment);
    } else if (segment < 0 && is_free(map, offset, s->chunks[chunk].bytes)) {
        assert_int_equal(coh_arena_map_take(map, chunk, offset, s->chunks[chunk].bytes), COH_OK);
        draw_content(d, map, map->segment_of_chunk[chunk]);
    }
    if (draw(d, 0, 15) == 0)
        settle(map, draw(d, 0, STEP));
}

/* As coh_arena_map_after, segment by segment. */
static int32_t walk_after(const coh_arena_map *map, int32_t segment, const coh_arena_limits *limits,
                          uint64_t bytes)
{
    for (int32_t i = map->segments[segment].next; i >= 0; i = map->segments[i].next) {
        int32_t taken = i;
        uint64_t free_bytes = 0;
        for (; taken >= 0 && map->segments[taken].chunk < 0; taken = map->segments[taken].next)
            free_bytes += map->segments[taken].bytes;
        if (free_bytes >= bytes && free_bytes > 0)
            return i;
        if (taken < 0)
            return -1;
        for (int k = 0; k < limits->count; k++)
            if (map->segments[taken].next_use >= limits->next_use[k] &&
                map->segments[taken].last_use <= limits->last_use[k])
                return i;
        i = taken;
    }
    return -1;
}

static size_t stride_of(const coh_arena_map *map, uint64_t offset)
{
    const uint64_t stride = (offset - map->begin) >> map->stride_bits;
    return stride < COH_ARENA_STRIDES ? (size_t)stride : COH_ARENA_STRIDES - 1;
}

/* Checks what the map knows about the stride of a free segment: no range may be passed over. */
static void check_stride(const coh_arena_map *map, const coh_segment *s)
{
    const size_t stride = stride_of(map, s->offset);
    const int borders = s->next < 0 || stride_of(map, map->segments[s->next].offset) != stride;
    assert_true(map->oldest_free[stride] <= s->last_use);
    if (borders)
        assert_true(map->strides_ending_free[stride / 64] >> (stride % 64) & 1);
}

/* Checks that every list of the map agrees with the chain of segments. */
static void check_map(const coh_arena_map *map)
{
    uint64_t offset = map->begin;
    int32_t previous = -1, free_one = map->first_free, last_free = -1;
    for (int32_t i = map->first; i >= 0; i = map->segments[i].next) {
        const coh_segment *s = &map->segments[i];
        assert_true(s->offset == offset && s->previous == previous && s->bytes > 0);
        assert_int_equal(coh_arena_map_at(map, offset), i);
        assert_int_equal(coh_arena_map_at(map, offset + s->bytes - 1), i);
        for (uint64_t next_use = STEP; next_use < STEP + 32; next_use += 10)
            for (uint64_t bytes = UNIT; bytes <= 4 * UNIT; bytes += UNIT) {
                const coh_arena_limits limits = { .count = 1 + next_use % 20 / 10,
                                                  .next_use = { next_use, COH_NEVER - 1 },
                                                  .last_use = { STEP / (int64_t)(bytes / UNIT),
                                                                INT64_MAX } };
                assert_int_equal(coh_arena_map_after(map, i, &limits, bytes),
                                 walk_after(map, i, &limits, bytes));
            }
        if (s->chunk < 0) {
            assert_int_equal(free_one, i);
            check_stride(map, s);
            assert_int_equal(s->previous_free, last_free);
            last_free = i;
            free_one = s->next_free;
        } else {
            assert_int_equal(map->segment_of_chunk[s->chunk], i);
        }
        offset += s->bytes;
        previous = i;
    }
    assert_true(offset == map->end && map->last == previous && free_one == -1);
}

/* Draws a scene; `long_units`: 0, or one of a long window in an arena of so many units. */
static void draw_scene(draws *d, scene *s, int long_units)
{
    memset(s, 0, sizeof(*s));
    if (long_units > 0)
        make_long_layout(s);
    else
        draw_layout(d, s);
    const uint64_t base = (uint64_t)draw(d, 0, 3) * UNIT;
    const int units = draw(d, 0, 19) ? draw(d, 12, 160) : draw(d, 1, 12);
    const uint64_t bytes = (uint64_t)(long_units > 0 ? long_units : units) * UNIT;
    const int is_endless = draw(d, 0, 3) == 0, has_rules = draw(d, 0, 1);
    const uint64_t end = is_endless ? (uint64_t)1 << 60 : base + bytes;
    s->room = bytes;
    s->level = (coh_level){ .layout = &s->layout,
                            .base_bytes = base,
                            .capacity = is_endless ? UINT64_MAX : end,
                            .has_far = draw(d, 0, 4) > 0,
                            .rules = has_rules ? s->rules : NULL,
                            .tie_break = draw(d, 0, COH_TIE_COUNT - 1),
                            .horizon = (uint32_t)(4 * draw(d, 0, 4)),
                            .patient = draw(d, 0, COH_PATIENT_COUNT - 1) };
    s->runner = (coh_runner){ .level = &s->level,
                              .layout = &s->layout,
                              .version = s->version,
                              .far_version = s->far_version,
                              .last_write = s->last_write,
                              .is_compute = draw(d, 0, 3) > 0,
                              .boundary_offset = s->boundary_offset,
                              .next = { .accesses = s->accesses,
                                        .begin = s->begin,
                                        .cursor = s->cursor,
                                        .chunk_count = CHUNKS_MOST,
                                        .end_step = STEP + (uint32_t)draw(d, 1, 24) },
                              .packs = draw(d, 0, 7) == 0,
                              .step = STEP };
    /* Nothing is placed below the floor; the floor may leave no room above it. */
    if (draw(d, 0, 2) == 0)
        s->level.floor_bytes = base + (uint64_t)draw(d, 0, 8) * UNIT;
    if (draw(d, 0, 19) == 0 || s->level.floor_bytes > end)
        s->level.floor_bytes = end;
    for (int i = 0; i < CHUNKS_MOST; i++) {
        const uint64_t offset = base + (uint64_t)draw(d, 0, (int)(bytes / UNIT)) * UNIT;
        const int is_sticky = draw(d, 0, 5) == 0 && offset >= s->level.floor_bytes;
        s->boundary_offset[i] = is_sticky ? offset : UINT64_MAX;
        s->far_version[i] = draw(d, 0, 1);
        s->last_write[i] = draw(d, 0, STEP) - 1;
        s->rules[i] = draw(d, 0, 3) == 0 ? COH_CHUNK_STAYS : 0;
        s->accesses[i] = (coh_chunk_access){ .step = STEP + 1, .what = (uint8_t)draw(d, 0, 1) };
        s->cursor[i] = s->begin[i] = (uint32_t)i;
    }
    s->begin[CHUNKS_MOST] = CHUNKS_MOST;
    /* In an unlimited arena each stride holds several segments. */
    const uint64_t usual = is_endless ? bytes * (uint64_t)draw(d, 1, 400) : bytes;
    assert_int_equal(coh_arena_map_init(&s->runner.map, base, end, usual, s->layout.chunk_count),
                     COH_OK);
    for (int i = long_units > 0 ? LONG_CHANGES : draw(d, 0, CHANGES); i > 0; i--)
        change(d, s);
}

/* ---- the rule ---- */

typedef struct place {
    uint64_t offset, next_use, relocated;
    int64_t last_use;
    int valid;
} place;

typedef struct question {
    const scene *s;
    uint32_t first, last; /* chunks */
    uint64_t bytes, lowest;
    int above, fetches, writes, has_content;
} question;

static const coh_segment *segment_of(const scene *s, uint32_t chunk)
{
    const int32_t index = s->runner.map.segment_of_chunk[chunk];
    return index >= 0 ? &s->runner.map.segments[index] : NULL;
}

static question ask(const scene *s, const coh_lowered_operand *operand)
{
    const coh_object *object = &s->objects[operand->object];
    question q = { .s = s,
                   .first = object->chunk_begin + operand->window_begin,
                   .last = object->chunk_begin + operand->window_end - 1 };
    q.lowest =
        s->level.floor_bytes > s->level.base_bytes ? s->level.floor_bytes : s->level.base_bytes;
    q.above = s->level.tie_break == COH_TIE_TWO_ENDS && s->level.capacity != UINT64_MAX &&
              object->stream == COH_STREAM_ACTIVATION;
    q.writes = operand->access == COH_ACCESS_WRITE && s->runner.is_compute &&
               s->level.patient == COH_PATIENT_MOVED;
    for (uint32_t c = q.first; c <= q.last; c++) {
        const coh_segment *segment = segment_of(s, c);
        q.bytes += s->chunks[c].bytes;
        q.has_content |= segment != NULL && segment->extent != COH_NO_EXTENT;
    }
    if (s->level.horizon > 0 && (operand->access != COH_ACCESS_WRITE || s->level.patient))
        for (uint32_t i = operand->touch_begin; i < operand->touch_end; i++) {
            const coh_segment *segment = segment_of(s, object->chunk_begin + i);
            q.fetches |= segment == NULL || segment->extent == COH_NO_EXTENT;
        }
    return q;
}

static uint64_t wanted(const scene *s, const coh_segment *segment)
{
    const uint64_t next = segment->next_use;
    if (s->level.tie_break != COH_TIE_CLEAN || next >= COH_NEVER - 1 ||
        s->far_version[segment->chunk] == s->version[segment->chunk])
        return next;
    return STEP + (next - STEP + 1) / 2;
}

/* Returns 1 for a segment that must stay. */
static int is_held(const scene *s, const coh_segment *segment)
{
    const int stays = !s->level.has_far || (s->level.rules != NULL && s->rules[segment->chunk]);
    return segment->pin_step == STEP ||
           (segment->extent != COH_NO_EXTENT && stays && s->accesses[segment->chunk].what == 0);
}

/* The latest use that the window may have to wait for. */
static int64_t last_use_of(const question *q, const coh_segment *segment)
{
    const int64_t moved = segment->last_moved;
    const int64_t written = segment->chunk < 0 ? -1 : q->s->last_write[segment->chunk];
    return !q->writes ? segment->last_use : moved > written ? moved : written;
}

static place weigh(const question *q, uint64_t offset)
{
    const coh_arena_map *map = &q->s->runner.map;
    const uint64_t end = offset + q->bytes;
    place p = { .offset = offset, .next_use = COH_NEVER, .last_use = -1 };
    if (offset < q->lowest || end > map->end || end < offset)
        return p;
    p.valid = 1;
    for (int32_t i = map->first; i >= 0; i = map->segments[i].next) {
        const coh_segment *segment = &map->segments[i];
        const int is_own =
            segment->chunk >= (int32_t)q->first && segment->chunk <= (int32_t)q->last;
        if (segment->offset >= end || segment->offset + segment->bytes <= offset || is_own)
            continue;
        if (last_use_of(q, segment) > p.last_use)
            p.last_use = last_use_of(q, segment);
        if (segment->chunk < 0)
            continue;
        if (is_held(q->s, segment))
            p.valid = 0;
        if (wanted(q->s, segment) < p.next_use)
            p.next_use = wanted(q->s, segment);
    }
    for (uint32_t c = q->first; c <= q->last; offset += q->s->chunks[c].bytes, c++) {
        const coh_segment *segment = segment_of(q->s, c);
        if (segment != NULL && segment->extent != COH_NO_EXTENT && segment->offset != offset)
            p.relocated += q->s->chunks[c].bytes;
    }
    return p;
}

static int is_better(const question *q, const place *a, const place *b)
{
    if (!b->valid)
        return a->valid;
    if (a->relocated != b->relocated)
        return a->relocated < b->relocated;
    if (a->next_use != b->next_use)
        return a->next_use > b->next_use;
    if (a->next_use != COH_NEVER && a->last_use != b->last_use)
        return a->last_use < b->last_use;
    return q->above ? a->offset > b->offset : a->offset < b->offset;
}

/* The latest use that still counts as idle for long enough, by pass. */
static int64_t latest_use(const question *q, int pass)
{
    return STEP - (int64_t)(q->s->level.horizon >> (2 * pass));
}

static void consider(const question *q, uint64_t offset, place *best)
{
    const place p = weigh(q, offset);
    if (p.relocated > 0 && !q->s->level.has_far)
        return; /* no way to move it */
    for (int pass = q->fetches ? 0 : PASSES - 1; p.valid && pass < PASSES; pass++) {
        const uint64_t least = STEP + (q->s->level.horizon >> (2 * pass)) + 1;
        const int meets =
            pass == PASSES - 1 || (p.next_use >= least && p.last_use <= latest_use(q, pass));
        if (meets && is_better(q, &p, &best[pass]))
            best[pass] = p;
    }
}

/* Finds the lowest free room that was idle for long enough. */
static int find_idle(const question *q, uint64_t *out_offset)
{
    const coh_arena_map *map = &q->s->runner.map;
    const int64_t latest = q->fetches ? latest_use(q, 0) : INT64_MAX;
    uint64_t room = 0;
    for (int32_t i = map->first; i >= 0; i = map->segments[i].next) {
        const coh_segment *s = &map->segments[i];
        const int idle =
            s->chunk < 0 && last_use_of(q, s) <= latest && s->offset >= q->s->level.floor_bytes;
        *out_offset = idle && room == 0 ? s->offset : *out_offset;
        room = idle ? room + s->bytes : 0;
        if (room >= q->bytes)
            return 1;
    }
    return 0;
}

/* Returns 1 if [offset, end) is free room that was idle for long enough. */
static int is_idle(const question *q, uint64_t offset, uint64_t end)
{
    const coh_arena_map *map = &q->s->runner.map;
    const int64_t latest = q->fetches ? latest_use(q, 0) : INT64_MAX;
    for (int32_t i = map->first; i >= 0; i = map->segments[i].next) {
        const coh_segment *s = &map->segments[i];
        const int overlaps = s->offset < end && offset < s->offset + s->bytes;
        if (overlaps && (s->chunk >= 0 || last_use_of(q, s) > latest))
            return 0;
    }
    return 1;
}

/* Finds the highest such room that ends with a segment. */
static int find_idle_above(const question *q, uint64_t *out_offset)
{
    const coh_arena_map *map = &q->s->runner.map;
    for (int32_t i = map->last; i >= 0; i = map->segments[i].previous) {
        const uint64_t end = map->segments[i].offset + map->segments[i].bytes;
        if (end < q->lowest + q->bytes || !is_idle(q, end - q->bytes, end))
            continue;
        *out_offset = end - q->bytes;
        return 1;
    }
    return 0;
}

static int choose(const question *q, uint64_t *out_offset)
{
    const coh_arena_map *map = &q->s->runner.map;
    place best[PASSES] = { { 0 } };
    const place *first = &best[q->fetches ? 0 : PASSES - 1];
    /* Its place between programs, if nothing there is wanted again before the end. */
    const place sticky = weigh(q, q->s->boundary_offset[q->first]);
    if (!q->s->runner.packs && sticky.valid && sticky.next_use > q->s->runner.next.end_step &&
        sticky.relocated == 0) {
        *out_offset = sticky.offset;
        return 1;
    }
    if (!q->has_content && (q->above ? find_idle_above(q, out_offset) : find_idle(q, out_offset)))
        return 1;
    uint64_t inside = 0;
    for (uint32_t c = q->first; c <= q->last; inside += q->s->chunks[c].bytes, c++)
        if (segment_of(q->s, c) != NULL && segment_of(q->s, c)->offset >= map->begin + inside)
            consider(q, segment_of(q->s, c)->offset - inside, best);
    /* The first place is free and may grow: no other is better. */
    const int done =
        !q->above && first->valid && first->relocated == 0 && first->next_use == COH_NEVER;
    for (int32_t i = map->first; i >= 0 && !done; i = map->segments[i].next) {
        consider(q, map->segments[i].offset, best);
        if (map->segments[i].next >= 0 || q->s->level.capacity != UINT64_MAX)
            consider(q, map->segments[i].offset + map->segments[i].bytes - q->bytes, best);
    }
    for (int pass = 0; pass < PASSES; pass++)
        if (best[pass].valid) {
            *out_offset = best[pass].offset;
            return 1;
        }
    return 0;
}

/* ---- the tests ---- */

static void every_choice_is_that_of_the_rule(void **state)
{
    (void)state;
    static scene s;
    const int cases = (int)test_cases(40000);
    int found = 0, moved = 0;
    for (int seed = 0; seed < cases; seed++) {
        draws d = { .stream = 81, .seed = (uint64_t)seed };
        uint64_t expected = 0, offset = 0;
        draw_scene(&d, &s, 0);
        coh_lowered_operand operand = { .object = draw(&d, 0, (int)s.layout.object_count - 1),
                                        .access =
                                            (uint8_t)draw(&d, COH_ACCESS_READ, COH_ACCESS_BOTH) };
        const uint32_t count = s.objects[operand.object].chunk_count;
        operand.window_begin = operand.touch_begin = (uint32_t)draw(&d, 0, (int)count - 1);
        operand.window_end = operand.touch_end =
            (uint32_t)draw(&d, (int)operand.window_begin + 1, (int)count);
        const question q = ask(&s, &operand);
        const int is_expected = choose(&q, &expected);
        const int is_found = coh_residency_choose(&s.runner, &operand, &offset);
        if (is_found != is_expected || (is_found && offset != expected))
            fail_msg("seed %llu: %d at %llu, by the rule %d at %llu", (unsigned long long)seed,
                     is_found, (unsigned long long)offset, is_expected,
                     (unsigned long long)expected);
        found += is_found;
        moved += is_found && q.has_content;
        coh_arena_map_fini(&s.runner.map);
    }
    assert_true(found > cases / 2 && moved > cases / 20);
}

/* Over windows of more segments than the search remembers. */
static void a_long_window_lies_where_the_rule_says(void **state)
{
    (void)state;
    static scene s;
    const int cases = (int)test_cases(200);
    int found = 0;
    for (int seed = 0; seed < cases; seed++) {
        draws d = { .stream = 82, .seed = (uint64_t)seed };
        uint64_t expected = 0, offset = 0;
        draw_scene(&d, &s, draw(&d, LONG + 20, 3 * LONG));
        const coh_lowered_operand operand = { .access = (uint8_t)draw(&d, COH_ACCESS_READ,
                                                                      COH_ACCESS_BOTH),
                                              .window_end = (uint32_t)draw(&d, LONG - 100, LONG),
                                              .touch_end = LONG - 100 };
        const question q = ask(&s, &operand);
        const int is_expected = choose(&q, &expected);
        assert_int_equal(coh_residency_choose(&s.runner, &operand, &offset), is_expected);
        if (is_expected)
            assert_int_equal(offset, expected);
        found += is_expected;
        coh_arena_map_fini(&s.runner.map);
    }
    assert_true(found > cases / 4);
}

/* Two chunks and a tier with room for both: chunk 0 is written at step WRITES, and chunk 1 at the
 * next one. Chunk 0 leaves in between: it is idle up to step READS, or nobody reads it. Returns the
 * place of chunk 1. */
static uint64_t place_after(int is_read, size_t *out_moves)
{
    enum { WRITES = 9, READS = 20, HORIZON = 4 };
    coh_object objects[] = {
        { .chunk_begin = 0, .chunk_count = 1, .bytes = UNIT, .stream = COH_STREAM_ACTIVATION },
        { .chunk_begin = 1, .chunk_count = 1, .bytes = UNIT, .stream = COH_STREAM_ACTIVATION }
    };
    coh_chunk chunks[] = { { .object = 0, .bytes = UNIT }, { .object = 1, .bytes = UNIT } };
    const coh_layout layout = {
        .objects = objects, .object_count = 2, .chunks = chunks, .chunk_count = 2
    };
    const coh_lowered_operand operands[] = {
        { .object = 0, .touch_end = 1, .window_end = 1, .access = COH_ACCESS_WRITE },
        { .object = 1, .touch_end = 1, .window_end = 1, .access = COH_ACCESS_WRITE },
        { .object = 0, .touch_end = 1, .window_end = 1, .access = COH_ACCESS_READ }
    };
    static coh_lowered_instruction instructions[READS + 1]; /* of compute: no exchange */
    const coh_lowered lowered = { .instructions = instructions, .instruction_count = READS + 1 };
    uint32_t begin[READS + 2] = { 0 };
    for (int step = 0; step <= READS + 1; step++)
        begin[step] = (step > WRITES) + (step > WRITES + 1) + (is_read && step > READS);
    const coh_sequence sequence = {
        .step_count = READS + 1, .operand_begin = begin, .operands = operands, .lowered = &lowered
    };
    const uint8_t rules[] = { COH_CHUNK_LEAVES, 0 }, keeps_far[2] = { 0 };
    const coh_level level = { .layout = &layout,
                              .capacity = 2 * UNIT,
                              .has_far = 1,
                              .keeps_far = keeps_far,
                              .rules = rules,
                              .horizon = HORIZON,
                              .patient = COH_PATIENT_MOVED };
    coh_residency out = { 0 };
    assert_int_equal(coh_residency_run(&level, &sequence, NULL, NULL, 0, &out), COH_OK);
    assert_true(out.placings[0].offset == 0);
    const uint64_t offset = out.placings[1].offset;
    *out_moves = out.move_count;
    coh_residency_fini(&out);
    return offset;
}

/* The STORE of what was evicted still reads the place: a write there would wait for a link. */
static void a_write_goes_to_dead_space_at_once_and_past_space_that_a_store_reads(void **state)
{
    (void)state;
    size_t moves = 0;
    assert_true(place_after(0, &moves) == 0);
    assert_int_equal(moves, 0);
    assert_true(place_after(1, &moves) == UNIT);
    assert_int_equal(moves, 2); /* out, and in again */
}

static void the_lists_of_an_arena_are_those_of_its_segments(void **state)
{
    (void)state;
    static scene s;
    for (uint64_t seed = 0; seed < test_cases(200); seed++) {
        draws d = { .stream = 81, .seed = 1000000 + seed };
        draw_scene(&d, &s, 0);
        for (int i = 0; i < CHANGES; i++) {
            change(&d, &s);
            check_map(&s.runner.map);
        }
        coh_arena_map_fini(&s.runner.map);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_choice_is_that_of_the_rule),
        cmocka_unit_test(a_long_window_lies_where_the_rule_says),
        cmocka_unit_test(a_write_goes_to_dead_space_at_once_and_past_space_that_a_store_reads),
        cmocka_unit_test(the_lists_of_an_arena_are_those_of_its_segments),
    };
    return cmocka_run_group_tests_name("places", tests, NULL, NULL);
}
