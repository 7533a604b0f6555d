/* Functions of the library that test_safetensors_reference.py cannot call from Python.
 *
 *     safetensors_tool judge FILE...            prints one line each: "ok", or the error message
 *     safetensors_tool copy IN OUT [DTYPE]      copies all tensors of a file or folder, in order,
 *                                               to one file; converted to DTYPE (F32, F16, BF16),
 *                                               if given
 *     safetensors_tool split IN FOLDER BYTES    copies them to a folder of shards, in the
 *                                               reference's order */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "tests/models/safetensors_whole.h"

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

typedef struct copy {
    const coh_safetensors *model;
    coh_safetensors_tensor *list; /* its tensors, with dtypes that may differ */
    size_t count;
} copy;

/* Copies all data, in pieces. */
static coh_status data_copy(void *of, coh_safetensors_writer *writer)
{
    const copy *copied = of;
    const coh_safetensors *model = copied->model;
    const coh_safetensors_tensor *list = copied->list;
    static float piece[10000];
    for (size_t i = 0; i < copied->count; i++) {
        const coh_safetensors_tensor *source = coh_safetensors_find(model, list[i].name);
        if (strcmp(source->dtype, list[i].dtype) == 0) {
            for (uint64_t at = 0; at < source->bytes; at += sizeof(piece)) {
                uint64_t left = source->bytes - at;
                size_t bytes = left < sizeof(piece) ? (size_t)left : sizeof(piece);
                COH_TRY(coh_safetensors_read(model, source, at, bytes, piece));
                COH_TRY(coh_safetensors_writer_add(writer, piece, bytes));
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
            COH_TRY(
                coh_safetensors_writer_add(writer, piece, (size_t)now * coh_dtype_bytes(dtype)));
        }
    }
    return COH_OK;
}

static coh_status copy_write(copy *copied, const char *path, int is_split, uint64_t shard_bytes)
{
    whole_list all = { { copied->list, copied->count, NULL, 0 }, data_copy, copied };
    all.list.metadata = coh_safetensors_metadata(copied->model, 0, &all.list.metadata_count);
    if (is_split)
        coh_safetensors_sort(copied->list, copied->count);
    (void)coh_safetensors_shard(copied->list, copied->count, shard_bytes);
    return is_split ? whole_write_folder(&all, path) : whole_write_file(&all, path);
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
    copy copied = { model, list, count };
    if (status == COH_OK)
        status = copy_write(&copied, argv[3], is_split, is_split ? strtoull(argv[4], NULL, 10) : 0);
    coh_free(list);
    coh_safetensors_close(model);
    return status == COH_OK ? 0 : say();
}
