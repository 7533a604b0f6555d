/* Choosing a place: of all places of a window's size the one whose present content is wanted again
 * latest, and, for what must be fetched, that has stood unused for a while. */
#include "planner/residency_state.h"

/* Recency below which a place counts as busy, tried from the strictest on. */
enum { PASS_COUNT = 3 };

typedef struct candidate {
    uint64_t offset;
    uint64_t
        next_use;     /* earliest next use of what would have to leave; COH_NEVER: nothing needed */
    int64_t last_use; /* latest use of the room */
    uint64_t relocated; /* bytes of the window's own content that would have to move */
    int32_t start;      /* a segment at or before offset */
    int valid;
} candidate;

/* A search for the place of one window. */
typedef struct search {
    const coh_need *need;
    uint64_t bytes;
    uint32_t window_first, window_last; /* chunks */
    int above, fetches;
    int has_content; /* some chunk of the window stands somewhere */
    candidate best[PASS_COUNT];
    uint64_t hopeless; /* a place with an earlier next use cannot be the best of any pass */
} search;

/* Bytes of the window's own content that stand elsewhere than at `offset`. */
static uint64_t relocated_bytes(const coh_runner *r, const search *s, uint64_t offset)
{
    uint64_t bytes = 0, origin = coh_runner_chunk(r, s->window_first)->object_offset;
    for (uint32_t chunk = s->window_first; s->has_content && chunk <= s->window_last; chunk++) {
        int32_t segment = r->map.segment_of_chunk[chunk];
        if (segment >= 0 && r->map.segments[segment].extent != COH_NO_EXTENT &&
            r->map.segments[segment].offset !=
                offset + coh_runner_chunk(r, chunk)->object_offset - origin)
            bytes += coh_runner_chunk(r, chunk)->bytes;
    }
    return bytes;
}

/* What taking [offset, offset + bytes) for the window would cost. `start`: a segment at or before
 * offset. */
static candidate weigh(const coh_runner *r, const search *s, uint64_t offset, int32_t start)
{
    candidate c = { .offset = offset, .next_use = COH_NEVER, .last_use = -1, .start = start };
    uint64_t end = offset + s->bytes;
    for (int32_t i = start; i >= 0 && r->map.segments[i].offset < end;
         i = r->map.segments[i].next) {
        const coh_segment *segment = &r->map.segments[i];
        if (segment->offset + segment->bytes <= offset)
            continue;
        int is_live = segment->chunk >= 0;
        if (is_live && (uint32_t)segment->chunk >= s->window_first &&
            (uint32_t)segment->chunk <= s->window_last)
            continue; /* own: see relocated_bytes */
        if (segment->last_use > c.last_use)
            c.last_use = segment->last_use;
        if (!is_live)
            continue;
        if (segment->pin_step == r->step || segment->next_use < s->hopeless)
            return c;
        if (segment->extent != COH_NO_EXTENT && !r->level->has_far &&
            coh_next_use_is_needed(&r->next, (uint32_t)segment->chunk))
            return c;
        if (segment->next_use < c.next_use)
            c.next_use = segment->next_use;
    }
    c.relocated = relocated_bytes(r, s, offset);
    c.valid = c.relocated == 0 || r->level->has_far;
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

/* Does the place meet pass number `pass`: unused for long enough, and what leaves not wanted
 * soon? */
static int meets_pass(const coh_runner *r, const candidate *c, int pass)
{
    if (pass == PASS_COUNT - 1)
        return 1;
    uint64_t distance = r->level->horizon >> (2 * pass);
    return c->last_use + (int64_t)distance <= (int64_t)r->step &&
           (c->next_use == COH_NEVER || c->next_use > r->step + distance);
}

static void consider(const coh_runner *r, search *s, uint64_t offset, int32_t start)
{
    if (offset < r->level->base_bytes || offset < r->level->floor_bytes ||
        offset + s->bytes > r->map.end)
        return;
    candidate c = weigh(r, s, offset, start);
    if (!c.valid)
        return;
    s->hopeless = COH_NEVER;
    for (int pass = s->fetches ? 0 : PASS_COUNT - 1; pass < PASS_COUNT; pass++) {
        candidate *best = &s->best[pass];
        if (meets_pass(r, &c, pass) && better(&c, best, s->above))
            *best = c;
        if (!best->valid || best->relocated > 0)
            s->hopeless = 0;
        else if (best->next_use < s->hopeless)
            s->hopeless = best->next_use;
    }
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
    if (need->access == COH_ACCESS_WRITE && !r->level->patient)
        return 0;
    for (uint32_t i = need->touch_begin; i < need->touch_end; i++) {
        int32_t segment = r->map.segment_of_chunk[coh_runner_first_chunk(r, need) + i];
        if (segment < 0 || r->map.segments[segment].extent == COH_NO_EXTENT)
            return 1;
    }
    return 0;
}

/* Nothing beats room that nobody wants, idle for long enough, where the tie-break looks first. */
static int is_perfect(const search *s)
{
    const candidate *best = &s->best[s->fetches ? 0 : PASS_COUNT - 1];
    return !s->above && best->valid && best->relocated == 0 && best->next_use == COH_NEVER;
}

static void consider_around_own_chunks(const coh_runner *r, search *s)
{
    uint64_t origin = coh_runner_chunk(r, s->window_first)->object_offset;
    for (uint32_t chunk = s->window_first; chunk <= s->window_last; chunk++) {
        uint64_t inside = coh_runner_chunk(r, chunk)->object_offset - origin;
        int32_t segment = r->map.segment_of_chunk[chunk];
        if (segment < 0 || r->map.segments[segment].offset < inside)
            continue;
        uint64_t offset = r->map.segments[segment].offset - inside;
        consider(r, s, offset, segment_at(r, segment, offset));
    }
}

static candidate find_place(const coh_runner *r, search *s)
{
    uint64_t sticky = r->boundary_offset[s->window_first];
    if (!r->packs && sticky != UINT64_MAX && sticky + s->bytes <= r->map.end) {
        candidate c = weigh(r, s, sticky, segment_at(r, r->map.last, sticky));
        if (c.valid && c.relocated == 0 && c.next_use == COH_NEVER)
            return c;
    }
    consider_around_own_chunks(r, s);
    for (int32_t i = r->map.first; i >= 0 && !is_perfect(s); i = r->map.segments[i].next) {
        const coh_segment *segment = &r->map.segments[i];
        consider(r, s, segment->offset, i);
        uint64_t end = segment->offset + segment->bytes;
        if (end >= s->bytes && !(segment->next < 0 && r->level->capacity == UINT64_MAX))
            consider(r, s, end - s->bytes, segment_at(r, i, end - s->bytes));
    }
    for (int pass = s->fetches ? 0 : PASS_COUNT - 1; pass < PASS_COUNT; pass++)
        if (s->best[pass].valid)
            return s->best[pass];
    return (candidate){ 0 };
}

int coh_residency_choose(const coh_runner *r, const coh_need *need, uint64_t *out_offset,
                         int32_t *out_near)
{
    uint32_t first = coh_runner_first_chunk(r, need);
    search s = { .need = need,
                 .bytes = coh_runner_window_bytes(r, need),
                 .window_first = first + need->window_begin,
                 .window_last = first + need->window_end - 1,
                 .above = from_above(r, need),
                 .fetches = r->level->horizon > 0 && fetches(r, need) };
    for (uint32_t chunk = s.window_first; chunk <= s.window_last; chunk++) {
        int32_t segment = r->map.segment_of_chunk[chunk];
        s.has_content |= segment >= 0 && r->map.segments[segment].extent != COH_NO_EXTENT;
    }
    candidate c = find_place(r, &s);
    *out_offset = c.offset;
    *out_near = c.start;
    return c.valid;
}
