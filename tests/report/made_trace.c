/* Makes traces of a streamed model by playing its program: list order, lanes, waits. The play is
 * the tests' own, and shares no code with the planner's simulator or the report. */
#include "tests/report/made_trace.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { READ, FWD, BWD, UPDATE, WRITE, OPCODES };
static const char *const opcode_names[OPCODES] = { "read", "forward", "backward", "update",
                                                   "write" };
static const uint8_t opcode_lanes[OPCODES] = { COH_LANE_READ, COH_LANE_COMPUTE, COH_LANE_COMPUTE,
                                               COH_LANE_HOST, COH_LANE_WRITE };

static void need(coh_status status)
{
    if (status != COH_OK) {
        fprintf(stderr, "%s\n", coh_last_error());
        abort();
    }
}

/* The tables as they are filled. */
typedef struct maker {
    const made_options *options;
    coh_trace_tables tables;
    coh_trace *trace;
    uint32_t instructions, waits;
    uint64_t *durations;
} maker;

static uint32_t add(maker *m, int opcode, uint32_t of, uint64_t ns)
{
    const int moves = opcode == READ || opcode == WRITE;
    m->durations[m->instructions] = ns;
    m->tables.instructions[m->instructions] = (coh_trace_instruction){
        .opcode = (uint32_t)opcode,
        .operator_index = of,
        .lane = opcode_lanes[opcode],
        .bytes = moves ? m->options->chunk_bytes : 0,
        .flops = opcode == FWD || opcode == BWD ? 1e9 : 0,
        .chunk = moves ? of * m->options->chunks : COH_TRACE_NONE,
        .stream = moves ? 0 : COH_TRACE_NONE,
        .microbatch = opcode == FWD || opcode == BWD ? 0 : -1,
        .wait_begin = m->waits,
    };
    return m->instructions++;
}

static void wait_for(maker *m, uint32_t instruction, uint32_t carry)
{
    m->tables.waits[m->waits++] = (coh_trace_wait){ instruction, carry };
    m->tables.instructions[m->instructions - 1].wait_count++;
}

static void fill_program(maker *m)
{
    const made_options *o = m->options;
    const uint32_t n = o->operators, per = o->chunks + 1;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t chunk = 0; chunk < o->chunks; chunk++) {
            add(m, READ, i, o->read_ns);
            m->tables.instructions[m->instructions - 1].chunk += chunk;
            wait_for(m, n * per + (n - 1 - i) * 3 + 2, 1); /* WRITE of the step before */
            if (i >= 2)
                wait_for(m, (i - 1) * per - 1, 0); /* room for two operators: FWD i - 2 */
        }
        const uint32_t forward = add(m, FWD, i, o->forward_ns);
        for (uint32_t chunk = 0; chunk < o->chunks; chunk++)
            wait_for(m, forward - o->chunks + chunk, 0);
    }
    for (uint32_t i = n; i-- > 0;) {
        const uint32_t backward = add(m, BWD, i, o->backward_ns);
        wait_for(m, i * per + per - 1, 0);
        add(m, UPDATE, i, o->update_ns);
        wait_for(m, backward, 0);
        add(m, WRITE, i, o->write_ns);
        wait_for(m, backward + 1, 0);
    }
}

static void fill_operators(maker *m)
{
    char name[128], *texts = m->tables.texts;
    const char *prefix = m->options->operator_name ? m->options->operator_name : "blocks.";
    for (uint32_t i = 0; i < OPCODES; i++)
        m->tables.opcodes[i] = coh_trace_text(opcode_names[i], &texts);
    m->tables.purposes[0] = coh_trace_text("work", &texts);
    for (uint32_t i = 0; i < m->options->operators; i++) {
        snprintf(name, sizeof(name), "%s%u", prefix, i);
        m->tables.operators[i] = (coh_trace_operator){
            .name = coh_trace_text(name, &texts),
            .kind = coh_trace_text("linear", &texts),
            .activations = "keep",
            .parameters = "disk",
            .states = "disk",
            .updates = "host",
            .pattern = "replicate",
            .block = (int32_t)i,
        };
    }
}

static void fill_extents(maker *m)
{
    const made_options *o = m->options;
    for (uint32_t i = 0; i < o->operators; i++)
        m->tables.extents[i] = (coh_trace_extent){
            .bytes = o->chunk_bytes * o->chunks,
            .first = i * (o->chunks + 1),
            .last = i * (o->chunks + 1) + o->chunks,
            .tier = COH_TIER_DEVICE,
        };
}

coh_trace *made_trace(const made_options *o)
{
    maker m = { .options = o };
    coh_trace counts = {
        .opcode_count = OPCODES,
        .purpose_count = 1,
        .operator_count = o->operators,
        .instruction_count = o->operators * (o->chunks + 4),
        .wait_count = o->operators * (o->chunks * 3 + 3),
        .extent_count = o->operators,
        .step_count = o->steps,
        .pinned_bytes = { 1 << 20 },
        .arena_bytes = { (1 << 20) + 3 * o->chunk_bytes * o->chunks },
        .budget_bytes = { (1 << 20) + 4 * o->chunk_bytes * o->chunks, 0, UINT64_MAX },
        .flops_per_s = o->forward_ns ? 1e18 / (double)o->forward_ns : 0,
        .program_hash = 42,
    };
    counts.lane_bytes_per_s[COH_LANE_READ] = o->read_bytes_per_s;
    counts.lane_bytes_per_s[COH_LANE_WRITE] =
        o->write_ns ? 1e9 * (double)o->chunk_bytes / (double)o->write_ns : 0;
    need(coh_trace_allocate(&counts, 256 + (size_t)o->operators * 160, &m.tables, &m.trace));
    need(COH_ALLOC(counts.instruction_count, &m.durations));
    fill_program(&m);
    assert(m.instructions == counts.instruction_count && m.waits <= counts.wait_count);
    m.trace->wait_count = m.waits;
    fill_operators(&m);
    fill_extents(&m);
    /* the third of three steps is steady; its spans become the predictions */
    coh_trace played = *m.trace;
    coh_trace_step steps[3];
    coh_trace_span *spans;
    need(COH_ALLOC((size_t)3 * counts.instruction_count, &spans));
    for (uint32_t i = 0; i < 3; i++)
        steps[i] = (coh_trace_step){ .spans = spans + (size_t)i * counts.instruction_count };
    played.steps = steps;
    played.step_count = 3;
    made_run(&played, m.durations);
    for (uint32_t i = 0; i < counts.instruction_count; i++) {
        m.tables.instructions[i].predicted_begin_ns = steps[2].spans[i].begin_ns;
        m.tables.instructions[i].predicted_end_ns = steps[2].spans[i].end_ns;
    }
    m.trace->predicted_step_ns = steps[2].step_ns;
    made_run(m.trace, m.durations);
    coh_free(spans);
    coh_free(m.durations);
    need(coh_trace_check(m.trace, COH_ERR_INTERNAL));
    return m.trace;
}

/* ---- playing ---- */

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

void made_run(coh_trace *trace, const uint64_t *durations)
{
    uint64_t *ends, *before, free_at[COH_LANE_COUNT] = { 0 }, compute_end = 0;
    need(COH_ALLOC(trace->instruction_count, &ends));
    need(COH_ALLOC(trace->instruction_count, &before));
    for (uint32_t s = 0; s < trace->step_count; s++) {
        coh_trace_step *step = &trace->steps[s];
        uint64_t first = UINT64_MAX;
        for (uint32_t i = 0; i < trace->instruction_count; i++) {
            const coh_trace_instruction *in = &trace->instructions[i];
            uint64_t begin = free_at[in->lane];
            for (uint32_t w = 0; w < in->wait_count; w++) {
                const coh_trace_wait *wait = &trace->waits[in->wait_begin + w];
                begin = later(begin, (wait->carry ? before : ends)[wait->instruction]);
            }
            ends[i] = free_at[in->lane] = begin + durations[i];
            step->spans[i] = (coh_trace_span){ begin, ends[i] };
            first = begin < first ? begin : first;
        }
        for (uint32_t i = 0; i < trace->instruction_count; i++) {
            step->spans[i].begin_ns -= first;
            step->spans[i].end_ns -= first;
            before[i] = ends[i];
        }
        step->step = s;
        step->begin_ns = 1000000000 + first;
        step->step_ns = free_at[COH_LANE_COMPUTE] - compute_end;
        step->counters =
            (coh_trace_counters){ .gpu_clock_hz = UINT64_MAX, .gpu_power_mw = UINT64_MAX };
        compute_end = free_at[COH_LANE_COMPUTE];
    }
    coh_free(ends);
    coh_free(before);
}

uint32_t made_find(const coh_trace *trace, const char *opcode, uint32_t operator_index)
{
    for (uint32_t i = 0; i < trace->instruction_count; i++)
        if (trace->instructions[i].operator_index == operator_index &&
            strcmp(trace->opcodes[trace->instructions[i].opcode], opcode) == 0)
            return i;
    abort();
}

void made_scale(const coh_trace *trace, uint64_t *durations, const char *opcode, double factor)
{
    for (uint32_t i = 0; i < trace->instruction_count; i++)
        if (!*opcode || strcmp(trace->opcodes[trace->instructions[i].opcode], opcode) == 0)
            durations[i] = (uint64_t)((double)durations[i] * factor);
}

uint64_t *made_durations(const coh_trace *trace)
{
    uint64_t *durations;
    need(COH_ALLOC(trace->instruction_count, &durations));
    for (uint32_t i = 0; i < trace->instruction_count; i++)
        durations[i] =
            trace->instructions[i].predicted_end_ns - trace->instructions[i].predicted_begin_ns;
    return durations;
}
