/* A Hugging Face folder is read under our names and layout, and written back unchanged. The folders
 * of each family are recorded from `transformers` (record_families.py). */
#include "base/half.h"
#include "cohobate/folder.h"
#include "tests/models/folder_fixture.h"

static const coh_dtype dtypes[] = { COH_DTYPE_F32, COH_DTYPE_BF16, COH_DTYPE_F16 };
enum { DTYPES = 3 };

static int set_up(void **state)
{
    return folder_create(state);
}

static coh_folder *open_folder(const coh_model *model)
{
    coh_folder *folder;
    if (coh_folder_open(model, &folder) != COH_OK)
        fail_msg("%s", coh_last_error());
    return folder;
}

static coh_status numbers(void *folder, const char *name, uint64_t begin, uint64_t count,
                          float *values)
{
    return coh_folder_numbers(folder, COH_PARAMETER_NEW, name, begin, count, values);
}

/* Calls `check` with every recorded case. */
static void each_case(void (*check)(const json_t *one))
{
    size_t i;
    json_t *one, *root = recorded_load(FIXTURES, recorded_files[1]);
    json_array_foreach(json_object_get(root, "cases"), i, one)
    {
        check(one);
        assert_int_equal(folder_remove(NULL), 0);
        assert_int_equal(folder_create(NULL), 0);
    }
    json_decref(root);
}

static json_t *case_called(const char *name, json_t **out_root)
{
    size_t i;
    json_t *one;
    *out_root = recorded_load(FIXTURES, recorded_files[1]);
    json_array_foreach(json_object_get(*out_root, "cases"), i, one)
    {
        if (strcmp(recorded_text(one, "case"), name) == 0)
            return one;
    }
    fail_msg("no case %s", name);
    return NULL;
}

/* ---- in ---- */

/* Returns 1 for GPT-2's linears, which are transposed (class Conv1D in `transformers`). */
static int is_turned(const json_t *one, const char *name)
{
    const size_t length = strlen(name);
    return strncmp(recorded_text(one, "case"), "gpt2", 4) == 0 && length > 7 &&
           strcmp(name + length - 7, ".weight") == 0 && strstr(name, ".c_");
}

static void assert_range(const json_t *one, coh_folder *folder, const coh_folder_tensor *at,
                         coh_dtype dtype, uint64_t begin, uint64_t count)
{
    float values[64 * 64];
    const uint64_t rows = (uint64_t)at->tensor.dim[0],
                   columns = at->tensor.rank > 1 ? (uint64_t)at->tensor.dim[1] : 1;
    assert_true(count <= 64 * 64);
    if (numbers(folder, at->tensor.name, begin, count, values) != COH_OK)
        fail_msg("%s", coh_last_error());
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t row = (begin + i) / columns, column = (begin + i) % columns;
        const uint64_t place = is_turned(one, at->found_name) ? column * rows + row : begin + i;
        const float must = made_number(at->found_name, place, dtype);
        if (coh_f32_bits(values[i]) != coh_f32_bits(must))
            fail_msg("%s: %s[%zu] is %a, not %a", recorded_text(one, "case"), at->tensor.name,
                     (size_t)(begin + i), (double)values[i], (double)must);
    }
}

static void check_numbers(const json_t *one)
{
    for (int d = 0; d < DTYPES; d++) {
        char name[16];
        snprintf(name, sizeof(name), "in-%d", d);
        const coh_model model =
            made_resolve(made_folder(name, json_object_get(one, "config"),
                                     json_object_get(one, "tensors"), dtypes[d], d ? 1000 : 0));
        coh_folder *folder = open_folder(&model);
        coh_folder_facts facts = { .struct_bytes = sizeof(facts) };
        assert_int_equal(coh_folder_facts_get(folder, &facts), COH_OK);
        assert_int_equal(facts.stored, dtypes[d]);
        assert_false(facts.mixed);
        assert_int_equal(facts.parameter_count,
                         json_integer_value(json_object_get(one, "parameters")));
        assert_true((facts.file_count > 1) == (d > 0));
        for (int64_t i = 0; i < facts.tensor_count; i++) {
            coh_folder_tensor at;
            assert_int_equal(coh_folder_tensor_at(folder, i, &at), COH_OK);
            const uint64_t elements =
                (uint64_t)at.tensor.dim[0] * (uint64_t)(at.tensor.rank > 1 ? at.tensor.dim[1] : 1);
            assert_range(one, folder, &at, dtypes[d], 0, elements);
            for (uint64_t t = 0; t < 20; t++) {
                const uint64_t begin = coh_rng_u64(5, (uint64_t)i, t) % elements;
                const uint64_t count = 1 + coh_rng_u64(6, (uint64_t)i, t) % (elements - begin);
                assert_range(one, folder, &at, dtypes[d], begin, count);
            }
        }
        coh_folder_close(folder);
    }
}

static void every_range_has_the_numbers_of_the_file_in_our_layout(void **state)
{
    (void)state;
    each_case(check_numbers);
}

/* ---- in and out ---- */

/* Checks that folder `path` has every tensor of `list` bit for bit, and no other. */
static void assert_same_tensors(const char *path, const json_t *list, coh_dtype dtype)
{
    size_t i, count;
    json_t *pair;
    coh_safetensors *files;
    if (coh_safetensors_open(path, &files) != COH_OK)
        fail_msg("%s", coh_last_error());
    (void)coh_safetensors_tensors(files, &count);
    assert_int_equal(count, json_array_size(list));
    json_array_foreach(list, i, pair)
    {
        const char *name = json_string_value(json_array_get(pair, 0));
        const coh_safetensors_tensor *tensor = coh_safetensors_find(files, name);
        if (!tensor) {
            fail_msg("%s has come out without %s", path, name);
            break;
        }
        const coh_safetensors_tensor must = made_tensor(pair, coh_safetensors_dtype_name(dtype));
        assert_string_equal(tensor->dtype, must.dtype);
        assert_int_equal(tensor->rank, must.rank);
        assert_memory_equal(tensor->dim, must.dim, sizeof(must.dim));
        void *is = malloc(tensor->bytes + 1);
        void *was = made_data(name, coh_safetensors_elements(tensor), dtype);
        assert_int_equal(coh_safetensors_read(files, tensor, 0, tensor->bytes, is), COH_OK);
        if (memcmp(is, was, tensor->bytes) != 0)
            fail_msg("%s of %s has come out with other bits", name, path);
        free(was);
        free(is);
    }
    coh_safetensors_close(files);
}

static void pass_through(const coh_model *model, coh_dtype dtype, uint64_t shard_bytes,
                         const char *path)
{
    coh_folder *folder = open_folder(model);
    const coh_folder_write_options options = { .struct_bytes = sizeof(options),
                                               .dtype = dtype,
                                               .shard_bytes = shard_bytes };
    if (coh_folder_write(model, &options, path, numbers, folder) != COH_OK)
        fail_msg("%s", coh_last_error());
    coh_folder_close(folder);
}

static void check_through(const json_t *one)
{
    const json_t *list = json_object_get(one, "tensors");
    for (int d = 0; d < DTYPES; d++) {
        char in[16], out[16];
        snprintf(in, sizeof(in), "in-%d", d);
        const coh_model model =
            made_resolve(made_folder(in, json_object_get(one, "config"), list, dtypes[d], 0));
        for (int sharded = 0; sharded <= (d == 0); sharded++) {
            snprintf(out, sizeof(out), "out-%d-%d", d, sharded);
            const char *path = folder_file(out);
            pass_through(&model, dtypes[d], sharded ? 1500 : 0, path);
            assert_same_tensors(path, list, dtypes[d]);
            const coh_model again = made_resolve(path);
            assert_int_equal(again.stored, dtypes[d]);
            coh_folder *folder = open_folder(&again);
            coh_folder_facts facts = { .struct_bytes = sizeof(facts) };
            assert_int_equal(coh_folder_facts_get(folder, &facts), COH_OK);
            assert_true((facts.file_count > 1) == sharded);
            coh_folder_close(folder);
        }
    }
}

static void what_nobody_changed_comes_out_bit_for_bit(void **state)
{
    (void)state;
    each_case(check_through);
}

/* A tensor needs several pieces in either layout: rows and columns are cut in the middle. */
static void a_tensor_of_several_pieces_is_turned_round_bit_for_bit(void **state)
{
    (void)state;
    json_t *config =
        json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i}", "model_type", "gpt2", "n_layer", 1,
                  "n_head", 3, "n_embd", 519, "n_positions", 3, "vocab_size", 5, "n_inner", 4099);
    coh_model model;
    char *text = json_dumps(config, 0);
    assert_int_equal(coh_model_from_config(text, &model), COH_OK);
    free(text);
    json_t *list = json_array();
    for (int64_t i = 0; i < coh_model_tensor_count(&model); i++) {
        coh_model_tensor tensor;
        assert_int_equal(coh_model_tensor_at(&model, i, &tensor), COH_OK);
        json_t *dims = json_array();
        for (int32_t d = 0; d < tensor.rank; d++)
            json_array_append_new(dims, json_integer(tensor.published_dim[d]));
        json_array_append_new(list, json_pack("[s, o]", tensor.published, dims));
    }
    model = made_resolve(made_folder("in", config, list, COH_DTYPE_F16, 0));
    pass_through(&model, COH_DTYPE_F16, 0, folder_file("out"));
    assert_same_tensors(folder_file("out"), list, COH_DTYPE_F16);
    json_decref(list);
    json_decref(config);
}

/* ---- optional and forbidden contents ---- */

static json_t *table_of(json_t *list)
{
    size_t i;
    json_t *pair;
    json_array_foreach(list, i, pair)
    {
        const char *name = json_string_value(json_array_get(pair, 0));
        if (strstr(name, "wte.weight") || strstr(name, "embed_tokens.weight"))
            return pair;
    }
    fail_msg("no token table");
    return NULL;
}

/* Adds a second copy of the token table, as some writers do. */
static json_t *second_head(json_t *list)
{
    const json_t *table = table_of(list);
    return json_pack("[s, O, n, O]", "lm_head.weight", json_array_get(table, 1),
                     json_array_get(table, 0));
}

static void names_without_the_prefix_constants_and_a_second_head_are_taken(void **state)
{
    (void)state;
    json_t *root, *pair;
    size_t i;
    json_t *one = case_called("gpt2", &root);
    json_t *list = json_deep_copy(json_object_get(one, "tensors"));
    json_array_foreach(list, i, pair)
    {
        const char *name = json_string_value(json_array_get(pair, 0));
        if (i % 2)
            json_array_set_new(pair, 0, json_string(name + strlen("transformer.")));
    }
    json_array_append_new(list, second_head(list));
    json_array_append_new(
        list, json_pack("[s, [i, i, i, i], s]", "transformer.h.1.attn.bias", 1, 1, 19, 19, "BOOL"));
    json_array_append_new(list, json_pack("[s, [], s]", "h.0.attn.masked_bias", "F32"));
    const coh_model model =
        made_resolve(made_folder("in", json_object_get(one, "config"), list, COH_DTYPE_F32, 0));
    coh_folder *folder = open_folder(&model);
    coh_folder_facts facts = { .struct_bytes = sizeof(facts) };
    coh_folder_tensor at;
    assert_int_equal(coh_folder_facts_get(folder, &facts), COH_OK);
    assert_int_equal(facts.passed_over_count, 3);
    assert_int_equal(facts.parameter_count, 4464);
    for (int64_t t = 0; t < facts.tensor_count; t++) {
        assert_int_equal(coh_folder_tensor_at(folder, t, &at), COH_OK);
        assert_range(one, folder, &at, COH_DTYPE_F32, 0, 12);
    }
    coh_folder_close(folder);
    json_decref(list);
    json_decref(root);
}

/* Writers that omit the second of two identical tensors may omit the table. */
static void a_tied_head_stands_in_for_a_table_that_is_not_there(void **state)
{
    (void)state;
    json_t *root, *one = case_called("llama grouped, tied", &root);
    json_t *list = json_deep_copy(json_object_get(one, "tensors")), *pair;
    size_t i;
    json_array_foreach(list, i, pair)
    {
        if (strcmp(json_string_value(json_array_get(pair, 0)), "model.embed_tokens.weight") == 0)
            json_array_set_new(pair, 0, json_string("lm_head.weight"));
    }
    const coh_model model =
        made_resolve(made_folder("in", json_object_get(one, "config"), list, COH_DTYPE_F32, 0));
    coh_folder *folder = open_folder(&model);
    float value, must = made_number("lm_head.weight", 5, COH_DTYPE_F32);
    assert_int_equal(numbers(folder, "model.embed_tokens.weight", 5, 1, &value), COH_OK);
    assert_int_equal(coh_f32_bits(value), coh_f32_bits(must));
    coh_folder_close(folder);
    json_decref(list);
    json_decref(root);
}

/* ---- an index that names more than there is ---- */

static void assert_refused(const coh_model *model, const char *part)
{
    coh_folder *folder = (coh_folder *)1;
    const coh_status status = coh_folder_open(model, &folder);
    const char *sentence = coh_last_error();
    assert_null(folder);
    if (status != COH_ERR_CORRUPT || !strstr(sentence, part) || !strstr(sentence, model->folder))
        fail_msg("%s: \"%s\" does not say \"%s\" of %s", coh_status_name(status), sentence, part,
                 model->folder);
}

#define INDEX "in/model.safetensors.index.json"

/* Adds `name` to the index of the folder "in", in the file of its first tensor. */
static void index_add(const char *name)
{
    json_t *index = json_load_file(folder_file(INDEX), 0, NULL);
    json_t *map = json_object_get(index, "weight_map");
    assert_int_equal(json_object_set(map, name, json_object_iter_value(json_object_iter(map))), 0);
    assert_int_equal(json_dump_file(index, folder_file(INDEX), 0), 0);
    json_decref(index);
}

/* Makes the folder "in" of several shards; with `renamed`, the table has that name. */
static coh_model sharded(const char *name, const char *renamed)
{
    json_t *root, *one = case_called(name, &root);
    json_t *list = json_deep_copy(json_object_get(one, "tensors"));
    if (renamed)
        json_array_set_new(json_array_get(list, 0), 0, json_string(renamed));
    assert_int_equal(folder_remove(NULL), 0);
    assert_int_equal(folder_create(NULL), 0);
    const coh_model model =
        made_resolve(made_folder("in", json_object_get(one, "config"), list, COH_DTYPE_F32, 1000));
    json_decref(list);
    json_decref(root);
    return model;
}

/* The conversion on the Hub drops the second of two tied tensors, and copies the index. */
static void an_index_may_name_only_absent_tensors_that_are_not_needed(void **state)
{
    (void)state;
    static const struct named {
        const char *model, *renamed, *name, *refused;
    } all[] = {
        { "llama grouped, tied", NULL, "lm_head.weight", NULL },
        { "llama grouped, tied", NULL, "model.layers.1.self_attn.rotary_emb.inv_freq", NULL },
        { "llama grouped, tied", "lm_head.weight", "model.embed_tokens.weight", NULL },
        { "gpt2", NULL, "h.0.attn.bias", NULL },
        { "llama grouped, tied", NULL, "model.layers.0.mlp.up_proj.bias", "no such tensor" },
        { "llama grouped, tied", "lm_head.weight", "model.norm.bias", "no such tensor" },
        /* of a name that the model has, but which another one has already */
        { "llama grouped, tied", NULL, "norm.weight", "no such tensor" },
        { "opt", NULL, "score.weight", "no such tensor" },
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        const coh_model model = sharded(all[i].model, all[i].renamed);
        coh_folder_close(open_folder(&model));
        index_add(all[i].name);
        if (all[i].refused)
            assert_refused(&model, all[i].refused);
        else
            coh_folder_close(open_folder(&model));
    }
}

/* ---- a tied head in addition to its table ---- */

/* Flips a bit in byte `at` of the head's data. */
static void head_change(const char *folder, uint64_t at)
{
    char path[PATH_MAX];
    coh_safetensors *files;
    assert_int_equal(coh_safetensors_open(folder, &files), COH_OK);
    const coh_safetensors_tensor *head = coh_safetensors_find(files, "lm_head.weight");
    assert_non_null(head);
    snprintf(path, sizeof(path), "%s/%s", folder, coh_safetensors_file_name(files, head->file));
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)(head->offset + at % head->bytes), SEEK_SET), 0);
    const int byte = fgetc(file);
    assert_int_equal(fseek(file, -1, SEEK_CUR), 0);
    assert_int_equal(fputc(byte ^ 1, file), byte ^ 1);
    assert_int_equal(fclose(file), 0);
    coh_safetensors_close(files);
}

static int tied_seen;

/* In one file and in shards, in each dtype: accepted if every byte equals the table's, refused if
 * one differs, wherever it is. The table needs several pieces. */
static void check_second_head(const json_t *one)
{
    enum { ROWS = 4001 };
    static const uint64_t places[] = { 0, 12287, 12288, 12289, UINT64_MAX };
    json_t *config = json_deep_copy(json_object_get(one, "config"));
    json_t *list = json_deep_copy(json_object_get(one, "tensors"));
    json_object_set_new(config, "vocab_size", json_integer(ROWS));
    const coh_model tied = recorded_model(config);
    if (coh_model_name_find(&tied, "lm_head.weight", NULL) == COH_MODEL_NAME_TIED) {
        tied_seen++;
        json_array_set_new(json_array_get(table_of(list), 1), 0, json_integer(ROWS));
        json_array_append_new(list, second_head(list));
        for (int d = 0; d < DTYPES; d++) {
            char name[16];
            snprintf(name, sizeof(name), "in-%d", d);
            const coh_model model =
                made_resolve(made_folder(name, config, list, dtypes[d], d ? 1000 : 0));
            coh_folder_close(open_folder(&model));
            for (size_t p = 0; p < sizeof(places) / sizeof(places[0]); p++) {
                head_change(model.folder, places[p]);
                assert_refused(&model, "differ in numbers");
                head_change(model.folder, places[p]);
            }
            coh_folder_close(open_folder(&model));
        }
    }
    json_decref(list);
    json_decref(config);
}

static void a_tied_head_is_left_out_only_where_every_byte_is_the_tables(void **state)
{
    (void)state;
    tied_seen = 0;
    each_case(check_second_head);
    assert_in_range(tied_seen, 8, 19);
}

/* The same numbers in another dtype, or in another shape with the same count, are not the table. */
static void a_tied_head_of_another_dtype_or_shape_is_refused(void **state)
{
    (void)state;
    static const char *const heads[][2] = {
        { "[\"lm_head.weight\", [37, 12], \"BF16\"]", "differ in dtype" },
        { "[\"lm_head.weight\", [12, 37]]", "differ in shape" },
        { "[\"lm_head.weight\", [444]]", "differ in shape" },
        { "[\"lm_head.weight\", [37, 12, 1]]", "differ in shape" },
        { "[\"lm_head.weight\", [37, 12, 0]]", "differ in shape" },
    };
    json_t *root, *one = case_called("gpt2", &root);
    for (size_t h = 0; h < sizeof(heads) / sizeof(heads[0]); h++) {
        char name[16];
        json_t *list = json_deep_copy(json_object_get(one, "tensors"));
        json_array_append_new(list, json_loads(heads[h][0], 0, NULL));
        snprintf(name, sizeof(name), "in-%zu", h);
        const coh_model model =
            made_resolve(made_folder(name, json_object_get(one, "config"), list, COH_DTYPE_F32, 0));
        assert_refused(&model, heads[h][1]);
        assert_refused(&model, "lm_head.weight and transformer.wte.weight are one tensor");
        assert_refused(&model, "tie_word_embeddings\": false");
        json_decref(list);
    }
    json_decref(root);
}

static const struct wrong {
    const char *drop, *add; /* a tensor's name, and one as JSON */
    const char *part;
} wrongs[] = {
    { "transformer.h.1.ln_2.bias", NULL, "holds no tensor transformer.h.1.ln_2.bias" },
    { "transformer.wte.weight", NULL, "holds no tensor transformer.wte.weight" },
    { NULL, "[\"transformer.h.2.ln_2.bias\", [12]]",
      "transformer.h.2.ln_2.bias, which is nothing" },
    { NULL, "[\"score.weight\", [2, 12]]", "score.weight, which is nothing of the gpt2 model" },
    { NULL, "[\"h.0.ln_1.bias\", [12]]", "twice" },
    { "transformer.wpe.weight", "[\"transformer.wpe.weight\", [12, 19]]",
      "is 12 x 19, and by config.json it must be 19 x 12" },
    { "transformer.ln_f.bias", "[\"transformer.ln_f.bias\", [1, 12]]", "is 1 x 12" },
    { "transformer.ln_f.bias", "[\"transformer.ln_f.bias\", []]", "is a scalar" },
    { "transformer.ln_f.bias", "[\"transformer.ln_f.bias\", [13]]", "it must be 12" },
    { "transformer.h.0.mlp.c_fc.weight", "[\"transformer.h.0.mlp.c_fc.weight\", [48, 12]]",
      "is 48 x 12, and by config.json it must be 12 x 48" },
    { "transformer.ln_f.bias", "[\"transformer.ln_f.bias\", [12], \"I64\"]", "of dtype I64" },
};

static void tensors_that_are_not_the_models_are_refused_with_one_sentence(void **state)
{
    (void)state;
    json_t *root, *one = case_called("gpt2", &root);
    for (size_t w = 0; w < sizeof(wrongs) / sizeof(wrongs[0]); w++) {
        char name[16];
        json_t *list = json_deep_copy(json_object_get(one, "tensors"));
        for (size_t i = 0; wrongs[w].drop && i < json_array_size(list); i++)
            if (strcmp(json_string_value(json_array_get(json_array_get(list, i), 0)),
                       wrongs[w].drop) == 0)
                json_array_remove(list, i--);
        if (wrongs[w].add)
            json_array_append_new(list, json_loads(wrongs[w].add, 0, NULL));
        snprintf(name, sizeof(name), "in-%zu", w);
        const coh_model model =
            made_resolve(made_folder(name, json_object_get(one, "config"), list, COH_DTYPE_F32, 0));
        assert_refused(&model, wrongs[w].part);
        assert_true(strstr(coh_last_error(), "mend config.json") ||
                    strstr(coh_last_error(), "take one out") ||
                    strstr(coh_last_error(), "convert it first"));
        json_decref(list);
    }
    json_decref(root);
}

static void a_folder_without_weights_and_one_cut_short_are_refused(void **state)
{
    (void)state;
    json_t *root, *one = case_called("opt", &root);
    const coh_model model = made_resolve(made_folder(
        "in", json_object_get(one, "config"), json_object_get(one, "tensors"), COH_DTYPE_F32, 0));
    size_t bytes;
    char *whole = folder_read(folder_file("in/model.safetensors"), &bytes);
    folder_write("in/model.safetensors", whole, bytes - 1);
    assert_refused(&model, "model.safetensors");
    assert_int_equal(remove(folder_file("in/model.safetensors")), 0);
    assert_refused(&model, "holds neither");
    free(whole);
    json_decref(root);
}

static void a_range_or_name_that_is_not_there_is_refused_and_adapters_are_left_alone(void **state)
{
    (void)state;
    float value = 7;
    json_t *root, *one = case_called("gpt2", &root);
    const coh_model model = made_resolve(made_folder(
        "in", json_object_get(one, "config"), json_object_get(one, "tensors"), COH_DTYPE_F32, 0));
    coh_folder *folder = open_folder(&model);
    assert_int_equal(numbers(folder, "ln_f.bias", 12, 1, &value), COH_ERR_CORRUPT);
    assert_int_equal(numbers(folder, "ln_f.bias", UINT64_MAX, 2, &value), COH_ERR_CORRUPT);
    assert_int_equal(numbers(folder, "ln_g.bias", 0, 1, &value), COH_ERR_CORRUPT);
    assert_int_equal(numbers(folder, "h.0.attn.c_attn.lora_A.weight", 0, 1, &value), COH_OK);
    assert_int_equal(numbers(folder, "h.0.attn.c_attn.lora_B.weight", 0, 1, &value), COH_OK);
    static const char *const alike[] = { "h.0.attn.c_attn.lora_A", "h.0.attn.c_attn.lora_A.bias",
                                         "h.0.attn.c_attn.lora_Ab.weight", "lora_A.weight" };
    for (size_t i = 0; i < sizeof(alike) / sizeof(alike[0]); i++)
        assert_int_equal(numbers(folder, alike[i], 0, 1, &value), COH_ERR_CORRUPT);
    assert_true(value == 7);
    coh_folder_close(folder);
    json_decref(root);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, folder_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(every_range_has_the_numbers_of_the_file_in_our_layout),
        CASE(what_nobody_changed_comes_out_bit_for_bit),
        CASE(a_tensor_of_several_pieces_is_turned_round_bit_for_bit),
        CASE(names_without_the_prefix_constants_and_a_second_head_are_taken),
        CASE(a_tied_head_stands_in_for_a_table_that_is_not_there),
        CASE(an_index_may_name_only_absent_tensors_that_are_not_needed),
        CASE(a_tied_head_is_left_out_only_where_every_byte_is_the_tables),
        CASE(a_tied_head_of_another_dtype_or_shape_is_refused),
        CASE(tensors_that_are_not_the_models_are_refused_with_one_sentence),
        CASE(a_folder_without_weights_and_one_cut_short_are_refused),
        CASE(a_range_or_name_that_is_not_there_is_refused_and_adapters_are_left_alone),
    };
    return cmocka_run_group_tests_name("folder", tests, NULL, NULL);
}
