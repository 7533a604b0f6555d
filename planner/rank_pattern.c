/* The list of rank patterns, and their numbers. The idea: a pattern is a function of the levels, so
 * one name serves any number of ranks; on a mesh the numbers become counts of innermost axes. Next:
 * rank_axes.h, cohobate/rank_pattern.h. */
#include "cohobate/rank_pattern.h"

#include <inttypes.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/check.h"
#include "base/fold_shape.h"
#include "base/struct_bytes.h"
#include "planner/pins.h"
#include "planner/rank_axes.h"

/* ---- the list ---- */

static coh_rank_parts parts_replicate(const coh_rank_levels *levels)
{
    (void)levels;
    return (coh_rank_parts){ 1, 1, 1 };
}

static coh_rank_parts parts_zero1(const coh_rank_levels *levels)
{
    return (coh_rank_parts){ 1, 1, levels->world };
}

static coh_rank_parts parts_zero2(const coh_rank_levels *levels)
{
    return (coh_rank_parts){ 1, levels->world, levels->world };
}

static coh_rank_parts parts_zero3(const coh_rank_levels *levels)
{
    return (coh_rank_parts){ levels->world, levels->world, levels->world };
}

static coh_rank_parts parts_levels(const coh_rank_levels *levels)
{
    return (coh_rank_parts){ levels->pair, levels->node, levels->world };
}

static int32_t copy_in_node(const coh_rank_levels *levels)
{
    return levels->node;
}

enum { OWN_COUNT = 6 };
static pthread_mutex_t list_mutex = PTHREAD_MUTEX_INITIALIZER;
static coh_rank_pattern list[COH_RANK_PATTERNS_MOST] = {
    { sizeof(coh_rank_pattern), "replicate", parts_replicate, NULL },
    { sizeof(coh_rank_pattern), "zero1", parts_zero1, NULL },
    { sizeof(coh_rank_pattern), "zero2", parts_zero2, NULL },
    { sizeof(coh_rank_pattern), "zero3", parts_zero3, NULL },
    { sizeof(coh_rank_pattern), "levels", parts_levels, NULL },
    { sizeof(coh_rank_pattern), "zeropp", parts_zero3, copy_in_node },
};
static int32_t list_count = OWN_COUNT;

/* Under the mutex. */
static coh_status add(const coh_rank_pattern *pattern)
{
    for (int32_t i = 0; i < list_count; i++)
        if (strcmp(list[i].name, pattern->name) == 0)
            return list[i].parts == pattern->parts && list[i].copy == pattern->copy
                       ? COH_OK
                       : coh_fail(COH_ERR_ARGUMENT,
                                  "rank pattern %s: another one has this name: rename it",
                                  pattern->name);
    if (list_count == COH_RANK_PATTERNS_MOST)
        return coh_fail(COH_ERR_ARGUMENT, "rank pattern %s: %d are registered already",
                        pattern->name, COH_RANK_PATTERNS_MOST);
    list[list_count++] = *pattern;
    return COH_OK;
}

coh_status coh_rank_pattern_register(const coh_rank_pattern *pattern)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
    coh_rank_pattern known = { 0 };
    COH_NEED_STRUCT(coh_rank_pattern, pattern);
    if (pattern->struct_bytes < offsetof(coh_rank_pattern, copy))
        return coh_fail(COH_ERR_ARGUMENT, "a rank pattern's struct_bytes is %" PRIu32 ", not %zu",
                        pattern->struct_bytes, sizeof(*pattern));
    coh_struct_read(pattern, &known, sizeof(known));
    const size_t length =
        pattern->name != NULL ? strnlen(pattern->name, COH_RANK_PATTERN_BYTES) : 0;
    if (length == 0 || length == COH_RANK_PATTERN_BYTES ||
        strspn(pattern->name, allowed) != length ||
        strchr(allowed, pattern->name[0]) - allowed > 25)
        return coh_fail(COH_ERR_ARGUMENT,
                        "a rank pattern's name has 1 to %d characters, a letter of a-z and then "
                        "a-z, 0-9 or _: rename it",
                        COH_RANK_PATTERN_BYTES - 1);
    if (strcmp(pattern->name, COH_RANK_PATTERN_AUTO) == 0)
        return coh_fail(COH_ERR_ARGUMENT, "a rank pattern is called " COH_RANK_PATTERN_AUTO
                                          ", which stands for the fastest of all: rename it");
    if (pattern->parts == NULL)
        return coh_fail(COH_ERR_ARGUMENT, "rank pattern %s: it has no parts", pattern->name);
    pthread_mutex_lock(&list_mutex);
    const coh_status status = add(&known);
    pthread_mutex_unlock(&list_mutex);
    return status;
}

int32_t coh_rank_pattern_count(void)
{
    pthread_mutex_lock(&list_mutex);
    const int32_t count = list_count;
    pthread_mutex_unlock(&list_mutex);
    return count;
}

const coh_rank_pattern *coh_rank_pattern_at(int32_t index)
{
    pthread_mutex_lock(&list_mutex);
    const coh_rank_pattern *found = index >= 0 && index < list_count ? &list[index] : NULL;
    pthread_mutex_unlock(&list_mutex);
    return found;
}

const coh_rank_pattern *coh_rank_pattern_find(const char *name)
{
    const int32_t count = coh_rank_pattern_count();
    for (int32_t i = 0; name != NULL && i < count; i++)
        if (strcmp(coh_rank_pattern_at(i)->name, name) == 0)
            return coh_rank_pattern_at(i);
    return NULL;
}

/* ---- numbers ---- */

static coh_status refuse_name(const char *pattern)
{
    char known[COH_RANK_PATTERNS_MOST * (COH_RANK_PATTERN_BYTES + 2)] = "";
    size_t length = 0;
    const int32_t count = coh_rank_pattern_count();
    for (int32_t i = 0; i < count; i++)
        length += (size_t)snprintf(known + length, sizeof(known) - length, "%s, ",
                                   coh_rank_pattern_at(i)->name);
    return coh_fail(
        COH_ERR_ARGUMENT,
        "no rank pattern is called '%.*s': there are %sor numbers of ranks that weights, "
        "gradients and states are divided over, as 2/4/8",
        COH_RANK_PATTERN_BYTES - 1, pattern, known);
}

/* Reads "2/4/8" or "8/8/8/4"; returns 0 for another text. */
static int read_numbers(const char *text, coh_rank_parts *out_parts, int32_t *out_copy)
{
    int32_t *const numbers[] = { &out_parts->work, &out_parts->grad, &out_parts->state, out_copy };
    for (int i = 0; i < 4; i++) {
        int64_t number = 0;
        if (*text < '1' || *text > '9')
            return 0;
        for (; *text >= '0' && *text <= '9' && number <= INT32_MAX; text++)
            number = 10 * number + (*text - '0');
        if (number > INT32_MAX)
            return 0;
        *numbers[i] = (int32_t)number;
        if (*text == '\0')
            return i >= 2;
        if (*text++ != '/')
            return 0;
    }
    return 0;
}

static coh_status find_numbers(const char *pattern, const coh_rank_levels *levels,
                               coh_rank_parts *out_parts, int32_t *out_copy)
{
    *out_copy = 0;
    const coh_rank_pattern *found = coh_rank_pattern_find(*pattern != '\0' ? pattern : "replicate");
    if (levels->pair < 1 || levels->node < levels->pair || levels->world < levels->node)
        return coh_fail(COH_ERR_ARGUMENT,
                        "%" PRId32 " ranks of a pair, %" PRId32 " of a node and %" PRId32
                        " in all are no levels: each has at least as many as the one before",
                        levels->pair, levels->node, levels->world);
    if (found != NULL)
        *out_parts = found->parts(levels);
    else if (!read_numbers(pattern, out_parts, out_copy))
        return refuse_name(pattern);
    if (found != NULL && found->copy != NULL)
        *out_copy = found->copy(levels);
    if (*out_copy < 0 || (*out_copy > 0 && out_parts->work % *out_copy != 0))
        return coh_fail(COH_ERR_ARGUMENT,
                        "rank pattern %s divides a copy of the weights over %" PRId32
                        " ranks and the weights over %" PRId32 ": give a divisor of them",
                        pattern, *out_copy, out_parts->work);
    if (found == NULL && *out_copy == 1)
        return coh_fail(COH_ERR_ARGUMENT,
                        "rank pattern %s leaves each rank a whole copy of the weights: give a last "
                        "number above 1, or leave it out",
                        pattern);
    if (*out_copy == out_parts->work || *out_copy == 1)
        *out_copy = 0;
    if (out_parts->work >= 1 && out_parts->grad >= 1 && out_parts->state >= 1 &&
        out_parts->grad % out_parts->work == 0 && out_parts->state % out_parts->grad == 0 &&
        levels->world % out_parts->state == 0)
        return COH_OK;
    return coh_fail(COH_ERR_ARGUMENT,
                    "rank pattern %s divides weights over %" PRId32
                    " ranks, gradients over %" PRId32 " and states over %" PRId32 " of %" PRId32
                    ": give numbers of which each divides the next",
                    pattern, out_parts->work, out_parts->grad, out_parts->state, levels->world);
}

coh_status coh_rank_parts_find(const char *pattern, const coh_rank_levels *levels,
                               coh_rank_parts *out_parts)
{
    int32_t copy;
    COH_NEED(pattern);
    COH_NEED(levels);
    COH_NEED(out_parts);
    return find_numbers(pattern, levels, out_parts, &copy);
}

coh_status coh_rank_copy_find(const char *pattern, const coh_rank_levels *levels,
                              int32_t *out_ranks)
{
    coh_rank_parts parts;
    COH_NEED(pattern);
    COH_NEED(levels);
    COH_NEED(out_ranks);
    return find_numbers(pattern, levels, &parts, out_ranks);
}

/* ---- axes ---- */

/* Returns the count of innermost factors whose product is `ranks`; -1: none is. */
static int axes_of(const coh_fold_shape *shape, int32_t ranks)
{
    int64_t product = 1;
    int axes = 0;
    while (product < ranks && axes < coh_fold_factor_count(shape))
        product *= shape->factors[axes++];
    return product == ranks ? axes : -1;
}

coh_rank_levels coh_rank_levels_of(const coh_plan_options *options)
{
    const int32_t world = coh_fold_replicas(&options->ranks);
    return (coh_rank_levels){ options->pair_ranks > 0 ? options->pair_ranks : 1,
                              options->node_ranks > 0 ? options->node_ranks : world, world };
}

coh_status coh_rank_axes_find(const coh_plan_options *options, const char *pattern,
                              coh_rank_axes *out_axes)
{
    const coh_rank_levels levels = coh_rank_levels_of(options);
    coh_rank_parts parts;
    int32_t copy;
    char shape[COH_FOLD_TEXT_BYTES];
    COH_TRY(find_numbers(pattern, &levels, &parts, &copy));
    const int work = axes_of(&options->ranks, parts.work);
    const int grad = axes_of(&options->ranks, parts.grad);
    const int state = axes_of(&options->ranks, parts.state);
    const int of_copy = copy > 0 ? axes_of(&options->ranks, copy) : 0;
    if (work >= 0 && grad >= 0 && state >= 0 && of_copy >= 0) {
        *out_axes =
            (coh_rank_axes){ (uint8_t)work, (uint8_t)grad, (uint8_t)state, (uint8_t)of_copy };
        return COH_OK;
    }
    COH_TRY(coh_fold_shape_write(&options->ranks, shape));
    return coh_fail(COH_ERR_ARGUMENT,
                    "rank pattern %s divides a stream over %" PRId32
                    " ranks, which is no product of the innermost factors of %s, in which the "
                    "gradients of the ranks are added: give another %s",
                    pattern,
                    work < 0    ? parts.work
                    : grad < 0  ? parts.grad
                    : state < 0 ? parts.state
                                : copy,
                    shape, coh_term_text(COH_TERM_REPLICAS));
}

coh_status coh_rank_axes_of_parameters(const coh_graph *graph, const coh_plan_options *options,
                                       coh_rank_axes *out_axes)
{
    coh_rank_axes common;
    int32_t *pins = NULL; /* by graph parameter */
    coh_status status = COH_OK;
    COH_TRY(coh_rank_axes_find(options, options->rank_pattern, &common));
    for (size_t i = 0; i < graph->parameter_count; i++)
        out_axes[i] = common;
    if (!coh_pins_have_patterns(options))
        return COH_OK;
    COH_TRY(COH_ALLOC(graph->parameter_count, &pins));
    COH_TRY_GOTO(status, coh_pins_patterns(graph, options, pins), done);
    for (size_t i = 0; i < graph->parameter_count; i++)
        if (pins[i] >= 0)
            COH_TRY_GOTO(status,
                         coh_rank_axes_find(options, options->pins[pins[i]].pattern, &out_axes[i]),
                         done);
done:
    coh_free(pins);
    return status;
}

int coh_ranks_divide(const coh_plan_options *options)
{
    coh_rank_axes axes;
    if (coh_fold_replicas(&options->ranks) == 1)
        return 0;
    if (coh_rank_axes_find(options, options->rank_pattern, &axes) == COH_OK && axes.state > 0)
        return 1;
    for (int32_t i = 0; i < options->pin_count; i++)
        if (options->pins[i].place == COH_PIN_PATTERN &&
            coh_rank_axes_find(options, options->pins[i].pattern, &axes) == COH_OK &&
            axes.state > 0)
            return 1;
    return 0;
}
