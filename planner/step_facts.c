/* Measures a training step without building it: lowers the body with no block recomputed and with
 * all, and sums times and bytes by block. The idea: bytes that live where forward turns to
 * backward are all that a link can be needed for. All micro-batches between the first and the last
 * are alike, and one is lowered. Interface: step_facts.h. */
#include "planner/step_facts.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "planner/lower.h"

typedef coh_step_unit unit;

/* Lowered micro-batches of a long step: the first, one in between, the last. */
enum { FEW = 3 };

/* ---- what a step reads, keeps and computes ---- */

typedef struct scene {
    const coh_graph *graph;
    const coh_plan_options *options;
    const coh_pricer *pricer;
    coh_layout layout;
    coh_object_map map;
    unit *units; /* blocks, then one of each group, then one of all other activations */
    int32_t block_count, unit_count;
    int32_t *unit_of_group;
    uint8_t *is_read_back; /* by object: of weights, in backward */
    int32_t *writer;       /* by object: the block that wrote it before the turn, -1: none */
    /* by object: 1: lives at the turn if nothing is recomputed; 2 + the block that reads it again:
     * if everything is */
    int32_t *is_live, *is_live_again;
    double compute_ns[COH_PHASE_MASKS];
    double passes; /* turns of a step: 1, or one per micro-batch */
    int light;
    int32_t microbatches; /* lowered */
    double inner_times;   /* how many micro-batches are as the second one */
} scene;

static void scene_fini(scene *f)
{
    coh_free(f->units);
    coh_free(f->unit_of_group);
    coh_free(f->is_read_back);
    coh_free(f->writer);
    coh_free(f->is_live);
    coh_free(f->is_live_again);
    coh_object_map_fini(&f->map);
    coh_layout_fini(&f->layout);
}

static int32_t block_of(const scene *f, const coh_lowered *lowered, size_t index)
{
    const int32_t op = coh_lowered_operator(lowered, (uint32_t)index);
    return op >= 0 && f->graph->ops[op].block >= 0 ? f->graph->ops[op].blocks_before : -1;
}

/* Returns 1 for an instruction that decisions may replace by several with a part of its work. */
static int may_be_split(const scene *f, const coh_lowered *lowered, size_t index)
{
    const int32_t op = coh_lowered_operator(lowered, (uint32_t)index);
    return op < 0 || f->graph->ops[op].kind.column_slices ||
           f->graph->ops[op].kind.row_split_parameters != 0;
}

/* The least time of an instruction, whole or in parts, on a lane. */
static double least_ns(const scene *f, const coh_lowered *lowered, size_t index, coh_lane lane)
{
    const coh_lowered_instruction *from = &lowered->instructions[index];
    coh_operand first = { .object = lowered->operands[from->operand_begin].object };
    const coh_program program = { .operands = &first,
                                  .operand_count = 1,
                                  .calls = lowered->calls,
                                  .call_count = (uint32_t)lowered->call_count,
                                  .bindings = lowered->bindings,
                                  .binding_count = (uint32_t)lowered->binding_count };
    coh_instruction part = { .opcode = (uint8_t)from->opcode,
                             .lane = (uint8_t)lane,
                             .operand_count = from->operand_count,
                             .call = from->call,
                             .bytes = from->bytes,
                             .flops = from->flops };
    if (from->opcode == COH_OP_BACKWARD) /* as if it had its cache */
        part.flops -=
            f->graph->ops[coh_lowered_operator(lowered, (uint32_t)index)].facts.cache_saves_flops;
    const double flops = part.flops;
    double least =
        (double)coh_whole_ns(coh_price_instruction(f->pricer, &f->layout, &program, &part).p50);
    const int is_split = may_be_split(f, lowered, index);
    for (double parts = 2; is_split && (double)from->bytes / parts >= COH_CHUNK_LEAST; parts *= 2) {
        part.bytes = (uint64_t)((double)from->bytes / parts);
        part.flops = flops / parts;
        const double ns =
            parts * (coh_price_instruction(f->pricer, &f->layout, &program, &part).p50 - 0.5);
        least = ns < least ? ns : least;
    }
    return least > 0 ? least : 0;
}

/* Returns how often an instruction runs in the step. */
static double times_of(const scene *f, const coh_lowered *lowered, size_t index)
{
    const int32_t call = lowered->instructions[index].call;
    return call >= 0 && lowered->calls[call].microbatch == 1 ? f->inner_times : 1;
}

static size_t find_turn(const coh_lowered *lowered)
{
    size_t turn = 0;
    while (turn < lowered->instruction_count &&
           lowered->instructions[turn].opcode != COH_OP_BACKWARD &&
           lowered->instructions[turn].opcode != COH_OP_RECOMPUTE)
        turn++;
    return turn;
}

/* Marks the objects that live at the turn: read later, before anything writes them. */
static void mark_live(const scene *f, const coh_lowered *lowered, size_t turn, int32_t *is_live)
{
    for (size_t i = lowered->instruction_count; i-- > turn;) {
        const coh_lowered_instruction *instruction = &lowered->instructions[i];
        const coh_lowered_operand *operands = &lowered->operands[instruction->operand_begin];
        for (uint32_t k = 0; k < instruction->operand_count; k++)
            is_live[operands[k].object] = 0;
        for (uint32_t k = 0; k < instruction->operand_count; k++)
            if (operands[k].access & COH_ACCESS_READ)
                is_live[operands[k].object] =
                    instruction->opcode == COH_OP_RECOMPUTE ? 2 + block_of(f, lowered, i) : 1;
    }
}

/* Returns the backward that an instruction after the turn belongs to. Those without a call, norms
 * and CLIP, follow the last contribution. */
static int back_of(const scene *f, const coh_lowered *lowered, size_t index)
{
    const int32_t call = lowered->instructions[index].call;
    if (f->passes == 1 || call < 0)
        return COH_BACK;
    return lowered->calls[call].microbatch == f->microbatches - 1 ? COH_BACK : COH_EARLIER;
}

/* Adds the update of a group to its unit, for either lane. */
static void add_update(scene *f, const coh_lowered *lowered, size_t index)
{
    const int32_t object = lowered->operands[lowered->instructions[index].operand_begin].object;
    unit *u = &f->units[f->unit_of_group[f->layout.objects[object].owner]];
    u->update_ns += least_ns(f, lowered, index, COH_LANE_COMPUTE);
    if (f->options->host_memory_bytes > 0)
        u->host_update_ns += least_ns(f, lowered, index, COH_LANE_HOST);
}

/* Measures a body that recomputes no block. */
static void measure(scene *f, const coh_lowered *lowered)
{
    const size_t turn = find_turn(lowered);
    for (size_t i = 0; i < lowered->instruction_count; i++) {
        const coh_lowered_instruction *instruction = &lowered->instructions[i];
        const int is_ahead = i < turn;
        const int is_between = !is_ahead && f->passes > 1 && instruction->opcode == COH_OP_FORWARD;
        for (uint32_t k = 0; k < instruction->operand_count; k++) {
            const coh_lowered_operand *operand = &lowered->operands[instruction->operand_begin + k];
            if (is_ahead && (operand->access & COH_ACCESS_WRITE))
                f->writer[operand->object] = block_of(f, lowered, i);
            if (!is_ahead && !is_between && instruction->opcode != COH_OP_UPDATE)
                f->is_read_back[operand->object] |= (operand->access & COH_ACCESS_READ) != 0;
        }
        if (instruction->comm > 0)
            continue;
        if (instruction->opcode == COH_OP_RECOMPUTE) {
            f->units[block_of(f, lowered, i)].light_ns +=
                times_of(f, lowered, i) * least_ns(f, lowered, i, COH_LANE_COMPUTE);
            continue;
        }
        if (instruction->opcode == COH_OP_UPDATE)
            add_update(f, lowered, i);
        else if (instruction->opcode != COH_OP_NORM || coh_plan_defers(f->options))
            f->compute_ns[is_ahead     ? COH_AHEAD
                          : is_between ? COH_BETWEEN
                                       : back_of(f, lowered, i)] +=
                times_of(f, lowered, i) * least_ns(f, lowered, i, COH_LANE_COMPUTE);
    }
    mark_live(f, lowered, turn, f->is_live);
}

/* Measures a body that recomputes every block: what recomputation adds. */
static void measure_again(scene *f, const coh_lowered *lowered)
{
    for (size_t i = 0; i < lowered->instruction_count; i++)
        if (lowered->instructions[i].opcode == COH_OP_RECOMPUTE && block_of(f, lowered, i) >= 0)
            f->units[block_of(f, lowered, i)].recompute_ns +=
                times_of(f, lowered, i) * least_ns(f, lowered, i, COH_LANE_COMPUTE);
    mark_live(f, lowered, find_turn(lowered), f->is_live_again);
}

static coh_status lower_and_measure(scene *f, int recomputes,
                                    void (*measure_body)(scene *, const coh_lowered *))
{
    coh_lowered lowered = { 0 };
    const coh_block_set blocks = coh_block_set_first(recomputes ? f->block_count : 0);
    coh_plan_options few = coh_alone(f->options);
    few.microbatch_count = f->microbatches;
    COH_TRY(coh_lower(f->graph, &few, &f->layout, &f->map, &blocks, 0, COH_PROGRAM_BODY, &lowered));
    measure_body(f, &lowered);
    coh_lowered_fini(&lowered);
    return COH_OK;
}

/* ---- units ---- */

/* Gives each group the unit of the first operator that uses it: its block, or its own. */
static void assign_groups(scene *f)
{
    for (int32_t group = 0; group < (int32_t)f->layout.group_count; group++)
        f->unit_of_group[group] = f->block_count + group;
    for (size_t i = f->graph->op_count; i-- > 0;)
        for (int32_t port = 0; port < f->graph->ops[i].kind.parameter_count; port++)
            if (f->graph->ops[i].parameter[port] >= 0) {
                const int32_t group = f->map.group_of_parameter[f->graph->ops[i].parameter[port]];
                f->unit_of_group[group] = f->graph->ops[i].block >= 0
                                              ? f->graph->ops[i].blocks_before
                                              : f->block_count + group;
            }
}

static double bytes_of(const scene *f, int32_t object)
{
    return object < 0 || f->layout.objects[object].pinned ? 0
                                                          : (double)f->layout.objects[object].bytes;
}

static void add_groups(scene *f)
{
    for (uint32_t i = 0; i < f->layout.group_count; i++) {
        const coh_group_layout *group = &f->layout.groups[i];
        unit *u = &f->units[f->unit_of_group[i]];
        const int32_t work = coh_group_kept_work(group);
        const double bytes = bytes_of(f, work);
        const double back = f->is_read_back[work] ? bytes : 0;
        if (group->grad < 0) {
            u->frozen += bytes;
            u->frozen_back += back;
            continue;
        }
        u->work += bytes;
        u->work_back += back;
        u->state += bytes_of(f, group->state);
        u->grad += bytes_of(f, coh_group_summed_grad(group));
    }
}

/* An activation that lives at the turn only if its block is kept, or only if the block that reads
 * it again is recomputed, belongs to that block; one that lives in either case to the last unit. */
static void add_activations(scene *f)
{
    unit *others = &f->units[f->unit_count - 1];
    for (uint32_t i = 0; i < f->layout.object_count; i++) {
        const coh_object *object = &f->layout.objects[i];
        const double times = object->microbatch == 1 ? f->inner_times : 1;
        const double bytes = times * bytes_of(f, (int32_t)i);
        if (object->survives || object->stream < COH_STREAM_ACTIVATION)
            continue;
        if (f->is_live[i] && f->is_live_again[i])
            others->kept += bytes;
        else if (f->is_live[i] && f->writer[i] >= 0)
            f->units[f->writer[i]].kept += bytes;
        else if (f->is_live_again[i] >= 2)
            f->units[f->is_live_again[i] - 2].recomputed += bytes;
    }
}

static int compare_units(const void *left, const void *right)
{
    return memcmp(left, right, sizeof(unit));
}

static double size_of(const unit *u)
{
    return u->copies * (u->frozen + u->work + u->state + u->grad + u->kept);
}

static int compare_sizes(const void *left, const void *right)
{
    const double a = size_of(left), b = size_of(right);
    return a != b ? (a < b) - (a > b) : compare_units(left, right);
}

/* Joins equal units: by symmetry, some solution treats them alike. Leaves out the smallest. */
static void join_units(scene *f, int32_t unit_most)
{
    int32_t count = 0;
    for (int32_t i = 0; i < f->unit_count; i++) {
        f->units[i].copies = 1;
        f->units[i].is_block = i < f->block_count;
    }
    qsort(f->units, (size_t)f->unit_count, sizeof(unit), compare_units);
    for (int32_t i = 0; i < f->unit_count; i++) {
        unit alone = f->units[i];
        if (count > 0) {
            alone.copies = f->units[count - 1].copies;
            if (compare_units(&alone, &f->units[count - 1]) == 0) {
                f->units[count - 1].copies++;
                continue;
            }
        }
        alone.copies = 1;
        f->units[count++] = alone;
    }
    qsort(f->units, (size_t)count, sizeof(unit), compare_sizes);
    f->unit_count = count < unit_most ? count : unit_most;
}

static coh_status fill_facts(scene *f)
{
    const coh_decisions whole = { .chunk_bytes = COH_WHOLE_OBJECTS,
                                  .row_passes = 1,
                                  .patterns = coh_pattern_choose(1),
                                  .light = f->light };
    COH_TRY(coh_layout_build(f->graph, f->options, &whole, &f->layout, &f->map));
    const uint32_t objects = f->layout.object_count;
    f->block_count = coh_graph_block_count(f->graph);
    f->block_count = f->block_count < COH_BLOCK_SET_MOST ? f->block_count : COH_BLOCK_SET_MOST;
    f->unit_count = f->block_count + (int32_t)f->layout.group_count + 1;
    f->passes = f->options->sweep_order == COH_SWEEP_LAYER ? 1 : f->options->microbatch_count;
    f->microbatches = coh_fold_replicas(&f->options->replicas) > 1
                          ? f->options->microbatch_count
                          : coh_few_microbatches(f->options, FEW).microbatch_count;
    f->inner_times = 1 + f->options->microbatch_count - f->microbatches;
    COH_TRY(COH_ALLOC(f->unit_count, &f->units));
    COH_TRY(COH_ALLOC(f->layout.group_count + 1, &f->unit_of_group));
    COH_TRY(COH_ALLOC(objects, &f->is_read_back));
    COH_TRY(COH_ALLOC(objects, &f->writer));
    COH_TRY(COH_ALLOC(objects, &f->is_live));
    COH_TRY(COH_ALLOC(objects, &f->is_live_again));
    for (uint32_t i = 0; i < objects; i++)
        f->writer[i] = -1;
    assign_groups(f);
    COH_TRY(lower_and_measure(f, 0, measure));
    COH_TRY(lower_and_measure(f, 1, measure_again));
    add_groups(f);
    add_activations(f);
    return COH_OK;
}

coh_status coh_step_facts_find(const coh_graph *graph, const coh_plan_options *options,
                               const coh_pricer *pricer, int32_t unit_most, int light,
                               coh_step_facts *out_facts)
{
    scene f = { .graph = graph, .options = options, .pricer = pricer, .light = light };
    *out_facts = (coh_step_facts){ 0 };
    const coh_status status = fill_facts(&f);
    if (status == COH_OK) {
        join_units(&f, unit_most);
        *out_facts = (coh_step_facts){ .units = f.units,
                                       .unit_count = f.unit_count,
                                       .block_count = f.block_count,
                                       .passes = f.passes,
                                       .pinned_bytes = (double)f.layout.pinned_bytes,
                                       .object_count = f.layout.object_count };
        memcpy(out_facts->compute_ns, f.compute_ns, sizeof(f.compute_ns));
        f.units = NULL;
    }
    scene_fini(&f);
    return status;
}

void coh_step_facts_fini(coh_step_facts *facts)
{
    coh_free(facts->units);
    *facts = (coh_step_facts){ 0 };
}
