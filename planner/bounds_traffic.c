/* Computes the fewest bytes that any residency moves. The idea: farthest next use on bytes instead
 * of chunks is optimal without placing anything. The file makes a ring of accesses per chunk,
 * spreads them over the steps, and runs the steps with lists of kept chunks by their next use. The
 * argument is in bounds_traffic.h. */
#include "planner/bounds_traffic.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "planner/effort.h"

/* If kept bytes have not settled after this many repetitions, the mean of these is used. */
enum { ROUNDS_MOST = 6 };

/* ---- accesses ---- */

/* The accesses of a chunk in rising step; several operands of one step count as one. */
typedef struct use {
    uint32_t step;
    uint8_t reads, writes, is_far;
    uint8_t takes; /* written in place of another chunk: no memory of its own in this step */
} use;

typedef struct use_lists {
    use *uses; /* of chunk c: [begin[c], end[c]) */
    uint32_t *begin, *end;
} use_lists;

/* Sequences for bounds leave out exchanges (coh_alone). Weights and gradients that ranks divide may
 * come from other ranks instead of a far tier, so they count neither as kept nor as moved. */
static int moves(const coh_layout *layout, const coh_lowered_operand *operand)
{
    const coh_object *object = &layout->objects[operand->object];
    const int is_exchanged =
        object->stream == COH_STREAM_GRAD_PART ||
        (layout->chunks[object->chunk_begin].is_divided &&
         (object->stream == COH_STREAM_WORK || object->stream == COH_STREAM_GRAD ||
          object->stream == COH_STREAM_CONTRIBUTION));
    return !object->pinned && !is_exchanged;
}

static void add_use(use_lists *lists, uint32_t chunk, uint32_t step,
                    const coh_lowered_operand *operand)
{
    uint32_t end = lists->end[chunk];
    if (end == lists->begin[chunk] || lists->uses[end - 1].step != step) {
        lists->uses[end] = (use){ .step = step, .is_far = operand->is_far, .takes = 1 };
        lists->end[chunk] = ++end;
    }
    use *last = &lists->uses[end - 1];
    last->reads |= (operand->access & COH_ACCESS_READ) != 0;
    last->writes |= (operand->access & COH_ACCESS_WRITE) != 0;
    last->takes &= operand->takes > 0;
}

static coh_status make_lists(const coh_layout *layout, const coh_sequence *sequence,
                             use_lists *lists)
{
    uint32_t operand_count = sequence->operand_begin[sequence->step_count];
    COH_TRY(COH_ALLOC(layout->chunk_count + 1, &lists->begin));
    COH_TRY(COH_ALLOC(layout->chunk_count + 1, &lists->end));
    for (uint32_t i = 0; i < operand_count; i++) {
        const coh_lowered_operand *operand = &sequence->operands[i];
        uint32_t first = layout->objects[operand->object].chunk_begin;
        for (uint32_t k = operand->touch_begin; moves(layout, operand) && k < operand->touch_end;
             k++)
            lists->begin[first + k + 1]++;
    }
    uint64_t total = 0;
    for (uint32_t chunk = 0; chunk < layout->chunk_count; chunk++) {
        lists->end[chunk] = lists->begin[chunk] = (uint32_t)total;
        total += lists->begin[chunk + 1];
    }
    lists->begin[layout->chunk_count] = (uint32_t)total;
    COH_TRY(coh_effort_check_count(total, COH_UNIT_CHUNK_USES));
    COH_TRY(COH_ALLOC((size_t)lists->begin[layout->chunk_count] + 1, &lists->uses));
    for (uint32_t step = 0; step < sequence->step_count; step++)
        for (uint32_t i = sequence->operand_begin[step]; i < sequence->operand_begin[step + 1];
             i++) {
            const coh_lowered_operand *operand = &sequence->operands[i];
            uint32_t first = layout->objects[operand->object].chunk_begin;
            for (uint32_t k = operand->touch_begin;
                 moves(layout, operand) && k < operand->touch_end; k++)
                add_use(lists, first + k, step, operand);
        }
    return COH_OK;
}

/* The accesses of a chunk, seen from any of them around the repetition. */
typedef struct ring {
    const use *uses;
    const coh_traffic_span *spans; /* by step of the sequence; NULL: fixed order */
    uint32_t count, step_count;
    int survives; /* its content outlives a repetition */
    int is_written;
    int is_all_far;
} ring;

/* Steps from access `from` to access `from + ahead`, which may lie in the next repetition. */
static uint32_t distance(const ring *r, uint32_t from, uint32_t ahead)
{
    uint32_t to = (from + ahead) % r->count, rounds = (from + ahead) / r->count;
    return r->uses[to].step + rounds * r->step_count - r->uses[from].step;
}

/* As distance, from the latest time of the first access to the earliest time of the second. */
static uint32_t sure_distance(const ring *r, uint32_t from, uint32_t ahead)
{
    uint32_t to = (from + ahead) % r->count, rounds = (from + ahead) / r->count;
    int64_t steps = r->spans[r->uses[to].step].early + (int64_t)rounds * r->step_count -
                    r->spans[r->uses[from].step].late;
    return steps > 0 && steps < UINT32_MAX ? (uint32_t)steps : 0;
}

static int has_next(const ring *r, uint32_t from, uint32_t ahead)
{
    return ahead <= r->count && (r->survives || from + ahead < r->count);
}

/* Steps from a write at `from` to the last read before the next write. */
static uint32_t era_of(const ring *r, uint32_t from, uint8_t *out_leaves)
{
    uint32_t era = 0;
    *out_leaves = 0;
    for (uint32_t ahead = 1; has_next(r, from, ahead); ahead++) {
        const use *next = &r->uses[(from + ahead) % r->count];
        if (next->reads && next->is_far)
            *out_leaves = 1;
        else if (next->reads)
            era = distance(r, from, ahead);
        if (next->writes)
            break;
    }
    return *out_leaves ? 0 : era;
}

/* Steps until the content is read next; 0 if a far instruction makes it stale first. */
static uint32_t keep_of(const ring *r, uint32_t from)
{
    for (uint32_t ahead = 1; has_next(r, from, ahead); ahead++) {
        const use *next = &r->uses[(from + ahead) % r->count];
        if (!next->is_far)
            return next->reads ? distance(r, from, ahead) : 0;
        if (next->writes)
            return 0;
    }
    return 0;
}

/* As era_of, with far steps reading and writing in the same memory. */
static uint32_t sure_era_of(const ring *r, uint32_t from)
{
    uint32_t era = 0;
    for (uint32_t ahead = 1; r->uses[from].writes && has_next(r, from, ahead); ahead++) {
        const use *next = &r->uses[(from + ahead) % r->count];
        if (next->reads)
            era = sure_distance(r, from, ahead);
        if (next->writes)
            break;
    }
    return era;
}

/* As keep_of. A chunk used only by far steps is kept from one far step to the next. Otherwise a
 * chunk is kept from one fixed-order reader to the next, across reads and writes of far steps in
 * between. */
static uint32_t sure_keep_of(const ring *r, uint32_t from)
{
    uint32_t until_far = 0;
    if (r->uses[from].is_far && !r->is_all_far)
        return 0;
    for (uint32_t ahead = 1; has_next(r, from, ahead); ahead++) {
        const use *next = &r->uses[(from + ahead) % r->count];
        if (!next->reads)
            return until_far;
        if (!next->is_far || r->is_all_far)
            return sure_distance(r, from, ahead);
        until_far = until_far > 0 ? until_far : sure_distance(r, from, ahead);
    }
    return until_far;
}

static coh_traffic_access access_of(const ring *r, uint32_t from, uint32_t chunk)
{
    const use *u = &r->uses[from];
    coh_traffic_access access = { .chunk = chunk, .reads = u->reads, .takes = u->takes };
    if (r->spans != NULL) {
        access.keep = sure_keep_of(r, from);
        access.era = sure_era_of(r, from);
        access.inside = !u->writes && r->is_written; /* if not inside in truth, less is counted */
        return access;
    }
    access.keep = keep_of(r, from);
    if (u->writes)
        access.era = era_of(r, from, &access.leaves);
    access.inside = !u->writes && access.keep > 0 && r->is_written;
    return access;
}

static ring ring_of(const coh_layout *layout, const use_lists *lists, const coh_traffic *t,
                    const coh_traffic_span *spans, uint32_t chunk)
{
    ring r = { .uses = &lists->uses[lists->begin[chunk]],
               .spans = spans,
               .count = lists->end[chunk] - lists->begin[chunk],
               .step_count = t->step_count,
               .survives = layout->objects[layout->chunks[chunk].object].survives,
               .is_all_far = 1 };
    for (uint32_t i = 0; i < r.count; i++) {
        r.is_written |= r.uses[i].writes && (spans != NULL || !r.uses[i].is_far);
        r.is_all_far &= r.uses[i].is_far;
    }
    return r;
}

/* The number of a use among the steps with a fixed order. */
static uint32_t kept_order(const ring *r, const use *u)
{
    return r->spans != NULL ? (uint32_t)r->spans[u->step].early : u->step;
}

/* Converts accesses by chunk into accesses by step. */
static coh_status spread(const coh_layout *layout, const use_lists *lists,
                         const coh_traffic_span *spans, coh_traffic *t)
{
    uint32_t total = 0, *cursor = NULL;
    for (uint32_t chunk = 0; chunk < t->chunk_count; chunk++) {
        const ring r = ring_of(layout, lists, t, spans, chunk);
        for (uint32_t i = 0; i < r.count; i++, total++)
            if (!r.uses[i].is_far)
                t->begin[kept_order(&r, &r.uses[i]) + 1]++;
    }
    for (uint32_t step = 0; step < t->step_count; step++)
        t->begin[step + 1] += t->begin[step];
    COH_TRY(COH_ALLOC((size_t)total + 1, &t->accesses));
    COH_TRY(COH_ALLOC((size_t)t->step_count + 1, &cursor));
    memcpy(cursor, t->begin, ((size_t)t->step_count + 1) * sizeof(*cursor));
    for (uint32_t chunk = 0; chunk < t->chunk_count; chunk++) {
        const ring r = ring_of(layout, lists, t, spans, chunk);
        for (uint32_t i = 0; i < r.count; i++) {
            if (r.uses[i].is_far)
                continue;
            uint32_t step = kept_order(&r, &r.uses[i]);
            t->accesses[cursor[step]++] = access_of(&r, i, chunk);
            t->touched_bytes[step] += r.uses[i].takes ? 0 : t->chunk_bytes[chunk];
        }
    }
    coh_free(cursor);
    return COH_OK;
}

/* Makes the marks of a far use: it begins no interval before its latest time and ends none after
 * its earliest time. Marks that end a possible use come first. */
static int marks_of(const ring *r, uint32_t from, uint32_t chunk, coh_traffic_mark *marks,
                    uint32_t *steps)
{
    const coh_traffic_span *span = &r->spans[r->uses[from].step];
    if (!r->uses[from].is_far || span->early < 0)
        return 0;
    marks[0] = (coh_traffic_mark){ .chunk = chunk };
    steps[0] = (uint32_t)(span->early % r->step_count);
    marks[1] = (coh_traffic_mark){ .chunk = chunk,
                                   .keep = sure_keep_of(r, from),
                                   .era = sure_era_of(r, from) };
    steps[1] = (uint32_t)(span->late % r->step_count);
    return marks[1].keep > 0 || marks[1].era > 0 ? 2 : 1;
}

/* Counts the marks of each step (`cursor` NULL), or stores them. */
static void put_marks(const coh_layout *layout, const use_lists *lists,
                      const coh_traffic_span *spans, coh_traffic *t, uint32_t *cursor)
{
    coh_traffic_mark marks[2];
    uint32_t steps[2];
    for (uint32_t chunk = 0; chunk < t->chunk_count; chunk++) {
        const ring r = ring_of(layout, lists, t, spans, chunk);
        for (uint32_t i = 0; i < r.count; i++)
            for (int k = 0, count = marks_of(&r, i, chunk, marks, steps); k < count; k++)
                if (cursor != NULL)
                    t->marks[cursor[steps[k]]++] = marks[k];
                else
                    t->mark_begin[steps[k] + 1]++;
    }
}

static coh_status spread_marks(const coh_layout *layout, const use_lists *lists,
                               const coh_traffic_span *spans, coh_traffic *t)
{
    uint32_t *cursor = NULL;
    COH_TRY(COH_ALLOC((size_t)t->step_count + 1, &t->mark_begin));
    put_marks(layout, lists, spans, t, NULL);
    for (uint32_t step = 0; step < t->step_count; step++)
        t->mark_begin[step + 1] += t->mark_begin[step];
    COH_TRY(COH_ALLOC((size_t)t->mark_begin[t->step_count] + 1, &t->marks));
    COH_TRY(COH_ALLOC((size_t)t->step_count + 1, &cursor));
    memcpy(cursor, t->mark_begin, ((size_t)t->step_count + 1) * sizeof(*cursor));
    put_marks(layout, lists, spans, t, cursor);
    coh_free(cursor);
    return COH_OK;
}

static coh_status make_traffic(const coh_layout *layout, const coh_sequence *sequence,
                               const coh_traffic_span *spans, use_lists *lists, coh_traffic *t)
{
    COH_TRY(COH_ALLOC((size_t)t->step_count + 1, &t->begin));
    COH_TRY(COH_ALLOC((size_t)t->step_count + 1, &t->touched_bytes));
    COH_TRY(COH_ALLOC((size_t)t->chunk_count + 1, &t->chunk_bytes));
    for (uint32_t chunk = 0; chunk < t->chunk_count; chunk++)
        t->chunk_bytes[chunk] = layout->chunks[chunk].bytes;
    COH_TRY(make_lists(layout, sequence, lists));
    COH_TRY(spread(layout, lists, spans, t));
    return spans != NULL ? spread_marks(layout, lists, spans, t) : COH_OK;
}

static int is_far_step(const coh_sequence *sequence, uint32_t step)
{
    uint32_t begin = sequence->operand_begin[step];
    return begin < sequence->operand_begin[step + 1] && sequence->operands[begin].is_far;
}

coh_status coh_traffic_init_spans(const coh_layout *layout, const coh_sequence *sequence,
                                  const coh_traffic_span *spans, coh_traffic *out_traffic)
{
    use_lists lists = { 0 };
    *out_traffic = (coh_traffic){ .chunk_count = layout->chunk_count };
    for (uint32_t step = 0; step < sequence->step_count; step++)
        out_traffic->step_count += spans == NULL || !is_far_step(sequence, step);
    coh_status status = make_traffic(layout, sequence, spans, &lists, out_traffic);
    coh_free(lists.uses);
    coh_free(lists.begin);
    coh_free(lists.end);
    if (status != COH_OK)
        coh_traffic_fini(out_traffic);
    return status;
}

coh_status coh_traffic_init(const coh_layout *layout, const coh_sequence *sequence,
                            coh_traffic *out_traffic)
{
    return coh_traffic_init_spans(layout, sequence, NULL, out_traffic);
}

void coh_traffic_fini(coh_traffic *traffic)
{
    coh_free(traffic->accesses);
    coh_free(traffic->begin);
    coh_free(traffic->touched_bytes);
    coh_free(traffic->chunk_bytes);
    coh_free(traffic->marks);
    coh_free(traffic->mark_begin);
    *traffic = (coh_traffic){ 0 };
}

/* ---- farthest next use, byte by byte ---- */

typedef struct keeper {
    const coh_traffic *traffic;
    enum coh_traffic_way way;
    uint64_t room_bytes, kept_bytes, moved_bytes;
    uint64_t *kept, *end; /* by chunk: the bytes that are kept, the step at which they are needed */
    /* The chunks with kept bytes, listed by their end. A chunk here is its number + 1; 0: none. */
    uint32_t *first;           /* by end */
    uint32_t *next, *previous; /* by chunk */
    /* Which ends have a list: a bit each, and a bit for each word of them that is not 0. */
    uint64_t *listed, *words, end_count;
    uint64_t farthest; /* no list has a later end */
} keeper;

enum { WORD = 64 };

static void keeper_fini(keeper *k)
{
    coh_free(k->kept);
    coh_free(k->end);
    coh_free(k->first);
    coh_free(k->next);
    coh_free(k->previous);
    coh_free(k->listed);
    coh_free(k->words);
}

/* `step_count`: the steps from 0 to the last one that is run. A chunk is needed again within two
 * repetitions. */
static coh_status keeper_init(keeper *k, const coh_traffic *traffic, enum coh_traffic_way way,
                              uint64_t room_bytes, uint64_t step_count)
{
    const size_t chunks = (size_t)traffic->chunk_count + 1;
    const uint64_t ends = step_count + 2 * (uint64_t)traffic->step_count + 1;
    *k = (keeper){ .traffic = traffic, .way = way, .room_bytes = room_bytes, .end_count = ends };
    COH_TRY(COH_ALLOC(chunks, &k->kept));
    COH_TRY(COH_ALLOC(chunks, &k->end));
    COH_TRY(COH_ALLOC(ends, &k->first));
    COH_TRY(COH_ALLOC(chunks, &k->next));
    COH_TRY(COH_ALLOC(chunks, &k->previous));
    COH_TRY(COH_ALLOC(ends / WORD + 1, &k->listed));
    return COH_ALLOC(ends / WORD / WORD + 1, &k->words);
}

static void enlist(keeper *k, uint32_t chunk)
{
    const uint64_t end = k->end[chunk], word = end / WORD;
    const uint32_t next = k->first[end];
    k->first[end] = chunk + 1;
    k->next[chunk] = next;
    k->previous[chunk] = 0;
    if (next > 0)
        k->previous[next - 1] = chunk + 1;
    k->listed[word] |= 1ull << end % WORD;
    k->words[word / WORD] |= 1ull << word % WORD;
    k->farthest = end > k->farthest ? end : k->farthest;
}

static void remove_from_list(keeper *k, uint32_t chunk)
{
    const uint64_t end = k->end[chunk], word = end / WORD;
    const uint32_t next = k->next[chunk], previous = k->previous[chunk];
    if (next > 0)
        k->previous[next - 1] = previous;
    if (previous > 0)
        k->next[previous - 1] = next;
    else
        k->first[end] = next;
    if (k->first[end] == 0)
        k->listed[word] &= ~(1ull << end % WORD);
    if (k->listed[word] == 0)
        k->words[word / WORD] &= ~(1ull << word % WORD);
}

static uint64_t highest_bit(uint64_t word)
{
    return WORD - 1 - (uint64_t)__builtin_clzll(word);
}

/* Returns a chunk that is needed last; some bytes are kept. */
static uint32_t find_farthest(keeper *k)
{
    uint64_t at = k->farthest / WORD / WORD;
    while (k->words[at] == 0)
        at--;
    const uint64_t word = at * WORD + highest_bit(k->words[at]);
    k->farthest = word * WORD + highest_bit(k->listed[word]);
    return k->first[k->farthest] - 1;
}

static uint64_t lose(keeper *k, uint32_t chunk, uint64_t bytes)
{
    k->kept[chunk] -= bytes;
    k->kept_bytes -= bytes;
    if (bytes > 0 && k->kept[chunk] == 0)
        remove_from_list(k, chunk);
    return bytes;
}

/* Keeps the bytes of the chunk from now until `end`. */
static coh_status keep(keeper *k, uint32_t chunk, uint64_t end)
{
    lose(k, chunk, k->kept[chunk]); /* never twice */
    if (end >= k->end_count)
        return coh_fail(COH_ERR_INTERNAL, "chunk %" PRIu32 " is needed %" PRIu64 " steps late",
                        chunk, end - k->end_count + 1);
    k->kept[chunk] = k->traffic->chunk_bytes[chunk];
    k->end[chunk] = end;
    k->kept_bytes += k->kept[chunk];
    if (k->kept[chunk] > 0)
        enlist(k, chunk);
    return COH_OK;
}

/* Evicts the bytes that are needed last, until the rest fits next to `fixed_bytes`. Returns the
 * number of bytes evicted. */
static uint64_t shrink(keeper *k, uint64_t fixed_bytes)
{
    uint64_t room = k->room_bytes > fixed_bytes ? k->room_bytes - fixed_bytes : 0, lost = 0;
    while (k->kept_bytes > room) {
        const uint32_t last = find_farthest(k);
        const uint64_t excess = k->kept_bytes - room, kept = k->kept[last];
        lost += lose(k, last, kept < excess ? kept : excess);
    }
    return lost;
}

/* Drops chunks that far steps may have used by now; keeps chunks that far steps have used for the
 * next use. */
static coh_status pass_marks(keeper *k, uint64_t step)
{
    const coh_traffic *t = k->traffic;
    uint32_t local = (uint32_t)(step % t->step_count);
    if (t->mark_begin == NULL)
        return COH_OK;
    for (uint32_t i = t->mark_begin[local]; i < t->mark_begin[local + 1]; i++) {
        const coh_traffic_mark *mark = &t->marks[i];
        uint32_t steps = k->way == COH_TRAFFIC_FETCH ? mark->keep : mark->era;
        if (k->end[mark->chunk] == step)
            lose(k, mark->chunk, k->kept[mark->chunk]);
        if (steps > 0)
            COH_TRY(keep(k, mark->chunk, step + steps));
    }
    return COH_OK;
}

/* Fetching: fetches the bytes that a step reads and that were not kept; then evicts others to make
 * room. With marks, bytes were counted at their eviction. */
static coh_status fetch_step(keeper *k, uint64_t step)
{
    const coh_traffic *t = k->traffic;
    uint32_t local = (uint32_t)(step % t->step_count);
    for (uint32_t i = t->begin[local]; i < t->begin[local + 1]; i++) {
        const coh_traffic_access *access = &t->accesses[i];
        if (access->reads && t->mark_begin == NULL)
            k->moved_bytes += t->chunk_bytes[access->chunk] - k->kept[access->chunk];
        lose(k, access->chunk, k->kept[access->chunk]);
    }
    uint64_t lost_bytes = shrink(k, t->touched_bytes[local]);
    k->moved_bytes += t->mark_begin != NULL ? lost_bytes : 0;
    for (uint32_t i = t->begin[local]; i < t->begin[local + 1]; i++)
        if (t->accesses[i].keep > 0)
            COH_TRY(keep(k, t->accesses[i].chunk, step + t->accesses[i].keep));
    return COH_OK;
}

/* Storing: bytes evicted within an era have been stored. An era that continues past this step
 * counts the bytes it touches here; once evicted it counts none, which is an underestimate. */
static coh_status store_step(keeper *k, uint64_t step)
{
    const coh_traffic *t = k->traffic;
    uint32_t local = (uint32_t)(step % t->step_count);
    uint64_t fixed_bytes = 0;
    for (uint32_t i = t->begin[local]; i < t->begin[local + 1]; i++) {
        const coh_traffic_access *access = &t->accesses[i];
        if (k->end[access->chunk] == step)
            lose(k, access->chunk, k->kept[access->chunk]);
        fixed_bytes += access->inside || access->takes ? 0 : t->chunk_bytes[access->chunk];
    }
    k->moved_bytes += shrink(k, fixed_bytes);
    for (uint32_t i = t->begin[local]; i < t->begin[local + 1]; i++) {
        if (t->accesses[i].leaves)
            k->moved_bytes += t->chunk_bytes[t->accesses[i].chunk];
        if (t->accesses[i].era > 0)
            COH_TRY(keep(k, t->accesses[i].chunk, step + t->accesses[i].era));
    }
    return COH_OK;
}

static coh_status keeper_step(keeper *k, uint64_t step)
{
    COH_TRY(pass_marks(k, step));
    return k->way == COH_TRAFFIC_FETCH ? fetch_step(k, step) : store_step(k, step);
}

/* ---- the fewest bytes of a repetition ---- */

/* Runs round after round from an empty memory. Once the kept bytes at a round's end repeat, each
 * round moves the same bytes, and no other strategy moves fewer: any strategy could be started from
 * this state for at most one capacity of extra bytes, whose share per round tends to 0. */
static coh_status least_rounds(keeper *k, uint64_t *before, uint64_t *out_bytes,
                               uint64_t *after_bytes, int *out_is_settled)
{
    const coh_traffic *t = k->traffic;
    uint64_t step = 0, moved = 0;
    for (int round = 0; round < ROUNDS_MOST; round++) {
        moved = k->moved_bytes;
        memcpy(before, k->kept, t->chunk_count * sizeof(*before));
        for (uint32_t i = 0; i < t->step_count; i++, step++) {
            COH_TRY(keeper_step(k, step));
            after_bytes[i] = k->moved_bytes - moved;
        }
        *out_bytes = k->moved_bytes - moved;
        *out_is_settled =
            round > 0 && memcmp(before, k->kept, t->chunk_count * sizeof(*before)) == 0;
        if (*out_is_settled)
            return COH_OK;
    }
    int counts_late = k->way == COH_TRAFFIC_FETCH && t->mark_begin == NULL;
    uint64_t spared = counts_late ? k->room_bytes : 0;
    *out_bytes = k->moved_bytes > spared ? (k->moved_bytes - spared) / ROUNDS_MOST : 0;
    return COH_OK;
}

coh_status coh_traffic_settled(const coh_traffic *traffic, enum coh_traffic_way way,
                               uint64_t room_bytes, uint64_t *out_bytes, uint64_t *after_bytes,
                               int *out_is_settled)
{
    keeper k;
    uint64_t *before = NULL;
    *out_bytes = 0;
    *out_is_settled = 0;
    coh_status status =
        keeper_init(&k, traffic, way, room_bytes, ROUNDS_MOST * (uint64_t)traffic->step_count);
    if (status == COH_OK)
        status = COH_ALLOC((size_t)traffic->chunk_count + 1, &before);
    if (status == COH_OK)
        status = least_rounds(&k, before, out_bytes, after_bytes, out_is_settled);
    coh_free(before);
    keeper_fini(&k);
    return status;
}

coh_status coh_traffic_least(const coh_traffic *traffic, enum coh_traffic_way way,
                             uint64_t room_bytes, uint64_t *out_bytes)
{
    uint64_t *after_bytes = NULL;
    int unused;
    COH_TRY(COH_ALLOC((size_t)traffic->step_count + 1, &after_bytes));
    const coh_status status =
        coh_traffic_settled(traffic, way, room_bytes, out_bytes, after_bytes, &unused);
    coh_free(after_bytes);
    return status;
}

/* ---- windows ---- */

/* Assumes that everything read later was resident at the begin, as far as it fits. */
static coh_status keep_first_reads(keeper *k, uint32_t first_step)
{
    const coh_traffic *t = k->traffic;
    for (uint64_t back = t->step_count; back > 0; back--) {
        uint64_t step = first_step + t->step_count - back; /* as if one repetition earlier */
        uint32_t local = (uint32_t)(step % t->step_count);
        for (uint32_t i = t->begin[local]; i < t->begin[local + 1]; i++) {
            const coh_traffic_access *access = &t->accesses[i];
            if (access->keep == 0 || access->keep < back)
                continue;
            COH_TRY(keep(k, access->chunk, first_step + (access->keep - back)));
        }
    }
    return COH_OK;
}

coh_status coh_traffic_window(const coh_traffic *traffic, enum coh_traffic_way way,
                              uint64_t room_bytes, uint32_t first_step, uint32_t step_count,
                              coh_traffic_told *told, void *context)
{
    keeper k;
    if (step_count == 0)
        return COH_OK;
    coh_status status =
        keeper_init(&k, traffic, way, room_bytes, (uint64_t)first_step + step_count);
    if (status == COH_OK && way == COH_TRAFFIC_FETCH)
        status = keep_first_reads(&k, first_step);
    for (uint64_t i = 0; status == COH_OK && i < step_count; i++) {
        status = keeper_step(&k, first_step + i);
        if (status == COH_OK)
            told(context, first_step + i, k.moved_bytes);
    }
    keeper_fini(&k);
    return status;
}
