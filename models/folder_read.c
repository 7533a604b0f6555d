/* Reads a folder's tensors, checked against the model, in any range and in our layout. The one
 * idea: each tensor of the folder is matched to one parameter when it is opened, and any mismatch
 * is an error. Next: tensors.c for the names, safetensors_read.c for the files. */
#include "cohobate/folder.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/struct_bytes.h"
#include "models/family.h"
#include "models/stored.h"

#define HEAD "lm_head.weight"

struct coh_folder {
    coh_model model;
    coh_safetensors *files;
    const coh_safetensors_tensor **found;      /* by coh_model_tensor_at's index */
    const coh_safetensors_tensor *second_head; /* tied, and stored as well; NULL: none */
    int64_t table;                             /* index of the table if second_head is set */
    coh_folder_facts facts;
};

/* ---- which tensor is which parameter ---- */

static coh_status take(coh_folder *folder, const coh_safetensors_tensor *tensor, int64_t index)
{
    const coh_safetensors_tensor *other = folder->found[index];
    if (other)
        return coh_fail(COH_ERR_CORRUPT,
                        "%.300s holds a parameter twice, as %.150s and as %.150s: take one out",
                        folder->model.folder, other->name, tensor->name);
    folder->found[index] = tensor;
    return COH_OK;
}

/* Matches every tensor to a parameter, or ignores it if it may be ignored. A tied head replaces a
 * missing table: some writers omit the second of two shared tensors. If both exist,
 * check_second_head compares them, and the head is ignored. */
static coh_status match(coh_folder *folder)
{
    size_t count;
    const coh_safetensors_tensor *tensors = coh_safetensors_tensors(folder->files, &count);
    const coh_safetensors_tensor *head = NULL;
    int64_t index, table = 0;
    for (size_t i = 0; i < count; i++) {
        switch (coh_model_name_find(&folder->model, tensors[i].name, &index)) {
        case COH_MODEL_NAME_PARAMETER:
            COH_TRY(take(folder, &tensors[i], index));
            break;
        case COH_MODEL_NAME_TIED:
            head = &tensors[i];
            table = index;
            folder->facts.passed_over_count++;
            break;
        case COH_MODEL_NAME_BUFFER:
            folder->facts.passed_over_count++;
            break;
        case COH_MODEL_NAME_UNKNOWN:
            return coh_fail(
                COH_ERR_CORRUPT,
                "%.300s holds a tensor %.150s, which is nothing of the %s model that its "
                "config.json describes: take it out, or mend config.json",
                folder->model.folder, tensors[i].name, coh_model_type_name(&folder->model));
        }
    }
    if (!head)
        return COH_OK;
    if (folder->found[table]) {
        folder->second_head = head;
        folder->table = table;
        return COH_OK;
    }
    folder->facts.passed_over_count--;
    return take(folder, head, table);
}

static void shape_print(const int64_t *dim, int32_t rank, char *text, size_t text_bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (int32_t i = 0; i < rank && used < text_bytes; i++)
        used +=
            (size_t)snprintf(text + used, text_bytes - used, "%s%" PRId64, i ? " x " : "", dim[i]);
}

static coh_status check_one(const coh_folder *folder, const coh_model_tensor *want,
                            const coh_safetensors_tensor *found, coh_dtype *out_dtype)
{
    char is[120], must[60];
    int same = found->rank == want->rank;
    for (int32_t i = 0; same && i < want->rank; i++)
        same = found->dim[i] == want->published_dim[i];
    if (same) {
        coh_status status = coh_safetensors_dtype(found, out_dtype);
        return status == COH_OK ? status : coh_fail_prefix(status, "%.300s", folder->model.folder);
    }
    shape_print(found->dim, found->rank, is, sizeof(is));
    shape_print(want->published_dim, want->rank, must, sizeof(must));
    return coh_fail(COH_ERR_CORRUPT,
                    "%.300s: tensor %.150s is %s, and by config.json it must be %s: mend "
                    "config.json, or fetch the file again",
                    folder->model.folder, found->name, found->rank ? is : "a scalar", must);
}

static coh_status missing(const coh_folder *folder, const coh_model_tensor *first)
{
    int64_t count = 0;
    for (int64_t i = 0; i < folder->facts.tensor_count; i++)
        count += !folder->found[i];
    if (count == 1)
        return coh_fail(COH_ERR_CORRUPT,
                        "%.300s holds no tensor %s: fetch its files again, or mend config.json",
                        folder->model.folder, first->published);
    return coh_fail(COH_ERR_CORRUPT,
                    "%.300s holds no tensor %s, nor %" PRId64 " more of the %" PRId64
                    " that its config.json asks for: fetch its files again, or mend config.json",
                    folder->model.folder, first->published, count - 1, folder->facts.tensor_count);
}

/* Checks that all parameters exist, with the right shape and a numeric dtype; collects the
 * facts. */
static coh_status check_all(coh_folder *folder)
{
    coh_folder_facts *facts = &folder->facts;
    uint64_t of_dtype[COH_STORED_DTYPES] = { 0 };
    coh_dtype dtype = COH_DTYPE_F32;
    for (int64_t i = 0; i < facts->tensor_count; i++) {
        coh_model_tensor want;
        COH_TRY(coh_model_tensor_at(&folder->model, i, &want));
        if (!folder->found[i])
            return missing(folder, &want);
        COH_TRY(check_one(folder, &want, folder->found[i], &dtype));
        const uint64_t elements = coh_safetensors_elements(folder->found[i]);
        of_dtype[dtype] += elements;
        facts->parameter_count += elements;
        facts->bytes += folder->found[i]->bytes;
    }
    facts->stored = dtype;
    for (int d = 0; d < COH_STORED_DTYPES; d++) {
        if (of_dtype[d] > of_dtype[facts->stored])
            facts->stored = (coh_dtype)d;
        facts->mixed |= of_dtype[d] != 0 && of_dtype[d] != facts->parameter_count;
    }
    facts->file_count = coh_safetensors_file_count(folder->files);
    return COH_OK;
}

static coh_status same_bytes(const coh_folder *folder, const coh_safetensors_tensor *a,
                             const coh_safetensors_tensor *b, int *out_same)
{
    enum { PIECE = 12 << 10 };
    char of_a[PIECE], of_b[PIECE];
    *out_same = a->bytes == b->bytes;
    for (uint64_t at = 0; *out_same && at < a->bytes; at += PIECE) {
        const uint64_t left = a->bytes - at, bytes = left < PIECE ? left : PIECE;
        COH_TRY(coh_safetensors_read(folder->files, a, at, bytes, of_a));
        COH_TRY(coh_safetensors_read(folder->files, b, at, bytes, of_b));
        *out_same = memcmp(of_a, of_b, (size_t)bytes) == 0;
    }
    return COH_OK;
}

/* A tied head that is stored, too, must equal its table. If it differs, `transformers` from version
 * 5 on unties it and version 4 ignores it; neither may be chosen silently. */
static coh_status check_second_head(const coh_folder *folder)
{
    const coh_safetensors_tensor *head = folder->second_head;
    const coh_safetensors_tensor *table = folder->found[folder->table];
    int same;
    if (!head)
        return COH_OK;
    const char *differ = NULL;
    if (strcmp(head->dtype, table->dtype) != 0)
        differ = "dtype";
    else if (head->rank != table->rank || memcmp(head->dim, table->dim, sizeof(head->dim)) != 0)
        differ = "shape";
    else {
        COH_TRY(same_bytes(folder, head, table, &same));
        differ = same ? NULL : "numbers";
    }
    if (!differ)
        return COH_OK;
    return coh_fail(
        COH_ERR_CORRUPT,
        "%.300s: %s and %.150s are one tensor by config.json's tie_word_embeddings, "
        "but differ in %s: set \"tie_word_embeddings\": false if the head is a table of "
        "its own, or take %s out of the files",
        folder->model.folder, head->name, table->name, differ, head->name);
}

/* May the files lack a tensor that their index names? A buffer and a tied head, which are not
 * needed; and the table if the tied head exists, which replaces it. */
static int may_lack(const void *context, const coh_safetensors *files, const char *name)
{
    const coh_model *model = context;
    int64_t index, table;
    switch (coh_model_name_find(model, name, &index)) {
    case COH_MODEL_NAME_TIED:
    case COH_MODEL_NAME_BUFFER:
        return 1;
    case COH_MODEL_NAME_PARAMETER:
        return coh_safetensors_find(files, HEAD) &&
               coh_model_name_find(model, HEAD, &table) == COH_MODEL_NAME_TIED && table == index;
    case COH_MODEL_NAME_UNKNOWN:
        break;
    }
    return 0;
}

static coh_status open_all(coh_folder *folder)
{
    coh_status status = coh_safetensors_open_lacking(folder->model.folder, may_lack, &folder->model,
                                                     &folder->files);
    /* The path already led to a config.json, so the fault lies in the folder. */
    if (status == COH_ERR_ARGUMENT)
        return coh_fail_prefix(COH_ERR_CORRUPT, "no weights");
    COH_TRY(status);
    folder->facts.tensor_count = coh_model_tensor_count(&folder->model);
    COH_TRY(COH_ALLOC(folder->facts.tensor_count, &folder->found));
    status = match(folder);
    if (status == COH_OK)
        status = check_all(folder);
    COH_TRY(coh_config_blame(&folder->model, status));
    return check_second_head(folder);
}

coh_status coh_folder_open(const coh_model *model, coh_folder **out_folder)
{
    coh_folder *folder;
    if (!out_folder)
        return coh_fail(COH_ERR_ARGUMENT, "opening a folder needs a place for it");
    *out_folder = NULL;
    if (!model || !model->folder[0])
        return coh_fail(COH_ERR_ARGUMENT, "a folder of tensors needs a model that names it");
    COH_TRY(COH_ALLOC(1, &folder));
    folder->model = *model;
    coh_status status = open_all(folder);
    if (status != COH_OK)
        coh_folder_close(folder);
    else
        *out_folder = folder;
    return status;
}

void coh_folder_close(coh_folder *folder)
{
    if (!folder)
        return;
    coh_safetensors_close(folder->files);
    coh_free((void *)folder->found);
    coh_free(folder);
}

coh_status coh_folder_facts_get(const coh_folder *folder, coh_folder_facts *out_facts)
{
    COH_NEED(folder);
    COH_NEED_STRUCT(coh_folder_facts, out_facts);
    COH_STRUCT_FILL(folder->facts, out_facts);
    return COH_OK;
}

coh_status coh_folder_describe(const coh_folder *folder, coh_model *model)
{
    if (!folder || !model)
        return coh_fail(COH_ERR_ARGUMENT, "describing a folder needs it open and a model");
    coh_config_reader notes = { .model = model };
    const int64_t count = folder->facts.tensor_count;
    int left_out;
    model->stored = folder->facts.stored;
    model->dtypes[0] = '\0';
    if (folder->facts.mixed && count < (int64_t)sizeof(model->dtypes)) {
        for (int64_t i = 0; i < count; i++) {
            coh_dtype dtype;
            COH_TRY(coh_safetensors_dtype(folder->found[i], &dtype));
            model->dtypes[i] = coh_stored_dtypes[dtype].letter;
        }
        model->dtypes[count] = '\0';
    } else if (folder->facts.mixed) {
        coh_config_note(&notes,
                        "its %" PRId64 " tensors are of several dtypes, too many to keep: an "
                        "export writes all in that of most numbers",
                        count);
    }
    coh_stored_metadata_take(folder->files, model, &left_out);
    if (left_out)
        coh_config_note(&notes, "metadata of its files are not kept: those that the files do not "
                                "share, or that are too long");
    return COH_OK;
}

coh_status coh_folder_tensor_at(const coh_folder *folder, int64_t index,
                                coh_folder_tensor *out_tensor)
{
    if (!folder || !out_tensor)
        return coh_fail(COH_ERR_ARGUMENT, "a folder's tensor needs an open folder and a place");
    COH_TRY(coh_model_tensor_at(&folder->model, index, &out_tensor->tensor));
    const coh_safetensors_tensor *found = folder->found[index];
    out_tensor->found_name = found->name;
    out_tensor->file_name = coh_safetensors_file_name(folder->files, found->file);
    return coh_safetensors_dtype(found, &out_tensor->dtype);
}

/* ---- numbers ---- */

coh_status coh_folder_numbers(void *folder, coh_parameter parameter, const char *name,
                              uint64_t element_begin, uint64_t count, float *values)
{
    COH_NEED(folder);
    const coh_folder *of = folder;
    coh_model_tensor tensor;
    int64_t index;
    (void)parameter;
    if (!of || !name || (!values && count))
        return coh_fail(COH_ERR_ARGUMENT, "numbers of a folder need it, a name and a place");
    if (coh_model_name_find(&of->model, name, &index) != COH_MODEL_NAME_PARAMETER)
        return coh_model_is_adapter_name(name)
                   ? COH_OK
                   : coh_fail(COH_ERR_CORRUPT,
                              "%.300s holds no parameter %.150s: it is of another "
                              "model",
                              of->model.folder, name);
    COH_TRY(coh_model_tensor_at(&of->model, index, &tensor));
    const coh_safetensors_tensor *found = of->found[index];
    const uint64_t elements = coh_safetensors_elements(found), end = element_begin + count;
    if (end < count || end > elements)
        return coh_fail(COH_ERR_CORRUPT,
                        "%.300s: parameter %s has %" PRIu64 " numbers: [%" PRIu64 ", %" PRIu64
                        ") is not among them",
                        of->model.folder, name, elements, element_begin, end);
    if (count == 0)
        return COH_OK;
    if (tensor.transposed)
        return coh_safetensors_read_turned(of->files, found, element_begin, count, values);
    return coh_safetensors_read_numbers(of->files, found, element_begin, count, COH_DTYPE_F32,
                                        values);
}
