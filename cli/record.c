/* Writes run.json and trace.bin. The one idea: the tables are written before the first step, so a
 * step only copies its record into a slot of the file. Next: record.h, the files;
 * train_loop.c, the caller. */
#include "cli/record.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/dtype.h"
#include "cli/screen.h"
#include "report/run.h"

/* More than a line of steps.jsonl, or run.json of a usual command, takes. */
enum { LINE_BYTES = 512, RUN_BYTES = 65536, ARGUMENT_BYTES = 1500 };

/* ---- run.json ---- */

static coh_status add_command(const cli_options *options, int descriptor, cli_line *line)
{
    char argument[ARGUMENT_BYTES];
    cli_line_add_json(line, "'command': ['cohobate'");
    for (int i = 0; i < options->argument_count; i++) {
        /* A name need not be UTF-8, and a cut may fall within a character; JSON is UTF-8. */
        report_copy_printable(options->arguments[i], argument, sizeof(argument));
        cli_line_add_json(line, "%s", argument);
        if (line->used > sizeof(line->text) / 4)
            CLI_TRY(cli_line_write(line, descriptor));
    }
    cli_line_add_json(line, "]");
    return COH_OK;
}

/* The name of the processor, from /proc; "" if the system does not say. */
static void processor_name(char out_name[128])
{
    char text[4096];
    out_name[0] = '\0';
    const int descriptor = open("/proc/cpuinfo", O_RDONLY | O_CLOEXEC);
    const ssize_t bytes = descriptor < 0 ? -1 : read(descriptor, text, sizeof(text) - 1);
    if (descriptor >= 0)
        close(descriptor);
    text[bytes > 0 ? bytes : 0] = '\0';
    const char *name = strstr(text, "model name");
    name = name ? strchr(name, ':') : NULL;
    if (!name)
        return;
    name += 1 + (name[1] == ' ');
    snprintf(out_name, 128, "%.*s", (int)strcspn(name, "\n"), name);
}

/* The --state that a dtype and an optimizer are; NULL: none of them. */
static const char *state_of(coh_dtype dtype, const char *optimizer)
{
    if (strcmp(optimizer, "adamw") == 0)
        return dtype == COH_DTYPE_F32 ? "f32" : "split";
    if (dtype == COH_DTYPE_F32)
        return NULL;
    return strcmp(optimizer, "adamw8") == 0     ? "lean"
           : strcmp(optimizer, "adamw8sr") == 0 ? "sr"
                                                : NULL;
}

static void add_machine(const cli_job *job, cli_line *line)
{
    coh_device_summary device = { .struct_bytes = sizeof(device) };
    char processor[128];
    if (coh_device_summarize(job->budget.engine_options.device, &device) != COH_OK)
        device.name[0] = '\0';
    processor_name(processor);
    cli_line_add_json(line,
                      "'device': %s, 'machine': {'cpu': %s, 'cores': %d, 'memory_bytes': %" PRIu64
                      ", 'gpu': %s}",
                      device.name, processor, coh_machine_core_count(),
                      (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE),
                      device.is_gpu ? device.name : NULL);
}

static void add_recipe(const cli_job *job, const coh_trace *trace, cli_line *line)
{
    const cli_recipe *recipe = &job->recipe;
    const coh_dtype dtype = coh_model_size_get(&job->model).dtype;
    const char *optimizer = cli_recipe_optimizer(recipe);
    double flops = 0;
    for (uint32_t i = 0; i < trace->instruction_count; i++) {
        const char *opcode = trace->opcodes[trace->instructions[i].opcode];
        if (strcmp(opcode, "forward") == 0 || strcmp(opcode, "backward") == 0)
            flops += trace->instructions[i].flops;
    }
    cli_line_add_json(line,
                      "'first_step': %" PRIu64 ", 'steps': %" PRIu64 ", 'seed': %" PRIu64
                      ", 'dtype': %s, 'optimizer': %s, 'state': %s"
                      ", 'batch': %" PRId64 ", 'micro_batch': %" PRId64 ", 'sequence': %" PRId64
                      ", 'tokens_per_step': %" PRId64 ", 'parameters': %" PRIu64
                      ", 'flops_per_step': %.17g, 'peak_flops_per_s': %.17g",
                      job->first_step, recipe->steps, recipe->seed, cli_dtype_name(dtype),
                      optimizer, state_of(dtype, optimizer), recipe->batch, recipe->micro_batch,
                      recipe->sequence, recipe->batch * recipe->sequence,
                      job->summary.parameter_count, flops, trace->flops_per_s);
    if (job->data_window_count > 0)
        cli_line_add_json(line, "'data_tokens': %" PRIu64 ", 'data_sequences': %" PRIu64,
                          job->data_token_count, job->data_window_count);
}

/* The folders of --disk, as absolute paths: the same folder has the same name in every run. */
static coh_status add_disks(const cli_options *options, int descriptor, cli_line *line)
{
    char path[PATH_MAX], folder[PATH_MAX];
    cli_line_add_json(line, "'disks': [");
    for (int32_t i = 0; i < options->disk_count; i++) {
        const char *found = realpath(options->disk[i].folder, path);
        report_copy_printable(found ? found : options->disk[i].folder, folder, sizeof(folder));
        cli_line_add_json(line, "%s", folder);
        CLI_TRY(cli_line_write(line, descriptor));
    }
    cli_line_add(line, "]");
    return COH_OK;
}

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* All that a note of a checkpoint keeps of the run, and how its ranks are divided: a comparison
 * names what differs (report/diff.c). */
static coh_status add_settings(const cli_job *job, int descriptor, cli_line *line)
{
    char note[COH_TRAINING_NOTE_BYTES], wires[COH_WIRES_TEXT_BYTES];
    CLI_TRY(coh_wires_write(&job->wires, wires));
    cli_line_add_json(line, "'ranks': %d, 'pattern': %s, 'wire': %s, 'reduce': %s, 'recipe': ",
                      cli_job_rank_count(job), job->summary.rank_pattern, wires,
                      coh_reduce_name(job->plan_options.reduce));
    CLI_TRY(cli_line_write(line, descriptor));
    CLI_TRY(coh_training_note_write(&job->recipe, &job->model, note, sizeof(note)));
    line->flushed = '}'; /* so that a comma follows */
    return cli_write(descriptor, note, strlen(note));
}

/* The predicted step without far tiers: its compute alone, without recomputation. NaN: not known,
 * because the host makes updates. */
static double in_memory_s(const coh_plan_summary *summary)
{
    if (summary->host_update_bytes > 0)
        return NAN;
    return (double)(summary->bounds_ns[COH_PLAN_BOUND_COMPUTE] - summary->recompute_ns) * 1e-9;
}

static coh_status add_plan(const cli_job *job, const coh_trace *trace, cli_line *line)
{
    const coh_plan_summary *summary = &job->summary;
    coh_profile_summary profile = { .struct_bytes = sizeof(profile) };
    CLI_TRY(coh_profile_summarize(coh_plan_profile(job->plan), &profile));
    cli_line_add_json(line,
                      "'plan_hash': '%016" PRIx64 "', 'profile_hash': '%016" PRIx64
                      "', 'profile': %s, 'predicted_step_s': %.9f"
                      ", 'predicted_in_memory_step_s': %.9f, 'limit': %s, 'threads': %d"
                      ", 'calibrated': %i, 'endurance_bytes': %.17g",
                      summary->program_hash, profile.hash, profile.name,
                      (double)summary->step_ns * 1e-9, in_memory_s(summary),
                      cli_limit_name(summary), (int)job->budget.engine_options.thread_count,
                      job->calibration.runs > 0,
                      profile.endurance_bytes > 0 ? (double)profile.endurance_bytes : NAN);
    cli_line_add_json_tiers(line, "predicted_peak_bytes", summary->peak_bytes);
    cli_line_add_json(line, "'budget_bytes': {");
    for (int tier = 0; tier < COH_TIER_COUNT; tier++)
        if (trace->budget_bytes[tier] == UINT64_MAX)
            cli_line_add_json(line, "%s: null", coh_tier_name((coh_tier)tier));
        else
            cli_line_add_json(line, "%s: %" PRIu64, coh_tier_name((coh_tier)tier),
                              trace->budget_bytes[tier]);
    cli_line_add_json(line, "}, 'least_link_bytes': {");
    for (int lane = COH_LANE_H2D; lane < COH_LANE_COUNT; lane++)
        if (summary->link_bytes[lane] > 0)
            cli_line_add_json(line, "%s: %" PRIu64, coh_lane_name((coh_lane)lane),
                              summary->least_link_bytes[lane]);
    cli_line_add_json(line, "}");
    return COH_OK;
}

/* ---- fallbacks: where the engine took a slower way than usual ---- */

static void add_store_fallbacks(const coh_engine_facts *facts, cli_line *line)
{
    if (facts->store_direct == 0)
        cli_line_add_json(line, "%s",
                          "the working store goes through the page cache, because its folder's "
                          "file system refuses O_DIRECT");
    if (strcmp(facts->store_backend, "posix") == 0)
        cli_line_add_json(line, "%s", "threads move the working store, without io_uring");
    if (strcmp(facts->store_backend, "io_uring") == 0)
        cli_line_add_json(line, "%s",
                          "io_uring moves the working store without registered memory, because "
                          "the system refuses to register it, most often for its limit of locked "
                          "memory (ulimit -l)");
}

/* `facts` NULL: of a plan, which has none. */
static void add_fallbacks(const cli_job *job, const coh_engine_facts *facts, cli_line *line)
{
    char text[512];
    int small_pages = 0;
    cli_line_add_json(line, "'fallbacks': [");
    if (facts) {
        add_store_fallbacks(facts, line);
        for (int tier = 0; tier < COH_TIER_COUNT; tier++)
            small_pages |= facts->arena_node_count[tier] > 0 && !facts->arena_huge_pages[tier];
        if (small_pages)
            cli_line_add_json(line, "%s",
                              "memory has small pages, because the system refuses huge ones");
        snprintf(text, sizeof(text), "products run without OpenBLAS: %.400s",
                 coh_kernel_fallback());
        if (!job->on_gpu && coh_kernel_fallback()[0])
            cli_line_add_json(line, "%s", text);
        snprintf(text, sizeof(text),
                 "%d ranks (--threads %d) share %d core%s, and each was priced alone: steps take "
                 "longer than predicted, and changes to the prices do not help",
                 (int)cli_crowded_ranks(job), (int)job->plan_options.thread_count,
                 (int)coh_machine_core_count(), coh_machine_core_count() > 1 ? "s" : "");
        if (cli_job_rank_count(job) > 1 && cli_crowded_ranks(job) > 0)
            cli_line_add_json(line, "%s", text);
    }
    cli_line_add(line, "]");
}

static void print_now(char out_text[32])
{
    const time_t now = time(NULL);
    struct tm date;
    gmtime_r(&now, &date);
    strftime(out_text, 32, "%Y-%m-%dT%H:%M:%SZ", &date);
}

coh_status cli_record_write_run(const cli_job *job, const coh_trace *trace,
                                const coh_engine_facts *facts, int descriptor)
{
    char started[32];
    cli_line line;
    print_now(started);
    cli_line_clear(&line);
    cli_line_add_json(&line, "{'version': 1, 'model': %s, 'started': %s, 'cohobate': %s",
                      job->model.name, started, coh_version());
    CLI_TRY(add_command(job->options, descriptor, &line));
    add_machine(job, &line);
    CLI_TRY(cli_line_write(&line, descriptor));
    add_recipe(job, trace, &line);
    if (job->makes_tokens) /* only these may be replaced by a later run */
        cli_line_add_json(&line, "'own_tokens': %s", name_of(job->recipe.data));
    CLI_TRY(add_settings(job, descriptor, &line));
    CLI_TRY(add_disks(job->options, descriptor, &line));
    CLI_TRY(add_plan(job, trace, &line));
    add_fallbacks(job, facts, &line);
    cli_line_add_json(&line, "}\n");
    return cli_line_write(&line, descriptor);
}

/* Makes a file next to `path`, to replace it. */
static int open_fresh(const char *path, char out_fresh[CLI_PATH_BYTES + 32])
{
    snprintf(out_fresh, CLI_PATH_BYTES + 32, "%s.partial", path);
    return open(out_fresh, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0666);
}

/* Gives the file its name if it was written, so that a reader finds the old or the new one. */
static coh_status put_fresh(coh_status status, int descriptor, const char *fresh, const char *path)
{
    if (close(descriptor) != 0 && status == COH_OK)
        status = cli_fail(COH_ERR_IO, "%s: %s", fresh, strerror(errno));
    if (status == COH_OK && rename(fresh, path) != 0)
        status = cli_fail(COH_ERR_IO, "%s: %s", path, strerror(errno));
    if (status != COH_OK)
        (void)unlink(fresh);
    return status;
}

static coh_status replace_run(const cli_job *job, const coh_trace *trace,
                              const coh_engine_facts *facts, const char *path)
{
    char fresh[CLI_PATH_BYTES + 32];
    const int descriptor = open_fresh(path, fresh);
    if (descriptor < 0)
        return cli_fail(COH_ERR_IO, "%s: %s", fresh, strerror(errno));
    return put_fresh(cli_record_write_run(job, trace, facts, descriptor), descriptor, fresh, path);
}

/* Copies run.json up to its last brace; *out_last is the byte before. Fails also if it is not as it
 * was written. */
static coh_status copy_run(int from, int to, char *out_last)
{
    char text[RUN_BYTES];
    const off_t end = lseek(from, 0, SEEK_END) - 2;
    if (end < 1 || pread(from, text, 3, end - 1) != 3 || memcmp(text + 1, "}\n", 2) != 0)
        return cli_fail(COH_ERR_CORRUPT, "run.json is not whole");
    *out_last = text[0];
    for (off_t at = 0; at < end;) {
        const size_t wanted = end - at < RUN_BYTES ? (size_t)(end - at) : RUN_BYTES;
        const ssize_t got = pread(from, text, wanted, at);
        if (got <= 0)
            return cli_fail(COH_ERR_IO, "run.json cannot be read: %s", strerror(errno));
        CLI_TRY(cli_write(to, text, (size_t)got));
        at += got;
    }
    return COH_OK;
}

void cli_record_end(const char *folder, const char *how, uint64_t step, const char *sentence)
{
    char path[CLI_PATH_BYTES + 16], fresh[CLI_PATH_BYTES + 32], now[32], why[1024];
    cli_line line;
    snprintf(why, sizeof(why), "%s", coh_last_error());
    snprintf(path, sizeof(path), "%s/run.json", folder);
    const int former = open(path, O_RDONLY | O_CLOEXEC);
    const int descriptor = former >= 0 ? open_fresh(path, fresh) : -1;
    if (descriptor >= 0) {
        print_now(now);
        cli_line_clear(&line);
        coh_status status = copy_run(former, descriptor, &line.flushed);
        cli_line_add_json(&line, "'ended': {'how': %s, 'step': %" PRIu64 ", 'time': %s", how, step,
                          now);
        if (sentence[0])
            cli_line_add_json(&line, "'sentence': %s", sentence);
        cli_line_add_json(&line, "}}\n");
        if (status == COH_OK)
            status = cli_line_write(&line, descriptor);
        if (put_fresh(status, descriptor, fresh, path) != COH_OK)
            (void)cli_fail(COH_ERR_IO, "%s", why);
    }
    if (former >= 0)
        close(former);
}

/* ---- trace.bin ---- */

static uint32_t slots_of(const cli_options *options)
{
    return options->record > 0 ? (uint32_t)options->record + CLI_SLOW_STEPS : 0;
}

coh_status cli_record_bytes(const cli_job *job, uint64_t *out_bytes)
{
    coh_trace *trace;
    CLI_TRY(coh_plan_trace(job->plan, &trace));
    const uint64_t steps = job->recipe.steps; /* 0: not known yet */
    *out_bytes = RUN_BYTES + (steps > job->first_step ? steps - job->first_step : 0) * LINE_BYTES;
    if (slots_of(job->options) > 0)
        *out_bytes += coh_trace_file_bytes(trace, slots_of(job->options));
    coh_trace_free(trace);
    return COH_OK;
}

/* Prints once why a file ends; the run continues. */
static void give_up(cli_record *record, const char *name)
{
    cli_note("warning: %s is not written (any more): %s; the run continues without it", name,
             coh_last_error());
    if (record->file)
        coh_trace_file_close(record->file);
    record->file = NULL;
}

coh_status cli_record_open(const cli_job *job, const coh_engine *engine,
                           const coh_engine_facts *facts, const char *folder,
                           cli_record *out_record)
{
    char path[CLI_PATH_BYTES + 16];
    coh_trace *trace;
    *out_record = (cli_record){ .kept = (uint32_t)job->options->record };
    CLI_TRY(coh_engine_trace(engine, &trace));
    snprintf(path, sizeof(path), "%s/run.json", folder);
    if (replace_run(job, trace, facts, path) != COH_OK)
        give_up(out_record, "run.json");
    snprintf(path, sizeof(path), "%s/trace.bin", folder);
    (void)unlink(path); /* of the run before a resume: its steps have other tables */
    if (out_record->kept > 0 &&
        coh_trace_file_create(path, trace, slots_of(job->options), &out_record->file) != COH_OK)
        give_up(out_record, "trace.bin");
    coh_trace_free(trace);
    return COH_OK;
}

/* Returns the median time of the last steps; 0: too few. */
static uint64_t median_ns(const cli_record *record)
{
    uint64_t sorted[CLI_MEDIAN_STEPS], count = record->step_count;
    if (count < CLI_MEDIAN_LEAST)
        return 0;
    count = count < CLI_MEDIAN_STEPS ? count : CLI_MEDIAN_STEPS;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t at = i;
        for (; at > 0 && sorted[at - 1] > record->recent_ns[i]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = record->recent_ns[i];
    }
    return sorted[count / 2];
}

/* Returns the slot of a step, and sets is_slow. */
static uint32_t choose_slot(cli_record *record, coh_trace_step *step)
{
    const uint64_t median = median_ns(record);
    uint32_t least = 0;
    record->recent_ns[record->step_count++ % CLI_MEDIAN_STEPS] = step->step_ns;
    for (uint32_t i = 1; i < CLI_SLOW_STEPS; i++)
        least = record->slow_ns[i] < record->slow_ns[least] ? i : least;
    step->is_slow = median > 0 && step->step_ns > median + median / 2;
    if (step->is_slow && step->step_ns > record->slow_ns[least]) {
        record->slow_ns[least] = step->step_ns;
        return record->kept + least;
    }
    return (uint32_t)(record->put_count++ % record->kept);
}

void cli_record_step(cli_record *record, coh_engine *engine, const coh_step_result *result,
                     cli_step_health *out_health)
{
    coh_trace_step step;
    coh_trace_latency latencies[COH_LANE_COUNT];
    memset(&out_health->counters, 0xff, sizeof(out_health->counters));
    out_health->is_slow = 0;
    /* A failure of the engine is reported by its next call. */
    if (!record->file || coh_engine_recorded(engine, result->step, &step) != COH_OK ||
        coh_engine_latencies(engine, latencies) != COH_OK)
        return;
    const uint32_t slot = choose_slot(record, &step);
    *out_health = (cli_step_health){ .is_slow = step.is_slow, .counters = step.counters };
    if (coh_trace_file_put(record->file, slot, &step) != COH_OK ||
        coh_trace_file_put_latencies(record->file, latencies) != COH_OK)
        give_up(record, "trace.bin");
}

void cli_record_close(cli_record *record)
{
    coh_trace_file_close(record->file);
    record->file = NULL;
}
