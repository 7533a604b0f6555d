/* cohobate doctor: prints what this machine offers and what is missing. The one idea: the library
 * lists findings, and this command only prints them as text or JSON. Next: cohobate/machine.h. */
#include <stdio.h>

#include "cli/commands.h"
#include "cli/disks.h"
#include "cli/launch.h"

/* A machine with sixteen GPUs and eight drives has 71. */
enum { FINDINGS_MOST = 96, WORLD_FINDINGS_MOST = 8 };

static const char *const levels[] = { "ok", "note", "warn" };

static void print_json(const coh_finding *findings, size_t count)
{
    cli_line line;
    cli_line_clear(&line);
    cli_line_add_json(&line, "{'version': %s, 'findings': [", coh_version());
    for (size_t i = 0; i < count; i++) {
        const coh_finding *finding = &findings[i];
        cli_line_add_json(&line,
                          "{'subject': %s, 'level': %s, 'found': %s, 'cost': %s, 'remedy': %s}",
                          finding->subject, levels[finding->level], finding->found, finding->cost,
                          finding->remedy);
        cli_line_flush(&line);
    }
    cli_line_add_json(&line, "]}");
    cli_print("%s", line.text);
}

static void print_table(const coh_finding *findings, size_t count)
{
    printf("cohobate %s\n", coh_version());
    for (size_t i = 0; i < count; i++) {
        const coh_finding *finding = &findings[i];
        printf("%-5s %-16s %s\n", finding->level == COH_FINDING_OK ? "" : levels[finding->level],
               finding->subject, finding->found);
        if (finding->cost[0])
            printf("%-22s costs: %s\n", "", finding->cost);
        if (finding->remedy[0])
            printf("%-22s to do: %s\n", "", finding->remedy);
    }
}

static coh_status examine_machine(const cli_options *options, coh_finding *findings,
                                  size_t *out_count)
{
    cli_disks disks;
    cli_disks_list(options, &disks);
    if (disks.count == 0) /* not given: 0 bytes may be written there to measure it */
        disks = (cli_disks){ .of = { { .folder = "." } }, .count = 1 };
    return coh_machine_examine(disks.of, disks.count, findings, FINDINGS_MOST, out_count);
}

/* Examines what connects the launcher's processes, as the ranks of a run: on a GPU each, if this
 * machine has as many. */
static coh_status examine_world(cli_launch *launch, coh_finding *findings, size_t *out_count)
{
    char device[CLI_DEVICE_BYTES];
    coh_device_summary gpu = { .struct_bytes = sizeof(gpu) };
    const int32_t local_rank = launch->rank % launch->local_count;
    (void)cli_launch_device(launch->world, "cuda", local_rank, device);
    const int has_gpu = coh_device_summarize(device, &gpu) == COH_OK;
    CLI_TRY(cli_launch_agree(launch, NULL, 0));
    CLI_TRY(cli_launch_find_pairs(launch, has_gpu ? device : "host"));
    return coh_machine_examine_world(launch->world, findings, WORLD_FINDINGS_MOST, out_count);
}

coh_status cli_doctor(const cli_options *options)
{
    coh_finding findings[FINDINGS_MOST + WORLD_FINDINGS_MOST];
    size_t count = 0, more = 0;
    if (!options->launch || options->launch->rank == 0)
        CLI_TRY(examine_machine(options, findings, &count));
    if (options->launch)
        CLI_TRY(examine_world(options->launch, findings + count, &more));
    count += more;
    if (options->launch && options->launch->rank > 0)
        return COH_OK;
    if (options->json)
        print_json(findings, count);
    else
        print_table(findings, count);
    return COH_OK;
}
