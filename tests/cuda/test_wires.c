/* Folding of contributions, and packing for the way between ranks, on CUDA compared with the host:
 * the same bits in every fold shape and of every wire, for tensors that begin anywhere, end within
 * a block, and have more elements than a grid has threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "kernels/table.h"
#include "tests/cuda/twins.h"

/* ---- fold ---- */

static void run_fold(void *queue, const void *call)
{
    coh_kernel_fold(queue, call);
}

static void check_fold(coh_fold_shape shape, coh_dtype dtype, coh_dtype to_dtype, int64_t count,
                       int64_t shift)
{
    const int32_t replicas = coh_fold_shape_replicas(&shape);
    const void *contributions[COH_FOLD_CUDA_MOST];
    for (int32_t i = 0; i < replicas; i++)
        contributions[i] = coh_twins_random(dtype, count, shift * (i % 3 == 1), (uint64_t)i);
    const coh_fold_call call = { .shape = shape,
                                 .contributions = contributions,
                                 .to = coh_twins_poisoned(to_dtype, count, shift),
                                 .dtype = dtype,
                                 .to_dtype = to_dtype,
                                 .count = count };
    coh_twins_check(&(coh_twins_case){ .name = "fold",
                                       .run = run_fold,
                                       .call = &call,
                                       .outputs = { { to_dtype, count, call.to } } });
    coh_twins_release();
}

static void every_shape_is_folded_in_the_hosts_order(void **state)
{
    (void)state;
    static const coh_fold_shape shapes[] = {
        { { 1 } },
        { { 2 } },
        { { 7 } },
        { { 2, 3 } },
        { { 2, 2, 2 } },
        { { 3, 4 } },
        { { COH_FOLD_CUDA_MOST } },
    };
    static const int64_t counts[] = { 1, 3, 1000, 70001 };
    for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++)
        for (size_t c = 0; c < (s == 6 ? 2 : sizeof(counts) / sizeof(counts[0])); c++)
            for (int64_t shift = 0; shift < 2; shift++)
                for (int type = 0; type < 4; type++)
                    check_fold(shapes[s], type % 2 ? COH_DTYPE_BF16 : COH_DTYPE_F32,
                               type / 2 ? COH_DTYPE_BF16 : COH_DTYPE_F32, counts[c], shift);
}

/* As a REDUCE does: the sum replaces the rank's own contribution, whichever it is. */
static void a_sum_may_replace_any_contribution(void **state)
{
    (void)state;
    enum { COUNT = 5000, RANKS = 4 };
    for (int own = 0; own < RANKS; own++) {
        const void *contributions[RANKS];
        void *to = NULL;
        for (int i = 0; i < RANKS; i++) {
            void *made = coh_twins_random(COH_DTYPE_F32, COUNT, 0, (uint64_t)i);
            contributions[i] = made;
            to = i == own ? made : to;
        }
        const coh_fold_call call = { .shape = { { RANKS } },
                                     .contributions = contributions,
                                     .to = to,
                                     .dtype = COH_DTYPE_F32,
                                     .to_dtype = COH_DTYPE_F32,
                                     .count = COUNT };
        coh_twins_check(&(coh_twins_case){ .name = "fold in place",
                                           .run = run_fold,
                                           .call = &call,
                                           .outputs = { { COH_DTYPE_F32, COUNT, to } } });
        coh_twins_release();
    }
}

/* ---- wires ---- */

static void run_pack(void *queue, const void *call)
{
    coh_kernel_wire_pack(queue, call);
}

static void run_unpack(void *queue, const void *call)
{
    coh_kernel_wire_unpack(queue, call);
}

/* `broken`: blocks 1 and 2 have a NaN and an infinity, block 3 only zeros. */
static void check_wire(coh_wire wire, coh_dtype dtype, int64_t count, int64_t shift, int broken)
{
    void *x = coh_twins_random(dtype, count, shift, 3);
    const int64_t bytes = (int64_t)coh_wire_bytes(wire, (uint64_t)count);
    for (int64_t i = COH_WIRE_BLOCK; broken && i < count && i < 4 * COH_WIRE_BLOCK; i++) {
        const int is_last = i % COH_WIRE_BLOCK == 77;
        const float value = i / COH_WIRE_BLOCK == 3 ? 0 : i / COH_WIRE_BLOCK == 1 ? NAN : INFINITY;
        if (dtype == COH_DTYPE_F32 && (is_last || i / COH_WIRE_BLOCK == 3))
            ((float *)x)[i] = value;
    }
    void *packed = coh_twins_zeros((size_t)bytes);
    const coh_wire_call out = { wire, dtype, count, x, packed };
    coh_twins_check(&(coh_twins_case){ .name = coh_wire_name(wire),
                                       .run = run_pack,
                                       .call = &out,
                                       .outputs = { { COH_DTYPE_BF16, bytes / 2, packed } } });
    run_pack(NULL, &out);
    void *y = coh_twins_poisoned(dtype, count, shift);
    const coh_wire_call back = { wire, dtype, count, y, packed };
    coh_twins_check(&(coh_twins_case){ .name = coh_wire_name(wire),
                                       .run = run_unpack,
                                       .call = &back,
                                       .outputs = { { dtype, count, y } } });
    coh_twins_release();
}

static void every_wire_has_the_hosts_bytes(void **state)
{
    (void)state;
    static const int64_t counts[] = { 1, 127, 128, 129, 1000, 70001 };
    for (int wire = COH_WIRE_BF16; wire < COH_WIRE_COUNT; wire++)
        for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
            for (int64_t shift = 0; shift < 2; shift++)
                for (int broken = 0; broken < 2; broken++) {
                    check_wire((coh_wire)wire, COH_DTYPE_F32, counts[c], shift, broken);
                    check_wire((coh_wire)wire, COH_DTYPE_BF16, counts[c], shift, 0);
                }
}

int coh_twins_wires(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_shape_is_folded_in_the_hosts_order),
        cmocka_unit_test(a_sum_may_replace_any_contribution),
        cmocka_unit_test(every_wire_has_the_hosts_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
