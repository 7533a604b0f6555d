/* The fewest bytes for one room when some steps have no fixed order, compared with all ways to keep
 * whole chunks. Orders are drawn among those that the spans and the contents allow; none moves
 * fewer bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "planner/bounds_traffic.h"
#include "tests/length.h"
#include "tests/planner/draws.h"

enum { CHUNKS_MOST = 5, STEPS_MOST = 10, PERIODS = 24, UNIT = 4096, ORDERS = 6 };
enum { EVENTS_MOST = PERIODS * STEPS_MOST, SETS = 1 << CHUNKS_MOST };

/* A step: the sets of chunks it reads and writes. */
typedef struct step {
    unsigned reads, writes;
    int is_far, order; /* `order`: position of a step that keeps its order */
    coh_traffic_span span;
} step;

typedef struct instance {
    int chunk_count, step_count, kept_count, room;
    int size[CHUNKS_MOST];
    step steps[STEPS_MOST];
} instance;

static int size_of(const instance *in, unsigned set)
{
    int size = 0;
    for (int c = 0; c < in->chunk_count; c++)
        size += (set >> c & 1) ? in->size[c] : 0;
    return size;
}

/* Far steps read and usually change chunks; some chunks are used by far steps only. */
static void draw_instance(draws *d, instance *in)
{
    int largest = 0, total, units = draw(d, 1, 2);
    *in =
        (instance){ .chunk_count = draw(d, 3, CHUNKS_MOST), .step_count = draw(d, 5, STEPS_MOST) };
    for (int c = 0; c < in->chunk_count; c++)
        in->size[c] = draw(d, 1, units);
    unsigned own = (1u << draw(d, 0, in->chunk_count - 2)) - 1; /* chunks used by far steps only */
    for (int i = 0; i < in->step_count; i++) {
        step *s = &in->steps[i];
        s->is_far = i > 0 && draw(d, 0, 2) == 0;
        int first = draw(d, 0, in->chunk_count - 1), second = draw(d, 0, in->chunk_count - 1);
        unsigned set = s->is_far ? 1u << first : ((1u << first) | (1u << second)) & ~own;
        s->reads = draw(d, 0, 5) ? set : 0;
        s->writes = s->reads == 0 || draw(d, 0, 2) == 0 || (s->is_far && draw(d, 0, 3)) ? set : 0;
        s->order = in->kept_count;
        in->kept_count += !s->is_far;
        int size = size_of(in, s->reads | s->writes);
        largest = size > largest ? size : largest;
    }
    for (int i = 0; i < in->step_count; i++) {
        step *s = &in->steps[i];
        s->span = (coh_traffic_span){ s->order, s->order };
        if (s->is_far && draw(d, 0, 9) == 0)
            s->span = COH_TRAFFIC_ANY_TIME;
        else if (s->is_far) { /* span: back to the previous order, to the next, or any */
            int kind = draw(d, 0, 2);
            s->span.early = kind == 0 ? s->order : draw(d, 0, s->order);
            s->span.late = kind == 1 ? s->order : s->order + draw(d, 0, in->kept_count);
        }
    }
    total = size_of(in, (1u << in->chunk_count) - 1);
    in->room = largest + draw(d, 0, total - largest < 2 ? total - largest : 2);
}

/* ---- the bound ---- */

/* `has_order`: all steps have a fixed order. */
static void make_traffic(const instance *in, int has_order, coh_traffic *out)
{
    coh_object objects[CHUNKS_MOST] = { 0 };
    coh_chunk chunks[CHUNKS_MOST] = { 0 };
    coh_lowered_operand operands[STEPS_MOST * CHUNKS_MOST] = { 0 };
    uint32_t operand_begin[STEPS_MOST + 1] = { 0 }, operand_count = 0;
    coh_traffic_span spans[STEPS_MOST];
    for (int c = 0; c < in->chunk_count; c++) {
        chunks[c] = (coh_chunk){ .object = c, .bytes = (uint64_t)in->size[c] * UNIT };
        objects[c] = (coh_object){
            .chunk_begin = (uint32_t)c, .chunk_count = 1, .bytes = chunks[c].bytes, .survives = 1
        };
    }
    for (int i = 0; i < in->step_count; i++) {
        const step *s = &in->steps[i];
        for (int c = 0; c < in->chunk_count; c++)
            if ((s->reads | s->writes) >> c & 1)
                operands[operand_count++] = (coh_lowered_operand){
                    .object = c,
                    .touch_end = 1,
                    .window_end = 1,
                    .access = (uint8_t)(((s->reads >> c & 1) ? COH_ACCESS_READ : 0) |
                                        ((s->writes >> c & 1) ? COH_ACCESS_WRITE : 0)),
                    .is_far = (uint8_t)(s->is_far && !has_order)
                };
        operand_begin[i + 1] = operand_count;
        spans[i] = s->span;
    }
    const coh_layout layout = { .objects = objects,
                                .object_count = (uint32_t)in->chunk_count,
                                .chunks = chunks,
                                .chunk_count = (uint32_t)in->chunk_count };
    const coh_sequence sequence = { .step_count = (uint32_t)in->step_count,
                                    .operand_begin = operand_begin,
                                    .operands = operands };
    assert_int_equal(coh_traffic_init_spans(&layout, &sequence, has_order ? NULL : spans, out),
                     COH_OK);
}

static uint64_t bound_of(const instance *in, enum coh_traffic_way way)
{
    coh_traffic traffic;
    uint64_t bytes = 0;
    make_traffic(in, 0, &traffic);
    assert_int_equal(coh_traffic_least(&traffic, way, (uint64_t)in->room * UNIT, &bytes), COH_OK);
    coh_traffic_fini(&traffic);
    return bytes;
}

/* ---- orders ---- */

static int conflict(const step *a, const step *b)
{
    return (a->writes & (b->reads | b->writes)) != 0 || (b->writes & a->reads) != 0;
}

/* Returns 1 if event `e` (numbered as in the sequence) may come next. */
static int may_be_next(const instance *in, const uint8_t *done, int e)
{
    const step *s = &in->steps[e % in->step_count];
    int64_t kept = (int64_t)(e / in->step_count) * in->kept_count;
    for (int f = 0; f < EVENTS_MOST; f++) {
        const step *other = &in->steps[f % in->step_count];
        int64_t base = (int64_t)(f / in->step_count) * in->kept_count;
        if (done[f] || f == e)
            continue;
        if (f < e && ((!s->is_far && !other->is_far) || conflict(s, other)))
            return 0;
        if (!s->is_far && other->is_far && base + other->span.late <= kept + s->order)
            return 0;
        if (s->is_far && !other->is_far && base + other->order < kept + s->span.early)
            return 0;
    }
    return 1;
}

/* Draws an order; the sequence's own order is always possible. */
static void draw_order(draws *d, const instance *in, int *order)
{
    uint8_t done[EVENTS_MOST] = { 0 };
    int count = PERIODS * in->step_count, first = 0;
    memset(done + count, 1, (size_t)(EVENTS_MOST - count));
    for (int n = 0; n < count; n++) {
        int chosen = -1, seen = 0;
        while (done[first])
            first++;
        for (int e = first; e < count && e < first + 2 * in->step_count; e++)
            if (!done[e] && may_be_next(in, done, e) && draw(d, 0, seen++) == 0)
                chosen = e;
        assert_true(chosen >= 0);
        done[chosen] = 1;
        order[n] = chosen % in->step_count;
    }
}

/* ---- all ways to keep ---- */

/* For each event of an order, finds the chunks whose content is read before it is overwritten. At
 * the end all chunks count as read. */
static void find_live(const instance *in, const int *order, int count, unsigned *live)
{
    unsigned now = (1u << in->chunk_count) - 1;
    for (int n = count - 1; n >= 0; n--) {
        const step *s = &in->steps[order[n]];
        live[n] = now; /* after the event */
        now = (now & ~s->writes) | s->reads;
    }
}

/* For each pair (chunks in the room, the unstored ones of these), keeps the fewest bytes moved;
 * only 3^5 of the 2^10 pairs exist. */
static int least_moved(const instance *in, const int *order, int count, enum coh_traffic_way way)
{
    static int now[SETS][SETS], next[SETS][SETS];
    unsigned live[EVENTS_MOST], all = (1u << in->chunk_count) - 1;
    int least = INT32_MAX;
    find_live(in, order, count, live);
    for (unsigned p = 0; p <= all; p++)
        for (unsigned q = 0; q <= all; q++)
            now[p][q] = q == 0 && size_of(in, p) <= in->room ? 0 : INT32_MAX;
    for (int n = 0; n < count; n++) {
        const step *s = &in->steps[order[n]];
        unsigned touched = s->reads | s->writes;
        memset(next, 0x7f, sizeof(next));
        for (unsigned p = 0; p <= all; p++)
            for (unsigned q = p;; q = (q - 1) & p) { /* unstored chunks are in the room */
                for (unsigned kept = p & ~touched; now[p][q] < 0x7f7f7f7f;
                     kept = (kept - 1) & p & ~touched) {
                    unsigned to = touched | kept, lost = p & ~to & q & live[n];
                    unsigned dirty = (q & to & ~s->writes) | s->writes;
                    int moved = now[p][q] + (way == COH_TRAFFIC_FETCH ? size_of(in, s->reads & ~p)
                                                                      : size_of(in, lost));
                    if (way == COH_TRAFFIC_FETCH)
                        dirty = 0;
                    if (size_of(in, to) <= in->room && moved < next[to][dirty])
                        next[to][dirty] = moved;
                    if (kept == 0)
                        break;
                }
                if (q == 0)
                    break;
            }
        memcpy(now, next, sizeof(now));
    }
    for (unsigned p = 0; p <= all; p++)
        for (unsigned q = 0; q <= all; q++)
            least = now[p][q] < least ? now[p][q] : least;
    return least;
}

static void no_order_moves_fewer_bytes(void **state)
{
    (void)state;
    const int cases = (int)test_cases(1500);
    int some = 0, met = 0, orders = 0;
    for (int seed = 0; seed < cases; seed++) {
        draws d = { .stream = 78, .seed = (uint64_t)seed };
        instance in;
        int order[EVENTS_MOST];
        draw_instance(&d, &in);
        enum coh_traffic_way way = seed % 2 ? COH_TRAFFIC_STORE : COH_TRAFFIC_FETCH;
        uint64_t bound = bound_of(&in, way);
        int least = INT32_MAX;
        for (int i = 0; i < ORDERS; i++, orders++) {
            draw_order(&d, &in, order);
            int moved = least_moved(&in, order, PERIODS * in.step_count, way);
            least = moved < least ? moved : least;
        }
        /* The initial contents of the room were not fetched, and the final contents are not stored
         * yet. */
        uint64_t most = (uint64_t)(least + in.room) * UNIT / PERIODS;
        if (bound > most)
            fail_msg("seed %llu: a bound of %llu bytes, an order moves %d units in %d rounds",
                     (unsigned long long)seed, (unsigned long long)bound, least, (int)PERIODS);
        some += bound > 0;
        met += bound > 0 && bound * 10 >= (uint64_t)least * UNIT / PERIODS * 9;
    }
    print_message("%d orders of %d sequences, %d of which move bytes, %d of these near the least\n",
                  orders, cases, some, met);
    assert_true(some >= cases / 3 && met >= cases / 15);
}

/* ---- windows ---- */

typedef struct told {
    uint64_t first_step, bytes[2 * STEPS_MOST]; /* by step since the window began */
} told;

static void take_told(void *context, uint64_t at, uint64_t bytes)
{
    told *t = context;
    t->bytes[at - t->first_step] = bytes;
}

/* Compares each window with a settled repetition from the same step on. Returns how many ask for
 * as many bytes. */
static int compare_windows(const coh_traffic *traffic, enum coh_traffic_way way, uint64_t room,
                           int *windows)
{
    uint64_t after[STEPS_MOST + 1], bytes = 0, least = 0;
    int is_settled = 0, met = 0;
    assert_int_equal(coh_traffic_least(traffic, way, room, &least), COH_OK);
    assert_int_equal(coh_traffic_settled(traffic, way, room, &bytes, after, &is_settled), COH_OK);
    assert_int_equal(bytes, least);
    if (!is_settled)
        return 0;
    assert_int_equal(after[traffic->step_count - 1], least);
    for (uint32_t first = 0; first < traffic->step_count; first++, ++*windows) {
        told t = { .first_step = first };
        uint64_t moved = 0;
        assert_int_equal(
            coh_traffic_window(traffic, way, room, first, traffic->step_count, take_told, &t),
            COH_OK);
        for (uint32_t i = 0; i < traffic->step_count; i++) {
            const uint32_t at = (first + i) % traffic->step_count;
            moved += after[at] - (at > 0 ? after[at - 1] : 0);
            assert_true(t.bytes[i] <= moved);
        }
        met += moved > 0 && t.bytes[traffic->step_count - 1] == moved;
    }
    return met;
}

static void no_window_asks_for_more_than_a_settled_repetition_moves(void **state)
{
    (void)state;
    int windows = 0, met = 0;
    for (uint64_t seed = 0; seed < 3000; seed++) {
        draws d = { .stream = 0xb0d5, .seed = seed };
        instance in;
        coh_traffic traffic;
        draw_instance(&d, &in);
        make_traffic(&in, 1, &traffic);
        for (int way = COH_TRAFFIC_FETCH; way <= COH_TRAFFIC_STORE; way++)
            met += compare_windows(&traffic, (enum coh_traffic_way)way, (uint64_t)in.room * UNIT,
                                   &windows);
        coh_traffic_fini(&traffic);
    }
    print_message("%d windows, %d of which ask for as many bytes\n", windows, met);
    assert_true(windows > 10000 && met > windows / 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_order_moves_fewer_bytes),
        cmocka_unit_test(no_window_asks_for_more_than_a_settled_repetition_moves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
