/* Chooses the place of a window: of all places of its size the one whose present content is needed
 * again latest. For a fetch the place must also have been unused for a while. The idea: weigh a few
 * samples first, so that most other places are quickly known to be worse. Called by residency.c. */
#include "planner/residency_state.h"

#include <assert.h>

/* Passes of decreasing minimum idle time, tried from the strictest on. */
enum { PASS_COUNT = 3 };

/* Places weighed before all others. For the plans of opt-30b and llama-3.1-70b 12 to 24 are about
 * equally good; 6 weighs an eighth more places than 12, and 48 four tenths more. */
enum { SAMPLE_COUNT = 16 };

/* Segments visited until any place found will do. Segments that are known already do not count.
 * Only searches among many small chunks visit this many. */
enum { VISITS_MOST = 1 << 20 };

typedef struct candidate {
    uint64_t offset;
    uint64_t next_use;  /* earliest next use of content to evict; COH_NEVER: none is needed */
    int64_t last_use;   /* latest use of the space */
    uint64_t relocated; /* bytes of the window's own content that must move */
    int valid;
} candidate;

/* A search for the place of one window. */
typedef struct search {
    const coh_lowered_operand *operand;
    uint64_t bytes;
    uint32_t window_first, window_last; /* chunks */
    int above, fetches;
    int writes;      /* compute overwrites it, and COH_PATIENT_MOVED holds */
    int has_content; /* some chunk of the window is resident */
    int has_segment; /* some chunk of it has a segment, perhaps without content */
    int may_hold;    /* content of the level may have to stay */
    candidate best[PASS_COUNT];
    /* By pass: limits for content at a useful place. Its next use is no earlier than
     * least_next_use, which only rises as better places are found; its last use is no later than
     * most_last_use. */
    uint64_t least_next_use[PASS_COUNT];
    int64_t most_last_use[PASS_COUNT];
    /* Of the passes that count, from the first to the one that has found a place: the bits, and
     * the least of least_next_use. No place over content needed sooner can be the best. */
    unsigned passes;
    uint64_t soonest;
    coh_arena_limits limits; /* of other content over which the best place may lie */
    uint64_t visits;         /* of segments, so far */
} search;

/* Bytes of the window's own content that lie elsewhere than at `offset`. */
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
    /* -1, of a free segment, is above all chunks */
    return (uint32_t)segment->chunk - s->window_first <= s->window_last - s->window_first;
}

/* When the content of a segment is needed again. Content that must be written out first costs
 * twice: with COH_TIE_CLEAN it counts as needed in half the steps. */
static uint64_t wanted_at(const coh_runner *r, const coh_segment *segment)
{
    uint64_t next = segment->next_use;
    if (r->level->tie_break != COH_TIE_CLEAN || next >= COH_NEVER - 1 || next <= r->step ||
        r->far_version[segment->chunk] == r->version[segment->chunk])
        return next;
    return r->step + (next - r->step + 1) / 2;
}

/* The latest use of a segment that the window may have to wait for. What compute writes follows all
 * earlier instructions of its lane, and waits for the movers alone. */
static int64_t last_use_of(const coh_runner *r, const search *s, const coh_segment *segment)
{
    if (!s->writes)
        return segment->last_use;
    if (segment->chunk < 0 || segment->last_moved > r->last_write[segment->chunk])
        return segment->last_moved;
    return r->last_write[segment->chunk];
}

static int first_pass(const search *s)
{
    return s->fetches ? 0 : PASS_COUNT - 1;
}

/* Returns 1 if the segment's content must stay. */
static int is_held(const coh_runner *r, const search *s, const coh_segment *segment)
{
    if (segment->pin_step == r->step)
        return 1;
    return s->may_hold && segment->extent != COH_NO_EXTENT &&
           (!r->level->has_far || (r->level->rules[segment->chunk] & COH_CHUNK_STAYS) != 0) &&
           coh_next_use_is_needed(&r->next, (uint32_t)segment->chunk);
}

/* Returns 1 if every place over this segment is worse than the best of the pass, or fails its
 * conditions. */
static int bars_pass(const search *s, const coh_segment *segment, uint64_t wanted, int64_t last_use,
                     int pass)
{
    const candidate *best = &s->best[pass];
    if (wanted < s->least_next_use[pass] || last_use > s->most_last_use[pass])
        return 1;
    /* Equal to the best: the longer idle place wins, then the lower one. */
    if (!best->valid || best->relocated > 0 || wanted > best->next_use || wanted == COH_NEVER)
        return 0;
    return last_use > best->last_use ||
           (last_use == best->last_use && !s->above && segment->offset >= best->offset + s->bytes);
}

/* Of `passes` (bit p: pass p), returns those whose best place may still lie over this segment of
 * other content, which is wanted and was used then. */
static inline unsigned passes_over(const search *s, const coh_segment *segment, uint64_t wanted,
                                   int64_t last_use, unsigned passes)
{
    for (unsigned left = passes; left != 0; left &= left - 1)
        if (bars_pass(s, segment, wanted, last_use, __builtin_ctz(left)))
            passes &= ~(left & -left);
    return passes;
}

static void add_limit(coh_arena_limits *limits, uint64_t next_use, int64_t last_use)
{
    limits->next_use[limits->count] = next_use;
    limits->last_use[limits->count++] = last_use;
}

/* Adds the limits for content of a pass: what bars_pass says of a segment, but for its offset and
 * for content that must be written out. */
static void add_limits(search *s, int pass)
{
    const candidate *best = &s->best[pass];
    uint64_t next_use = s->least_next_use[pass];
    /* What compute writes waits for other uses of a segment than its last one. */
    const int64_t most = s->writes ? INT64_MAX : s->most_last_use[pass];
    if (best->valid && best->relocated == 0 && best->next_use != COH_NEVER && !s->writes)
        add_limit(&s->limits, next_use++, best->last_use < most ? best->last_use : most);
    add_limit(&s->limits, next_use, most);
}

/* Finds the passes that still count. */
static void count_passes(search *s)
{
    s->passes = 0;
    s->soonest = COH_NEVER;
    s->limits.count = 0;
    for (int pass = first_pass(s); pass < PASS_COUNT; pass++) {
        s->passes |= 1U << pass;
        if (s->least_next_use[pass] < s->soonest)
            s->soonest = s->least_next_use[pass];
        add_limits(s, pass);
        if (s->best[pass].valid)
            break;
    }
}

/* Returns 1 if every place over this segment is worse than the best ones of all passes. */
static int is_barred(const coh_runner *r, const search *s, const coh_segment *segment)
{
    const int is_taken = segment->chunk >= 0;
    if (is_own(s, segment))
        return 0;
    return (is_taken && is_held(r, s, segment)) ||
           passes_over(s, segment, is_taken ? wanted_at(r, segment) : COH_NEVER,
                       last_use_of(r, s, segment), s->passes) == 0;
}

static int is_wanted_too_soon(const search *s, const coh_segment *segment)
{
    return segment->next_use < s->soonest && segment->chunk >= 0 && !is_own(s, segment);
}

/* Returns the segment with which [offset, offset + bytes) ends. */
static int32_t last_over(const coh_runner *r, const search *s, uint64_t offset)
{
    return coh_arena_map_at(&r->map, offset + s->bytes - 1);
}

/* As last_over, for a range that ends at or after segment `near`, mostly not far from it. */
static int32_t last_over_from(const coh_runner *r, const search *s, uint64_t offset, int32_t near)
{
    enum { STEPS = 4 };
    const coh_segment *segments = r->map.segments;
    for (int step = 0; step < STEPS; step++, near = segments[near].next)
        if (segments[near].offset + segments[near].bytes >= offset + s->bytes)
            return near;
    return last_over(r, s, offset);
}

static int meets_pass(const search *s, const candidate *c, int pass)
{
    return c->next_use >= s->least_next_use[pass] && c->last_use <= s->most_last_use[pass];
}

/* Adds a segment of other content to the cost of a place. Returns 0 if it leaves none of *passes
 * possible. */
static inline int add_segment(const coh_runner *r, search *s, const coh_segment *segment,
                              unsigned *passes, candidate *cost)
{
    const int is_taken = segment->chunk >= 0;
    s->visits++;
    /* the most common case first */
    if (is_taken && (segment->next_use < s->soonest || is_held(r, s, segment)))
        return 0;
    const uint64_t wanted = is_taken ? wanted_at(r, segment) : COH_NEVER;
    const int64_t last_use = last_use_of(r, s, segment);
    *passes = passes_over(s, segment, wanted, last_use, *passes);
    cost->last_use = last_use > cost->last_use ? last_use : cost->last_use;
    cost->next_use = wanted < cost->next_use ? wanted : cost->next_use;
    return *passes != 0;
}

/* What is known of the segments under the place weighed last, so that the next one, which shares
 * most of them, need not weigh them again:
 *
 *     at[count - 1] ...... at[1]  at[0] | .......  last     in rising offset
 *     <──── next_use[i], last_use[i]: ─>|<─ `after` ─>
 *           of at[i] up to at[0]        |
 *
 * Costs depend on no limits, so they are never stale. Only for windows without segments of their
 * own; a place over more segments than SLIDE_MOST is weighed in full. */
enum { SLIDE_MOST = 256 };
typedef struct slide {
    int count; /* 0: nothing is known */
    int32_t at[SLIDE_MOST], last;
    uint64_t next_use[SLIDE_MOST];
    int64_t last_use[SLIDE_MOST];
    candidate after;
} slide;

/* Records a segment, which lies before those that were recorded, and their cost with it. */
static void record(slide *k, int32_t segment, const candidate *cost)
{
    if (k->count == SLIDE_MOST)
        return;
    if (k->count == 0) {
        k->last = segment;
        k->after = (candidate){ .next_use = COH_NEVER, .last_use = -1 };
    }
    k->at[k->count] = segment;
    k->next_use[k->count] = cost->next_use;
    k->last_use[k->count++] = cost->last_use;
}

/* Computes the cost of taking [offset, offset + bytes), which ends with segment `last`, for the
 * window, except for its own content (see relocated_bytes). Goes from the end of the range to its
 * begin. Returns -1, or the first segment that leaves no pass possible; then no pass is possible
 * for any place from this one to that segment's end. `known`: NULL, or an empty one to record
 * in. */
static int32_t weigh(const coh_runner *r, search *s, uint64_t offset, int32_t last, slide *known,
                     candidate *out)
{
    const coh_segment *segments = r->map.segments;
    unsigned passes = s->passes;
    *out = (candidate){ .offset = offset, .next_use = COH_NEVER, .last_use = -1 };
    for (int32_t i = last; i >= 0 && segments[i].offset + segments[i].bytes > offset;
         i = segments[i].previous) {
        if (is_own(s, &segments[i])) {
            s->visits++;
            continue;
        }
        if (!add_segment(r, s, &segments[i], &passes, out))
            return i;
        if (known != NULL)
            record(known, i, out);
    }
    out->valid = 1;
    return -1;
}

/* Weighs what follows the known segments, up to segment `last`. Returns 0 if one of them leaves no
 * pass possible. */
static int go_on_to(const coh_runner *r, search *s, slide *k, int32_t last)
{
    unsigned passes = s->passes;
    while (k->last != last) {
        k->last = r->map.segments[k->last].next;
        if (!add_segment(r, s, &r->map.segments[k->last], &passes, &k->after))
            return 0;
    }
    return 1;
}

/* Weighs the place that begins with segment `first` and ends with `last` from what is known of the
 * one before. Returns 0 if nothing is, or if no pass is possible. A place equal to the best that
 * `weigh` would leave out is weighed too: `consider` refuses it. */
static int weigh_from_known(const coh_runner *r, search *s, slide *k, int32_t first, int32_t last,
                            candidate *out)
{
    const coh_segment *segments = r->map.segments;
    while (k->count > 0 && segments[k->at[k->count - 1]].offset < segments[first].offset)
        k->count--;
    if (k->count == 0 || k->at[k->count - 1] != first || !go_on_to(r, s, k, last))
        return 0;
    const uint64_t next_use = k->next_use[k->count - 1];
    const int64_t last_use = k->last_use[k->count - 1];
    *out = (candidate){ .offset = segments[first].offset,
                        .next_use = next_use < k->after.next_use ? next_use : k->after.next_use,
                        .last_use = last_use > k->after.last_use ? last_use : k->after.last_use,
                        .valid = 1 };
    int is_possible = 0;
    for (unsigned left = s->passes; left != 0; left &= left - 1)
        is_possible |= meets_pass(s, out, __builtin_ctz(left));
    return is_possible;
}

/* As weigh, of the place that begins with segment `first`. */
static int32_t weigh_next(const coh_runner *r, search *s, slide *k, int32_t first, int32_t last,
                          candidate *out)
{
    if (weigh_from_known(r, s, k, first, last, out))
        return -1;
    k->count = 0;
    const uint64_t offset = r->map.segments[first].offset;
    const int32_t barrier = weigh(r, s, offset, last, s->has_segment ? NULL : k, out);
    if (barrier >= 0)
        k->count = 0;
    return barrier;
}

static int from_above(const coh_runner *r, const coh_lowered_operand *operand)
{
    coh_stream stream = (coh_stream)r->layout->objects[operand->object].stream;
    return r->level->tie_break == COH_TIE_TWO_ENDS && r->level->capacity != UINT64_MAX &&
           stream != COH_STREAM_WORK && stream != COH_STREAM_GRAD && stream != COH_STREAM_STATE;
}

/* Returns 1 if `a` is the better place. */
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

/* Sets the conditions of each pass before any place is found: unused for long enough, and no
 * content that is needed soon. */
static void begin_passes(const coh_runner *r, search *s)
{
    for (int pass = 0; pass < PASS_COUNT - 1; pass++) {
        const uint64_t distance = r->level->horizon >> (2 * pass);
        s->least_next_use[pass] = r->step + distance + 1;
        s->most_last_use[pass] = (int64_t)r->step - (int64_t)distance;
    }
    s->most_last_use[PASS_COUNT - 1] = INT64_MAX;
    count_passes(s);
}

/* The space below is pinned. */
static uint64_t lowest_offset(const coh_runner *r)
{
    return r->level->floor_bytes > r->map.begin ? r->level->floor_bytes : r->map.begin;
}

/* Records a weighed place if it is the best so far. */
static void consider(const coh_runner *r, search *s, candidate *c)
{
    int is_measured = 0;
    if (!c->valid || c->offset < lowest_offset(r))
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
            count_passes(s);
        }
        if (best->valid)
            return; /* later passes no longer count */
    }
}

/* Returns 1 if an operand fetches something: then long-unused space is worth choosing. */
static int fetches(const coh_runner *r, const coh_lowered_operand *operand)
{
    if (operand->access == COH_ACCESS_WRITE && !r->level->patient)
        return 0;
    for (uint32_t i = operand->touch_begin; i < operand->touch_end; i++) {
        int32_t segment = r->map.segment_of_chunk[coh_runner_first_chunk(r, operand) + i];
        if (segment < 0 || r->map.segments[segment].extent == COH_NO_EXTENT)
            return 1;
    }
    return 0;
}

/* Returns 1 if nothing can be better: unneeded space, idle for long enough, where the tie-break
 * looks first. */
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
            candidate c;
            weigh(r, s, offset, last_over(r, s, offset), NULL, &c);
            consider(r, s, &c);
        }
    }
}

/* Returns 1 if a place that begins inside `first` may be better than the one at its begin. It
 * covers more content, so it must lie higher where that counts, or move less of the window, or the
 * place at the begin lies too low. */
static int may_gain_inside(const coh_runner *r, const search *s, const coh_segment *first)
{
    return s->above || s->has_content || first->offset < lowest_offset(r);
}

/* Considers the places that begin inside `first`, after its begin, and end with a segment. The
 * place at its begin ends with `last`. */
static void consider_ends(const coh_runner *r, search *s, int32_t first, int32_t last)
{
    const coh_segment *segments = r->map.segments;
    const uint64_t begin = segments[first].offset, end = begin + segments[first].bytes;
    if (!may_gain_inside(r, s, &segments[first]))
        return;
    if (segments[last].offset + segments[last].bytes == begin + s->bytes)
        last = segments[last].next;
    for (; last >= 0; last = segments[last].next) {
        const uint64_t offset = segments[last].offset + segments[last].bytes - s->bytes;
        const int is_endless = segments[last].next < 0 && r->level->capacity == UINT64_MAX;
        if (offset >= end || is_endless)
            return;
        candidate c;
        if (weigh(r, s, offset, last, NULL, &c) >= 0)
            return; /* the obstacle reaches to the end of `first` and beyond */
        consider(r, s, &c);
    }
}

/* Returns the next segment with which a place that counts may begin. */
static int32_t next_first(const coh_runner *r, const search *s, int32_t segment)
{
    const int32_t next = r->map.segments[segment].next;
    if (s->has_segment || next < 0)
        return next;
    const coh_segment *n = &r->map.segments[next];
    if (n->chunk >= 0 && coh_arena_is_within(&s->limits, n->next_use, n->last_use))
        return next; /* the most common case first */
    return coh_arena_map_after(&r->map, segment, &s->limits, s->bytes);
}

static int is_found_late(const search *s)
{
    int is_found = 0;
    for (int pass = first_pass(s); pass < PASS_COUNT; pass++)
        is_found |= s->best[pass].valid;
    return is_found && s->visits > VISITS_MOST;
}

/* Considers every place that begins or ends with a segment, from the lowest on. */
static void consider_all(const coh_runner *r, search *s)
{
    const coh_segment *segments = r->map.segments;
    if (lowest_offset(r) >= r->map.end)
        return; /* pins take the whole arena */
    int32_t first = coh_arena_map_at(&r->map, lowest_offset(r)), last = first;
    slide known;
    known.count = 0;
    while (first >= 0 && segments[first].offset + s->bytes <= r->map.end && !is_perfect(s) &&
           !is_found_late(s)) {
        const coh_segment *segment = &segments[first];
        /* every place over it includes the next segment */
        const int is_short = segment->bytes < s->bytes;
        if (is_wanted_too_soon(s, segment)) {
            first = next_first(r, s, first);
            continue;
        }
        if (is_short && is_wanted_too_soon(s, &segments[segment->next])) {
            first = next_first(r, s, segment->next);
            continue;
        }
        candidate c;
        last = last_over_from(r, s, segment->offset, last);
        const int32_t barrier = weigh_next(r, s, &known, first, last, &c);
        if (barrier >= 0) {
            first = next_first(r, s, barrier);
            continue;
        }
        consider(r, s, &c);
        consider_ends(r, s, first, last);
        first = next_first(r, s, first);
    }
}

/* Finds the lowest (or highest) unneeded space that was unused for long enough: nothing can be
 * better. */
static candidate find_idle(const coh_runner *r, const search *s)
{
    candidate c = { .next_use = COH_NEVER };
    const int64_t latest = s->most_last_use[first_pass(s)];
    c.valid = s->above ? coh_arena_map_find_highest(&r->map, s->bytes, latest, lowest_offset(r),
                                                    s->writes, &c.offset)
                       : coh_arena_map_find(&r->map, s->bytes, latest, r->level->floor_bytes,
                                            s->writes, &c.offset);
    return c;
}

/* Considers the place that begins with the segment at `inside`. Unneeded space is left to the
 * search for the lowest place. */
static void consider_at(const coh_runner *r, search *s, uint64_t inside)
{
    if (inside < lowest_offset(r) || inside >= r->map.end)
        return;
    const int32_t segment = coh_arena_map_at(&r->map, inside);
    const uint64_t offset = r->map.segments[segment].offset;
    if (offset + s->bytes > r->map.end || is_barred(r, s, &r->map.segments[segment]))
        return;
    candidate c;
    weigh(r, s, offset, last_over_from(r, s, offset, segment), NULL, &c);
    if (c.next_use != COH_NEVER)
        consider(r, s, &c);
}

/* Considers a few places, so that most others are quickly known to be worse: the neighbours of the
 * place chosen last, which are mostly needed about as late, then some all over the arena. */
static void consider_samples(const coh_runner *r, search *s)
{
    const uint64_t begin = lowest_offset(r), usual = r->map.usual_end;
    if (is_perfect(s))
        return;
    consider_at(r, s, r->last_end);
    if (r->last_begin >= s->bytes)
        consider_at(r, s, r->last_begin - s->bytes);
    for (int i = 0; i < SAMPLE_COUNT && begin < usual; i++)
        consider_at(r, s, begin + (usual - begin) / SAMPLE_COUNT * (uint64_t)i);
}

/* Weighs the window's place in the boundary map. Content there that nothing needs before the end
 * has to leave at the end anyhow: it leaves now, so that the window need not move there then. */
static candidate find_sticky(const coh_runner *r, search *s)
{
    const uint64_t sticky = r->boundary_offset[s->window_first];
    candidate c = { 0 };
    if (r->packs || sticky == UINT64_MAX || sticky + s->bytes > r->map.end)
        return c;
    weigh(r, s, sticky, last_over(r, s, sticky), NULL, &c);
    c.valid &= c.next_use > r->next.end_step && relocated_bytes(r, s, sticky) == 0;
    return c;
}

static candidate find_place(const coh_runner *r, search *s)
{
    const candidate sticky = find_sticky(r, s);
    if (sticky.valid)
        return sticky;
    if (!s->has_content) {
        candidate c = find_idle(r, s);
        if (c.valid)
            return c;
    }
    consider_around_own_chunks(r, s);
    consider_samples(r, s);
    consider_all(r, s);
    for (int pass = first_pass(s); pass < PASS_COUNT; pass++)
        if (s->best[pass].valid)
            return s->best[pass];
    return (candidate){ 0 };
}

/* ---- homes of absent chunks ---- */

int coh_residency_homes_agree(const coh_runner *r)
{
    const coh_segment *segments = r->map.segments;
    for (uint32_t i = 0; i < r->level->home_count; i++) {
        const uint32_t home = r->level->home_chunks[i];
        const uint64_t begin = r->level->home_offset[home];
        const uint64_t end = begin + coh_runner_chunk(r, home)->bytes;
        int is_taken = r->map.segment_of_chunk[home] >= 0;
        for (int32_t k = coh_arena_map_at(&r->map, begin); k >= 0 && segments[k].offset < end;
             k = segments[k].next)
            is_taken |= segments[k].chunk >= 0;
        if (coh_vacancy_of(&r->vacancy, i) != (is_taken ? 0 : coh_next_use_step(&r->next, home)))
            return 0;
    }
    return 1;
}

/* Finds the highest place for a window among the homes that stay vacant until its content dies;
 * without a far tier, else the place directly above all homes. */
static int find_vacant(const coh_runner *r, const search *s, uint64_t *out_offset)
{
    uint64_t until = r->step;
    for (uint32_t chunk = s->window_first; chunk <= s->window_last; chunk++) {
        const uint64_t last_read = coh_next_use_last_read(&r->next, chunk);
        until = last_read > until ? last_read : until;
    }
    assert(coh_residency_homes_agree(r));
    if (coh_vacancy_find(&r->vacancy, until, s->bytes, out_offset))
        return 1;
    if (r->level->has_far)
        return 0;
    const coh_segment *above = &r->map.segments[coh_arena_map_at(&r->map, r->level->floor_bytes)];
    *out_offset = r->level->floor_bytes;
    return above->chunk < 0 && above->offset + above->bytes >= r->level->floor_bytes + s->bytes;
}

int coh_residency_choose(const coh_runner *r, const coh_lowered_operand *operand,
                         uint64_t *out_offset)
{
    uint32_t first = coh_runner_first_chunk(r, operand);
    search s = { .operand = operand,
                 .bytes = coh_runner_window_bytes(r, operand),
                 .window_first = first + operand->window_begin,
                 .window_last = first + operand->window_end - 1,
                 .above = from_above(r, operand),
                 .writes = operand->access == COH_ACCESS_WRITE && r->is_compute &&
                           r->level->patient == COH_PATIENT_MOVED,
                 .fetches = r->level->horizon > 0 && fetches(r, operand),
                 .may_hold = !r->level->has_far || r->level->rules != NULL };
    for (uint32_t chunk = s.window_first; chunk <= s.window_last; chunk++) {
        int32_t segment = r->map.segment_of_chunk[chunk];
        s.has_content |= segment >= 0 && r->map.segments[segment].extent != COH_NO_EXTENT;
        s.has_segment |= segment >= 0;
    }
    if (r->level->home_chunks != NULL && find_vacant(r, &s, out_offset))
        return 1;
    begin_passes(r, &s);
    candidate c = find_place(r, &s);
    *out_offset = c.offset;
    return c.valid;
}
