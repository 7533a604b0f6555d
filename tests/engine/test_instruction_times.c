/* Measured instruction times next to the predicted ones. Oracles: the plan's own busy times, the
 * wall clock around the steps, and the rule, applied by hand, that times of a lane do not
 * overlap. */
#include "base/clock.h"
#include "engine/instruction_times.h"
#include "tests/engine/engine_bench.h"

static double lane_sum(const coh_instruction_class *classes, uint32_t count, const char *lane,
                       int predicted)
{
    double sum = 0;
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(classes[i].lane, lane) == 0)
            sum += predicted ? classes[i].predicted_s : classes[i].measured_s;
    return sum;
}

static uint32_t all_instructions(const coh_instruction_class *classes, uint32_t count)
{
    uint32_t instructions = 0;
    for (uint32_t i = 0; i < count; i++)
        instructions += classes[i].instruction_count;
    return instructions;
}

static void check_lane(const run *r, coh_lane lane, const coh_instruction_class *classes,
                       uint32_t count, double wall_s)
{
    coh_plan_summary summary = { .struct_bytes = sizeof(summary) };
    assert_int_equal(coh_plan_summarize(r->plan, &summary), COH_OK);
    const char *name = coh_lane_name(lane);
    const double busy_s = (double)summary.busy_ns[lane] * 1e-9;
    const double measured_s = lane_sum(classes, count, name, 0);
    const double predicted_s = lane_sum(classes, count, name, 1);
    /* two of the three steps count, and each class has its own median over them */
    assert_true(measured_s <= wall_s);
    assert_true((busy_s > 0) == (measured_s > 0));
    if (lane == COH_LANE_COMPUTE && !(fabs(predicted_s / busy_s - 1) < 1e-3))
        fail_msg("instructions of %g s, busy for %g s", predicted_s, busy_s);
}

static void check_run(run *r)
{
    static coh_instruction_class classes[COH_INSTRUCTION_CLASSES_MOST];
    coh_plan_summary summary = { .struct_bytes = sizeof(summary) };
    coh_step_result result = { .struct_bytes = sizeof(result) };
    uint32_t count = 1;
    (void)train(r, 1, 0.002f);
    assert_int_equal(coh_engine_init(r->engine, 42), COH_OK);
    assert_int_equal(coh_engine_instruction_classes(r->engine, classes, &count), COH_OK);
    assert_int_equal(count, 0); /* the first run after a quiet point does not count */
    const uint64_t begin = coh_clock_ns();
    for (uint64_t step = 0; step < 3; step++)
        run_step(r, step, 0.002f, &result);
    const double wall_s = (double)(coh_clock_ns() - begin) * 1e-9;
    assert_int_equal(coh_engine_instruction_classes(r->engine, classes, &count), COH_OK);
    assert_int_equal(coh_plan_summarize(r->plan, &summary), COH_OK);
    assert_int_equal(all_instructions(classes, count), summary.instruction_count);
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        check_lane(r, (coh_lane)lane, classes, count, wall_s);
}

static void every_instruction_is_in_one_class_from_the_second_step_on(void **state)
{
    (void)state;
    for (int p = 0; p < PLACEMENT_COUNT; p++) {
        run r;
        run_begin(&r, &placements[p], 1);
        check_run(&r);
        run_end(&r);
    }
}

/* Instructions in flight together last from the first one's begin to the last one's end. */
static void times_of_a_lane_do_not_overlap(void **state)
{
    (void)state;
    coh_instruction_samples samples[3] = { 0 };
    coh_instruction_times times = { .samples = samples, .instruction_count = 3 };
    const uint64_t begin = coh_clock_ns();
    double sum = 0;
    for (uint32_t instruction = 0; instruction < 3; instruction++) {
        times.begin_ns[COH_LANE_READ] = begin;
        while (coh_clock_ns() - begin < (instruction + 1) * 200000u)
            continue;
        coh_instruction_times_add(&times, COH_LANE_READ, instruction, coh_clock_ns());
        sum += (double)samples[instruction].seconds[0];
    }
    const double wall_s = (double)(times.end_ns[COH_LANE_READ] - begin) * 1e-9;
    assert_true(sum >= wall_s * 0.999 && sum <= wall_s * 1.001);
    times.begin_ns[COH_LANE_READ] = 0; /* an instruction that is not counted */
    coh_instruction_times_add(&times, COH_LANE_READ, 1, coh_clock_ns());
    assert_int_equal(samples[1].count, 1);
}

/* The total is measured like one instruction and divided as predicted; without a prediction,
 * equally. */
static void what_instructions_took_together_is_shared_out_as_predicted(void **state)
{
    (void)state;
    static const uint32_t instructions[3] = { 4, 0, 2 };
    coh_instruction_samples samples[5] = { 0 };
    float predicted_s[5] = { 1e-3f, 9, 2e-3f, 9, 5e-3f };
    coh_instruction_times times = { .samples = samples,
                                    .predicted_s = predicted_s,
                                    .instruction_count = 5 };
    const uint64_t begin = coh_clock_ns();
    times.begin_ns[COH_LANE_COMPUTE] = begin;
    while (coh_clock_ns() - begin < 200000u)
        continue;
    coh_instruction_times_share(&times, COH_LANE_COMPUTE, instructions, 3, coh_clock_ns());
    const double whole_s = (double)(times.end_ns[COH_LANE_COMPUTE] - begin) * 1e-9;
    const double expected[5] = { whole_s / 8, 0, whole_s / 4, 0, whole_s * 5 / 8 };
    for (int i = 0; i < 5; i++) {
        assert_int_equal(samples[i].count, expected[i] > 0);
        assert_true(fabs((double)samples[i].seconds[0] - expected[i]) < 1e-4 * whole_s);
    }
    predicted_s[4] = predicted_s[0] = predicted_s[2] = 0;
    times.begin_ns[COH_LANE_COMPUTE] = times.end_ns[COH_LANE_COMPUTE];
    coh_instruction_times_share(&times, COH_LANE_COMPUTE, instructions, 3, coh_clock_ns());
    assert_true(samples[0].seconds[1] > 0 && samples[0].seconds[1] == samples[4].seconds[1]);
    times.begin_ns[COH_LANE_COMPUTE] = 0; /* a run that is not counted */
    coh_instruction_times_share(&times, COH_LANE_COMPUTE, instructions, 3, coh_clock_ns());
    assert_int_equal(samples[2].count, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_instruction_is_in_one_class_from_the_second_step_on),
        cmocka_unit_test(times_of_a_lane_do_not_overlap),
        cmocka_unit_test(what_instructions_took_together_is_shared_out_as_predicted),
    };
    return run_in_each_dtype(tests);
}
