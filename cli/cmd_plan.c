#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/budget.h"
#include "cli/commands.h"
#include "cli/dtype.h"
#include "cli/job.h"
#include "cli/output.h"

/* What the parameters cost on the far links, by what it is. */
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

static void print_operator(const coh_plan_operator *op)
{
    char parameters[32], activations[32], saved[32];
    printf("%-22s %-18s %5d  %11s  %-7s %-7s  %11s  %11s  %s\n", op->name, op->kind, op->block,
           op->parameter_bytes ? coh_size_format(op->parameter_bytes, parameters, 32) : "-",
           op->parameters, op->states, coh_size_format(op->activation_bytes, activations, 32),
           coh_size_format(op->saved_bytes, saved, 32), op->activations);
}

static coh_status print_operators(const coh_plan *plan)
{
    printf("\n%-22s %-18s %5s  %11s  %-7s %-7s  %11s  %11s  %s\n", "operator", "kind", "block",
           "parameters", "stand", "states", "activations", "saved", "kept how");
    for (int32_t i = 0; i < coh_plan_operator_count(plan); i++) {
        coh_plan_operator op;
        CLI_TRY(coh_plan_operator_at(plan, i, &op));
        print_operator(&op);
    }
    return COH_OK;
}

/* What the step's prediction rests on: contention, and the spread of the profile's figures. */
static void print_quotes(const coh_plan_summary *summary)
{
    char alone[32], contended[32], p10[32], p90[32];
    if (summary->step_alone_ns != summary->step_contended_ns)
        printf("quote:  %s a step if nothing that runs at once met, %s if all always did\n",
               cli_duration((double)summary->step_alone_ns * 1e-9, alone),
               cli_duration((double)summary->step_contended_ns * 1e-9, contended));
    if (summary->step_p10_ns != summary->step_p90_ns)
        printf("spread: eight of ten steps take %s to %s, by the spread of the profile's figures\n",
               cli_duration((double)summary->step_p10_ns * 1e-9, p10),
               cli_duration((double)summary->step_p90_ns * 1e-9, p90));
}

static coh_status print_text(const cli_job *job, uint64_t in_memory_bytes)
{
    const coh_plan_summary *summary = &job->summary;
    share shares[SHARE_COUNT];
    char text[32], smallest[32];
    cli_line line;
    cli_line_clear(&line);
    cli_job_describe(job, &line);
    printf("%s", line.text);
    list_shares(summary, shares);
    print_quotes(summary);
    printf("moved:  of the parameters' streams per step:");
    for (int i = 0; i < SHARE_COUNT; i++)
        printf("%s %s %s", i ? "," : "", shares[i].key, coh_size_format(shares[i].bytes, text, 32));
    printf(" (they hold %s)\n", coh_size_format(summary->stream_bytes, smallest, 32));
    printf("memory: in memory it would take %s (%" PRIu64
           " bytes); the smallest budget is %s (%" PRIu64 " bytes, %s)\n",
           coh_size_format(in_memory_bytes, text, 32), in_memory_bytes,
           coh_size_format(summary->smallest_device_bytes, smallest, 32),
           summary->smallest_device_bytes,
           summary->smallest_is_proven ? "proven" : "smallest found");
    printf("program: %u lines in the step; %u programs, %d lines in all, verified; save takes %s\n",
           summary->line_count, summary->program_count, summary->verified_lines,
           cli_duration((double)summary->save_ns * 1e-9, text));
    return job->options->operators ? print_operators(job->plan) : COH_OK;
}

static void print_lanes(const char *key, const uint64_t *values, double scale)
{
    printf(", \"%s\": {", key);
    for (int lane = 0, first = 1; lane < COH_PLAN_LANES; lane++)
        if (values[lane]) {
            printf("%s\"%s\": %.17g", first ? "" : ", ", cli_lane_names[lane],
                   (double)values[lane] * scale);
            first = 0;
        }
    printf("}");
}

static coh_status print_operators_json(const coh_plan *plan)
{
    printf(", \"operators\": [");
    for (int32_t i = 0; i < coh_plan_operator_count(plan); i++) {
        coh_plan_operator op;
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
                     ", \"activations\": \"%s\", \"parameters\": \"%s\", \"states\": \"%s\"}",
                     op.block, op.parameter_bytes, op.activation_bytes, op.saved_bytes,
                     op.activations, op.parameters, op.states);
        printf("%s", line.text);
    }
    printf("]");
    return COH_OK;
}

static coh_status print_profile_json(const cli_job *job)
{
    const coh_profile *profile = coh_plan_profile(job->plan);
    coh_profile_summary facts;
    cli_line line;
    CLI_TRY(coh_profile_summarize(profile, &facts));
    cli_line_clear(&line);
    cli_line_add_json_string(&line, facts.name);
    printf(", \"profile\": {\"name\": %s, \"source\": \"%s\", \"device\": \"%s\", \"what_if\": %s"
           ", \"hash\": \"%016" PRIx64 "\"}",
           line.text, facts.source, facts.is_gpu ? "gpu" : "host",
           cli_budget_is_what_if(job->options, profile) ? "true" : "false", facts.hash);
    return COH_OK;
}

static void print_curves(const uint64_t *bytes, size_t count)
{
    printf(", \"memory_curve\": {");
    for (int tier = 0; tier < COH_PLAN_TIERS; tier++) {
        printf("%s\"%s\": [", tier ? ", " : "", cli_tier_names[tier]);
        for (size_t i = 0; i < count; i++)
            printf("%s%" PRIu64, i ? ", " : "", bytes[(size_t)tier * count + i]);
        printf("]");
    }
    printf("}");
}

static coh_status print_memory_curve(const coh_plan *plan, int32_t count)
{
    uint64_t *bytes = calloc(COH_PLAN_TIERS * (size_t)count, sizeof(*bytes));
    if (!bytes)
        return cli_fail(COH_ERR_MEMORY, "no memory for a curve of %d points", count);
    coh_status status = coh_plan_memory_curve(plan, count, bytes);
    if (status == COH_OK)
        print_curves(bytes, (size_t)count);
    free(bytes);
    return status;
}

static coh_status print_json(const cli_job *job, uint64_t in_memory_bytes)
{
    const coh_plan_summary *summary = &job->summary;
    share shares[SHARE_COUNT];
    uint64_t steps_left = job->recipe.steps - job->first_step;
    cli_line line;
    cli_line_clear(&line);
    cli_line_add(&line, "{\"model\": ");
    cli_line_add_json_string(&line, job->model.name);
    printf("%s, \"dtype\": \"%s\", \"parameters\": %" PRIu64 ", \"micro_batch\": %" PRId64
           ", \"emulated\": %s, \"budget_bytes\": %" PRIu64,
           line.text, cli_dtype_name(coh_model_size_get(&job->model).dtype),
           summary->parameter_count, job->recipe.micro_batch,
           job->options->emulate_host_bytes ? "true" : "false",
           job->plan_options.device_memory_bytes);
    CLI_TRY(print_profile_json(job));
    printf(", \"peak_bytes\": {");
    for (int tier = 0; tier < COH_PLAN_TIERS; tier++)
        printf("%s\"%s\": %" PRIu64, tier ? ", " : "", cli_tier_names[tier],
               summary->peak_bytes[tier]);
    printf("}, \"in_memory_bytes\": %" PRIu64 ", \"smallest_device_bytes\": %" PRIu64
           ", \"smallest_is_proven\": %s",
           in_memory_bytes, summary->smallest_device_bytes,
           summary->smallest_is_proven ? "true" : "false");
    printf(", \"step_seconds\": %.9f, \"bound_seconds\": %.9f, \"run_seconds\": %.9f"
           ", \"drain_seconds\": %.9f, \"save_seconds\": %.9f, \"evaluate_seconds\": %.9f",
           (double)summary->step_ns * 1e-9, (double)summary->bound_ns * 1e-9,
           cli_job_predicted_seconds(job, steps_left), (double)summary->drain_ns * 1e-9,
           (double)summary->save_ns * 1e-9, (double)summary->evaluate_ns * 1e-9);
    printf(", \"step_alone_seconds\": %.9f, \"step_contended_seconds\": %.9f"
           ", \"step_p10_seconds\": %.9f, \"step_p50_seconds\": %.9f, \"step_p90_seconds\": %.9f",
           (double)summary->step_alone_ns * 1e-9, (double)summary->step_contended_ns * 1e-9,
           (double)summary->step_p10_ns * 1e-9, (double)summary->step_p50_ns * 1e-9,
           (double)summary->step_p90_ns * 1e-9);
    print_lanes("busy_seconds", summary->busy_ns, 1e-9);
    print_lanes("exposed_seconds", summary->exposed_ns, 1e-9);
    print_lanes("link_bytes", summary->link_bytes, 1);
    list_shares(summary, shares);
    for (int i = 0; i < SHARE_COUNT; i++)
        printf(", \"%s_link_bytes\": %" PRIu64, shares[i].key, shares[i].bytes);
    printf(", \"parameter_bytes\": %" PRIu64 ", \"stream_bytes\": %" PRIu64
           ", \"line_count\": %u, \"program_count\": %u, \"verified_lines\": %d"
           ", \"chunk_bytes\": %" PRIu64 ", \"recomputes\": %d, \"caches\": %d, \"row_passes\": %d"
           ", \"disk_bytes_written\": %.17g, \"numeric_fingerprint\": \"%016" PRIx64
           "\", \"program_hash\": \"%016" PRIx64 "\"",
           summary->parameter_bytes, summary->stream_bytes, summary->line_count,
           summary->program_count, summary->verified_lines, summary->chunk_bytes,
           summary->recomputes, summary->caches, summary->row_passes, summary->disk_bytes_written,
           summary->numeric_fingerprint, summary->program_hash);
    CLI_TRY(print_operators_json(job->plan));
    if (job->options->memory_curve > 0)
        CLI_TRY(print_memory_curve(job->plan, (int32_t)job->options->memory_curve));
    printf("}\n");
    return COH_OK;
}

static coh_status plan_out(const cli_job *job)
{
    const cli_options *options = job->options;
    uint64_t in_memory_bytes;
    if (options->output)
        CLI_TRY(coh_plan_write(job->plan, options->output));
    if (options->program)
        CLI_TRY(coh_plan_write_program(job->plan, options->program));
    CLI_TRY(coh_plan_in_memory_bytes(job->graph, &job->plan_options, &in_memory_bytes));
    return options->json ? print_json(job, in_memory_bytes) : print_text(job, in_memory_bytes);
}

coh_status cli_plan(const cli_options *options)
{
    cli_job job;
    CLI_TRY(cli_output_check(options));
    if (options->memory_curve > 0 && !options->json)
        return cli_fail(COH_ERR_ARGUMENT, "--memory-curve is written as JSON: add --json");
    CLI_TRY(cli_job_open(options, &job));
    coh_status status = plan_out(&job);
    cli_job_close(&job);
    return status;
}
