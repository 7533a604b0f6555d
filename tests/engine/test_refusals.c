/* Mistakes of a caller: each is refused with a message before anything is lost, and the graph or
 * engine continues as if the call had not been made. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cohobate/cohobate.h"
#include "engine/input_check.h"
#include "tests/search_length.h"

enum { TOKENS = 8, VOCABULARY = 32, ELEMENTS = 70000 };

static void has_sentence(coh_status status, coh_status expected, const char *part)
{
    if (status != expected || strstr(coh_last_error(), part) == NULL)
        fail_msg("%s with \"%s\": %s with \"%s\" was expected", coh_status_name(status),
                 coh_last_error(), coh_status_name(expected), part);
}

/* ---- test kinds: y = x w, and loss = sum of y ---- */

static int fails_forward; /* while 1, forward of the scaling kind fails */

static coh_status scaling_infer(const void *attributes, const coh_shape *inputs,
                                coh_op_facts *facts)
{
    const char *const *names = attributes;
    facts->output[0] = inputs[0];
    facts->parameter[0] =
        (coh_parameter_facts){ .name = names[0], .shape = inputs[0], .init = COH_INIT_ONE };
    if (names[1] != NULL)
        facts->parameter[1] = (coh_parameter_facts){ .name = names[1], .shape = inputs[0] };
    return COH_OK;
}

static coh_status scaling_forward(const coh_call *call)
{
    const float *x = call->input[0].data, *w = call->parameter[0].data;
    float *y = call->output[0].data;
    if (fails_forward)
        return coh_kind_fail(COH_ERR_CORRUPT, "a failure on request");
    for (int i = 0; i < ELEMENTS; i++)
        y[i] = x[i] * w[i];
    return COH_OK;
}

static coh_status scaling_backward(const coh_call *call)
{
    const float *x = call->input[0].data, *w = call->parameter[0].data;
    const float *dy = call->output_grad[0].data;
    float *dx = call->input_grad[0].data, *dw = call->parameter_grad[0].data;
    for (int i = 0; i < ELEMENTS; i++) {
        if (dx != NULL)
            dx[i] = dy[i] * w[i];
        if (dw != NULL)
            dw[i] = dy[i] * x[i];
    }
    return COH_OK;
}

static const coh_op_kind scaling = {
    .struct_bytes = sizeof(coh_op_kind),
    .abi_version = COH_KIND_ABI,
    .name = "test.scaling",
    .input_count = 1,
    .output_count = 1,
    .parameter_count = 1,
    .backward_reads = { .inputs = 1, .parameters = 1 },
    .infer = scaling_infer,
    .devices = { [COH_DEVICE_HOST] = { .forward = scaling_forward, .backward = scaling_backward } },
};

static coh_status sum_infer(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    (void)attributes, (void)inputs;
    facts->output[0] = (coh_shape){ .dtype = COH_DTYPE_F32, .rank = 1, .dim = { 1 } };
    return COH_OK;
}

static coh_status sum_forward(const coh_call *call)
{
    const float *x = call->input[0].data;
    double sum = 0;
    for (int i = 0; i < ELEMENTS; i++)
        sum += (double)x[i];
    *(float *)call->output[0].data = (float)sum;
    return COH_OK;
}

static coh_status sum_backward(const coh_call *call)
{
    float *dx = call->input_grad[0].data;
    for (int i = 0; i < ELEMENTS && dx != NULL; i++)
        dx[i] = call->loss_scale;
    return COH_OK;
}

static const coh_op_kind sum = {
    .struct_bytes = sizeof(coh_op_kind),
    .abi_version = COH_KIND_ABI,
    .name = "test.sum",
    .input_count = 1,
    .output_count = 1,
    .is_loss = 1,
    .infer = sum_infer,
    .devices = { [COH_DEVICE_HOST] = { .forward = sum_forward, .backward = sum_backward } },
};

static coh_graph *begin_graph(coh_tensor *out_input)
{
    coh_graph *graph = NULL;
    const coh_shape shape = { .dtype = COH_DTYPE_F32, .rank = 1, .dim = { ELEMENTS } };
    assert_int_equal(coh_graph_create(&graph), COH_OK);
    assert_int_equal(coh_graph_input(graph, "x", &shape, out_input), COH_OK);
    return graph;
}

static coh_status add(coh_graph *graph, const coh_op_kind *kind, const char *name,
                      const char *const *names, coh_tensor *tensor)
{
    static const char *const usual[] = { "w", NULL };
    const coh_tensor input = *tensor;
    const int has_attributes = kind->infer == scaling_infer;
    const coh_op_args args = { .name = name,
                               .attributes = names ? names : usual,
                               .attribute_bytes = has_attributes ? sizeof(usual) : 0,
                               .inputs = &input,
                               .block = -1 };
    return coh_graph_op(graph, kind, &args, tensor, NULL);
}

static coh_status plan_of(const coh_graph *graph, coh_plan **out_plan)
{
    coh_plan_options options;
    coh_plan_options_init(&options);
    return coh_plan_create(graph, &options, out_plan);
}

/* ---- graphs ---- */

static void two_parameters_of_one_name_are_refused_and_leave_the_graph_as_it_was(void **state)
{
    (void)state;
    coh_tensor tensor, before;
    coh_graph *graph = begin_graph(&tensor);
    const char *const dotted[] = { "b.c", NULL }, *const plain[] = { "c", NULL },
                      *const twice[] = { "w", "w" };
    coh_op_kind with_two = scaling;
    with_two.parameter_count = 2;
    coh_plan *plan = NULL;
    coh_op_kind named = scaling;
    assert_int_equal(add(graph, &named, "a", dotted, &tensor), COH_OK);
    before = tensor;
    has_sentence(add(graph, &named, "a.b", plain, &tensor), COH_ERR_ARGUMENT, "a.b.c");
    tensor = before;
    has_sentence(add(graph, &with_two, "d", twice, &tensor), COH_ERR_ARGUMENT, "d.w");
    tensor = before;
    has_sentence(add(graph, &named, "", NULL, &tensor), COH_ERR_ARGUMENT, "empty");
    has_sentence(add(graph, &named, NULL, NULL, &tensor), COH_ERR_ARGUMENT, "NULL");
    has_sentence(add(graph, &named, "a\nb", NULL, &tensor), COH_ERR_ARGUMENT, "control");
    assert_int_equal(coh_graph_operator_count(graph), 1);
    tensor = before;
    assert_int_equal(add(graph, &named, "d", NULL, &tensor), COH_OK);
    assert_int_equal(add(graph, &sum, "sum", NULL, &tensor), COH_OK);
    assert_int_equal(coh_graph_loss(graph, tensor), COH_OK);
    assert_int_equal(plan_of(graph, &plan), COH_OK);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

static void a_trained_operator_without_backward_is_refused_by_the_plan(void **state)
{
    (void)state;
    for (int place = 0; place < 3; place++) { /* before the loss, the loss itself, nowhere */
        coh_tensor tensor;
        coh_graph *graph = begin_graph(&tensor);
        coh_plan *plan = NULL;
        coh_op_kind forward_only = place == 1 ? sum : scaling;
        forward_only.devices[COH_DEVICE_HOST].backward = NULL;
        forward_only.name = "test.forward_only";
        assert_int_equal(add(graph, &scaling, "first", NULL, &tensor), COH_OK);
        if (place == 0)
            assert_int_equal(add(graph, &forward_only, "second", NULL, &tensor), COH_OK);
        assert_int_equal(add(graph, place == 1 ? &forward_only : &sum, "third", NULL, &tensor),
                         COH_OK);
        if (place < 2) {
            assert_int_equal(coh_graph_loss(graph, tensor), COH_OK);
            has_sentence(plan_of(graph, &plan), COH_ERR_ARGUMENT, "test.forward_only");
            assert_non_null(strstr(coh_last_error(), place == 0 ? "second" : "third"));
        } else {
            has_sentence(plan_of(graph, &plan), COH_ERR_ARGUMENT, "loss");
        }
        assert_null(plan);
        coh_graph_destroy(graph);
    }
}

static void a_forward_only_operator_before_all_that_is_trained_is_planned(void **state)
{
    (void)state;
    coh_tensor tensor, output;
    coh_graph *graph = begin_graph(&tensor);
    coh_plan *plan = NULL;
    coh_op_kind forward_only = scaling;
    forward_only.devices[COH_DEVICE_HOST].backward = NULL;
    const char *const names[] = { "w", NULL };
    const coh_op_args frozen = { .name = "frozen",
                                 .attributes = names,
                                 .attribute_bytes = sizeof(names),
                                 .inputs = &tensor,
                                 .frozen_parameters = 1,
                                 .block = -1 };
    assert_int_equal(coh_graph_op(graph, &forward_only, &frozen, &output, NULL), COH_OK);
    assert_int_equal(add(graph, &scaling, "trained", NULL, &output), COH_OK);
    assert_int_equal(add(graph, &sum, "sum", NULL, &output), COH_OK);
    assert_int_equal(coh_graph_loss(graph, output), COH_OK);
    assert_int_equal(plan_of(graph, &plan), COH_OK);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

static void attributes_shorter_than_the_kind_reads_are_refused(void **state)
{
    (void)state;
    coh_tensor tensor;
    coh_graph *graph = begin_graph(&tensor);
    has_sentence(add(graph, &coh_kind_scale, "scale", NULL, &tensor), COH_ERR_ARGUMENT,
                 "cohobate.scale");
    coh_graph_destroy(graph);
}

static void a_kind_of_another_abi_is_refused_before_its_members_are_read(void **state)
{
    (void)state;
    coh_tensor tensor;
    coh_graph *graph = begin_graph(&tensor);
    struct {
        coh_op_kind kind;
        uint64_t later; /* a member of a newer header */
    } newer;
    coh_op_kind other;
    memset(&other, 0xff, sizeof(other)); /* pointers that nobody may follow */
    other.struct_bytes = sizeof(other) - 3 * sizeof(void *);
    other.abi_version = COH_KIND_ABI - 1;
    has_sentence(add(graph, &other, "old", NULL, &tensor), COH_ERR_ARGUMENT, "compile it again");
    other.struct_bytes = 2 * sizeof(uint32_t);
    has_sentence(add(graph, &other, "old", NULL, &tensor), COH_ERR_ARGUMENT, "compile it again");
    memset(&newer, 0xff, sizeof(newer));
    newer.kind.struct_bytes = sizeof(newer);
    newer.kind.abi_version = COH_KIND_ABI + 1;
    has_sentence(add(graph, &newer.kind, "new", NULL, &tensor), COH_ERR_ARGUMENT, "newer library");
    newer.kind.abi_version = COH_KIND_ABI;
    has_sentence(add(graph, &newer.kind, "long", NULL, &tensor), COH_ERR_ARGUMENT, "newer library");
    other.struct_bytes = sizeof(uint32_t);
    has_sentence(add(graph, &other, "short", NULL, &tensor), COH_ERR_ARGUMENT, "struct_bytes");
    assert_int_equal(coh_graph_operator_count(graph), 0);
    coh_graph_destroy(graph);
}

static void a_kind_without_forward_on_the_host_is_refused(void **state)
{
    (void)state;
    coh_tensor tensor;
    coh_graph *graph = begin_graph(&tensor);
    coh_op_kind elsewhere = scaling;
    elsewhere.devices[COH_DEVICE_CUDA] = elsewhere.devices[COH_DEVICE_HOST];
    elsewhere.devices[COH_DEVICE_HOST] = (coh_kind_device){ 0 };
    has_sentence(add(graph, &elsewhere, "elsewhere", NULL, &tensor), COH_ERR_ARGUMENT,
                 "forward of the host device");
    coh_graph_destroy(graph);
}

/* ---- numbers and ids of a step ---- */

typedef struct tiny {
    coh_graph *graph;
    coh_plan *plan;
    coh_engine *engine;
    int32_t tokens[TOKENS], targets[TOKENS];
    coh_step_input input;
} tiny;

static void tiny_begin(tiny *t)
{
    const coh_model model = { .name = "tiny",
                              .family = COH_FAMILY_GPT2,
                              .gpt2 = { .layers = 1,
                                        .heads = 2,
                                        .channels = 16,
                                        .positions = TOKENS,
                                        .vocabulary = VOCABULARY,
                                        .layernorm_epsilon = 1e-5f } };
    coh_engine_options options;
    coh_engine_options_init(&options);
    *t = (tiny){ .input = { .struct_bytes = sizeof(t->input), .learning_rate = 1e-3f, .clip = 1 } };
    for (int i = 0; i < TOKENS; i++) {
        t->tokens[i] = i * 3 % VOCABULARY;
        t->targets[i] = i == 2 ? -1 : (i * 3 + 3) % VOCABULARY;
    }
    t->input.inputs[0] = t->tokens;
    t->input.inputs[1] = t->targets;
    assert_int_equal(coh_model_train_graph(&model, 1, TOKENS, &t->graph), COH_OK);
    assert_int_equal(plan_of(t->graph, &t->plan), COH_OK);
    assert_int_equal(coh_engine_create(t->plan, &options, &t->engine), COH_OK);
    assert_int_equal(coh_engine_init(t->engine, 1), COH_OK);
}

static void tiny_end(tiny *t)
{
    coh_engine_destroy(t->engine);
    coh_plan_destroy(t->plan);
    coh_graph_destroy(t->graph);
}

static void a_host_tier_without_a_gpu_needs_the_switch_of_the_emulation(void **state)
{
    (void)state;
    tiny t;
    coh_plan_options options;
    coh_plan *plan = NULL;
    tiny_begin(&t);
    coh_plan_options_init(&options);
    options.host_memory_bytes = (uint64_t)1 << 30;
    has_sentence(coh_plan_create(t.graph, &options, &plan), COH_ERR_ARGUMENT, "emulate_host");
    assert_null(plan);
    options.emulate_host = 2;
    has_sentence(coh_plan_create(t.graph, &options, &plan), COH_ERR_ARGUMENT, "emulate_host");
    options.emulate_host = 1;
    assert_int_equal(coh_plan_create(t.graph, &options, &plan), COH_OK);
    coh_plan_destroy(plan);
    tiny_end(&t);
}

static uint64_t hash_of(coh_engine *engine)
{
    uint64_t hash;
    assert_int_equal(coh_engine_hash(engine, &hash), COH_OK);
    return hash;
}

static void a_rate_that_is_no_positive_number_is_refused_and_changes_no_weight(void **state)
{
    (void)state;
    tiny t;
    coh_step_result result = { .struct_bytes = sizeof(result) };
    const float refused[] = { NAN, INFINITY, -INFINITY, -1e-3f };
    tiny_begin(&t);
    const uint64_t before = hash_of(t.engine);
    for (int number = 0; number < 3; number++)
        for (int i = 0; i < 4; i++) {
            coh_step_input input = t.input;
            float *const numbers[] = { &input.learning_rate, &input.clip, &input.loss_factor };
            *numbers[number] = refused[i];
            has_sentence(coh_engine_step(t.engine, &input, &result), COH_ERR_ARGUMENT,
                         (const char *[]){ "learning rate", "clip", "loss factor" }[number]);
            has_sentence(coh_engine_submit(t.engine, &input), COH_ERR_ARGUMENT, "step 0");
        }
    assert_int_equal(hash_of(t.engine), before);
    assert_int_equal(coh_engine_step(t.engine, &t.input, &result), COH_OK);
    tiny_end(&t);
}

static void a_number_of_an_optimizer_that_is_wrong_is_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        coh_hyperparameter_value value;
        const char *part; /* of the sentence */
    } wrong[] = {
        { { NULL, "beta1", -0.1f }, "beta1 of optimizer adamw is -0.1" },
        { { NULL, "beta1", 1.0f }, "beta1 of optimizer adamw is 1: give 0 to 0.9999999" },
        { { "adamw", "beta1", NAN }, "beta1 of optimizer adamw" },
        { { "adamw", "beta2", 1.0f }, "beta2 of optimizer adamw is 1" },
        { { NULL, "beta2", INFINITY }, "beta2 of optimizer adamw" },
        { { NULL, "epsilon", 0.0f }, "epsilon of optimizer adamw is 0" },
        { { "adamw", "epsilon", -1e-8f }, "epsilon of optimizer adamw" },
        { { NULL, "epsilon", INFINITY }, "epsilon of optimizer adamw" },
        { { NULL, "epsilon", NAN }, "epsilon of optimizer adamw" },
        { { NULL, "beta3", 0.5f }, "beta3" },
        { { "adamw", "momentum", 0.5f }, "adamw" },
        { { "nobody", "beta1", 0.5f }, "nobody" },
        { { "", "beta1", 0.5f }, "beta1" },
        { { NULL, NULL, 0.5f }, "NULL" },
    };
    tiny t;
    coh_engine *engine = NULL;
    coh_engine_options options;
    tiny_begin(&t);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        const coh_hyperparameter_value two[] = { { "adamw", "beta2", 0.5f }, wrong[i].value };
        coh_engine_options_init(&options);
        options.hyperparameters = two;
        options.hyperparameter_count = 2;
        has_sentence(coh_engine_create(t.plan, &options, &engine), COH_ERR_ARGUMENT, wrong[i].part);
        assert_null(engine);
    }
    coh_engine_options_init(&options);
    options.hyperparameter_count = 1;
    has_sentence(coh_engine_create(t.plan, &options, &engine), COH_ERR_ARGUMENT, "NULL");
    const float decays[] = { -0.1f, NAN, INFINITY };
    for (int i = 0; i < 3; i++) {
        coh_engine_options_init(&options);
        options.weight_decay = decays[i];
        has_sentence(coh_engine_create(t.plan, &options, &engine), COH_ERR_ARGUMENT,
                     "weight_decay");
    }
    /* both ends of a range are in it */
    const coh_hyperparameter_value ends[] = { { NULL, "beta1", 0 },
                                              { NULL, "beta2", nextafterf(1, 0) },
                                              { NULL, "epsilon", nextafterf(0, 1) } };
    coh_engine_options_init(&options);
    options.hyperparameters = ends;
    options.hyperparameter_count = 3;
    has_sentence(coh_engine_create(t.plan, &options, &engine), COH_OK, "");
    coh_engine_destroy(engine);
    tiny_end(&t);
}

static void an_id_outside_its_table_is_refused_and_the_engine_goes_on(void **state)
{
    (void)state;
    tiny t;
    coh_step_result result = { .struct_bytes = sizeof(result) };
    double loss;
    char sentence[256];
    const struct {
        int input, place, value;
        const char *name, *limits;
    } cases[] = { { 0, 5, VOCABULARY, "tokens", "0 to 31" },
                  { 0, 7, -1, "tokens", "0 to 31" },
                  { 1, 0, -2, "targets", "-1 to 31" },
                  { 1, 3, INT32_MAX, "targets", "-1 to 31" } };
    tiny_begin(&t);
    const uint64_t before = hash_of(t.engine);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int32_t *place = (cases[i].input ? t.targets : t.tokens) + cases[i].place;
        const int32_t good = *place;
        char where[64];
        *place = cases[i].value;
        snprintf(where, sizeof(where), "%s holds %d at place %d", cases[i].name, cases[i].value,
                 cases[i].place);
        has_sentence(coh_engine_submit(t.engine, &t.input), COH_ERR_ARGUMENT, where);
        assert_non_null(strstr(coh_last_error(), cases[i].limits));
        has_sentence(coh_engine_evaluate(t.engine, &t.input, &loss), COH_ERR_ARGUMENT, where);
        has_sentence(coh_engine_scan(t.engine, &t.input, 0, sentence), COH_ERR_ARGUMENT, where);
        *place = good;
    }
    assert_int_equal(hash_of(t.engine), before);
    assert_int_equal(coh_engine_step(t.engine, &t.input, &result), COH_OK);
    assert_int_equal(result.finite, 1);
    tiny_end(&t);
}

static coh_status ranged_infer(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    (void)inputs;
    facts->output[0] = (coh_shape){ .dtype = COH_DTYPE_F32, .rank = 1, .dim = { 1 } };
    facts->index_range[0] = *(const coh_index_range *)attributes;
    return COH_OK;
}

static void the_narrowest_range_of_an_input_names_its_operator(void **state)
{
    (void)state;
    const coh_op_kind ranged = { .struct_bytes = sizeof(coh_op_kind),
                                 .abi_version = COH_KIND_ABI,
                                 .name = "test.ranged",
                                 .input_count = 1,
                                 .output_count = 1,
                                 .infer = ranged_infer,
                                 .devices = { [COH_DEVICE_HOST] = { .forward = sum_forward } } };
    const coh_shape shape = { .dtype = COH_DTYPE_I32, .rank = 1, .dim = { 4 } };
    const struct {
        const char *name;
        coh_index_range range;
    } readers[] = { { "any", { 0, 0 } },
                    { "narrow", { 0, 32 } },
                    { "wide", { INT64_MIN, INT64_MAX } } };
    coh_input_limit limits[COH_PORT_MAX];
    coh_tensor ids, unused;
    coh_graph *graph = NULL;
    assert_int_equal(coh_graph_create(&graph), COH_OK);
    assert_int_equal(coh_graph_input(graph, "ids", &shape, &ids), COH_OK);
    for (size_t i = 0; i < sizeof(readers) / sizeof(readers[0]); i++) {
        const coh_op_args args = { .name = readers[i].name,
                                   .attributes = &readers[i].range,
                                   .attribute_bytes = sizeof(readers[i].range),
                                   .inputs = &ids,
                                   .block = -1 };
        assert_int_equal(coh_graph_op(graph, &ranged, &args, &unused, NULL), COH_OK);
    }
    coh_input_limits_find(graph, limits);
    assert_int_equal(limits[0].least, 0);
    assert_int_equal(limits[0].end, 32);
    assert_string_equal(graph->ops[limits[0].op].name, "narrow");
    coh_graph_destroy(graph);
}

/* Positions of documents count from 0, in each row anew; two micro-batches of two rows. */
static void positions_that_do_not_count_are_refused(void **state)
{
    (void)state;
    const coh_attention_attributes attributes = { .heads = 1 };
    const coh_shape x = { .dtype = COH_DTYPE_F32, .rank = 3, .dim = { 2, 4, 3 } };
    const coh_shape shape = { .dtype = COH_DTYPE_I32, .rank = 2, .dim = { 2, 4 } };
    const float values[2 * 2 * 4 * 3] = { 0 };
    const struct {
        int32_t positions[16];
        const char *says; /* NULL: they are good */
    } cases[] = {
        { { 0, 1, 2, 3, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 1 }, NULL },
        { { 0, 1, 2, 3, 1 }, "input positions holds 1 at place 4" },
        { { 0, 1, 3, 0 }, "input positions holds 3 at place 2" },
        { { 0, 1, 1, 0 }, "input positions holds 1 at place 2" },
        { { 0, 1, 2, 3, 0, 1, 2, 3, 0, 0, 0, 0, 0, 1, 2, 0 }, NULL },
        { { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2 },
          "input positions holds 2 at place 15" },
        { { 0, 1, 2, 4 }, "input positions holds 4 at place 3" },
        { { -1 }, "input positions holds -1 at place 0" },
    };
    coh_input_limit limits[COH_PORT_MAX];
    coh_tensor inputs[2], y;
    coh_graph *graph = NULL;
    assert_int_equal(coh_graph_create(&graph), COH_OK);
    assert_int_equal(coh_graph_input(graph, "x", &x, &inputs[0]), COH_OK);
    assert_int_equal(coh_graph_input(graph, "positions", &shape, &inputs[1]), COH_OK);
    const coh_op_args args = { .name = "attend",
                               .attributes = &attributes,
                               .attribute_bytes = sizeof(attributes),
                               .inputs = inputs,
                               .block = -1 };
    assert_int_equal(coh_graph_op(graph, &coh_kind_attention_documents, &args, &y, NULL), COH_OK);
    coh_input_limits_find(graph, limits);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const coh_step_input input = { .struct_bytes = sizeof(input),
                                       .inputs = { values, cases[i].positions } };
        const coh_status status = coh_input_check(graph, limits, &input, 2);
        if (cases[i].says)
            has_sentence(status, COH_ERR_ARGUMENT, cases[i].says);
        else
            assert_int_equal(status, COH_OK);
    }
    coh_graph_destroy(graph);
}

static void a_group_names_an_operator_by_a_name_of_any_length(void **state)
{
    (void)state;
    char name[512];
    uint32_t count = 0;
    uint64_t elements = 0;
    coh_tensor tensor;
    coh_graph *graph = begin_graph(&tensor);
    memset(name, 'a', sizeof(name));
    memcpy(name + sizeof(name) - sizeof("last"), "last", sizeof("last"));
    assert_int_equal(add(graph, &scaling, name, NULL, &tensor), COH_OK);
    assert_int_equal(coh_parameter_group_count(graph, "*last", &count, &elements), COH_OK);
    assert_int_equal(count, 1);
    assert_int_equal(elements, ELEMENTS);
    coh_graph_destroy(graph);
}

/* ---- a kind that fails ---- */

/* Returns the hash after three steps. `fails`: the second step fails once and is then repeated;
 * `streams`: the weights are on disk. */
static uint64_t three_steps(int fails, int streams)
{
    static float x[ELEMENTS], values[ELEMENTS];
    coh_tensor tensor;
    coh_graph *graph = begin_graph(&tensor);
    coh_plan *plan = NULL;
    coh_engine *engine = NULL;
    coh_step_result result = { .struct_bytes = sizeof(result) };
    coh_plan_options plan_options;
    coh_engine_options options;
    uint64_t least;
    for (int i = 0; i < ELEMENTS; i++)
        x[i] = (float)(i % 13) - 6.0f;
    for (int i = 0; i < 4; i++) {
        char name[] = "layer0";
        name[5] = (char)('0' + i);
        assert_int_equal(add(graph, &scaling, name, NULL, &tensor), COH_OK);
    }
    assert_int_equal(add(graph, &sum, "sum", NULL, &tensor), COH_OK);
    assert_int_equal(coh_graph_loss(graph, tensor), COH_OK);
    coh_plan_options_init(&plan_options);
    plan_options.search = test_search();
    if (streams) {
        assert_int_equal(coh_plan_in_memory_bytes(graph, &plan_options, &least), COH_OK);
        plan_options.disk_bytes = UINT64_MAX;
        plan_options.device_memory_bytes = least * 6 / 10;
    }
    assert_int_equal(coh_plan_create(graph, &plan_options, &plan), COH_OK);
    coh_engine_options_init(&options);
    options.store = "mem";
    options.disk_folder = ".";
    assert_int_equal(coh_engine_create(plan, &options, &engine), COH_OK);
    assert_int_equal(coh_engine_init(engine, 1), COH_OK);
    for (uint64_t step = 0; step < 3; step++) {
        const coh_step_input input = { .struct_bytes = sizeof(input),
                                       .step = step,
                                       .learning_rate = 1e-2f,
                                       .clip = 1,
                                       .inputs = { x } };
        if (fails && step == 1) {
            fails_forward = 1;
            has_sentence(coh_engine_step(engine, &input, &result), COH_ERR_CORRUPT,
                         "a failure on request");
            assert_int_equal(result.finite, 0);
            assert_int_equal(result.applied_count, 1);
            has_sentence(coh_engine_evaluate(engine, &input, NULL), COH_ERR_CORRUPT, "request");
            fails_forward = 0;
            (void)hash_of(engine);
            assert_int_equal(
                coh_engine_fetch(engine, (coh_parameter){ 0 }, COH_FETCH_VALUE, values), COH_OK);
        }
        assert_int_equal(coh_engine_step(engine, &input, &result), COH_OK);
        assert_int_equal(result.applied_count, step + 1);
    }
    const uint64_t hash = hash_of(engine);
    coh_engine_destroy(engine);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
    return hash;
}

static void a_kind_that_fails_ends_its_step_alone(void **state)
{
    (void)state;
    const uint64_t expected = three_steps(0, 0);
    assert_int_equal(three_steps(1, 0), expected);
    assert_int_equal(three_steps(1, 1), expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_parameters_of_one_name_are_refused_and_leave_the_graph_as_it_was),
        cmocka_unit_test(a_trained_operator_without_backward_is_refused_by_the_plan),
        cmocka_unit_test(a_forward_only_operator_before_all_that_is_trained_is_planned),
        cmocka_unit_test(attributes_shorter_than_the_kind_reads_are_refused),
        cmocka_unit_test(a_kind_of_another_abi_is_refused_before_its_members_are_read),
        cmocka_unit_test(a_kind_without_forward_on_the_host_is_refused),
        cmocka_unit_test(a_rate_that_is_no_positive_number_is_refused_and_changes_no_weight),
        cmocka_unit_test(a_number_of_an_optimizer_that_is_wrong_is_refused_by_name),
        cmocka_unit_test(an_id_outside_its_table_is_refused_and_the_engine_goes_on),
        cmocka_unit_test(the_narrowest_range_of_an_input_names_its_operator),
        cmocka_unit_test(positions_that_do_not_count_are_refused),
        cmocka_unit_test(a_group_names_an_operator_by_a_name_of_any_length),
        cmocka_unit_test(a_host_tier_without_a_gpu_needs_the_switch_of_the_emulation),
        cmocka_unit_test(a_kind_that_fails_ends_its_step_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
