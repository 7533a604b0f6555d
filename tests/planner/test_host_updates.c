/* Updates on the host lane: which instructions move there, what no longer crosses the links, and
 * that every program of such a plan is valid. The verifier and the bounds are the oracles. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "planner/candidates.h"
#include "planner/opcodes.h"
#include "planner/plan_make.h"
#include "planner/residency.h"
#include "planner/verify.h"
#include "tests/length.h"
#include "tests/planner/toy_graph.h"
#include "tests/planner/toy_plan.h"
#include "tests/temporary.h"

enum { LAYERS = 3, ALL = LAYERS + 1 };

static const toy_options toys[] = {
    { .layers = LAYERS, .width = 64, .vocabulary = 600, .rows = 40, .is_tied = 1 },
    { .layers = LAYERS, .width = 80, .vocabulary = 300, .rows = 60, .overwrites = 1, .freezes = 1 },
    { .layers = LAYERS,
      .width = 64,
      .vocabulary = 900,
      .rows = 40,
      .is_tied = 1,
      .dtype = COH_DTYPE_BF16 },
};

typedef struct setting {
    int toy, microbatches, deferred, disk, boundary, percent;
} setting;

static coh_plan_options options_of(const setting *what, const coh_graph *graph)
{
    const toy_tiers tiers = { .microbatches = what->microbatches,
                              .deferred = what->deferred,
                              .order = what->boundary == 1 ? COH_SWEEP_LAYER : COH_SWEEP_MICROBATCH,
                              .percent = what->percent,
                              .disk = what->disk };
    return toy_plan_options(graph, &tiers);
}

static coh_plan *make_plan_of(const setting *what, const coh_graph *graph, int host_updates,
                              int host_window)
{
    const coh_plan_options options = options_of(what, graph);
    const coh_decisions decisions = { .boundary = what->boundary,
                                      .host_updates = host_updates,
                                      .host_window = host_window };
    coh_plan *plan = NULL;
    if (toy_plan_make(graph, &options, &decisions, &plan) != COH_OK)
        fail_msg("toy %d, %d micro-batches, deferred %d, disk %d, boundary %d, host updates %d, "
                 "window %d: %s",
                 what->toy, what->microbatches, what->deferred, what->disk, what->boundary,
                 host_updates, host_window, coh_last_error());
    return plan;
}

static coh_plan *make_plan(const setting *what, const coh_graph *graph, int host_updates)
{
    return make_plan_of(what, graph, host_updates, 0);
}

/* In short runs a sanitizer sees each setting with one toy: each toy has both numbers of
 * micro-batches, times of updates, sets of tiers and budgets, and all kinds of maps. */
static void each_setting(void (*check)(const setting *what, const coh_graph *graph))
{
    static const int brief_toys[12] = { 0, 1, 2, 2, 2, 0, 1, 0, 1, 2, 0, 1 };
    for (int toy = 0; toy < 3; toy++) {
        coh_graph *graph = NULL;
        assert_int_equal(toy_graph_make(&toys[toy], &graph), COH_OK);
        for (int i = 0; i < 12; i++) {
            if (test_is_brief() && brief_toys[i] != toy)
                continue;
            const setting what = { .toy = toy,
                                   .microbatches = 1 + 2 * (i % 2),
                                   .deferred = i / 2 % 2,
                                   .disk = i / 4 % 2,
                                   .boundary = i % COH_BOUNDARY_COUNT,
                                   .percent = i < 8 ? 60 : 100 };
            check(&what, graph);
        }
        coh_graph_destroy(graph);
    }
}

/* Returns 1 if all UPDATE instructions of the block are on `lane`. Parameters outside of blocks
 * count as block -1 (before the first) or LAYERS (after the last). */
static int is_updated_on(const coh_plan *plan, int32_t block, coh_lane lane)
{
    const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    int some = 0;
    for (uint32_t i = 0; i < body->instruction_count; i++) {
        const coh_instruction *instruction = &body->instructions[i];
        if (instruction->opcode != COH_OP_UPDATE)
            continue;
        int32_t group =
            plan->layout.objects[body->operands[instruction->operand_begin].object].owner;
        for (size_t op = 0; op < plan->graph->op_count; op++) {
            const coh_graph_op_entry *entry = &plan->graph->ops[op];
            int32_t begin = plan->layout.groups[group].parameter_begin;
            if (entry->kind.parameter_count == 0 ||
                entry->parameter[0] != plan->layout.parameters[begin].parameter)
                continue;
            int32_t before = plan->graph->ops[op].blocks_before;
            int32_t found = entry->block < 0 && before == 0 ? -1 : before;
            if (found == block && instruction->lane != lane)
                return 0;
            some |= found == block;
            break; /* a tied one belongs to its first operator */
        }
    }
    return some;
}

/* Numbers of blocks that the host updates: none, all, and in short runs with a sanitizer every
 * second one between. */
static int next_count(int count)
{
    return count + (test_is_brief() ? 2 : 1);
}

static void lanes_are_as_decided(const setting *what, const coh_graph *graph)
{
    for (int count = 0; count <= ALL; count = next_count(count)) {
        coh_plan *plan = make_plan(what, graph, count);
        for (int32_t block = -1; block < LAYERS; block++) {
            int on_host = block < 0 ? count == ALL : block >= LAYERS - count;
            int freezes = toys[what->toy].freezes && block == 0;
            if (!freezes)
                assert_true(is_updated_on(plan, block, on_host ? COH_LANE_HOST : COH_LANE_COMPUTE));
        }
        coh_plan_destroy(plan);
    }
}

/* Marks the chunks that the body moves over a link: 1 host, 2 drive. */
static void mark_moved(const coh_plan *plan, uint8_t *marks)
{
    const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    memset(marks, 0, plan->layout.chunk_count);
    for (uint32_t i = 0; i < body->instruction_count; i++) {
        const coh_instruction *instruction = &body->instructions[i];
        const int is_drive =
            instruction->opcode == COH_OP_READ || instruction->opcode == COH_OP_WRITE;
        if (!coh_opcode_moves(instruction->opcode))
            continue;
        const coh_operand *from = &body->operands[instruction->operand_begin];
        for (uint32_t t = 0; t < from->touch_count; t++)
            marks[body->touches[from->touch_begin + t].chunk] |= is_drive ? 2 : 1;
    }
}

/* Beside a window of `window` 64ths the host tier keeps weights and states off the drive: as many
 * as fit, and of the states as large a share in the first half as in the second. */
static void the_rest_stays(const setting *what, const coh_graph *graph)
{
    enum { CHUNKS_MOST = 4096, CHUNK_BYTES = 2 * 65536 }; /* states of a chunk of weights */
    static uint8_t marks[CHUNKS_MOST];
    for (int window = 32; what->disk && window <= 48; window += 8) {
        coh_plan *plan = make_plan_of(what, graph, 0, window);
        const coh_layout *layout = &plan->layout;
        const uint64_t room = plan->options.host_memory_bytes / 64 * (uint64_t)(64 - window);
        uint64_t moved = 0, kept = 0, states = 0, so_far = 0, kept_of_half[2] = { 0 };
        assert_true(layout->chunk_count <= CHUNKS_MOST);
        mark_moved(plan, marks);
        for (uint32_t c = 0; c < layout->chunk_count; c++) {
            const coh_object *object = &layout->objects[layout->chunks[c].object];
            if (!(marks[c] & 1) || object->pinned ||
                (object->stream != COH_STREAM_WORK && object->stream != COH_STREAM_STATE))
                marks[c] = 0;
            states += marks[c] && object->stream == COH_STREAM_STATE ? layout->chunks[c].bytes : 0;
        }
        for (uint32_t c = 0; c < layout->chunk_count; c++) {
            const uint64_t bytes = layout->chunks[c].bytes;
            const uint64_t stays = marks[c] == 1 ? bytes : 0;
            moved += marks[c] ? bytes : 0;
            kept += stays;
            if (!marks[c] || layout->objects[layout->chunks[c].object].stream != COH_STREAM_STATE)
                continue;
            kept_of_half[2 * so_far >= states] += stays;
            so_far += bytes;
        }
        assert_true(kept + 2 * CHUNK_BYTES >= (room < moved ? room : moved));
        const uint64_t slack = plan->options.host_memory_bytes - room + 2 * CHUNK_BYTES;
        assert_true(kept_of_half[0] <= kept_of_half[1] + slack &&
                    kept_of_half[1] <= kept_of_half[0] + slack);
        coh_plan_destroy(plan);
    }
}

static void beside_a_window_the_host_tier_keeps_chunks_off_the_drive(void **state)
{
    (void)state;
    each_setting(the_rest_stays);
}

static void the_last_blocks_are_updated_on_the_host_lane(void **state)
{
    (void)state;
    each_setting(lanes_are_as_decided);
}

/* Returns the bytes of a stream that LOAD or STORE instructions of the body move over the link. */
static uint64_t moved(const coh_plan *plan, coh_stream stream, coh_opcode opcode)
{
    const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < body->instruction_count; i++) {
        const coh_instruction *instruction = &body->instructions[i];
        int32_t object = body->operands[instruction->operand_begin].object;
        if (instruction->opcode == opcode && plan->layout.objects[object].stream == stream)
            bytes += instruction->bytes;
    }
    return bytes;
}

static uint64_t trained_bytes(const coh_plan *plan, coh_stream stream)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < plan->layout.group_count; i++) {
        const coh_group_layout *group = &plan->layout.groups[i];
        if (group->grad >= 0)
            bytes +=
                plan->layout.objects[stream == COH_STREAM_WORK ? group->work : group->grad].bytes;
    }
    return bytes;
}

/* With all updates on the host, no state crosses a link, each gradient is stored once, no updated
 * parameter is stored, and each parameter is loaded again at least once. */
static void links_carry_what_they_must(const setting *what, const coh_graph *graph)
{
    coh_plan *plan = make_plan(what, graph, ALL);
    assert_int_equal(moved(plan, COH_STREAM_STATE, COH_OP_LOAD), 0);
    assert_int_equal(moved(plan, COH_STREAM_STATE, COH_OP_STORE), 0);
    assert_int_equal(moved(plan, COH_STREAM_WORK, COH_OP_STORE), 0);
    assert_true(moved(plan, COH_STREAM_WORK, COH_OP_LOAD) >= trained_bytes(plan, COH_STREAM_WORK));
    assert_true(moved(plan, COH_STREAM_GRAD, COH_OP_STORE) >= trained_bytes(plan, COH_STREAM_GRAD));
    if (what->microbatches == 1)
        assert_int_equal(moved(plan, COH_STREAM_GRAD, COH_OP_STORE),
                         trained_bytes(plan, COH_STREAM_GRAD));
    assert_int_equal(moved(plan, COH_STREAM_CELLS, COH_OP_STORE), 4096);
    coh_plan_destroy(plan);
}

static void states_that_are_updated_on_the_host_never_cross_the_link(void **state)
{
    (void)state;
    each_setting(links_carry_what_they_must);
}

/* Uses a link so slow that states should not cross it. */
static void a_search_takes_the_host_lane_where_it_is_faster(void **state)
{
    (void)state;
    const setting what = { .toy = 0, .microbatches = 1, .deferred = 1, .percent = 50 };
    coh_graph *graph = NULL;
    coh_plan *plan = NULL, *without = NULL;
    coh_plan_summary found = { .struct_bytes = sizeof(found) },
                     other = { .struct_bytes = sizeof(other) };
    assert_int_equal(toy_graph_make(&toys[0], &graph), COH_OK);
    coh_plan_options options = options_of(&what, graph);
    options.link_bytes_per_s = 50e6;
    options.chunk_bytes = 65536;
    if (coh_plan_create(graph, &options, &plan) != COH_OK)
        fail_msg("%s", coh_last_error());
    assert_true(plan->decisions.host_updates > 0);
    assert_int_equal(coh_plan_open(graph, &options, &without), COH_OK);
    without->decisions = plan->decisions;
    without->decisions.host_updates = 0;
    assert_int_equal(coh_plan_finish(without), COH_OK);
    assert_int_equal(coh_plan_summarize(plan, &found), COH_OK);
    assert_int_equal(coh_plan_summarize(without, &other), COH_OK);
    assert_true(found.step_ns < other.step_ns);
    assert_true(found.step_ns >= found.bound_ns);
    assert_true(found.host_update_bytes > 0 && other.host_update_bytes == 0);
    coh_plan_destroy(without);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

/* Checks explain's trials: of an operator's updates where they are, and on the other lane. */
static void check_trials(const coh_plan *plan)
{
    int changed = 0;
    for (int32_t i = 0; i < coh_plan_operator_count(plan); i++) {
        coh_plan_operator op = { .struct_bytes = sizeof(op) };
        assert_int_equal(coh_plan_operator_at(plan, i, &op), COH_OK);
        const int on_host = strcmp(op.updates, "host") == 0;
        coh_plan_trial same = { .struct_bytes = sizeof(same) }, other = same;
        if (op.block < 0 || strcmp(op.updates, "-") == 0)
            continue;
        assert_int_equal(coh_plan_try_update(plan, i, on_host, &same), COH_OK);
        assert_true(same.fits && same.program_hash == plan->program_hash);
        assert_int_equal(coh_plan_try_update(plan, i, !on_host, &other), COH_OK);
        changed += other.program_hash != plan->program_hash;
    }
    assert_true(changed > 0);
}

static void a_trial_moves_the_updates_of_one_operator(void **state)
{
    (void)state;
    const setting what = { .toy = 2, .microbatches = 1, .percent = 60 };
    coh_graph *graph = NULL;
    assert_int_equal(toy_graph_make(&toys[2], &graph), COH_OK);
    coh_plan *plan = make_plan(&what, graph, 2);
    check_trials(plan);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

/* ---- the boundary map of the device ---- */

/* Marks the chunks that an instruction of the host lane writes. */
static void mark_host_writes(const coh_plan *plan, uint8_t *marks)
{
    const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    for (uint32_t i = 0; i < body->instruction_count; i++) {
        const coh_instruction *instruction = &body->instructions[i];
        for (uint32_t o = 0; o < instruction->operand_count; o++) {
            const coh_operand *operand = &body->operands[instruction->operand_begin + o];
            for (uint32_t t = 0; t < operand->touch_count; t++)
                if (instruction->lane == COH_LANE_HOST && (operand->access & COH_ACCESS_WRITE))
                    marks[body->touches[operand->touch_begin + t].chunk] = 1;
        }
    }
}

/* With room for everything the map of two free runs has all weights and states but those that the
 * host lane writes; under any kind of map it has none of these. */
static void all_but_host_writes_stay(const setting *what, const coh_graph *graph)
{
    enum { CHUNKS_MOST = 4096 };
    setting roomy = *what;
    roomy.percent = 300;
    for (int count = 0; count <= ALL; count = next_count(count)) {
        static uint8_t writes[CHUNKS_MOST], stays[CHUNKS_MOST];
        coh_plan *plan = make_plan(&roomy, graph, count);
        const coh_layout *layout = &plan->layout;
        assert_true(layout->chunk_count <= CHUNKS_MOST);
        memset(writes, 0, sizeof(writes));
        memset(stays, 0, sizeof(stays));
        mark_host_writes(plan, writes);
        for (uint32_t i = 0; i < layout->resident_count; i++)
            if (layout->residents[i].tier == COH_TIER_DEVICE)
                stays[layout->residents[i].chunk] = 1;
        for (uint32_t c = 0; c < layout->chunk_count; c++) {
            const coh_object *object = &layout->objects[layout->chunks[c].object];
            const int is_kept =
                object->stream == COH_STREAM_WORK || object->stream == COH_STREAM_STATE;
            assert_true(!(writes[c] && stays[c]));
            if (object->survives && !object->pinned && is_kept && !writes[c])
                assert_true(stays[c]);
        }
        coh_plan_destroy(plan);
    }
}

static void a_device_with_room_keeps_all_that_the_host_does_not_write(void **state)
{
    (void)state;
    each_setting(all_but_host_writes_stay);
}

static void assert_same_candidate(const coh_candidate *a, const coh_candidate *b)
{
    assert_int_equal(a->valid, b->valid);
    assert_int_equal(a->step_ns, b->step_ns);
    assert_int_equal(a->link_bytes, b->link_bytes);
    assert_int_equal(a->device_bytes, b->device_bytes);
    assert_int_equal(a->instruction_count, b->instruction_count);
    assert_int_equal(a->effort, b->effort);
    assert_int_equal(a->has_only_map, b->has_only_map);
    assert_int_equal(a->decisions.boundary, b->decisions.boundary);
}

/* Sets of decisions that differ in the kind of map, tried at once and in two parts, are evaluated
 * as each alone; where a candidate says that there is only one map, all are equal. */
static void kinds_of_maps_are_as_alone(const setting *what, const coh_graph *graph)
{
    for (int count = 0; count <= ALL; count = next_count(count)) {
        coh_plan *plan = make_plan(what, graph, count);
        coh_decisions list[COH_BOUNDARY_COUNT];
        coh_candidates candidates;
        for (int kind = 0; kind < COH_BOUNDARY_COUNT; kind++) {
            list[kind] = plan->decisions;
            list[kind].boundary = kind;
        }
        assert_int_equal(coh_candidates_open(&candidates, plan, UINT32_MAX), COH_OK);
        assert_int_equal(coh_candidates_try(&candidates, list, count % COH_BOUNDARY_COUNT), COH_OK);
        assert_int_equal(coh_candidates_try(&candidates, list, COH_BOUNDARY_COUNT), COH_OK);
        assert_int_equal(candidates.count, COH_BOUNDARY_COUNT);
        for (int kind = 0; kind < COH_BOUNDARY_COUNT; kind++) {
            coh_candidate alone;
            assert_int_equal(coh_candidate_make(plan, &list[kind], &alone), COH_OK);
            assert_same_candidate(&candidates.all[kind], &alone);
            assert_int_equal(candidates.all[kind].number, kind);
            assert_int_equal(alone.has_only_map, candidates.all[0].has_only_map);
            if (alone.has_only_map)
                assert_int_equal(alone.step_ns, candidates.all[0].step_ns);
        }
        /* of toy 1 frozen weights may stay; else nothing may if the host updates everything */
        assert_int_equal(candidates.all[0].has_only_map, count == ALL && what->toy != 1);
        coh_candidates_close(&candidates);
        coh_plan_destroy(plan);
    }
}

static void maps_of_all_kinds_are_evaluated_as_each_alone(void **state)
{
    (void)state;
    each_setting(kinds_of_maps_are_as_alone);
}

/* ---- bad programs, each a good one with one change ---- */

/* Checks that rule READ refuses the body, with a message that contains `first` and `second`. */
static void assert_unread(coh_plan *plan, const char *first, const char *second)
{
    const coh_layout *layout = &plan->layout;
    const coh_verify_options options = { .budget_bytes = { layout->arena_bytes[COH_TIER_DEVICE],
                                                           layout->arena_bytes[COH_TIER_HOST],
                                                           layout->file_bytes } };
    coh_verify_result result;
    assert_int_equal(coh_verify(layout, &plan->programs[COH_PROGRAM_BODY], &options, &result),
                     COH_ERR_CORRUPT);
    if (result.rule != COH_RULE_READ || strstr(coh_last_error(), first) == NULL ||
        strstr(coh_last_error(), second) == NULL)
        fail_msg("%s", coh_last_error());
}

static coh_instruction *first_update(coh_plan *plan)
{
    coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    uint32_t i = 0;
    while (body->instructions[i].lane != COH_LANE_HOST)
        assert_true(++i < body->instruction_count);
    return &body->instructions[i];
}

/* Returns the instruction's wait for an instruction of a lane in the same run. */
static coh_wait *wait_for(coh_plan *plan, const coh_instruction *instruction, coh_lane lane)
{
    coh_wait *waits = &plan->programs[COH_PROGRAM_BODY].waits[instruction->wait_begin];
    for (uint32_t i = 0; i < instruction->wait_count; i++)
        if (waits[i].lane == lane && !waits[i].carry)
            return &waits[i];
    fail();
    return NULL;
}

static coh_plan *direct_or_deferred(int deferred, coh_graph **out_graph)
{
    const setting what = { .toy = 0, .microbatches = 1, .deferred = deferred, .percent = 60 };
    assert_int_equal(toy_graph_make(&toys[0], out_graph), COH_OK);
    return make_plan(&what, *out_graph, ALL);
}

/* The device copy is older than the update: there is no LOAD, or the LOAD does not change its
 * bytes. */
static void a_stale_copy_on_the_device_is_refused(void **state)
{
    (void)state;
    coh_graph *graph = NULL;
    coh_plan *plan = direct_or_deferred(1, &graph);
    coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    const coh_instruction *update = first_update(plan);
    uint32_t chunk = body->touches[body->operands[update->operand_begin].touch_begin].chunk;
    coh_instruction *load = &body->instructions[update - body->instructions];
    while (load->opcode != COH_OP_LOAD ||
           body->touches[body->operands[load->operand_begin].touch_begin].chunk != chunk)
        assert_true(++load < body->instructions + body->instruction_count);
    coh_wait *wait = wait_for(plan, load, COH_LANE_HOST);
    const coh_wait kept = *wait;
    *wait = (coh_wait){ .ordinal = body->lane_length[COH_LANE_HOST],
                        .lane = COH_LANE_HOST,
                        .carry = 1 }; /* the run before */
    assert_unread(plan, "LOAD", "(UPDATE)");
    *wait = kept;
    for (uint32_t o = 0; o < 2; o++)
        body->touches[body->operands[load->operand_begin + o].touch_begin].version--;
    assert_unread(plan, "LOAD", "it names version 0, 1 instructions have written the chunk");
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

/* The second update waits for the BACKWARD that made its gradient, but not for the STORE that
 * brings it. The first one also waits for the cells. */
static void an_update_before_its_gradient_arrived_is_refused(void **state)
{
    (void)state;
    coh_graph *graph = NULL;
    coh_plan *plan = direct_or_deferred(0, &graph);
    const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    const coh_instruction *update = first_update(plan) + 1;
    while (update->lane != COH_LANE_HOST)
        update++;
    coh_wait *wait = wait_for(plan, update, COH_LANE_D2H);
    const coh_instruction *store = body->instructions;
    while (store->lane != COH_LANE_D2H || store->ordinal != wait->ordinal)
        store++;
    *wait = *wait_for(plan, store, COH_LANE_COMPUTE);
    assert_unread(plan, "UPDATE", "on grad of group");
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

/* All gradients of the previous step have arrived, but not the scale that CLIP latched for them. */
static void an_update_before_its_scale_arrived_is_refused(void **state)
{
    (void)state;
    coh_graph *graph = NULL;
    coh_plan *plan = direct_or_deferred(1, &graph);
    const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    *wait_for(plan, first_update(plan), COH_LANE_D2H) =
        (coh_wait){ .ordinal = body->lane_length[COH_LANE_D2H], .lane = COH_LANE_D2H, .carry = 1 };
    assert_unread(plan, "UPDATE", "cells");
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

/* Returns the position of the only instruction of the body that stores the cells. */
static uint32_t stored_cells_at(const coh_plan *plan)
{
    const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    uint32_t found = 0, count = 0;
    for (uint32_t i = 0; i < body->instruction_count; i++) {
        const coh_instruction *instruction = &body->instructions[i];
        if (instruction->opcode != COH_OP_STORE ||
            body->operands[instruction->operand_begin].object != plan->layout.cells)
            continue;
        found = instruction->position;
        count++;
    }
    assert_int_equal(count, 1);
    return found;
}

/* The copy of the cells in the host tier is read until the updates of the step before have ended. A
 * STORE over it waits for them, and all other STOREs wait behind it: if updates run in backward,
 * the activations of a forward would. */
static void cells_leave_when_an_update_needs_them(void **state)
{
    (void)state;
    for (int deferred = 0; deferred < 2; deferred++) {
        coh_graph *graph = NULL;
        coh_plan *plan = direct_or_deferred(deferred, &graph);
        const coh_program *body = &plan->programs[COH_PROGRAM_BODY];
        uint32_t first_forward = UINT32_MAX, last_forward = 0;
        for (uint32_t i = 0; i < body->instruction_count; i++) {
            const coh_instruction *instruction = &body->instructions[i];
            if (instruction->opcode != COH_OP_FORWARD)
                continue;
            last_forward = instruction->position;
            first_forward =
                instruction->position < first_forward ? instruction->position : first_forward;
        }
        if (deferred)
            assert_true(stored_cells_at(plan) < first_forward);
        else
            assert_true(stored_cells_at(plan) >= last_forward);
        coh_plan_destroy(plan);
        coh_graph_destroy(graph);
    }
}

/* The plan file rebuilds the plan. */
static void a_plan_file_keeps_which_lane_updates_and_the_window(void **state)
{
    (void)state;
    const setting what = { .toy = 2, .microbatches = 1, .deferred = 1, .percent = 60, .disk = 1 };
    coh_graph *graph = NULL;
    coh_plan *again = NULL;
    char path[256];
    assert_int_equal(temporary_file(path, sizeof(path), "plan"), 0);
    assert_int_equal(toy_graph_make(&toys[2], &graph), COH_OK);
    coh_plan *plan = make_plan_of(&what, graph, 2, 24);
    assert_int_equal(coh_plan_write(plan, path), COH_OK);
    if (coh_plan_read(graph, &plan->options, path, &again) != COH_OK)
        fail_msg("%s", coh_last_error());
    assert_int_equal(again->decisions.host_updates, 2);
    assert_int_equal(again->decisions.host_window, 24);
    assert_true(again->program_hash == plan->program_hash);
    unlink(path);
    coh_plan_destroy(again);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_blocks_are_updated_on_the_host_lane),
        cmocka_unit_test(beside_a_window_the_host_tier_keeps_chunks_off_the_drive),
        cmocka_unit_test(states_that_are_updated_on_the_host_never_cross_the_link),
        cmocka_unit_test(a_search_takes_the_host_lane_where_it_is_faster),
        cmocka_unit_test(a_trial_moves_the_updates_of_one_operator),
        cmocka_unit_test(a_plan_file_keeps_which_lane_updates_and_the_window),
        cmocka_unit_test(a_device_with_room_keeps_all_that_the_host_does_not_write),
        cmocka_unit_test(maps_of_all_kinds_are_evaluated_as_each_alone),
        cmocka_unit_test(a_stale_copy_on_the_device_is_refused),
        cmocka_unit_test(an_update_before_its_gradient_arrived_is_refused),
        cmocka_unit_test(an_update_before_its_scale_arrived_is_refused),
        cmocka_unit_test(cells_leave_when_an_update_needs_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
