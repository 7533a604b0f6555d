/* profile.h - facts of a machine that the planner prices instructions with: compute rates, link
 * rates, how lanes slow one another, memory sizes. Plain data from one of three sources: rough
 * built-in constants, a datasheet, a measurement. */
#ifndef COH_PLANNER_PROFILE_H
#define COH_PLANNER_PROFILE_H

#include "base/lanes.h"
#include "cohobate/fold_shape.h"
#include "cohobate/model.h"
#include "cohobate/profile.h"
#include "memory/tier.h"
#include "planner/program.h"

typedef enum coh_profile_source {
    COH_PROFILE_BUILT_IN,
    COH_PROFILE_DATASHEET,
    COH_PROFILE_MEASURED
} coh_profile_source;

/* A measured figure: median and spread. From a datasheet: all three equal, samples 0. */
typedef struct coh_figure {
    double p10, p50, p90;
    uint32_t samples;
} coh_figure;

/* Bounds of rates per second, and the least part of its speed that contention leaves to a lane.
 * Files and entries beyond them are rejected. */
#define COH_PROFILE_RATE_LEAST 1e3
#define COH_PROFILE_RATE_MOST  1e30
#define COH_PROFILE_PART_LEAST 1e-2

/* A number without a spread. */
static inline coh_figure coh_figure_of(double value)
{
    return (coh_figure){ .p10 = value, .p50 = value, .p90 = value };
}

static inline void coh_figure_multiply(coh_figure *figure, double factor)
{
    figure->p10 *= factor;
    figure->p50 *= factor;
    figure->p90 *= factor;
}

/* One link in one direction, running alone. No link: bytes_per_s.p50 is 0. */
typedef struct coh_link_profile {
    coh_figure latency_ns, bytes_per_s; /* at `depth` instructions in flight */
    /* a drive's writes once its cache is full; p50 0: same as bytes_per_s */
    coh_figure sustained_bytes_per_s;
    uint32_t depth; /* instructions in flight, 1 to 64; 0 if there is no link */
    /* Compute time that a transfer costs, since cores copy, hash and submit: the work of the
     * compute lane grows by interference_ns + bytes * interference_ns_per_byte. 0: nothing, or
     * unknown. */
    double interference_ns, interference_ns_per_byte;
} coh_link_profile;

/* Rates of matrix products by operand type. */
typedef enum coh_roof { COH_ROOF_F32, COH_ROOF_BF16, COH_ROOF_COUNT } coh_roof;

/* The time of one call. Its size is its work: max(flops / rate, bytes / memory rate) at the
 * profile's own roofs, so one number covers batch, tokens and row ranges alike. */
typedef struct coh_operator_sample {
    double flops, bytes;
    coh_figure seconds;
} coh_operator_sample;

/* The kernel times of operators with one signature, without instruction_ns, which every instruction
 * adds. Seconds are piecewise affine in work: from 0 at no work through the samples; above the
 * last sample the rate is constant. */
typedef struct coh_operator_times {
    char kind[48];   /* "linear"; without a kind: "update", "norm", "add", ... */
    coh_dtype dtype; /* BF16: some tensors are */
    uint8_t phase;   /* coh_phase */
    uint8_t lane;    /* COH_LANE_COMPUTE or COH_LANE_HOST */
    /* coh_operator_signature; for a backward in another form coh_backward_signature; 0: not an
     * operator of a graph (update, norm) */
    uint64_t signature;
    char shape[96]; /* for people: "[.,256,768] [3072,768]" */
    coh_operator_sample *samples;
    uint32_t sample_count; /* by rising work, at least one */
} coh_operator_times;

/* Result of earlier runs on this machine: measured over predicted time of one opcode's
 * instructions. */
typedef struct coh_calibration {
    double factor;
    uint32_t runs;    /* 0: none; the factor is not used */
    double deviation; /* standard deviation of the runs' factors, weighted as in `factor` */
} coh_calibration;

/* The text of an origin begins with this if the figures were given as an entry. */
#define COH_PROFILE_GIVEN "as given: "

/* The source of one group of figures; a datasheet has one for every group. */
typedef struct coh_profile_origin {
    char of[32];        /* the member of the file: "flops_per_s", "links.read" */
    char text[240];     /* title of the source; or what was assumed, and why */
    int32_t is_assumed; /* 1: not published */
} coh_profile_origin;

#define COH_PROFILE_DRIVE_JOIN " + "

/* Links by lane. The last one connects the ranks of a pair, which exchange on the lane COMM0, too:
 * without a rate it is COMM0's (coh_price_link). */
enum { COH_LINK_PAIR = COH_LANE_COUNT, COH_LINK_COUNT };

struct coh_profile {
    char name[64];
    coh_profile_source source;
    char machine[128];    /* CPU or GPU, driver: readable form of the fingerprint */
    uint64_t fingerprint; /* machine, cores, driver, kernel path, build; 0: no particular machine */
    char date[32];
    int32_t device_kind;                    /* coh_device_kind */
    int32_t threads;                        /* that the figures apply to */
    coh_figure flops_per_s[COH_ROOF_COUNT]; /* products, all threads */
    coh_figure memory_bytes_per_s;          /* of the device: streaming passes, all threads */
    coh_figure instruction_ns;              /* an empty compute instruction */
    /* With a GPU: streaming passes in host memory; AdamW, in bytes of memory traffic. 0: none */
    coh_figure host_memory_bytes_per_s, host_update_bytes_per_s;
    int32_t host_gpus; /* that share the host; the figures are of one share. 0: one GPU */
    /* Not in the file: the shares that an entry of more host memory gave, with their rates; 0: 1 */
    double host_shares;
    uint64_t host_share_bytes;             /* likewise: the memory of one share; 0: memory_bytes */
    coh_link_profile link[COH_LINK_COUNT]; /* not of COMPUTE and HOST */
    int32_t pair_ranks, node_ranks;        /* ranks of a pair, of a node; 0: unknown */
    /* Speed of lane i while lane j is busy, relative to its speed alone: 0.01 to 1; 1 if they do
     * not interfere. With several busy lanes the factors multiply. */
    double contention[COH_LANE_COUNT][COH_LANE_COUNT];
    /* Not in the file: of coh_profile_share_memory. The part of the host memory's rate that a lane
     * takes while it runs alone. Busy lanes whose parts, at the speeds that contention leaves them,
     * exceed 1 together share it in proportion. */
    double memory_part[COH_LANE_COUNT];
    uint64_t memory_bytes[COH_TIER_COUNT]; /* device, host, disk; 0: unknown */
    uint64_t memlock_bytes, cgroup_bytes;  /* limits; UINT64_MAX: none */
    uint64_t drive_endurance_bytes;        /* 0: unknown */
    /* that was measured: file system, device, size; several are joined; "": none, or
     * unknown */
    char drive[512];
    int32_t drive_count; /* not in the file: of coh_profile_stripe; 0: as many as `drive` names */
    coh_operator_times *operators;
    uint32_t operator_count;
    coh_calibration calibration[COH_OP_COUNT]; /* by opcode */
    /* Not in the file. The hash before coh_profile_calibrate (0: not called), and the number of
     * runs that it found. */
    uint64_t uncalibrated_hash;
    uint32_t calibrated_runs;
    coh_calibration uncalibrated[COH_OP_COUNT]; /* `calibration` before that */
    coh_profile_origin *origins;
    uint32_t origin_count;
};

/* The work of an instruction: seconds at the profile's own roofs. */
static inline double coh_profile_work(const coh_profile *profile, int is_bf16, double flops,
                                      double bytes)
{
    const double rate = profile->flops_per_s[is_bf16 ? COH_ROOF_BF16 : COH_ROOF_F32].p50;
    const double memory = profile->memory_bytes_per_s.p50;
    const double compute_s = rate > 0 ? flops / rate : 0,
                 memory_s = memory > 0 ? bytes / memory : 0;
    return compute_s > memory_s ? compute_s : memory_s;
}

/* The compute time in ns that a transfer of this many bytes costs. */
static inline double coh_link_interference_ns(const coh_link_profile *link, uint64_t bytes)
{
    return link->interference_ns + (double)bytes * link->interference_ns_per_byte;
}

/* Returns 1 if predictions are hypothetical: figures of a datasheet, or entries given by hand. */
static inline int coh_profile_is_what_if(const coh_profile *profile)
{
    return profile->source == COH_PROFILE_DATASHEET || profile->origin_count > 0;
}

/* Releases operators and origins; accepts a zeroed struct. */
void coh_profile_fini(coh_profile *profile);
void coh_profile_drop_operators(coh_profile *profile);

/* Fills an empty profile: no rate, no link, no limit, no contention. */
void coh_profile_init(coh_profile *out_profile);

/* Returns 1 if the lane moves bytes over a link; every other lane computes. */
static inline int coh_profile_is_link(const coh_profile *profile, coh_lane lane)
{
    return lane != COH_LANE_COMPUTE && profile->link[lane].bytes_per_s.p50 > 0;
}

/* Returns the ranks of a pair; 1: a rank has no pair. */
static inline int32_t coh_profile_pair_ranks(const coh_profile *profile)
{
    return profile->pair_ranks > 0 ? profile->pair_ranks : 1;
}

/* Returns 1 if the profile has rates of a drive, so that a plan may use one. */
static inline int coh_profile_has_drive(const coh_profile *profile)
{
    return coh_profile_is_link(profile, COH_LANE_READ) &&
           coh_profile_is_link(profile, COH_LANE_WRITE);
}

/* Instructions in flight on an unmeasured link: exchanges between ranks 1, copies 4, a drive 8. */
static inline uint32_t coh_profile_usual_depth(coh_lane lane)
{
    if (coh_lane_is_comm(lane))
        return 1;
    return lane == COH_LANE_H2D || lane == COH_LANE_D2H ? 4 : 8;
}

/* The assumed figures of an unmeasured drive, as in the built-in profile. Checkpoints go to a
 * drive, even if the profile has none. */
coh_figure coh_profile_usual_drive(coh_lane lane);

/* Fills the built-in profile for `thread_count` threads. bf16_is_fast: this CPU multiplies bf16 in
 * hardware; otherwise bf16 tensors are widened and cost as much as f32. link_bytes_per_s: see
 * coh_profile_throttle. Depends only on its arguments: the disk is assumed to be a drive behind
 * O_DIRECT, with as many cores as threads. */
void coh_profile_builtin(int thread_count, int bf16_is_fast, double link_bytes_per_s,
                         coh_profile *out_profile);

/* On a host device the host lane shares the cores with the compute lane: sets its unmeasured
 * contention with other lanes to their share of the cores. With a GPU: does nothing. */
void coh_profile_share_cores(coh_profile *profile);

/* Returns 1 if lanes share the rate of host memory: of a GPU's datasheet, which has no contention
 * of these lanes. What is measured has. */
int coh_profile_shares_memory(const coh_profile *profile);

/* Lets the lanes of a GPU's datasheet that move bytes through host memory share its rate: the links
 * to the GPU, the drive, and the host lane, which moves bytes in `update_part` of its time. Does
 * nothing if they do not share it. */
void coh_profile_share_memory(coh_profile *profile, double update_part);

/* Returns the lane whose figures price `lane`: exchanges between nodes have those within a node if
 * the profile has no rate of theirs, since none is faster than the links inside it. */
coh_lane coh_profile_priced_lane(const coh_profile *profile, coh_lane lane);

/* Computes the speed of each lane, relative to its speed alone, while the lanes of the set `busy`
 * (bit i: lane i) are. */
void coh_profile_speeds(const coh_profile *profile, unsigned busy,
                        double out_speed[COH_LANE_COUNT]);

/* Returns 1 if the profile's drive is assumed: not measured, nor given as entries. */
int coh_profile_drive_is_assumed(const coh_profile *profile);
/* Puts this many such drives in the place of one: rates, endurance, and room on disk. */
void coh_profile_stripe(coh_profile *profile, int32_t drive_count);
/* Returns the number of drives behind the links READ and WRITE: a checkpoint is on one of them. */
int32_t coh_profile_drive_count(const coh_profile *profile);

/* Limits the emulated far tier's links, H2D and D2H, to this many bytes per second (0: no limit). A
 * throttled copy sleeps the rest of the time and slows other lanes proportionally less. */
void coh_profile_throttle(coh_profile *profile, double link_bytes_per_s);

#endif
