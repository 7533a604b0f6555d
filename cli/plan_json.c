/* Prints a plan as one JSON object. Keys: docs/planning.md. Next: screen.c prints the same as text;
 * refusal.c prints why none fits. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/budget.h"
#include "cli/dtype.h"
#include "cli/recompute.h"
#include "cli/screen.h"

/* Bytes of parameters on the far links, by cause. */
typedef struct share {
    const char *key;
    uint64_t bytes;
} share;

enum { SHARE_COUNT = 4 };

static void list_shares(const coh_plan_summary *summary, share *shares)
{
    shares[0] = (share){ "work", summary->work_link_bytes };
    shares[1] = (share){ "gradient", summary->grad_link_bytes };
    shares[2] = (share){ "state", summary->state_link_bytes };
    shares[3] = (share){ "other", summary->other_link_bytes };
}

static void print_lanes(const char *key, const uint64_t *values, double scale)
{
    printf(", \"%s\": {", key);
    for (int lane = 0, first = 1; lane < COH_LANE_COUNT; lane++)
        if (values[lane]) {
            printf("%s\"%s\": %.17g", first ? "" : ", ", coh_lane_name(lane),
                   (double)values[lane] * scale);
            first = 0;
        }
    printf("}");
}

static coh_status print_operators_json(const coh_plan *plan)
{
    printf(", \"operators\": [");
    for (int32_t i = 0; i < coh_plan_operator_count(plan); i++) {
        coh_plan_operator op = { .struct_bytes = sizeof(op) };
        cli_line line;
        CLI_TRY(coh_plan_operator_at(plan, i, &op));
        cli_line_clear(&line);
        cli_line_add(&line, "%s{\"name\": ", i ? ", " : "");
        cli_line_add_json_string(&line, op.name);
        cli_line_add(&line, ", \"kind\": ");
        cli_line_add_json_string(&line, op.kind);
        cli_line_add(&line,
                     ", \"block\": %d, \"parameter_bytes\": %" PRIu64
                     ", \"activation_bytes\": %" PRIu64 ", \"saved_bytes\": %" PRIu64
                     ", \"activations\": \"%s\", \"parameters\": \"%s\", \"states\": \"%s\", "
                     "\"updates\": \"%s\", \"pattern\": \"%s\"}",
                     op.block, op.parameter_bytes, op.activation_bytes, op.saved_bytes,
                     op.activations, op.parameters, op.states, op.updates, op.pattern);
        printf("%s", line.text);
    }
    printf("]");
    return COH_OK;
}

static coh_status print_profile_json(const cli_job *job)
{
    const coh_profile *profile = coh_plan_profile(job->plan);
    coh_profile_summary facts = { .struct_bytes = sizeof(facts) };
    cli_line line;
    CLI_TRY(coh_profile_summarize(profile, &facts));
    cli_line_clear(&line);
    cli_line_add_json_string(&line, facts.name);
    printf(", \"profile\": {\"name\": %s, \"source\": \"%s\", \"device\": \"%s\", \"what_if\": %s"
           ", \"hash\": \"%016" PRIx64 "\", \"calibrated_runs\": %" PRIu32 "}",
           line.text, facts.source, facts.is_gpu ? "gpu" : "host",
           cli_budget_is_what_if(job->options, profile) ? "true" : "false", facts.hash,
           job->calibration.runs);
    return COH_OK;
}

static void print_curves(const uint64_t *bytes, size_t count)
{
    printf(", \"memory_curve\": {");
    for (int tier = 0; tier < COH_TIER_COUNT; tier++) {
        printf("%s\"%s\": [", tier ? ", " : "", coh_tier_name(tier));
        for (size_t i = 0; i < count; i++)
            printf("%s%" PRIu64, i ? ", " : "", bytes[(size_t)tier * count + i]);
        printf("]");
    }
    printf("}");
}

static coh_status print_memory_curve(const coh_plan *plan, int32_t count)
{
    uint64_t *bytes = calloc(COH_TIER_COUNT * (size_t)count, sizeof(*bytes));
    if (!bytes)
        return cli_fail(COH_ERR_MEMORY, "no memory for a curve of %d points", count);
    coh_status status = coh_plan_memory_curve(plan, count, bytes);
    if (status == COH_OK)
        print_curves(bytes, (size_t)count);
    free(bytes);
    return status;
}

static void print_times(const cli_job *job)
{
    const coh_plan_summary *summary = &job->summary;
    const cli_speed speed = cli_speed_get(job);
    printf(", \"step_seconds\": %.9f, \"bound_seconds\": %.9f, \"run_seconds\": %.9f"
           ", \"drain_seconds\": %.9f, \"save_seconds\": %.9f, \"evaluate_seconds\": %.9f",
           speed.step_s, (double)summary->bound_ns * 1e-9, speed.run_s,
           (double)summary->drain_ns * 1e-9, (double)summary->save_ns * 1e-9,
           (double)summary->evaluate_ns * 1e-9);
    printf(", \"step_alone_seconds\": %.9f, \"step_contended_seconds\": %.9f"
           ", \"step_p10_seconds\": %.9f, \"step_p50_seconds\": %.9f, \"step_p90_seconds\": %.9f",
           (double)summary->step_alone_ns * 1e-9, (double)summary->step_contended_ns * 1e-9,
           speed.step_fast_s, (double)summary->step_p50_ns * 1e-9, speed.step_slow_s);
    printf(", \"run_p10_seconds\": %.9f, \"run_p90_seconds\": %.9f, \"steps\": %" PRIu64
           ", \"tokens_per_second\": %.9g, \"tokens_per_second_p10\": %.9g"
           ", \"tokens_per_second_p90\": %.9g, \"gap\": %.9g",
           speed.run_fast_s, speed.run_slow_s, speed.steps_left, speed.tokens_per_s,
           speed.tokens_slow_per_s, speed.tokens_fast_per_s, speed.gap);
    printf(", \"disk_bytes_written\": %.17g, \"disk_bytes_written_per_day\": %.9g"
           ", \"drive_endurance_bytes\": %.17g, \"drive_life_days\": ",
           summary->disk_bytes_written, speed.written_per_day, speed.endurance_bytes);
    if (speed.written_per_day > 0 && speed.endurance_bytes > 0)
        printf("%.9g", speed.endurance_bytes / speed.written_per_day);
    else
        printf("null");
}

/* Prints the limits that apply, the largest first. */
static void print_limits(const coh_plan_summary *summary)
{
    uint8_t is_out[COH_PLAN_BOUND_COUNT] = { 0 };
    printf(", \"limits\": [");
    for (int count = 0;; count++) {
        int most = -1;
        for (int bound = 0; bound < COH_PLAN_BOUND_COUNT; bound++)
            if (!is_out[bound] && summary->bounds_ns[bound] > 0 &&
                (most < 0 || summary->bounds_ns[bound] > summary->bounds_ns[most]))
                most = bound;
        if (most < 0)
            break;
        is_out[most] = 1;
        printf("%s{\"name\": \"%s\", \"seconds\": %.9f}", count ? ", " : "",
               coh_plan_bound_name((coh_plan_bound)most), (double)summary->bounds_ns[most] * 1e-9);
    }
    printf("], \"binding\": \"%s\", \"runner_up\": \"%s\"", coh_plan_bound_name(summary->binding),
           coh_plan_bound_name(summary->runner_up));
}

static coh_status print_memory(const coh_plan *plan)
{
    static const char *const purposes[COH_PLAN_PURPOSES] = { "parameters", "gradients", "states",
                                                             "activations", "workspaces" };
    uint64_t bytes[COH_TIER_COUNT][COH_PLAN_PURPOSES];
    CLI_TRY(coh_plan_memory(plan, bytes));
    printf(", \"memory_bytes\": {");
    for (int tier = 0; tier < COH_TIER_COUNT; tier++) {
        printf("%s\"%s\": {", tier ? ", " : "", coh_tier_name(tier));
        for (int purpose = 0; purpose < COH_PLAN_PURPOSES; purpose++)
            printf("%s\"%s\": %" PRIu64, purpose ? ", " : "", purposes[purpose],
                   bytes[tier][purpose]);
        printf("}");
    }
    printf("}");
    return COH_OK;
}

static void print_links(const coh_plan_summary *summary)
{
    share shares[SHARE_COUNT];
    print_lanes("busy_seconds", summary->busy_ns, 1e-9);
    print_lanes("exposed_seconds", summary->exposed_ns, 1e-9);
    print_lanes("link_bytes", summary->link_bytes, 1);
    print_lanes("least_link_bytes", summary->least_link_bytes, 1);
    list_shares(summary, shares);
    for (int i = 0; i < SHARE_COUNT; i++)
        printf(", \"%s_link_bytes\": %" PRIu64, shares[i].key, shares[i].bytes);
}

static coh_status print_groups(const coh_plan *plan)
{
    cli_group groups[CLI_GROUPS];
    int32_t count;
    CLI_TRY(cli_groups(plan, groups, &count));
    printf(", \"groups\": [");
    for (int32_t i = 0; i < count; i++) {
        const cli_group *g = &groups[i];
        cli_line line;
        cli_line_clear(&line);
        cli_line_add_json_string(&line, g->first);
        cli_line_add(&line, ", \"last\": ");
        cli_line_add_json_string(&line, g->last);
        printf("%s{\"first\": %s, \"first_block\": %d, \"last_block\": %d, \"operators\": %d"
               ", \"parameter_bytes\": %" PRIu64 ", \"pattern\": \"%s\", \"parameters\": \"%s\""
               ", \"states\": \"%s\", \"activations\": \"%s\"}",
               i ? ", " : "", line.text, (int)g->first_block, (int)g->last_block,
               (int)g->operator_count, g->parameter_bytes, g->pattern, g->parameters, g->states,
               g->activations);
    }
    printf("]");
    return COH_OK;
}

static void print_what(const cli_job *job, uint64_t in_memory_bytes)
{
    const coh_plan_summary *summary = &job->summary;
    cli_line line;
    cli_line_clear(&line);
    cli_line_add(&line, "{\"model\": ");
    cli_line_add_json_string(&line, job->model.name);
    printf("%s, \"fits\": true, \"dtype\": \"%s\", \"parameters\": %" PRIu64 ", \"batch\": %" PRId64
           ", \"micro_batch\": %" PRId64 ", \"sequence\": %" PRId64
           ", \"emulated\": %s, \"budget_bytes\": %" PRIu64,
           line.text, cli_dtype_name(coh_model_size_get(&job->model).dtype),
           summary->parameter_count, job->recipe.batch, job->recipe.micro_batch,
           job->recipe.sequence, cli_job_emulated_bytes(job) ? "true" : "false",
           job->plan_options.device_memory_bytes);
    printf(", \"peak_bytes\": {");
    for (int tier = 0; tier < COH_TIER_COUNT; tier++)
        printf("%s\"%s\": %" PRIu64, tier ? ", " : "", coh_tier_name(tier),
               summary->peak_bytes[tier]);
    printf("}, \"in_memory_bytes\": %" PRIu64 ", \"smallest_device_bytes\": %" PRIu64
           ", \"smallest_is_proven\": %s",
           in_memory_bytes, summary->smallest_device_bytes,
           summary->smallest_is_proven ? "true" : "false");
}

static void print_program(const coh_plan_summary *summary)
{
    printf(", \"parameter_bytes\": %" PRIu64 ", \"stream_bytes\": %" PRIu64
           ", \"instruction_count\": %u, \"program_count\": %u, \"verified_instructions\": %d"
           ", \"chunk_bytes\": %" PRIu64 ", \"host_update_bytes\": %" PRIu64
           ", \"sweep_order\": \"%s\", \"recomputes\": %d, \"caches\": %d, \"row_passes\": %d"
           ", \"numeric_fingerprint\": \"%016" PRIx64 "\", \"program_hash\": \"%016" PRIx64 "\"",
           summary->parameter_bytes, summary->stream_bytes, summary->instruction_count,
           summary->program_count, summary->verified_instructions, summary->chunk_bytes,
           summary->host_update_bytes, coh_sweep_order_name(summary->sweep_order),
           summary->recomputes, summary->caches, summary->row_passes, summary->numeric_fingerprint,
           summary->program_hash);
}

static void print_recompute(const cli_recompute *recompute)
{
    printf(", \"recompute\": {\"seconds\": %.9f, \"of_forward\": %.9g, \"of_compute\": %.9g, "
           "\"of_step\": %.9g"
           ", \"end_device_bytes\": ",
           recompute->seconds, recompute->of_forward, recompute->of_compute, recompute->of_step);
    if (recompute->end_bytes > 0)
        printf("%" PRIu64, recompute->end_bytes);
    else
        printf("null");
    printf(", \"end_of_forward\": %.9g, \"end_is_planned\": %s}", recompute->end_of_forward,
           recompute->is_planned ? "true" : "false");
}

/* Prints the origin of a replayed plan. */
static void print_made(const cli_job *job)
{
    const coh_plan_file *made = job->made;
    cli_line line;
    cli_line_clear(&line);
    cli_line_add_json_string(&line, made->profile_name);
    printf(", \"made\": {\"profile\": %s, \"profile_hash\": \"%016" PRIx64
           "\", \"step_seconds\": %.9f, \"budget_bytes\": %" PRIu64 "}",
           line.text, made->profile_hash, (double)made->step_ns * 1e-9, job->made_device_bytes);
}

coh_status cli_plan_json(const cli_job *job, uint64_t in_memory_bytes)
{
    cli_recompute recompute;
    CLI_TRY(cli_recompute_find(job, in_memory_bytes, &recompute));
    print_what(job, in_memory_bytes);
    CLI_TRY(print_profile_json(job));
    if (job->made)
        print_made(job);
    print_times(job);
    print_limits(&job->summary);
    CLI_TRY(print_memory(job->plan));
    print_links(&job->summary);
    print_program(&job->summary);
    print_recompute(&recompute);
    CLI_TRY(print_groups(job->plan));
    CLI_TRY(print_operators_json(job->plan));
    if (job->options->memory_curve > 0)
        CLI_TRY(print_memory_curve(job->plan, (int32_t)job->options->memory_curve));
    printf("}\n");
    return COH_OK;
}
