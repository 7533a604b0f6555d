/* config.json, read and written. The oracles are files that transformers 4.46 and 5.23 wrote, their
 * verdicts on malformed ones, and the published sizes of models. */
#include "tests/models/recorded.h"

#include <locale.h>
#include <unistd.h>

#include "cohobate/kinds.h"
#include "planner/graph.h"
#include "tests/faults/alloc_faults.h"

static coh_model taken(const char *text)
{
    coh_model model;
    if (coh_model_from_config(text, &model) != COH_OK)
        fail_msg("%s: %s", text, coh_last_error());
    return model;
}

static uint64_t graph_parameters(const coh_model *model)
{
    coh_graph *graph;
    uint64_t sum = 0;
    if (coh_model_train_graph(model, 1, 8, &graph) != COH_OK)
        fail_msg("%s", coh_last_error());
    for (size_t i = 0; i < graph->parameter_count; i++)
        sum += (uint64_t)coh_shape_elements(&graph->parameters[i].facts.shape);
    coh_graph_destroy(graph);
    return sum;
}

/* ---- members of all families ---- */

#define GPT2_WITH "{\"model_type\": \"gpt2\", \"n_embd\": 12, \"n_layer\": 1, \"n_head\": 3, "

static void quantised_weights_are_refused_with_their_method_and_the_remedy(void **state)
{
    (void)state;
    static const char *const all[][2] = {
        { "\"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4}}",
          "quantised by gptq" },
        { "\"quantization_config\": {\"quant_method\": \"awq\", \"bits\": 4}}",
          "quantised by awq" },
        { "\"quantization_config\": {\"quant_method\": \"fp8\"}, \"n_inner\": 0}",
          "quantised by fp8" },
        { "\"quantization_config\": {\"quant_method\": \"bitsandbytes\", \"load_in_4bit\": true}}",
          "quantised by bitsandbytes" },
        { "\"quantization_config\": {\"load_in_8bit\": true}}", "quantised by bitsandbytes" },
        { "\"quantization_config\": {\"bits\": 4}}", "quantised by an unnamed method" },
        { "\"compression_config\": {\"quant_method\": \"compressed-tensors\"}}",
          "quantised by compressed-tensors" },
    };
    coh_model model;
    char text[400];
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        snprintf(text, sizeof(text), GPT2_WITH "%s", all[i][0]);
        assert_int_equal(coh_model_from_config(text, &model), COH_ERR_CORRUPT);
        if (!strstr(coh_last_error(), all[i][1]) ||
            !strstr(coh_last_error(), "give the unquantised folder of the same model"))
            fail_msg("case %zu: %s", i, coh_last_error());
    }
    (void)taken(GPT2_WITH "\"quantization_config\": null, \"compression_config\": {}}");
}

/* It names files of Python that an export does not have. */
static void the_map_to_files_of_python_is_not_written_back(void **state)
{
    (void)state;
    char *text;
    const coh_model model =
        taken(GPT2_WITH "\"auto_map\": {\"AutoModelForCausalLM\": \"modeling_x.X\"}, \"kept\": 7}");
    assert_int_equal(coh_model_to_config(&model, COH_DTYPE_F32, &text), COH_OK);
    assert_null(strstr(text, "auto_map"));
    assert_non_null(strstr(text, "\"kept\": 7"));
    assert_null(strstr(model.notes, "auto_map"));
    coh_model_text_free(text);
}

/* ---- published models ---- */

static const struct published {
    const char *name; /* of a file, and except for llama-30b also of a preset */
    uint64_t parameters;
} published[] = {
    { "gpt2", 124439808 },
    { "gpt2-medium", 354823168 },
    { "gpt2-large", 774030080 },
    { "gpt2-xl", 1557611200 },
    { "opt-125m", 125239296 },
    { "opt-350m", 331196416 },
    { "opt-1.3b", 1315758080 },
    { "opt-2.7b", 2651596800 },
    { "opt-6.7b", 6658473984 },
    { "opt-13b", 12853473280 },
    { "opt-30b", 29974540288 },
    { "opt-66b", 65719701504 },
    { "llama-2-7b", 6738415616 },
    { "llama-2-13b", 13015864320 },
    { "llama-2-70b", 68976648192 },
    { "llama-30b", 32528943616 },
    { "llama-3.1-8b", 8030261248 },
    { "llama-3.1-70b", 70553706496 },
    { "llama-3.2-1b", 1235814400 },
    { "llama-3.2-3b", 3212749824 },
    { "qwen2.5-0.5b", 494032768 },
    { "qwen2.5-1.5b", 1543714304 },
    { "qwen2.5-3b", 3085938688 },
    { "qwen2.5-7b", 7615616512 },
    { "qwen2.5-14b", 14770033664 },
    { "qwen2.5-32b", 32763876352 },
    { "qwen3-0.6b", 596049920 },
    { "qwen3-1.7b", 1720574976 },
    { "qwen3-4b", 4022468096 },
    { "qwen3-8b", 8190735360 },
    { "qwen3-14b", 14768307200 },
    { "qwen3-32b", 32762123264 },
    { "mistral-7b", 7248023552 },
    { "mistral-small-24b", 23572403200 },
    { "phi-3-medium", 13960238080 },
    { "gemma-2-9b", 9241705984 },
    { "gemma-2-27b", 27227128320 },
    /* text models: Gemma Team 2025, table 1 (675 + 3,209 M and 1,416 + 25,600 M) */
    { "gemma-3-4b", 3880263168 },
    { "gemma-3-27b", 27009346304 },
};
enum { PUBLISHED_COUNT = sizeof(published) / sizeof(published[0]) };

static void assert_published(const struct published *one, const coh_model *model)
{
    const uint64_t found = graph_parameters(model);
    if (found != one->parameters)
        fail_msg("%s: %llu parameters, published %llu", one->name, (unsigned long long)found,
                 (unsigned long long)one->parameters);
}

static void presets_have_the_published_parameter_counts(void **state)
{
    (void)state;
    coh_model model;
    int found = 0;
    for (int i = 0; i < PUBLISHED_COUNT; i++)
        if (coh_model_preset(published[i].name, 0, &model) == COH_OK) {
            assert_published(&published[i], &model);
            found++;
        }
    for (int32_t p = 0; coh_model_preset_name(p); p++)
        found--;
    assert_int_equal(found, -2); /* gpt2-pico and gpt2-nano are this project's own */
}

/* Loads the published configurations if this machine has them; else prints that and returns
 * NULL. */
static json_t *published_config(const char *model)
{
    char folder[PATH_MAX / 2], name[64], path[PATH_MAX];
    const char *named = getenv("COH_SHARED_DATA");
    snprintf(folder, sizeof(folder), "%s/configs", named ? named : SOURCE_ROOT "/../shared/data");
    if (access(folder, R_OK) != 0) {
        print_message("no folder of published configurations: %s\n", folder);
        skip();
    }
    snprintf(name, sizeof(name), "%s.json", model);
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return access(path, R_OK) == 0 ? recorded_load(folder, name) : NULL;
}

static void published_configurations_give_the_published_parameter_counts(void **state)
{
    (void)state;
    int count = 0;
    for (int i = 0; i < PUBLISHED_COUNT; i++) {
        json_t *config = published_config(published[i].name);
        if (!config)
            continue;
        coh_model model = recorded_model(config);
        assert_published(&published[i], &model);
        json_decref(config);
        count++;
    }
    assert_true(count >= 18);
}

/* Compares everything except tokenizer data (the padding) and file data (the dtype, members without
 * effect). */
static void presets_are_the_published_configurations(void **state)
{
    (void)state;
    coh_model preset;
    int count = 0;
    for (int i = 0; i < PUBLISHED_COUNT; i++) {
        json_t *config = published_config(published[i].name);
        if (config && coh_model_preset(published[i].name, 0, &preset) == COH_OK) {
            coh_model model = recorded_model(config);
            coh_model_dtype_set(&model, COH_DTYPE_F32);
            if (model.family == COH_FAMILY_OPT)
                model.opt.padding = -1;
            snprintf(model.name, sizeof(model.name), "%s", preset.name);
            model.stored = preset.stored;
            model.extras[0] = '\0';
            assert_same_model(&model, &preset);
            count++;
        }
        json_decref(config);
    }
    assert_true(count >= 16);
}

/* The defaults of transformers' classes apply to members that a config.json omits. */
static void what_is_not_said_is_as_in_the_reference(void **state)
{
    (void)state;
    static const struct bare {
        const char *text;
        uint64_t parameters;
        int64_t positions;
    } all[] = {
        { "{\"model_type\": \"gpt2\"}", 124439808, 1024 },
        { "{\"model_type\": \"opt\"}", 125239296, 2048 },
        { "{\"model_type\": \"llama\"}", 6738415616, 2048 },
        { "{\"model_type\": \"mistral\"}", 7241732096, 131072 },
        /* layers of 4 C C + 3 C I + 3 C + 2 C, tables of V C twice, one norm */
        { "{\"model_type\": \"qwen2\"}",
          32ull * (4ull * 4096 * 4096 + 3ull * 4096 * 22016 + 5ull * 4096) + 2ull * 151936 * 4096 +
              4096,
          32768 },
        /* the same without biases and with two norms of 128 channels a layer */
        { "{\"model_type\": \"qwen3\"}",
          32ull * (4ull * 4096 * 4096 + 3ull * 4096 * 22016 + 2ull * 4096 + 2ull * 128) +
              2ull * 151936 * 4096 + 4096,
          32768 },
        { "{\"model_type\": \"phi3\"}", 3821079552, 4096 }, /* Phi-3-mini */
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        coh_model model = taken(all[i].text);
        assert_int_equal(graph_parameters(&model), all[i].parameters);
        assert_int_equal(coh_model_size_get(&model).positions, all[i].positions);
        assert_int_equal(model.stored, COH_DTYPE_F32);
    }
}

/* ---- read ---- */

static void check_parameters(const json_t *one, const coh_model *model)
{
    const uint64_t found = graph_parameters(model);
    if (found != (uint64_t)json_integer_value(json_object_get(one, "parameters")))
        fail_msg("%s: %llu parameters", recorded_text(one, "case"), (unsigned long long)found);
}

static void what_transformers_wrote_gives_its_parameter_counts(void **state)
{
    (void)state;
    recorded_each(check_parameters);
}

static coh_rope_attributes rope_of(const char *members)
{
    char text[512];
    snprintf(text, sizeof(text), "{\"model_type\": \"llama\", %s}", members);
    return taken(text).llama.rope;
}

static void assert_rope(const char *members, int scaling, double theta, float factor)
{
    const coh_rope_attributes rope = rope_of(members);
    assert_int_equal(rope.scaling, scaling);
    assert_true(rope.theta == theta);
    assert_true(rope.factor == factor);
    if (scaling == 2) {
        assert_true(rope.low_frequency == 1.0f && rope.high_frequency == 4.0f);
        assert_int_equal(rope.original_positions, 8192);
    }
}

static void both_spellings_of_rotary_embeddings_are_read(void **state)
{
    (void)state;
#define LLAMA3                                                                                     \
    "\"factor\": 32, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "                        \
    "\"original_max_position_embeddings\": 8192"
    assert_rope("\"rope_theta\": 500000", 0, 5e5, 0);
    assert_rope("\"rope_theta\": 500000.0, \"rope_scaling\": null", 0, 5e5, 0);
    assert_rope("\"rope_parameters\": {\"rope_theta\": 500000.0, \"rope_type\": \"default\"}", 0,
                5e5, 0);
    assert_rope("\"rope_parameters\": null", 0, 1e4, 0);
    assert_rope("\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.5}", 1, 1e4, 2.5f);
    assert_rope(
        "\"rope_scaling\": {\"rope_type\": \"linear\", \"type\": \"linear\", \"factor\": 2}", 1,
        1e4, 2);
    assert_rope("\"rope_theta\": 1e6, \"rope_scaling\": {\"rope_type\": \"llama3\", " LLAMA3 "}", 2,
                1e6, 32);
    assert_rope("\"rope_parameters\": {\"rope_theta\": 1e6, \"rope_type\": \"llama3\", " LLAMA3 "}",
                2, 1e6, 32);
    /* The outer member has precedence over the inner one; without either, the model's positions
     * count. */
    assert_int_equal(rope_of("\"original_max_position_embeddings\": 77, \"rope_scaling\": "
                             "{\"rope_type\": \"llama3\", " LLAMA3 "}")
                         .original_positions,
                     77);
    assert_int_equal(rope_of("\"max_position_embeddings\": 99, \"rope_scaling\": {\"rope_type\": "
                             "\"llama3\", \"factor\": 2, \"low_freq_factor\": 1, "
                             "\"high_freq_factor\": 4}")
                         .original_positions,
                     99);
}

static void assert_yarn(const char *members, float slow, float fast, int64_t original,
                        double magnitude)
{
    const coh_rope_attributes rope = rope_of(members);
    assert_int_equal(rope.scaling, COH_ROPE_YARN);
    assert_true(rope.low_frequency == slow && rope.high_frequency == fast);
    assert_int_equal(rope.original_positions, original);
    assert_float_equal(rope.magnitude, magnitude, 1e-6);
}

/* 1 + 0.1 ln 4 is 1.138629. */
static void yarn_is_read_in_both_spellings_with_its_defaults(void **state)
{
    (void)state;
    assert_yarn("\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4.0, "
                "\"original_max_position_embeddings\": 512}",
                1, 32, 512, 1.138629436);
    assert_yarn("\"rope_parameters\": {\"rope_type\": \"yarn\", \"rope_theta\": 1e6, "
                "\"factor\": 4.0, \"attention_factor\": null, \"beta_fast\": null, "
                "\"truncate\": true}",
                1, 32, 2048, 1.138629436);
    assert_yarn("\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4, \"beta_fast\": 16, "
                "\"beta_slow\": 0.5, \"attention_factor\": 0.75, \"mscale\": 2.0, "
                "\"mscale_all_dim\": 1.0}",
                0.5f, 16, 2048, 0.75);
    /* (1 + 0.2 ln 4) / (1 + 0.1 ln 4); one of the two alone has no effect */
    assert_yarn("\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0, \"mscale\": 2.0, "
                "\"mscale_all_dim\": 1.0}",
                1, 32, 2048, 1.277258872 / 1.138629436);
    assert_yarn("\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0, \"mscale\": 2.0}", 1,
                32, 2048, 1.138629436);
    assert_yarn("\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 0.5}", 1, 32, 2048, 1.0);
}

/* As in published YaRN models, whose "finetuned" has no effect in transformers. */
static void members_of_rotary_embeddings_are_noted_unless_they_may_compute(void **state)
{
    (void)state;
    static const char *const refused[] = {
        "short_factor", "long_factor", "mrope_section",        "attn_factor",   "mrope_interleaved",
        "alpha",        "rope_dim",    "extrapolation_factor", "scaling_factor"
    };
    char text[300];
    coh_model model = taken("{\"model_type\": \"llama\", \"unheard_of\": 1, \"rope_scaling\": "
                            "{\"type\": \"yarn\", \"factor\": 4.0, \"finetuned\": true}}");
    assert_int_equal(model.llama.rope.scaling, COH_ROPE_YARN);
    assert_non_null(strstr(model.notes, "nothing is computed with: unheard_of, "
                                        "rope_scaling.finetuned\n"));
    model = taken("{\"model_type\": \"gemma3_text\", \"rope_parameters\": {\"full_attention\": "
                  "{\"rope_theta\": 1e6, \"unheard_of\": [1]}}}");
    assert_non_null(strstr(model.notes, "computed with: rope_parameters.unheard_of\n"));
    model = taken("{\"model_type\": \"llama\", \"rope_scaling\": {\"type\": \"linear\", "
                  "\"factor\": 2, \"beta_fast\": 3}}");
    assert_string_equal(model.notes, "");
    assert_int_equal(coh_model_from_config("{\"model_type\": \"qwen3\", \"rope_parameters\": "
                                           "{\"full_attention\": {\"rope_theta\": 1e6}}}",
                                           &model),
                     COH_ERR_CORRUPT);
    assert_non_null(strstr(coh_last_error(), "full_attention"));
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        snprintf(text, sizeof(text),
                 "{\"model_type\": \"llama\", \"rope_scaling\": {\"type\": \"linear\", "
                 "\"factor\": 2, \"%s\": null}}",
                 refused[i]);
        assert_int_equal(coh_model_from_config(text, &model), COH_ERR_CORRUPT);
        assert_non_null(strstr(coh_last_error(), refused[i]));
    }
}

static void only_a_window_of_some_layers_bounds_the_sequences(void **state)
{
    (void)state;
    static const struct windowed {
        const char *text;
        int64_t positions;
    } all[] = {
        { "{\"model_type\": \"mistral\", \"sliding_window\": null}", 131072 },
        { "{\"model_type\": \"mistral\", \"sliding_window\": 99}", 131072 },
        { "{\"model_type\": \"mistral\", \"sliding_window\": 500000}", 131072 },
        { "{\"model_type\": \"qwen2\", \"sliding_window\": 99}", 32768 },
        { "{\"model_type\": \"qwen2\", \"sliding_window\": 99, \"use_sliding_window\": true}", 99 },
        { "{\"model_type\": \"qwen2\", \"use_sliding_window\": true}", 4096 },
        { "{\"model_type\": \"qwen2\", \"num_hidden_layers\": 2, \"sliding_window\": 99, "
          "\"use_sliding_window\": true, \"layer_types\": [\"full_attention\", "
          "\"sliding_attention\"]}",
          99 },
        { "{\"model_type\": \"qwen3\", \"sliding_window\": 99, \"use_sliding_window\": true}", 99 },
        { "{\"model_type\": \"qwen3\", \"sliding_window\": 99}", 32768 },
        { "{\"model_type\": \"phi3\", \"sliding_window\": 99}", 4096 },
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        coh_model model = taken(all[i].text);
        assert_int_equal(coh_model_size_get(&model).positions, all[i].positions);
        assert_int_equal(strstr(model.notes, "window") != NULL,
                         strstr(all[i].text, "\"use_sliding_window\": true") != NULL);
    }
    coh_graph *graph;
    coh_model model = taken(all[4].text);
    model.llama.layers = 1;
    assert_int_equal(coh_model_train_graph(&model, 1, 100, &graph), COH_ERR_SHAPE);
    assert_non_null(strstr(coh_last_error(), "1..99"));
}

static void dtypes_are_read_by_either_name(void **state)
{
    (void)state;
    static const struct spelled {
        const char *text;
        coh_dtype stored, computed;
    } all[] = {
        { "{\"model_type\": \"opt\", \"torch_dtype\": \"float16\"}", COH_DTYPE_F16, COH_DTYPE_F32 },
        { "{\"model_type\": \"opt\", \"dtype\": \"bfloat16\"}", COH_DTYPE_BF16, COH_DTYPE_BF16 },
        { "{\"model_type\": \"opt\", \"torch_dtype\": \"torch.float32\"}", COH_DTYPE_F32,
          COH_DTYPE_F32 },
        { "{\"model_type\": \"opt\", \"torch_dtype\": null}", COH_DTYPE_F32, COH_DTYPE_F32 },
        { "{\"model_type\": \"opt\", \"dtype\": \"float16\", \"torch_dtype\": \"bfloat16\"}",
          COH_DTYPE_F16, COH_DTYPE_F32 },
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        coh_model model = taken(all[i].text);
        assert_int_equal(model.stored, all[i].stored);
        assert_int_equal(coh_model_size_get(&model).dtype, all[i].computed);
    }
}

static void other_names_of_a_field_and_ids_from_the_end_are_read(void **state)
{
    (void)state;
    coh_model model = taken("{\"num_hidden_layers\": 3, \"hidden_size\": 30, "
                            "\"num_attention_heads\": 5, \"max_position_embeddings\": 7, "
                            "\"n_layer\": 3, \"model_type\": \"gpt2\"}");
    assert_int_equal(model.gpt2.layers, 3);
    assert_int_equal(model.gpt2.channels, 30);
    assert_int_equal(model.gpt2.heads, 5);
    assert_int_equal(model.gpt2.positions, 7);
    assert_int_equal(taken("{\"model_type\": \"opt\"}").opt.padding, 1);
    assert_int_equal(taken("{\"model_type\": \"opt\", \"pad_token_id\": null}").opt.padding, -1);
    assert_int_equal(taken("{\"pad_token_id\": -1, \"model_type\": \"llama\"}").llama.padding,
                     31999);
}

static void what_the_user_should_know_is_noted(void **state)
{
    (void)state;
    char text[6000], *end = text;
    coh_model model =
        taken("{\"model_type\": \"opt\", \"dropout\": 0.1, \"layerdrop\": 0.0, "
              "\"attention_dropout\": 0.25, \"unheard_of\": [1, 2], \"bos_token_id\": "
              "2}");
    assert_non_null(strstr(model.notes, "dropout 0.1, attention_dropout 0.25"));
    assert_null(strstr(model.notes, "layerdrop"));
    assert_non_null(strstr(model.notes, "unheard_of"));
    assert_null(strstr(model.notes, "bos_token_id"));
    assert_non_null(strstr(model.extras, "\"unheard_of\": [1, 2], \"bos_token_id\": 2"));
    assert_string_equal(taken("{\"model_type\": \"opt\", \"dropout\": 0}").notes, "");

    end += sprintf(end, "{\"model_type\": \"opt\", \"bad_words_ids\": [");
    for (int i = 0; i < 1000; i++)
        end += sprintf(end, "%d, ", i);
    sprintf(end, "0], \"eos_token_id\": 2}");
    model = taken(text);
    assert_non_null(strstr(model.notes, "too long to be kept: bad_words_ids"));
    assert_string_equal(model.extras, "\"eos_token_id\": 2");
}

static void a_thousand_unknown_members_make_one_note(void **state)
{
    (void)state;
    static char text[40000];
    char *end = text;
    end += sprintf(end, "{\"model_type\": \"opt\"");
    for (int i = 0; i < 1000; i++)
        end += sprintf(end, ", \"unheard_of_%d\": %d", i, i);
    sprintf(end, "}");
    coh_model model = taken(text);
    assert_true(strlen(model.notes) < sizeof(model.notes) - 1);
    assert_non_null(strstr(model.notes, "unheard_of_0, "));
    assert_true(strlen(model.extras) < sizeof(model.extras));
    /* all thousand are listed or counted */
    const char *line = strstr(model.notes, "unheard_of_0, ");
    const size_t length = strcspn(line, "\n");
    int named = 1, more = 0;
    for (const char *comma = line; comma < line + length; comma++)
        named += *comma == ',';
    const char *end_of_line = strstr(line, " and ");
    assert_true(end_of_line && end_of_line < line + length);
    assert_int_equal(sscanf(end_of_line, " and %d more\n", &more), 1);
    assert_int_equal(named + more, 1000);
}

/* Every note has its maximal length: none is truncated or omitted. */
static void all_that_is_to_be_told_of_a_config_has_room(void **state)
{
    (void)state;
    static char text[80000];
    char *end = text, name[181];
    end += sprintf(end, "{\"model_type\": \"qwen2\", \"use_sliding_window\": true, "
                        "\"sliding_window\": 7");
    for (int i = 0; i < 60; i++) {
        snprintf(name, sizeof(name), "%d%0*d", i, 170, 0);
        end += sprintf(end, ", \"%s\": \"%0*d\"", name, 100, i);
    }
    sprintf(end, ", \"attention_dropout\": 0.123456789}");
    coh_model model = taken(text);
    assert_non_null(strstr(model.notes, "attention_dropout 0.123457): trained with 0 unless "));
    assert_non_null(strstr(model.notes, "nothing is computed with: 0000"));
    assert_non_null(strstr(model.notes, " and 59 more\n"));
    assert_non_null(strstr(model.notes, "too long to be kept: "));
    assert_non_null(strstr(model.notes, "sliding window changes nothing within 7 tokens"));
    assert_int_equal(model.notes[strlen(model.notes) - 1], '\n');
    assert_true(strlen(model.notes) < sizeof(model.notes) - 2 * 340); /* leaves a folder's room */
}

/* ---- refused ---- */

static char *case_text(const json_t *one)
{
    const char *latin = recorded_text(one, "text");
    const size_t repeat = (size_t)json_integer_value(json_object_get(one, "repeat"));
    const size_t length = strlen(latin);
    char *text = calloc(1, (repeat ? repeat : length) + 1), *end = text;
    assert_non_null(text);
    for (size_t i = 0; i < repeat; i++)
        text[i] = latin[0];
    /* Each byte of the file is recorded as a code point U+0000 to U+00FF. */
    for (size_t i = 0; !repeat && i < length; i++) {
        unsigned char byte = (unsigned char)latin[i];
        if (byte >= 0xc2 && byte <= 0xc3)
            byte = (unsigned char)((byte & 3) << 6 | ((unsigned char)latin[++i] & 0x3f));
        *end++ = (char)byte;
    }
    return text;
}

static void malformed_ones_are_refused_with_one_sentence_that_names_the_member(void **state)
{
    (void)state;
    size_t i;
    json_t *one, *root = recorded_load(FIXTURES, "refused_configs.json");
    assert_true(json_array_size(json_object_get(root, "cases")) >= 60);
    json_array_foreach(json_object_get(root, "cases"), i, one)
    {
        const char *name = recorded_text(one, "case");
        char *text = case_text(one);
        coh_model model = { .name = "untouched" };
        const coh_status status = coh_model_from_config(text, &model);
        if (status != COH_ERR_CORRUPT)
            fail_msg("%s: %s (%s)", name, coh_status_name(status), coh_last_error());
        if (!strstr(coh_last_error(), recorded_text(one, "word")))
            fail_msg("%s: \"%s\" does not say %s", name, coh_last_error(),
                     recorded_text(one, "word"));
        assert_null(strchr(coh_last_error(), '\n'));
        assert_string_equal(model.name, "untouched");
        /* The reference accepts only cases for which its script says why we refuse. */
        if (strcmp(recorded_text(one, "reference"), "taken") == 0)
            assert_true(strlen(recorded_text(one, "why")) > 1);
        free(text);
    }
    json_decref(root);
    assert_int_equal(coh_model_from_config(NULL, NULL), COH_ERR_ARGUMENT);
}

/* ---- written ---- */

static json_t *written(const coh_model *model, coh_dtype stored, char **out_text)
{
    json_error_t error;
    if (coh_model_to_config(model, stored, out_text) != COH_OK)
        fail_msg("%s", coh_last_error());
    json_t *root = json_loads(*out_text, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        fail_msg("%s: %s", *out_text, error.text);
    return root;
}

static void check_round_trip(const json_t *one, const coh_model *model)
{
    char *text, *again;
    (void)one;
    json_decref(written(model, model->stored, &text));
    coh_model back = taken(text);
    back.extras[0] = '\0'; /* they are sorted by name now */
    coh_model plain = *model;
    plain.extras[0] = '\0';
    assert_same_model(&plain, &back);
    back = taken(text);
    json_decref(written(&back, back.stored, &again));
    assert_string_equal(text, again);
    coh_model_text_free(text);
    coh_model_text_free(again);
}

static void what_is_written_is_read_as_the_same_model(void **state)
{
    (void)state;
    recorded_each(check_round_trip);
}

/* Renames the kind of scaling to the present member: we write "type", which older versions need. */
static void rename_scaling(json_t *config)
{
    json_t *scaling = json_object_get(config, "rope_scaling"),
           *kind = json_object_get(scaling, "type");
    if (!kind)
        return;
    json_object_set(scaling, "rope_type", kind);
    json_object_del(scaling, "type");
}

/* Every member that transformers 4.46 wrote is written with the same value. */
static void what_is_written_says_what_transformers_wrote(void **state)
{
    (void)state;
    size_t i;
    json_t *one, *root = recorded_load(FIXTURES, recorded_files[0]);
    json_array_foreach(json_object_get(root, "cases"), i, one)
    {
        const char *name;
        char *text;
        json_t *value, *config = json_object_get(one, "config");
        coh_model model = recorded_model(config);
        json_t *ours = written(&model, COH_DTYPE_F32, &text);
        rename_scaling(ours);
        json_object_foreach(config, name, value)
        {
            if (strcmp(name, "transformers_version") != 0 &&
                !json_equal(value, json_object_get(ours, name)))
                fail_msg("%s: %s differs in %s", recorded_text(one, "case"), name, text);
        }
        json_decref(ours);
        coh_model_text_free(text);
    }
    json_decref(root);
}

static void the_text_has_members_by_name_and_the_dtype_asked_for(void **state)
{
    (void)state;
    char *text;
    coh_model model = taken("{\"model_type\": \"gpt2\", \"n_layer\": 1, \"resid_pdrop\": 0.1, "
                            "\"eos_token_id\": [1, 2], \"task_specific_params\": {}}");
    assert_int_equal(coh_model_to_config(&model, COH_DTYPE_BF16, &text), COH_OK);
    assert_string_equal(text, "{\n"
                              "  \"activation_function\": \"gelu_new\",\n"
                              "  \"add_cross_attention\": false,\n"
                              "  \"architectures\": [\n    \"GPT2LMHeadModel\"\n  ],\n"
                              "  \"eos_token_id\": [\n    1,\n    2\n  ],\n"
                              "  \"layer_norm_epsilon\": 1e-05,\n"
                              "  \"model_type\": \"gpt2\",\n"
                              "  \"n_embd\": 768,\n"
                              "  \"n_head\": 12,\n"
                              "  \"n_inner\": null,\n"
                              "  \"n_layer\": 1,\n"
                              "  \"n_positions\": 1024,\n"
                              "  \"resid_pdrop\": 0.1,\n"
                              "  \"scale_attn_by_inverse_layer_idx\": false,\n"
                              "  \"scale_attn_weights\": true,\n"
                              "  \"task_specific_params\": {},\n"
                              "  \"tie_word_embeddings\": true,\n"
                              "  \"torch_dtype\": \"bfloat16\",\n"
                              "  \"vocab_size\": 50257\n"
                              "}\n");
    coh_model_text_free(text);
    coh_model_text_free(NULL);
    assert_int_equal(coh_model_to_config(&model, COH_DTYPE_I32, &text), COH_ERR_ARGUMENT);
    assert_null(text);
    model.gpt2.heads = 5;
    assert_int_equal(coh_model_to_config(&model, COH_DTYPE_F32, &text), COH_ERR_SHAPE);
    model.family = (coh_family)9;
    assert_int_equal(coh_model_to_config(&model, COH_DTYPE_F32, &text), COH_ERR_ARGUMENT);
}

static void every_failing_allocation_is_said(void **state)
{
    (void)state;
    char *text;
    coh_model model = { 0 };
    for (int write = 0; write < 2; write++) {
        for (uint64_t n = 1;; n++) {
            alloc_fail_nth(n);
            const coh_status status =
                write ? coh_model_to_config(&model, COH_DTYPE_F32, &text)
                      : coh_model_from_config("{\"model_type\": \"opt\", \"bos_token_id\": 3, "
                                              "\"task_specific_params\": {\"a\": [1, {}]}}",
                                              &model);
            const int was_hit = alloc_fault_was_hit();
            alloc_fail_nth(0);
            if (!was_hit) {
                assert_int_equal(status, COH_OK);
                assert_true(n > 2);
                break;
            }
            assert_int_equal(status, COH_ERR_MEMORY);
        }
    }
    coh_model_text_free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantised_weights_are_refused_with_their_method_and_the_remedy),
        cmocka_unit_test(the_map_to_files_of_python_is_not_written_back),
        cmocka_unit_test(presets_have_the_published_parameter_counts),
        cmocka_unit_test(published_configurations_give_the_published_parameter_counts),
        cmocka_unit_test(presets_are_the_published_configurations),
        cmocka_unit_test(what_is_not_said_is_as_in_the_reference),
        cmocka_unit_test(what_transformers_wrote_gives_its_parameter_counts),
        cmocka_unit_test(both_spellings_of_rotary_embeddings_are_read),
        cmocka_unit_test(only_a_window_of_some_layers_bounds_the_sequences),
        cmocka_unit_test(yarn_is_read_in_both_spellings_with_its_defaults),
        cmocka_unit_test(members_of_rotary_embeddings_are_noted_unless_they_may_compute),
        cmocka_unit_test(dtypes_are_read_by_either_name),
        cmocka_unit_test(other_names_of_a_field_and_ids_from_the_end_are_read),
        cmocka_unit_test(what_the_user_should_know_is_noted),
        cmocka_unit_test(a_thousand_unknown_members_make_one_note),
        cmocka_unit_test(all_that_is_to_be_told_of_a_config_has_room),
        cmocka_unit_test(malformed_ones_are_refused_with_one_sentence_that_names_the_member),
        cmocka_unit_test(what_is_written_is_read_as_the_same_model),
        cmocka_unit_test(what_is_written_says_what_transformers_wrote),
        cmocka_unit_test(the_text_has_members_by_name_and_the_dtype_asked_for),
        cmocka_unit_test(every_failing_allocation_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
