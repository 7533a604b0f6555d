/* Lists the tensors of a folder from the family's lines: in the graphs' order, and by name. The one
 * idea: names and shapes are computed from an index, so no list of a large model is stored. Next:
 * family.h for the lines. */
#include "models/family.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The lines of a model, and how many of each kind its configuration has. */
typedef struct table {
    const coh_tensor_lines *lines;
    coh_tensor_sizes sizes;
    int64_t begin, in_layer, end;
    int64_t behind_layers; /* index of the first tensor of `end` */
} table;

static int is_there(const table *t, const coh_tensor_line *line)
{
    return (line->needs & ~t->sizes.has) == 0;
}

static int64_t count_there(const table *t, const coh_tensor_line *lines)
{
    int64_t count = 0;
    for (const coh_tensor_line *line = lines; line->name; line++)
        count += is_there(t, line);
    return count;
}

/* Returns 0 if there is no such graph, for instance of 2^63 layers. */
static int table_of(const coh_model *model, table *t)
{
    const coh_family_table *family = model ? coh_family_of(model) : NULL;
    if (!family || family->check(coh_family_config(model)) != COH_OK)
        return 0;
    t->lines = &family->lines;
    family->sizes(coh_family_config(model), &t->sizes);
    t->begin = count_there(t, t->lines->begin);
    t->in_layer = count_there(t, t->lines->in_layer);
    t->end = count_there(t, t->lines->end);
    t->behind_layers = t->begin + t->sizes.layers * t->in_layer;
    return 1;
}

int64_t coh_model_tensor_count(const coh_model *model)
{
    table t;
    return table_of(model, &t) ? t.behind_layers + t.end : 0;
}

/* ---- by index ---- */

/* The index-th line among those that apply. */
static const coh_tensor_line *line_at(const table *t, const coh_tensor_line *lines, int64_t index)
{
    const coh_tensor_line *line = lines;
    for (; line->name; line++)
        if (is_there(t, line) && index-- == 0)
            break;
    return line;
}

/* `layer` < 0: a tensor outside of layers. */
static void describe(const table *t, const coh_tensor_line *line, int64_t layer,
                     coh_model_tensor *out)
{
    const coh_tensor_lines *lines = t->lines;
    const int64_t *side = t->sizes.side;
    char place[48] = "";
    if (layer >= 0)
        snprintf(place, sizeof(place), "%s%" PRId64 ".", lines->layer, layer);
    const char *prefix = line->bare ? "" : lines->prefix;
    *out = (coh_model_tensor){ .rank = line->columns == COH_SIDE_NONE ? 1 : 2,
                               .dim = { side[line->rows], side[line->columns] },
                               .transposed = line->transposed,
                               .linear = line->columns != COH_SIDE_NONE &&
                                         line->rows != COH_SIDE_VOCABULARY &&
                                         line->rows != COH_SIDE_POSITIONS };
    snprintf(out->name, sizeof(out->name), "%s%s%s", lines->ours_prefixed ? prefix : "", place,
             line->name);
    snprintf(out->published, sizeof(out->published), "%s%s%s", prefix, place, line->name);
    out->published_dim[0] = out->dim[line->transposed ? 1 : 0];
    out->published_dim[1] = out->dim[line->transposed ? 0 : 1];
}

coh_status coh_model_tensor_at(const coh_model *model, int64_t index, coh_model_tensor *out_tensor)
{
    table t;
    COH_NEED(model);
    if (!table_of(model, &t) || !out_tensor)
        return coh_fail(COH_ERR_ARGUMENT, "a tensor needs a model of a known family whose graph "
                                          "can be made, and a place");
    if (index < 0 || index >= t.behind_layers + t.end)
        return coh_fail(COH_ERR_ARGUMENT,
                        "the model has tensors 0 to %" PRId64 ", and none of index %" PRId64,
                        t.behind_layers + t.end - 1, index);
    const int64_t in_layers = index - t.begin, behind = index - t.behind_layers;
    if (index < t.begin)
        describe(&t, line_at(&t, t.lines->begin, index), -1, out_tensor);
    else if (behind >= 0)
        describe(&t, line_at(&t, t.lines->end, behind), -1, out_tensor);
    else
        describe(&t, line_at(&t, t.lines->in_layer, in_layers % t.in_layer), in_layers / t.in_layer,
                 out_tensor);
    return COH_OK;
}

/* ---- by name ---- */

/* The index of `name` among the lines that apply; -1 if it is not one of them. */
static int64_t line_find(const table *t, const coh_tensor_line *lines, const char *name)
{
    int64_t index = 0;
    for (const coh_tensor_line *line = lines; line->name; line++) {
        if (!is_there(t, line))
            continue;
        if (strcmp(line->name, name) == 0)
            return index;
        index++;
    }
    return -1;
}

/* Splits "<layer><n>.<rest>" into n and rest. Numbers with leading zeros or signs are refused. */
static const char *layer_parse(const table *t, const char *name, int64_t *out_layer)
{
    const size_t length = strlen(t->lines->layer);
    char *rest;
    if (strncmp(name, t->lines->layer, length) != 0)
        return NULL;
    const char *digits = name + length;
    if (digits[0] < '0' || digits[0] > '9' || (digits[0] == '0' && digits[1] != '.'))
        return NULL;
    *out_layer = (int64_t)strtoull(digits, &rest, 10);
    if (*rest != '.' || rest - digits > 9 || *out_layer >= t->sizes.layers)
        return NULL;
    return rest + 1;
}

/* Sets *out_index of a parameter or a tied head. */
static coh_model_name find(const table *t, const char *name, int64_t *out_index)
{
    int64_t layer, place = line_find(t, t->lines->begin, name);
    const char *rest = layer_parse(t, name, &layer);
    if (place >= 0) {
        *out_index = place;
        return COH_MODEL_NAME_PARAMETER;
    }
    if ((place = line_find(t, t->lines->end, name)) >= 0) {
        *out_index = t->behind_layers + place;
        return COH_MODEL_NAME_PARAMETER;
    }
    if (strcmp(name, "lm_head.weight") == 0 && !(t->sizes.has & COH_TENSOR_UNTIED)) {
        *out_index = 0; /* the table is the first tensor of every family */
        return COH_MODEL_NAME_TIED;
    }
    if (!rest)
        return COH_MODEL_NAME_UNKNOWN;
    if ((place = line_find(t, t->lines->in_layer, rest)) >= 0) {
        *out_index = t->begin + layer * t->in_layer + place;
        return COH_MODEL_NAME_PARAMETER;
    }
    for (const char *const *buffer = t->lines->buffers; *buffer; buffer++)
        if (strcmp(*buffer, rest) == 0)
            return COH_MODEL_NAME_BUFFER;
    return COH_MODEL_NAME_UNKNOWN;
}

coh_model_name coh_model_name_find(const coh_model *model, const char *published,
                                   int64_t *out_index)
{
    table t;
    int64_t ignored;
    int64_t *index = out_index ? out_index : &ignored;
    if (model == NULL)
        return COH_MODEL_NAME_UNKNOWN;
    *index = -1;
    if (!table_of(model, &t) || !published)
        return COH_MODEL_NAME_UNKNOWN;
    const size_t length = strlen(t.lines->prefix);
    if (strncmp(published, t.lines->prefix, length) != 0)
        return find(&t, published, index);
    /* Tensors published bare have no prefixed form: "transformer.lm_head.weight" is unknown. */
    if (strcmp(published + length, "lm_head.weight") == 0)
        return COH_MODEL_NAME_UNKNOWN;
    return find(&t, published + length, index);
}
