/* cohobate simulate: predicts the time of a plan's program with another profile. Next: replay.c
 * rebuilds the plan. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/replay.h"
#include "cli/screen.h"

/* The longest profile name printed on the same line; a longer one gets a separate line. */
#define NAME_BESIDE 36

static coh_status print(cli_replay *replay)
{
    cli_job *job = &replay->job;
    uint64_t in_memory_bytes;
    cli_line line;
    CLI_TRY(cli_job_rehearse(job));
    CLI_TRY(coh_plan_in_memory_bytes(job->graph, &job->plan_options, &in_memory_bytes));
    if (replay->options.json)
        return cli_plan_json(job, in_memory_bytes);
    cli_line_clear(&line);
    CLI_TRY(cli_screen(job, in_memory_bytes, NULL, &line));
    const char *name = replay->file.profile_name;
    printf("made:   program %016" PRIx64 ", %s a step by the profile%s%s\n%s",
           replay->file.program_hash, cli_time((double)replay->file.step_ns * 1e-9).at,
           strlen(name) > NAME_BESIDE ? "\n        " : " ", name, line.text);
    return COH_OK;
}

coh_status cli_simulate(const cli_options *options)
{
    cli_replay *replay = calloc(1, sizeof(*replay));
    if (!replay)
        return cli_fail(COH_ERR_MEMORY, "no memory for a plan's note");
    coh_status status = cli_replay_open(options, replay);
    if (status == COH_OK) {
        status = print(replay);
        cli_replay_close(replay);
    }
    free(replay);
    return status;
}
