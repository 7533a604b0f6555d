/* The optional cache from forward for backward changes no bit: a GPT-2 whose logits are its largest
 * tensor, with its cache in memory, without it at the smallest budget, and with the cache moved out
 * and back in; in both dtypes, clipped and with updates in backward. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/claims/trial.h"

enum { STEPS = 3 };

static const trial_subject small = { .vocabulary = 3000,
                                     .sequences = 2,
                                     .tokens = 96,
                                     .config = { .layers = 1,
                                                 .heads = 2,
                                                 .channels = 32,
                                                 .positions = 96,
                                                 .vocabulary = 3000,
                                                 .layernorm_epsilon = 1e-5f } };
static const trial_manner overlapped = { .overlapped = 1 };
static const trial_manner poisoned = { .overlapped = 1, .poison = 1 };
static const trial_numbers numbers[] = { { "clipped", 2, 0.5f }, { "updates in backward", 2, 0 } };
static const trial_placement in_memory = { "in memory", 0, 0, 0, 0, 2, COH_RECOMPUTE_AUTO, 0 };
static const trial_placement most = { "80 %, disk", 80, 0, 1, 0, 2, COH_RECOMPUTE_AUTO, 0 };
static const trial_placement smallest = {
    "smallest, disk", TRIAL_PERCENT_SMALLEST, 0, 1, 0, 2, COH_RECOMPUTE_AUTO, 0
};

static void a_cache_changes_no_bit(void **state)
{
    (void)state;
    for (int half = 0; half < 2; half++)
        for (int n = 0; n < 2; n++) {
            trial_subject subject = small;
            trial_outcome with, found;
            subject.dtype = half ? COH_DTYPE_BF16 : COH_DTYPE_F32;
            trial_subject_open(&subject);
            trial_run(&subject, &numbers[n], &in_memory, &poisoned, STEPS, &with);
            assert_int_equal(with.summary.caches, 1);
            trial_run(&subject, &numbers[n], &smallest, &poisoned, STEPS, &found);
            assert_int_equal(found.summary.caches, 0);
            trial_check_equal(smallest.name, &found, &with);
            trial_run(&subject, &numbers[n], &most, &overlapped, STEPS, &found);
            trial_check_equal(most.name, &found, &with);
            trial_subject_close(&subject);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_cache_changes_no_bit) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
