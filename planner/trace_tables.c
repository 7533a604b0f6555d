/* Allocates, checks and frees the tables of a trace. The one idea: everything is one block, laid
 * out by the counts, so freeing needs no knowledge of who filled it. Next: engine/trace_file.c
 * stores a trace. */
#include "planner/trace_tables.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"

/* Reserves `count` elements at the end of the block; returns their offset. */
static coh_status reserve(uint64_t count, uint64_t element_bytes, uint64_t *total,
                          uint64_t *out_offset)
{
    uint64_t bytes;
    *out_offset = *total;
    COH_TRY(coh_bytes_mul(count, element_bytes, &bytes));
    COH_TRY(coh_bytes_add(*total, bytes, total));
    COH_TRY(coh_bytes_add(*total, 15, total));
    *total &= ~(uint64_t)15;
    return COH_OK;
}

coh_status coh_trace_allocate(const coh_trace *counts, size_t text_bytes,
                              coh_trace_tables *out_tables, coh_trace **out_trace)
{
    uint64_t total = (sizeof(coh_trace) + 15) & ~(uint64_t)15, at[9], spans;
    char *block;
    *out_trace = NULL;
    COH_TRY(coh_bytes_mul(counts->step_count, counts->instruction_count, &spans));
    COH_TRY(reserve(counts->opcode_count, sizeof(char *), &total, &at[0]));
    COH_TRY(reserve(counts->purpose_count, sizeof(char *), &total, &at[1]));
    COH_TRY(reserve(counts->operator_count, sizeof(coh_trace_operator), &total, &at[2]));
    COH_TRY(reserve(counts->instruction_count, sizeof(coh_trace_instruction), &total, &at[3]));
    COH_TRY(reserve(counts->wait_count, sizeof(coh_trace_wait), &total, &at[4]));
    COH_TRY(reserve(counts->extent_count, sizeof(coh_trace_extent), &total, &at[5]));
    COH_TRY(reserve(counts->step_count, sizeof(coh_trace_step), &total, &at[6]));
    COH_TRY(reserve(spans, sizeof(coh_trace_span), &total, &at[7]));
    COH_TRY(reserve(text_bytes, 1, &total, &at[8]));
    COH_TRY(coh_alloc(total, 1, (void **)&block));
    coh_trace *trace = (coh_trace *)block;
    *out_tables = (coh_trace_tables){
        .opcodes = (const char **)(block + at[0]),
        .purposes = (const char **)(block + at[1]),
        .operators = (coh_trace_operator *)(block + at[2]),
        .instructions = (coh_trace_instruction *)(block + at[3]),
        .waits = (coh_trace_wait *)(block + at[4]),
        .extents = (coh_trace_extent *)(block + at[5]),
        .texts = block + at[8],
    };
    *trace = *counts;
    trace->opcodes = out_tables->opcodes;
    trace->purposes = out_tables->purposes;
    trace->operators = out_tables->operators;
    trace->instructions = out_tables->instructions;
    trace->waits = out_tables->waits;
    trace->extents = out_tables->extents;
    trace->steps = (coh_trace_step *)(block + at[6]);
    for (uint32_t i = 0; i < counts->step_count; i++)
        trace->steps[i].spans =
            (coh_trace_span *)(block + at[7]) + (size_t)i * counts->instruction_count;
    *out_trace = trace;
    return COH_OK;
}

void coh_trace_free(coh_trace *trace)
{
    coh_free(trace);
}

const char *coh_trace_text(const char *text, char **texts)
{
    const size_t bytes = strlen(text) + 1;
    char *copy = memcpy(*texts, text, bytes);
    *texts += bytes;
    return copy;
}

/* ---- checks ---- */

static int is_rate(double value)
{
    return isfinite(value) && value >= 0;
}

/* COH_TRACE_NONE or below `count`. */
static int is_index(uint32_t index, uint32_t count)
{
    return index == COH_TRACE_NONE || index < count;
}

static int has_tables(const coh_trace *t)
{
    return (t->opcodes || !t->opcode_count) && (t->purposes || !t->purpose_count) &&
           (t->operators || !t->operator_count) && (t->instructions || !t->instruction_count) &&
           (t->waits || !t->wait_count) && (t->extents || !t->extent_count);
}

static int has_texts(const coh_trace *t)
{
    for (uint32_t i = 0; i < t->opcode_count; i++)
        if (!t->opcodes[i])
            return 0;
    for (uint32_t i = 0; i < t->purpose_count; i++)
        if (!t->purposes[i])
            return 0;
    for (uint32_t i = 0; i < t->operator_count; i++) {
        const coh_trace_operator *o = &t->operators[i];
        if (!o->name || !o->kind || !o->activations || !o->parameters || !o->states ||
            !o->updates || !o->pattern)
            return 0;
    }
    return 1;
}

static int is_instruction(const coh_trace *t, const coh_trace_instruction *i)
{
    return i->opcode < t->opcode_count && is_index(i->operator_index, t->operator_count) &&
           is_index(i->stream, t->purpose_count) && i->lane < COH_LANE_COUNT && i->is_shared <= 1 &&
           i->predicted_begin_ns <= i->predicted_end_ns &&
           i->predicted_end_ns <= COH_TRACE_TIME_MOST && i->wait_begin <= t->wait_count &&
           i->wait_count <= t->wait_count - i->wait_begin && is_rate(i->flops);
}

static int is_extent(const coh_trace *t, const coh_trace_extent *e)
{
    return e->first < t->instruction_count && e->last < t->instruction_count &&
           e->purpose < t->purpose_count && e->tier < COH_TIER_COUNT && e->at_begin <= 1 &&
           e->at_end <= 1;
}

coh_status coh_trace_check(const coh_trace *trace, coh_status failure)
{
    int rates = is_rate(trace->flops_per_s);
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        rates &= is_rate(trace->lane_bytes_per_s[lane]);
    if (!rates || trace->predicted_step_ns > COH_TRACE_TIME_MOST)
        return coh_fail(failure, "a rate or the step's time of the trace is impossible");
    if (!has_tables(trace) || !has_texts(trace))
        return coh_fail(failure, "a table or a text of the trace is missing");
    for (uint32_t i = 0; i < trace->instruction_count; i++)
        if (!is_instruction(trace, &trace->instructions[i]))
            return coh_fail(failure, "instruction %" PRIu32 " of the trace contradicts the tables",
                            i);
    for (uint32_t i = 0; i < trace->wait_count; i++)
        if (trace->waits[i].instruction >= trace->instruction_count || trace->waits[i].carry > 1)
            return coh_fail(failure, "wait %" PRIu32 " of the trace names no instruction", i);
    for (uint32_t i = 0; i < trace->extent_count; i++)
        if (!is_extent(trace, &trace->extents[i]))
            return coh_fail(failure, "extent %" PRIu32 " of the trace contradicts the tables", i);
    return COH_OK;
}
