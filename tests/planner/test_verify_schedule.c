/* The same mutations on the scheduler's programs: tied tables, kinds that cannot add, frozen
 * parameters, rows by ranges, both far tiers, every kind of program. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "planner/plan_make.h"
#include "planner/residency.h"
#include "tests/length.h"
#include "tests/planner/mutations.h"
#include "tests/planner/toy_graph.h"
#include "tests/planner/toy_optimizers.h"

typedef struct setting {
    const char *name;
    toy_options toy;
    int microbatches, deferred, host, disk;
    coh_recompute recompute;
    int percent;      /* budget in percent of the in-memory bytes */
    int caches;       /* 1: this budget leaves room for the operators' caches */
    int updates;      /* coh_decisions.host_updates; 0: searched */
    int slices;       /* coh_decisions.slices; 0: searched */
    int f32;          /* coh_plan_options.f32_gradients */
    int host_percent; /* host tier in percent of the in-memory bytes; 0: 400 */
    const char *pins[3];
    const char *optimizer; /* NULL: the default */
    coh_optimizer_choice choice;
    coh_fold_shape replicas, ranks; /* of coh_plan_options */
    int node_ranks;
    const char *pattern; /* coh_plan_options.rank_pattern; NULL: "" */
    coh_wires wires;     /* likewise */
    int lead, late;      /* of the decisions */
    int light, patient;  /* likewise */
    int speculates;      /* 1: coh_plan_options.speculates, with the decisions found without */
} setting;

static const setting settings[] = {
    { "disk, deferred, tied",
      { .layers = 2, .in_place = 1, .width = 64, .vocabulary = 600, .rows = 40, .is_tied = 1 },
      2,
      1,
      0,
      1,
      COH_RECOMPUTE_NONE,
      55 },
    { "disk, direct, kinds that cannot add",
      { .layers = 2, .width = 80, .vocabulary = 300, .rows = 60, .overwrites = 1, .freezes = 1 },
      2,
      0,
      0,
      1,
      COH_RECOMPUTE_ALL,
      60 },
    { "host, deferred, recomputed",
      { .layers = 2, .in_place = 1, .width = 64, .vocabulary = 500, .rows = 30, .is_tied = 1 },
      1,
      1,
      1,
      0,
      COH_RECOMPUTE_ALL,
      60 },
    { "host, deferred, survivors in both tiers",
      { .layers = 3, .width = 96, .vocabulary = 300, .rows = 40 },
      2,
      1,
      1,
      0,
      COH_RECOMPUTE_NONE,
      60,
      .host_percent = 67 },
    { "host, direct, bf16, frozen, survivors in both tiers",
      { .layers = 6,
        .in_place = 1,
        .width = 128,
        .vocabulary = 300,
        .rows = 20,
        .freezes = 1,
        .dtype = COH_DTYPE_BF16 },
      1,
      0,
      1,
      0,
      COH_RECOMPUTE_ALL,
      60,
      .host_percent = 61 },
    { "host and disk, direct",
      { .layers = 1, .width = 48, .vocabulary = 700, .rows = 50 },
      2,
      0,
      1,
      1,
      COH_RECOMPUTE_NONE,
      60 },
    { "disk, deferred, tied, bf16",
      { .layers = 2,
        .in_place = 1,
        .width = 64,
        .vocabulary = 900,
        .rows = 40,
        .is_tied = 1,
        .dtype = COH_DTYPE_BF16 },
      2,
      1,
      0,
      1,
      COH_RECOMPUTE_NONE,
      55 },
    { "host, direct, bf16, kinds that cannot add",
      { .layers = 2,
        .width = 80,
        .vocabulary = 500,
        .rows = 30,
        .overwrites = 1,
        .freezes = 1,
        .dtype = COH_DTYPE_BF16 },
      1,
      0,
      1,
      0,
      COH_RECOMPUTE_ALL,
      60 },
    { "disk, deferred, tied, bf16, gradients f32",
      { .layers = 2,
        .in_place = 1,
        .width = 64,
        .vocabulary = 900,
        .rows = 40,
        .is_tied = 1,
        .dtype = COH_DTYPE_BF16 },
      2,
      1,
      0,
      1,
      COH_RECOMPUTE_NONE,
      55,
      .f32 = 1 },
    { "host, direct, bf16, gradients f32, kinds that cannot add",
      { .layers = 2,
        .width = 80,
        .vocabulary = 300,
        .rows = 30,
        .overwrites = 1,
        .freezes = 1,
        .dtype = COH_DTYPE_BF16 },
      2,
      0,
      1,
      0,
      COH_RECOMPUTE_ALL,
      60,
      .updates = 1,
      .f32 = 1 },
    { "disk, deferred, frozen",
      { .layers = 3, .in_place = 1, .width = 96, .vocabulary = 300, .rows = 20, .freezes = 1 },
      1,
      1,
      0,
      1,
      COH_RECOMPUTE_NONE,
      70 },
    { "host and disk, deferred, frozen",
      { .layers = 3, .width = 96, .vocabulary = 300, .rows = 20, .freezes = 1 },
      1,
      1,
      1,
      1,
      COH_RECOMPUTE_NONE,
      60 },
    { "disk, deferred, caches",
      { .layers = 1,
        .in_place = 1,
        .width = 48,
        .vocabulary = 700,
        .rows = 50,
        .is_tied = 1,
        .caches = 1 },
      2,
      1,
      0,
      1,
      COH_RECOMPUTE_NONE,
      75,
      1 },
    { "host, deferred, tied, all updates on the host",
      { .layers = 2, .width = 64, .vocabulary = 300, .rows = 40, .is_tied = 1 },
      2,
      1,
      1,
      0,
      COH_RECOMPUTE_NONE,
      60,
      .updates = 3 },
    { "host, direct, bf16, half of the updates on the host",
      { .layers = 2,
        .in_place = 1,
        .width = 80,
        .vocabulary = 300,
        .rows = 30,
        .overwrites = 1,
        .freezes = 1,
        .dtype = COH_DTYPE_BF16 },
      1,
      0,
      1,
      0,
      COH_RECOMPUTE_ALL,
      60,
      .updates = 1 },
    { "host and disk, deferred, bf16, half of the updates on the host",
      { .layers = 2, .width = 64, .vocabulary = 300, .rows = 20, .dtype = COH_DTYPE_BF16 },
      1,
      1,
      1,
      1,
      COH_RECOMPUTE_NONE,
      60,
      .updates = 1 },
    { "host and disk, direct, all updates on the host",
      { .layers = 1, .in_place = 1, .width = 48, .vocabulary = 500, .rows = 50, .is_tied = 1 },
      2,
      0,
      1,
      1,
      COH_RECOMPUTE_NONE,
      60,
      .updates = 2 },
    { "host and disk, deferred, sliced, one block recomputed, another moved",
      { .layers = 3, .width = 256, .vocabulary = 100, .rows = 8, .is_tied = 1, .slices = 1 },
      2,
      1,
      1,
      1,
      COH_RECOMPUTE_NONE,
      50,
      .slices = 4,
      .pins = { "blocks.1=recompute", "blocks.0=offload" } },
    { "disk, direct, sliced, bf16",
      { .layers = 2,
        .in_place = 1,
        .width = 256,
        .vocabulary = 100,
        .rows = 8,
        .slices = 1,
        .dtype = COH_DTYPE_BF16 },
      1,
      0,
      0,
      1,
      COH_RECOMPUTE_NONE,
      60,
      .slices = 2 },
    { "disk, deferred, tied, replicas 2x2",
      { .layers = 1, .width = 48, .vocabulary = 300, .rows = 20, .is_tied = 1 },
      4,
      1,
      0,
      1,
      COH_RECOMPUTE_NONE,
      60,
      .replicas = { { 2, 2 } } },
    { "host, direct, bf16, kinds that cannot add, replicas 3",
      { .layers = 1,
        .in_place = 1,
        .width = 48,
        .vocabulary = 300,
        .rows = 20,
        .overwrites = 1,
        .freezes = 1,
        .dtype = COH_DTYPE_BF16 },
      6,
      0,
      1,
      0,
      COH_RECOMPUTE_NONE,
      70,
      .updates = 1,
      .f32 = 1,
      .replicas = { { 3 } } },
    { "disk, direct, tied, replicas 2x2x2",
      { .layers = 1, .width = 48, .vocabulary = 300, .rows = 20, .is_tied = 1 },
      8,
      0,
      0,
      1,
      COH_RECOMPUTE_NONE,
      60,
      .replicas = { { 2, 2, 2 } } },
    { "disk, deferred, tied, ranks 2x2 of two nodes",
      { .layers = 1, .in_place = 1, .width = 48, .vocabulary = 300, .rows = 20, .is_tied = 1 },
      2,
      1,
      0,
      1,
      COH_RECOMPUTE_NONE,
      60,
      .replicas = { { 2 } },
      .ranks = { { 2, 2 } },
      .node_ranks = 2 },
    { "host, direct, bf16, ranks 3",
      { .layers = 1,
        .width = 48,
        .vocabulary = 300,
        .rows = 20,
        .freezes = 1,
        .dtype = COH_DTYPE_BF16 },
      1,
      0,
      1,
      0,
      COH_RECOMPUTE_NONE,
      70,
      .updates = 1,
      .f32 = 1,
      .ranks = { { 3 } } },
    { "disk, deferred, tied, zero1 on ranks 2x2 of two nodes",
      { .layers = 1, .in_place = 1, .width = 256, .vocabulary = 128, .rows = 20, .is_tied = 1 },
      2,
      1,
      0,
      1,
      COH_RECOMPUTE_NONE,
      60,
      .replicas = { { 2 } },
      .ranks = { { 2, 2 } },
      .node_ranks = 2,
      .pattern = "zero1" },
    { "host, direct, bf16, zero1 on ranks 3",
      { .layers = 1, .width = 256, .vocabulary = 300, .rows = 20, .dtype = COH_DTYPE_BF16 },
      1,
      0,
      1,
      0,
      COH_RECOMPUTE_NONE,
      70,
      .updates = 1,
      .f32 = 1,
      .ranks = { { 3 } },
      .pattern = "zero1" },
    { "disk, deferred, zero3 on ranks 2x2 of two nodes",
      { .layers = 1, .in_place = 1, .width = 256, .vocabulary = 128, .rows = 20 },
      2,
      1,
      0,
      1,
      COH_RECOMPUTE_NONE,
      60,
      .replicas = { { 2 } },
      .ranks = { { 2, 2 } },
      .node_ranks = 2,
      .pattern = "zero3" },
    { "disk, deferred, zero3 and a copy in the node, on ranks 2x2 of two nodes, recomputed",
      { .layers = 1, .width = 256, .vocabulary = 128, .rows = 20 },
      2,
      1,
      0,
      1,
      COH_RECOMPUTE_ALL,
      60,
      .ranks = { { 2, 2 } },
      .node_ranks = 2,
      .pattern = "zeropp" },
    { "host, deferred, zero3 on ranks 2x2, gathered two calls early",
      { .layers = 2, .in_place = 1, .width = 256, .vocabulary = 128, .rows = 20 },
      2,
      1,
      1,
      0,
      COH_RECOMPUTE_NONE,
      98,
      .ranks = { { 2, 2 } },
      .pattern = "zero3",
      .lead = 2 },
    { "host, direct, bf16, zero2 on ranks 3",
      { .layers = 1, .width = 256, .vocabulary = 300, .rows = 20, .dtype = COH_DTYPE_BF16 },
      1,
      0,
      1,
      0,
      COH_RECOMPUTE_NONE,
      70,
      .updates = 1,
      .f32 = 1,
      .ranks = { { 3 } },
      .pattern = "zero2" },
    { "host, deferred, bf16, recomputed, zero3 on ranks 3, packed",
      { .layers = 1,
        .in_place = 1,
        .width = 256,
        .vocabulary = 300,
        .rows = 20,
        .dtype = COH_DTYPE_BF16 },
      2,
      1,
      1,
      0,
      COH_RECOMPUTE_ALL,
      70,
      .updates = 1,
      .f32 = 1,
      .ranks = { { 3 } },
      .pattern = "zero3",
      .wires = { COH_WIRE_INT8, COH_WIRE_INT4 } },
    { "disk, deferred, tied, levels 2/2/4 on ranks 2x2 of two nodes",
      { .layers = 1, .width = 256, .vocabulary = 128, .rows = 20, .is_tied = 1 },
      2,
      1,
      0,
      1,
      COH_RECOMPUTE_NONE,
      60,
      .ranks = { { 2, 2 } },
      .node_ranks = 2,
      .pattern = "2/2/4",
      .lead = 1 },
    { "host, direct, bf16, levels 1/2/2 on ranks 2x2, one layer 2/4/4",
      { .layers = 2,
        .in_place = 1,
        .width = 256,
        .vocabulary = 128,
        .rows = 20,
        .dtype = COH_DTYPE_BF16 },
      2,
      0,
      1,
      0,
      COH_RECOMPUTE_NONE,
      90,
      .f32 = 1,
      .pins = { "mix1=2/4/4" },
      .ranks = { { 2, 2 } },
      .node_ranks = 2,
      .pattern = "1/2/2" },
    { "disk, deferred, tied, no states but of biases",
      { .layers = 2, .width = 64, .vocabulary = 600, .rows = 40, .is_tied = 1 },
      2,
      1,
      0,
      1,
      COH_RECOMPUTE_NONE,
      70,
      .optimizer = "toy_none",
      .choice = { "*.bias", "adamw" } },
    { "host, direct, bf16, no states but of one layer",
      { .layers = 2,
        .in_place = 1,
        .width = 80,
        .vocabulary = 500,
        .rows = 30,
        .freezes = 1,
        .dtype = COH_DTYPE_BF16 },
      1,
      0,
      1,
      0,
      COH_RECOMPUTE_NONE,
      70,
      .optimizer = "toy_none",
      .choice = { "mix1", "toy_blocks" } },
    { "disk, speculates, tied",
      { .layers = 2, .width = 64, .vocabulary = 600, .rows = 40, .is_tied = 1 },
      2,
      1,
      0,
      1,
      COH_RECOMPUTE_NONE,
      60,
      .speculates = 1 },
    { "host and disk, speculates, bf16, frozen, half of the updates on the host",
      { .layers = 2,
        .in_place = 1,
        .width = 64,
        .vocabulary = 300,
        .rows = 20,
        .freezes = 1,
        .dtype = COH_DTYPE_BF16 },
      1,
      1,
      1,
      1,
      COH_RECOMPUTE_NONE,
      60,
      .updates = 1,
      .speculates = 1 },
    { "host, direct, tied, all updates on the host, half of them late",
      { .layers = 3, .width = 64, .vocabulary = 300, .rows = 40, .is_tied = 1 },
      2,
      0,
      1,
      0,
      COH_RECOMPUTE_NONE,
      60,
      .updates = 4,
      .late = 8 },
    { "host, light operators run again, writes to dead space",
      { .layers = 3, .in_place = 1, .width = 64, .vocabulary = 300, .rows = 40, .holds = 1 },
      2,
      0,
      1,
      0,
      COH_RECOMPUTE_AUTO,
      50,
      .light = COH_LIGHT_CHEAP,
      .patient = COH_PATIENT_MOVED },
};

static int runs_again(const coh_plan *plan)
{
    const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    for (uint32_t i = 0; i < body->instruction_count; i++)
        if (body->instructions[i].opcode == COH_OP_RECOMPUTE)
            return 1;
    return 0;
}

/* Replaces the plan by one with other places of updates, or slices, or that speculates. */
static void put_decisions(const setting *what, coh_plan **plan)
{
    coh_plan *other = NULL;
    (*plan)->options.speculates = what->speculates;
    assert_int_equal(coh_plan_open((*plan)->graph, &(*plan)->options, &other), COH_OK);
    other->decisions = (*plan)->decisions;
    other->decisions.host_updates = what->updates;
    other->decisions.slices = what->slices;
    other->decisions.lead = what->lead;
    other->decisions.late = what->late;
    other->decisions.light = what->light;
    if (what->patient > 0)
        other->decisions.patient = what->patient;
    other->decisions.patterns = coh_pattern_choose(what->slices);
    if (coh_plan_finish(other) != COH_OK)
        fail_msg("%s: %s", what->name, coh_last_error());
    const uint32_t host_instructions = other->programs[COH_PROGRAM_BODY].lane_length[COH_LANE_HOST];
    assert_int_equal(host_instructions > 0, what->updates > 0);
    if (what->slices > 0)
        assert_int_equal(other->operator_notes[2].pattern[0], 's'); /* embed, double, mix */
    if (what->light)
        assert_true(runs_again(other));
    coh_plan_destroy(*plan);
    *plan = other;
}

static coh_plan *make_plan(const setting *what, const coh_graph *graph)
{
    coh_plan_options options = { .struct_bytes = sizeof(options),
                                 .device_memory_bytes = UINT64_MAX,
                                 .thread_count = 2,
                                 .microbatch_count = what->microbatches,
                                 .deferred_update = what->deferred,
                                 .recompute = what->recompute,
                                 .f32_gradients = what->f32,
                                 .replicas = what->replicas,
                                 .ranks = what->ranks,
                                 .node_ranks = what->node_ranks };
    uint64_t memory = 0;
    coh_pin pins[3];
    coh_plan *plan = NULL;
    if (what->optimizer != NULL)
        snprintf(options.optimizer, sizeof(options.optimizer), "%s", what->optimizer);
    options.optimizer_choices = &what->choice;
    options.optimizer_choice_count = what->choice.pattern[0] != '\0';
    snprintf(options.kernel_path, sizeof(options.kernel_path), "toy");
    assert_int_equal(coh_plan_in_memory_bytes(graph, &options, &memory), COH_OK);
    options.device_memory_bytes = memory / 100 * (uint64_t)what->percent;
    for (; what->pins[options.pin_count]; options.pin_count++)
        assert_int_equal(coh_pin_parse(what->pins[options.pin_count], &pins[options.pin_count]),
                         COH_OK);
    options.pins = pins;
    if (what->pattern != NULL)
        snprintf(options.rank_pattern, sizeof(options.rank_pattern), "%s", what->pattern);
    options.wires = what->wires;
    options.emulate_host = 1;
    const int host_percent = what->host_percent > 0 ? what->host_percent : 400;
    options.host_memory_bytes = what->host ? memory / 100 * (uint64_t)host_percent : 0;
    options.disk_bytes = what->disk ? UINT64_MAX : 0;
    if (coh_plan_create(graph, &options, &plan) != COH_OK)
        fail_msg("%s: %s", what->name, coh_last_error());
    assert_int_equal(plan->decisions.cache, what->caches);
    if (what->host_percent > 0) /* survivors lie in both tiers */
        assert_true(plan->survivor_bytes > options.host_memory_bytes);
    if (what->updates > 0 || what->slices > 0 || what->speculates || what->lead > 0 || what->light)
        put_decisions(what, &plan);
    return plan;
}

/* The mutations are drawn by a seed, from all of a program. A shorter run draws fewer. */
static uint32_t mutations_most(uint32_t brief, uint32_t in_short, uint32_t full)
{
    return test_is_brief() ? brief : test_is_short() ? in_short : full;
}

static coh_mutation_report mutate_plan(const setting *what)
{
    coh_mutation_report sum = { 0 };
    coh_graph *graph = NULL;
    assert_int_equal(toy_graph_make(&what->toy, &graph), COH_OK);
    coh_plan *plan = make_plan(what, graph);
    coh_verify_options options = { .budget_bytes = { plan->layout.arena_bytes[COH_TIER_DEVICE],
                                                     plan->layout.arena_bytes[COH_TIER_HOST],
                                                     plan->layout.file_bytes } };
    for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT; kind++) {
        const coh_program *program = &plan->programs[kind];
        if (program->instruction_count == 0)
            continue;
        uint32_t most = getenv("COH_ALL_MUTATIONS") != NULL ? 0
                        : kind == COH_PROGRAM_BODY          ? mutations_most(60, 200, 400)
                                                            : mutations_most(12, 40, 80);
        coh_mutation_report report = run_mutations(&plan->layout, program, &options, 5, most);
        char name[128];
        snprintf(name, sizeof(name), "%s, %s, %u instructions", what->name,
                 coh_program_kind_name((coh_program_kind)kind), program->instruction_count);
        print_report(name, &report);
        add_report(&sum, &report);
    }
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
    return sum;
}

/* If all ranks have a mutation the verifier judges it. If one has it, and other exchanges than the
 * others, its hash is another. */
static void report_ranks(const coh_mutation_report *ranks)
{
    int alone = 0;
    for (int rule = 0; rule < COH_RULE_COUNT; rule++)
        alone += ranks->rule_escapes[rule] > 0;
    print_report("several ranks", ranks);
    printf("%d rules alone catch some of them; %u accepted ones exchange other things than the "
           "original, %u of these with its hash\n",
           alone, ranks->unlike, ranks->unnoticed);
    assert_int_equal(ranks->unnoticed, 0);
    assert_true(ranks->harmful >= (test_is_brief() ? 200 : 2000));
    assert_true(alone >= (test_is_brief() ? 3 : 8));
}

static void mutations_of_scheduled_programs_are_judged_as_brute_force_does(void **state)
{
    (void)state;
    coh_mutation_report all = { 0 }, ranks = { 0 };
    assert_int_equal(toy_optimizers_register(), COH_OK);
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        if (test_is_brief() && i % 2 == 1)
            continue;
        coh_mutation_report report = mutate_plan(&settings[i]);
        add_report(&all, &report);
        if (settings[i].ranks.factors[0] > 0)
            add_report(&ranks, &report);
    }
    print_report("all", &all);
    report_ranks(&ranks);
    assert_true(all.harmful >= (test_is_brief() ? 700 : 1500));
    assert_int_equal(all.missed, 0);
    assert_int_equal(all.false_alarms, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mutations_of_scheduled_programs_are_judged_as_brute_force_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
