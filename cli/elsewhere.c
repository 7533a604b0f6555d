/* Refuses a flag of other commands with what to do instead. The one idea: a command that reads a
 * plan file names the command that makes such a file with the flag, or what it has in place of a
 * table. Next: options.c calls this. */
#include "cli/elsewhere.h"

#include <stdio.h>
#include <string.h>

const cli_flag_row *cli_elsewhere_find(cli_command command, const char *word)
{
    const cli_flag_row *found = NULL;
    if (word[0] != '-' || word[1] != '-')
        return NULL;
    const char *name = word + 2;
    const size_t length = strcspn(name, "=");
    for (int f = 0; f < CLI_FLAG_COUNT; f++) {
        const cli_flag_row *row = &cli_flag_table[f];
        if (strlen(row->name) != length || strncmp(row->name, name, length) != 0)
            continue;
        if (row->commands >> command & 1)
            return NULL;
        found = row;
    }
    return found;
}

/* The commands of all flags of the row's name: some commands take another value for it. */
static uint32_t owners_of(const cli_flag_row *row)
{
    uint32_t owners = 0;
    for (int f = 0; f < CLI_FLAG_COUNT; f++)
        if (strcmp(cli_flag_table[f].name, row->name) == 0)
            owners |= cli_flag_table[f].commands;
    return owners;
}

/* Does plan print a table for the flag, and write no plan file? */
static int compares_plans(const cli_flag_row *row)
{
    return row == &cli_flag_table[CLI_FLAG_WHAT_IF] || row == &cli_flag_table[CLI_FLAG_SWEEP] ||
           row == &cli_flag_table[CLI_FLAG_MAX];
}

/* Names what a command that reads a plan file has in place of a table. */
static coh_status refuse_table(cli_command command, const cli_flag_row *row)
{
    const char *name = cli_command_name(command);
    if (row == &cli_flag_table[CLI_FLAG_MAX])
        return cli_fail(COH_ERR_ARGUMENT,
                        "--max is not a flag of cohobate %s, but of plan, which then chooses the "
                        "model and reads no plan: run cohobate plan --max FAMILY",
                        name);
    return cli_fail(COH_ERR_ARGUMENT,
                    "--%s is not a flag of cohobate %s, but of plan, which searches a new plan for "
                    "each row: to price this plan with other entries, give cohobate %s%s "
                    "--profile NAME,ENTRY=VALUE, as --profile built-in,disk-read=2x (cohobate "
                    "inspect PLAN prints the plan's profile)",
                    row->name, name, name, command == CLI_EXPLAIN ? " PLAN OPERATOR" : " PLAN");
}

coh_status cli_elsewhere_refuse(cli_command command, const cli_flag_row *row)
{
    char owners[256] = "";
    size_t used = 0;
    for (int c = 0; c < CLI_COMMAND_COUNT && used < sizeof(owners); c++)
        if (owners_of(row) >> c & 1)
            used += (size_t)snprintf(owners + used, sizeof(owners) - used, "%s%s", used ? ", " : "",
                                     cli_command_name((cli_command)c));
    const char *name = cli_command_name(command);
    const int makes_plans = owners_of(row) >> CLI_PLAN & 1 &&
                            row != &cli_flag_table[CLI_FLAG_OUTPUT] &&
                            row != &cli_flag_table[CLI_FLAG_STEPS];
    if (cli_command_operand(command) == CLI_OPERAND_PLAN && compares_plans(row))
        return refuse_table(command, row);
    if (cli_command_operand(command) == CLI_OPERAND_PLAN && makes_plans)
        return cli_fail(COH_ERR_ARGUMENT,
                        "--%s is not a flag of cohobate %s, but of %s: a plan is made with it, so "
                        "write one with cohobate plan MODEL --%s ... -o plan.json, and give %s "
                        "that file",
                        row->name, name, owners, row->name, name);
    return cli_fail(COH_ERR_ARGUMENT,
                    "--%s is not a flag of cohobate %s, but of %s: see cohobate %s --help",
                    row->name, name, owners, name);
}
