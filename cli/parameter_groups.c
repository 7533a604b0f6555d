/* Turns patterns with rates and decays into the engine's groups, and the numbers of optimizers into
 * its hyperparameters. The one idea: each pattern with its value becomes one group; rates first,
 * then decays. Next: engine/ applies them. */
#include "cli/recipe.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

uint32_t cli_parameter_groups(const cli_recipe *recipe,
                              coh_parameter_group out_groups[CLI_GROUPS_MOST])
{
    uint32_t count = 0;
    for (int64_t i = 0; i < recipe->lr_for.count; i++)
        out_groups[count++] = (coh_parameter_group){
            .pattern = recipe->lr_for.at[i].pattern,
            .sets = COH_GROUP_SETS_RATE,
            .rate_factor = (float)(recipe->lr_for.at[i].value / recipe->schedule.highest),
        };
    for (int64_t i = 0; i < recipe->weight_decay_for.count; i++)
        out_groups[count++] = (coh_parameter_group){
            .pattern = recipe->weight_decay_for.at[i].pattern,
            .sets = COH_GROUP_SETS_DECAY,
            .weight_decay = (float)recipe->weight_decay_for.at[i].value,
        };
    return count;
}

static coh_status check_list(const cli_for_list *list, const char *flag, const coh_graph *graph)
{
    for (int64_t i = 0; i < list->count; i++) {
        const coh_status status = coh_parameter_group_count(graph, list->at[i].pattern, NULL, NULL);
        if (status != COH_OK)
            return cli_blame(status, "--%s", flag);
    }
    return COH_OK;
}

coh_status cli_parameter_groups_check(const cli_recipe *recipe, const coh_graph *graph)
{
    if (recipe->lr_for.count > 0 && recipe->schedule.highest == 0)
        return cli_fail(COH_ERR_ARGUMENT, "--lr-for follows the schedule of --lr, which is 0: give "
                                          "--lr above 0, or leave --lr-for out");
    CLI_TRY(check_list(&recipe->lr_for, "lr-for", graph));
    return check_list(&recipe->weight_decay_for, "weight-decay-for", graph);
}

static void describe_list(const cli_for_list *list, const char *what, const coh_graph *graph,
                          cli_line *line)
{
    for (int64_t i = 0; i < list->count; i++) {
        uint32_t tensors;
        uint64_t elements;
        const cli_for *one = &list->at[i];
        cli_line_add(line, "group:  %s %s for %s", what, cli_rate(one->value).at, one->pattern);
        if (graph && coh_parameter_group_count(graph, one->pattern, &tensors, &elements) == COH_OK)
            cli_line_add(line, ": %s, %s", cli_count(tensors, "tensor").at,
                         cli_count(elements, "parameter").at);
        cli_line_add(line, "\n");
    }
}

/* ---- optimizers ---- */

static void add_number(cli_hyperparameters *out, const char *optimizer, const char *name,
                       double value)
{
    out->values[out->count++] = (coh_hyperparameter_value){ optimizer, name, (float)value };
}

void cli_hyperparameters_of(const cli_recipe *recipe, cli_hyperparameters *out_numbers)
{
    out_numbers->count = 0;
    if (recipe->beta1 >= 0)
        add_number(out_numbers, NULL, "beta1", recipe->beta1);
    if (recipe->beta2 >= 0)
        add_number(out_numbers, NULL, "beta2", recipe->beta2);
    for (int64_t i = 0; i < recipe->hyperparameters.count; i++) {
        char *text = out_numbers->names[i];
        snprintf(text, sizeof(out_numbers->names[i]), "%s", recipe->hyperparameters.at[i].pattern);
        char *dot = strchr(text, '.');
        if (dot != NULL)
            *dot = '\0';
        add_number(out_numbers, dot != NULL ? text : NULL, dot != NULL ? dot + 1 : text,
                   recipe->hyperparameters.at[i].value);
    }
}

/* Returns the hyperparameter of this name, or NULL. */
static const coh_hyperparameter *find_number(const coh_optimizer *optimizer, const char *name)
{
    for (int32_t i = 0; optimizer != NULL && i < optimizer->hyperparameter_count; i++)
        if (strcmp(optimizer->hyperparameters[i].name, name) == 0)
            return &optimizer->hyperparameters[i];
    return NULL;
}

/* The optimizer of all parameters without a pattern, -1, or of the pattern `i`. */
static const char *optimizer_at(const cli_recipe *recipe, int64_t i)
{
    return i >= 0 ? recipe->optimizer_for.at[i].optimizer : cli_recipe_optimizer(recipe);
}

static void list_once(cli_line *list, const char *before, const char *dot, const char *name)
{
    char entry[COH_OPTIMIZER_NAME_BYTES + 64];
    snprintf(entry, sizeof(entry), ", %s%s%.48s, ", before, dot, name);
    if (strstr(list->text, entry) == NULL)
        cli_line_add(list, "%s", entry + 2);
}

/* Lists the numbers of the run's optimizers, as "beta1, momentum"; those of one optimizer, as
 * "sgd.momentum"; and the optimizers if the run has not that one. */
static void list_numbers(const cli_recipe *recipe, const char *of, int is_there, cli_line *list)
{
    cli_line_clear(list);
    cli_line_add(list, ", ");
    for (int64_t i = -1; i < recipe->optimizer_for.count; i++) {
        const char *name = optimizer_at(recipe, i);
        const coh_optimizer *optimizer = coh_optimizer_find(name);
        if (!is_there)
            list_once(list, "", "", name);
        if (!is_there || (of != NULL && strcmp(of, name) != 0))
            continue;
        for (int32_t k = 0; optimizer != NULL && k < optimizer->hyperparameter_count; k++)
            list_once(list, of != NULL ? of : "", of != NULL ? "." : "",
                      optimizer->hyperparameters[k].name);
    }
}

static coh_status refuse_number(const cli_recipe *recipe, const coh_hyperparameter_value *value)
{
    static cli_line list; /* large, and the stack may be small */
    const char *of = value->optimizer;
    int is_there = of == NULL;
    for (int64_t i = -1; i < recipe->optimizer_for.count; i++)
        is_there |= of != NULL && strcmp(of, optimizer_at(recipe, i)) == 0;
    list_numbers(recipe, of, is_there, &list);
    if (!is_there)
        return cli_fail(COH_ERR_ARGUMENT,
                        "no optimizer of this run has a number %s.%s, since the run has no "
                        "optimizer %s but %.*s: name one that it has, or leave it out",
                        of, value->name, of, (int)list.used - 4, list.text + 2);
    return cli_fail(COH_ERR_ARGUMENT,
                    "no optimizer of this run has a number %s%s%s: %s%.*s%sleave it out",
                    of != NULL ? of : "", of != NULL ? "." : "", value->name,
                    list.used > 4 ? "give one of " : "", list.used > 4 ? (int)list.used - 4 : 0,
                    list.text + 2, list.used > 4 ? ", or " : "");
}

static coh_status check_number(const cli_recipe *recipe, const coh_hyperparameter_value *value)
{
    int is_used = 0;
    for (int64_t i = -1; i < recipe->optimizer_for.count; i++) {
        const char *name = optimizer_at(recipe, i);
        const coh_hyperparameter *row = find_number(coh_optimizer_find(name), value->name);
        if (row == NULL || (value->optimizer != NULL && strcmp(value->optimizer, name) != 0))
            continue;
        if (!(value->value >= row->least && value->value <= row->most))
            return cli_fail(COH_ERR_ARGUMENT, "%s of optimizer %s is %g: give %g to %g", row->name,
                            name, (double)value->value, (double)row->least, (double)row->most);
        is_used = 1;
    }
    return is_used ? COH_OK : refuse_number(recipe, value);
}

coh_status cli_hyperparameters_check(const cli_recipe *recipe)
{
    cli_hyperparameters numbers;
    cli_hyperparameters_of(recipe, &numbers);
    for (uint32_t i = 0; i < numbers.count; i++)
        CLI_TRY(check_number(recipe, &numbers.values[i]));
    return COH_OK;
}

void cli_parameter_groups_describe(const cli_recipe *recipe, const coh_graph *graph, cli_line *line)
{
    if (recipe->optimizer[0] != '\0' || recipe->optimizer_for.count > 0)
        cli_line_add(line, "optimizer: %s\n", cli_recipe_optimizer(recipe));
    for (int64_t i = 0; i < recipe->optimizer_for.count; i++)
        cli_line_add(line, "optimizer: %s for %s\n", recipe->optimizer_for.at[i].optimizer,
                     recipe->optimizer_for.at[i].pattern);
    describe_list(&recipe->lr_for, "highest lr", graph, line);
    describe_list(&recipe->weight_decay_for, "weight decay", graph, line);
}
