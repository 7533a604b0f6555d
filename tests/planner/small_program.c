#include "tests/planner/small_program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/rng.h"

void make(made *m, coh_program_kind kind)
{
    memset(m, 0, sizeof(*m));
    m->program.kind = kind;
    m->program.instructions = m->instructions;
    m->program.waits = m->waits;
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        m->program.lane_depth[lane] = 1;
}

uint32_t add(made *m, coh_lane lane, uint64_t amount)
{
    coh_instruction *instruction = &m->instructions[m->program.instruction_count++];
    int is_link = lane >= COH_LANE_H2D && lane <= COH_LANE_WRITE;
    *instruction = (coh_instruction){
        .opcode = (uint8_t)(is_link ? COH_OP_READ : COH_OP_FORWARD),
        .lane = (uint8_t)lane,
        .ordinal = ++m->program.lane_length[lane],
        .wait_begin = m->program.wait_count,
        .call = -1,
        .bytes = is_link ? amount : 0,
        .flops = is_link ? 0 : (double)amount,
    };
    return instruction->ordinal;
}

void wait_for(made *m, coh_lane lane, uint32_t ordinal, int carry)
{
    m->waits[m->program.wait_count++] =
        (coh_wait){ .ordinal = ordinal, .lane = (uint8_t)lane, .carry = (uint8_t)carry };
    m->instructions[m->program.instruction_count - 1].wait_count++;
}

coh_profile unit_profile(void)
{
    coh_profile profile;
    coh_profile_init(&profile);
    profile.flops_per_s[COH_ROOF_F32] = coh_figure_of(1e9);
    profile.memory_bytes_per_s = coh_figure_of(1e9);
    for (int lane = COH_LANE_H2D; lane <= COH_LANE_WRITE; lane++)
        profile.link[lane].bytes_per_s = coh_figure_of(1e9);
    return profile;
}

void share_drive(coh_profile *profile)
{
    profile->contention[COH_LANE_READ][COH_LANE_WRITE] = 0.5;
    profile->contention[COH_LANE_WRITE][COH_LANE_READ] = 0.5;
}

void instruction_times(const made *m, uint64_t *out_ns)
{
    for (uint32_t i = 0; i < m->program.instruction_count; i++)
        out_ns[i] = m->instructions[i].bytes + (uint64_t)m->instructions[i].flops;
}

coh_simulation run_as(const made *m, const coh_profile *profile, coh_contention contention,
                      uint64_t *times)
{
    coh_simulation simulation;
    uint64_t service_ns[INSTRUCTIONS_MOST];
    instruction_times(m, service_ns);
    assert_int_equal(coh_simulate(&m->program, profile, service_ns, contention, &simulation, times),
                     COH_OK);
    return simulation;
}

coh_simulation run(const made *m, const coh_profile *profile, uint64_t *times)
{
    return run_as(m, profile, COH_CONTENTION_FLUID, times);
}

void make_random(made *m, uint64_t seed, coh_program_kind kind)
{
    static const coh_lane lanes[] = { COH_LANE_COMPUTE, COH_LANE_COMPUTE, COH_LANE_READ,
                                      COH_LANE_WRITE,   COH_LANE_H2D,     COH_LANE_HOST };
    uint64_t draw = 0;
    make(m, kind);
    for (int i = 0; i < 40; i++) {
        coh_lane lane = lanes[coh_rng_below(seed, 0, draw++, 6)];
        add(m, lane, coh_rng_below(seed, 0, draw++, 1000));
        uint64_t count = coh_rng_below(seed, 0, draw++, 4);
        for (uint64_t k = 0; k < count && i > 0; k++) {
            uint64_t j = coh_rng_below(seed, 0, draw++, (uint64_t)i);
            wait_for(m, (coh_lane)m->instructions[j].lane, m->instructions[j].ordinal, 0);
        }
    }
    for (int lane = COH_LANE_H2D; lane <= COH_LANE_WRITE; lane++)
        m->program.lane_depth[lane] = 1 + (uint32_t)coh_rng_below(seed, 0, draw++, 5);
}

void make_random_body(made *m, uint64_t seed)
{
    static const coh_lane lanes[] = { COH_LANE_COMPUTE, COH_LANE_READ, COH_LANE_WRITE };
    uint64_t draw = 0;
    uint32_t ordinal[8], length[COH_LANE_COUNT] = { 0 };
    coh_lane lane[8];
    for (int i = 0; i < 8; i++) {
        lane[i] = i < 3 ? lanes[i] : lanes[coh_rng_below(seed, 1, draw++, 3)];
        ordinal[i] = ++length[lane[i]];
    }
    make(m, COH_PROGRAM_BODY);
    for (int i = 0; i < 8; i++) {
        add(m, lane[i], 1 + coh_rng_below(seed, 1, draw++, 1000));
        uint64_t j = coh_rng_below(seed, 1, draw++, 8);
        if (j < (uint64_t)i)
            wait_for(m, lane[j], ordinal[j], 0);
        if (i % 4 == 0) {
            j = coh_rng_below(seed, 1, draw++, 8);
            wait_for(m, lane[j], ordinal[j], 1);
        }
    }
    m->program.lane_depth[COH_LANE_READ] = 3;
}

static void raise_bound(lower_bound *bound, uint64_t ns, int lane, int beside)
{
    if (ns > bound->ns)
        *bound = (lower_bound){ .ns = ns, .lane = (coh_lane)lane, .beside = (coh_lane)beside };
}

/* A linear program: t together and s, r alone with a t + s >= x and b t + r >= y. Its dual has
 * three corners. A third lane only makes both slower. */
static double pair_least(double x, double y, double a, double b)
{
    if (a + b <= 1)
        return x + y;
    return fmax(x + y * (1 - a) / b, y + x * (1 - b) / a);
}

lower_bound bound_of(const made *m, const coh_profile *profile)
{
    lower_bound bound = { .lane = COH_LANE_COMPUTE, .beside = COH_LANE_COUNT };
    uint64_t service_ns[INSTRUCTIONS_MOST], busy[COH_LANE_COUNT] = { 0 };
    instruction_times(m, service_ns);
    for (uint32_t i = 0; i < m->program.instruction_count; i++)
        busy[m->instructions[i].lane] += service_ns[i];
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        const uint64_t latency = (uint64_t)profile->link[lane].latency_ns.p50;
        const uint64_t depth = m->program.lane_depth[lane];
        raise_bound(&bound, busy[lane], lane, COH_LANE_COUNT);
        if (coh_profile_is_link(profile, (coh_lane)lane))
            raise_bound(&bound, (m->program.lane_length[lane] * latency + busy[lane]) / depth, lane,
                        COH_LANE_COUNT);
        for (int other = 0; other < lane; other++)
            if (busy[lane] > 0 && busy[other] > 0)
                raise_bound(&bound,
                            (uint64_t)floor(pair_least((double)busy[lane], (double)busy[other],
                                                       profile->contention[lane][other],
                                                       profile->contention[other][lane])),
                            lane, other);
    }
    return bound;
}
