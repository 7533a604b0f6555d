/* One bad program per rule, each made from a good one by one change. Also checks the verifier's
 * clocks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "planner/verify.h"
#include "planner/verify_state.h"
#include "tests/faults/alloc_faults.h"
#include "tests/length.h"
#include "tests/planner/happens_before.h"
#include "tests/planner/mutate.h"
#include "tests/planner/poison_run.h"
#include "tests/planner/program_maker.h"

enum { DISK_DEFERRED, DISK_TIGHT, DISK_DIRECT, HOST_DEFERRED, HOST_DIRECT };

static mutant make(int recipe, coh_program_kind kind)
{
    made_program made;
    mutant copy;
    assert_true(make_program(&maker_recipes[recipe], kind, &made));
    coh_verify_options options = { .budget_bytes = { made.layout.arena_bytes[COH_TIER_DEVICE],
                                                     made.layout.arena_bytes[COH_TIER_HOST],
                                                     made.layout.file_bytes } };
    copy_mutant(&made.layout, &made.program, &options, &copy);
    made_program_fini(&made);
    return copy;
}

static uint32_t find_instruction(const coh_program *program, coh_opcode opcode, uint32_t nth)
{
    for (uint32_t i = 0; i < program->instruction_count; i++)
        if (program->instructions[i].opcode == opcode && nth-- == 0)
            return i;
    fail();
    return 0;
}

static coh_operand *operand_of(mutant *m, uint32_t instruction, uint32_t operand)
{
    return &m->program.operands[m->program.instructions[instruction].operand_begin + operand];
}

/* Checks that `rule` refuses the mutant, with a message that contains `word`; frees the mutant. */
static void assert_refused(mutant *m, coh_rule rule, const char *word)
{
    coh_verify_result result;
    assert_int_equal(coh_verify(&m->layout, &m->program, &m->options, &result), COH_ERR_CORRUPT);
    if ((int)result.rule != (int)rule || strstr(coh_last_error(), word) == NULL)
        printf("%s\n", coh_last_error());
    assert_int_equal(result.rule, rule);
    assert_non_null(strstr(coh_last_error(), word));
    free_mutant(m);
}

/* ---- good programs ---- */

static void good_programs_of_every_kind_are_accepted(void **state)
{
    (void)state;
    for (int recipe = 0; recipe < maker_recipe_count; recipe++)
        for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT; kind++) {
            if (kind == COH_PROGRAM_DRAIN && !maker_recipes[recipe].deferred)
                continue;
            mutant m = make(recipe, (coh_program_kind)kind);
            coh_verify_result result;
            coh_status status = coh_verify(&m.layout, &m.program, &m.options, &result);
            if (status != COH_OK)
                printf("%s: %s\n", maker_recipes[recipe].name, coh_last_error());
            assert_int_equal(status, COH_OK);
            assert_int_equal(result.rule, 0);
            free_mutant(&m);
        }
}

static void the_clocks_order_two_instructions_exactly_when_brute_force_does(void **state)
{
    (void)state;
    for (int recipe = 0; recipe < maker_recipe_count; recipe++) {
        mutant m = make(recipe, COH_PROGRAM_BODY);
        uint32_t instructions = m.program.instruction_count;
        coh_verifier v = {
            .layout = &m.layout, .program = &m.program, .options = &m.options, .run_count = 3
        };
        assert_int_equal(COH_ALLOC(instructions, &v.ordinals), COH_OK);
        assert_int_equal(COH_ALLOC(instructions, &v.lane_instructions), COH_OK);
        assert_int_equal(
            COH_ALLOC((size_t)COH_CLOCK_RUNS * instructions * COH_LANE_COUNT, &v.clocks), COH_OK);
        assert_int_equal(coh_verify_index(&v), COH_OK);
        hb_order order;
        assert_true(hb_order_build(&m.program, 3, &order));
        for (uint32_t b = 0; b < order.node_count; b++) {
            if (b % instructions == 0)
                coh_verify_clocks(&v, b / instructions);
            for (uint32_t a = 0; a < order.node_count; a++) {
                uint8_t lane = m.program.instructions[a % instructions].lane;
                uint32_t number =
                    a / instructions * v.lane_length[lane] + v.ordinals[a % instructions];
                int is_before =
                    coh_instruction_clock(&v, b / instructions, b % instructions)[lane] >= number;
                assert_int_equal(is_before, hb_is_before(&order, a, b));
            }
        }
        hb_order_free(&order);
        coh_free(v.ordinals);
        coh_free(v.lane_instructions);
        coh_free(v.clocks);
        free_mutant(&m);
    }
}

/* Draws an order of a run's instructions: each next instruction is one whose predecessors are
 * all done. */
static void draw_order(const hb_order *order, uint64_t seed, uint32_t *out)
{
    uint8_t *is_done = calloc(order->instruction_count, 1);
    for (uint32_t n = 0; n < order->instruction_count; n++) {
        uint32_t ready[512], ready_count = 0;
        for (uint32_t b = 0; b < order->instruction_count; b++) {
            int is_ready = !is_done[b];
            for (uint32_t a = 0; is_ready && a < order->instruction_count; a++)
                is_ready = is_done[a] || !hb_is_before(order, a, b);
            if (is_ready)
                ready[ready_count++] = b;
        }
        out[n] = ready[coh_rng_below(seed, 3, n, ready_count)];
        is_done[out[n]] = 1;
    }
    free(is_done);
}

static void every_legal_order_of_a_verified_program_leaves_the_same_values(void **state)
{
    (void)state;
    for (int recipe = 0; recipe < maker_recipe_count; recipe++) {
        mutant m = make(recipe, COH_PROGRAM_BODY);
        uint32_t instructions = m.program.instruction_count,
                 *drawn = calloc(instructions, sizeof(uint32_t));
        hb_order order;
        poison_result expected, found;
        poison_run(&m.layout, &m.program, 3, NULL, &expected);
        assert_false(expected.is_faulty);
        assert_true(instructions <= 512);
        assert_true(hb_order_build(&m.program, 3, &order));
        order.instruction_count = instructions; /* rows of the first run */
        for (uint64_t seed = 0; seed < 20; seed++) {
            draw_order(&order, seed, drawn);
            poison_run(&m.layout, &m.program, 3, drawn, &found);
            if (found.is_faulty)
                printf("seed %d: %s\n", (int)seed, found.fault);
            assert_false(found.is_faulty);
            assert_true(found.hash == expected.hash);
        }
        hb_order_free(&order);
        free(drawn);
        free_mutant(&m);
    }
}

/* ---- one bad program per rule ---- */

static void a_tier_that_compute_may_not_touch_breaks_form(void **state)
{
    (void)state;
    mutant m = make(DISK_DIRECT, COH_PROGRAM_BODY);
    m.layout.access.reads[COH_LANE_COMPUTE] = 0;
    assert_refused(&m, COH_RULE_FORM, "the lane compute may not");
}

static void an_operand_shorter_than_its_chunks_breaks_form(void **state)
{
    (void)state;
    mutant m = make(DISK_DIRECT, COH_PROGRAM_SAVE);
    operand_of(&m, find_instruction(&m.program, COH_OP_SAVE, 0), 0)->bytes -= 4096;
    assert_refused(&m, COH_RULE_FORM, "SAVE");
}

/* The executor finds the partials by their role, so it would sum no squares. */
static void partials_in_another_role_break_form(void **state)
{
    (void)state;
    mutant m = make(DISK_DIRECT, COH_PROGRAM_BODY);
    coh_operand *partials = operand_of(&m, find_instruction(&m.program, COH_OP_UPDATE, 0), 3);
    assert_int_equal(partials->role, COH_ROLE_PARTIALS);
    partials->role = COH_ROLE_WORK;
    assert_refused(&m, COH_RULE_FORM, "none that the stream partials has");
}

static void two_instructions_that_wait_for_each_other_deadlock(void **state)
{
    (void)state;
    mutant m = make(DISK_DIRECT, COH_PROGRAM_SAVE);
    uint32_t instruction = find_instruction(&m.program, COH_OP_READ, 2);
    coh_wait *wait = NULL;
    for (uint32_t i = instruction; wait == NULL; i++)
        if (m.program.instructions[i].wait_count > 0)
            wait = &m.program.waits[m.program.instructions[i].wait_begin];
    wait->lane = COH_LANE_COMPUTE;
    wait->ordinal = m.program.lane_length[COH_LANE_COMPUTE];
    assert_refused(&m, COH_RULE_DEADLOCK, "is issued no earlier");
}

static void a_compute_instruction_that_does_not_wait_for_its_read_breaks_read(void **state)
{
    (void)state;
    mutant m = make(DISK_TIGHT, COH_PROGRAM_SAVE);
    m.program.instructions[find_instruction(&m.program, COH_OP_SAVE, 0)].wait_count = 0;
    assert_refused(&m, COH_RULE_READ, "does not wait for instruction 0 (READ)");
}

static void a_settle_that_overtakes_an_update_reading_the_cells_breaks_overwrite(void **state)
{
    (void)state;
    mutant m = make(DISK_TIGHT, COH_PROGRAM_DRAIN);
    m.program.lane_depth[COH_LANE_COMPUTE]++; /* the last update may still be running */
    assert_refused(&m, COH_RULE_OVERWRITE, "may still read what was there");
}

static void a_workspace_written_by_two_instructions_at_once_breaks_write_order(void **state)
{
    (void)state;
    mutant m = make(DISK_TIGHT, COH_PROGRAM_BODY);
    m.program.lane_depth[COH_LANE_COMPUTE] = 40;
    m.options.rules_off = 1u << COH_RULE_READ | 1u << COH_RULE_OVERWRITE | 1u << COH_RULE_OVERLAP;
    assert_refused(&m, COH_RULE_WRITE_ORDER, "which wrote the same place");
}

static void a_use_that_is_not_counted_breaks_overlap(void **state)
{
    (void)state;
    mutant m = make(DISK_TIGHT, COH_PROGRAM_SAVE);
    const coh_operand *to = operand_of(&m, find_instruction(&m.program, COH_OP_READ, 0), 1);
    m.program.extents[m.program.touches[to->touch_begin].extent].use_count--;
    assert_refused(&m, COH_RULE_OVERLAP, "was left after 1 uses");
}

static void a_read_into_bytes_still_saved_from_breaks_overlap(void **state)
{
    (void)state;
    mutant m = make(DISK_TIGHT, COH_PROGRAM_SAVE);
    for (uint32_t i = 0; i < m.program.instruction_count; i++)
        if (m.program.instructions[i].opcode == COH_OP_READ)
            m.program.instructions[i].wait_count = 0;
    assert_refused(&m, COH_RULE_OVERLAP, "and does not wait for it");
}

static void one_page_more_than_the_budget_breaks_capacity(void **state)
{
    (void)state;
    mutant m = make(DISK_TIGHT, COH_PROGRAM_BODY);
    m.options.budget_bytes[COH_TIER_DEVICE] = m.program.peak_bytes[COH_TIER_DEVICE];
    assert_int_equal(coh_verify(&m.layout, &m.program, &m.options, NULL), COH_OK);
    m.options.budget_bytes[COH_TIER_DEVICE] -= 4096;
    assert_refused(&m, COH_RULE_CAPACITY, "the budget is");
}

static void an_extent_off_its_page_breaks_alignment(void **state)
{
    (void)state;
    mutant m = make(DISK_TIGHT, COH_PROGRAM_SAVE);
    const coh_operand *to = operand_of(&m, find_instruction(&m.program, COH_OP_READ, 0), 1);
    mutation half_page = { MUTATE_RELOCATE, m.program.touches[to->touch_begin].extent, 512 };
    assert_true(apply_mutation(&m, &half_page, 0));
    assert_refused(&m, COH_RULE_ALIGNMENT, "is not whole pages");
}

static void an_update_that_is_not_written_back_loses_data(void **state)
{
    (void)state;
    mutant m = make(DISK_TIGHT, COH_PROGRAM_DRAIN);
    mutation no_write = { MUTATE_DELETE, find_instruction(&m.program, COH_OP_WRITE, 0), 0 };
    assert_true(apply_mutation(&m, &no_write, 0));
    assert_refused(&m, COH_RULE_LOST_DATA, "the only copy of version 1");
}

static void a_gradient_that_is_not_applied_breaks_exactly_once(void **state)
{
    (void)state;
    mutant m = make(DISK_DEFERRED, COH_PROGRAM_BODY);
    mutation no_update = { MUTATE_DELETE, find_instruction(&m.program, COH_OP_UPDATE, 1), 0 };
    assert_true(apply_mutation(&m, &no_update, 0));
    assert_refused(&m, COH_RULE_EXACTLY_ONCE, "it is updated 0 times a step");
}

static void a_contribution_that_overwrites_breaks_exactly_once(void **state)
{
    (void)state;
    mutant m = make(DISK_TIGHT, COH_PROGRAM_BODY);
    uint32_t instruction =
        find_instruction(&m.program, COH_OP_BACKWARD, 6); /* operator 2 of the second batch */
    m.program.calls[m.program.instructions[instruction].call].parameter_grad_adds = 0;
    assert_refused(&m, COH_RULE_EXACTLY_ONCE, "a contribution overwrites an earlier one");
}

static void a_recompute_of_another_input_breaks_recompute(void **state)
{
    (void)state;
    mutant m = make(DISK_DEFERRED, COH_PROGRAM_BODY);
    uint32_t instruction = find_instruction(&m.program, COH_OP_RECOMPUTE, 0);
    mutation other = { MUTATE_RETARGET, instruction,
                       0 }; /* the cells, in place of the activation */
    assert_true(apply_mutation(&m, &other, 0));
    assert_refused(&m, COH_RULE_RECOMPUTE, "RECOMPUTE");
}

/* Removes the saved object from `count` instructions of that opcode of the loss, starting at its
 * nth: each micro-batch has two ranges of rows. Whether the first range's object is still there
 * for the second is checked by READ and LOST_DATA; they are off. */
static mutant without_saved(coh_opcode opcode, uint32_t nth, uint32_t count)
{
    mutant m = make(DISK_DIRECT, COH_PROGRAM_BODY);
    m.options.rules_off = 1u << COH_RULE_READ | 1u << COH_RULE_LOST_DATA;
    for (uint32_t i = 0; i < m.program.instruction_count && count > 0; i++) {
        const coh_instruction *instruction = &m.program.instructions[i];
        if (instruction->opcode != opcode ||
            m.program.calls[instruction->call].operator_index != 3 || nth-- > 0)
            continue;
        mutation lose = { MUTATE_LOSE, i, COH_ROLE_SAVED };
        assert_true(apply_mutation(&m, &lose, 0));
        nth = 0;
        count--;
    }
    return m;
}

static void a_saved_object_on_one_side_only_breaks_recompute(void **state)
{
    (void)state;
    mutant m = without_saved(COH_OP_FORWARD, 2, 2);
    assert_refused(&m, COH_RULE_RECOMPUTE, "a saved object: it has none, its BACKWARD has one");
    m = without_saved(COH_OP_BACKWARD, 0, 2);
    assert_refused(&m, COH_RULE_RECOMPUTE, "a saved object: it has one, its BACKWARD has none");
    m = without_saved(COH_OP_FORWARD, 2, 1);
    assert_refused(&m, COH_RULE_RECOMPUTE, "some rows of the call have a saved object");
}

static void an_end_that_is_not_the_boundary_breaks_closure(void **state)
{
    (void)state;
    mutant m = make(DISK_DEFERRED, COH_PROGRAM_DRAIN);
    m.layout.residents[0].offset += 4096;
    assert_refused(&m, COH_RULE_CLOSURE, "the boundary map has");
}

static void more_writing_than_the_limit_breaks_wear(void **state)
{
    (void)state;
    mutant m = make(DISK_DEFERRED, COH_PROGRAM_BODY);
    m.options.wear_bytes = 4096;
    assert_refused(&m, COH_RULE_WEAR, "the limit is 4096");
}

static void a_save_that_leaves_a_chunk_out_is_not_consistent(void **state)
{
    (void)state;
    mutant m = make(HOST_DEFERRED, COH_PROGRAM_SAVE);
    mutation forget = { MUTATE_DELETE, find_instruction(&m.program, COH_OP_SAVE, 3), 0 };
    assert_true(apply_mutation(&m, &forget, 0));
    assert_refused(&m, COH_RULE_CONSISTENT_SAVE, "it is visited 0 times");
}

static coh_mesh mesh_of_two(void)
{
    static const coh_levels levels = { { 1, 2, 2, 2 } };
    static const coh_axis axis = { .name = "data0", .rank_count = 2 };
    coh_mesh mesh;
    assert_int_equal(coh_mesh_init(&mesh, &axis, 1, &levels), COH_OK);
    return mesh;
}

/* Gives the last chunk of each object of group 0 to `owner`, among two ranks. */
static mutant with_owner(coh_program_kind kind, int32_t owner)
{
    mutant m = make(HOST_DEFERRED, kind);
    const coh_group_layout *group = &m.layout.groups[0];
    const int32_t objects[] = { group->work, group->grad, group->state };
    m.layout.mesh = mesh_of_two();
    for (int i = 0; i < 3; i++) {
        const coh_object *object = &m.layout.objects[objects[i]];
        m.layout.chunks[object->chunk_begin + object->chunk_count - 1].owner_rank = owner;
    }
    return m;
}

static void a_save_of_what_another_rank_owns_is_not_consistent(void **state)
{
    (void)state;
    mutant m = with_owner(COH_PROGRAM_SAVE, 1);
    assert_refused(&m, COH_RULE_CONSISTENT_SAVE, "visited 1 times, not 0");
    m = with_owner(COH_PROGRAM_HASH, 1);
    assert_refused(&m, COH_RULE_CONSISTENT_SAVE, "visited 1 times, not 0");
    m = with_owner(COH_PROGRAM_INIT, 1); /* every rank makes its own initial values */
    assert_int_equal(coh_verify(&m.layout, &m.program, &m.options, NULL), COH_OK);
    free_mutant(&m);
}

/* The owners of an object's chunks are ranks, ascend, and are those of the partners' chunks. */
static void owners_that_are_no_ranges_break_form(void **state)
{
    (void)state;
    mutant m = with_owner(COH_PROGRAM_SAVE, 2);
    assert_refused(&m, COH_RULE_FORM, "owner");
    m = with_owner(COH_PROGRAM_SAVE, -1);
    assert_refused(&m, COH_RULE_FORM, "owner");
    m = make(HOST_DEFERRED, COH_PROGRAM_SAVE);
    m.layout.mesh = mesh_of_two();
    m.layout.chunks[m.layout.objects[m.layout.groups[0].work].chunk_begin].owner_rank = 1;
    assert_refused(&m, COH_RULE_FORM, "owner");
    m = with_owner(COH_PROGRAM_SAVE, 1);
    m.layout.chunks[m.layout.objects[m.layout.groups[0].grad].chunk_begin + 1].owner_rank = 0;
    assert_refused(&m, COH_RULE_FORM, "do not match");
    m = with_owner(COH_PROGRAM_SAVE, 0);
    m.layout.rank = 2;
    assert_refused(&m, COH_RULE_FORM, "rank");
    m = with_owner(COH_PROGRAM_SAVE, 0);
    m.layout.mesh.levels.rank_count[COH_LEVEL_WORLD] = 0;
    assert_refused(&m, COH_RULE_FORM, "ranks");
}

/* Only REDUCE and GATHER are on the lanes between ranks. */
static void an_instruction_between_ranks_breaks_form(void **state)
{
    (void)state;
    mutant m = make(DISK_DIRECT, COH_PROGRAM_BODY);
    uint32_t last = m.program.instruction_count - 1;
    while (m.program.instructions[last].lane != COH_LANE_COMPUTE)
        last--;
    m.program.instructions[last].lane = COH_LANE_COMM0;
    m.program.instructions[last].ordinal = 1;
    m.program.lane_length[COH_LANE_COMPUTE]--;
    m.program.lane_length[COH_LANE_COMM0] = 1;
    m.program.lane_depth[COH_LANE_COMM0] = 1;
    assert_refused(&m, COH_RULE_FORM, "comm0");
}

/* A group's gradients are told apart by where each parameter begins. */
static void a_gradient_that_begins_inside_a_parameter_breaks_exactly_once(void **state)
{
    (void)state;
    mutant m = make(DISK_DIRECT, COH_PROGRAM_BODY);
    coh_binding *binding = NULL;
    for (uint32_t i = 0; i < m.program.instruction_count && binding == NULL; i++) {
        const coh_instruction *instruction = &m.program.instructions[i];
        if (instruction->opcode != COH_OP_BACKWARD)
            continue;
        const coh_instruction_call *call = &m.program.calls[instruction->call];
        for (uint32_t b = call->binding_begin; b < call->binding_begin + call->binding_count; b++) {
            const coh_operand *operand = operand_of(&m, i, m.program.bindings[b].operand);
            if (m.program.bindings[b].role == COH_ROLE_PARAMETER_GRAD &&
                m.layout.groups[m.layout.objects[operand->object].owner].parameter_count > 1)
                binding = &m.program.bindings[b];
        }
    }
    assert_non_null(binding);
    binding->object_offset += 4;
    binding->shape.dim[0]--;
    assert_refused(&m, COH_RULE_EXACTLY_ONCE, "no parameter of the group begins at byte");
}

static void a_norm_without_a_gradient_breaks_form(void **state)
{
    (void)state;
    mutant m = make(DISK_DEFERRED, COH_PROGRAM_BODY);
    coh_instruction *norm = &m.program.instructions[find_instruction(&m.program, COH_OP_NORM, 0)];
    norm->operand_begin++;
    norm->operand_count--;
    assert_refused(&m, COH_RULE_FORM, "it has 0 operands of role 14");
}

static void an_instruction_without_its_call_or_with_anothers_breaks_form(void **state)
{
    (void)state;
    mutant m = make(DISK_DIRECT, COH_PROGRAM_BODY);
    m.program.instructions[find_instruction(&m.program, COH_OP_FORWARD, 0)].call = -1;
    assert_refused(&m, COH_RULE_FORM, "its call is -1");
    m = make(DISK_DIRECT, COH_PROGRAM_BODY);
    m.program.instructions[find_instruction(&m.program, COH_OP_UPDATE, 0)].call = 0;
    assert_refused(&m, COH_RULE_FORM, "its call is 0");
}

static void two_boundary_entries_of_one_chunk_break_closure(void **state)
{
    (void)state;
    mutant m = make(HOST_DEFERRED, COH_PROGRAM_BODY);
    m.layout.residents[1] = m.layout.residents[0];
    assert_refused(&m, COH_RULE_CLOSURE, "boundary entry 1 is a second one");
}

static void instructions_of_another_program_are_refused(void **state)
{
    (void)state;
    mutant m = make(DISK_DEFERRED, COH_PROGRAM_DRAIN);
    m.program.kind = COH_PROGRAM_SAVE;
    assert_refused(&m, COH_RULE_CONSISTENT_SAVE, "a save program has no such instruction");
    m = make(DISK_DEFERRED, COH_PROGRAM_SAVE);
    m.program.kind = COH_PROGRAM_DRAIN;
    assert_refused(&m, COH_RULE_EXACTLY_ONCE, "a drain program has no such instruction");
}

static void a_deferred_update_that_does_not_ask_for_pending_breaks_exactly_once(void **state)
{
    (void)state;
    mutant m = make(DISK_DEFERRED, COH_PROGRAM_BODY);
    uint32_t update = find_instruction(&m.program, COH_OP_UPDATE, 0);
    m.program.instructions[update].predicate_cell = COH_CELL_NONE;
    assert_refused(&m, COH_RULE_EXACTLY_ONCE, "a deferred update needs `pending`");
}

/* The table of gradients has a row per tensor: a number from a damaged file must not size it. */
static void a_gradient_of_a_tensor_out_of_range_breaks_form(void **state)
{
    (void)state;
    mutant m = make(DISK_DIRECT, COH_PROGRAM_BODY);
    uint32_t object = 0;
    while (m.layout.objects[object].stream != COH_STREAM_ACTIVATION_GRAD)
        object++;
    m.layout.objects[object].owner = 1 << 25;
    assert_refused(&m, COH_RULE_FORM, "a gradient of tensor 33554432");
}

static void a_group_with_parameters_outside_the_table_breaks_form(void **state)
{
    (void)state;
    mutant m = make(DISK_DIRECT, COH_PROGRAM_BODY);
    m.layout.groups[0].parameter_count = m.layout.parameter_count + 1;
    m.options.rules_off = UINT32_MAX; /* later checks index by it, whatever rules are on */
    assert_refused(&m, COH_RULE_FORM, "whose parameters do not fit its work");
}

/* ---- arbitrary input ---- */

static void tables_of_random_bytes_are_refused_and_followed_nowhere(void **state)
{
    (void)state;
    const uint64_t cases = test_cases(3000);
    uint64_t refused = 0;
    for (uint64_t seed = 0; seed < cases; seed++) {
        mutant m = make(HOST_DEFERRED, seed % 2 == 0 ? COH_PROGRAM_DRAIN : COH_PROGRAM_SAVE);
        struct {
            void *bytes;
            size_t count;
        } tables[] = { { m.program.instructions,
                         m.program.instruction_count * sizeof(*m.program.instructions) },
                       { m.program.operands, m.program.operand_count * sizeof(coh_operand) },
                       { m.program.touches, m.program.touch_count * sizeof(coh_touch) },
                       { m.program.extents, m.program.extent_count * sizeof(coh_extent) },
                       { m.program.waits, m.program.wait_count * sizeof(coh_wait) },
                       { m.layout.chunks, m.layout.chunk_count * sizeof(coh_chunk) },
                       { m.layout.objects, m.layout.object_count * sizeof(coh_object) } };
        size_t which = coh_rng_below(seed, 1, 0, sizeof(tables) / sizeof(tables[0]));
        size_t at = coh_rng_below(seed, 1, 1, tables[which].count);
        ((uint8_t *)tables[which].bytes)[at] = (uint8_t)coh_rng_u64(seed, 1, 2);
        coh_verify_result result;
        refused += coh_verify(&m.layout, &m.program, &m.options, &result) != COH_OK;
        m.options.rules_off = UINT32_MAX; /* the tables are still followed safely */
        (void)coh_verify(&m.layout, &m.program, &m.options, &result);
        free_mutant(&m);
    }
    assert_true(refused > cases / 2);
}

static void every_failing_allocation_is_reported(void **state)
{
    (void)state;
    mutant m = make(HOST_DIRECT, COH_PROGRAM_BODY);
    for (uint64_t n = 1;; n++) {
        alloc_fail_nth(n);
        coh_status status = coh_verify(&m.layout, &m.program, &m.options, NULL);
        int was_hit = alloc_fault_was_hit();
        alloc_fail_nth(0);
        if (!was_hit) {
            assert_int_equal(status, COH_OK);
            assert_true(n > 20);
            break;
        }
        assert_int_equal(status, COH_ERR_MEMORY);
    }
    free_mutant(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_programs_of_every_kind_are_accepted),
        cmocka_unit_test(the_clocks_order_two_instructions_exactly_when_brute_force_does),
        cmocka_unit_test(every_legal_order_of_a_verified_program_leaves_the_same_values),
        cmocka_unit_test(a_tier_that_compute_may_not_touch_breaks_form),
        cmocka_unit_test(an_operand_shorter_than_its_chunks_breaks_form),
        cmocka_unit_test(partials_in_another_role_break_form),
        cmocka_unit_test(two_instructions_that_wait_for_each_other_deadlock),
        cmocka_unit_test(a_compute_instruction_that_does_not_wait_for_its_read_breaks_read),
        cmocka_unit_test(a_settle_that_overtakes_an_update_reading_the_cells_breaks_overwrite),
        cmocka_unit_test(a_workspace_written_by_two_instructions_at_once_breaks_write_order),
        cmocka_unit_test(a_use_that_is_not_counted_breaks_overlap),
        cmocka_unit_test(a_read_into_bytes_still_saved_from_breaks_overlap),
        cmocka_unit_test(one_page_more_than_the_budget_breaks_capacity),
        cmocka_unit_test(an_extent_off_its_page_breaks_alignment),
        cmocka_unit_test(an_update_that_is_not_written_back_loses_data),
        cmocka_unit_test(a_gradient_that_is_not_applied_breaks_exactly_once),
        cmocka_unit_test(a_contribution_that_overwrites_breaks_exactly_once),
        cmocka_unit_test(a_recompute_of_another_input_breaks_recompute),
        cmocka_unit_test(a_saved_object_on_one_side_only_breaks_recompute),
        cmocka_unit_test(an_end_that_is_not_the_boundary_breaks_closure),
        cmocka_unit_test(more_writing_than_the_limit_breaks_wear),
        cmocka_unit_test(a_save_that_leaves_a_chunk_out_is_not_consistent),
        cmocka_unit_test(a_save_of_what_another_rank_owns_is_not_consistent),
        cmocka_unit_test(owners_that_are_no_ranges_break_form),
        cmocka_unit_test(an_instruction_between_ranks_breaks_form),
        cmocka_unit_test(a_gradient_that_begins_inside_a_parameter_breaks_exactly_once),
        cmocka_unit_test(a_norm_without_a_gradient_breaks_form),
        cmocka_unit_test(an_instruction_without_its_call_or_with_anothers_breaks_form),
        cmocka_unit_test(two_boundary_entries_of_one_chunk_break_closure),
        cmocka_unit_test(instructions_of_another_program_are_refused),
        cmocka_unit_test(a_deferred_update_that_does_not_ask_for_pending_breaks_exactly_once),
        cmocka_unit_test(a_gradient_of_a_tensor_out_of_range_breaks_form),
        cmocka_unit_test(a_group_with_parameters_outside_the_table_breaks_form),
        cmocka_unit_test(tables_of_random_bytes_are_refused_and_followed_nowhere),
        cmocka_unit_test(every_failing_allocation_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
