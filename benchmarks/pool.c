/* Measures the cost of one call of coh_pool_run: jobs of a few short pieces with a serial stretch
 * between two of them, as a training step has them by the hundred. The "ceiling" is the same work
 * by one thread, so the ratio is the speedup over one thread; its maximum is the thread count, less
 * the serial stretches.
 *
 *   bench_pool [THREADS [COMPETITORS]]      default: 2 and 0; competitors only compute */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/pool.h"
#include "benchmarks/measure.h"

enum { COMPETITORS_MOST = 16, SPINS_PER_US_PROBE = 2000000 };

typedef struct load {
    coh_pool *pool;
    int64_t piece_count, job_count;
    uint64_t piece_spins, gap_spins;
} load;

static double spins_per_us;

static void spin(uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        __asm__ volatile("" ::: "memory");
}

static void run_piece(void *argument, int64_t index)
{
    (void)index;
    spin(((const load *)argument)->piece_spins);
}

static void run_jobs(const load *l, coh_pool *pool)
{
    for (int64_t i = 0; i < l->job_count; i++) {
        coh_pool_run(pool, l->piece_count, run_piece, (void *)l);
        spin(l->gap_spins);
    }
}

static void ours(void *argument)
{
    run_jobs(argument, ((load *)argument)->pool);
}

static void one_thread(void *argument)
{
    run_jobs(argument, NULL);
}

static void measure(coh_pool *pool, int64_t pieces, double piece_us, double gap_us, int competitors)
{
    double job_us = (double)pieces * piece_us + gap_us;
    load l = { .pool = pool,
               .piece_count = pieces,
               .job_count = (int64_t)(30000.0 / job_us) + 1,
               .piece_spins = (uint64_t)(piece_us * spins_per_us),
               .gap_spins = (uint64_t)(gap_us * spins_per_us) };
    measure_result result;
    char shape[64];
    snprintf(shape, sizeof(shape), "%2dx%gus+%gus %d busy", (int)pieces, piece_us, gap_us,
             competitors);
    measure_pairs(ours, one_thread, &l, &result);
    measure_print("pool", shape, 1e-3 * (double)l.job_count, "kjob", &result);
}

static void measure_all(int threads, int competitors)
{
    static const int64_t pieces[] = { 2, 4, 16 };
    static const double piece_us[] = { 1, 10, 100 }, gap_us[] = { 1, 20 };
    coh_pool *pool;
    if (coh_pool_create(threads, &pool) != COH_OK)
        return;
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++)
            for (int k = 0; k < 2; k++)
                measure(pool, pieces[i], piece_us[j], gap_us[k], competitors);
    coh_pool_destroy(pool);
}

int main(int argument_count, char **arguments)
{
    int threads = argument_count > 1 ? atoi(arguments[1]) : 2;
    int wanted = argument_count > 2 ? atoi(arguments[2]) : 0;
    pid_t competitors[COMPETITORS_MOST];
    uint64_t begin_ns = coh_clock_ns();
    spin(SPINS_PER_US_PROBE);
    spins_per_us = SPINS_PER_US_PROBE * 1e3 / (double)(coh_clock_ns() - begin_ns);
    for (int i = 0; i < wanted && i < COMPETITORS_MOST; i++) {
        competitors[i] = fork();
        if (competitors[i] == 0)
            for (;;)
                spin(1u << 20);
    }
    measure_all(threads, wanted);
    for (int i = 0; i < wanted && i < COMPETITORS_MOST; i++) {
        kill(competitors[i], SIGKILL);
        waitpid(competitors[i], NULL, 0);
    }
    return 0;
}
