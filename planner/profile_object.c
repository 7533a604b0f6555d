/* The public interface of profiles (cohobate/profile.h): opens them by name or path, writes them,
 * and reports their figures. Their text is in profile_file.c. */
#include "cohobate/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/struct_bytes.h"
#include "cohobate/machine.h"
#include "cohobate/plan.h"
#include "cohobate/terms.h"
#include "planner/profile_file.h"

void coh_profile_drop_operators(coh_profile *profile)
{
    for (uint32_t i = 0; i < profile->operator_count; i++)
        coh_free(profile->operators[i].samples);
    coh_free(profile->operators);
    profile->operators = NULL;
    profile->operator_count = 0;
}

void coh_profile_fini(coh_profile *profile)
{
    coh_profile_drop_operators(profile);
    coh_free(profile->origins);
    *profile = (coh_profile){ 0 };
}

void coh_profile_destroy(coh_profile *profile)
{
    if (profile == NULL)
        return;
    coh_profile_fini(profile);
    coh_free(profile);
}

/* ---- reading ---- */

static const char *shipped_text(const char *name)
{
    for (const coh_shipped_profile *s = coh_shipped_profiles; s->name; s++)
        if (strcmp(s->name, name) == 0)
            return s->text;
    return NULL;
}

const char *coh_profile_shipped(size_t index)
{
    for (const coh_shipped_profile *s = coh_shipped_profiles; s->name; s++)
        if (index-- == 0)
            return s->name;
    return NULL;
}

static coh_status read_file(const char *path, coh_profile *profile)
{
    char *text = NULL;
    size_t bytes = 0;
    COH_TRY(coh_file_read_whole(path, COH_PROFILE_BYTES_MOST, &text, &bytes));
    coh_status status = coh_profile_parse(text, bytes, profile);
    coh_free(text);
    return status == COH_OK ? COH_OK : coh_fail_prefix(status, "%s", path);
}

static const char built_in[] = "built-in";

static coh_status no_such(const char *name)
{
    char known[512] = "";
    coh_nearest nearest = { .word = name };
    size_t used = 0;
    for (const coh_shipped_profile *s = coh_shipped_profiles; s->name && used < sizeof(known); s++)
        used +=
            (size_t)snprintf(known + used, sizeof(known) - used, "%s%s", used ? ", " : "", s->name);
    for (const coh_shipped_profile *s = coh_shipped_profiles; s->name; s++)
        coh_nearest_offer(&nearest, s->name);
    coh_nearest_offer(&nearest, built_in);
    return coh_fail(
        COH_ERR_ARGUMENT,
        "'%.200s' is neither a file nor a shipped profile: %s%s%s a path, built-in, or one of %s",
        name, nearest.name != NULL ? "is " : "", nearest.name != NULL ? nearest.name : "",
        nearest.name != NULL ? " meant? Give" : "give", known);
}

/* Recognises "built-in" and "built-in-4": the constants, for this number of threads. */
static int read_builtin(const char *name, coh_profile *profile)
{
    const size_t length = sizeof(built_in) - 1;
    coh_plan_options machine;
    char *end = NULL;
    if (strncmp(name, built_in, length) != 0)
        return 0;
    long threads =
        name[length] == '-' ? strtol(name + length + 1, &end, 10) : (long)coh_machine_core_count();
    if ((name[length] == '-' && (end == name + length + 1 || *end != '\0')) ||
        (name[length] != '-' && name[length] != '\0') || threads < 1 || threads > 1024)
        return 0;
    coh_plan_options_init(&machine);
    coh_profile_builtin((int)threads, machine.bf16_is_fast, 0, profile);
    return 1;
}

coh_status coh_profile_read_named(const char *name, coh_profile *profile)
{
    if (read_builtin(name, profile))
        return COH_OK;
    const char *text = shipped_text(name);
    if (text)
        return coh_profile_parse(text, strlen(text), profile);
    return access(name, F_OK) == 0 ? read_file(name, profile) : no_such(name);
}

coh_status coh_profile_read(const char *what, coh_profile **out_profile)
{
    COH_NEED(what);
    COH_NEED(out_profile);
    char *name = NULL;
    coh_profile *profile = NULL;
    *out_profile = NULL;
    COH_TRY(coh_alloc_text(what, &name));
    /* a path may contain commas */
    char *comma = access(what, F_OK) == 0 ? NULL : strchr(name, ',');
    if (comma)
        *comma = '\0';
    coh_status status = COH_ALLOC(1, &profile);
    if (status == COH_OK)
        status = coh_profile_read_named(name, profile);
    if (status == COH_OK && comma)
        status = coh_profile_override(profile, comma + 1);
    coh_free(name);
    if (status != COH_OK) {
        coh_profile_destroy(profile);
        return status;
    }
    *out_profile = profile;
    return COH_OK;
}

/* ---- writing ---- */

coh_status coh_profile_write(const coh_profile *profile, const char *path)
{
    COH_NEED(profile);
    COH_NEED_PATH(path);
    coh_text text = { 0 };
    coh_profile again = { 0 };
    COH_TRY(coh_file_check_own(path, "{", "\"" COH_PROFILE_FORMAT "\"", "profile"));
    coh_status status = coh_profile_add_text(profile, &text);
    if (status == COH_OK)
        status = coh_profile_parse(text.data, text.bytes, &again);
    if (status == COH_ERR_CORRUPT) /* of text we wrote: the caller's figures are invalid */
        status =
            coh_fail_prefix(COH_ERR_ARGUMENT, "the profile %s cannot be written", profile->name);
    if (status == COH_OK)
        status = coh_file_write_whole(path, text.data, text.bytes);
    coh_profile_fini(&again);
    coh_text_fini(&text);
    return status;
}

/* ---- reporting ---- */

coh_status coh_profile_summarize(const coh_profile *p, coh_profile_summary *out_summary)
{
    COH_NEED(p);
    COH_NEED_STRUCT(coh_profile_summary, out_summary);
    coh_profile_summary summary = {
        .name = p->name,
        .source = coh_profile_source_names[p->source],
        .machine = p->machine,
        .date = p->date,
        .is_gpu = p->device_kind != COH_DEVICE_HOST,
        .is_what_if = coh_profile_is_what_if(p),
        .threads = p->threads,
        .fingerprint = p->fingerprint,
        .f32_flops_per_s = p->flops_per_s[COH_ROOF_F32].p50,
        .bf16_flops_per_s = p->flops_per_s[COH_ROOF_BF16].p50,
        .memory_bytes_per_s = p->memory_bytes_per_s.p50,
        .host_memory_bytes_per_s = p->host_memory_bytes_per_s.p50,
        .h2d_bytes_per_s = p->link[COH_LANE_H2D].bytes_per_s.p50,
        .d2h_bytes_per_s = p->link[COH_LANE_D2H].bytes_per_s.p50,
        .read_bytes_per_s = p->link[COH_LANE_READ].bytes_per_s.p50,
        .write_bytes_per_s = p->link[COH_LANE_WRITE].bytes_per_s.p50,
        .device_bytes = p->memory_bytes[COH_TIER_DEVICE],
        /* the memory available to a process */
        .host_bytes = p->memory_bytes[COH_TIER_HOST] < p->cgroup_bytes
                          ? p->memory_bytes[COH_TIER_HOST]
                          : p->cgroup_bytes,
        .disk_bytes = p->memory_bytes[COH_TIER_DISK],
        .operator_count = p->operator_count,
        .origin_count = p->origin_count,
        .endurance_bytes = p->drive_endurance_bytes,
        .comm0_bytes_per_s = p->link[COH_LANE_COMM0].bytes_per_s.p50,
        .comm1_bytes_per_s = p->link[COH_LANE_COMM1].bytes_per_s.p50,
        .comm0_latency_s = p->link[COH_LANE_COMM0].latency_ns.p50 * 1e-9,
        .comm1_latency_s = p->link[COH_LANE_COMM1].latency_ns.p50 * 1e-9,
        .pair_bytes_per_s = p->link[COH_LINK_PAIR].bytes_per_s.p50,
        .pair_latency_s = p->link[COH_LINK_PAIR].latency_ns.p50 * 1e-9,
        .pair_ranks = p->pair_ranks,
        .node_ranks = p->node_ranks,
        .host_gpus = p->host_gpus,
        .host_shares = coh_profile_host_rate_is_given(p) ? 0
                       : p->host_shares > 0              ? p->host_shares
                                                         : 1,
        .shared_host_bytes_per_s =
            coh_profile_shares_memory(p) ? p->host_memory_bytes_per_s.p50 : 0,
    };
    summary.hash = p->uncalibrated_hash; /* the hash of the file, without calibration */
    if (summary.hash == 0)
        COH_TRY(coh_profile_hash(p, &summary.hash));
    COH_STRUCT_FILL(summary, out_summary);
    return COH_OK;
}

coh_status coh_profile_origin_at(const coh_profile *profile, uint32_t index,
                                 coh_profile_origin_text *out_origin)
{
    COH_NEED(profile);
    COH_NEED(out_origin);
    if (index >= profile->origin_count)
        return coh_fail(COH_ERR_ARGUMENT, "origin %u is not one of %u", index,
                        profile->origin_count);
    const coh_profile_origin *origin = &profile->origins[index];
    *out_origin = (coh_profile_origin_text){ .of = origin->of,
                                             .text = origin->text,
                                             .is_assumed = origin->is_assumed };
    return COH_OK;
}
