/* Data that enters and leaves an engine: first values, hash, checkpoints, single parameters. Each
 * is a program (INIT, IMPORT, HASH, SAVE, EDIT) that shows chunk after chunk to a visitor, so a
 * model that does not fit in memory is saved through one chunk. A visitor sees f32 whatever the
 * plan's dtype, so hash and checkpoint do not depend on the dtype. Next: instruction_chunk.c,
 * checkpoint_writer.h.
 *
 * A failing visitor reports to its caller, not to the executor: a full disk during a save must not
 * end the run. It ignores the chunks that still come. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/struct_bytes.h"
#include "cohobate/checkpoint.h"
#include "comm/world.h"
#include "engine/engine_state.h"
#include "planner/comm_parts.h"
#include "planner/fingerprint.h"

/* ---- tables ---- */

_Static_assert(COH_LOGICAL_STREAMS >= COH_PLAN_OPTIMIZERS * COH_OPTIMIZER_STREAMS,
               "a plan's optimizers may have more streams than a table");

/* Adds a stream to the list, unless it is there, and returns its index. */
static int32_t list_stream(const coh_state_stream *stream, coh_state_stream *streams,
                           int32_t *count)
{
    for (int32_t i = 0; i < *count; i++)
        if (strcmp(streams[i].name, stream->name) == 0)
            return i;
    streams[*count] = *stream;
    return (*count)++;
}

/* Lists the tensors of a checkpoint, in the order of layout->parameters, and the streams of their
 * optimizers; free *out_tensors with coh_free. */
static coh_status list_tensors(const coh_plan *plan, coh_logical_tensor **out_tensors,
                               coh_state_stream streams[COH_LOGICAL_STREAMS],
                               coh_logical_table *out_table)
{
    const coh_layout *layout = &plan->layout;
    int32_t stream_count = 0;
    COH_TRY(COH_ALLOC(layout->parameter_count, out_tensors));
    for (uint32_t i = 0; i < layout->parameter_count; i++) {
        const coh_parameter_layout *parameter = &layout->parameters[i];
        const coh_graph_parameter *facts = &plan->graph->parameters[parameter->parameter];
        const int32_t index = layout->groups[parameter->group].optimizer;
        const coh_optimizer *optimizer = index >= 0 ? layout->optimizers[index] : NULL;
        coh_logical_tensor *tensor = &(*out_tensors)[i];
        *tensor =
            (coh_logical_tensor){ .name = facts->name,
                                  .shape = facts->facts.shape,
                                  .elements = parameter->elements,
                                  .optimizer = optimizer != NULL ? optimizer->name : NULL,
                                  .stream_count = optimizer != NULL ? optimizer->stream_count : 0 };
        tensor->shape.dtype = COH_DTYPE_F32; /* visitors see f32 */
        for (int32_t k = 0; k < tensor->stream_count; k++)
            tensor->streams[k] = list_stream(&optimizer->streams[k], streams, &stream_count);
    }
    *out_table =
        (coh_logical_table){ *out_tensors, layout->parameter_count, streams, stream_count };
    return COH_OK;
}

coh_status coh_engine_create_tables(coh_engine *engine)
{
    COH_TRY(list_tensors(engine->plan, &engine->tensors, engine->streams, &engine->table));
    for (uint32_t i = 0; i < engine->table.tensor_count; i++)
        engine->elements += engine->tensors[i].elements;
    COH_TRY(coh_logical_hash_create(&engine->table, engine->pool, &engine->hash));
    if (engine->plan->programs[COH_PROGRAM_SAVE].instruction_count == 0)
        return COH_OK;
    COH_TRY(coh_checkpoint_writer_create(&engine->table, engine->pool, &engine->writer));
    return coh_background_save_init(&engine->saver, engine->writer);
}

coh_status coh_engine_save_bytes(const coh_plan *plan, uint64_t *out_bytes)
{
    coh_logical_tensor *tensors = NULL;
    coh_state_stream streams[COH_LOGICAL_STREAMS];
    coh_logical_table table;
    coh_checkpoint_writer *writer = NULL;
    if (!plan || !out_bytes)
        return coh_fail(COH_ERR_ARGUMENT, "the bytes of a checkpoint need a plan and a place");
    coh_status status = list_tensors(plan, &tensors, streams, &table);
    if (status == COH_OK)
        status = coh_checkpoint_writer_create(&table, NULL, &writer);
    if (status == COH_OK)
        *out_bytes = coh_checkpoint_writer_bytes(writer);
    coh_checkpoint_writer_destroy(writer);
    coh_free(tensors);
    return status;
}

void coh_engine_destroy_tables(coh_engine *engine)
{
    coh_background_save_fini(&engine->saver);
    coh_checkpoint_writer_destroy(engine->writer);
    coh_logical_hash_destroy(engine->hash);
    coh_free(engine->tensors);
}

/* ---- visiting ---- */

/* A tensor's number in the checkpoint that is loaded, and the numbers of its state streams. */
typedef struct load_tensor {
    int32_t index;
    int32_t streams[COH_OPTIMIZER_STREAMS]; /* in the order of the plan's optimizer */
} load_tensor;

typedef struct visit_context {
    coh_engine *engine;
    coh_operation operation;
    uint64_t done, told; /* elements of parameters visited; of those, told to `progress` */
    coh_status status;   /* first failure; its text comes from another thread and is kept */
    char text[COH_ERROR_TEXT_BYTES];
    /* Processes one run of elements. */
    coh_status (*run)(struct visit_context *context, const coh_chunk_visit *visit);
    /* Does this visit want the run? */
    int (*wants)(const struct visit_context *context, const coh_chunk_visit *visit);
    /* for init_from and load_from; NULL: none */
    coh_parameter_source source;
    void *source_context;
    /* for load */
    coh_checkpoint *checkpoint;
    const load_tensor *load; /* by layout parameter */
    int reads_states;
    /* for fetch: one part of one stream of one parameter */
    uint32_t parameter;
    coh_stream stream;
    int part;
    uint32_t bytes_per_block, elements_per_block;
    char *data;
    /* for put: elements [element_begin, element_end) of `parameter` */
    uint64_t element_begin, element_end;
    const float *values;
} visit_context;

/* Counts a visit of values as done, and tells the caller of each hundredth. */
static void tell_progress(visit_context *context, const coh_chunk_visit *visit)
{
    const coh_engine *engine = context->engine;
    if (context->status != COH_OK || visit->stream != COH_STREAM_WORK)
        return;
    context->done += visit->count;
    if (engine->options.progress == NULL ||
        (context->done < engine->elements &&
         context->done - context->told < engine->elements / 100))
        return;
    context->told = context->done;
    engine->options.progress(engine->options.progress_context, context->operation, context->done,
                             engine->elements);
}

static int visit_wants(void *argument, const coh_chunk_visit *visit)
{
    visit_context *context = argument;
    const int is_wanted =
        context->status == COH_OK && context->run != NULL && context->wants(context, visit);
    if (!is_wanted)
        tell_progress(context, visit);
    return is_wanted;
}

static coh_status visit_run(void *argument, const coh_chunk_visit *visit)
{
    visit_context *context = argument;
    context->status = context->run(context, visit);
    if (context->status != COH_OK)
        coh_error_save(context->text);
    tell_progress(context, visit);
    return COH_OK;
}

/* Runs a visited program. Returns the first failure of executor or visitor. */
static coh_status run_visit(coh_engine *engine, coh_program_kind kind, visit_context *context,
                            const coh_step_input *input)
{
    context->engine = engine;
    context->status = COH_OK;
    const coh_step_feed feed = { .input = input,
                                 .visitor = visit_run,
                                 .visitor_wants = visit_wants,
                                 .visitor_context = context };
    COH_TRY(coh_engine_run_program(engine, kind, &feed, NULL));
    if (context->status != COH_OK)
        coh_error_restore(context->text);
    return context->status;
}

static int wants_values(const visit_context *context, const coh_chunk_visit *visit)
{
    (void)context;
    return visit->stream == COH_STREAM_WORK;
}

static int wants_values_and_states(const visit_context *context, const coh_chunk_visit *visit)
{
    (void)context;
    return visit->stream != COH_STREAM_GRAD;
}

/* ---- first values ---- */

static coh_status source_run(visit_context *context, const coh_chunk_visit *visit)
{
    const coh_layout *layout = &context->engine->plan->layout;
    coh_parameter parameter = { layout->parameters[visit->parameter].parameter };
    return context->source(context->source_context, parameter,
                           context->engine->tensors[visit->parameter].name, visit->element_begin,
                           visit->count, visit->data);
}

/* `source` may be NULL: the kinds' own first values. */
static coh_status init_from(coh_engine *engine, uint64_t seed, coh_parameter_source source,
                            void *context)
{
    COH_TRY(coh_engine_check_idle(engine, "an init"));
    COH_TRY(coh_step_quiet(engine->step));
    engine->is_ready = 0;
    COH_TRY(coh_step_clear_pinned(engine->step));
    visit_context visit = { .operation = COH_OPERATION_INIT,
                            .run = source != NULL ? source_run : NULL, /* NULL: wants nothing */
                            .wants = wants_values,
                            .source = source,
                            .source_context = context };
    COH_TRY(run_visit(engine, COH_PROGRAM_INIT, &visit,
                      &(coh_step_input){ .struct_bytes = sizeof(coh_step_input), .seed = seed }));
    engine->is_ready = 1;
    return COH_OK;
}

coh_status coh_engine_init_from(coh_engine *engine, uint64_t seed, coh_parameter_source source,
                                void *context)
{
    COH_NEED(engine);
    COH_NEED(source);
    return init_from(engine, seed, source, context);
}

coh_status coh_engine_init(coh_engine *engine, uint64_t seed)
{
    COH_NEED(engine);
    return init_from(engine, seed, NULL, NULL);
}

/* ---- hash ---- */

static coh_status hash_run(visit_context *context, const coh_chunk_visit *visit)
{
    return coh_logical_hash_put(context->engine->hash, visit->part, visit->parameter,
                                visit->element_begin, visit->count, visit->data, NULL);
}

coh_status coh_engine_hash(coh_engine *engine, uint64_t *out_hash)
{
    COH_NEED(engine);
    COH_NEED(out_hash);
    *out_hash = 0;
    COH_TRY(coh_engine_check_ready(engine, "hash"));
    COH_TRY(coh_engine_drain(engine));
    visit_context visit = { .operation = COH_OPERATION_HASH,
                            .run = hash_run,
                            .wants = wants_values_and_states };
    coh_logical_hash_begin(engine->hash);
    COH_TRY(run_visit(engine, COH_PROGRAM_HASH, &visit, NULL));
    coh_cells cells;
    COH_TRY(coh_step_get_cells(engine->step, &cells));
    return coh_logical_hash_finish(engine->hash, cells.applied_count, out_hash);
}

/* ---- save ---- */

static coh_status save_run(visit_context *context, const coh_chunk_visit *visit)
{
    return coh_checkpoint_writer_put(context->engine->writer, visit->part, visit->parameter,
                                     visit->element_begin, visit->count, visit->data);
}

/* Returns 1 for a rank above 0 of several: rank 0 saves. */
static int is_follower(const coh_engine *engine)
{
    return coh_layout_rank_count(&engine->plan->layout) > 1 && engine->options.world != NULL &&
           coh_world_rank(engine->options.world) > 0;
}

/* Returns 1 if ranks keep parts, which all of them gather in a save. */
static int has_parts(const coh_engine *engine)
{
    return coh_sent_partials_bytes(&engine->plan->layout) > 0;
}

/* Sends the parts that other ranks gather in their save, and keeps nothing. */
static coh_status take_part(coh_engine *engine)
{
    visit_context visit = { .operation = COH_OPERATION_SAVE, .wants = wants_values_and_states };
    COH_TRY(coh_engine_check_ready(engine, "save"));
    COH_TRY(coh_engine_drain(engine));
    return has_parts(engine) ? run_visit(engine, COH_PROGRAM_SAVE, &visit, NULL) : COH_OK;
}

/* The other ranks are in the same save: one that fails on rank 0 before it begins must not let them
 * wait. Returns that failure. */
static coh_status fail_in_step(coh_engine *engine, coh_status status)
{
    char text[COH_ERROR_TEXT_BYTES];
    if (!has_parts(engine))
        return status;
    coh_error_save(text);
    const coh_status other = take_part(engine);
    if (other != COH_OK)
        return other;
    coh_error_restore(text);
    return status;
}

/* Begins to write, if there is something to save and no other save is under way. */
static coh_status begin_write(coh_engine *engine, const char *path, const coh_checkpoint_note *note)
{
    if (engine->writer == NULL)
        return coh_fail(COH_ERR_ARGUMENT, "this plan only reads its parameters: nothing to save");
    if (engine->saver.is_under_way)
        return coh_fail(COH_ERR_ARGUMENT, "an earlier save is under way, and an engine makes one "
                                          "at a time: call coh_engine_save_wait first");
    COH_TRY(coh_engine_drain(engine));
    return coh_checkpoint_writer_begin(engine->writer, path, note->json);
}

/* Writes all numbers of the last step into the writer's files. */
static coh_status write_numbers(coh_engine *engine, const char *path,
                                const coh_checkpoint_note *note, coh_checkpoint_seal *out_seal)
{
    coh_checkpoint_note known = { 0 };
    coh_struct_read(note, &known, sizeof(known));
    note = &known;
    COH_TRY(coh_engine_check_ready(engine, "save"));
    const coh_status begun = begin_write(engine, path, note);
    if (begun != COH_OK)
        return fail_in_step(engine, begun);
    visit_context visit = { .operation = COH_OPERATION_SAVE,
                            .run = save_run,
                            .wants = wants_values_and_states };
    coh_cells cells = { 0 };
    coh_status status = run_visit(engine, COH_PROGRAM_SAVE, &visit, NULL);
    if (status == COH_OK)
        status = coh_step_get_cells(engine->step, &cells);
    if (status != COH_OK) {
        coh_checkpoint_writer_abort(engine->writer);
        return status;
    }
    *out_seal = (coh_checkpoint_seal){
        .step = note->step,
        .applied_count = cells.applied_count,
        .grad_norm = engine->plan->options.deferred_update ? 0 : cells.previous_norm,
        .numeric_fingerprint = engine->plan->numeric_fingerprint,
    };
    return COH_OK;
}

coh_status coh_engine_save(coh_engine *engine, const char *path, const coh_checkpoint_note *note)
{
    COH_NEED(engine);
    COH_NEED(path);
    COH_NEED_STRUCT(coh_checkpoint_note, note);
    coh_checkpoint_seal seal;
    if (is_follower(engine))
        return take_part(engine);
    COH_TRY(write_numbers(engine, path, note, &seal));
    return coh_checkpoint_writer_finish(engine->writer, &seal, NULL);
}

coh_status coh_engine_save_begin(coh_engine *engine, const char *path,
                                 const coh_checkpoint_note *note)
{
    COH_NEED(engine);
    COH_NEED(path);
    COH_NEED_STRUCT(coh_checkpoint_note, note);
    coh_checkpoint_seal seal;
    if (is_follower(engine))
        return take_part(engine);
    COH_TRY(write_numbers(engine, path, note, &seal));
    coh_background_save_start(&engine->saver, &seal);
    return COH_OK;
}

coh_status coh_engine_save_is_done(const coh_engine *engine, int *out_is_done)
{
    COH_NEED(engine);
    COH_NEED(out_is_done);
    *out_is_done = coh_background_save_is_done(&engine->saver);
    return COH_OK;
}

coh_status coh_engine_save_wait(coh_engine *engine)
{
    COH_NEED(engine);
    return coh_background_save_take(&engine->saver);
}

/* ---- load ---- */

/* Compares dimensions only: a checkpoint does not depend on dtypes. */
static int same_dims(const coh_shape *a, const coh_shape *b)
{
    if (a->rank != b->rank)
        return 0;
    for (int32_t d = 0; d < a->rank; d++)
        if (a->dim[d] != b->dim[d])
            return 0;
    return 1;
}

/* Finds the streams of a trained tensor in the checkpoint, by name. */
static coh_status find_streams(const coh_checkpoint *checkpoint, const coh_engine *engine,
                               const coh_logical_tensor *wanted, const coh_checkpoint_tensor *found,
                               load_tensor *out)
{
    if (found->optimizer == NULL)
        return coh_fail(COH_ERR_ARGUMENT, "the checkpoint holds no optimizer states of tensor '%s'",
                        wanted->name);
    if (strcmp(found->optimizer, wanted->optimizer) != 0)
        return coh_fail(COH_ERR_ARGUMENT,
                        "the checkpoint's states of tensor '%s' are those of optimizer %s, and "
                        "this plan trains it with %s: load the weights alone, or plan with %s",
                        wanted->name, found->optimizer, wanted->optimizer, found->optimizer);
    for (int32_t k = 0; k < wanted->stream_count; k++) {
        const coh_state_stream *stream = &engine->streams[wanted->streams[k]];
        out->streams[k] = -1;
        for (int32_t i = 0; i < found->stream_count; i++) {
            coh_state_stream other;
            COH_TRY(coh_checkpoint_stream_at(checkpoint, found->streams[i], &other));
            if (strcmp(other.name, stream->name) == 0 &&
                other.bytes_per_block == stream->bytes_per_block &&
                other.elements_per_block == stream->elements_per_block)
                out->streams[k] = found->streams[i];
        }
        if (out->streams[k] < 0)
            return coh_fail(COH_ERR_ARGUMENT,
                            "the checkpoint has no stream %s of this form for tensor '%s': load "
                            "the weights alone",
                            stream->name, wanted->name);
    }
    return COH_OK;
}

static coh_status find_tensor(const coh_checkpoint *checkpoint, int32_t tensor_count,
                              const coh_engine *engine, uint32_t parameter, int reads_states,
                              load_tensor *out)
{
    const coh_logical_tensor *wanted = &engine->tensors[parameter];
    /* A checkpoint of the same model has the same order: its tensor is the first one asked for. */
    for (int32_t n = 0; n < tensor_count; n++) {
        const int32_t i = (int32_t)(((int64_t)parameter + n) % tensor_count);
        coh_checkpoint_tensor found;
        COH_TRY(coh_checkpoint_tensor_at(checkpoint, i, &found));
        if (strcmp(found.name, wanted->name) != 0)
            continue;
        if (!same_dims(&found.shape, &wanted->shape))
            return coh_fail(COH_ERR_CORRUPT,
                            "the checkpoint's tensor '%s' has another shape than the model's: it "
                            "was made for another model",
                            wanted->name);
        out->index = i;
        return reads_states && wanted->optimizer != NULL
                   ? find_streams(checkpoint, engine, wanted, &found, out)
                   : COH_OK;
    }
    return coh_fail(COH_ERR_CORRUPT,
                    "the checkpoint has no tensor '%s': it was made for another model",
                    wanted->name);
}

static int load_wants(const visit_context *context, const coh_chunk_visit *visit)
{
    return visit->stream == COH_STREAM_WORK ||
           (visit->stream == COH_STREAM_STATE && context->reads_states);
}

static coh_status load_run(visit_context *context, const coh_chunk_visit *visit)
{
    const load_tensor *from = &context->load[visit->parameter];
    COH_TRY(coh_checkpoint_read(context->checkpoint, from->index,
                                visit->part > 0 ? from->streams[visit->part - 1] : 0,
                                visit->element_begin, visit->count, visit->data));
    return context->source != NULL && visit->stream == COH_STREAM_WORK ? source_run(context, visit)
                                                                       : COH_OK;
}

static coh_status import(coh_engine *engine, visit_context *visit, uint64_t applied_count,
                         double previous_norm)
{
    engine->is_ready = 0;
    COH_TRY(coh_step_clear_pinned(engine->step));
    COH_TRY(run_visit(engine, COH_PROGRAM_IMPORT, visit, NULL));
    coh_cells cells;
    COH_TRY(coh_step_get_cells(engine->step, &cells));
    cells.applied_count = applied_count;
    cells.previous_norm = previous_norm;
    COH_TRY(coh_step_put_cells(engine->step, &cells));
    engine->is_ready = 1;
    return COH_OK;
}

/* What is loaded: `path`, with its states if `with_states` and both have some, changed by `source`
 * unless that is NULL. */
typedef struct load_request {
    const char *path;
    int with_states;
    coh_parameter_source source;
    void *source_context;
} load_request;

/* Loads an open checkpoint. */
static coh_status load_open(coh_engine *engine, coh_checkpoint *checkpoint,
                            const load_request *request, load_tensor *tensors,
                            coh_load_facts *out_facts)
{
    const coh_layout *layout = &engine->plan->layout;
    const int trains = engine->plan->options.mode == COH_PLAN_TRAIN;
    coh_checkpoint_facts facts = { .struct_bytes = sizeof(facts) };
    COH_TRY(coh_checkpoint_facts_get(checkpoint, &facts));
    const int reads_states = trains && request->with_states && facts.is_trained;
    if (trains && (uint32_t)facts.tensor_count != layout->parameter_count)
        return coh_fail(COH_ERR_CORRUPT,
                        "checkpoint %s has %d tensors, the model has %u: it was made for another "
                        "model",
                        request->path, facts.tensor_count, layout->parameter_count);
    for (uint32_t i = 0; i < layout->parameter_count; i++)
        COH_TRY(find_tensor(checkpoint, facts.tensor_count, engine, i, reads_states, &tensors[i]));
    visit_context visit = { .operation = COH_OPERATION_LOAD,
                            .run = load_run,
                            .wants = load_wants,
                            .checkpoint = checkpoint,
                            .load = tensors,
                            .reads_states = reads_states,
                            .source = request->source,
                            .source_context = request->source_context };
    COH_TRY(import(engine, &visit, request->with_states ? facts.applied_count : 0,
                   request->with_states ? facts.grad_norm : 0));
    *out_facts = (coh_load_facts){ .step = facts.step };
    out_facts->numeric_changed = !coh_numeric_fingerprint_is(
        engine->plan->graph, &engine->plan->options, facts.numeric_fingerprint);
    return COH_OK;
}

static coh_status load(coh_engine *engine, const load_request *request, coh_load_facts *out_facts)
{
    coh_checkpoint *checkpoint = NULL;
    load_tensor *tensors = NULL;
    coh_status status = COH_OK;
    COH_TRY(coh_engine_check_idle(engine, "a load"));
    COH_TRY(coh_step_quiet(engine->step));
    COH_TRY(COH_ALLOC(engine->plan->layout.parameter_count, &tensors));
    status = coh_checkpoint_open(request->path, &checkpoint);
    if (status == COH_OK)
        status = load_open(engine, checkpoint, request, tensors, out_facts);
    coh_free(tensors);
    coh_checkpoint_close(checkpoint);
    return status;
}

/* Loads, and fills in `out_facts` unless it is NULL. */
static coh_status load_and_report(coh_engine *engine, const load_request *request,
                                  coh_load_facts *out_facts)
{
    coh_load_facts facts;
    if (out_facts != NULL)
        COH_NEED_STRUCT(coh_load_facts, out_facts);
    COH_TRY(load(engine, request, &facts));
    if (out_facts != NULL)
        COH_STRUCT_FILL(facts, out_facts);
    return COH_OK;
}

coh_status coh_engine_load(coh_engine *engine, const char *path, coh_load_facts *out_facts)
{
    COH_NEED(engine);
    COH_NEED(path);
    return load_and_report(engine, &(load_request){ .path = path, .with_states = 1 }, out_facts);
}

coh_status coh_engine_load_from(coh_engine *engine, const char *path, coh_parameter_source source,
                                void *context, coh_load_facts *out_facts)
{
    COH_NEED(engine);
    COH_NEED(path);
    COH_NEED(source);
    const load_request request = { path, 1, source, context };
    return load_and_report(engine, &request, out_facts);
}

coh_status coh_engine_load_weights(coh_engine *engine, const char *path)
{
    COH_NEED(engine);
    COH_NEED(path);
    return load_and_report(engine, &(load_request){ .path = path }, NULL);
}

/* ---- fetch ---- */

static int fetch_wants(const visit_context *context, const coh_chunk_visit *visit)
{
    return visit->parameter == context->parameter && visit->stream == context->stream &&
           (visit->stream != COH_STREAM_STATE || visit->part == context->part);
}

static coh_status fetch_run(visit_context *context, const coh_chunk_visit *visit)
{
    const uint64_t blocks =
        (visit->count + context->elements_per_block - 1) / context->elements_per_block;
    memcpy(context->data +
               visit->element_begin / context->elements_per_block * context->bytes_per_block,
           visit->data, blocks * context->bytes_per_block);
    return COH_OK;
}

/* Finds the layout parameter of a graph parameter. */
static coh_status find_parameter(const coh_engine *engine, coh_parameter parameter,
                                 uint32_t *out_index)
{
    const coh_layout *layout = &engine->plan->layout;
    for (*out_index = 0; *out_index < layout->parameter_count; ++*out_index)
        if (layout->parameters[*out_index].parameter == parameter.index)
            return COH_OK;
    return coh_fail(COH_ERR_ARGUMENT, "the model has no parameter %d", parameter.index);
}

static coh_status fetch_begin(coh_engine *engine, coh_parameter parameter, void *data,
                              visit_context *out_visit)
{
    COH_TRY(coh_engine_check_ready(engine, "fetch"));
    *out_visit = (visit_context){ .operation = COH_OPERATION_FETCH,
                                  .run = fetch_run,
                                  .wants = fetch_wants,
                                  .bytes_per_block = sizeof(float),
                                  .elements_per_block = 1,
                                  .data = data };
    return find_parameter(engine, parameter, &out_visit->parameter);
}

static coh_status check_is_trained(const coh_engine *engine, uint32_t parameter)
{
    if (engine->tensors[parameter].optimizer != NULL)
        return COH_OK;
    return coh_fail(COH_ERR_ARGUMENT, "parameter '%s' is not trained in this plan",
                    engine->tensors[parameter].name);
}

/* Returns 1 if each rank has a part of a parameter's states. */
static int is_divided(const coh_engine *engine, uint32_t parameter)
{
    const coh_layout *layout = &engine->plan->layout;
    return layout->groups[layout->parameters[parameter].group].axes.state > 0;
}

coh_status coh_engine_fetch(coh_engine *engine, coh_parameter parameter, coh_fetch what,
                            float *data)
{
    COH_NEED(engine);
    COH_NEED(data);
    visit_context visit;
    COH_TRY(coh_check_integer("what", (int32_t)what, COH_FETCH_VALUE, COH_FETCH_GRADIENT));
    COH_TRY(fetch_begin(engine, parameter, data, &visit));
    visit.stream = what == COH_FETCH_GRADIENT ? COH_STREAM_GRAD : COH_STREAM_WORK;
    if (what == COH_FETCH_GRADIENT)
        COH_TRY(check_is_trained(engine, visit.parameter));
    if (what == COH_FETCH_GRADIENT && !coh_plan_defers(&engine->plan->options))
        return coh_fail(COH_ERR_ARGUMENT,
                        "with updates in backward no gradient outlives its update: make the plan "
                        "with deferred_update 1 and speculates 0, which keeps all gradients and "
                        "the bits of steps without clipping");
    if (what != COH_FETCH_GRADIENT)
        COH_TRY(coh_engine_drain(engine));
    else if (is_divided(engine, visit.parameter))
        return coh_fail(COH_ERR_ARGUMENT,
                        "no rank has the whole gradient of parameter '%s': make the plan with "
                        "rank pattern replicate",
                        engine->tensors[visit.parameter].name);
    return run_visit(engine, COH_PROGRAM_HASH, &visit, NULL);
}

coh_status coh_engine_fetch_state(coh_engine *engine, coh_parameter parameter, const char *stream,
                                  void *data)
{
    COH_NEED(engine);
    COH_NEED(stream);
    COH_NEED(data);
    visit_context visit;
    COH_TRY(fetch_begin(engine, parameter, data, &visit));
    COH_TRY(check_is_trained(engine, visit.parameter));
    const coh_logical_tensor *tensor = &engine->tensors[visit.parameter];
    for (int32_t i = 0; i < tensor->stream_count; i++) {
        const coh_state_stream *found = &engine->streams[tensor->streams[i]];
        if (strcmp(found->name, stream) != 0)
            continue;
        visit.stream = COH_STREAM_STATE;
        visit.part = 1 + i;
        visit.bytes_per_block = found->bytes_per_block;
        visit.elements_per_block = found->elements_per_block;
        COH_TRY(coh_engine_drain(engine));
        return run_visit(engine, COH_PROGRAM_HASH, &visit, NULL);
    }
    return coh_fail(COH_ERR_ARGUMENT, "optimizer %s of parameter '%s' has no state stream %s",
                    tensor->optimizer, tensor->name, stream);
}

/* ---- put ---- */

static int put_wants(const visit_context *context, const coh_chunk_visit *visit)
{
    return visit->parameter == context->parameter && visit->stream == COH_STREAM_WORK &&
           visit->element_begin < context->element_end &&
           visit->element_begin + visit->count > context->element_begin;
}

static coh_status put_run(visit_context *context, const coh_chunk_visit *visit)
{
    const uint64_t visit_end = visit->element_begin + visit->count;
    const uint64_t begin = visit->element_begin > context->element_begin ? visit->element_begin
                                                                         : context->element_begin;
    const uint64_t end = visit_end < context->element_end ? visit_end : context->element_end;
    memcpy((float *)visit->data + (begin - visit->element_begin),
           context->values + (begin - context->element_begin), (end - begin) * sizeof(float));
    return COH_OK;
}

static coh_status check_put(const coh_logical_tensor *tensor, uint64_t element_begin,
                            uint64_t count, const float *values)
{
    if (element_begin > tensor->elements || count > tensor->elements - element_begin)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%" PRIu64 " values from element %" PRIu64 " on do not fit into parameter "
                        "'%s', which has %" PRIu64 " elements",
                        count, element_begin, tensor->name, tensor->elements);
    for (uint64_t i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return coh_fail(COH_ERR_NUMBER,
                            "the value for element %" PRIu64 " of parameter '%s' is %g: only "
                            "finite numbers can be written",
                            element_begin + i, tensor->name, (double)values[i]);
    return COH_OK;
}

coh_status coh_engine_put(coh_engine *engine, coh_parameter parameter, uint64_t element_begin,
                          uint64_t count, const float *values)
{
    COH_NEED(engine);
    COH_NEED(values);
    visit_context visit = { .operation = COH_OPERATION_PUT,
                            .run = put_run,
                            .wants = put_wants,
                            .element_begin = element_begin,
                            .element_end = element_begin + count,
                            .values = values };
    COH_TRY(coh_engine_check_ready(engine, "put"));
    COH_TRY(find_parameter(engine, parameter, &visit.parameter));
    COH_TRY(check_put(&engine->tensors[visit.parameter], element_begin, count, values));
    COH_TRY(coh_engine_drain(engine));
    return run_visit(engine, COH_PROGRAM_EDIT, &visit, NULL);
}
