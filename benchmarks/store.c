/* Compares the working store with the best that fio reaches on the same file: first fio tries
 * engines, request sizes and depths, then the store and fio's best take turns. The store moves
 * whole chunks as a lane does, including checksums; fio moves bytes without looking at them.
 *
 * fio's memory is in huge pages, like our arenas. A disk request has a limited number of memory
 * segments (254 on virtio), so with pages of 4 KiB it holds 1 MiB, with pages of 2 MiB as much as
 * the disk accepts.
 *
 *   bench_store [FOLDER [CHUNK_MIB]]      default: . and 8
 *
 * Without fio there is no ceiling, and only that is printed. */
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "benchmarks/measure.h"
#include "offload/store_load.h"

enum { PORT_DEPTH = 8, SECONDS = 1 };
#define FILE_BYTES  ((uint64_t)2 << 30)
#define SECOND_HALF "1g"

typedef struct bench {
    const coh_store_ops *ops;
    coh_store *store;
    unsigned char *memory;
    size_t chunk_bytes;
    uint32_t chunk_count;
    char file[64]; /* its name for other processes */
} bench;

typedef struct port_run {
    const bench *b;
    coh_store_port port;
    double bytes_per_s; /* 0: failed */
} port_run;

/* One lane: keeps PORT_DEPTH chunks in flight; each retired one is replaced. */
static void *run_port(void *argument)
{
    port_run *run = argument;
    const bench *b = run->b;
    const uint32_t half = run->port == COH_STORE_WRITES; /* each port has its own half */
    coh_store_load load = {
        .ops = b->ops,
        .store = b->store,
        .port = run->port,
        .memory = b->memory + half * PORT_DEPTH * b->chunk_bytes,
        .chunk_bytes = b->chunk_bytes,
        .file_begin = half * FILE_BYTES / 2,
        .chunk_begin = half * (b->chunk_count / 2),
        .chunk_count = b->chunk_count / 2,
        .depth = PORT_DEPTH,
    };
    uint64_t begin_ns = coh_clock_ns();
    run->bytes_per_s = 0;
    while (coh_clock_ns() - begin_ns < SECONDS * UINT64_C(1000000000))
        if (coh_store_load_turn(&load) != COH_OK)
            return NULL;
    if (coh_store_load_rest(&load) != COH_OK)
        return NULL;
    run->bytes_per_s =
        (double)load.retired * (double)b->chunk_bytes * 1e9 / (double)(coh_clock_ns() - begin_ns);
    return NULL;
}

typedef enum way { WAY_READ, WAY_WRITE, WAY_BOTH, WAY_COUNT } way;

static const char *const way_names[WAY_COUNT] = { "read", "write", "both" };

/* Returns the bytes per second of both ports together. */
static double ours(const bench *b, way which)
{
    port_run runs[2] = { { .b = b, .port = COH_STORE_READS },
                         { .b = b, .port = COH_STORE_WRITES } };
    if (which != WAY_BOTH) {
        run_port(&runs[which]);
        return runs[which].bytes_per_s;
    }
    pthread_t reader;
    if (pthread_create(&reader, NULL, run_port, &runs[0]) != 0)
        return 0;
    run_port(&runs[1]);
    pthread_join(reader, NULL);
    return runs[0].bytes_per_s > 0 && runs[1].bytes_per_s > 0
               ? runs[0].bytes_per_s + runs[1].bytes_per_s
               : 0;
}

typedef struct fio_way {
    const char *engine;
    int request_kib, depth;
} fio_way;

static double fio(const bench *b, way which, const fio_way *how)
{
    char command[512], line[256];
    double total = 0, kib = 0;
    int length =
        snprintf(command, sizeof(command),
                 "GLIBC_TUNABLES=glibc.malloc.hugetlb=1 fio --filename=%s --size=%" PRIu64
                 " --allow_file_create=0 --direct=1 "
                 "--invalidate=0 --ioengine=%s --bs=%dk --iodepth=%d --time_based "
                 "--runtime=%d --output-format=json",
                 b->file, FILE_BYTES / 2, how->engine, how->request_kib, how->depth, SECONDS);
    snprintf(command + length, sizeof(command) - (size_t)length, "%s%s%s 2>&1",
             which != WAY_WRITE ? " --name=reads --rw=read --offset=0" : "",
             which != WAY_READ ? " --name=writes --rw=write --offset=" : "",
             which != WAY_READ ? SECOND_HALF : "");
    FILE *pipe = popen(command, "r");
    if (pipe == NULL)
        return 0;
    while (fgets(line, sizeof(line), pipe) != NULL)
        if (sscanf(line, " \"bw\" : %lf", &kib) == 1)
            total += kib * 1024; /* of reads, writes, trims */
    return pclose(pipe) == 0 ? total : 0;
}

static double fio_best(const bench *b, way which, fio_way *out_best)
{
    static const char *const engines[] = { "io_uring --fixedbufs=1", "io_uring", "libaio" };
    static const int request_kib[] = { 512, 2048, 4096 }, depths[] = { 8, 32 };
    double best = 0;
    for (int i = 0; i < 3 * 3 * 2; i++) {
        fio_way how = { engines[i / 6], request_kib[i / 2 % 3], depths[i % 2] };
        double rate = fio(b, which, &how);
        if (rate > best)
            *out_best = how;
        best = rate > best ? rate : best;
    }
    return best;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static int measure_way(const bench *b, way which)
{
    double mine[MEASURE_PAIRS], theirs[MEASURE_PAIRS], ratios[MEASURE_PAIRS];
    fio_way how = { 0 };
    char shape[64];
    if (!(fio_best(b, which, &how) > 0)) {
        fprintf(stderr, "store: fio is not here or failed, so there is no ceiling\n");
        return MEASURE_ABSENT;
    }
    for (int i = 0; i < MEASURE_PAIRS; i++) {
        mine[i] = ours(b, which);
        theirs[i] = fio(b, which, &how);
        if (!(mine[i] > 0) || !(theirs[i] > 0))
            return 1;
        ratios[i] = mine[i] / theirs[i];
    }
    qsort(mine, MEASURE_PAIRS, sizeof(*mine), compare);
    qsort(theirs, MEASURE_PAIRS, sizeof(*theirs), compare);
    qsort(ratios, MEASURE_PAIRS, sizeof(*ratios), compare);
    const measure_result result = { .ours_s = 1e9 / mine[MEASURE_PAIRS / 2],
                                    .ceiling_s = 1e9 / theirs[MEASURE_PAIRS / 2],
                                    .ratio = ratios[MEASURE_PAIRS / 2],
                                    .ratio_low = ratios[0],
                                    .ratio_high = ratios[MEASURE_PAIRS - 1] };
    snprintf(shape, sizeof(shape), "%s (%s %dk %d)", way_names[which], how.engine, how.request_kib,
             how.depth);
    measure_print("store", shape, 1000, "MB", &result);
    return 0;
}

/* The store's file has no name, so it is identified among our descriptors by its size. */
static int find_file(bench *b)
{
    for (int fd = 3; fd < 64; fd++) {
        struct stat facts;
        if (fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode) &&
            (uint64_t)facts.st_size == FILE_BYTES) {
            snprintf(b->file, sizeof(b->file), "/proc/%d/fd/%d", (int)getpid(), fd);
            return 0;
        }
    }
    return 1;
}

static int open_store(bench *b, const char *folder)
{
    const coh_disk disk = { .folder = folder, .bytes = UINT64_MAX };
    const coh_store_config config = { .disks = &disk,
                                      .disk_count = 1,
                                      .bytes = FILE_BYTES,
                                      .chunk_count = b->chunk_count,
                                      .port_depth = PORT_DEPTH };
    size_t memory_bytes = 2 * PORT_DEPTH * b->chunk_bytes;
    coh_store_facts facts;
    b->memory =
        mmap(NULL, memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b->memory == MAP_FAILED)
        return 1;
    (void)madvise(b->memory, memory_bytes, MADV_HUGEPAGE); /* as in arenas */
    for (size_t i = 0; i < memory_bytes / sizeof(uint32_t); i++)
        ((uint32_t *)b->memory)[i] = (uint32_t)i * 2654435761u;
    if (coh_store_open(&config, NULL, &b->ops, &b->store) != COH_OK ||
        b->ops->register_arena(b->store, b->memory, memory_bytes) != COH_OK ||
        b->ops->facts(b->store, &facts) != COH_OK)
        return 1;
    fprintf(stderr, "store: %s, %s, %" PRIu32 " pieces in flight, chunks of %zu bytes%s%s\n",
            facts.backend, facts.direct ? "direct" : "page cache", facts.queue_depth,
            b->chunk_bytes, facts.reason ? "; " : "", facts.reason ? facts.reason : "");
    return find_file(b);
}

/* Writes every chunk once under its number, so that reads find the expected data. */
static int fill(const bench *b)
{
    for (uint32_t chunk = 0; chunk < b->chunk_count; chunk++) {
        coh_store_completion completion;
        uint32_t count = 0;
        const coh_store_request request = {
            .memory = b->memory,
            .file_offset = (uint64_t)chunk * b->chunk_bytes,
            .bytes = b->chunk_bytes,
            .id = { .chunk = chunk },
        };
        if (b->ops->submit(b->store, COH_STORE_WRITES, &request) != COH_OK ||
            b->ops->reap(b->store, COH_STORE_WRITES, &completion, 1, 1, &count) != COH_OK ||
            completion.status != COH_OK)
            return 1;
    }
    return 0;
}

int main(int argument_count, char **arguments)
{
    bench b = { .chunk_bytes = (argument_count > 2 ? strtoul(arguments[2], NULL, 10) : 8) << 20 };
    int failed = b.chunk_bytes == 0 || FILE_BYTES % b.chunk_bytes != 0;
    if (!failed) {
        b.chunk_count = (uint32_t)(FILE_BYTES / b.chunk_bytes);
        failed = open_store(&b, argument_count > 1 ? arguments[1] : ".");
    }
    failed = failed || fill(&b);
    for (int which = 0; which < WAY_COUNT && !failed; which++)
        failed = measure_way(&b, (way)which);
    if (failed)
        fprintf(stderr, "store: failed: %s\n", coh_last_error());
    if (b.store != NULL)
        b.ops->close(b.store);
    return failed;
}
