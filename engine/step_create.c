/* Creates and destroys a step: arenas, store, bound programs, threads. Destroys in reverse order.
 * Next: step_state.h, then step.c. */
#include <string.h>

#include "base/alloc.h"
#include "base/refusal.h"
#include "base/thread.h"
#include "engine/call_check.h"
#include "engine/step_state.h"
#include "engine/update_check.h"
#include "planner/comm_parts.h"

/* ---- contents of the arenas between programs ---- */

typedef void (*coh_ledger_change)(coh_ledger *ledger, coh_tier tier, uint32_t stream,
                                  uint64_t offset, uint64_t bytes);

/* Changes the ledger for pinned objects and residents, which exist at the begin and end of every
 * program. */
static void change_boundary(coh_step *step, coh_ledger_change change)
{
    const coh_layout *layout = step->layout;
    for (uint32_t i = 0; i < layout->object_count; i++)
        if (layout->objects[i].pinned)
            change(step->ledger, COH_TIER_DEVICE, layout->objects[i].stream,
                   layout->objects[i].pinned_offset, layout->objects[i].bytes);
    for (uint32_t i = 0; i < layout->resident_count; i++) {
        const coh_chunk *chunk = &layout->chunks[layout->residents[i].chunk];
        change(step->ledger, (coh_tier)layout->residents[i].tier,
               layout->objects[chunk->object].stream, layout->residents[i].offset, chunk->bytes);
    }
}

/* After a failure only some extents have been left; all of them are removed with the arenas. */
static void leave_everything(coh_step *step)
{
    for (int tier = 0; tier < COH_TIER_DISK; tier++)
        for (uint32_t stream = 0; stream < COH_STREAM_COUNT; stream++) {
            uint64_t live = 0, peak = 0;
            coh_ledger_read_stream(step->ledger, (coh_tier)tier, stream, &live, &peak);
            if (live > 0)
                coh_ledger_leave(step->ledger, (coh_tier)tier, stream, 0, live);
        }
}

static coh_status create_arenas(coh_step *step)
{
    const coh_layout *layout = step->layout;
    for (int tier = 0; tier < COH_TIER_DISK; tier++)
        if (layout->arena_bytes[tier] > 0)
            COH_TRY(step->device_ops->arena_create(step->device, (coh_tier)tier,
                                                   layout->arena_bytes[tier], &step->arenas[tier]));
    if (step->options.poison)
        for (int tier = 0; tier < COH_TIER_DISK; tier++) {
            uint64_t kept = tier == COH_TIER_DEVICE ? layout->pinned_bytes : 0;
            if (layout->arena_bytes[tier] > kept)
                COH_TRY(coh_step_fill(step, (coh_tier)tier, kept, 0xff,
                                      layout->arena_bytes[tier] - kept));
        }
    if (step->ledger != NULL)
        change_boundary(step, coh_ledger_enter);
    return COH_OK;
}

/* ---- the store ---- */

static uint32_t deepest(const coh_step *step, coh_lane lane)
{
    uint32_t depth = 1;
    for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT; kind++) {
        const coh_program *program = &step->plan->programs[kind];
        if (program->instruction_count > 0 && program->lane_depth[lane] > depth)
            depth = program->lane_depth[lane];
    }
    return depth;
}

static coh_status refuse_disk(uint64_t bytes, uint64_t limit)
{
    coh_refusal refusal = coh_refusal_bytes(COH_REFUSAL_FAR_TIER, COH_TIER_DISK, limit, bytes);
    coh_refusal_raise(&refusal, COH_TIER_DISK, bytes);
    return coh_refuse(&refusal);
}

static coh_status open_store(coh_step *step, const coh_store_ops *wanted)
{
    const coh_layout *layout = step->layout;
    if (layout->file_bytes == 0)
        return COH_OK;
    if (layout->file_bytes > step->options.disk_bytes)
        return refuse_disk(layout->file_bytes, step->options.disk_bytes);
    uint32_t reads = deepest(step, COH_LANE_READ), writes = deepest(step, COH_LANE_WRITE);
    const coh_disk alone = { .folder = step->options.disk_folder, .bytes = UINT64_MAX };
    const int is_alone = step->options.disk_count == 0;
    const coh_store_config config = { .disks = is_alone ? &alone : step->options.disks,
                                      .disk_count = is_alone ? 1 : step->options.disk_count,
                                      .bytes = layout->file_bytes,
                                      .chunk_count =
                                          layout->chunk_count * (layout->keeps_old ? 2 : 1),
                                      .phantom = step->phantom,
                                      .go_on = step->options.go_on,
                                      .go_on_context = step->options.go_on_context,
                                      .port_depth = reads > writes ? reads : writes };
    if (step->ledger != NULL)
        COH_TRY(
            coh_ledger_add(step->ledger, COH_TIER_DISK, "working store", "store", config.bytes));
    step->store_is_counted = step->ledger != NULL;
    COH_TRY(coh_store_open(&config, wanted, &step->store_ops, &step->store));
    for (int tier = 0; tier < COH_TIER_DISK; tier++) {
        unsigned reach =
            layout->access.reads[COH_LANE_WRITE] | layout->access.writes[COH_LANE_READ];
        if (step->arenas[tier] != NULL && ((reach >> tier) & 1))
            COH_TRY(step->store_ops->register_arena(step->store, step->arenas[tier],
                                                    (size_t)layout->arena_bytes[tier]));
    }
    return COH_OK;
}

/* ---- programs, inputs ---- */

static coh_status bind_programs(coh_step *step)
{
    coh_parameter_rule *rules;
    COH_TRY(coh_parameter_rules_make(step->plan->graph, step->layout, &step->options, &rules));
    const coh_status status = coh_grain_table_init(step->layout, step->rank, rules, &step->grains);
    coh_free(rules);
    COH_TRY(status);
    COH_TRY(
        coh_optimizer_numbers_make(step->layout, &step->options, step->numbers, &step->scalars));
    for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT; kind++)
        if (step->plan->programs[kind].instruction_count > 0)
            COH_TRY(coh_bound_init(step, &step->plan->programs[kind], &step->bounds[kind]));
    if (step->options.small_graph != NULL)
        COH_TRY(coh_bound_init_small(&step->bounds[COH_PROGRAM_BODY], step->options.small_graph,
                                     &step->small));
    return COH_ALLOC(step->layout->chunk_count, &step->generations);
}

uint64_t coh_input_bytes(const coh_graph *graph, uint32_t input)
{
    const coh_shape *shape = &graph->tensors[graph->inputs[input]].shape;
    return (uint64_t)coh_shape_elements(shape) * coh_dtype_bytes(shape->dtype);
}

static coh_status share_ticket(coh_step *step, coh_ticket *ticket)
{
    const coh_device_ops *ops = step->device_ops;
    void *shared;
    COH_TRY(ops->share(step->device, sizeof(*ticket->shared), &shared));
    ticket->shared = shared;
    for (uint32_t i = 0; i < step->layout->input_count; i++)
        COH_TRY(ops->share(
            step->device,
            (size_t)(coh_input_bytes(step->plan->graph, i) * step->layout->microbatch_count),
            &ticket->input_bytes[i]));
    return COH_OK;
}

static void unshare_ticket(coh_step *step, coh_ticket *ticket)
{
    step->device_ops->unshare(step->device, ticket->shared);
    for (int i = 0; i < COH_PORT_MAX; i++)
        step->device_ops->unshare(step->device, ticket->input_bytes[i]);
}

static coh_status allocate_visit(coh_step *step)
{
    int has_others = 0;
    for (uint32_t i = 0; i < step->layout->group_count; i++)
        has_others |= step->layout->groups[i].dtype != COH_DTYPE_F32;
    if (!has_others)
        return COH_OK;
    COH_TRY(COH_ALLOC((size_t)COH_VISIT_GRAINS * COH_GRAIN_ELEMENTS, &step->visit_values));
    if (coh_sent_partials_bytes(step->layout) == 0)
        return COH_OK;
    return COH_ALLOC((size_t)COH_VISIT_GRAINS * COH_GRAIN_ELEMENTS, &step->visit_low);
}

/* ---- threads ---- */

static int lane_is_used(const coh_step *step, int lane)
{
    for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT; kind++)
        if (step->plan->programs[kind].instruction_count > 0 &&
            step->plan->programs[kind].lane_length[lane] > 0)
            return 1;
    return 0;
}

static coh_status start_lane_thread(coh_step *step, coh_lane lane)
{
    coh_lane_thread *thread = &step->threads[lane];
    thread->step = step;
    thread->lane = lane;
    thread->depth = deepest(step, lane);
    COH_TRY(COH_ALLOC(thread->depth, &thread->ring));
    COH_TRY(COH_ALLOC(thread->depth, &thread->completions));
    coh_awake_add(coh_phantom_awake(step->phantom), 1);
    int error = coh_thread_start(&thread->thread, coh_lane_main, thread);
    if (error != 0)
        return coh_fail(COH_ERR_MEMORY, "no thread for lane %s: %s", coh_lane_name(lane),
                        strerror(error));
    thread->is_started = 1;
    return COH_OK;
}

static coh_status start_threads(coh_step *step)
{
    /* If the compute lane uses these cores, the host lane has only one thread. */
    if (!step->host_addressable && lane_is_used(step, COH_LANE_HOST))
        COH_TRY(coh_pool_create(step->options.thread_count, &step->host_pool));
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        if (!lane_is_used(step, lane))
            continue;
        if (coh_lane_is_queue((coh_lane)lane))
            COH_TRY(
                step->device_ops->queue_create(step->device, (coh_lane)lane, &step->queues[lane]));
        else
            COH_TRY(start_lane_thread(step, (coh_lane)lane));
    }
    step->kernel_queue =
        step->host_addressable ? (void *)step->pool : (void *)step->queues[COH_LANE_COMPUTE];
    if (step->phantom != NULL)
        COH_TRY(coh_phantom_run(step->phantom, step));
    COH_TRY(coh_instruction_rehearse_all(step));
    coh_instruction_record_all(step);
    coh_awake_add(coh_phantom_awake(step->phantom), 1);
    int error = coh_thread_start(&step->issuer, coh_issue_main, step);
    if (error != 0)
        return coh_fail(COH_ERR_MEMORY, "no thread to issue the step: %s", strerror(error));
    step->issuer_is_started = 1;
    return COH_OK;
}

/* ---- the device ---- */

/* Prefixes the error text with the name of the instruction. */
static void name_instruction(const coh_step *step, const coh_program *program, uint32_t index,
                             coh_status status)
{
    const coh_instruction *instruction = &program->instructions[index];
    const char *opcode = coh_opcode_name((coh_opcode)instruction->opcode);
    if (coh_opcode_moves(instruction->opcode)) {
        (void)coh_step_name_chunk(step, program, instruction, status);
        coh_fail_prefix(status, "instruction %u of program '%s'", index,
                        coh_program_kind_name((coh_program_kind)program->kind));
    } else if (instruction->call >= 0 && program->calls[instruction->call].operator_index >= 0) {
        const coh_instruction_call *call = &program->calls[instruction->call];
        coh_fail_prefix(status, "operator '%s', %s of micro-batch %d",
                        step->plan->graph->ops[call->operator_index].name, opcode,
                        call->microbatch);
    } else {
        coh_fail_prefix(status, "instruction %u of program '%s', %s", index,
                        coh_program_kind_name((coh_program_kind)program->kind), opcode);
    }
}

/* The device failed at an instruction of ticket `number`, or (0) at no instruction that it could
 * name. */
static void device_failed(void *context, coh_status status, uint64_t number, uint32_t index)
{
    coh_step *step = context;
    const coh_bound *bound = number > 0 ? coh_step_ticket(step, number)->bound : NULL;
    if (bound != NULL) {
        const coh_instruction *instruction = &bound->program->instructions[index];
        name_instruction(step, bound->program, index, status);
        const coh_instruction_run *run =
            coh_instruction_recorded(coh_step_ticket(step, number), instruction);
        if (run != NULL && run->count > 1 && status == COH_ERR_DEVICE)
            coh_fail_prefix(
                status,
                "one of %u instructions of a CUDA graph (COH_CUDA_GRAPHS=none would say "
                "which), the first of them",
                run->count);
    }
    coh_step_fail(step, status);
}

/* Checks that every operator has kernels for the device. */
static coh_status check_kinds(const coh_step *step)
{
    const coh_graph *graph = step->plan->graph;
    const coh_device_kind device = coh_step_device_kind(step);
    const int trains = step->plan->options.mode == COH_PLAN_TRAIN;
    for (size_t i = 0; device != COH_DEVICE_HOST && graph != NULL && i < graph->op_count; i++) {
        const coh_op_kind *kind = &graph->ops[i].kind;
        if (kind->devices[device].forward == NULL ||
            (trains && kind->devices[device].backward == NULL))
            return coh_fail(COH_ERR_ARGUMENT,
                            "operator '%s' is of kind '%s', which has no kernels for a GPU: run it "
                            "on the host device",
                            graph->ops[i].name, kind->name);
    }
    return COH_OK;
}

static uint64_t workspace_offset(const coh_layout *layout)
{
    return layout->libraries >= 0 ? layout->objects[layout->libraries].pinned_offset : 0;
}

static uint64_t record_steps(const coh_step *step)
{
    return step->plan->options.mode == COH_PLAN_TRAIN ? step->options.record_steps : 0;
}

static coh_status create_device(coh_step *step, const coh_step_config *config)
{
    const coh_device_config device_config = {
        .index = config->device_index,
        .thread_count = step->options.thread_count,
        .ledger = step->ledger,
        .link_bytes_per_s = step->plan->options.link_bytes_per_s,
        .kernels = config->device_kernels,
        .workspace_offset = workspace_offset(step->layout),
        .failed = device_failed,
        .failed_context = step,
        .log = step->options.log,
        .log_context = step->options.log_context,
        .lockstep = step->options.poison,
        .times_exactly = record_steps(step) > 0,
        .driver = config->driver,
        .awake = coh_phantom_awake(step->phantom),
    };
    COH_TRY(step->device_ops->create(&device_config, &step->device));
    COH_TRY(coh_step_create_views(step));
    COH_TRY(check_kinds(step));
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        if (!coh_lane_is_queue((coh_lane)lane) && lane_is_used(step, lane))
            COH_TRY(step->device_ops->watch(step->device, coh_step_retired(step, (coh_lane)lane)));
    return COH_OK;
}

static coh_status create_checks(coh_step *step)
{
    if (!step->options.check_calls || step->phantom != NULL)
        return COH_OK;
    if (!step->host_addressable)
        return coh_fail(COH_ERR_ARGUMENT, "check_calls is for the host device only");
    COH_TRY(COH_ALLOC(1, &step->update_check));
    COH_TRY(coh_update_check_init(step->layout, step->update_check));
    COH_TRY(COH_ALLOC(1, &step->call_check));
    return coh_call_check_init(step->plan, step->options.small_graph, step->call_check);
}

/* ---- create, destroy ---- */

static coh_status create_all(coh_step *step, const coh_step_config *config)
{
    if (pthread_mutex_init(&step->failure_mutex, NULL) != 0)
        return coh_fail(COH_ERR_MEMORY, "the system gives no mutex");
    step->mutex_is_made = 1;
    for (; step->counter_count < COH_COUNTER_COUNT; step->counter_count++) {
        COH_TRY(coh_counter_init(&step->counters[step->counter_count]));
        coh_counter_set_awake(&step->counters[step->counter_count],
                              coh_phantom_awake(step->phantom));
    }
    COH_TRY(create_device(step, config));
    COH_TRY(create_arenas(step));
    COH_TRY(bind_programs(step));
    for (int slot = 0; slot < COH_TICKET_SLOTS; slot++)
        COH_TRY(share_ticket(step, &step->tickets[slot]));
    COH_TRY(allocate_visit(step));
    COH_TRY(create_checks(step));
    COH_TRY(coh_instruction_times_init(&step->times, step->plan));
    COH_TRY(coh_step_records_init(&step->records, record_steps(step),
                                  step->plan->programs[COH_PROGRAM_BODY].instruction_count));
    COH_TRY(open_store(step, config->store_ops));
    COH_TRY(coh_comm_bind(step, config->nccl));
    COH_TRY(
        coh_rank_watch_start(&step->watch, step->world, step->plan, step->options.rank_timeout_s));
    return start_threads(step);
}

coh_status coh_step_create(const coh_step_config *config, coh_step **out_step)
{
    *out_step = NULL;
    coh_step *step;
    COH_TRY(COH_ALLOC(1, &step));
    step->plan = config->plan;
    step->layout = &config->plan->layout;
    step->options = *config->options;
    step->device_ops = config->device_ops;
    step->phantom = config->phantom;
    step->pool = config->pool;
    step->ledger = config->ledger;
    step->world = coh_layout_rank_count(step->layout) > 1 ? config->options->world : NULL;
    step->rank = step->world != NULL ? coh_world_rank(step->world) : 0;
    coh_status status = coh_fold_shape_join(&config->plan->options.replicas,
                                            &config->plan->options.ranks, &step->fold);
    if (status == COH_OK)
        status = create_all(step, config);
    if (status != COH_OK) {
        if (step->world != NULL) /* before it ends its lines, for which the others would wait */
            status = coh_transport_end(step->world->transport, status);
        coh_step_destroy(step);
        return status;
    }
    step->options.groups = NULL; /* the caller's; no longer needed */
    step->options.disks = NULL;
    *out_step = step;
    return COH_OK;
}

/* Nothing failed and nothing runs. */
static int is_at_rest(coh_step *step)
{
    pthread_mutex_lock(&step->failure_mutex);
    coh_status failure = step->failure;
    pthread_mutex_unlock(&step->failure_mutex);
    if (failure != COH_OK)
        return 0;
    uint64_t newest = coh_counter_read(&step->counters[COH_COUNTER_SUBMITTED]);
    if (newest == 0)
        return 1;
    const coh_ticket *ticket = coh_step_ticket(step, newest);
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        if (coh_counter_read(coh_step_retired(step, (coh_lane)lane)) <
            ticket->base[lane] + ticket->bound->program->lane_length[lane])
            return 0;
    return 1;
}

void coh_step_halt(coh_step *step)
{
    char text[COH_ERROR_TEXT_BYTES];
    coh_refusal refusal = { .struct_bytes = sizeof(refusal) };
    const int32_t is_refused = coh_last_refusal(&refusal);
    coh_error_save(text);
    const int is_resting = is_at_rest(step);
    coh_fail(COH_ERR_STOPPED, "the engine was destroyed");
    if (is_resting)
        coh_step_end(step, COH_ERR_STOPPED);
    else
        coh_step_fail(step, COH_ERR_STOPPED);
    coh_phantom_join(step->phantom);
    if (is_refused)
        (void)coh_refuse(&refusal);
    else
        coh_error_restore(text);
    if (step->issuer_is_started)
        pthread_join(step->issuer, NULL);
    step->issuer_is_started = 0;
    for (int lane = 0; lane < COH_LANE_COUNT; lane++) {
        coh_lane_thread *thread = &step->threads[lane];
        if (thread->is_started)
            pthread_join(thread->thread, NULL);
        coh_free(thread->ring);
        coh_free(thread->completions);
        *thread = (coh_lane_thread){ 0 };
    }
    coh_rank_watch_stop(&step->watch);
    coh_comm_unbind(step);
    for (int lane = 0; lane < COH_LANE_COUNT; lane++)
        if (step->queues[lane] != NULL) {
            step->device_ops->queue_destroy(step->queues[lane]);
            step->queues[lane] = NULL;
        }
}

/* If a rank was left behind, its process may still write to the arenas: they stay mapped. */
static void release_arena(coh_step *step, coh_tier tier)
{
    if (step->is_left_behind && step->device_ops->arena_abandon != NULL)
        step->device_ops->arena_abandon(step->device, tier);
    else
        step->device_ops->arena_destroy(step->device, tier);
}

static void release_arenas(coh_step *step, int is_orderly)
{
    if (step->ledger != NULL && is_orderly)
        change_boundary(step, coh_ledger_leave);
    else if (step->ledger != NULL)
        leave_everything(step);
    for (int tier = 0; tier < COH_TIER_DISK; tier++)
        if (step->arenas[tier] != NULL)
            release_arena(step, (coh_tier)tier);
    step->device_ops->destroy(step->device);
}

void coh_step_destroy(coh_step *step)
{
    if (step == NULL)
        return;
    int is_orderly = step->issuer_is_started && is_at_rest(step);
    if (step->mutex_is_made)
        coh_step_halt(step);
    coh_comm_close(step);
    if (step->store != NULL)
        step->store_ops->close(step->store);
    if (step->store_is_counted)
        coh_ledger_remove(step->ledger, COH_TIER_DISK, "working store", "store",
                          step->layout->file_bytes);
    coh_bound_fini_small(&step->small);
    for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT; kind++)
        coh_bound_fini(&step->bounds[kind]);
    coh_grain_table_fini(&step->grains);
    for (int slot = 0; step->device != NULL && slot < COH_TICKET_SLOTS; slot++)
        unshare_ticket(step, &step->tickets[slot]);
    coh_pool_destroy(step->host_pool);
    coh_step_destroy_views(step);
    coh_free(step->generations);
    coh_free(step->visit_values);
    coh_free(step->visit_low);
    coh_free(step->divided);
    if (step->call_check != NULL)
        coh_call_check_fini(step->call_check);
    coh_free(step->call_check);
    if (step->update_check != NULL)
        coh_update_check_fini(step->update_check);
    coh_free(step->update_check);
    coh_instruction_times_fini(&step->times);
    coh_step_records_fini(&step->records);
    if (step->device != NULL)
        release_arenas(step, is_orderly);
    for (int i = 0; i < step->counter_count; i++)
        coh_counter_fini(&step->counters[i]);
    if (step->mutex_is_made)
        pthread_mutex_destroy(&step->failure_mutex);
    coh_free(step);
}
