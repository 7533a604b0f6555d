/* Models of extensions: the process's list of them, and the family that builds their graphs. The
 * one idea: a configuration holds sizes and names, and the list finds the function that builds by
 * the names; so models, notes and commands treat it as any family. Next: cohobate/extension.h,
 * family.h. */
#include "models/own.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/struct_bytes.h"
#include "cohobate/extension.h"
#include "cohobate/terms.h"
#include "models/family.h"

/* ---- the list ---- */

typedef struct entry {
    const coh_extension *extension; /* as the caller gave it */
    const char *extension_name;
    uint32_t revision;
    const coh_own_model *model;
} entry;

static pthread_mutex_t list_mutex = PTHREAD_MUTEX_INITIALIZER;
static entry list[COH_EXTENSION_MODELS]; /* entries are added only, and never changed */
static int list_count;

/* Finds a model by its name. */
static const entry *find(const char *name)
{
    const entry *found = NULL;
    pthread_mutex_lock(&list_mutex);
    for (int i = 0; i < list_count && found == NULL; i++)
        if (strcmp(list[i].model->name, name) == 0)
            found = &list[i];
    pthread_mutex_unlock(&list_mutex);
    return found;
}

/* ---- registering ---- */

static coh_status check_name(const char *what, const char *name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789-_.";
    const size_t bytes = name != NULL ? strlen(name) : 0;
    if (bytes > 0 && bytes < COH_EXTENSION_NAME_BYTES && strspn(name, allowed) == bytes &&
        name[0] != '.')
        return COH_OK;
    return coh_fail(COH_ERR_ARGUMENT,
                    "\"%.100s\" is no name of %s: 1 to %d letters a-z, digits, '-', '_' and '.', "
                    "not with a '.' first",
                    name != NULL ? name : "", what, COH_EXTENSION_NAME_BYTES - 1);
}

static coh_status check_count(const coh_extension *extension, const char *what, int32_t count,
                              const void *const *parts)
{
    if (count < 0 || count > COH_EXTENSION_PARTS)
        return coh_fail(COH_ERR_ARGUMENT, "extension %s counts %" PRId32 " %s, 0 to %d are allowed",
                        extension->name, count, what, COH_EXTENSION_PARTS);
    for (int32_t i = 0; i < count; i++)
        if (parts[i] == NULL)
            return coh_fail(COH_ERR_ARGUMENT, "extension %s: number %" PRId32 " of its %s is NULL",
                            extension->name, i, what);
    return COH_OK;
}

static coh_status check_model(const coh_extension *extension, const coh_own_model *model)
{
    coh_model preset;
    COH_TRY(coh_struct_check("coh_own_model", model, sizeof(*model), _Alignof(coh_own_model)));
    COH_TRY(check_name("a model", model->name));
    if (model->build == NULL)
        return coh_fail(COH_ERR_ARGUMENT, "model %s of extension %s has no build", model->name,
                        extension->name);
    if (coh_preset_find(model->name, &preset))
        return coh_fail(COH_ERR_ARGUMENT,
                        "model %s of extension %s has the name of a preset: choose another",
                        model->name, extension->name);
    return coh_family_check_size(model->name, &model->size);
}

static coh_status check(const coh_extension *extension)
{
    COH_TRY(check_name("an extension", extension->name));
    if (extension->kind_abi != COH_KIND_ABI)
        return coh_fail(COH_ERR_ARGUMENT,
                        "extension %s was compiled for version %" PRIu32
                        " of coh_op_kind, and this library has %" PRIu32 ": compile it again",
                        extension->name, extension->kind_abi, COH_KIND_ABI);
    COH_TRY(check_count(extension, "kinds", extension->kind_count,
                        (const void *const *)extension->kinds));
    COH_TRY(check_count(extension, "optimizers", extension->optimizer_count,
                        (const void *const *)extension->optimizers));
    COH_TRY(check_count(extension, "models", extension->model_count,
                        (const void *const *)extension->models));
    COH_TRY(check_count(extension, "rank patterns", extension->rank_pattern_count,
                        (const void *const *)extension->rank_patterns));
    for (int32_t i = 0; i < extension->model_count; i++)
        COH_TRY(check_model(extension, extension->models[i]));
    return COH_OK;
}

/* Returns the entry whose name the model may not take, or NULL. The mutex is held. */
static const entry *taken_by(const coh_own_model *model)
{
    for (int i = 0; i < list_count; i++)
        if (strcmp(list[i].model->name, model->name) == 0)
            return &list[i];
    return NULL;
}

/* Adds the models, unless one of them cannot be added. The mutex is held. */
static coh_status add(const coh_extension *given, const coh_extension *known)
{
    const int before = list_count;
    for (int32_t i = 0; i < known->model_count; i++) {
        const entry *other = taken_by(known->models[i]);
        if (other != NULL && other->extension == given && other < list + before)
            continue; /* registered again */
        if (other == NULL && list_count < COH_EXTENSION_MODELS) {
            list[list_count++] = (entry){ given, known->name, known->revision, known->models[i] };
            continue;
        }
        list_count = before;
        if (other == NULL)
            return coh_fail(COH_ERR_ARGUMENT, "extensions have more than %d models",
                            COH_EXTENSION_MODELS);
        return coh_fail(COH_ERR_ARGUMENT, "model %s of extension %s is one of extension %s already",
                        known->models[i]->name, known->name, other->extension_name);
    }
    return COH_OK;
}

coh_status coh_extension_register(const coh_extension *extension)
{
    COH_NEED_STRUCT(coh_extension, extension);
    coh_extension known = { 0 };
    coh_struct_read(extension, &known, sizeof(known));
    COH_TRY(check(&known));
    for (int32_t i = 0; i < known.optimizer_count; i++)
        COH_TRY(coh_optimizer_register(known.optimizers[i]));
    for (int32_t i = 0; i < known.rank_pattern_count; i++)
        COH_TRY(coh_rank_pattern_register(known.rank_patterns[i]));
    pthread_mutex_lock(&list_mutex);
    const coh_status status = add(extension, &known);
    pthread_mutex_unlock(&list_mutex);
    return status;
}

/* ---- finding ---- */

const char *coh_own_name(int32_t index)
{
    pthread_mutex_lock(&list_mutex);
    const char *name = index < list_count ? list[index].model->name : NULL;
    pthread_mutex_unlock(&list_mutex);
    return name;
}

int coh_own_find(const char *name, int64_t vocabulary, coh_model *out_model)
{
    const entry *found = find(name);
    if (found == NULL)
        return 0;
    const coh_model_size *size = &found->model->size;
    *out_model = (coh_model){ .family = COH_FAMILY_OWN,
                              .own = { .layers = size->layers,
                                       .heads = size->heads,
                                       .channels = size->channels,
                                       .positions = size->positions,
                                       .vocabulary = vocabulary ? vocabulary : size->vocabulary,
                                       .revision = found->revision } };
    coh_own_config *config = &out_model->own;
    snprintf(out_model->name, sizeof(out_model->name), "%s", name);
    snprintf(config->model, sizeof(config->model), "%s", name);
    snprintf(config->extension, sizeof(config->extension), "%s", found->extension_name);
    return 1;
}

/* Finds the entry that a configuration names. A missing entry is the program's mistake (its user
 * did not name the shared object), not the file's. */
static coh_status find_named(const coh_own_config *config, const entry **out_entry)
{
    const entry *found = find(config->model);
    *out_entry = found;
    if (found == NULL || strcmp(found->extension_name, config->extension) != 0)
        return coh_fail(COH_ERR_ARGUMENT,
                        "its model %s is one of extension %s, which is not loaded: name the shared "
                        "object by %s",
                        config->model, config->extension, coh_term_text(COH_TERM_KINDS));
    if (found->revision != config->revision)
        return coh_fail(COH_ERR_ARGUMENT,
                        "its model %s is one of extension %s in revision %" PRIu32
                        ", and revision %" PRIu32
                        " is loaded: name the shared object of the former by %s",
                        config->model, config->extension, config->revision, found->revision,
                        coh_term_text(COH_TERM_KINDS));
    return COH_OK;
}

uint64_t coh_own_trained_count(const coh_model *model)
{
    uint64_t count = 0;
    coh_graph *graph;
    coh_graph_parameter_facts facts;
    if (coh_model_train_graph(model, 1, model->own.positions, &graph) != COH_OK)
        return 0;
    for (int32_t i = 0; coh_graph_parameter_at(graph, i, &facts) == COH_OK; i++)
        count += facts.is_frozen ? 0 : (uint64_t)coh_shape_elements(&facts.shape);
    coh_graph_destroy(graph);
    return count;
}

/* ---- the family ---- */

static coh_status check_config(const void *config)
{
    const coh_own_config *c = config;
    const entry *found;
    const coh_model_size size = coh_family_size(&coh_family_own, c);
    COH_TRY(coh_family_check_size("a model of an extension", &size));
    return find_named(c, &found);
}

/* Writes the dimensions of a shape: "2, 8, 11". */
static void dimensions_text(const coh_shape *shape, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (int32_t axis = 0; axis < shape->rank && used < bytes; axis++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%" PRId64, axis > 0 ? ", " : "",
                                 shape->dim[axis]);
}

/* Checks the tensor that build gave as logits. Readers of logits take f32; the losses of tokens are
 * computed from bf16, too. */
static coh_status check_logits(const coh_builder *b, const char *name, const coh_own_graph *built)
{
    coh_shape is, tokens;
    char text[COH_RANK_MAX * 24];
    if (built->logits.index < 0)
        return coh_fail(COH_ERR_ARGUMENT,
                        "the build of model %s sets no coh_own_graph.logits, from which text and "
                        "the losses of tokens are made: set it to what the loss is computed from",
                        name);
    COH_TRY(coh_graph_tensor_shape(b->graph, built->tokens, &tokens));
    if (coh_graph_tensor_shape(b->graph, built->logits, &is) != COH_OK)
        return coh_fail(COH_ERR_ARGUMENT,
                        "the build of model %s gives logits that are no tensor of its graph", name);
    dimensions_text(&is, text, sizeof(text));
    if (is.rank != 3 || is.dim[0] != tokens.dim[0] || is.dim[1] != tokens.dim[1] ||
        is.dim[2] != built->size.vocabulary || is.dtype == COH_DTYPE_I32)
        return coh_fail(COH_ERR_SHAPE,
                        "the build of model %s gives logits that are %s [%s]: f32 [%" PRId64
                        ", %" PRId64 ", %" PRId64 "] are needed (sequences, tokens, vocabulary)",
                        name, is.dtype == COH_DTYPE_I32 ? "integers" : "floats", text,
                        tokens.dim[0], tokens.dim[1], built->size.vocabulary);
    if (is.dtype != COH_DTYPE_F32 && b->with_logits)
        return coh_fail(COH_ERR_SHAPE,
                        "the build of model %s gives logits in bf16, and readers take f32: use the "
                        "model in f32",
                        name);
    return COH_OK;
}

/* Adds what the builder asks for next to the loss. */
static coh_status add_outputs(coh_builder *b, const char *name, const coh_own_graph *built)
{
    if (!b->with_logits && !b->with_losses)
        return COH_OK;
    COH_TRY(check_logits(b, name, built));
    b->logits = built->logits;
    const coh_op_args losses = { .name = "cohobate.losses",
                                 .inputs = (coh_tensor[]){ built->logits, built->targets },
                                 .block = -1 };
    return b->with_losses
               ? coh_graph_op(b->graph, &coh_kind_token_losses, &losses, &b->losses, NULL)
               : COH_OK;
}

/* Runs the build. One that fails without a text must not show that of an earlier failure. */
static coh_status run_build(const char *name, coh_own_graph *to)
{
    char earlier[COH_ERROR_TEXT_BYTES];
    coh_error_save(earlier);
    coh_error_clear();
    const coh_status status = coh_check_status(to->model->build(to), "its build");
    if (status == COH_OK)
        coh_error_restore(earlier);
    return status == COH_OK ? COH_OK : coh_fail_prefix(status, "model %s", name);
}

static coh_status body(coh_builder *b, const void *config, coh_tensor tokens, coh_tensor targets,
                       coh_tensor *out_last)
{
    const coh_own_config *c = config;
    const entry *found;
    COH_TRY(find_named(c, &found));
    if (b->decode)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%s is a model of an extension, and those have no decoder: "
                        "coh_model_logits_graph gives the logits of all positions",
                        c->model);
    if (b->separate_documents)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%s is a model of an extension, and those take no positions of documents: "
                        "its tokens attend over all before them in the sequence",
                        c->model);
    coh_own_graph to = { .struct_bytes = sizeof(to),
                         .model = found->model,
                         .size = coh_family_size(&coh_family_own, c),
                         .dropout = b->dropout,
                         .graph = b->graph,
                         .tokens = tokens,
                         .targets = targets,
                         .loss = { -1 },
                         .logits = { -1 } };
    COH_TRY(run_build(c->model, &to));
    if (to.loss.index < 0)
        return coh_fail(COH_ERR_ARGUMENT,
                        "the build of model %s sets no coh_own_graph.loss, which the model is "
                        "trained by: set it to output 0 of a loss kind, such as "
                        "coh_kind_cross_entropy",
                        c->model);
    *out_last = to.loss;
    return add_outputs(b, c->model, &to);
}

/* ---- its configuration ---- */

#define FIELD(member) offsetof(coh_own_config, member)

static const coh_own_config defaults = {
    .layers = 1, .heads = 1, .channels = 1, .positions = 1, .vocabulary = 1
};

static const coh_config_type types[] = { { "extension", "Extension", &defaults } };

static const coh_config_field fields[] = {
    { "num_hidden_layers", COH_FIELD_COUNT, FIELD(layers), .most = COH_LAYERS_MOST },
    { "num_attention_heads", COH_FIELD_COUNT, FIELD(heads) },
    { "hidden_size", COH_FIELD_COUNT, FIELD(channels) },
    { "max_position_embeddings", COH_FIELD_COUNT, FIELD(positions) },
    { "vocab_size", COH_FIELD_COUNT, FIELD(vocabulary) },
    { "extension", COH_FIELD_OWN },
    { "extension_model", COH_FIELD_OWN },
    { "extension_revision", COH_FIELD_OWN },
    { NULL },
};

static coh_status read_name(const coh_config_reader *reader, const char *member,
                            char out_name[COH_EXTENSION_NAME_BYTES])
{
    const json_t *value = json_object_get(reader->root, member);
    if (!json_is_string(value) || check_name("an extension", json_string_value(value)) != COH_OK)
        return coh_config_refuse(member, value, "the name of an extension or of its model");
    snprintf(out_name, COH_EXTENSION_NAME_BYTES, "%s", json_string_value(value));
    return COH_OK;
}

static coh_status read_own(coh_config_reader *reader, void *config)
{
    coh_own_config *c = config;
    const entry *found;
    const json_t *revision = json_object_get(reader->root, "extension_revision");
    COH_TRY(read_name(reader, "extension", c->extension));
    COH_TRY(read_name(reader, "extension_model", c->model));
    if (!json_is_integer(revision) || json_integer_value(revision) < 0 ||
        json_integer_value(revision) > UINT32_MAX)
        return coh_config_refuse("extension_revision", revision, "a whole number below 2^32");
    c->revision = (uint32_t)json_integer_value(revision);
    return find_named(c, &found);
}

static void write_own(const void *config, coh_text *text)
{
    const coh_own_config *c = config;
    (void)coh_text_add(text,
                       ", \"extension\": \"%s\", \"extension_model\": \"%s\", "
                       "\"extension_revision\": %" PRIu32,
                       c->extension, c->model, c->revision);
}

/* A folder's tensors are those of families that transformers knows. */
static void sizes(const void *config, coh_tensor_sizes *out_sizes)
{
    (void)config;
    *out_sizes = (coh_tensor_sizes){ 0 };
}

static const coh_tensor_line no_lines[] = { { NULL } };
static const char *const no_buffers[] = { NULL };

const coh_family_table coh_family_own = {
    .name = "extension",
    .config_bytes = sizeof(coh_own_config),
    .dtype_offset = FIELD(dtype),
    .check = check_config,
    .body = body,
    .types = types,
    .type_count = sizeof(types) / sizeof(types[0]),
    .fields = fields,
    .read_own = read_own,
    .write_own = write_own,
    .adapter_targets = "",
    .lines = { .prefix = "",
               .layer = "",
               .begin = no_lines,
               .in_layer = no_lines,
               .end = no_lines,
               .buffers = no_buffers },
    .sizes = sizes,
    .is_own = 1,
};
