/* A new head on a trained body: parameters that a pattern names keep their first values, all others
 * come from a checkpoint or a source, and a parameter that is missing there is never left out
 * silently. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/engine/must.h"
#include "tests/temporary.h"

enum { ROWS = 4, WIDTH = 6, MOST = WIDTH * WIDTH };

static char folder[256], path[300];

typedef struct model {
    coh_graph *graph;
    coh_plan *plan;
    coh_engine *engine;
    int classes;
} model;

/* body, head (WIDTH x classes), and then a scale of two more parameters if `has_more`. */
static void open_model(model *m, int classes, int has_more)
{
    const coh_linear_attributes wide = { WIDTH, 1, 0.2f }, last = { classes, 1, 0.1f };
    const coh_linear_attributes more = { classes, 1, 0.3f };
    const coh_chain_link links[] = {
        { sizeof(coh_chain_link), &coh_kind_linear_relu, &wide, sizeof(wide), "body" },
        { sizeof(coh_chain_link), &coh_kind_linear, &last, sizeof(last), "head" },
        { sizeof(coh_chain_link), &coh_kind_linear, &more, sizeof(more), "more" },
    };
    const coh_shape inputs = { COH_DTYPE_F32, 2, { ROWS, WIDTH } };
    const coh_shape targets = { COH_DTYPE_F32, 2, { ROWS, classes } };
    coh_tensor input, compared[2], loss;
    *m = (model){ .classes = classes };
    must(coh_graph_create(&m->graph), "graph");
    must(coh_graph_input(m->graph, "x", &inputs, &input), "x");
    must(coh_graph_input(m->graph, "target", &targets, &compared[1]), "target");
    must(coh_graph_chain(m->graph, input, links, 2 + has_more, &compared[0]), "chain");
    const coh_op_args args = { .name = "loss", .inputs = compared, .block = -1 };
    must(coh_graph_op(m->graph, &coh_kind_mean_squared_error, &args, &loss, NULL), "loss");
    must(coh_graph_loss(m->graph, loss), "the loss");
    must(coh_engine_create_within(m->graph, (uint64_t)64 << 20, NULL, &m->plan, &m->engine),
         "engine");
}

static void close_model(model *m)
{
    coh_engine_destroy(m->engine);
    coh_plan_destroy(m->plan);
    coh_graph_destroy(m->graph);
}

static void fetch(const model *m, const char *name, float values[MOST])
{
    coh_parameter parameter;
    memset(values, 0, MOST * sizeof(float));
    must(coh_graph_parameter_find(m->graph, name, &parameter), name);
    must(coh_engine_fetch(m->engine, parameter, COH_FETCH_VALUE, values), name);
}

static void assert_equal(const model *m, const char *name, const float expected[MOST])
{
    float found[MOST];
    fetch(m, name, found);
    assert_memory_equal(found, expected, sizeof(found));
}

static void train(const model *m)
{
    static const float x[ROWS * WIDTH] = { 1, 2, 3, 4 }, y[ROWS * WIDTH] = { 1, 0, 1 };
    coh_step_result result = { .struct_bytes = sizeof(result) };
    for (uint64_t step = 0; step < 2; step++) {
        const coh_step_input input = { sizeof(input), step, 1, 1e-2f, 0, { x, y }, 1.0f };
        must(coh_engine_step(m->engine, &input, &result), "step");
        assert_int_equal(result.applied_count, step + 1);
    }
}

static float body[MOST], body_bias[MOST]; /* of the checkpoint */

/* Trains a model of three classes and saves it. */
static int set_up(void **state)
{
    (void)state;
    model m;
    const coh_checkpoint_note note = { sizeof(note), 2, "{}" };
    if (temporary_folder(folder, sizeof(folder), "partly") != 0)
        return 1;
    snprintf(path, sizeof(path), "%s/step-2", folder);
    open_model(&m, 3, 0);
    must(coh_engine_init(m.engine, 1), "init");
    train(&m);
    fetch(&m, "body.weight", body);
    fetch(&m, "body.bias", body_bias);
    must(coh_engine_save(m.engine, path, &note), "save");
    close_model(&m);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return coh_checkpoint_remove(path) != COH_OK || rmdir(folder) != 0;
}

static void a_new_head_keeps_its_first_values(void **state)
{
    (void)state;
    model m;
    float head[MOST], more[MOST];
    open_model(&m, 5, 1);
    must(coh_engine_init(m.engine, 7), "init");
    fetch(&m, "head.weight", head);
    fetch(&m, "more.weight", more);
    must(coh_engine_load_partly(m.engine, 7, "head, more", path), "load");
    assert_equal(&m, "body.weight", body);
    assert_equal(&m, "body.bias", body_bias);
    assert_equal(&m, "head.weight", head);
    assert_equal(&m, "more.weight", more);
    train(&m); /* from zero states and update 0 */
    close_model(&m);
}

static void assert_refused(const model *m, const char *own, coh_status expected, const char *words)
{
    uint64_t before, after;
    must(coh_engine_hash(m->engine, &before), "hash");
    assert_int_equal(coh_engine_load_partly(m->engine, 7, own, path), expected);
    if (strstr(coh_last_error(), words) == NULL)
        fail_msg("%s", coh_last_error());
    must(coh_engine_hash(m->engine, &after), "hash");
    assert_true(before == after);
}

static void what_is_missing_and_not_named_is_refused(void **state)
{
    (void)state;
    model m;
    open_model(&m, 5, 1);
    must(coh_engine_init(m.engine, 3), "init");
    assert_refused(&m, "body", COH_ERR_CORRUPT,
                   "4 of the model's 6 parameters, the first of them "
                   "'head.weight'"); /* another shape */
    assert_refused(&m, "head,more.weight", COH_ERR_CORRUPT,
                   "1 of the model's 6 parameters, the "
                   "first of them 'more.bias'");
    assert_refused(&m, "", COH_ERR_CORRUPT, "4 of the model's 6 parameters");
    assert_refused(&m, "head,mroe", COH_ERR_ARGUMENT, "'mroe' matches no parameter");
    close_model(&m);
}

/* A source that has the body alone. */
static coh_status give_body(void *context, coh_parameter parameter, const char *name,
                            uint64_t element_begin, uint64_t count, float *values)
{
    (void)context;
    (void)parameter;
    const float *from = strcmp(name, "body.weight") == 0 ? body
                        : strcmp(name, "body.bias") == 0 ? body_bias
                                                         : NULL;
    if (from == NULL)
        return coh_kind_fail(COH_ERR_CORRUPT, "no parameter '%s'", name);
    memcpy(values, from + element_begin, count * sizeof(float));
    return COH_OK;
}

static void a_source_is_not_asked_for_what_keeps_its_values(void **state)
{
    (void)state;
    model m;
    float head[MOST];
    open_model(&m, 5, 0);
    must(coh_engine_init(m.engine, 7), "init");
    fetch(&m, "head.weight", head);
    must(coh_engine_init_partly(m.engine, 7, "head.*", give_body, NULL), "init");
    assert_equal(&m, "body.weight", body);
    assert_equal(&m, "head.weight", head);
    assert_int_equal(coh_engine_init_partly(m.engine, 7, "heat", give_body, NULL),
                     COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "'heat' matches no parameter"));
    assert_equal(&m, "body.weight", body);
    assert_int_equal(coh_engine_init_partly(m.engine, 7, "body.*", give_body, NULL),
                     COH_ERR_CORRUPT);
    assert_non_null(strstr(coh_last_error(), "no parameter 'head."));
    close_model(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_head_keeps_its_first_values),
        cmocka_unit_test(what_is_missing_and_not_named_is_refused),
        cmocka_unit_test(a_source_is_not_asked_for_what_keeps_its_values),
    };
    return cmocka_run_group_tests_name("partly", tests, set_up, tear_down);
}
