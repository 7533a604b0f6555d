/* recorded.h - the command of a run, as its record has it: run.json keeps the arguments. */
#ifndef COH_CLI_RECORDED_H
#define COH_CLI_RECORDED_H

#include "cli/options.h"
#include "report/run.h"

typedef struct cli_recorded {
    cli_options options; /* points into `arguments` */
    char *arguments[257];
    int argument_count;
} cli_recorded;

/* Reads the command of a run. Returns NULL if it is not known, is not `train`, or this version does
 * not accept it. Arguments that the record has cut are read as they are there. Keeps the last
 * error's text. The caller closes the result. */
cli_recorded *cli_recorded_open(const report_run *run);
void cli_recorded_close(cli_recorded *recorded); /* accepts NULL */

#endif
