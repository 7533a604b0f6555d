/* Lists the tensors of a folder from the family's lines: in the graphs' order, and by name. The one
 * idea: names and shapes are computed from an index, so no list of a large model is stored. Next:
 * family.h for the lines. */
#include "models/family.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int is_there(const coh_tensor_line *line, const coh_tensor_sizes *sizes)
{
    return (line->needs & ~sizes->has) == 0;
}

static int64_t count_there(const coh_tensor_line *lines, const coh_tensor_sizes *sizes)
{
    int64_t count = 0;
    for (const coh_tensor_line *line = lines; line->name; line++)
        count += is_there(line, sizes);
    return count;
}

/* The index-th line among those that apply to `sizes`. */
static const coh_tensor_line *line_at(const coh_tensor_line *lines, const coh_tensor_sizes *sizes,
                                      int64_t index)
{
    const coh_tensor_line *line = lines;
    for (; line->name; line++)
        if (is_there(line, sizes) && index-- == 0)
            break;
    return line;
}

/* The index of `name` among the lines that apply; -1 if it is not one of them. */
static int64_t line_find(const coh_tensor_line *lines, const coh_tensor_sizes *sizes,
                         const char *name)
{
    int64_t index = 0;
    for (const coh_tensor_line *line = lines; line->name; line++) {
        if (!is_there(line, sizes))
            continue;
        if (strcmp(line->name, name) == 0)
            return index;
        index++;
    }
    return -1;
}

static const coh_tensor_lines *lines_of(const coh_model *model, coh_tensor_sizes *out_sizes)
{
    const coh_family_table *family = model ? coh_family_of(model) : NULL;
    if (!family || family->check(coh_family_config(model)) != COH_OK)
        return NULL; /* no such graph, for instance of 2^63 layers */
    family->sizes(coh_family_config(model), out_sizes);
    return family->lines;
}

int64_t coh_model_tensor_count(const coh_model *model)
{
    if (model == NULL)
        return 0;
    coh_tensor_sizes sizes;
    const coh_tensor_lines *lines = lines_of(model, &sizes);
    if (!lines)
        return 0;
    return count_there(lines->begin, &sizes) + sizes.layers * count_there(lines->in_layer, &sizes) +
           count_there(lines->end, &sizes);
}

/* ---- by index ---- */

/* `layer` < 0: a tensor outside of layers. */
static void describe(const coh_tensor_lines *lines, const coh_tensor_sizes *sizes,
                     const coh_tensor_line *line, int64_t layer, coh_model_tensor *out)
{
    char place[48] = "";
    if (layer >= 0)
        snprintf(place, sizeof(place), "%s%" PRId64 ".", lines->layer, layer);
    const char *prefix = line->bare ? "" : lines->prefix;
    *out = (coh_model_tensor){ .rank = line->columns == COH_SIDE_NONE ? 1 : 2,
                               .dim = { sizes->side[line->rows], sizes->side[line->columns] },
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
    COH_NEED(model);
    coh_tensor_sizes sizes;
    const coh_tensor_lines *lines = lines_of(model, &sizes);
    if (!lines || !out_tensor)
        return coh_fail(COH_ERR_ARGUMENT, "a tensor needs a model of a known family whose graph "
                                          "can be made, and a place");
    const int64_t begin = count_there(lines->begin, &sizes),
                  in_layer = count_there(lines->in_layer, &sizes),
                  all = coh_model_tensor_count(model);
    if (index < 0 || index >= all)
        return coh_fail(COH_ERR_ARGUMENT,
                        "the model has tensors 0 to %" PRId64 ", and none of index %" PRId64,
                        all - 1, index);
    const int64_t behind = index - begin - sizes.layers * in_layer;
    if (index < begin)
        describe(lines, &sizes, line_at(lines->begin, &sizes, index), -1, out_tensor);
    else if (behind >= 0)
        describe(lines, &sizes, line_at(lines->end, &sizes, behind), -1, out_tensor);
    else
        describe(lines, &sizes, line_at(lines->in_layer, &sizes, (index - begin) % in_layer),
                 (index - begin) / in_layer, out_tensor);
    return COH_OK;
}

/* ---- by name ---- */

/* Splits "<layer><n>.<rest>" into n and rest. Numbers with leading zeros or signs are refused. */
static const char *layer_parse(const coh_tensor_lines *lines, const coh_tensor_sizes *sizes,
                               const char *name, int64_t *out_layer)
{
    const size_t length = strlen(lines->layer);
    char *rest;
    if (strncmp(name, lines->layer, length) != 0)
        return NULL;
    const char *digits = name + length;
    if (digits[0] < '0' || digits[0] > '9' || (digits[0] == '0' && digits[1] != '.'))
        return NULL;
    *out_layer = (int64_t)strtoull(digits, &rest, 10);
    if (*rest != '.' || rest - digits > 9 || *out_layer >= sizes->layers)
        return NULL;
    return rest + 1;
}

static coh_model_name find_in_layer(const coh_tensor_lines *lines, const coh_tensor_sizes *sizes,
                                    const char *name, int64_t *out_index)
{
    int64_t layer;
    const char *rest = layer_parse(lines, sizes, name, &layer);
    if (!rest)
        return COH_MODEL_NAME_UNKNOWN;
    const int64_t place = line_find(lines->in_layer, sizes, rest);
    if (place >= 0) {
        *out_index =
            count_there(lines->begin, sizes) + layer * count_there(lines->in_layer, sizes) + place;
        return COH_MODEL_NAME_PARAMETER;
    }
    for (const char *const *buffer = lines->buffers; *buffer; buffer++)
        if (strcmp(*buffer, rest) == 0)
            return COH_MODEL_NAME_BUFFER;
    return COH_MODEL_NAME_UNKNOWN;
}

static coh_model_name find(const coh_tensor_lines *lines, const coh_tensor_sizes *sizes,
                           const char *name, int64_t *out_index)
{
    int64_t place = line_find(lines->begin, sizes, name);
    if (place >= 0) {
        *out_index = place;
        return COH_MODEL_NAME_PARAMETER;
    }
    place = line_find(lines->end, sizes, name);
    if (place >= 0) {
        *out_index = count_there(lines->begin, sizes) +
                     sizes->layers * count_there(lines->in_layer, sizes) + place;
        return COH_MODEL_NAME_PARAMETER;
    }
    if (strcmp(name, "lm_head.weight") == 0 && !(sizes->has & COH_TENSOR_UNTIED)) {
        *out_index = 0; /* the table is the first tensor of every family */
        return COH_MODEL_NAME_TIED;
    }
    return find_in_layer(lines, sizes, name, out_index);
}

coh_model_name coh_model_name_find(const coh_model *model, const char *published,
                                   int64_t *out_index)
{
    if (model == NULL)
        return COH_MODEL_NAME_UNKNOWN;
    coh_tensor_sizes sizes;
    int64_t ignored;
    int64_t *index = out_index ? out_index : &ignored;
    const coh_tensor_lines *lines = lines_of(model, &sizes);
    *index = -1;
    if (!lines || !published)
        return COH_MODEL_NAME_UNKNOWN;
    const size_t length = strlen(lines->prefix);
    if (strncmp(published, lines->prefix, length) != 0)
        return find(lines, &sizes, published, index);
    /* Tensors published bare have no prefixed form: "transformer.lm_head.weight" is unknown. */
    if (strcmp(published + length, "lm_head.weight") == 0)
        return COH_MODEL_NAME_UNKNOWN;
    return find(lines, &sizes, published + length, index);
}
