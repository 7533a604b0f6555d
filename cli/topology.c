/* How ranks are linked, from flags and the profile. The idea: a topology is a profile's part, so
 * that one reader, one form and one list of entries serve both. Read topology.h first. */
#include "cli/topology.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/launch.h"

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
    if (facts.node_ranks == 0 && facts.pair_ranks > 1 && ranks % facts.pair_ranks != 0)
        facts.pair_ranks = 0; /* of a measured profile: other ranks than those that it met */
    facts.node_ranks = least(facts.node_ranks, ranks);
    facts.pair_ranks = least(facts.pair_ranks, ranks);
    return facts;
}

/* The nodes of a launcher's world are its machines, whatever the profile has. Its pairs are the
 * profile's where they fill a machine. */
static void take_launched(const cli_options *options, int32_t ranks, coh_plan_options *plan_options)
{
    const int32_t of_node = options->launch->local_count, pair = plan_options->pair_ranks;
    plan_options->node_ranks = of_node < ranks ? of_node : 0;
    if (pair <= 1 || of_node % pair == 0)
        return;
    plan_options->pair_ranks = 0;
    cli_note_once("note: the %" PRId32 " processes of a machine do not fill the pairs of %" PRId32
                  " ranks that the profile has: exchanges within a pair are priced as in a node",
                  of_node, pair);
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
    if (options->launch)
        take_launched(options, ranks, plan_options);
}

/* How many ranks fill pairs and nodes: any multiple of a node, or of a pair below one. */
static int fills(const coh_profile_summary *facts, int32_t ranks)
{
    const int32_t pair = facts->pair_ranks > 1 ? facts->pair_ranks : 1;
    return ranks == 1 || ranks % facts->node_ranks == 0 ||
           (ranks < facts->node_ranks && ranks % pair == 0);
}

/* Refuses ranks that leave a node or a pair of the profile in part, with the next numbers. */
static coh_status check_filled(const cli_options *options, const coh_profile *profile,
                               int32_t ranks)
{
    char links[64] = "", both[32];
    int32_t below = ranks, above = ranks;
    coh_profile_summary facts = { .struct_bytes = sizeof(facts) };
    if (profile == NULL || coh_profile_summarize(profile, &facts) != COH_OK ||
        facts.node_ranks == 0 || fills(&facts, ranks))
        return COH_OK;
    while (!fills(&facts, below))
        below--;
    while (!fills(&facts, above))
        above++;
    if (facts.pair_ranks > 1)
        snprintf(links, sizeof(links), "pairs of %" PRId32 " and ", facts.pair_ranks);
    if (below > 1)
        snprintf(both, sizeof(both), "%" PRId32 " or %" PRId32, below, above);
    else
        snprintf(both, sizeof(both), "%" PRId32, above);
    return cli_fail(
        COH_ERR_ARGUMENT,
        "%s%s has %snodes of %" PRId32 " ranks, and %" PRId32 " ranks leave one of them in part: "
        "give --ranks %s%s",
        options->topology ? "--topology " : "the profile ",
        options->topology ? options->topology : facts.name, links, facts.node_ranks, ranks, both,
        options->command == CLI_PLAN ? ", or set other sizes (--node-ranks, --pair-ranks)" : "");
}

coh_status cli_topology_check_ranks(const cli_options *options, const coh_profile *profile,
                                    int32_t ranks)
{
    coh_plan_options sizes = { .ranks = { { ranks } } };
    const int is_given =
        cli_given(options, CLI_FLAG_NODE_RANKS) || cli_given(options, CLI_FLAG_PAIR_RANKS);
    if (ranks == 1 || options->launch) /* a world has whole nodes */
        return COH_OK;
    if (!is_given)
        return check_filled(options, profile, ranks);
    cli_topology_sizes(options, profile, &sizes);
    const int32_t node = sizes.node_ranks > 0 ? sizes.node_ranks : ranks;
    const int32_t pair = sizes.pair_ranks > 0 ? sizes.pair_ranks : 1;
    const int is_flag = cli_given(options, CLI_FLAG_NODE_RANKS);
    if (ranks % node != 0)
        return cli_fail(COH_ERR_ARGUMENT,
                        "%s %" PRId32 " %s the %" PRId32 " ranks: give a divisor by --node-ranks%s",
                        is_flag ? "--node-ranks" : "nodes of", node,
                        is_flag ? "does not divide" : "do not divide", ranks,
                        is_flag ? ", or leave it out for one node" : "");
    if (node % pair != 0)
        return cli_fail(
            COH_ERR_ARGUMENT,
            "%s %" PRId32 " %s the %" PRId32
            " ranks of a node: give a divisor by --pair-ranks, 1 for no pairs",
            cli_given(options, CLI_FLAG_PAIR_RANKS) ? "--pair-ranks" : "pairs of", pair,
            cli_given(options, CLI_FLAG_PAIR_RANKS) ? "does not divide" : "do not divide", node);
    return COH_OK;
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

/* Were the plan's sizes given by flags? The constants of "built-in, 4 threads" have none, and the
 * run's own profile would have given them to the run, too. */
static int was_sized_by_flags(const coh_plan_file *file, const coh_profile *profile)
{
    static const char built_in[] = "built-in, ";
    coh_profile_summary facts = { .struct_bytes = sizeof(facts) };
    if (strncmp(file->profile_name, built_in, sizeof(built_in) - 1) == 0 &&
        !strchr(file->profile_name + sizeof(built_in) - 1, ',')) /* no entry is replaced */
        return 1;
    return profile && coh_profile_summarize(profile, &facts) == COH_OK &&
           strcmp(file->profile_name, facts.name) == 0;
}

coh_status cli_topology_take_planned(const cli_options *options, const char *path,
                                     const coh_plan_file *file, coh_plan_options *plan_options)
{
    if (options->launch && options->launch->rank > 0)
        plan_options->pair_ranks = file->pair_ranks;
    const int32_t ranks = coh_fold_shape_replicas(&file->ranks);
    const int32_t pair = file->pair_ranks > 0 ? file->pair_ranks : 1;
    const int32_t node = file->node_ranks > 0 ? file->node_ranks : ranks;
    const int32_t our_pair = plan_options->pair_ranks > 0 ? plan_options->pair_ranks : 1;
    const int32_t our_node = plan_options->node_ranks > 0 ? plan_options->node_ranks : ranks;
    if (ranks != coh_fold_shape_replicas(&plan_options->ranks) ||
        (pair == our_pair && node == our_node))
        return COH_OK;
    if (options->launch)
        return cli_fail(COH_ERR_ARGUMENT,
                        "the plan %s is for pairs of %" PRId32 " and nodes of %" PRId32
                        " ranks, and the launcher's processes lie in nodes of %" PRId32
                        ", in pairs of %" PRId32 " by this run's profile: plan again with "
                        "--node-ranks %" PRId32 " --pair-ranks %" PRId32,
                        path, pair, node, our_node, our_pair, our_node, our_pair);
    return cli_fail(COH_ERR_ARGUMENT,
                    "the plan %s is for pairs of %" PRId32 " and nodes of %" PRId32
                    " ranks, and this run has pairs of %" PRId32 " and nodes of %" PRId32 ": %s",
                    path, pair, node, our_pair, our_node,
                    was_sized_by_flags(file, plan_options->profile)
                        ? "plan again without --node-ranks and --pair-ranks, which no run has"
                        : "give the --profile that the plan was made with, or plan again");
}

void cli_topology_say_unmeasured(const cli_options *options, const coh_plan *plan,
                                 const coh_plan_summary *summary)
{
    coh_profile_summary facts = { .struct_bytes = sizeof(facts) };
    if (coh_profile_summarize(coh_plan_profile(plan), &facts) != COH_OK)
        return;
    const int has_node = facts.comm0_bytes_per_s > 0, has_network = facts.comm1_bytes_per_s > 0;
    const int are_threads = !facts.is_gpu && options->launch == NULL;
    if (summary->link_bytes[COH_LANE_COMM0] > 0 && !has_node && !are_threads)
        cli_note_choice("note: profile %s says nothing of links between ranks: exchanges are priced"
                        " as copies in memory, and are slower in truth; %s",
                        facts.name,
                        facts.is_gpu ? "cohobate plan --topology NAME has rates"
                                     : "cohobate profile, started with mpirun as this run is, "
                                       "measures them");
    else if (summary->link_bytes[COH_LANE_COMM1] > 0 && !has_network)
        cli_note_choice("note: profile %s says nothing of links between nodes: exchanges over them "
                        "are priced as %s, and are slower in truth; --profile NAME,network=RATE "
                        "gives their rate",
                        facts.name, has_node ? "those within a node" : "copies in memory");
}
