/* Writes the completions of bash, zsh and fish. The one idea: the form of a flag's value in
 * flags.def (FILE|DIR, f32|bf16) says what can be completed: words in small letters are offered as
 * they are, names of paths become files. Next: manual.c calls it when the project is built. */
#include <stdio.h>
#include <string.h>

#include "cli/help.h"
#include "cli/manual.h"
#include "cohobate/cohobate.h"

/* ---- the table, as the shells need it ---- */

static int is_shown(const cli_flag_row *row, int command)
{
    return !row->hidden && (row->commands >> command & 1);
}

/* Is the value of the flag a path? */
static int takes_path(const cli_flag_row *row)
{
    return row->takes && (strstr(row->takes, "FILE") || strstr(row->takes, "DIR") ||
                          strstr(row->takes, "PATH") || strcmp(row->takes, "OUT") == 0);
}

/* Is the value the name of a shipped profile, or a file? */
static int takes_profile(const cli_flag_row *row)
{
    return row->takes && strncmp(row->takes, "NAME|FILE[", 10) == 0;
}

static void put_profiles(const char *separator)
{
    const char *name;
    for (size_t i = 0; (name = coh_profile_shipped(i)) != NULL; i++)
        printf("%s%s", i > 0 ? separator : "", name);
}

/* Prints the words that may be typed as the flag's value: those of `takes` in small letters (f32,
 * not SIZE), or the shipped profiles. */
static void put_words(const cli_flag_row *row, const char *separator)
{
    const char *between = "", *takes = row->takes;
    if (takes_profile(row))
        put_profiles(separator);
    while (takes && *takes) {
        const size_t bytes = strcspn(takes, "|");
        const int is_word = strcspn(takes, "ABCDEFGHIJKLMNOPQRSTUVWXYZ[") >= bytes;
        if (is_word && strncmp(takes, "-", bytes) != 0) {
            printf("%s%.*s", between, (int)bytes, takes);
            between = separator;
        }
        takes += bytes + (takes[bytes] == '|');
    }
}

static void put_presets(const char *separator)
{
    const char *name;
    for (int32_t i = 0; (name = coh_model_preset_name(i)) != NULL; i++)
        printf("%s%s", i > 0 ? separator : "", name);
}

static void put_commands(const char *separator)
{
    for (int c = 0; c < CLI_COMMAND_COUNT; c++)
        printf("%s%s", c > 0 ? separator : "", cli_command_name((cli_command)c));
}

/* Prints a help text up to its first clause for a line of a menu inside apostrophes: `escaped`
 * characters stand after a backslash, an apostrophe is written as `apostrophe`, and other quotes
 * are left out. */
static void put_menu(const char *text, const char *escaped, const char *apostrophe)
{
    size_t bytes = strcspn(text, ";(");
    for (const char *colon = text; (colon = strstr(colon, ": ")) != NULL; colon++)
        if ((size_t)(colon - text) < bytes && colon - text > 12)
            bytes = (size_t)(colon - text);
    while (bytes > 0 && text[bytes - 1] == ' ')
        bytes--;
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '\'')
            printf("%s", apostrophe);
        if (strchr("'\"`$\\", text[i]))
            continue;
        if (strchr(escaped, text[i]))
            putchar('\\');
        putchar(text[i]);
    }
}

#define ZSH_APOSTROPHE  "'\\''"
#define FISH_APOSTROPHE "\\'"

/* ---- bash ---- */

static void bash_patterns(const cli_flag_row *row)
{
    const char *between = "    ";
    for (int c = 0; c < CLI_COMMAND_COUNT; c++) {
        if (!is_shown(row, c))
            continue;
        printf("%s%s:--%s", between, cli_command_name((cli_command)c), row->name);
        between = "|";
        if (row->short_name)
            printf("|%s:-%c", cli_command_name((cli_command)c), row->short_name);
    }
    printf(") words='");
}

static void bash_value(const cli_flag_row *row)
{
    if (row->hidden || !row->takes)
        return;
    bash_patterns(row);
    put_words(row, " ");
    printf("' paths=%d ;;\n", takes_path(row) != 0);
}

static void bash_flags(int command)
{
    printf("    %s) words='", cli_command_name((cli_command)command));
    for (int f = 0; f < CLI_FLAG_COUNT; f++)
        if (is_shown(&cli_flag_table[f], command))
            printf("--%s ", cli_flag_table[f].name);
    printf("--help' ;;\n");
}

static void bash_presets(void)
{
    const char *between = "    ";
    for (int c = 0; c < CLI_COMMAND_COUNT; c++) {
        if (cli_command_operand((cli_command)c) != CLI_OPERAND_MODEL)
            continue;
        printf("%s%s", between, cli_command_name((cli_command)c));
        between = "|";
    }
    printf(") words='");
    put_presets(" ");
    printf("' ;;\n");
}

static void bash(void)
{
    printf("# Completions of cohobate for bash, made from its table of flags.\n"
           "_cohobate() {\n"
           "    local now=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
           "    local command=${COMP_WORDS[1]} words='' paths=0\n"
           "    COMPREPLY=()\n"
           "    if [ \"$COMP_CWORD\" = 1 ]; then\n"
           "        words='");
    put_commands(" ");
    printf(" --help --version'\n"
           "        mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$now\")\n"
           "        return\n"
           "    fi\n"
           "    case $command:$before in\n");
    for (int f = 0; f < CLI_FLAG_COUNT; f++)
        bash_value(&cli_flag_table[f]);
    printf("    *)\n"
           "    if [[ $now == -* ]]; then\n"
           "    case $command in\n");
    for (int c = 0; c < CLI_COMMAND_COUNT; c++)
        bash_flags(c);
    printf("    esac\n"
           "    else\n"
           "    paths=1\n"
           "    case $command in\n");
    bash_presets();
    printf("    esac\n"
           "    fi ;;\n"
           "    esac\n"
           "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$now\"\n"
           "        [ \"$paths\" = 0 ] || compgen -f -- \"$now\")\n"
           "}\n"
           "complete -o filenames -F _cohobate cohobate\n");
}

/* ---- zsh ---- */

static void zsh_flag(const cli_flag_row *row, const char *dashes, const char *name)
{
    printf("        '*%s%s[", dashes, name);
    put_menu(row->help, "[]:", ZSH_APOSTROPHE);
    printf("]");
    if (row->takes) {
        printf(":");
        put_menu(row->takes, "[]:", ZSH_APOSTROPHE);
        printf(":");
        if (takes_profile(row)) {
            printf(" _alternative \"profiles:profile:(");
            put_words(row, " ");
            printf(")\" \"files:file:_files\"");
        } else if (takes_path(row)) {
            printf("_files");
        } else {
            printf("(");
            put_words(row, " ");
            printf(")");
        }
    }
    printf("' \\\n");
}

static void zsh_command(int command)
{
    const cli_operand operand = cli_command_operand((cli_command)command);
    printf("    (%s) _arguments \\\n", cli_command_name((cli_command)command));
    for (int f = 0; f < CLI_FLAG_COUNT; f++) {
        const cli_flag_row *row = &cli_flag_table[f];
        if (!is_shown(row, command))
            continue;
        zsh_flag(row, "--", row->name);
        if (row->short_name)
            zsh_flag(row, "-", (char[]){ row->short_name, '\0' });
    }
    printf("        '(-h --help)'{-h,--help}'[print all flags]'");
    if (operand == CLI_OPERAND_MODEL) {
        printf(" \\\n        '*:model:_alternative \"presets:preset:(");
        put_presets(" ");
        printf(")\" \"files:folder:_files\"'");
    } else if (operand != CLI_OPERAND_NONE) {
        printf(" \\\n        '*:path:_files'");
    }
    printf(" ;;\n");
}

static void zsh(void)
{
    printf("#compdef cohobate\n"
           "# Completions of cohobate for zsh, made from its table of flags.\n"
           "_cohobate() {\n"
           "    local -a commands=(\n");
    for (int c = 0; c < CLI_COMMAND_COUNT; c++) {
        printf("        '%s:", cli_command_name((cli_command)c));
        put_menu(cli_help_summaries[c], ":", ZSH_APOSTROPHE);
        printf("'\n");
    }
    printf("    )\n"
           "    if (( CURRENT == 2 )); then\n"
           "        _describe command commands\n"
           "        return\n"
           "    fi\n"
           "    local command=$words[2]\n"
           "    shift words\n"
           "    (( CURRENT-- ))\n"
           "    case $command in\n");
    for (int c = 0; c < CLI_COMMAND_COUNT; c++)
        zsh_command(c);
    printf("    esac\n"
           "}\n"
           "_cohobate \"$@\"\n");
}

/* ---- fish ---- */

static void fish_flag(const cli_flag_row *row, int command)
{
    printf("complete -c cohobate -n '__fish_seen_subcommand_from %s' -l %s",
           cli_command_name((cli_command)command), row->name);
    if (row->short_name)
        printf(" -s %c", row->short_name);
    if (row->takes) {
        printf(" -r%s -a '", takes_path(row) ? " -F" : " -f");
        put_words(row, " ");
        printf("'");
    }
    printf(" -d '");
    put_menu(row->help, "", FISH_APOSTROPHE);
    printf("'\n");
}

static void fish_command(int command)
{
    const char *name = cli_command_name((cli_command)command);
    const cli_operand operand = cli_command_operand((cli_command)command);
    printf("complete -c cohobate -n __fish_use_subcommand -f -a %s -d '", name);
    put_menu(cli_help_summaries[command], "", FISH_APOSTROPHE);
    printf("'\n");
    for (int f = 0; f < CLI_FLAG_COUNT; f++)
        if (is_shown(&cli_flag_table[f], command))
            fish_flag(&cli_flag_table[f], command);
    printf("complete -c cohobate -n '__fish_seen_subcommand_from %s' -s h -l help -f"
           " -d 'print all flags'\n",
           name);
    if (operand == CLI_OPERAND_MODEL) {
        printf("complete -c cohobate -n '__fish_seen_subcommand_from %s' -a '", name);
        put_presets(" ");
        printf("' -d preset\n");
    }
}

static void fish(void)
{
    printf("# Completions of cohobate for fish, made from its table of flags.\n");
    for (int c = 0; c < CLI_COMMAND_COUNT; c++)
        fish_command(c);
}

int cli_completions(const char *shell)
{
    if (strcmp(shell, "bash") == 0)
        bash();
    else if (strcmp(shell, "zsh") == 0)
        zsh();
    else if (strcmp(shell, "fish") == 0)
        fish();
    else
        return 0;
    return 1;
}
