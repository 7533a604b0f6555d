/* Creates a plan: checks the options and the limits of the system, searches decisions (search.c) in
 * one or both sweep orders, then builds, verifies and prices all programs. The idea: a plan is
 * finished only if the verifier accepts every program. plan_file_rebuild.c uses the same stages
 * (plan_make.h). */
#include "planner/plan.h"

#include <float.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/refusal.h"
#include "base/struct_bytes.h"
#include "cohobate/terms.h"
#include "planner/attempt.h"
#include "planner/bounds.h"
#include "planner/candidates.h"
#include "planner/fingerprint.h"
#include "planner/fold.h"
#include "planner/least_step.h"
#include "planner/optimizers.h"
#include "planner/pins.h"
#include "planner/plan_make.h"
#include "planner/profile_file.h"
#include "planner/rank_choice.h"
#include "planner/schedule.h"
#include "planner/search.h"
#include "planner/verify.h"

/* ---- limits of the system ---- */

/* A profile limits the main memory that a process may have, however much there is; UINT64_MAX: no
 * limit. cgroup_bytes is of all memory: of the arenas in main memory, which on a host device are
 * both (its device tier is RAM), with a GPU only the host tier. It is of the process that measured;
 * the options may have that of the one that will run. memlock_bytes is of locked memory: with a GPU
 * the host tier is pinned; a host device can run without locked memory. */
static int is_gpu(const coh_profile *profile)
{
    return profile->device_kind != COH_DEVICE_HOST;
}

/* `of`: the profile's name if the limit is its own, else "". `changed`: the tier whose budget to
 * lower; -1: both. */
static coh_status refuse_limit(const coh_profile *profile, const char *of,
                               coh_refusal_reason reason, coh_change_kind raise, int changed,
                               uint64_t limit, uint64_t bytes)
{
    const coh_tier tier = is_gpu(profile) ? COH_TIER_HOST : COH_TIER_DEVICE;
    coh_refusal refusal = coh_refusal_bytes(reason, tier, limit, bytes);
    refusal.is_gpu = is_gpu(profile);
    refusal.is_proven = 1;
    snprintf(refusal.profile, sizeof(refusal.profile), "%s", of);
    coh_refusal_add(&refusal, raise, bytes);
    coh_refusal_lower(&refusal, changed, limit);
    return coh_refuse(&refusal);
}

/* `given`: the options' limit, in place of the profile's; 0: none. */
static coh_status check_cgroup(const coh_profile *profile, uint64_t given, uint64_t device,
                               uint64_t host)
{
    const int has_own = given == 0 || profile->cgroup_bytes == UINT64_MAX;
    const uint64_t limit = has_own ? profile->cgroup_bytes : given;
    uint64_t bytes = host;
    if (!is_gpu(profile) && __builtin_add_overflow(device, host, &bytes))
        bytes = UINT64_MAX;
    if (bytes <= limit)
        return COH_OK;
    const int changed = is_gpu(profile) ? COH_TIER_HOST : host > 0 ? -1 : COH_TIER_DEVICE;
    return refuse_limit(profile, has_own ? profile->name : "", COH_REFUSAL_CGROUP,
                        COH_CHANGE_RAISE_CGROUP, changed, limit, bytes);
}

/* Checks that the system allows budgets like these. A budget of UINT64_MAX (no limit) counts as
 * 0. */
static coh_status check_budgets(const coh_profile *profile, const coh_plan_options *options)
{
    const uint64_t device = options->device_memory_bytes, host = options->host_memory_bytes;
    return check_cgroup(profile, options->main_memory_limit_bytes,
                        device == UINT64_MAX ? 0 : device, host == UINT64_MAX ? 0 : host);
}

/* Checks that the system allows arenas of these sizes. */
static coh_status check_arenas(const coh_profile *profile, uint64_t given,
                               const uint64_t arena_bytes[COH_TIER_COUNT])
{
    const uint64_t host = arena_bytes[COH_TIER_HOST], limit = profile->memlock_bytes;
    if (is_gpu(profile) && host > limit)
        return refuse_limit(profile, profile->name, COH_REFUSAL_MEMLOCK, COH_CHANGE_RAISE_MEMLOCK,
                            COH_TIER_HOST, limit, host);
    return check_cgroup(profile, given, arena_bytes[COH_TIER_DEVICE], host);
}

/* ---- one set of decisions: built, priced, or finished ---- */

coh_status coh_plan_check_budgets(const coh_plan_options *options)
{
    if (options == NULL)
        return coh_fail(COH_ERR_ARGUMENT, "budgets to check need plan options");
    coh_plan_options known;
    COH_TRY(coh_plan_options_read(options, &known));
    return known.profile ? check_budgets(known.profile, &known) : COH_OK;
}

static coh_status find_bounds(coh_plan *plan)
{
    coh_bound_base *base = NULL;
    COH_TRY(coh_least_step_of(plan));
    COH_TRY(
        coh_bound_base_create(plan->graph, &plan->options, &plan->pricer, &plan->decisions, &base));
    coh_status status = coh_bounds_at(base, plan->options.device_memory_bytes,
                                      plan->options.host_memory_bytes, &plan->bounds);
    coh_bound_base_destroy(base);
    return status;
}

/* Builds every program of plan->decisions, unless they are built. */
static coh_status build_programs(coh_plan *plan)
{
    COH_TRY(coh_pins_blocks(plan->graph, &plan->options, &plan->decisions.recompute));
    if (!coh_plan_is_built(plan))
        COH_TRY(coh_schedule_build(plan->graph, &plan->options, &plan->profile, &plan->decisions, 0,
                                   1, &plan->layout, plan->programs));
    return check_arenas(&plan->profile, plan->options.main_memory_limit_bytes,
                        plan->layout.arena_bytes);
}

coh_status coh_plan_price(coh_plan *plan)
{
    const int was_priced = /* by price_whole, or here */
        coh_plan_is_built(plan) && plan->simulations[COH_PROGRAM_BODY].period_ns > 0;
    COH_TRY(build_programs(plan));
    return was_priced
               ? COH_OK
               : coh_simulate_priced(&plan->layout, &plan->programs[COH_PROGRAM_BODY],
                                     &plan->pricer, &plan->simulations[COH_PROGRAM_BODY], NULL);
}

coh_status coh_plan_finish(coh_plan *plan)
{
    COH_TRY(coh_plan_price(plan));
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
        if (kind != COH_PROGRAM_BODY)
            COH_TRY(coh_simulate_priced(&plan->layout, program, &plan->pricer,
                                        &plan->simulations[kind], NULL));
    }
    COH_TRY(coh_forecast_make(&plan->layout, &plan->programs[COH_PROGRAM_BODY], &plan->pricer,
                              plan->simulations[COH_PROGRAM_BODY].period_ns, &plan->forecast));
    COH_TRY(find_bounds(plan));
    plan->program_hash = coh_program_hash(&plan->layout, &plan->programs[COH_PROGRAM_BODY]);
    return coh_plan_note_operators(plan);
}

/* ---- the search, in one or both sweep orders ---- */

const char *coh_sweep_order_name(coh_sweep_order order)
{
    static const char *const names[] = { "micro-batch", "layer", "auto", "same bits" };
    return (unsigned)order < sizeof(names) / sizeof(names[0]) ? names[order] : "unknown";
}

const char *coh_reduce_name(coh_reduce reduce)
{
    static const char *const names[] = { "exact", "library" };
    return (unsigned)reduce < COH_REDUCE_COUNT ? names[reduce] : "unknown";
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

/* Copies the lists that the options point to. */
static coh_status copy_lists(coh_plan *plan)
{
    coh_plan_options *options = &plan->options;
    COH_TRY(COH_ALLOC(options->pin_count + 1, &plan->pins));
    COH_TRY(COH_ALLOC(options->optimizer_choice_count + 1, &plan->optimizer_choices));
    for (int32_t i = 0; i < options->pin_count; i++)
        plan->pins[i] = options->pins[i];
    for (int32_t i = 0; i < options->optimizer_choice_count; i++)
        plan->optimizer_choices[i] = options->optimizer_choices[i];
    options->pins = plan->pins;
    options->optimizer_choices = plan->optimizer_choices;
    return COH_OK;
}

/* The sums over replicas and ranks are f32. */
static coh_status check_folded_dtype(const coh_graph *graph, const coh_plan_options *options)
{
    coh_fold_shape all;
    COH_TRY(coh_fold_shape_join(&options->replicas, &options->ranks, &all));
    if (coh_fold_replicas(&all) == 1 || options->f32_gradients || !coh_graph_trains_bf16(graph))
        return COH_OK;
    return coh_fail(COH_ERR_ARGUMENT,
                    "gradients of %d replicas are added in f32, and those of bf16 weights are bf16:"
                    " give %s f32",
                    coh_fold_replicas(&all), coh_term_text(COH_TERM_GRADIENTS));
}

/* Returns how many ranks compute on the GPUs of one machine. */
static int32_t ranks_of_node(const coh_plan_options *options)
{
    const int32_t all = coh_fold_replicas(&options->ranks), node = options->node_ranks;
    return node > 0 && node < all ? node : all;
}

coh_status coh_plan_open(const coh_graph *graph, const coh_plan_options *options,
                         coh_plan **out_plan)
{
    *out_plan = NULL;
    COH_TRY(coh_plan_check_options(options));
    COH_TRY(check_folded_dtype(graph, options));
    COH_TRY(coh_pins_check(graph, options));
    COH_TRY(coh_optimizers_check(graph, options));
    coh_plan *plan = NULL;
    COH_TRY(COH_ALLOC(1, &plan));
    plan->graph = graph;
    plan->options = *options;
    plan->chunk_bytes = options->chunk_bytes;
    if (coh_replica_microbatches(options) == 1 || options->sweep_order >= COH_SWEEP_AUTO)
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
    if (options->drive_count > 1 && coh_profile_drive_is_assumed(&plan->profile))
        coh_profile_stripe(&plan->profile, options->drive_count);
    coh_profile_limit_shares(&plan->profile, ranks_of_node(options));
    coh_profile_share_memory(&plan->profile, coh_price_update_part(graph, &plan->options));
    coh_status status = check_links(plan);
    if (status == COH_OK)
        status = copy_lists(plan);
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

/* Returns 1 if the body fits, but another program needs more of a far tier than there is
 * (schedule.h). */
static int is_short_beside_body(const coh_plan *plan)
{
    return !coh_plan_is_built(plan) && (plan->layout.arena_bytes[COH_TIER_HOST] > 0 ||
                                        plan->layout.arena_bytes[COH_TIER_DISK] > 0);
}

/* Searches a step; a folded search may find nothing where the whole step has a plan. */
static coh_status search_any(coh_plan *plan)
{
    const coh_status status = coh_plan_search(plan);
    if (status != COH_ERR_FULL || !plan->folded)
        return status;
    plan->never_folds = 1;
    return coh_plan_search(plan);
}

/* Makes as much of a searched plan as is asked for. */
static coh_status deepen(coh_plan *plan)
{
    switch (plan->depth) {
    case COH_PLAN_FITS:
        return build_programs(plan);
    case COH_PLAN_PRICED:
        return coh_plan_price(plan);
    default:
        return coh_plan_finish(plan);
    }
}

/* Finishes a searched plan. With decisions of a folded search the whole step may not fit; then it
 * is searched. */
static coh_status finish_any(coh_plan *plan)
{
    const coh_status status = deepen(plan);
    if (status != COH_ERR_FULL || !plan->folded || is_short_beside_body(plan))
        return status;
    coh_plan_drop_programs(plan);
    plan->never_folds = 1;
    COH_TRY(coh_plan_search(plan));
    return deepen(plan);
}

/* Searches a plan in the given sweep order, whose least step may be known (else `least` is zero).
 * *out_far_bytes: if it is refused only for lack of the outermost tier, the bytes that would do;
 * else 0. */
static coh_status search_in_order(const coh_graph *graph, const coh_plan_options *options,
                                  coh_plan_depth depth, const coh_least_step *least,
                                  uint64_t rival_ns, coh_plan **out_plan, uint64_t *out_far_bytes)
{
    coh_plan *plan = NULL;
    *out_plan = NULL;
    *out_far_bytes = 0;
    COH_TRY(coh_plan_open(graph, options, &plan));
    plan->depth = depth;
    plan->least = *least;
    plan->rival_ns = rival_ns;
    coh_status status = check_budgets(&plan->profile, options);
    if (status == COH_OK)
        status = search_any(plan);
    if (status == COH_OK) {
        *out_plan = plan;
        return COH_OK;
    }
    *out_far_bytes = plan->least_far_bytes;
    coh_plan_destroy(plan);
    return status;
}

/* Only the planner can be the cause if its own program is refused. */
static coh_status as_internal(coh_status status)
{
    return status != COH_ERR_CORRUPT
               ? status
               : coh_fail_prefix(COH_ERR_INTERNAL,
                                 "the planner wrote a program that its verifier refuses (please "
                                 "report this)");
}

/* Changes a searched plan at random and finishes it. With the new decisions another program than
 * the body may not fit; then the plan is finished as it was found. */
static coh_status finish_perturbed(coh_plan *plan)
{
    const coh_decisions found = plan->decisions;
    const uint64_t found_ns = plan->step_ns;
    int is_changed = 0;
    COH_TRY(coh_plan_perturb(plan, &is_changed));
    if (!is_changed)
        return finish_any(plan);
    const coh_status status = deepen(plan);
    if (status != COH_ERR_FULL)
        return status;
    coh_plan_drop_programs(plan);
    plan->layout = (coh_layout){ 0 };
    plan->decisions = found;
    plan->step_ns = found_ns;
    return finish_any(plan);
}

/* Finishes a searched plan, as far as plan->depth asks for. On failure
 * *plan is NULL. *out_far_bytes: as above. */
static coh_status finish_in_order(coh_plan **plan, uint64_t *out_far_bytes)
{
    coh_plan *made = *plan;
    coh_status status = finish_perturbed(made);
    *out_far_bytes = 0;
    if (status == COH_ERR_FULL && is_short_beside_body(made)) {
        made->layout = (coh_layout){ 0 };
        made->counts_all = 1;
        status = search_any(made);
        if (status == COH_OK)
            status = finish_perturbed(made);
    }
    made->options.earlier = NULL;
    made->options.earlier_count = 0;
    status = as_internal(status);
    if (status == COH_OK)
        return COH_OK;
    *out_far_bytes = made->least_far_bytes;
    coh_plan_destroy(made);
    *plan = NULL;
    return status;
}

/* Creates a plan in the given sweep order. */
static coh_status create_in_order(const coh_graph *graph, const coh_plan_options *options,
                                  coh_plan_depth depth, coh_plan **out_plan)
{
    const coh_least_step unknown = { 0 };
    uint64_t unused;
    COH_TRY(search_in_order(graph, options, depth, &unknown, 0, out_plan, &unused));
    return finish_in_order(out_plan, &unused);
}

coh_sweep_order coh_plan_order(const coh_graph *graph, const coh_plan_options *options)
{
    if (coh_replica_microbatches(options) == 1)
        return COH_SWEEP_MICROBATCH;
    if (options->sweep_order != COH_SWEEP_SAME_BITS)
        return options->sweep_order;
    return coh_order_changes_bits(graph) ? COH_SWEEP_MICROBATCH : COH_SWEEP_AUTO;
}

/* Computes the least step of an order, without light operators and with them. */
static coh_status least_of_order(const coh_graph *graph, const coh_plan_options *options,
                                 coh_least_step *out_least)
{
    coh_plan *plan = NULL;
    *out_least = (coh_least_step){ 0 };
    COH_TRY(coh_plan_open(graph, options, &plan));
    const coh_status status = coh_least_step_of(plan);
    *out_least = plan->least;
    coh_plan_destroy(plan);
    return status;
}

/* The plan of one sweep order, or why there is none. */
typedef struct ordered {
    coh_sweep_order order;
    coh_least_step least;
    uint64_t far_bytes;
    uint64_t step_ns; /* as searched; UINT64_MAX: there is no plan */
    coh_attempt made;
} ordered;

/* Returns 1 if a plan neither streams nor repeats what another order could save. */
static int has_all(const coh_plan *plan)
{
    return plan->decisions.in_memory && plan->decisions.light == COH_LIGHT_NONE &&
           coh_block_set_count(&plan->decisions.recompute) == 0;
}

/* Returns 1 if the other order cannot be faster by more than the search's own precision, or any
 * plan will do. */
static int is_settled(const ordered *first, const ordered *second)
{
    const coh_plan *plan = first->made.plan;
    const uint64_t least_ns = second->least.light_ns;
    return plan != NULL && (plan->depth == COH_PLAN_FITS || has_all(plan) ||
                            (least_ns > 0 && least_ns + least_ns / 500 >= first->step_ns));
}

/* Prices what a folded search found by the whole step, as a search of the whole step does. Keeps
 * the programs for coh_plan_finish. If another one than the body does not fit, prices the body
 * alone. */
static coh_status price_whole(coh_plan *plan)
{
    coh_candidate whole;
    if (!plan->folded || plan->depth == COH_PLAN_FITS)
        return COH_OK;
    COH_TRY(coh_pins_blocks(plan->graph, &plan->options, &plan->decisions.recompute));
    const int32_t folded = plan->folded;
    plan->folded = 0;
    coh_status status = coh_candidate_build(plan, &plan->decisions, 1, &whole, &plan->layout,
                                            plan->programs, &plan->simulations[COH_PROGRAM_BODY]);
    if (status == COH_OK && !whole.valid) {
        coh_plan_drop_programs(plan);
        status = coh_candidate_make(plan, &plan->decisions, &whole);
    }
    plan->folded = folded;
    COH_TRY(status);
    plan->step_ns = whole.step_ns;
    if (whole.valid)
        return COH_OK;
    plan->never_folds = 1;
    return coh_plan_search(plan);
}

static void search_one(const coh_graph *graph, const coh_plan_options *options,
                       coh_plan_depth depth, const ordered *rival, ordered *o)
{
    coh_plan_options each = *options;
    each.sweep_order = o->order;
    coh_status status = search_in_order(graph, &each, depth, &o->least,
                                        rival->made.plan != NULL ? rival->step_ns : 0,
                                        &o->made.plan, &o->far_bytes);
    if (status == COH_OK)
        status = price_whole(o->made.plan);
    coh_attempt_end(&o->made, status);
    if (status == COH_OK) {
        o->step_ns = o->made.plan->step_ns;
        return;
    }
    coh_plan_destroy(o->made.plan);
    o->made.plan = NULL;
}

static void finish_one(ordered *o)
{
    coh_attempt_end(&o->made, finish_in_order(&o->made.plan, &o->far_bytes));
    o->step_ns = coh_plan_period_ns(o->made.plan);
}

/* Fails with the message of the order that writes less to the drive, if a step may write too
 * little; else of the one that needs less of the outermost tier, else with that of the usual order.
 */
static coh_status fail_in_order(const ordered *by_microbatches, const ordered *by_layers)
{
    const uint64_t worn[] = { coh_refusal_worn_bytes(&by_microbatches->made.refusal),
                              coh_refusal_worn_bytes(&by_layers->made.refusal) };
    if (worn[0] > 0 || worn[1] > 0)
        return coh_attempt_fail(worn[1] > 0 && (worn[0] == 0 || worn[1] < worn[0])
                                    ? &by_layers->made
                                    : &by_microbatches->made);
    const uint64_t bytes = by_layers->made.refusal.struct_bytes > 0 ? by_layers->far_bytes : 0;
    const int is_less = by_microbatches->made.status == COH_ERR_FULL && bytes > 0 &&
                        (by_microbatches->far_bytes == 0 || bytes < by_microbatches->far_bytes);
    return coh_attempt_fail(is_less ? &by_layers->made : &by_microbatches->made);
}

/* Searches the sweep order with the lower bound, then the other if it may be faster. */
static coh_status search_orders(const coh_graph *graph, const coh_plan_options *options,
                                coh_plan_depth depth, ordered *orders)
{
    for (int i = 0; i < 2; i++) {
        coh_plan_options each = *options;
        each.sweep_order = orders[i].order;
        COH_TRY(least_of_order(graph, &each, &orders[i].least));
    }
    const int begin = orders[1].least.ns < orders[0].least.ns;
    ordered *first = &orders[begin], *second = &orders[1 - begin];
    search_one(graph, options, depth, second, first);
    if (coh_attempt_is_fault(&first->made))
        return coh_attempt_fail(&first->made);
    if (is_settled(first, second))
        return COH_OK;
    if (first->made.plan != NULL)
        coh_plan_drop_programs(first->made.plan);
    search_one(graph, options, depth, first, second);
    return coh_attempt_is_fault(&second->made) ? coh_attempt_fail(&second->made) : COH_OK;
}

/* Finishes the faster plan, of equal ones that of the usual order: two finished plans would take
 * twice the memory. Then also the other one, if the first has become slower than it. *out_taken is
 * a finished one, if there is any. */
static coh_status finish_faster(ordered *orders, int *out_taken)
{
    const int first = orders[1].step_ns < orders[0].step_ns;
    ordered *faster = &orders[first], *other = &orders[1 - first];
    *out_taken = first;
    if (faster->made.plan == NULL)
        return COH_OK;
    if (other->made.plan != NULL)
        coh_plan_drop_programs(other->made.plan);
    finish_one(faster);
    if (coh_attempt_is_fault(&faster->made))
        return coh_attempt_fail(&faster->made);
    if (other->made.plan == NULL || other->step_ns >= faster->step_ns)
        return COH_OK;
    finish_one(other);
    if (other->step_ns < faster->step_ns)
        *out_taken = 1 - first;
    return coh_attempt_is_fault(&other->made) ? coh_attempt_fail(&other->made) : COH_OK;
}

/* Plans both sweep orders and takes the faster plan; of equal plans the usual order. */
static coh_status create_in_best_order(const coh_graph *graph, const coh_plan_options *options,
                                       coh_plan_depth depth, coh_plan **out_plan)
{
    ordered orders[] = { { .order = COH_SWEEP_MICROBATCH, .step_ns = UINT64_MAX },
                         { .order = COH_SWEEP_LAYER, .step_ns = UINT64_MAX } };
    int taken = 0;
    coh_status status = search_orders(graph, options, depth, orders);
    if (status == COH_OK)
        status = finish_faster(orders, &taken);
    if (status == COH_OK && orders[taken].made.plan == NULL) {
        (void)fail_in_order(&orders[0], &orders[1]);
        status = orders[taken].made.status != COH_OK ? orders[taken].made.status : COH_ERR_INTERNAL;
    }
    if (status == COH_OK)
        *out_plan = orders[taken].made.plan;
    coh_plan_destroy(orders[1 - taken].made.plan);
    if (status != COH_OK)
        coh_plan_destroy(orders[taken].made.plan);
    return status;
}

static coh_status create(const coh_graph *graph, const coh_plan_options *options,
                         coh_plan_depth depth, coh_plan **out_plan)
{
    const int keeps_bits = options->sweep_order == COH_SWEEP_SAME_BITS;
    coh_plan_options each = *options;
    each.sweep_order = coh_plan_order(graph, options);
    if (each.sweep_order != COH_SWEEP_AUTO)
        return create_in_order(graph, &each, depth, out_plan);
    if (keeps_bits)
        return create_in_best_order(graph, &each, depth, out_plan);
    each.uncalibrated = 1; /* result bits depend on the order, so calibration must not choose it */
    COH_TRY(create_in_best_order(graph, &each, depth, out_plan));
    if (options->uncalibrated || options->profile == NULL || options->profile->calibrated_runs == 0)
        return COH_OK;
    each.sweep_order = (*out_plan)->options.sweep_order;
    each.uncalibrated = 0;
    coh_plan_destroy(*out_plan);
    return create_in_order(graph, &each, depth, out_plan);
}

/* Plans to speculate where no plan that waits was found. If there is none either, fails with the
 * message of the one that waits, since it needs no room for the step before. */
static coh_status create_speculating(const coh_graph *graph, const coh_plan_options *options,
                                     coh_plan_depth depth, coh_plan **out_plan)
{
    coh_attempt waits = { 0 };
    coh_attempt_end(&waits, COH_ERR_FULL);
    const coh_status status = create(graph, options, depth, out_plan);
    return status == COH_ERR_FULL ? coh_attempt_fail(&waits) : status;
}

/* Of a plan that waits for norms and one that speculates takes the faster. A step in memory has
 * nothing to gain. */
static coh_status create_or_speculate(const coh_graph *graph, const coh_plan_options *options,
                                      coh_plan_depth depth, coh_plan **out_plan)
{
    coh_plan_options waits = *options;
    coh_plan *speculating = NULL;
    waits.speculates = 0;
    const coh_status status = create(graph, &waits, depth, out_plan);
    if (!coh_plan_speculates(options) || (status != COH_OK && status != COH_ERR_FULL))
        return status;
    if (status == COH_ERR_FULL)
        return create_speculating(graph, options, depth, out_plan);
    if (depth == COH_PLAN_FITS || (*out_plan)->decisions.in_memory)
        return COH_OK;
    const coh_status other = create(graph, options, depth, &speculating);
    const int is_refused = other != COH_OK && other != COH_ERR_FULL;
    coh_plan *const taken =
        !is_refused && coh_plan_period_ns(speculating) >= coh_plan_period_ns(*out_plan)
            ? *out_plan
            : speculating;
    coh_plan_destroy(taken == speculating ? *out_plan : speculating);
    *out_plan = taken;
    return is_refused ? other : COH_OK;
}

/* Adds the spare disk if it does not fit without. */
static coh_status create_somewhere(const coh_graph *graph, const coh_plan_options *options,
                                   coh_plan_depth depth, coh_plan **out_plan)
{
    *out_plan = NULL;
    COH_TRY(coh_plan_check_options(options));
    const coh_status status =
        coh_rank_choice_plan(graph, options, depth, create_or_speculate, out_plan);
    if (status != COH_ERR_FULL || !coh_plan_has_spare(options))
        return status;
    coh_plan_options with_disk = *options;
    with_disk.disk_bytes = options->spare_disk_bytes;
    return coh_rank_choice_plan(graph, &with_disk, depth, create_or_speculate, out_plan);
}

coh_status coh_plan_create_unbounded(const coh_graph *graph, const coh_plan_options *options,
                                     coh_plan **out_plan)
{
    return create_somewhere(graph, options, COH_PLAN_WHOLE, out_plan);
}

coh_status coh_plan_create_priced(const coh_graph *graph, const coh_plan_options *options,
                                  coh_plan **out_plan)
{
    return create_somewhere(graph, options, COH_PLAN_PRICED, out_plan);
}

coh_status coh_plan_complete(coh_plan *plan)
{
    if (plan->depth == COH_PLAN_WHOLE && coh_plan_is_built(plan))
        return COH_OK;
    plan->depth = COH_PLAN_WHOLE;
    return as_internal(coh_plan_finish(plan));
}

coh_status coh_plan_check_fit(const coh_graph *graph, const coh_plan_options *options,
                              coh_plan_fit *out_fit)
{
    coh_plan *plan = NULL;
    const coh_status status = create_somewhere(graph, options, COH_PLAN_FITS, &plan);
    if (status == COH_OK)
        *out_fit = (coh_plan_fit){ plan->layout.arena_bytes[COH_TIER_DISK],
                                   plan->programs[COH_PROGRAM_BODY].instruction_count };
    coh_plan_destroy(plan);
    return status;
}

void coh_plan_drop_programs(coh_plan *plan)
{
    for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT; kind++)
        coh_program_fini(&plan->programs[kind]);
    coh_layout_fini(&plan->layout);
    coh_free(plan->operator_notes);
    coh_free(plan->object_notes);
    plan->operator_notes = NULL;
    plan->object_notes = NULL;
}

void coh_plan_destroy(coh_plan *plan)
{
    if (plan == NULL)
        return;
    coh_plan_drop_programs(plan);
    coh_pricer_fini(&plan->pricer);
    coh_free(plan->pins);
    coh_free(plan->optimizer_choices);
    coh_free(plan);
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
    COH_TRY(coh_plan_bound_writes(graph, &known, out_plan));
    coh_graph_close(graph);
    return COH_OK;
}

coh_status coh_plan_estimate(const coh_graph *graph, const coh_plan_options *options,
                             coh_plan_summary *out_summary)
{
    COH_NEED(graph);
    COH_NEED(options);
    COH_NEED_STRUCT(coh_plan_summary, out_summary);
    coh_plan_options known;
    coh_plan *plan = NULL;
    COH_TRY(coh_plan_options_read(options, &known));
    coh_status status = coh_plan_create_priced(graph, &known, &plan);
    if (status == COH_OK)
        status = coh_plan_bound_writes(graph, &known, &plan);
    if (status == COH_OK)
        status = coh_plan_summarize(plan, out_summary);
    coh_plan_destroy(plan);
    return status;
}
