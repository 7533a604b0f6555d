#include "planner/simulate.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"

/* A body that has not settled after so many runs is averaged over its last three: with a cyclic
 * pattern longer than one run there is no single period. */
enum { RUNS_MOST = 6, RUNS_AVERAGED = 3 };

/* Walks more until two lanes on one drive have found how much of it each gets. */
enum { SHARINGS = 3 };

typedef struct lane_state {
    uint64_t depth;   /* lines under way at most; 1 for what computes */
    uint64_t *recent; /* when each of the last `depth` lines retired */
    uint64_t count;   /* lines issued, all runs */
    uint64_t last_start, last_retired;
    uint64_t link_served; /* when the link has moved all bytes asked for so far */
} lane_state;

/* When the lines of one of the drive's lanes were served in the last run: spans in rising order. */
typedef struct drive_lane {
    uint64_t *begin, *end, *busy_before; /* by number in the lane; service up to there */
    uint32_t count;
    uint64_t busy;
} drive_lane;

typedef struct walk {
    const coh_program *program;
    const coh_profile *profile;
    uint64_t *service_ns;  /* per line: computing, or its bytes over its link */
    uint64_t *alone_ns;    /* the same, with nothing else on the drive */
    uint64_t *start, *end; /* per line, this run; end: done, not yet retired */
    drive_lane drive[2];   /* READ and WRITE */
    uint64_t *retired[2];  /* this run and the one before, by lane_begin + ordinal - 1 */
    uint32_t lane_begin[COH_LANE_COUNT];
    lane_state lanes[COH_LANE_COUNT];
    uint64_t mark;                      /* when the last line of the last run retired */
    uint64_t lane_step[COH_LANE_COUNT]; /* by how much each lane's end moved in the last run */
    uint64_t exposed_ns[COH_LANE_COUNT];
} walk;

/* What moves bytes over a link with a rate; all else computes. */
static int lane_is_link(const coh_profile *profile, int lane)
{
    return lane != COH_LANE_COMPUTE && profile->link[lane].bytes_per_s.p50 > 0;
}

static uint64_t latency_ns(const coh_profile *profile, int lane)
{
    return (uint64_t)profile->link[lane].latency_ns.p50;
}

static uint64_t to_ns(double seconds)
{
    return (uint64_t)(seconds * 1e9 + 0.5);
}

static const int drive_lanes[2] = { COH_LANE_READ, COH_LANE_WRITE };

/* ---- prices ---- */

/* Does the line work on bf16 tensors? Products of bf16 are what makes it fast. */
static int is_bf16(const coh_program *program, const coh_instruction *line)
{
    int found = 0;
    if (line->call < 0)
        return 0;
    const coh_line_call *call = &program->calls[line->call];
    for (uint32_t i = 0; i < call->binding_count; i++)
        found |= program->bindings[call->binding_begin + i].shape.dtype == COH_DTYPE_BF16;
    return found;
}

static uint64_t line_service_ns(const coh_program *program, const coh_profile *profile,
                                const coh_instruction *line)
{
    double bytes = (double)line->bytes;
    if (lane_is_link(profile, line->lane))
        return to_ns(bytes / profile->link[line->lane].bytes_per_s.p50);
    double rate = profile->memory_bytes_per_s.p50;
    /* Checkpoints go through the same drive as the store. */
    if (line->opcode == COH_OP_SAVE && profile->link[COH_LANE_WRITE].bytes_per_s.p50 > 0)
        rate = profile->link[COH_LANE_WRITE].bytes_per_s.p50;
    if (line->opcode == COH_OP_IMPORT && profile->link[COH_LANE_READ].bytes_per_s.p50 > 0)
        rate = profile->link[COH_LANE_READ].bytes_per_s.p50;
    coh_roof roof = is_bf16(program, line) ? COH_ROOF_BF16 : COH_ROOF_F32;
    double flops_per_s = profile->flops_per_s[roof].p50;
    double compute_s = flops_per_s > 0 ? line->flops / flops_per_s : 0;
    double memory_s = rate > 0 ? bytes / rate : 0;
    return (uint64_t)profile->line_ns.p50 + to_ns(compute_s > memory_s ? compute_s : memory_s);
}

static void price_lines(walk *w, coh_simulation *simulation)
{
    for (uint32_t i = 0; i < w->program->line_count; i++) {
        const coh_instruction *line = &w->program->lines[i];
        w->service_ns[i] = w->alone_ns[i] = line_service_ns(w->program, w->profile, line);
        simulation->busy_ns[line->lane] += w->service_ns[i];
        if (lane_is_link(w->profile, line->lane))
            simulation->link_bytes[line->lane] += line->bytes;
    }
}

/* What READ and WRITE get together when both run; 0: they do not meet. */
static double drive_bytes_per_s(const coh_profile *profile)
{
    double part = profile->contention[COH_LANE_READ][COH_LANE_WRITE];
    return part < 1 ? part * (profile->link[COH_LANE_READ].bytes_per_s.p50 +
                              profile->link[COH_LANE_WRITE].bytes_per_s.p50)
                    : 0;
}

/* Of the cores that computing holds, what part the link keeps busy while it runs. */
static double core_demand(const coh_profile *profile, int lane)
{
    return 1 / profile->contention[COH_LANE_COMPUTE][lane] - 1;
}

/* No schedule is faster than the busiest resource. A link is held by its bytes, and by latencies:
 * each line keeps one of `depth` places for its latency and its bytes. Cores are held by what
 * computes, with all its threads, and by links while they move bytes. */
static void find_bound(const walk *w, coh_simulation *simulation)
{
    double core_ns = 0;
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        uint64_t bound = simulation->busy_ns[lane];
        double demand = lane == COH_LANE_COMPUTE ? 1 : core_demand(w->profile, lane);
        if (lane_is_link(w->profile, lane)) {
            uint64_t places = w->program->lane_length[lane] * latency_ns(w->profile, lane) + bound;
            uint64_t depth = w->lanes[lane].depth;
            if (places / depth > bound)
                bound = places / depth;
        }
        core_ns += demand * (double)simulation->busy_ns[lane];
        if (bound > simulation->bound_ns) {
            simulation->bound_ns = bound;
            simulation->bound_lane = (coh_lane)lane;
        }
    }
    double drive_bytes =
        (double)(simulation->link_bytes[COH_LANE_READ] + simulation->link_bytes[COH_LANE_WRITE]);
    double drive_rate = drive_bytes_per_s(w->profile);
    uint64_t drive_ns = drive_rate > 0 ? to_ns(drive_bytes / drive_rate) : 0;
    if (drive_ns > simulation->bound_ns) {
        simulation->bound_ns = drive_ns;
        simulation->bound_lane =
            simulation->busy_ns[COH_LANE_READ] >= simulation->busy_ns[COH_LANE_WRITE]
                ? COH_LANE_READ
                : COH_LANE_WRITE;
    }
    simulation->core_ns = (uint64_t)core_ns;
    if (simulation->core_ns > simulation->bound_ns) {
        simulation->bound_ns = simulation->core_ns;
        simulation->bound_lane = COH_LANE_COUNT;
    }
}

/* Links that copy take cores from what computes. Fluid and first order: over a run of `period_ns`
 * the links hold a mean number of cores; while the sum of demands exceeds the cores, computing is
 * slower by that ratio. Every line alike, so that one pass more of the walk gives the answer. */
static int slow_computing(walk *w, const coh_simulation *simulation, uint64_t period_ns)
{
    double link_core_ns = 0;
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        if (lane_is_link(w->profile, lane))
            link_core_ns += core_demand(w->profile, lane) * (double)simulation->busy_ns[lane];
    if (period_ns == 0)
        return 0;
    double factor = 1 + link_core_ns / (double)period_ns;
    if (!(factor > 1))
        return 0;
    for (uint32_t i = 0; i < w->program->line_count; i++)
        if (!lane_is_link(w->profile, w->program->lines[i].lane))
            w->service_ns[i] = (uint64_t)((double)w->service_ns[i] * factor + 0.5);
    return 1;
}

/* ---- one drive for two lanes ---- */

/* Notes when the lines of READ and WRITE held the drive in the last run. */
static void note_spans(walk *w)
{
    w->drive[0].count = w->drive[1].count = 0;
    w->drive[0].busy = w->drive[1].busy = 0;
    for (uint32_t i = 0; i < w->program->line_count; i++) {
        const coh_instruction *line = &w->program->lines[i];
        if (line->lane != COH_LANE_READ && line->lane != COH_LANE_WRITE)
            continue;
        drive_lane *lane = &w->drive[line->lane == COH_LANE_WRITE];
        uint64_t end = w->end[i] - latency_ns(w->profile, line->lane);
        lane->begin[lane->count] = end - w->service_ns[i];
        lane->end[lane->count] = end;
        lane->busy_before[lane->count++] = lane->busy;
        lane->busy += w->service_ns[i];
    }
}

/* For how long the lane has held the drive by time `when`, counted from its first span. A body
 * repeats with its period, before and after. */
static double held_until(const drive_lane *lane, uint64_t period_ns, double when)
{
    if (lane->count == 0)
        return 0;
    double since = when - (double)lane->begin[0], before = 0;
    if (period_ns > 0) {
        double runs = floor(since / (double)period_ns);
        since -= runs * (double)period_ns;
        before = runs * (double)lane->busy;
    }
    uint32_t low = 0, high = lane->count; /* the last span that begins by then */
    while (low + 1 < high) {
        uint32_t middle = low + (high - low) / 2;
        if ((double)(lane->begin[middle] - lane->begin[0]) <= since)
            low = middle;
        else
            high = middle;
    }
    double into = since - (double)(lane->begin[low] - lane->begin[0]);
    double span = (double)(lane->end[low] - lane->begin[low]);
    if (into < 0)
        return before;
    return before + (double)lane->busy_before[low] + (into < span ? into : span);
}

/* READ and WRITE share a drive: while both run each goes slower, so that together they get what the
 * drive gives. First order: by how much of each line's service the other lane was busy, too, in the
 * last walk. Returns 0 where they never meet. */
static int share_drive(walk *w, uint64_t period_ns)
{
    const coh_link_profile *link = w->profile->link;
    double both = link[COH_LANE_READ].bytes_per_s.p50 + link[COH_LANE_WRITE].bytes_per_s.p50;
    double together = drive_bytes_per_s(w->profile);
    double slowness = together > 0 ? both / together : 1;
    int changed = 0;
    note_spans(w);
    uint64_t period = w->program->kind == COH_PROGRAM_BODY ? period_ns : 0;
    for (int i = 0; i < 2 && slowness > 1; i++) {
        uint32_t count = 0;
        for (uint32_t l = 0; l < w->program->line_count; l++) {
            if (w->program->lines[l].lane != drive_lanes[i])
                continue;
            double begin = (double)w->drive[i].begin[count], end = (double)w->drive[i].end[count];
            double met = held_until(&w->drive[1 - i], period, end) -
                         held_until(&w->drive[1 - i], period, begin);
            double part = end > begin ? met / (end - begin) : 0;
            double rate = 1 - part + part / slowness; /* mean, of the rate alone */
            w->service_ns[l] = to_ns((double)w->alone_ns[l] * 1e-9 / rate);
            changed |= met > 0;
            count++;
        }
    }
    return changed;
}

/* ---- the walk ---- */

/* The time from which line's waits have held, and the lane that held it up last. */
static uint64_t waits_hold(const walk *w, const coh_instruction *line, int is_first,
                           uint8_t *out_lane)
{
    uint64_t when = 0;
    for (uint32_t i = 0; i < line->wait_count; i++) {
        const coh_wait *wait = &w->program->waits[line->wait_begin + i];
        if (wait->carry && is_first)
            continue; /* the run before it is complete */
        uint64_t held = w->retired[wait->carry][w->lane_begin[wait->lane] + wait->ordinal - 1];
        if (held > when) {
            when = held;
            *out_lane = wait->lane;
        }
    }
    return when;
}

static void walk_line(walk *w, uint32_t index, int is_first)
{
    const coh_instruction *line = &w->program->lines[index];
    lane_state *lane = &w->lanes[line->lane];
    uint8_t last_lane = COH_LANE_COMPUTE;
    uint64_t *place = &lane->recent[lane->count % lane->depth];
    uint64_t hold = waits_hold(w, line, is_first, &last_lane);
    /* in order: not before its neighbour began, nor before a place is free */
    uint64_t start = lane->last_start > *place ? lane->last_start : *place;
    if (line->lane == COH_LANE_COMPUTE && hold > start)
        w->exposed_ns[last_lane] += hold - start;
    if (hold > start)
        start = hold;
    uint64_t end = start + w->service_ns[index];
    if (lane_is_link(w->profile, line->lane)) {
        uint64_t begin = start > lane->link_served ? start : lane->link_served;
        lane->link_served = begin + w->service_ns[index];
        end = lane->link_served + latency_ns(w->profile, line->lane);
    }
    w->start[index] = start;
    w->end[index] = end;
    if (end > lane->last_retired)
        lane->last_retired = end; /* retired in order */
    lane->last_start = start;
    lane->count++;
    *place = lane->last_retired;
    w->retired[0][w->lane_begin[line->lane] + line->ordinal - 1] = lane->last_retired;
}

/* One run. Returns 1 when every lane has moved on by what it moved in the run before. */
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
    for (uint32_t i = 0; i < w->program->line_count; i++)
        walk_line(w, i, is_first);
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

/* From rest: the first run, then others until the period repeats. */
static void walk_all(walk *w, coh_simulation *simulation)
{
    uint64_t marks[RUNS_MOST];
    const int is_body = w->program->kind == COH_PROGRAM_BODY;
    int runs = 0, is_settled = 0;
    lanes_reset(w);
    do {
        is_settled = walk_run(w, runs == 0);
        marks[runs++] = w->mark;
    } while (is_body && !is_settled && runs < RUNS_MOST);
    simulation->first_ns = marks[0];
    if (!is_body || runs < 2)
        simulation->period_ns = marks[0];
    else if (is_settled)
        simulation->period_ns = marks[runs - 1] - marks[runs - 2];
    else
        simulation->period_ns = (marks[runs - 1] - marks[runs - 1 - RUNS_AVERAGED]) / RUNS_AVERAGED;
    memcpy(simulation->exposed_ns, w->exposed_ns, sizeof(w->exposed_ns));
}

/* ---- memory ---- */

/* The peak of a tier is the highest end offset ever occupied, so it does not matter when: each
 * extent that a line enters, or that is there from the begin, is occupied at some time. */
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

/* ---- life ---- */

static void walk_fini(walk *w)
{
    coh_free(w->service_ns);
    coh_free(w->alone_ns);
    for (int i = 0; i < 2; i++) {
        coh_free(w->drive[i].begin);
        coh_free(w->drive[i].end);
        coh_free(w->drive[i].busy_before);
    }
    coh_free(w->start);
    coh_free(w->end);
    coh_free(w->retired[0]);
    coh_free(w->retired[1]);
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        coh_free(w->lanes[lane].recent);
}

static coh_status walk_init(walk *w, const coh_program *program, const coh_profile *profile)
{
    uint32_t total = 0;
    *w = (walk){ .program = program, .profile = profile };
    COH_TRY(COH_ALLOC(program->line_count, &w->service_ns));
    COH_TRY(COH_ALLOC(program->line_count, &w->alone_ns));
    for (int i = 0; i < 2; i++) {
        uint32_t count = program->lane_length[drive_lanes[i]];
        COH_TRY(COH_ALLOC(count, &w->drive[i].begin));
        COH_TRY(COH_ALLOC(count, &w->drive[i].end));
        COH_TRY(COH_ALLOC(count, &w->drive[i].busy_before));
    }
    COH_TRY(COH_ALLOC(program->line_count, &w->start));
    COH_TRY(COH_ALLOC(program->line_count, &w->end));
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        int is_link = lane_is_link(profile, lane);
        w->lane_begin[lane] = total;
        total += program->lane_length[lane];
        w->lanes[lane].depth =
            is_link && program->lane_depth[lane] > 0 ? program->lane_depth[lane] : 1;
        COH_TRY(COH_ALLOC(w->lanes[lane].depth, &w->lanes[lane].recent));
    }
    COH_TRY(COH_ALLOC(total, &w->retired[0]));
    return COH_ALLOC(total, &w->retired[1]);
}

static void sum_busy(const walk *w, coh_simulation *simulation)
{
    memset(simulation->busy_ns, 0, sizeof(simulation->busy_ns));
    for (uint32_t i = 0; i < w->program->line_count; i++)
        simulation->busy_ns[w->program->lines[i].lane] += w->service_ns[i];
}

static void write_times(const walk *w, uint64_t *out_line_ns)
{
    uint64_t origin = UINT64_MAX;
    for (uint32_t i = 0; i < w->program->line_count; i++)
        if (w->start[i] < origin)
            origin = w->start[i];
    for (uint32_t i = 0; i < w->program->line_count; i++) {
        out_line_ns[2 * i] = w->start[i] - origin;
        out_line_ns[2 * i + 1] = w->end[i] - origin;
    }
}

coh_status coh_simulate(const coh_layout *layout, const coh_program *program,
                        const coh_profile *profile, coh_simulation *out_simulation,
                        uint64_t *out_line_ns)
{
    walk w;
    coh_status status = walk_init(&w, program, profile);
    *out_simulation = (coh_simulation){ .bound_lane = COH_LANE_COMPUTE };
    if (status != COH_OK) {
        walk_fini(&w);
        return status;
    }
    price_lines(&w, out_simulation);
    find_bound(&w, out_simulation);
    find_peak(layout, program, out_simulation);
    walk_all(&w, out_simulation);
    for (int i = 0; i < SHARINGS && share_drive(&w, out_simulation->period_ns); i++)
        walk_all(&w, out_simulation);
    sum_busy(&w, out_simulation);
    if (slow_computing(&w, out_simulation, out_simulation->period_ns)) {
        sum_busy(&w, out_simulation);
        walk_all(&w, out_simulation);
    }
    /* The bound is sharper than an average of unsettled runs, and than slow_computing. */
    if (out_simulation->period_ns < out_simulation->bound_ns)
        out_simulation->period_ns = out_simulation->bound_ns;
    if (out_simulation->first_ns < out_simulation->bound_ns)
        out_simulation->first_ns = out_simulation->bound_ns;
    if (out_line_ns)
        write_times(&w, out_line_ns);
    walk_fini(&w);
    return COH_OK;
}
