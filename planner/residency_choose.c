/* Choosing a place: of all places of a window's size the one whose present content is wanted again latest,
 * and, for what must be fetched, that has stood unused for a while. */
#include "planner/residency_state.h"

/* Recency below which a place counts as busy, tried from the strictest on. */
enum { PASS_COUNT = 3 };

typedef struct candidate {
    uint64_t offset;
    uint64_t
        next_use;     /* earliest next use of what would have to leave; COH_NEVER: nothing needed */
    int64_t last_use; /* latest use of the room */
    uint64_t relocated; /* bytes of the window's own content that would have to move */
    int valid;
} candidate;

/* What taking [offset, offset + bytes) for the need's window would cost. `start`: a segment at or before
 * offset. */
static candidate weigh(const coh_runner *r, const coh_need *need, uint64_t offset, uint64_t bytes,
                       int32_t start)
{
    candidate c = { .offset = offset, .next_use = COH_NEVER, .last_use = -1, .valid = 1 };
    uint32_t window_first = coh_runner_first_chunk(r, need) + need->window_begin;
    uint32_t window_last = coh_runner_first_chunk(r, need) + need->window_end - 1;
    uint64_t origin = coh_runner_chunk(r, window_first)->object_offset;
    for (int32_t i = start; i >= 0 && r->map.segments[i].offset < offset + bytes;
         i = r->map.segments[i].next) {
        const coh_segment *s = &r->map.segments[i];
        if (s->offset + s->bytes <= offset)
            continue;
        if (s->chunk >= 0 && (uint32_t)s->chunk >= window_first &&
            (uint32_t)s->chunk <= window_last) {
            continue; /* own: counted by the caller */
        }
        if (s->last_use > c.last_use)
            c.last_use = s->last_use;
        if (s->chunk < 0)
            continue;
        if (s->pin_step == r->step) {
            c.valid = 0;
            return c;
        }
        if (s->extent != COH_NO_EXTENT && !r->level->has_far &&
            coh_next_use_is_needed(&r->next, (uint32_t)s->chunk)) {
            c.valid = 0;
            return c;
        }
        uint64_t use = coh_next_use_step(&r->next, (uint32_t)s->chunk);
        if (use < c.next_use)
            c.next_use = use;
    }
    for (uint32_t chunk = window_first; chunk <= window_last; chunk++) {
        int32_t segment = r->map.segment_of_chunk[chunk];
        if (segment >= 0 && r->map.segments[segment].extent != COH_NO_EXTENT &&
            r->map.segments[segment].offset !=
                offset + coh_runner_chunk(r, chunk)->object_offset - origin)
            c.relocated += coh_runner_chunk(r, chunk)->bytes;
    }
    if (c.relocated > 0 && !r->level->has_far)
        c.valid = 0;
    return c;
}

static int from_above(const coh_runner *r, const coh_need *need)
{
    coh_stream stream = (coh_stream)r->layout->objects[need->object].stream;
    return r->level->tie_break == COH_TIE_TWO_ENDS && r->level->capacity != UINT64_MAX &&
           stream != COH_STREAM_WORK && stream != COH_STREAM_GRAD && stream != COH_STREAM_STATE;
}

/* Is a the better place? */
static int better(const candidate *a, const candidate *b, int above)
{
    if (!b->valid)
        return 1;
    if (a->relocated != b->relocated)
        return a->relocated < b->relocated;
    if (a->next_use != b->next_use)
        return a->next_use > b->next_use;
    if (a->next_use != COH_NEVER && a->last_use != b->last_use)
        return a->last_use < b->last_use;
    return above ? a->offset > b->offset : a->offset < b->offset;
}

/* Does the place meet pass number `pass`: unused for long enough, and what leaves not wanted soon? */
static int meets_pass(const coh_runner *r, const candidate *c, int pass)
{
    if (pass == PASS_COUNT - 1)
        return 1;
    uint64_t distance = r->level->horizon >> (2 * pass);
    return c->last_use + (int64_t)distance <= (int64_t)r->step &&
           (c->next_use == COH_NEVER || c->next_use > r->step + distance);
}

typedef struct search {
    const coh_need *need;
    uint64_t bytes;
    int above, fetches;
    candidate best[PASS_COUNT];
} search;

static void consider(const coh_runner *r, search *s, uint64_t offset, int32_t start)
{
    if (offset < r->level->base_bytes || offset < r->level->floor_bytes ||
        offset + s->bytes > r->map.end)
        return;
    candidate c = weigh(r, s->need, offset, s->bytes, start);
    if (!c.valid)
        return;
    for (int pass = s->fetches ? 0 : PASS_COUNT - 1; pass < PASS_COUNT; pass++)
        if (meets_pass(r, &c, pass) && better(&c, &s->best[pass], s->above))
            s->best[pass] = c;
}

/* Walks back from a segment to the one that holds `offset`. */
static int32_t segment_at(const coh_runner *r, int32_t segment, uint64_t offset)
{
    while (r->map.segments[segment].offset > offset && r->map.segments[segment].previous >= 0)
        segment = r->map.segments[segment].previous;
    return segment;
}

/* Does a need fetch something (then room that has been quiet for long is worth having)? */
static int fetches(const coh_runner *r, const coh_need *need)
{
    if (need->access == COH_ACCESS_WRITE)
        return 0;
    for (uint32_t i = need->touch_begin; i < need->touch_end; i++) {
        int32_t segment = r->map.segment_of_chunk[coh_runner_first_chunk(r, need) + i];
        if (segment < 0 || r->map.segments[segment].extent == COH_NO_EXTENT)
            return 1;
    }
    return 0;
}

static candidate find_place(const coh_runner *r, const coh_need *need)
{
    search s = { .need = need,
                 .bytes = coh_runner_window_bytes(r, need),
                 .above = from_above(r, need),
                 .fetches = r->level->horizon > 0 && fetches(r, need) };
    uint32_t window_first = coh_runner_first_chunk(r, need) + need->window_begin;
    uint64_t origin = coh_runner_chunk(r, window_first)->object_offset;
    for (uint32_t i = need->window_begin; i < need->window_end; i++) {
        uint32_t chunk = coh_runner_first_chunk(r, need) + i;
        uint64_t inside = coh_runner_chunk(r, chunk)->object_offset - origin;
        int32_t segment = r->map.segment_of_chunk[chunk];
        if (segment >= 0 && r->map.segments[segment].offset >= inside) {
            uint64_t offset = r->map.segments[segment].offset - inside;
            consider(r, &s, offset, segment_at(r, segment, offset));
        }
    }
    uint64_t sticky = r->boundary_offset[window_first];
    if (sticky != UINT64_MAX && sticky + s.bytes <= r->map.end) {
        candidate c = weigh(r, need, sticky, s.bytes, segment_at(r, r->map.last, sticky));
        if (c.valid && c.relocated == 0 && c.next_use == COH_NEVER)
            return c;
    }
    for (int32_t i = r->map.first; i >= 0; i = r->map.segments[i].next) {
        const coh_segment *segment = &r->map.segments[i];
        consider(r, &s, segment->offset, i);
        uint64_t end = segment->offset + segment->bytes;
        if (end >= s.bytes && !(segment->next < 0 && r->level->capacity == UINT64_MAX))
            consider(r, &s, end - s.bytes, segment_at(r, i, end - s.bytes));
    }
    for (int pass = s.fetches ? 0 : PASS_COUNT - 1; pass < PASS_COUNT; pass++)
        if (s.best[pass].valid)
            return s.best[pass];
    return (candidate){ 0 };
}

int coh_residency_choose(const coh_runner *r, const coh_need *need, uint64_t *out_offset)
{
    candidate c = find_place(r, need);
    *out_offset = c.offset;
    return c.valid;
}
