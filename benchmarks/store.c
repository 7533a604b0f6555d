/* The working store, as a worker: passes over its file in chunks as the lanes make them, so many in
 * flight, marks made and checked. The file has no name, but /proc/<pid>/fd/<file> is one: fio reads
 * and writes the same bytes through it (benchmarks/steps).
 *
 *     store DIR read|write 4 8 1024        chunks of 4 MiB, 8 in flight, a file of 1024 MiB */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "benchmarks/measure.h"
#include "offload/store.h"

enum { DEPTH_MOST = 64 };

typedef struct passes {
    const coh_store_ops *ops;
    coh_store *store;
    coh_store_port port;
    char *arena;
    size_t chunk_bytes;
    uint32_t chunk_count, depth, generation;
} passes;

static int fail(const char *what)
{
    fprintf(stderr, "store: %s: %s\n", what, coh_last_error());
    return 1;
}

/* One pass over the file through `port`: chunk i in place i % depth of the arena, which is free
 * once chunk i - depth has come back. */
static int pass(passes *p, coh_store_port port)
{
    coh_store_completion done[DEPTH_MOST];
    uint8_t busy[DEPTH_MOST] = { 0 };
    uint32_t sent = 0, back = 0, count;
    while (back < p->chunk_count) {
        for (; sent < p->chunk_count && !busy[sent % p->depth]; sent++) {
            coh_store_request request = { .memory = p->arena + sent % p->depth * p->chunk_bytes,
                                          .file_offset = sent * p->chunk_bytes,
                                          .bytes = p->chunk_bytes,
                                          .id = { sent, p->generation },
                                          .number = sent };
            if (p->ops->submit(p->store, port, &request) != COH_OK)
                return fail("submit");
            busy[sent % p->depth] = 1;
        }
        if (p->ops->reap(p->store, port, done, 1, p->depth, &count) != COH_OK)
            return fail("reap");
        for (uint32_t i = 0; i < count; i++) {
            if (done[i].status != COH_OK)
                return fail("transfer");
            busy[done[i].number % p->depth] = 0;
        }
        back += count;
    }
    return 0;
}

static int run(void *argument, int count)
{
    passes *p = argument;
    double seconds[MEASURE_RUNS_MOST];
    for (int i = 0; i < count; i++) {
        uint64_t begin = coh_clock_ns();
        p->generation += p->port == COH_STORE_WRITES;
        if (pass(p, p->port) != 0)
            return 1;
        seconds[i] = (double)(coh_clock_ns() - begin) * 1e-9;
    }
    printf("{\"seconds\": [");
    for (int i = 0; i < count; i++)
        printf("%s%.6f", i ? ", " : "", seconds[i]);
    printf("]}\n");
    return 0;
}

/* The number of the store's file among ours: the one that has lost its name. */
static int file_number(void)
{
    char link[64], target[4096];
    for (int fd = 3; fd < 256; fd++) {
        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        ssize_t length = readlink(link, target, sizeof(target) - 1);
        if (length > 0 && (target[length] = 0, strstr(target, "(deleted)")) && target[0] == '/' &&
            strncmp(target, "/memfd:", 7) != 0)
            return fd;
    }
    return -1;
}

static int start(passes *p, const char *folder, size_t file_bytes)
{
    coh_store_facts facts;
    p->chunk_count = (uint32_t)(file_bytes / p->chunk_bytes);
    p->arena = aligned_alloc(2 << 20, p->chunk_bytes * p->depth);
    if (p->arena == NULL || p->chunk_count == 0)
        return 1;
    for (size_t i = 0; i < p->chunk_bytes * p->depth; i++)
        p->arena[i] = (char)(i * 131 + (i >> 12)); /* no page of zeros: some disks skip those */
    const coh_store_config config = {
        .folder = folder, .bytes = file_bytes, .chunk_count = p->chunk_count, .port_depth = p->depth
    };
    if (coh_store_open(&config, NULL, &p->ops, &p->store) != COH_OK)
        return fail("open");
    if (p->ops->register_arena(p->store, p->arena, p->chunk_bytes * p->depth) != COH_OK ||
        p->ops->facts(p->store, &facts) != COH_OK)
        return fail("arena");
    if (pass(p, COH_STORE_WRITES) != 0)
        return 1;
    printf("{\"rung\": \"%s\", \"direct\": %d, \"queue_depth\": %u, \"chunk_bytes\": %zu, "
           "\"depth\": %u, \"file_bytes\": %zu, \"pid\": %d, \"file\": %d}\n",
           facts.rung, facts.direct, facts.queue_depth, p->chunk_bytes, p->depth, file_bytes,
           (int)getpid(), file_number());
    return fflush(stdout);
}

int main(int argc, char **argv)
{
    passes p = { 0 };
    if (argc != 6 || atoi(argv[3]) < 1 || atoi(argv[4]) < 1 || atoi(argv[4]) > DEPTH_MOST ||
        atoi(argv[5]) < 1) {
        fprintf(stderr, "usage: store DIR read|write CHUNK_MIB DEPTH FILE_MIB\n");
        return 1;
    }
    p.port = strcmp(argv[2], "write") == 0 ? COH_STORE_WRITES : COH_STORE_READS;
    p.chunk_bytes = (size_t)atoi(argv[3]) << 20;
    p.depth = (uint32_t)atoi(argv[4]);
    int status = start(&p, argv[1], (size_t)atoi(argv[5]) << 20) || measure_serve(run, &p);
    if (p.store != NULL)
        p.ops->close(p.store);
    free(p.arena);
    return status;
}
