/* Reads and checks plan options: each number alone, then those that must agree, such as replicas
 * and ranks. The idea: these checks need neither graph nor profile. Read cohobate/plan.h next. */
#include <float.h>
#include <inttypes.h>
#include <string.h>

#include "base/struct_bytes.h"
#include "cohobate/terms.h"
#include "planner/plan_make.h"
#include "planner/rank_axes.h"
#include "planner/rank_choice.h"

/* More earlier plans than anyone has: such a count was never set. */
#define EARLIER_MOST 65536

coh_status coh_plan_options_read(const coh_plan_options *options, coh_plan_options *out_known)
{
    COH_TRY(coh_struct_check("coh_plan_options", options, sizeof(*options),
                             _Alignof(coh_plan_options)));
    if (options->struct_bytes < sizeof(*options))
        coh_plan_options_init(out_known);
    coh_struct_read(options, out_known, sizeof(*out_known));
    COH_TRY(coh_check_integer("drive_count", out_known->drive_count, 0, COH_DISKS_MOST));
    COH_TRY(coh_fold_shape_check(&out_known->replicas, &out_known->replicas));
    COH_TRY(coh_fold_shape_check(&out_known->ranks, &out_known->ranks));
    return coh_check_number("link_bytes_per_s", out_known->link_bytes_per_s, 0, DBL_MAX);
}

coh_status coh_plan_mesh(const coh_plan_options *options, coh_mesh *out_mesh)
{
    const int32_t ranks = coh_fold_replicas(&options->ranks);
    const int32_t axis_count = coh_fold_factor_count(&options->ranks);
    const int32_t node = options->node_ranks > 0 ? options->node_ranks : ranks;
    const int32_t pair = options->pair_ranks > 0 ? options->pair_ranks : 1;
    const coh_levels levels = { { 1, pair, node, ranks } };
    coh_axis axes[COH_FOLD_FACTORS] = { { .name = "data0" },
                                        { .name = "data1" },
                                        { .name = "data2" } };
    for (int32_t i = 0; i < axis_count; i++)
        axes[i].rank_count = options->ranks.factors[i];
    if (pair > node || node > ranks || node % pair != 0 || ranks % node != 0)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%" PRId32 " ranks of a pair, %" PRId32 " of a node, %" PRId32
                        " in all: give numbers of which each divides the next",
                        pair, node, ranks);
    return coh_mesh_init(out_mesh, axes, axis_count, &levels);
}

static coh_status check_rank_pattern(const coh_plan_options *options)
{
    coh_rank_axes axes;
    if (memchr(options->rank_pattern, 0, sizeof(options->rank_pattern)) == NULL)
        return coh_fail(COH_ERR_ARGUMENT, "rank_pattern is longer than %d bytes",
                        COH_RANK_PATTERN_BYTES - 1);
    if (coh_rank_pattern_is_auto(options))
        return COH_OK;
    return coh_rank_axes_find(options, options->rank_pattern, &axes);
}

static coh_status check_wires(const coh_plan_options *options, int64_t ranks)
{
    const coh_wires *wires = &options->wires;
    COH_TRY(coh_check_integer("wires.weights", (int32_t)wires->weights, 0, COH_WIRE_COUNT - 1));
    COH_TRY(coh_check_integer("wires.gradients", (int32_t)wires->gradients, 0, COH_WIRE_COUNT - 1));
    if (wires->weights == COH_WIRE_STORED && wires->gradients == COH_WIRE_STORED)
        return COH_OK;
    if (ranks > 1 && (coh_rank_pattern_is_auto(options) || coh_ranks_divide(options)))
        return COH_OK;
    return coh_fail(COH_ERR_ARGUMENT,
                    "%s: only what ranks divide travels in another form than it is stored: give a "
                    "rank pattern that divides something, as zero3, or leave it out",
                    coh_term_text(COH_TERM_WIRE));
}

static coh_status check_reduce(const coh_plan_options *options, int64_t ranks)
{
    COH_TRY(coh_check_integer("reduce", options->reduce, 0, COH_REDUCE_COUNT - 1));
    if (options->reduce == COH_REDUCE_EXACT)
        return COH_OK;
    if (ranks == 1)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%s library: NCCL adds the gradients of several ranks, and there is one: "
                        "leave it out",
                        coh_term_text(COH_TERM_REDUCE));
    if (options->profile == NULL || options->profile->device_kind == COH_DEVICE_HOST)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%s library: NCCL adds between GPUs, and these ranks compute on the host: "
                        "leave it out, or give a GPU (%s)",
                        coh_term_text(COH_TERM_REDUCE), coh_term_text(COH_TERM_DEVICE));
    return COH_OK;
}

/* Checks the ranks of a plan that has some. */
static coh_status check_ranks(const coh_plan_options *options)
{
    coh_fold_shape all;
    coh_mesh mesh;
    COH_TRY(coh_check_integer("pair_ranks", options->pair_ranks, 0, COH_REPLICAS_MOST));
    COH_TRY(coh_check_integer("node_ranks", options->node_ranks, 0, COH_REPLICAS_MOST));
    COH_TRY(coh_fold_shape_join(&options->replicas, &options->ranks, &all));
    COH_TRY(coh_plan_mesh(options, &mesh));
    COH_TRY(check_rank_pattern(options));
    const int64_t ranks = coh_fold_replicas(&options->ranks);
    if (ranks > 1 && options->mode != COH_PLAN_TRAIN)
        return coh_fail(COH_ERR_ARGUMENT, "%" PRId64 " ranks: a forward-only plan has one", ranks);
    if (ranks > 1 && options->speculates)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%" PRId64 " ranks: updates speculate on one rank only: give another %s "
                        "(exact or previous), or one rank",
                        ranks, coh_term_text(COH_TERM_CLIP_MODE));
    COH_TRY(check_wires(options, ranks));
    COH_TRY(check_reduce(options, ranks));
    if (ranks * options->microbatch_count > 65536)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%" PRId64
                        " ranks with %d micro-batches each are not 1..65536 micro-batches: "
                        "raise %s, or lower %s",
                        ranks, options->microbatch_count, coh_term_text(COH_TERM_MICRO_BATCH),
                        coh_term_text(COH_TERM_BATCH));
    return COH_OK;
}

/* Checks that each replica has as many micro-batches. */
static coh_status check_replicas(const coh_plan_options *options)
{
    const int32_t replicas = coh_fold_replicas(&options->replicas);
    if (options->microbatch_count % replicas == 0)
        return COH_OK;
    return coh_fail(COH_ERR_ARGUMENT,
                    "%d micro-batches do not give each of %d replicas as many: change %s, %s or %s",
                    options->microbatch_count, replicas, coh_term_text(COH_TERM_BATCH),
                    coh_term_text(COH_TERM_MICRO_BATCH), coh_term_text(COH_TERM_REPLICAS));
}

coh_status coh_plan_check_options(const coh_plan_options *options)
{
    if (options->thread_count < 1 || options->thread_count > 1024)
        return coh_fail(COH_ERR_ARGUMENT, "%d threads are not 1..1024", options->thread_count);
    const struct {
        const char *what;
        int64_t value, least, most;
    } numbers[] = {
        { "mode", (int32_t)options->mode, COH_PLAN_TRAIN, COH_PLAN_INFER },
        { "recompute", (int32_t)options->recompute, COH_RECOMPUTE_AUTO, COH_RECOMPUTE_ALL },
        { "search", (int32_t)options->search, COH_SEARCH_USUAL, COH_SEARCH_THOROUGH },
        { "deferred_update", options->deferred_update, 0, 1 },
        { "speculates", options->speculates, 0, 1 },

        { "f32_gradients", options->f32_gradients, 0, 1 },
        { "uncalibrated", options->uncalibrated, 0, 1 },
        { "emulate_host", options->emulate_host, 0, 1 },
        { "bf16_is_fast", options->bf16_is_fast, 0, 1 },
        { "pin_count", options->pin_count, 0, COH_PINS_MOST },
        { "earlier_count", options->earlier_count, 0, EARLIER_MOST },
        { "optimizer_choice_count", options->optimizer_choice_count, 0,
          COH_OPTIMIZER_CHOICES_MOST },
    };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        COH_TRY(coh_check_integer(numbers[i].what, numbers[i].value, numbers[i].least,
                                  numbers[i].most));
    if (options->speculates && !options->deferred_update)
        return coh_fail(COH_ERR_ARGUMENT,
                        "speculates is 1 with deferred_update 0: updates in backward that nothing "
                        "clips are never taken back; set deferred_update to 1");
    if (options->optimizer_choice_count > 0 && options->optimizer_choices == NULL)
        return coh_fail(COH_ERR_ARGUMENT, "%d choices of optimizers at NULL: give their array",
                        options->optimizer_choice_count);
    if (options->pin_count > 0 && options->pins == NULL)
        return coh_fail(COH_ERR_ARGUMENT, "%d pins at NULL: give their array", options->pin_count);
    if (options->earlier_count > 0 && options->earlier == NULL)
        return coh_fail(COH_ERR_ARGUMENT, "%d earlier plans at NULL: give their array",
                        options->earlier_count);
    for (int32_t i = 0; i < options->earlier_count; i++)
        if (options->earlier[i] == NULL)
            return coh_fail(COH_ERR_ARGUMENT, "earlier plan %d is NULL", i);
    if (memchr(options->kernel_path, '\0', sizeof(options->kernel_path)) == NULL)
        return coh_fail(COH_ERR_ARGUMENT, "kernel_path has no terminator: call "
                                          "coh_plan_options_init");
    if (options->microbatch_count < 1)
        return coh_fail(COH_ERR_ARGUMENT, "microbatch_count is %d: give a number from 1 to 65536",
                        options->microbatch_count);
    if (options->microbatch_count > 65536)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%d micro-batches are not 1..65536: raise %s, or lower %s",
                        options->microbatch_count, coh_term_text(COH_TERM_MICRO_BATCH),
                        coh_term_text(COH_TERM_BATCH));
    if (options->sweep_order < COH_SWEEP_MICROBATCH || options->sweep_order > COH_SWEEP_SAME_BITS)
        return coh_fail(COH_ERR_ARGUMENT, "sweep order %d is none", (int)options->sweep_order);
    if (options->mode == COH_PLAN_INFER && options->microbatch_count != 1)
        return coh_fail(COH_ERR_ARGUMENT, "a forward-only plan runs one micro-batch at a time");
    COH_TRY(check_ranks(options));
    return check_replicas(options);
}
