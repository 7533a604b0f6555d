/* Placement never changes a bit of an OPT or a model of Llama's or Gemma's family either: small
 * ones with every feature of their kinds (padding, an offset of positions, projections around the
 * table; heads that share keys, scaled rotations, norms of heads, fused linears, a separate head;
 * windows, soft caps), in both dtypes, clipped and with updates in backward. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cohobate/kinds.h"
#include "tests/claims/trial.h"

enum { STEPS = 3, VOCABULARY = 1500, TOKENS = 61 };

static const coh_model opt = { .family = COH_FAMILY_OPT,
                               .opt = { .layers = 2,
                                        .heads = 3,
                                        .channels = 48,
                                        .positions = 70,
                                        .vocabulary = VOCABULARY,
                                        .inner = 104,
                                        .embedding = 24,
                                        .padding = 1,
                                        .init_std = 0.05f,
                                        .norm_before = 1,
                                        .last_norm = 1,
                                        .biases = 1 } };
static const coh_model llama = { .family = COH_FAMILY_LLAMA,
                                 .llama = { .layers = 2,
                                            .heads = 6,
                                            .channels = 48,
                                            .positions = 70,
                                            .vocabulary = VOCABULARY,
                                            .kv_heads = 2,
                                            .head_width = 10,
                                            .inner = 104,
                                            .padding = -1,
                                            .rope = { .theta = 5e5,
                                                      .scaling = COH_ROPE_LLAMA3,
                                                      .factor = 8.0f,
                                                      .low_frequency = 1.0f,
                                                      .high_frequency = 4.0f,
                                                      .original_positions = 32 },
                                            .rmsnorm_epsilon = 1e-5f,
                                            .init_std = 0.05f,
                                            .untied = 1 } };

static const coh_model gemma = { .family = COH_FAMILY_GEMMA,
                                 .gemma = { .layers = 2,
                                            .heads = 6,
                                            .channels = 48,
                                            .positions = 70,
                                            .vocabulary = VOCABULARY,
                                            .kv_heads = 2,
                                            .head_width = 10,
                                            .inner = 104,
                                            .padding = -1,
                                            .window = 17,
                                            .pattern = 2,
                                            .scalar = 7,
                                            .rope.theta = 1e4,
                                            .local_theta = 1e4,
                                            .score_cap = 5,
                                            .logit_cap = 3,
                                            .rmsnorm_epsilon = 1e-6f,
                                            .init_std = 0.05f } };

static const trial_manner overlapped = { .overlapped = 1 };
static const trial_manner poisoned = { .overlapped = 1, .poison = 1 };
static const trial_numbers numbers[] = { { "clipped", 2, 0.1f }, { "updates in backward", 2, 0 } };
static const trial_placement in_memory = { "in memory", 0, 0, 0, 0, 1, COH_RECOMPUTE_AUTO, 0 };
static const trial_placement placements[] = {
    { "smallest, disk", TRIAL_PERCENT_SMALLEST, 0, 1, 0, 2, COH_RECOMPUTE_AUTO, 0 },
    { "smallest, recompute all, 64 KiB, disk", TRIAL_PERCENT_SMALLEST, 0, 1, 64 << 10, 3,
      COH_RECOMPUTE_ALL, 0 },
    { "smallest, emulated host", TRIAL_PERCENT_SMALLEST, 200, 0, 0, 2, COH_RECOMPUTE_AUTO, 0 },
};

static void check(const coh_model *model, coh_dtype dtype)
{
    trial_subject subject = {
        .model = model, .vocabulary = VOCABULARY, .sequences = 2, .tokens = TOKENS, .dtype = dtype
    };
    trial_subject_open(&subject);
    for (int n = 0; n < 2; n++) {
        trial_outcome expected, found;
        trial_run(&subject, &numbers[n], &in_memory, &poisoned, STEPS, &expected);
        assert_true(expected.loss[STEPS - 1] != expected.loss[0]);
        for (int p = 0; p < 3; p++) {
            trial_run(&subject, &numbers[n], &placements[p], p == 0 ? &poisoned : &overlapped,
                      STEPS, &found);
            trial_check_equal(placements[p].name, &found, &expected);
            trial_check_moved(&placements[p], &found, &expected);
        }
    }
    trial_subject_close(&subject);
}

static void placement_changes_no_bit_of_an_opt(void **state)
{
    (void)state;
    check(&opt, COH_DTYPE_F32);
    check(&opt, COH_DTYPE_BF16);
}

static void placement_changes_no_bit_of_a_llama(void **state)
{
    (void)state;
    check(&llama, COH_DTYPE_F32);
    check(&llama, COH_DTYPE_BF16);
}

static void placement_changes_no_bit_of_a_qwen3(void **state)
{
    (void)state;
    coh_model qwen3 = llama;
    qwen3.llama.type = COH_LLAMA_QWEN3;
    qwen3.llama.rope.scaling = COH_ROPE_YARN;
    qwen3.llama.rope.magnitude = 1.2f;
    check(&qwen3, COH_DTYPE_F32);
    check(&qwen3, COH_DTYPE_BF16);
}

static void placement_changes_no_bit_of_a_phi3(void **state)
{
    (void)state;
    coh_model phi3 = llama;
    phi3.llama.type = COH_LLAMA_PHI3;
    phi3.llama.rope = (coh_rope_attributes){ .theta = 1e4 };
    check(&phi3, COH_DTYPE_F32);
    check(&phi3, COH_DTYPE_BF16);
}

static void placement_changes_no_bit_of_a_gemma(void **state)
{
    (void)state;
    coh_model gemma3 = gemma;
    gemma3.gemma.type = COH_GEMMA_3;
    gemma3.gemma.score_cap = 0;
    check(&gemma, COH_DTYPE_F32);
    check(&gemma, COH_DTYPE_BF16);
    check(&gemma3, COH_DTYPE_BF16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(placement_changes_no_bit_of_an_opt),
        cmocka_unit_test(placement_changes_no_bit_of_a_llama),
        cmocka_unit_test(placement_changes_no_bit_of_a_qwen3),
        cmocka_unit_test(placement_changes_no_bit_of_a_phi3),
        cmocka_unit_test(placement_changes_no_bit_of_a_gemma),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
