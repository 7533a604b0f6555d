/* Writes folders atomically (folder_place.h): a whole model as `transformers` reads it, or adapters
 * as PEFT reads them. The one idea: both are a config file, copies of the tokenizer's files and a
 * list of tensors, and differ only in how config and list are made (export_kind).
 *
 *   config.json, model.safetensors (or shards and an index)
 *   adapter_config.json, adapter_model.safetensors
 *
 * Tensors pass through one piece buffer. Each piece of a transposed tensor is made by reading all
 * of ours: narrow reads of a checkpoint would be expensive, since every grain it touches is read
 * and its hash checked. Next: folder_read.c for the reverse, safetensors_write.c for the files. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/half.h"
#include "base/struct_bytes.h"
#include "cohobate/adapters.h"
#include "models/adapters.h"
#include "models/chat_files.h"
#include "models/companions.h"
#include "models/safetensors_write.h"
#include "models/stored.h"

/* 2^20 numbers, 4 MiB: a multiple of a checkpoint's grains. Wider pieces save little without
 * transposition; the largest transposed tensor of a 124M model takes three pieces. */
#define PIECE_ELEMENTS ((uint64_t)1 << 20)

/* Both names of a tensor. The list of tensors points to `published`. */
typedef struct export_name {
    char published[160];
    char ours[128];
    int transposed; /* published as [inputs, outputs] */
} export_name;

typedef struct exporter {
    const coh_model *model;
    const struct export_kind *kind;
    coh_dtype dtype;
    uint64_t shard_bytes;
    const char *base;   /* of adapters: the base model's name */
    int32_t frozen_nf4; /* likewise: of weights in NF4 */
    const char *files_from, *generation_from, *notices_from; /* NULL: none are copied */
    coh_folder_write_options chat;                           /* its last three members are read */
    coh_number_source source;
    void *context;

    coh_model_adapter *adapters; /* NULL for a whole model */
    size_t adapter_count;
    coh_operator *saved; /* that are trained in full next to the adapters */
    size_t saved_count;
    export_name *names;
    coh_safetensors_tensor *tensors; /* in the order of the file */
    size_t count;
    coh_stored_metadata metadata;

    coh_folder_place place;
    coh_safetensors_writer *files;
    float *piece, *block; /* PIECE_ELEMENTS each: output; input of a transposed tensor */
} exporter;

typedef struct export_kind {
    const char *config, *base; /* names of the files */
    coh_status (*list_make)(exporter *e);
    coh_status (*config_make)(const exporter *e, coh_text *text);
} export_kind;

/* ---- numbers ---- */

/* Checks that `count` numbers of a tensor, its elements from number `begin` on, are finite. A fast
 * pass over all numbers, and a search for the culprit only if it fails. */
static coh_status check_finite(const coh_safetensors_tensor *tensor, const float *values,
                               size_t count, uint64_t begin)
{
    const uint64_t columns = tensor->rank > 1 ? (uint64_t)tensor->dim[1] : 1;
    int is_broken = 0;
    size_t at = 0;
    for (size_t i = 0; i < count; i++)
        is_broken |= !isfinite(values[i]);
    if (!is_broken)
        return COH_OK;
    while (isfinite(values[at]))
        at++;
    return coh_fail(COH_ERR_CORRUPT,
                    "%s holds %s at [%" PRIu64 ", %" PRIu64
                    "], which is not finite, so nothing is written: take a whole copy of the model",
                    tensor->name, isnan(values[at]) ? "NaN" : "an infinity", (begin + at) / columns,
                    (begin + at) % columns);
}

/* Rounds `count` numbers to the nearest f16 or bf16. Fails: COH_ERR_NUMBER for a finite number
 * outside the dtype's range. */
static coh_status narrow(const char *name, const float *values, size_t count, coh_dtype dtype,
                         uint16_t *out_narrow)
{
    const int is_f16 = dtype == COH_DTYPE_F16;
    const uint16_t infinite = is_f16 ? 0x7c00 : 0x7f80;
    coh_half_convert(COH_DTYPE_F32, values, dtype, out_narrow, count);
    for (size_t i = 0; i < count; i++)
        if ((out_narrow[i] & 0x7fff) == infinite && isfinite(values[i]))
            return coh_fail(COH_ERR_NUMBER, "%s holds %g, which is beyond %s: write it as %s", name,
                            (double)values[i], is_f16 ? "f16" : "bf16",
                            is_f16 ? "bf16 or f32" : "f32");
    return COH_OK;
}

static coh_status add_piece(exporter *e, const char *name, coh_dtype dtype, size_t count)
{
    enum { NARROW = 4096 };
    uint16_t narrowed[NARROW];
    if (dtype == COH_DTYPE_F32)
        return coh_safetensors_writer_add(e->files, e->piece, count * sizeof(float));
    for (size_t done = 0, now; done < count; done += now) {
        now = count - done < NARROW ? count - done : NARROW;
        COH_TRY(narrow(name, e->piece + done, now, dtype, narrowed));
        COH_TRY(coh_safetensors_writer_add(e->files, narrowed, now * sizeof(*narrowed)));
    }
    return COH_OK;
}

/* ceil((from - less) / by), or 0 if from < less. */
static uint64_t ceiling(uint64_t from, uint64_t less, uint64_t by)
{
    return from > less ? (from - less + by - 1) / by : 0;
}

/* Transposes a part: of our elements [begin, end), in `block`, copies those that fall into
 * [out_begin, out_end) of the published tensor to `piece`. Row r and column c of ours is element c
 * * rows + r there. */
static void turn(const coh_safetensors_tensor *tensor, const float *block, uint64_t begin,
                 uint64_t end, float *piece, uint64_t out_begin, uint64_t out_end)
{
    const uint64_t rows = (uint64_t)tensor->dim[1], columns = (uint64_t)tensor->dim[0];
    for (uint64_t r = begin / columns; r * columns < end; r++) {
        const uint64_t row = r * columns;
        uint64_t c = ceiling(out_begin, r, rows), c_end = ceiling(out_end, r, rows);
        if (row + c < begin)
            c = begin - row;
        if (row + c_end > end)
            c_end = end - row;
        for (; c < c_end; c++)
            piece[c * rows + r - out_begin] = block[row + c - begin];
    }
}

/* Elements of the piece that begins at `begin`. */
static uint64_t piece_count(uint64_t elements, uint64_t begin)
{
    return elements - begin < PIECE_ELEMENTS ? elements - begin : PIECE_ELEMENTS;
}

static coh_status turned_piece(exporter *e, const coh_safetensors_tensor *tensor, const char *name,
                               uint64_t out_begin, uint64_t out_end)
{
    const uint64_t elements = coh_safetensors_elements(tensor);
    for (uint64_t begin = 0; begin < elements; begin += PIECE_ELEMENTS) {
        const uint64_t count = piece_count(elements, begin);
        COH_TRY(e->source(e->context, name, begin, count, e->block));
        turn(tensor, e->block, begin, begin + count, e->piece, out_begin, out_end);
    }
    return COH_OK;
}

static coh_status add_tensor(exporter *e, const coh_safetensors_tensor *tensor)
{
    const export_name *name = (const void *)(tensor->name - offsetof(export_name, published));
    const uint64_t elements = coh_safetensors_elements(tensor);
    coh_dtype dtype;
    COH_TRY(coh_safetensors_dtype(tensor, &dtype));
    for (uint64_t begin = 0; begin < elements; begin += PIECE_ELEMENTS) {
        const uint64_t count = piece_count(elements, begin);
        if (name->transposed)
            COH_TRY(turned_piece(e, tensor, name->ours, begin, begin + count));
        else
            COH_TRY(e->source(e->context, name->ours, begin, count, e->piece));
        COH_TRY(check_finite(tensor, e->piece, (size_t)count, begin));
        COH_TRY(add_piece(e, name->ours, dtype, (size_t)count));
    }
    return COH_OK;
}

/* ---- a whole model ---- */

static coh_status list_alloc(exporter *e, size_t count)
{
    e->count = count;
    COH_TRY(COH_ALLOC(count, &e->names));
    return COH_ALLOC(count, &e->tensors);
}

/* Puts a parameter of the model in place `i` of the list, published as <prefix><published>. */
static void list_parameter(exporter *e, size_t i, const char *prefix, const char *published,
                           const coh_model_tensor *ours, coh_dtype dtype)
{
    export_name *name = &e->names[i];
    memcpy(name->ours, ours->name, sizeof(ours->name));
    snprintf(name->published, sizeof(name->published), "%s%s", prefix, published);
    name->transposed = ours->transposed;
    e->tensors[i] = (coh_safetensors_tensor){
        .name = name->published,
        .dtype = coh_safetensors_dtype_name(dtype),
        .rank = ours->rank,
        .dim = { ours->published_dim[0], ours->rank > 1 ? ours->published_dim[1] : 0 },
    };
}

static coh_status model_list(exporter *e)
{
    COH_TRY(coh_stored_metadata_init(e->model, &e->metadata));
    COH_TRY(list_alloc(e, (size_t)coh_model_tensor_count(e->model)));
    for (size_t i = 0; i < e->count; i++) {
        coh_model_tensor ours;
        COH_TRY(coh_model_tensor_at(e->model, (int64_t)i, &ours));
        list_parameter(e, i, "", ours.published, &ours,
                       coh_model_tensor_stored(e->model, (int64_t)i, e->dtype));
    }
    return COH_OK;
}

static coh_status model_config(const exporter *e, coh_text *text)
{
    COH_TRY(coh_model_to_config(e->model, e->dtype, &text->data));
    text->bytes = strlen(text->data);
    return COH_OK;
}

static const export_kind model_kind = { "config.json", "model", model_list, model_config };

/* ---- adapters ---- */

#define PREFIX "base_model.model." /* PEFT's */
#define HEAD   "lm_head"

/* Is the head the table, and the table trained in full? *out_table is the table. PEFT copies each
 * module that it trains in full, so the table is written for both, as both would else differ. */
static int saves_tied_head(const coh_model *model, coh_model_tensor *out_table)
{
    int64_t index;
    return coh_model_name_find(model, HEAD ".weight", &index) == COH_MODEL_NAME_TIED &&
           coh_model_tensor_at(model, index, out_table) == COH_OK &&
           coh_model_is_adapted(model, out_table->name);
}

/* Lists the operators that are trained in full. *out_count are the tensors that hold them. */
static coh_status saved_list(exporter *e, size_t *out_count)
{
    coh_operator op;
    coh_model_tensor table;
    size_t count = 0;
    *out_count = (size_t)saves_tied_head(e->model, &table);
    for (int64_t index = 0; coh_operator_next(e->model, &index, &op);)
        count += (size_t)coh_adapters_also(&e->model->adapters, op.name);
    COH_TRY(COH_ALLOC(count, &e->saved));
    for (int64_t index = 0, at = 0; coh_operator_next(e->model, &index, &op); at = index) {
        if (!coh_adapters_also(&e->model->adapters, op.name))
            continue;
        e->saved[e->saved_count++] = op;
        *out_count += (size_t)(index - at);
    }
    return COH_OK;
}

/* "base_model.model.<module>.lora_A.weight" [rank, inputs], and
 * "base_model.model.<module>.lora_B.weight" [outputs, rank]. */
static void factors_list(exporter *e)
{
    static const char *const parts[] = { COH_ADAPTER_A, COH_ADAPTER_B };
    const int64_t rank = e->model->adapters.rank;
    for (size_t i = 0; i < 2 * e->adapter_count; i++) {
        const coh_model_adapter *adapter = &e->adapters[i / 2];
        const int is_up = i % 2 == 1;
        export_name *name = &e->names[i];
        coh_adapter_parameter_name(adapter->name, parts[is_up], name->ours, sizeof(name->ours));
        snprintf(name->published, sizeof(name->published), PREFIX "%s.%s.weight", adapter->module,
                 parts[is_up]);
        e->tensors[i] = (coh_safetensors_tensor){ .name = name->published,
                                                  .dtype = coh_safetensors_dtype_name(e->dtype),
                                                  .rank = 2,
                                                  .dim = { is_up ? adapter->outputs : rank,
                                                           is_up ? rank : adapter->inputs } };
    }
}

/* The adapters, then "base_model.model.<published>" of what is trained in full. */
static coh_status adapters_list(exporter *e)
{
    size_t whole, at;
    coh_model_tensor tensor;
    COH_TRY(COH_ALLOC(2, &e->metadata.pairs));
    e->metadata.pairs[e->metadata.count++] = (coh_safetensors_pair){ "format", "pt" };
    if (e->frozen_nf4)
        e->metadata.pairs[e->metadata.count++] =
            (coh_safetensors_pair){ COH_ADAPTERS_FROZEN, COH_ADAPTERS_NF4 };
    COH_TRY(coh_adapters_list(e->model, &e->adapters, &e->adapter_count));
    COH_TRY(saved_list(e, &whole));
    at = 2 * e->adapter_count;
    COH_TRY(list_alloc(e, at + whole));
    factors_list(e);
    for (int64_t i = 0; whole > 0 && i < coh_model_tensor_count(e->model); i++) {
        COH_TRY(coh_model_tensor_at(e->model, i, &tensor));
        if (coh_model_is_adapted(e->model, tensor.name))
            list_parameter(e, at++, PREFIX, tensor.published, &tensor, e->dtype);
    }
    if (saves_tied_head(e->model, &tensor))
        list_parameter(e, at++, PREFIX, HEAD ".weight", &tensor, e->dtype);
    return COH_OK;
}

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

/* The shortest end of a module's name that matches only modules with adapters. PEFT compares each
 * target with the modules' full names and with what follows a dot, as we do. */
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

/* Targets are written as the shortest unambiguous names, and never as globs. */
static coh_status add_targets(coh_text *text, const exporter *e)
{
    for (size_t i = 0; i < e->adapter_count; i++) {
        const char *target = target_of(e->model, e->adapters[i].module);
        size_t before = 0;
        while (!ends_with(e->adapters[before].module, target))
            before++;
        if (before < i)
            continue;
        COH_TRY(coh_text_add(text, i ? ",\n    " : "\n    "));
        COH_TRY(coh_text_add_quoted(text, target));
    }
    return COH_OK;
}

/* Would PEFT also train another module in full? Unlike those of adapters, it compares plain ends of
 * names: "norm" is that of "input_layernorm", too. */
static int saves_others(const coh_model *model, const char *end)
{
    coh_operator op;
    for (int64_t index = 0; coh_operator_next(model, &index, &op);) {
        const size_t length = strlen(op.module), tail = strlen(end);
        if (tail <= length && strcmp(op.module + length - tail, end) == 0 &&
            !coh_adapters_also(&model->adapters, op.name))
            return 1;
    }
    return 0;
}

/* The shortest end of a module's name, from one of its dots on, that means no other module. */
static const char *saved_name(const coh_model *model, const char *module)
{
    const char *name = module + strlen(module);
    do {
        name--;
        while (name > module && name[-1] != '.')
            name--;
    } while (name > module && saves_others(model, name));
    return name;
}

static coh_status add_saved_name(coh_text *text, int is_first, const char *name)
{
    COH_TRY(coh_text_add(text, is_first ? "\n    " : ",\n    "));
    return coh_text_add_quoted(text, name);
}

/* Writes the names of what is trained in full, each once; null if there is none. */
static coh_status add_saved(coh_text *text, const exporter *e)
{
    coh_model_tensor table;
    if (e->saved_count == 0)
        return coh_text_add(text, "null");
    COH_TRY(coh_text_add(text, "["));
    for (size_t i = 0; i < e->saved_count; i++) {
        const char *name = saved_name(e->model, e->saved[i].module);
        size_t before = 0;
        while (!ends_with(e->saved[before].module, name))
            before++;
        if (before == i)
            COH_TRY(add_saved_name(text, i == 0, name));
    }
    if (saves_tied_head(e->model, &table))
        COH_TRY(add_saved_name(text, 0, HEAD));
    return coh_text_add(text, "\n  ]");
}

/* adapter_config.json: rank, alpha, dropout, which modules, and which model they belong to. */
static coh_status adapters_config(const exporter *e, coh_text *text)
{
    char alpha[48], dropout[48];
    coh_text number = { .data = alpha, .capacity = sizeof(alpha), .is_fixed = 1 };
    coh_text share = { .data = dropout, .capacity = sizeof(dropout), .is_fixed = 1 };
    const coh_adapters *adapters = &e->model->adapters;
    if (adapters->alpha == floorf(adapters->alpha) && adapters->alpha < 1e6f)
        (void)coh_text_add(&number, "%d", (int)adapters->alpha);
    else
        coh_config_text_add_float(&number, adapters->alpha);
    (void)(e->model->lora_dropout > 0 ? coh_text_add_number(&share, e->model->lora_dropout)
                                      : coh_text_add(&share, "0.0"));
    COH_TRY(coh_text_add(text, "{\n  \"base_model_name_or_path\": "));
    COH_TRY(e->base ? coh_text_add_quoted(text, e->base) : coh_text_add(text, "null"));
    COH_TRY(coh_text_add(text,
                         ",\n  \"bias\": \"none\",\n  \"fan_in_fan_out\": %s,\n"
                         "  \"inference_mode\": true,\n  \"init_lora_weights\": true,\n"
                         "  \"lora_alpha\": %s,\n  \"lora_dropout\": %s,\n"
                         "  \"modules_to_save\": ",
                         e->adapters[0].transposed ? "true" : "false", alpha, dropout));
    COH_TRY(add_saved(text, e));
    COH_TRY(coh_text_add(
        text, ",\n  \"peft_type\": \"LORA\",\n  \"r\": %" PRId32 ",\n  \"target_modules\": [",
        adapters->rank));
    COH_TRY(add_targets(text, e));
    return coh_text_add(text, "\n  ],\n  \"task_type\": \"CAUSAL_LM\"\n}\n");
}

static const export_kind adapters_kind = { "adapter_config.json", "adapter_model", adapters_list,
                                           adapters_config };

/* ---- folders ---- */

static coh_status list_make(exporter *e, coh_safetensors_list *out_list)
{
    COH_TRY(e->kind->list_make(e));
    coh_safetensors_sort(e->tensors, e->count);
    (void)coh_safetensors_shard(e->tensors, e->count, e->shard_bytes);
    *out_list =
        (coh_safetensors_list){ e->tensors, e->count, e->metadata.pairs, e->metadata.count };
    return COH_OK;
}

/* Copies the files that accompany the tensors, or with `place` NULL adds up their bytes. */
static coh_status take_companions(const exporter *e, coh_folder_place *place, uint64_t *bytes)
{
    const coh_folder_write_options *chat = &e->chat;
    const unsigned own_template = chat->chat_template ? 0 : COH_COMPANIONS_TEMPLATE;
    COH_TRY(
        coh_companions_take(place, e->files_from, COH_COMPANIONS_TOKENIZER | own_template, bytes));
    if (!chat->end_of_turn && !chat->text_ids)
        COH_TRY(coh_companions_take(place, e->generation_from, COH_COMPANIONS_GENERATION, bytes));
    COH_TRY(coh_chat_files_write(place, e->model, chat, e->generation_from, bytes));
    return coh_companions_take(place, e->notices_from, COH_COMPANIONS_NOTICES, bytes);
}

static int any_is_transposed(const exporter *e)
{
    for (size_t i = 0; i < e->count; i++)
        if (e->names[i].transposed)
            return 1;
    return 0;
}

static coh_status write_all(exporter *e, const char *path, const coh_safetensors_list *list,
                            const coh_text *config)
{
    COH_TRY(COH_ALLOC(PIECE_ELEMENTS, &e->piece));
    COH_TRY(COH_ALLOC(any_is_transposed(e) ? PIECE_ELEMENTS : 0, &e->block));
    COH_TRY(coh_folder_place_begin(&e->place, path));
    COH_TRY(coh_folder_place_file(&e->place, e->kind->config, config->data, config->bytes));
    COH_TRY(take_companions(e, &e->place, NULL));
    COH_TRY(coh_safetensors_writer_create(&e->place, e->kind->base, list, &e->files));
    for (size_t i = 0; i < e->count; i++)
        COH_TRY(add_tensor(e, &e->tensors[i]));
    COH_TRY(coh_safetensors_writer_finish(e->files));
    return coh_folder_place_publish(&e->place);
}

static coh_status count_all(exporter *e, const coh_safetensors_list *list, const coh_text *config,
                            uint64_t *out_bytes)
{
    uint64_t others = coh_bytes_round_page(config->bytes) + COH_PAGE_BYTES /* the folder */;
    COH_TRY(coh_safetensors_disk_bytes(list, e->kind->base, out_bytes));
    COH_TRY(take_companions(e, NULL, &others));
    return coh_bytes_add(*out_bytes, others, out_bytes);
}

/* Writes folder `path`; NULL: computes its size. */
static coh_status export_run(exporter *e, const char *path, uint64_t *out_bytes)
{
    coh_safetensors_list list;
    coh_text config = { 0 };
    coh_status status;
    COH_TRY_GOTO(status, list_make(e, &list), done);
    COH_TRY_GOTO(status, e->kind->config_make(e, &config), done);
    status = path ? write_all(e, path, &list, &config) : count_all(e, &list, &config, out_bytes);
done:
    coh_text_fini(&config);
    coh_safetensors_writer_destroy(e->files);
    coh_folder_place_end(&e->place);
    coh_stored_metadata_fini(&e->metadata);
    coh_free(e->block);
    coh_free(e->piece);
    coh_free(e->tensors);
    coh_free(e->names);
    coh_free(e->saved);
    coh_free(e->adapters);
    return status;
}

static coh_status check_dtype(coh_dtype dtype)
{
    if (coh_safetensors_dtype_name(dtype))
        return COH_OK;
    return coh_fail(COH_ERR_ARGUMENT, "tensors are stored in f32, bf16 or f16, not in dtype %d",
                    (int)dtype);
}

static coh_status export_model(const coh_model *model, const coh_folder_write_options *options,
                               const char *path, coh_number_source source, void *context,
                               uint64_t *out_bytes)
{
    coh_folder_write_options known = { 0 };
    COH_NEED_STRUCT(coh_folder_write_options, options);
    coh_struct_read(options, &known, sizeof(known));
    COH_TRY(check_dtype(known.dtype));
    COH_TRY(coh_check_path("coh_folder_write", "options->files_from", known.files_from));
    COH_TRY(coh_check_path("coh_folder_write", "options->notices_from", known.notices_from));
    if (model->family == COH_FAMILY_OWN)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%s is a model of an extension, which has no configuration and tensor "
                        "names that transformers knows: read its checkpoint with "
                        "cohobate/checkpoint.h",
                        model->name);
    /* The model's own folder knows its generation settings; the fallback is the tokenizer's. */
    const char *own = known.notices_from ? known.notices_from : known.files_from;
    coh_model renamed = *model;
    if (known.text_ids)
        COH_TRY(coh_chat_files_replace_ids(&renamed, known.text_ids));
    exporter e = { .model = &renamed,
                   .kind = &model_kind,
                   .dtype = known.dtype,
                   .shard_bytes = known.shard_bytes,
                   .files_from = known.files_from,
                   .generation_from = own,
                   .chat = known,
                   .notices_from = known.notices_from,
                   .source = source,
                   .context = context };
    return export_run(&e, path, out_bytes);
}

coh_status coh_folder_write(const coh_model *model, const coh_folder_write_options *options,
                            const char *path, coh_number_source source, void *context)
{
    if (!model || !options || !path || !source)
        return coh_fail(COH_ERR_ARGUMENT,
                        "writing a folder needs a model, options, a path and a source");
    COH_NEED_PATH(path);
    return export_model(model, options, path, source, context, NULL);
}

coh_status coh_folder_write_bytes(const coh_model *model, const coh_folder_write_options *options,
                                  uint64_t *out_bytes)
{
    if (!model || !options || !out_bytes)
        return coh_fail(COH_ERR_ARGUMENT, "the bytes of a folder need a model and options");
    return export_model(model, options, NULL, NULL, NULL, out_bytes);
}

static coh_status export_adapters(const coh_model *model, const coh_adapters_write_options *options,
                                  const char *path, coh_number_source source, void *context,
                                  uint64_t *out_bytes)
{
    coh_adapters_write_options known = { 0 };
    if (coh_model_adapter_count(model) == 0)
        return coh_fail(COH_ERR_ARGUMENT, "%s has no adapters to write", model->name);
    COH_NEED_STRUCT(coh_adapters_write_options, options);
    coh_struct_read(options, &known, sizeof(known));
    COH_TRY(check_dtype(known.dtype));
    COH_TRY(coh_check_path("coh_adapters_write", "options->files_from", known.files_from));
    COH_TRY(coh_check_integer("frozen_nf4", known.frozen_nf4, 0, 1));
    exporter e = { .model = model,
                   .kind = &adapters_kind,
                   .frozen_nf4 = known.frozen_nf4,
                   .dtype = known.dtype,
                   .base = known.base,
                   .files_from = known.files_from,
                   .source = source,
                   .context = context };
    return export_run(&e, path, out_bytes);
}

coh_status coh_adapters_write(const coh_model *model, const coh_adapters_write_options *options,
                              const char *path, coh_number_source source, void *context)
{
    if (!model || !options || !path || !source)
        return coh_fail(COH_ERR_ARGUMENT,
                        "writing adapters needs a model, options, a path and a source");
    COH_NEED_PATH(path);
    return export_adapters(model, options, path, source, context, NULL);
}

coh_status coh_adapters_write_bytes(const coh_model *model,
                                    const coh_adapters_write_options *options, uint64_t *out_bytes)
{
    if (!model || !options || !out_bytes)
        return coh_fail(COH_ERR_ARGUMENT, "the bytes of adapters need a model and options");
    return export_adapters(model, options, NULL, NULL, NULL, out_bytes);
}
