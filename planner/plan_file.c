/* Reads and writes plan.json: the decisions that a plan can be rebuilt from, and its predictions.
 * The idea: one table of fields serves both directions. The rebuilt program must have the hash
 * given in the file (plan_file_rebuild.c). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/file_text.h"
#include "base/json.h"
#include "base/struct_bytes.h"
#include "planner/lower_ahead.h"
#include "planner/lower_late.h"
#include "planner/plan_file.h"
#include "planner/plan_make.h"
#include "planner/profile_file.h"
#include "planner/residency.h"

#define FILE_BYTES_MOST ((uint64_t)1 << 30)
#define NUMBER_MOST     ((double)INT64_MAX)

/* ---- fields with a special form ---- */

static coh_status read_recompute(const coh_json_field *field, const coh_json_place *at,
                                 void *object)
{
    coh_decisions *decisions = object;
    const char *blocks;
    (void)field;
    /* the longest text is every other block with commas: shorter than this */
    COH_TRY(coh_json_string(at, 4 * COH_BLOCK_SET_MOST, &blocks));
    return coh_block_set_read(blocks, &decisions->recompute);
}

static void write_recompute(const coh_json_field *field, coh_json_writer *writer,
                            const void *object)
{
    coh_text blocks = { 0 };
    if (writer->status == COH_OK)
        writer->status = coh_text_add(&blocks, "%s", "");
    if (writer->status == COH_OK)
        writer->status = coh_block_set_write(&((const coh_decisions *)object)->recompute, &blocks);
    if (writer->status == COH_OK)
        coh_json_put_text(writer, field->name, blocks.data);
    coh_text_fini(&blocks);
}

static coh_status read_patterns(const coh_json_field *field, const coh_json_place *at, void *object)
{
    coh_decisions *decisions = object;
    const char *patterns;
    (void)field;
    COH_TRY(coh_json_string(at, 128, &patterns));
    return coh_pattern_choice_read(patterns, &decisions->patterns);
}

static void write_patterns(const coh_json_field *field, coh_json_writer *writer, const void *object)
{
    coh_text patterns = { 0 };
    if (writer->status == COH_OK)
        writer->status =
            coh_pattern_choice_write(&((const coh_decisions *)object)->patterns, &patterns);
    if (writer->status == COH_OK)
        coh_json_put_text(writer, field->name, patterns.data);
    coh_text_fini(&patterns);
}

static coh_status read_shape(const coh_json_field *field, const coh_json_place *at, void *object)
{
    const char *text;
    COH_TRY(coh_json_string(at, COH_FOLD_TEXT_BYTES, &text));
    return coh_fold_shape_parse(text, (coh_fold_shape *)(void *)((char *)object + field->offset));
}

/* One replica, or rank, is not written. */
static void write_shape(const coh_json_field *field, coh_json_writer *writer, const void *object)
{
    const coh_fold_shape *shape =
        (const coh_fold_shape *)(const void *)((const char *)object + field->offset);
    char text[COH_FOLD_TEXT_BYTES];
    if (coh_fold_replicas(shape) == 1 || writer->status != COH_OK)
        return;
    writer->status = coh_fold_shape_write(shape, text);
    if (writer->status == COH_OK)
        coh_json_put_text(writer, field->name, text);
}

/* Pins are ["TARGET=PLACE", ...]. */
static coh_status read_pins(const coh_json_field *field, const coh_json_place *at, void *object)
{
    coh_plan_text *out = object;
    size_t count;
    (void)field;
    COH_TRY(coh_json_list(at, 0, COH_PINS_MOST, &count));
    COH_TRY(COH_ALLOC(count + 1, &out->pins));
    for (size_t i = 0; i < count; i++) {
        const coh_json_place pin = coh_json_item(at, i);
        if (!json_is_string(pin.value) ||
            coh_pin_parse(json_string_value(pin.value), &out->pins[i]) != COH_OK)
            return coh_json_expected(&pin, "TARGET=PLACE");
    }
    out->options.pins = out->pins;
    out->options.pin_count = (int32_t)count;
    return COH_OK;
}

static void write_pins(const coh_json_field *field, coh_json_writer *writer, const void *object)
{
    const coh_plan_text *file = object;
    coh_json_begin(writer, field->name, '[', COH_JSON_INLINE);
    for (int32_t i = 0; i < file->options.pin_count; i++) {
        char pin[COH_PIN_TARGET_BYTES + COH_RANK_PATTERN_BYTES];
        snprintf(pin, sizeof(pin), "%s=%s", file->options.pins[i].target,
                 coh_pin_decision(&file->options.pins[i]));
        coh_json_put_text(writer, NULL, pin);
    }
    coh_json_end(writer);
}

/* Copies a text of 1 to `room` - 1 bytes. */
static int take_text(const char *from, size_t bytes, char *out, size_t room)
{
    if (bytes == 0 || bytes >= room)
        return 0;
    memcpy(out, from, bytes);
    out[bytes] = '\0';
    return 1;
}

static int take_choice(const char *text, coh_optimizer_choice *choice)
{
    const char *equals = text != NULL ? strrchr(text, '=') : NULL;
    return equals != NULL &&
           take_text(text, (size_t)(equals - text), choice->pattern, sizeof(choice->pattern)) &&
           take_text(equals + 1, strlen(equals + 1), choice->optimizer, sizeof(choice->optimizer));
}

/* Optimizers that differ from the default are ["PATTERN=NAME", ..., "NAME"]. */
static coh_status read_optimizers(const coh_json_field *field, const coh_json_place *at,
                                  void *object)
{
    coh_plan_text *out = object;
    coh_plan_options *options = &out->options;
    size_t count;
    (void)field;
    COH_TRY(coh_json_list(at, 1, COH_OPTIMIZER_CHOICES_MOST + 1, &count));
    COH_TRY(COH_ALLOC(count, &out->optimizer_choices));
    for (size_t i = 0; i + 1 < count; i++) {
        const coh_json_place choice = coh_json_item(at, i);
        if (!take_choice(json_string_value(choice.value), &out->optimizer_choices[i]))
            return coh_json_expected(&choice, "PATTERN=NAME");
    }
    const coh_json_place last = coh_json_item(at, count - 1);
    const char *name = json_string_value(last.value);
    if (name == NULL || strchr(name, '=') != NULL ||
        !take_text(name, strlen(name), options->optimizer, sizeof(options->optimizer)))
        return coh_json_expected(&last, "the name of an optimizer");
    options->optimizer_choices = out->optimizer_choices;
    options->optimizer_choice_count = (int32_t)count - 1;
    return COH_OK;
}

static int has_optimizers(const void *object)
{
    const coh_plan_options *o = &((const coh_plan_text *)object)->options;
    return o->mode == COH_PLAN_TRAIN && (o->optimizer[0] != '\0' || o->optimizer_choice_count > 0);
}

static void write_optimizers(const coh_json_field *field, coh_json_writer *writer,
                             const void *object)
{
    const coh_plan_options *o = &((const coh_plan_text *)object)->options;
    coh_json_begin(writer, field->name, '[', COH_JSON_INLINE);
    for (int32_t i = 0; i < o->optimizer_choice_count; i++) {
        char choice[COH_PATTERN_BYTES + COH_OPTIMIZER_NAME_BYTES];
        snprintf(choice, sizeof(choice), "%s=%s", o->optimizer_choices[i].pattern,
                 o->optimizer_choices[i].optimizer);
        coh_json_put_text(writer, NULL, choice);
    }
    coh_json_put_text(writer, NULL, o->optimizer[0] != '\0' ? o->optimizer : COH_OPTIMIZER_DEFAULT);
    coh_json_end(writer);
}

/* Instructions in flight on the links: other depths give another program, so a plan keeps its own,
 * whatever profile prices it later. */
static const coh_lane link_lanes[] = { COH_LANE_H2D, COH_LANE_D2H, COH_LANE_READ, COH_LANE_WRITE };
enum { LINK_COUNT = sizeof(link_lanes) / sizeof(link_lanes[0]) };

static coh_status read_depths(const coh_json_field *field, const coh_json_place *at, void *object)
{
    coh_plan_text *out = object;
    size_t count;
    int64_t depth = 0;
    (void)field;
    COH_TRY(coh_json_list(at, LINK_COUNT, LINK_COUNT, &count));
    for (size_t i = 0; i < LINK_COUNT; i++) {
        const coh_json_place item = coh_json_item(at, i);
        COH_TRY(coh_json_whole(&item, 0, 64, &depth));
        out->depths[link_lanes[i]] = (uint32_t)depth;
    }
    return COH_OK;
}

static void write_depths(const coh_json_field *field, coh_json_writer *writer, const void *object)
{
    const coh_plan_text *file = object;
    coh_json_begin(writer, field->name, '[', COH_JSON_INLINE);
    for (int i = 0; i < LINK_COUNT; i++)
        coh_json_put(writer, NULL, "%" PRIu32, file->depths[link_lanes[i]]);
    coh_json_end(writer);
}

static coh_status read_kernels(const coh_json_field *field, const coh_json_place *at, void *object)
{
    coh_plan_text *out = object;
    const size_t room = sizeof(out->options.kernel_path);
    const char *path;
    (void)field;
    COH_TRY(coh_json_string(at, room - 1, &path));
    snprintf(out->options.kernel_path, room, "%s", path);
    out->names_kernels = 1;
    return COH_OK;
}

static void write_kernels(const coh_json_field *field, coh_json_writer *writer, const void *object)
{
    coh_json_put_text(writer, field->name, ((const coh_plan_text *)object)->options.kernel_path);
}

uint64_t coh_plan_fold_slot(uint64_t hash, uint64_t chunk, uint64_t tier, uint64_t offset)
{
    const uint64_t slot[] = { chunk, tier, offset };
    return XXH3_64bits_withSeed(slot, sizeof(slot), hash);
}

/* Slots are the boundary map: [chunk, tier, offset] of each chunk resident between programs. */
static coh_status read_slots(const coh_json_field *field, const coh_json_place *at, void *object)
{
    coh_plan_text *out = object;
    const double most[] = { NUMBER_MOST, 1, NUMBER_MOST };
    size_t count, parts;
    (void)field;
    COH_TRY(coh_json_list(at, 0, NUMBER_MOST, &count));
    for (size_t i = 0; i < count; i++) {
        const coh_json_place slot = coh_json_item(at, i);
        int64_t number[3] = { 0 };
        COH_TRY(coh_json_list(&slot, 3, 3, &parts));
        for (size_t k = 0; k < 3; k++) {
            const coh_json_place part = coh_json_item(&slot, k);
            COH_TRY(coh_json_whole(&part, 0, most[k], &number[k]));
        }
        out->slots_hash = coh_plan_fold_slot(out->slots_hash, (uint64_t)number[0],
                                             (uint64_t)number[1], (uint64_t)number[2]);
    }
    return COH_OK;
}

static void write_slots(const coh_json_field *field, coh_json_writer *writer, const void *object)
{
    const coh_layout *layout = &((const coh_plan_text *)object)->plan->layout;
    coh_json_begin(writer, field->name, '[', COH_JSON_LINES);
    for (uint32_t i = 0; i < layout->resident_count; i++) {
        const coh_resident *r = &layout->residents[i];
        coh_json_put(writer, NULL, "[%" PRIu32 ", %u, %" PRIu64 "]", r->chunk, r->tier, r->offset);
    }
    coh_json_end(writer);
}

/* ---- the table ---- */

static const char *const modes[] = { [COH_PLAN_TRAIN] = "train", [COH_PLAN_INFER] = "infer", NULL };
static const char *const orders[] = {
    [COH_SWEEP_MICROBATCH] = "micro-batch", [COH_SWEEP_LAYER] = "layer", NULL
};
static const char *const reduces[] = { "exact", "library", NULL };
static const char *const wires[] = { "stored", "bf16", "int8", "int4", NULL };

#define IN(member)         COH_JSON_AT(coh_plan_text, member)
#define WHOLE(member, ...) COH_JSON_WHOLE, IN(member), __VA_ARGS__
#define SHAPE(member)                                                                              \
    COH_JSON_OWN, IN(member), .rule = COH_JSON_MAY_LACK, .read = read_shape, .write = write_shape
#define DECIDED(member, most_) COH_JSON_WHOLE, COH_JSON_AT(coh_decisions, member), .most = (most_)
#define TEXT_OF(member)        COH_JSON_STRING, COH_JSON_AT(coh_plan_words, member)

static const coh_json_field option_fields[] = {
    { "mode", COH_JSON_CHOICE, IN(options.mode), .names = modes },
    { "microbatch_count", WHOLE(options.microbatch_count, .most = 65536) },
    { "sweep_order", COH_JSON_CHOICE, IN(options.sweep_order), .names = orders },
    { "deferred_update", WHOLE(options.deferred_update, .most = 1) },
    { "speculates", WHOLE(options.speculates, .most = 1, .rule = COH_JSON_UNLESS_ZERO) },
    /* otherwise they have the dtype of their parameters */
    { "f32_gradients", WHOLE(options.f32_gradients, .most = 1, .rule = COH_JSON_UNLESS_ZERO) },
    { "replicas", SHAPE(options.replicas) },
    { "ranks", SHAPE(options.ranks) },
    { "pair_ranks",
      WHOLE(options.pair_ranks, .most = COH_REPLICAS_MOST, .rule = COH_JSON_UNLESS_ZERO) },
    { "node_ranks",
      WHOLE(options.node_ranks, .most = COH_REPLICAS_MOST, .rule = COH_JSON_UNLESS_ZERO) },
    { "weights_wire", COH_JSON_CHOICE, IN(options.wires.weights), .names = wires,
      .rule = COH_JSON_UNLESS_ZERO },
    { "gradients_wire", COH_JSON_CHOICE, IN(options.wires.gradients), .names = wires,
      .rule = COH_JSON_UNLESS_ZERO },
    { "reduce", COH_JSON_CHOICE, IN(options.reduce), .names = reduces,
      .rule = COH_JSON_UNLESS_ZERO },
    { "rank_pattern", COH_JSON_TEXT, IN(options.rank_pattern), .rule = COH_JSON_UNLESS_ZERO },
    { "atomics", WHOLE(atomics, .most = 1, .rule = COH_JSON_UNLESS_ZERO) },
    { "emulate_host_bytes", COH_JSON_DECIMAL, IN(options.host_memory_bytes) },
    { "disk_bytes", COH_JSON_DECIMAL, IN(options.disk_bytes) },
    { "link_bytes_per_s", COH_JSON_REAL, IN(options.link_bytes_per_s), .most = 1e300 },
    { "drive_count",
      WHOLE(options.drive_count, .most = COH_DISKS_MOST, .rule = COH_JSON_UNLESS_ZERO) },
    { 0 },
};

static const coh_json_field decision_fields[] = {
    { "device_bytes", COH_JSON_DECIMAL, COH_JSON_AT(coh_decisions, device_bytes) },
    { "chunk_bytes", DECIDED(chunk_bytes, (double)((int64_t)1 << 40)), .least = 1 },
    { "in_memory", DECIDED(in_memory, 1) },
    { "cache", DECIDED(cache, 1) },
    { "row_passes", DECIDED(row_passes, 1 << 20) },
    { "slices", DECIDED(slices, 1 << 20) },
    { "tie_break", DECIDED(tie_break, COH_TIE_COUNT - 1) },
    { "patient", DECIDED(patient, COH_PATIENT_COUNT - 1) },
    { "boundary", DECIDED(boundary, COH_BOUNDARY_COUNT - 1) },
    { "horizon", DECIDED(horizon, 1 << 20) },
    { "host_updates", DECIDED(host_updates, INT32_MAX) },
    { "resident", DECIDED(resident, INT32_MAX) },
    { "host_window", DECIDED(host_window, 64), .rule = COH_JSON_UNLESS_ZERO },
    { "lead", DECIDED(lead, COH_LEAD_MOST), .rule = COH_JSON_UNLESS_ZERO },
    { "late", DECIDED(late, COH_LATE_PARTS), .rule = COH_JSON_UNLESS_ZERO },
    { "light", DECIDED(light, COH_LIGHT_COUNT - 1), .rule = COH_JSON_UNLESS_ZERO },
    { "early", DECIDED(early, COH_EARLY_COUNT - 1), .rule = COH_JSON_UNLESS_ZERO },
    { "patterns", COH_JSON_OWN, .rule = COH_JSON_MAY_LACK, .read = read_patterns,
      .write = write_patterns },
    { "recompute", COH_JSON_OWN, .read = read_recompute, .write = write_recompute },
    { 0 },
};

static const coh_json_field profile_fields[] = {
    { "name", COH_JSON_TEXT, IN(profile_name) },
    { "device", COH_JSON_CHOICE, IN(device_kind), .names = coh_profile_device_names },
    { "hash", COH_JSON_HEX, IN(profile_hash) },
    { 0 },
};

static const coh_json_field prediction_fields[] = {
    { "peak_device_bytes", WHOLE(peak_bytes[COH_TIER_DEVICE], .least = 1, .most = NUMBER_MOST) },
    { "peak_host_bytes", WHOLE(peak_bytes[COH_TIER_HOST], .most = NUMBER_MOST) },
    { "disk_bytes", WHOLE(peak_bytes[COH_TIER_DISK], .most = NUMBER_MOST) },
    { "step_ns", WHOLE(step_ns, .most = NUMBER_MOST) },
    { "bound_ns", WHOLE(bound_ns, .most = NUMBER_MOST) },
    { "smallest_device_bytes", WHOLE(smallest_device_bytes, .most = NUMBER_MOST) },
    { "lines", WHOLE(instruction_count, .least = 1, .most = UINT32_MAX) },
    { 0 },
};

static const coh_json_field operator_fields[] = {
    { "name", TEXT_OF(name) },
    { "activations", TEXT_OF(activations) },
    { "parameters", TEXT_OF(parameters) },
    { "states", TEXT_OF(states) },
    { "pattern", TEXT_OF(pattern) },
    { 0 },
};

static const coh_json_field plan_fields[] = {
    { "builder", WHOLE(builder, .least = 1, .most = INT32_MAX) },
    { "numeric_fingerprint", COH_JSON_HEX, IN(numeric_fingerprint) },
    { "program_hash", COH_JSON_HEX, IN(program_hash) },
    { "options", COH_JSON_OBJECT, .fields = option_fields },
    { "decisions", COH_JSON_OBJECT, IN(decisions), .fields = decision_fields },
    { "optimizers", COH_JSON_OWN, .is_written = has_optimizers, .read = read_optimizers,
      .write = write_optimizers },
    { "pins", COH_JSON_OWN, .read = read_pins, .write = write_pins },
    { "profile", COH_JSON_OBJECT, .fields = profile_fields },
    { "depths", COH_JSON_OWN, .rule = COH_JSON_MAY_LACK, .read = read_depths,
      .write = write_depths },
    { "kernel_path", COH_JSON_OWN, .rule = COH_JSON_MAY_LACK, .read = read_kernels,
      .write = write_kernels },
    { "note", COH_JSON_TEXT, IN(note), .rule = COH_JSON_UNLESS_ZERO },
    { "predictions", COH_JSON_OBJECT, .fields = prediction_fields },
    { "operators", COH_JSON_ARRAY, COH_JSON_AT_ARRAY(coh_plan_text, operators, operator_count),
      .layout = COH_JSON_LINES, .most = INT32_MAX, .fields = operator_fields },
    { "slots", COH_JSON_OWN, .read = read_slots, .write = write_slots },
    { 0 },
};

static const coh_json_file plan_file = { .what = "plan",
                                         .format = "cohobate plan",
                                         .version = 5,
                                         .fields = plan_fields,
                                         .remedy = "plan again" };

/* ---- writing ---- */

/* Fills in a file from a plan, whose texts it borrows; free only the list of operators. */
static coh_status describe(const coh_plan *plan, const char *note, coh_plan_text *out)
{
    coh_plan_summary s = { .struct_bytes = sizeof(s) };
    COH_TRY(coh_plan_summarize(plan, &s));
    *out = (coh_plan_text){ .options = plan->options,
                            .decisions = plan->decisions,
                            .numeric_fingerprint = plan->numeric_fingerprint,
                            .program_hash = plan->program_hash,
                            .step_ns = s.step_ns,
                            .bound_ns = s.bound_ns,
                            .smallest_device_bytes = s.smallest_device_bytes,
                            .instruction_count = s.instruction_count,
                            .device_kind = plan->profile.device_kind,
                            .atomics = coh_graph_has_atomics(plan->graph),
                            .builder = COH_PLAN_BUILDER_VERSION,
                            .operator_count = (uint32_t)coh_plan_operator_count(plan),
                            .plan = plan };
    memcpy(out->peak_bytes, s.peak_bytes, sizeof(out->peak_bytes));
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        out->depths[lane] = plan->profile.link[lane].depth;
    snprintf(out->note, sizeof(out->note), "%s", note);
    snprintf(out->profile_name, sizeof(out->profile_name), "%s", plan->profile.name);
    COH_TRY(coh_profile_hash(&plan->profile, &out->profile_hash));
    COH_TRY(COH_ALLOC(out->operator_count, &out->operators));
    for (uint32_t i = 0; i < out->operator_count; i++) {
        coh_plan_operator o = { .struct_bytes = sizeof(o) };
        (void)coh_plan_operator_at(plan, (int32_t)i, &o); /* there is one */
        out->operators[i] =
            (coh_plan_words){ o.name, o.activations, o.parameters, o.states, o.pattern };
    }
    return COH_OK;
}

coh_status coh_plan_write(const coh_plan *plan, const char *path)
{
    COH_NEED(plan);
    COH_NEED_PATH(path);
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

coh_status coh_plan_to_text(const coh_plan *plan, const char *note, coh_text *text)
{
    coh_plan_text file = { 0 };
    COH_TRY(check_note(note));
    coh_status status = describe(plan, note, &file);
    if (status == COH_OK)
        status = coh_json_file_add(&plan_file, &file, text);
    coh_free(file.operators);
    return status;
}

coh_status coh_plan_write_noted(const coh_plan *plan, const char *note, const char *path)
{
    COH_NEED(plan);
    COH_NEED(note);
    COH_NEED_PATH(path);
    coh_plan_text file = { 0 };
    COH_TRY(check_note(note));
    coh_status status = describe(plan, note, &file);
    if (status == COH_OK)
        status = coh_json_file_write(&plan_file, &file, path);
    coh_free(file.operators);
    return status;
}

/* ---- reading ---- */

void coh_plan_text_fini(coh_plan_text *file)
{
    coh_free(file->pins);
    coh_free(file->optimizer_choices);
    for (uint32_t i = 0; file->operators != NULL && i < file->operator_count; i++) {
        const coh_plan_words *words = &file->operators[i];
        const char *const texts[] = { words->name, words->activations, words->parameters,
                                      words->states, words->pattern };
        for (size_t k = 0; k < sizeof(texts) / sizeof(texts[0]); k++)
            coh_free((void *)(uintptr_t)texts[k]);
    }
    coh_free(file->operators);
    file->pins = NULL;
    file->optimizer_choices = NULL;
    file->operators = NULL;
}

/* The patterns of a file that gives none: no choice is equal to it. */
static const coh_plan_text before_reading = { .decisions.patterns.of = { [COH_CLASS_PLAIN] =
                                                                             COH_PATTERN_COUNT } };

/* Ends the reading of a file: earlier versions give no patterns, but the slices that imply them. */
static coh_status end_reading(coh_status status, coh_plan_text *out)
{
    coh_decisions *d = &out->decisions;
    if (status != COH_OK)
        coh_plan_text_fini(out);
    else if (d->patterns.of[COH_CLASS_PLAIN] == COH_PATTERN_COUNT)
        d->patterns = coh_pattern_choose(d->slices);
    return status;
}

coh_status coh_plan_text_parse(const char *text, size_t bytes, coh_plan_text *out)
{
    *out = before_reading;
    return end_reading(coh_json_file_parse(&plan_file, text, bytes, out), out);
}

/* On success call coh_plan_text_fini later. */
static coh_status load(const char *path, coh_plan_text *out)
{
    *out = before_reading;
    return end_reading(coh_json_file_read(&plan_file, path, FILE_BYTES_MOST, out), out);
}

coh_status coh_plan_check_file(const char *path)
{
    COH_NEED_PATH(path);
    coh_plan_text file;
    COH_TRY(load(path, &file));
    coh_plan_text_fini(&file);
    return COH_OK;
}

/* Counts the operators per word of the member at `offset`: "12 device, 30 disk", in the order of
 * first occurrence. */
static void count_words(const coh_plan_text *file, size_t offset, char out_text[96])
{
    enum { WORDS = 8 };
    const char *words[WORDS];
    int counts[WORDS], word_count = 0;
    size_t used = 0;
    for (uint32_t o = 0; o < file->operator_count; o++) {
        const char *word = *(const char *const *)((const char *)&file->operators[o] + offset);
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
    out->instruction_count = file->instruction_count;
    out->chunk_bytes = file->decisions.chunk_bytes;
    out->sweep_order = file->options.sweep_order;
    out->f32_gradients = file->options.f32_gradients;
    out->replicas = file->options.replicas;
    out->wires = file->options.wires;
    out->reduce = (coh_reduce)file->options.reduce;
    out->ranks = file->options.ranks;
    out->pair_ranks = file->options.pair_ranks;
    out->node_ranks = file->options.node_ranks;
    out->deferred_update = file->options.deferred_update;
    out->speculates = file->options.speculates;
    out->atomics = file->atomics;
    out->is_in_memory = file->decisions.in_memory;
    out->recomputes = coh_block_set_count(&file->decisions.recompute);
    out->host_updates = file->decisions.host_updates;
    out->pin_count = file->options.pin_count;
    out->operator_count = (int32_t)file->operator_count;
    count_words(file, offsetof(coh_plan_words, parameters), out->parameters);
    count_words(file, offsetof(coh_plan_words, states), out->states);
    count_words(file, offsetof(coh_plan_words, activations), out->activations);
}

static void take_facts(const coh_plan_text *file, coh_plan_file *out)
{
    *out = (coh_plan_file){ .profile_hash = file->profile_hash,
                            .program_hash = file->program_hash,
                            .peak_device_bytes = file->peak_bytes[COH_TIER_DEVICE],
                            .step_ns = file->step_ns,
                            .host_memory_bytes = file->options.host_memory_bytes,
                            .disk_bytes = file->options.disk_bytes,
                            .is_gpu = file->device_kind != COH_DEVICE_HOST,
                            .microbatch_count = file->options.microbatch_count };
    take_decisions(file, out);
    memcpy(out->optimizer, file->options.optimizer, sizeof(out->optimizer));
    out->optimizer_choice_count = file->options.optimizer_choice_count;
    for (int32_t i = 0; i < file->options.optimizer_choice_count; i++)
        out->optimizer_choices[i] = file->optimizer_choices[i];
    snprintf(out->note, sizeof(out->note), "%s", file->note);
    snprintf(out->profile_name, sizeof(out->profile_name), "%s", file->profile_name);
}

/* Reads the file, or its text if that is not NULL. On success call coh_plan_text_fini later. */
static coh_status load_either(const char *path, const char *text, coh_plan_text *out)
{
    if (text == NULL)
        return load(path, out);
    const coh_status status = coh_plan_text_parse(text, strlen(text), out);
    return status == COH_OK || path == NULL ? status : coh_fail_prefix(status, "%s", path);
}

static coh_status read_facts(const char *path, const char *text, coh_plan_file *out_file)
{
    coh_plan_text file;
    coh_plan_file facts;
    COH_TRY(load_either(path, text, &file));
    take_facts(&file, &facts);
    COH_STRUCT_FILL(facts, out_file);
    coh_plan_text_fini(&file);
    return COH_OK;
}

coh_status coh_plan_file_read(const char *path, coh_plan_file *out_file)
{
    COH_NEED_PATH(path);
    COH_NEED_STRUCT(coh_plan_file, out_file);
    return read_facts(path, NULL, out_file);
}

coh_status coh_plan_file_parse(const char *text, coh_plan_file *out_file)
{
    COH_NEED(text);
    COH_NEED_STRUCT(coh_plan_file, out_file);
    return read_facts(NULL, text, out_file);
}

/* `path` names the file in messages, also if its text is given. */
static coh_status rebuild(const coh_graph *graph, const coh_plan_options *options, const char *path,
                          const char *text, coh_plan **out_plan)
{
    coh_plan_text file;
    coh_plan_options known;
    *out_plan = NULL;
    COH_TRY(coh_plan_options_read(options, &known));
    COH_TRY(load_either(path, text, &file));
    coh_status status = coh_plan_rebuild(graph, &known, path, &file, out_plan);
    coh_plan_text_fini(&file);
    if (status != COH_OK) {
        coh_plan_destroy(*out_plan);
        *out_plan = NULL;
        return status;
    }
    coh_graph_close(graph);
    return COH_OK;
}

coh_status coh_plan_read(const coh_graph *graph, const coh_plan_options *options, const char *path,
                         coh_plan **out_plan)
{
    COH_NEED(graph);
    COH_NEED(options);
    COH_NEED_PATH(path);
    COH_NEED(out_plan);
    return rebuild(graph, options, path, NULL, out_plan);
}

coh_status coh_plan_parse(const coh_graph *graph, const coh_plan_options *options, const char *name,
                          const char *text, coh_plan **out_plan)
{
    COH_NEED(graph);
    COH_NEED(options);
    COH_NEED(name);
    COH_NEED(text);
    COH_NEED(out_plan);
    return rebuild(graph, options, name, text, out_plan);
}
