/* Reads and writes plan.json: the decisions that a plan can be rebuilt from, and its predictions.
 * Written in one canonical form and read strictly; the rebuilt program must have the hash given in
 * the file (plan_file_rebuild.c). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/file_text.h"
#include "planner/json_read.h"
#include "planner/plan_file.h"
#include "planner/plan_make.h"
#include "planner/profile_file.h"
#include "planner/residency.h"

#define FORMAT_NAME     "cohobate plan"
#define FORMAT_VERSION  5
#define FILE_BYTES_MOST ((uint64_t)1 << 30)

/* ---- writing ---- */

/* Writes the profile that priced the plan: another profile has other depths, which give another
 * program. */
static coh_status write_profile(coh_text *text, const coh_profile *profile)
{
    uint64_t hash;
    COH_TRY(coh_profile_hash(profile, &hash));
    COH_TRY(coh_text_add(text, "  \"profile\": {\"name\": "));
    COH_TRY(coh_text_add_quoted(text, profile->name));
    return coh_text_add(text, ", \"device\": \"%s\", \"hash\": \"%016" PRIx64 "\"},\n",
                        coh_profile_device_names[profile->device_kind], hash);
}

static coh_status write_pins(coh_text *text, const coh_plan *plan)
{
    COH_TRY(coh_text_add(text, "  \"pins\": ["));
    for (int32_t i = 0; i < plan->options.pin_count; i++) {
        char pin[COH_PIN_TARGET_BYTES + 16];
        snprintf(pin, sizeof(pin), "%s=%s", plan->pins[i].target,
                 coh_pin_place_name(plan->pins[i].place));
        COH_TRY(coh_text_add(text, "%s", i > 0 ? ", " : ""));
        COH_TRY(coh_text_add_quoted(text, pin));
    }
    return coh_text_add(text, "],\n");
}

/* Writes the optimizers that differ from the default: ["PATTERN=NAME", ..., "NAME"]. */
static coh_status write_optimizers(coh_text *text, const coh_plan_options *o)
{
    if (o->mode != COH_PLAN_TRAIN || (o->optimizer[0] == '\0' && o->optimizer_choice_count == 0))
        return COH_OK;
    COH_TRY(coh_text_add(text, "  \"optimizers\": ["));
    for (int32_t i = 0; i < o->optimizer_choice_count; i++) {
        char choice[COH_PATTERN_BYTES + COH_OPTIMIZER_NAME_BYTES];
        snprintf(choice, sizeof(choice), "%s=%s", o->optimizer_choices[i].pattern,
                 o->optimizer_choices[i].optimizer);
        COH_TRY(coh_text_add_quoted(text, choice));
        COH_TRY(coh_text_add(text, ", "));
    }
    COH_TRY(coh_text_add_quoted(text, o->optimizer[0] != '\0' ? o->optimizer : "adamw"));
    return coh_text_add(text, "],\n");
}

static coh_status write_decisions(coh_text *text, const coh_plan *plan)
{
    const coh_decisions *d = &plan->decisions;
    const coh_plan_options *o = &plan->options;
    COH_TRY(coh_text_add(text,
                         "{\n  \"format\": \"%s\",\n  \"version\": %d,\n  \"builder\": %d,\n"
                         "  \"numeric_fingerprint\": \"%016" PRIx64 "\",\n"
                         "  \"program_hash\": \"%016" PRIx64 "\",\n",
                         FORMAT_NAME, FORMAT_VERSION, COH_PLAN_BUILDER_VERSION,
                         plan->numeric_fingerprint, plan->program_hash));
    COH_TRY(coh_text_add(text,
                         "  \"options\": {\"mode\": \"%s\", \"microbatch_count\": %d, "
                         "\"sweep_order\": \"%s\", "
                         "\"deferred_update\": %d, %s%s\"emulate_host_bytes\": \"%" PRIu64
                         "\", \"disk_bytes\": \"%" PRIu64 "\", \"link_bytes_per_s\": %.17g},\n",
                         o->mode == COH_PLAN_TRAIN ? "train" : "infer", o->microbatch_count,
                         coh_sweep_order_name(o->sweep_order), o->deferred_update,
                         o->f32_gradients ? "\"f32_gradients\": 1, " : "",
                         coh_graph_has_atomics(plan->graph) ? "\"atomics\": 1, " : "",
                         o->emulate_host_bytes, o->disk_bytes, o->link_bytes_per_s));
    COH_TRY(coh_text_add(
        text,
        "  \"decisions\": {\"device_bytes\": \"%" PRIu64 "\", \"chunk_bytes\": %" PRIu64
        ", \"in_memory\": %d, \"cache\": %d, \"row_passes\": %d, \"slices\": %d, "
        "\"tie_break\": %d, \"patient\": %d, \"boundary\": %d, \"horizon\": %d, "
        "\"host_updates\": %d, \"resident\": %d, \"patterns\": \"",
        d->device_bytes, d->chunk_bytes, d->in_memory, d->cache, d->row_passes, d->slices,
        d->tie_break, d->patient, d->boundary, d->horizon, d->host_updates, d->resident));
    COH_TRY(coh_pattern_choice_write(&d->patterns, text));
    COH_TRY(coh_text_add(text, "\", \"recompute\": \""));
    COH_TRY(coh_block_set_write(&d->recompute, text));
    COH_TRY(coh_text_add(text, "\"},\n"));
    COH_TRY(write_optimizers(text, o));
    return write_pins(text, plan);
}

static coh_status write_predictions(coh_text *text, const coh_plan *plan)
{
    coh_plan_summary s;
    COH_TRY(coh_plan_summarize(plan, &s));
    COH_TRY(coh_text_add(text,
                         "  \"predictions\": {\"peak_device_bytes\": %" PRIu64
                         ", \"peak_host_bytes\": %" PRIu64 ", \"disk_bytes\": %" PRIu64
                         ", \"step_ns\": %" PRIu64 ", \"bound_ns\": %" PRIu64
                         ", \"smallest_device_bytes\": %" PRIu64 ", \"lines\": %u},\n",
                         s.peak_bytes[0], s.peak_bytes[1], s.peak_bytes[2], s.step_ns, s.bound_ns,
                         s.smallest_device_bytes, s.line_count));
    COH_TRY(coh_text_add(text, "  \"operators\": [\n"));
    for (int32_t i = 0; i < coh_plan_operator_count(plan); i++) {
        coh_plan_operator o;
        COH_TRY(coh_plan_operator_at(plan, i, &o));
        COH_TRY(coh_text_add(text, "    {\"name\": "));
        COH_TRY(coh_text_add_quoted(text, o.name));
        COH_TRY(coh_text_add(text,
                             ", \"activations\": \"%s\", \"parameters\": \"%s\", \"states\": "
                             "\"%s\", \"pattern\": \"%s\"}%s\n",
                             o.activations, o.parameters, o.states, o.pattern,
                             i + 1 < coh_plan_operator_count(plan) ? "," : ""));
    }
    return coh_text_add(text, "  ],\n");
}

/* Lines in flight on the links: other depths give another program, so a plan keeps its own,
 * whatever profile prices it later. Written with them: the kernel path of its numeric
 * fingerprint. */
static const coh_lane link_lanes[] = { COH_LANE_H2D, COH_LANE_D2H, COH_LANE_READ, COH_LANE_WRITE };
enum { LINK_COUNT = sizeof(link_lanes) / sizeof(link_lanes[0]) };

static coh_status write_links(coh_text *text, const coh_plan *plan, const char *note)
{
    COH_TRY(coh_text_add(text, "  \"depths\": ["));
    for (int i = 0; i < LINK_COUNT; i++)
        COH_TRY(coh_text_add(text, "%s%u", i ? ", " : "", plan->profile.link[link_lanes[i]].depth));
    COH_TRY(coh_text_add(text, "],\n  \"kernel_path\": "));
    COH_TRY(coh_text_add_quoted(text, plan->options.kernel_path));
    COH_TRY(coh_text_add(text, ",\n"));
    if (note[0] == '\0')
        return COH_OK;
    COH_TRY(coh_text_add(text, "  \"note\": "));
    COH_TRY(coh_text_add_quoted(text, note));
    return coh_text_add(text, ",\n");
}

/* Writes the boundary map: chunk, tier and offset of each chunk resident between programs. */
static coh_status write_slots(coh_text *text, const coh_plan *plan)
{
    COH_TRY(coh_text_add(text, "  \"slots\": ["));
    for (uint32_t i = 0; i < plan->layout.resident_count; i++) {
        const coh_resident *r = &plan->layout.residents[i];
        COH_TRY(coh_text_add(text, "%s\n    [%u, %u, %" PRIu64 "]", i > 0 ? "," : "", r->chunk,
                             r->tier, r->offset));
    }
    COH_TRY(coh_text_add(text, "\n  ],\n"));
    return coh_json_add_seal(text);
}

coh_status coh_plan_write(const coh_plan *plan, const char *path)
{
    COH_NEED(plan);
    COH_NEED(path);
    return coh_plan_write_noted(plan, "", path);
}

static coh_status check_note(const char *note)
{
    size_t bytes = 0;
    for (; note[bytes] && bytes < COH_PLAN_NOTE_BYTES; bytes++)
        if ((unsigned char)note[bytes] < ' ' || note[bytes] == 0x7f)
            return coh_fail(COH_ERR_ARGUMENT, "a plan's note has a control character at byte %zu",
                            bytes);
    if (bytes < COH_PLAN_NOTE_BYTES)
        return COH_OK;
    return coh_fail(COH_ERR_ARGUMENT, "a plan's note is longer than %d bytes",
                    COH_PLAN_NOTE_BYTES - 1);
}

coh_status coh_plan_write_noted(const coh_plan *plan, const char *note, const char *path)
{
    COH_NEED(plan);
    COH_NEED(note);
    COH_NEED(path);
    COH_TRY(check_note(note));
    coh_text text = { 0 };
    coh_status status = COH_OK;
    COH_TRY_GOTO(status, write_decisions(&text, plan), done);
    COH_TRY_GOTO(status, write_profile(&text, &plan->profile), done);
    COH_TRY_GOTO(status, write_links(&text, plan, note), done);
    COH_TRY_GOTO(status, write_predictions(&text, plan), done);
    COH_TRY_GOTO(status, write_slots(&text, plan), done);
    status = coh_file_write_whole(path, text.data, text.bytes);
done:
    coh_text_fini(&text);
    return status;
}

/* ---- reading ---- */

static coh_status parse_decisions(const json_t *object, coh_decisions *d)
{
    static const char *const known[] = { "device_bytes", "chunk_bytes", "in_memory", "cache",
                                         "recompute",    "row_passes",  "slices",    "tie_break",
                                         "patient",      "boundary",    "horizon",   "host_updates",
                                         "resident",     "patterns",    NULL };
    char patterns[128];
    /* the longest text is every other block with commas: shorter than this */
    char blocks[4 * COH_BLOCK_SET_MOST];
    int64_t chunk_bytes = 0;
    COH_TRY(coh_json_only_known(object, "\"decisions\"", known));
    COH_TRY(coh_json_get_quoted(object, "device_bytes", 10, &d->device_bytes));
    COH_TRY(coh_json_get_integer(object, "chunk_bytes", 1, (int64_t)1 << 40, &chunk_bytes));
    d->chunk_bytes = (uint64_t)chunk_bytes;
    COH_TRY(coh_json_get_int(object, "in_memory", 1, &d->in_memory));
    COH_TRY(coh_json_get_int(object, "cache", 1, &d->cache));
    COH_TRY(coh_json_get_int(object, "row_passes", 1 << 20, &d->row_passes));
    COH_TRY(coh_json_get_int(object, "slices", 1 << 20, &d->slices));
    COH_TRY(coh_json_get_int(object, "tie_break", COH_TIE_COUNT - 1, &d->tie_break));
    COH_TRY(coh_json_get_int(object, "patient", 1, &d->patient));
    COH_TRY(coh_json_get_int(object, "boundary", COH_BOUNDARY_COUNT - 1, &d->boundary));
    COH_TRY(coh_json_get_int(object, "horizon", 1 << 20, &d->horizon));
    COH_TRY(coh_json_get_int(object, "host_updates", INT32_MAX, &d->host_updates));
    COH_TRY(coh_json_get_int(object, "resident", INT32_MAX, &d->resident));
    d->patterns = coh_pattern_choose(d->slices); /* files of earlier versions do not say */
    if (json_object_get(object, "patterns") != NULL) {
        COH_TRY(coh_json_get_text(object, "patterns", patterns, sizeof(patterns)));
        COH_TRY(coh_pattern_choice_read(patterns, &d->patterns));
    }
    COH_TRY(coh_json_get_text(object, "recompute", blocks, sizeof(blocks)));
    return coh_block_set_read(blocks, &d->recompute);
}

static coh_status parse_pins(const json_t *pins, coh_plan_text *out)
{
    if (!json_is_array(pins) || json_array_size(pins) > COH_PINS_MOST)
        return coh_fail(COH_ERR_CORRUPT, "\"pins\" is not a list of at most %d", COH_PINS_MOST);
    COH_TRY(COH_ALLOC(json_array_size(pins) + 1, &out->pins));
    for (size_t i = 0; i < json_array_size(pins); i++) {
        const json_t *pin = json_array_get(pins, i);
        if (!json_is_string(pin) || coh_pin_parse(json_string_value(pin), &out->pins[i]) != COH_OK)
            return coh_fail(COH_ERR_CORRUPT, "pin %zu is not TARGET=PLACE", i);
    }
    out->options.pins = out->pins;
    out->options.pin_count = (int32_t)json_array_size(pins);
    return COH_OK;
}

/* Reads one text of at most `room` - 1 bytes. */
static int take_text(const char *from, size_t bytes, char *out, size_t room)
{
    if (bytes == 0 || bytes >= room)
        return 0;
    memcpy(out, from, bytes);
    out[bytes] = '\0';
    return 1;
}

static coh_status parse_optimizers(const json_t *list, coh_plan_text *out)
{
    const size_t count = json_array_size(list);
    if (list == NULL)
        return COH_OK;
    if (!json_is_array(list) || count == 0 || count > COH_OPTIMIZER_CHOICES_MOST + 1)
        return coh_fail(COH_ERR_CORRUPT, "\"optimizers\" is not a list of 1 to %d",
                        COH_OPTIMIZER_CHOICES_MOST + 1);
    COH_TRY(COH_ALLOC(count, &out->optimizer_choices));
    for (size_t i = 0; i < count; i++) {
        const char *text = json_string_value(json_array_get(list, i));
        const char *equals = text != NULL ? strrchr(text, '=') : NULL;
        const int is_last = i + 1 == count;
        coh_optimizer_choice *choice = &out->optimizer_choices[i];
        char *name = is_last ? out->options.optimizer : choice->optimizer;
        if (text == NULL || is_last != (equals == NULL) ||
            (!is_last &&
             !take_text(text, (size_t)(equals - text), choice->pattern, sizeof(choice->pattern))) ||
            !take_text(is_last ? text : equals + 1, strlen(is_last ? text : equals + 1), name,
                       COH_OPTIMIZER_NAME_BYTES))
            return coh_fail(COH_ERR_CORRUPT, "optimizer %zu is not %s", i,
                            is_last ? "NAME" : "PATTERN=NAME");
    }
    out->options.optimizer_choices = out->optimizer_choices;
    out->options.optimizer_choice_count = (int32_t)count - 1;
    return COH_OK;
}

static coh_status parse_profile(const json_t *object, coh_plan_text *out)
{
    static const char *const known[] = { "name", "device", "hash", NULL };
    COH_TRY(coh_json_only_known(object, "\"profile\"", known));
    COH_TRY(coh_json_get_text(object, "name", out->profile_name, sizeof(out->profile_name)));
    COH_TRY(coh_json_get_choice(object, "device", coh_profile_device_names, &out->device_kind));
    return coh_json_get_quoted(object, "hash", 16, &out->profile_hash);
}

static coh_status parse_options(const json_t *object, coh_plan_text *out)
{
    coh_plan_options *o = &out->options;
    static const char *const modes[] = { "train", "infer", NULL };
    static const char *const orders[] = { "micro-batch", "layer", NULL };
    static const char *const known[] = { "mode",
                                         "microbatch_count",
                                         "sweep_order",
                                         "disk_bytes",
                                         "link_bytes_per_s",
                                         "emulate_host_bytes",
                                         "deferred_update",
                                         "f32_gradients",
                                         "atomics",
                                         NULL };
    int32_t mode = 0, order = 0;
    COH_TRY(coh_json_only_known(object, "\"options\"", known));
    COH_TRY(coh_json_get_choice(object, "mode", modes, &mode));
    o->mode = mode == 0 ? COH_PLAN_TRAIN : COH_PLAN_INFER;
    COH_TRY(coh_json_get_choice(object, "sweep_order", orders, &order));
    o->sweep_order = order == 0 ? COH_SWEEP_MICROBATCH : COH_SWEEP_LAYER;
    COH_TRY(coh_json_get_int(object, "microbatch_count", 65536, &o->microbatch_count));
    COH_TRY(coh_json_get_int(object, "deferred_update", 1, &o->deferred_update));
    /* otherwise they have the dtype of their parameters */
    if (json_object_get(object, "f32_gradients") != NULL)
        COH_TRY(coh_json_get_int(object, "f32_gradients", 1, &o->f32_gradients));
    if (json_object_get(object, "atomics") != NULL)
        COH_TRY(coh_json_get_int(object, "atomics", 1, &out->atomics));
    COH_TRY(coh_json_get_quoted(object, "emulate_host_bytes", 10, &o->emulate_host_bytes));
    COH_TRY(coh_json_get_quoted(object, "disk_bytes", 10, &o->disk_bytes));
    return coh_json_get_real(object, "link_bytes_per_s", 0, 1e300, &o->link_bytes_per_s);
}

static coh_status parse_predictions(const json_t *object, coh_plan_text *out)
{
    static const char *const known[] = {
        "peak_device_bytes", "peak_host_bytes",       "disk_bytes", "step_ns",
        "bound_ns",          "smallest_device_bytes", "lines",      NULL
    };
    int64_t device = 0, host = 0, disk = 0, step_ns = 0, bound_ns = 0, smallest = 0, lines = 0;
    COH_TRY(coh_json_only_known(object, "\"predictions\"", known));
    COH_TRY(coh_json_get_integer(object, "peak_device_bytes", 1, INT64_MAX, &device));
    COH_TRY(coh_json_get_integer(object, "peak_host_bytes", 0, INT64_MAX, &host));
    COH_TRY(coh_json_get_integer(object, "disk_bytes", 0, INT64_MAX, &disk));
    COH_TRY(coh_json_get_integer(object, "step_ns", 0, INT64_MAX, &step_ns));
    COH_TRY(coh_json_get_integer(object, "bound_ns", 0, INT64_MAX, &bound_ns));
    COH_TRY(coh_json_get_integer(object, "smallest_device_bytes", 0, INT64_MAX, &smallest));
    COH_TRY(coh_json_get_integer(object, "lines", 1, UINT32_MAX, &lines));
    out->peak_bytes[COH_TIER_DEVICE] = (uint64_t)device;
    out->peak_bytes[COH_TIER_HOST] = (uint64_t)host;
    out->peak_bytes[COH_TIER_DISK] = (uint64_t)disk;
    out->step_ns = (uint64_t)step_ns;
    out->line_count = (uint32_t)lines;
    return COH_OK;
}

uint64_t coh_plan_fold_slot(uint64_t hash, uint64_t chunk, uint64_t tier, uint64_t offset)
{
    const uint64_t slot[] = { chunk, tier, offset };
    return XXH3_64bits_withSeed(slot, sizeof(slot), hash);
}

static coh_status parse_slots(const json_t *slots, uint64_t *out_hash)
{
    size_t index = 0;
    json_t *slot = NULL;
    *out_hash = 0;
    if (!json_is_array(slots))
        return coh_fail(COH_ERR_CORRUPT, "\"slots\" is missing");
    json_array_foreach(slots, index, slot)
    {
        json_int_t number[3] = { -1, -1, -1 };
        for (size_t i = 0; i < 3 && json_array_size(slot) == 3; i++)
            if (json_is_integer(json_array_get(slot, i)))
                number[i] = json_integer_value(json_array_get(slot, i));
        if (number[0] < 0 || number[1] < 0 || number[1] > 1 || number[2] < 0)
            return coh_fail(COH_ERR_CORRUPT, "slot %zu is not [chunk, tier, offset]", index);
        *out_hash = coh_plan_fold_slot(*out_hash, (uint64_t)number[0], (uint64_t)number[1],
                                       (uint64_t)number[2]);
    }
    return COH_OK;
}

static coh_status parse_operators(json_t *operators, coh_plan_text *out)
{
    static const char *const known[] = { "name",   "activations", "parameters",
                                         "states", "pattern",     NULL };
    size_t index = 0;
    json_t *op = NULL;
    if (!json_is_array(operators))
        return coh_fail(COH_ERR_CORRUPT, "\"operators\" is missing");
    json_array_foreach(operators, index, op)
    {
        COH_TRY(coh_json_only_known(op, "an operator", known));
        for (size_t i = 0; known[i] != NULL; i++)
            if (!json_is_string(json_object_get(op, known[i])))
                return coh_fail(COH_ERR_CORRUPT, "operator %zu has no \"%s\"", index, known[i]);
    }
    out->operators = json_incref(operators);
    return COH_OK;
}

/* Reads the members that files of other programs may omit. */
static coh_status parse_extras(const json_t *root, coh_plan_text *out)
{
    const json_t *depths = json_object_get(root, "depths");
    if (json_object_get(root, "note"))
        COH_TRY(coh_json_get_text(root, "note", out->note, sizeof(out->note)));
    out->names_kernels = json_object_get(root, "kernel_path") != NULL;
    if (out->names_kernels)
        COH_TRY(coh_json_get_text(root, "kernel_path", out->options.kernel_path,
                                  sizeof(out->options.kernel_path)));
    if (depths == NULL)
        return COH_OK;
    for (size_t i = 0; i < LINK_COUNT; i++) {
        const json_t *depth = json_array_get(depths, i);
        if (json_array_size(depths) != LINK_COUNT || !json_is_integer(depth) ||
            json_integer_value(depth) < 0 || json_integer_value(depth) > 64)
            return coh_fail(COH_ERR_CORRUPT, "\"depths\" is not a list of %d numbers from 0 to 64",
                            LINK_COUNT);
        out->depths[link_lanes[i]] = (uint32_t)json_integer_value(depth);
    }
    return COH_OK;
}

static coh_status parse(const json_t *root, coh_plan_text *out)
{
    static const char *const known[] = {
        "format",    "version", "builder",     "numeric_fingerprint", "program_hash", "options",
        "decisions", "profile", "predictions", "operators",           "optimizers",   "slots",
        "pins",      "depths",  "note",        "kernel_path",         "file_hash",    NULL
    };
    int64_t builder = 0;
    COH_TRY(coh_json_check_format(root, "plan", FORMAT_NAME, FORMAT_VERSION));
    COH_TRY(coh_json_only_known(root, "the file", known));
    COH_TRY(coh_json_get_integer(root, "builder", 1, INT32_MAX, &builder));
    out->builder = (int)builder;
    COH_TRY(coh_json_get_quoted(root, "numeric_fingerprint", 16, &out->numeric_fingerprint));
    COH_TRY(coh_json_get_quoted(root, "program_hash", 16, &out->program_hash));
    COH_TRY(parse_options(json_object_get(root, "options"), out));
    COH_TRY(parse_decisions(json_object_get(root, "decisions"), &out->decisions));
    COH_TRY(parse_optimizers(json_object_get(root, "optimizers"), out));
    COH_TRY(parse_pins(json_object_get(root, "pins"), out));
    COH_TRY(parse_profile(json_object_get(root, "profile"), out));
    COH_TRY(parse_predictions(json_object_get(root, "predictions"), out));
    COH_TRY(parse_extras(root, out));
    COH_TRY(parse_operators(json_object_get(root, "operators"), out));
    return parse_slots(json_object_get(root, "slots"), &out->slots_hash);
}

void coh_plan_text_fini(coh_plan_text *file)
{
    coh_free(file->pins);
    coh_free(file->optimizer_choices);
    json_decref(file->operators);
    file->pins = NULL;
    file->optimizer_choices = NULL;
    file->operators = NULL;
}

coh_status coh_plan_text_parse(const char *text, size_t bytes, coh_plan_text *out)
{
    json_t *root = NULL;
    *out = (coh_plan_text){ 0 };
    COH_TRY(coh_json_parse_sealed(text, bytes, &root));
    coh_status status = parse(root, out);
    if (status == COH_OK)
        status = coh_json_check_seal(root, text, bytes, "plan again");
    json_decref(root);
    if (status != COH_OK)
        coh_plan_text_fini(out);
    return status;
}

/* On success call coh_plan_text_fini later. */
static coh_status load(const char *path, coh_plan_text *out)
{
    char *text = NULL;
    size_t bytes = 0;
    COH_TRY(coh_file_read_whole(path, FILE_BYTES_MOST, &text, &bytes));
    coh_status status = coh_plan_text_parse(text, bytes, out);
    coh_free(text);
    return status == COH_OK ? COH_OK : coh_fail_prefix(status, "%s", path);
}

coh_status coh_plan_check_file(const char *path)
{
    COH_NEED(path);
    coh_plan_text file;
    COH_TRY(load(path, &file));
    coh_plan_text_fini(&file);
    return COH_OK;
}

/* Counts the operators per word: "12 device, 30 disk", in the order of first occurrence. */
static void count_words(const json_t *operators, const char *member, char out_text[96])
{
    enum { WORDS = 8 };
    const char *words[WORDS];
    int counts[WORDS], word_count = 0;
    size_t index = 0, used = 0;
    json_t *op = NULL;
    json_array_foreach(operators, index, op)
    {
        const char *word = json_string_value(json_object_get(op, member));
        int i = 0;
        while (i < word_count && strcmp(words[i], word) != 0)
            i++;
        if (i == WORDS || strcmp(word, "-") == 0)
            continue; /* our own plans have fewer */
        if (i == word_count) {
            words[i] = word;
            counts[word_count++] = 0;
        }
        counts[i]++;
    }
    out_text[0] = '\0';
    for (int i = 0; i < word_count && used < 96; i++)
        used += (size_t)snprintf(out_text + used, 96 - used, "%s%d %.24s", i ? ", " : "", counts[i],
                                 words[i]);
}

static void take_decisions(const coh_plan_text *file, coh_plan_file *out)
{
    out->numeric_fingerprint = file->numeric_fingerprint;
    out->peak_host_bytes = file->peak_bytes[COH_TIER_HOST];
    out->peak_disk_bytes = file->peak_bytes[COH_TIER_DISK];
    out->line_count = file->line_count;
    out->chunk_bytes = file->decisions.chunk_bytes;
    out->sweep_order = file->options.sweep_order;
    out->f32_gradients = file->options.f32_gradients;
    out->atomics = file->atomics;
    out->is_in_memory = file->decisions.in_memory;
    out->recomputes = coh_block_set_count(&file->decisions.recompute);
    out->host_updates = file->decisions.host_updates;
    out->pin_count = file->options.pin_count;
    out->operator_count = (int32_t)json_array_size(file->operators);
    count_words(file->operators, "parameters", out->parameters);
    count_words(file->operators, "states", out->states);
    count_words(file->operators, "activations", out->activations);
}

coh_status coh_plan_file_read(const char *path, coh_plan_file *out_file)
{
    COH_NEED(path);
    COH_NEED(out_file);
    coh_plan_text file;
    *out_file = (coh_plan_file){ 0 };
    COH_TRY(load(path, &file));
    *out_file = (coh_plan_file){ .profile_hash = file.profile_hash,
                                 .program_hash = file.program_hash,
                                 .peak_device_bytes = file.peak_bytes[COH_TIER_DEVICE],
                                 .step_ns = file.step_ns,
                                 .emulate_host_bytes = file.options.emulate_host_bytes,
                                 .disk_bytes = file.options.disk_bytes,
                                 .is_gpu = file.device_kind != COH_DEVICE_HOST,
                                 .microbatch_count = file.options.microbatch_count };
    take_decisions(&file, out_file);
    memcpy(out_file->optimizer, file.options.optimizer, sizeof(out_file->optimizer));
    out_file->optimizer_choice_count = file.options.optimizer_choice_count;
    for (int32_t i = 0; i < file.options.optimizer_choice_count; i++)
        out_file->optimizer_choices[i] = file.optimizer_choices[i];
    snprintf(out_file->note, sizeof(out_file->note), "%s", file.note);
    snprintf(out_file->profile_name, sizeof(out_file->profile_name), "%s", file.profile_name);
    coh_plan_text_fini(&file);
    return COH_OK;
}

coh_status coh_plan_read(const coh_graph *graph, const coh_plan_options *options, const char *path,
                         coh_plan **out_plan)
{
    COH_NEED(graph);
    COH_NEED(options);
    COH_NEED(path);
    COH_NEED(out_plan);
    coh_plan_text file;
    *out_plan = NULL;
    COH_TRY(load(path, &file));
    coh_status status = coh_plan_rebuild(graph, options, path, &file, out_plan);
    coh_plan_text_fini(&file);
    if (status != COH_OK) {
        coh_plan_destroy(*out_plan);
        *out_plan = NULL;
    }
    return status;
}
