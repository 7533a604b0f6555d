/* The exchanges that measure the links of a world (engine/comm_rounds.h): which ranks exchange on
 * which level, what reaches them, and how a failure ends all. Then the profile and the findings
 * that are made of them. No test asserts how long anything takes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "cohobate/machine.h"
#include "cohobate/measure.h"
#include "engine/comm_rounds.h"
#include "tests/comm/world_threads.h"

enum { RANKS = 8, PAIR = 2, NODE = 4 };

static void run(int32_t rank_count, int32_t pair, int32_t node, coh_status (*body)(coh_world *),
                coh_status expected)
{
    const coh_world_options options = { .struct_bytes = sizeof(options),
                                        .rank_count = rank_count,
                                        .pair_ranks = pair,
                                        .node_ranks = node };
    world_end ends[RANKS];
    world_run(&options, body, ends);
    for (int32_t i = 0; i < rank_count; i++)
        if (ends[i].status != expected)
            fail_msg("rank %d: %d, %s", (int)i, (int)ends[i].status, ends[i].sentence);
}

static coh_status wrong(const char *what)
{
    return coh_fail(COH_ERR_INTERNAL, "%s", what);
}

/* ---- rounds ---- */

/* Does a level's group of rank `a` hold rank `b`? */
static int share_a_group(int level, int32_t a, int32_t b)
{
    return level == COH_LEVEL_PAIR   ? a / PAIR == b / PAIR
           : level == COH_LEVEL_NODE ? a / NODE == b / NODE
                                     : a % NODE == b % NODE;
}

/* Each rank's part is its number, and is sent to its group in rank order. */
static coh_status check_round(const coh_rounds *rounds, int level, int size, int32_t rank)
{
    const size_t part = rounds->exchanges[size].part_bytes;
    int32_t index = 0, own = 0;
    memset(rounds->windows[size], 0xee, rounds->exchanges[size].window_bytes);
    for (int32_t other = 0; other < rank; other++)
        own += share_a_group(level, rank, other);
    memset(rounds->windows[size] + (size_t)own * part, rank, part);
    COH_TRY(coh_round_run(rounds, size));
    for (int32_t other = 0; other < RANKS; other++) {
        if (!share_a_group(level, rank, other))
            continue;
        for (size_t i = 0; i < part; i++)
            if (rounds->windows[size][(size_t)index * part + i] != other)
                return wrong("a part is not its rank's");
        index++;
    }
    return index == rounds->members ? COH_OK : wrong("a group has other members");
}

static coh_status check_levels(coh_level_rounds *all, int32_t rank)
{
    static const int32_t members[COH_LEVEL_COUNT] = { 0, PAIR, NODE, RANKS / NODE };
    static const uint64_t least[COH_ROUND_SIZES] = { 64, 64 << 10, 1 << 20, 8 << 20 };
    for (int level = COH_LEVEL_PAIR; level < COH_LEVEL_COUNT; level++) {
        const coh_rounds *rounds = &all->of[level];
        if (rounds->members != members[level])
            return wrong("the level has groups of another size");
        for (int size = 0; size < COH_ROUND_SIZES; size++) {
            const uint64_t bytes = coh_round_bytes(rounds, size);
            if (bytes < least[size] || bytes > least[size] + 64 * RANKS)
                return wrong("a round has other bytes");
            COH_TRY(check_round(rounds, level, size, rank));
        }
    }
    return COH_OK;
}

static coh_status exchange(coh_world *world)
{
    const coh_rounds_place main_memory = { 0 };
    coh_level_rounds all;
    coh_status status = coh_level_rounds_open(world, &main_memory, &all);
    if (status == COH_OK)
        status = check_levels(&all, coh_world_rank(world));
    return coh_level_rounds_close(&all, world, status);
}

static void the_ranks_of_a_level_exchange(void **state)
{
    (void)state;
    run(RANKS, PAIR, NODE, exchange, COH_OK);
}

/* The memory of a place is enough for the windows of any world. */
static coh_status use_a_place(coh_world *world)
{
    static char memory[4][256 << 20];
    const coh_rounds_place place = { .base = memory[coh_world_rank(world)] };
    coh_level_rounds all;
    if (coh_level_rounds_bytes() > sizeof(memory[0]))
        return wrong("the messages take more memory than the test has");
    coh_status status = coh_level_rounds_open(world, &place, &all);
    for (int level = COH_LEVEL_PAIR; level < COH_LEVEL_COUNT && status == COH_OK; level++)
        status = all.of[level].members > 1 ? coh_round_run(&all.of[level], COH_ROUND_BULK) : COH_OK;
    if (status == COH_OK && (all.used_bytes == 0 || all.used_bytes > coh_level_rounds_bytes()))
        status = wrong("the windows take more than the place has");
    return coh_level_rounds_close(&all, world, status);
}

static void messages_lie_where_they_are_put(void **state)
{
    (void)state;
    run(4, 2, 4, use_a_place, COH_OK);
}

static coh_status fail_on_one(coh_world *world)
{
    const coh_rounds_place main_memory = { 0 };
    coh_level_rounds all;
    coh_link_profile link;
    coh_status status = coh_level_rounds_open(world, &main_memory, &all);
    if (status == COH_OK)
        status = coh_world_rank(world) == 3
                     ? coh_fail(COH_ERR_IO, "the third does not go on")
                     : coh_rounds_measure(&all.of[COH_LEVEL_NODE], 1000, 3, &link);
    return coh_level_rounds_close(&all, world, status);
}

static void a_failure_of_one_ends_all(void **state)
{
    (void)state;
    run(RANKS, PAIR, NODE, fail_on_one, COH_ERR_IO);
}

/* ---- what is made of them ---- */

static int is_measured(double bytes_per_s, double latency_s)
{
    return bytes_per_s > 0 && latency_s > 0;
}

static coh_status measure(coh_world *world)
{
    coh_profile_summary found = { .struct_bytes = sizeof(found) };
    coh_measure_options options;
    coh_profile *profile;
    const int has_pairs = coh_world_level_ranks(world, COH_LEVEL_PAIR) > 1;
    coh_measure_options_init(&options);
    options.thread_count = 1;
    options.quick = 1;
    options.world = world;
    COH_TRY(coh_profile_measure(&options, NULL, &profile));
    coh_status status = coh_profile_summarize(profile, &found);
    if (status == COH_OK && (!is_measured(found.comm0_bytes_per_s, found.comm0_latency_s) ||
                             found.comm1_bytes_per_s != 0))
        status = wrong("one node has the link comm0, and no comm1");
    if (status == COH_OK &&
        (is_measured(found.pair_bytes_per_s, found.pair_latency_s) != has_pairs ||
         found.pair_ranks != (has_pairs ? PAIR : 0) || found.node_ranks != 0))
        status = wrong("the profile has other pairs than the world");
    coh_profile_destroy(profile);
    return status;
}

static void a_profile_has_the_link_of_a_pair(void **state)
{
    (void)state;
    run(4, PAIR, 4, measure, COH_OK);
}

/* The subjects in their order, by rank 0's findings. */
static coh_status examine(coh_world *world)
{
    static const char *const subjects[] = { "launcher",      "transport",     "levels",
                                            "within a pair", "within a node", "between nodes" };
    coh_finding findings[8];
    size_t count;
    COH_TRY(coh_machine_examine_world(world, findings, 8, &count));
    if (count != 6)
        return wrong("another number of findings");
    for (size_t i = 0; i < count; i++)
        if (strcmp(findings[i].subject, subjects[i]) != 0)
            return wrong(findings[i].subject);
    if (strcmp(findings[2].found, "2 nodes of 4 ranks, in pairs of 2") != 0)
        return wrong(findings[2].found);
    return strstr(findings[5].found, "all groups of 2") != NULL ? COH_OK : wrong(findings[5].found);
}

static void a_world_is_examined(void **state)
{
    (void)state;
    run(RANKS, PAIR, NODE, examine, COH_OK);
}

/* Ranks of one process have their processors in common, so there are no pairs. */
static coh_status find_pairs(coh_world *world)
{
    int32_t pair_ranks = 0;
    COH_TRY(coh_world_find_pairs(world, NULL, &pair_ranks));
    COH_TRY(coh_world_set_pair_ranks(world, pair_ranks));
    return pair_ranks == 1 ? COH_OK : wrong("there are no pairs here");
}

static coh_status name_no_device(coh_world *world)
{
    int32_t pair_ranks;
    return coh_world_find_pairs(world, coh_world_rank(world) == 1 ? "tpu" : "host", &pair_ranks);
}

static void pairs_are_looked_for_on_a_device(void **state)
{
    (void)state;
    run(4, 0, 4, find_pairs, COH_OK);
    run(4, 0, 4, name_no_device, COH_ERR_ARGUMENT);
}

/* With an argument only the test that measures all of a machine. */
int main(int argc, char **argv)
{
    (void)argv;
    const struct CMUnitTest measured[] = { cmocka_unit_test(a_profile_has_the_link_of_a_pair) };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_ranks_of_a_level_exchange),
        cmocka_unit_test(messages_lie_where_they_are_put),
        cmocka_unit_test(a_failure_of_one_ends_all),
        cmocka_unit_test(a_world_is_examined),
        cmocka_unit_test(pairs_are_looked_for_on_a_device),
    };
    if (argc > 1)
        return cmocka_run_group_tests_name("measured", measured, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
