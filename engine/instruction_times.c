/* Turns begins and ends of instructions into times, by one rule for measured and for simulated
 * runs, so that both can be compared. Next: instruction_times.h; report.c and calibrate.c use
 * the times. */
#include "engine/instruction_times.h"

#include "base/alloc.h"

/* Returns the time of the lane's work that has just ended; negative: it does not count. */
static double take_time(coh_instruction_times *times, coh_lane lane, uint64_t end_ns)
{
    uint64_t begin = times->begin_ns[lane];
    const int counts = begin != 0 && times->samples != NULL;
    if (begin < times->end_ns[lane])
        begin = times->end_ns[lane];
    times->end_ns[lane] = end_ns;
    return counts ? (double)(end_ns - begin) * 1e-9 : -1;
}

static void add(coh_instruction_times *times, uint32_t instruction, double seconds)
{
    coh_instruction_samples *samples = &times->samples[instruction];
    samples->seconds[samples->count++ % COH_TIMES_KEPT] = (float)seconds;
}

void coh_instruction_times_add(coh_instruction_times *times, coh_lane lane, uint32_t instruction,
                               uint64_t end_ns)
{
    const double seconds = take_time(times, lane, end_ns);
    if (seconds >= 0)
        add(times, instruction, seconds);
}

void coh_instruction_times_share(coh_instruction_times *times, coh_lane lane,
                                 const uint32_t *instructions, uint32_t count, uint64_t end_ns)
{
    const double seconds = take_time(times, lane, end_ns);
    double predicted = 0;
    for (uint32_t i = 0; seconds >= 0 && i < count; i++)
        predicted += (double)times->predicted_s[instructions[i]];
    for (uint32_t i = 0; seconds >= 0 && i < count; i++)
        add(times, instructions[i],
            seconds * (predicted > 0 ? (double)times->predicted_s[instructions[i]] / predicted
                                     : 1.0 / count));
}

/* Applies the rule of the header to simulated begins and ends. Lanes retire in order. */
static void take_times(const coh_program *body, const uint64_t *instruction_ns, float *out_seconds)
{
    uint64_t end[COH_LANE_COUNT] = { 0 };
    for (uint32_t i = 0; i < body->instruction_count; i++) {
        const int lane = body->instructions[i].lane;
        uint64_t from = instruction_ns[2 * (size_t)i], to = instruction_ns[2 * (size_t)i + 1];
        if (to < end[lane])
            to = end[lane];
        if (from < end[lane])
            from = end[lane];
        end[lane] = to;
        out_seconds[i] = (float)(to - from) * 1e-9f;
    }
}

static coh_status predict(const coh_plan *plan, float *out_seconds)
{
    const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    coh_simulation simulation;
    uint64_t *instruction_ns = NULL;
    COH_TRY(COH_ALLOC(2 * (size_t)body->instruction_count, &instruction_ns));
    const coh_status status =
        coh_simulate_priced(&plan->layout, body, &plan->pricer, &simulation, instruction_ns);
    if (status == COH_OK)
        take_times(body, instruction_ns, out_seconds);
    coh_free(instruction_ns);
    return status;
}

coh_status coh_instruction_times_init(coh_instruction_times *out_times, const coh_plan *plan)
{
    const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    *out_times = (coh_instruction_times){ .instruction_count = body->instruction_count };
    /* A plan that was made by hand has no profile and so no prices. */
    if (body->instruction_count == 0 || plan->pricer.profile == NULL)
        return COH_OK;
    COH_TRY(COH_ALLOC(body->instruction_count, &out_times->samples));
    COH_TRY(COH_ALLOC(body->instruction_count, &out_times->predicted_s));
    return predict(plan, out_times->predicted_s);
}

void coh_instruction_times_fini(coh_instruction_times *times)
{
    coh_free(times->samples);
    coh_free(times->predicted_s);
    *times = (coh_instruction_times){ 0 };
}
