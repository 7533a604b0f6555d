/* near.h - which neighbouring ranks have a faster link than the others of their node: its pairs.
 *
 * The one idea: each rank tells what its GPU, or its processor, is linked with; a pair is a block
 * of neighbours of whom each is linked with each and with no other rank of the node. So a node in
 * which all are alike has no pairs:
 *
 *     bridges         0-1  2-3  |  4-5  6-7     pairs of 2
 *     a switch        no rank's GPU is a peer   no pairs
 *     GPU links 0-2   1-3                       no pairs: they are not neighbours
 *     no GPU links    memory nodes 0 0 1 1      pairs of 2, by PCIe or by memory
 *
 * Pure. Threads: any. */
#ifndef COH_COMM_NEAR_H
#define COH_COMM_NEAR_H

#include <stdint.h>

/* Links of a GPU, by which other GPUs or a switch are reached. */
#define COH_NEAR_LINKS_MOST    32
#define COH_NEAR_ADDRESS_BYTES 20

/* What a rank knows of its place. Ranks gather it as bytes, so zero it first. */
typedef struct coh_near {
    int32_t memory_node;                  /* nearest the GPU, or of all its processors; -1: none */
    int32_t link_count;                   /* active links of the GPU; 0 on the host */
    char address[COH_NEAR_ADDRESS_BYTES]; /* the GPU's PCI address, "0000:3b:00.0"; "": the host */
    char links[COH_NEAR_LINKS_MOST][COH_NEAR_ADDRESS_BYTES]; /* the other ends */
} coh_near;

/* Returns the ranks of a pair, of `rank_count` ranks in nodes of `node_ranks`: less than
 * node_ranks, the same in all nodes; 1: there are no pairs. `near`: in rank order. */
int32_t coh_near_pair_ranks(const coh_near *near, int32_t rank_count, int32_t node_ranks);

#endif
