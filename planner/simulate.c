/* Walks a program instruction by instruction with fixed times, computes the resource bound, and
 * chooses between this walk and the fluid one. The idea: lanes are queues that retire in order,
 * so one pass over the issue order gives all start and end times. Lanes that slow one another
 * are walked in simulate_fluid.c; the model is in simulate.h. */
#include "planner/simulate.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "planner/simulate_walk.h"

typedef struct lane_state {
    uint64_t depth;   /* most instructions in flight; 1 for compute lanes */
    uint64_t *recent; /* when each of the last `depth` instructions retired */
    uint64_t count;   /* instructions issued, over all runs */
    uint64_t last_start, last_retired;
    uint64_t link_served; /* when the link has moved all bytes requested so far */
} lane_state;

typedef struct walk {
    const coh_program *program;
    const coh_profile *profile;
    const uint64_t
        *service_ns;       /* per instruction: compute time, or time of its bytes over its link */
    uint64_t *start, *end; /* per instruction, this run; end: finished, not yet retired */
    uint64_t *retired[2];  /* this run and the one before, by lane_begin + ordinal - 1 */
    uint32_t lane_begin[COH_LANE_COUNT];
    lane_state lanes[COH_LANE_COUNT];
    uint64_t mark;                      /* when the last instruction of the previous run retired */
    uint64_t lane_step[COH_LANE_COUNT]; /* how far each lane's end moved in the last run */
    uint64_t exposed_ns[COH_LANE_COUNT];
} walk;

/* ---- bounds ---- */

/* Sums the time that each lane works, by the instructions' own times. */
static void sum_service(const coh_program *program, const coh_profile *profile,
                        const uint64_t *service_ns, coh_simulation *simulation)
{
    for (uint32_t i = 0; i < program->instruction_count; i++) {
        const coh_instruction *instruction = &program->instructions[i];
        simulation->busy_ns[instruction->lane] += service_ns[i];
        if (coh_profile_is_link(profile, (coh_lane)instruction->lane))
            simulation->link_bytes[instruction->lane] += instruction->bytes;
    }
}

/* Checks that all runs of a walk fit the clock, even one instruction after another. */
static coh_status check_clock(const coh_program *program, const coh_profile *profile,
                              const uint64_t *service_ns)
{
    double total = 0;
    for (uint32_t i = 0; i < program->instruction_count; i++)
        total += (double)service_ns[i];
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        total += (double)program->lane_length[lane] * (double)coh_lane_latency_ns(profile, lane);
    if (total * COH_RUNS_MOST < (double)COH_NS_MOST)
        return COH_OK;
    return coh_fail(COH_ERR_ARGUMENT,
                    "by the profile %s a run of this program takes more than 20 years: raise its "
                    "rates, or lower its latencies",
                    profile->name);
}

static void raise_bound(coh_simulation *simulation, uint64_t bound, int lane, int beside)
{
    if (bound <= simulation->bound_ns)
        return;
    simulation->bound_ns = bound;
    simulation->bound_lane = (coh_lane)lane;
    simulation->bound_beside = (coh_lane)beside;
}

/* A linear program: t together and s, r alone with a t + s >= x and b t + r >= y. Its dual has
 * three corners. A third lane only makes both slower. */
double coh_simulate_pair_least(double x, double y, double a, double b)
{
    if (a + b <= 1)
        return x + y;
    double first = x + y * (1 - a) / b, second = y + x * (1 - b) / a;
    return first > second ? first : second;
}

/* No schedule is faster than the busiest resource. A link is limited by its bytes and by
 * latencies: each instruction occupies one of `depth` slots for its latency and its bytes. Two
 * lanes that interfere are limited by their combined work, if `meet` is set. */
static void find_bound(const coh_program *program, const coh_profile *profile, int meet,
                       coh_simulation *simulation)
{
    const uint64_t *busy = simulation->busy_ns;
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        raise_bound(simulation, busy[lane], lane, COH_LANE_COUNT);
        if (coh_profile_is_link(profile, (coh_lane)lane)) {
            uint64_t latency = coh_lane_latency_ns(profile, lane);
            uint64_t places = program->lane_length[lane] * latency + busy[lane];
            raise_bound(simulation, places / coh_lane_depth(profile, program, lane), lane,
                        COH_LANE_COUNT);
        }
        for (int other = 0; meet && other < lane; other++) {
            double a = profile->contention[lane][other], b = profile->contention[other][lane];
            if (busy[lane] > 0 && busy[other] > 0)
                raise_bound(simulation,
                            coh_whole_ns(floor(coh_simulate_pair_least((double)busy[lane],
                                                                       (double)busy[other], a, b))),
                            lane, other);
        }
    }
}

/* ---- the walk ---- */

/* Returns when the instruction's waits are all satisfied, and the lane that it waited for last. */
static uint64_t waits_hold(const walk *w, const coh_instruction *instruction, int is_first,
                           uint8_t *out_lane)
{
    uint64_t when = 0;
    for (uint32_t i = 0; i < instruction->wait_count; i++) {
        const coh_wait *wait = &w->program->waits[instruction->wait_begin + i];
        if (wait->carry && is_first)
            continue; /* the previous run is complete */
        uint64_t held = w->retired[wait->carry][w->lane_begin[wait->lane] + wait->ordinal - 1];
        if (held > when) {
            when = held;
            *out_lane = wait->lane;
        }
    }
    return when;
}

static void walk_instruction(walk *w, uint32_t index, int is_first)
{
    const coh_instruction *instruction = &w->program->instructions[index];
    lane_state *lane = &w->lanes[instruction->lane];
    uint8_t last_lane = COH_LANE_COMPUTE;
    uint64_t *place = &lane->recent[lane->count % lane->depth];
    uint64_t hold = waits_hold(w, instruction, is_first, &last_lane);
    /* in order: not before the preceding instruction started, nor before a slot is free */
    uint64_t start = lane->last_start > *place ? lane->last_start : *place;
    if (instruction->lane == COH_LANE_COMPUTE && hold > start)
        w->exposed_ns[last_lane] += hold - start;
    if (hold > start)
        start = hold;
    uint64_t end = start + w->service_ns[index];
    if (coh_profile_is_link(w->profile, (coh_lane)instruction->lane)) {
        uint64_t begin = start > lane->link_served ? start : lane->link_served;
        lane->link_served = begin + w->service_ns[index];
        end = lane->link_served + coh_lane_latency_ns(w->profile, instruction->lane);
    }
    w->start[index] = start;
    w->end[index] = end;
    if (end > lane->last_retired)
        lane->last_retired = end; /* retired in order */
    lane->last_start = start;
    lane->count++;
    *place = lane->last_retired;
    w->retired[0][w->lane_begin[instruction->lane] + instruction->ordinal - 1] = lane->last_retired;
}

/* Walks one run. Returns 1 if every lane moved by the same time as in the previous run. */
static int walk_run(walk *w, int is_first)
{
    uint64_t *older = w->retired[1];
    int is_settled = !is_first;
    uint64_t first_step = 0;
    w->retired[1] = w->retired[0];
    w->retired[0] = older;
    memset(w->exposed_ns, 0, sizeof(w->exposed_ns));
    uint64_t before[COH_LANE_COUNT];
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        before[lane] = w->lanes[lane].last_retired;
    for (uint32_t i = 0; i < w->program->instruction_count; i++)
        walk_instruction(w, i, is_first);
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        uint64_t step = w->lanes[lane].last_retired - before[lane];
        if (w->program->lane_length[lane] == 0)
            continue;
        if (first_step == 0)
            first_step = step;
        is_settled = is_settled && step == w->lane_step[lane] && step == first_step;
        w->lane_step[lane] = step;
        if (w->lanes[lane].last_retired > w->mark)
            w->mark = w->lanes[lane].last_retired;
    }
    return is_settled;
}

static void lanes_reset(walk *w)
{
    w->mark = 0;
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        lane_state *state = &w->lanes[lane];
        memset(state->recent, 0, state->depth * sizeof(*state->recent));
        *state = (lane_state){ .depth = state->depth, .recent = state->recent };
        w->lane_step[lane] = 0;
    }
}

/* Walks the first run from rest, then further runs until the period repeats. */
static void walk_all(walk *w, coh_simulation *simulation)
{
    uint64_t marks[COH_RUNS_MOST];
    const int is_body = w->program->kind == COH_PROGRAM_BODY;
    int runs = 0, is_settled = 0;
    lanes_reset(w);
    do {
        is_settled = walk_run(w, runs == 0);
        marks[runs++] = w->mark;
    } while (is_body && !is_settled && runs < COH_RUNS_MOST);
    simulation->first_ns = marks[0];
    if (!is_body || runs < 2)
        simulation->period_ns = marks[0];
    else if (is_settled)
        simulation->period_ns = marks[runs - 1] - marks[runs - 2];
    else
        simulation->period_ns =
            (marks[runs - 1] - marks[runs - 1 - COH_RUNS_AVERAGED]) / COH_RUNS_AVERAGED;
    memcpy(simulation->exposed_ns, w->exposed_ns, sizeof(w->exposed_ns));
}

/* ---- memory ---- */

/* The peak of a tier is the highest end offset ever occupied, regardless of time: each extent that
 * an instruction enters, or that exists from the begin, is occupied at some time. */
static void find_peak(const coh_layout *layout, const coh_program *program,
                      coh_simulation *simulation)
{
    uint64_t *peak = simulation->peak_bytes;
    peak[COH_TIER_DEVICE] = layout->pinned_bytes;
    peak[COH_TIER_DISK] = layout->file_bytes;
    for (uint32_t i = 0; i < program->extent_count; i++) {
        const coh_extent *extent = &program->extents[i];
        uint64_t end = extent->offset + extent->bytes;
        if (extent->at_begin && end > peak[extent->tier])
            peak[extent->tier] = end;
    }
    for (uint32_t i = 0; i < program->touch_count; i++) {
        if (program->touches[i].extent == COH_EXTENT_FILE)
            continue;
        const coh_extent *extent = &program->extents[program->touches[i].extent];
        uint64_t end = extent->offset + extent->bytes;
        if (end > peak[extent->tier])
            peak[extent->tier] = end;
    }
}

/* ---- setup and release ---- */

static void walk_fini(walk *w)
{
    coh_free(w->start);
    coh_free(w->end);
    coh_free(w->retired[0]);
    coh_free(w->retired[1]);
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        coh_free(w->lanes[lane].recent);
}

static coh_status walk_init(walk *w)
{
    const coh_program *program = w->program;
    uint32_t total = 0;
    COH_TRY(COH_ALLOC(program->instruction_count, &w->start));
    COH_TRY(COH_ALLOC(program->instruction_count, &w->end));
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        w->lane_begin[lane] = total;
        total += program->lane_length[lane];
        w->lanes[lane].depth = coh_lane_depth(w->profile, program, lane);
        COH_TRY(COH_ALLOC(w->lanes[lane].depth, &w->lanes[lane].recent));
    }
    COH_TRY(COH_ALLOC(total, &w->retired[0]));
    return COH_ALLOC(total, &w->retired[1]);
}

static void write_times(const walk *w, uint64_t *out_instruction_ns)
{
    uint64_t origin = UINT64_MAX;
    for (uint32_t i = 0; i < w->program->instruction_count; i++)
        if (w->start[i] < origin)
            origin = w->start[i];
    for (uint32_t i = 0; i < w->program->instruction_count; i++) {
        out_instruction_ns[2 * i] = w->start[i] - origin;
        out_instruction_ns[2 * i + 1] = w->end[i] - origin;
    }
}

/* Walks instruction after instruction with the given times. */
static coh_status walk_fixed(const coh_program *program, const coh_profile *profile,
                             const uint64_t *service_ns, coh_simulation *simulation,
                             uint64_t *out_instruction_ns)
{
    walk w = { .program = program, .profile = profile, .service_ns = service_ns };
    coh_status status = walk_init(&w);
    if (status == COH_OK) {
        walk_all(&w, simulation);
        if (out_instruction_ns)
            write_times(&w, out_instruction_ns);
    }
    walk_fini(&w);
    return status;
}

/* ---- public ---- */

/* The relative speed of a lane while all other lanes of the program are busy. */
static double least_speed(const coh_program *program, const coh_profile *profile, int lane)
{
    double speed = 1;
    for (int other = 0; other < COH_LANE_COUNT; other++)
        if (other != lane && program->lane_length[other] > 0)
            speed *= profile->contention[lane][other];
    return speed;
}

/* The compute time that all transfers of a run cost. */
static double stolen_ns(const coh_program *program, const coh_profile *profile)
{
    double sum = 0;
    for (uint32_t i = 0; i < program->instruction_count; i++)
        if (coh_profile_is_link(profile, (coh_lane)program->instructions[i].lane))
            sum += coh_link_interference_ns(&profile->link[program->instructions[i].lane],
                                            program->instructions[i].bytes);
    return sum;
}

/* Returns 1 if some lane of the program slows another. */
static int lanes_meet(const coh_program *program, const coh_profile *profile)
{
    int meet = 0;
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        meet |= program->lane_length[lane] > 0 &&
                (least_speed(program, profile, lane) < 1 ||
                 coh_link_interference_ns(&profile->link[lane], 1) > 0);
    return meet;
}

static coh_status walk_slowed(const coh_program *program, const coh_profile *profile,
                              const uint64_t *service_ns, coh_simulation *simulation,
                              uint64_t *out_instruction_ns)
{
    uint64_t *slowed_ns = NULL;
    double speed[COH_LANE_COUNT];
    COH_TRY(COH_ALLOC(program->instruction_count, &slowed_ns));
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        speed[lane] = least_speed(program, profile, lane);
    if (simulation->busy_ns[COH_LANE_COMPUTE] > 0) {
        const double busy_ns = (double)simulation->busy_ns[COH_LANE_COMPUTE];
        speed[COH_LANE_COMPUTE] *= busy_ns / (busy_ns + stolen_ns(program, profile));
    }
    memset(simulation->busy_ns, 0, sizeof(simulation->busy_ns));
    for (uint32_t i = 0; i < program->instruction_count; i++) {
        int lane = program->instructions[i].lane;
        slowed_ns[i] = coh_whole_ns((double)service_ns[i] / speed[lane]);
        simulation->busy_ns[lane] += slowed_ns[i];
    }
    coh_status status = check_clock(program, profile, slowed_ns);
    if (status == COH_OK)
        status = walk_fixed(program, profile, slowed_ns, simulation, out_instruction_ns);
    coh_free(slowed_ns);
    return status;
}

coh_status coh_simulate(const coh_layout *layout, const coh_program *program,
                        const coh_profile *profile, const uint64_t *service_ns,
                        coh_contention contention, coh_simulation *out_simulation,
                        uint64_t *out_instruction_ns)
{
    *out_simulation =
        (coh_simulation){ .bound_lane = COH_LANE_COMPUTE, .bound_beside = COH_LANE_COUNT };
    COH_TRY(check_clock(program, profile, service_ns));
    sum_service(program, profile, service_ns, out_simulation);
    int meet = contention != COH_CONTENTION_NONE && lanes_meet(program, profile);
    find_bound(program, profile, meet, out_simulation);
    find_peak(layout, program, out_simulation);
    if (!meet)
        COH_TRY(walk_fixed(program, profile, service_ns, out_simulation, out_instruction_ns));
    else if (contention == COH_CONTENTION_FLUID)
        COH_TRY(coh_walk_fluid(program, profile, service_ns, out_simulation, out_instruction_ns));
    else
        COH_TRY(walk_slowed(program, profile, service_ns, out_simulation, out_instruction_ns));
    /* The bound is tighter than an average of unsettled runs. */
    if (out_simulation->period_ns < out_simulation->bound_ns)
        out_simulation->period_ns = out_simulation->bound_ns;
    if (out_simulation->first_ns < out_simulation->bound_ns)
        out_simulation->first_ns = out_simulation->bound_ns;
    return COH_OK;
}

coh_status coh_simulate_priced(const coh_layout *layout, const coh_program *program,
                               const coh_pricer *pricer, coh_simulation *out_simulation)
{
    uint64_t *service_ns = NULL;
    COH_TRY(COH_ALLOC(program->instruction_count, &service_ns));
    for (uint32_t i = 0; i < program->instruction_count; i++)
        service_ns[i] = coh_whole_ns(
            coh_price_instruction(pricer, layout, program, &program->instructions[i]).p50);
    coh_status status = coh_simulate(layout, program, pricer->profile, service_ns,
                                     COH_CONTENTION_FLUID, out_simulation, NULL);
    coh_free(service_ns);
    return status;
}
