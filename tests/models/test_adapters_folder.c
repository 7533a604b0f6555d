/* Adapters saved to their own folder, or merged into the model: numbers, names and shapes as in
 * PEFT; written completely or not at all. tests/parity shows that PEFT reads the folder. */
#include "tests/models/known_numbers.h"

#include <math.h>

#include "base/alloc.h"
#include "base/file_text.h"
#include "base/half.h"
#include "base/name_pattern.h"
#include "models/adapters.h"
#include "models/safetensors.h"
#include "tests/faults/alloc_faults.h"

static int set_up(void **state)
{
    unsetenv("COH_TEST_FAIL_AT");
    return folder_create(state);
}

/* ---- saved on their own ---- */

static void the_configuration_is_pefts(void **state)
{
    (void)state;
    const struct case_of {
        const char *config, *targets;
        float alpha;
        const char *alpha_text;
        int fan_in_fan_out;
        const char *const modules[5];
    } all[] = {
        { GPT2, "", 0, "8", 1, { "c_attn" } },
        { GPT2, "c_proj", 16, "16", 1, { "c_proj" } },
        /* each pattern matches alone */
        { GPT2, "attn.c_proj,c_fc", 0.5f, "0.5", 1, { "attn.c_proj", "c_fc" } },
        { GPT2,
          "h.1.*",
          1,
          "1",
          1,
          { "1.attn.c_attn", "1.attn.c_proj", "1.mlp.c_fc", "1.mlp.c_proj" } },
        { LLAMA, "", 8, "8", 0, { "q_proj", "v_proj" } },
        { LLAMA, "model.layers.0.mlp.down_proj", 8, "8", 0, { "0.mlp.down_proj" } },
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        coh_adapters adapters = { .rank = 3, .alpha = all[i].alpha };
        snprintf(adapters.targets, sizeof(adapters.targets), "%s", all[i].targets);
        const coh_model model = made_model(all[i].config, &adapters);
        write_to(folder_file("out"), &model, COH_DTYPE_F32, "a \"base\" \\ model");
        json_t *root = read_json(folder_file("out/adapter_config.json"));
        assert_names(root, "target_modules", all[i].modules);
        assert_int_equal(json_integer_value(json_object_get(root, "r")), 3);
        assert_int_equal(json_is_true(json_object_get(root, "fan_in_fan_out")),
                         all[i].fan_in_fan_out);
        assert_string_equal(recorded_text(root, "base_model_name_or_path"), "a \"base\" \\ model");
        assert_string_equal(recorded_text(root, "peft_type"), "LORA");
        assert_string_equal(recorded_text(root, "task_type"), "CAUSAL_LM");
        assert_string_equal(recorded_text(root, "bias"), "none");
        char *alpha = json_dumps(json_object_get(root, "lora_alpha"), JSON_ENCODE_ANY);
        assert_string_equal(alpha, all[i].alpha_text);
        free(alpha);
        json_decref(root);
        assert_int_equal(temporary_remove(folder_file("out")), 0);
    }
}

/* Returns PEFT's form of one of our names: "h.0.x.lora_A.weight" is in "transformer.h.0.x". */
static const char *ours_of(const char *name, const char *ours_prefix)
{
    const char *begin = "base_model.model.";
    assert_int_equal(strncmp(name, begin, strlen(begin)), 0);
    name += strlen(begin);
    assert_int_equal(strncmp(name, ours_prefix, strlen(ours_prefix)), 0);
    return name + strlen(ours_prefix);
}

static void check_tensors(const char *config, const char *prefix, coh_dtype dtype, size_t expected)
{
    const coh_adapters adapters = { .rank = 3, .targets = "*" };
    const coh_model model = made_model(config, &adapters);
    coh_safetensors *file;
    size_t count;
    float values[3 * 48];
    write_to(folder_file("out"), &model, dtype, NULL);
    assert_int_equal(folder_count(), 3);
    assert_int_equal(coh_safetensors_open(folder_file("out/adapter_model.safetensors"), &file),
                     COH_OK);
    const coh_safetensors_tensor *tensors = coh_safetensors_tensors(file, &count);
    assert_int_equal(count, expected);
    for (size_t i = 0; i < count; i++) {
        const char *ours = ours_of(tensors[i].name, prefix);
        const int is_up = strstr(ours, ".lora_B.") != NULL;
        assert_int_equal(tensors[i].rank, 2);
        assert_int_equal(tensors[i].dim[is_up], 3);
        const uint64_t elements = coh_safetensors_elements(&tensors[i]);
        assert_true(elements <= sizeof(values) / sizeof(values[0]));
        assert_int_equal(
            coh_safetensors_read_numbers(file, &tensors[i], 0, elements, COH_DTYPE_F32, values),
            COH_OK);
        for (uint64_t at = 0; at < elements; at++) {
            const float exact = number_of(ours, at);
            const float stored = dtype == COH_DTYPE_F32    ? exact
                                 : dtype == COH_DTYPE_BF16 ? coh_f32_of_bf16(coh_bf16_of_f32(exact))
                                                           : coh_f32_of_f16(coh_f16_of_f32(exact));
            assert_true(values[at] == stored);
        }
    }
    coh_safetensors_close(file);
    assert_int_equal(temporary_remove(folder_file("out")), 0);
}

static void tensors_have_pefts_names_and_our_numbers(void **state)
{
    (void)state;
    for (coh_dtype dtype = COH_DTYPE_F32; dtype <= COH_DTYPE_F16; dtype++) {
        check_tensors(GPT2, "transformer.", dtype, 2 * 2 * 4);
        check_tensors(LLAMA, "", dtype, 2 * 2 * 7);
    }
}

/* Every number read back is that of number_of; ranges beyond are refused. */
static void assert_same_numbers(coh_adapter_folder *folder, const coh_model *model)
{
    static const char *const parts[] = { "lora_A", "lora_B" };
    coh_model_adapter adapter;
    float values[3 * 48], value;
    char name[128];
    for (int64_t i = 0; i < 2 * coh_model_adapter_count(model); i++) {
        assert_int_equal(coh_model_adapter_at(model, i / 2, &adapter), COH_OK);
        snprintf(name, sizeof(name), "%s.%s.weight", adapter.name, parts[i % 2]);
        const uint64_t count = 3 * (uint64_t)(i % 2 ? adapter.outputs : adapter.inputs);
        assert_true(count <= sizeof(values) / sizeof(values[0]));
        assert_int_equal(coh_adapters_numbers(folder, name, 1, count - 1, values), COH_OK);
        for (uint64_t at = 1; at < count; at++)
            assert_true(values[at - 1] == number_of(name, at));
        assert_int_equal(coh_adapters_numbers(folder, name, count, 1, &value), COH_ERR_ARGUMENT);
    }
    assert_int_equal(coh_adapters_numbers(folder, "wpe.weight", 0, 1, &value), COH_ERR_ARGUMENT);
}

static void adapters_read_back_are_the_same(void **state)
{
    (void)state;
    static const char *const all[][2] = {
        { GPT2, "" },      { GPT2, "attn.c_proj,c_fc" },
        { GPT2, "h.1.*" }, { GPT2, "h.1.mlp.c_proj" },
        { LLAMA, "*" },    { LLAMA, "model.layers.0.mlp.down_proj,q_proj" }
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        coh_adapters adapters = { .rank = 3, .alpha = 0.1f };
        const coh_adapters none = { 0 };
        coh_adapter_folder *folder;
        snprintf(adapters.targets, sizeof(adapters.targets), "%s", all[i][1]);
        const coh_model model = made_model(all[i][0], &adapters);
        write_to(folder_file("out"), &model, COH_DTYPE_F32, NULL);
        coh_status status = COH_ERR_MEMORY;
        for (uint64_t n = 1; status != COH_OK; n++) { /* each allocation fails once */
            coh_model base = made_model(all[i][0], &none);
            alloc_fail_nth(n);
            status = coh_adapters_open(folder_file("out"), &base, &folder);
            alloc_fail_nth(0);
            assert_true(status == COH_OK || status == COH_ERR_MEMORY);
            assert_int_equal(base.adapters.rank, status == COH_OK ? 3 : 0);
            if (status != COH_OK)
                continue;
            assert_true(base.adapters.alpha == 0.1f);
            assert_int_equal(coh_model_adapter_count(&base), coh_model_adapter_count(&model));
            assert_same_numbers(folder, &model);
            coh_adapters_close(folder);
        }
        assert_int_equal(temporary_remove(folder_file("out")), 0);
    }
}

/* ---- adapters of many layers ---- */

typedef struct choice {
    const coh_model *model;
    int first, last, step; /* layers */
    const char *places;    /* ends of names, separated by commas */
} choice;

/* By name, as PEFT's layers_to_transform and target_modules choose. */
static int is_wanted(const choice *c, const char *name)
{
    const char *layers = strstr(name, "layers."), *end;
    char places[200];
    if (!layers)
        return 0;
    const int layer = atoi(layers + strlen("layers."));
    if (layer < c->first || layer > c->last || (layer - c->first) % c->step != 0)
        return 0;
    snprintf(places, sizeof(places), "%s", c->places);
    for (char *rest = places, *place; (place = strtok_r(rest, ",", &rest)) != NULL;) {
        end = name + strlen(name) - strlen(place);
        if (end > name && end[-1] == '.' && strcmp(end, place) == 0)
            return 1;
    }
    return 0;
}

static int is_chosen(const void *context, int64_t index)
{
    coh_model_tensor tensor;
    char name[96];
    assert_int_equal(coh_model_tensor_at(((const choice *)context)->model, index, &tensor), COH_OK);
    snprintf(name, sizeof(name), "%.*s", (int)(strrchr(tensor.name, '.') - tensor.name),
             tensor.name);
    return is_wanted(context, name);
}

static coh_model llama_of(int layers)
{
    const coh_adapters none = { 0 };
    char config[400];
    snprintf(config, sizeof(config),
             "{\"model_type\": \"llama\", \"vocab_size\": 37, \"hidden_size\": 8, "
             "\"intermediate_size\": 4, \"num_hidden_layers\": %d, \"num_attention_heads\": 4, "
             "\"num_key_value_heads\": 2, \"max_position_embeddings\": 19}",
             layers);
    return made_model(config, &none);
}

#define ALL       "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"
#define ATTENTION "q_proj,k_proj,v_proj,o_proj"

static void linears_of_many_layers_have_few_patterns(void **state)
{
    (void)state;
    static const struct {
        int layers;
        choice of;
        const char *expected; /* NULL: any that is exact */
    } all[] = {
        { 32, { NULL, 16, 31, 1, "q_proj,v_proj" }, "1[6-9].*[qv]_proj,[23]?.*[qv]_proj" },
        { 32, { NULL, 8, 31, 1, ALL }, NULL },
        { 32, { NULL, 0, 31, 2, ALL }, "[02468].*,[1-3][02468].*" },
        { 32, { NULL, 0, 15, 1, ATTENTION }, "[0-9].self_attn.*,1[0-5].self_attn.*" },
        { 32, { NULL, 1, 28, 3, "q_proj,k_proj,v_proj,down_proj" }, NULL },
        { 126, { NULL, 63, 125, 1, ALL }, NULL },
        { 126, { NULL, 5, 120, 1, "gate_proj,up_proj" }, NULL },
        { 9, { NULL, 0, 7, 1, "q_proj" }, "[0-7].*q_proj" },
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        const coh_model model = llama_of(all[i].layers);
        choice of = all[i].of;
        coh_status status = COH_ERR_MEMORY;
        char targets[COH_PATTERN_BYTES];
        of.model = &model;
        for (uint64_t n = 1; status != COH_OK; n++) {
            alloc_fail_nth(n);
            status = coh_adapters_cover(&model, is_chosen, &of, targets);
            alloc_fail_nth(0);
            if (status != COH_OK && status != COH_ERR_MEMORY)
                fail_msg("case %zu: %s", i, coh_last_error());
        }
        if (all[i].expected)
            assert_string_equal(targets, all[i].expected);
        coh_operator op;
        for (int64_t index = 0; coh_operator_next(&model, &index, &op);)
            if (op.linear && coh_pattern_matches(targets, op.name) != is_wanted(&of, op.name))
                fail_msg("%s is wrong about %s", targets, op.name);
    }
}

/* Written with targets that a person wrote, read without them. */
static void adapters_of_many_layers_are_read_back(void **state)
{
    (void)state;
    const coh_adapters adapters = { .rank = 3,
                                    .alpha = 6,
                                    .targets = "[89].*_proj,1?.*_proj,2[0-3].*_proj" };
    coh_model model = llama_of(32), base = llama_of(32);
    coh_adapter_folder *folder;
    assert_int_equal(coh_model_adapters_set(&model, &adapters), COH_OK);
    write_to(folder_file("out"), &model, COH_DTYPE_F32, NULL);
    if (coh_adapters_open(folder_file("out"), &base, &folder) != COH_OK)
        fail_msg("%s", coh_last_error());
    assert_int_equal(coh_model_adapter_count(&base), 16 * 7);
    assert_same_numbers(folder, &model);
    coh_adapters_close(folder);
    assert_int_equal(temporary_remove(folder_file("out")), 0);
}

/* A set of layers and linears without any order. */
static void what_needs_too_long_a_pattern_is_refused(void **state)
{
    (void)state;
    const coh_model model = llama_of(126);
    char targets[COH_PATTERN_BYTES];
    const choice scattered = { &model, 1, 125, 7, "q_proj,o_proj,gate_proj" };
    assert_int_equal(coh_adapters_cover(&model, is_chosen, &scattered, targets), COH_ERR_CORRUPT);
    assert_non_null(strstr(coh_last_error(), "pattern of more than 255 letters"));
}

/* ---- PEFT's configuration ---- */

/* What LoraConfig of PEFT 0.18.0 and 0.21.2 writes by default, but for r, lora_alpha and
 * target_modules. */
#define PEFT_DEFAULTS                                                                              \
    "\"alora_invocation_tokens\": null, \"alpha_pattern\": {}, \"arrow_config\": null, "           \
    "\"auto_mapping\": null, \"base_model_name_or_path\": \"a/b\", \"bias\": \"none\", "           \
    "\"corda_config\": null, \"ensure_weight_tying\": false, \"eva_config\": null, "               \
    "\"exclude_modules\": null, \"fan_in_fan_out\": false, \"inference_mode\": true, "             \
    "\"init_lora_weights\": true, \"kasa_config\": null, \"layer_replication\": null, "            \
    "\"layers_pattern\": null, \"layers_to_transform\": null, \"loftq_config\": {}, "              \
    "\"lora_bias\": false, \"lora_dropout\": 0.0, \"lora_ga_config\": null, "                      \
    "\"megatron_config\": null, \"megatron_core\": \"megatron.core\", \"modules_to_save\": null, " \
    "\"monteclora_config\": null, \"peft_type\": \"LORA\", \"peft_version\": \"0.21.2\", "         \
    "\"qalora_group_size\": 16, \"rank_pattern\": {}, \"revision\": null, "                        \
    "\"target_parameters\": null, \"task_type\": \"CAUSAL_LM\", "                                  \
    "\"trainable_token_indices\": null, \"use_bdlora\": null, \"use_dora\": false, "               \
    "\"use_qalora\": false, \"velora_config\": null"

/* Opens adapters of rank 3 that have this configuration. */
static coh_status open_configured(const char *members, coh_model *out_base)
{
    char config[4000];
    const coh_adapters adapters = { .rank = 3 }, none = { 0 };
    const coh_model model = made_model(LLAMA, &adapters);
    coh_adapter_folder *folder = NULL;
    *out_base = made_model(LLAMA, &none);
    write_to(folder_file("out"), &model, COH_DTYPE_F32, NULL);
    snprintf(config, sizeof(config), "{%s}", members);
    folder_write("out/adapter_config.json", config, strlen(config));
    const coh_status status = coh_adapters_open(folder_file("out"), out_base, &folder);
    coh_adapters_close(folder);
    assert_int_equal(temporary_remove(folder_file("out")), 0);
    return status;
}

static void members_of_peft_without_an_effect_are_accepted(void **state)
{
    (void)state;
    static const char *const all[] = {
        "\"lora_alpha\": 6, \"use_rslora\": false, " PEFT_DEFAULTS,
        "\"lora_alpha\": 6, \"peft_type\": \"LORA\", \"rank_pattern\": {\"q_proj\": 3}",
        "\"lora_alpha\": 6, \"peft_type\": \"LORA\", \"alpha_pattern\": {\"^a.*b\": 6.0}",
        "\"lora_alpha\": 6, \"peft_type\": \"LORA\", \"modules_to_save\": []",
        "\"lora_alpha\": 6, \"peft_type\": \"LORA\", \"ensure_weight_tying\": true",
        "\"lora_alpha\": 6, \"peft_type\": \"LORA\", \"rank_pattern\": null, \"use_rslora\": null",
        "\"lora_alpha\": 6, \"peft_type\": \"LORA\", \"layers_to_transform\": [0, 1]",
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        char members[4000];
        coh_model base;
        snprintf(members, sizeof(members), "\"r\": 3, %s", all[i]);
        if (open_configured(members, &base) != COH_OK)
            fail_msg("case %zu: %s", i, coh_last_error());
        assert_int_equal(base.adapters.rank, 3);
        assert_true(base.adapters.alpha == 6);
        assert_string_equal(base.notes, "");
    }
}

static void numbers_of_single_linears_are_refused_with_the_remedy(void **state)
{
    (void)state;
    static const char *const all[][2] = {
        { "\"r\": 3, \"lora_alpha\": 6, \"peft_type\": \"LORA\", \"rank_pattern\": {\"q_proj\": 3, "
          "\"v_proj\": 4}",
          "\"rank_pattern\" gives \"v_proj\" another number than \"r\", 3" },
        { "\"r\": 3, \"peft_type\": \"LORA\", \"alpha_pattern\": {\"q_proj\": 6}",
          "\"alpha_pattern\" gives \"q_proj\" another number than \"lora_alpha\", 8" },
        { "\"r\": 3, \"peft_type\": \"LORA\", \"alpha_pattern\": {\"q_proj\": null}",
          "another number" },
        { "\"r\": 3, \"peft_type\": \"LORA\", \"rank_pattern\": [4]",
          "\"rank_pattern\" must be an object of numbers" },
        { "\"r\": 3, \"peft_type\": \"LORA\", \"use_rslora\": 1",
          "\"use_rslora\" must be true or false" },
        { "\"r\": 3, \"peft_type\": \"LORA\", \"modules_to_save\": [\"lm_head\", 1]",
          "\"modules_to_save\" must be null or a list of names" },
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        coh_model base;
        assert_int_equal(open_configured(all[i][0], &base), COH_ERR_CORRUPT);
        if (!strstr(coh_last_error(), all[i][1]) ||
            !strstr(coh_last_error(), "merge them into their model with PEFT (merge_and_unload)"))
            fail_msg("case %zu: %s", i, coh_last_error());
    }
}

/* PEFT, tuners/lora/layer.py: scaling is lora_alpha / math.sqrt(r) with use_rslora, else
 * lora_alpha / r. Ours is alpha / rank, as is PEFT's of an export, which has no use_rslora. */
static void adapters_with_rslora_have_the_scale_of_peft(void **state)
{
    (void)state;
    static const double alphas[] = { 8, 16, 0.1, 3 };
    for (size_t i = 0; i < sizeof(alphas) / sizeof(alphas[0]); i++) {
        char members[200];
        coh_model base;
        snprintf(members, sizeof(members),
                 "\"peft_type\": \"LORA\", \"use_rslora\": true, \"r\": 3, \"lora_alpha\": %.17g",
                 alphas[i]);
        assert_int_equal(open_configured(members, &base), COH_OK);
        const double scale = alphas[i] / sqrt(3.0);
        assert_true(fabs((double)base.adapters.alpha / 3 - scale) <= 2e-7 * scale);
        assert_non_null(strstr(base.notes, "adapters with use_rslora"));
        write_to(folder_file("again"), &base, COH_DTYPE_F32, NULL);
        json_t *root = read_json(folder_file("again/adapter_config.json"));
        assert_null(json_object_get(root, "use_rslora"));
        const double written = json_number_value(json_object_get(root, "lora_alpha"));
        assert_true((float)written == base.adapters.alpha);
        assert_true(fabs(written / 3 - scale) <= 2e-7 * scale);
        json_decref(root);
        assert_int_equal(temporary_remove(folder_file("again")), 0);
    }
    coh_model base;
    assert_int_equal(
        open_configured(
            "\"peft_type\": \"LORA\", \"r\": 3, \"lora_alpha\": 3e38, \"use_rslora\": true", &base),
        COH_ERR_CORRUPT);
    assert_non_null(strstr(coh_last_error(), "\"lora_alpha\" must be smaller"));
}

/* The text of "lora_dropout" in the folder of a model with that one. */
static void assert_written(double dropout, const char *text)
{
    const coh_adapters adapters = { .rank = 3 };
    coh_model model = made_model(LLAMA, &adapters);
    char wanted[80], *config;
    size_t bytes;
    model.lora_dropout = dropout;
    write_to(folder_file("out"), &model, COH_DTYPE_F32, NULL);
    assert_int_equal(
        coh_file_read_whole(folder_file("out/adapter_config.json"), 1 << 16, &config, &bytes),
        COH_OK);
    snprintf(wanted, sizeof(wanted), "\"lora_dropout\": %s,\n", text);
    assert_non_null(strstr(config, wanted));
    coh_free(config);
    assert_int_equal(temporary_remove(folder_file("out")), 0);
}

static void dropout_is_written_and_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double value; /* below 0: refused */
    } all[] = { { "0.05", 0.05 }, { "0", 0 },       { "null", 0 },   { "0.999", 0.999 },
                { "1.0", -1 },    { "-0.125", -1 }, { "\"a\"", -1 }, { "true", -1 } };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        char members[200];
        coh_model base;
        snprintf(members, sizeof(members),
                 "\"r\": 3, \"peft_type\": \"LORA\", \"lora_dropout\": %s", all[i].text);
        const coh_status status = open_configured(members, &base);
        if (status != (all[i].value < 0 ? COH_ERR_CORRUPT : COH_OK))
            fail_msg("%s: %d", all[i].text, status);
        if (status != COH_OK)
            assert_non_null(
                strstr(coh_last_error(), "\"lora_dropout\" must be a number from 0 to below 1"));
        assert_true(base.lora_dropout == (all[i].value < 0 ? 0 : all[i].value));
        assert_int_equal(strstr(base.notes, "training keeps it unless lora_dropout gives") != NULL,
                         all[i].value > 0);
    }
    assert_written(0, "0.0");
    assert_written(0.05, "0.05");
    assert_written(1.0 / 3, "0.3333333333333333");
}

static void what_cannot_be_written_leaves_nothing_behind(void **state)
{
    (void)state;
    const coh_adapters adapters = { .rank = 3 }, none = { .freeze = "wte" };
    const coh_model model = made_model(GPT2, &adapters), plain = made_model(GPT2, &none);
    source whole = { 0 }, broken = { .fails_at = "h.1.attn.c_attn.lora_B.weight" };
    const coh_adapters_write_options options = { .struct_bytes = sizeof(options),
                                                 .dtype = COH_DTYPE_F32 },
                                     odd = { .dtype = COH_DTYPE_I32 };
    const char *out = folder_file("out");
    assert_int_equal(coh_adapters_write(&plain, &options, out, numbers, &whole), COH_ERR_ARGUMENT);
    assert_int_equal(coh_adapters_write(&model, &odd, out, numbers, &whole), COH_ERR_ARGUMENT);
    assert_int_equal(coh_adapters_write(&model, &options, "", numbers, &whole), COH_ERR_ARGUMENT);
    assert_int_equal(coh_adapters_write(&model, &options, folder_file("no/out"), numbers, &whole),
                     COH_ERR_IO);
    assert_int_equal(coh_adapters_write(&model, &options, out, numbers, &broken), COH_ERR_IO);
    assert_non_null(strstr(coh_last_error(), "h.1.attn.c_attn.lora_B.weight"));
    assert_int_equal(folder_count(), 0);
    assert_int_equal(coh_adapters_write(&model, &options, out, numbers, &whole), COH_OK);
    assert_int_equal(coh_adapters_write(&model, &options, out, numbers, &whole), COH_ERR_ARGUMENT);
    assert_non_null(strstr(coh_last_error(), "exists"));
    assert_int_equal(folder_count(), 3);
}

static void a_number_that_is_not_finite_is_refused_with_its_place(void **state)
{
    (void)state;
    const coh_adapters adapters = { .rank = 3 }, none = { .freeze = "wte" };
    const coh_model model = made_model(GPT2, &adapters), plain = made_model(GPT2, &none);
    const float odd[] = { NAN, INFINITY, -INFINITY };
    const char *out = folder_file("out");
    for (int i = 0; i < 3; i++)
        for (coh_dtype dtype = COH_DTYPE_F32; dtype <= COH_DTYPE_F16; dtype++) {
            const coh_adapters_write_options beside = { .struct_bytes = sizeof(beside),
                                                        .dtype = dtype };
            const coh_folder_write_options whole = { .struct_bytes = sizeof(whole),
                                                     .dtype = dtype };
            source up = { .odd_in = "h.1.attn.c_attn.lora_B.weight", .odd_at = 7, .odd = odd[i] };
            /* [outputs, inputs] = [36, 12] is published transposed */
            source linear = { .odd_in = "h.0.attn.c_attn.weight", .odd_at = 17, .odd = odd[i] };
            source bias = { .odd_in = "h.0.attn.c_attn.bias", .odd_at = 5, .odd = odd[i] };
            assert_int_equal(coh_adapters_write(&model, &beside, out, numbers, &up),
                             COH_ERR_CORRUPT);
            assert_non_null(strstr(coh_last_error(), "h.1.attn.c_attn.lora_B.weight holds "));
            assert_non_null(strstr(coh_last_error(), "at [2, 1]"));
            assert_int_equal(coh_folder_write(&plain, &whole, out, numbers, &linear),
                             COH_ERR_CORRUPT);
            assert_non_null(strstr(coh_last_error(), "transformer.h.0.attn.c_attn.weight holds "));
            assert_non_null(strstr(coh_last_error(), "at [5, 1]"));
            assert_int_equal(coh_folder_write(&plain, &whole, out, numbers, &bias),
                             COH_ERR_CORRUPT);
            assert_non_null(strstr(coh_last_error(), "at [5, 0]"));
            assert_int_equal(folder_count(), 0);
        }
}

/* The factors are finite, but their product exceeds f32. */
static void a_merge_that_overflows_is_not_written(void **state)
{
    (void)state;
    const coh_adapters adapters = { .rank = 3 };
    const coh_model model = made_model(GPT2, &adapters);
    const coh_folder_write_options options = { .struct_bytes = sizeof(options),
                                               .dtype = COH_DTYPE_F32 };
    source from = { .odd_in = "h.0.attn.c_attn.lora_A.weight", .odd_at = 4, .odd = 3e38f };
    coh_merge *merge;
    assert_int_equal(coh_merge_open(&model, numbers, &from, &merge), COH_OK);
    assert_int_equal(
        coh_folder_write(&model, &options, folder_file("out"), coh_merge_numbers, merge),
        COH_ERR_CORRUPT);
    assert_non_null(strstr(coh_last_error(), "transformer.h.0.attn.c_attn.weight holds "));
    assert_int_equal(folder_count(), 0);
    coh_merge_close(merge);
}

static void every_failing_operation_leaves_nothing_behind(void **state)
{
    (void)state;
    const coh_adapters adapters = { .rank = 3, .also = "wte,c_fc" };
    const coh_model model = made_model(GPT2, &adapters);
    const coh_adapters_write_options options = { .struct_bytes = sizeof(options),
                                                 .dtype = COH_DTYPE_BF16 };
    for (int n = 1;; n++) {
        char text[32];
        source from = { 0 };
        snprintf(text, sizeof(text), "%d:28", n);
        setenv("COH_TEST_FAIL_AT", text, 1);
        const coh_status status =
            coh_adapters_write(&model, &options, folder_file("out"), numbers, &from);
        unsetenv("COH_TEST_FAIL_AT");
        if (status == COH_OK) {
            assert_true(n > 10);
            break;
        }
        assert_true(coh_last_error()[0] != '\0');
        if (folder_count() != 0)
            fail_msg("operation %d left %d things: %s", n, folder_count(), coh_last_error());
    }
}

/* ---- merged ---- */

/* Returns W + (alpha / rank) B A in double, and the error bound of a float sum. */
static void naive(const coh_model *model, const coh_model_tensor *tensor, uint64_t at,
                  double *out_value, double *out_bound)
{
    char op[96], down[128], up[128];
    const uint64_t inputs = (uint64_t)tensor->dim[1], rank = (uint64_t)model->adapters.rank;
    const double factor = (double)model->adapters.alpha / (double)rank;
    snprintf(op, sizeof(op), "%.*s", (int)(strlen(tensor->name) - strlen(".weight")), tensor->name);
    snprintf(down, sizeof(down), "%s.lora_A.weight", op);
    snprintf(up, sizeof(up), "%s.lora_B.weight", op);
    double sum = 0, size = fabs((double)number_of(tensor->name, at));
    for (uint64_t r = 0; r < rank; r++) {
        const double term = factor * (double)number_of(up, at / inputs * rank + r) *
                            (double)number_of(down, r * inputs + at % inputs);
        sum += term;
        size += fabs(term);
    }
    *out_value = (double)number_of(tensor->name, at) + sum;
    *out_bound = (double)(rank + 4) * 0x1p-24 * size;
}

static void check_merged(const coh_model *model, coh_merge *merge, const coh_model_tensor *tensor,
                         int is_adapted, uint64_t piece)
{
    float values[64];
    const uint64_t elements =
        (uint64_t)tensor->dim[0] * (uint64_t)(tensor->rank == 2 ? tensor->dim[1] : 1);
    for (uint64_t begin = 0; begin < elements; begin += piece) {
        const uint64_t left = elements - begin, count = left < piece ? left : piece;
        assert_int_equal(coh_merge_numbers(merge, tensor->name, begin, count, values), COH_OK);
        for (uint64_t i = 0; i < count; i++) {
            double value = (double)number_of(tensor->name, begin + i), bound = 0;
            if (is_adapted)
                naive(model, tensor, begin + i, &value, &bound);
            if (!(fabs((double)values[i] - value) <= bound))
                fail_msg("%s[%d] is %.9g, should be %.9g", tensor->name, (int)(begin + i),
                         (double)values[i], value);
        }
    }
}

static void merged_weights_are_those_of_the_formula_whatever_the_ranges(void **state)
{
    (void)state;
    static const uint64_t pieces[] = { 1, 5, 12, 13, 64 };
    const coh_adapters adapters = { .rank = 3, .alpha = 7, .targets = "c_attn,h.1.mlp.*" };
    const coh_model model = made_model(GPT2, &adapters);
    source from = { 0 };
    coh_merge *merge;
    assert_int_equal(coh_merge_open(&model, numbers, &from, &merge), COH_OK);
    for (size_t p = 0; p < sizeof(pieces) / sizeof(pieces[0]); p++)
        for (int64_t i = 0; i < coh_model_tensor_count(&model); i++) {
            coh_model_tensor tensor;
            assert_int_equal(coh_model_tensor_at(&model, i, &tensor), COH_OK);
            const int is_adapted = tensor.rank == 2 && (strstr(tensor.name, "c_attn") != NULL ||
                                                        strstr(tensor.name, "h.1.mlp.") != NULL);
            check_merged(&model, merge, &tensor, is_adapted, pieces[p]);
        }
    coh_merge_close(merge);
}

static void factors_are_read_once_a_tensor(void **state)
{
    (void)state;
    const coh_adapters adapters = { .rank = 3 };
    const coh_model model = made_model(GPT2, &adapters);
    source from = { 0 };
    coh_merge *merge;
    float value;
    assert_int_equal(coh_merge_open(&model, numbers, &from, &merge), COH_OK);
    for (uint64_t at = 0; at < 12 * 36; at++)
        assert_int_equal(coh_merge_numbers(merge, "h.0.attn.c_attn.weight", at, 1, &value), COH_OK);
    assert_int_equal(from.calls, 12 * 36 + 2);
    coh_merge_close(merge);
}

static void what_cannot_be_merged_is_refused(void **state)
{
    (void)state;
    const coh_adapters adapters = { .rank = 3 }, none = { .freeze = "wte" };
    const coh_model model = made_model(GPT2, &adapters), plain = made_model(GPT2, &none);
    source whole = { 0 }, broken = { .fails_at = "h.0.attn.c_attn.lora_A.weight" };
    coh_merge *merge;
    float value;
    assert_int_equal(coh_merge_open(&plain, numbers, &whole, &merge), COH_ERR_ARGUMENT);
    assert_null(merge);
    assert_int_equal(coh_merge_open(&model, NULL, &whole, &merge), COH_ERR_ARGUMENT);
    assert_int_equal(coh_merge_open(&model, numbers, &broken, &merge), COH_OK);
    assert_int_equal(coh_merge_numbers(merge, "wte.weight", 0, 1, &value), COH_OK);
    assert_int_equal(coh_merge_numbers(merge, "h.0.attn.c_attn.bias", 0, 1, &value), COH_OK);
    assert_int_equal(coh_merge_numbers(merge, "h.0.attn.c_attn.weight", 0, 1, &value), COH_ERR_IO);
    coh_merge_close(merge);
    coh_merge_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_configuration_is_pefts, set_up, folder_remove),
        cmocka_unit_test_setup_teardown(tensors_have_pefts_names_and_our_numbers, set_up,
                                        folder_remove),
        cmocka_unit_test_setup_teardown(adapters_read_back_are_the_same, set_up, folder_remove),
        cmocka_unit_test(linears_of_many_layers_have_few_patterns),
        cmocka_unit_test_setup_teardown(adapters_of_many_layers_are_read_back, set_up,
                                        folder_remove),
        cmocka_unit_test(what_needs_too_long_a_pattern_is_refused),
        cmocka_unit_test_setup_teardown(members_of_peft_without_an_effect_are_accepted, set_up,
                                        folder_remove),
        cmocka_unit_test_setup_teardown(numbers_of_single_linears_are_refused_with_the_remedy,
                                        set_up, folder_remove),
        cmocka_unit_test_setup_teardown(adapters_with_rslora_have_the_scale_of_peft, set_up,
                                        folder_remove),
        cmocka_unit_test_setup_teardown(dropout_is_written_and_read, set_up, folder_remove),
        cmocka_unit_test_setup_teardown(what_cannot_be_written_leaves_nothing_behind, set_up,
                                        folder_remove),
        cmocka_unit_test_setup_teardown(a_number_that_is_not_finite_is_refused_with_its_place,
                                        set_up, folder_remove),
        cmocka_unit_test_setup_teardown(a_merge_that_overflows_is_not_written, set_up,
                                        folder_remove),
        cmocka_unit_test_setup_teardown(every_failing_operation_leaves_nothing_behind, set_up,
                                        folder_remove),
        cmocka_unit_test(merged_weights_are_those_of_the_formula_whatever_the_ranges),
        cmocka_unit_test(factors_are_read_once_a_tensor),
        cmocka_unit_test(what_cannot_be_merged_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
