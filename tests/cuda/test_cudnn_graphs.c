/* The graphs of attention, planned by the real cuDNN without a GPU: it gets a description of a
 * device, and a driver that does nothing (described_driver.c, the argument). It reports which
 * shapes it accepts and what scratch it wants, which must not exceed the planner's estimate.
 *
 * Not shown: the results of running a plan; gpu-check does that. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "kernels/cuda/attention_scratch.h"
#include "kernels/cuda/cudnn.h"
#include "tests/length.h"

#define SKIPPED 77

static const char device_text[] =
    "{\"deviceName\":\"described\",\"cudaDeviceId\":0,\"deviceVer\":%d,\"driverVer\":13000,"
    "\"multiProcessorCount\":%d,\"l2CacheSize\":%d,\"maxSharedMemoryPerBlock\":49152,"
    "\"maxSharedMemoryPerBlockOptin\":%d,\"reservedSharedMemoryPerBlock\":1024,"
    "\"maxRegistersPerSM\":65536,\"regsPerBlock\":65536,\"maxCtasPerSM\":32,"
    "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,"
    "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],\"warpSize\":32,"
    "\"smClockRateKHz\":1980000,\"memClockRateKHz\":2619000,\"totalGlobalMem\":85899345920,"
    "\"pciDeviceId\":0,\"isTccDriver\":0,\"supportCoopLaunch\":1}";

typedef struct described_device {
    const char *name;
    int version, multiprocessors, cache_bytes, shared_bytes;
} described_device;

static const described_device devices[] = {
    { "A100", 800, 108, 41943040, 166912 },
    { "H100", 900, 132, 52428800, 232448 },
};

typedef struct head_shape {
    const char *why;
    int64_t B, T, H, G, D;
    int backward_from; /* device version; no engine supports older devices */
} head_shape;

static const head_shape shapes[] = {
    { "GPT-2", 2, 1024, 12, 12, 64 },
    { "25 heads, odd T", 1, 333, 25, 25, 64 },
    { "80 wide, shared by fours", 1, 511, 16, 4, 80 },
    { "96 wide, less than a tile", 2, 77, 6, 6, 96 },
    { "Llama's width, shared by fours", 1, 1000, 8, 2, 128 },
    { "the widest, one head of keys", 1, 257, 4, 1, 256, 900 },
    { "OPT-6.7B, as much as a plan may want", 1, 2048, 32, 32, 128 },
};

static coh_cudnn *cudnn;

static cudnnBackendDescriptor_t describe(const described_device *device)
{
    char text[1024];
    cudnnBackendDescriptor_t described;
    const int length = snprintf(text, sizeof(text), device_text, device->version,
                                device->multiprocessors, device->cache_bytes, device->shared_bytes);
    assert_in_range(length, 1, sizeof(text) - 1);
    assert_int_equal(
        cudnn->call.cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &described),
        CUDNN_STATUS_SUCCESS);
    assert_int_equal(cudnn->call.cudnnBackendSetAttribute(described,
                                                          CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                                          CUDNN_TYPE_CHAR, length + 1, text),
                     CUDNN_STATUS_SUCCESS);
    assert_int_equal(cudnn->call.cudnnBackendFinalize(described), CUDNN_STATUS_SUCCESS);
    return described;
}

/* Describes q, k and v as adjacent in a row, as in GPT-2, or as separate. */
static coh_cudnn_shape shape_of(const head_shape *s, int is_apart, int is_backward)
{
    const int64_t row = (s->H + 2 * s->G) * s->D;
    return (coh_cudnn_shape){ .B = s->B,
                              .T = s->T,
                              .H = s->H,
                              .G = s->G,
                              .D = s->D,
                              .q_stride = is_apart ? s->H * s->D : row,
                              .kv_stride = is_apart ? s->G * s->D : row,
                              .y_stride = s->H * s->D,
                              .is_backward = is_backward };
}

static size_t planned_workspace(const coh_cudnn_target *target, const coh_cudnn_shape *shape)
{
    coh_cudnn_plan *plan = NULL;
    const char *refusal = NULL;
    if (coh_cudnn_plan_create(target, shape, &plan, &refusal) != COH_OK || plan == NULL)
        fail_msg("%s", refusal != NULL ? refusal : coh_last_error());
    const size_t bytes = coh_cudnn_plan_workspace(plan);
    coh_cudnn_plan_destroy(plan);
    return bytes;
}

static void check_refusal(const coh_cudnn_target *target, const coh_cudnn_shape *shape)
{
    coh_cudnn_plan *plan = NULL;
    const char *refusal = NULL;
    if (coh_cudnn_plan_create(target, shape, &plan, &refusal) != COH_OK)
        fail_msg("%s", coh_last_error());
    assert_null(plan);
    assert_non_null(strstr(refusal, "NOT_SUPPORTED"));
}

/* Short runs plan a shape for one device, and each layout for both. A shape that only newer devices
 * support is planned for all. */
static int is_planned(size_t shape, size_t device)
{
    return !test_is_short() || shapes[shape].backward_from > 0 || (shape / 2 + device) % 2 == 0;
}

static void every_shape_has_plans_within_what_the_planner_is_told(void **state)
{
    (void)state;
    for (size_t d = 0; d < sizeof(devices) / sizeof(devices[0]); d++) {
        const coh_cudnn_target target = { .call = &cudnn->call, .device = describe(&devices[d]) };
        for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
            if (test_is_brief() && (d + i) % 2 != 0) /* each shape on one device */
                continue;
            const head_shape *s = &shapes[i];
            if (!is_planned(i, d))
                continue;
            const coh_cudnn_shape forward = shape_of(s, i % 2 == 1, 0);
            const coh_cudnn_shape backward = shape_of(s, i % 2 == 1, 1);
            const size_t told = (size_t)coh_cudnn_plan_bytes(s->B, s->T, s->H, s->G, s->D);
            const size_t forward_bytes = planned_workspace(&target, &forward);
            if (devices[d].version < s->backward_from) {
                check_refusal(&target, &backward);
                continue;
            }
            const size_t bytes = planned_workspace(&target, &backward);
            if (forward_bytes > 256 || bytes > told || bytes < told / 4)
                fail_msg("%s, %s: forward wants %zu bytes, backward %zu, the planner is told %zu",
                         devices[d].name, s->why, forward_bytes, bytes, told);
        }
        cudnn->call.cudnnBackendDestroyDescriptor(target.device);
    }
}

/* Before sm_90 cuDNN adds in its own sums, since then in those it is given. The planner knows only
 * shapes, so its estimate covers both. */
static void by_atomics_they_take_all_rows_and_what_the_planner_is_told(void **state)
{
    (void)state;
    for (size_t d = 0; d < sizeof(devices) / sizeof(devices[0]); d++) {
        const coh_cudnn_target target = { .call = &cudnn->call, .device = describe(&devices[d]) };
        for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
            /* two of them on the other device, and the one that the older device refuses */
            if (test_is_brief() && ((d + i) % 2 == 0 || (i > 1 && shapes[i].backward_from == 0)))
                continue;
            const head_shape *s = &shapes[i];
            if (!is_planned(i, d))
                continue;
            const int64_t elements = s->B * s->H * s->D;
            const int64_t sums = devices[d].version < 900 ? 4 * elements * ((s->T + 7) / 8 * 8) : 0;
            const int64_t shared = s->H > s->G ? 4 * elements * s->T : 0;
            const int64_t told = coh_cudnn_atomic_plan_bytes(s->B, s->T, s->H, s->G, s->D);
            coh_cudnn_shape shape = shape_of(s, i % 2 == 1, 1);
            shape.atomics = 1;
            if (devices[d].version < s->backward_from) {
                check_refusal(&target, &shape);
                continue;
            }
            const int64_t bytes = (int64_t)planned_workspace(&target, &shape);
            if (bytes > told || bytes < sums + shared ||
                bytes > sums + shared + COH_CUDNN_SCRATCH_REST)
                fail_msg("%s, %s: it wants %lld bytes, the planner is told %lld", devices[d].name,
                         s->why, (long long)bytes, (long long)told);
            assert_true(
                coh_cuda_attention_atomic_bytes(COH_DTYPE_BF16, s->B, s->T, s->H, s->G, s->D) >=
                (size_t)(4 * s->B * s->H * s->T + 4 * elements * s->T + told));
        }
        cudnn->call.cudnnBackendDestroyDescriptor(target.device);
    }
}

static void a_shape_that_no_engine_takes_is_refused(void **state)
{
    (void)state;
    const head_shape odd = { "", 1, 64, 2, 2, 20 };
    const coh_cudnn_target target = { .call = &cudnn->call, .device = describe(&devices[1]) };
    const coh_cudnn_shape shape = shape_of(&odd, 1, 1);
    check_refusal(&target, &shape);
    cudnn->call.cudnnBackendDestroyDescriptor(target.device);
}

/* ---- cuts ---- */

/* Returns 1 if a cut may take `count` heads of keys, counted over all sequences, with `queries`
 * queries each, and every part of a float per query begins at 16 bytes. */
static int is_a_cut(int64_t count, int64_t B, int64_t G, int64_t queries)
{
    if (count <= G ? G % count != 0 : count % G != 0 || B % (count / G) != 0)
        return 0;
    for (int64_t begin = 0; begin < B * G; begin += count)
        if (begin * queries * (int64_t)sizeof(float) % 16 != 0)
            return 0;
    return 1;
}

/* Checks that a cut is valid and the largest allowed: it exceeds the wanted scratch only while
 * smaller cuts have too few queries to fill a GPU. */
static void check_cut(int64_t B, int64_t T, int64_t shared, int64_t G)
{
    const int64_t D = 128, H = G * shared, queries = shared * T;
    const int64_t group = coh_cudnn_plan_bytes(1, T, shared, 1, D) - COH_CUDNN_SCRATCH_REST;
    const coh_cudnn_cut cut = coh_cudnn_cut_of(B, T, H, G, D);
    const int64_t count = cut.B * cut.G;
    for (int64_t other = 1; count == 0 && other <= B * G; other++)
        assert_true(!is_a_cut(other, B, G, queries) || other * group > COH_CUDNN_SCRATCH_MOST);
    if (count == 0)
        return;
    assert_true(is_a_cut(count, B, G, queries));
    assert_true(cut.B == 1 || cut.G == G);
    const int64_t bytes = coh_cudnn_plan_bytes(cut.B, T, cut.G * shared, cut.G, D);
    assert_int_equal(bytes, count * group + COH_CUDNN_SCRATCH_REST);
    assert_true(count * group <= COH_CUDNN_SCRATCH_MOST);
    for (int64_t other = 1; other <= B * G; other++) {
        if (!is_a_cut(other, B, G, queries))
            continue;
        if (other > count)
            assert_true(other * group > COH_CUDNN_SCRATCH_MOST ||
                        (other * group > COH_CUDNN_SCRATCH_WANTED &&
                         count * queries >= COH_CUDNN_QUERIES_WANTED));
        if (other < count)
            assert_true(count * group <= COH_CUDNN_SCRATCH_WANTED ||
                        other * queries < COH_CUDNN_QUERIES_WANTED);
    }
    if (T > 1) /* cuDNN is not asked about one token */
        assert_true(coh_cuda_attention_scratch_bytes(COH_DTYPE_BF16, B, T, H, G, D) >=
                    (size_t)(4 * B * H * T + 2 * cut.B * T * H * D + bytes));
}

static void cuts_are_whole_and_keep_to_their_bounds(void **state)
{
    (void)state;
    for (int64_t T = 1; T < 20000; T = T * 7 / 4 + 1)
        for (int64_t G = 1; G <= 32; G += 5)
            for (int64_t shared = 1; shared <= 8; shared *= 2)
                for (int64_t B = 1; B <= 24; B += 5)
                    check_cut(B, T, shared, G);
}

static void cuts_of_models_fill_a_gpu(void **state)
{
    (void)state;
    static const struct {
        int64_t B, T, H, G, D;
        coh_cudnn_cut cut;
    } models[] = {
        { 32, 1024, 12, 12, 64, { 16, 12 } }, /* GPT-2 */
        { 16, 1024, 16, 16, 64, { 16, 16 } }, /* GPT-2 medium */
        { 16, 1024, 25, 25, 64, { 8, 25 } },  /* GPT-2 XL */
        { 4, 2048, 32, 32, 128, { 2, 32 } },  /* OPT-6.7B */
        { 2, 4096, 32, 8, 128, { 1, 4 } },    /* Llama 3 8B, the largest allowed */
        { 16, 1023, 25, 25, 64, { 8, 25 } },  /* two sequences of odd rows would be misaligned */
        { 14, 1023, 25, 25, 64, { 0, 25 } },  /* and fourteen are too large */
    };
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        const coh_cudnn_cut cut =
            coh_cudnn_cut_of(models[i].B, models[i].T, models[i].H, models[i].G, models[i].D);
        assert_int_equal(cut.B, models[i].cut.B);
        assert_int_equal(cut.G, models[i].cut.G);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_are_whole_and_keep_to_their_bounds),
        cmocka_unit_test(cuts_of_models_fill_a_gpu),
        cmocka_unit_test(every_shape_has_plans_within_what_the_planner_is_told),
        cmocka_unit_test(by_atomics_they_take_all_rows_and_what_the_planner_is_told),
        cmocka_unit_test(a_shape_that_no_engine_takes_is_refused),
    };
    /* cuDNN then finds it under its name, libcuda.so.1. */
    if (argc != 2 || dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) == NULL) {
        printf("the described driver cannot be opened\n");
        return 1;
    }
    const coh_status status = coh_cudnn_open(&cudnn);
    if (status != COH_OK) {
        printf("%s\n", coh_last_error());
        return status == COH_ERR_DEVICE ? SKIPPED : 1;
    }
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    coh_cudnn_close(cudnn);
    return failed;
}
