/* Kinds whose speed no profile has: a plan names them. The profiles are measured here, so this is a
 * program of its own: a sanitizer would measure itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

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

static coh_plan_summary summary_of(const coh_graph *graph, const coh_profile *profile)
{
    coh_plan_options options;
    coh_plan_summary summary = { .struct_bytes = sizeof(summary) };
    coh_plan *plan;
    coh_plan_options_init(&options);
    options.profile = profile;
    assert_int_equal(coh_plan_create(graph, &options, &plan), COH_OK);
    assert_int_equal(coh_plan_summarize(plan, &summary), COH_OK);
    coh_plan_destroy(plan);
    return summary;
}

/* A measurement of another graph leaves the user's kind out, and the plan names it. */
static void a_plan_names_the_kinds_that_were_not_measured(void **state)
{
    (void)state;
    const coh_shape shape = { COH_DTYPE_F32, 2, { 5, 7 } };
    const coh_linear_attributes wide = { 9, 1, 0.1f };
    const coh_chain_link links[] = { COH_LINK(coh_kind_linear, wide), COH_LINK_OF(scale) };
    coh_graph *graphs[2];
    coh_profile *profiles[2] = { NULL, NULL };
    for (int i = 0; i < 2; i++) {
        coh_tensor compared[2], x;
        coh_measure_options options;
        assert_int_equal(coh_graph_create(&graphs[i]), COH_OK);
        assert_int_equal(coh_graph_input(graphs[i], "x", &shape, &x), COH_OK);
        assert_int_equal(coh_graph_chain(graphs[i], x, links, i + 1, &compared[0]), COH_OK);
        compared[1] = compared[0];
        x = any_model_add(graphs[i], &coh_kind_mean_squared_error, "loss", NULL, 0, compared[0],
                          compared[1]);
        assert_int_equal(coh_graph_loss(graphs[i], x), COH_OK);
        coh_measure_options_init(&options);
        options.graphs = (const coh_graph *const *)&graphs[i];
        options.graph_count = 1;
        options.quick = 1;
        assert_int_equal(coh_profile_measure(&options, profiles[0], &profiles[i]), COH_OK);
    }
    const coh_plan_summary unknown = summary_of(graphs[1], NULL);
    const coh_plan_summary part = summary_of(graphs[1], profiles[0]);
    const coh_plan_summary all = summary_of(graphs[1], profiles[1]);
    assert_int_equal(unknown.unmeasured_operators, 3);
    assert_int_equal(part.unmeasured_operators, 1);
    assert_string_equal(part.unmeasured_kind, "test.scale");
    assert_int_equal(all.unmeasured_operators, 0);
    assert_null(all.unmeasured_kind);
    for (int i = 0; i < 2; i++) {
        coh_profile_destroy(profiles[i]);
        coh_graph_destroy(graphs[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_names_the_kinds_that_were_not_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
