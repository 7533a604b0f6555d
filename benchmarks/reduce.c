/* One exchange of two ranks on request, or what a rank that waits for one costs its own compute:
 * one side of a comparison (benchmarks/ranks drives it).
 *
 *     mpirun -n 2 reduce exact      the REDUCE of the engine: slices exchanged, then folded
 *     mpirun -n 2 reduce library    MPI_Reduce_scatter_block of the same window
 *     mpirun -n 2 reduce waiting    arithmetic of rank 0, while a thread of it waits for rank 1
 *     mpirun -n 2 reduce alone      the same arithmetic
 *
 * Each rank has its own core. Sums of `exact` are compared with those of a loop before the
 * first request. */
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "benchmarks/measure.h"
#include "cohobate/cohobate.h"
#include "comm/exchange.h"
#include "comm/world.h"
#include "kernels/fold.h"

enum { RANKS = 2, WINDOW = 4 << 20 }; /* elements: 16 MiB */
enum { ARITHMETIC = 300 << 20, LATE_MS = 950 };

typedef struct reduce {
    const char *side;
    coh_world *world;
    int32_t rank;
    coh_link_plan plan;
    uint32_t line;
    const void *slices[RANKS];
    float *contribution, *received, *sum;
} reduce;

static int fail(const char *what)
{
    fprintf(stderr, "reduce: %s: %s\n", what, coh_last_error());
    return 1;
}

/* ---- the sides ---- */

static coh_status exchange(const reduce *r)
{
    COH_TRY(coh_transport_start(r->world->transport, r->line));
    return coh_transport_wait(r->world->transport, r->line);
}

static int run_exact(const reduce *r)
{
    const coh_fold_call fold = { .shape = { { RANKS } },
                                 .contributions = r->slices,
                                 .to = r->sum,
                                 .dtype = COH_DTYPE_F32,
                                 .to_dtype = COH_DTYPE_F32,
                                 .count = WINDOW / RANKS };
    if (exchange(r) != COH_OK)
        return fail("exchange");
    coh_kernel_fold(NULL, &fold);
    return 0;
}

static int run_library(const reduce *r)
{
    return MPI_Reduce_scatter_block(r->contribution, r->sum, WINDOW / RANKS, MPI_FLOAT, MPI_SUM,
                                    MPI_COMM_WORLD) == MPI_SUCCESS
               ? 0
               : fail("MPI_Reduce_scatter_block");
}

static void compute(void)
{
    static volatile float kept;
    float a = 1.0f, b = 0.5f, c = 0.25f, d = 0.125f;
    for (int i = 0; i < ARITHMETIC; i++) {
        a = a * 0.999f + 0.1f;
        b = b * 0.998f + 0.1f;
        c = c * 0.997f + 0.1f;
        d = d * 0.996f + 0.1f;
    }
    kept = a + b + c + d;
    (void)kept;
}

static void *wait_for_rank_1(void *argument)
{
    const reduce *r = argument;
    return exchange(r) == COH_OK ? NULL : argument;
}

/* Rank 1 comes when rank 0 has long computed. */
static int run_beside(const reduce *r, int waits, double *seconds)
{
    const struct timespec late = { 0, LATE_MS * 1000000L };
    pthread_t thread;
    void *failed = NULL;
    if (r->rank == 1) {
        if (waits)
            (void)nanosleep(&late, NULL);
        return waits && exchange(r) != COH_OK;
    }
    if (waits && pthread_create(&thread, NULL, wait_for_rank_1, (void *)r) != 0)
        return fail("thread");
    const uint64_t begin = coh_clock_ns();
    compute();
    *seconds = (double)(coh_clock_ns() - begin) * 1e-9;
    if (waits && pthread_join(thread, &failed) != 0)
        return fail("thread");
    return failed != NULL ? fail("wait") : 0;
}

static int run_one(const reduce *r, double *seconds)
{
    const uint64_t begin = coh_clock_ns();
    int status = 0;
    if (strcmp(r->side, "waiting") == 0 || strcmp(r->side, "alone") == 0)
        return run_beside(r, r->side[0] == 'w', seconds);
    status = strcmp(r->side, "exact") == 0 ? run_exact(r) : run_library(r);
    *seconds = (double)(coh_clock_ns() - begin) * 1e-9;
    return status;
}

/* ---- requests ---- */

static int run(void *argument, int count)
{
    const reduce *r = argument;
    double seconds[MEASURE_RUNS_MOST] = { 0 };
    for (int i = 0; i < count; i++) {
        if (coh_world_barrier(r->world) != COH_OK || run_one(r, &seconds[i]) != 0)
            return 1;
    }
    if (r->rank > 0)
        return 0;
    printf("{\"seconds\": [");
    for (int i = 0; i < count; i++)
        printf("%s%.9f", i > 0 ? ", " : "", seconds[i]);
    printf("]}\n");
    return fflush(stdout);
}

/* ---- start ---- */

static float drawn(int32_t rank, int64_t i)
{
    return (float)((i * 7 + rank * 13) % 1001 - 500) * 0.001f;
}

static int check_sums(const reduce *r)
{
    if (run_exact(r) != 0)
        return 1;
    for (int64_t i = 0; i < WINDOW / RANKS; i++) {
        const int64_t at = r->rank * (WINDOW / RANKS) + i;
        if (r->sum[i] != drawn(0, at) + drawn(1, at)) {
            fprintf(stderr, "reduce: element %lld is wrong\n", (long long)at);
            return 1;
        }
    }
    return 0;
}

/* Gives the process the core of its rank's number among those that it may use. */
static int take_core(int32_t rank)
{
    cpu_set_t all, own;
    int left = rank;
    CPU_ZERO(&own);
    if (sched_getaffinity(0, sizeof(all), &all) != 0)
        return fail("cores");
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &all) && left-- == 0)
            CPU_SET(core, &own);
    return CPU_COUNT(&own) == 1 && sched_setaffinity(0, sizeof(own), &own) != 0 ? fail("cores") : 0;
}

static int start(reduce *r)
{
    static coh_mesh mesh;
    const coh_axis axis = { "data", RANKS };
    const coh_levels levels = { .rank_count = { 1, 1, RANKS, RANKS } };
    const coh_world_options options = { .struct_bytes = sizeof(options), .rank_count = RANKS };
    int level;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level) != MPI_SUCCESS ||
        coh_world_open(&options, &r->world) != COH_OK)
        return fail("world");
    r->rank = coh_world_rank(r->world);
    if (take_core(r->rank) != 0)
        return 1;
    r->contribution = malloc(WINDOW * sizeof(float));
    r->received = malloc(WINDOW / RANKS * sizeof(float));
    r->sum = malloc(WINDOW / RANKS * sizeof(float));
    if (r->contribution == NULL || r->received == NULL || r->sum == NULL)
        return fail("no memory");
    for (int64_t i = 0; i < WINDOW; i++)
        r->contribution[i] = drawn(r->rank, i);
    if (coh_mesh_init(&mesh, &axis, 1, &levels) != COH_OK)
        return fail("mesh");
    const coh_exchange of = { &mesh, 1, r->rank, WINDOW / RANKS * sizeof(float),
                              WINDOW * sizeof(float) };
    if (coh_exchange_reduce(&r->plan, &of, r->contribution, r->received, &r->line) != COH_OK ||
        coh_transport_bind(r->world->transport, &r->plan) != COH_OK)
        return fail("exchange");
    coh_exchange_slices(&of, r->contribution, r->received, r->slices);
    if (check_sums(r) != 0)
        return 1;
    if (r->rank == 0)
        printf("{\"side\": \"%s\", \"ranks\": %d, \"window_bytes\": %zu}\n", r->side, RANKS,
               WINDOW * sizeof(float));
    return fflush(stdout);
}

int main(int argc, char **argv)
{
    reduce r = { .side = argc == 2 ? argv[1] : "" };
    const int status = start(&r) || measure_serve_ranks(r.world, run, &r);
    if (status == 0)
        (void)coh_transport_unbind(r.world->transport);
    coh_world_close(r.world);
    coh_link_plan_fini(&r.plan);
    free(r.contribution);
    free(r.received);
    free(r.sum);
    return MPI_Finalize() != MPI_SUCCESS || status;
}
