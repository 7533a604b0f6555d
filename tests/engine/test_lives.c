/* Engines in a program that makes many: one after another they leave no memory, thread or
 * descriptor behind, and four at once end with the bits of one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cohobate/cohobate.h"
#include "tests/length.h"

enum { BATCH = 16, COLUMNS = 8, WIDE = 96, STEPS = 3, AT_ONCE = 4 };
/* In the small one every parameter crosses the link to the drive. */
enum { SMALL = 256 << 10, LARGE = 64 << 20 };
/* Cycles before the first look: allocators and loaded libraries have what they keep by then. */
enum { WARM = 20 };
#define DRIFT_MOST ((uint64_t)1 << 20)

#define OK(call) assert_int_equal(call, COH_OK)

/* ---- one life ---- */

static coh_status build(coh_graph *graph)
{
    static const coh_linear_attributes wide = { WIDE, 1, 0.2f }, last = { 1, 1, 0.1f };
    static const coh_chain_link links[] = { COH_LINK(coh_kind_linear_relu, wide),
                                            COH_LINK(coh_kind_linear_relu, wide),
                                            COH_LINK(coh_kind_linear_relu, wide),
                                            COH_LINK(coh_kind_linear, last) };
    const coh_shape inputs = { COH_DTYPE_F32, 2, { BATCH, COLUMNS } };
    const coh_shape targets = { COH_DTYPE_F32, 2, { BATCH, 1 } };
    coh_tensor input, compared[2], loss;
    coh_status status = coh_graph_input(graph, "x", &inputs, &input);
    if (status == COH_OK)
        status = coh_graph_input(graph, "target", &targets, &compared[1]);
    if (status == COH_OK)
        status = coh_graph_chain(graph, input, links, 4, &compared[0]);
    const coh_op_args args = { .name = "loss", .inputs = compared, .block = -1 };
    if (status == COH_OK)
        status = coh_graph_op(graph, &coh_kind_mean_squared_error, &args, &loss, NULL);
    return status == COH_OK ? coh_graph_loss(graph, loss) : status;
}

static coh_status train(coh_engine *engine, uint64_t *out_hash)
{
    float x[BATCH][COLUMNS], y[BATCH];
    coh_step_result result = { .struct_bytes = sizeof(result) };
    coh_status status = coh_engine_init(engine, 1);
    for (uint64_t step = 0; step < STEPS && status == COH_OK; step++) {
        for (int i = 0; i < BATCH; i++) {
            for (int k = 0; k < COLUMNS; k++)
                x[i][k] = (float)((step * 31 + (uint64_t)(i * 7 + k * 3)) % 17) / 17;
            y[i] = x[i][0] - x[i][1];
        }
        const coh_step_input at = { sizeof(at), step, 1, 1e-3f, 1.0f, { x, y }, 1.0f };
        status = coh_engine_step(engine, &at, &result);
    }
    return status == COH_OK ? coh_engine_hash(engine, out_hash) : status;
}

/* Creates, trains and destroys. */
static coh_status live(uint64_t budget, uint64_t *out_hash)
{
    coh_graph *graph = NULL;
    coh_plan *plan = NULL;
    coh_engine *engine = NULL;
    coh_status status = coh_graph_create(&graph);
    if (status == COH_OK)
        status = build(graph);
    if (status == COH_OK)
        status = coh_engine_create_within(graph, budget, ".", &plan, &engine);
    if (status == COH_OK)
        status = train(engine, out_hash);
    coh_engine_destroy(engine);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
    return status;
}

/* ---- one after another ---- */

static uint64_t resident_bytes(void)
{
    unsigned long size = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu %lu", &size, &resident), 2);
    fclose(file);
    return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static int entries_of(const char *path)
{
    int count = 0;
    DIR *folder = opendir(path);
    assert_non_null(folder);
    while (readdir(folder) != NULL)
        count++;
    closedir(folder);
    return count;
}

/* A joined thread is listed until the kernel has ended it. */
static int threads_of(int expected)
{
    int count = entries_of("/proc/self/task");
    for (int tries = 0; count != expected && tries < 2000; tries++) {
        usleep(1000);
        count = entries_of("/proc/self/task");
    }
    return count;
}

static void engines_one_after_another_leave_nothing_behind(void **state)
{
    (void)state;
    const int cycles = test_is_brief() ? 10 : test_is_short() ? 60 : 1000;
    const int alone = entries_of("/proc/self/task");
    uint64_t first = 0, hash = 0, bytes = 0;
    OK(live(SMALL, &first));
    for (int i = 1; i < WARM; i++)
        OK(live(SMALL, &hash));
    bytes = resident_bytes();
    const int descriptors = entries_of("/proc/self/fd"), threads = threads_of(alone);
    const int files = entries_of(".");
    for (int i = 0; i < cycles; i++) {
        OK(live(SMALL, &hash));
        assert_int_equal(hash, first);
    }
    assert_int_equal(entries_of("/proc/self/fd"), descriptors);
    assert_int_equal(threads_of(threads), threads);
    assert_int_equal(entries_of("."), files);
    const uint64_t after = resident_bytes();
    print_message("%d cycles: %lld bytes more\n", cycles, (long long)after - (long long)bytes);
    if (!TEST_IS_SANITIZED) /* a sanitizer keeps what was freed */
        assert_true(after <= bytes + DRIFT_MOST);
}

/* ---- at once ---- */

typedef struct life {
    uint64_t hash;
    coh_status status;
} life;

/* The thread sanitizer does not see that liburing unmaps a ring, so that the ring of another
 * engine, mapped at the same address, looks like a race: there all engines train in memory. */
static void *live_apart(void *argument)
{
    life *l = argument;
    const uint64_t budget = TEST_FINDS_RACES ? LARGE : SMALL;
    for (int i = 0; i < 3; i++) {
        l->status = live(budget, &l->hash);
        if (l->status != COH_OK)
            break;
    }
    return NULL;
}

static void four_engines_at_once_have_the_bits_of_one(void **state)
{
    (void)state;
    pthread_t threads[AT_ONCE];
    life lives[AT_ONCE] = { 0 };
    uint64_t alone = 0;
    OK(live(SMALL, &alone));
    for (int i = 0; i < AT_ONCE; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, live_apart, &lives[i]), 0);
    for (int i = 0; i < AT_ONCE; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < AT_ONCE; i++) {
        assert_int_equal(lives[i].status, COH_OK);
        assert_int_equal(lives[i].hash, alone);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(engines_one_after_another_leave_nothing_behind),
        cmocka_unit_test(four_engines_at_once_have_the_bits_of_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
