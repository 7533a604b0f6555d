/* cohobate doctor: prints what this machine offers and what is missing. The one idea: the library
 * lists findings, and this command only prints them as text or JSON. Next: cohobate/machine.h. */
#include <stdio.h>

#include "cli/commands.h"
#include "cli/disks.h"

enum { FINDINGS_MOST = 96 }; /* a machine with sixteen GPUs and eight drives has 71 */

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

coh_status cli_doctor(const cli_options *options)
{
    coh_finding findings[FINDINGS_MOST];
    size_t count = 0;
    cli_disks disks;
    cli_disks_list(options, &disks);
    if (disks.count == 0) /* not given: 0 bytes may be written there to measure it */
        disks = (cli_disks){ .of = { { .folder = "." } }, .count = 1 };
    CLI_TRY(coh_machine_examine(disks.of, disks.count, findings, FINDINGS_MOST, &count));
    if (options->json)
        print_json(findings, count);
    else
        print_table(findings, count);
    return COH_OK;
}
