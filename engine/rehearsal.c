/* Rehearses a plan: runs all its programs on the executor with nothing behind the addresses, and
 * compares with the plan. Next: phantom.h, step.h. */
#include <inttypes.h>
#include <math.h>

#include "base/struct_bytes.h"
#include "cohobate/engine.h"
#include "engine/phantom.h"
#include "engine/step.h"

/* The part of a step's predicted time by which the rehearsed one may differ. */
#define TIME_TOLERANCE 0.02
enum { ENDS = 4 }; /* of runs that are remembered */

typedef struct rehearsal {
    const coh_plan *plan;
    coh_phantom *phantom;
    coh_ledger *ledger;
    coh_step *step;
    coh_rehearsal facts;
} rehearsal;

static coh_status open_all(rehearsal *r)
{
    coh_engine_options options;
    coh_engine_options_init(&options);
    options.disk_folder = "."; /* named only: the store opens no file */
    COH_TRY(coh_phantom_create(r->plan, &r->phantom));
    COH_TRY(coh_ledger_create(&r->ledger));
    const coh_step_config config = { .plan = r->plan,
                                     .options = &options,
                                     .device_ops = &coh_device_host,
                                     .store_ops = &coh_store_phantom,
                                     .phantom = r->phantom,
                                     .ledger = r->ledger };
    return coh_step_create(&config, &r->step);
}

static void close_all(rehearsal *r)
{
    coh_step_destroy(r->step);
    coh_ledger_destroy(r->ledger);
    coh_phantom_destroy(r->phantom);
}

/* Compares what `count` runs of a program did with its tables. */
static coh_status compare_work(const rehearsal *r, coh_program_kind kind, uint64_t count,
                               const coh_phantom_work *before, const coh_phantom_work *after)
{
    const coh_program *program = &r->plan->programs[kind];
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        const uint64_t executed = after->executed[lane] - before->executed[lane];
        const uint64_t bytes = after->bytes[lane] - before->bytes[lane];
        const uint64_t planned = count * r->plan->simulations[kind].link_bytes[lane];
        if (executed != count * program->lane_length[lane])
            return coh_fail(COH_ERR_INTERNAL,
                            "%" PRIu64 " runs of program '%s' execute %" PRIu64
                            " instructions on lane %s, the plan has %" PRIu64
                            " (please report this)",
                            count, coh_program_kind_name(kind), executed,
                            coh_lane_name((coh_lane)lane), count * program->lane_length[lane]);
        if (bytes != planned)
            return coh_fail(COH_ERR_INTERNAL,
                            "%" PRIu64 " runs of program '%s' move %" PRIu64
                            " bytes on lane %s, the plan says %" PRIu64 " (please report this)",
                            count, coh_program_kind_name(kind), bytes,
                            coh_lane_name((coh_lane)lane), planned);
    }
    return COH_OK;
}

/* Runs a program `count` times, as a training loop does: at most two at once. `ends`: the
 * clock at the end of run n, at n % ENDS. */
static coh_status run(rehearsal *r, coh_program_kind kind, uint64_t count,
                      coh_phantom_time ends[ENDS])
{
    coh_phantom_work before, after;
    uint64_t ticket = 0;
    coh_phantom_read(r->phantom, &before);
    for (uint64_t n = 1; n <= count; n++) {
        COH_TRY(coh_step_submit(r->step, kind, &(coh_step_feed){ 0 }, &ticket));
        if (n == 1)
            continue;
        COH_TRY(coh_step_finish(r->step, ticket - 1));
        ends[(n - 1) % ENDS] = coh_phantom_clock(r->phantom);
    }
    COH_TRY(coh_step_quiet(r->step));
    coh_phantom_read(r->phantom, &after);
    r->facts.program_count++;
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        r->facts.executed_count += after.executed[lane] - before.executed[lane];
        if (kind == COH_PROGRAM_BODY)
            r->facts.link_bytes[lane] = (after.bytes[lane] - before.bytes[lane]) / count;
    }
    return compare_work(r, kind, count, &before, &after);
}

/* Runs the steps, and takes the mean of the last two that another one follows. */
static coh_status run_steps(rehearsal *r, uint64_t count)
{
    coh_phantom_time ends[ENDS] = { 0 };
    COH_TRY(run(r, COH_PROGRAM_BODY, count, ends));
    const coh_phantom_time *last = &ends[(count - 1) % ENDS], *from = &ends[(count - 3) % ENDS];
    r->facts.step_ns = coh_whole_ns((last->now_ns - from->now_ns) / 2);
    r->facts.idle_ns = coh_whole_ns((last->idle_ns - from->idle_ns) / 2);
    return COH_OK;
}

static coh_status compare_peaks(rehearsal *r)
{
    coh_phantom_work work;
    coh_ledger_sums sums;
    coh_phantom_read(r->phantom, &work);
    for (int tier = 0; tier < COH_TIER_COUNT; tier++) {
        const uint64_t planned = r->plan->layout.arena_bytes[tier];
        uint64_t *peak = &r->facts.peak_bytes[tier];
        if (tier != COH_TIER_DISK)
            coh_ledger_read(r->ledger, (coh_tier)tier, &sums);
        *peak = tier == COH_TIER_DISK ? work.file_bytes : sums.end_peak_bytes;
        if (*peak != planned)
            return coh_fail(COH_ERR_INTERNAL,
                            "the rehearsal needs %" PRIu64 " bytes of the %s tier, the plan says "
                            "%" PRIu64 " (please report this)",
                            *peak, coh_tier_name((coh_tier)tier), planned);
    }
    return COH_OK;
}

/* Compares a time of a step with the plan's. */
static coh_status compare_time(const rehearsal *r, const char *what, uint64_t found_ns,
                               uint64_t planned_ns)
{
    const double found = (double)found_ns, planned = (double)planned_ns;
    if (fabs(found - planned) <= TIME_TOLERANCE * (double)r->facts.predicted_step_ns)
        return COH_OK;
    return coh_fail(
        COH_ERR_INTERNAL,
        "in a rehearsed step %s %.6g s, the plan predicts %.6g s, which is more than "
        "%.0f %% of a step apart%s",
        what, found * 1e-9, planned * 1e-9, 100 * TIME_TOLERANCE,
        r->plan->layout.file_bytes > 0 ? ": larger chunks hide the latency of a drive better" : "");
}

static coh_status run_all(rehearsal *r, uint64_t step_count)
{
    const coh_simulation *body = &r->plan->simulations[COH_PROGRAM_BODY];
    uint64_t exposed_ns = 0;
    for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT; kind++)
        if (kind == COH_PROGRAM_BODY)
            COH_TRY(run_steps(r, step_count));
        else if (r->plan->programs[kind].instruction_count > 0)
            COH_TRY(run(r, (coh_program_kind)kind, 1, NULL));
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        exposed_ns += body->exposed_ns[lane];
    COH_TRY(compare_peaks(r));
    COH_TRY(compare_time(r, "the work takes", r->facts.step_ns, body->period_ns));
    return compare_time(r, "the compute lane waits", r->facts.idle_ns, exposed_ns);
}

coh_status coh_engine_rehearse(const coh_plan *plan, int32_t step_count,
                               coh_rehearsal *out_rehearsal)
{
    COH_NEED(plan);
    COH_NEED_STRUCT(coh_rehearsal, out_rehearsal);
    COH_TRY(coh_check_integer("step_count", step_count, COH_REHEARSAL_STEPS_LEAST,
                              COH_REHEARSAL_STEPS_MOST));
    const coh_simulation *body = &plan->simulations[COH_PROGRAM_BODY];
    rehearsal r = { .plan = plan, .facts = { .predicted_step_ns = body->period_ns } };
    coh_status status = open_all(&r);
    if (status == COH_OK)
        status = run_all(&r, (uint64_t)step_count);
    close_all(&r);
    COH_STRUCT_FILL(r.facts, out_rehearsal);
    return status;
}
