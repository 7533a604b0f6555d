/* Pins: what the user pinned is in the program (looked up there, not in the planner's tables), the
 * rest is searched, and a pin that cannot hold is refused by name. The verifier checks every plan
 * here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file_text.h"
#include "planner/plan.h"
#include "tests/planner/toy_graph.h"
#include "tests/temporary.h"

static coh_pin pins[8];
static const toy_options toy = {
    .layers = 4, .width = 64, .vocabulary = 300, .rows = 200, .is_tied = 1
};

/* `texts` ends with NULL. */
static coh_plan_options options_with(const char *const *texts)
{
    coh_plan_options options = { .struct_bytes = sizeof(options),
                                 .device_memory_bytes = UINT64_MAX,
                                 .disk_bytes = UINT64_MAX,
                                 .thread_count = 1,
                                 .microbatch_count = 2,
                                 .deferred_update = 1,
                                 .kernel_path = "toy",
                                 .pins = pins };
    for (; texts[options.pin_count] != NULL; options.pin_count++)
        assert_int_equal(coh_pin_parse(texts[options.pin_count], &pins[options.pin_count]), COH_OK);
    return options;
}

static coh_graph *make_graph(void)
{
    coh_graph *graph = NULL;
    assert_int_equal(toy_graph_make(&toy, &graph), COH_OK);
    return graph;
}

static coh_plan *make_plan(const coh_graph *graph, const coh_plan_options *options)
{
    coh_plan *plan = NULL;
    if (coh_plan_create(graph, options, &plan) != COH_OK)
        fail_msg("%s", coh_last_error());
    return plan;
}

static uint64_t in_memory(const coh_graph *graph)
{
    static const char *const none[] = { NULL };
    const coh_plan_options options = options_with(none);
    uint64_t bytes = 0;
    assert_int_equal(coh_plan_in_memory_bytes(graph, &options, &bytes), COH_OK);
    return bytes;
}

/* ---- what the program does ---- */

/* Counts the body's transfer instructions on objects of one stream and owner (-1: any). */
static int moves_of(const coh_plan *plan, coh_stream stream, int32_t owner)
{
    const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    int count = 0;
    for (uint32_t i = 0; i < body->instruction_count; i++) {
        const coh_instruction *instruction = &body->instructions[i];
        if (instruction->lane == COH_LANE_COMPUTE)
            continue;
        const coh_object *object =
            &plan->layout.objects[body->operands[instruction->operand_begin].object];
        count += object->stream == stream && (owner < 0 || object->owner == owner);
    }
    return count;
}

/* Counts transfer instructions on the weights of the operators of block `block`, or on what
 * these make. */
static int block_moves(const coh_plan *plan, int32_t block, int of_weights)
{
    int count = 0;
    for (size_t op = 0; op < plan->graph->op_count; op++) {
        const coh_graph_op_entry *entry = &plan->graph->ops[op];
        if (entry->block != block)
            continue;
        for (uint32_t i = 0; of_weights && i < plan->layout.parameter_count; i++)
            for (int32_t port = 0; port < entry->kind.parameter_count; port++)
                if (plan->layout.parameters[i].parameter == entry->parameter[port])
                    count += moves_of(plan, COH_STREAM_WORK, plan->layout.parameters[i].group);
        for (int32_t port = 0; !of_weights && port < entry->kind.output_count; port++)
            count += moves_of(plan, COH_STREAM_ACTIVATION, entry->output[port]);
        if (!of_weights)
            count += moves_of(plan, COH_STREAM_SAVED, (int32_t)op);
    }
    return count;
}

/* Returns the tiers that hold the weights of block `block` between steps: bit `tier` for each. */
static int block_places(const coh_plan *plan, int32_t block)
{
    int places = 0;
    for (int32_t i = 0; i < coh_plan_operator_count(plan); i++) {
        coh_plan_operator facts = { .struct_bytes = sizeof(facts) };
        assert_int_equal(coh_plan_operator_at(plan, i, &facts), COH_OK);
        if (facts.block != block || strcmp(facts.parameters, "-") == 0)
            continue;
        places |= strstr(facts.parameters, "device") ? 1 : 0;
        places |= strstr(facts.parameters, "host") ? 2 : 0;
        places |= strstr(facts.parameters, "disk") ? 4 : 0;
    }
    return places;
}

static int is_recomputed(const coh_plan *plan, int32_t block)
{
    const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    for (uint32_t i = 0; i < body->instruction_count; i++)
        if (body->instructions[i].opcode == COH_OP_RECOMPUTE &&
            plan->graph->ops[body->calls[body->instructions[i].call].operator_index].block == block)
            return 1;
    return 0;
}

/* ---- pins are obeyed ---- */

/* A quarter of the memory, so that the weights of unpinned blocks move. */
static void weights_stay_on_the_device(void **state)
{
    (void)state;
    static const char *const texts[] = { "blocks.1-2=device", NULL };
    coh_graph *graph = make_graph();
    coh_plan_options options = options_with(texts);
    options.device_memory_bytes = in_memory(graph) / 3;
    coh_plan *plan = make_plan(graph, &options);
    for (int32_t block = 0; block < toy.layers; block++) {
        const int is_pinned = block == 1 || block == 2;
        assert_int_equal(block_moves(plan, block, 1) == 0, is_pinned);
        if (is_pinned)
            assert_int_equal(block_places(plan, block), 1);
    }
    options.pin_count = 0;
    coh_plan *without = make_plan(graph, &options);
    assert_true(block_moves(without, 1, 1) + block_moves(without, 2, 1) > 0);
    assert_int_equal(without->numeric_fingerprint, plan->numeric_fingerprint);
    coh_plan_destroy(without);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

/* There is room for everything, yet one block goes to disk and one to the host tier. */
static void weights_stand_where_they_are_sent(void **state)
{
    (void)state;
    static const char *const texts[] = { "mix0=disk", "blocks.1=host", "blocks.3=device", NULL };
    coh_graph *graph = make_graph();
    coh_plan_options options = options_with(texts);
    options.device_memory_bytes = 2 * in_memory(graph);
    options.emulate_host = 1;
    options.host_memory_bytes = in_memory(graph) / 16; /* other blocks pass through it */
    coh_plan *plan = make_plan(graph, &options);
    assert_int_equal(block_places(plan, 0) & 4, 4);
    assert_int_equal(block_places(plan, 1), 2);
    assert_int_equal(block_places(plan, 3), 1);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

static void activations_stay_go_or_are_made_again(void **state)
{
    (void)state;
    static const char *const texts[] = { "blocks.0=offload", "blocks.1=keep", "blocks.2=recompute",
                                         "blocks.3=keep", NULL };
    coh_graph *graph = make_graph();
    coh_plan_options options = options_with(texts);
    for (int roomy = 0; roomy < 2; roomy++) {
        options.device_memory_bytes = in_memory(graph) * (roomy ? 2 : 1);
        coh_plan *plan = make_plan(graph, &options);
        assert_true(block_moves(plan, 0, 0) > 0);
        assert_int_equal(block_moves(plan, 1, 0) + block_moves(plan, 3, 0), 0);
        for (int32_t block = 0; block < toy.layers; block++)
            assert_int_equal(is_recomputed(plan, block), block == 2);
        coh_plan_destroy(plan);
    }
    /* pins override a choice for all blocks */
    options.recompute = COH_RECOMPUTE_ALL;
    options.device_memory_bytes = in_memory(graph);
    coh_plan *plan = make_plan(graph, &options);
    for (int32_t block = 0; block < toy.layers; block++)
        assert_int_equal(is_recomputed(plan, block), block == 2);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

/* Even with little room a kept block does not leave; the reported smallest budget includes it. */
static void what_is_kept_never_leaves_at_the_smallest_budget(void **state)
{
    (void)state;
    static const char *const texts[] = { "blocks.0-1=keep", NULL };
    coh_graph *graph = make_graph();
    coh_plan_options options = options_with(texts);
    uint64_t smallest[2];
    for (int i = 0; i < 2; i++) {
        options.pin_count = i;
        options.device_memory_bytes = in_memory(graph) * 3 / 4;
        coh_plan *plan = make_plan(graph, &options);
        smallest[i] = plan->smallest_device_bytes;
        assert_true(plan->smallest_is_proven);
        coh_plan_destroy(plan);
    }
    assert_true(smallest[1] > smallest[0]);
    for (int more = 0; more < 40; more++) { /* the bound is not always reached by a schedule */
        options.device_memory_bytes = smallest[1] + (uint64_t)more * 16384;
        coh_plan *plan = NULL;
        coh_status status = coh_plan_create(graph, &options, &plan);
        if (status == COH_ERR_FULL)
            continue;
        assert_int_equal(status, COH_OK);
        assert_int_equal(block_moves(plan, 0, 0) + block_moves(plan, 1, 0), 0);
        assert_false(is_recomputed(plan, 0));
        coh_plan_destroy(plan);
        coh_graph_destroy(graph);
        return;
    }
    fail_msg("no plan within 640 KiB of the bound: %s", coh_last_error());
}

/* ---- refusals ---- */

static void check_refused(coh_status status, const char *words, const coh_plan_options *options)
{
    coh_graph *graph = make_graph();
    coh_plan *plan = NULL;
    assert_int_equal(coh_plan_create(graph, options, &plan), status);
    assert_null(plan);
    if (!strstr(coh_last_error(), words))
        fail_msg("'%s' does not say '%s'", coh_last_error(), words);
    coh_graph_destroy(graph);
}

static void what_names_nothing_or_contradicts_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *pins[3], *words;
        int host, disk;
    } cases[] = {
        { { "blocks.4=device" }, "has 4 blocks", 0, 1 },
        { { "nothing*=device" }, "no operator with parameters", 0, 1 },
        { { "join0=device" }, "no operator with parameters", 0, 1 },
        { { "nothing*=keep" }, "no operator of the model", 0, 1 },
        { { "embed=recompute" }, "is in no block", 0, 1 },
        { { "blocks.0=host" }, "no host tier: give emulated host memory", 0, 1 },
        { { "blocks.0=disk" }, "no disk: give a disk", 1, 0 },
        { { "blocks.0=offload" }, "no tier to move to", 0, 0 },
        { { "blocks.0-1=device", "mix1=disk" },
          "contradict one another: both name operator mix1",
          0,
          1 },
        { { "blocks.0=keep", "mix0=recompute" }, "contradict", 0, 1 },
        { { "mix0=recompute", "join0=offload" }, "operator of its block", 0, 1 },
        { { "embed=device", "loss=disk" }, "share its parameters", 0, 1 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        coh_plan_options options = options_with(cases[i].pins);
        options.emulate_host = 1;
        options.host_memory_bytes = cases[i].host ? UINT64_MAX / 4 : 0;
        options.disk_bytes = cases[i].disk ? UINT64_MAX : 0;
        check_refused(COH_ERR_ARGUMENT, cases[i].words, &options);
    }
    static const char *const texts[] = { "",
                                         "=device",
                                         "blocks.0",
                                         "blocks.0=",
                                         "blocks.0=cpu",
                                         "blocks.=keep",
                                         "blocks.1-0=keep",
                                         "blocks.1-=keep",
                                         "blocks.a=keep",
                                         "blocks.1024=keep",
                                         "blocks.0 =keep",
                                         "a\nb=keep" };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        coh_pin pin;
        assert_int_equal(coh_pin_parse(texts[i], &pin), COH_ERR_ARGUMENT);
    }
}

/* The message names the first pin that exceeds the budget and a budget that would hold it; that
 * budget does. */
static void a_pin_that_cannot_hold_is_named_with_what_it_needs(void **state)
{
    (void)state;
    static const char *const texts[] = { "blocks.3=device", "blocks.0-2=device", NULL };
    coh_graph *graph = make_graph();
    coh_plan_options options = options_with(texts);
    options.pin_count = 1;
    options.device_memory_bytes = in_memory(graph) / 2;
    coh_plan *plan = make_plan(graph, &options);
    options.device_memory_bytes = plan->smallest_device_bytes;
    coh_plan_destroy(plan);
    options.pin_count = 2;
    check_refused(COH_ERR_FULL, "pin 'blocks.0-2=device': with it a step needs", &options);
    unsigned long long needs = 0;
    assert_int_equal(sscanf(strstr(coh_last_error(), "needs "), "needs %llu", &needs), 1);
    assert_true(needs > options.device_memory_bytes);
    options.device_memory_bytes = needs;
    plan = make_plan(graph, &options);
    assert_int_equal(plan->smallest_device_bytes, needs);
    options.device_memory_bytes = needs - 4096;
    check_refused(COH_ERR_FULL, ": 4096 bytes short", &options);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

/* The weights of the host pin do not fit in the host tier. */
static void a_host_tier_too_small_for_its_pins_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = { "blocks.0-3=host", NULL };
    coh_graph *graph = make_graph();
    coh_plan_options options = options_with(texts);
    options.device_memory_bytes = in_memory(graph);
    options.emulate_host = 1;
    options.host_memory_bytes = 32768;
    check_refused(COH_ERR_FULL, "host memory: pins hold", &options);
    coh_graph_destroy(graph);
}

/* ---- files ---- */

static void a_plan_file_holds_its_pins(void **state)
{
    (void)state;
    static const char *const texts[] = { "blocks.1-2=device", "mix*=keep", NULL };
    char path[256];
    coh_graph *graph = make_graph();
    coh_plan_options options = options_with(texts);
    options.device_memory_bytes = in_memory(graph) * 3 / 4;
    coh_plan *plan = make_plan(graph, &options), *again = NULL;
    assert_int_equal(temporary_file(path, sizeof(path), "plan"), 0);
    assert_int_equal(coh_plan_write(plan, path), COH_OK);
    options.pins = NULL;
    options.pin_count = 0;
    if (coh_plan_read(graph, &options, path, &again) != COH_OK)
        fail_msg("%s", coh_last_error());
    assert_int_equal(again->program_hash, plan->program_hash);
    assert_int_equal(again->options.pin_count, 2);
    assert_memory_equal(again->pins, plan->pins, 2 * sizeof(coh_pin));
    assert_int_equal(block_moves(again, 1, 1), 0);
    coh_plan_destroy(again);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_stay_on_the_device),
        cmocka_unit_test(weights_stand_where_they_are_sent),
        cmocka_unit_test(activations_stay_go_or_are_made_again),
        cmocka_unit_test(what_is_kept_never_leaves_at_the_smallest_budget),
        cmocka_unit_test(what_names_nothing_or_contradicts_is_refused),
        cmocka_unit_test(a_pin_that_cannot_hold_is_named_with_what_it_needs),
        cmocka_unit_test(a_host_tier_too_small_for_its_pins_is_refused),
        cmocka_unit_test(a_plan_file_holds_its_pins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
