/* The built-in profile and small helpers of profiles. The idea: rough constants of one server
 * class, scaled by threads, so that planning works without a measurement. The figures and their
 * units are in profile.h; a measured profile replaces them. */
#include "planner/profile.h"

#include <stdio.h>
#include <string.h>

/* Matmul on one core of an AVX-512 server (Zen 4 at 3.7 GHz: 100 of a peak of 118 GFLOP/s in f32,
 * 215 of 236 with AVX512_BF16). */
#define CORE_FLOPS_PER_S      100e9
#define CORE_BF16_FLOPS_PER_S 215e9
/* A streaming pass per core (14 to 18 GB/s there), and the limit at which sockets of this class
 * saturate. */
#define CORE_MEMORY_BYTES_PER_S 15e9
#define MEMORY_BYTES_PER_S_MOST 100e9
/* RAM to RAM by one core: the emulated far tier's links. */
#define COPY_BYTES_PER_S 4e9
#define COPY_CORES       1.0
/* A virtual NVMe drive with O_DIRECT and 32 MiB in flight per port (offload/store_base.h): reads
 * 1.7 to 2.6 GB/s, writes 3.8 to 5.5, both at once 2.6 to 3.9 together; the lower ends are used
 * here. The bytes arrive by DMA; cores submit and hash: 0.04 s for 1 GB. */
#define READ_BYTES_PER_S  1.8e9
#define WRITE_BYTES_PER_S 3.0e9
#define DRIVE_BYTES_PER_S 2.6e9
#define DRIVE_CORES       0.05

void coh_profile_init(coh_profile *out_profile)
{
    *out_profile = (coh_profile){ .memlock_bytes = UINT64_MAX, .cgroup_bytes = UINT64_MAX };
    for (int i = 0; i < COH_LANE_COUNT; i++)
        for (int j = 0; j < COH_LANE_COUNT; j++)
            out_profile->contention[i][j] = 1;
}

/* Sets a link. There are as many cores as threads: while a link keeps `cores` of them busy, the
 * link and the compute lane share the cores in proportion to their demand. */
static void link_set(coh_profile *profile, coh_lane lane, double bytes_per_s, double latency_ns,
                     double cores)
{
    double part = profile->threads / (profile->threads + cores);
    profile->link[lane] = (coh_link_profile){ .latency_ns = coh_figure_of(latency_ns),
                                              .bytes_per_s = coh_figure_of(bytes_per_s),
                                              .depth = coh_profile_usual_depth(lane) };
    profile->contention[COH_LANE_COMPUTE][lane] = part;
    profile->contention[lane][COH_LANE_COMPUTE] = part;
}

coh_figure coh_profile_usual_drive(coh_lane lane)
{
    return coh_figure_of(lane == COH_LANE_WRITE ? WRITE_BYTES_PER_S : READ_BYTES_PER_S);
}

void coh_profile_builtin(int thread_count, int bf16_is_fast, double link_bytes_per_s,
                         coh_profile *out_profile)
{
    double threads = thread_count < 1 ? 1 : thread_count;
    double memory = threads * CORE_MEMORY_BYTES_PER_S;
    double bf16 = bf16_is_fast ? CORE_BF16_FLOPS_PER_S : CORE_FLOPS_PER_S;
    coh_profile_init(out_profile);
    snprintf(out_profile->name, sizeof(out_profile->name), "built-in, %d thread%s", (int)threads,
             threads > 1 ? "s" : "");
    out_profile->threads = (int32_t)threads;
    out_profile->flops_per_s[COH_ROOF_F32] = coh_figure_of(threads * CORE_FLOPS_PER_S);
    out_profile->flops_per_s[COH_ROOF_BF16] = coh_figure_of(threads * bf16);
    out_profile->memory_bytes_per_s =
        coh_figure_of(memory < MEMORY_BYTES_PER_S_MOST ? memory : MEMORY_BYTES_PER_S_MOST);
    out_profile->instruction_ns = coh_figure_of(5000); /* counters, waking the pool */
    link_set(out_profile, COH_LANE_H2D, COPY_BYTES_PER_S, 5000, COPY_CORES);
    link_set(out_profile, COH_LANE_D2H, COPY_BYTES_PER_S, 5000, COPY_CORES);
    coh_profile_share_cores(out_profile);
    coh_profile_throttle(out_profile, link_bytes_per_s);
    link_set(out_profile, COH_LANE_READ, READ_BYTES_PER_S, 150000, DRIVE_CORES);
    link_set(out_profile, COH_LANE_WRITE, WRITE_BYTES_PER_S, 150000, DRIVE_CORES);
    double both = DRIVE_BYTES_PER_S / (READ_BYTES_PER_S + WRITE_BYTES_PER_S);
    out_profile->contention[COH_LANE_READ][COH_LANE_WRITE] = both;
    out_profile->contention[COH_LANE_WRITE][COH_LANE_READ] = both;
}

/* Sets the contention in both directions, if neither is known. */
static void share_with_host(coh_profile *profile, coh_lane lane, double part)
{
    double *slowed = &profile->contention[lane][COH_LANE_HOST];
    double *slows = &profile->contention[COH_LANE_HOST][lane];
    if (*slowed >= 1 && *slows >= 1 && part < 1)
        *slowed = *slows = part;
}

void coh_profile_share_cores(coh_profile *profile)
{
    double threads = profile->threads < 1 ? 1 : profile->threads;
    if (profile->device_kind != COH_DEVICE_HOST)
        return;
    share_with_host(profile, COH_LANE_COMPUTE, threads / (threads + 1));
    share_with_host(profile, COH_LANE_H2D, threads / (1 + COPY_CORES));
    share_with_host(profile, COH_LANE_D2H, threads / (1 + COPY_CORES));
}

/* The lanes that move bytes through host memory beside a GPU, without the drive's. */
static const coh_lane memory_lanes[] = { COH_LANE_HOST, COH_LANE_H2D, COH_LANE_D2H };
enum { MEMORY_LANES = sizeof(memory_lanes) / sizeof(memory_lanes[0]) };

static int has_memory_contention(const coh_profile *profile)
{
    for (int i = 0; i < MEMORY_LANES; i++)
        for (int j = 0; j < MEMORY_LANES; j++)
            if (profile->contention[memory_lanes[i]][memory_lanes[j]] < 1)
                return 1;
    return 0;
}

int coh_profile_shares_memory(const coh_profile *profile)
{
    return profile->source == COH_PROFILE_DATASHEET && profile->device_kind != COH_DEVICE_HOST &&
           profile->host_memory_bytes_per_s.p50 > 0 && !has_memory_contention(profile);
}

void coh_profile_share_memory(coh_profile *profile, double update_part)
{
    const double memory = profile->host_memory_bytes_per_s.p50;
    const double update = profile->host_update_bytes_per_s.p50;
    if (!coh_profile_shares_memory(profile))
        return;
    for (int lane = COH_LANE_H2D; lane <= COH_LANE_WRITE; lane++)
        profile->memory_part[lane] = profile->link[lane].bytes_per_s.p50 / memory;
    profile->memory_part[COH_LANE_HOST] = update_part * (update > 0 ? update / memory : 1);
}

coh_lane coh_profile_priced_lane(const coh_profile *profile, coh_lane lane)
{
    return lane == COH_LANE_COMM1 && !coh_profile_is_link(profile, COH_LANE_COMM1) ? COH_LANE_COMM0
                                                                                   : lane;
}

void coh_profile_speeds(const coh_profile *profile, unsigned busy, double out_speed[COH_LANE_COUNT])
{
    double wanted = 0; /* of the memory's rate: a slowed lane wants less of it */
    coh_lane as[COH_LANE_COUNT];
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        as[lane] = coh_profile_priced_lane(profile, (coh_lane)lane);
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        out_speed[lane] = 1;
        for (int other = 0; other < COH_LANE_COUNT; other++)
            if (other != lane && (busy >> other & 1))
                out_speed[lane] *= profile->contention[as[lane]][as[other]];
        wanted += (busy >> lane & 1) ? profile->memory_part[lane] * out_speed[lane] : 0;
    }
    for (int lane = 0; lane < COH_LANE_COUNT && wanted > 1; lane++)
        if (profile->memory_part[lane] > 0)
            out_speed[lane] /= wanted;
}

int coh_profile_drive_is_assumed(const coh_profile *profile)
{
    for (uint32_t i = 0; i < profile->origin_count; i++)
        if ((strcmp(profile->origins[i].of, "links.read") == 0 ||
             strcmp(profile->origins[i].of, "links.write") == 0) &&
            strncmp(profile->origins[i].text, COH_PROFILE_GIVEN, strlen(COH_PROFILE_GIVEN)) == 0)
            return 0;
    return profile->drive[0] == '\0' && coh_profile_has_drive(profile);
}

static uint64_t times(uint64_t bytes, uint32_t factor)
{
    return bytes > UINT64_MAX / factor ? UINT64_MAX : bytes * factor;
}

int32_t coh_profile_drive_count(const coh_profile *profile)
{
    int32_t count = 1;
    if (profile->drive_count > 0)
        return profile->drive_count;
    for (const char *at = profile->drive; (at = strstr(at, COH_PROFILE_DRIVE_JOIN)) != NULL; at++)
        count++;
    return count;
}

/* What runs found is dropped for the drive, and is not that of this profile. */
static void drop_calibration(coh_profile *profile)
{
    static const coh_opcode opcodes[] = { COH_OP_READ, COH_OP_WRITE, COH_OP_IMPORT, COH_OP_SAVE };
    if (profile->uncalibrated_hash != 0)
        memcpy(profile->calibration, profile->uncalibrated, sizeof(profile->calibration));
    profile->uncalibrated_hash = 0;
    profile->calibrated_runs = 0;
    for (size_t i = 0; i < sizeof(opcodes) / sizeof(opcodes[0]); i++)
        profile->calibration[opcodes[i]] = (coh_calibration){ 0 };
}

/* Transfers of more bytes per second keep more cores busy, as in link_set. */
void coh_profile_stripe(coh_profile *profile, int32_t drive_count)
{
    static const coh_lane lanes[] = { COH_LANE_READ, COH_LANE_WRITE };
    drop_calibration(profile);
    for (int i = 0; i < 2; i++) {
        double *slowed = &profile->contention[COH_LANE_COMPUTE][lanes[i]];
        double *slows = &profile->contention[lanes[i]][COH_LANE_COMPUTE];
        coh_figure_multiply(&profile->link[lanes[i]].bytes_per_s, drive_count);
        coh_figure_multiply(&profile->link[lanes[i]].sustained_bytes_per_s, drive_count);
        *slowed = 1 / (1 + (1 / *slowed - 1) * drive_count);
        *slows = 1 / (1 + (1 / *slows - 1) * drive_count);
    }
    profile->drive_count = drive_count * coh_profile_drive_count(profile);
    profile->drive_endurance_bytes = times(profile->drive_endurance_bytes, (uint32_t)drive_count);
    profile->memory_bytes[COH_TIER_DISK] =
        times(profile->memory_bytes[COH_TIER_DISK], (uint32_t)drive_count);
}

static double least(double a, double b)
{
    return a < b ? a : b;
}

void coh_profile_throttle(coh_profile *profile, double link_bytes_per_s)
{
    static const coh_lane lanes[] = { COH_LANE_H2D, COH_LANE_D2H };
    for (int i = 0; i < 2 && link_bytes_per_s > 0; i++) {
        coh_figure *rate = &profile->link[lanes[i]].bytes_per_s;
        double busy = link_bytes_per_s / rate->p50; /* part of the time spent copying */
        if (!(busy < 1))
            continue;
        profile->calibration[lanes[i] == COH_LANE_H2D ? COH_OP_LOAD : COH_OP_STORE] =
            (coh_calibration){ 0 }; /* measured with the unthrottled link */
        rate->p10 = least(rate->p10, link_bytes_per_s);
        rate->p50 = link_bytes_per_s;
        rate->p90 = least(rate->p90, link_bytes_per_s);
        for (int other = 0; other < COH_LANE_COUNT; other++) {
            double *slowed = &profile->contention[other][lanes[i]];
            double *slows = &profile->contention[lanes[i]][other];
            *slowed = 1 / (1 + (1 / *slowed - 1) * busy);
            *slows = 1 / (1 + (1 / *slows - 1) * busy);
        }
    }
}
