/* Prints a plan as one JSON object. Keys: docs/planning.md. Next: screen.c prints the same as text;
 * refusal.c prints why none fits. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/budget.h"
#include "cli/drive.h"
#include "cli/dtype.h"
#include "cli/screen.h"

static void add_lanes(const char *key, const uint64_t *values, double scale, cli_line *line)
{
    cli_line_add_json(line, "%s: {", key);
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        if (values[lane])
            cli_line_add_json(line, "%s: %.17g", coh_lane_name(lane), (double)values[lane] * scale);
    cli_line_add_json(line, "}");
}

static coh_status add_operators(const coh_plan *plan, cli_line *line)
{
    cli_line_add_json(line, "'operators': [");
    for (int32_t i = 0; i < coh_plan_operator_count(plan); i++) {
        coh_plan_operator op = { .struct_bytes = sizeof(op) };
        CLI_TRY(coh_plan_operator_at(plan, i, &op));
        cli_line_add_json(line,
                          "{'name': %s, 'kind': %s, 'block': %d, 'parameter_bytes': %" PRIu64
                          ", 'activation_bytes': %" PRIu64 ", 'saved_bytes': %" PRIu64
                          ", 'activations': %s, 'parameters': %s, 'states': %s, 'updates': %s"
                          ", 'pattern': %s}",
                          op.name, op.kind, op.block, op.parameter_bytes, op.activation_bytes,
                          op.saved_bytes, op.activations, op.parameters, op.states, op.updates,
                          op.pattern);
        cli_line_flush(line);
    }
    cli_line_add_json(line, "]");
    return COH_OK;
}

static coh_status add_profile(const cli_job *job, cli_line *line)
{
    const coh_profile *profile = coh_plan_profile(job->plan);
    coh_profile_summary facts = { .struct_bytes = sizeof(facts) };
    CLI_TRY(coh_profile_summarize(profile, &facts));
    cli_line_add_json(line,
                      "'profile': {'name': %s, 'source': %s, 'device': %s, 'what_if': %i"
                      ", 'hash': '%016" PRIx64 "', 'calibrated_runs': %" PRIu32 "}",
                      facts.name, facts.source, facts.is_gpu ? "gpu" : "host",
                      cli_budget_is_what_if(job->options, profile), facts.hash,
                      job->calibration.runs);
    return COH_OK;
}

static void add_curves(const uint64_t *bytes, size_t count, cli_line *line)
{
    cli_line_add_json(line, "'memory_curve': {");
    for (int tier = 0; tier < COH_TIER_COUNT; tier++) {
        cli_line_add_json(line, "%s: [", coh_tier_name(tier));
        for (size_t i = 0; i < count; i++) {
            cli_line_add_json(line, "%" PRIu64, bytes[(size_t)tier * count + i]);
            cli_line_flush(line);
        }
        cli_line_add_json(line, "]");
    }
    cli_line_add_json(line, "}");
}

static coh_status add_memory_curve(const coh_plan *plan, int32_t count, cli_line *line)
{
    uint64_t *bytes = calloc(COH_TIER_COUNT * (size_t)count, sizeof(*bytes));
    if (!bytes)
        return cli_fail(COH_ERR_MEMORY, "no memory for a curve of %d points", count);
    coh_status status = coh_plan_memory_curve(plan, count, bytes);
    if (status == COH_OK)
        add_curves(bytes, (size_t)count, line);
    free(bytes);
    return status;
}

static void add_times(const cli_job *job, cli_line *line)
{
    const coh_plan_summary *summary = &job->summary;
    const cli_speed speed = cli_speed_get(job);
    cli_line_add_json(line,
                      "'step_seconds': %.9f, 'bound_seconds': %.9f, 'run_seconds': %.9f"
                      ", 'drain_seconds': %.9f, 'save_seconds': %.9f, 'evaluate_seconds': %.9f",
                      speed.step_s, (double)summary->bound_ns * 1e-9, speed.run_s,
                      (double)summary->drain_ns * 1e-9, (double)summary->save_ns * 1e-9,
                      (double)summary->evaluate_ns * 1e-9);
    cli_line_add_json(line,
                      "'step_alone_seconds': %.9f, 'step_contended_seconds': %.9f"
                      ", 'step_p10_seconds': %.9f, 'step_p50_seconds': %.9f"
                      ", 'step_p90_seconds': %.9f",
                      (double)summary->step_alone_ns * 1e-9,
                      (double)summary->step_contended_ns * 1e-9, speed.step_fast_s,
                      (double)summary->step_p50_ns * 1e-9, speed.step_slow_s);
    cli_line_add_json(line,
                      "'run_p10_seconds': %.9f, 'run_p90_seconds': %.9f, 'steps': %" PRIu64
                      ", 'tokens_per_second': %.9g, 'tokens_per_second_p10': %.9g"
                      ", 'tokens_per_second_p90': %.9g, 'gap': %.9g",
                      speed.run_fast_s, speed.run_slow_s, speed.steps_left, speed.tokens_per_s,
                      speed.tokens_slow_per_s, speed.tokens_fast_per_s, speed.gap);
    cli_line_add_json(line,
                      "'disk_bytes_written': %.17g, 'disk_bytes_written_per_day': %.9g"
                      ", 'drive_endurance_bytes': %.17g, 'drive_life_days': %.9g",
                      summary->disk_bytes_written, speed.written_per_day, speed.endurance_bytes,
                      speed.written_per_day > 0 && speed.endurance_bytes > 0
                          ? speed.endurance_bytes / speed.written_per_day
                          : NAN);
}

/* Adds the limits that apply, the largest first. */
static void add_limits(const coh_plan_summary *summary, cli_line *line)
{
    uint8_t is_out[COH_PLAN_BOUND_COUNT] = { 0 };
    cli_line_add_json(line, "'limits': [");
    for (;;) {
        int most = -1;
        for (int bound = 0; bound < COH_PLAN_BOUND_COUNT; bound++)
            if (!is_out[bound] && summary->bounds_ns[bound] > 0 &&
                (most < 0 || summary->bounds_ns[bound] > summary->bounds_ns[most]))
                most = bound;
        if (most < 0)
            break;
        is_out[most] = 1;
        cli_line_add_json(line, "{'name': %s, 'seconds': %.9f}",
                          coh_plan_bound_name((coh_plan_bound)most),
                          (double)summary->bounds_ns[most] * 1e-9);
    }
    const int has_second =
        summary->bounds_ns[summary->runner_up] > 0 && summary->runner_up != summary->binding;
    const coh_lane exchanges = cli_limiting_exchanges(summary);
    cli_line_add_json(line, "], 'binding': %s, 'runner_up': %s, 'limiting_exchanges': %s",
                      coh_plan_bound_name(summary->binding),
                      has_second ? coh_plan_bound_name(summary->runner_up) : NULL,
                      exchanges != COH_LANE_COMPUTE ? coh_lane_name(exchanges) : NULL);
}

static coh_status add_memory(const coh_plan *plan, cli_line *line)
{
    static const char *const purposes[COH_PLAN_PURPOSES] = { "parameters", "gradients", "states",
                                                             "activations", "workspaces" };
    uint64_t bytes[COH_TIER_COUNT][COH_PLAN_PURPOSES];
    CLI_TRY(coh_plan_memory(plan, bytes));
    cli_line_add_json(line, "'memory_bytes': {");
    for (int tier = 0; tier < COH_TIER_COUNT; tier++) {
        cli_line_add_json(line, "%s: {", coh_tier_name(tier));
        for (int purpose = 0; purpose < COH_PLAN_PURPOSES; purpose++)
            cli_line_add_json(line, "%s: %" PRIu64, purposes[purpose], bytes[tier][purpose]);
        cli_line_add_json(line, "}");
    }
    cli_line_add_json(line, "}");
    return COH_OK;
}

static void add_links(const coh_plan_summary *summary, cli_line *line)
{
    add_lanes("busy_seconds", summary->busy_ns, 1e-9, line);
    add_lanes("exposed_seconds", summary->exposed_ns, 1e-9, line);
    add_lanes("link_bytes", summary->link_bytes, 1, line);
    add_lanes("least_link_bytes", summary->least_link_bytes, 1, line);
    cli_line_add_json(line,
                      "'work_link_bytes': %" PRIu64 ", 'gradient_link_bytes': %" PRIu64
                      ", 'state_link_bytes': %" PRIu64 ", 'other_link_bytes': %" PRIu64,
                      summary->work_link_bytes, summary->grad_link_bytes, summary->state_link_bytes,
                      summary->other_link_bytes);
}

static coh_status add_groups(const coh_plan *plan, cli_line *line)
{
    cli_group groups[CLI_GROUPS];
    int32_t count;
    CLI_TRY(cli_groups(plan, CLI_GROUPS, groups, &count));
    cli_line_add_json(line, "'groups': [");
    for (int32_t i = 0; i < count; i++) {
        const cli_group *g = &groups[i];
        cli_line_add_json(line,
                          "{'first': %s, 'last': %s, 'first_block': %d, 'last_block': %d"
                          ", 'operators': %d, 'parameter_bytes': %" PRIu64
                          ", 'pattern': %s, 'parameters': %s, 'states': %s, 'activations': %s}",
                          g->first, g->last, (int)g->first_block, (int)g->last_block,
                          (int)g->operator_count, g->parameter_bytes, g->pattern, g->parameters,
                          g->states, g->activations);
    }
    cli_line_add_json(line, "]");
    return COH_OK;
}

static void add_what(const cli_job *job, uint64_t in_memory_bytes, cli_line *line)
{
    const coh_plan_summary *summary = &job->summary;
    cli_line_add_json(line,
                      "{'model': %s, 'fits': true, 'dtype': %s, 'frozen_dtype': %s, "
                      "'parameters': %" PRIu64 ", 'batch': %" PRId64 ", 'micro_batch': %" PRId64
                      ", 'replicas': %s, 'ranks': %s, 'pattern': %s"
                      ", 'weights_wire': %s, 'gradients_wire': %s, 'reduce': %s"
                      ", 'sequence': %" PRId64 ", 'emulated': %i, 'budget_bytes': %" PRIu64,
                      job->model.name, cli_dtype_name(coh_model_size_get(&job->model).dtype),
                      cli_dtype_frozen((uint64_t)job->model.frozen_nf4), summary->parameter_count,
                      job->recipe.batch, job->recipe.micro_batch,
                      cli_shape_text(&job->plan_options.replicas).at,
                      cli_shape_text(&job->plan_options.ranks).at, cli_rank_pattern(summary),
                      coh_wire_name(job->plan_options.wires.weights),
                      coh_wire_name(job->plan_options.wires.gradients),
                      coh_reduce_name(job->plan_options.reduce), job->recipe.sequence,
                      cli_job_emulated_bytes(job) > 0, job->plan_options.device_memory_bytes);
    cli_line_add_json_tiers(line, "peak_bytes", summary->peak_bytes);
    cli_line_add_json_tiers(line, "step_peak_bytes", summary->step_peak_bytes);
    cli_line_add_json(line, "'refused_here': %s", job->refused_here[0] ? job->refused_here : NULL);
    cli_line_add_json(line,
                      "'in_memory_bytes': %" PRIu64 ", 'smallest_device_bytes': %" PRIu64
                      ", 'smallest_is_proven': %i, 'unmeasured_operators': %" PRId32
                      ", 'unmeasured_kind': %s",
                      in_memory_bytes, summary->smallest_device_bytes, summary->smallest_is_proven,
                      summary->unmeasured_operators,
                      summary->unmeasured_kind != NULL ? summary->unmeasured_kind : "");
}

static void add_program(const coh_plan_summary *summary, cli_line *line)
{
    cli_line_add_json(
        line,
        "'parameter_bytes': %" PRIu64 ", 'stream_bytes': %" PRIu64
        ", 'instruction_count': %u, 'program_count': %u"
        ", 'verified_instructions': %d, 'chunk_bytes': %" PRIu64 ", 'host_update_bytes': %" PRIu64
        ", 'kept_bytes': %" PRIu64 ", 'sweep_order': %s, 'recomputes': %d"
        ", 'caches': %d, 'row_passes': %d, 'numeric_fingerprint': '%016" PRIx64
        "', 'program_hash': '%016" PRIx64 "'",
        summary->parameter_bytes, summary->stream_bytes, summary->instruction_count,
        summary->program_count, summary->verified_instructions, summary->chunk_bytes,
        summary->host_update_bytes, summary->kept_bytes, coh_sweep_order_name(summary->sweep_order),
        summary->recomputes, summary->caches, summary->row_passes, summary->numeric_fingerprint,
        summary->program_hash);
}

static void add_recompute(const cli_recompute *recompute, cli_line *line)
{
    cli_line_add_json(line,
                      "'recompute': {'seconds': %.9f, 'of_forward': %.9g, 'of_compute': %.9g"
                      ", 'of_step': %.9g",
                      recompute->seconds, recompute->of_forward, recompute->of_compute,
                      recompute->of_step);
    if (recompute->end_bytes > 0)
        cli_line_add_json(line, "'end_device_bytes': %" PRIu64, recompute->end_bytes);
    else
        cli_line_add_json(line, "'end_device_bytes': null");
    cli_line_add_json(line, "'end_of_forward': %.9g, 'end_is_planned': %i}",
                      recompute->end_of_forward, recompute->is_planned);
}

static coh_status add_save(const coh_plan *plan, cli_line *line)
{
    uint64_t bytes, frozen_bytes;
    CLI_TRY(coh_engine_save_bytes(plan, &bytes));
    CLI_TRY(coh_engine_save_frozen_bytes(plan, &frozen_bytes));
    cli_line_add_json(line, "'save_bytes': %" PRIu64 ", 'save_frozen_bytes': %" PRIu64, bytes,
                      frozen_bytes);
    return COH_OK;
}

/* Adds the origin of a replayed plan. */
static void add_made(const cli_job *job, cli_line *line)
{
    const coh_plan_file *made = job->made;
    cli_line_add_json(line,
                      "'made': {'profile': %s, 'profile_hash': '%016" PRIx64
                      "', 'step_seconds': %.9f, 'budget_bytes': %" PRIu64 "}",
                      made->profile_name, made->profile_hash, (double)made->step_ns * 1e-9,
                      job->made_device_bytes);
}

static void add_rehearsal(const cli_job *job, cli_line *line)
{
    const coh_rehearsal *r = &job->rehearsal;
    cli_line_add_json(line,
                      "'rehearsal': {'steps': %" PRId64 ", 'programs': %d, 'instructions': %" PRIu64
                      ", 'step_seconds': %.9f, 'predicted_step_seconds': %.9f"
                      ", 'idle_seconds': %.9f",
                      job->options->rehearse, (int)r->program_count, r->executed_count,
                      (double)r->step_ns * 1e-9, (double)r->predicted_step_ns * 1e-9,
                      (double)r->idle_ns * 1e-9);
    add_lanes("link_bytes", r->link_bytes, 1, line);
    cli_line_add_json_tiers(line, "peak_bytes", r->peak_bytes);
    cli_line_add_json(line, "}");
}

coh_status cli_plan_json(const cli_job *job, uint64_t in_memory_bytes)
{
    cli_recompute recompute;
    cli_line line;
    CLI_TRY(cli_recompute_find(job, in_memory_bytes, &recompute));
    cli_line_clear(&line);
    add_what(job, in_memory_bytes, &line);
    CLI_TRY(add_profile(job, &line));
    if (job->made)
        add_made(job, &line);
    add_times(job, &line);
    cli_drive_add_json(job, &line);
    CLI_TRY(add_save(job->plan, &line));
    add_limits(&job->summary, &line);
    CLI_TRY(add_memory(job->plan, &line));
    add_links(&job->summary, &line);
    add_program(&job->summary, &line);
    add_recompute(&recompute, &line);
    CLI_TRY(add_groups(job->plan, &line));
    CLI_TRY(add_operators(job->plan, &line));
    if (job->options->memory_curve > 0)
        CLI_TRY(add_memory_curve(job->plan, (int32_t)job->options->memory_curve, &line));
    if (job->options->rehearse > 0)
        add_rehearsal(job, &line);
    cli_print("%s}", line.text);
    return COH_OK;
}
