/* Predicts how a finished plan changes if some of its decisions are overridden by hand: builds,
 * verifies and simulates the body with them. No search. Public interface: cohobate/plan.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/refusal.h"
#include "base/struct_bytes.h"
#include "planner/neighbours.h"
#include "planner/pins.h"
#include "planner/plan.h"
#include "planner/schedule.h"
#include "planner/verify.h"

/* Makes the plan's own pins, without those for the same target and the same kind of thing, plus the
 * new one. */
static coh_status join_pins(const coh_plan *plan, const coh_pin *pin, coh_pin **out_pins,
                            int32_t *out_count, int32_t *out_replaces)
{
    const int is_of_activations = pin->place >= COH_PIN_KEEP;
    int32_t count = 0;
    COH_TRY(COH_ALLOC(plan->options.pin_count + 1, out_pins));
    for (int32_t i = 0; i < plan->options.pin_count; i++) {
        const coh_pin *own = &plan->options.pins[i];
        if (strcmp(own->target, pin->target) != 0 ||
            (own->place >= COH_PIN_KEEP) != is_of_activations)
            (*out_pins)[count++] = *own;
    }
    *out_replaces = count < plan->options.pin_count;
    (*out_pins)[count++] = *pin;
    *out_count = count;
    return COH_OK;
}

static void take_sums(const coh_layout *layout, const coh_program *body,
                      const coh_simulation *simulation, coh_plan_trial *out)
{
    out->fits = 1;
    out->step_ns = simulation->period_ns;
    out->program_hash = coh_program_hash(layout, body);
    for (int tier = 0; tier < COH_TIER_COUNT; tier++)
        out->peak_bytes[tier] = layout->arena_bytes[tier];
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        out->link_bytes[lane] = simulation->link_bytes[lane];
        out->exposed_ns[lane] = simulation->exposed_ns[lane];
        out->busy_ns[lane] = simulation->busy_ns[lane];
    }
}

/* Checks the device budget: the decisions were made for an earlier budget, and the present one may
 * be smaller. */
static coh_status check_room(const coh_plan_options *options, const coh_layout *layout)
{
    const uint64_t taken = layout->arena_bytes[COH_TIER_DEVICE];
    if (taken <= options->device_memory_bytes)
        return COH_OK;
    coh_refusal refusal = coh_refusal_bytes(COH_REFUSAL_PLACEMENT, COH_TIER_DEVICE,
                                            options->device_memory_bytes, taken);
    refusal.is_proven = 1;
    coh_refusal_raise(&refusal, COH_TIER_DEVICE, taken);
    return coh_refuse(&refusal);
}

/* Builds every program, as the plan does: evaluation and saving count towards memory. */
static coh_status build(const coh_plan *plan, const coh_plan_options *options,
                        const coh_decisions *decisions, coh_plan_trial *out)
{
    const coh_verify_options limits = { .budget_bytes = { options->device_memory_bytes,
                                                          options->host_memory_bytes,
                                                          options->disk_bytes } };
    coh_layout layout;
    coh_program programs[COH_PROGRAM_KIND_COUNT];
    coh_simulation simulation = { 0 };
    COH_TRY(coh_schedule_build(plan->graph, options, &plan->profile, decisions, 0, 1, &layout,
                               programs));
    const coh_program *body = &programs[COH_PROGRAM_BODY];
    coh_status status = check_room(options, &layout);
    if (status == COH_OK)
        status = coh_verify(&layout, body, &limits, NULL);
    if (status == COH_ERR_CORRUPT)
        status = coh_fail_prefix(COH_ERR_INTERNAL, "the planner wrote a program that its verifier "
                                                   "refuses (please report this)");
    if (status == COH_OK)
        status = coh_simulate_priced(&layout, body, &plan->pricer, &simulation, NULL);
    if (status == COH_OK)
        take_sums(&layout, body, &simulation, out);
    for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT; kind++)
        coh_program_fini(&programs[kind]);
    coh_layout_fini(&layout);
    return status;
}

/* Fills the caller's trial. A plan that does not fit is not an error. */
static coh_status end_trial(coh_status status, coh_plan_trial *trial, coh_plan_trial *out_trial)
{
    if (status != COH_OK && status != COH_ERR_FULL)
        return status;
    if (status == COH_ERR_FULL) {
        snprintf(trial->why, sizeof(trial->why), "%s", coh_last_error());
        trial->refusal.struct_bytes = sizeof(trial->refusal);
        (void)coh_last_refusal(&trial->refusal);
    }
    /* of an older caller's trial the refusal is cut, too */
    const size_t before = offsetof(coh_plan_trial, refusal);
    if (out_trial->struct_bytes < sizeof(*trial))
        trial->refusal.struct_bytes =
            out_trial->struct_bytes > before ? out_trial->struct_bytes - (uint32_t)before : 0;
    COH_STRUCT_FILL(*trial, out_trial);
    return COH_OK;
}

coh_status coh_plan_try(const coh_plan *plan, const coh_pin *pin, coh_plan_trial *out_trial)
{
    COH_NEED(plan);
    COH_NEED(pin);
    COH_NEED_STRUCT(coh_plan_trial, out_trial);
    coh_plan_options options = plan->options;
    coh_decisions decisions = plan->decisions;
    coh_plan_trial trial = { 0 };
    coh_pin *pins = NULL;
    COH_TRY(join_pins(plan, pin, &pins, &options.pin_count, &trial.replaces_pin));
    options.pins = pins;
    coh_status status = coh_pins_check(plan->graph, &options);
    if (status == COH_OK)
        status = coh_pins_blocks(plan->graph, &options, &decisions.recompute);
    if (status == COH_OK && decisions.in_memory && coh_pins_need_far(&options)) {
        decisions.in_memory = 0;
        decisions.device_bytes = options.device_memory_bytes;
    }
    if (status == COH_OK)
        status = build(plan, &options, &decisions, &trial);
    coh_free(pins);
    return end_trial(status, &trial, out_trial);
}

/* A shared parameter belongs to the first operator that uses it. */
static size_t first_user(const coh_graph *graph, size_t op)
{
    for (size_t i = 0; i < op; i++)
        for (int32_t a = 0; a < graph->ops[i].kind.parameter_count; a++)
            for (int32_t b = 0; b < graph->ops[op].kind.parameter_count; b++)
                if (graph->ops[i].parameter[a] >= 0 &&
                    graph->ops[i].parameter[a] == graph->ops[op].parameter[b])
                    return i;
    return op;
}

/* Moves the updates of `op`, and of all blocks after or before it, unless they are there already.
 * Operators before the first block are needed first, so they move to the host last. */
static void move_updates(const coh_graph *graph, size_t op, int on_host, coh_decisions *decisions)
{
    const int32_t blocks = coh_graph_block_count(graph), before = graph->ops[op].blocks_before;
    const int is_first = graph->ops[op].block < 0 && before == 0;
    const int32_t least = is_first ? blocks + 1 : before < blocks ? blocks - before : 1;
    if (coh_lower_is_on_host(graph, op, decisions->host_updates) == on_host)
        return;
    coh_decide_host_updates(on_host ? least : least - 1, decisions);
}

coh_status coh_plan_try_update(const coh_plan *plan, int32_t index, int32_t on_host,
                               coh_plan_trial *out_trial)
{
    COH_NEED(plan);
    COH_NEED_STRUCT(coh_plan_trial, out_trial);
    coh_decisions decisions = plan->decisions;
    coh_plan_trial trial = { 0 };
    if (index < 0 || index >= coh_plan_operator_count(plan))
        return coh_fail(COH_ERR_ARGUMENT, "operator %d is not one of %d", index,
                        coh_plan_operator_count(plan));
    if (plan->options.host_memory_bytes == 0 || decisions.in_memory)
        return coh_fail(COH_ERR_ARGUMENT, "without a host tier all updates are the device's");
    move_updates(plan->graph, first_user(plan->graph, (size_t)index), on_host != 0, &decisions);
    const coh_status status = build(plan, &plan->options, &decisions, &trial);
    return end_trial(status, &trial, out_trial);
}
