/* Prices of instructions: the roofline, samples, interpolation between samples, and which samples
 * apply. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "planner/fingerprint.h"
#include "planner/price.h"
#include "tests/faults/alloc_faults.h"
#include "tests/planner/toy_graph.h"

static const coh_layout no_layout;

/* A flop or a byte lasts 1 ns. */
static coh_profile unit_profile(void)
{
    coh_profile profile;
    coh_profile_init(&profile);
    profile.flops_per_s[COH_ROOF_F32] = coh_figure_of(1e9);
    profile.memory_bytes_per_s = coh_figure_of(1e9);
    for (int lane = COH_LANE_H2D; lane <= COH_LANE_WRITE; lane++)
        profile.link[lane].bytes_per_s = coh_figure_of(1e9);
    return profile;
}

static coh_instruction instruction_of(coh_opcode opcode, coh_lane lane, double flops,
                                      uint64_t bytes)
{
    return (coh_instruction){
        .opcode = (uint8_t)opcode, .lane = (uint8_t)lane, .call = -1, .flops = flops, .bytes = bytes
    };
}

static coh_price price(const coh_profile *profile, const coh_instruction *instruction)
{
    coh_pricer pricer;
    coh_program program = { 0 };
    assert_int_equal(coh_pricer_init(&pricer, profile, NULL), COH_OK);
    coh_price found = coh_price_instruction(&pricer, &no_layout, &program, instruction);
    coh_pricer_fini(&pricer);
    return found;
}

static int close_to(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b);
}

/* ---- the roofline ---- */

static void a_compute_instruction_costs_flops_or_bytes_whichever_is_more(void **state)
{
    (void)state;
    coh_profile profile = unit_profile();
    profile.instruction_ns = coh_figure_of(7);
    coh_instruction instruction = instruction_of(COH_OP_FORWARD, COH_LANE_COMPUTE, 100, 0);
    assert_true(close_to(price(&profile, &instruction).p50, 107));
    instruction.bytes = 250;
    assert_true(close_to(price(&profile, &instruction).p50, 257));
}

/* An instruction on bf16 tensors runs at the bf16 rate. */
static void an_instruction_on_bf16_has_its_own_rate(void **state)
{
    (void)state;
    coh_profile profile = unit_profile();
    coh_pricer pricer;
    coh_binding binding = { .shape = { .dtype = COH_DTYPE_BF16, .rank = 1, .dim = { 8 } } };
    coh_instruction_call call = { .binding_count = 1, .operator_index = -1 };
    coh_program program = { .calls = &call, .bindings = &binding };
    coh_instruction instruction = instruction_of(COH_OP_FORWARD, COH_LANE_COMPUTE, 100, 0);
    profile.flops_per_s[COH_ROOF_BF16] = coh_figure_of(2e9);
    instruction.call = 0;
    assert_int_equal(coh_pricer_init(&pricer, &profile, NULL), COH_OK);
    assert_true(
        close_to(coh_price_instruction(&pricer, &no_layout, &program, &instruction).p50, 50));
    binding.shape.dtype = COH_DTYPE_F32;
    assert_true(
        close_to(coh_price_instruction(&pricer, &no_layout, &program, &instruction).p50, 100));
    coh_pricer_fini(&pricer);
}

/* The lowest tenth of the rates gives the highest tenth of the times. */
static void spreads_of_rates_turn_round(void **state)
{
    (void)state;
    coh_profile profile = unit_profile();
    profile.link[COH_LANE_READ].bytes_per_s = (coh_figure){ .p10 = 0.5e9, .p50 = 1e9, .p90 = 2e9 };
    coh_instruction instruction = instruction_of(COH_OP_READ, COH_LANE_READ, 0, 1000);
    coh_price found = price(&profile, &instruction);
    assert_true(close_to(found.p10, 500) && close_to(found.p50, 1000) && close_to(found.p90, 2000));
}

/* A run writes for hours, so the sustained rate after the drive's cache has filled counts. */
static void writes_go_at_the_rate_they_can_keep_up(void **state)
{
    (void)state;
    coh_profile profile = unit_profile();
    coh_instruction instruction = instruction_of(COH_OP_WRITE, COH_LANE_WRITE, 0, 1000);
    profile.link[COH_LANE_WRITE].sustained_bytes_per_s = coh_figure_of(0.25e9);
    assert_true(close_to(price(&profile, &instruction).p50, 4000));
}

static void updates_on_the_host_lane_go_at_its_rate(void **state)
{
    (void)state;
    coh_profile profile = unit_profile();
    coh_instruction instruction = instruction_of(COH_OP_UPDATE, COH_LANE_HOST, 0, 1000);
    assert_true(close_to(price(&profile, &instruction).p50, 1000));
    profile.host_memory_bytes_per_s = coh_figure_of(0.5e9);
    assert_true(close_to(price(&profile, &instruction).p50, 2000));
    profile.host_update_bytes_per_s = coh_figure_of(0.25e9);
    assert_true(close_to(price(&profile, &instruction).p50, 4000));
    /* beside a GPU: as many operations as eight a byte at that rate, whatever the GPU computes */
    profile.device_kind = COH_DEVICE_CUDA;
    instruction.flops = 7999;
    assert_true(close_to(price(&profile, &instruction).p50, 4000));
    instruction.flops = 16000;
    assert_true(close_to(price(&profile, &instruction).p50, 8000));
}

/* On a host device, coh-host is one of the threads that a rate covers and takes its share of their
 * cores; measured values are kept. */
static void the_host_lane_of_a_host_device_is_one_thread(void **state)
{
    (void)state;
    coh_profile profile = unit_profile();
    coh_instruction instruction = instruction_of(COH_OP_UPDATE, COH_LANE_HOST, 0, 1000);
    profile.threads = 4;
    assert_true(close_to(price(&profile, &instruction).p50, 4000));
    profile.host_update_bytes_per_s = coh_figure_of(0.5e9);
    assert_true(close_to(price(&profile, &instruction).p50, 2000));
    coh_profile_share_cores(&profile);
    assert_true(close_to(profile.contention[COH_LANE_COMPUTE][COH_LANE_HOST], 0.8));
    assert_true(close_to(profile.contention[COH_LANE_HOST][COH_LANE_COMPUTE], 0.8));
    assert_true(close_to(profile.contention[COH_LANE_HOST][COH_LANE_D2H], 1));
    profile.contention[COH_LANE_COMPUTE][COH_LANE_HOST] = 0.7;
    coh_profile_share_cores(&profile);
    assert_true(close_to(profile.contention[COH_LANE_COMPUTE][COH_LANE_HOST], 0.7));
    profile = unit_profile();
    profile.device_kind = COH_DEVICE_CUDA;
    profile.threads = 4;
    coh_profile_share_cores(&profile);
    assert_true(close_to(price(&profile, &instruction).p50, 1000));
    assert_true(close_to(profile.contention[COH_LANE_COMPUTE][COH_LANE_HOST], 1));
}

/* Instructions priced by the same figure have one source, whatever their opcodes: an error of
 * the figure affects all of them. */
static void a_figure_of_the_roofs_is_one_source(void **state)
{
    (void)state;
    coh_profile profile = unit_profile();
    const coh_instruction forward = instruction_of(COH_OP_FORWARD, COH_LANE_COMPUTE, 9, 1),
                          backward = instruction_of(COH_OP_BACKWARD, COH_LANE_COMPUTE, 9, 1),
                          norm = instruction_of(COH_OP_NORM, COH_LANE_COMPUTE, 0, 9),
                          update = instruction_of(COH_OP_UPDATE, COH_LANE_COMPUTE, 0, 9),
                          on_host = instruction_of(COH_OP_UPDATE, COH_LANE_HOST, 0, 9),
                          read = instruction_of(COH_OP_READ, COH_LANE_READ, 0, 9),
                          import = instruction_of(COH_OP_IMPORT, COH_LANE_COMPUTE, 0, 9);
    const uint32_t flops = price(&profile, &forward).source, memory = price(&profile, &norm).source;
    assert_int_equal(price(&profile, &backward).source, flops);
    assert_int_equal(price(&profile, &update).source, memory);
    assert_int_equal(price(&profile, &on_host).source, memory);
    assert_int_equal(price(&profile, &import).source, price(&profile, &read).source);
    assert_true(flops != memory && memory != price(&profile, &read).source);
    profile.host_memory_bytes_per_s = coh_figure_of(1e9);
    const uint32_t beside = price(&profile, &on_host).source;
    assert_true(beside != memory && beside != flops);
    profile.host_update_bytes_per_s = coh_figure_of(1e9);
    assert_true(price(&profile, &on_host).source != memory);
    assert_true(price(&profile, &on_host).source != beside);
}

/* Factors from earlier runs multiply the price of one opcode; a factor from no run has no
 * effect. */
static void a_calibration_multiplies_one_opcode(void **state)
{
    (void)state;
    coh_profile profile = unit_profile();
    coh_instruction forward = instruction_of(COH_OP_FORWARD, COH_LANE_COMPUTE, 100, 0);
    coh_instruction backward = instruction_of(COH_OP_BACKWARD, COH_LANE_COMPUTE, 100, 0);
    profile.calibration[COH_OP_FORWARD] = (coh_calibration){ .factor = 1.5, .runs = 3 };
    profile.calibration[COH_OP_BACKWARD] = (coh_calibration){ .factor = 9 };
    assert_true(close_to(price(&profile, &forward).p50, 150));
    assert_true(close_to(price(&profile, &backward).p50, 100));
    /* a factor from the compute lane does not apply to the host lane */
    const coh_instruction update = instruction_of(COH_OP_UPDATE, COH_LANE_COMPUTE, 0, 100);
    const coh_instruction on_host = instruction_of(COH_OP_UPDATE, COH_LANE_HOST, 0, 100);
    profile.calibration[COH_OP_UPDATE] = (coh_calibration){ .factor = 2, .runs = 1 };
    assert_true(close_to(price(&profile, &update).p50, 200));
    assert_true(close_to(price(&profile, &on_host).p50, 100));
}

/* ---- samples ---- */

enum { SAMPLES = 6 };

/* Update instructions of increasing bytes; each sample is 10 to 60 % above the one before. */
static coh_operator_times random_times(uint64_t seed, coh_operator_sample *samples)
{
    double bytes = 1000, ns = 3000;
    for (uint64_t i = 0; i < SAMPLES; i++) {
        bytes *= 1.5 + coh_rng_uniform(seed, 1, i);
        ns *= 1.1 + 0.5 * coh_rng_uniform(seed, 2, i);
        samples[i] = (coh_operator_sample){
            .bytes = bytes,
            .seconds = { .p10 = 0.9e-9 * ns, .p50 = 1e-9 * ns, .p90 = 1.3e-9 * ns, .samples = 9 }
        };
    }
    return (coh_operator_times){
        .kind = "update", .lane = COH_LANE_COMPUTE, .samples = samples, .sample_count = SAMPLES
    };
}

static void samples_are_met_and_joined(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        coh_operator_sample samples[SAMPLES];
        coh_operator_times times = random_times(seed, samples);
        coh_profile profile = unit_profile();
        profile.instruction_ns = (coh_figure){ .p10 = 400, .p50 = 500, .p90 = 700 };
        profile.operators = &times;
        profile.operator_count = 1;
        for (int i = 0; i < SAMPLES; i++) {
            coh_instruction instruction =
                instruction_of(COH_OP_UPDATE, COH_LANE_COMPUTE, 0, (uint64_t)samples[i].bytes);
            samples[i].bytes = (double)instruction.bytes; /* whole numbers */
            coh_price at = price(&profile, &instruction);
            /* samples cover the kernel only; the instruction's overhead is added */
            assert_true(close_to(at.p10, samples[i].seconds.p10 * 1e9 + 400));
            assert_true(close_to(at.p50, samples[i].seconds.p50 * 1e9 + 500));
            assert_true(close_to(at.p90, samples[i].seconds.p90 * 1e9 + 700));
        }
        double before = 0;
        for (uint64_t bytes = 0; bytes < 3 * (uint64_t)samples[SAMPLES - 1].bytes; bytes += 97) {
            coh_instruction instruction = instruction_of(COH_OP_UPDATE, COH_LANE_COMPUTE, 0, bytes);
            coh_price at = price(&profile, &instruction);
            if (!(at.p50 >= before && at.p10 <= at.p50 && at.p50 <= at.p90))
                fail_msg("seed %" PRIu64 ": %" PRIu64 " bytes %g after %g", seed, bytes, at.p50,
                         before);
            before = at.p50;
        }
    }
}

static void between_and_beyond_samples_prices_are_affine(void **state)
{
    (void)state;
    coh_operator_sample samples[] = { { .bytes = 1000, .seconds = coh_figure_of(2e-6) },
                                      { .bytes = 3000, .seconds = coh_figure_of(3e-6) } };
    coh_operator_times times = {
        .kind = "update", .lane = COH_LANE_COMPUTE, .samples = samples, .sample_count = 2
    };
    coh_profile profile = unit_profile();
    profile.instruction_ns = coh_figure_of(400);
    profile.operators = &times;
    profile.operator_count = 1;
    static const struct {
        uint64_t bytes;
        double ns;
    } expected[] = { { 0, 400 },     { 500, 1400 },  { 1000, 2400 }, { 2000, 2900 },
                     { 3000, 3400 }, { 6000, 6400 }, { 9000, 9400 } };
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        coh_instruction instruction =
            instruction_of(COH_OP_UPDATE, COH_LANE_COMPUTE, 0, expected[i].bytes);
        assert_true(close_to(price(&profile, &instruction).p50, expected[i].ns));
    }
    /* another name, lane or dtype: the roofline */
    coh_instruction norm = instruction_of(COH_OP_NORM, COH_LANE_COMPUTE, 0, 1000);
    coh_instruction host = instruction_of(COH_OP_UPDATE, COH_LANE_HOST, 0, 1000);
    assert_true(close_to(price(&profile, &norm).p50, 1400));
    assert_true(close_to(price(&profile, &host).p50, 1400));
    times.dtype = COH_DTYPE_BF16;
    coh_instruction instruction = instruction_of(COH_OP_UPDATE, COH_LANE_COMPUTE, 0, 1000);
    assert_true(close_to(price(&profile, &instruction).p50, 1400));
}

/* An update has the samples of its optimizer, and those of AdamW if there are none. */
static void updates_are_priced_by_their_optimizer(void **state)
{
    (void)state;
    coh_operator_sample usual[] = { { .bytes = 1000, .seconds = coh_figure_of(2e-6) } },
                        codes[] = { { .bytes = 1000, .seconds = coh_figure_of(9e-6) } };
    coh_operator_times times[] = {
        { .kind = "update", .lane = COH_LANE_HOST, .samples = usual, .sample_count = 1 },
        { .kind = "update adamw8", .lane = COH_LANE_HOST, .samples = codes, .sample_count = 1 }
    };
    static const struct {
        const char *optimizer;
        double ns;
    } expected[] = { { "adamw", 2000 }, { "adamw8", 9000 }, { "lion", 2000 } };
    coh_profile profile = unit_profile();
    profile.operators = times;
    profile.operator_count = 2;
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        coh_group_layout group = { .dtype = COH_DTYPE_F32, .optimizer = 0 };
        coh_object object = { .stream = COH_STREAM_WORK, .owner = 0 };
        coh_operand operand = { .object = 0 };
        const coh_layout layout = { .objects = &object,
                                    .object_count = 1,
                                    .groups = &group,
                                    .group_count = 1,
                                    .optimizers = { coh_optimizer_find(expected[i].optimizer) },
                                    .optimizer_count = 1 };
        const coh_program program = { .operands = &operand, .operand_count = 1 };
        coh_instruction instruction = instruction_of(COH_OP_UPDATE, COH_LANE_HOST, 0, 1000);
        instruction.operand_count = 1;
        coh_pricer pricer;
        assert_int_equal(coh_pricer_init(&pricer, &profile, NULL), COH_OK);
        const coh_price found = coh_price_instruction(&pricer, &layout, &program, &instruction);
        coh_pricer_fini(&pricer);
        assert_true(close_to(found.p50, expected[i].ns));
    }
}

/* ---- operators ---- */

static coh_graph *toy(int64_t width, int64_t rows, coh_dtype dtype, int freezes)
{
    coh_graph *graph = NULL;
    const toy_options options = { .layers = 2,
                                  .width = width,
                                  .vocabulary = 128,
                                  .rows = rows,
                                  .dtype = dtype,
                                  .freezes = freezes };
    assert_int_equal(toy_graph_make(&options, &graph), COH_OK);
    return graph;
}

/* The n-th operator of a kind. */
static size_t find_op(const coh_graph *graph, const char *kind, int n)
{
    for (size_t i = 0; i < graph->op_count; i++)
        if (strcmp(graph->ops[i].kind.name, kind) == 0 && n-- == 0)
            return i;
    fail_msg("no %s", kind);
    return 0;
}

static void a_signature_knows_the_operator_but_not_the_batch(void **state)
{
    (void)state;
    coh_graph *graph = toy(32, 8, COH_DTYPE_F32, 0);
    size_t mix = find_op(graph, "toy.mix", 0), embed = find_op(graph, "toy.embed", 0);
    uint64_t signature = coh_operator_signature(graph, mix);
    assert_true(signature == coh_operator_signature(graph, find_op(graph, "toy.mix", 1)));
    assert_true(signature != coh_operator_signature(graph, embed));
    coh_graph *longer = toy(32, 64, COH_DTYPE_F32, 0), *wider = toy(48, 8, COH_DTYPE_F32, 0);
    coh_graph *bf16 = toy(32, 8, COH_DTYPE_BF16, 0), *frozen = toy(32, 8, COH_DTYPE_F32, 1);
    assert_true(signature == coh_operator_signature(longer, mix));
    assert_true(coh_operator_signature(graph, embed) == coh_operator_signature(longer, embed));
    assert_true(signature != coh_operator_signature(wider, mix));
    assert_true(signature != coh_operator_signature(bf16, mix));
    assert_true(signature != coh_operator_signature(frozen, mix));
    assert_int_equal(coh_operator_dtype(bf16, mix), COH_DTYPE_BF16);
    assert_int_equal(coh_operator_dtype(graph, embed), COH_DTYPE_F32);
    coh_graph_destroy(graph);
    coh_graph_destroy(longer);
    coh_graph_destroy(wider);
    coh_graph_destroy(bf16);
    coh_graph_destroy(frozen);
}

/* A curve for each form in `forms`, each with a different time; a backward of each form uses the
 * nearest curve. */
static void check_forms(const coh_graph *graph, unsigned forms, const double wanted[COH_GRAD_FORMS])
{
    const size_t mix = find_op(graph, "toy.mix", 0);
    coh_operator_sample samples[COH_GRAD_FORMS];
    coh_operator_times times[COH_GRAD_FORMS];
    coh_profile profile = unit_profile();
    coh_pricer pricer;
    profile.operators = times;
    for (unsigned form = 0; form < COH_GRAD_FORMS; form++) {
        if (!(forms >> form & 1u))
            continue;
        const uint32_t at = profile.operator_count++;
        samples[at] =
            (coh_operator_sample){ .flops = 1000, .seconds = coh_figure_of((form + 1) * 100e-9) };
        times[at] = (coh_operator_times){ .kind = "toy.mix",
                                          .dtype = COH_DTYPE_BF16,
                                          .lane = COH_LANE_COMPUTE,
                                          .phase = COH_PHASE_BACKWARD,
                                          .signature = coh_backward_signature(
                                              coh_operator_signature(graph, mix), form),
                                          .samples = &samples[at],
                                          .sample_count = 1 };
    }
    assert_int_equal(coh_pricer_init(&pricer, &profile, graph), COH_OK);
    for (unsigned form = 0; form < COH_GRAD_FORMS; form++) {
        coh_binding bindings[] = { { .role = COH_ROLE_PARAMETER, .shape.dtype = COH_DTYPE_BF16 },
                                   { .role = COH_ROLE_PARAMETER_GRAD,
                                     .shape.dtype =
                                         form & COH_GRADS_WIDE ? COH_DTYPE_F32 : COH_DTYPE_BF16 } };
        coh_instruction_call call = { .operator_index = (int32_t)mix,
                                      .parameter_grad_adds = form & COH_GRADS_ADD ? 2 : 0,
                                      .binding_count = 2 };
        const coh_program program = { .calls = &call, .bindings = bindings };
        coh_instruction instruction = instruction_of(COH_OP_BACKWARD, COH_LANE_COMPUTE, 1000, 0);
        instruction.call = 0;
        assert_true(close_to(coh_price_instruction(&pricer, &no_layout, &program, &instruction).p50,
                             wanted[form]));
    }
    coh_pricer_fini(&pricer);
}

static void a_backward_is_priced_by_the_nearest_form_of_its_gradients(void **state)
{
    (void)state;
    static const struct {
        unsigned forms;
        double ns[COH_GRAD_FORMS]; /* plain, adds, wide, both */
    } cases[] = {
        { 15, { 100, 200, 300, 400 } }, /* each uses its own */
        { 7, { 100, 200, 300, 300 } },  /* the width matters more than whether they add */
        { 3, { 100, 200, 100, 200 } },  { 1, { 100, 100, 100, 100 } },
        { 4, { 300, 300, 300, 300 } }, /* no plain one exists */
        { 12, { 300, 400, 300, 400 } },
    };
    coh_graph *graph = toy(32, 8, COH_DTYPE_BF16, 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check_forms(graph, cases[i].forms, cases[i].ns);
    coh_graph_destroy(graph);
}

/* One sample for each of four curves; the price of an instruction shows which was used. */
static void the_nearest_samples_serve(void **state)
{
    (void)state;
    coh_graph *graph = toy(32, 8, COH_DTYPE_F32, 0);
    size_t mix = find_op(graph, "toy.mix", 0), join = find_op(graph, "toy.join", 0);
    coh_operator_sample samples[4];
    coh_operator_times times[4];
    static const double ns[4] = { 100, 200, 400, 800 };
    for (int i = 0; i < 4; i++) {
        samples[i] = (coh_operator_sample){ .flops = 1000, .seconds = coh_figure_of(ns[i] * 1e-9) };
        times[i] = (coh_operator_times){ .kind = "toy.mix",
                                         .lane = COH_LANE_COMPUTE,
                                         .phase = i == 3 ? COH_PHASE_BACKWARD : COH_PHASE_FORWARD,
                                         .signature = (uint64_t)i + 7,
                                         .samples = &samples[i],
                                         .sample_count = 1 };
    }
    coh_profile profile = unit_profile();
    coh_pricer pricer;
    coh_instruction_call call = { .operator_index = (int32_t)mix };
    coh_program program = { .calls = &call };
    coh_instruction instruction = instruction_of(COH_OP_FORWARD, COH_LANE_COMPUTE, 1000, 0);
    instruction.call = 0;
    profile.operators = times;
    profile.operator_count = 4;
    /* none with its signature: the mean over its kind and phase */
    assert_int_equal(coh_pricer_init(&pricer, &profile, graph), COH_OK);
    assert_true(close_to(coh_price_instruction(&pricer, &no_layout, &program, &instruction).p50,
                         (100 + 200 + 400) / 3.0));
    instruction.opcode = COH_OP_BACKWARD;
    assert_true(
        close_to(coh_price_instruction(&pricer, &no_layout, &program, &instruction).p50, 800));
    call.operator_index = (int32_t)join; /* none of its kind: the roofline */
    assert_true(
        close_to(coh_price_instruction(&pricer, &no_layout, &program, &instruction).p50, 1000));
    coh_pricer_fini(&pricer);
    /* its own; recomputing is forward */
    times[1].signature = coh_operator_signature(graph, mix);
    call.operator_index = (int32_t)mix;
    instruction.opcode = COH_OP_RECOMPUTE;
    assert_int_equal(coh_pricer_init(&pricer, &profile, graph), COH_OK);
    assert_true(
        close_to(coh_price_instruction(&pricer, &no_layout, &program, &instruction).p50, 200));
    coh_pricer_fini(&pricer);
    coh_graph_destroy(graph);
}

static void failing_allocations_are_reported(void **state)
{
    (void)state;
    coh_operator_sample samples[SAMPLES];
    coh_operator_times times = random_times(1, samples);
    coh_profile profile = unit_profile();
    profile.operators = &times;
    profile.operator_count = 1;
    for (uint64_t n = 1;; n++) {
        coh_pricer pricer;
        alloc_fail_nth(n);
        coh_status status = coh_pricer_init(&pricer, &profile, NULL);
        int was_hit = alloc_fault_was_hit();
        alloc_fail_nth(0);
        assert_int_equal(status, was_hit ? COH_ERR_MEMORY : COH_OK);
        coh_pricer_fini(&pricer);
        if (!was_hit)
            break;
    }
}

static void whole_nanoseconds_are_rounded_and_end_at_what_a_clock_holds(void **state)
{
    (void)state;
    static const struct {
        double ns;
        uint64_t whole;
    } cases[] = { { -5, 0 },
                  { 0.49, 0 },
                  { 0.5, 1 },
                  { 1e13, UINT64_C(10000000000000) },
                  { 5e18, COH_NS_MOST },
                  { 1e300, COH_NS_MOST },
                  { INFINITY, COH_NS_MOST },
                  { NAN, 0 } };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_true(coh_whole_ns(cases[i].ns) == cases[i].whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_compute_instruction_costs_flops_or_bytes_whichever_is_more),
        cmocka_unit_test(an_instruction_on_bf16_has_its_own_rate),
        cmocka_unit_test(spreads_of_rates_turn_round),
        cmocka_unit_test(writes_go_at_the_rate_they_can_keep_up),
        cmocka_unit_test(updates_on_the_host_lane_go_at_its_rate),
        cmocka_unit_test(the_host_lane_of_a_host_device_is_one_thread),
        cmocka_unit_test(a_figure_of_the_roofs_is_one_source),
        cmocka_unit_test(a_calibration_multiplies_one_opcode),
        cmocka_unit_test(samples_are_met_and_joined),
        cmocka_unit_test(between_and_beyond_samples_prices_are_affine),
        cmocka_unit_test(updates_are_priced_by_their_optimizer),
        cmocka_unit_test(a_signature_knows_the_operator_but_not_the_batch),
        cmocka_unit_test(the_nearest_samples_serve),
        cmocka_unit_test(a_backward_is_priced_by_the_nearest_form_of_its_gradients),
        cmocka_unit_test(whole_nanoseconds_are_rounded_and_end_at_what_a_clock_holds),
        cmocka_unit_test(failing_allocations_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
