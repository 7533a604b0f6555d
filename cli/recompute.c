/* Reports the cost when most of the forward pass is recomputed in backward, and finds the memory
 * that would avoid it: halves the range between the budget and the bytes of a run in memory, or the
 * memory of the GPU, with a plan of a quick search at each size. Next: screen.c prints it. */
#include "cli/screen.h"

#define GIB ((uint64_t)1 << 30)
#define MIB ((uint64_t)1 << 20)

/* Number of plans made to find the memory, and the longest program for which they are made: each
 * takes about as long as the job's own plan. */
enum { TRIALS = 2, TRIAL_LINES_MOST = 20000 };

/* Is recompute requested by a flag? More memory does not avoid it then. */
static int is_asked_for(const cli_job *job)
{
    if (job->plan_options.recompute == COH_RECOMPUTE_ALL)
        return 1;
    for (int32_t i = 0; i < job->plan_options.pin_count; i++)
        if (job->plan_options.pins[i].place == COH_PIN_RECOMPUTE)
            return 1;
    return 0;
}

/* Recompute is large above this part of the forward pass. */
#define LARGE 0.5

static double of_forward(const coh_plan_summary *summary)
{
    if (summary->recompute_ns == 0)
        return 0;
    return (double)summary->recompute_ns / (double)summary->forward_ns;
}

/* Plans with `bytes` of device memory; 1 in *out_of_forward if there is no such plan. */
static coh_status try_bytes(const cli_job *job, uint64_t bytes, double *out_of_forward)
{
    coh_plan_options options = job->plan_options;
    coh_plan_summary summary = { .struct_bytes = sizeof(summary) };
    *out_of_forward = 1;
    options.device_memory_bytes = bytes;
    options.earlier_count = 0;
    options.search = COH_SEARCH_QUICK;
    const coh_status status = coh_plan_estimate(job->graph, &options, &summary);
    if (status == COH_ERR_FULL || status == COH_ERR_ARGUMENT)
        return COH_OK; /* more than this machine allows, or a program that is too long */
    if (status == COH_OK)
        *out_of_forward = of_forward(&summary);
    return status;
}

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
    return bytes / unit * unit + (bytes % unit ? unit : 0);
}

/* Returns the memory of the profile's GPU; UINT64_MAX if it is unknown or the host computes. */
static uint64_t room_of(const cli_job *job)
{
    coh_profile_summary facts = { .struct_bytes = sizeof(facts) };
    if (job->plan_options.profile == NULL ||
        coh_profile_summarize(job->plan_options.profile, &facts) != COH_OK || !facts.is_gpu ||
        facts.device_bytes == 0)
        return UINT64_MAX;
    return facts.device_bytes;
}

/* Halves the range from the budget, which is too small, to out->end_bytes, which is enough. */
static coh_status find_end(const cli_job *job, cli_recompute *out)
{
    const uint64_t unit = out->end_bytes >= 16 * GIB ? GIB : MIB;
    uint64_t low = job->plan_options.device_memory_bytes;
    for (int i = 0; i < TRIALS; i++) {
        double share = 1;
        const uint64_t bytes = round_up(low + (out->end_bytes - low) / 2, unit);
        if (bytes >= out->end_bytes)
            break;
        CLI_TRY(try_bytes(job, bytes, &share));
        if (share <= LARGE) {
            out->end_bytes = bytes;
            out->end_of_forward = share;
            out->is_planned = 1;
        } else {
            low = bytes;
        }
    }
    return COH_OK;
}

coh_status cli_recompute_find(const cli_job *job, uint64_t in_memory_bytes,
                              cli_recompute *out_recompute)
{
    const coh_plan_summary *summary = &job->summary;
    const double ns = (double)summary->recompute_ns;
    const uint64_t budget = job->plan_options.device_memory_bytes;
    const uint64_t most = round_up(in_memory_bytes, MIB), room = room_of(job);
    cli_recompute found = { .seconds = ns * 1e-9, .of_forward = of_forward(summary) };
    if (summary->recompute_ns > 0) {
        found.of_compute = ns / (double)summary->bounds_ns[COH_PLAN_BOUND_COMPUTE];
        found.of_step = ns / (double)summary->step_ns;
    }
    found.is_large = found.of_forward > LARGE;
    *out_recompute = found;
    out_recompute->is_asked_for = is_asked_for(job);
    if (!found.is_large || out_recompute->is_asked_for || budget >= (most < room ? most : room) ||
        summary->instruction_count > TRIAL_LINES_MOST)
        return COH_OK;
    const int is_searched = summary->smallest_device_bytes > 0; /* not from a file */
    if (most > room && !is_searched)
        return COH_OK;
    if (most > room) {
        double share = 1;
        CLI_TRY(try_bytes(job, room, &share));
        if (share > LARGE)
            return COH_OK;
        out_recompute->end_of_forward = share;
        out_recompute->is_planned = 1;
    }
    out_recompute->end_bytes = most < room ? most : room;
    return is_searched ? find_end(job, out_recompute) : COH_OK;
}

void cli_recompute_add(const cli_recompute *recompute, cli_line *line)
{
    if (!recompute->is_large)
        return;
    cli_line_add(line,
                 "repeat: %.0f %% of the forward pass runs again (recompute: %.1f %% of compute "
                 "time, %.1f %% of the step)",
                 100 * recompute->of_forward, 100 * recompute->of_compute,
                 100 * recompute->of_step);
    if (recompute->end_bytes > 0)
        cli_line_add(line, "; with --device-memory %s %s%.0f %% would\n",
                     cli_size_enough(recompute->end_bytes).at,
                     recompute->is_planned ? "" : "(everything in memory) ",
                     100 * recompute->end_of_forward);
    else
        cli_line_add(line, "%s\n",
                     recompute->is_asked_for ? "; --recompute or a pin asks for it" : "");
}
