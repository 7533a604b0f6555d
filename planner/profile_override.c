/* Overrides entries of a profile from a text such as "pcie=2x,device-memory=80GB". One table lists
 * the entries with the figures they set; the interface is profile_file.h. */
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/c_locale.h"
#include "cohobate/disk.h"
#include "cohobate/machine.h"
#include "cohobate/terms.h"
#include "planner/profile_file.h"

typedef enum entry_kind {
    ENTRY_BYTES,    /* a size: "80GB" */
    ENTRY_RATE,     /* a size per second: "16GB/s" */
    ENTRY_FLOPS,    /* operations per second: "312e12" */
    ENTRY_DRIVES,   /* a number of equal drives */
    ENTRY_TOPOLOGY, /* another profile, whose links between ranks this one takes */
} entry_kind;

typedef struct entry {
    const char *name;
    entry_kind kind;
    size_t offset[2];      /* of a uint64_t, or of coh_figures; the second is 0 if there is none */
    const char *origin[2]; /* the origin groups that they belong to */
    int is_of_operators;   /* 1: measured operators do not apply to other rates and are dropped */
} entry;

#define AT(field) offsetof(coh_profile, field)
#define LINK_OF(lane)                                                                              \
    (AT(link) + (lane) * sizeof(coh_link_profile) + offsetof(coh_link_profile, bytes_per_s))
#define ROOF_OF(roof)   (AT(flops_per_s) + (roof) * sizeof(coh_figure))
#define MEMORY_OF(tier) (AT(memory_bytes) + (tier) * sizeof(uint64_t))

static const entry entries[] = {
    { "device-memory", ENTRY_BYTES, { MEMORY_OF(COH_TIER_DEVICE) }, { "memory_bytes.device" }, 0 },
    { "host-memory", ENTRY_BYTES, { MEMORY_OF(COH_TIER_HOST) }, { "memory_bytes.host" }, 0 },
    { "disk", ENTRY_BYTES, { MEMORY_OF(COH_TIER_DISK) }, { "memory_bytes.disk" }, 0 },
    { "endurance", ENTRY_BYTES, { AT(drive_endurance_bytes) }, { "drive_endurance_bytes" }, 0 },
    { "pcie",
      ENTRY_RATE,
      { LINK_OF(COH_LANE_H2D), LINK_OF(COH_LANE_D2H) },
      { "links.h2d", "links.d2h" },
      0 },
    { "disk-read", ENTRY_RATE, { LINK_OF(COH_LANE_READ) }, { "links.read" }, 0 },
    { "disk-write", ENTRY_RATE, { LINK_OF(COH_LANE_WRITE) }, { "links.write" }, 0 },
    { "drives",
      ENTRY_DRIVES,
      { LINK_OF(COH_LANE_READ), LINK_OF(COH_LANE_WRITE) },
      { "links.read", "links.write" },
      0 },
    { "pair-link", ENTRY_RATE, { LINK_OF(COH_LINK_PAIR) }, { "links.pair" }, 0 },
    { "node-link", ENTRY_RATE, { LINK_OF(COH_LANE_COMM0) }, { "links.comm0" }, 0 },
    { "network", ENTRY_RATE, { LINK_OF(COH_LANE_COMM1) }, { "links.comm1" }, 0 },
    { "topology", ENTRY_TOPOLOGY, { 0 }, { NULL }, 0 },
    { "flops",
      ENTRY_FLOPS,
      { ROOF_OF(COH_ROOF_F32), ROOF_OF(COH_ROOF_BF16) },
      { "flops_per_s", "flops_per_s" },
      1 },
    { "f32-flops", ENTRY_FLOPS, { ROOF_OF(COH_ROOF_F32) }, { "flops_per_s" }, 1 },
    { "bf16-flops", ENTRY_FLOPS, { ROOF_OF(COH_ROOF_BF16) }, { "flops_per_s" }, 1 },
    { "memory-rate", ENTRY_RATE, { AT(memory_bytes_per_s) }, { "memory_bytes_per_s" }, 1 },
    { "host-memory-rate",
      ENTRY_RATE,
      { AT(host_memory_bytes_per_s) },
      { "host_memory_bytes_per_s" },
      0 },
    { "update-rate",
      ENTRY_RATE,
      { AT(host_update_bytes_per_s) },
      { "host_update_bytes_per_s" },
      0 },
};
enum { ENTRY_COUNT = sizeof(entries) / sizeof(entries[0]) };

/* 16 lanes of 8, 16 and 32 GT/s, with 128 data bits in 130 (PCI-SIG). */
static const struct {
    const char *name;
    double bytes_per_s;
} pcie_generations[] = {
    { "gen3", 8e9 * 16 / 8 * 128 / 130 },
    { "gen4", 16e9 * 16 / 8 * 128 / 130 },
    { "gen5", 32e9 * 16 / 8 * 128 / 130 },
};

/* A change: the present value times `factor`, or `value` (factor 0). */
typedef struct change {
    double factor, value;
} change;

static int parse_factor(const char *text, change *out_change)
{
    char *end = NULL;
    double factor = coh_number_read(text, &end);
    if (end == text || strcmp(end, "x") != 0 || !(factor >= 1e-6 && factor <= 1e6))
        return 0;
    *out_change = (change){ .factor = factor };
    return 1;
}

static int parse_size(const char *text, int per_second, change *out_change)
{
    char copy[64];
    uint64_t bytes = 0;
    size_t length = strlen(text);
    if (per_second && length > 2 && strcmp(text + length - 2, "/s") == 0)
        length -= 2;
    if (length >= sizeof(copy))
        return 0;
    memcpy(copy, text, length);
    copy[length] = '\0';
    if (coh_size_parse(copy, &bytes) != COH_OK || bytes == 0 || bytes > INT64_MAX)
        return 0;
    *out_change = (change){ .value = (double)bytes };
    return 1;
}

static int parse_flops(const char *text, change *out_change)
{
    char *end = NULL;
    double value = coh_number_read(text, &end);
    if (end == text || *end != '\0' || !(value >= 1e6 && value <= 1e24))
        return 0;
    *out_change = (change){ .value = value };
    return 1;
}

static int parse_drives(const char *text, change *out_change)
{
    char *end = NULL;
    const long count = strtol(text, &end, 10);
    if (end == text || *end != '\0' || count < 1 || count > COH_DISKS_MOST)
        return 0;
    *out_change = (change){ .value = (double)count };
    return 1;
}

static int parse_generation(const entry *e, const char *text, change *out_change)
{
    for (size_t i = 0; i < sizeof(pcie_generations) / sizeof(pcie_generations[0]); i++)
        if (strcmp(e->name, "pcie") == 0 && strcmp(pcie_generations[i].name, text) == 0) {
            *out_change = (change){ .value = pcie_generations[i].bytes_per_s };
            return 1;
        }
    return 0;
}

/* Returns 1 for a size by which a user means that a tier is not there. */
static int is_none(const char *text)
{
    const size_t zeros = strspn(text, "0.");
    return strcmp(text, "none") == 0 || (text[0] == '0' && strspn(text + zeros, "123456789") == 0);
}

/* Returns what a user calls the tier that can be left out of a plan; COH_TERM_COUNT: none. */
static coh_term term_of_tier(const entry *e)
{
    if (strcmp(e->name, "disk") == 0)
        return COH_TERM_DISK;
    return strcmp(e->name, "host-memory") == 0 ? COH_TERM_HOST_MEMORY : COH_TERM_COUNT;
}

static coh_status parse_change(const entry *e, const char *text, change *out_change)
{
    if (e->kind == ENTRY_DRIVES)
        return parse_drives(text, out_change)
                   ? COH_OK
                   : coh_fail(COH_ERR_ARGUMENT,
                              "%s takes a number of equal drives, 1 to %d, not '%.40s': for "
                              "example %s=4",
                              e->name, COH_DISKS_MOST, text, e->name);
    if (parse_factor(text, out_change) || parse_generation(e, text, out_change))
        return COH_OK;
    switch (e->kind) {
    case ENTRY_BYTES:
        if (parse_size(text, 0, out_change))
            return COH_OK;
        if (is_none(text) && term_of_tier(e) != COH_TERM_COUNT)
            return coh_fail(COH_ERR_ARGUMENT,
                            "%s takes a size with its unit or a factor, not '%.40s': to plan "
                            "without it give %s none beside the profile",
                            e->name, text, coh_term_text(term_of_tier(e)));
        return coh_fail(COH_ERR_ARGUMENT,
                        "%s takes a size with its unit or a factor, not '%.40s': for example "
                        "%s=80GB or %s=2x",
                        e->name, text, e->name, e->name);
    case ENTRY_RATE:
        if (parse_size(text, 1, out_change))
            return COH_OK;
        return coh_fail(COH_ERR_ARGUMENT,
                        "%s takes a size per second or a factor%s, not '%.40s': for example "
                        "%s=16GB/s or %s=2x",
                        e->name, strcmp(e->name, "pcie") == 0 ? ", or gen3, gen4, gen5" : "", text,
                        e->name, e->name);
    case ENTRY_FLOPS:
        if (parse_flops(text, out_change))
            return COH_OK;
        return coh_fail(COH_ERR_ARGUMENT,
                        "%s takes operations per second or a factor, not '%.40s': for example "
                        "%s=312e12 or %s=0.5x",
                        e->name, text, e->name, e->name);
    case ENTRY_DRIVES:
    case ENTRY_TOPOLOGY:
        break;
    }
    return COH_OK;
}

static coh_status note_origin(coh_profile *profile, const char *of, const char *assignment)
{
    coh_profile_origin *origin = NULL;
    for (uint32_t i = 0; i < profile->origin_count; i++)
        if (strcmp(profile->origins[i].of, of) == 0)
            origin = &profile->origins[i];
    if (origin == NULL) {
        size_t capacity = profile->origin_count;
        COH_TRY(COH_GROW(&profile->origins, &capacity, profile->origin_count + 1));
        origin = &profile->origins[profile->origin_count++];
        snprintf(origin->of, sizeof(origin->of), "%s", of);
    }
    origin->is_assumed = 1;
    snprintf(origin->text, sizeof(origin->text), COH_PROFILE_GIVEN "%.200s", assignment);
    return COH_OK;
}

/* Removes the source of a figure that the profile no longer has. */
static void drop_origin(coh_profile *profile, const char *of)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < profile->origin_count; i++)
        if (strcmp(profile->origins[i].of, of) != 0)
            profile->origins[kept++] = profile->origins[i];
    profile->origin_count = kept;
}

static coh_status no_such(const char *name)
{
    char known[512] = "";
    size_t used = 0;
    coh_nearest nearest = { .word = name };
    for (size_t i = 0; i < ENTRY_COUNT; i++) {
        used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s", i ? ", " : "",
                                 entries[i].name);
        coh_nearest_offer(&nearest, entries[i].name);
    }
    return coh_fail(COH_ERR_ARGUMENT, "'%.40s' is no entry of a profile: %s%s%s one of %s", name,
                    nearest.name ? "is " : "", nearest.name ? nearest.name : "",
                    nearest.name ? " meant? Give" : "give", known);
}

static const entry *find_entry(const char *name)
{
    for (size_t i = 0; i < ENTRY_COUNT; i++)
        if (strcmp(entries[i].name, name) == 0)
            return &entries[i];
    return NULL;
}

coh_status coh_profile_check_entry(const char *name)
{
    COH_NEED(name);
    return find_entry(name) ? COH_OK : no_such(name);
}

static coh_status change_bytes(const coh_profile *profile, const entry *e, const change *c,
                               uint64_t *value)
{
    if (c->factor > 0 && *value == 0)
        return coh_fail(COH_ERR_ARGUMENT,
                        "the profile %s has no %s to multiply: give a size, %s=80GB", profile->name,
                        e->name, e->name);
    double bytes = c->factor > 0 ? (double)*value * c->factor : c->value;
    if (!(bytes >= 1))
        return coh_fail(COH_ERR_ARGUMENT, "%s becomes less than a byte: raise it", e->name);
    if (!(bytes < 9e18))
        return coh_fail(COH_ERR_ARGUMENT, "%s becomes too large: lower it", e->name);
    *value = (uint64_t)bytes;
    return COH_OK;
}

/* A given size of main memory is available in full: the cgroup's limit was of the machine as
 * measured. A multiplied size is a multiple of the memory that was available. */
static void lift_limit(coh_profile *profile, uint64_t *bytes)
{
    const coh_tier tier = profile->device_kind != COH_DEVICE_HOST ? COH_TIER_HOST : COH_TIER_DEVICE;
    if (bytes != &profile->memory_bytes[tier])
        return;
    if (*bytes > profile->cgroup_bytes)
        *bytes = profile->cgroup_bytes;
    profile->cgroup_bytes = UINT64_MAX;
}

/* Returns 1 if the rate was given as a value of this entry; a factor is of what is scaled. */
static int is_given(const coh_profile *profile, const entry *rate)
{
    char given[64];
    const size_t length =
        (size_t)snprintf(given, sizeof(given), COH_PROFILE_GIVEN "%s=", rate->name);
    for (uint32_t i = 0; i < profile->origin_count; i++) {
        const char *text = profile->origins[i].text;
        if (strcmp(profile->origins[i].of, rate->origin[0]) == 0)
            return strncmp(text, given, length) == 0 && text[strlen(text) - 1] != 'x';
    }
    return 0;
}

int coh_profile_host_rate_is_given(const coh_profile *profile)
{
    return is_given(profile, find_entry("host-memory-rate"));
}

static void set_shares(coh_profile *profile, double shares)
{
    static const char *const rates[] = { "host-memory-rate", "update-rate" };
    const double now = profile->host_shares > 0 ? profile->host_shares : 1;
    for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
        const entry *rate = find_entry(rates[i]);
        if (!is_given(profile, rate))
            coh_figure_multiply((coh_figure *)(void *)((char *)profile + rate->offset[0]),
                                shares / now);
    }
    profile->host_shares = shares;
}

/* Modules and channels of a host that several GPUs share go together: who takes more of its memory
 * than one share has as many shares of its rates, unless these are given. `before`: the memory
 * until then, which is one share at first. */
static void scale_shares(coh_profile *profile, uint64_t before)
{
    if (profile->host_gpus < 2 || before == 0)
        return;
    if (profile->host_share_bytes == 0)
        profile->host_share_bytes = before;
    const double shares =
        (double)profile->memory_bytes[COH_TIER_HOST] / (double)profile->host_share_bytes;
    set_shares(profile, shares < 1 ? 1 : shares > profile->host_gpus ? profile->host_gpus : shares);
}

void coh_profile_limit_shares(coh_profile *profile, int32_t ranks)
{
    const double most = profile->host_gpus > ranks ? (double)profile->host_gpus / ranks : 1;
    if (profile->host_shares > most)
        set_shares(profile, most);
}

/* Checks a rate; for a link also the sustained rate, if known. */
static coh_status check_rate(const entry *e, const coh_figure *figure)
{
    if (figure->p50 > 0 &&
        !(figure->p10 >= COH_PROFILE_RATE_LEAST && figure->p90 <= COH_PROFILE_RATE_MOST))
        return coh_fail(COH_ERR_ARGUMENT, "%s becomes %g a second: give one from %g to %g", e->name,
                        figure->p50, COH_PROFILE_RATE_LEAST, COH_PROFILE_RATE_MOST);
    return COH_OK;
}

static coh_status change_rate(const coh_profile *profile, const entry *e, const change *c,
                              coh_figure *figure)
{
    if (c->factor > 0 && figure->p50 <= 0)
        return coh_fail(COH_ERR_ARGUMENT,
                        "the profile %s has no %s to multiply: give a rate, %s=16GB/s",
                        profile->name, e->name, e->name);
    if (c->factor > 0)
        coh_figure_multiply(figure, c->factor);
    else
        *figure = coh_figure_of(c->value);
    return check_rate(e, figure);
}

/* The opcodes that each link prices. */
static const coh_opcode link_opcodes[COH_LINK_COUNT][2] = {
    [COH_LANE_H2D] = { COH_OP_LOAD, COH_OP_LOAD },
    [COH_LANE_D2H] = { COH_OP_STORE, COH_OP_STORE },
    [COH_LANE_READ] = { COH_OP_READ, COH_OP_IMPORT },
    [COH_LANE_WRITE] = { COH_OP_WRITE, COH_OP_SAVE },
    [COH_LANE_COMM0] = { COH_OP_REDUCE, COH_OP_GATHER },
    [COH_LANE_COMM1] = { COH_OP_REDUCE, COH_OP_GATHER },
    [COH_LINK_PAIR] = { COH_OP_REDUCE, COH_OP_GATHER },
};

/* Of an exchange between ranks, if its link was not measured. */
#define ASSUMED_COMM_LATENCY_NS 10e3

/* Sets what a given rate leaves open of a link that the profile does not know. A pair exchanges as
 * promptly as its node. */
static coh_status complete_link(coh_profile *profile, int number, const entry *e)
{
    coh_link_profile *link = &profile->link[number];
    const int is_pair = number == COH_LINK_PAIR;
    if (link->depth > 0)
        return COH_OK;
    if (is_pair && !coh_profile_is_link(profile, COH_LANE_COMM0))
        return coh_fail(COH_ERR_ARGUMENT,
                        "the profile %s has no link within a node: give node-link= before %s=",
                        profile->name, e->name);
    if (is_pair)
        link->latency_ns = profile->link[COH_LANE_COMM0].latency_ns;
    else if (number >= COH_LANE_COMM0)
        link->latency_ns = coh_figure_of(ASSUMED_COMM_LATENCY_NS);
    link->depth = coh_profile_usual_depth(is_pair ? COH_LANE_COMM0 : (coh_lane)number);
    return COH_OK;
}

/* Changes a link. A given rate applies for any duration, and calibration of the former link is
 * dropped. */
static coh_status change_link(coh_profile *profile, int number, const entry *e, const change *c)
{
    coh_link_profile *link = &profile->link[number];
    COH_TRY(complete_link(profile, number, e));
    if (c->factor > 0)
        coh_figure_multiply(&link->sustained_bytes_per_s, c->factor);
    else
        link->sustained_bytes_per_s = (coh_figure){ 0 };
    for (int i = 0; i < 2; i++)
        profile->calibration[link_opcodes[number][i]] = (coh_calibration){ 0 };
    return check_rate(e, &link->sustained_bytes_per_s);
}

static coh_status change_drives(coh_profile *profile, const entry *e, const change *c)
{
    if (!coh_profile_has_drive(profile))
        return coh_fail(COH_ERR_ARGUMENT,
                        "the profile %s has no drive to multiply: give disk-read= and disk-write= "
                        "before %s=",
                        profile->name, e->name);
    coh_profile_stripe(profile, (int32_t)c->value);
    profile->drive[0] = '\0'; /* they are not those that were measured */
    return check_rate(e, &profile->link[COH_LANE_READ].bytes_per_s);
}

static coh_status change_one(coh_profile *profile, const entry *e, const change *c)
{
    if (e->kind == ENTRY_DRIVES)
        return change_drives(profile, e, c);
    for (size_t i = 0; i < 2 && e->origin[i]; i++) {
        void *field = (char *)profile + e->offset[i];
        if (e->kind == ENTRY_BYTES) {
            const uint64_t before = profile->memory_bytes[COH_TIER_HOST];
            lift_limit(profile, field);
            COH_TRY(change_bytes(profile, e, c, field));
            if (field == &profile->memory_bytes[COH_TIER_HOST])
                scale_shares(profile, before);
        } else {
            COH_TRY(change_rate(profile, e, c, field));
        }
        for (int link = 0; link < COH_LINK_COUNT; link++)
            if (field == &profile->link[link].bytes_per_s)
                COH_TRY(change_link(profile, link, e, c));
    }
    if (e->is_of_operators) {
        coh_profile_drop_operators(profile);
        memset(profile->calibration, 0, sizeof(profile->calibration));
    }
    return COH_OK;
}

/* ---- topologies ---- */

/* Takes the links between ranks, and how many have which, from another profile. */
static coh_status copy_topology(coh_profile *profile, const coh_profile *from,
                                const char *assignment)
{
    static const struct {
        int link;
        const char *origin;
    } links[] = { { COH_LINK_PAIR, "links.pair" },
                  { COH_LANE_COMM0, "links.comm0" },
                  { COH_LANE_COMM1, "links.comm1" } };
    if (from->node_ranks == 0)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%s: the profile does not say how many ranks a node has (node_ranks): name "
                        "one that does, as frontier",
                        assignment);
    for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
        profile->link[links[i].link] = from->link[links[i].link];
        if (from->link[links[i].link].bytes_per_s.p50 > 0)
            COH_TRY(note_origin(profile, links[i].origin, assignment));
        else
            drop_origin(profile, links[i].origin);
    }
    profile->pair_ranks = from->pair_ranks;
    profile->node_ranks = from->node_ranks;
    profile->calibration[COH_OP_REDUCE] = (coh_calibration){ 0 };
    profile->calibration[COH_OP_GATHER] = (coh_calibration){ 0 };
    return note_origin(profile, "node_ranks", assignment);
}

/* "topology=frontier" */
static coh_status use_topology(coh_profile *profile, const char *assignment)
{
    coh_profile from;
    const char *equals = strchr(assignment, '=');
    COH_TRY(coh_profile_read_named(equals ? equals + 1 : "", &from));
    const coh_status status = copy_topology(profile, &from, assignment);
    coh_profile_fini(&from);
    return status;
}

/* ---- the list ---- */

/* "pcie=2x" */
static coh_status override_one(coh_profile *profile, const char *assignment)
{
    char name[32];
    change c = { 0 };
    const char *equals = strchr(assignment, '=');
    size_t length = equals ? (size_t)(equals - assignment) : strlen(assignment);
    if (length >= sizeof(name))
        return no_such(assignment);
    memcpy(name, assignment, length);
    name[length] = '\0';
    const entry *e = find_entry(name);
    if (e == NULL)
        return no_such(name);
    if (e->kind == ENTRY_TOPOLOGY)
        return use_topology(profile, assignment);
    COH_TRY(parse_change(e, equals ? equals + 1 : "", &c));
    COH_TRY(change_one(profile, e, &c));
    for (size_t i = 0; i < 2 && e->origin[i]; i++)
        COH_TRY(note_origin(profile, e->origin[i], assignment));
    return COH_OK;
}

coh_status coh_profile_override(coh_profile *profile, const char *list)
{
    char assignment[512]; /* has the path of a topology */
    size_t used = strlen(profile->name);
    while (*list) {
        size_t length = strcspn(list, ",");
        if (length >= sizeof(assignment))
            return coh_fail(COH_ERR_ARGUMENT,
                            "the entry '%.40s...' of the profile is longer than %zu bytes: give a "
                            "shorter one",
                            list, sizeof(assignment) - 1);
        memcpy(assignment, list, length);
        assignment[length] = '\0';
        COH_TRY(override_one(profile, assignment));
        if (used + length + 1 < sizeof(profile->name))
            used += (size_t)snprintf(profile->name + used, sizeof(profile->name) - used, ",%s",
                                     assignment);
        list += length + (list[length] == ',');
    }
    return COH_OK;
}
