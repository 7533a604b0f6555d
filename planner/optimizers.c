/* Resolves the optimizers that a plan's options name, and turns an optimizer's table into the rows
 * of a parameter group. Next: optimizers.h, cohobate/optimizer.h. */
#include "planner/optimizers.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/name_pattern.h"
#include "cohobate/plan.h"
#include "cohobate/terms.h"
#include "planner/profile.h"

static const char *default_name(const coh_plan_options *options)
{
    return options->optimizer[0] != '\0' ? options->optimizer : COH_OPTIMIZER_DEFAULT;
}

static int matches(const coh_graph *graph, const coh_optimizer_choice *choice, size_t parameter)
{
    return coh_graph_parameter_matches(graph, choice->pattern, &graph->parameters[parameter]);
}

const coh_optimizer *coh_optimizer_of(const coh_graph *graph, const coh_plan_options *options,
                                      size_t parameter)
{
    for (int32_t i = 0; i < options->optimizer_choice_count; i++)
        if (matches(graph, &options->optimizer_choices[i], parameter))
            return coh_optimizer_find(options->optimizer_choices[i].optimizer);
    return coh_optimizer_find(default_name(options));
}

/* ---- checks ---- */

static coh_status check_known(const char *name)
{
    char known[256] = "";
    size_t length = 0;
    if (coh_optimizer_find(name) != NULL)
        return COH_OK;
    for (int32_t i = 0; i < coh_optimizer_count() && length < sizeof(known); i++)
        length += (size_t)snprintf(known + length, sizeof(known) - length, "%s%s",
                                   i > 0 ? ", " : "", coh_optimizer_at(i)->name);
    return coh_fail(COH_ERR_ARGUMENT,
                    "no optimizer is called '%s': there are %s; those of an extension are named by "
                    "%s",
                    name, known, coh_term_text(COH_TERM_KINDS));
}

static coh_status check_text(const char *text, size_t bytes, const char *what)
{
    if (memchr(text, '\0', bytes) != NULL)
        return COH_OK;
    return coh_fail(COH_ERR_ARGUMENT, "%s has no terminator: it is longer than %zu bytes", what,
                    bytes - 1);
}

static coh_status refuse_pattern(const coh_optimizer_choice *choice, const char *pattern)
{
    return coh_fail(COH_ERR_ARGUMENT, "optimizer %s: the pattern '%s' matches no trained parameter",
                    choice->optimizer, pattern);
}

/* A glob that matches nothing is an error, even if other globs of its list match. */
static coh_status check_globs(const coh_graph *graph, const coh_optimizer_choice *choice)
{
    const char *list = choice->pattern;
    char glob[COH_PATTERN_BYTES];
    while (coh_pattern_next(&list, glob)) {
        int is_used = 0;
        for (size_t p = 0; p < graph->parameter_count && !is_used; p++)
            is_used = coh_graph_parameter_matches(graph, glob, &graph->parameters[p]);
        if (!is_used)
            return refuse_pattern(choice, glob);
    }
    return COH_OK;
}

static coh_status check_choice(const coh_graph *graph, const coh_plan_options *options,
                               int32_t index)
{
    const coh_optimizer_choice *choice = &options->optimizer_choices[index];
    int is_used = 0;
    COH_TRY(check_text(choice->pattern, sizeof(choice->pattern), "the pattern of an optimizer"));
    COH_TRY(check_text(choice->optimizer, sizeof(choice->optimizer), "the name of an optimizer"));
    COH_TRY(check_known(choice->optimizer));
    for (size_t p = 0; p < graph->parameter_count; p++) {
        if (graph->parameters[p].frozen || !matches(graph, choice, p))
            continue;
        is_used = 1;
        for (int32_t other = 0; other < index; other++)
            if (matches(graph, &options->optimizer_choices[other], p) &&
                strcmp(options->optimizer_choices[other].optimizer, choice->optimizer) != 0)
                return coh_fail(
                    COH_ERR_ARGUMENT,
                    "two optimizers are given for parameter %s: %s by '%s' and %s by "
                    "'%s'; let one pattern match it",
                    graph->parameters[p].name, options->optimizer_choices[other].optimizer,
                    options->optimizer_choices[other].pattern, choice->optimizer, choice->pattern);
    }
    return is_used ? check_globs(graph, choice) : refuse_pattern(choice, choice->pattern);
}

/* Checks that streams of one name have one form, since they share a file of a checkpoint. */
static coh_status check_forms(const coh_optimizer *a, const coh_optimizer *b)
{
    for (int32_t i = 0; i < a->stream_count; i++)
        for (int32_t k = 0; k < b->stream_count; k++) {
            const coh_state_stream *x = &a->streams[i], *y = &b->streams[k];
            if (strcmp(x->name, y->name) == 0 &&
                (x->bytes_per_block != y->bytes_per_block ||
                 x->elements_per_block != y->elements_per_block || !x->is_f32 != !y->is_f32))
                return coh_fail(COH_ERR_ARGUMENT,
                                "optimizers %s and %s have a stream %s of different forms: use "
                                "one of them in a plan",
                                a->name, b->name, x->name);
        }
    return COH_OK;
}

static coh_status check_device(const coh_plan_options *options, const coh_optimizer *optimizer)
{
    const coh_profile *profile = options->profile;
    if (coh_optimizer_runs_on(optimizer, profile ? profile->device_kind : COH_DEVICE_HOST))
        return COH_OK;
    return coh_fail(COH_ERR_ARGUMENT,
                    "optimizer %s has no kernel for a GPU: plan for the host device, or take "
                    "another optimizer",
                    optimizer->name);
}

coh_status coh_optimizers_check(const coh_graph *graph, const coh_plan_options *options)
{
    if (options->mode != COH_PLAN_TRAIN)
        return COH_OK;
    COH_TRY(check_text(options->optimizer, sizeof(options->optimizer), "the name of an optimizer"));
    COH_TRY(check_known(default_name(options)));
    for (int32_t i = 0; i < options->optimizer_choice_count; i++)
        COH_TRY(check_choice(graph, options, i));
    coh_layout layout = { 0 };
    uint8_t *is_trained = NULL;
    int32_t *of_parameter = NULL;
    coh_status status = COH_OK;
    COH_TRY_GOTO(status, COH_ALLOC(graph->parameter_count, &is_trained), done);
    COH_TRY_GOTO(status, COH_ALLOC(graph->parameter_count, &of_parameter), done);
    for (size_t i = 0; i < graph->parameter_count; i++)
        is_trained[i] = !graph->parameters[i].frozen;
    COH_TRY_GOTO(status, coh_optimizers_of(graph, options, is_trained, &layout, of_parameter),
                 done);
    for (int32_t i = 0; i < layout.optimizer_count && status == COH_OK; i++) {
        status = check_device(options, layout.optimizers[i]);
        for (int32_t other = 0; other < i && status == COH_OK; other++)
            status = check_forms(layout.optimizers[other], layout.optimizers[i]);
    }
done:
    coh_free(is_trained);
    coh_free(of_parameter);
    return status;
}

/* ---- of parameters ---- */

static coh_status list_one(coh_layout *layout, const coh_optimizer *optimizer, int32_t *out_index)
{
    for (*out_index = 0; *out_index < layout->optimizer_count; (*out_index)++)
        if (layout->optimizers[*out_index] == optimizer)
            return COH_OK;
    if (optimizer == NULL)
        return coh_fail(COH_ERR_ARGUMENT, "a parameter's optimizer is not registered");
    if (layout->optimizer_count == COH_PLAN_OPTIMIZERS)
        return coh_fail(COH_ERR_ARGUMENT, "more than %d optimizers in one plan",
                        COH_PLAN_OPTIMIZERS);
    layout->optimizers[layout->optimizer_count++] = optimizer;
    return COH_OK;
}

coh_status coh_optimizers_of(const coh_graph *graph, const coh_plan_options *options,
                             const uint8_t *is_trained, coh_layout *layout,
                             int32_t *out_of_parameter)
{
    layout->optimizer_count = 0;
    for (size_t i = 0; i < graph->parameter_count; i++) {
        out_of_parameter[i] = -1;
        if (is_trained[i])
            COH_TRY(list_one(layout, coh_optimizer_of(graph, options, i), &out_of_parameter[i]));
    }
    return COH_OK;
}

/* ---- rows ---- */

static coh_group_stream *add_row(coh_group_layout *group, const char *name, coh_stream object,
                                 uint32_t bytes)
{
    coh_group_stream *row = &group->streams[group->stream_count++];
    *row = (coh_group_stream){ .bytes_per_block = bytes,
                               .elements_per_block = 1,
                               .object = (uint8_t)object,
                               .survives = 1,
                               .readers = COH_READER_OPTIMIZER,
                               .part = -1 };
    snprintf(row->name, sizeof(row->name), "%s", name);
    return row;
}

void coh_group_streams_make(coh_group_layout *group, const coh_optimizer *optimizer, int deferred)
{
    const int is_packed = group->dtype == COH_DTYPE_NF4;
    const uint32_t block = is_packed ? COH_NF4_BLOCK : 1;
    group->stream_count = 0;
    coh_group_stream *work = add_row(group, "work", COH_STREAM_WORK,
                                     (uint32_t)coh_dtype_array_bytes(group->dtype, block));
    work->elements_per_block = block;
    work->part = 0;
    work->readers = COH_READER_OPERATORS;
    if (optimizer == NULL)
        return;
    work->readers |= COH_READER_OPTIMIZER;
    const uint32_t grad_bytes = (uint32_t)coh_dtype_bytes(coh_group_grad_dtype(group));
    add_row(group, "grad", COH_STREAM_GRAD, grad_bytes)->survives = (uint8_t)(deferred != 0);
    if (group->dtype == COH_DTYPE_BF16 && !optimizer->rounds_work)
        add_row(group, "low", COH_STREAM_STATE, sizeof(uint16_t));
    for (int32_t i = 0; i < optimizer->stream_count; i++) {
        const coh_state_stream *stream = &optimizer->streams[i];
        coh_group_stream *row =
            add_row(group, stream->name, COH_STREAM_STATE, stream->bytes_per_block);
        row->elements_per_block = stream->elements_per_block;
        row->part = (int8_t)(1 + i);
    }
}

coh_status coh_optimizers_most_bytes(const coh_graph *graph, const coh_plan_options *options,
                                     uint64_t chunk_bytes, uint64_t *out_bytes)
{
    *out_bytes = 0;
    for (size_t i = 0; i < graph->parameter_count; i++) {
        const coh_dtype dtype = graph->parameters[i].facts.shape.dtype;
        const int trains = options->mode == COH_PLAN_TRAIN && !graph->parameters[i].frozen;
        coh_group_layout group = { .dtype = dtype, .f32_gradients = options->f32_gradients };
        coh_group_streams_make(&group, trains ? coh_optimizer_of(graph, options, i) : NULL, 1);
        const uint64_t work_bytes = coh_dtype_chunk_bytes(dtype, chunk_bytes);
        uint64_t bytes = 0;
        for (int object = COH_STREAM_WORK; object <= COH_STREAM_STATE; object++)
            bytes += coh_group_chunk_bytes(&group, (uint8_t)object, work_bytes);
        if (bytes > *out_bytes)
            *out_bytes = bytes;
    }
    return COH_OK;
}
