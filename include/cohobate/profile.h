/* profile.h - describes a machine for the planner: rates, links, capacities, times of operators,
 * and how much lanes slow one another.
 *
 *     datasheet's name, or a file ──> coh_profile ──> coh_plan_options.profile ──> a plan's times
 *
 * A profile is measured (measure.h), comes from a datasheet, or is the rough built-in constants. It
 * prices plans and so decides among them, but never changes the bits of a run. A profile from a
 * datasheet or with overridden entries is a *what-if*: it assumes peak rates that no run reaches.
 *
 * A profile file is JSON in one canonical form, read strictly (docs/planning.md describes it).
 * Threads: any thread may read a profile. */
#ifndef COHOBATE_PROFILE_H
#define COHOBATE_PROFILE_H

#include <stddef.h>
#include <stdint.h>

#include "cohobate/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A machine's figures. */
typedef struct coh_profile coh_profile;

/* Opens a profile. `what` is the name of a shipped datasheet, the path of a file, "built-in", or
 * "built-in-4" (for 4 threads; without a number, as many as this process has cores). It may be
 * followed by entries, separated by commas, that override the profile's:
 *
 *     a100-40g,pcie=2x,host-memory=256GiB        machine.json,disk-read=7GB/s
 *
 * "2x" multiplies, "topology=frontier" takes the links between ranks from another profile;
 * docs/planning.md lists the entries. A profile with such entries is a what-if.
 * Owns: the caller destroys it.
 * Fails: COH_ERR_ARGUMENT (no such name or file, or an unknown entry); COH_ERR_CORRUPT, COH_ERR_IO,
 * COH_ERR_MEMORY. */
COH_API coh_status coh_profile_read(const char *what, coh_profile **out_profile);
/* Call it after destroying every plan made with the profile. Accepts NULL. */
COH_API void coh_profile_destroy(coh_profile *profile);

/* Writes the profile to `path`, whole or not at all. Equal profiles give equal bytes. An existing
 * file is replaced only if it is empty or a profile.
 * Fails: COH_ERR_IO, COH_ERR_MEMORY; COH_ERR_ARGUMENT if coh_profile_read would refuse it, or the
 * file at `path` is another one. */
COH_API coh_status coh_profile_write(const coh_profile *profile, const char *path);

/* Checks that `name` is an entry's name ("pcie"). Fails: COH_ERR_ARGUMENT, listing all names. */
COH_API coh_status coh_profile_check_entry(const char *name);

/* Returns the name of shipped datasheet `index`, in alphabetical order. NULL beyond the last. */
COH_API const char *coh_profile_shipped(size_t index);

/* Facts about a profile. `threads` is the number it was measured with; `f32_flops_per_s` and
 * `bf16_flops_per_s` are the rates of matrix products, `memory_bytes_per_s` and
 * `host_memory_bytes_per_s` those of the device's and the host's memory; `origin_count` counts the
 * entries of coh_profile_origin_at. */
typedef struct coh_profile_summary {
    uint32_t struct_bytes;
    const char *name, *source, *machine, *date; /* source: "built-in", "datasheet", "measured" */
    int32_t is_gpu;                             /* 0: a host device */
    int32_t is_what_if; /* 1: from a datasheet, or with overridden entries */
    int32_t threads;
    uint64_t fingerprint; /* of the machine it was measured on; 0: of no particular machine */
    uint64_t hash;        /* of its canonical bytes */
    double f32_flops_per_s, bf16_flops_per_s, memory_bytes_per_s, host_memory_bytes_per_s;
    double h2d_bytes_per_s, d2h_bytes_per_s, read_bytes_per_s, write_bytes_per_s; /* 0: no link */
    uint64_t device_bytes, host_bytes, disk_bytes;                                /* 0: unknown */
    uint32_t operator_count; /* operator signatures that were measured */
    uint32_t origin_count;
    uint64_t endurance_bytes; /* bytes that the drive may be written in its life; 0: unknown */
    /* Exchanges between ranks: within a node, and between nodes; 0: no link. Bytes are those that a
     * rank receives. */
    double comm0_bytes_per_s, comm1_bytes_per_s, comm0_latency_s, comm1_latency_s;
    double pair_bytes_per_s, pair_latency_s; /* within a pair; 0: as within a node */
    int32_t pair_ranks, node_ranks;          /* ranks of a pair, of a node; 0: unknown */
    int32_t host_gpus;                       /* GPUs that share the host; 0: one */
    /* of the host, that host_memory_bytes_per_s is of; 0: an entry gave that rate */
    double host_shares;
    /* The rate that the GPU's links, the drive and updates on the host share; 0: they have what was
     * measured of each pair, or there is no GPU. */
    double shared_host_bytes_per_s;
} coh_profile_summary;
/* Reads the summary; its texts live as long as the profile. Fails: COH_ERR_MEMORY. */
COH_API coh_status coh_profile_summarize(const coh_profile *profile,
                                         coh_profile_summary *out_summary);

/* Source of a group of figures. `text` is a sentence. */
typedef struct coh_profile_origin_text {
    const char *of; /* "flops_per_s", "links.read", ...: the member in the file */
    const char *text;
    int32_t is_assumed; /* 1: not published; the text says what was assumed and why */
} coh_profile_origin_text;
/* Reads origin `index`; its texts live as long as the profile. Fails: COH_ERR_ARGUMENT: there is
 * none. */
COH_API coh_status coh_profile_origin_at(const coh_profile *profile, uint32_t index,
                                         coh_profile_origin_text *out_origin);

#ifdef __cplusplus
}
#endif
#endif
