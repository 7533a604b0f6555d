/* The optimizers of a plan: what a choice refuses, how parameters are grouped by them, and the
 * bytes of their states, counted by hand. The verifier accepts every program. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner/fingerprint.h"
#include "planner/plan.h"
#include "planner/verify.h"
#include "tests/planner/toy_graph.h"
#include "tests/planner/toy_optimizers.h"

static coh_graph *make_graph(coh_dtype dtype, int freezes)
{
    const toy_options toy = {
        .layers = 2, .width = 64, .vocabulary = 300, .rows = 20, .freezes = freezes, .dtype = dtype
    };
    coh_graph *graph = NULL;
    assert_int_equal(toy_graph_make(&toy, &graph), COH_OK);
    return graph;
}

static coh_plan_options options_of(const char *optimizer, const coh_optimizer_choice *choices,
                                   int32_t choice_count)
{
    coh_plan_options options;
    coh_plan_options_init(&options);
    options.search = COH_SEARCH_QUICK;
    options.microbatch_count = 2;
    options.optimizer_choices = choices;
    options.optimizer_choice_count = choice_count;
    snprintf(options.kernel_path, sizeof(options.kernel_path), "toy");
    snprintf(options.optimizer, sizeof(options.optimizer), "%s", optimizer);
    return options;
}

static void is_refused(const coh_graph *graph, const coh_plan_options *options, const char *part)
{
    coh_plan *plan = NULL;
    const coh_status status = coh_plan_create(graph, options, &plan);
    if (status != COH_ERR_ARGUMENT || strstr(coh_last_error(), part) == NULL)
        fail_msg("%s with \"%s\" instead of a refusal with \"%s\"", coh_status_name(status),
                 coh_last_error(), part);
    assert_null(plan);
}

/* ---- refusals ---- */

static void a_choice_that_is_wrong_is_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *optimizer;
        coh_optimizer_choice choices[2];
        const char *part;
    } wrong[] = {
        { "nobody", { { "*.bias", "adamw" } }, "no optimizer is called 'nobody': there are adamw" },
        { "adamw", { { "*.bias", "nobody" } }, "no optimizer is called 'nobody'" },
        { "adamw", { { "*.bias", "" } }, "no optimizer is called ''" },
        { "adamw", { { "mix7.*", "toy_one" } }, "'mix7.*' matches no trained parameter" },
        { "adamw", { { "", "toy_one" } }, "matches no trained parameter" },
        { "adamw", { { "mix0.weight", "toy_one" } }, "matches no trained parameter" }, /* frozen */
        { "adamw",
          { { "*.bias", "toy_one" }, { "mix0", "toy_none" } },
          "two optimizers are given for parameter mix0.bias: toy_one by '*.bias' and toy_none by "
          "'mix0'" },
        { "", { { "*.bias", "toy_clash" } }, "have a stream m of different forms" },
        { "toy_clash", { { "*.bias", "adamw" } }, "have a stream m of different forms" },
    };
    coh_graph *graph = make_graph(COH_DTYPE_F32, 1);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        const int32_t count = wrong[i].choices[1].optimizer[0] != '\0' ? 2 : 1;
        const coh_plan_options options = options_of(wrong[i].optimizer, wrong[i].choices, count);
        is_refused(graph, &options, wrong[i].part);
    }
    coh_graph_destroy(graph);
}

static void choices_that_agree_are_accepted(void **state)
{
    (void)state;
    static const struct {
        const char *optimizer;
        coh_optimizer_choice choices[2];
    } good[] = {
        { "adamw", { { "*.bias", "toy_one" }, { "mix1.bias", "toy_one" } } },
        { "adamw", { { "*", "toy_clash" }, { "loss", "toy_clash" } } }, /* nothing has adamw's m */
        { "toy_one", { { "*.bias", "toy_one" }, { "*.weight", "adamw" } } },
        { "", { { "embed,loss.weight", "toy_none" }, { "mix*", "adamw" } } },
    };
    coh_graph *graph = make_graph(COH_DTYPE_F32, 1);
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        const coh_plan_options options = options_of(good[i].optimizer, good[i].choices, 2);
        coh_plan *plan = NULL;
        if (coh_plan_create(graph, &options, &plan) != COH_OK)
            fail_msg("%zu: %s", i, coh_last_error());
        coh_plan_destroy(plan);
    }
    coh_graph_destroy(graph);
}

static void a_count_or_text_without_end_is_refused(void **state)
{
    (void)state;
    static coh_optimizer_choice choices[COH_OPTIMIZER_CHOICES_MOST + 1];
    coh_graph *graph = make_graph(COH_DTYPE_F32, 0);
    for (int i = 0; i <= COH_OPTIMIZER_CHOICES_MOST; i++)
        choices[i] = (coh_optimizer_choice){ "*.bias", "toy_one" };
    coh_plan_options options = options_of("", choices, COH_OPTIMIZER_CHOICES_MOST + 1);
    is_refused(graph, &options, "optimizer_choice_count");
    options.optimizer_choice_count = -1;
    is_refused(graph, &options, "optimizer_choice_count");
    options.optimizer_choice_count = 1;
    options.optimizer_choices = NULL;
    is_refused(graph, &options, "NULL");
    options.optimizer_choices = choices;
    memset(options.optimizer, 'a', sizeof(options.optimizer));
    is_refused(graph, &options, "the name of an optimizer has no terminator");
    options = options_of("", choices, 1);
    memset(choices[0].optimizer, 'a', sizeof(choices[0].optimizer));
    is_refused(graph, &options, "the name of an optimizer has no terminator");
    memset(choices[0].pattern, '*', sizeof(choices[0].pattern));
    is_refused(graph, &options, "the pattern of an optimizer has no terminator");
    options = options_of("", choices + 1, COH_OPTIMIZER_CHOICES_MOST);
    coh_plan *plan = NULL;
    assert_int_equal(coh_plan_create(graph, &options, &plan), COH_OK);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

static void a_gpu_wants_a_kernel_of_every_optimizer_that_is_used(void **state)
{
    (void)state;
    static const coh_optimizer_choice biases = { "*.bias", "toy_one" };
    static const coh_optimizer_choice all = { "*", "adamw" };
    coh_graph *graph = make_graph(COH_DTYPE_F32, 0);
    coh_profile *gpu = NULL;
    coh_plan *plan = NULL;
    assert_int_equal(coh_profile_read("a100-40g", &gpu), COH_OK);
    coh_plan_options options = options_of("toy_one", NULL, 0);
    options.profile = gpu;
    is_refused(graph, &options, "optimizer toy_one has no kernel for a GPU");
    options = options_of("adamw", &biases, 1);
    options.profile = gpu;
    is_refused(graph, &options, "optimizer toy_one has no kernel for a GPU");
    options = options_of("toy_one", &all, 1); /* which leaves nothing for toy_one */
    options.profile = gpu;
    if (coh_plan_create(graph, &options, &plan) != COH_OK)
        fail_msg("%s", coh_last_error());
    coh_plan_destroy(plan);
    coh_profile_destroy(gpu);
    coh_graph_destroy(graph);
}

static void a_plan_that_does_not_train_has_no_optimizers(void **state)
{
    (void)state;
    coh_graph *graph = make_graph(COH_DTYPE_BF16, 0);
    coh_plan_options options = options_of("", NULL, 0);
    coh_plan *plan = NULL;
    options.mode = COH_PLAN_INFER;
    options.microbatch_count = 1;
    assert_int_equal(coh_plan_create(graph, &options, &plan), COH_OK);
    assert_int_equal(plan->layout.optimizer_count, 0);
    for (uint32_t i = 0; i < plan->layout.group_count; i++) {
        const coh_group_layout *group = &plan->layout.groups[i];
        assert_true(group->optimizer == -1 && group->grad == -1 && group->state == -1);
        assert_int_equal(group->stream_count, 1);
    }
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

/* ---- plans ---- */

/* Plans in memory, or with 70 % of that and a disk or host tier. */
enum { IN_MEMORY, WITH_DISK, WITH_HOST, TIERS };

static coh_plan *make_plan(const coh_graph *graph, coh_plan_options options, int tier)
{
    uint64_t whole = 0;
    coh_plan *plan = NULL;
    assert_int_equal(coh_plan_in_memory_bytes(graph, &options, &whole), COH_OK);
    if (tier != IN_MEMORY)
        options.device_memory_bytes = whole / 100 * 70;
    options.disk_bytes = tier == WITH_DISK ? UINT64_MAX : 0;
    options.emulate_host = 1;
    options.host_memory_bytes = tier == WITH_HOST ? 4 * whole : 0;
    if (coh_plan_create(graph, &options, &plan) != COH_OK)
        fail_msg("no plan with %s: %s", options.optimizer, coh_last_error());
    return plan;
}

static void check_verifies(const coh_plan *plan)
{
    const coh_verify_options limits = { .budget_bytes = { plan->layout.arena_bytes[COH_TIER_DEVICE],
                                                          plan->layout.arena_bytes[COH_TIER_HOST],
                                                          plan->layout.file_bytes } };
    for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT; kind++)
        if (plan->programs[kind].instruction_count > 0 &&
            coh_verify(&plan->layout, &plan->programs[kind], &limits, NULL) != COH_OK)
            fail_msg("%s: %s", coh_program_kind_name((coh_program_kind)kind), coh_last_error());
}

/* The bytes of states of a chunk of this many elements, counted by hand; all are whole pages except
 * those of toy_blocks and toy_rounds. */
static uint64_t state_bytes(const char *optimizer, coh_dtype dtype, uint64_t elements)
{
    const uint64_t low = dtype == COH_DTYPE_BF16 ? 2 * elements : 0;
    if (strcmp(optimizer, "adamw") == 0)
        return low + 8 * elements;
    if (strcmp(optimizer, "toy_one") == 0)
        return low + 4 * elements;
    if (strcmp(optimizer, "toy_none") == 0)
        return low;
    if (strcmp(optimizer, "toy_bare") == 0)
        return 0;
    if (strcmp(optimizer, "toy_rounds") == 0)
        return (elements + 4095) / 4096 * 4096;
    const uint64_t scales = elements / 128 * 4; /* elements: at least a page of f32, 1024 */
    return (low + elements + (scales + 63) / 64 * 64 + 4095) / 4096 * 4096;
}

/* Checks that the parameter is in the group of its optimizer, and that nothing else is. */
static void check_group(const coh_plan *plan, int32_t index,
                        const char *(*optimizer_of)(const char *))
{
    const coh_layout *layout = &plan->layout;
    const coh_group_layout *group = &layout->groups[index];
    const char *optimizer = NULL;
    for (uint32_t i = 0; i < group->parameter_count; i++) {
        const coh_parameter_layout *parameter = &layout->parameters[group->parameter_begin + i];
        const coh_graph_parameter *made = &plan->graph->parameters[parameter->parameter];
        const char *wanted = made->frozen ? NULL : optimizer_of(made->name);
        assert_int_equal(parameter->group, index);
        assert_int_equal(group->optimizer >= 0, wanted != NULL);
        if (wanted != NULL)
            assert_string_equal(layout->optimizers[group->optimizer]->name, wanted);
        optimizer = wanted;
    }
    const coh_object *work = &layout->objects[group->work];
    for (uint32_t c = 0; c < work->chunk_count; c++) {
        const uint64_t bytes = layout->chunks[work->chunk_begin + c].bytes;
        const uint64_t wanted =
            optimizer == NULL
                ? 0
                : state_bytes(optimizer, group->dtype, bytes / coh_dtype_bytes(group->dtype));
        assert_int_equal(group->state >= 0, wanted > 0);
        if (wanted == 0)
            continue;
        const coh_object *states = &layout->objects[group->state];
        assert_int_equal(states->stream, COH_STREAM_STATE);
        assert_int_equal(layout->chunks[states->chunk_begin + c].bytes, wanted);
    }
}

/* Counts the operands of states that the body's updates take. */
static uint32_t updates_with_states(const coh_plan *plan, uint32_t *out_updates)
{
    const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    uint32_t count = 0;
    *out_updates = 0;
    for (uint32_t i = 0; i < body->instruction_count; i++) {
        const coh_instruction *instruction = &body->instructions[i];
        *out_updates += instruction->opcode == COH_OP_UPDATE;
        for (uint32_t o = 0; o < instruction->operand_count && instruction->opcode == COH_OP_UPDATE;
             o++)
            count +=
                body->operands[instruction->operand_begin + o].role == COH_ROLE_OPTIMIZER_STATE;
    }
    return count;
}

/* Plans the toy graph in every dtype and tier, with updates in backward and deferred. */
static void check_plans(const char *optimizer, const coh_optimizer_choice *choice,
                        const char *(*optimizer_of)(const char *), int32_t optimizer_count)
{
    for (int i = 0; i < 4 * TIERS; i++) {
        const coh_dtype dtype = i % 2 ? COH_DTYPE_BF16 : COH_DTYPE_F32;
        coh_graph *graph = make_graph(dtype, 1);
        coh_plan_options options = options_of(optimizer, choice, choice != NULL);
        options.deferred_update = i / 2 % 2;
        coh_plan *plan = make_plan(graph, options, i / 4);
        assert_int_equal(plan->layout.optimizer_count, optimizer_count);
        assert_int_equal(plan->layout.parameter_count, graph->parameter_count);
        for (uint32_t g = 0; g < plan->layout.group_count; g++)
            check_group(plan, (int32_t)g, optimizer_of);
        check_verifies(plan);
        coh_plan_destroy(plan);
        coh_graph_destroy(graph);
    }
}

static int is_bias(const char *parameter)
{
    const char *dot = strrchr(parameter, '.');
    return dot != NULL && strcmp(dot, ".bias") == 0;
}

static const char *one_for_biases(const char *parameter)
{
    return is_bias(parameter) ? "toy_one" : "adamw";
}

static const char *blocks_for_biases(const char *parameter)
{
    return is_bias(parameter) ? "toy_blocks" : "toy_none";
}

static const char *rounds_for_biases(const char *parameter)
{
    return is_bias(parameter) ? "toy_rounds" : "toy_bare";
}

static const char *always_adamw(const char *parameter)
{
    (void)parameter;
    return "adamw";
}

static const char *always_none(const char *parameter)
{
    (void)parameter;
    return "toy_none";
}

static void groups_are_split_by_optimizer_and_sized_by_its_streams(void **state)
{
    (void)state;
    static const coh_optimizer_choice one = { "*.bias", "toy_one" };
    static const coh_optimizer_choice blocks = { "*.bias", "toy_blocks" };
    static const coh_optimizer_choice frozen_too = { "*", "adamw" };
    static const coh_optimizer_choice rounds = { "*.bias", "toy_rounds" };
    check_plans("", NULL, always_adamw, 1);
    check_plans("", &one, one_for_biases, 2);
    check_plans("toy_none", &blocks, blocks_for_biases, 2);
    check_plans("toy_one", &frozen_too, always_adamw, 1);
    check_plans("toy_none", NULL, always_none, 1);
    check_plans("toy_bare", &rounds, rounds_for_biases, 2);
}

/* An optimizer without streams: in f32 nothing is stored but parameters and gradients; in bf16 the
 * low halves are. */
static void an_optimizer_without_streams_keeps_no_states(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        coh_graph *graph = make_graph(d ? COH_DTYPE_BF16 : COH_DTYPE_F32, 0);
        coh_plan *plan = make_plan(graph, options_of("toy_none", NULL, 0), WITH_DISK);
        const coh_layout *layout = &plan->layout;
        uint64_t work = 0, states = 0;
        uint32_t updates = 0;
        for (uint32_t i = 0; i < layout->object_count; i++) {
            work += layout->objects[i].stream == COH_STREAM_WORK ? layout->objects[i].bytes : 0;
            states += layout->objects[i].stream == COH_STREAM_STATE ? layout->objects[i].bytes : 0;
        }
        assert_int_equal(states, d ? work : 0);
        const uint32_t with_states = updates_with_states(plan, &updates);
        assert_true(updates >= layout->group_count);
        assert_int_equal(with_states, d ? updates : 0);
        coh_plan_destroy(plan);
        coh_graph_destroy(graph);
    }
}

static void fewer_states_need_fewer_bytes(void **state)
{
    (void)state;
    static const char *const optimizers[] = { "toy_none", "toy_blocks", "toy_one", "adamw" };
    coh_graph *graph = make_graph(COH_DTYPE_F32, 0);
    uint64_t before = 0;
    for (int i = 0; i < 4; i++) {
        const coh_plan_options options = options_of(optimizers[i], NULL, 0);
        uint64_t bytes = 0;
        assert_int_equal(coh_plan_in_memory_bytes(graph, &options, &bytes), COH_OK);
        assert_true(bytes > before);
        before = bytes;
    }
    coh_graph_destroy(graph);
}

/* Returns the elements of all f32 parameters with the padding between them, as instructions
 * cover them. */
static uint64_t work_elements(const coh_layout *layout)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < layout->group_count; i++)
        bytes += layout->objects[layout->groups[i].work].bytes;
    return bytes / sizeof(float);
}

/* toy_slow differs from toy_one in its arithmetic alone, which takes longer than its bytes: the
 * steps differ by the time of this arithmetic, less that of the bytes, which it hides. */
static void an_update_is_priced_by_its_arithmetic_if_that_takes_longer(void **state)
{
    (void)state;
    static const char *const optimizers[] = { "toy_one", "toy_slow" };
    coh_graph *graph = make_graph(COH_DTYPE_F32, 0);
    double step_ns[2], arithmetic_ns = 0;
    for (int i = 0; i < 2; i++) {
        const coh_plan_options options = options_of(optimizers[i], NULL, 0);
        coh_plan *plan = NULL;
        coh_plan_summary summary = { .struct_bytes = sizeof(summary) };
        assert_int_equal(coh_plan_create(graph, &options, &plan), COH_OK);
        assert_int_equal(coh_plan_summarize(plan, &summary), COH_OK);
        step_ns[i] = (double)summary.step_ns;
        arithmetic_ns = (double)work_elements(&plan->layout) * 1e5 /
                        plan->profile.flops_per_s[COH_ROOF_F32].p50 * 1e9;
        coh_plan_destroy(plan);
    }
    assert_true(arithmetic_ns > 10 * step_ns[0]);
    assert_true(step_ns[1] > arithmetic_ns && step_ns[1] < arithmetic_ns + step_ns[0]);
    coh_graph_destroy(graph);
}

static void a_plan_keeps_its_own_copy_of_the_choices(void **state)
{
    (void)state;
    coh_optimizer_choice choice = { "*.bias", "toy_one" };
    coh_graph *graph = make_graph(COH_DTYPE_F32, 0);
    coh_plan *plan = make_plan(graph, options_of("", &choice, 1), IN_MEMORY);
    memset(&choice, 0xff, sizeof(choice));
    assert_int_equal(plan->options.optimizer_choice_count, 1);
    assert_string_equal(plan->options.optimizer_choices[0].pattern, "*.bias");
    assert_string_equal(plan->options.optimizer_choices[0].optimizer, "toy_one");
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

/* ---- the numeric plan ---- */

static uint64_t fingerprint_of(const coh_graph *graph, const char *optimizer, const char *pattern,
                               const char *chosen)
{
    coh_optimizer_choice choice = { { 0 }, { 0 } };
    if (pattern != NULL) {
        snprintf(choice.pattern, sizeof(choice.pattern), "%s", pattern);
        snprintf(choice.optimizer, sizeof(choice.optimizer), "%s", chosen);
    }
    const coh_plan_options options = options_of(optimizer, &choice, pattern != NULL);
    return coh_numeric_fingerprint(graph, &options);
}

/* The numbers are those of the library before optimizers could be chosen: its checkpoints load
 * without a warning. */
static void the_fingerprint_of_adamw_is_that_of_older_checkpoints(void **state)
{
    (void)state;
    static const uint64_t older[] = { 0xce83fdc3af9c1cb4u, 0x4e12b245656c672fu };
    for (int d = 0; d < 2; d++) {
        coh_graph *graph = make_graph(d ? COH_DTYPE_BF16 : COH_DTYPE_F32, 1);
        assert_true(fingerprint_of(graph, "", NULL, NULL) == older[d]);
        assert_true(fingerprint_of(graph, "adamw", NULL, NULL) == older[d]);
        assert_true(fingerprint_of(graph, "", "*.bias", "adamw") == older[d]);
        assert_true(fingerprint_of(graph, "toy_one", "*", "adamw") == older[d]);
        coh_graph_destroy(graph);
    }
}

static void the_fingerprint_follows_the_optimizer_of_each_parameter(void **state)
{
    (void)state;
    coh_graph *graph = make_graph(COH_DTYPE_F32, 1);
    const uint64_t found[] = {
        fingerprint_of(graph, "", NULL, NULL),
        fingerprint_of(graph, "toy_one", NULL, NULL),
        fingerprint_of(graph, "toy_none", NULL, NULL),
        fingerprint_of(graph, "", "mix0.bias", "toy_one"),
        fingerprint_of(graph, "", "mix1.bias", "toy_one"),
        fingerprint_of(graph, "", "*.bias", "toy_one"),
        fingerprint_of(graph, "", "*.bias", "toy_none"),
        fingerprint_of(graph, "toy_one", "*.bias", "adamw"),
    };
    enum { COUNT = sizeof(found) / sizeof(found[0]) };
    for (int a = 0; a < COUNT; a++)
        for (int b = 0; b < a; b++)
            assert_true(found[a] != found[b]);
    /* the optimizer of each parameter counts, however it is given */
    assert_true(fingerprint_of(graph, "adamw", "mix?.bias", "toy_one") == found[5]);
    assert_true(fingerprint_of(graph, "adamw", "*", "toy_one") == found[1]);
    coh_graph_destroy(graph);
}

static int register_all(void **state)
{
    (void)state;
    return toy_optimizers_register() != COH_OK;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_choice_that_is_wrong_is_refused_by_name),
        cmocka_unit_test(choices_that_agree_are_accepted),
        cmocka_unit_test(a_count_or_text_without_end_is_refused),
        cmocka_unit_test(a_gpu_wants_a_kernel_of_every_optimizer_that_is_used),
        cmocka_unit_test(a_plan_that_does_not_train_has_no_optimizers),
        cmocka_unit_test(groups_are_split_by_optimizer_and_sized_by_its_streams),
        cmocka_unit_test(an_optimizer_without_streams_keeps_no_states),
        cmocka_unit_test(fewer_states_need_fewer_bytes),
        cmocka_unit_test(an_update_is_priced_by_its_arithmetic_if_that_takes_longer),
        cmocka_unit_test(a_plan_keeps_its_own_copy_of_the_choices),
        cmocka_unit_test(the_fingerprint_of_adamw_is_that_of_older_checkpoints),
        cmocka_unit_test(the_fingerprint_follows_the_optimizer_of_each_parameter),
    };
    return cmocka_run_group_tests(tests, register_all, NULL);
}
