/* Runs optimizer steps of a model on request: one side of a comparison, kept alive so that the
 * other side can run between its steps (benchmarks/measure.py drives it).
 *
 *     step gpt2 --batch 4 --sequence 64 --threads 2
 *         starts, and prints one JSON line of facts; then on standard input
 *     run 3
 *         three steps, one JSON line
 *
 *     mpirun -n 2 step gpt2 --batch 4 ...
 *         ranks of 4 sequences each; rank 0 reads and prints
 *
 * A step is that of `cohobate train`: forward, loss, backward, clipping to norm 1, AdamW. The
 * tokens are random and the same in each step. Only public headers are used, so this measures what
 * a program that uses the library gets. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "benchmarks/measure.h"
#include "cohobate/cohobate.h"

enum { PINS_MOST = 8, RECORD_STEPS = 3 };

typedef struct settings {
    const char *model; /* a preset's name, or a folder with a config.json */
    const char *dtype, *disk, *profile;
    const char *record;      /* the steps' trace, as train writes it; NULL: none */
    const char *calibration; /* its file; NULL: none */
    int calibrates;          /* 1: this run's times are added to it */
    coh_recompute recompute;
    int64_t batch, micro_batch, sequence, vocabulary;
    int64_t threads, budget_percent;
    uint64_t budget_bytes, emulate_bytes, link_bytes_per_s, chunk_bytes;
    coh_pin pins[PINS_MOST];
    int32_t pin_count;
    int64_t replicas;    /* 0: one */
    const char *pattern; /* of ranks */
} settings;

typedef struct run {
    settings settings;
    coh_profile *profile; /* NULL: built-in constants */
    coh_profile_summary profile_facts;
    uint32_t calibrated_runs;
    coh_graph *graph;
    coh_plan *plan;
    coh_plan_summary summary;
    uint64_t in_memory_bytes;
    coh_world *world; /* of one rank, unless a launcher has started this process */
    coh_engine *engine;
    coh_trace_file *trace; /* NULL: none */
    int32_t *tokens, *targets;
    uint64_t step;
} run;

static int fail(const char *what)
{
    fprintf(stderr, "step: %s: %s\n", what, coh_last_error());
    return 1;
}

/* ---- settings ---- */

static int size_setting(const char *value, uint64_t *out_bytes)
{
    return coh_size_parse(value, out_bytes) == COH_OK ? 0 : fail(value);
}

/* Sets a flag's value. Returns 0, or 1 after printing what is wrong. */
static int set(settings *s, const char *flag, const char *value)
{
    const struct {
        const char *flag;
        int64_t *count;
    } counts[] = { { "--batch", &s->batch },       { "--micro-batch", &s->micro_batch },
                   { "--sequence", &s->sequence }, { "--vocabulary", &s->vocabulary },
                   { "--threads", &s->threads },   { "--budget-percent", &s->budget_percent },
                   { "--replicas", &s->replicas } };
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        if (strcmp(flag, counts[i].flag) == 0) {
            *counts[i].count = atoll(value);
            return *counts[i].count < 1;
        }
    if (strcmp(flag, "--budget") == 0)
        return size_setting(value, &s->budget_bytes);
    if (strcmp(flag, "--emulate-host") == 0)
        return size_setting(value, &s->emulate_bytes);
    if (strcmp(flag, "--link-rate") == 0)
        return size_setting(value, &s->link_bytes_per_s);
    if (strcmp(flag, "--chunk") == 0)
        return size_setting(value, &s->chunk_bytes);
    if (strcmp(flag, "--pin") == 0 && s->pin_count < PINS_MOST)
        return coh_pin_parse(value, &s->pins[s->pin_count++]) == COH_OK ? 0 : fail(value);
    if (strcmp(flag, "--disk") == 0)
        s->disk = value;
    else if (strcmp(flag, "--pattern") == 0)
        s->pattern = value;
    else if (strcmp(flag, "--profile") == 0)
        s->profile = value;
    else if (strcmp(flag, "--record") == 0)
        s->record = value;
    else if (strcmp(flag, "--calibration") == 0 || strcmp(flag, "--calibrate") == 0) {
        s->calibration = value;
        s->calibrates = strcmp(flag, "--calibrate") == 0;
    } else if (strcmp(flag, "--recompute") == 0 && strcmp(value, "auto") == 0)
        s->recompute = COH_RECOMPUTE_AUTO;
    else if (strcmp(flag, "--recompute") == 0 && strcmp(value, "none") == 0)
        s->recompute = COH_RECOMPUTE_NONE;
    else if (strcmp(flag, "--recompute") == 0 && strcmp(value, "all") == 0)
        s->recompute = COH_RECOMPUTE_ALL;
    else if (strcmp(flag, "--dtype") == 0 &&
             (strcmp(value, "f32") == 0 || strcmp(value, "bf16") == 0))
        s->dtype = value;
    else {
        fprintf(stderr, "step: no %s %s\n", flag, value);
        return 1;
    }
    return 0;
}

static int parse(int argc, char **argv, settings *s)
{
    *s = (settings){ .model = argc > 1 ? argv[1] : "",
                     .dtype = "f32",
                     .batch = 4,
                     .sequence = 64,
                     .pattern = "",
                     .threads = 2,
                     .budget_bytes = UINT64_MAX };
    for (int i = 2; i < argc; i += 2)
        if (i + 1 == argc || set(s, argv[i], argv[i + 1]) != 0) {
            fprintf(stderr, "usage: step MODEL [--batch N] [--micro-batch N] [--sequence N]"
                            " [--vocabulary N] [--threads N] [--dtype f32|bf16]"
                            " [--budget SIZE | --budget-percent N] [--disk DIR]"
                            " [--emulate-host SIZE [--link-rate SIZE]]"
                            " [--recompute auto|none|all] [--profile FILE"
                            " [--calibration FILE | --calibrate FILE]]"
                            " [--record FILE] [--chunk SIZE] [--pin OPERATORS=PLACE]..."
                            " [--replicas N] [--pattern NAME]\n");
            return 1;
        }
    if (s->micro_batch == 0)
        s->micro_batch = s->batch < 8 ? s->batch : 8;
    return 0;
}

/* ---- start ---- */

static int plan_run(run *r)
{
    settings *s = &r->settings;
    coh_model model;
    coh_plan_options options;
    if (coh_model_resolve(s->model, s->vocabulary, &model) != COH_OK)
        return fail("model");
    s->vocabulary = coh_model_size_get(&model).vocabulary;
    coh_model_dtype_set(&model, strcmp(s->dtype, "bf16") == 0 ? COH_DTYPE_BF16 : COH_DTYPE_F32);
    if (coh_model_train_graph(&model, s->micro_batch, s->sequence, &r->graph) != COH_OK)
        return fail("graph");
    r->profile_facts.struct_bytes = sizeof(r->profile_facts);
    r->summary.struct_bytes = sizeof(r->summary);
    if (s->profile != NULL && (coh_profile_read(s->profile, &r->profile) != COH_OK ||
                               coh_profile_summarize(r->profile, &r->profile_facts) != COH_OK))
        return fail("profile");
    if (r->profile != NULL && s->calibration != NULL &&
        coh_profile_calibrate(r->profile, s->calibration, &r->calibrated_runs) != COH_OK)
        return fail("calibration");
    coh_plan_options_init(&options);
    options.thread_count = (int32_t)s->threads;
    options.microbatch_count = (int32_t)(s->batch / s->micro_batch);
    options.replicas.factors[0] = (int32_t)s->replicas;
    options.ranks.factors[0] = coh_world_size(r->world);
    options.f32_gradients = coh_world_size(r->world) > 1 || s->replicas > 1;
    snprintf(options.rank_pattern, sizeof(options.rank_pattern), "%s", s->pattern);
    options.profile = r->profile;
    options.recompute = s->recompute;
    if (coh_plan_in_memory_bytes(r->graph, &options, &r->in_memory_bytes) != COH_OK)
        return fail("plan in memory");
    options.device_memory_bytes = s->budget_bytes;
    if (s->budget_percent > 0)
        options.device_memory_bytes = r->in_memory_bytes / 100 * (uint64_t)s->budget_percent;
    options.disk_bytes = s->disk ? UINT64_MAX : 0;
    options.chunk_bytes = s->chunk_bytes;
    options.pins = s->pins;
    options.pin_count = s->pin_count;
    options.emulate_host = 1;
    options.host_memory_bytes = s->emulate_bytes;
    options.link_bytes_per_s = (double)s->link_bytes_per_s;
    if (coh_plan_create(r->graph, &options, &r->plan) != COH_OK ||
        coh_plan_summarize(r->plan, &r->summary) != COH_OK)
        return fail("plan");
    return 0;
}

static void log_sentence(void *context, const char *sentence)
{
    (void)context;
    fprintf(stderr, "step: %s\n", sentence);
}

static int open_world(run *r)
{
    const coh_world_options options = { .struct_bytes = sizeof(options) };
    return coh_world_open(&options, &r->world) == COH_OK ? 0 : fail("world");
}

static int start_engine(run *r)
{
    coh_engine_options options;
    coh_engine_options_init(&options);
    options.disk_folder = r->settings.disk;
    options.disk_bytes = UINT64_MAX;
    options.thread_count = (int32_t)r->settings.threads;
    options.world = coh_world_size(r->world) > 1 ? r->world : NULL;
    options.log = log_sentence;
    options.record_steps = r->settings.record != NULL ? RECORD_STEPS : 0;
    if (coh_engine_create(r->plan, &options, &r->engine) != COH_OK)
        return fail("engine");
    if (coh_engine_init(r->engine, 1) != COH_OK)
        return fail("initialisation");
    return 0;
}

static int start_trace(run *r)
{
    coh_trace *trace = NULL;
    if (r->settings.record == NULL)
        return 0;
    coh_status status = coh_engine_trace(r->engine, &trace);
    if (status == COH_OK)
        status = coh_trace_file_create(r->settings.record, trace, RECORD_STEPS, &r->trace);
    coh_trace_free(trace);
    return status == COH_OK ? 0 : fail("trace");
}

/* Writes the record of a step, as train does after each step. */
static int record(const run *r, const coh_step_result *result)
{
    coh_trace_step step;
    coh_trace_latency latencies[COH_LANE_COUNT];
    if (r->trace == NULL)
        return 0;
    if (coh_engine_recorded(r->engine, result->step, &step) != COH_OK ||
        coh_engine_latencies(r->engine, latencies) != COH_OK ||
        coh_trace_file_put(r->trace, (uint32_t)(step.step % RECORD_STEPS), &step) != COH_OK ||
        coh_trace_file_put_latencies(r->trace, latencies) != COH_OK)
        return fail("record");
    return 0;
}

static int make_tokens(run *r)
{
    size_t count = (size_t)(r->settings.batch * r->settings.sequence);
    uint32_t state = 1 + (uint32_t)coh_world_rank(r->world); /* each rank has its own */
    r->tokens = malloc(count * sizeof(int32_t));
    r->targets = malloc(count * sizeof(int32_t));
    if (r->tokens == NULL || r->targets == NULL)
        return 1;
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        r->tokens[i] = (int32_t)((state >> 8) % (uint32_t)r->settings.vocabulary);
    }
    for (size_t i = 0; i < count; i++)
        r->targets[i] = r->tokens[(i + 1) % count];
    return 0;
}

/* ---- what is printed ---- */

/* Returns the peak resident memory of the process (VmHWM), in KiB. */
static uint64_t peak_resident_kib(void)
{
    char line[256];
    uint64_t kib = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (status != NULL && fgets(line, sizeof(line), status) != NULL)
        if (sscanf(line, "VmHWM: %" SCNu64, &kib) == 1)
            break;
    if (status != NULL)
        fclose(status);
    return kib;
}

static int print_facts(const run *r)
{
    coh_engine_facts facts = { .struct_bytes = sizeof(facts) };
    if (coh_world_rank(r->world) > 0)
        return 0;
    if (coh_engine_facts_get(r->engine, &facts) != COH_OK)
        return fail("facts");
    printf("{\"model\": \"%s\", \"dtype\": \"%s\", \"batch\": %" PRId64
           ", \"micro_batch\": %" PRId64 ", \"sequence\": %" PRId64 ", \"vocabulary\": %" PRId64
           ", \"threads\": %" PRId64 ", \"ranks\": %d",
           r->settings.model, r->settings.dtype, r->settings.batch, r->settings.micro_batch,
           r->settings.sequence, r->settings.vocabulary, r->settings.threads,
           (int)coh_world_size(r->world));
    printf(", \"parameters\": %" PRIu64 ", \"in_memory_bytes\": %" PRIu64
           ", \"peak_bytes\": [%" PRIu64 ", %" PRIu64 ", %" PRIu64
           "], \"predicted_s\": %.6f, \"p10_s\": %.6f, \"p90_s\": %.6f, \"bound_s\": %.6f"
           ", \"numeric_fingerprint\": \"%016" PRIx64 "\"",
           r->summary.parameter_count, r->in_memory_bytes, r->summary.peak_bytes[COH_TIER_DEVICE],
           r->summary.peak_bytes[COH_TIER_HOST], r->summary.peak_bytes[COH_TIER_DISK],
           (double)r->summary.step_ns * 1e-9, (double)r->summary.step_p10_ns * 1e-9,
           (double)r->summary.step_p90_ns * 1e-9, (double)r->summary.bound_ns * 1e-9,
           r->summary.numeric_fingerprint);
    printf(", \"profile\": \"%016" PRIx64 "\", \"recomputes\": %d, \"caches\": %d"
           ", \"lines\": %u, \"calibrated_runs\": %u",
           r->profile_facts.hash, (int)r->summary.recomputes, (int)r->summary.caches,
           r->summary.instruction_count, r->calibrated_runs);
    printf(", \"kernel_path\": \"%s\", \"store\": \"%s\", \"store_direct\": %d"
           ", \"store_read_bytes_per_s\": %" PRIu64 ", \"store_write_bytes_per_s\": %" PRIu64 "}\n",
           facts.kernel_path, facts.store_backend, facts.store_direct, facts.store_read_bytes_per_s,
           facts.store_write_bytes_per_s);
    return fflush(stdout);
}

/* Prints the lines' times by class: [opcode, lane, kind, lines, predicted seconds, measured
 * seconds]. */
static int print_classes(const run *r)
{
    coh_instruction_class classes[COH_INSTRUCTION_CLASSES_MOST];
    uint32_t count;
    if (coh_engine_instruction_classes(r->engine, classes, &count) != COH_OK)
        return fail("times of lines");
    printf("[");
    for (uint32_t i = 0; i < count; i++)
        printf("%s[\"%s\", \"%s\", \"%s\", %u, %.7f, %.7f]", i ? ", " : "", classes[i].opcode,
               classes[i].lane, classes[i].kind, classes[i].instruction_count,
               classes[i].predicted_s, classes[i].measured_s);
    printf("]");
    return 0;
}

/* Returns the largest peak of all ranks. */
static int largest_resident(const run *r, uint64_t *out_kib)
{
    uint64_t all[COH_WORLD_RANKS_MOST];
    const uint64_t own = peak_resident_kib();
    *out_kib = 0;
    if (coh_world_gather(r->world, &own, sizeof(own), all) != COH_OK)
        return fail("world");
    for (int32_t i = 0; i < coh_world_size(r->world); i++)
        *out_kib = all[i] > *out_kib ? all[i] : *out_kib;
    return 0;
}

/* Prints the times of `count` steps, and facts of the last one. */
static int print_steps(const run *r, const double *seconds, int count,
                       const coh_step_result *result)
{
    uint64_t resident_kib;
    if (largest_resident(r, &resident_kib) != 0)
        return 1;
    if (coh_world_rank(r->world) > 0)
        return 0;
    printf("{\"seconds\": [");
    for (int i = 0; i < count; i++)
        printf("%s%.6f", i ? ", " : "", seconds[i]);
    printf("], \"loss\": %.9g, \"exposed_s\": [", result->loss);
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        printf("%s%.6f", lane ? ", " : "", (double)result->exposed_ns[lane] * 1e-9);
    printf("], \"link_bytes\": [");
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        printf("%s%" PRIu64, lane ? ", " : "", result->link_bytes[lane]);
    printf("], \"peak_bytes\": [");
    for (int tier = 0; tier < COH_TIER_COUNT; tier++)
        printf("%s%" PRIu64, tier ? ", " : "", result->peak_bytes[tier]);
    printf("], \"classes\": ");
    if (print_classes(r) != 0)
        return 1;
    printf(", \"resident_kib\": %" PRIu64 "}\n", resident_kib);
    return 0;
}

/* Runs steps in sequence, two in flight as in `train`. Each step's time is from the previous result
 * (or the start) to its own, so the times add up to the total. */
static int run_steps(void *argument, int count)
{
    run *r = argument;
    double seconds[MEASURE_RUNS_MOST];
    coh_step_result result = { .struct_bytes = sizeof(result) };
    uint64_t before = coh_clock_ns(), now;
    for (int i = 0, sent = 0; i < count; i++) {
        for (; sent < count && sent < i + 2; sent++) {
            coh_step_input input = { .struct_bytes = sizeof(input),
                                     .step = r->step++,
                                     .seed = 1,
                                     .learning_rate = 1e-4f,
                                     .clip = 1,
                                     .inputs = { r->tokens, r->targets } };
            if (coh_engine_submit(r->engine, &input) != COH_OK)
                return fail("step");
        }
        if (coh_engine_wait(r->engine, &result) != COH_OK || record(r, &result) != 0)
            return fail("step");
        now = coh_clock_ns();
        seconds[i] = (double)(now - before) * 1e-9;
        before = now;
    }
    return print_steps(r, seconds, count, &result);
}

/* Adds the steps' times to the calibration, for later plans. */
static int calibrate(const run *r)
{
    coh_calibration_class classes[COH_CALIBRATION_CLASSES_MOST];
    uint32_t count = 0;
    if (!r->settings.calibrates)
        return 0;
    if (coh_engine_calibrate(r->engine, r->settings.calibration, classes, &count) != COH_OK)
        return fail("calibration");
    for (uint32_t i = 0; i < count; i++)
        fprintf(stderr, "step: %-9s took %.3f of what the profile says\n", classes[i].opcode,
                classes[i].factor);
    return 0;
}

int main(int argc, char **argv)
{
    run r = { 0 };
    int status = parse(argc, argv, &r.settings) || open_world(&r) || plan_run(&r) ||
                 start_engine(&r) || start_trace(&r) || make_tokens(&r) || print_facts(&r) ||
                 measure_serve_ranks(r.world, run_steps, &r) || calibrate(&r);
    coh_trace_file_close(r.trace);
    coh_engine_destroy(r.engine);
    coh_plan_destroy(r.plan);
    coh_graph_destroy(r.graph);
    coh_profile_destroy(r.profile);
    coh_world_close(r.world);
    free(r.tokens);
    free(r.targets);
    return status;
}
