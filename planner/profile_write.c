/* Writes a profile as text in its canonical form, so that equal profiles give equal bytes and
 * hashes. profile_read.c parses it; the limits are in profile_file.h. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "planner/json_read.h"
#include "planner/profile_file.h"

const char *const coh_profile_source_names[] = { [COH_PROFILE_BUILT_IN] = "built-in",
                                                 [COH_PROFILE_DATASHEET] = "datasheet",
                                                 [COH_PROFILE_MEASURED] = "measured",
                                                 NULL };
const char *const coh_profile_device_names[] = {
    [COH_DEVICE_HOST] = "host", [COH_DEVICE_CUDA] = "gpu", NULL
};
const char *const coh_profile_dtype_names[] = { [COH_DTYPE_F32] = "f32",
                                                [COH_DTYPE_BF16] = "bf16",
                                                [COH_DTYPE_F16] = "f16",
                                                [COH_DTYPE_I32] = "i32",
                                                NULL };
const char *const coh_profile_phase_names[] = {
    [COH_PHASE_FORWARD] = "forward", [COH_PHASE_BACKWARD] = "backward", NULL
};

/* Writes a figure; one without a spread is a single number. */
static coh_status add_figure(coh_text *text, const coh_figure *figure)
{
    if (figure->samples == 0)
        return coh_text_add_number(text, figure->p50);
    const double parts[] = { figure->p10, figure->p50, figure->p90 };
    for (int i = 0; i < 3; i++) {
        COH_TRY(coh_text_add(text, i ? ", " : "["));
        COH_TRY(coh_text_add_number(text, parts[i]));
    }
    return coh_text_add(text, ", %" PRIu32 "]", figure->samples);
}

static coh_status add_member(coh_text *text, const char *before, const char *key,
                             const coh_figure *figure)
{
    COH_TRY(coh_text_add(text, "%s\"%s\": ", before, key));
    return add_figure(text, figure);
}

static coh_status add_quoted_member(coh_text *text, const char *key, const char *value)
{
    COH_TRY(coh_text_add(text, "  \"%s\": ", key));
    COH_TRY(coh_text_add_quoted(text, value));
    return coh_text_add(text, ",\n");
}

/* Writes a number of bytes that may be unlimited. */
static coh_status add_limit(coh_text *text, const char *key, uint64_t bytes)
{
    if (bytes > INT64_MAX)
        return coh_text_add(text, "  \"%s\": null,\n", key);
    return coh_text_add(text, "  \"%s\": %" PRIu64 ",\n", key, bytes);
}

static coh_status add_head(coh_text *text, const coh_profile *p)
{
    COH_TRY(coh_text_add(text, "{\n  \"format\": \"%s\",\n  \"version\": %d,\n", COH_PROFILE_FORMAT,
                         COH_PROFILE_VERSION));
    COH_TRY(add_quoted_member(text, "name", p->name));
    COH_TRY(add_quoted_member(text, "source", coh_profile_source_names[p->source]));
    COH_TRY(add_quoted_member(text, "machine", p->machine));
    COH_TRY(coh_text_add(text, "  \"fingerprint\": \"%016" PRIx64 "\",\n", p->fingerprint));
    COH_TRY(add_quoted_member(text, "date", p->date));
    COH_TRY(add_quoted_member(text, "device", coh_profile_device_names[p->device_kind]));
    return coh_text_add(text, "  \"threads\": %" PRId32, p->threads);
}

static coh_status add_rates(coh_text *text, const coh_profile *p)
{
    COH_TRY(add_member(text, ",\n  \"flops_per_s\": {", "f32", &p->flops_per_s[COH_ROOF_F32]));
    COH_TRY(add_member(text, ", ", "bf16", &p->flops_per_s[COH_ROOF_BF16]));
    COH_TRY(add_member(text, "},\n  ", "memory_bytes_per_s", &p->memory_bytes_per_s));
    COH_TRY(add_member(text, ",\n  ", "line_ns", &p->line_ns));
    COH_TRY(add_member(text, ",\n  ", "host_memory_bytes_per_s", &p->host_memory_bytes_per_s));
    return add_member(text, ",\n  ", "host_update_bytes_per_s", &p->host_update_bytes_per_s);
}

static coh_status add_steal(coh_text *text, const coh_link_profile *link)
{
    if (!(link->steal_ns > 0 || link->steal_ns_per_byte > 0))
        return COH_OK;
    COH_TRY(coh_text_add(text, ", \"steal_ns\": "));
    COH_TRY(coh_text_add_number(text, link->steal_ns));
    COH_TRY(coh_text_add(text, ", \"steal_ns_per_byte\": "));
    return coh_text_add_number(text, link->steal_ns_per_byte);
}

static coh_status add_links(coh_text *text, const coh_profile *p)
{
    const char *comma = "";
    COH_TRY(coh_text_add(text, ",\n  \"links\": {"));
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        const coh_link_profile *link = &p->link[lane];
        if (link->bytes_per_s.p50 <= 0)
            continue;
        COH_TRY(coh_text_add(text, "%s\n    \"%s\": {", comma, coh_lane_name((coh_lane)lane)));
        COH_TRY(add_member(text, "", "latency_ns", &link->latency_ns));
        COH_TRY(add_member(text, ", ", "bytes_per_s", &link->bytes_per_s));
        if (link->sustained_bytes_per_s.p50 > 0)
            COH_TRY(add_member(text, ", ", "sustained_bytes_per_s", &link->sustained_bytes_per_s));
        COH_TRY(coh_text_add(text, ", \"depth\": %" PRIu32, link->depth));
        COH_TRY(add_steal(text, link));
        COH_TRY(coh_text_add(text, "}"));
        comma = ",";
    }
    return coh_text_add(text, "\n  },\n");
}

/* Writes the pairs of lanes that slow one another and omits all others. */
static coh_status add_contention(coh_text *text, const coh_profile *p)
{
    const char *comma = "";
    COH_TRY(coh_text_add(text, "  \"contention\": {"));
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        const char *inner = "";
        for (int beside = 0; beside < COH_LANE_COUNT; beside++) {
            if (beside == lane || p->contention[lane][beside] == 1)
                continue;
            if (inner[0] == '\0')
                COH_TRY(
                    coh_text_add(text, "%s\n    \"%s\": {", comma, coh_lane_name((coh_lane)lane)));
            COH_TRY(coh_text_add(text, "%s\"%s\": ", inner, coh_lane_name((coh_lane)beside)));
            COH_TRY(coh_text_add_number(text, p->contention[lane][beside]));
            inner = ", ";
        }
        if (inner[0] != '\0') {
            COH_TRY(coh_text_add(text, "}"));
            comma = ",";
        }
    }
    return coh_text_add(text, "\n  },\n");
}

static coh_status add_room(coh_text *text, const coh_profile *p)
{
    COH_TRY(coh_text_add(text,
                         "  \"memory_bytes\": {\"device\": %" PRIu64 ", \"host\": %" PRIu64
                         ", \"disk\": %" PRIu64 "},\n",
                         p->memory_bytes[COH_TIER_DEVICE], p->memory_bytes[COH_TIER_HOST],
                         p->memory_bytes[COH_TIER_DISK]));
    COH_TRY(add_limit(text, "memlock_bytes", p->memlock_bytes));
    COH_TRY(add_limit(text, "cgroup_bytes", p->cgroup_bytes));
    COH_TRY(coh_text_add(text, "  \"drive_endurance_bytes\": %" PRIu64 ",\n",
                         p->drive_endurance_bytes));
    if (p->drive[0] == '\0')
        return COH_OK;
    COH_TRY(coh_text_add(text, "  \"drive\": "));
    COH_TRY(coh_text_add_quoted(text, p->drive));
    return coh_text_add(text, ",\n");
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
    return coh_operator_times_order(*(const coh_operator_times *const *)a,
                                    *(const coh_operator_times *const *)b);
}

static coh_status add_operator(coh_text *text, const coh_operator_times *o)
{
    COH_TRY(coh_text_add(text, "\n    {\"kind\": "));
    COH_TRY(coh_text_add_quoted(text, o->kind));
    COH_TRY(coh_text_add(text,
                         ", \"dtype\": \"%s\", \"phase\": \"%s\", \"lane\": \"%s\", \"signature\": "
                         "\"%016" PRIx64 "\", \"shape\": ",
                         coh_profile_dtype_names[o->dtype], coh_profile_phase_names[o->phase],
                         coh_lane_name((coh_lane)o->lane), o->signature));
    COH_TRY(coh_text_add_quoted(text, o->shape));
    COH_TRY(coh_text_add(text, ", \"samples\": ["));
    for (uint32_t i = 0; i < o->sample_count; i++) {
        const coh_operator_sample *s = &o->samples[i];
        COH_TRY(coh_text_add(text, "%s\n      {\"flops\": ", i ? "," : ""));
        COH_TRY(coh_text_add_number(text, s->flops));
        COH_TRY(coh_text_add(text, ", \"bytes\": "));
        COH_TRY(coh_text_add_number(text, s->bytes));
        COH_TRY(add_member(text, ", ", "seconds", &s->seconds));
        COH_TRY(coh_text_add(text, "}"));
    }
    return coh_text_add(text, "]}");
}

static coh_status add_operators(coh_text *text, const coh_profile *p)
{
    const coh_operator_times **sorted = NULL;
    coh_status status = COH_OK;
    COH_TRY(COH_ALLOC(p->operator_count, &sorted));
    for (uint32_t i = 0; i < p->operator_count; i++)
        sorted[i] = &p->operators[i];
    if (p->operator_count > 0)
        qsort((void *)sorted, p->operator_count, sizeof(*sorted), by_order);
    COH_TRY_GOTO(status, coh_text_add(text, "  \"operators\": ["), done);
    for (uint32_t i = 0; i < p->operator_count; i++) {
        COH_TRY_GOTO(status, coh_text_add(text, i ? "," : ""), done);
        COH_TRY_GOTO(status, add_operator(text, sorted[i]), done);
    }
    status = coh_text_add(text, "\n  ],\n");
done:
    coh_free((void *)sorted);
    return status;
}

/* ---- the rest ---- */

static coh_status add_calibration(coh_text *text, const coh_profile *p)
{
    const char *comma = "";
    COH_TRY(coh_text_add(text, "  \"calibration\": {"));
    for (int op = 0; op < COH_OP_COUNT; op++) {
        const coh_calibration *c = &p->calibration[op];
        if (c->runs == 0)
            continue;
        COH_TRY(coh_text_add(text, "%s\n    \"%s\": {\"factor\": ", comma,
                             coh_opcode_name((coh_opcode)op)));
        COH_TRY(coh_text_add_number(text, c->factor));
        COH_TRY(coh_text_add(text, ", \"runs\": %" PRIu32 "}", c->runs));
        comma = ",";
    }
    return coh_text_add(text, "\n  },\n");
}

static coh_status add_origins(coh_text *text, const coh_profile *p)
{
    COH_TRY(coh_text_add(text, "  \"origins\": ["));
    for (uint32_t i = 0; i < p->origin_count; i++) {
        const coh_profile_origin *o = &p->origins[i];
        COH_TRY(coh_text_add(text, "%s\n    {\"of\": ", i ? "," : ""));
        COH_TRY(coh_text_add_quoted(text, o->of));
        COH_TRY(coh_text_add(text, ", \"%s\": ", o->is_assumed ? "assumed" : "published"));
        COH_TRY(coh_text_add_quoted(text, o->text));
        COH_TRY(coh_text_add(text, "}"));
    }
    return coh_text_add(text, "\n  ],\n");
}

static coh_status add_unsealed(coh_text *text, const coh_profile *profile)
{
    static coh_status (*const parts[])(coh_text *, const coh_profile *) = {
        add_head, add_rates,     add_links,       add_contention,
        add_room, add_operators, add_calibration, add_origins,
    };
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        COH_TRY(parts[i](text, profile));
    return COH_OK;
}

coh_status coh_profile_add_text(const coh_profile *profile, coh_text *text)
{
    COH_TRY(add_unsealed(text, profile));
    return coh_json_add_seal(text);
}

coh_status coh_profile_hash(const coh_profile *profile, uint64_t *out_hash)
{
    coh_text text = { 0 };
    coh_status status = add_unsealed(&text, profile);
    *out_hash = status == COH_OK ? XXH3_64bits(text.data, text.bytes) : 0;
    coh_text_fini(&text);
    return status;
}
