/* The contents of a measured profile: every operator at the sizes that plans price, in calls like
 * the executor's. No test asserts how long anything takes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cohobate/cohobate.h"
#include "engine/measure.h"
#include "planner/fingerprint.h"
#include "planner/plan.h"
#include "planner/profile_file.h"
#include "tests/faults/alloc_faults.h"
#include "tests/length.h"
#include "tests/temporary.h"

enum { ELEMENTS = 20000, ROWS = 7, TOKENS = 12 };

/* ---- a kind that checks its arguments ---- */

static int refuses, calls[COH_PHASE_COUNT];

static coh_status strict_infer(const void *attributes, const coh_shape *inputs,
                               coh_op_facts *out_facts)
{
    (void)attributes;
    (void)inputs;
    out_facts->output[0] = (coh_shape){ .dtype = COH_DTYPE_F32, .rank = 1, .dim = { 1 } };
    out_facts->parameter[0] = (coh_parameter_facts){
        .name = "table",
        .shape = { .dtype = COH_DTYPE_F32, .rank = 2, .dim = { ROWS, ELEMENTS } },
        .init = COH_INIT_ONE,
    };
    out_facts->saved_bytes = sizeof(float) * 2;
    out_facts->workspace_bytes[COH_PHASE_FORWARD] = 64;
    out_facts->flops[COH_PHASE_FORWARD] = 1e6;
    out_facts->flops[COH_PHASE_BACKWARD] = 2e6;
    return COH_OK;
}

/* Returns a number that differs between windows, which may hold any finite values. */
static float trace_of(const coh_call *call)
{
    const float *table = call->parameter[0].data;
    return table[0] + 3 * table[ELEMENTS - 1];
}

static coh_status strict_forward(const coh_call *call)
{
    const int32_t *ids = call->input[0].data;
    const float *table = call->parameter[0].data;
    float *saved = call->saved;
    calls[COH_PHASE_FORWARD]++;
    if (refuses)
        return coh_kind_fail(COH_ERR_NUMBER, "it will not");
    if (ids == NULL || table == NULL || saved == NULL || call->output[0].data == NULL ||
        call->workspace == NULL || call->random_cell == NULL)
        return coh_kind_fail(COH_ERR_INTERNAL, "forward lacks a port");
    for (int i = 0; i < TOKENS; i++)
        if (ids[i] < 0 || ids[i] >= ROWS)
            return coh_kind_fail(COH_ERR_INTERNAL, "id %d is no row", (int)ids[i]);
    for (int64_t i = 0; i < (int64_t)ROWS * ELEMENTS; i++)
        if (!isnormal(table[i]))
            return coh_kind_fail(COH_ERR_INTERNAL, "a value is not a normal number");
    /* Slow enough that fewer forwards than backwards are timed; each backward must still find the
     * result of a forward. */
    (void)usleep(10000);
    saved[0] = trace_of(call);
    saved[1] = 42;
    *(float *)call->output[0].data = 1;
    return COH_OK;
}

static coh_status strict_backward(const coh_call *call)
{
    const float *saved = call->saved;
    calls[COH_PHASE_BACKWARD]++;
    if (saved == NULL || call->parameter[0].data == NULL || call->parameter_grad[0].data == NULL ||
        call->input[0].data != NULL || call->output_grad[0].data != NULL)
        return coh_kind_fail(COH_ERR_INTERNAL, "backward has other ports than declared");
    if (saved[1] != 42 || saved[0] != trace_of(call))
        return coh_kind_fail(COH_ERR_INTERNAL, "saved is not what forward left");
    return COH_OK;
}

static const coh_op_kind strict_kind = {
    .struct_bytes = sizeof(coh_op_kind),
    .abi_version = COH_KIND_ABI,
    .name = "test.strict",
    .revision = 1,
    .input_count = 1,
    .output_count = 1,
    .parameter_count = 1,
    .backward_reads = { .parameters = 1 },
    .is_loss = 1,
    .draws = 1,
    .infer = strict_infer,
    .devices = { [COH_DEVICE_HOST] = { .forward = strict_forward, .backward = strict_backward } },
};

static coh_graph *strict_graph(void)
{
    const coh_shape shape = { .dtype = COH_DTYPE_I32, .rank = 2, .dim = { 1, TOKENS } };
    /* Makes the step large, so that every call has its own window. */
    const coh_shape large = { .dtype = COH_DTYPE_I32, .rank = 2, .dim = { 1, 4 << 20 } };
    coh_graph *graph;
    coh_tensor ids, unused, loss;
    assert_int_equal(coh_graph_create(&graph), COH_OK);
    assert_int_equal(coh_graph_input(graph, "unused", &large, &unused), COH_OK);
    assert_int_equal(coh_graph_input(graph, "ids", &shape, &ids), COH_OK);
    const coh_op_args args = { .name = "strict", .inputs = &ids, .block = -1 };
    assert_int_equal(coh_graph_op(graph, &strict_kind, &args, &loss, NULL), COH_OK);
    assert_int_equal(coh_graph_loss(graph, loss), COH_OK);
    return graph;
}

static coh_graph *model_graph(int64_t sequences, coh_dtype dtype)
{
    const coh_gpt2_config config = { .layers = 2,
                                     .heads = 2,
                                     .channels = 64,
                                     .positions = 32,
                                     .vocabulary = 300,
                                     .layernorm_epsilon = 1e-5f,
                                     .dtype = dtype };
    coh_graph *graph;
    assert_int_equal(coh_gpt2_train_graph(&config, sequences, 16, &graph), COH_OK);
    return graph;
}

static coh_measure_options options_for(const coh_graph *const *graphs, uint32_t count)
{
    coh_measure_options options;
    coh_measure_options_init(&options);
    options.graphs = graphs;
    options.graph_count = count;
    options.thread_count = 2;
    options.quick = 1;
    return options;
}

/* The profile to start from: none, or in short runs this machine's without a drive, measured once
 * for all tests, since products take most of the time. Probes, operators and drives are measured in
 * any case. */
static const coh_profile *begin_with(void)
{
    static coh_profile *here;
    const coh_measure_options options = options_for(NULL, 0);
    if (test_is_short() && here == NULL)
        assert_int_equal(coh_profile_measure(&options, NULL, &here), COH_OK);
    return here;
}

/* ---- claims ---- */

static void check_figure(const coh_figure *figure)
{
    assert_true(figure->samples >= 3);
    assert_true(figure->p10 > 0);
    assert_true(figure->p10 <= figure->p50 && figure->p50 <= figure->p90);
}

static double work_of(const coh_profile *profile, coh_dtype dtype, double flops, double bytes)
{
    const int roof = dtype == COH_DTYPE_BF16 ? COH_ROOF_BF16 : COH_ROOF_F32;
    return fmax(flops / profile->flops_per_s[roof].p50, bytes / profile->memory_bytes_per_s.p50);
}

/* Finds the sample of exactly this work at the profile's roofs. */
static const coh_operator_sample *find_sample(const coh_profile *profile, uint64_t signature,
                                              int phase, double flops, double bytes)
{
    for (uint32_t i = 0; i < profile->operator_count; i++) {
        const coh_operator_times *times = &profile->operators[i];
        const double work = work_of(profile, times->dtype, flops, bytes);
        for (uint32_t s = 0; s < times->sample_count; s++)
            if (times->signature == signature && times->phase == phase &&
                work == work_of(profile, times->dtype, times->samples[s].flops,
                                times->samples[s].bytes))
                return &times->samples[s];
    }
    return NULL;
}

/* Counts, by the form of the gradients, the calls of an in-memory plan without a sample of their
 * signature, phase and exact work. */
static void count_uncovered(const coh_profile *profile, const coh_graph *graph,
                            const coh_plan_options *options, int out_counts[COH_GRAD_FORMS])
{
    coh_plan *plan;
    assert_int_equal(coh_plan_create(graph, options, &plan), COH_OK);
    const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    int count = 0;
    memset(out_counts, 0, COH_GRAD_FORMS * sizeof(*out_counts));
    for (uint32_t i = 0; i < body->instruction_count; i++) {
        const coh_instruction *instruction = &body->instructions[i];
        if (instruction->opcode != COH_OP_FORWARD && instruction->opcode != COH_OP_BACKWARD)
            continue;
        const coh_instruction_call *call = &body->calls[instruction->call];
        const int phase =
            instruction->opcode == COH_OP_BACKWARD ? COH_PHASE_BACKWARD : COH_PHASE_FORWARD;
        const unsigned form = coh_grad_form(call, body->bindings);
        const uint64_t signature = coh_operator_signature(graph, (size_t)call->operator_index);
        const coh_operator_sample *sample =
            find_sample(profile, coh_backward_signature(signature, form), phase, instruction->flops,
                        (double)instruction->bytes);
        out_counts[form] += sample == NULL;
        if (sample != NULL)
            check_figure(&sample->seconds);
        count++;
    }
    assert_true(count > 0);
    coh_plan_destroy(plan);
}

static void check_covered(const coh_profile *profile, const coh_graph *graph,
                          const coh_plan_options *options)
{
    static const int none[COH_GRAD_FORMS];
    int counts[COH_GRAD_FORMS];
    count_uncovered(profile, graph, options, counts);
    assert_memory_equal(counts, none, sizeof(none));
}

static void check_plan_is_covered(const coh_profile *profile, const coh_graph *graph)
{
    coh_plan_options options;
    coh_plan_options_init(&options);
    check_covered(profile, graph, &options);
}

static void every_call_of_a_plan_in_memory_has_a_sample_of_its_work(void **state)
{
    (void)state;
    for (int dtype = COH_DTYPE_F32; dtype <= COH_DTYPE_BF16; dtype++) {
        coh_graph *graphs[] = { model_graph(1, (coh_dtype)dtype),
                                model_graph(3, (coh_dtype)dtype) };
        const coh_measure_options options = options_for((const coh_graph *const *)graphs, 2);
        coh_profile *profile;
        assert_int_equal(coh_profile_measure(&options, begin_with(), &profile), COH_OK);
        for (int i = 0; i < 2; i++) {
            check_plan_is_covered(profile, graphs[i]);
            coh_graph_destroy(graphs[i]);
        }
        coh_profile_destroy(profile);
    }
}

static uint32_t samples_of(const coh_profile *profile, const char *kind, coh_dtype dtype,
                           coh_lane lane)
{
    for (uint32_t i = 0; i < profile->operator_count; i++)
        if (strcmp(profile->operators[i].kind, kind) == 0 && profile->operators[i].dtype == dtype &&
            profile->operators[i].lane == lane && profile->operators[i].signature == 0)
            return profile->operators[i].sample_count;
    return 0;
}

/* Missing samples are added to a measured profile, and existing ones stay. */
static void backwards_that_add_or_widen_have_samples_of_their_own(void **state)
{
    (void)state;
    coh_graph *graph = model_graph(1, COH_DTYPE_BF16);
    coh_measure_options options = options_for((const coh_graph *const *)&graph, 1);
    coh_plan_options planning;
    coh_profile *first, *all;
    int counts[COH_GRAD_FORMS];
    coh_plan_options_init(&planning);
    planning.f32_gradients = 1;
    planning.microbatch_count = 2;
    assert_int_equal(coh_profile_measure(&options, begin_with(), &first), COH_OK);
    count_uncovered(first, graph, &planning, counts);
    assert_true(counts[0] == 0 && counts[COH_GRADS_WIDE] > 0 &&
                counts[COH_GRADS_WIDE | COH_GRADS_ADD] > counts[COH_GRADS_WIDE]);
    assert_true(samples_of(first, "norm", COH_DTYPE_BF16, COH_LANE_COMPUTE) > 0);
    options.f32_gradients = options.accumulates = 1;
    assert_int_equal(coh_profile_measure(&options, first, &all), COH_OK);
    check_covered(all, graph, &planning);
    check_plan_is_covered(all, graph);
    assert_true(samples_of(all, "norm", COH_DTYPE_F32, COH_LANE_COMPUTE) > 0);
    assert_true(samples_of(all, "update", COH_DTYPE_BF16, COH_LANE_HOST) >
                samples_of(first, "update", COH_DTYPE_BF16, COH_LANE_HOST));
    coh_profile_destroy(all);
    coh_profile_destroy(first);
    coh_graph_destroy(graph);
}

/* Checks form and range only: on a busy machine, or with a spare core, a transfer may cost nothing
 * measurable (interference_is_the_line_through_two_losses checks the values). */
static void check_interference(const coh_profile *profile)
{
    for (int lane = COH_LANE_H2D; lane <= COH_LANE_WRITE; lane++) {
        const coh_link_profile *link = &profile->link[lane];
        assert_true(link->interference_ns >= 0 && link->interference_ns_per_byte >= 0);
        assert_true(isfinite(coh_link_interference_ns(link, 1 << 20)));
        assert_true(profile->contention[COH_LANE_COMPUTE][lane] == 1);
    }
    for (int i = 0; i < COH_LANE_COUNT; i++)
        for (int j = 0; j < COH_LANE_COUNT; j++)
            assert_true(profile->contention[i][j] > 0 && profile->contention[i][j] <= 1);
}

static void refuse_other_drive(coh_measure_options options, const coh_profile *known)
{
    coh_profile *profile;
    options.disk_folder = "/proc";
    assert_int_equal(coh_profile_measure(&options, known, &profile), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), known->drive));
}

static void roofs_links_updates_and_limits_are_there(void **state)
{
    (void)state;
    coh_graph *graph = model_graph(1, COH_DTYPE_F32);
    coh_measure_options options = options_for((const coh_graph *const *)&graph, 1);
    coh_profile *profile;
    options.disk_folder = ".";
    assert_int_equal(coh_profile_measure(&options, begin_with(), &profile), COH_OK);
    check_figure(&profile->flops_per_s[COH_ROOF_F32]);
    check_figure(&profile->flops_per_s[COH_ROOF_BF16]);
    check_figure(&profile->memory_bytes_per_s);
    check_figure(&profile->instruction_ns);
    for (int lane = COH_LANE_H2D; lane <= COH_LANE_WRITE; lane++) {
        check_figure(&profile->link[lane].bytes_per_s);
        check_figure(&profile->link[lane].latency_ns);
        assert_true(profile->link[lane].depth >= 1);
    }
    check_interference(profile);
    assert_true(samples_of(profile, "update", COH_DTYPE_F32, COH_LANE_COMPUTE) > 0);
    assert_true(samples_of(profile, "update", COH_DTYPE_F32, COH_LANE_HOST) > 0);
    assert_int_equal(samples_of(profile, "update adamw8", COH_DTYPE_F32, COH_LANE_HOST), 1);
    assert_int_equal(samples_of(profile, "update sgd", COH_DTYPE_F32, COH_LANE_COMPUTE), 1);
    assert_true(samples_of(profile, "norm", COH_DTYPE_F32, COH_LANE_COMPUTE) > 0);
    assert_true(profile->memory_bytes[COH_TIER_DEVICE] > 0);
    assert_true(profile->memory_bytes[COH_TIER_DISK] > 0);
    const coh_disk here = { .folder = "." }, elsewhere = { .folder = "/proc" };
    assert_true(coh_profile_is_of_drives(profile, &here, 1));
    assert_false(coh_profile_is_of_drives(profile, &elsewhere, 1));
    refuse_other_drive(options, profile);
    assert_int_equal(profile->threads, 2);
    assert_true(coh_profile_is_of_here(profile));
    profile->fingerprint ^= 1;
    assert_false(coh_profile_is_of_here(profile));
    coh_profile_destroy(profile);
    coh_graph_destroy(graph);
}

/* The kind fails if a port is missing, an id is not a row, a value is not a normal number, or
 * backward does not find what forward saved. */
static void calls_are_what_the_executor_makes_of_them(void **state)
{
    (void)state;
    coh_graph *graph = strict_graph();
    const coh_measure_options options = options_for((const coh_graph *const *)&graph, 1);
    coh_profile *profile;
    calls[COH_PHASE_FORWARD] = calls[COH_PHASE_BACKWARD] = 0;
    if (coh_profile_measure(&options, begin_with(), &profile) != COH_OK)
        fail_msg("%s", coh_last_error());
    assert_true(calls[COH_PHASE_FORWARD] > 3 && calls[COH_PHASE_BACKWARD] > 3);
    check_plan_is_covered(profile, graph);
    coh_profile_destroy(profile);
    refuses = 1;
    assert_int_equal(coh_profile_measure(&options, begin_with(), &profile), COH_ERR_NUMBER);
    refuses = 0;
    assert_null(profile);
    assert_non_null(strstr(coh_last_error(), "test.strict"));
    coh_graph_destroy(graph);
}

typedef struct heard {
    uint32_t total, count, wrong;
} heard;

static void hear(void *context, uint32_t done, uint32_t total, const char *what)
{
    heard *h = context;
    h->wrong += what[0] == '\0' || done != h->count || done >= total;
    h->total = total;
    h->count++;
}

static int is_same_sample(const coh_operator_sample *a, const coh_operator_sample *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

static void refuse(const coh_measure_options *options, const coh_profile *known, coh_status status,
                   const char *says)
{
    coh_profile *profile;
    assert_int_equal(coh_profile_measure(options, known, &profile), status);
    assert_null(profile);
    if (strstr(coh_last_error(), says) == NULL)
        fail_msg("'%s' says nothing of '%s'", coh_last_error(), says);
}

static void what_is_known_stays_and_only_what_is_missing_is_measured(void **state)
{
    (void)state;
    coh_graph *graphs[] = { model_graph(1, COH_DTYPE_F32), model_graph(2, COH_DTYPE_F32) };
    coh_measure_options options = options_for((const coh_graph *const *)graphs, 1);
    heard first = { 0 }, second = { 0 };
    coh_profile *known, *both;
    options.progress = hear;
    options.context = &first;
    assert_int_equal(coh_profile_measure(&options, begin_with(), &known), COH_OK);
    assert_int_equal(first.wrong, 0);
    assert_int_equal(first.total, first.count); /* every announced measurement was begun */
    options.graph_count = 2;
    options.context = &second;
    assert_int_equal(coh_profile_measure(&options, known, &both), COH_OK);
    check_plan_is_covered(both, graphs[0]);
    check_plan_is_covered(both, graphs[1]);
    assert_memory_equal(known->flops_per_s, both->flops_per_s, sizeof(known->flops_per_s));
    assert_memory_equal(known->link, both->link, sizeof(known->link));
    assert_memory_equal(known->contention, both->contention, sizeof(known->contention));
    for (uint32_t i = 0; i < known->operator_count; i++) {
        const coh_operator_times *old = &known->operators[i], *new = &both->operators[i];
        assert_int_equal(old->signature, new->signature);
        for (uint32_t s = 0, n = 0; s < old->sample_count; s++, n++) {
            while (n < new->sample_count && !is_same_sample(&old->samples[s], &new->samples[n]))
                n++;
            assert_true(n < new->sample_count);
        }
    }
    coh_profile_destroy(both);
    /* an override makes it no longer a measurement */
    assert_int_equal(coh_profile_override(known, "pcie=2x"), COH_OK);
    refuse(&options, known, COH_ERR_ARGUMENT, "pcie=2x");
    coh_profile_destroy(known);
    coh_graph_destroy(graphs[0]);
    coh_graph_destroy(graphs[1]);
}

static void interference_is_the_instruction_through_two_losses(void **state)
{
    (void)state;
    static const struct {
        double lost_ns[COH_SINGLES], ns, ns_per_byte;
    } cases[] = {
        { { 1500, 9500 }, 500, 0.25 }, /* 4000 and 36000 bytes */
        { { 500, 40500 }, 0, 1.25 },   /* the instruction would begin below 0 */
        { { 700, 300 }, 700, 0 },      /* the larger one loses less */
        { { -200, 8000 }, 0, 0.25 },   /* faster during a transfer */
        { { -200, -100 }, 0, 0 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        coh_link_profile link = { .interference_ns = -1, .interference_ns_per_byte = -1 };
        coh_interference_fit(cases[i].lost_ns, (const double[COH_SINGLES]){ 4000, 36000 }, &link);
        assert_true(fabs(link.interference_ns - cases[i].ns) < 1e-9);
        assert_true(fabs(link.interference_ns_per_byte - cases[i].ns_per_byte) < 1e-12);
    }
}

/* So long that the present measurement, even on a busy machine, is negligible. */
static const double FORMER_S = 1e6;

/* Operators also in `measured` join old and new times; the others stay as they were. */
static void check_joined(const coh_profile *known, const coh_profile *joined,
                         const coh_profile *measured)
{
    uint32_t kept = 0, grown = 0;
    assert_int_equal(joined->operator_count, known->operator_count);
    for (uint32_t i = 0; i < known->operator_count; i++) {
        const coh_operator_times *old = &known->operators[i];
        if (old->signature == 0)
            continue; /* chunks: identified by their kind alone */
        for (uint32_t s = 0; s < old->sample_count; s++) {
            const coh_operator_sample *was = &old->samples[s];
            const coh_operator_sample *is =
                find_sample(joined, old->signature, old->phase, was->flops, was->bytes);
            assert_non_null(is);
            const double count = is->seconds.samples, more = count - was->seconds.samples;
            if (find_sample(measured, old->signature, old->phase, was->flops, was->bytes) == NULL) {
                kept++;
                assert_true(is_same_sample(was, is));
                continue;
            }
            grown++; /* FORMER_S each, and `more` of negligible time */
            assert_true(more >= 3);
            const double mean_s = is->seconds.p50 / FORMER_S;
            assert_true(mean_s > was->seconds.samples / count && mean_s < 1);
            assert_true(mean_s < (was->seconds.samples + 0.5 * more) / count);
        }
    }
    assert_true(kept > 0 && grown > 0);
}

static void what_is_measured_again_is_of_all_times(void **state)
{
    (void)state;
    coh_graph *graphs[] = { model_graph(1, COH_DTYPE_F32), model_graph(2, COH_DTYPE_F32) };
    coh_measure_options options = options_for((const coh_graph *const *)graphs, 1);
    coh_profile *measured, *known, *joined;
    assert_int_equal(coh_profile_measure(&options, begin_with(), &measured), COH_OK);
    options.graph_count = 2;
    assert_int_equal(coh_profile_measure(&options, measured, &known), COH_OK);
    for (uint32_t i = 0; i < known->operator_count; i++)
        for (uint32_t s = 0; s < known->operators[i].sample_count; s++)
            known->operators[i].samples[s].seconds =
                (coh_figure){ .p10 = FORMER_S, .p50 = FORMER_S, .p90 = FORMER_S, .samples = 10 };
    options.graph_count = 1;
    options.again = 1;
    assert_int_equal(coh_profile_measure(&options, known, &joined), COH_OK);
    check_joined(known, joined, measured);
    assert_memory_equal(known->link, joined->link, sizeof(known->link));
    coh_profile_destroy(joined);
    coh_profile_destroy(known);
    coh_profile_destroy(measured);
    coh_graph_destroy(graphs[0]);
    coh_graph_destroy(graphs[1]);
}

/* A hand-made profile may have any depth; known links still serve as loads next to the drive that
 * is measured now. */
static void a_depth_that_no_link_has_does_not_stop_the_measurement(void **state)
{
    (void)state;
    static const uint32_t wrong[] = { 0, 1u << 30 };
    coh_measure_options options = options_for(NULL, 0);
    coh_profile *known, *both;
    assert_int_equal(coh_profile_measure(&options, begin_with(), &known), COH_OK);
    options.disk_folder = ".";
    const int wrong_count =
        test_is_short() ? 1 : 2; /* short: each depth on one link, else on both */
    for (int i = 0; i < wrong_count; i++) {
        known->link[COH_LANE_H2D].depth = wrong[i];
        known->link[COH_LANE_D2H].depth = wrong[test_is_short() ? 1 : i];
        assert_int_equal(coh_profile_measure(&options, known, &both), COH_OK);
        check_figure(&both->link[COH_LANE_READ].bytes_per_s);
        coh_profile_destroy(both);
    }
    coh_profile_destroy(known);
}

static void what_is_measured_is_written_and_read_as_the_same_bytes(void **state)
{
    (void)state;
    coh_graph *graph = model_graph(2, COH_DTYPE_BF16);
    const coh_measure_options options = options_for((const coh_graph *const *)&graph, 1);
    coh_profile *profile, *again;
    coh_profile_summary summary = { .struct_bytes = sizeof(summary) },
                        summary_again = { .struct_bytes = sizeof(summary_again) };
    char path[256];
    assert_int_equal(temporary_file(path, sizeof(path), "profile"), 0);
    assert_int_equal(coh_profile_measure(&options, begin_with(), &profile), COH_OK);
    assert_int_equal(coh_profile_write(profile, path), COH_OK);
    if (coh_profile_read(path, &again) != COH_OK)
        fail_msg("%s", coh_last_error());
    assert_int_equal(coh_profile_summarize(profile, &summary), COH_OK);
    assert_int_equal(coh_profile_summarize(again, &summary_again), COH_OK);
    assert_int_equal(summary.hash, summary_again.hash);
    assert_true(coh_profile_is_of_here(again));
    (void)unlink(path);
    coh_profile_destroy(again);
    coh_profile_destroy(profile);
    coh_graph_destroy(graph);
}

static void what_cannot_be_measured_is_refused_in_a_sentence(void **state)
{
    (void)state;
    coh_measure_options options = options_for(NULL, 0);
    coh_profile known;
    coh_profile_builtin(2, 1, 0, &known);
    refuse(&options, &known, COH_ERR_ARGUMENT, "was not measured on this machine");
    options.disk_folder = "./no-such-folder";
    refuse(&options, begin_with(), COH_ERR_ARGUMENT, "no-such-folder");
    options.disk_folder = ".";
    options.disk_bytes = 1 << 20;
    refuse(&options, begin_with(), COH_ERR_FULL, "allow");
    options.thread_count = 0;
    refuse(&options, NULL, COH_ERR_ARGUMENT, "thread");
    options = options_for(NULL, 1);
    refuse(&options, NULL, COH_ERR_ARGUMENT, "options");
    options = options_for(NULL, 0);
    options.struct_bytes--;
    refuse(&options, NULL, COH_ERR_ARGUMENT, "coh_measure_options");
}

/* Not every allocation, for there are thousands: each of the first, then at growing distances.
 * Every second of the first ones starts from a known profile. Short runs use larger distances and
 * skip the case without a failure, which every other test covers. */
static void what_is_touched_outgrows_the_caches(void **state)
{
    (void)state;
    const uint64_t mib = (uint64_t)1 << 20;
    coh_measure_effort effort = { .cold_bytes = 32 * mib, .pass_bytes = 96 * mib };
    coh_effort_outgrow(&effort, 0); /* unknown */
    coh_effort_outgrow(&effort, 32 * mib);
    assert_true(effort.cold_bytes == 32 * mib && effort.pass_bytes == 96 * mib);
    coh_effort_outgrow(&effort, 64 * mib - 1);
    assert_true(effort.cold_bytes == 64 * mib && effort.pass_bytes == 96 * mib);
    coh_effort_outgrow(&effort, 384 * mib);
    assert_true(effort.cold_bytes == 384 * mib && effort.pass_bytes == 384 * mib);
}

static void a_failed_allocation_leaves_nothing_behind(void **state)
{
    (void)state;
    coh_graph *graph = strict_graph();
    const coh_measure_options options = options_for((const coh_graph *const *)&graph, 1);
    for (uint64_t n = 1;; n += 1 + (test_is_short() ? 2 * n : n / 2)) {
        const coh_profile *known = n % 2 == 0 && n < 100 ? begin_with() : NULL;
        coh_profile *profile;
        if (test_is_short() && n > 2000)
            break;
        alloc_fail_nth(n);
        coh_status status = coh_profile_measure(&options, known, &profile);
        const int was_hit = alloc_fault_was_hit();
        alloc_fail_nth(0);
        if (was_hit) {
            assert_int_not_equal(status, COH_OK);
            assert_null(profile);
            assert_true(coh_last_error()[0] != '\0');
            continue;
        }
        assert_int_equal(status, COH_OK);
        coh_profile_destroy(profile);
        if (known == NULL) /* measuring with a known profile allocates less */
            break;
    }
    coh_graph_destroy(graph);
}

/* Measuring 32 billion parameters in chunks of 64 KiB failed: no layout has that many. */
static void chunks_too_small_for_any_plan_of_a_model_are_not_measured(void **state)
{
    (void)state;
    const coh_gpt2_config wide = { .layers = 64,
                                   .heads = 64,
                                   .channels = 8192,
                                   .positions = 1024,
                                   .vocabulary = 50257,
                                   .layernorm_epsilon = 1e-5f,
                                   .dtype = COH_DTYPE_BF16 };
    coh_graph *large, *small = model_graph(1, COH_DTYPE_BF16);
    assert_int_equal(coh_gpt2_train_graph(&wide, 1, 1024, &large), COH_OK);
    const struct {
        const coh_graph *graph;
        uint64_t chunk_bytes;
        int plans;
    } cases[] = { { large, 64 << 10, 0 }, { large, 16 << 20, 1 }, { small, 64 << 10, 1 } };
    const coh_measure_options options = options_for(NULL, 0);
    coh_profile profile;
    memset(&profile, 0, sizeof(profile));
    const coh_measure m = { .options = &options, .profile = &profile };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int plans = -1;
        assert_int_equal(coh_measure_plans_chunks(&m, cases[i].graph, cases[i].chunk_bytes, &plans),
                         COH_OK);
        assert_int_equal(plans, cases[i].plans);
    }
    coh_graph_destroy(large);
    coh_graph_destroy(small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_of_a_plan_in_memory_has_a_sample_of_its_work),
        cmocka_unit_test(backwards_that_add_or_widen_have_samples_of_their_own),
        cmocka_unit_test(roofs_links_updates_and_limits_are_there),
        cmocka_unit_test(calls_are_what_the_executor_makes_of_them),
        cmocka_unit_test(interference_is_the_instruction_through_two_losses),
        cmocka_unit_test(what_is_known_stays_and_only_what_is_missing_is_measured),
        cmocka_unit_test(what_is_measured_again_is_of_all_times),
        cmocka_unit_test(a_depth_that_no_link_has_does_not_stop_the_measurement),
        cmocka_unit_test(what_is_measured_is_written_and_read_as_the_same_bytes),
        cmocka_unit_test(what_cannot_be_measured_is_refused_in_a_sentence),
        cmocka_unit_test(what_is_touched_outgrows_the_caches),
        cmocka_unit_test(chunks_too_small_for_any_plan_of_a_model_are_not_measured),
        cmocka_unit_test(a_failed_allocation_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
