/* The short way to a model: a layer of COH_LAYER, a chain, an engine within a limit; and the kinds
 * of any model in training: streamed, a run has the bits of the run in memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "cohobate/cohobate.h"
#include "engine/engine_state.h"
#include "planner/plan.h"
#include "tests/engine/any_model.h"

enum { STEPS = 4 };

/* ---- a layer: y = w x + b, by channel ---- */

static coh_status affine_forward(const coh_call *call)
{
    const float *x = call->input[0].data, *w = call->parameter[0].data;
    const float *b = call->parameter[1].data;
    const int64_t width = call->parameter[0].shape.dim[0];
    for (int64_t i = 0; i < coh_shape_elements(&call->input[0].shape); i++)
        ((float *)call->output[0].data)[i] = w[i % width] * x[i] + b[i % width];
    return COH_OK;
}

static coh_status affine_backward(const coh_call *call)
{
    const float *x = call->input[0].data, *w = call->parameter[0].data;
    const float *dy = call->output_grad[0].data;
    float *dx = call->input_grad[0].data, *dw = call->parameter_grad[0].data;
    float *db = call->parameter_grad[1].data;
    const int64_t width = call->parameter[0].shape.dim[0];
    memset(dw, 0, (size_t)width * sizeof(float));
    memset(db, 0, (size_t)width * sizeof(float));
    for (int64_t i = 0; i < coh_shape_elements(&call->input[0].shape); i++) {
        dx[i] = w[i % width] * dy[i];
        dw[i % width] += x[i] * dy[i];
        db[i % width] += dy[i];
    }
    return COH_OK;
}

COH_LAYER(affine, "test.affine", 1, 2, affine_forward, affine_backward,
          .parameter = { { "w", { -1 }, COH_INIT_ONE }, { "b", { -1 } } });
COH_LAYER(far, "test.far", 1, 1, affine_forward, affine_backward, .parameter = { { "w", { -4 } } });
COH_LAYER(nothing, "test.nothing", 1, 1, affine_forward, affine_backward, .takes_bf16 = 1);

static void a_layer_has_the_shapes_that_it_names_and_passes_the_check(void **state)
{
    (void)state;
    const coh_shape input = { COH_DTYPE_F32, 2, { 5, 7 } }, ids = { COH_DTYPE_I32, 2, { 5, 7 } };
    const coh_op_check_options options = { .struct_bytes = sizeof(options), .inputs = &input };
    coh_op_report report = { .struct_bytes = sizeof(report) };
    coh_op_facts facts = { 0 };
    assert_int_equal(affine.infer(NULL, &input, &facts), COH_OK);
    assert_int_equal(facts.parameter[1].shape.rank, 1);
    assert_int_equal(facts.parameter[1].shape.dim[0], 7);
    assert_int_equal(coh_op_check(&affine, &options, &report), COH_OK);
    assert_int_equal(report.finding_count, 0);
    assert_int_equal(report.gradient_count, 3);
    assert_int_equal(affine.infer(NULL, &ids, &facts), COH_ERR_SHAPE);
    assert_non_null(strstr(coh_last_error(), "give .index[0]"));
    assert_int_equal(far.infer(NULL, &input, &facts), COH_ERR_SHAPE);
    assert_non_null(strstr(coh_last_error(), "axis -4"));
    assert_int_equal(nothing.infer(NULL, &input, &facts), COH_ERR_SHAPE);
    assert_non_null(strstr(coh_last_error(), "no dimension"));
}

/* ---- layers that save, take scratch, read indices, add, or are a loss ---- */

static coh_status pick_forward(const coh_call *call)
{
    const int32_t *ids = call->input[1].data;
    const int64_t width = call->input[0].shape.dim[1];
    for (int64_t i = 0; i < coh_shape_elements(&call->input[0].shape); i++) {
        const float *row = (const float *)call->parameter[0].data + ids[i / width] * width;
        ((float *)call->saved)[i] = row[i % width];
        ((float *)call->workspace)[i / width] = 0;
        ((float *)call->output[0].data)[i] =
            ((const float *)call->input[0].data)[i] * row[i % width];
    }
    return COH_OK;
}

static coh_status pick_backward(const coh_call *call)
{
    const int32_t *ids = call->input[1].data;
    const float *x = call->input[0].data, *dy = call->output_grad[0].data;
    const int64_t width = call->input[0].shape.dim[1];
    for (int64_t i = 0; i < coh_shape_elements(&call->input[0].shape); i++) {
        float *row = (float *)call->parameter_grad[0].data + ids[i / width] * width;
        ((float *)call->input_grad[0].data)[i] += dy[i] * ((const float *)call->saved)[i];
        row[i % width] += dy[i] * x[i];
    }
    return COH_OK;
}

COH_LAYER_THAT_ADDS(pick, "test.pick", 2, 1, pick_forward, pick_backward,
                    .parameter = { { "table", { 5, -1 }, COH_INIT_NORMAL, 0.5f } },
                    .saved = { -2, -1 }, .workspace = { -2 }, .index = { [1] = { 0, 5 } });

static coh_status half_square(const coh_call *call)
{
    const float *x = call->input[0].data;
    const int64_t count = coh_shape_elements(&call->input[0].shape);
    float sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += 0.5f * x[i] * x[i] / (float)count;
    *(float *)call->output[0].data = sum;
    return COH_OK;
}

static coh_status half_square_back(const coh_call *call)
{
    const int64_t count = coh_shape_elements(&call->input[0].shape);
    for (int64_t i = 0; i < count; i++)
        ((float *)call->input_grad[0].data)[i] =
            ((const float *)call->input[0].data)[i] * call->loss_scale / (float)count;
    return COH_OK;
}

COH_LOSS_LAYER(square_loss, "test.square_loss", 1, 0, half_square, half_square_back,
               .output = { 1 });
COH_LAYER(too_large, "test.too_large", 1, 0, half_square, half_square_back,
          .saved = { -1, INT64_MAX });

static void a_layer_that_adds_saves_and_reads_indices_passes_the_check(void **state)
{
    (void)state;
    const coh_shape inputs[] = { { COH_DTYPE_F32, 2, { 6, 7 } }, { COH_DTYPE_I32, 1, { 6 } } };
    const coh_shape wrong[] = { inputs[0], { COH_DTYPE_F32, 1, { 6 } } };
    const coh_op_check_options options = { .struct_bytes = sizeof(options), .inputs = inputs };
    coh_op_report report = { .struct_bytes = sizeof(report) };
    coh_op_facts facts = { 0 };
    assert_int_equal(pick.infer(NULL, inputs, &facts), COH_OK);
    assert_int_equal(facts.saved_bytes, 6 * 7 * sizeof(float));
    assert_int_equal(facts.workspace_bytes[COH_PHASE_FORWARD], 6 * sizeof(float));
    assert_int_equal(facts.workspace_bytes[COH_PHASE_BACKWARD], 6 * sizeof(float));
    assert_int_equal(facts.index_range[1].end, 5);
    assert_int_equal(pick.can_add_grad.inputs, 3);
    assert_int_equal(coh_op_check(&pick, &options, &report), COH_OK);
    assert_int_equal(report.finding_count, 0);
    assert_int_equal(report.gradient_count, 2);
    assert_int_equal(coh_op_check(&square_loss, &options, &report), COH_OK);
    assert_int_equal(report.finding_count, 0);
    assert_int_equal(pick.infer(NULL, wrong, &facts), COH_ERR_SHAPE);
    assert_non_null(strstr(coh_last_error(), "input 1 is not i32"));
    assert_int_equal(too_large.infer(NULL, inputs, &facts), COH_ERR_SHAPE);
    assert_non_null(strstr(coh_last_error(), "saved"));
}

static float widened(uint16_t bf16)
{
    const uint32_t bits = (uint32_t)bf16 << 16;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* The sum of x / 4, which bf16 holds exactly. */
static coh_status quarter(const coh_call *call)
{
    const uint16_t *x = call->input[0].data;
    float sum = 0;
    for (int64_t i = 0; i < coh_shape_elements(&call->input[0].shape); i++)
        sum += widened(x[i]) / 4;
    *(float *)call->output[0].data = sum;
    return COH_OK;
}

static coh_status quarter_back(const coh_call *call)
{
    const float gradient = call->loss_scale / 4;
    uint32_t bits;
    memcpy(&bits, &gradient, sizeof(bits));
    for (int64_t i = 0; i < coh_shape_elements(&call->input[0].shape); i++)
        ((uint16_t *)call->input_grad[0].data)[i] = (uint16_t)(bits >> 16);
    return COH_OK;
}

COH_LOSS_LAYER(quarter_loss, "test.quarter_loss", 1, 0, quarter, quarter_back, .takes_bf16 = 1,
               .output = { 1 });

static void the_loss_of_a_bf16_layer_is_f32(void **state)
{
    (void)state;
    const coh_shape input = { COH_DTYPE_BF16, 2, { 5, 7 } };
    const coh_op_check_options options = { .struct_bytes = sizeof(options), .inputs = &input };
    coh_op_report report = { .struct_bytes = sizeof(report) };
    coh_op_facts facts = { 0 };
    coh_graph *graph;
    coh_tensor x, loss;
    const coh_op_args args = { .name = "loss", .inputs = &x, .block = -1 };
    assert_int_equal(quarter_loss.infer(NULL, &input, &facts), COH_OK);
    assert_int_equal(facts.output[0].dtype, COH_DTYPE_F32);
    assert_int_equal(facts.output[0].dim[0], 1);
    assert_int_equal(coh_op_check(&quarter_loss, &options, &report), COH_OK);
    assert_int_equal(report.finding_count, 0);
    assert_int_equal(coh_graph_create(&graph), COH_OK);
    assert_int_equal(coh_graph_input(graph, "x", &input, &x), COH_OK);
    assert_int_equal(coh_graph_op(graph, &quarter_loss, &args, &loss, NULL), COH_OK);
    assert_int_equal(coh_graph_loss(graph, loss), COH_OK);
    coh_graph_destroy(graph);
}

/* ---- the alignment of a call's buffers ---- */

enum { ALIGNMENT = 64, ROWS = 5, COLUMNS = 7, INPUT_BYTES = ROWS * COLUMNS * sizeof(float) };

static int placed_count, misplaced_count;

static void look_at(const void *data, size_t offset)
{
    placed_count++;
    misplaced_count += ((uintptr_t)data - offset) % ALIGNMENT != 0;
}

/* The first operator reads the graph's input. */
static void look_at_call(const coh_call *call)
{
    look_at(call->input[0].data,
            call->operator_index == 0 ? (size_t)call->microbatch * INPUT_BYTES : 0);
    for (int i = 0; i < 2; i++)
        look_at(call->parameter[i].data, 0);
    look_at(call->saved, 0);
    look_at(call->workspace, 0);
}

static coh_status placed_forward(const coh_call *call)
{
    look_at_call(call);
    look_at(call->output[0].data, 0);
    return affine_forward(call);
}

static coh_status placed_backward(const coh_call *call)
{
    look_at_call(call);
    look_at(call->output_grad[0].data, 0);
    look_at(call->input_grad[0].data, 0);
    for (int i = 0; i < 2; i++)
        look_at(call->parameter_grad[i].data, 0);
    return affine_backward(call);
}

COH_LAYER(placed, "test.placed", 1, 2, placed_forward, placed_backward,
          .parameter = { { "w", { -1 }, COH_INIT_ONE }, { "b", { -1 } } }, .saved = { 3, -1 },
          .workspace = { -1 });

/* Trains three micro-batches, whose inputs have no multiple of 64 bytes. */
static void train_placed(void)
{
    static const float numbers[3 * ROWS * COLUMNS];
    const coh_shape shape = { COH_DTYPE_F32, 2, { ROWS, COLUMNS } };
    const coh_chain_link links[] = { COH_LINK_OF(placed), COH_LINK_OF(placed) };
    coh_graph *graph;
    coh_tensor compared[2], loss;
    coh_plan *plan;
    coh_engine *engine;
    coh_plan_options options;
    coh_engine_options with;
    coh_step_result result = { .struct_bytes = sizeof(result) };
    const coh_step_input input = { .struct_bytes = sizeof(input),
                                   .learning_rate = 0.1f,
                                   .inputs = { numbers, numbers } };
    const coh_op_args args = { .name = "loss", .inputs = compared, .block = -1 };
    assert_int_equal(coh_graph_create(&graph), COH_OK);
    assert_int_equal(coh_graph_input(graph, "x", &shape, &compared[0]), COH_OK);
    assert_int_equal(coh_graph_input(graph, "target", &shape, &compared[1]), COH_OK);
    assert_int_equal(coh_graph_chain(graph, compared[0], links, 2, &compared[0]), COH_OK);
    assert_int_equal(coh_graph_op(graph, &coh_kind_mean_squared_error, &args, &loss, NULL), COH_OK);
    assert_int_equal(coh_graph_loss(graph, loss), COH_OK);
    coh_plan_options_init(&options);
    options.microbatch_count = 3;
    assert_int_equal(coh_plan_create(graph, &options, &plan), COH_OK);
    coh_engine_options_init(&with);
    assert_int_equal(coh_engine_create(plan, &with, &engine), COH_OK);
    assert_int_equal(coh_engine_init(engine, 1), COH_OK);
    assert_int_equal(coh_engine_step(engine, &input, &result), COH_OK);
    coh_engine_destroy(engine);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

static void the_buffers_of_a_call_are_aligned_to_64_bytes(void **state)
{
    (void)state;
    placed_count = misplaced_count = 0;
    train_placed();
    assert_true(placed_count >= 3 * 2 * (6 + 9));
    assert_int_equal(misplaced_count, 0);
}

static void only_gradients_that_are_written_are_cleared(void **state)
{
    (void)state;
    float dx[4] = { 1, 2, 3, 4 }, dw[2] = { 5, 6 }, db[2] = { 7, 8 };
    coh_call call = { .input_grad_adds = 1, .parameter_grad_adds = 2 };
    call.input_grad[0] = (coh_view){ dx, { COH_DTYPE_F32, 2, { 2, 2 } }, { 2, 1 }, { 0 } };
    call.parameter_grad[0] = (coh_view){ dw, { COH_DTYPE_F32, 1, { 2 } }, { 1 }, { 0 } };
    call.parameter_grad[1] = (coh_view){ db, { COH_DTYPE_F32, 1, { 2 } }, { 1 }, { 0 } };
    coh_layer_clear_grads(&call);
    assert_true(dx[0] == 1 && dx[3] == 4 && dw[0] == 0 && dw[1] == 0 && db[0] == 7 && db[1] == 8);
    call.input_grad_adds = 0;
    coh_layer_clear_grads(&call);
    assert_true(dx[0] == 0 && dx[1] == 0 && dx[2] == 0 && dx[3] == 0);
    coh_layer_clear_grads(NULL);
}

/* ---- chains ---- */

static void a_chain_names_its_operators_and_is_added_whole_or_not_at_all(void **state)
{
    (void)state;
    const coh_linear_attributes wide = { 9, 1, 0.1f }, none = { 0 };
    const coh_shape shape = { COH_DTYPE_F32, 2, { 5, 7 } };
    const coh_chain_link links[] = { COH_LINK(coh_kind_linear, wide), COH_LINK_OF(affine),
                                     COH_LINK_OF(coh_kind_relu) };
    coh_chain_link wrong[] = { COH_LINK(coh_kind_linear, wide), COH_LINK(coh_kind_linear, none) };
    coh_graph *graph = NULL;
    coh_graph_operator at;
    coh_tensor x, y = { -1 };
    assert_int_equal(coh_graph_create(&graph), COH_OK);
    assert_int_equal(coh_graph_input(graph, "x", &shape, &x), COH_OK);
    assert_int_equal(coh_graph_chain(graph, x, wrong, 2, &y), COH_ERR_SHAPE);
    assert_non_null(strstr(coh_last_error(), "1.linear"));
    wrong[1].kind = &coh_kind_add;
    assert_int_equal(coh_graph_chain(graph, x, wrong, 2, &y), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "2 inputs"));
    assert_int_equal(coh_graph_operator_count(graph), 0);
    assert_int_equal(y.index, -1);
    assert_int_equal(coh_graph_chain(graph, x, links, 3, &y), COH_OK);
    assert_int_equal(coh_graph_operator_count(graph), 3);
    static const char *const names[] = { "0.linear", "1.affine", "2.relu" };
    for (int i = 0; i < 3; i++) {
        assert_int_equal(coh_graph_operator_at(graph, i, &at), COH_OK);
        assert_string_equal(at.name, names[i]);
        assert_int_equal(at.output.dim[1], 9);
    }
    coh_graph_destroy(graph);
}

/* ---- training ---- */

typedef struct outcome {
    uint64_t hash, peak, moved;
    double first, last;
} outcome;

static outcome train(const coh_graph *graph, coh_dtype dtype, int has_classes, uint64_t memory)
{
    static any_model_data data;
    outcome all = { 0 };
    coh_plan *plan;
    coh_engine *engine;
    if (coh_engine_create_within(graph, memory, ".", &plan, &engine) != COH_OK)
        fail_msg("%s", coh_last_error());
    assert_int_equal(coh_engine_init(engine, 3), COH_OK);
    any_model_fill(&data, dtype, has_classes);
    for (uint64_t step = 0; step < STEPS; step++) {
        coh_step_result result = { .struct_bytes = sizeof(result) };
        const coh_step_input input = { .struct_bytes = sizeof(input),
                                       .step = step,
                                       .seed = 1,
                                       .learning_rate = 1e-2f,
                                       .clip = 1.0f,
                                       .inputs = { data.x, data.targets } };
        assert_int_equal(coh_engine_step(engine, &input, &result), COH_OK);
        all.last = result.loss;
        all.first = step == 0 ? result.loss : all.first;
        all.peak = result.peak_bytes[COH_TIER_DEVICE];
        for (int lane = COH_LANE_H2D; lane < COH_LANE_COUNT; lane++)
            all.moved += result.link_bytes[lane];
    }
    assert_int_equal(coh_engine_hash(engine, &all.hash), COH_OK);
    coh_engine_destroy(engine);
    coh_plan_destroy(plan);
    return all;
}

static void streamed_kinds_of_any_model_have_the_bits_of_those_in_memory(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        const coh_dtype dtype = i % 2 ? COH_DTYPE_BF16 : COH_DTYPE_F32;
        const int has_classes = i / 2;
        coh_graph *graph = any_model_graph(dtype, has_classes);
        const outcome whole = train(graph, dtype, has_classes, UINT64_MAX);
        const outcome streamed = train(graph, dtype, has_classes, whole.peak * 3 / 4);
        assert_int_equal(streamed.hash, whole.hash);
        assert_true(streamed.moved > 0 && streamed.peak <= whole.peak * 3 / 4);
        assert_true(whole.last < whole.first && whole.last == streamed.last);
        coh_graph_destroy(graph);
    }
}

static void what_does_not_fit_is_refused_and_nothing_is_made(void **state)
{
    (void)state;
    coh_graph *graph = any_model_graph(COH_DTYPE_F32, 0);
    coh_plan *plan;
    coh_engine *engine;
    assert_int_equal(coh_engine_create_within(graph, 4096, NULL, &plan, &engine), COH_ERR_FULL);
    assert_null(plan);
    assert_int_equal(coh_engine_create_within(graph, UINT64_MAX, NULL, &plan, &engine), COH_OK);
    coh_engine_destroy(engine);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

/* A thread for each core of the process: of one core, and of all that it may use. */
static void the_short_way_has_a_thread_for_each_core(void **state)
{
    (void)state;
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    CPU_ZERO(&one);
    for (size_t cpu = 0; CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &all))
            CPU_SET(cpu, &one);
    coh_graph *graph = any_model_graph(COH_DTYPE_F32, 0);
    for (int i = 0; i < 2; i++) {
        coh_plan *plan;
        coh_engine *engine;
        assert_int_equal(sched_setaffinity(0, sizeof(one), i == 0 ? &one : &all), 0);
        const int cores = coh_machine_core_count();
        assert_true(i == 1 || cores == 1);
        assert_int_equal(coh_engine_create_within(graph, UINT64_MAX, NULL, &plan, &engine), COH_OK);
        assert_int_equal(plan->options.thread_count, cores);
        assert_int_equal(coh_pool_thread_count(engine->pool), cores);
        coh_engine_destroy(engine);
        coh_plan_destroy(plan);
    }
    coh_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_layer_has_the_shapes_that_it_names_and_passes_the_check),
        cmocka_unit_test(a_layer_that_adds_saves_and_reads_indices_passes_the_check),
        cmocka_unit_test(the_loss_of_a_bf16_layer_is_f32),
        cmocka_unit_test(the_buffers_of_a_call_are_aligned_to_64_bytes),
        cmocka_unit_test(only_gradients_that_are_written_are_cleared),
        cmocka_unit_test(a_chain_names_its_operators_and_is_added_whole_or_not_at_all),
        cmocka_unit_test(streamed_kinds_of_any_model_have_the_bits_of_those_in_memory),
        cmocka_unit_test(what_does_not_fit_is_refused_and_nothing_is_made),
        cmocka_unit_test(the_short_way_has_a_thread_for_each_core),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
