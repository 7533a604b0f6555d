/* Parameters that no step changes: the plan and the engine's log tell of those that nobody froze,
 * and a graph without any parameter to train is evaluated, but not trained. */
#include <stdio.h>
#include <string.h>

#include "tests/engine/must.h"

enum { ROWS = 4, WIDTH = 6 };

static const float x[ROWS * WIDTH] = { 1, 2, 3, 4 }, y[ROWS * WIDTH] = { 1, 0, 1 };

typedef struct model {
    coh_graph *graph;
    coh_plan *plan;
    coh_engine *engine;
} model;

static char told[1024];

static void hear(void *context, const char *sentence)
{
    (void)context;
    snprintf(told, sizeof(told), "%s", sentence);
}

static coh_tensor add_linear(const model *m, const char *name, coh_tensor input, uint32_t frozen)
{
    static const coh_linear_attributes same = { WIDTH, 1, 0.2f };
    coh_tensor output;
    const coh_op_args args = { .name = name,
                               .inputs = &input,
                               .attributes = &same,
                               .attribute_bytes = sizeof(same),
                               .frozen_parameters = frozen,
                               .block = -1 };
    must(coh_graph_op(m->graph, &coh_kind_linear, &args, &output, NULL), name);
    return output;
}

/* used -> loss; aside and beyond hang on the input and lead nowhere. */
static void open_model(model *m, uint32_t used_frozen, uint32_t aside_frozen, coh_plan_mode mode)
{
    const coh_shape shape = { COH_DTYPE_F32, 2, { ROWS, WIDTH } };
    coh_tensor input, compared[2], loss;
    coh_plan_options options;
    coh_engine_options engine_options;
    *m = (model){ 0 };
    must(coh_graph_create(&m->graph), "graph");
    must(coh_graph_input(m->graph, "x", &shape, &input), "x");
    must(coh_graph_input(m->graph, "target", &shape, &compared[1]), "target");
    compared[0] = add_linear(m, "used", input, used_frozen);
    (void)add_linear(m, "beyond", add_linear(m, "aside", input, aside_frozen), UINT32_MAX);
    const coh_op_args args = { .name = "loss", .inputs = compared, .block = -1 };
    must(coh_graph_op(m->graph, &coh_kind_mean_squared_error, &args, &loss, NULL), "loss");
    must(coh_graph_loss(m->graph, loss), "the loss");
    coh_plan_options_init(&options);
    options.mode = mode;
    coh_engine_options_init(&engine_options);
    engine_options.log = hear;
    told[0] = '\0';
    must(coh_plan_create(m->graph, &options, &m->plan), "plan");
    must(coh_engine_create(m->plan, &engine_options, &m->engine), "engine");
    must(coh_engine_init(m->engine, 1), "init");
}

static void close_model(model *m)
{
    coh_engine_destroy(m->engine);
    coh_plan_destroy(m->plan);
    coh_graph_destroy(m->graph);
}

static coh_status step(const model *m)
{
    coh_step_result result = { .struct_bytes = sizeof(result) };
    const coh_step_input input = { sizeof(input), 0, 1, 1e-2f, 0, { x, y }, 1.0f };
    return coh_engine_step(m->engine, &input, &result);
}

static int changes(const model *m, int32_t parameter)
{
    float before[WIDTH * WIDTH] = { 0 }, after[WIDTH * WIDTH] = { 0 };
    int count = 0;
    const coh_parameter which = { parameter };
    must(coh_engine_fetch(m->engine, which, COH_FETCH_VALUE, before), "fetch");
    must(step(m), "step");
    must(coh_engine_fetch(m->engine, which, COH_FETCH_VALUE, after), "fetch");
    for (int i = 0; i < WIDTH * WIDTH; i++)
        count += before[i] != after[i];
    return count > 0;
}

/* Asserts that the plan says of each parameter what steps do. */
static int count_unused(const model *m)
{
    int unused = 0;
    for (int32_t i = 0; i < coh_graph_parameter_count(m->graph); i++) {
        coh_plan_parameter found = { .struct_bytes = sizeof(found) };
        coh_graph_parameter_facts facts;
        must(coh_plan_parameter_at(m->plan, i, &found), "parameter");
        must(coh_graph_parameter_at(m->graph, i, &facts), "parameter");
        assert_string_equal(found.name, facts.name);
        assert_int_equal(found.optimizer != NULL, changes(m, i));
        assert_int_equal(found.is_unused, !facts.is_frozen && found.optimizer == NULL);
        unused += found.is_unused;
    }
    return unused;
}

static void unused_parameters_are_told_before_training(void **state)
{
    (void)state;
    model m;
    open_model(&m, 0, 0, COH_PLAN_TRAIN);
    assert_non_null(strstr(told, "does not depend on 2 parameters that are not frozen, the first "
                                 "'aside.weight'"));
    assert_int_equal(count_unused(&m), 2);
    close_model(&m);
    open_model(&m, 0, 1, COH_PLAN_TRAIN);
    assert_non_null(
        strstr(told, "depend on 1 parameter that is not frozen, the first 'aside.bias'"));
    assert_int_equal(count_unused(&m), 1);
    close_model(&m);
}

static void a_graph_without_unused_parameters_is_silent(void **state)
{
    (void)state;
    model m;
    coh_plan_parameter found = { .struct_bytes = sizeof(found) };
    open_model(&m, 2, UINT32_MAX, COH_PLAN_TRAIN);
    assert_string_equal(told, "");
    assert_int_equal(count_unused(&m), 0);
    assert_int_equal(coh_plan_parameter_at(m.plan, 6, &found), COH_ERR_ARGUMENT);
    close_model(&m);
    open_model(&m, 0, 0, COH_PLAN_INFER);
    assert_string_equal(told, "");
    must(coh_plan_parameter_at(m.plan, 2, &found), "parameter");
    assert_int_equal(found.is_unused, 0);
    assert_null(found.optimizer);
    close_model(&m);
}

static void check_cannot_train(uint32_t aside_frozen, const char *words)
{
    model m;
    double loss = 0;
    uint64_t before, after;
    const coh_step_input input = { sizeof(input), 0, 1, 1e-2f, 0, { x, y }, 1.0f };
    open_model(&m, UINT32_MAX, aside_frozen, COH_PLAN_TRAIN);
    must(coh_engine_hash(m.engine, &before), "hash");
    assert_int_equal(step(&m), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), words));
    assert_int_equal(coh_engine_submit(m.engine, &input), COH_ERR_ARGUMENT);
    must(coh_engine_evaluate(m.engine, &input, &loss), "evaluate");
    assert_true(loss > 0);
    must(coh_engine_hash(m.engine, &after), "hash");
    assert_true(before == after);
    close_model(&m);
}

static void a_graph_with_nothing_to_train_is_evaluated_only(void **state)
{
    (void)state;
    check_cannot_train(UINT32_MAX, "every parameter of the graph is frozen");
    check_cannot_train(0, "does not depend on 'aside.weight'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unused_parameters_are_told_before_training),
        cmocka_unit_test(a_graph_without_unused_parameters_is_silent),
        cmocka_unit_test(a_graph_with_nothing_to_train_is_evaluated_only),
    };
    return cmocka_run_group_tests_name("unused", tests, NULL, NULL);
}
