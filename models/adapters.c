/* Matches patterns against names of operators, and derives the list of adapters from them. The one
 * idea: one walk over the model's tensors (coh_operator_next) finds all operators; patterns see
 * only their names. Next: export.c writes adapters as PEFT does, adapters_merge.c adds them
 * to weights. */
#include "models/adapters.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/name_pattern.h"
#include "models/family.h"
#include "models/own.h"

enum { RANK_MOST = 1 << 16 };

static const char *const adapter_parts[] = { COH_ADAPTER_A, COH_ADAPTER_B };

/* ---- patterns ---- */

static int is_adapter(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot && (strcmp(dot + 1, COH_ADAPTER_A) == 0 || strcmp(dot + 1, COH_ADAPTER_B) == 0);
}

int coh_adapters_freeze(const coh_adapters *adapters, const char *name)
{
    if (!adapters)
        return 0;
    if (coh_pattern_matches(adapters->freeze, name))
        return 1;
    return adapters->rank > 0 && !is_adapter(name) && !coh_pattern_matches(adapters->also, name);
}

int coh_adapters_target(const coh_adapters *adapters, const char *name)
{
    return adapters && adapters->rank > 0 && coh_pattern_matches(adapters->targets, name);
}

int coh_adapters_also(const coh_adapters *adapters, const char *name)
{
    return adapters && adapters->rank > 0 && !is_adapter(name) &&
           !coh_adapters_freeze(adapters, name);
}

/* ---- operators ---- */

/* Finds the operator's layer and the start of its name within that layer. */
static void find_place(const coh_tensor_lines *lines, coh_operator *op)
{
    const char *at = op->name;
    const size_t prefix = lines->ours_prefixed ? strlen(lines->prefix) : 0,
                 layer = strlen(lines->layer);
    char *rest;
    op->place = at;
    op->layer = -1;
    if (strncmp(at, lines->prefix, prefix) != 0)
        return;
    op->place = at += prefix;
    if (strncmp(at, lines->layer, layer) != 0)
        return;
    op->layer = (int64_t)strtoull(at + layer, &rest, 10);
    op->place = rest + 1;
}

/* Bytes of the operator's name in that of its tensor. */
static int op_bytes(const char *tensor)
{
    const char *dot = strrchr(tensor, '.');
    return (int)(dot ? (size_t)(dot - tensor) : strlen(tensor));
}

int coh_operator_next(const coh_model *model, int64_t *index, coh_operator *out_operator)
{
    coh_model_tensor tensor;
    const coh_family_table *family = coh_family_of(model);
    const int64_t count = coh_model_tensor_count(model);
    coh_operator *op = out_operator;
    *op = (coh_operator){ 0 };
    for (; *index < count && coh_model_tensor_at(model, *index, &tensor) == COH_OK; (*index)++) {
        const size_t length = (size_t)op_bytes(tensor.name);
        if (op->name[0] &&
            (strncmp(op->name, tensor.name, length) != 0 || strlen(op->name) != length))
            break;
        int64_t elements; /* of a configuration that is not checked yet */
        if (__builtin_mul_overflow(tensor.dim[0], tensor.rank == 2 ? tensor.dim[1] : 1,
                                   &elements) ||
            __builtin_add_overflow(op->elements, elements, &op->elements))
            op->elements = INT64_MAX;
        if (op->name[0])
            continue;
        snprintf(op->name, sizeof(op->name), "%.*s", (int)length, tensor.name);
        snprintf(op->module, sizeof(op->module), "%.*s", op_bytes(tensor.published),
                 tensor.published);
        op->linear = tensor.linear;
        op->transposed = tensor.transposed;
        op->outputs = tensor.dim[0];
        op->inputs = tensor.dim[1];
        find_place(&family->lines, op);
    }
    return op->name[0] != '\0';
}

/* ---- checks ---- */

/* Lists what patterns may name, once per place, separated by ", ". */
static void list_operators(const coh_model *model, int only_linear, char *text, size_t text_bytes)
{
    coh_operator op;
    size_t used = 0;
    text[0] = '\0';
    for (int64_t index = 0; coh_operator_next(model, &index, &op);) {
        if (op.layer > 0 || (only_linear && !op.linear))
            continue;
        const int wrote =
            snprintf(text + used, text_bytes - used, "%s%s", used ? ", " : "", op.place);
        if (wrote > 0 && used + (size_t)wrote < text_bytes)
            used += (size_t)wrote;
    }
}

static coh_status refuse_pattern(const coh_model *model, const char *what, const char *pattern,
                                 const char *stands_for, int only_linear)
{
    char names[1024];
    list_operators(model, only_linear, names, sizeof(names));
    return coh_fail(COH_ERR_ARGUMENT,
                    "%s \"%s\" matches no %soperator of this model%s: choose among %s, \"*\" and "
                    "\"?\" standing for any letters",
                    what, pattern, only_linear ? "linear " : "", stands_for, names);
}

/* Kinds of operators that a pattern matched. */
typedef struct found {
    int any, own, linear; /* `own`: of the model, and not of an adapter */
} found;

static found find_matches(const coh_model *model, const char *pattern)
{
    coh_operator op;
    char name[sizeof(op.name) + 16];
    found all = { 0 };
    for (int64_t index = 0; coh_operator_next(model, &index, &op);) {
        if (coh_pattern_matches_one(pattern, op.name)) {
            all.any = all.own = 1;
            all.linear |= op.linear;
        }
        if (!op.linear || !coh_adapters_target(&model->adapters, op.name))
            continue;
        for (int part = 0; part < 2; part++) {
            snprintf(name, sizeof(name), "%s.%s", op.name, adapter_parts[part]);
            all.any |= coh_pattern_matches_one(pattern, name);
        }
    }
    return all;
}

/* A weight with an adapter is frozen under it. */
static coh_status check_one_way(const coh_model *model)
{
    coh_operator op;
    for (int64_t index = 0; coh_operator_next(model, &index, &op);)
        if (op.linear && coh_adapters_target(&model->adapters, op.name) &&
            coh_pattern_matches(model->adapters.also, op.name))
            return coh_fail(
                COH_ERR_ARGUMENT,
                "%s has an adapter, and \"%s\" would train it in full, too: take it out "
                "of one of the two",
                op.name, model->adapters.also);
    return COH_OK;
}

/* Why a pattern of the head matches nothing where the head is the table. */
static const char *why_no_head(const coh_model *model, const char *pattern)
{
    const int is_tied = coh_model_name_find(model, "lm_head.weight", NULL) == COH_MODEL_NAME_TIED;
    return is_tied && coh_pattern_matches_one(pattern, "lm_head")
               ? ", whose head is its token table"
               : "";
}

static coh_status check_patterns(const coh_model *model)
{
    char pattern[COH_PATTERN_BYTES];
    for (const char *list = model->adapters.freeze; coh_pattern_next(&list, pattern);)
        if (!find_matches(model, pattern).any)
            return refuse_pattern(model, "the frozen", pattern, why_no_head(model, pattern), 0);
    for (const char *list = model->adapters.targets; coh_pattern_next(&list, pattern);) {
        const found all = find_matches(model, pattern);
        if (!all.linear)
            return refuse_pattern(model, "the adapters' target", pattern,
                                  all.any ? ", only for others" : "", 1);
    }
    for (const char *list = model->adapters.also; coh_pattern_next(&list, pattern);)
        if (!find_matches(model, pattern).own)
            return refuse_pattern(model, "the pattern of what is trained next to adapters", pattern,
                                  why_no_head(model, pattern), 0);
    return check_one_way(model);
}

static coh_status check_numbers(const coh_adapters *adapters)
{
    if (adapters->rank < 0 || adapters->rank > RANK_MOST)
        return coh_fail(COH_ERR_ARGUMENT, "adapters of rank %" PRId32 ": 1 to %d is possible",
                        adapters->rank, RANK_MOST);
    if (adapters->rank == 0 && (adapters->targets[0] || adapters->alpha != 0))
        return coh_fail(COH_ERR_ARGUMENT, "adapters have targets or an alpha and no rank: give one "
                                          "of at least 1");
    if (adapters->rank == 0 && adapters->also[0])
        return coh_fail(COH_ERR_ARGUMENT,
                        "\"%s\" is to be trained next to adapters that have no rank: give one of "
                        "at least 1, or freeze the other operators instead",
                        adapters->also);
    if (adapters->rank > 0 && (!(adapters->alpha > 0) || !isfinite(adapters->alpha)))
        return coh_fail(COH_ERR_ARGUMENT,
                        "adapters have an alpha of %g, must be positive and "
                        "finite",
                        (double)adapters->alpha);
    if (adapters->rank > 0 && !adapters->targets[strspn(adapters->targets, ", ")])
        return coh_fail(COH_ERR_ARGUMENT, "adapters of rank %" PRId32 " have no targets",
                        adapters->rank);
    return COH_OK;
}

/* Patterns are copied unescaped into JSON, messages and command lines. */
static coh_status check_text(const char *patterns)
{
    for (const char *at = patterns; *at; at++)
        if (*at < 0x20 || *at > 0x7e || *at == '"' || *at == '\\')
            return coh_fail(COH_ERR_ARGUMENT,
                            "a pattern of operators has a byte 0x%02x: letters, digits, \".\", "
                            "\"_\", \"*\", \"?\" and \"[...]\" are possible",
                            (unsigned)(unsigned char)*at);
    return COH_OK;
}

static int64_t adapter_elements(const coh_operator *op, int64_t rank)
{
    int64_t elements;
    return __builtin_add_overflow(op->inputs, op->outputs, &elements) ||
                   __builtin_mul_overflow(elements, rank, &elements)
               ? INT64_MAX
               : elements;
}

int coh_model_is_frozen(const coh_model *model, int64_t index)
{
    coh_model_tensor tensor;
    char name[sizeof(((coh_operator *)0)->name)];
    if (!model || coh_model_tensor_at(model, index, &tensor) != COH_OK)
        return 0;
    snprintf(name, sizeof(name), "%.*s", op_bytes(tensor.name), tensor.name);
    return coh_adapters_freeze(&model->adapters, name);
}

uint64_t coh_model_trained_count(const coh_model *model)
{
    coh_operator op;
    char name[sizeof(op.name) + 16];
    uint64_t count = 0;
    if (!model || !coh_family_of(model))
        return 0;
    if (coh_family_of(model)->is_own)
        return coh_own_trained_count(model);
    const coh_adapters *adapters = &model->adapters;
    for (int64_t index = 0; coh_operator_next(model, &index, &op);) {
        if (!coh_adapters_freeze(adapters, op.name))
            count += (uint64_t)op.elements;
        if (!op.linear || !coh_adapters_target(adapters, op.name))
            continue;
        for (int part = 0; part < 2; part++) {
            snprintf(name, sizeof(name), "%s.%s", op.name, adapter_parts[part]);
            if (!coh_adapters_freeze(adapters, name))
                count += (uint64_t)(adapters->rank * (part == 0 ? op.inputs : op.outputs));
        }
    }
    return count;
}

coh_status coh_adapters_check(const coh_model *model)
{
    const coh_adapters *adapters = &model->adapters;
    if (!adapters->freeze[0] && !adapters->targets[0] && !adapters->also[0] &&
        adapters->rank == 0 && adapters->alpha == 0)
        return COH_OK;
    if (coh_family_of(model)->is_own)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%s is a model of an extension, whose build adds its own adapters and "
                        "decides what is frozen: leave patterns and adapters out",
                        model->name);
    COH_TRY(check_numbers(adapters));
    COH_TRY(check_text(adapters->freeze));
    COH_TRY(check_text(adapters->targets));
    COH_TRY(check_text(adapters->also));
    COH_TRY(check_patterns(model));
    if (coh_model_trained_count(model) == 0)
        return coh_fail(COH_ERR_ARGUMENT,
                        "\"%s\" freezes every op, and nothing is left to train: leave one "
                        "out",
                        adapters->freeze);
    return COH_OK;
}

static const char *default_targets(const coh_model *model, const coh_family_table *family)
{
    const int type = family->type_of ? family->type_of(coh_family_config(model)) : 0;
    const int is_known = type >= 0 && type < family->type_count;
    const char *targets = is_known ? family->types[type].adapter_targets : NULL;
    return targets ? targets : family->adapter_targets;
}

coh_status coh_model_adapters_set(coh_model *model, const coh_adapters *adapters)
{
    COH_NEED(model);
    const coh_family_table *family = coh_family_of(model);
    if (!family || !adapters)
        return coh_fail(COH_ERR_ARGUMENT, "adapters need a model of a known family");
    const coh_adapters before = model->adapters;
    model->adapters = *adapters;
    if (adapters->rank > 0 && !adapters->targets[0])
        snprintf(model->adapters.targets, COH_PATTERN_BYTES, "%s", default_targets(model, family));
    if (adapters->rank > 0 && adapters->alpha == 0)
        model->adapters.alpha = COH_ADAPTER_ALPHA;
    const coh_status status = coh_adapters_check(model);
    if (status != COH_OK)
        model->adapters = before;
    return status;
}

/* ---- the table ---- */

static int next_adapter(const coh_model *model, int64_t *index, coh_operator *out_operator)
{
    while (coh_operator_next(model, index, out_operator))
        if (out_operator->linear && coh_adapters_target(&model->adapters, out_operator->name))
            return 1;
    return 0;
}

/* Counts the adapters, and the elements of all. */
static int64_t count_adapters(const coh_model *model, uint64_t *out_elements)
{
    coh_operator op;
    int64_t count = 0;
    *out_elements = 0;
    if (!model || !coh_family_of(model) || model->adapters.rank == 0)
        return 0;
    for (int64_t index = 0; next_adapter(model, &index, &op); count++)
        *out_elements += (uint64_t)adapter_elements(&op, model->adapters.rank);
    return count;
}

int64_t coh_model_adapter_count(const coh_model *model)
{
    uint64_t elements;
    return count_adapters(model, &elements);
}

uint64_t coh_model_adapter_elements(const coh_model *model)
{
    uint64_t elements;
    (void)count_adapters(model, &elements);
    return elements;
}

static void describe(const coh_model *model, const coh_operator *op, coh_model_adapter *out_adapter)
{
    *out_adapter = (coh_model_adapter){ .inputs = op->inputs,
                                        .outputs = op->outputs,
                                        .elements = adapter_elements(op, model->adapters.rank),
                                        .transposed = op->transposed };
    memcpy(out_adapter->name, op->name, sizeof(op->name));
    memcpy(out_adapter->module, op->module, sizeof(op->module));
}

coh_status coh_adapters_list(const coh_model *model, coh_model_adapter **out_adapters,
                             size_t *out_count)
{
    coh_operator op;
    *out_count = 0;
    COH_TRY(COH_ALLOC((size_t)coh_model_adapter_count(model), out_adapters));
    for (int64_t index = 0; next_adapter(model, &index, &op);)
        describe(model, &op, &(*out_adapters)[(*out_count)++]);
    return COH_OK;
}

coh_status coh_model_adapter_at(const coh_model *model, int64_t index,
                                coh_model_adapter *out_adapter)
{
    coh_operator op;
    int64_t at = -1, tensor = 0;
    if (!model || !out_adapter || !coh_family_of(model))
        return coh_fail(COH_ERR_ARGUMENT, "an adapter needs a model of a known family and a place");
    while (at < index && next_adapter(model, &tensor, &op))
        at++;
    if (index < 0 || at != index)
        return coh_fail(COH_ERR_ARGUMENT, "the model has no adapter of index %" PRId64, index);
    describe(model, &op, out_adapter);
    return COH_OK;
}

void coh_adapter_parameter_name(const char *op, const char *part, char *out_name, size_t name_bytes)
{
    snprintf(out_name, name_bytes, "%s.%s.weight", op, part);
}

int coh_model_is_adapter_name(const char *parameter)
{
    char name[sizeof(((coh_operator *)0)->name) + 16];
    const char *dot = parameter ? strrchr(parameter, '.') : NULL;
    if (!dot || strcmp(dot, ".weight") != 0 || (size_t)(dot - parameter) >= sizeof(name))
        return 0;
    snprintf(name, sizeof(name), "%.*s", (int)(dot - parameter), parameter);
    return is_adapter(name);
}

int coh_model_is_adapted(const coh_model *model, const char *parameter)
{
    char name[sizeof(((coh_operator *)0)->name) + 16];
    if (!model || !parameter || strlen(parameter) >= sizeof(name))
        return 0;
    snprintf(name, sizeof(name), "%.*s", op_bytes(parameter), parameter);
    return coh_model_is_adapter_name(parameter) || coh_adapters_also(&model->adapters, name);
}

/* ---- JSON ---- */

void coh_adapters_to_text(const coh_adapters *adapters, coh_text *text)
{
    if (!adapters->freeze[0] && adapters->rank == 0)
        return;
    (void)coh_text_add(text, ", \"adapters\": {\"freeze\": ");
    (void)coh_text_add_quoted(text, adapters->freeze);
    (void)coh_text_add(text, ", \"rank\": %" PRId32 ", \"alpha\": ", adapters->rank);
    coh_config_text_add_float(text, adapters->alpha);
    (void)coh_text_add(text, ", \"targets\": ");
    (void)coh_text_add_quoted(text, adapters->targets);
    if (adapters->also[0]) {
        (void)coh_text_add(text, ", \"also\": ");
        (void)coh_text_add_quoted(text, adapters->also);
    }
    (void)coh_text_add(text, "}");
}

coh_status coh_adapters_from_json(json_t *value, coh_adapters *out_adapters)
{
    const char *freeze, *targets, *also = "";
    json_int_t rank;
    double alpha;
    json_error_t error;
    *out_adapters = (coh_adapters){ 0 };
    if (!value)
        return COH_OK;
    if (json_unpack_ex(value, &error, JSON_STRICT, "{s:s, s:I, s:F, s:s, s?:s}", "freeze", &freeze,
                       "rank", &rank, "alpha", &alpha, "targets", &targets, "also", &also) != 0)
        return coh_fail(COH_ERR_CORRUPT, "the model's adapters are malformed: %s", error.text);
    if (strlen(freeze) >= COH_PATTERN_BYTES || strlen(targets) >= COH_PATTERN_BYTES ||
        strlen(also) >= COH_PATTERN_BYTES || rank < 0 || rank > RANK_MOST)
        return coh_fail(COH_ERR_CORRUPT, "the model's adapters of rank %" PRId64 " are none",
                        (int64_t)rank);
    snprintf(out_adapters->freeze, COH_PATTERN_BYTES, "%s", freeze);
    snprintf(out_adapters->targets, COH_PATTERN_BYTES, "%s", targets);
    snprintf(out_adapters->also, COH_PATTERN_BYTES, "%s", also);
    out_adapters->rank = (int32_t)rank;
    out_adapters->alpha = (float)alpha;
    return COH_OK;
}
