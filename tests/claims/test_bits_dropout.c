/* Training with dropout: a mask is a function of step, operator and micro-batch, so placement,
 * recomputation, threads and order change no bit. Dropout acts only in training. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "cohobate/kinds.h"
#include "planner/graph.h"
#include "tests/claims/trial.h"

enum { STEPS = 3, VOCABULARY = 700, TOKENS = 37 };

static const coh_model gpt2 = { .family = COH_FAMILY_GPT2,
                                .dropout = 0.1,
                                .gpt2 = { .layers = 2,
                                          .heads = 3,
                                          .channels = 48,
                                          .positions = 40,
                                          .vocabulary = VOCABULARY,
                                          .layernorm_epsilon = 1e-5f } };
static const coh_model opt = { .family = COH_FAMILY_OPT,
                               .dropout = 0.3,
                               .opt = { .layers = 2,
                                        .heads = 3,
                                        .channels = 48,
                                        .positions = 40,
                                        .vocabulary = VOCABULARY,
                                        .inner = 104,
                                        .embedding = 48,
                                        .padding = -1,
                                        .init_std = 0.05f,
                                        .norm_before = 1,
                                        .last_norm = 1,
                                        .biases = 1 } };
#define SMALL_LLAMA                                                                                \
    {                                                                                              \
        .layers = 2, .heads = 6, .channels = 48, .positions = 40, .vocabulary = VOCABULARY,        \
        .kv_heads = 2, .head_width = 10, .inner = 104, .padding = -1, .rope = { .theta = 1e4 },    \
        .rmsnorm_epsilon = 1e-5f, .init_std = 0.05f, .untied = 1                                   \
    }
static const coh_model llama = { .family = COH_FAMILY_LLAMA, .dropout = 0.2, .llama = SMALL_LLAMA };
/* q, k and v drop the same x apart. */
static const coh_model adapted = { .family = COH_FAMILY_LLAMA,
                                   .adapters = { .rank = 3, .alpha = 6, .targets = "*" },
                                   .lora_dropout = 0.25,
                                   .llama = SMALL_LLAMA };
static const coh_model *const models[] = { &gpt2, &opt, &llama, &adapted };

static const trial_manner plain = { 0 };
static const trial_manner disturbed = {
    .overlapped = 1, .poison = 1, .delay_seed = 7, .delay_most_us = 100
};
static const trial_numbers numbers[] = { { "clipped", 2, 0.1f }, { "updates in backward", 2, 0 } };
static const trial_placement in_memory = { "in memory, no recompute", 0, 0, 0, 0, 1,
                                           COH_RECOMPUTE_NONE,        0 };
static const trial_placement placements[] = {
    { "in memory, recompute all", 0, 0, 0, 0, 3, COH_RECOMPUTE_ALL, 0 },
    { "smallest, disk", TRIAL_PERCENT_SMALLEST, 0, 1, 0, 2, COH_RECOMPUTE_AUTO, 0 },
    { "smallest, recompute all, 64 KiB, emulated host", TRIAL_PERCENT_SMALLEST, 200, 0, 64 << 10, 2,
      COH_RECOMPUTE_ALL, 0 },
};

static trial_subject subject_of(const coh_model *model, coh_dtype dtype)
{
    trial_subject subject = {
        .model = model, .vocabulary = VOCABULARY, .sequences = 2, .tokens = TOKENS, .dtype = dtype
    };
    trial_subject_open(&subject);
    return subject;
}

static void placement_and_recomputation_change_no_bit(void **state)
{
    (void)state;
    for (int m = 0; m < 8; m++) {
        trial_subject subject = subject_of(models[m / 2], m % 2 ? COH_DTYPE_BF16 : COH_DTYPE_F32);
        for (int n = 0; n < 2; n++) {
            trial_outcome expected, found;
            trial_run(&subject, &numbers[n], &in_memory, &plain, STEPS, &expected);
            for (int p = 0; p < 3; p++) {
                trial_run(&subject, &numbers[n], &placements[p], &disturbed, STEPS, &found);
                trial_check_equal(placements[p].name, &found, &expected);
            }
        }
        trial_subject_close(&subject);
    }
}

/* Dropout is where the families of `transformers` have it (docs/models.md). */
static void dropout_stands_where_the_family_has_it(void **state)
{
    (void)state;
    static const char *const kinds[] = { "cohobate.dropout", "cohobate.dropout_residual",
                                         "cohobate.attention_dropout",
                                         "cohobate.attention_grouped_dropout" };
    static const int counts[3][4] = { { 1, 4, 2, 0 }, { 0, 4, 0, 2 }, { 0, 0, 0, 2 } };
    for (int m = 0; m < 3; m++) {
        coh_model without = *models[m];
        without.dropout = 0;
        const trial_subject some = subject_of(models[m], COH_DTYPE_F32);
        const trial_subject none = subject_of(&without, COH_DTYPE_F32);
        for (int k = 0; k < 4; k++) {
            int found[2] = { 0 };
            for (size_t i = 0; i < some.graph->op_count; i++)
                found[0] += strcmp(some.graph->ops[i].kind.name, kinds[k]) == 0;
            for (size_t i = 0; i < none.graph->op_count; i++)
                found[1] += strcmp(none.graph->ops[i].kind.name, kinds[k]) == 0;
            assert_int_equal(found[0], counts[m][k]);
            assert_int_equal(found[1], 0);
        }
        trial_subject both[] = { some, none };
        trial_subject_close(&both[0]);
        trial_subject_close(&both[1]);
    }
}

/* Losses at the same weights: for the batch of step 0, trained at rate 0 with several step numbers
 * and seeds, and evaluated. */
typedef struct losses {
    double trained[3], evaluated[2];
    uint64_t fingerprint;
} losses;

static losses losses_of(const coh_model *model)
{
    trial_subject subject = subject_of(model, COH_DTYPE_F32);
    static const struct {
        uint64_t step, seed;
    } draws[] = { { 0, 5 }, { 1, 5 }, { 1, 6 } };
    losses out = { 0 };
    trial t;
    trial_open(&t, &subject, &numbers[0], &in_memory, &plain);
    out.fingerprint = t.summary.numeric_fingerprint;
    for (int i = 0; i < 3; i++) {
        coh_step_result result = { .struct_bytes = sizeof(result) };
        coh_step_input input = trial_input(&t, 0);
        input.step = draws[i].step;
        input.seed = draws[i].seed;
        input.learning_rate = 0;
        if (i < 2)
            assert_int_equal(coh_engine_evaluate(t.engine, &input, &out.evaluated[i]), COH_OK);
        input = trial_input(&t, 0);
        input.step = draws[i].step;
        input.seed = draws[i].seed;
        input.learning_rate = 0;
        assert_int_equal(coh_engine_submit(t.engine, &input), COH_OK);
        assert_int_equal(coh_engine_wait(t.engine, &result), COH_OK);
        out.trained[i] = result.loss;
    }
    trial_close(&t);
    trial_subject_close(&subject);
    return out;
}

/* In evaluation, a model with dropout equals the one without; sums have another order. */
static void it_acts_in_training_alone_and_by_step_and_seed(void **state)
{
    (void)state;
    for (int m = 0; m < 3; m++) {
        coh_model without = *models[m], other = *models[m];
        without.dropout = 0;
        other.dropout = 0.15;
        const losses some = losses_of(models[m]), none = losses_of(&without);
        const losses more = losses_of(&other);
        assert_true(some.evaluated[0] == some.evaluated[1]);
        assert_true(fabs(some.evaluated[0] - none.evaluated[0]) <= 1e-5 * none.evaluated[0]);
        assert_true(some.evaluated[0] == more.evaluated[0]);
        assert_true(none.trained[0] == none.trained[1] && none.trained[1] == none.trained[2]);
        assert_true(some.trained[0] != some.trained[1] && some.trained[1] != some.trained[2]);
        assert_true(fabs(some.trained[0] - none.trained[0]) > 1e-4);
        assert_true(fabs(some.trained[0] - none.trained[0]) < 1.0);
        assert_true(some.fingerprint != none.fingerprint && some.fingerprint != more.fingerprint);
    }
}

/* As above with adapters, whose B is zero before the first update. */
static void inputs_of_adapters_are_dropped_in_training_alone(void **state)
{
    (void)state;
    static const struct {
        uint64_t step, seed;
        float rate;
    } draws[] = { { 0, 5, 0.05f }, { 1, 5, 0 }, { 2, 5, 0 }, { 2, 6, 0 }, { 2, 5, 0 } };
    static const trial_numbers whole = { "one micro-batch", 1, 0 };
    double trained[5], evaluated[5];
    trial_subject subject = subject_of(&adapted, COH_DTYPE_F32);
    trial t;
    trial_open(&t, &subject, &whole, &in_memory, &plain);
    for (int i = 0; i < 5; i++) {
        coh_step_result result = { .struct_bytes = sizeof(result) };
        coh_step_input input = trial_input(&t, 0);
        input.step = draws[i].step;
        input.seed = draws[i].seed;
        input.learning_rate = draws[i].rate;
        assert_int_equal(coh_engine_evaluate(t.engine, &input, &evaluated[i]), COH_OK);
        input = trial_input(&t, 0);
        input.step = draws[i].step;
        input.seed = draws[i].seed;
        input.learning_rate = draws[i].rate;
        assert_int_equal(coh_engine_submit(t.engine, &input), COH_OK);
        assert_int_equal(coh_engine_wait(t.engine, &result), COH_OK);
        trained[i] = result.loss;
    }
    trial_close(&t);
    trial_subject_close(&subject);
    assert_true(trained[0] == evaluated[0]); /* B is zero */
    assert_true(evaluated[1] != evaluated[0]);
    for (int i = 2; i < 5; i++)
        assert_true(evaluated[i] == evaluated[1]);
    assert_true(trained[1] != evaluated[1] && trained[1] != trained[2]);
    assert_true(trained[2] != trained[3] && trained[2] == trained[4]);
}

/* ---- a user's own kind draws as ours do ---- */

/* x -> y = x u, u uniform in [1/2, 3/2) by coh_random_words. */
static coh_status noise_infer(const void *attributes, const coh_shape *inputs, coh_op_facts *facts)
{
    (void)attributes;
    facts->output[0] = inputs[0];
    return COH_OK;
}

static void multiply(const coh_call *call, const coh_view *from, const coh_view *to, int adds)
{
    const float *x = from->data;
    float *y = to->data;
    for (int64_t i = 0; i < coh_shape_elements(&from->shape); i++) {
        uint32_t word = 0x80000000u;
        if (call->random_cell != NULL)
            coh_random_words(call, (uint64_t)i, 1, &word);
        y[i] = (adds ? y[i] : 0.0f) + x[i] * (0.5f + (float)(word >> 8) * 0x1p-24f);
    }
}

static coh_status noise_forward(const coh_call *call)
{
    multiply(call, &call->input[0], &call->output[0], 0);
    return COH_OK;
}

static coh_status noise_backward(const coh_call *call)
{
    multiply(call, &call->output_grad[0], &call->input_grad[0], (call->input_grad_adds & 1u) != 0);
    return COH_OK;
}

static const coh_op_kind noise_kind = {
    .struct_bytes = sizeof(coh_op_kind),
    .abi_version = COH_KIND_ABI,
    .name = "user.noise",
    .input_count = 1,
    .output_count = 1,
    .can_add_grad = { .inputs = 1u },
    .draws = 1,
    .infer = noise_infer,
    .devices = { [COH_DEVICE_HOST] = { .forward = noise_forward, .backward = noise_backward } },
};

static void add_op(coh_graph *graph, const coh_op_kind *kind, const char *name, int32_t block,
                   const void *attributes, size_t attribute_bytes, const coh_tensor *inputs,
                   coh_tensor *out)
{
    const coh_op_args args = { .name = name,
                               .attributes = attributes,
                               .attribute_bytes = attribute_bytes,
                               .inputs = inputs,
                               .block = block };
    if (coh_graph_op(graph, kind, &args, out, NULL) != COH_OK)
        fail_msg("%s: %s", name, coh_last_error());
}

static void a_users_kind_draws_the_same_again(void **state)
{
    (void)state;
    static const char *const names[] = { "a", "b", "c", "d", "e", "f" };
    const coh_shape shape = { .dtype = COH_DTYPE_I32, .rank = 2, .dim = { 2, TOKENS } };
    const coh_embedding_attributes table = { .vocabulary = VOCABULARY,
                                             .channels = 32,
                                             .init_std = 0.5f };
    const coh_linear_attributes linear = { .outputs = 32, .has_bias = 1, .init_std = 0.2f };
    const coh_classifier_attributes head = { .vocabulary = VOCABULARY, .init_std = 0.2f };
    trial_subject subject = { .vocabulary = VOCABULARY, .sequences = 2, .tokens = TOKENS };
    coh_tensor ids, targets, x, ends[2], loss;
    assert_int_equal(coh_graph_create(&subject.graph), COH_OK);
    assert_int_equal(coh_graph_input(subject.graph, "tokens", &shape, &ids), COH_OK);
    assert_int_equal(coh_graph_input(subject.graph, "targets", &shape, &targets), COH_OK);
    add_op(subject.graph, &coh_kind_embedding, "table", -1, &table, sizeof(table), &ids, &x);
    for (int32_t i = 0; i < 6; i++)
        add_op(subject.graph, i % 2 ? &noise_kind : &coh_kind_linear_gelu, names[i], i / 2,
               i % 2 ? NULL : &linear, i % 2 ? 0 : sizeof(linear), &x, &x);
    ends[0] = x;
    ends[1] = targets;
    add_op(subject.graph, &coh_kind_classifier, "head", -1, &head, sizeof(head), ends, &loss);
    assert_int_equal(coh_graph_loss(subject.graph, loss), COH_OK);
    trial_outcome expected, found;
    trial_run(&subject, &numbers[0], &in_memory, &plain, STEPS, &expected);
    for (int p = 0; p < 3; p++) {
        trial_run(&subject, &numbers[0], &placements[p], &disturbed, STEPS, &found);
        trial_check_equal(placements[p].name, &found, &expected);
    }
    trial_subject_close(&subject);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(placement_and_recomputation_change_no_bit),
        cmocka_unit_test(dropout_stands_where_the_family_has_it),
        cmocka_unit_test(it_acts_in_training_alone_and_by_step_and_seed),
        cmocka_unit_test(inputs_of_adapters_are_dropped_in_training_alone),
        cmocka_unit_test(a_users_kind_draws_the_same_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
