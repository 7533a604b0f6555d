/* The public engine: each call runs one or several programs of the plan on the executor (step.c).
 * Next: cohobate/engine.h, engine_state.h. */
#include "cohobate/engine.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/plural.h"
#include "base/struct_bytes.h"
#include "comm/world.h"
#include "engine/device_find.h"
#include "engine/engine_state.h"
#include "engine/entry.h"
#include "engine/parameter_groups.h"
#include "engine/small_graph.h"

void coh_engine_options_init_sized(coh_engine_options *out_options, size_t bytes)
{
    const coh_engine_options defaults = { .disk_bytes = UINT64_MAX,
                                          .thread_count = 1,
                                          .weight_decay = COH_WEIGHT_DECAY_DEFAULT };
    coh_struct_init(&defaults, sizeof(defaults), out_options, bytes);
}

/* ---- create ---- */

/* Longest pause before an instruction in the test mode of delays: 1 s. */
#define DELAY_US_MOST 1000000

#define RANK_TIMEOUT_MOST_S 1e9

static coh_status check_options(const coh_plan *plan, const coh_engine_options *options)
{
    uint32_t file_system_count;
    COH_TRY(coh_check_integer("thread_count", options->thread_count, 1, COH_THREADS_MOST));
    COH_TRY(coh_check_integer("delay_most_us", options->delay_most_us, 0, DELAY_US_MOST));
    if (options->record_steps > COH_RECORD_STEPS_MOST)
        return coh_fail(COH_ERR_ARGUMENT, "record_steps is %" PRIu64 ": give a number from 0 to %d",
                        options->record_steps, COH_RECORD_STEPS_MOST);
    if (!(options->weight_decay >= 0 && isfinite(options->weight_decay)))
        return coh_fail(COH_ERR_ARGUMENT, "weight_decay is %g: give a number from 0 on",
                        (double)options->weight_decay);
    if (!(options->rank_timeout_s >= 0 && options->rank_timeout_s <= RANK_TIMEOUT_MOST_S))
        return coh_fail(COH_ERR_ARGUMENT, "rank_timeout_s is %g: give seconds from 0 (no limit) on",
                        options->rank_timeout_s);
    COH_TRY(coh_check_path("coh_engine_create", "options->disk_folder", options->disk_folder));
    if (options->disk_count > 0)
        COH_TRY(coh_disks_check(options->disks, options->disk_count, &file_system_count));
    if (plan->layout.file_bytes > 0 && options->disk_folder == NULL && options->disk_count == 0)
        return coh_fail(COH_ERR_ARGUMENT,
                        "the plan has a working store of %" PRIu64 " bytes: name a disk folder",
                        plan->layout.file_bytes);
    if (plan->layout.input_count > COH_PORT_MAX)
        return coh_fail(COH_ERR_ARGUMENT, "%u graph inputs: a step takes at most %d",
                        plan->layout.input_count, COH_PORT_MAX);
    return COH_OK;
}

static coh_status find_store(const char *name, const coh_store_ops **out_ops)
{
    static const coh_store_ops *const known[] = { &coh_store_uring, &coh_store_posix,
                                                  &coh_store_mem };
    static const char *const names[] = { "uring", "posix", "mem" };
    *out_ops = NULL;
    if (name == NULL)
        return COH_OK;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(name, names[i]) == 0) {
            *out_ops = known[i];
            return COH_OK;
        }
    return coh_fail(COH_ERR_ARGUMENT, "no store is called '%s': uring, posix or mem", name);
}

/* Logs, once, why the store uses a slower kind than the best one. */
static void tell_store(const coh_engine *engine)
{
    coh_store_facts facts;
    if (engine->options.log != NULL && coh_step_store_facts(engine->step, &facts) &&
        facts.reason != NULL)
        engine->options.log(engine->options.log_context, facts.reason);
}

/* Counts the parameters that nobody froze and that no step changes; *out_first names one. */
static uint32_t count_unused(const coh_plan *plan, const char **out_first)
{
    uint32_t count = 0;
    *out_first = "";
    for (uint32_t i = 0; i < plan->layout.parameter_count; i++) {
        const coh_parameter_layout *parameter = &plan->layout.parameters[i];
        if (coh_plan_leaves_unused(plan, parameter) && count++ == 0)
            *out_first = plan->graph->parameters[parameter->parameter].name;
    }
    return count;
}

/* Logs, once, which parameters will not be trained though nobody froze them. */
static void tell_unused(const coh_engine *engine)
{
    char text[512];
    const char *first;
    const uint32_t count = engine->options.log != NULL ? count_unused(engine->plan, &first) : 0;
    if (count == 0)
        return;
    snprintf(text, sizeof(text),
             "the loss does not depend on %" PRIu32 " parameter%s that %s not frozen, the first "
             "'%.200s': no step changes such a parameter; use it in the graph, or freeze it",
             count, COH_PLURAL_S(count), count == 1 ? "is" : "are", first);
    engine->options.log(engine->options.log_context, text);
}

static coh_status check_device(const coh_plan *plan, const coh_engine_device *device)
{
    const int wants_gpu = plan->profile.device_kind != COH_DEVICE_HOST,
              is_gpu = device->kernels != NULL;
    if (wants_gpu == is_gpu)
        return COH_OK;
    return coh_fail(COH_ERR_ARGUMENT,
                    "the plan is for %s ('%s'), and the device is %s: plan with "
                    "a profile of the device",
                    wants_gpu ? "a GPU" : "the host device", plan->profile.name,
                    is_gpu ? "a GPU" : "the host");
}

/* Checks that a plan of several ranks has their world. */
static coh_status check_world(const coh_plan *plan, const coh_world *world)
{
    const coh_mesh *mesh = &plan->layout.mesh;
    const int32_t ranks = coh_mesh_rank_count(mesh),
                  size = world != NULL ? coh_world_size(world) : 1;
    if (ranks != size)
        return coh_fail(COH_ERR_ARGUMENT,
                        "the plan is for %" PRId32 " rank%s and the engine's world has %" PRId32
                        ": make them equal",
                        ranks, COH_PLURAL_S(ranks), size);
    for (int level = COH_LEVEL_PAIR; ranks > 1 && level < COH_LEVEL_WORLD; level++)
        if (mesh->levels.rank_count[level] != coh_world_level_ranks(world, (coh_link_level)level))
            return coh_fail(COH_ERR_ARGUMENT,
                            "the plan is for %ss of %" PRId32 " ranks, the world has %" PRId32
                            ": make them equal",
                            coh_link_level_name((coh_link_level)level),
                            mesh->levels.rank_count[level],
                            coh_world_level_ranks(world, (coh_link_level)level));
    return COH_OK;
}

/* Compares the plans of all ranks, all programs of them: rule COMM (docs/verifier.md). */
static coh_status compare_plans(const coh_plan *plan, coh_world *world)
{
    uint64_t own[2 + COH_PROGRAM_KIND_COUNT] = { plan->program_hash, plan->numeric_fingerprint };
    enum { HASHES = sizeof(own) / sizeof(own[0]) };
    uint64_t *all;
    const int32_t ranks = coh_world_size(world);
    if (coh_mesh_rank_count(&plan->layout.mesh) == 1)
        return COH_OK;
    for (int kind = 0; kind < COH_PROGRAM_KIND_COUNT; kind++)
        own[2 + kind] = coh_program_hash(&plan->layout, &plan->programs[kind]);
    COH_TRY(COH_ALLOC(HASHES * ranks, &all));
    coh_status status = coh_world_gather(world, own, sizeof(own), all);
    for (int32_t rank = 1; rank < ranks && status == COH_OK; rank++)
        if (memcmp(all, all + HASHES * rank, sizeof(own)) != 0)
            status =
                coh_fail(COH_ERR_ARGUMENT,
                         "rank %" PRId32 " has program %016" PRIx64 " and numeric plan %016" PRIx64
                         ", rank 0 has %016" PRIx64 " and %016" PRIx64
                         ": give all ranks one model, the same options and kernels",
                         rank, all[HASHES * rank], all[HASHES * rank + 1], all[0], all[1]);
    coh_free(all);
    return status;
}

static coh_status create_all(coh_engine *engine, const coh_engine_device *device)
{
    const coh_store_ops *store_ops = device->store_ops;
    COH_TRY(check_options(engine->plan, &engine->options));
    COH_TRY(check_world(engine->plan, engine->options.world));
    COH_TRY(compare_plans(engine->plan, engine->options.world));
    COH_TRY(coh_parameter_groups_check(engine->plan->graph, &engine->options));
    COH_TRY(check_device(engine->plan, device));
    COH_TRY(coh_small_graph_check(engine->plan, engine->options.small_graph));
    if (store_ops == NULL)
        COH_TRY(find_store(engine->options.store, &store_ops));
    COH_TRY(coh_ledger_create(&engine->ledger));
    COH_TRY(coh_pool_create(engine->options.thread_count, &engine->pool));
    COH_TRY(coh_engine_create_tables(engine));
    const coh_step_config config = { .plan = engine->plan,
                                     .options = &engine->options,
                                     .device_ops = device->ops,
                                     .device_index = device->index,
                                     .device_kernels = device->kernels,
                                     .driver = device->driver,
                                     .nccl = device->nccl,
                                     .store_ops = store_ops,
                                     .pool = engine->pool,
                                     .ledger = engine->ledger };
    COH_TRY(coh_step_create(&config, &engine->step));
    if (engine->options.small_graph != NULL)
        coh_graph_close(engine->options.small_graph);
    tell_store(engine);
    tell_unused(engine);
    return COH_OK;
}

coh_status coh_engine_create(const coh_plan *plan, const coh_engine_options *options,
                             coh_engine **out_engine)
{
    COH_NEED(plan);
    COH_NEED(out_engine);
    *out_engine = NULL;
    COH_NEED_STRUCT(coh_engine_options, options);
    coh_engine_options known;
    coh_engine_options_init(&known);
    coh_struct_read(options, &known, sizeof(known));
    coh_engine_device device;
    coh_status status = coh_device_find(known.device, &device);
    if (status == COH_OK)
        status = coh_engine_create_on(plan, &known, &device, out_engine);
    if (known.world == NULL)
        return status;
    return coh_transport_end(known.world->transport,
                             status); /* the other ranks wait for this one */
}

static void destroy(coh_engine *engine)
{
    coh_step_destroy(engine->step);
    coh_engine_destroy_tables(engine);
    coh_pool_destroy(engine->pool);
    coh_ledger_destroy(engine->ledger);
    coh_free(engine);
}

coh_status coh_engine_create_on(const coh_plan *plan, const coh_engine_options *options,
                                const coh_engine_device *device, coh_engine **out_engine)
{
    *out_engine = NULL;
    coh_engine *engine;
    COH_TRY(COH_ALLOC(1, &engine));
    engine->process = getpid();
    engine->plan = plan;
    engine->options = *options;
    engine->ran = plan->graph;
    coh_input_limits_find(plan->graph, engine->limits);
    coh_status status = create_all(engine, device);
    if (status != COH_OK) {
        destroy(engine);
        return status;
    }
    engine->options.groups = NULL; /* owned by the caller */
    engine->options.hyperparameters = NULL;
    *out_engine = engine;
    return COH_OK;
}

void coh_engine_destroy(coh_engine *engine)
{
    if (engine == NULL || coh_engine_enter(engine, __func__) != COH_OK)
        return; /* freeing it during another call, or in a fork, could only crash or hang */
    destroy(engine);
}

/* ---- running ---- */

coh_status coh_engine_check_ready(const coh_engine *engine, const char *what)
{
    COH_TRY(coh_engine_check_alive(engine));
    if (!engine->is_ready)
        return coh_fail(COH_ERR_ARGUMENT, "%s: parameters have no values: init or load first",
                        what);
    return COH_OK;
}

coh_status coh_engine_check_idle(const coh_engine *engine)
{
    COH_TRY(coh_engine_check_alive(engine));
    const char *call = atomic_load_explicit(&engine->call_under_way, memory_order_relaxed);
    if (engine->under_way_count > 0)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%s was called while %d step%s under way: call coh_engine_wait for "
                        "%s first",
                        call != NULL ? call : "the engine", engine->under_way_count,
                        engine->under_way_count == 1 ? " is" : "s are",
                        engine->under_way_count == 1 ? "it" : "each");
    return COH_OK;
}

coh_status coh_engine_run_program(coh_engine *engine, coh_program_kind kind,
                                  const coh_step_feed *feed, coh_step_result *out_result)
{
    COH_TRY(coh_engine_check_idle(engine));
    uint64_t ticket;
    coh_step_result result;
    coh_status status = coh_step_submit(engine->step, kind, feed, &ticket);
    if (status == COH_OK)
        status = coh_step_quiet(engine->step);
    if (status == COH_OK)
        status = coh_step_await(engine->step, ticket, &result);
    if (status == COH_OK && out_result != NULL)
        *out_result = result;
    if (coh_step_failure(engine->step) != COH_OK)
        coh_step_halt(engine->step); /* no thread may use the visitor's context now */
    return status;
}

/* Refuses a step that could change nothing. */
static coh_status check_trains(const coh_engine *engine)
{
    const char *first;
    if (engine->trained_count > 0)
        return COH_OK;
    if (count_unused(engine->plan, &first) > 0)
        return coh_fail(COH_ERR_ARGUMENT,
                        "a step would change nothing: the loss does not depend on '%s', nor on any "
                        "other parameter that is not frozen: use it in the graph, or call "
                        "coh_engine_evaluate",
                        first);
    return coh_fail(
        COH_ERR_ARGUMENT,
        "a step would change nothing: every parameter of the graph is frozen, or it has "
        "none: unfreeze one, or call coh_engine_evaluate");
}

static coh_status check_training(const coh_engine *engine, const coh_step_input *input)
{
    COH_TRY(coh_engine_check_ready(engine, "step"));
    if (engine->plan->options.mode != COH_PLAN_TRAIN)
        return coh_fail(COH_ERR_ARGUMENT, "this plan does not train: use coh_engine_evaluate");
    if (input->graph != NULL)
        return coh_fail(COH_ERR_ARGUMENT,
                        "a training step runs the plan's graph: leave graph NULL");
    COH_TRY(check_trains(engine));
    return coh_input_check(engine->plan->graph, engine->limits, input,
                           engine->plan->layout.microbatch_count);
}

static coh_status submit(coh_engine *engine, const coh_step_input *given)
{
    coh_step_input known = { 0 };
    const coh_step_input *input = &known;
    coh_struct_read(given, &known, sizeof(known));
    COH_TRY(check_training(engine, input));
    if (engine->under_way_count == COH_BODIES_MOST)
        return coh_fail(COH_ERR_ARGUMENT, "%d steps are under way already: wait for one",
                        COH_BODIES_MOST);
    if (engine->under_way_count > 0)
        COH_TRY(coh_engine_decide(engine));
    const coh_step_feed feed = { .input = input,
                                 .microbatch_count = engine->plan->layout.microbatch_count };
    COH_TRY(coh_step_submit(engine->step, COH_PROGRAM_BODY, &feed,
                            &engine->under_way[engine->under_way_count]));
    engine->under_way_count++;
    return COH_OK;
}

coh_status coh_engine_submit(coh_engine *engine, const coh_step_input *input)
{
    COH_NEED(engine);
    COH_NEED_STRUCT(coh_step_input, input);
    COH_TRY(coh_engine_enter(engine, __func__));
    return coh_engine_leave(engine, submit(engine, input));
}

/* Takes the result of the oldest body under way. */
static coh_status take_result(coh_engine *engine, coh_step_result *out_result)
{
    if (!engine->verdict.is_made)
        return coh_step_await(engine->step, engine->under_way[0], out_result);
    engine->verdict.is_made = 0;
    *out_result = engine->verdict.result;
    if (engine->verdict.status != COH_OK)
        coh_error_restore(engine->verdict.text);
    return engine->verdict.status;
}

/* Notes whether a step has changed nothing. One later body may have been under way with it. */
static void note_broken(coh_engine *engine, const coh_step_result *result)
{
    if (!result->finite) {
        engine->is_broken = 1;
        engine->steps_since = 0;
        engine->broken_count = result->applied_count;
    } else if (++engine->steps_since > 1) {
        engine->is_broken = 0;
    }
}

static coh_status wait_oldest(coh_engine *engine, coh_step_result *out_result)
{
    if (engine->failure_is_told)
        COH_TRY(coh_engine_check_alive(engine));
    if (engine->under_way_count == 0)
        return coh_fail(COH_ERR_ARGUMENT, "no step is under way");
    coh_step_result result = { 0 };
    COH_TRY(coh_engine_decide(engine));
    const coh_status status = take_result(engine, &result);
    COH_STRUCT_FILL(result, out_result);
    if (status != COH_OK)
        COH_TRY(coh_step_failure(engine->step)); /* else a kind failed: ended only this step */
    note_broken(engine, &result);
    engine->under_way[0] = engine->under_way[1];
    engine->under_way_count--;
    return status;
}

coh_status coh_engine_wait(coh_engine *engine, coh_step_result *out_result)
{
    COH_NEED(engine);
    COH_NEED_STRUCT(coh_step_result, out_result);
    COH_TRY(coh_engine_enter(engine, __func__));
    return coh_engine_leave(engine, wait_oldest(engine, out_result));
}

static coh_status wait_for(coh_engine *engine, uint32_t milliseconds, int *out_is_done)
{
    if (engine->failure_is_told)
        COH_TRY(coh_engine_check_alive(engine));
    if (engine->under_way_count == 0)
        return coh_fail(COH_ERR_ARGUMENT, "no step is under way");
    *out_is_done = engine->verdict.is_made || coh_step_await_for(engine->step, engine->under_way[0],
                                                                 (uint64_t)milliseconds * 1000000u);
    return COH_OK;
}

coh_status coh_engine_wait_for(coh_engine *engine, uint32_t milliseconds, int *out_is_done)
{
    COH_NEED(engine);
    COH_NEED(out_is_done);
    COH_TRY(coh_engine_enter(engine, __func__));
    return coh_engine_leave(engine, wait_for(engine, milliseconds, out_is_done));
}

void coh_engine_ask_stop(coh_engine *engine)
{
    if (engine != NULL)
        coh_step_ask_stop(engine->step);
}

static coh_status run_step(coh_engine *engine, const coh_step_input *input,
                           coh_step_result *out_result)
{
    COH_TRY(coh_engine_check_idle(engine));
    COH_TRY(submit(engine, input));
    return wait_oldest(engine, out_result);
}

coh_status coh_engine_step(coh_engine *engine, const coh_step_input *input,
                           coh_step_result *out_result)
{
    COH_NEED(engine);
    COH_NEED_STRUCT(coh_step_input, input);
    COH_NEED_STRUCT(coh_step_result, out_result);
    COH_TRY(coh_engine_enter(engine, __func__));
    return coh_engine_leave(engine, run_step(engine, input, out_result));
}

coh_status coh_engine_apply_pending(coh_engine *engine)
{
    COH_TRY(coh_engine_check_idle(engine));
    COH_TRY(coh_step_quiet(engine->step));
    coh_cells cells;
    if (engine->plan->programs[COH_PROGRAM_DRAIN].instruction_count == 0)
        return COH_OK;
    COH_TRY(coh_step_get_cells(engine->step, &cells));
    if (!cells.pending)
        return COH_OK;
    return coh_engine_run_program(engine, COH_PROGRAM_DRAIN, &(coh_step_feed){ 0 }, NULL);
}

coh_status coh_engine_drain(coh_engine *engine)
{
    COH_NEED(engine);
    COH_TRY(coh_engine_enter(engine, __func__));
    return coh_engine_leave(engine, coh_engine_apply_pending(engine));
}

static coh_status evaluate(coh_engine *engine, const coh_step_input *given, double *out_loss)
{
    coh_step_input known = { 0 };
    const coh_step_input *input = &known;
    coh_struct_read(given, &known, sizeof(known));
    COH_TRY(coh_engine_check_ready(engine, "evaluate"));
    const coh_graph *graph = input->graph != NULL ? input->graph : engine->plan->graph;
    if (graph != engine->plan->graph && graph != engine->options.small_graph)
        return coh_fail(
            COH_ERR_ARGUMENT,
            "the input's graph is neither the plan's nor the engine's small graph: give "
            "one of them, or NULL for the plan's");
    COH_TRY(coh_input_check(graph, engine->limits, input, 1));
    engine->ran = graph;
    int trains = engine->plan->options.mode == COH_PLAN_TRAIN;
    if (trains)
        COH_TRY(coh_engine_apply_pending(engine));
    const coh_step_feed feed = { .input = input, .microbatch_count = 1 };
    COH_TRY(coh_engine_run_program(engine, trains ? COH_PROGRAM_EVALUATE : COH_PROGRAM_BODY, &feed,
                                   NULL));
    double loss;
    COH_TRY(coh_step_first_loss(engine->step, &loss));
    if (out_loss != NULL)
        *out_loss = loss * (double)coh_loss_factor(input);
    return COH_OK;
}

coh_status coh_engine_evaluate(coh_engine *engine, const coh_step_input *input, double *out_loss)
{
    COH_NEED(engine);
    COH_NEED_STRUCT(coh_step_input, input);
    COH_TRY(coh_engine_enter(engine, __func__));
    return coh_engine_leave(engine, evaluate(engine, input, out_loss));
}

static coh_status find_output(coh_engine *engine, coh_tensor tensor, const void **out_data,
                              size_t *out_bytes)
{
    const coh_layout *layout = &engine->plan->layout;
    COH_TRY(coh_engine_check_alive(engine));
    COH_TRY(coh_step_quiet(engine->step));
    for (uint32_t i = 0; i < layout->object_count; i++) {
        const coh_object *object = &layout->objects[i];
        if (object->stream != COH_STREAM_OUTPUT || object->owner != tensor.index)
            continue;
        const coh_shape *shape = &engine->ran->tensors[tensor.index].shape;
        COH_TRY(coh_step_look(engine->step, (int32_t)i, out_data));
        *out_bytes = (size_t)coh_shape_elements(shape) * coh_dtype_bytes(shape->dtype);
        return COH_OK;
    }
    return coh_fail(COH_ERR_ARGUMENT, "tensor %d was not named by coh_graph_output", tensor.index);
}

coh_status coh_engine_output(coh_engine *engine, coh_tensor tensor, const void **out_data,
                             size_t *out_bytes)
{
    COH_NEED(engine);
    COH_NEED(out_data);
    COH_NEED(out_bytes);
    *out_data = NULL;
    *out_bytes = 0;
    COH_TRY(coh_engine_enter(engine, __func__));
    return coh_engine_leave(engine, find_output(engine, tensor, out_data, out_bytes));
}

/* ---- scan ---- */

/* Names a finding's subject, such as "gradient of 'wte.weight'". */
static void name_finding(const coh_graph *graph, const coh_scan_finding *finding, char *text,
                         size_t text_bytes)
{
    if (finding->operator_index < 0) {
        snprintf(text, text_bytes, "a sum of gradients");
        return;
    }
    const coh_graph_op_entry *op = &graph->ops[finding->operator_index];
    if (finding->role == COH_ROLE_PARAMETER_GRAD)
        snprintf(text, text_bytes, "the gradient of parameter '%s'",
                 graph->parameters[op->parameter[finding->port]].name);
    else if (finding->role == COH_ROLE_INPUT_GRAD)
        snprintf(text, text_bytes, "the gradient of tensor '%s'",
                 graph->tensors[op->input[finding->port]].name);
    else
        snprintf(text, text_bytes, "tensor '%s'", graph->tensors[op->output[finding->port]].name);
}

static void write_sentence(const coh_engine *engine, int is_finite, char *out_sentence)
{
    enum { SENTENCE_BYTES = 256 };
    const coh_graph *graph = engine->plan->graph;
    coh_scan_finding finding;
    if (!coh_step_scan_finding(engine->step, &finding)) {
        snprintf(out_sentence, SENTENCE_BYTES,
                 is_finite ? "run again, every value was finite"
                           : "every value is finite, but their norm or sum is not");
        return;
    }
    char what[160];
    name_finding(graph, &finding, what, sizeof(what));
    snprintf(out_sentence, SENTENCE_BYTES,
             "first not finite: %.140s, written by operator '%.60s' (%s)", what,
             finding.operator_index < 0 ? "-" : graph->ops[finding.operator_index].name,
             coh_opcode_name(finding.opcode));
}

coh_status coh_engine_set_applied(coh_engine *engine, uint64_t applied_count)
{
    coh_cells cells;
    COH_TRY(coh_step_get_cells(engine->step, &cells));
    cells.pending = 0;
    cells.applied_count = applied_count;
    return coh_step_put_cells(engine->step, &cells);
}

/* Can the parameters of the broken step be had again? They can while a later update is pending, and
 * in a plan that speculates until the next body. */
static coh_status check_broken(coh_engine *engine, uint64_t applied_count)
{
    coh_cells cells;
    if (!engine->is_broken || applied_count != engine->broken_count)
        return coh_fail(COH_ERR_ARGUMENT,
                        "a scan or an undo goes back to a step that changed nothing, and %s: call "
                        "it after such a step, with its applied_count",
                        engine->is_broken ? "the last such one has another applied_count"
                                          : "there is none to go back to");
    COH_TRY(coh_step_get_cells(engine->step, &cells));
    if (cells.applied_count == applied_count || cells.pending ||
        coh_plan_speculates(&engine->plan->options))
        return COH_OK;
    return coh_fail(
        COH_ERR_ARGUMENT,
        "the update of the step after the broken one has been made, by a hash, a save or"
        " a fetch: go back before these, or resume from the last checkpoint");
}

/* Takes back a body that ran after the broken step. */
static coh_status go_back(coh_engine *engine, uint64_t applied_count)
{
    COH_TRY(coh_engine_check_idle(engine));
    if (!engine->plan->options.deferred_update)
        return coh_fail(COH_ERR_ARGUMENT, "with updates in backward the broken values have gone "
                                          "out: resume from the last checkpoint");
    COH_TRY(coh_step_quiet(engine->step));
    COH_TRY(check_broken(engine, applied_count));
    return coh_engine_take_back(engine, applied_count);
}

static coh_status scan(coh_engine *engine, const coh_step_input *given, uint64_t applied_count,
                       char *out_sentence)
{
    coh_step_input known = { 0 };
    const coh_step_input *input = &known;
    coh_struct_read(given, &known, sizeof(known));
    COH_TRY(check_training(engine, input));
    COH_TRY(go_back(engine, applied_count));
    const coh_step_feed feed = { .input = input,
                                 .microbatch_count = engine->plan->layout.microbatch_count,
                                 .scan = 1 };
    coh_step_result result;
    COH_TRY(coh_engine_run_program(engine, COH_PROGRAM_BODY, &feed, &result));
    if (coh_plan_speculates(&engine->plan->options))
        COH_TRY(coh_step_undo(engine->step));
    COH_TRY(coh_engine_set_applied(engine, applied_count));
    engine->steps_since = 1;
    write_sentence(engine, result.finite, out_sentence);
    return COH_OK;
}

coh_status coh_engine_scan(coh_engine *engine, const coh_step_input *input, uint64_t applied_count,
                           char *out_sentence)
{
    COH_NEED(engine);
    COH_NEED(out_sentence);
    COH_NEED_STRUCT(coh_step_input, input);
    out_sentence[0] = '\0';
    COH_TRY(coh_engine_enter(engine, __func__));
    return coh_engine_leave(engine, scan(engine, input, applied_count, out_sentence));
}

coh_status coh_engine_undo(coh_engine *engine)
{
    COH_NEED(engine);
    COH_TRY(coh_engine_enter(engine, __func__));
    return coh_engine_leave(engine, go_back(engine, engine->broken_count));
}
