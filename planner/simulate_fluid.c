/* Walks a program whose lanes slow one another, from event to event. Between two events the set of
 * busy lanes, and so every lane's speed, is constant. A lane is busy while it computes or moves
 * bytes, not during a link's latency. The model is in simulate.h; simulate.c walks programs without
 * interference. */
#include <math.h>

#include "base/alloc.h"
#include "planner/simulate_walk.h"

enum { LANE_SETS = 1 << COH_LANE_COUNT };

/* This many instructions of a lane have reached a stage; the next is instruction `at` of run
 * `run`. */
typedef struct progress {
    uint64_t count, run, at;
} progress;

typedef struct fluid_lane {
    const uint32_t *instructions; /* of the program, in order */
    uint64_t length, depth;
    double latency;
    const coh_link_profile *link; /* NULL: a compute lane */
    progress issued, served, retired;
    uint32_t next_wait;      /* of the instruction to be issued next */
    uint8_t last_wait;       /* the lane that it waited for last */
    double free_since;       /* when the preceding instruction retired */
    double remaining, began; /* of the instruction in service */
    double *served_at;       /* by number modulo depth */
} fluid_lane;

typedef struct fluid {
    const coh_program *program;
    const uint64_t *service_ns;
    uint32_t *instructions; /* by lane */
    fluid_lane lanes[COH_LANE_COUNT];
    double speed[LANE_SETS][COH_LANE_COUNT];
    unsigned busy; /* set of lanes in service */
    double now;
    uint64_t runs; /* limit of runs */
    double end[COH_RUNS_MOST][COH_LANE_COUNT];
    double mark[COH_RUNS_MOST]; /* when the last instruction of the run retired */
    double busy_ns[COH_RUNS_MOST][COH_LANE_COUNT];
    double exposed_ns[COH_RUNS_MOST][COH_LANE_COUNT];
    int lanes_done[COH_RUNS_MOST], lane_count;
    double *begin_ns, *end_ns; /* by run and instruction; NULL: not requested */
} fluid;

/* ---- service ---- */

static void go_on(const fluid_lane *lane, progress *made)
{
    made->count++;
    if (++made->at == lane->length) {
        made->at = 0;
        made->run++;
    }
}

static void issue(fluid *f, int number)
{
    fluid_lane *lane = &f->lanes[number];
    uint64_t run = lane->issued.run;
    uint32_t instruction = lane->instructions[lane->issued.at];
    if (number == COH_LANE_COMPUTE && f->now > lane->free_since)
        f->exposed_ns[run][lane->last_wait] += f->now - lane->free_since;
    if (f->begin_ns)
        f->begin_ns[run * f->program->instruction_count + instruction] = f->now;
    go_on(lane, &lane->issued);
    lane->next_wait = 0;
    lane->last_wait = COH_LANE_COMPUTE;
}

/* Issues the next instruction if a slot is free and all its waits hold. */
static int try_issue(fluid *f, int number)
{
    fluid_lane *lane = &f->lanes[number];
    if (lane->issued.run == f->runs || lane->issued.count - lane->retired.count >= lane->depth)
        return 0;
    uint64_t run = lane->issued.run;
    const coh_instruction *instruction =
        &f->program->instructions[lane->instructions[lane->issued.at]];
    for (; lane->next_wait < instruction->wait_count; lane->next_wait++) {
        const coh_wait *wait = &f->program->waits[instruction->wait_begin + lane->next_wait];
        if (wait->carry && run == 0)
            continue; /* the previous run is complete */
        const fluid_lane *other = &f->lanes[wait->lane];
        if (other->retired.count < (run - wait->carry) * other->length + wait->ordinal) {
            lane->last_wait = wait->lane;
            return 0;
        }
    }
    issue(f, number);
    return 1;
}

static void start_service(fluid *f, int number)
{
    fluid_lane *lane = &f->lanes[number];
    if ((f->busy >> number & 1) || lane->served.count == lane->issued.count)
        return;
    lane->remaining = (double)f->service_ns[lane->instructions[lane->served.at]];
    lane->began = f->now;
    f->busy |= 1u << number;
    if (lane->link != NULL && (f->busy & 1u << COH_LANE_COMPUTE))
        f->lanes[COH_LANE_COMPUTE].remaining += coh_link_interference_ns(
            lane->link, f->program->instructions[lane->instructions[lane->served.at]].bytes);
}

static void retire(fluid *f, int number)
{
    fluid_lane *lane = &f->lanes[number];
    uint64_t run = lane->retired.run;
    uint32_t instruction = lane->instructions[lane->retired.at];
    if (f->end_ns)
        f->end_ns[run * f->program->instruction_count + instruction] = f->now;
    go_on(lane, &lane->retired);
    lane->free_since = f->now;
    if (lane->retired.run == run)
        return;
    f->end[run][number] = f->now;
    if (++f->lanes_done[run] == f->lane_count)
        f->mark[run] = f->now;
}

static void end_service(fluid *f, int number)
{
    fluid_lane *lane = &f->lanes[number];
    f->busy_ns[lane->served.run][number] += f->now - lane->began;
    f->busy &= ~(1u << number);
    lane->served_at[lane->served.count % lane->depth] = f->now;
    go_on(lane, &lane->served);
    if (lane->latency == 0)
        retire(f, number);
}

/* ---- events ---- */

typedef struct event {
    double when;
    int lane, is_service;
} event;

/* Returns the next event; lane -1: none. */
static event next_event(const fluid *f)
{
    event next = { .when = INFINITY, .lane = -1 };
    for (int number = 0; number < COH_LANE_COUNT; number++) {
        const fluid_lane *lane = &f->lanes[number];
        if (f->busy >> number & 1) {
            double when = f->now + lane->remaining / f->speed[f->busy][number];
            if (when < next.when)
                next = (event){ .when = when, .lane = number, .is_service = 1 };
        }
        if (lane->retired.count < lane->served.count) {
            double when = lane->served_at[lane->retired.count % lane->depth] + lane->latency;
            if (when < next.when)
                next = (event){ .when = when, .lane = number };
        }
    }
    return next;
}

static void happen(fluid *f, const event *next)
{
    double passed = next->when - f->now;
    for (int number = 0; number < COH_LANE_COUNT; number++)
        if (f->busy >> number & 1) {
            fluid_lane *lane = &f->lanes[number];
            lane->remaining -= passed * f->speed[f->busy][number];
            lane->remaining = lane->remaining > 0 ? lane->remaining : 0;
        }
    f->now = next->when;
    if (next->is_service)
        end_service(f, next->lane);
    else
        retire(f, next->lane);
}

/* Returns 1 if every lane moved in this run by the same time as in the previous run, and all lanes
 * by the same time. */
static int is_settled(const fluid *f, uint64_t run)
{
    double step = -1;
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        if (f->lanes[lane].length == 0)
            continue;
        double now = f->end[run][lane] - f->end[run - 1][lane];
        double before = f->end[run - 1][lane] - (run > 1 ? f->end[run - 2][lane] : 0);
        double most = 1 + 1e-7 * now;
        step = step < 0 ? now : step;
        if (fabs(now - before) > most || fabs(now - step) > most)
            return 0;
    }
    return 1;
}

/* Walks from rest until the period repeats. Returns the number of whole runs, or 0 if the program
 * deadlocks. */
static uint64_t walk_runs(fluid *f, int *out_settled)
{
    uint64_t run = 0;
    *out_settled = 0;
    for (;;) {
        for (int number = 0; number < COH_LANE_COUNT; number++) {
            while (f->lanes[number].length > 0 && try_issue(f, number)) {
            }
            start_service(f, number);
        }
        event next = next_event(f);
        if (next.lane < 0)
            return 0;
        happen(f, &next);
        while (run < f->runs && f->lanes_done[run] == f->lane_count) {
            *out_settled = run > 0 && is_settled(f, run);
            run++;
            if (*out_settled || run == f->runs)
                return run;
        }
    }
}

/* ---- setup and release ---- */

static void fluid_fini(fluid *f)
{
    coh_free(f->instructions);
    coh_free(f->begin_ns);
    coh_free(f->end_ns);
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        coh_free(f->lanes[lane].served_at);
    coh_free(f);
}

/* Computes each lane's relative speed for every set of lanes that may be busy together. */
static void set_speeds(fluid *f, const coh_profile *profile)
{
    unsigned used = 0;
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        used |= (unsigned)(f->program->lane_length[lane] > 0) << lane;
    for (unsigned set = used;; set = (set - 1) & used) {
        for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
            f->speed[set][lane] = 1;
            for (int other = 0; other < COH_LANE_COUNT; other++)
                if (other != lane && (set >> other & 1))
                    f->speed[set][lane] *= profile->contention[lane][other];
        }
        if (set == 0)
            break;
    }
}

static coh_status fluid_open(fluid *f, const coh_profile *profile, int with_times)
{
    const coh_program *program = f->program;
    uint32_t filled[COH_LANE_COUNT] = { 0 }, total = 0;
    COH_TRY(COH_ALLOC(program->instruction_count, &f->instructions));
    for (int number = 0; number < COH_LANE_COUNT; number++) {
        fluid_lane *lane = &f->lanes[number];
        lane->instructions = f->instructions + total;
        filled[number] = total;
        total += program->lane_length[number];
        lane->length = program->lane_length[number];
        lane->depth = coh_lane_depth(profile, program, number);
        lane->last_wait = COH_LANE_COMPUTE;
        if (coh_profile_is_link(profile, (coh_lane)number)) {
            lane->link = &profile->link[number];
            lane->latency = (double)coh_lane_latency_ns(profile, number);
        }
        f->lane_count += lane->length > 0;
        COH_TRY(COH_ALLOC(lane->depth, &lane->served_at));
    }
    for (uint32_t i = 0; i < program->instruction_count; i++)
        f->instructions[filled[program->instructions[i].lane]++] = i;
    set_speeds(f, profile);
    f->runs = program->kind == COH_PROGRAM_BODY ? COH_RUNS_MOST : 1;
    if (with_times) {
        COH_TRY(COH_ALLOC(f->runs * program->instruction_count, &f->begin_ns));
        COH_TRY(COH_ALLOC(f->runs * program->instruction_count, &f->end_ns));
    }
    return COH_OK;
}

/* ---- results ---- */

static void write_result(const fluid *f, uint64_t runs, int settled, coh_simulation *simulation)
{
    const double *mark = f->mark;
    double period = mark[0];
    if (settled)
        period = mark[runs - 1] - mark[runs - 2];
    else if (runs > COH_RUNS_AVERAGED)
        period = (mark[runs - 1] - mark[runs - 1 - COH_RUNS_AVERAGED]) / COH_RUNS_AVERAGED;
    simulation->first_ns = coh_whole_ns(mark[0]);
    simulation->period_ns = coh_whole_ns(period);
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        simulation->busy_ns[lane] = coh_whole_ns(f->busy_ns[runs - 1][lane]);
        simulation->exposed_ns[lane] = coh_whole_ns(f->exposed_ns[runs - 1][lane]);
    }
}

static void write_times(const fluid *f, uint64_t runs, uint64_t *out_instruction_ns)
{
    uint32_t count = f->program->instruction_count;
    const double *begin = f->begin_ns + (runs - 1) * count, *end = f->end_ns + (runs - 1) * count;
    double origin = INFINITY;
    for (uint32_t i = 0; i < count; i++)
        origin = begin[i] < origin ? begin[i] : origin;
    for (uint32_t i = 0; i < count; i++) {
        out_instruction_ns[2 * i] = coh_whole_ns(begin[i] - origin);
        out_instruction_ns[2 * i + 1] = coh_whole_ns(end[i] - origin);
    }
}

coh_status coh_walk_fluid(const coh_program *program, const coh_profile *profile,
                          const uint64_t *service_ns, coh_simulation *simulation,
                          uint64_t *out_instruction_ns)
{
    fluid *f = NULL;
    int settled = 0;
    COH_TRY(COH_ALLOC(1, &f));
    f->program = program;
    f->service_ns = service_ns;
    coh_status status = fluid_open(f, profile, out_instruction_ns != NULL);
    uint64_t runs = status == COH_OK ? walk_runs(f, &settled) : 0;
    if (status == COH_OK && runs == 0)
        status = coh_fail(COH_ERR_INTERNAL,
                          "a program of %u instructions deadlocks: a wait of it can "
                          "never hold (please report this)",
                          program->instruction_count);
    if (status == COH_OK) {
        write_result(f, runs, settled, simulation);
        if (out_instruction_ns)
            write_times(f, runs, out_instruction_ns);
    }
    fluid_fini(f);
    return status;
}
