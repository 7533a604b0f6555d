/* Compares hashing, saving and loading all numbers of a model with the bare cost of their bytes:
 *
 *     hash   against reading them on all threads
 *     save   against writing one file of as many bytes (reserved, 1 MiB at a time) and fsync
 *     load   against reading that file
 *
 *     bench_save [PRESET [FOLDER [THREADS [DTYPE]]]]       gpt2, ., 2, f32 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/pool.h"
#include "benchmarks/measure.h"
#include "cohobate/engine.h"
#include "cohobate/models.h"

enum { PIECE_BYTES = 1 << 20 };

typedef struct subject {
    coh_graph *graph;
    coh_plan *plan;
    coh_engine *engine;
    coh_pool *pool;
    char save[512], file[512];
    char *numbers; /* with the bytes of a checkpoint */
    uint64_t bytes;
    _Atomic uint64_t sum;
} subject;

static void must(int condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "%s: %s\n", what, coh_last_error());
    exit(1);
}

static void open_subject(subject *s, const char *preset, int thread_count, coh_dtype dtype)
{
    coh_gpt2_config config;
    coh_plan_options plan_options;
    coh_plan_summary summary = { .struct_bytes = sizeof(summary) };
    coh_engine_options options;
    must(coh_gpt2_preset(preset, 0, &config) == COH_OK, preset);
    config.dtype = dtype;
    must(coh_gpt2_train_graph(&config, 1, 64, &s->graph) == COH_OK, "graph");
    coh_plan_options_init(&plan_options);
    plan_options.thread_count = thread_count;
    must(coh_plan_create(s->graph, &plan_options, &s->plan) == COH_OK, "plan");
    must(coh_plan_summarize(s->plan, &summary) == COH_OK, "summary");
    s->bytes = 3 * sizeof(float) * summary.parameter_count / PIECE_BYTES * PIECE_BYTES;
    coh_engine_options_init(&options);
    options.thread_count = thread_count;
    must(coh_engine_create(s->plan, &options, &s->engine) == COH_OK, "engine");
    must(coh_engine_init(s->engine, 1) == COH_OK, "init");
    must(coh_pool_create(thread_count, &s->pool) == COH_OK, "pool");
    s->numbers = malloc(s->bytes);
    must(s->numbers != NULL, "memory");
    memset(s->numbers, 1, s->bytes);
}

/* ---- ours ---- */

static void hash(void *argument)
{
    subject *s = argument;
    uint64_t found;
    must(coh_engine_hash(s->engine, &found) == COH_OK, "hash");
}

static void remove_save(const subject *s)
{
    static const char *const files[] = { "work.bin", "m.bin", "v.bin", "hashes.bin",
                                         "manifest.json" };
    char name[600];
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        snprintf(name, sizeof(name), "%s/%s", s->save, files[i]);
        unlink(name);
    }
    rmdir(s->save);
}

static void save(void *argument)
{
    subject *s = argument;
    const coh_checkpoint_note note = { .struct_bytes = sizeof(note), .json = "{}" };
    remove_save(s);
    must(coh_engine_save(s->engine, s->save, &note) == COH_OK, "save");
}

static void load(void *argument)
{
    subject *s = argument;
    must(coh_engine_load(s->engine, s->save, NULL) == COH_OK, "load");
}

/* ---- bare ---- */

static void read_piece(void *argument, int64_t index)
{
    subject *s = argument;
    const uint64_t *numbers = (const uint64_t *)(void *)(s->numbers + index * PIECE_BYTES);
    uint64_t sum[8] = { 0 };
    for (size_t i = 0; i < PIECE_BYTES / sizeof(*numbers); i += 8)
        for (size_t j = 0; j < 8; j++)
            sum[j] += numbers[i + j];
    for (size_t j = 0; j < 8; j++)
        s->sum += sum[j];
}

static void bare_read(void *argument)
{
    subject *s = argument;
    coh_pool_run(s->pool, (int64_t)(s->bytes / PIECE_BYTES), read_piece, s);
}

static void bare_write(void *argument)
{
    subject *s = argument;
    unlink(s->file);
    int fd = open(s->file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    must(fd >= 0 && posix_fallocate(fd, 0, (off_t)s->bytes) == 0, "create");
    for (uint64_t at = 0; at < s->bytes; at += PIECE_BYTES)
        must(pwrite(fd, s->numbers + at, PIECE_BYTES, (off_t)at) == PIECE_BYTES, "write");
    must(fsync(fd) == 0 && close(fd) == 0, "flush");
}

static void bare_load(void *argument)
{
    subject *s = argument;
    int fd = open(s->file, O_RDONLY | O_CLOEXEC);
    must(fd >= 0, "open");
    for (uint64_t at = 0; at < s->bytes; at += PIECE_BYTES)
        must(pread(fd, s->numbers + at, PIECE_BYTES, (off_t)at) == PIECE_BYTES, "read");
    close(fd);
}

int main(int argument_count, char **arguments)
{
    const char *preset = argument_count > 1 ? arguments[1] : "gpt2";
    const char *folder = argument_count > 2 ? arguments[2] : ".";
    int is_bf16 = argument_count > 4 && strcmp(arguments[4], "bf16") == 0;
    subject s = { 0 };
    measure_result result;
    open_subject(&s, preset, argument_count > 3 ? atoi(arguments[3]) : 2,
                 is_bf16 ? COH_DTYPE_BF16 : COH_DTYPE_F32);
    snprintf(s.save, sizeof(s.save), "%s/bench-save.%d", folder, (int)getpid());
    snprintf(s.file, sizeof(s.file), "%s/bench-save-bare.%d", folder, (int)getpid());
    measure_pairs(hash, bare_read, &s, &result);
    measure_print("hash", preset, 1e-9 * (double)s.bytes, "GB", &result);
    measure_pairs(save, bare_write, &s, &result);
    measure_print("save", preset, 1e-9 * (double)s.bytes, "GB", &result);
    measure_pairs(load, bare_load, &s, &result);
    measure_print("load", preset, 1e-9 * (double)s.bytes, "GB", &result);
    remove_save(&s);
    unlink(s.file);
    free(s.numbers);
    coh_pool_destroy(s.pool);
    coh_engine_destroy(s.engine);
    coh_plan_destroy(s.plan);
    coh_graph_destroy(s.graph);
    return 0;
}
