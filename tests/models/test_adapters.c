/* The trained part of a model: the operators that a pattern matches, and that the graphs of every
 * family freeze and adapt exactly those. test_adapters_train.c and tests/parity show that adapters
 * are trained as in PEFT. */
#include "tests/models/recorded.h"

#include <math.h>

#include "cohobate/kinds.h"
#include "planner/graph.h"

enum { SEQUENCES = 2, TOKENS = 5, RANK = 3 };

static coh_model with(const coh_model *model, const coh_adapters *adapters)
{
    coh_model changed = *model;
    if (coh_model_adapters_set(&changed, adapters) != COH_OK)
        fail_msg("%s", coh_last_error());
    return changed;
}

static coh_graph *build(const coh_model *model, int decode)
{
    coh_graph *graph;
    coh_tensor logits;
    const coh_status status = decode ? coh_model_decode_graph(model, TOKENS, &graph, &logits)
                                     : coh_model_train_graph(model, SEQUENCES, TOKENS, &graph);
    if (status != COH_OK)
        fail_msg("%s", coh_last_error());
    return graph;
}

static coh_model gpt2(void)
{
    return (coh_model){ .name = "small",
                        .gpt2 = { .layers = 3,
                                  .heads = 3,
                                  .channels = 12,
                                  .positions = 19,
                                  .vocabulary = 37,
                                  .layernorm_epsilon = 1e-5f } };
}

static const coh_graph_op_entry *op_named(const coh_graph *graph, const char *name)
{
    for (size_t i = 0; i < graph->op_count; i++)
        if (strcmp(graph->ops[i].name, name) == 0)
            return &graph->ops[i];
    return NULL;
}

static int ends_with(const char *name, const char *tail)
{
    const size_t length = strlen(name), tail_length = strlen(tail);
    return length >= tail_length && strcmp(name + length - tail_length, tail) == 0;
}

/* ---- patterns ---- */

/* Checks that exactly these parameters are frozen. */
static void assert_frozen(const char *freeze, const char *const expected[])
{
    const coh_model plain = gpt2();
    coh_adapters adapters = { 0 };
    snprintf(adapters.freeze, sizeof(adapters.freeze), "%s", freeze);
    const coh_model model = with(&plain, &adapters);
    coh_graph *graph = build(&model, 0);
    for (size_t i = 0; i < graph->parameter_count; i++) {
        int found = 0;
        for (const char *const *name = expected; *name; name++)
            found |= strcmp(*name, graph->parameters[i].name) == 0;
        if (graph->parameters[i].frozen != found)
            fail_msg("%s: %s is frozen: %d", freeze, graph->parameters[i].name,
                     graph->parameters[i].frozen);
    }
    coh_graph_destroy(graph);
}

static void patterns_stand_for_whole_names_and_for_what_follows_a_dot(void **state)
{
    (void)state;
    assert_frozen("wte", (const char *const[]){ "wte.weight", NULL });
    assert_frozen("wpe, wte", (const char *const[]){ "wte.weight", "wpe.weight", NULL });
    assert_frozen("ln_1", (const char *const[]){ "h.0.ln_1.weight", "h.0.ln_1.bias",
                                                 "h.1.ln_1.weight", "h.1.ln_1.bias",
                                                 "h.2.ln_1.weight", "h.2.ln_1.bias", NULL });
    /* c_proj occurs twice in a layer: two components identify one */
    assert_frozen("mlp.c_proj",
                  (const char *const[]){ "h.0.mlp.c_proj.weight", "h.0.mlp.c_proj.bias",
                                         "h.1.mlp.c_proj.weight", "h.1.mlp.c_proj.bias",
                                         "h.2.mlp.c_proj.weight", "h.2.mlp.c_proj.bias", NULL });
    assert_frozen("h.1.attn.*",
                  (const char *const[]){ "h.1.attn.c_attn.weight", "h.1.attn.c_attn.bias",
                                         "h.1.attn.c_proj.weight", "h.1.attn.c_proj.bias", NULL });
    assert_frozen("h.[02].ln_?",
                  (const char *const[]){ "h.0.ln_1.weight", "h.0.ln_1.bias", "h.0.ln_2.weight",
                                         "h.0.ln_2.bias", "h.2.ln_1.weight", "h.2.ln_1.bias",
                                         "h.2.ln_2.weight", "h.2.ln_2.bias", NULL });
    /* only a whole component matches: c_fc, not any name ending in "_fc" */
    coh_model model = gpt2();
    assert_int_equal(coh_model_adapters_set(&model, &(coh_adapters){ .freeze = "_fc" }),
                     COH_ERR_ARGUMENT);
    assert_int_equal(coh_model_adapters_set(&model, &(coh_adapters){ .freeze = "h.1" }),
                     COH_ERR_ARGUMENT);
}

typedef struct refused {
    coh_adapters adapters;
    const char *says; /* part of the message */
} refused;

static const refused refusals[] = {
    { { .freeze = "wtf" }, "\"wtf\" matches no operator" },
    { { .freeze = "wtf" },
      "wte, wpe, ln_1, attn.c_attn, attn.c_proj, ln_2, mlp.c_fc, "
      "mlp.c_proj, ln_f" },
    { { .freeze = "wte,h.3.*" }, "\"h.3.*\" matches no" },
    { { .freeze = "wte.weight" }, "matches no" },
    { { .freeze = "attn" }, "matches no" }, /* has no parameters */
    /* the same parameter as the token table */
    { { .freeze = "lm_head" }, "of this model, whose head is its token table: choose among wte" },
    { { .rank = 2, .targets = "c_attn", .also = "wte,lm_head" },
      "\"lm_head\" matches no operator of this model, whose head is its token table" },
    { { .freeze = "lora_A" }, "matches no" }, /* it has none */
    { { .freeze = "*" }, "nothing is left to train" },
    { { .freeze = "lora_A,lora_B", .rank = 2, .alpha = 1, .targets = "c_attn" },
      "nothing is left to train" },
    { { .freeze = "a\"b" }, "0x22" },
    { { .freeze = "a\\b" }, "0x5c" },
    { { .freeze = "w\xc3\xa4" }, "0xc3" },
    { { .targets = "q_proj", .rank = 2 }, "attn.c_attn, attn.c_proj, mlp.c_fc, mlp.c_proj" },
    { { .targets = "c_attn,ln_1", .rank = 2 }, "\"ln_1\" matches no linear operator" },
    { { .targets = "wte", .rank = 2 }, "only for others" },
    { { .targets = "lm_head", .rank = 2 }, "matches no linear" },
    { { .targets = " , ", .rank = 2 }, "no targets" },
    { { .targets = "c_attn" }, "no rank" },
    { { .alpha = 3 }, "no rank" },
    { { .rank = -1 }, "rank -1" },
    { { .rank = 65537 }, "rank 65537" },
    { { .rank = 2, .alpha = -3 }, "alpha of -3" },
    { { .rank = 2, .alpha = INFINITY }, "alpha of inf" },
    { { .also = "wte" }, "that have no rank" },
    { { .rank = 2, .targets = "c_attn", .also = "wte,embed_tokens" },
      "trained next to adapters \"embed_tokens\" matches no operator" },
    { { .rank = 2, .targets = "c_attn", .also = "lora_A" }, "\"lora_A\" matches no operator" },
    { { .rank = 2, .targets = "c_attn", .also = "wte,h.1.*" }, "h.1.attn.c_attn has an adapter" },
    { { .rank = 2, .targets = "*", .also = "c_fc" }, "h.0.mlp.c_fc has an adapter" },
    { { .rank = 2, .targets = "c_attn", .also = "w\tte" }, "0x09" },
    { { .freeze = "wte,lora_?", .rank = 2, .targets = "c_attn", .also = "wte" },
      "nothing is left to train" },
};

static void what_stands_for_nothing_is_refused_with_what_there_is(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        const coh_model before = gpt2();
        coh_model model = before;
        if (coh_model_adapters_set(&model, &refusals[i].adapters) != COH_ERR_ARGUMENT)
            fail_msg("taken: freeze %s, targets %s", refusals[i].adapters.freeze,
                     refusals[i].adapters.targets);
        if (!strstr(coh_last_error(), refusals[i].says))
            fail_msg("\"%s\" does not say \"%s\"", coh_last_error(), refusals[i].says);
        assert_memory_equal(&model, &before, sizeof(model));
        /* and no graph is built from it, however it was set */
        coh_graph *graph;
        model.adapters = refusals[i].adapters;
        if (model.adapters.rank > 0 && model.adapters.alpha == 0)
            model.adapters.alpha = 1;
        assert_int_equal(coh_model_train_graph(&model, 1, 1, &graph), COH_ERR_ARGUMENT);
        assert_null(graph);
    }
    assert_int_equal(coh_model_adapters_set(NULL, &refusals[0].adapters), COH_ERR_ARGUMENT);
}

/* ---- graphs ---- */

/* Checks for y + (alpha / rank) (x Aᵀ) Bᵀ around the linear `name`, before all readers of y. */
static void assert_adapted(const coh_graph *graph, const char *name, const coh_adapters *adapters)
{
    char part[160];
    const coh_graph_op_entry *linear = op_named(graph, name), *down, *scale, *up;
    assert_non_null(linear);
    snprintf(part, sizeof(part), "%s.lora_A", name);
    down = op_named(graph, part);
    snprintf(part, sizeof(part), "%s.lora_scale", name);
    scale = op_named(graph, part);
    snprintf(part, sizeof(part), "%s.lora_B", name);
    up = op_named(graph, part);
    if (!down || !scale || !up) {
        fail_msg("%s has no adapter", name);
        return;
    }
    assert_int_equal(down->input[0], linear->input[0]);
    assert_int_equal(scale->input[0], down->output[0]);
    assert_int_equal(up->input[0], scale->output[0]);
    assert_int_equal(up->input[1], linear->output[0]);
    const coh_scale_attributes *factor = scale->attributes;
    assert_true(factor->factor == adapters->alpha / (float)adapters->rank);
    const coh_parameter_facts *a = &graph->parameters[down->parameter[0]].facts,
                              *b = &graph->parameters[up->parameter[0]].facts,
                              *w = &graph->parameters[linear->parameter[0]].facts;
    assert_int_equal(a->shape.dim[0], adapters->rank);
    assert_int_equal(a->shape.dim[1], w->shape.dim[1]);
    assert_int_equal(b->shape.dim[0], w->shape.dim[0]);
    assert_int_equal(b->shape.dim[1], adapters->rank);
    assert_int_equal(a->init, COH_INIT_UNIFORM);
    assert_true(fabs((double)a->init_std * sqrt(3.0 * (double)w->shape.dim[1]) - 1) < 1e-6);
    assert_int_equal(b->init, COH_INIT_ZERO);
    assert_true(down->parameter[1] < 0 && up->parameter[1] < 0); /* no biases */
    /* All readers of the linear's y read the sum. */
    for (size_t i = 0; i < graph->op_count; i++)
        for (int32_t port = 0; port < graph->ops[i].kind.input_count; port++)
            if (graph->ops[i].input[port] == linear->output[0])
                assert_ptr_equal(&graph->ops[i], up);
}

/* Checks that all linears whose names end in one of `tails`, and no others, have an adapter. */
static void assert_targets(const coh_graph *graph, const coh_model *model,
                           const char *const tails[], int count)
{
    int64_t adapters = 0;
    for (int64_t i = 0; i < coh_model_tensor_count(model); i++) {
        coh_model_tensor tensor;
        assert_int_equal(coh_model_tensor_at(model, i, &tensor), COH_OK);
        if (!ends_with(tensor.name, ".weight"))
            continue;
        *strrchr(tensor.name, '.') = '\0';
        int wanted = 0;
        for (int t = 0; t < count; t++)
            wanted |= ends_with(tensor.name, tails[t]);
        if (wanted)
            assert_adapted(graph, tensor.name, &model->adapters);
        adapters += wanted;
    }
    assert_int_equal(coh_model_adapter_count(model), adapters);
    for (size_t i = 0; i < graph->op_count; i++)
        adapters -= ends_with(graph->ops[i].name, ".lora_A");
    assert_int_equal(adapters, 0);
}

static uint64_t trained_of(const coh_graph *graph)
{
    uint64_t count = 0;
    for (size_t i = 0; i < graph->parameter_count; i++) {
        const coh_graph_parameter *parameter = &graph->parameters[i];
        if (!parameter->frozen)
            count += (uint64_t)coh_shape_elements(&parameter->facts.shape);
    }
    return count;
}

/* Checks that the parameters without adapters are those of the table, in its order and all
 * frozen. */
static void assert_base(const coh_graph *graph, const coh_model *model)
{
    int64_t place = 0;
    for (size_t i = 0; i < graph->parameter_count; i++) {
        coh_model_tensor tensor;
        const char *name = graph->parameters[i].name;
        const int is_adapter = strstr(name, ".lora_") != NULL;
        assert_int_equal(coh_model_is_adapter_name(name), is_adapter);
        assert_int_equal(graph->parameters[i].frozen, !is_adapter);
        if (is_adapter)
            continue;
        assert_int_equal(coh_model_tensor_at(model, place++, &tensor), COH_OK);
        assert_string_equal(tensor.name, name);
    }
    assert_int_equal(place, coh_model_tensor_count(model));
    assert_int_equal(coh_model_trained_count(model), trained_of(graph));
}

static void check_defaults(const json_t *one, const coh_model *plain)
{
    static const char *const fused[] = { "attn.c_attn" }, *const apart[] = { "q_proj", "v_proj" };
    const coh_adapters adapters = { .rank = RANK };
    const coh_model model = with(plain, &adapters);
    (void)one;
    assert_true(model.adapters.alpha == 8.0f);
    for (int decode = 0; decode < 2; decode++) {
        coh_graph *graph = build(&model, decode);
        assert_targets(graph, &model, model.family == COH_FAMILY_GPT2 ? fused : apart,
                       model.family == COH_FAMILY_GPT2 ? 1 : 2);
        assert_base(graph, &model);
        coh_graph_destroy(graph);
    }
}

static void adapters_go_by_default_where_peft_puts_them(void **state)
{
    (void)state;
    recorded_each(check_defaults);
}

static void check_all(const json_t *one, const coh_model *plain)
{
    static const char *const tails[] = { "c_attn",    "c_proj",     "c_fc",       "q_proj",
                                         "k_proj",    "v_proj",     "o_proj",     "out_proj",
                                         "fc1",       "fc2",        "gate_proj",  "up_proj",
                                         "down_proj", "project_in", "project_out" };
    const coh_adapters adapters = { .rank = 2, .alpha = 5, .targets = "*" };
    const coh_model model = with(plain, &adapters);
    (void)one;
    for (int decode = 0; decode < 2; decode++) {
        coh_graph *graph = build(&model, decode);
        assert_targets(graph, &model, tails, sizeof(tails) / sizeof(tails[0]));
        assert_base(graph, &model);
        for (size_t i = 0; i < graph->op_count; i++) {
            const char *kind = graph->ops[i].kind.name;
            assert_string_not_equal(kind, coh_kind_linear_gelu.name);
            assert_string_not_equal(kind, coh_kind_linear_relu.name);
        }
        coh_graph_destroy(graph);
    }
}

static void every_linear_can_carry_one_and_fused_kinds_come_apart(void **state)
{
    (void)state;
    recorded_each(check_all);
}

/* As in PEFT, the linear reads x and A reads dropout(x), which q_proj and v_proj do not share. */
static void check_dropout(const json_t *one, const coh_model *plain)
{
    const coh_adapters adapters = { .rank = RANK };
    coh_model model = with(plain, &adapters);
    coh_graph *without = build(&model, 0);
    (void)one;
    model.lora_dropout = 0.3;
    coh_graph *graph = build(&model, 0), *decoder = build(&model, 1);
    int64_t drops = 0;
    for (size_t i = 0; i < graph->op_count; i++) {
        char name[160];
        const coh_graph_op_entry *op = &graph->ops[i];
        if (!ends_with(op->name, ".lora_dropout"))
            continue;
        drops++;
        snprintf(name, sizeof(name), "%.*s", (int)(strrchr(op->name, '.') - op->name), op->name);
        const coh_graph_op_entry *linear = op_named(graph, name);
        snprintf(name + strlen(name), sizeof(name) - strlen(name), ".lora_A");
        const coh_graph_op_entry *down = op_named(graph, name);
        assert_string_equal(op->kind.name, coh_kind_dropout.name);
        assert_true(((const coh_dropout_attributes *)op->attributes)->probability == 0.3);
        assert_int_equal(op->input[0], linear->input[0]);
        assert_int_equal(down->input[0], op->output[0]);
        assert_int_equal(op->block, linear->block);
        for (size_t r = 0; r < graph->op_count; r++)
            for (int32_t port = 0; port < graph->ops[r].kind.input_count; port++)
                assert_true(graph->ops[r].input[port] != op->output[0] || &graph->ops[r] == down);
    }
    assert_int_equal(drops, coh_model_adapter_count(&model));
    assert_int_equal(graph->op_count, without->op_count + (size_t)drops);
    for (size_t i = 0; i < without->op_count; i++)
        assert_false(ends_with(without->ops[i].name, ".lora_dropout"));
    for (size_t i = 0; i < decoder->op_count; i++)
        assert_false(ends_with(decoder->ops[i].name, ".lora_dropout"));
    coh_graph_destroy(without);
    coh_graph_destroy(graph);
    coh_graph_destroy(decoder);
}

static void every_adapter_drops_an_input_of_its_own(void **state)
{
    (void)state;
    recorded_each(check_dropout);
    const coh_model plain = gpt2();
    coh_model model = with(&plain, &(coh_adapters){ .rank = RANK });
    coh_graph *graph;
    static const double odd[] = { 1, -0.1, NAN };
    for (int i = 0; i < 3; i++) {
        model.lora_dropout = odd[i];
        assert_int_equal(coh_model_train_graph(&model, 1, 1, &graph), COH_ERR_ARGUMENT);
        assert_non_null(strstr(coh_last_error(), "from 0 to below 1 is possible"));
    }
    model = plain;
    model.lora_dropout = 0.1;
    assert_int_equal(coh_model_train_graph(&model, 1, 1, &graph), COH_ERR_ARGUMENT);
    assert_non_null(
        strstr(coh_last_error(), "a lora_dropout of 0.1, and the model has no adapters"));
}

static void activations_stand_behind_the_adapter(void **state)
{
    (void)state;
    const coh_model plain = gpt2();
    const coh_adapters adapters = { .rank = 2, .targets = "h.1.mlp.c_fc" };
    const coh_model model = with(&plain, &adapters);
    coh_graph *graph = build(&model, 0);
    const coh_graph_op_entry *act = op_named(graph, "h.1.mlp.c_fc.activation"),
                             *up = op_named(graph, "h.1.mlp.c_fc.lora_B"),
                             *next = op_named(graph, "h.1.mlp.c_proj");
    assert_non_null(act);
    assert_string_equal(act->kind.name, coh_kind_gelu.name);
    assert_int_equal(act->input[0], up->output[0]);
    assert_int_equal(next->input[0], act->output[0]);
    /* other layers keep one kind for both */
    assert_string_equal(op_named(graph, "h.0.mlp.c_fc")->kind.name, coh_kind_linear_gelu.name);
    assert_int_equal(coh_model_adapter_count(&model), 1);
    coh_graph_destroy(graph);
}

/* Checks that of the model's own parameters exactly those of an operator in `also` are trained, and
 * that all functions agree. */
static void assert_also(const coh_model *model, const char *const also[])
{
    coh_graph *graph = build(model, 0);
    int64_t place = 0;
    for (size_t i = 0; i < graph->parameter_count; i++) {
        char op[96];
        const char *name = graph->parameters[i].name;
        int trained = 0;
        snprintf(op, sizeof(op), "%.*s", (int)(strrchr(name, '.') - name), name);
        for (const char *const *one = also; *one; one++)
            trained |= strcmp(op, *one) == 0;
        const int is_adapter = coh_model_is_adapter_name(name);
        if (graph->parameters[i].frozen != !(trained || is_adapter))
            fail_msg("%s is frozen: %d", name, graph->parameters[i].frozen);
        assert_int_equal(coh_model_is_adapted(model, name), trained || is_adapter);
        if (!is_adapter)
            assert_int_equal(coh_model_is_frozen(model, place++), !trained);
    }
    assert_int_equal(coh_model_trained_count(model), trained_of(graph));
    coh_graph_destroy(graph);
}

static void operators_are_trained_in_full_next_to_adapters(void **state)
{
    (void)state;
    const coh_model plain = gpt2();
    coh_adapters adapters = { .rank = 2, .targets = "c_attn", .also = "wte, ln_f,h.1.mlp.c_proj" };
    coh_model model = with(&plain, &adapters);
    assert_also(&model, (const char *const[]){ "wte", "ln_f", "h.1.mlp.c_proj", NULL });
    assert_int_equal(coh_model_adapter_count(&model), 3);
    /* what is frozen stays frozen */
    snprintf(adapters.freeze, sizeof(adapters.freeze), "ln_?");
    model = with(&plain, &adapters);
    assert_also(&model, (const char *const[]){ "wte", "h.1.mlp.c_proj", NULL });
    /* a linear whose kind is fused with its activation */
    model = with(&plain, &(coh_adapters){ .rank = 2, .targets = "c_attn", .also = "h.2.*.c_fc" });
    assert_also(&model, (const char *const[]){ "h.2.mlp.c_fc", NULL });
    /* without adapters no parameter is next to any */
    assert_false(coh_model_is_adapted(&plain, "wte.weight"));
    assert_false(coh_model_is_adapted(NULL, "wte.weight"));
    assert_false(coh_model_is_adapted(&model, NULL));
    assert_false(coh_model_is_adapted(&model, "wte.weight"));
}

static void check_also(const json_t *one, const coh_model *plain)
{
    coh_model_tensor table, last;
    coh_adapters adapters = { .rank = RANK };
    (void)one;
    assert_int_equal(coh_model_tensor_at(plain, 0, &table), COH_OK);
    assert_int_equal(coh_model_tensor_at(plain, coh_model_tensor_count(plain) - 1, &last), COH_OK);
    *strrchr(table.name, '.') = *strrchr(last.name, '.') = '\0';
    snprintf(adapters.also, sizeof(adapters.also), "%s,%s", table.name, last.name);
    const coh_model model = with(plain, &adapters);
    assert_also(&model, (const char *const[]){ table.name, last.name, NULL });
}

static void the_table_and_the_last_operator_of_every_family_can_be_trained(void **state)
{
    (void)state;
    recorded_each(check_also);
}

/* ---- the public list of parameters ---- */

/* Checks that the graph lists the model's tensors, in order and frozen, with the two parameters of
 * each adapter among them. */
static void check_list(const json_t *one, const coh_model *plain)
{
    const coh_adapters adapters = { .rank = RANK };
    const coh_model model = with(plain, &adapters);
    coh_graph *graph = build(&model, 0);
    coh_graph_parameter_facts facts;
    coh_parameter handle;
    int64_t tensors = 0, added = 0;
    (void)one;
    for (int32_t i = 0; i < coh_graph_parameter_count(graph); i++) {
        coh_model_tensor tensor;
        assert_int_equal(coh_graph_parameter_at(graph, i, &facts), COH_OK);
        assert_int_equal(coh_graph_parameter_find(graph, facts.name, &handle), COH_OK);
        assert_int_equal(handle.index, i);
        assert_int_equal(facts.is_frozen, !coh_model_is_adapter_name(facts.name));
        if (!facts.is_frozen) {
            added++;
            continue;
        }
        assert_int_equal(coh_model_tensor_at(&model, tensors++, &tensor), COH_OK);
        assert_string_equal(facts.name, tensor.name);
        assert_int_equal(facts.shape.rank, tensor.rank);
        for (int32_t d = 0; d < tensor.rank; d++)
            assert_int_equal(facts.shape.dim[d], tensor.dim[d]);
    }
    assert_int_equal(tensors, coh_model_tensor_count(&model));
    assert_int_equal(added, 2 * coh_model_adapter_count(&model));
    assert_int_equal(coh_graph_parameter_at(graph, (int32_t)(tensors + added), &facts),
                     COH_ERR_ARGUMENT);
    coh_graph_destroy(graph);
}

static void a_graph_lists_the_tensors_of_its_model_and_its_adapters(void **state)
{
    (void)state;
    recorded_each(check_list);
}

/* ---- backward ---- */

static void nothing_below_the_first_trained_operator_needs_a_gradient(void **state)
{
    (void)state;
    const coh_model plain = gpt2();
    const coh_adapters adapters = { .rank = 2, .targets = "h.1.attn.c_attn" };
    const coh_model model = with(&plain, &adapters);
    coh_graph *graph = build(&model, 0);
    int reached = 0;
    for (size_t i = 0; i < graph->op_count; i++) {
        const coh_graph_op_entry *op = &graph->ops[i];
        reached |= strcmp(op->name, "h.1.attn.c_attn.lora_A") == 0;
        assert_int_equal(graph->tensors[op->output[0]].needs_grad, reached);
    }
    assert_true(reached);
    coh_graph_destroy(graph);
}

/* ---- the table of adapters ---- */

static void the_table_names_modules_as_they_are_published(void **state)
{
    (void)state;
    static const struct case_of {
        const char *config, *targets, *name, *module;
        int64_t index, inputs, outputs;
        int32_t transposed;
    } all[] = {
        { "{\"model_type\": \"gpt2\"}", "", "h.3.attn.c_attn", "transformer.h.3.attn.c_attn", 3,
          768, 2304, 1 },
        { "{\"model_type\": \"opt\"}", "fc1", "model.decoder.layers.7.fc1",
          "model.decoder.layers.7.fc1", 7, 768, 3072, 0 },
        { "{\"model_type\": \"mistral\", \"sliding_window\": null}", "",
          "model.layers.2.self_attn.v_proj", "model.layers.2.self_attn.v_proj", 5, 4096, 1024, 0 },
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        coh_model plain;
        coh_model_adapter adapter;
        coh_adapters adapters = { .rank = 16 };
        if (coh_model_from_config(all[i].config, &plain) != COH_OK)
            fail_msg("%s", coh_last_error());
        assert_int_equal(coh_model_adapter_count(&plain), 0);
        assert_int_equal(coh_model_adapter_at(&plain, 0, &adapter), COH_ERR_ARGUMENT);
        snprintf(adapters.targets, sizeof(adapters.targets), "%s", all[i].targets);
        const coh_model model = with(&plain, &adapters);
        const int64_t count = coh_model_adapter_count(&model);
        assert_int_equal(coh_model_adapter_at(&model, all[i].index, &adapter), COH_OK);
        assert_string_equal(adapter.name, all[i].name);
        assert_string_equal(adapter.module, all[i].module);
        assert_int_equal(adapter.inputs, all[i].inputs);
        assert_int_equal(adapter.outputs, all[i].outputs);
        assert_int_equal(adapter.elements, 16 * (all[i].inputs + all[i].outputs));
        assert_int_equal(adapter.transposed, all[i].transposed);
        assert_int_equal(coh_model_adapter_at(&model, count, &adapter), COH_ERR_ARGUMENT);
        assert_int_equal(coh_model_adapter_at(&model, -1, &adapter), COH_ERR_ARGUMENT);
    }
    assert_int_equal(coh_model_trained_count(NULL), 0);
    assert_false(coh_model_is_adapter_name("lora_A.weight"));
    assert_false(coh_model_is_adapter_name("h.0.lora_A.bias"));
    assert_false(coh_model_is_adapter_name("h.0.lora_A"));
    assert_false(coh_model_is_adapter_name(NULL));
}

/* ---- JSON ---- */

static void what_is_trained_comes_back_from_a_note(void **state)
{
    (void)state;
    static const coh_adapters all[] = {
        { .freeze = "wte,h.[01].*" },
        { .rank = 7, .alpha = 0.1f, .targets = "c_attn,mlp.*" },
        { .freeze = "h.0.attn.c_attn.lora_A", .rank = 1, .alpha = 1e-30f, .targets = "c_attn" },
        { .rank = 7, .alpha = 0.1f, .targets = "c_attn", .also = "wte,h.?.ln_[12]" },
    };
    char json[COH_MODEL_JSON_BYTES];
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        const coh_model plain = gpt2(), model = with(&plain, &all[i]);
        coh_model back;
        assert_int_equal(coh_model_to_json(&model, json, sizeof(json)), COH_OK);
        if (coh_model_from_json(json, &back) != COH_OK)
            fail_msg("%s: %s", json, coh_last_error());
        assert_same_model(&model, &back);
        assert_memory_equal(&back.adapters, &all[i], sizeof(all[i]));
        /* notes of earlier versions have no such member */
        assert_int_equal(strstr(json, "\"also\": \"wte,h.?.ln_[12]\"}") != NULL,
                         all[i].also[0] != '\0');
        assert_int_equal(strstr(json, "also") != NULL, all[i].also[0] != '\0');
    }
    /* if everything is trained, adapters are not mentioned */
    const coh_model plain = gpt2();
    assert_int_equal(coh_model_to_json(&plain, json, sizeof(json)), COH_OK);
    assert_null(strstr(json, "adapters"));
}

static void the_longest_patterns_fit_a_note(void **state)
{
    (void)state;
    coh_model model = gpt2();
    char json[COH_MODEL_JSON_BYTES];
    coh_adapters adapters = { .rank = 65536, .alpha = 1.2345678e-38f };
    for (size_t i = 0; i + 1 < sizeof(adapters.freeze); i++) {
        adapters.targets[i] = i % 7 == 6 ? ',' : "c_attn"[i % 7];
        adapters.freeze[i] = i % 7 == 6 ? ',' : "lora_A"[i % 7];
        adapters.also[i] = i % 4 == 3 ? ',' : "wte"[i % 4];
    }
    adapters.targets[252] = adapters.freeze[252] = '\0';
    model = with(&model, &adapters);
    memset(model.name, '"', sizeof(model.name) - 1);
    memset(model.extras, 'x', sizeof(model.extras) - 1);
    memcpy(model.extras, "\"prefix\": \"", 11);
    model.extras[sizeof(model.extras) - 2] = '"';
    if (coh_model_to_json(&model, json, sizeof(json)) != COH_OK)
        fail_msg("%s", coh_last_error());
}

static void malformed_adapters_are_refused_in_a_note(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "{}",
        "[]",
        "null",
        "{\"freeze\": \"\", \"rank\": 2, \"alpha\": 8.0}",
        "{\"freeze\": \"\", \"rank\": 2.5, \"alpha\": 8.0, \"targets\": \"c_attn\"}",
        "{\"freeze\": \"\", \"rank\": 2, \"alpha\": \"8\", \"targets\": \"c_attn\"}",
        "{\"freeze\": \"\", \"rank\": 2, \"alpha\": 8.0, \"targets\": \"c_attn\", \"x\": 1}",
        "{\"freeze\": \"\", \"rank\": 99999999999, \"alpha\": 8.0, \"targets\": \"c_attn\"}",
        "{\"freeze\": \"\", \"rank\": -2, \"alpha\": 8.0, \"targets\": \"c_attn\"}",
        "{\"freeze\": \"\", \"rank\": 2, \"alpha\": 0.0, \"targets\": \"c_attn\"}",
        "{\"freeze\": \"\", \"rank\": 2, \"alpha\": 8.0, \"targets\": \"q_proj\"}",
        "{\"freeze\": \"q_proj\", \"rank\": 0, \"alpha\": 0.0, \"targets\": \"\"}",
        "{\"freeze\": \"*\", \"rank\": 0, \"alpha\": 0.0, \"targets\": \"\"}",
        "{\"freeze\": \"\", \"rank\": 2, \"alpha\": 8.0, \"targets\": \"c_attn\", \"also\": 1}",
        "{\"freeze\": \"\", \"rank\": 2, \"alpha\": 8.0, \"targets\": \"c_attn\", \"also\": \"x\"}",
        "{\"freeze\": \"wpe\", \"rank\": 0, \"alpha\": 0.0, \"targets\": \"\", \"also\": \"wte\"}",
    };
    const coh_model plain = gpt2();
    char json[COH_MODEL_JSON_BYTES], changed[2 * COH_MODEL_JSON_BYTES];
    assert_int_equal(coh_model_to_json(&plain, json, sizeof(json)), COH_OK);
    json[strlen(json) - 1] = '\0';
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        coh_model model;
        snprintf(changed, sizeof(changed), "%s, \"adapters\": %s}", json, bad[i]);
        if (coh_model_from_json(changed, &model) != COH_ERR_CORRUPT)
            fail_msg("taken: %s", bad[i]);
        assert_true(coh_last_error()[0] != '\0');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_stand_for_whole_names_and_for_what_follows_a_dot),
        cmocka_unit_test(what_stands_for_nothing_is_refused_with_what_there_is),
        cmocka_unit_test(adapters_go_by_default_where_peft_puts_them),
        cmocka_unit_test(every_linear_can_carry_one_and_fused_kinds_come_apart),
        cmocka_unit_test(every_adapter_drops_an_input_of_its_own),
        cmocka_unit_test(activations_stand_behind_the_adapter),
        cmocka_unit_test(operators_are_trained_in_full_next_to_adapters),
        cmocka_unit_test(the_table_and_the_last_operator_of_every_family_can_be_trained),
        cmocka_unit_test(a_graph_lists_the_tensors_of_its_model_and_its_adapters),
        cmocka_unit_test(nothing_below_the_first_trained_operator_needs_a_gradient),
        cmocka_unit_test(the_table_names_modules_as_they_are_published),
        cmocka_unit_test(what_is_trained_comes_back_from_a_note),
        cmocka_unit_test(the_longest_patterns_fit_a_note),
        cmocka_unit_test(malformed_adapters_are_refused_in_a_note),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
