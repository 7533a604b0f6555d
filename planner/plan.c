/* Creates a plan: checks the options, searches decisions (search.c) in one or both sweep orders,
 * then builds, verifies and prices all programs. The idea: a plan is finished only if the verifier
 * accepts every program. plan_file_rebuild.c uses the same two stages (plan_make.h). */
#include "planner/plan.h"

#include <float.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/refusal.h"
#include "base/struct_bytes.h"
#include "cohobate/terms.h"
#include "planner/bounds.h"
#include "planner/fingerprint.h"
#include "planner/limits.h"
#include "planner/live.h"
#include "planner/optimizers.h"
#include "planner/pins.h"
#include "planner/plan_make.h"
#include "planner/schedule.h"
#include "planner/search.h"
#include "planner/verify.h"

/* ---- one set of decisions: built, priced, or finished ---- */

static void plan_clear(coh_plan *plan)
{
    for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT; kind++)
        coh_program_fini(&plan->programs[kind]);
    coh_layout_fini(&plan->layout);
}

/* More earlier plans than anyone has: such a count was never set. */
#define EARLIER_MOST 65536

coh_status coh_plan_options_read(const coh_plan_options *options, coh_plan_options *out_known)
{
    COH_TRY(coh_struct_check("coh_plan_options", options, sizeof(*options),
                             _Alignof(coh_plan_options)));
    if (options->struct_bytes < sizeof(*options))
        coh_plan_options_init(out_known);
    coh_struct_read(options, out_known, sizeof(*out_known));
    return coh_check_number("link_bytes_per_s", out_known->link_bytes_per_s, 0, DBL_MAX);
}

coh_status coh_plan_check_options(const coh_plan_options *options)
{
    if (options->thread_count < 1 || options->thread_count > 1024)
        return coh_fail(COH_ERR_ARGUMENT, "%d threads are not 1..1024", options->thread_count);
    COH_TRY(coh_check_integer("mode", (int32_t)options->mode, COH_PLAN_TRAIN, COH_PLAN_INFER));
    COH_TRY(coh_check_integer("recompute", (int32_t)options->recompute, COH_RECOMPUTE_AUTO,
                              COH_RECOMPUTE_ALL));
    COH_TRY(
        coh_check_integer("search", (int32_t)options->search, COH_SEARCH_USUAL, COH_SEARCH_PROBE));
    COH_TRY(coh_check_integer("deferred_update", options->deferred_update, 0, 1));
    COH_TRY(coh_check_integer("f32_gradients", options->f32_gradients, 0, 1));
    COH_TRY(coh_check_integer("uncalibrated", options->uncalibrated, 0, 1));
    COH_TRY(coh_check_integer("emulate_host", options->emulate_host, 0, 1));
    COH_TRY(coh_check_integer("bf16_is_fast", options->bf16_is_fast, 0, 1));
    COH_TRY(coh_check_integer("pin_count", options->pin_count, 0, COH_PINS_MOST));
    COH_TRY(coh_check_integer("earlier_count", options->earlier_count, 0, EARLIER_MOST));
    COH_TRY(coh_check_integer("optimizer_choice_count", options->optimizer_choice_count, 0,
                              COH_OPTIMIZER_CHOICES_MOST));
    if (options->optimizer_choice_count > 0 && options->optimizer_choices == NULL)
        return coh_fail(COH_ERR_ARGUMENT, "%d choices of optimizers at NULL: give their array",
                        options->optimizer_choice_count);
    if ((options->pin_count > 0 && options->pins == NULL) ||
        (options->earlier_count > 0 && options->earlier == NULL))
        return coh_fail(COH_ERR_ARGUMENT, "%d pins at %s, %d earlier plans at %s",
                        options->pin_count, options->pins ? "their place" : "NULL",
                        options->earlier_count, options->earlier ? "their place" : "NULL");
    for (int32_t i = 0; i < options->earlier_count; i++)
        if (options->earlier[i] == NULL)
            return coh_fail(COH_ERR_ARGUMENT, "earlier plan %d is NULL", i);
    if (memchr(options->kernel_path, '\0', sizeof(options->kernel_path)) == NULL)
        return coh_fail(COH_ERR_ARGUMENT, "kernel_path has no terminator: call "
                                          "coh_plan_options_init");
    if (options->microbatch_count < 1 || options->microbatch_count > 65536)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%d micro-batches are not 1..65536: raise %s, or lower %s",
                        options->microbatch_count, coh_term_text(COH_TERM_MICRO_BATCH),
                        coh_term_text(COH_TERM_BATCH));
    if (options->sweep_order < COH_SWEEP_MICROBATCH || options->sweep_order > COH_SWEEP_AUTO)
        return coh_fail(COH_ERR_ARGUMENT, "sweep order %d is none", (int)options->sweep_order);
    if (options->mode == COH_PLAN_INFER && options->microbatch_count != 1)
        return coh_fail(COH_ERR_ARGUMENT, "a forward-only plan runs one micro-batch at a time");
    return COH_OK;
}

coh_status coh_plan_check_budgets(const coh_plan_options *options)
{
    if (options == NULL)
        return coh_fail(COH_ERR_ARGUMENT, "budgets to check need plan options");
    coh_plan_options known;
    COH_TRY(coh_plan_options_read(options, &known));
    return known.profile ? coh_limits_check_budgets(known.profile, &known) : COH_OK;
}

static coh_status find_bounds(coh_plan *plan)
{
    coh_bound_base *base = NULL;
    COH_TRY(
        coh_bound_base_create(plan->graph, &plan->options, &plan->pricer, &plan->decisions, &base));
    coh_status status = coh_bounds_at(base, plan->options.device_memory_bytes,
                                      plan->options.host_memory_bytes, &plan->bounds);
    coh_bound_base_destroy(base);
    return status;
}

/* Builds, verifies and prices every program of plan->decisions. */
coh_status coh_plan_finish(coh_plan *plan)
{
    COH_TRY(coh_pins_blocks(plan->graph, &plan->options, &plan->decisions.recompute));
    COH_TRY(coh_schedule_build(plan->graph, &plan->options, &plan->profile, &plan->decisions, 1,
                               &plan->layout, plan->programs));
    COH_TRY(coh_limits_check_arenas(&plan->profile, plan->layout.arena_bytes));
    coh_verify_options verify = { .budget_bytes = { plan->options.device_memory_bytes,
                                                    plan->options.host_memory_bytes,
                                                    plan->options.disk_bytes } };
    for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT; kind++) {
        const coh_program *program = &plan->programs[kind];
        if (program->instruction_count == 0)
            continue;
        /* The limit is per step; frozen weights written when a run begins do not count. */
        verify.wear_bytes = kind == COH_PROGRAM_BODY ? plan->options.wear_bytes : 0;
        COH_TRY(coh_verify(&plan->layout, program, &verify, NULL));
        COH_TRY(coh_simulate_priced(&plan->layout, program, &plan->pricer, &plan->simulations[kind],
                                    NULL));
    }
    COH_TRY(coh_forecast_make(&plan->layout, &plan->programs[COH_PROGRAM_BODY], &plan->pricer,
                              &plan->forecast));
    COH_TRY(find_bounds(plan));
    plan->program_hash = coh_program_hash(&plan->layout, &plan->programs[COH_PROGRAM_BODY]);
    return coh_plan_note_operators(plan);
}

/* ---- public ---- */

const char *coh_sweep_order_name(coh_sweep_order order)
{
    static const char *const names[] = { "micro-batch", "layer", "auto" };
    return (unsigned)order < sizeof(names) / sizeof(names[0]) ? names[order] : "unknown";
}

/* An unmeasured tier cannot be priced; treating it as free would be wrong. */
static coh_status check_links(const coh_plan *plan)
{
    const coh_profile *profile = &plan->profile;
    if (plan->options.disk_bytes > 0 && !coh_profile_has_drive(profile))
        return coh_fail(COH_ERR_ARGUMENT,
                        "the profile %s knows no drive: %s adds it, or give its entries "
                        "disk-read=, disk-write=",
                        profile->name, coh_term_text(COH_TERM_MEASURE_DRIVE));
    if (plan->options.host_memory_bytes > 0 && profile->device_kind == COH_DEVICE_HOST &&
        !plan->options.emulate_host)
        return coh_fail(COH_ERR_ARGUMENT,
                        "host_memory_bytes is %" PRIu64
                        ": the host device has a host tier only as an emulation; set emulate_host",
                        plan->options.host_memory_bytes);
    if (plan->options.host_memory_bytes > 0 &&
        !(coh_profile_is_link(profile, COH_LANE_H2D) && coh_profile_is_link(profile, COH_LANE_D2H)))
        return coh_fail(COH_ERR_ARGUMENT,
                        "the profile %s knows no link to a host tier: %s adds it, or give its "
                        "entry pcie=",
                        profile->name, coh_term_text(COH_TERM_MEASURE));
    if (plan->options.host_memory_bytes > 0 && profile->device_kind != COH_DEVICE_HOST &&
        !(profile->host_memory_bytes_per_s.p50 > 0 || profile->host_update_bytes_per_s.p50 > 0))
        return coh_fail(COH_ERR_ARGUMENT,
                        "the profile %s knows no rate of the memory next to its GPU, at which the "
                        "host updates: give its entry host-memory-rate= or update-rate=",
                        profile->name);
    return COH_OK;
}

static coh_status copy_pins(coh_plan *plan)
{
    COH_TRY(COH_ALLOC(plan->options.pin_count + 1, &plan->pins));
    for (int32_t i = 0; i < plan->options.pin_count; i++)
        plan->pins[i] = plan->options.pins[i];
    plan->options.pins = plan->pins;
    return COH_OK;
}

static coh_status copy_optimizers(coh_plan *plan)
{
    const int32_t count = plan->options.optimizer_choice_count;
    COH_TRY(COH_ALLOC(count + 1, &plan->optimizer_choices));
    for (int32_t i = 0; i < count; i++)
        plan->optimizer_choices[i] = plan->options.optimizer_choices[i];
    plan->options.optimizer_choices = plan->optimizer_choices;
    return COH_OK;
}

coh_status coh_plan_open(const coh_graph *graph, const coh_plan_options *options,
                         coh_plan **out_plan)
{
    *out_plan = NULL;
    COH_TRY(coh_plan_check_options(options));
    COH_TRY(coh_pins_check(graph, options));
    COH_TRY(coh_optimizers_check(graph, options));
    coh_plan *plan = NULL;
    COH_TRY(COH_ALLOC(1, &plan));
    plan->graph = graph;
    plan->options = *options;
    if (options->microbatch_count == 1 || options->sweep_order == COH_SWEEP_AUTO)
        plan->options.sweep_order = COH_SWEEP_MICROBATCH; /* same program with one micro-batch */
    plan->options.f32_gradients =
        options->mode == COH_PLAN_TRAIN && options->f32_gradients && coh_graph_trains_bf16(graph);
    if (options->profile) {
        plan->profile = *options->profile; /* its lists belong to the caller */
        if (options->uncalibrated && plan->profile.uncalibrated_hash != 0)
            memcpy(plan->profile.calibration, plan->profile.uncalibrated,
                   sizeof(plan->profile.calibration));
        coh_profile_share_cores(&plan->profile);
        coh_profile_throttle(&plan->profile, options->link_bytes_per_s);
    } else {
        coh_profile_builtin(options->thread_count, options->bf16_is_fast, options->link_bytes_per_s,
                            &plan->profile);
    }
    coh_status status = check_links(plan);
    if (status == COH_OK)
        status = copy_pins(plan);
    if (status == COH_OK)
        status = copy_optimizers(plan);
    if (status == COH_OK)
        status = coh_pricer_init(&plan->pricer, &plan->profile, graph);
    if (status != COH_OK) {
        coh_plan_destroy(plan);
        return status;
    }
    plan->numeric_fingerprint = coh_numeric_fingerprint(graph, &plan->options);
    *out_plan = plan;
    return COH_OK;
}

static coh_status search_and_finish(coh_plan *plan)
{
    COH_TRY(coh_plan_search(plan));
    return coh_plan_finish(plan);
}

/* Returns 1 if the body fits, but another program needs more of a far tier than there is
 * (schedule.h). */
static int is_short_beside_body(const coh_plan *plan)
{
    return plan->layout.object_count == 0 && (plan->layout.arena_bytes[COH_TIER_HOST] > 0 ||
                                              plan->layout.arena_bytes[COH_TIER_DISK] > 0);
}

/* Creates a plan in the given sweep order. *out_far_bytes: if it is refused only for lack of the
 * outermost tier, the bytes that would do; else 0. */
static coh_status create_in_order(const coh_graph *graph, const coh_plan_options *options,
                                  coh_plan **out_plan, uint64_t *out_far_bytes)
{
    coh_plan *plan = NULL;
    *out_plan = NULL;
    *out_far_bytes = 0;
    COH_TRY(coh_plan_open(graph, options, &plan));
    coh_status status = coh_limits_check_budgets(&plan->profile, options);
    if (status == COH_OK)
        status = search_and_finish(plan);
    if (status == COH_ERR_FULL && is_short_beside_body(plan)) {
        plan->layout = (coh_layout){ 0 };
        plan->counts_all = 1;
        status = search_and_finish(plan);
    }
    plan->options.earlier = NULL;
    plan->options.earlier_count = 0;
    if (status == COH_ERR_CORRUPT)
        status = coh_fail_prefix(COH_ERR_INTERNAL, "the planner wrote a program that its verifier "
                                                   "refuses (please report this)");
    if (status != COH_OK) {
        *out_far_bytes = plan->least_far_bytes;
        coh_plan_destroy(plan);
        return status;
    }
    *out_plan = plan;
    return COH_OK;
}

/* Tries both sweep orders and takes the faster one, or the one that fits; of equal plans the usual
 * order. If neither fits, the message is that of the order that needs less memory. */
static coh_status create_in_best_order(const coh_graph *graph, const coh_plan_options *options,
                                       coh_plan **out_plan)
{
    coh_plan_options each = *options;
    coh_plan *by_layers = NULL;
    coh_refusal refusal = { .struct_bytes = sizeof(refusal) };
    uint64_t by_layers_bytes, far_bytes;
    each.sweep_order = COH_SWEEP_LAYER;
    coh_status status = create_in_order(graph, &each, &by_layers, &by_layers_bytes);
    if (status != COH_OK && status != COH_ERR_FULL && status != COH_ERR_ARGUMENT)
        return status;
    if (by_layers_bytes > 0 && (!coh_last_refusal(&refusal) || refusal.status != COH_ERR_FULL))
        by_layers_bytes = 0;
    each.sweep_order = COH_SWEEP_MICROBATCH;
    status = create_in_order(graph, &each, out_plan, &far_bytes);
    if (status == COH_ERR_FULL && by_layers_bytes > 0 &&
        (far_bytes == 0 || by_layers_bytes < far_bytes))
        return coh_refuse(&refusal);
    if (by_layers == NULL || (status != COH_OK && status != COH_ERR_FULL)) {
        coh_plan_destroy(by_layers);
        return status;
    }
    if (status == COH_OK && (*out_plan)->simulations[COH_PROGRAM_BODY].period_ns <=
                                by_layers->simulations[COH_PROGRAM_BODY].period_ns) {
        coh_plan_destroy(by_layers);
        return COH_OK;
    }
    coh_plan_destroy(*out_plan);
    *out_plan = by_layers;
    return COH_OK;
}

static coh_status create(const coh_graph *graph, const coh_plan_options *options,
                         coh_plan **out_plan)
{
    uint64_t unused;
    if (options->sweep_order != COH_SWEEP_AUTO || options->microbatch_count == 1)
        return create_in_order(graph, options, out_plan, &unused);
    coh_plan_options each = *options;
    each.uncalibrated = 1; /* result bits depend on the order, so calibration must not choose it */
    COH_TRY(create_in_best_order(graph, &each, out_plan));
    if (options->uncalibrated || options->profile == NULL || options->profile->calibrated_runs == 0)
        return COH_OK;
    each.sweep_order = (*out_plan)->options.sweep_order;
    each.uncalibrated = 0;
    coh_plan_destroy(*out_plan);
    return create_in_order(graph, &each, out_plan, &unused);
}

coh_status coh_plan_create_unbounded(const coh_graph *graph, const coh_plan_options *options,
                                     coh_plan **out_plan)
{
    *out_plan = NULL;
    COH_TRY(coh_plan_check_options(options));
    const coh_status status = create(graph, options, out_plan);
    const coh_profile *profile = options->profile;
    if (status != COH_ERR_FULL || options->disk_bytes > 0 || options->spare_disk_bytes == 0 ||
        (profile != NULL && !coh_profile_has_drive(profile)))
        return status;
    coh_plan_options with_disk = *options;
    with_disk.disk_bytes = options->spare_disk_bytes;
    return create(graph, &with_disk, out_plan);
}

coh_status coh_plan_create(const coh_graph *graph, const coh_plan_options *options,
                           coh_plan **out_plan)
{
    COH_NEED(graph);
    COH_NEED(options);
    COH_NEED(out_plan);
    *out_plan = NULL;
    coh_plan_options known;
    COH_TRY(coh_plan_options_read(options, &known));
    COH_TRY(coh_plan_create_unbounded(graph, &known, out_plan));
    return coh_plan_bound_writes(graph, &known, out_plan);
}

void coh_plan_destroy(coh_plan *plan)
{
    if (plan == NULL)
        return;
    plan_clear(plan);
    coh_pricer_fini(&plan->pricer);
    coh_free(plan->pins);
    coh_free(plan->optimizer_choices);
    coh_free(plan->operator_notes);
    coh_free(plan->object_notes);
    coh_free(plan);
}

coh_status coh_plan_least_written(const coh_graph *graph, const coh_plan_options *options,
                                  uint64_t *out_bytes)
{
    COH_NEED(graph);
    COH_NEED(options);
    COH_NEED(out_bytes);
    *out_bytes = 0;
    coh_plan_options next_to_none;
    COH_TRY(coh_plan_options_read(options, &next_to_none));
    const int any_order =
        next_to_none.sweep_order == COH_SWEEP_AUTO && next_to_none.microbatch_count > 1;
    next_to_none.wear_bytes = 1;
    for (int i = 0; i < 1 + any_order; i++) {
        coh_plan *plan = NULL;
        if (any_order)
            next_to_none.sweep_order = i == 0 ? COH_SWEEP_MICROBATCH : COH_SWEEP_LAYER;
        COH_TRY(coh_plan_open(graph, &next_to_none, &plan));
        const coh_status status = coh_plan_search(plan);
        const uint64_t bytes = plan->least_worn_bytes;
        coh_plan_destroy(plan);
        if (status != COH_OK && status != COH_ERR_FULL)
            return status;
        if (bytes > 0 && (*out_bytes == 0 || bytes < *out_bytes))
            *out_bytes = bytes;
    }
    return COH_OK;
}

static coh_status least_in_order(const coh_graph *graph, const coh_plan_options *options,
                                 uint64_t *out_ns)
{
    coh_plan *plan = NULL;
    COH_TRY(coh_plan_open(graph, options, &plan));
    const coh_status status = coh_plan_search_bound(plan, out_ns);
    coh_plan_destroy(plan);
    return status;
}

coh_status coh_plan_least_ns(const coh_graph *graph, const coh_plan_options *options,
                             uint64_t *out_ns)
{
    COH_NEED(graph);
    COH_NEED(options);
    COH_NEED(out_ns);
    coh_plan_options known;
    uint64_t by_layers_ns = 0;
    *out_ns = 0;
    COH_TRY(coh_plan_options_read(options, &known));
    options = &known;
    COH_TRY(coh_plan_check_options(options));
    coh_plan_options each = known;
    if (options->sweep_order != COH_SWEEP_AUTO || options->microbatch_count == 1)
        return least_in_order(graph, options, out_ns);
    each.uncalibrated = 1; /* as coh_plan_create */
    each.sweep_order = COH_SWEEP_LAYER;
    COH_TRY(least_in_order(graph, &each, &by_layers_ns));
    each.sweep_order = COH_SWEEP_MICROBATCH;
    COH_TRY(least_in_order(graph, &each, out_ns));
    if (by_layers_ns < *out_ns)
        *out_ns = by_layers_ns;
    return COH_OK;
}

coh_status coh_plan_in_memory_bytes(const coh_graph *graph, const coh_plan_options *options,
                                    uint64_t *out_bytes)
{
    COH_NEED(graph);
    COH_NEED(options);
    COH_NEED(out_bytes);
    coh_plan_options without;
    COH_TRY(coh_plan_options_read(options, &without));
    without.device_memory_bytes = UINT64_MAX;
    without.host_memory_bytes = without.disk_bytes = without.wear_bytes = 0;
    without.spare_disk_bytes = without.disk_write_bytes_per_day = 0;
    without.pin_count = 0;
    coh_plan *plan = NULL;
    COH_TRY(coh_plan_open(graph, &without, &plan));
    coh_status status = coh_plan_search(plan);
    if (status == COH_OK)
        status = coh_schedule_build(plan->graph, &plan->options, &plan->profile, &plan->decisions,
                                    1, &plan->layout, plan->programs);
    *out_bytes = plan->layout.arena_bytes[COH_TIER_DEVICE];
    if (status == COH_ERR_ARGUMENT) { /* too long a program to build */
        const coh_block_set none = coh_block_set_first(0);
        status = coh_live_bytes(graph, &without, &none, 0, out_bytes);
    }
    coh_plan_destroy(plan);
    return status;
}
