/* Writes a model folder atomically (folder_place.h): config.json, the files of the tokenizer,
 * tensors.
 *
 * Tensors pass through one piece buffer. Each piece of a transposed tensor is made by reading all
 * of ours: narrow reads of a checkpoint would be expensive, since every grain it touches is read
 * and its hash checked. Next: folder_read.c for the reverse. */
#include "cohobate/folder.h"

#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/struct_bytes.h"
#include "models/companions.h"
#include "models/folder_place.h"
#include "models/narrow.h"
#include "models/safetensors_writer.h"
#include "models/stored.h"

/* 2^20 numbers, 4 MiB: a multiple of a checkpoint's grains. Wider pieces save little without
 * transposition; the largest transposed tensor of a 124M model takes three pieces. */
#define PIECE_ELEMENTS ((uint64_t)1 << 20)

typedef struct folder_writer {
    const coh_model *model;
    coh_folder_write_options options;
    coh_number_source source;
    void *context;
    coh_folder_place place;
    coh_model_tensor *ours;          /* its structs hold the names of `tensors` */
    coh_safetensors_tensor *tensors; /* in the order of the file */
    size_t count;
    coh_stored_metadata metadata;
    coh_safetensors_folder_writer *files;
    float *piece, *block; /* PIECE_ELEMENTS each: output, input */
} folder_writer;

/* ---- numbers ---- */

static coh_status add_narrow(folder_writer *writer, const coh_model_tensor *tensor, coh_dtype dtype,
                             const float *values, size_t count)
{
    enum { NARROW = 4096 };
    uint16_t narrow[NARROW];
    while (count > 0) {
        const size_t now = count < NARROW ? count : NARROW;
        COH_TRY(coh_narrow(tensor->name, values, now, dtype, narrow));
        COH_TRY(coh_safetensors_folder_writer_add(writer->files, narrow, now * sizeof(*narrow)));
        values += now;
        count -= now;
    }
    return COH_OK;
}

static coh_status add_piece(folder_writer *writer, const coh_model_tensor *tensor, coh_dtype dtype,
                            uint64_t count)
{
    if (dtype == COH_DTYPE_F32)
        return coh_safetensors_folder_writer_add(writer->files, writer->piece,
                                                 (size_t)count * sizeof(float));
    return add_narrow(writer, tensor, dtype, writer->piece, (size_t)count);
}

/* ceil((from - less) / by), or 0 if from < less. */
static uint64_t ceiling(uint64_t from, uint64_t less, uint64_t by)
{
    return from > less ? (from - less + by - 1) / by : 0;
}

/* Transposes a part: of our elements [begin, end), in `block`, copies those that fall into
 * [out_begin, out_end) of the transposed tensor to `piece`. Row r and column c of ours is element c
 * * rows + r there. */
static void turn(const coh_model_tensor *tensor, const float *block, uint64_t begin, uint64_t end,
                 float *piece, uint64_t out_begin, uint64_t out_end)
{
    const uint64_t rows = (uint64_t)tensor->dim[0], columns = (uint64_t)tensor->dim[1];
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

static coh_status turned_piece(folder_writer *writer, const coh_model_tensor *tensor,
                               uint64_t elements, uint64_t out_begin, uint64_t out_end)
{
    for (uint64_t begin = 0; begin < elements; begin += PIECE_ELEMENTS) {
        const uint64_t left = elements - begin,
                       count = left < PIECE_ELEMENTS ? left : PIECE_ELEMENTS;
        COH_TRY(writer->source(writer->context, tensor->name, begin, count, writer->block));
        turn(tensor, writer->block, begin, begin + count, writer->piece, out_begin, out_end);
    }
    return COH_OK;
}

static coh_dtype dtype_of(const folder_writer *writer, int64_t index)
{
    return coh_model_tensor_stored(writer->model, index, writer->options.dtype);
}

static coh_status add_tensor(folder_writer *writer, const coh_safetensors_tensor *out)
{
    coh_model_tensor tensor;
    int64_t index;
    (void)coh_model_name_find(writer->model, out->name, &index);
    COH_TRY(coh_model_tensor_at(writer->model, index, &tensor));
    const coh_dtype dtype = dtype_of(writer, index);
    const uint64_t elements = coh_safetensors_elements(out);
    for (uint64_t begin = 0; begin < elements; begin += PIECE_ELEMENTS) {
        const uint64_t left = elements - begin,
                       count = left < PIECE_ELEMENTS ? left : PIECE_ELEMENTS;
        if (tensor.transposed)
            COH_TRY(turned_piece(writer, &tensor, elements, begin, begin + count));
        else
            COH_TRY(writer->source(writer->context, tensor.name, begin, count, writer->piece));
        COH_TRY(coh_check_finite(out->name, writer->piece, (size_t)count, begin,
                                 out->rank > 1 ? out->dim[1] : 1));
        COH_TRY(add_piece(writer, &tensor, dtype, count));
    }
    return COH_OK;
}

/* ---- tensors ---- */

static coh_status list_make(folder_writer *writer)
{
    COH_TRY(coh_stored_metadata_init(writer->model, &writer->metadata));
    writer->count = (size_t)coh_model_tensor_count(writer->model);
    COH_TRY(COH_ALLOC(writer->count, &writer->ours));
    COH_TRY(COH_ALLOC(writer->count, &writer->tensors));
    for (size_t i = 0; i < writer->count; i++) {
        coh_model_tensor *ours = &writer->ours[i];
        COH_TRY(coh_model_tensor_at(writer->model, (int64_t)i, ours));
        writer->tensors[i] = (coh_safetensors_tensor){
            .name = ours->published,
            .dtype = coh_safetensors_dtype_name(dtype_of(writer, (int64_t)i)),
            .rank = ours->rank,
            .dim = { ours->published_dim[0], ours->rank > 1 ? ours->published_dim[1] : 0 },
        };
    }
    coh_safetensors_sort(writer->tensors, writer->count);
    (void)coh_safetensors_shard(writer->tensors, writer->count, writer->options.shard_bytes);
    return COH_OK;
}

static coh_status tensors_write(folder_writer *writer)
{
    COH_TRY(list_make(writer));
    COH_TRY(coh_safetensors_folder_writer_begin(
        &writer->place.ops, writer->place.partial, writer->tensors, writer->count,
        writer->metadata.pairs, writer->metadata.count, &writer->files));
    for (size_t i = 0; i < writer->count; i++)
        COH_TRY(add_tensor(writer, &writer->tensors[i]));
    return coh_safetensors_folder_writer_publish(writer->files);
}

/* ---- other files ---- */

static coh_status config_write(folder_writer *writer)
{
    char *text;
    COH_TRY(coh_model_to_config(writer->model, writer->options.dtype, &text));
    const coh_status status =
        coh_folder_place_file(&writer->place, "config.json", text, strlen(text));
    coh_model_text_free(text);
    return status;
}

/* The model's own folder knows its generation settings; the fallback is the tokenizer's folder. */
static const char *generation_from(const coh_folder_write_options *options)
{
    return options->notices_from ? options->notices_from : options->files_from;
}

/* ---- whole folder ---- */

static coh_status write_all(folder_writer *writer, const char *path)
{
    COH_TRY(COH_ALLOC(PIECE_ELEMENTS, &writer->piece));
    COH_TRY(COH_ALLOC(PIECE_ELEMENTS, &writer->block));
    COH_TRY(coh_folder_place_begin(&writer->place, path));
    COH_TRY(config_write(writer));
    COH_TRY(
        coh_companions_copy(&writer->place, writer->options.files_from, COH_COMPANIONS_TOKENIZER));
    COH_TRY(coh_companions_copy(&writer->place, generation_from(&writer->options),
                                COH_COMPANIONS_GENERATION));
    COH_TRY(
        coh_companions_copy(&writer->place, writer->options.notices_from, COH_COMPANIONS_NOTICES));
    COH_TRY(tensors_write(writer));
    return coh_folder_place_publish(&writer->place);
}

static coh_status writer_make(const coh_model *model, const coh_folder_write_options *options,
                              coh_number_source source, void *context, folder_writer **out_writer)
{
    coh_folder_write_options known = { 0 };
    COH_TRY(coh_struct_check("coh_folder_write_options", options, sizeof(known),
                             _Alignof(coh_folder_write_options)));
    coh_struct_read(options, &known, sizeof(known));
    if (!coh_safetensors_dtype_name(known.dtype))
        return coh_fail(COH_ERR_ARGUMENT, "tensors are stored in f32, bf16 or f16, not in dtype %d",
                        (int)known.dtype);
    COH_TRY(COH_ALLOC(1, out_writer));
    **out_writer =
        (folder_writer){ .model = model, .options = known, .source = source, .context = context };
    return COH_OK;
}

static void writer_free(folder_writer *writer)
{
    coh_safetensors_folder_writer_destroy(writer->files);
    coh_folder_place_end(&writer->place);
    coh_stored_metadata_fini(&writer->metadata);
    coh_free(writer->block);
    coh_free(writer->piece);
    coh_free(writer->tensors);
    coh_free(writer->ours);
    coh_free(writer);
}

coh_status coh_folder_write(const coh_model *model, const coh_folder_write_options *options,
                            const char *path, coh_number_source source, void *context)
{
    folder_writer *writer;
    if (!model || !options || !path || !source)
        return coh_fail(COH_ERR_ARGUMENT,
                        "writing a folder needs a model, options, a path and a source");
    COH_TRY(writer_make(model, options, source, context, &writer));
    const coh_status status = write_all(writer, path);
    writer_free(writer);
    return status;
}

static coh_status count_all(folder_writer *writer, uint64_t *out_bytes)
{
    char *config;
    uint64_t files_bytes, generation_bytes, notices_bytes;
    COH_TRY(list_make(writer));
    COH_TRY(coh_safetensors_folder_bytes(writer->tensors, writer->count, writer->metadata.pairs,
                                         writer->metadata.count, out_bytes));
    COH_TRY(coh_model_to_config(writer->model, writer->options.dtype, &config));
    const uint64_t config_bytes = coh_bytes_round_page(strlen(config));
    coh_model_text_free(config);
    COH_TRY(
        coh_companions_bytes(writer->options.files_from, COH_COMPANIONS_TOKENIZER, &files_bytes));
    COH_TRY(coh_companions_bytes(generation_from(&writer->options), COH_COMPANIONS_GENERATION,
                                 &generation_bytes));
    COH_TRY(
        coh_companions_bytes(writer->options.notices_from, COH_COMPANIONS_NOTICES, &notices_bytes));
    return coh_bytes_add(*out_bytes,
                         config_bytes + files_bytes + generation_bytes + notices_bytes +
                             COH_PAGE_BYTES /* the folder */,
                         out_bytes);
}

coh_status coh_folder_write_bytes(const coh_model *model, const coh_folder_write_options *options,
                                  uint64_t *out_bytes)
{
    folder_writer *writer;
    if (!model || !options || !out_bytes)
        return coh_fail(COH_ERR_ARGUMENT, "the bytes of a folder need a model and options");
    COH_TRY(writer_make(model, options, NULL, NULL, &writer));
    const coh_status status = count_all(writer, out_bytes);
    writer_free(writer);
    return status;
}
