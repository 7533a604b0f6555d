/* What enters and leaves an engine: first values, hash, checkpoints, single parameters. Each is a
 * program (INIT, IMPORT, HASH, SAVE) that brings chunk after chunk past a visitor; so a model that
 * does not fit in memory is saved through one chunk.
 *
 * A visitor that fails says so to its caller, not to the executor: a full disk under a save must
 * not end the run. It ignores the chunks that still come. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "cohobate/checkpoint.h"
#include "engine/engine_state.h"
#include "engine/segments.h"

/* ---- tables ---- */

coh_status coh_engine_create_tables(coh_engine *engine)
{
    const coh_layout *layout = &engine->plan->layout;
    const coh_graph *graph = engine->plan->graph;
    COH_TRY(COH_ALLOC(layout->parameter_count, &engine->tensors));
    for (uint32_t i = 0; i < layout->parameter_count; i++) {
        const coh_parameter_layout *parameter = &layout->parameters[i];
        const coh_graph_parameter *facts = &graph->parameters[parameter->parameter];
        engine->tensors[i] =
            (coh_logical_tensor){ .name = facts->name,
                                  .shape = facts->facts.shape,
                                  .elements = parameter->elements,
                                  .has_states = layout->groups[parameter->group].state >= 0 };
    }
    COH_TRY(coh_logical_hash_create(engine->tensors, layout->parameter_count, &engine->hash));
    if (engine->plan->programs[COH_PROGRAM_SAVE].line_count == 0)
        return COH_OK;
    return coh_checkpoint_writer_create(engine->tensors, layout->parameter_count, &engine->writer);
}

void coh_engine_destroy_tables(coh_engine *engine)
{
    coh_checkpoint_writer_destroy(engine->writer);
    coh_logical_hash_destroy(engine->hash);
    coh_free(engine->tensors);
}

/* ---- visiting segments ---- */

typedef struct visit_context {
    coh_engine *engine;
    coh_status status; /* first failure; its sentence is kept, it came up on another thread */
    char text[COH_ERROR_TEXT_BYTES];
    /* Does what this visit is for with one segment of a chunk. */
    coh_status (*segment)(struct visit_context *context, const coh_chunk_visit *visit,
                          const coh_segment *segment);
    /* init_from */
    coh_parameter_source source;
    void *source_context;
    /* load */
    coh_checkpoint *checkpoint;
    const int32_t *checkpoint_index; /* by layout parameter */
    int reads_states;
    /* fetch */
    uint32_t parameter;
    coh_fetch what;
    float *data;
} visit_context;

static coh_status visit_segments(void *argument, const coh_chunk_visit *visit)
{
    visit_context *context = argument;
    coh_segments walk;
    coh_segment segment;
    if (context->status != COH_OK)
        return COH_OK;
    coh_segments_begin(&walk, visit->layout, visit->stream, visit->group, visit->object_offset,
                       visit->bytes, visit->data);
    while (context->status == COH_OK && coh_segments_next(&walk, &segment)) {
        context->status = context->segment(context, visit, &segment);
        if (context->status != COH_OK)
            coh_error_save(context->text);
    }
    return COH_OK;
}

/* Runs a visited program; the first failure of executor or visitor. */
static coh_status run_visit(coh_engine *engine, coh_program_kind kind, visit_context *context,
                            const coh_step_input *input)
{
    context->engine = engine;
    context->status = COH_OK;
    const coh_step_feed feed = { .input = input,
                                 .visitor = context->segment != NULL ? visit_segments : NULL,
                                 .visitor_context = context };
    COH_TRY(coh_engine_run_program(engine, kind, &feed, NULL));
    if (context->status != COH_OK)
        coh_error_restore(context->text);
    return context->status;
}

/* ---- first values ---- */

static coh_status source_segment(visit_context *context, const coh_chunk_visit *visit,
                                 const coh_segment *segment)
{
    if (visit->stream != COH_STREAM_WORK)
        return COH_OK;
    const coh_layout *layout = &context->engine->plan->layout;
    coh_parameter parameter = { layout->parameters[segment->parameter].parameter };
    return context->source(context->source_context, parameter,
                           context->engine->tensors[segment->parameter].name,
                           segment->element_begin, segment->count, segment->data);
}

coh_status coh_engine_init_from(coh_engine *engine, uint64_t seed, coh_parameter_source source,
                                void *context)
{
    COH_TRY(coh_engine_check_idle(engine, "an init"));
    COH_TRY(coh_step_quiet(engine->step));
    engine->is_ready = 0;
    coh_step_clear_pinned(engine->step);
    visit_context visit = { .segment = source != NULL ? source_segment : NULL,
                            .source = source,
                            .source_context = context };
    COH_TRY(run_visit(engine, COH_PROGRAM_INIT, &visit, &(coh_step_input){ .seed = seed }));
    engine->is_ready = 1;
    return COH_OK;
}

coh_status coh_engine_init(coh_engine *engine, uint64_t seed)
{
    return coh_engine_init_from(engine, seed, NULL, NULL);
}

/* ---- hash ---- */

static coh_status hash_segment(visit_context *context, const coh_chunk_visit *visit,
                               const coh_segment *segment)
{
    if (visit->stream == COH_STREAM_GRAD)
        return COH_OK;
    return coh_logical_hash_put(context->engine->hash, segment->part, segment->parameter,
                                segment->element_begin, segment->count, segment->data);
}

coh_status coh_engine_hash(coh_engine *engine, uint64_t *out_hash)
{
    *out_hash = 0;
    COH_TRY(coh_engine_check_ready(engine, "hash"));
    COH_TRY(coh_engine_drain(engine));
    visit_context visit = { .segment = hash_segment };
    coh_logical_hash_begin(engine->hash);
    COH_TRY(run_visit(engine, COH_PROGRAM_HASH, &visit, NULL));
    return coh_logical_hash_finish(engine->hash, coh_step_cells(engine->step)->applied_count,
                                   out_hash);
}

/* ---- save ---- */

static coh_status save_segment(visit_context *context, const coh_chunk_visit *visit,
                               const coh_segment *segment)
{
    if (visit->stream == COH_STREAM_GRAD)
        return COH_OK;
    return coh_checkpoint_writer_put(context->engine->writer, segment->part, segment->parameter,
                                     segment->element_begin, segment->count, segment->data);
}

coh_status coh_engine_save(coh_engine *engine, const char *path, const coh_checkpoint_note *note)
{
    COH_TRY(coh_engine_check_ready(engine, "save"));
    if (engine->writer == NULL)
        return coh_fail(COH_ERR_ARGUMENT, "this plan only reads its parameters: nothing to save");
    COH_TRY(coh_engine_drain(engine));
    COH_TRY(coh_checkpoint_writer_begin(engine->writer, path, note->json));
    visit_context visit = { .segment = save_segment };
    coh_status status = run_visit(engine, COH_PROGRAM_SAVE, &visit, NULL);
    if (status != COH_OK) {
        coh_checkpoint_writer_abort(engine->writer);
        return status;
    }
    const coh_checkpoint_seal seal = {
        .step = note->step,
        .applied_count = coh_step_cells(engine->step)->applied_count,
        .numeric_fingerprint = engine->plan->numeric_fingerprint,
    };
    return coh_checkpoint_writer_finish(engine->writer, &seal, NULL);
}

/* ---- load ---- */

static int same_shape(const coh_shape *a, const coh_shape *b)
{
    if (a->dtype != b->dtype || a->rank != b->rank)
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
        if (!same_shape(&found.shape, &wanted->shape))
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

static coh_status load_segment(visit_context *context, const coh_chunk_visit *visit,
                               const coh_segment *segment)
{
    if (visit->stream == COH_STREAM_GRAD ||
        (segment->part != COH_PART_WORK && !context->reads_states))
        return COH_OK;
    return coh_checkpoint_read(context->checkpoint, context->checkpoint_index[segment->parameter],
                               (int)segment->part, segment->element_begin, segment->count,
                               segment->data);
}

static coh_status import(coh_engine *engine, visit_context *visit,
                         const coh_checkpoint_facts *facts)
{
    engine->is_ready = 0;
    coh_step_clear_pinned(engine->step);
    COH_TRY(run_visit(engine, COH_PROGRAM_IMPORT, visit, NULL));
    coh_step_cells(engine->step)->applied_count = facts->applied_count; /* a quiet point */
    engine->is_ready = 1;
    return COH_OK;
}

coh_status coh_engine_load(coh_engine *engine, const char *path, int *numeric_changed)
{
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
    visit_context visit = { .segment = load_segment,
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

static coh_status fetch_segment(visit_context *context, const coh_chunk_visit *visit,
                                const coh_segment *segment)
{
    int is_wanted = 0;
    switch (context->what) {
    case COH_FETCH_VALUE:
        is_wanted = visit->stream == COH_STREAM_WORK;
        break;
    case COH_FETCH_GRADIENT:
        is_wanted = visit->stream == COH_STREAM_GRAD;
        break;
    case COH_FETCH_M:
        is_wanted = visit->stream == COH_STREAM_STATE && segment->part == COH_PART_M;
        break;
    case COH_FETCH_V:
        is_wanted = visit->stream == COH_STREAM_STATE && segment->part == COH_PART_V;
        break;
    }
    if (is_wanted && segment->parameter == context->parameter)
        memcpy(context->data + segment->element_begin, segment->data,
               segment->count * sizeof(float));
    return COH_OK;
}

coh_status coh_engine_fetch(coh_engine *engine, coh_parameter parameter, coh_fetch what,
                            float *data)
{
    const coh_layout *layout = &engine->plan->layout;
    COH_TRY(coh_engine_check_ready(engine, "fetch"));
    visit_context visit = { .segment = fetch_segment, .what = what, .data = data };
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
