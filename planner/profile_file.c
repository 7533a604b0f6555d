/* A profile as text. The idea: one table of fields serves both directions, and every profile has
 * one canonical text, so that equal profiles give equal bytes and hashes. The tables come last; the
 * functions before them are those of fields with a special form. Limits: profile_file.h. */
#include "planner/profile_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "planner/calibration.h"

/* Beyond any machine: times from such figures add up within 64 bits, except for programs that
 * nobody could run. */
#define NS_MOST           1e13
#define INTERFERENCE_MOST 1e6
#define SECONDS_MOST      1e4
#define WORK_MOST         1e30 /* flops or bytes of a sample */
#define DEPTH_MOST        64 /* pieces that a ring of the store holds: no drive is served deeper */
#define THREADS_MOST      65536
#define HOST_GPUS_MOST    1024
#define BYTES_MOST        ((double)INT64_MAX)

const char *const coh_profile_source_names[] = { [COH_PROFILE_BUILT_IN] = "built-in",
                                                 [COH_PROFILE_DATASHEET] = "datasheet",
                                                 [COH_PROFILE_MEASURED] = "measured",
                                                 NULL };
const char *const coh_profile_device_names[] = {
    [COH_DEVICE_HOST] = "host", [COH_DEVICE_CUDA] = "gpu", NULL
};
static const char *const dtype_names[] = { [COH_DTYPE_F32] = "f32",
                                           [COH_DTYPE_BF16] = "bf16",
                                           [COH_DTYPE_F16] = "f16",
                                           [COH_DTYPE_I32] = "i32",
                                           NULL };
static const char *const phase_names[] = {
    [COH_PHASE_FORWARD] = "forward", [COH_PHASE_BACKWARD] = "backward", NULL
};
/* Operators run on two of the lanes. */
static const char *const operator_lanes[COH_LANE_COUNT + 1] = {
    [COH_LANE_COMPUTE] = "compute", [COH_LANE_H2D] = "",   [COH_LANE_D2H] = "",
    [COH_LANE_READ] = "",           [COH_LANE_WRITE] = "", [COH_LANE_HOST] = "host",
};

/* ---- figures: a number, or [p10, p50, p90, samples] ---- */

static coh_status read_spread(const coh_json_field *field, const coh_json_place *at,
                              coh_figure *figure)
{
    double *const parts[] = { &figure->p10, &figure->p50, &figure->p90 };
    const coh_json_place samples = coh_json_item(at, 3);
    int64_t count;
    if (json_array_size(at->value) != 4)
        return coh_json_expected(at, "a number from %g to %g, or [p10, p50, p90, samples]",
                                 field->least, field->most);
    for (size_t i = 0; i < 3; i++) {
        const coh_json_place part = coh_json_item(at, i);
        COH_TRY(coh_json_real(&part, field->least, field->most, parts[i]));
    }
    COH_TRY(coh_json_whole(&samples, 1, UINT32_MAX, &count));
    figure->samples = (uint32_t)count;
    if (figure->p50 > 0 && figure->p10 <= 0)
        return coh_json_fail(at, "the tenth is 0, the median is not");
    if (figure->p10 > figure->p50 || figure->p50 > figure->p90)
        return coh_json_fail(at, "its parts do not rise");
    return COH_OK;
}

/* Reads a figure; a field that may be null accepts 0 for "none". */
static coh_status read_figure(const coh_json_field *field, const coh_json_place *at, void *object)
{
    coh_figure *figure = (coh_figure *)(void *)((char *)object + field->offset);
    double value;
    if (at->value != NULL && !json_is_number(at->value))
        return read_spread(field, at, figure);
    const int is_none = field->is_null && at->value != NULL && json_number_value(at->value) == 0;
    COH_TRY(coh_json_real(at, is_none ? 0 : field->least, field->most, &value));
    *figure = coh_figure_of(value);
    return COH_OK;
}

/* Writes a figure; one without a spread is a single number. */
static void write_figure(const coh_json_field *field, coh_json_writer *writer, const void *object)
{
    const coh_figure *figure = (const void *)((const char *)object + field->offset);
    if (figure->samples == 0) {
        coh_json_put_real(writer, field->name, figure->p50);
        return;
    }
    coh_json_begin(writer, field->name, '[', COH_JSON_INLINE);
    coh_json_put_real(writer, NULL, figure->p10);
    coh_json_put_real(writer, NULL, figure->p50);
    coh_json_put_real(writer, NULL, figure->p90);
    coh_json_put(writer, NULL, "%" PRIu32, figure->samples);
    coh_json_end(writer);
}

#define FIGURE_AT(offset_, least_, most_)                                                          \
    COH_JSON_OWN, .offset = (offset_), .least = (least_), .most = (most_), .read = read_figure,    \
                  .write = write_figure
#define FIGURE(type, member, least, most) FIGURE_AT(offsetof(type, member), least, most)

#define RATE_AT(offset)    FIGURE_AT(offset, COH_PROFILE_RATE_LEAST, COH_PROFILE_RATE_MOST)
#define RATE(type, member) RATE_AT(offsetof(type, member))

/* ---- lanes ---- */

static const char *lane_name(int lane)
{
    return coh_lane_name((coh_lane)lane);
}

static const char *link_name(int lane)
{
    if (lane == COH_LINK_PAIR)
        return "pair";
    return lane == COH_LANE_COMPUTE || lane == COH_LANE_HOST ? NULL : lane_name(lane);
}

static int is_link(const void *link)
{
    return ((const coh_link_profile *)link)->bytes_per_s.p50 > 0;
}

static int is_sustained(const void *link)
{
    return ((const coh_link_profile *)link)->sustained_bytes_per_s.p50 > 0;
}

static int has_interference(const void *object)
{
    const coh_link_profile *link = object;
    return link->interference_ns > 0 || link->interference_ns_per_byte > 0;
}

static const coh_json_field link_fields[] = {
    { "latency_ns", FIGURE(coh_link_profile, latency_ns, 0, NS_MOST) },
    { "bytes_per_s", RATE(coh_link_profile, bytes_per_s) },
    { "sustained_bytes_per_s", RATE(coh_link_profile, sustained_bytes_per_s),
      .is_written = is_sustained },
    { "depth", COH_JSON_WHOLE, COH_JSON_AT(coh_link_profile, depth), .least = 1,
      .most = DEPTH_MOST },
    { "steal_ns", COH_JSON_REAL, COH_JSON_AT(coh_link_profile, interference_ns), .most = NS_MOST,
      .is_written = has_interference },
    { "steal_ns_per_byte", COH_JSON_REAL, COH_JSON_AT(coh_link_profile, interference_ns_per_byte),
      .most = INTERFERENCE_MOST, .is_written = has_interference },
    { 0 },
};

/* The two parts of a transfer's interference belong together. */
static coh_status check_link(const coh_json_place *at, void *link)
{
    const coh_json_place fixed = coh_json_member(at, "steal_ns");
    const coh_json_place by_byte = coh_json_member(at, "steal_ns_per_byte");
    (void)link;
    if ((fixed.value == NULL) == (by_byte.value == NULL))
        return COH_OK;
    return coh_json_expected(fixed.value == NULL ? &fixed : &by_byte,
                             "a number next to the other one");
}

/* Lanes slow one another by factors; 1 is omitted. */
#define BESIDE(lane)                                                                               \
    COH_JSON_REAL, .offset = (lane) * sizeof(double), .least = COH_PROFILE_PART_LEAST, .most = 1,  \
                   .otherwise = 1, .rule = COH_JSON_UNLESS_ZERO

static const coh_json_field beside_fields[] = {
    { "compute", BESIDE(COH_LANE_COMPUTE) },
    { "h2d", BESIDE(COH_LANE_H2D) },
    { "d2h", BESIDE(COH_LANE_D2H) },
    { "read", BESIDE(COH_LANE_READ) },
    { "write", BESIDE(COH_LANE_WRITE) },
    { "host", BESIDE(COH_LANE_HOST) },
    { "comm0", BESIDE(COH_LANE_COMM0) },
    { "comm1", BESIDE(COH_LANE_COMM1) },
    { 0 },
};
_Static_assert(sizeof(beside_fields) / sizeof(beside_fields[0]) == COH_LANE_COUNT + 1, "all lanes");

static int is_slowed(const void *row)
{
    const double *factors = row;
    int lane = 0;
    while (lane < COH_LANE_COUNT && factors[lane] == 1)
        lane++;
    return lane < COH_LANE_COUNT;
}

static coh_status check_others(const coh_json_place *at, void *row)
{
    const coh_json_place own = coh_json_member(at, at->key);
    (void)row;
    return own.value == NULL ? COH_OK : coh_json_fail(&own, "it is the same lane");
}

/* ---- operators ---- */

static int order_by(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

int coh_operator_times_order(const coh_operator_times *a, const coh_operator_times *b)
{
    int order = strcmp(a->kind, b->kind);
    if (order == 0)
        order = order_by(a->dtype, b->dtype);
    if (order == 0)
        order = order_by(a->phase, b->phase);
    if (order == 0)
        order = order_by(a->lane, b->lane);
    if (order == 0)
        order = (a->signature > b->signature) - (a->signature < b->signature);
    return order;
}

static int by_order(const void *a, const void *b)
{
    return coh_operator_times_order(a, b);
}

static double work_of(const coh_profile *p, const coh_operator_times *o, uint32_t index)
{
    const coh_operator_sample *s = &o->samples[index];
    return coh_profile_work(p, o->dtype == COH_DTYPE_BF16, s->flops, s->bytes);
}

/* Checks that samples rise in work, and operators in their order. */
static coh_status check_operator(const coh_json_place *at, void *object)
{
    const coh_operator_times *o = object;
    const coh_json_place samples = coh_json_member(at, "samples");
    for (uint32_t i = 1; i < o->sample_count; i++) {
        const coh_json_place sample = coh_json_item(&samples, i);
        if (!(work_of(at->source->object, o, i) > work_of(at->source->object, o, i - 1)))
            return coh_json_fail(&sample, "it is no more work than the one before it");
    }
    if (at->index > 0 && coh_operator_times_order(o - 1, o) >= 0)
        return coh_json_fail(at, "it does not follow the one before it: they rise, and none is "
                                 "there twice");
    return COH_OK;
}

static const coh_json_field sample_fields[] = {
    { "flops", COH_JSON_REAL, COH_JSON_AT(coh_operator_sample, flops), .most = WORK_MOST },
    { "bytes", COH_JSON_REAL, COH_JSON_AT(coh_operator_sample, bytes), .most = WORK_MOST },
    { "seconds", FIGURE(coh_operator_sample, seconds, 1e-12, SECONDS_MOST) },
    { 0 },
};

static const coh_json_field operator_fields[] = {
    { "kind", COH_JSON_TEXT, COH_JSON_AT(coh_operator_times, kind) },
    { "dtype", COH_JSON_CHOICE, COH_JSON_AT(coh_operator_times, dtype), .names = dtype_names },
    { "phase", COH_JSON_CHOICE, COH_JSON_AT(coh_operator_times, phase), .names = phase_names },
    { "lane", COH_JSON_CHOICE, COH_JSON_AT(coh_operator_times, lane), .names = operator_lanes },
    { "signature", COH_JSON_HEX, COH_JSON_AT(coh_operator_times, signature) },
    { "shape", COH_JSON_TEXT, COH_JSON_AT(coh_operator_times, shape) },
    { "samples", COH_JSON_ARRAY, COH_JSON_AT_ARRAY(coh_operator_times, samples, sample_count),
      .layout = COH_JSON_ITEMS, .least = 1, .most = COH_PROFILE_SAMPLES_MOST,
      .fields = sample_fields },
    { 0 },
};

/* ---- origins: {"of": ..., "published": ...}, or "assumed" ---- */

static int is_published(const void *origin)
{
    return !((const coh_profile_origin *)origin)->is_assumed;
}

static int is_assumed(const void *origin)
{
    return ((const coh_profile_origin *)origin)->is_assumed;
}

static coh_status check_form(const coh_json_place *at, void *object)
{
    const coh_json_place published = coh_json_member(at, "published");
    coh_profile_origin *origin = object;
    origin->is_assumed = json_object_get(at->value, "assumed") != NULL;
    if (origin->is_assumed && published.value != NULL)
        return coh_json_fail(at, "it is both \"published\" and \"assumed\"");
    return origin->is_assumed || published.value != NULL
               ? COH_OK
               : coh_json_expected(&published, "a text, or one under \"assumed\"");
}

static const coh_json_field origin_fields[] = {
    { "of", COH_JSON_TEXT, COH_JSON_AT(coh_profile_origin, of) },
    { "published", COH_JSON_TEXT, COH_JSON_AT(coh_profile_origin, text),
      .is_written = is_published },
    { "assumed", COH_JSON_TEXT, COH_JSON_AT(coh_profile_origin, text), .is_written = is_assumed },
    { 0 },
};

static coh_status check_origin(const coh_profile *p, int is_needed, const char *of)
{
    for (uint32_t i = 0; i < p->origin_count; i++)
        if (strcmp(p->origins[i].of, of) == 0)
            return COH_OK;
    if (!is_needed)
        return COH_OK;
    return coh_fail(COH_ERR_CORRUPT,
                    "a datasheet, and \"origins\" does not say where \"%s\" comes from", of);
}

/* Checks that a datasheet names a source for each group: figures without a source cannot be
 * trusted. */
static coh_status check_origins(const coh_profile *p)
{
    char of[32];
    if (p->source != COH_PROFILE_DATASHEET)
        return COH_OK;
    COH_TRY(check_origin(p, 1, "flops_per_s"));
    COH_TRY(check_origin(p, 1, "memory_bytes_per_s"));
    COH_TRY(check_origin(p, 1, "line_ns"));
    COH_TRY(check_origin(p, p->host_memory_bytes_per_s.p50 > 0, "host_memory_bytes_per_s"));
    COH_TRY(check_origin(p, p->host_update_bytes_per_s.p50 > 0, "host_update_bytes_per_s"));
    for (int lane = 0; lane < COH_LINK_COUNT; lane++) {
        if (link_name(lane) == NULL)
            continue;
        snprintf(of, sizeof(of), "links.%s", link_name(lane));
        COH_TRY(check_origin(p, p->link[lane].bytes_per_s.p50 > 0, of));
    }
    COH_TRY(check_origin(p, p->node_ranks > 0, "node_ranks"));
    COH_TRY(check_origin(p, p->memory_bytes[COH_TIER_DEVICE] > 0, "memory_bytes.device"));
    COH_TRY(check_origin(p, p->memory_bytes[COH_TIER_HOST] > 0, "memory_bytes.host"));
    COH_TRY(check_origin(p, p->memory_bytes[COH_TIER_DISK] > 0, "memory_bytes.disk"));
    return check_origin(p, p->drive_endurance_bytes > 0, "drive_endurance_bytes");
}

/* The ranks of a pair are ranks of a node, too: what a pair lacks, the node's link has. A measured
 * profile has pairs, but no node: that is the launcher's. */
static coh_status check_levels(const coh_profile *p)
{
    if (p->node_ranks % coh_profile_pair_ranks(p) != 0)
        return coh_fail(COH_ERR_CORRUPT,
                        "\"pair_ranks\" is %d and \"node_ranks\" %d: give numbers of which the "
                        "first divides the second",
                        p->pair_ranks, p->node_ranks);
    if (p->node_ranks > 0 && (p->link[COH_LANE_COMM0].bytes_per_s.p50 <= 0 ||
                              p->link[COH_LANE_COMM1].bytes_per_s.p50 <= 0))
        return coh_fail(COH_ERR_CORRUPT,
                        "\"node_ranks\" is %d, and \"links\" lacks \"comm0\" or \"comm1\": give "
                        "the links within a node and between nodes",
                        p->node_ranks);
    if (p->link[COH_LINK_PAIR].bytes_per_s.p50 <= 0 || p->link[COH_LANE_COMM0].bytes_per_s.p50 > 0)
        return COH_OK;
    return coh_fail(COH_ERR_CORRUPT, "\"links\" has \"pair\", and no \"comm0\": give the link of "
                                     "the other ranks of a node, too");
}

/* ---- the file ---- */

static const coh_json_field factor_fields[] = {
    { "factor", COH_JSON_REAL, COH_JSON_AT(coh_calibration, factor), .least = 1e-3, .most = 1e3 },
    { "runs", COH_JSON_WHOLE, COH_JSON_AT(coh_calibration, runs), .least = 1, .most = INT32_MAX },
    { "deviation", COH_JSON_REAL, COH_JSON_AT(coh_calibration, deviation), .most = 1e3,
      .rule = COH_JSON_UNLESS_ZERO },
    { 0 },
};

static const char *opcode_name(int op)
{
    return coh_opcode_name((coh_opcode)op);
}

#define BYTES_AT(tier)                                                                             \
    COH_JSON_WHOLE, .offset = (tier) * sizeof(uint64_t), .bytes = sizeof(uint64_t),                \
                    .most = BYTES_MOST

static const coh_json_field roof_fields[] = {
    { "f32", RATE_AT(COH_ROOF_F32 * sizeof(coh_figure)) },
    { "bf16", RATE_AT(COH_ROOF_BF16 * sizeof(coh_figure)) },
    { 0 },
};

static const coh_json_field memory_fields[] = {
    { "device", BYTES_AT(COH_TIER_DEVICE) },
    { "host", BYTES_AT(COH_TIER_HOST) },
    { "disk", BYTES_AT(COH_TIER_DISK) },
    { 0 },
};

#define IN(member) COH_JSON_AT(coh_profile, member)

static const coh_json_field profile_fields[] = {
    { "name", COH_JSON_TEXT, IN(name) },
    { "source", COH_JSON_CHOICE, IN(source), .names = coh_profile_source_names },
    { "machine", COH_JSON_TEXT, IN(machine) },
    { "fingerprint", COH_JSON_HEX, IN(fingerprint) },
    { "date", COH_JSON_TEXT, IN(date) },
    { "device", COH_JSON_CHOICE, IN(device_kind), .names = coh_profile_device_names },
    { "threads", COH_JSON_WHOLE, IN(threads), .least = 1, .most = THREADS_MOST },
    { "flops_per_s", COH_JSON_OBJECT, IN(flops_per_s), .fields = roof_fields },
    { "memory_bytes_per_s", RATE(coh_profile, memory_bytes_per_s) },
    { "line_ns", FIGURE(coh_profile, instruction_ns, 0, NS_MOST) },
    { "host_memory_bytes_per_s", RATE(coh_profile, host_memory_bytes_per_s), .is_null = 1 },
    { "host_update_bytes_per_s", RATE(coh_profile, host_update_bytes_per_s), .is_null = 1 },
    { "host_gpus", COH_JSON_WHOLE, IN(host_gpus), .most = HOST_GPUS_MOST,
      .rule = COH_JSON_UNLESS_ZERO },
    { "links", COH_JSON_MAP, IN(link), .item_bytes = sizeof(coh_link_profile),
      .fields = link_fields, .name_of = link_name, .is_set = is_link, .check = check_link },
    { "pair_ranks", COH_JSON_WHOLE, IN(pair_ranks), .most = COH_REPLICAS_MOST,
      .rule = COH_JSON_UNLESS_ZERO },
    { "node_ranks", COH_JSON_WHOLE, IN(node_ranks), .most = COH_REPLICAS_MOST,
      .rule = COH_JSON_UNLESS_ZERO },
    { "contention", COH_JSON_MAP, IN(contention), .item_bytes = COH_LANE_COUNT * sizeof(double),
      .fields = beside_fields, .name_of = lane_name, .is_set = is_slowed, .check = check_others },
    { "memory_bytes", COH_JSON_OBJECT, IN(memory_bytes), .fields = memory_fields },
    { "memlock_bytes", COH_JSON_LIMIT, IN(memlock_bytes) },
    { "cgroup_bytes", COH_JSON_LIMIT, IN(cgroup_bytes) },
    { "drive_endurance_bytes", COH_JSON_WHOLE, IN(drive_endurance_bytes), .most = BYTES_MOST },
    { "drive", COH_JSON_TEXT, IN(drive), .rule = COH_JSON_UNLESS_ZERO },
    { "operators", COH_JSON_ARRAY, COH_JSON_AT_ARRAY(coh_profile, operators, operator_count),
      .layout = COH_JSON_LINES, .most = COH_PROFILE_OPERATORS_MOST, .fields = operator_fields,
      .check = check_operator },
    { "calibration", COH_JSON_MAP, IN(calibration), .item_bytes = sizeof(coh_calibration),
      .fields = factor_fields, .name_of = opcode_name, .is_set = coh_calibration_is_set },
    { "origins", COH_JSON_ARRAY, COH_JSON_AT_ARRAY(coh_profile, origins, origin_count),
      .layout = COH_JSON_LINES, .most = COH_PROFILE_ORIGINS_MOST, .fields = origin_fields,
      .check = check_form },
    { 0 },
};

static int is_datasheet(const void *profile)
{
    return ((const coh_profile *)profile)->source == COH_PROFILE_DATASHEET;
}

static const coh_json_file profile_file = { .what = "profile",
                                            .format = COH_PROFILE_FORMAT,
                                            .version = COH_PROFILE_VERSION,
                                            .fields = profile_fields,
                                            .remedy = "measure again, or override an entry",
                                            .may_lack_hash = is_datasheet };

coh_status coh_profile_parse(const char *text, size_t bytes, coh_profile *out_profile)
{
    coh_profile_init(out_profile);
    coh_status status = coh_json_file_parse(&profile_file, text, bytes, out_profile);
    if (status == COH_OK)
        status = check_levels(out_profile);
    if (status == COH_OK)
        status = check_origins(out_profile);
    if (status != COH_OK)
        coh_profile_fini(out_profile);
    return status;
}

/* Writes a copy of the profile with its operators in order: into `text`, or only its hash. */
static coh_status with_order(const coh_profile *profile, coh_text *text, uint64_t *out_hash)
{
    coh_profile sorted = *profile;
    if (profile->host_shares > 1) /* the rates are of these shares: no more are taken later */
        sorted.host_gpus = 0;
    COH_TRY(COH_ALLOC(profile->operator_count, &sorted.operators));
    if (profile->operator_count > 0)
        memcpy(sorted.operators, profile->operators,
               profile->operator_count * sizeof(*sorted.operators));
    qsort(sorted.operators, sorted.operator_count, sizeof(*sorted.operators), by_order);
    coh_status status = text != NULL ? coh_json_file_add(&profile_file, &sorted, text)
                                     : coh_json_file_hash(&profile_file, &sorted, out_hash);
    coh_free(sorted.operators);
    return status;
}

coh_status coh_profile_add_text(const coh_profile *profile, coh_text *text)
{
    return with_order(profile, text, NULL);
}

coh_status coh_profile_hash(const coh_profile *profile, uint64_t *out_hash)
{
    *out_hash = 0;
    return with_order(profile, NULL, out_hash);
}
