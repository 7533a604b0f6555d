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
    /* By pass: what stands at a place of use to it is wanted no earlier than that, and was used no
     * later than that. Both only grow stricter as better places are found. */
    uint64_t least_next_use[PASS_COUNT];
    int64_t most_last_use[PASS_COUNT];
    /* Two segments that bar every place over them (once barred, always: see above): the
     * one that ended the last weighing, and the last that the search has passed. Without them each
     * place is walked anew, window after window. */
    uint64_t ahead_begin, ahead_end, behind_end;
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

static int is_own(const search *s, const coh_segment *segment)
{
    return segment->chunk >= 0 && (uint32_t)segment->chunk >= s->window_first &&
           (uint32_t)segment->chunk <= s->window_last;
}

static int first_pass(const search *s)
{
    return s->fetches ? 0 : PASS_COUNT - 1;
}

/* Is no place over this segment the best of any pass, or possible? */
static int bars(const coh_runner *r, const search *s, const coh_segment *segment)
{
    if (segment->chunk < 0 || is_own(s, segment))
        return 0;
    if (segment->pin_step == r->step ||
        (segment->extent != COH_NO_EXTENT && !r->level->has_far &&
         coh_next_use_is_needed(&r->next, (uint32_t)segment->chunk)))
        return 1;
    for (int pass = first_pass(s); pass < PASS_COUNT; pass++)
        if (segment->next_use >= s->least_next_use[pass] &&
            segment->last_use <= s->most_last_use[pass])
            return 0;
    return 1;
}

/* Is a place over a segment that is known to bar it? */
static int is_barred(const search *s, uint64_t offset)
{
    return offset < s->ahead_end && offset + s->bytes > s->ahead_begin;
}

/* What taking [offset, offset + bytes) for the window would cost. `start`: a segment at or before
 * offset. */
static candidate weigh(const coh_runner *r, search *s, uint64_t offset, int32_t start)
{
    candidate c = { .offset = offset, .next_use = COH_NEVER, .last_use = -1 };
    uint64_t end = offset + s->bytes;
    for (int32_t i = start; i >= 0 && r->map.segments[i].offset < end;
         i = r->map.segments[i].next) {
        const coh_segment *segment = &r->map.segments[i];
        if (segment->offset + segment->bytes <= offset)
            continue;
        if (is_own(s, segment))
            continue; /* see relocated_bytes */
        if (segment->last_use > c.last_use)
            c.last_use = segment->last_use;
        if (segment->chunk < 0)
            continue;
        if (bars(r, s, segment)) {
            s->ahead_begin = segment->offset;
            s->ahead_end = segment->offset + segment->bytes;
            return c;
        }
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

/* What each pass asks of a place before any is found: unused for long enough, and nothing there
 * that is wanted soon. */
static void begin_passes(const coh_runner *r, search *s)
{
    for (int pass = 0; pass < PASS_COUNT - 1; pass++) {
        const uint64_t distance = r->level->horizon >> (2 * pass);
        s->least_next_use[pass] = r->step + distance + 1;
        s->most_last_use[pass] = (int64_t)r->step - (int64_t)distance;
    }
    s->most_last_use[PASS_COUNT - 1] = INT64_MAX;
}

static int meets_pass(const search *s, const candidate *c, int pass)
{
    return c->next_use >= s->least_next_use[pass] && c->last_use <= s->most_last_use[pass];
}

static void consider(const coh_runner *r, search *s, uint64_t offset, int32_t start)
{
    if (offset < r->level->base_bytes || offset < r->level->floor_bytes ||
        offset + s->bytes > r->map.end || is_barred(s, offset))
        return;
    candidate c = weigh(r, s, offset, start);
    if (!c.valid)
        return;
    for (int pass = first_pass(s); pass < PASS_COUNT; pass++) {
        candidate *best = &s->best[pass];
        if (!meets_pass(s, &c, pass) || !better(&c, best, s->above))
            continue;
        *best = c;
        if (c.relocated == 0 && c.next_use > s->least_next_use[pass])
            s->least_next_use[pass] = c.next_use;
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
    const candidate *best = &s->best[first_pass(s)];
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
        if (offset >= r->map.begin)
            consider(r, s, offset, segment_at(r, segment, offset));
    }
}

static candidate find_place(const coh_runner *r, search *s)
{
    uint64_t sticky = r->boundary_offset[s->window_first];
    if (!r->packs && sticky != UINT64_MAX && sticky + s->bytes <= r->map.end) {
        candidate c = weigh(r, s, sticky, coh_arena_map_at(&r->map, sticky));
        if (c.valid && c.relocated == 0 && c.next_use == COH_NEVER)
            return c;
    }
    consider_around_own_chunks(r, s);
    for (int32_t i = r->map.first; i >= 0 && !is_perfect(s); i = r->map.segments[i].next) {
        const coh_segment *segment = &r->map.segments[i];
        consider(r, s, segment->offset, i);
        uint64_t end = segment->offset + segment->bytes;
        if (bars(r, s, segment))
            s->behind_end = end;
        if (end >= s->bytes + s->behind_end &&
            !(segment->next < 0 && r->level->capacity == UINT64_MAX))
            consider(r, s, end - s->bytes, segment_at(r, i, end - s->bytes));
    }
    for (int pass = first_pass(s); pass < PASS_COUNT; pass++)
        if (s->best[pass].valid)
            return s->best[pass];
    return (candidate){ 0 };
}

int coh_residency_choose(const coh_runner *r, const coh_need *need, uint64_t *out_offset)
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
    begin_passes(r, &s);
    candidate c = find_place(r, &s);
    *out_offset = c.offset;
    return c.valid;
}
