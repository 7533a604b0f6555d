/* The public handle of a world: what ranks see of it, texts and records that reach all, stops, and
 * arguments that are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cohobate/world.h"
#include "comm/launcher.h"
#include "comm/world.h"
#include "tests/comm/world_threads.h"
#include "tests/faults/alloc_faults.h"

enum { RANKS = 8 };

/* Runs the body on a thread for each rank. */
static void run(int32_t rank_count, coh_status (*body)(coh_world *world), world_end *out_ends)
{
    const coh_world_options options = { .struct_bytes = sizeof(options), .rank_count = rank_count };
    world_run(&options, body, out_ends);
}

#define TRY(call)                                                                                  \
    do {                                                                                           \
        coh_status status_ = (call);                                                               \
        if (status_ != COH_OK)                                                                     \
            return status_;                                                                        \
    } while (0)

static coh_status not_so(coh_world *world, const char *what)
{
    (void)coh_world_stop(world, COH_ERR_INTERNAL, what);
    return coh_world_barrier(world);
}

static void levels_are_those_that_were_given(void **state)
{
    (void)state;
    static const struct {
        int32_t ranks, pair, node, expected_pair, expected_node;
    } cases[] = { { 8, 2, 4, 2, 4 }, { 8, 0, 0, 1, 8 }, { 8, 8, 8, 8, 8 },
                  { 6, 3, 0, 3, 6 }, { 1, 1, 1, 1, 1 }, { 6, 0, 2, 1, 2 } };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const coh_world_options options = { .struct_bytes = sizeof(options),
                                            .rank_count = cases[i].ranks,
                                            .pair_ranks = cases[i].pair,
                                            .node_ranks = cases[i].node };
        coh_world *worlds[RANKS];
        assert_int_equal(coh_world_open_threads(&options, worlds), COH_OK);
        for (int32_t rank = 0; rank < cases[i].ranks; rank++) {
            const coh_world *world = worlds[rank];
            assert_int_equal(coh_world_rank(world), rank);
            assert_int_equal(coh_world_size(world), cases[i].ranks);
            assert_int_equal(coh_world_level_ranks(world, COH_LEVEL_SELF), 1);
            assert_int_equal(coh_world_level_ranks(world, COH_LEVEL_PAIR), cases[i].expected_pair);
            assert_int_equal(coh_world_level_ranks(world, COH_LEVEL_NODE), cases[i].expected_node);
            assert_int_equal(coh_world_level_ranks(world, COH_LEVEL_WORLD), cases[i].ranks);
            assert_int_equal(coh_world_level_ranks(world, COH_LEVEL_COUNT), 0);
        }
        for (int32_t rank = 0; rank < cases[i].ranks; rank++)
            coh_world_close(worlds[rank]);
    }
}

static void a_world_that_cannot_be_is_refused(void **state)
{
    (void)state;
    static const struct {
        int32_t ranks, pair, node;
        const char *sentence;
    } cases[] = { { 0, 0, 0, "rank_count" },    { -1, 0, 0, "rank_count" },
                  { 1025, 0, 0, "rank_count" }, { 8, 3, 4, "do not fill" },
                  { 8, 2, 3, "do not fill" },   { 8, 0, 16, "node_ranks" },
                  { 8, 8, 4, "pair_ranks" },    { 8, -1, 4, "pair_ranks" },
                  { 7, 2, 0, "do not fill" } };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const coh_world_options options = { .struct_bytes = sizeof(options),
                                            .rank_count = cases[i].ranks,
                                            .pair_ranks = cases[i].pair,
                                            .node_ranks = cases[i].node };
        coh_world *worlds[1025];
        if (coh_world_open_threads(&options, worlds) != COH_ERR_ARGUMENT ||
            strstr(coh_last_error(), cases[i].sentence) == NULL)
            fail_msg("case %zu: %s", i, coh_last_error());
    }
}

/* The pairs of a world that was opened before its plan was made. */
static void pairs_can_be_set_later(void **state)
{
    (void)state;
    const coh_world_options options = {
        .struct_bytes = sizeof(options), .rank_count = 8, .pair_ranks = 2, .node_ranks = 4
    };
    static const struct {
        int32_t pair, expected;
        const char *sentence;
    } cases[] = { { 4, 4, NULL },         { 0, 1, NULL },
                  { 2, 2, NULL },         { 3, 2, "pair_ranks is 3 and a node has 4 ranks" },
                  { 8, 2, "pair_ranks" }, { -1, 2, "pair_ranks" } };
    coh_world *worlds[RANKS];
    assert_int_equal(coh_world_open_threads(&options, worlds), COH_OK);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const coh_status status = coh_world_set_pair_ranks(worlds[1], cases[i].pair);
        assert_int_equal(status, cases[i].sentence == NULL ? COH_OK : COH_ERR_ARGUMENT);
        if (status != COH_OK)
            assert_non_null(strstr(coh_last_error(), cases[i].sentence));
        assert_int_equal(coh_world_level_ranks(worlds[1], COH_LEVEL_PAIR), cases[i].expected);
        assert_int_equal(coh_world_level_ranks(worlds[1], COH_LEVEL_NODE), 4);
    }
    assert_int_equal(coh_world_set_pair_ranks(NULL, 1), COH_ERR_ARGUMENT);
    for (int32_t rank = 0; rank < 8; rank++)
        coh_world_close(worlds[rank]);
}

/* ---- hosts ---- */

static void ranks_of_a_host_are_a_node(void **state)
{
    (void)state;
    static const struct {
        const char *hosts[RANKS]; /* up to NULL */
        int32_t pair_ranks;
        const char *places; /* node and pair of each rank */
    } cases[] = { { { "a", "a", "a", "a" }, 1, "00 01 02 03 " },
                  { { "a", "a", "a", "a" }, 2, "00 00 01 01 " },
                  { { "b", "b", "a", "a" }, 2, "00 00 10 10 " },
                  { { "a", "b", "a", "b" }, 1, "00 10 01 11 " },
                  { { "a", "ab", "a1", "" }, 1, "00 10 20 30 " },
                  { { "a", "a", "a", "b", "b" }, 2, "00 00 01 10 10 " } };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char hosts[RANKS][COH_HOST_BYTES] = { 0 }, found[8 * RANKS] = "";
        coh_place places[RANKS];
        int32_t count = 0;
        for (; count < RANKS && cases[i].hosts[count] != NULL; count++)
            (void)snprintf(hosts[count], COH_HOST_BYTES, "%s", cases[i].hosts[count]);
        coh_world_places(hosts, count, cases[i].pair_ranks, places);
        for (int32_t rank = 0; rank < count; rank++)
            (void)snprintf(found + strlen(found), sizeof(found) - strlen(found), "%d%d ",
                           places[rank].node, places[rank].pair);
        assert_string_equal(found, cases[i].places);
    }
}

/* ---- launchers ---- */

static void set_launcher(const char *const *variables)
{
    static const char *const names[] = { "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK",
                                         "SLURM_STEP_NUM_TASKS" };
    for (int i = 0; i < 4; i++) {
        const char *value = variables[i];
        assert_int_equal(value != NULL ? setenv(names[i], value, 1) : unsetenv(names[i]), 0);
    }
}

static void a_launcher_is_found_by_its_variables(void **state)
{
    (void)state;
    static const struct {
        const char *variables[4]; /* as set_launcher has them; NULL: not set */
        int32_t rank_count;
    } cases[] = { { { NULL, NULL, NULL, NULL }, 1 }, { { NULL, NULL, NULL, "4" }, 1 },
                  { { "3", NULL, "0", "1" }, 3 },    { { NULL, "2", "0", "1" }, 2 },
                  { { NULL, NULL, "0", NULL }, 0 },  { { NULL, NULL, "0", "1" }, 1 },
                  { { NULL, NULL, "0", "2" }, 0 },   { { NULL, NULL, "0", "" }, 0 } };
    static const char *const none[4];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        coh_launcher launcher;
        set_launcher(cases[i].variables);
        assert_int_equal(coh_launcher_find(&launcher), COH_OK);
        if (launcher.rank_count != cases[i].rank_count)
            fail_msg("case %zu: %d ranks", i, (int)launcher.rank_count);
    }
    set_launcher(none);
}

/* ---- texts and records ---- */

static coh_status share_texts(coh_world *world)
{
    static char large[100000];
    const int is_first = coh_world_rank(world) == 0;
    const char *text = NULL;
    if (is_first)
        memset(large, 'x', sizeof(large) - 1);
    TRY(coh_world_share_text(world, is_first ? "plan" : "another", &text));
    if (strcmp(text, "plan") != 0)
        return not_so(world, "another text");
    TRY(coh_world_share_text(world, text, &text)); /* the text that was shared last */
    if (strcmp(text, "plan") != 0)
        return not_so(world, "another text again");
    TRY(coh_world_share_text(world, is_first ? "" : "another", &text));
    if (text[0] != '\0')
        return not_so(world, "no empty text");
    TRY(coh_world_share_text(world, is_first ? large : "", &text));
    if (strlen(text) != sizeof(large) - 1 || strspn(text, "x") != sizeof(large) - 1)
        return not_so(world, "no large text");
    return coh_world_barrier(world);
}

static coh_status gather_records(coh_world *world)
{
    for (int32_t round = 0; round < 20; round++) {
        const int32_t record[2] = { coh_world_rank(world), round };
        int32_t all[RANKS][2];
        TRY(coh_world_gather(world, record, sizeof(record), all));
        for (int32_t i = 0; i < coh_world_size(world); i++)
            if (all[i][0] != i || all[i][1] != round)
                return not_so(world, "another record");
    }
    return coh_world_barrier(world);
}

static void texts_and_records_reach_all_ranks(void **state)
{
    (void)state;
    coh_status (*const bodies[])(coh_world *) = { share_texts, gather_records };
    for (int body = 0; body < 2; body++)
        for (int32_t rank_count = 1; rank_count <= RANKS; rank_count++) {
            world_end ends[RANKS];
            run(rank_count, bodies[body], ends);
            for (int32_t i = 0; i < rank_count; i++)
                if (ends[i].status != COH_OK)
                    fail_msg("rank %d: %s", i, ends[i].sentence);
        }
}

/* ---- stops ---- */

static coh_status stop_by_the_last(coh_world *world)
{
    const char *text;
    if (coh_world_rank(world) == coh_world_size(world) - 1) {
        TRY(coh_world_stop(world, COH_ERR_FULL, "the disk\n is full"));
        TRY(coh_world_stop(world, COH_ERR_IO, "too late"));
    }
    return coh_world_rank(world) % 2 == 0 ? coh_world_barrier(world)
                                          : coh_world_share_text(world, "", &text);
}

static void a_stop_gives_all_ranks_its_status_and_sentence(void **state)
{
    (void)state;
    for (int32_t rank_count = 1; rank_count <= RANKS; rank_count++)
        for (int times = 0; times < 10; times++) {
            world_end ends[RANKS];
            char expected[64];
            (void)snprintf(expected, sizeof(expected), "rank %d: the disk? is full",
                           rank_count - 1);
            run(rank_count, stop_by_the_last, ends);
            for (int32_t i = 0; i < rank_count; i++) {
                assert_int_equal(ends[i].status, COH_ERR_FULL);
                assert_string_equal(ends[i].sentence, expected);
            }
        }
}

static void each_allocation_that_fails_leaves_nothing(void **state)
{
    (void)state;
    const coh_world_options options = { .struct_bytes = sizeof(options), .rank_count = 3 };
    coh_world *worlds[3];
    const char *text;
    for (uint64_t n = 1;; n++) {
        alloc_fail_nth(n);
        const coh_status status = coh_world_open_threads(&options, worlds);
        alloc_fail_nth(0);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(worlds[i] == NULL, status != COH_OK);
            coh_world_close(worlds[i]);
        }
        if (status == COH_OK)
            break;
        assert_int_equal(status, COH_ERR_MEMORY);
    }
    const coh_world_options single = { .struct_bytes = sizeof(single), .rank_count = 1 };
    assert_int_equal(coh_world_open_threads(&single, worlds), COH_OK);
    alloc_fail_nth(1);
    assert_int_equal(coh_world_share_text(worlds[0], "plan", &text), COH_ERR_MEMORY);
    alloc_fail_nth(0);
    assert_int_equal(coh_world_barrier(worlds[0]), COH_ERR_MEMORY); /* it has stopped the world */
    coh_world_close(worlds[0]);
}

static void bad_arguments_are_refused(void **state)
{
    (void)state;
    const coh_world_options options = { .struct_bytes = sizeof(options), .rank_count = 1 };
    static char record[COH_WORLD_RECORD_BYTES_MOST + 1], all[COH_WORLD_RECORD_BYTES_MOST + 1];
    coh_world *world;
    const char *text;
    assert_int_equal(coh_world_open_threads(&options, &world), COH_OK);
    assert_int_equal(coh_world_stop(world, COH_OK, "x"), COH_ERR_ARGUMENT);
    assert_int_equal(coh_world_stop(world, (coh_status)99, "x"), COH_ERR_ARGUMENT);
    assert_int_equal(coh_world_stop(world, COH_ERR_IO, ""), COH_ERR_ARGUMENT);
    assert_int_equal(coh_world_stop(world, COH_ERR_IO, NULL), COH_ERR_ARGUMENT);
    assert_int_equal(coh_world_share_text(world, NULL, &text), COH_ERR_ARGUMENT);
    assert_int_equal(coh_world_gather(world, record, sizeof(record), all), COH_ERR_ARGUMENT);
    assert_int_equal(coh_world_gather(world, record, sizeof(record) - 1, all), COH_OK);
    assert_int_equal(coh_world_barrier(world), COH_OK); /* none of them has stopped it */
    coh_world_close(world);
    assert_int_equal(coh_world_rank(NULL), -1);
    assert_int_equal(coh_world_size(NULL), 0);
    assert_int_equal(coh_world_level_ranks(NULL, COH_LEVEL_NODE), 0);
    coh_world_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_are_those_that_were_given),
        cmocka_unit_test(a_world_that_cannot_be_is_refused),
        cmocka_unit_test(pairs_can_be_set_later),
        cmocka_unit_test(ranks_of_a_host_are_a_node),
        cmocka_unit_test(a_launcher_is_found_by_its_variables),
        cmocka_unit_test(texts_and_records_reach_all_ranks),
        cmocka_unit_test(a_stop_gives_all_ranks_its_status_and_sentence),
        cmocka_unit_test(each_allocation_that_fails_leaves_nothing),
        cmocka_unit_test(bad_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
