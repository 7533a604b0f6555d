/* Parses a profile strictly: every member must be present, no others may be, every number is in its
 * range and every list in its order. Files end with a seal (json_read.c); profile_write.c writes
 * the same form. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "planner/json_read.h"
#include "planner/profile_file.h"

/* Beyond any machine: times from such figures add up within 64 bits, except for programs that
 * nobody could run. */
#define NS_MOST      1e13
#define STEAL_MOST   1e6
#define SECONDS_MOST 1e4
#define WORK_MOST    1e30 /* flops or bytes of a sample */
#define DEPTH_MOST   64   /* pieces that a ring of the store holds: no drive is served deeper */
#define THREADS_MOST 65536

/* ---- figures ---- */

static int is_number(const json_t *value, double least, double most)
{
    return json_is_number(value) && json_number_value(value) >= least &&
           json_number_value(value) <= most;
}

/* Reads a number, or [p10, p50, p90, samples], each within `least` and `most`. */
static coh_status get_figure(const json_t *object, const char *key, double least, double most,
                             coh_figure *out_figure)
{
    const json_t *value = json_object_get(object, key);
    if (value == NULL)
        return coh_fail(COH_ERR_CORRUPT, "\"%s\" is missing", key);
    if (is_number(value, least, most)) {
        *out_figure = coh_figure_of(json_number_value(value));
        return COH_OK;
    }
    double parts[3];
    const json_t *samples = json_array_get(value, 3);
    int good = json_array_size(value) == 4 && json_is_integer(samples) &&
               json_integer_value(samples) >= 1 && json_integer_value(samples) <= UINT32_MAX;
    for (size_t i = 0; i < 3 && good; i++) {
        good = is_number(json_array_get(value, i), least, most);
        parts[i] = json_number_value(json_array_get(value, i));
    }
    if (!good)
        return coh_fail(COH_ERR_CORRUPT,
                        "\"%s\" is neither a number from %g to %g nor [p10, p50, p90, samples]",
                        key, least, most);
    if (parts[1] > 0 && parts[0] <= 0)
        return coh_fail(COH_ERR_CORRUPT, "the tenth of \"%s\" is 0, its median is not", key);
    if (parts[0] > parts[1] || parts[1] > parts[2])
        return coh_fail(COH_ERR_CORRUPT, "the parts of \"%s\" do not rise", key);
    *out_figure = (coh_figure){ .p10 = parts[0],
                                .p50 = parts[1],
                                .p90 = parts[2],
                                .samples = (uint32_t)json_integer_value(samples) };
    return COH_OK;
}

static coh_status get_rate(const json_t *object, const char *key, coh_figure *out_figure)
{
    return get_figure(object, key, COH_PROFILE_RATE_LEAST, COH_PROFILE_RATE_MOST, out_figure);
}

/* Reads a rate; 0: none. */
static coh_status get_rate_or_none(const json_t *object, const char *key, coh_figure *out_figure)
{
    if (json_is_number(json_object_get(object, key)) &&
        json_number_value(json_object_get(object, key)) == 0) {
        *out_figure = coh_figure_of(0);
        return COH_OK;
    }
    return get_rate(object, key, out_figure);
}

static coh_status get_rates(const json_t *root, coh_profile *p)
{
    static const char *const known[] = { "f32", "bf16", NULL };
    const json_t *flops = json_object_get(root, "flops_per_s");
    COH_TRY(coh_json_only_known(flops, "\"flops_per_s\"", known));
    COH_TRY(get_rate(flops, "f32", &p->flops_per_s[COH_ROOF_F32]));
    COH_TRY(get_rate(flops, "bf16", &p->flops_per_s[COH_ROOF_BF16]));
    COH_TRY(get_rate(root, "memory_bytes_per_s", &p->memory_bytes_per_s));
    COH_TRY(get_figure(root, "line_ns", 0, NS_MOST, &p->line_ns));
    COH_TRY(get_rate_or_none(root, "host_memory_bytes_per_s", &p->host_memory_bytes_per_s));
    return get_rate_or_none(root, "host_update_bytes_per_s", &p->host_update_bytes_per_s);
}

/* ---- lanes ---- */

static int lane_of(const char *name)
{
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        if (strcmp(coh_lane_name((coh_lane)lane), name) == 0)
            return lane;
    return -1;
}

static coh_status get_link(const json_t *value, coh_link_profile *link)
{
    static const char *const known[] = { "latency_ns", "bytes_per_s", "sustained_bytes_per_s",
                                         "depth",      "steal_ns",    "steal_ns_per_byte",
                                         NULL };
    int64_t depth = 0;
    COH_TRY(coh_json_only_known(value, "it", known));
    COH_TRY(get_figure(value, "latency_ns", 0, NS_MOST, &link->latency_ns));
    COH_TRY(get_rate(value, "bytes_per_s", &link->bytes_per_s));
    if (json_object_get(value, "sustained_bytes_per_s"))
        COH_TRY(get_rate(value, "sustained_bytes_per_s", &link->sustained_bytes_per_s));
    COH_TRY(coh_json_get_integer(value, "depth", 1, DEPTH_MOST, &depth));
    link->depth = (uint32_t)depth;
    if (json_object_get(value, "steal_ns") == NULL &&
        json_object_get(value, "steal_ns_per_byte") == NULL)
        return COH_OK;
    COH_TRY(coh_json_get_real(value, "steal_ns", 0, NS_MOST, &link->steal_ns));
    return coh_json_get_real(value, "steal_ns_per_byte", 0, STEAL_MOST, &link->steal_ns_per_byte);
}

static coh_status get_links(const json_t *root, coh_profile *p)
{
    const json_t *links = json_object_get(root, "links");
    const char *key = NULL;
    json_t *value = NULL;
    if (!json_is_object(links))
        return coh_fail(COH_ERR_CORRUPT, "\"links\" is missing or not an object");
    json_object_foreach((json_t *)(uintptr_t)links, key, value)
    {
        int lane = lane_of(key);
        if (lane <= COH_LANE_COMPUTE || lane == COH_LANE_HOST)
            return coh_fail(COH_ERR_CORRUPT, "\"links\" names \"%.40s\", which is no link", key);
        if (get_link(value, &p->link[lane]) != COH_OK)
            return coh_fail_prefix(COH_ERR_CORRUPT, "\"links\", \"%s\"", key);
    }
    return COH_OK;
}

static coh_status get_beside(int lane, const json_t *row, coh_profile *p)
{
    const char *key = NULL;
    json_t *value = NULL;
    if (!json_is_object(row))
        return coh_fail(COH_ERR_CORRUPT, "it is not an object");
    json_object_foreach((json_t *)(uintptr_t)row, key, value)
    {
        int beside = lane_of(key);
        if (beside < 0 || beside == lane)
            return coh_fail(COH_ERR_CORRUPT, "\"%.40s\" is no other lane", key);
        COH_TRY(
            coh_json_get_real(row, key, COH_PROFILE_PART_LEAST, 1, &p->contention[lane][beside]));
    }
    return COH_OK;
}

static coh_status get_contention(const json_t *root, coh_profile *p)
{
    const json_t *rows = json_object_get(root, "contention");
    const char *key = NULL;
    json_t *value = NULL;
    if (!json_is_object(rows))
        return coh_fail(COH_ERR_CORRUPT, "\"contention\" is missing or not an object");
    json_object_foreach((json_t *)(uintptr_t)rows, key, value)
    {
        int lane = lane_of(key);
        if (lane < 0)
            return coh_fail(COH_ERR_CORRUPT, "\"contention\" names \"%.40s\", which is no lane",
                            key);
        if (get_beside(lane, value, p) != COH_OK)
            return coh_fail_prefix(COH_ERR_CORRUPT, "\"contention\", \"%s\"", key);
    }
    return COH_OK;
}

/* ---- memory ---- */

static coh_status get_bytes(const json_t *object, const char *key, uint64_t *out_bytes)
{
    int64_t bytes = 0;
    COH_TRY(coh_json_get_integer(object, key, 0, INT64_MAX, &bytes));
    *out_bytes = (uint64_t)bytes;
    return COH_OK;
}

static coh_status get_limit(const json_t *root, const char *key, uint64_t *out_bytes)
{
    if (json_is_null(json_object_get(root, key))) {
        *out_bytes = UINT64_MAX;
        return COH_OK;
    }
    return get_bytes(root, key, out_bytes);
}

static coh_status get_room(const json_t *root, coh_profile *p)
{
    static const char *const known[] = { "device", "host", "disk", NULL };
    const json_t *memory = json_object_get(root, "memory_bytes");
    COH_TRY(coh_json_only_known(memory, "\"memory_bytes\"", known));
    for (int tier = 0; tier < COH_TIER_COUNT; tier++)
        COH_TRY(get_bytes(memory, known[tier], &p->memory_bytes[tier]));
    COH_TRY(get_limit(root, "memlock_bytes", &p->memlock_bytes));
    COH_TRY(get_limit(root, "cgroup_bytes", &p->cgroup_bytes));
    COH_TRY(get_bytes(root, "drive_endurance_bytes", &p->drive_endurance_bytes));
    if (json_object_get(root, "drive") == NULL)
        return COH_OK;
    return coh_json_get_text(root, "drive", p->drive, sizeof(p->drive));
}

/* ---- operators ---- */

static coh_status get_sample(const json_t *value, coh_operator_sample *sample)
{
    static const char *const known[] = { "flops", "bytes", "seconds", NULL };
    COH_TRY(coh_json_only_known(value, "it", known));
    COH_TRY(coh_json_get_real(value, "flops", 0, WORK_MOST, &sample->flops));
    COH_TRY(coh_json_get_real(value, "bytes", 0, WORK_MOST, &sample->bytes));
    return get_figure(value, "seconds", 1e-12, SECONDS_MOST, &sample->seconds);
}

static double work_of(const coh_profile *p, const coh_operator_times *o, uint32_t index)
{
    const coh_operator_sample *s = &o->samples[index];
    return coh_profile_work(p, o->dtype == COH_DTYPE_BF16, s->flops, s->bytes);
}

static coh_status get_samples(const json_t *list, const coh_profile *p, coh_operator_times *o)
{
    size_t count = json_array_size(list);
    if (count < 1 || count > COH_PROFILE_SAMPLES_MOST)
        return coh_fail(COH_ERR_CORRUPT, "\"samples\" is not a list of 1 to %d",
                        COH_PROFILE_SAMPLES_MOST);
    COH_TRY(COH_ALLOC(count, &o->samples));
    o->sample_count = (uint32_t)count;
    for (uint32_t i = 0; i < count; i++) {
        if (get_sample(json_array_get(list, i), &o->samples[i]) != COH_OK)
            return coh_fail_prefix(COH_ERR_CORRUPT, "sample %" PRIu32, i);
        if (i > 0 && !(work_of(p, o, i) > work_of(p, o, i - 1)))
            return coh_fail(COH_ERR_CORRUPT,
                            "sample %" PRIu32 " is no more work than the one before it", i);
    }
    return COH_OK;
}

static coh_status get_operator(const json_t *value, const coh_profile *p, coh_operator_times *o)
{
    static const char *const known[] = { "kind",      "dtype", "phase",   "lane",
                                         "signature", "shape", "samples", NULL };
    static const char *const lanes[] = { "compute", "host", NULL };
    int32_t dtype = 0, phase = 0, lane = 0;
    COH_TRY(coh_json_only_known(value, "it", known));
    COH_TRY(coh_json_get_text(value, "kind", o->kind, sizeof(o->kind)));
    COH_TRY(coh_json_get_choice(value, "dtype", coh_profile_dtype_names, &dtype));
    COH_TRY(coh_json_get_choice(value, "phase", coh_profile_phase_names, &phase));
    COH_TRY(coh_json_get_choice(value, "lane", lanes, &lane));
    COH_TRY(coh_json_get_quoted(value, "signature", 16, &o->signature));
    COH_TRY(coh_json_get_text(value, "shape", o->shape, sizeof(o->shape)));
    o->dtype = (coh_dtype)dtype;
    o->phase = (uint8_t)phase;
    o->lane = lane == 0 ? COH_LANE_COMPUTE : COH_LANE_HOST;
    return get_samples(json_object_get(value, "samples"), p, o);
}

static coh_status get_operators(const json_t *root, coh_profile *p)
{
    const json_t *list = json_object_get(root, "operators");
    size_t count = json_array_size(list);
    if (!json_is_array(list) || count > COH_PROFILE_OPERATORS_MOST)
        return coh_fail(COH_ERR_CORRUPT, "\"operators\" is not a list of at most %d",
                        COH_PROFILE_OPERATORS_MOST);
    COH_TRY(COH_ALLOC(count, &p->operators));
    p->operator_count = (uint32_t)count;
    for (uint32_t i = 0; i < count; i++) {
        coh_status status = get_operator(json_array_get(list, i), p, &p->operators[i]);
        if (status != COH_OK)
            return coh_fail_prefix(status, "operator %" PRIu32, i);
        if (i > 0 && coh_operator_times_order(&p->operators[i - 1], &p->operators[i]) >= 0)
            return coh_fail(COH_ERR_CORRUPT,
                            "operator %" PRIu32 " does not follow the one before "
                            "it: they rise, and none is there twice",
                            i);
    }
    return COH_OK;
}

/* ---- the rest ---- */

static coh_status get_calibration(const json_t *root, coh_profile *p)
{
    static const char *const known[] = { "factor", "runs", NULL };
    const char *names[COH_OP_COUNT + 1] = { NULL };
    const json_t *classes = json_object_get(root, "calibration");
    for (int op = 0; op < COH_OP_COUNT; op++)
        names[op] = coh_opcode_name((coh_opcode)op);
    COH_TRY(coh_json_only_known(classes, "\"calibration\"", names));
    for (int op = 0; op < COH_OP_COUNT; op++) {
        const json_t *value = json_object_get(classes, names[op]);
        int64_t runs = 0;
        if (value == NULL)
            continue;
        COH_TRY(coh_json_only_known(value, "a factor of \"calibration\"", known));
        COH_TRY(coh_json_get_real(value, "factor", 1e-3, 1e3, &p->calibration[op].factor));
        COH_TRY(coh_json_get_integer(value, "runs", 1, INT32_MAX, &runs));
        p->calibration[op].runs = (uint32_t)runs;
    }
    return COH_OK;
}

static coh_status get_origin(const json_t *value, coh_profile_origin *origin)
{
    static const char *const known[] = { "of", "published", "assumed", NULL };
    COH_TRY(coh_json_only_known(value, "it", known));
    COH_TRY(coh_json_get_text(value, "of", origin->of, sizeof(origin->of)));
    origin->is_assumed = json_object_get(value, "assumed") != NULL;
    if (origin->is_assumed && json_object_get(value, "published"))
        return coh_fail(COH_ERR_CORRUPT, "it is both \"published\" and \"assumed\"");
    return coh_json_get_text(value, origin->is_assumed ? "assumed" : "published", origin->text,
                             sizeof(origin->text));
}

static coh_status get_origins(const json_t *root, coh_profile *p)
{
    const json_t *list = json_object_get(root, "origins");
    size_t count = json_array_size(list);
    if (!json_is_array(list) || count > COH_PROFILE_ORIGINS_MOST)
        return coh_fail(COH_ERR_CORRUPT, "\"origins\" is not a list of at most %d",
                        COH_PROFILE_ORIGINS_MOST);
    COH_TRY(COH_ALLOC(count, &p->origins));
    p->origin_count = (uint32_t)count;
    for (uint32_t i = 0; i < count; i++)
        if (get_origin(json_array_get(list, i), &p->origins[i]) != COH_OK)
            return coh_fail_prefix(COH_ERR_CORRUPT, "origin %" PRIu32, i);
    return COH_OK;
}

static coh_status check_origin(const coh_profile *p, int is_needed, const char *of)
{
    for (uint32_t i = 0; i < p->origin_count; i++)
        if (strcmp(p->origins[i].of, of) == 0)
            return COH_OK;
    if (!is_needed)
        return COH_OK;
    return coh_fail(COH_ERR_CORRUPT,
                    "a datasheet, and \"origins\" does not say where \"%s\" comes "
                    "from",
                    of);
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
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        snprintf(of, sizeof(of), "links.%s", coh_lane_name((coh_lane)lane));
        COH_TRY(check_origin(p, p->link[lane].bytes_per_s.p50 > 0, of));
    }
    COH_TRY(check_origin(p, p->memory_bytes[COH_TIER_DEVICE] > 0, "memory_bytes.device"));
    COH_TRY(check_origin(p, p->memory_bytes[COH_TIER_HOST] > 0, "memory_bytes.host"));
    COH_TRY(check_origin(p, p->memory_bytes[COH_TIER_DISK] > 0, "memory_bytes.disk"));
    return check_origin(p, p->drive_endurance_bytes > 0, "drive_endurance_bytes");
}

static coh_status get_head(const json_t *root, coh_profile *p)
{
    static const char *const known[] = { "format",
                                         "version",
                                         "name",
                                         "source",
                                         "machine",
                                         "fingerprint",
                                         "date",
                                         "device",
                                         "threads",
                                         "flops_per_s",
                                         "memory_bytes_per_s",
                                         "line_ns",
                                         "host_memory_bytes_per_s",
                                         "host_update_bytes_per_s",
                                         "links",
                                         "contention",
                                         "memory_bytes",
                                         "memlock_bytes",
                                         "cgroup_bytes",
                                         "drive_endurance_bytes",
                                         "drive",
                                         "operators",
                                         "calibration",
                                         "origins",
                                         "file_hash",
                                         NULL };
    int32_t source = 0;
    int64_t threads = 0;
    COH_TRY(coh_json_check_format(root, "profile", COH_PROFILE_FORMAT, COH_PROFILE_VERSION));
    COH_TRY(coh_json_only_known(root, "the file", known));
    COH_TRY(coh_json_get_text(root, "name", p->name, sizeof(p->name)));
    COH_TRY(coh_json_get_choice(root, "source", coh_profile_source_names, &source));
    COH_TRY(coh_json_get_text(root, "machine", p->machine, sizeof(p->machine)));
    COH_TRY(coh_json_get_quoted(root, "fingerprint", 16, &p->fingerprint));
    COH_TRY(coh_json_get_text(root, "date", p->date, sizeof(p->date)));
    COH_TRY(coh_json_get_choice(root, "device", coh_profile_device_names, &p->device_kind));
    COH_TRY(coh_json_get_integer(root, "threads", 1, THREADS_MOST, &threads));
    p->source = (coh_profile_source)source;
    p->threads = (int32_t)threads;
    return COH_OK;
}

static coh_status get_profile(const json_t *root, coh_profile *p)
{
    COH_TRY(get_head(root, p));
    COH_TRY(get_rates(root, p));
    COH_TRY(get_links(root, p));
    COH_TRY(get_contention(root, p));
    COH_TRY(get_room(root, p));
    COH_TRY(get_operators(root, p));
    COH_TRY(get_calibration(root, p));
    COH_TRY(get_origins(root, p));
    return check_origins(p);
}

coh_status coh_profile_parse(const char *text, size_t bytes, coh_profile *out_profile)
{
    json_t *root = NULL;
    coh_profile_init(out_profile);
    COH_TRY(coh_json_parse_sealed(text, bytes, &root));
    coh_status status = get_profile(root, out_profile);
    int is_unsealed =
        out_profile->source == COH_PROFILE_DATASHEET && json_object_get(root, "file_hash") == NULL;
    if (status == COH_OK && !is_unsealed)
        status = coh_json_check_seal(root, text, bytes, "measure again, or override an entry");
    json_decref(root);
    if (status != COH_OK)
        coh_profile_fini(out_profile);
    return status;
}
