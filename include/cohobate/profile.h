/* profile.h - what a machine can do, as the planner prices it: rates, links, how lanes slow one
 * another, room, and how long operators take.
 *
 *     datasheet's name, or a file ──> coh_profile ──> coh_plan_options.profile ──> a plan's times
 *
 * A profile is measured, of a datasheet, or the rough constants that are built in. It prices plans
 * and chooses among them; it never changes a bit of what a run computes. What a datasheet or an
 * overridden entry prices is a *what-if*: peaks that no run reaches.
 *
 * A file is JSON in one form, read strictly (docs/planning.md says what stands in it). */
#ifndef COHOBATE_PROFILE_H
#define COHOBATE_PROFILE_H

#include <stddef.h>
#include <stdint.h>

#include "cohobate/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct coh_profile coh_profile;

/* `what`: the name of a shipped datasheet or the path of a file, or "built-in", or "built-in-4" (of
 * 4 threads instead of as many as the process has cores); after it entries with commas between that
 * take the place of what stands there:
 *
 *     a100-40g,pcie=2x,host-memory=256GiB        machine.json,disk-read=7GB/s
 *
 * "2x" multiplies; the entries are listed in docs/planning.md. With entries the profile is a
 * what-if. Owns: the caller destroys it.
 * Fails: COH_ERR_ARGUMENT: no such name or file, or an entry that is not one; COH_ERR_CORRUPT,
 * COH_ERR_IO, COH_ERR_MEMORY. */
COH_API coh_status coh_profile_read(const char *what, coh_profile **out_profile);
/* After every plan that was made with it. Accepts NULL. */
COH_API void coh_profile_destroy(coh_profile *profile);

/* Same profile, same bytes. Whole or not at all. Fails: COH_ERR_IO, COH_ERR_MEMORY;
 * COH_ERR_ARGUMENT when the profile is not one that would be read again. */
COH_API coh_status coh_profile_write(const coh_profile *profile, const char *path);

/* Is `name` that of an entry ("pcie")? Fails: COH_ERR_ARGUMENT, with all that there are. */
COH_API coh_status coh_profile_check_entry(const char *name);

/* Shipped datasheets, by name in rising order. NULL beyond the last. */
COH_API const char *coh_profile_shipped(size_t index);

typedef struct coh_profile_summary {
    const char *name, *source, *machine, *date; /* source: "built-in", "datasheet", "measured" */
    int32_t is_gpu;                             /* 0: of a host device */
    int32_t is_what_if;                         /* 1: of a datasheet, or with entries replaced */
    int32_t threads;
    uint64_t fingerprint; /* of the machine it was measured on; 0: of no one machine */
    uint64_t hash;        /* of its canonical bytes */
    double f32_flops_per_s, bf16_flops_per_s, memory_bytes_per_s, host_memory_bytes_per_s;
    double h2d_bytes_per_s, d2h_bytes_per_s, read_bytes_per_s, write_bytes_per_s; /* 0: no link */
    uint64_t device_bytes, host_bytes, disk_bytes;                                /* 0: not known */
    uint32_t operator_count; /* signatures that were measured */
    uint32_t origin_count;
    uint64_t endurance_bytes; /* that the drive may be written; 0: not known */
} coh_profile_summary;
/* Texts live as long as the profile. Fails: COH_ERR_MEMORY. */
COH_API coh_status coh_profile_summarize(const coh_profile *profile,
                                         coh_profile_summary *out_summary);

/* Where a group of figures comes from. */
typedef struct coh_profile_origin_text {
    const char *of; /* "flops_per_s", "links.read", ...: the member of the file */
    const char *text;
    int32_t is_assumed; /* 1: nobody published it; the text says what was assumed and why */
} coh_profile_origin_text;
/* Texts live as long as the profile. Fails: COH_ERR_ARGUMENT when there is no such. */
COH_API coh_status coh_profile_origin_at(const coh_profile *profile, uint32_t index,
                                         coh_profile_origin_text *out_origin);

#ifdef __cplusplus
}
#endif
#endif
