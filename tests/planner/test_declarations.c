/* Mistakes in what a kind declares: each is refused by a sentence when the kind is used, and the
 * graph stays as it was. One kind is right; every row of the table spoils one thing of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cohobate/cohobate.h"

static char said[512]; /* by the last refusal */
static void (*spoil_facts)(coh_op_facts *facts);

static coh_status infer(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    (void)attributes;
    facts->output[0] = inputs[0];
    facts->parameter[0] = (coh_parameter_facts){ .name = "w", .shape = inputs[0] };
    facts->parameter[1] = (coh_parameter_facts){ .name = "b", .shape = inputs[0] };
    if (spoil_facts != NULL)
        spoil_facts(facts);
    return COH_OK;
}

static coh_status run(const coh_call *call)
{
    (void)call;
    return COH_OK;
}

static const coh_op_kind right = {
    .struct_bytes = sizeof(coh_op_kind),
    .abi_version = COH_KIND_ABI,
    .name = "test.declared",
    .input_count = 2,
    .output_count = 1,
    .parameter_count = 2,
    .state_count = 0,
    .backward_reads = { .inputs = 1, .parameters = 3 },
    .infer = infer,
    .devices = { [COH_DEVICE_HOST] = { .forward = run, .backward = run } },
    .attribute_bytes = 4,
};

#define KIND(name, statement)                                                                      \
    static void name(coh_op_kind *kind)                                                            \
    {                                                                                              \
        statement;                                                                                 \
    }
KIND(reads_input_2, kind->backward_reads.inputs = 4)
KIND(reads_output_1, kind->backward_reads.outputs = 2)
KIND(adds_to_parameter_2, kind->can_add_grad.parameters = 4)
KIND(skips_input_2, kind->can_skip_grad.inputs = 4)
KIND(splits_parameter_2, kind->row_split_parameters = 4)
KIND(widens_parameter_2, kind->can_widen_grad = 4)
KIND(overwrites_gradient_1, kind->overwrites_output_grads = 2)
KIND(leaves_out_what_it_does_not_read, kind->reads_for_parameters.inputs = 2)
KIND(shares_input_2, (kind->in_place_count[0] = 1, kind->forward_in_place[0].from = 2))
KIND(has_minus_one_pair, kind->in_place_count[0] = -1)
KIND(has_three_pairs, kind->in_place_count[1] = 3)
KIND(has_nine_inputs, kind->input_count = 9)
KIND(has_minus_one_state, kind->state_count = -1)
KIND(has_no_output, kind->output_count = 0)
KIND(has_no_name, kind->name = NULL)

#define FACTS(name, statement)                                                                     \
    static void name(coh_op_facts *facts)                                                          \
    {                                                                                              \
        statement;                                                                                 \
    }
FACTS(a_third_parameter, facts->parameter[2] = facts->parameter[0])
FACTS(a_second_output, facts->output[1] = facts->output[0])
FACTS(a_state, facts->state[0] = facts->output[0])
FACTS(no_parameter_name, facts->parameter[1].name = NULL)
FACTS(an_empty_name, facts->parameter[1].name = "")
FACTS(one_name_twice, facts->parameter[1].name = "w")
FACTS(an_unknown_dtype, facts->output[0].dtype = (coh_dtype)9)
FACTS(an_integer_parameter,
      facts->parameter[0].shape.dtype = facts->parameter[1].shape.dtype = COH_DTYPE_I32)
FACTS(an_unknown_init, facts->parameter[0].init = (coh_init)4)
FACTS(a_nan_deviation, facts->parameter[0].init_std = NAN)
FACTS(a_negative_deviation, facts->parameter[0].init_std = -1.0f)
FACTS(a_range_of_floats, facts->index_range[0].end = 3)
FACTS(a_range_of_no_input, facts->index_range[2].end = 3)
FACTS(counts_of_floats, facts->counting_inputs = 1)
FACTS(counts_of_no_input, facts->counting_inputs = 4)
FACTS(nan_flops, facts->flops[1] = NAN)
FACTS(rank_six, facts->output[0].rank = 6)

static const struct {
    void (*kind)(coh_op_kind *kind);
    void (*facts)(coh_op_facts *facts);
    const char *says;
} mistakes[] = {
    { reads_input_2, NULL, "port that it does not have" },
    { reads_output_1, NULL, "port that it does not have" },
    { adds_to_parameter_2, NULL, "port that it does not have" },
    { skips_input_2, NULL, "port that it does not have" },
    { splits_parameter_2, NULL, "port that it does not have" },
    { widens_parameter_2, NULL, "port that it does not have" },
    { overwrites_gradient_1, NULL, "port that it does not have" },
    { shares_input_2, NULL, "port that it does not have" },
    { leaves_out_what_it_does_not_read, NULL, "reads_for_parameters" },
    { has_minus_one_pair, NULL, "in_place_count[0] of kind" },
    { has_three_pairs, NULL, "is 3: give the number of pairs, 0 to 2" },
    { has_nine_inputs, NULL, "9 ports" },
    { has_minus_one_state, NULL, "-1 ports" },
    { has_no_output, NULL, "no output" },
    { has_no_name, NULL, "NULL" },
    { NULL, a_third_parameter, "parameter 2" },
    { NULL, a_second_output, "output 1" },
    { NULL, a_state, "state 0" },
    { NULL, no_parameter_name, "name of parameter 1 is NULL" },
    { NULL, an_empty_name, "name of parameter 1 is empty" },
    { NULL, one_name_twice, "op.w" },
    { NULL, an_unknown_dtype, "9 is not a dtype" },
    { NULL, an_integer_parameter, "neither f32 nor bf16" },
    { NULL, an_unknown_init, "4 is not a coh_init" },
    { NULL, a_nan_deviation, "init_std is nan" },
    { NULL, a_negative_deviation, "init_std is -1" },
    { NULL, a_range_of_floats, "no integer input" },
    { NULL, a_range_of_no_input, "no integer input" },
    { NULL, counts_of_floats, "input 0 counts tokens of documents, and is no integer input" },
    { NULL, counts_of_no_input, "input 2 counts tokens of documents, and is no integer input" },
    { NULL, nan_flops, "nan flops" },
    { NULL, rank_six, "rank 6" },
};

static coh_status use(const coh_op_kind *kind, const coh_op_args *args)
{
    const coh_shape shape = { .dtype = COH_DTYPE_F32, .rank = 2, .dim = { 2, 3 } };
    coh_graph *graph = NULL;
    coh_tensor inputs[2], outputs[COH_PORT_MAX];
    coh_op_args all = *args;
    all.name = "op";
    all.block = -1;
    all.inputs = inputs;
    assert_int_equal(coh_graph_create(&graph), COH_OK);
    assert_int_equal(coh_graph_input(graph, "x", &shape, &inputs[0]), COH_OK);
    assert_int_equal(coh_graph_input(graph, "y", &shape, &inputs[1]), COH_OK);
    const coh_status status = coh_graph_op(graph, kind, &all, outputs, NULL);
    assert_int_equal(coh_graph_operator_count(graph), status == COH_OK);
    if (status != COH_OK) { /* nothing of it is left */
        snprintf(said, sizeof(said), "%s", coh_last_error());
        spoil_facts = NULL;
        all.attribute_bytes = 4;
        all.frozen_parameters = 0;
        assert_int_equal(coh_graph_op(graph, &right, &all, outputs, NULL), COH_OK);
        assert_int_equal(coh_graph_operator_count(graph), 1);
    }
    coh_graph_destroy(graph);
    return status;
}

static const char attributes[256];
static const coh_op_args usual = { .attributes = attributes, .attribute_bytes = 4 };

static void each_mistake_is_refused_with_its_sentence(void **state)
{
    (void)state;
    assert_int_equal(use(&right, &usual), COH_OK);
    for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++) {
        coh_op_kind kind = right;
        spoil_facts = mistakes[i].facts;
        if (mistakes[i].kind != NULL)
            mistakes[i].kind(&kind);
        const coh_status status = use(&kind, &usual);
        spoil_facts = NULL;
        if (status == COH_OK || strstr(said, mistakes[i].says) == NULL)
            fail_msg("mistake %zu, \"%s\": %s", i, mistakes[i].says,
                     status == COH_OK ? "accepted" : said);
    }
}

/* In any place, also where no gradient passes. */
static void states_are_planned_without_training_only(void **state)
{
    (void)state;
    const coh_shape shape = { COH_DTYPE_F32, 2, { 3, 4 } };
    coh_op_kind keeper = right;
    coh_graph *graph;
    coh_plan *plan = NULL;
    coh_plan_options options;
    coh_tensor inputs[2], kept, loss;
    keeper.state_count = 1;
    spoil_facts = a_state;
    assert_int_equal(coh_graph_create(&graph), COH_OK);
    assert_int_equal(coh_graph_input(graph, "x", &shape, &inputs[0]), COH_OK);
    assert_int_equal(coh_graph_input(graph, "y", &shape, &inputs[1]), COH_OK);
    const coh_op_args args = { "keeper", "abc", 4, inputs, NULL, UINT32_MAX, -1 };
    assert_int_equal(coh_graph_op(graph, &keeper, &args, &kept, NULL), COH_OK);
    const coh_op_args loss_args = { .name = "loss", .inputs = inputs, .block = -1 };
    assert_int_equal(coh_graph_op(graph, &coh_kind_mean_squared_error, &loss_args, &loss, NULL),
                     COH_OK);
    assert_int_equal(coh_graph_loss(graph, loss), COH_OK);
    coh_plan_options_init(&options);
    assert_int_equal(coh_plan_create(graph, &options, &plan), COH_ERR_ARGUMENT);
    assert_null(plan);
    assert_non_null(strstr(coh_last_error(), "operator keeper is of kind test.declared"));
    assert_non_null(strstr(coh_last_error(), "COH_PLAN_INFER"));
    options.mode = COH_PLAN_INFER;
    assert_int_equal(coh_plan_create(graph, &options, &plan), COH_OK);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
    spoil_facts = NULL;
}

static void so_are_mistakes_of_an_operator(void **state)
{
    (void)state;
    coh_op_args args = usual;
    args.frozen_parameters = 4;
    assert_int_equal(use(&right, &args), COH_ERR_ARGUMENT);
    assert_non_null(strstr(said, "names a parameter from 2 on"));
    args.frozen_parameters = UINT32_MAX; /* all */
    assert_int_equal(use(&right, &args), COH_OK);
    static const size_t wrong[] = { 0, 3, 69, 256 };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        args = usual;
        args.attribute_bytes = wrong[i];
        assert_int_equal(use(&right, &args), COH_ERR_ARGUMENT);
        assert_non_null(strstr(said, "bytes of attributes"));
    }
}

/* ---- several operators ---- */

/* A graph of operators that read its input. */
typedef struct row {
    coh_graph *graph;
    coh_tensor inputs[2];
} row;

static row row_of_nothing(void)
{
    const coh_shape shape = { .dtype = COH_DTYPE_F32, .rank = 2, .dim = { 2, 3 } };
    row r;
    assert_int_equal(coh_graph_create(&r.graph), COH_OK);
    assert_int_equal(coh_graph_input(r.graph, "x", &shape, &r.inputs[0]), COH_OK);
    assert_int_equal(coh_graph_input(r.graph, "y", &shape, &r.inputs[1]), COH_OK);
    return r;
}

/* Adds an operator; `args` has what is not usual. A refusal leaves the graph as it was. */
static coh_status add(const row *r, const char *name, coh_op_args args, coh_parameter *parameters)
{
    coh_tensor output;
    const int32_t before = coh_graph_operator_count(r->graph);
    args.name = name;
    args.inputs = r->inputs;
    args.attributes = attributes;
    args.attribute_bytes = 4;
    const coh_status status = coh_graph_op(r->graph, &right, &args, &output, parameters);
    assert_int_equal(coh_graph_operator_count(r->graph), before + (status == COH_OK));
    return status;
}

static void refuses(const row *r, coh_op_args args, const char *sentence)
{
    assert_int_equal(add(r, "refused", args, NULL), COH_ERR_ARGUMENT);
    assert_string_equal(coh_last_error(), sentence);
}

static int is_frozen(const row *r, coh_parameter parameter)
{
    coh_graph_parameter_facts facts;
    assert_int_equal(coh_graph_parameter_at(r->graph, parameter.index, &facts), COH_OK);
    return facts.is_frozen;
}

static void a_tied_parameter_is_frozen_by_its_first_operator_only(void **state)
{
    (void)state;
    const row r = row_of_nothing();
    coh_parameter own[2];
    assert_int_equal(add(&r, "first", (coh_op_args){ .frozen_parameters = 1 }, own), COH_OK);
    refuses(&r, (coh_op_args){ .tied = own, .frozen_parameters = 3 },
            "operator refused: it freezes parameter 1, which is tied to first.b, and operator "
            "first trains that: freeze it there, too, or nowhere");
    refuses(&r, (coh_op_args){ .tied = own, .frozen_parameters = UINT32_MAX },
            "operator refused: it freezes parameter 1, which is tied to first.b, and operator "
            "first trains that: freeze it there, too, or nowhere");
    assert_int_equal(add(&r, "same", (coh_op_args){ .tied = own, .frozen_parameters = 1 }, NULL),
                     COH_OK);
    assert_int_equal(add(&r, "silent", (coh_op_args){ .tied = own }, NULL), COH_OK);
    assert_int_equal(coh_graph_parameter_count(r.graph), 2);
    assert_true(is_frozen(&r, own[0]) && !is_frozen(&r, own[1]));
    coh_graph_destroy(r.graph);
}

static void only_one_negative_handle_makes_a_parameter(void **state)
{
    (void)state;
    const row r = row_of_nothing();
    const coh_parameter new[] = { COH_PARAMETER_NEW, COH_PARAMETER_NEW };
    coh_parameter wrong[] = { COH_PARAMETER_NEW, { -7 } };
    refuses(&r, (coh_op_args){ .tied = wrong },
            "operator refused: no parameter has handle -7: tie to one that coh_graph_op gave, or "
            "to COH_PARAMETER_NEW");
    wrong[1].index = INT32_MIN;
    refuses(&r, (coh_op_args){ .tied = wrong },
            "operator refused: no parameter has handle -2147483648: tie to one that coh_graph_op "
            "gave, or to COH_PARAMETER_NEW");
    assert_int_equal(add(&r, "new", (coh_op_args){ .tied = new }, NULL), COH_OK);
    assert_int_equal(coh_graph_parameter_count(r.graph), 2);
    coh_graph_destroy(r.graph);
}

static void a_block_that_has_ended_gets_no_operator(void **state)
{
    (void)state;
    static const int32_t blocks[] = { -1, 4, 4, 9, 5, 1, 1, 7, -1, 0 };
    static const struct {
        int32_t block;
        const char *last; /* operator of that block */
    } ended[] = { { 4, "op2" }, { 9, "op3" }, { 5, "op4" }, { 1, "op6" }, { 7, "op7" } };
    const row r = row_of_nothing();
    char name[] = "op0", sentence[256];
    for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++) {
        name[2] = (char)('0' + i);
        assert_int_equal(add(&r, name, (coh_op_args){ .block = blocks[i] }, NULL), COH_OK);
    }
    for (size_t i = 0; i < sizeof(ended) / sizeof(ended[0]); i++) {
        snprintf(sentence, sizeof(sentence),
                 "operator refused: block %d has ended with operator %s: add the operators of a "
                 "block one after the other, or give another number",
                 ended[i].block, ended[i].last);
        refuses(&r, (coh_op_args){ .block = ended[i].block }, sentence);
    }
    assert_int_equal(add(&r, "same", (coh_op_args){ .block = 0 }, NULL), COH_OK);
    coh_graph_destroy(r.graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_mistake_is_refused_with_its_sentence),
        cmocka_unit_test(a_tied_parameter_is_frozen_by_its_first_operator_only),
        cmocka_unit_test(only_one_negative_handle_makes_a_parameter),
        cmocka_unit_test(a_block_that_has_ended_gets_no_operator),
        cmocka_unit_test(so_are_mistakes_of_an_operator),
        cmocka_unit_test(states_are_planned_without_training_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
