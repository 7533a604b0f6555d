/* Computes the lower bounds of a set of decisions. The idea: lower and price the compute
 * instructions once (the base), then evaluate the bounds of any memory sizes without placing
 * anything. The bounds are explained in bounds.h; bytes over links are computed in
 * bounds_traffic.c. */
#include "planner/bounds.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "planner/bounds_traffic.h"
#include "planner/layout.h"
#include "planner/lower.h"
#include "planner/pins.h"

/* Windows begin at this many evenly spread steps, and where the step turns from forward to backward
 * and back. */
enum { EVEN_STARTS = 8, TURNS_MOST = 8 };

/* An instruction of the host lane: runs after compute instruction `release` ends and before
 * instruction `use` of the next step (steps of the base's lowered body). */
typedef struct host_instruction {
    uint64_t service_ns, work_bytes, grad_bytes;
    uint32_t release, use;
} host_instruction;

struct coh_bound_base {
    const coh_plan_options *options;
    const coh_pricer *pricer;
    const coh_profile *profile;
    int in_memory;
    int is_whole; /* all but the layout and compute times is made once a bound asks for it */
    coh_layout layout;
    coh_lowered lowered; /* of a whole base: without the host lane's instructions */
    uint32_t *operand_begin;
    coh_traffic traffic; /* of the compute lane's instructions */
    coh_traffic whole;   /* of both lanes; empty without a host lane */
    coh_traffic both;    /* likewise, with device and host as one memory */
    host_instruction *host_instructions;
    uint32_t host_instruction_count;
    uint64_t host_ns;
    /* by step: compute time of all steps before it; the last one: of all steps */
    uint64_t *before_ns;
    uint32_t step_count;  /* of the compute lane */
    uint32_t updates_end; /* the step after the last deferred update */
    uint32_t starts[EVEN_STARTS + TURNS_MOST];
    uint32_t start_count;
    double least_ns_per_byte[COH_LANE_COUNT];
    uint64_t chunk_most_bytes;
};

static const char *const bound_names[COH_PLAN_BOUND_COUNT] = {
    [COH_PLAN_BOUND_COMPUTE] = "compute",
    [COH_PLAN_BOUND_H2D] = "h2d",
    [COH_PLAN_BOUND_D2H] = "d2h",
    [COH_PLAN_BOUND_READ] = "read",
    [COH_PLAN_BOUND_WRITE] = "write",
    [COH_PLAN_BOUND_HOST] = "host update",
    [COH_PLAN_BOUND_LINK] = "h2d and d2h",
    [COH_PLAN_BOUND_DRIVE] = "read and write",
    [COH_PLAN_BOUND_CORES] = "cores",
    [COH_PLAN_BOUND_DRAM] = "DRAM",
    [COH_PLAN_BOUND_TURNAROUND] = "turnaround",
    [COH_PLAN_BOUND_HOST_WINDOW] = "host window",
    [COH_PLAN_BOUND_UPDATE_PHASE] = "update phase",
    [COH_PLAN_BOUND_PHASE] = "phase",
};

const char *coh_plan_bound_name(coh_plan_bound bound)
{
    return (unsigned)bound < COH_PLAN_BOUND_COUNT ? bound_names[bound] : "?";
}

/* ---- the base ---- */

static const coh_lane links[] = { COH_LANE_H2D, COH_LANE_D2H, COH_LANE_READ, COH_LANE_WRITE };
static const coh_opcode movers[] = { COH_OP_LOAD, COH_OP_STORE, COH_OP_READ, COH_OP_WRITE };
enum { LINK_COUNT = 4 };

/* Prices an instruction as the assembled program's instruction will be priced: by opcode, work,
 * and the operator or group it belongs to. */
static uint64_t instruction_ns(const coh_bound_base *base, const coh_pricer *pricer,
                               const coh_lowered_instruction *lowered)
{
    coh_operand first = { 0 };
    if (lowered->comm > 0) /* on a lane of its own */
        return 0;
    if (lowered->operand_count > 0)
        first.object = base->lowered.operands[lowered->operand_begin].object;
    const coh_program program = { .operands = &first,
                                  .operand_count = 1,
                                  .calls = base->lowered.calls,
                                  .call_count = (uint32_t)base->lowered.call_count,
                                  .bindings = base->lowered.bindings,
                                  .binding_count = (uint32_t)base->lowered.binding_count };
    const coh_instruction instruction = { .opcode = (uint8_t)lowered->opcode,
                                          .lane = (uint8_t)lowered->lane,
                                          .operand_count = lowered->operand_count,
                                          .call = lowered->call,
                                          .bytes = lowered->bytes,
                                          .flops = lowered->flops };
    return coh_whole_ns(coh_price_instruction(pricer, &base->layout, &program, &instruction).p50);
}

/* Finds the least ns per byte of each link: the rounded time of a chunk over its bytes, the least
 * of all chunks. */
static void find_link_rates(coh_bound_base *base, const coh_pricer *pricer)
{
    uint64_t last_bytes = 0;
    for (uint32_t chunk = 0; chunk < base->layout.chunk_count; chunk++) {
        uint64_t bytes = base->layout.chunks[chunk].bytes;
        if (base->layout.objects[base->layout.chunks[chunk].object].pinned || bytes == last_bytes)
            continue;
        last_bytes = bytes;
        if (bytes > base->chunk_most_bytes)
            base->chunk_most_bytes = bytes;
        for (int i = 0; i < LINK_COUNT; i++) {
            const coh_instruction instruction = {
                .opcode = (uint8_t)movers[i], .lane = (uint8_t)links[i], .bytes = bytes, .call = -1
            };
            if (!coh_profile_is_link(base->profile, links[i]))
                continue;
            const coh_program none = { 0 };
            double ns = (double)coh_whole_ns(
                            coh_price_instruction(pricer, &base->layout, &none, &instruction).p50) /
                        (double)bytes;
            double *least = &base->least_ns_per_byte[links[i]];
            if (*least == 0 || ns < *least)
                *least = ns;
        }
    }
}

static int is_backward(const coh_lowered_instruction *instruction)
{
    return instruction->opcode == COH_OP_BACKWARD || instruction->opcode == COH_OP_RECOMPUTE;
}

static void find_starts(coh_bound_base *base)
{
    uint32_t count = (uint32_t)base->lowered.instruction_count;
    int was_backward = 0;
    for (uint32_t i = 0; i < EVEN_STARTS && i < count; i++)
        base->starts[base->start_count++] = (uint32_t)((uint64_t)count * i / EVEN_STARTS);
    for (uint32_t i = 0; i < count && base->start_count < EVEN_STARTS + TURNS_MOST; i++) {
        const coh_lowered_instruction *instruction = &base->lowered.instructions[i];
        if (instruction->opcode != COH_OP_FORWARD && !is_backward(instruction))
            continue;
        if (is_backward(instruction) != was_backward)
            base->starts[base->start_count++] = i;
        was_backward = is_backward(instruction);
    }
}

/* ---- the host lane ---- */

static int touches(const coh_lowered *lowered, const coh_lowered_instruction *instruction,
                   const coh_lowered_operand *of, int access)
{
    for (uint32_t i = 0; i < instruction->operand_count; i++) {
        const coh_lowered_operand *operand = &lowered->operands[instruction->operand_begin + i];
        if (operand->object == of->object && (operand->access & access) &&
            operand->touch_begin < of->touch_end && of->touch_begin < operand->touch_end)
            return 1;
    }
    return 0;
}

static uint64_t operand_bytes(const coh_layout *layout, const coh_lowered_operand *operand)
{
    uint64_t bytes = 0;
    for (uint32_t k = operand->touch_begin; k < operand->touch_end; k++)
        bytes += layout->chunks[layout->objects[operand->object].chunk_begin + k].bytes;
    return bytes;
}

/* Computes when an update of the host lane may begin, and when its parameters are needed. A
 * deferred update begins after its step's CLIP, the last compute instruction; an update in
 * backward begins after the last writer of its gradient. Returns 0 if nothing reads the
 * parameters, or if they are needed only after that. `at`: its index in the lowered body. */
static int find_times(const coh_bound_base *base, size_t at, const uint32_t *compute_before,
                      host_instruction *out, coh_traffic_span *out_span)
{
    const coh_lowered *lowered = &base->lowered;
    const coh_lowered_operand *work = &lowered->operands[lowered->instructions[at].operand_begin],
                              *grad = work + 1;
    const int64_t instructions = compute_before[lowered->instruction_count];
    int is_deferred = coh_plan_defers(base->options);
    size_t release = is_deferred ? lowered->instruction_count - 1 : at, use = is_deferred ? at : 0;
    while (!is_deferred && release > 0 &&
           (lowered->instructions[release].lane == COH_LANE_HOST ||
            !touches(lowered, &lowered->instructions[release], grad, COH_ACCESS_WRITE)))
        release--;
    while (use < lowered->instruction_count &&
           (lowered->instructions[use].lane == COH_LANE_HOST ||
            !touches(lowered, &lowered->instructions[use], work, COH_ACCESS_READ)))
        use++;
    out->release = compute_before[release];
    out->use = use < lowered->instruction_count ? compute_before[use] : 0;
    out->work_bytes = operand_bytes(&base->layout, work);
    out->grad_bytes = is_deferred ? 0 : operand_bytes(&base->layout, grad);
    if (use < lowered->instruction_count) /* a deferred one belongs to the step before */
        *out_span = (coh_traffic_span){ .early = is_deferred ? 0 : (int64_t)out->release + 1,
                                        .late = out->use + (is_deferred ? 0 : instructions) };
    return use < lowered->instruction_count && out->use <= out->release;
}

static int compare_uses(const void *x, const void *y)
{
    uint32_t a = ((const host_instruction *)x)->use, b = ((const host_instruction *)y)->use;
    return a < b ? -1 : a > b;
}

/* `spans`: by lowered instruction, the range of time in which it runs. */
static coh_status list_host_instructions(coh_bound_base *base, const coh_pricer *pricer,
                                         coh_traffic_span *spans)
{
    size_t count = base->lowered.instruction_count;
    uint32_t *compute_before = NULL;
    COH_TRY(COH_ALLOC(count + 1, &base->host_instructions));
    COH_TRY(COH_ALLOC(count + 1, &compute_before));
    for (size_t i = 0; i < count; i++)
        compute_before[i + 1] =
            compute_before[i] + (base->lowered.instructions[i].lane != COH_LANE_HOST);
    for (size_t i = 0; i < count; i++) {
        const coh_lowered_instruction *instruction = &base->lowered.instructions[i];
        host_instruction *out = &base->host_instructions[base->host_instruction_count];
        spans[i] = (coh_traffic_span){ .early = compute_before[i], .late = compute_before[i] };
        if (instruction->lane != COH_LANE_HOST)
            continue;
        spans[i] = COH_TRAFFIC_ANY_TIME;
        out->service_ns = instruction_ns(base, pricer, instruction);
        base->host_ns += out->service_ns;
        base->host_instruction_count +=
            (uint32_t)(instruction->opcode == COH_OP_UPDATE &&
                       find_times(base, i, compute_before, out, &spans[i]));
    }
    coh_free(compute_before);
    if (base->host_instruction_count > 1)
        qsort(base->host_instructions, base->host_instruction_count,
              sizeof(*base->host_instructions), compare_uses);
    return COH_OK;
}

/* Removes the host lane's instructions, which windows leave out: they run when they can. Without
 * the device copies that they make stale, no part of a step is slower. */
static void drop_host_instructions(coh_lowered *lowered)
{
    size_t instructions = 0, operands = 0;
    for (size_t i = 0; i < lowered->instruction_count; i++) {
        coh_lowered_instruction instruction = lowered->instructions[i];
        if (instruction.lane == COH_LANE_HOST)
            continue;
        memmove(lowered->operands + operands, lowered->operands + instruction.operand_begin,
                instruction.operand_count * sizeof(*lowered->operands));
        instruction.operand_begin = (uint32_t)operands;
        operands += instruction.operand_count;
        lowered->instructions[instructions++] = instruction;
    }
    lowered->instruction_count = instructions;
    lowered->operand_count = operands;
}

static void begin_operands(coh_bound_base *base)
{
    for (size_t i = 0; i < base->lowered.instruction_count; i++)
        base->operand_begin[i + 1] =
            base->operand_begin[i] + base->lowered.instructions[i].operand_count;
}

static coh_status make_traffic(coh_bound_base *base, const coh_traffic_span *spans,
                               coh_traffic *out)
{
    const coh_sequence sequence = { .step_count = (uint32_t)base->lowered.instruction_count,
                                    .operand_begin = base->operand_begin,
                                    .operands = base->lowered.operands };
    return coh_traffic_init_spans(&base->layout, &sequence, spans, out);
}

/* Records the host lane's work before its instructions are removed. */
static coh_status take_host_instructions(coh_bound_base *base, const coh_pricer *pricer)
{
    int some = 0;
    for (size_t i = 0; i < base->lowered.instruction_count; i++)
        some |= base->lowered.instructions[i].lane == COH_LANE_HOST;
    if (!some)
        return COH_OK;
    coh_traffic_span *spans = NULL;
    begin_operands(base);
    COH_TRY(make_traffic(base, NULL, &base->whole));
    COH_TRY(COH_ALLOC(base->lowered.instruction_count, &spans));
    coh_status status = list_host_instructions(base, pricer, spans);
    if (status == COH_OK && base->options->disk_bytes > 0)
        status = make_traffic(base, spans, &base->both);
    coh_free(spans);
    drop_host_instructions(&base->lowered);
    return status;
}

/* ---- the whole base ---- */

/* Computes when each step of the compute lane begins if it never waits. */
static coh_status find_compute_times(coh_bound_base *base)
{
    uint32_t step = 0;
    COH_TRY(COH_ALLOC(base->lowered.instruction_count + 1, &base->before_ns));
    for (size_t i = 0; i < base->lowered.instruction_count; i++) {
        const coh_lowered_instruction *instruction = &base->lowered.instructions[i];
        if (instruction->lane == COH_LANE_HOST)
            continue;
        base->before_ns[step + 1] =
            base->before_ns[step] + instruction_ns(base, base->pricer, instruction);
        step++;
        if (instruction->opcode == COH_OP_UPDATE && coh_plan_defers(base->options))
            base->updates_end = step;
    }
    base->step_count = step;
    return COH_OK;
}

static coh_status begin_base(coh_bound_base *base, const coh_graph *graph,
                             const coh_decisions *decisions)
{
    coh_object_map map = { 0 };
    coh_block_set recompute = decisions->recompute;
    int has_host = !decisions->in_memory && base->options->host_memory_bytes > 0;
    COH_TRY(coh_pins_blocks(graph, base->options, &recompute));
    const coh_plan_options alone = coh_alone(base->options);
    COH_TRY(coh_layout_build(graph, base->options, decisions, &base->layout, &map));
    coh_status status =
        coh_lower(graph, &alone, &base->layout, &map, &recompute,
                  coh_decided_host_updates(decisions, has_host), COH_PROGRAM_BODY, &base->lowered);
    coh_object_map_fini(&map);
    COH_TRY(status);
    return find_compute_times(base);
}

/* Makes the rest of the base. */
static coh_status complete(coh_bound_base *base)
{
    if (base->is_whole)
        return COH_OK;
    COH_TRY(COH_ALLOC(base->lowered.instruction_count + 1, &base->operand_begin));
    COH_TRY(take_host_instructions(base, base->pricer));
    find_link_rates(base, base->pricer);
    find_starts(base);
    begin_operands(base);
    COH_TRY(make_traffic(base, NULL, &base->traffic));
    base->is_whole = 1;
    return COH_OK;
}

coh_status coh_bound_base_create(const coh_graph *graph, const coh_plan_options *options,
                                 const coh_pricer *pricer, const coh_decisions *decisions,
                                 coh_bound_base **out_base)
{
    coh_bound_base *base = NULL;
    *out_base = NULL;
    COH_TRY(COH_ALLOC(1, &base));
    base->options = options;
    base->pricer = pricer;
    base->profile = pricer->profile;
    base->in_memory = decisions->in_memory;
    coh_status status = begin_base(base, graph, decisions);
    if (status != COH_OK) {
        coh_bound_base_destroy(base);
        return status;
    }
    *out_base = base;
    return COH_OK;
}

void coh_bound_base_destroy(coh_bound_base *base)
{
    if (base == NULL)
        return;
    coh_traffic_fini(&base->traffic);
    coh_traffic_fini(&base->whole);
    coh_traffic_fini(&base->both);
    coh_free(base->host_instructions);
    coh_lowered_fini(&base->lowered);
    coh_layout_fini(&base->layout);
    coh_free(base->operand_begin);
    coh_free(base->before_ns);
    coh_free(base);
}

/* ---- links ---- */

static uint64_t compute_ns(const coh_bound_base *base)
{
    return base->before_ns[base->step_count];
}

/* The time of bytes over a link: at its best rate, or with one latency per instruction and
 * `depth` instructions in flight, whichever is longer. */
static uint64_t link_ns(const coh_bound_base *base, coh_lane lane, uint64_t bytes)
{
    const coh_link_profile *link = &base->profile->link[lane];
    double served = (double)bytes * base->least_ns_per_byte[lane];
    if (bytes == 0)
        return 0;
    uint64_t instructions = (bytes + base->chunk_most_bytes - 1) / base->chunk_most_bytes;
    double latency = (double)instructions * (double)coh_whole_ns(link->latency_ns.p50);
    double places = (served + latency) / (link->depth > 0 ? link->depth : 1);
    return (uint64_t)floor(served > places ? served : places);
}

typedef struct window {
    const coh_bound_base *base;
    coh_lane lane;
    uint64_t first_step;
    uint64_t phase_ns, update_phase_ns; /* the largest so far */
    uint64_t told_bytes;                /* of the last step, or 0 */
} window;

/* Bounds a step by `bytes` that must move between the beginnings of the window's first step and of
 * `step`. */
static uint64_t bound_by(const window *w, uint64_t step, uint64_t bytes)
{
    const coh_bound_base *base = w->base;
    const uint64_t count = base->step_count, local = step % count;
    uint64_t inside = base->before_ns[local] - base->before_ns[w->first_step];
    if (step >= count)
        inside += compute_ns(base);
    const double passing = (double)bytes * base->least_ns_per_byte[w->lane] +
                           (double)coh_whole_ns(base->profile->link[w->lane].latency_ns.p50);
    return (uint64_t)floor(passing) + compute_ns(base) - inside;
}

static int is_update_phase(const window *w, uint64_t step)
{
    return w->first_step == 0 && step <= w->base->updates_end;
}

static void window_told(void *context, uint64_t step, uint64_t bytes)
{
    window *w = context;
    const int is_update = is_update_phase(w, step);
    /* as many bytes until a later step bound less */
    if (bytes == 0 || step == w->first_step || (bytes == w->told_bytes && !is_update))
        return;
    w->told_bytes = is_update ? 0 : bytes;
    const uint64_t ns = bound_by(w, step, bytes);
    if (is_update && ns > w->update_phase_ns)
        w->update_phase_ns = ns;
    else if (ns > w->phase_ns)
        w->phase_ns = ns;
}

static void raise_bound(coh_bounds *bounds, coh_plan_bound bound, uint64_t ns)
{
    if (ns > bounds->ns[bound])
        bounds->ns[bound] = ns;
}

static uint64_t largest_of(const coh_bounds *bounds)
{
    uint64_t most = 0;
    for (int b = 0; b < COH_PLAN_BOUND_COUNT; b++)
        most = bounds->ns[b] > most ? bounds->ns[b] : most;
    return most;
}

/* A direction of a link, whose near side has this capacity. */
typedef struct link_way {
    coh_lane lane;
    enum coh_traffic_way way;
    coh_plan_bound name;
    uint64_t room_bytes;
} link_way;

/* What is asked for. `enough_ns`: ends with the first bound of this. `only_most`: nothing but the
 * largest of all bounds. */
typedef struct question {
    uint64_t enough_ns;
    int only_most;
} question;

/* Lists the directions of the links. Data in neither tier comes from the drive: for it, device and
 * host count as one memory. Returns their number. */
static int list_ways(const coh_bound_base *base, uint64_t device_bytes, uint64_t host_bytes,
                     link_way *out)
{
    const uint64_t pinned = base->layout.pinned_bytes;
    const uint64_t room = device_bytes > pinned ? device_bytes - pinned : 0;
    const uint64_t both = room > UINT64_MAX - host_bytes ? UINT64_MAX : room + host_bytes;
    int count = 0;
    if (base->options->host_memory_bytes > 0) {
        out[count++] = (link_way){ COH_LANE_H2D, COH_TRAFFIC_FETCH, COH_PLAN_BOUND_H2D, room };
        out[count++] = (link_way){ COH_LANE_D2H, COH_TRAFFIC_STORE, COH_PLAN_BOUND_D2H, room };
    }
    if (base->options->disk_bytes > 0) {
        out[count++] = (link_way){ COH_LANE_READ, COH_TRAFFIC_FETCH, COH_PLAN_BOUND_READ, both };
        out[count++] = (link_way){ COH_LANE_WRITE, COH_TRAFFIC_STORE, COH_PLAN_BOUND_WRITE, both };
    }
    return count;
}

/* Bounds a direction by the fewest bytes of a step. */
static coh_status bound_bytes(const coh_bound_base *base, const link_way *w, coh_bounds *out)
{
    const int is_device = w->lane == COH_LANE_H2D || w->lane == COH_LANE_D2H;
    const coh_traffic *settled =
        is_device && base->whole.step_count > 0 ? &base->whole : &base->traffic;
    COH_TRY(coh_traffic_least(settled, w->way, w->room_bytes, &out->least_bytes[w->lane]));
    if (!is_device && base->both.step_count > 0) {
        uint64_t bytes = 0;
        COH_TRY(coh_traffic_least(&base->both, w->way, w->room_bytes, &bytes));
        if (bytes > out->least_bytes[w->lane])
            out->least_bytes[w->lane] = bytes;
    }
    raise_bound(out, w->name, link_ns(base, w->lane, out->least_bytes[w->lane]));
    return COH_OK;
}

/* Returns of how many steps a window is worth running: none later raises a bound, by the bytes that
 * a settled repetition moves up to and with each step. */
static uint32_t steps_worth_running(const window *w, const uint64_t *after_bytes,
                                    const question *asked, const coh_bounds *bounds)
{
    const uint32_t count = w->base->step_count, first = (uint32_t)w->first_step;
    const uint64_t before = first > 0 ? after_bytes[first - 1] : 0;
    const uint64_t phase = bounds->ns[COH_PLAN_BOUND_PHASE];
    const uint64_t update = bounds->ns[COH_PLAN_BOUND_UPDATE_PHASE];
    const uint64_t known = asked->only_most ? largest_of(bounds) : phase;
    const uint64_t least = asked->only_most || phase < update ? known : update;
    uint32_t steps = 0;
    for (uint32_t i = 1; i < count; i++) {
        const uint64_t step = (uint64_t)first + i;
        const uint64_t bytes = step < count
                                   ? after_bytes[step] - before
                                   : after_bytes[step - count] + after_bytes[count - 1] - before;
        if (bytes > 0 && bound_by(w, step, bytes) > (is_update_phase(w, step) ? least : known))
            steps = i + 1;
    }
    return steps;
}

/* Bounds a direction by windows, as far as they may raise a bound. Windows take long; the turns of
 * the step, which are last in the list, mostly give the largest. */
static coh_status bound_windows(const coh_bound_base *base, const link_way *way,
                                const question *asked, uint64_t *after_bytes, coh_bounds *out)
{
    uint64_t unused;
    int is_settled;
    if (out->least_bytes[way->lane] == 0 || largest_of(out) >= asked->enough_ns)
        return COH_OK;
    COH_TRY(coh_traffic_settled(&base->traffic, way->way, way->room_bytes, &unused, after_bytes,
                                &is_settled));
    for (uint32_t i = base->start_count; i-- > 0 && largest_of(out) < asked->enough_ns;) {
        window w = { .base = base, .lane = way->lane, .first_step = base->starts[i] };
        const uint32_t steps =
            is_settled ? steps_worth_running(&w, after_bytes, asked, out) : base->step_count;
        COH_TRY(coh_traffic_window(&base->traffic, way->way, way->room_bytes, base->starts[i],
                                   steps, window_told, &w));
        raise_bound(out, COH_PLAN_BOUND_PHASE, w.phase_ns);
        raise_bound(out, COH_PLAN_BOUND_UPDATE_PHASE, w.update_phase_ns);
    }
    return COH_OK;
}

/* ---- updates at the host ---- */

static uint64_t transfer_ns(const coh_bound_base *base, coh_lane lane, uint64_t bytes)
{
    return (uint64_t)floor((double)bytes * base->least_ns_per_byte[lane]) +
           coh_whole_ns(base->profile->link[lane].latency_ns.p50);
}

/* The least time for two lanes with work of x and y alone, which run at a and b of their speed
 * while both are busy. A linear program: t together and s, r alone with a t + s >= x and
 * b t + r >= y. Its dual has three corners. A third lane only makes both slower. */
static double pair_least(double x, double y, double a, double b)
{
    if (a + b <= 1)
        return x + y;
    double first = x + y * (1 - a) / b, second = y + x * (1 - b) / a;
    return first > second ? first : second;
}

/* The updates whose parameters are needed until some instruction, and what moves for them. */
typedef struct host_work {
    uint64_t ns, work_bytes, grad_bytes;
} host_work;

/* The least time from the release of the first of these updates to the use of the last: the host
 * lane slows, and is slowed by, the gradients, the parameters, and the `inside_ns` of instructions
 * of that time. After the last update some parameters still arrive, for `load_ns` at least; what
 * moves or computes meanwhile meets no update, and takes that time itself if it is more. */
static uint64_t window_ns(const coh_bound_base *base, const host_work *of, uint64_t inside_ns,
                          uint64_t load_ns)
{
    const double beside[COH_LANE_COUNT] = {
        [COH_LANE_COMPUTE] = (double)inside_ns - (double)load_ns,
        [COH_LANE_H2D] =
            (double)of->work_bytes * base->least_ns_per_byte[COH_LANE_H2D] - (double)load_ns,
        [COH_LANE_D2H] = (double)of->grad_bytes * base->least_ns_per_byte[COH_LANE_D2H],
    };
    double memory_ns = (double)of->ns * base->profile->memory_part[COH_LANE_HOST];
    for (int lane = COH_LANE_H2D; lane <= COH_LANE_D2H; lane++)
        memory_ns += beside[lane] > 0 ? beside[lane] * base->profile->memory_part[lane] : 0;
    double most = memory_ns > (double)of->ns ? memory_ns : (double)of->ns;
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        const double a = base->profile->contention[COH_LANE_HOST][lane];
        const double b = base->profile->contention[lane][COH_LANE_HOST];
        const double least = beside[lane] > 0 ? pair_least((double)of->ns, beside[lane], a, b) : 0;
        most = least > most ? least : most;
    }
    return (uint64_t)floor(most) + load_ns;
}

/* Bounds each update's path from the last instruction of its gradient to the first instruction
 * of its parameters. Also bounds all updates whose parameters are needed until some instruction:
 * they run one after another, and the rest of the step follows. */
static void bound_host(const coh_bound_base *base, coh_bounds *out)
{
    uint64_t release = UINT64_MAX, least_load_ns = UINT64_MAX;
    host_work sum = { 0 };
    raise_bound(out, COH_PLAN_BOUND_HOST, base->host_ns);
    for (uint32_t i = 0; i < base->host_instruction_count; i++) {
        const host_instruction *instruction = &base->host_instructions[i];
        uint64_t load_ns = transfer_ns(base, COH_LANE_H2D, instruction->work_bytes);
        uint64_t way_ns = instruction->service_ns + load_ns;
        if (instruction->grad_bytes > 0)
            way_ns += transfer_ns(base, COH_LANE_D2H, instruction->grad_bytes);
        raise_bound(out, COH_PLAN_BOUND_TURNAROUND,
                    way_ns + base->before_ns[instruction->release + 1] -
                        base->before_ns[instruction->use]);
        sum.ns += instruction->service_ns;
        sum.work_bytes += instruction->work_bytes;
        sum.grad_bytes += instruction->grad_bytes;
        release = instruction->release < release ? instruction->release : release;
        least_load_ns = load_ns < least_load_ns ? load_ns : least_load_ns;
        uint64_t beside_ns = instruction->use <= release
                                 ? base->before_ns[release + 1] - base->before_ns[instruction->use]
                                 : 0;
        raise_bound(out, COH_PLAN_BOUND_HOST_WINDOW,
                    window_ns(base, &sum, compute_ns(base) - beside_ns, least_load_ns) + beside_ns);
    }
}

/* ---- two lanes at once ---- */

static coh_plan_bound pair_name(int a, int b)
{
    if (a == COH_LANE_COMPUTE || b == COH_LANE_COMPUTE)
        return COH_PLAN_BOUND_CORES;
    if ((a == COH_LANE_H2D || a == COH_LANE_D2H) && (b == COH_LANE_H2D || b == COH_LANE_D2H))
        return COH_PLAN_BOUND_LINK;
    if ((a == COH_LANE_READ || a == COH_LANE_WRITE) && (b == COH_LANE_READ || b == COH_LANE_WRITE))
        return COH_PLAN_BOUND_DRIVE;
    return COH_PLAN_BOUND_DRAM;
}

static void bound_pairs(const coh_bound_base *base, coh_bounds *out)
{
    double busy[COH_LANE_COUNT] = {
        [COH_LANE_COMPUTE] = (double)compute_ns(base), [COH_LANE_HOST] = (double)base->host_ns
    };
    for (int i = 0; i < LINK_COUNT; i++)
        busy[links[i]] = (double)out->least_bytes[links[i]] * base->least_ns_per_byte[links[i]];
    double memory_ns = 0; /* of what passes through host memory */
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        memory_ns += busy[lane] * base->profile->memory_part[lane];
    raise_bound(out, COH_PLAN_BOUND_DRAM, (uint64_t)floor(memory_ns));
    for (int a = 0; a < COH_LANE_COUNT; a++)
        for (int b = 0; b < a; b++) {
            double x = base->profile->contention[a][b], y = base->profile->contention[b][a];
            if (busy[a] > 0 && busy[b] > 0 && (x < 1 || y < 1))
                raise_bound(out, pair_name(a, b),
                            (uint64_t)floor(pair_least(busy[a], busy[b], x, y)));
        }
}

/* ---- the whole ---- */

/* The group of a bound: bounds that the same change of the machine or plan would lower. The first
 * and second limit reported are of different groups. */
static int group_of(coh_plan_bound bound)
{
    switch (bound) {
    case COH_PLAN_BOUND_COMPUTE:
    case COH_PLAN_BOUND_CORES:
        return 0;
    case COH_PLAN_BOUND_H2D:
    case COH_PLAN_BOUND_D2H:
    case COH_PLAN_BOUND_LINK:
        return 1;
    case COH_PLAN_BOUND_READ:
    case COH_PLAN_BOUND_WRITE:
    case COH_PLAN_BOUND_DRIVE:
        return 2;
    case COH_PLAN_BOUND_HOST:
    case COH_PLAN_BOUND_DRAM:
    case COH_PLAN_BOUND_TURNAROUND:
    case COH_PLAN_BOUND_HOST_WINDOW:
        return 3;
    case COH_PLAN_BOUND_UPDATE_PHASE:
    case COH_PLAN_BOUND_PHASE:
        return 4;
    case COH_PLAN_BOUND_COUNT:
        break;
    }
    return 5;
}

static void name_limits(coh_bounds *out)
{
    out->binding = COH_PLAN_BOUND_COMPUTE;
    for (int b = 0; b < COH_PLAN_BOUND_COUNT; b++)
        if (out->ns[b] > out->ns[out->binding])
            out->binding = (coh_plan_bound)b;
    out->most_ns = out->ns[out->binding];
    out->runner_up = out->binding;
    for (int b = 0; b < COH_PLAN_BOUND_COUNT; b++)
        if (group_of((coh_plan_bound)b) != group_of(out->binding) &&
            (out->runner_up == out->binding || out->ns[b] > out->ns[out->runner_up]))
            out->runner_up = (coh_plan_bound)b;
}

static coh_status bound_links(const coh_bound_base *base, const link_way *ways, int count,
                              const question *asked, coh_bounds *out)
{
    uint64_t *after_bytes = NULL;
    coh_status status = COH_OK;
    for (int i = 0; i < count && largest_of(out) < asked->enough_ns; i++)
        COH_TRY(bound_bytes(base, &ways[i], out));
    bound_pairs(base, out);
    COH_TRY(COH_ALLOC((size_t)base->step_count + 1, &after_bytes));
    for (int i = 0; i < count && status == COH_OK; i++)
        status = bound_windows(base, &ways[i], asked, after_bytes, out);
    coh_free(after_bytes);
    return status;
}

static coh_status bound_all(coh_bound_base *base, uint64_t device_bytes, uint64_t host_bytes,
                            const question *asked, coh_bounds *out_bounds)
{
    *out_bounds = (coh_bounds){ 0 };
    out_bounds->ns[COH_PLAN_BOUND_COMPUTE] = compute_ns(base);
    if (!base->in_memory && compute_ns(base) < asked->enough_ns) {
        link_way ways[LINK_COUNT];
        COH_TRY(complete(base));
        bound_host(base, out_bounds);
        const int count = list_ways(base, device_bytes, host_bytes, ways);
        COH_TRY(bound_links(base, ways, count, asked, out_bounds));
    }
    name_limits(out_bounds);
    return COH_OK;
}

coh_status coh_bounds_until(coh_bound_base *base, uint64_t device_bytes, uint64_t host_bytes,
                            uint64_t enough_ns, coh_bounds *out_bounds)
{
    const question asked = { .enough_ns = enough_ns, .only_most = 1 };
    return bound_all(base, device_bytes, host_bytes, &asked, out_bounds);
}

coh_status coh_bounds_at(coh_bound_base *base, uint64_t device_bytes, uint64_t host_bytes,
                         coh_bounds *out_bounds)
{
    const question asked = { .enough_ns = UINT64_MAX };
    return bound_all(base, device_bytes, host_bytes, &asked, out_bounds);
}
