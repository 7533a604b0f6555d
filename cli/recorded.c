/* Reads the command that a run's record has. The one idea: it is parsed as if it were typed again.
 * Next: cmd_report.c plans it again, watch.c continues it. */
#include "cli/recorded.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/say.h"

/* Copies the arguments after the program's name. Returns 1 if these are all. */
static int copy_arguments(const report_run *run, cli_recorded *recorded)
{
    enum { MOST = sizeof(recorded->arguments) / sizeof(recorded->arguments[0]) - 1 };
    const char *word;
    while ((word = report_run_argument(run, (size_t)recorded->argument_count + 1)) != NULL) {
        char *copy = recorded->argument_count < MOST ? strdup(word) : NULL;
        if (!copy)
            return 0;
        recorded->arguments[recorded->argument_count++] = copy;
    }
    return 1;
}

cli_recorded *cli_recorded_open(const report_run *run)
{
    char kept[1024];
    int help = 0;
    const char *name = report_run_argument(run, 1);
    cli_recorded *recorded =
        name && strcmp(name, "train") == 0 ? calloc(1, sizeof(*recorded)) : NULL;
    if (!recorded)
        return NULL;
    snprintf(kept, sizeof(kept), "%s", coh_last_error());
    const coh_status status =
        copy_arguments(run, recorded)
            ? cli_options_parse(CLI_TRAIN, recorded->argument_count, recorded->arguments,
                                &recorded->options, &help)
            : COH_ERR_MEMORY;
    if (status == COH_OK && !help)
        return recorded;
    cli_recorded_close(recorded);
    (void)cli_fail(status, "%s", kept);
    return NULL;
}

void cli_recorded_close(cli_recorded *recorded)
{
    if (!recorded)
        return;
    while (recorded->argument_count > 0)
        free(recorded->arguments[--recorded->argument_count]);
    free(recorded);
}
