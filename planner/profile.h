/* profile.h - facts of a machine that the simulator prices lines with. The built-in one is a small,
 * rough set of constants per class of machine; measuring it is the work of a later command. */
#ifndef COH_PLANNER_PROFILE_H
#define COH_PLANNER_PROFILE_H

#include "memory/tier.h"

typedef struct coh_link_profile {
    uint64_t latency_ns;
    double bytes_per_s;
    double
        core_demand; /* cores kept busy while the link is: copies need one, disk DMA nearly none */
    uint32_t depth;  /* lines in flight */
} coh_link_profile;

typedef struct coh_profile {
    char name[64];
    double flops_per_s;                    /* matmul in f32, all threads */
    double bf16_flops_per_s;               /* of lines that work on bf16 tensors */
    double memory_bytes_per_s;             /* streaming passes, all threads */
    uint64_t line_ns;                      /* cost of an empty compute line */
    double cores;                          /* shared by compute threads and link demands */
    double compute_core_demand;            /* = threads */
    coh_link_profile link[COH_LANE_COUNT]; /* H2D, D2H, READ, WRITE */
    /* What READ and WRITE get together when both run, less than the sum of their rates: one drive.
     * 0: they do not share. */
    double drive_bytes_per_s;
} coh_profile;

/* The built-in profile for `thread_count` threads. bf16_is_fast: this CPU multiplies bf16 in
 * hardware; else bf16 tensors are widened and cost what f32 does. link_bytes_per_s throttles the
 * emulated far tier's links (0: memory speed). A pure function of its arguments: the disk is taken
 * to be a drive behind O_DIRECT, the cores as many as threads. */
void coh_profile_builtin(int thread_count, int bf16_is_fast, double link_bytes_per_s,
                         coh_profile *out_profile);

#endif
