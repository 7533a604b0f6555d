/* Compares two runs: what became faster or slower by lane and by operator, and what differs between
 * them. The one idea: rows are matched by name, so runs of different plans compare, too. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "report/draw.h"
#include "report/format.h"

enum { ROWS = 12 };

#define ADD(...) COH_TRY(coh_text_add(out, __VA_ARGS__))

static coh_status add_row(const char *name, double before, double after, coh_text *out)
{
    ADD("  ");
    COH_TRY(report_add_cell(out, name, 34));
    COH_TRY(report_add_cell(out, report_time(before).at, -12));
    COH_TRY(report_add_cell(out, report_time(after).at, -12));
    COH_TRY(report_add_cell(out, report_change(after / before - 1).at, -12));
    ADD("\n");
    return COH_OK;
}

/* Long texts are cut: they begin shortly before the first difference. */
static coh_status add_fact(const char *name, const char *before, const char *after, int *count,
                           coh_text *out)
{
    char texts[2][200];
    size_t same = 0;
    if (strcmp(before, after) == 0)
        return COH_OK;
    while (before[same] && before[same] == after[same])
        same++;
    const size_t skipped = same > 50 ? same - 20 : 0;
    const char *gap = skipped ? "..." : "";
    snprintf(texts[0], sizeof(texts[0]), "%s%.60s", gap, before[0] ? before + skipped : "-");
    snprintf(texts[1], sizeof(texts[1]), "%s%.60s", gap, after[0] ? after + skipped : "-");
    for (int i = 0; i < 2; i++)
        coh_text_make_printable(texts[i]);
    ++*count;
    ADD("  %-16s %s → %s\n", name, texts[0], texts[1]);
    return COH_OK;
}

static coh_status add_number(const char *name, double before, double after, int *count,
                             coh_text *out)
{
    return add_fact(name, report_count(before).at, report_count(after).at, count, out);
}

/* Names of the recipe that add nothing: bookkeeping, rows of add_why, the clip mode, which is two
 * members, and paths of data, which a run copies into its folder: their hashes are compared. */
static int is_left_out(const char *name)
{
    static const char *const names[] = {
        "format",
        "version",
        "batch",
        "sequence",
        "micro_batch",
        "name",
        "optimizer",
        "data_first_step",
        "data_first_window",
        "dtype",
        "data",
        "validation",
        "trained_positions",
        "base_trained",
        "frozen_rounded",
        "clips_by_previous",
        "speculates",
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(names[i], name) == 0)
            return 1;
    return 0;
}

/* A hash of data that a run does not have, as a hash of held-out text, is 0. */
static int is_no_hash(const json_t *value)
{
    const char *text = json_string_value(value);
    return text && strlen(text) == 16 && strspn(text, "0") == 16;
}

/* Appends a value of a recipe: a fraction with `digits` digits, -1 as the optimizer's default. */
static coh_status add_value(const json_t *value, int digits, coh_text *out)
{
    size_t i;
    const json_t *entry;
    if (json_is_string(value))
        return coh_text_add(out, "%s", is_no_hash(value) ? "none" : json_string_value(value));
    if (json_is_boolean(value))
        return coh_text_add(out, "%s", json_is_true(value) ? "yes" : "no");
    if (json_is_number(value) && json_number_value(value) == -1)
        return coh_text_add(out, "default");
    if (json_is_integer(value))
        return coh_text_add(out, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    if (json_is_real(value))
        return coh_text_add(out, "%.*g", digits, json_real_value(value));
    json_array_foreach(value, i, entry)
    {
        ADD(i ? " " : "");
        COH_TRY(add_value(entry, digits, out));
    }
    return COH_OK;
}

/* Appends both values, with all digits where fewer are equal. */
static coh_status add_values(const json_t *before, const json_t *after, coh_text *texts)
{
    for (int digits = 9; digits <= 17; digits += 8) {
        coh_text_fini(&texts[0]);
        coh_text_fini(&texts[1]);
        texts[0] = texts[1] = (coh_text){ 0 };
        COH_TRY(coh_text_add(&texts[0], "%s", "")); /* a member that is missing is empty */
        COH_TRY(coh_text_add(&texts[1], "%s", ""));
        COH_TRY(add_value(before, digits, &texts[0]));
        COH_TRY(add_value(after, digits, &texts[1]));
        if (strcmp(texts[0].data, texts[1].data) != 0)
            break;
    }
    return COH_OK;
}

/* 0 or empty, as if it was not there. Runs of earlier versions lack "schedule", and are cosines. */
static int is_nothing(const json_t *value)
{
    return value == NULL || (json_is_number(value) && json_number_value(value) == 0) ||
           (json_is_string(value) && (json_string_length(value) == 0 || is_no_hash(value) ||
                                      strcmp(json_string_value(value), "cosine") == 0)) ||
           (json_is_array(value) && json_array_size(value) == 0);
}

/* A member of the recipe that has another name on the command line, or whose numbers are words
 * there: the word of number i is words[i], NULL: the number itself. */
typedef struct setting {
    const char *member, *row;
    const char *words[8];
} setting;

static const setting settings[] = {
    { "warmup_steps", "warmup", { NULL } },
    { "base", "first weights", { NULL } },
    { "rank", "lora-rank", { NULL } },
    { "alpha", "lora-alpha", { NULL } },
    { "targets", "lora-targets", { NULL } },
    { "also", "lora-also", { NULL } },
    { "aligned", "documents", { "packed", "aligned", "fitted", "separate" } },
    { "chat", "chat", { "no", "yes" } },
    { "chat_form",
      "chat-form",
      { "auto", "chatml", "llama3", "llama2", "plain", "gemma", "qwen3" } },
    { "skip_bad", "skip-bad", { "no", "yes" } },
    { "id_bytes", "id-bytes", { "by the vocabulary" } },
    { "validation_id_bytes", "validation-id-bytes", { "by the vocabulary" } },
    { "by_layers", "sweep-order", { "micro-batch", "layer" } },
    { "f32_gradients", "gradients", { "as the weights", "f32" } },
    { "frozen_nf4", "frozen-dtype", { "model", "nf4" } },
    { "atomics", "atomics", { "off", "on" } },
    { "save_every", "save-every", { "at the end" } },
    { "validation_every", "validation-every", { "at saves" } },
    { "validation_windows", "validation-windows", { "all" } },
    { "stop_after_worse", "stop-after-worse", { "never" } },
};

static const setting *find_setting(const char *member)
{
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
        if (strcmp(settings[i].member, member) == 0)
            return &settings[i];
    return NULL;
}

/* The name of a setting: that of its flag, if it has one. */
static void name_setting(const char *member, char *out_row, size_t bytes)
{
    const setting *known = find_setting(member);
    snprintf(out_row, bytes, "%s", known ? known->row : member);
    for (char *c = out_row; *c; c++)
        *c = *c == '_' ? '-' : *c;
}

/* The word of a setting's value, a missing one being 0; NULL: it has none. */
static const char *word_of(const char *member, const json_t *value)
{
    const setting *known = find_setting(member);
    const json_int_t number = json_integer_value(value);
    const int most = sizeof(known->words) / sizeof(known->words[0]);
    if (!known || (value && !json_is_integer(value)) || number < 0 || number >= most)
        return NULL;
    return known->words[number];
}

static coh_status add_setting(const char *name, const json_t *before, const json_t *after,
                              int *count, coh_text *out)
{
    char row[64];
    coh_text texts[2] = { { 0 }, { 0 } };
    coh_status status = add_values(before, after, texts);
    const char *words[] = { word_of(name, before), word_of(name, after) };
    name_setting(name, row, sizeof(row));
    if (status == COH_OK)
        status = add_fact(row, words[0] ? words[0] : texts[0].data,
                          words[1] ? words[1] : texts[1].data, count, out);
    coh_text_fini(&texts[0]);
    coh_text_fini(&texts[1]);
    return status;
}

/* The --clip-mode of a recipe. */
static const char *clip_mode(const json_t *recipe)
{
    return json_integer_value(json_object_get(recipe, "speculates"))          ? "speculate"
           : json_integer_value(json_object_get(recipe, "clips_by_previous")) ? "previous"
                                                                              : "exact";
}

/* Members of `a` that differ from those of `b`; those that only `b` has with `is_rest`. An object
 * in an object, as the model's configuration, is compared member by member. */
static coh_status add_settings(const json_t *a, const json_t *b, int is_rest, int *count,
                               coh_text *out)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)a, name, value)
    {
        const json_t *other = json_object_get(b, name);
        if (is_left_out(name) || (is_nothing(value) && is_nothing(other)))
            continue;
        if (json_is_object(value))
            COH_TRY(add_settings(value, other, is_rest, count, out));
        else if (!json_equal(value, other) && !(is_rest && other))
            COH_TRY(add_setting(name, is_rest ? NULL : value, is_rest ? value : other, count, out));
    }
    return COH_OK;
}

/* Runs of earlier versions have no recipe in run.json: their commands are compared. */
static coh_status add_recipes(const report_facts *a, const report_facts *b, int *count,
                              coh_text *out)
{
    if (!a->recipe || !b->recipe)
        return add_fact("command", a->command, b->command, count, out);
    COH_TRY(add_settings(a->recipe, b->recipe, 0, count, out));
    COH_TRY(add_settings(b->recipe, a->recipe, 1, count, out));
    COH_TRY(add_fact("clip-mode", clip_mode(a->recipe), clip_mode(b->recipe), count, out));
    COH_TRY(add_number("ranks", a->ranks, b->ranks, count, out));
    COH_TRY(add_fact("pattern", a->pattern, b->pattern, count, out));
    COH_TRY(add_fact("wire", a->wire, b->wire, count, out));
    return add_fact("reduce", a->reduce[0] ? a->reduce : "exact",
                    b->reduce[0] ? b->reduce : "exact", count, out);
}

/* A run records a budget without a limit as null. */
static report_text budget_of(double bytes)
{
    if (bytes == 0)
        return (report_text){ "none" };
    return isfinite(bytes) ? report_size(bytes) : (report_text){ "no limit" };
}

/* Appends the folders of --disk. */
static coh_status join_disks(const json_t *disks, coh_text *out)
{
    size_t i;
    const json_t *folder;
    ADD("%s", json_array_size(disks) > 0 ? "" : "none");
    json_array_foreach(disks, i, folder)
    {
        ADD(i ? ", " : "");
        COH_TRY(add_value(folder, 9, out));
    }
    return COH_OK;
}

/* A run of an earlier version recorded no folders. */
static coh_status add_disks(const json_t *before, const json_t *after, int *count, coh_text *out)
{
    coh_text texts[2] = { { 0 }, { 0 } };
    if (!before || !after)
        return COH_OK;
    coh_status status = join_disks(before, &texts[0]);
    if (status == COH_OK)
        status = join_disks(after, &texts[1]);
    if (status == COH_OK)
        status = add_fact("disk folders", texts[0].data, texts[1].data, count, out);
    coh_text_fini(&texts[0]);
    coh_text_fini(&texts[1]);
    return status;
}

/* Did earlier runs calibrate one run's predictions, and not the other's? */
static int is_calibration_other(const report_facts *a, const report_facts *b)
{
    return a->is_calibrated >= 0 && b->is_calibrated >= 0 && a->is_calibrated != b->is_calibrated;
}

static const char *calibration_of(const report_facts *facts)
{
    return facts->is_calibrated ? "calibrated by earlier runs" : "not calibrated";
}

static coh_status add_profile(const report_facts *a, const report_facts *b, int *count,
                              coh_text *out)
{
    char texts[2][200];
    const int is_renamed = strcmp(a->profile, b->profile) != 0;
    snprintf(texts[0], sizeof(texts[0]), "%.150s%s%.20s", is_renamed ? a->profile : "",
             is_renamed ? ", hash " : "", a->profile_hash);
    snprintf(texts[1], sizeof(texts[1]), "%.150s%s%.20s", is_renamed ? b->profile : "",
             is_renamed ? ", hash " : "", b->profile_hash);
    COH_TRY(add_fact("profile", texts[0], texts[1], count, out));
    if (is_calibration_other(a, b))
        COH_TRY(add_fact("prices", calibration_of(a), calibration_of(b), count, out));
    return COH_OK;
}

static coh_status add_why(const report_facts *a, const report_facts *b, coh_text *out)
{
    int count = 0;
    ADD("\nWHAT DIFFERS\n");
    COH_TRY(add_fact("plan", a->plan_hash, b->plan_hash, &count, out));
    COH_TRY(add_fact("planned limit", report_limit(a->limit), report_limit(b->limit), &count, out));
    for (int tier = 0; tier < COH_TIER_COUNT; tier++) {
        char name[32];
        snprintf(name, sizeof(name), "%s budget", coh_tier_name((coh_tier)tier));
        COH_TRY(add_fact(name, budget_of(a->budget_bytes[tier]).at,
                         budget_of(b->budget_bytes[tier]).at, &count, out));
    }
    COH_TRY(add_disks(a->disks, b->disks, &count, out));
    COH_TRY(add_profile(a, b, &count, out));
    COH_TRY(add_fact("cpu", a->cpu, b->cpu, &count, out));
    COH_TRY(add_fact("gpu", a->gpu, b->gpu, &count, out));
    COH_TRY(add_number("cores", a->cores, b->cores, &count, out));
    COH_TRY(add_number("threads", a->threads, b->threads, &count, out));
    COH_TRY(add_fact("memory", report_size(a->memory_bytes).at, report_size(b->memory_bytes).at,
                     &count, out));
    COH_TRY(add_fact("cohobate", a->version, b->version, &count, out));
    COH_TRY(add_fact("model", a->model, b->model, &count, out));
    COH_TRY(add_fact("dtype", a->dtype, b->dtype, &count, out));
    COH_TRY(add_fact("optimizer", a->optimizer, b->optimizer, &count, out));
    COH_TRY(add_number("batch", a->batch, b->batch, &count, out));
    COH_TRY(add_number("micro-batch", a->micro_batch, b->micro_batch, &count, out));
    COH_TRY(add_number("sequence", a->sequence, b->sequence, &count, out));
    COH_TRY(add_recipes(a, b, &count, out));
    if (count == 0)
        ADD("  nothing that is recorded: plan, machine and settings are equal\n");
    return COH_OK;
}

static coh_status add_lanes(const report_analysis *a, const report_analysis *b, coh_text *out)
{
    if (!a->has_window || !b->has_window)
        return COH_OK;
    ADD("\nLANES, of the step shown by report\n");
    COH_TRY(add_row("compute busy", (double)a->window.lanes[0].busy_ns * 1e-9,
                    (double)b->window.lanes[0].busy_ns * 1e-9, out));
    for (int lane = 1; lane < COH_LANE_COUNT; lane++) {
        const report_lane *x = &a->window.lanes[lane], *y = &b->window.lanes[lane];
        char name[48];
        if (x->piece_count + y->piece_count == 0)
            continue;
        snprintf(name, sizeof(name), "%s busy", coh_lane_name((coh_lane)lane));
        COH_TRY(add_row(name, (double)x->busy_ns * 1e-9, (double)y->busy_ns * 1e-9, out));
        snprintf(name, sizeof(name), "%s exposed", coh_lane_name((coh_lane)lane));
        COH_TRY(add_row(name, (double)x->exposed_ns * 1e-9, (double)y->exposed_ns * 1e-9, out));
    }
    return COH_OK;
}

/* An operator of both runs. */
typedef struct pair {
    const char *name;
    double before, after;
} pair;

static int name_order(const void *left, const void *right)
{
    return strcmp(((const pair *)left)->name, ((const pair *)right)->name);
}

static int change_order(const void *left, const void *right)
{
    const pair *a = left, *b = right;
    const double x = fabs(a->after - a->before), y = fabs(b->after - b->before);
    return (x < y) - (x > y);
}

static double seconds_of(const report_operator *o)
{
    return isnan(o->measured_s) ? o->predicted_s : o->measured_s;
}

static coh_status add_operators(const report_analysis *a, const report_analysis *b, coh_text *out)
{
    pair *pairs;
    uint32_t count = 0;
    COH_TRY(COH_ALLOC(a->operator_count, &pairs));
    for (uint32_t i = 0; i < a->operator_count; i++)
        pairs[i] = (pair){ a->run->trace->operators[a->operators[i].index].name,
                           seconds_of(&a->operators[i]), NAN };
    qsort(pairs, a->operator_count, sizeof(*pairs), name_order);
    for (uint32_t i = 0; i < b->operator_count; i++) {
        const pair wanted = { b->run->trace->operators[b->operators[i].index].name, 0, 0 };
        pair *found = a->operator_count
                          ? bsearch(&wanted, pairs, a->operator_count, sizeof(*pairs), name_order)
                          : NULL;
        if (found)
            found->after = seconds_of(&b->operators[i]);
    }
    for (uint32_t i = 0; i < a->operator_count; i++)
        if (isfinite(pairs[i].after))
            pairs[count++] = pairs[i];
    qsort(pairs, count, sizeof(*pairs), change_order);
    coh_status status = count ? coh_text_add(out, "\nOPERATORS, largest change first\n") : COH_OK;
    for (uint32_t i = 0; i < count && i < ROWS && status == COH_OK; i++) {
        char name[200];
        snprintf(name, sizeof(name), "%.199s", pairs[i].name);
        coh_text_make_printable(name);
        status = add_row(name, pairs[i].before, pairs[i].after, out);
    }
    coh_free(pairs);
    return status;
}

coh_status report_draw_diff(const report_analysis *before, const report_analysis *after,
                            coh_text *out)
{
    const double change = after->step_s / before->step_s - 1;
    ADD("BEFORE  %.200s\nAFTER   %.200s\n\n  A step takes %s, before %s: %s.\n",
        before->run->folder, after->run->folder, report_time(after->step_s).at,
        report_time(before->step_s).at,
        !isfinite(change)     ? "one of the runs has no steps"
        : fabs(change) < 0.01 ? "within 1 %"
        : change < 0          ? "it became faster"
                              : "it became slower");
    ADD("  ");
    COH_TRY(report_add_cell(out, "", 34));
    ADD("%12s%12s%12s\n", "before", "after", "change");
    COH_TRY(add_row("step, median", before->step_s, after->step_s, out));
    COH_TRY(add_row("step, predicted", before->predicted_s, after->predicted_s, out));
    if (is_calibration_other(&before->run->facts, &after->run->facts))
        ADD("    predictions: before %s, after %s\n", calibration_of(&before->run->facts),
            calibration_of(&after->run->facts));
    COH_TRY(add_lanes(before, after, out));
    COH_TRY(add_operators(before, after, out));
    return add_why(&before->run->facts, &after->run->facts, out);
}
