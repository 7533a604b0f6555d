#include "tests/api/objects.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TOKENS = 8, VOCABULARY = 257, BUFFER_BYTES = 1 << 20, BUFFERS = 8 };

static char folder[256], paths[9][512];
static int32_t ids[64];
static const void *input_at[2] = { ids, ids };
static const coh_tensor first_tensor[COH_PORT_MAX];

static void need(coh_status status, const char *what)
{
    if (status == COH_OK)
        return;
    fprintf(stderr, "no valid %s: %s\n", what, coh_last_error());
    exit(99);
}

/* Returns a path in a folder of this process. */
static const char *path_of(int number, const char *name)
{
    if (folder[0] == '\0') {
        snprintf(folder, sizeof(folder), "api-objects-XXXXXX");
        if (mkdtemp(folder) == NULL)
            exit(99);
    }
    snprintf(paths[number], sizeof(paths[number]), "%s/%s", folder, name);
    return paths[number];
}

coh_gpt2_config valid_coh_gpt2_config(void)
{
    return (coh_gpt2_config){ .layers = 1,
                              .heads = 2,
                              .channels = 16,
                              .positions = TOKENS,
                              .vocabulary = VOCABULARY,
                              .layernorm_epsilon = 1e-5f };
}

coh_model valid_model_of(coh_family family)
{
    coh_model model = { .name = "tiny", .family = family };
    if (family == COH_FAMILY_GPT2)
        model.gpt2 = valid_coh_gpt2_config();
    else if (family == COH_FAMILY_OPT)
        model.opt = (coh_opt_config){ .layers = 1,
                                      .heads = 2,
                                      .channels = 16,
                                      .positions = TOKENS,
                                      .vocabulary = VOCABULARY,
                                      .inner = 32,
                                      .embedding = 16,
                                      .padding = 1,
                                      .init_std = 0.02f,
                                      .norm_before = 1,
                                      .last_norm = 1,
                                      .biases = 1 };
    else if (family == COH_FAMILY_GEMMA)
        model.gemma = (coh_gemma_config){ .layers = 2,
                                          .heads = 2,
                                          .channels = 16,
                                          .positions = TOKENS,
                                          .vocabulary = VOCABULARY,
                                          .kv_heads = 1,
                                          .head_width = 8,
                                          .inner = 32,
                                          .padding = -1,
                                          .window = 3,
                                          .pattern = 2,
                                          .scalar = 8,
                                          .rope.theta = 1e4,
                                          .local_theta = 1e4,
                                          .score_cap = 50,
                                          .logit_cap = 30,
                                          .rmsnorm_epsilon = 1e-6f,
                                          .init_std = 0.02f };
    else
        model.llama = (coh_llama_config){ .layers = 1,
                                          .heads = 2,
                                          .channels = 16,
                                          .positions = TOKENS,
                                          .vocabulary = VOCABULARY,
                                          .kv_heads = 1,
                                          .head_width = 8,
                                          .inner = 32,
                                          .padding = -1,
                                          .rope = { .theta = 1e4 },
                                          .rmsnorm_epsilon = 1e-5f,
                                          .init_std = 0.02f };
    return model;
}

coh_model valid_coh_model(void)
{
    return valid_model_of(COH_FAMILY_GPT2);
}

coh_graph *valid_coh_graph(void)
{
    const coh_model model = valid_coh_model();
    coh_graph *graph = NULL;
    need(coh_model_train_graph(&model, 1, TOKENS, &graph), "graph");
    return graph;
}

coh_graph *valid_open_graph(void)
{
    const coh_shape shape = valid_coh_shape();
    coh_graph *graph = NULL;
    coh_tensor tensor;
    need(coh_graph_create(&graph), "empty graph");
    need(coh_graph_input(graph, "first", &shape, &tensor), "input");
    return graph;
}

coh_plan_options valid_coh_plan_options(void)
{
    coh_plan_options options;
    coh_plan_options_init(&options);
    return options;
}

coh_plan *valid_coh_plan(void)
{
    static coh_plan *plan;
    const coh_plan_options options = valid_coh_plan_options();
    if (plan == NULL)
        need(coh_plan_create(valid_coh_graph(), &options, &plan), "plan");
    return plan;
}

coh_engine_options valid_coh_engine_options(void)
{
    coh_engine_options options;
    coh_engine_options_init(&options);
    return options;
}

coh_engine *valid_coh_engine(void)
{
    static coh_engine *engine;
    const coh_engine_options options = valid_coh_engine_options();
    if (engine == NULL) {
        need(coh_engine_create(valid_coh_plan(), &options, &engine), "engine");
        need(coh_engine_init(engine, 1), "parameters");
    }
    return engine;
}

coh_trace valid_coh_trace(void)
{
    static coh_trace *trace;
    if (trace == NULL)
        need(coh_plan_trace(valid_coh_plan(), &trace), "trace");
    return *trace;
}

coh_schedule valid_coh_schedule(void)
{
    return (coh_schedule){ .highest = 1e-3, .warmup_steps = 2, .schedule_steps = 9 };
}

coh_training_note valid_coh_training_note(void)
{
    coh_training_note note;
    coh_training_note_init(&note);
    return note;
}

coh_trace_step valid_coh_trace_step(void)
{
    static coh_trace_span spans[4096];
    if (valid_coh_trace().instruction_count > sizeof(spans) / sizeof(spans[0]))
        need(COH_ERR_INTERNAL, "room for spans");
    return (coh_trace_step){ .spans = spans };
}

coh_trace_file *valid_coh_trace_file(void)
{
    static coh_trace_file *file;
    const coh_trace trace = valid_coh_trace();
    if (file == NULL)
        need(coh_trace_file_create(path_of(7, "file.trace"), &trace, 2, &file), "trace file");
    return file;
}

coh_step_input valid_coh_step_input(void)
{
    return (coh_step_input){ .struct_bytes = sizeof(coh_step_input),
                             .learning_rate = 1e-3f,
                             .clip = 1,
                             .inputs = { input_at[0], input_at[1] } };
}

coh_profile *valid_coh_profile(void)
{
    static coh_profile *profile;
    if (profile == NULL)
        need(coh_profile_builtin_create(1, &profile), "profile");
    return profile;
}

coh_profile *valid_datasheet(void)
{
    static coh_profile *profile;
    if (profile == NULL)
        need(coh_profile_read("a100-40g", &profile), "datasheet");
    return profile;
}

coh_checkpoint_note valid_coh_checkpoint_note(void)
{
    return (coh_checkpoint_note){ .struct_bytes = sizeof(coh_checkpoint_note), .json = "{}" };
}

static const char *checkpoint_path(void)
{
    static int is_made;
    const coh_checkpoint_note note = valid_coh_checkpoint_note();
    const char *path = path_of(0, "checkpoint");
    if (!is_made)
        need(coh_engine_save(valid_coh_engine(), path, &note), "save");
    is_made = 1;
    return path;
}

coh_checkpoint *valid_coh_checkpoint(void)
{
    static coh_checkpoint *checkpoint;
    if (checkpoint == NULL)
        need(coh_checkpoint_open(checkpoint_path(), &checkpoint), "checkpoint");
    return checkpoint;
}

coh_tokenizer *valid_coh_tokenizer(void)
{
    static coh_tokenizer *tokenizer;
    if (tokenizer == NULL)
        need(coh_tokenizer_open("bytes", &tokenizer), "tokenizer");
    return tokenizer;
}

coh_chat *valid_coh_chat(void)
{
    static coh_chat *chat;
    if (chat == NULL)
        need(coh_chat_open(valid_coh_tokenizer(), NULL, COH_CHAT_FORM_PLAIN, &chat), "chat");
    return chat;
}

coh_chat_turn valid_coh_chat_turn(void)
{
    return (coh_chat_turn){ .role = COH_CHAT_USER, .text = "hello", .text_bytes = 5 };
}

static const char *text_path(void)
{
    const char *path = path_of(1, "text.txt");
    FILE *file = fopen(path, "w");
    if (file == NULL || fprintf(file, "%s", "one line of text, again and again\n") < 0)
        exit(99);
    fclose(file);
    return path;
}

static const char *token_path(void)
{
    const char *path = path_of(2, "tokens.bin");
    need(coh_token_file_build(valid_coh_tokenizer(), text_path(), path, 0, NULL, NULL), "tokens");
    return path;
}

coh_token_file *valid_coh_token_file(void)
{
    static coh_token_file *file;
    if (file == NULL)
        need(coh_token_file_open(token_path(), &file), "token file");
    return file;
}

coh_token_build_options valid_coh_token_build_options(void)
{
    coh_token_build_options options;
    coh_token_build_options_init(&options);
    options.in_path = text_path();
    options.out_path = path_of(3, "built.bin");
    return options;
}

coh_token_mix_options valid_coh_token_mix_options(void)
{
    coh_token_mix_options options;
    coh_token_mix_options_init(&options);
    options.out_path = path_of(6, "mixed.bin");
    return options;
}

coh_folder_write_options valid_coh_folder_write_options(void)
{
    return (coh_folder_write_options){ .struct_bytes = sizeof(coh_folder_write_options),
                                       .dtype = COH_DTYPE_F32 };
}

coh_adapters_write_options valid_coh_adapters_write_options(void)
{
    return (coh_adapters_write_options){ .struct_bytes = sizeof(coh_adapters_write_options),
                                         .dtype = COH_DTYPE_F32 };
}

static const char *folder_path(void)
{
    static int is_made;
    const char *path = path_of(4, "folder");
    const coh_model model = valid_coh_model();
    const coh_folder_write_options options = valid_coh_folder_write_options();
    if (!is_made)
        need(coh_folder_write(&model, &options, path, no_numbers, NULL), "folder");
    is_made = 1;
    return path;
}

coh_folder *valid_coh_folder(void)
{
    static coh_folder *open;
    static coh_model model;
    if (open == NULL) {
        need(coh_model_resolve(folder_path(), 0, &model), "model of a folder");
        need(coh_folder_open(&model, &open), "open folder");
    }
    return open;
}

coh_adapters valid_coh_adapters(void)
{
    return (coh_adapters){ .targets = "c_attn", .rank = 2, .alpha = 8 };
}

coh_adapter_folder *valid_coh_adapter_folder(void)
{
    static coh_adapter_folder *open;
    static coh_model model;
    const char *path = path_of(8, "adapters");
    const coh_adapters adapters = valid_coh_adapters();
    const coh_adapters_write_options options = valid_coh_adapters_write_options();
    if (open == NULL) {
        model = valid_coh_model();
        need(coh_model_adapters_set(&model, &adapters), "adapters");
        need(coh_adapters_write(&model, &options, path, no_numbers, NULL), "folder of adapters");
        model = valid_coh_model();
        need(coh_adapters_open(path, &model, &open), "open folder of adapters");
    }
    return open;
}

coh_merge *valid_coh_merge(void)
{
    static coh_merge *merge;
    static coh_model model;
    const coh_adapters adapters = valid_coh_adapters();
    if (merge == NULL) {
        model = valid_coh_model();
        need(coh_model_adapters_set(&model, &adapters), "adapters");
        need(coh_merge_open(&model, no_numbers, NULL, &merge), "merge");
    }
    return merge;
}

coh_measure_options valid_coh_measure_options(void)
{
    coh_measure_options options;
    coh_measure_options_init(&options);
    options.quick = 1;
    return options;
}

coh_op_kind valid_coh_op_kind(void)
{
    return coh_kind_relu;
}

coh_op_args valid_coh_op_args(void)
{
    return (coh_op_args){ .name = "added", .inputs = first_tensor, .block = -1 };
}

coh_layer valid_coh_layer(void)
{
    return (coh_layer){ .struct_bytes = sizeof(coh_layer),
                        .input_count = 1,
                        .parameter_count = 1,
                        .parameter = { { "weight", { -1 }, COH_INIT_ONE } } };
}

coh_chain_link valid_coh_chain_link(void)
{
    return (coh_chain_link)COH_LINK_OF(coh_kind_relu);
}

static void no_finding(void *context, const coh_op_finding *finding)
{
    (void)context, (void)finding;
}

coh_op_check_options valid_coh_op_check_options(void)
{
    static const coh_shape input = { .dtype = COH_DTYPE_F32, .rank = 2, .dim = { 2, 3 } };
    return (coh_op_check_options){ .struct_bytes = sizeof(coh_op_check_options),
                                   .inputs = &input,
                                   .found = no_finding };
}

coh_shape valid_coh_shape(void)
{
    return (coh_shape){ .dtype = COH_DTYPE_F32, .rank = 2, .dim = { 2, 3 } };
}

coh_call valid_coh_call(void)
{
    static const coh_random_cell cell = { .seed = 1 };
    return (coh_call){ .random_cell = &cell };
}

static void update_nothing(const coh_update_call *call)
{
    (void)call;
}

coh_optimizer valid_coh_optimizer(void)
{
    return (coh_optimizer){ .struct_bytes = sizeof(coh_optimizer),
                            .name = "nothing",
                            .revision = 1,
                            .stream_count = 1,
                            .streams = { { "velocity", 4, 1, 1 } },
                            .hyperparameter_count = 1,
                            .hyperparameters = { { "momentum", 0.9f, 0, 1 } },
                            .scalar_count = 1,
                            .update = update_nothing };
}

static coh_rank_parts keep_all(const coh_rank_levels *levels)
{
    (void)levels;
    return (coh_rank_parts){ 1, 1, 1 };
}

coh_rank_pattern valid_coh_rank_pattern(void)
{
    return (coh_rank_pattern){ .struct_bytes = sizeof(coh_rank_pattern),
                               .name = "nothing",
                               .parts = keep_all };
}

coh_rank_levels valid_coh_rank_levels(void)
{
    return (coh_rank_levels){ 2, 4, 8 };
}

static coh_status build_nothing(coh_own_graph *to)
{
    (void)to;
    return COH_ERR_ARGUMENT;
}

coh_extension valid_coh_extension(void)
{
    static const coh_own_model model = { .struct_bytes = sizeof(coh_own_model),
                                         .name = "nothing",
                                         .size = { 1, 1, 1, 1, 1, COH_DTYPE_F32 },
                                         .build = build_nothing };
    return (coh_extension){ .struct_bytes = sizeof(coh_extension),
                            .kind_abi = COH_KIND_ABI,
                            .name = "nothing",
                            .model_count = 1,
                            .models = { &model } };
}

coh_fold_shape valid_coh_fold_shape(void)
{
    return (coh_fold_shape){ { 2, 2 } };
}

coh_wires valid_coh_wires(void)
{
    return (coh_wires){ COH_WIRE_INT8, COH_WIRE_INT4 };
}

coh_nearest valid_coh_nearest(void)
{
    return (coh_nearest){ .word = "gpt2-x" };
}

coh_pin valid_coh_pin(void)
{
    return (coh_pin){ .target = "blocks.0", .place = COH_PIN_KEEP };
}

coh_space_item valid_coh_space_item(void)
{
    return (coh_space_item){ .folder = ".", .what = "a file", .bytes = 1 };
}

coh_disk valid_coh_disk(void)
{
    return (coh_disk){ .folder = ".", .bytes = UINT64_MAX };
}

coh_space_hold valid_coh_space_hold(void)
{
    return (coh_space_hold){ .fd = -1 };
}

coh_world_options valid_coh_world_options(void)
{
    return (coh_world_options){ .struct_bytes = sizeof(coh_world_options), .rank_count = 1 };
}

coh_world *valid_coh_world(void)
{
    static coh_world *world;
    const coh_world_options options = valid_coh_world_options();
    if (world == NULL)
        need(coh_world_open_threads(&options, &world), "world");
    return world;
}

static coh_status make_graph(void *context, int64_t microbatch, coh_graph **out_graph)
{
    const coh_model model = valid_coh_model();
    (void)context;
    return coh_model_train_graph(&model, microbatch, TOKENS, out_graph);
}

coh_batch valid_coh_batch(void)
{
    return (coh_batch){
        .struct_bytes = sizeof(coh_batch), .make_graph = make_graph, .batch = 4, .microbatch = 2
    };
}

coh_refusal valid_coh_refusal(void)
{
    return (coh_refusal){ .struct_bytes = sizeof(coh_refusal),
                          .status = COH_ERR_FULL,
                          .reason = COH_REFUSAL_STEP,
                          .given_bytes = 1,
                          .needed_bytes = 3,
                          .short_bytes = 2,
                          .change_count = 1 };
}

coh_run_lock valid_coh_run_lock(void)
{
    return (coh_run_lock){ .fd = -1 };
}

static int is(const char *function, const char *begin)
{
    return strncmp(function, begin, strlen(begin)) == 0;
}

const char *valid_text(const char *function, const char *name)
{
    if (is(name, "format"))
        return "a sentence";
    if (is(function, "coh_optimizer"))
        return "adamw";
    if (is(name, "own"))
        return "wte"; /* a pattern of parameters */
    if (is(function, "coh_engine_fetch_state"))
        return "m";
    if (is(function, "coh_chat_prompt_json"))
        return is(name, "system") ? "Be brief." : "[{\"role\": \"user\", \"content\": \"Hi\"}]";
    if (is(name, "json"))
        return "{\"family\": \"gpt2\"}";
    if (is(function, "coh_tokenizer_open"))
        return "bytes";
    if (is(function, "coh_tokenizer"))
        return "text";
    if (is(function, "coh_pin_parse"))
        return "blocks.0=keep";
    if (is(function, "coh_size_parse"))
        return "64MiB";
    if (is(function, "coh_profile_read"))
        return "built-in-2";
    if (is(function, "coh_profile_check_entry"))
        return "pcie";
    if (is(function, "coh_device_summarize"))
        return "host";
    if (is(function, "coh_model_preset") || is(function, "coh_gpt2_preset"))
        return "gpt2-nano";
    if (is(function, "coh_model_resolve"))
        return folder_path();
    if (is(function, "coh_graph_input"))
        return "second";
    if (is(function, "coh_folder_numbers") || is(function, "coh_merge_numbers"))
        return "wpe.weight";
    if (is(function, "coh_checkpoint_remove") || is(function, "coh_engine_save"))
        return path_of(5, "new");
    if (is(function, "coh_checkpoint") || is(function, "coh_engine_load"))
        return checkpoint_path();
    if (is(function, "coh_token_file_build"))
        return is(name, "in_path") ? text_path() : is(name, "out_path") ? path_of(5, "new") : NULL;
    if (is(function, "coh_token_file"))
        return token_path();
    if (is(name, "folder") || is(name, "disk_folder"))
        return ".";
    return is(name, "path") ? path_of(5, "new") : "name";
}

void *valid_object(const char *function, const char *name)
{
    (void)name;
    if (is(function, "coh_folder_numbers"))
        return valid_coh_folder();
    if (is(function, "coh_engine_fetch_state") || is(function, "coh_world_gather"))
        return scratch(BUFFERS - 1);
    if (is(function, "coh_checkpoint_read"))
        return scratch(0);
    return is(function, "coh_merge_numbers") ? valid_coh_merge() : NULL;
}

void *scratch(int number)
{
    static char buffers[BUFFERS][BUFFER_BYTES] __attribute__((aligned(64)));
    memset(buffers[number], 0, 4096);
    return buffers[number];
}

coh_status no_numbers(void *context, const char *name, uint64_t begin, uint64_t count,
                      float *values)
{
    (void)context, (void)name, (void)begin;
    memset(values, 0, count * sizeof(*values));
    return COH_OK;
}

coh_status no_parameters(void *context, coh_parameter parameter, const char *name, uint64_t begin,
                         uint64_t count, float *values)
{
    (void)parameter;
    return no_numbers(context, name, begin, count, values);
}

coh_status drop_parameters(void *context, coh_parameter parameter, const char *name, uint64_t begin,
                           uint64_t count, const float *values)
{
    (void)context, (void)parameter, (void)name, (void)begin, (void)count, (void)values;
    return COH_OK;
}

void no_report(void *context, const coh_kernel_timing *timing)
{
    (void)context, (void)timing;
}

void no_piece(void *argument, int64_t index)
{
    (void)argument, (void)index;
}
