/* Single parameters, and all of one kind: values, gradients and states that a caller reads, values
 * that it overwrites. Each is a visit (visit.h), so every parameter passes through the device once,
 * whichever of them is wanted. */
#include <inttypes.h>
#include <string.h>

#include "engine/entry.h"
#include "engine/visit.h"

/* ---- fetch ---- */

/* One part of one stream of one parameter. */
typedef struct fetch_visit {
    coh_visit base;
    uint32_t parameter; /* in the layout */
    coh_stream stream;
    int part;
    uint32_t bytes_per_block, elements_per_block;
    char *data;
} fetch_visit;

static int fetch_wants(const coh_visit *visit, const coh_chunk_visit *run)
{
    const fetch_visit *fetch = (const fetch_visit *)visit;
    return run->parameter == fetch->parameter && run->stream == fetch->stream &&
           (run->stream != COH_STREAM_STATE || run->part == fetch->part);
}

static coh_status fetch_take(coh_visit *visit, const coh_chunk_visit *run)
{
    const fetch_visit *fetch = (const fetch_visit *)visit;
    const uint64_t blocks =
        (run->count + fetch->elements_per_block - 1) / fetch->elements_per_block;
    memcpy(fetch->data + run->element_begin / fetch->elements_per_block * fetch->bytes_per_block,
           run->data, blocks * fetch->bytes_per_block);
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
                              fetch_visit *out_visit)
{
    COH_TRY(coh_engine_check_ready(engine, "fetch"));
    *out_visit = (fetch_visit){
        .base = { .operation = COH_OPERATION_FETCH, .wants = fetch_wants, .take = fetch_take },
        .bytes_per_block = sizeof(float),
        .elements_per_block = 1,
        .data = data
    };
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

/* Checks that the engine has the whole gradient of a trained parameter. */
static coh_status check_has_gradient(const coh_engine *engine, uint32_t parameter)
{
    if (!coh_plan_defers(&engine->plan->options))
        return coh_fail(COH_ERR_ARGUMENT,
                        "with updates in backward no gradient outlives its update: make the plan "
                        "with deferred_update 1 and speculates 0, which keeps all gradients and "
                        "the bits of steps without clipping");
    if (is_divided(engine, parameter))
        return coh_fail(COH_ERR_ARGUMENT,
                        "no rank has the whole gradient of parameter '%s': make the plan with "
                        "rank pattern replicate",
                        engine->tensors[parameter].name);
    return COH_OK;
}

static coh_status fetch(coh_engine *engine, coh_parameter parameter, coh_fetch what, float *data)
{
    fetch_visit visit;
    COH_TRY(coh_check_integer("what", (int32_t)what, COH_FETCH_VALUE, COH_FETCH_GRADIENT));
    COH_TRY(fetch_begin(engine, parameter, data, &visit));
    visit.stream = what == COH_FETCH_GRADIENT ? COH_STREAM_GRAD : COH_STREAM_WORK;
    if (what == COH_FETCH_GRADIENT) {
        COH_TRY(check_is_trained(engine, visit.parameter));
        COH_TRY(check_has_gradient(engine, visit.parameter));
    } else {
        COH_TRY(coh_engine_apply_pending(engine));
    }
    return coh_engine_visit(engine, COH_PROGRAM_HASH, &visit.base, NULL);
}

coh_status coh_engine_fetch(coh_engine *engine, coh_parameter parameter, coh_fetch what,
                            float *data)
{
    COH_NEED(engine);
    COH_NEED(data);
    COH_TRY(coh_engine_enter(engine, __func__));
    return coh_engine_leave(engine, fetch(engine, parameter, what, data));
}

/* One stream of all parameters. */
typedef struct fetch_all_visit {
    coh_visit base;
    coh_stream stream;
    coh_parameter_sink sink;
    void *context;
} fetch_all_visit;

static int fetch_all_wants(const coh_visit *visit, const coh_chunk_visit *run)
{
    return run->stream == ((const fetch_all_visit *)visit)->stream;
}

static coh_status fetch_all_take(coh_visit *visit, const coh_chunk_visit *run)
{
    const fetch_all_visit *fetch = (const fetch_all_visit *)visit;
    const coh_engine *engine = visit->engine;
    const coh_parameter parameter = { engine->plan->layout.parameters[run->parameter].parameter };
    coh_error_clear();
    return coh_check_status(fetch->sink(fetch->context, parameter,
                                        engine->tensors[run->parameter].name, run->element_begin,
                                        run->count, run->data),
                            "the sink");
}

static coh_status fetch_all(coh_engine *engine, coh_fetch what, coh_parameter_sink sink,
                            void *context)
{
    const int is_gradient = what == COH_FETCH_GRADIENT;
    fetch_all_visit visit = { .base = { .operation = COH_OPERATION_FETCH,
                                        .wants = fetch_all_wants,
                                        .take = fetch_all_take },
                              .stream = is_gradient ? COH_STREAM_GRAD : COH_STREAM_WORK,
                              .sink = sink,
                              .context = context };
    COH_TRY(coh_check_integer("what", (int32_t)what, COH_FETCH_VALUE, COH_FETCH_GRADIENT));
    COH_TRY(coh_engine_check_ready(engine, "fetch"));
    for (uint32_t i = 0; is_gradient && i < engine->table.tensor_count; i++)
        if (engine->tensors[i].optimizer != NULL)
            COH_TRY(check_has_gradient(engine, i));
    if (!is_gradient)
        COH_TRY(coh_engine_apply_pending(engine));
    return coh_engine_visit(engine, COH_PROGRAM_HASH, &visit.base, NULL);
}

coh_status coh_engine_fetch_all(coh_engine *engine, coh_fetch what, coh_parameter_sink sink,
                                void *context)
{
    COH_NEED(engine);
    COH_NEED(sink);
    COH_TRY(coh_engine_enter(engine, __func__));
    return coh_engine_leave(engine, fetch_all(engine, what, sink, context));
}

static coh_status fetch_state(coh_engine *engine, coh_parameter parameter, const char *stream,
                              void *data)
{
    fetch_visit visit;
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
        COH_TRY(coh_engine_apply_pending(engine));
        return coh_engine_visit(engine, COH_PROGRAM_HASH, &visit.base, NULL);
    }
    return coh_fail(COH_ERR_ARGUMENT, "optimizer %s of parameter '%s' has no state stream %s",
                    tensor->optimizer, tensor->name, stream);
}

coh_status coh_engine_fetch_state(coh_engine *engine, coh_parameter parameter, const char *stream,
                                  void *data)
{
    COH_NEED(engine);
    COH_NEED(stream);
    COH_NEED(data);
    COH_TRY(coh_engine_enter(engine, __func__));
    return coh_engine_leave(engine, fetch_state(engine, parameter, stream, data));
}

/* ---- put ---- */

/* Elements [element_begin, element_end) of one parameter. */
typedef struct put_visit {
    coh_visit base;
    uint32_t parameter; /* in the layout */
    uint64_t element_begin, element_end;
    const float *values;
} put_visit;

static int put_wants(const coh_visit *visit, const coh_chunk_visit *run)
{
    const put_visit *put = (const put_visit *)visit;
    return run->parameter == put->parameter && run->stream == COH_STREAM_WORK &&
           run->element_begin < put->element_end &&
           run->element_begin + run->count > put->element_begin;
}

static coh_status put_take(coh_visit *visit, const coh_chunk_visit *run)
{
    const put_visit *put = (const put_visit *)visit;
    const uint64_t run_end = run->element_begin + run->count;
    const uint64_t begin =
        run->element_begin > put->element_begin ? run->element_begin : put->element_begin;
    const uint64_t end = run_end < put->element_end ? run_end : put->element_end;
    memcpy((float *)run->data + (begin - run->element_begin),
           put->values + (begin - put->element_begin), (end - begin) * sizeof(float));
    return COH_OK;
}

/* A block of a weight in NF4 shares a scale: to put a part of it would change the rest. */
static coh_status check_blocks(const coh_engine *engine, uint32_t parameter, uint64_t element_begin,
                               uint64_t count)
{
    const coh_layout *layout = &engine->plan->layout;
    if (layout->groups[layout->parameters[parameter].group].dtype != COH_DTYPE_NF4 ||
        (element_begin % COH_NF4_BLOCK == 0 && count % COH_NF4_BLOCK == 0))
        return COH_OK;
    return coh_fail(
        COH_ERR_ARGUMENT,
        "parameter '%s' is stored in blocks of %d elements: put whole ones, not %" PRIu64
        " values from element %" PRIu64 " on",
        engine->tensors[parameter].name, COH_NF4_BLOCK, count, element_begin);
}

static coh_status check_put(const coh_logical_tensor *tensor, uint64_t element_begin,
                            uint64_t count, const float *values)
{
    if (element_begin > tensor->elements || count > tensor->elements - element_begin)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%" PRIu64 " values from element %" PRIu64 " on do not fit into parameter "
                        "'%s', which has %" PRIu64 " elements",
                        count, element_begin, tensor->name, tensor->elements);
    return coh_check_values(tensor->name, element_begin, count, values);
}

static coh_status put(coh_engine *engine, coh_parameter parameter, uint64_t element_begin,
                      uint64_t count, const float *values)
{
    put_visit visit = {
        .base = { .operation = COH_OPERATION_PUT, .wants = put_wants, .take = put_take },
        .element_begin = element_begin,
        .element_end = element_begin + count,
        .values = values
    };
    COH_TRY(coh_engine_check_ready(engine, "put"));
    COH_TRY(find_parameter(engine, parameter, &visit.parameter));
    COH_TRY(check_put(&engine->tensors[visit.parameter], element_begin, count, values));
    COH_TRY(check_blocks(engine, visit.parameter, element_begin, count));
    COH_TRY(coh_engine_apply_pending(engine));
    if (engine->tensors[visit.parameter].optimizer == NULL)
        engine->frozen_changed = 1;
    return coh_engine_visit(engine, COH_PROGRAM_EDIT, &visit.base, NULL);
}

coh_status coh_engine_put(coh_engine *engine, coh_parameter parameter, uint64_t element_begin,
                          uint64_t count, const float *values)
{
    COH_NEED(engine);
    COH_NEED(values);
    COH_TRY(coh_engine_enter(engine, __func__));
    return coh_engine_leave(engine, put(engine, parameter, element_begin, count, values));
}
