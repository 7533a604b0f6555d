/* Adds the table of links to the screen of a plan. Next: screen.c, its caller. */
#include "cli/links.h"

#include "cli/screen.h"

/* Adds the time of the host lane, which moves nothing over a link. */
static void add_updates(const coh_plan_summary *summary, cli_line *line)
{
    enum { HOST = 5 }; /* index of the lane, plan.h */
    cli_line_add(
        line, "updates       %s of parameters on the host lane: busy %s, compute waits for it %s\n",
        cli_size(summary->host_update_bytes).at, cli_time((double)summary->busy_ns[HOST] * 1e-9).at,
        cli_time((double)summary->exposed_ns[HOST] * 1e-9).at);
}

void cli_links_add(const cli_job *job, cli_line *line)
{
    const coh_plan_summary *summary = &job->summary;
    int any = 0;
    for (int lane = COH_LANE_H2D; lane < COH_LANE_COUNT; lane++) {
        if (!summary->link_bytes[lane])
            continue;
        if (!any++)
            cli_line_add(line, "\n%-13s %12s %12s %12s %25s\n", "links", "a step", "least", "busy",
                         "compute waits for it");
        cli_line_add(line, "%-13s %12s %12s %12s %25s\n", coh_lane_name(lane),
                     cli_size(summary->link_bytes[lane]).at,
                     cli_size(summary->least_link_bytes[lane]).at,
                     cli_time((double)summary->busy_ns[lane] * 1e-9).at,
                     cli_time((double)summary->exposed_ns[lane] * 1e-9).at);
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
