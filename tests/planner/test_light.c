/* Light operators: which they are in the shipped models, when they run again, what that saves, and
 * that the search finds it. Prices are those of a datasheet. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cohobate/models.h"
#include "planner/candidates.h"
#include "planner/effort.h"
#include "planner/layout.h"
#include "planner/live.h"
#include "planner/plan_make.h"
#include "planner/residency.h"
#include "planner/search.h"
#include "tests/planner/toy_graph.h"

#define GIB ((uint64_t)1 << 30)

static void must(coh_status status)
{
    if (status != COH_OK)
        fail_msg("%s", coh_last_error());
}

static coh_graph *make_graph_of(const char *name, int32_t batch, int32_t sequence)
{
    coh_model model;
    coh_graph *graph = NULL;
    must(coh_model_preset(name, 0, &model));
    coh_model_dtype_set(&model, COH_DTYPE_BF16);
    must(coh_model_train_graph(&model, batch, sequence, &graph));
    return graph;
}

static coh_graph *make_graph(const char *name)
{
    return make_graph_of(name, 8, 256);
}

/* Writes "norm < linear, ..." of a block: each light operator, and the one before whose backward it
 * runs again. Names are shortened to their last part. */
static void write_light(const coh_graph *graph, const coh_object_map *map, int32_t block,
                        char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < graph->op_count; i++) {
        if (graph->ops[i].block < 0 || graph->ops[i].blocks_before != block || map->again_at[i] < 0)
            continue;
        const char *name = strrchr(graph->ops[i].name, '.'),
                   *at = strrchr(graph->ops[map->again_at[i]].name, '.');
        used += (size_t)snprintf(text + used, bytes - used, "%s%s < %s", used ? ", " : "", name + 1,
                                 at + 1);
    }
}

/* Lists the light operators of a block, and destroys the graph. */
static void list_light(coh_graph *graph, int light, const coh_pin *pins, int32_t pin_count,
                       int32_t block, char *text, size_t bytes)
{
    const coh_decisions decisions = { .chunk_bytes = COH_WHOLE_OBJECTS,
                                      .row_passes = 1,
                                      .patterns = coh_pattern_choose(1),
                                      .light = light };
    coh_plan_options options;
    coh_layout layout;
    coh_object_map map;
    coh_plan_options_init(&options);
    options.pins = pins;
    options.pin_count = pin_count;
    must(coh_layout_build(graph, &options, &decisions, &layout, &map));
    write_light(graph, &map, block, text, bytes);
    coh_object_map_fini(&map);
    coh_layout_fini(&layout);
    coh_graph_destroy(graph);
}

static void norms_and_products_of_elements_are_light(void **state)
{
    (void)state;
    static const struct {
        const char *model, *light;
    } cases[] = {
        { "opt-125m", "self_attn_layer_norm < v_proj, final_layer_norm < fc1" },
        { "gpt2", "ln_1 < c_attn, ln_2 < c_fc" },
        { "llama-3.2-1b", "input_layernorm < v_proj, post_attention_layernorm < up_proj, "
                          "act_fn < down_proj" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[400];
        list_light(make_graph(cases[i].model), COH_LIGHT_ELEMENTS, NULL, 0, 1, text, sizeof(text));
        assert_string_equal(text, cases[i].light);
    }
}

static void attentions_over_few_tokens_are_cheap(void **state)
{
    (void)state;
    static const struct {
        const char *model, *light;
    } cases[] = {
        { "opt-125m",
          "self_attn_layer_norm < v_proj, self_attn < out_proj, final_layer_norm < fc1" },
        { "llama-3.2-1b", "input_layernorm < v_proj, self_attn < o_proj, "
                          "post_attention_layernorm < up_proj, act_fn < down_proj" },
    };
    char text[400];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        list_light(make_graph(cases[i].model), COH_LIGHT_CHEAP, NULL, 0, 1, text, sizeof(text));
        assert_string_equal(text, cases[i].light);
    }
    list_light(make_graph_of("llama-3.2-1b", 1, 8192), COH_LIGHT_CHEAP, NULL, 0, 1, text,
               sizeof(text));
    assert_null(strstr(text, "self_attn"));
}

static void blocks_with_pinned_activations_have_none(void **state)
{
    (void)state;
    coh_pin pin;
    char text[400];
    must(coh_pin_parse("blocks.1=keep", &pin));
    list_light(make_graph("opt-125m"), COH_LIGHT_CHEAP, &pin, 1, 1, text, sizeof(text));
    assert_string_equal(text, "");
    list_light(make_graph("opt-125m"), COH_LIGHT_CHEAP, &pin, 1, 2, text, sizeof(text));
    assert_true(strlen(text) > 0);
}

/* Verifies every program of the plan. */
static coh_plan *make_plan(const coh_graph *graph, const coh_profile *profile, int light)
{
    coh_plan_options options;
    coh_plan *plan = NULL;
    coh_plan_options_init(&options);
    options.profile = profile;
    options.device_memory_bytes = GIB * 3 / 4;
    options.host_memory_bytes = 16 * GIB;
    options.microbatch_count = 2;
    must(coh_plan_open(graph, &options, &plan));
    plan->decisions = (coh_decisions){ .device_bytes = options.device_memory_bytes,
                                       .chunk_bytes = (uint64_t)4 << 20,
                                       .recompute = coh_block_set_first(2),
                                       .row_passes = 1,
                                       .patterns = coh_pattern_choose(1),
                                       .patient = COH_PATIENT_MOVED,
                                       .boundary = COH_BOUNDARY_SETTLED,
                                       .horizon = 16,
                                       .light = light };
    must(coh_plan_finish(plan));
    return plan;
}

/* Bytes of outputs of an operator that leave the device in a step. */
static uint64_t stored_bytes(const coh_plan *plan, int32_t op)
{
    const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < body->instruction_count; i++) {
        const coh_instruction *instruction = &body->instructions[i];
        const coh_object *object =
            &plan->layout.objects[body->operands[instruction->operand_begin].object];
        if (instruction->opcode == COH_OP_STORE && object->stream == COH_STREAM_ACTIVATION &&
            plan->graph->tensors[object->owner].producer == op)
            bytes += instruction->bytes;
    }
    return bytes;
}

static int count_again(const coh_plan *plan, int32_t op)
{
    const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    int count = 0;
    for (uint32_t i = 0; i < body->instruction_count; i++)
        count += body->instructions[i].opcode == COH_OP_RECOMPUTE &&
                 body->calls[body->instructions[i].call].operator_index == op;
    return count;
}

static const char *activations(const coh_plan *plan, int32_t op)
{
    coh_plan_operator found = { .struct_bytes = sizeof(found) };
    must(coh_plan_operator_at(plan, op, &found));
    return found.activations;
}

static void a_light_operator_runs_again_and_its_output_stays(void **state)
{
    (void)state;
    coh_graph *graph = make_graph("opt-125m");
    coh_profile *profile = NULL;
    uint64_t before = 0, after = 0;
    must(coh_profile_read("rtx-3090", &profile));
    coh_plan *plain = make_plan(graph, profile, COH_LIGHT_NONE),
             *light = make_plan(graph, profile, COH_LIGHT_ELEMENTS);
    for (int32_t op = 0; op < (int32_t)graph->op_count; op++) {
        const int is_norm = strcmp(graph->ops[op].kind.name, "cohobate.layernorm") == 0;
        const int block = graph->ops[op].block >= 0 ? graph->ops[op].blocks_before : -1;
        if (block < 2)
            assert_string_not_equal(activations(light, op), "again");
        if (!is_norm || block < 2)
            continue;
        assert_int_equal(count_again(plain, op), 0);
        assert_string_equal(activations(light, op), "again");
        assert_int_equal(count_again(light, op), 2); /* micro-batches */
        before += stored_bytes(plain, op);
        after += stored_bytes(light, op);
    }
    assert_true(before > 0 && after == 0);
    coh_plan_destroy(plain);
    coh_plan_destroy(light);
    coh_profile_destroy(profile);
    coh_graph_destroy(graph);
}

/* A step in so little memory that most activations are recomputed or cross the link. */
static void make_tight(coh_graph **out_graph, coh_profile **out_profile,
                       coh_plan_options *out_options)
{
    coh_model model;
    must(coh_model_preset("opt-350m", 0, &model));
    coh_model_dtype_set(&model, COH_DTYPE_BF16);
    must(coh_model_train_graph(&model, 8, 2048, out_graph));
    must(coh_profile_read("rtx-3090", out_profile));
    coh_plan_options_init(out_options);
    out_options->profile = *out_profile;
    out_options->device_memory_bytes = 2 * GIB;
    out_options->host_memory_bytes = 32 * GIB;
    out_options->deferred_update = 1;
}

/* Without light operators and writes to dead space the search found 626 ms. */
static void the_search_finds_a_faster_plan(void **state)
{
    (void)state;
    coh_graph *graph = NULL;
    coh_profile *profile = NULL;
    coh_plan_options options;
    coh_plan *plan = NULL;
    make_tight(&graph, &profile, &options);
    options.device_memory_bytes = 7 * GIB / 2;
    must(coh_plan_create(graph, &options, &plan));
    print_message("%.1f ms\n", (double)plan->simulations[COH_PROGRAM_BODY].period_ns * 1e-6);
    assert_true(plan->simulations[COH_PROGRAM_BODY].period_ns < 620000000);
    assert_true(plan->least.light_ns <= plan->least.ns);
    assert_true(plan->least.light_ns <= plan->simulations[COH_PROGRAM_BODY].period_ns);
    assert_true(plan->decisions.light > COH_LIGHT_NONE);
    coh_plan_destroy(plan);
    coh_profile_destroy(profile);
    coh_graph_destroy(graph);
}

/* A search that has spent its effort before the last stage. */
static void the_last_stage_has_effort_of_its_own(void **state)
{
    (void)state;
    coh_graph *graph = NULL;
    coh_profile *profile = NULL;
    coh_plan_options options;
    coh_plan *plan = NULL;
    make_tight(&graph, &profile, &options);
    must(coh_plan_open(graph, &options, &plan));
    plan->search_effort = COH_SEARCH_EFFORT_MOST;
    must(coh_plan_search(plan));
    assert_true(plan->decisions.light > COH_LIGHT_NONE);
    assert_true(plan->search_effort <= COH_SEARCH_EFFORT_MOST + 2 * COH_REFINE_EFFORT);
    coh_plan_destroy(plan);
    coh_profile_destroy(profile);
    coh_graph_destroy(graph);
}

/* Of several budgets over a drive, the best plan of some has light operators, and of some writes to
 * dead space. Both come from the last stage of the search alone. */
static void the_last_stage_of_a_search_finds_better_plans(void **state)
{
    (void)state;
    const toy_options toy = {
        .layers = 5, .width = 64, .vocabulary = 300, .rows = 2000, .holds = 1
    };
    coh_graph *graph = NULL;
    coh_profile *profile = NULL;
    int light = 0, moved = 0;
    must(toy_graph_make(&toy, &graph));
    must(coh_profile_read("built-in-2", &profile));
    for (uint64_t bytes = (uint64_t)2800 << 10; bytes <= (uint64_t)5200 << 10; bytes += 200 << 10) {
        coh_plan_options options;
        coh_plan *plan = NULL;
        coh_plan_options_init(&options);
        options.profile = profile;
        options.device_memory_bytes = bytes;
        options.disk_bytes = GIB;
        options.deferred_update = 1;
        must(coh_plan_create(graph, &options, &plan));
        light += plan->decisions.light > COH_LIGHT_NONE;
        moved += plan->decisions.patient == COH_PATIENT_MOVED;
        coh_plan_destroy(plan);
    }
    print_message("of 13 plans %d with light operators, %d with writes to dead space\n", light,
                  moved);
    assert_true(light > 0 && moved > 0);
    coh_profile_destroy(profile);
    coh_graph_destroy(graph);
}

/* In memory, too, they take the place of recomputed blocks. */
static void a_plan_in_memory_recomputes_fewer_blocks(void **state)
{
    (void)state;
    coh_graph *graph = make_graph_of("llama-3.2-1b", 4, 2048);
    coh_profile *profile = NULL;
    coh_plan_options options;
    coh_plan *plan = NULL;
    must(coh_profile_read("rtx-4090", &profile));
    coh_plan_options_init(&options);
    options.profile = profile;
    options.device_memory_bytes = 22 * GIB;
    must(coh_plan_create(graph, &options, &plan));
    assert_true(plan->decisions.in_memory);
    assert_true(plan->decisions.light > COH_LIGHT_NONE);
    coh_decisions decisions = plan->decisions;
    coh_candidate plain;
    decisions.light = COH_LIGHT_NONE;
    must(coh_candidate_make(plan, &decisions, &plain));
    assert_false(plain.valid); /* as few recomputed blocks do not fit without */
    coh_plan_destroy(plan);
    coh_profile_destroy(profile);
    coh_graph_destroy(graph);
}

/* A long program is refused without building it if what exists at once exceeds all tiers: where it
 * exceeds them without light operators only, it is built with them. */
static void what_light_operators_write_again_needs_no_room(void **state)
{
    (void)state;
    const coh_block_set none = coh_block_set_first(0);
    coh_graph *graph = make_graph_of("opt-125m", 8, 2048);
    coh_profile *profile = NULL;
    coh_plan_options options;
    coh_plan *plan = NULL;
    uint64_t kept = 0, again = 0;
    must(coh_profile_read("rtx-3090", &profile));
    coh_plan_options_init(&options);
    options.profile = profile;
    options.deferred_update = 1;
    must(coh_live_bytes(graph, &options, &none, COH_LIGHT_NONE, 0, &kept));
    must(coh_live_bytes(graph, &options, &none, COH_LIGHT_CHEAP, 0, &again));
    assert_true(again + GIB / 4 < kept);
    options.device_memory_bytes = GIB;
    options.host_memory_bytes = kept - GIB / 16 - options.device_memory_bytes;
    must(coh_plan_open(graph, &options, &plan));
    coh_decisions decisions = { .device_bytes = options.device_memory_bytes,
                                .chunk_bytes = (uint64_t)256 << 10,
                                .row_passes = 1,
                                .patterns = coh_pattern_choose(1),
                                .patient = COH_PATIENT_MOVED,
                                .boundary = COH_BOUNDARY_SETTLED,
                                .horizon = 16 };
    for (int light = COH_LIGHT_NONE; light < COH_LIGHT_COUNT; light++) {
        coh_candidate candidate;
        uint64_t live = 0;
        decisions.light = light;
        must(coh_live_bytes(graph, &options, &none, light, 0, &live));
        must(coh_candidate_make(plan, &decisions, &candidate));
        assert_true(candidate.effort > COH_SHORT_EFFORT); /* a short one is built in any case */
        assert_int_equal(candidate.is_refused, light == COH_LIGHT_NONE);
        assert_int_equal(live <= options.device_memory_bytes + options.host_memory_bytes,
                         light > COH_LIGHT_NONE);
    }
    coh_plan_destroy(plan);
    coh_profile_destroy(profile);
    coh_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_and_products_of_elements_are_light),
        cmocka_unit_test(attentions_over_few_tokens_are_cheap),
        cmocka_unit_test(blocks_with_pinned_activations_have_none),
        cmocka_unit_test(a_light_operator_runs_again_and_its_output_stays),
        cmocka_unit_test(the_search_finds_a_faster_plan),
        cmocka_unit_test(the_last_stage_has_effort_of_its_own),
        cmocka_unit_test(the_last_stage_of_a_search_finds_better_plans),
        cmocka_unit_test(a_plan_in_memory_recomputes_fewer_blocks),
        cmocka_unit_test(what_light_operators_write_again_needs_no_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
