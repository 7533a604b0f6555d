/* Patterns: their closed forms agree with what their instructions need; slices are used only
 * where the whole does not fit, and change no summation order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "cohobate/kinds.h"
#include "planner/layout.h"
#include "planner/pattern.h"
#include "planner/plan_make.h"
#include "planner/row_unit.h"
#include "planner/schedule.h"
#include "tests/planner/toy_graph.h"

/* The mixes' weights are 512 x 512, in blocks of 64 rows; the table is small. */
static const toy_options toy = {
    .layers = 2, .width = 512, .vocabulary = 200, .rows = 6, .is_tied = 1, .slices = 1
};

static const coh_plan_options disk = { .struct_bytes = sizeof(coh_plan_options),
                                       .device_memory_bytes = UINT64_MAX,
                                       .disk_bytes = UINT64_MAX,
                                       .thread_count = 1,
                                       .microbatch_count = 2,
                                       .deferred_update = 1,
                                       .kernel_path = "toy" };

static coh_graph *make_graph(void)
{
    coh_graph *graph = NULL;
    assert_int_equal(toy_graph_make(&toy, &graph), COH_OK);
    return graph;
}

static coh_plan *make_plan(const coh_graph *graph, uint64_t device_bytes)
{
    coh_plan_options options = disk;
    coh_plan *plan = NULL;
    options.device_memory_bytes = device_bytes;
    if (coh_plan_create(graph, &options, &plan) != COH_OK)
        fail_msg("%s", coh_last_error());
    return plan;
}

static coh_decisions decisions_of(int row_passes, int slices)
{
    return (coh_decisions){ .chunk_bytes = 65536,
                            .row_passes = row_passes,
                            .slices = slices,
                            .patterns = coh_pattern_choose(slices) };
}

static uint64_t window_bytes(const coh_layout *layout, const coh_lowered_operand *operand)
{
    const coh_chunk *first = &layout->chunks[layout->objects[operand->object].chunk_begin];
    uint64_t bytes = 0;
    for (uint32_t i = operand->window_begin; i < operand->window_end; i++)
        bytes += first[i].bytes;
    return bytes;
}

/* Returns the most WORK that a FORWARD instruction of the operator needs; *out_lines: its number of
 * instructions. */
static uint64_t needed_bytes(const coh_layout *layout, const coh_lowered *lowered, int32_t op,
                             int32_t *out_instructions)
{
    uint64_t most = 0;
    *out_instructions = 0;
    for (size_t i = 0; i < lowered->instruction_count; i++) {
        const coh_lowered_instruction *instruction = &lowered->instructions[i];
        uint64_t bytes = 0;
        if (instruction->opcode != COH_OP_FORWARD ||
            lowered->calls[instruction->call].operator_index != op ||
            lowered->calls[instruction->call].microbatch != 0)
            continue;
        ++*out_instructions;
        for (uint32_t k = 0; k < instruction->operand_count; k++)
            if (lowered->operands[instruction->operand_begin + k].role == COH_ROLE_PARAMETER)
                bytes += window_bytes(layout, &lowered->operands[instruction->operand_begin + k]);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static void closed_forms_are_what_the_instructions_need(void **state)
{
    (void)state;
    coh_graph *graph = make_graph();
    const coh_block_set none = { 0 };
    int sliced = 0, whole = 0;
    for (int slices = 1; slices <= 16; slices *= 2) {
        const coh_decisions decisions = decisions_of(slices, slices);
        coh_layout layout;
        coh_object_map map;
        coh_lowered lowered;
        assert_int_equal(coh_layout_build(graph, &disk, &decisions, &layout, &map), COH_OK);
        assert_int_equal(
            coh_lower(graph, &disk, &layout, &map, &none, 0, COH_PROGRAM_BODY, &lowered), COH_OK);
        const coh_pattern_scene scene = { graph, &layout, &map };
        for (int32_t op = 0; op < (int32_t)graph->op_count; op++) {
            const coh_pattern *pattern = coh_pattern_of(&scene, op);
            const coh_shard shard = pattern->shard(&scene, op);
            int32_t instructions = 0;
            const uint64_t bytes = needed_bytes(&layout, &lowered, op, &instructions);
            assert_true(pattern->memory(&scene, op) == bytes);
            assert_int_equal(shard.parts, instructions);
            sliced += shard.parts > 1 && strcmp(pattern->name, "slice") == 0;
            whole += shard.parts == 1 && strcmp(pattern->name, "replicate") == 0;
        }
        coh_lowered_fini(&lowered);
        coh_object_map_fini(&map);
        coh_layout_fini(&layout);
    }
    assert_true(sliced >= 8 && whole >= 8);
    coh_graph_destroy(graph);
}

/* ---- several ranks ---- */

/* Made-up groups of ranks: of a pair, pairs of a node, nodes. */
enum { LEVELS = 3 };
static const int32_t meshes[][LEVELS] = { { 1, 1, 1 }, { 2, 1, 1 }, { 1, 4, 1 },
                                          { 1, 1, 8 }, { 2, 4, 1 }, { 2, 2, 4 } };
enum { MESH_COUNT = sizeof(meshes) / sizeof(meshes[0]) };

/* An axis for each level that has links. */
static coh_mesh mesh_of(const int32_t *counts)
{
    static const char *const names[LEVELS] = { "pair", "node", "world" };
    coh_levels levels = { { 1 } };
    coh_axis axes[LEVELS];
    coh_mesh mesh;
    int axis_count = 0;
    for (int i = 0; i < LEVELS; i++) {
        levels.rank_count[COH_LEVEL_PAIR + i] = levels.rank_count[i] * counts[i];
        if (counts[i] == 1)
            continue;
        axes[axis_count].rank_count = counts[i];
        snprintf(axes[axis_count++].name, sizeof(axes[0].name), "%s", names[i]);
    }
    assert_int_equal(coh_mesh_init(&mesh, axes, axis_count, &levels), COH_OK);
    return mesh;
}

/* Returns a layout as a rank of a mesh would have it. */
static void make_layout_of(const coh_graph *graph, const int32_t *mesh, coh_layout *layout,
                           coh_object_map *map)
{
    const coh_decisions decisions = decisions_of(4, 4);
    assert_int_equal(coh_layout_build(graph, &disk, &decisions, layout, map), COH_OK);
    layout->mesh = mesh_of(mesh);
    for (uint32_t i = 0; i < layout->object_count; i++) {
        const coh_object *object = &layout->objects[i];
        for (uint32_t k = 0; object->stream <= COH_STREAM_STATE && k < object->chunk_count; k++)
            layout->chunks[object->chunk_begin + k].owner_rank =
                coh_pattern_of_group(layout, object->owner)->owner(layout, k, object->chunk_count);
    }
}

/* Counts by chunk the instructions of a program of one rank. */
static void count_visits(const coh_graph *graph, const coh_layout *layout,
                         const coh_object_map *map, coh_program_kind kind, int *visits)
{
    const coh_block_set none = { 0 };
    coh_lowered lowered;
    assert_int_equal(coh_lower(graph, &disk, layout, map, &none, 0, kind, &lowered), COH_OK);
    for (size_t i = 0; i < lowered.operand_count; i++)
        for (uint32_t k = lowered.operands[i].touch_begin; k < lowered.operands[i].touch_end; k++)
            visits[layout->objects[lowered.operands[i].object].chunk_begin + k]++;
    coh_lowered_fini(&lowered);
}

/* The ranks' SAVE programs together visit each surviving chunk of work and states once, whatever
 * the number of ranks; INIT visits every chunk on each rank. */
static void ranks_save_each_chunk_once(void **state)
{
    (void)state;
    coh_graph *graph = make_graph();
    for (int i = 0; i < MESH_COUNT; i++) {
        coh_layout layout;
        coh_object_map map;
        int *saves = NULL, *inits = NULL;
        make_layout_of(graph, meshes[i], &layout, &map);
        const int32_t ranks = meshes[i][0] * meshes[i][1] * meshes[i][2];
        assert_int_equal(COH_ALLOC(layout.chunk_count, &saves), COH_OK);
        assert_int_equal(COH_ALLOC(layout.chunk_count, &inits), COH_OK);
        for (layout.rank = 0; layout.rank < ranks; layout.rank++) {
            count_visits(graph, &layout, &map, COH_PROGRAM_SAVE, saves);
            count_visits(graph, &layout, &map, COH_PROGRAM_INIT, inits);
        }
        for (uint32_t c = 0; c < layout.chunk_count; c++) {
            const uint8_t stream = layout.objects[layout.chunks[c].object].stream;
            assert_int_equal(saves[c], stream == COH_STREAM_WORK || stream == COH_STREAM_STATE);
            if (stream <= COH_STREAM_STATE)
                assert_int_equal(inits[c], ranks);
        }
        coh_free(saves);
        coh_free(inits);
        coh_object_map_fini(&map);
        coh_layout_fini(&layout);
    }
    coh_graph_destroy(graph);
}

/* Sums a gradient of one page per rank the long way: at each level, a rank folds the pages whose
 * number has its own digit there; then the ranks send the sums back, from the outermost level in.
 * Returns the bytes that rank 0 receives over one level. */
static uint64_t received_bytes(const int32_t *mesh, int level)
{
    const int32_t ranks = mesh[0] * mesh[1] * mesh[2];
    uint64_t pages = 0;
    for (int32_t page = 0; page < ranks; page++) {
        const int32_t digit[] = { page % mesh[0], page / mesh[0] % mesh[1],
                                  page / mesh[0] / mesh[1] };
        int is_mine = 1; /* after the levels within this one */
        for (int inner = 0; inner < level; inner++)
            is_mine &= digit[inner] == 0;
        if (is_mine && digit[level] == 0)
            pages += (uint64_t)mesh[level] - 1; /* the other ranks' contributions */
        else if (is_mine)
            pages++; /* the sum that another rank made */
    }
    return pages * COH_PAGE_BYTES;
}

/* A chunk of as many grains as ranks, f32 and bf16 with f32 gradients, divided over all numbers of
 * axes. A sum over all ranks is half slices of gradients, half sums that come back. Over the axes
 * that divide the states the updated work comes back instead: once, or for each use over those that
 * divide the work. */
static void volumes_of_parts_are_half_sums_and_gathered_work(void **state)
{
    (void)state;
    enum { WORK, GRAD, OBJECTS };
    for (int i = 0; i < MESH_COUNT; i++)
        for (int k = 0; k < 2 * (LEVELS + 1) * (LEVELS + 1); k++) {
            const int is_half = k % 2, of_work = k / 2 % (LEVELS + 1);
            const int of_states = k / 2 / (LEVELS + 1);
            const uint64_t ranks =
                (uint64_t)meshes[i][0] * (uint64_t)meshes[i][1] * (uint64_t)meshes[i][2];
            const uint64_t grain = COH_GRAIN_ELEMENTS * sizeof(float);
            coh_chunk chunks[OBJECTS] = { { .object = WORK, .is_divided = of_states > 0 },
                                          { .object = GRAD, .is_divided = of_states > 0 } };
            coh_object objects[OBJECTS] = {
                { .chunk_begin = WORK, .chunk_count = 1, .stream = COH_STREAM_WORK },
                { .chunk_begin = GRAD, .chunk_count = 1, .stream = COH_STREAM_GRAD }
            };
            coh_group_layout group = { .work = WORK,
                                       .grad = GRAD,
                                       .state = -1,
                                       .work_part = of_work > 0 ? WORK : -1,
                                       .work_copy = -1,
                                       .grad_part = -1,
                                       .axes = { (uint8_t)of_work, 0, (uint8_t)of_states },
                                       .dtype = is_half ? COH_DTYPE_BF16 : COH_DTYPE_F32,
                                       .f32_gradients = is_half };
            const coh_layout layout = { .objects = objects,
                                        .chunks = chunks,
                                        .groups = &group,
                                        .chunk_count = OBJECTS,
                                        .mesh = mesh_of(meshes[i]) };
            chunks[WORK].bytes = ranks * grain / (is_half ? 2 : 1);
            chunks[GRAD].bytes = ranks * grain;
            if (of_work > of_states || of_states > layout.mesh.axis_count)
                continue;
            for (int level = 0, axis = 0; level<LEVELS; axis += meshes[i][level++]> 1) {
                const coh_link_level link = (coh_link_level)(COH_LEVEL_PAIR + level);
                const uint64_t half = received_bytes(meshes[i], level) / 2 / COH_PAGE_BYTES * grain;
                const uint64_t work = half / (is_half ? 2 : 1);
                const uint64_t once = axis < of_work ? 0 : axis < of_states ? work : half;
                assert_true(coh_gathered_bytes(&layout, WORK, COH_PROGRAM_BODY, COH_OP_FORWARD,
                                               link) == (axis < of_work ? work : 0));
                assert_true(coh_pattern_rows[COH_PATTERN_REPLICATE]->volume(
                                &layout, 0, COH_PROGRAM_BODY, link) == half + once);
            }
        }
}

static void volumes_are_those_of_a_sum_over_all_ranks(void **state)
{
    (void)state;
    coh_object object = { .bytes = 0, .stream = COH_STREAM_GRAD };
    coh_group_layout group = { .grad = 0,
                               .work_part = -1,
                               .grad_part = -1,
                               .work_copy = -1,
                               .pattern = COH_PATTERN_REPLICATE };
    coh_chunk chunk = { .object = 0 };
    coh_layout layout = { .objects = &object, .chunks = &chunk, .groups = &group };
    object.chunk_count = 1;
    for (int i = 0; i < MESH_COUNT; i++) {
        const uint64_t ranks =
            (uint64_t)meshes[i][0] * (uint64_t)meshes[i][1] * (uint64_t)meshes[i][2];
        uint64_t all = 0;
        layout.mesh = mesh_of(meshes[i]);
        chunk.bytes = object.bytes = ranks * COH_PAGE_BYTES;
        for (int level = 0; level < LEVELS; level++) {
            const uint64_t bytes = coh_pattern_rows[group.pattern]->volume(
                &layout, 0, COH_PROGRAM_BODY, (coh_link_level)(COH_LEVEL_PAIR + level));
            assert_true(bytes == received_bytes(meshes[i], level));
            all += bytes;
        }
        /* over all levels as much as a ring */
        assert_true(all == 2 * object.bytes / ranks * (ranks - 1));
        for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT; kind++)
            assert_true(kind == COH_PROGRAM_BODY ||
                        coh_pattern_rows[group.pattern]->volume(&layout, 0, (coh_program_kind)kind,
                                                                COH_LEVEL_PAIR) == 0);
    }
}

/* ---- programs against the closed forms ---- */

/* Returns the first FORWARD with parameters. */
static coh_instruction *find_forward(coh_program *program)
{
    for (uint32_t i = 0; i < program->instruction_count; i++) {
        coh_instruction *instruction = &program->instructions[i];
        for (uint32_t o = 0;
             instruction->opcode == COH_OP_FORWARD && o < instruction->operand_count; o++)
            if (program->operands[instruction->operand_begin + o].role == COH_ROLE_PARAMETER)
                return instruction;
    }
    fail();
    return NULL;
}

/* Every schedule is compared with its patterns (coh_schedule_build); here is what that finds. */
static void a_program_that_its_patterns_do_not_describe_is_refused(void **state)
{
    (void)state;
    coh_graph *graph = make_graph();
    coh_plan *plan = make_plan(graph, UINT64_MAX);
    coh_layout layout;
    coh_object_map map;
    assert_int_equal(coh_layout_build(graph, &plan->options, &plan->decisions, &layout, &map),
                     COH_OK);
    const coh_pattern_scene scene = { graph, &layout, &map };
    coh_program *body = &plan->programs[COH_PROGRAM_BODY];
    coh_instruction *instruction = find_forward(body);
    assert_int_equal(coh_pattern_check(&scene, body), COH_OK);

    instruction->opcode = COH_OP_RECOMPUTE;
    assert_int_equal(coh_pattern_check(&scene, body), COH_ERR_INTERNAL);
    assert_non_null(strstr(coh_last_error(), "is 0 instructions"));
    instruction->opcode = COH_OP_FORWARD;

    for (uint32_t o = 0; o < instruction->operand_count; o++)
        if (body->operands[instruction->operand_begin + o].role == COH_ROLE_PARAMETER) {
            body->operands[instruction->operand_begin + o].bytes += COH_PAGE_BYTES;
            assert_int_equal(coh_pattern_check(&scene, body), COH_ERR_INTERNAL);
            assert_non_null(strstr(coh_last_error(), "bytes of parameters"));
            body->operands[instruction->operand_begin + o].bytes -= COH_PAGE_BYTES;
        }

    instruction->lane = COH_LANE_COMM1;
    assert_int_equal(coh_pattern_check(&scene, body), COH_ERR_INTERNAL);
    assert_non_null(strstr(coh_last_error(), "comm1"));
    instruction->lane = COH_LANE_COMPUTE;

    layout.mesh = mesh_of(meshes[1]); /* the gradients would have to be summed */
    assert_int_equal(coh_pattern_check(&scene, body), COH_ERR_INTERNAL);
    assert_non_null(strstr(coh_last_error(), "receives 0 bytes on the lane comm0"));
    coh_object_map_fini(&map);
    coh_layout_fini(&layout);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

/* Norms are folded, and checkpoints written, in the order of the layout's parameters. */
static void slices_change_no_order_of_parameters(void **state)
{
    (void)state;
    for (int freezes = 0; freezes < 2; freezes++) {
        coh_graph *graph = NULL;
        coh_layout layouts[2];
        coh_object_map maps[2];
        toy_options options = toy;
        options.freezes = freezes;
        assert_int_equal(toy_graph_make(&options, &graph), COH_OK);
        for (int i = 0; i < 2; i++) {
            const coh_decisions decisions = decisions_of(1, i ? 8 : 1);
            assert_int_equal(coh_layout_build(graph, &disk, &decisions, &layouts[i], &maps[i]),
                             COH_OK);
        }
        assert_true(layouts[1].group_count > layouts[0].group_count);
        assert_int_equal(layouts[1].parameter_count, layouts[0].parameter_count);
        for (uint32_t i = 0; i < layouts[0].parameter_count; i++) {
            const coh_parameter_layout *a = &layouts[0].parameters[i];
            const coh_parameter_layout *b = &layouts[1].parameters[i];
            assert_int_equal(a->parameter, b->parameter);
            assert_int_equal(a->partial_begin, b->partial_begin);
        }
        for (int i = 0; i < 2; i++) {
            coh_object_map_fini(&maps[i]);
            coh_layout_fini(&layouts[i]);
        }
        coh_graph_destroy(graph);
    }
}

/* The text in plan.json has one form, and gives no class a pattern that it cannot have. */
static void a_choice_is_read_as_it_is_written(void **state)
{
    (void)state;
    static const char *const bad[] = { "",
                                       "plain=replicate",
                                       "plain=replicate,table=slice",
                                       "plain=replicate,table=slice,product=slice,",
                                       "plain=replicate,table=slice,product=slices",
                                       "table=slice,plain=replicate,product=slice",
                                       "plain=replicate, table=slice, product=slice",
                                       "plain=slice,table=slice,product=slice",
                                       "plain=replicate,table=moon,product=slice" };
    coh_pattern_choice read;
    for (int slices = 0; slices <= 2; slices++) {
        const coh_pattern_choice choice = coh_pattern_choose(slices);
        coh_text text = { 0 };
        assert_int_equal(coh_pattern_choice_write(&choice, &text), COH_OK);
        assert_string_equal(text.data, slices > 1
                                           ? "plain=replicate,table=slice,product=slice"
                                           : "plain=replicate,table=slice,product=replicate");
        assert_int_equal(coh_pattern_choice_read(text.data, &read), COH_OK);
        assert_true(coh_pattern_choice_equal(&read, &choice));
        coh_text_fini(&text);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(coh_pattern_choice_read(bad[i], &read), COH_ERR_CORRUPT);
}

/* Lowering takes the pattern from the decisions, whatever the shapes allow. */
static void the_choice_decides_and_not_the_shapes(void **state)
{
    (void)state;
    coh_graph *graph = make_graph();
    const coh_block_set none = { 0 };
    for (int sliced = 0; sliced < 2; sliced++) {
        coh_decisions decisions = decisions_of(16, 16);
        coh_layout layout;
        coh_object_map map;
        coh_lowered lowered;
        if (!sliced)
            decisions.patterns = (coh_pattern_choice){ { 0 } };
        assert_int_equal(coh_layout_build(graph, &disk, &decisions, &layout, &map), COH_OK);
        assert_int_equal(
            coh_lower(graph, &disk, &layout, &map, &none, 0, COH_PROGRAM_BODY, &lowered), COH_OK);
        int in_ranges = 0;
        for (size_t i = 0; i < lowered.call_count; i++)
            in_ranges += lowered.calls[i].row_count > 0;
        assert_true(sliced ? in_ranges > 0 : in_ranges == 0);
        coh_lowered_fini(&lowered);
        coh_object_map_fini(&map);
        coh_layout_fini(&layout);
    }
    coh_graph_destroy(graph);
}

static uint64_t bound_in(const coh_graph *graph, int slices)
{
    const coh_decisions decisions = decisions_of(1024, slices);
    uint64_t bytes = 0;
    assert_int_equal(coh_schedule_bound(graph, &disk, &decisions, &bytes, NULL), COH_OK);
    return bytes;
}

static int count_sliced_mixes(const coh_plan *plan)
{
    int count = 0;
    for (int32_t i = 0; i < coh_plan_operator_count(plan); i++) {
        coh_plan_operator op = { .struct_bytes = sizeof(op) };
        assert_int_equal(coh_plan_operator_at(plan, i, &op), COH_OK);
        count += strncmp(op.name, "mix", 3) == 0 && strncmp(op.pattern, "slice x", 7) == 0;
    }
    return count;
}

/* Below the need of whole weights, slices make room; above it, nothing is sliced. */
/* 32 blocks of 64 rows are one on a GPU: a weight of 512 rows is whole there, one of 5,000 is cut
 * at 2,048. */
static void a_gpu_cuts_only_weights_of_many_blocks(void **state)
{
    (void)state;
    static const struct {
        int64_t rows, blocks[2], units[2]; /* by kind of device */
    } cases[] = { { 512, { 64, 0 }, { 64, 0 } },
                  { 2048, { 64, 0 }, { 64, 0 } },
                  { 5000, { 64, 2048 }, { 64, 2048 } } };
    coh_graph *graph = make_graph();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        for (int32_t p = 0; p < (int32_t)graph->parameter_count; p++) {
            const coh_op_kind *kind = &graph->ops[graph->parameters[p].op].kind;
            coh_parameter_facts *facts = &graph->parameters[p].facts;
            if (!kind->column_slices || facts->row_block == 0)
                continue;
            facts->shape.dim[0] = cases[i].rows;
            for (int device = 0; device < 2; device++) {
                assert_int_equal(facts->row_block, 64);
                assert_int_equal(coh_row_block(kind, facts, (coh_device_kind)device),
                                 cases[i].blocks[device]);
                assert_int_equal(coh_row_unit(graph, p, (coh_device_kind)device),
                                 cases[i].units[device]);
            }
        }
    coh_graph_destroy(graph);
}

/* The library's tables are streamed in ranges of eight blocks there, another kind's of one. */
static void a_gpu_cuts_tables_into_larger_ranges(void **state)
{
    (void)state;
    static const struct {
        int64_t rows, row_block, of_gpu;
    } cases[] = { { 50257, 1024, 8192 },
                  { 8193, 1024, 8192 },
                  { 8192, 1024, 8192 },
                  { 5000, 1024, 5000 },
                  { 5000, INT64_MAX, 5000 } };
    const coh_op_kind own = { .row_split_parameters = 1u };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const coh_parameter_facts facts = { .shape = { .rank = 2, .dim = { cases[i].rows, 8 } },
                                            .row_block = cases[i].row_block };
        const coh_op_kind *const tables[] = { &coh_kind_classifier, &coh_kind_embedding };
        for (int k = 0; k < 2; k++) {
            assert_int_equal(coh_row_block(tables[k], &facts, COH_DEVICE_HOST), cases[i].row_block);
            assert_int_equal(coh_row_block(tables[k], &facts, COH_DEVICE_CUDA), cases[i].of_gpu);
        }
        assert_int_equal(coh_row_block(&own, &facts, COH_DEVICE_CUDA), cases[i].row_block);
    }
}

static void slices_are_taken_where_the_whole_does_not_fit(void **state)
{
    (void)state;
    coh_graph *graph = make_graph();
    const uint64_t whole = bound_in(graph, 1);
    coh_plan *plan = make_plan(graph, whole + whole / 4);
    assert_int_equal(count_sliced_mixes(plan), 0);
    const uint64_t smallest = plan->smallest_device_bytes, fingerprint = plan->numeric_fingerprint;
    print_message("smallest: whole %llu bytes, in slices %llu\n", (unsigned long long)whole,
                  (unsigned long long)smallest);
    assert_true(smallest < whole / 2);
    coh_plan_destroy(plan);
    plan = make_plan(graph, smallest);
    assert_true(plan->layout.arena_bytes[COH_TIER_DEVICE] <= smallest);
    assert_int_equal(count_sliced_mixes(plan), 2);
    assert_true(plan->numeric_fingerprint == fingerprint);
    coh_plan_destroy(plan);
    plan = make_plan(graph, whole - 4096);
    assert_int_equal(count_sliced_mixes(plan), 2);
    coh_plan_destroy(plan);
    coh_graph_destroy(graph);
}

/* What a step needs at once, except the pinned bytes, which grow with the number of
 * micro-batches. */
static uint64_t need_beside_pinned(const coh_graph *graph, int32_t microbatches, int deferred,
                                   const coh_decisions *decisions)
{
    coh_plan_options options = disk;
    coh_layout layout;
    coh_object_map map;
    uint64_t bytes = 0;
    options.microbatch_count = microbatches;
    options.deferred_update = deferred;
    assert_int_equal(coh_layout_build(graph, &options, decisions, &layout, &map), COH_OK);
    assert_int_equal(coh_schedule_bound(graph, &options, decisions, &bytes, NULL), COH_OK);
    assert_true(bytes > layout.pinned_bytes);
    bytes -= layout.pinned_bytes;
    coh_object_map_fini(&map);
    coh_layout_fini(&layout);
    return bytes;
}

/* Closed forms look at only three of many micro-batches. */
static void more_micro_batches_need_no_more_at_once(void **state)
{
    (void)state;
    for (int i = 0; i < 128; i++) {
        toy_options what = toy;
        coh_graph *graph = NULL;
        what.is_tied = i & 1;
        what.overwrites = i >> 1 & 1;
        what.freezes = i >> 2 & 1;
        what.extras = what.caches = i >> 3 & 1;
        const coh_decisions decisions = { .chunk_bytes = 65536,
                                          .cache = what.caches,
                                          .recompute = coh_block_set_first(i >> 4 & 1),
                                          .row_passes = 4,
                                          .slices = 2 * (i >> 6),
                                          .patterns = coh_pattern_choose(2 * (i >> 6)) };
        assert_int_equal(toy_graph_make(&what, &graph), COH_OK);
        const uint64_t of_three = need_beside_pinned(graph, 3, i >> 5 & 1, &decisions);
        for (int32_t microbatches = 4; microbatches < 12; microbatches++)
            assert_int_equal(need_beside_pinned(graph, microbatches, i >> 5 & 1, &decisions),
                             of_three);
        coh_graph_destroy(graph);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closed_forms_are_what_the_instructions_need),
        cmocka_unit_test(ranks_save_each_chunk_once),
        cmocka_unit_test(volumes_are_those_of_a_sum_over_all_ranks),
        cmocka_unit_test(volumes_of_parts_are_half_sums_and_gathered_work),
        cmocka_unit_test(a_program_that_its_patterns_do_not_describe_is_refused),
        cmocka_unit_test(a_choice_is_read_as_it_is_written),
        cmocka_unit_test(the_choice_decides_and_not_the_shapes),
        cmocka_unit_test(slices_change_no_order_of_parameters),
        cmocka_unit_test(a_gpu_cuts_only_weights_of_many_blocks),
        cmocka_unit_test(a_gpu_cuts_tables_into_larger_ranges),
        cmocka_unit_test(slices_are_taken_where_the_whole_does_not_fit),
        cmocka_unit_test(more_micro_batches_need_no_more_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
