/* Compares the search for vacant homes with a walk over all of them, from the highest down, while
 * segments come and go and next uses change. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "planner/vacancy.h"
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
        cmocka_unit_test(a_level_without_a_list_has_no_vacant_home),
    };
    return cmocka_run_group_tests_name("vacancy", tests, NULL, NULL);
}
