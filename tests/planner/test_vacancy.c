/* Compares the search for vacant homes with a walk over all of them, from the highest down, while
 * segments come and go and next uses change. Runs of random steps keep the tree up to date. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "planner/residency_state.h"
#include "tests/length.h"
#include "tests/planner/draws.h"

/* The chunks; HOMES_MOST of them may have homes, the others are placed over those or elsewhere. */
enum { HOMES_MOST = 70, OTHERS = 8, CHUNKS = HOMES_MOST + OTHERS, UNIT = 64, STEPS = 20 };
enum { CHANGES = 400 };

typedef struct scene {
    coh_chunk chunks[CHUNKS];
    uint64_t home_offset[CHUNKS];
    uint32_t home_chunks[HOMES_MOST];
    coh_chunk_access accesses[CHUNKS]; /* one read of each chunk */
    uint32_t begin[CHUNKS + 1], cursor[CHUNKS];
    int stands[CHUNKS];      /* 1: the chunk has a segment, */
    uint64_t offset[CHUNKS]; /* which lies there */
    coh_layout layout;
    coh_level level;
    coh_next_use next;
    coh_vacancy vacancy;
} scene;

static void draw_scene(draws *d, scene *s)
{
    const uint32_t homes = (uint32_t)draw(d, 1, HOMES_MOST);
    memset(s, 0, sizeof(*s));
    uint64_t end = 0;
    for (uint32_t c = 0; c < CHUNKS; c++) {
        s->chunks[c].bytes = (uint64_t)draw(d, 1, 3) * UNIT;
        s->home_offset[c] = COH_NO_HOME;
        s->accesses[c] = (coh_chunk_access){ .step = (uint32_t)draw(d, 1, STEPS) };
        s->begin[c] = s->cursor[c] = c;
    }
    s->begin[CHUNKS] = CHUNKS;
    for (uint32_t home = 0; home < homes; home++) {
        const uint32_t chunk = (home * 3 + 1) % HOMES_MOST; /* in no order */
        s->home_chunks[home] = chunk;
        end += draw(d, 0, 5) == 0 ? UNIT : 0; /* a gap is part of the home below it */
        s->home_offset[chunk] = end;
        end += s->chunks[chunk].bytes;
    }
    s->layout = (coh_layout){ .chunks = s->chunks, .chunk_count = CHUNKS };
    s->level = (coh_level){ .layout = &s->layout,
                            .home_offset = s->home_offset,
                            .home_chunks = s->home_chunks,
                            .home_count = homes,
                            .floor_bytes = end + (uint64_t)draw(d, 0, 2) * UNIT };
    s->next = (coh_next_use){ .accesses = s->accesses,
                              .begin = s->begin,
                              .cursor = s->cursor,
                              .chunk_count = CHUNKS,
                              .end_step = STEPS };
    assert_int_equal(coh_vacancy_init(&s->vacancy, &s->level, &s->next), COH_OK);
}

static int overlaps(const scene *s, uint32_t chunk, uint64_t begin, uint64_t end)
{
    return s->stands[chunk] && s->offset[chunk] < end &&
           begin < s->offset[chunk] + s->chunks[chunk].bytes;
}

static int is_free(const scene *s, uint64_t begin, uint64_t end)
{
    for (uint32_t c = 0; c < CHUNKS; c++)
        if (overlaps(s, c, begin, end))
            return 0;
    return 1;
}

/* A segment comes or goes, or the one access of a chunk moves. */
static void change(draws *d, scene *s)
{
    const uint32_t chunk = (uint32_t)draw(d, 0, CHUNKS - 1);
    const uint64_t bytes = s->chunks[chunk].bytes;
    uint64_t offset = s->home_offset[chunk];
    if (offset == COH_NO_HOME)
        offset = (uint64_t)draw(d, 0, (int)(s->level.floor_bytes / UNIT)) * UNIT;
    if (draw(d, 0, 3) == 0) {
        s->accesses[chunk].step = (uint32_t)draw(d, 1, STEPS);
        coh_vacancy_renew(&s->vacancy, chunk);
    } else if (s->stands[chunk]) {
        s->stands[chunk] = 0;
        coh_vacancy_release(&s->vacancy, chunk, s->offset[chunk], bytes);
    } else if (is_free(s, offset, offset + bytes)) {
        s->stands[chunk] = 1;
        s->offset[chunk] = offset;
        coh_vacancy_take(&s->vacancy, chunk, offset, bytes);
    }
    if (draw(d, 0, 20) == 0) {
        for (uint32_t c = 0; c < CHUNKS; c++)
            s->accesses[c].step = (uint32_t)draw(d, 1, STEPS);
        coh_vacancy_renew_all(&s->vacancy);
    }
}

static int is_vacant(const scene *s, uint32_t chunk, uint64_t until)
{
    return !s->stands[chunk] && s->accesses[chunk].step > until &&
           is_free(s, s->home_offset[chunk], s->home_offset[chunk] + s->chunks[chunk].bytes);
}

static int walk(const scene *s, uint64_t until, uint64_t bytes, uint64_t *out_offset)
{
    uint64_t end = s->level.floor_bytes;
    for (uint32_t i = s->level.home_count; i-- > 0;) {
        const uint32_t chunk = s->home_chunks[i];
        if (!is_vacant(s, chunk, until)) {
            end = s->home_offset[chunk];
        } else if (s->home_offset[chunk] + bytes <= end) {
            *out_offset = s->home_offset[chunk];
            return 1;
        }
    }
    return 0;
}

static void the_highest_vacant_homes_are_found(void **state)
{
    (void)state;
    const int cases = test_cases(2000);
    int found_some = 0, found_none = 0;
    for (int seed = 0; seed < cases; seed++) {
        draws d = { .stream = 41, .seed = (uint64_t)seed };
        scene s;
        draw_scene(&d, &s);
        for (int i = 0; i < CHANGES; i++) {
            const uint64_t until = (uint64_t)draw(&d, 0, STEPS);
            const uint64_t bytes = (uint64_t)draw(&d, 1, 6) * UNIT;
            uint64_t expected = 0, offset = 0;
            change(&d, &s);
            const int is_there = walk(&s, until, bytes, &expected);
            assert_int_equal(coh_vacancy_find(&s.vacancy, until, bytes, &offset), is_there);
            assert_true(offset == expected);
            found_some += is_there;
            found_none += !is_there;
        }
        coh_vacancy_fini(&s.vacancy);
    }
    assert_true(found_some > cases && found_none > cases);
}

/* ---- runs ---- */

/* Of the chunks, one to an object, those with homes are read early and written late, so that their
 * homes are vacant between; some are changed farther out before. Between bodies some are held in a
 * nearer tier: these are written, then read. Others are written and read once or twice, and some
 * that survive are read at any time. */
enum { RUN_HOMES = 12, PASSING = 16, OTHER = 4, RUN_CHUNKS = RUN_HOMES + PASSING + OTHER };
enum { RUN_STEPS = 60, EARLY = 20, LATE = 40, A_STEP_MOST = 3 };

typedef struct run {
    coh_object objects[RUN_CHUNKS];
    coh_chunk chunks[RUN_CHUNKS];
    coh_lowered_operand operands[RUN_STEPS][A_STEP_MOST], list[RUN_STEPS * A_STEP_MOST];
    uint32_t count[RUN_STEPS], begin[RUN_STEPS + 1];
    uint64_t home_offset[RUN_CHUNKS];
    uint32_t home_chunks[RUN_HOMES];
    uint8_t keeps_far[RUN_CHUNKS], held_nearer[RUN_CHUNKS];
    coh_layout layout;
    coh_level level;
    coh_sequence sequence;
} run;

/* Adds an access at the first step from `step` on that has room for it. Returns the step after. */
static int add_access(run *r, int chunk, int step, int access, int is_far)
{
    while (step < RUN_STEPS && r->count[step] == A_STEP_MOST)
        step++;
    if (step >= RUN_STEPS)
        return RUN_STEPS;
    r->operands[step][r->count[step]++] = (coh_lowered_operand){ .object = chunk,
                                                                 .touch_end = 1,
                                                                 .window_end = 1,
                                                                 .access = (uint8_t)access,
                                                                 .is_far = (uint8_t)is_far };
    return step + 1;
}

static void draw_accesses(draws *d, run *r)
{
    for (int i = 0; i < RUN_HOMES; i++) {
        int step = draw(d, 0, EARLY);
        if (r->held_nearer[i]) {
            step = add_access(r, i, step, COH_ACCESS_WRITE, 0);
            add_access(r, i, step + draw(d, 0, 5), COH_ACCESS_READ, 0);
            continue;
        }
        if (draw(d, 0, 2) == 0)
            step = add_access(r, i, step, COH_ACCESS_READ | COH_ACCESS_WRITE, 1) + draw(d, 0, 5);
        add_access(r, i, step, COH_ACCESS_READ, 0);
        add_access(r, i, draw(d, LATE, RUN_STEPS - 1), COH_ACCESS_WRITE, 0);
    }
    for (int i = RUN_HOMES; i < RUN_HOMES + PASSING; i++) {
        const int after = add_access(r, i, draw(d, 0, RUN_STEPS - 10), COH_ACCESS_WRITE, 0);
        const int again = add_access(r, i, after + draw(d, 0, 8), COH_ACCESS_READ, 0);
        if (draw(d, 0, 1))
            add_access(r, i, again + draw(d, 0, 8), COH_ACCESS_READ, 0);
    }
    for (int i = RUN_HOMES + PASSING; i < RUN_CHUNKS; i++)
        for (int step = draw(d, 0, 9); step < RUN_STEPS; step += draw(d, 1, 15))
            step = add_access(r, i, step, COH_ACCESS_READ, 0);
}

static void draw_run(draws *d, run *r)
{
    uint64_t end = 0;
    uint32_t count = 0;
    memset(r, 0, sizeof(*r));
    for (int i = 0; i < RUN_CHUNKS; i++) {
        const uint64_t bytes = (uint64_t)draw(d, 1, 3) * UNIT;
        const int is_home = i < RUN_HOMES;
        r->chunks[i] = (coh_chunk){ .object = i, .bytes = bytes };
        r->objects[i] = (coh_object){ .chunk_begin = (uint32_t)i,
                                      .chunk_count = 1,
                                      .bytes = bytes,
                                      .stream = is_home ? COH_STREAM_GRAD : COH_STREAM_ACTIVATION,
                                      .survives = is_home || i >= RUN_HOMES + PASSING };
        r->home_offset[i] = is_home ? end : COH_NO_HOME;
        end += is_home ? bytes : 0;
        if (is_home)
            r->home_chunks[i] = (uint32_t)i;
        r->held_nearer[i] = is_home && draw(d, 0, 2) == 0;
    }
    draw_accesses(d, r);
    for (int step = 0; step < RUN_STEPS; step++) {
        r->begin[step] = count;
        for (uint32_t k = 0; k < r->count[step]; k++)
            r->list[count++] = r->operands[step][k];
    }
    r->begin[RUN_STEPS] = count;
    r->layout = (coh_layout){ .objects = r->objects,
                              .object_count = RUN_CHUNKS,
                              .chunks = r->chunks,
                              .chunk_count = RUN_CHUNKS };
    r->level = (coh_level){ .layout = &r->layout,
                            .tier = COH_TIER_HOST,
                            .capacity = end + (uint64_t)draw(d, 9, 20) * UNIT,
                            .has_far = 1,
                            .home_offset = r->home_offset,
                            .floor_bytes = end,
                            .home_chunks = r->home_chunks,
                            .home_count = RUN_HOMES,
                            .keeps_far = r->keeps_far,
                            .held_nearer = r->held_nearer,
                            .horizon = (uint32_t)draw(d, 0, 8) };
    r->sequence =
        (coh_sequence){ .step_count = RUN_STEPS, .operand_begin = r->begin, .operands = r->list };
}

/* A body from a begin at which everything is far. */
static void run_body(run *r)
{
    coh_runner runner = { 0 };
    assert_int_equal(coh_runner_open(&runner, &r->level, &r->sequence, &r->sequence, NULL), COH_OK);
    assert_int_equal(coh_runner_begin(&runner), COH_OK);
    for (uint32_t i = 0; i < RUN_STEPS; i++, runner.step++) {
        assert_int_equal(coh_runner_step(&runner, i), COH_OK);
        assert_true(coh_residency_homes_agree(&runner));
    }
    coh_runner_close(&runner);
}

static void runs_keep_the_tree_up_to_date(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < test_cases(500); seed++) {
        draws d = { .stream = 42, .seed = seed };
        run r;
        draw_run(&d, &r);
        run_body(&r);
        /* An assertion of residency_choose.c compares the tree, where assertions are compiled. */
        coh_resident *residents = NULL;
        uint32_t count = 0;
        size_t capacity = 0;
        int unused = 0;
        coh_residency residency;
        assert_int_equal(
            coh_residency_boundary(&r.level, &r.sequence, &residents, &count, &capacity, &unused),
            COH_OK);
        assert_int_equal(
            coh_residency_run(&r.level, &r.sequence, &r.sequence, residents, count, &residency),
            COH_OK);
        coh_residency_fini(&residency);
        coh_free(residents);
    }
}

static void a_level_without_a_list_has_no_vacant_home(void **state)
{
    (void)state;
    const coh_level level = { .home_count = 0 };
    const coh_next_use next = { .chunk_count = 0 };
    coh_vacancy vacancy;
    uint64_t offset = 0;
    assert_int_equal(coh_vacancy_init(&vacancy, &level, &next), COH_OK);
    coh_vacancy_take(&vacancy, 0, 0, UNIT);
    coh_vacancy_renew(&vacancy, 0);
    assert_int_equal(coh_vacancy_find(&vacancy, 0, UNIT, &offset), 0);
    coh_vacancy_fini(&vacancy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_highest_vacant_homes_are_found),
        cmocka_unit_test(runs_keep_the_tree_up_to_date),
        cmocka_unit_test(a_level_without_a_list_has_no_vacant_home),
    };
    return cmocka_run_group_tests_name("vacancy", tests, NULL, NULL);
}
