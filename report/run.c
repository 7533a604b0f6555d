/* Reads the files of a run's folder. The one idea: run.json must be there, everything else may be
 * missing or cut off, because a run may have been killed. Next: analysis.h. */
#include "report/run.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file_text.h"
#include "base/json.h"

#define VERSION         1
#define FACTS_BYTES     ((uint64_t)16 << 20)
#define LINE_BYTES_MOST (1u << 20)

void report_note(report_run *run, const char *format, ...)
{
    va_list arguments;
    if (run->note_count == REPORT_NOTES)
        return;
    char *note = run->notes[run->note_count++];
    va_start(arguments, format);
    vsnprintf(note, REPORT_NOTE_BYTES, format, arguments);
    va_end(arguments);
    coh_text_make_printable(note);
}

void report_copy_printable(const char *text, char *out, size_t bytes)
{
    snprintf(out, bytes, "%s", text);
    coh_text_make_printable(out);
}

/* ---- facts ---- */

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static double number_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* A number of steps, which fits a uint64_t. */
static double count_of(const json_t *object, const char *key)
{
    const double number = number_of(object, key);
    return number >= 0 && number <= 1e15 ? number : NAN;
}

static void read_names(const json_t *object, double *out, int count, const char *(*name)(int index))
{
    for (int i = 0; i < count; i++)
        out[i] = number_of(object, name(i));
}

static const char *tier_name(int tier)
{
    return coh_tier_name((coh_tier)tier);
}

static const char *lane_name(int lane)
{
    return coh_lane_name((coh_lane)lane);
}

static coh_status join_command(const json_t *arguments, char **out)
{
    coh_text text = { 0 };
    coh_status status = coh_text_add(&text, "%s", "");
    for (size_t i = 0; i < json_array_size(arguments) && status == COH_OK; i++) {
        const char *word = json_string_value(json_array_get(arguments, i));
        status = coh_text_add(&text, "%s%s", i ? " " : "", word ? word : "?");
    }
    *out = text.data;
    return status;
}

static coh_status read_facts(const json_t *root, report_facts *f)
{
    const json_t *machine = json_object_get(root, "machine");
    const json_t *calibrated = json_object_get(root, "calibrated");
    const json_t *ended = json_object_get(root, "ended");
    *f = (report_facts){
        .model = text_of(root, "model"),
        .started = text_of(root, "started"),
        .version = text_of(root, "cohobate"),
        .device = text_of(root, "device"),
        .cpu = text_of(machine, "cpu"),
        .gpu = text_of(machine, "gpu"),
        .dtype = text_of(root, "dtype"),
        .optimizer = text_of(root, "optimizer"),
        .state = text_of(root, "state"),
        .profile = text_of(root, "profile"),
        .plan_hash = text_of(root, "plan_hash"),
        .profile_hash = text_of(root, "profile_hash"),
        .limit = text_of(root, "limit"),
        .pattern = text_of(root, "pattern"),
        .wire = text_of(root, "wire"),
        .reduce = text_of(root, "reduce"),
        .recipe = json_object_get(root, "recipe"),
        .disks = json_object_get(root, "disks"),
        .ranks = number_of(root, "ranks"),
        .seed = number_of(root, "seed"),
        .cores = number_of(machine, "cores"),
        .memory_bytes = number_of(machine, "memory_bytes"),
        .batch = number_of(root, "batch"),
        .micro_batch = number_of(root, "micro_batch"),
        .sequence = number_of(root, "sequence"),
        .tokens_per_step = number_of(root, "tokens_per_step"),
        .parameters = number_of(root, "parameters"),
        .flops_per_step = number_of(root, "flops_per_step"),
        .peak_flops_per_s = number_of(root, "peak_flops_per_s"),
        .predicted_step_s = number_of(root, "predicted_step_s"),
        .predicted_in_memory_step_s = number_of(root, "predicted_in_memory_step_s"),
        .threads = number_of(root, "threads"),
        .first_step = count_of(root, "first_step"),
        .steps = count_of(root, "steps"),
        .endurance_bytes = number_of(root, "endurance_bytes"),
        .fallbacks = json_object_get(root, "fallbacks"),
        .ended_how = text_of(ended, "how"),
        .ended_sentence = text_of(ended, "sentence"),
        .ended_step = count_of(ended, "step"),
        .is_calibrated = json_is_boolean(calibrated) ? json_is_true(calibrated) : -1,
    };
    read_names(json_object_get(root, "predicted_peak_bytes"), f->predicted_peak_bytes,
               COH_TIER_COUNT, tier_name);
    read_names(json_object_get(root, "budget_bytes"), f->budget_bytes, COH_TIER_COUNT, tier_name);
    read_names(json_object_get(root, "least_link_bytes"), f->least_link_bytes, COH_LANE_COUNT,
               lane_name);
    return join_command(json_object_get(root, "command"), &f->command);
}

int report_guesses(const report_facts *facts, int calibrated)
{
    return strncmp(facts->profile, "built-in", strlen("built-in")) == 0 &&
           !(calibrated && facts->is_calibrated != 0);
}

static coh_status take_facts(const char *text, size_t bytes, report_run *run)
{
    COH_TRY(coh_json_load_any(text, bytes, &run->json));
    const double version = number_of(run->json, "version");
    if (version > VERSION)
        return coh_fail(COH_ERR_CORRUPT,
                        "it is of version %g, and this program reads %d: use a newer program",
                        version, VERSION);
    if (version != VERSION)
        return coh_fail(COH_ERR_CORRUPT, "it has no version %d: it is not a run's", VERSION);
    return read_facts(run->json, &run->facts);
}

const char *report_fallback(const report_run *run, size_t index)
{
    return json_string_value(json_array_get(run->facts.fallbacks, index));
}

/* ---- steps ---- */

static double number_or_zero(const json_t *object, const char *key)
{
    const double number = number_of(object, key);
    return isfinite(number) ? number : 0;
}

/* A loss that was NaN is null in JSON. */
static int take_line(const json_t *object, report_line *line)
{
    const json_t *step = json_object_get(object, "step");
    const json_t *exposed = json_object_get(object, "exposed_seconds");
    const json_t *bytes = json_object_get(object, "link_bytes");
    const json_t *peaks = json_object_get(object, "peak_bytes");
    if (!json_is_integer(step) || json_integer_value(step) < 0 ||
        json_integer_value(step) > UINT32_MAX)
        return 0;
    *line = (report_line){ .step = (uint32_t)json_integer_value(step) };
    line->is_validation = json_object_get(object, "validation_loss") != NULL;
    line->loss = number_of(object, line->is_validation ? "validation_loss" : "loss");
    line->norm = number_of(object, "grad_norm");
    line->rate = number_of(object, "lr");
    line->seconds = number_of(object, "seconds");
    line->tokens = number_of(object, "tokens");
    line->windows = number_of(object, "windows");
    line->windows_total = number_of(object, "windows_total");
    line->is_skipped = json_is_true(json_object_get(object, "skipped"));
    line->is_slow = json_is_true(json_object_get(object, "slow"));
    line->throttled_s = number_or_zero(object, "throttled_seconds");
    line->store_retries = number_or_zero(object, "store_retries");
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        line->exposed_s[lane] = number_or_zero(exposed, lane_name(lane));
        line->link_bytes[lane] = number_or_zero(bytes, lane_name(lane));
    }
    read_names(peaks, line->peak_bytes, COH_TIER_COUNT, tier_name);
    return 1;
}

int report_line_read(const char *text, size_t bytes, report_line *out_line)
{
    json_error_t error;
    json_t *object =
        bytes <= LINE_BYTES_MOST ? json_loadb(text, bytes, JSON_ALLOW_NUL, &error) : NULL;
    const int is_line = json_is_object(object) && take_line(object, out_line);
    json_decref(object);
    return is_line;
}

static void add_numbers(const report_line *line, report_run *run)
{
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        run->exposed_s[lane] += line->exposed_s[lane];
        run->link_bytes[lane] += line->link_bytes[lane];
    }
    for (int tier = 0; tier < COH_TIER_COUNT; tier++)
        run->peak_bytes[tier] = fmax(run->peak_bytes[tier], line->peak_bytes[tier]);
    run->skipped_count += (uint64_t)line->is_skipped;
}

static coh_status add_line(const report_line *line, report_run *run)
{
    /* a resumed run writes the steps after its checkpoint again, and validates after them again */
    while (run->validation_count > 0 &&
           run->validations[run->validation_count - 1].step >= line->step)
        run->validation_count--;
    if (line->is_validation) {
        COH_TRY(COH_GROW(&run->validations, &run->validation_capacity, run->validation_count + 1));
        run->validations[run->validation_count++] =
            (report_validation){ line->step, (float)line->loss };
        return COH_OK;
    }
    while (run->row_count > 0 && run->rows[run->row_count - 1].step >= line->step)
        run->row_count--;
    COH_TRY(COH_GROW(&run->rows, &run->row_capacity, run->row_count + 1));
    run->line_count++;
    if (line->step == run->facts.first_step + 1) /* another process begins */
        memset(run->peak_bytes, 0, sizeof(run->peak_bytes));
    run->rows[run->row_count++] = (report_row){ .step = line->step,
                                                .loss = (float)line->loss,
                                                .norm = (float)line->norm,
                                                .rate = (float)line->rate,
                                                .seconds = (float)line->seconds };
    add_numbers(line, run);
    return COH_OK;
}

static coh_status read_lines(FILE *file, report_run *run)
{
    char *line = NULL;
    size_t room = 0;
    coh_status status = COH_OK;
    for (ssize_t got; status == COH_OK && (got = getline(&line, &room, file)) >= 0;) {
        report_line read;
        if (got > 0 && report_line_read(line, (size_t)got, &read))
            status = add_line(&read, run);
        else
            run->bad_lines++;
    }
    free(line);
    return status;
}

static coh_status read_rows(const char *path, report_run *run)
{
    struct stat facts;
    FILE *file = stat(path, &facts) == 0 && S_ISREG(facts.st_mode) ? fopen(path, "re") : NULL;
    if (!file) {
        report_note(run, "There are no curves: steps.jsonl cannot be read: %s.", strerror(errno));
        return COH_OK;
    }
    const coh_status status = read_lines(file, run);
    fclose(file);
    if (run->bad_lines)
        report_note(run, "%" PRIu64 " line%s of steps.jsonl cannot be read and %s left out.",
                    run->bad_lines, run->bad_lines == 1 ? "" : "s",
                    run->bad_lines == 1 ? "is" : "are");
    return status;
}

/* ---- the folder ---- */

static coh_status path_of(const char *folder, const char *name, char *out)
{
    if (snprintf(out, PATH_MAX, "%s/%s", folder, name) >= PATH_MAX)
        return coh_fail(COH_ERR_ARGUMENT, "the path %s is too long", folder);
    return COH_OK;
}

const char *report_step_of(const char *name, uint64_t *out_step)
{
    enum { DIGITS_MOST = 18 };
    const size_t digits = strncmp(name, "step-", 5) == 0 ? strspn(name + 5, "0123456789") : 0;
    *out_step = digits > 0 && digits <= DIGITS_MOST ? strtoull(name + 5, NULL, 10) : 0;
    return digits > 0 && digits <= DIGITS_MOST ? name + 5 + digits : NULL;
}

/* Has the folder a checkpoint, from which a run can be resumed? */
static int has_checkpoint(const char *folder)
{
    DIR *listing = opendir(folder);
    const struct dirent *entry;
    int is_found = 0;
    while (listing && !is_found && (entry = readdir(listing))) {
        uint64_t step;
        const char *rest = report_step_of(entry->d_name, &step);
        is_found = rest && rest[0] == '\0';
    }
    if (listing)
        closedir(listing);
    return is_found;
}

/* Adds the remedy to the failure of run.json. A newer version's names its own. */
static coh_status refuse_facts(coh_status status, const char *path, const report_run *run)
{
    char why[512];
    snprintf(why, sizeof(why), "%s", coh_last_error());
    if (status != COH_ERR_CORRUPT || (run->json && number_of(run->json, "version") > VERSION))
        return coh_fail_prefix(status, "%s", path);
    if (!has_checkpoint(run->folder))
        return coh_fail(status,
                        "%s: %s; the folder holds no checkpoint to resume from: give another run",
                        path, why);
    return coh_fail(status,
                    "%s: %s; no checkpoint depends on it, and cohobate train --resume %s writes it "
                    "again",
                    path, why, run->folder);
}

/* Is the folder a checkpoint in a run's? `out_parent` is then that one. */
static int is_checkpoint(const char *folder, char out_parent[PATH_MAX])
{
    char path[PATH_MAX];
    size_t end = strlen(folder);
    while (end > 1 && folder[end - 1] == '/')
        end--;
    size_t begin = end, length;
    while (begin > 0 && folder[begin - 1] != '/')
        begin--;
    const char *name = folder + begin;
    length = begin > 1 ? begin - 1 : begin;
    snprintf(out_parent, PATH_MAX, "%.*s", (int)length, folder);
    if (length == 0)
        snprintf(out_parent, PATH_MAX, ".");
    return strncmp(name, "step-", 5) == 0 && path_of(out_parent, "run.json", path) == COH_OK &&
           access(path, F_OK) == 0;
}

static coh_status read_json(const char *path, report_run *run)
{
    char *text, parent[PATH_MAX];
    size_t bytes;
    struct stat facts;
    const int is_gone = stat(path, &facts) != 0 && (errno == ENOENT || errno == ENOTDIR);
    if (is_gone && is_checkpoint(run->folder, parent))
        return coh_fail(COH_ERR_ARGUMENT,
                        "%s is a checkpoint, and a run's folder is needed: give %s", run->folder,
                        parent);
    if (is_gone)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%s does not exist: give the folder of a run that recorded itself", path);
    COH_TRY(coh_file_read_whole(path, FACTS_BYTES, &text, &bytes));
    const coh_status status = take_facts(text, bytes, run);
    coh_free(text);
    return status == COH_OK ? COH_OK : refuse_facts(status, path, run);
}

/* A trace that cannot be read costs its sections. */
static coh_status read_trace(const char *path, report_run *run)
{
    struct stat facts;
    if (stat(path, &facts) != 0) {
        report_note(run, "No step was recorded: trace.bin does not exist.");
        return COH_OK;
    }
    const coh_status status = coh_trace_read(path, &run->own_trace, &run->lost_steps);
    if (status == COH_ERR_MEMORY)
        return status;
    run->is_trace_unreadable = status != COH_OK;
    if (status != COH_OK)
        report_note(run, "The recorded steps cannot be shown: %s.", coh_last_error());
    else if (run->lost_steps)
        report_note(run, "%" PRIu32 " recorded part%s of trace.bin %s damaged and left out.",
                    run->lost_steps, run->lost_steps == 1 ? "" : "s",
                    run->lost_steps == 1 ? "is" : "are");
    run->trace = run->own_trace;
    return COH_OK;
}

static coh_status read_only_facts(const char *folder, report_run *run)
{
    char path[PATH_MAX];
    COH_TRY(coh_alloc_text(folder, &run->folder));
    COH_TRY(path_of(folder, "run.json", path));
    return read_json(path, run);
}

static coh_status read_folder(const char *folder, report_run *run)
{
    char path[PATH_MAX];
    COH_TRY(read_only_facts(folder, run));
    COH_TRY(path_of(folder, "steps.jsonl", path));
    COH_TRY(read_rows(path, run));
    COH_TRY(path_of(folder, "trace.bin", path));
    return read_trace(path, run);
}

coh_status report_run_read(const char *folder, report_run *out_run)
{
    *out_run = (report_run){ 0 };
    const coh_status status = read_folder(folder, out_run);
    if (status != COH_OK)
        report_run_close(out_run);
    return status;
}

coh_status report_run_read_facts(const char *folder, report_run *out_run)
{
    *out_run = (report_run){ 0 };
    const coh_status status = read_only_facts(folder, out_run);
    if (status != COH_OK)
        report_run_close(out_run);
    return status;
}

coh_status report_run_of_plan(const char *json, size_t bytes, const coh_trace *trace,
                              report_run *out_run)
{
    *out_run = (report_run){ .trace = trace };
    const coh_status status = take_facts(json, bytes, out_run);
    if (status != COH_OK)
        report_run_close(out_run);
    return status;
}

const char *report_run_argument(const report_run *run, size_t index)
{
    return json_string_value(json_array_get(json_object_get(run->json, "command"), index));
}

const char *report_run_own_tokens(const report_run *run)
{
    return json_string_value(json_object_get(run->json, "own_tokens"));
}

void report_run_close(report_run *run)
{
    json_decref(run->json);
    coh_free(run->facts.command);
    coh_free(run->rows);
    coh_free(run->validations);
    coh_trace_free(run->own_trace);
    coh_free(run->folder);
    *run = (report_run){ 0 };
}
