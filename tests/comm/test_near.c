/* The pairs of ranks that are found by links of GPUs and by memory nodes (comm/near.h), of machines
 * that are made up, and against a search over all sizes of blocks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/near.h"

enum { RANKS = 16 };

/* Rank r's GPU is on bus r; `links` are "0-1 2-3"; memory nodes are digits, '-' for none. */
static void describe(const char *links, const char *nodes, int32_t count, coh_near *out)
{
    int a, b, length;
    memset(out, 0, (size_t)count * sizeof(*out));
    for (int32_t i = 0; i < count; i++) {
        out[i].memory_node = nodes[i] == '-' ? -1 : nodes[i] - '0';
        snprintf(out[i].address, sizeof(out[i].address), "0000:%02x:00.0", (unsigned)i & 0xffu);
    }
    for (; sscanf(links, "%d-%d%n", &a, &b, &length) == 2; links += length)
        for (int end = 0; end < 2; end++) {
            coh_near *from = &out[end ? b : a];
            if ((end ? b : a) < count)
                snprintf(from->links[from->link_count++], COH_NEAR_ADDRESS_BYTES, "0000:%02x:00.0",
                         (unsigned)(end ? a : b) & 0xffu);
        }
}

static void pairs_are_those_of_the_links(void **state)
{
    (void)state;
    static const struct {
        const char *links, *nodes;
        int32_t ranks, node_ranks, pair_ranks;
    } cases[] = {
        { "0-1 2-3", "----", 4, 4, 2 },         /* bridges */
        { "0-1 0-1 2-3 2-3", "----", 4, 4, 2 }, /* of several links each */
        { "0-1 2-3", "0000", 4, 4, 2 },         /* whatever the memory nodes are */
        { "0-1 2-3", "0101", 4, 4, 2 },
        { "0-2 1-3", "0011", 4, 4, 1 },         /* not neighbours */
        { "0-1", "----", 4, 4, 1 },             /* not all have one */
        { "0-1", "----", 2, 2, 1 },             /* all of the node: no faster than others */
        { "0-1 1-2 2-3 0-3", "----", 4, 4, 1 }, /* a ring */
        { "0-1 0-2 1-2 3-4 3-5 4-5", "------", 6, 6, 3 },
        { "0-1 0-2 1-2 3-4 4-5", "------", 6, 6, 1 },
        { "0-99 1-99 2-99 3-99", "0011", 4, 4, 1 }, /* a switch */
        { "0-1 2-3 0-99", "----", 4, 4, 2 },        /* and one to another machine */
        { "", "0011", 4, 4, 2 },                    /* memory nodes */
        { "", "00001111", 8, 8, 4 },
        { "", "0101", 4, 4, 1 },
        { "", "0000", 4, 4, 1 },
        { "", "----", 4, 4, 1 },
        { "", "001-", 4, 4, 1 },
        { "", "00110011", 8, 4, 2 }, /* two machines */
        { "", "00110101", 8, 4, 1 }, /* that are not alike */
        { "0-1 2-3 4-5 6-7", "--------", 8, 4, 2 },
        { "0-1 2-3 4-5", "--------", 8, 4, 1 },
        { "", "0", 1, 1, 1 },
        { "", "01", 2, 1, 1 },
        { "", "000111", 6, 6, 3 },
        { "", "00011", 5, 5, 1 },
        { "", "001122", 6, 6, 2 },
    };
    coh_near near[RANKS];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        describe(cases[i].links, cases[i].nodes, cases[i].ranks, near);
        const int32_t found = coh_near_pair_ranks(near, cases[i].ranks, cases[i].node_ranks);
        if (found != cases[i].pair_ranks)
            fail_msg("case %zu: pairs of %d", i, (int)found);
    }
}

/* A link that only one end reports is none. */
static void both_ends_must_know_a_link(void **state)
{
    (void)state;
    coh_near near[4];
    describe("0-1 2-3", "----", 4, near);
    near[3].link_count = 0;
    assert_int_equal(coh_near_pair_ranks(near, 4, 4), 1);
}

/* Blocks by the definition: in memory nodes of up to three, of every machine of up to 8 ranks. */
static int32_t by_definition(const int *nodes, int32_t count)
{
    for (int32_t pair = 2; pair < count; pair++) {
        int fits = count % pair == 0;
        for (int32_t a = 0; a < count; a++)
            for (int32_t b = 0; b < count; b++)
                fits &= (nodes[a] == nodes[b]) == (a / pair == b / pair);
        if (fits)
            return pair;
    }
    return 1;
}

static void memory_nodes_give_the_pairs_of_the_definition(void **state)
{
    (void)state;
    coh_near near[8];
    int found_pairs = 0;
    for (int32_t count = 1; count <= 8; count++)
        for (int code = 0; code < 6561; code++) { /* 3^8 */
            int nodes[8], rest = code;
            memset(near, 0, sizeof(near));
            for (int32_t i = 0; i < count; i++, rest /= 3)
                near[i].memory_node = nodes[i] = rest % 3;
            const int32_t expected = by_definition(nodes, count);
            assert_int_equal(coh_near_pair_ranks(near, count, count), expected);
            found_pairs += expected > 1;
        }
    assert_true(found_pairs > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_are_those_of_the_links),
        cmocka_unit_test(both_ends_must_know_a_link),
        cmocka_unit_test(memory_nodes_give_the_pairs_of_the_definition),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
