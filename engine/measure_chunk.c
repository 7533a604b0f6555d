/* Measures instructions that work on chunks: norms and updates by the executor's code, and
 * additions by the kernel that passes a gradient on. For each chunk size the largest chunk of
 * the graphs is used. Updates are measured as the compute lane runs them, on all threads or a
 * GPU, and as the host lane does: on one thread, or with a GPU on the pool. Next: measure.h,
 * instruction_work.h. */
#include <stdio.h>
#include <string.h>

#include "cohobate/machine.h"
#include "engine/measure.h"
#include "engine/optimizer_numbers.h"
#include "planner/optimizers.h"
#include "planner/price.h"

/* An update of the largest chunk: work, gradient, two moments, and the partials of large models. */
#define ROOM_BYTES ((uint64_t)80 << 20)
/* The chunk by which other optimizers are measured. */
#define RATE_BYTES ((uint64_t)16 << 20)

typedef struct chunk_kind {
    coh_opcode opcode;
    coh_lane lane;
} chunk_kind;

static const chunk_kind kinds[] = { { COH_OP_UPDATE, COH_LANE_COMPUTE },
                                    { COH_OP_UPDATE, COH_LANE_HOST },
                                    { COH_OP_NORM, COH_LANE_COMPUTE },
                                    { COH_OP_ADD, COH_LANE_COMPUTE } };
enum { KIND_COUNT = sizeof(kinds) / sizeof(kinds[0]) };

typedef struct bench {
    coh_measure *m;
    void *queue; /* passed to kernels; NULL: one thread */
    const coh_measure_lowered *lowered;
    const coh_lowered_instruction *instruction;
    coh_window window;
    coh_cold *cold;
    uint32_t window_count;
} bench;

/* Returns the address of a role's bytes; *out_place is the place of the chunk's work. */
static void *data_of(const bench *b, coh_role role, char *base, coh_chunk_place *out_place)
{
    const coh_lowered_operand *operand = coh_lowered_find(&b->lowered->body, b->instruction, role);
    const coh_layout *layout = &b->lowered->layout;
    *out_place = (coh_chunk_place){ .layout = layout };
    if (operand == NULL)
        return NULL;
    const coh_chunk *chunk =
        &layout->chunks[layout->objects[operand->object].chunk_begin + operand->touch_begin];
    const int32_t group = layout->objects[operand->object].owner;
    const uint64_t factor =
        role == COH_ROLE_GRAD ? coh_group_grad_factor(&layout->groups[group]) : 1;
    *out_place = (coh_chunk_place){ .layout = layout,
                                    .group = group,
                                    .object_offset = chunk->object_offset / factor,
                                    .bytes = chunk->bytes / factor };
    return base + coh_window_place(&b->window, operand->object, chunk->object_offset);
}

/* Returns the runs of a chunk, for one call. */
static coh_chunk_grains grains_of(const coh_chunk_place *place, coh_grain_run *runs)
{
    return (coh_chunk_grains){ runs,
                               coh_grain_runs_of(place->layout, place->group, place->object_offset,
                                                 place->bytes, NULL, runs) };
}

static void run_update(const bench *b, char *base)
{
    coh_chunk_place place, ignored;
    coh_grain_run runs[COH_GRAIN_RUNS_MOST];
    void *work = data_of(b, COH_ROLE_WORK, base, &place);
    const void *grad = data_of(b, COH_ROLE_GRAD, base, &ignored);
    void *state = data_of(b, COH_ROLE_OPTIMIZER_STATE, base, &ignored);
    coh_update update = coh_chunk_update(&place, grains_of(&place, runs), work, grad, state);
    coh_optimizer_numbers numbers;
    coh_optimizer_numbers_default(update.optimizer, &numbers);
    update.cells = b->cold->bed->cells;
    update.hyperparameters = numbers.values;
    coh_kernel_update(b->queue, &update);
}

static void run_norm(const bench *b, char *base)
{
    coh_chunk_place place, ignored;
    coh_grain_run runs[COH_GRAIN_RUNS_MOST];
    const void *grad = data_of(b, COH_ROLE_GRAD, base, &place);
    const coh_square_sums sums = { .dtype =
                                       coh_group_grad_dtype(&place.layout->groups[place.group]),
                                   .grains = grains_of(&place, runs),
                                   .grad = grad,
                                   .partials = data_of(b, COH_ROLE_PARTIALS, base, &ignored) };
    coh_kernel_square_sums(b->queue, &sums);
}

static void run_add(const bench *b, char *base)
{
    const coh_lowered *lowered = &b->lowered->body;
    const coh_instruction_call *call = &lowered->calls[b->instruction->call];
    coh_view to = { 0 }, from = { 0 };
    for (uint32_t i = 0; i < call->binding_count; i++) {
        const coh_binding *binding = &lowered->bindings[call->binding_begin + i];
        const coh_lowered_operand *operand =
            &lowered->operands[b->instruction->operand_begin + binding->operand];
        char *data = base + coh_window_place(&b->window, operand->object, binding->object_offset);
        *(binding->role == COH_ROLE_TO ? &to : &from) = coh_bound_port_of(binding, data).view;
    }
    coh_add_views(b->queue, &to, &from, call->input_grad_adds != 0);
}

/* A coh_bed_work: one call on the window of `index`. */
static coh_status run(void *context, uint64_t index)
{
    const bench *b = context;
    char *base = b->cold->base + index % b->window_count * b->window.bytes;
    if (b->instruction->opcode == COH_OP_UPDATE)
        run_update(b, base);
    else if (b->instruction->opcode == COH_OP_NORM)
        run_norm(b, base);
    else
        run_add(b, base);
    return COH_OK;
}

static coh_dtype dtype_of(const coh_measure_lowered *lowered,
                          const coh_lowered_instruction *instruction)
{
    const coh_lowered_operand *grad = coh_lowered_find(&lowered->body, instruction, COH_ROLE_GRAD);
    if (grad != NULL) {
        const coh_group_layout *group =
            &lowered->layout.groups[lowered->layout.objects[grad->object].owner];
        return instruction->opcode == COH_OP_NORM ? coh_group_grad_dtype(group) : group->dtype;
    }
    const coh_instruction_call *call = &lowered->body.calls[instruction->call];
    return lowered->body.bindings[call->binding_begin].shape.dtype;
}

static coh_status measure(bench *b, const coh_operator_times *what)
{
    coh_operator_sample sample = { .flops = b->instruction->flops,
                                   .bytes = (double)b->instruction->bytes };
    b->window_count = coh_cold_windows(b->cold, &b->window, UINT32_MAX);
    if (b->window_count == 0)
        return COH_OK;
    COH_TRY(coh_cold_fill(b->cold, 1));
    COH_TRY(coh_measure_work(b->m, b->cold->bed, NULL, run, b, &sample.seconds));
    return coh_measure_add(b->m, what, &sample);
}

/* Returns the instruction of `opcode` and `dtype` that moves the most bytes, or NULL. */
static const coh_lowered_instruction *largest(const coh_measure_lowered *lowered, coh_opcode opcode,
                                              coh_dtype dtype)
{
    const coh_lowered_instruction *found = NULL;
    for (size_t i = 0; i < lowered->body.instruction_count; i++) {
        const coh_lowered_instruction *instruction = &lowered->body.instructions[i];
        if (instruction->opcode == opcode && dtype_of(lowered, instruction) == dtype &&
            (found == NULL || instruction->bytes > found->bytes))
            found = instruction;
    }
    return found;
}

/* Memory for each lane's chunks; on the host device both lanes share `compute`. */
typedef struct chunk_memory {
    coh_cold compute, host;
} chunk_memory;

static coh_cold *cold_of(chunk_memory *memory, coh_lane lane)
{
    return lane == COH_LANE_HOST && memory->host.bed != NULL ? &memory->host : &memory->compute;
}

/* Returns the queue of the host lane's kernels: one thread if the compute lane uses these cores. */
static void *host_queue(const coh_measure *m)
{
    return m->bed->is_host ? NULL : m->pool;
}

/* `optimizer` NULL: AdamW's updates, and everything else; else only its updates. */
static coh_status measure_lowered(coh_measure *m, chunk_memory *memory,
                                  const coh_optimizer *optimizer,
                                  const coh_measure_lowered *lowered)
{
    static const coh_dtype dtypes[] = { COH_DTYPE_F32, COH_DTYPE_BF16 };
    for (int i = 0; i < KIND_COUNT * 2; i++) {
        const chunk_kind *kind = &kinds[i / 2];
        bench b = { .m = m,
                    .queue = kind->lane == COH_LANE_HOST ? host_queue(m) : m->bed->queue,
                    .lowered = lowered,
                    .instruction = largest(lowered, kind->opcode, dtypes[i % 2]),
                    .cold = cold_of(memory, kind->lane) };
        coh_operator_times what = { .dtype = dtypes[i % 2], .lane = (uint8_t)kind->lane };
        if (b.instruction == NULL || (optimizer != NULL && kind->opcode != COH_OP_UPDATE))
            continue;
        if (optimizer != NULL)
            coh_price_update_name(optimizer, what.kind, sizeof(what.kind));
        else
            snprintf(what.kind, sizeof(what.kind), "%s", coh_price_name(kind->opcode));
        if (coh_measure_knows(m, &what, b.instruction->flops, (double)b.instruction->bytes))
            continue;
        COH_TRY(coh_window_add(&b.window, lowered, b.instruction));
        COH_TRY(measure(&b, &what));
    }
    return COH_OK;
}

/* Returns 1 if the optimizer can update the graph's weights on this device. */
static int can_update(const coh_measure *m, const coh_graph *graph, const coh_optimizer *optimizer)
{
    const int is_bf16 = coh_graph_trains_bf16(graph);
    return coh_optimizer_runs_on(optimizer, m->bed->is_host ? COH_DEVICE_HOST : COH_DEVICE_CUDA) &&
           (is_bf16 ? optimizer->takes_bf16 || optimizer->rounds_work : !optimizer->rounds_work);
}

static coh_status measure_graph(coh_measure *m, chunk_memory *memory, const coh_graph *graph,
                                uint64_t chunk_bytes, const coh_optimizer *optimizer)
{
    coh_measure_lowered lowered;
    if (optimizer != NULL && !can_update(m, graph, optimizer))
        return COH_OK;
    COH_TRY(coh_measure_lowered_init(m, graph, chunk_bytes,
                                     optimizer != NULL ? optimizer->name : NULL, 1, 1, &lowered));
    const coh_status status = measure_lowered(m, memory, optimizer, &lowered);
    coh_measure_lowered_fini(&lowered);
    return status;
}

/* Of other optimizers than AdamW one size is measured: theirs is a rate, not a latency. Chunks too
 * small for any plan of a large model are left out: to lower a step of that many takes minutes. */
static coh_status measure_size(coh_measure *m, chunk_memory *memory, uint64_t chunk_bytes)
{
    for (uint32_t i = 0; i < m->options->graph_count; i++) {
        const coh_graph *graph = m->options->graphs[i];
        int is_planned = 0;
        COH_TRY(coh_measure_plans_chunks(m, graph, chunk_bytes, &is_planned));
        if (!is_planned && chunk_bytes < RATE_BYTES)
            continue;
        COH_TRY(measure_graph(m, memory, graph, chunk_bytes, NULL));
        for (int32_t k = 0; chunk_bytes == RATE_BYTES && k < coh_optimizer_count(); k++)
            if (strcmp(coh_optimizer_at(k)->name, COH_OPTIMIZER_DEFAULT) != 0)
                COH_TRY(measure_graph(m, memory, graph, chunk_bytes, coh_optimizer_at(k)));
    }
    return COH_OK;
}

uint64_t coh_chunks_bytes(const coh_measure *m)
{
    return m->effort.cold_bytes + ROOM_BYTES;
}

coh_status coh_measure_chunks(coh_measure *m)
{
    static const uint64_t chunk_bytes[COH_MEASURE_CHUNK_SIZES] = { 64u << 10, 256u << 10, 1u << 20,
                                                                   4u << 20, 16u << 20 };
    chunk_memory memory = { 0 };
    coh_status status = coh_cold_open_most(m->bed, coh_chunks_bytes(m), &memory.compute);
    if (status == COH_OK && m->bed != &m->host) {
        const uint64_t bytes = coh_chunks_bytes(m),
                       cold = 2 * coh_measure_cache_bytes() + ROOM_BYTES;
        status = coh_cold_open_most(&m->host, cold > bytes ? cold : bytes, &memory.host);
    }
    for (int size = 0; status == COH_OK && size < COH_MEASURE_CHUNK_SIZES; size++) {
        char text[32];
        coh_measure_begin(m, "norms and updates of chunks of %s",
                          coh_size_format(chunk_bytes[size], text, sizeof(text)));
        status = measure_size(m, &memory, chunk_bytes[size]);
    }
    coh_cold_close(&memory.host);
    coh_cold_close(&memory.compute);
    return status;
}
