/* Holds a plan to a limit of disk writes per day. The idea: the search's own limit (wear_bytes) is
 * per step, the plan determines the steps per day, and a plan that writes less may be faster, so
 * plans are made until one keeps to the limit. Interface: plan_make.h. */
#include "base/refusal.h"
#include "planner/plan_make.h"

#define DAY_NS 86400e9

/* Plans made until one keeps to the limit. */
enum { TRIES = 4 };

static double step_ns(const coh_plan *plan)
{
    return (double)plan->simulations[COH_PROGRAM_BODY].period_ns;
}

double coh_plan_written_per_day(const coh_plan *plan)
{
    const double ns = step_ns(plan);
    const uint64_t bytes = plan->simulations[COH_PROGRAM_BODY].link_bytes[COH_LANE_WRITE];
    return ns > 0 ? (double)bytes * DAY_NS / ns : 0;
}

/* `least`: the lowest limit for which a plan was found; 0: not known. */
static coh_status refuse(const coh_plan_options *options, double day, double least)
{
    const uint64_t limit = options->disk_write_bytes_per_day, written = (uint64_t)day;
    coh_refusal refusal = coh_refusal_bytes(COH_REFUSAL_WRITES, COH_TIER_DISK, limit, written);
    refusal.microbatch_count = options->microbatch_count;
    refusal.is_gpu = options->profile != NULL && options->profile->device_kind != COH_DEVICE_HOST;
    coh_refusal_add(&refusal, COH_CHANGE_RAISE_WRITES, (uint64_t)least);
    coh_refusal_raise(&refusal, COH_TIER_DEVICE, 0);
    if (options->host_memory_bytes > 0)
        coh_refusal_raise(&refusal, COH_TIER_HOST, 0);
    coh_refusal_add(&refusal, COH_CHANGE_RAISE_BATCH, 0);
    return coh_refuse(&refusal);
}

/* No plan writes as little as the limit. Finds the lowest limit with a plan, per day at the step
 * time `ns`, and names it if it is lower than `day`. */
static coh_status refuse_searched(const coh_graph *graph, const coh_plan_options *options,
                                  double day, double ns)
{
    coh_plan_options each = *options;
    coh_plan *plan = NULL;
    if (each.disk_bytes == 0)
        each.disk_bytes = each.spare_disk_bytes;
    COH_TRY(coh_plan_least_written(graph, &each, &each.wear_bytes));
    const double least = (double)each.wear_bytes * DAY_NS / ns;
    if (least == 0 || least >= day)
        return refuse(options, day, day);
    const coh_status status = coh_plan_create_unbounded(graph, &each, &plan);
    coh_plan_destroy(plan);
    if (status != COH_OK && status != COH_ERR_FULL)
        return status;
    return refuse(options, day, status == COH_OK ? least : 0);
}

/* Makes a plan that writes less than `*plan`, and replaces it. */
static coh_status write_less(const coh_graph *graph, const coh_plan_options *options,
                             coh_plan **plan)
{
    const double day = coh_plan_written_per_day(*plan), ns = step_ns(*plan);
    coh_plan_options each = *options;
    coh_plan *next = NULL;
    const uint64_t most = (uint64_t)((double)options->disk_write_bytes_per_day * ns / DAY_NS);
    if (each.wear_bytes == 0 || most < each.wear_bytes)
        each.wear_bytes = most;
    const coh_status status =
        most > 0 ? coh_plan_create_unbounded(graph, &each, &next) : COH_ERR_FULL;
    if (status == COH_ERR_FULL)
        return refuse_searched(graph, options, day, ns);
    COH_TRY(status);
    coh_plan_destroy(*plan);
    *plan = next;
    return COH_OK;
}

coh_status coh_plan_bound_writes(const coh_graph *graph, const coh_plan_options *options,
                                 coh_plan **plan)
{
    const double limit = (double)options->disk_write_bytes_per_day;
    coh_status status = COH_OK;
    if (limit == 0)
        return COH_OK;
    for (int i = 0; i < TRIES && status == COH_OK; i++) {
        if (coh_plan_written_per_day(*plan) <= limit)
            return COH_OK;
        status = write_less(graph, options, plan);
    }
    if (status == COH_OK && coh_plan_written_per_day(*plan) > limit)
        status = refuse(options, coh_plan_written_per_day(*plan), 0);
    if (status == COH_OK)
        return COH_OK;
    coh_plan_destroy(*plan);
    *plan = NULL;
    return status;
}
