/* Rebuilds the plan that a plan.json describes from its decisions, and compares it with every other
 * member of the file. Parsing is in plan_file.c; building in plan.c (plan_make.h). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/plural.h"
#include "base/refusal.h"
#include "cohobate/terms.h"
#include "planner/fingerprint.h"
#include "planner/optimizers.h"
#include "planner/plan_file.h"
#include "planner/plan_make.h"
#include "planner/profile_file.h"

/* Compares the optimizers of all trained parameters. */
static coh_status check_optimizers_agree(const char *path, const coh_plan_options *made,
                                         const coh_graph *graph, const coh_plan_options *options)
{
    for (size_t i = 0; i < graph->parameter_count; i++) {
        const coh_optimizer *of_file = coh_optimizer_of(graph, made, i);
        const coh_optimizer *given = coh_optimizer_of(graph, options, i);
        if (!graph->parameters[i].frozen && of_file == NULL)
            return coh_fail(COH_ERR_ARGUMENT,
                            "%s names an optimizer that is not registered: register it first",
                            path);
        if (!graph->parameters[i].frozen && of_file != given)
            return coh_fail(COH_ERR_ARGUMENT,
                            "%s trains parameter %s with %s, and %s is given: give the optimizers "
                            "of the file",
                            path, graph->parameters[i].name, of_file->name,
                            given != NULL ? given->name : "none that is registered");
    }
    return COH_OK;
}

static coh_status refuse_room(const char *path, coh_tier tier, int is_gpu, uint64_t room,
                              uint64_t operand)
{
    coh_refusal refusal = coh_refusal_bytes(COH_REFUSAL_PLAN_FILE, tier, room, operand);
    refusal.is_gpu = is_gpu;
    refusal.is_proven = 1;
    snprintf(refusal.path, sizeof(refusal.path), "%s", path);
    coh_refusal_raise(&refusal, tier, operand);
    coh_refusal_add(&refusal, COH_CHANGE_PLAN_AGAIN, 0);
    return coh_refuse(&refusal);
}

static coh_status refuse_device_kind(const char *path, const coh_plan_text *file)
{
    if (file->device_kind == COH_DEVICE_HOST)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%s is for a host device, as the profile %s has it: leave %s out", path,
                        file->profile_name, coh_term_text(COH_TERM_PROFILE));
    return coh_fail(COH_ERR_ARGUMENT,
                    "%s is for a GPU, as the profile %s has it: give that %s, or to run it %s"
                    " cuda:0",
                    path, file->profile_name, coh_term_text(COH_TERM_PROFILE),
                    coh_term_text(COH_TERM_DEVICE));
}

static int is_same_shape(const coh_fold_shape *a, const coh_fold_shape *b)
{
    return memcmp(a->factors, b->factors, sizeof(a->factors)) == 0;
}

/* Compares the shapes in which gradients are added: of a rank's replicas, then of ranks. The
 * sentence has both as one shape, as a user gives it. */
static coh_status check_shapes_agree(const char *path, const coh_plan_options *made,
                                     const coh_plan_options *given)
{
    char inner[COH_FOLD_TEXT_BYTES], outer[COH_FOLD_TEXT_BYTES];
    const int has_inner = coh_fold_shape_replicas(&made->replicas) > 1;
    const int has_outer = coh_fold_shape_replicas(&made->ranks) > 1;
    if (is_same_shape(&made->replicas, &given->replicas) &&
        is_same_shape(&made->ranks, &given->ranks))
        return COH_OK;
    COH_TRY(coh_fold_shape_write(&made->replicas, inner));
    COH_TRY(coh_fold_shape_write(&made->ranks, outer));
    return coh_fail(COH_ERR_ARGUMENT, "%s is for %s %s%s%s: give the same", path,
                    coh_term_text(COH_TERM_REPLICAS), has_inner || !has_outer ? inner : "",
                    has_inner && has_outer ? "x" : "", has_outer ? outer : "");
}

static coh_status check_wires_agree(const char *path, const coh_wires *made, const coh_wires *given)
{
    char text[COH_WIRES_TEXT_BYTES];
    if (made->weights == given->weights && made->gradients == given->gradients)
        return COH_OK;
    COH_TRY(coh_wires_write(made, text));
    return coh_fail(COH_ERR_ARGUMENT, "%s is for %s %s: give the same", path,
                    coh_term_text(COH_TERM_WIRE), text);
}

static int32_t pair_of(const coh_plan_options *options)
{
    return options->pair_ranks > 0 ? options->pair_ranks : 1;
}

static int32_t node_of(const coh_plan_options *options)
{
    return options->node_ranks > 0 ? options->node_ranks : coh_fold_shape_replicas(&options->ranks);
}

static coh_status check_ranks_agree(const char *path, const coh_plan_options *made,
                                    const coh_plan_options *given)
{
    COH_TRY(check_shapes_agree(path, made, given));
    COH_TRY(check_wires_agree(path, &made->wires, &given->wires));
    if (made->reduce != given->reduce)
        return coh_fail(COH_ERR_ARGUMENT, "%s is for %s %s: give the same", path,
                        coh_term_text(COH_TERM_REDUCE), coh_reduce_name(made->reduce));
    const int32_t pair = pair_of(made), node = node_of(made);
    if (pair == pair_of(given) && node == node_of(given))
        return COH_OK;
    return coh_fail(COH_ERR_ARGUMENT, "%s is for pairs of %d and nodes of %d ranks: give the same",
                    path, pair, node);
}

/* Compares what a plan is for, the number of ranks first: micro-batches are counted by rank. */
static coh_status check_steps_agree(const char *path, const coh_plan_options *made,
                                    const coh_plan_options *given)
{
    const int32_t ranks = coh_fold_shape_replicas(&made->ranks),
                  our_ranks = coh_fold_shape_replicas(&given->ranks);
    const char *clip_mode = coh_term_text(COH_TERM_CLIP_MODE);
    if (given->mode != made->mode)
        return coh_fail(COH_ERR_ARGUMENT, "%s is for %s: plan again", path,
                        made->mode == COH_PLAN_TRAIN ? "training" : "inference");
    if (ranks != our_ranks)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%s is for %" PRId32 " rank%s, and %" PRId32
                        " %s given: give the same number, or plan again",
                        path, ranks, COH_PLURAL_S(ranks), our_ranks, our_ranks == 1 ? "is" : "are");
    if (made->deferred_update && !given->deferred_update)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%s is for %s %s, and %s previous or no clipping is given: give the same, "
                        "or plan again",
                        path, clip_mode, made->speculates ? "speculate" : "exact", clip_mode);
    if (given->deferred_update && !made->deferred_update)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%s is for %s previous or no clipping, and %s %s is given: give the same, "
                        "or plan again",
                        path, clip_mode, clip_mode, given->speculates ? "speculate" : "exact");
    if (given->microbatch_count != made->microbatch_count)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%s is for %" PRId32 " micro-batch%s a step%s, and %" PRId32
                        " %s given: give %s and %s of the plan, or plan again",
                        path, made->microbatch_count, made->microbatch_count == 1 ? "" : "es",
                        ranks > 1 ? " of each rank" : "", given->microbatch_count,
                        given->microbatch_count == 1 ? "is" : "are", coh_term_text(COH_TERM_BATCH),
                        coh_term_text(COH_TERM_MICRO_BATCH));
    return COH_OK;
}

/* Checks that the file is for this graph with these options. */
static coh_status check_options_agree(const char *path, const coh_plan_text *file,
                                      const coh_graph *graph, const coh_plan_options *options)
{
    const coh_plan_options *made = &file->options;
    if (file->builder != COH_PLAN_BUILDER_VERSION)
        return coh_fail(COH_ERR_CORRUPT,
                        "%s was written by planner version %d, this is %d: plan again", path,
                        file->builder, COH_PLAN_BUILDER_VERSION);
    COH_TRY(check_steps_agree(path, made, options));
    if (file->device_kind != (options->profile ? options->profile->device_kind : COH_DEVICE_HOST))
        return refuse_device_kind(path, file);
    if (options->f32_gradients != made->f32_gradients)
        return coh_fail(COH_ERR_ARGUMENT, "%s is for gradients in %s: give %s %s", path,
                        made->f32_gradients ? "f32" : "bf16", coh_term_text(COH_TERM_GRADIENTS),
                        made->f32_gradients ? "f32" : "bf16");
    COH_TRY(check_ranks_agree(path, made, options));
    if (made->mode == COH_PLAN_TRAIN)
        COH_TRY(check_optimizers_agree(path, made, graph, options));
    if (coh_graph_has_atomics(graph) != file->atomics)
        return coh_fail(COH_ERR_ARGUMENT, "%s is for attention %s atomics: give %s %s", path,
                        file->atomics ? "by" : "without", coh_term_text(COH_TERM_ATOMICS),
                        file->atomics ? "on" : "off");
    if (options->sweep_order < COH_SWEEP_AUTO && options->sweep_order != made->sweep_order &&
        coh_replica_microbatches(options) > 1)
        return coh_fail(COH_ERR_ARGUMENT, "%s sweeps by %s: give %s %s", path,
                        coh_sweep_order_name(made->sweep_order),
                        coh_term_text(COH_TERM_SWEEP_ORDER),
                        coh_sweep_order_name(made->sweep_order));
    if (options->device_memory_bytes < file->peak_bytes[COH_TIER_DEVICE])
        return refuse_room(path, COH_TIER_DEVICE, file->device_kind != COH_DEVICE_HOST,
                           options->device_memory_bytes, file->peak_bytes[COH_TIER_DEVICE]);
    return COH_OK;
}

/* The options with the kernels that the file was made with: other kernels may run it, with other
 * result bits. */
static coh_plan_options options_as_made(const coh_plan_text *file, const coh_plan *plan)
{
    coh_plan_options options = plan->options;
    if (file->names_kernels)
        memcpy(options.kernel_path, file->options.kernel_path, sizeof(options.kernel_path));
    return options;
}

/* Checks that the rebuilt plan is the one that was written. */
static coh_status check_program_agrees(const char *path, const coh_plan_text *file,
                                       const coh_plan *plan)
{
    uint64_t slots_hash = 0, profile_hash = 0;
    const coh_plan_options made = options_as_made(file, plan);
    const int is_same = coh_numeric_fingerprint_is(plan->graph, &made, file->numeric_fingerprint);
    COH_TRY(coh_profile_hash(&plan->profile, &profile_hash));
    if (plan->program_hash != file->program_hash && profile_hash != file->profile_hash && is_same)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%s was made with the profile %s (hash %016" PRIx64
                        "), and %s gives another program: give that %s, or plan again",
                        path, file->profile_name, file->profile_hash, plan->profile.name,
                        coh_term_text(COH_TERM_PROFILE));
    if (plan->program_hash != file->program_hash)
        return coh_fail(COH_ERR_CORRUPT,
                        "%s names program %016" PRIx64 ", this model and batch give %016" PRIx64
                        ": it was made for another run; plan again",
                        path, file->program_hash, plan->program_hash);
    if (!is_same)
        return coh_fail(COH_ERR_CORRUPT,
                        "%s: its numeric_fingerprint is %016" PRIx64
                        ", this model and batch with its kernels give %016" PRIx64
                        ": it was made for another run, or edited; plan again",
                        path, file->numeric_fingerprint,
                        coh_numeric_fingerprint(plan->graph, &made));
    for (uint32_t i = 0; i < plan->layout.resident_count; i++) {
        const coh_resident *r = &plan->layout.residents[i];
        slots_hash = coh_plan_fold_slot(slots_hash, r->chunk, r->tier, r->offset);
    }
    if (slots_hash != file->slots_hash)
        return coh_fail(COH_ERR_CORRUPT,
                        "%s: its slots are not those of its program: it was edited; plan again",
                        path);
    return COH_OK;
}

/* Compares predictions. The bound and the smallest budget depend on the search and its limits, so
 * they are not compared. */
static coh_status check_predictions(const char *path, const coh_plan_text *file,
                                    const coh_plan *plan)
{
    uint64_t profile_hash = 0;
    COH_TRY(coh_profile_hash(&plan->profile, &profile_hash));
    const uint64_t step_ns = plan->simulations[COH_PROGRAM_BODY].period_ns;
    const uint64_t *arena = plan->layout.arena_bytes;
    const struct {
        const char *key;
        uint64_t said, found;
    } figures[] = {
        { "peak_device_bytes", file->peak_bytes[COH_TIER_DEVICE], arena[COH_TIER_DEVICE] },
        { "peak_host_bytes", file->peak_bytes[COH_TIER_HOST], arena[COH_TIER_HOST] },
        { "disk_bytes", file->peak_bytes[COH_TIER_DISK], arena[COH_TIER_DISK] },
        { "lines", file->instruction_count, plan->programs[COH_PROGRAM_BODY].instruction_count },
        { "step_ns", file->step_ns, profile_hash == file->profile_hash ? step_ns : file->step_ns },
    };
    for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++)
        if (figures[i].said != figures[i].found)
            return coh_fail(COH_ERR_CORRUPT,
                            "%s: its predictions have %s %" PRIu64 ", its program has %" PRIu64
                            ": it was edited; plan again",
                            path, figures[i].key, figures[i].said, figures[i].found);
    return COH_OK;
}

static coh_status check_operators(const char *path, const coh_plan_text *file, const coh_plan *plan)
{
    const size_t count = file->operator_count;
    if (count != (size_t)coh_plan_operator_count(plan))
        return coh_fail(COH_ERR_CORRUPT,
                        "%s: it lists %zu operators, its program has %d: it was edited; plan again",
                        path, count, coh_plan_operator_count(plan));
    for (size_t i = 0; i < count; i++) {
        const coh_plan_words *said = &file->operators[i];
        coh_plan_operator o = { .struct_bytes = sizeof(o) };
        COH_TRY(coh_plan_operator_at(plan, (int32_t)i, &o));
        const char *const facts[][3] = { { "name", said->name, o.name },
                                         { "activations", said->activations, o.activations },
                                         { "parameters", said->parameters, o.parameters },
                                         { "states", said->states, o.states },
                                         { "pattern", said->pattern, o.pattern } };
        for (size_t k = 0; k < sizeof(facts) / sizeof(facts[0]); k++)
            if (strcmp(facts[k][1], facts[k][2]) != 0)
                return coh_fail(COH_ERR_CORRUPT,
                                "%s: %s of operator %zu is \"%.80s\", in its program \"%s\": it "
                                "was edited; plan again",
                                path, facts[k][0], i, facts[k][1], facts[k][2]);
    }
    return COH_OK;
}

/* Checks that the far tiers that the caller gives can hold the plan. A tier of 0 bytes is as in the
 * file. */
static coh_status check_far_room(const char *path, const coh_plan_options *options,
                                 const coh_plan *plan)
{
    const uint64_t room[COH_TIER_COUNT] = { 0, options->host_memory_bytes, options->disk_bytes };
    const int is_gpu = plan->profile.device_kind != COH_DEVICE_HOST;
    for (int tier = COH_TIER_HOST; tier <= COH_TIER_DISK; tier++) {
        const uint64_t operand = plan->layout.arena_bytes[tier];
        if (room[tier] > 0 && operand > room[tier])
            return refuse_room(path, (coh_tier)tier, is_gpu, room[tier], operand);
    }
    return COH_OK;
}

/* Checks the limit of writes per day. */
static coh_status check_writes(const char *path, const coh_plan_options *options,
                               const coh_plan *plan)
{
    const uint64_t limit = options->disk_write_bytes_per_day;
    const double day = coh_plan_written_per_day(plan);
    if (limit == 0 || day <= (double)limit)
        return COH_OK;
    coh_refusal refusal =
        coh_refusal_bytes(COH_REFUSAL_WRITES, COH_TIER_DISK, limit, (uint64_t)day);
    refusal.is_proven = 1;
    snprintf(refusal.path, sizeof(refusal.path), "%s", path);
    coh_refusal_add(&refusal, COH_CHANGE_RAISE_WRITES, 0);
    coh_refusal_add(&refusal, COH_CHANGE_PLAN_AGAIN, 0);
    return coh_refuse(&refusal);
}

/* Finishes the plan. A rejection by the verifier, or by a check of the builder, is the file's
 * fault: the planner writes no such decisions. */
static coh_status finish(const char *path, const coh_plan_text *file, coh_plan *plan)
{
    coh_status status = coh_plan_finish(plan);
    const coh_plan_options made = options_as_made(file, plan);
    if (status == COH_ERR_FULL &&
        !coh_numeric_fingerprint_is(plan->graph, &made, file->numeric_fingerprint))
        return coh_fail(COH_ERR_CORRUPT, "%s was made for another model or batch; plan again",
                        path);
    if (status == COH_ERR_CORRUPT || status == COH_ERR_INTERNAL)
        return coh_fail_prefix(
            COH_ERR_CORRUPT,
            "%s: its decisions give a program that does not hold (it was edited, "
            "or made for another run; plan again)",
            path);
    return status == COH_ERR_FULL ? coh_fail_prefix(status, "%s", path) : status;
}

coh_status coh_plan_rebuild(const coh_graph *graph, const coh_plan_options *options,
                            const char *path, const coh_plan_text *file, coh_plan **out_plan)
{
    *out_plan = NULL;
    coh_plan_options merged = *options;
    memcpy(merged.rank_pattern, file->options.rank_pattern, sizeof(merged.rank_pattern));
    merged.pins = file->options.pins;
    merged.pin_count = file->options.pin_count;
    COH_TRY(coh_plan_check_options(&merged));
    COH_TRY(coh_optimizers_check(graph, &merged));
    merged.f32_gradients = options->f32_gradients && coh_graph_trains_bf16(graph);
    COH_TRY(check_options_agree(path, file, graph, &merged));
    merged.host_memory_bytes = file->options.host_memory_bytes;
    merged.emulate_host = file->device_kind == COH_DEVICE_HOST;
    merged.disk_bytes = file->options.disk_bytes;
    merged.link_bytes_per_s = file->options.link_bytes_per_s;
    merged.drive_count = file->options.drive_count;
    merged.speculates = file->options.speculates;
    merged.sweep_order = file->options.sweep_order;
    COH_TRY(coh_plan_open(graph, &merged, out_plan));
    coh_plan *plan = *out_plan;
    plan->decisions = file->decisions;
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        if (file->depths[lane] > 0)
            plan->profile.link[lane].depth = file->depths[lane];
    COH_TRY(finish(path, file, plan));
    COH_TRY(check_program_agrees(path, file, plan));
    COH_TRY(check_predictions(path, file, plan));
    COH_TRY(check_operators(path, file, plan));
    COH_TRY(check_far_room(path, options, plan));
    return check_writes(path, options, plan);
}
