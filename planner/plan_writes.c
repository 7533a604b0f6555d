/* Holds a plan to a limit of disk writes per day. The idea: the search's own limit (wear_bytes) is
 * per step, the plan determines the steps per day, and a plan that writes less may be faster, so
 * plans are made until one keeps to the limit. Interface: plan_make.h. */
#include <math.h>

#include "base/bytes.h"
#include "base/refusal.h"
#include "planner/attempt.h"
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

/* The search for a plan that keeps to a limit, from the fastest one. */
typedef struct writes {
    const coh_graph *graph;
    const coh_plan_options *options;
    double day, ns;     /* of the fastest plan: bytes written a day, and its step */
    double nearest_day; /* the fewest bytes a day of all plans that were made */
    uint64_t least;     /* the fewest bytes that a step was found to write; 0: not known */
} writes;

/* Makes a plan whose steps write at most `most` bytes. Fails: COH_ERR_FULL: none was found, and
 * w->least is the fewest bytes that one writes, if that is known. */
static coh_status plan_within(writes *w, uint64_t most, coh_plan **out_plan)
{
    coh_plan_options each = *w->options;
    coh_refusal refusal = { .struct_bytes = sizeof(refusal) };
    each.wear_bytes = each.wear_bytes == 0 || most < each.wear_bytes ? most : each.wear_bytes;
    each.wear_bytes += most == 0; /* for the least that is written */
    const coh_status status = coh_plan_create_unbounded(w->graph, &each, out_plan);
    if (status == COH_ERR_FULL && coh_last_refusal(&refusal))
        w->least = coh_refusal_worn_bytes(&refusal);
    return status;
}

/* Makes plans until one writes at most `limit` bytes a day: at the pace of the fastest plan, then
 * at that of the last one made. If no step writes so few bytes, one that writes the fewest may be
 * slow enough. Fails: COH_ERR_FULL: none was found. */
static coh_status hold(writes *w, double limit, coh_plan **out_plan)
{
    double ns = w->ns;
    int is_least = 0;
    *out_plan = NULL;
    w->least = 0;
    for (int i = 0; i < TRIES && !is_least; i++) {
        const uint64_t most = (uint64_t)(limit * ns / DAY_NS);
        coh_plan_destroy(*out_plan);
        *out_plan = NULL;
        coh_status status = plan_within(w, most, out_plan);
        is_least = status == COH_ERR_FULL && w->least > most;
        COH_TRY(is_least ? plan_within(w, w->least, out_plan) : status);
        ns = step_ns(*out_plan);
        const double day = coh_plan_written_per_day(*out_plan);
        w->nearest_day = fmin(w->nearest_day, day);
        if (day <= limit)
            return COH_OK;
    }
    coh_plan_destroy(*out_plan);
    *out_plan = NULL;
    return COH_ERR_FULL;
}

static coh_status refuse(const writes *w, double enough)
{
    const coh_plan_options *o = w->options;
    coh_refusal refusal = coh_refusal_bytes(COH_REFUSAL_WRITES, COH_TIER_DISK,
                                            o->disk_write_bytes_per_day, (uint64_t)w->day);
    refusal.microbatch_count = o->microbatch_count;
    refusal.is_gpu = o->profile != NULL && o->profile->device_kind != COH_DEVICE_HOST;
    coh_refusal_add(&refusal, COH_CHANGE_RAISE_WRITES, (uint64_t)ceil(enough));
    coh_refusal_raise(&refusal, COH_TIER_DEVICE, 0);
    if (o->host_memory_bytes > 0)
        coh_refusal_raise(&refusal, COH_TIER_HOST, 0);
    coh_refusal_add(&refusal, COH_CHANGE_RAISE_BATCH, 0);
    return coh_refuse(&refusal);
}

/* A limit as it is printed, and typed. */
static double printed(double day)
{
    return (double)coh_daily_enough((uint64_t)ceil(day));
}

/* Finds out what a plan for the limit `day`, as printed, writes a day. Fails: as hold. */
static coh_status find_written(writes *w, double day, double *out_written)
{
    coh_plan *plan = NULL;
    const coh_status status = printed(day) < w->day ? hold(w, printed(day), &plan) : COH_ERR_FULL;
    *out_written = status == COH_OK ? coh_plan_written_per_day(plan) : 0;
    coh_plan_destroy(plan);
    return status;
}

/* Refuses the limit, and names one that is accepted. It rises from the fewest bytes that a step was
 * found to write, at the pace of the fastest plan, over what a plan that was made writes, to what
 * the fastest plan writes; then it falls as long as the plan for it writes less. */
static coh_status refuse_searched(writes *w)
{
    double lower = w->nearest_day, tried = 0, enough = 0, written = 0;
    if (w->least > 0)
        lower = fmin(lower, (double)w->least * DAY_NS / w->ns);
    while (enough == 0 && lower > tried && lower < w->day) {
        tried = printed(lower);
        const coh_status status = find_written(w, lower, &written);
        if (status != COH_OK && status != COH_ERR_FULL)
            return status;
        enough = status == COH_OK ? lower : 0;
        lower = w->nearest_day;
    }
    for (int i = 0; i < TRIES && enough > 0 && printed(written) < printed(enough); i++) {
        const double next = written;
        const coh_status status = find_written(w, next, &written);
        if (status == COH_ERR_FULL)
            break;
        COH_TRY(status);
        enough = next;
    }
    return refuse(w, enough > 0 ? enough : w->day);
}

coh_status coh_plan_bound_writes(const coh_graph *graph, const coh_plan_options *options,
                                 coh_plan **plan)
{
    const double limit = (double)options->disk_write_bytes_per_day;
    const double day = coh_plan_written_per_day(*plan);
    writes w = {
        .graph = graph, .options = options, .day = day, .ns = step_ns(*plan), .nearest_day = day
    };
    coh_plan *less = NULL;
    if (limit == 0 || day <= limit)
        return COH_OK;
    coh_plan_destroy(*plan); /* searched without its programs in memory */
    *plan = NULL;
    const coh_status status = hold(&w, limit, &less);
    *plan = less;
    return status == COH_ERR_FULL ? refuse_searched(&w) : status;
}
