/* Misuse of the library by a program: each case is one mistake, the status that answers it, and
 * words that the sentence must hold. After every case a right model of the same process still
 * trains to the same hash, so no mistake leaves anything behind. Beyond tests/api, which passes
 * each pointer as NULL. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cohobate/cohobate.h"
#include "tests/length.h"
#include "tests/temporary.h"

enum { ROWS = 8, COLUMNS = 4 };

static char folder[256];
static const float x[ROWS * COLUMNS] = { 1 }, y[ROWS] = { 1 };
static const coh_linear_attributes wide = { 16, 1, 0.2f }, last = { 1, 1, 0.1f };

/* ---- a right model ---- */

typedef struct model {
    coh_graph *graph;
    coh_plan *plan;
    coh_engine *engine;
    coh_tensor input, output, loss;
} model;

static coh_step_input input_of(uint64_t step)
{
    return (coh_step_input){ sizeof(coh_step_input), step, 1, 1e-3f, 1.0f, { x, y }, 1.0f };
}

static void must(coh_status status)
{
    if (status != COH_OK)
        fail_msg("%s", coh_last_error());
}

static void build(model *m)
{
    const coh_shape inputs = { COH_DTYPE_F32, 2, { ROWS, COLUMNS } };
    const coh_shape targets = { COH_DTYPE_F32, 2, { ROWS, 1 } };
    const coh_chain_link links[] = { COH_LINK(coh_kind_linear_relu, wide),
                                     COH_LINK(coh_kind_linear, last) };
    coh_tensor compared[2];
    *m = (model){ 0 };
    must(coh_graph_create(&m->graph));
    must(coh_graph_input(m->graph, "x", &inputs, &m->input));
    must(coh_graph_input(m->graph, "target", &targets, &compared[1]));
    must(coh_graph_chain(m->graph, m->input, links, 2, &compared[0]));
    m->output = compared[0];
    const coh_op_args args = { .name = "loss", .inputs = compared, .block = -1 };
    must(coh_graph_op(m->graph, &coh_kind_mean_squared_error, &args, &m->loss, NULL));
    must(coh_graph_loss(m->graph, m->loss));
}

static void open_model(model *m)
{
    coh_plan_options options;
    coh_engine_options engine_options;
    build(m);
    coh_plan_options_init(&options);
    coh_engine_options_init(&engine_options);
    must(coh_plan_create(m->graph, &options, &m->plan));
    must(coh_engine_create(m->plan, &engine_options, &m->engine));
    must(coh_engine_init(m->engine, 1));
}

static void close_model(model *m)
{
    coh_engine_destroy(m->engine);
    coh_plan_destroy(m->plan);
    coh_graph_destroy(m->graph);
}

static uint64_t hash_of_right_run(void)
{
    model m;
    uint64_t hash;
    coh_step_result result = { .struct_bytes = sizeof(result) };
    open_model(&m);
    for (uint64_t step = 0; step < 3; step++) {
        const coh_step_input input = input_of(step);
        must(coh_engine_step(m.engine, &input, &result));
    }
    must(coh_engine_hash(m.engine, &hash));
    close_model(&m);
    return hash;
}

/* ---- graphs ---- */

static coh_status add_input(model *m, const char *name, coh_shape shape)
{
    coh_tensor tensor;
    return coh_graph_input(m->graph, name, &shape, &tensor);
}

static coh_status add_op(model *m, const coh_op_kind *kind, coh_op_args args)
{
    coh_tensor outputs[COH_PORT_MAX];
    coh_parameter parameters[COH_PORT_MAX];
    return coh_graph_op(m->graph, kind, &args, outputs, parameters);
}

/* Runs a case on a graph of a right model that has no loss yet. */
static coh_status on_open_graph(coh_status (*call)(model *m))
{
    const coh_shape shape = { COH_DTYPE_F32, 2, { ROWS, COLUMNS } };
    const coh_chain_link link = COH_LINK(coh_kind_linear_relu, wide);
    model m = { 0 };
    char sentence[1024];
    must(coh_graph_create(&m.graph));
    must(coh_graph_input(m.graph, "x", &shape, &m.input));
    must(coh_graph_chain(m.graph, m.input, &link, 1, &m.output));
    const coh_status status = call(&m);
    snprintf(sentence, sizeof(sentence), "%s", coh_last_error());
    coh_graph_destroy(m.graph);
    return status == COH_OK ? COH_OK : coh_kind_fail(status, "%s", sentence);
}

/* A case that is one call. */
#define CALL(case_name, ...)                                                                       \
    static coh_status case_name(model *m)                                                          \
    {                                                                                              \
        return __VA_ARGS__;                                                                        \
    }
#define SHAPE(...) ((coh_shape){ COH_DTYPE_F32, __VA_ARGS__ })
#define INPUT(case_name, name, shape)                                                              \
    static coh_status case_name(model *m)                                                          \
    {                                                                                              \
        return add_input(m, name, shape);                                                          \
    }
INPUT(input_of_zero_rows, "z", SHAPE(2, { 0, 4 }))
INPUT(input_of_negative_columns, "z", SHAPE(2, { 4, -4 }))
INPUT(input_of_rank_0, "z", SHAPE(0, { 0 }))
INPUT(input_of_rank_99, "z", SHAPE(99, { 1 }))
INPUT(input_of_negative_rank, "z", SHAPE(-1, { 1 }))
INPUT(input_that_overflows, "z", SHAPE(2, { INT64_MAX, INT64_MAX }))
INPUT(input_of_no_dtype, "z", ((coh_shape){ (coh_dtype)77, 1, { 4 } }))
INPUT(input_without_a_name, "", SHAPE(1, { 4 }))
INPUT(input_of_a_taken_name, "x", SHAPE(1, { 4 }))
INPUT(input_with_a_newline, "a\nb", SHAPE(1, { 4 }))

static coh_status input_with_a_long_name(model *m)
{
    static char name[5000];
    memset(name, 'n', sizeof(name) - 1);
    return add_input(m, name, SHAPE(1, { 4 }));
}

static coh_status op_on(model *m, const coh_op_kind *kind, const void *attributes, size_t bytes,
                        int32_t tensor, const char *name)
{
    const coh_tensor inputs[] = { { tensor }, { tensor }, { tensor } };
    return add_op(m, kind,
                  (coh_op_args){ .name = name,
                                 .inputs = inputs,
                                 .attributes = attributes,
                                 .attribute_bytes = bytes,
                                 .block = -1 });
}

#define OP(case_name, kind, attributes, bytes, tensor, name)                                       \
    static coh_status case_name(model *m)                                                          \
    {                                                                                              \
        return op_on(m, kind, attributes, bytes, tensor, name);                                    \
    }
OP(op_on_no_tensor, &coh_kind_linear, &wide, sizeof(wide), -1, "op")
OP(op_on_a_later_tensor, &coh_kind_linear, &wide, sizeof(wide), 9999, "op")
OP(op_without_a_name, &coh_kind_linear, &wide, sizeof(wide), 0, "")
OP(op_of_a_taken_name, &coh_kind_linear, &wide, sizeof(wide), 0, "0.linear_relu")
OP(op_with_a_newline, &coh_kind_linear, &wide, sizeof(wide), 0, "a\nb")
OP(op_without_attributes, &coh_kind_linear, NULL, 0, 0, "op")
OP(op_of_short_attributes, &coh_kind_linear, &wide, 1, 0, "op")

static coh_status linear_of(model *m, int64_t columns, float std)
{
    const coh_linear_attributes attributes = { columns, 1, std };
    return op_on(m, &coh_kind_linear, &attributes, sizeof(attributes), 0, "op");
}

CALL(linear_of_no_columns, linear_of(m, 0, 0.1f))
CALL(linear_of_negative_columns, linear_of(m, -5, 0.1f))
CALL(linear_that_overflows, linear_of(m, INT64_MAX / 2, 0.1f))
CALL(linear_of_nan, linear_of(m, 4, NAN))

static coh_status loss_of_unequal_shapes(model *m)
{
    const coh_tensor compared[] = { m->input, m->output };
    return add_op(m, &coh_kind_mean_squared_error,
                  (coh_op_args){ .name = "other", .inputs = compared, .block = -1 });
}

CALL(loss_that_is_none, coh_graph_loss(m->graph, m->output))

static coh_status second_loss(model *m)
{
    model other;
    (void)m;
    build(&other);
    const coh_status status = coh_graph_loss(other.graph, other.loss);
    coh_graph_destroy(other.graph);
    return status;
}

CALL(output_of_no_tensor, coh_graph_output(m->graph, (coh_tensor){ 12345 }))

static coh_status chain_of_nothing(model *m)
{
    const coh_chain_link link = COH_LINK(coh_kind_linear, wide);
    coh_tensor out;
    return coh_graph_chain(m->graph, m->input, &link, 0, &out);
}

static coh_status chain_of_a_loss(model *m)
{
    const coh_chain_link link = COH_LINK_OF(coh_kind_mean_squared_error);
    coh_tensor out;
    return coh_graph_chain(m->graph, m->input, &link, 1, &out);
}

static coh_status operator_out_of_range(model *m)
{
    coh_graph_operator found;
    return coh_graph_operator_at(m->graph, 99, &found);
}

static coh_status parameter_out_of_range(model *m)
{
    coh_graph_parameter_facts found;
    return coh_graph_parameter_at(m->graph, -1, &found);
}

static coh_status parameter_of_no_operator(model *m)
{
    coh_parameter found;
    return coh_graph_parameter_find(m->graph, "0.linear.scale", &found);
}

/* ---- graphs that have a plan ---- */

CALL(planned_graph_gets_an_input, add_input(m, "z", SHAPE(1, { 4 })))

OP(planned_graph_gets_an_operator, &coh_kind_linear, &wide, sizeof(wide), 0, "op")

static coh_status planned_graph_gets_a_chain(model *m)
{
    const coh_chain_link link = COH_LINK(coh_kind_linear, wide);
    coh_tensor out;
    return coh_graph_chain(m->graph, m->input, &link, 1, &out);
}

CALL(planned_graph_gets_an_output, coh_graph_output(m->graph, m->output))
CALL(planned_graph_gets_a_loss, coh_graph_loss(m->graph, m->loss))

/* ---- kinds ---- */

static int fails_in; /* 1: forward, 2: backward */

static coh_status copy_forward(const coh_call *call)
{
    if (fails_in == 1)
        return coh_kind_fail(COH_ERR_CORRUPT, "forward fails on request");
    memcpy(call->output[0].data, call->input[0].data, ROWS * COLUMNS * sizeof(float));
    return COH_OK;
}

static coh_status copy_backward(const coh_call *call)
{
    if (fails_in == 2)
        return coh_kind_fail(COH_ERR_CORRUPT, "backward fails on request");
    memcpy(call->input_grad[0].data, call->output_grad[0].data, ROWS * COLUMNS * sizeof(float));
    return COH_OK;
}

COH_LAYER(copy_kind, "misuse.copy", 1, 0, copy_forward, copy_backward, .takes_bf16 = 0);

static coh_status infer_fails(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    (void)attributes;
    (void)inputs;
    (void)facts;
    return coh_kind_fail(COH_ERR_SHAPE, "infer fails on request");
}

static coh_status infer_nothing(const void *attributes, const coh_shape *inputs,
                                coh_op_facts *facts)
{
    (void)attributes;
    (void)inputs;
    (void)facts;
    return COH_OK;
}

static coh_status infer_odd_status(const void *attributes, const coh_shape *inputs,
                                   coh_op_facts *facts)
{
    (void)attributes;
    (void)inputs;
    (void)facts;
    return (coh_status)4711;
}

#define KIND(case_name, ...)                                                                       \
    static coh_status case_name(model *m)                                                          \
    {                                                                                              \
        coh_op_kind kind = copy_kind;                                                              \
        __VA_ARGS__;                                                                               \
        return op_on(m, &kind, NULL, 0, 0, "op");                                                  \
    }
KIND(kind_without_a_size, kind.struct_bytes = 0)
KIND(kind_of_another_abi, kind.abi_version = 1)
KIND(kind_without_a_name, kind.name = NULL)
KIND(kind_with_an_empty_name, kind.name = "")
KIND(kind_with_a_newline, kind.name = "mine\n.copy")
KIND(kind_of_a_later_abi, kind.abi_version = COH_KIND_ABI + 1)
KIND(kind_without_infer, kind.infer = NULL)
KIND(kind_without_forward, kind.devices[COH_DEVICE_HOST].forward = NULL)
KIND(kind_of_many_inputs, kind.input_count = COH_PORT_MAX + 1)
KIND(kind_of_negative_outputs, kind.output_count = -1)
KIND(kind_without_outputs, kind.output_count = 0)
KIND(kind_that_reads_absent_ports, kind.backward_reads.inputs = 1u << 5)
KIND(kind_whose_infer_fails, kind.infer = infer_fails)
KIND(kind_whose_infer_does_nothing, kind.infer = infer_nothing)
KIND(kind_whose_infer_has_an_odd_status, kind.infer = infer_odd_status)

static coh_status kind_checked_without_inputs(model *m)
{
    const coh_op_check_options options = { .struct_bytes = sizeof(options) };
    coh_op_report report = { .struct_bytes = sizeof(report) };
    (void)m;
    return coh_op_check(&copy_kind, &options, &report);
}

/* Trains a copy of the input's linear map; the step meets the failing kind. */
static coh_status step_of_failing_kind(int phase)
{
    model m;
    coh_tensor compared[2], loss;
    coh_plan_options options;
    coh_engine_options engine_options;
    coh_step_result result = { .struct_bytes = sizeof(result) };
    const coh_linear_attributes same = { COLUMNS, 1, 0.1f };
    const coh_chain_link links[] = { COH_LINK(coh_kind_linear, same), COH_LINK_OF(copy_kind) };
    const coh_shape shape = { COH_DTYPE_F32, 2, { ROWS, COLUMNS } };
    m = (model){ 0 };
    must(coh_graph_create(&m.graph));
    must(coh_graph_input(m.graph, "x", &shape, &m.input));
    must(coh_graph_input(m.graph, "target", &shape, &compared[1]));
    must(coh_graph_chain(m.graph, m.input, links, 2, &compared[0]));
    const coh_op_args args = { .name = "loss", .inputs = compared, .block = -1 };
    must(coh_graph_op(m.graph, &coh_kind_mean_squared_error, &args, &loss, NULL));
    must(coh_graph_loss(m.graph, loss));
    coh_plan_options_init(&options);
    coh_engine_options_init(&engine_options);
    must(coh_plan_create(m.graph, &options, &m.plan));
    must(coh_engine_create(m.plan, &engine_options, &m.engine));
    must(coh_engine_init(m.engine, 1));
    coh_step_input input = input_of(0);
    input.inputs[1] = x;
    fails_in = phase;
    const coh_status status = coh_engine_step(m.engine, &input, &result);
    fails_in = 0;
    char sentence[512];
    snprintf(sentence, sizeof(sentence), "%s", coh_last_error());
    close_model(&m);
    return status == COH_OK ? COH_OK : coh_kind_fail(status, "%s", sentence);
}

static coh_status forward_that_fails(model *m)
{
    (void)m;
    return step_of_failing_kind(1);
}

static coh_status backward_that_fails(model *m)
{
    (void)m;
    return step_of_failing_kind(2);
}

/* ---- plans ---- */

static coh_status plan_with(model *m, const coh_plan_options *options)
{
    coh_plan *plan = NULL;
    const coh_status status = coh_plan_create(m->graph, options, &plan);
    coh_plan_destroy(plan);
    return status;
}

#define PLAN(case_name, ...)                                                                       \
    static coh_status case_name(model *m)                                                          \
    {                                                                                              \
        coh_plan_options o;                                                                        \
        coh_plan_options_init(&o);                                                                 \
        __VA_ARGS__;                                                                               \
        return plan_with(m, &o);                                                                   \
    }
PLAN(plan_without_a_size, o.struct_bytes = 0)
PLAN(plan_of_no_threads, o.thread_count = 0)
PLAN(plan_of_a_million_threads, o.thread_count = 1000000)
PLAN(plan_of_negative_micro_batches, o.microbatch_count = -3)
PLAN(plan_of_no_micro_batches, o.microbatch_count = 0)
PLAN(plan_of_many_micro_batches, o.microbatch_count = 1 << 20)
PLAN(plan_of_no_memory, o.device_memory_bytes = 0)
PLAN(plan_of_a_page, o.device_memory_bytes = 4096)
PLAN(plan_of_an_unknown_mode, o.mode = (coh_plan_mode)55)
PLAN(plan_of_an_unknown_order, o.sweep_order = (coh_sweep_order)55)
PLAN(plan_of_an_unknown_recompute, o.recompute = (coh_recompute)55)
PLAN(plan_of_an_unknown_search, o.search = (coh_search)55)
PLAN(plan_of_a_negative_link, o.link_bytes_per_s = -1)
PLAN(plan_of_a_nan_link, o.link_bytes_per_s = NAN)
PLAN(plan_of_pins_without_a_list, o.pin_count = 3)
PLAN(plan_of_negative_pins, o.pin_count = -3)
PLAN(plan_of_an_unknown_optimizer, strcpy(o.optimizer, "sorcery"))
PLAN(plan_of_an_optimizer_for_nothing,
     const coh_optimizer_choice choice = { .pattern = "nothing.*", .optimizer = "adamw" };
     o.optimizer_choices = &choice; o.optimizer_choice_count = 1)
PLAN(plan_to_infer_several_micro_batches, o.mode = COH_PLAN_INFER; o.microbatch_count = 2)

static coh_status plan_of_an_empty_graph(model *m)
{
    model empty = { 0 };
    coh_plan_options options;
    (void)m;
    must(coh_graph_create(&empty.graph));
    coh_plan_options_init(&options);
    const coh_status status = plan_with(&empty, &options);
    coh_graph_destroy(empty.graph);
    return status;
}

static coh_status plan_without_a_loss(model *m)
{
    model bare = { 0 };
    coh_plan_options options;
    coh_tensor out;
    const coh_shape shape = { COH_DTYPE_F32, 2, { ROWS, COLUMNS } };
    const coh_chain_link link = COH_LINK(coh_kind_linear, wide);
    (void)m;
    must(coh_graph_create(&bare.graph));
    must(coh_graph_input(bare.graph, "x", &shape, &bare.input));
    must(coh_graph_chain(bare.graph, bare.input, &link, 1, &out));
    coh_plan_options_init(&options);
    const coh_status status = plan_with(&bare, &options);
    coh_graph_destroy(bare.graph);
    return status;
}

/* The graph is built and refused at once: nothing looks at each pair of operators. */
static coh_status plan_of_a_hundred_thousand_operators(model *m)
{
    static const coh_linear_attributes narrow = { 1, 0, 0.1f };
    model large = { 0 };
    coh_plan_options options;
    coh_tensor inputs[2], loss;
    const coh_shape shape = { COH_DTYPE_F32, 2, { 1, 1 } };
    const coh_op_args ended = { .name = "loss", .inputs = inputs, .block = -1 };
    (void)m;
    must(coh_graph_create(&large.graph));
    must(coh_graph_input(large.graph, "x", &shape, &inputs[0]));
    must(coh_graph_input(large.graph, "t", &shape, &inputs[1]));
    for (int i = 0; i < 100000; i++) {
        const coh_chain_link link = COH_LINK(coh_kind_linear, narrow);
        must(coh_graph_chain(large.graph, inputs[0], &link, 1, &inputs[0]));
    }
    must(coh_graph_op(large.graph, &coh_kind_mean_squared_error, &ended, &loss, NULL));
    must(coh_graph_loss(large.graph, loss));
    coh_plan_options_init(&options);
    const coh_status status = plan_with(&large, &options);
    coh_graph_destroy(large.graph);
    return status;
}

/* ---- engines ---- */

static coh_status engine_with(model *m, const coh_engine_options *options)
{
    coh_engine *engine = NULL;
    const coh_status status = coh_engine_create(m->plan, options, &engine);
    coh_engine_destroy(engine);
    return status;
}

#define ENGINE(case_name, ...)                                                                     \
    static coh_status case_name(model *m)                                                          \
    {                                                                                              \
        coh_engine_options o;                                                                      \
        coh_engine_options_init(&o);                                                               \
        __VA_ARGS__;                                                                               \
        return engine_with(m, &o);                                                                 \
    }
ENGINE(engine_without_a_size, o.struct_bytes = 0)
ENGINE(engine_of_no_threads, o.thread_count = 0)
ENGINE(engine_in_an_empty_folder, o.disk_folder = "")
ENGINE(engine_of_many_records, o.record_steps = UINT64_MAX)

static coh_status engine_within_nothing(model *m)
{
    coh_plan *plan = NULL;
    coh_engine *engine = NULL;
    return coh_engine_create_within(m->graph, 1, NULL, &plan, &engine);
}

static coh_status engine_within_an_empty_folder(model *m)
{
    coh_plan *plan = NULL;
    coh_engine *engine = NULL;
    return coh_engine_create_within(m->graph, 32 << 10, "", &plan, &engine);
}

static coh_status engine_in_no_folder(model *m)
{
    coh_plan *plan = NULL;
    coh_engine *engine = NULL;
    return coh_engine_create_within(m->graph, 32 << 10, "/no/such/folder", &plan, &engine);
}

/* A call on an engine whose parameters have no values. */
static coh_status on_empty_engine(model *m, coh_status (*call)(coh_engine *))
{
    coh_engine_options options;
    coh_engine *engine;
    coh_engine_options_init(&options);
    must(coh_engine_create(m->plan, &options, &engine));
    const coh_status status = call(engine);
    char sentence[512];
    snprintf(sentence, sizeof(sentence), "%s", coh_last_error());
    coh_engine_destroy(engine);
    return status == COH_OK ? COH_OK : coh_kind_fail(status, "%s", sentence);
}

static float data[ROWS * COLUMNS * 16];

static coh_status do_step(coh_engine *engine)
{
    coh_step_result result = { .struct_bytes = sizeof(result) };
    const coh_step_input input = input_of(0);
    return coh_engine_step(engine, &input, &result);
}

static coh_status do_evaluate(coh_engine *engine)
{
    const coh_step_input input = input_of(0);
    double loss;
    return coh_engine_evaluate(engine, &input, &loss);
}

static coh_status do_hash(coh_engine *engine)
{
    uint64_t hash;
    return coh_engine_hash(engine, &hash);
}

static coh_status save_to(coh_engine *engine, const char *path, const char *json)
{
    const coh_checkpoint_note note = { sizeof(note), 1, json };
    return coh_engine_save(engine, path, &note);
}

static coh_status do_save(coh_engine *engine)
{
    return save_to(engine, "never", NULL);
}

#define EMPTY(case_name, call)                                                                     \
    static coh_status case_name(model *m)                                                          \
    {                                                                                              \
        return on_empty_engine(m, call);                                                           \
    }
EMPTY(step_before_init, do_step)
EMPTY(evaluate_before_init, do_evaluate)
EMPTY(hash_before_init, do_hash)

static coh_status do_put(coh_engine *engine)
{
    return coh_engine_put(engine, (coh_parameter){ 0 }, 0, 1, data);
}

EMPTY(put_before_init, do_put)
EMPTY(save_before_init, do_save)

#define STEP(case_name, ...)                                                                       \
    static coh_status case_name(model *m)                                                          \
    {                                                                                              \
        coh_step_result result = { .struct_bytes = sizeof(result) };                               \
        coh_step_input i = input_of(0);                                                            \
        __VA_ARGS__;                                                                               \
        return coh_engine_step(m->engine, &i, &result);                                            \
    }
STEP(step_without_a_size, i.struct_bytes = 0)
STEP(step_without_an_input, i.inputs[1] = NULL)
STEP(step_of_a_nan_rate, i.learning_rate = NAN)
STEP(step_of_a_negative_rate, i.learning_rate = -1)
STEP(step_of_an_infinite_rate, i.learning_rate = INFINITY)
STEP(step_of_a_negative_clip, i.clip = -1)
STEP(step_of_a_nan_factor, i.loss_factor = NAN)

static coh_status wait_for_nothing(model *m)
{
    coh_step_result result = { .struct_bytes = sizeof(result) };
    return coh_engine_wait(m->engine, &result);
}

/* A call while a step is under way. */
static coh_status beside_a_step(model *m, coh_status (*call)(coh_engine *))
{
    const coh_step_input input = input_of(0);
    coh_step_result result = { .struct_bytes = sizeof(result) };
    must(coh_engine_submit(m->engine, &input));
    const coh_status status = call(m->engine);
    char sentence[512];
    snprintf(sentence, sizeof(sentence), "%s", coh_last_error());
    must(coh_engine_wait(m->engine, &result));
    return status == COH_OK ? COH_OK : coh_kind_fail(status, "%s", sentence);
}

static coh_status do_init(coh_engine *engine)
{
    return coh_engine_init(engine, 1);
}

static coh_status do_load(coh_engine *engine)
{
    return coh_engine_load(engine, folder, NULL);
}

#define BESIDE(case_name, call)                                                                    \
    static coh_status case_name(model *m)                                                          \
    {                                                                                              \
        return beside_a_step(m, call);                                                             \
    }
BESIDE(init_beside_a_step, do_init)
BESIDE(save_beside_a_step, do_save)
BESIDE(hash_beside_a_step, do_hash)
BESIDE(evaluate_beside_a_step, do_evaluate)

static coh_status do_fetch(coh_engine *engine)
{
    return coh_engine_fetch(engine, (coh_parameter){ 0 }, COH_FETCH_VALUE, data);
}

static coh_status do_fetch_state(coh_engine *engine)
{
    return coh_engine_fetch_state(engine, (coh_parameter){ 0 }, "m", data);
}

BESIDE(fetch_beside_a_step, do_fetch)
BESIDE(fetch_of_a_state_beside_a_step, do_fetch_state)
BESIDE(put_beside_a_step, do_put)
BESIDE(load_beside_a_step, do_load)

static coh_status three_steps_at_once(model *m)
{
    const coh_step_input first = input_of(0), second = input_of(1), third = input_of(2);
    coh_step_result result = { .struct_bytes = sizeof(result) };
    char sentence[512];
    must(coh_engine_submit(m->engine, &first));
    must(coh_engine_submit(m->engine, &second));
    const coh_status status = coh_engine_submit(m->engine, &third);
    snprintf(sentence, sizeof(sentence), "%s", coh_last_error());
    must(coh_engine_wait(m->engine, &result));
    must(coh_engine_wait(m->engine, &result));
    return status == COH_OK ? COH_OK : coh_kind_fail(status, "%s", sentence);
}

CALL(load_of_nothing, coh_engine_load(m->engine, "no-such-checkpoint", NULL))
CALL(load_of_an_empty_folder, coh_engine_load(m->engine, folder, NULL))
CALL(save_over_a_folder, save_to(m->engine, folder, NULL))
CALL(save_into_no_folder, save_to(m->engine, "no-such-folder/step-1", NULL))
CALL(save_with_a_bad_note, save_to(m->engine, "never", "{\"a\": }"))
CALL(save_to_an_empty_path, save_to(m->engine, "", NULL))

static coh_status save_to_a_long_path(model *m)
{
    static char path[9000];
    memset(path, 'p', sizeof(path) - 1);
    return save_to(m->engine, path, NULL);
}

CALL(fetch_of_no_parameter,
     coh_engine_fetch(m->engine, (coh_parameter){ -1 }, COH_FETCH_VALUE, data))
CALL(fetch_of_a_later_parameter,
     coh_engine_fetch(m->engine, (coh_parameter){ 999 }, COH_FETCH_VALUE, data))
CALL(put_into_no_parameter, coh_engine_put(m->engine, (coh_parameter){ 999 }, 0, 1, data))
CALL(put_past_the_end, coh_engine_put(m->engine, (coh_parameter){ 0 }, UINT64_MAX, 2, data))
CALL(fetch_of_something_else, coh_engine_fetch(m->engine, (coh_parameter){ 0 }, (coh_fetch)9, data))
CALL(fetch_of_an_unknown_state,
     coh_engine_fetch_state(m->engine, (coh_parameter){ 0 }, "momentum", data))

static coh_status output_that_was_not_marked(model *m)
{
    const void *found;
    size_t bytes;
    return coh_engine_output(m->engine, m->output, &found, &bytes);
}

static coh_status scan_that_is_early(model *m)
{
    char sentence[256];
    const coh_step_input input = input_of(0);
    coh_step_input other = input;
    other.inputs[0] = NULL;
    return coh_engine_scan(m->engine, &other, 0, sentence);
}

/* ---- the table ---- */

typedef struct misuse {
    const char *name;
    int is_open; /* 1: on a graph without a loss, and without a plan */
    coh_status (*call)(model *m);
    coh_status expected;
    const char *words; /* of the sentence */
} misuse;

#define ROW(call, expected, words)                                                                 \
    {                                                                                              \
#call, 0, call, COH_ERR_##expected, words                                                  \
    }
#define OPEN(call, expected, words)                                                                \
    {                                                                                              \
#call, 1, call, COH_ERR_##expected, words                                                  \
    }
static const misuse table[] = {
#include "tests/engine/misuse_rows.h"
};
enum { MISUSES = sizeof(table) / sizeof(table[0]) };

static void each_mistake_gets_its_status_and_a_sentence(void **state)
{
    (void)state;
    const uint64_t right = hash_of_right_run();
    int made = 0, wrong = 0;
    for (int i = 0; i < MISUSES; i += test_seeks_races() ? 12 : 1, made++) {
        model m;
        open_model(&m);
        const coh_status status =
            table[i].is_open ? on_open_graph(table[i].call) : table[i].call(&m);
        const char *sentence = status == COH_OK ? "" : coh_last_error();
        const int is_right = status == table[i].expected && strstr(sentence, table[i].words) &&
                             strchr(sentence, '\n') == NULL && strlen(sentence) > 10;
        if (!is_right)
            fprintf(stderr, "%s: %s: %s\n", table[i].name, coh_status_name(status), sentence);
        if (getenv("SHOW"))
            printf("%-40s %-18s %s\n", table[i].name, coh_status_name(status), sentence);
        wrong += !is_right;
        close_model(&m);
    }
    assert_int_equal(wrong, 0);
    assert_true(hash_of_right_run() == right);
    printf("figure: %d mistakes, each with its status and a sentence\n", made);
}

static int set_up(void **state)
{
    (void)state;
    return temporary_folder(folder, sizeof(folder), "misuse");
}

static int tear_down(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_mistake_gets_its_status_and_a_sentence),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
