/* make_run FOLDER CASE [STEPS]: writes the files of a made-up run into an existing folder. The
 * cases are stalls whose cause is known, and runs that try to break a report. */
#include "tests/report/made_trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/alloc.h"

static void need(int holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "make_run: %s: %s\n", what, coh_last_error());
    exit(1);
}

static FILE *open_file(const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    need(file != NULL, path);
    return file;
}

static void write_facts(const char *folder, const char *model, const coh_trace *trace)
{
    FILE *file = open_file(folder, "run.json");
    json_t *root = json_pack(
        "{s:i, s:s, s:[s,s,s], s:s, s:s, s:i, s:s, s:{s:s, s:i, s:I, s:n}, s:s, s:s, s:i, s:i,"
        " s:i, s:i, s:I, s:f, s:f, s:s, s:s, s:s, s:f, s:f, s:s, s:i, s:b}",
        "version", 1, "model", model, "command", "cohobate", "train", model, "started",
        "2026-01-02T03:04:05Z", "cohobate", "0.1.0", "seed", 1, "device", "host", "machine", "cpu",
        "a <made-up> processor", "cores", 4, "memory_bytes", (json_int_t)8 << 30, "gpu", "dtype",
        "f32", "optimizer", "adamw", "batch", 4, "micro_batch", 4, "sequence", 256,
        "tokens_per_step", 1024, "parameters", (json_int_t)1000000, "flops_per_step", 6e9,
        "peak_flops_per_s", 4e11, "plan_hash", "00000000000000aa", "profile_hash",
        "00000000000000bb", "profile", "made", "predicted_step_s",
        (double)trace->predicted_step_ns * 1e-9, "predicted_in_memory_step_s", 0.054, "limit",
        "compute", "threads", 4, "calibrated", 0);
    need(root != NULL && json_dumpf(root, file, 0) == 0, "run.json");
    json_decref(root);
    fclose(file);
}

static void write_steps(const char *folder, uint64_t steps, int has_nan, double seconds)
{
    FILE *file = open_file(folder, "steps.jsonl");
    for (uint64_t step = 1; step <= steps; step++) {
        fprintf(file, "{\"step\": %llu, \"loss\": ", (unsigned long long)step);
        if (has_nan && step % 2)
            fprintf(file, "null, \"grad_norm\": null, \"skipped\": true");
        else
            fprintf(file, "%.4f, \"grad_norm\": 1.5", 1 + 3.0 / (double)step);
        fprintf(file,
                ", \"lr\": 0.001, \"tokens\": 1024, \"seconds\": %.6f, "
                "\"link_bytes\": {\"read\": 1000, \"write\": 500}, \"peak_bytes\": "
                "{\"device\": 20971520}}\n",
                seconds * (step % 97 == 0 ? 2 : 1));
    }
    fclose(file);
}

static void write_trace(const char *folder, const coh_trace *trace)
{
    char path[4096];
    coh_trace_file *file;
    snprintf(path, sizeof(path), "%s/trace.bin", folder);
    need(coh_trace_file_create(path, trace, 4, &file) == COH_OK, path);
    for (uint32_t i = 0; i < trace->step_count; i++)
        need(coh_trace_file_put(file, i, &trace->steps[i]) == COH_OK, path);
    need(coh_trace_file_put_latencies(file, trace->latencies) == COH_OK, path);
    coh_trace_file_close(file);
}

/* Plants a stall by name. */
static void plant(coh_trace *trace, const char *name)
{
    uint64_t *durations = made_durations(trace);
    if (strcmp(name, "slow-read") == 0)
        made_scale(trace, durations, "read", 12);
    else if (strcmp(name, "small-chunk") == 0)
        made_scale(trace, durations, "read", 100);
    else if (strcmp(name, "late-update") == 0)
        durations[made_find(trace, "update", 0)] = 30000000;
    else if (strcmp(name, "busy-core") == 0) {
        made_scale(trace, durations, "forward", 1.3);
        made_scale(trace, durations, "backward", 1.3);
    }
    made_run(trace, durations);
    coh_free(durations);
}

int main(int argc, char **argv)
{
    if (argc < 3 || argc > 4) {
        fprintf(stderr, "make_run FOLDER CASE [STEPS]\n");
        return 2;
    }
    const char *name = argv[2];
    const int is_script = strcmp(name, "script") == 0, is_small = strcmp(name, "small-chunk") == 0;
    uint64_t steps = argc > 3 ? strtoull(argv[3], NULL, 10) : 20;
    const made_options options = {
        .operators = strcmp(name, "operators") == 0 ? 10000 : 6,
        .chunks = is_small ? 64 : 2,
        .steps = strcmp(name, "zero") == 0 ? 0 : 4,
        .chunk_bytes = is_small ? 16 << 10 : 4 << 20,
        .forward_ns = 3000000,
        .backward_ns = 6000000,
        .update_ns = 100000,
        .read_ns = is_small ? 2000 : 500000,
        .write_ns = 200000,
        .read_bytes_per_s = is_small ? (16 << 10) / 2e-6 : (4 << 20) / 500e-6,
        .operator_name = is_script ? "</title><script>alert(1)</script>\"'&\x1b[31m" : NULL,
    };
    coh_trace *trace = made_trace(&options);
    trace->latencies[COH_LANE_READ].counts[19] = 30;
    trace->latencies[COH_LANE_READ].counts[21] = 3;
    if (options.steps > 0)
        plant(trace, name);
    else
        steps = 0;
    const double seconds = trace->step_count ? (double)trace->steps[1].step_ns * 1e-9 : 0;
    write_facts(argv[1], is_script ? "<script>alert(2)</script>" : "made", trace);
    write_steps(argv[1], steps, strcmp(name, "nan") == 0, seconds);
    write_trace(argv[1], trace);
    coh_trace_free(trace);
    return 0;
}
