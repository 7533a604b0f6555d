#include "tests/planner/program_maker.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "planner/optimizers.h"
#include "tests/planner/happens_before.h"
#include "tests/planner/maker_script.h"

const maker_recipe maker_recipes[] = {
    { "disk deferred", 1, 0, 1, 2, 18, 0, 1, 3, 2, 0 },
    { "disk deferred tight", 1, 0, 0, 2, 15, 0, 1, 2, 0, 0 },
    { "disk direct, compute depth 2", 0, 0, 1, 2, 17, 0, 2, 4, 1, 0 },
    { "host deferred", 1, 1, 1, 1, 17, 16, 1, 2, 3, 0 },
    { "host direct", 0, 1, 0, 2, 16, 18, 2, 3, 3, 0 },
    { "disk deferred, bf16", 1, 0, 1, 2, 24, 0, 1, 3, 2, 1 },
    { "host direct, bf16", 0, 1, 0, 2, 26, 34, 2, 3, 3, 1 },
};
const int maker_recipe_count = sizeof(maker_recipes) / sizeof(maker_recipes[0]);

enum {
    W0,
    W1,
    W2,
    G0,
    G1,
    G2,
    M0,
    M1,
    M2, /* by group: work, gradient, state */
    A0,
    A1,
    A2,
    D0,
    D1,
    D2, /* activations, their gradients */
    S1,
    S3,
    X1,
    B2, /* saved, scratch of the ADD, workspace */
    CELLS,
    PARTIALS,
    LOSSES,
    TOKENS,
    OBJECT_COUNT
};

/* ---- layout ---- */

static const struct {
    coh_stream stream;
    int32_t owner;
    uint8_t pages[2]; /* of each of its chunks */
} shapes[OBJECT_COUNT] = {
    [W0] = { COH_STREAM_WORK, 0, { 1, 1 } },
    [W1] = { COH_STREAM_WORK, 1, { 2, 1 } },
    [W2] = { COH_STREAM_WORK, 2, { 2 } },
    [G0] = { COH_STREAM_GRAD, 0, { 1, 1 } },
    [G1] = { COH_STREAM_GRAD, 1, { 2, 1 } },
    [G2] = { COH_STREAM_GRAD, 2, { 2 } },
    [M0] = { COH_STREAM_STATE, 0, { 2, 2 } },
    [M1] = { COH_STREAM_STATE, 1, { 4, 2 } },
    [M2] = { COH_STREAM_STATE, 2, { 4 } },
    [A0] = { COH_STREAM_ACTIVATION, 1, { 1 } },
    [A1] = { COH_STREAM_ACTIVATION, 2, { 1 } },
    [A2] = { COH_STREAM_ACTIVATION, 3, { 1, 1 } },
    [D0] = { COH_STREAM_ACTIVATION_GRAD, 1, { 1 } },
    [D1] = { COH_STREAM_ACTIVATION_GRAD, 2, { 1 } },
    [D2] = { COH_STREAM_ACTIVATION_GRAD, 3, { 1, 1 } },
    [S1] = { COH_STREAM_SAVED, 1, { 1 } },
    [S3] = { COH_STREAM_SAVED, 3, { 1 } },
    [X1] = { COH_STREAM_SCRATCH, 1, { 2 } },
    [B2] = { COH_STREAM_SCRATCH, 2, { 1 } },
    [CELLS] = { COH_STREAM_CELLS, 0, { 1 } },
    [PARTIALS] = { COH_STREAM_PARTIALS, 0, { 1 } },
    [LOSSES] = { COH_STREAM_LOSS, 0, { 1 } },
    [TOKENS] = { COH_STREAM_INPUT, 0, { 1 } },
};

/* States of one page of bf16 work: 2 Ki elements with 2 + 4 + 4 bytes each. */
static uint64_t chunk_bytes(const maker_recipe *recipe, int32_t object, int chunk)
{
    if (recipe->halves && object == M1)
        return shapes[W1].pages[chunk] * 2048u * (2u + 4u + 4u);
    return shapes[object].pages[chunk] * MAKER_PAGE;
}

static void make_objects(const maker_recipe *recipe, coh_layout *layout)
{
    layout->object_count = OBJECT_COUNT;
    COH_ALLOC(OBJECT_COUNT, &layout->objects);
    COH_ALLOC(2 * OBJECT_COUNT, &layout->chunks);
    for (int32_t i = 0; i < OBJECT_COUNT; i++) {
        coh_object *object = &layout->objects[i];
        coh_stream stream = shapes[i].stream;
        int pinned = stream >= COH_STREAM_CELLS;
        *object = (coh_object){ .chunk_begin = layout->chunk_count,
                                .owner = shapes[i].owner,
                                .stream = (uint8_t)stream,
                                .pinned = (uint8_t)pinned,
                                .survives = (uint8_t)(pinned ? stream != COH_STREAM_INPUT
                                                             : stream == COH_STREAM_WORK ||
                                                                   stream == COH_STREAM_STATE ||
                                                                   (stream == COH_STREAM_GRAD &&
                                                                    recipe->deferred)) };
        for (int c = 0; c < 2 && shapes[i].pages[c] > 0; c++) {
            uint64_t bytes = chunk_bytes(recipe, i, c);
            layout->chunks[layout->chunk_count++] =
                (coh_chunk){ .object = i,
                             .object_offset = object->bytes,
                             .bytes = bytes,
                             .file_offset = layout->file_bytes };
            object->bytes += bytes;
            object->chunk_count++;
            if (!pinned)
                layout->file_bytes += bytes;
        }
        if (pinned) {
            object->pinned_offset = layout->pinned_bytes;
            layout->pinned_bytes += object->bytes;
        }
    }
}

static coh_dtype halves(const maker_recipe *recipe, int32_t group)
{
    return recipe->halves && group == 1 ? COH_DTYPE_BF16 : COH_DTYPE_F32;
}

static void make_groups(const maker_recipe *recipe, coh_layout *layout)
{
    static const struct {
        int32_t group;
        uint64_t offset;
    } parameters[] = { { 0, 0 }, { 1, 0 }, { 1, 2 * MAKER_PAGE }, { 2, 0 }, { 2, MAKER_PAGE } };
    layout->group_count = 3;
    layout->parameter_count = 5;
    COH_ALLOC(3, &layout->groups);
    COH_ALLOC(5, &layout->parameters);
    layout->optimizers[layout->optimizer_count++] = coh_optimizer_find("adamw");
    for (int32_t i = 0; i < 3; i++) {
        layout->groups[i] = (coh_group_layout){ .work = W0 + i,
                                                .grad = G0 + i,
                                                .state = M0 + i,
                                                .work_part = -1,
                                                .work_copy = -1,
                                                .grad_part = -1,
                                                .dtype = halves(recipe, i) };
        coh_group_streams_make(&layout->groups[i], layout->optimizers[0], recipe->deferred);
    }
    for (int32_t i = 0; i < 5; i++) {
        uint64_t elements = halves(recipe, parameters[i].group) ? 2048 : 1024; /* of a page */
        coh_group_layout *group = &layout->groups[parameters[i].group];
        if (group->parameter_count++ == 0)
            group->parameter_begin = (uint32_t)i;
        layout->parameters[i] =
            (coh_parameter_layout){ .parameter = i,
                                    .group = parameters[i].group,
                                    .offset = parameters[i].offset,
                                    .elements = (i == 0 || i == 1 ? 2 : 1) * elements };
    }
}

static void make_residents(const maker_recipe *recipe, coh_layout *layout)
{
    uint32_t w0 = layout->objects[W0].chunk_begin, w2 = layout->objects[W2].chunk_begin;
    uint32_t m2 = layout->objects[M2].chunk_begin;
    const coh_resident disk[] = { { w0, COH_TIER_DEVICE, layout->pinned_bytes },
                                  { w2, COH_TIER_DEVICE, layout->pinned_bytes + 2 * MAKER_PAGE } };
    /* the host copy of w0 is stale: the device has a copy, too */
    const coh_resident host[] = { { w0, COH_TIER_DEVICE, layout->pinned_bytes + MAKER_PAGE },
                                  { w0, COH_TIER_HOST, 4 * MAKER_PAGE },
                                  { m2, COH_TIER_HOST, 0 } };
    layout->resident_count = (uint32_t)recipe->resident_count;
    COH_ALLOC(3, &layout->residents);
    if (recipe->host_tier)
        memcpy(layout->residents, host, layout->resident_count * sizeof(coh_resident));
    else
        memcpy(layout->residents, disk, layout->resident_count * sizeof(coh_resident));
}

static void make_layout(const maker_recipe *recipe, coh_layout *layout)
{
    make_objects(recipe, layout);
    make_groups(recipe, layout);
    make_residents(recipe, layout);
    layout->cells = CELLS;
    layout->partials = PARTIALS;
    layout->losses = LOSSES;
    layout->input_count = 1;
    COH_ALLOC(1, &layout->input_objects);
    layout->input_objects[0] = TOKENS;
    layout->microbatch_count = (uint32_t)recipe->microbatches;
    layout->mesh = coh_mesh_of_one();
    layout->wire = -1;
    layout->arena_bytes[COH_TIER_DEVICE] = recipe->device_pages * MAKER_PAGE;
    layout->arena_bytes[COH_TIER_HOST] = recipe->host_pages * MAKER_PAGE;
    uint8_t device = 1u << COH_TIER_DEVICE, host = 1u << COH_TIER_HOST, disk = 1u << COH_TIER_DISK;
    coh_access_matrix *access = &layout->access;
    access->reads[COH_LANE_COMPUTE] = access->writes[COH_LANE_COMPUTE] = device;
    access->reads[COH_LANE_H2D] = access->writes[COH_LANE_D2H] = host;
    access->writes[COH_LANE_H2D] = access->reads[COH_LANE_D2H] = device;
    access->reads[COH_LANE_READ] = access->writes[COH_LANE_WRITE] = disk;
    access->writes[COH_LANE_READ] = access->reads[COH_LANE_WRITE] =
        recipe->host_tier ? host : device;
}

/* ---- scripts ---- */

static script_instruction *say(maker_script *script, coh_opcode opcode)
{
    script_instruction *instruction = &script->instructions[script->count++];
    if (script->count > SCRIPT_MOST)
        abort();
    *instruction =
        (script_instruction){ .opcode = (uint8_t)opcode, .predicate_cell = COH_CELL_NONE };
    return instruction;
}

static void wish(script_instruction *instruction, int32_t object, uint32_t first, uint32_t count,
                 int access, coh_role role)
{
    if (instruction->wish_count == WISH_MOST)
        abort();
    instruction->wishes[instruction->wish_count++] =
        (maker_wish){ object, first, count, (uint8_t)access, (uint8_t)role };
}

static script_instruction *say_call(maker_script *script, coh_opcode opcode, int32_t op,
                                    int32_t microbatch, int64_t range)
{
    script_instruction *instruction = say(script, opcode);
    instruction->has_call = 1;
    instruction->call = (coh_instruction_call){ .operator_index = op, .microbatch = microbatch };
    if (range >= 0) {
        instruction->call.row_begin = range * 10;
        instruction->call.row_end = range * 10 + 10;
        instruction->call.row_count = 20;
    }
    return instruction;
}

enum { READS = COH_ACCESS_READ, WRITES = COH_ACCESS_WRITE, BOTH = COH_ACCESS_BOTH };

static void say_update(const maker_recipe *recipe, maker_script *script, int32_t group,
                       uint32_t chunk)
{
    script_instruction *instruction = say(script, COH_OP_UPDATE);
    instruction->predicate_cell = recipe->deferred ? COH_CELL_PENDING : COH_CELL_NONE;
    wish(instruction, W0 + group, chunk, 1, BOTH, COH_ROLE_WORK);
    wish(instruction, G0 + group, chunk, 1, READS, COH_ROLE_GRAD);
    wish(instruction, M0 + group, chunk, 1, BOTH, COH_ROLE_OPTIMIZER_STATE);
    if (!recipe->deferred)
        wish(instruction, PARTIALS, 0, 1, BOTH, COH_ROLE_PARTIALS);
    wish(instruction, CELLS, 0, 1, READS, COH_ROLE_CELLS);
}

static void say_layer1(maker_script *script, coh_opcode opcode, int32_t microbatch)
{
    script_instruction *instruction = say_call(script, opcode, 1, microbatch, -1);
    wish(instruction, A0, 0, 1, READS, COH_ROLE_INPUT);
    wish(instruction, W1, 0, 2, READS, COH_ROLE_PARAMETER);
    wish(instruction, A1, 0, 1, WRITES, COH_ROLE_OUTPUT);
    wish(instruction, S1, 0, 1, WRITES, COH_ROLE_SAVED);
}

static void say_forward(const maker_recipe *recipe, maker_script *script, int32_t microbatch,
                        int updates)
{
    for (uint32_t r = 0; r < 2; r++) {
        if (updates)
            say_update(recipe, script, 0, r);
        script_instruction *instruction = say_call(script, COH_OP_FORWARD, 0, microbatch, r);
        wish(instruction, TOKENS, 0, 1, READS, COH_ROLE_INPUT);
        wish(instruction, W0, r, 1, READS, COH_ROLE_PARAMETER);
        wish(instruction, A0, 0, 1, r == 0 ? WRITES : BOTH, COH_ROLE_OUTPUT);
    }
    for (uint32_t c = 0; c < 2 && updates; c++)
        say_update(recipe, script, 1, c);
    say_layer1(script, COH_OP_FORWARD, microbatch);
    if (updates)
        say_update(recipe, script, 2, 0);
    script_instruction *instruction = say_call(script, COH_OP_FORWARD, 2, microbatch, -1);
    wish(instruction, A1, 0, 1, READS, COH_ROLE_INPUT);
    wish(instruction, W2, 0, 1, READS, COH_ROLE_PARAMETER);
    wish(instruction, A2, 0, 2, WRITES, COH_ROLE_OUTPUT);
    wish(instruction, B2, 0, 1, WRITES, COH_ROLE_WORKSPACE);
    for (uint32_t r = 0; r < 2; r++) {
        instruction = say_call(script, COH_OP_FORWARD, 3, microbatch, r);
        wish(instruction, A2, 0, 2, READS, COH_ROLE_INPUT);
        wish(instruction, TOKENS, 0, 1, READS, COH_ROLE_INPUT);
        wish(instruction, W0, r, 1, READS, COH_ROLE_PARAMETER);
        wish(instruction, LOSSES, 0, 1, BOTH, COH_ROLE_OUTPUT);
        wish(instruction, S3, 0, 1, r == 0 ? WRITES : BOTH, COH_ROLE_SAVED);
    }
}

static void say_finish(const maker_recipe *recipe, maker_script *script, int32_t group,
                       uint32_t chunk)
{
    if (!recipe->deferred) {
        say_update(recipe, script, group, chunk);
        return;
    }
    script_instruction *instruction = say(script, COH_OP_NORM);
    wish(instruction, G0 + group, chunk, 1, READS, COH_ROLE_GRAD);
    wish(instruction, PARTIALS, 0, 1, BOTH, COH_ROLE_PARTIALS);
}

static void say_backward_top(const maker_recipe *recipe, maker_script *script, int32_t microbatch)
{
    int first = microbatch == 0 ? WRITES : BOTH;
    for (uint32_t r = 0; r < 2; r++) {
        script_instruction *instruction = say_call(script, COH_OP_BACKWARD, 3, microbatch, r);
        wish(instruction, A2, 0, 2, READS, COH_ROLE_INPUT);
        wish(instruction, S3, 0, 1, BOTH, COH_ROLE_SAVED);
        wish(instruction, W0, r, 1, READS, COH_ROLE_PARAMETER);
        wish(instruction, D2, 0, 2, r == 0 ? WRITES : BOTH, COH_ROLE_INPUT_GRAD);
        wish(instruction, G0, r, 1, first, COH_ROLE_PARAMETER_GRAD);
    }
    if (recipe->recompute)
        say_layer1(script, COH_OP_RECOMPUTE, microbatch);
    script_instruction *instruction = say_call(script, COH_OP_BACKWARD, 2, microbatch, -1);
    wish(instruction, A1, 0, 1, READS, COH_ROLE_INPUT);
    wish(instruction, W2, 0, 1, READS, COH_ROLE_PARAMETER);
    wish(instruction, D2, 0, 2, READS, COH_ROLE_OUTPUT_GRAD);
    wish(instruction, D1, 0, 1, WRITES, COH_ROLE_INPUT_GRAD);
    wish(instruction, G2, 0, 1, first, COH_ROLE_PARAMETER_GRAD);
}

static void say_backward(const maker_recipe *recipe, maker_script *script, int32_t microbatch)
{
    int first = microbatch == 0 ? WRITES : BOTH, final = microbatch == recipe->microbatches - 1;
    say_backward_top(recipe, script, microbatch);
    if (final)
        say_finish(recipe, script, 2, 0);
    script_instruction *instruction = say_call(script, COH_OP_BACKWARD, 1, microbatch, -1);
    wish(instruction, A0, 0, 1, READS, COH_ROLE_INPUT);
    wish(instruction, W1, 0, 2, READS, COH_ROLE_PARAMETER);
    wish(instruction, S1, 0, 1, READS, COH_ROLE_SAVED);
    wish(instruction, D1, 0, 1, READS, COH_ROLE_OUTPUT_GRAD);
    wish(instruction, D0, 0, 1, WRITES, COH_ROLE_INPUT_GRAD);
    wish(instruction, X1, 0, 1, WRITES, COH_ROLE_PARAMETER_GRAD);
    wish(instruction, G1, 1, 1, first, COH_ROLE_PARAMETER_GRAD);
    instruction = say_call(script, COH_OP_ADD, -1, microbatch, -1);
    wish(instruction, X1, 0, 1, READS, COH_ROLE_FROM);
    wish(instruction, G1, 0, 1, first, COH_ROLE_TO);
    for (uint32_t c = 0; c < 2 && final; c++)
        say_finish(recipe, script, 1, c);
    for (uint32_t r = 0; r < 2; r++) {
        instruction = say_call(script, COH_OP_BACKWARD, 0, microbatch, r);
        wish(instruction, TOKENS, 0, 1, READS, COH_ROLE_INPUT);
        wish(instruction, D0, 0, 1, READS, COH_ROLE_OUTPUT_GRAD);
        wish(instruction, G0, r, 1, BOTH, COH_ROLE_PARAMETER_GRAD);
        if (final)
            say_finish(recipe, script, 0, r);
    }
}

static void say_feed(maker_script *script)
{
    script_instruction *instruction = say(script, COH_OP_FEED);
    wish(instruction, CELLS, 0, 1, BOTH, COH_ROLE_CELLS);
    wish(instruction, TOKENS, 0, 1, WRITES, COH_ROLE_INPUT);
}

static void say_visits(const maker_recipe *recipe, maker_script *script, coh_opcode opcode)
{
    int edits = opcode == COH_OP_EDIT, writes = opcode == COH_OP_INIT || opcode == COH_OP_IMPORT;
    for (int32_t i = W0; i <= M2; i++) {
        int is_grad = shapes[i].stream == COH_STREAM_GRAD;
        int access = edits ? BOTH : writes ? WRITES : READS;
        if (edits && shapes[i].stream != COH_STREAM_WORK)
            continue;
        if ((is_grad && (!recipe->deferred || !writes)) || (i == M1 && recipe->halves))
            continue; /* states of bf16 are visited with their work */
        for (uint32_t c = 0; c < 2 && shapes[i].pages[c] > 0; c++) {
            script_instruction *instruction = say(script, opcode);
            wish(instruction, i, c, 1, access,
                 shapes[i].stream == COH_STREAM_WORK ? COH_ROLE_WORK
                 : is_grad                           ? COH_ROLE_GRAD
                                                     : COH_ROLE_OPTIMIZER_STATE);
            if (i == W1 && recipe->halves)
                wish(instruction, M1, c, 1, access, COH_ROLE_OPTIMIZER_STATE);
        }
    }
}

static void say_body(const maker_recipe *recipe, maker_script *script)
{
    say_feed(script);
    for (int32_t m = 0; m < recipe->microbatches; m++) {
        say_forward(recipe, script, m, recipe->deferred && m == 0);
        say_backward(recipe, script, m);
    }
    script_instruction *instruction = say(script, COH_OP_CLIP);
    wish(instruction, PARTIALS, 0, 1, READS, COH_ROLE_PARTIALS);
    wish(instruction, LOSSES, 0, 1, READS, COH_ROLE_LOSS);
    wish(instruction, CELLS, 0, 1, BOTH, COH_ROLE_CELLS);
}

static void say_drain(const maker_recipe *recipe, maker_script *script)
{
    for (int32_t group = 0; group < 3; group++)
        for (uint32_t c = 0; c < 2 && shapes[W0 + group].pages[c] > 0; c++)
            say_update(recipe, script, group, c);
    wish(say(script, COH_OP_SETTLE), CELLS, 0, 1, BOTH, COH_ROLE_CELLS);
}

static void say_all(const maker_recipe *recipe, coh_program_kind kind, maker_script *script)
{
    switch (kind) {
    case COH_PROGRAM_INIT:
        say_visits(recipe, script, COH_OP_INIT);
        break;
    case COH_PROGRAM_BODY:
        say_body(recipe, script);
        break;
    case COH_PROGRAM_DRAIN:
        if (recipe->deferred)
            say_drain(recipe, script);
        break;
    case COH_PROGRAM_EVALUATE:
        say_feed(script);
        say_forward(recipe, script, 0, 0);
        break;
    case COH_PROGRAM_SAVE:
        say_visits(recipe, script, COH_OP_SAVE);
        break;
    case COH_PROGRAM_HASH:
        say_visits(recipe, script, COH_OP_HASH);
        break;
    case COH_PROGRAM_IMPORT:
        say_visits(recipe, script, COH_OP_IMPORT);
        break;
    case COH_PROGRAM_EDIT:
        say_visits(recipe, script, COH_OP_EDIT);
        break;
    case COH_PROGRAM_KIND_COUNT:
        break;
    }
}

/* ---- waits ---- */

static int all_ordered(const coh_program *program, uint32_t run_count, const hb_conflict *conflicts,
                       size_t count)
{
    hb_order order;
    int good = hb_order_build(program, run_count, &order);
    if (!good)
        return 0;
    for (size_t i = 0; i < count && good; i++)
        good = hb_is_before(&order, conflicts[i].a, conflicts[i].b);
    hb_order_free(&order);
    return good;
}

/* A wait for each conflict of an instruction of the last run; for each lane and run only the latest
 * instruction. */
static void all_waits(coh_program *program, uint32_t run_count, const hb_conflict *conflicts,
                      size_t count)
{
    uint32_t instructions = program->instruction_count, last = (run_count - 1) * instructions;
    coh_free(program->waits);
    COH_ALLOC((size_t)instructions * 2 * COH_LANE_COUNT, &program->waits);
    program->wait_count = 0;
    for (uint32_t i = 0; i < instructions; i++) {
        uint32_t latest[2][COH_LANE_COUNT] = { { 0 } };
        for (size_t c = 0; c < count; c++) {
            if (conflicts[c].b != last + i || conflicts[c].a + instructions < last)
                continue;
            const coh_instruction *a = &program->instructions[conflicts[c].a % instructions];
            uint32_t *slot = &latest[conflicts[c].a < last][a->lane];
            *slot = a->ordinal > *slot ? a->ordinal : *slot;
        }
        program->instructions[i].wait_begin = program->wait_count;
        for (int carry = 0; carry < 2; carry++)
            for (int lane = 0; lane < COH_LANE_COUNT; lane++)
                if (latest[carry][lane] > 0)
                    program->waits[program->wait_count++] =
                        (coh_wait){ latest[carry][lane], (uint8_t)lane, (uint8_t)carry };
        program->instructions[i].wait_count =
            program->wait_count - program->instructions[i].wait_begin;
    }
}

int make_all_waits(coh_program *program)
{
    uint32_t run_count = program->kind == COH_PROGRAM_BODY ? 3 : 1;
    hb_conflict *conflicts = NULL;
    size_t count = hb_conflicts(program, run_count, &conflicts);
    all_waits(program, run_count, conflicts, count);
    int good = all_ordered(program, run_count, conflicts, count);
    free(conflicts);
    return good;
}

void make_waits(coh_program *program)
{
    uint32_t run_count = program->kind == COH_PROGRAM_BODY ? 3 : 1;
    hb_conflict *conflicts = NULL;
    size_t count = hb_conflicts(program, run_count, &conflicts);
    all_waits(program, run_count, conflicts, count);
    if (!all_ordered(program, run_count, conflicts, count))
        abort();
    for (uint32_t i = 0; i < program->instruction_count; i++) {
        coh_instruction *instruction = &program->instructions[i];
        for (uint32_t w = instruction->wait_count; w-- > 0;) {
            coh_wait *waits = &program->waits[instruction->wait_begin], kept = waits[w];
            waits[w] = waits[--instruction->wait_count];
            if (all_ordered(program, run_count, conflicts, count))
                continue;
            waits[instruction->wait_count++] = waits[w];
            waits[w] = kept;
        }
    }
    free(conflicts);
}

int make_program(const maker_recipe *recipe, coh_program_kind kind, made_program *out)
{
    maker_script *script = calloc(1, sizeof(*script));
    memset(out, 0, sizeof(*out));
    say_all(recipe, kind, script);
    int exists = script->count > 0;
    if (exists) {
        make_layout(recipe, &out->layout);
        out->program.kind = kind;
        stream_script(recipe, script, out);
        make_waits(&out->program);
    }
    free(script);
    return exists;
}

void made_program_fini(made_program *made)
{
    coh_program_fini(&made->program);
    coh_layout_fini(&made->layout);
}
