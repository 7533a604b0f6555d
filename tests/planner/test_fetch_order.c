/* The order of fetches against a link simulated step by step: whenever it is free, it takes, of all
 * fetches whose places are free, the one needed first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "planner/fetch_order.h"
#include "tests/planner/draws.h"

enum { STEPS_MOST = 40, FETCHES_MOST = 60 };

/* A residency of fetches alone, each of its own chunk. */
typedef struct scene {
    coh_chunk chunks[FETCHES_MOST];
    coh_move moves[FETCHES_MOST];
    double begin[STEPS_MOST + 1];
    coh_layout layout;
    coh_residency residency;
    coh_step_clock clock;
} scene;

static void begin_scene(scene *s, uint32_t step_count)
{
    *s = (scene){ .layout.chunks = s->chunks,
                  .residency.moves = s->moves,
                  .clock = { .step_count = step_count, .begin = s->begin } };
}

/* Adds a fetch that may run before steps earliest .. needed. */
static void add_fetch(scene *s, int32_t earliest, int32_t needed, uint64_t bytes)
{
    const size_t i = s->residency.move_count++;
    s->chunks[i].bytes = bytes;
    s->moves[i] = (coh_move){ .chunk = (uint32_t)i, .earliest = earliest, .step = needed };
}

/* The steps before which the fetches run, found by looking at all of them each time. */
static void expect(const scene *s, double part, int32_t *out_steps)
{
    double now = 0, bytes = 0;
    int32_t step = 0;
    int is_done[FETCHES_MOST] = { 0 };
    for (size_t i = 0; i < s->residency.move_count; i++)
        bytes += (double)s->chunks[i].bytes;
    for (size_t k = 0; k < s->residency.move_count; k++) {
        size_t best = SIZE_MAX;
        double soonest = 1e300;
        for (size_t i = 0; i < s->residency.move_count; i++)
            if (!is_done[i] && s->begin[s->moves[i].earliest] < soonest)
                soonest = s->begin[s->moves[i].earliest];
        now = soonest > now ? soonest : now;
        for (size_t i = 0; i < s->residency.move_count && best == SIZE_MAX; i++)
            if (!is_done[i] && s->begin[s->moves[i].earliest] <= now)
                best = i;
        is_done[best] = 1;
        step = s->moves[best].earliest > step ? s->moves[best].earliest : step;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_fetches_run_as_on_a_simulated_link),
        cmocka_unit_test(a_late_place_keeps_no_other_fetch_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
