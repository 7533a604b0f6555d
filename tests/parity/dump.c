/* Trains a model through the public calls on batches from a file and writes the results, which
 * test_parity.py and test_transformers.py compare with another implementation:
 *
 *     dump KEY=VALUE...     whole numbers: layers heads channels positions vocabulary sequences
 *                           tokens microbatches steps warmup deferred percent (of the
 *                           in-memory bytes; 0: no limit) threads gradients (steps 0..n-1
 *                           write theirs) bf16 (1: the model's dtype)
 *                           logits (1: writes those of the first micro-batch's tokens)
 *                           lora (rank of adapters; 0: none) folders (1: writes them at the end)
 *                           numbers: lr min_lr clip alpha dropout lora_dropout
 *                           texts: model batches weights out disk states targets device profile
 *
 * `model`: the path of a config.json; without it a GPT-2 of those sizes. `batches`: i32, per step
 * the tokens of all its micro-batches, then their targets. `weights`: f32, the parameters in graph
 * order; without it, initial values are drawn. `states`: numbers of steps after which weights and
 * moments are written, like 0,1,5. `device`: cuda:0, ...; without it the host. `profile`, of any
 * GPU, prices a GPU's plan. The folder `out` gets, in graph order and f32:
 *
 *     tensors            a line for each parameter: name, whether it decays, dims
 *     operators          their names, in the order that numbers them
 *     frozen             names of untrained parameters: they have no gradient, m and v
 *     published          a line each: name, name in a folder, whether it is transposed there
 *     logits             [sequences, tokens, vocabulary], of a decoder with the initial weights
 *     value-N m-N v-N    after N steps       gradient-N    of step N, before clipping
 *     steps              a line for each step: rate, loss, norm
 *     plan               name and value: resources and transfers of the plan
 *     hash               of weights and moments at the end
 *     adapters/ merged/  folders of adapters, and of the model with them merged into it */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file_text.h"
#include "cohobate/adapters.h"
#include "cohobate/engine.h"
#include "cohobate/machine.h"
#include "cohobate/models.h"
#include "cohobate/training_note.h"
#include "planner/graph.h"

typedef struct dump {
    int argument_count;
    char **arguments;
    coh_model model;
    coh_graph *graph;
    coh_profile *profile; /* for a GPU; NULL: the built-in one */
    coh_plan *plan;
    coh_engine *engine;
    float *values; /* of one parameter */
    int32_t *batch;
    FILE *batches, *steps;
} dump;

static _Noreturn void stop(const char *what, const char *why)
{
    fprintf(stderr, "dump: %s: %s\n", what, why);
    exit(1);
}

static void check(coh_status status, const char *what)
{
    if (status != COH_OK)
        stop(what, coh_last_error());
}

static const char *text_or(const dump *d, const char *key, const char *otherwise)
{
    const size_t key_bytes = strlen(key);
    for (int i = 0; i < d->argument_count; i++)
        if (strncmp(d->arguments[i], key, key_bytes) == 0 && d->arguments[i][key_bytes] == '=')
            return d->arguments[i] + key_bytes + 1;
    return otherwise;
}

static double number(const dump *d, const char *key)
{
    return strtod(text_or(d, key, "0"), NULL);
}

static int64_t whole(const dump *d, const char *key)
{
    return strtoll(text_or(d, key, "0"), NULL, 10);
}

static FILE *open_out(const dump *d, const char *name, int64_t count)
{
    char path[4096];
    if (count < 0)
        snprintf(path, sizeof(path), "%s/%s", text_or(d, "out", "."), name);
    else
        snprintf(path, sizeof(path), "%s/%s-%" PRId64, text_or(d, "out", "."), name, count);
    FILE *file = fopen(path, "wb");
    if (!file)
        stop(path, "cannot be written");
    return file;
}

static void close_out(FILE *file)
{
    if (ferror(file) || fclose(file) != 0)
        stop("a result", "was not written");
}

static int64_t elements(const dump *d, size_t parameter)
{
    return coh_shape_elements(&d->graph->parameters[parameter].facts.shape);
}

static void write_tensors(const dump *d)
{
    FILE *file = open_out(d, "tensors", -1);
    for (size_t i = 0; i < d->graph->parameter_count; i++) {
        const coh_graph_parameter *parameter = &d->graph->parameters[i];
        fprintf(file, "%s %d", parameter->name, parameter->facts.decays);
        for (int32_t k = 0; k < parameter->facts.shape.rank; k++)
            fprintf(file, " %" PRId64, parameter->facts.shape.dim[k]);
        fprintf(file, "\n");
    }
    close_out(file);
    file = open_out(d, "operators", -1);
    for (size_t i = 0; i < d->graph->op_count; i++)
        fprintf(file, "%s\n", d->graph->ops[i].name);
    close_out(file);
    file = open_out(d, "frozen", -1);
    for (size_t i = 0; i < d->graph->parameter_count; i++)
        if (d->graph->parameters[i].frozen)
            fprintf(file, "%s\n", d->graph->parameters[i].name);
    close_out(file);
}

static void write_published(const dump *d)
{
    FILE *file = open_out(d, "published", -1);
    coh_model_tensor tensor;
    for (int64_t i = 0; i < coh_model_tensor_count(&d->model); i++) {
        check(coh_model_tensor_at(&d->model, i, &tensor), "tensors");
        fprintf(file, "%s %s %" PRId32 "\n", tensor.name, tensor.published, tensor.transposed);
    }
    close_out(file);
}

/* Writes the values of all parameters, or the gradients or a state of those that are trained. */
static void write_stream(const dump *d, const char *name, int64_t count)
{
    const int is_value = strcmp(name, "value") == 0, is_gradient = strcmp(name, "gradient") == 0;
    FILE *file = open_out(d, name, count);
    for (size_t i = 0; i < d->graph->parameter_count; i++) {
        const size_t element_count = (size_t)elements(d, i);
        if (d->graph->parameters[i].frozen && !is_value)
            continue;
        const coh_parameter which = { (int32_t)i };
        check(is_value || is_gradient
                  ? coh_engine_fetch(d->engine, which,
                                     is_value ? COH_FETCH_VALUE : COH_FETCH_GRADIENT, d->values)
                  : coh_engine_fetch_state(d->engine, which, name, d->values),
              name);
        if (fwrite(d->values, sizeof(float), element_count, file) != element_count)
            stop(name, "was not written");
    }
    close_out(file);
}

static int is_listed(const char *list, int64_t count)
{
    for (char *end; *list; list = *end ? end + 1 : end)
        if (strtoll(list, &end, 10) == count)
            return 1;
    return 0;
}

static void write_states(const dump *d, int64_t count)
{
    if (!is_listed(text_or(d, "states", ""), count))
        return;
    write_stream(d, "value", count);
    const coh_optimizer *optimizer = coh_optimizer_find(text_or(d, "optimizer", "adamw"));
    for (int32_t i = 0; i < optimizer->stream_count; i++)
        write_stream(d, optimizer->streams[i].name, count);
}

static void write_plan(const dump *d, const coh_plan_options *options)
{
    coh_plan_summary summary = { .struct_bytes = sizeof(summary) };
    uint64_t in_memory_bytes;
    check(coh_plan_summarize(d->plan, &summary), "summary");
    check(coh_plan_in_memory_bytes(d->graph, options, &in_memory_bytes), "bytes in memory");
    const uint64_t link_bytes = summary.work_link_bytes + summary.grad_link_bytes +
                                summary.state_link_bytes + summary.other_link_bytes;
    FILE *file = open_out(d, "plan", -1);
    fprintf(file, "in_memory_bytes %" PRIu64 "\npeak_bytes %" PRIu64 "\nlink_bytes %" PRIu64 "\n",
            in_memory_bytes, summary.peak_bytes[0], link_bytes);
    fprintf(file, "kernel_path %s\n", options->kernel_path);
    close_out(file);
}

static void make_model(dump *d)
{
    const char *path = text_or(d, "model", NULL);
    char *text;
    size_t bytes;
    if (path) {
        check(coh_file_read_whole(path, 1 << 20, &text, &bytes), "config");
        check(coh_model_from_config(text, &d->model), "config");
        coh_free(text);
    } else {
        d->model.gpt2 = (coh_gpt2_config){ .layers = whole(d, "layers"),
                                           .heads = whole(d, "heads"),
                                           .channels = whole(d, "channels"),
                                           .positions = whole(d, "positions"),
                                           .vocabulary = whole(d, "vocabulary"),
                                           .layernorm_epsilon = 1e-5f };
    }
    coh_model_dtype_set(&d->model, whole(d, "bf16") ? COH_DTYPE_BF16 : COH_DTYPE_F32);
    coh_adapters adapters = { .rank = (int32_t)whole(d, "lora"),
                              .alpha = (float)number(d, "alpha") };
    snprintf(adapters.targets, sizeof(adapters.targets), "%s", text_or(d, "targets", ""));
    check(coh_model_adapters_set(&d->model, &adapters), "adapters");
    d->model.dropout = number(d, "dropout");
    d->model.lora_dropout = number(d, "lora_dropout");
}

static void make_graph(dump *d)
{
    check(coh_model_train_graph(&d->model, whole(d, "sequences"), whole(d, "tokens"), &d->graph),
          "graph");
    int64_t most = 0;
    for (size_t i = 0; i < d->graph->parameter_count; i++)
        if (elements(d, i) > most)
            most = elements(d, i);
    d->values = calloc((size_t)most, sizeof(float));
    if (!d->values)
        stop("memory", "too little");
}

/* Sets the device's defaults: for a GPU all of its memory, and main memory. */
static void start_options(const dump *d, coh_plan_options *plan, coh_engine_options *engine)
{
    coh_device_summary device = { .struct_bytes = sizeof(device) };
    coh_plan_options_init(plan);
    coh_engine_options_init(engine);
    engine->device = text_or(d, "device", NULL);
    check(coh_device_summarize(engine->device, &device), "device");
    if (!device.is_gpu)
        return;
    plan->profile = d->profile;
    plan->device_memory_bytes = device.memory_bytes;
    plan->host_memory_bytes = coh_machine_most_bytes();
    snprintf(plan->kernel_path, sizeof(plan->kernel_path), "%s", device.kernel_path);
}

static void make_engine(dump *d)
{
    coh_plan_options options;
    coh_engine_options engine_options;
    start_options(d, &options, &engine_options);
    options.thread_count = (int32_t)whole(d, "threads");
    options.microbatch_count = (int32_t)whole(d, "microbatches");
    options.deferred_update = (int32_t)whole(d, "deferred");
    snprintf(options.optimizer, sizeof(options.optimizer), "%s", text_or(d, "optimizer", ""));
    if (whole(d, "percent") > 0) {
        uint64_t in_memory_bytes;
        check(coh_plan_in_memory_bytes(d->graph, &options, &in_memory_bytes), "bytes in memory");
        options.device_memory_bytes = in_memory_bytes / 100 * (uint64_t)whole(d, "percent");
        options.disk_bytes = UINT64_MAX;
    }
    check(coh_plan_create(d->graph, &options, &d->plan), "plan");
    write_plan(d, &options);

    engine_options.thread_count = options.thread_count;
    engine_options.disk_folder = text_or(d, "disk", ".");
    engine_options.disk_bytes = UINT64_MAX;
    const coh_hyperparameter_value nesterov = { .name = "nesterov",
                                                .value = (float)number(d, "nesterov") };
    engine_options.hyperparameters = &nesterov;
    engine_options.hyperparameter_count = strcmp(options.optimizer, "sgd") == 0;
    check(coh_engine_create(d->plan, &engine_options, &d->engine), "engine");
}

/* The file has the parameters in order; pieces are read in any order. */
static coh_status weights_from_file(void *context, coh_parameter parameter, const char *name,
                                    uint64_t element_begin, uint64_t count, float *values)
{
    const dump *d = context;
    uint64_t at = element_begin;
    for (int32_t i = 0; i < parameter.index; i++)
        at += (uint64_t)elements(d, (size_t)i);
    FILE *file = fopen(text_or(d, "weights", ""), "rb");
    const int is_whole = file && fseek(file, (long)(at * sizeof(float)), SEEK_SET) == 0 &&
                         fread(values, sizeof(float), count, file) == count;
    if (file)
        fclose(file);
    if (!is_whole)
        return coh_kind_fail(COH_ERR_IO, "the weights of %s are not all there", name);
    return COH_OK;
}

/* ---- a decoder ---- */

static void decode(const dump *d, coh_engine *engine, coh_tensor logits, const int32_t *tokens,
                   FILE *file)
{
    for (int32_t t = 0; t < whole(d, "tokens"); t++) {
        const coh_step_input input = { .struct_bytes = sizeof(input),
                                       .seed = 1,
                                       .inputs = { &tokens[t], &t } };
        const void *row;
        size_t bytes;
        double loss;
        check(coh_engine_evaluate(engine, &input, &loss), "decoding");
        check(coh_engine_output(engine, logits, &row, &bytes), "logits");
        if (fwrite(row, 1, bytes, file) != bytes)
            stop("logits", "were not written");
    }
}

static void write_logits(dump *d)
{
    coh_graph *graph;
    coh_plan *plan;
    coh_engine *engine;
    coh_tensor logits;
    coh_plan_options options;
    coh_engine_options engine_options;
    start_options(d, &options, &engine_options);
    options.mode = COH_PLAN_INFER;
    check(coh_model_decode_graph(&d->model, whole(d, "tokens"), &graph, &logits), "decoder");
    check(coh_plan_create(graph, &options, &plan), "decoder's plan");
    check(coh_engine_create(plan, &engine_options, &engine), "decoder's engine");
    check(coh_engine_init_from(engine, 1, weights_from_file, d), "decoder's weights");
    FILE *file = open_out(d, "logits", -1);
    for (int64_t b = 0; b < whole(d, "sequences"); b++)
        decode(d, engine, logits, d->batch + b * whole(d, "tokens"), file);
    close_out(file);
    coh_engine_destroy(engine);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

/* ---- training ---- */

/* A coh_number_source: returns the engine's present parameters. */
static coh_status numbers_now(void *context, const char *name, uint64_t begin, uint64_t count,
                              float *values)
{
    dump *d = context;
    for (size_t i = 0; i < d->graph->parameter_count; i++) {
        if (strcmp(d->graph->parameters[i].name, name) != 0)
            continue;
        check(
            coh_engine_fetch(d->engine, (coh_parameter){ (int32_t)i }, COH_FETCH_VALUE, d->values),
            name);
        memcpy(values, d->values + begin, count * sizeof(*values));
        return COH_OK;
    }
    return coh_kind_fail(COH_ERR_ARGUMENT, "no parameter %s", name);
}

static void write_folders(dump *d)
{
    char path[4096];
    coh_merge *merge;
    const coh_adapters_write_options adapters = { .struct_bytes = sizeof(adapters),
                                                  .dtype = COH_DTYPE_F32 };
    const coh_folder_write_options merged = { .struct_bytes = sizeof(merged),
                                              .dtype = COH_DTYPE_F32 };
    snprintf(path, sizeof(path), "%s/adapters", text_or(d, "out", "."));
    check(coh_adapters_write(&d->model, &adapters, path, numbers_now, d), "adapters");
    snprintf(path, sizeof(path), "%s/merged", text_or(d, "out", "."));
    check(coh_merge_open(&d->model, numbers_now, d, &merge), "merging");
    check(coh_folder_write(&d->model, &merged, path, coh_merge_numbers, merge), "merged folder");
    coh_merge_close(merge);
}

static void write_hash(const dump *d)
{
    uint64_t hash;
    check(coh_engine_hash(d->engine, &hash), "hash");
    FILE *file = open_out(d, "hash", -1);
    fprintf(file, "%016" PRIx64 "\n", hash);
    close_out(file);
}

static size_t items_of(const dump *d)
{
    return (size_t)(whole(d, "microbatches") * whole(d, "sequences") * whole(d, "tokens"));
}

static void read_batch(dump *d)
{
    const size_t items = items_of(d);
    if (!d->batch)
        d->batch = calloc(2 * items, sizeof(int32_t));
    if (!d->batch || fread(d->batch, sizeof(int32_t), 2 * items, d->batches) != 2 * items)
        stop("batches", "are not all there");
}

static void run_step(dump *d, int64_t step, const coh_schedule *schedule)
{
    if (step > 0 || !whole(d, "logits"))
        read_batch(d);
    const coh_step_input input = {
        .struct_bytes = sizeof(input),
        .step = (uint64_t)step,
        .seed = 1,
        .learning_rate = (float)coh_schedule_rate(schedule, (uint64_t)step),
        .clip = (float)number(d, "clip"),
        .inputs = { d->batch, d->batch + items_of(d) },
    };
    coh_step_result result = { .struct_bytes = sizeof(result) };
    check(coh_engine_step(d->engine, &input, &result), "step");
    fprintf(d->steps, "%.9g %.17g %.17g\n", (double)input.learning_rate, result.loss,
            result.grad_norm);
    if (step < whole(d, "gradients"))
        write_stream(d, "gradient", step);
    write_states(d, step + 1);
}

int main(int argument_count, char **arguments)
{
    dump d = { .argument_count = argument_count, .arguments = arguments };
    if (text_or(&d, "profile", NULL))
        check(coh_profile_read(text_or(&d, "profile", NULL), &d.profile), "profile");
    make_model(&d);
    make_graph(&d);
    make_engine(&d);
    write_tensors(&d);
    write_published(&d);
    check(text_or(&d, "weights", NULL) ? coh_engine_init_from(d.engine, 1, weights_from_file, &d)
                                       : coh_engine_init(d.engine, 1),
          "weights");
    write_states(&d, 0);

    const coh_schedule schedule = {
        .highest = number(&d, "lr"),
        .lowest = number(&d, "min_lr"),
        .warmup_steps = (uint64_t)whole(&d, "warmup"),
        .schedule_steps = (uint64_t)whole(&d, "steps"),
    };
    d.batches = fopen(text_or(&d, "batches", ""), "rb");
    if (!d.batches)
        stop("batches", "cannot be read");
    if (whole(&d, "logits")) {
        read_batch(&d);
        write_logits(&d);
    }
    d.steps = open_out(&d, "steps", -1);
    for (int64_t step = 0; step < whole(&d, "steps"); step++)
        run_step(&d, step, &schedule);
    close_out(d.steps);
    write_hash(&d);
    if (whole(&d, "folders"))
        write_folders(&d);

    fclose(d.batches);
    coh_engine_destroy(d.engine);
    coh_plan_destroy(d.plan);
    coh_profile_destroy(d.profile);
    coh_graph_destroy(d.graph);
    free(d.batch);
    free(d.values);
    return 0;
}
