#include "tests/engine/made_stream.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

#define CHUNK_BYTES ((uint64_t)STREAM_ELEMENTS * sizeof(float))

coh_status (*made_stream_hook)(const coh_call *call);

/* ---- the kind, and its oracle ---- */

static coh_status stir_infer(const void *attributes, const coh_shape *inputs,
                             coh_op_facts *out_facts)
{
    (void)attributes;
    out_facts->output[0] = inputs[0];
    out_facts->state[0] = inputs[0];
    return COH_OK;
}

static coh_status stir_forward(const coh_call *call)
{
    const float *x = call->input[0].data;
    float *state = call->state[0].data, *y = call->output[0].data;
    if (made_stream_hook != NULL) {
        coh_status status = made_stream_hook(call);
        if (status != COH_OK)
            return status;
    }
    for (int i = 0; i < STREAM_ELEMENTS; i++) {
        state[i] = state[i] / 2 + x[i];
        y[i] = x[i] + state[i] / 3;
    }
    return COH_OK;
}

static const coh_op_kind stir_kind = {
    .struct_bytes = sizeof(coh_op_kind),
    .abi_version = COH_KIND_ABI,
    .name = "test.stir",
    .revision = 1,
    .input_count = 1,
    .output_count = 1,
    .state_count = 1,
    .infer = stir_infer,
    .devices = { [COH_DEVICE_HOST] = { .forward = stir_forward } },
};

void stream_oracle_step(stream_oracle *oracle, const float *input)
{
    for (int e = 0; e < STREAM_ELEMENTS; e++) {
        float x = input[e];
        for (int i = 0; i < STREAM_COUNT; i++) {
            oracle->state[i][e] = oracle->state[i][e] / 2 + x;
            x = x + oracle->state[i][e] / 3;
        }
        oracle->output[e] = x;
    }
}

/* ---- objects: cells, input, output, activations 0.., states 0.. ---- */

enum {
    OBJECT_CELLS,
    OBJECT_INPUT,
    OBJECT_OUTPUT,
    OBJECT_ACTIVATION, /* outputs of all operators except the last */
    OBJECT_STATE = OBJECT_ACTIVATION + STREAM_COUNT - 1,
    OBJECT_COUNT = OBJECT_STATE + STREAM_COUNT
};

static void must(int condition)
{
    if (!condition)
        abort();
}

static uint64_t slot_offset(int slot)
{
    return (uint64_t)COH_PAGE_BYTES + 2 * CHUNK_BYTES + (uint64_t)slot * CHUNK_BYTES;
}

static void set_object(made_stream *made, int index, coh_stream stream, int owner, uint64_t bytes)
{
    made->objects[index] = (coh_object){ .bytes = bytes,
                                         .chunk_begin = (uint32_t)index,
                                         .chunk_count = 1,
                                         .owner = owner,
                                         .stream = (uint8_t)stream };
    made->chunks[index] = (coh_chunk){ .object = index, .bytes = bytes };
}

static void pin(made_stream *made, int index, uint64_t offset)
{
    made->objects[index].pinned = 1;
    made->objects[index].survives = 1;
    made->objects[index].pinned_offset = offset;
}

static void make_layout(made_stream *made, made_far far)
{
    coh_layout *layout = &made->plan.layout;
    set_object(made, OBJECT_CELLS, COH_STREAM_CELLS, 0, COH_PAGE_BYTES);
    pin(made, OBJECT_CELLS, 0);
    set_object(made, OBJECT_INPUT, COH_STREAM_INPUT, 0, CHUNK_BYTES);
    pin(made, OBJECT_INPUT, COH_PAGE_BYTES);
    set_object(made, OBJECT_OUTPUT, COH_STREAM_OUTPUT, STREAM_COUNT, CHUNK_BYTES);
    pin(made, OBJECT_OUTPUT, COH_PAGE_BYTES + CHUNK_BYTES);
    for (int i = 0; i + 1 < STREAM_COUNT; i++)
        set_object(made, OBJECT_ACTIVATION + i, COH_STREAM_ACTIVATION, i + 1, CHUNK_BYTES);
    for (int i = 0; i < STREAM_COUNT; i++) {
        set_object(made, OBJECT_STATE + i, COH_STREAM_KEPT, i, CHUNK_BYTES);
        made->objects[OBJECT_STATE + i].survives = 1;
        made->chunks[OBJECT_STATE + i].file_offset = (uint64_t)i * CHUNK_BYTES;
        made->residents[i] = (coh_resident){ .chunk = (uint32_t)(OBJECT_STATE + i),
                                             .tier = COH_TIER_HOST,
                                             .offset = (uint64_t)i * CHUNK_BYTES };
    }
    made->input_objects[0] = OBJECT_INPUT;
    *layout = (coh_layout){ .objects = made->objects,
                            .object_count = OBJECT_COUNT,
                            .chunks = made->chunks,
                            .chunk_count = OBJECT_COUNT,
                            .residents = made->residents,
                            .resident_count = far == MADE_FAR_HOST ? STREAM_COUNT : 0,
                            .cells = OBJECT_CELLS,
                            .partials = -1,
                            .losses = -1,
                            .input_objects = made->input_objects,
                            .input_count = 1,
                            .microbatch_count = 1,
                            .mesh = coh_mesh_of_one(),
                            .wire = -1,
                            .pinned_bytes = COH_PAGE_BYTES + 2 * CHUNK_BYTES };
    layout->arena_bytes[COH_TIER_DEVICE] = slot_offset(4);
    unsigned device = 1u << COH_TIER_DEVICE, host = 1u << COH_TIER_HOST, disk = 1u << COH_TIER_DISK;
    coh_access_matrix *access = &layout->access;
    access->reads[COH_LANE_COMPUTE] = access->writes[COH_LANE_COMPUTE] = (uint8_t)device;
    if (far == MADE_FAR_DISK) {
        layout->file_bytes = STREAM_COUNT * CHUNK_BYTES;
        access->reads[COH_LANE_READ] = access->writes[COH_LANE_WRITE] = (uint8_t)disk;
        access->writes[COH_LANE_READ] = access->reads[COH_LANE_WRITE] = (uint8_t)device;
    } else {
        layout->arena_bytes[COH_TIER_HOST] = STREAM_COUNT * CHUNK_BYTES;
        access->reads[COH_LANE_H2D] = access->writes[COH_LANE_D2H] = (uint8_t)host;
        access->writes[COH_LANE_H2D] = access->reads[COH_LANE_D2H] = (uint8_t)device;
    }
}

/* ---- writing a program, instruction by instruction ---- */

typedef struct pen {
    made_stream *made;
    made_far far;
    coh_program *program;
    coh_instruction *instruction;
    int32_t version[OBJECT_COUNT];
    uint32_t pinned_extent[3], state_extent[STREAM_COUNT], far_extent[STREAM_COUNT];
    uint32_t activation_extent[STREAM_COUNT];
} pen;

static uint32_t new_extent(pen *p, int object, coh_tier tier, uint64_t offset, int stays)
{
    coh_extent *extent = &p->program->extents[p->program->extent_count];
    *extent = (coh_extent){ .offset = offset,
                            .bytes = p->made->objects[object].bytes,
                            .chunk = (uint32_t)object,
                            .tier = (uint8_t)tier,
                            .at_begin = (uint8_t)stays,
                            .at_end = (uint8_t)stays };
    return p->program->extent_count++;
}

static void new_instruction(pen *p, coh_opcode opcode, coh_lane lane, int position,
                            int before_after)
{
    must(p->program->instruction_count < STREAM_INSTRUCTIONS_MOST);
    p->instruction = &p->program->instructions[p->program->instruction_count++];
    *p->instruction = (coh_instruction){ .opcode = (uint8_t)opcode,
                                         .lane = (uint8_t)lane,
                                         .before_after = (uint8_t)before_after,
                                         .predicate_cell = COH_CELL_NONE,
                                         .ordinal = ++p->program->lane_length[lane],
                                         .position = (uint32_t)position,
                                         .operand_begin = p->program->operand_count,
                                         .wait_begin = p->program->wait_count,
                                         .call = -1 };
}

static void add_wait(pen *p, coh_lane lane, int ordinal, int carry)
{
    p->program->waits[p->program->wait_count++] =
        (coh_wait){ .ordinal = (uint32_t)ordinal, .lane = (uint8_t)lane, .carry = (uint8_t)carry };
    p->instruction->wait_count++;
}

static void add_operand(pen *p, int object, uint32_t extent, int access, coh_role role)
{
    coh_program *program = p->program;
    int moves = p->instruction->lane != COH_LANE_COMPUTE;
    int is_file = extent == COH_EXTENT_FILE;
    program->operands[program->operand_count++] = (coh_operand){
        .object = object,
        .tier = (uint8_t)(is_file ? COH_TIER_DISK : program->extents[extent].tier),
        .access = (uint8_t)access,
        .role = (uint8_t)role,
        .touch_begin = program->touch_count,
        .touch_count = 1,
        .bytes = p->made->objects[object].bytes,
        .offset = is_file ? p->made->chunks[object].file_offset : program->extents[extent].offset,
    };
    program->touches[program->touch_count++] =
        (coh_touch){ .chunk = (uint32_t)object, .extent = extent, .version = p->version[object] };
    if (!is_file)
        program->extents[extent].use_count++;
    if (!moves && (access & COH_ACCESS_WRITE))
        p->version[object]++;
    p->instruction->operand_count++;
    p->instruction->bytes = p->made->objects[object].bytes;
}

static void add_binding(pen *p, coh_role role)
{
    coh_instruction_call *call = &p->program->calls[p->instruction->call];
    p->program->bindings[p->program->binding_count++] = (coh_binding){
        .role = (uint8_t)role,
        .operand = (uint16_t)(p->instruction->operand_count - 1),
        .shape = { .dtype = COH_DTYPE_F32, .rank = 1, .dim = { STREAM_ELEMENTS } },
    };
    call->binding_count++;
}

static coh_lane in_lane(const pen *p)
{
    return p->far == MADE_FAR_DISK ? COH_LANE_READ : COH_LANE_H2D;
}

static coh_lane out_lane(const pen *p)
{
    return p->far == MADE_FAR_DISK ? COH_LANE_WRITE : COH_LANE_D2H;
}

/* State i enters its slot once the slot's previous state has left. */
static void instruction_in(pen *p, int i, int position)
{
    int from_disk = p->far == MADE_FAR_DISK;
    new_instruction(p, from_disk ? COH_OP_READ : COH_OP_LOAD, in_lane(p), position, 0);
    p->state_extent[i] =
        new_extent(p, OBJECT_STATE + i, COH_TIER_DEVICE, slot_offset(2 + i % 2), 0);
    add_operand(p, OBJECT_STATE + i, from_disk ? COH_EXTENT_FILE : p->far_extent[i],
                COH_ACCESS_READ, COH_ROLE_FROM);
    add_operand(p, OBJECT_STATE + i, p->state_extent[i], COH_ACCESS_WRITE, COH_ROLE_TO);
    if (i >= 2)
        add_wait(p, out_lane(p), i - 1, 0); /* output of state i - 2 */
    else
        add_wait(p, out_lane(p), STREAM_COUNT - 1 + i, 1);
}

static void instruction_out(pen *p, int i, int position, int after_ordinal)
{
    int to_disk = p->far == MADE_FAR_DISK;
    new_instruction(p, to_disk ? COH_OP_WRITE : COH_OP_STORE, out_lane(p), position, 2);
    add_operand(p, OBJECT_STATE + i, p->state_extent[i], COH_ACCESS_READ, COH_ROLE_FROM);
    add_operand(p, OBJECT_STATE + i, to_disk ? COH_EXTENT_FILE : p->far_extent[i], COH_ACCESS_WRITE,
                COH_ROLE_TO);
    add_wait(p, COH_LANE_COMPUTE, after_ordinal, 0);
}

static void instruction_stir(pen *p, int i, int position)
{
    new_instruction(p, COH_OP_FORWARD, COH_LANE_COMPUTE, position, 1);
    p->instruction->call = (int32_t)p->program->call_count;
    p->program->calls[p->program->call_count++] =
        (coh_instruction_call){ .operator_index = i, .binding_begin = p->program->binding_count };
    if (i == 0)
        add_operand(p, OBJECT_INPUT, p->pinned_extent[OBJECT_INPUT], COH_ACCESS_READ,
                    COH_ROLE_INPUT);
    else
        add_operand(p, OBJECT_ACTIVATION + i - 1, p->activation_extent[i - 1], COH_ACCESS_READ,
                    COH_ROLE_INPUT);
    add_binding(p, COH_ROLE_INPUT);
    if (i == STREAM_COUNT - 1) {
        add_operand(p, OBJECT_OUTPUT, p->pinned_extent[OBJECT_OUTPUT], COH_ACCESS_WRITE,
                    COH_ROLE_OUTPUT);
    } else {
        p->activation_extent[i] =
            new_extent(p, OBJECT_ACTIVATION + i, COH_TIER_DEVICE, slot_offset(i % 2), 0);
        add_operand(p, OBJECT_ACTIVATION + i, p->activation_extent[i], COH_ACCESS_WRITE,
                    COH_ROLE_OUTPUT);
    }
    add_binding(p, COH_ROLE_OUTPUT);
    add_operand(p, OBJECT_STATE + i, p->state_extent[i], COH_ACCESS_BOTH, COH_ROLE_STATE);
    add_binding(p, COH_ROLE_STATE);
    add_wait(p, in_lane(p), i + 1, 0);
}

static void begin_program(pen *p, made_stream *made, made_far far, coh_program_kind kind, int table)
{
    made_tables *t = &made->tables[table];
    *p = (pen){ .made = made, .far = far, .program = &made->plan.programs[kind] };
    *p->program = (coh_program){ .kind = kind,
                                 .extents = t->extents,
                                 .instructions = t->instructions,
                                 .operands = t->operands,
                                 .touches = t->touches,
                                 .waits = t->waits,
                                 .calls = t->calls,
                                 .bindings = t->bindings };
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        p->program->lane_depth[lane] = 1;
    p->program->lane_depth[COH_LANE_READ] = p->program->lane_depth[COH_LANE_WRITE] = 3;
    for (int i = 0; i < 3; i++)
        p->pinned_extent[i] = new_extent(p, i, COH_TIER_DEVICE, made->objects[i].pinned_offset, 1);
    p->program->peak_bytes[COH_TIER_DEVICE] = made->plan.layout.arena_bytes[COH_TIER_DEVICE];
    p->program->peak_bytes[COH_TIER_HOST] = made->plan.layout.arena_bytes[COH_TIER_HOST];
}

static void make_body(made_stream *made, made_far far)
{
    pen p;
    begin_program(&p, made, far, COH_PROGRAM_BODY, 0);
    for (int i = 0; far == MADE_FAR_HOST && i < STREAM_COUNT; i++)
        p.far_extent[i] =
            new_extent(&p, OBJECT_STATE + i, COH_TIER_HOST, (uint64_t)i * CHUNK_BYTES, 1);
    new_instruction(&p, COH_OP_FEED, COH_LANE_COMPUTE, 0, 1);
    add_operand(&p, OBJECT_CELLS, p.pinned_extent[OBJECT_CELLS], COH_ACCESS_BOTH, COH_ROLE_CELLS);
    add_operand(&p, OBJECT_INPUT, p.pinned_extent[OBJECT_INPUT], COH_ACCESS_WRITE, COH_ROLE_INPUT);
    for (int i = 0; i < STREAM_COUNT; i++) {
        instruction_in(&p, i, i + 1);
        instruction_stir(&p, i, i + 1);
        instruction_out(&p, i, i + 1, i + 2);
    }
}

/* Zeroes each state in its slot and moves it to the far tier. */
static void make_init(made_stream *made, made_far far)
{
    pen p;
    begin_program(&p, made, far, COH_PROGRAM_INIT, 1);
    for (int i = 0; i < STREAM_COUNT; i++) {
        new_instruction(&p, COH_OP_INIT, COH_LANE_COMPUTE, i, 1);
        p.state_extent[i] =
            new_extent(&p, OBJECT_STATE + i, COH_TIER_DEVICE, slot_offset(2 + i % 2), 0);
        add_operand(&p, OBJECT_STATE + i, p.state_extent[i], COH_ACCESS_WRITE, COH_ROLE_STATE);
        if (i >= 2)
            add_wait(&p, out_lane(&p), i - 1, 0);
        if (far == MADE_FAR_HOST) { /* created in the program: absent at its begin */
            p.far_extent[i] =
                new_extent(&p, OBJECT_STATE + i, COH_TIER_HOST, (uint64_t)i * CHUNK_BYTES, 0);
            p.program->extents[p.far_extent[i]].at_end = 1;
        }
        instruction_out(&p, i, i, i + 1);
    }
}

void made_stream_init(made_stream *made, made_far far)
{
    memset(made, 0, sizeof(*made));
    made_stream_hook = NULL;
    const coh_shape shape = { .dtype = COH_DTYPE_F32, .rank = 1, .dim = { STREAM_ELEMENTS } };
    coh_tensor tensor;
    must(coh_graph_create(&made->graph) == COH_OK);
    must(coh_graph_input(made->graph, "x", &shape, &tensor) == COH_OK);
    for (int i = 0; i < STREAM_COUNT; i++) {
        char name[] = "stir0";
        name[4] = (char)('0' + i);
        const coh_op_args args = { .name = name, .inputs = &tensor, .block = -1 };
        coh_tensor output;
        must(coh_graph_op(made->graph, &stir_kind, &args, &output, NULL) == COH_OK);
        tensor = output;
    }
    must(coh_graph_output(made->graph, tensor) == COH_OK);
    made->plan.graph = made->graph;
    made->plan.options.mode = COH_PLAN_INFER;
    made->output_object = OBJECT_OUTPUT;
    make_layout(made, far);
    make_body(made, far);
    make_init(made, far);
}

void made_stream_fini(made_stream *made)
{
    coh_graph_destroy(made->graph);
    made->graph = NULL;
}

coh_instruction *made_stream_instruction(made_stream *made, coh_opcode opcode, int skip)
{
    coh_program *program = &made->plan.programs[COH_PROGRAM_BODY];
    for (uint32_t i = 0; i < program->instruction_count; i++)
        if (program->instructions[i].opcode == opcode && skip-- == 0)
            return &program->instructions[i];
    abort();
}
