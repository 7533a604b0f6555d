/* Writes the report as JSON: every number of the other forms, with units in the keys
 * (docs/report.md). The one idea: a number that is not known is null. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/json.h"
#include "report/draw.h"

static void put(coh_json_writer *w, const char *key, double value)
{
    if (isfinite(value))
        coh_json_put_real(w, key, value);
    else
        coh_json_put(w, key, "null");
}

static void put_ns(coh_json_writer *w, const char *key, uint64_t ns)
{
    coh_json_put(w, key, "%" PRIu64, ns);
}

static void add_speed(const report_analysis *a, coh_json_writer *w)
{
    coh_json_put_text(w, "verdict", a->verdict);
    coh_json_put(w, "measured", "%s", a->is_measured ? "true" : "false");
    coh_json_put(w, "steps", "%zu", a->run->row_count);
    coh_json_put(w, "timed_steps", "%zu", a->timed_count);
    put(w, "step_seconds", a->step_s);
    put(w, "least_step_seconds", a->least_s);
    put(w, "most_step_seconds", a->most_s);
    put(w, "predicted_step_seconds", a->predicted_s);
    put(w, "tokens_per_second", a->tokens_per_s);
    put(w, "model_flop_utilisation", a->utilisation);
    put(w, "of_in_memory_speed", a->of_in_memory);
    coh_json_put(w, "skipped_steps", "%" PRIu64, a->run->skipped_count);
}

static void add_causes(const report_analysis *a, coh_json_writer *w)
{
    coh_json_begin(w, "causes", '[', COH_JSON_LINES_IF_ANY);
    for (int i = 0; i < a->cause_count; i++) {
        const report_cause *c = &a->causes[i];
        coh_json_begin(w, NULL, '{', COH_JSON_INLINE);
        coh_json_put_text(w, "kind", report_kind_name(c->kind));
        put(w, "seconds", c->seconds);
        put(w, "saved_seconds", c->saved_s);
        coh_json_put_text(w, "lane",
                          c->lane < COH_LANE_COUNT ? coh_lane_name((coh_lane)c->lane) : NULL);
        coh_json_put_text(w, "operator",
                          c->operator_index == COH_TRACE_NONE
                              ? NULL
                              : a->run->trace->operators[c->operator_index].name);
        coh_json_put_text(w, "text", c->text);
        coh_json_end(w);
    }
    coh_json_end(w);
    coh_json_begin(w, "actions", '[', COH_JSON_LINES_IF_ANY);
    for (int i = 0; i < a->action_count; i++) {
        coh_json_begin(w, NULL, '{', COH_JSON_INLINE);
        coh_json_put_text(w, "text", a->actions[i].text);
        put(w, "gain", a->actions[i].gain);
        coh_json_put_text(w, "source", a->actions[i].source);
        put(w, "before_seconds", a->actions[i].before_s);
        put(w, "after_seconds", a->actions[i].after_s);
        coh_json_put_text(w, "basis", a->actions[i].basis);
        coh_json_put(w, "is_guess", "%s", a->actions[i].is_guess ? "true" : "false");
        coh_json_end(w);
    }
    coh_json_end(w);
}

static void add_parts(const report_analysis *a, coh_json_writer *w)
{
    report_part parts[REPORT_PARTS];
    const int count = report_parts(a, parts);
    put_ns(w, "window_ns", a->window.window_ns);
    put_ns(w, "idle_ns", a->window.idle_ns);
    coh_json_put(w, "window_step", "%" PRIu64, a->window.step + 1);
    coh_json_begin(w, "parts", '[', COH_JSON_LINES_IF_ANY);
    for (int i = 0; i < count; i++) {
        coh_json_begin(w, NULL, '{', COH_JSON_INLINE);
        coh_json_put_text(w, "name", parts[i].name);
        put_ns(w, "ns", parts[i].ns);
        coh_json_end(w);
    }
    coh_json_end(w);
}

static void add_lanes(const report_analysis *a, coh_json_writer *w)
{
    coh_json_begin(w, "lanes", '[', COH_JSON_LINES_IF_ANY);
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        const report_lane *l = &a->window.lanes[lane];
        if (l->piece_count == 0)
            continue;
        coh_json_begin(w, NULL, '{', COH_JSON_INLINE);
        coh_json_put_text(w, "lane", coh_lane_name((coh_lane)lane));
        put_ns(w, "busy_ns", l->busy_ns);
        put_ns(w, "idle_ns", a->window.window_ns - l->busy_ns);
        put_ns(w, "exposed_ns", l->exposed_ns);
        put_ns(w, "hidden_ns", l->hidden_ns);
        put_ns(w, "blame_ns", l->blame_ns);
        put_ns(w, "bytes", l->bytes);
        put(w, "profile_bytes_per_second", a->run->trace->lane_bytes_per_s[lane]);
        put(w, "least_bytes", a->run->facts.least_link_bytes[lane]);
        coh_json_end(w);
    }
    coh_json_end(w);
}

static void add_memory(const report_analysis *a, coh_json_writer *w)
{
    coh_json_begin(w, "memory", '[', COH_JSON_LINES_IF_ANY);
    for (int tier = 0; tier < COH_TIER_COUNT; tier++) {
        coh_json_begin(w, NULL, '{', COH_JSON_INLINE);
        coh_json_put_text(w, "tier", coh_tier_name((coh_tier)tier));
        put(w, "measured_peak_bytes", a->run->peak_bytes[tier]);
        put(w, "predicted_peak_bytes", a->run->facts.predicted_peak_bytes[tier]);
        put(w, "budget_bytes", a->run->facts.budget_bytes[tier]);
        put_ns(w, "step_peak_bytes", a->has_window ? a->memory.peak_bytes[tier] : 0);
        coh_json_end(w);
    }
    coh_json_end(w);
}

static void add_operators(const report_analysis *a, coh_json_writer *w)
{
    coh_json_begin(w, "operators", '[', COH_JSON_LINES_IF_ANY);
    for (uint32_t i = 0; i < a->operator_count; i++) {
        const report_operator *o = &a->operators[i];
        const coh_trace_operator *facts = &a->run->trace->operators[o->index];
        coh_json_begin(w, NULL, '{', COH_JSON_INLINE);
        coh_json_put_text(w, "name", facts->name);
        coh_json_put_text(w, "kind", facts->kind);
        put(w, "predicted_seconds", o->predicted_s);
        put(w, "measured_seconds", o->measured_s);
        put(w, "flops", o->flops);
        coh_json_put_text(w, "parameters", facts->parameters);
        coh_json_put_text(w, "states", facts->states);
        coh_json_put_text(w, "activations", facts->activations);
        coh_json_put_text(w, "updates", facts->updates);
        coh_json_put_text(w, "pattern", facts->pattern);
        coh_json_end(w);
    }
    coh_json_end(w);
}

static void add_rest(const report_analysis *a, coh_json_writer *w)
{
    coh_json_begin(w, "what_if", '[', COH_JSON_LINES_IF_ANY);
    for (int i = 0; i < a->what_if_count; i++) {
        const report_what_if *o = &a->what_ifs[i];
        coh_json_begin(w, NULL, '{', COH_JSON_INLINE);
        coh_json_put_text(w, "text", o->text);
        put(w, "step_seconds", o->step_s);
        put(w, "gain", o->gain);
        coh_json_put_text(w, "limit", o->limit);
        coh_json_put(w, "is_quick", "%s", o->is_quick ? "true" : "false");
        coh_json_end(w);
    }
    coh_json_end(w);
    coh_json_put(w, "what_if_unplanned", "%d", a->unplanned_count);
    coh_json_put(w, "what_if_needs_no_memory", "%s", a->needs_no_memory ? "true" : "false");
    coh_json_begin(w, "slow_steps", '[', COH_JSON_LINES_IF_ANY);
    for (int i = 0; i < a->slow_count && i < REPORT_SLOW_STEPS; i++) {
        coh_json_begin(w, NULL, '{', COH_JSON_INLINE);
        coh_json_put(w, "step", "%" PRIu64, a->slow_steps[i].step);
        put(w, "seconds", a->slow_steps[i].seconds);
        coh_json_put_text(w, "why", a->slow_steps[i].why);
        coh_json_end(w);
    }
    coh_json_end(w);
    coh_json_begin(w, "notes", '[', COH_JSON_LINES_IF_ANY);
    for (int i = 0; i < a->run->note_count; i++)
        coh_json_put_text(w, NULL, a->run->notes[i]);
    coh_json_end(w);
}

coh_status report_draw_json(const report_analysis *a, coh_text *out)
{
    coh_json_writer w = { .text = out };
    char *facts = json_dumps(a->run->json, JSON_COMPACT);
    if (!facts)
        return coh_fail(COH_ERR_MEMORY, "no memory for the text of run.json");
    coh_json_begin(&w, NULL, '{', COH_JSON_LINES);
    coh_json_put_text(&w, "format", "cohobate report");
    coh_json_put(&w, "version", "%d", REPORT_JSON_VERSION);
    coh_json_put_text(&w, "folder", a->run->folder);
    coh_json_put(&w, "run", "%s", facts);
    free(facts);
    add_speed(a, &w);
    add_causes(a, &w);
    if (a->has_window) {
        add_parts(a, &w);
        add_lanes(a, &w);
    }
    add_memory(a, &w);
    add_operators(a, &w);
    add_rest(a, &w);
    coh_json_end(&w);
    if (w.status == COH_OK)
        w.status = coh_text_add(out, "\n");
    return w.status;
}
