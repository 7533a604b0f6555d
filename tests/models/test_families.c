/* The graphs of every family and variant at tiny sizes, and their tensor tables, compared with what
 * `transformers` wrote for the same configurations. tests/parity shows that they compute the
 * same. */
#include "tests/models/recorded.h"

#include <math.h>

#include "cohobate/kinds.h"
#include "planner/graph.h"
#include "tests/faults/alloc_faults.h"

enum { SEQUENCES = 2, TOKENS = 5, POSITIONS = 19 };

static coh_graph *build(const coh_model *model, int decode, coh_tensor *out_logits)
{
    coh_graph *graph;
    const coh_status status = decode ? coh_model_decode_graph(model, TOKENS, &graph, out_logits)
                                     : coh_model_train_graph(model, SEQUENCES, TOKENS, &graph);
    if (status != COH_OK)
        fail_msg("%s", coh_last_error());
    return graph;
}

/* Counts operators whose kind may add by atomics on a GPU. */
static int count_atomics(const coh_model *model, int decode)
{
    int count = 0;
    coh_tensor logits;
    coh_graph *graph = build(model, decode, &logits);
    for (size_t i = 0; i < graph->op_count; i++)
        count += graph->ops[i].kind.atomics != 0;
    coh_graph_destroy(graph);
    return count;
}

static void check_atomics(const json_t *one, const coh_model *model)
{
    coh_model other = *model;
    (void)one;
    assert_int_equal(count_atomics(&other, 0), 0);
    other.atomics = 1;
    assert_int_equal(count_atomics(&other, 0), coh_model_size_get(model).layers);
    assert_int_equal(count_atomics(&other, 1), 0);
    other.dropout = 0.1;
    assert_int_equal(count_atomics(&other, 0), 0);
}

static void attention_adds_by_atomics_where_the_model_says_so(void **state)
{
    (void)state;
    recorded_each(check_atomics);
}

/* ---- tensors ---- */

static void assert_tensors_of(const coh_graph *graph, const coh_model *model)
{
    coh_model_tensor tensor;
    assert_int_equal(coh_model_tensor_count(model), graph->parameter_count);
    for (size_t i = 0; i < graph->parameter_count; i++) {
        const coh_graph_parameter *parameter = &graph->parameters[i];
        assert_int_equal(coh_model_tensor_at(model, (int64_t)i, &tensor), COH_OK);
        assert_string_equal(tensor.name, parameter->name);
        assert_int_equal(tensor.rank, parameter->facts.shape.rank);
        for (int32_t d = 0; d < tensor.rank; d++)
            assert_int_equal(tensor.dim[d], parameter->facts.shape.dim[d]);
    }
}

static void check_tables(const json_t *one, const coh_model *model)
{
    coh_tensor logits;
    (void)one;
    for (int decode = 0; decode < 2; decode++) {
        coh_graph *graph = build(model, decode, &logits);
        assert_tensors_of(graph, model);
        coh_graph_destroy(graph);
    }
}

static void both_graphs_have_the_parameters_of_the_table_in_its_order(void **state)
{
    (void)state;
    recorded_each(check_tables);
}

/* Returns the recorded shape of the tensor published as `name`, or NULL. */
static json_t *published_shape(const json_t *one, const char *name)
{
    size_t i;
    json_t *pair;
    json_array_foreach(json_object_get(one, "tensors"), i, pair)
    {
        if (strcmp(json_string_value(json_array_get(pair, 0)), name) == 0)
            return json_array_get(pair, 1);
    }
    return NULL;
}

static void check_published(const json_t *one, const coh_model *model)
{
    coh_model_tensor tensor;
    const int64_t count = coh_model_tensor_count(model);
    assert_int_equal(count, json_array_size(json_object_get(one, "tensors")));
    for (int64_t i = 0; i < count; i++) {
        assert_int_equal(coh_model_tensor_at(model, i, &tensor), COH_OK);
        const json_t *shape = published_shape(one, tensor.published);
        if (!shape)
            fail_msg("%s: no tensor %s", recorded_text(one, "case"), tensor.published);
        assert_int_equal(json_array_size(shape), tensor.rank);
        for (int32_t d = 0; d < tensor.rank; d++)
            assert_int_equal(json_integer_value(json_array_get(shape, (size_t)d)),
                             tensor.published_dim[d]);
        assert_int_equal(tensor.dim[0], tensor.published_dim[tensor.transposed]);
        assert_int_equal(tensor.transposed, model->family == COH_FAMILY_GPT2 && tensor.rank == 2 &&
                                                strstr(tensor.name, ".c_") != NULL);
    }
    assert_int_equal(coh_model_tensor_at(model, count, &tensor), COH_ERR_ARGUMENT);
    assert_int_equal(coh_model_tensor_at(model, -1, &tensor), COH_ERR_ARGUMENT);
}

static void published_names_and_shapes_are_those_that_transformers_writes(void **state)
{
    (void)state;
    recorded_each(check_published);
}

static void assert_found(const coh_model *model, const char *published, int64_t expected)
{
    int64_t index;
    assert_int_equal(coh_model_name_find(model, published, &index), COH_MODEL_NAME_PARAMETER);
    assert_int_equal(index, expected);
    assert_int_equal(coh_model_name_find(model, published, NULL), COH_MODEL_NAME_PARAMETER);
}

static void check_found(const json_t *one, const coh_model *model)
{
    coh_model_tensor tensor;
    char other[128];
    (void)one;
    for (int64_t i = 0; i < coh_model_tensor_count(model); i++) {
        assert_int_equal(coh_model_tensor_at(model, i, &tensor), COH_OK);
        assert_found(model, tensor.published, i);
        const char *dot = strchr(tensor.published, '.');
        if (strcmp(tensor.published, "lm_head.weight") != 0)
            assert_found(model, dot + 1, i);
        snprintf(other, sizeof(other), "other.%s", tensor.published);
        assert_int_equal(coh_model_name_find(model, other, NULL), COH_MODEL_NAME_UNKNOWN);
        snprintf(other, sizeof(other), "%s.", tensor.published);
        assert_int_equal(coh_model_name_find(model, other, NULL), COH_MODEL_NAME_UNKNOWN);
    }
}

static void names_are_found_with_the_prefix_and_without(void **state)
{
    (void)state;
    recorded_each(check_found);
}

static coh_model taken(const char *text)
{
    coh_model model;
    if (coh_model_from_config(text, &model) != COH_OK)
        fail_msg("%s: %s", text, coh_last_error());
    return model;
}

static void tied_heads_and_constants_are_told_from_what_is_unknown(void **state)
{
    (void)state;
    static const struct found {
        const char *config, *name;
        coh_model_name found;
        int64_t index;
    } all[] = {
#define GPT2  "{\"model_type\": \"gpt2\"}"
#define LLAMA "{\"model_type\": \"llama\"}"
#define TIED  "{\"model_type\": \"llama\", \"tie_word_embeddings\": true}"
#define OPT   "{\"model_type\": \"opt\"}"
        { GPT2, "lm_head.weight", COH_MODEL_NAME_TIED, 0 },
        { OPT, "lm_head.weight", COH_MODEL_NAME_TIED, 0 },
        { TIED, "lm_head.weight", COH_MODEL_NAME_TIED, 0 },
        { LLAMA, "lm_head.weight", COH_MODEL_NAME_PARAMETER, 1 + 32 * 9 + 1 },
        { LLAMA, "model.lm_head.weight", COH_MODEL_NAME_UNKNOWN, -1 },
        { GPT2, "h.11.attn.bias", COH_MODEL_NAME_BUFFER, -1 },
        { GPT2, "transformer.h.0.attn.masked_bias", COH_MODEL_NAME_BUFFER, -1 },
        { GPT2, "h.12.attn.bias", COH_MODEL_NAME_UNKNOWN, -1 },
        { GPT2, "h.012.ln_1.bias", COH_MODEL_NAME_UNKNOWN, -1 },
        { GPT2, "h.+1.ln_1.bias", COH_MODEL_NAME_UNKNOWN, -1 },
        { GPT2, "h.18446744073709551617.ln_1.bias", COH_MODEL_NAME_UNKNOWN, -1 },
        { GPT2, "h.1.", COH_MODEL_NAME_UNKNOWN, -1 },
        { GPT2, "h.1", COH_MODEL_NAME_UNKNOWN, -1 },
        { GPT2, "transformer.", COH_MODEL_NAME_UNKNOWN, -1 },
        { GPT2, "", COH_MODEL_NAME_UNKNOWN, -1 },
        { GPT2, NULL, COH_MODEL_NAME_UNKNOWN, -1 },
        { LLAMA, "model.layers.3.self_attn.rotary_emb.inv_freq", COH_MODEL_NAME_BUFFER, -1 },
        { LLAMA, "model.layers.3.self_attn.q_proj.bias", COH_MODEL_NAME_UNKNOWN, -1 },
        { OPT, "model.decoder.project_in.weight", COH_MODEL_NAME_UNKNOWN, -1 },
        { OPT, "decoder.layers.0.self_attn.k_proj.bias", COH_MODEL_NAME_PARAMETER, 2 + 5 },
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        int64_t index;
        coh_model model = taken(all[i].config);
        assert_int_equal(coh_model_name_find(&model, all[i].name, &index), all[i].found);
        assert_int_equal(index, all[i].index);
    }
    assert_int_equal(coh_model_name_find(NULL, "wte.weight", NULL), COH_MODEL_NAME_UNKNOWN);
    assert_int_equal(coh_model_tensor_count(NULL), 0);
}

/* ---- graphs ---- */

static void assert_dtypes(const coh_graph *graph, coh_dtype dtype, int32_t f32_tensor)
{
    for (size_t t = 0; t < graph->tensor_count; t++) {
        coh_dtype expected = dtype;
        if (graph->tensors[t].producer < 0)
            expected = COH_DTYPE_I32;
        else if ((int32_t)t == f32_tensor)
            expected = COH_DTYPE_F32;
        assert_int_equal(graph->tensors[t].shape.dtype, expected);
    }
    for (size_t p = 0; p < graph->parameter_count; p++)
        assert_int_equal(graph->parameters[p].facts.shape.dtype, dtype);
}

/* Checks that the operators of a layer are contiguous, with layers in order, and all others in
 * none. */
static void assert_blocks(const coh_graph *graph, int64_t layers)
{
    int32_t last = -1;
    for (size_t i = 0; i < graph->op_count; i++) {
        const int32_t block = graph->ops[i].block;
        assert_true(block == last || block == last + 1 || (block == -1 && last == layers - 1));
        assert_int_equal(block >= 0, strstr(graph->ops[i].name, "h.") == graph->ops[i].name ||
                                         strstr(graph->ops[i].name, "layers.") != NULL);
        last = block;
    }
    assert_int_equal(last, -1);
    assert_int_equal(coh_graph_block_count(graph), layers);
}

static void check_training(const json_t *one, const coh_model *model)
{
    (void)one;
    for (int i = 0; i < 2; i++) {
        coh_model typed = *model;
        const coh_dtype dtype = i ? COH_DTYPE_BF16 : COH_DTYPE_F32;
        coh_model_dtype_set(&typed, dtype);
        assert_int_equal(coh_model_size_get(&typed).dtype, dtype);
        coh_graph *graph = build(&typed, 0, NULL);
        assert_int_equal(graph->input_count, 2);
        assert_true(graph->loss >= 0);
        assert_int_equal(coh_shape_elements(&graph->tensors[graph->loss].shape), 1);
        assert_dtypes(graph, dtype, graph->loss);
        assert_blocks(graph, coh_model_size_get(model).layers);
        coh_graph_destroy(graph);
    }
}

static void training_graphs_end_in_a_loss_and_keep_their_dtype(void **state)
{
    (void)state;
    recorded_each(check_training);
}

static void check_decoding(const json_t *one, const coh_model *model)
{
    const coh_model_size size = coh_model_size_get(model);
    /* of keys and values, from the recorded shapes if there are any: Phi-3's lie behind queries,
     * which are as wide as the output's input */
    int64_t width = size.channels, states = 0;
    const json_t *keys = published_shape(one, "model.layers.0.self_attn.k_proj.weight"),
                 *all = published_shape(one, "model.layers.0.self_attn.qkv_proj.weight"),
                 *outputs = published_shape(one, "model.layers.0.self_attn.o_proj.weight");
    if (keys)
        width = json_integer_value(json_array_get(keys, 0));
    else if (all)
        width = (json_integer_value(json_array_get(all, 0)) -
                 json_integer_value(json_array_get(outputs, 1))) /
                2;
    coh_tensor logits;
    coh_graph *graph = build(model, 1, &logits);
    const coh_shape *shape = &graph->tensors[logits.index].shape;
    assert_true(graph->tensors[logits.index].is_output);
    assert_int_equal(graph->loss, -1);
    assert_int_equal(shape->rank, 3);
    assert_int_equal(shape->dim[0] * shape->dim[1], 1);
    assert_int_equal(shape->dim[2], size.vocabulary);
    assert_dtypes(graph, COH_DTYPE_F32, logits.index);
    for (size_t i = 0; i < graph->op_count; i++)
        for (int32_t s = 0; s < graph->ops[i].kind.state_count; s++, states++) {
            const coh_shape *state = &graph->ops[i].facts.state[s];
            assert_int_equal(state->dim[1], TOKENS);
            assert_int_equal(state->dim[2], width);
        }
    assert_int_equal(states, 2 * size.layers);
    coh_graph_destroy(graph);
}

static void decoders_keep_keys_and_values_and_give_logits(void **state)
{
    (void)state;
    recorded_each(check_decoding);
}

static void check_head(const json_t *one, const coh_model *model)
{
    coh_graph *graph = build(model, 0, NULL);
    const coh_graph_op_entry *head = &graph->ops[graph->op_count - 1];
    const int tied = !published_shape(one, "lm_head.weight");
    assert_string_equal(head->name, "lm_head");
    assert_int_equal(head->parameter[0] == graph->ops[0].parameter[0], tied);
    coh_graph_destroy(graph);
}

static void heads_use_the_table_where_no_other_is_published(void **state)
{
    (void)state;
    recorded_each(check_head);
}

static void check_positions(const json_t *one, const coh_model *model)
{
    coh_graph *graph;
    coh_tensor logits;
    (void)one;
    assert_int_equal(coh_model_size_get(model).positions, POSITIONS);
    assert_int_equal(coh_model_train_graph(model, 1, POSITIONS, &graph), COH_OK);
    coh_graph_destroy(graph);
    assert_int_equal(coh_model_train_graph(model, 1, POSITIONS + 1, &graph), COH_ERR_SHAPE);
    assert_null(graph);
    assert_int_equal(coh_model_train_graph(model, 1, 0, &graph), COH_ERR_SHAPE);
    assert_int_equal(coh_model_train_graph(model, 0, 1, &graph), COH_ERR_SHAPE);
    assert_null(graph);
    assert_int_equal(coh_model_decode_graph(model, POSITIONS, &graph, &logits), COH_OK);
    coh_graph_destroy(graph);
    assert_int_equal(coh_model_decode_graph(model, POSITIONS + 1, &graph, &logits), COH_ERR_SHAPE);
    assert_null(graph);
}

static void sequences_beyond_the_positions_are_refused(void **state)
{
    (void)state;
    recorded_each(check_positions);
}

/* ---- properties that the parameters do not show ---- */

static const coh_graph_op_entry *op_named(const coh_graph *graph, const char *name)
{
    for (size_t i = 0; i < graph->op_count; i++)
        if (strcmp(graph->ops[i].name, name) == 0)
            return &graph->ops[i];
    fail_msg("no operator %s", name);
    return NULL;
}

static const char *producer_of(const coh_graph *graph, const char *name, int input)
{
    const int32_t producer = graph->tensors[op_named(graph, name)->input[input]].producer;
    return producer < 0 ? "" : graph->ops[producer].name;
}

static void assert_follows(const coh_graph *graph, const char *name, int input, const char *before)
{
    assert_string_equal(producer_of(graph, name, input), before);
}

static void norms_of_opt_stand_before_the_branches_or_after_the_sums(void **state)
{
    (void)state;
#define SMALL_OPT                                                                                  \
    "\"vocab_size\": 37, \"hidden_size\": 12, \"ffn_dim\": 20, \"num_hidden_layers\": 1, "         \
    "\"num_attention_heads\": 3, \"max_position_embeddings\": 9"
#define LAYER "model.decoder.layers.0."
    coh_model model = taken("{\"model_type\": \"opt\", " SMALL_OPT "}");
    coh_graph *graph = build(&model, 0, NULL);
    assert_follows(graph, LAYER "self_attn_layer_norm", 0, "model.decoder.embed_positions");
    assert_follows(graph, LAYER "self_attn.v_proj", 0, LAYER "self_attn_layer_norm");
    assert_follows(graph, LAYER "self_attn.out_proj", 1, "model.decoder.embed_positions");
    assert_follows(graph, LAYER "final_layer_norm", 0, LAYER "self_attn.out_proj");
    assert_follows(graph, LAYER "fc2", 1, LAYER "self_attn.out_proj");
    assert_follows(graph, "model.decoder.final_layer_norm", 0, LAYER "fc2");
    assert_follows(graph, "lm_head", 0, "model.decoder.final_layer_norm");
    coh_graph_destroy(graph);

    model = taken("{\"model_type\": \"opt\", \"do_layer_norm_before\": false, "
                  "\"word_embed_proj_dim\": 8, " SMALL_OPT "}");
    graph = build(&model, 0, NULL);
    assert_follows(graph, "model.decoder.embed_positions", 0, "model.decoder.project_in");
    assert_follows(graph, LAYER "self_attn.q_proj", 0, "model.decoder.embed_positions");
    assert_follows(graph, LAYER "self_attn_layer_norm", 0, LAYER "self_attn.out_proj");
    assert_follows(graph, LAYER "fc1", 0, LAYER "self_attn_layer_norm");
    assert_follows(graph, LAYER "fc2", 1, LAYER "self_attn_layer_norm");
    assert_follows(graph, LAYER "final_layer_norm", 0, LAYER "fc2");
    assert_follows(graph, "model.decoder.project_out", 0, LAYER "final_layer_norm");
    assert_follows(graph, "lm_head", 0, "model.decoder.project_out");
    coh_graph_destroy(graph);
#undef LAYER
}

static void queries_and_keys_of_llama_are_turned_and_values_are_not(void **state)
{
    (void)state;
#define LAYER "model.layers.1."
    coh_model model = taken("{\"model_type\": \"llama\", \"vocab_size\": 37, \"hidden_size\": 24, "
                            "\"intermediate_size\": 20, \"num_hidden_layers\": 2, "
                            "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
                            "\"rope_theta\": 777, \"pad_token_id\": 5}");
    for (int decode = 0; decode < 2; decode++) {
        coh_tensor logits;
        coh_graph *graph = build(&model, decode, &logits);
        assert_follows(graph, LAYER "self_attn.q_rope", 0, LAYER "self_attn.q_proj");
        assert_follows(graph, LAYER "self_attn.k_rope", 0, LAYER "self_attn.k_proj");
        assert_follows(graph, LAYER "self_attn", 0, LAYER "self_attn.q_rope");
        assert_follows(graph, LAYER "self_attn", 1, LAYER "self_attn.k_rope");
        assert_follows(graph, LAYER "self_attn", 2, LAYER "self_attn.v_proj");
        assert_follows(graph, LAYER "self_attn.o_proj", 1, "model.layers.0.mlp.down_proj");
        assert_follows(graph, LAYER "mlp.act_fn", 0, LAYER "mlp.gate_proj");
        assert_follows(graph, LAYER "mlp.act_fn", 1, LAYER "mlp.up_proj");
        assert_follows(graph, LAYER "mlp.down_proj", 1, LAYER "self_attn.o_proj");
        const coh_rope_attributes *q = op_named(graph, LAYER "self_attn.q_rope")->attributes,
                                  *k = op_named(graph, LAYER "self_attn.k_rope")->attributes;
        assert_int_equal(q->heads, 4);
        assert_int_equal(k->heads, 2);
        assert_true(q->theta == 777 && k->theta == 777);
        assert_string_equal(graph->ops[0].kind.name, coh_kind_embedding_padded.name);
        coh_graph_destroy(graph);
    }
    model.llama.padding = -1;
    coh_graph *graph = build(&model, 0, NULL);
    assert_string_equal(graph->ops[0].kind.name, coh_kind_embedding.name);
    coh_graph_destroy(graph);
#undef LAYER
}

static void opt_reads_positions_from_the_third_row_on(void **state)
{
    (void)state;
    coh_model model = taken("{\"model_type\": \"opt\", " SMALL_OPT "}");
    coh_graph *graph = build(&model, 0, NULL);
    const coh_position_attributes *positions =
        op_named(graph, "model.decoder.embed_positions")->attributes;
    assert_int_equal(positions->positions, 9);
    assert_int_equal(positions->offset, 2);
    coh_graph_destroy(graph);
}

/* ---- configurations that come from no file ---- */

static void refuse(const coh_model *model, coh_status expected)
{
    coh_graph *graph;
    coh_tensor logits;
    assert_int_equal(coh_model_train_graph(model, 1, 1, &graph), expected);
    assert_null(graph);
    assert_int_equal(coh_model_decode_graph(model, 1, &graph, &logits), expected);
    assert_null(graph);
}

static void what_is_no_opt_is_refused(void **state)
{
    (void)state;
    coh_model good = taken("{\"model_type\": \"opt\", " SMALL_OPT "}"), bad;
    coh_graph_destroy(build(&good, 0, NULL));
#define REFUSE(field, value, expected) (bad = good, bad.field = (value), refuse(&bad, expected))
    REFUSE(opt.layers, 0, COH_ERR_ARGUMENT);
    REFUSE(opt.layers, 100001, COH_ERR_ARGUMENT);
    REFUSE(opt.heads, 5, COH_ERR_SHAPE);
    REFUSE(opt.channels, INT64_C(1) << 40, COH_ERR_ARGUMENT);
    REFUSE(opt.inner, 0, COH_ERR_ARGUMENT);
    REFUSE(opt.embedding, 0, COH_ERR_ARGUMENT);
    REFUSE(opt.padding, 37, COH_ERR_ARGUMENT);
    REFUSE(opt.padding, -2, COH_ERR_ARGUMENT);
    REFUSE(opt.init_std, 0, COH_ERR_ARGUMENT);
    REFUSE(opt.dtype, COH_DTYPE_F16, COH_ERR_ARGUMENT);
    REFUSE(family, (coh_family)COH_FAMILY_COUNT, COH_ERR_ARGUMENT);
}

static void what_is_no_llama_is_refused(void **state)
{
    (void)state;
    coh_model good = taken("{\"model_type\": \"llama\", \"vocab_size\": 37, \"hidden_size\": 24, "
                           "\"intermediate_size\": 20, \"num_hidden_layers\": 2, "
                           "\"num_attention_heads\": 4}"),
              bad;
    coh_graph_destroy(build(&good, 0, NULL));
    REFUSE(llama.vocabulary, 0, COH_ERR_ARGUMENT);
    REFUSE(llama.kv_heads, 3, COH_ERR_SHAPE);
    REFUSE(llama.kv_heads, 0, COH_ERR_SHAPE);
    REFUSE(llama.kv_heads, 8, COH_ERR_SHAPE);
    REFUSE(llama.head_width, 5, COH_ERR_SHAPE);
    REFUSE(llama.head_width, INT64_C(1) << 40, COH_ERR_SHAPE);
    REFUSE(llama.inner, -1, COH_ERR_ARGUMENT);
    REFUSE(llama.window, -1, COH_ERR_ARGUMENT);
    REFUSE(llama.window, 5, COH_ERR_ARGUMENT); /* no Llama has a window */
    REFUSE(llama.qkv_biases, 1, COH_ERR_ARGUMENT);
    REFUSE(llama.type, 5, COH_ERR_ARGUMENT);
    REFUSE(llama.type, -1, COH_ERR_ARGUMENT);
    REFUSE(llama.rope.theta, 0, COH_ERR_ARGUMENT);
    REFUSE(llama.rope.scaling, COH_ROPE_LINEAR, COH_ERR_ARGUMENT); /* factor 0 */
    REFUSE(llama.rope.scaling, 7, COH_ERR_ARGUMENT);
    const coh_rope_attributes yarn = { 0, 1e4, COH_ROPE_YARN, 4, 1, 32, 64, 1 };
    good.llama.rope = yarn;
    coh_graph_destroy(build(&good, 0, NULL));
    REFUSE(llama.rope.magnitude, 0, COH_ERR_ARGUMENT);
    REFUSE(llama.rope.magnitude, INFINITY, COH_ERR_ARGUMENT);
    REFUSE(llama.rope.theta, 1, COH_ERR_ARGUMENT);
    REFUSE(llama.rope.low_frequency, 32, COH_ERR_ARGUMENT);
    REFUSE(llama.rope.original_positions, 0, COH_ERR_ARGUMENT);
    REFUSE(llama.type, COH_LLAMA_PHI3, COH_ERR_ARGUMENT); /* no Phi-3 has YaRN */
    good.llama.rope = (coh_rope_attributes){ .theta = 1e4 };
    good.llama.type = COH_LLAMA_QWEN3;
    coh_graph_destroy(build(&good, 0, NULL));
    REFUSE(llama.mlp_bias, 1, COH_ERR_ARGUMENT);
    REFUSE(llama.qkv_biases, 1, COH_ERR_ARGUMENT); /* without the output's */
    good.llama.type = COH_LLAMA_PHI3;
    coh_graph_destroy(build(&good, 0, NULL));
    REFUSE(llama.output_bias, 1, COH_ERR_ARGUMENT);
    good.llama.type = COH_LLAMA_PLAIN;
    REFUSE(llama.rope.theta, 0.5, COH_ERR_ARGUMENT);
    REFUSE(llama.rope.theta, 0x1p101, COH_ERR_ARGUMENT);
    REFUSE(llama.rope.theta, NAN, COH_ERR_ARGUMENT);
    REFUSE(llama.head_width, 514, COH_ERR_SHAPE);
    REFUSE(llama.rmsnorm_epsilon, 0, COH_ERR_ARGUMENT);
    REFUSE(llama.rmsnorm_epsilon, 1, COH_ERR_ARGUMENT);
    REFUSE(llama.rmsnorm_epsilon, NAN, COH_ERR_ARGUMENT);
    REFUSE(llama.dtype, COH_DTYPE_I32, COH_ERR_ARGUMENT);
}

/* Qwen3 has a norm of each head before rope; Phi-3 has the linears that transformers fuses. */
static void qwen3_has_norms_of_heads_and_phi3_fused_linears(void **state)
{
    (void)state;
#define LAYER "model.layers.1."
#define SIZES                                                                                      \
    "\"vocab_size\": 37, \"hidden_size\": 24, \"intermediate_size\": 20, "                         \
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
    coh_model qwen3 = taken("{\"model_type\": \"qwen3\", " SIZES "\"head_dim\": 10}");
    coh_model phi3 = taken("{\"model_type\": \"phi3\", " SIZES "\"pad_token_id\": null}");
    for (int decode = 0; decode < 2; decode++) {
        coh_tensor logits;
        coh_graph *graph = build(&qwen3, decode, &logits);
        assert_follows(graph, LAYER "self_attn.q_norm", 0, LAYER "self_attn.q_proj");
        assert_follows(graph, LAYER "self_attn.k_norm", 0, LAYER "self_attn.k_proj");
        assert_follows(graph, LAYER "self_attn.q_rope", 0, LAYER "self_attn.q_norm");
        assert_follows(graph, LAYER "self_attn.k_rope", 0, LAYER "self_attn.k_norm");
        assert_follows(graph, LAYER "self_attn", 2, LAYER "self_attn.v_proj");
        const coh_rmsnorm_attributes *q = op_named(graph, LAYER "self_attn.q_norm")->attributes,
                                     *k = op_named(graph, LAYER "self_attn.k_norm")->attributes;
        assert_int_equal(q->heads, 4);
        assert_int_equal(k->heads, 2);
        coh_graph_destroy(graph);
        graph = build(&phi3, decode, &logits);
        assert_follows(graph, LAYER "self_attn.qkv_rope", 0, LAYER "self_attn.qkv_proj");
        for (int port = 0; port < 3; port++)
            assert_follows(graph, LAYER "self_attn", port, LAYER "self_attn.qkv_rope");
        assert_follows(graph, LAYER "mlp.activation_fn", 0, LAYER "mlp.gate_up_proj");
        assert_follows(graph, LAYER "mlp.down_proj", 0, LAYER "mlp.activation_fn");
        coh_graph_destroy(graph);
    }
    coh_adapters adapters = { .rank = 2 };
    assert_int_equal(coh_model_adapters_set(&phi3, &adapters), COH_OK);
    assert_string_equal(phi3.adapters.targets, "qkv_proj");
    assert_int_equal(coh_model_adapters_set(&qwen3, &adapters), COH_OK);
    assert_string_equal(qwen3.adapters.targets, "q_proj,v_proj");
    /* dropout behind both branches of Phi-3, as in its class, and on no other type's */
    phi3.adapters = qwen3.adapters = (coh_adapters){ 0 };
    phi3.dropout = qwen3.dropout = 0.1;
    coh_graph *graph = build(&phi3, 0, NULL);
    assert_follows(graph, LAYER "self_attn.o_proj.dropout", 0, LAYER "self_attn.o_proj");
    assert_follows(graph, LAYER "mlp.down_proj.dropout", 0, LAYER "mlp.down_proj");
    coh_graph_destroy(graph);
    graph = build(&qwen3, 0, NULL);
    assert_follows(graph, LAYER "mlp.down_proj", 1, LAYER "self_attn.o_proj");
    coh_graph_destroy(graph);
#undef LAYER
}

/* The kinds accept every model that passes the configuration's check: at each limit a graph is
 * made. */
static void a_graph_is_made_of_every_model_at_the_limits(void **state)
{
    (void)state;
    static const char *const configs[] = {
        "{\"model_type\": \"gpt2\", \"vocab_size\": 37, \"n_positions\": 16, \"n_embd\": 1024, "
        "\"n_layer\": 1, \"n_head\": 2, \"layer_norm_epsilon\": 0.99}",
        "{\"model_type\": \"opt\", \"vocab_size\": 37, \"hidden_size\": 512, \"ffn_dim\": 3, "
        "\"num_hidden_layers\": 1, \"num_attention_heads\": 1, "
        "\"max_position_embeddings\": 2147483645}",
        "{\"model_type\": \"llama\", \"vocab_size\": 37, \"hidden_size\": 1024, "
        "\"intermediate_size\": 20, \"num_hidden_layers\": 1, \"num_attention_heads\": 2, "
        "\"rope_theta\": 1.2676506002282294e30, \"rms_norm_eps\": 0.99}",
        "{\"model_type\": \"llama\", \"vocab_size\": 37, \"hidden_size\": 24, "
        "\"intermediate_size\": 20, \"num_hidden_layers\": 1, \"num_attention_heads\": 4, "
        "\"max_position_embeddings\": 16, \"rope_theta\": 1, "
        "\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 7.450580596923828e-9}}",
    };
    for (size_t i = 0; i < sizeof(configs) / sizeof(configs[0]); i++) {
        coh_tensor logits;
        const coh_model model = taken(configs[i]);
        coh_graph_destroy(build(&model, 0, NULL));
        coh_graph_destroy(build(&model, 1, &logits));
    }
}

static void every_failing_allocation_is_said_and_leaves_nothing_behind(void **state)
{
    (void)state;
    static const char *const configs[] = {
        "{\"model_type\": \"opt\", \"word_embed_proj_dim\": 8, " SMALL_OPT "}",
        "{\"model_type\": \"qwen2\", \"vocab_size\": 37, \"hidden_size\": 24, "
        "\"num_hidden_layers\": 1, \"num_attention_heads\": 4, \"num_key_value_heads\": 2}",
        "{\"model_type\": \"phi3\", \"vocab_size\": 37, \"hidden_size\": 24, "
        "\"num_hidden_layers\": 1, \"num_attention_heads\": 4, \"pad_token_id\": 3}",
    };
    for (int i = 0; i < 6; i++) {
        const coh_model model = taken(configs[i / 2]);
        for (uint64_t n = 1;; n++) {
            coh_graph *graph = NULL;
            coh_tensor logits;
            alloc_fail_nth(n);
            const coh_status status = i & 1
                                          ? coh_model_decode_graph(&model, TOKENS, &graph, &logits)
                                          : coh_model_train_graph(&model, 1, TOKENS, &graph);
            const int was_hit = alloc_fault_was_hit();
            alloc_fail_nth(0);
            if (!was_hit) {
                assert_int_equal(status, COH_OK);
                assert_true(n > 20);
                coh_graph_destroy(graph);
                break;
            }
            assert_int_equal(status, COH_ERR_MEMORY);
            assert_null(graph);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_graphs_have_the_parameters_of_the_table_in_its_order),
        cmocka_unit_test(published_names_and_shapes_are_those_that_transformers_writes),
        cmocka_unit_test(names_are_found_with_the_prefix_and_without),
        cmocka_unit_test(tied_heads_and_constants_are_told_from_what_is_unknown),
        cmocka_unit_test(training_graphs_end_in_a_loss_and_keep_their_dtype),
        cmocka_unit_test(decoders_keep_keys_and_values_and_give_logits),
        cmocka_unit_test(heads_use_the_table_where_no_other_is_published),
        cmocka_unit_test(attention_adds_by_atomics_where_the_model_says_so),
        cmocka_unit_test(sequences_beyond_the_positions_are_refused),
        cmocka_unit_test(norms_of_opt_stand_before_the_branches_or_after_the_sums),
        cmocka_unit_test(queries_and_keys_of_llama_are_turned_and_values_are_not),
        cmocka_unit_test(opt_reads_positions_from_the_third_row_on),
        cmocka_unit_test(qwen3_has_norms_of_heads_and_phi3_fused_linears),
        cmocka_unit_test(what_is_no_opt_is_refused),
        cmocka_unit_test(what_is_no_llama_is_refused),
        cmocka_unit_test(a_graph_is_made_of_every_model_at_the_limits),
        cmocka_unit_test(every_failing_allocation_is_said_and_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
