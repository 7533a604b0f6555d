/* Finds the pairs of ranks from their links. The links of the first node's first rank say how large
 * a pair is; all others have to fit. Read near.h first. */
#include "comm/near.h"

#include <string.h>

/* Is one of the GPU's links with that address? */
static int has_link(const coh_near *from, const coh_near *to)
{
    for (int32_t i = 0; i < from->link_count; i++)
        if (strcmp(from->links[i], to->address) == 0)
            return 1;
    return 0;
}

/* GPUs with links are near by these alone: those of a switch have one way to all others, wherever
 * their memory nodes are. */
static int are_near(const coh_near *a, const coh_near *b)
{
    if (a->link_count > 0 || b->link_count > 0)
        return has_link(a, b) && has_link(b, a);
    return a->memory_node >= 0 && a->memory_node == b->memory_node;
}

/* Are the ranks of a node near exactly where they share a block? */
static int fills(const coh_near *node, int32_t node_ranks, int32_t pair_ranks)
{
    for (int32_t a = 0; a < node_ranks; a++)
        for (int32_t b = 0; b < a; b++)
            if (are_near(&node[a], &node[b]) != (a / pair_ranks == b / pair_ranks))
                return 0;
    return 1;
}

int32_t coh_near_pair_ranks(const coh_near *near, int32_t rank_count, int32_t node_ranks)
{
    int32_t pair = 1;
    while (pair < node_ranks && are_near(&near[0], &near[pair]))
        pair++;
    if (pair == 1 || pair == node_ranks || node_ranks % pair != 0)
        return 1;
    for (int32_t first = 0; first < rank_count; first += node_ranks)
        if (!fills(&near[first], node_ranks, pair))
            return 1;
    return pair;
}
