/* Trains a GPT-2 through the public calls on batches from a file and writes what came of it, for
 * test_parity.py to hold against another implementation:
 *
 *     dump KEY=VALUE...     whole numbers: layers heads channels positions vocabulary sequences
 *                           tokens microbatches steps warmup deferred percent (of the
 *                           in-memory bytes; 0: no limit) threads gradients (steps 0..n-1
 *                           write theirs) bf16 (1: the model's dtype)
 *                           numbers: lr min_lr clip         texts: batches weights out disk states
 *
 * `batches`: i32, per step the tokens of all its micro-batches, then their targets. `weights`: f32,
 * the parameters in graph order; without it, those of initialisation. `states`: counts of steps
 * after which weights and moments are written, as in 0,1,5. Into the folder `out` go,
 * in graph order and f32:
 *
 *     tensors            a line a parameter: name, whether it decays, dims
 *     value-N m-N v-N    after N steps       gradient-N    of step N, before clipping
 *     steps              a line a step: rate, loss, norm
 *     plan               name and value: what the plan took and moved
 *     hash               of weights and moments at the end */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/schedule.h"
#include "cohobate/engine.h"
#include "cohobate/models.h"
#include "planner/graph.h"

typedef struct dump {
    int argument_count;
    char **arguments;
    coh_graph *graph;
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
}

static void write_stream(const dump *d, const char *name, coh_fetch what, int64_t count)
{
    FILE *file = open_out(d, name, count);
    for (size_t i = 0; i < d->graph->parameter_count; i++) {
        const size_t element_count = (size_t)elements(d, i);
        check(coh_engine_fetch(d->engine, (coh_parameter){ (int32_t)i }, what, d->values), name);
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
    write_stream(d, "value", COH_FETCH_VALUE, count);
    write_stream(d, "m", COH_FETCH_M, count);
    write_stream(d, "v", COH_FETCH_V, count);
}

static void write_plan(const dump *d, const coh_plan_options *options)
{
    coh_plan_summary summary;
    uint64_t in_memory_bytes;
    check(coh_plan_summarize(d->plan, &summary), "summary");
    check(coh_plan_in_memory_bytes(d->graph, options, &in_memory_bytes), "bytes in memory");
    const uint64_t link_bytes = summary.work_link_bytes + summary.grad_link_bytes +
                                summary.state_link_bytes + summary.other_link_bytes;
    FILE *file = open_out(d, "plan", -1);
    fprintf(file, "in_memory_bytes %" PRIu64 "\npeak_bytes %" PRIu64 "\nlink_bytes %" PRIu64 "\n",
            in_memory_bytes, summary.peak_bytes[0], link_bytes);
    fprintf(file, "kernel_path %s\n", coh_kernel_path());
    close_out(file);
}

static void make_graph(dump *d)
{
    const coh_gpt2_config config = {
        .layers = whole(d, "layers"),
        .heads = whole(d, "heads"),
        .channels = whole(d, "channels"),
        .positions = whole(d, "positions"),
        .vocabulary = whole(d, "vocabulary"),
        .layernorm_epsilon = 1e-5f,
        .dtype = whole(d, "bf16") ? COH_DTYPE_BF16 : COH_DTYPE_F32,
    };
    check(coh_gpt2_train_graph(&config, whole(d, "sequences"), whole(d, "tokens"), &d->graph),
          "graph");
    int64_t most = 0;
    for (size_t i = 0; i < d->graph->parameter_count; i++)
        if (elements(d, i) > most)
            most = elements(d, i);
    d->values = calloc((size_t)most, sizeof(float));
    if (!d->values)
        stop("memory", "too little");
}

static void make_engine(dump *d)
{
    coh_plan_options options;
    coh_plan_options_init(&options);
    options.thread_count = (int32_t)whole(d, "threads");
    options.microbatch_count = (int32_t)whole(d, "microbatches");
    options.deferred_update = (int32_t)whole(d, "deferred");
    if (whole(d, "percent") > 0) {
        uint64_t in_memory_bytes;
        check(coh_plan_in_memory_bytes(d->graph, &options, &in_memory_bytes), "bytes in memory");
        options.device_memory_bytes = in_memory_bytes / 100 * (uint64_t)whole(d, "percent");
        options.disk_bytes = UINT64_MAX;
    }
    check(coh_plan_create(d->graph, &options, &d->plan), "plan");
    write_plan(d, &options);

    coh_engine_options engine_options;
    coh_engine_options_init(&engine_options);
    engine_options.thread_count = options.thread_count;
    engine_options.disk_folder = text_or(d, "disk", ".");
    engine_options.disk_bytes = UINT64_MAX;
    check(coh_engine_create(d->plan, &engine_options, &d->engine), "engine");
}

/* The file holds one parameter after the other; pieces are asked for in any order. */
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

static void write_hash(const dump *d)
{
    uint64_t hash;
    check(coh_engine_hash(d->engine, &hash), "hash");
    FILE *file = open_out(d, "hash", -1);
    fprintf(file, "%016" PRIx64 "\n", hash);
    close_out(file);
}

static void run_step(dump *d, int64_t step, const cli_schedule *schedule)
{
    const size_t items =
        (size_t)(whole(d, "microbatches") * whole(d, "sequences") * whole(d, "tokens"));
    if (!d->batch)
        d->batch = calloc(2 * items, sizeof(int32_t));
    if (!d->batch || fread(d->batch, sizeof(int32_t), 2 * items, d->batches) != 2 * items)
        stop("batches", "are not all there");
    const coh_step_input input = {
        .step = (uint64_t)step,
        .seed = 1,
        .learning_rate = (float)cli_schedule_rate(schedule, (uint64_t)step),
        .clip = (float)number(d, "clip"),
        .inputs = { d->batch, d->batch + items },
    };
    coh_step_result result;
    check(coh_engine_step(d->engine, &input, &result), "step");
    fprintf(d->steps, "%.9g %.17g %.17g\n", (double)input.learning_rate, result.loss,
            result.grad_norm);
    if (step < whole(d, "gradients"))
        write_stream(d, "gradient", COH_FETCH_GRADIENT, step);
    write_states(d, step + 1);
}

int main(int argument_count, char **arguments)
{
    dump d = { .argument_count = argument_count, .arguments = arguments };
    make_graph(&d);
    make_engine(&d);
    write_tensors(&d);
    check(text_or(&d, "weights", NULL) ? coh_engine_init_from(d.engine, 1, weights_from_file, &d)
                                       : coh_engine_init(d.engine, 1),
          "weights");
    write_states(&d, 0);

    const cli_schedule schedule = {
        .highest = number(&d, "lr"),
        .lowest = number(&d, "min_lr"),
        .warmup_steps = (uint64_t)whole(&d, "warmup"),
        .schedule_steps = (uint64_t)whole(&d, "steps"),
    };
    d.batches = fopen(text_or(&d, "batches", ""), "rb");
    if (!d.batches)
        stop("batches", "cannot be read");
    d.steps = open_out(&d, "steps", -1);
    for (int64_t step = 0; step < whole(&d, "steps"); step++)
        run_step(&d, step, &schedule);
    close_out(d.steps);
    write_hash(&d);

    fclose(d.batches);
    coh_engine_destroy(d.engine);
    coh_plan_destroy(d.plan);
    coh_graph_destroy(d.graph);
    free(d.batch);
    free(d.values);
    return 0;
}
