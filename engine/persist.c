/* All data that enters and leaves an engine: first values, hash, checkpoints. Each is a visit
 * (visit.h), which sees f32, so hash and checkpoint do not depend on the plan's dtype. Next:
 * checkpoint_writer.h; single parameters: fetch.c. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/struct_bytes.h"
#include "cohobate/checkpoint.h"
#include "cohobate/terms.h"
#include "comm/world.h"
#include "engine/checkpoint_frozen.h"
#include "engine/entry.h"
#include "engine/parameter_groups.h"
#include "engine/visit.h"
#include "kernels/nf4.h"
#include "planner/comm_parts.h"
#include "planner/fingerprint.h"
#include "planner/graph.h"

#define OWN_PATTERN "the pattern of parameters that keep their first values" /* in messages */

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

/* The form of frozen tensors so far, with one of `dtype` in addition: bf16 if all of them are, as
 * the numbers of NF4. */
static coh_frozen_form frozen_form(coh_frozen_form before, coh_dtype dtype)
{
    return dtype != COH_DTYPE_F32 && before != COH_FROZEN_F32 ? COH_FROZEN_BF16 : COH_FROZEN_F32;
}

/* Lists the tensors of a checkpoint, in the order of layout->parameters, and the streams of their
 * optimizers; free *out_tensors with coh_free. */
static coh_status list_tensors(const coh_plan *plan, coh_logical_tensor **out_tensors,
                               coh_state_stream streams[COH_LOGICAL_STREAMS],
                               coh_logical_table *out_table)
{
    const coh_layout *layout = &plan->layout;
    int32_t stream_count = 0;
    coh_frozen_form frozen = COH_FROZEN_IN_WORK;
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
        if (optimizer == NULL)
            frozen = frozen_form(frozen, layout->groups[parameter->group].dtype);
    }
    *out_table =
        (coh_logical_table){ *out_tensors, layout->parameter_count, streams, stream_count, frozen };
    return COH_OK;
}

coh_status coh_engine_create_tables(coh_engine *engine)
{
    COH_TRY(list_tensors(engine->plan, &engine->tensors, engine->streams, &engine->table));
    for (uint32_t i = 0; i < engine->table.tensor_count; i++) {
        engine->elements += engine->tensors[i].elements;
        engine->trained_count += engine->tensors[i].optimizer != NULL;
        engine->frozen_elements +=
            engine->tensors[i].optimizer == NULL ? engine->tensors[i].elements : 0;
    }
    COH_TRY(coh_logical_hash_create(&engine->table, engine->pool, &engine->hash));
    if (engine->plan->programs[COH_PROGRAM_SAVE].instruction_count == 0)
        return COH_OK;
    COH_TRY(coh_checkpoint_writer_create(&engine->table, engine->pool, &engine->writer));
    return coh_background_save_init(&engine->saver, engine->writer);
}

/* Asks a writer of the plan's checkpoints for their bytes. */
static coh_status ask_bytes(const coh_plan *plan,
                            uint64_t (*bytes_of)(const coh_checkpoint_writer *writer),
                            uint64_t *out_bytes)
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
        *out_bytes = bytes_of(writer);
    coh_checkpoint_writer_destroy(writer);
    coh_free(tensors);
    return status;
}

coh_status coh_engine_save_bytes(const coh_plan *plan, uint64_t *out_bytes)
{
    return ask_bytes(plan, coh_checkpoint_writer_bytes, out_bytes);
}

coh_status coh_engine_save_frozen_bytes(const coh_plan *plan, uint64_t *out_bytes)
{
    return ask_bytes(plan, coh_checkpoint_writer_frozen_bytes, out_bytes);
}

void coh_engine_destroy_tables(coh_engine *engine)
{
    coh_background_save_fini(&engine->saver, &engine->options);
    coh_checkpoint_writer_destroy(engine->writer);
    coh_logical_hash_destroy(engine->hash);
    coh_free(engine->tensors);
}

/* ---- given values ---- */

/* Where values come from. */
typedef struct given_values {
    coh_parameter_source source; /* NULL: from nowhere */
    void *context;
} given_values;

static coh_status take_given(const coh_engine *engine, const given_values *given,
                             const coh_chunk_visit *run)
{
    const coh_parameter parameter = { engine->plan->layout.parameters[run->parameter].parameter };
    const char *name = engine->tensors[run->parameter].name;
    coh_error_clear();
    const coh_status status =
        given->source(given->context, parameter, name, run->element_begin, run->count, run->data);
    COH_TRY(coh_check_status(status, "the source of first values"));
    return coh_check_values(name, run->element_begin, run->count, run->data);
}

/* ---- hash ---- */

static coh_status hash_take(coh_visit *visit, const coh_chunk_visit *run)
{
    return coh_logical_hash_put(visit->engine->hash, run->part, run->parameter, run->element_begin,
                                run->count, run->data, NULL);
}

static coh_status compute_hash(coh_engine *engine, uint64_t *out_hash)
{
    COH_TRY(coh_engine_check_ready(engine, "hash"));
    COH_TRY(coh_engine_apply_pending(engine));
    coh_visit visit = { .operation = COH_OPERATION_HASH,
                        .wants = coh_visit_wants_values_and_states,
                        .take = hash_take };
    coh_logical_hash_begin(engine->hash);
    COH_TRY(coh_engine_visit(engine, COH_PROGRAM_HASH, &visit, NULL));
    coh_cells cells;
    COH_TRY(coh_step_get_cells(engine->step, &cells));
    return coh_logical_hash_finish(engine->hash, cells.applied_count, out_hash);
}

coh_status coh_engine_hash(coh_engine *engine, uint64_t *out_hash)
{
    COH_NEED(engine);
    COH_NEED(out_hash);
    *out_hash = 0;
    COH_TRY(coh_engine_enter(engine, __func__));
    return coh_engine_leave(engine, compute_hash(engine, out_hash));
}

/* ---- save ---- */

static coh_status save_take(coh_visit *visit, const coh_chunk_visit *run)
{
    return coh_checkpoint_writer_put(visit->engine->writer, run->part, run->parameter,
                                     run->element_begin, run->count, run->data);
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
    coh_visit visit = { .operation = COH_OPERATION_SAVE,
                        .wants = coh_visit_wants_values_and_states };
    COH_TRY(coh_engine_check_ready(engine, "save"));
    COH_TRY(coh_engine_apply_pending(engine));
    return has_parts(engine) ? coh_engine_visit(engine, COH_PROGRAM_SAVE, &visit, NULL) : COH_OK;
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

/* Logs, once, why checkpoints do not share the file of frozen tensors. */
static void tell_link(coh_engine *engine)
{
    char text[256];
    const int error = coh_checkpoint_writer_link_error(engine->writer);
    if (error == 0 || engine->link_is_told || engine->options.log == NULL)
        return;
    engine->link_is_told = 1;
    snprintf(text, sizeof(text),
             "the checkpoint cannot share frozen.bin with the one before (%s), so this save writes "
             "the frozen parameters again",
             error == -ESTALE ? "another file has its name" : strerrordesc_np(-error));
    engine->options.log(engine->options.log_context, text);
}

/* Begins to write, if there is something to save and no other save is under way. */
static coh_status begin_write(coh_engine *engine, const char *path, const coh_checkpoint_note *note)
{
    if (engine->writer == NULL)
        return coh_fail(COH_ERR_ARGUMENT, "this plan only reads its parameters: nothing to save");
    if (engine->saver.is_under_way)
        return coh_fail(COH_ERR_ARGUMENT, "an earlier save is under way, and an engine makes one "
                                          "at a time: call coh_engine_save_wait first");
    COH_TRY(coh_engine_apply_pending(engine));
    if (engine->frozen_changed)
        coh_checkpoint_writer_forget_frozen(engine->writer);
    engine->frozen_changed = 0;
    COH_TRY(coh_checkpoint_writer_begin(engine->writer, path, note->json));
    tell_link(engine);
    return COH_OK;
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
    coh_visit visit = { .operation = COH_OPERATION_SAVE,
                        .wants = coh_visit_wants_values_and_states,
                        .take = save_take,
                        .skips_frozen = coh_checkpoint_writer_has_frozen(engine->writer) };
    coh_cells cells = { 0 };
    coh_status status = coh_engine_visit(engine, COH_PROGRAM_SAVE, &visit, NULL);
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

/* An empty path is refused by the writer, since other ranks than 0 ignore theirs. */
static coh_status save(coh_engine *engine, const char *path, const coh_checkpoint_note *note)
{
    coh_checkpoint_seal seal;
    if (is_follower(engine))
        return take_part(engine);
    COH_TRY(write_numbers(engine, path, note, &seal));
    return coh_checkpoint_writer_finish(engine->writer, &seal, NULL);
}

coh_status coh_engine_save(coh_engine *engine, const char *path, const coh_checkpoint_note *note)
{
    COH_NEED(engine);
    COH_NEED(path);
    COH_NEED_STRUCT(coh_checkpoint_note, note);
    COH_TRY(coh_engine_enter(engine, __func__));
    return coh_engine_leave(engine, save(engine, path, note));
}

static coh_status save_begin(coh_engine *engine, const char *path, const coh_checkpoint_note *note)
{
    coh_checkpoint_seal seal;
    if (is_follower(engine))
        return take_part(engine);
    COH_TRY(write_numbers(engine, path, note, &seal));
    coh_background_save_start(&engine->saver, &seal);
    return COH_OK;
}

coh_status coh_engine_save_begin(coh_engine *engine, const char *path,
                                 const coh_checkpoint_note *note)
{
    COH_NEED(engine);
    COH_NEED(path);
    COH_NEED_STRUCT(coh_checkpoint_note, note);
    COH_TRY(coh_engine_enter(engine, __func__));
    return coh_engine_leave(engine, save_begin(engine, path, note));
}

coh_status coh_engine_save_is_done(const coh_engine *engine, int *out_is_done)
{
    COH_NEED(engine);
    COH_NEED(out_is_done);
    COH_TRY(coh_engine_check_process(engine, __func__));
    *out_is_done = coh_background_save_is_done(&engine->saver);
    return COH_OK;
}

coh_status coh_engine_save_wait(coh_engine *engine)
{
    COH_NEED(engine);
    COH_TRY(coh_engine_enter(engine, __func__));
    return coh_engine_leave(engine, coh_background_save_take(&engine->saver));
}

/* ---- load ---- */

/* A tensor's number in the checkpoint that is loaded, and the numbers of its state streams. */
typedef struct load_tensor {
    int32_t index;
    int32_t streams[COH_OPTIMIZER_STREAMS]; /* in the order of the plan's optimizer */
} load_tensor;

typedef struct load_visit {
    coh_visit base;
    coh_checkpoint *checkpoint;
    const load_tensor *tensors; /* by layout parameter */
    int reads_states;
    given_values given;
    int is_rounded; /* a frozen tensor in bf16 has other values than the checkpoint */
} load_visit;

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
                        "this plan trains it with %s: load the weights alone (%s), or plan with %s",
                        wanted->name, found->optimizer, wanted->optimizer,
                        coh_term_text(COH_TERM_WEIGHTS), found->optimizer);
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
                            "the weights alone (%s)",
                            stream->name, wanted->name, coh_term_text(COH_TERM_WEIGHTS));
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

static int load_wants(const coh_visit *visit, const coh_chunk_visit *run)
{
    return run->stream == COH_STREAM_WORK ||
           (run->stream == COH_STREAM_STATE && ((const load_visit *)visit)->reads_states);
}

/* Values of a weight in NF4, looked at a grain at a time on the pool. */
typedef struct held_values {
    const float *values;
    int64_t count;
    int is_rounded; /* atomic */
} held_values;

static void look_at_grain(void *argument, int64_t index)
{
    held_values *held = argument;
    const int64_t begin = index * (int64_t)COH_GRAIN_ELEMENTS, left = held->count - begin;
    if (!coh_nf4_holds(held->values + begin,
                       left < (int64_t)COH_GRAIN_ELEMENTS ? left : (int64_t)COH_GRAIN_ELEMENTS))
        __atomic_store_n(&held->is_rounded, 1, __ATOMIC_RELAXED);
}

static int nf4_rounds(const coh_engine *engine, const coh_chunk_visit *run)
{
    held_values held = { run->data, (int64_t)run->count, 0 };
    coh_pool_run(engine->pool, (held.count + COH_GRAIN_ELEMENTS - 1) / COH_GRAIN_ELEMENTS,
                 look_at_grain, &held);
    return held.is_rounded;
}

/* Is a run of values of a frozen tensor that does not keep them as they are? */
static int is_rounded(const coh_engine *engine, const coh_chunk_visit *run)
{
    const coh_layout *layout = &engine->plan->layout;
    const coh_group_layout *group = &layout->groups[layout->parameters[run->parameter].group];
    if (engine->tensors[run->parameter].optimizer != NULL || group->dtype == COH_DTYPE_F32)
        return 0;
    return group->dtype == COH_DTYPE_NF4 ? nf4_rounds(engine, run)
                                         : !coh_frozen_is_bf16(run->data, run->count);
}

static coh_status load_take(coh_visit *visit, const coh_chunk_visit *run)
{
    load_visit *load = (load_visit *)visit;
    const load_tensor *from = &load->tensors[run->parameter];
    COH_TRY(coh_checkpoint_read(load->checkpoint, from->index,
                                run->part > 0 ? from->streams[run->part - 1] : 0,
                                run->element_begin, run->count, run->data));
    if (!load->is_rounded)
        load->is_rounded = is_rounded(visit->engine, run);
    return load->given.source != NULL && run->stream == COH_STREAM_WORK
               ? take_given(visit->engine, &load->given, run)
               : COH_OK;
}

static coh_status import(coh_engine *engine, coh_visit *visit, uint64_t applied_count,
                         double previous_norm)
{
    engine->is_ready = engine->is_broken = 0;
    engine->frozen_changed = 1;
    COH_TRY(coh_step_clear_pinned(engine->step));
    COH_TRY(coh_engine_visit(engine, COH_PROGRAM_IMPORT, visit, NULL));
    coh_cells cells;
    COH_TRY(coh_step_get_cells(engine->step, &cells));
    cells.applied_count = applied_count;
    cells.previous_norm = previous_norm;
    COH_TRY(coh_step_put_cells(engine->step, &cells));
    engine->is_ready = 1;
    return COH_OK;
}

/* Lets later saves share the checkpoint's file of frozen tensors, if theirs are its values. A save
 * under way has the writer to itself. */
static void share_frozen(coh_engine *engine, const load_visit *visit)
{
    if (engine->writer == NULL || engine->saver.is_under_way || visit->given.source != NULL ||
        visit->is_rounded)
        return;
    if (coh_checkpoint_writer_take_frozen(engine->writer, visit->checkpoint))
        engine->frozen_changed = 0;
}

/* Source of a load: `path`, with its states if `with_states` and both have some, changed by the
 * values that are given. */
typedef struct load_request {
    const char *path;
    int with_states;
    given_values given;
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
    load_visit visit = {
        .base = { .operation = COH_OPERATION_LOAD, .wants = load_wants, .take = load_take },
        .checkpoint = checkpoint,
        .tensors = tensors,
        .reads_states = reads_states,
        .given = request->given
    };
    COH_TRY(import(engine, &visit.base, request->with_states ? facts.applied_count : 0,
                   request->with_states ? facts.grad_norm : 0));
    share_frozen(engine, &visit);
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
    COH_TRY(coh_engine_check_idle(engine));
    COH_TRY(coh_step_quiet(engine->step));
    COH_TRY(COH_ALLOC(engine->plan->layout.parameter_count, &tensors));
    status = coh_checkpoint_open(request->path, &checkpoint);
    if (status == COH_OK)
        status = load_open(engine, checkpoint, request, tensors, out_facts);
    coh_free(tensors);
    coh_checkpoint_close(checkpoint);
    return status;
}

/* Loads in the public call `call`, and fills in `out_facts` unless it is NULL. */
static coh_status load_and_report(coh_engine *engine, const char *call, const load_request *request,
                                  coh_load_facts *out_facts)
{
    coh_load_facts facts;
    if (out_facts != NULL)
        COH_NEED_STRUCT(coh_load_facts, out_facts);
    COH_TRY(coh_engine_enter(engine, call));
    COH_TRY(coh_engine_leave(engine, load(engine, request, &facts)));
    if (out_facts != NULL)
        COH_STRUCT_FILL(facts, out_facts);
    return COH_OK;
}

coh_status coh_engine_load(coh_engine *engine, const char *path, coh_load_facts *out_facts)
{
    COH_NEED(engine);
    COH_NEED_PATH(path);
    return load_and_report(engine, __func__, &(load_request){ .path = path, .with_states = 1 },
                           out_facts);
}

coh_status coh_engine_load_from(coh_engine *engine, const char *path, coh_parameter_source source,
                                void *context, coh_load_facts *out_facts)
{
    COH_NEED(engine);
    COH_NEED_PATH(path);
    COH_NEED(source);
    const load_request request = { path, 1, { source, context } };
    return load_and_report(engine, __func__, &request, out_facts);
}

coh_status coh_engine_load_weights(coh_engine *engine, const char *path)
{
    COH_NEED(engine);
    COH_NEED_PATH(path);
    return load_and_report(engine, __func__, &(load_request){ .path = path }, NULL);
}

/* ---- init ---- */

/* First values: the kinds' own, overwritten by those of a source or of a checkpoint. */
typedef struct init_visit {
    coh_visit base;
    given_values given;
    coh_checkpoint *checkpoint; /* NULL: none */
    load_tensor *tensors;       /* by layout parameter: in the checkpoint */
    const char *own;            /* parameters that keep the kinds' values; NULL: none do */
} init_visit;

static int keeps_own(const coh_engine *engine, const char *own, uint32_t parameter)
{
    const coh_graph *graph = engine->plan->graph;
    const int32_t index = engine->plan->layout.parameters[parameter].parameter;
    return own != NULL && coh_graph_parameter_matches(graph, own, &graph->parameters[index]);
}

static int init_wants(const coh_visit *visit, const coh_chunk_visit *run)
{
    return run->stream == COH_STREAM_WORK &&
           !keeps_own(visit->engine, ((const init_visit *)visit)->own, run->parameter);
}

static coh_status init_take(coh_visit *visit, const coh_chunk_visit *run)
{
    const init_visit *init = (const init_visit *)visit;
    if (init->checkpoint == NULL)
        return take_given(visit->engine, &init->given, run);
    return coh_checkpoint_read(init->checkpoint, init->tensors[run->parameter].index, 0,
                               run->element_begin, run->count, run->data);
}

static coh_status init_visited(coh_engine *engine, uint64_t seed, init_visit *visit)
{
    COH_TRY(coh_engine_check_idle(engine));
    COH_TRY(coh_step_quiet(engine->step));
    engine->is_ready = engine->is_broken = 0;
    engine->frozen_changed = 1;
    COH_TRY(coh_step_clear_pinned(engine->step));
    const coh_step_input input = { .struct_bytes = sizeof(input), .seed = seed };
    visit->base.operation = COH_OPERATION_INIT;
    visit->base.wants = init_wants;
    COH_TRY(coh_engine_visit(engine, COH_PROGRAM_INIT, &visit->base, &input));
    engine->is_ready = 1;
    return COH_OK;
}

/* `source` may be NULL: the kinds' own first values. So may `own`. */
static coh_status init_from(coh_engine *engine, uint64_t seed, const char *own,
                            const given_values *given)
{
    init_visit visit = { .base.take = given->source != NULL ? init_take : NULL,
                         .given = *given,
                         .own = own };
    if (own != NULL)
        COH_TRY(coh_parameter_pattern_check(engine->plan->graph, OWN_PATTERN, own));
    return init_visited(engine, seed, &visit);
}

coh_status coh_engine_init(coh_engine *engine, uint64_t seed)
{
    COH_NEED(engine);
    const given_values nothing = { 0 };
    COH_TRY(coh_engine_enter(engine, __func__));
    return coh_engine_leave(engine, init_from(engine, seed, NULL, &nothing));
}

coh_status coh_engine_init_from(coh_engine *engine, uint64_t seed, coh_parameter_source source,
                                void *context)
{
    COH_NEED(engine);
    COH_NEED(source);
    const given_values given = { source, context };
    COH_TRY(coh_engine_enter(engine, __func__));
    return coh_engine_leave(engine, init_from(engine, seed, NULL, &given));
}

coh_status coh_engine_init_partly(coh_engine *engine, uint64_t seed, const char *own,
                                  coh_parameter_source source, void *context)
{
    COH_NEED(engine);
    COH_NEED(own);
    COH_NEED(source);
    const given_values given = { source, context };
    COH_TRY(coh_engine_enter(engine, __func__));
    return coh_engine_leave(engine, init_from(engine, seed, own, &given));
}

/* Finds the checkpoint's tensors for all parameters but those of `own`. */
static coh_status find_wanted(const coh_engine *engine, const coh_checkpoint *checkpoint,
                              const char *path, const char *own, load_tensor *tensors)
{
    const uint32_t count = engine->plan->layout.parameter_count;
    uint32_t missing = 0, first = 0;
    coh_checkpoint_facts facts = { .struct_bytes = sizeof(facts) };
    COH_TRY(coh_checkpoint_facts_get(checkpoint, &facts));
    for (uint32_t i = 0; i < count; i++) {
        if (keeps_own(engine, own, i) ||
            find_tensor(checkpoint, facts.tensor_count, engine, i, 0, &tensors[i]) == COH_OK)
            continue;
        first = missing == 0 ? i : first;
        missing++;
    }
    if (missing == 0)
        return COH_OK;
    return coh_fail(COH_ERR_CORRUPT,
                    "checkpoint %s has no tensor of that name and shape for %" PRIu32
                    " of the model's %" PRIu32 " parameters, the first of them '%s': load another "
                    "checkpoint, or add them to the pattern of those that keep their first values",
                    path, missing, count, engine->tensors[first].name);
}

static coh_status load_partly(coh_engine *engine, uint64_t seed, const char *own, const char *path)
{
    init_visit visit = { .base.take = init_take, .own = own };
    COH_TRY(coh_engine_check_idle(engine));
    COH_TRY(coh_parameter_pattern_check(engine->plan->graph, OWN_PATTERN, own));
    COH_TRY(COH_ALLOC(engine->plan->layout.parameter_count, &visit.tensors));
    coh_status status = coh_checkpoint_open(path, &visit.checkpoint);
    if (status == COH_OK)
        status = find_wanted(engine, visit.checkpoint, path, own, visit.tensors);
    if (status == COH_OK)
        status = init_visited(engine, seed, &visit);
    coh_free(visit.tensors);
    coh_checkpoint_close(visit.checkpoint);
    return status;
}

coh_status coh_engine_load_partly(coh_engine *engine, uint64_t seed, const char *own,
                                  const char *path)
{
    COH_NEED(engine);
    COH_NEED(own);
    COH_NEED_PATH(path);
    COH_TRY(coh_engine_enter(engine, __func__));
    return coh_engine_leave(engine, load_partly(engine, seed, own, path));
}
