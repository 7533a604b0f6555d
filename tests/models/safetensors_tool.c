/* What test_safetensors_reference.py cannot call from Python.
 *
 *     safetensors_tool judge FILE...            one line each: "ok", or our sentence
 *     safetensors_tool copy IN OUT [DTYPE]      all tensors of a file or folder, in their order, as
 *                                               one file; as numbers of DTYPE (F32, F16, BF16), if
 *                                               given
 *     safetensors_tool split IN FOLDER BYTES    the same as a folder of shards, in the reference's
 *                                               order */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "models/safetensors.h"

static int say(void)
{
    fprintf(stderr, "%s\n", coh_last_error());
    return 1;
}

static int judge(int count, char **paths)
{
    for (int i = 0; i < count; i++) {
        coh_safetensors *model;
        coh_status status = coh_safetensors_open(paths[i], &model);
        printf("%s\n", status == COH_OK ? "ok" : coh_last_error());
        coh_safetensors_close(model);
    }
    return 0;
}

typedef coh_status (*adder)(void *writer, const void *data, size_t bytes);

static coh_status add_to_file(void *writer, const void *data, size_t bytes)
{
    return coh_safetensors_writer_add(writer, data, bytes);
}

static coh_status add_to_folder(void *writer, const void *data, size_t bytes)
{
    return coh_safetensors_folder_writer_add(writer, data, bytes);
}

/* The data of `list`, whose dtypes may be others than the model's, through a piece. */
static coh_status data_copy(const coh_safetensors *model, const coh_safetensors_tensor *list,
                            size_t count, adder add, void *writer)
{
    static float piece[10000];
    for (size_t i = 0; i < count; i++) {
        const coh_safetensors_tensor *source = coh_safetensors_find(model, list[i].name);
        if (strcmp(source->dtype, list[i].dtype) == 0) {
            for (uint64_t at = 0; at < source->bytes; at += sizeof(piece)) {
                uint64_t left = source->bytes - at;
                size_t bytes = left < sizeof(piece) ? (size_t)left : sizeof(piece);
                COH_TRY(coh_safetensors_read(model, source, at, bytes, piece));
                COH_TRY(add(writer, piece, bytes));
            }
            continue;
        }
        coh_dtype dtype;
        const uint64_t most = sizeof(piece) / sizeof(piece[0]);
        uint64_t elements = coh_safetensors_elements(source);
        COH_TRY(coh_safetensors_dtype(&list[i], &dtype));
        for (uint64_t at = 0; at < elements; at += most) {
            uint64_t now = elements - at < most ? elements - at : most;
            COH_TRY(coh_safetensors_read_numbers(model, source, at, now, dtype, piece));
            COH_TRY(add(writer, piece, (size_t)now * coh_dtype_bytes(dtype)));
        }
    }
    return COH_OK;
}

static coh_status file_copy(const coh_safetensors *model, const coh_safetensors_tensor *list,
                            size_t count, const char *path)
{
    size_t pairs;
    coh_safetensors_writer *writer;
    const coh_safetensors_pair *metadata = coh_safetensors_metadata(model, 0, &pairs);
    COH_TRY(coh_safetensors_writer_create(path, list, count, metadata, pairs, &writer));
    coh_status status = data_copy(model, list, count, add_to_file, writer);
    if (status == COH_OK)
        status = coh_safetensors_writer_finish(writer);
    if (status == COH_OK)
        status = coh_safetensors_writer_publish(writer);
    coh_safetensors_writer_destroy(writer);
    return status;
}

static coh_status folder_split(const coh_safetensors *model, coh_safetensors_tensor *list,
                               size_t count, const char *path, uint64_t shard_bytes)
{
    size_t pairs;
    coh_safetensors_folder_writer *writer;
    const coh_safetensors_pair *metadata = coh_safetensors_metadata(model, 0, &pairs);
    coh_safetensors_sort(list, count);
    (void)coh_safetensors_shard(list, count, shard_bytes);
    COH_TRY(coh_safetensors_folder_writer_create(path, list, count, metadata, pairs, &writer));
    coh_status status = data_copy(model, list, count, add_to_folder, writer);
    if (status == COH_OK)
        status = coh_safetensors_folder_writer_publish(writer);
    coh_safetensors_folder_writer_destroy(writer);
    return status;
}

int main(int argc, char **argv)
{
    if (argc >= 3 && strcmp(argv[1], "judge") == 0)
        return judge(argc - 2, argv + 2);
    int is_split = argc == 5 && strcmp(argv[1], "split") == 0;
    if (!is_split && !(argc >= 4 && argc <= 5 && strcmp(argv[1], "copy") == 0)) {
        fprintf(stderr, "judge FILE..., copy IN OUT [DTYPE], split IN FOLDER BYTES\n");
        return 2;
    }
    size_t count;
    coh_safetensors *model;
    coh_safetensors_tensor *list = NULL;
    if (coh_safetensors_open(argv[2], &model) != COH_OK)
        return say();
    const coh_safetensors_tensor *tensors = coh_safetensors_tensors(model, &count);
    coh_status status = COH_ALLOC(count, &list);
    for (size_t i = 0; i < count && status == COH_OK; i++) {
        list[i] = tensors[i];
        if (!is_split && argc == 5)
            list[i].dtype = argv[4];
    }
    if (status == COH_OK)
        status = is_split ? folder_split(model, list, count, argv[3], strtoull(argv[4], NULL, 10))
                          : file_copy(model, list, count, argv[3]);
    coh_free(list);
    coh_safetensors_close(model);
    return status == COH_OK ? 0 : say();
}
