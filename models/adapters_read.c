/* Reads a folder of adapters, as export.c or PEFT writes it. The one idea: its tensors say which
 * linears have an adapter, and which operators are trained in full next to them; of
 * adapter_config.json only rank, alpha, dropout and what would compute another formula count. Next:
 * adapters.c, which makes the same names of patterns. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/name_pattern.h"
#include "cohobate/adapters.h"
#include "cohobate/terms.h"
#include "models/adapters.h"
#include "models/family.h"
#include "models/safetensors.h"

#define CONFIG            "adapter_config.json"
#define PREFIX            "base_model.model." /* PEFT's, which other tools leave out */
#define HEAD              "lm_head"
#define TENSORS           "adapter_model.safetensors"
#define CONFIG_BYTES_MOST (1u << 20)

enum { PART_COUNT = 2 };
static const char *const parts[PART_COUNT] = { COH_ADAPTER_A, COH_ADAPTER_B };

/* The tensors of one parameter: the two of its linear's adapter, or all of it. */
typedef struct held {
    const coh_safetensors_tensor *part[PART_COUNT];
    const coh_safetensors_tensor *whole;
} held;

struct coh_adapter_folder {
    coh_model model; /* with these adapters */
    char path[PATH_MAX];
    coh_safetensors *files;
    held *found; /* by coh_model_tensor_at's index; of an adapter, the index of the weight */
    int64_t tensor_count;
    const coh_safetensors_tensor *head; /* whole, of a model whose table is its head; NULL: none */
    json_t *saved;                      /* "modules_to_save" of the configuration; NULL: none */
};

/* ---- adapter_config.json ---- */

/* Members that change no number that a trained adapter computes: what PEFT wraps, where it came
 * from, and how it was begun. The tensors say which modules have an adapter. */
static const char *const ignored[] = {
    "auto_mapping",   "base_model_name_or_path",
    "corda_config",   "ensure_weight_tying",
    "eva_config",     "exclude_modules",
    "fan_in_fan_out", "inference_mode",
    "layers_pattern", "layers_to_transform",
    "loftq_config",   "megatron_core",
    "peft_version",   "qalora_group_size",
    "revision",       "runtime_config",
    "target_modules", "task_type",
};

static int is_ignored(const char *name)
{
    for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
        if (strcmp(ignored[i], name) == 0)
            return 1;
    return 0;
}

static int is_empty(const json_t *value)
{
    return json_is_null(value) || json_is_false(value) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

static int is_text(const json_t *value, const char *text)
{
    return json_is_string(value) && strcmp(json_string_value(value), text) == 0;
}

static int is_list_of_texts(const json_t *value)
{
    size_t i;
    json_t *entry;
    json_array_foreach((json_t *)value, i, entry)
    {
        if (!json_is_string(entry))
            return 0;
    }
    return json_is_array(value);
}

/* PEFT's other beginnings change the weights of the base model, too. */
static int keeps_base(const json_t *value)
{
    return json_is_boolean(value) || is_text(value, "gaussian") || is_text(value, "eva") ||
           is_text(value, "orthogonal");
}

static coh_status refuse_member(const char *name, const char *must)
{
    return coh_fail(COH_ERR_CORRUPT,
                    CONFIG ": \"%.100s\" must be %s: other adapters are not supported; merge them "
                           "into their model with PEFT (merge_and_unload)",
                    name, must);
}

/* One member. `reader` collects notes. */
static coh_status read_member(const char *name, const json_t *value, coh_config_reader *reader,
                              coh_adapters *adapters)
{
    const double number = json_number_value(value);
    if (strcmp(name, "peft_type") == 0)
        return is_text(value, "LORA") ? COH_OK : refuse_member(name, "LORA");
    if (strcmp(name, "bias") == 0)
        return is_text(value, "none") ? COH_OK : refuse_member(name, "none");
    if (strcmp(name, "init_lora_weights") == 0)
        return keeps_base(value) ? COH_OK
                                 : refuse_member(name, "true, false, gaussian, eva or orthogonal");
    if (strcmp(name, "modules_to_save") == 0)
        return is_list_of_texts(value) || is_empty(value)
                   ? COH_OK
                   : refuse_member(name, "null or a list of names");
    if (strcmp(name, "r") == 0) {
        if (!json_is_integer(value) || !(number >= 1 && number <= INT32_MAX))
            return refuse_member(name, "a whole number of at least 1");
        adapters->rank = (int32_t)number;
    } else if (strcmp(name, "lora_alpha") == 0) {
        if (!json_is_number(value) || !((float)number > 0) || !isfinite((float)number))
            return refuse_member(name, "a number above 0");
        adapters->alpha = (float)number;
    } else if (strcmp(name, "lora_dropout") == 0) {
        if (!json_is_null(value) && !(json_is_number(value) && number >= 0 && number < 1))
            return refuse_member(name, "a number from 0 to below 1");
        reader->model->lora_dropout = number;
    } else if (strcmp(name, "use_rslora") == 0) {
        if (!json_is_boolean(value) && !json_is_null(value))
            return refuse_member(name, "true or false");
    } else if (strcmp(name, "rank_pattern") == 0 || strcmp(name, "alpha_pattern") == 0) {
        if (!json_is_object(value) && !json_is_null(value))
            return refuse_member(name, "an object of numbers");
    } else if (!is_ignored(name) && !is_empty(value)) {
        return refuse_member(name, "null, false or empty");
    }
    return COH_OK;
}

/* Refuses numbers of single linears that differ from `usual`, that of all others. */
static coh_status check_pattern(json_t *root, const char *name, const char *usual_name,
                                double usual)
{
    const char *pattern;
    json_t *value;
    json_object_foreach(json_object_get(root, name), pattern, value)
    {
        if (!json_is_number(value) || json_number_value(value) != usual)
            return coh_fail(COH_ERR_CORRUPT,
                            CONFIG ": \"%s\" gives \"%.100s\" another number than \"%s\", %g: the "
                                   "adapters of a model have one; merge them into their model with "
                                   "PEFT (merge_and_unload)",
                            name, pattern, usual_name, usual);
    }
    return COH_OK;
}

/* With use_rslora PEFT adds alpha / sqrt(r) times the product (Kalajdzievski 2023), and without it
 * alpha / r times: the same adapters with another alpha, which an export writes. */
static coh_status scale_alpha(json_t *root, coh_config_reader *reader, coh_adapters *adapters)
{
    const float alpha = (float)((double)adapters->alpha * sqrt((double)adapters->rank));
    if (!json_is_true(json_object_get(root, "use_rslora")))
        return COH_OK;
    if (!(alpha > 0) || !isfinite(alpha))
        return refuse_member("lora_alpha", "smaller");
    coh_config_note(reader,
                    "adapters with use_rslora and lora_alpha %g: their alpha is %.9g, which is the "
                    "same scale without it",
                    (double)adapters->alpha, (double)alpha);
    adapters->alpha = alpha;
    return COH_OK;
}

static void note_dropout(coh_config_reader *reader)
{
    const double share = reader->model->lora_dropout;
    if (share > 0)
        coh_config_note(reader,
                        "adapters with lora_dropout %g: training keeps it unless %s gives another "
                        "number",
                        share, coh_term_text(COH_TERM_LORA_DROPOUT));
}

static coh_status read_members(json_t *root, coh_config_reader *reader, coh_adapters *adapters)
{
    const char *name;
    json_t *value;
    if (!json_is_object(root))
        return coh_fail(COH_ERR_CORRUPT, CONFIG " is not an object: fetch it again");
    json_object_foreach(root, name, value) COH_TRY(read_member(name, value, reader, adapters));
    if (adapters->rank == 0)
        return refuse_member("r", "a whole number of at least 1");
    if (!json_object_get(root, "peft_type"))
        return refuse_member("peft_type", "LORA");
    const json_t *alpha = json_object_get(root, "lora_alpha");
    if (!alpha)
        adapters->alpha = COH_ADAPTER_ALPHA;
    COH_TRY(check_pattern(root, "rank_pattern", "r", adapters->rank));
    COH_TRY(check_pattern(root, "alpha_pattern", "lora_alpha",
                          alpha ? json_number_value(alpha) : (double)COH_ADAPTER_ALPHA));
    note_dropout(reader);
    return scale_alpha(root, reader, adapters);
}

/* Reads rank and alpha, and what is kept in `folder`. Notes go to its model. */
static coh_status read_config(coh_adapter_folder *folder, coh_adapters *out_adapters)
{
    char path[PATH_MAX + 32], *text;
    size_t bytes;
    json_t *root;
    coh_config_reader reader = { .model = &folder->model };
    *out_adapters = (coh_adapters){ 0 };
    snprintf(path, sizeof(path), "%s/" CONFIG, folder->path);
    if (access(path, F_OK) != 0 && errno == ENOENT)
        return coh_fail(COH_ERR_CORRUPT, "there is no " CONFIG ": give a folder that PEFT or an "
                                         "export of adapters wrote");
    COH_TRY(coh_file_read_whole(path, CONFIG_BYTES_MOST, &text, &bytes));
    coh_status status = coh_json_load(text, bytes, &root);
    coh_free(text);
    if (status != COH_OK)
        return coh_fail_prefix(status, CONFIG);
    status = read_members(root, &reader, out_adapters);
    folder->saved = json_incref(json_object_get(root, "modules_to_save"));
    json_decref(root);
    return status;
}

/* ---- tensors ---- */

/* Splits "base_model.model.<module>.lora_A.weight" into the name of the weight,
 * "<module>.weight", and the part. Returns the part; -1 if it is another name. */
static int split(const char *name, char *out_weight, size_t weight_bytes)
{
    static const char begin[] = PREFIX;
    if (strncmp(name, begin, sizeof(begin) - 1) == 0)
        name += sizeof(begin) - 1;
    for (int part = 0; part < PART_COUNT; part++) {
        char end[32];
        const int tail = snprintf(end, sizeof(end), ".%s.weight", parts[part]);
        const size_t length = strlen(name);
        if (length <= (size_t)tail || strcmp(name + length - (size_t)tail, end) != 0)
            continue;
        const int wrote =
            snprintf(out_weight, weight_bytes, "%.*s.weight", (int)(length - (size_t)tail), name);
        return wrote < (int)weight_bytes ? part : -1;
    }
    return -1;
}

/* The index of the linear's weight of that name; -1: it is no linear of the model. */
static int64_t linear_find(const coh_model *model, const char *weight)
{
    int64_t index;
    coh_model_tensor tensor;
    if (coh_model_name_find(model, weight, &index) != COH_MODEL_NAME_PARAMETER ||
        coh_model_tensor_at(model, index, &tensor) != COH_OK || !tensor.linear)
        return -1;
    return index;
}

/* Is it a table of a vocabulary, or an adapter of one? */
static int is_of_vocabulary(const char *name)
{
    static const char *const tables[] = { "embed_tokens", "wte", "lm_head", "embed_out" };
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        const size_t length = strlen(tables[i]);
        for (const char *at = name; (at = strstr(at, tables[i])) != NULL; at += length)
            if ((at == name || at[-1] == '.') && at[length] == '.')
                return 1;
    }
    return 0;
}

static coh_status refuse_tensor(const coh_adapter_folder *folder, const char *name)
{
    if (is_of_vocabulary(name) && (strstr(name, ".lora_") || strstr(name, ".base_layer.")))
        return coh_fail(COH_ERR_CORRUPT,
                        "tensor %.150s is of an adapter of the embedding or the head, which cannot "
                        "have one here: merge them into their model with PEFT "
                        "(merge_and_unload), or train these modules in full (modules_to_save)",
                        name);
    return coh_fail(
        COH_ERR_CORRUPT,
        "tensor %.150s is no adapter of a linear of %s, and none of its parameters: give "
        "the model that the adapters were trained on",
        name, folder->model.name);
}

/* Puts the tensor in its place. */
static coh_status take(const coh_safetensors_tensor *found, const coh_safetensors_tensor **place)
{
    coh_dtype dtype;
    COH_TRY(coh_safetensors_dtype(found, &dtype));
    if (*place)
        return coh_fail(COH_ERR_CORRUPT,
                        "tensor %.150s is there twice, as %.150s, too: fetch the adapters again",
                        found->name, (*place)->name);
    *place = found;
    return COH_OK;
}

/* Takes one half of the adapter of the linear whose weight has that name. */
static coh_status match_part(coh_adapter_folder *folder, const coh_safetensors_tensor *found,
                             int part, const char *weight, int64_t rank)
{
    coh_model_tensor tensor;
    const int64_t index = linear_find(&folder->model, weight);
    if (index < 0)
        return refuse_tensor(folder, found->name);
    COH_TRY(coh_model_tensor_at(&folder->model, index, &tensor));
    const int64_t rows = part == 0 ? rank : tensor.dim[0];
    const int64_t columns = part == 0 ? tensor.dim[1] : rank;
    if (found->rank != 2 || found->dim[0] != rows || found->dim[1] != columns)
        return coh_fail(COH_ERR_CORRUPT,
                        "tensor %.150s must be %" PRId64 " x %" PRId64
                        ": the adapters have another rank, or belong to another model than %s",
                        found->name, rows, columns, folder->model.name);
    return take(found, &folder->found[index].part[part]);
}

/* Writes the name of the parameter that a module saved whole: without PEFT's prefix, and without
 * "modules_to_save.<adapter>." or "modules_to_save.", which earlier versions of PEFT kept. Returns
 * 0 if it is too long. */
static int name_whole(const char *name, char *out_name, size_t name_bytes)
{
    static const char begin[] = PREFIX, mark[] = ".modules_to_save.";
    if (strncmp(name, begin, sizeof(begin) - 1) == 0)
        name += sizeof(begin) - 1;
    const char *wrapped = strstr(name, mark), *last = strrchr(name, '.');
    const int module = (int)(wrapped ? (size_t)(wrapped - name) : strlen(name));
    const int wrote = snprintf(out_name, name_bytes, "%.*s%s", module, name, wrapped ? last : "");
    return wrote < (int)name_bytes;
}

static coh_status check_shape(const coh_adapter_folder *folder, const coh_safetensors_tensor *found,
                              int64_t index)
{
    coh_model_tensor want;
    COH_TRY(coh_model_tensor_at(&folder->model, index, &want));
    int same = found->rank == want.rank;
    for (int32_t i = 0; same && i < want.rank; i++)
        same = found->dim[i] == want.published_dim[i];
    if (same)
        return COH_OK;
    if (is_of_vocabulary(found->name) && found->rank == 2 && found->dim[0] != want.dim[0])
        return coh_fail(COH_ERR_CORRUPT,
                        "tensor %.150s has %" PRId64 " rows, and the vocabulary of %s has %" PRId64
                        ": PEFT saves the embedding and the head with adapters if the vocabulary "
                        "was resized; merge them into their model with PEFT (merge_and_unload), or "
                        "train them with the model's own vocabulary",
                        found->name, found->dim[0], folder->model.name, want.dim[0]);
    return coh_fail(COH_ERR_CORRUPT,
                    "tensor %.150s has another shape than %s of %s: give the model that the "
                    "adapters were trained on",
                    found->name, want.published, folder->model.name);
}

/* Takes a parameter of the model that was trained in full. */
static coh_status match_whole(coh_adapter_folder *folder, const coh_safetensors_tensor *found)
{
    char name[160];
    int64_t index = -1;
    coh_model_name meaning = COH_MODEL_NAME_UNKNOWN;
    if (name_whole(found->name, name, sizeof(name)))
        meaning = coh_model_name_find(&folder->model, name, &index);
    if (meaning != COH_MODEL_NAME_PARAMETER && meaning != COH_MODEL_NAME_TIED)
        return refuse_tensor(folder, found->name);
    COH_TRY(check_shape(folder, found, index));
    return take(found,
                meaning == COH_MODEL_NAME_TIED ? &folder->head : &folder->found[index].whole);
}

static coh_status match_one(coh_adapter_folder *folder, const coh_safetensors_tensor *found,
                            int64_t rank)
{
    char weight[96];
    const int part = split(found->name, weight, sizeof(weight));
    return part < 0 ? match_whole(folder, found) : match_part(folder, found, part, weight, rank);
}

/* ---- what belongs together ---- */

static coh_status check_halves(const coh_adapter_folder *folder)
{
    for (int64_t i = 0; i < folder->tensor_count; i++) {
        const held *both = &folder->found[i];
        if (!both->part[0] != !both->part[1])
            return coh_fail(COH_ERR_CORRUPT,
                            "%.150s is there without its other half: fetch the adapters again",
                            both->part[!both->part[0]]->name);
    }
    return COH_OK;
}

static coh_status compare(const coh_adapter_folder *folder, const coh_safetensors_tensor *a,
                          const coh_safetensors_tensor *b, int *out_same)
{
    enum { PIECE = 2048 };
    float of_a[PIECE], of_b[PIECE];
    const uint64_t count = coh_safetensors_elements(a); /* of equal shape */
    *out_same = 1;
    for (uint64_t at = 0; *out_same && at < count; at += PIECE) {
        const uint64_t now = count - at < PIECE ? count - at : PIECE;
        COH_TRY(coh_safetensors_read_numbers(folder->files, a, at, now, COH_DTYPE_F32, of_a));
        COH_TRY(coh_safetensors_read_numbers(folder->files, b, at, now, COH_DTYPE_F32, of_b));
        *out_same = memcmp(of_a, of_b, now * sizeof(float)) == 0;
    }
    return COH_OK;
}

/* Where the head is the table, both are there and equal. PEFT copies each module that it trains in
 * full: with one of the two, or with copies that it did not tie, it computes another model. */
static coh_status check_tied(const coh_adapter_folder *folder)
{
    int64_t table;
    int same;
    if (coh_model_name_find(&folder->model, HEAD ".weight", &table) != COH_MODEL_NAME_TIED)
        return COH_OK;
    const coh_safetensors_tensor *head = folder->head, *whole = folder->found[table].whole;
    if (!head && !whole)
        return COH_OK;
    if (!head || !whole)
        return coh_fail(COH_ERR_CORRUPT,
                        "tensor %.150s is there without that of the %s, and in %s they are one "
                        "table: train the adapters with both modules and \"ensure_weight_tying\": "
                        "true",
                        (head ? head : whole)->name, head ? "embedding" : "head",
                        folder->model.name);
    COH_TRY(compare(folder, head, whole, &same));
    if (same)
        return COH_OK;
    return coh_fail(COH_ERR_CORRUPT,
                    "tensors %.150s and %.150s differ, and in %s they are one table: train the "
                    "adapters with \"ensure_weight_tying\": true",
                    whole->name, head->name, folder->model.name);
}

/* An operator is trained in full with all its parameters, and has no adapter then. */
static coh_status check_operators(const coh_adapter_folder *folder)
{
    coh_operator op;
    for (int64_t index = 0, at = 0; coh_operator_next(&folder->model, &index, &op); at = index) {
        int64_t count = 0;
        for (int64_t i = at; i < index; i++)
            count += folder->found[i].whole != NULL;
        if (count > 0 && count < index - at)
            return coh_fail(COH_ERR_CORRUPT,
                            "module %s is there without all of its weight and bias: fetch the "
                            "adapters again",
                            op.module);
        if (count > 0 && folder->found[at].part[0])
            return coh_fail(COH_ERR_CORRUPT,
                            "module %s is there whole and with an adapter, which is not supported: "
                            "merge them into their model with PEFT (merge_and_unload)",
                            op.module);
    }
    return COH_OK;
}

static int ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), tail = strlen(end);
    return tail <= length && strcmp(text + length - tail, end) == 0;
}

/* Does PEFT mean a module that the file holds whole? It compares ends of names. */
static int is_saved(const coh_adapter_folder *folder, const char *name)
{
    coh_operator op;
    char module[sizeof(op.module) + sizeof(PREFIX)];
    for (int64_t index = 0, at = 0; coh_operator_next(&folder->model, &index, &op); at = index) {
        snprintf(module, sizeof(module), PREFIX "%s", op.module);
        if (folder->found[at].whole && ends_with(module, name))
            return 1;
    }
    return folder->head && ends_with(PREFIX HEAD, name);
}

static coh_status check_saved(const coh_adapter_folder *folder)
{
    size_t i;
    json_t *entry;
    json_array_foreach(folder->saved, i, entry)
    {
        if (!is_saved(folder, json_string_value(entry)))
            return coh_fail(COH_ERR_CORRUPT,
                            CONFIG ": \"modules_to_save\" names \"%.100s\", of which " TENSORS
                                   " holds nothing: fetch the adapters again",
                            json_string_value(entry));
    }
    return COH_OK;
}

static coh_status match(coh_adapter_folder *folder, int64_t rank)
{
    size_t count;
    char path[PATH_MAX + 32];
    snprintf(path, sizeof(path), "%s/" TENSORS, folder->path);
    if (access(path, F_OK) != 0 && errno == ENOENT)
        return coh_fail(COH_ERR_CORRUPT,
                        "it holds no " TENSORS ": fetch it again; adapter_model.bin of an older "
                        "PEFT becomes one by PEFT's save_pretrained");
    COH_TRY(coh_safetensors_open(path, &folder->files));
    folder->tensor_count = coh_model_tensor_count(&folder->model);
    COH_TRY(COH_ALLOC((size_t)folder->tensor_count, &folder->found));
    const coh_safetensors_tensor *tensors = coh_safetensors_tensors(folder->files, &count);
    for (size_t i = 0; i < count; i++)
        COH_TRY(match_one(folder, &tensors[i], rank));
    COH_TRY(check_halves(folder));
    COH_TRY(check_tied(folder));
    COH_TRY(check_operators(folder));
    return check_saved(folder);
}

/* ---- which operators ---- */

/* Has the operator with that first tensor an adapter, or with `whole`, is it trained in full? */
static int is_meant(const coh_adapter_folder *folder, int64_t at, int whole)
{
    return (whole ? folder->found[at].whole : folder->found[at].part[0]) != NULL;
}

/* Would the pattern `end` match another operator? One that is not linear gets no adapter in any
 * case. */
static int is_ambiguous(const coh_adapter_folder *folder, const char *end, int whole)
{
    coh_operator op;
    for (int64_t index = 0, at = 0; coh_operator_next(&folder->model, &index, &op); at = index)
        if ((whole || op.linear) && !is_meant(folder, at, whole) &&
            coh_pattern_matches_one(end, op.name))
            return 1;
    return 0;
}

/* Appends the shortest end of the operator's name that matches no other operator than those that
 * are meant, unless one before covers it. */
static int add_target(const coh_adapter_folder *folder, const char *op, int whole, char *targets)
{
    const size_t used = strlen(targets);
    const char *end = op + strlen(op);
    if (used > 0 && coh_pattern_matches(targets, op))
        return 1;
    do {
        end--;
        while (end > op && end[-1] != '.')
            end--;
    } while (end > op && is_ambiguous(folder, end, whole));
    return snprintf(targets + used, COH_PATTERN_BYTES - used, "%s%s", used ? "," : "", end) <
           (int)(COH_PATTERN_BYTES - used);
}

/* Names each operator that no pattern before it covers. Returns 0 if that is too long. */
static int list_targets(const coh_adapter_folder *folder, int whole, char *targets)
{
    coh_operator op;
    for (int64_t index = 0, at = 0; coh_operator_next(&folder->model, &index, &op); at = index)
        if (is_meant(folder, at, whole) && !add_target(folder, op.name, whole, targets))
            return 0;
    return 1;
}

static int is_found(const void *folder, int64_t index)
{
    return is_meant(folder, index, 0);
}

static coh_status choose_targets(const coh_adapter_folder *folder, coh_adapters *adapters)
{
    if (!list_targets(folder, 0, adapters->targets))
        COH_TRY(coh_adapters_cover(&folder->model, is_found, folder, adapters->targets));
    if (!adapters->targets[0])
        return coh_fail(COH_ERR_CORRUPT, "it holds no adapter: fetch it again");
    if (list_targets(folder, 1, adapters->also))
        return COH_OK;
    return coh_fail(COH_ERR_CORRUPT,
                    "its modules that are trained in full need a pattern of more than %d letters: "
                    "merge the adapters into their model with PEFT (merge_and_unload)",
                    COH_PATTERN_BYTES - 1);
}

/* ---- the folder ---- */

static coh_status open_all(coh_adapter_folder *folder, coh_model *model)
{
    coh_adapters adapters;
    if (folder->model.adapters.rank > 0 || folder->model.adapters.freeze[0])
        return coh_fail(COH_ERR_ARGUMENT, "the model has adapters or frozen operators already");
    COH_TRY(read_config(folder, &adapters));
    COH_TRY(match(folder, adapters.rank));
    COH_TRY(choose_targets(folder, &adapters));
    COH_TRY(coh_model_adapters_set(&folder->model, &adapters));
    *model = folder->model;
    return COH_OK;
}

coh_status coh_adapters_open(const char *path, coh_model *model, coh_adapter_folder **out_folder)
{
    coh_adapter_folder *folder;
    if (!path || !model || !out_folder || !coh_family_of(model) || strlen(path) >= PATH_MAX)
        return coh_fail(COH_ERR_ARGUMENT, "opening adapters needs a path, a model and a place");
    COH_NEED_PATH(path);
    *out_folder = NULL;
    COH_TRY(COH_ALLOC(1, &folder));
    folder->model = *model;
    snprintf(folder->path, sizeof(folder->path), "%s", path);
    const coh_status status = open_all(folder, model);
    if (status == COH_OK) {
        *out_folder = folder;
        return COH_OK;
    }
    coh_adapters_close(folder);
    return coh_fail_prefix(status, "the adapters in %.300s", path);
}

int32_t coh_adapters_frozen_nf4(const coh_adapter_folder *folder)
{
    size_t count = 0;
    const coh_safetensors_pair *pairs =
        folder ? coh_safetensors_metadata(folder->files, 0, &count) : NULL;
    for (size_t i = 0; pairs && i < count; i++)
        if (strcmp(pairs[i].key, COH_ADAPTERS_FROZEN) == 0)
            return strcmp(pairs[i].value, COH_ADAPTERS_NF4) == 0;
    return 0;
}

void coh_adapters_close(coh_adapter_folder *folder)
{
    if (!folder)
        return;
    json_decref(folder->saved);
    coh_safetensors_close(folder->files);
    coh_free(folder->found);
    coh_free(folder);
}

/* The tensor that holds a parameter, and whether it is transposed; NULL: there is none. */
static const coh_safetensors_tensor *find(const coh_adapter_folder *folder, const char *name,
                                          int *out_turned)
{
    char weight[128];
    coh_model_tensor tensor;
    const int part = split(name, weight, sizeof(weight));
    int64_t index = -1;
    *out_turned = 0;
    if (part >= 0) {
        index = linear_find(&folder->model, weight);
        return index < 0 ? NULL : folder->found[index].part[part];
    }
    if (coh_model_name_find(&folder->model, name, &index) != COH_MODEL_NAME_PARAMETER ||
        coh_model_tensor_at(&folder->model, index, &tensor) != COH_OK)
        return NULL;
    *out_turned = tensor.transposed;
    return folder->found[index].whole;
}

coh_status coh_adapters_numbers(void *folder, const char *name, uint64_t element_begin,
                                uint64_t count, float *values)
{
    const coh_adapter_folder *of = folder;
    int is_turned;
    if (!of || !name || (!values && count))
        return coh_fail(COH_ERR_ARGUMENT, "numbers of adapters need them, a name and a place");
    const coh_safetensors_tensor *found = find(of, name, &is_turned);
    if (!found)
        return coh_fail(COH_ERR_ARGUMENT, "%.300s holds no parameter %.150s", of->path, name);
    if (count > coh_safetensors_elements(found) ||
        element_begin > coh_safetensors_elements(found) - count)
        return coh_fail(COH_ERR_ARGUMENT, "%.150s has %" PRIu64 " numbers, and no more", name,
                        coh_safetensors_elements(found));
    if (is_turned)
        COH_TRY(coh_safetensors_read_turned(of->files, found, element_begin, count, values));
    else
        COH_TRY(coh_safetensors_read_numbers(of->files, found, element_begin, count, COH_DTYPE_F32,
                                             values));
    for (uint64_t e = 0; e < count; e++)
        if (!isfinite(values[e]))
            return coh_fail(COH_ERR_CORRUPT,
                            "%.150s of %.300s holds a number that is not finite: fetch the "
                            "adapters again",
                            found->name, of->path);
    return COH_OK;
}
