/* Kinds whose speed no profile has: a plan names them, and a run's calibration leaves them out. The
 * oracle of a factor is what the engine lists by kind. The profiles are measured here, so this is a
 * program of its own: a sanitizer would measure itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "cohobate/cohobate.h"
#include "tests/engine/any_model.h"

/* ---- a layer: y = w x ---- */

static coh_status scale_forward(const coh_call *call)
{
    const float *x = call->input[0].data, *w = call->parameter[0].data;
    const int64_t width = call->parameter[0].shape.dim[0];
    for (int64_t i = 0; i < coh_shape_elements(&call->input[0].shape); i++)
        ((float *)call->output[0].data)[i] = w[i % width] * x[i];
    return COH_OK;
}

static coh_status scale_backward(const coh_call *call)
{
    const float *x = call->input[0].data, *w = call->parameter[0].data;
    const float *dy = call->output_grad[0].data;
    float *dx = call->input_grad[0].data, *dw = call->parameter_grad[0].data;
    const int64_t width = call->parameter[0].shape.dim[0];
    memset(dw, 0, (size_t)width * sizeof(float));
    for (int64_t i = 0; i < coh_shape_elements(&call->input[0].shape); i++) {
        dx[i] = w[i % width] * dy[i];
        dw[i % width] += x[i] * dy[i];
    }
    return COH_OK;
}

COH_LAYER(scale, "test.scale", 1, 1, scale_forward, scale_backward,
          .parameter = { { "w", { -1 }, COH_INIT_ONE } });

/* ---- graphs, and profiles of them ---- */

enum { GRAPHS = 2, ROWS = 5, WIDTH = 7 };

/* [0]: a linear layer and a loss; [1]: the user's kind between them. By graph: a profile of it. */
typedef struct measured {
    coh_graph *graphs[GRAPHS];
    coh_profile *profiles[GRAPHS];
} measured;

static int measure_both(void **state)
{
    static measured all;
    const coh_shape shape = { COH_DTYPE_F32, 2, { ROWS, WIDTH } };
    const coh_linear_attributes wide = { 9, 1, 0.1f };
    const coh_chain_link links[] = { COH_LINK(coh_kind_linear, wide), COH_LINK_OF(scale) };
    for (int i = 0; i < GRAPHS; i++) {
        coh_graph *graph;
        coh_tensor compared[2], x;
        coh_measure_options options;
        assert_int_equal(coh_graph_create(&graph), COH_OK);
        assert_int_equal(coh_graph_input(graph, "x", &shape, &x), COH_OK);
        assert_int_equal(coh_graph_chain(graph, x, links, i + 1, &compared[0]), COH_OK);
        compared[1] = compared[0];
        x = any_model_add(graph, &coh_kind_mean_squared_error, "loss", NULL, 0, compared[0],
                          compared[1]);
        assert_int_equal(coh_graph_loss(graph, x), COH_OK);
        coh_measure_options_init(&options);
        options.graphs = (const coh_graph *const *)&graph;
        options.graph_count = 1;
        options.quick = 1;
        assert_int_equal(coh_profile_measure(&options, NULL, &all.profiles[i]), COH_OK);
        all.graphs[i] = graph;
    }
    *state = &all;
    return 0;
}

static int forget_both(void **state)
{
    const measured *all = *state;
    for (int i = 0; i < GRAPHS; i++) {
        coh_profile_destroy(all->profiles[i]);
        coh_graph_destroy(all->graphs[i]);
    }
    return 0;
}

static coh_plan *plan_by(const coh_graph *graph, const coh_profile *profile)
{
    coh_plan_options options;
    coh_plan *plan;
    coh_plan_options_init(&options);
    options.profile = profile;
    assert_int_equal(coh_plan_create(graph, &options, &plan), COH_OK);
    return plan;
}

/* ---- plans ---- */

static coh_plan_summary summary_of(const coh_graph *graph, const coh_profile *profile)
{
    coh_plan_summary summary = { .struct_bytes = sizeof(summary) };
    coh_plan *plan = plan_by(graph, profile);
    assert_int_equal(coh_plan_summarize(plan, &summary), COH_OK);
    coh_plan_destroy(plan);
    return summary;
}

/* A measurement of another graph leaves the user's kind out, and the plan names it. */
static void a_plan_names_the_kinds_that_were_not_measured(void **state)
{
    const measured *m = *state;
    const coh_plan_summary unknown = summary_of(m->graphs[1], NULL);
    const coh_plan_summary part = summary_of(m->graphs[1], m->profiles[0]);
    const coh_plan_summary all = summary_of(m->graphs[1], m->profiles[1]);
    assert_int_equal(unknown.unmeasured_operators, 3);
    assert_int_equal(part.unmeasured_operators, 1);
    assert_string_equal(part.unmeasured_kind, "test.scale");
    assert_int_equal(all.unmeasured_operators, 0);
    assert_null(all.unmeasured_kind);
}

/* ---- calibrations ---- */

static void run_steps(coh_engine *engine)
{
    enum { STEPS = 6 };
    float x[ROWS * WIDTH];
    for (int i = 0; i < ROWS * WIDTH; i++)
        x[i] = (float)(i % 5);
    assert_int_equal(coh_engine_init(engine, 1), COH_OK);
    for (uint64_t step = 0; step < STEPS; step++) {
        coh_step_result result = { .struct_bytes = sizeof(result) };
        const coh_step_input input = { .struct_bytes = sizeof(input),
                                       .step = step,
                                       .learning_rate = 1e-3f,
                                       .clip = 1,
                                       .inputs = { x } };
        assert_int_equal(coh_engine_step(engine, &input, &result), COH_OK);
    }
}

static void assert_near(double value, double expected)
{
    if (!(fabs(value - expected) <= 1e-9 * fabs(expected)))
        fail_msg("%.17g is not %.17g", value, expected);
}

/* Compares the factor of an opcode with what the engine measured of each kind. `counts_own`: the
 * user's kind is part of it. The opcode's share is of all that the lane did. */
static void check_factor(const char *opcode, int counts_own, const coh_instruction_class *classes,
                         uint32_t count, const coh_calibration_class *made, uint32_t made_count)
{
    double predicted_s = 0, measured_s = 0, own_s = 0, parts = 0;
    const coh_calibration_class *found = NULL;
    for (uint32_t i = 0; i < count; i++) {
        const int is_own = strcmp(classes[i].kind, "test.scale") == 0;
        own_s += is_own && !counts_own ? classes[i].measured_s : 0;
        if (strcmp(classes[i].opcode, opcode) != 0 || (is_own && !counts_own))
            continue;
        predicted_s += classes[i].predicted_s;
        measured_s += classes[i].measured_s;
    }
    for (uint32_t i = 0; i < made_count; i++) {
        found = strcmp(made[i].opcode, opcode) == 0 ? &made[i] : found;
        parts += made[i].part;
    }
    assert_non_null(found);
    assert_near(found->factor, measured_s / predicted_s);
    assert_true(counts_own == (own_s == 0));
    assert_near(parts, 1 - own_s * found->part / measured_s);
}

/* What an author declares of a kind says nothing of the machine. The profiles are calibrated, so
 * this test comes last. */
static void kinds_that_were_not_measured_calibrate_nothing(void **state)
{
    static const char path[] = "calibration-of-unmeasured.json";
    const measured *m = *state;
    coh_profile *builtin = NULL;
    assert_int_equal(coh_profile_builtin_create(1, &builtin), COH_OK);
    coh_profile *const profiles[] = { builtin, m->profiles[0], m->profiles[1] };
    for (int i = 0; i < 3; i++) {
        coh_instruction_class classes[COH_INSTRUCTION_CLASSES_MOST];
        coh_calibration_class made[COH_CALIBRATION_CLASSES_MOST];
        uint32_t count = 0, made_count = 0;
        coh_engine_options options;
        coh_engine *engine = NULL;
        (void)unlink(path);
        assert_int_equal(coh_profile_calibrate(profiles[i], path, &count), COH_OK);
        coh_plan *plan = plan_by(m->graphs[1], profiles[i]);
        coh_engine_options_init(&options);
        assert_int_equal(coh_engine_create(plan, &options, &engine), COH_OK);
        run_steps(engine);
        assert_int_equal(coh_engine_instruction_classes(engine, classes, &count), COH_OK);
        assert_int_equal(coh_engine_calibrate(engine, path, made, &made_count), COH_OK);
        check_factor("forward", profiles[i] == m->profiles[1], classes, count, made, made_count);
        check_factor("backward", profiles[i] == m->profiles[1], classes, count, made, made_count);
        coh_engine_destroy(engine);
        coh_plan_destroy(plan);
    }
    (void)unlink(path);
    coh_profile_destroy(builtin);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_names_the_kinds_that_were_not_measured),
        cmocka_unit_test(kinds_that_were_not_measured_calibrate_nothing),
    };
    return cmocka_run_group_tests(tests, measure_both, forget_both);
}
