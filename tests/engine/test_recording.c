/* Recorded steps. The oracles: an instruction begins after everything that it waits for has ended,
 * in this step and across steps; the wall clock around the steps; the hash of a run that records
 * nothing. */
#include "base/clock.h"
#include "cohobate/trace.h"
#include "engine/step_records.h"
#include "tests/engine/engine_bench.h"
#include "tests/faults/alloc_faults.h"

enum { KEPT = 2, STEPS = 5 };

/* The step before, in absolute times, for waits that are carried. */
typedef struct history {
    coh_trace_span *spans;
    int is_there;
} history;

static uint64_t absolute(const coh_trace_step *step, uint64_t ns)
{
    return step->begin_ns + ns;
}

static void check_waits(const coh_trace *trace, const coh_trace_step *step, const history *before,
                        uint32_t index)
{
    const coh_trace_instruction *instruction = &trace->instructions[index];
    for (uint32_t w = 0; w < instruction->wait_count; w++) {
        const coh_trace_wait *wait = &trace->waits[instruction->wait_begin + w];
        if (wait->carry && !before->is_there)
            continue;
        const uint64_t end = wait->carry ? before->spans[wait->instruction].end_ns
                                         : absolute(step, step->spans[wait->instruction].end_ns);
        /* A queue or disk lane is in order; what it has in flight does not wait for itself. */
        if (trace->instructions[wait->instruction].lane != instruction->lane)
            assert_true(absolute(step, step->spans[index].begin_ns) >= end);
    }
}

static void check_step(const coh_trace *trace, const coh_trace_step *step, history *before)
{
    uint64_t lane_end[COH_LANE_COUNT] = { 0 }, earliest = UINT64_MAX;
    for (uint32_t i = 0; i < trace->instruction_count; i++) {
        const coh_trace_span *span = &step->spans[i];
        const uint8_t lane = trace->instructions[i].lane;
        assert_true(span->begin_ns <= span->end_ns);
        assert_true(span->end_ns >= lane_end[lane]); /* lanes retire in order */
        lane_end[lane] = span->end_ns;
        earliest = span->begin_ns < earliest ? span->begin_ns : earliest;
        check_waits(trace, step, before, i);
    }
    assert_int_equal(earliest, 0);
    for (uint32_t i = 0; i < trace->instruction_count; i++)
        before->spans[i] = (coh_trace_span){ absolute(step, step->spans[i].begin_ns),
                                             absolute(step, step->spans[i].end_ns) };
    before->is_there = 1;
}

/* Every instruction of every step is in the latencies of its lane. */
static void check_latencies(run *r, const coh_trace *trace, uint64_t steps)
{
    coh_trace_latency latencies[COH_LANE_COUNT];
    uint64_t counted[COH_LANE_COUNT] = { 0 }, wanted[COH_LANE_COUNT] = { 0 };
    assert_int_equal(coh_engine_latencies(r->engine, latencies), COH_OK);
    for (uint32_t i = 0; i < trace->instruction_count; i++)
        wanted[trace->instructions[i].lane] += steps;
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        for (int power = 0; power < COH_TRACE_LATENCIES; power++)
            counted[lane] += latencies[lane].counts[power];
        assert_int_equal(counted[lane], wanted[lane]);
    }
}

static void submit(run *r, uint64_t step)
{
    const coh_step_input in = step_input(step, 0.002f);
    assert_int_equal(coh_engine_submit(r->engine, &in), COH_OK);
}

/* Two steps in flight, as in training; nothing is allocated on the way. */
static void check_run(run *r)
{
    coh_trace *trace = NULL;
    coh_step_result result = { .struct_bytes = sizeof(result) };
    history before = { 0 };
    assert_int_equal(coh_engine_trace(r->engine, &trace), COH_OK);
    before.spans = calloc(trace->instruction_count, sizeof(*before.spans));
    const uint64_t allocations = alloc_count(), begin = coh_clock_ns();
    submit(r, 0);
    for (uint64_t step = 0; step < STEPS; step++) {
        coh_trace_step record;
        if (step + 1 < STEPS)
            submit(r, step + 1);
        assert_int_equal(coh_engine_recorded(r->engine, step, &record), COH_ERR_ARGUMENT);
        assert_int_equal(coh_engine_wait(r->engine, &result), COH_OK);
        assert_int_equal(coh_engine_recorded(r->engine, step, &record), COH_OK);
        assert_int_equal(record.step, step);
        assert_int_equal(record.step_ns, result.step_ns);
        assert_true(record.begin_ns >= begin && record.begin_ns <= coh_clock_ns());
        assert_int_equal(record.counters.store_retries, 0);
        assert_true(record.counters.minor_faults < UINT64_MAX / 2);
        check_step(trace, &record, &before);
    }
    assert_int_equal(alloc_count(), allocations);
    check_latencies(r, trace, STEPS);
    free(before.spans);
    coh_trace_free(trace);
}

static void instructions_begin_after_all_that_they_wait_for(void **state)
{
    (void)state;
    for (int p = 0; p < PLACEMENT_COUNT; p++) {
        run r;
        run_prepare(&r, &placements[p], 1);
        r.options.record_steps = KEPT;
        r.options.delay_seed = (uint64_t)p; /* shuffles the lanes; 0 in the first */
        r.options.delay_most_us = 200;
        run_create(&r);
        assert_int_equal(coh_engine_init(r.engine, 42), COH_OK);
        check_run(&r);
        run_end(&r);
    }
}

/* Drains and hashes between steps neither are recorded nor take a step's place. */
static void other_programs_are_not_recorded(void **state)
{
    (void)state;
    run r;
    coh_trace_step record;
    coh_trace *trace = NULL;
    run_prepare(&r, &placements[2], 1);
    r.options.record_steps = KEPT;
    run_create(&r);
    assert_int_equal(coh_engine_init(r.engine, 42), COH_OK);
    assert_int_equal(coh_engine_trace(r.engine, &trace), COH_OK);
    const uint64_t hash = train(&r, KEPT, 0.002f);
    for (int i = 0; i < 3 * KEPT; i++)
        (void)run_hash(&r);
    check_latencies(&r, trace, KEPT);
    for (uint64_t step = 0; step < KEPT; step++)
        assert_int_equal(coh_engine_recorded(r.engine, step, &record), COH_OK);
    assert_int_equal(coh_engine_recorded(r.engine, KEPT, &record), COH_ERR_ARGUMENT);
    (void)train(&r, 2 * KEPT + 3, 0.002f);
    assert_int_equal(coh_engine_recorded(r.engine, 0, &record), COH_ERR_ARGUMENT);
    coh_trace_free(trace);
    run_end(&r);
    run_begin(&r, &placements[2], 1);
    assert_int_equal(train(&r, KEPT, 0.002f), hash); /* recording changes no bit */
    assert_int_equal(coh_engine_recorded(r.engine, 0, &record), COH_ERR_ARGUMENT);
    coh_trace_latency latencies[COH_LANE_COUNT];
    assert_int_equal(coh_engine_latencies(r.engine, latencies), COH_ERR_ARGUMENT);
    run_end(&r);
}

/* A CUDA graph's time is divided as predicted, without gaps; without prices equally. */
static void a_run_is_divided_as_predicted(void **state)
{
    (void)state;
    static const uint32_t instructions[3] = { 4, 0, 2 };
    static const float predicted_s[5] = { 1e-3f, 9, 2e-3f, 9, 5e-3f };
    coh_step_records records;
    assert_int_equal(coh_step_records_init(&records, 1, 5), COH_OK);
    for (int priced = 1; priced >= 0; priced--) {
        coh_step_record *record = coh_step_records_begin(&records, 1, 0);
        const coh_trace_span *spans = record->step.spans;
        record->step.spans[4].begin_ns = 1000;
        coh_step_records_share(&records, record, instructions, 3, priced ? predicted_s : NULL,
                               9000);
        assert_int_equal(spans[4].begin_ns, 1000);
        assert_in_range(spans[4].end_ns, priced ? 5999 : 3666, priced ? 6001 : 3667);
        assert_int_equal(spans[0].begin_ns, spans[4].end_ns);
        assert_in_range(spans[0].end_ns, priced ? 6999 : 6332, priced ? 7001 : 6334);
        assert_int_equal(spans[2].begin_ns, spans[0].end_ns);
        assert_int_equal(spans[2].end_ns, 9000);
    }
    coh_step_records_fini(&records);
    coh_step_records_fini(&records);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(instructions_begin_after_all_that_they_wait_for),
        cmocka_unit_test(other_programs_are_not_recorded),
        cmocka_unit_test(a_run_is_divided_as_predicted),
    };
    return run_in_each_dtype(tests);
}
