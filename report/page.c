/* Draws the HTML report: one file, which loads nothing and may run only its own script, by the hash
 * in its policy. The one idea: a section without data is left out. Next: figures.c draws, page.css
 * and page.js are embedded by embed.py. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cohobate/cohobate.h"
#include "report/format.h"
#include "report/html.h"
#include "report/report_assets.h"

#define ADD(...) COH_TRY(coh_text_add(out, __VA_ARGS__))

enum { OPERATOR_ROWS = 300, NAME_MOST = 60, TEXT_MOST = 2000 };

coh_status report_add_escaped(coh_text *out, const char *text, int most)
{
    int used = 0;
    while (*text && used < most) {
        size_t plain = 0; /* bytes that are written as they are */
        for (; used < most || ((unsigned char)text[plain] & 0xc0) == 0x80; plain++) {
            const unsigned char letter = (unsigned char)text[plain];
            if (letter < 0x20 || letter == 0x7f || strchr("&<>\"'", letter))
                break;
            used += (letter & 0xc0) != 0x80;
        }
        ADD("%.*s", (int)plain, text);
        text += plain;
        if (!*text || used == most)
            break;
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            ADD("?");
        else
            ADD("&#%d;", *text);
        text++;
        used++;
    }
    return *text ? coh_text_add(out, "…") : COH_OK;
}

/* ---- verdict and run card ---- */

static coh_status add_tile(const char *name, const char *value, const char *note, coh_text *out)
{
    ADD("<div><dt>%s</dt><dd>%s<small>%s</small></dd></div>", name, value, note);
    return COH_OK;
}

static coh_status add_actions(const report_analysis *a, coh_text *out)
{
    if (a->action_count == 0)
        return COH_OK;
    ADD("<h3>What to change</h3><ol class=\"actions\">");
    for (int i = 0; i < a->action_count; i++) {
        ADD("<li><b>%s<small>%s%s</small></b><span>", report_change(a->actions[i].gain).at,
            a->actions[i].source, a->actions[i].is_guess ? "; a guess, not calibrated" : "");
        COH_TRY(report_add_escaped(out, a->actions[i].text, TEXT_MOST));
        ADD("<small>%s</small></span></li>", a->actions[i].basis);
    }
    ADD("</ol><p class=\"soft\">Gains are in tokens/s. <em>Planned</em>: two plans, with "
        "and without the change; <em>quickly</em>: by the quick search. <em>Replayed</em>: the "
        "step that the verdict names was played again with other durations. "
        "<em>Estimated</em>: the lost seconds were subtracted.</p>");
    return COH_OK;
}

static coh_status add_verdict(const report_analysis *a, coh_text *out)
{
    char note[120];
    ADD("<section id=\"verdict\"><h2>Verdict</h2><p class=\"says\">");
    COH_TRY(report_add_escaped(out, a->verdict, TEXT_MOST));
    ADD("</p><dl class=\"tiles\">");
    snprintf(note, sizeof(note), "%s tokens a step",
             report_count(a->run->facts.tokens_per_step).at);
    if (isfinite(a->tokens_per_s))
        COH_TRY(add_tile("Tokens/s", report_count(a->tokens_per_s).at, note, out));
    snprintf(note, sizeof(note), "predicted %s%s", report_time(a->predicted_s).at,
             report_guesses(&a->run->facts, 1) ? ": a guess, not calibrated" : "");
    if (isfinite(a->step_s))
        COH_TRY(add_tile(a->timed_count ? "Step, median" : "Step", report_time(a->step_s).at, note,
                         out));
    snprintf(note, sizeof(note), "of %s FLOP/s", report_count(a->run->facts.peak_flops_per_s).at);
    if (isfinite(a->utilisation))
        COH_TRY(add_tile("Model FLOP utilisation", report_percent(a->utilisation).at, note, out));
    snprintf(note, sizeof(note), "there %s a step",
             report_time(a->run->facts.predicted_in_memory_step_s).at);
    if (isfinite(a->of_in_memory))
        COH_TRY(add_tile("Of in-memory speed", report_percent(a->of_in_memory).at, note, out));
    ADD("</dl>");
    COH_TRY(add_actions(a, out));
    ADD("</section>");
    return COH_OK;
}

static coh_status add_fact(const char *name, const char *value, int is_wide, coh_text *out)
{
    if (value[0] == '\0' || strcmp(value, "-") == 0)
        return COH_OK;
    ADD("<div%s><dt>%s</dt><dd>", is_wide ? " class=\"wide\"" : "", name);
    ADD("%s", is_wide ? "<code>" : "");
    COH_TRY(report_add_escaped(out, value, TEXT_MOST));
    ADD("%s</dd></div>", is_wide ? "</code>" : "");
    return COH_OK;
}

static coh_status add_card(const report_analysis *a, coh_text *out)
{
    const report_facts *f = &a->run->facts;
    char batch[160];
    ADD("<section id=\"run\"><h2>%s</h2><dl class=\"card\">",
        a->run->folder ? "Run card" : "Plan card");
    COH_TRY(add_fact("Model", f->model, 0, out));
    COH_TRY(add_fact("Parameters", report_count(f->parameters).at, 0, out));
    COH_TRY(add_fact("Weights", f->dtype, 0, out));
    COH_TRY(add_fact("Optimizer", f->optimizer, 0, out));
    COH_TRY(add_fact("State", f->state, 0, out));
    if (isfinite(f->batch)) {
        snprintf(batch, sizeof(batch), "%s sequence%s of %s, %s at once", report_count(f->batch).at,
                 f->batch == 1 ? "" : "s", report_count(f->sequence).at,
                 report_count(f->micro_batch).at);
        COH_TRY(add_fact("Batch", batch, 0, out));
    }
    COH_TRY(add_fact("Device", f->device, 0, out));
    COH_TRY(add_fact("GPU", f->gpu, 0, out));
    COH_TRY(add_fact("CPU", f->cpu, 0, out));
    COH_TRY(add_fact("Cores", report_count(f->cores).at, 0, out));
    COH_TRY(add_fact("Threads", report_count(f->threads).at, 0, out));
    COH_TRY(add_fact("Memory", report_size(f->memory_bytes).at, 0, out));
    COH_TRY(add_fact("Started (UTC)", f->started, 0, out));
    COH_TRY(add_fact("Cohobate", f->version, 0, out));
    COH_TRY(add_fact("Seed", report_count(f->seed).at, 0, out));
    COH_TRY(add_fact("Limit, as planned", report_limit(f->limit), 0, out));
    COH_TRY(add_fact("Plan", f->plan_hash, 0, out));
    COH_TRY(add_fact("Profile", f->profile, 0, out));
    COH_TRY(add_fact("Profile hash", f->profile_hash, 0, out));
    if (f->is_calibrated >= 0)
        COH_TRY(add_fact("Calibrated", f->is_calibrated ? "yes, by earlier runs" : "no", 0, out));
    COH_TRY(add_fact("Folder", a->run->folder ? a->run->folder : "", 1, out));
    COH_TRY(add_fact("Command", f->command ? f->command : "", 1, out));
    ADD("</dl></section>");
    return COH_OK;
}

/* ---- the step ---- */

static coh_status add_waterfall(const report_analysis *a, coh_text *out)
{
    report_part parts[REPORT_PARTS];
    const int count = report_parts(a, parts);
    const double window = (double)a->window.window_ns;
    uint64_t before = 0;
    ADD("<section id=\"time\"><h2>Where the time of a step goes</h2><p class=\"soft\">");
    if (a->is_measured)
        ADD("Step %" PRIu64 ", as recorded.", a->window.step + 1);
    else
        ADD("As predicted.");
    ADD(" The parts sum to the step. A wait is charged to the lane that ended it; the causes below "
        "follow the chain of waits to the lane that began it.</p>");
    ADD("<div class=\"scroll\"><table><thead><tr><th>Part</th><th>From begin to end</th><th "
        "class=\"n\">Time</th><th "
        "class=\"n\">Share</th></tr></thead><tbody>");
    for (int i = 0; i < count; i++) {
        const char *style = parts[i].kind == REPORT_PART_WAIT ? "wait" : "other";
        for (uint32_t op = 0; op < a->window.trace->opcode_count; op++)
            if (parts[i].kind == REPORT_PART_COMPUTE &&
                strcmp(parts[i].name, a->window.trace->opcodes[op]) == 0)
                style = report_style_of(a->window.trace, op, COH_LANE_COMPUTE);
        ADD("<tr><td>");
        COH_TRY(report_add_escaped(out, parts[i].name, NAME_MOST));
        ADD("</td><td class=\"bar\">");
        COH_TRY(report_figure_bar(style, (double)before / window,
                                  (double)(before + parts[i].ns) / window, out));
        before += parts[i].ns;
        ADD("</td><td class=\"n\">%s</td><td class=\"n\">%s</td></tr>",
            report_time((double)parts[i].ns * 1e-9).at,
            report_percent((double)parts[i].ns / window).at);
    }
    ADD("</tbody><tfoot><tr><td>Step</td><td></td><td class=\"n\">%s</td><td "
        "class=\"n\">%s</td></tr></tfoot></table></div>",
        report_time(window * 1e-9).at, report_percent((double)before / window).at);
    ADD("<h3>Causes, by what the step would save without them</h3><ul>");
    for (int i = 0; i < a->cause_count; i++) {
        ADD("<li><b>%s</b>: ", report_kind_name(a->causes[i].kind));
        COH_TRY(report_add_escaped(out, a->causes[i].text, TEXT_MOST));
        if (a->causes[i].kind != REPORT_COMPUTE)
            ADD("; without it the step would be %s shorter", report_time(a->causes[i].saved_s).at);
        ADD("</li>");
    }
    ADD("</ul></section>");
    return COH_OK;
}

static coh_status add_lanes(const report_analysis *a, coh_text *out)
{
    ADD("<section id=\"lanes\"><h2>Lanes</h2><p class=\"soft\">");
    if (a->is_measured)
        ADD("Every instruction of step %" PRIu64 ": above, thin and pale, as predicted; below as "
            "measured.</p>",
            a->window.step + 1);
    else
        ADD("Every instruction of a step, as predicted: no step was recorded.</p>");
    COH_TRY(report_figure_lanes(a, out));
    ADD("</section>");
    return COH_OK;
}

static coh_status add_link(const report_analysis *a, int lane, coh_text *out)
{
    const report_lane *l = &a->window.lanes[lane];
    const double seconds = (double)l->busy_ns * 1e-9,
                 ceiling = a->run->trace->lane_bytes_per_s[lane];
    const double rate = seconds > 0 ? (double)l->bytes / seconds : NAN;
    const double least = a->run->facts.least_link_bytes[lane];
    ADD("<tr><td>%s</td><td class=\"n\">%s</td><td class=\"n\">%s</td><td class=\"n\">%s</td><td "
        "class=\"n\">%s</td><td class=\"n\">%s</td><td class=\"n\">%s</td>",
        coh_lane_name((coh_lane)lane), report_size((double)l->bytes).at,
        least > 0 ? report_size(least).at : "-", report_time(seconds).at,
        report_time((double)l->exposed_ns * 1e-9).at, report_rate(rate).at,
        report_rate(ceiling > 0 ? ceiling : NAN).at);
    ADD("<td class=\"bar\">");
    if (ceiling > 0 && rate > 0) {
        COH_TRY(report_figure_bar("move", 0, rate / ceiling, out));
        ADD("<span class=\"soft\">%s of the ceiling</span>", report_percent(rate / ceiling).at);
    }
    ADD("</td><td>");
    COH_TRY(report_figure_latency(&a->run->trace->latencies[lane], out));
    ADD("</td></tr>");
    return COH_OK;
}

static coh_status add_links(const report_analysis *a, coh_text *out)
{
    int count = 0;
    for (int lane = 1; lane < COH_LANE_COUNT; lane++)
        count += lane != COH_LANE_HOST && a->window.lanes[lane].bytes > 0;
    if (count == 0)
        return COH_OK;
    ADD("<section id=\"links\"><h2>Links</h2><p class=\"soft\">Bytes and times of the step shown. "
        "The fewest bytes are those of any schedule of the plan's decisions.</p><div "
        "class=\"scroll\"><table><thead><tr><th>Lane</th><th class=\"n\">Moved</th><th "
        "class=\"n\">Fewest</th><th class=\"n\">Busy</th><th class=\"n\">Exposed</th><th "
        "class=\"n\">Rate</th><th class=\"n\">Ceiling</th><th>Rate of ceiling</th><th>Latencies"
        "</th></tr></thead><tbody>");
    for (int lane = 1; lane < COH_LANE_COUNT; lane++)
        if (lane != COH_LANE_HOST && a->window.lanes[lane].bytes > 0)
            COH_TRY(add_link(a, lane, out));
    ADD("</tbody></table></div></section>");
    return COH_OK;
}

static coh_status add_operators(const report_analysis *a, coh_text *out)
{
    const coh_trace *t = a->run->trace;
    if (a->operator_count == 0)
        return COH_OK;
    ADD("<section id=\"operators\"><h2>Operators</h2><p class=\"soft\">%s",
        a->measured_count
            ? "Seconds of a step, computing and updating; the one furthest from its prediction, "
              "in seconds, first."
            : "Predicted seconds of a step, computing and updating; the longest first.");
    if (a->measured_count)
        ADD(" Measured: mean of %" PRIu32 " recorded step%s.", a->measured_count,
            a->measured_count == 1 ? "" : "s");
    if (a->operator_count > OPERATOR_ROWS)
        ADD(" The first %d of %" PRIu32 ".", OPERATOR_ROWS, a->operator_count);
    ADD("</p><div class=\"scroll\"><table class=\"sortable\"><thead><tr><th>Operator</th><th>Kind"
        "</th><th class=\"n\">Predicted</th><th class=\"n\">Measured</th><th class=\"n\">Error"
        "</th><th class=\"n\">Rate</th><th>Parameters</th><th>States</th><th>Activations</th>"
        "<th>Updates</th><th>Pattern</th></tr></thead><tbody>");
    for (uint32_t i = 0; i < a->operator_count && i < OPERATOR_ROWS; i++) {
        const report_operator *o = &a->operators[i];
        const coh_trace_operator *facts = &t->operators[o->index];
        const double error = o->measured_s / o->predicted_s - 1;
        const double seconds = isnan(o->measured_s) ? o->predicted_s : o->measured_s;
        const char *const texts[] = { facts->parameters, facts->states, facts->activations,
                                      facts->updates, facts->pattern };
        ADD("<tr><td class=\"name\">");
        COH_TRY(report_add_escaped(out, facts->name, NAME_MOST));
        ADD("</td><td>");
        COH_TRY(report_add_escaped(
            out, strncmp(facts->kind, "cohobate.", 9) == 0 ? facts->kind + 9 : facts->kind,
            NAME_MOST));
        ADD("</td><td class=\"n\" data-v=\"%.6g\">%s</td>", o->predicted_s,
            report_time(o->predicted_s).at);
        if (isnan(o->measured_s))
            ADD("<td class=\"n\" data-v=\"\">-</td><td class=\"n\" data-v=\"\">-</td>");
        else
            ADD("<td class=\"n\" data-v=\"%.6g\">%s</td><td class=\"n\" data-v=\"%.4g\">%s</td>",
                o->measured_s, report_time(o->measured_s).at, isfinite(error) ? error : 0,
                report_change(error).at);
        if (o->flops > 0 && seconds > 0)
            ADD("<td class=\"n\" data-v=\"%.6g\">%sFLOP/s</td>", o->flops / seconds,
                report_count(o->flops / seconds).at);
        else
            ADD("<td class=\"n\" data-v=\"\">-</td>");
        for (size_t k = 0; k < sizeof(texts) / sizeof(texts[0]); k++) {
            ADD("<td>");
            COH_TRY(report_add_escaped(out, texts[k], NAME_MOST));
            ADD("</td>");
        }
        ADD("</tr>");
    }
    ADD("</tbody></table></div></section>");
    return COH_OK;
}

/* ---- what if, faults, method ---- */

static coh_status add_what_ifs(const report_analysis *a, coh_text *out)
{
    if (a->what_if_count == 0)
        return COH_OK;
    ADD("<section id=\"what-if\"><h2>What if</h2><p class=\"soft\">Each row is another plan, "
        "predicted without calibration%s; gains are over the run as it is, planned so, too. So its "
        "time "
        "as it is differs from the step above. Gains with ~ compare plans of the quick search; the "
        "usual search, which the run had, finds "
        "faster plans and other gains.</p><div "
        "class=\"scroll\"><table class=\"sortable\"><thead><tr><th>Change</th><th class=\"n\">"
        "Step</th><th class=\"n\">Tokens/s</th><th>Limit</th><th class=\"n\">Device</th><th "
        "class=\"n\">Host</th><th class=\"n\">Disk</th></tr></thead><tbody>",
        report_guesses(&a->run->facts, 0) ? ", by built-in constants: a guess" : "");
    for (int i = 0; i < a->what_if_count; i++) {
        const report_what_if *w = &a->what_ifs[i];
        ADD("<tr><td>");
        COH_TRY(report_add_escaped(out, w->text, TEXT_MOST));
        if (isnan(w->step_s)) {
            ADD("</td><td class=\"n\" data-v=\"\">does not fit</td><td data-v=\"\"></td><td></td>"
                "<td data-v=\"\"></td><td data-v=\"\"></td><td data-v=\"\"></td></tr>");
            continue;
        }
        ADD("</td><td class=\"n\" data-v=\"%.9g\">%s</td><td class=\"n\" data-v=\"%.6g\">%s%s"
            "</td><td>",
            w->step_s, report_time(w->step_s).at, w->gain, w->is_quick ? "~ " : "",
            report_change(w->gain).at);
        COH_TRY(report_add_escaped(out, report_limit(w->limit), NAME_MOST));
        ADD("</td>");
        for (int tier = 0; tier < COH_TIER_COUNT; tier++)
            ADD("<td class=\"n\" data-v=\"%.0f\">%s</td>", w->peak_bytes[tier],
                w->peak_bytes[tier] > 0 ? report_size(w->peak_bytes[tier]).at : "-");
        ADD("</tr>");
    }
    ADD("</tbody></table></div>");
    if (a->needs_no_memory)
        ADD("<p class=\"soft\">More device memory changes nothing: all data is in it.</p>");
    if (a->unplanned_count > 0)
        ADD("<p class=\"soft\">%d more not planned: time was short.</p>", a->unplanned_count);
    ADD("</section>");
    return COH_OK;
}

static coh_status add_counter(uint64_t value, double scale, report_text (*format)(double),
                              coh_text *out)
{
    ADD("<td class=\"n\">%s</td>", value == UINT64_MAX ? "-" : format((double)value * scale).at);
    return COH_OK;
}

static coh_status add_fallbacks(const report_run *run, coh_text *out)
{
    if (!report_fallback(run, 0))
        return COH_OK;
    ADD("<p>Slower ways than usual:</p><ul>");
    for (size_t i = 0; report_fallback(run, i); i++) {
        ADD("<li>");
        COH_TRY(report_add_escaped(out, report_fallback(run, i), TEXT_MOST));
        ADD("</li>");
    }
    ADD("</ul>");
    return COH_OK;
}

static coh_status add_faults(const report_analysis *a, coh_text *out)
{
    const report_run *run = a->run;
    const coh_trace *t = run->trace;
    const double written =
        run->line_count ? run->link_bytes[COH_LANE_WRITE] / (double)run->line_count : 0;
    ADD("<section id=\"faults\"><h2>Disk and faults</h2>");
    if (written > 0)
        ADD("<p>A step writes %s to the working store, %s a day without pauses.</p>",
            report_written(written).at, report_written(written * 86400 / a->step_s).at);
    else
        ADD("<p>Steps write nothing to a drive.</p>");
    if (run->skipped_count > 0)
        ADD("<p>%" PRIu64 " step%s left out because numbers were not finite.</p>",
            run->skipped_count, run->skipped_count == 1 ? " was" : "s were");
    COH_TRY(add_fallbacks(run, out));
    if (t && t->step_count) {
        ADD("<div class=\"scroll\"><table><thead><tr><th>Recorded step</th><th class=\"n\">Time"
            "</th><th class=\"n\">Page faults</th><th class=\"n\">From a drive</th><th "
            "class=\"n\">Throttled</th><th class=\"n\">Store retries</th><th class=\"n\">GPU clock"
            "</th><th class=\"n\">GPU power</th></tr></thead><tbody>");
        for (uint32_t i = 0; i < t->step_count && i < 64; i++) {
            const coh_trace_counters *c = &t->steps[i].counters;
            ADD("<tr><td>%" PRIu64 "%s</td>", t->steps[i].step + 1,
                t->steps[i].is_slow ? " (slow)" : "");
            COH_TRY(add_counter(t->steps[i].step_ns, 1e-9, report_time, out));
            COH_TRY(add_counter(c->minor_faults, 1, report_count, out));
            COH_TRY(add_counter(c->major_faults, 1, report_count, out));
            COH_TRY(add_counter(c->throttled_ns, 1e-9, report_time, out));
            COH_TRY(add_counter(c->store_retries, 1, report_count, out));
            ADD("<td class=\"n\">%s%s</td><td class=\"n\">%s%s</td></tr>",
                c->gpu_clock_hz == UINT64_MAX ? "-" : report_count((double)c->gpu_clock_hz).at,
                c->gpu_clock_hz == UINT64_MAX ? "" : "Hz",
                c->gpu_power_mw == UINT64_MAX ? "-"
                                              : report_count((double)c->gpu_power_mw * 1e-3).at,
                c->gpu_power_mw == UINT64_MAX ? "" : " W");
        }
        ADD("</tbody></table></div>");
    }
    if (a->slow_count)
        ADD("<h3>Slow steps</h3><p>%d took more than 1.5 times the median.</p><ul>", a->slow_count);
    for (int i = 0; i < a->slow_count && i < REPORT_SLOW_STEPS; i++)
        ADD("<li>Step %" PRIu64 ": %s: %s</li>", a->slow_steps[i].step,
            report_time(a->slow_steps[i].seconds).at, a->slow_steps[i].why);
    if (a->slow_count)
        ADD("</ul>");
    ADD("</section>");
    return COH_OK;
}

static coh_status add_method(const report_analysis *a, coh_text *out)
{
    const coh_trace *t = a->run->trace;
    ADD("<section id=\"method\"><h2>How it was measured</h2>");
    if (a->timed_count)
        ADD("<p>Speed: the median of %zu step%s, from %s to %s.</p>", a->timed_count,
            a->timed_count == 1 ? "" : "s", report_time(a->least_s).at, report_time(a->most_s).at);
    if (a->run->facts.first_step > 0)
        ADD("<p>The run was resumed at step %.0f, perhaps with another plan: times are of the "
            "steps since.</p>",
            a->run->facts.first_step);
    if (t && t->step_count)
        ADD("<p>Instructions: %" PRIu32 " recorded step%s with begin and end of each of %" PRIu32
            " instructions, by the monotonic clock.</p>",
            t->step_count, t->step_count == 1 ? "" : "s", t->instruction_count);
    else
        ADD("<p>No step was recorded: times of instructions, lanes and memory are the plan's "
            "predictions.</p>");
    ADD("<p>The window of a step begins with its first compute instruction and ends with that of "
        "the next step. A lane is busy while any of its instructions runs. Idle time of compute "
        "is charged to the wait that ended last; causes follow the chain of waits to what was "
        "late. Utilisation counts forward and backward without recomputation.</p>");
    for (int i = 0; i < a->run->note_count; i++) {
        ADD("<p><b>Note:</b> ");
        COH_TRY(report_add_escaped(out, a->run->notes[i], TEXT_MOST));
        ADD("</p>");
    }
    ADD("</section>");
    return COH_OK;
}

/* ---- the frame ---- */

static coh_status add_head(const report_analysis *a, coh_text *out)
{
    const report_facts *f = &a->run->facts;
    ADD("<!DOCTYPE html>\n<!-- cohobate report -->\n<html lang=\"en\"><head><meta "
        "charset=\"utf-8\">"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
        "'%s'; script-src '%s'; base-uri 'none'; form-action 'none'\">"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>",
        page_css_hash, page_js_hash);
    COH_TRY(report_add_escaped(out, f->model[0] ? f->model : "a model", NAME_MOST));
    ADD(" - profiling report</title><style>%s</style></head><body>", page_css);
    ADD("<svg width=\"0\" height=\"0\" aria-hidden=\"true\"><defs><pattern id=\"hatch\" "
        "width=\"6\" "
        "height=\"6\" patternUnits=\"userSpaceOnUse\"><path d=\"M-1 7L7 -1M-1 1L1 -1M5 7L7 5\"/>"
        "</pattern></defs></svg><header><div><h1>");
    COH_TRY(report_add_escaped(out, f->model[0] ? f->model : "a model", NAME_MOST));
    ADD("</h1><p class=\"soft\">%s%s%s parameters on ",
        a->run->folder ? "Profiling report of a run · "
                       : "A plan: nothing ran, all times are "
                         "predicted · ",
        report_count(f->parameters).at, isfinite(f->parameters) ? "" : " ");
    const char *const machine = f->gpu[0] ? f->gpu : f->cpu[0] ? f->cpu : f->device;
    COH_TRY(report_add_escaped(out, machine, 2 * NAME_MOST));
    ADD("%s", f->started[0] ? " · " : "");
    COH_TRY(report_add_escaped(out, f->started, NAME_MOST));
    ADD("</p></div></header>");
    return COH_OK;
}

static coh_status add_links_to(const report_analysis *a, int has_curves, int has_links,
                               coh_text *out)
{
    const struct {
        const char *id, *name;
        int is_there;
    } table[] = { { "verdict", "Verdict", 1 },
                  { "run", a->run->folder ? "Run" : "Plan", 1 },
                  { "time", "Time", a->has_window },
                  { "lanes", "Lanes", a->has_window },
                  { "links", "Links", has_links },
                  { "memory", "Memory", a->has_window },
                  { "operators", "Operators", a->operator_count > 0 },
                  { "what-if", "What if", a->what_if_count > 0 },
                  { "curves", "Curves", has_curves },
                  { "faults", "Disk and faults", a->run->folder != NULL },
                  { "method", "Method", 1 } };
    ADD("<nav aria-label=\"Sections\"><div>");
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (table[i].is_there)
            ADD("<a href=\"#%s\">%s</a>", table[i].id, table[i].name);
    ADD("</div></nav><main>");
    return COH_OK;
}

coh_status report_draw_html(const report_analysis *const *analyses, int count, coh_text *out)
{
    const report_analysis *a = analyses[0];
    int has_curves = 0, has_links = 0;
    for (int i = 0; i < count; i++)
        has_curves |= analyses[i]->run->row_count > 0;
    for (int lane = 1; lane < COH_LANE_COUNT; lane++)
        has_links |= lane != COH_LANE_HOST && a->window.lanes[lane].bytes > 0;
    COH_TRY(add_head(a, out));
    COH_TRY(add_links_to(a, has_curves, has_links, out));
    COH_TRY(add_verdict(a, out));
    COH_TRY(add_card(a, out));
    if (a->has_window) {
        COH_TRY(add_waterfall(a, out));
        COH_TRY(add_lanes(a, out));
        COH_TRY(add_links(a, out));
        ADD("<section id=\"memory\"><h2>Memory</h2><p class=\"soft\">Bytes in use along the step, "
            "by purpose.</p>");
        COH_TRY(report_figure_memory(a, out));
        ADD("</section>");
    }
    COH_TRY(add_operators(a, out));
    COH_TRY(add_what_ifs(a, out));
    if (has_curves) {
        ADD("<section id=\"curves\"><h2>Curves</h2>");
        COH_TRY(report_figure_curves(analyses, count, out));
        ADD("</section>");
    }
    if (a->run->folder)
        COH_TRY(add_faults(a, out));
    COH_TRY(add_method(a, out));
    ADD("<footer>Made by cohobate %s. This page loads nothing and works offline.</footer></main>"
        "<script>%s</script></body></html>\n",
        coh_version(), page_js);
    return COH_OK;
}
