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
} search;

/* Segments next to one another, as a window slides over the arena: those of its own whose next use
 * is below that of all behind them, and those whose last use is above. The fronts are the least and
 * the most of the window (a monotone queue: each segment enters and leaves once). */
typedef struct sliding {
    int32_t *least, *most; /* indices of segments, in order of offset */
    size_t least_begin, least_end, most_begin, most_end;
} sliding;

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

/* When what stands there is wanted again. What must be written out as well costs twice: with
 * COH_TIE_CLEAN it counts as wanted in half the steps. */
static uint64_t wanted_at(const coh_runner *r, const coh_segment *segment)
{
    uint64_t next = segment->next_use;
    if (r->level->tie_break != COH_TIE_CLEAN || next >= COH_NEVER - 1 || next <= r->step ||
        r->far_version[segment->chunk] == r->version[segment->chunk])
        return next;
    return r->step + (next - r->step + 1) / 2;
}

static int first_pass(const search *s)
{
    return s->fetches ? 0 : PASS_COUNT - 1;
}

/* Must what stands there stay? */
static int is_held(const coh_runner *r, const coh_segment *segment)
{
    int stays = !r->level->has_far || (r->level->rules != NULL &&
                                       (r->level->rules[segment->chunk] & COH_CHUNK_STAYS) != 0);
    return segment->pin_step == r->step ||
           (segment->extent != COH_NO_EXTENT && stays &&
            coh_next_use_is_needed(&r->next, (uint32_t)segment->chunk));
}

/* Is no place over this segment possible, or the best of any pass that still counts? */
static int bars(const coh_runner *r, const search *s, const coh_segment *segment)
{
    if (segment->chunk < 0 || is_own(s, segment))
        return 0;
    if (is_held(r, segment))
        return 1;
    const uint64_t wanted = wanted_at(r, segment);
    for (int pass = first_pass(s); pass < PASS_COUNT; pass++) {
        if (wanted >= s->least_next_use[pass] && segment->last_use <= s->most_last_use[pass])
            return 0;
        if (s->best[pass].valid)
            return 1;
    }
    return 1;
}

/* What taking [offset, offset + bytes) for the window would cost, but for its own content. */
static candidate weigh(const coh_runner *r, const search *s, uint64_t offset)
{
    candidate c = { .offset = offset, .next_use = COH_NEVER, .last_use = -1, .valid = 1 };
    uint64_t end = offset + s->bytes;
    for (int32_t i = coh_arena_map_at(&r->map, offset); i >= 0 && r->map.segments[i].offset < end;
         i = r->map.segments[i].next) {
        const coh_segment *segment = &r->map.segments[i];
        if (is_own(s, segment))
            continue; /* see relocated_bytes */
        if (segment->last_use > c.last_use)
            c.last_use = segment->last_use;
        if (segment->chunk < 0)
            continue;
        if (bars(r, s, segment))
            return (candidate){ 0 };
        if (wanted_at(r, segment) < c.next_use)
            c.next_use = wanted_at(r, segment);
    }
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

/* Takes a weighed place where it is the best so far. */
static void consider(const coh_runner *r, search *s, candidate *c)
{
    int is_measured = 0;
    if (!c->valid || c->offset < r->level->base_bytes || c->offset < r->level->floor_bytes)
        return;
    for (int pass = first_pass(s); pass < PASS_COUNT; pass++) {
        candidate *best = &s->best[pass];
        if (!meets_pass(s, c, pass))
            continue;
        if (!is_measured)
            c->relocated = relocated_bytes(r, s, c->offset);
        is_measured = 1;
        if ((c->relocated == 0 || r->level->has_far) && better(c, best, s->above)) {
            *best = *c;
            if (c->relocated == 0 && c->next_use > s->least_next_use[pass])
                s->least_next_use[pass] = c->next_use;
        }
        if (best->valid)
            return; /* no later pass counts any more */
    }
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
        if (segment < 0 || r->map.segments[segment].offset < r->map.begin + inside)
            continue;
        uint64_t offset = r->map.segments[segment].offset - inside;
        if (offset + s->bytes <= r->map.end) {
            candidate c = weigh(r, s, offset);
            consider(r, s, &c);
        }
    }
}

/* ---- the sliding window ---- */

static void slide_in(const coh_runner *r, const search *s, sliding *w, int32_t index)
{
    const coh_segment *segments = r->map.segments, *segment = &segments[index];
    if (is_own(s, segment))
        return;
    while (w->most_end > w->most_begin &&
           segments[w->most[w->most_end - 1]].last_use <= segment->last_use)
        w->most_end--;
    w->most[w->most_end++] = index;
    if (segment->chunk < 0)
        return;
    while (w->least_end > w->least_begin &&
           wanted_at(r, &segments[w->least[w->least_end - 1]]) >= wanted_at(r, segment))
        w->least_end--;
    w->least[w->least_end++] = index;
}

static void slide_out(sliding *w, int32_t index)
{
    w->most_begin += w->most_begin < w->most_end && w->most[w->most_begin] == index;
    w->least_begin += w->least_begin < w->least_end && w->least[w->least_begin] == index;
}

static void consider_window(const coh_runner *r, search *s, const sliding *w, uint64_t offset)
{
    candidate c = { .offset = offset, .next_use = COH_NEVER, .last_use = -1, .valid = 1 };
    if (w->most_begin < w->most_end)
        c.last_use = r->map.segments[w->most[w->most_begin]].last_use;
    if (w->least_begin < w->least_end)
        c.next_use = wanted_at(r, &r->map.segments[w->least[w->least_begin]]);
    consider(r, s, &c);
}

/* Considers every place that begins or ends with a segment, from the lowest on. `first` is the
 * first segment of the window, `last` the newest: places that end in it have not been seen. */
static void consider_all(const coh_runner *r, search *s)
{
    const coh_segment *segments = r->map.segments;
    sliding w = { .least = r->queue, .most = r->queue + r->queue_capacity / 2 };
    int32_t first = r->map.first, begun = -1; /* begun: the place that begins with it was seen */
    for (int32_t last = first; last >= 0 && !is_perfect(s); last = segments[last].next) {
        uint64_t end = segments[last].offset + segments[last].bytes;
        if (bars(r, s, &segments[last])) {
            first = segments[last].next;
            w.least_begin = w.least_end = w.most_begin = w.most_end = 0;
            continue;
        }
        slide_in(r, s, &w, last);
        while (segments[first].offset + s->bytes <= end) {
            if (begun != first)
                consider_window(r, s, &w, segments[first].offset);
            begun = first;
            if (segments[first].offset + segments[first].bytes + s->bytes > end)
                break;
            slide_out(&w, first);
            first = segments[first].next;
        }
        int is_endless = segments[last].next < 0 && r->level->capacity == UINT64_MAX;
        if (segments[first].offset + s->bytes < end && !is_endless)
            consider_window(r, s, &w, end - s->bytes);
    }
}

/* The lowest room that nobody wants and that stood unused for long enough: nothing beats it. */
static candidate find_idle(const coh_runner *r, const search *s)
{
    const coh_segment *segments = r->map.segments;
    int64_t latest = s->most_last_use[first_pass(s)];
    uint64_t floor = r->level->floor_bytes;
    uint64_t begin = 0, end = 0; /* of the idle room that ends with the last segment seen */
    for (int32_t i = coh_arena_map_next_free(&r->map, -1); i >= 0;
         i = coh_arena_map_next_free(&r->map, i)) {
        if (segments[i].last_use > latest || segments[i].offset < floor)
            continue;
        if (segments[i].offset != end)
            begin = segments[i].offset;
        end = segments[i].offset + segments[i].bytes;
        if (end - begin >= s->bytes)
            return (candidate){ .offset = begin, .next_use = COH_NEVER, .valid = 1 };
    }
    return (candidate){ 0 };
}

static candidate find_place(const coh_runner *r, search *s)
{
    uint64_t sticky = r->boundary_offset[s->window_first];
    if (!r->packs && sticky != UINT64_MAX && sticky + s->bytes <= r->map.end) {
        candidate c = weigh(r, s, sticky);
        if (c.valid && c.next_use == COH_NEVER && relocated_bytes(r, s, sticky) == 0)
            return c;
    }
    if (!s->above && !s->has_content) {
        candidate c = find_idle(r, s);
        if (c.valid)
            return c;
    }
    consider_around_own_chunks(r, s);
    consider_all(r, s);
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
