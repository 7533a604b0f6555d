/* Writes adapters in PEFT's format:
 *
 *   adapter_config.json         rank, alpha, which modules, and which model they belong to
 *   adapter_model.safetensors   "base_model.model.<module>.lora_A.weight" [rank, inputs],
 *                               "base_model.model.<module>.lora_B.weight" [outputs, rank]
 *
 * PEFT compares each target with the modules' full names and with what follows a dot, as we do.
 * Targets are therefore written as the shortest unambiguous name, and never as globs. Next:
 * adapters.c lists the adapters. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/file_text.h"
#include "base/struct_bytes.h"
#include "cohobate/adapters.h"
#include "models/adapters.h"
#include "models/companions.h"
#include "models/folder_place.h"
#include "models/narrow.h"
#include "models/safetensors_writer.h"

#define PIECE_ELEMENTS ((uint64_t)1 << 20)
#define NAME_BYTES     160

typedef struct adapters_writer {
    const coh_model *model;
    coh_adapters_write_options options;
    coh_number_source source;
    void *context;
    coh_folder_place place;
    coh_model_adapter *adapters;
    size_t adapter_count;
    coh_safetensors_tensor *tensors; /* two per adapter, in the order of the file */
    char (*names)[NAME_BYTES];       /* names of the tensors, in the order of the adapters */
    coh_safetensors_writer *file;
    float *piece;
    uint16_t *narrow;
} adapters_writer;

/* ---- adapter_config.json ---- */

/* Is `module` equal to `suffix`, or does it end with a dot and `suffix`? */
static int ends_with(const char *module, const char *suffix)
{
    const size_t length = strlen(module), tail = strlen(suffix);
    if (tail > length || strcmp(module + length - tail, suffix) != 0)
        return 0;
    return tail == length || module[length - tail - 1] == '.';
}

/* Would PEFT apply this target to a module that has no adapter here? */
static int is_ambiguous(const coh_model *model, const char *suffix)
{
    coh_operator op;
    for (int64_t index = 0; coh_operator_next(model, &index, &op);)
        if (ends_with(op.module, suffix) &&
            !(op.linear && coh_adapters_target(&model->adapters, op.name)))
            return 1;
    return 0;
}

/* The shortest end of a module's name that matches only modules with adapters. */
static const char *target_of(const coh_model *model, const char *module)
{
    for (const char *dot = strrchr(module, '.'); dot;) {
        if (!is_ambiguous(model, dot + 1))
            return dot + 1;
        do
            dot = dot > module ? dot - 1 : NULL;
        while (dot && *dot != '.');
    }
    return module;
}

static coh_status add_targets(coh_text *text, const adapters_writer *writer)
{
    for (size_t i = 0; i < writer->adapter_count; i++) {
        const char *target = target_of(writer->model, writer->adapters[i].module);
        size_t before = 0;
        while (!ends_with(writer->adapters[before].module, target))
            before++;
        if (before < i)
            continue;
        COH_TRY(coh_text_add(text, i ? ",\n    " : "\n    "));
        COH_TRY(coh_text_add_quoted(text, target));
    }
    return COH_OK;
}

static coh_status add_config(coh_text *text, const adapters_writer *writer)
{
    char alpha[48];
    coh_text number = { .data = alpha, .capacity = sizeof(alpha), .is_fixed = 1 };
    const coh_adapters *adapters = &writer->model->adapters;
    if (adapters->alpha == floorf(adapters->alpha) && adapters->alpha < 1e6f)
        (void)coh_text_add(&number, "%d", (int)adapters->alpha);
    else
        coh_config_text_add_float(&number, adapters->alpha);
    COH_TRY(coh_text_add(text, "{\n  \"base_model_name_or_path\": "));
    COH_TRY(writer->options.base ? coh_text_add_quoted(text, writer->options.base)
                                 : coh_text_add(text, "null"));
    COH_TRY(coh_text_add(text,
                         ",\n  \"bias\": \"none\",\n  \"fan_in_fan_out\": %s,\n"
                         "  \"inference_mode\": true,\n  \"init_lora_weights\": true,\n"
                         "  \"lora_alpha\": %s,\n  \"lora_dropout\": 0.0,\n"
                         "  \"modules_to_save\": null,\n  \"peft_type\": \"LORA\",\n"
                         "  \"r\": %" PRId32 ",\n  \"target_modules\": [",
                         writer->adapters[0].transposed ? "true" : "false", alpha, adapters->rank));
    COH_TRY(add_targets(text, writer));
    return coh_text_add(text, "\n  ],\n  \"task_type\": \"CAUSAL_LM\"\n}\n");
}

/* Writes the file to the folder; if `out_bytes` is given, only computes its size. */
static coh_status config_write(adapters_writer *writer, uint64_t *out_bytes)
{
    coh_text text = { 0 };
    coh_status status = add_config(&text, writer);
    if (out_bytes)
        *out_bytes = coh_bytes_round_page(text.bytes);
    else if (status == COH_OK)
        status =
            coh_folder_place_file(&writer->place, "adapter_config.json", text.data, text.bytes);
    coh_text_fini(&text);
    return status;
}

/* ---- adapter_model.safetensors ---- */

static coh_status list_make(adapters_writer *writer)
{
    static const char *const parts[] = { COH_ADAPTER_A, COH_ADAPTER_B };
    const int64_t rank = writer->model->adapters.rank;
    const size_t count = 2 * writer->adapter_count;
    COH_TRY(COH_ALLOC(count, &writer->tensors));
    COH_TRY(COH_ALLOC(count, &writer->names));
    for (size_t i = 0; i < count; i++) {
        const coh_model_adapter *adapter = &writer->adapters[i / 2];
        const int is_up = i % 2 == 1;
        snprintf(writer->names[i], NAME_BYTES, "base_model.model.%s.%s.weight", adapter->module,
                 parts[is_up]);
        writer->tensors[i] =
            (coh_safetensors_tensor){ .name = writer->names[i],
                                      .dtype = coh_safetensors_dtype_name(writer->options.dtype),
                                      .rank = 2,
                                      .dim = { is_up ? adapter->outputs : rank,
                                               is_up ? rank : adapter->inputs } };
    }
    coh_safetensors_sort(writer->tensors, count);
    return COH_OK;
}

static coh_status add_piece(adapters_writer *writer, const char *name, uint64_t count)
{
    const coh_dtype dtype = writer->options.dtype;
    if (dtype == COH_DTYPE_F32)
        return coh_safetensors_writer_add(writer->file, writer->piece, count * sizeof(float));
    COH_TRY(coh_narrow(name, writer->piece, count, dtype, writer->narrow));
    return coh_safetensors_writer_add(writer->file, writer->narrow, count * sizeof(uint16_t));
}

static coh_status add_tensor(adapters_writer *writer, const coh_safetensors_tensor *tensor)
{
    char ours[sizeof(writer->adapters[0].name) + 24];
    const size_t place = (size_t)(tensor->name - writer->names[0]) / NAME_BYTES;
    coh_adapter_parameter_name(writer->adapters[place / 2].name,
                               place % 2 == 1 ? COH_ADAPTER_B : COH_ADAPTER_A, ours, sizeof(ours));
    const uint64_t elements = coh_safetensors_elements(tensor);
    for (uint64_t begin = 0; begin < elements; begin += PIECE_ELEMENTS) {
        const uint64_t left = elements - begin;
        const uint64_t count = left < PIECE_ELEMENTS ? left : PIECE_ELEMENTS;
        COH_TRY(writer->source(writer->context, ours, begin, count, writer->piece));
        COH_TRY(
            coh_check_finite(tensor->name, writer->piece, (size_t)count, begin, tensor->dim[1]));
        COH_TRY(add_piece(writer, ours, count));
    }
    return COH_OK;
}

static const coh_safetensors_pair metadata[] = { { "format", "pt" } };

static coh_status tensors_write(adapters_writer *writer)
{
    char path[PATH_MAX];
    COH_TRY(list_make(writer));
    COH_TRY(coh_folder_place_path(&writer->place, "adapter_model.safetensors", path));
    COH_TRY(coh_safetensors_writer_begin(&writer->place.ops, path, writer->tensors,
                                         2 * writer->adapter_count, metadata, 1, &writer->file));
    for (size_t i = 0; i < 2 * writer->adapter_count; i++)
        COH_TRY(add_tensor(writer, &writer->tensors[i]));
    COH_TRY(coh_safetensors_writer_finish(writer->file));
    return coh_safetensors_writer_publish(writer->file);
}

static coh_status write_all(adapters_writer *writer, const char *path)
{
    COH_TRY(COH_ALLOC(PIECE_ELEMENTS, &writer->piece));
    COH_TRY(COH_ALLOC(PIECE_ELEMENTS, &writer->narrow));
    COH_TRY(coh_adapters_list(writer->model, &writer->adapters, &writer->adapter_count));
    COH_TRY(coh_folder_place_begin(&writer->place, path));
    COH_TRY(config_write(writer, NULL));
    COH_TRY(
        coh_companions_copy(&writer->place, writer->options.files_from, COH_COMPANIONS_TOKENIZER));
    COH_TRY(tensors_write(writer));
    return coh_folder_place_publish(&writer->place);
}

static coh_status writer_make(const coh_model *model, const coh_adapters_write_options *options,
                              coh_number_source source, void *context, adapters_writer **out_writer)
{
    if (coh_model_adapter_count(model) == 0)
        return coh_fail(COH_ERR_ARGUMENT, "%s has no adapters to write", model->name);
    coh_adapters_write_options known = { 0 };
    COH_TRY(coh_struct_check("coh_adapters_write_options", options, sizeof(known),
                             _Alignof(coh_adapters_write_options)));
    coh_struct_read(options, &known, sizeof(known));
    if (!coh_safetensors_dtype_name(known.dtype))
        return coh_fail(COH_ERR_ARGUMENT, "tensors are stored in f32, bf16 or f16, not in dtype %d",
                        (int)known.dtype);
    COH_TRY(COH_ALLOC(1, out_writer));
    **out_writer =
        (adapters_writer){ .model = model, .options = known, .source = source, .context = context };
    return COH_OK;
}

static void writer_free(adapters_writer *writer)
{
    coh_safetensors_writer_destroy(writer->file);
    coh_folder_place_end(&writer->place);
    coh_free(writer->narrow);
    coh_free(writer->piece);
    coh_free(writer->names);
    coh_free(writer->tensors);
    coh_free(writer->adapters);
    coh_free(writer);
}

coh_status coh_adapters_write(const coh_model *model, const coh_adapters_write_options *options,
                              const char *path, coh_number_source source, void *context)
{
    adapters_writer *writer;
    if (!model || !options || !path || !source)
        return coh_fail(COH_ERR_ARGUMENT,
                        "writing adapters needs a model, options, a path and a source");
    COH_TRY(writer_make(model, options, source, context, &writer));
    const coh_status status = write_all(writer, path);
    writer_free(writer);
    return status;
}

static coh_status count_all(adapters_writer *writer, uint64_t *out_bytes)
{
    uint64_t config_bytes, files_bytes;
    COH_TRY(coh_adapters_list(writer->model, &writer->adapters, &writer->adapter_count));
    COH_TRY(list_make(writer));
    COH_TRY(coh_safetensors_folder_bytes(writer->tensors, 2 * writer->adapter_count, metadata, 1,
                                         out_bytes));
    COH_TRY(config_write(writer, &config_bytes));
    COH_TRY(
        coh_companions_bytes(writer->options.files_from, COH_COMPANIONS_TOKENIZER, &files_bytes));
    return coh_bytes_add(*out_bytes, config_bytes + files_bytes + COH_PAGE_BYTES /* the folder */,
                         out_bytes);
}

coh_status coh_adapters_write_bytes(const coh_model *model,
                                    const coh_adapters_write_options *options, uint64_t *out_bytes)
{
    adapters_writer *writer;
    if (!model || !options || !out_bytes)
        return coh_fail(COH_ERR_ARGUMENT, "the bytes of adapters need a model and options");
    COH_TRY(writer_make(model, options, NULL, NULL, &writer));
    const coh_status status = count_all(writer, out_bytes);
    writer_free(writer);
    return status;
}
