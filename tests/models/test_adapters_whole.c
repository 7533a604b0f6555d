/* Operators that are trained in full next to adapters, in a folder of adapters: names, layout and
 * configuration are those of PEFT's modules_to_save. tests/cli/test_adapters_whole.py has malformed
 * folders. */
#include "tests/models/known_numbers.h"

#include "models/safetensors.h"
#include "tests/faults/alloc_faults.h"

static int set_up(void **state)
{
    unsetenv("COH_TEST_FAIL_AT");
    return folder_create(state);
}

/* PEFT, utils/other.py: _set_trainable takes the modules whose names end in one of the list. */
static void what_is_trained_in_full_is_pefts_modules_to_save(void **state)
{
    (void)state;
    static const struct case_of {
        const char *config, *also, *freeze;
        const char *const modules[4];
    } all[] = {
        { GPT2, "", "", { NULL } },
        { GPT2, "wte", "", { "wte", "lm_head" } }, /* which the head shares */
        { GPT2, "wte,wpe", "wte", { "wpe" } },
        { GPT2, "mlp.c_proj", "", { "mlp.c_proj" } },
        { GPT2, "h.1.*.c_fc,ln_f", "", { "1.mlp.c_fc", "ln_f" } },
        { LLAMA, "embed_tokens,lm_head", "", { "embed_tokens", "lm_head" } },
        { LLAMA, "norm", "", { "model.norm" } }, /* and not every input_layernorm */
        { LLAMA,
          "norm,*_layernorm",
          "",
          { "input_layernorm", "post_attention_layernorm", "norm" } },
        { LLAMA, "input_layernorm", "", { "input_layernorm" } },
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        coh_adapters adapters = { .rank = 3 };
        snprintf(adapters.also, sizeof(adapters.also), "%s", all[i].also);
        snprintf(adapters.freeze, sizeof(adapters.freeze), "%s", all[i].freeze);
        const coh_model model = made_model(all[i].config, &adapters);
        write_to(folder_file("out"), &model, COH_DTYPE_F32, NULL);
        json_t *root = read_json(folder_file("out/adapter_config.json"));
        assert_names(root, "modules_to_save", all[i].modules);
        json_decref(root);
        assert_int_equal(temporary_remove(folder_file("out")), 0);
    }
}

/* A tensor that was trained in full has the name and layout of the whole model's folder. */
static void what_is_trained_in_full_is_written_whole(void **state)
{
    (void)state;
    const coh_adapters adapters = { .rank = 3, .also = "wte,mlp.c_proj" };
    const coh_model model = made_model(GPT2, &adapters);
    const coh_adapters_write_options options = { .struct_bytes = sizeof(options) };
    coh_safetensors *file;
    size_t count;
    float values[37 * 12];
    uint64_t bytes;
    const struct whole {
        const char *published, *ours;
        int64_t rows, columns;
        int turned;
    } all[] = { { "transformer.wte.weight", "wte.weight", 37, 12, 0 },
                { "lm_head.weight", "wte.weight", 37, 12, 0 },
                { "transformer.h.1.mlp.c_proj.weight", "h.1.mlp.c_proj.weight", 21, 12, 1 },
                { "transformer.h.0.mlp.c_proj.bias", "h.0.mlp.c_proj.bias", 12, 1, 0 } };
    write_to(folder_file("out"), &model, COH_DTYPE_F32, NULL);
    assert_int_equal(coh_safetensors_open(folder_file("out/adapter_model.safetensors"), &file),
                     COH_OK);
    (void)coh_safetensors_tensors(file, &count);
    assert_int_equal(count, 2 * 2 + 2 + 2 * 2);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        char name[128];
        const struct whole *of = &all[i];
        snprintf(name, sizeof(name), "base_model.model.%s", of->published);
        const coh_safetensors_tensor *found = coh_safetensors_find(file, name);
        assert_non_null(found);
        assert_int_equal(found->dim[0], of->rows);
        const uint64_t elements = (uint64_t)(of->rows * of->columns);
        assert_int_equal(coh_safetensors_elements(found), elements);
        assert_int_equal(
            coh_safetensors_read_numbers(file, found, 0, elements, COH_DTYPE_F32, values), COH_OK);
        for (int64_t at = 0; at < (int64_t)elements; at++) {
            const int64_t row = at / of->columns, column = at % of->columns;
            const int64_t ours = of->turned ? column * of->rows + row : at;
            assert_true(values[at] == number_of(of->ours, (uint64_t)ours));
        }
    }
    coh_safetensors_close(file);
    /* 4 adapters' halves, the table twice, two linears with bias; a header, a config, a folder */
    const uint64_t data = 4 * (2 * 3 * (12 + 36) + 2 * 37 * 12 + 2 * (21 * 12 + 12));
    assert_int_equal(coh_adapters_write_bytes(&model, &options, &bytes), COH_OK);
    assert_true(bytes >= data && bytes < data + 4 * 4096);
    assert_int_equal(temporary_remove(folder_file("out")), 0);
}

/* The same parameters are trained in full as in `model`, with the numbers of number_of. */
static void assert_same_whole(coh_adapter_folder *folder, const coh_model *base,
                              const coh_model *model)
{
    coh_model_tensor tensor;
    float values[37 * 24], value;
    for (int64_t i = 0; i < coh_model_tensor_count(model); i++) {
        assert_int_equal(coh_model_tensor_at(model, i, &tensor), COH_OK);
        const int is_held = coh_model_is_adapted(model, tensor.name);
        assert_int_equal(coh_model_is_adapted(base, tensor.name), is_held);
        const uint64_t count = (uint64_t)(tensor.dim[0] * (tensor.rank == 2 ? tensor.dim[1] : 1));
        assert_int_equal(coh_adapters_numbers(folder, tensor.name, 0, 1, &value),
                         is_held ? COH_OK : COH_ERR_ARGUMENT);
        if (!is_held)
            continue;
        assert_true(count <= sizeof(values) / sizeof(values[0]));
        for (uint64_t begin = 0; begin < 3 && begin < count; begin++) { /* in and beyond a row */
            assert_int_equal(
                coh_adapters_numbers(folder, tensor.name, begin, count - begin, values), COH_OK);
            for (uint64_t at = begin; at < count; at++)
                assert_true(values[at - begin] == number_of(tensor.name, at));
        }
        assert_int_equal(coh_adapters_numbers(folder, tensor.name, count, 1, &value),
                         COH_ERR_ARGUMENT);
    }
}

static void what_is_trained_in_full_is_read_back(void **state)
{
    (void)state;
    static const char *const all[][3] = {
        /* also as it was written, and as it is read */
        { GPT2, "wte", "wte" },
        { GPT2, "wte,h.1.mlp.*,ln_?", "wte,ln_1,ln_2,1.mlp.c_fc,1.mlp.c_proj,ln_f" },
        { LLAMA, "embed_tokens,lm_head", "embed_tokens,lm_head" },
        { LLAMA, "norm,layers.0.input_layernorm,down_proj", "0.input_layernorm,down_proj,norm" },
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        coh_adapters adapters = { .rank = 3 };
        const coh_adapters none = { 0 };
        coh_adapter_folder *folder;
        snprintf(adapters.also, sizeof(adapters.also), "%s", all[i][1]);
        const coh_model model = made_model(all[i][0], &adapters);
        write_to(folder_file("out"), &model, COH_DTYPE_F32, NULL);
        coh_status status = COH_ERR_MEMORY;
        for (uint64_t n = 1; status != COH_OK; n++) { /* each allocation fails once */
            coh_model base = made_model(all[i][0], &none);
            alloc_fail_nth(n);
            status = coh_adapters_open(folder_file("out"), &base, &folder);
            alloc_fail_nth(0);
            if (status != COH_OK && status != COH_ERR_MEMORY)
                fail_msg("case %zu: %s", i, coh_last_error());
            assert_string_equal(base.adapters.also, status == COH_OK ? all[i][2] : "");
            if (status != COH_OK)
                continue;
            assert_same_whole(folder, &base, &model);
            coh_adapters_close(folder);
        }
        assert_int_equal(temporary_remove(folder_file("out")), 0);
    }
}

/* Neither has it an adapter to be added, nor does it come from elsewhere. */
static void what_is_trained_in_full_passes_a_merge_unchanged(void **state)
{
    (void)state;
    const coh_adapters adapters = { .rank = 3, .also = "wte,c_fc" };
    const coh_model model = made_model(GPT2, &adapters);
    source from = { 0 };
    coh_merge *merge;
    coh_model_tensor tensor;
    float values[64];
    assert_int_equal(coh_merge_open(&model, numbers, &from, &merge), COH_OK);
    for (int64_t i = 0; i < coh_model_tensor_count(&model); i++) {
        assert_int_equal(coh_model_tensor_at(&model, i, &tensor), COH_OK);
        if (!coh_model_is_adapted(&model, tensor.name))
            continue;
        const uint64_t count = tensor.rank == 2 ? 64 : (uint64_t)tensor.dim[0];
        assert_int_equal(coh_merge_numbers(merge, tensor.name, 0, count, values), COH_OK);
        for (uint64_t at = 0; at < count; at++)
            assert_true(values[at] == number_of(tensor.name, at));
    }
    coh_merge_close(merge);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_trained_in_full_is_pefts_modules_to_save, set_up,
                                        folder_remove),
        cmocka_unit_test_setup_teardown(what_is_trained_in_full_is_written_whole, set_up,
                                        folder_remove),
        cmocka_unit_test_setup_teardown(what_is_trained_in_full_is_read_back, set_up,
                                        folder_remove),
        cmocka_unit_test(what_is_trained_in_full_passes_a_merge_unchanged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
