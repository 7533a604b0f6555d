/* topology.h - the flags of how ranks are linked: --topology, --pair-ranks, --node-ranks.
 *
 * A topology is part of a profile: how many ranks a pair and a node have, and their links. So
 * --topology T is --profile T, or with another profile P its entry: --profile P,topology=T. */
#ifndef COH_CLI_TOPOLOGY_H
#define COH_CLI_TOPOLOGY_H

#include "cli/options.h"
#include "cohobate/plan.h"

/* Puts --topology into options->profile. The text lives as long as the process. */
coh_status cli_topology_take(cli_options *options);

/* Sets the ranks of a pair and of a node: those of the flags, else of the profile (NULL: none). */
void cli_topology_sizes(const cli_options *options, const coh_profile *profile,
                        coh_plan_options *plan_options);

/* Checks that the ranks fill pairs and nodes, in the words of the profile's topology or of the
 * flags. Fails: COH_ERR_ARGUMENT with the next numbers that do. */
coh_status cli_topology_check_ranks(const cli_options *options, const coh_profile *profile,
                                    int32_t ranks);

/* Checks a replay: a plan's ranks lie in its own pairs and nodes, whatever profile prices it.
 * Fails: COH_ERR_ARGUMENT: the profile has others. */
coh_status cli_topology_check(const coh_profile *profile, const coh_plan_options *plan_options);

/* Takes the plan file at `path` for a run. A launched rank above 0 has rank 0's plan and gets its
 * pairs, whatever profile it has; any other run must have the plan's pairs and nodes. Another
 * number of ranks is left to the reader. Fails: COH_ERR_ARGUMENT: the launcher's processes or the
 * profile have others. */
coh_status cli_topology_take_planned(const cli_options *options, const char *path,
                                     const coh_plan_file *file, coh_plan_options *plan_options);

/* Prints a note if the plan exchanges over links whose rate its profile lacks. Ranks that are
 * threads of the host device need none: their exchanges are copies in memory, as they are priced.
 */
void cli_topology_say_unmeasured(const cli_options *options, const coh_plan *plan,
                                 const coh_plan_summary *summary);

#endif
