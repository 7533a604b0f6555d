/* The order of fetches and of stores against a link simulated step by step: whenever it is free, it
 * takes, of all that may run, the one that must run first. And the steps in which they may and must
 * run against all uses of their bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "planner/move_order.h"
#include "tests/planner/draws.h"

enum { STEPS_MOST = 40, FETCHES_MOST = 60 };

/* A residency of fetches alone, each of its own chunk. */
typedef struct scene {
    coh_chunk chunks[FETCHES_MOST];
    coh_move moves[FETCHES_MOST];
    coh_extent extents[FETCHES_MOST];
    double begin[STEPS_MOST + 1];
    coh_layout layout;
    coh_residency residency;
    coh_step_clock clock;
} scene;

static void begin_scene(scene *s, uint32_t step_count)
{
    *s = (scene){ .layout.chunks = s->chunks,
                  .layout.chunk_count = FETCHES_MOST,
                  .residency.moves = s->moves,
                  .residency.extents = s->extents,
                  .clock = { .step_count = step_count, .begin = s->begin } };
}

/* Adds a fetch that may run before steps earliest .. needed. */
static void add_fetch(scene *s, int32_t earliest, int32_t needed, uint64_t bytes)
{
    const size_t i = s->residency.move_count++;
    s->chunks[i].bytes = bytes;
    s->moves[i] = (coh_move){ .chunk = (uint32_t)i, .earliest = earliest, .step = needed };
}

/* The first step before which a move may run, and the one before which it must. */
static int32_t first_step(const coh_move *move)
{
    return move->is_out ? move->step + 1 : move->earliest;
}

static int32_t last_step(const coh_move *move)
{
    return move->is_out ? move->latest + 1 : move->step;
}

/* The steps before which the moves run, found by looking at all of them each time. */
static void expect(const scene *s, double part, int32_t *out_steps)
{
    const coh_move *moves = s->moves;
    double now = 0, bytes = 0;
    int32_t step = 0;
    int is_done[FETCHES_MOST] = { 0 };
    for (size_t i = 0; i < s->residency.move_count; i++)
        bytes += (double)s->chunks[i].bytes;
    for (size_t k = 0; k < s->residency.move_count; k++) {
        size_t best = SIZE_MAX;
        double soonest = 1e300;
        for (size_t i = 0; i < s->residency.move_count; i++)
            if (!is_done[i] && s->begin[first_step(&moves[i])] < soonest)
                soonest = s->begin[first_step(&moves[i])];
        now = soonest > now ? soonest : now;
        for (size_t i = 0; i < s->residency.move_count; i++)
            if (!is_done[i] && s->begin[first_step(&moves[i])] <= now &&
                (best == SIZE_MAX || last_step(&moves[i]) < last_step(&moves[best])))
                best = i;
        is_done[best] = 1;
        step = first_step(&moves[best]) > step ? first_step(&moves[best]) : step;
        out_steps[best] = step;
        now += (double)s->chunks[best].bytes * (part * s->begin[s->clock.step_count] / bytes);
    }
}

static void check(scene *s, double part)
{
    int32_t steps[FETCHES_MOST];
    coh_move before[FETCHES_MOST];
    expect(s, part, steps);
    memcpy(before, s->moves, sizeof(before));
    assert_int_equal(coh_fetch_order(&s->layout, &s->clock, part, &s->residency), COH_OK);
    for (size_t i = 0; i < s->residency.move_count; i++) {
        assert_int_equal(s->moves[i].step, steps[i]);
        assert_in_range(s->moves[i].step, before[i].earliest, before[i].step);
    }
}

static void random_fetches_run_as_on_a_simulated_link(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < 3000; round++) {
        draws d = { .stream = 0xfe7c, .seed = round };
        scene s;
        const uint32_t step_count = (uint32_t)draw(&d, 1, STEPS_MOST);
        begin_scene(&s, step_count);
        for (uint32_t i = 0; i < step_count; i++) /* exchanges and host updates take no time here */
            s.begin[i + 1] = s.begin[i] + draw(&d, 0, 3);
        for (int32_t needed = 0; needed <= (int32_t)step_count; needed++)
            for (int n = draw(&d, 0, 2); n > 0 && s.residency.move_count < FETCHES_MOST; n--)
                add_fetch(&s, draw(&d, 0, needed), needed, (uint64_t)draw(&d, 1, 5));
        check(&s, draw(&d, 1, 8) / 4.0);
    }
}

/* In the order of need the first fetch, whose place is free late, would keep back all others. */
static void a_late_place_keeps_no_other_fetch_back(void **state)
{
    (void)state;
    scene s;
    begin_scene(&s, 10);
    for (int i = 0; i < 10; i++)
        s.begin[i + 1] = s.begin[i] + 1;
    add_fetch(&s, 7, 8, 1);
    add_fetch(&s, 0, 9, 1);
    add_fetch(&s, 0, 10, 1);
    check(&s, 0.25);
    assert_int_equal(s.moves[0].step, 7);
    assert_int_equal(s.moves[1].step, 0);
    assert_int_equal(s.moves[2].step, 0);
}

/* ---- stores ---- */

/* Adds a store from a place of its own, that may run after steps made .. latest. */
static void add_store(scene *s, int32_t made, int32_t latest, uint64_t bytes)
{
    const size_t i = s->residency.move_count++;
    s->chunks[i].bytes = bytes;
    s->extents[i] = (coh_extent){ .offset = 8 * i, .bytes = bytes };
    s->moves[i] = (coh_move){
        .chunk = (uint32_t)i, .extent = (uint32_t)i, .step = made, .latest = latest, .is_out = 1
    };
}

static void random_stores_run_as_on_a_simulated_link(void **state)
{
    (void)state;
    int later = 0;
    for (uint64_t round = 0; round < 3000; round++) {
        draws d = { .stream = 0x5707e, .seed = round };
        int32_t steps[FETCHES_MOST];
        coh_move before[FETCHES_MOST];
        scene s;
        const uint32_t step_count = (uint32_t)draw(&d, 1, STEPS_MOST);
        const double part = draw(&d, 1, 8) / 4.0;
        begin_scene(&s, step_count);
        for (uint32_t i = 0; i < step_count; i++)
            s.begin[i + 1] = s.begin[i] + draw(&d, 0, 3);
        for (int n = draw(&d, 1, FETCHES_MOST); n > 0; n--) {
            const int made = draw(&d, -1, (int)step_count - 1);
            add_store(&s, made, draw(&d, made, (int)step_count - 1), (uint64_t)draw(&d, 1, 5));
        }
        expect(&s, part, steps);
        memcpy(before, s.moves, sizeof(before));
        assert_int_equal(coh_store_order(&s.layout, &s.clock, part, &s.residency), COH_OK);
        for (size_t i = 0; i < s.residency.move_count; i++) {
            assert_int_equal(s.moves[i].step, steps[i] - 1);
            assert_in_range(s.moves[i].step + 1, before[i].step + 1, before[i].latest + 1);
            later += s.moves[i].step > before[i].step;
        }
    }
    assert_true(later > 10000);
}

/* Content that changed first, but whose place nothing wants, does not keep the second one back. */
static void an_idle_place_keeps_no_other_store_back(void **state)
{
    (void)state;
    scene s;
    begin_scene(&s, 10);
    for (int i = 0; i < 10; i++)
        s.begin[i + 1] = s.begin[i] + 1;
    add_store(&s, 0, 9, 4);
    add_store(&s, 0, 8, 4);
    add_store(&s, 1, 3, 2);
    assert_int_equal(coh_store_order(&s.layout, &s.clock, 0.5, &s.residency), COH_OK);
    assert_int_equal(s.moves[1].step, 0); /* the link takes two steps for it */
    assert_int_equal(s.moves[2].step, 1);
    assert_int_equal(s.moves[0].step, 1);
}

/* ---- the steps in which moves may and must run ---- */

enum { OBJECTS = 24, OPERANDS = 3, PLACED_STEPS = 80, UNIT = 4096 };

/* Random operands on objects that all survive, in a tier that holds a part of them. */
typedef struct run {
    coh_object objects[OBJECTS];
    coh_chunk chunks[2 * OBJECTS];
    coh_lowered_operand operands[OPERANDS * PLACED_STEPS];
    uint32_t begin[PLACED_STEPS + 1];
    uint8_t keeps_far[2 * OBJECTS];
    coh_layout layout;
    coh_sequence sequence;
    coh_level level;
} run;

static void draw_run(draws *d, run *r)
{
    *r = (run){ .layout = { .objects = r->objects, .chunks = r->chunks, .object_count = OBJECTS } };
    for (uint32_t i = 0; i < OBJECTS; i++) {
        coh_object *object = &r->objects[i];
        *object = (coh_object){ .chunk_begin = r->layout.chunk_count, .survives = 1 };
        for (int k = draw(d, 1, 2); k > 0; k--, object->chunk_count++) {
            coh_chunk *chunk = &r->chunks[r->layout.chunk_count++];
            *chunk = (coh_chunk){ .object = (int32_t)i,
                                  .object_offset = object->bytes,
                                  .bytes = (uint64_t)draw(d, 1, 3) * UNIT };
            object->bytes += chunk->bytes;
        }
    }
    for (uint32_t step = 0; step < PLACED_STEPS; step++) {
        const int first = draw(d, 0, OBJECTS - 1), count = draw(d, 1, OPERANDS);
        r->begin[step + 1] = r->begin[step] + (uint32_t)count;
        for (int i = 0; i < count; i++) {
            const int object = (first + i * (OBJECTS / OPERANDS)) % OBJECTS;
            const uint32_t end = r->objects[object].chunk_count;
            r->operands[r->begin[step] + (uint32_t)i] =
                (coh_lowered_operand){ .object = object,
                                       .touch_end = end,
                                       .window_end = end,
                                       .access =
                                           (uint8_t)draw(d, COH_ACCESS_READ, COH_ACCESS_BOTH) };
        }
    }
    r->sequence = (coh_sequence){ .step_count = PLACED_STEPS,
                                  .operand_begin = r->begin,
                                  .operands = r->operands };
    r->level = (coh_level){ .layout = &r->layout,
                            .capacity = (uint64_t)draw(d, 20, 60) * UNIT,
                            .has_far = 1,
                            .keeps_far = r->keeps_far,
                            .tie_break = draw(d, 0, COH_TIE_COUNT - 1),
                            .horizon = (uint32_t)(6 * draw(d, 0, 4)),
                            .patient = draw(d, 0, 1) };
}

static int overlap(const coh_extent *a, const coh_extent *b)
{
    return a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

/* Returns the first step that follows every use of the fetch's bytes before its own step, and the
 * instruction that made its content farther out. `number`: of the move. */
static int32_t first_free(const run *r, const coh_residency *placed, size_t number)
{
    const coh_move *fetch = &placed->moves[number];
    const coh_extent *place = &placed->extents[fetch->extent];
    int32_t free = 0;
    for (int32_t step = 0; step < fetch->step; step++)
        for (uint32_t i = r->begin[step]; i < r->begin[step + 1]; i++) {
            const uint32_t begin = placed->placings[i].touch_begin;
            for (uint32_t k = 0; k < r->operands[i].touch_end; k++)
                if (overlap(place, &placed->extents[placed->touch_extents[begin + k]]))
                    free = step + 1;
        }
    for (size_t i = 0; i < number; i++)
        if (placed->moves[i].is_out && placed->moves[i].chunk == fetch->chunk &&
            placed->moves[i].step >= free)
            free = placed->moves[i].step + 1;
    return free;
}

/* Neighbouring free places become one, with the later of their last uses, once both are idle for
 * two horizons: a fetch there may run later than it could, but before that. */
static void a_fetch_may_run_from_the_last_use_of_its_place_on(void **state)
{
    (void)state;
    static run r;
    int fetches = 0, waiting = 0;
    for (uint64_t round = 0; round < 400; round++) {
        draws d = { .stream = 0xfe7d, .seed = round };
        coh_residency placed = { 0 };
        draw_run(&d, &r);
        if (coh_residency_run(&r.level, &r.sequence, NULL, NULL, 0, &placed) != COH_OK)
            continue; /* a step's windows do not fit together */
        for (size_t i = 0; i < placed.move_count; i++) {
            const coh_move *move = &placed.moves[i];
            if (move->is_out)
                continue;
            const int32_t free = first_free(&r, &placed, i);
            const int32_t settled = move->step - 2 * (int32_t)r.level.horizon;
            assert_in_range(move->earliest, free, move->step);
            fetches++;
            waiting += free > 0;
            assert_true(move->earliest == free || move->earliest <= settled);
        }
        coh_residency_fini(&placed);
    }
    assert_true(fetches > 10000 && waiting > fetches / 2);
}

/* Returns the last step after which a store may run: no later extent in its place is touched or
 * fetched before it, and its chunk is not fetched again. `made`: its last producer. */
static int32_t last_free(const run *r, const coh_residency *placed, size_t number, int32_t made)
{
    const coh_move *store = &placed->moves[number];
    const coh_extent *place = &placed->extents[store->extent];
    int32_t free = PLACED_STEPS - 1;
    for (int32_t step = PLACED_STEPS - 1; step > made; step--)
        for (uint32_t i = r->begin[step]; i < r->begin[step + 1]; i++)
            for (uint32_t k = 0; k < r->operands[i].touch_end; k++) {
                const uint32_t extent = placed->touch_extents[placed->placings[i].touch_begin + k];
                if (extent > store->extent && overlap(place, &placed->extents[extent]))
                    free = step - 1;
            }
    for (size_t i = number + 1; i < placed->move_count; i++) {
        const coh_move *fetch = &placed->moves[i];
        if (!fetch->is_out && fetch->step <= free &&
            (fetch->chunk == store->chunk || overlap(place, &placed->extents[fetch->extent])))
            free = fetch->step - 1;
    }
    return free;
}

/* With fetches in either order. A store may have to run earlier than its place is taken: part of it
 * was taken by a window that nothing touches before the run ends, or it was evicted for want of
 * room in one piece. */
static void a_store_may_run_until_its_place_is_taken(void **state)
{
    (void)state;
    static run r;
    int stores = 0, later = 0, exact = 0;
    double begin[PLACED_STEPS + 1];
    for (int step = 0; step <= PLACED_STEPS; step++)
        begin[step] = step;
    for (uint64_t round = 0; round < 400; round++) {
        draws d = { .stream = 0x5707f, .seed = round };
        const coh_step_clock clock = { .step_count = PLACED_STEPS, .begin = begin };
        coh_residency placed = { 0 };
        int32_t made[OPERANDS * PLACED_STEPS * 8];
        draw_run(&d, &r);
        if (coh_residency_run(&r.level, &r.sequence, NULL, NULL, 0, &placed) != COH_OK)
            continue;
        assert_true(placed.move_count <= sizeof(made) / sizeof(made[0]));
        for (size_t i = 0; i < placed.move_count; i++)
            made[i] = placed.moves[i].step;
        if (round % 2 == 0)
            assert_int_equal(coh_fetch_order(&r.layout, &clock, 0.5, &placed), COH_OK);
        assert_int_equal(coh_store_order(&r.layout, &clock, draw(&d, 1, 8) / 4.0, &placed), COH_OK);
        for (size_t i = 0; i < placed.move_count; i++) {
            const coh_move *move = &placed.moves[i];
            if (!move->is_out)
                continue;
            const int32_t last = last_free(&r, &placed, i, made[i]);
            assert_true(move->step >= made[i] && move->step <= move->latest);
            assert_true(move->latest <= last);
            stores++;
            later += move->step > made[i];
            exact += move->latest == last;
        }
        coh_residency_fini(&placed);
    }
    assert_true(stores > 5000 && later > stores / 8 && exact > stores / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_fetches_run_as_on_a_simulated_link),
        cmocka_unit_test(a_late_place_keeps_no_other_fetch_back),
        cmocka_unit_test(random_stores_run_as_on_a_simulated_link),
        cmocka_unit_test(an_idle_place_keeps_no_other_store_back),
        cmocka_unit_test(a_fetch_may_run_from_the_last_use_of_its_place_on),
        cmocka_unit_test(a_store_may_run_until_its_place_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
