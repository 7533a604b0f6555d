#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "cohobate/models.h"
#include "planner/graph.h"
#include "tests/faults/alloc_faults.h"

static coh_gpt2_config preset(const char *name, int64_t vocabulary)
{
    coh_gpt2_config config;
    assert_int_equal(coh_gpt2_preset(name, vocabulary, &config), COH_OK);
    return config;
}

/* Counts the elements; the table shared by embedding and head counts once. */
static uint64_t parameter_elements(const coh_graph *graph)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < graph->parameter_count; i++)
        sum += (uint64_t)coh_shape_elements(&graph->parameters[i].facts.shape);
    return sum;
}

static void presets_have_the_parameter_counts_of_the_published_models(void **state)
{
    (void)state;
    /* Radford et al. 2019 as released: the total size of the published tensors. */
    static const struct published {
        const char *name;
        uint64_t parameters;
    } all[] = { { "gpt2", 124439808 },
                { "gpt2-medium", 354823168 },
                { "gpt2-large", 774030080 },
                { "gpt2-xl", 1557611200 } };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        coh_gpt2_config config = preset(all[i].name, 0);
        coh_graph *graph;
        assert_int_equal(config.vocabulary, 50257);
        assert_int_equal(coh_gpt2_train_graph(&config, 2, 16, &graph), COH_OK);
        assert_int_equal(parameter_elements(graph), all[i].parameters);
        coh_graph_destroy(graph);
    }
    /* nano, 257 ids: tables (257 + 1024) C, layers 12 C² + 13 C, last norm 2 C. */
    coh_gpt2_config nano = preset("gpt2-nano", 257);
    coh_graph *graph;
    assert_int_equal(coh_gpt2_train_graph(&nano, 1, 1, &graph), COH_OK);
    assert_int_equal(parameter_elements(graph),
                     1281 * 384 + 6 * (12 * 384 * 384 + 13 * 384) + 2 * 384);
    coh_graph_destroy(graph);
}

/* An expected tensor of a published GPT-2; "%d" stands for layer n. */
static const struct tensor_line {
    const char *name;
    int64_t rows, columns; /* columns 0: rank 1; in units of the channels, except V and P */
    coh_init init;
    double std; /* 0: that of residual projections */
    int decays;
} layer_lines[] = {
    { "h.%d.ln_1.weight", 1, 0, COH_INIT_ONE, 0, 0 },
    { "h.%d.ln_1.bias", 1, 0, COH_INIT_ZERO, 0, 0 },
    { "h.%d.attn.c_attn.weight", 3, 1, COH_INIT_NORMAL, 0.02, 1 },
    { "h.%d.attn.c_attn.bias", 3, 0, COH_INIT_ZERO, 0, 0 },
    { "h.%d.attn.c_proj.weight", 1, 1, COH_INIT_NORMAL, 0, 1 },
    { "h.%d.attn.c_proj.bias", 1, 0, COH_INIT_ZERO, 0, 0 },
    { "h.%d.ln_2.weight", 1, 0, COH_INIT_ONE, 0, 0 },
    { "h.%d.ln_2.bias", 1, 0, COH_INIT_ZERO, 0, 0 },
    { "h.%d.mlp.c_fc.weight", 4, 1, COH_INIT_NORMAL, 0.02, 1 },
    { "h.%d.mlp.c_fc.bias", 4, 0, COH_INIT_ZERO, 0, 0 },
    { "h.%d.mlp.c_proj.weight", 1, 4, COH_INIT_NORMAL, 0, 1 },
    { "h.%d.mlp.c_proj.bias", 1, 0, COH_INIT_ZERO, 0, 0 },
};

static void assert_parameter(const coh_graph *graph, size_t index, const char *name, int64_t rows,
                             int64_t columns, coh_init init, double std, int decays)
{
    assert_true(index < graph->parameter_count);
    const coh_graph_parameter *parameter = &graph->parameters[index];
    assert_string_equal(parameter->name, name);
    assert_int_equal(parameter->facts.shape.rank, columns ? 2 : 1);
    assert_int_equal(parameter->facts.shape.dim[0], rows);
    if (columns)
        assert_int_equal(parameter->facts.shape.dim[1], columns);
    assert_int_equal(parameter->facts.init, init);
    if (init == COH_INIT_NORMAL)
        assert_true(fabs(parameter->facts.init_std - std) <= 1e-9);
    assert_int_equal(!!parameter->facts.decays, decays);
    assert_int_equal(parameter->frozen, 0);
}

static void assert_parameters(const coh_graph *graph, const coh_gpt2_config *config)
{
    int64_t C = config->channels;
    size_t index = 0;
    assert_parameter(graph, index++, "wte.weight", config->vocabulary, C, COH_INIT_NORMAL, 0.02, 1);
    assert_parameter(graph, index++, "wpe.weight", config->positions, C, COH_INIT_NORMAL, 0.01, 1);
    for (int n = 0; n < config->layers; n++) {
        for (size_t i = 0; i < sizeof(layer_lines) / sizeof(layer_lines[0]); i++) {
            const struct tensor_line *line = &layer_lines[i];
            char name[64], before[16];
            snprintf(before, sizeof(before), "h.%d.", n);
            snprintf(name, sizeof(name), "%s%s", before, line->name + strlen("h.%d."));
            double std = line->std > 0 ? line->std : 0.02 / sqrt(2.0 * (double)config->layers);
            assert_parameter(graph, index++, name, line->rows * C, line->columns * C, line->init,
                             std, line->decays);
        }
    }
    assert_parameter(graph, index++, "ln_f.weight", C, 0, COH_INIT_ONE, 0, 0);
    assert_parameter(graph, index++, "ln_f.bias", C, 0, COH_INIT_ZERO, 0, 0);
    assert_int_equal(graph->parameter_count, index);
}

static void both_graphs_have_the_parameters_of_the_published_checkpoints(void **state)
{
    (void)state;
    coh_gpt2_config config = preset("gpt2-nano", 300);
    coh_graph *graph;
    coh_tensor logits;
    assert_int_equal(coh_gpt2_train_graph(&config, 2, 64, &graph), COH_OK);
    assert_parameters(graph, &config);
    coh_graph_destroy(graph);
    assert_int_equal(coh_gpt2_decode_graph(&config, 64, &graph, &logits), COH_OK);
    assert_parameters(graph, &config);
    coh_graph_destroy(graph);
}

static void assert_shape(const coh_shape *shape, coh_dtype dtype, int32_t rank, int64_t a,
                         int64_t b, int64_t c)
{
    const int64_t dim[3] = { a, b, c };
    assert_int_equal(shape->dtype, dtype);
    assert_int_equal(shape->rank, rank);
    for (int32_t i = 0; i < rank; i++)
        assert_int_equal(shape->dim[i], dim[i]);
}

static void assert_input(const coh_graph *graph, size_t index, const char *name, int32_t rank,
                         int64_t a, int64_t b)
{
    const coh_graph_tensor *tensor = &graph->tensors[graph->inputs[index]];
    assert_string_equal(tensor->name, name);
    assert_shape(&tensor->shape, COH_DTYPE_I32, rank, a, b, 0);
}

static void layers_are_blocks_and_the_head_uses_the_table_of_tokens(void **state)
{
    (void)state;
    coh_gpt2_config config = preset("gpt2-nano", 0);
    coh_graph *graph;
    assert_int_equal(coh_gpt2_train_graph(&config, 3, 1024, &graph), COH_OK);
    assert_int_equal(graph->input_count, 2);
    assert_input(graph, 0, "tokens", 2, 3, 1024);
    assert_input(graph, 1, "targets", 2, 3, 1024);
    assert_int_equal(graph->op_count, 2 + 7 * 6 + 2);
    for (size_t i = 0; i < graph->op_count; i++) {
        int in_layer = i >= 2 && i < 2 + 7 * 6;
        assert_int_equal(graph->ops[i].block, in_layer ? (int)(i - 2) / 7 : -1);
    }
    const coh_graph_op_entry *head = &graph->ops[graph->op_count - 1];
    assert_string_equal(head->name, "lm_head");
    assert_int_equal(head->parameter[0], graph->ops[0].parameter[0]);
    assert_int_equal(graph->loss, head->output[0]);
    coh_graph_destroy(graph);
}

static void a_decoder_takes_one_token_and_keeps_keys_and_values(void **state)
{
    (void)state;
    coh_gpt2_config config = preset("gpt2-nano", 257);
    coh_graph *graph;
    coh_tensor logits;
    assert_int_equal(coh_gpt2_decode_graph(&config, 40, &graph, &logits), COH_OK);
    assert_int_equal(graph->input_count, 2);
    assert_input(graph, 0, "token", 2, 1, 1);
    assert_input(graph, 1, "position", 1, 1, 0);
    assert_true(graph->tensors[logits.index].is_output);
    assert_shape(&graph->tensors[logits.index].shape, COH_DTYPE_F32, 3, 1, 1, 257);
    int state_count = 0;
    for (size_t i = 0; i < graph->op_count; i++) {
        for (int32_t s = 0; s < graph->ops[i].kind.state_count; s++, state_count++)
            assert_shape(&graph->ops[i].facts.state[s], COH_DTYPE_F32, 3, 1, 40, 384);
    }
    assert_int_equal(state_count, 2 * 6);
    coh_graph_destroy(graph);
}

static void a_chunk_of_a_prompt_has_the_logits_of_its_last_row_only(void **state)
{
    (void)state;
    const coh_model model = { .family = COH_FAMILY_GPT2, .gpt2 = preset("gpt2-nano", 257) };
    coh_graph *graph;
    coh_tensor logits;
    for (int64_t rows = 1; rows <= 64; rows += 63) { /* more than the cache has, too */
        assert_int_equal(coh_model_prefill_graph(&model, 40, rows, &graph, &logits), COH_OK);
        assert_input(graph, 0, "token", 2, 1, rows);
        assert_input(graph, 1, "position", 1, 1, 0);
        assert_shape(&graph->tensors[logits.index].shape, COH_DTYPE_F32, 3, 1, 1, 257);
        const coh_slice_attributes *last = graph->ops[graph->op_count - 2].attributes;
        assert_int_equal(last->begin, rows - 1);
        assert_int_equal(graph->op_count, 2 + 7 * 6 + 3);
        coh_graph_destroy(graph);
    }
    assert_int_equal(coh_model_prefill_graph(&model, 40, 0, &graph, &logits), COH_ERR_SHAPE);
    assert_int_equal(coh_model_prefill_graph(&model, 40, 1025, &graph, &logits), COH_ERR_SHAPE);
    assert_non_null(strstr(coh_last_error(), "1..1024"));
    assert_null(graph);
}

/* Token ids are i32, the loss and a decoder's logits are f32; all else has the model's dtype. */
static void every_tensor_and_parameter_has_the_dtype_of_the_model(void **state)
{
    (void)state;
    coh_gpt2_config config = preset("gpt2-nano", 257);
    for (int i = 0; i < 4; i++) {
        const int decode = i & 1;
        coh_graph *graph;
        coh_tensor logits = { -1 };
        config.dtype = i & 2 ? COH_DTYPE_BF16 : COH_DTYPE_F32;
        assert_int_equal(decode ? coh_gpt2_decode_graph(&config, 40, &graph, &logits)
                                : coh_gpt2_train_graph(&config, 3, 40, &graph),
                         COH_OK);
        for (size_t t = 0; t < graph->tensor_count; t++) {
            coh_dtype expected = config.dtype;
            if (graph->tensors[t].producer < 0)
                expected = COH_DTYPE_I32;
            else if ((int32_t)t == graph->loss || (int32_t)t == logits.index)
                expected = COH_DTYPE_F32;
            assert_int_equal(graph->tensors[t].shape.dtype, expected);
        }
        for (size_t p = 0; p < graph->parameter_count; p++)
            assert_int_equal(graph->parameters[p].facts.shape.dtype, config.dtype);
        coh_graph_destroy(graph);
    }
}

static void what_is_no_model_is_refused_with_a_sentence(void **state)
{
    (void)state;
    coh_gpt2_config config, good = preset("gpt2-nano", 257);
    assert_int_equal(coh_gpt2_preset("gpt3", 0, &config), COH_ERR_ARGUMENT);
    assert_non_null(
        strstr(coh_last_error(), "gpt2-nano, gpt2, gpt2-medium, gpt2-large, gpt2-xl, opt-125m"));
    assert_int_equal(coh_gpt2_preset("gpt2", -1, &config), COH_ERR_ARGUMENT);
    assert_int_equal(coh_gpt2_preset("gpt2", INT64_C(1) << 31, &config), COH_ERR_ARGUMENT);
    coh_gpt2_config bad[] = { good, good, good, good, good, good, good, good, good };
    bad[0].layers = 0;
    bad[1].heads = 0;
    bad[2].channels = -384;
    bad[3].positions = 0;
    bad[4].vocabulary = 0;
    bad[5].heads = 5; /* does not divide 384 */
    bad[6].layernorm_epsilon = 0;
    bad[7].layernorm_epsilon = NAN;
    bad[8].dtype = COH_DTYPE_F16;
    coh_graph *graph;
    coh_tensor logits;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        coh_status expected = i == 5 ? COH_ERR_SHAPE : COH_ERR_ARGUMENT;
        assert_int_equal(coh_gpt2_train_graph(&bad[i], 1, 1, &graph), expected);
        assert_null(graph);
        assert_int_equal(coh_gpt2_decode_graph(&bad[i], 1, &graph, &logits), expected);
        assert_null(graph);
    }
    assert_int_equal(coh_gpt2_train_graph(&good, 0, 1, &graph), COH_ERR_SHAPE);
    assert_int_equal(coh_gpt2_train_graph(&good, 1, 0, &graph), COH_ERR_SHAPE);
    assert_int_equal(coh_gpt2_train_graph(&good, 1, 1025, &graph), COH_ERR_SHAPE);
    assert_non_null(strstr(coh_last_error(), "1..1024"));
    assert_int_equal(coh_gpt2_decode_graph(&good, 1025, &graph, &logits), COH_ERR_SHAPE);
}

static void every_failing_allocation_is_said_and_leaves_nothing_behind(void **state)
{
    (void)state;
    coh_gpt2_config config = preset("gpt2-nano", 257);
    config.layers = 1;
    for (int decode = 0; decode < 2; decode++) {
        for (uint64_t n = 1;; n++) {
            coh_graph *graph = NULL;
            coh_tensor logits;
            alloc_fail_nth(n);
            coh_status status = decode ? coh_gpt2_decode_graph(&config, 8, &graph, &logits)
                                       : coh_gpt2_train_graph(&config, 1, 8, &graph);
            int was_hit = alloc_fault_was_hit();
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
        cmocka_unit_test(presets_have_the_parameter_counts_of_the_published_models),
        cmocka_unit_test(both_graphs_have_the_parameters_of_the_published_checkpoints),
        cmocka_unit_test(layers_are_blocks_and_the_head_uses_the_table_of_tokens),
        cmocka_unit_test(a_decoder_takes_one_token_and_keeps_keys_and_values),
        cmocka_unit_test(a_chunk_of_a_prompt_has_the_logits_of_its_last_row_only),
        cmocka_unit_test(every_tensor_and_parameter_has_the_dtype_of_the_model),
        cmocka_unit_test(what_is_no_model_is_refused_with_a_sentence),
        cmocka_unit_test(every_failing_allocation_is_said_and_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
