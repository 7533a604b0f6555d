#include "planner/profile.h"

#include <stdio.h>

/* Matmul on one core of an AVX-512 server (Zen 4 at 3.7 GHz: 100 of 118 at the roof in f32, 215 of
 * 236 with AVX512_BF16). */
#define CORE_FLOPS_PER_S      100e9
#define CORE_BF16_FLOPS_PER_S 215e9
/* A streaming pass, per core (14 to 18 there); and where the sockets of this class level off. */
#define CORE_MEMORY_BYTES_PER_S 15e9
#define MEMORY_BYTES_PER_S_MOST 100e9
/* RAM to RAM by one core: what the emulated far tier's links do. */
#define COPY_BYTES_PER_S 4e9

static void links_set(double link_bytes_per_s, coh_profile *profile)
{
    double rate = COPY_BYTES_PER_S;
    if (link_bytes_per_s > 0 && link_bytes_per_s < rate)
        rate = link_bytes_per_s;
    /* A throttled copy sleeps the rest of the time. */
    coh_link_profile link = {
        .latency_ns = 5000, .bytes_per_s = rate, .core_demand = rate / COPY_BYTES_PER_S, .depth = 4
    };
    profile->link[COH_LANE_H2D] = link;
    profile->link[COH_LANE_D2H] = link;
}

/* A virtual NVMe drive with O_DIRECT and 32 MiB in flight per port (offload/store_base.h): reads
 * 1.7 to 2.6 GB/s, writes 3.8 to 5.5, both at once 2.6 to 3.9 together; the lower ends here. The
 * bytes arrive by DMA; cores submit and hash: 0.04 s for 1 GB. */
static void disk_set(coh_profile *profile)
{
    profile->link[COH_LANE_READ] = (coh_link_profile){
        .latency_ns = 150000, .bytes_per_s = 1.8e9, .core_demand = 0.05, .depth = 8
    };
    profile->link[COH_LANE_WRITE] = (coh_link_profile){
        .latency_ns = 150000, .bytes_per_s = 3.0e9, .core_demand = 0.05, .depth = 8
    };
    profile->drive_bytes_per_s = 2.6e9;
}

void coh_profile_builtin(int thread_count, int bf16_is_fast, double link_bytes_per_s,
                         coh_profile *out_profile)
{
    double threads = thread_count < 1 ? 1 : thread_count;
    double memory = threads * CORE_MEMORY_BYTES_PER_S;
    *out_profile = (coh_profile){
        .flops_per_s = threads * CORE_FLOPS_PER_S,
        .bf16_flops_per_s = threads * (bf16_is_fast ? CORE_BF16_FLOPS_PER_S : CORE_FLOPS_PER_S),
        .memory_bytes_per_s = memory < MEMORY_BYTES_PER_S_MOST ? memory : MEMORY_BYTES_PER_S_MOST,
        .line_ns = 5000, /* counters, waking the pool */
        .cores = threads,
        .compute_core_demand = threads,
    };
    links_set(link_bytes_per_s, out_profile);
    disk_set(out_profile);
    snprintf(out_profile->name, sizeof(out_profile->name), "built-in, %d thread%s", (int)threads,
             threads > 1 ? "s" : "");
}
