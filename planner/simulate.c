/* Walks a program from event to event: issues each instruction as soon as its lane has room and its
 * waits hold. The lanes serve it (fluid.c). The model is in simulate.h; prices are in price.c. */
#include "planner/simulate.h"

#include <math.h>

#include "base/alloc.h"
#include "planner/fluid.h"

/* A body that has not settled after RUNS_MOST runs is averaged over its last three: a cyclic
 * pattern longer than one run has no single period. */
enum { RUNS_MOST = 6, RUNS_AVERAGED = 3 };

/* The next instruction of a lane to reach a stage: `at` of run `run`. */
typedef struct progress {
    uint64_t run, at;
} progress;

typedef struct walk_lane {
    const uint32_t *instructions; /* of the program, in order */
    uint64_t length;
    progress issued, served, retired;
    uint32_t next_wait; /* of the instruction to be issued next */
    uint8_t last_wait;  /* the lane that it waited for last */
    unsigned wakers;    /* set of lanes, its own among them: nothing else lets it issue */
    double free_since;  /* when the preceding instruction retired */
} walk_lane;

typedef struct walk {
    const coh_program *program;
    const coh_profile *profile;
    const uint64_t *service_ns;
    uint32_t *instructions; /* by lane */
    walk_lane lanes[COH_LANE_COUNT];
    unsigned used; /* set of lanes that have instructions */
    coh_fluid fluid;
    uint64_t runs; /* limit of runs */
    double end[RUNS_MOST][COH_LANE_COUNT];
    double mark[RUNS_MOST]; /* when the last instruction of the run retired */
    double busy_ns[RUNS_MOST][COH_LANE_COUNT];
    double exposed_ns[RUNS_MOST][COH_LANE_COUNT];
    int lanes_done[RUNS_MOST], lane_count;
    double *begin_ns, *end_ns; /* by run and instruction; NULL: not requested */
} walk;

/* ---- service ---- */

static void go_on(const walk_lane *lane, progress *made)
{
    if (++made->at == lane->length) {
        made->at = 0;
        made->run++;
    }
}

static void issue(walk *w, int number)
{
    walk_lane *lane = &w->lanes[number];
    const double now = w->fluid.now_ns;
    uint64_t run = lane->issued.run;
    uint32_t instruction = lane->instructions[lane->issued.at];
    const coh_instruction *facts = &w->program->instructions[instruction];
    if (number == COH_LANE_COMPUTE && now > lane->free_since)
        w->exposed_ns[run][lane->last_wait] += now - lane->free_since;
    if (w->begin_ns)
        w->begin_ns[run * w->program->instruction_count + instruction] = now;
    coh_fluid_issue(&w->fluid, number, (double)w->service_ns[instruction],
                    coh_price_link(w->profile, w->program, facts), facts->bytes);
    go_on(lane, &lane->issued);
    lane->next_wait = 0;
    lane->last_wait = COH_LANE_COMPUTE;
}

/* Issues the next instruction if a slot is free and all its waits hold. */
static int try_issue(walk *w, int number)
{
    walk_lane *lane = &w->lanes[number];
    lane->wakers = 1u << number;
    if (lane->issued.run == w->runs || !coh_fluid_has_room(&w->fluid, number))
        return 0;
    uint64_t run = lane->issued.run;
    const coh_instruction *instruction =
        &w->program->instructions[lane->instructions[lane->issued.at]];
    for (; lane->next_wait < instruction->wait_count; lane->next_wait++) {
        const coh_wait *wait = &w->program->waits[instruction->wait_begin + lane->next_wait];
        if (wait->carry && run == 0)
            continue; /* the previous run is complete */
        const uint64_t length = w->lanes[wait->lane].length;
        if (w->fluid.lanes[wait->lane].retired < (run - wait->carry) * length + wait->ordinal) {
            lane->last_wait = wait->lane;
            lane->wakers |= 1u << wait->lane;
            return 0;
        }
    }
    issue(w, number);
    return 1;
}

static void retire(walk *w, int number)
{
    walk_lane *lane = &w->lanes[number];
    uint64_t run = lane->retired.run;
    uint32_t instruction = lane->instructions[lane->retired.at];
    if (w->end_ns)
        w->end_ns[run * w->program->instruction_count + instruction] = w->fluid.now_ns;
    go_on(lane, &lane->retired);
    lane->free_since = w->fluid.now_ns;
    if (lane->retired.run == run)
        return;
    w->end[run][number] = w->fluid.now_ns;
    if (++w->lanes_done[run] == w->lane_count)
        w->mark[run] = w->fluid.now_ns;
}

static void happen(walk *w, const coh_fluid_event *next)
{
    walk_lane *lane = &w->lanes[next->lane];
    const coh_fluid_lane *fluid = &w->fluid.lanes[next->lane];
    const uint64_t retired = fluid->retired;
    coh_fluid_happen(&w->fluid, next);
    if (next->is_service) {
        w->busy_ns[lane->served.run][next->lane] += w->fluid.now_ns - fluid->began_ns;
        go_on(lane, &lane->served);
    }
    if (fluid->retired > retired)
        retire(w, next->lane);
}

/* Returns 1 if every lane moved in this run by the same time as in the previous run, and all lanes
 * by the same time. */
static int is_settled(const walk *w, uint64_t run)
{
    double step = -1;
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        if (w->lanes[lane].length == 0)
            continue;
        double now = w->end[run][lane] - w->end[run - 1][lane];
        double before = w->end[run - 1][lane] - (run > 1 ? w->end[run - 2][lane] : 0);
        double most = 1 + 1e-7 * now;
        step = step < 0 ? now : step;
        if (fabs(now - before) > most || fabs(now - step) > most)
            return 0;
    }
    return 1;
}

/* Issues what an event of these lanes may let go on, and starts its service. */
static void issue_after(walk *w, unsigned lanes)
{
    for (unsigned left = w->used; left != 0; left &= left - 1) {
        const int number = __builtin_ctz(left);
        if (!(w->lanes[number].wakers & lanes))
            continue;
        while (try_issue(w, number)) {
        }
        coh_fluid_start(&w->fluid, number);
    }
}

/* Walks from rest until the period repeats. Returns the number of whole runs, or 0 if the program
 * deadlocks. */
static uint64_t walk_runs(walk *w, int *out_settled)
{
    uint64_t run = 0;
    unsigned moved = w->used; /* the set of lanes with the last event */
    *out_settled = 0;
    for (;;) {
        issue_after(w, moved);
        coh_fluid_event next = coh_fluid_next(&w->fluid);
        if (next.lane < 0)
            return 0;
        happen(w, &next);
        moved = 1u << next.lane;
        while (run < w->runs && w->lanes_done[run] == w->lane_count) {
            *out_settled = run > 0 && is_settled(w, run);
            run++;
            if (*out_settled || run == w->runs)
                return run;
        }
    }
}

/* ---- setup and release ---- */

static void walk_fini(walk *w)
{
    coh_free(w->instructions);
    coh_free(w->begin_ns);
    coh_free(w->end_ns);
    coh_fluid_fini(&w->fluid);
    coh_free(w);
}

/* `slows`: lanes slow one another. */
static coh_status walk_open(walk *w, int slows, int with_times)
{
    const coh_program *program = w->program;
    uint32_t filled[COH_LANE_COUNT] = { 0 }, total = 0;
    COH_TRY(COH_ALLOC(program->instruction_count, &w->instructions));
    for (int number = 0; number < COH_LANE_COUNT; number++) {
        walk_lane *lane = &w->lanes[number];
        lane->instructions = w->instructions + total;
        filled[number] = total;
        total += program->lane_length[number];
        lane->length = program->lane_length[number];
        lane->last_wait = COH_LANE_COMPUTE;
        lane->wakers = 1u << number;
        w->lane_count += lane->length > 0;
        w->used |= (unsigned)(lane->length > 0) << number;
    }
    for (uint32_t i = 0; i < program->instruction_count; i++)
        w->instructions[filled[program->instructions[i].lane]++] = i;
    COH_TRY(coh_fluid_init(&w->fluid, program, w->profile, slows));
    w->runs = program->kind == COH_PROGRAM_BODY ? RUNS_MOST : 1;
    if (with_times) {
        COH_TRY(COH_ALLOC(w->runs * program->instruction_count, &w->begin_ns));
        COH_TRY(COH_ALLOC(w->runs * program->instruction_count, &w->end_ns));
    }
    return COH_OK;
}

/* ---- results ---- */

/* Averages the last runs: in the long run the lane that advances most in a run sets the period,
 * even if another one retires last now. */
static double average_period(const walk *w, uint64_t runs)
{
    double most = 0;
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        most = fmax(most, w->end[runs - 1][lane] - w->end[runs - 1 - RUNS_AVERAGED][lane]);
    return most / RUNS_AVERAGED;
}

static void write_result(const walk *w, uint64_t runs, int settled, coh_simulation *simulation)
{
    const double *mark = w->mark;
    double period = mark[0];
    if (settled)
        period = mark[runs - 1] - mark[runs - 2];
    else if (runs > RUNS_AVERAGED)
        period = average_period(w, runs);
    simulation->first_ns = coh_whole_ns(mark[0]);
    simulation->period_ns = coh_whole_ns(period);
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        simulation->busy_ns[lane] = coh_whole_ns(w->busy_ns[runs - 1][lane]);
        simulation->exposed_ns[lane] = coh_whole_ns(w->exposed_ns[runs - 1][lane]);
    }
}

static void write_times(const walk *w, uint64_t runs, uint64_t *out_instruction_ns)
{
    uint32_t count = w->program->instruction_count;
    const double *begin = w->begin_ns + (runs - 1) * count, *end = w->end_ns + (runs - 1) * count;
    double origin = INFINITY;
    for (uint32_t i = 0; i < count; i++)
        origin = begin[i] < origin ? begin[i] : origin;
    for (uint32_t i = 0; i < count; i++) {
        out_instruction_ns[2 * i] = coh_whole_ns(begin[i] - origin);
        out_instruction_ns[2 * i + 1] = coh_whole_ns(end[i] - origin);
    }
}

/* Checks that all runs of a walk fit the clock, even one instruction after another. */
static coh_status check_clock(const coh_program *program, const coh_profile *profile,
                              const uint64_t *service_ns)
{
    double total = 0;
    for (uint32_t i = 0; i < program->instruction_count; i++) {
        const coh_link_profile *link = coh_price_link(profile, program, &program->instructions[i]);
        total += (double)service_ns[i];
        total += link != NULL ? (double)coh_whole_ns(link->latency_ns.p50) : 0;
    }
    if (total * RUNS_MOST < (double)COH_NS_MOST)
        return COH_OK;
    return coh_fail(COH_ERR_ARGUMENT,
                    "by the profile %s a run of this program takes more than 20 years: raise its "
                    "rates, or lower its latencies",
                    profile->name);
}

static coh_status walk_program(const coh_program *program, const coh_profile *profile,
                               const uint64_t *service_ns, int slows, coh_simulation *simulation,
                               uint64_t *out_instruction_ns)
{
    walk *w = NULL;
    int settled = 0;
    COH_TRY(check_clock(program, profile, service_ns));
    COH_TRY(COH_ALLOC(1, &w));
    w->program = program;
    w->profile = profile;
    w->service_ns = service_ns;
    coh_status status = walk_open(w, slows, out_instruction_ns != NULL);
    uint64_t runs = status == COH_OK ? walk_runs(w, &settled) : 0;
    if (status == COH_OK && runs == 0)
        status = coh_fail(COH_ERR_INTERNAL,
                          "a program of %u instructions deadlocks: a wait of it can "
                          "never hold (please report this)",
                          program->instruction_count);
    if (status == COH_OK) {
        write_result(w, runs, settled, simulation);
        if (out_instruction_ns)
            write_times(w, runs, out_instruction_ns);
    }
    walk_fini(w);
    return status;
}

/* ---- public ---- */

/* Computes the least speed of each lane for any set of busy lanes out of `used`. Without a shared
 * memory it is that while all of them are busy. Two lanes that slow one another may take less of a
 * memory together than the faster one alone. */
static void find_least_speeds(const coh_profile *profile, unsigned used,
                              double out_speed[COH_LANE_COUNT])
{
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        out_speed[lane] = 1;
    for (unsigned busy = used; busy != 0; busy = (busy - 1) & used) {
        double speed[COH_LANE_COUNT];
        coh_profile_speeds(profile, busy, speed);
        for (int lane = 0; lane < COH_LANE_COUNT; lane++)
            if ((busy >> lane & 1) && speed[lane] < out_speed[lane])
                out_speed[lane] = speed[lane];
    }
}

/* Computes the times of all instructions at the least speeds of their lanes. The interference of
 * all transfers of a run spreads over the compute lane. */
static void slow_down(const coh_program *program, const coh_profile *profile,
                      const uint64_t *service_ns, uint64_t *slowed_ns)
{
    double speed[COH_LANE_COUNT], compute_ns = 0, interference_ns = 0;
    unsigned used = 0;
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        used |= (unsigned)(program->lane_length[lane] > 0) << lane;
    find_least_speeds(profile, used, speed);
    for (uint32_t i = 0; i < program->instruction_count; i++) {
        const coh_instruction *instruction = &program->instructions[i];
        const coh_link_profile *link = coh_price_link(profile, program, instruction);
        if (instruction->lane == COH_LANE_COMPUTE)
            compute_ns += (double)service_ns[i];
        else if (link != NULL)
            interference_ns += coh_link_interference_ns(link, instruction->bytes);
    }
    if (compute_ns > 0)
        speed[COH_LANE_COMPUTE] *= compute_ns / (compute_ns + interference_ns);
    for (uint32_t i = 0; i < program->instruction_count; i++)
        slowed_ns[i] = coh_whole_ns((double)service_ns[i] / speed[program->instructions[i].lane]);
}

coh_status coh_simulate(const coh_program *program, const coh_profile *profile,
                        const uint64_t *service_ns, coh_contention contention,
                        coh_simulation *out_simulation, uint64_t *out_instruction_ns)
{
    *out_simulation = (coh_simulation){ 0 };
    for (uint32_t i = 0; i < program->instruction_count; i++)
        if (program->instructions[i].comm > 0 ||
            coh_profile_is_link(profile, (coh_lane)program->instructions[i].lane))
            out_simulation->link_bytes[program->instructions[i].lane] +=
                program->instructions[i].bytes;
    if (contention != COH_CONTENTION_ALL)
        return walk_program(program, profile, service_ns, contention == COH_CONTENTION_FLUID,
                            out_simulation, out_instruction_ns);
    uint64_t *slowed_ns = NULL;
    COH_TRY(check_clock(program, profile, service_ns));
    COH_TRY(COH_ALLOC(program->instruction_count, &slowed_ns));
    slow_down(program, profile, service_ns, slowed_ns);
    coh_status status =
        walk_program(program, profile, slowed_ns, 0, out_simulation, out_instruction_ns);
    coh_free(slowed_ns);
    return status;
}

coh_status coh_simulate_priced(const coh_layout *layout, const coh_program *program,
                               const coh_pricer *pricer, coh_simulation *out_simulation,
                               uint64_t *out_instruction_ns)
{
    uint64_t *service_ns = NULL;
    COH_TRY(COH_ALLOC(program->instruction_count, &service_ns));
    for (uint32_t i = 0; i < program->instruction_count; i++)
        service_ns[i] = coh_whole_ns(
            coh_price_instruction(pricer, layout, program, &program->instructions[i]).p50);
    coh_status status = coh_simulate(program, pricer->profile, service_ns, COH_CONTENTION_FLUID,
                                     out_simulation, out_instruction_ns);
    coh_free(service_ns);
    return status;
}
