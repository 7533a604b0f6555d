/* Data that enters and leaves an engine: first values, hash, checkpoints, single parameters. Each
 * is a program (INIT, IMPORT, HASH, SAVE) that shows chunk after chunk to a visitor, so a model
 * that does not fit in memory is saved through one chunk. A visitor sees f32 whatever the plan's
 * dtype, so hash and checkpoint do not depend on the dtype. Next: line_chunk.c,
 * checkpoint_writer.h.
 *
 * A failing visitor reports to its caller, not to the executor: a full disk during a save must not
 * end the run. It ignores the chunks that still come. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "cohobate/checkpoint.h"
#include "engine/engine_state.h"

/* ---- tables ---- */

/* Lists the tensors of a checkpoint, in the order of layout->parameters; free with coh_free. */
static coh_status list_tensors(const coh_plan *plan, coh_logical_tensor **out_tensors)
{
    const coh_layout *layout = &plan->layout;
    COH_TRY(COH_ALLOC(layout->parameter_count, out_tensors));
    for (uint32_t i = 0; i < layout->parameter_count; i++) {
        const coh_parameter_layout *parameter = &layout->parameters[i];
        const coh_graph_parameter *facts = &plan->graph->parameters[parameter->parameter];
        coh_logical_tensor *tensor = &(*out_tensors)[i];
        *tensor = (coh_logical_tensor){ .name = facts->name,
                                        .shape = facts->facts.shape,
                                        .elements = parameter->elements,
                                        .has_states = layout->groups[parameter->group].state >= 0 };
        tensor->shape.dtype = COH_DTYPE_F32; /* visitors see f32 */
    }
    return COH_OK;
}

coh_status coh_engine_create_tables(coh_engine *engine)
{
    const coh_layout *layout = &engine->plan->layout;
    COH_TRY(list_tensors(engine->plan, &engine->tensors));
    COH_TRY(coh_logical_hash_create(engine->tensors, layout->parameter_count, engine->pool,
                                    &engine->hash));
    if (engine->plan->programs[COH_PROGRAM_SAVE].line_count == 0)
        return COH_OK;
    return coh_checkpoint_writer_create(engine->tensors, layout->parameter_count, engine->pool,
                                        &engine->writer);
}

coh_status coh_engine_save_bytes(const coh_plan *plan, uint64_t *out_bytes)
{
    coh_logical_tensor *tensors;
    coh_checkpoint_writer *writer;
    if (!plan || !out_bytes)
        return coh_fail(COH_ERR_ARGUMENT, "the bytes of a checkpoint need a plan and a place");
    COH_TRY(list_tensors(plan, &tensors));
    coh_status status =
        coh_checkpoint_writer_create(tensors, plan->layout.parameter_count, NULL, &writer);
    if (status == COH_OK)
        *out_bytes = coh_checkpoint_writer_bytes(writer);
    coh_checkpoint_writer_destroy(writer);
    coh_free(tensors);
    return status;
}

void coh_engine_destroy_tables(coh_engine *engine)
{
    coh_checkpoint_writer_destroy(engine->writer);
    coh_logical_hash_destroy(engine->hash);
    coh_free(engine->tensors);
}

/* ---- visiting ---- */

typedef struct visit_context {
    coh_engine *engine;
    coh_status status; /* first failure; its text comes from another thread and is kept */
    char text[COH_ERROR_TEXT_BYTES];
    /* Processes one run of elements. */
    coh_status (*run)(struct visit_context *context, const coh_chunk_visit *visit);
    /* Does this visit want the run? */
    int (*wants)(const struct visit_context *context, const coh_chunk_visit *visit);
    /* for init_from */
    coh_parameter_source source;
    void *source_context;
    /* for load */
    coh_checkpoint *checkpoint;
    const int32_t *checkpoint_index; /* by layout parameter */
    int reads_states;
    /* for fetch */
    uint32_t parameter;
    coh_fetch what;
    float *data;
} visit_context;

static int visit_wants(void *argument, const coh_chunk_visit *visit)
{
    const visit_context *context = argument;
    return context->status == COH_OK && context->wants(context, visit);
}

static coh_status visit_run(void *argument, const coh_chunk_visit *visit)
{
    visit_context *context = argument;
    context->status = context->run(context, visit);
    if (context->status != COH_OK)
        coh_error_save(context->text);
    return COH_OK;
}

/* Runs a visited program. Returns the first failure of executor or visitor. */
static coh_status run_visit(coh_engine *engine, coh_program_kind kind, visit_context *context,
                            const coh_step_input *input)
{
    context->engine = engine;
    context->status = COH_OK;
    const coh_step_feed feed = { .input = input,
                                 .visitor = context->run != NULL ? visit_run : NULL,
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
                           visit->count, visit->values);
}

/* `source` may be NULL: the kinds' own first values. */
static coh_status init_from(coh_engine *engine, uint64_t seed, coh_parameter_source source,
                            void *context)
{
    COH_TRY(coh_engine_check_idle(engine, "an init"));
    COH_TRY(coh_step_quiet(engine->step));
    engine->is_ready = 0;
    COH_TRY(coh_step_clear_pinned(engine->step));
    visit_context visit = { .run = source != NULL ? source_run : NULL,
                            .wants = wants_values,
                            .source = source,
                            .source_context = context };
    COH_TRY(run_visit(engine, COH_PROGRAM_INIT, &visit, &(coh_step_input){ .seed = seed }));
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
                                visit->element_begin, visit->count, visit->values, NULL);
}

coh_status coh_engine_hash(coh_engine *engine, uint64_t *out_hash)
{
    COH_NEED(engine);
    COH_NEED(out_hash);
    *out_hash = 0;
    COH_TRY(coh_engine_check_ready(engine, "hash"));
    COH_TRY(coh_engine_drain(engine));
    visit_context visit = { .run = hash_run, .wants = wants_values_and_states };
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
                                     visit->element_begin, visit->count, visit->values);
}

coh_status coh_engine_save(coh_engine *engine, const char *path, const coh_checkpoint_note *note)
{
    COH_NEED(engine);
    COH_NEED(path);
    COH_NEED(note);
    COH_TRY(coh_engine_check_ready(engine, "save"));
    if (engine->writer == NULL)
        return coh_fail(COH_ERR_ARGUMENT, "this plan only reads its parameters: nothing to save");
    COH_TRY(coh_engine_drain(engine));
    COH_TRY(coh_checkpoint_writer_begin(engine->writer, path, note->json));
    visit_context visit = { .run = save_run, .wants = wants_values_and_states };
    coh_cells cells = { 0 };
    coh_status status = run_visit(engine, COH_PROGRAM_SAVE, &visit, NULL);
    if (status == COH_OK)
        status = coh_step_get_cells(engine->step, &cells);
    if (status != COH_OK) {
        coh_checkpoint_writer_abort(engine->writer);
        return status;
    }
    const coh_checkpoint_seal seal = {
        .step = note->step,
        .applied_count = cells.applied_count,
        .numeric_fingerprint = engine->plan->numeric_fingerprint,
    };
    return coh_checkpoint_writer_finish(engine->writer, &seal, NULL);
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

static coh_status find_tensor(const coh_checkpoint *checkpoint, int32_t tensor_count,
                              const coh_logical_tensor *wanted, int32_t *out_index)
{
    for (int32_t i = 0; i < tensor_count; i++) {
        coh_checkpoint_tensor found;
        COH_TRY(coh_checkpoint_tensor_at(checkpoint, i, &found));
        if (strcmp(found.name, wanted->name) != 0)
            continue;
        if (!same_dims(&found.shape, &wanted->shape))
            return coh_fail(COH_ERR_CORRUPT,
                            "the checkpoint's tensor '%s' has another shape than the model's: it "
                            "was made for another model",
                            wanted->name);
        *out_index = i;
        return COH_OK;
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
    return coh_checkpoint_read(context->checkpoint, context->checkpoint_index[visit->parameter],
                               (int)visit->part, visit->element_begin, visit->count, visit->values);
}

static coh_status import(coh_engine *engine, visit_context *visit,
                         const coh_checkpoint_facts *facts)
{
    engine->is_ready = 0;
    COH_TRY(coh_step_clear_pinned(engine->step));
    COH_TRY(run_visit(engine, COH_PROGRAM_IMPORT, visit, NULL));
    coh_cells cells;
    COH_TRY(coh_step_get_cells(engine->step, &cells));
    cells.applied_count = facts->applied_count;
    COH_TRY(coh_step_put_cells(engine->step, &cells));
    engine->is_ready = 1;
    return COH_OK;
}

coh_status coh_engine_load(coh_engine *engine, const char *path, int *numeric_changed)
{
    COH_NEED(engine);
    COH_NEED(path);
    const coh_layout *layout = &engine->plan->layout;
    coh_checkpoint *checkpoint = NULL;
    int32_t *index = NULL;
    coh_checkpoint_facts facts;
    coh_status status = COH_OK;
    COH_TRY(coh_engine_check_idle(engine, "a load"));
    COH_TRY(coh_step_quiet(engine->step));
    COH_TRY_GOTO(status, coh_checkpoint_open(path, &checkpoint), done);
    COH_TRY_GOTO(status, coh_checkpoint_facts_get(checkpoint, &facts), done);
    COH_TRY_GOTO(status, COH_ALLOC(layout->parameter_count, &index), done);
    int trains = engine->plan->options.mode == COH_PLAN_TRAIN;
    if (trains && (uint32_t)facts.tensor_count != layout->parameter_count) {
        status = coh_fail(COH_ERR_CORRUPT,
                          "checkpoint %s has %d tensors, the model has %u: it was made for another "
                          "model",
                          path, facts.tensor_count, layout->parameter_count);
        goto done;
    }
    for (uint32_t i = 0; i < layout->parameter_count; i++)
        COH_TRY_GOTO(status,
                     find_tensor(checkpoint, facts.tensor_count, &engine->tensors[i], &index[i]),
                     done);
    visit_context visit = { .run = load_run,
                            .wants = load_wants,
                            .checkpoint = checkpoint,
                            .checkpoint_index = index,
                            .reads_states = trains && facts.has_states };
    COH_TRY_GOTO(status, import(engine, &visit, &facts), done);
    if (numeric_changed != NULL)
        *numeric_changed = facts.numeric_fingerprint != engine->plan->numeric_fingerprint;
done:
    coh_free(index);
    coh_checkpoint_close(checkpoint);
    return status;
}

/* ---- fetch ---- */

static int fetch_wants(const visit_context *context, const coh_chunk_visit *visit)
{
    if (visit->parameter != context->parameter)
        return 0;
    switch (context->what) {
    case COH_FETCH_VALUE:
        return visit->stream == COH_STREAM_WORK;
    case COH_FETCH_GRADIENT:
        return visit->stream == COH_STREAM_GRAD;
    case COH_FETCH_M:
        return visit->stream == COH_STREAM_STATE && visit->part == COH_PART_M;
    case COH_FETCH_V:
        return visit->stream == COH_STREAM_STATE && visit->part == COH_PART_V;
    }
    return 0;
}

static coh_status fetch_run(visit_context *context, const coh_chunk_visit *visit)
{
    memcpy(context->data + visit->element_begin, visit->values,
           visit->count * sizeof(*visit->values));
    return COH_OK;
}

coh_status coh_engine_fetch(coh_engine *engine, coh_parameter parameter, coh_fetch what,
                            float *data)
{
    COH_NEED(engine);
    COH_NEED(data);
    const coh_layout *layout = &engine->plan->layout;
    COH_TRY(coh_engine_check_ready(engine, "fetch"));
    visit_context visit = { .run = fetch_run, .wants = fetch_wants, .what = what, .data = data };
    while (visit.parameter < layout->parameter_count &&
           layout->parameters[visit.parameter].parameter != parameter.index)
        visit.parameter++;
    if (visit.parameter == layout->parameter_count)
        return coh_fail(COH_ERR_ARGUMENT, "the model has no parameter %d", parameter.index);
    if (what != COH_FETCH_VALUE && !engine->tensors[visit.parameter].has_states)
        return coh_fail(COH_ERR_ARGUMENT, "parameter '%s' is not trained in this plan",
                        engine->tensors[visit.parameter].name);
    if (what == COH_FETCH_GRADIENT && !engine->plan->options.deferred_update)
        return coh_fail(COH_ERR_ARGUMENT, "with updates in backward no gradient outlives its step");
    if (what != COH_FETCH_GRADIENT)
        COH_TRY(coh_engine_drain(engine));
    return run_visit(engine, COH_PROGRAM_HASH, &visit, NULL);
}
