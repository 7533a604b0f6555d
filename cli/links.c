/* Adds the table of links to the screen of a plan. Next: screen.c, its caller. */
#include "cli/links.h"

#include "cli/screen.h"

/* Adds the time of the host lane, which moves nothing over a link. */
static void add_updates(const coh_plan_summary *summary, cli_line *line)
{
    cli_line_add(
        line, "updates       %s of parameters on the host lane: busy %s, compute waits for it %s\n",
        cli_size(summary->host_update_bytes).at,
        cli_time((double)summary->busy_ns[COH_LANE_HOST] * 1e-9).at,
        cli_time((double)summary->exposed_ns[COH_LANE_HOST] * 1e-9).at);
}

/* The lanes that a limit is about, as bits; 0: it is about no link. */
static unsigned lanes_of(coh_plan_bound bound)
{
    switch (bound) {
    case COH_PLAN_BOUND_H2D:
        return 1u << COH_LANE_H2D;
    case COH_PLAN_BOUND_D2H:
        return 1u << COH_LANE_D2H;
    case COH_PLAN_BOUND_LINK:
        return 1u << COH_LANE_H2D | 1u << COH_LANE_D2H;
    case COH_PLAN_BOUND_READ:
        return 1u << COH_LANE_READ;
    case COH_PLAN_BOUND_WRITE:
        return 1u << COH_LANE_WRITE;
    case COH_PLAN_BOUND_DRIVE:
        return 1u << COH_LANE_READ | 1u << COH_LANE_WRITE;
    case COH_PLAN_BOUND_HOST:
        return 1u << COH_LANE_HOST;
    case COH_PLAN_BOUND_COMPUTE:
    case COH_PLAN_BOUND_CORES:
    case COH_PLAN_BOUND_DRAM:
    case COH_PLAN_BOUND_TURNAROUND:
    case COH_PLAN_BOUND_HOST_WINDOW:
    case COH_PLAN_BOUND_UPDATE_PHASE:
    case COH_PLAN_BOUND_PHASE:
    case COH_PLAN_BOUND_COUNT:
        break;
    }
    return 0;
}

/* The lane for which compute waits longest, if that lane itself waits for the links of the limit: a
 * faster one would then gain little. A wait counts for the last lane of a chain, and this wait is
 * longer than all work of its lane. Else the compute lane. */
static int find_behind(const coh_plan_summary *summary)
{
    const unsigned limit = lanes_of(summary->binding);
    int longest = COH_LANE_COMPUTE;
    for (int lane = COH_LANE_H2D; lane < COH_LANE_COUNT; lane++)
        if (longest == COH_LANE_COMPUTE || summary->exposed_ns[lane] > summary->exposed_ns[longest])
            longest = lane;
    const int is_behind = limit != 0 && !(limit >> longest & 1) &&
                          summary->exposed_ns[longest] > summary->busy_ns[longest] &&
                          cli_limiting_exchanges(summary) == COH_LANE_COMPUTE;
    return is_behind ? longest : COH_LANE_COMPUTE;
}

void cli_links_add(const cli_job *job, cli_line *line)
{
    const coh_plan_summary *summary = &job->summary;
    const int behind = find_behind(summary);
    int any = 0;
    for (int lane = COH_LANE_H2D; lane < COH_LANE_COUNT; lane++) {
        if (!summary->link_bytes[lane])
            continue;
        if (!any++)
            cli_line_add(line, "\n%-13s %12s %12s %12s %25s\n", "links", "a step", "least", "busy",
                         "compute waits for it");
        cli_line_add(line, "%-13s %12s %12s %12s %25s%s\n", coh_lane_name(lane),
                     cli_size(summary->link_bytes[lane]).at,
                     cli_size(summary->least_link_bytes[lane]).at,
                     cli_time((double)summary->busy_ns[lane] * 1e-9).at,
                     cli_time((double)summary->exposed_ns[lane] * 1e-9).at,
                     lane == behind ? "; it waits, see limit" : "");
    }
    if (!any)
        cli_line_add(line, "\nlinks         nothing moves\n");
    if (summary->host_update_bytes)
        add_updates(summary, line);
    if (job->recipe.speculates && !summary->kept_bytes)
        cli_line_add(line, "clipping      exact: to speculate would not be faster here\n");
    if (summary->kept_bytes)
        cli_line_add(line,
                     "clipping      speculates: the drive keeps %s of the step before; a step "
                     "that is clipped runs twice\n",
                     cli_size(summary->kept_bytes).at);
}
