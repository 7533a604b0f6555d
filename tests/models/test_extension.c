/* Models of extensions: what is refused when one is registered, and that a registered model is a
 * model as any other: found by name, built, written to a note and read back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "cohobate/cohobate.h"

static coh_own_graph seen; /* by the last build */
static const coh_own_model still, wordless, narrow, foreign;

/* The mean of a table's rows, compared with nothing: the shortest model. */
static coh_status build(coh_own_graph *to)
{
    const coh_embedding_attributes table = { .vocabulary = to->size.vocabulary,
                                             .channels = to->size.channels,
                                             .init_std = 1,
                                             .dtype = to->size.dtype };
    const coh_linear_attributes head = { .outputs = to->size.vocabulary };
    coh_op_args args = { .name = "table",
                         .attributes = &table,
                         .attribute_bytes = sizeof(table),
                         .inputs = &to->tokens,
                         .frozen_parameters = to->model == &still ? UINT32_MAX : 0,
                         .block = -1 };
    coh_tensor x;
    seen = *to;
    if (to->model == &wordless)
        return COH_ERR_SHAPE;
    coh_status status = coh_graph_op(to->graph, &coh_kind_embedding, &args, &x, NULL);
    args = (coh_op_args){ .name = "head",
                          .attributes = &head,
                          .attribute_bytes = sizeof(head),
                          .inputs = &x,
                          .block = -1 };
    if (status == COH_OK)
        status = coh_graph_op(to->graph, &coh_kind_linear, &args, &x, NULL);
    const coh_tensor inputs[] = { x, to->targets };
    args = (coh_op_args){ .name = "loss", .inputs = inputs, .block = -1 };
    if (to->model->context != NULL)
        to->logits = to->model == &narrow    ? to->tokens
                     : to->model == &foreign ? (coh_tensor){ 1000 }
                                             : x;
    return status == COH_OK
               ? coh_graph_op(to->graph, &coh_kind_cross_entropy, &args, &to->loss, NULL)
               : status;
}

#define SIZE                                                                                       \
    {                                                                                              \
        .layers = 1, .heads = 1, .channels = 4, .vocabulary = 11, .positions = 8                   \
    }
#define MODEL(model_name, ...)                                                                     \
    {                                                                                              \
        .struct_bytes = sizeof(coh_own_model), .name = (model_name), .size = SIZE, .build = build, \
        __VA_ARGS__                                                                                \
    }
static const coh_own_model tiny = MODEL("own-tiny", .context = "gives its logits");
static const coh_own_model silent = MODEL("own-silent", .context = NULL);
static const coh_own_model wordless = MODEL("own-wordless", .context = NULL); /* its build fails */
static const coh_own_model narrow = MODEL("own-narrow", .context = "gives tokens as logits");
static const coh_own_model foreign = MODEL("own-foreign", .context = "gives no tensor as logits");
static const coh_own_model still = MODEL("own-still", .context = NULL); /* its table is frozen */

static const coh_extension first = { .struct_bytes = sizeof(coh_extension),
                                     .kind_abi = COH_KIND_ABI,
                                     .name = "first",
                                     .revision = 3,
                                     .model_count = 6,
                                     .models = { &tiny, &silent, &still, &wordless, &narrow,
                                                 &foreign } };

static int set_up(void **state)
{
    (void)state;
    return coh_extension_register(&first) != COH_OK;
}

static void test_a_model_is_found_and_built(void **state)
{
    (void)state;
    coh_model model;
    coh_graph *graph;
    coh_graph_parameter_facts facts;
    assert_int_equal(coh_extension_register(&first), COH_OK); /* again */
    assert_int_equal(coh_model_resolve("own-tiny", 23, &model), COH_OK);
    assert_int_equal(model.family, COH_FAMILY_OWN);
    assert_int_equal(coh_model_size_get(&model).vocabulary, 23);
    assert_int_equal(coh_model_trained_count(&model), 2 * 23 * 4);
    assert_int_equal(coh_model_train_graph(&model, 2, 8, &graph), COH_OK);
    assert_ptr_equal(seen.model, &tiny);
    assert_int_equal(seen.size.vocabulary, 23);
    assert_int_equal(coh_graph_parameter_count(graph), 2);
    assert_int_equal(coh_graph_parameter_at(graph, 0, &facts), COH_OK);
    assert_string_equal(facts.name, "table.weight");
    coh_graph_destroy(graph);
    assert_int_equal(coh_model_train_graph(&model, 2, 9, &graph), COH_ERR_SHAPE);
    assert_int_equal(coh_model_resolve("own-tiny", 0, &model), COH_OK);
    assert_int_equal(coh_model_size_get(&model).vocabulary, 11);
}

static void test_frozen_parameters_are_not_counted_as_trained(void **state)
{
    (void)state;
    coh_model model;
    assert_int_equal(coh_model_resolve("own-still", 23, &model), COH_OK);
    assert_int_equal(coh_model_trained_count(&model), 23 * 4);
}

static void test_a_build_that_fails_without_a_text_gets_one(void **state)
{
    (void)state;
    coh_model model;
    coh_graph *graph;
    assert_int_equal(coh_model_resolve("own-wordless", 0, &model), COH_OK);
    assert_int_not_equal(coh_model_resolve("own-unknown", 0, &(coh_model){ 0 }), COH_OK);
    assert_int_equal(coh_model_train_graph(&model, 2, 8, &graph), COH_ERR_SHAPE);
    assert_string_equal(coh_last_error(), "model own-wordless: its build fails and gives no reason "
                                          "(coh_kind_fail)");
    assert_int_not_equal(coh_model_resolve("own-unknown", 0, &(coh_model){ 0 }), COH_OK);
    assert_int_equal(coh_model_resolve("own-tiny", 0, &model), COH_OK);
    assert_int_equal(coh_model_train_graph(&model, 2, 8, &graph), COH_OK);
    assert_non_null(strstr(coh_last_error(), "own-unknown")); /* a success keeps the last error */
    coh_graph_destroy(graph);
}

static void test_logits_are_outputs_if_the_build_gives_them(void **state)
{
    (void)state;
    coh_model model;
    coh_graph *graph;
    coh_tensor at;
    assert_int_equal(coh_model_resolve("own-tiny", 0, &model), COH_OK);
    assert_int_equal(coh_model_logits_graph(&model, 1, 8, &graph, &at), COH_OK);
    coh_graph_destroy(graph);
    assert_int_equal(coh_model_token_losses_graph(&model, 1, 8, &graph, &at), COH_OK);
    coh_graph_destroy(graph);
    assert_int_equal(coh_model_decode_graph(&model, 8, &graph, &at), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "no decoder"));
    model.separate_documents = 1;
    assert_int_equal(coh_model_train_graph(&model, 1, 8, &graph), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "no positions of documents"));
    assert_int_equal(coh_model_resolve("own-silent", 0, &model), COH_OK);
    assert_int_equal(coh_model_logits_graph(&model, 1, 8, &graph, &at), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "sets no coh_own_graph.logits"));
}

/* Of a model, in `dtype`: the training graph is built, the one with logits is refused. */
static void assert_logits_refused(const char *name, coh_dtype dtype, coh_status status,
                                  const char *says)
{
    coh_model model;
    coh_graph *graph;
    coh_tensor at;
    assert_int_equal(coh_model_resolve(name, 0, &model), COH_OK);
    coh_model_dtype_set(&model, dtype);
    assert_int_equal(coh_model_train_graph(&model, 2, 8, &graph), COH_OK);
    coh_graph_destroy(graph);
    assert_int_equal(coh_model_logits_graph(&model, 2, 8, &graph, &at), status);
    if (strstr(coh_last_error(), says) == NULL)
        fail_msg("%s", coh_last_error());
}

static void test_logits_that_are_none_are_refused(void **state)
{
    (void)state;
    coh_model model;
    coh_graph *graph;
    coh_tensor at;
    assert_logits_refused("own-narrow", COH_DTYPE_F32, COH_ERR_SHAPE,
                          "model own-narrow gives logits that are integers [2, 8]: f32 [2, 8, 11] "
                          "are needed");
    assert_logits_refused("own-foreign", COH_DTYPE_F32, COH_ERR_ARGUMENT,
                          "model own-foreign gives logits that are no tensor of its graph");
    assert_logits_refused("own-tiny", COH_DTYPE_BF16, COH_ERR_SHAPE,
                          "model own-tiny gives logits in bf16, and readers take f32");
    assert_int_equal(coh_model_resolve("own-tiny", 0, &model), COH_OK);
    coh_model_dtype_set(&model, COH_DTYPE_BF16);
    assert_int_equal(coh_model_token_losses_graph(&model, 2, 8, &graph, &at), COH_OK);
    coh_graph_destroy(graph);
}

static void test_a_note_gives_the_model_back(void **state)
{
    (void)state;
    coh_model model, read;
    char json[COH_MODEL_JSON_BYTES], again[COH_MODEL_JSON_BYTES];
    assert_int_equal(coh_model_resolve("own-tiny", 23, &model), COH_OK);
    coh_model_dtype_set(&model, COH_DTYPE_BF16);
    assert_int_equal(coh_model_to_json(&model, json, sizeof(json)), COH_OK);
    assert_int_equal(coh_model_from_json(json, &read), COH_OK);
    assert_memory_equal(&read.own, &model.own, sizeof(model.own));
    assert_int_equal(coh_model_to_json(&read, again, sizeof(again)), COH_OK);
    assert_string_equal(again, json);
}

/* Reads a note in which `from` is replaced by `to`. */
static void assert_refused(const char *from, const char *to, coh_status status, const char *says)
{
    coh_model model;
    char json[COH_MODEL_JSON_BYTES], other[COH_MODEL_JSON_BYTES];
    assert_int_equal(coh_model_resolve("own-tiny", 0, &model), COH_OK);
    assert_int_equal(coh_model_to_json(&model, json, sizeof(json)), COH_OK);
    const char *at = strstr(json, from);
    assert_non_null(at);
    snprintf(other, sizeof(other), "%.*s%s%s", (int)(at - json), json, to, at + strlen(from));
    assert_int_equal(coh_model_from_json(other, &model), status);
    if (strstr(coh_last_error(), says) == NULL)
        fail_msg("%s", coh_last_error());
}

static void test_another_extension_is_named(void **state)
{
    (void)state;
    assert_refused("\"first\"", "\"second\"", COH_ERR_ARGUMENT,
                   "is one of extension second, which is not loaded");
    assert_refused("\"extension_model\": \"own-tiny\"", "\"extension_model\": \"own-huge\"",
                   COH_ERR_ARGUMENT,
                   "its model own-huge is one of extension first, which is not loaded");
    assert_refused("\"extension_revision\": 3", "\"extension_revision\": 2", COH_ERR_ARGUMENT,
                   "in revision 2, and revision 3 is loaded");
    assert_refused("\"extension_revision\": 3", "\"extension_revision\": -1", COH_ERR_CORRUPT,
                   "below 2^32");
    assert_refused("\"extension\": \"first\"", "\"extension\": \"../first\"", COH_ERR_CORRUPT,
                   "the name of");
}

static void test_what_is_wrong_with_an_extension_is_said(void **state)
{
    (void)state;
    static const coh_own_model preset = MODEL("gpt2", .context = NULL);
    static const coh_own_model slash = MODEL("a/b", .context = NULL);
    static const coh_own_model fresh = MODEL("own-fresh", .context = NULL);
    coh_own_model unbuilt = fresh, flat = fresh;
    unbuilt.build = NULL;
    flat.size.channels = 0;
    const struct {
        coh_extension extension;
        const char *says;
    } cases[] = {
#define CASE(says_, ...)                                                                           \
    { { .struct_bytes = sizeof(coh_extension), .kind_abi = COH_KIND_ABI, __VA_ARGS__ }, (says_) }
        CASE("no name of an extension", .name = NULL),
        CASE("no name of an extension", .name = "Mine"),
        CASE("17 models, 0 to 16", .name = "x", .model_count = 17),
        CASE("-1 kinds, 0 to 16", .name = "x", .kind_count = -1),
        CASE("number 0 of its optimizers is NULL", .name = "x", .optimizer_count = 1),
        CASE("the name of a preset", .name = "x", .model_count = 1, .models = { &preset }),
        CASE("no name of a model", .name = "x", .model_count = 1, .models = { &slash }),
        CASE("has no build", .name = "x", .model_count = 1, .models = { &unbuilt }),
        CASE("of at least 1", .name = "x", .model_count = 1, .models = { &flat }),
        CASE("one of extension first already", .name = "x", .model_count = 2,
             .models = { &fresh, &tiny }),
        CASE("one of extension x already", .name = "x", .model_count = 2,
             .models = { &fresh, &fresh }),
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        coh_model model;
        assert_int_equal(coh_extension_register(&cases[i].extension), COH_ERR_ARGUMENT);
        if (strstr(coh_last_error(), cases[i].says) == NULL)
            fail_msg("case %zu: %s", i, coh_last_error());
        assert_int_not_equal(coh_model_preset("own-fresh", 0, &model), COH_OK);
    }
    coh_extension old = first;
    old.kind_abi--;
    assert_int_equal(coh_extension_register(&old), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "compile it again"));
}

static void test_what_a_family_of_ones_own_lacks_is_said(void **state)
{
    (void)state;
    coh_model model;
    coh_folder_write_options options = { .struct_bytes = sizeof(options) };
    uint64_t bytes;
    const coh_adapters freeze = { .freeze = "table" };
    assert_int_equal(coh_model_resolve("own-tiny", 0, &model), COH_OK);
    assert_int_equal(coh_folder_write_bytes(&model, &options, &bytes), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "that transformers knows"));
    assert_int_equal(coh_model_adapters_set(&model, &freeze), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "decides what is frozen"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_model_is_found_and_built),
        cmocka_unit_test(test_frozen_parameters_are_not_counted_as_trained),
        cmocka_unit_test(test_a_build_that_fails_without_a_text_gets_one),
        cmocka_unit_test(test_logits_are_outputs_if_the_build_gives_them),
        cmocka_unit_test(test_logits_that_are_none_are_refused),
        cmocka_unit_test(test_a_note_gives_the_model_back),
        cmocka_unit_test(test_another_extension_is_named),
        cmocka_unit_test(test_what_is_wrong_with_an_extension_is_said),
        cmocka_unit_test(test_what_a_family_of_ones_own_lacks_is_said),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
