/* How ranks are linked, from flags and the profile. The idea: a topology is a profile's part, so
 * that one reader, one form and one list of entries serve both. Read topology.h first. */
#include "cli/topology.h"

#include <inttypes.h>
#include <stdio.h>

#include "cli/say.h"

coh_status cli_topology_take(cli_options *options)
{
    static char text[2 * CLI_PATH_BYTES]; /* of the one parsed command */
    if (options->topology == NULL)
        return COH_OK;
    const int length = options->profile ? snprintf(text, sizeof(text), "%s,topology=%s",
                                                   options->profile, options->topology)
                                        : snprintf(text, sizeof(text), "%s", options->topology);
    if (length >= (int)sizeof(text))
        return cli_fail(COH_ERR_ARGUMENT, "--topology and --profile are longer than %zu bytes",
                        sizeof(text) - 1);
    options->profile = text;
    options->given[CLI_FLAG_PROFILE] = 1;
    return COH_OK;
}

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* Returns the profile's ranks of a node and of a pair, each at most `ranks`; 0: unknown. */
static coh_profile_summary sizes_of(const coh_profile *profile, int32_t ranks)
{
    coh_profile_summary facts = { .struct_bytes = sizeof(facts) };
    if (profile == NULL || coh_profile_summarize(profile, &facts) != COH_OK || ranks == 1)
        return (coh_profile_summary){ 0 };
    facts.node_ranks = least(facts.node_ranks, ranks);
    facts.pair_ranks = least(facts.pair_ranks, ranks);
    return facts;
}

void cli_topology_sizes(const cli_options *options, const coh_profile *profile,
                        coh_plan_options *plan_options)
{
    const int32_t ranks = coh_fold_shape_replicas(&plan_options->ranks);
    const coh_profile_summary facts = sizes_of(profile, ranks);
    plan_options->node_ranks = facts.node_ranks;
    if (cli_given(options, CLI_FLAG_NODE_RANKS))
        plan_options->node_ranks = (int32_t)options->node_ranks;
    plan_options->pair_ranks = facts.pair_ranks;
    if (plan_options->node_ranks > 0) /* a smaller node than the profile's */
        plan_options->pair_ranks = least(facts.pair_ranks, plan_options->node_ranks);
    if (cli_given(options, CLI_FLAG_PAIR_RANKS))
        plan_options->pair_ranks = (int32_t)options->pair_ranks;
}

coh_status cli_topology_check(const coh_profile *profile, const coh_plan_options *plan_options)
{
    const int32_t ranks = coh_fold_shape_replicas(&plan_options->ranks);
    const coh_profile_summary facts = sizes_of(profile, ranks);
    const int32_t node = plan_options->node_ranks > 0 ? plan_options->node_ranks : ranks;
    const int32_t pair = plan_options->pair_ranks > 0 ? plan_options->pair_ranks : 1;
    const int32_t profile_pair = facts.pair_ranks > 0 ? facts.pair_ranks : 1;
    if (facts.node_ranks == 0 || (facts.node_ranks == node && profile_pair == pair))
        return COH_OK;
    return cli_fail(COH_ERR_ARGUMENT,
                    "the plan is for pairs of %" PRId32 " and nodes of %" PRId32
                    " ranks, and the profile %s has pairs of %" PRId32 " and nodes of %" PRId32
                    ": plan again with it, or give another --topology",
                    pair, node, facts.name, profile_pair, facts.node_ranks);
}
