/* Turns patterns with rates and decays into the engine's groups. The one idea: each pattern with
 * its value becomes one group; rates first, then decays. Next: engine/ applies them. */
#include "cli/parameter_groups.h"

#include <inttypes.h>

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
    char number[32];
    for (int64_t i = 0; i < list->count; i++) {
        uint32_t tensors;
        uint64_t elements;
        const cli_for *one = &list->at[i];
        cli_line_add(line, "group:  %s %s for %s", what, cli_rate(one->value, number),
                     one->pattern);
        if (graph && coh_parameter_group_count(graph, one->pattern, &tensors, &elements) == COH_OK)
            cli_line_add(line, ": %" PRIu32 " tensor%s, %" PRIu64 " parameters", tensors,
                         tensors == 1 ? "" : "s", elements);
        cli_line_add(line, "\n");
    }
}

void cli_parameter_groups_describe(const cli_recipe *recipe, const coh_graph *graph, cli_line *line)
{
    describe_list(&recipe->lr_for, "highest lr", graph, line);
    describe_list(&recipe->weight_decay_for, "weight decay", graph, line);
}
