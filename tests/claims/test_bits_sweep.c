/* A sweep by layers: contributions to a parameter are summed in the same order as in a sweep by
 * micro-batches, so a model without tied parameters has the same bits in both. In every model
 * placement changes none, and weights that stream cross the link fewer times. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cohobate/kinds.h"
#include "tests/claims/trial.h"

enum { STEPS = 3, VOCABULARY = 1500, TOKENS = 61, MICROBATCHES = 3 };

static coh_model llama = { .family = COH_FAMILY_LLAMA,
                           .llama = { .layers = 3,
                                      .heads = 6,
                                      .channels = 48,
                                      .positions = 70,
                                      .vocabulary = VOCABULARY,
                                      .kv_heads = 2,
                                      .head_width = 10,
                                      .inner = 104,
                                      .padding = -1,
                                      .rope = { .theta = 1e4 },
                                      .rmsnorm_epsilon = 1e-5f,
                                      .init_std = 0.05f,
                                      .untied = 1 } };

static const trial_manner plain = { 0 };
static const trial_manner poisoned = { .overlapped = 1, .poison = 1 };
static const trial_numbers by_microbatches[] = {
    { "clipped, by micro-batches", MICROBATCHES, 0.1f, COH_SWEEP_MICROBATCH },
    { "updates in backward, by micro-batches", MICROBATCHES, 0, COH_SWEEP_MICROBATCH }
};
static const trial_numbers by_layers[] = {
    { "clipped, by layers", MICROBATCHES, 0.1f, COH_SWEEP_LAYER },
    { "updates in backward, by layers", MICROBATCHES, 0, COH_SWEEP_LAYER }
};
static const trial_placement in_memory = { "in memory", 0, 0, 0, 0, 1, COH_RECOMPUTE_AUTO, 0 };
static const trial_placement placements[] = {
    { "smallest, disk", TRIAL_PERCENT_SMALLEST, 0, 1, 0, 2, COH_RECOMPUTE_AUTO, 0 },
    { "smallest, recompute all, 64 KiB, disk", TRIAL_PERCENT_SMALLEST, 0, 1, 64 << 10, 3,
      COH_RECOMPUTE_ALL, 0 },
    { "half, nothing recomputed, emulated host", 50, 200, 0, 0, 2, COH_RECOMPUTE_NONE, 0 },
};

static trial_subject open_subject(int untied, coh_dtype dtype)
{
    llama.llama.untied = untied;
    trial_subject subject = {
        .model = &llama, .vocabulary = VOCABULARY, .sequences = 2, .tokens = TOKENS, .dtype = dtype
    };
    trial_subject_open(&subject);
    return subject;
}

static void check_orders_agree(coh_dtype dtype)
{
    trial_subject subject = open_subject(1, dtype);
    for (int i = 0; i < 2; i++) {
        trial_outcome usual, found;
        trial_run(&subject, &by_microbatches[i], &in_memory, &plain, STEPS, &usual);
        trial_run(&subject, &by_layers[i], &in_memory, &plain, STEPS, &found);
        assert_true(usual.summary.numeric_fingerprint == found.summary.numeric_fingerprint);
        assert_true(usual.summary.order_keeps_bits);
        assert_int_equal(found.summary.sweep_order, COH_SWEEP_LAYER);
        trial_check_equal(by_layers[i].name, &found, &usual);
    }
    trial_subject_close(&subject);
}

static void untied_models_have_the_same_bits_in_both_orders(void **state)
{
    (void)state;
    check_orders_agree(COH_DTYPE_F32);
    check_orders_agree(COH_DTYPE_BF16);
}

static void placement_changes_no_bit(void **state)
{
    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        trial_subject subject = open_subject(!tied, tied ? COH_DTYPE_F32 : COH_DTYPE_BF16);
        for (int i = 0; i < 2; i++) {
            trial_outcome reference, found;
            trial_run(&subject, &by_layers[i], &in_memory, &plain, STEPS, &reference);
            for (size_t k = 0; k < sizeof(placements) / sizeof(placements[0]); k++) {
                trial_run(&subject, &by_layers[i], &placements[k], &poisoned, STEPS, &found);
                trial_check_equal(placements[k].name, &found, &reference);
                trial_check_moved(&placements[k], &found, &reference);
            }
        }
        trial_subject_close(&subject);
    }
}

/* The sum of a tied table has another order: another numeric plan, with other bits. */
static void tied_parameters_are_summed_in_the_order(void **state)
{
    (void)state;
    trial_subject subject = open_subject(0, COH_DTYPE_F32);
    trial_outcome usual, found;
    trial_run(&subject, &by_microbatches[0], &in_memory, &plain, STEPS, &usual);
    trial_run(&subject, &by_layers[0], &in_memory, &plain, STEPS, &found);
    assert_true(usual.loss[0] == found.loss[0]);
    assert_true(usual.hash != found.hash);
    trial_subject_close(&subject);
}

/* Weights that do not stay are fetched for each micro-batch forth and back, or once for all. */
static void weights_cross_the_link_fewer_times(void **state)
{
    (void)state;
    trial_subject subject = {
        .preset = "gpt2-nano", .vocabulary = 257, .sequences = 1, .tokens = 16
    };
    trial_placement small = { "12 %, disk", 12, 0, 1, 0, 2, COH_RECOMPUTE_NONE, 0 };
    trial_numbers numbers = { "eight micro-batches", 8, 0.5f, COH_SWEEP_MICROBATCH };
    uint64_t work_bytes[2], step_ns[2];
    trial_subject_open(&subject);
    for (int i = 0; i < 3; i++) {
        trial t = { 0 };
        numbers.order = (coh_sweep_order)i;
        trial_plan(&t, &subject, &numbers, &small);
        small.device_bytes = t.device_bytes; /* the budget of the first, for all */
        if (i < 2) {
            assert_int_equal(t.summary.sweep_order, i);
            work_bytes[i] = t.summary.work_link_bytes;
            step_ns[i] = t.summary.step_ns;
        } else { /* the search takes the faster one */
            assert_int_equal(t.summary.sweep_order, step_ns[1] < step_ns[0]);
            assert_true(t.summary.step_ns == step_ns[t.summary.sweep_order]);
        }
        trial_close(&t);
    }
    assert_true(work_bytes[COH_SWEEP_LAYER] * 2 < work_bytes[COH_SWEEP_MICROBATCH]);
    assert_true(step_ns[COH_SWEEP_LAYER] < step_ns[COH_SWEEP_MICROBATCH]);
    trial_subject_close(&subject);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(untied_models_have_the_same_bits_in_both_orders),
        cmocka_unit_test(placement_changes_no_bit),
        cmocka_unit_test(tied_parameters_are_summed_in_the_order),
        cmocka_unit_test(weights_cross_the_link_fewer_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
