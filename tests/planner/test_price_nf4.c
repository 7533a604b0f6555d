/* Prices of operators whose weights are in NF4: those of plain weights, and what opening takes, by
 * the formula in price.h written out here once more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "cohobate/models.h"
#include "planner/fingerprint.h"
#include "planner/plan.h"
#include "planner/price.h"

enum { TOKENS = 32, SEQUENCES = 2 };

static const coh_opt_config small = { .layers = 2,
                                      .heads = 4,
                                      .channels = 128,
                                      .positions = TOKENS,
                                      .vocabulary = 256,
                                      .inner = 640,
                                      .embedding = 128,
                                      .padding = -1,
                                      .init_std = 0.05f,
                                      .norm_before = 1,
                                      .last_norm = 1,
                                      .biases = 1 };

static coh_model make_model(coh_family family, coh_dtype dtype, int is_packed)
{
    static const coh_adapters frozen[] = { { .freeze = "attn.*,mlp.*" },
                                           { .freeze = "*_proj,fc1,fc2" } };
    coh_model model = { .name = "small", .family = COH_FAMILY_OPT, .opt = small };
    if (family == COH_FAMILY_GPT2)
        assert_int_equal(coh_model_preset("gpt2-nano", 256, &model), COH_OK);
    coh_model_dtype_set(&model, dtype);
    model.frozen_nf4 = is_packed;
    if (coh_model_adapters_set(&model, &frozen[family == COH_FAMILY_OPT]) != COH_OK)
        fail_msg("%s", coh_last_error());
    return model;
}

/* The body of a step in memory. */
typedef struct step {
    coh_graph *graph;
    coh_plan *plan;
    const coh_program *body;
} step;

static step open_step(coh_family family, coh_dtype dtype, int is_packed)
{
    const coh_model model = make_model(family, dtype, is_packed);
    coh_plan_options options;
    step opened = { 0 };
    coh_plan_options_init(&options);
    options.microbatch_count = 2; /* gradients are added, too */
    options.search = COH_SEARCH_QUICK;
    if (coh_model_train_graph(&model, SEQUENCES, TOKENS, &opened.graph) != COH_OK ||
        coh_plan_create(opened.graph, &options, &opened.plan) != COH_OK)
        fail_msg("%s", coh_last_error());
    opened.body = &opened.plan->programs[COH_PROGRAM_BODY];
    return opened;
}

static void close_step(step *opened)
{
    coh_plan_destroy(opened->plan);
    coh_graph_destroy(opened->graph);
}

static int32_t operator_of(const coh_program *body, uint32_t index)
{
    const coh_instruction *instruction = &body->instructions[index];
    return instruction->call < 0 ? -1 : body->calls[instruction->call].operator_index;
}

/* Finds the call of the same operator, phase and micro-batch in a step of another storage. */
static const coh_instruction *find_same(const step *other, const step *of, uint32_t index)
{
    const coh_instruction *instruction = &of->body->instructions[index];
    for (uint32_t i = 0; i < other->body->instruction_count; i++) {
        const coh_instruction *candidate = &other->body->instructions[i];
        if (candidate->opcode == instruction->opcode &&
            operator_of(other->body, i) == operator_of(of->body, index) &&
            other->body->calls[candidate->call].microbatch ==
                of->body->calls[instruction->call].microbatch)
            return candidate;
    }
    fail_msg("no such call of operator %d", operator_of(of->body, index));
    return NULL;
}

/* The elements of an operator's weights in NF4. */
static double packed_elements(const step *of, int32_t op)
{
    const coh_op_facts *facts = &of->graph->ops[op].facts;
    double elements = 0;
    for (int port = 0; port < COH_PORT_MAX; port++)
        if (facts->parameter[port].shape.dtype == COH_DTYPE_NF4)
            elements += (double)facts->parameter[port].shape.dim[0] *
                        (double)facts->parameter[port].shape.dim[1];
    return elements;
}

static double price_of(const coh_pricer *pricer, const step *of, const coh_instruction *instruction)
{
    return coh_price_instruction(pricer, &of->plan->layout, of->body, instruction).p50;
}

/* What opening takes by the documented formula: 34 bytes of 64 elements are read and numbers of
 * `bytes` each written; half a nanosecond of a thread for each on a processor. */
static double opening_ns(const coh_profile *profile, double elements, double bytes)
{
    const double memory = elements * (34.0 / 64 + bytes) / profile->memory_bytes_per_s.p50 * 1e9;
    if (profile->device_kind != COH_DEVICE_HOST)
        return memory;
    return fmax(memory, elements * 0.5 / profile->threads);
}

/* max(flops / rate, bytes / memory rate), without what opening moves. */
static double product_ns(const coh_profile *profile, const coh_instruction *instruction,
                         coh_dtype dtype, double elements, double bytes)
{
    const double rate = profile->flops_per_s[dtype == COH_DTYPE_BF16].p50;
    const double moved = (double)instruction->bytes - elements * (34.0 / 64 + bytes);
    return fmax(instruction->flops / rate, moved / profile->memory_bytes_per_s.p50) * 1e9;
}

/* Compares all calls of packed weights with those of plain ones, and with the formula. Returns
 * their number. */
static int check_prices(const coh_profile *profile, const step *plain, const step *packed,
                        coh_dtype dtype)
{
    const double bytes = dtype == COH_DTYPE_BF16 ? 2 : 4;
    coh_pricer of_plain, of_packed;
    int checked = 0;
    assert_int_equal(coh_pricer_init(&of_plain, profile, plain->graph), COH_OK);
    assert_int_equal(coh_pricer_init(&of_packed, profile, packed->graph), COH_OK);
    for (uint32_t i = 0; i < packed->body->instruction_count; i++) {
        const coh_instruction *instruction = &packed->body->instructions[i];
        const int32_t op = operator_of(packed->body, i);
        const double elements = op < 0 ? 0 : packed_elements(packed, op);
        if (elements == 0)
            continue;
        const double ns = price_of(&of_packed, packed, instruction);
        const double wanted = product_ns(profile, instruction, dtype, elements, bytes) +
                              opening_ns(profile, elements, bytes) + profile->instruction_ns.p50;
        const double usual = price_of(&of_plain, plain, find_same(plain, packed, i));
        const char *kind = packed->graph->ops[op].kind.name;
        if (fabs(ns - wanted) > 1e-3 * wanted + 1)
            fail_msg("%s: %g ns, by the formula %g", kind, ns, wanted);
        if (ns < usual)
            fail_msg("%s: %g ns, with plain weights %g", kind, ns, usual);
        checked++;
    }
    coh_pricer_fini(&of_plain);
    coh_pricer_fini(&of_packed);
    return checked;
}

static void opening_is_added_by_the_rates_of_the_profile(void **state)
{
    (void)state;
    static const coh_family families[] = { COH_FAMILY_GPT2, COH_FAMILY_OPT };
    static const coh_dtype dtypes[] = { COH_DTYPE_F32, COH_DTYPE_BF16 };
    static const char *const names[] = { "rtx-4090", "h100" };
    for (int n = 0; n < 8; n++) {
        const coh_dtype dtype = dtypes[n / 2 % 2];
        step plain = open_step(families[n / 4], dtype, 0);
        step packed = open_step(families[n / 4], dtype, 1);
        coh_profile *datasheet = NULL, built_in;
        assert_int_equal(coh_profile_read(names[n % 2], &datasheet), COH_OK);
        coh_profile_builtin(n % 2 ? 2 : 64, 1, 0, &built_in);
        /* two layers of at least four linears, forward and backward, of two micro-batches */
        assert_true(check_prices(datasheet, &plain, &packed, dtype) >= 32);
        assert_true(check_prices(&built_in, &plain, &packed, dtype) >= 32);
        coh_profile_destroy(datasheet);
        coh_profile_fini(&built_in);
        close_step(&plain);
        close_step(&packed);
    }
}

/* ---- samples ---- */

enum { PHASES = 2 };

/* A curve of one phase with a sample of much work: at any less work the time is a part of it. */
static coh_operator_times curve_of(const step *of, size_t op, int phase, uint64_t signature,
                                   coh_operator_sample *sample)
{
    coh_operator_times times = { .lane = COH_LANE_COMPUTE,
                                 .phase = (uint8_t)phase,
                                 .dtype = coh_operator_dtype(of->graph, op),
                                 .signature = signature,
                                 .samples = sample,
                                 .sample_count = 1 };
    strncpy(times.kind, of->graph->ops[op].kind.name, sizeof(times.kind) - 1);
    return times;
}

/* The first call of a packed weight in a phase. */
static uint32_t first_call(const step *packed, coh_opcode opcode)
{
    for (uint32_t i = 0; i < packed->body->instruction_count; i++)
        if (packed->body->instructions[i].opcode == opcode && operator_of(packed->body, i) >= 0 &&
            packed_elements(packed, operator_of(packed->body, i)) > 0)
            return i;
    fail_msg("no call");
    return 0;
}

/* The samples of the operator with plain weights count before those of other operators of its kind,
 * and opening is added; samples of the operator itself have it. */
static void samples_of_plain_weights_serve_and_own_ones_have_all(void **state)
{
    (void)state;
    static const coh_opcode opcodes[PHASES] = { COH_OP_FORWARD, COH_OP_BACKWARD };
    step packed = open_step(COH_FAMILY_OPT, COH_DTYPE_F32, 1);
    step plain = open_step(COH_FAMILY_OPT, COH_DTYPE_F32, 0);
    coh_profile profile;
    coh_profile_builtin(2, 1, 0, &profile);
    for (int phase = 0; phase < PHASES; phase++) {
        const uint32_t index = first_call(&packed, opcodes[phase]);
        const coh_instruction *instruction = &packed.body->instructions[index];
        const size_t op = (size_t)operator_of(packed.body, index);
        const double elements = packed_elements(&packed, (int32_t)op);
        const double rate = profile.flops_per_s[COH_ROOF_F32].p50;
        /* 7 ms at a second of work at the roofs; another operator of the kind takes longer */
        coh_operator_sample samples[] = {
            { .flops = rate, .seconds = coh_figure_of(7e-3) },
            { .flops = rate, .seconds = coh_figure_of(1) },
            { .flops = rate, .seconds = coh_figure_of(11e-3) },
        };
        const uint64_t usual = coh_operator_signature(plain.graph, op);
        coh_operator_times times[] = {
            curve_of(&packed, op, phase, usual, &samples[0]),
            curve_of(&packed, op, phase, 12345, &samples[1]),
            curve_of(&packed, op, phase, coh_operator_signature(packed.graph, op), &samples[2]),
        };
        coh_profile measured = profile;
        coh_pricer pricer;
        assert_true(usual != coh_operator_signature(packed.graph, op));
        assert_true(usual == coh_operator_plain_signature(packed.graph, op));
        assert_true(usual == coh_operator_plain_signature(plain.graph, op));
        for (uint32_t count = 2; count <= 3; count++) {
            measured.operators = times;
            measured.operator_count = count;
            assert_int_equal(coh_pricer_init(&pricer, &measured, packed.graph), COH_OK);
            const double opened = count == 2 ? elements : 0;
            const double seconds =
                product_ns(&profile, instruction, COH_DTYPE_F32, opened, 4) * 1e-9;
            const double wanted = seconds * (count == 2 ? 7e-3 : 11e-3) * 1e9 +
                                  opening_ns(&profile, opened, 4) + profile.instruction_ns.p50;
            const double ns = price_of(&pricer, &packed, instruction);
            if (fabs(ns - wanted) > 1e-3 * wanted)
                fail_msg("phase %d, %u curves: %g ns, by hand %g", phase, count, ns, wanted);
            coh_pricer_fini(&pricer);
        }
    }
    coh_profile_fini(&profile);
    close_step(&plain);
    close_step(&packed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening_is_added_by_the_rates_of_the_profile),
        cmocka_unit_test(samples_of_plain_weights_serve_and_own_ones_have_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
